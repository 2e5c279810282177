/* Duplicates, bounds and missing dependencies: every refusal names its reason. */
#include <stdio.h>
#include <stdlib.h>

#include "base/limits.h"
#include "component/commit/commit_world.h"
#include "publish/keys.h"
#include "searchfabric/v1/durable.pb-c.h"

#define DURABLE       SEARCHFABRIC__V1__BATCH_GATE__BATCH_GATE_DURABLE
#define REFUSED(name) SEARCHFABRIC__V1__BATCH_REFUSAL__BATCH_REFUSAL_##name

static void test_duplicates(void **state)
{
    struct world *w = world_new();
    struct entry entry = {.doc_id = 1, .body = "x"};
    struct batch_spec spec = {.collection_id = 1, .batch_id = "a", .entries = &entry, .count = 1};
    struct sf_rows_head head;
    (void)state;
    assert_int_equal(world_open(w), SF_OK);
    gate_store_hold(w->gate, "wal/");
    uint64_t first = world_submit(w, &spec);
    uint64_t second = world_submit(w, &spec);
    gate_store_wait_held(w->gate, 1);
    assert_int_equal(world_look(w, second).gate, 0); /* answered only when the slices stand */
    gate_store_hold(w->gate, NULL);
    struct outcome a = world_wait(w, first);
    struct outcome b = world_wait(w, second);
    assert_false(a.duplicate);
    assert_true(b.duplicate);
    assert_true(a.commit_ts[0] == b.commit_ts[0]);
    struct outcome c = world_wait(w, world_submit(w, &spec));
    assert_true(c.duplicate && c.commit_ts[0] == a.commit_ts[0]);
    spec.fingerprint_of = "something else";
    struct outcome d = world_wait(w, world_submit(w, &spec));
    assert_int_equal(d.refusal, REFUSED(FINGERPRINT_CONFLICT));
    assert_non_null(strstr(d.details, "batch_id=a;"));
    world_settle(w);
    assert_int_equal(world_rows(w, 1, NULL, &head), 1);
    assert_int_equal(head.slices, 1);
    world_free(w);
}

static void known_only(Searchfabric__V1__PlannedBatch *planned)
{
    planned->known_only = true;
}

/* A batch that may only be answered from the window: standing and in flight it is, else nothing
 * happens at all. */
static void test_known_only(void **state)
{
    struct world *w = world_new();
    struct entry entry = {.doc_id = 1, .body = "x", .touched = 3};
    struct entry thin = {.doc_id = 1, .body = "x"}; /* the plan's modalities do not matter */
    struct batch_spec spec = {.collection_id = 1, .batch_id = "a", .entries = &entry, .count = 1};
    struct batch_spec ask = {.collection_id = 1, .batch_id = "a", .entries = &thin, .count = 1};
    struct sf_rows_head head;
    (void)state;
    assert_int_equal(world_open(w), SF_OK);
    uint64_t values = hand_tso_values(&w->tso);
    struct outcome out = world_wait(w, world_submit_with(w, &ask, known_only));
    assert_int_equal(out.refusal, REFUSED(NOT_KNOWN));
    assert_false(out.admitted);
    assert_int_equal(hand_tso_values(&w->tso), values);
    assert_int_equal(gate_store_puts(w->gate, "wal/"), 0);
    /* It left nothing behind: the batch itself is new. */
    gate_store_hold(w->gate, "wal/");
    uint64_t first = world_submit(w, &spec);
    gate_store_wait_held(w->gate, 2);
    uint64_t joined = world_submit_with(w, &ask, known_only);
    assert_true(world_wait_admitted(w, joined).admitted);
    assert_int_equal(world_look(w, joined).gate, 0); /* not durable yet */
    gate_store_hold(w->gate, NULL);
    struct outcome a = world_wait(w, first);
    out = world_wait(w, joined);
    assert_false(a.duplicate);
    assert_int_equal(out.gate, DURABLE);
    assert_true(out.duplicate && out.commit_ts[0] == a.commit_ts[0]);
    world_settle(w);
    out = world_wait(w, world_submit_with(w, &ask, known_only));
    assert_true(out.duplicate && out.slices == 1 && out.commit_ts[0] == a.commit_ts[0]);
    ask.fingerprint_of = "something else";
    out = world_wait(w, world_submit_with(w, &ask, known_only));
    assert_int_equal(out.refusal, REFUSED(FINGERPRINT_CONFLICT));
    /* After a restart the lane is read for the answer. */
    world_close(w);
    assert_int_equal(world_open(w), SF_OK);
    ask.fingerprint_of = NULL;
    out = world_wait(w, world_submit_with(w, &ask, known_only));
    assert_true(out.duplicate && out.commit_ts[0] == a.commit_ts[0]);
    assert_int_equal(world_rows(w, 1, NULL, &head), 1);
    assert_int_equal(head.slices, 1);
    world_free(w);
}

static void test_window(void **state)
{
    struct world *w = world_new();
    struct entry entry = {.doc_id = 1, .body = "x"};
    struct batch_spec spec = {.collection_id = 1, .batch_id = "a", .entries = &entry, .count = 1};
    struct sf_rows_head head;
    (void)state;
    w->deps.duplicate_window_ms = 1000;
    assert_int_equal(world_open(w), SF_OK);
    struct outcome a = world_wait(w, world_submit(w, &spec));
    assert_int_equal(a.gate, DURABLE);
    world_settle(w);
    hand_tso_set(&w->tso, WORLD_TSO0 + (UINT64_C(1001) << 18));
    struct batch_spec other = spec;
    other.batch_id = "b"; /* never seen, first admitted too long ago */
    struct outcome b = world_wait(w, world_submit(w, &other));
    assert_int_equal(b.refusal, REFUSED(DUPLICATE_WINDOW_EXPIRED));
    assert_non_null(strstr(b.details, "field=first_admitted_ts;"));
    other.batch_id = "c"; /* a new one makes the lane forget what is older than the window */
    other.first_admitted_ts = WORLD_TSO0 + (UINT64_C(900) << 18);
    assert_int_equal(world_wait(w, world_submit(w, &other)).gate, DURABLE);
    other.batch_id = "d";
    assert_int_equal(world_wait(w, world_submit(w, &other)).gate, DURABLE);
    struct outcome again = world_wait(w, world_submit(w, &spec));
    assert_int_equal(again.refusal, REFUSED(DUPLICATE_WINDOW_EXPIRED));
    other.batch_id = "e";
    other.first_admitted_ts = WORLD_TSO0 + (UINT64_C(9000) << 18);
    struct outcome ahead = world_wait(w, world_submit(w, &other));
    assert_int_equal(ahead.refusal, REFUSED(INVALID_BATCH));
    world_settle(w);
    assert_int_equal(world_rows(w, 1, NULL, &head), 1);
    assert_int_equal(head.slices, 3); /* a, c, d */
    world_free(w);
}

static void test_oracle_down(void **state)
{
    struct world *w = world_new();
    struct sf_arena *arena = sf_arena_new(1u << 20);
    struct entry entry = {.doc_id = 1, .body = "x"};
    struct batch_spec spec = {.collection_id = 1, .batch_id = "a", .entries = &entry, .count = 1};
    (void)state;
    SF_PROVES("COORD-3-17", "COORD-4.4-01");
    assert_int_equal(world_open(w), SF_OK);
    struct outcome before = world_put(w, 1, 1, "b", "x");
    world_settle(w);
    hand_tso_down(&w->tso, true);
    struct outcome out = world_wait(w, world_submit(w, &spec));
    assert_int_equal(out.refusal, REFUSED(DEPENDENCY_UNAVAILABLE));
    assert_non_null(strstr(out.details, "failing_authority=tso;"));
    const Searchfabric__V1__GetLaneStateResponse *lane = world_lane(w, 1, arena);
    assert_int_equal(lane->n_open_intents, 0);
    assert_true(lane->lane->local_max_commit_ts == before.commit_ts[0]); /* none was invented */
    hand_tso_down(&w->tso, false);
    assert_int_equal(world_wait(w, world_submit(w, &spec)).gate, DURABLE);
    sf_arena_destroy(arena);
    world_free(w);
}

/* A batch that has started waits for the oracle; what stands behind it is not kept waiting. */
static void test_oracle_down_in_a_batch(void **state)
{
    struct world *w = world_new();
    struct entry entries[3] = {
        {.doc_id = 1, .body = "x"}, {.barrier = true}, {.doc_id = 2, .body = "y"}};
    struct batch_spec spec = {.collection_id = 1, .batch_id = "a", .entries = entries, .count = 3};
    struct batch_spec next = {.collection_id = 1, .entries = &entries[2], .count = 1};
    struct sf_commit_stats stats;
    (void)state;
    assert_int_equal(world_open(w), SF_OK);
    gate_store_hold(w->gate, "wal/");
    uint64_t first = world_submit(w, &spec);
    gate_store_wait_held(w->gate, 1);
    next.batch_id = "b";
    uint64_t second = world_submit(w, &next);
    next.batch_id = "c";
    uint64_t third = world_submit(w, &next);
    hand_tso_down(&w->tso, true);
    gate_store_hold(w->gate, NULL);
    assert_int_equal(world_wait(w, second).refusal, REFUSED(DEPENDENCY_UNAVAILABLE));
    assert_int_equal(world_wait(w, third).refusal, REFUSED(DEPENDENCY_UNAVAILABLE));
    assert_int_equal(world_look(w, first).gate, 0);
    hand_tso_down(&w->tso, false);
    assert_int_equal(world_wait(w, first).gate, DURABLE);
    assert_int_equal(world_wait(w, world_submit(w, &next)).gate, DURABLE);
    world_settle(w);
    sf_commit_stats_get(w->commit, &stats);
    assert_int_equal(stats.pending_bytes, 0);
    world_free(w);
}

/* The bound cannot be made durable: nothing above it is released, and nobody waits for ever. */
static void test_leadership_unreachable(void **state)
{
    struct world *w = world_new();
    struct sf_arena *arena = sf_arena_new(1u << 20);
    struct entry entry = {.doc_id = 1, .body = "x"};
    struct batch_spec spec = {.collection_id = 1, .batch_id = "a", .entries = &entry, .count = 1};
    (void)state;
    SF_PROVES("COORD-3-19");
    assert_int_equal(world_open(w), SF_OK);
    struct outcome before = world_put(w, 1, 1, "b", "x");
    world_settle(w);
    gate_store_fail(w->gate, "leader.json", SF_ERR_UNAVAILABLE);
    hand_tso_set(&w->tso, WORLD_TSO0 + (UINT64_C(5000) << 18)); /* past what it may release */
    unsigned wal = gate_store_puts(w->gate, "wal/");
    for (unsigned i = 0; i < 3; i++) {
        struct outcome out = world_wait(w, world_submit(w, &spec));
        assert_int_equal(out.refusal, REFUSED(DEPENDENCY_UNAVAILABLE));
        assert_non_null(strstr(out.details, "failing_authority=object_store;"));
    }
    const Searchfabric__V1__GetLaneStateResponse *lane = world_lane(w, 1, arena);
    assert_int_equal(lane->n_open_intents, 0);
    assert_true(lane->lane->local_max_commit_ts == before.commit_ts[0]);
    assert_int_equal(gate_store_puts(w->gate, "wal/"), wal);
    gate_store_fail(w->gate, NULL, SF_OK);
    for (struct outcome out = {0}; out.gate != DURABLE;)
        out = world_wait(w, world_submit(w, &spec));
    sf_arena_destroy(arena);
    world_free(w);
}

static void test_lane_not_readable(void **state)
{
    struct world *w = world_new();
    struct entry entry = {.doc_id = 1, .body = "x"};
    struct batch_spec spec = {.collection_id = 1, .batch_id = "a", .entries = &entry, .count = 1};
    (void)state;
    SF_PROVES("COORD-3-18");
    w->deps.shard_count = 1;
    assert_int_equal(world_open(w), SF_OK);
    gate_store_fail_gets(w->gate, "/7/1/manifest_committed_head");
    struct outcome out = world_wait(w, world_submit(w, &spec));
    assert_int_equal(out.refusal, REFUSED(DEPENDENCY_UNAVAILABLE));
    assert_non_null(strstr(out.details, "failing_authority=lane_state;"));
    assert_int_equal(world_put(w, 2, 1, "b", "y").gate, DURABLE); /* other lanes go on */
    gate_store_fail_gets(w->gate, NULL);
    assert_int_equal(world_wait(w, world_submit(w, &spec)).gate, DURABLE);
    world_free(w);
}

static void expect_overloaded(const struct outcome *out, const char *dimension)
{
    char text[64];
    assert_int_equal(out->refusal, REFUSED(OVERLOADED));
    snprintf(text, sizeof(text), "throttled_dimension=%s;", dimension);
    assert_non_null(strstr(out->details, text));
    assert_non_null(strstr(out->details, "retry_after_ms="));
    assert_non_null(strstr(out->details, "server_limit="));
    assert_null(strstr(out->details, "=;")); /* none is empty */
}

/* With the writers stopped, what is admitted stays within its bound and the rest is refused. */
static void test_writers_stopped(void **state)
{
    struct world *w = world_new();
    struct entry entry = {.doc_id = 1};
    char body[2001];
    struct sf_commit_stats stats;
    unsigned refused = 0;
    uint64_t ids[40];
    (void)state;
    SF_PROVES("COORD-9-04", "COORD-6.2-06", "COORD-6.1-07");
    memset(body, 'x', 2000);
    body[2000] = '\0';
    entry.body = body;
    w->deps.shard_count = 1;
    w->deps.shard_pending_bytes = 20000;
    assert_int_equal(world_open(w), SF_OK);
    gate_store_hold(w->gate, "wal/");
    for (unsigned i = 0; i < 40; i++) {
        char batch[16];
        snprintf(batch, sizeof(batch), "b%u", i);
        ids[i] = world_submit(
            w, &(struct batch_spec){
                   .collection_id = 1, .batch_id = batch, .entries = &entry, .count = 1});
        struct outcome out = world_wait_admitted(w, ids[i]);
        if (out.refusal != 0) {
            expect_overloaded(&out, "wal_bytes");
            refused++;
        }
        sf_commit_stats_get(w->commit, &stats);
        assert_true(stats.pending_bytes <= 20000 + 2600);
    }
    assert_true(refused >= 28);
    gate_store_hold(w->gate, NULL);
    for (unsigned i = 0; i < 40; i++) {
        struct outcome out = world_wait(w, ids[i]);
        assert_true(out.gate == DURABLE || out.refusal == REFUSED(OVERLOADED));
    }
    world_settle(w);
    sf_commit_stats_get(w->commit, &stats);
    assert_int_equal(stats.pending_bytes, 0);
    assert_int_equal(world_put(w, 1, 2, "after", "x").gate, DURABLE);
    world_free(w);
}

static void test_lane_queue_full(void **state)
{
    struct world *w = world_new();
    struct entry entries[2] = {{.barrier = true}, {.doc_id = 1, .body = "x"}};
    struct entry row = {.doc_id = 2, .body = "y"};
    (void)state;
    w->deps.lane_queue_batches = 2;
    assert_int_equal(world_open(w), SF_OK);
    gate_store_hold(w->gate, "wal/");
    (void)world_wait_admitted(
        w, world_submit(w, &(struct batch_spec){
                               .collection_id = 1, .batch_id = "a", .entries = &row, .count = 1}));
    /* held by the barrier: the queue fills up */
    uint64_t b = world_submit(
        w,
        &(struct batch_spec){.collection_id = 1, .batch_id = "b", .entries = entries, .count = 2});
    uint64_t c = world_submit(
        w, &(struct batch_spec){.collection_id = 1, .batch_id = "c", .entries = &row, .count = 1});
    struct outcome d = world_wait(
        w, world_submit(w, &(struct batch_spec){
                               .collection_id = 1, .batch_id = "d", .entries = &row, .count = 1}));
    expect_overloaded(&d, "lane_queue");
    gate_store_hold(w->gate, NULL);
    assert_int_equal(world_wait(w, b).gate, DURABLE);
    assert_int_equal(world_wait(w, c).gate, DURABLE);
    world_free(w);
}

static void test_hot_lanes_full(void **state)
{
    struct world *w = world_new();
    (void)state;
    w->deps.shard_count = 1;
    w->deps.shard_lanes = 2;
    assert_int_equal(world_open(w), SF_OK);
    (void)world_put(w, 1, 1, "a", "x");
    (void)world_put(w, 2, 1, "a", "x");
    struct outcome out = world_put(w, 3, 1, "a", "x"); /* both are within the window */
    expect_overloaded(&out, "hot_lanes");
    world_free(w);
}

/* What is remembered is bounded; what left the window makes room. */
static void test_duplicate_window_full(void **state)
{
    struct world *w = world_new();
    struct entry entry = {.doc_id = 1, .body = "x"};
    struct batch_spec spec = {.collection_id = 1, .batch_id = "d", .entries = &entry, .count = 1};
    (void)state;
    w->deps.shard_count = 1;
    w->deps.shard_duplicates = 3;
    w->deps.duplicate_window_ms = 1000;
    assert_int_equal(world_open(w), SF_OK);
    (void)world_put(w, 1, 1, "a", "x");
    (void)world_put(w, 1, 1, "b", "x");
    (void)world_put(w, 2, 1, "c", "x");
    struct outcome out = world_wait(w, world_submit(w, &spec));
    expect_overloaded(&out, "duplicate_window");
    assert_true(world_put(w, 1, 1, "a", "x").duplicate); /* what is remembered is answered */
    world_settle(w);
    hand_tso_set(&w->tso, WORLD_TSO0 + (UINT64_C(5000) << 18));
    struct entry mark = {.barrier = true};
    struct batch_spec other = {.collection_id = 3, .batch_id = "m", .entries = &mark, .count = 1};
    assert_int_equal(world_wait(w, world_submit(w, &other)).gate, DURABLE); /* needs no entry */
    world_free(w);
}

/* A lane that left memory comes back from the manifest with the same state. */
static void test_eviction(void **state)
{
    struct world *w = world_new();
    struct sf_arena *arena = sf_arena_new(1u << 20);
    struct sf_commit_stats stats;
    (void)state;
    w->deps.shard_count = 1;
    SF_PROVES("COORD-5.2-08");
    w->deps.lane_idle_ms = 1;
    w->clock.unix_ms += 16 * 60 * 1000; /* what was admitted at WORLD_TSO0 is out of the window */
    assert_int_equal(world_open(w), SF_OK);
    struct outcome out = world_put(w, 1, 1, "a", "x");
    world_settle(w);
    uint64_t safe = world_watermarks(w, 1, arena)->safe_ts;
    do {
        sf_commit_stats_get(w->commit, &stats);
    } while (stats.lanes > 0); /* the sweep takes it out */
    unsigned heads = gate_store_gets(w->gate, "manifest_committed_head");
    unsigned manifests = gate_store_gets(w->gate, "manifest_v");
    unsigned requests = gate_store_requests(w->gate);
    assert_true(world_watermarks(w, 1, arena)->safe_ts == safe);
    assert_int_equal(gate_store_gets(w->gate, "manifest_committed_head"), heads + 1);
    assert_int_equal(gate_store_gets(w->gate, "manifest_v"), manifests + 1);
    assert_int_equal(gate_store_requests(w->gate), requests + 2); /* nothing else is read */
    struct outcome again = world_put(w, 1, 1, "a", "x");
    assert_true(again.duplicate && again.commit_ts[0] == out.commit_ts[0]);
    assert_true(world_put(w, 1, 2, "b", "y").commit_ts[0] > out.commit_ts[0]);
    sf_arena_destroy(arena);
    world_free(w);
}

/* Nothing to do, nothing asked. */
static void test_idle_costs_nothing(void **state)
{
    struct world *w = world_new();
    struct sf_commit_stats stats;
    (void)state;
    assert_int_equal(world_open(w), SF_OK);
    for (unsigned i = 1; i < 20; i++)
        (void)world_put(w, i, 1, "a", "x");
    world_settle(w);
    unsigned requests = gate_store_requests(w->gate);
    unsigned tso = hand_tso_requests(&w->tso);
    int64_t until = sf_clock_mono_ms(sf_clock_system()) + 1500; /* longer than any timer of it */
    while (sf_clock_mono_ms(sf_clock_system()) < until)
        sf_commit_stats_get(w->commit, &stats);
    assert_int_equal(gate_store_requests(w->gate), requests);
    assert_int_equal(hand_tso_requests(&w->tso), tso);
    world_free(w);
}

/* 1000 lanes with one write each: the oracle is asked by shard, not by lane. */
static void test_oracle_demand_gathers(void **state)
{
    enum { N = 1000 };
    struct world *w = world_new();
    struct entry entry = {.doc_id = 1, .body = "x"};
    uint64_t *ids = calloc(N, sizeof(*ids));
    (void)state;
    SF_PROVES("COORD-9-03");
    w->deps.shard_count = 1;
    assert_int_equal(world_open(w), SF_OK);
    hand_tso_hold(&w->tso);
    for (unsigned i = 0; i < N; i++)
        ids[i] = world_submit(
            w, &(struct batch_spec){
                   .collection_id = 1 + i, .batch_id = "a", .entries = &entry, .count = 1});
    for (struct sf_commit_stats stats = {0}; stats.queued_batches < N;)
        sf_commit_stats_get(w->commit, &stats);
    hand_tso_release(&w->tso);
    for (unsigned i = 0; i < N; i++)
        assert_int_equal(world_wait(w, ids[i]).gate, DURABLE);
    assert_true(hand_tso_requests(&w->tso) <= 10);
    free(ids);
    world_free(w);
}

/* More ready slices than one manifest takes: the first publish of them promises nothing that it
 * does not hold. */
static void test_publish_in_parts(void **state)
{
    enum { N = SF_LIMIT_MANIFEST_SLICES + 300 };
    struct world *w = world_new();
    struct sf_arena *arena = sf_arena_new(64u << 20);
    struct entry entry = {.doc_id = 1, .body = "x"};
    struct sf_rows_head head;
    struct sf_commit_stats stats = {0};
    ProtobufCMessage *message = NULL;
    struct sf_buf key = {0};
    uint64_t last = 0;
    (void)state;
    assert_int_equal(world_open(w), SF_OK);
    gate_store_hold(w->gate, "manifest_v");
    for (unsigned i = 0; i <= N; i++) {
        char batch[16];
        snprintf(batch, sizeof(batch), "b%u", i);
        uint64_t id = world_submit(
            w, &(struct batch_spec){
                   .collection_id = 1, .batch_id = batch, .entries = &entry, .count = 1});
        last = world_wait(w, id).commit_ts[0];
        if (i == 0)
            gate_store_wait_held(w->gate, 1); /* the publish of the first alone is under way */
    }
    sf_commit_stats_get(w->commit, &stats);
    assert_int_equal(stats.unpublished, N + 1);
    gate_store_hold(w->gate, NULL);
    world_settle(w);
    assert_int_equal(world_rows(w, 1, NULL, &head), 1);
    assert_int_equal(head.slices, N + 1);
    assert_int_equal(head.manifest_version, 3);
    assert_true(head.safe_ts.v == last);
    sf_manifest_key(&key, (struct sf_collection_ref){{7}, {1}}, 2);
    assert_int_equal(sf_durable_read_wait(w->memory, NULL, sf_buf_view(&key),
                                          &searchfabric__v1__collection_manifest_object__descriptor,
                                          arena, NULL, &message, NULL),
                     SF_OK);
    const Searchfabric__V1__CollectionManifestObject *second = (const void *)message;
    assert_true(second->safe_ts == last - 300); /* timestamps of this oracle are dense */
    assert_true(second->watermarks->applied_ts_metadata_search == last - 300);
    sf_buf_fini(&key);
    sf_arena_destroy(arena);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_duplicates),
        cmocka_unit_test(test_known_only),
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_oracle_down),
        cmocka_unit_test(test_oracle_down_in_a_batch),
        cmocka_unit_test(test_leadership_unreachable),
        cmocka_unit_test(test_lane_not_readable),
        cmocka_unit_test(test_writers_stopped),
        cmocka_unit_test(test_lane_queue_full),
        cmocka_unit_test(test_hot_lanes_full),
        cmocka_unit_test(test_duplicate_window_full),
        cmocka_unit_test(test_eviction),
        cmocka_unit_test(test_idle_costs_nothing),
        cmocka_unit_test(test_oracle_demand_gathers),
        cmocka_unit_test(test_publish_in_parts),
    };
    return SF_RUN_TESTS("commit_limits", tests);
}
