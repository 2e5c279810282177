/*
 * Model: what each mutation reads, refuses and writes. `load` takes its rows from one snapshot and
 * says whether the command must pivot from its name lane to the lane of the stable id; `plan` runs
 * on the lane that applies: it judges the request against the rows, takes a fresh id from the
 * oracle for a create, reserves the name's epoch, and fills outcome, control object and answer. An
 * epoch whose reserving attempt did not become APPLIED is taken again; its id never is.
 */
#include "catalog/catalog_gate.h"
#include "catalog/catalog_quota.h"
#include "catalog/catalog_rules.h"

/* ---- shared ------------------------------------------------------------------------------- */

enum sf_err sf_catalog_plan_too_large(struct sf_catalog_command *command)
{
    return sf_diag_set(&command->diag, SF_ERR_LIMIT, "the command does not fit its memory");
}

enum sf_err sf_catalog_plan_load(struct sf_catalog_command *command, struct sf_sql_conn *conn,
                                 const SF_PB(CollectionRef) * ref)
{
    struct sf_catalog_rows *rows = &command->rows;
    enum sf_err err =
        sf_catalog_sql_collection(conn, ref->namespace_id, ref->collection_id, command->scratch,
                                  &command->diag, &rows->collection);
    if (err == SF_OK)
        err = sf_catalog_sql_namespace(conn, ref->namespace_id, command->scratch, &command->diag,
                                       &rows->ns);
    if (err == SF_OK)
        err = sf_catalog_sql_business(conn, command->ops->kind_name, command->business_key,
                                      command->scratch, &command->diag, &rows->business);
    return err;
}

enum sf_err sf_catalog_plan_ts(struct sf_catalog_command *command, uint32_t count,
                               uint64_t *out_first)
{
    struct sf_tso first = {0};
    struct sf_catalog *catalog = command->catalog;
    enum sf_err err = sf_tso_get_wait(catalog->deps.tso, catalog->deps.sched, count, &first);
    *out_first = first.v;
    if (err != SF_OK)
        return sf_diag_set(&command->diag, SF_BACKEND_UNAVAILABLE, "no timestamp: %s",
                           sf_err_info(err)->meaning);
    return SF_OK;
}

/* RequestMeta of a public command; an intent has none. */
static void fill_meta(struct sf_catalog_command *command)
{
    SF_PB(CommandOutcomeObject) *outcome = &command->plan.outcome;
    const SF_PB(RequestMeta) *meta = command->meta;
    outcome->_idempotency_key_case =
        SEARCHFABRIC__V1__COMMAND_OUTCOME_OBJECT___IDEMPOTENCY_KEY_IDEMPOTENCY_KEY;
    outcome->idempotency_key = meta->idempotency_key;
    if (meta->_correlation_id_case != 0) {
        outcome->_correlation_id_case =
            SEARCHFABRIC__V1__COMMAND_OUTCOME_OBJECT___CORRELATION_ID_CORRELATION_ID;
        outcome->correlation_id = meta->correlation_id;
    }
    outcome->_authenticated_client_identity_hash_case =
        SEARCHFABRIC__V1__COMMAND_OUTCOME_OBJECT___AUTHENTICATED_CLIENT_IDENTITY_HASH_AUTHENTICATED_CLIENT_IDENTITY_HASH;
    outcome->authenticated_client_identity_hash = command->identity_hash;
    if (meta->_principal_subject_case != 0) {
        outcome->_principal_subject_case =
            SEARCHFABRIC__V1__COMMAND_OUTCOME_OBJECT___PRINCIPAL_SUBJECT_PRINCIPAL_SUBJECT;
        outcome->principal_subject = meta->principal_subject;
    }
    outcome->_client_id_case = SEARCHFABRIC__V1__COMMAND_OUTCOME_OBJECT___CLIENT_ID_CLIENT_ID;
    outcome->client_id = meta->client_id;
    outcome->client_kind = meta->client_kind;
}

enum sf_err sf_catalog_plan_outcome(struct sf_catalog_command *command, uint64_t applied_ts,
                                    const struct sf_catalog_subject *subject)
{
    SF_PB(CommandOutcomeObject) *outcome = &command->plan.outcome;
    SF_PB(CommandScope) *scope = sf_arena_alloc(command->scratch, sizeof(*scope));
    if (scope == NULL)
        return sf_catalog_plan_too_large(command);
    searchfabric__v1__command_scope__init(scope);
    scope->namespace_id = subject->namespace_id;
    scope->namespace_name = (char *)(uintptr_t)subject->namespace_name;
    scope->collection_id = subject->collection_id;
    scope->collection_name = (char *)(uintptr_t)subject->collection_name;
    outcome->format_version = SF_CATALOG_FORMAT_VERSION;
    outcome->command_identity = command->command_identity;
    outcome->transport_lookup_key = command->transport_key;
    if (command->business_key[0] != '\0') {
        outcome->_business_lookup_key_case =
            SEARCHFABRIC__V1__COMMAND_OUTCOME_OBJECT___BUSINESS_LOOKUP_KEY_BUSINESS_LOOKUP_KEY;
        outcome->business_lookup_key = command->business_key;
    }
    outcome->command_kind = command->ops->kind;
    outcome->replay_family = command->ops->intent ? SF_PBE(REPLAY_FAMILY, INTERNAL_INTENT)
                                                  : SF_PBE(REPLAY_FAMILY, PUBLIC_RPC);
    outcome->scope = scope;
    if (command->meta != NULL)
        fill_meta(command);
    outcome->payload_fingerprint = command->fingerprint;
    outcome->terminal_state = SF_PBE(COMMAND_TERMINAL_STATE, APPLIED);
    outcome->replay_classification = SF_PBE(REPLAY_CLASSIFICATION, ORIGINAL);
    outcome->created_ts = applied_ts;
    outcome->applied_ts = applied_ts;
    outcome->applied_at_unix_ms = sf_clock_unix_ms(command->catalog->deps.clock);
    return SF_OK;
}

enum sf_err sf_catalog_plan_success(struct sf_catalog_command *command,
                                    const ProtobufCMessage *response)
{
    size_t size = protobuf_c_message_get_packed_size(response);
    uint8_t *bytes = sf_arena_alloc(command->scratch, size + 1);
    if (bytes == NULL)
        return sf_catalog_plan_too_large(command);
    protobuf_c_message_pack(response, bytes);
    command->plan.outcome.success_payload.data = bytes;
    command->plan.outcome.success_payload.len = size;
    command->plan.outcome.success_payload_type = (char *)(uintptr_t)response->descriptor->name;
    return SF_OK;
}

enum sf_err sf_catalog_plan_object(struct sf_catalog_command *command, struct sf_buf *key,
                                   const ProtobufCMessage *object)
{
    struct sf_catalog_plan *plan = &command->plan;
    struct sf_catalog_put *put = &plan->controls[plan->control_count++];
    put->key = *key;
    *key = (struct sf_buf){0};
    put->cond = SF_MUTANT(ccs_control_overwrites) ? SF_PUT_ANY : SF_PUT_ABSENT;
    char digest[SF_SHA256_HEX_BYTES];
    sf_catalog_put_encode(put, object, false, digest);
    searchfabric__v1__control_object_ref__init(&plan->ref);
    plan->ref.key = sf_arena_str(command->scratch, sf_buf_view(&put->key));
    plan->ref.sha256 = sf_arena_str(command->scratch, sf_view_str(digest));
    plan->refs[0] = &plan->ref;
    plan->outcome.control_objects = plan->refs;
    plan->outcome.n_control_objects = 1;
    plan->object = object;
    return plan->ref.key == NULL || plan->ref.sha256 == NULL ? sf_catalog_plan_too_large(command)
                                                             : SF_OK;
}

/* Did the attempt that reserved an epoch become APPLIED? */
static enum sf_err reservation_applied(struct sf_catalog_command *command,
                                       const char *command_identity, const char *attempt_id,
                                       bool *out_applied)
{
    struct sf_catalog *catalog = command->catalog;
    struct sf_buf key = {0};
    ProtobufCMessage *message = NULL;
    sf_catalog_key_outcome(&key, command_identity);
    enum sf_err err = sf_catalog_read(catalog, catalog->deps.sched, sf_buf_view(&key),
                                      &searchfabric__v1__command_outcome_object__descriptor, false,
                                      command->scratch, &command->diag, &message, NULL, NULL);
    sf_buf_fini(&key);
    *out_applied = false;
    if (err == SF_ERR_NOT_FOUND)
        return SF_OK;
    if (err != SF_OK)
        return err;
    const SF_PB(CommandOutcomeObject) *outcome = (const SF_PB(CommandOutcomeObject) *)message;
    *out_applied = outcome->abort == NULL && outcome->entry != NULL &&
                   outcome->terminal_state == SF_PBE(COMMAND_TERMINAL_STATE, APPLIED) &&
                   strcmp(outcome->entry->attempt_id, attempt_id) == 0;
    return SF_OK;
}

/* What an epoch object says, whichever kind it is. */
struct epoch_seen {
    bool present;
    uint64_t owner_epoch;
    uint64_t last;
    const char *command_identity;
    const char *attempt_id;
};

static enum sf_err read_epoch(struct sf_catalog_command *command, struct sf_view key,
                              bool of_namespace, struct epoch_seen *out, struct sf_etag *out_etag)
{
    struct sf_catalog *catalog = command->catalog;
    const ProtobufCMessageDescriptor *desc =
        of_namespace ? &searchfabric__v1__namespace_name_epoch_object__descriptor
                     : &searchfabric__v1__collection_name_epoch_object__descriptor;
    ProtobufCMessage *message = NULL;
    *out = (struct epoch_seen){0};
    enum sf_err err = sf_catalog_read(catalog, catalog->deps.sched, key, desc, false,
                                      command->scratch, &command->diag, &message, NULL, out_etag);
    if (err == SF_ERR_NOT_FOUND)
        return SF_OK;
    if (err != SF_OK)
        return err;
    out->present = true;
    if (of_namespace) {
        const SF_PB(NamespaceNameEpochObject) *object =
            (const SF_PB(NamespaceNameEpochObject) *)message;
        out->owner_epoch = object->owner_epoch;
        out->last = object->last_allocated_epoch;
        out->command_identity = object->allocating_command_identity;
        out->attempt_id = object->allocating_attempt_id;
    } else {
        const SF_PB(CollectionNameEpochObject) *object =
            (const SF_PB(CollectionNameEpochObject) *)message;
        out->owner_epoch = object->owner_epoch;
        out->last = object->last_allocated_epoch;
        out->command_identity = object->allocating_command_identity;
        out->attempt_id = object->allocating_attempt_id;
    }
    return SF_OK;
}

static void encode_namespace_epoch(struct sf_catalog_command *command, const char *name,
                                   uint64_t epoch, uint64_t new_id, struct sf_catalog_put *put)
{
    SF_PB(NamespaceNameEpochObject) object;
    searchfabric__v1__namespace_name_epoch_object__init(&object);
    object.format_version = SF_CATALOG_FORMAT_VERSION;
    object.attempt_id = command->plan.attempt_id;
    object.owner_epoch = command->catalog->owner_epoch;
    object.attempt = command->plan.attempt;
    object.namespace_name = (char *)(uintptr_t)name;
    object.last_allocated_epoch = epoch;
    object.allocating_command_identity = command->command_identity;
    object.allocating_attempt_id = command->plan.attempt_id;
    object.allocated_namespace_id = new_id;
    object.updated_at_unix_ms = sf_clock_unix_ms(command->catalog->deps.clock);
    sf_catalog_put_encode(put, &object.base, false, NULL);
}

static void encode_collection_epoch(struct sf_catalog_command *command, uint64_t namespace_id,
                                    const char *name, uint64_t epoch, uint64_t new_id,
                                    struct sf_catalog_put *put)
{
    SF_PB(CollectionNameEpochObject) object;
    searchfabric__v1__collection_name_epoch_object__init(&object);
    object.format_version = SF_CATALOG_FORMAT_VERSION;
    object.attempt_id = command->plan.attempt_id;
    object.owner_epoch = command->catalog->owner_epoch;
    object.attempt = command->plan.attempt;
    object.namespace_id = namespace_id;
    object.collection_name = (char *)(uintptr_t)name;
    object.last_allocated_epoch = epoch;
    object.allocating_command_identity = command->command_identity;
    object.allocating_attempt_id = command->plan.attempt_id;
    object.allocated_collection_id = new_id;
    object.updated_at_unix_ms = sf_clock_unix_ms(command->catalog->deps.clock);
    sf_catalog_put_encode(put, &object.base, false, NULL);
}

/* Reserves the next epoch of a name (namespace_id 0: a namespace name) for `new_id`. */
static enum sf_err reserve_epoch(struct sf_catalog_command *command, uint64_t namespace_id,
                                 const char *name, uint64_t new_id, uint64_t *out_epoch)
{
    struct sf_catalog_plan *plan = &command->plan;
    struct sf_catalog_put *put = &plan->controls[plan->control_count];
    if (namespace_id == 0)
        sf_catalog_key_namespace_name(&put->key, name);
    else
        sf_catalog_key_collection_name(&put->key, namespace_id, name);
    plan->name_epoch_put = (int)plan->control_count++;
    struct epoch_seen seen;
    enum sf_err err =
        read_epoch(command, sf_buf_view(&put->key), namespace_id == 0, &seen, &put->match);
    if (err != SF_OK)
        return err;
    *out_epoch = 1;
    put->cond = SF_PUT_ABSENT;
    if (seen.present) {
        if (seen.owner_epoch > command->catalog->owner_epoch && !SF_MUTANT(ccs_no_name_elder)) {
            sf_catalog_depose(command->catalog, "name epoch", seen.owner_epoch);
            return sf_diag_set(&command->diag, SF_ERR_DEPOSED, "a newer owner allocated the name");
        }
        bool applied = false;
        err = reservation_applied(command, seen.command_identity, seen.attempt_id, &applied);
        if (err != SF_OK)
            return err;
        *out_epoch = applied && !SF_MUTANT(ccs_epoch_again) ? seen.last + 1 : seen.last;
        put->cond = SF_PUT_MATCH;
    }
    if (SF_MUTANT(ccs_no_name_epoch_cas))
        put->cond = SF_PUT_ANY;
    if (namespace_id == 0)
        encode_namespace_epoch(command, name, *out_epoch, new_id, put);
    else
        encode_collection_epoch(command, namespace_id, name, *out_epoch, new_id, put);
    return SF_OK;
}

/* ---- PutNamespaceMetadata ----------------------------------------------------------------- */

static enum sf_err namespace_check(const ProtobufCMessage *request, struct sf_diag *diag)
{
    const SF_PB(PutNamespaceMetadataRequest) *put =
        (const SF_PB(PutNamespaceMetadataRequest) *)request;
    enum sf_err err =
        sf_name_check("namespace_name", sf_view_str(put->namespace_name), false, diag);
    if (err == SF_OK)
        err = sf_catalog_encryption_check(put->encryption, diag);
    if (err == SF_OK)
        err = sf_catalog_options_check(put->options, diag);
    return err;
}

static void namespace_scope(const ProtobufCMessage *request, struct sf_keyhash *kh)
{
    sf_keyhash_bytes(
        kh, sf_view_str(((const SF_PB(PutNamespaceMetadataRequest) *)request)->namespace_name));
}

static void namespace_lane_key(const struct sf_catalog_command *command, enum sf_catalog_lane lane,
                               struct sf_keyhash *kh)
{
    if (lane == SF_CATALOG_LANE_NAMESPACE_NAME)
        namespace_scope(command->request, kh);
    else
        sf_keyhash_u64(kh, command->captured[0]);
}

static enum sf_err namespace_load(struct sf_catalog_command *command, struct sf_sql_conn *conn,
                                  bool *out_pivot)
{
    const SF_PB(PutNamespaceMetadataRequest) *put =
        (const SF_PB(PutNamespaceMetadataRequest) *)command->request;
    if (command->pivoted)
        return sf_catalog_sql_namespace(conn, command->captured[0], command->scratch,
                                        &command->diag, &command->rows.ns);
    enum sf_err err = sf_catalog_sql_namespace_named(conn, put->namespace_name, command->scratch,
                                                     &command->diag, &command->rows.ns);
    const SF_PB(NamespaceRow) *row = command->rows.ns;
    *out_pivot = err == SF_OK && row != NULL;
    if (*out_pivot) {
        command->captured[0] = row->namespace_id;
        command->captured[1] = row->namespace_name_allocation_epoch;
        command->captured[2] = row->namespace_revision;
    }
    return err;
}

/* On the id lane: the lineage must be the one the name lane saw (OP-29). */
static enum sf_err namespace_race(struct sf_catalog_command *command)
{
    const SF_PB(NamespaceRow) *row = command->rows.ns;
    if (row == NULL || row->namespace_name_allocation_epoch != command->captured[1] ||
        row->namespace_revision != command->captured[2])
        return sf_catalog_lifecycle_conflict(
            &command->diag, "resolved_namespace_lineage",
            row == NULL ? "tombstoned" : sf_catalog_lifecycle_text(row->lifecycle_state),
            "the namespace changed while the update was on its way");
    if (row->lifecycle_state == SF_PBE(NAMESPACE_LIFECYCLE_STATE, TOMBSTONED))
        return sf_catalog_lifecycle_conflict(&command->diag, "namespace_name", "tombstoned",
                                             "the namespace name is reserved by a tombstone");
    return SF_OK;
}

static enum sf_err namespace_object(struct sf_catalog_command *command, uint64_t namespace_id,
                                    uint64_t epoch, SF_PB(NamespaceDescriptorObject) * *out_object)
{
    const SF_PB(PutNamespaceMetadataRequest) *put =
        (const SF_PB(PutNamespaceMetadataRequest) *)command->request;
    const SF_PB(NamespaceRow) *row = command->rows.ns;
    int64_t now_ms = sf_clock_unix_ms(command->catalog->deps.clock);
    SF_PB(NamespaceDescriptorObject) *object = sf_arena_alloc(command->scratch, sizeof(*object));
    if (object == NULL)
        return sf_catalog_plan_too_large(command);
    searchfabric__v1__namespace_descriptor_object__init(object);
    object->format_version = SF_CATALOG_FORMAT_VERSION;
    object->attempt_id = command->plan.attempt_id;
    object->owner_epoch = command->catalog->owner_epoch;
    object->attempt = command->plan.attempt;
    object->command_identity = command->command_identity;
    object->namespace_id = namespace_id;
    object->namespace_name = put->namespace_name;
    object->namespace_name_allocation_epoch = epoch;
    object->namespace_revision = row == NULL ? 1 : row->namespace_revision + 1;
    object->lifecycle_state =
        row == NULL ? SF_PBE(NAMESPACE_LIFECYCLE_STATE, ACTIVE) : row->lifecycle_state;
    object->lifecycle_updated_at_unix_ms = row == NULL ? now_ms : row->lifecycle_updated_at_unix_ms;
    object->options = put->options != NULL || row == NULL ? put->options : row->options;
    object->encryption = put->encryption != NULL || row == NULL ? put->encryption : row->encryption;
    object->internal_policy_state =
        row == NULL
            ? sf_catalog_policy_bind(command->catalog, put->namespace_name, command->scratch)
            : row->internal_policy_state;
    object->created_at_unix_ms = row == NULL ? now_ms : row->created_at_unix_ms;
    object->updated_at_unix_ms = now_ms;
    *out_object = object;
    return SF_OK;
}

static enum sf_err namespace_plan(struct sf_catalog_command *command)
{
    const SF_PB(PutNamespaceMetadataRequest) *put =
        (const SF_PB(PutNamespaceMetadataRequest) *)command->request;
    const SF_PB(NamespaceRow) *row = command->rows.ns;
    struct sf_catalog_plan *plan = &command->plan;
    enum sf_err err = command->pivoted ? namespace_race(command) : SF_OK;
    if (err == SF_OK && row == NULL && put->encryption == NULL)
        err = sf_diag_bad_field(&command->diag, "encryption", "missing",
                                "a create must say its encryption");
    uint64_t first = 0;
    if (err == SF_OK)
        err = sf_catalog_plan_ts(command, row == NULL ? 2 : 1, &first);
    uint64_t namespace_id = row == NULL ? first : row->namespace_id;
    uint64_t epoch = row == NULL ? 0 : row->namespace_name_allocation_epoch;
    if (err == SF_OK && row == NULL)
        err = reserve_epoch(command, 0, put->namespace_name, namespace_id, &epoch);
    SF_PB(NamespaceDescriptorObject) *object = NULL;
    if (err == SF_OK)
        err = namespace_object(command, namespace_id, epoch, &object);
    if (err == SF_OK)
        err = sf_catalog_plan_outcome(
            command, row == NULL ? first + 1 : first,
            &(struct sf_catalog_subject){namespace_id, put->namespace_name, 0, ""});
    if (err != SF_OK)
        return err;
    plan->lane_shard = command->pivoted
                           ? sf_catalog_shard_of_id(command->catalog, namespace_id)
                           : sf_catalog_shard_of_name(command->catalog, put->namespace_name);
    plan->outcome._namespace_name_allocation_epoch_case =
        SEARCHFABRIC__V1__COMMAND_OUTCOME_OBJECT___NAMESPACE_NAME_ALLOCATION_EPOCH_NAMESPACE_NAME_ALLOCATION_EPOCH;
    plan->outcome.namespace_name_allocation_epoch = epoch;
    SF_ASSERT(object != NULL);
    struct sf_buf key = {0};
    sf_catalog_key_namespace(&key, namespace_id, object->namespace_revision);
    err = sf_catalog_plan_object(command, &key, &object->base);
    SF_PB(PutNamespaceMetadataResponse) response;
    searchfabric__v1__put_namespace_metadata_response__init(&response);
    const SF_PB(NamespaceRow) *after = sf_catalog_namespace_row(object, row, command->scratch);
    if (err == SF_OK && after != NULL)
        response.descriptor = sf_catalog_namespace_descriptor(after, command->scratch);
    if (err == SF_OK && response.descriptor == NULL)
        err = sf_catalog_plan_too_large(command);
    return err == SF_OK ? sf_catalog_plan_success(command, &response.base) : err;
}

static void namespace_gates(const struct sf_catalog_command *command,
                            struct sf_catalog_gates *out_gates)
{
    out_gates->namespace_id = command->pivoted ? command->captured[0] : 0;
}

const struct sf_catalog_mutation sf_catalog_put_namespace = {
    .kind = SF_PBE(COMMAND_KIND, PUT_NAMESPACE_METADATA),
    .family = SF_CATALOG_FAMILY_PUT_NAMESPACE,
    .kind_name = "PUT_NAMESPACE_METADATA",
    .rpc_method = "PutNamespaceMetadata",
    .first_lane = SF_CATALOG_LANE_NAMESPACE_NAME,
    .id_lane = SF_CATALOG_LANE_NAMESPACE_ID,
    .check = namespace_check,
    .scope = namespace_scope,
    .lane_key = namespace_lane_key,
    .load = namespace_load,
    .plan = namespace_plan,
    .gates = namespace_gates,
};

/* ---- PutCollectionMetadata ---------------------------------------------------------------- */

static enum sf_err collection_check(const ProtobufCMessage *request, struct sf_diag *diag)
{
    const SF_PB(PutCollectionMetadataRequest) *put =
        (const SF_PB(PutCollectionMetadataRequest) *)request;
    enum sf_err err = sf_catalog_binding_check(put->name_binding, diag);
    if (err == SF_OK)
        err = sf_catalog_encryption_check(put->encryption, diag);
    if (err == SF_OK)
        err = sf_catalog_options_check(put->options, diag);
    if (err == SF_OK &&
        (unsigned)put->collection_truth_mode > SF_PBE(COLLECTION_TRUTH_MODE, SEARCH_FABRIC))
        err = sf_diag_bad_field(diag, "collection_truth_mode", "unknown", "no such truth mode");
    return err;
}

static void collection_scope(const ProtobufCMessage *request, struct sf_keyhash *kh)
{
    const SF_PB(PutCollectionMetadataRequest) *put =
        (const SF_PB(PutCollectionMetadataRequest) *)request;
    sf_keyhash_u64(kh, put->name_binding->namespace_id);
    sf_keyhash_bytes(kh, sf_view_str(put->name_binding->collection_name));
}

static void collection_lane_key(const struct sf_catalog_command *command, enum sf_catalog_lane lane,
                                struct sf_keyhash *kh)
{
    const SF_PB(PutCollectionMetadataRequest) *put =
        (const SF_PB(PutCollectionMetadataRequest) *)command->request;
    if (lane == SF_CATALOG_LANE_COLLECTION_NAME) {
        collection_scope(command->request, kh);
    } else {
        sf_keyhash_u64(kh, put->name_binding->namespace_id);
        sf_keyhash_u64(kh, command->captured[0]);
    }
}

static enum sf_err collection_load(struct sf_catalog_command *command, struct sf_sql_conn *conn,
                                   bool *out_pivot)
{
    const SF_PB(PutCollectionMetadataRequest) *put =
        (const SF_PB(PutCollectionMetadataRequest) *)command->request;
    uint64_t namespace_id = put->name_binding->namespace_id;
    enum sf_err err = sf_catalog_sql_namespace(conn, namespace_id, command->scratch, &command->diag,
                                               &command->rows.ns);
    if (err != SF_OK)
        return err;
    if (command->pivoted)
        return sf_catalog_sql_collection(conn, namespace_id, command->captured[0], command->scratch,
                                         &command->diag, &command->rows.collection);
    err = sf_catalog_sql_collection_named(conn, namespace_id, put->name_binding->collection_name,
                                          command->scratch, &command->diag,
                                          &command->rows.collection);
    const SF_PB(CollectionRow) *row = command->rows.collection;
    *out_pivot = err == SF_OK && row != NULL &&
                 row->lifecycle_state == SF_PBE(COLLECTION_ADMISSION_LIFECYCLE, ACTIVE);
    if (*out_pivot) {
        command->captured[0] = row->collection->collection_id;
        command->captured[1] = row->collection_name_allocation_epoch;
        command->captured[2] = row->descriptor_revision;
    }
    return err;
}

/* Facts of parent and lineage (OP-03, OP-08, OP-29). */
static enum sf_err collection_facts(struct sf_catalog_command *command,
                                    SF_PB(CollectionTruthMode) * out_mode)
{
    const SF_PB(PutCollectionMetadataRequest) *put =
        (const SF_PB(PutCollectionMetadataRequest) *)command->request;
    const SF_PB(NamespaceRow) *ns = command->rows.ns;
    const SF_PB(CollectionRow) *row = command->rows.collection;
    if (ns == NULL)
        return sf_diag_set(&command->diag, SF_RESOURCE_NOT_FOUND, "no such namespace");
    bool tombstoned =
        row != NULL && row->lifecycle_state == SF_PBE(COLLECTION_ADMISSION_LIFECYCLE, TOMBSTONED);
    if (command->pivoted && (row == NULL || tombstoned ||
                             row->collection_name_allocation_epoch != command->captured[1] ||
                             row->descriptor_revision != command->captured[2]))
        return sf_catalog_lifecycle_conflict(
            &command->diag, "resolved_collection_lineage",
            row == NULL || tombstoned ? "tombstoned" : "active",
            "the collection changed while the update was on its way");
    if (ns->lifecycle_state == SF_PBE(NAMESPACE_LIFECYCLE_STATE, TOMBSTONED) ||
        (row == NULL && ns->lifecycle_state == SF_PBE(NAMESPACE_LIFECYCLE_STATE, QUIESCING)))
        return sf_catalog_lifecycle_conflict(
            &command->diag, "parent_namespace", sf_catalog_lifecycle_text(ns->lifecycle_state),
            row == NULL ? "the namespace takes no new collection" : "the namespace is tombstoned");
    if (tombstoned)
        return sf_catalog_lifecycle_conflict(&command->diag, "collection_name", "tombstoned",
                                             "the collection name is reserved by a tombstone");
    SF_PB(CollectionTruthMode) wanted = put->collection_truth_mode;
    if (row != NULL)
        *out_mode = row->collection_truth_mode;
    else if (wanted != SF_PBE(COLLECTION_TRUTH_MODE, UNSPECIFIED))
        *out_mode = wanted;
    else
        *out_mode = sf_catalog_mode_default(command->meta->client_kind);
    if (wanted != SF_PBE(COLLECTION_TRUTH_MODE, UNSPECIFIED) && wanted != *out_mode)
        return sf_catalog_mode_conflict(command->meta->client_kind, *out_mode, &command->diag,
                                        "the collection's truth mode is reserved and another one");
    return sf_catalog_mode_check(command->meta->client_kind, *out_mode, &command->diag);
}

static enum sf_err collection_object(struct sf_catalog_command *command, uint64_t collection_id,
                                     uint64_t epoch, SF_PB(CollectionTruthMode) mode,
                                     SF_PB(CollectionDescriptorObject) * *out_object)
{
    const SF_PB(PutCollectionMetadataRequest) *put =
        (const SF_PB(PutCollectionMetadataRequest) *)command->request;
    const SF_PB(CollectionRow) *row = command->rows.collection;
    int64_t now_ms = sf_clock_unix_ms(command->catalog->deps.clock);
    SF_PB(CollectionDescriptorObject) *object = sf_arena_alloc(command->scratch, sizeof(*object));
    SF_PB(CollectionRef) *ref = sf_arena_alloc(command->scratch, sizeof(*ref));
    if (object == NULL || ref == NULL)
        return sf_catalog_plan_too_large(command);
    searchfabric__v1__collection_descriptor_object__init(object);
    searchfabric__v1__collection_ref__init(ref);
    ref->namespace_id = put->name_binding->namespace_id;
    ref->collection_id = collection_id;
    object->format_version = SF_CATALOG_FORMAT_VERSION;
    object->attempt_id = command->plan.attempt_id;
    object->owner_epoch = command->catalog->owner_epoch;
    object->attempt = command->plan.attempt;
    object->command_identity = command->command_identity;
    object->collection = ref;
    object->collection_name = put->name_binding->collection_name;
    object->collection_name_allocation_epoch = epoch;
    object->descriptor_revision = row == NULL ? 1 : row->descriptor_revision + 1;
    object->collection_truth_mode = mode;
    object->options = put->options != NULL || row == NULL ? put->options : row->options;
    object->encryption = put->encryption != NULL || row == NULL ? put->encryption : row->encryption;
    object->internal_policy_state = row == NULL ? NULL : row->internal_policy_state;
    object->created_at_unix_ms = row == NULL ? now_ms : row->created_at_unix_ms;
    object->updated_at_unix_ms = now_ms;
    *out_object = object;
    return SF_OK;
}

static enum sf_err collection_plan(struct sf_catalog_command *command)
{
    const SF_PB(PutCollectionMetadataRequest) *put =
        (const SF_PB(PutCollectionMetadataRequest) *)command->request;
    const SF_PB(CollectionRow) *row = command->rows.collection;
    struct sf_catalog_plan *plan = &command->plan;
    uint64_t namespace_id = put->name_binding->namespace_id;
    const char *name = put->name_binding->collection_name;
    SF_PB(CollectionTruthMode) mode = SF_PBE(COLLECTION_TRUTH_MODE, UNSPECIFIED);
    enum sf_err err = collection_facts(command, &mode);
    if (err == SF_OK && row == NULL && put->encryption == NULL)
        err = sf_diag_bad_field(&command->diag, "encryption", "missing",
                                "a create must say its encryption");
    uint64_t first = 0;
    if (err == SF_OK)
        err = sf_catalog_plan_ts(command, row == NULL ? 2 : 1, &first);
    uint64_t collection_id = row == NULL ? first : row->collection->collection_id;
    uint64_t epoch = row == NULL ? 0 : row->collection_name_allocation_epoch;
    if (err == SF_OK && row == NULL)
        err = reserve_epoch(command, namespace_id, name, collection_id, &epoch);
    SF_PB(CollectionDescriptorObject) *object = NULL;
    if (err == SF_OK)
        err = collection_object(command, collection_id, epoch, mode, &object);
    if (err == SF_OK)
        err = sf_catalog_plan_outcome(command, row == NULL ? first + 1 : first,
                                      &(struct sf_catalog_subject){namespace_id,
                                                                   command->rows.ns->namespace_name,
                                                                   collection_id, name});
    if (err != SF_OK)
        return err;
    plan->lane_shard = sf_catalog_shard_of_id(command->catalog, namespace_id);
    plan->outcome._collection_name_allocation_epoch_case =
        SEARCHFABRIC__V1__COMMAND_OUTCOME_OBJECT___COLLECTION_NAME_ALLOCATION_EPOCH_COLLECTION_NAME_ALLOCATION_EPOCH;
    plan->outcome.collection_name_allocation_epoch = epoch;
    if (row == NULL)
        plan->outcome.collection_name_binding_revision =
            command->rows.ns->collection_name_binding_revision + 1;
    SF_ASSERT(object != NULL);
    struct sf_buf key = {0};
    sf_catalog_key_collection(&key, namespace_id, collection_id, object->descriptor_revision);
    err = sf_catalog_plan_object(command, &key, &object->base);
    SF_PB(PutCollectionMetadataResponse) response;
    searchfabric__v1__put_collection_metadata_response__init(&response);
    const SF_PB(CollectionRow) *after = sf_catalog_collection_row(object, row, command->scratch);
    if (err == SF_OK && after != NULL)
        response.descriptor = sf_catalog_collection_descriptor(after, command->scratch);
    if (err == SF_OK && response.descriptor == NULL)
        err = sf_catalog_plan_too_large(command);
    return err == SF_OK ? sf_catalog_plan_success(command, &response.base) : err;
}

static void collection_gates(const struct sf_catalog_command *command,
                             struct sf_catalog_gates *out_gates)
{
    out_gates->namespace_id =
        ((const SF_PB(PutCollectionMetadataRequest) *)command->request)->name_binding->namespace_id;
    out_gates->collection_id = command->pivoted ? command->captured[0] : 0;
}

const struct sf_catalog_mutation sf_catalog_put_collection = {
    .kind = SF_PBE(COMMAND_KIND, PUT_COLLECTION_METADATA),
    .family = SF_CATALOG_FAMILY_PUT_COLLECTION,
    .kind_name = "PUT_COLLECTION_METADATA",
    .rpc_method = "PutCollectionMetadata",
    .first_lane = SF_CATALOG_LANE_COLLECTION_NAME,
    .id_lane = SF_CATALOG_LANE_COLLECTION_ID,
    .check = collection_check,
    .scope = collection_scope,
    .lane_key = collection_lane_key,
    .load = collection_load,
    .plan = collection_plan,
    .gates = collection_gates,
};
