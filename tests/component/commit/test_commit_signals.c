/* What the coordinator shows: pressure by source, the oracle's series, records that can be joined.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "component/commit/commit_world.h"

#define DURABLE SEARCHFABRIC__V1__BATCH_GATE__BATCH_GATE_DURABLE

static struct world *open_one_shard(void)
{
    struct world *w = world_new();
    w->deps.shard_count = 1;
    w->deps.shard_pending_bytes = 10000;
    w->deps.shard_lanes = 4;
    assert_int_equal(world_open(w), SF_OK);
    return w;
}

static uint64_t submit_one(struct world *w, uint64_t collection, const char *batch,
                           unsigned touched)
{
    struct entry entry = {.doc_id = 1, .body = "0123456789", .touched = touched};
    return world_submit(
        w, &(struct batch_spec){
               .collection_id = collection, .batch_id = batch, .entries = &entry, .count = 1});
}

/* Waits until a gauge passes `least`; the test's time limit is the only other end. */
static void wait_pressure(struct world *w, const char *source, const char *modality, int64_t least)
{
    while (world_pressure(w, source, modality) < least)
        ;
}

static void test_oracle_slow(void **state)
{
    struct world *w = open_one_shard();
    (void)state;
    SF_PROVES("COORD-6.2-01", "COORD-10-01");
    (void)world_put(w, 1, 1, "a", "x");
    int64_t exhausted = world_metric(w, "tso_range_exhausted_total");
    int64_t answers = world_metric(w, "tso_rtt_ms");
    assert_true(exhausted >= 1 && answers >= 1);
    hand_tso_hold(&w->tso);
    uint64_t id = submit_one(w, 1, "b", 1);
    hand_tso_wait_held(&w->tso);
    wait_pressure(w, "tso", "", 100);
    assert_int_equal(world_metric(w, "tso_batch_size"), 1);
    hand_tso_release(&w->tso);
    assert_int_equal(world_wait(w, id).gate, DURABLE);
    assert_int_equal(world_metric(w, "tso_range_exhausted_total"), exhausted + 1);
    assert_int_equal(world_metric(w, "tso_rtt_ms"), answers + 1);
    (void)world_put(w, 1, 2, "c", "y"); /* fast again: the gauge falls */
    while (world_pressure(w, "tso", "") >= 100)
        ;
    world_free(w);
}

static void test_hot_tier(void **state)
{
    struct world *w = world_new();
    struct sf_commit_stats stats;
    (void)state;
    SF_PROVES("COORD-6.2-02");
    w->deps.shard_count = 1;
    w->deps.shard_lanes = 2;
    w->clock.unix_ms += 16 * 60 * 1000; /* what is admitted at WORLD_TSO0 is out of the window */
    assert_int_equal(world_open(w), SF_OK);
    (void)world_put(w, 1, 1, "a", "x");
    (void)world_put(w, 2, 1, "a", "x");
    world_settle(w);
    wait_pressure(w, "hot_tier", "", 100);
    assert_int_equal(world_put(w, 3, 1, "a", "x").gate, DURABLE); /* an idle lane made room */
    sf_commit_stats_get(w->commit, &stats);
    assert_true(stats.lanes <= 2);
    world_free(w);
}

static void test_writer_queue(void **state)
{
    struct world *w = open_one_shard();
    (void)state;
    SF_PROVES("COORD-6.2-03");
    gate_store_hold(w->gate, "wal/");
    for (unsigned i = 0; i < 8; i++) {
        char batch[16];
        snprintf(batch, sizeof(batch), "b%u", i);
        (void)submit_one(w, 1, batch, 1);
    }
    wait_pressure(w, "writer_queue", "", 10);
    gate_store_hold(w->gate, NULL);
    world_settle(w);
    while (world_pressure(w, "writer_queue", "") > 0)
        ;
    world_free(w);
}

static void test_one_modality_lags(void **state)
{
    struct world *w = open_one_shard();
    (void)state;
    SF_PROVES("COORD-6.2-04");
    gate_store_hold(w->gate, "wal/semantic");
    (void)submit_one(w, 1, "a", 3);
    wait_pressure(w, "durability_lag", "semantic", 100);
    assert_int_equal(world_pressure(w, "durability_lag", "metadata"), 0);
    gate_store_hold(w->gate, NULL);
    world_free(w);
}

static void test_publish_backlog(void **state)
{
    struct world *w = open_one_shard();
    (void)state;
    SF_PROVES("COORD-6.2-05");
    gate_store_hold(w->gate, "manifest_v");
    for (unsigned i = 0; i < 3; i++) {
        char batch[16];
        snprintf(batch, sizeof(batch), "b%u", i);
        (void)world_wait(w, submit_one(w, 1, batch, 1));
    }
    wait_pressure(w, "publish_backlog", "", 3);
    assert_int_equal(world_metric(w, "manifest_ready_depth"), 3);
    gate_store_hold(w->gate, NULL);
    world_free(w);
}

/* Two batches of one collection over two connections stand in one order. */
static void test_two_connections_one_lane(void **state)
{
    struct world *w = open_one_shard();
    struct sf_arena *arena = sf_arena_new(1u << 20);
    (void)state;
    SF_PROVES("COORD-2-03");
    gate_store_hold(w->gate, "wal/");
    struct outcome a = world_wait_admitted(w, submit_one(w, 1, "a", 1));
    world_second_stream(w, true);
    struct outcome b = world_wait_admitted(w, submit_one(w, 1, "b", 1));
    world_second_stream(w, false);
    struct outcome c = world_wait_admitted(w, submit_one(w, 1, "c", 1));
    assert_true(a.commit_ts[0] < b.commit_ts[0] && b.commit_ts[0] < c.commit_ts[0]);
    const Searchfabric__V1__GetLaneStateResponse *lane = world_lane(w, 1, arena);
    assert_int_equal(lane->n_open_intents, 3);
    assert_string_equal(lane->open_intents[0]->intent->batch_id, "a");
    assert_string_equal(lane->open_intents[1]->intent->batch_id, "b");
    assert_string_equal(lane->open_intents[2]->intent->batch_id, "c");
    gate_store_hold(w->gate, NULL);
    sf_arena_destroy(arena);
    world_free(w);
}

/* The host's clock an hour ahead and an hour behind: timestamps follow the oracle alone. */
static void test_host_clock_plays_no_part(void **state)
{
    uint64_t seen[3];
    (void)state;
    SF_PROVES("COORD-2-04");
    for (unsigned i = 0; i < 3; i++) {
        struct world *w = world_new();
        w->clock.unix_ms += ((int64_t)i - 1) * 3600 * 1000;
        assert_int_equal(world_open(w), SF_OK);
        struct outcome out = world_put(w, 1, 1, "a", "x");
        assert_int_equal(out.gate, DURABLE);
        seen[i] = out.commit_ts[0];
        world_free(w);
    }
    assert_true(seen[0] == WORLD_TSO0 + 1000 && seen[1] == seen[0] && seen[2] == seen[0]);
}

/* ---- records ------------------------------------------------------------------------------------
 */

/* The value of `key` in `line`, or false. */
static bool value_of(const char *line, const char *key, char *out, size_t size)
{
    char text[64];
    snprintf(text, sizeof(text), " %s=", key);
    const char *at = strstr(line, text);
    if (at == NULL)
        return false;
    at += strlen(text);
    size_t len = strcspn(at, " \n");
    snprintf(out, size, "%.*s", (int)len, at);
    return true;
}

static void expect(const char *line, const char *key, uint64_t value)
{
    char text[64];
    char wanted[32];
    assert_true(value_of(line, key, text, sizeof(text)));
    snprintf(wanted, sizeof(wanted), "%llu", (unsigned long long)value);
    assert_string_equal(text, wanted);
}

/* The way of one batch, over a crash, in its records. */
static void test_records_of_a_batch(void **state)
{
    struct world *w = open_one_shard();
    char path[] = "/tmp/sf-commit-log-XXXXXX";
    int fd = mkstemp(path);
    struct entry entry = {.doc_id = 1, .body = "x"};
    struct batch_spec spec = {
        .collection_id = 4, .batch_id = "traced", .entries = &entry, .count = 1, .first_seq = 77};
    static const char *const events[] = {"slice_dispatched", "slice_durable", "slice_recovered",
                                         "slice_published"};
    unsigned found[4] = {0};
    (void)state;
    SF_PROVES("COORD-10-08", "COORD-10-09");
    assert_true(fd >= 0);
    sf_log_set_level(SF_LOG_DEBUG);
    sf_log_set_fd(fd);
    gate_store_hold(w->gate, "manifest_v");
    struct outcome out = world_wait(w, world_submit(w, &spec));
    (void)world_put(w, 5, 1, "another", "y");
    gate_store_fail(w->gate, "/", SF_ERR_UNAVAILABLE); /* kill -9 */
    gate_store_drop(w->gate);
    world_close(w);
    gate_store_fail(w->gate, NULL, SF_OK);
    assert_int_equal(world_open(w), SF_OK);
    world_settle(w);
    sf_log_set_fd(-1);
    sf_log_set_level(SF_LOG_INFO);
    FILE *log = fdopen(fd, "r");
    char line[4096];
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    while (fgets(line, sizeof(line), log) != NULL) {
        char batch[64];
        if (!value_of(line, "batch_id", batch, sizeof(batch)) || strcmp(batch, "traced") != 0)
            continue;
        for (unsigned i = 0; i < 4; i++)
            found[i] += strstr(line, events[i]) != NULL ? 1 : 0;
        bool recovered = found[2] > 0;
        expect(line, "namespace_id", 7);
        expect(line, "collection_id", 4);
        expect(line, "source_partition", (UINT64_C(1) << 63) | 5);
        expect(line, "source_epoch", 1);
        expect(line, "first_source_seq", 77);
        expect(line, "last_source_seq", 77);
        expect(line, "commit_ts", out.commit_ts[0]);
        expect(line, "coordinator_epoch", out.epoch + (recovered ? 1 : 0));
        expect(line, "lag_ms", 0);
    }
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(found[i], 1); /* ordered, durable; after the crash recovered, published */
    (void)fclose(log);
    (void)unlink(path);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_oracle_slow),
        cmocka_unit_test(test_hot_tier),
        cmocka_unit_test(test_writer_queue),
        cmocka_unit_test(test_one_modality_lags),
        cmocka_unit_test(test_publish_backlog),
        cmocka_unit_test(test_two_connections_one_lane),
        cmocka_unit_test(test_host_clock_plays_no_part),
        cmocka_unit_test(test_records_of_a_batch),
    };
    return SF_RUN_TESTS("commit_signals", tests);
}
