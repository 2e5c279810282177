/*
 * What several threads share: a key ring that is reloaded while it verifies, metric series made and
 * bumped at once, log lines that must not mix. Run under ThreadSanitizer by the tsan preset.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/metrics.h"
#include "base/token.h"
#include "support/proves.h"

#define THREADS 4
#define ROUNDS  500

static struct sf_keyring *ring;
static struct sf_buf token;

static void *verify_many(void *arg)
{
    unsigned *bad = arg;

    for (unsigned i = 0; i < ROUNDS; i++) {
        struct sf_view claims;
        struct sf_buf mine = {0};
        *bad +=
            sf_token_verify(ring, SF_TOKEN_PAGE, 5, sf_buf_view(&token), &claims) != SF_TOKEN_OK;
        sf_token_sign(ring, SF_TOKEN_PAGE, 5, 0, sf_view_str("x"), &mine);
        *bad += sf_token_verify(ring, SF_TOKEN_PAGE, 5, sf_buf_view(&mine), &claims) != SF_TOKEN_OK;
        sf_buf_fini(&mine);
    }
    return NULL;
}

static void test_reload_under_load(void **state)
{
    (void)state;
    char folder[] = "/tmp/sf-threads-XXXXXX";
    char path[64];
    pthread_t threads[THREADS];
    unsigned bad[THREADS] = {0};

    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/ring.yaml", folder);
    assert_int_equal(sf_keyring_open_or_create(path, NULL, &ring), SF_OK);
    sf_token_sign(ring, SF_TOKEN_PAGE, 5, 0, sf_view_str("shared"), &token);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, verify_many, &bad[i]), 0);
    for (unsigned i = 0; i < 50; i++)
        assert_int_equal(sf_keyring_reload(ring, NULL), SF_OK);
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(bad[i], 0);
    }
    sf_keyring_destroy(ring);
    sf_buf_fini(&token);
    (void)unlink(path);
    (void)rmdir(folder);
}

static struct sf_metrics *metrics;

static void *count_many(void *arg)
{
    static const char *const labels[] = {"n", NULL};
    struct sf_metric_family *family =
        sf_metrics_family(metrics, SF_METRIC_COUNTER, "sf_threads_total", "Threads.", labels);

    (void)arg;
    for (unsigned i = 0; i < ROUNDS; i++) {
        char text[8];
        (void)snprintf(text, sizeof(text), "%u", i % 10);
        const char *const values[] = {text, NULL};
        sf_metric_add(sf_metric_series(family, values), 1);
    }
    return NULL;
}

static void test_metrics_together(void **state)
{
    (void)state;
    static const char *const labels[] = {"n", NULL};
    static const char *const zero[] = {"0", NULL};
    pthread_t threads[THREADS];
    struct sf_buf out = {0};

    metrics = sf_metrics_new();
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count_many, NULL), 0);
    sf_metrics_render(metrics, &out);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    struct sf_metric_family *family =
        sf_metrics_family(metrics, SF_METRIC_COUNTER, "sf_threads_total", "Threads.", labels);
    assert_int_equal(sf_metric_value(sf_metric_series(family, zero)), THREADS * ROUNDS / 10);
    sf_buf_fini(&out);
    sf_metrics_destroy(metrics);
}

static void *log_many(void *arg)
{
    for (unsigned i = 0; i < 50; i++)
        SF_LOG(INFO, "thread_line", SF_KV_STR("text", arg));
    return NULL;
}

static void test_log_lines_do_not_mix(void **state)
{
    (void)state;
    static char texts[THREADS][200];
    pthread_t threads[THREADS];
    FILE *file = tmpfile();
    char line[512];
    unsigned lines = 0;

    assert_non_null(file);
    sf_log_set_fd(fileno(file));
    for (size_t i = 0; i < THREADS; i++) {
        memset(texts[i], 'a' + (int)i, sizeof(texts[i]) - 1);
        assert_int_equal(pthread_create(&threads[i], NULL, log_many, texts[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    sf_log_set_fd(2);
    rewind(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        const char *text = strstr(line, "text=");
        assert_non_null(text);
        text += 5;
        assert_int_equal(strspn(text, (char[]){text[0], '\0'}), 199);
        assert_string_equal(text + 199, "\n");
        lines++;
    }
    assert_int_equal(lines, THREADS * 50);
    (void)fclose(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reload_under_load),
        cmocka_unit_test(test_metrics_together),
        cmocka_unit_test(test_log_lines_do_not_mix),
    };

    return SF_RUN_TESTS("threads", tests);
}
