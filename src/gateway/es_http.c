/*
 * Model: libmicrohttpd with a bounded number of connections, a thread each. A request is read whole
 * (bounded alone and together with all others), routed, answered on its thread by waiting for the
 * services, and forgotten. What makes a message ambiguous on the wire (both Content-Length and
 * Transfer-Encoding) is refused before its body.
 *
 *   headers -> checks that need no body -> body -> inflate -> route -> handler -> answer
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <microhttpd.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "gateway/es_mapping.h"
#include "gateway/es_priv.h"

#define REQUEST_ARENA_BYTES (96u << 20)
#define HEADER_BYTES        (32u << 10) /* request line and headers of one request */
#define RECEIVE_LIMIT_MS    300000      /* a whole body must have come in by then */
#define ALLOCATE_TIMEOUT_MS 30000

/* One HTTP request. */
struct http_request {
    struct sf_es *es;
    struct MHD_Connection *connection;
    const char *method;
    const char *path; /* as received, without the query */
    struct sf_buf body;
    size_t body_limit;
    size_t counted_bytes; /* what stands for this request in es->body_bytes */
    bool too_large;       /* the body passed its limit: dropped */
    bool overloaded;      /* all bodies together passed theirs: dropped */
    int64_t start_ms;
    int compatible;            /* of the answer: 8, 9, or 0 for the plain media type */
    enum sf_es_op op;          /* for metrics */
    struct es_request request; /* for handlers */
    struct sf_buf out;         /* the answer's body */
    int status;                /* the answer's status */
    const char *location;      /* header of a created document, or NULL */
};

/* ---- helpers for the whole edge ---------------------------------------------------------------
 */

void es_meta(const struct sf_es *es, Searchfabric__V1__RequestMeta *meta, const char *key)
{
    searchfabric__v1__request_meta__init(meta);
    meta->idempotency_key = (char *)(uintptr_t)key;
    meta->client_id = (char *)(uintptr_t)es->options.client_id;
    meta->client_kind = SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_ES_WRITE_GATEWAY;
}

void es_key(const struct es_request *request, const char *step, struct sf_view index, uint64_t a,
            uint64_t b, char out_hex[SF_SHA256_HEX_BYTES])
{
    struct sf_keyhash kh;

    sf_keyhash_init(&kh, "sf/es/key/1");
    sf_keyhash_u64(&kh, request->has_key ? 1 : 0); /* made keys never meet clients' */
    sf_keyhash_bytes(&kh, sf_view_str(request->key));
    sf_keyhash_bytes(&kh, sf_view_str(step));
    sf_keyhash_bytes(&kh, index);
    sf_keyhash_u64(&kh, a);
    sf_keyhash_u64(&kh, b);
    sf_keyhash_finish_hex(&kh, out_hex);
}

enum sf_err es_call(struct sf_channel *channel, const char *method, const ProtobufCMessage *request,
                    struct sf_arena *arena, struct sf_diag *diag,
                    const ProtobufCMessage **out_response)
{
    const struct sf_call_options options = {.timeout_ms = ALLOCATE_TIMEOUT_MS};

    return sf_channel_unary_wait(channel, NULL, method, request, &options, arena, diag,
                                 out_response);
}

/* ---- answers --------------------------------------------------------------------------------- */

static void answer_error(struct http_request *r, const struct sf_es_error *error,
                         struct sf_view index)
{
    sf_buf_clear(&r->out);
    sf_es_reply_error(error, index, &r->out);
    r->status = error->status;
}

static void answer_refused(struct http_request *r, int status, const char *type, const char *reason)
{
    const struct sf_es_error error = {status, type, reason};

    answer_error(r, &error, sf_view_str(""));
}

static void answer_diag(struct http_request *r, const struct sf_diag *diag, struct sf_view index)
{
    const struct sf_es_error error = sf_es_error_of(diag, r->request.arena);

    answer_error(r, &error, index);
}

static void add_header(struct MHD_Response *response, const char *name, const char *value)
{
    enum MHD_Result added = MHD_add_response_header(response, name, value);
    SF_ASSERT(added == MHD_YES);
}

static void count_request(struct http_request *r)
{
    static const char *const ops[] = {"root",       "index_exists", "index_get",  "index_create",
                                      "doc_create", "bulk",         "not_served", "unknown"};
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
static enum MHD_Result send_answer(struct http_request *r)
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

/* ---- handlers -------------------------------------------------------------------------------- */

static void handle_index_exists(struct http_request *r, struct sf_view index)
{
    struct es_binding *binding;
    struct sf_diag diag;

    sf_diag_init(&diag);
    if (es_index_resolve(r->es, &r->request, index, &diag, &binding) != SF_OK) {
        answer_diag(r, &diag, index);
        return;
    }
    es_binding_release(binding);
    r->status = 200;
}

static void handle_index_get(struct http_request *r, struct sf_view index)
{
    struct sf_diag diag;

    sf_diag_init(&diag);
    r->status = 200;
    if (es_index_describe(r->es, &r->request, index, &diag, &r->out) != SF_OK)
        answer_diag(r, &diag, index);
}

static void handle_index_create(struct http_request *r, struct sf_view index, struct sf_view body)
{
    Searchfabric__V1__CollectionSchemaDefinition *definition;
    const char *violation = sf_es_index_name_violation(index);
    struct sf_es_error error;
    struct sf_diag diag;

    sf_diag_init(&diag);
    if (violation != NULL) {
        error = (struct sf_es_error){
            400, "invalid_index_name_exception",
            sf_arena_printf(r->request.arena, "Invalid index name [%.*s], %s", (int)index.len,
                            (const char *)index.ptr, violation)};
        answer_error(r, &error, index);
        return;
    }
    if (!sf_es_mapping_read(body, r->request.arena, &definition, &error)) {
        answer_error(r, &error, index);
        return;
    }
    enum sf_err err = es_index_create(r->es, &r->request, index, definition, &diag);
    if (err == SF_ERR_EXISTS) {
        error = (struct sf_es_error){400, "resource_already_exists_exception", diag.message};
        answer_error(r, &error, index);
    } else if (err != SF_OK) {
        answer_diag(r, &diag, index);
    } else {
        r->status = 200;
        sf_buf_append_str(&r->out,
                          "{\"acknowledged\":true,\"shards_acknowledged\":true,\"index\":");
        sf_json_append_string(&r->out, index);
        sf_buf_append_str(&r->out, "}");
    }
}

static void count_documents(struct sf_es *es, const struct sf_es_result *results, size_t count)
{
    size_t created = 0;

    for (size_t i = 0; i < count; i++)
        created += results[i].error.status == 0;
    if (es->documents_total == NULL)
        return;
    static const char *const ok[] = {"created", NULL};
    static const char *const refused[] = {"refused", NULL};
    sf_metric_add(sf_metric_series(es->documents_total, ok), (int64_t)created);
    sf_metric_add(sf_metric_series(es->documents_total, refused), (int64_t)(count - created));
}

static void handle_doc(struct http_request *r, const struct sf_es_route *route, struct sf_view body)
{
    struct sf_es_bulk_item item = {.action = SF_ES_ACTION_CREATE,
                                   .has_id = route->has_id,
                                   .index = route->index,
                                   .id = route->id,
                                   .source = body,
                                   .line = 1};
    struct sf_es_result result;

    if (body.len == 0) {
        answer_refused(r, 400, "parse_exception", "request body is required");
        return;
    }
    es_write(r->es, &r->request, &item, 1, &result);
    count_documents(r->es, &result, 1);
    if (result.error.status != 0) {
        answer_error(r, &result.error, route->index);
        return;
    }
    r->status = 201;
    sf_buf_append_str(&r->out, "{");
    sf_es_reply_created(&result, route->index, &r->out);
    sf_buf_append_str(&r->out, "}");
    /* A header takes no raw text of the path: an index of other characters goes without. */
    for (size_t i = 0; i < route->index.len; i++)
        if (route->index.ptr[i] <= 0x20 || route->index.ptr[i] >= 0x7f ||
            route->index.ptr[i] == '%')
            return;
    r->location =
        sf_arena_printf(r->request.arena, "/%.*s/_doc/%llu", (int)route->index.len,
                        (const char *)route->index.ptr, (unsigned long long)result.doc_id);
}

static void handle_bulk(struct http_request *r, struct sf_view index, struct sf_view body)
{
    struct sf_es_bulk_item *items;
    struct sf_es_error error;
    size_t count;
    bool errors = false;

    if (!sf_es_bulk_parse(body, index, r->request.arena, &items, &count, &error)) {
        answer_error(r, &error, sf_view_str(""));
        return;
    }
    struct sf_es_result *results = sf_calloc(count, sizeof(*results));
    es_write(r->es, &r->request, items, count, results);
    count_documents(r->es, results, count);
    for (size_t i = 0; i < count; i++)
        errors |= results[i].error.status != 0;
    r->status = 200;
    sf_buf_printf(&r->out, "{\"errors\":%s,\"took\":%lld,\"items\":[", errors ? "true" : "false",
                  (long long)(sf_clock_mono_ms(r->es->options.clock) - r->start_ms));
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            sf_buf_append_str(&r->out, ",");
        sf_es_reply_item(&items[i], &results[i], &r->out);
    }
    sf_buf_append_str(&r->out, "]}");
    free(results);
}

/* ---- the request ----------------------------------------------------------------------------- */

static const char *header(const struct http_request *r, const char *name)
{
    return MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, name);
}

static const char *argument(const struct http_request *r, const char *name)
{
    return MHD_lookup_connection_value(r->connection, MHD_GET_ARGUMENT_KIND, name);
}

/* Refuses parameters that would change the meaning of a write and are not served. */
static enum MHD_Result check_argument(void *user, enum MHD_ValueKind kind, const char *name,
                                      const char *value)
{
    static const char *const served[] = {
        "refresh", "timeout", "wait_for_active_shards", "error_trace",   "pretty",
        "human",   "op_type", "master_timeout",         "require_alias",
    };
    const char **unserved = user;

    (void)kind;
    for (size_t i = 0; i < SF_ARRAY_LEN(served); i++)
        if (strcmp(name, served[i]) == 0 &&
            (strcmp(name, "require_alias") != 0 || value == NULL || strcmp(value, "false") == 0))
            return MHD_YES;
    if (*unserved == NULL)
        *unserved = name;
    return MHD_YES;
}

static bool read_arguments(struct http_request *r)
{
    const char *refresh = argument(r, "refresh");
    const char *op_type = argument(r, "op_type");
    const char *unserved = NULL;
    bool writes =
        r->op == SF_ES_OP_DOC_CREATE || r->op == SF_ES_OP_BULK || r->op == SF_ES_OP_INDEX_CREATE;

    (void)MHD_get_connection_values(r->connection, MHD_GET_ARGUMENT_KIND, check_argument,
                                    &unserved);
    if (writes && unserved != NULL) {
        bool text = sf_utf8_valid(sf_view_str(unserved));
        answer_refused(r, 400, "illegal_argument_exception",
                       sf_arena_printf(r->request.arena, "parameter [%s] is not served",
                                       text ? unserved : "?"));
        return false;
    }
    if (op_type != NULL && strcmp(op_type, "create") != 0 &&
        !(strcmp(op_type, "index") == 0 && r->op != SF_ES_OP_BULK)) {
        answer_refused(r, 400, "illegal_argument_exception", "opType must be 'create' or 'index'");
        return false;
    }
    if (refresh == NULL && MHD_lookup_connection_value_n(r->connection, MHD_GET_ARGUMENT_KIND,
                                                         "refresh", 7, &refresh, NULL) == MHD_YES)
        refresh = "true"; /* "?refresh" alone */
    if (refresh == NULL || strcmp(refresh, "false") == 0)
        return true;
    if (*refresh != '\0' && strcmp(refresh, "true") != 0 && strcmp(refresh, "wait_for") != 0) {
        answer_refused(r, 400, "illegal_argument_exception",
                       "Unknown value for refresh: true, false and wait_for are known");
        return false;
    }
    r->request.wait_visible = true;
    r->request.forced_refresh = strcmp(refresh, "wait_for") != 0;
    return true;
}

/* Takes the client's key, or makes one that no other request has. */
static bool read_key(struct http_request *r)
{
    const char *key = header(r, "Idempotency-Key");
    struct sf_diag diag;

    sf_diag_init(&diag);
    if (key == NULL) {
        uint64_t turn = atomic_fetch_add(&r->es->turn, 1);
        r->request.key =
            sf_arena_printf(r->request.arena, "%016llx-%llu",
                            (unsigned long long)r->es->options.seed, (unsigned long long)turn);
        return true;
    }
    r->request.has_key = true;
    r->request.key = key;
    if (sf_identity_check("Idempotency-Key", sf_view_str(key), 1, SF_LIMIT_IDEMPOTENCY_KEY_SCALARS,
                          &diag) == SF_OK)
        return true;
    answer_diag(r, &diag, sf_view_str(""));
    return false;
}

static bool answer_media(struct http_request *r, const char *name, const char *value, int status)
{
    struct sf_view text = sf_view_str(value);

    sf_buf_clear(&r->out);
    r->status = status;
    if (!sf_utf8_valid(text))
        text = sf_view_str("?");
    char *reason = sf_arena_printf(r->request.arena, "%s header [%.*s] is not supported", name,
                                   (int)text.len, (const char *)text.ptr);
    sf_buf_append_str(&r->out, "{\"error\":");
    sf_json_append_string(&r->out, sf_view_str(reason));
    sf_buf_printf(&r->out, ",\"status\":%d}", status);
    return false;
}

/* Media types of the request and of the answer. */
static bool read_media(struct http_request *r)
{
    const char *accept = header(r, MHD_HTTP_HEADER_ACCEPT);
    const char *content = header(r, MHD_HTTP_HEADER_CONTENT_TYPE);
    int version;

    enum sf_es_media media = sf_es_media_read(accept, &r->compatible);
    if (media == SF_ES_MEDIA_OTHER || media == SF_ES_MEDIA_NDJSON)
        return answer_media(r, "Accept", accept, 406);
    if (media == SF_ES_MEDIA_VERSION) {
        r->compatible = 0;
        answer_refused(r, 400, "media_type_header_exception",
                       "Invalid media-type value on headers [Accept]: compatible-with 8 and 9 are "
                       "served");
        return false;
    }
    if (r->body.len == 0)
        return true;
    media = sf_es_media_read(content, &version);
    if (media == SF_ES_MEDIA_VERSION) {
        answer_refused(r, 400, "media_type_header_exception",
                       "Invalid media-type value on headers [Content-Type]: compatible-with 8 and "
                       "9 are served");
        return false;
    }
    if (media == SF_ES_MEDIA_JSON || (media == SF_ES_MEDIA_NDJSON && r->op == SF_ES_OP_BULK))
        return true;
    return answer_media(r, "Content-Type", content == NULL ? "" : content, 406);
}

/* Counts `len` more bytes for this request; false when all requests together hold too many. */
static bool budget_take(struct http_request *r, size_t len)
{
    size_t before = atomic_fetch_add(&r->es->body_bytes, len);

    r->counted_bytes += len;
    r->overloaded |= before + len > SF_LIMIT_ES_BODIES_BYTES;
    return !r->overloaded;
}

static void answer_overloaded(struct http_request *r)
{
    answer_refused(r, 429, "es_rejected_execution_exception",
                   "the bodies of requests under way use all the memory set aside for them");
}

static bool read_encoding(struct http_request *r)
{
    const char *encoding = header(r, MHD_HTTP_HEADER_CONTENT_ENCODING);
    struct sf_buf plain = {0};
    bool too_long;

    if (encoding == NULL || r->body.len == 0 || strcasecmp(encoding, "identity") == 0)
        return true;
    if (strcasecmp(encoding, "gzip") != 0 && strcasecmp(encoding, "x-gzip") != 0) {
        answer_refused(r, 415, "illegal_argument_exception",
                       "of content encodings only gzip is served");
        return false;
    }
    if (es_body_inflate(sf_buf_view(&r->body), r->body_limit, &plain, &too_long)) {
        sf_buf_fini(&r->body);
        r->body = plain;
        if (budget_take(r, plain.len))
            return true;
        answer_overloaded(r);
        return false;
    }
    sf_buf_fini(&plain);
    answer_refused(r, too_long ? 413 : 400, "illegal_argument_exception",
                   too_long ? "the inflated body is too large" : "the body is not whole gzip data");
    return false;
}

static void dispatch(struct http_request *r, const struct sf_es_route *route)
{
    struct sf_view body = sf_buf_view(&r->body);

    switch (route->op) {
    case SF_ES_OP_ROOT:
        r->status = 200;
        sf_es_reply_root(&r->out);
        break;
    case SF_ES_OP_INDEX_EXISTS:
        handle_index_exists(r, route->index);
        break;
    case SF_ES_OP_INDEX_GET:
        handle_index_get(r, route->index);
        break;
    case SF_ES_OP_INDEX_CREATE:
        handle_index_create(r, route->index, body);
        break;
    case SF_ES_OP_DOC_CREATE:
        handle_doc(r, route, body);
        break;
    case SF_ES_OP_BULK:
        handle_bulk(r, route->index, body);
        break;
    default:
        answer_error(r, &route->error, sf_view_str(""));
        break;
    }
}

static bool text_ok(struct sf_view text)
{
    return sf_utf8_valid(text) &&
           memchr(text.ptr == NULL ? (const void *)"x" : text.ptr, 0, text.len) == NULL;
}

/* The request is complete: fills the answer. */
static void run(struct http_request *r)
{
    const char *op_type = argument(r, "op_type");
    struct sf_es_route route;

    if (r->overloaded) {
        answer_overloaded(r);
        return;
    }
    if (r->too_large) {
        answer_refused(r, 413, "illegal_argument_exception", "the body is too large");
        return;
    }
    if (!text_ok(sf_view_str(r->path)) ||
        !sf_es_route(r->method, sf_view_str(r->path),
                     op_type != NULL && strcmp(op_type, "create") == 0, r->request.arena, &route) ||
        !text_ok(route.index) || !text_ok(route.id)) {
        answer_refused(r, 400, "illegal_argument_exception", "the path is not valid text");
        return;
    }
    r->op = route.op;
    if (read_media(r) && read_encoding(r) && read_arguments(r) && read_key(r))
        dispatch(r, &route);
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
static bool check_head(struct http_request *r)
{
    const char *length = header(r, MHD_HTTP_HEADER_CONTENT_LENGTH);
    const char *transfer = header(r, MHD_HTTP_HEADER_TRANSFER_ENCODING);
    unsigned lengths = 0;
    uint64_t bytes = 0;

    (void)MHD_get_connection_values(r->connection, MHD_HEADER_KIND, count_length, &lengths);
    if (lengths > 1) {
        answer_refused(r, 400, "illegal_argument_exception", "Content-Length is there twice");
        return false;
    }
    if (length != NULL && transfer != NULL) {
        answer_refused(r, 400, "illegal_argument_exception",
                       "Content-Length and Transfer-Encoding exclude each other");
        return false;
    }
    if (transfer != NULL && strcasecmp(transfer, "chunked") != 0) {
        answer_refused(r, 501, "illegal_argument_exception",
                       "of transfer encodings only chunked is served");
        return false;
    }
    if (length != NULL && !sf_parse_u64(sf_view_str(length), &bytes)) {
        answer_refused(r, 400, "illegal_argument_exception", "Content-Length is not a number");
        return false;
    }
    if (bytes > r->body_limit) {
        answer_refused(r, 413, "illegal_argument_exception", "the body is too large");
        return false;
    }
    return true;
}

static struct http_request *request_new(struct sf_es *es, struct MHD_Connection *connection,
                                        const char *method, const char *path)
{
    struct http_request *r = sf_calloc(1, sizeof(*r));

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

static void take_body(struct http_request *r, const char *data, size_t len)
{
    if (r->too_large || r->overloaded)
        return;
    if (len > r->body_limit - r->body.len) {
        r->too_large = true;
        return;
    }
    if (!budget_take(r, len))
        return;
    sf_buf_append(&r->body, data, len);
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *data,
                                  size_t *data_len, void **state)
{
    struct http_request *r = *state;

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
    run(r);
    return send_answer(r);
}

static void on_completed(void *user, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode code)
{
    struct sf_es *es = user;
    struct http_request *r = *state;

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

enum sf_err sf_es_start(const struct sf_es_options *options, struct sf_diag *diag,
                        struct sf_es **out_es)
{
    struct sf_es *es = es_new(options);
    struct listen_address address;

    if (!address_read(es->options.host, options->port, &address)) {
        es_free(es);
        return sf_diag_set(diag, SF_ERR_CONFIG, "the Elasticsearch edge binds loopback only");
    }
    es->ingest = es_ingest_new(options->ingest, options->loop, es->options.client_id);
    es->daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL |
            address.flags,
        options->port, NULL, NULL, on_request, es, MHD_OPTION_SOCK_ADDR, &address.socket.any,
        MHD_OPTION_CONNECTION_LIMIT, es->options.max_connections, MHD_OPTION_CONNECTION_TIMEOUT,
        es->options.request_timeout_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_BYTES,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, es, MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes,
        NULL, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    if (es->daemon == NULL) {
        es_ingest_destroy(es->ingest);
        es_free(es);
        return sf_diag_set(diag, SF_ERR_IO, "cannot listen on %s port %u (Elasticsearch)",
                           options->host != NULL ? options->host : "127.0.0.1",
                           (unsigned)options->port);
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

void sf_es_stop(struct sf_es *es, int64_t limit_ms)
{
    const struct timespec pause = {.tv_nsec = 5000000};

    if (es == NULL)
        return;
    MHD_socket listening = MHD_quiesce_daemon(es->daemon);
    if (listening != MHD_INVALID_SOCKET)
        (void)close(listening);
    int64_t until_ms = sf_clock_mono_ms(es->options.clock) + limit_ms;
    while (atomic_load(&es->active) > 0 && sf_clock_mono_ms(es->options.clock) < until_ms)
        (void)nanosleep(&pause, NULL);
    MHD_stop_daemon(es->daemon);
    es_ingest_destroy(es->ingest);
    es_free(es);
}
