/*
 * The store contract (protocols.md section 1), run over the memory store, the metered store and the
 * embedded store alike: conditions, stages and cancellation, reads with ranges, listing in byte
 * order, completion always later.
 */
#include "support/proves.h"
#include "support/tempdir.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/mem.h"
#include "object/memory_store.h"
#include "object/metered_store.h"

static char folder[SF_TEMPDIR_BYTES];
static struct sf_store *store;
static struct sf_metrics *metrics;

static struct sf_put make_put(const char *key, const char *body, enum sf_put_cond cond,
                              const char *etag)
{
    struct sf_put put = {.key = sf_view_str(key), .body = sf_view_str(body), .cond = cond};

    if (etag != NULL)
        (void)snprintf(put.match.text, sizeof(put.match.text), "%s", etag);
    return put;
}

static enum sf_err put_one(const char *key, const char *body, enum sf_put_cond cond,
                           const char *etag, struct sf_etag *out_etag)
{
    struct sf_put put = make_put(key, body, cond, etag);
    enum sf_err err = sf_store_put_wait(store, NULL, &put);

    if (out_etag != NULL)
        *out_etag = put.etag;
    return err;
}

static void assert_body(const char *key, const char *want)
{
    struct sf_buf body = {0};

    assert_int_equal(sf_store_get_wait(store, NULL, sf_view_str(key), &body, NULL), SF_OK);
    assert_int_equal(body.len, strlen(want));
    assert_memory_equal(body.data, want, body.len);
    sf_buf_fini(&body);
}

static void assert_absent(const char *key)
{
    struct sf_buf body = {0};

    assert_int_equal(sf_store_get_wait(store, NULL, sf_view_str(key), &body, NULL),
                     SF_ERR_NOT_FOUND);
    sf_buf_fini(&body);
}

static int open_memory(void **state)
{
    (void)state;
    store = sf_memory_store_new(NULL);
    return 0;
}

static int open_embedded(void **state)
{
    (void)state;
    sf_tempdir_make(folder);
    return sf_embedded_store_open(folder, NULL, &store) == SF_OK ? 0 : -1;
}

static int open_metered(void **state)
{
    (void)state;
    metrics = sf_metrics_new();
    store = sf_metered_store_new(sf_memory_store_new(NULL), metrics, sf_clock_system());
    return 0;
}

static int close_store(void **state)
{
    (void)state;
    sf_store_destroy(store);
    sf_metrics_destroy(metrics);
    metrics = NULL;
    if (folder[0] != '\0')
        sf_tempdir_remove(folder);
    folder[0] = '\0';
    return 0;
}

static void test_conditions(void **state)
{
    struct sf_etag first;
    struct sf_etag second;

    (void)state;
    assert_int_equal(put_one("k", "1", SF_PUT_ABSENT, NULL, &first), SF_OK);
    assert_int_equal(put_one("k", "2", SF_PUT_ABSENT, NULL, NULL), SF_ERR_PRECONDITION);
    assert_body("k", "1");
    assert_int_equal(put_one("k", "3", SF_PUT_MATCH, first.text, &second), SF_OK);
    assert_string_not_equal(first.text, second.text);
    assert_int_equal(put_one("k", "4", SF_PUT_MATCH, first.text, NULL), SF_ERR_PRECONDITION);
    assert_body("k", "3");
    assert_int_equal(put_one("absent", "5", SF_PUT_MATCH, first.text, NULL), SF_ERR_PRECONDITION);
    assert_absent("absent");
    assert_int_equal(put_one("k", "6", SF_PUT_ANY, NULL, NULL), SF_OK);
    assert_body("k", "6");
    assert_int_equal(sf_store_remove_wait(store, NULL, sf_view_str("k")), SF_OK);
    assert_int_equal(sf_store_remove_wait(store, NULL, sf_view_str("k")), SF_OK);
    assert_absent("k");
    assert_int_equal(put_one("k", "7", SF_PUT_MATCH, second.text, NULL), SF_ERR_PRECONDITION);
    assert_int_equal(put_one("k", "8", SF_PUT_ABSENT, NULL, NULL), SF_OK);
}

static void test_limits(void **state)
{
    char key[SF_LIMIT_OBJECT_KEY_BYTES + 2];

    (void)state;
    memset(key, 'x', sizeof(key));
    key[SF_LIMIT_OBJECT_KEY_BYTES] = '\0';
    assert_int_equal(put_one(key, "fits", SF_PUT_ABSENT, NULL, NULL), SF_OK);
    assert_body(key, "fits");
    key[SF_LIMIT_OBJECT_KEY_BYTES] = 'x';
    key[SF_LIMIT_OBJECT_KEY_BYTES + 1] = '\0';
    assert_int_equal(put_one(key, "too long", SF_PUT_ABSENT, NULL, NULL), SF_ERR_LIMIT);
    assert_int_equal(put_one("", "no key", SF_PUT_ANY, NULL, NULL), SF_ERR_LIMIT);
    assert_int_equal(put_one("\xff", "no UTF-8", SF_PUT_ANY, NULL, NULL), SF_ERR_LIMIT);
    assert_int_equal(put_one("empty", "", SF_PUT_ABSENT, NULL, NULL), SF_OK);
    assert_body("empty", "");
}

/* Runs a batch and compares the results, in order. */
static void run_batch(struct sf_put *puts, size_t count, const enum sf_err *want)
{
    struct sf_batch batch = {.puts = puts, .count = count};

    sf_store_submit_wait(store, NULL, &batch);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(puts[i].err, want[i]);
}

static void test_failed_put_cancels_own_later_stages_only(void **state)
{
    struct sf_put puts[6];
    const enum sf_err want[6] = {SF_OK, SF_ERR_PRECONDITION,    SF_OK,
                                 SF_OK, SF_ERR_CANCELLED_STAGE, SF_OK};

    (void)state;
    assert_int_equal(put_one("taken", "x", SF_PUT_ABSENT, NULL, NULL), SF_OK);
    puts[0] = make_put("c0/s0", "a", SF_PUT_ABSENT, NULL);
    puts[1] = make_put("taken", "b", SF_PUT_ABSENT, NULL);
    puts[2] = make_put("c1/s0", "c", SF_PUT_ABSENT, NULL); /* same stage of the failed command */
    puts[3] = make_put("c0/s1", "d", SF_PUT_ABSENT, NULL);
    puts[4] = make_put("c1/s1", "e", SF_PUT_ABSENT, NULL);
    puts[5] = make_put("all/s1", "f", SF_PUT_ABSENT, NULL);
    puts[1].command = puts[2].command = puts[4].command = 1;
    puts[3].stage = puts[4].stage = puts[5].stage = 1;
    puts[5].command = SF_COMMAND_ALL;
    run_batch(puts, 6, want);
    assert_body("taken", "x");
    assert_body("c1/s0", "c");
    assert_absent("c1/s1");
    assert_body("all/s1", "f");
}

static void test_failed_put_of_all_cancels_every_command(void **state)
{
    struct sf_put puts[4];
    const enum sf_err want[4] = {SF_ERR_PRECONDITION, SF_OK, SF_ERR_CANCELLED_STAGE,
                                 SF_ERR_CANCELLED_STAGE};

    (void)state;
    assert_int_equal(put_one("segment", "x", SF_PUT_ABSENT, NULL, NULL), SF_OK);
    puts[0] = make_put("segment", "a", SF_PUT_ABSENT, NULL);
    puts[1] = make_put("control", "b", SF_PUT_ABSENT, NULL);
    puts[2] = make_put("outcome", "c", SF_PUT_ABSENT, NULL);
    puts[3] = make_put("pointer", "d", SF_PUT_ABSENT, NULL);
    puts[0].command = SF_COMMAND_ALL;
    puts[2].command = 7;
    puts[2].stage = 1;
    puts[3].command = SF_COMMAND_ALL;
    puts[3].stage = 2;
    run_batch(puts, 4, want);
    assert_body("control", "b");
    assert_absent("outcome");
    assert_absent("pointer");
}

static void test_batch_sees_its_own_earlier_puts(void **state)
{
    struct sf_put puts[2];
    const enum sf_err want[2] = {SF_OK, SF_ERR_PRECONDITION};

    (void)state;
    puts[0] = make_put("same", "a", SF_PUT_ABSENT, NULL);
    puts[1] = make_put("same", "b", SF_PUT_ABSENT, NULL);
    puts[1].command = 1;
    run_batch(puts, 2, want);
    assert_body("same", "a");
}

static void test_range_reads(void **state)
{
    static const struct {
        uint64_t offset, len;
        const char *want;
    } cases[] = {{0, 0, "0123456789"}, {3, 0, "3456789"}, {3, 4, "3456"},
                 {8, 9, "89"},         {10, 1, ""},       {99, 0, ""}};

    (void)state;
    assert_int_equal(put_one("r", "0123456789", SF_PUT_ABSENT, NULL, NULL), SF_OK);
    for (size_t i = 0; i < SF_ARRAY_LEN(cases); i++) {
        struct sf_buf body = {0};
        assert_int_equal(sf_store_get_range_wait(store, NULL, sf_view_str("r"), cases[i].offset,
                                                 cases[i].len, &body),
                         SF_OK);
        assert_int_equal(body.len, strlen(cases[i].want));
        if (body.len > 0)
            assert_memory_equal(body.data, cases[i].want, body.len);
        sf_buf_fini(&body);
    }
}

static void assert_list(const char *prefix, const char *after, size_t limit, const char *want)
{
    struct sf_arena *arena = sf_arena_new(1u << 20);
    struct sf_list_entry *entries;
    struct sf_buf got = {0};
    size_t count;

    assert_int_equal(sf_store_list_wait(store, NULL, sf_view_str(prefix), sf_view_str(after), limit,
                                        arena, &entries, &count),
                     SF_OK);
    for (size_t i = 0; i < count; i++) {
        sf_buf_append(&got, entries[i].key.ptr, entries[i].key.len);
        sf_buf_printf(&got, "=%llu ", (unsigned long long)entries[i].size_bytes);
    }
    sf_buf_append(&got, "", 1);
    assert_string_equal(got.data, want);
    sf_buf_fini(&got);
    sf_arena_destroy(arena);
}

static void test_list_in_byte_order(void **state)
{
    static const char *const keys[] = {"b/2", "a", "b/10", "b/1", "b", "c", "b/\xc3\xa9", "b0"};

    (void)state;
    for (size_t i = 0; i < SF_ARRAY_LEN(keys); i++)
        assert_int_equal(put_one(keys[i], keys[i], SF_PUT_ABSENT, NULL, NULL), SF_OK);
    assert_list("b/", "", 10, "b/1=3 b/10=4 b/2=3 b/\xc3\xa9=4 ");
    assert_list("b/", "b/10", 10, "b/2=3 b/\xc3\xa9=4 ");
    assert_list("b/", "b/11", 1, "b/2=3 ");
    assert_list("b/", "a", 2, "b/1=3 b/10=4 ");
    assert_list("b/", "c", 10, "");
    assert_list("", "", 3, "a=1 b=1 b/1=3 ");
    assert_list("", "b0", 3, "c=1 ");
    assert_list("zz", "", 3, "");
    assert_int_equal(sf_store_remove_wait(store, NULL, sf_view_str("b/2")), SF_OK);
    assert_list("b/", "b/10", 10, "b/\xc3\xa9=4 ");
}

static void test_probe_accepts(void **state)
{
    struct sf_diag diag;

    (void)state;
    sf_diag_init(&diag);
    assert_int_equal(sf_store_probe(store, NULL, &diag), SF_OK);
    assert_list("probe/", "", 10, "");
}

#define RACERS 4
#define ROUNDS 50

struct racer {
    pthread_t thread;
    unsigned id;
    unsigned wins;
};

static void *race(void *arg)
{
    struct racer *r = arg;

    for (unsigned round = 0; round < ROUNDS; round++) {
        char key[32];
        char body[32];
        (void)snprintf(key, sizeof(key), "race/%u", round);
        (void)snprintf(body, sizeof(body), "%u/%u", r->id, round);
        struct sf_put put = make_put(key, body, SF_PUT_ABSENT, NULL);
        enum sf_err err = sf_store_put_wait(store, NULL, &put);
        SF_ASSERT(err == SF_OK || err == SF_ERR_PRECONDITION);
        r->wins += err == SF_OK;
    }
    return NULL;
}

static void test_race_has_one_winner(void **state)
{
    struct racer racers[RACERS];
    unsigned wins = 0;

    (void)state;
    for (unsigned i = 0; i < RACERS; i++) {
        racers[i] = (struct racer){.id = i};
        assert_int_equal(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
    }
    for (unsigned i = 0; i < RACERS; i++) {
        assert_int_equal(pthread_join(racers[i].thread, NULL), 0);
        wins += racers[i].wins;
    }
    assert_int_equal(wins, ROUNDS);
}

static void assert_metric(const char *line)
{
    struct sf_buf text = {0};

    sf_metrics_render(metrics, &text);
    sf_buf_append(&text, "", 1);
    if (strstr((const char *)text.data, line) == NULL)
        fail_msg("no line \"%s\" in:\n%s", line, (const char *)text.data);
    sf_buf_fini(&text);
}

static void test_meter_counts_results_and_bytes(void **state)
{
    struct sf_put puts[3];
    const enum sf_err want[3] = {SF_OK, SF_ERR_PRECONDITION, SF_ERR_CANCELLED_STAGE};

    (void)state;
    puts[0] = make_put("a", "12345", SF_PUT_ABSENT, NULL);
    puts[1] = make_put("a", "1234567", SF_PUT_ABSENT, NULL);
    puts[2] = make_put("b", "123", SF_PUT_ABSENT, NULL);
    puts[1].command = puts[2].command = 1;
    puts[2].stage = 1;
    run_batch(puts, 3, want);
    assert_body("a", "12345");
    assert_absent("b");
    assert_list("", "", 10, "a=5 ");
    assert_int_equal(sf_store_remove_wait(store, NULL, sf_view_str("a")), SF_OK);
    assert_metric("searchfabric_object_requests_total{op=\"put\",result=\"SF_OK\"} 1\n");
    assert_metric(
        "searchfabric_object_requests_total{op=\"put\",result=\"SF_ERR_PRECONDITION\"} 1\n");
    assert_metric(
        "searchfabric_object_requests_total{op=\"put\",result=\"SF_ERR_CANCELLED_STAGE\"} 1\n");
    assert_metric("searchfabric_object_requests_total{op=\"get\",result=\"SF_OK\"} 1\n");
    assert_metric("searchfabric_object_requests_total{op=\"get\",result=\"SF_ERR_NOT_FOUND\"} 1\n");
    assert_metric("searchfabric_object_requests_total{op=\"list\",result=\"SF_OK\"} 1\n");
    assert_metric("searchfabric_object_requests_total{op=\"delete\",result=\"SF_OK\"} 1\n");
    assert_metric("searchfabric_object_batches_total 1\n");
    assert_metric("searchfabric_object_put_bytes_total 5\n");
    assert_metric("searchfabric_object_get_bytes_total 5\n");
    assert_metric("searchfabric_object_in_flight 0\n");
    assert_metric("searchfabric_object_latency_ms_count{op=\"put\"} 1\n");
}

#define ALL(fn)                                                                                    \
    {"memory: " #fn, fn, open_memory, close_store, NULL},                                          \
        {"metered: " #fn, fn, open_metered, close_store, NULL},                                    \
    {                                                                                              \
        "embedded: " #fn, fn, open_embedded, close_store, NULL                                     \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        ALL(test_conditions),
        ALL(test_limits),
        ALL(test_failed_put_cancels_own_later_stages_only),
        ALL(test_failed_put_of_all_cancels_every_command),
        ALL(test_batch_sees_its_own_earlier_puts),
        ALL(test_range_reads),
        ALL(test_list_in_byte_order),
        ALL(test_probe_accepts),
        ALL(test_race_has_one_winner),
        cmocka_unit_test_setup_teardown(test_meter_counts_results_and_bytes, open_metered,
                                        close_store)};

    return SF_RUN_TESTS("store", tests);
}
