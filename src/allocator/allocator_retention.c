/*
 * Model: a round walks the keys below id-allocator/ in byte order from its cursor on and looks at
 * each object: what is older than the window goes, what does not verify stays. A cycle is rounds
 * until the end; the next one waits until the oldest object that stayed is due, so that an idle
 * store is left alone. Rounds take at most a fifth of one worker.
 *
 * An old result stays while its collection needs it: while pending_applies names it, while the
 * collection has no state object that verifies (its results are then all that is known of its ids),
 * and while its ids end at the watermark or are the last of a recorded lease: a lost state object
 * is rebuilt from it. State objects are never removed.
 *
 * Failure audits and segments have keys of their own for good; their deletes need no list. The
 * newest segment stays, it is where numbering goes on.
 */
#include "allocator/allocator_retention.h"

#include <stdlib.h>
#include <string.h>

#include "allocator/allocator_artifacts.h"
#include "allocator/allocator_removals.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "object/compress.h"

#define PREFIX            "id-allocator/"
#define BATCH             128
#define BACKGROUND_MAX    2000  /* objects of a round */
#define MAX_UNREADABLE    16    /* in one round; then it is the store */
#define FIRST_MS          60000 /* after the start */
#define ROUND_MS          1000  /* between the rounds of a cycle, at least */
#define IDLE_PARTS        4     /* a round of n ms is followed by 4n ms of rest */
#define CYCLES_PER_WINDOW 28    /* so old objects go at most a 28th of the window late */

struct sf_alloc_retention {
    /* immutable */
    struct sf_allocator *allocator; /* whose */
    struct sf_metric_family *seen;  /* objects by outcome */

    /* loop */
    struct sf_task arm;    /* brings the next round to the timer */
    struct sf_task stop;   /* of a drain */
    struct sf_timer timer; /* until the next round */
    bool stopped;          /* no round begins any more */

    /* lane of the rounds; delay_ms is handed to the loop with `arm` */
    struct sf_task lane_task;           /* a round */
    struct sf_alloc_removals *removals; /* owned */
    struct sf_buf cursor;               /* of the background cycle */
    int64_t cycle_unix_ms;              /* when it began, 0 = none is under way */
    int64_t oldest_unix_ms;             /* of what stayed for being young, in this cycle */
    int64_t delay_ms;                   /* to the next round */
    bool failed;                        /* the last round failed, and that was logged */
};

/* A result that may go. */
struct candidate {
    char key[SF_SHA256_HEX_BYTES];       /* transport_lookup_key */
    struct sf_collection_ref collection; /* whose */
    struct sf_watermark end;             /* above its highest id */
    struct sf_etag etag;                 /* of the object that was looked at */
    bool keep;                           /* its collection needs it */
};

/* A round under way. */
struct walk {
    struct sf_alloc_retention *retention; /* whose */
    struct sf_alloc_round *round;         /* its numbers */
    struct sf_diag *diag;                 /* of the caller */
    struct sf_arena *arena;               /* of one object; reset between */
    struct candidate batch[BATCH];        /* gathered results */
    size_t count;                         /* of them */
    unsigned unreadable;                  /* objects that could not be read */
    struct sf_buf segment; /* key of an old segment that is not the newest known yet */
};

static struct sf_allocator_deps *deps_of(struct walk *w)
{
    return &w->retention->allocator->deps;
}

static int64_t window_ms(const struct sf_allocator *a)
{
    return a->deps.replay_retention_ms == 0 ? SF_ALLOC_RETENTION_MS : a->deps.replay_retention_ms;
}

/* On the axis of apply times. */
static int64_t applied_now(const struct sf_allocator *a)
{
    return sf_clock_unix_ms(a->deps.applied_clock == NULL ? a->deps.clock : a->deps.applied_clock);
}

bool sf_alloc_answer_is_young(const struct sf_allocator *a, int64_t applied_at_unix_ms)
{
    int64_t window = window_ms(a);
    int64_t margin =
        window / 8 < SF_ALLOC_ANSWER_MARGIN_MS ? window / 8 : SF_ALLOC_ANSWER_MARGIN_MS;

    return applied_now(a) - applied_at_unix_ms < window - margin ||
           SF_MUTANT(alloc_remembers_for_ever);
}

/* ---- results ---- */

static bool same_collection(const struct candidate *a, const struct candidate *b)
{
    return a->collection.namespace_id.v == b->collection.namespace_id.v &&
           a->collection.collection_id.v == b->collection.collection_id.v;
}

/* Does the state need the result? */
static bool state_needs(const Searchfabric__V1__AllocatorStateObject *state,
                        struct sf_watermark mark, const struct candidate *c)
{
    bool needed = sf_watermark_compare(c->end, mark) >= 0;

    for (size_t k = 0; k < state->n_pending_applies; k++)
        needed = needed || strcmp(state->pending_applies[k]->transport_lookup_key, c->key) == 0;
    return needed && !SF_MUTANT(alloc_removes_needed);
}

/* The batch's newest result of a recorded lease, whose end no result reaches, or the one that the
 * lease follows; NULL = none. */
static const struct candidate *newest_of_lease(const struct walk *w, size_t at,
                                               const Searchfabric__V1__AllocatorStateObject *state)
{
    const struct candidate *newest = NULL;
    struct sf_watermark start = {0};

    if (state->lease == NULL || !sf_watermark_parse(sf_view_str(state->lease->range_start), &start))
        return NULL;
    for (size_t i = at; i < w->count; i++)
        if (same_collection(&w->batch[i], &w->batch[at]) &&
            sf_watermark_compare(w->batch[i].end, newest == NULL ? start : newest->end) >= 0)
            newest = &w->batch[i];
    return newest;
}

/* What the state object of a member's collection says of it and of those behind it. */
static void judge(struct walk *w, size_t at)
{
    struct candidate *c = &w->batch[at];
    Searchfabric__V1__AllocatorStateObject *state = NULL;
    struct sf_watermark mark;

    sf_arena_reset(w->arena);
    enum sf_err err = sf_alloc_state_read_wait(deps_of(w)->store, deps_of(w)->sched, c->collection,
                                               w->arena, NULL, &state, &mark, NULL);
    bool known = err == SF_OK;
    bool lost = err == SF_ERR_NOT_FOUND || err == SF_INTERNAL;
    const struct candidate *newest = known ? newest_of_lease(w, at, state) : NULL;
    for (size_t i = at; i < w->count; i++) {
        struct candidate *other = &w->batch[i];
        if (!same_collection(other, c))
            continue;
        bool needed = known && (other == newest || state_needs(state, mark, other));
        other->keep = !known || needed;
        w->round->needed += needed ? 1 : 0;
        w->round->without_state += lost ? 1 : 0; /* else it could not be read: a later round */
    }
}

/* Drops what is kept from the batch. */
static void batch_judge(struct walk *w)
{
    bool seen[BATCH] = {false};
    size_t left = 0;

    for (size_t i = 0; i < w->count; i++) {
        if (seen[i])
            continue;
        judge(w, i);
        for (size_t k = i; k < w->count; k++)
            seen[k] = seen[k] || same_collection(&w->batch[k], &w->batch[i]);
    }
    for (size_t i = 0; i < w->count; i++)
        if (!w->batch[i].keep)
            w->batch[left++] = w->batch[i];
    w->count = left;
}

/* Does the very object that was looked at still stand? Between the look and the list another
 * process may have removed it, and the key been used again; from the list on nobody else does. */
static bool still_stands(struct walk *w, const struct candidate *c, struct sf_view key)
{
    struct sf_buf body = {0};
    struct sf_etag etag;

    if (deps_of(w)->store->exclusive || SF_MUTANT(alloc_deletes_unread))
        return true;
    enum sf_err err = sf_store_get_wait(deps_of(w)->store, deps_of(w)->sched, key, &body, &etag);
    sf_buf_fini(&body);
    return err == SF_OK && strcmp(etag.text, c->etag.text) == 0;
}

/* Sends one delete under the list that stands. */
static void remove_one(struct walk *w, const struct candidate *c)
{
    struct sf_alloc_removals *removals = w->retention->removals;
    struct sf_buf key = {0};

    if (sf_alloc_removals_in_doubt(removals, c->key)) { /* taken over from another process */
        w->round->in_doubt++;
        return;
    }
    sf_alloc_replay_key(c->key, &key);
    if (!still_stands(w, c, sf_buf_view(&key)) || !sf_alloc_removals_may_send(removals)) {
        sf_buf_fini(&key);
        return;
    }
    enum sf_err err = sf_store_remove_wait(deps_of(w)->store, deps_of(w)->sched, sf_buf_view(&key));
    if (err == SF_OK) {
        w->round->results++;
        sf_alloc_note_removed(w->retention->allocator, c->key);
    } else {
        w->round->in_doubt++;
        sf_alloc_removals_doubt(removals, c->key);
    }
    sf_buf_fini(&key);
}

/* Removes the batch. */
static enum sf_err batch_remove(struct walk *w)
{
    const char *keys[BATCH];
    enum sf_err err = SF_OK;

    batch_judge(w);
    for (size_t i = 0; i < w->count; i++)
        keys[i] = w->batch[i].key;
    if (w->round->dry_run)
        w->round->results += w->count;
    else if (w->count != 0)
        err = sf_alloc_removals_begin(w->retention->removals, keys, w->count, w->diag);
    for (size_t i = 0; !w->round->dry_run && err == SF_OK && i < w->count &&
                       sf_alloc_removals_may_send(w->retention->removals);
         i++)
        remove_one(w, &w->batch[i]);
    w->count = 0;
    return err;
}

/* Looks whether the receipt of a result that stays can still be verified. */
static void check_receipt(struct walk *w, const sf_replay_record *record)
{
    struct sf_view claims;
    enum sf_token_reason reason = sf_token_verify(
        deps_of(w)->keyring, SF_TOKEN_ALLOCATOR_RECEIPT, sf_clock_unix_ms(deps_of(w)->clock),
        sf_view_bytes(record->allocator_receipt.data, record->allocator_receipt.len), &claims);

    if (reason == SF_TOKEN_OK)
        return;
    if (w->round->keyless++ == 0)
        SF_LOG(WARN, "alloc_receipt_unverifiable", SF_KV_STR("key_id", record->key_id),
               SF_KV_STR("reason", sf_token_reason_text(reason)),
               SF_KV_STR("transport_lookup_key", record->transport_lookup_key));
}

/* Notes that an object of that age stays for being young; false: it is old. */
static bool is_young(struct walk *w, int64_t born_unix_ms)
{
    if (born_unix_ms < w->round->cut_unix_ms)
        return false;
    if (born_unix_ms < w->round->oldest_unix_ms)
        w->round->oldest_unix_ms = born_unix_ms;
    return true;
}

static enum sf_err examine_result(struct walk *w, const sf_replay_record *record,
                                  const struct sf_etag *etag)
{
    if (is_young(w, record->applied_at_unix_ms)) {
        check_receipt(w, record);
        return SF_OK;
    }
    if (sf_alloc_removals_in_doubt(w->retention->removals, record->transport_lookup_key)) {
        w->round->in_doubt++;
        return SF_OK;
    }
    struct candidate *c = &w->batch[w->count++];
    *c = (struct candidate){.collection = {{record->namespace_id}, {record->collection_id}},
                            .end = sf_alloc_items_end(record)};
    memcpy(c->key, record->transport_lookup_key, sizeof(c->key));
    c->etag = *etag;
    return w->count == BATCH ? batch_remove(w) : SF_OK;
}

/* ---- artifacts ---- */

static void artifact_remove(struct walk *w, struct sf_view key)
{
    if (w->round->dry_run ||
        sf_store_remove_wait(deps_of(w)->store, deps_of(w)->sched, key) == SF_OK)
        w->round->artifacts++;
}

/* An old segment goes once a newer one is seen. */
static void examine_segment(struct walk *w, struct sf_view key, int64_t created_at_unix_ms)
{
    if (w->segment.len != 0)
        artifact_remove(w, sf_buf_view(&w->segment));
    sf_buf_clear(&w->segment);
    if (!is_young(w, created_at_unix_ms))
        sf_buf_append(&w->segment, key.ptr, key.len);
}

/* ---- the walk ---- */

static bool starts_with(struct sf_view key, const char *prefix)
{
    return key.len > strlen(prefix) && memcmp(key.ptr, prefix, strlen(prefix)) == 0;
}

/* Decodes by the key's family; SF_ERR_NOT_FOUND: of none. */
static enum sf_err decode(struct walk *w, struct sf_view key, struct sf_view body,
                          const ProtobufCMessageDescriptor **out_desc,
                          ProtobufCMessage **out_message)
{
    struct sf_buf plain = {0};
    enum sf_err err = SF_OK;

    if (starts_with(key, SF_ALLOC_REPLAY_PREFIX))
        *out_desc = &searchfabric__v1__allocator_replay_success_object__descriptor;
    else if (starts_with(key, SF_ALLOC_AUDIT_PREFIX))
        *out_desc = &searchfabric__v1__allocator_failure_audit_object__descriptor;
    else
        *out_desc = &searchfabric__v1__allocator_recovery_segment_object__descriptor;
    if (starts_with(key, SF_ALLOC_SEGMENT_PREFIX)) {
        err = sf_expand(body, &plain, NULL);
        body = sf_buf_view(&plain);
    }
    if (err == SF_OK)
        err = sf_durable_decode(*out_desc, body, w->arena, NULL, out_message);
    sf_buf_fini(&plain);
    return err;
}

static enum sf_err examine(struct walk *w, struct sf_view key)
{
    const ProtobufCMessageDescriptor *desc = NULL;
    ProtobufCMessage *message = NULL;
    struct sf_buf body = {0};
    struct sf_etag etag;
    enum sf_err err = sf_store_get_wait(deps_of(w)->store, deps_of(w)->sched, key, &body, &etag);

    w->round->examined++;
    if (err != SF_OK) { /* one object must not keep the others: it is passed by */
        sf_buf_fini(&body);
        w->round->broken += err == SF_ERR_NOT_FOUND ? 0 : 1;
        if (err == SF_ERR_NOT_FOUND || ++w->unreadable < MAX_UNREADABLE)
            return SF_OK;
        return sf_diag_set(w->diag, err, "objects cannot be read");
    }
    sf_arena_reset(w->arena);
    err = decode(w, key, sf_buf_view(&body), &desc, &message);
    sf_buf_fini(&body);
    if (err != SF_OK) {
        w->round->broken++;
        return SF_OK;
    }
    if (desc == &searchfabric__v1__allocator_replay_success_object__descriptor) {
        const sf_replay_record *record = (const sf_replay_record *)message;
        if (sf_alloc_record_is_at(record, key))
            return examine_result(w, record, &etag);
        w->round->broken++;
    } else if (desc == &searchfabric__v1__allocator_recovery_segment_object__descriptor) {
        examine_segment(w, key,
                        ((const Searchfabric__V1__AllocatorRecoverySegmentObject *)message)
                            ->created_at_unix_ms);
    } else if (!is_young(w, ((const Searchfabric__V1__AllocatorFailureAuditObject *)message)
                                ->failed_at_unix_ms)) {
        artifact_remove(w, key);
    }
    return SF_OK;
}

/* One page from the cursor on; *out_end: nothing is left. */
static enum sf_err walk_page(struct walk *w, bool *out_end)
{
    struct sf_arena *page = sf_arena_new(SF_ALLOC_DECODE_BYTES);
    struct sf_alloc_round *round = w->round;
    struct sf_list_entry *entries = NULL;
    size_t count = 0;
    enum sf_err err = sf_store_list_wait(deps_of(w)->store, deps_of(w)->sched, sf_view_str(PREFIX),
                                         sf_buf_view(&round->cursor), SF_LIMIT_LIST_PAGE_ENTRIES,
                                         page, &entries, &count);

    if (err != SF_OK)
        sf_diag_set(w->diag, err, "objects cannot be listed");
    *out_end = err == SF_OK && count < SF_LIMIT_LIST_PAGE_ENTRIES;
    for (size_t i = 0; err == SF_OK && i < count; i++) {
        if (starts_with(entries[i].key, SF_ALLOC_STATE_PREFIX)) { /* they come last, and stay */
            *out_end = true;
            break;
        }
        if (round->examined >= round->max_objects ||
            atomic_load(&w->retention->allocator->draining)) {
            *out_end = false;
            break;
        }
        if (starts_with(entries[i].key, SF_ALLOC_REPLAY_PREFIX) ||
            starts_with(entries[i].key, SF_ALLOC_AUDIT_PREFIX) ||
            starts_with(entries[i].key, SF_ALLOC_SEGMENT_PREFIX))
            err = examine(w, entries[i].key);
        if (err == SF_OK) {
            sf_buf_clear(&round->cursor);
            sf_buf_append(&round->cursor, entries[i].key.ptr, entries[i].key.len);
        }
    }
    sf_arena_destroy(page);
    return err;
}

static void count_seen(struct sf_alloc_retention *r, const char *outcome, uint64_t objects)
{
    if (objects != 0)
        sf_metric_add(sf_metric_series(r->seen, (const char *const[]){outcome, NULL}),
                      (int64_t)objects);
}

static void round_tell(struct sf_alloc_retention *r, const struct sf_alloc_round *round)
{
    if (round->dry_run)
        return;
    count_seen(r, "examined", round->examined);
    count_seen(r, "result_removed", round->results);
    count_seen(r, "artifact_removed", round->artifacts);
    count_seen(r, "kept_needed", round->needed);
    count_seen(r, "kept_without_state", round->without_state);
    count_seen(r, "kept_in_doubt", round->in_doubt);
    count_seen(r, "broken", round->broken);
    count_seen(r, "receipt_unverifiable", round->keyless);
    if (round->results != 0 || round->artifacts != 0)
        SF_LOG(INFO, "alloc_retention", SF_KV_U64("results", round->results),
               SF_KV_U64("artifacts", round->artifacts), SF_KV_U64("examined", round->examined));
}

enum sf_err sf_alloc_retention_round(struct sf_alloc_retention *r, struct sf_alloc_round *round,
                                     struct sf_diag *diag)
{
    struct walk *w = sf_calloc(1, sizeof(*w));
    enum sf_err err = SF_OK;
    bool end = false;

    *w = (struct walk){.retention = r, .round = round, .diag = diag};
    w->arena = sf_arena_new(SF_ALLOC_DECODE_BYTES);
    round->cut_unix_ms = applied_now(r->allocator) - window_ms(r->allocator);
    round->oldest_unix_ms = INT64_MAX;
    while (err == SF_OK && !end && round->examined < round->max_objects &&
           !atomic_load(&r->allocator->draining))
        err = walk_page(w, &end);
    if (err == SF_OK && w->count != 0)
        err = batch_remove(w);
    if (end)
        sf_buf_clear(&round->cursor);
    round_tell(r, round);
    sf_arena_destroy(w->arena);
    sf_buf_fini(&w->segment);
    free(w);
    return err;
}

/* ---- the background cycle ---- */

/* Decides when the next round runs. */
static void plan_next(struct sf_alloc_retention *r, const struct sf_alloc_round *round,
                      int64_t took_ms)
{
    int64_t window = window_ms(r->allocator);
    int64_t due =
        round->oldest_unix_ms < r->oldest_unix_ms ? round->oldest_unix_ms : r->oldest_unix_ms;

    r->oldest_unix_ms = due;
    r->delay_ms = IDLE_PARTS * took_ms > ROUND_MS ? IDLE_PARTS * took_ms : ROUND_MS;
    if (r->cursor.len != 0)
        return;
    /* the end of a cycle: what was born since it began is younger than its beginning */
    if (due > r->cycle_unix_ms)
        due = r->cycle_unix_ms;
    int64_t wait = due + window - applied_now(r->allocator);
    r->delay_ms = wait > window / CYCLES_PER_WINDOW ? wait : window / CYCLES_PER_WINDOW;
    r->cycle_unix_ms = 0;
}

static void on_lane(struct sf_task *task)
{
    struct sf_alloc_retention *r = SF_CONTAINER_OF(task, struct sf_alloc_retention, lane_task);
    struct sf_allocator *a = r->allocator;
    struct sf_alloc_round round = {.max_objects = BACKGROUND_MAX, .cursor = r->cursor};
    int64_t began = sf_clock_mono_ms(a->deps.clock);
    struct sf_diag diag;

    sf_diag_init(&diag);
    if (r->cycle_unix_ms == 0) {
        r->cycle_unix_ms = applied_now(a);
        r->oldest_unix_ms = INT64_MAX;
    }
    enum sf_err err = sf_alloc_retention_round(r, &round, &diag);
    r->cursor = round.cursor;
    if (err != SF_OK && !r->failed)
        SF_LOG(WARN, "alloc_retention_failed", SF_KV_STR("reason", diag.message));
    r->failed = err != SF_OK;
    plan_next(r, &round, sf_clock_mono_ms(a->deps.clock) - began);
    if (err != SF_OK)
        r->delay_ms = FIRST_MS;
    sf_loop_post(a->shards[0].loop, &r->arm);
}

static void fired(struct sf_timer *timer)
{
    struct sf_alloc_retention *r = SF_CONTAINER_OF(timer, struct sf_alloc_retention, timer);

    if (atomic_load(&r->allocator->draining))
        return;
    atomic_fetch_add(&r->allocator->open, 1);
    if (sf_sched_submit(r->allocator->deps.sched, SF_ALLOC_RETENTION_LANE, &r->lane_task) == SF_OK)
        return;
    sf_timer_start(&r->timer, ROUND_MS);
    sf_alloc_closed_one(r->allocator);
}

/* After a round, which counts as open until here. */
static void arm(struct sf_task *task)
{
    struct sf_alloc_retention *r = SF_CONTAINER_OF(task, struct sf_alloc_retention, arm);

    if (!r->stopped)
        sf_timer_start(&r->timer, r->delay_ms);
    sf_alloc_closed_one(r->allocator);
}

static void stop(struct sf_task *task)
{
    struct sf_alloc_retention *r = SF_CONTAINER_OF(task, struct sf_alloc_retention, stop);

    r->stopped = true;
    sf_timer_stop(&r->timer);
    sf_alloc_closed_one(r->allocator);
}

struct sf_alloc_retention *sf_alloc_retention_new(struct sf_allocator *a)
{
    struct sf_alloc_retention *r;
    static const char *const by_outcome[] = {"outcome", NULL};
    struct sf_metric_family *seen = sf_metrics_family(
        a->deps.metrics, SF_METRIC_COUNTER, "searchfabric_id_allocator_retention_objects_total",
        "Objects that retention looked at", by_outcome);

    if (a->deps.sched == NULL)
        return NULL;
    r = sf_calloc(1, sizeof(*r));
    r->allocator = a;
    r->seen = seen;
    r->removals = sf_alloc_removals_new(a);
    r->arm.run = arm;
    r->stop.run = stop;
    r->lane_task.run = on_lane;
    sf_timer_init(&r->timer, a->shards[0].loop, fired);
    return r;
}

void sf_alloc_retention_start(struct sf_alloc_retention *r)
{
    if (r == NULL || !r->allocator->deps.run_retention)
        return;
    r->delay_ms = FIRST_MS;
    atomic_fetch_add(&r->allocator->open, 1);
    sf_loop_post(r->allocator->shards[0].loop, &r->arm);
}

void sf_alloc_retention_drain(struct sf_alloc_retention *r)
{
    if (r == NULL)
        return;
    atomic_fetch_add(&r->allocator->open, 1);
    sf_loop_post(r->allocator->shards[0].loop, &r->stop);
}

void sf_alloc_retention_destroy(struct sf_alloc_retention *r)
{
    if (r == NULL)
        return;
    if (sf_timer_active(&r->timer))
        sf_timer_stop(&r->timer);
    sf_alloc_removals_destroy(r->removals);
    sf_buf_fini(&r->cursor);
    free(r);
}
