/*
 * Model: one flag, `busy`, from the push that finds the queue at rest until the writer finds it
 * empty; meanwhile the feed counts as open work of the allocator, so that a drain waits for it.
 *
 *   at rest -> (push) posted -> lingering on the loop -> writing on its lane -> at rest
 */
#include "allocator/allocator_feed.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/allocator_priv.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"

#define LANE_SEED     UINT64_C(0x66656564) /* keeps the writers' lanes apart */
#define FULL_PAUSE_MS 50                   /* the pool was full: again */

struct sf_alloc_feed {
    /* immutable */
    struct sf_alloc_feed_options options; /* as given */
    struct sf_metric *written;            /* entries */
    struct sf_metric *dropped_metric;     /* entries that found the queue full */
    struct sf_metric *failed;             /* entries that could not be written */

    /* owned by whoever `busy` stands for */
    struct sf_task post;   /* brings the feed to its loop */
    struct sf_timer timer; /* the linger */
    struct sf_task task;   /* the writer */
    uint64_t told;         /* dropped entries that were logged; writer's lane */

    /* atomic */
    _Atomic uint64_t dropped; /* entries so far */

    pthread_mutex_t mu;               /* guards what follows */
    struct sf_alloc_feed_item *head;  /* oldest */
    struct sf_alloc_feed_item **tail; /* where the next one is linked */
    size_t count;                     /* entries that wait */
    size_t bytes;                     /* of them */
    uint64_t sequence;                /* of the last entry */
    bool busy;                        /* see the model */
};

static struct sf_metric *series(struct sf_allocator *a, const char *artifact, const char *result)
{
    return sf_metric_series(a->metrics.artifacts, (const char *const[]){artifact, result, NULL});
}

struct sf_alloc_feed *sf_alloc_feed_new(const struct sf_alloc_feed_options *options)
{
    struct sf_alloc_feed *feed = sf_calloc(1, sizeof(*feed));

    SF_ASSERT(options->allocator->deps.sched != NULL);
    feed->options = *options;
    if (feed->options.max_entries == 0)
        feed->options.max_entries = SF_LIMIT_ALLOC_FEED_ENTRIES;
    feed->written = series(options->allocator, options->name, "written");
    feed->dropped_metric = series(options->allocator, options->name, "dropped");
    feed->failed = series(options->allocator, options->name, "failed");
    feed->tail = &feed->head;
    SF_ASSERT(pthread_mutex_init(&feed->mu, NULL) == 0);
    return feed;
}

static void items_free(struct sf_alloc_feed_item *item)
{
    while (item != NULL) {
        struct sf_alloc_feed_item *next = item->next;
        free(item);
        item = next;
    }
}

void sf_alloc_feed_destroy(struct sf_alloc_feed *feed)
{
    if (feed == NULL)
        return;
    if (sf_timer_active(&feed->timer))
        sf_timer_stop(&feed->timer);
    items_free(feed->head);
    (void)pthread_mutex_destroy(&feed->mu);
    free(feed);
}

uint64_t sf_alloc_feed_dropped(const struct sf_alloc_feed *feed)
{
    return atomic_load(&feed->dropped);
}

/* ---- the writer ---- */

/* Takes the next batch; NULL: the queue is empty and the feed at rest. */
static struct sf_alloc_feed_item *take(struct sf_alloc_feed *feed, size_t *out_count)
{
    size_t bytes = 0;

    *out_count = 0;
    pthread_mutex_lock(&feed->mu);
    struct sf_alloc_feed_item *first = feed->head;
    struct sf_alloc_feed_item **end = &feed->head;
    while (*end != NULL && *out_count < SF_LIMIT_ALLOC_FEED_BATCH_ENTRIES &&
           (*out_count == 0 || bytes + (*end)->len <= SF_LIMIT_ALLOC_FEED_BATCH_BYTES)) {
        bytes += (*end)->len;
        end = &(*end)->next;
        ++*out_count;
    }
    if (*out_count != 0) {
        feed->head = *end;
        *end = NULL;
        if (feed->head == NULL)
            feed->tail = &feed->head;
        feed->count -= *out_count;
        feed->bytes -= bytes;
    }
    feed->busy = *out_count != 0;
    pthread_mutex_unlock(&feed->mu);
    return *out_count == 0 ? NULL : first;
}

/* Says once a batch that entries were dropped. */
static void tell_dropped(struct sf_alloc_feed *feed)
{
    uint64_t dropped = atomic_load(&feed->dropped);

    if (dropped == feed->told)
        return;
    SF_LOG(WARN, "alloc_artifact_dropped", SF_KV_STR("artifact", feed->options.name),
           SF_KV_U64("entries", dropped - feed->told));
    feed->told = dropped;
}

static void on_lane(struct sf_task *task)
{
    struct sf_alloc_feed *feed = SF_CONTAINER_OF(task, struct sf_alloc_feed, task);
    struct sf_allocator *allocator = feed->options.allocator;
    struct sf_alloc_feed_item *first;
    size_t count = 0;

    tell_dropped(feed);
    while ((first = take(feed, &count)) != NULL) {
        size_t written = feed->options.write(feed->options.self, first, count);
        sf_metric_add(feed->written, (int64_t)written);
        sf_metric_add(feed->failed, (int64_t)(count - written));
        items_free(first);
    }
    sf_alloc_closed_one(allocator); /* at rest: another push may have posted it again already */
}

uint64_t sf_alloc_feed_lane(const char *name)
{
    return sf_xxh64(name, strlen(name), LANE_SEED);
}

static void lingered(struct sf_timer *timer)
{
    struct sf_alloc_feed *feed = SF_CONTAINER_OF(timer, struct sf_alloc_feed, timer);

    feed->task.run = on_lane;
    if (sf_sched_submit(feed->options.allocator->deps.sched, sf_alloc_feed_lane(feed->options.name),
                        &feed->task) != SF_OK)
        sf_timer_start(&feed->timer, FULL_PAUSE_MS);
}

static void on_loop(struct sf_task *task)
{
    struct sf_alloc_feed *feed = SF_CONTAINER_OF(task, struct sf_alloc_feed, post);
    struct sf_allocator *a = feed->options.allocator;

    sf_timer_init(&feed->timer, a->shards[0].loop, lingered);
    sf_timer_start(&feed->timer, atomic_load(&a->draining) ? 0 : feed->options.linger_ms);
}

/* ---- push ---- */

/* Links the item unless there is no room; *out_start: the feed was at rest. */
static bool link_item(struct sf_alloc_feed *feed, struct sf_alloc_feed_item *item, bool *out_start)
{
    pthread_mutex_lock(&feed->mu);
    item->sequence = ++feed->sequence;
    bool room = feed->count < feed->options.max_entries &&
                feed->bytes + item->len <= SF_LIMIT_ALLOC_FEED_BYTES;
    *out_start = room && !feed->busy;
    if (room) {
        *feed->tail = item;
        feed->tail = &item->next;
        feed->count++;
        feed->bytes += item->len;
        feed->busy = true;
    }
    pthread_mutex_unlock(&feed->mu);
    return room;
}

void sf_alloc_feed_push(struct sf_alloc_feed *feed, int kind, struct sf_view bytes)
{
    struct sf_allocator *a = feed->options.allocator;
    struct sf_alloc_feed_item *item = sf_malloc(sizeof(*item) + bytes.len);
    bool start = false;

    item->next = NULL;
    item->kind = kind;
    item->len = bytes.len;
    memcpy(item->bytes, bytes.ptr, bytes.len);
    if (!link_item(feed, item, &start)) {
        atomic_fetch_add(&feed->dropped, 1);
        sf_metric_add(feed->dropped_metric, 1);
        free(item);
        return;
    }
    if (!start)
        return;
    atomic_fetch_add(&a->open, 1);
    feed->post.run = on_loop;
    sf_loop_post(a->shards[0].loop, &feed->post);
}
