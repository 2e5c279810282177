/*
 * Model: what start and stop know (starting, serving, draining) is noted; what may go wrong while
 * serving is asked of the parts at each look: a deposed owner, a lost shard, a loop that no longer
 * turns. A part is looked at only while it is noted as serving, and is freed only after it is not.
 */
#include "daemon/server_priv.h"

#include "base/mem.h"

#define BEAT_MS  500
#define STALE_MS 10000

/* gRPC's health says what /readyz says. */
static void tell_health(struct sf_server *server)
{
    struct sf_worker_status looked[SF_WORKER_COUNT];
    bool serving = sf_workers_look(server, looked);

    pthread_mutex_lock(&server->health_mu);
    if (server->states[SF_WORKER_GRPC] == SF_WORKER_SERVING)
        sf_rpc_server_set_serving(server->rpc, "", serving);
    pthread_mutex_unlock(&server->health_mu);
}

static void on_beat(struct sf_timer *timer)
{
    struct sf_heartbeat *beat = SF_CONTAINER_OF(timer, struct sf_heartbeat, timer);

    if (beat == beat->server->heartbeats)
        tell_health(beat->server);
    atomic_store(&beat->last_ms, timer->loop->now_ms);
    sf_timer_start(timer, BEAT_MS);
}

static void on_start(struct sf_task *task)
{
    on_beat(&SF_CONTAINER_OF(task, struct sf_heartbeat, start)->timer);
}

static void on_stop(struct sf_task *task)
{
    struct sf_heartbeat *beat = SF_CONTAINER_OF(task, struct sf_heartbeat, stop);

    sf_timer_stop(&beat->timer);
    sf_waiter_wake(&beat->stopped);
}

void sf_heartbeats_start(struct sf_server *server)
{
    server->heartbeats = sf_calloc(server->loop_count, sizeof(*server->heartbeats));
    for (size_t i = 0; i < server->loop_count; i++) {
        struct sf_heartbeat *beat = &server->heartbeats[i];
        beat->server = server;
        sf_timer_init(&beat->timer, server->loops[i], on_beat);
        atomic_init(&beat->last_ms, sf_clock_mono_ms(server->clock));
        beat->start.run = on_start;
        beat->stop.run = on_stop;
        sf_waiter_init(&beat->stopped, NULL);
        sf_loop_post(server->loops[i], &beat->start);
    }
}

void sf_heartbeats_stop(struct sf_server *server)
{
    for (size_t i = 0; server->heartbeats != NULL && i < server->loop_count; i++) {
        sf_loop_post(server->loops[i], &server->heartbeats[i].stop);
        sf_waiter_wait(&server->heartbeats[i].stopped);
        sf_waiter_fini(&server->heartbeats[i].stopped);
    }
}

const char *sf_worker_state_text(enum sf_worker_state state)
{
    static const char *const text[] = {"unknown", "starting", "serving", "draining", "failed"};

    return text[state];
}

void sf_worker_set(struct sf_server *server, enum sf_worker worker, enum sf_worker_state state)
{
    pthread_mutex_lock(&server->health_mu);
    server->states[worker] = state;
    pthread_mutex_unlock(&server->health_mu);
}

bool sf_worker_started(struct sf_server *server, enum sf_worker worker)
{
    pthread_mutex_lock(&server->health_mu);
    bool started = server->states[worker] != SF_WORKER_STARTING;
    pthread_mutex_unlock(&server->health_mu);
    return started;
}

const char *sf_workers_reason(const struct sf_worker_status *looked)
{
    const char *reason = NULL;

    for (int i = 0; i < SF_WORKER_COUNT; i++) {
        if (looked[i].state == SF_WORKER_STARTING)
            return "recovery";
        if (looked[i].state == SF_WORKER_DRAINING)
            reason = "draining";
        else if (looked[i].state != SF_WORKER_SERVING && reason == NULL)
            reason = "failed";
    }
    return reason;
}

static void fail(struct sf_worker_status *status, const char *detail)
{
    if (status->state == SF_WORKER_SERVING)
        status->state = SF_WORKER_FAILED;
    status->detail = detail;
}

static void look_store(struct sf_server *server, struct sf_worker_status *status)
{
    if (status->state == SF_WORKER_SERVING && sf_embedded_store_failed(server->embedded))
        fail(status, "a write failed, nothing more is written; see to the disk and restart");
}

static void look_tso(struct sf_server *server, struct sf_worker_status *status)
{
    if (status->state == SF_WORKER_SERVING && !sf_oracle_is_serving(server->tso))
        fail(status, "another oracle took the timestamp window over; restart this process");
}

static void look_catalog(struct sf_server *server, struct sf_worker_status *status)
{
    struct sf_catalog_stats stats;

    if (status->state != SF_WORKER_SERVING)
        return;
    sf_catalog_stats(server->catalog, &stats);
    if (stats.deposed)
        fail(status, "a newer owner of the catalog was met; restart this process");
    else if (stats.stalled)
        fail(status, "a write is in doubt and being repeated; mutations wait");
    else if (stats.projection_lost)
        fail(status, "the projection's database does not answer; see to it, no restart is needed");
}

static void look_allocator(struct sf_server *server, struct sf_worker_status *status)
{
    struct sf_allocator_stats stats;

    if (status->state != SF_WORKER_SERVING)
        return;
    sf_allocator_stats(server->allocator, &stats);
    if (stats.lanes_closed > 0)
        status->detail = "some collections are owned by a newer process";
}

static void look_commit(struct sf_server *server, struct sf_worker_status *status)
{
    struct sf_commit_stats stats;

    if (status->state != SF_WORKER_SERVING)
        return;
    sf_commit_stats_get(server->commit, &stats);
    if (stats.shards_leading < stats.shards)
        fail(status, "a newer leader took shards over; restart this process");
}

static void look_reactors(struct sf_server *server, struct sf_worker_status *status)
{
    int64_t now_ms = sf_clock_mono_ms(server->clock);

    if (status->state != SF_WORKER_SERVING)
        return;
    for (size_t i = 0; i < server->loop_count; i++) {
        int64_t age_ms = now_ms - atomic_load(&server->heartbeats[i].last_ms);
        if (age_ms > (int64_t)status->heartbeat_age_ms)
            status->heartbeat_age_ms = (uint64_t)age_ms;
    }
    if (status->heartbeat_age_ms > STALE_MS)
        fail(status, "an event loop does not turn");
    if (status->heartbeat_age_ms == 0)
        status->heartbeat_age_ms = 1; /* 0 says that there is none */
}

bool sf_workers_look(struct sf_server *server, struct sf_worker_status *out)
{
    static const struct sf_worker_status workers[SF_WORKER_COUNT] = {
        [SF_WORKER_STORE] = {.name = "store", .role = "all"},
        [SF_WORKER_TSO] = {.name = "tso", .role = "tso"},
        [SF_WORKER_CCS] = {.name = "ccs", .role = "ccs"},
        [SF_WORKER_ALLOCATOR] = {.name = "allocator", .role = "allocator"},
        [SF_WORKER_COORDINATOR] = {.name = "coordinator", .role = "coordinator"},
        [SF_WORKER_INGEST] = {.name = "ingest", .role = "ingest"},
        [SF_WORKER_GRPC] = {.name = "grpc", .role = "all"},
        [SF_WORKER_ES] = {.name = "es-gateway", .role = "es-gateway"},
        [SF_WORKER_REACTORS] = {.name = "reactors", .role = "all"},
    };
    static const char *const starting[SF_WORKER_COUNT] = {
        [SF_WORKER_STORE] = "recovery: the store is read",
        [SF_WORKER_TSO] = "recovery: waits for the store",
        [SF_WORKER_CCS] = "recovery: the catalog takes over, its projection is brought up to date",
        [SF_WORKER_ALLOCATOR] = "recovery: waits for the catalog",
        [SF_WORKER_COORDINATOR] = "recovery: shards are taken over and read again",
        [SF_WORKER_INGEST] = "recovery: waits for the coordinator",
        [SF_WORKER_GRPC] = "recovery: calls are refused until all workers serve",
        [SF_WORKER_ES] = "recovery: requests are refused until all workers serve",
        [SF_WORKER_REACTORS] = "recovery",
    };
    bool serving = true;

    pthread_mutex_lock(&server->health_mu);
    for (int i = 0; i < SF_WORKER_COUNT; i++) {
        out[i] = workers[i];
        out[i].state = server->states[i];
        out[i].detail = out[i].state == SF_WORKER_STARTING ? starting[i] : "";
    }
    look_store(server, &out[SF_WORKER_STORE]);
    look_tso(server, &out[SF_WORKER_TSO]);
    look_catalog(server, &out[SF_WORKER_CCS]);
    look_allocator(server, &out[SF_WORKER_ALLOCATOR]);
    look_commit(server, &out[SF_WORKER_COORDINATOR]);
    look_reactors(server, &out[SF_WORKER_REACTORS]);
    pthread_mutex_unlock(&server->health_mu);
    for (int i = 0; i < SF_WORKER_COUNT; i++)
        serving &= out[i].state == SF_WORKER_SERVING;
    return serving;
}
