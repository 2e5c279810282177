/*
 * Model: the path is cut at its slashes and each part percent-decoded. A first part that starts
 * with "_" is an endpoint of its own, otherwise it is an index and the second part the endpoint.
 * Everything that Elasticsearch has and this edge has not is named in one list, so that a client
 * learns that it is not served rather than that it does not exist.
 */
#include "gateway/es_route.h"

#include <strings.h>

#include "base/text.h"

#define MAX_PARTS 4

#define UNDERSCORE_TEXT "must not start with '_', '-', or '+'"

struct parts {
    struct sf_view part[MAX_PARTS];
    size_t count; /* SIZE_MAX: more than MAX_PARTS */
};

static int hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Percent-decodes one part; false on overflow. A '%' that starts no escape stays. */
static bool decode(struct sf_arena *arena, const uint8_t *text, size_t len, struct sf_view *out)
{
    uint8_t *copy = sf_arena_alloc(arena, len + 1);
    size_t n = 0;

    if (copy == NULL)
        return false;
    for (size_t i = 0; i < len; i++) {
        int high = text[i] == '%' && i + 2 < len ? hex_digit(text[i + 1]) : -1;
        int low = high >= 0 ? hex_digit(text[i + 2]) : -1;
        if (low >= 0) {
            copy[n++] = (uint8_t)(high << 4 | low);
            i += 2;
        } else {
            copy[n++] = text[i];
        }
    }
    *out = sf_view_bytes(copy, n);
    return true;
}

static bool split(struct sf_arena *arena, struct sf_view path, struct parts *out)
{
    size_t at = 0;

    out->count = 0;
    while (at < path.len) {
        if (path.ptr[at] == '/') {
            at++;
            continue;
        }
        const uint8_t *start = path.ptr + at;
        const uint8_t *slash = memchr(start, '/', path.len - at);
        size_t len = slash == NULL ? path.len - at : (size_t)(slash - start);
        if (out->count == MAX_PARTS) {
            out->count = SIZE_MAX;
            return true;
        }
        if (!decode(arena, start, len, &out->part[out->count++]))
            return false;
        at += len;
    }
    return true;
}

static bool is(struct sf_view part, const char *text)
{
    return sf_view_equal(part, sf_view_str(text));
}

static bool endpoint_known(struct sf_view part)
{
    static const char *const names[] = {
        "_search",
        "_msearch",
        "_count",
        "_update",
        "_update_by_query",
        "_doc",
        "_mget",
        "_delete_by_query",
        "_source",
        "_mapping",
        "_settings",
        "_refresh",
        "_flush",
        "_forcemerge",
        "_alias",
        "_aliases",
        "_close",
        "_open",
        "_stats",
        "_cat",
        "_cluster",
        "_nodes",
        "_analyze",
        "_termvectors",
        "_explain",
        "_validate",
        "_rollover",
        "_reindex",
        "_template",
        "_index_template",
        "_ingest",
        "_tasks",
        "_snapshot",
        "_field_caps",
        "_pit",
        "_sql",
        "_query",
        "_eql",
        "_async_search",
        "_segments",
        "_recovery",
        "_shrink",
        "_split",
        "_clone",
        "_component_template",
        "_data_stream",
        "_scripts",
        "_security",
        "_ml",
        "_transform",
        "_license",
        "_xpack",
        "_ilm",
        "_slm",
        "_resolve",
        "_create",
        "_bulk",
        "_cache",
        "_search_shards",
        "_mappings",
    };

    for (size_t i = 0; i < SF_ARRAY_LEN(names); i++)
        if (is(part, names[i]))
            return true;
    return false;
}

static bool answer(struct sf_es_route *route, enum sf_es_op op, int status, const char *type,
                   const char *reason)
{
    route->op = op;
    route->error = (struct sf_es_error){status, type, reason};
    return reason != NULL;
}

static bool not_served(struct sf_es_route *route, struct sf_arena *arena, const char *method,
                       struct sf_view path, const char *what)
{
    return answer(route, SF_ES_OP_NOT_SERVED, 501, "unsupported_operation_exception",
                  sf_arena_printf(arena, "%s is not served: this is the write side only [%s %.*s]",
                                  what, method, (int)path.len, (const char *)path.ptr));
}

static bool no_handler(struct sf_es_route *route, struct sf_arena *arena, const char *method,
                       struct sf_view path)
{
    return answer(route, SF_ES_OP_UNKNOWN, 400, "illegal_argument_exception",
                  sf_arena_printf(arena, "no handler found for uri [%.*s] and method [%s]",
                                  (int)path.len, (const char *)path.ptr, method));
}

/* What begins with "_" is an endpoint or a mistake in an index name. */
static bool route_underscore(const char *method, struct sf_view path, struct sf_arena *arena,
                             const struct parts *parts, struct sf_es_route *route)
{
    struct sf_view endpoint =
        is(parts->part[0], "_all") && parts->count > 1 ? parts->part[1] : parts->part[0];

    if (endpoint_known(endpoint))
        return not_served(route, arena, method, path, "this endpoint");
    if (parts->count > 1 || strcmp(method, "POST") == 0)
        return no_handler(route, arena, method, path);
    route->index = parts->part[0];
    return answer(route, SF_ES_OP_UNKNOWN, 400, "invalid_index_name_exception",
                  sf_arena_printf(arena, "Invalid index name [%.*s], %s", (int)route->index.len,
                                  (const char *)route->index.ptr, UNDERSCORE_TEXT));
}

static bool route_index(const char *method, struct sf_view path, struct sf_arena *arena,
                        struct sf_es_route *route)
{
    if (strcmp(method, "HEAD") == 0)
        route->op = SF_ES_OP_INDEX_EXISTS;
    else if (strcmp(method, "GET") == 0)
        route->op = SF_ES_OP_INDEX_GET;
    else if (strcmp(method, "PUT") == 0)
        route->op = SF_ES_OP_INDEX_CREATE;
    else if (strcmp(method, "DELETE") == 0)
        route->op = SF_ES_OP_INDEX_DELETE;
    else
        return no_handler(route, arena, method, path);
    return true;
}

static bool route_doc(const char *method, struct sf_view path, bool op_type_create,
                      const struct parts *parts, struct sf_arena *arena, struct sf_es_route *route)
{
    bool create = is(parts->part[1], "_create");
    bool post = strcmp(method, "POST") == 0;
    bool write = post || strcmp(method, "PUT") == 0;

    route->has_id = parts->count == 3;
    if (route->has_id)
        route->id = parts->part[2];
    if (!write || parts->count > 3 || (create && !route->has_id))
        return strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0
                   ? not_served(route, arena, method, path, "reading a document")
               : strcmp(method, "DELETE") == 0 && !create
                   ? not_served(route, arena, method, path, "deleting a document")
                   : no_handler(route, arena, method, path);
    if (!route->has_id && !post)
        return no_handler(route, arena, method, path);
    if (route->has_id && !create && !op_type_create)
        return not_served(route, arena, method, path,
                          "writing a document that may exist (index under an explicit id)");
    route->op = SF_ES_OP_DOC_CREATE;
    return true;
}

static bool route_bulk(const char *method, struct sf_view path, struct sf_arena *arena,
                       struct sf_es_route *route)
{
    if (strcmp(method, "POST") != 0 && strcmp(method, "PUT") != 0)
        return no_handler(route, arena, method, path);
    route->op = SF_ES_OP_BULK;
    return true;
}

bool sf_es_route(const char *method, struct sf_view path, bool op_type_create,
                 struct sf_arena *arena, struct sf_es_route *out_route)
{
    struct parts parts;

    *out_route = (struct sf_es_route){0};
    if (!split(arena, path, &parts))
        return false;
    if (parts.count == 0) {
        out_route->op = SF_ES_OP_ROOT;
        return strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0 ||
               no_handler(out_route, arena, method, path);
    }
    if (parts.count == SIZE_MAX)
        return no_handler(out_route, arena, method, path);
    if (parts.part[0].len > 0 && parts.part[0].ptr[0] == '_') {
        if (parts.count == 1 && is(parts.part[0], "_bulk"))
            return route_bulk(method, path, arena, out_route);
        return route_underscore(method, path, arena, &parts, out_route);
    }
    out_route->index = parts.part[0];
    if (parts.count == 1)
        return route_index(method, path, arena, out_route);
    if (parts.count == 2 && is(parts.part[1], "_bulk"))
        return route_bulk(method, path, arena, out_route);
    if (is(parts.part[1], "_doc") || is(parts.part[1], "_create"))
        return route_doc(method, path, op_type_create, &parts, arena, out_route);
    return endpoint_known(parts.part[1])
               ? not_served(out_route, arena, method, path, "this endpoint")
               : no_handler(out_route, arena, method, path);
}

const char *sf_es_index_name_violation(struct sf_view name)
{
    if (name.len == 0 || name.len > 255)
        return "must have 1 to 255 bytes";
    if (!sf_utf8_valid(name))
        return "must be valid UTF-8";
    if (name.ptr[0] == '_' || name.ptr[0] == '-' || name.ptr[0] == '+')
        return UNDERSCORE_TEXT;
    if (is(name, ".") || is(name, ".."))
        return "must not be '.' or '..'";
    for (size_t i = 0; i < name.len; i++) {
        if (name.ptr[i] >= 'A' && name.ptr[i] <= 'Z')
            return "must be lowercase";
        if (name.ptr[i] < 0x20 || strchr("\\/*?\"<>| ,#:", name.ptr[i]) != NULL)
            return "must not contain the following characters "
                   "['\\','/','*','?','\"','<','>','|',' ',',','#',':']";
    }
    return NULL;
}

/* ---- media types ----------------------------------------------------------------------------- */

static bool begins(const char *text, size_t len, const char *with)
{
    size_t n = strlen(with);

    return len >= n && strncasecmp(text, with, n) == 0 &&
           (len == n || text[n] == ';' || text[n] == ' ');
}

static enum sf_es_media media_one(const char *text, size_t len, int *out_compatible)
{
    enum sf_es_media media = SF_ES_MEDIA_OTHER;
    bool versioned = false;

    if (begins(text, len, "application/json") || begins(text, len, "application/*"))
        media = SF_ES_MEDIA_JSON;
    else if (begins(text, len, "*/*"))
        media = SF_ES_MEDIA_NONE;
    else if (begins(text, len, "application/x-ndjson"))
        media = SF_ES_MEDIA_NDJSON;
    else if (begins(text, len, "application/vnd.elasticsearch+json")) {
        media = SF_ES_MEDIA_JSON;
        versioned = true;
    } else if (begins(text, len, "application/vnd.elasticsearch+x-ndjson")) {
        media = SF_ES_MEDIA_NDJSON;
        versioned = true;
    }
    if (!versioned)
        return media;
    const char *at = memmem(text, len, "compatible-with=", 16);
    size_t left = at == NULL ? 0 : len - (size_t)(at + 16 - text);
    if (at == NULL || left == 0 || (at[16] != '8' && at[16] != '9') ||
        (left > 1 && at[17] != ';' && at[17] != ' '))
        return SF_ES_MEDIA_VERSION;
    *out_compatible = at[16] - '0';
    return media;
}

enum sf_es_media sf_es_media_read(const char *header, int *out_compatible)
{
    enum sf_es_media media = SF_ES_MEDIA_NONE;

    *out_compatible = 0;
    while (header != NULL && *header != '\0') {
        header += strspn(header, " \t,");
        size_t len = strcspn(header, ",");
        if (len == 0)
            break;
        media = media_one(header, len, out_compatible);
        if (media != SF_ES_MEDIA_OTHER)
            return media;
        header += len;
    }
    return media;
}
