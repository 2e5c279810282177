/*
 * Model: the head object names the snapshot that a collection serves; rows show both, and a few
 * older snapshots. Snapshot objects are immutable. A head whose snapshot is gone cannot be served
 * after a rebuild: a fresh snapshot is made from the committed manifest and the head moved to it.
 * A snapshot that no head, row or retired row names is an orphan. It may be deleted once it is as
 * old as a pruned one must be: its key holds the timestamp of its making and is never written
 * again. A base (timestamp 0) stays, for its identity is fixed.
 */
#include "catalog/catalog_check_priv.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/pbjson.h"
#include "catalog/catalog_projector.h"
#include "catalog/catalog_rules.h"
#include "catalog/catalog_statistics.h"

/* Of one collection, as its objects and rows have it. */
struct statistics {
    const SF_PB(OptimizerStatisticsHeadObject) * head; /* NULL = none */
    const SF_PB(OptimizerStatisticsSnapshotObject) *
        snapshot;       /* that it names; NULL = it is gone */
    bool head_row;      /* there is one */
    bool head_row_same; /* and it says what the head says */
    bool snapshot_row;  /* of the snapshot */
    bool due;           /* a projector's cycle is due */
};

static struct sf_sql_conn *reader(struct sf_check *c)
{
    return sf_sql_acquire(c->catalog->deps.sql, c->sched, SF_SQL_READ);
}

/* First column of the first row as a number; *out_row false = there is none. */
static enum sf_err one_number(struct sf_check *c, const char *sql, const SF_PB(CollectionRef) * ref,
                              const char *token, const uint64_t *ts, int64_t *out_value,
                              bool *out_row)
{
    struct sf_sql_stmt *stmt;
    struct sf_sql_conn *conn = reader(c);
    enum sf_err err = sf_sql_prepare(conn, sql, c->diag, &stmt);
    *out_row = false;
    *out_value = 0;
    if (err == SF_OK) {
        sf_sql_bind_u64(stmt, 1, ref->namespace_id);
        sf_sql_bind_u64(stmt, 2, ref->collection_id);
        if (token != NULL)
            sf_sql_bind_text(stmt, 3, sf_view_str(token));
        if (ts != NULL)
            sf_sql_bind_u64(stmt, 4, *ts);
        err = sf_sql_step(stmt, c->diag, out_row);
        if (err == SF_OK && *out_row)
            *out_value = sf_sql_col_i64(stmt, 0);
        sf_sql_finish(stmt);
    }
    sf_sql_release(conn);
    return err;
}

static enum sf_err has_snapshot_row(struct sf_check *c, const SF_PB(CollectionRef) * ref,
                                    const char *token, uint64_t ts, bool *out_has)
{
    int64_t value;
    return one_number(c, "SELECT 1 FROM collection_statistics_snapshots" SF_CHECK_OF_SNAPSHOT, ref,
                      token, &ts, &value, out_has);
}

static enum sf_err read_head_row(struct sf_check *c, const SF_PB(CollectionRef) * ref,
                                 struct statistics *out)
{
    struct sf_sql_stmt *stmt;
    const SF_PB(OptimizerStatisticsHeadObject) *head = out->head;
    struct sf_sql_conn *conn = reader(c);
    enum sf_err err = sf_sql_prepare(
        conn,
        "SELECT latest_applied_schema_version, latest_applied_schema_generation_token,"
        " latest_stats_commit_ts, latest_collected_at_unix_ms FROM collection_statistics_heads"
        " WHERE namespace_id = ?1 AND collection_id = ?2",
        c->diag, &stmt);
    if (err == SF_OK) {
        sf_sql_bind_u64(stmt, 1, ref->namespace_id);
        sf_sql_bind_u64(stmt, 2, ref->collection_id);
        err = sf_sql_step(stmt, c->diag, &out->head_row);
        out->head_row_same =
            err == SF_OK && out->head_row && head != NULL &&
            sf_sql_col_u64(stmt, 0) == head->latest_applied_schema_version &&
            sf_view_equal(sf_sql_col_text(stmt, 1),
                          sf_view_str(head->latest_applied_schema_generation_token)) &&
            sf_sql_col_u64(stmt, 2) == head->latest_stats_commit_ts &&
            sf_sql_col_i64(stmt, 3) == head->latest_collected_at_unix_ms;
        sf_sql_finish(stmt);
    }
    sf_sql_release(conn);
    return err;
}

static void snapshot_key(const SF_PB(CollectionRef) * ref,
                         const SF_PB(OptimizerStatisticsHeadObject) * head, struct sf_buf *out)
{
    sf_catalog_key_statistics(out, ref->namespace_id, ref->collection_id,
                              head->latest_applied_schema_generation_token,
                              head->latest_stats_commit_ts);
}

/* Everything about the head at hand. */
static enum sf_err read_all(struct sf_check *c, const SF_PB(CollectionRef) * ref,
                            struct statistics *out, bool *out_broken)
{
    struct sf_buf key = {0};
    ProtobufCMessage *found = NULL;
    int64_t due = 0;
    bool row = false;
    *out_broken = false;
    enum sf_err err = read_head_row(c, ref, out);
    if (err == SF_OK)
        err = has_snapshot_row(c, ref, out->head->latest_applied_schema_generation_token,
                               out->head->latest_stats_commit_ts, &out->snapshot_row);
    if (err == SF_OK)
        err = one_number(c,
                         "SELECT statistics_due FROM catalog_projector_work"
                         " WHERE namespace_id = ?1 AND collection_id = ?2",
                         ref, NULL, NULL, &due, &row);
    out->due = row && due != 0;
    snapshot_key(ref, out->head, &key);
    if (err == SF_OK)
        err = sf_check_read(c, &key,
                            &searchfabric__v1__optimizer_statistics_snapshot_object__descriptor,
                            &found, out_broken);
    out->snapshot = (const SF_PB(OptimizerStatisticsSnapshotObject) *)found;
    sf_buf_fini(&key);
    return err;
}

/* ---- heads --------------------------------------------------------------------------------- */

void sf_check_statistics_wants(struct sf_check *c, const struct sf_check_object *object)
{
    const SF_PB(OptimizerStatisticsHeadObject) *head =
        (const SF_PB(OptimizerStatisticsHeadObject) *)object->message;
    if (head->collection != NULL)
        snapshot_key(head->collection, head, sf_check_want(c));
}

/* With free gates: a fresh snapshot, and does the head name one that stands? */
static enum sf_err renew(struct sf_check *c)
{
    const SF_PB(CollectionRef) *ref = &c->after_ref;
    struct sf_buf key = {0};
    ProtobufCMessage *head = NULL, *snapshot = NULL;
    bool broken = false;
    const char *text = c->after_text;
    enum sf_err err = sf_catalog_statistics_renew(c->catalog, ref, c->one, c->diag);
    sf_catalog_key_statistics_head(&key, ref->namespace_id, ref->collection_id);
    if (err == SF_OK)
        err =
            sf_check_look(c, &key, &searchfabric__v1__optimizer_statistics_head_object__descriptor,
                          &head, NULL, NULL, &broken);
    struct sf_buf named = {0};
    if (err == SF_OK && head != NULL) {
        snapshot_key(ref, (const SF_PB(OptimizerStatisticsHeadObject) *)head, &named);
        err = sf_check_look(c, &named,
                            &searchfabric__v1__optimizer_statistics_snapshot_object__descriptor,
                            &snapshot, NULL, NULL, &broken);
    }
    if (err == SF_OK)
        sf_check_tell(c, &(struct sf_check_finding){
                             .kind = "object_missing",
                             .subject = "optimizer_statistics",
                             .key = sf_buf_view(&key),
                             .explanation = text,
                             .repair = "a fresh snapshot is made from the committed manifest, and "
                                       "the head moved to it",
                             .problem = true,
                             .repaired = snapshot != NULL});
    sf_buf_fini(&named);
    sf_buf_fini(&key);
    return err;
}

static enum sf_err tell_gone(struct sf_check *c, const SF_PB(CollectionRef) * ref,
                             const SF_PB(OptimizerStatisticsHeadObject) * head, struct sf_view key)
{
    const char *text = sf_arena_printf(
        c->one,
        "the head names the snapshot of generation \"%s\" at %" PRIu64 ", and that object is gone: "
        "a rebuild would fail; the committed manifest is the truth",
        head->latest_applied_schema_generation_token, head->latest_stats_commit_ts);
    if (text == NULL)
        return sf_diag_set(c->diag, SF_ERR_LIMIT, "a finding does not fit its memory");
    if (c->repair) {
        searchfabric__v1__collection_ref__init(&c->after_ref);
        c->after_ref.namespace_id = ref->namespace_id;
        c->after_ref.collection_id = ref->collection_id;
        c->after_text = text;
        c->after = renew;
        return SF_OK;
    }
    sf_check_tell(c, &(struct sf_check_finding){
                         .kind = "object_missing",
                         .subject = "optimizer_statistics",
                         .key = key,
                         .explanation = text,
                         .repair = "a fresh snapshot is made from the committed manifest, and the "
                                   "head moved to it",
                         .problem = true});
    return SF_OK;
}

enum sf_err sf_check_statistics_show(struct sf_check *c, struct sf_sql_conn *conn, void *arg)
{
    return sf_catalog_project_statistics(conn, arg, c->diag);
}

/* Rows that do not say what the head says. Lagging facts: until the new owner's first use of the
 * head, or the next cycle, this is expected. */
static enum sf_err tell_rows(struct sf_check *c, const struct statistics *s, struct sf_view key)
{
    struct sf_check_finding f = {
        .kind = s->head_row && s->snapshot_row ? "row_differs" : "row_missing",
        .subject =
            s->snapshot_row ? "collection_statistics_heads" : "collection_statistics_snapshots",
        .key = key,
        .explanation = "the rows do not show the snapshot that the head object names; the head "
                       "object is the truth",
        .repair = "rows of head and snapshot are written from the objects",
        .problem = s->head->owner_epoch == c->catalog->owner_epoch && !s->due};
    enum sf_err err = SF_OK;
    if (c->repair && s->head->owner_epoch != c->catalog->owner_epoch)
        err = sf_catalog_statistics_point(c->catalog, c->sched, s->snapshot, c->one, c->diag);
    if (err == SF_OK)
        err = sf_check_write(c, sf_check_statistics_show, (void *)(uintptr_t)s->snapshot,
                             &f.repaired);
    if (err == SF_OK)
        sf_check_tell(c, &f);
    return err;
}

enum sf_err sf_check_statistics_head(struct sf_check *c, struct sf_check_object *object)
{
    struct statistics s = {.head = (const SF_PB(OptimizerStatisticsHeadObject) *)object->message};
    struct sf_check_lineage lineage;
    SF_PB(CollectionRef) ref;
    bool broken = false;
    searchfabric__v1__collection_ref__init(&ref);
    ref.namespace_id = object->namespace_id;
    ref.collection_id = object->collection_id;
    enum sf_err err = sf_check_lineage(c, ref.namespace_id, ref.collection_id, &lineage);
    if (err != SF_OK)
        return err;
    if (lineage.collection == NULL) {
        sf_check_orphan(c, object,
                        "the head of a collection that has no row: its name was released; heads "
                        "are not deleted",
                        "", false);
        return SF_OK;
    }
    err = read_all(c, &ref, &s, &broken);
    bool fits = s.snapshot != NULL && s.head_row_same && s.snapshot_row;
    if (err != SF_OK || broken || fits || sf_check_unsure(c))
        return err;
    return s.snapshot == NULL ? tell_gone(c, &ref, s.head, object->key)
                              : tell_rows(c, &s, object->key);
}

/* ---- snapshots ----------------------------------------------------------------------------- */

/* Does the head object name it? */
enum sf_err sf_check_head_names(struct sf_check *c, const SF_PB(CollectionRef) * ref,
                                const char *token, uint64_t ts, bool *out_named)
{
    struct sf_buf key = {0};
    ProtobufCMessage *found = NULL;
    bool broken = false;
    sf_catalog_key_statistics_head(&key, ref->namespace_id, ref->collection_id);
    enum sf_err err =
        sf_check_look(c, &key, &searchfabric__v1__optimizer_statistics_head_object__descriptor,
                      &found, NULL, NULL, &broken);
    sf_buf_fini(&key);
    const SF_PB(OptimizerStatisticsHeadObject) *head =
        (const SF_PB(OptimizerStatisticsHeadObject) *)found;
    *out_named = broken || (head != NULL && head->latest_stats_commit_ts == ts &&
                            strcmp(head->latest_applied_schema_generation_token, token) == 0);
    return err;
}

static enum sf_err is_base(struct sf_check *c, const SF_PB(OptimizerStatisticsSnapshotObject) * s,
                           bool *out_base)
{
    int64_t value;
    *out_base = false;
    return s->stats_commit_ts != 0
               ? SF_OK
               : one_number(c,
                            "SELECT 1 FROM schema_generations WHERE namespace_id = ?1"
                            " AND collection_id = ?2 AND schema_generation_token = ?3",
                            s->collection, s->applied_schema_generation_token, NULL, &value,
                            out_base);
}

static enum sf_err tell_orphan(struct sf_check *c, const struct sf_check_object *object,
                               const SF_PB(OptimizerStatisticsSnapshotObject) * s)
{
    int64_t age_ms = sf_clock_unix_ms(c->catalog->deps.clock) - s->collected_at_unix_ms;
    bool done = false;
    if (s->stats_commit_ts == 0) {
        sf_check_orphan(c, object,
                        "a zero-row base that no generation needs any more; bases are not deleted",
                        "", false);
        return SF_OK;
    }
    if (age_ms < SF_CATALOG_STATISTICS_RETENTION_MS) {
        sf_check_orphan(c, object,
                        "a statistics snapshot that no head, row or retired row names: a cycle "
                        "that was cut short left it, or a rebuild forgot it; too young to go",
                        "", false);
        return SF_OK;
    }
    enum sf_err err = sf_check_delete(c, object->key, &done);
    if (err == SF_OK)
        sf_check_orphan(c, object,
                        "a statistics snapshot that no head, row or retired row names: a cycle "
                        "that was cut short left it, or a rebuild forgot it",
                        "the object is deleted; its key is never written again", done);
    return err;
}

enum sf_err sf_check_statistics_snapshot(struct sf_check *c, struct sf_check_object *object)
{
    const SF_PB(OptimizerStatisticsSnapshotObject) *s =
        (const SF_PB(OptimizerStatisticsSnapshotObject) *)object->message;
    int64_t value;
    bool named = false;
    if (s->collection == NULL || s->collection->namespace_id != object->namespace_id ||
        s->collection->collection_id != object->collection_id)
        return sf_diag_set(c->diag, SF_ERR_CORRUPT, "%.*s is of another collection",
                           (int)object->key.len, (const char *)object->key.ptr);
    enum sf_err err = has_snapshot_row(c, s->collection, s->applied_schema_generation_token,
                                       s->stats_commit_ts, &named);
    if (err == SF_OK && !named)
        err = is_base(c, s, &named);
    if (err != SF_OK || named || sf_check_unsure(c))
        return err;
    err = one_number(c, "SELECT 1 FROM retired_statistics_snapshots" SF_CHECK_OF_SNAPSHOT,
                     s->collection, s->applied_schema_generation_token, &s->stats_commit_ts, &value,
                     &named);
    if (err == SF_OK && !named)
        err = sf_check_head_names(c, s->collection, s->applied_schema_generation_token,
                                  s->stats_commit_ts, &named);
    return err == SF_OK && !named ? tell_orphan(c, object, s) : err;
}
