/* Shape and limits of a batch, its fingerprint, and who may write it. */
#include "support/proves.h"

#include "base/hash.h"
#include "base/limits.h"
#include "unit/gateway/gateway_fixture.h"

/* Each change makes a good batch of three rows a bad one. */
typedef void (*change_fn)(struct batch_fixture *f);

static void no_collection(struct batch_fixture *f)
{
    f->batch.collection = NULL;
}
static void zero_collection(struct batch_fixture *f)
{
    f->ref.collection_id = 0;
}
static void no_durability(struct batch_fixture *f)
{
    f->batch.durability = 0;
}
static void bad_visibility(struct batch_fixture *f)
{
    f->batch.visibility = 9;
}
static void no_entries(struct batch_fixture *f)
{
    f->batch.n_entries = 0;
}
static void empty_entry(struct batch_fixture *f)
{
    f->entries[1].entry_case = SEARCHFABRIC__V1__MUTATION_ENTRY__ENTRY__NOT_SET;
}
static void no_id(struct batch_fixture *f)
{
    f->rows[2].doc_id = NULL;
}
static void id_without_branch(struct batch_fixture *f)
{
    f->ids[2].id_value_case = SEARCHFABRIC__V1__DOCUMENT_ID__ID_VALUE__NOT_SET;
}
static void no_op(struct batch_fixture *f)
{
    f->rows[0].op = 0;
}
static void unknown_op(struct batch_fixture *f)
{
    f->rows[0].op = 6;
}
static void no_batch_id(struct batch_fixture *f)
{
    f->batch.batch_id = "";
}
static void no_stream(struct batch_fixture *f)
{
    f->batch.stream_identity = "";
}
static void no_token(struct batch_fixture *f)
{
    f->batch.schema_generation_token = "";
}
static void long_token(struct batch_fixture *f)
{
    f->batch.schema_generation_token =
        "0123456789012345678901234567890123456789012345678901234567890123x";
}
static void bad_fingerprint(struct batch_fixture *f)
{
    f->batch.batch_fingerprint = "ABC";
}
static void long_receipt(struct batch_fixture *f)
{
    static uint8_t bytes[SF_LIMIT_RECEIPT_BYTES + 1];
    f->batch.allocator_receipt.data = bytes;
    f->batch.allocator_receipt.len = sizeof(bytes);
}
static void create_without_body(struct batch_fixture *f)
{
    f->rows[1].body.len = 0;
}
static void delete_with_body(struct batch_fixture *f)
{
    f->rows[1].op = OP(DELETE);
}
static void long_body(struct batch_fixture *f)
{
    static uint8_t bytes[SF_LIMIT_DOCUMENT_BYTES + 1];
    f->rows[1].body.data = bytes;
    f->rows[1].body.len = sizeof(bytes);
}
static void long_batch(struct batch_fixture *f)
{
    static uint8_t bytes[SF_LIMIT_DOCUMENT_BYTES];
    for (size_t i = 0; i < 3; i++) {
        f->rows[i].body.data = bytes;
        f->rows[i].body.len = sizeof(bytes);
    }
}
static void mixed_flows(struct batch_fixture *f)
{
    f->rows[1].commit_ts = 5;
}
static void mixed_flows_other_way(struct batch_fixture *f)
{
    f->rows[0].commit_ts = 5;
}
static void flow_a_partition(struct batch_fixture *f)
{
    f->rows[0].source_partition = 5;
}
static void falling_seq(struct batch_fixture *f)
{
    for (size_t i = 0; i < 3; i++) {
        f->rows[i].source_partition = 1ull << 63;
        f->rows[i].source_seq = 10 - i;
    }
}

struct bad_batch {
    change_fn change;
    enum sf_err err;
    const char *field;
    const char *violation;
    const char *entry_index; /* NULL = none */
};

static const struct bad_batch table[] = {
    {no_collection, SF_INVALID_ARGUMENT, "collection", "required", NULL},
    {zero_collection, SF_INVALID_ARGUMENT, "collection", "required", NULL},
    {no_durability, SF_INVALID_ARGUMENT, "durability", "unknown_value", NULL},
    {bad_visibility, SF_INVALID_ARGUMENT, "visibility", "unknown_value", NULL},
    {no_entries, SF_INVALID_ARGUMENT, "entries", "required", NULL},
    {empty_entry, SF_INVALID_ARGUMENT, "entries", "required", "1"},
    {no_id, SF_INVALID_ARGUMENT, "entries.row.doc_id", "required", "2"},
    {id_without_branch, SF_INVALID_ARGUMENT, "entries.row.doc_id", "required", "2"},
    {no_op, SF_INVALID_ARGUMENT, "entries.row.op", "unknown_value", "0"},
    {unknown_op, SF_INVALID_ARGUMENT, "entries.row.op", "unknown_value", "0"},
    {no_batch_id, SF_BAD_REQUEST, "batch_id", NULL, NULL},
    {no_stream, SF_BAD_REQUEST, "stream_identity", NULL, NULL},
    {no_token, SF_BAD_REQUEST, "schema_generation_token", NULL, NULL},
    {long_token, SF_BAD_REQUEST, "schema_generation_token", NULL, NULL},
    {bad_fingerprint, SF_BAD_REQUEST, "batch_fingerprint", "malformed", NULL},
    {long_receipt, SF_BAD_REQUEST, "allocator_receipt", "too_long", NULL},
    {create_without_body, SF_BAD_REQUEST, "entries.row.body", "required", "1"},
    {delete_with_body, SF_BAD_REQUEST, "entries.row.body", "forbidden", "1"},
    {long_body, SF_BAD_REQUEST, "entries.row.body", "too_long", "1"},
    {long_batch, SF_BAD_REQUEST, "entries", "too_long", NULL},
    {mixed_flows, SF_BAD_REQUEST, "entries.row.commit_ts", "mixed_flows", "1"},
    {mixed_flows_other_way, SF_BAD_REQUEST, "entries.row.commit_ts", "mixed_flows", "1"},
    {flow_a_partition, SF_BAD_REQUEST, "entries.row.source_partition", "out_of_range", "0"},
    {falling_seq, SF_BAD_REQUEST, "entries.row.source_seq", "out_of_range", "1"},
};

static void test_bad_batches(void **state)
{
    (void)state;
    for (size_t i = 0; i < SF_ARRAY_LEN(table); i++) {
        struct batch_fixture f;
        struct sf_diag diag;
        sf_diag_init(&diag);
        batch_init(&f, 3);
        table[i].change(&f);
        enum sf_err err = sf_ingest_batch_check(&f.batch, &diag);
        if (err != table[i].err || strcmp(sf_diag_get(&diag, "field"), table[i].field) != 0)
            fail_msg("row %zu: %d %s", i, err, diag.message);
        assert_non_null(sf_diag_get(&diag, "violation"));
        if (table[i].violation != NULL)
            assert_string_equal(sf_diag_get(&diag, "violation"), table[i].violation);
        const char *index = sf_diag_get(&diag, "entry_index");
        if (table[i].entry_index == NULL)
            assert_null(index);
        else
            assert_string_equal(index, table[i].entry_index);
    }
}

static void test_good_batches(void **state)
{
    struct batch_fixture f;
    struct sf_diag diag;

    (void)state;
    sf_diag_init(&diag);
    batch_init(&f, 3);
    assert_int_equal(sf_ingest_batch_check(&f.batch, &diag), SF_OK);
    f.ids[0].u64 = 0;
    f.ids[1].u64 = UINT64_MAX;
    f.rows[2].op = OP(DELETE);
    f.rows[2].body.len = 0;
    assert_int_equal(sf_ingest_batch_check(&f.batch, &diag), SF_OK);
    for (size_t i = 0; i < 3; i++)
        f.rows[i].commit_ts = 100;
    assert_int_equal(sf_ingest_batch_check(&f.batch, &diag), SF_OK);
}

static void test_malformed_wins_over_illegal(void **state)
{
    struct batch_fixture f;
    struct sf_diag diag;

    (void)state;
    sf_diag_init(&diag);
    batch_init(&f, 3);
    no_batch_id(&f);
    create_without_body(&f);
    no_op(&f);
    assert_int_equal(sf_ingest_batch_check(&f.batch, &diag), SF_INVALID_ARGUMENT);
}

static void test_fingerprint_is_that_of_the_contract(void **state)
{
    /* collection {7, 9} as field 4, token "t" as field 5, one entry {row {doc_id {u64 3}, op 1,
     * body "{}"}} as field 10, in wire form, worked out by hand. */
    static const uint8_t wire[] = {0x22, 4, 0x08, 7, 0x10, 9, 0x2a, 1, 't', 0x52, 12, 0x0a, 10,
                                   0x0a, 2, 0x08, 3, 0x10, 1, 0x22, 2, '{', '}'};
    char expected[SF_SHA256_HEX_BYTES];
    char got[SF_SHA256_HEX_BYTES];
    struct batch_fixture f;

    (void)state;
    batch_init(&f, 1);
    f.batch.schema_generation_token = "t";
    f.ids[0].u64 = 3;
    f.batch.first_admitted_ts = 99; /* not part of it */
    sf_sha256_hex(sf_view_bytes(wire, sizeof(wire)), expected);
    sf_ingest_batch_fingerprint(&f.batch, got);
    assert_string_equal(got, expected);
}

struct admit_row {
    Searchfabric__V1__ClientKind kind;
    bool external;
    bool flow_a;
    enum sf_err err;
};

static void test_who_may_write(void **state)
{
    static const struct admit_row rows[] = {
        {KIND(ES_WRITE_GATEWAY), false, false, SF_OK},
        {KIND(TP_WRITE_GATEWAY), false, false, SF_OK},
        {KIND(TIDB_WRITE_GATEWAY), false, false, SF_OK},
        {KIND(TIDB_WRITE_GATEWAY), true, false, SF_OK},
        {KIND(TIDB_CDC_ADAPTER), true, true, SF_OK},
        {KIND(TIDB_CDC_ADAPTER), true, false, SF_BAD_REQUEST},
        {KIND(ES_WRITE_GATEWAY), false, true, SF_BAD_REQUEST},
        {KIND(TIDB_CDC_ADAPTER), false, true, SF_OWNERSHIP_CONFLICT},
        {KIND(ES_WRITE_GATEWAY), true, false, SF_OWNERSHIP_CONFLICT},
        {KIND(TP_WRITE_GATEWAY), true, false, SF_OWNERSHIP_CONFLICT},
        {KIND(UNSPECIFIED), false, false, SF_FORBIDDEN},
        {KIND(TIDB_DDL_ADAPTER), true, false, SF_FORBIDDEN},
        {KIND(CONTROL_ADMIN), false, false, SF_FORBIDDEN},
        {KIND(ES_QUERY_GATEWAY), false, false, SF_FORBIDDEN},
        {KIND(TP_QUERY_GATEWAY), false, false, SF_FORBIDDEN},
        {KIND(TIDB_QUERY_GATEWAY), true, false, SF_FORBIDDEN},
    };

    (void)state;
    for (size_t i = 0; i < SF_ARRAY_LEN(rows); i++) {
        struct state_fixture s = {0};
        struct batch_fixture f;
        struct sf_diag diag;
        sf_diag_init(&diag);
        state_init(&s);
        s.state.generation_policy =
            SEARCHFABRIC__V1__DOC_ID_GENERATION_POLICY__DOC_ID_GENERATION_POLICY_CALLER_REQUIRED;
        if (rows[i].external)
            s.state.collection_truth_mode =
                SEARCHFABRIC__V1__COLLECTION_TRUTH_MODE__COLLECTION_TRUTH_MODE_EXTERNAL;
        batch_init(&f, 1);
        f.rows[0].commit_ts = rows[i].flow_a ? 10 : 0;
        enum sf_err err = sf_ingest_batch_admit(&s.state, &f.batch, rows[i].kind, &diag);
        if (err != rows[i].err)
            fail_msg("row %zu: %d %s", i, err, diag.message);
        if (err == SF_OWNERSHIP_CONFLICT) {
            assert_non_null(sf_diag_get(&diag, "collection_truth_mode"));
            assert_non_null(sf_diag_get(&diag, "client_kind"));
        }
    }
}

static void test_creates_need_a_receipt(void **state)
{
    struct state_fixture s = {0};
    struct batch_fixture f;
    struct sf_diag diag;

    (void)state;
    SF_PROVES("ALLOC-15-01");
    sf_diag_init(&diag);
    state_init(&s);
    batch_init(&f, 3);
    for (size_t i = 0; i < 3; i++)
        f.rows[i].op = i == 1 ? OP(CREATE) : OP(INDEX);
    assert_int_equal(sf_ingest_batch_admit(&s.state, &f.batch, KIND(ES_WRITE_GATEWAY), &diag),
                     SF_BAD_REQUEST);
    assert_string_equal(sf_diag_get(&diag, "ingest_rejection_reason"), "receipt_missing");
    assert_string_equal(sf_diag_get(&diag, "entry_index"), "1");
    assert_string_equal(sf_diag_get(&diag, "batch_id"), "batch-1");
    assert_string_equal(sf_diag_get(&diag, "field"), "allocator_receipt");
    /* Operations on documents that exist bring their id and need none. */
    sf_diag_init(&diag);
    f.rows[1].op = OP(PATCH);
    assert_int_equal(sf_ingest_batch_admit(&s.state, &f.batch, KIND(ES_WRITE_GATEWAY), &diag),
                     SF_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_batches),
        cmocka_unit_test(test_good_batches),
        cmocka_unit_test(test_malformed_wins_over_illegal),
        cmocka_unit_test(test_fingerprint_is_that_of_the_contract),
        cmocka_unit_test(test_who_may_write),
        cmocka_unit_test(test_creates_need_a_receipt),
    };
    return SF_RUN_TESTS("batch_rules", tests);
}
