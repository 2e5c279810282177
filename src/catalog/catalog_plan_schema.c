/*
 * Model: PutCollectionSchema. It has a business identity beside its transport identity: the
 * generation (version and token) of a collection. A request whose business identity stands under
 * another key is recorded, as a replay or as a conflict; only the first writes a generation.
 */
#include "catalog/catalog_gate.h"
#include "catalog/catalog_rules.h"

#include "contract/error_status.h"

static enum sf_err schema_check(const ProtobufCMessage *request, struct sf_diag *diag)
{
    return sf_catalog_schema_check((const SF_PB(PutCollectionSchemaRequest) *)request, diag);
}

static void schema_scope(const ProtobufCMessage *request, struct sf_keyhash *kh)
{
    const SF_PB(PutCollectionSchemaRequest) *put =
        (const SF_PB(PutCollectionSchemaRequest) *)request;
    sf_keyhash_u64(kh, put->collection->namespace_id);
    sf_keyhash_u64(kh, put->collection->collection_id);
}

static void schema_business(const ProtobufCMessage *request, char out_hex[SF_SHA256_HEX_BYTES])
{
    const SF_PB(PutCollectionSchemaRequest) *put =
        (const SF_PB(PutCollectionSchemaRequest) *)request;
    struct sf_keyhash kh;
    sf_keyhash_init(&kh, "sf/ccs/business/put-collection-schema/1");
    schema_scope(request, &kh);
    sf_keyhash_u64(&kh, put->schema_version);
    sf_keyhash_bytes(&kh, sf_view_str(put->fence->schema_generation_token));
    sf_keyhash_finish_hex(&kh, out_hex);
}

static void schema_lane_key(const struct sf_catalog_command *command, enum sf_catalog_lane lane,
                            struct sf_keyhash *kh)
{
    (void)lane;
    schema_scope(command->request, kh);
}

static enum sf_err schema_load(struct sf_catalog_command *command, struct sf_sql_conn *conn,
                               bool *out_pivot)
{
    const SF_PB(PutCollectionSchemaRequest) *put =
        (const SF_PB(PutCollectionSchemaRequest) *)command->request;
    struct sf_catalog_rows *rows = &command->rows;
    uint64_t ns = put->collection->namespace_id;
    uint64_t id = put->collection->collection_id;
    struct sf_arena *arena = command->scratch;
    struct sf_diag *diag = &command->diag;
    *out_pivot = false;
    enum sf_err err = sf_catalog_sql_business(conn, command->ops->kind_name, command->business_key,
                                              arena, diag, &rows->business);
    if (err == SF_OK)
        err = sf_catalog_sql_collection(conn, ns, id, arena, diag, &rows->collection);
    if (err != SF_OK || rows->collection == NULL)
        return err;
    err = sf_catalog_sql_namespace(conn, ns, arena, diag, &rows->ns);
    if (err == SF_OK && rows->collection->_active_schema_version_case != 0)
        err = sf_catalog_sql_generation(conn, ns, id, SF_CATALOG_GENERATION_VERSION,
                                        rows->collection->active_schema_version, NULL, arena, diag,
                                        &rows->active);
    if (err == SF_OK)
        err =
            sf_catalog_sql_generation(conn, ns, id, SF_CATALOG_GENERATION_VERSION,
                                      put->schema_version, NULL, arena, diag, &rows->same_version);
    if (err == SF_OK)
        err = sf_catalog_sql_generation(conn, ns, id, SF_CATALOG_GENERATION_TOKEN, 0,
                                        put->fence->schema_generation_token, arena, diag,
                                        &rows->same_token);
    return err;
}

static SF_PB(ActiveSchemaUpdatePolicy) schema_policy(const SF_PB(PutCollectionSchemaRequest) * put)
{
    return put->active_schema_update_policy == SF_PBE(ACTIVE_SCHEMA_UPDATE_POLICY, UNSPECIFIED)
               ? SF_PBE(ACTIVE_SCHEMA_UPDATE_POLICY, COMPATIBLE_ONLY)
               : put->active_schema_update_policy;
}

/* A request whose business identity stands under another key (OP-14, OP-16): recorded either way.
 */
static enum sf_err plan_business(struct sf_catalog_command *command)
{
    const SF_PB(PutCollectionSchemaRequest) *put =
        (const SF_PB(PutCollectionSchemaRequest) *)command->request;
    const SF_PB(CommandOutcomeObject) *original = command->rows.business;
    const SF_PB(SchemaGenerationRow) *stands = command->rows.same_version;
    SF_PB(CommandOutcomeObject) *outcome = &command->plan.outcome;
    if (strcmp(original->payload_fingerprint, command->fingerprint) == 0) {
        outcome->replay_classification = SF_PBE(REPLAY_CLASSIFICATION, REPLAY_SAME_PAYLOAD);
        outcome->success_payload = original->success_payload;
        outcome->success_payload_type = original->success_payload_type;
        return SF_OK;
    }
    bool same_content = stands != NULL && stands->body->ddl_commit_ts == put->ddl_commit_ts &&
                        stands->body->active_schema_update_policy == schema_policy(put) &&
                        sf_catalog_same(&stands->body->definition->base, &put->definition->base);
    sf_diag_set(&command->diag, same_content ? SF_VERSION_CONFLICT : SF_IDEMPOTENCY_CONFLICT,
                same_content ? "this schema generation stands with other fence preconditions"
                             : "this schema generation stands with another content");
    sf_diag_area(&command->diag, "catalog");
    outcome->terminal_state = SF_PBE(COMMAND_TERMINAL_STATE, FAILED);
    outcome->replay_classification = SF_PBE(REPLAY_CLASSIFICATION, REPLAY_CONFLICT);
    outcome->failure = sf_error_status_build(&command->diag, command->scratch);
    return outcome->failure == NULL ? sf_catalog_plan_too_large(command) : SF_OK;
}

static enum sf_err schema_facts(struct sf_catalog_command *command)
{
    const SF_PB(PutCollectionSchemaRequest) *put =
        (const SF_PB(PutCollectionSchemaRequest) *)command->request;
    const struct sf_catalog_rows *rows = &command->rows;
    if (rows->collection == NULL ||
        rows->collection->lifecycle_state != SF_PBE(COLLECTION_ADMISSION_LIFECYCLE, ACTIVE))
        return sf_diag_set(&command->diag, SF_RESOURCE_NOT_FOUND, "no such active collection");
    if (put->definition->collection_truth_mode != rows->collection->collection_truth_mode)
        return sf_catalog_mode_conflict(command->meta->client_kind,
                                        rows->collection->collection_truth_mode, &command->diag,
                                        "the collection's truth mode is reserved and another one");
    return sf_catalog_mode_check(command->meta->client_kind,
                                 rows->collection->collection_truth_mode, &command->diag);
}

static enum sf_err schema_object(struct sf_catalog_command *command, uint64_t applied_ts,
                                 SF_PB(SchemaGenerationObject) * *out_object)
{
    const SF_PB(PutCollectionSchemaRequest) *put =
        (const SF_PB(PutCollectionSchemaRequest) *)command->request;
    struct sf_arena *arena = command->scratch;
    SF_PB(SchemaGenerationObject) *object = sf_arena_alloc(arena, sizeof(*object));
    SF_PB(SchemaGenerationBody) *body = sf_arena_alloc(arena, sizeof(*body));
    SF_PB(SchemaConvergence) *convergence = sf_arena_alloc(arena, sizeof(*convergence));
    char *body_sha = sf_arena_alloc(arena, SF_SHA256_HEX_BYTES);
    if (object == NULL || body == NULL || convergence == NULL || body_sha == NULL)
        return sf_catalog_plan_too_large(command);
    searchfabric__v1__schema_generation_object__init(object);
    searchfabric__v1__schema_generation_body__init(body);
    searchfabric__v1__schema_convergence__init(convergence);
    int64_t now_ms = sf_clock_unix_ms(command->catalog->deps.clock);
    body->command_identity = command->command_identity;
    body->collection = put->collection;
    body->schema_version = put->schema_version;
    body->schema_generation_token = put->fence->schema_generation_token;
    body->definition = put->definition;
    body->ddl_commit_ts = put->ddl_commit_ts;
    body->applied_commit_ts = applied_ts;
    body->active_schema_update_policy = schema_policy(put);
    body->effective_max_result_window =
        sf_catalog_result_window(put->definition, command->catalog->max_result_window);
    body->created_at_unix_ms = now_ms;
    convergence->state =
        sf_catalog_sync_state(SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_APPLYING, "", arena);
    convergence->owner_epoch = command->catalog->owner_epoch;
    convergence->convergence_version = 1;
    convergence->last_signal = SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, SCHEMA_OBJECT_PERSISTED);
    convergence->updated_at_unix_ms = now_ms;
    sf_catalog_body_sha256(body, body_sha);
    object->format_version = SF_CATALOG_FORMAT_VERSION;
    object->attempt_id = command->plan.attempt_id;
    object->owner_epoch = command->catalog->owner_epoch;
    object->attempt = command->plan.attempt;
    object->body_sha256 = body_sha;
    object->body = body;
    object->convergence = convergence;
    *out_object = object;
    return SF_OK;
}

/* The first generation with this identity. */
static enum sf_err plan_generation(struct sf_catalog_command *command, uint64_t applied_ts)
{
    const SF_PB(PutCollectionSchemaRequest) *put =
        (const SF_PB(PutCollectionSchemaRequest) *)command->request;
    SF_PB(SchemaGenerationObject) *object = NULL;
    enum sf_err err = schema_object(command, applied_ts, &object);
    if (err != SF_OK)
        return err;
    SF_ASSERT(object != NULL);
    struct sf_buf key = {0};
    sf_catalog_key_generation(&key, put->collection->namespace_id, put->collection->collection_id,
                              put->schema_version, put->fence->schema_generation_token);
    err = sf_catalog_plan_object(command, &key, &object->base);
    command->plan.ref.sha256 = object->body_sha256;
    SF_PB(PutCollectionSchemaResponse) response;
    searchfabric__v1__put_collection_schema_response__init(&response);
    response.schema = sf_catalog_schema_descriptor(object->body, command->scratch);
    if (err == SF_OK && response.schema == NULL)
        err = sf_catalog_plan_too_large(command);
    return err == SF_OK ? sf_catalog_plan_success(command, &response.base) : err;
}

static enum sf_err schema_plan(struct sf_catalog_command *command)
{
    const SF_PB(PutCollectionSchemaRequest) *put =
        (const SF_PB(PutCollectionSchemaRequest) *)command->request;
    const struct sf_catalog_rows *rows = &command->rows;
    uint64_t namespace_id = put->collection->namespace_id;
    enum sf_err err = schema_facts(command);
    if (err == SF_OK && rows->business == NULL)
        err = sf_catalog_fence_check(put, rows->active, rows->same_version, rows->same_token,
                                     &command->diag);
    if (err == SF_OK && rows->business == NULL)
        err = sf_catalog_compatible_check(put, rows->active, &command->diag);
    if (err == SF_OK && rows->business == NULL && rows->active != NULL)
        err = sf_catalog_adopt(command->catalog, namespace_id, put->collection->collection_id,
                               command->scratch, &command->diag);
    uint64_t applied_ts = 0;
    if (err == SF_OK)
        err = sf_catalog_plan_ts(command, 1, &applied_ts);
    if (err == SF_OK)
        err = sf_catalog_plan_outcome(
            command, applied_ts,
            &(struct sf_catalog_subject){
                namespace_id, rows->ns == NULL ? "" : rows->ns->namespace_name,
                put->collection->collection_id, rows->collection->collection_name});
    if (err != SF_OK)
        return err;
    SF_PB(CommandOutcomeObject) *outcome = &command->plan.outcome;
    command->plan.lane_shard = sf_catalog_shard_of_id(command->catalog, namespace_id);
    outcome->_schema_version_case =
        SEARCHFABRIC__V1__COMMAND_OUTCOME_OBJECT___SCHEMA_VERSION_SCHEMA_VERSION;
    outcome->schema_version = put->schema_version;
    outcome->fence = put->fence;
    if (rows->business != NULL)
        return plan_business(command);
    return plan_generation(command, applied_ts);
}

static void schema_gates(const struct sf_catalog_command *command,
                         struct sf_catalog_gates *out_gates)
{
    const SF_PB(CollectionRef) *ref =
        ((const SF_PB(PutCollectionSchemaRequest) *)command->request)->collection;
    out_gates->namespace_id = ref->namespace_id;
    out_gates->collection_id = ref->collection_id;
}

const struct sf_catalog_mutation sf_catalog_put_schema = {
    .kind = SF_PBE(COMMAND_KIND, PUT_COLLECTION_SCHEMA),
    .family = SF_CATALOG_FAMILY_PUT_SCHEMA,
    .kind_name = "PUT_COLLECTION_SCHEMA",
    .rpc_method = "PutCollectionSchema",
    .first_lane = SF_CATALOG_LANE_COLLECTION_ID,
    .id_lane = SF_CATALOG_LANE_COLLECTION_ID,
    .check = schema_check,
    .scope = schema_scope,
    .business = schema_business,
    .lane_key = schema_lane_key,
    .load = schema_load,
    .plan = schema_plan,
    .gates = schema_gates,
};
