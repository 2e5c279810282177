/*
 * Model: rows of statistics heads and snapshots, page by page, against the objects of their names.
 * A head's row whose object is gone, and a snapshot's row that says other than its object, are told
 * once they were read again under the collection's gate.
 */
#include "catalog/catalog_check_priv.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/pbjson.h"
#include "catalog/catalog_rules.h"
#include "catalog/catalog_statistics.h"

/* A row's identity; texts in `page`. */
struct row {
    SF_PB(CollectionRef) ref;                               /* whose */
    const char *token;                                      /* "" = of a head */
    uint64_t ts;                                            /* stats_commit_ts */
    uint64_t version;                                       /* of the schema generation */
    int64_t collected_at_ms;                                /* when, unix */
    const SF_PB(OptimizerStatisticsSnapshotObject) * shown; /* of a snapshot's row */
};

#define AFTER_COLLECTION " (namespace_id > ?1 OR (namespace_id = ?1 AND collection_id > ?2))"
#define HEADS                                                                                      \
    "SELECT namespace_id, collection_id FROM collection_statistics_heads WHERE" AFTER_COLLECTION
#define SNAPSHOTS                                                                                  \
    "SELECT namespace_id, collection_id, applied_schema_generation_token, stats_commit_ts,"        \
    " applied_schema_version, collected_at_unix_ms, snapshot_json"                                 \
    " FROM collection_statistics_snapshots WHERE (" AFTER_COLLECTION                               \
    " OR (namespace_id = ?1 AND collection_id = ?2 AND (applied_schema_generation_token > ?3"      \
    " OR (applied_schema_generation_token = ?3 AND stats_commit_ts > ?4))))"
#define SNAPSHOTS_ORDER                                                                            \
    " ORDER BY namespace_id, collection_id, applied_schema_generation_token, stats_commit_ts "     \
    "LIMIT"

static const char *query_of(bool heads, bool one)
{
    if (heads)
        return one ? HEADS " AND namespace_id = ?3 ORDER BY namespace_id, collection_id LIMIT ?4"
                   : HEADS " ORDER BY namespace_id, collection_id LIMIT ?3";
    return one ? SNAPSHOTS " AND namespace_id = ?5" SNAPSHOTS_ORDER " ?6"
               : SNAPSHOTS SNAPSHOTS_ORDER " ?5";
}

static enum sf_err take_row(struct sf_check *c, struct sf_sql_stmt *stmt, bool heads,
                            struct row *out)
{
    ProtobufCMessage *shown = NULL;
    *out = (struct row){.token = ""};
    searchfabric__v1__collection_ref__init(&out->ref);
    out->ref.namespace_id = sf_sql_col_u64(stmt, 0);
    out->ref.collection_id = sf_sql_col_u64(stmt, 1);
    if (heads)
        return SF_OK;
    out->token = sf_arena_str(c->page, sf_sql_col_text(stmt, 2));
    out->ts = sf_sql_col_u64(stmt, 3);
    out->version = sf_sql_col_u64(stmt, 4);
    out->collected_at_ms = sf_sql_col_i64(stmt, 5);
    struct sf_diag broken; /* a row that does not decode differs */
    sf_diag_init(&broken);
    enum sf_err err =
        sf_pbjson_decode(&searchfabric__v1__optimizer_statistics_snapshot_object__descriptor,
                         sf_sql_col_text(stmt, 6), c->page, &broken, &shown);
    out->shown = err == SF_OK ? (const SF_PB(OptimizerStatisticsSnapshotObject) *)shown : NULL;
    return err == SF_ERR_LIMIT || out->token == NULL
               ? sf_diag_set(c->diag, SF_ERR_LIMIT, "too many rows at once")
               : SF_OK;
}

/* Rows after `from`, in key order. */
static enum sf_err read_rows(struct sf_check *c, bool heads, const struct row *from, size_t limit,
                             struct row *out, size_t *out_count)
{
    struct sf_sql_stmt *stmt;
    struct sf_sql_conn *conn = sf_sql_acquire(c->catalog->deps.sql, c->sched, SF_SQL_READ);
    bool row = true;
    *out_count = 0;
    enum sf_err err = sf_sql_prepare(conn, query_of(heads, c->namespace_id != 0), c->diag, &stmt);
    if (err == SF_OK) {
        int at = 1;
        sf_sql_bind_u64(stmt, at++, from->ref.namespace_id);
        sf_sql_bind_u64(stmt, at++, from->ref.collection_id);
        if (!heads) {
            sf_sql_bind_text(stmt, at++, sf_view_str(from->token));
            sf_sql_bind_u64(stmt, at++, from->ts);
        }
        if (c->namespace_id != 0)
            sf_sql_bind_u64(stmt, at++, c->namespace_id);
        sf_sql_bind_i64(stmt, at, (int64_t)limit);
        while (err == SF_OK && row && *out_count < limit) {
            err = sf_sql_step(stmt, c->diag, &row);
            if (err == SF_OK && row)
                err = take_row(c, stmt, heads, &out[(*out_count)++]);
        }
        sf_sql_finish(stmt);
    }
    sf_sql_release(conn);
    return err;
}

static void row_key(const struct row *row, bool heads, struct sf_buf *out)
{
    if (heads)
        sf_catalog_key_statistics_head(out, row->ref.namespace_id, row->ref.collection_id);
    else
        sf_catalog_key_statistics(out, row->ref.namespace_id, row->ref.collection_id, row->token,
                                  row->ts);
}

/* The head of rows is gone: it is pointed anew at what serves. */
static enum sf_err head_missing(struct sf_check *c, const struct row *row, const struct sf_buf *key)
{
    SF_PB(OptimizerStatisticsSnapshotObject) *snapshot = NULL;
    struct sf_check_finding f = {
        .kind = "object_missing",
        .subject = "collection_statistics_heads",
        .key = sf_buf_view(key),
        .explanation = "a row shows a statistics head whose object is gone; the serving "
                       "generation's newest snapshot tells what it is to name",
        .repair = "the head is put again, naming that snapshot",
        .problem = true};
    enum sf_err err = SF_OK;
    if (c->repair)
        err =
            sf_catalog_statistics_load(c->catalog, c->sched, &row->ref, c->one, c->diag, &snapshot);
    if (err == SF_OK && snapshot != NULL)
        err = sf_check_write(c, sf_check_statistics_show, snapshot, &f.repaired);
    if (err == SF_OK)
        sf_check_tell(c, &f);
    return err;
}

#define UPDATE_SNAPSHOT                                                                            \
    "UPDATE collection_statistics_snapshots SET applied_schema_version = ?5,"                      \
    " collected_at_unix_ms = ?6, snapshot_json = ?7" SF_CHECK_OF_SNAPSHOT
#define DELETE_SNAPSHOT "DELETE FROM collection_statistics_snapshots" SF_CHECK_OF_SNAPSHOT

/* What stands for a row of a snapshot: NULL = the row goes. */
struct snapshot_row {
    const struct row *row;                                   /* as it was read */
    const SF_PB(OptimizerStatisticsSnapshotObject) * wanted; /* what it is to say */
};

static enum sf_err write_snapshot_row(struct sf_check *c, struct sf_sql_conn *conn, void *arg)
{
    const struct snapshot_row *w = arg;
    struct sf_sql_stmt *stmt;
    enum sf_err err =
        sf_sql_prepare(conn, w->wanted == NULL ? DELETE_SNAPSHOT : UPDATE_SNAPSHOT, c->diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, w->row->ref.namespace_id);
    sf_sql_bind_u64(stmt, 2, w->row->ref.collection_id);
    sf_sql_bind_text(stmt, 3, sf_view_str(w->row->token));
    sf_sql_bind_u64(stmt, 4, w->row->ts);
    if (w->wanted != NULL) {
        sf_sql_bind_u64(stmt, 5, w->wanted->applied_schema_version);
        sf_sql_bind_i64(stmt, 6, w->wanted->collected_at_unix_ms);
        sf_catalog_bind_json(stmt, 7, &w->wanted->base);
    }
    return sf_sql_run(stmt, c->diag, NULL);
}

static bool says(const struct row *row, const SF_PB(OptimizerStatisticsSnapshotObject) * wanted)
{
    return row->shown != NULL && row->version == wanted->applied_schema_version &&
           row->collected_at_ms == wanted->collected_at_unix_ms &&
           sf_catalog_same(&row->shown->base, &wanted->base);
}

/* A snapshot's row against its object. */
static enum sf_err judge_snapshot(struct sf_check *c, const struct row *row,
                                  const struct sf_buf *key,
                                  const SF_PB(OptimizerStatisticsSnapshotObject) * object)
{
    struct snapshot_row w = {.row = row};
    struct sf_check_finding f = {.kind = object == NULL ? "object_missing" : "row_differs",
                                 .subject = "collection_statistics_snapshots",
                                 .key = sf_buf_view(key),
                                 .problem = true};
    SF_PB(OptimizerStatisticsSnapshotObject) plain;
    bool named = false;
    enum sf_err err = SF_OK;
    if (object != NULL) {
        plain = *object;
        plain.sha256 = (char *)(uintptr_t)protobuf_c_empty_string;
        if (says(row, &plain))
            return SF_OK;
        w.wanted = &plain;
        f.explanation = "the row does not say what the immutable snapshot says; the object is the "
                        "truth";
        f.repair = "the row is written again from the object";
    } else {
        err = sf_check_head_names(c, &row->ref, row->token, row->ts, &named);
        f.explanation = "the row shows an older snapshot whose object is gone; the head names "
                        "another one";
        f.repair = "the row is deleted; nothing serves it";
    }
    if (err != SF_OK || named || sf_check_unsure(c)) /* named: told with the head */
        return err;
    err = sf_check_write(c, write_snapshot_row, &w, &f.repaired);
    if (err == SF_OK)
        sf_check_tell(c, &f);
    return err;
}

static enum sf_err judge_row(struct sf_check *c, const struct row *row, bool heads)
{
    struct sf_buf key = {0};
    ProtobufCMessage *object = NULL;
    bool broken = false;
    row_key(row, heads, &key);
    enum sf_err err =
        sf_check_read(c, &key,
                      heads ? &searchfabric__v1__optimizer_statistics_head_object__descriptor
                            : &searchfabric__v1__optimizer_statistics_snapshot_object__descriptor,
                      &object, &broken);
    if (err == SF_OK && !broken && heads && object == NULL && !sf_check_unsure(c))
        err = head_missing(c, row, &key);
    else if (err == SF_OK && !broken && !heads)
        err =
            judge_snapshot(c, row, &key, (const SF_PB(OptimizerStatisticsSnapshotObject) *)object);
    sf_buf_fini(&key);
    return err;
}

/* Reads the row again under the collection's gate; one of a collection without a row is told of
 * with the rows that nothing stands behind. */
static enum sf_err judge_row_surely(struct sf_check *c, const struct row *seen, bool heads)
{
    const struct sf_catalog_gates gates = {.namespace_id = seen->ref.namespace_id,
                                           .collection_id = seen->ref.collection_id};
    struct sf_check_lineage lineage = {0};
    struct row before = *seen, row = {0};
    struct sf_arena *page = c->page;
    size_t count = 0;
    sf_arena_reset(c->one);
    if (heads)
        before.ref.collection_id--;
    else
        before.ts--; /* of timestamp 0: not below it, so the same row is found from the token on */
    sf_catalog_gates_acquire(c->catalog, &gates);
    enum sf_err err = sf_check_lineage(c, gates.namespace_id, gates.collection_id, &lineage);
    c->page = c->one;
    if (err == SF_OK && lineage.collection != NULL && (heads || seen->ts != 0))
        err = read_rows(c, heads, &before, 1, &row, &count);
    else if (err == SF_OK && lineage.collection != NULL) {
        row = *seen;
        count = 1;
    }
    c->page = page;
    bool same = count == 1 && row.ref.namespace_id == seen->ref.namespace_id &&
                row.ref.collection_id == seen->ref.collection_id && row.ts == seen->ts &&
                strcmp(row.token, seen->token) == 0;
    c->sure = true;
    if (err == SF_OK && same)
        err = judge_row(c, &row, heads);
    c->sure = false;
    sf_catalog_gates_release(c->catalog, &gates);
    return err;
}

static enum sf_err judge_page(struct sf_check *c, const struct row *rows, size_t count, bool heads)
{
    enum sf_err err = sf_check_alive(c);
    if (err != SF_OK)
        return err;
    sf_catalog_ahead_forget(c->ahead);
    for (size_t i = 0; i < count; i++)
        row_key(&rows[i], heads, sf_check_want(c));
    sf_check_fetch(c);
    for (size_t i = 0; i < count && err == SF_OK; i++) {
        sf_arena_reset(c->one);
        c->suspect = false;
        c->response.rows_read++;
        err = judge_row(c, &rows[i], heads);
        if (err == SF_OK && c->suspect)
            err = judge_row_surely(c, &rows[i], heads);
    }
    return err;
}

enum sf_err sf_check_statistics_rows(struct sf_check *c)
{
    struct row *rows = sf_calloc(SF_CHECK_PAGE, sizeof(*rows));
    struct sf_buf token = {0};
    enum sf_err err = SF_OK;
    for (int heads = 1; heads >= 0 && err == SF_OK; heads--) {
        struct row from = {.token = ""};
        size_t count = SF_CHECK_PAGE;
        while (err == SF_OK && count == SF_CHECK_PAGE) {
            sf_arena_reset(c->page);
            err = read_rows(c, heads != 0, &from, SF_CHECK_PAGE, rows, &count);
            if (err == SF_OK)
                err = judge_page(c, rows, count, heads != 0);
            if (err != SF_OK || count == 0)
                break;
            from = rows[count - 1];
            sf_buf_clear(&token);
            sf_buf_append(&token, from.token, strlen(from.token) + 1);
            from.token = (const char *)token.data;
        }
    }
    sf_buf_fini(&token);
    free(rows);
    return err;
}
