#include "publish/publisher.h"

#include <stdlib.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "base/pb.h"
#include "base/rng.h"
#include "publish/manifest.h"

/*
 * One publish is one batch of three stages: overflow lists, the manifest under the next free
 * number, the swap of the head. What is not known to stand is sent again, same bytes and condition,
 * until it does; a number found taken is passed over, never adopted; a head found moved is read
 * again with its whole lineage, and slices already in it are left out of the next try. A head with
 * a higher publisher_epoch ends this publisher.
 *
 *   IDLE -> PUTTING -> IDLE                       published
 *            |  ^-> BACKOFF                        store busy: the same bytes again
 *            |-> READING manifest or head -> PUTTING, IDLE, LOADING
 *   LOADING -> IDLE                                first load, or the head moved
 */

enum pub_state {
    PUB_NEW,
    PUB_LOADING,
    PUB_IDLE,
    PUB_PUTTING,
    PUB_READING,
    PUB_BACKOFF,
    PUB_STOPPED
};

struct sf_publisher {
    struct sf_publisher_options options; /* immutable */
    const struct sf_publisher_ops *ops;
    void *user;
    /* loop */
    enum pub_state state;
    bool destroyed;                 /* free when no call is under way */
    bool loaded;                    /* `loaded` was answered SF_OK */
    unsigned calls;                 /* store calls of this publisher under way */
    unsigned failures;              /* in a row, for the back-off */
    struct sf_manifest_state base;  /* what the committed head holds */
    struct sf_manifest_queue ready; /* handed over, oldest first; the first `taken` are under way */
    size_t taken;                   /* of ready, in the publish under way */
    uint64_t highest_tried;         /* highest manifest number that was found taken */
    struct sf_manifest_plan plan;   /* the publish under way */
    bool manifest_stands;           /* of the plan */
    bool reading_head;              /* else the manifest */
    struct sf_put puts[SF_MANIFEST_PLAN_LISTS + 2];
    struct sf_manifest_list *sent_lists[SF_MANIFEST_PLAN_LISTS]; /* of the first puts */
    size_t list_puts;
    struct sf_batch batch;
    struct sf_get get;
    struct sf_buf get_key;
    struct sf_chain chain; /* of the load under way */
    struct sf_timer timer; /* back-off */
    struct sf_task kick;   /* starts a publish outside of the caller's frame */
    bool kick_posted;
};

static void send_plan(struct sf_publisher *pub);
static void start_load(struct sf_publisher *pub, uint64_t from_ts);
static void maybe_publish(struct sf_publisher *pub);

uint64_t sf_frontier_safe_ts(const struct sf_frontier *frontier)
{
    uint64_t safe = UINT64_MAX;
    for (unsigned m = 0; m < SF_MODALITY_COUNT; m++) {
        if ((frontier->enabled & (1u << m)) != 0 && frontier->applied_ts[m] < safe)
            safe = frontier->applied_ts[m];
    }
    return frontier->enabled == 0 ? 0 : safe;
}

static void free_publisher(struct sf_publisher *pub)
{
    sf_timer_stop(&pub->timer);
    sf_manifest_plan_fini(&pub->plan);
    sf_manifest_queue_fini(&pub->ready);
    sf_manifest_state_fini(&pub->base);
    sf_chain_fini(&pub->chain);
    sf_buf_fini(&pub->get.body);
    sf_buf_fini(&pub->get_key);
    free(pub);
}

static void call_begin(struct sf_publisher *pub)
{
    pub->calls++;
    ++*pub->options.ops_outstanding;
}

/* Ends a call; true when the publisher lives on. */
static bool call_end(struct sf_publisher *pub)
{
    pub->calls--;
    --*pub->options.ops_outstanding;
    if (!pub->destroyed)
        return true;
    if (pub->calls == 0)
        free_publisher(pub);
    return false;
}

/* Tells the owner what was published; false when the owner destroyed the publisher meanwhile. */
static bool tell_published(struct sf_publisher *pub, uint64_t version, size_t count)
{
    call_begin(pub);
    pub->ops->published(pub->user, version, count);
    return call_end(pub);
}

static void stop(struct sf_publisher *pub, enum sf_err err)
{
    pub->state = PUB_STOPPED;
    sf_manifest_plan_fini(&pub->plan);
    SF_LOG(WARN, "publisher_stopped",
           SF_KV_U64("namespace_id", pub->options.collection.namespace_id.v),
           SF_KV_U64("collection_id", pub->options.collection.collection_id.v),
           SF_KV_U64("coordinator_epoch", pub->options.publisher_epoch),
           SF_KV_STR("error", sf_err_info(err)->name));
    pub->ops->stopped(pub->user, err);
}

static void back_off(struct sf_publisher *pub)
{
    int64_t ceiling = 4ll << (pub->failures < 8 ? pub->failures : 8);
    pub->failures++;
    pub->state = PUB_BACKOFF;
    sf_timer_start(&pub->timer, 1 + (int64_t)sf_rng_below(pub->options.rng, (uint64_t)ceiling));
}

/* The plan under way is committed. */
static void committed(struct sf_publisher *pub)
{
    size_t count = pub->taken;
    uint64_t version = pub->plan.version;
    struct sf_head_notice notice = {
        .collection = pub->options.collection, .version = version, .previous = pub->base.version};
    memcpy(notice.checksum, pub->plan.sha256, sizeof(notice.checksum));
    sf_head_notices_tell(pub->options.notices, &notice);
    sf_manifest_state_commit(&pub->base, &pub->plan, &pub->ready, count);
    sf_manifest_plan_fini(&pub->plan);
    pub->taken = 0;
    pub->failures = 0;
    pub->state = PUB_IDLE;
    if (tell_published(pub, version, count))
        maybe_publish(pub);
}

/* ---- reads ------------------------------------------------------------------------------- */

static void start_get(struct sf_publisher *pub, sf_get_done_fn done)
{
    sf_buf_fini(&pub->get.body);
    pub->get =
        (struct sf_get){.key = sf_buf_view(&pub->get_key), .loop = pub->options.loop, .done = done};
    call_begin(pub);
    sf_store_get(pub->options.store, &pub->get);
}

/* What stands at the head's key after a swap that was refused or is in doubt. */
static void head_read(struct sf_publisher *pub)
{
    const struct sf_get *get = &pub->get;
    const char *expected = pub->base.head_etag.text; /* empty: no head yet */
    bool unread = get->err != SF_OK && get->err != SF_ERR_NOT_FOUND;
    bool unmoved = strcmp(get->err == SF_OK ? get->etag.text : "", expected) == 0;
    if (get->err == SF_OK && sf_view_equal(sf_buf_view(&get->body), sf_buf_view(&pub->plan.head))) {
        pub->plan.head_etag = get->etag;
        committed(pub);
    } else if (unread || unmoved) {
        back_off(pub); /* not seen: it may still land; the same bytes again */
    } else {
        start_load(pub, sf_manifest_queue_min_ts(&pub->ready));
    }
}

static void read_done(struct sf_get *get)
{
    struct sf_publisher *pub = SF_CONTAINER_OF(get, struct sf_publisher, get);
    if (!call_end(pub))
        return;
    if (pub->reading_head) {
        head_read(pub);
        return;
    }
    bool own = get->err == SF_OK &&
               sf_view_equal(sf_buf_view(&get->body), sf_buf_view(&pub->plan.manifest));
    if (own || (get->err == SF_OK && SF_MUTANT(coord_manifest_adopt))) {
        pub->manifest_stands = true;
        send_plan(pub);
    } else if (get->err == SF_OK) { /* taken: the next free number */
        pub->highest_tried = pub->plan.version;
        sf_manifest_plan_fini(&pub->plan);
        pub->taken = 0;
        pub->state = PUB_IDLE;
        maybe_publish(pub);
    } else {
        back_off(pub);
    }
}

static void read_back(struct sf_publisher *pub, bool head)
{
    pub->state = PUB_READING;
    pub->reading_head = head;
    sf_buf_clear(&pub->get_key);
    if (head)
        sf_committed_head_key(&pub->get_key, pub->options.collection);
    else
        sf_manifest_key(&pub->get_key, pub->options.collection, pub->plan.version);
    start_get(pub, read_done);
}

/* ---- load -------------------------------------------------------------------------------- */

static void loaded(struct sf_publisher *pub)
{
    const Searchfabric__V1__ManifestCommittedHeadObject *head = pub->chain.head;
    if (head != NULL && head->publisher_epoch > pub->options.publisher_epoch &&
        !SF_MUTANT(publish_epoch)) {
        bool first = !pub->loaded;
        if (first) {
            pub->state = PUB_STOPPED;
            pub->ops->loaded(pub->user, SF_ERR_DEPOSED, NULL);
        } else {
            stop(pub, SF_ERR_DEPOSED);
        }
        return;
    }
    sf_manifest_state_load(&pub->base, &pub->chain);
    if (!SF_MUTANT(coord_no_merge))
        sf_manifest_queue_mark_present(&pub->ready, &pub->chain);
    pub->state = PUB_IDLE;
    pub->failures = 0;
    if (!pub->loaded) {
        pub->loaded = true;
        call_begin(pub);
        pub->ops->loaded(pub->user, SF_OK, &pub->chain);
        if (!call_end(pub))
            return;
    }
    sf_chain_fini(&pub->chain);
    maybe_publish(pub);
}

static void load_next(struct sf_publisher *pub);

static void load_failed(struct sf_publisher *pub, enum sf_err err)
{
    if (!pub->loaded) {
        pub->state = PUB_NEW;
        pub->ops->loaded(pub->user, err, NULL);
    } else if (err == SF_ERR_UNAVAILABLE) {
        back_off(pub); /* the plan is gone: the timer loads again */
    } else {
        stop(pub, err);
    }
}

static void load_read_done(struct sf_get *get)
{
    struct sf_publisher *pub = SF_CONTAINER_OF(get, struct sf_publisher, get);
    struct sf_diag diag;
    if (!call_end(pub))
        return;
    sf_diag_init(&diag);
    enum sf_err err =
        sf_chain_feed(&pub->chain, get->err, sf_buf_view(&get->body), &get->etag, &diag);
    if (err == SF_OK) {
        load_next(pub);
        return;
    }
    if (err != SF_ERR_UNAVAILABLE)
        SF_LOG(ERROR, "manifest_lineage_corrupt", SF_KV_VIEW("key", get->key),
               SF_KV_STR("message", diag.message));
    load_failed(pub, err);
}

static void load_next(struct sf_publisher *pub)
{
    sf_buf_clear(&pub->get_key);
    if (sf_chain_want(&pub->chain, &pub->get_key))
        start_get(pub, load_read_done);
    else
        loaded(pub);
}

static void start_load(struct sf_publisher *pub, uint64_t from_ts)
{
    sf_manifest_plan_fini(&pub->plan);
    pub->taken = 0;
    pub->state = PUB_LOADING;
    sf_chain_fini(&pub->chain);
    sf_chain_init(&pub->chain, pub->options.collection, from_ts);
    load_next(pub);
}

void sf_publisher_load(struct sf_publisher *pub, uint64_t from_ts)
{
    SF_ASSERT(pub->state == PUB_NEW && !pub->loaded);
    start_load(pub, from_ts);
}

/* ---- puts -------------------------------------------------------------------------------- */

static void batch_done(struct sf_batch *batch)
{
    struct sf_publisher *pub = SF_CONTAINER_OF(batch, struct sf_publisher, batch);
    if (!call_end(pub))
        return;
    for (size_t i = 0; i < pub->list_puts; i++) /* keys of our own: a 412 is our own create */
        pub->sent_lists[i]->stands =
            batch->puts[i].err == SF_OK || batch->puts[i].err == SF_ERR_PRECONDITION;
    const struct sf_put *head = &batch->puts[batch->count - 1];
    const struct sf_put *manifest = pub->manifest_stands ? NULL : &batch->puts[batch->count - 2];
    if (head->err == SF_OK) {
        pub->plan.head_etag = head->etag;
        committed(pub);
    } else if (head->err == SF_ERR_PRECONDITION || head->err == SF_ERR_AMBIGUOUS) {
        pub->manifest_stands = true;
        read_back(pub, true);
    } else if (manifest != NULL && manifest->err == SF_OK) {
        pub->manifest_stands = true;
        back_off(pub);
    } else if (manifest != NULL &&
               (manifest->err == SF_ERR_PRECONDITION || manifest->err == SF_ERR_AMBIGUOUS)) {
        read_back(pub, false);
    } else {
        back_off(pub);
    }
}

/* Sends what of the plan is not known to stand. */
static void send_plan(struct sf_publisher *pub)
{
    struct sf_manifest_plan *plan = &pub->plan;
    size_t n = 0;
    pub->list_puts = 0;
    for (size_t i = 0; i < plan->list_count && !pub->manifest_stands; i++) {
        if (plan->lists[i].stands)
            continue;
        pub->sent_lists[pub->list_puts++] = &plan->lists[i];
        pub->puts[n++] = (struct sf_put){.key = sf_buf_view(&plan->lists[i].key),
                                         .body = sf_buf_view(&plan->lists[i].body),
                                         .cond = SF_PUT_ABSENT};
    }
    if (!pub->manifest_stands)
        pub->puts[n++] = (struct sf_put){
            .key = sf_buf_view(&plan->manifest_key),
            .body = sf_buf_view(&plan->manifest),
            .cond = SF_MUTANT(coord_manifest_overwrite) ? SF_PUT_ANY : SF_PUT_ABSENT,
            .stage = 1};
    struct sf_put *head = &pub->puts[n++];
    *head =
        (struct sf_put){.key = sf_buf_view(&plan->head_key),
                        .body = sf_buf_view(&plan->head),
                        .cond = pub->base.head_etag.text[0] == '\0' ? SF_PUT_ABSENT : SF_PUT_MATCH,
                        .match = pub->base.head_etag,
                        .stage = 2};
    if (SF_MUTANT(coord_head_overwrite))
        head->cond = SF_PUT_ANY;
    pub->state = PUB_PUTTING;
    pub->batch = (struct sf_batch){
        .puts = pub->puts, .count = n, .loop = pub->options.loop, .done = batch_done};
    call_begin(pub);
    sf_store_submit(pub->options.store, &pub->batch);
}

static void maybe_publish(struct sf_publisher *pub)
{
    if (pub->state != PUB_IDLE || pub->destroyed || pub->ready.count == 0)
        return;
    size_t present = sf_manifest_queue_present_prefix(&pub->ready);
    if (present > 0) { /* already in the head that was read */
        sf_manifest_queue_drop(&pub->ready, present);
        if (!tell_published(pub, pub->base.version, present) || pub->ready.count == 0 ||
            pub->state != PUB_IDLE)
            return;
    }
    struct sf_frontier frontier = {0};
    pub->taken =
        pub->ready.count < SF_LIMIT_MANIFEST_SLICES ? pub->ready.count : SF_LIMIT_MANIFEST_SLICES;
    pub->ops->frontier(pub->user, sf_manifest_queue_ts(&pub->ready, pub->taken), &frontier);
    pub->manifest_stands = false;
    struct sf_manifest_inputs inputs = {
        .collection = pub->options.collection,
        .publisher_epoch = pub->options.publisher_epoch,
        .base_interval = pub->options.base_interval,
        .list_entries = pub->options.list_entries,
        .version =
            1 + (pub->base.version > pub->highest_tried ? pub->base.version : pub->highest_tried),
        .frontier = frontier,
        .unix_ms = sf_clock_unix_ms(pub->options.clock),
        .attempts = pub->options.attempts,
    };
    sf_manifest_plan_build(&pub->plan, &pub->base, &pub->ready, pub->taken, &inputs);
    send_plan(pub);
}

static void backoff_over(struct sf_timer *timer)
{
    struct sf_publisher *pub = SF_CONTAINER_OF(timer, struct sf_publisher, timer);
    if (pub->state != PUB_BACKOFF)
        return;
    if (pub->taken == 0)
        start_load(pub, sf_manifest_queue_min_ts(&pub->ready));
    else
        send_plan(pub);
}

static void kicked(struct sf_task *task)
{
    struct sf_publisher *pub = SF_CONTAINER_OF(task, struct sf_publisher, kick);
    pub->kick_posted = false;
    if (call_end(pub))
        maybe_publish(pub);
}

/* ---- owner's side -------------------------------------------------------------------------- */

struct sf_publisher *sf_publisher_new(const struct sf_publisher_options *options,
                                      const struct sf_publisher_ops *ops, void *user)
{
    struct sf_publisher *pub = sf_calloc(1, sizeof(*pub));
    pub->options = *options;
    pub->ops = ops;
    pub->user = user;
    pub->kick.run = kicked;
    sf_timer_init(&pub->timer, options->loop, backoff_over);
    return pub;
}

void sf_publisher_destroy(struct sf_publisher *pub)
{
    if (pub == NULL)
        return;
    pub->destroyed = true;
    sf_timer_stop(&pub->timer);
    if (pub->calls == 0)
        free_publisher(pub);
}

void sf_publisher_submit(struct sf_publisher *pub, const Searchfabric__V1__ManifestSlice *slice,
                         const Searchfabric__V1__DuplicateEntry *duplicate)
{
    SF_ASSERT(pub->loaded);
    sf_manifest_queue_add(&pub->ready, slice, duplicate);
    if (!pub->kick_posted && pub->state == PUB_IDLE) {
        pub->kick_posted = true;
        call_begin(pub);
        sf_loop_post(pub->options.loop, &pub->kick);
    }
}

uint64_t sf_publisher_version(const struct sf_publisher *pub)
{
    return pub->base.version;
}
