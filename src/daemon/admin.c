/*
 * Model: port 7401, loopback, read only. /metrics is the registry in Prometheus text; /healthz says
 * that the process lives and its loops turn; /readyz says whether every worker serves, and lists
 * them either way. Two threads suffice: nothing here waits.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <microhttpd.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"
#include "daemon/server_priv.h"

#define ADMIN_THREADS   2
#define ADMIN_TIMEOUT_S 10

struct sf_admin {
    struct MHD_Daemon *daemon; /* owned: the HTTP server */
    uint16_t port;             /* it listens on */
};

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status, const char *type,
                              struct sf_buf *body)
{
    static char nothing[1];
    struct MHD_Response *response =
        body->data == NULL
            ? MHD_create_response_from_buffer(0, nothing, MHD_RESPMEM_PERSISTENT)
            : MHD_create_response_from_buffer(body->len, body->data, MHD_RESPMEM_MUST_FREE);

    SF_ASSERT(response != NULL);
    enum MHD_Result added = MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    SF_ASSERT(added == MHD_YES);
    enum MHD_Result queued = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return queued;
}

static void set_gauge(struct sf_server *server, const char *name, const char *help, uint64_t value)
{
    struct sf_metric_family *family =
        sf_metrics_family(server->metrics, SF_METRIC_GAUGE, name, help, NULL);

    sf_metric_set(sf_metric_series(family, NULL), (int64_t)value);
}

/* Gauges that are only worth a look when somebody looks. */
static void refresh_gauges(struct sf_server *server)
{
    static const char *const labels[] = {"worker", NULL};
    struct sf_worker_status status[SF_WORKER_COUNT];
    struct sf_metric_family *up = sf_metrics_family(
        server->metrics, SF_METRIC_GAUGE, "searchfabric_worker_serving", "1 = it serves", labels);

    (void)sf_workers_look(server, status);
    for (int i = 0; i < SF_WORKER_COUNT; i++) {
        const char *const values[] = {status[i].name, NULL};
        sf_metric_set(sf_metric_series(up, values), status[i].state == SF_WORKER_SERVING);
    }
    set_gauge(server, "searchfabric_uptime_ms", "Since the process started",
              (uint64_t)(sf_clock_mono_ms(server->clock) - server->started_mono_ms));
}

static enum MHD_Result serve_metrics(struct sf_server *server, struct MHD_Connection *connection)
{
    struct sf_buf body = {0};

    refresh_gauges(server);
    sf_metrics_render(server->metrics, &body);
    return answer(connection, 200, "text/plain; version=0.0.4; charset=utf-8", &body);
}

static enum MHD_Result serve_health(struct sf_server *server, struct MHD_Connection *connection,
                                    bool ready)
{
    struct sf_worker_status status[SF_WORKER_COUNT];
    struct sf_buf body = {0};
    bool serving = sf_workers_look(server, status);
    bool good = ready ? serving : status[SF_WORKER_REACTORS].state != SF_WORKER_FAILED;

    sf_buf_printf(&body, "{\"status\":\"%s\",", good ? "ok" : "unavailable");
    if (!serving)
        sf_buf_printf(&body, "\"reason\":\"%s\",", sf_workers_reason(status));
    sf_buf_append_str(&body, "\"workers\":[");
    for (int i = 0; i < SF_WORKER_COUNT; i++) {
        sf_buf_printf(&body, "%s{\"name\":\"%s\",\"role\":\"%s\",\"state\":\"%s\"",
                      i == 0 ? "" : ",", status[i].name, status[i].role,
                      sf_worker_state_text(status[i].state));
        if (status[i].heartbeat_age_ms > 0)
            sf_buf_printf(&body, ",\"heartbeat_age_ms\":%llu",
                          (unsigned long long)status[i].heartbeat_age_ms);
        if (status[i].detail[0] != '\0') {
            sf_buf_append_str(&body, ",\"detail\":");
            sf_json_append_string(&body, sf_view_str(status[i].detail));
        }
        sf_buf_append_str(&body, "}");
    }
    sf_buf_append_str(&body, "]}\n");
    return answer(connection, good ? 200 : 503, "application/json", &body);
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *data,
                                  size_t *data_len, void **state)
{
    struct sf_server *server = user;
    struct sf_buf body = {0};

    (void)version, (void)data;
    if (*state == NULL) {
        *state = server; /* headers only: the body, if any, is passed over */
        return MHD_YES;
    }
    if (*data_len > 0) {
        *data_len = 0;
        return MHD_YES;
    }
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
        sf_buf_append_str(&body, "only GET is served here\n");
        return answer(connection, 405, "text/plain", &body);
    }
    if (strcmp(path, "/metrics") == 0)
        return serve_metrics(server, connection);
    if (strcmp(path, "/healthz") == 0)
        return serve_health(server, connection, false);
    if (strcmp(path, "/readyz") == 0)
        return serve_health(server, connection, true);
    sf_buf_append_str(&body, "/metrics, /healthz and /readyz are served here\n");
    return answer(connection, 404, "text/plain", &body);
}

enum sf_err sf_admin_start(struct sf_server *server, struct sf_diag *diag)
{
    const struct sf_listen *listen = &server->config->admin;
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(listen->port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(listen->port)};
    bool is_v6 = inet_pton(AF_INET6, listen->host, &v6.sin6_addr) == 1;
    unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | (is_v6 ? MHD_USE_IPv6 : 0);

    if (!is_v6 && inet_pton(AF_INET, listen->host, &v4.sin_addr) != 1)
        return sf_diag_set(diag, SF_ERR_CONFIG, "%s is not an address", listen->host);
    errno = 0;
    struct MHD_Daemon *daemon = MHD_start_daemon(
        flags, listen->port, NULL, NULL, on_request, server, MHD_OPTION_SOCK_ADDR,
        is_v6 ? (struct sockaddr *)&v6 : (struct sockaddr *)&v4, MHD_OPTION_THREAD_POOL_SIZE,
        (unsigned)ADMIN_THREADS, MHD_OPTION_CONNECTION_LIMIT, SF_LIMIT_ADMIN_CONNECTIONS,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)ADMIN_TIMEOUT_S, MHD_OPTION_END);
    if (daemon == NULL)
        return sf_diag_set(diag, SF_ERR_IO, "cannot listen on %s port %u (admin)%s%s", listen->host,
                           (unsigned)listen->port, errno == 0 ? "" : ": ",
                           errno == 0 ? "" : strerror(errno));
    server->admin = sf_calloc(1, sizeof(*server->admin));
    server->admin->daemon = daemon;
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT);
    server->admin->port = info != NULL ? info->port : listen->port;
    return SF_OK;
}

uint16_t sf_admin_port(const struct sf_admin *admin)
{
    return admin->port;
}

void sf_admin_stop(struct sf_admin *admin)
{
    if (admin == NULL)
        return;
    MHD_stop_daemon(admin->daemon);
    free(admin);
}
