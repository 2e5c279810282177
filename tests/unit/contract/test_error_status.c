/* Errors on the wire: typed context, diagnostics map, google.rpc.Status, and the way back. */
#include "support/proves.h"

#include <string.h>

#include "base/pb.h"
#include "contract/error_status.h"
#include "google/rpc/status.pb-c.h"

#define ARENA_BYTES (64u << 10)

typedef Searchfabric__V1__ErrorStatus error_status;

/* Fixture: an arena and an empty diag per test. */
struct fixture {
    struct sf_arena *arena;
    struct sf_diag diag;
};

static int setup(void **state)
{
    static struct fixture f;
    f.arena = sf_arena_new(ARENA_BYTES);
    sf_diag_init(&f.diag);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    sf_arena_destroy(f->arena);
    return 0;
}

/* Value of `key` in the diagnostics map, NULL when absent. */
static const char *diagnostic(const error_status *status, const char *key)
{
    for (size_t i = 0; i < status->n_diagnostics; i++)
        if (strcmp(status->diagnostics[i]->key, key) == 0)
            return status->diagnostics[i]->value;
    return NULL;
}

static error_status *build(struct fixture *f)
{
    error_status *status = sf_error_status_build(&f->diag, f->arena);
    assert_non_null(status);
    return status;
}

static void test_reservation_conflict(void **state)
{
    struct fixture *f = *state;
    sf_diag_set(&f->diag, SF_VERSION_CONFLICT, "id %d lies below the watermark", 7);
    sf_diag_area(&f->diag, "allocator");
    sf_diag_detail(&f->diag, "doc_id", "%s", "18446744073709551615");
    sf_diag_detail(&f->diag, "allocator_conflict_reason", "below_watermark_burned_gap");
    const error_status *status = build(f);
    assert_string_equal(status->code, "SF_VERSION_CONFLICT");
    assert_string_equal(status->message, "id 7 lies below the watermark");
    assert_non_null(status->context);
    assert_int_equal(status->context->context_case,
                     SEARCHFABRIC__V1__ERROR_CONTEXT__CONTEXT_ALLOCATOR);
    const Searchfabric__V1__AllocatorErrorContext *allocator = status->context->allocator;
    assert_int_equal(allocator->reason_case,
                     SEARCHFABRIC__V1__ALLOCATOR_ERROR_CONTEXT__REASON_RESERVATION_CONFLICT);
    const Searchfabric__V1__AllocatorReservationConflict *conflict =
        allocator->reservation_conflict;
    assert_int_equal(conflict->doc_id->id_value_case, SEARCHFABRIC__V1__DOCUMENT_ID__ID_VALUE_U64);
    assert_true(conflict->doc_id->u64 == UINT64_MAX);
    assert_int_equal(conflict->conflict_reason, 1);
    assert_string_equal(diagnostic(status, "doc_id"), "18446744073709551615");
    assert_string_equal(diagnostic(status, "allocator_conflict_reason"),
                        "below_watermark_burned_gap");
}

static void test_limit_scopes(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *text;
        int value;
    } scopes[] = {{"allocator_plan_items", 1},
                  {"allocator_forward_reservation_window", 2},
                  {"allocator_identity_space_remaining", 3}};
    for (size_t i = 0; i < SF_ARRAY_LEN(scopes); i++) {
        sf_diag_set(&f->diag, SF_TOO_MANY_OPERATIONS, "too many");
        sf_diag_detail(&f->diag, "limit_scope", "%s", scopes[i].text);
        sf_diag_detail(&f->diag, "configured_limit", "5");
        sf_diag_detail(&f->diag, "requested_value", "6");
        const error_status *status = build(f);
        const Searchfabric__V1__AllocatorLimitRejection *limit =
            status->context->allocator->limit_rejection;
        assert_int_equal(limit->limit_scope, scopes[i].value);
        assert_true(limit->configured_limit == 5 && limit->requested_value == 6);
        assert_string_equal(diagnostic(status, "limit_scope"), scopes[i].text);
    }
}

static void test_bootstrap_by_area(void **state)
{
    struct fixture *f = *state;
    sf_diag_set(&f->diag, SF_CATALOG_UNAVAILABLE, "no schema yet");
    sf_diag_area(&f->diag, "allocator");
    sf_diag_detail(&f->diag, "catalog_unavailable_reason", "schema_bootstrap");
    sf_diag_detail(&f->diag, "schema_bootstrap_state", "no_active_schema_generation");
    const error_status *status = build(f);
    assert_string_equal(
        status->context->allocator->catalog_unavailable->schema_bootstrap->schema_bootstrap_state,
        "no_active_schema_generation");
    sf_diag_area(&f->diag, "catalog");
    status = build(f);
    assert_int_equal(status->context->context_case,
                     SEARCHFABRIC__V1__ERROR_CONTEXT__CONTEXT_CATALOG);
    assert_string_equal(
        status->context->catalog->catalog_unavailable->schema_bootstrap->schema_bootstrap_state,
        "no_active_schema_generation");
}

static void test_allocator_without_bootstrap(void **state)
{
    struct fixture *f = *state;
    sf_diag_set(&f->diag, SF_CATALOG_UNAVAILABLE, "the catalog did not answer");
    sf_diag_area(&f->diag, "allocator");
    sf_diag_detail(&f->diag, "catalog_unavailable_reason", "recovery");
    assert_null(build(f)->context);
}

static void test_catalog_branches(void **state)
{
    struct fixture *f = *state;
    sf_diag_set(&f->diag, SF_VERSION_CONFLICT, "tombstoned");
    sf_diag_detail(&f->diag, "reservation_scope", "resolved_collection_lineage");
    sf_diag_detail(&f->diag, "conflicting_lifecycle_state", "tombstoned");
    const error_status *status = build(f);
    const Searchfabric__V1__LifecycleConflict *conflict =
        status->context->catalog->lifecycle_conflict;
    assert_int_equal(conflict->reservation_scope, 5);
    assert_int_equal(conflict->conflicting_lifecycle_state, 3);

    sf_diag_set(&f->diag, SF_VERSION_CONFLICT, "fence");
    sf_diag_detail(&f->diag, "violated_precondition", "expected_prev_schema_version");
    sf_diag_detail(&f->diag, "active_schema_version", "3");
    sf_diag_detail(&f->diag, "active_schema_generation_token", "g3");
    status = build(f);
    const Searchfabric__V1__SchemaFenceConflict *fence =
        status->context->catalog->schema_fence_conflict;
    assert_true(fence->active_schema_version == 3);
    assert_string_equal(fence->active_schema_generation_token, "g3");

    sf_diag_set(&f->diag, SF_OWNERSHIP_CONFLICT, "external truth");
    sf_diag_area(&f->diag, "catalog");
    sf_diag_detail(&f->diag, "collection_truth_mode", "COLLECTION_TRUTH_MODE_EXTERNAL");
    sf_diag_detail(&f->diag, "client_kind", "CLIENT_KIND_ES_WRITE_GATEWAY");
    status = build(f);
    assert_int_equal(status->context->catalog->ownership_conflict->collection_truth_mode,
                     SEARCHFABRIC__V1__COLLECTION_TRUTH_MODE__COLLECTION_TRUTH_MODE_EXTERNAL);
    assert_int_equal(status->context->catalog->ownership_conflict->client_kind,
                     SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_ES_WRITE_GATEWAY);
}

static void test_unavailable_reasons(void **state)
{
    struct fixture *f = *state;
    sf_diag_set(&f->diag, SF_CATALOG_UNAVAILABLE, "stale");
    sf_diag_detail(&f->diag, "catalog_unavailable_reason", "statistics_freshness");
    sf_diag_detail(&f->diag, "max_staleness_ms", "1000");
    sf_diag_detail(&f->diag, "latest_stats_commit_ts", "12");
    sf_diag_detail(&f->diag, "latest_stats_collected_at_unix_ms", "34");
    const Searchfabric__V1__StatisticsFreshnessContext *stale =
        build(f)->context->catalog->catalog_unavailable->statistics_freshness;
    assert_true(stale->max_staleness_ms == 1000 && stale->latest_stats_commit_ts == 12 &&
                stale->latest_stats_collected_at_unix_ms == 34);

    sf_diag_set(&f->diag, SF_CATALOG_UNAVAILABLE, "publishing");
    sf_diag_detail(&f->diag, "catalog_unavailable_reason", "descriptor_publishing");
    sf_diag_detail(&f->diag, "missing_descriptor_fields", "approx_stats,index");
    const Searchfabric__V1__DescriptorPublishing *publishing =
        build(f)->context->catalog->catalog_unavailable->descriptor_publishing;
    assert_int_equal(publishing->n_missing_fields, 2);
    assert_string_equal(publishing->missing_fields[0], "approx_stats");
    assert_string_equal(publishing->missing_fields[1], "index");

    sf_diag_set(&f->diag, SF_CATALOG_UNAVAILABLE, "not ready");
    sf_diag_detail(&f->diag, "catalog_unavailable_reason", "schema_convergence");
    sf_diag_detail(&f->diag, "schema_convergence_state", "no_ready_serving_generation");
    assert_string_equal(
        build(f)
            ->context->catalog->catalog_unavailable->schema_convergence->schema_convergence_state,
        "no_ready_serving_generation");

    sf_diag_set(&f->diag, SF_CATALOG_UNAVAILABLE, "broken");
    sf_diag_detail(&f->diag, "catalog_unavailable_reason", "descriptor_integrity");
    sf_diag_detail(&f->diag, "field", "encryption");
    assert_string_equal(
        build(f)->context->catalog->catalog_unavailable->descriptor_integrity->field, "encryption");
}

static void test_other_branches(void **state)
{
    struct fixture *f = *state;
    sf_diag_bad_field(&f->diag, "meta.client_id", "too_long", "at most 256 scalars");
    sf_diag_detail(&f->diag, "entry_index", "0");
    const Searchfabric__V1__BadRequestContext *bad = build(f)->context->bad_request;
    assert_string_equal(bad->field, "meta.client_id");
    assert_string_equal(bad->violation, "too_long");
    assert_int_equal(bad->_entry_index_case,
                     SEARCHFABRIC__V1__BAD_REQUEST_CONTEXT___ENTRY_INDEX_ENTRY_INDEX);
    assert_int_equal(bad->entry_index, 0);

    sf_diag_bad_field(&f->diag, "page.page_token", "expired", "expired");
    sf_diag_detail(&f->diag, "page_token_reason", "binding_mismatch");
    assert_int_equal(build(f)->context->page_token->page_token_reason, 5);

    sf_diag_set(&f->diag, SF_RATE_LIMITED, "full");
    sf_diag_detail(&f->diag, "retry_after_ms", "50");
    sf_diag_detail(&f->diag, "throttled_dimension", "ingest_entries");
    sf_diag_detail(&f->diag, "server_limit", "8");
    const Searchfabric__V1__RateLimitedContext *limited = build(f)->context->rate_limited;
    assert_true(limited->retry_after_ms == 50 && limited->server_limit == 8);
    assert_string_equal(limited->throttled_dimension, "ingest_entries");

    sf_diag_set(&f->diag, SF_VERSION_CONFLICT, "old token");
    sf_diag_detail(&f->diag, "ingest_rejection_reason", "schema_generation_mismatch");
    sf_diag_detail(&f->diag, "batch_id", "b1");
    assert_int_equal(build(f)->context->ingest->reason, 1);

    sf_diag_set(&f->diag, SF_BACKEND_UNAVAILABLE, "no answer");
    sf_diag_detail(&f->diag, "failing_authority", "object_store");
    sf_diag_detail(&f->diag, "outcome_unknown", "true");
    assert_true(build(f)->context->backend_unavailable->outcome_unknown);

    sf_diag_set(&f->diag, SF_UNIMPLEMENTED, "not here");
    sf_diag_detail(&f->diag, "rpc_method", "/a.b.C/D");
    assert_string_equal(build(f)->context->unimplemented->service, "a.b.C");
    assert_string_equal(build(f)->context->unimplemented->method, "D");
}

static void test_bare_error(void **state)
{
    struct fixture *f = *state;
    sf_diag_set(&f->diag, SF_FORBIDDEN, "no");
    const error_status *status = build(f);
    assert_null(status->context);
    assert_int_equal(status->n_diagnostics, 0);
    /* An internal code never leaves as itself. */
    sf_diag_set(&f->diag, SF_ERR_AMBIGUOUS, "timeout");
    assert_string_equal(build(f)->code, sf_err_info(sf_err_public(SF_ERR_AMBIGUOUS))->code);
    assert_true(build(f)->code[0] != '\0');
}

static void test_wire_form(void **state)
{
    struct fixture *f = *state;
    sf_diag_bad_field(&f->diag, "prefix", "not_nfc", "must be NFC");
    struct sf_buf wire = {0};
    sf_error_status_encode(&f->diag, &wire);
    ProtobufCMessage *message = NULL;
    struct sf_diag scratch;
    sf_diag_init(&scratch);
    assert_int_equal(sf_pb_unpack(&google__rpc__status__descriptor, sf_buf_view(&wire), f->arena,
                                  &scratch, &message),
                     SF_OK);
    const Google__Rpc__Status *status = (const Google__Rpc__Status *)message;
    assert_int_equal(status->code, SF_GRPC_INVALID_ARGUMENT);
    assert_string_equal(status->message, "must be NFC");
    assert_int_equal(status->n_details, 1);
    assert_string_equal(status->details[0]->type_url,
                        "type.googleapis.com/searchfabric.v1.ErrorStatus");
    sf_buf_fini(&wire);
}

static void test_equal_errors_are_equal_bytes(void **state)
{
    struct fixture *f = *state;
    struct sf_buf a = {0};
    struct sf_buf b = {0};
    sf_diag_set(&f->diag, SF_RATE_LIMITED, "full");
    sf_diag_detail(&f->diag, "server_limit", "1");
    sf_diag_detail(&f->diag, "retry_after_ms", "2");
    sf_diag_detail(&f->diag, "throttled_dimension", "x");
    sf_error_status_encode(&f->diag, &a);
    sf_diag_set(&f->diag, SF_RATE_LIMITED, "full");
    sf_diag_detail(&f->diag, "throttled_dimension", "x");
    sf_diag_detail(&f->diag, "server_limit", "1");
    sf_diag_detail(&f->diag, "retry_after_ms", "2");
    sf_error_status_encode(&f->diag, &b);
    assert_true(sf_view_equal(sf_buf_view(&a), sf_buf_view(&b)));
    sf_buf_fini(&a);
    sf_buf_fini(&b);
}

static void test_round_trip_every_code(void **state)
{
    struct fixture *f = *state;
    for (int err = SF_OK + 1; err < SF_ERR_COUNT; err++) {
        if (sf_err_info((enum sf_err)err)->code[0] == '\0')
            continue;
        struct sf_buf wire = {0};
        struct sf_diag back;
        sf_diag_set(&f->diag, (enum sf_err)err, "message %d", err);
        sf_diag_area(&f->diag, "catalog");
        sf_diag_detail(&f->diag, "reservation_scope", "parent_namespace");
        sf_error_status_encode(&f->diag, &wire);
        assert_int_equal(sf_error_status_decode((int)sf_err_info((enum sf_err)err)->grpc,
                                                sf_view_str("other"), sf_buf_view(&wire), &back),
                         err);
        assert_string_equal(back.message, f->diag.message);
        assert_string_equal(back.area, "catalog");
        assert_string_equal(sf_diag_get(&back, "reservation_scope"), "parent_namespace");
        sf_buf_fini(&wire);
    }
}

static void test_decode_without_detail(void **state)
{
    (void)state;
    struct sf_diag diag;
    assert_int_equal(sf_error_status_decode(0, sf_view_str(""), sf_view_bytes(NULL, 0), &diag),
                     SF_OK);
    assert_int_equal(sf_error_status_decode(SF_GRPC_UNAVAILABLE, sf_view_str("connection lost"),
                                            sf_view_bytes(NULL, 0), &diag),
                     SF_BACKEND_UNAVAILABLE);
    assert_string_equal(diag.message, "connection lost");
    assert_int_equal(sf_error_status_decode(99, sf_view_str("?"), sf_view_bytes(NULL, 0), &diag),
                     SF_INTERNAL);
    /* Garbage in the detail does not hide the status. */
    assert_int_equal(sf_error_status_decode(SF_GRPC_NOT_FOUND, sf_view_str("gone"),
                                            sf_view_bytes("\xff\xff\xff", 3), &diag),
                     SF_RESOURCE_NOT_FOUND);
    assert_string_equal(diag.message, "gone");
}

static void test_unknown_code_is_internal(void **state)
{
    (void)state;
    struct sf_diag diag;
    sf_diag_init(&diag);
    error_status status = SEARCHFABRIC__V1__ERROR_STATUS__INIT;
    status.code = (char *)"SF_FROM_THE_FUTURE";
    assert_int_equal(sf_error_status_read(&status, &diag), SF_INTERNAL);
}

static void test_required_keys(void **state)
{
    struct fixture *f = *state;
    char key[SF_DIAG_KEY_BYTES];
    sf_diag_set(&f->diag, SF_RATE_LIMITED, "full");
    sf_diag_detail(&f->diag, "retry_after_ms", "1");
    assert_true(sf_error_status_lacks_key(&f->diag, key));
    assert_string_equal(key, "throttled_dimension");
    sf_diag_detail(&f->diag, "throttled_dimension", "x");
    sf_diag_detail(&f->diag, "server_limit", "1");
    assert_false(sf_error_status_lacks_key(&f->diag, key));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_reservation_conflict),
        TEST(test_limit_scopes),
        TEST(test_bootstrap_by_area),
        TEST(test_allocator_without_bootstrap),
        TEST(test_catalog_branches),
        TEST(test_unavailable_reasons),
        TEST(test_other_branches),
        TEST(test_bare_error),
        TEST(test_wire_form),
        TEST(test_equal_errors_are_equal_bytes),
        TEST(test_round_trip_every_code),
        TEST(test_decode_without_detail),
        TEST(test_unknown_code_is_internal),
        TEST(test_required_keys),
    };
    return SF_RUN_TESTS("error_status", tests);
}
