/*
 * Model: namespace_quota_state is the projection of the namespace's quota object, its JSON as one
 * column; a row whose attempt is not the object's says that this projection missed something.
 * namespace_quota_leases holds each grant from before its answer until a while after its end, so
 * that a repeat of the request finds it. A bump of the quota epoch removes the namespace's leases.
 */
#include "base/pbjson.h"
#include "catalog/catalog_quota.h"

#define LEASE_KEY                                                                                  \
    " namespace_id = ?1 AND api_plane = ?2 AND throttled_dimension = ?3"                           \
    " AND lease_holder_id = ?4 AND lease_request_id = ?5"

static const char *plane_text(SF_PB(ApiPlane) plane)
{
    return plane == SF_PBE(API_PLANE, QUERY) ? "QUERY" : "WRITE";
}

static SF_PB(ApiPlane) plane_of(struct sf_view text)
{
    return sf_view_equal(text, sf_view_str("QUERY")) ? SF_PBE(API_PLANE, QUERY)
                                                     : SF_PBE(API_PLANE, WRITE);
}

static const char *state_text(SF_PB(QuotaLeaseState) state)
{
    switch (state) {
    case SF_PBE(QUOTA_LEASE_STATE, RETURNED):
        return "RETURNED";
    case SF_PBE(QUOTA_LEASE_STATE, EXPIRED):
        return "EXPIRED";
    default:
        return "ACTIVE";
    }
}

static SF_PB(QuotaLeaseState) state_of(struct sf_view text)
{
    if (sf_view_equal(text, sf_view_str("RETURNED")))
        return SF_PBE(QUOTA_LEASE_STATE, RETURNED);
    if (sf_view_equal(text, sf_view_str("EXPIRED")))
        return SF_PBE(QUOTA_LEASE_STATE, EXPIRED);
    return SF_PBE(QUOTA_LEASE_STATE, ACTIVE);
}

static void bind_key(struct sf_sql_stmt *stmt, const SF_PB(QuotaLeaseKey) * key)
{
    sf_sql_bind_u64(stmt, 1, key->namespace_id);
    sf_sql_bind_text(stmt, 2, sf_view_str(plane_text(key->api_plane)));
    sf_sql_bind_text(stmt, 3, sf_view_str(key->throttled_dimension));
    sf_sql_bind_text(stmt, 4, sf_view_str(key->lease_holder_id));
    sf_sql_bind_text(stmt, 5, sf_view_str(key->lease_request_id));
}

/* ---- state -------------------------------------------------------------------------------- */

enum sf_err sf_quota_sql_namespace(struct sf_sql_conn *conn, uint64_t namespace_id,
                                   struct sf_diag *diag, uint64_t *out_revision)
{
    struct sf_sql_stmt *stmt;
    bool row;
    *out_revision = 0;
    enum sf_err err = sf_sql_prepare(conn,
                                     "SELECT namespace_revision FROM namespaces"
                                     " WHERE namespace_id = ?1 AND lifecycle_state <> 'TOMBSTONED'",
                                     diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, namespace_id);
    err = sf_sql_step(stmt, diag, &row);
    if (err == SF_OK && row)
        *out_revision = sf_sql_col_u64(stmt, 0);
    sf_sql_finish(stmt);
    return err;
}

enum sf_err sf_quota_sql_state(struct sf_sql_conn *conn, uint64_t namespace_id,
                               struct sf_arena *arena, struct sf_diag *diag,
                               SF_PB(NamespaceQuotaStateObject) * *out_state)
{
    struct sf_sql_stmt *stmt;
    *out_state = NULL;
    enum sf_err err = sf_sql_prepare(
        conn, "SELECT quota_state_json FROM namespace_quota_state WHERE namespace_id = ?1", diag,
        &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, namespace_id);
    return sf_catalog_sql_one_message(
        stmt, &searchfabric__v1__namespace_quota_state_object__descriptor, arena, diag, out_state);
}

static const struct sf_sql_upsert state_upsert = {
    .table = "namespace_quota_state",
    .columns = "namespace_id, quota_epoch, quota_state_json, last_refill_at_unix_ms,"
               " updated_at_unix_ms",
    .key = "namespace_id",
    .update = "quota_epoch, quota_state_json, last_refill_at_unix_ms, updated_at_unix_ms",
};

enum sf_err sf_quota_sql_state_put(struct sf_sql_conn *conn,
                                   const SF_PB(NamespaceQuotaStateObject) * state,
                                   struct sf_diag *diag)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare_upsert(conn, &state_upsert, diag, &stmt);
    if (err != SF_OK)
        return err;
    struct sf_buf json = {0};
    sf_pbjson_encode(&state->base, &json);
    sf_sql_bind_u64(stmt, 1, state->namespace_id);
    sf_sql_bind_u64(stmt, 2, state->quota_epoch);
    sf_sql_bind_text(stmt, 3, sf_buf_view(&json));
    sf_sql_bind_i64(stmt, 4, state->last_refill_at_unix_ms);
    sf_sql_bind_i64(stmt, 5, state->updated_at_unix_ms);
    sf_buf_fini(&json);
    return sf_sql_run(stmt, diag, NULL);
}

enum sf_err sf_quota_sql_clear(struct sf_sql_conn *conn, uint64_t namespace_id,
                               struct sf_diag *diag)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare(
        conn, "DELETE FROM namespace_quota_leases WHERE namespace_id = ?1", diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, namespace_id);
    return sf_sql_run(stmt, diag, NULL);
}

enum sf_err sf_quota_sql_namespaces(struct sf_sql_conn *conn, uint64_t after, size_t limit,
                                    struct sf_arena *arena, struct sf_diag *diag,
                                    uint64_t **out_ids, size_t *out_count)
{
    struct sf_sql_stmt *stmt;
    uint64_t *ids = sf_arena_alloc(arena, (limit + 1) * sizeof(*ids));
    size_t count = 0;
    if (ids == NULL)
        return sf_diag_set(diag, SF_ERR_LIMIT, "no memory for a page of namespaces");
    enum sf_err err = sf_sql_prepare(conn,
                                     "SELECT namespace_id FROM namespaces WHERE namespace_id > ?1"
                                     " AND lifecycle_state <> 'TOMBSTONED'"
                                     " ORDER BY namespace_id LIMIT ?2",
                                     diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, after);
    sf_sql_bind_i64(stmt, 2, (int64_t)limit);
    for (bool row = true; row && err == SF_OK;) {
        err = sf_sql_step(stmt, diag, &row);
        if (err == SF_OK && row)
            ids[count++] = sf_sql_col_u64(stmt, 0);
    }
    sf_sql_finish(stmt);
    *out_ids = ids;
    *out_count = count;
    return err;
}

/* ---- leases ------------------------------------------------------------------------------- */

enum sf_err sf_quota_sql_lease(struct sf_sql_conn *conn, const SF_PB(QuotaLeaseKey) * key,
                               struct sf_diag *diag, struct sf_quota_lease *out_lease,
                               bool *out_found)
{
    struct sf_sql_stmt *stmt;
    bool row;
    *out_found = false;
    enum sf_err err = sf_sql_prepare(conn,
                                     "SELECT granted_units, lease_epoch, expires_at_unix_ms,"
                                     " terminal_state, request_fingerprint"
                                     " FROM namespace_quota_leases WHERE" LEASE_KEY,
                                     diag, &stmt);
    if (err != SF_OK)
        return err;
    bind_key(stmt, key);
    err = sf_sql_step(stmt, diag, &row);
    if (err == SF_OK && row) {
        struct sf_view fingerprint = sf_sql_col_text(stmt, 4);
        size_t len = fingerprint.len < SF_SHA256_HEX_BYTES ? fingerprint.len : 0;
        *out_lease = (struct sf_quota_lease){
            .granted_units = sf_sql_col_u64(stmt, 0),
            .lease_epoch = sf_sql_col_u64(stmt, 1),
            .expires_at_unix_ms = sf_sql_col_i64(stmt, 2),
            .state = state_of(sf_sql_col_text(stmt, 3)),
        };
        memcpy(out_lease->fingerprint, fingerprint.ptr, len);
        *out_found = true;
    }
    sf_sql_finish(stmt);
    return err;
}

enum sf_err sf_quota_sql_lease_put(struct sf_sql_conn *conn, const SF_PB(QuotaLeaseKey) * key,
                                   const struct sf_quota_lease *lease, int64_t now_ms,
                                   struct sf_diag *diag)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare(
        conn,
        "INSERT INTO namespace_quota_leases (namespace_id, api_plane, throttled_dimension,"
        " lease_holder_id, lease_request_id, granted_units, lease_epoch, expires_at_unix_ms,"
        " terminal_state, request_fingerprint, updated_at_unix_ms)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        diag, &stmt);
    if (err != SF_OK)
        return err;
    bind_key(stmt, key);
    sf_sql_bind_u64(stmt, 6, lease->granted_units);
    sf_sql_bind_u64(stmt, 7, lease->lease_epoch);
    sf_sql_bind_i64(stmt, 8, lease->expires_at_unix_ms);
    sf_sql_bind_text(stmt, 9, sf_view_str(state_text(lease->state)));
    sf_sql_bind_text(stmt, 10, sf_view_str(lease->fingerprint));
    sf_sql_bind_i64(stmt, 11, now_ms);
    return sf_sql_run(stmt, diag, NULL);
}

enum sf_err sf_quota_sql_lease_end(struct sf_sql_conn *conn, const SF_PB(QuotaLeaseKey) * key,
                                   SF_PB(QuotaLeaseState) state, int64_t now_ms,
                                   struct sf_diag *diag)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err =
        sf_sql_prepare(conn,
                       "UPDATE namespace_quota_leases SET terminal_state = ?6,"
                       " updated_at_unix_ms = ?7 WHERE" LEASE_KEY " AND terminal_state = 'ACTIVE'",
                       diag, &stmt);
    if (err != SF_OK)
        return err;
    bind_key(stmt, key);
    sf_sql_bind_text(stmt, 6, sf_view_str(state_text(state)));
    sf_sql_bind_i64(stmt, 7, now_ms);
    return sf_sql_run(stmt, diag, NULL);
}

enum sf_err sf_quota_sql_active(struct sf_sql_conn *conn, uint64_t namespace_id, size_t limit,
                                struct sf_arena *arena, struct sf_diag *diag,
                                struct sf_quota_lease **out_leases, size_t *out_count)
{
    struct sf_sql_stmt *stmt;
    struct sf_quota_lease *leases = sf_arena_alloc(arena, (limit + 1) * sizeof(*leases));
    size_t count = 0;
    if (leases == NULL)
        return sf_diag_set(diag, SF_ERR_LIMIT, "the answer is too large");
    enum sf_err err = sf_sql_prepare(
        conn,
        "SELECT api_plane, throttled_dimension, lease_holder_id, lease_request_id, granted_units,"
        " lease_epoch, expires_at_unix_ms FROM namespace_quota_leases"
        " WHERE namespace_id = ?1 AND terminal_state = 'ACTIVE' ORDER BY api_plane,"
        " throttled_dimension, lease_holder_id, lease_request_id LIMIT ?2",
        diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, namespace_id);
    sf_sql_bind_i64(stmt, 2, (int64_t)limit);
    for (bool row = true; row && err == SF_OK;) {
        err = sf_sql_step(stmt, diag, &row);
        if (err != SF_OK || !row)
            break;
        leases[count++] = (struct sf_quota_lease){
            .plane = plane_of(sf_sql_col_text(stmt, 0)),
            .dimension = sf_arena_str(arena, sf_sql_col_text(stmt, 1)),
            .holder_id = sf_arena_str(arena, sf_sql_col_text(stmt, 2)),
            .request_id = sf_arena_str(arena, sf_sql_col_text(stmt, 3)),
            .granted_units = sf_sql_col_u64(stmt, 4),
            .lease_epoch = sf_sql_col_u64(stmt, 5),
            .expires_at_unix_ms = sf_sql_col_i64(stmt, 6),
            .state = SF_PBE(QUOTA_LEASE_STATE, ACTIVE),
        };
    }
    sf_sql_finish(stmt);
    *out_leases = leases;
    *out_count = count;
    return err != SF_OK || !sf_arena_overflowed(arena)
               ? err
               : sf_diag_set(diag, SF_ERR_LIMIT, "the answer is too large");
}

/* ---- sweep -------------------------------------------------------------------------------- */

#define SWEEP_SELECT                                                                               \
    "SELECT namespace_id, api_plane, throttled_dimension, lease_holder_id, lease_request_id,"      \
    " expires_at_unix_ms FROM namespace_quota_leases"                                              \
    " WHERE expires_at_unix_ms > ?1 AND expires_at_unix_ms <= ?2 AND terminal_state "

/* Leases that one select of the sweep found. */
struct found {
    SF_PB(QuotaLeaseKey) * keys; /* in the arena */
    size_t count;                /* at most SF_QUOTA_SWEEP_ROWS */
    int64_t last_ms;             /* expiry of the last */
};

/* Keys that `sql` finds with an expiry in (after_ms, until_ms], oldest first. */
static enum sf_err sweep_keys(struct sf_sql_conn *conn, const char *sql, int64_t after_ms,
                              int64_t until_ms, struct sf_arena *arena, struct sf_diag *diag,
                              struct found *out)
{
    struct sf_sql_stmt *stmt;
    *out = (struct found){.keys = sf_arena_alloc(arena, SF_QUOTA_SWEEP_ROWS * sizeof(*out->keys))};
    if (out->keys == NULL)
        return sf_diag_set(diag, SF_ERR_LIMIT, "no memory for a sweep");
    enum sf_err err = sf_sql_prepare(conn, sql, diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_i64(stmt, 1, after_ms);
    sf_sql_bind_i64(stmt, 2, until_ms);
    sf_sql_bind_i64(stmt, 3, SF_QUOTA_SWEEP_ROWS);
    for (bool row = true; row && err == SF_OK;) {
        err = sf_sql_step(stmt, diag, &row);
        if (err != SF_OK || !row)
            break;
        SF_PB(QuotaLeaseKey) *key = &out->keys[out->count++];
        searchfabric__v1__quota_lease_key__init(key);
        key->namespace_id = sf_sql_col_u64(stmt, 0);
        key->api_plane = plane_of(sf_sql_col_text(stmt, 1));
        key->throttled_dimension = sf_arena_str(arena, sf_sql_col_text(stmt, 2));
        key->lease_holder_id = sf_arena_str(arena, sf_sql_col_text(stmt, 3));
        key->lease_request_id = sf_arena_str(arena, sf_sql_col_text(stmt, 4));
        out->last_ms = sf_sql_col_i64(stmt, 5);
    }
    sf_sql_finish(stmt);
    if (err == SF_OK && sf_arena_overflowed(arena))
        err = sf_diag_set(diag, SF_ERR_LIMIT, "no memory for a sweep");
    return err;
}

static enum sf_err prune(struct sf_sql_conn *conn, const SF_PB(QuotaLeaseKey) * key,
                         struct sf_diag *diag)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err =
        sf_sql_prepare(conn, "DELETE FROM namespace_quota_leases WHERE" LEASE_KEY, diag, &stmt);
    if (err != SF_OK)
        return err;
    bind_key(stmt, key);
    return sf_sql_run(stmt, diag, NULL);
}

enum sf_err sf_quota_sql_sweep(struct sf_sql_conn *conn, struct sf_quota_sweep *sweep,
                               struct sf_arena *arena, struct sf_diag *diag)
{
    struct found found;
    int64_t until_ms = sweep->now_ms;
    sweep->expired = sweep->pruned = 0;
    if (sweep->swept_ms > sweep->now_ms)
        sweep->swept_ms = sweep->now_ms; /* the clock was set back */
    enum sf_err err =
        sweep_keys(conn, SWEEP_SELECT "= 'ACTIVE' ORDER BY expires_at_unix_ms LIMIT ?3",
                   sweep->swept_ms, sweep->now_ms, arena, diag, &found);
    for (size_t i = 0; i < found.count && err == SF_OK; i++)
        err = sf_quota_sql_lease_end(conn, &found.keys[i], SF_PBE(QUOTA_LEASE_STATE, EXPIRED),
                                     sweep->now_ms, diag);
    sweep->expired = found.count;
    if (found.count == SF_QUOTA_SWEEP_ROWS)
        until_ms = found.last_ms - 1; /* others may expire in the same millisecond */
    if (err == SF_OK)
        err = sweep_keys(conn, SWEEP_SELECT "<> 'ACTIVE' ORDER BY expires_at_unix_ms LIMIT ?3", 0,
                         sweep->now_ms - sweep->retention_ms, arena, diag, &found);
    for (size_t i = 0; i < found.count && err == SF_OK; i++)
        err = prune(conn, &found.keys[i], diag);
    sweep->pruned = err == SF_OK ? found.count : 0;
    if (err == SF_OK && until_ms > sweep->swept_ms)
        sweep->swept_ms = until_ms;
    return err;
}
