/*
 * Model: a head behind its committed pointer heals by the very intent that the publisher would have
 * sent, so that both de-duplicate. A look (under the collection's gate) reads row, pointer and,
 * where it matters, the manifest that the pointer names, and moves the status by the table of
 * catalog_head_rules.c; before an attempt the head object is swapped to REPAIRING under this
 * owner's epoch, still with the old version. The advance itself makes the status IDLE again.
 *
 * Looks come from hints: a refused intent, a pointer that was not checked since a rebuild, an
 * operator. Rows that are behind are found by their status. A catalog without hints and such rows
 * asks the store for nothing. What does not fit the lineage is never repaired by guessing: ERROR
 * stops the collection's admission until an operator asks for repair.
 */
#include "catalog/catalog_head.h"

#include <stdio.h>
#include <stdlib.h>

#include "catalog/catalog_gate.h"
#include "catalog/catalog_job.h"
#include "catalog/catalog_rules.h"

#define STATUS(name) SF_PBE(MANIFEST_HEAD_RECONCILER_STATUS, name)

#define LOOK_AGAIN 3 /* looks at a pointer that does not fit */

#define REPAIR_LANE UINT64_C(0x7265706169722d31) /* of RepairManifestHead, apart from commands */

struct place {
    uint64_t namespace_id;  /* of the collection */
    uint64_t collection_id; /* in it */
};

struct sf_catalog_heads {
    pthread_mutex_t mu;     /* guards hints */
    struct sf_map *hints;   /* place -> itself; under mu */
    struct place behind[2]; /* where the next search for rows goes on, by status; jobs' lane */
    struct place audited;   /* where the next audit goes on; jobs' lane */
};

static char hinted[1]; /* value of every hint */

struct sf_catalog_heads *sf_catalog_heads_new(void)
{
    struct sf_catalog_heads *heads = sf_calloc(1, sizeof(*heads));
    pthread_mutex_init(&heads->mu, NULL);
    heads->hints = sf_map_new();
    return heads;
}

void sf_catalog_heads_destroy(struct sf_catalog_heads *heads)
{
    if (heads == NULL)
        return;
    sf_map_destroy(heads->hints, NULL);
    pthread_mutex_destroy(&heads->mu);
    free(heads);
}

void sf_catalog_head_hint(struct sf_catalog *catalog, uint64_t namespace_id, uint64_t collection_id)
{
    struct sf_catalog_heads *heads = catalog->heads;
    struct place place = {namespace_id, collection_id};
    struct sf_view key = sf_view_bytes(&place, sizeof(place));
    pthread_mutex_lock(&heads->mu);
    if (sf_map_count(heads->hints) < SF_CATALOG_HEAD_HINTS)
        (void)sf_map_put(heads->hints, key, hinted);
    pthread_mutex_unlock(&heads->mu);
}

void sf_catalog_head_advanced(struct sf_catalog *catalog,
                              const SF_PB(CommandOutcomeObject) * outcome)
{
    struct place place = {outcome->scope->namespace_id, outcome->scope->collection_id};
    pthread_mutex_lock(&catalog->heads->mu);
    (void)sf_map_del(catalog->heads->hints, sf_view_bytes(&place, sizeof(place)));
    pthread_mutex_unlock(&catalog->heads->mu);
}

enum sf_err sf_catalog_head_gated(struct sf_diag *diag)
{
    sf_diag_set(diag, SF_CATALOG_UNAVAILABLE,
                "the committed pointer of the collection does not fit its manifests");
    sf_diag_detail(diag, "catalog_unavailable_reason", "recovery");
    sf_diag_detail(diag, "manifest_head_reconciler_status", "ERROR");
    return SF_CATALOG_UNAVAILABLE;
}

/* ---- a look ------------------------------------------------------------------------------- */

/* What a look saw and did; messages in its arena. */
struct look {
    struct sf_catalog *catalog;
    SF_PB(CollectionRef) ref;
    struct sf_arena *arena;
    struct sf_diag *diag;
    SF_PB(CollectionRow) * row; /* NULL = no active collection */
    SF_PB(ManifestCommittedHeadObject) * pointer;
    enum sf_catalog_head_state state;
    SF_PB(ManifestHeadReconcilerStatus) status; /* after the moves */
    uint64_t epoch;                             /* last_update_epoch after the moves */
    const char *reason;                         /* BROKEN */
    bool dry;                                   /* moves are only computed */
};

static void look_init(struct look *look, struct sf_catalog *catalog, uint64_t namespace_id,
                      uint64_t collection_id, struct sf_arena *arena, struct sf_diag *diag)
{
    *look = (struct look){.catalog = catalog, .arena = arena, .diag = diag};
    searchfabric__v1__collection_ref__init(&look->ref);
    look->ref.namespace_id = namespace_id;
    look->ref.collection_id = collection_id;
}

static enum sf_err look_row(struct look *look)
{
    struct sf_catalog *catalog = look->catalog;
    struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, catalog->deps.sched, SF_SQL_READ);
    enum sf_err err = sf_sql_begin(conn, look->diag);
    if (err == SF_OK)
        err = sf_catalog_sql_look(catalog, conn, look->diag);
    if (err == SF_OK)
        err = sf_catalog_sql_collection(conn, look->ref.namespace_id, look->ref.collection_id,
                                        look->arena, look->diag, &look->row);
    sf_sql_rollback(conn);
    sf_sql_release(conn);
    if (err != SF_OK || look->row == NULL)
        return err;
    if (look->row->lifecycle_state != SF_PBE(COLLECTION_ADMISSION_LIFECYCLE, ACTIVE))
        look->row = NULL;
    else {
        look->status = look->row->manifest_head_reconciler_status;
        look->epoch = look->row->manifest_head_last_update_epoch;
    }
    return SF_OK;
}

/* Reads the pointer, and its manifest unless an IDLE head is where the pointer is. */
static enum sf_err look_once(struct look *look)
{
    struct sf_catalog_head_manifest manifest = {0};
    enum sf_err err =
        sf_catalog_head_pointer(look->catalog, &look->ref, look->arena, look->diag, &look->pointer);
    bool broken = err == SF_ERR_CORRUPT;
    if (broken) {
        sf_diag_init(look->diag);
        err = SF_OK;
    }
    if (err == SF_OK && look->pointer != NULL &&
        (look->status != STATUS(IDLE) ||
         look->pointer->committed_manifest_version != look->row->manifest_head_version))
        err = sf_catalog_head_manifest_read(look->catalog, look->pointer, look->arena, look->diag,
                                            &manifest);
    if (err == SF_OK)
        look->state =
            sf_catalog_head_judge(look->row, look->pointer, broken, &manifest, &look->reason);
    return err;
}

/* As look_once; a fault counts only when the pointer did not move meanwhile. */
static enum sf_err look_objects(struct look *look)
{
    enum sf_err err = look_once(look);
    for (int i = 0; i < LOOK_AGAIN && err == SF_OK && look->state == SF_CATALOG_HEAD_BROKEN; i++) {
        uint64_t seen = look->pointer == NULL ? 0 : look->pointer->committed_manifest_version;
        err = look_once(look);
        if ((look->pointer == NULL ? 0 : look->pointer->committed_manifest_version) == seen)
            break;
    }
    return err;
}

/* Makes the move of `event`, if there is one, durable in the row; in the head object too when it
 * counts. The old version stays in both. */
static enum sf_err look_move(struct look *look, enum sf_catalog_head_event event)
{
    const struct sf_catalog_head_move *move = sf_catalog_head_move(look->status, event);
    if (move == NULL)
        return SF_OK;
    uint64_t epoch = look->epoch + (move->counts ? 1 : 0);
    struct sf_catalog_head_content content = {look->row->manifest_head_version,
                                              look->row->expected_previous_head, epoch, move->to};
    enum sf_err err = SF_OK;
    bool fits = look->state != SF_CATALOG_HEAD_BROKEN; /* else the row keeps its pair */
    if (!look->dry)
        err = sf_catalog_head_row(look->catalog, &look->ref, move->to, epoch,
                                  fits ? look->pointer : NULL, look->diag);
    if (err != SF_OK)
        return err;
    SF_LOG(DEBUG, "manifest_head_moved", SF_KV_U64("namespace_id", look->ref.namespace_id),
           SF_KV_U64("collection_id", look->ref.collection_id),
           SF_KV_STR("from", sf_catalog_head_status_text(move->from)),
           SF_KV_STR("to", sf_catalog_head_status_text(move->to)),
           SF_KV_U64("last_update_epoch", epoch));
    look->status = move->to;
    look->epoch = epoch;
    if (move->counts && !look->dry)
        err = sf_catalog_head_swap(look->catalog, &look->ref, &content, look->diag);
    return err;
}

static enum sf_catalog_head_event event_of(enum sf_catalog_head_state state)
{
    switch (state) {
    case SF_CATALOG_HEAD_GAP:
        return SF_CATALOG_HEAD_ON_GAP;
    case SF_CATALOG_HEAD_BROKEN:
        return SF_CATALOG_HEAD_ON_BROKEN;
    default:
        return SF_CATALOG_HEAD_ON_CONVERGED;
    }
}

/* Looks and moves; with `attempt` a gap goes on to REPAIRING. The caller holds the gate. */
static enum sf_err look_gated(struct look *look, bool attempt, bool operator)
{
    enum sf_err err = look_row(look);
    if (err != SF_OK || look->row == NULL || (look->status == STATUS(ERROR) && !operator))
        return err;
    if (operator)
        err = look_move(look, SF_CATALOG_HEAD_ON_OPERATOR);
    if (err == SF_OK)
        err = look_objects(look);
    if (err == SF_OK)
        err = look_move(look, event_of(look->state));
    if (err == SF_OK && look->state == SF_CATALOG_HEAD_BROKEN)
        SF_LOG(ERROR, "manifest_head_error", SF_KV_U64("namespace_id", look->ref.namespace_id),
               SF_KV_U64("collection_id", look->ref.collection_id),
               SF_KV_U64("manifest_head_version", look->row->manifest_head_version),
               SF_KV_STR("reason", look->reason));
    if (err == SF_OK && look->state == SF_CATALOG_HEAD_GAP && attempt)
        err = look_move(look, SF_CATALOG_HEAD_ON_ATTEMPT);
    return err;
}

static enum sf_err look_run(struct look *look, bool attempt, bool operator)
{
    struct sf_catalog_gates gates = {.namespace_id = look->ref.namespace_id,
                                     .collection_id = look->ref.collection_id};
    sf_catalog_gates_acquire(look->catalog, &gates);
    enum sf_err err = look_gated(look, attempt, operator);
    sf_catalog_gates_release(look->catalog, &gates);
    return err;
}

/* ---- repair ------------------------------------------------------------------------------- */

/* The advance that the publisher would have asked for. */
static enum sf_err advance(struct look *look)
{
    SF_PB(SubmitHeadAdvanceIntentRequest) intent;
    searchfabric__v1__submit_head_advance_intent_request__init(&intent);
    intent.collection = &look->ref;
    intent.expected_head_version = (int64_t)look->row->manifest_head_version;
    intent.new_head_version = look->pointer->committed_manifest_version;
    intent.manifest_checksum_or_etag = look->pointer->manifest_checksum_or_etag;
    return sf_catalog_intend(look->catalog, &sf_catalog_head_advance, &intent.base, look->arena,
                             look->diag, NULL);
}

/* Looks and repairs; on a task of another lane than the collection's. SF_OK: what look->status
 * says. An attempt that failed leaves REPAIRING behind: the next one goes on from there. */
static enum sf_err repair(struct look *look, bool operator)
{
    enum sf_err err = look_run(look, true, operator);
    if (err != SF_OK || look->row == NULL || look->state != SF_CATALOG_HEAD_GAP || look->dry)
        return err;
    err = advance(look);
    if (err != SF_OK) {
        SF_LOG(
            WARN, "manifest_head_attempt_failed", SF_KV_U64("namespace_id", look->ref.namespace_id),
            SF_KV_U64("collection_id", look->ref.collection_id),
            SF_KV_U64("last_update_epoch", look->epoch), SF_KV_STR("error", look->diag->message));
        return err;
    }
    SF_LOG(INFO, "manifest_head_repaired", SF_KV_U64("namespace_id", look->ref.namespace_id),
           SF_KV_U64("collection_id", look->ref.collection_id),
           SF_KV_U64("from", look->row->manifest_head_version),
           SF_KV_U64("to", look->pointer->committed_manifest_version));
    look->state = SF_CATALOG_HEAD_EQUAL;
    return look_row(look);
}

enum sf_err sf_catalog_head_admit(struct sf_catalog *catalog, uint64_t namespace_id,
                                  uint64_t collection_id, struct sf_arena *arena,
                                  struct sf_diag *diag)
{
    struct look look;
    look_init(&look, catalog, namespace_id, collection_id, arena, diag);
    enum sf_err err = look_row(&look);
    if (err != SF_OK || look.row == NULL || look.status == STATUS(IDLE))
        return err;
    if (look.status != STATUS(ERROR))
        err = look_run(&look, false, false);
    if (err == SF_OK && look.row != NULL && look.status == STATUS(ERROR))
        return sf_catalog_head_gated(diag);
    return err;
}

enum sf_err sf_catalog_head_examine(struct sf_catalog *catalog, const SF_PB(CollectionRef) * ref,
                                    struct sf_arena *arena, struct sf_diag *diag,
                                    struct sf_catalog_head_seen *out_seen)
{
    struct look look;
    look_init(&look, catalog, ref->namespace_id, ref->collection_id, arena, diag);
    enum sf_err err = look_row(&look);
    if (err == SF_OK && look.row != NULL)
        err = look_objects(&look);
    *out_seen = (struct sf_catalog_head_seen){
        .active = look.row != NULL,
        .state = look.state,
        .status = look.status,
        .reason = look.reason,
        .pointer_version = look.pointer == NULL ? 0 : look.pointer->committed_manifest_version,
        .row = look.row};
    return err;
}

enum sf_err sf_catalog_head_mend(struct sf_catalog *catalog, const SF_PB(CollectionRef) * ref,
                                 struct sf_arena *arena, struct sf_diag *diag, bool *out_equal)
{
    struct look look;
    look_init(&look, catalog, ref->namespace_id, ref->collection_id, arena, diag);
    enum sf_err err = repair(&look, false);
    *out_equal = err == SF_OK && look.row != NULL && look.state == SF_CATALOG_HEAD_EQUAL;
    return err;
}

/* ---- jobs --------------------------------------------------------------------------------- */

/* Up to `limit` active collections after `from`, of one status but IDLE or (NULL) of any. The
 * second condition on the status is that of the index. */
static enum sf_err next_places(struct sf_catalog *catalog, const char *status, struct place from,
                               struct place *out_places, size_t limit, size_t *out_count,
                               struct sf_diag *diag)
{
    struct sf_sql_stmt *stmt = NULL;
    bool row = true;
    struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, catalog->deps.sched, SF_SQL_READ);
    *out_count = 0;
    enum sf_err err = sf_sql_prepare(
        conn,
        status == NULL
            ? "SELECT namespace_id, collection_id FROM collections"
              " WHERE lifecycle_state = 'ACTIVE' AND (namespace_id > ?1 OR (namespace_id = ?1"
              " AND collection_id > ?2)) ORDER BY namespace_id, collection_id LIMIT ?3"
            : "SELECT namespace_id, collection_id FROM collections"
              " WHERE manifest_head_reconciler_status = ?4"
              " AND manifest_head_reconciler_status <> 'IDLE' AND (namespace_id > ?1"
              " OR (namespace_id = ?1 AND collection_id > ?2))"
              " ORDER BY namespace_id, collection_id LIMIT ?3",
        diag, &stmt);
    if (err == SF_OK) {
        sf_sql_bind_u64(stmt, 1, from.namespace_id);
        sf_sql_bind_u64(stmt, 2, from.collection_id);
        sf_sql_bind_i64(stmt, 3, (int64_t)limit);
        if (status != NULL)
            sf_sql_bind_text(stmt, 4, sf_view_str(status));
    }
    while (err == SF_OK && row && *out_count < limit) {
        err = sf_sql_step(stmt, diag, &row);
        if (err == SF_OK && row)
            out_places[(*out_count)++] =
                (struct place){sf_sql_col_u64(stmt, 0), sf_sql_col_u64(stmt, 1)};
    }
    sf_sql_finish(stmt);
    sf_sql_release(conn);
    return err;
}

/* One look, with repair or without, that keeps its failures to itself: the next cycle tries again.
 * Returns what it would have failed with. */
static enum sf_err visit(struct sf_catalog *catalog, struct place place, bool with_repair)
{
    struct look look;
    struct sf_diag diag;
    struct sf_arena *arena = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    sf_diag_init(&diag);
    look_init(&look, catalog, place.namespace_id, place.collection_id, arena, &diag);
    enum sf_err err = with_repair ? repair(&look, false) : look_run(&look, false, false);
    sf_arena_destroy(arena);
    return err;
}

/* Repairs rows of one status that are known to be behind, in turn; *io_from is where they go on. */
static enum sf_err repair_behind(struct sf_catalog *catalog, const char *status,
                                 struct place *io_from, struct sf_diag *diag, uint64_t *io_done)
{
    struct place places[SF_CATALOG_HEAD_CYCLE];
    size_t count = 0;
    enum sf_err err =
        next_places(catalog, status, *io_from, places, SF_CATALOG_HEAD_CYCLE, &count, diag);
    for (size_t i = 0; i < count && !sf_catalog_ending(catalog); i++) {
        (void)visit(catalog, places[i], true);
        (*io_done)++;
    }
    if (err == SF_OK)
        *io_from = count == SF_CATALOG_HEAD_CYCLE ? places[count - 1] : (struct place){0};
    return err;
}

static size_t take_hints(struct sf_catalog_heads *heads, struct place *out_places, size_t limit)
{
    struct sf_map_iter iter = {0};
    size_t count = 0;
    pthread_mutex_lock(&heads->mu);
    while (count < limit && sf_map_next(heads->hints, &iter)) {
        memcpy(&out_places[count], iter.key.ptr, sizeof(*out_places));
        (void)sf_map_del(heads->hints, sf_view_bytes(&out_places[count], sizeof(*out_places)));
        count++;
    }
    pthread_mutex_unlock(&heads->mu);
    return count;
}

enum sf_err sf_catalog_heads_run(struct sf_catalog *catalog, struct sf_sched *sched,
                                 struct sf_diag *diag, uint64_t *out_done)
{
    struct place places[SF_CATALOG_HEAD_CYCLE];
    struct place *behind = catalog->heads->behind;
    (void)sched;
    enum sf_err err = repair_behind(catalog, "REPAIRING", &behind[0], diag, out_done);
    if (err == SF_OK)
        err = repair_behind(catalog, "REPAIR_PENDING", &behind[1], diag, out_done);
    size_t count = err == SF_OK ? take_hints(catalog->heads, places, SF_CATALOG_HEAD_CYCLE) : 0;
    for (size_t i = 0; i < count; i++) {
        if (visit(catalog, places[i], false) != SF_OK) /* not seen: the hint stays */
            sf_catalog_head_hint(catalog, places[i].namespace_id, places[i].collection_id);
        (*out_done)++;
    }
    return err;
}

enum sf_err sf_catalog_heads_audit(struct sf_catalog *catalog, struct sf_sched *sched,
                                   struct sf_diag *diag, uint64_t *out_done)
{
    struct sf_catalog_heads *heads = catalog->heads;
    struct place places[SF_CATALOG_HEAD_CYCLE];
    size_t count = 0;
    (void)sched;
    enum sf_err err =
        next_places(catalog, NULL, heads->audited, places, SF_CATALOG_HEAD_CYCLE, &count, diag);
    enum sf_err failed = SF_OK;
    for (size_t i = 0; i < count && (failed == SF_OK || sf_catalog_own_fault(failed)); i++) {
        enum sf_err one = visit(catalog, places[i], false);
        heads->audited = places[i];
        failed = one == SF_OK ? failed : one;
        *out_done += one == SF_OK ? 1 : 0;
    }
    if (failed != SF_OK)
        return sf_diag_set(diag, failed, "an audit of manifest heads did not come through");
    if (err == SF_OK && count < SF_CATALOG_HEAD_CYCLE)
        heads->audited = (struct place){0};
    return err;
}

/* ---- calls -------------------------------------------------------------------------------- */

void sf_catalog_head_submit(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    sf_catalog_intent(self, &sf_catalog_head_advance, call, request);
}

/* An operator's call on its way. */
struct by_hand {
    struct sf_task task;
    struct sf_catalog *catalog;
    struct sf_call *call;
    const ProtobufCMessage *request; /* valid as long as the call */
};

/* For people: what the look found and what it means. */
static char *explain(const struct look *look, struct sf_arena *arena)
{
    char text[256];
    unsigned long long head = look->row->manifest_head_version;
    unsigned long long committed =
        look->pointer == NULL ? 0 : look->pointer->committed_manifest_version;
    if (look->status == STATUS(ERROR))
        snprintf(text, sizeof(text), "%s; the collection admits nothing until this is repaired",
                 look->reason == NULL ? "an operator is needed" : look->reason);
    else if (look->state == SF_CATALOG_HEAD_GAP)
        snprintf(text, sizeof(text), "head %llu is behind the committed version %llu", head,
                 committed);
    else
        snprintf(text, sizeof(text), "head and committed pointer are equal");
    return sf_arena_str(arena, sf_view_str(text));
}

static enum sf_err not_found(struct sf_diag *diag)
{
    return sf_diag_set(diag, SF_RESOURCE_NOT_FOUND, "no such active collection");
}

static enum sf_err repair_by_hand(struct by_hand *hand, struct sf_diag *diag)
{
    const SF_PB(RepairManifestHeadRequest) *request =
        (const SF_PB(RepairManifestHeadRequest) *)hand->request;
    struct sf_arena *arena = sf_call_arena(hand->call);
    struct look look;
    look_init(&look, hand->catalog, request->collection->namespace_id,
              request->collection->collection_id, arena, diag);
    look.dry = request->dry_run;
    enum sf_err err = repair(&look, true);
    if (err == SF_OK && look.row == NULL)
        err = not_found(diag);
    if (err != SF_OK)
        return err;
    SF_PB(RepairManifestHeadResponse) response;
    searchfabric__v1__repair_manifest_head_response__init(&response);
    response.status = look.row->manifest_head_reconciler_status;
    response.last_update_epoch = look.row->manifest_head_last_update_epoch;
    if (!look.dry) {
        response.status = look.status;
        response.last_update_epoch = look.epoch;
    }
    response.manifest_head_version = look.row->manifest_head_version;
    response.explanation = explain(&look, arena);
    if (response.explanation == NULL)
        return sf_diag_set(diag, SF_ERR_LIMIT, "the answer is too large");
    sf_call_respond(hand->call, &response.base);
    return SF_OK;
}

/* Reads the head object as it stands; one that does not verify is shown as absent. */
static enum sf_err show_object(struct by_hand *hand, const SF_PB(CollectionRef) * ref,
                               struct sf_diag *diag, SF_PB(ManifestHeadObject) * *out_head)
{
    struct sf_buf key = {0};
    ProtobufCMessage *message = NULL;
    sf_catalog_key_manifest_head(&key, ref->namespace_id, ref->collection_id);
    enum sf_err err = sf_catalog_read(hand->catalog, hand->catalog->deps.sched, sf_buf_view(&key),
                                      &searchfabric__v1__manifest_head_object__descriptor, false,
                                      sf_call_arena(hand->call), diag, &message, NULL, NULL);
    sf_buf_fini(&key);
    *out_head = err == SF_OK ? (SF_PB(ManifestHeadObject) *)message : NULL;
    if (err != SF_OK && err != SF_ERR_NOT_FOUND && err != SF_ERR_CORRUPT)
        return err;
    sf_diag_init(diag);
    return SF_OK;
}

static enum sf_err show_by_hand(struct by_hand *hand, struct sf_diag *diag)
{
    const SF_PB(ShowManifestHeadRequest) *request =
        (const SF_PB(ShowManifestHeadRequest) *)hand->request;
    struct sf_arena *arena = sf_call_arena(hand->call);
    SF_PB(ShowManifestHeadResponse) response;
    struct look look;
    searchfabric__v1__show_manifest_head_response__init(&response);
    look_init(&look, hand->catalog, request->collection->namespace_id,
              request->collection->collection_id, arena, diag);
    enum sf_err err = look_row(&look);
    if (err == SF_OK && look.row == NULL)
        err = not_found(diag);
    if (err == SF_OK)
        err = look_objects(&look);
    if (err == SF_OK)
        err = show_object(hand, &look.ref, diag, &response.head);
    if (err != SF_OK)
        return err;
    const SF_PB(CollectionRow) *row = look.row;
    response.committed_head = look.pointer;
    response.projected_head_version = row->manifest_head_version;
    response.projected_committed_version = row->committed_manifest_version;
    if (row->_committed_manifest_checksum_or_etag_case != 0)
        response.projected_committed_checksum_or_etag = row->committed_manifest_checksum_or_etag;
    response.projected_expected_previous_head = row->expected_previous_head;
    response.projected_last_update_epoch = row->manifest_head_last_update_epoch;
    response.projected_reconciler_status = row->manifest_head_reconciler_status;
    response.explanation = look.state == SF_CATALOG_HEAD_BROKEN && look.status != STATUS(ERROR)
                               ? sf_arena_str(arena, sf_view_str(look.reason))
                               : explain(&look, arena);
    if (response.explanation == NULL)
        return sf_diag_set(diag, SF_ERR_LIMIT, "the answer is too large");
    sf_call_respond(hand->call, &response.base);
    return SF_OK;
}

static void run_by_hand(struct sf_task *task)
{
    struct by_hand *hand = SF_CONTAINER_OF(task, struct by_hand, task);
    struct sf_catalog *catalog = hand->catalog;
    struct sf_diag *diag = sf_call_diag(hand->call);
    sf_diag_init(diag);
    bool show =
        hand->request->descriptor == &searchfabric__v1__show_manifest_head_request__descriptor;
    enum sf_err err = show ? show_by_hand(hand, diag) : repair_by_hand(hand, diag);
    if (err != SF_OK) {
        if (diag->err != err)
            sf_diag_set(diag, err, "%s", sf_err_info(err)->meaning);
        sf_catalog_refuse(hand->call, diag);
    }
    free(hand);
    sf_catalog_leave(catalog);
}

static void start_by_hand(struct sf_catalog *catalog, struct sf_call *call,
                          const SF_PB(CollectionRef) * ref, const ProtobufCMessage *request,
                          bool mutation)
{
    struct sf_diag *diag = sf_call_diag(call);
    sf_diag_init(diag);
    if (sf_catalog_ref_check(ref, diag) != SF_OK || !sf_catalog_enter(catalog, mutation, diag)) {
        sf_catalog_refuse(call, diag);
        return;
    }
    struct by_hand *hand = sf_calloc(1, sizeof(*hand));
    *hand = (struct by_hand){
        .task.run = run_by_hand, .catalog = catalog, .call = call, .request = request};
    if (sf_sched_submit(catalog->deps.sched, REPAIR_LANE, &hand->task) == SF_OK)
        return;
    free(hand);
    sf_diag_set(diag, SF_BACKEND_UNAVAILABLE, "the catalog is busy");
    sf_catalog_refuse(call, diag);
    sf_catalog_leave(catalog);
}

void sf_catalog_head_show(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    start_by_hand(self, call, ((const SF_PB(ShowManifestHeadRequest) *)request)->collection,
                  request, false);
}

void sf_catalog_head_repair_call(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    start_by_hand(self, call, ((const SF_PB(RepairManifestHeadRequest) *)request)->collection,
                  request, true);
}
