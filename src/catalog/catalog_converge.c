/*
 * Model: what the serving side reports of a schema generation stands in the `convergence` block of
 * its object, outside the segment chain: overwritten by compare-and-swap and carrying the owner's
 * epoch. A new owner swaps its epoch in (adopts) before it acts on or answers from a block, so that
 * a late swap of the old owner fails; that also finishes what a crash left between block and
 * projection. Promotion to READY runs in one order: zero-row statistics snapshot, block, statistics
 * head, one SQL transaction (OP-41). What stands adopted is noted in the projection with the epoch
 * that adopted it, so that it is read once per collection and owner, whatever memory forgets; the
 * note goes when a change fails on its way from block to rows. The head always names a snapshot of
 * the serving lineage, the READY generation of the highest version. Whoever moves the head holds
 * the collection's gate.
 */
#include "catalog/catalog_gate.h"
#include "catalog/catalog_projector.h"
#include "catalog/catalog_rules.h"
#include "catalog/catalog_statistics.h"

#define STATE_READY SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_READY

/* ---- rows --------------------------------------------------------------------------------- */

/* The generation that was adopted under this owner's epoch, 0 = none. */
static enum sf_err read_adopted(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                                uint64_t namespace_id, uint64_t collection_id, struct sf_diag *diag,
                                uint64_t *out_version)
{
    struct sf_sql_stmt *stmt;
    bool row = false;
    *out_version = 0;
    enum sf_err err = sf_sql_prepare(conn,
                                     "SELECT schema_version, owner_epoch FROM catalog_adoptions"
                                     " WHERE namespace_id = ?1 AND collection_id = ?2",
                                     diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, namespace_id);
    sf_sql_bind_u64(stmt, 2, collection_id);
    err = sf_sql_step(stmt, diag, &row);
    if (err == SF_OK && row &&
        (sf_sql_col_u64(stmt, 1) == catalog->owner_epoch || SF_MUTANT(ccs_adopted_by_elder)))
        *out_version = sf_sql_col_u64(stmt, 0);
    sf_sql_finish(stmt);
    return err;
}

enum sf_err sf_catalog_lineage_read(struct sf_catalog *catalog, uint64_t namespace_id,
                                    uint64_t collection_id, struct sf_arena *arena,
                                    struct sf_diag *diag, struct sf_catalog_lineage *out)
{
    *out = (struct sf_catalog_lineage){0};
    struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, catalog->deps.sched, SF_SQL_READ);
    enum sf_err err = sf_sql_begin(conn, diag);
    if (err == SF_OK)
        err = sf_catalog_sql_look(catalog, conn, diag);
    if (err == SF_OK)
        err = sf_catalog_sql_collection(conn, namespace_id, collection_id, arena, diag,
                                        &out->collection);
    if (err == SF_OK && out->collection != NULL &&
        out->collection->_active_schema_version_case != 0) {
        err = sf_catalog_sql_generation(
            conn, namespace_id, collection_id, SF_CATALOG_GENERATION_VERSION,
            out->collection->active_schema_version, NULL, arena, diag, &out->active);
        if (err == SF_OK)
            err = sf_catalog_sql_generation(conn, namespace_id, collection_id,
                                            SF_CATALOG_GENERATION_READY, 0, NULL, arena, diag,
                                            &out->ready);
        if (err == SF_OK)
            err = read_adopted(catalog, conn, namespace_id, collection_id, diag, &out->adopted);
    }
    sf_sql_rollback(conn);
    sf_sql_release(conn);
    return err;
}

/* What one transaction shows of a collection. */
struct shown {
    const SF_PB(SchemaGenerationBody) * body;                  /* of the active generation */
    const SF_PB(SchemaConvergence) * convergence;              /* its block, NULL = unchanged */
    const SF_PB(OptimizerStatisticsSnapshotObject) * snapshot; /* served, NULL = unchanged */
    uint64_t adopted; /* as of sf_catalog_project_adopted */
};

static enum sf_err show_rows(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                             const struct shown *shown, struct sf_diag *diag)
{
    uint64_t namespace_id = shown->body->collection->namespace_id;
    uint64_t collection_id = shown->body->collection->collection_id;
    enum sf_err err = SF_OK;
    if (!SF_MUTANT(ccs_no_sql_fence))
        err = sf_catalog_sql_look(catalog, conn, diag);
    if (err == SF_OK && shown->convergence != NULL)
        err = sf_catalog_project_convergence(conn, namespace_id, collection_id,
                                             shown->body->schema_version, shown->convergence, diag);
    if (err == SF_OK && shown->snapshot != NULL)
        err = sf_catalog_project_statistics(conn, shown->snapshot, diag);
    if (err == SF_OK && shown->convergence != NULL)
        err = sf_catalog_projectors_note(catalog, conn, namespace_id, collection_id,
                                         SF_CATALOG_NOTE_CONTENT, diag);
    if (err == SF_OK)
        err = sf_catalog_project_adopted(catalog, conn, namespace_id, collection_id, shown->adopted,
                                         diag);
    return err;
}

/* One transaction; repeated until it stands or the office ends. */
static enum sf_err show(struct sf_catalog *catalog, const struct shown *shown, struct sf_diag *diag)
{
    enum sf_err err = SF_ERR_UNAVAILABLE;
    for (unsigned tries = 1;; tries++) {
        struct sf_sql_conn *conn =
            sf_sql_acquire(catalog->deps.sql, catalog->deps.sched, SF_SQL_WRITE);
        err = sf_sql_begin(conn, diag);
        if (err == SF_OK)
            err = show_rows(catalog, conn, shown, diag);
        if (err == SF_OK)
            err = sf_sql_commit(conn, diag);
        else
            sf_sql_rollback(conn);
        sf_sql_release(conn);
        if (err == SF_OK || err == SF_ERR_DEPOSED || sf_catalog_ending(catalog))
            break;
        sf_catalog_pause(catalog, catalog->deps.sched, tries);
    }
    sf_catalog_state_forget(catalog, shown->body->collection->namespace_id,
                            shown->body->collection->collection_id);
    if (shown->convergence != NULL)
        sf_catalog_projectors_changed(catalog);
    return err;
}

/* ---- the block ---------------------------------------------------------------------------- */

static SF_PB(SchemaSyncState__StateCase) branch_of(const SF_PB(SchemaConvergence) * convergence)
{
    if (convergence == NULL || convergence->state == NULL || convergence->state->state_case == 0)
        return SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_APPLYING;
    return convergence->state->state_case;
}

static const char *reason_of(const SF_PB(SchemaConvergence) * convergence)
{
    switch (branch_of(convergence)) {
    case SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_DRIFTED:
        return convergence->state->drifted->drift_reason;
    case SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_ERROR:
        return convergence->state->error->error_reason;
    default:
        return "";
    }
}

/* Reads the object of `row`'s generation. */
static enum sf_err read_generation(struct sf_catalog *catalog,
                                   const SF_PB(SchemaGenerationBody) * body, struct sf_buf *key,
                                   struct sf_arena *arena, struct sf_diag *diag,
                                   SF_PB(SchemaGenerationObject) * *out_object,
                                   struct sf_etag *out_etag)
{
    ProtobufCMessage *message = NULL;
    sf_buf_clear(key);
    sf_catalog_key_generation(key, body->collection->namespace_id, body->collection->collection_id,
                              body->schema_version, body->schema_generation_token);
    enum sf_err err = sf_catalog_read(catalog, catalog->deps.sched, sf_buf_view(key),
                                      &searchfabric__v1__schema_generation_object__descriptor,
                                      false, arena, diag, &message, NULL, out_etag);
    *out_object = (SF_PB(SchemaGenerationObject) *)message;
    if (err == SF_ERR_NOT_FOUND ||
        (err == SF_OK && ((*out_object)->body == NULL || (*out_object)->body->definition == NULL ||
                          (*out_object)->body->collection == NULL)))
        return sf_diag_set(diag, SF_ERR_CORRUPT, "the active schema generation's object is broken");
    return err;
}

/* Changes the block by compare-and-swap; `change` edits it and may end the work by false (nothing
 * to write). *out_object is what stands afterwards. */
struct change {
    SF_PB(SchemaConvergenceSignal) signal; /* UNSPECIFIED: adoption only */
    SF_PB(SchemaSyncState) * state;        /* new state, NULL = unchanged */
};

static enum sf_err swap_block(struct sf_catalog *catalog, const SF_PB(SchemaGenerationBody) * body,
                              const struct change *change, struct sf_arena *arena,
                              struct sf_diag *diag, SF_PB(SchemaGenerationObject) * *out_object)
{
    struct sf_catalog_put put = {.cond = SF_PUT_MATCH};
    enum sf_err err = SF_OK;
    for (bool stands = false; !stands && err == SF_OK;) {
        SF_PB(SchemaGenerationObject) *object = NULL;
        err = read_generation(catalog, body, &put.key, arena, diag, &object, &put.match);
        if (err != SF_OK)
            break;
        *out_object = object;
        uint64_t epoch = object->convergence == NULL ? 0 : object->convergence->owner_epoch;
        if (epoch > catalog->owner_epoch && !SF_MUTANT(ccs_no_convergence_elder)) {
            err = sf_catalog_depose(catalog, "convergence block", epoch);
            break;
        }
        bool adopt = epoch < catalog->owner_epoch && !catalog->deps.store->exclusive &&
                     !SF_MUTANT(ccs_no_convergence_adopt);
        if (change->state == NULL && !adopt)
            break;
        char *attempt_id = sf_arena_alloc(arena, SF_ATTEMPT_ID_BYTES);
        SF_PB(SchemaConvergence) *block = sf_arena_alloc(arena, sizeof(*block));
        if (attempt_id == NULL || block == NULL) {
            err = sf_diag_set(diag, SF_ERR_LIMIT, "the schema does not fit its memory");
            break;
        }
        if (object->convergence != NULL)
            *block = *object->convergence;
        else
            searchfabric__v1__schema_convergence__init(block);
        block->owner_epoch = catalog->owner_epoch;
        if (change->state != NULL) {
            block->state = change->state;
            block->convergence_version++;
            block->last_signal = change->signal;
            block->updated_at_unix_ms = sf_clock_unix_ms(catalog->deps.clock);
        }
        if (SF_MUTANT(ccs_convergence_overwrites))
            put.cond = SF_PUT_ANY;
        sf_attempts_next(catalog->deps.attempts, attempt_id);
        object->attempt_id = attempt_id;
        object->owner_epoch = catalog->owner_epoch;
        object->convergence = block;
        sf_catalog_put_encode(&put, &object->base, false, NULL);
        err = sf_catalog_put_run(catalog, catalog->deps.sched, &put, 0);
        if (err == SF_OK && put.state == SF_CATALOG_PUT_UNSENT)
            err = SF_ERR_UNAVAILABLE;
        stands = put.state == SF_CATALOG_PUT_STANDS;
    }
    sf_catalog_put_fini(&put);
    if (err != SF_OK && diag->err == SF_OK)
        sf_diag_set(diag, err, "the convergence block was not changed");
    return err;
}

/* Snapshot of the lineage that serves once `body` is in state `branch`; the head follows it. NULL
 * when none serves. `ready` is the READY generation of the highest version before. */
static enum sf_err serving_snapshot(struct sf_catalog *catalog,
                                    const SF_PB(SchemaGenerationBody) * body,
                                    SF_PB(SchemaSyncState__StateCase) branch,
                                    const SF_PB(SchemaGenerationRow) * ready,
                                    struct sf_arena *arena, struct sf_diag *diag,
                                    SF_PB(OptimizerStatisticsSnapshotObject) * *out_snapshot)
{
    const SF_PB(SchemaGenerationBody) *serving = NULL;
    if (branch == STATE_READY)
        serving = body;
    else if (ready != NULL && ready->body->schema_version != body->schema_version)
        serving = ready->body;
    *out_snapshot = NULL;
    if (serving == NULL)
        return SF_OK;
    return sf_catalog_statistics_serving(catalog, catalog->deps.sched, serving, arena, diag,
                                         out_snapshot);
}

/* The READY generation that serves when the active one does not. */
static enum sf_err read_fallback(struct sf_catalog *catalog,
                                 const SF_PB(SchemaGenerationBody) * body, struct sf_arena *arena,
                                 struct sf_diag *diag, SF_PB(SchemaGenerationRow) * *out_row)
{
    struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, catalog->deps.sched, SF_SQL_READ);
    enum sf_err err = sf_sql_begin(conn, diag);
    if (err == SF_OK)
        err = sf_catalog_sql_ready_below(conn, body->collection->namespace_id,
                                         body->collection->collection_id, body->schema_version,
                                         arena, diag, out_row);
    sf_sql_rollback(conn);
    sf_sql_release(conn);
    return err;
}

/* Brings head and projection to what the block says. `adopted`: the head stood adopted before. */
static enum sf_err follow(struct sf_catalog *catalog, const SF_PB(SchemaGenerationObject) * object,
                          bool adopted, struct sf_arena *arena, struct sf_diag *diag)
{
    SF_PB(OptimizerStatisticsSnapshotObject) *snapshot = NULL;
    SF_PB(SchemaGenerationRow) *fallback = NULL;
    enum sf_err err = read_fallback(catalog, object->body, arena, diag, &fallback);
    if (err == SF_OK)
        err = serving_snapshot(catalog, object->body, branch_of(object->convergence), fallback,
                               arena, diag, &snapshot);
    if (err == SF_OK && snapshot != NULL)
        err = sf_catalog_statistics_point(catalog, catalog->deps.sched, snapshot, arena, diag);
    struct shown shown = {.body = object->body,
                          .convergence = object->convergence,
                          .snapshot = snapshot,
                          .adopted = adopted ? object->body->schema_version : 0};
    return err == SF_OK ? show(catalog, &shown, diag) : err;
}

/* Notes what was adopted. A note that cannot be written costs the next look a read: it is no reason
 * to refuse this one. */
static enum sf_err note_adopted(struct sf_catalog *catalog,
                                const SF_PB(SchemaGenerationBody) * body)
{
    struct shown shown = {.body = body, .adopted = body->schema_version};
    struct sf_diag diag;
    sf_diag_init(&diag);
    struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, catalog->deps.sched, SF_SQL_WRITE);
    enum sf_err err = sf_sql_begin(conn, &diag);
    if (err == SF_OK)
        err = show_rows(catalog, conn, &shown, &diag);
    if (err == SF_OK)
        err = sf_sql_commit(conn, &diag);
    else
        sf_sql_rollback(conn);
    sf_sql_release(conn);
    return err == SF_ERR_DEPOSED ? err : SF_OK;
}

enum sf_err sf_catalog_adopt(struct sf_catalog *catalog, uint64_t namespace_id,
                             uint64_t collection_id, struct sf_arena *arena, struct sf_diag *diag)
{
    struct sf_catalog_lineage lineage;
    enum sf_err err =
        sf_catalog_lineage_read(catalog, namespace_id, collection_id, arena, diag, &lineage);
    if (err != SF_OK || lineage.active == NULL)
        return err;
    const SF_PB(SchemaGenerationBody) *body = lineage.active->body;
    if (lineage.adopted == body->schema_version)
        return SF_OK;
    struct change change = {.state = NULL};
    SF_PB(SchemaGenerationObject) *object = NULL;
    err = swap_block(catalog, body, &change, arena, diag, &object);
    if (err == SF_OK && object->convergence != NULL &&
        (branch_of(object->convergence) != branch_of(lineage.active->convergence) ||
         strcmp(reason_of(object->convergence), reason_of(lineage.active->convergence)) != 0))
        err = follow(catalog, object, false, arena, diag);
    if (err == SF_OK)
        err = sf_catalog_statistics_adopt(catalog, body->collection, arena, diag);
    if (err == SF_OK)
        err = note_adopted(catalog, body);
    if (err == SF_ERR_DEPOSED && diag->err == SF_OK)
        sf_diag_set(diag, err, "a newer owner has the projection");
    return err;
}

static enum sf_err check_signal(const SF_PB(ReportSchemaConvergenceSignalRequest) * request,
                                const struct sf_catalog_lineage *lineage, struct sf_diag *diag)
{
    if (lineage->collection == NULL ||
        lineage->collection->lifecycle_state != SF_PBE(COLLECTION_ADMISSION_LIFECYCLE, ACTIVE))
        return sf_diag_set(diag, SF_RESOURCE_NOT_FOUND, "no such active collection");
    if (lineage->active == NULL)
        return sf_catalog_bootstrap_refusal(diag);
    const SF_PB(SchemaGenerationBody) *active = lineage->active->body;
    if (request->schema_version != active->schema_version ||
        strcmp(request->schema_generation_token, active->schema_generation_token) != 0)
        return sf_diag_set(diag, SF_VERSION_CONFLICT,
                           "the signal is not about the active schema generation");
    return SF_OK;
}

enum sf_err sf_catalog_adopt_alone(struct sf_catalog *catalog, uint64_t namespace_id,
                                   uint64_t collection_id, struct sf_arena *arena,
                                   struct sf_diag *diag)
{
    const struct sf_catalog_gates gates = {.namespace_id = namespace_id,
                                           .collection_id = collection_id};
    sf_catalog_gates_acquire(catalog, &gates);
    enum sf_err err = sf_catalog_adopt(catalog, namespace_id, collection_id, arena, diag);
    sf_catalog_gates_release(catalog, &gates);
    return err;
}

static enum sf_err run_signal(struct sf_catalog *catalog,
                              const SF_PB(ReportSchemaConvergenceSignalRequest) * request,
                              struct sf_arena *arena, struct sf_diag *diag,
                              SF_PB(SchemaSyncState) * *out_state, bool *out_changed)
{
    uint64_t namespace_id = request->collection->namespace_id;
    uint64_t collection_id = request->collection->collection_id;
    struct sf_catalog_lineage lineage;
    *out_changed = false;
    enum sf_err err = sf_catalog_adopt(catalog, namespace_id, collection_id, arena, diag);
    if (err == SF_OK)
        err = sf_catalog_lineage_read(catalog, namespace_id, collection_id, arena, diag, &lineage);
    if (err == SF_OK)
        err = check_signal(request, &lineage, diag);
    if (err != SF_OK)
        return err;
    const SF_PB(SchemaConvergence) *now = lineage.active->convergence;
    SF_PB(SchemaSyncState__StateCase) to;
    enum sf_catalog_move move = sf_catalog_converge(branch_of(now), request->signal, &to);
    *out_state = now->state;
    if (move == SF_CATALOG_MOVE_REFUSED)
        return sf_diag_set(diag, SF_VERSION_CONFLICT,
                           "the signal is not a move of the generation's present state");
    if (move == SF_CATALOG_MOVE_REPEAT)
        return SF_OK;
    SF_PB(OptimizerStatisticsSnapshotObject) *base = NULL;
    if (to == STATE_READY)
        err = sf_catalog_statistics_base(catalog, catalog->deps.sched, lineage.active->body, arena,
                                         diag, &base);
    struct change change = {.signal = request->signal,
                            .state = sf_catalog_sync_state(to, request->reason, arena)};
    if (err == SF_OK && change.state == NULL)
        err = sf_diag_set(diag, SF_ERR_LIMIT, "the signal does not fit its memory");
    SF_PB(SchemaGenerationObject) *object = NULL;
    if (err == SF_OK)
        err = swap_block(catalog, lineage.active->body, &change, arena, diag, &object);
    if (err == SF_OK)
        err = follow(catalog, object, true, arena, diag);
    if (err != SF_OK) { /* the block may be ahead of the rows: the next look reads it again */
        struct shown anew = {.body = lineage.active->body};
        struct sf_diag ignored; /* the caller hears why the change failed */
        sf_diag_init(&ignored);
        (void)show(catalog, &anew, &ignored);
    }
    *out_state = change.state;
    *out_changed = err == SF_OK;
    return err;
}

enum sf_err sf_catalog_signal(struct sf_catalog *catalog,
                              const SF_PB(ReportSchemaConvergenceSignalRequest) * request,
                              struct sf_arena *arena, struct sf_diag *diag,
                              SF_PB(SchemaSyncState) * *out_state, bool *out_changed)
{
    const struct sf_catalog_gates gates = {.namespace_id = request->collection->namespace_id,
                                           .collection_id = request->collection->collection_id};
    sf_catalog_gates_acquire(catalog, &gates);
    enum sf_err err = run_signal(catalog, request, arena, diag, out_state, out_changed);
    sf_catalog_gates_release(catalog, &gates);
    return err;
}
