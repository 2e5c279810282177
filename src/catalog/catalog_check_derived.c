/*
 * Model: what follows from elsewhere. Quota rows show the quota object (catalog_quota_check.c).
 * manifest_head.json and the head columns follow the committed pointer, which is the publisher's
 * and alone says what is visible (catalog_head.h). Tables without objects (leases, windows, work,
 * reports) hold rows of lineages that stand; a row of one that is gone is left over and may go.
 */
#include "catalog/catalog_check_priv.h"

#include <inttypes.h>
#include <stdio.h>

#include "catalog/catalog_head.h"
#include "catalog/catalog_manifest.h"
#include "catalog/catalog_quota.h"
#include "catalog/catalog_rules.h"

/* ---- quota --------------------------------------------------------------------------------- */

void sf_check_quota_wants(struct sf_check *c, const ProtobufCMessage *row)
{
    sf_catalog_key_quota(sf_check_want(c),
                         ((const SF_PB(QuotaStateRow) *)row)->state->namespace_id);
}

/* Sure: on the namespace's lane. */
static enum sf_err judge_quota(struct sf_check *c, uint64_t namespace_id, const struct sf_buf *key)
{
    static const struct {
        const char *kind, *explanation;
    } told[] = {
        [SF_QUOTA_CHECKED_NO_ROW] = {"row_missing",
                                     "the quota object stands and the table has no such row; the "
                                     "object is the truth of what was debited"},
        [SF_QUOTA_CHECKED_NO_OBJECT] = {"object_missing",
                                        "the row shows a quota object that is gone; what was "
                                        "debited is not known"},
        [SF_QUOTA_CHECKED_DIFFERS] = {"row_differs",
                                      "the row does not show the quota object; the object is the "
                                      "truth of what was debited, and leases may be missing"},
    };
    struct sf_quota_checked seen;
    enum sf_err err =
        sf_quota_check(c->catalog, c->sched, namespace_id, c->repair, c->one, c->diag, &seen);
    if (err == SF_OK && seen.state != SF_QUOTA_CHECKED_SAME)
        sf_check_tell(c, &(struct sf_check_finding){
                             .kind = told[seen.state].kind,
                             .subject = "namespace_quota_state",
                             .key = sf_buf_view(key),
                             .explanation = told[seen.state].explanation,
                             .repair = !seen.live ? ""
                                                  : "the state is taken over under a higher quota "
                                                    "epoch, which ends the leases of before",
                             .problem = seen.live && !seen.expected,
                             .repaired = seen.repaired});
    return err;
}

enum sf_err sf_check_quota_row(struct sf_check *c, const ProtobufCMessage *message)
{
    SF_PB(NamespaceQuotaStateObject) *state = ((const SF_PB(QuotaStateRow) *)message)->state;
    struct sf_buf key = {0};
    ProtobufCMessage *found = NULL;
    bool broken = false;
    enum sf_err err = SF_OK;
    sf_catalog_key_quota(&key, state->namespace_id);
    if (c->sure)
        err = judge_quota(c, state->namespace_id, &key);
    else
        err = sf_check_read(c, &key, &searchfabric__v1__namespace_quota_state_object__descriptor,
                            &found, &broken);
    if (err == SF_OK && found != NULL)
        ((SF_PB(NamespaceQuotaStateObject) *)found)->sha256 =
            (char *)(uintptr_t)protobuf_c_empty_string;
    c->suspect = c->suspect || (!c->sure && !sf_catalog_same(found, &state->base));
    sf_buf_fini(&key);
    return err;
}

enum sf_err sf_check_quota_object(struct sf_check *c, struct sf_check_object *object)
{
    SF_PB(NamespaceQuotaStateObject) *row = NULL;
    struct sf_check_lineage lineage;
    struct sf_buf key = {0};
    enum sf_err err = sf_check_lineage(c, object->namespace_id, 0, &lineage);
    struct sf_sql_conn *conn = sf_sql_acquire(c->catalog->deps.sql, c->sched, SF_SQL_READ);
    if (err == SF_OK)
        err = sf_quota_sql_state(conn, object->namespace_id, c->one, c->diag, &row);
    sf_sql_release(conn);
    if (err != SF_OK || row != NULL || sf_check_unsure(c))
        return err; /* a row is compared as a row */
    if (lineage.ns == NULL) {
        sf_check_orphan(c, object,
                        "the quota state of a namespace that has no row: its name was released; "
                        "quota states are not deleted",
                        "", false);
        return SF_OK;
    }
    sf_catalog_key_quota(&key, object->namespace_id);
    err = judge_quota(c, object->namespace_id, &key);
    sf_buf_fini(&key);
    return err;
}

/* ---- manifest heads ------------------------------------------------------------------------ */

/* What the head object should say, by the row. */
static bool head_says(const SF_PB(ManifestHeadObject) * head, const SF_PB(CollectionRow) * row)
{
    return head != NULL ? head->manifest_head_version == row->manifest_head_version
                        : row->manifest_head_version == 0;
}

static enum sf_err read_head(struct sf_check *c, const SF_PB(CollectionRef) * ref,
                             struct sf_buf *key, const SF_PB(ManifestHeadObject) * *out_head,
                             bool *out_broken)
{
    ProtobufCMessage *found = NULL;
    sf_catalog_key_manifest_head(key, ref->namespace_id, ref->collection_id);
    enum sf_err err = sf_check_look(c, key, &searchfabric__v1__manifest_head_object__descriptor,
                                    &found, NULL, NULL, out_broken);
    if (*out_broken)
        sf_diag_init(c->diag);
    *out_head = (const SF_PB(ManifestHeadObject) *)found;
    return err;
}

/* Without gates: is it worth a look? */
static enum sf_err glance(struct sf_check *c, const SF_PB(CollectionRow) * row)
{
    struct sf_buf key = {0}, pointer_key = {0};
    ProtobufCMessage *found = NULL;
    const SF_PB(ManifestHeadObject) *head = NULL;
    bool broken = false, broken_pointer = false;
    sf_catalog_key_committed_head(&pointer_key, row->collection->namespace_id,
                                  row->collection->collection_id);
    enum sf_err err = sf_check_look(c, &pointer_key,
                                    &searchfabric__v1__manifest_committed_head_object__descriptor,
                                    &found, NULL, NULL, &broken_pointer);
    if (broken_pointer)
        sf_diag_init(c->diag);
    if (err == SF_OK && row->manifest_head_version != 0)
        err = read_head(c, row->collection, &key, &head, &broken);
    uint64_t committed =
        found == NULL
            ? 0
            : ((const SF_PB(ManifestCommittedHeadObject) *)found)->committed_manifest_version;
    c->suspect =
        c->suspect || broken || broken_pointer || !head_says(head, row) ||
        committed != row->manifest_head_version ||
        row->manifest_head_reconciler_status == SF_PBE(MANIFEST_HEAD_RECONCILER_STATUS, ERROR);
    sf_buf_fini(&pointer_key);
    sf_buf_fini(&key);
    return err;
}

/* The object does not follow; nothing is decided by it, so the row tells what it is to say. */
static enum sf_err swap_head(struct sf_check *c, const SF_PB(CollectionRow) * row,
                             const struct sf_buf *key, const SF_PB(ManifestHeadObject) * head,
                             bool broken)
{
    struct sf_catalog_head_content content = {
        row->manifest_head_version, row->expected_previous_head,
        row->manifest_head_last_update_epoch, row->manifest_head_reconciler_status};
    struct sf_check_finding f = {
        .kind = broken         ? "object_broken"
                : head == NULL ? "object_missing"
                               : "object_differs",
        .subject = "manifest_head",
        .key = sf_buf_view(key),
        .repair = "the head object is swapped to what the row says, under the owner's epoch",
        .problem =
            row->manifest_head_reconciler_status == SF_PBE(MANIFEST_HEAD_RECONCILER_STATUS, IDLE)};
    f.explanation = sf_arena_printf(
        c->one,
        "the head object says version %" PRIu64 ", the row and the committed pointer %" PRIu64
        "; the committed pointer is the truth",
        head == NULL ? 0 : head->manifest_head_version, row->manifest_head_version);
    enum sf_err err = SF_OK;
    if (c->repair) {
        err = sf_catalog_head_swap(c->catalog, row->collection, &content, c->diag);
        f.repaired = err == SF_OK;
    }
    if (err == SF_OK && f.explanation != NULL)
        sf_check_tell(c, &f);
    return err;
}

static void head_key(const SF_PB(CollectionRef) * ref, struct sf_buf *out)
{
    sf_catalog_key_committed_head(out, ref->namespace_id, ref->collection_id);
}

static void tell_behind(struct sf_check *c, const SF_PB(CollectionRef) * ref, const char *text,
                        bool repaired)
{
    struct sf_buf key = {0};
    head_key(ref, &key);
    sf_check_tell(c, &(struct sf_check_finding){
                         .kind = "head_behind",
                         .subject = "collections",
                         .key = sf_buf_view(&key),
                         .explanation = text,
                         .repair = "the head is advanced by the intent that the publisher would "
                                   "have sent",
                         .problem = false,
                         .repaired = repaired});
    sf_buf_fini(&key);
}

/* With free gates: as the job does it. */
static enum sf_err advance(struct sf_check *c)
{
    bool equal = false;
    const char *text = c->after_text;
    enum sf_err err = sf_catalog_head_mend(c->catalog, &c->after_ref, c->one, c->diag, &equal);
    if (err == SF_OK)
        tell_behind(c, &c->after_ref, text, equal);
    return err;
}

static enum sf_err head_behind(struct sf_check *c, const SF_PB(CollectionRef) * ref,
                               const struct sf_catalog_head_seen *seen)
{
    const char *text = sf_arena_printf(c->one,
                                       "the head columns say version %" PRIu64
                                       ", the committed pointer %" PRIu64 "; the pointer "
                                       "is the truth, and the job manifest-head follows it",
                                       seen->row->manifest_head_version, seen->pointer_version);
    if (text == NULL)
        return sf_diag_set(c->diag, SF_ERR_LIMIT, "a finding does not fit its memory");
    if (!c->repair) {
        tell_behind(c, ref, text, false);
        return SF_OK;
    }
    searchfabric__v1__collection_ref__init(&c->after_ref);
    c->after_ref.namespace_id = ref->namespace_id;
    c->after_ref.collection_id = ref->collection_id;
    c->after_text = text;
    c->after = advance;
    return SF_OK;
}

/* The pointer does not fit its manifests, or the row does not fit the pointer. */
static void tell_unfit(struct sf_check *c, const SF_PB(CollectionRef) * ref,
                       const struct sf_catalog_head_seen *seen)
{
    struct sf_buf key = {0};
    head_key(ref, &key);
    const char *reason = seen->state == SF_CATALOG_HEAD_BROKEN && seen->reason != NULL
                             ? seen->reason
                             : "the reconciler is in ERROR";
    const char *text = sf_arena_printf(
        c->one,
        "%s; nothing here is guessed: restore the object, then `sfctl manifest head repair` "
        "the collection",
        reason);
    sf_check_tell(c, &(struct sf_check_finding){.kind = "head_unfit",
                                                .subject = "manifest_committed_head",
                                                .key = sf_buf_view(&key),
                                                .explanation = text == NULL ? reason : text,
                                                .repair = "",
                                                .problem = true});
    if (c->repair && seen->status != SF_PBE(MANIFEST_HEAD_RECONCILER_STATUS, ERROR))
        sf_catalog_head_hint(c->catalog, ref->namespace_id, ref->collection_id);
    sf_buf_fini(&key);
}

enum sf_err sf_check_head(struct sf_check *c, const SF_PB(CollectionRow) * row)
{
    struct sf_catalog_head_seen seen;
    struct sf_buf key = {0};
    const SF_PB(ManifestHeadObject) *head = NULL;
    bool broken = false;
    if (!c->sure)
        return glance(c, row);
    enum sf_err err = sf_catalog_head_examine(c->catalog, row->collection, c->one, c->diag, &seen);
    if (err != SF_OK || !seen.active)
        return err;
    if (seen.state == SF_CATALOG_HEAD_BROKEN ||
        seen.status == SF_PBE(MANIFEST_HEAD_RECONCILER_STATUS, ERROR)) {
        tell_unfit(c, row->collection, &seen);
        return SF_OK;
    }
    if (seen.state == SF_CATALOG_HEAD_GAP)
        return head_behind(c, row->collection, &seen);
    err = read_head(c, row->collection, &key, &head, &broken);
    if (err == SF_OK && (broken || !head_says(head, seen.row)))
        err = swap_head(c, seen.row, &key, head, broken);
    sf_buf_fini(&key);
    return err;
}

/* One whose collection has no row; any other is compared with its row. */
enum sf_err sf_check_head_object(struct sf_check *c, struct sf_check_object *object)
{
    struct sf_check_lineage lineage;
    enum sf_err err = sf_check_lineage(c, object->namespace_id, object->collection_id, &lineage);
    if (err == SF_OK && lineage.collection == NULL)
        sf_check_orphan(c, object,
                        "the manifest head of a collection that has no row: its name was released; "
                        "heads are not deleted",
                        "", false);
    return err;
}

/* ---- rows that nothing stands behind ------------------------------------------------------- */

#define BEHIND_COLLECTION(table)                                                                   \
    "SELECT DISTINCT t.namespace_id, t.collection_id FROM " table " t LEFT JOIN collections c"     \
    " ON c.namespace_id = t.namespace_id AND c.collection_id = t.collection_id"                    \
    " WHERE c.collection_id IS NULL AND (t.namespace_id > ?1 OR (t.namespace_id = ?1"              \
    " AND t.collection_id > ?2)) ORDER BY t.namespace_id, t.collection_id LIMIT ?3"
#define BEHIND_NAMESPACE(table)                                                                    \
    "SELECT DISTINCT t.namespace_id, t.namespace_id FROM " table " t LEFT JOIN namespaces n"       \
    " ON n.namespace_id = t.namespace_id WHERE n.namespace_id IS NULL AND (t.namespace_id > ?1"    \
    " OR (t.namespace_id = ?1 AND t.namespace_id > ?2)) ORDER BY t.namespace_id LIMIT ?3"
#define GONE_COLLECTION(table)                                                                     \
    "DELETE FROM " table " WHERE namespace_id = ?1 AND collection_id = ?2 AND NOT EXISTS"          \
    " (SELECT 1 FROM collections c WHERE c.namespace_id = ?1 AND c.collection_id = ?2)"
#define GONE_NAMESPACE(table)                                                                      \
    "DELETE FROM " table " WHERE namespace_id = ?1 AND NOT EXISTS"                                 \
    " (SELECT 1 FROM namespaces n WHERE n.namespace_id = ?1)"
#define OF_COLLECTION(table)                                                                       \
    {                                                                                              \
        table, BEHIND_COLLECTION(table), GONE_COLLECTION(table), true                              \
    }
#define OF_NAMESPACE(table)                                                                        \
    {                                                                                              \
        table, BEHIND_NAMESPACE(table), GONE_NAMESPACE(table), false                               \
    }

/* A table of lagging rows. */
static const struct lagging {
    const char *table;  /* its name */
    const char *find;   /* rows of lineages that have none, behind (?1, ?2), at most ?3 */
    const char *remove; /* those of one, unless it has a row */
    bool of_collection; /* else of namespaces */
} lagging[] = {
    OF_COLLECTION("collection_statistics_heads"),  OF_COLLECTION("collection_statistics_snapshots"),
    OF_COLLECTION("collection_lifecycle_windows"), OF_COLLECTION("lifecycle_transition_claims"),
    OF_COLLECTION("collection_index_backlogs"),    OF_COLLECTION("collection_observations"),
    OF_COLLECTION("catalog_projector_work"),       OF_NAMESPACE("namespace_quota_state"),
    OF_NAMESPACE("namespace_quota_leases"),
};

/* Whose rows. */
struct left_over {
    const struct lagging *of; /* table they are in */
    uint64_t namespace_id;    /* without a row */
    uint64_t collection_id;   /* of_collection */
};

static enum sf_err find_left_over(struct sf_check *c, const struct lagging *of,
                                  struct left_over *io_from, struct left_over *out,
                                  size_t *out_count)
{
    struct sf_sql_stmt *stmt;
    bool row = true;
    *out_count = 0;
    struct sf_sql_conn *conn = sf_sql_acquire(c->catalog->deps.sql, c->sched, SF_SQL_READ);
    enum sf_err err = sf_sql_prepare(conn, of->find, c->diag, &stmt);
    if (err == SF_OK) {
        sf_sql_bind_u64(stmt, 1, io_from->namespace_id);
        sf_sql_bind_u64(stmt, 2, io_from->collection_id);
        sf_sql_bind_i64(stmt, 3, SF_CHECK_PAGE);
        while (err == SF_OK && row && *out_count < SF_CHECK_PAGE) {
            err = sf_sql_step(stmt, c->diag, &row);
            if (err == SF_OK && row)
                out[(*out_count)++] =
                    (struct left_over){of, sf_sql_col_u64(stmt, 0), sf_sql_col_u64(stmt, 1)};
        }
        sf_sql_finish(stmt);
    }
    sf_sql_release(conn);
    if (*out_count != 0)
        *io_from = out[*out_count - 1];
    return err;
}

static enum sf_err remove_left_over(struct sf_check *c, struct sf_sql_conn *conn, void *arg)
{
    const struct left_over *rows = arg;
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare(conn, rows->of->remove, c->diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, rows->namespace_id);
    if (rows->of->of_collection)
        sf_sql_bind_u64(stmt, 2, rows->collection_id);
    return sf_sql_run(stmt, c->diag, NULL);
}

static enum sf_err tell_left_over(struct sf_check *c, struct left_over *rows)
{
    char key[64];
    struct sf_check_finding f = {
        .kind = "row_unknown",
        .subject = rows->of->table,
        .key = sf_view_str(key),
        .explanation = "rows of a lineage that has none of its own: it was released, or its row is "
                       "lost; nothing reads them",
        .repair = "the rows are deleted",
        .problem = false};
    if (rows->of->of_collection)
        snprintf(key, sizeof(key), "%" PRIu64 "/%" PRIu64, rows->namespace_id, rows->collection_id);
    else
        snprintf(key, sizeof(key), "%" PRIu64, rows->namespace_id);
    f.key = sf_view_str(key);
    sf_arena_reset(c->one);
    c->sure = true;
    enum sf_err err = sf_check_write(c, remove_left_over, rows, &f.repaired);
    if (err == SF_OK)
        sf_check_tell(c, &f);
    c->sure = false;
    return err;
}

static enum sf_err check_lagging(struct sf_check *c, const struct lagging *of)
{
    struct left_over page[SF_CHECK_PAGE], from = {0};
    size_t count = SF_CHECK_PAGE;
    enum sf_err err = SF_OK;
    if (c->namespace_id != 0) {
        from.namespace_id = of->of_collection ? c->namespace_id : c->namespace_id - 1;
        from.collection_id = of->of_collection ? 0 : UINT64_MAX;
    }
    while (err == SF_OK && count == SF_CHECK_PAGE) {
        err = sf_check_alive(c);
        if (err == SF_OK)
            err = find_left_over(c, of, &from, page, &count);
        for (size_t i = 0; i < count && err == SF_OK; i++) {
            if (c->namespace_id != 0 && page[i].namespace_id != c->namespace_id)
                return SF_OK;
            err = tell_left_over(c, &page[i]);
        }
    }
    return err;
}

/* A retired row names a snapshot that is to be removed: not one that a row still shows. */
#define STILL_SHOWN                                                                                \
    " FROM collection_statistics_snapshots s WHERE s.namespace_id = r.namespace_id"                \
    " AND s.collection_id = r.collection_id AND s.applied_schema_generation_token ="               \
    " r.applied_schema_generation_token AND s.stats_commit_ts = r.stats_commit_ts"

static enum sf_err check_retired(struct sf_check *c)
{
    struct left_over page[SF_CHECK_PAGE];
    static const struct lagging retired = {
        "retired_statistics_snapshots",
        ("SELECT DISTINCT r.namespace_id, r.collection_id FROM retired_statistics_snapshots r"
         " WHERE EXISTS (SELECT 1" STILL_SHOWN ") AND (r.namespace_id > ?1 OR (r.namespace_id = ?1"
         " AND r.collection_id > ?2)) ORDER BY r.namespace_id, r.collection_id LIMIT ?3"),
        ("DELETE FROM retired_statistics_snapshots WHERE namespace_id = ?1 AND collection_id = ?2"
         " AND EXISTS (SELECT 1 FROM collection_statistics_snapshots s WHERE s.namespace_id = ?1"
         " AND s.collection_id = ?2 AND s.applied_schema_generation_token ="
         " retired_statistics_snapshots.applied_schema_generation_token AND s.stats_commit_ts ="
         " retired_statistics_snapshots.stats_commit_ts)"),
        true};
    struct left_over from = {0};
    size_t count = SF_CHECK_PAGE;
    enum sf_err err = SF_OK;
    from.namespace_id = c->namespace_id;
    while (err == SF_OK && count == SF_CHECK_PAGE) {
        err = find_left_over(c, &retired, &from, page, &count);
        for (size_t i = 0; i < count && err == SF_OK; i++) {
            char key[64];
            if (c->namespace_id != 0 && page[i].namespace_id != c->namespace_id)
                return SF_OK;
            snprintf(key, sizeof(key), "%" PRIu64 "/%" PRIu64, page[i].namespace_id,
                     page[i].collection_id);
            struct sf_check_finding f = {
                .kind = "row_unknown",
                .subject = retired.table,
                .key = sf_view_str(key),
                .explanation = "a row says that a statistics snapshot is to be removed which a row "
                               "still shows; the snapshot's row is the truth",
                .repair = "the row is deleted, so that the snapshot stays",
                .problem = true};
            c->sure = true;
            err = sf_check_write(c, remove_left_over, &page[i], &f.repaired);
            if (err == SF_OK)
                sf_check_tell(c, &f);
            c->sure = false;
        }
    }
    return err;
}

enum sf_err sf_check_unknown_rows(struct sf_check *c)
{
    enum sf_err err = SF_OK;
    for (size_t i = 0; i < SF_ARRAY_LEN(lagging) && err == SF_OK; i++)
        err = check_lagging(c, &lagging[i]);
    return err == SF_OK ? check_retired(c) : err;
}
