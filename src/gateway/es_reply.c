/*
 * Model: texts only. `_seq_no` is the physical part of the document's commit timestamp: it grows
 * with the order of writes and, at 42 bits, survives clients that read numbers as doubles. Document
 * ids are decimal strings.
 */
#include "gateway/es_reply.h"

#include <inttypes.h>

#include "base/ids.h"
#include "base/json.h"

/* The release whose API this edge follows: it accepts compatible-with=8 and 9. */
#define ES_VERSION "9.1.0"

/* A public code as Elasticsearch says it. */
struct error_row {
    enum sf_err code;
    const char *type;
};

static const struct error_row rows[] = {
    {SF_BAD_REQUEST, "illegal_argument_exception"},
    {SF_INVALID_ARGUMENT, "illegal_argument_exception"},
    {SF_UNAUTHENTICATED, "security_exception"},
    {SF_FORBIDDEN, "security_exception"},
    {SF_RESOURCE_NOT_FOUND, "index_not_found_exception"},
    {SF_IDEMPOTENCY_CONFLICT, "version_conflict_engine_exception"},
    {SF_VERSION_CONFLICT, "version_conflict_engine_exception"},
    {SF_OWNERSHIP_CONFLICT, "illegal_state_exception"},
    {SF_TOO_MANY_OPERATIONS, "illegal_argument_exception"},
    {SF_RATE_LIMITED, "es_rejected_execution_exception"},
    {SF_CATALOG_UNAVAILABLE, "unavailable_shards_exception"},
    {SF_BACKEND_UNAVAILABLE, "unavailable_shards_exception"},
    {SF_UNIMPLEMENTED, "unsupported_operation_exception"},
    {SF_DEADLINE_EXCEEDED, "timeout_exception"},
    {SF_CANCELLED, "task_cancelled_exception"},
};

struct sf_es_error sf_es_error_of(const struct sf_diag *diag, struct sf_arena *arena)
{
    enum sf_err code = sf_err_public(diag->err);
    const char *field = sf_diag_get(diag, "field");
    struct sf_es_error error = {.status = sf_err_info(code)->http, .type = "exception"};

    for (size_t i = 0; i < SF_ARRAY_LEN(rows); i++)
        if (rows[i].code == code)
            error.type = rows[i].type;
    if (field != NULL && strcmp(field, "entries.row.body") == 0)
        error.type = "document_parsing_exception";
    error.reason = sf_arena_printf(arena, "%s [%s]%s", diag->message, sf_err_info(code)->code,
                                   code == SF_IDEMPOTENCY_CONFLICT
                                       ? ": the Idempotency-Key header came with other content "
                                         "before, other content needs a key of its own"
                                       : "");
    if (error.reason == NULL)
        error.reason = sf_err_info(code)->meaning;
    return error;
}

static void append_text(struct sf_buf *out, const char *text)
{
    sf_json_append_string(out, sf_view_str(text));
}

static bool names_index(const struct sf_es_error *error)
{
    return strcmp(error->type, "index_not_found_exception") == 0 ||
           strcmp(error->type, "resource_already_exists_exception") == 0 ||
           strcmp(error->type, "invalid_index_name_exception") == 0;
}

/* "type":...,"reason":... and what belongs to them. */
static void append_cause(const struct sf_es_error *error, struct sf_view index, struct sf_buf *out)
{
    sf_buf_append_str(out, "\"type\":");
    append_text(out, error->type);
    sf_buf_append_str(out, ",\"reason\":");
    append_text(out, error->reason);
    if (index.len == 0 || !names_index(error))
        return;
    if (strcmp(error->type, "index_not_found_exception") == 0) {
        sf_buf_append_str(out, ",\"resource.type\":\"index_or_alias\",\"resource.id\":");
        sf_json_append_string(out, index);
    }
    sf_buf_append_str(out, ",\"index_uuid\":\"_na_\",\"index\":");
    sf_json_append_string(out, index);
}

void sf_es_reply_error(const struct sf_es_error *error, struct sf_view index, struct sf_buf *out)
{
    sf_buf_append_str(out, "{\"error\":{\"root_cause\":[{");
    append_cause(error, index, out);
    sf_buf_append_str(out, "}],");
    append_cause(error, index, out);
    sf_buf_printf(out, "},\"status\":%d}", error->status);
}

void sf_es_reply_created(const struct sf_es_result *result, struct sf_view index,
                         struct sf_buf *out)
{
    sf_buf_append_str(out, "\"_index\":");
    sf_json_append_string(out, index);
    sf_buf_printf(out, ",\"_id\":\"%" PRIu64 "\",\"_version\":1,\"result\":\"created\"",
                  result->doc_id);
    if (result->forced_refresh)
        sf_buf_append_str(out, ",\"forced_refresh\":true");
    sf_buf_printf(out,
                  ",\"_shards\":{\"total\":1,\"successful\":1,\"failed\":0},\"_seq_no\":%" PRIu64
                  ",\"_primary_term\":1",
                  sf_tso_physical_ms((struct sf_tso){result->commit_ts}));
}

void sf_es_reply_item(const struct sf_es_bulk_item *item, const struct sf_es_result *result,
                      struct sf_buf *out)
{
    sf_buf_printf(out, "{\"%s\":{", sf_es_action_text(item->action));
    if (result->error.status == 0) {
        sf_es_reply_created(result, item->index, out);
        sf_buf_append_str(out, ",\"status\":201}}");
        return;
    }
    sf_buf_append_str(out, "\"_index\":");
    if (item->index.len > 0)
        sf_json_append_string(out, item->index);
    else
        sf_buf_append_str(out, "null");
    sf_buf_append_str(out, ",\"_id\":");
    if (item->has_id)
        sf_json_append_string(out, item->id);
    else
        sf_buf_append_str(out, "null");
    sf_buf_printf(out, ",\"status\":%d,\"error\":{", result->error.status);
    append_cause(&result->error, item->index, out);
    sf_buf_append_str(out, "}}}");
}

void sf_es_reply_root(struct sf_buf *out)
{
    sf_buf_append_str(
        out, "{\"name\":\"search-fabric\",\"cluster_name\":\"search-fabric\","
             "\"cluster_uuid\":\"_na_\",\"version\":{\"number\":\"" ES_VERSION "\","
             "\"build_flavor\":\"default\",\"build_type\":\"deb\",\"build_hash\":\"unknown\","
             "\"build_date\":\"1970-01-01T00:00:00.000Z\",\"build_snapshot\":false,"
             "\"lucene_version\":\"10.2.2\",\"minimum_wire_compatibility_version\":\"8.19.0\","
             "\"minimum_index_compatibility_version\":\"8.0.0\"},"
             "\"tagline\":\"You Know, for Search\"}");
}
