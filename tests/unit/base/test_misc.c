/* Clock, random numbers, log lines and metrics. */
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/rng.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "support/proves.h"

static void test_manual_clock(void **state)
{
    (void)state;
    struct sf_clock_manual manual;

    sf_clock_manual_init(&manual, 1000, 5000000);
    assert_int_equal(sf_clock_unix_ms(&manual.base), 1000);
    assert_int_equal(sf_clock_mono_ms(&manual.base), 5);
    sf_clock_manual_advance(&manual, 7);
    assert_int_equal(sf_clock_unix_ms(&manual.base), 1007);
    assert_int_equal(sf_clock_mono_ns(&manual.base), 12000000);
}

static void test_system_clock(void **state)
{
    (void)state;
    struct sf_clock *clock = sf_clock_system();
    int64_t before = sf_clock_mono_ns(clock);

    assert_true(sf_clock_unix_ms(clock) > 1700000000000);
    assert_true(sf_clock_mono_ms(clock) > 0);
    assert_true(sf_clock_mono_ns(clock) >= before);
}

/* The sequence is part of what a seed means: worked out by another implementation. */
static void test_rng_is_frozen(void **state)
{
    (void)state;
    struct sf_rng rng;

    sf_rng_init(&rng, 42);
    assert_true(rng.state[0] == 0xbdd732262feb6e95u && rng.state[3] == 0x581ce1ff0e4ae394u);
    assert_true(sf_rng_u64(&rng) == 0x15780b2e0c2ec716u);
    assert_true(sf_rng_u64(&rng) == 0x6104d9866d113a7eu);
    assert_true(sf_rng_u64(&rng) == 0xae17533239e499a1u);
}

static void test_rng_below(void **state)
{
    (void)state;
    struct sf_rng rng;
    unsigned seen[7] = {0};

    sf_rng_init(&rng, 1);
    for (unsigned i = 0; i < 7000; i++) {
        uint64_t x = sf_rng_below(&rng, 7);
        assert_true(x < 7);
        seen[x]++;
    }
    for (unsigned i = 0; i < 7; i++)
        assert_true(seen[i] > 800 && seen[i] < 1200);
    assert_int_equal(sf_rng_below(&rng, 1), 0);
    assert_true(sf_rng_below(&rng, UINT64_MAX) < UINT64_MAX);

    uint8_t a[32] = {0};
    uint8_t b[32] = {0};
    sf_random_bytes(a, sizeof(a));
    sf_random_bytes(b, sizeof(b));
    assert_memory_not_equal(a, b, sizeof(a));
}

/* Runs one log call and gives back the line without its time. */
#define LOGGED(out, call)                                                                          \
    do {                                                                                           \
        int ends[2];                                                                               \
        assert_int_equal(pipe(ends), 0);                                                           \
        assert_true(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);                                     \
        sf_log_set_fd(ends[1]);                                                                    \
        call;                                                                                      \
        sf_log_set_fd(2);                                                                          \
        ssize_t n = read(ends[0], (out), sizeof(out) - 1);                                         \
        (out)[n < 0 ? 0 : n] = '\0';                                                               \
        (void)close(ends[0]);                                                                      \
        (void)close(ends[1]);                                                                      \
    } while (0)

static void test_log_line(void **state)
{
    (void)state;
    char line[8192];

    LOGGED(line, SF_LOG(WARN, "an_event", SF_KV_U64("id", UINT64_MAX), SF_KV_I64("delta", -1),
                        SF_KV_STR("plain", "a-b/c:1"), SF_KV_STR("spaced", "a b"),
                        SF_KV_VIEW("forged", sf_view_bytes("x\nERROR y=\"z\"\0", 14)),
                        SF_KV_STR("none", NULL), SF_KV_STR("text", "\xc3\xa9")));
    /* 2026-11-30T15:00:00.000Z */
    assert_int_equal(line[4], '-');
    assert_int_equal(line[10], 'T');
    assert_int_equal(line[23], 'Z');
    assert_string_equal(line + 24, " WARN an_event id=18446744073709551615 delta=-1 plain=a-b/c:1 "
                                   "spaced=\"a b\" forged=\"x\\x0aERROR y=\\\"z\\\"\\x00\" "
                                   "none=\"\" text=\"\xc3\xa9\"\n");
}

static void test_log_level(void **state)
{
    (void)state;
    char line[8192];

    LOGGED(line, SF_LOG(DEBUG, "quiet", SF_KV_U64("id", 1)));
    assert_string_equal(line, "");
    sf_log_set_level(SF_LOG_DEBUG);
    LOGGED(line, SF_LOG(DEBUG, "loud", SF_KV_U64("id", 1)));
    assert_non_null(strstr(line, " DEBUG loud id=1\n"));
    sf_log_set_level(SF_LOG_INFO);
    sf_log_set_fd(-1);
    SF_LOG(ERROR, "dropped", SF_KV_U64("id", 1));
    sf_log_set_fd(2);
}

static void test_log_site_is_bounded(void **state)
{
    (void)state;
    struct sf_log_site site = {0};
    uint64_t suppressed = 99;

    for (unsigned i = 0; i < SF_LIMIT_LOG_LINES_PER_SECOND; i++)
        assert_true(sf_log_site_allows(&site, 1000, &suppressed));
    assert_int_equal(suppressed, 0);
    for (unsigned i = 0; i < 7; i++)
        assert_false(sf_log_site_allows(&site, 1000, &suppressed));
    assert_true(sf_log_site_allows(&site, 1001, &suppressed));
    assert_int_equal(suppressed, 7);
    assert_true(sf_log_site_allows(&site, 1001, &suppressed));
    assert_int_equal(suppressed, 0);
}

static void test_log_tells_what_it_left_out(void **state)
{
    (void)state;
    char line[8192];
    const struct sf_log_kv pair = SF_KV_U64("id", 1);
    struct sf_log_site site = {.suppressed = 12};

    LOGGED(line, sf_log_write(&site, SF_LOG_ERROR, "again", &pair, 1));
    assert_non_null(strstr(line, " ERROR again id=1 suppressed=12\n"));
    /* what is told by itself, once, is not bounded */
    site = (struct sf_log_site){.suppressed = 12};
    LOGGED(line, sf_log_write(&site, SF_LOG_INFO, "once", &pair, 1));
    assert_non_null(strstr(line, " INFO once id=1\n"));
}

static void test_log_line_is_cut(void **state)
{
    (void)state;
    char line[8192];
    char text[6000];

    memset(text, 'x', sizeof(text) - 1);
    text[100] = ' '; /* quoted, so copied byte by byte up to the end of the line */
    text[sizeof(text) - 1] = '\0';
    LOGGED(line, SF_LOG(INFO, "long", SF_KV_STR("text", text), SF_KV_U64("after", 1)));
    assert_true(strlen(line) <= 4096);
    assert_string_equal(line + strlen(line) - 4, "...\n");
    assert_null(strstr(line, "after"));
}

static void test_metrics(void **state)
{
    (void)state;
    static const char *const labels[] = {"method", "code", NULL};
    struct sf_metrics *metrics = sf_metrics_new();
    struct sf_metric_family *calls = sf_metrics_family(metrics, SF_METRIC_COUNTER, "sf_calls_total",
                                                       "Calls.\nBy \\ code", labels);
    struct sf_metric_family *depth =
        sf_metrics_family(metrics, SF_METRIC_GAUGE, "sf_queue_depth", "Depth.", NULL);
    struct sf_metric_family *latency =
        sf_metrics_family(metrics, SF_METRIC_HISTOGRAM, "sf_latency_ms", "Latency.", NULL);
    const char *const one[] = {"Put", "SF_OK", NULL};
    const char *const two[] = {"a\"b\\c\nd\xff", "x", NULL};
    struct sf_buf out = {0};

    assert_ptr_equal(
        sf_metrics_family(metrics, SF_METRIC_COUNTER, "sf_calls_total", "other", labels), calls);
    sf_metric_add(sf_metric_series(calls, two), 1);
    sf_metric_add(sf_metric_series(calls, one), 2);
    sf_metric_add(sf_metric_series(calls, one), 3);
    assert_int_equal(sf_metric_value(sf_metric_series(calls, one)), 5);
    sf_metric_set(sf_metric_series(depth, NULL), -4);
    struct sf_metric *h = sf_metric_series(latency, NULL);
    sf_metric_observe_ms(h, 0.1);   /* on the bound of the first bucket */
    sf_metric_observe_ms(h, 3);     /* le 5 */
    sf_metric_observe_ms(h, 20000); /* above all */
    sf_metric_observe_ms(h, -1);    /* a clock that stepped: counts as 0 */
    sf_metrics_render(metrics, &out);
    sf_buf_append(&out, "", 1);
    assert_string_equal((const char *)out.data,
                        "# HELP sf_calls_total Calls.\\nBy \\\\ code\n"
                        "# TYPE sf_calls_total counter\n"
                        "sf_calls_total{method=\"Put\",code=\"SF_OK\"} 5\n"
                        "sf_calls_total{method=\"a\\\"b\\\\c\\nd?\",code=\"x\"} 1\n"
                        "# HELP sf_queue_depth Depth.\n"
                        "# TYPE sf_queue_depth gauge\n"
                        "sf_queue_depth -4\n"
                        "# HELP sf_latency_ms Latency.\n"
                        "# TYPE sf_latency_ms histogram\n"
                        "sf_latency_ms_bucket{le=\"0.1\"} 2\n"
                        "sf_latency_ms_bucket{le=\"0.25\"} 2\n"
                        "sf_latency_ms_bucket{le=\"0.5\"} 2\n"
                        "sf_latency_ms_bucket{le=\"1\"} 2\n"
                        "sf_latency_ms_bucket{le=\"2.5\"} 2\n"
                        "sf_latency_ms_bucket{le=\"5\"} 3\n"
                        "sf_latency_ms_bucket{le=\"10\"} 3\n"
                        "sf_latency_ms_bucket{le=\"25\"} 3\n"
                        "sf_latency_ms_bucket{le=\"50\"} 3\n"
                        "sf_latency_ms_bucket{le=\"100\"} 3\n"
                        "sf_latency_ms_bucket{le=\"250\"} 3\n"
                        "sf_latency_ms_bucket{le=\"500\"} 3\n"
                        "sf_latency_ms_bucket{le=\"1000\"} 3\n"
                        "sf_latency_ms_bucket{le=\"2500\"} 3\n"
                        "sf_latency_ms_bucket{le=\"10000\"} 3\n"
                        "sf_latency_ms_bucket{le=\"+Inf\"} 4\n"
                        "sf_latency_ms_sum 20003.100\n"
                        "sf_latency_ms_count 4\n");
    sf_buf_fini(&out);
    sf_metrics_destroy(metrics);
    sf_metrics_destroy(NULL);
}

static void test_metric_series_are_bounded(void **state)
{
    (void)state;
    static const char *const labels[] = {"peer", NULL};
    struct sf_metrics *metrics = sf_metrics_new();
    struct sf_metric_family *family =
        sf_metrics_family(metrics, SF_METRIC_COUNTER, "sf_peers_total", "Peers.", labels);
    const char *const other[] = {"other", NULL};

    for (unsigned i = 0; i < 1000; i++) {
        char peer[16];
        (void)snprintf(peer, sizeof(peer), "peer-%u", i);
        const char *const values[] = {peer, NULL};
        sf_metric_add(sf_metric_series(family, values), 1);
    }
    /* 256 of their own, the rest together */
    assert_int_equal(sf_metric_value(sf_metric_series(family, other)), 1000 - 256);
    sf_metrics_destroy(metrics);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_manual_clock),
        cmocka_unit_test(test_system_clock),
        cmocka_unit_test(test_rng_is_frozen),
        cmocka_unit_test(test_rng_below),
        cmocka_unit_test(test_log_line),
        cmocka_unit_test(test_log_level),
        cmocka_unit_test(test_log_site_is_bounded),
        cmocka_unit_test(test_log_tells_what_it_left_out),
        cmocka_unit_test(test_log_line_is_cut),
        cmocka_unit_test(test_metrics),
        cmocka_unit_test(test_metric_series_are_bounded),
    };

    return SF_RUN_TESTS("misc", tests);
}
