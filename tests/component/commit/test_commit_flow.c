/* The way of a batch: slices, timestamps, writers, barrier, gates, manifest. */
#include "component/commit/commit_world.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "publish/keys.h"
#include "publish/wal_chunk.h"

#define ADMITTED      SEARCHFABRIC__V1__BATCH_GATE__BATCH_GATE_ADMITTED_DISPATCHED
#define DURABLE       SEARCHFABRIC__V1__BATCH_GATE__BATCH_GATE_DURABLE
#define VISIBLE       SEARCHFABRIC__V1__BATCH_GATE__BATCH_GATE_VISIBLE
#define REFUSED(name) SEARCHFABRIC__V1__BATCH_REFUSAL__BATCH_REFUSAL_##name

#define METADATA 1u
#define SEMANTIC 2u
#define AUX      4u

static uint64_t submit_rows(struct world *w, uint64_t collection, const char *batch,
                            const struct entry *entries, size_t count)
{
    return world_submit(
        w, &(struct batch_spec){
               .collection_id = collection, .batch_id = batch, .entries = entries, .count = count});
}

/* ---- what the writers received ------------------------------------------------------------------
 */

/* Every frame of the WAL, as written. */
struct frames {
    struct sf_arena *arena;
    const Searchfabric__V1__WalFrame *at[512];
    unsigned stream[512];
    size_t count;
};

static void frames_read(struct world *w, struct frames *frames)
{
    struct sf_list_entry *entries = NULL;
    size_t count = 0;
    *frames = (struct frames){.arena = sf_arena_new(64u << 20)};
    assert_int_equal(sf_store_list_wait(w->memory, NULL, sf_view_str("wal/"), (struct sf_view){0},
                                        1000, frames->arena, &entries, &count),
                     SF_OK);
    for (size_t i = 0; i < count; i++) {
        struct sf_buf body = {0};
        struct sf_wal_chunk chunk;
        assert_int_equal(sf_store_get_wait(w->memory, NULL, entries[i].key, &body, NULL), SF_OK);
        assert_int_equal(sf_wal_chunk_decode(sf_buf_view(&body), frames->arena, NULL, &chunk),
                         SF_OK);
        for (size_t k = 0; k < chunk.count && !sf_wal_chunk_is_seal(&chunk); k++) {
            frames->stream[frames->count] =
                sf_wal_stream_of(chunk.header->modality, chunk.header->writer_mode);
            frames->at[frames->count++] = chunk.records[k].frame;
        }
        sf_buf_fini(&body);
    }
}

static void test_one_row(void **state)
{
    struct world *w = world_new();
    struct sf_buf rows = {0};
    struct sf_rows_head head;
    (void)state;
    SF_PROVES("COORD-2-09"); /* there is no catalog here at all */
    assert_int_equal(world_open(w), SF_OK);
    struct entry entry = {.doc_id = 11, .body = "{\"a\":1}"};
    struct outcome out = world_wait(w, world_submit(w, &(struct batch_spec){.collection_id = 1,
                                                                            .batch_id = "b1",
                                                                            .entries = &entry,
                                                                            .count = 1,
                                                                            .visible = true}));
    assert_true(out.admitted);
    assert_int_equal(out.gate, VISIBLE);
    assert_int_equal(out.slices, 1);
    assert_int_equal(out.manifest_version, 1);
    assert_true(out.commit_ts[0] == WORLD_TSO0 + 1000);
    assert_true(out.safe_ts == out.commit_ts[0]);
    assert_int_equal(world_rows(w, 1, &rows, &head), 1);
    assert_string_equal((const char *)rows.data, "11={\"a\":1}\n");
    assert_int_equal(head.manifest_version, 1);
    assert_true(head.safe_ts.v == out.commit_ts[0]);
    sf_buf_fini(&rows);
    world_free(w);
}

/* Whatever the planner says and the batch holds reaches the writers unchanged; only the timestamp
 * of rows that came with 0 is new. */
static void test_writers_receive(void **state)
{
    struct world *w = world_new();
    struct frames frames;
    struct entry entries[6];
    static const unsigned touched[6] = {1, 2, 3, 1, 2, 3};
    char fingerprint[SF_SHA256_HEX_BYTES];
    (void)state;
    SF_PROVES("COORD-1-03", "COORD-1-07", "COORD-2-10", "COORD-3-03", "COORD-3-07", "COORD-3-08",
              "COORD-3-09", "COORD-4.1-07", "COORD-4.1-08", "COORD-4.2-06", "COORD-4.3-02",
              "COORD-4.3-05", "COORD-4.4-05", "COORD-4.4-06", "COORD-4.4-07", "COORD-4.4-08",
              "COORD-4.4-09", "COORD-4.4-10");
    assert_int_equal(world_open(w), SF_OK);
    for (unsigned i = 0; i < 6; i++)
        entries[i] =
            (struct entry){.doc_id = 100 + i, .body = "{\"k\":[1,2.50]}", .touched = touched[i]};
    struct outcome out = world_wait(w, submit_rows(w, 1, "batch-A", entries, 6));
    assert_int_equal(out.slices, 1);
    struct outcome next = world_put(w, 1, 5, "batch-B", "x");
    frames_read(w, &frames);
    assert_int_equal(frames.count, 3); /* A in both modalities, B in metadata */
    sf_sha256_hex(sf_view_str("batch-A"), fingerprint);
    for (size_t f = 0; f < frames.count; f++) {
        const Searchfabric__V1__WalFrame *frame = frames.at[f];
        const Searchfabric__V1__WriteIntent *intent = frame->intent;
        unsigned bit = frames.stream[f] < 2 ? METADATA : SEMANTIC;
        size_t row = 0;
        if (strcmp(intent->batch_id, "batch-B") == 0) {
            assert_true(intent->commit_ts == next.commit_ts[0]);
            assert_int_equal(intent->n_touched_modalities, 1);
            continue;
        }
        assert_string_equal(intent->batch_id, "batch-A");
        assert_string_equal(intent->stream_identity, "stream");
        assert_string_equal(intent->batch_fingerprint, fingerprint);
        assert_string_equal(intent->schema_generation_token, "tok");
        assert_true(intent->commit_ts == out.commit_ts[0] && intent->commit_ts != 0);
        assert_int_equal(intent->first_entry_index, 0);
        assert_int_equal(intent->last_entry_index, 5);
        assert_int_equal(intent->first_source_seq, 1);
        assert_int_equal(intent->last_source_seq, 6);
        assert_int_equal(intent->n_touched_modalities, 2);
        assert_int_equal(intent->coordinator_epoch, out.epoch);
        assert_int_equal(frame->coordinator_epoch, out.epoch);
        assert_int_equal(intent->durability,
                         SEARCHFABRIC__V1__DURABILITY_POLICY__DURABILITY_POLICY_WAL_CHUNK_DURABLE);
        assert_int_equal(intent->visibility,
                         SEARCHFABRIC__V1__VISIBILITY_POLICY__VISIBILITY_POLICY_ASYNC);
        for (unsigned i = 0; i < 6; i++) {
            if ((touched[i] & bit) == 0)
                continue;
            const Searchfabric__V1__WalRow *r = frame->rows[row++];
            assert_int_equal(r->entry_index, i);
            assert_int_equal(r->doc_id, 100 + i);
            assert_int_equal(r->op, SEARCHFABRIC__V1__ROW_OP__ROW_OP_INDEX);
            assert_int_equal(r->body.len, strlen(entries[i].body));
            assert_memory_equal(r->body.data, entries[i].body, r->body.len);
            assert_int_equal(r->source_seq, 1 + i);
            assert_true(r->source_partition == ((UINT64_C(1) << 63) | 5));
        }
        assert_int_equal(row, frame->n_rows);
    }
    sf_arena_destroy(frames.arena);
    assert_int_equal(world_rows(w, 1, NULL, NULL), 0 + (world_settle(w), 7));
    world_free(w);
}

/* Each of the four writers receives exactly the slices whose plan names it. */
static void test_four_writers(void **state)
{
    static const char *const streams[4] = {"wal/metadata-stream/", "wal/metadata-batch/",
                                           "wal/semantic-stream/", "wal/semantic-batch/"};
    (void)state;
    SF_PROVES("COORD-1-09", "COORD-2-12", "COORD-4.4-04");
    for (unsigned i = 0; i < 4; i++) {
        struct world *w = world_new();
        struct entry entry = {
            .doc_id = 1, .body = "{\"vector\":[0.1,0.2]}", .touched = i < 2 ? METADATA : SEMANTIC};
        assert_int_equal(world_open(w), SF_OK);
        struct outcome out =
            world_wait(w, world_submit(w, &(struct batch_spec){.collection_id = 1,
                                                               .batch_id = "b",
                                                               .entries = &entry,
                                                               .count = 1,
                                                               .batch_mode = i % 2 == 1}));
        assert_int_equal(out.gate, DURABLE);
        for (unsigned k = 0; k < 4; k++)
            assert_int_equal(gate_store_puts(w->gate, streams[k]), k == i ? 1 : 0);
        world_free(w);
    }
}

static void test_big_batch_is_one_slice(void **state)
{
    struct world *w = world_new();
    struct entry entries[500];
    (void)state;
    SF_PROVES("COORD-4.3-07");
    assert_int_equal(world_open(w), SF_OK);
    for (unsigned i = 0; i < 500; i++)
        entries[i] = (struct entry){.doc_id = i, .body = "{}", .touched = 1 + i % 3};
    struct outcome out = world_wait(w, submit_rows(w, 1, "b", entries, 500));
    assert_int_equal(out.gate, DURABLE);
    assert_int_equal(out.slices, 1);
    assert_int_equal(hand_tso_values(&w->tso), 1);
    world_free(w);
}

/* ---- timestamps ---------------------------------------------------------------------------------
 */

static void test_frozen_oracle(void **state)
{
    struct world *w = world_new();
    (void)state;
    SF_PROVES("COORD-4.2-09");
    w->tso.frozen = true;
    assert_int_equal(world_open(w), SF_OK);
    for (unsigned i = 0; i < 4; i++) {
        char batch[32];
        snprintf(batch, sizeof(batch), "b%u", i);
        struct outcome out = world_put(w, 1, i, batch, "x");
        assert_true(out.commit_ts[0] == WORLD_TSO0 + 1000 + i);
    }
    world_free(w);
}

/* 64 batches at once on one lane: strictly increasing, unique, in the oracle's window; far fewer
 * requests to the oracle than batches; watermarks read meanwhile never go back. */
static void test_concurrent_submitters(void **state)
{
    enum { N = 64 };
    struct world *w = world_new();
    uint64_t ids[N];
    uint64_t safe = 0;
    struct entry entry = {.doc_id = 1, .body = "x", .touched = 3};
    (void)state;
    SF_PROVES("COORD-3-04", "COORD-4.1-04", "COORD-4.1-06", "COORD-4.2-05", "COORD-4.2-11",
              "COORD-4.4-02", "COORD-2-06");
    assert_int_equal(world_open(w), SF_OK);
    hand_tso_hold(&w->tso); /* demand gathers while the first request is under way */
    for (unsigned i = 0; i < N; i++) {
        char batch[32];
        snprintf(batch, sizeof(batch), "b%u", i);
        ids[i] = submit_rows(w, 1, batch, &entry, 1);
        if (i % 3 == 0)
            (void)submit_rows(w, 1, batch, &entry, 1); /* resubmitted: no second intent */
    }
    hand_tso_wait_held(&w->tso);
    hand_tso_release(&w->tso);
    uint64_t before = 0;
    for (unsigned i = 0; i < N; i++) {
        struct sf_arena *arena = sf_arena_new(1u << 20);
        struct outcome out = world_wait(w, ids[i]);
        assert_int_equal(out.gate, DURABLE);
        assert_true(out.commit_ts[0] > before);
        before = out.commit_ts[0];
        assert_true(before >= WORLD_TSO0 + 1000 &&
                    before < WORLD_TSO0 + 1000 + hand_tso_values(&w->tso));
        const Searchfabric__V1__GetCollectionWatermarksResponse *marks =
            world_watermarks(w, 1, arena);
        assert_non_null(marks);
        assert_true(marks->safe_ts >= safe);
        assert_true(marks->watermarks->applied_ts_metadata_search >= marks->safe_ts);
        assert_true(marks->watermarks->applied_ts_semantic_search >= marks->safe_ts);
        safe = marks->safe_ts;
        sf_arena_destroy(arena);
    }
    world_settle(w);
    assert_true(hand_tso_requests(&w->tso) <= 3 && hand_tso_values(&w->tso) == N);
    struct frames frames;
    frames_read(w, &frames);
    assert_int_equal(frames.count, 2 * N); /* one intent a slice, in two modalities */
    sf_arena_destroy(frames.arena);
    world_free(w);
}

static void tidb(Searchfabric__V1__PlannedBatch *planned)
{
    planned->source_kind = SEARCHFABRIC__V1__SOURCE_KIND__SOURCE_KIND_TIDB_REMOTE_DML;
}

static void test_both_sources_of_flow_b(void **state)
{
    struct world *w = world_new();
    struct entry entry = {.doc_id = 1, .body = "x"};
    struct batch_spec spec = {.collection_id = 1, .batch_id = "t", .entries = &entry, .count = 1};
    (void)state;
    SF_PROVES("COORD-4.2-04");
    assert_int_equal(world_open(w), SF_OK);
    struct outcome api = world_put(w, 1, 1, "a", "x");
    struct outcome dml = world_wait(w, world_submit_with(w, &spec, tidb));
    assert_int_equal(dml.gate, DURABLE);
    assert_true(dml.commit_ts[0] == api.commit_ts[0] + 1);
    world_free(w);
}

/* ---- refusals consume nothing -------------------------------------------------------------------
 */

static void nonzero_ts(Searchfabric__V1__PlannedBatch *planned)
{
    planned->batch->entries[0]->row->commit_ts = 123;
}

static void flow_a(Searchfabric__V1__PlannedBatch *planned)
{
    planned->flow_kind = SEARCHFABRIC__V1__FLOW_KIND__FLOW_KIND_A;
}

static void test_refused_before_anything(void **state)
{
    struct world *w = world_new();
    struct entry entry = {.doc_id = 1, .body = "x"};
    struct batch_spec spec = {.collection_id = 1, .batch_id = "t", .entries = &entry, .count = 1};
    (void)state;
    SF_PROVES("COORD-3-02");
    assert_int_equal(world_open(w), SF_OK);
    unsigned requests = gate_store_requests(w->gate);
    struct outcome out = world_wait(w, world_submit_with(w, &spec, nonzero_ts));
    assert_int_equal(out.refusal, REFUSED(INVALID_BATCH));
    assert_non_null(strstr(out.details, "entry_index=0;"));
    out = world_wait(w, world_submit_with(w, &spec, flow_a));
    assert_int_equal(out.refusal, REFUSED(INVALID_BATCH));
    assert_non_null(strstr(out.details, "violation=flow_a_not_served;"));
    assert_int_equal(hand_tso_requests(&w->tso), 0);
    assert_int_equal(gate_store_requests(w->gate), requests);
    world_free(w);
}

static uint8_t safe_ts_bytes[] = {0x7f};

static void unknown_safe_ts(Searchfabric__V1__PlannedBatch *planned)
{
    static ProtobufCMessageUnknownField field = {
        .tag = 777, .wire_type = PROTOBUF_C_WIRE_TYPE_VARINT, .len = 1, .data = safe_ts_bytes};
    planned->base.n_unknown_fields = 1;
    planned->base.unknown_fields = &field;
}

static bool names_safe_ts(const ProtobufCMessageDescriptor *desc, unsigned depth)
{
    for (unsigned i = 0; i < desc->n_fields && depth < 12; i++) {
        const ProtobufCFieldDescriptor *f = &desc->fields[i];
        if (strcmp(f->name, "safe_ts") == 0)
            return true;
        if (f->type == PROTOBUF_C_TYPE_MESSAGE && names_safe_ts(f->descriptor, depth + 1))
            return true;
    }
    return false;
}

static void test_safe_ts_is_never_given(void **state)
{
    struct world *w = world_new();
    struct entry entry = {.doc_id = 1, .body = "x"};
    struct batch_spec spec = {.collection_id = 1, .batch_id = "t", .entries = &entry, .count = 1};
    (void)state;
    SF_PROVES("COORD-5.1-07", "COORD-5.4-09");
    assert_false(names_safe_ts(&searchfabric__v1__submit_planned_batch_request__descriptor, 0));
    assert_false(
        names_safe_ts(&searchfabric__v1__get_collection_watermarks_request__descriptor, 0));
    assert_false(names_safe_ts(&searchfabric__v1__get_lane_state_request__descriptor, 0));
    assert_null(protobuf_c_message_descriptor_get_field_by_name(
        &searchfabric__v1__publish_ready_intent__descriptor, "manifest_version"));
    assert_int_equal(world_open(w), SF_OK);
    struct outcome out = world_wait(w, world_submit_with(w, &spec, unknown_safe_ts));
    assert_int_equal(out.gate, DURABLE);
    assert_true(out.safe_ts == out.commit_ts[0]);
    world_free(w);
}

/* ---- barrier marks ------------------------------------------------------------------------------
 */

static void test_marks_alone(void **state)
{
    struct world *w = world_new();
    struct entry mark = {.barrier = true};
    struct frames frames;
    (void)state;
    SF_PROVES("COORD-3-12", "COORD-5.1-12");
    assert_int_equal(world_open(w), SF_OK);
    struct outcome out = world_wait(w, submit_rows(w, 1, "m", &mark, 1));
    assert_int_equal(out.gate, DURABLE);
    assert_int_equal(out.slices, 0);
    struct sf_rows_head head;
    assert_int_equal(world_rows(w, 1, NULL, &head), 0);
    assert_int_equal(head.manifest_version, 0);
    frames_read(w, &frames);
    assert_int_equal(frames.count, 0);
    sf_arena_destroy(frames.arena);
    assert_int_equal(hand_tso_requests(&w->tso), 0);
    world_free(w);
}

static void test_barrier_holds(void **state)
{
    struct world *w = world_new();
    struct entry entries[3] = {{.doc_id = 1, .body = "x", .touched = SEMANTIC},
                               {.barrier = true},
                               {.doc_id = 2, .body = "y", .touched = METADATA}};
    struct entry mark = {.barrier = true};
    (void)state;
    SF_PROVES("COORD-5.1-10", "COORD-5.1-11", "COORD-2-14");
    assert_int_equal(world_open(w), SF_OK);
    gate_store_hold(w->gate, "wal/semantic");
    uint64_t batch = submit_rows(w, 1, "b", entries, 3);
    uint64_t after = submit_rows(w, 1, "m", &mark, 1);
    gate_store_wait_held(w->gate, 1);
    (void)world_put(w, 2, 1, "other", "z"); /* another lane goes on */
    assert_int_equal(gate_store_puts(w->gate, "wal/metadata"), 1);
    assert_int_equal(world_look(w, batch).admitted, 0);
    assert_int_equal(world_look(w, after).gate, 0);
    gate_store_hold(w->gate, NULL);
    struct outcome out = world_wait(w, batch);
    assert_int_equal(out.gate, DURABLE);
    assert_int_equal(out.gates, 1); /* one outcome for the gate, whatever the number of slices */
    assert_int_equal(out.slices, 2);
    assert_int_equal(out.ordinals[0], 0);
    assert_int_equal(out.ordinals[1], 2);
    assert_true(out.commit_ts[1] > out.commit_ts[0]);
    assert_int_equal(world_wait(w, after).gate, DURABLE);
    world_settle(w);
    assert_int_equal(world_look(w, batch).gates, 1);
    world_free(w);
}

/* ---- gates and watermarks -----------------------------------------------------------------------
 */

static void test_modalities_wait_for_what_they_touch(void **state)
{
    struct sf_arena *arena = sf_arena_new(1u << 20);
    (void)state;
    SF_PROVES("COORD-5.4-03", "COORD-5.4-04", "COORD-5.4-05", "COORD-5.4-07", "COORD-5.4-11",
              "COORD-5.1-01", "COORD-5.1-02", "COORD-5.1-04", "COORD-2-13");
    for (unsigned stopped = METADATA; stopped <= SEMANTIC; stopped++) {
        struct world *w = world_new();
        struct entry free_row = {.doc_id = 1, .body = "x", .touched = 3 & ~stopped};
        struct entry mixed = {.doc_id = 2, .body = "y", .touched = 3};
        assert_int_equal(world_open(w), SF_OK);
        gate_store_hold(w->gate, stopped == METADATA ? "wal/metadata" : "wal/semantic");
        struct outcome first = world_wait(w, submit_rows(w, 1, "a", &free_row, 1));
        assert_int_equal(first.gate, DURABLE);
        uint64_t id = submit_rows(w, 1, "b", &mixed, 1);
        struct outcome open = world_look(w, id);
        gate_store_wait_held(w->gate, 1);
        /* the other modality's chunk stands once a later one of its stream does */
        free_row.doc_id = 3;
        (void)world_wait(w, submit_rows(w, 1, "c", &free_row, 1));
        open = world_wait_admitted(w, id);
        assert_int_equal(open.gate, 0);
        const Searchfabric__V1__GetCollectionWatermarksResponse *marks =
            world_watermarks(w, 1, arena);
        assert_non_null(marks);
        assert_int_not_equal(marks->watermarks->_applied_ts_metadata_search_case, 0);
        assert_int_not_equal(marks->watermarks->_applied_ts_semantic_search_case, 0);
        assert_int_equal(marks->watermarks->_applied_ts_metadata_aux_case, 0);
        assert_true(marks->safe_ts == open.commit_ts[0] - 1);
        assert_true(marks->watermarks->applied_ts_metadata_search == open.commit_ts[0] - 1);
        assert_true(marks->watermarks->applied_ts_semantic_search == open.commit_ts[0] - 1);
        const Searchfabric__V1__GetLaneStateResponse *lane = world_lane(w, 1, arena);
        assert_non_null(lane);
        bool found = false;
        for (size_t i = 0; i < lane->n_open_intents; i++) {
            const Searchfabric__V1__OpenIntent *intent = lane->open_intents[i];
            if (strcmp(intent->intent->batch_id, "b") != 0)
                continue;
            found = true;
            assert_int_equal(
                intent->state,
                SEARCHFABRIC__V1__WRITE_INTENT_STATE__WRITE_INTENT_STATE_PARTIALLY_DURABLE);
            assert_int_equal(intent->n_completed_modalities, 1);
            assert_int_equal(intent->completed_modalities[0],
                             stopped == METADATA
                                 ? SEARCHFABRIC__V1__MODALITY__MODALITY_SEMANTIC_SEARCH
                                 : SEARCHFABRIC__V1__MODALITY__MODALITY_METADATA_SEARCH);
        }
        assert_true(found);
        gate_store_hold(w->gate, NULL);
        struct outcome out = world_wait(w, id);
        assert_int_equal(out.gate, DURABLE);
        world_settle(w);
        marks = world_watermarks(w, 1, arena);
        assert_true(marks->safe_ts == marks->local_max_commit_ts);
        assert_int_equal(marks->lag_ms, 0);
        assert_int_equal(world_rows(w, 1, NULL, NULL), 3);
        world_free(w);
    }
    sf_arena_destroy(arena);
}

static void test_ingest_ack(void **state)
{
    struct world *w = world_new();
    struct entry entry = {.doc_id = 1, .body = "x"};
    (void)state;
    SF_PROVES("COORD-5.4-10");
    assert_int_equal(world_open(w), SF_OK);
    gate_store_hold(w->gate, "wal/"); /* writers accept and never complete */
    struct batch_spec spec = {
        .collection_id = 1, .batch_id = "a", .entries = &entry, .count = 1, .ingest_ack = true};
    struct outcome out = world_wait(w, world_submit(w, &spec));
    assert_int_equal(out.gate, ADMITTED);
    gate_store_wait_held(w->gate, 1);
    gate_store_hold(w->gate, NULL);
    world_settle(w);
    gate_store_hold(w->gate, "leader.json"); /* dispatch blocked: no timestamp may be released */
    hand_tso_set(&w->tso, WORLD_TSO0 + (UINT64_C(5000) << 18));
    spec.batch_id = "b";
    uint64_t id = world_submit(w, &spec);
    gate_store_wait_held(w->gate, 1);
    assert_int_equal(world_look(w, id).gate, 0);
    assert_int_equal(world_look(w, id).admitted, 0);
    gate_store_hold(w->gate, NULL);
    assert_int_equal(world_wait(w, id).gate, ADMITTED);
    world_free(w);
}

static void test_publisher_stopped(void **state)
{
    struct world *w = world_new();
    struct entry entry = {.doc_id = 1, .body = "x"};
    struct sf_rows_head head;
    (void)state;
    SF_PROVES("COORD-5.4-12", "COORD-7.4-03", "COORD-7.4-05", "COORD-1-10", "COORD-10-06");
    assert_int_equal(world_open(w), SF_OK);
    gate_store_hold(w->gate, "manifest_v");
    struct batch_spec spec = {.collection_id = 1, .batch_id = "a", .entries = &entry, .count = 1};
    assert_int_equal(world_wait(w, world_submit(w, &spec)).gate, DURABLE);
    spec.batch_id = "b";
    spec.visible = true;
    uint64_t durable = world_submit(w, &spec);
    spec.batch_id = "c";
    spec.ingest_ack = true;
    uint64_t ingest = world_submit(w, &spec);
    spec.batch_id = "d"; /* async, behind the two: gets its durable gate */
    spec.visible = spec.ingest_ack = false;
    assert_int_equal(world_wait(w, world_submit(w, &spec)).gate, DURABLE);
    assert_int_equal(world_look(w, durable).gate, 0);
    assert_int_equal(world_look(w, ingest).gate, 0);
    assert_int_equal(world_rows(w, 1, NULL, &head), 0); /* durable, not visible */
    assert_int_equal(head.manifest_version, 0);
    static const char *const none[] = {NULL};
    assert_int_equal(
        sf_metric_value(sf_metric_series(
            sf_metrics_family(w->metrics, SF_METRIC_GAUGE,
                              "searchfabric_commit_coordinator_manifest_ready_depth", "", none),
            none)),
        4);
    gate_store_hold(w->gate, NULL);
    assert_int_equal(world_wait(w, durable).gate, VISIBLE);
    assert_int_equal(world_wait(w, ingest).gate, VISIBLE);
    assert_int_equal(world_rows(w, 1, NULL, &head), 1);
    assert_true(head.manifest_version >= 1 && head.manifest_version <= 2); /* coalesced */
    assert_int_equal(head.total_rows, 4);
    world_free(w);
}

static void test_aux(void **state)
{
    struct world *w = world_new();
    struct sf_arena *arena = sf_arena_new(1u << 20);
    struct entry entry = {.doc_id = 1, .body = "x", .touched = AUX | SEMANTIC};
    struct entry semantic = {.doc_id = 2, .body = "y", .touched = SEMANTIC};
    (void)state;
    SF_PROVES("COORD-5.1-03", "COORD-4.1-02", "COORD-5.4-06");
    assert_int_equal(world_open(w), SF_OK);
    (void)world_put(w, 2, 1, "p", "x");
    const Searchfabric__V1__GetLaneStateResponse *lane = world_lane(w, 2, arena);
    assert_int_equal(lane->lane->_applied_ts_metadata_aux_case, 0); /* not enabled: absent */
    gate_store_hold(w->gate, "wal/metadata");
    uint64_t id = world_submit(
        w, &(struct batch_spec){
               .collection_id = 1, .batch_id = "a", .entries = &entry, .count = 1, .enabled = 7});
    struct outcome free_row =
        world_wait(w, world_submit(w, &(struct batch_spec){.collection_id = 1,
                                                           .batch_id = "s",
                                                           .entries = &semantic,
                                                           .count = 1,
                                                           .enabled = 7}));
    assert_int_equal(free_row.gate, DURABLE);
    struct outcome open = world_wait_admitted(w, id);
    lane = world_lane(w, 1, arena);
    assert_int_not_equal(lane->lane->_applied_ts_metadata_aux_case, 0);
    assert_true(lane->lane->applied_ts_metadata_aux == open.commit_ts[0] - 1);
    assert_true(lane->lane->local_max_commit_ts == free_row.commit_ts[0]);
    assert_int_equal(lane->lane->pending_row_slices, 1);
    assert_int_equal(lane->lane->tier, SEARCHFABRIC__V1__LANE_TIER__LANE_TIER_HOT);
    assert_true(lane->lane->last_access_unix_ms > 0);
    assert_int_equal(lane->lane->n_enabled_modalities, 3);
    assert_true(world_watermarks(w, 1, arena)->safe_ts == open.commit_ts[0] - 1);
    gate_store_hold(w->gate, NULL);
    assert_int_equal(world_wait(w, id).gate, DURABLE);
    lane = world_lane(w, 1, arena);
    assert_true(lane->lane->applied_ts_metadata_aux == lane->lane->local_max_commit_ts);
    assert_true(lane->lane->applied_ts_metadata_search == lane->lane->local_max_commit_ts);
    sf_arena_destroy(arena);
    world_free(w);
}

static void test_lag_by_collection(void **state)
{
    struct world *w = world_new();
    struct sf_arena *arena = sf_arena_new(1u << 20);
    struct entry entry = {.doc_id = 1, .body = "x", .touched = SEMANTIC};
    (void)state;
    SF_PROVES("COORD-6.1-02", "COORD-6.1-03", "COORD-10-04");
    w->deps.shard_count = 1; /* both on one shard */
    assert_int_equal(world_open(w), SF_OK);
    gate_store_hold(w->gate, "wal/semantic");
    (void)world_wait_admitted(w, submit_rows(w, 1, "a", &entry, 1));
    hand_tso_set(&w->tso, WORLD_TSO0 + (UINT64_C(250) << 18));
    entry.doc_id = 2;
    (void)world_wait_admitted(w, submit_rows(w, 1, "b", &entry, 1));
    (void)world_put(w, 2, 1, "c", "x");
    assert_int_equal(world_watermarks(w, 1, arena)->lag_ms,
                     250); /* 1st open at +0 ms, newest +250 */
    assert_int_equal(world_watermarks(w, 2, arena)->lag_ms, 0);
    static const char *const none[] = {NULL};
    static const char *const by_shard[] = {"shard", NULL};
    static const char *const shard0[] = {"0", NULL};
    struct sf_metric *pending = sf_metric_series(
        sf_metrics_family(w->metrics, SF_METRIC_GAUGE,
                          "searchfabric_commit_coordinator_pending_intents", "", none),
        none);
    struct sf_metric *age = sf_metric_series(
        sf_metrics_family(w->metrics, SF_METRIC_GAUGE,
                          "searchfabric_commit_coordinator_oldest_pending_intent_age_ms", "",
                          by_shard),
        shard0);
    assert_int_equal(sf_metric_value(pending), 2);
    struct sf_metric *lag = sf_metric_series(
        sf_metrics_family(w->metrics, SF_METRIC_GAUGE,
                          "searchfabric_commit_coordinator_safe_ts_lag_ms", "", by_shard),
        shard0);
    while (sf_metric_value(lag) != 250)
        ; /* the greatest of its lanes */
    int64_t first = 0;
    while (first == 0)
        first = sf_metric_value(age);
    while (sf_metric_value(age) <= first)
        ; /* grows with the clock */
    gate_store_hold(w->gate, NULL);
    world_settle(w);
    assert_int_equal(sf_metric_value(pending), 0);
    assert_int_equal(world_watermarks(w, 1, arena)->lag_ms, 0);
    sf_arena_destroy(arena);
    world_free(w);
}

static void test_barrier_wait_metric(void **state)
{
    struct world *w = world_new();
    static const char *const labels[] = {"modality_combination", NULL};
    static const char *const values[3] = {"metadata", "semantic", "metadata+semantic"};
    (void)state;
    SF_PROVES("COORD-10-05");
    assert_int_equal(world_open(w), SF_OK);
    for (unsigned touched = 1; touched <= 3; touched++) {
        struct entry entry = {.doc_id = touched, .body = "x", .touched = touched};
        char batch[32];
        for (unsigned n = 0; n < touched; n++) {
            snprintf(batch, sizeof(batch), "%u-%u", touched, n);
            (void)world_wait(w, submit_rows(w, 1, batch, &entry, 1));
        }
        struct sf_metric *metric = sf_metric_series(
            sf_metrics_family(w->metrics, SF_METRIC_HISTOGRAM,
                              "searchfabric_commit_coordinator_barrier_wait_ms", "", labels),
            (const char *const[]){values[touched - 1], NULL});
        assert_int_equal(sf_metric_value(metric), touched);
    }
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_row),
        cmocka_unit_test(test_writers_receive),
        cmocka_unit_test(test_four_writers),
        cmocka_unit_test(test_big_batch_is_one_slice),
        cmocka_unit_test(test_frozen_oracle),
        cmocka_unit_test(test_concurrent_submitters),
        cmocka_unit_test(test_both_sources_of_flow_b),
        cmocka_unit_test(test_refused_before_anything),
        cmocka_unit_test(test_safe_ts_is_never_given),
        cmocka_unit_test(test_marks_alone),
        cmocka_unit_test(test_barrier_holds),
        cmocka_unit_test(test_modalities_wait_for_what_they_touch),
        cmocka_unit_test(test_ingest_ack),
        cmocka_unit_test(test_publisher_stopped),
        cmocka_unit_test(test_aux),
        cmocka_unit_test(test_lag_by_collection),
        cmocka_unit_test(test_barrier_wait_metric),
    };
    return SF_RUN_TESTS("commit_flow", tests);
}
