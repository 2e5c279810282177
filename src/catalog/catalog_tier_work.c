/*
 * What background workers ask for: due tier moves, which they claim and then publish by a manifest
 * of their own, and retired objects that may be removed. Giving something out changes no tier and
 * no reference: rows follow the committed manifest alone. The model is in catalog_tier.c.
 */
#include <stdlib.h>

#include "catalog/catalog_tier.h"
#include "catalog/catalog_job.h"
#include "catalog/catalog_manifest.h"
#include "catalog/catalog_rules.h"
#include "catalog/catalog_window.h"
#include "searchfabric/v1/catalog_operations_private.pb-c.h"

static enum sf_err too_large(struct sf_diag *diag)
{
    return sf_diag_set(diag, SF_ERR_LIMIT, "the answer is too large");
}

/* Windows of one query, at most `limit`. */
struct windows {
    struct sf_catalog_window *list; /* in the arena */
    size_t count;
};

static enum sf_err read_windows(struct sf_sql_stmt *stmt, size_t limit, struct sf_arena *arena,
                                struct sf_diag *diag, struct windows *out)
{
    out->count = 0;
    out->list = sf_arena_alloc(arena, (limit + 1) * sizeof(*out->list));
    if (out->list == NULL) {
        sf_sql_finish(stmt);
        return too_large(diag);
    }
    enum sf_err err = SF_OK;
    bool row = true;
    while (row && err == SF_OK && out->count < limit) {
        err = sf_sql_step(stmt, diag, &row);
        if (err == SF_OK && row)
            out->list[out->count++] = sf_catalog_window_of_row(stmt);
    }
    sf_sql_finish(stmt);
    return err;
}

/* ---- claims ------------------------------------------------------------------------------- */

enum sf_err sf_catalog_claim_check(const SF_PB(ClaimLifecycleTransitionsRequest) * request,
                                   struct sf_diag *diag)
{
    enum sf_err err = sf_identity_check("worker_id", sf_view_str(request->worker_id), 1, 128, diag);
    if (err == SF_OK && request->max_claims > SF_CATALOG_CLAIMS_MAX)
        err = sf_diag_bad_field(diag, "max_claims", "out_of_range", "at most %u claims",
                                SF_CATALOG_CLAIMS_MAX);
    if (err == SF_OK && request->claim_ms > SF_CATALOG_CLAIM_MS_MAX)
        err = sf_diag_bad_field(diag, "claim_ms", "out_of_range", "at most %u ms",
                                SF_CATALOG_CLAIM_MS_MAX);
    return err;
}

/* One request for claims. */
struct claims {
    const SF_PB(ClaimLifecycleTransitionsRequest) * request;
    struct sf_arena *arena;
    SF_PB(ClaimLifecycleTransitionsResponse) response;
    struct sf_catalog_claim_place after; /* looked at before, then what this one looked at */
};

static const struct sf_sql_upsert claim_row = {
    .table = "lifecycle_transition_claims",
    .columns = "namespace_id, collection_id, window_start_ms, window_end_ms, claim_id, worker_id, "
               "target_tier, claimed_at_unix_ms, expires_at_unix_ms",
    .key = "namespace_id, collection_id, window_start_ms, window_end_ms",
    .update = "claim_id, worker_id, target_tier, claimed_at_unix_ms, expires_at_unix_ms",
};

static enum sf_err give_claim(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                              struct claims *claims, const struct sf_catalog_window *window,
                              SF_PB(DataTier) target, struct sf_diag *diag)
{
    SF_PB(LifecycleTransitionClaim) *claim = sf_arena_alloc(claims->arena, sizeof(*claim));
    SF_PB(CollectionRef) *ref = sf_arena_alloc(claims->arena, sizeof(*ref));
    char *claim_id = sf_arena_alloc(claims->arena, SF_ATTEMPT_ID_BYTES);
    if (claim == NULL || ref == NULL || claim_id == NULL)
        return too_large(diag);
    int64_t now_ms = sf_clock_unix_ms(catalog->deps.clock);
    uint64_t claim_ms =
        claims->request->claim_ms == 0 ? SF_CATALOG_CLAIM_MS_DEFAULT : claims->request->claim_ms;
    searchfabric__v1__lifecycle_transition_claim__init(claim);
    searchfabric__v1__collection_ref__init(ref);
    sf_attempts_next(catalog->deps.attempts, claim_id);
    ref->namespace_id = window->namespace_id;
    ref->collection_id = window->collection_id;
    claim->claim_id = claim_id;
    claim->collection = ref;
    claim->window_start_ms = window->start_ms;
    claim->window_end_ms = window->end_ms;
    claim->effective_tier = window->tier;
    claim->target_tier = target;
    claim->published_manifest_version = window->published_version;
    claim->expires_at_unix_ms = now_ms + (int64_t)claim_ms;
    claims->response.claims[claims->response.n_claims++] = claim;
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare_upsert(conn, &claim_row, diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, window->namespace_id);
    sf_sql_bind_u64(stmt, 2, window->collection_id);
    sf_sql_bind_i64(stmt, 3, window->start_ms);
    sf_sql_bind_i64(stmt, 4, window->end_ms);
    sf_sql_bind_text(stmt, 5, sf_view_str(claim_id));
    sf_sql_bind_text(stmt, 6, sf_view_str(claims->request->worker_id));
    sf_sql_bind_i64(stmt, 7, (int64_t)target);
    sf_sql_bind_i64(stmt, 8, now_ms);
    sf_sql_bind_i64(stmt, 9, claim->expires_at_unix_ms);
    err = sf_sql_run(stmt, diag, NULL);
    return err == SF_OK ? sf_catalog_window_set(conn, window, SF_CATALOG_WINDOW_TRANSITIONING, diag)
                        : err;
}

/* Due windows behind `after`, at most `limit`; moves it behind the last. */
static enum sf_err read_due(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                            struct claims *claims, size_t limit, struct sf_diag *diag,
                            struct windows *out)
{
    struct sf_catalog_claim_place *after = &claims->after;
    struct sf_sql_stmt *stmt;
    enum sf_err err = sf_sql_prepare(
        conn,
        "SELECT " SF_CATALOG_WINDOW_COLUMNS " FROM collection_lifecycle_windows w"
        " WHERE next_transition_at_unix_ms <= ?1 AND window_state = 'LIVE'"
        " AND (next_transition_at_unix_ms > ?2 OR (next_transition_at_unix_ms = ?2"
        " AND (namespace_id > ?3 OR (namespace_id = ?3 AND (collection_id > ?4"
        " OR (collection_id = ?4 AND (window_start_ms > ?5"
        " OR (window_start_ms = ?5 AND window_end_ms > ?6))))))))"
        " AND EXISTS (SELECT 1 FROM collections c WHERE c.namespace_id = w.namespace_id"
        " AND c.collection_id = w.collection_id AND c.lifecycle_state = 'ACTIVE')"
        " ORDER BY next_transition_at_unix_ms, namespace_id, collection_id, window_start_ms,"
        " window_end_ms LIMIT ?7",
        diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_i64(stmt, 1, sf_clock_unix_ms(catalog->deps.clock));
    sf_sql_bind_i64(stmt, 2, after->begun ? after->due_ms : INT64_MIN);
    sf_sql_bind_u64(stmt, 3, after->namespace_id);
    sf_sql_bind_u64(stmt, 4, after->collection_id);
    sf_sql_bind_i64(stmt, 5, after->start_ms);
    sf_sql_bind_i64(stmt, 6, after->end_ms);
    sf_sql_bind_i64(stmt, 7, (int64_t)limit);
    err = read_windows(stmt, limit, claims->arena, diag, out);
    if (err != SF_OK)
        return err;
    *after = (struct sf_catalog_claim_place){0};
    if (out->count == limit) {
        const struct sf_catalog_window *last = &out->list[limit - 1];
        *after = (struct sf_catalog_claim_place){true,
                                                 last->transition_at_ms,
                                                 last->namespace_id,
                                                 last->collection_id,
                                                 last->start_ms,
                                                 last->end_ms};
    }
    return SF_OK;
}

/* Claims one window, if its move is still due. One whose rows are broken is left alone. */
static enum sf_err claim_window(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                                struct claims *claims, const struct sf_catalog_window *window,
                                struct sf_diag *diag)
{
    const SF_PB(LifecyclePolicy) *policy = NULL;
    enum sf_err err = sf_catalog_window_policy(conn, window->namespace_id, window->collection_id,
                                               claims->arena, diag, &policy);
    if (sf_catalog_own_fault(err)) {
        sf_diag_init(diag);
        return SF_OK;
    }
    if (err != SF_OK)
        return err;
    SF_PB(DataTier)
    target = sf_catalog_due_tier(window->end_ms, window->tier, policy,
                                 sf_clock_unix_ms(catalog->deps.clock));
    if (target == window->tier) /* the policy may have changed since the row was derived */
        return SF_OK;
    return give_claim(catalog, conn, claims, window, target, diag);
}

static enum sf_err give_claims(struct sf_catalog *catalog, struct sf_sql_conn *conn, void *arg,
                               struct sf_diag *diag)
{
    struct claims *claims = arg;
    size_t limit =
        claims->request->max_claims == 0 ? SF_CATALOG_CLAIMS_DEFAULT : claims->request->max_claims;
    claims->response.claims = sf_arena_alloc(claims->arena, (limit + 1) * sizeof(void *));
    if (claims->response.claims == NULL)
        return too_large(diag);
    enum sf_err err = SF_OK;
    bool more = true;
    for (int pass = 0; pass < 2 && more && err == SF_OK; pass++) {
        struct windows due = {0};
        more = claims->after.begun; /* then something may stand in front of it */
        err = read_due(catalog, conn, claims, limit - claims->response.n_claims, diag, &due);
        for (size_t i = 0; i < due.count && err == SF_OK; i++)
            err = claim_window(catalog, conn, claims, &due.list[i], diag);
        more = more && !claims->after.begun;
    }
    return err;
}

enum sf_err sf_catalog_claim_run(struct sf_catalog *catalog, struct sf_call *call,
                                 const ProtobufCMessage *request)
{
    struct claims claims = {.request = (const SF_PB(ClaimLifecycleTransitionsRequest) *)request,
                            .arena = sf_call_arena(call)};
    struct sf_diag *diag = sf_call_diag(call);
    searchfabric__v1__claim_lifecycle_transitions_response__init(&claims.response);
    /* in turn, so that a window whose move fails again and again keeps no other from its move */
    pthread_mutex_lock(&catalog->state_mu);
    claims.after = catalog->claim_after;
    pthread_mutex_unlock(&catalog->state_mu);
    enum sf_err err = sf_catalog_projectors_write(catalog, give_claims, &claims, diag);
    if (err != SF_OK)
        return err;
    pthread_mutex_lock(&catalog->state_mu);
    catalog->claim_after = claims.after;
    pthread_mutex_unlock(&catalog->state_mu);
    sf_catalog_windows_look(catalog);
    sf_call_respond(call, &claims.response.base);
    return SF_OK;
}

enum sf_err sf_catalog_claim_failed_check(const SF_PB(ReportLifecycleTransitionFailedRequest) *
                                              request,
                                          struct sf_diag *diag)
{
    enum sf_err err = sf_identity_check("claim_id", sf_view_str(request->claim_id), 1, 128, diag);
    return err == SF_OK ? sf_identity_check("reason", sf_view_str(request->reason), 0, 255, diag)
                        : err;
}

/* The claim ends: its window is free again. */
static enum sf_err end_claim(struct sf_catalog *catalog, struct sf_sql_conn *conn, void *arg,
                             struct sf_diag *diag)
{
    const char *claim_id = arg;
    struct sf_catalog_window window = {0};
    struct sf_sql_stmt *stmt;
    bool row = false;
    (void)catalog;
    enum sf_err err = sf_sql_prepare(conn,
                                     "SELECT namespace_id, collection_id, window_start_ms,"
                                     " window_end_ms FROM lifecycle_transition_claims"
                                     " WHERE claim_id = ?1",
                                     diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_text(stmt, 1, sf_view_str(claim_id));
    err = sf_sql_step(stmt, diag, &row);
    if (err == SF_OK && row) {
        window.namespace_id = sf_sql_col_u64(stmt, 0);
        window.collection_id = sf_sql_col_u64(stmt, 1);
        window.start_ms = sf_sql_col_i64(stmt, 2);
        window.end_ms = sf_sql_col_i64(stmt, 3);
    }
    sf_sql_finish(stmt);
    if (err == SF_OK && !row)
        return sf_diag_set(diag, SF_RESOURCE_NOT_FOUND, "no such claim: it ended or ran out");
    if (err == SF_OK)
        err = sf_sql_prepare(conn, "DELETE FROM lifecycle_transition_claims WHERE claim_id = ?1",
                             diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_text(stmt, 1, sf_view_str(claim_id));
    err = sf_sql_run(stmt, diag, NULL);
    return err == SF_OK ? sf_catalog_window_set(conn, &window, SF_CATALOG_WINDOW_LIVE, diag) : err;
}

enum sf_err sf_catalog_claim_failed_run(struct sf_catalog *catalog, struct sf_call *call,
                                        const ProtobufCMessage *request)
{
    const SF_PB(ReportLifecycleTransitionFailedRequest) *report =
        (const SF_PB(ReportLifecycleTransitionFailedRequest) *)request;
    struct sf_diag *diag = sf_call_diag(call);
    enum sf_err err = sf_catalog_projectors_write(catalog, end_claim, report->claim_id, diag);
    if (err != SF_OK)
        return err;
    SF_LOG(WARN, "catalog_transition_failed", SF_KV_STR("claim_id", report->claim_id),
           SF_KV_STR("reason", report->reason));
    sf_catalog_windows_look(catalog); /* its deadline may have come meanwhile */
    SF_PB(ReportLifecycleTransitionFailedResponse) response;
    searchfabric__v1__report_lifecycle_transition_failed_response__init(&response);
    sf_call_respond(call, &response.base);
    return SF_OK;
}

/* ---- reclamation -------------------------------------------------------------------------- */

enum sf_err sf_catalog_reclaim_request_check(const SF_PB(ListReclaimableWindowsRequest) * request,
                                             struct sf_diag *diag)
{
    if (request->max_windows > SF_CATALOG_CLAIMS_MAX)
        return sf_diag_bad_field(diag, "max_windows", "out_of_range", "at most %u windows",
                                 SF_CATALOG_CLAIMS_MAX);
    return SF_OK;
}

/* Collections that have a reclaimable row, and their policies. */
struct candidates {
    uint64_t after[2]; /* namespace and collection: where the last request stopped */
    struct sf_arena *arena;
    SF_PB(CollectionRef) refs[SF_CATALOG_RECLAIM_READS];
    const SF_PB(LifecyclePolicy) * policies[SF_CATALOG_RECLAIM_READS];
    size_t count;
};

static enum sf_err read_candidates(struct sf_catalog *catalog, struct sf_sql_conn *conn, void *arg,
                                   struct sf_diag *diag)
{
    struct candidates *c = arg;
    struct sf_sql_stmt *stmt;
    (void)catalog;
    c->count = 0;
    enum sf_err err =
        sf_sql_prepare(conn,
                       "SELECT DISTINCT namespace_id, collection_id"
                       " FROM collection_lifecycle_windows WHERE window_state = 'RECLAIMABLE'"
                       " AND (namespace_id > ?1 OR (namespace_id = ?1 AND collection_id > ?2))"
                       " ORDER BY namespace_id, collection_id LIMIT 64",
                       diag, &stmt);
    static_assert(SF_CATALOG_RECLAIM_READS == 64, "the query says the same");
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, c->after[0]);
    sf_sql_bind_u64(stmt, 2, c->after[1]);
    bool row = true;
    while (row && err == SF_OK) {
        err = sf_sql_step(stmt, diag, &row);
        if (err != SF_OK || !row)
            break;
        SF_PB(CollectionRef) *ref = &c->refs[c->count++];
        searchfabric__v1__collection_ref__init(ref);
        ref->namespace_id = sf_sql_col_u64(stmt, 0);
        ref->collection_id = sf_sql_col_u64(stmt, 1);
    }
    sf_sql_finish(stmt);
    for (size_t i = 0; i < c->count && err == SF_OK; i++)
        err = sf_catalog_window_policy(conn, c->refs[i].namespace_id, c->refs[i].collection_id,
                                       c->arena, diag, &c->policies[i]);
    return err;
}

/* Adds the windows of one committed manifest that may go. */
static enum sf_err add_reclaimable(struct sf_catalog *catalog, const SF_PB(CollectionRef) * ref,
                                   const SF_PB(LifecyclePolicy) * policy, size_t limit,
                                   struct sf_arena *arena, struct sf_diag *diag,
                                   SF_PB(ListReclaimableWindowsResponse) * out)
{
    struct sf_catalog_manifest manifest;
    enum sf_err err =
        sf_catalog_manifest_read(catalog, catalog->deps.sched, ref, true, arena, diag, &manifest);
    size_t count =
        err != SF_OK || manifest.summary == NULL ? 0 : manifest.summary->n_lifecycle_windows;
    int64_t now_ms = sf_clock_unix_ms(catalog->deps.clock);
    for (size_t i = 0; i < count && out->n_windows < limit; i++) {
        const SF_PB(ManifestLifecycleWindow) *window = manifest.summary->lifecycle_windows[i];
        if (sf_catalog_reclaim_check(window, policy, SF_CATALOG_RECLAIM_GRACE_MS, now_ms) !=
            SF_CATALOG_RECLAIM_NOW)
            continue;
        SF_PB(ReclaimableWindow) *given = sf_arena_alloc(arena, sizeof(*given));
        SF_PB(CollectionRef) *copy = sf_arena_alloc(arena, sizeof(*copy));
        if (given == NULL || copy == NULL)
            return too_large(diag);
        searchfabric__v1__reclaimable_window__init(given);
        *copy = *ref;
        given->collection = copy;
        given->window_start_ms = window->window_start_ms;
        given->window_end_ms = window->window_end_ms;
        given->retention_deadline_unix_ms =
            sf_catalog_retention_deadline(window->window_end_ms, policy).unix_ms;
        given->committed_manifest_version = manifest.object->manifest_version;
        given->object_keys = window->retired_object_keys;
        given->n_object_keys = window->n_retired_object_keys;
        out->windows[out->n_windows++] = given;
    }
    return err;
}

/* Where the next request goes on; requests of one process take turns over all collections. */
static void turn_read(struct sf_catalog *catalog, uint64_t after[2])
{
    pthread_mutex_lock(&catalog->state_mu);
    memcpy(after, catalog->reclaim_after, sizeof(catalog->reclaim_after));
    pthread_mutex_unlock(&catalog->state_mu);
}

static void turn_write(struct sf_catalog *catalog, uint64_t namespace_id, uint64_t collection_id)
{
    pthread_mutex_lock(&catalog->state_mu);
    catalog->reclaim_after[0] = namespace_id;
    catalog->reclaim_after[1] = collection_id;
    pthread_mutex_unlock(&catalog->state_mu);
}

enum sf_err sf_catalog_reclaim_run(struct sf_catalog *catalog, struct sf_call *call,
                                   const ProtobufCMessage *request)
{
    const SF_PB(ListReclaimableWindowsRequest) *list =
        (const SF_PB(ListReclaimableWindowsRequest) *)request;
    struct sf_arena *arena = sf_call_arena(call);
    struct sf_diag *diag = sf_call_diag(call);
    size_t limit = list->max_windows == 0 ? SF_CATALOG_CLAIMS_DEFAULT : list->max_windows;
    struct candidates *candidates = sf_calloc(1, sizeof(*candidates));
    SF_PB(ListReclaimableWindowsResponse) response;
    searchfabric__v1__list_reclaimable_windows_response__init(&response);
    response.windows = sf_arena_alloc(arena, (limit + 1) * sizeof(void *));
    candidates->arena = arena;
    turn_read(catalog, candidates->after);
    enum sf_err err = response.windows == NULL ? too_large(diag) : SF_OK;
    if (err == SF_OK)
        err = sf_catalog_projectors_read(catalog, read_candidates, candidates, diag);
    if (err == SF_OK && candidates->count == 0 &&
        (candidates->after[0] != 0 || candidates->after[1] != 0)) {
        memset(candidates->after, 0, sizeof(candidates->after)); /* from the start again */
        err = sf_catalog_projectors_read(catalog, read_candidates, candidates, diag);
    }
    size_t i = 0;
    for (; i < candidates->count && err == SF_OK && response.n_windows < limit; i++) {
        err = add_reclaimable(catalog, &candidates->refs[i], candidates->policies[i], limit, arena,
                              diag, &response);
        if (err == SF_ERR_CORRUPT) { /* the projector says so; others go on */
            sf_diag_init(diag);
            err = SF_OK;
        }
    }
    /* the last one may have more, but one alone that fills the answer must not keep the turn */
    size_t back = response.n_windows == limit && i > 1 ? 2 : 1;
    if (err == SF_OK && i > 0)
        turn_write(catalog, candidates->refs[i - back].namespace_id,
                   candidates->refs[i - back].collection_id);
    if (err == SF_OK && candidates->count == 0)
        turn_write(catalog, 0, 0);
    free(candidates);
    if (err == SF_OK)
        sf_call_respond(call, &response.base);
    return err;
}

/* ---- for operators ------------------------------------------------------------------------ */

#define SHOWN 10000 /* windows of one answer */

/* What `sfctl stats windows` prints. */
struct shown {
    const SF_PB(CollectionRef) * ref;
    struct sf_arena *arena;
    SF_PB(ShowLifecycleWindowsResponse) response;
};

static SF_PB(LifecycleWindow) *
    view_of(const struct sf_catalog_window *window, struct sf_arena *arena)
{
    SF_PB(LifecycleWindow) *view = sf_arena_alloc(arena, sizeof(*view));
    if (view == NULL)
        return NULL;
    searchfabric__v1__lifecycle_window__init(view);
    view->window_start_ms = window->start_ms;
    view->window_end_ms = window->end_ms;
    view->effective_tier = window->tier;
    view->published_manifest_version = window->published_version;
    view->window_state = (SF_PB(LifecycleWindowState))((int)window->state + 1);
    if (window->has_transition) {
        view->_next_transition_at_unix_ms_case =
            SEARCHFABRIC__V1__LIFECYCLE_WINDOW___NEXT_TRANSITION_AT_UNIX_MS_NEXT_TRANSITION_AT_UNIX_MS;
        view->next_transition_at_unix_ms = window->transition_at_ms;
    }
    if (window->has_deadline) {
        view->_retention_deadline_unix_ms_case =
            SEARCHFABRIC__V1__LIFECYCLE_WINDOW___RETENTION_DEADLINE_UNIX_MS_RETENTION_DEADLINE_UNIX_MS;
        view->retention_deadline_unix_ms = window->deadline_ms;
    }
    return view;
}

static enum sf_err show_rows(struct sf_catalog *catalog, struct sf_sql_conn *conn, void *arg,
                             struct sf_diag *diag)
{
    struct shown *shown = arg;
    struct windows rows;
    struct sf_sql_stmt *stmt;
    (void)catalog;
    enum sf_err err =
        sf_sql_prepare(conn,
                       "SELECT " SF_CATALOG_WINDOW_COLUMNS " FROM collection_lifecycle_windows"
                       " WHERE namespace_id = ?1 AND collection_id = ?2"
                       " ORDER BY window_start_ms, window_end_ms LIMIT ?3",
                       diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, shown->ref->namespace_id);
    sf_sql_bind_u64(stmt, 2, shown->ref->collection_id);
    sf_sql_bind_i64(stmt, 3, SHOWN);
    err = read_windows(stmt, SHOWN, shown->arena, diag, &rows);
    if (err != SF_OK)
        return err;
    shown->response.windows = sf_arena_alloc(shown->arena, (rows.count + 1) * sizeof(void *));
    for (size_t i = 0; i < rows.count && shown->response.windows != NULL; i++)
        shown->response.windows[shown->response.n_windows++] = view_of(&rows.list[i], shown->arena);
    return sf_arena_overflowed(shown->arena) ? too_large(diag) : SF_OK;
}

enum sf_err sf_catalog_windows_show_run(struct sf_catalog *catalog, struct sf_call *call,
                                        const ProtobufCMessage *request)
{
    struct shown shown = {.ref = ((const SF_PB(ShowLifecycleWindowsRequest) *)request)->collection,
                          .arena = sf_call_arena(call)};
    searchfabric__v1__show_lifecycle_windows_response__init(&shown.response);
    enum sf_err err = sf_catalog_projectors_read(catalog, show_rows, &shown, sf_call_diag(call));
    if (err == SF_OK)
        sf_call_respond(call, &shown.response.base);
    return err;
}
