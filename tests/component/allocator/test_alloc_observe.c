/* What is counted and logged. */
#include "component/allocator/alloc_world.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

static struct result r; /* of the running test */

static int setup(void **state)
{
    return world_setup(state);
}

static int teardown(void **state)
{
    result_fini(&r);
    r = (struct result){0};
    return world_teardown(state);
}

#define KIND "client_kind=\"CLIENT_KIND_ES_WRITE_GATEWAY\""

static void test_metrics(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-14-01", "ALLOC-14-02", "ALLOC-14-03", "ALLOC-14-04", "ALLOC-14-05",
              "ALLOC-14-08", "ALLOC-14-09", "ALLOC-14-10", "ALLOC-14-11", "ALLOC-13.3-03");

    allocate_ok(p, &r, "a", PLAN(ISSUE, ISSUE, ISSUE));
    allocate_ok(p, &r, "b", PLAN(10, 11, 12));
    allocate_ok(p, &r, "c", PLAN(ISSUE, 20, ISSUE));
    allocate_ok(p, &r, "c", PLAN(ISSUE, 20, ISSUE));
    allocate(p, &r, "c", PLAN(ISSUE));
    expect_err(&r, SF_IDEMPOTENCY_CONFLICT);
    allocate(p, &r, "d", PLAN(0));
    expect_err(&r, SF_VERSION_CONFLICT);
    allocate(p, &r, "", PLAN(0));
    expect_err(&r, SF_INVALID_ARGUMENT);
    static const char *const lines[] = {
        "searchfabric_id_allocator_requests_total{" KIND
        ",result=\"ok\",plan_shape=\"issue_only\"} 1",
        "searchfabric_id_allocator_requests_total{" KIND
        ",result=\"ok\",plan_shape=\"explicit_only\"} 1",
        "searchfabric_id_allocator_requests_total{" KIND ",result=\"ok\",plan_shape=\"mixed\"} 1",
        "searchfabric_id_allocator_requests_total{" KIND
        ",result=\"replay_ok\",plan_shape=\"mixed\"} 1",
        "searchfabric_id_allocator_requests_total{" KIND
        ",result=\"sf_idempotency_conflict\",plan_shape=\"issue_only\"} 1",
        "searchfabric_id_allocator_requests_total{" KIND
        ",result=\"sf_version_conflict\",plan_shape=\"explicit_only\"} 1",
        "searchfabric_id_allocator_requests_total{" KIND
        ",result=\"sf_invalid_argument\",plan_shape=\"invalid\"} 1",
        "searchfabric_id_allocator_latency_ms_count{" KIND ",plan_shape=\"mixed\"} 2",
        "searchfabric_id_allocator_latency_ms_count{" KIND ",plan_shape=\"invalid\"} 1",
        /* 3 + 2 + 2 + 1 issued, 3 + 1 + 1 + 1 explicit */
        "searchfabric_id_allocator_plan_items_total{" KIND ",item_kind=\"issue\"} 8",
        "searchfabric_id_allocator_plan_items_total{" KIND ",item_kind=\"explicit_doc_id\"} 6",
        "searchfabric_id_allocator_replay_total{classification=\"original\"} 3",
        "searchfabric_id_allocator_replay_total{classification=\"replay_same_payload\"} 1",
        "searchfabric_id_allocator_replay_total{classification=\"replay_conflict\"} 1",
        "searchfabric_id_allocator_ccs_dependency_latency_ms_count 4",
        "searchfabric_id_allocator_state_conflict_retry_total 0"};
    for (size_t i = 0; i < SF_ARRAY_LEN(lines); i++)
        if (!metrics_have(p, lines[i])) {
            struct sf_buf text = {0};
            sf_metrics_render(p->metrics, &text);
            sf_buf_append(&text, "", 1);
            print_message("%s", (char *)text.data);
            sf_buf_fini(&text);
            fail_msg("missing: %s", lines[i]);
        }
}

/* The log lines of one call, in a static buffer. */
static const char *logged_call(struct process *p, const char *key, const uint64_t *items,
                               size_t count)
{
    static char text[65536];
    char path[] = "/tmp/sf-alloc-log-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    (void)unlink(path);

    sf_log_set_fd(fd);
    allocate(p, &r, key, items, count);
    sf_log_set_fd(-1);
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    assert_true(n >= 0);
    text[n] = '\0';
    (void)close(fd);
    return text;
}

static void test_log_record(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-14-12", "ALLOC-14-13", "ALLOC-14-14", "ALLOC-14-15", "ALLOC-14-16",
              "ALLOC-14-17", "ALLOC-14-18", "ALLOC-14-19", "ALLOC-14-20", "ALLOC-14-21");
    static const char *const always[] = {
        "alloc_request",
        "identity_hash=64edaa3fb9310e98cdb183cddbf156d9964a05c017fa7f8ee3c262909fa36759",
        "client_id=gw-1",
        "client_kind=CLIENT_KIND_ES_WRITE_GATEWAY",
        "namespace_id=7",
        "collection_id=9",
        "route_intent=1"};

    const char *text = logged_call(p, "key-a", PLAN(ISSUE, 777123, ISSUE));
    const char *refused[] = {
        "plan_shape=mixed",      "issue_item_count=2",         "explicit_item_count=1",
        "idempotency_key=key-a", "replay_classification=none", "result=sf_too_many_operations",
        "ccs_etag=etag-1"};
    for (size_t i = 0; i < SF_ARRAY_LEN(always); i++)
        assert_non_null(strstr(text, always[i]));
    for (size_t i = 0; i < SF_ARRAY_LEN(refused); i++)
        assert_non_null(strstr(text, refused[i]));
    assert_null(strstr(text, "777123 "));
    text = logged_call(p, "key-b", PLAN(ISSUE, ISSUE));
    assert_non_null(strstr(text, "replay_classification=original"));
    assert_non_null(strstr(text, "ccs_etag=etag-1"));
    assert_non_null(strstr(text, "ccs_read=true"));
    text = logged_call(p, "key-b", PLAN(ISSUE, ISSUE));
    assert_non_null(strstr(text, "replay_classification=replay_same_payload"));
    assert_non_null(strstr(text, "ccs_read=false"));
    assert_null(strstr(text, "etag-1"));
    text = logged_call(p, "key-b", PLAN(ISSUE));
    assert_non_null(strstr(text, "replay_classification=replay_conflict"));

    /* the size of the record does not grow with the plan */
    w->facts.max_items = 10000;
    w->facts.etag = "etag-2";
    uint64_t *many = calloc(10000, sizeof(*many));
    assert_non_null(many);
    for (size_t i = 0; i < 10000; i++)
        many[i] = ISSUE;
    size_t small = strlen(logged_call(p, "key-c", many, 1));
    size_t large = strlen(logged_call(p, "key-d", many, 10000));
    assert_int_equal(r.count, 10000);
    assert_true(large <= small + 8);
    free(many);
}

/* Items and ids are told at the debug level and at no other. */
static void test_debug_log(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-14-21", "ALLOC-14-22");

    assert_null(strstr(logged_call(p, "info", PLAN(ISSUE, 7)), "items="));
    sf_log_set_level(SF_LOG_DEBUG);
    const char *line = logged_call(p, "debug", PLAN(ISSUE, 12, ISSUE));
    assert_non_null(strstr(line, "items=\"issue:8 explicit:12 issue:13\""));
    line = logged_call(p, "debug", PLAN(ISSUE, 12, ISSUE)); /* a replay tells the same */
    assert_non_null(strstr(line, "items=\"issue:8 explicit:12 issue:13\""));
    line = logged_call(p, "refused", PLAN(ISSUE, 3));
    assert_non_null(strstr(line, "items=\"issue explicit:3\""));
    sf_log_set_level(SF_LOG_INFO);
    assert_null(strstr(logged_call(p, "info-2", PLAN(ISSUE, 20)), "items="));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_metrics, setup, teardown),
        cmocka_unit_test_setup_teardown(test_log_record, setup, teardown),
        cmocka_unit_test_setup_teardown(test_debug_log, setup, teardown),
    };
    return SF_RUN_TESTS("alloc_observe", tests);
}
