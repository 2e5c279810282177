/* Leadership, crashes and restarts: what a new leader finds and what an old one can no longer do.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "component/commit/commit_world.h"
#include "publish/keys.h"
#include "publish/wal_chunk.h"

#define DURABLE       SEARCHFABRIC__V1__BATCH_GATE__BATCH_GATE_DURABLE
#define VISIBLE       SEARCHFABRIC__V1__BATCH_GATE__BATCH_GATE_VISIBLE
#define REFUSED(name) SEARCHFABRIC__V1__BATCH_REFUSAL__BATCH_REFUSAL_##name

/* Lets a test wait without the clock: until the oracle has passed what the leader before issued. */
static void pass_bound(struct world *w)
{
    pthread_mutex_lock(&w->tso.mu);
    uint64_t next = w->tso.next + (UINT64_C(600) << 18);
    pthread_mutex_unlock(&w->tso.mu);
    hand_tso_set(&w->tso, next);
}

/* kill -9: nothing that is held or under way reaches the store. */
static void crash(struct world *w)
{
    gate_store_fail(w->gate, "/", SF_ERR_UNAVAILABLE);
    gate_store_drop(w->gate);
    world_close(w);
    gate_store_fail(w->gate, NULL, SF_OK);
}

static void test_restart_keeps_everything(void **state)
{
    struct world *w = world_new();
    struct sf_arena *arena = sf_arena_new(1u << 20);
    struct sf_commit_stats stats;
    (void)state;
    SF_PROVES("COORD-2-02", "COORD-2-08", "COORD-5.2-07", "COORD-7.1-03", "COORD-10-07");
    assert_int_equal(world_open(w), SF_OK);
    struct outcome first = world_put(w, 1, 1, "a", "x");
    struct outcome second = world_put(w, 1, 2, "b", "y");
    world_settle(w);
    uint64_t safe = world_watermarks(w, 1, arena)->safe_ts;
    uint64_t local_max = world_watermarks(w, 1, arena)->local_max_commit_ts;
    crash(w);
    pass_bound(w);
    assert_int_equal(world_open(w), SF_OK);
    const Searchfabric__V1__GetCollectionWatermarksResponse *marks = world_watermarks(w, 1, arena);
    assert_true(marks->safe_ts == safe && marks->local_max_commit_ts == local_max);
    assert_true(marks->coordinator_epoch == first.epoch + 1);
    struct outcome again = world_put(w, 1, 1, "a", "x");
    assert_true(again.duplicate);
    assert_true(again.commit_ts[0] == first.commit_ts[0]);
    struct outcome third = world_put(w, 1, 3, "c", "z");
    assert_true(third.commit_ts[0] > second.commit_ts[0]);
    assert_true(third.epoch == first.epoch + 1);
    world_settle(w);
    assert_int_equal(world_rows(w, 1, NULL, NULL), 3);
    sf_commit_stats_get(w->commit, &stats);
    assert_int_equal(stats.shards_leading, 4);
    static const char *const none[] = {NULL};
    assert_int_equal(
        sf_metric_value(sf_metric_series(
            sf_metrics_family(w->metrics, SF_METRIC_COUNTER,
                              "searchfabric_commit_coordinator_leader_epoch_changes_total", "",
                              none),
            none)),
        8); /* four shards, claimed twice */
    assert_int_equal(sf_metric_value(sf_metric_series(
                         sf_metrics_family(w->metrics, SF_METRIC_HISTOGRAM,
                                           "searchfabric_commit_coordinator_recovery_ms", "", none),
                         none)),
                     2);
    sf_arena_destroy(arena);
    world_free(w);
}

/* Durable, not published, then a crash; and another before it is published. */
static void test_unpublished_survives(void **state)
{
    struct world *w = world_new();
    struct sf_arena *arena = sf_arena_new(1u << 20);
    struct sf_buf rows = {0};
    struct sf_rows_head head;
    struct sf_commit_stats stats;
    (void)state;
    SF_PROVES("COORD-4.3-01", "COORD-7.2-05", "COORD-7.3-03", "COORD-7.3-04", "COORD-7.4-03",
              "COORD-8-07");
    assert_int_equal(world_open(w), SF_OK);
    struct outcome seen = world_put(w, 3, 1, "other", "o"); /* published before the crash */
    world_settle(w);
    gate_store_hold(w->gate, "manifest_v");
    struct outcome out = world_put(w, 1, 1, "a", "x");
    struct outcome out2 = world_put(w, 1, 2, "b", "y");
    assert_int_equal(out.gate, DURABLE);
    assert_int_equal(world_rows(w, 1, NULL, NULL), 0);
    for (unsigned n = 0; n < 2; n++) { /* the same window is replayed twice */
        crash(w);
        pass_bound(w);
        gate_store_hold(w->gate, "manifest_v");
        assert_int_equal(world_open(w), SF_OK);
        sf_commit_stats_get(w->commit, &stats);
        const Searchfabric__V1__GetLaneStateResponse *lane = world_lane(w, 1, arena);
        assert_int_equal(lane->n_open_intents, 2);
        assert_string_equal(lane->open_intents[0]->intent->batch_id, "a");
        assert_string_not_equal(lane->open_intents[0]->intent->write_intent_id,
                                lane->open_intents[1]->intent->write_intent_id);
        assert_true(lane->open_intents[0]->intent->commit_ts == out.commit_ts[0]);
        assert_true(lane->open_intents[0]->intent->coordinator_epoch == out.epoch);
        assert_true(lane->lane->local_max_commit_ts == out2.commit_ts[0]);
        assert_int_equal(world_rows(w, 1, NULL, NULL), 0);
    }
    gate_store_hold(w->gate, NULL);
    world_settle(w);
    assert_int_equal(world_rows(w, 1, &rows, &head), 2);
    assert_string_equal((const char *)rows.data, "1=x\n2=y\n");
    assert_int_equal(head.slices, 2); /* once each */
    assert_true(head.safe_ts.v == out2.commit_ts[0]);
    struct outcome again = world_put(w, 1, 1, "a", "x");
    assert_true(again.duplicate && again.commit_ts[0] == out.commit_ts[0]);
    again = world_put(w, 3, 1, "other", "o");
    assert_true(again.duplicate && again.commit_ts[0] == seen.commit_ts[0]);
    sf_buf_fini(&rows);
    sf_arena_destroy(arena);
    world_free(w);
}

static void known_only(Searchfabric__V1__PlannedBatch *planned)
{
    planned->known_only = true;
}

/* What only its window may answer and does not stand whole is refused, and nothing of it is run. */
static void check_not_known(struct world *w, const struct batch_spec *spec)
{
    uint64_t values = hand_tso_values(&w->tso);
    unsigned chunks = gate_store_puts(w->gate, "wal/");
    unsigned rows = world_rows(w, spec->collection_id, NULL, NULL);
    struct outcome out = world_wait(w, world_submit_with(w, spec, known_only));
    assert_int_equal(out.refusal, REFUSED(NOT_KNOWN));
    assert_false(out.admitted);
    assert_int_equal(hand_tso_values(&w->tso), values);
    assert_int_equal(gate_store_puts(w->gate, "wal/"), chunks);
    assert_int_equal(world_rows(w, spec->collection_id, NULL, NULL), rows);
}

/* A mixed slice of which one modality's chunk stood: void, and its redelivery runs as new. */
static void test_half_durable_is_void(void **state)
{
    struct world *w = world_new();
    struct entry mixed = {.doc_id = 1, .body = "x", .touched = 3};
    struct batch_spec spec = {.collection_id = 1, .batch_id = "a", .entries = &mixed, .count = 1};
    struct sf_rows_head head;
    struct sf_commit_stats stats;
    (void)state;
    assert_int_equal(world_open(w), SF_OK);
    gate_store_hold(w->gate, "wal/semantic");
    uint64_t id = world_submit(w, &spec);
    struct outcome open = world_wait_admitted(w, id);
    gate_store_wait_held(w->gate, 1);
    (void)world_put(w, 1, 2, "b", "y"); /* same metadata stream, behind it */
    crash(w);
    pass_bound(w);
    assert_int_equal(world_open(w), SF_OK);
    sf_commit_stats_get(w->commit, &stats);
    assert_int_equal(stats.recovered_slices, 1);
    world_settle(w);
    assert_int_equal(world_rows(w, 1, NULL, &head), 1);
    assert_true(head.safe_ts.v > open.commit_ts[0]); /* it holds nothing back */
    check_not_known(w, &spec);
    struct outcome again = world_wait(w, world_submit(w, &spec));
    assert_int_equal(again.gate, DURABLE);
    assert_false(again.duplicate);
    assert_true(again.commit_ts[0] > head.safe_ts.v);
    world_settle(w);
    assert_int_equal(world_rows(w, 1, NULL, NULL), 2);
    world_free(w);
}

/* Two slices of a batch, a crash between them: the redelivery runs the missing one. */
static void test_missing_slices_are_run(void **state)
{
    struct world *w = world_new();
    struct entry entries[3] = {
        {.doc_id = 1, .body = "x"}, {.barrier = true}, {.doc_id = 2, .body = "y", .touched = 2}};
    struct batch_spec spec = {.collection_id = 1, .batch_id = "a", .entries = entries, .count = 3};
    struct sf_rows_head head;
    (void)state;
    assert_int_equal(world_open(w), SF_OK);
    gate_store_hold(w->gate, "wal/semantic");
    uint64_t id = world_submit(w, &spec);
    gate_store_wait_held(w->gate, 1);
    uint64_t first_ts = world_wait_admitted(w, id).commit_ts[0];
    crash(w);
    pass_bound(w);
    assert_int_equal(world_open(w), SF_OK);
    world_settle(w);
    assert_int_equal(world_rows(w, 1, NULL, &head), 1);
    check_not_known(w, &spec);
    struct outcome out = world_wait(w, world_submit(w, &spec));
    assert_int_equal(out.gate, DURABLE);
    assert_int_equal(out.slices, 2);
    assert_true(out.commit_ts[0] == first_ts);
    assert_true(out.commit_ts[1] > head.safe_ts.v);
    world_settle(w);
    assert_int_equal(world_rows(w, 1, NULL, &head), 2);
    assert_int_equal(head.slices, 2);
    world_free(w);
}

/* An oracle that stands still in one millisecond: what the first leader made up by local_max + 1 is
 * never given out again; the new leader waits until the oracle has passed its bound. */
static void test_no_timestamp_twice(void **state)
{
    struct world *w = world_new();
    uint64_t issued[5];
    (void)state;
    SF_PROVES("COORD-7.1-06");
    w->tso.frozen = true;
    assert_int_equal(world_open(w), SF_OK);
    for (unsigned i = 0; i < 5; i++) {
        char batch[16];
        snprintf(batch, sizeof(batch), "b%u", i);
        issued[i] = world_put(w, 1, i, batch, "x").commit_ts[0];
        assert_true(i == 0 || issued[i] == issued[i - 1] + 1);
    }
    crash(w);
    assert_int_equal(world_open(w), SF_OK);
    struct entry entry = {.doc_id = 9, .body = "z"};
    uint64_t id = world_submit(
        w,
        &(struct batch_spec){.collection_id = 1, .batch_id = "n", .entries = &entry, .count = 1});
    unsigned asked = hand_tso_requests(&w->tso);
    while (hand_tso_requests(&w->tso) <
           asked + 3) /* it asks again and again, and assigns nothing */
        ;
    assert_false(world_look(w, id).admitted);
    pass_bound(w);
    struct outcome out = world_wait(w, id);
    assert_int_equal(out.gate, DURABLE);
    assert_true(out.commit_ts[0] > issued[4]);
    world_free(w);
}

/* Two owners of one store. */
static void test_two_owners(void **state)
{
    struct world *w = world_new();
    struct sf_commit *first;
    struct sf_commit_stats stats;
    struct entry entry = {.doc_id = 5, .body = "late"};
    struct batch_spec spec = {
        .collection_id = 1, .batch_id = "late", .entries = &entry, .count = 1};
    struct sf_commit *second = NULL;
    struct sf_diag diag;
    (void)state;
    SF_PROVES("COORD-7.1-01");
    assert_int_equal(world_open(w), SF_OK);
    struct outcome before = world_put(w, 1, 1, "a", "x");
    world_settle(w);
    first = w->commit;
    struct sf_commit_deps deps = w->deps;
    struct sf_attempts attempts;
    sf_attempts_init(&attempts, 77);
    deps.attempts = &attempts;
    deps.owner_id = "node-b";
    sf_diag_init(&diag);
    assert_int_equal(sf_commit_open(&deps, NULL, &diag, &second), SF_OK);
    sf_commit_stats_get(second, &stats);
    assert_int_equal(stats.max_epoch, before.epoch + 1);
    assert_int_equal(stats.shards_leading, 4);
    /* the old one: nothing it still does becomes durable, and it says so */
    struct outcome out = world_wait(w, world_submit(w, &spec));
    assert_int_equal(out.gate, 0);
    assert_true(out.refusal == REFUSED(OUTCOME_UNKNOWN) || out.refusal == REFUSED(NOT_LEADER));
    spec.batch_id = "later";
    out = world_wait(w, world_submit(w, &spec));
    assert_int_equal(out.refusal, REFUSED(NOT_LEADER));
    sf_commit_stats_get(first, &stats);
    assert_int_equal(stats.shards_leading, 3);
    assert_int_equal(world_rows(w, 1, NULL, NULL), 1);
    sf_commit_close(second, NULL);
    world_free(w);
}

/* A valid chunk above a gap of an old stream has no effect: the seal goes into the gap. */
static void test_above_the_seal_is_void(void **state)
{
    struct world *w = world_new();
    struct sf_buf key = {0};
    struct sf_buf body = {0};
    struct sf_rows_head head;
    struct sf_commit_stats stats;
    (void)state;
    SF_PROVES("COORD-7.2-04");
    w->deps.shard_count = 1;
    assert_int_equal(world_open(w), SF_OK);
    struct outcome out = world_put(w, 1, 1, "a", "x");
    world_settle(w);
    crash(w);
    /* the chunk of another number: its own header says so, so it is built anew */
    Searchfabric__V1__WalChunkHeader header = SEARCHFABRIC__V1__WAL_CHUNK_HEADER__INIT;
    Searchfabric__V1__WalFrame frame = SEARCHFABRIC__V1__WAL_FRAME__INIT;
    Searchfabric__V1__WriteIntent intent = SEARCHFABRIC__V1__WRITE_INTENT__INIT;
    Searchfabric__V1__CollectionRef ref = SEARCHFABRIC__V1__COLLECTION_REF__INIT;
    Searchfabric__V1__Modality metadata = SEARCHFABRIC__V1__MODALITY__MODALITY_METADATA_SEARCH;
    struct sf_wal_place place;
    char id[SF_SHA256_HEX_BYTES];
    sf_sha256_hex(sf_view_str("orphan"), id);
    header.format_version = 1;
    header.attempt_id = (char *)(uintptr_t) "z-1";
    header.modality = metadata;
    header.writer_mode = SEARCHFABRIC__V1__WRITER_MODE__WRITER_MODE_STREAM;
    header.chunk_epoch = out.epoch;
    header.chunk_seq = 2;
    ref.namespace_id = 7;
    ref.collection_id = 1;
    frame.kind = SEARCHFABRIC__V1__WAL_FRAME_KIND__WAL_FRAME_KIND_ROWS;
    frame.coordinator_epoch = out.epoch;
    frame.intent = &intent;
    intent.write_intent_id = id;
    intent.collection = &ref;
    intent.batch_id = intent.stream_identity = (char *)(uintptr_t) "orphan";
    intent.commit_ts = out.commit_ts[0] + 1;
    intent.touched_modalities = &metadata;
    intent.n_touched_modalities = 1;
    intent.slice_count = 1;
    sf_wal_chunk_begin(&body, &header);
    sf_wal_chunk_add(&body, &frame, &place);
    sf_wal_chunk_end(&body, 1);
    sf_wal_chunk_key(&key, 0, 0, out.epoch, 2); /* 0 stands, 1 is the gap */
    struct sf_put put = {
        .key = sf_buf_view(&key), .body = sf_buf_view(&body), .cond = SF_PUT_ABSENT};
    assert_int_equal(sf_store_put_wait(w->memory, NULL, &put), SF_OK);
    pass_bound(w);
    assert_int_equal(world_open(w), SF_OK);
    world_settle(w);
    sf_commit_stats_get(w->commit, &stats);
    assert_int_equal(stats.recovered_slices, 1); /* the published one, known by its identity */
    assert_int_equal(world_rows(w, 1, NULL, &head), 1);
    assert_int_equal(head.slices, 1);
    assert_true(head.safe_ts.v == out.commit_ts[0]);
    struct outcome next = world_put(w, 1, 2, "b", "y");
    world_settle(w);
    assert_int_equal(world_rows(w, 1, NULL, &head), 2);
    assert_int_equal(head.slices, 2);
    assert_true(next.commit_ts[0] > out.commit_ts[0]);
    sf_buf_fini(&key);
    sf_buf_fini(&body);
    world_free(w);
}

/* An orphan manifest with higher watermarks is nobody's truth. */
static void test_planted_manifest(void **state)
{
    struct world *w = world_new();
    struct sf_arena *arena = sf_arena_new(1u << 20);
    struct sf_buf key = {0};
    struct sf_buf body = {0};
    Searchfabric__V1__CollectionManifestObject object =
        SEARCHFABRIC__V1__COLLECTION_MANIFEST_OBJECT__INIT;
    struct sf_rows_head head;
    (void)state;
    SF_PROVES("COORD-5.2-09");
    assert_int_equal(world_open(w), SF_OK);
    struct outcome out = world_put(w, 1, 1, "a", "x");
    world_settle(w);
    object.attempt_id = (char *)(uintptr_t) "planted-1";
    object.manifest_version = 2;
    object.safe_ts = object.local_max_commit_ts = UINT64_C(1) << 62;
    sf_durable_encode(&object.base, &body, NULL);
    sf_manifest_key(&key, (struct sf_collection_ref){{7}, {1}}, 2);
    struct sf_put put = {
        .key = sf_buf_view(&key), .body = sf_buf_view(&body), .cond = SF_PUT_ABSENT};
    assert_int_equal(sf_store_put_wait(w->memory, NULL, &put), SF_OK);
    crash(w);
    pass_bound(w);
    assert_int_equal(world_open(w), SF_OK);
    assert_true(world_watermarks(w, 1, arena)->safe_ts == out.commit_ts[0]);
    (void)world_put(w, 1, 2, "b", "y");
    world_settle(w);
    assert_int_equal(world_rows(w, 1, NULL, &head), 2);
    assert_int_equal(head.manifest_version, 3); /* the taken number is passed over */
    assert_true(head.safe_ts.v < object.safe_ts);
    sf_buf_fini(&key);
    sf_buf_fini(&body);
    sf_arena_destroy(arena);
    world_free(w);
}

/* The coordinator keeps nothing of its own but the fence of each shard. */
static void expect_only_known_objects(struct world *w)
{
    struct sf_arena *arena = sf_arena_new(4u << 20);
    struct sf_list_entry *entries = NULL;
    size_t count = 0;
    unsigned leaders = 0;
    assert_int_equal(sf_store_list_wait(w->memory, NULL, (struct sf_view){0}, (struct sf_view){0},
                                        1000, arena, &entries, &count),
                     SF_OK);
    assert_true(count < 1000);
    for (size_t i = 0; i < count; i++) {
        const char *key = sf_arena_str(arena, entries[i].key);
        if (strncmp(key, "coordinator/shard=", 18) == 0 && strstr(key, "/leader.json") != NULL)
            leaders++;
        else
            assert_true(strncmp(key, "wal/", 4) == 0 || strncmp(key, "manifests/", 10) == 0 ||
                        strstr(key, "/manifest_committed_head.json") != NULL);
    }
    assert_int_equal(leaders, 4);
    sf_arena_destroy(arena);
}

/* Drained: the next start reads no WAL and opens no lane, however many collections there are. */
static void test_drained_restart_is_lean(void **state)
{
    struct world *w = world_new();
    struct sf_commit_stats stats;
    (void)state;
    SF_PROVES("COORD-2-11", "COORD-7.3-01", "COORD-7.3-05");
    assert_int_equal(world_open(w), SF_OK);
    for (unsigned i = 1; i <= 60; i++)
        (void)world_put(w, i, 1, "a", "x");
    assert_int_equal(sf_commit_drain(w->commit, NULL, 10000), SF_OK);
    struct outcome out = world_put(w, 1, 2, "b", "y");
    assert_int_equal(out.refusal, REFUSED(NOT_LEADER)); /* draining */
    world_close(w);
    expect_only_known_objects(w);
    unsigned manifests = gate_store_gets(w->gate, "manifest");
    unsigned wal = gate_store_gets(w->gate, "wal/");
    pass_bound(w);
    assert_int_equal(world_open(w), SF_OK);
    sf_commit_stats_get(w->commit, &stats);
    assert_int_equal(stats.lanes, 0);
    assert_int_equal(stats.recovered_chunks, 0);
    assert_int_equal(gate_store_gets(w->gate, "manifest"), manifests);
    assert_int_equal(gate_store_gets(w->gate, "wal/"),
                     wal + 16); /* one look a stream, to seal it */
    /* first traffic loads one lane, once */
    struct entry entry = {.doc_id = 3, .body = "z"};
    uint64_t ids[8];
    unsigned heads = gate_store_gets(w->gate, "manifest_committed_head");
    for (unsigned i = 0; i < 8; i++) {
        char batch[16];
        snprintf(batch, sizeof(batch), "n%u", i);
        ids[i] = world_submit(
            w, &(struct batch_spec){
                   .collection_id = 5, .batch_id = batch, .entries = &entry, .count = 1});
    }
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(world_wait(w, ids[i]).gate, DURABLE);
    assert_int_equal(gate_store_gets(w->gate, "manifest_committed_head"), heads + 1);
    world_free(w);
}

/* A shard whose leader.json cannot be read claims nothing further. */
static void test_no_step_without_leader(void **state)
{
    struct world *w = world_new();
    struct sf_commit *commit = NULL;
    struct sf_diag diag;
    (void)state;
    SF_PROVES("COORD-7.3-02");
    gate_store_fail_gets(w->gate, "leader.json");
    sf_diag_init(&diag);
    assert_int_equal(sf_commit_open(&w->deps, NULL, &diag, &commit), SF_ERR_UNAVAILABLE);
    assert_int_equal(gate_store_gets(w->gate, "wal/"), 0);
    assert_int_equal(gate_store_puts(w->gate, ""), 0);
    gate_store_fail_gets(w->gate, NULL);
    assert_int_equal(world_open(w), SF_OK);
    world_free(w);
}

static void test_visible_waits_across_leaders(void **state)
{
    struct world *w = world_new();
    struct entry entry = {.doc_id = 1, .body = "x"};
    struct batch_spec spec = {
        .collection_id = 1, .batch_id = "a", .entries = &entry, .count = 1, .visible = true};
    (void)state;
    SF_PROVES("COORD-7.4-04");
    assert_int_equal(world_open(w), SF_OK);
    gate_store_hold(w->gate, "manifest_v");
    uint64_t id = world_submit(w, &spec);
    struct outcome open = world_wait_admitted(w, id);
    gate_store_wait_held(w->gate, 1);
    assert_int_equal(world_look(w, id).gate, 0);
    crash(w);
    pass_bound(w);
    gate_store_hold(w->gate, "manifest_v");
    assert_int_equal(world_open(w), SF_OK);
    id = world_submit(w, &spec); /* the retry joins */
    struct outcome again = world_wait_admitted(w, id);
    assert_true(again.duplicate && again.commit_ts[0] == open.commit_ts[0]);
    assert_int_equal(world_look(w, id).gate, 0);
    gate_store_hold(w->gate, NULL);
    struct outcome out = world_wait(w, id);
    assert_int_equal(out.gate, VISIBLE);
    assert_int_equal(world_rows(w, 1, NULL, NULL), 1);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_restart_keeps_everything),
        cmocka_unit_test(test_unpublished_survives),
        cmocka_unit_test(test_half_durable_is_void),
        cmocka_unit_test(test_missing_slices_are_run),
        cmocka_unit_test(test_no_timestamp_twice),
        cmocka_unit_test(test_two_owners),
        cmocka_unit_test(test_above_the_seal_is_void),
        cmocka_unit_test(test_planted_manifest),
        cmocka_unit_test(test_drained_restart_is_lean),
        cmocka_unit_test(test_no_step_without_leader),
        cmocka_unit_test(test_visible_waits_across_leaders),
    };
    return SF_RUN_TESTS("commit_recovery", tests);
}
