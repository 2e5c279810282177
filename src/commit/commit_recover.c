#include <inttypes.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "base/pb.h"
#include "commit/commit_priv.h"
#include "object/durable.h"

/*
 * What a new leader does before it serves, for all shards side by side:
 *
 *   claim   leader.json by compare-and-swap, epoch + 1; bound and starts are kept
 *   seal    every stream of every older epoch, the empty ones too: read from the start on, create a
 *           seal at the first missing number; found taken, what stands there is read and it goes on
 *   judge   only now: a slice stands when each modality it touches holds its frame, all of one
 *           epoch, below that epoch's seals, and no abort frame names it; the others are void
 *   record  sealed_below_epoch and the starts; a shard that another owner claimed meanwhile is
 *           left to it (claiming again would only depose that one, and so on for ever)
 *
 * Above a seal nothing counts, so whatever an old leader still sends changes nothing.
 */

#define TRIES 60

/* A frame below a seal. */
struct found_frame {
    struct found_frame *next; /* of the cursor, in order */
    uint64_t seq;
    bool abort;
    const Searchfabric__V1__WriteIntent *intent; /* in the shard's recovery_arena */
    struct sf_wal_place place;
};

/* One stream of one older epoch. */
struct cursor {
    struct cursor *next; /* of the recovery: by shard, stream, epoch */
    struct sf_shard *shard;
    unsigned stream;
    uint64_t epoch;
    uint64_t first_seq;
    uint64_t seq; /* next to read */
    bool counts;  /* at or above the start; else it is only sealed */
    bool sealed;
    bool missing; /* nothing at seq: a seal goes there */
    struct found_frame *frames;
    struct found_frame *frames_last;
    struct sf_buf key;
    struct sf_buf body; /* of the seal */
};

struct recovery {
    struct sf_commit *commit;
    struct sf_sched *sched;
    struct sf_diag *diag;
    struct cursor *first;
    struct cursor *last;
};

struct sleep_wait {
    struct sf_task task;
    struct sf_timer timer;
    struct sf_waiter waiter;
    int64_t ms;
};

static void sleep_over(struct sf_timer *timer)
{
    sf_waiter_wake(&SF_CONTAINER_OF(timer, struct sleep_wait, timer)->waiter);
}

static void sleep_start(struct sf_task *task)
{
    struct sleep_wait *sleep = SF_CONTAINER_OF(task, struct sleep_wait, task);
    sf_timer_start(&sleep->timer, sleep->ms);
}

void sf_commit_sleep(struct sf_commit *commit, struct sf_sched *sched, int64_t ms)
{
    struct sleep_wait sleep = {.task.run = sleep_start, .ms = ms};
    sf_timer_init(&sleep.timer, commit->loops[0].loop, sleep_over);
    sf_waiter_init(&sleep.waiter, sched);
    sf_loop_post(commit->loops[0].loop, &sleep.task);
    sf_waiter_wait(&sleep.waiter);
    sf_waiter_fini(&sleep.waiter);
}

/* Waits before try `n` (0 = the first, no wait); false when the tries are used up. */
static bool next_try(struct recovery *rec, unsigned n)
{
    if (n >= TRIES)
        return false;
    if (n > 0)
        sf_commit_sleep(rec->commit, rec->sched, 2ll << (n < 7 ? n : 7));
    return true;
}

static enum sf_err unavailable(struct recovery *rec, const char *what)
{
    return sf_diag_set(rec->diag, SF_ERR_UNAVAILABLE, "coordinator start: %s: no answer", what);
}

/* ---- claim -------------------------------------------------------------------------------------
 */

/* What stands at a shard's leader.json. */
struct claim {
    struct sf_leader_facts facts;
    struct sf_etag etag;
    bool absent;
    bool done;
    struct sf_buf body; /* ours */
};

static enum sf_err decode_leader(struct recovery *rec, struct sf_shard *shard, struct sf_view body,
                                 struct sf_leader_facts *facts)
{
    struct sf_arena *arena = sf_arena_new(1u << 20);
    ProtobufCMessage *message = NULL;
    enum sf_err err = sf_durable_decode(&searchfabric__v1__coordinator_leader_object__descriptor,
                                        body, arena, rec->diag, &message);
    const Searchfabric__V1__CoordinatorLeaderObject *leader = (const void *)message;
    if (err == SF_OK && leader->shard_id != shard->id)
        err = sf_diag_set(rec->diag, SF_ERR_CORRUPT, "leader object of another shard");
    for (size_t i = 0; err == SF_OK && i < leader->n_stream_starts; i++) {
        const Searchfabric__V1__WalStreamStart *start = leader->stream_starts[i];
        if (start->modality < 1 || start->modality > 2 || start->writer_mode < 1 ||
            start->writer_mode > 2)
            continue;
        unsigned stream = sf_wal_stream_of(start->modality, start->writer_mode);
        facts->start_epoch[stream] = start->chunk_epoch;
        facts->start_seq[stream] = start->chunk_seq;
    }
    if (err == SF_OK) {
        facts->epoch = leader->coordinator_epoch;
        facts->bound = leader->issued_upper_bound_ts;
        facts->sealed_below = leader->sealed_below_epoch;
    } else if (rec->diag != NULL) {
        sf_diag_wrap(rec->diag, "%.*s", (int)shard->leader_key.len,
                     (const char *)shard->leader_key.data);
    }
    sf_arena_destroy(arena);
    return err;
}

/* Reads what stands; SF_OK with `seen_own` when it is the claim that was sent. */
static enum sf_err read_claim(struct recovery *rec, struct sf_shard *shard, struct claim *claim,
                              bool *seen_own)
{
    struct sf_buf body = {0};
    *seen_own = false;
    enum sf_err err = sf_store_get_wait(rec->commit->deps.store, rec->sched,
                                        sf_buf_view(&shard->leader_key), &body, &claim->etag);
    if (err == SF_OK && claim->body.len > 0 &&
        sf_view_equal(sf_buf_view(&body), sf_buf_view(&claim->body))) {
        *seen_own = true;
    } else if (err == SF_OK) {
        claim->absent = false;
        err = decode_leader(rec, shard, sf_buf_view(&body), &claim->facts);
    } else if (err == SF_ERR_NOT_FOUND) {
        claim->absent = true;
        claim->facts = (struct sf_leader_facts){.sealed_below = 1};
        for (unsigned i = 0; i < SF_WAL_STREAMS; i++)
            claim->facts.start_epoch[i] = 1;
        err = SF_OK;
    }
    sf_buf_fini(&body);
    return err;
}

/* One round over the shards that are not claimed; `*left` counts those still open. */
static enum sf_err claim_round(struct recovery *rec, struct claim *claims, size_t *left)
{
    struct sf_commit *commit = rec->commit;
    struct sf_put *puts = sf_calloc(commit->deps.shard_count, sizeof(*puts));
    struct claim **of = sf_calloc(commit->deps.shard_count, sizeof(*of));
    size_t n = 0;
    enum sf_err err = SF_OK;
    *left = 0;
    for (uint32_t i = 0; i < commit->deps.shard_count && err == SF_OK; i++) {
        struct claim *claim = &claims[i];
        bool own = false;
        if (claim->done)
            continue;
        err = read_claim(rec, &commit->shards[i], claim, &own);
        if (err == SF_ERR_UNAVAILABLE) {
            ++*left;
            err = SF_OK;
        } else if (err == SF_OK && own) {
            claim->done = true;
        } else if (err == SF_OK) {
            claim->facts.epoch++;
            sf_buf_clear(&claim->body);
            sf_leader_encode(&commit->shards[i], &claim->facts, &claim->body);
            of[n] = claim;
            puts[n] = (struct sf_put){.key = sf_buf_view(&commit->shards[i].leader_key),
                                      .body = sf_buf_view(&claim->body),
                                      .cond = claim->absent ? SF_PUT_ABSENT : SF_PUT_MATCH,
                                      .match = claim->etag,
                                      .command = (uint32_t)n};
            if (SF_MUTANT(coord_claim_any))
                puts[n].cond = SF_PUT_ANY;
            n++;
        }
    }
    if (err == SF_OK && n > 0) {
        struct sf_batch batch = {.puts = puts, .count = n};
        sf_store_submit_wait(commit->deps.store, rec->sched, &batch);
    }
    for (size_t i = 0; i < n && err == SF_OK; i++) {
        of[i]->done = puts[i].err == SF_OK;
        if (puts[i].err == SF_OK)
            of[i]->etag = puts[i].etag;
        else
            ++*left;
    }
    free(puts);
    free(of);
    return err;
}

static void add_cursors(struct recovery *rec, struct sf_shard *shard,
                        const struct sf_leader_facts *facts)
{
    for (unsigned s = 0; s < SF_WAL_STREAMS; s++) {
        uint64_t epoch = facts->start_epoch[s] < facts->sealed_below ? facts->start_epoch[s]
                                                                     : facts->sealed_below;
        for (; epoch < facts->epoch; epoch++) {
            struct cursor *cursor = sf_calloc(1, sizeof(*cursor));
            cursor->shard = shard;
            cursor->stream = s;
            cursor->epoch = epoch;
            cursor->counts = epoch >= facts->start_epoch[s];
            cursor->seq = epoch == facts->start_epoch[s] ? facts->start_seq[s] : 0;
            cursor->first_seq = cursor->seq;
            if (rec->last == NULL)
                rec->first = cursor;
            else
                rec->last->next = cursor;
            rec->last = cursor;
        }
    }
}

static enum sf_err claim_all(struct recovery *rec)
{
    struct sf_commit *commit = rec->commit;
    struct claim *claims = sf_calloc(commit->deps.shard_count, sizeof(*claims));
    size_t left = 1;
    enum sf_err err = SF_OK;
    for (unsigned n = 0; err == SF_OK && left > 0; n++)
        err = next_try(rec, n) ? claim_round(rec, claims, &left) : unavailable(rec, "leader.json");
    for (uint32_t i = 0; i < commit->deps.shard_count; i++) {
        struct sf_shard *shard = &commit->shards[i];
        const struct sf_leader_facts *facts = &claims[i].facts;
        if (err == SF_OK) {
            shard->epoch = facts->epoch;
            shard->bound = shard->old_bound = shard->want_bound = facts->bound;
            shard->leader_etag = claims[i].etag;
            add_cursors(rec, shard, facts);
        }
        sf_buf_fini(&claims[i].body);
    }
    free(claims);
    return err;
}

/* ---- seal and read -----------------------------------------------------------------------------
 */

static enum sf_err corrupt_chunk(struct recovery *rec, const struct cursor *cursor,
                                 const char *what)
{
    return sf_diag_set(rec->diag, SF_ERR_CORRUPT, "%.*s: %s", (int)cursor->key.len,
                       (const char *)cursor->key.data, what);
}

/* Keeps the intents of a chunk; rows are not needed. */
static enum sf_err keep_frames(struct recovery *rec, struct cursor *cursor,
                               const struct sf_wal_chunk *chunk)
{
    for (size_t i = 0; i < chunk->count; i++) {
        const Searchfabric__V1__WalFrame *frame = chunk->records[i].frame;
        if (frame->kind == SEARCHFABRIC__V1__WAL_FRAME_KIND__WAL_FRAME_KIND_SEAL ||
            frame->intent == NULL || frame->coordinator_epoch != cursor->epoch ||
            strlen(frame->intent->write_intent_id) != SF_SHA256_HEX_BYTES - 1)
            return corrupt_chunk(rec, cursor, "frame does not belong here");
        struct found_frame *found = sf_calloc(1, sizeof(*found));
        found->seq = cursor->seq;
        found->abort = frame->kind == SEARCHFABRIC__V1__WAL_FRAME_KIND__WAL_FRAME_KIND_ABORT;
        found->intent =
            (const void *)sf_pb_dup(&frame->intent->base, cursor->shard->recovery_arena);
        found->place = chunk->records[i].place;
        if (cursor->frames_last == NULL)
            cursor->frames = found;
        else
            cursor->frames_last->next = found;
        cursor->frames_last = found;
        if (found->intent == NULL)
            return sf_diag_set(rec->diag, SF_ERR_LIMIT, "too many unpublished slices to recover");
    }
    return SF_OK;
}

static enum sf_err take_chunk(struct recovery *rec, struct cursor *cursor, struct sf_view body)
{
    struct sf_arena *arena = sf_arena_new(SF_LIMIT_WAL_CHUNK_ARENA_BYTES);
    struct sf_wal_chunk chunk;
    enum sf_err err = sf_wal_chunk_decode(body, arena, rec->diag, &chunk);
    if (err != SF_OK && rec->diag != NULL)
        sf_diag_wrap(rec->diag, "%.*s", (int)cursor->key.len, (const char *)cursor->key.data);
    if (err == SF_OK &&
        (chunk.header->chunk_epoch != cursor->epoch || chunk.header->chunk_seq != cursor->seq ||
         chunk.header->shard_id != cursor->shard->id))
        err = corrupt_chunk(rec, cursor, "chunk belongs to another key");
    if (err == SF_OK && sf_wal_chunk_is_seal(&chunk)) {
        cursor->sealed = true;
    } else if (err == SF_OK) {
        rec->commit->recovered_chunks++;
        if (cursor->counts)
            err = keep_frames(rec, cursor, &chunk);
        cursor->seq++;
    }
    sf_arena_destroy(arena);
    return err;
}

/* Reads on to the first missing number or the seal; an answer that does not come leaves the cursor
 * where it is. */
static enum sf_err read_on(struct recovery *rec, struct cursor *cursor)
{
    enum sf_err err = SF_OK;
    struct sf_buf body = {0};
    cursor->missing = false;
    while (err == SF_OK && !cursor->sealed && !cursor->missing) {
        sf_buf_clear(&cursor->key);
        sf_buf_clear(&body);
        sf_wal_chunk_key(&cursor->key, cursor->stream, cursor->shard->id, cursor->epoch,
                         cursor->seq);
        err = sf_store_get_wait(rec->commit->deps.store, rec->sched, sf_buf_view(&cursor->key),
                                &body, NULL);
        if (err == SF_ERR_NOT_FOUND) {
            cursor->missing = true;
            cursor->sealed = SF_MUTANT(coord_no_seal);
            err = SF_OK;
        } else if (err == SF_OK) {
            err = take_chunk(rec, cursor, sf_buf_view(&body));
        }
    }
    sf_buf_fini(&body);
    return err == SF_ERR_UNAVAILABLE ? SF_OK : err;
}

static void build_seal(struct recovery *rec, struct cursor *cursor)
{
    Searchfabric__V1__WalChunkHeader header = SEARCHFABRIC__V1__WAL_CHUNK_HEADER__INIT;
    Searchfabric__V1__WalFrame frame = SEARCHFABRIC__V1__WAL_FRAME__INIT;
    struct sf_wal_place place;
    char attempt[SF_ATTEMPT_ID_BYTES];
    sf_attempts_next(rec->commit->deps.attempts, attempt);
    header.format_version = 1;
    header.attempt_id = attempt;
    header.modality = sf_wal_stream_modality(cursor->stream);
    header.writer_mode = sf_wal_stream_mode(cursor->stream);
    header.shard_id = cursor->shard->id;
    header.chunk_epoch = cursor->epoch;
    header.chunk_seq = cursor->seq;
    header.writer_epoch = cursor->shard->epoch;
    header.owner_id = rec->commit->owner_id;
    frame.kind = SEARCHFABRIC__V1__WAL_FRAME_KIND__WAL_FRAME_KIND_SEAL;
    frame.coordinator_epoch = cursor->epoch;
    frame.sealing_epoch = cursor->shard->epoch;
    sf_buf_clear(&cursor->body);
    sf_wal_chunk_begin(&cursor->body, &header);
    sf_wal_chunk_add(&cursor->body, &frame, &place);
    sf_wal_chunk_end(&cursor->body, 1);
}

/* Puts the seals of all cursors that stand before a gap, in one batch. */
static void put_seals(struct recovery *rec, size_t count)
{
    struct sf_put *puts = sf_calloc(count, sizeof(*puts));
    struct cursor **of = sf_calloc(count, sizeof(*of));
    size_t n = 0;
    for (struct cursor *cursor = rec->first; cursor != NULL; cursor = cursor->next) {
        if (cursor->sealed || !cursor->missing)
            continue;
        build_seal(rec, cursor);
        of[n] = cursor;
        puts[n] = (struct sf_put){.key = sf_buf_view(&cursor->key),
                                  .body = sf_buf_view(&cursor->body),
                                  .cond = SF_PUT_ABSENT,
                                  .command = (uint32_t)n};
        n++;
    }
    struct sf_batch batch = {.puts = puts, .count = n};
    sf_store_submit_wait(rec->commit->deps.store, rec->sched, &batch);
    for (size_t i = 0; i < n; i++)
        of[i]->sealed = puts[i].err == SF_OK; /* else it is read again */
    free(puts);
    free(of);
}

static enum sf_err seal_all(struct recovery *rec)
{
    enum sf_err err = SF_OK;
    size_t open = 1;
    for (unsigned n = 0; err == SF_OK && open > 0; n++) {
        size_t missing = 0;
        if (!next_try(rec, n / 2)) /* a 412 is progress, not a failure: every other round waits */
            return unavailable(rec, "WAL");
        for (struct cursor *c = rec->first; c != NULL && err == SF_OK; c = c->next) {
            if (!c->sealed)
                err = read_on(rec, c);
            missing += !c->sealed && c->missing ? 1 : 0;
        }
        if (err == SF_OK && missing > 0)
            put_seals(rec, missing);
        open = 0;
        for (const struct cursor *c = rec->first; c != NULL; c = c->next)
            open += c->sealed ? 0 : 1;
    }
    return err;
}

/* ---- judge -------------------------------------------------------------------------------------
 */

/* All frames of one slice under one epoch. */
struct group {
    const Searchfabric__V1__WriteIntent *intent;
    uint64_t epoch;
    uint8_t touched;
    uint8_t completed;
    struct sf_commit_anchor anchors[SF_MODALITY_COUNT];
    struct sf_wal_mark *marks[SF_WAL_STREAMS];
};

static void group_key(struct sf_buf *out, const char *id, uint64_t epoch)
{
    sf_buf_clear(out);
    sf_buf_printf(out, "%s/%" PRIu64, id, epoch);
}

static void add_frame(struct sf_map *groups, const struct cursor *cursor,
                      const struct found_frame *frame, struct sf_wal_mark *mark, struct sf_buf *key)
{
    group_key(key, frame->intent->write_intent_id, cursor->epoch);
    struct group *group = sf_map_get(groups, sf_buf_view(key));
    if (group == NULL) {
        group = sf_calloc(1, sizeof(*group));
        group->intent = frame->intent;
        group->epoch = cursor->epoch;
        for (size_t i = 0; i < frame->intent->n_touched_modalities; i++) {
            unsigned m = (unsigned)frame->intent->touched_modalities[i];
            if (m >= 1 && m <= SF_MODALITY_COUNT)
                group->touched |= SF_MODALITY_BIT(m);
        }
        (void)sf_map_put(groups, sf_buf_view(key), group);
    }
    uint8_t fresh =
        (uint8_t)(sf_wal_stream_covers(cursor->stream) & group->touched & ~group->completed);
    for (unsigned m = 0; m < SF_MODALITY_COUNT; m++) {
        if ((fresh & (1u << m)) != 0)
            group->anchors[m] =
                (struct sf_commit_anchor){cursor->stream, cursor->epoch, frame->seq, frame->place};
    }
    group->completed |= fresh;
    if (fresh != 0)
        group->marks[cursor->stream] = mark;
}

/* Gathers a shard's frames into groups and adds the chunk marks in stream order. */
static void gather(struct recovery *rec, struct sf_shard *shard, struct sf_map *groups,
                   struct sf_map *aborted)
{
    struct sf_buf key = {0};
    for (struct cursor *cursor = rec->first; cursor != NULL; cursor = cursor->next) {
        struct sf_wal_mark *mark = NULL;
        if (cursor->shard != shard)
            continue;
        for (const struct found_frame *f = cursor->frames; f != NULL; f = f->next) {
            if (mark == NULL || mark->seq != f->seq) {
                mark = sf_wal_mark_add(&shard->streams[cursor->stream], cursor->epoch, f->seq);
                mark->landed = true;
            }
            if (f->abort)
                (void)sf_map_put(aborted, sf_view_str(f->intent->write_intent_id), groups);
            else
                add_frame(groups, cursor, f, mark, &key);
        }
    }
    sf_buf_fini(&key);
}

static struct sf_recovered_lane *lane_of(struct sf_map *by_collection,
                                         struct sf_recovered_lane **lanes,
                                         struct sf_collection_ref collection)
{
    struct sf_view key = sf_view_bytes(&collection, sizeof(collection));
    struct sf_recovered_lane *lane = sf_map_get(by_collection, key);
    if (lane == NULL) {
        lane = sf_calloc(1, sizeof(*lane));
        lane->collection = collection;
        lane->next = *lanes;
        *lanes = lane;
        (void)sf_map_put(by_collection, key, lane);
    }
    return lane;
}

static int by_commit_ts(const void *left, const void *right)
{
    const struct group *a = *(struct group *const *)left;
    const struct group *b = *(struct group *const *)right;
    return (a->intent->commit_ts > b->intent->commit_ts) -
           (a->intent->commit_ts < b->intent->commit_ts);
}

static void keep_standing(struct recovery *rec, const struct group *group,
                          struct sf_map *by_collection, struct sf_recovered_lane **lanes)
{
    const Searchfabric__V1__CollectionRef *ref = group->intent->collection;
    struct sf_recovered_lane *lane =
        lane_of(by_collection, lanes,
                (struct sf_collection_ref){{ref->namespace_id}, {ref->collection_id}});
    struct sf_recovered *recovered = sf_calloc(1, sizeof(*recovered));
    recovered->intent = group->intent;
    memcpy(recovered->anchors, group->anchors, sizeof(recovered->anchors));
    memcpy(recovered->wal_marks, group->marks, sizeof(recovered->wal_marks));
    for (unsigned i = 0; i < SF_WAL_STREAMS; i++) {
        if (recovered->wal_marks[i] != NULL)
            recovered->wal_marks[i]->unpublished++;
    }
    if (lane->last == NULL)
        lane->first = recovered;
    else
        lane->last->next = recovered;
    lane->last = recovered;
    rec->commit->recovered_slices++;
}

static void judge(struct recovery *rec, struct sf_shard *shard, struct sf_recovered_lane **lanes)
{
    struct sf_map *groups = sf_map_new();
    struct sf_map *aborted = sf_map_new();
    struct sf_map *by_collection = sf_map_new();
    struct sf_map_iter iter = {0};
    struct group **sorted;
    size_t n = 0;
    gather(rec, shard, groups, aborted);
    sorted = sf_calloc(sf_map_count(groups) + 1, sizeof(sorted[0]));
    while (sf_map_next(groups, &iter)) {
        struct group *group = iter.value;
        bool stands = group->touched != 0 && group->completed == group->touched;
        if (SF_MUTANT(coord_half_durable))
            stands = group->completed != 0;
        if (stands && group->intent->collection != NULL &&
            sf_map_get(aborted, sf_view_str(group->intent->write_intent_id)) == NULL)
            sorted[n++] = group;
    }
    qsort(sorted, n, sizeof(sorted[0]), by_commit_ts);
    for (size_t i = 0; i < n && !SF_MUTANT(coord_no_replay); i++)
        keep_standing(rec, sorted[i], by_collection, lanes);
    free(sorted);
    sf_map_destroy(groups, free);
    sf_map_destroy(aborted, NULL);
    sf_map_destroy(by_collection, NULL);
}

/* ---- record ------------------------------------------------------------------------------------
 */

/* What became of one put of leader.json; `leader_again` stays set while it has to be repeated. */
static enum sf_err settle_record(struct recovery *rec, struct sf_shard *shard,
                                 const struct sf_put *put)
{
    struct claim claim = {.body = shard->leader_body, .etag = shard->leader_etag};
    bool own = put->err == SF_OK;
    enum sf_err err = SF_OK;
    if (own)
        claim.etag = put->etag;
    else if (put->err == SF_ERR_PRECONDITION || put->err == SF_ERR_AMBIGUOUS)
        err = read_claim(rec, shard, &claim, &own);
    if (err == SF_ERR_UNAVAILABLE)
        return SF_OK;
    if (err != SF_OK)
        return err;
    if (own) {
        shard->leader_etag = claim.etag;
        shard->leader_again = false;
    } else if (strcmp(claim.etag.text, shard->leader_etag.text) != 0) {
        shard->state = SF_SHARD_DEPOSED; /* claimed by another owner meanwhile: it stays theirs */
        shard->leader_again = false;
    }
    return SF_OK;
}

/* One try for all shards that are not recorded yet; `*left` counts those that still are not. */
static enum sf_err record_round(struct recovery *rec, size_t *left)
{
    struct sf_commit *commit = rec->commit;
    struct sf_put *puts = sf_calloc(commit->deps.shard_count, sizeof(*puts));
    struct sf_shard **of = sf_calloc(commit->deps.shard_count, sizeof(*of));
    size_t count = 0;
    enum sf_err err = SF_OK;
    for (uint32_t i = 0; i < commit->deps.shard_count; i++) {
        struct sf_shard *shard = &commit->shards[i];
        if (!shard->leader_again)
            continue;
        of[count] = shard;
        puts[count] = (struct sf_put){.key = sf_buf_view(&shard->leader_key),
                                      .body = sf_buf_view(&shard->leader_body),
                                      .cond = SF_PUT_MATCH,
                                      .match = shard->leader_etag,
                                      .command = (uint32_t)count};
        count++;
    }
    struct sf_batch batch = {.puts = puts, .count = count};
    sf_store_submit_wait(commit->deps.store, rec->sched, &batch);
    *left = 0;
    for (size_t i = 0; i < count && err == SF_OK; i++) {
        err = settle_record(rec, of[i], &puts[i]);
        *left += of[i]->leader_again ? 1 : 0;
    }
    free(puts);
    free(of);
    return err;
}

/* Makes sealed_below_epoch and the starts durable for every shard. */
static enum sf_err record_all(struct recovery *rec)
{
    struct sf_commit *commit = rec->commit;
    size_t left = commit->deps.shard_count;
    enum sf_err err = SF_OK;
    for (uint32_t i = 0; i < commit->deps.shard_count; i++) {
        struct sf_shard *shard = &commit->shards[i];
        sf_buf_clear(&shard->leader_body);
        sf_shard_leader_encode(shard, shard->bound, &shard->leader_body);
        shard->leader_again = true;
    }
    for (unsigned n = 0; err == SF_OK && left > 0; n++)
        err = next_try(rec, n) ? record_round(rec, &left) : unavailable(rec, "leader.json");
    return err;
}

static void cursors_free(struct recovery *rec)
{
    while (rec->first != NULL) {
        struct cursor *cursor = rec->first;
        rec->first = cursor->next;
        while (cursor->frames != NULL) {
            struct found_frame *frame = cursor->frames;
            cursor->frames = frame->next;
            free(frame);
        }
        sf_buf_fini(&cursor->key);
        sf_buf_fini(&cursor->body);
        free(cursor);
    }
}

enum sf_err sf_commit_recover(struct sf_commit *commit, struct sf_sched *sched,
                              struct sf_diag *diag, struct sf_recovered_lane **out_recovered)
{
    struct recovery rec = {.commit = commit, .sched = sched, .diag = diag};
    enum sf_err err = claim_all(&rec);
    if (err == SF_OK)
        err = seal_all(&rec);
    for (uint32_t i = 0; err == SF_OK && i < commit->deps.shard_count; i++)
        judge(&rec, &commit->shards[i], &out_recovered[i]);
    if (err == SF_OK)
        err = record_all(&rec);
    cursors_free(&rec);
    return err;
}
