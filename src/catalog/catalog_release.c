/*
 * Model: the two release intents and what must hold before them. A release runs on the lane of the
 * name it frees, excludes everything else about the lineage by its gates, and writes no control
 * object: its outcome is the event. Its identity is the name, the epoch and the horizon that the
 * tombstone recorded, so that every sweep after a crash submits the same intent (OP-32). A refusal
 * leaves no record.
 *
 * The conditions are a table, each a function of one snapshot; whoever has cleanup that a release
 * must wait for adds a row.
 */
#include "catalog/catalog_lifecycle.h"

/* ---- conditions --------------------------------------------------------------------------- */

static enum sf_err collection_tombstoned(const struct sf_catalog_reservation *reservation,
                                         struct sf_diag *diag, bool *out_holds)
{
    (void)diag;
    *out_holds = reservation->collection->lifecycle_state ==
                     SF_PBE(COLLECTION_ADMISSION_LIFECYCLE, TOMBSTONED) &&
                 reservation->collection->_gc_after_unix_ms_case != 0;
    return SF_OK;
}

static enum sf_err collection_horizon(const struct sf_catalog_reservation *reservation,
                                      struct sf_diag *diag, bool *out_holds)
{
    (void)diag;
    *out_holds = reservation->now_unix_ms >= reservation->collection->gc_after_unix_ms;
    return SF_OK;
}

static enum sf_err head_idle(const struct sf_catalog_reservation *reservation, struct sf_diag *diag,
                             bool *out_holds)
{
    (void)diag;
    *out_holds = reservation->collection->manifest_head_reconciler_status ==
                 SF_PBE(MANIFEST_HEAD_RECONCILER_STATUS, IDLE);
    return SF_OK;
}

/* No lifecycle window that retention still keeps. */
static enum sf_err windows_past(const struct sf_catalog_reservation *reservation,
                                struct sf_diag *diag, bool *out_holds)
{
    struct sf_sql_stmt *stmt;
    bool kept = true;
    enum sf_err err = sf_sql_prepare(reservation->conn,
                                     "SELECT 1 FROM collection_lifecycle_windows"
                                     " WHERE namespace_id = ?1 AND collection_id = ?2"
                                     " AND window_state <> 'RECLAIMABLE'"
                                     " AND retention_deadline_unix_ms > ?3 LIMIT 1",
                                     diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, reservation->collection->collection->namespace_id);
    sf_sql_bind_u64(stmt, 2, reservation->collection->collection->collection_id);
    sf_sql_bind_i64(stmt, 3, reservation->now_unix_ms);
    err = sf_sql_step(stmt, diag, &kept);
    sf_sql_finish(stmt);
    *out_holds = !kept;
    return err;
}

static enum sf_err namespace_tombstoned(const struct sf_catalog_reservation *reservation,
                                        struct sf_diag *diag, bool *out_holds)
{
    (void)diag;
    *out_holds =
        reservation->ns->lifecycle_state == SF_PBE(NAMESPACE_LIFECYCLE_STATE, TOMBSTONED) &&
        reservation->ns->_lifecycle_gc_after_unix_ms_case != 0;
    return SF_OK;
}

static enum sf_err namespace_horizon(const struct sf_catalog_reservation *reservation,
                                     struct sf_diag *diag, bool *out_holds)
{
    (void)diag;
    *out_holds = reservation->now_unix_ms >= reservation->ns->lifecycle_gc_after_unix_ms;
    return SF_OK;
}

static enum sf_err no_children(const struct sf_catalog_reservation *reservation,
                               struct sf_diag *diag, bool *out_holds)
{
    bool has = true;
    enum sf_err err =
        sf_catalog_sql_has_rows(reservation->conn, reservation->ns->namespace_id, diag, &has);
    *out_holds = !has;
    return err;
}

static const struct sf_catalog_release_condition collection_conditions[] = {
    {"not_tombstoned", collection_tombstoned},
    {"horizon_not_reached", collection_horizon},
    {"manifest_head_under_repair", head_idle},
    {"window_retention_open", windows_past},
};

static const struct sf_catalog_release_condition namespace_conditions[] = {
    {"not_tombstoned", namespace_tombstoned},
    {"horizon_not_reached", namespace_horizon},
    {"collections_remain", no_children}, /* tombstoned ones too */
};

enum sf_err sf_catalog_release_blocked(const struct sf_catalog_reservation *reservation,
                                       struct sf_diag *diag, size_t *io_index,
                                       const char **out_name)
{
    bool of_collection = reservation->collection != NULL;
    const struct sf_catalog_release_condition *table =
        of_collection ? collection_conditions : namespace_conditions;
    size_t count =
        of_collection ? SF_ARRAY_LEN(collection_conditions) : SF_ARRAY_LEN(namespace_conditions);
    *out_name = NULL;
    while (*io_index < count) {
        const struct sf_catalog_release_condition *condition = &table[(*io_index)++];
        bool holds = false;
        enum sf_err err = condition->holds(reservation, diag, &holds);
        if (err != SF_OK)
            return err;
        if (SF_MUTANT(ccs_release_early) && strcmp(condition->name, "horizon_not_reached") == 0)
            holds = true;
        if (!holds) {
            *out_name = condition->name;
            return SF_OK;
        }
    }
    return SF_OK;
}

/* Judges the rows that were loaded. */
static enum sf_err judge(struct sf_catalog_command *command, struct sf_sql_conn *conn)
{
    const struct sf_catalog_reservation reservation = {
        .catalog = command->catalog,
        .conn = conn,
        .arena = command->scratch,
        .ns = command->rows.ns,
        .collection = command->rows.collection,
        .now_unix_ms = sf_clock_unix_ms(command->catalog->deps.clock)};
    size_t index = 0;
    return sf_catalog_release_blocked(&reservation, &command->diag, &index,
                                      &command->rows.blocked_by);
}

/* ---- shared by both ----------------------------------------------------------------------- */

static enum sf_err release_answer(struct sf_catalog_command *command, SF_PB(IntentOutcome) outcome)
{
    SF_PB(ReservationReleaseOutcome) response;
    searchfabric__v1__reservation_release_outcome__init(&response);
    response.outcome = outcome;
    return sf_catalog_plan_success(command, &response.base);
}

static enum sf_err release_replay(struct sf_catalog_command *command)
{
    return release_answer(command, SF_PBE(INTENT_OUTCOME, DUPLICATE));
}

static enum sf_err still_reserved(struct sf_catalog_command *command, const char *scope)
{
    const char *state = "tombstoned";
    if (strcmp(command->rows.blocked_by, "not_tombstoned") == 0)
        state = command->rows.collection != NULL
                    ? "active"
                    : sf_catalog_lifecycle_text(command->rows.ns->lifecycle_state);
    sf_catalog_lifecycle_conflict(&command->diag, scope, state, "the name stays reserved");
    sf_diag_detail(&command->diag, "release_blocked_by", "%s", command->rows.blocked_by);
    return SF_VERSION_CONFLICT;
}

static void set_cutoff(struct sf_catalog_command *command, int64_t cutoff_unix_ms)
{
    SF_PB(CommandOutcomeObject) *outcome = &command->plan.outcome;
    outcome->_release_cutoff_unix_ms_case =
        SEARCHFABRIC__V1__COMMAND_OUTCOME_OBJECT___RELEASE_CUTOFF_UNIX_MS_RELEASE_CUTOFF_UNIX_MS;
    outcome->release_cutoff_unix_ms = cutoff_unix_ms;
}

/* ---- the name of a namespace -------------------------------------------------------------- */

static const SF_PB(NamespaceNameReservationReleaseIntent) *
    namespace_intent(const struct sf_catalog_command *command)
{
    return (const SF_PB(NamespaceNameReservationReleaseIntent) *)command->request;
}

static enum sf_err namespace_check(const ProtobufCMessage *request, struct sf_diag *diag)
{
    const SF_PB(NamespaceNameReservationReleaseIntent) *intent =
        (const SF_PB(NamespaceNameReservationReleaseIntent) *)request;
    if (intent->namespace_id == 0 || intent->releasing_namespace_name_allocation_epoch == 0)
        return sf_diag_bad_field(diag, "namespace_id", "zero", "id and epoch are above 0");
    return sf_name_check("namespace_name", sf_view_str(intent->namespace_name), false, diag);
}

static void namespace_scope(const ProtobufCMessage *request, struct sf_keyhash *kh)
{
    const SF_PB(NamespaceNameReservationReleaseIntent) *intent =
        (const SF_PB(NamespaceNameReservationReleaseIntent) *)request;
    sf_keyhash_bytes(kh, sf_view_str(intent->namespace_name));
    sf_keyhash_u64(kh, intent->releasing_namespace_name_allocation_epoch);
    sf_keyhash_u64(kh, (uint64_t)intent->release_cutoff_unix_ms);
}

static void namespace_lane_key(const struct sf_catalog_command *command, enum sf_catalog_lane lane,
                               struct sf_keyhash *kh)
{
    (void)lane;
    sf_keyhash_bytes(kh, sf_view_str(namespace_intent(command)->namespace_name));
}

static enum sf_err namespace_load(struct sf_catalog_command *command, struct sf_sql_conn *conn,
                                  bool *out_pivot)
{
    const SF_PB(NamespaceNameReservationReleaseIntent) *intent = namespace_intent(command);
    *out_pivot = false;
    enum sf_err err = sf_catalog_sql_namespace(conn, intent->namespace_id, command->scratch,
                                               &command->diag, &command->rows.ns);
    return err == SF_OK && command->rows.ns != NULL ? judge(command, conn) : err;
}

/* As confirm_horizon: the descriptor that tombstoned the namespace must name the cutoff. */
static enum sf_err confirm_descriptor(struct sf_catalog_command *command)
{
    const SF_PB(NamespaceRow) *row = command->rows.ns;
    struct sf_buf key = {0};
    SF_PB(ControlObjectRef) ref;
    ProtobufCMessage *message = NULL;
    sf_catalog_key_namespace(&key, row->namespace_id, row->namespace_revision);
    enum sf_err err = sf_catalog_committed_read(
        command->catalog, &key, &searchfabric__v1__namespace_descriptor_object__descriptor,
        command->scratch, &command->diag, &ref, &message);
    if (err != SF_OK)
        return err;
    const SF_PB(NamespaceDescriptorObject) *object =
        (const SF_PB(NamespaceDescriptorObject) *)message;
    if (object == NULL || object->lifecycle_state != SF_PBE(NAMESPACE_LIFECYCLE_STATE, TOMBSTONED))
        return sf_diag_set(&command->diag, SF_ERR_CORRUPT,
                           "a tombstoned row has no descriptor that says so");
    if (object->lifecycle_gc_after_unix_ms == namespace_intent(command)->release_cutoff_unix_ms)
        return SF_OK;
    command->rows.blocked_by = "horizon_not_reached";
    return still_reserved(command, "namespace_name");
}

static enum sf_err namespace_plan(struct sf_catalog_command *command)
{
    const SF_PB(NamespaceNameReservationReleaseIntent) *intent = namespace_intent(command);
    const SF_PB(NamespaceRow) *row = command->rows.ns;
    SF_PB(CommandOutcomeObject) *outcome = &command->plan.outcome;
    uint64_t applied_ts = 0;
    if (row == NULL || strcmp(row->namespace_name, intent->namespace_name) != 0 ||
        row->namespace_name_allocation_epoch != intent->releasing_namespace_name_allocation_epoch)
        return sf_diag_set(&command->diag, SF_RESOURCE_NOT_FOUND, "no such reservation");
    if (command->rows.blocked_by != NULL)
        return still_reserved(command, "namespace_name");
    enum sf_err err = confirm_descriptor(command);
    if (err == SF_OK)
        err = sf_catalog_plan_ts(command, 1, &applied_ts);
    if (err == SF_OK)
        err = sf_catalog_plan_outcome(
            command, applied_ts,
            &(struct sf_catalog_subject){row->namespace_id, row->namespace_name, 0, ""});
    if (err != SF_OK)
        return err;
    command->plan.lane_shard = sf_catalog_shard_of_name(command->catalog, intent->namespace_name);
    outcome->_namespace_name_allocation_epoch_case =
        SEARCHFABRIC__V1__COMMAND_OUTCOME_OBJECT___NAMESPACE_NAME_ALLOCATION_EPOCH_NAMESPACE_NAME_ALLOCATION_EPOCH;
    outcome->namespace_name_allocation_epoch = row->namespace_name_allocation_epoch;
    outcome->_releasing_namespace_name_allocation_epoch_case =
        SEARCHFABRIC__V1__COMMAND_OUTCOME_OBJECT___RELEASING_NAMESPACE_NAME_ALLOCATION_EPOCH_RELEASING_NAMESPACE_NAME_ALLOCATION_EPOCH;
    outcome->releasing_namespace_name_allocation_epoch = row->namespace_name_allocation_epoch;
    set_cutoff(command, intent->release_cutoff_unix_ms);
    return release_answer(command, SF_PBE(INTENT_OUTCOME, ACCEPTED));
}

static void namespace_gates(const struct sf_catalog_command *command,
                            struct sf_catalog_gates *out_gates)
{
    out_gates->namespace_id = namespace_intent(command)->namespace_id;
    out_gates->namespace_exclusive = true;
}

const struct sf_catalog_mutation sf_catalog_release_namespace = {
    .kind = SF_PBE(COMMAND_KIND, NAMESPACE_NAME_RESERVATION_RELEASE),
    .intent = true,
    .kind_name = "NAMESPACE_NAME_RESERVATION_RELEASE",
    .first_lane = SF_CATALOG_LANE_NAMESPACE_NAME,
    .id_lane = SF_CATALOG_LANE_NAMESPACE_NAME,
    .check = namespace_check,
    .scope = namespace_scope,
    .lane_key = namespace_lane_key,
    .load = namespace_load,
    .plan = namespace_plan,
    .gates = namespace_gates,
    .replay = release_replay,
};

/* ---- the name of a collection ------------------------------------------------------------- */

static const SF_PB(CollectionNameReservationReleaseIntent) *
    collection_intent(const struct sf_catalog_command *command)
{
    return (const SF_PB(CollectionNameReservationReleaseIntent) *)command->request;
}

static enum sf_err collection_check(const ProtobufCMessage *request, struct sf_diag *diag)
{
    const SF_PB(CollectionNameReservationReleaseIntent) *intent =
        (const SF_PB(CollectionNameReservationReleaseIntent) *)request;
    if (intent->namespace_id == 0 || intent->collection_id == 0 ||
        intent->releasing_collection_name_allocation_epoch == 0)
        return sf_diag_bad_field(diag, "collection_id", "zero", "ids and epoch are above 0");
    return sf_name_check("collection_name", sf_view_str(intent->collection_name), false, diag);
}

static void collection_name(const SF_PB(CollectionNameReservationReleaseIntent) * intent,
                            struct sf_keyhash *kh)
{
    sf_keyhash_u64(kh, intent->namespace_id);
    sf_keyhash_bytes(kh, sf_view_str(intent->collection_name));
}

static void collection_scope(const ProtobufCMessage *request, struct sf_keyhash *kh)
{
    const SF_PB(CollectionNameReservationReleaseIntent) *intent =
        (const SF_PB(CollectionNameReservationReleaseIntent) *)request;
    collection_name(intent, kh);
    sf_keyhash_u64(kh, intent->releasing_collection_name_allocation_epoch);
    sf_keyhash_u64(kh, (uint64_t)intent->release_cutoff_unix_ms);
}

static void collection_lane_key(const struct sf_catalog_command *command, enum sf_catalog_lane lane,
                                struct sf_keyhash *kh)
{
    (void)lane;
    collection_name(collection_intent(command), kh);
}

static enum sf_err collection_load(struct sf_catalog_command *command, struct sf_sql_conn *conn,
                                   bool *out_pivot)
{
    const SF_PB(CollectionNameReservationReleaseIntent) *intent = collection_intent(command);
    struct sf_catalog_rows *rows = &command->rows;
    *out_pivot = false;
    enum sf_err err = sf_catalog_sql_namespace(conn, intent->namespace_id, command->scratch,
                                               &command->diag, &rows->ns);
    if (err == SF_OK)
        err = sf_catalog_sql_collection(conn, intent->namespace_id, intent->collection_id,
                                        command->scratch, &command->diag, &rows->collection);
    return err == SF_OK && rows->ns != NULL && rows->collection != NULL ? judge(command, conn)
                                                                        : err;
}

/* The row is no proof: the tombstone itself must name the cutoff. */
static enum sf_err confirm_horizon(struct sf_catalog_command *command)
{
    const SF_PB(CollectionNameReservationReleaseIntent) *intent = collection_intent(command);
    struct sf_catalog_tombstone found;
    enum sf_err err =
        sf_catalog_tombstone_find(command->catalog, intent->namespace_id, intent->collection_id,
                                  command->scratch, &command->diag, &found);
    if (err != SF_OK)
        return err;
    if (!found.stands)
        return sf_diag_set(&command->diag, SF_ERR_CORRUPT,
                           "a tombstoned row has no tombstone that counts");
    if (found.object->gc_after_unix_ms == intent->release_cutoff_unix_ms)
        return SF_OK;
    command->rows.blocked_by = "horizon_not_reached";
    return still_reserved(command, "collection_name");
}

static enum sf_err collection_plan(struct sf_catalog_command *command)
{
    const SF_PB(CollectionNameReservationReleaseIntent) *intent = collection_intent(command);
    const SF_PB(CollectionRow) *row = command->rows.collection;
    const SF_PB(NamespaceRow) *ns = command->rows.ns;
    SF_PB(CommandOutcomeObject) *outcome = &command->plan.outcome;
    uint64_t applied_ts = 0;
    if (ns == NULL || row == NULL || strcmp(row->collection_name, intent->collection_name) != 0 ||
        row->collection_name_allocation_epoch != intent->releasing_collection_name_allocation_epoch)
        return sf_diag_set(&command->diag, SF_RESOURCE_NOT_FOUND, "no such reservation");
    if (command->rows.blocked_by != NULL)
        return still_reserved(command, "collection_name");
    enum sf_err err = confirm_horizon(command);
    if (err == SF_OK)
        err = sf_catalog_plan_ts(command, 1, &applied_ts);
    if (err == SF_OK)
        err = sf_catalog_plan_outcome(
            command, applied_ts,
            &(struct sf_catalog_subject){intent->namespace_id, ns->namespace_name,
                                         intent->collection_id, row->collection_name});
    if (err != SF_OK)
        return err;
    command->plan.lane_shard = sf_catalog_shard_of_id(command->catalog, intent->namespace_id);
    outcome->_collection_name_allocation_epoch_case =
        SEARCHFABRIC__V1__COMMAND_OUTCOME_OBJECT___COLLECTION_NAME_ALLOCATION_EPOCH_COLLECTION_NAME_ALLOCATION_EPOCH;
    outcome->collection_name_allocation_epoch = row->collection_name_allocation_epoch;
    outcome->_releasing_collection_name_allocation_epoch_case =
        SEARCHFABRIC__V1__COMMAND_OUTCOME_OBJECT___RELEASING_COLLECTION_NAME_ALLOCATION_EPOCH_RELEASING_COLLECTION_NAME_ALLOCATION_EPOCH;
    outcome->releasing_collection_name_allocation_epoch = row->collection_name_allocation_epoch;
    outcome->collection_name_binding_revision = ns->collection_name_binding_revision + 1;
    set_cutoff(command, intent->release_cutoff_unix_ms);
    return release_answer(command, SF_PBE(INTENT_OUTCOME, ACCEPTED));
}

static void collection_gates(const struct sf_catalog_command *command,
                             struct sf_catalog_gates *out_gates)
{
    out_gates->namespace_id = collection_intent(command)->namespace_id;
    out_gates->collection_id = collection_intent(command)->collection_id;
}

const struct sf_catalog_mutation sf_catalog_release_collection = {
    .kind = SF_PBE(COMMAND_KIND, COLLECTION_NAME_RESERVATION_RELEASE),
    .intent = true,
    .kind_name = "COLLECTION_NAME_RESERVATION_RELEASE",
    .first_lane = SF_CATALOG_LANE_COLLECTION_NAME,
    .id_lane = SF_CATALOG_LANE_COLLECTION_NAME,
    .check = collection_check,
    .scope = collection_scope,
    .lane_key = collection_lane_key,
    .load = collection_load,
    .plan = collection_plan,
    .gates = collection_gates,
    .replay = release_replay,
};
