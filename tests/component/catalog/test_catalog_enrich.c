/*
 * Lagging descriptor fields: what the projectors derive from committed manifests, convergence and
 * reported backlog, and when. Cycles are run by hand; nothing else moves the fields.
 */
#include <inttypes.h>
#include <stdio.h>

#include "catalog/catalog_projector.h"
#include "catalog/catalog_serving.h"
#include "component/catalog/catalog_manifests.h"
#include "component/catalog/lineage_world.h"

static const SF_PB(CollectionDescriptor) *
    collection_of(struct world *w, uint64_t ns, uint64_t collection)
{
    SF_PB(GetCollectionMetadataRequest) get;
    searchfabric__v1__get_collection_metadata_request__init(&get);
    get.meta = world_meta(w, "", SF_PBE(CLIENT_KIND, ES_QUERY_GATEWAY));
    get.lookup_case = SEARCHFABRIC__V1__GET_COLLECTION_METADATA_REQUEST__LOOKUP_COLLECTION;
    get.collection = world_ref(w, ns, collection);
    const SF_PB(GetCollectionMetadataResponse) *response =
        world_call(w, "GetCollectionMetadata", &get);
    return response == NULL ? NULL : response->descriptor;
}

static const SF_PB(NamespaceDescriptor) * namespace_of(struct world *w, uint64_t ns)
{
    SF_PB(GetNamespaceMetadataRequest) get;
    searchfabric__v1__get_namespace_metadata_request__init(&get);
    get.meta = world_meta(w, "", SF_PBE(CLIENT_KIND, ES_QUERY_GATEWAY));
    get.lookup_case = SEARCHFABRIC__V1__GET_NAMESPACE_METADATA_REQUEST__LOOKUP_NAMESPACE_ID;
    get.namespace_id = ns;
    const SF_PB(GetNamespaceMetadataResponse) *response =
        world_call(w, "GetNamespaceMetadata", &get);
    return response == NULL ? NULL : response->descriptor;
}

/* "stats=rows/bytes index=up|N|- ready" or "... missing a,b". */
static const char *fields_text(struct world *w, const SF_PB(ApproxStats) * stats,
                               const SF_PB(IndexStatus) * index,
                               const SF_PB(DescriptorCompleteness) * completeness)
{
    char text[160];
    int len = 0;
    if (stats == NULL)
        len += snprintf(text, sizeof(text), "stats=- ");
    else
        len += snprintf(text, sizeof(text), "stats=%" PRIu64 "/%" PRIu64 " ",
                        stats->approx_row_count, stats->approx_logical_bytes);
    if (index == NULL)
        len += snprintf(text + len, sizeof(text) - (size_t)len, "index=- ");
    else if (index->state_case == SEARCHFABRIC__V1__INDEX_STATUS__STATE_UP_TO_DATE)
        len += snprintf(text + len, sizeof(text) - (size_t)len, "index=up ");
    else
        len += snprintf(text + len, sizeof(text) - (size_t)len, "index=%" PRIu64 " ",
                        index->updating->unindexed_bytes);
    if (completeness->state_case == SEARCHFABRIC__V1__DESCRIPTOR_COMPLETENESS__STATE_READY)
        snprintf(text + len, sizeof(text) - (size_t)len, "ready");
    else
        for (size_t i = 0; i < completeness->publishing->n_missing_fields; i++)
            len += snprintf(text + len, sizeof(text) - (size_t)len, "%s%s",
                            i == 0 ? "missing " : ",", completeness->publishing->missing_fields[i]);
    return world_text(w, text);
}

static const char *collection_fields(struct world *w, uint64_t ns, uint64_t collection)
{
    const SF_PB(CollectionDescriptor) *d = collection_of(w, ns, collection);
    assert_non_null(d);
    return fields_text(w, d->approx_stats, d->index, d->completeness);
}

static const char *namespace_fields(struct world *w, uint64_t ns)
{
    const SF_PB(NamespaceDescriptor) *d = namespace_of(w, ns);
    assert_non_null(d);
    return fields_text(w, d->approx_stats, d->index, d->completeness);
}

static enum sf_err backlog(struct world *w, uint64_t ns, uint64_t collection, const char *token,
                           uint64_t bytes)
{
    SF_PB(ReportIndexBacklogRequest) report;
    searchfabric__v1__report_index_backlog_request__init(&report);
    report.collection = world_ref(w, ns, collection);
    report.schema_generation_token = world_text(w, token);
    report.unindexed_bytes = bytes;
    return world_call(w, "ReportIndexBacklog", &report) != NULL ? SF_OK : w->diag.err;
}

/* A collection with a READY generation. */
static uint64_t serving_collection(struct world *w, uint64_t ns, const char *name,
                                   const char *token)
{
    char key[64];
    snprintf(key, sizeof(key), "c-%s", name);
    uint64_t collection = world_collection(w, key, ns, name);
    snprintf(key, sizeof(key), "s-%s", name);
    world_schema(w, key, ns, collection, 1, token);
    world_ready(w, ns, collection, 1, token);
    return collection;
}

static void test_collection_fields(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.3-09", "CCS-5.7-01", "CCS-5.7-03", "CCS-5.7-04", "CCS-5.7-05", "CCS-5.7-06",
              "CCS-5.7-07", "CCS-5.7-08");
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t c = world_collection(w, "c", ns, "books");
    assert_string_equal(collection_fields(w, ns, c), "stats=- index=- missing approx_stats,index");
    world_schema(w, "s", ns, c, 1, "tok-1");
    world_ready(w, ns, c, 1, "tok-1");
    assert_int_equal(backlog(w, ns, c, "tok-1", 700), SF_OK);
    /* nothing shows before a cycle */
    assert_string_equal(collection_fields(w, ns, c), "stats=- index=- missing approx_stats,index");
    world_job(w, "collection-index");
    assert_string_equal(collection_fields(w, ns, c), "stats=- index=700 missing approx_stats");
    world_job(w, "collection-stats");
    assert_string_equal(collection_fields(w, ns, c), "stats=0/0 index=700 ready");

    manifest_publish(w, ns, c, 5, 42, 4200, NULL);
    assert_string_equal(collection_fields(w, ns, c), "stats=0/0 index=700 ready");
    assert_int_equal(world_job(w, "collection-stats"), 1);
    assert_string_equal(collection_fields(w, ns, c), "stats=42/4200 index=700 ready");
    manifest_publish(w, ns, c, 6, 40, 4000, NULL); /* a compaction */
    world_job(w, "collection-stats");
    assert_string_equal(collection_fields(w, ns, c), "stats=40/4000 index=700 ready");

    assert_int_equal(backlog(w, ns, c, "tok-1", 10), SF_OK);
    world_job(w, "collection-index");
    assert_string_equal(collection_fields(w, ns, c), "stats=40/4000 index=10 ready");
    assert_int_equal(backlog(w, ns, c, "tok-1", 0), SF_OK);
    world_job(w, "collection-index");
    assert_string_equal(collection_fields(w, ns, c), "stats=40/4000 index=up ready");
    /* a new generation is not up to date before it is READY and its own backlog is reported */
    world_schema(w, "s2", ns, c, 2, "tok-2");
    world_job(w, "collection-index");
    assert_string_equal(collection_fields(w, ns, c), "stats=40/4000 index=0 ready");
    world_ready(w, ns, c, 2, "tok-2");
    world_job(w, "collection-index");
    assert_string_equal(collection_fields(w, ns, c), "stats=40/4000 index=0 ready");
    assert_int_equal(backlog(w, ns, c, "tok-2", 0), SF_OK);
    world_job(w, "collection-index");
    assert_string_equal(collection_fields(w, ns, c), "stats=40/4000 index=up ready");
}

/* A head advance is all it takes: one cycle after it the fields are the new manifest's. */
static void test_head_advance_wakes(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.7-03", "CCS-5.7-04", "CCS-5.8-06");
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t c = serving_collection(w, ns, "a", "tok");
    char digest[SF_SHA256_HEX_BYTES];
    world_enrich(w);
    world_job(w, "statistics");
    uint64_t head = 0;
    for (uint64_t version = 1; version <= 3; version++) {
        SF_PB(SubmitHeadAdvanceIntentRequest) intent;
        searchfabric__v1__submit_head_advance_intent_request__init(&intent);
        manifest_write(w, ns, c, version, 10 * version, 100 * version, NULL, digest);
        manifest_point(w, ns, c, version, digest);
        assert_int_equal(world_job(w, "collection-stats"), 0); /* nobody said so yet */
        intent.collection = world_ref(w, ns, c);
        intent.expected_head_version = (int64_t)head;
        intent.new_head_version = head = version;
        intent.manifest_checksum_or_etag = digest;
        if (world_call(w, "SubmitHeadAdvanceIntent", &intent) == NULL)
            fail_msg("%s", w->diag.message);
        if (version == 3)
            world_restart(w); /* the advance is not forgotten */
        assert_int_equal(world_job(w, "collection-stats"), 1);
        assert_int_equal(collection_of(w, ns, c)->approx_stats->approx_row_count, 10 * version);
        assert_int_equal(world_job(w, "statistics"), 1);
    }
    assert_string_equal(
        world_rows(w, "SELECT CAST(COUNT(*) AS TEXT) FROM collection_statistics_snapshots", 1),
        "4\n");
}

static void test_backlog_refusals(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t c = world_collection(w, "c", ns, "books");
    assert_int_equal(backlog(w, ns, c, "tok-1", 1), SF_CATALOG_UNAVAILABLE);
    assert_string_equal(sf_diag_get(&w->diag, "schema_bootstrap_state"),
                        "no_active_schema_generation");
    world_schema(w, "s", ns, c, 1, "tok-1");
    assert_int_equal(backlog(w, ns, c, "tok-1", 1), SF_OK); /* APPLYING is active */
    world_schema(w, "s2", ns, c, 2, "tok-2");
    assert_int_equal(backlog(w, ns, c, "tok-1", 1), SF_VERSION_CONFLICT);
    assert_int_equal(backlog(w, ns, c + 1, "tok-1", 1), SF_RESOURCE_NOT_FOUND);
    assert_int_equal(backlog(w, ns, c, "", 1), SF_BAD_REQUEST);
    assert_int_equal(backlog(w, 0, c, "tok-2", 1), SF_BAD_REQUEST);
    const char *rows = "SELECT schema_generation_token FROM collection_index_backlogs";
    assert_string_equal(world_rows(w, rows, 1), "tok-1\n"); /* the refused ones wrote nothing */
    assert_int_equal(lineage_drop(w, "d", ns, c, NULL), DROPPED);
    assert_int_equal(backlog(w, ns, c, "tok-2", 1), SF_RESOURCE_NOT_FOUND);
    assert_string_equal(world_rows(w, rows, 1), "");
}

static void test_namespace_aggregate(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.7-11", "CCS-5.7-13", "CCS-5.7-14", "CCS-5.7-17");
    uint64_t ns = world_namespace(w, "n", "alpha");
    static const char *const names[] = {"a", "b", "c"};
    static const uint64_t bytes[] = {10, 20, 0};
    uint64_t c[3];
    for (int i = 0; i < 3; i++) {
        c[i] = serving_collection(w, ns, names[i], "tok");
        manifest_publish(w, ns, c[i], 1, (uint64_t)(i + 1), (uint64_t)(100 * (i + 1)), NULL);
    }
    /* a child without index makes the namespace updating with what is known: nothing */
    world_enrich(w);
    assert_string_equal(namespace_fields(w, ns), "stats=6/600 index=0 ready");
    for (int i = 0; i < 3; i++)
        assert_int_equal(backlog(w, ns, c[i], "tok", bytes[i]), SF_OK);
    world_job(w, "collection-index");
    assert_string_equal(namespace_fields(w, ns), "stats=6/600 index=0 ready"); /* no cycle yet */
    assert_int_equal(world_job(w, "namespace-aggregate"), 1);
    assert_string_equal(namespace_fields(w, ns), "stats=6/600 index=30 ready");

    manifest_publish(w, ns, c[0], 2, 1000, 5000, NULL);
    world_job(w, "collection-stats");
    world_job(w, "namespace-aggregate");
    assert_string_equal(namespace_fields(w, ns), "stats=1005/5500 index=30 ready");

    assert_int_equal(lineage_drop(w, "d", ns, c[1], NULL), DROPPED);
    world_job(w, "namespace-aggregate");
    assert_string_equal(namespace_fields(w, ns), "stats=1003/5300 index=10 ready");
    assert_int_equal(backlog(w, ns, c[0], "tok", 0), SF_OK); /* one of two is up to date */
    assert_int_equal(backlog(w, ns, c[2], "tok", 7), SF_OK);
    world_job(w, "collection-index");
    world_job(w, "namespace-aggregate");
    assert_string_equal(namespace_fields(w, ns), "stats=1003/5300 index=7 ready");
    assert_int_equal(backlog(w, ns, c[2], "tok", 0), SF_OK);
    world_job(w, "collection-index");
    world_job(w, "namespace-aggregate");
    assert_string_equal(namespace_fields(w, ns), "stats=1003/5300 index=up ready");
}

/* The aggregator never runs here: what shows without children is written by the commands. */
static void test_zero_children(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.2-32", "CCS-5.7-10", "CCS-5.7-15");
    uint64_t ns = world_namespace(w, "n", "alpha");
    assert_string_equal(namespace_fields(w, ns), "stats=0/0 index=up ready");
    uint64_t a = serving_collection(w, ns, "a", "tok");
    uint64_t b = serving_collection(w, ns, "b", "tok");
    manifest_publish(w, ns, a, 1, 10, 100, NULL);
    manifest_publish(w, ns, b, 1, 5, 50, NULL);
    world_enrich(w);
    assert_string_equal(namespace_fields(w, ns), "stats=15/150 index=0 ready");
    assert_int_equal(lineage_drop(w, "d1", ns, a, NULL), DROPPED);
    assert_string_equal(namespace_fields(w, ns), "stats=15/150 index=0 ready"); /* lags */
    assert_int_equal(lineage_drop(w, "d2", ns, b, NULL), DROPPED);
    assert_string_equal(namespace_fields(w, ns), "stats=0/0 index=up ready"); /* does not */
    world_enrich(w); /* what was still due changes nothing any more */
    assert_string_equal(namespace_fields(w, ns), "stats=0/0 index=up ready");
}

/* After a rebuild: absent where there are children, seeded where there are none; a published value
 * of a namespace never goes away by itself. */
static void test_rebuild(void **state)
{
    struct world *w = *state;
    uint64_t full = world_namespace(w, "n1", "alpha");
    uint64_t empty = world_namespace(w, "n2", "beta");
    uint64_t a = serving_collection(w, full, "a", "tok");
    uint64_t b = serving_collection(w, full, "b", "tok");
    uint64_t gone = serving_collection(w, empty, "x", "tok");
    manifest_publish(w, full, a, 1, 10, 100, NULL);
    assert_int_equal(backlog(w, full, a, "tok", 3), SF_OK);
    assert_int_equal(backlog(w, full, b, "tok", 0), SF_OK);
    assert_int_equal(lineage_drop(w, "d", empty, gone, NULL), DROPPED);
    world_enrich(w);
    assert_string_equal(namespace_fields(w, full), "stats=10/100 index=3 ready");
    world_rebuild(w);
    assert_string_equal(namespace_fields(w, empty), "stats=0/0 index=up ready");
    assert_string_equal(namespace_fields(w, full), "stats=- index=- missing approx_stats,index");
    assert_string_equal(collection_fields(w, full, a),
                        "stats=- index=- missing approx_stats,index");
    world_enrich(w);
    assert_string_equal(collection_fields(w, full, a), "stats=10/100 index=- missing index");
    assert_string_equal(namespace_fields(w, full), "stats=10/100 index=0 ready");
    assert_int_equal(backlog(w, full, a, "tok", 3), SF_OK);
    assert_int_equal(backlog(w, full, b, "tok", 0), SF_OK);
    world_enrich(w);
    assert_string_equal(namespace_fields(w, full), "stats=10/100 index=3 ready");
    /* a new child without values leaves what was published */
    world_collection(w, "c3", full, "c");
    world_job(w, "namespace-aggregate");
    assert_string_equal(namespace_fields(w, full), "stats=10/100 index=3 ready");
}

/* Projector writes are not the commands': revisions, objects and times stay. */
static void test_revisions_stay(void **state)
{
    struct world *w = *state;
    static const char query[] = "SELECT descriptor_revision, updated_at_unix_ms"
                                " FROM collections";
    static const char names[] = "SELECT namespace_revision, updated_at_unix_ms FROM namespaces";
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t c = serving_collection(w, ns, "a", "tok");
    const char *collections = world_rows(w, query, 2);
    const char *namespaces = world_rows(w, names, 2);
    size_t objects = world_list(w, "catalog/", NULL);
    sf_clock_manual_advance(&w->clock, 5000);
    manifest_publish(w, ns, c, 1, 10, 100, NULL);
    objects++; /* the pointer itself */
    assert_int_equal(backlog(w, ns, c, "tok", 3), SF_OK);
    world_enrich(w);
    assert_string_equal(collection_fields(w, ns, c), "stats=10/100 index=3 ready");
    assert_string_equal(world_rows(w, query, 2), collections);
    assert_string_equal(world_rows(w, names, 2), namespaces);
    assert_int_equal(world_list(w, "catalog/", NULL), objects);
}

/* An idle catalog asks the store for nothing; what was due when the process died is still due. */
static void test_idle_and_restart(void **state)
{
    struct world *w = *state;
    static const char *const jobs[] = {"collection-stats",    "collection-index",
                                       "namespace-aggregate", "statistics",
                                       "lifecycle-windows",   "statistics-retention"};
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t c = serving_collection(w, ns, "a", "tok");
    manifest_publish(w, ns, c, 1, 10, 100, NULL);
    assert_int_equal(backlog(w, ns, c, "tok", 3), SF_OK);
    for (size_t i = 0; i < SF_ARRAY_LEN(jobs); i++)
        world_job(w, jobs[i]);
    for (size_t i = 0; i < SF_ARRAY_LEN(jobs); i++)
        world_job(w, jobs[i]);
    uint64_t gets = atomic_load(&w->wire.gets);
    uint64_t puts = atomic_load(&w->wire.applied);
    uint64_t lists = atomic_load(&w->wire.lists);
    for (int round = 0; round < 3; round++) {
        sf_clock_manual_advance(&w->clock, 60000);
        for (size_t i = 0; i < SF_ARRAY_LEN(jobs); i++)
            assert_int_equal(world_job(w, jobs[i]), 0);
    }
    assert_int_equal(atomic_load(&w->wire.gets), gets);
    assert_int_equal(atomic_load(&w->wire.applied), puts);
    assert_int_equal(atomic_load(&w->wire.lists), lists);

    uint64_t d = serving_collection(w, ns, "b", "tok"); /* notes its work with its rows */
    world_restart(w);
    assert_string_equal(collection_fields(w, ns, d), "stats=- index=- missing approx_stats,index");
    world_job(w, "collection-stats");
    assert_string_equal(collection_fields(w, ns, d), "stats=0/0 index=- missing index");
}

/* A manifest that does not verify is refused whole; what was shown stays; it is looked at again. */
static void test_broken_manifests(void **state)
{
    struct world *w = *state;
    char digest[SF_SHA256_HEX_BYTES];
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t c = serving_collection(w, ns, "a", "tok");
    uint64_t other = serving_collection(w, ns, "b", "tok");
    manifest_publish(w, ns, c, 1, 10, 100, NULL);
    world_job(w, "collection-stats");
    /* another object than the pointer names */
    manifest_write(w, ns, c, 2, 20, 200, NULL, digest);
    manifest_point(w, ns, c, 2, digest);
    truth_put(w, manifest_key(w, ns, c, 2), sf_view_str("{}"));
    sf_catalog_projectors_wake(w->catalog, ns, c);
    manifest_publish(w, ns, other, 1, 7, 70, NULL);
    assert_int_equal(world_job(w, "collection-stats"), 2); /* the other one goes on */
    assert_string_equal(collection_fields(w, ns, c), "stats=10/100 index=- missing index");
    assert_string_equal(collection_fields(w, ns, other), "stats=7/70 index=- missing index");
    uint64_t gets = atomic_load(&w->wire.gets);
    assert_int_equal(world_job(w, "collection-stats"), 0); /* not at once again */
    assert_int_equal(atomic_load(&w->wire.gets), gets);
    manifest_write(w, ns, c, 2, 20, 200, NULL, digest); /* mended */
    sf_clock_manual_advance(&w->clock, SF_CATALOG_PROJECTOR_RETRY_MS - 1);
    assert_int_equal(world_job(w, "collection-stats"), 0);
    sf_clock_manual_advance(&w->clock, 1);
    assert_int_equal(world_job(w, "collection-stats"), 1);
    assert_string_equal(collection_fields(w, ns, c), "stats=20/200 index=- missing index");
    /* a pointer that names a missing object */
    manifest_point(w, ns, c, 9, digest);
    sf_catalog_projectors_wake(w->catalog, ns, c);
    world_job(w, "collection-stats");
    assert_string_equal(collection_fields(w, ns, c), "stats=20/200 index=- missing index");
}

/* A deposed owner's projector writes nothing. */
static void test_deposed(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t c = serving_collection(w, ns, "a", "tok");
    manifest_publish(w, ns, c, 1, 10, 100, NULL);
    world_sql(w, "UPDATE catalog_lane_shards SET owner_epoch = owner_epoch + 1;");
    SF_PB(RunCatalogJobRequest) request;
    searchfabric__v1__run_catalog_job_request__init(&request);
    request.name = world_text(w, "collection-stats");
    assert_null(world_call(w, "RunCatalogJob", &request));
    assert_int_equal(w->diag.err, SF_BACKEND_UNAVAILABLE);
    assert_string_equal(world_rows(w, "SELECT approx_stats_json FROM collections", 1), "NULL\n");
}

static void test_encryption(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.3-08");
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t c = world_collection(w, "c", ns, "books");
    world_sql(w, "UPDATE collections SET encryption_json = '{}';");
    world_restart(w);
    assert_null(collection_of(w, ns, c));
    assert_int_equal(w->diag.err, SF_CATALOG_UNAVAILABLE);
    assert_string_equal(sf_diag_get(&w->diag, "catalog_unavailable_reason"),
                        "descriptor_integrity");
    assert_string_equal(sf_diag_get(&w->diag, "field"), "encryption");
    world_sql(w, "UPDATE namespaces SET encryption_json = '{}';");
    world_restart(w);
    assert_null(namespace_of(w, ns));
    assert_string_equal(sf_diag_get(&w->diag, "catalog_unavailable_reason"),
                        "descriptor_integrity");
}

/* Encryption is the commands' and shows at once, everywhere. */
static void test_encryption_is_synchronous(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.7-02", "CCS-5.7-09");
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t c = world_collection(w, "c", ns, "books");
    assert_non_null(
        world_call(w, "PutNamespaceMetadata", world_namespace_request(w, "n2", "alpha")));
    assert_non_null(
        world_call(w, "PutCollectionMetadata", world_collection_request(w, "c2", ns, "books")));
    assert_int_equal(namespace_of(w, ns)->encryption->mode_case,
                     SEARCHFABRIC__V1__ENCRYPTION_POLICY__MODE_PROVIDER_MANAGED);
    assert_int_equal(collection_of(w, ns, c)->encryption->mode_case,
                     SEARCHFABRIC__V1__ENCRYPTION_POLICY__MODE_PROVIDER_MANAGED);
    const char *answers = world_answers(w, ns);
    const char *at = answers;
    int shown = 0;
    while ((at = strstr(at, "\"encryption\":{\"provider_managed\":{}}")) != NULL) {
        shown++;
        at++;
    }
    assert_int_equal(shown, 4); /* both lists and both gets */
}

/* One derivation: completeness and the diagnostic name the same fields in the same order. */
static void test_missing_fields(void **state)
{
    (void)state;
    SF_PROVES("CCS-5.7-19");
    static const struct {
        bool stats, index;
        const char *list;
    } rows[] = {{false, false, "approx_stats,index"},
                {true, false, "index"},
                {false, true, "approx_stats"},
                {true, true, NULL}};
    for (size_t i = 0; i < SF_ARRAY_LEN(rows); i++) {
        struct sf_arena *arena = sf_arena_new(65536);
        struct sf_diag diag;
        char joined[64] = "";
        sf_diag_init(&diag);
        SF_PB(DescriptorCompleteness) *completeness =
            sf_catalog_completeness(rows[i].stats, rows[i].index, arena);
        enum sf_err err = sf_catalog_complete_check(completeness, &diag);
        assert_int_equal(err, rows[i].list == NULL ? SF_OK : SF_CATALOG_UNAVAILABLE);
        if (rows[i].list != NULL) {
            for (size_t k = 0; k < completeness->publishing->n_missing_fields; k++) {
                strcat(joined, k == 0 ? "" : ",");
                strcat(joined, completeness->publishing->missing_fields[k]);
            }
            assert_string_equal(joined, rows[i].list);
            assert_string_equal(sf_diag_get(&diag, "missing_descriptor_fields"), rows[i].list);
            assert_string_equal(sf_diag_get(&diag, "catalog_unavailable_reason"),
                                "descriptor_publishing");
        }
        sf_arena_destroy(arena);
    }
}

/* More wakes than memory holds: all collections are looked at. */
static void test_wakes_overflow(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t c = serving_collection(w, ns, "a", "tok");
    world_enrich(w);
    manifest_publish(w, ns, c, 1, 10, 100, NULL);
    world_job(w, "collection-stats");
    char digest[SF_SHA256_HEX_BYTES];
    manifest_write(w, ns, c, 2, 20, 200, NULL, digest);
    manifest_point(w, ns, c, 2, digest);
    for (uint64_t i = 1; i <= SF_CATALOG_PROJECTOR_WAKES; i++)
        sf_catalog_projectors_wake(w->catalog, ns + 1, i);
    sf_catalog_projectors_wake(w->catalog, ns, c); /* one too many */
    world_job(w, "collection-stats");
    assert_string_equal(collection_fields(w, ns, c), "stats=20/200 index=- missing index");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_collection_fields, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_collection_fields, world_setup_shared, world_teardown),
        cmocka_unit_test_setup_teardown(test_head_advance_wakes, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_backlog_refusals, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_namespace_aggregate, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_zero_children, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_rebuild, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_revisions_stay, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_idle_and_restart, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_broken_manifests, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_deposed, world_setup_shared, world_teardown),
        cmocka_unit_test_setup_teardown(test_encryption, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_encryption_is_synchronous, world_setup,
                                        world_teardown),
        cmocka_unit_test(test_missing_fields),
        cmocka_unit_test_setup_teardown(test_wakes_overflow, world_setup, world_teardown),
    };
    return SF_RUN_TESTS("catalog_enrich", tests);
}
