#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "commit/commit_priv.h"

/*
 * The WAL writers of a shard. Slices of many collections gather in one open chunk per stream, which
 * is closed by size or a few milliseconds after its first frame; several are under way at once. A
 * store that this process holds alone commits groups by itself, so there a chunk is closed at once
 * while none of its stream is under way: waiting would gain nothing but latency.
 *
 *   OPEN -> CLOSED -> WRITING -> LANDED -> (reported, freed)
 *
 * A chunk counts as durable only when it and all before it stand, because a new leader seals a
 * stream at its first gap and voids what lies above. A 412 that is not over our own bytes is such a
 * seal: this leader is deposed. Everything else that goes wrong is tried again, same bytes, same
 * condition, until one object stands.
 */

static void chunk_send(struct sf_wal_out *chunk);
static void stream_send(struct sf_wal_stream *stream);
static void chunk_close(struct sf_wal_stream *stream);
static void close_when_idle(struct sf_wal_stream *stream);

/* Its timer is not running: it landed, or the stream was stopped on its loop. */
static void chunk_free(struct sf_wal_out *chunk)
{
    sf_buf_fini(&chunk->key);
    sf_buf_fini(&chunk->body);
    sf_buf_fini(&chunk->get.body);
    free(chunk->frames);
    free(chunk);
}

/* ---- marks -------------------------------------------------------------------------------------
 */

struct sf_wal_mark *sf_wal_mark_add(struct sf_wal_stream *stream, uint64_t epoch, uint64_t seq)
{
    struct sf_wal_mark *mark = sf_calloc(1, sizeof(*mark));
    mark->epoch = epoch;
    mark->seq = seq;
    if (stream->marks_last == NULL)
        stream->marks_first = mark;
    else
        stream->marks_last->next = mark;
    stream->marks_last = mark;
    return mark;
}

static void marks_trim(struct sf_wal_stream *stream)
{
    while (stream->marks_first != NULL && stream->marks_first->landed &&
           stream->marks_first->unpublished == 0) {
        struct sf_wal_mark *mark = stream->marks_first;
        stream->marks_first = mark->next;
        if (stream->marks_first == NULL)
            stream->marks_last = NULL;
        free(mark);
    }
}

void sf_wal_mark_release(struct sf_wal_stream *stream, struct sf_wal_mark *mark)
{
    SF_ASSERT(mark->unpublished > 0);
    mark->unpublished--;
    marks_trim(stream);
}

void sf_wal_stream_start(struct sf_wal_stream *stream, uint64_t *out_epoch, uint64_t *out_seq)
{
    marks_trim(stream);
    bool done = stream->marks_first == NULL || SF_MUTANT(coord_start_early);
    *out_epoch = done ? stream->shard->epoch : stream->marks_first->epoch;
    *out_seq = done ? stream->next_seq : stream->marks_first->seq;
}

/* ---- durability --------------------------------------------------------------------------------
 */

/* Reports the frames of a durable chunk to the barrier. */
static void report(struct sf_wal_out *chunk)
{
    struct sf_wal_stream *stream = chunk->stream;
    for (size_t i = 0; i < chunk->frame_count; i++)
        sf_lane_frame_durable(chunk->frames[i].intent, stream->index, stream->shard->epoch,
                              chunk->seq, &chunk->frames[i].place);
    chunk->frame_count = 0;
}

/* Takes the unbroken run of landed chunks off the front. */
static void advance(struct sf_wal_stream *stream)
{
    while (stream->first != NULL && stream->first->state == SF_WAL_LANDED &&
           stream->shard->state == SF_SHARD_LEADING) {
        struct sf_wal_out *chunk = stream->first;
        stream->first = chunk->next;
        if (stream->first == NULL)
            stream->last = NULL;
        report(chunk);
        chunk_free(chunk);
    }
    marks_trim(stream);
}

static void landed(struct sf_wal_out *chunk)
{
    struct sf_wal_stream *stream = chunk->stream;
    chunk->state = SF_WAL_LANDED;
    chunk->mark->landed = true;
    sf_commit_metric_add(stream->shard->commit->metrics.chunks, 1);
    if (SF_MUTANT(coord_wal_prefix))
        report(chunk);
    advance(stream);
    stream_send(stream);
    close_when_idle(stream);
}

static void chunk_retry(struct sf_timer *timer)
{
    struct sf_wal_out *chunk = SF_CONTAINER_OF(timer, struct sf_wal_out, timer);
    if (chunk->stream->shard->state == SF_SHARD_LEADING)
        chunk_send(chunk);
}

static void back_off(struct sf_wal_out *chunk)
{
    struct sf_shard *shard = chunk->stream->shard;
    sf_timer_start(&chunk->timer, sf_shard_backoff_ms(shard, chunk->failures++));
}

/* What stands at the key of a chunk whose put was refused or is in doubt. */
static void read_done(struct sf_get *get)
{
    struct sf_wal_out *chunk = SF_CONTAINER_OF(get, struct sf_wal_out, get);
    struct sf_shard *shard = chunk->stream->shard;
    shard->ops_outstanding--;
    if (shard->state != SF_SHARD_LEADING)
        return;
    if (get->err == SF_OK && sf_view_equal(sf_buf_view(&get->body), sf_buf_view(&chunk->body))) {
        chunk->stream->inflight--;
        landed(chunk);
    } else if (get->err == SF_OK) {
        sf_shard_depose(shard, "a chunk number of this epoch is taken: sealed by a newer leader");
    } else {
        back_off(chunk); /* not there, or not readable: it may still land */
    }
}

static void put_done(struct sf_batch *batch)
{
    struct sf_wal_out *chunk = SF_CONTAINER_OF(batch, struct sf_wal_out, batch);
    struct sf_shard *shard = chunk->stream->shard;
    shard->ops_outstanding--;
    if (shard->state != SF_SHARD_LEADING)
        return;
    if (chunk->put.err == SF_OK) {
        chunk->stream->inflight--;
        landed(chunk);
    } else if (chunk->put.err == SF_ERR_PRECONDITION || chunk->put.err == SF_ERR_AMBIGUOUS) {
        sf_buf_fini(&chunk->get.body);
        chunk->get = (struct sf_get){
            .key = sf_buf_view(&chunk->key), .loop = shard->ctx->loop, .done = read_done};
        shard->ops_outstanding++;
        sf_store_get(shard->commit->deps.store, &chunk->get);
    } else {
        back_off(chunk);
    }
}

static void chunk_send(struct sf_wal_out *chunk)
{
    struct sf_shard *shard = chunk->stream->shard;
    chunk->put =
        (struct sf_put){.key = sf_buf_view(&chunk->key),
                        .body = sf_buf_view(&chunk->body),
                        .cond = SF_MUTANT(coord_wal_overwrite) ? SF_PUT_ANY : SF_PUT_ABSENT};
    chunk->batch = (struct sf_batch){
        .puts = &chunk->put, .count = 1, .loop = shard->ctx->loop, .done = put_done};
    shard->ops_outstanding++;
    sf_store_submit(shard->commit->deps.store, &chunk->batch);
}

/* Sends closed chunks while there is room. */
static void stream_send(struct sf_wal_stream *stream)
{
    const struct sf_commit_deps *deps = &stream->shard->commit->deps;
    for (struct sf_wal_out *chunk = stream->first; chunk != NULL; chunk = chunk->next) {
        if (stream->inflight >= deps->wal_inflight_chunks)
            return;
        if (chunk->state != SF_WAL_CLOSED)
            continue;
        chunk->state = SF_WAL_WRITING;
        stream->inflight++;
        chunk_send(chunk);
    }
}

/* ---- gathering ---------------------------------------------------------------------------------
 */

static struct sf_wal_out *chunk_open(struct sf_wal_stream *stream)
{
    struct sf_shard *shard = stream->shard;
    struct sf_wal_out *chunk = sf_calloc(1, sizeof(*chunk));
    Searchfabric__V1__WalChunkHeader header = SEARCHFABRIC__V1__WAL_CHUNK_HEADER__INIT;
    char attempt[SF_ATTEMPT_ID_BYTES];
    chunk->stream = stream;
    chunk->seq = stream->next_seq++;
    chunk->mark = sf_wal_mark_add(stream, shard->epoch, chunk->seq);
    sf_timer_init(&chunk->timer, shard->ctx->loop, chunk_retry);
    sf_wal_chunk_key(&chunk->key, stream->index, shard->id, shard->epoch, chunk->seq);
    sf_attempts_next(shard->commit->deps.attempts, attempt);
    header.format_version = 1;
    header.attempt_id = attempt;
    header.modality = sf_wal_stream_modality(stream->index);
    header.writer_mode = sf_wal_stream_mode(stream->index);
    header.shard_id = shard->id;
    header.chunk_epoch = shard->epoch;
    header.chunk_seq = chunk->seq;
    header.writer_epoch = shard->epoch;
    header.owner_id = shard->commit->owner_id;
    header.created_ts = shard->newest_tso;
    sf_wal_chunk_begin(&chunk->body, &header);
    if (stream->last == NULL)
        stream->first = chunk;
    else
        stream->last->next = chunk;
    stream->last = chunk;
    return chunk;
}

static void chunk_close(struct sf_wal_stream *stream)
{
    struct sf_wal_out *chunk = stream->last;
    sf_timer_stop(&stream->flush);
    if (chunk == NULL || chunk->state != SF_WAL_OPEN)
        return;
    sf_wal_chunk_end(&chunk->body, (uint32_t)chunk->frame_count);
    chunk->state = SF_WAL_CLOSED;
    stream_send(stream);
}

static void flush_due(struct sf_timer *timer)
{
    struct sf_wal_stream *stream = SF_CONTAINER_OF(timer, struct sf_wal_stream, flush);
    if (stream->shard->state == SF_SHARD_LEADING)
        chunk_close(stream);
}

static void close_now(struct sf_task *task)
{
    struct sf_wal_stream *stream = SF_CONTAINER_OF(task, struct sf_wal_stream, close_task);
    stream->close_posted = false;
    stream->shard->ops_outstanding--;
    if (stream->shard->state == SF_SHARD_LEADING && stream->inflight == 0)
        chunk_close(stream);
}

/* Closes the open chunk after this turn of the loop, see above. */
static void close_when_idle(struct sf_wal_stream *stream)
{
    struct sf_shard *shard = stream->shard;
    if (!shard->commit->deps.store->exclusive || stream->inflight > 0 || stream->close_posted ||
        stream->last == NULL || stream->last->state != SF_WAL_OPEN)
        return;
    stream->close_posted = true;
    shard->ops_outstanding++;
    sf_loop_post(shard->ctx->loop, &stream->close_task);
}

void sf_wal_append(struct sf_wal_stream *stream, struct sf_intent *intent,
                   const Searchfabric__V1__WalFrame *frame)
{
    const struct sf_commit_deps *deps = &stream->shard->commit->deps;
    struct sf_wal_out *chunk = stream->last;
    if (chunk == NULL || chunk->state != SF_WAL_OPEN) {
        chunk = chunk_open(stream);
        sf_timer_start(&stream->flush, deps->wal_flush_ms);
    }
    if (chunk->frame_count == chunk->frame_cap) {
        chunk->frame_cap = chunk->frame_cap == 0 ? 8 : chunk->frame_cap * 2;
        chunk->frames = sf_realloc(chunk->frames, chunk->frame_cap * sizeof(chunk->frames[0]));
    }
    struct sf_wal_frame_ref *ref = &chunk->frames[chunk->frame_count++];
    ref->intent = intent;
    sf_wal_chunk_add(&chunk->body, frame, &ref->place);
    intent->wal_marks[stream->index] = chunk->mark;
    chunk->mark->unpublished++;
    intent->wal_bytes += ref->place.length_bytes;
    if (chunk->body.len >= deps->wal_chunk_bytes)
        chunk_close(stream);
    else
        close_when_idle(stream);
}

/* ---- life --------------------------------------------------------------------------------------
 */

void sf_wal_stream_init(struct sf_wal_stream *stream, struct sf_shard *shard, unsigned index)
{
    *stream = (struct sf_wal_stream){.shard = shard, .index = index, .close_task.run = close_now};
    sf_timer_init(&stream->flush, shard->ctx->loop, flush_due);
}

void sf_wal_stream_stop(struct sf_wal_stream *stream)
{
    sf_timer_stop(&stream->flush);
    for (struct sf_wal_out *chunk = stream->first; chunk != NULL; chunk = chunk->next) {
        sf_timer_stop(&chunk->timer);
        chunk->frame_count = 0;
    }
}

void sf_wal_stream_fini(struct sf_wal_stream *stream)
{
    while (stream->first != NULL) {
        struct sf_wal_out *chunk = stream->first;
        stream->first = chunk->next;
        chunk_free(chunk);
    }
    while (stream->marks_first != NULL) {
        struct sf_wal_mark *mark = stream->marks_first;
        stream->marks_first = mark->next;
        free(mark);
    }
}
