/*
 * Two publishers of one collection under different epochs, without a WAL behind them: each is
 * handed slices of its own, in the order of one clock. Checked on every swap of the head: versions,
 * watermarks and publisher_epoch never go back, no slice is held twice; what a publisher reported
 * stays held; once one is left alone, everything it was handed is held.
 */
#include "fault/commit/sim_publish.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "publish/publisher.h"

#define SLICES 24

struct slice {
    char id[SF_SHA256_HEX_BYTES];
    uint64_t commit_ts;
    bool handed;
    bool published; /* reported while current */
};

struct pub_world {
    struct sim *sim;
    struct sim_node *nodes[2];
    uint64_t epochs;
    uint64_t ts;
    struct slice slices[SLICES];
    unsigned next; /* slice to hand over next */
    uint64_t seen_puts;
    struct sf_etag head_etag;
    uint64_t version;
    uint64_t safe_ts;
    uint64_t publisher_epoch;
    unsigned held_count;
    bool over;
};

struct pub_life {
    struct pub_world *w;
    struct sim_process *process;
    struct sf_loop *loop;
    struct sf_attempts attempts;
    struct sf_rng rng;
    struct sf_publisher *publisher;
    uint64_t epoch;
    size_t outstanding;
    bool usable;                /* loaded, not stopped */
    bool ended;                 /* loading failed or stopped */
    bool closing;               /* the stop runs */
    struct slice *mine[SLICES]; /* handed over, not reported */
    size_t mine_count;
    struct sf_task task;
    struct sf_task end_task;
    struct sf_timer timer;
    struct sf_waiter *waiter;
};

static const struct sf_collection_ref REF = {{5}, {6}};

static void on_loaded(void *user, enum sf_err err, const struct sf_chain *chain)
{
    struct pub_life *life = user;
    (void)chain;
    life->usable = err == SF_OK;
    life->ended = err != SF_OK;
    if (life->waiter != NULL && !life->closing)
        sf_waiter_wake(life->waiter);
}

static void on_frontier(void *user, uint64_t below_ts, struct sf_frontier *out)
{
    struct pub_life *life = user;
    uint64_t at = below_ts == UINT64_MAX ? life->w->ts : below_ts - 1;
    *out =
        (struct sf_frontier){.local_max_commit_ts = at, .applied_ts = {at, at, at}, .enabled = 3};
}

static void on_published(void *user, uint64_t version, size_t count)
{
    struct pub_life *life = user;
    (void)version;
    SIM_CHECK(life->w->sim, count <= life->mine_count);
    for (size_t i = 0; i < count; i++)
        life->mine[i]->published = life->mine[i]->published || !sim_process_is_dead(life->process);
    memmove(life->mine, life->mine + count, (life->mine_count - count) * sizeof(life->mine[0]));
    life->mine_count -= count;
}

static void on_stopped(void *user, enum sf_err err)
{
    struct pub_life *life = user;
    if (err == SF_ERR_CORRUPT)
        sim_violation(life->w->sim, "the publisher met a corrupt lineage");
    sim_trace(life->w->sim, "%s: publisher stopped: %s", sim_process_name(life->process),
              sf_err_info(err)->name);
    life->usable = false;
    life->ended = true;
}

static const struct sf_publisher_ops ops = {
    .loaded = on_loaded, .frontier = on_frontier, .published = on_published, .stopped = on_stopped};

/* Hands over the next slice now and then, and what other lives left behind. */
static void hand_over(struct sf_timer *timer)
{
    struct pub_life *life = SF_CONTAINER_OF(timer, struct pub_life, timer);
    struct pub_world *w = life->w;
    if (!life->usable || life->closing)
        return;
    if (w->next < SLICES && life->epoch + 2 > w->epochs) {
        Searchfabric__V1__ManifestSlice slice = SEARCHFABRIC__V1__MANIFEST_SLICE__INIT;
        struct slice *s = &w->slices[w->next++];
        char text[24];
        snprintf(text, sizeof(text), "slice %u", w->next);
        sf_sha256_hex(sf_view_str(text), s->id);
        s->commit_ts = ++w->ts;
        s->handed = true;
        slice.write_intent_id = s->id;
        slice.commit_ts = s->commit_ts;
        slice.row_count = 1;
        life->mine[life->mine_count++] = s;
        sf_publisher_submit(life->publisher, &slice, NULL);
    }
    sf_timer_start(&life->timer, 1 + (int64_t)sf_rng_below(&life->rng, 400));
}

static void begin(struct sf_task *task)
{
    struct pub_life *life = SF_CONTAINER_OF(task, struct pub_life, task);
    life->publisher =
        sf_publisher_new(&(struct sf_publisher_options){.store = sim_process_store(life->process),
                                                        .loop = life->loop,
                                                        .clock = sim_process_clock(life->process),
                                                        .attempts = &life->attempts,
                                                        .rng = &life->rng,
                                                        .ops_outstanding = &life->outstanding,
                                                        .collection = REF,
                                                        .publisher_epoch = life->epoch,
                                                        .base_interval = 3,
                                                        .list_entries = 2},
                         &ops, life);
    sf_publisher_load(life->publisher, 0);
}

static void begin_hand_over(struct sf_task *task)
{
    hand_over(&SF_CONTAINER_OF(task, struct pub_life, task)->timer);
}

static void poll_quiet(struct sf_timer *timer)
{
    struct pub_life *life = SF_CONTAINER_OF(timer, struct pub_life, timer);
    if (life->outstanding > 0)
        sf_timer_start(&life->timer, 1);
    else
        sf_waiter_wake(life->waiter);
}

static void end(struct sf_task *task)
{
    struct pub_life *life = SF_CONTAINER_OF(task, struct pub_life, end_task);
    life->closing = true;
    sf_timer_stop(&life->timer);
    sf_publisher_destroy(life->publisher);
    sf_timer_init(&life->timer, life->loop, poll_quiet);
    sf_timer_start(&life->timer, 1);
}

static void pub_stop(struct sim_process *process, void *service, void *ctx)
{
    struct pub_life *life = service;
    struct sf_waiter waiter;
    (void)ctx;
    sf_waiter_init(&waiter, sim_process_sched(process));
    life->waiter = &waiter;
    life->end_task.run = end;
    sf_loop_post(life->loop, &life->end_task);
    sf_waiter_wait(&waiter);
    sf_waiter_fini(&waiter);
    free(life);
}

static void *pub_start(struct sim_process *process, void *ctx)
{
    struct pub_life *life = sf_calloc(1, sizeof(*life));
    struct sf_waiter waiter;
    life->w = ctx;
    life->process = process;
    life->loop = sim_process_loop(process, 0);
    life->epoch = ++life->w->epochs;
    sf_attempts_init(&life->attempts, sim_process_random(process));
    sf_rng_init(&life->rng, sim_process_random(process));
    sf_timer_init(&life->timer, life->loop, hand_over);
    sf_waiter_init(&waiter, sim_process_sched(process));
    life->waiter = &waiter;
    life->task.run = begin;
    sf_loop_post(life->loop, &life->task);
    sf_waiter_wait(&waiter);
    sf_waiter_fini(&waiter);
    life->waiter = NULL;
    if (!life->usable) {
        pub_stop(process, life, ctx);
        return NULL;
    }
    life->task.run = begin_hand_over;
    sf_loop_post(life->loop, &life->task);
    return life;
}

/* ---- checks ------------------------------------------------------------------------------------
 */

struct holding {
    struct pub_world *w;
    unsigned times[SLICES];
    unsigned count;
};

static void note_slice(void *user, const Searchfabric__V1__ManifestSlice *slice)
{
    struct holding *h = user;
    h->count++;
    for (unsigned i = 0; i < SLICES; i++) {
        if (strcmp(h->w->slices[i].id, slice->write_intent_id) == 0 && ++h->times[i] > 1)
            sim_violation(h->w->sim, "slice %u is held twice", i + 1);
    }
}

static void read_holding(struct pub_world *w, struct holding *h, struct sf_chain *chain)
{
    struct sf_diag diag;
    sf_diag_init(&diag);
    *h = (struct holding){.w = w};
    sf_chain_init(chain, REF, 0);
    if (sf_chain_read_wait(chain, sim_backend(w->sim), NULL, &diag) != SF_OK)
        sim_violation(w->sim, "%s", diag.message);
    sf_chain_each_slice(chain, note_slice, h);
}

static void check_step(struct sim *sim, void *ctx)
{
    struct pub_world *w = ctx;
    struct holding h;
    struct sf_chain chain;
    uint64_t puts = sf_fault_store_counts(sim_network(sim)).puts_applied;
    if (puts == w->seen_puts)
        return;
    w->seen_puts = puts;
    read_holding(w, &h, &chain);
    if (chain.head != NULL && strcmp(chain.head_etag.text, w->head_etag.text) != 0) {
        const Searchfabric__V1__CollectionManifestObject *newest = sf_chain_newest(&chain);
        w->head_etag = chain.head_etag;
        SIM_CHECK(sim, newest->manifest_version > w->version);
        SIM_CHECK(sim, newest->safe_ts >= w->safe_ts);
        SIM_CHECK(sim, chain.head->publisher_epoch >= w->publisher_epoch);
        SIM_CHECK(sim, newest->total_rows == h.count);
        SIM_CHECK(sim, h.count > w->held_count);
        w->version = newest->manifest_version;
        w->safe_ts = newest->safe_ts;
        w->publisher_epoch = chain.head->publisher_epoch;
        w->held_count = h.count;
    }
    for (unsigned i = 0; i < SLICES; i++) {
        if (w->slices[i].published && h.times[i] == 0)
            sim_violation(sim, "slice %u was reported and is not held", i + 1);
    }
    sf_chain_fini(&chain);
}

/* The newest life has published all that it was handed. */
static bool newest_done(struct sim *sim, void *ctx)
{
    struct pub_world *w = ctx;
    (void)sim;
    for (unsigned i = 0; i < 2; i++) {
        uint64_t number = 0;
        const struct pub_life *life = sim_node_service(w->nodes[i], &number);
        if (life != NULL && life->epoch == w->epochs)
            return w->next == SLICES && life->mine_count == 0;
    }
    return false;
}

/* Keeps time going while nodes are down. */
static void run_clock(struct sim_process *process, void *arg)
{
    const struct pub_world *w = arg;
    while (!w->over)
        sim_sleep(process, 50);
}

void run_publish(struct sim *sim)
{
    struct pub_world *w = sf_calloc(1, sizeof(*w));
    const struct sim_service service = {.start = pub_start, .stop = pub_stop, .ctx = w};
    struct sim_options options = sim_default_options();
    sf_log_set_fd(-1);
    w->sim = sim;
    sim_configure(sim, &options);
    w->nodes[0] = sim_node_new(sim, "a", &service);
    w->nodes[1] = sim_node_new(sim, "b", &service);
    sim_set_invariant(sim, check_step, w);
    sim_spawn(sim_process_new(sim, "clock"), run_clock, w);
    sim_run_for(sim, 5000);
    sim_settle(sim);
    sim_run_until(sim, newest_done, w, 120000, "the newest publisher publishes everything");
    check_step(sim, w);
    w->over = true;
    sim_run_for(sim, 100);
    sim_stop_nodes(sim);
    sim_set_invariant(sim, NULL, NULL);
    free(w);
}
