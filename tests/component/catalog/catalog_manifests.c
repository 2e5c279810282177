#include "component/catalog/catalog_manifests.h"

#include <inttypes.h>
#include <stdio.h>

#include "catalog/catalog_manifest.h"
#include "catalog/catalog_projector.h"
#include "support/sqlserver.h"

char *world_text(struct world *w, const char *text)
{
    return sf_arena_str(w->arena, sf_view_str(text));
}

SF_PB(CollectionRef) * world_ref(struct world *w, uint64_t ns, uint64_t collection)
{
    SF_PB(CollectionRef) *ref = sf_arena_alloc(w->arena, sizeof(*ref));
    searchfabric__v1__collection_ref__init(ref);
    ref->namespace_id = ns;
    ref->collection_id = collection;
    return ref;
}

static const char *key_of(struct world *w, uint64_t ns, uint64_t collection, const char *name)
{
    char id[24], hex[SF_SHA256_HEX_BYTES];
    snprintf(id, sizeof(id), "%" PRIu64, ns);
    sf_sha256_hex(sf_view_str(id), hex);
    return sf_arena_printf(w->arena, "manifests/%.2s/%s/%" PRIu64 "/%s", hex, id, collection, name);
}

const char *manifest_key(struct world *w, uint64_t ns, uint64_t collection, uint64_t version)
{
    char name[64];
    snprintf(name, sizeof(name), "manifest_v%020" PRIu64 ".json", version);
    return key_of(w, ns, collection, name);
}

void truth_put(struct world *w, const char *key, struct sf_view body)
{
    struct sf_put put = {.key = sf_view_str(key), .body = body, .cond = SF_PUT_ANY};
    assert_int_equal(sf_store_put_wait(w->truth, NULL, &put), SF_OK);
}

static void put_object(struct world *w, const char *key, const ProtobufCMessage *message,
                       char *out_sha256_hex)
{
    struct sf_buf body = {0};
    sf_durable_encode(message, &body, out_sha256_hex);
    truth_put(w, key, sf_buf_view(&body));
    sf_buf_fini(&body);
}

void manifest_write(struct world *w, uint64_t ns, uint64_t collection, uint64_t version,
                    uint64_t rows, uint64_t bytes, const SF_PB(ManifestSummaryObject) * summary,
                    char out_sha256_hex[SF_SHA256_HEX_BYTES])
{
    SF_PB(CollectionManifestObject) manifest;
    SF_PB(ManifestSummaryRef) ref;
    char digest[SF_SHA256_HEX_BYTES];
    char name[48];
    searchfabric__v1__collection_manifest_object__init(&manifest);
    searchfabric__v1__manifest_summary_ref__init(&ref);
    manifest.attempt_id = world_text(w, "t-1");
    manifest.collection = world_ref(w, ns, collection);
    manifest.manifest_version = version;
    manifest.previous_manifest_version = version - 1;
    manifest.publisher_epoch = 1;
    manifest.kind = SF_PBE(MANIFEST_KIND, BASE);
    manifest.total_rows = rows;
    manifest.total_logical_bytes = bytes;
    if (summary != NULL) {
        SF_PB(ManifestSummaryObject) object = *summary;
        object.attempt_id = world_text(w, "t-1");
        object.collection = world_ref(w, ns, collection);
        snprintf(name, sizeof(name), "summary_t-%" PRIu64 ".json", version);
        ref.key = (char *)(uintptr_t)key_of(w, ns, collection, name);
        put_object(w, ref.key, &object.base, digest);
        ref.sha256 = digest;
        ref.manifest_version = object.manifest_version;
        manifest.summary = &ref;
    }
    put_object(w, manifest_key(w, ns, collection, version), &manifest.base, out_sha256_hex);
}

void manifest_point(struct world *w, uint64_t ns, uint64_t collection, uint64_t version,
                    const char *sha256_hex)
{
    SF_PB(ManifestCommittedHeadObject) head;
    struct sf_buf key = {0};
    searchfabric__v1__manifest_committed_head_object__init(&head);
    head.attempt_id = world_text(w, "t-2");
    head.collection = world_ref(w, ns, collection);
    head.committed_manifest_version = version;
    head.previous_committed_manifest_version = version - 1;
    head.publisher_epoch = 1;
    head.updated_at_unix_ms = WORLD_UNIX_MS;
    head.manifest_checksum_or_etag = (char *)(uintptr_t)sha256_hex;
    head.manifest_key = (char *)(uintptr_t)manifest_key(w, ns, collection, version);
    sf_catalog_key_committed_head(&key, ns, collection);
    put_object(w, sf_arena_str(w->arena, sf_buf_view(&key)), &head.base, NULL);
    sf_buf_fini(&key);
}

void manifest_publish(struct world *w, uint64_t ns, uint64_t collection, uint64_t version,
                      uint64_t rows, uint64_t bytes, const SF_PB(ManifestSummaryObject) * summary)
{
    char digest[SF_SHA256_HEX_BYTES];
    manifest_write(w, ns, collection, version, rows, bytes, summary, digest);
    manifest_point(w, ns, collection, version, digest);
    sf_catalog_projectors_wake(w->catalog, ns, collection);
}

#define SUMMARY_MAX 64

SF_PB(ManifestSummaryObject) * summary_new(struct world *w, uint64_t version, uint64_t rows)
{
    SF_PB(ManifestSummaryObject) *out = sf_arena_alloc(w->arena, sizeof(*out));
    searchfabric__v1__manifest_summary_object__init(out);
    out->manifest_version = version;
    out->row_count = rows;
    out->field_stats = sf_arena_alloc(w->arena, SUMMARY_MAX * sizeof(void *));
    out->extended_stats = sf_arena_alloc(w->arena, SUMMARY_MAX * sizeof(void *));
    out->lifecycle_windows = sf_arena_alloc(w->arena, SUMMARY_MAX * sizeof(void *));
    return out;
}

void summary_field(struct world *w, SF_PB(ManifestSummaryObject) * summary, const char *name,
                   uint64_t nulls, uint64_t distinct, const char *min, const char *max)
{
    SF_PB(FieldStatistics) *field = sf_arena_alloc(w->arena, sizeof(*field));
    searchfabric__v1__field_statistics__init(field);
    field->field_name = world_text(w, name);
    field->null_count = nulls;
    field->distinct_count = distinct;
    if (min != NULL) {
        field->_min_value_case = SEARCHFABRIC__V1__FIELD_STATISTICS___MIN_VALUE_MIN_VALUE;
        field->min_value = world_text(w, min);
    }
    if (max != NULL) {
        field->_max_value_case = SEARCHFABRIC__V1__FIELD_STATISTICS___MAX_VALUE_MAX_VALUE;
        field->max_value = world_text(w, max);
    }
    summary->field_stats[summary->n_field_stats++] = field;
}

void summary_tuple(struct world *w, SF_PB(ManifestSummaryObject) * summary, const char *a,
                   const char *b, uint64_t distinct)
{
    SF_PB(ExtendedStatistics) *tuple = sf_arena_alloc(w->arena, sizeof(*tuple));
    searchfabric__v1__extended_statistics__init(tuple);
    tuple->field_paths = sf_arena_alloc(w->arena, 2 * sizeof(char *));
    tuple->field_paths[0] = world_text(w, a);
    tuple->field_paths[1] = world_text(w, b);
    tuple->n_field_paths = 2;
    tuple->distinct_count = distinct;
    summary->extended_stats[summary->n_extended_stats++] = tuple;
}

SF_PB(ManifestLifecycleWindow) *
    summary_window(struct world *w, SF_PB(ManifestSummaryObject) * summary, int64_t start_ms,
                   int64_t end_ms, SF_PB(DataTier) tier, uint64_t published_version,
                   const char *object, const char *retired, int64_t retired_at_ms)
{
    SF_PB(ManifestLifecycleWindow) *window = sf_arena_alloc(w->arena, sizeof(*window));
    char **keys = sf_arena_alloc(w->arena, 2 * sizeof(*keys));
    searchfabric__v1__manifest_lifecycle_window__init(window);
    window->window_start_ms = start_ms;
    window->window_end_ms = end_ms;
    window->tier = tier;
    window->published_manifest_version = published_version;
    if (object != NULL) {
        keys[0] = world_text(w, object);
        window->object_keys = keys;
        window->n_object_keys = 1;
    }
    if (retired != NULL) {
        keys[1] = world_text(w, retired);
        window->retired_object_keys = keys + 1;
        window->n_retired_object_keys = 1;
    }
    window->retired_at_unix_ms = retired_at_ms;
    summary->lifecycle_windows[summary->n_lifecycle_windows++] = window;
    return window;
}

/* The query in the dialect under test: MySQL casts to CHAR. */
static const char *in_dialect(struct world *w, const char *query)
{
    char *text = world_text(w, query);
    if (sf_test_sql_kind() != SF_SQL_MYSQL)
        return text;
    for (char *at = strstr(text, " AS TEXT)"); at != NULL; at = strstr(at, " AS TEXT)"))
        memcpy(at, " AS CHAR)", 9);
    return text;
}

const char *world_rows(struct world *w, const char *query, int columns)
{
    struct sf_buf out = {0};
    struct sf_diag diag;
    struct sf_sql_stmt *stmt;
    bool row = true;
    sf_diag_init(&diag);
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_READ);
    assert_int_equal(sf_sql_prepare(conn, in_dialect(w, query), &diag, &stmt), SF_OK);
    while (row) {
        assert_int_equal(sf_sql_step(stmt, &diag, &row), SF_OK);
        for (int i = 0; row && i < columns; i++) {
            struct sf_view text = sf_sql_col_text(stmt, i);
            if (sf_sql_col_is_null(stmt, i))
                sf_buf_append_str(&out, "NULL");
            else
                sf_buf_append(&out, text.ptr, text.len);
            sf_buf_append_str(&out, i + 1 == columns ? "\n" : "|");
        }
    }
    sf_sql_finish(stmt);
    sf_sql_release(conn);
    const char *text = sf_arena_str(w->arena, sf_buf_view(&out));
    sf_buf_fini(&out);
    return text;
}

void world_sql(struct world *w, const char *statements)
{
    struct sf_diag diag;
    sf_diag_init(&diag);
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_WRITE);
    assert_int_equal(sf_sql_exec(conn, statements, &diag), SF_OK);
    sf_sql_release(conn);
}
