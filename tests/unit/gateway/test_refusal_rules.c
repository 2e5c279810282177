/* Every refusal of the coordinator becomes the public error of the contract, details included. */
#include "support/proves.h"

#include <string.h>

#include "contract/error_status.h"
#include "gateway/refusal_rules.h"

#define R(name) SEARCHFABRIC__V1__BATCH_REFUSAL__BATCH_REFUSAL_##name

struct row {
    Searchfabric__V1__BatchRefusal refusal;
    enum sf_err err;
    const char *reason;    /* ingest_rejection_reason, NULL = none */
    const char *authority; /* failing_authority, NULL = none */
    bool unknown;
};

static const struct row rows[] = {
    {R(OVERLOADED), SF_RATE_LIMITED, NULL, NULL, false},
    {R(DEPENDENCY_UNAVAILABLE), SF_BACKEND_UNAVAILABLE, NULL, "commit_coordinator", false},
    {R(NOT_LEADER), SF_BACKEND_UNAVAILABLE, NULL, "commit_coordinator", false},
    {R(INVALID_BATCH), SF_BAD_REQUEST, NULL, NULL, false},
    {R(FINGERPRINT_CONFLICT), SF_IDEMPOTENCY_CONFLICT, "batch_id_reused", NULL, false},
    {R(DUPLICATE_WINDOW_EXPIRED), SF_VERSION_CONFLICT, "duplicate_window_expired", NULL, false},
    {R(COMMIT_TS_AHEAD), SF_INVALID_ARGUMENT, "commit_ts_ahead", NULL, false},
    {R(COMMIT_TS_BEHIND_MARK), SF_VERSION_CONFLICT, "commit_ts_behind_mark", NULL, false},
    {R(SOURCE_SEQ_GAP), SF_VERSION_CONFLICT, "source_seq_gap", NULL, false},
    {R(OUTCOME_UNKNOWN), SF_BACKEND_UNAVAILABLE, NULL, "commit_coordinator", true},
    {R(ABORTED), SF_BACKEND_UNAVAILABLE, NULL, "commit_coordinator", true},
    {R(NOT_KNOWN), SF_VERSION_CONFLICT, "schema_generation_mismatch", NULL, false},
    {R(UNSPECIFIED), SF_INTERNAL, NULL, NULL, false},
};

static void assert_detail(const struct sf_diag *diag, const char *key, const char *value)
{
    const char *got = sf_diag_get(diag, key);

    if (value == NULL)
        assert_null(got);
    else
        assert_string_equal(got, value);
}

static void test_every_refusal(void **state)
{
    (void)state;
    /* The table of the contract has no row that is not here. */
    assert_int_equal(searchfabric__v1__batch_refusal__descriptor.n_values, SF_ARRAY_LEN(rows));
    for (size_t i = 0; i < SF_ARRAY_LEN(rows); i++) {
        Searchfabric__V1__BatchRefused refused = SEARCHFABRIC__V1__BATCH_REFUSED__INIT;
        char lacking[SF_DIAG_KEY_BYTES];
        struct sf_diag diag;
        sf_diag_init(&diag);
        refused.refusal = rows[i].refusal;
        assert_int_equal(sf_refusal_project(&refused, "b-1", &diag), rows[i].err);
        assert_int_equal(diag.err, rows[i].err);
        assert_detail(&diag, "ingest_rejection_reason", rows[i].reason);
        assert_detail(&diag, "batch_id", rows[i].reason != NULL ? "b-1" : NULL);
        assert_detail(&diag, "failing_authority", rows[i].authority);
        assert_detail(&diag, "outcome_unknown", rows[i].unknown ? "true" : NULL);
        if (sf_error_status_lacks_key(&diag, lacking))
            fail_msg("row %zu lacks %s", i, lacking);
    }
}

static void test_details_are_taken_over(void **state)
{
    Searchfabric__V1__BatchRefused__DetailsEntry entries[2] = {
        SEARCHFABRIC__V1__BATCH_REFUSED__DETAILS_ENTRY__INIT,
        SEARCHFABRIC__V1__BATCH_REFUSED__DETAILS_ENTRY__INIT};
    Searchfabric__V1__BatchRefused__DetailsEntry *list[] = {&entries[0], &entries[1]};
    Searchfabric__V1__BatchRefused refused = SEARCHFABRIC__V1__BATCH_REFUSED__INIT;
    struct sf_diag diag;

    (void)state;
    sf_diag_init(&diag);
    entries[0].key = "retry_after_ms";
    entries[0].value = "250";
    entries[1].key = "throttled_dimension";
    entries[1].value = "ingest_bytes";
    refused.refusal = R(OVERLOADED);
    refused.message = "lane full";
    refused.n_details = 2;
    refused.details = list;
    assert_int_equal(sf_refusal_project(&refused, "b-1", &diag), SF_RATE_LIMITED);
    assert_string_equal(diag.message, "lane full");
    assert_detail(&diag, "retry_after_ms", "250");
    assert_detail(&diag, "throttled_dimension", "ingest_bytes");

    sf_diag_init(&diag);
    entries[0].key = "failing_authority";
    entries[0].value = "tso";
    refused.refusal = R(DEPENDENCY_UNAVAILABLE);
    refused.n_details = 1;
    assert_int_equal(sf_refusal_project(&refused, "b-1", &diag), SF_BACKEND_UNAVAILABLE);
    assert_detail(&diag, "failing_authority", "tso");

    sf_diag_init(&diag);
    entries[0].key = "violation";
    entries[0].value = "flow_a_not_served";
    refused.refusal = R(INVALID_BATCH);
    assert_int_equal(sf_refusal_project(&refused, "b-1", &diag), SF_UNIMPLEMENTED);
    assert_detail(&diag, "rpc_method", "/searchfabric.v1.IngestGatewayService/StreamMutations");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_refusal),
        cmocka_unit_test(test_details_are_taken_over),
    };
    return SF_RUN_TESTS("refusal_rules", tests);
}
