/*
 * Model: a complete request is taken apart (path, media types, encoding, parameters, key), each
 * part refusing in Elasticsearch's words what is not served, and handed to the handler of its
 * route. The answer gathers in the request; nothing is sent here.
 */
#include "gateway/es_http_priv.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/text.h"
#include "gateway/es_mapping.h"

#define CALL_TIMEOUT_MS 30000

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
    const struct sf_call_options options = {.timeout_ms = CALL_TIMEOUT_MS};

    return sf_channel_unary_wait(channel, NULL, method, request, &options, arena, diag,
                                 out_response);
}

/* ---- answers --------------------------------------------------------------------------------- */

static void answer_error(struct es_http *r, const struct sf_es_error *error, struct sf_view index)
{
    sf_buf_clear(&r->out);
    sf_es_reply_error(error, index, &r->out);
    r->status = error->status;
}

void es_answer_refused(struct es_http *r, int status, const char *type, const char *reason)
{
    const struct sf_es_error error = {status, type, reason};

    answer_error(r, &error, sf_view_str(""));
}

static void answer_diag(struct es_http *r, const struct sf_diag *diag, struct sf_view index)
{
    const struct sf_es_error error = sf_es_error_of(diag, r->request.arena);

    answer_error(r, &error, index);
}

/* ---- handlers -------------------------------------------------------------------------------- */

static void handle_index_exists(struct es_http *r, struct sf_view index)
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

static void handle_index_get(struct es_http *r, struct sf_view index)
{
    struct sf_diag diag;

    sf_diag_init(&diag);
    r->status = 200;
    if (es_index_describe(r->es, &r->request, index, &diag, &r->out) != SF_OK)
        answer_diag(r, &diag, index);
}

static void handle_index_create(struct es_http *r, struct sf_view index, struct sf_view body)
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

static void handle_index_delete(struct es_http *r, struct sf_view index)
{
    struct sf_diag diag;

    sf_diag_init(&diag);
    if (memchr(index.ptr, '*', index.len) != NULL || memchr(index.ptr, ',', index.len) != NULL) {
        const struct sf_es_error error = {400, "illegal_argument_exception",
                                          "Wildcard expressions or all indices are not allowed"};
        answer_error(r, &error, index);
        return;
    }
    if (es_index_delete(r->es, &r->request, index, &diag) != SF_OK) {
        answer_diag(r, &diag, index);
        return;
    }
    r->status = 200;
    sf_buf_append_str(&r->out, "{\"acknowledged\":true}");
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

static void handle_doc(struct es_http *r, const struct sf_es_route *route, struct sf_view body)
{
    struct sf_es_bulk_item item = {.action = SF_ES_ACTION_CREATE,
                                   .has_id = route->has_id,
                                   .index = route->index,
                                   .id = route->id,
                                   .source = body,
                                   .line = 1};
    struct sf_es_result result;

    if (body.len == 0) {
        es_answer_refused(r, 400, "parse_exception", "request body is required");
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

static void handle_bulk(struct es_http *r, struct sf_view index, struct sf_view body)
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

const char *es_header(const struct es_http *r, const char *name)
{
    return MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, name);
}

static const char *argument(const struct es_http *r, const char *name)
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

static bool read_arguments(struct es_http *r)
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
        es_answer_refused(r, 400, "illegal_argument_exception",
                          sf_arena_printf(r->request.arena, "parameter [%s] is not served",
                                          text ? unserved : "?"));
        return false;
    }
    if (op_type != NULL && strcmp(op_type, "create") != 0 &&
        !(strcmp(op_type, "index") == 0 && r->op != SF_ES_OP_BULK)) {
        es_answer_refused(r, 400, "illegal_argument_exception",
                          "opType must be 'create' or 'index'");
        return false;
    }
    if (refresh == NULL && MHD_lookup_connection_value_n(r->connection, MHD_GET_ARGUMENT_KIND,
                                                         "refresh", 7, &refresh, NULL) == MHD_YES)
        refresh = "true"; /* "?refresh" alone */
    if (refresh == NULL || strcmp(refresh, "false") == 0)
        return true;
    if (*refresh != '\0' && strcmp(refresh, "true") != 0 && strcmp(refresh, "wait_for") != 0) {
        es_answer_refused(r, 400, "illegal_argument_exception",
                          "Unknown value for refresh: true, false and wait_for are known");
        return false;
    }
    r->request.wait_visible = true;
    r->request.forced_refresh = strcmp(refresh, "wait_for") != 0;
    return true;
}

/* Takes the client's key, or makes one that no other request has. */
static bool read_key(struct es_http *r)
{
    const char *key = es_header(r, "Idempotency-Key");
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

static bool answer_media(struct es_http *r, const char *name, const char *value, int status)
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
static bool read_media(struct es_http *r)
{
    const char *accept = es_header(r, MHD_HTTP_HEADER_ACCEPT);
    const char *content = es_header(r, MHD_HTTP_HEADER_CONTENT_TYPE);
    int version;

    enum sf_es_media media = sf_es_media_read(accept, &r->compatible);
    if (media == SF_ES_MEDIA_OTHER || media == SF_ES_MEDIA_NDJSON)
        return answer_media(r, "Accept", accept, 406);
    if (media == SF_ES_MEDIA_VERSION) {
        r->compatible = 0;
        es_answer_refused(
            r, 400, "media_type_header_exception",
            "Invalid media-type value on headers [Accept]: compatible-with 8 and 9 are "
            "served");
        return false;
    }
    if (r->body.len == 0)
        return true;
    media = sf_es_media_read(content, &version);
    if (media == SF_ES_MEDIA_VERSION) {
        es_answer_refused(
            r, 400, "media_type_header_exception",
            "Invalid media-type value on headers [Content-Type]: compatible-with 8 and "
            "9 are served");
        return false;
    }
    if (media == SF_ES_MEDIA_JSON || (media == SF_ES_MEDIA_NDJSON && r->op == SF_ES_OP_BULK))
        return true;
    return answer_media(r, "Content-Type", content == NULL ? "" : content, 406);
}

bool es_budget_take(struct es_http *r, size_t len)
{
    size_t before = atomic_fetch_add(&r->es->body_bytes, len);

    r->counted_bytes += len;
    r->overloaded |= before + len > SF_LIMIT_ES_BODIES_BYTES;
    return !r->overloaded;
}

static void answer_overloaded(struct es_http *r)
{
    es_answer_refused(r, 429, "es_rejected_execution_exception",
                      "the bodies of requests under way use all the memory set aside for them");
}

static bool read_encoding(struct es_http *r)
{
    const char *encoding = es_header(r, MHD_HTTP_HEADER_CONTENT_ENCODING);
    struct sf_buf plain = {0};
    bool too_long;

    if (encoding == NULL || r->body.len == 0 || strcasecmp(encoding, "identity") == 0)
        return true;
    if (strcasecmp(encoding, "gzip") != 0 && strcasecmp(encoding, "x-gzip") != 0) {
        es_answer_refused(r, 415, "illegal_argument_exception",
                          "of content encodings only gzip is served");
        return false;
    }
    if (es_body_inflate(sf_buf_view(&r->body), r->body_limit, &plain, &too_long)) {
        sf_buf_fini(&r->body);
        r->body = plain;
        if (es_budget_take(r, plain.len))
            return true;
        answer_overloaded(r);
        return false;
    }
    sf_buf_fini(&plain);
    es_answer_refused(r, too_long ? 413 : 400, "illegal_argument_exception",
                      too_long ? "the inflated body is too large"
                               : "the body is not whole gzip data");
    return false;
}

static void dispatch(struct es_http *r, const struct sf_es_route *route)
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
    case SF_ES_OP_INDEX_DELETE:
        handle_index_delete(r, route->index);
        break;
    case SF_ES_OP_DOC_CREATE:
        handle_doc(r, route, body);
        break;
    case SF_ES_OP_BULK:
        handle_bulk(r, route->index, body);
        break;
    default:
        answer_error(r, &route->error, route->index);
        break;
    }
}

static bool text_ok(struct sf_view text)
{
    return sf_utf8_valid(text) &&
           memchr(text.ptr == NULL ? (const void *)"x" : text.ptr, 0, text.len) == NULL;
}

/* The services behind the edge are not there yet. */
static void answer_starting(struct es_http *r)
{
    struct sf_diag diag;

    sf_diag_init(&diag);
    r->es->options.refuse(r->es->options.refuse_self, &diag);
    answer_diag(r, &diag, sf_view_str(""));
}

void es_serve(struct es_http *r)
{
    const char *op_type = argument(r, "op_type");
    struct sf_es_route route;

    if (r->overloaded) {
        answer_overloaded(r);
        return;
    }
    if (r->too_large) {
        es_answer_refused(r, 413, "illegal_argument_exception", "the body is too large");
        return;
    }
    if (!text_ok(sf_view_str(r->path)) ||
        !sf_es_route(r->method, sf_view_str(r->path),
                     op_type != NULL && strcmp(op_type, "create") == 0, r->request.arena, &route) ||
        !text_ok(route.index) || !text_ok(route.id)) {
        es_answer_refused(r, 400, "illegal_argument_exception", "the path is not valid text");
        return;
    }
    r->op = route.op;
    if (!atomic_load(&r->es->serving)) {
        answer_starting(r);
        return;
    }
    if (read_media(r) && read_encoding(r) && read_arguments(r) && read_key(r))
        dispatch(r, &route);
}
