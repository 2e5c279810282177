/*
 * Model: namespace_lifecycle_transition_intent. A compare-and-swap on namespace_revision: each
 * transition writes the next namespace descriptor, so that the same target may be reached again
 * later under another identity (OP-31). A refusal leaves no record and is judged afresh.
 *
 *   ACTIVE <-> QUIESCING      ACTIVE, QUIESCING -> TOMBSTONED without ACTIVE collections
 *
 * TOMBSTONED is final; the horizon that is recorded with it is the cutoff of the name's release.
 */
#include "catalog/catalog_lifecycle.h"
#include "catalog/catalog_projector.h"

#define STATE(name) SF_PBE(NAMESPACE_LIFECYCLE_STATE, name)

/* Allowed moves (OP-30). */
static const struct {
    SF_PB(NamespaceLifecycleState) from;
    SF_PB(NamespaceLifecycleState) to;
} moves[] = {
    {STATE(ACTIVE), STATE(QUIESCING)},
    {STATE(QUIESCING), STATE(ACTIVE)},
    {STATE(ACTIVE), STATE(TOMBSTONED)},
    {STATE(QUIESCING), STATE(TOMBSTONED)},
};

static const SF_PB(SubmitNamespaceLifecycleTransitionRequest) *
    request_of(const struct sf_catalog_command *command)
{
    return (const SF_PB(SubmitNamespaceLifecycleTransitionRequest) *)command->request;
}

static enum sf_err transition_check(const ProtobufCMessage *request, struct sf_diag *diag)
{
    const SF_PB(SubmitNamespaceLifecycleTransitionRequest) *submit =
        (const SF_PB(SubmitNamespaceLifecycleTransitionRequest) *)request;
    if (submit->namespace_id == 0)
        return sf_diag_bad_field(diag, "namespace_id", "zero", "an id is above 0");
    if (submit->target_lifecycle_state < STATE(ACTIVE) ||
        submit->target_lifecycle_state > STATE(TOMBSTONED))
        return sf_diag_bad_field(diag, "target_lifecycle_state", "unknown", "no such state");
    if (submit->expected_namespace_revision == 0)
        return sf_diag_bad_field(diag, "expected_namespace_revision", "zero",
                                 "a revision is above 0");
    return SF_OK;
}

static void transition_scope(const ProtobufCMessage *request, struct sf_keyhash *kh)
{
    const SF_PB(SubmitNamespaceLifecycleTransitionRequest) *submit =
        (const SF_PB(SubmitNamespaceLifecycleTransitionRequest) *)request;
    sf_keyhash_u64(kh, submit->namespace_id);
    sf_keyhash_u64(kh, submit->target_lifecycle_state);
    sf_keyhash_u64(kh, submit->expected_namespace_revision);
}

static void transition_lane_key(const struct sf_catalog_command *command, enum sf_catalog_lane lane,
                                struct sf_keyhash *kh)
{
    (void)lane;
    sf_keyhash_u64(kh, request_of(command)->namespace_id);
}

static enum sf_err transition_load(struct sf_catalog_command *command, struct sf_sql_conn *conn,
                                   bool *out_pivot)
{
    uint64_t namespace_id = request_of(command)->namespace_id;
    *out_pivot = false;
    enum sf_err err = sf_catalog_sql_namespace(conn, namespace_id, command->scratch, &command->diag,
                                               &command->rows.ns);
    if (err == SF_OK)
        err = sf_catalog_has_children(conn, namespace_id, &command->diag,
                                      &command->rows.active_child);
    return err;
}

static bool allowed(SF_PB(NamespaceLifecycleState) from, SF_PB(NamespaceLifecycleState) to)
{
    for (size_t i = 0; i < SF_ARRAY_LEN(moves); i++) {
        if (moves[i].from == from && moves[i].to == to)
            return true;
    }
    return false;
}

static enum sf_err transition_facts(struct sf_catalog_command *command)
{
    const SF_PB(SubmitNamespaceLifecycleTransitionRequest) *submit = request_of(command);
    const SF_PB(NamespaceRow) *row = command->rows.ns;
    if (row == NULL)
        return sf_diag_set(&command->diag, SF_RESOURCE_NOT_FOUND, "no such namespace");
    const char *state = sf_catalog_lifecycle_text(row->lifecycle_state);
    if (row->namespace_revision != submit->expected_namespace_revision &&
        !SF_MUTANT(ccs_any_revision))
        return sf_catalog_lifecycle_conflict(&command->diag, "resolved_namespace_lineage", state,
                                             "the namespace is at another revision");
    if (!allowed(row->lifecycle_state, submit->target_lifecycle_state))
        return sf_catalog_lifecycle_conflict(&command->diag, "resolved_namespace_lineage", state,
                                             "the namespace's state takes no such transition");
    if (submit->target_lifecycle_state == STATE(TOMBSTONED) && command->rows.active_child)
        return sf_catalog_lifecycle_conflict(&command->diag, "resolved_collection_lineage",
                                             "active", "the namespace has an active collection");
    return SF_OK;
}

static enum sf_err transition_object(struct sf_catalog_command *command,
                                     SF_PB(NamespaceDescriptorObject) * *out_object)
{
    const SF_PB(NamespaceRow) *row = command->rows.ns;
    struct sf_catalog *catalog = command->catalog;
    int64_t now_ms = sf_clock_unix_ms(catalog->deps.clock);
    SF_PB(NamespaceDescriptorObject) *object = sf_arena_alloc(command->scratch, sizeof(*object));
    if (object == NULL)
        return sf_catalog_plan_too_large(command);
    searchfabric__v1__namespace_descriptor_object__init(object);
    object->format_version = SF_CATALOG_FORMAT_VERSION;
    object->attempt_id = command->plan.attempt_id;
    object->owner_epoch = catalog->owner_epoch;
    object->attempt = command->plan.attempt;
    object->command_identity = command->command_identity;
    object->namespace_id = row->namespace_id;
    object->namespace_name = row->namespace_name;
    object->namespace_name_allocation_epoch = row->namespace_name_allocation_epoch;
    object->namespace_revision = row->namespace_revision + 1;
    object->lifecycle_state = request_of(command)->target_lifecycle_state;
    object->lifecycle_updated_at_unix_ms = now_ms;
    if (object->lifecycle_state == STATE(TOMBSTONED)) {
        object->_lifecycle_gc_after_unix_ms_case =
            SEARCHFABRIC__V1__NAMESPACE_DESCRIPTOR_OBJECT___LIFECYCLE_GC_AFTER_UNIX_MS_LIFECYCLE_GC_AFTER_UNIX_MS;
        object->lifecycle_gc_after_unix_ms =
            sf_catalog_horizon(catalog, catalog->deps.namespace_gc_delay_ms, now_ms);
    }
    object->options = row->options;
    object->encryption = row->encryption;
    object->internal_policy_state = row->internal_policy_state;
    object->created_at_unix_ms = row->created_at_unix_ms;
    object->updated_at_unix_ms = now_ms;
    *out_object = object;
    return SF_OK;
}

static enum sf_err transition_answer(struct sf_catalog_command *command,
                                     SF_PB(IntentOutcome) outcome)
{
    const SF_PB(SubmitNamespaceLifecycleTransitionRequest) *submit = request_of(command);
    SF_PB(SubmitNamespaceLifecycleTransitionResponse) response;
    searchfabric__v1__submit_namespace_lifecycle_transition_response__init(&response);
    response.outcome = outcome;
    response.namespace_revision = submit->expected_namespace_revision + 1;
    response.lifecycle_state = submit->target_lifecycle_state;
    return sf_catalog_plan_success(command, &response.base);
}

static enum sf_err transition_plan(struct sf_catalog_command *command)
{
    const SF_PB(SubmitNamespaceLifecycleTransitionRequest) *submit = request_of(command);
    SF_PB(CommandOutcomeObject) *outcome = &command->plan.outcome;
    SF_PB(NamespaceDescriptorObject) *object = NULL;
    uint64_t applied_ts = 0;
    enum sf_err err = transition_facts(command);
    if (err == SF_OK)
        err = sf_catalog_plan_ts(command, 1, &applied_ts);
    if (err == SF_OK)
        err = transition_object(command, &object);
    if (err == SF_OK)
        err = sf_catalog_plan_outcome(command, applied_ts,
                                      &(struct sf_catalog_subject){submit->namespace_id,
                                                                   command->rows.ns->namespace_name,
                                                                   0, ""});
    if (err != SF_OK)
        return err;
    SF_ASSERT(object != NULL);
    command->plan.lane_shard = sf_catalog_shard_of_id(command->catalog, submit->namespace_id);
    outcome->_namespace_name_allocation_epoch_case =
        SEARCHFABRIC__V1__COMMAND_OUTCOME_OBJECT___NAMESPACE_NAME_ALLOCATION_EPOCH_NAMESPACE_NAME_ALLOCATION_EPOCH;
    outcome->namespace_name_allocation_epoch = object->namespace_name_allocation_epoch;
    outcome->target_lifecycle_state = submit->target_lifecycle_state;
    outcome->_expected_namespace_revision_case =
        SEARCHFABRIC__V1__COMMAND_OUTCOME_OBJECT___EXPECTED_NAMESPACE_REVISION_EXPECTED_NAMESPACE_REVISION;
    outcome->expected_namespace_revision = submit->expected_namespace_revision;
    struct sf_buf key = {0};
    sf_catalog_key_namespace(&key, submit->namespace_id, object->namespace_revision);
    err = sf_catalog_plan_object(command, &key, &object->base);
    return err == SF_OK ? transition_answer(command, SF_PBE(INTENT_OUTCOME, ACCEPTED)) : err;
}

static enum sf_err transition_replay(struct sf_catalog_command *command)
{
    return transition_answer(command, SF_PBE(INTENT_OUTCOME, DUPLICATE));
}

static void transition_gates(const struct sf_catalog_command *command,
                             struct sf_catalog_gates *out_gates)
{
    out_gates->namespace_id = request_of(command)->namespace_id;
    out_gates->namespace_exclusive = true;
}

const struct sf_catalog_mutation sf_catalog_transition_namespace = {
    .kind = SF_PBE(COMMAND_KIND, NAMESPACE_LIFECYCLE_TRANSITION),
    .intent = true,
    .kind_name = "NAMESPACE_LIFECYCLE_TRANSITION",
    .first_lane = SF_CATALOG_LANE_NAMESPACE_ID,
    .id_lane = SF_CATALOG_LANE_NAMESPACE_ID,
    .check = transition_check,
    .scope = transition_scope,
    .lane_key = transition_lane_key,
    .load = transition_load,
    .plan = transition_plan,
    .gates = transition_gates,
    .replay = transition_replay,
};
