/*
 * Model: a bulk body is read line by line. An action line is one JSON object with one member, the
 * action, whose value is an object of parameters; all but delete are followed by a document line,
 * taken as it is. What makes the whole request unreadable (a broken action line, a missing
 * document, a missing last line end) refuses it, as in Elasticsearch; what concerns one item stays
 * with it.
 *
 * A parameter that would change what the write means (routing, versions, pipelines) and is not
 * served refuses its item: ignoring it would be a lie.
 */
#include "gateway/es_bulk.h"

#include "base/json.h"
#include "base/limits.h"

const char *sf_es_action_text(enum sf_es_action action)
{
    static const char *const text[] = {"index", "create", "update", "delete"};

    return text[action];
}

/* The parse of one body. */
struct bulk {
    struct sf_view body;
    size_t at;     /* next byte */
    uint32_t line; /* of the line read last, from 1 */
    struct sf_view default_index;
    struct sf_arena *arena;
    struct sf_es_bulk_item *items; /* in the arena, room for `room` */
    size_t count;
    size_t room;
    struct sf_es_error *error;
};

static bool refuse(struct bulk *b, int status, const char *type, const char *reason)
{
    b->error->status = status;
    b->error->type = type;
    b->error->reason = reason != NULL ? reason : "the request exceeds its memory";
    return false;
}

static bool refuse_line(struct bulk *b, const char *what)
{
    return refuse(
        b, 400, "illegal_argument_exception",
        sf_arena_printf(b->arena, "Malformed action/metadata line [%u], %s", b->line, what));
}

/* The next line without its end; false at the end of the body. An unended last line sets the error.
 */
static bool next_line(struct bulk *b, struct sf_view *out_line)
{
    if (b->at >= b->body.len)
        return false;
    const uint8_t *start = b->body.ptr + b->at;
    const uint8_t *end = memchr(start, '\n', b->body.len - b->at);
    if (end == NULL)
        return refuse(b, 400, "illegal_argument_exception",
                      "The bulk request must be terminated by a newline [\\n]");
    size_t len = (size_t)(end - start);
    b->at += len + 1;
    b->line++;
    if (len > 0 && start[len - 1] == '\r')
        len--;
    *out_line = sf_view_bytes(start, len);
    return true;
}

static bool blank(struct sf_view line)
{
    for (size_t i = 0; i < line.len; i++)
        if (line.ptr[i] != ' ' && line.ptr[i] != '\t')
            return false;
    return true;
}

static bool item_new(struct bulk *b, struct sf_es_bulk_item **out_item)
{
    if (b->count == SF_LIMIT_ES_BULK_ITEMS)
        return refuse(b, 413, "illegal_argument_exception",
                      "the bulk request holds more actions than one request may");
    if (b->count == b->room) {
        size_t room = b->room == 0 ? 64 : b->room * 2;
        struct sf_es_bulk_item *items = sf_arena_alloc(b->arena, room * sizeof(*items));
        if (items == NULL)
            return refuse(b, 413, "illegal_argument_exception", NULL);
        if (b->count > 0)
            memcpy(items, b->items, b->count * sizeof(*items));
        b->items = items;
        b->room = room;
    }
    *out_item = &b->items[b->count++];
    **out_item = (struct sf_es_bulk_item){.line = b->line, .index = b->default_index};
    return true;
}

static bool text_copy(struct bulk *b, struct sf_json_str text, struct sf_view *out)
{
    uint8_t *copy = sf_arena_alloc(b->arena, text.raw.len + 1);

    if (copy == NULL)
        return refuse(b, 413, "illegal_argument_exception", NULL);
    *out = sf_view_bytes(copy, sf_json_unescape(text, copy));
    return true;
}

/* An id may be written as a number: its digits are the id, so nothing is rounded. */
static bool read_id(struct bulk *b, struct sf_json *j, struct sf_es_bulk_item *item)
{
    struct sf_json_str text;
    struct sf_view number;

    switch (sf_json_peek(j)) {
    case SF_JSON_NULL:
        return sf_json_null(j);
    case SF_JSON_NUMBER:
        item->has_id = sf_json_number(j, &number);
        item->id = number;
        return item->has_id;
    default:
        item->has_id = sf_json_string(j, &text);
        return item->has_id && text_copy(b, text, &item->id);
    }
}

static bool read_index(struct bulk *b, struct sf_json *j, struct sf_es_bulk_item *item)
{
    struct sf_json_str text;

    if (sf_json_peek(j) == SF_JSON_NULL)
        return sf_json_null(j);
    return sf_json_string(j, &text) && text_copy(b, text, &item->index);
}

/* Parameters that Elasticsearch knows and this edge does not serve. */
static bool known_unserved(struct sf_json_str name)
{
    static const char *const names[] = {"routing",           "version",           "version_type",
                                        "if_seq_no",         "if_primary_term",   "pipeline",
                                        "dynamic_templates", "retry_on_conflict", "op_type"};

    for (size_t i = 0; i < SF_ARRAY_LEN(names); i++)
        if (sf_json_str_is(name, names[i]))
            return true;
    return false;
}

static bool item_unserved(struct bulk *b, struct sf_json *j, struct sf_json_str name,
                          struct sf_es_bulk_item *item)
{
    if (sf_json_peek(j) == SF_JSON_NULL)
        return sf_json_null(j);
    if (item->error.status == 0) {
        item->error.status = 400;
        item->error.type = "illegal_argument_exception";
        item->error.reason = sf_arena_printf(b->arena, "parameter [%.*s] is not served",
                                             (int)name.raw.len, (const char *)name.raw.ptr);
        if (item->error.reason == NULL)
            return refuse(b, 413, "illegal_argument_exception", NULL);
    }
    return sf_json_skip(j, NULL);
}

static bool read_parameters(struct bulk *b, struct sf_json *j, struct sf_es_bulk_item *item)
{
    struct sf_json_str name;
    bool flag;

    if (sf_json_peek(j) != SF_JSON_OBJECT)
        return refuse_line(b, "expected an object of parameters");
    if (!sf_json_object_begin(j))
        return false;
    while (sf_json_object_next(j, &name)) {
        bool ok;
        if (sf_json_str_is(name, "_index"))
            ok = read_index(b, j, item);
        else if (sf_json_str_is(name, "_id"))
            ok = read_id(b, j, item);
        else if (sf_json_str_is(name, "require_alias") ||
                 sf_json_str_is(name, "require_data_stream") ||
                 sf_json_str_is(name, "list_executed_pipelines"))
            ok = sf_json_bool(j, &flag) &&
                 (!flag || sf_json_fail(j, "this parameter is only served as false"));
        else if (known_unserved(name))
            ok = item_unserved(b, j, name, item);
        else
            return refuse(b, 400, "illegal_argument_exception",
                          sf_arena_printf(b->arena,
                                          "Action/metadata line [%u] contains an unknown parameter "
                                          "[%.*s]",
                                          b->line, (int)name.raw.len, (const char *)name.raw.ptr));
        if (!ok)
            return false;
    }
    return j->error == NULL;
}

static bool action_of(struct sf_json_str name, enum sf_es_action *out_action)
{
    for (int i = SF_ES_ACTION_INDEX; i <= SF_ES_ACTION_DELETE; i++) {
        if (sf_json_str_is(name, sf_es_action_text((enum sf_es_action)i))) {
            *out_action = (enum sf_es_action)i;
            return true;
        }
    }
    return false;
}

static bool read_action(struct bulk *b, struct sf_json *j, struct sf_es_bulk_item *item)
{
    struct sf_json_str name;

    if (sf_json_peek(j) != SF_JSON_OBJECT)
        return refuse_line(b, "expected an object");
    if (!sf_json_object_begin(j))
        return false;
    if (!sf_json_object_next(j, &name))
        return refuse_line(b, "expected one of [create], [delete], [index] or [update]");
    if (!action_of(name, &item->action))
        return refuse_line(b, "expected field [create], [delete], [index] or [update]");
    if (!read_parameters(b, j, item))
        return false;
    if (sf_json_object_next(j, &name))
        return refuse_line(b, "expected one action and no more");
    return sf_json_end(j);
}

/* One action line and its document; `line` is not blank. */
static bool read_item(struct bulk *b, struct sf_view line)
{
    struct sf_es_bulk_item *item;
    struct sf_json j;

    if (line.len > SF_LIMIT_ES_ACTION_BYTES)
        return refuse_line(b, "the line is too long for an action");
    if (!item_new(b, &item))
        return false;
    sf_json_init(&j, line, 4);
    if (!read_action(b, &j, item)) {
        if (b->error->status == 0)
            return refuse_line(b, j.error != NULL ? j.error : "text after the action");
        return false;
    }
    if (item->action == SF_ES_ACTION_DELETE)
        return true;
    if (next_line(b, &item->source))
        return true;
    if (b->error->status == 0)
        return refuse(b, 400, "illegal_argument_exception",
                      sf_arena_printf(b->arena,
                                      "Action/metadata line [%u] is not followed by a document",
                                      b->line));
    return false;
}

bool sf_es_bulk_parse(struct sf_view body, struct sf_view default_index, struct sf_arena *arena,
                      struct sf_es_bulk_item **out_items, size_t *out_count,
                      struct sf_es_error *out_error)
{
    struct bulk b = {
        .body = body, .default_index = default_index, .arena = arena, .error = out_error};
    struct sf_view line;

    *out_error = (struct sf_es_error){0};
    if (body.len == 0)
        return refuse(&b, 400, "parse_exception", "request body is required");
    while (next_line(&b, &line))
        if (!blank(line) && !read_item(&b, line))
            return false;
    if (out_error->status != 0)
        return false;
    if (b.count == 0)
        return refuse(&b, 400, "action_request_validation_exception",
                      "Validation Failed: 1: no requests added;");
    *out_items = b.items;
    *out_count = b.count;
    return true;
}
