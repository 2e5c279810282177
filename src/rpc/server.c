/*
 * The server: listener, workers, stop.
 *
 * The acceptor is a poll handle on the first reactor; it accepts on the bare socket, picks the
 * worker with the fewest connections and hands the descriptor over by a posted task. A connection
 * stays with its worker. Out of descriptors the acceptor rests for a while instead of spinning.
 *
 * Stop, on the owner's thread, each step waited for: close the listener; drain every worker (each
 * closes its handles once its last connection is gone, a timer ends what takes too long); give up
 * the owner's reference. Calls that handlers still hold keep the memory until they are answered.
 */
#include "rpc/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "contract/descriptor_set.h"
#include "contract/served.h"
#include "rpc/server_priv.h"

#define ACCEPT_BATCH     64
#define ACCEPT_REST_MS   100
#define LISTEN_BACKLOG   511
#define DEFAULT_IDLE_MS  300000
#define DEFAULT_FIRST_MS 10000
#define DEFAULT_ALIVE_MS 30000

/* ---- metrics ---- */

static const char *const grpc_code_names[] = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

static void metrics_init(struct sf_rpc_server *server, struct sf_metrics *metrics)
{
    static const char *const handled_labels[] = {"method", "code", NULL};
    static const char *const method_label[] = {"method", NULL};
    static const char *const reason_label[] = {"reason", NULL};

    if (metrics == NULL)
        return;
    server->handled_family =
        sf_metrics_family(metrics, SF_METRIC_COUNTER, "searchfabric_rpc_server_handled_total",
                          "Calls that ended, by method and gRPC code.", handled_labels);
    server->duration_family =
        sf_metrics_family(metrics, SF_METRIC_HISTOGRAM, "searchfabric_rpc_server_duration_ms",
                          "Time from a call's headers to its end.", method_label);
    server->closed_family = sf_metrics_family(metrics, SF_METRIC_COUNTER,
                                              "searchfabric_rpc_server_connections_closed_total",
                                              "Connections that ended, by reason.", reason_label);
    server->connections = sf_metric_series(sf_metrics_family(metrics, SF_METRIC_GAUGE,
                                                             "searchfabric_rpc_server_connections",
                                                             "Open connections.", NULL),
                                           NULL);
}

static struct rpc_method_metrics *metrics_of(struct sf_rpc_server *server,
                                             const struct sf_rpc_route *route)
{
    if (route == NULL)
        return &server->unknown_metrics;
    const struct rpc_routes *added = atomic_load(&server->added);
    const struct rpc_routes *routes =
        added != NULL && route->index >= added->first ? added : &server->routes;
    return &routes->metrics[route->index - routes->first];
}

void rpc_server_count_call(struct sf_rpc_server *server, const struct sf_rpc_route *route,
                           int grpc_status, int64_t duration_ms)
{
    static const char unknown[] = "unknown";

    if (server->handled_family == NULL)
        return;
    struct rpc_method_metrics *cache = metrics_of(server, route);
    const char *path = route == NULL ? unknown : route->path;
    struct sf_metric *handled = atomic_load(&cache->handled[grpc_status]);
    struct sf_metric *duration = atomic_load(&cache->duration);
    if (handled == NULL) {
        handled = sf_metric_series(server->handled_family,
                                   (const char *[]){path, grpc_code_names[grpc_status], NULL});
        atomic_store(&cache->handled[grpc_status], handled);
    }
    if (duration == NULL) {
        duration = sf_metric_series(server->duration_family, (const char *[]){path, NULL});
        atomic_store(&cache->duration, duration);
    }
    sf_metric_add(handled, 1);
    sf_metric_observe_ms(duration, (double)duration_ms);
}

void rpc_server_count_closed(struct sf_rpc_server *server, const char *reason)
{
    if (server->closed_family != NULL)
        sf_metric_add(sf_metric_series(server->closed_family, (const char *[]){reason, NULL}), 1);
}

/* ---- references ---- */

void rpc_server_acquire(struct sf_rpc_server *server)
{
    atomic_fetch_add(&server->refs, 1);
}

static void worker_fini(struct rpc_worker *worker)
{
    while (worker->pool != NULL) {
        struct rpc_call *call = worker->pool;
        worker->pool = call->next;
        rpc_call_free(call);
    }
    sf_arena_destroy(worker->message_arena);
    sf_buf_fini(&worker->inflated);
}

static void routes_init(struct rpc_routes *routes, const struct sf_service *const *services,
                        size_t count, size_t first)
{
    sf_rpc_registry_init(&routes->registry, services, count, first);
    routes->first = first;
    routes->metrics =
        sf_calloc(sf_rpc_registry_count(&routes->registry) + 1, sizeof(*routes->metrics));
}

static void routes_fini(struct rpc_routes *routes)
{
    if (routes == NULL)
        return;
    sf_rpc_registry_fini(&routes->registry);
    free(routes->metrics);
}

void rpc_server_release(struct sf_rpc_server *server)
{
    if (atomic_fetch_sub(&server->refs, 1) != 1)
        return;
    for (unsigned i = 0; i < server->worker_count; i++)
        worker_fini(&server->workers[i]);
    routes_fini(&server->routes);
    routes_fini(atomic_load(&server->added));
    free(atomic_load(&server->added));
    sf_health_destroy(server->health);
    sf_reflection_destroy(server->reflection);
    nghttp2_session_callbacks_del(server->callbacks);
    nghttp2_option_del(server->option);
    sf_waiter_fini(&server->waiter);
    free(server->workers);
    free(server);
}

/* ---- workers ---- */

static void worker_close_if_done(struct rpc_worker *worker)
{
    if (!worker->draining || worker->closed || atomic_load(&worker->conn_count) > 0)
        return;
    worker->closed = true;
    sf_timer_stop(&worker->drain_limit);
    sf_h2_ctx_close(&worker->h2);
}

void rpc_worker_conn_closed(struct rpc_worker *worker)
{
    atomic_fetch_sub(&worker->conn_count, 1);
    atomic_fetch_sub(&worker->server->conn_count, 1);
    if (worker->server->connections != NULL)
        sf_metric_add(worker->server->connections, -1);
    worker_close_if_done(worker);
}

/* The last worker wakes the owner, who may then give up the last reference. */
static void on_worker_closed(struct sf_h2_ctx *ctx)
{
    struct rpc_worker *worker = SF_CONTAINER_OF(ctx, struct rpc_worker, h2);
    struct sf_rpc_server *server = worker->server;

    if (atomic_fetch_sub(&server->workers_open, 1) == 1)
        sf_waiter_wake(&server->waiter);
}

static void on_drain_limit(struct sf_timer *timer)
{
    struct rpc_worker *worker = SF_CONTAINER_OF(timer, struct rpc_worker, drain_limit);

    for (struct rpc_conn *conn = worker->conns; conn != NULL; conn = conn->next)
        sf_h2_close(&conn->h2, "drain_limit");
}

static void on_drain(struct sf_task *task)
{
    struct rpc_worker *worker = SF_CONTAINER_OF(task, struct rpc_worker, drain_task);

    worker->draining = true;
    sf_timer_start(&worker->drain_limit, worker->server->drain_limit_ms);
    for (struct rpc_conn *conn = worker->conns; conn != NULL; conn = conn->next)
        rpc_conn_drain(conn);
    worker_close_if_done(worker);
}

struct start_task {
    struct sf_task task;       /* on the worker's loop */
    struct rpc_worker *worker; /* to open */
    struct sf_waiter *done;    /* of the starter */
};

static void on_start(struct sf_task *task)
{
    struct start_task *start = SF_CONTAINER_OF(task, struct start_task, task);

    sf_h2_ctx_init(&start->worker->h2, start->worker->loop, on_worker_closed);
    sf_waiter_wake(start->done);
}

static void worker_start(struct sf_rpc_server *server, unsigned index, struct sf_loop *loop)
{
    struct rpc_worker *worker = &server->workers[index];
    struct sf_waiter done;

    worker->server = server;
    worker->loop = loop;
    worker->message_arena = sf_arena_new(SF_LIMIT_RPC_ARENA_BYTES);
    worker->drain_task.run = on_drain;
    sf_timer_init(&worker->drain_limit, loop, on_drain_limit);
    atomic_init(&worker->conn_count, 0);
    sf_waiter_init(&done, NULL);
    struct start_task start = {.task = {.run = on_start}, .worker = worker, .done = &done};
    sf_loop_post(loop, &start.task);
    sf_waiter_wait(&done);
    sf_waiter_fini(&done);
}

/* ---- the acceptor ---- */

struct handover {
    struct sf_task task;
    struct rpc_worker *worker;
    int fd;
};

static void on_handover(struct sf_task *task)
{
    struct handover *handover = SF_CONTAINER_OF(task, struct handover, task);

    rpc_conn_open(handover->worker, handover->fd);
    free(handover);
}

static void hand_over(struct sf_rpc_server *server, int fd)
{
    struct rpc_worker *least = &server->workers[0];

    if (atomic_load(&server->conn_count) >= server->max_connections) {
        (void)close(fd);
        rpc_server_count_closed(server, "connection_cap");
        return;
    }
    for (unsigned i = 1; i < server->worker_count; i++)
        if (atomic_load(&server->workers[i].conn_count) < atomic_load(&least->conn_count))
            least = &server->workers[i];
    atomic_fetch_add(&server->conn_count, 1);
    atomic_fetch_add(&least->conn_count, 1);
    if (server->connections != NULL)
        sf_metric_add(server->connections, 1);
    struct handover *handover = sf_malloc(sizeof(*handover));
    *handover = (struct handover){.task = {.run = on_handover}, .worker = least, .fd = fd};
    sf_loop_post(least->loop, &handover->task);
}

static void on_acceptable(uv_poll_t *poll, int status, int events);

static void on_accept_retry(struct sf_timer *timer)
{
    struct sf_rpc_server *server = SF_CONTAINER_OF(timer, struct sf_rpc_server, accept_retry);

    (void)uv_poll_start(&server->listen_poll, UV_READABLE, on_acceptable);
}

static void on_acceptable(uv_poll_t *poll, int status, int events)
{
    struct sf_rpc_server *server = poll->data;

    (void)status, (void)events;
    sf_reactor_turn(server->workers[0].loop);
    for (int i = 0; i < ACCEPT_BATCH; i++) {
        int fd = accept4(server->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            hand_over(server, fd);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            SF_LOG(WARN, "rpc_accept_failed", SF_KV_I64("errno", errno));
            (void)uv_poll_stop(poll);
            sf_timer_start(&server->accept_retry, ACCEPT_REST_MS);
        }
        return;
    }
}

static void on_listener_closed(uv_handle_t *handle)
{
    struct sf_rpc_server *server = handle->data;

    (void)close(server->listen_fd);
    sf_waiter_wake(&server->waiter);
}

static void on_close_listener(struct sf_task *task)
{
    struct sf_rpc_server *server = SF_CONTAINER_OF(task, struct sf_rpc_server, close_listener);

    sf_timer_stop(&server->accept_retry);
    uv_close((uv_handle_t *)&server->listen_poll, on_listener_closed);
}

struct listen_task {
    struct sf_task task;
    struct sf_rpc_server *server;
    struct sf_waiter *done;
};

static void on_listen(struct sf_task *task)
{
    struct listen_task *listen_task = SF_CONTAINER_OF(task, struct listen_task, task);
    struct sf_rpc_server *server = listen_task->server;

    SF_ASSERT(uv_poll_init(sf_reactor_uv(server->workers[0].loop), &server->listen_poll,
                           server->listen_fd) == 0);
    server->listen_poll.data = server;
    (void)uv_poll_start(&server->listen_poll, UV_READABLE, on_acceptable);
    sf_waiter_wake(listen_task->done);
}

static void listener_start(struct sf_rpc_server *server)
{
    struct sf_waiter done;

    sf_timer_init(&server->accept_retry, server->workers[0].loop, on_accept_retry);
    server->close_listener.run = on_close_listener;
    sf_waiter_init(&done, NULL);
    struct listen_task task = {.task = {.run = on_listen}, .server = server, .done = &done};
    sf_loop_post(server->workers[0].loop, &task.task);
    sf_waiter_wait(&done);
    sf_waiter_fini(&done);
}

/* Plaintext and the private services are for this machine only, whoever asks for more. */
static bool is_loopback(const struct in_addr *v4, const struct in6_addr *v6)
{
    return v6 == NULL ? ntohl(v4->s_addr) >> 24 == 127 : IN6_IS_ADDR_LOOPBACK(v6);
}

static enum sf_err bind_socket(const char *host, uint16_t port, struct sf_diag *diag, int *out_fd,
                               uint16_t *out_port)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } addr = {.v4 = {.sin_family = AF_INET, .sin_port = htons(port)}};
    socklen_t len = sizeof(addr.v4);
    bool is_v6 = false;
    int one = 1;

    if (inet_pton(AF_INET, host, &addr.v4.sin_addr) != 1) {
        addr.v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(port)};
        len = sizeof(addr.v6);
        is_v6 = true;
        if (inet_pton(AF_INET6, host, &addr.v6.sin6_addr) != 1)
            return sf_diag_set(diag, SF_ERR_CONFIG, "%s is not an IP address", host);
    }
    if (!is_loopback(&addr.v4.sin_addr, is_v6 ? &addr.v6.sin6_addr : NULL))
        return sf_diag_set(diag, SF_ERR_CONFIG, "%s is not a loopback address", host);
    int fd = socket(addr.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return sf_diag_set(diag, SF_ERR_IO, "socket: %s", strerror(errno));
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, &addr.any, len) != 0 || listen(fd, LISTEN_BACKLOG) != 0 ||
        getsockname(fd, &addr.any, &len) != 0) {
        enum sf_err err = sf_diag_set(diag, SF_ERR_IO, "cannot listen on %s port %u: %s", host,
                                      port, strerror(errno));
        (void)close(fd);
        return err;
    }
    *out_fd = fd;
    *out_port = ntohs(addr.any.sa_family == AF_INET ? addr.v4.sin_port : addr.v6.sin6_port);
    return SF_OK;
}

/* ---- start and stop ---- */

/* Names all services, those that come later too, to reflection. */
static void set_names(struct sf_rpc_server *server, const struct sf_service *const *services,
                      size_t count)
{
    size_t expected = server->expected.count;
    const char **names = sf_calloc(count + expected, sizeof(*names));

    for (size_t i = 0; i < count; i++)
        names[i] = services[i]->full_name;
    for (size_t i = 0; i < expected; i++)
        names[count + i] = server->expected.services[i];
    sf_reflection_set_services(server->reflection, names, count + expected);
    free(names);
}

static void set_services(struct sf_rpc_server *server, const struct sf_rpc_server_options *options)
{
    size_t count = options->service_count + 3;
    const struct sf_service **services = sf_calloc(count, sizeof(const struct sf_service *));

    for (size_t i = 0; i < options->service_count; i++)
        services[i] = options->services[i];
    services[count - 3] = sf_health_service(server->health);
    services[count - 2] = sf_reflection_service_v1(server->reflection);
    services[count - 1] = sf_reflection_service_v1alpha(server->reflection);
    routes_init(&server->routes, services, count, 0);
    set_names(server, services, count);
    for (size_t i = 0; i < options->service_count; i++)
        sf_health_set(server->health, options->services[i]->full_name, true);
    for (size_t i = 0; i < server->expected.count; i++)
        sf_health_set(server->health, server->expected.services[i], false);
    sf_health_set(server->health, "", server->expected.count == 0);
    free(services);
}

/* Is `path` of a service that comes later, and not a method that this build never serves? */
static bool is_expected(const struct sf_rpc_expected *expected, struct sf_view path)
{
    const struct sf_contract_method *method = sf_contract_method_find(path);

    if (method != NULL && !method->served)
        return false;
    for (size_t i = 0; i < expected->count; i++) {
        size_t len = strlen(expected->services[i]);
        if (path.len > len + 2 && path.ptr[0] == '/' && path.ptr[len + 1] == '/' &&
            memcmp(path.ptr + 1, expected->services[i], len) == 0)
            return true;
    }
    return false;
}

const struct sf_rpc_route *rpc_server_route(struct sf_rpc_server *server, struct sf_view path,
                                            bool *out_early)
{
    const struct rpc_routes *added = atomic_load(&server->added);
    const struct sf_rpc_route *route = sf_rpc_registry_find(&server->routes.registry, path);

    if (route == NULL && added != NULL)
        route = sf_rpc_registry_find(&added->registry, path);
    *out_early = route == NULL && added == NULL && is_expected(&server->expected, path);
    return route;
}

void sf_rpc_server_add(struct sf_rpc_server *server, const struct sf_service *const *services,
                       size_t count)
{
    struct rpc_routes *added = sf_calloc(1, sizeof(*added));

    SF_ASSERT(atomic_load(&server->added) == NULL && count == server->expected.count);
    routes_init(added, services, count, sf_rpc_registry_count(&server->routes.registry));
    atomic_store(&server->added, added);
    for (size_t i = 0; i < count; i++)
        sf_health_set(server->health, services[i]->full_name, true);
}

static void set_sessions(struct sf_rpc_server *server)
{
    SF_ASSERT(nghttp2_session_callbacks_new(&server->callbacks) == 0);
    rpc_conn_set_callbacks(server->callbacks);
    SF_ASSERT(nghttp2_option_new(&server->option) == 0);
    nghttp2_option_set_no_auto_window_update(server->option, 1);
    nghttp2_option_set_no_closed_streams(server->option, 1);
    nghttp2_option_set_stream_reset_rate_limit(server->option, SF_LIMIT_RPC_RESET_BURST,
                                               SF_LIMIT_RPC_RESET_PER_SECOND);
}

static int64_t or_default(int64_t value_ms, int64_t default_ms)
{
    return value_ms > 0 ? value_ms : default_ms;
}

/* A limit that options may lower. */
static uint32_t or_limit(uint32_t value, uint32_t limit)
{
    return value > 0 && value < limit ? value : limit;
}

enum sf_err sf_rpc_server_start(const struct sf_rpc_server_options *options, struct sf_diag *diag,
                                struct sf_rpc_server **out_server)
{
    int fd = -1;
    uint16_t port = 0;
    enum sf_err err = bind_socket(options->host, options->port, diag, &fd, &port);

    *out_server = NULL;
    if (err != SF_OK)
        return err;
    struct sf_rpc_server *server = sf_calloc(1, sizeof(*server));
    server->listen_fd = fd;
    server->port = port;
    atomic_init(&server->refs, 1);
    server->health = sf_health_new();
    server->reflection = sf_reflection_new(
        sf_view_bytes(sf_contract_descriptor_set, sf_contract_descriptor_set_size));
    SF_ASSERT(server->reflection != NULL);
    if (options->expected != NULL)
        server->expected = *options->expected;
    set_services(server, options);
    set_sessions(server);
    if (options->auth != NULL) {
        server->auth_copy = *options->auth;
        server->auth = &server->auth_copy;
    }
    sf_identity_set(&server->loopback, "loopback");
    server->idle_timeout_ms = or_default(options->idle_timeout_ms, DEFAULT_IDLE_MS);
    server->first_request_timeout_ms =
        or_default(options->first_request_timeout_ms, DEFAULT_FIRST_MS);
    server->keepalive_ms = or_default(options->keepalive_ms, DEFAULT_ALIVE_MS);
    server->max_message_bytes = or_limit(options->max_message_bytes, SF_LIMIT_RPC_MESSAGE_BYTES);
    server->max_connections = or_limit(options->max_connections, SF_LIMIT_RPC_CONNECTIONS);
    server->max_streams_per_conn =
        or_limit(options->max_streams_per_conn, SF_LIMIT_RPC_STREAMS_PER_CONN);
    metrics_init(server, options->metrics);
    sf_waiter_init(&server->waiter, NULL);
    server->worker_count = sf_reactors_count(options->reactors);
    server->workers = sf_calloc(server->worker_count, sizeof(*server->workers));
    atomic_init(&server->workers_open, server->worker_count);
    for (unsigned i = 0; i < server->worker_count; i++)
        worker_start(server, i, sf_reactors_loop(options->reactors, i));
    listener_start(server);
    *out_server = server;
    return SF_OK;
}

uint16_t sf_rpc_server_port(const struct sf_rpc_server *server)
{
    return server->port;
}

void sf_rpc_server_set_serving(struct sf_rpc_server *server, const char *service, bool serving)
{
    sf_health_set(server->health, service, serving);
}

void sf_rpc_server_stop(struct sf_rpc_server *server, int64_t limit_ms)
{
    if (server == NULL)
        return;
    sf_loop_post(server->workers[0].loop, &server->close_listener);
    sf_waiter_wait(&server->waiter);
    sf_health_shutdown(server->health);
    server->drain_limit_ms = limit_ms > 0 ? limit_ms : 0;
    for (unsigned i = 0; i < server->worker_count; i++)
        sf_loop_post(server->workers[i].loop, &server->workers[i].drain_task);
    sf_waiter_wait(&server->waiter);
    rpc_server_release(server);
}
