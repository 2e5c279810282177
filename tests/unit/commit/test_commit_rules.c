#include "commit/commit_rules.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/rng.h"
#include "commit/commit.h"
#include "publish/keys.h"
#include "support/proves.h"

#define FLOW_B   (UINT64_C(1) << 63)
#define METADATA SEARCHFABRIC__V1__MODALITY__MODALITY_METADATA_SEARCH
#define SEMANTIC SEARCHFABRIC__V1__MODALITY__MODALITY_SEMANTIC_SEARCH
#define AUX      SEARCHFABRIC__V1__MODALITY__MODALITY_METADATA_AUX
#define INVALID  SEARCHFABRIC__V1__BATCH_REFUSAL__BATCH_REFUSAL_INVALID_BATCH
#define FINE     SEARCHFABRIC__V1__BATCH_REFUSAL__BATCH_REFUSAL_UNSPECIFIED

/* ---- a batch to bend ----------------------------------------------------------------------------
 */

#define MOST 64

struct made {
    Searchfabric__V1__PlannedBatch planned;
    Searchfabric__V1__MutationBatch batch;
    Searchfabric__V1__CollectionRef ref;
    Searchfabric__V1__MutationEntry entries[MOST];
    Searchfabric__V1__MutationEntry *entry_at[MOST];
    Searchfabric__V1__RowMutation rows[MOST];
    Searchfabric__V1__DocumentID ids[MOST];
    Searchfabric__V1__BarrierMark barriers[MOST];
    Searchfabric__V1__ProgressMark progress[MOST];
    Searchfabric__V1__EntryPlan plans[MOST];
    Searchfabric__V1__EntryPlan *plan_at[MOST];
    Searchfabric__V1__Modality touched[MOST][3];
    Searchfabric__V1__Modality enabled[3];
    uint8_t body[8];
};

static void set_touched(struct made *m, size_t i, unsigned set)
{
    m->plans[i].touched_modalities = m->touched[i];
    m->plans[i].n_touched_modalities = 0;
    for (unsigned k = 0; k < 3; k++) {
        if ((set & (1u << k)) != 0)
            m->touched[i][m->plans[i].n_touched_modalities++] = (Searchfabric__V1__Modality)(k + 1);
    }
}

/* `kinds`: one letter an entry, r = row, b = barrier mark. One plan an entry. */
static struct made *make(const char *kinds)
{
    struct made *m = calloc(1, sizeof(*m));
    assert_non_null(m);
    searchfabric__v1__planned_batch__init(&m->planned);
    searchfabric__v1__mutation_batch__init(&m->batch);
    searchfabric__v1__collection_ref__init(&m->ref);
    m->ref.namespace_id = 1;
    m->ref.collection_id = 2;
    m->planned.batch = &m->batch;
    m->planned.flow_kind = SEARCHFABRIC__V1__FLOW_KIND__FLOW_KIND_B;
    m->planned.source_kind = SEARCHFABRIC__V1__SOURCE_KIND__SOURCE_KIND_NATIVE_SEARCH_API;
    m->planned.writer_mode = SEARCHFABRIC__V1__WRITER_MODE__WRITER_MODE_STREAM;
    m->planned.first_admitted_ts = 5;
    m->enabled[0] = METADATA;
    m->enabled[1] = SEMANTIC;
    m->planned.enabled_modalities = m->enabled;
    m->planned.n_enabled_modalities = 2;
    m->batch.collection = &m->ref;
    m->batch.batch_id = (char *)(uintptr_t) "b";
    m->batch.stream_identity = (char *)(uintptr_t) "s";
    m->batch.batch_fingerprint =
        (char *)(uintptr_t) "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    m->batch.durability = SEARCHFABRIC__V1__DURABILITY_POLICY__DURABILITY_POLICY_INGEST_ACK;
    m->batch.visibility = SEARCHFABRIC__V1__VISIBILITY_POLICY__VISIBILITY_POLICY_ASYNC;
    size_t n = strlen(kinds);
    assert_true(n <= MOST);
    m->batch.entries = m->entry_at;
    m->batch.n_entries = n;
    m->planned.entry_plans = m->plan_at;
    m->planned.n_entry_plans = n;
    for (size_t i = 0; i < n; i++) {
        searchfabric__v1__mutation_entry__init(&m->entries[i]);
        searchfabric__v1__entry_plan__init(&m->plans[i]);
        m->entry_at[i] = &m->entries[i];
        m->plan_at[i] = &m->plans[i];
        m->plans[i].first_entry_index = m->plans[i].last_entry_index = (uint32_t)i;
        if (kinds[i] == 'b') {
            searchfabric__v1__barrier_mark__init(&m->barriers[i]);
            m->entries[i].entry_case = SEARCHFABRIC__V1__MUTATION_ENTRY__ENTRY_BARRIER_MARK;
            m->entries[i].barrier_mark = &m->barriers[i];
            continue;
        }
        searchfabric__v1__row_mutation__init(&m->rows[i]);
        searchfabric__v1__document_id__init(&m->ids[i]);
        m->ids[i].id_value_case = SEARCHFABRIC__V1__DOCUMENT_ID__ID_VALUE_U64;
        m->ids[i].u64 = i;
        m->rows[i].doc_id = &m->ids[i];
        m->rows[i].op = SEARCHFABRIC__V1__ROW_OP__ROW_OP_INDEX;
        m->rows[i].body = (ProtobufCBinaryData){sizeof(m->body), m->body};
        m->rows[i].source_partition = FLOW_B | 3;
        m->rows[i].source_epoch = 1;
        m->rows[i].source_seq = 100 + i;
        m->entries[i].entry_case = SEARCHFABRIC__V1__MUTATION_ENTRY__ENTRY_ROW;
        m->entries[i].row = &m->rows[i];
        set_touched(m, i, 1);
    }
    return m;
}

static void expect(struct made *m, Searchfabric__V1__BatchRefusal refusal, const char *field,
                   const char *violation)
{
    struct sf_diag diag;
    sf_diag_init(&diag);
    assert_int_equal(sf_commit_batch_check(&m->planned, &diag), refusal);
    if (refusal != FINE) {
        assert_string_equal(sf_diag_get(&diag, "field"), field);
        assert_string_equal(sf_diag_get(&diag, "violation"), violation);
    }
    free(m);
}

static void test_check_accepts(void **state)
{
    (void)state;
    expect(make("r"), FINE, NULL, NULL);
    expect(make("rbr"), FINE, NULL, NULL);
    expect(make("b"), FINE, NULL, NULL);
    struct made *m = make("rrr"); /* one plan for all */
    m->plans[0].last_entry_index = 2;
    m->planned.n_entry_plans = 1;
    expect(m, FINE, NULL, NULL);
    m = make("r");
    m->planned.source_kind = SEARCHFABRIC__V1__SOURCE_KIND__SOURCE_KIND_TIDB_REMOTE_DML;
    expect(m, FINE, NULL, NULL);
}

#define BEND(kinds, change, field, violation)                                                      \
    do {                                                                                           \
        struct made *m = make(kinds);                                                              \
        change;                                                                                    \
        expect(m, INVALID, field, violation);                                                      \
    } while (0)

static void test_check_identity_and_policy(void **state)
{
    (void)state;
    BEND("r", m->planned.batch = NULL, "batch", "required");
    BEND("r", m->batch.batch_id = (char *)(uintptr_t) "", "batch_id", "empty");
    BEND("r", m->batch.stream_identity = (char *)(uintptr_t) "", "stream_identity", "empty");
    BEND("r", m->batch.batch_fingerprint = (char *)(uintptr_t) "abc", "batch_fingerprint",
         "not_a_digest");
    BEND("r", m->batch.collection = NULL, "collection", "required");
    BEND("r", m->ref.namespace_id = 0, "collection", "required");
    BEND("r", m->batch.durability = 0, "durability", "unspecified");
    BEND("r", m->batch.visibility = 0, "visibility", "unspecified");
    BEND("r", m->planned.flow_kind = 0, "flow_kind", "unspecified");
    BEND("r", m->planned.flow_kind = SEARCHFABRIC__V1__FLOW_KIND__FLOW_KIND_A, "flow_kind",
         "flow_a_not_served");
    BEND("r", m->planned.has_flow_a_source = 1, "has_flow_a_source", "flow_a_not_served");
    BEND("r", m->planned.source_kind = SEARCHFABRIC__V1__SOURCE_KIND__SOURCE_KIND_TICDC,
         "source_kind", "not_of_flow_b");
    BEND("r", m->planned.writer_mode = 0, "writer_mode", "unspecified");
    BEND("r", m->planned.first_admitted_ts = 0, "first_admitted_ts", "required");
}

static void test_check_entries(void **state)
{
    (void)state;
    BEND("", (void)m, "entries", "empty");
    BEND("rr", m->rows[1].commit_ts = 123, "commit_ts", "not_zero_in_flow_b");
    BEND("r", m->rows[0].doc_id = NULL, "doc_id", "required");
    BEND("r", m->ids[0].id_value_case = 0, "doc_id", "required");
    BEND("r", m->rows[0].op = 0, "op", "unspecified");
    BEND("r", m->rows[0].op = SEARCHFABRIC__V1__ROW_OP__ROW_OP_DELETE, "body", "delete_with_body");
    BEND("r", m->rows[0].body.len = SF_LIMIT_DOCUMENT_BYTES + 1, "body", "too_large");
    BEND("r", m->rows[0].source_partition = 3, "source_partition", "not_of_flow_b");
    BEND("rr", m->rows[1].source_partition = FLOW_B | 4, "source_partition",
         "more_than_one_source");
    BEND("rbr", m->rows[2].source_epoch = 2, "source_partition", "more_than_one_source");
    BEND("rr", m->rows[1].source_seq = 100, "source_seq", "does_not_grow");
    BEND("r", m->entries[0].entry_case = 0, "entry", "required");
    BEND(
        "r",
        {
            searchfabric__v1__progress_mark__init(&m->progress[0]);
            m->entries[0].entry_case = SEARCHFABRIC__V1__MUTATION_ENTRY__ENTRY_PROGRESS_MARK;
            m->entries[0].progress_mark = &m->progress[0];
        },
        "progress_mark", "not_of_flow_b");
}

static void test_check_plans(void **state)
{
    (void)state;
    BEND("rr", m->planned.n_entry_plans = 1, "entry_plans", "not_contiguous");
    BEND("rr", m->plans[1].first_entry_index = 0, "entry_plans", "not_contiguous");
    BEND("rr", m->plans[1].last_entry_index = 2, "entry_plans", "not_contiguous");
    BEND("r", m->plans[0].n_touched_modalities = 0, "touched_modalities", "empty_for_a_row");
    BEND("r", set_touched(m, 0, 4), "touched_modalities", "not_enabled");
    BEND(
        "r",
        {
            m->plans[0].n_touched_modalities = 2;
            m->touched[0][0] = SEMANTIC;
            m->touched[0][1] = METADATA;
        },
        "touched_modalities", "not_an_ascending_set");
    BEND("r", m->planned.n_enabled_modalities = 0, "enabled_modalities", "not_an_ascending_set");
    BEND("r", m->enabled[1] = METADATA, "enabled_modalities", "not_an_ascending_set");
}

/* ---- cutting ------------------------------------------------------------------------------------
 */

/* Random batches against a reference that walks entry by entry. */
static void test_cut_property(void **state)
{
    struct sf_rng rng;
    (void)state;
    SF_PROVES("COORD-3-10", "COORD-4.3-03", "COORD-4.3-04", "COORD-4.3-10");
    sf_rng_init(&rng, 7);
    for (unsigned round = 0; round < 2000; round++) {
        char kinds[MOST + 1] = {0};
        size_t n = 1 + sf_rng_below(&rng, MOST - 1);
        struct sf_arena *arena = sf_arena_new(1u << 20);
        struct sf_commit_cut cut;
        for (size_t i = 0; i < n; i++)
            kinds[i] = sf_rng_below(&rng, 4) == 0 ? 'b' : 'r';
        struct made *m = make(kinds);
        for (size_t i = 0; i < n; i++) {
            if (kinds[i] == 'r')
                set_touched(m, i, 1 + (unsigned)sf_rng_below(&rng, 3));
        }
        assert_int_equal(sf_commit_batch_check(&m->planned, NULL), FINE);
        sf_commit_batch_cut(&m->planned, arena, &cut);
        size_t at = 0;
        uint32_t slices = 0;
        for (size_t u = 0; u < cut.count; u++) {
            const struct sf_commit_unit *unit = &cut.units[u];
            uint8_t touched = 0;
            assert_int_equal(unit->ordinal, u);
            assert_int_equal(unit->first_entry_index, at); /* in order, without a gap */
            assert_true(unit->is_barrier == (kinds[at] == 'b'));
            if (unit->is_barrier) {
                assert_int_equal(unit->last_entry_index, at);
                at++;
                continue;
            }
            slices++;
            assert_int_equal(unit->first_source_seq, m->rows[at].source_seq);
            while (at <= unit->last_entry_index) {
                assert_int_equal(kinds[at], 'r');
                touched |= sf_commit_entry_touched(&m->planned, (uint32_t)at);
                at++;
            }
            assert_int_equal(unit->last_source_seq, m->rows[at - 1].source_seq);
            assert_int_equal(unit->row_count, at - unit->first_entry_index);
            assert_int_equal(unit->logical_bytes, 8 * (at - unit->first_entry_index));
            assert_int_equal(unit->touched, touched);
            assert_true(at == n || kinds[at] == 'b'); /* ends at a mark and nowhere else */
        }
        assert_int_equal(at, n);
        assert_int_equal(cut.slice_count, slices);
        sf_arena_destroy(arena);
        free(m);
    }
}

/* ---- timestamps ---------------------------------------------------------------------------------
 */

static void test_inject(void **state)
{
    uint64_t ts = 0;
    (void)state;
    SF_PROVES("COORD-4.2-07");
    assert_true(sf_commit_inject(100, 90, &ts));
    assert_true(ts == 101);
    assert_true(sf_commit_inject(100, 200, &ts));
    assert_true(ts == 200);
    assert_true(sf_commit_inject(100, 101, &ts));
    assert_true(ts == 101);
    assert_true(sf_commit_inject((UINT64_C(5) << 18) | 0x3ffff, 0, &ts)); /* logical carries */
    assert_true(ts == UINT64_C(6) << 18);
    assert_false(sf_commit_inject(UINT64_MAX, 0, &ts)); /* fails closed (C-09) */
    assert_false(sf_commit_inject(0, UINT64_MAX, &ts));
}

static void test_lag(void **state)
{
    struct sf_rng rng;
    (void)state;
    SF_PROVES("COORD-3-05", "COORD-6.1-01");
    sf_rng_init(&rng, 3);
    for (unsigned i = 0; i < 10000; i++) {
        uint64_t ms = sf_rng_below(&rng, UINT64_C(1) << 40);
        uint64_t a = (ms << 18) | sf_rng_below(&rng, 1u << 18);
        uint64_t b = (ms << 18) | sf_rng_below(&rng, 1u << 18);
        assert_true(sf_commit_lag_ms(a, b) == 0); /* only the logical bits differ */
        assert_true(sf_commit_lag_ms(a + (UINT64_C(1000) << 18), a) == 1000);
        assert_true(sf_commit_lag_ms(a, a + (UINT64_C(1000) << 18)) == 0);
    }
    assert_true(sf_commit_lag_ms(0, UINT64_MAX) == 0);
    assert_true(sf_commit_lag_ms(UINT64_MAX, 0) == UINT64_MAX >> 18);
}

static void test_axis(void **state)
{
    (void)state;
    assert_true(sf_commit_ts_add_ms(UINT64_C(7) << 18, 3) == UINT64_C(10) << 18);
    assert_true(sf_commit_ts_add_ms(UINT64_MAX - 1, 1) == UINT64_MAX);
    assert_true(sf_commit_ts_add_ms(0, UINT64_MAX) <= UINT64_MAX);
    assert_true(sf_commit_ts_sub_ms(UINT64_C(7) << 18, 3) == UINT64_C(4) << 18);
    assert_true(sf_commit_ts_sub_ms(5, 1) == 0);
    assert_false(sf_commit_expired(UINT64_C(100) << 18, UINT64_C(110) << 18, 10)); /* its edge */
    assert_true(sf_commit_expired((UINT64_C(100) << 18) - 1, UINT64_C(110) << 18, 10));
    assert_false(sf_commit_expired(UINT64_C(120) << 18, UINT64_C(110) << 18, 10));
}

/* ---- identities ---------------------------------------------------------------------------------
 */

static void test_intent_ids(void **state)
{
    struct sf_collection_ref ref = {{1}, {2}};
    char a[SF_SHA256_HEX_BYTES];
    char b[SF_SHA256_HEX_BYTES];
    (void)state;
    SF_PROVES("COORD-8-05");
    sf_commit_intent_id(ref, "s", "b", "f", 0, a);
    sf_commit_intent_id(ref, "s", "b", "f", 0, b); /* created again: the same */
    assert_string_equal(a, b);
    const struct {
        struct sf_collection_ref ref;
        const char *stream, *batch, *fingerprint;
        uint32_t ordinal;
    } others[] = {{{{2}, {2}}, "s", "b", "f", 0}, {{{1}, {3}}, "s", "b", "f", 0},
                  {{{1}, {2}}, "sb", "", "f", 0}, {{{1}, {2}}, "s", "c", "f", 0},
                  {{{1}, {2}}, "s", "b", "g", 0}, {{{1}, {2}}, "s", "b", "f", 1}};
    for (size_t i = 0; i < SF_ARRAY_LEN(others); i++) {
        sf_commit_intent_id(others[i].ref, others[i].stream, others[i].batch, others[i].fingerprint,
                            others[i].ordinal, b);
        assert_string_not_equal(a, b);
    }
    uint8_t key[SF_SHA256_BYTES];
    uint8_t other[SF_SHA256_BYTES];
    sf_commit_batch_key("ab", "c", key);
    sf_commit_batch_key("a", "bc", other); /* lengths are part of it */
    assert_memory_not_equal(key, other, sizeof(key));
}

static void test_shards(void **state)
{
    uint32_t counts[16] = {0};
    (void)state;
    SF_PROVES("COORD-3-14", "COORD-9-01");
    for (uint64_t i = 0; i < 1000000; i++) {
        struct sf_collection_ref ref = {{1 + i % 1000}, {1 + i}};
        uint32_t shard = sf_commit_shard_of(ref, 16);
        assert_true(shard < 16);
        counts[shard]++;
        if (i % 1000 == 0)
            assert_int_equal(shard, sf_commit_shard_of(ref, 16));
    }
    for (unsigned s = 0; s < 16; s++)
        assert_true(counts[s] > 62500 * 95 / 100 && counts[s] < 62500 * 105 / 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check_accepts), cmocka_unit_test(test_check_identity_and_policy),
        cmocka_unit_test(test_check_entries), cmocka_unit_test(test_check_plans),
        cmocka_unit_test(test_cut_property),  cmocka_unit_test(test_inject),
        cmocka_unit_test(test_lag),           cmocka_unit_test(test_axis),
        cmocka_unit_test(test_intent_ids),    cmocka_unit_test(test_shards),
    };
    return SF_RUN_TESTS("commit_rules", tests);
}
