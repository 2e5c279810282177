/*
 * Model: one row per window of the committed manifest's summary, of collections whose active schema
 * has a lifecycle policy. Tier and published version are the manifest's, so they change with it and
 * never before; next transition and deadline follow from the policy. State: TRANSITIONING while a
 * worker's claim holds, which ends when the manifest shows the claimed tier or a colder one, when
 * the worker gives up or when the claim runs out; else RECLAIMABLE from the deadline on; else LIVE.
 *
 *   LIVE -claim-> TRANSITIONING -manifest, failure, time-> LIVE -deadline-> RECLAIMABLE -> (row
 * goes)
 *
 * A cycle writes what differs. Time alone is looked at when the next deadline or claim is due.
 */
#include "catalog/catalog_tier.h"

#include <stdlib.h>

#include "catalog/catalog_manifest.h"
#include "catalog/catalog_rules.h"
#include "catalog/catalog_window.h"

/* ---- rows --------------------------------------------------------------------------------- */

static const char *const tiers[] = {"", "HOT", "WARM", "COLD"};
static const char *const states[] = {"LIVE", "TRANSITIONING", "RECLAIMABLE"};

static unsigned word_index(struct sf_view text, const char *const *words, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (sf_view_equal(text, sf_view_str(words[i])))
            return i;
    }
    return 0;
}

struct sf_catalog_window sf_catalog_window_of_row(struct sf_sql_stmt *stmt)
{
    return (struct sf_catalog_window){
        .namespace_id = sf_sql_col_u64(stmt, 0),
        .collection_id = sf_sql_col_u64(stmt, 1),
        .start_ms = sf_sql_col_i64(stmt, 2),
        .end_ms = sf_sql_col_i64(stmt, 3),
        .tier = (SF_PB(DataTier))word_index(sf_sql_col_text(stmt, 4), tiers, SF_ARRAY_LEN(tiers)),
        .published_version = sf_sql_col_u64(stmt, 5),
        .has_transition = !sf_sql_col_is_null(stmt, 6),
        .transition_at_ms = sf_sql_col_i64(stmt, 6),
        .has_deadline = !sf_sql_col_is_null(stmt, 7),
        .deadline_ms = sf_sql_col_i64(stmt, 7),
        .state = (enum sf_catalog_window_state)word_index(sf_sql_col_text(stmt, 8), states,
                                                          SF_ARRAY_LEN(states)),
    };
}

static const struct sf_sql_upsert window_row = {
    .table = "collection_lifecycle_windows",
    .columns = SF_CATALOG_WINDOW_COLUMNS,
    .key = "namespace_id, collection_id, window_start_ms, window_end_ms",
    .update = "effective_tier, published_manifest_version, next_transition_at_unix_ms, "
              "retention_deadline_unix_ms, window_state",
};

static void bind_when(struct sf_sql_stmt *stmt, int index, bool present, int64_t unix_ms)
{
    if (present)
        sf_sql_bind_i64(stmt, index, unix_ms);
    else
        sf_sql_bind_null(stmt, index);
}

static enum sf_err write_window(struct sf_sql_conn *conn, const struct sf_catalog_window *window,
                                struct sf_diag *diag)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare_upsert(conn, &window_row, diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, window->namespace_id);
    sf_sql_bind_u64(stmt, 2, window->collection_id);
    sf_sql_bind_i64(stmt, 3, window->start_ms);
    sf_sql_bind_i64(stmt, 4, window->end_ms);
    sf_sql_bind_text(stmt, 5, sf_view_str(tiers[window->tier]));
    sf_sql_bind_u64(stmt, 6, window->published_version);
    bind_when(stmt, 7, window->has_transition, window->transition_at_ms);
    bind_when(stmt, 8, window->has_deadline, window->deadline_ms);
    sf_sql_bind_text(stmt, 9, sf_view_str(states[window->state]));
    return sf_sql_run(stmt, diag, NULL);
}

/* Runs a statement whose arguments are the key of a window. */
static enum sf_err run_keyed(struct sf_sql_conn *conn, const char *sql,
                             const struct sf_catalog_window *window, struct sf_diag *diag)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare(conn, sql, diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, window->namespace_id);
    sf_sql_bind_u64(stmt, 2, window->collection_id);
    sf_sql_bind_i64(stmt, 3, window->start_ms);
    sf_sql_bind_i64(stmt, 4, window->end_ms);
    return sf_sql_run(stmt, diag, NULL);
}

#define WHERE_WINDOW                                                                               \
    " WHERE namespace_id = ?1 AND collection_id = ?2 AND window_start_ms = ?3"                     \
    " AND window_end_ms = ?4"

enum sf_err sf_catalog_window_set(struct sf_sql_conn *conn, const struct sf_catalog_window *window,
                                  enum sf_catalog_window_state state, struct sf_diag *diag)
{
    static const char *const updates[] = {
        "UPDATE collection_lifecycle_windows SET window_state = 'LIVE'" WHERE_WINDOW,
        "UPDATE collection_lifecycle_windows SET window_state = 'TRANSITIONING'" WHERE_WINDOW,
        "UPDATE collection_lifecycle_windows SET window_state = 'RECLAIMABLE'" WHERE_WINDOW,
    };
    return run_keyed(conn, updates[state], window, diag);
}

enum sf_err sf_catalog_window_policy(struct sf_sql_conn *conn, uint64_t namespace_id,
                                     uint64_t collection_id, struct sf_arena *arena,
                                     struct sf_diag *diag,
                                     const SF_PB(LifecyclePolicy) * *out_policy)
{
    SF_PB(CollectionRow) *row = NULL;
    SF_PB(SchemaGenerationRow) *active = NULL;
    *out_policy = NULL;
    enum sf_err err =
        sf_catalog_sql_collection(conn, namespace_id, collection_id, arena, diag, &row);
    if (err != SF_OK || row == NULL || row->_active_schema_version_case == 0)
        return err;
    err =
        sf_catalog_sql_generation(conn, namespace_id, collection_id, SF_CATALOG_GENERATION_VERSION,
                                  row->active_schema_version, NULL, arena, diag, &active);
    if (err == SF_OK && active != NULL && active->body->definition->settings != NULL)
        *out_policy = active->body->definition->settings->lifecycle_policy;
    return err;
}

/* ---- one collection ----------------------------------------------------------------------- */

/* Rows of a collection that are about to be shown. */
struct window_rows {
    const struct sf_catalog_work *work;
    const struct sf_catalog_manifest *manifest;
    struct sf_arena *arena;
    struct sf_catalog_window *before; /* rows as they are, by start; owned */
    size_t before_count, before_cap;
    struct sf_map *claims; /* (start, end) -> tier + 1 as a pointer: what is claimed */
};

static enum sf_err read_before(struct window_rows *rows, struct sf_sql_conn *conn,
                               struct sf_diag *diag)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err =
        sf_sql_prepare(conn,
                       "SELECT " SF_CATALOG_WINDOW_COLUMNS " FROM collection_lifecycle_windows"
                       " WHERE namespace_id = ?1 AND collection_id = ?2"
                       " ORDER BY window_start_ms, window_end_ms",
                       diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, rows->work->namespace_id);
    sf_sql_bind_u64(stmt, 2, rows->work->collection_id);
    bool row = true;
    while (row && err == SF_OK) {
        err = sf_sql_step(stmt, diag, &row);
        if (err != SF_OK || !row)
            break;
        if (rows->before_count == rows->before_cap) {
            rows->before_cap = rows->before_cap == 0 ? 64 : rows->before_cap * 2;
            rows->before = sf_realloc(rows->before, rows->before_cap * sizeof(*rows->before));
        }
        rows->before[rows->before_count++] = sf_catalog_window_of_row(stmt);
    }
    sf_sql_finish(stmt);
    return err;
}

struct claim_key {
    int64_t start_ms;
    int64_t end_ms;
};

static enum sf_err read_claims(struct window_rows *rows, struct sf_sql_conn *conn,
                               struct sf_diag *diag)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare(conn,
                                     "SELECT window_start_ms, window_end_ms, target_tier"
                                     " FROM lifecycle_transition_claims"
                                     " WHERE namespace_id = ?1 AND collection_id = ?2",
                                     diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, rows->work->namespace_id);
    sf_sql_bind_u64(stmt, 2, rows->work->collection_id);
    bool row = true;
    while (row && err == SF_OK) {
        err = sf_sql_step(stmt, diag, &row);
        if (err != SF_OK || !row)
            break;
        struct claim_key key = {sf_sql_col_i64(stmt, 0), sf_sql_col_i64(stmt, 1)};
        uintptr_t tier = (uintptr_t)sf_sql_col_i64(stmt, 2);
        (void)sf_map_put(rows->claims, sf_view_bytes(&key, sizeof(key)), (void *)(tier + 1));
    }
    sf_sql_finish(stmt);
    return err;
}

/* The row that a published window becomes; *out_claim_over when its claim is fulfilled. */
static struct sf_catalog_window window_of(struct window_rows *rows, int64_t now_ms,
                                          const SF_PB(ManifestLifecycleWindow) * published,
                                          const SF_PB(LifecyclePolicy) * policy,
                                          bool *out_claim_over)
{
    struct sf_catalog_when move =
        sf_catalog_next_transition(published->window_end_ms, published->tier, policy);
    struct sf_catalog_when deadline =
        sf_catalog_retention_deadline(published->window_end_ms, policy);
    struct claim_key key = {published->window_start_ms, published->window_end_ms};
    uintptr_t claimed = (uintptr_t)sf_map_get(rows->claims, sf_view_bytes(&key, sizeof(key)));
    *out_claim_over = claimed != 0 && (uintptr_t)published->tier >= claimed - 1;
    enum sf_catalog_window_state state = SF_CATALOG_WINDOW_LIVE;
    if (claimed != 0 && !*out_claim_over)
        state = SF_CATALOG_WINDOW_TRANSITIONING;
    else if (sf_catalog_reached(deadline, now_ms))
        state = SF_CATALOG_WINDOW_RECLAIMABLE;
    return (struct sf_catalog_window){.namespace_id = rows->work->namespace_id,
                                      .collection_id = rows->work->collection_id,
                                      .start_ms = published->window_start_ms,
                                      .end_ms = published->window_end_ms,
                                      .tier = published->tier,
                                      .published_version = published->published_manifest_version,
                                      .has_transition = move.present,
                                      .transition_at_ms = move.unix_ms,
                                      .has_deadline = deadline.present,
                                      .deadline_ms = deadline.unix_ms,
                                      .state = state};
}

static int compare_key(const struct sf_catalog_window *a, const struct sf_catalog_window *b)
{
    if (a->start_ms != b->start_ms)
        return a->start_ms < b->start_ms ? -1 : 1;
    return a->end_ms == b->end_ms ? 0 : (a->end_ms < b->end_ms ? -1 : 1);
}

static bool same_window(const struct sf_catalog_window *a, const struct sf_catalog_window *b)
{
    return a->tier == b->tier && a->published_version == b->published_version &&
           a->has_transition == b->has_transition && a->transition_at_ms == b->transition_at_ms &&
           a->has_deadline == b->has_deadline && a->deadline_ms == b->deadline_ms &&
           a->state == b->state;
}

#define DELETE_CLAIM  "DELETE FROM lifecycle_transition_claims" WHERE_WINDOW
#define DELETE_WINDOW "DELETE FROM collection_lifecycle_windows" WHERE_WINDOW

static enum sf_err remove_window(struct sf_sql_conn *conn, const struct sf_catalog_window *window,
                                 struct sf_diag *diag)
{
    enum sf_err err = run_keyed(conn, DELETE_WINDOW, window, diag);
    return err == SF_OK ? run_keyed(conn, DELETE_CLAIM, window, diag) : err;
}

/* Both sides are in time order: what is gone is removed, what differs is written. */
static enum sf_err write_difference(struct window_rows *rows, struct sf_sql_conn *conn,
                                    int64_t now_ms, const SF_PB(LifecyclePolicy) * policy,
                                    struct sf_diag *diag)
{
    const SF_PB(ManifestSummaryObject) *summary = rows->manifest->summary;
    size_t count = policy == NULL || summary == NULL ? 0 : summary->n_lifecycle_windows;
    size_t at = 0;
    enum sf_err err = SF_OK;
    for (size_t i = 0; i < count && err == SF_OK; i++) {
        bool claim_over = false;
        struct sf_catalog_window now =
            window_of(rows, now_ms, summary->lifecycle_windows[i], policy, &claim_over);
        while (err == SF_OK && at < rows->before_count && compare_key(&rows->before[at], &now) < 0)
            err = remove_window(conn, &rows->before[at++], diag);
        bool known = at < rows->before_count && compare_key(&rows->before[at], &now) == 0;
        if (err == SF_OK && !(known && same_window(&rows->before[at], &now)))
            err = write_window(conn, &now, diag);
        if (err == SF_OK && claim_over)
            err = run_keyed(conn, DELETE_CLAIM, &now, diag);
        at += known ? 1 : 0;
    }
    while (err == SF_OK && at < rows->before_count)
        err = remove_window(conn, &rows->before[at++], diag);
    return err;
}

static enum sf_err show_windows(struct sf_catalog *catalog, struct sf_sql_conn *conn, void *arg,
                                struct sf_diag *diag)
{
    struct window_rows *rows = arg;
    const SF_PB(LifecyclePolicy) *policy = NULL;
    rows->before_count = 0;
    enum sf_err err = sf_catalog_window_policy(
        conn, rows->work->namespace_id, rows->work->collection_id, rows->arena, diag, &policy);
    if (err == SF_OK)
        err = read_before(rows, conn, diag);
    if (err == SF_OK)
        err = read_claims(rows, conn, diag);
    if (err == SF_OK)
        err = write_difference(rows, conn, sf_clock_unix_ms(catalog->deps.clock), policy, diag);
    if (err == SF_OK)
        err = sf_catalog_projectors_done(conn, rows->work, SF_CATALOG_DUE_WINDOWS, diag);
    return err;
}

/* Has the collection a policy at all? Most have none: their manifest is not read. */
struct policy_look {
    const struct sf_catalog_work *work;
    struct sf_arena *arena;
    const SF_PB(LifecyclePolicy) * policy;
};

static enum sf_err look_at_policy(struct sf_catalog *catalog, struct sf_sql_conn *conn, void *arg,
                                  struct sf_diag *diag)
{
    struct policy_look *look = arg;
    (void)catalog;
    return sf_catalog_window_policy(conn, look->work->namespace_id, look->work->collection_id,
                                    look->arena, diag, &look->policy);
}

static enum sf_err project_windows(struct sf_catalog *catalog, const struct sf_catalog_work *work,
                                   struct sf_arena *arena, struct sf_diag *diag)
{
    struct policy_look look = {.work = work, .arena = arena};
    struct sf_catalog_manifest manifest = {0};
    SF_PB(CollectionRef) ref;
    searchfabric__v1__collection_ref__init(&ref);
    ref.namespace_id = work->namespace_id;
    ref.collection_id = work->collection_id;
    enum sf_err err = sf_catalog_projectors_read(catalog, look_at_policy, &look, diag);
    if (err == SF_OK && look.policy != NULL)
        err = sf_catalog_manifest_read(catalog, catalog->deps.sched, &ref, true, arena, diag,
                                       &manifest);
    if (err == SF_ERR_CORRUPT)
        return sf_catalog_projectors_refused(catalog, work, "lifecycle-windows", diag);
    if (err != SF_OK)
        return err;
    struct window_rows rows = {
        .work = work, .manifest = &manifest, .arena = arena, .claims = sf_map_new()};
    err = sf_catalog_projectors_write(catalog, show_windows, &rows, diag);
    sf_map_destroy(rows.claims, NULL);
    free(rows.before);
    if (err == SF_OK)
        sf_catalog_windows_look(catalog);
    return err;
}

/* ---- time --------------------------------------------------------------------------------- */

/* Claims that ran out. */
struct expired {
    struct sf_catalog_window list[SF_CATALOG_PROJECTOR_BATCH];
    size_t count;
};

static enum sf_err read_expired(struct sf_sql_conn *conn, int64_t now_ms, struct expired *out,
                                struct sf_diag *diag)
{
    struct sf_sql_stmt *stmt;
    out->count = 0;
    enum sf_err err =
        sf_sql_prepare(conn,
                       "SELECT namespace_id, collection_id, window_start_ms, window_end_ms"
                       " FROM lifecycle_transition_claims WHERE expires_at_unix_ms <= ?1"
                       " ORDER BY expires_at_unix_ms LIMIT 64",
                       diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_i64(stmt, 1, now_ms);
    bool row = true;
    while (row && err == SF_OK) {
        err = sf_sql_step(stmt, diag, &row);
        if (err != SF_OK || !row)
            break;
        out->list[out->count++] =
            (struct sf_catalog_window){.namespace_id = sf_sql_col_u64(stmt, 0),
                                       .collection_id = sf_sql_col_u64(stmt, 1),
                                       .start_ms = sf_sql_col_i64(stmt, 2),
                                       .end_ms = sf_sql_col_i64(stmt, 3)};
    }
    sf_sql_finish(stmt);
    return err;
}

static enum sf_err one_time(struct sf_sql_conn *conn, const char *sql, struct sf_diag *diag,
                            int64_t *io_next_ms)
{
    struct sf_sql_stmt *stmt;
    bool row = false;
    enum sf_err err = sf_sql_prepare(conn, sql, diag, &stmt);
    if (err != SF_OK)
        return err;
    err = sf_sql_step(stmt, diag, &row);
    if (err == SF_OK && row && !sf_sql_col_is_null(stmt, 0) &&
        sf_sql_col_i64(stmt, 0) < *io_next_ms)
        *io_next_ms = sf_sql_col_i64(stmt, 0);
    sf_sql_finish(stmt);
    return err;
}

/* What one look at the time did. */
struct sweep {
    int64_t next_ms; /* when to look again */
    uint64_t moved;  /* rows whose state changed */
};

static enum sf_err sweep_rows(struct sf_catalog *catalog, struct sf_sql_conn *conn, void *arg,
                              struct sf_diag *diag)
{
    struct sweep *sweep = arg;
    struct expired expired;
    int64_t now_ms = sf_clock_unix_ms(catalog->deps.clock);
    struct sf_sql_stmt *stmt;
    uint64_t changes = 0;
    enum sf_err err = read_expired(conn, now_ms, &expired, diag);
    for (size_t i = 0; i < expired.count && err == SF_OK; i++) {
        err = sf_catalog_window_set(conn, &expired.list[i], SF_CATALOG_WINDOW_LIVE, diag);
        if (err == SF_OK)
            err = run_keyed(conn, DELETE_CLAIM, &expired.list[i], diag);
    }
    if (err == SF_OK)
        err = sf_sql_prepare(conn,
                             "UPDATE collection_lifecycle_windows SET window_state = 'RECLAIMABLE'"
                             " WHERE window_state = 'LIVE' AND retention_deadline_unix_ms <= ?1",
                             diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_i64(stmt, 1, now_ms);
    err = sf_sql_run(stmt, diag, &changes);
    sweep->moved = expired.count + changes;
    sweep->next_ms = expired.count == SF_CATALOG_PROJECTOR_BATCH ? now_ms : INT64_MAX;
    if (err == SF_OK)
        err = one_time(conn,
                       "SELECT MIN(retention_deadline_unix_ms) FROM collection_lifecycle_windows"
                       " WHERE window_state = 'LIVE'",
                       diag, &sweep->next_ms);
    if (err == SF_OK)
        err = one_time(conn, "SELECT MIN(expires_at_unix_ms) FROM lifecycle_transition_claims",
                       diag, &sweep->next_ms);
    return err;
}

enum sf_err sf_catalog_run_windows(struct sf_catalog *catalog, struct sf_sched *sched,
                                   struct sf_diag *diag, uint64_t *out_done)
{
    struct sweep sweep = {0};
    (void)sched;
    enum sf_err err = sf_catalog_projectors_cycle(catalog, SF_CATALOG_DUE_WINDOWS, project_windows,
                                                  diag, out_done);
    if (err != SF_OK ||
        sf_clock_unix_ms(catalog->deps.clock) < atomic_load(&catalog->windows_due_unix_ms))
        return err;
    atomic_store(&catalog->windows_due_unix_ms, INT64_MAX);
    err = sf_catalog_projectors_write(catalog, sweep_rows, &sweep, diag);
    if (err != SF_OK) {
        sf_catalog_windows_look(catalog);
        return err;
    }
    *out_done += sweep.moved;
    int64_t none = INT64_MAX; /* unless somebody asked for a look meanwhile */
    (void)atomic_compare_exchange_strong(&catalog->windows_due_unix_ms, &none, sweep.next_ms);
    return SF_OK;
}

void sf_catalog_windows_look(struct sf_catalog *catalog)
{
    atomic_store(&catalog->windows_due_unix_ms, INT64_MIN);
}
