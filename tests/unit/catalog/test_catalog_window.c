/*
 * Lifecycle windows and manifest summaries as tables. Expected times are sums worked out by hand.
 */
#include "catalog/catalog_manifest.h"
#include "catalog/catalog_rules.h"
#include "catalog/catalog_window.h"

#include <stdio.h>

#include "support/proves.h"

#define HOT  SF_PBE(DATA_TIER, HOT)
#define WARM SF_PBE(DATA_TIER, WARM)
#define COLD SF_PBE(DATA_TIER, COLD)

/* A ladder: warm after 100 ms, cold after 1000 ms, gone after 5000 ms. */
struct ladder {
    SF_PB(LifecycleTransition) steps[2];
    SF_PB(LifecycleTransition) * list[2];
    SF_PB(LifecyclePolicy) policy;
};

static void make_ladder(struct ladder *out)
{
    searchfabric__v1__lifecycle_policy__init(&out->policy);
    for (int i = 0; i < 2; i++) {
        searchfabric__v1__lifecycle_transition__init(&out->steps[i]);
        out->list[i] = &out->steps[i];
    }
    out->steps[0].after_ms = 100;
    out->steps[0].target_tier = WARM;
    out->steps[1].after_ms = 1000;
    out->steps[1].target_tier = COLD;
    out->policy.transitions = out->list;
    out->policy.n_transitions = 2;
    out->policy._retention_ms_case = SEARCHFABRIC__V1__LIFECYCLE_POLICY___RETENTION_MS_RETENTION_MS;
    out->policy.retention_ms = 5000;
}

static void test_next_transition(void **state)
{
    (void)state;
    SF_PROVES("CCS-5.9-07");
    static const struct {
        int64_t end_ms;
        uint64_t first_after_ms, second_after_ms;
        SF_PB(DataTier) tier;
        bool present;
        int64_t at_ms;
    } rows[] = {
        {10000, 100, 1000, HOT, true, 10100},
        {10000, 100, 1000, WARM, true, 11000},
        {10000, 100, 1000, COLD, false, 0},
        {0, 100, 1000, HOT, true, 100},
        {-10000, 100, 1000, HOT, true, -9900},
        {INT64_MIN, 100, 1000, HOT, true, INT64_MIN + 100},
        {INT64_MIN, UINT64_MAX - 1, UINT64_MAX, HOT, true, INT64_MAX - 1},
        {INT64_MIN, UINT64_MAX - 1, UINT64_MAX, WARM, true, INT64_MAX},
        {INT64_MAX, 1, 2, HOT, true, INT64_MAX},
        {INT64_MAX - 100, 100, 101, HOT, true, INT64_MAX},
        {INT64_MAX - 100, 100, 101, WARM, true, INT64_MAX},
        {INT64_MAX - 101, 100, 101, HOT, true, INT64_MAX - 1},
    };
    for (size_t i = 0; i < SF_ARRAY_LEN(rows); i++) {
        struct ladder ladder;
        make_ladder(&ladder);
        ladder.steps[0].after_ms = rows[i].first_after_ms;
        ladder.steps[1].after_ms = rows[i].second_after_ms;
        struct sf_catalog_when when =
            sf_catalog_next_transition(rows[i].end_ms, rows[i].tier, &ladder.policy);
        assert_int_equal(when.present, rows[i].present);
        assert_true(when.unix_ms == rows[i].at_ms);
    }
    assert_false(sf_catalog_next_transition(10000, HOT, NULL).present);
    struct ladder short_ladder;
    make_ladder(&short_ladder);
    short_ladder.policy.n_transitions = 1; /* warm is the last rung */
    assert_true(sf_catalog_next_transition(10000, HOT, &short_ladder.policy).present);
    assert_false(sf_catalog_next_transition(10000, WARM, &short_ladder.policy).present);
}

static void test_due_tier(void **state)
{
    (void)state;
    SF_PROVES("CCS-5.9-07");
    struct ladder ladder;
    make_ladder(&ladder);
    assert_int_equal(sf_catalog_due_tier(10000, HOT, &ladder.policy, 10099), HOT);
    assert_int_equal(sf_catalog_due_tier(10000, HOT, &ladder.policy, 10100), WARM);
    assert_int_equal(sf_catalog_due_tier(10000, HOT, &ladder.policy, 10999), WARM);
    assert_int_equal(sf_catalog_due_tier(10000, HOT, &ladder.policy, 11000), COLD);
    assert_int_equal(sf_catalog_due_tier(10000, WARM, &ladder.policy, 10999), WARM);
    assert_int_equal(sf_catalog_due_tier(10000, COLD, &ladder.policy, INT64_MAX), COLD);
    assert_int_equal(sf_catalog_due_tier(10000, HOT, NULL, INT64_MAX), HOT);
}

static void test_retention_deadline(void **state)
{
    (void)state;
    SF_PROVES("CCS-5.9-09");
    struct ladder ladder;
    make_ladder(&ladder);
    struct sf_catalog_when when = sf_catalog_retention_deadline(10000, &ladder.policy);
    assert_true(when.present);
    assert_int_equal(when.unix_ms, 15000);
    assert_false(sf_catalog_reached(when, 14999));
    assert_true(sf_catalog_reached(when, 15000)); /* the deadline itself is reached */
    ladder.policy.retention_ms = 0;
    assert_int_equal(sf_catalog_retention_deadline(10000, &ladder.policy).unix_ms, 10000);
    ladder.policy.retention_ms = UINT64_MAX;
    assert_true(sf_catalog_retention_deadline(10000, &ladder.policy).unix_ms == INT64_MAX);
    ladder.policy._retention_ms_case = 0;
    when = sf_catalog_retention_deadline(10000, &ladder.policy);
    assert_false(when.present);
    assert_false(sf_catalog_reached(when, INT64_MAX));
    assert_false(sf_catalog_retention_deadline(10000, NULL).present);
}

/* Each of the three conditions alone holds the window back. */
static void test_reclaim(void **state)
{
    (void)state;
    struct ladder ladder;
    make_ladder(&ladder);
    char *objects[] = {"o-1"};
    SF_PB(ManifestLifecycleWindow) window;
    searchfabric__v1__manifest_lifecycle_window__init(&window);
    window.window_end_ms = 10000;
    window.retired_object_keys = objects;
    window.n_retired_object_keys = 1;
    window.retired_at_unix_ms = 12000;
    /* deadline 15000; retired at 12000, safe at 15000 with a grace of 3000 */
    assert_int_equal(sf_catalog_reclaim_check(&window, &ladder.policy, 3000, 14999),
                     SF_CATALOG_RECLAIM_EARLY);
    assert_int_equal(sf_catalog_reclaim_check(&window, &ladder.policy, 0, 14999),
                     SF_CATALOG_RECLAIM_EARLY); /* ordinary GC would have let it go */
    assert_int_equal(sf_catalog_reclaim_check(&window, &ladder.policy, 3000, 15000),
                     SF_CATALOG_RECLAIM_NOW);
    assert_int_equal(sf_catalog_reclaim_check(&window, &ladder.policy, 3001, 15000),
                     SF_CATALOG_RECLAIM_GRACE);
    window.object_keys = objects;
    window.n_object_keys = 1;
    assert_int_equal(sf_catalog_reclaim_check(&window, &ladder.policy, 3000, 15000),
                     SF_CATALOG_RECLAIM_REFERENCED);
    window.n_object_keys = 0;
    window.n_retired_object_keys = 0;
    assert_int_equal(sf_catalog_reclaim_check(&window, &ladder.policy, 3000, 15000),
                     SF_CATALOG_RECLAIM_EMPTY);
    window.n_retired_object_keys = 1;
    ladder.policy._retention_ms_case = 0; /* kept for ever */
    assert_int_equal(sf_catalog_reclaim_check(&window, &ladder.policy, 0, INT64_MAX),
                     SF_CATALOG_RECLAIM_EARLY);
}

/* ---- summaries ---------------------------------------------------------------------------- */

/* A summary of manifest 5 with two fields, one tuple, two windows. */
struct summary {
    SF_PB(FieldStatistics) fields[2];
    SF_PB(FieldStatistics) * field_list[2];
    SF_PB(ExtendedStatistics) tuples[2];
    SF_PB(ExtendedStatistics) * tuple_list[2];
    char *paths[2][2];
    SF_PB(ManifestLifecycleWindow) windows[2];
    SF_PB(ManifestLifecycleWindow) * window_list[2];
    SF_PB(ManifestSummaryObject) object;
};

static void make_summary(struct summary *out)
{
    static char *const names[] = {"a", "b"};
    searchfabric__v1__manifest_summary_object__init(&out->object);
    for (int i = 0; i < 2; i++) {
        searchfabric__v1__field_statistics__init(&out->fields[i]);
        searchfabric__v1__extended_statistics__init(&out->tuples[i]);
        searchfabric__v1__manifest_lifecycle_window__init(&out->windows[i]);
        out->fields[i].field_name = names[i];
        out->paths[i][0] = names[i];
        out->paths[i][1] = names[1 - i];
        out->tuples[i].field_paths = out->paths[i];
        out->tuples[i].n_field_paths = 2;
        out->windows[i].window_start_ms = i * 10;
        out->windows[i].window_end_ms = i * 10 + 10;
        out->windows[i].tier = HOT;
        out->windows[i].published_manifest_version = 5;
        out->field_list[i] = &out->fields[i];
        out->tuple_list[i] = &out->tuples[i];
        out->window_list[i] = &out->windows[i];
    }
    out->object.manifest_version = 5;
    out->object.row_count = 3;
    out->object.field_stats = out->field_list;
    out->object.n_field_stats = 2;
    out->object.extended_stats = out->tuple_list;
    out->object.n_extended_stats = 2;
    out->object.lifecycle_windows = out->window_list;
    out->object.n_lifecycle_windows = 2;
}

static void test_summary_shapes(void **state)
{
    (void)state;
    struct summary s;
    make_summary(&s);
    assert_int_equal(sf_catalog_summary_check(&s.object, 5, NULL), SF_OK);
    assert_int_equal(sf_catalog_summary_check(&s.object, 4, NULL), SF_ERR_CORRUPT);
    s.object.manifest_version = 0;
    assert_int_equal(sf_catalog_summary_check(&s.object, 5, NULL), SF_ERR_CORRUPT);
#define REFUSED(change)                                                                            \
    do {                                                                                           \
        make_summary(&s);                                                                          \
        change;                                                                                    \
        assert_int_equal(sf_catalog_summary_check(&s.object, 5, NULL), SF_ERR_CORRUPT);            \
    } while (0)
    REFUSED(s.fields[1].field_name = "a");
    REFUSED(s.fields[0].field_name = "");
    REFUSED(s.fields[0].null_count = 4);
    REFUSED(s.fields[0].distinct_count = 4);
    REFUSED(s.tuples[1].field_paths = s.paths[0]);
    REFUSED(s.tuples[0].n_field_paths = 1);
    REFUSED(s.tuples[0].distinct_count = 4);
    REFUSED(s.windows[1].window_start_ms = 9);
    REFUSED(s.windows[1].window_end_ms = 10);
    REFUSED(s.windows[0].tier = SF_PBE(DATA_TIER, UNSPECIFIED));
    REFUSED(s.windows[0].tier = (SF_PB(DataTier))4);
    REFUSED(s.windows[0].published_manifest_version = 6);
    REFUSED(s.windows[0].published_manifest_version = 0);
    REFUSED(s.windows[0].retired_object_keys = s.paths[0]; s.windows[0].n_retired_object_keys = 1);
#undef REFUSED
}

/* At each bound a summary is taken, one more is refused. */
static void test_summary_bounds(void **state)
{
    (void)state;
    struct summary s;
    static char *keys[SF_CATALOG_SUMMARY_OBJECTS + 1];
    static char names[SF_CATALOG_SUMMARY_FIELDS + 1][16];
    static SF_PB(FieldStatistics) fields[SF_CATALOG_SUMMARY_FIELDS + 1];
    static SF_PB(FieldStatistics) * list[SF_CATALOG_SUMMARY_FIELDS + 1];
    make_summary(&s);
    for (int i = 0; i <= SF_CATALOG_SUMMARY_FIELDS; i++) {
        searchfabric__v1__field_statistics__init(&fields[i]);
        snprintf(names[i], sizeof(names[i]), "f%04d", i);
        fields[i].field_name = names[i];
        list[i] = &fields[i];
    }
    s.object.field_stats = list;
    s.object.n_field_stats = SF_CATALOG_SUMMARY_FIELDS;
    assert_int_equal(sf_catalog_summary_check(&s.object, 5, NULL), SF_OK);
    s.object.n_field_stats++;
    assert_int_equal(sf_catalog_summary_check(&s.object, 5, NULL), SF_ERR_CORRUPT);

    static char tuple_names[SF_CATALOG_SUMMARY_TUPLES + 1][16];
    static char *paths[SF_CATALOG_SUMMARY_TUPLES + 1][2];
    static SF_PB(ExtendedStatistics) tuples[SF_CATALOG_SUMMARY_TUPLES + 1];
    static SF_PB(ExtendedStatistics) * tuple_list[SF_CATALOG_SUMMARY_TUPLES + 1];
    make_summary(&s);
    for (int i = 0; i <= SF_CATALOG_SUMMARY_TUPLES; i++) {
        searchfabric__v1__extended_statistics__init(&tuples[i]);
        snprintf(tuple_names[i], sizeof(tuple_names[i]), "t%03d", i);
        paths[i][0] = tuple_names[i];
        paths[i][1] = "z";
        tuples[i].field_paths = paths[i];
        tuples[i].n_field_paths = 2;
        tuple_list[i] = &tuples[i];
    }
    s.object.extended_stats = tuple_list;
    s.object.n_extended_stats = SF_CATALOG_SUMMARY_TUPLES;
    assert_int_equal(sf_catalog_summary_check(&s.object, 5, NULL), SF_OK);
    s.object.n_extended_stats++;
    assert_int_equal(sf_catalog_summary_check(&s.object, 5, NULL), SF_ERR_CORRUPT);

    make_summary(&s);
    for (size_t i = 0; i < SF_ARRAY_LEN(keys); i++)
        keys[i] = "k";
    s.windows[0].object_keys = keys;
    s.windows[0].n_object_keys = SF_CATALOG_SUMMARY_OBJECTS;
    assert_int_equal(sf_catalog_summary_check(&s.object, 5, NULL), SF_OK);
    s.windows[0].n_object_keys++;
    assert_int_equal(sf_catalog_summary_check(&s.object, 5, NULL), SF_ERR_CORRUPT);

    static SF_PB(ManifestLifecycleWindow) windows[SF_CATALOG_SUMMARY_WINDOWS + 1];
    static SF_PB(ManifestLifecycleWindow) * window_list[SF_CATALOG_SUMMARY_WINDOWS + 1];
    make_summary(&s);
    for (int i = 0; i <= SF_CATALOG_SUMMARY_WINDOWS; i++) {
        windows[i] = s.windows[0];
        windows[i].window_start_ms = i * 10;
        windows[i].window_end_ms = i * 10 + 10;
        window_list[i] = &windows[i];
    }
    s.object.lifecycle_windows = window_list;
    s.object.n_lifecycle_windows = SF_CATALOG_SUMMARY_WINDOWS;
    assert_int_equal(sf_catalog_summary_check(&s.object, 5, NULL), SF_OK);
    s.object.n_lifecycle_windows++;
    assert_int_equal(sf_catalog_summary_check(&s.object, 5, NULL), SF_ERR_CORRUPT);
}

/* ---- the declared family ------------------------------------------------------------------ */

static void test_declared_tuples(void **state)
{
    (void)state;
    struct {
        SF_PB(PutCollectionSchemaRequest) request;
        SF_PB(CollectionRef) ref;
        SF_PB(SchemaFencePrecondition) fence;
        SF_PB(CollectionSchemaDefinition) definition;
        SF_PB(DocIDMapping) mapping;
        SF_PB(FieldDefinition) fields[70];
        SF_PB(FieldDefinition) * field_list[70];
        SF_PB(Modality) modality;
        char names[70][16];
        SF_PB(StatisticsTuple) tuples[65];
        SF_PB(StatisticsTuple) * tuple_list[65];
        char *paths[65][9];
    } t;
    struct sf_diag diag;
    searchfabric__v1__put_collection_schema_request__init(&t.request);
    searchfabric__v1__collection_ref__init(&t.ref);
    searchfabric__v1__schema_fence_precondition__init(&t.fence);
    searchfabric__v1__collection_schema_definition__init(&t.definition);
    searchfabric__v1__doc_idmapping__init(&t.mapping);
    t.ref.namespace_id = t.ref.collection_id = 1;
    t.fence.schema_generation_token = "tok";
    t.mapping.generation_policy = SF_PBE(DOC_ID_GENERATION_POLICY, CALLER_REQUIRED);
    t.modality = SF_PBE(MODALITY, METADATA_SEARCH);
    t.definition.collection_truth_mode = SF_PBE(COLLECTION_TRUTH_MODE, SEARCH_FABRIC);
    t.definition.doc_id_mapping = &t.mapping;
    t.definition.fields = t.field_list;
    t.definition.n_fields = 70;
    for (int i = 0; i < 70; i++) {
        searchfabric__v1__field_definition__init(&t.fields[i]);
        snprintf(t.names[i], sizeof(t.names[i]), "f%02d", i);
        t.fields[i].name = t.names[i];
        t.fields[i].type = SF_PBE(FIELD_TYPE, KEYWORD);
        t.fields[i].modalities = &t.modality;
        t.fields[i].n_modalities = 1;
        t.field_list[i] = &t.fields[i];
    }
    for (int i = 0; i < 65; i++) {
        searchfabric__v1__statistics_tuple__init(&t.tuples[i]);
        for (int k = 0; k < 9; k++)
            t.paths[i][k] = t.names[i + k > 69 ? i + k - 70 : i + k];
        t.tuples[i].field_paths = t.paths[i];
        t.tuples[i].n_field_paths = 2;
        t.tuple_list[i] = &t.tuples[i];
    }
    t.definition.extended_statistics = t.tuple_list;
    t.definition.n_extended_statistics = 64;
    t.request.collection = &t.ref;
    t.request.schema_version = 1;
    t.request.fence = &t.fence;
    t.request.definition = &t.definition;
    assert_int_equal(sf_catalog_schema_check(&t.request, &diag), SF_OK);
    t.definition.n_extended_statistics = 65;
    assert_int_equal(sf_catalog_schema_check(&t.request, &diag), SF_BAD_REQUEST);
    assert_string_equal(sf_diag_get(&diag, "violation"), "too_many");
    t.definition.n_extended_statistics = 2;
    t.tuples[0].n_field_paths = 8;
    assert_int_equal(sf_catalog_schema_check(&t.request, &diag), SF_OK);
    t.tuples[0].n_field_paths = 9;
    assert_int_equal(sf_catalog_schema_check(&t.request, &diag), SF_BAD_REQUEST);
    t.tuples[0].n_field_paths = 1;
    assert_int_equal(sf_catalog_schema_check(&t.request, &diag), SF_BAD_REQUEST);
    assert_string_equal(sf_diag_get(&diag, "violation"), "out_of_range");
    t.tuples[0].n_field_paths = 2;
    t.paths[0][1] = "nowhere";
    assert_int_equal(sf_catalog_schema_check(&t.request, &diag), SF_BAD_REQUEST);
    assert_string_equal(sf_diag_get(&diag, "violation"), "unknown");
    t.paths[0][1] = t.paths[0][0];
    assert_int_equal(sf_catalog_schema_check(&t.request, &diag), SF_BAD_REQUEST);
    assert_string_equal(sf_diag_get(&diag, "violation"), "duplicate");
    t.paths[0][0] = t.paths[1][1]; /* (f02, f01) beside (f01, f02): two tuples */
    t.paths[0][1] = t.paths[1][0];
    assert_int_equal(sf_catalog_schema_check(&t.request, &diag), SF_OK);
    t.paths[0][0] = t.paths[1][0];
    t.paths[0][1] = t.paths[1][1];
    assert_int_equal(sf_catalog_schema_check(&t.request, &diag), SF_BAD_REQUEST);
    assert_string_equal(sf_diag_get(&diag, "violation"), "duplicate");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_next_transition),    cmocka_unit_test(test_due_tier),
        cmocka_unit_test(test_retention_deadline), cmocka_unit_test(test_reclaim),
        cmocka_unit_test(test_summary_shapes),     cmocka_unit_test(test_summary_bounds),
        cmocka_unit_test(test_declared_tuples),
    };
    return SF_RUN_TESTS("catalog_window", tests);
}
