/* What a document touches, and what a batch's plan says. */
#include "support/proves.h"

#include <stdio.h>
#include <stdlib.h>

#include "unit/gateway/gateway_fixture.h"

#define META (1u << M(METADATA_SEARCH))
#define SEM  (1u << M(SEMANTIC_SEARCH))

struct row_case {
    Searchfabric__V1__RowOp op;
    const char *body;
    sf_modality_mask touched; /* 0 = refused */
    const char *violation;    /* of the refusal */
};

static void run_rows(struct state_fixture *f, const struct row_case *table, size_t count)
{
    struct sf_plan_schema *schema = sf_plan_schema_new(&f->state);

    for (size_t i = 0; i < count; i++) {
        struct sf_diag diag;
        sf_modality_mask touched = 0;
        sf_diag_init(&diag);
        enum sf_err err = sf_plan_row(schema, table[i].op, sf_view_str(table[i].body), (uint32_t)i,
                                      &diag, &touched);
        if (table[i].touched != 0) {
            if (err != SF_OK || touched != table[i].touched)
                fail_msg("row %zu (%s): %d, touched %x", i, table[i].body, err, touched);
            continue;
        }
        char index[24];
        (void)snprintf(index, sizeof(index), "%zu", i);
        if (err != SF_BAD_REQUEST || strcmp(sf_diag_get(&diag, "violation"), table[i].violation))
            fail_msg("row %zu (%s): %s", i, table[i].body, diag.message);
        assert_string_equal(sf_diag_get(&diag, "entry_index"), index);
        assert_string_equal(sf_diag_get(&diag, "field"), "entries.row.body");
    }
    sf_plan_schema_destroy(schema);
}

static void test_touched_modalities(void **state)
{
    static const struct row_case table[] = {
        {OP(CREATE), "{}", META, NULL},
        {OP(CREATE), "{\"title\":\"x\"}", META, NULL},
        {OP(CREATE), "{\"v\":[1,2,3]}", META | SEM, NULL},
        {OP(CREATE), "{\"v\":null}", META, NULL},
        {OP(CREATE), " {\"a\":{\"w\":[0.5,-1e2]}} ", META | SEM, NULL},
        {OP(CREATE), "{\"a.w\":[1,2]}", META | SEM, NULL},
        {OP(CREATE), "{\"a\":[{\"x\":1},{\"w\":[1,2]}]}", META | SEM, NULL},
        {OP(CREATE), "{\"\\u0076\":[1,2,3]}", META | SEM, NULL},
        {OP(CREATE), "{\"unknown\":{\"v\":[9]}}", META, NULL},
        {OP(INDEX), "{}", META | SEM, NULL},
        {OP(UPSERT), "{\"title\":\"x\"}", META | SEM, NULL},
        {OP(PATCH), "{\"title\":\"x\"}", META, NULL},
        {OP(PATCH), "{\"v\":[1,2,3]}", SEM, NULL},
        {OP(PATCH), "{\"v\":null}", SEM, NULL},
        {OP(PATCH), "{\"v\":null,\"title\":1}", META | SEM, NULL},
        {OP(PATCH), "{\"other\":1}", META, NULL},
        {OP(DELETE), "", META | SEM, NULL},
    };
    struct state_fixture f = {0};

    (void)state;
    state_init(&f);
    state_field(&f, "title", F(TEXT), 0);
    state_field(&f, "v", F(DENSE_VECTOR), 3);
    state_field(&f, "a.w", F(DENSE_VECTOR), 2);
    run_rows(&f, table, SF_ARRAY_LEN(table));
}

static void test_documents_that_are_refused(void **state)
{
    static const struct row_case table[] = {
        {OP(CREATE), "", 0, "malformed"},
        {OP(CREATE), "[]", 0, "malformed"},
        {OP(CREATE), "null", 0, "malformed"},
        {OP(CREATE), "{\"a\":}", 0, "malformed"},
        {OP(CREATE), "{} {}", 0, "malformed"},
        {OP(CREATE), "{\"a\":\"\xff\"}", 0, "malformed"},
        {OP(CREATE), "{\"a\":01}", 0, "malformed"},
        {OP(CREATE), "{\"v\":[1,2]}", 0, "wrong_dimensions"},
        {OP(CREATE), "{\"v\":[1,2,3,4]}", 0, "wrong_dimensions"},
        {OP(CREATE), "{\"v\":[1,\"2\",3]}", 0, "not_a_vector"},
        {OP(CREATE), "{\"v\":1}", 0, "not_a_vector"},
        {OP(CREATE), "{\"v\":[[1,2,3]]}", 0, "not_a_vector"},
    };
    struct state_fixture f = {0};

    (void)state;
    state_init(&f);
    state_field(&f, "v", F(DENSE_VECTOR), 3);
    run_rows(&f, table, SF_ARRAY_LEN(table));
}

static void test_documents_are_opaque(void **state)
{
    static const struct row_case table[] = {
        {OP(CREATE), "{\"n\":18446744073709551616,\"x\":1e400,\"s\":\"\\u0000\"}", META, NULL},
        {OP(CREATE), "{\"a\":1,\"a\":2}", META, NULL},
        {OP(CREATE), "{\"title\":{\"not\":\"text\"}}", META, NULL},
    };
    struct state_fixture f = {0};

    (void)state;
    state_init(&f);
    state_field(&f, "title", F(TEXT), 0);
    run_rows(&f, table, SF_ARRAY_LEN(table));
}

static void test_undeclared_fields_under_reject(void **state)
{
    static const struct row_case table[] = {
        {OP(CREATE), "{\"title\":\"x\",\"a\":{\"b\":1}}", META, NULL},
        {OP(CREATE), "{\"o\":{\"anything\":[1]}}", META, NULL},
        {OP(CREATE), "{\"nope\":null}", META, NULL},
        {OP(CREATE), "{\"nope\":1}", 0, "undeclared_field"},
        {OP(CREATE), "{\"a\":{\"b\":1,\"c\":2}}", 0, "undeclared_field"},
        {OP(CREATE), "{\"x\":{\"y\":[{\"z\":false}]}}", 0, "undeclared_field"},
        {OP(PATCH), "{\"nope\":1}", 0, "undeclared_field"},
    };
    struct state_fixture f = {0};

    (void)state;
    state_init(&f);
    state_field(&f, "title", F(TEXT), 0);
    state_field(&f, "a.b", F(INT64), 0);
    state_field(&f, "o", F(OBJECT), 0);
    f.state.undeclared_fields =
        SEARCHFABRIC__V1__UNDECLARED_FIELD_POLICY__UNDECLARED_FIELD_POLICY_REJECT;
    run_rows(&f, table, SF_ARRAY_LEN(table));
}

static void test_event_time(void **state)
{
    static const struct row_case table[] = {
        {OP(CREATE), "{\"t\":1}", META, NULL},
        {OP(CREATE), "{\"t\":null}", 0, "event_time_required"},
        {OP(INDEX), "{}", 0, "event_time_required"},
        {OP(UPSERT), "{}", 0, "event_time_required"},
        {OP(PATCH), "{\"x\":1}", 0, "event_time_required"},
        {OP(DELETE), "", META, NULL},
    };
    struct state_fixture f = {0};

    (void)state;
    state_init(&f);
    state_field(&f, "t", F(TIMESTAMP), 0);
    searchfabric__v1__event_time_contract__init(&f.event_time);
    f.event_time.time_partition_field = "t";
    f.event_time.required_on_upsert_and_patch = true;
    f.state.event_time = &f.event_time;
    run_rows(&f, table, SF_ARRAY_LEN(table));
}

static void test_deep_documents(void **state)
{
    enum { DEPTH = 2000 };
    static char body[2 * DEPTH + 16];
    struct state_fixture f = {0};
    struct row_case row = {OP(CREATE), body, 0, "too_deep"};

    (void)state;
    memcpy(body, "{\"a\":", 5);
    memset(body + 5, '[', DEPTH);
    memset(body + 5 + DEPTH, ']', DEPTH);
    memcpy(body + 5 + 2 * DEPTH, "}", 2);
    state_init(&f);
    run_rows(&f, &row, 1);
}

static void test_plan_of_a_batch(void **state)
{
    struct state_fixture f = {0};
    struct batch_fixture b;
    struct sf_arena *arena = sf_arena_new(1u << 20);
    Searchfabric__V1__PlannedBatch plan;
    struct sf_diag diag;

    (void)state;
    state_init(&f);
    state_field(&f, "v", F(DENSE_VECTOR), 1);
    batch_init(&b, 5);
    batch_body(&b, 2, "{\"v\":[1]}");
    batch_body(&b, 3, "{\"v\":[2]}");
    struct sf_plan_schema *schema = sf_plan_schema_new(&f.state);
    sf_diag_init(&diag);
    searchfabric__v1__planned_batch__init(&plan);
    assert_int_equal(sf_plan_batch(schema, &b.batch, KIND(ES_WRITE_GATEWAY), arena, &diag, &plan),
                     SF_OK);

    assert_ptr_equal(plan.batch, &b.batch);
    assert_int_equal(plan.flow_kind, SEARCHFABRIC__V1__FLOW_KIND__FLOW_KIND_B);
    assert_int_equal(plan.source_kind,
                     SEARCHFABRIC__V1__SOURCE_KIND__SOURCE_KIND_NATIVE_SEARCH_API);
    assert_int_equal(plan.writer_mode, SEARCHFABRIC__V1__WRITER_MODE__WRITER_MODE_STREAM);
    assert_false(plan.has_flow_a_source);
    assert_int_equal(plan.n_enabled_modalities, 2);
    assert_int_equal(plan.enabled_modalities[0], M(METADATA_SEARCH));
    assert_int_equal(plan.enabled_modalities[1], M(SEMANTIC_SEARCH));
    /* Rows 0-1 metadata, 2-3 both, 4 metadata: contiguous, in order, over all entries. */
    assert_int_equal(plan.n_entry_plans, 3);
    assert_int_equal(plan.entry_plans[0]->first_entry_index, 0);
    assert_int_equal(plan.entry_plans[0]->last_entry_index, 1);
    assert_int_equal(plan.entry_plans[0]->n_touched_modalities, 1);
    assert_int_equal(plan.entry_plans[1]->first_entry_index, 2);
    assert_int_equal(plan.entry_plans[1]->last_entry_index, 3);
    assert_int_equal(plan.entry_plans[1]->n_touched_modalities, 2);
    assert_int_equal(plan.entry_plans[2]->first_entry_index, 4);
    /* Documents stay what they were. */
    assert_int_equal(b.rows[2].body.len, 9);
    assert_memory_equal(b.rows[2].body.data, "{\"v\":[1]}", 9);
    sf_plan_schema_destroy(schema);
    sf_arena_destroy(arena);
}

static void test_source_tuples_repeat_on_redelivery(void **state)
{
    struct state_fixture f = {0};
    struct batch_fixture first;
    struct batch_fixture again;
    struct batch_fixture other;
    struct batch_fixture *const all[] = {&first, &again, &other};
    struct sf_arena *arena = sf_arena_new(1u << 20);
    struct sf_diag diag;

    (void)state;
    state_init(&f);
    struct sf_plan_schema *schema = sf_plan_schema_new(&f.state);
    for (size_t i = 0; i < SF_ARRAY_LEN(all); i++) {
        Searchfabric__V1__PlannedBatch plan = SEARCHFABRIC__V1__PLANNED_BATCH__INIT;
        sf_diag_init(&diag);
        batch_init(all[i], 3);
        if (all[i] == &other)
            other.batch.batch_id = "batch-2";
        all[i]->rows[2].source_partition = 1ull << 63 | 5;
        all[i]->rows[2].source_seq = 77;
        assert_int_equal(
            sf_plan_batch(schema, &all[i]->batch, KIND(ES_WRITE_GATEWAY), arena, &diag, &plan),
            SF_OK);
    }
    assert_true((first.rows[0].source_partition >> 63) == 1);
    assert_int_equal(first.rows[0].source_partition, again.rows[0].source_partition);
    assert_int_equal(first.rows[0].source_epoch, again.rows[0].source_epoch);
    assert_int_equal(first.rows[0].source_seq, 1);
    assert_int_equal(first.rows[1].source_seq, 2);
    assert_true(first.rows[0].source_epoch != other.rows[0].source_epoch);
    assert_int_equal(first.rows[0].source_partition, other.rows[0].source_partition);
    /* What a client brings is kept. */
    assert_int_equal(first.rows[2].source_partition, 1ull << 63 | 5);
    assert_int_equal(first.rows[2].source_seq, 77);
    sf_plan_schema_destroy(schema);
    sf_arena_destroy(arena);
}

static void test_ack_gates(void **state)
{
    (void)state;
    assert_int_equal(sf_ack_gate(SEARCHFABRIC__V1__DURABILITY_POLICY__DURABILITY_POLICY_INGEST_ACK,
                                 SEARCHFABRIC__V1__VISIBILITY_POLICY__VISIBILITY_POLICY_ASYNC),
                     SEARCHFABRIC__V1__ACK_GATE__ACK_GATE_ADMITTED_DISPATCHED);
    assert_int_equal(
        sf_ack_gate(SEARCHFABRIC__V1__DURABILITY_POLICY__DURABILITY_POLICY_WAL_CHUNK_DURABLE,
                    SEARCHFABRIC__V1__VISIBILITY_POLICY__VISIBILITY_POLICY_ASYNC),
        SEARCHFABRIC__V1__ACK_GATE__ACK_GATE_DURABLE);
    for (int durability = 1; durability <= 2; durability++)
        assert_int_equal(
            sf_ack_gate((Searchfabric__V1__DurabilityPolicy)durability,
                        SEARCHFABRIC__V1__VISIBILITY_POLICY__VISIBILITY_POLICY_WAIT_FOR_VISIBLE),
            SEARCHFABRIC__V1__ACK_GATE__ACK_GATE_VISIBLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_touched_modalities),
        cmocka_unit_test(test_documents_that_are_refused),
        cmocka_unit_test(test_documents_are_opaque),
        cmocka_unit_test(test_undeclared_fields_under_reject),
        cmocka_unit_test(test_event_time),
        cmocka_unit_test(test_deep_documents),
        cmocka_unit_test(test_plan_of_a_batch),
        cmocka_unit_test(test_source_tuples_repeat_on_redelivery),
        cmocka_unit_test(test_ack_gates),
    };
    return SF_RUN_TESTS("planner_rules", tests);
}
