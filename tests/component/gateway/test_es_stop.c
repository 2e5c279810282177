/* The stop of the Elasticsearch edge while an acknowledgement does not come: it takes the time it
 * was given, and the client is told that the outcome is unknown. */
#include "component/gateway/edge_world.h"

#include <sched.h>
#include <stdlib.h>

#include "base/clock.h"

struct client {
    struct edge *edge;
    struct answer answer;
};

static void *client_main(void *arg)
{
    static const char doc[] = "{}";
    struct client *client = arg;
    edge_request(client->edge, "POST", "/books/_doc", "k", doc, strlen(doc), &client->answer);
    return NULL;
}

static void test_stop_does_not_wait_for_the_ingest_gateway(void **state)
{
    static struct edge edge;
    static struct client client;
    pthread_t thread;
    unsigned batches = 0;
    (void)state;
    edge_start(&edge, 600000);
    edge.ingest_mode = INGEST_SILENT;
    client.edge = &edge;
    assert_int_equal(pthread_create(&thread, NULL, client_main, &client), 0);
    while (batches == 0) {
        (void)sched_yield();
        (void)pthread_mutex_lock(&edge.mu);
        batches = edge.batch_count;
        (void)pthread_mutex_unlock(&edge.mu);
    }
    int64_t begin_ms = sf_clock_mono_ms(sf_clock_system());
    edge_stop(&edge);
    assert_true(sf_clock_mono_ms(sf_clock_system()) - begin_ms < 60000); /* not 600 s */
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(client.answer.status, 503);
    assert_non_null(strstr(client.answer.body, "the outcome is unknown"));
    free(client.answer.body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stop_does_not_wait_for_the_ingest_gateway)};
    return SF_RUN_TESTS("es_stop", tests);
}
