/*
 * Model: libmicrohttpd with a bounded number of connections, a thread each. A request is read whole
 * (bounded alone and together with all others), routed, answered on its thread by waiting for the
 * services, and forgotten. What makes a message ambiguous on the wire (both Content-Length and
 * Transfer-Encoding) is refused before its body.
 *
 *   headers -> checks that need no body -> body -> inflate -> route -> handler -> answer
 */
#include "gateway/es_http_priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/text.h"

#define CUT_MS              1000 /* for the answers of requests that a stop cut off */
#define REQUEST_ARENA_BYTES (96u << 20)
#define HEADER_BYTES        (32u << 10) /* request line and headers of one request */
#define RECEIVE_LIMIT_MS    300000      /* a whole body must have come in by then */

/* ---- the answer ------------------------------------------------------------------------------ */

static void add_header(struct MHD_Response *response, const char *name, const char *value)
{
    enum MHD_Result added = MHD_add_response_header(response, name, value);
    SF_ASSERT(added == MHD_YES);
}

static void count_request(struct es_http *r)
{
    static const char *const ops[] = {"root",         "index_exists", "index_get",
                                      "index_create", "index_delete", "doc_create",
                                      "bulk",         "not_served",   "unknown"};
    struct sf_es *es = r->es;
    char status[8];

    if (es->requests_total == NULL)
        return;
    (void)snprintf(status, sizeof(status), "%d", r->status);
    const char *const values[] = {ops[r->op], status, NULL};
    const char *const op_only[] = {ops[r->op], NULL};
    sf_metric_add(sf_metric_series(es->requests_total, values), 1);
    sf_metric_observe_ms(sf_metric_series(es->latency_ms, op_only),
                         (double)(sf_clock_mono_ms(es->options.clock) - r->start_ms));
}

/* Sends what stands in r->out. */
static enum MHD_Result send_answer(struct es_http *r)
{
    static char nothing[1];
    struct MHD_Response *response =
        r->out.data == NULL
            ? MHD_create_response_from_buffer(0, nothing, MHD_RESPMEM_PERSISTENT)
            : MHD_create_response_from_buffer(r->out.len, r->out.data, MHD_RESPMEM_MUST_FREE);
    char type[64] = "application/json";

    SF_ASSERT(response != NULL);
    r->out = (struct sf_buf){0};
    if (r->compatible != 0)
        (void)snprintf(type, sizeof(type), "application/vnd.elasticsearch+json;compatible-with=%d",
                       r->compatible);
    add_header(response, "X-elastic-product", "Elasticsearch");
    add_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (r->status == 429 || r->status == 503)
        add_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    if (r->location != NULL)
        add_header(response, MHD_HTTP_HEADER_LOCATION, r->location);
    count_request(r);
    enum MHD_Result queued = MHD_queue_response(r->connection, (unsigned)r->status, response);
    MHD_destroy_response(response);
    return queued;
}

/* ---- libmicrohttpd --------------------------------------------------------------------------- */

/* Counts the Content-Length headers: libmicrohttpd takes one of several, a proxy may take another.
 */
static enum MHD_Result count_length(void *user, enum MHD_ValueKind kind, const char *name,
                                    const char *value)
{
    unsigned *count = user;

    (void)kind, (void)value;
    if (strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0)
        (*count)++;
    return MHD_YES;
}

/* Headers that leave no doubt where the body ends and that it may come; else fills the answer. */
static bool check_head(struct es_http *r)
{
    const char *length = es_header(r, MHD_HTTP_HEADER_CONTENT_LENGTH);
    const char *transfer = es_header(r, MHD_HTTP_HEADER_TRANSFER_ENCODING);
    unsigned lengths = 0;
    uint64_t bytes = 0;

    (void)MHD_get_connection_values(r->connection, MHD_HEADER_KIND, count_length, &lengths);
    if (lengths > 1) {
        es_answer_refused(r, 400, "illegal_argument_exception", "Content-Length is there twice");
        return false;
    }
    if (length != NULL && transfer != NULL) {
        es_answer_refused(r, 400, "illegal_argument_exception",
                          "Content-Length and Transfer-Encoding exclude each other");
        return false;
    }
    if (transfer != NULL && strcasecmp(transfer, "chunked") != 0) {
        es_answer_refused(r, 501, "illegal_argument_exception",
                          "of transfer encodings only chunked is served");
        return false;
    }
    if (length != NULL && !sf_parse_u64(sf_view_str(length), &bytes)) {
        es_answer_refused(r, 400, "illegal_argument_exception", "Content-Length is not a number");
        return false;
    }
    if (bytes > r->body_limit) {
        es_answer_refused(r, 413, "illegal_argument_exception", "the body is too large");
        return false;
    }
    return true;
}

static struct es_http *request_new(struct sf_es *es, struct MHD_Connection *connection,
                                   const char *method, const char *path)
{
    struct es_http *r = sf_calloc(1, sizeof(*r));

    r->es = es;
    r->connection = connection;
    r->method = method;
    r->path = path;
    r->body_limit = es->options.max_body_bytes;
    r->start_ms = sf_clock_mono_ms(es->options.clock);
    r->op = SF_ES_OP_UNKNOWN;
    r->request.arena = sf_arena_new(REQUEST_ARENA_BYTES);
    atomic_fetch_add(&es->active, 1);
    return r;
}

static void take_body(struct es_http *r, const char *data, size_t len)
{
    if (r->too_large || r->overloaded)
        return;
    if (len > r->body_limit - r->body.len) {
        r->too_large = true;
        return;
    }
    if (!es_budget_take(r, len))
        return;
    sf_buf_append(&r->body, data, len);
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *data,
                                  size_t *data_len, void **state)
{
    struct es_http *r = *state;

    (void)version;
    if (r == NULL) {
        r = *state = request_new(user, connection, method, path);
        return check_head(r) ? MHD_YES : send_answer(r);
    }
    if (*data_len > 0) {
        if (sf_clock_mono_ms(r->es->options.clock) - r->start_ms > RECEIVE_LIMIT_MS)
            return MHD_NO;
        take_body(r, data, *data_len);
        *data_len = 0;
        /* A peer that goes on sending into the void is cut off. */
        return r->too_large && r->body.len >= r->body_limit ? MHD_NO : MHD_YES;
    }
    es_serve(r);
    return send_answer(r);
}

static void on_completed(void *user, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode code)
{
    struct sf_es *es = user;
    struct es_http *r = *state;

    (void)connection, (void)code;
    if (r == NULL)
        return;
    *state = NULL;
    atomic_fetch_sub(&es->body_bytes, r->counted_bytes);
    sf_buf_fini(&r->body);
    sf_buf_fini(&r->out);
    sf_arena_destroy(r->request.arena);
    free(r);
    atomic_fetch_sub(&es->active, 1);
}

/* Paths and arguments stay as received; they are decoded part by part. */
static size_t keep_escapes(void *user, struct MHD_Connection *connection, char *text)
{
    (void)user, (void)connection;
    return strlen(text);
}

/* ---- start and stop ---------------------------------------------------------------------------
 */

/* An address to listen on; loopback only. */
struct listen_address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } socket;
    unsigned flags; /* for libmicrohttpd */
};

static bool address_read(const char *host, uint16_t port, struct listen_address *out)
{
    struct in6_addr v6;

    *out = (struct listen_address){0};
    if (inet_pton(AF_INET6, host, &v6) == 1) {
        out->flags = MHD_USE_IPv6;
        out->socket.v6 = (struct sockaddr_in6){
            .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = v6};
        return IN6_IS_ADDR_LOOPBACK(&v6);
    }
    out->socket.v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
    if (inet_pton(AF_INET, strcmp(host, "localhost") == 0 ? "127.0.0.1" : host,
                  &out->socket.v4.sin_addr) != 1)
        return false;
    return (ntohl(out->socket.v4.sin_addr.s_addr) >> 24) == 127;
}

static const char *or_default(const char *text, const char *other)
{
    return sf_strdup(text != NULL ? text : other);
}

static struct sf_es *es_new(const struct sf_es_options *options)
{
    struct sf_es *es = sf_calloc(1, sizeof(*es));
    struct sf_es_options *o = &es->options;

    *o = *options;
    o->host = or_default(options->host, "127.0.0.1");
    o->namespace_name = or_default(options->namespace_name, "default");
    o->client_id = or_default(options->client_id, "es-gateway");
    o->identity = or_default(options->identity, "loopback");
    if (o->max_connections == 0)
        o->max_connections = SF_LIMIT_ES_CONNECTIONS;
    if (o->max_body_bytes == 0)
        o->max_body_bytes = SF_LIMIT_ES_BODY_BYTES;
    if (o->request_timeout_s == 0)
        o->request_timeout_s = 60;
    if (o->write_timeout_ms == 0)
        o->write_timeout_ms = 60000;
    es->bindings = sf_map_new();
    SF_ASSERT(pthread_mutex_init(&es->mu, NULL) == 0);
    if (o->metrics != NULL) {
        static const char *const request_labels[] = {"operation", "status", NULL};
        static const char *const op_labels[] = {"operation", NULL};
        static const char *const result_labels[] = {"result", NULL};
        es->requests_total =
            sf_metrics_family(o->metrics, SF_METRIC_COUNTER, "searchfabric_es_requests_total",
                              "Answered HTTP requests", request_labels);
        es->latency_ms =
            sf_metrics_family(o->metrics, SF_METRIC_HISTOGRAM, "searchfabric_es_latency_ms",
                              "From headers to answer", op_labels);
        es->documents_total =
            sf_metrics_family(o->metrics, SF_METRIC_COUNTER, "searchfabric_es_documents_total",
                              "Documents of answered writes", result_labels);
    }
    return es;
}

static void es_free(struct sf_es *es)
{
    es_index_fini(es);
    (void)pthread_mutex_destroy(&es->mu);
    free((void *)(uintptr_t)es->options.host);
    free((void *)(uintptr_t)es->options.namespace_name);
    free((void *)(uintptr_t)es->options.client_id);
    free((void *)(uintptr_t)es->options.identity);
    free(es);
}

void sf_es_serve(struct sf_es *es, const struct sf_es_channels *channels)
{
    SF_ASSERT(!atomic_load(&es->serving));
    es->options.channels = *channels;
    es->ingest = es_ingest_new(channels->ingest, es->options.loop, es->options.client_id);
    atomic_store(&es->serving, true);
}

enum sf_err sf_es_start(const struct sf_es_options *options, struct sf_diag *diag,
                        struct sf_es **out_es)
{
    struct sf_es *es = es_new(options);
    struct listen_address address;

    if (!address_read(es->options.host, options->port, &address)) {
        es_free(es);
        return sf_diag_set(diag, SF_ERR_CONFIG, "the Elasticsearch edge binds loopback only");
    }
    if (options->channels.catalog != NULL)
        sf_es_serve(es, &options->channels);
    errno = 0;
    es->daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL |
            address.flags,
        options->port, NULL, NULL, on_request, es, MHD_OPTION_SOCK_ADDR, &address.socket.any,
        MHD_OPTION_CONNECTION_LIMIT, es->options.max_connections, MHD_OPTION_CONNECTION_TIMEOUT,
        es->options.request_timeout_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_BYTES,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, es, MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes,
        NULL, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    if (es->daemon == NULL) {
        int reason = errno;
        es_ingest_destroy(es->ingest);
        es_free(es);
        return sf_diag_set(diag, SF_ERR_IO, "cannot listen on %s port %u (Elasticsearch)%s%s",
                           options->host != NULL ? options->host : "127.0.0.1",
                           (unsigned)options->port, reason == 0 ? "" : ": ",
                           reason == 0 ? "" : strerror(reason));
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(es->daemon, MHD_DAEMON_INFO_BIND_PORT);
    es->port = info != NULL ? info->port : options->port;
    *out_es = es;
    return SF_OK;
}

uint16_t sf_es_port(const struct sf_es *es)
{
    return es->port;
}

unsigned sf_es_active(const struct sf_es *es)
{
    return atomic_load(&es->active);
}

/* Waits until no request is open, at most so long. */
static void wait_idle(const struct sf_es *es, int64_t limit_ms)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    int64_t until_ms = sf_clock_mono_ms(es->options.clock) + limit_ms;

    while (atomic_load(&es->active) > 0 && sf_clock_mono_ms(es->options.clock) < until_ms)
        (void)nanosleep(&pause, NULL);
}

void sf_es_stop(struct sf_es *es, int64_t limit_ms)
{
    if (es == NULL)
        return;
    MHD_socket listening = MHD_quiesce_daemon(es->daemon);
    if (listening != MHD_INVALID_SOCKET)
        (void)close(listening);
    wait_idle(es, limit_ms);
    if (atomic_load(&es->active) > 0) {
        if (es->ingest != NULL)
            es_ingest_cut(es->ingest);
        wait_idle(es, CUT_MS);
    }
    MHD_stop_daemon(es->daemon);
    es_ingest_destroy(es->ingest);
    es_free(es);
}
