/*
 * Model: a schema generation is judged alone first (its definition), then against its lineage: the
 * fence (expected previous version, growing version, one token per version, monotonic DDL time) and
 * the update policy. Convergence is a table: APPLYING -ready-> READY, any of APPLYING and READY
 * -drift-> DRIFTED, APPLYING and DRIFTED -repair_failed-> ERROR, DRIFTED and ERROR
 * -repair_succeeded-> READY. Repeats are no-ops, everything else is refused.
 */
#include "catalog/catalog_manifest.h"
#include "catalog/catalog_rules.h"

#include <stdarg.h>
#include <stdio.h>

#define MAX_FIELDS            1000
#define MAX_FIELD_OPTIONS     32
#define MAX_SCHEMA_OPTIONS    64
#define MAX_VECTOR_DIMENSIONS 4096
#define MAX_RESULT_WINDOW     1000000u
#define MAX_TRANSITIONS       2
#define MAX_TUPLES            SF_CATALOG_SUMMARY_TUPLES

static enum sf_err check_field(const SF_PB(FieldDefinition) * field, struct sf_diag *diag)
{
    enum sf_err err = sf_identity_check("definition.fields.name", sf_view_str(field->name), 1,
                                        SF_CATALOG_FIELD_NAME_SCALARS, diag);
    if (err != SF_OK)
        return err;
    if (field->type < SF_PBE(FIELD_TYPE, KEYWORD) || field->type > SF_PBE(FIELD_TYPE, OBJECT))
        return sf_diag_bad_field(diag, "definition.fields.type", "unknown",
                                 "field %s has no known type", field->name);
    if (field->n_modalities == 0)
        return sf_diag_bad_field(diag, "definition.fields.modalities", "empty",
                                 "field %s names no modality", field->name);
    for (size_t i = 0; i < field->n_modalities; i++) {
        if (field->modalities[i] < SF_PBE(MODALITY, METADATA_SEARCH) ||
            field->modalities[i] > SF_PBE(MODALITY, METADATA_AUX))
            return sf_diag_bad_field(diag, "definition.fields.modalities", "unknown",
                                     "field %s names an unknown modality", field->name);
    }
    bool dense = field->type == SF_PBE(FIELD_TYPE, DENSE_VECTOR);
    if (dense != (field->vector != NULL))
        return sf_diag_bad_field(diag, "definition.fields.vector", dense ? "missing" : "forbidden",
                                 "field %s: vector settings belong to DENSE_VECTOR", field->name);
    if (dense &&
        (field->vector->dimensions == 0 || field->vector->dimensions > MAX_VECTOR_DIMENSIONS))
        return sf_diag_bad_field(diag, "definition.fields.vector", "out_of_range",
                                 "field %s: a vector has 1..%d dimensions", field->name,
                                 MAX_VECTOR_DIMENSIONS);
    if (dense && (unsigned)field->vector->similarity > SF_PBE(VECTOR_SIMILARITY, L2))
        return sf_diag_bad_field(diag, "definition.fields.vector", "unknown",
                                 "field %s: no such similarity", field->name);
    return sf_catalog_entries_check("definition.fields.options", field->options, field->n_options,
                                    MAX_FIELD_OPTIONS, diag);
}

static enum sf_err check_fields(const SF_PB(CollectionSchemaDefinition) * definition,
                                struct sf_diag *diag)
{
    if (definition->n_fields > MAX_FIELDS)
        return sf_diag_bad_field(diag, "definition.fields", "too_many",
                                 "a schema has at most %d fields", MAX_FIELDS);
    struct sf_map *seen = sf_map_new();
    enum sf_err err = SF_OK;
    for (size_t i = 0; i < definition->n_fields && err == SF_OK; i++) {
        SF_PB(FieldDefinition) *field = definition->fields[i];
        err = check_field(field, diag);
        if (err == SF_OK && sf_map_put(seen, sf_view_str(field->name), field) != NULL)
            err = sf_diag_bad_field(diag, "definition.fields.name", "duplicate",
                                    "field %s is declared twice", field->name);
    }
    sf_map_destroy(seen, NULL);
    return err;
}

static const SF_PB(FieldDefinition) *
    find_field(const SF_PB(CollectionSchemaDefinition) * definition, const char *name)
{
    for (size_t i = 0; i < definition->n_fields; i++) {
        if (strcmp(definition->fields[i]->name, name) == 0)
            return definition->fields[i];
    }
    return NULL;
}

static enum sf_err check_lifecycle(const SF_PB(CollectionSchemaDefinition) * definition,
                                   const SF_PB(LifecyclePolicy) * policy, struct sf_diag *diag)
{
    const SF_PB(FieldDefinition) *field = find_field(definition, policy->time_partition_field);
    if (field == NULL || field->type != SF_PBE(FIELD_TYPE, TIMESTAMP))
        return sf_diag_bad_field(diag, "definition.settings.lifecycle_policy.time_partition_field",
                                 "not_a_timestamp", "it must name a declared TIMESTAMP field");
    if (policy->window_ms == 0)
        return sf_diag_bad_field(diag, "definition.settings.lifecycle_policy.window_ms", "zero",
                                 "a window has a length");
    if (policy->n_transitions > MAX_TRANSITIONS)
        return sf_diag_bad_field(diag, "definition.settings.lifecycle_policy.transitions",
                                 "too_many", "at most %d transitions", MAX_TRANSITIONS);
    uint64_t after_ms = 0;
    int tier = SF_PBE(DATA_TIER, HOT);
    for (size_t i = 0; i < policy->n_transitions; i++) {
        const SF_PB(LifecycleTransition) *step = policy->transitions[i];
        if (step->target_tier < SF_PBE(DATA_TIER, HOT) ||
            step->target_tier > SF_PBE(DATA_TIER, COLD))
            return sf_diag_bad_field(diag, "definition.settings.lifecycle_policy.transitions",
                                     "unknown", "no such tier");
        if (step->after_ms <= after_ms || (int)step->target_tier <= tier)
            return sf_diag_bad_field(diag, "definition.settings.lifecycle_policy.transitions",
                                     "not_monotonic", "transitions grow older and colder");
        after_ms = step->after_ms;
        tier = (int)step->target_tier;
    }
    return SF_OK;
}

static enum sf_err check_tuple(const SF_PB(CollectionSchemaDefinition) * definition,
                               const SF_PB(StatisticsTuple) * tuple, struct sf_diag *diag)
{
    static const char *const where = "definition.extended_statistics.field_paths";
    if (tuple->n_field_paths < 2 || tuple->n_field_paths > SF_CATALOG_TUPLE_PATHS)
        return sf_diag_bad_field(diag, where, "out_of_range", "a tuple has 2..%d fields",
                                 SF_CATALOG_TUPLE_PATHS);
    for (size_t i = 0; i < tuple->n_field_paths; i++) {
        const char *path = tuple->field_paths[i];
        if (find_field(definition, path) == NULL)
            return sf_diag_bad_field(diag, where, "unknown", "field %s is not declared", path);
        for (size_t k = 0; k < i; k++) {
            if (strcmp(tuple->field_paths[k], path) == 0)
                return sf_diag_bad_field(diag, where, "duplicate", "field %s is named twice", path);
        }
    }
    return SF_OK;
}

/* The declared family of extended statistics. */
static enum sf_err check_tuples(const SF_PB(CollectionSchemaDefinition) * definition,
                                struct sf_diag *diag)
{
    static const char *const where = "definition.extended_statistics";
    if (definition->n_extended_statistics > MAX_TUPLES)
        return sf_diag_bad_field(diag, where, "too_many", "at most %d tuples", MAX_TUPLES);
    enum sf_err err = SF_OK;
    for (size_t i = 0; i < definition->n_extended_statistics && err == SF_OK; i++) {
        const SF_PB(StatisticsTuple) *tuple = definition->extended_statistics[i];
        err = check_tuple(definition, tuple, diag);
        for (size_t k = 0; k < i && err == SF_OK; k++) {
            const SF_PB(StatisticsTuple) *before = definition->extended_statistics[k];
            if (sf_catalog_tuple_compare(before->field_paths, before->n_field_paths,
                                         tuple->field_paths, tuple->n_field_paths) == 0)
                err = sf_diag_bad_field(diag, where, "duplicate", "a tuple is declared twice");
        }
    }
    return err;
}

static enum sf_err check_allocator(const SF_PB(CollectionSchemaDefinition) * definition,
                                   struct sf_diag *diag)
{
    static const char *const where = "definition.settings.allocator_admission_policy";
    const SF_PB(AllocatorAdmissionPolicy) *policy =
        definition->settings == NULL ? NULL : definition->settings->allocator_admission_policy;
    bool wanted = definition->doc_id_mapping->generation_policy ==
                  SF_PBE(DOC_ID_GENERATION_POLICY, ALLOCATOR_OPTIONAL);
    if (wanted != (policy != NULL))
        return sf_diag_bad_field(diag, where, wanted ? "missing" : "forbidden",
                                 "the policy belongs to ALLOCATOR_OPTIONAL");
    if (!wanted)
        return SF_OK;
    if (policy->caller_profile != SF_PBE(ALLOCATOR_CALLER_PROFILE, ES_WRITE_GATEWAY_ONLY))
        return sf_diag_bad_field(diag, where, "unknown", "only ES_WRITE_GATEWAY_ONLY is admitted");
    if (policy->max_plan_items_per_request == 0 ||
        policy->max_plan_items_per_request > SF_LIMIT_ALLOC_PLAN_ITEMS)
        return sf_diag_bad_field(diag, where, "out_of_range", "max_plan_items_per_request is 1..%d",
                                 SF_LIMIT_ALLOC_PLAN_ITEMS);
    if (policy->max_forward_reservation_jump == 0)
        return sf_diag_bad_field(diag, where, "out_of_range",
                                 "max_forward_reservation_jump is above 0");
    return SF_OK;
}

static enum sf_err check_definition(const SF_PB(CollectionSchemaDefinition) * definition,
                                    struct sf_diag *diag)
{
    if (definition->collection_truth_mode != SF_PBE(COLLECTION_TRUTH_MODE, EXTERNAL) &&
        definition->collection_truth_mode != SF_PBE(COLLECTION_TRUTH_MODE, SEARCH_FABRIC))
        return sf_diag_bad_field(diag, "definition.collection_truth_mode", "unknown",
                                 "the truth mode must be said");
    if (definition->doc_id_mapping == NULL)
        return sf_diag_bad_field(diag, "definition.doc_id_mapping", "missing",
                                 "doc_id_mapping is required");
    unsigned policy = (unsigned)definition->doc_id_mapping->generation_policy;
    if (policy < SF_PBE(DOC_ID_GENERATION_POLICY, ALLOCATOR_OPTIONAL) ||
        policy > SF_PBE(DOC_ID_GENERATION_POLICY, CALLER_REQUIRED))
        return sf_diag_bad_field(diag, "definition.doc_id_mapping.generation_policy", "unknown",
                                 "the generation policy must be said");
    if ((unsigned)definition->undeclared_fields > SF_PBE(UNDECLARED_FIELD_POLICY, REJECT))
        return sf_diag_bad_field(diag, "definition.undeclared_fields", "unknown", "no such policy");
    enum sf_err err = sf_catalog_entries_check("definition.options", definition->options,
                                               definition->n_options, MAX_SCHEMA_OPTIONS, diag);
    if (err == SF_OK)
        err = check_fields(definition, diag);
    if (err == SF_OK)
        err = check_tuples(definition, diag);
    if (err == SF_OK)
        err = check_allocator(definition, diag);
    const SF_PB(CollectionSettings) *settings = definition->settings;
    if (err != SF_OK || settings == NULL)
        return err;
    if (settings->_max_result_window_case != 0 &&
        (settings->max_result_window == 0 || settings->max_result_window > MAX_RESULT_WINDOW))
        return sf_diag_bad_field(diag, "definition.settings.max_result_window", "out_of_range",
                                 "max_result_window is 1..%u", MAX_RESULT_WINDOW);
    if (settings->lifecycle_policy != NULL)
        return check_lifecycle(definition, settings->lifecycle_policy, diag);
    return SF_OK;
}

enum sf_err sf_catalog_schema_check(const SF_PB(PutCollectionSchemaRequest) * request,
                                    struct sf_diag *diag)
{
    enum sf_err err = sf_catalog_ref_check(request->collection, diag);
    if (err != SF_OK)
        return err;
    if (request->schema_version == 0)
        return sf_diag_bad_field(diag, "schema_version", "zero", "a schema version is above 0");
    if (request->fence == NULL)
        return sf_diag_bad_field(diag, "fence", "missing", "fence is required");
    err = sf_identity_check("fence.schema_generation_token",
                            sf_view_str(request->fence->schema_generation_token), 1,
                            SF_LIMIT_SCHEMA_TOKEN_SCALARS, diag);
    if (err != SF_OK)
        return err;
    if ((unsigned)request->active_schema_update_policy >
        SF_PBE(ACTIVE_SCHEMA_UPDATE_POLICY, REBUILD))
        return sf_diag_bad_field(diag, "active_schema_update_policy", "unknown", "no such policy");
    if (request->definition == NULL)
        return sf_diag_bad_field(diag, "definition", "missing", "definition is required");
    return check_definition(request->definition, diag);
}

/* SF_VERSION_CONFLICT with the keys of a schema fence conflict. */
SF_PRINTF(4, 5)
static enum sf_err fence_conflict(const SF_PB(SchemaGenerationRow) * active, const char *violated,
                                  struct sf_diag *diag, const char *fmt, ...)
{
    char message[160];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(message, sizeof(message), fmt, args);
    va_end(args);
    sf_diag_set(diag, SF_VERSION_CONFLICT, "%s", message);
    sf_diag_detail(diag, "violated_precondition", "%s", violated);
    sf_diag_detail(diag, "active_schema_version", "%llu",
                   (unsigned long long)(active == NULL ? 0 : active->body->schema_version));
    sf_diag_detail(diag, "active_schema_generation_token", "%s",
                   active == NULL ? "" : active->body->schema_generation_token);
    return SF_VERSION_CONFLICT;
}

enum sf_err sf_catalog_fence_check(const SF_PB(PutCollectionSchemaRequest) * request,
                                   const SF_PB(SchemaGenerationRow) * active,
                                   const SF_PB(SchemaGenerationRow) * same_version,
                                   const SF_PB(SchemaGenerationRow) * same_token,
                                   struct sf_diag *diag)
{
    const SF_PB(SchemaFencePrecondition) *fence = request->fence;
    uint64_t active_version = active == NULL ? 0 : active->body->schema_version;
    if (fence->_expected_prev_schema_version_case != 0 &&
        fence->expected_prev_schema_version != active_version)
        return fence_conflict(active, "expected_prev_schema_version", diag,
                              "fence: the active schema_version is %llu, not %llu",
                              (unsigned long long)active_version,
                              (unsigned long long)fence->expected_prev_schema_version);
    if (same_version != NULL)
        return fence_conflict(active, "schema_generation_token", diag,
                              "schema_version %llu stands with another token",
                              (unsigned long long)request->schema_version);
    if (same_token != NULL)
        return fence_conflict(active, "schema_generation_token", diag,
                              "the schema_generation_token names schema_version %llu already",
                              (unsigned long long)same_token->body->schema_version);
    if (request->schema_version <= active_version)
        return fence_conflict(active, "schema_version", diag,
                              "schema_version must grow: the active one is %llu",
                              (unsigned long long)active_version);
    if (fence->_enforce_monotonic_apply_case != 0 && fence->enforce_monotonic_apply &&
        active != NULL && request->ddl_commit_ts < active->body->ddl_commit_ts)
        return fence_conflict(active, "ddl_commit_ts", diag,
                              "ddl_commit_ts goes back: %llu is active",
                              (unsigned long long)active->body->ddl_commit_ts);
    return SF_OK;
}

enum sf_err sf_catalog_drop_fence_check(const SF_PB(SchemaFencePrecondition) * fence,
                                        const SF_PB(CollectionRow) * collection,
                                        struct sf_diag *diag)
{
    bool has_active = collection->_active_schema_version_case != 0;
    const char *token = has_active ? collection->active_schema_generation_token : "";
    uint64_t version = has_active ? collection->active_schema_version : 0;
    const char *violated = NULL;
    if (fence == NULL)
        return SF_OK;
    if (!has_active || strcmp(fence->schema_generation_token, token) != 0)
        violated = "schema_generation_token";
    else if (fence->_expected_prev_schema_version_case != 0 &&
             fence->expected_prev_schema_version != version)
        violated = "expected_prev_schema_version";
    if (violated == NULL)
        return SF_OK;
    sf_diag_set(diag, SF_VERSION_CONFLICT, "fence: the drop does not name the active generation");
    sf_diag_detail(diag, "violated_precondition", "%s", violated);
    sf_diag_detail(diag, "active_schema_version", "%llu", (unsigned long long)version);
    sf_diag_detail(diag, "active_schema_generation_token", "%s", token);
    return SF_VERSION_CONFLICT;
}

/* Modalities as a bit set: their order says nothing. */
static unsigned modality_set(const SF_PB(FieldDefinition) * field)
{
    unsigned set = 0;
    for (size_t i = 0; i < field->n_modalities; i++)
        set |= 1u << (unsigned)field->modalities[i];
    return set;
}

enum sf_err sf_catalog_compatible_check(const SF_PB(PutCollectionSchemaRequest) * request,
                                        const SF_PB(SchemaGenerationRow) * active,
                                        struct sf_diag *diag)
{
    if (active == NULL ||
        active->body->active_schema_update_policy == SF_PBE(ACTIVE_SCHEMA_UPDATE_POLICY, REBUILD) ||
        request->active_schema_update_policy == SF_PBE(ACTIVE_SCHEMA_UPDATE_POLICY, REBUILD))
        return SF_OK;
    const SF_PB(CollectionSchemaDefinition) *now = active->body->definition;
    struct sf_map *fields = sf_map_new();
    for (size_t i = 0; i < request->definition->n_fields; i++)
        sf_map_put(fields, sf_view_str(request->definition->fields[i]->name),
                   request->definition->fields[i]);
    enum sf_err err = SF_OK;
    for (size_t i = 0; i < now->n_fields && err == SF_OK; i++) {
        const SF_PB(FieldDefinition) *old = now->fields[i];
        const SF_PB(FieldDefinition) *fresh = sf_map_get(fields, sf_view_str(old->name));
        if (fresh == NULL || fresh->type != old->type || modality_set(fresh) != modality_set(old) ||
            (old->vector != NULL && fresh->vector->dimensions != old->vector->dimensions))
            err = sf_diag_bad_field(diag, "definition.fields", "incompatible",
                                    "field %s of the active generation may not change or go under "
                                    "COMPATIBLE_ONLY",
                                    old->name);
    }
    sf_map_destroy(fields, NULL);
    return err;
}

uint32_t sf_catalog_result_window(const SF_PB(CollectionSchemaDefinition) * definition,
                                  uint32_t server_default)
{
    const SF_PB(CollectionSettings) *settings = definition->settings;
    if (settings != NULL && settings->_max_result_window_case != 0)
        return settings->max_result_window;
    return server_default;
}

size_t sf_catalog_modalities(const SF_PB(CollectionSchemaDefinition) * definition,
                             SF_PB(Modality) out[3])
{
    unsigned set = 1u << SF_PBE(MODALITY, METADATA_SEARCH);
    for (size_t i = 0; i < definition->n_fields; i++)
        set |= modality_set(definition->fields[i]);
    size_t count = 0;
    for (unsigned m = SF_PBE(MODALITY, METADATA_SEARCH); m <= SF_PBE(MODALITY, METADATA_AUX); m++) {
        if ((set & (1u << m)) != 0)
            out[count++] = (SF_PB(Modality))m;
    }
    return count;
}

static void fill_active(SF_PB(CollectionAdmissionState) * out,
                        const SF_PB(SchemaGenerationBody) * body, struct sf_arena *arena)
{
    SF_PB(CollectionSchemaDefinition) *definition = body->definition;
    out->_active_schema_version_case =
        SEARCHFABRIC__V1__COLLECTION_ADMISSION_STATE___ACTIVE_SCHEMA_VERSION_ACTIVE_SCHEMA_VERSION;
    out->active_schema_version = body->schema_version;
    out->_active_schema_generation_token_case =
        SEARCHFABRIC__V1__COLLECTION_ADMISSION_STATE___ACTIVE_SCHEMA_GENERATION_TOKEN_ACTIVE_SCHEMA_GENERATION_TOKEN;
    out->active_schema_generation_token = body->schema_generation_token;
    out->generation_policy = definition->doc_id_mapping->generation_policy;
    if (definition->settings != NULL)
        out->allocator_admission_policy = definition->settings->allocator_admission_policy;
    if (definition->settings != NULL && definition->settings->lifecycle_policy != NULL) {
        SF_PB(EventTimeContract) *event = sf_arena_alloc(arena, sizeof(*event));
        if (event == NULL)
            return;
        searchfabric__v1__event_time_contract__init(event);
        event->time_partition_field = definition->settings->lifecycle_policy->time_partition_field;
        event->field_type = SF_PBE(FIELD_TYPE, TIMESTAMP);
        event->required_on_upsert_and_patch = true;
        out->event_time = event;
    }
    out->enabled_modalities = sf_arena_alloc(arena, 3 * sizeof(*out->enabled_modalities));
    if (out->enabled_modalities == NULL)
        return;
    out->n_enabled_modalities = sf_catalog_modalities(definition, out->enabled_modalities);
    out->fields = definition->fields;
    out->n_fields = definition->n_fields;
    out->undeclared_fields = definition->undeclared_fields;
}

SF_PB(CollectionAdmissionState) *
    sf_catalog_admission_build(const SF_PB(CollectionRow) * collection,
                               const SF_PB(SchemaGenerationRow) * active,
                               const SF_PB(SchemaGenerationRow) * ready, struct sf_arena *arena)
{
    SF_PB(CollectionAdmissionState) *out = sf_arena_alloc(arena, sizeof(*out));
    if (out == NULL)
        return NULL;
    searchfabric__v1__collection_admission_state__init(out);
    out->collection = collection->collection;
    out->collection_name = collection->collection_name;
    out->lifecycle = collection->lifecycle_state;
    out->descriptor_revision = collection->descriptor_revision;
    out->collection_truth_mode = collection->collection_truth_mode;
    if (active == NULL)
        out->schema_bootstrap_state = SF_PBE(SCHEMA_BOOTSTRAP_STATE, NO_ACTIVE_SCHEMA_GENERATION);
    else
        fill_active(out, active->body, arena);
    if (ready != NULL) {
        out->_ready_generation_version_case =
            SEARCHFABRIC__V1__COLLECTION_ADMISSION_STATE___READY_GENERATION_VERSION_READY_GENERATION_VERSION;
        out->ready_generation_version = ready->body->schema_version;
        out->_ready_generation_token_case =
            SEARCHFABRIC__V1__COLLECTION_ADMISSION_STATE___READY_GENERATION_TOKEN_READY_GENERATION_TOKEN;
        out->ready_generation_token = ready->body->schema_generation_token;
        out->effective_max_result_window = ready->body->effective_max_result_window;
    } else if (active != NULL) {
        out->schema_convergence_state =
            SF_PBE(SCHEMA_CONVERGENCE_STATE, NO_READY_SERVING_GENERATION);
    }
    struct sf_keyhash kh;
    char digest[SF_SHA256_HEX_BYTES];
    sf_keyhash_init(&kh, "sf/ccs/descriptor-etag/1");
    sf_keyhash_u64(&kh, collection->collection->namespace_id);
    sf_keyhash_u64(&kh, collection->collection->collection_id);
    sf_keyhash_u64(&kh, collection->descriptor_revision);
    sf_keyhash_u64(&kh, collection->lifecycle_state);
    sf_keyhash_u64(&kh, active == NULL ? 0 : active->body->schema_version);
    sf_keyhash_u64(&kh, ready == NULL ? 0 : ready->body->schema_version);
    sf_keyhash_finish_hex(&kh, digest);
    out->descriptor_etag = sf_arena_str(arena, sf_view_bytes(digest, 32));
    return sf_arena_overflowed(arena) ? NULL : out;
}

#define STATE(name)  SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_##name
#define SIGNAL(name) SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, name)

/* Allowed moves; a signal whose target is the present state is a repeat. */
static const struct {
    SF_PB(SchemaSyncState__StateCase) from;
    SF_PB(SchemaConvergenceSignal) signal;
    SF_PB(SchemaSyncState__StateCase) to;
} moves[] = {
    {STATE(APPLYING), SIGNAL(SCHEMA_OBJECT_PERSISTED), STATE(APPLYING)},
    {STATE(APPLYING), SIGNAL(SERVING_GENERATION_READY), STATE(READY)},
    {STATE(APPLYING), SIGNAL(DRIFT_DETECTED), STATE(DRIFTED)},
    {STATE(APPLYING), SIGNAL(REPAIR_FAILED), STATE(ERROR)},
    {STATE(READY), SIGNAL(SCHEMA_OBJECT_PERSISTED), STATE(READY)},
    {STATE(READY), SIGNAL(SERVING_GENERATION_READY), STATE(READY)},
    {STATE(READY), SIGNAL(REPAIR_SUCCEEDED), STATE(READY)},
    {STATE(READY), SIGNAL(DRIFT_DETECTED), STATE(DRIFTED)},
    {STATE(DRIFTED), SIGNAL(DRIFT_DETECTED), STATE(DRIFTED)},
    {STATE(DRIFTED), SIGNAL(REPAIR_SUCCEEDED), STATE(READY)},
    {STATE(DRIFTED), SIGNAL(REPAIR_FAILED), STATE(ERROR)},
    {STATE(ERROR), SIGNAL(REPAIR_FAILED), STATE(ERROR)},
    {STATE(ERROR), SIGNAL(REPAIR_SUCCEEDED), STATE(READY)},
};

enum sf_catalog_move sf_catalog_converge(SF_PB(SchemaSyncState__StateCase) from,
                                         SF_PB(SchemaConvergenceSignal) signal,
                                         SF_PB(SchemaSyncState__StateCase) * out_state)
{
    for (size_t i = 0; i < SF_ARRAY_LEN(moves); i++) {
        if (moves[i].from == from && moves[i].signal == signal) {
            *out_state = moves[i].to;
            return moves[i].to == from ? SF_CATALOG_MOVE_REPEAT : SF_CATALOG_MOVE_GO;
        }
    }
    *out_state = from;
    return SF_CATALOG_MOVE_REFUSED;
}

SF_PB(SchemaSyncState) * sf_catalog_sync_state(SF_PB(SchemaSyncState__StateCase) which,
                                               const char *reason, struct sf_arena *arena)
{
    SF_PB(SchemaSyncState) *out = sf_arena_alloc(arena, sizeof(*out));
    if (out == NULL)
        return NULL;
    searchfabric__v1__schema_sync_state__init(out);
    out->state_case = which;
    if (which == STATE(READY)) {
        out->ready = sf_arena_alloc(arena, sizeof(*out->ready));
        if (out->ready != NULL)
            searchfabric__v1__schema_ready__init(out->ready);
    } else if (which == STATE(DRIFTED)) {
        out->drifted = sf_arena_alloc(arena, sizeof(*out->drifted));
        if (out->drifted != NULL) {
            searchfabric__v1__schema_drifted__init(out->drifted);
            out->drifted->drift_reason = sf_arena_str(arena, sf_view_str(reason));
        }
    } else if (which == STATE(ERROR)) {
        out->error = sf_arena_alloc(arena, sizeof(*out->error));
        if (out->error != NULL) {
            searchfabric__v1__schema_error__init(out->error);
            out->error->error_reason = sf_arena_str(arena, sf_view_str(reason));
        }
    } else {
        out->state_case = STATE(APPLYING);
        out->applying = sf_arena_alloc(arena, sizeof(*out->applying));
        if (out->applying != NULL)
            searchfabric__v1__schema_applying__init(out->applying);
    }
    return sf_arena_overflowed(arena) ? NULL : out;
}
