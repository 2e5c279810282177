/*
 * Model: a request is judged in one order everywhere (decisions.md 3): malformed, static grants by
 * caller kind, replay, then the facts of the catalog. This file holds what can be judged without
 * the facts, the refusals' exact codes and detail keys, and the derivation of public descriptors
 * from rows. A descriptor never carries private control state; `completeness` is derived from the
 * two lagging fields at every read and never stored.
 */
#include "catalog/catalog_rules.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/pbjson.h"

#define KIND(name) (1u << SF_PBE(CLIENT_KIND, name))

#define KINDS_ES_TP                                                                                \
    (KIND(ES_WRITE_GATEWAY) | KIND(ES_QUERY_GATEWAY) | KIND(TP_WRITE_GATEWAY) |                    \
     KIND(TP_QUERY_GATEWAY))
#define KINDS_ALL                                                                                  \
    (KINDS_ES_TP | KIND(TIDB_DDL_ADAPTER) | KIND(CONTROL_ADMIN) | KIND(TIDB_WRITE_GATEWAY) |       \
     KIND(TIDB_QUERY_GATEWAY) | KIND(TIDB_CDC_ADAPTER))

#define MAX_OPTIONS              64
#define MAX_OPTION_KEY_SCALARS   128
#define MAX_OPTION_VALUE_SCALARS 1024

/* The caller matrix: who may call what at all. */
static const uint32_t family_kinds[] = {
    [SF_CATALOG_FAMILY_PUT_NAMESPACE] = KIND(TIDB_DDL_ADAPTER) | KIND(CONTROL_ADMIN),
    [SF_CATALOG_FAMILY_PUT_COLLECTION] = KIND(TIDB_DDL_ADAPTER) | KIND(CONTROL_ADMIN) | KINDS_ES_TP,
    [SF_CATALOG_FAMILY_PUT_SCHEMA] = KIND(TIDB_DDL_ADAPTER) | KIND(CONTROL_ADMIN) | KINDS_ES_TP,
    [SF_CATALOG_FAMILY_DROP] = KIND(TIDB_DDL_ADAPTER) | KIND(CONTROL_ADMIN) |
                               KIND(ES_WRITE_GATEWAY) | KIND(TP_WRITE_GATEWAY),
    [SF_CATALOG_FAMILY_READ] = KINDS_ALL,
};

static bool kind_in(SF_PB(ClientKind) kind, uint32_t kinds)
{
    return (unsigned)kind < 32 && (kinds & (1u << (unsigned)kind)) != 0;
}

enum sf_err sf_catalog_meta_check(const SF_PB(RequestMeta) * meta, bool mutation,
                                  struct sf_diag *diag)
{
    if (meta == NULL)
        return sf_diag_bad_field(diag, "meta", "missing", "meta is required");
    enum sf_err err = SF_OK;
    if (mutation)
        err = sf_identity_check("meta.idempotency_key", sf_view_str(meta->idempotency_key), 1,
                                SF_LIMIT_IDEMPOTENCY_KEY_SCALARS, diag);
    if (err == SF_OK && meta->_correlation_id_case != 0)
        err = sf_identity_check("meta.correlation_id", sf_view_str(meta->correlation_id), 1,
                                SF_LIMIT_CORRELATION_ID_SCALARS, diag);
    if (err == SF_OK)
        err = sf_identity_check("meta.client_id", sf_view_str(meta->client_id), 1,
                                SF_LIMIT_CLIENT_ID_SCALARS, diag);
    if (err == SF_OK && meta->_principal_subject_case != 0)
        err = sf_identity_check("meta.principal_subject", sf_view_str(meta->principal_subject), 1,
                                SF_LIMIT_PRINCIPAL_SUBJECT_SCALARS, diag);
    if (err == SF_OK && !kind_in(meta->client_kind, KINDS_ALL))
        err = sf_diag_bad_field(diag, "meta.client_kind", "unknown",
                                "client_kind must name a known kind of caller");
    return err;
}

enum sf_err sf_catalog_caller_check(enum sf_catalog_family family, SF_PB(ClientKind) kind,
                                    struct sf_diag *diag)
{
    if (kind_in(kind, family_kinds[family]))
        return SF_OK;
    return sf_diag_set(diag, SF_FORBIDDEN, "this client_kind may not call this method");
}

/* Name of an enum's value, "" when it has none. */
static const char *value_name(const ProtobufCEnumDescriptor *desc, int value)
{
    const ProtobufCEnumValue *found = protobuf_c_enum_descriptor_get_value(desc, value);
    return found == NULL ? "" : found->name;
}

enum sf_err sf_catalog_mode_conflict(SF_PB(ClientKind) kind, SF_PB(CollectionTruthMode) mode,
                                     struct sf_diag *diag, const char *message)
{
    sf_diag_set(diag, SF_OWNERSHIP_CONFLICT, "%s", message);
    sf_diag_detail(diag, "collection_truth_mode", "%s",
                   value_name(&searchfabric__v1__collection_truth_mode__descriptor, (int)mode));
    sf_diag_detail(diag, "client_kind", "%s",
                   value_name(&searchfabric__v1__client_kind__descriptor, (int)kind));
    return SF_OWNERSHIP_CONFLICT;
}

enum sf_err sf_catalog_mode_check(SF_PB(ClientKind) kind, SF_PB(CollectionTruthMode) mode,
                                  struct sf_diag *diag)
{
    bool external = mode == SF_PBE(COLLECTION_TRUTH_MODE, EXTERNAL);
    bool adapter = kind == SF_PBE(CLIENT_KIND, TIDB_DDL_ADAPTER);
    if (external == adapter)
        return SF_OK;
    return sf_catalog_mode_conflict(
        kind, mode, diag,
        external ? "an EXTERNAL collection is changed by its DDL adapter alone"
                 : "a SEARCH_FABRIC collection is not changed by a DDL adapter");
}

SF_PB(CollectionTruthMode) sf_catalog_mode_default(SF_PB(ClientKind) kind)
{
    return kind == SF_PBE(CLIENT_KIND, TIDB_DDL_ADAPTER)
               ? SF_PBE(COLLECTION_TRUTH_MODE, EXTERNAL)
               : SF_PBE(COLLECTION_TRUTH_MODE, SEARCH_FABRIC);
}

enum sf_err sf_catalog_lifecycle_conflict(struct sf_diag *diag, const char *scope,
                                          const char *state, const char *message)
{
    sf_diag_set(diag, SF_VERSION_CONFLICT, "%s", message);
    sf_diag_detail(diag, "reservation_scope", "%s", scope);
    sf_diag_detail(diag, "conflicting_lifecycle_state", "%s", state);
    return SF_VERSION_CONFLICT;
}

const char *sf_catalog_lifecycle_text(SF_PB(NamespaceLifecycleState) state)
{
    switch (state) {
    case SF_PBE(NAMESPACE_LIFECYCLE_STATE, QUIESCING):
        return "quiescing";
    case SF_PBE(NAMESPACE_LIFECYCLE_STATE, TOMBSTONED):
        return "tombstoned";
    default:
        return "active";
    }
}

/* The message of field `field` at `index` of `message`, or NULL. */
static const ProtobufCMessage *sub_message(const ProtobufCMessage *message,
                                           const ProtobufCFieldDescriptor *field, size_t index)
{
    const char *base = (const char *)message;
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        const ProtobufCMessage *const *items =
            *(const ProtobufCMessage *const *const *)(const void *)(base + field->offset);
        return items[index];
    }
    if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0) {
        uint32_t which = *(const uint32_t *)(const void *)(base + field->quantifier_offset);
        if (which != field->id)
            return NULL;
    }
    return *(const ProtobufCMessage *const *)(const void *)(base + field->offset);
}

enum sf_err sf_catalog_unknown_check(const ProtobufCMessage *message, struct sf_diag *diag)
{
    if (message->n_unknown_fields != 0)
        return sf_diag_bad_field(diag, message->descriptor->short_name, "unknown_field",
                                 "%s holds field %u, which this revision does not know",
                                 message->descriptor->short_name, message->unknown_fields[0].tag);
    enum sf_err err = SF_OK;
    for (unsigned i = 0; i < message->descriptor->n_fields && err == SF_OK; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        if (field->type != PROTOBUF_C_TYPE_MESSAGE)
            continue;
        size_t count = 1;
        if (field->label == PROTOBUF_C_LABEL_REPEATED)
            count =
                *(const size_t *)(const void *)((const char *)message + field->quantifier_offset);
        for (size_t k = 0; k < count && err == SF_OK; k++) {
            const ProtobufCMessage *sub = sub_message(message, field, k);
            if (sub != NULL)
                err = sf_catalog_unknown_check(sub, diag);
        }
    }
    return err;
}

enum sf_err sf_catalog_encryption_check(const SF_PB(EncryptionPolicy) * encryption,
                                        struct sf_diag *diag)
{
    if (encryption != NULL && encryption->mode_case == 0)
        return sf_diag_bad_field(diag, "encryption", "missing", "encryption must say its mode");
    return SF_OK;
}

/* Key (field 1) or value (field 2) of a map entry. */
static const char *entry_text(const ProtobufCMessage *entry, unsigned number)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field(entry->descriptor, number);
    return *(const char *const *)(const void *)((const char *)entry + field->offset);
}

enum sf_err sf_catalog_entries_check(const char *field, const void *entries, size_t count,
                                     size_t max, struct sf_diag *diag)
{
    const ProtobufCMessage *const *list = entries;
    char key_field[64], value_field[64];
    if (count > max)
        return sf_diag_bad_field(diag, field, "too_many", "%s has more than %zu entries", field,
                                 max);
    snprintf(key_field, sizeof(key_field), "%s.key", field);
    snprintf(value_field, sizeof(value_field), "%s.value", field);
    for (size_t i = 0; i < count; i++) {
        const char *key = entry_text(list[i], 1);
        enum sf_err err =
            sf_identity_check(key_field, sf_view_str(key), 1, MAX_OPTION_KEY_SCALARS, diag);
        if (err == SF_OK)
            err = sf_identity_check(value_field, sf_view_str(entry_text(list[i], 2)), 0,
                                    MAX_OPTION_VALUE_SCALARS, diag);
        if (err != SF_OK)
            return err;
        for (size_t k = 0; k < i; k++) {
            if (strcmp(key, entry_text(list[k], 1)) == 0)
                return sf_diag_bad_field(diag, field, "duplicate", "option %s is given twice", key);
        }
    }
    return SF_OK;
}

enum sf_err sf_catalog_options_check(const SF_PB(DescriptorOptions) * options, struct sf_diag *diag)
{
    return options == NULL ? SF_OK
                           : sf_catalog_entries_check("options", options->entries,
                                                      options->n_entries, MAX_OPTIONS, diag);
}

enum sf_err sf_catalog_ref_check(const SF_PB(CollectionRef) * ref, struct sf_diag *diag)
{
    if (ref == NULL)
        return sf_diag_bad_field(diag, "collection", "missing", "collection is required");
    if (ref->namespace_id == 0)
        return sf_diag_bad_field(diag, "collection.namespace_id", "zero", "an id is above 0");
    if (ref->collection_id == 0)
        return sf_diag_bad_field(diag, "collection.collection_id", "zero", "an id is above 0");
    return SF_OK;
}

enum sf_err sf_catalog_binding_check(const SF_PB(CollectionNameBinding) * binding,
                                     struct sf_diag *diag)
{
    if (binding == NULL)
        return sf_diag_bad_field(diag, "name_binding", "missing", "name_binding is required");
    if (binding->namespace_id == 0)
        return sf_diag_bad_field(diag, "name_binding.namespace_id", "zero", "an id is above 0");
    return sf_name_check("name_binding.collection_name", sf_view_str(binding->collection_name),
                         false, diag);
}

static const ProtobufCFieldDescriptor *meta_field(const ProtobufCMessage *request)
{
    return protobuf_c_message_descriptor_get_field_by_name(request->descriptor, "meta");
}

SF_PB(RequestMeta) * sf_catalog_meta_of(const ProtobufCMessage *request)
{
    const ProtobufCFieldDescriptor *field = meta_field(request);
    if (field == NULL)
        return NULL;
    return *(SF_PB(RequestMeta) *const *)(const void *)((const char *)request + field->offset);
}

void sf_catalog_replay_key(const char *tag, const char *name, const char *identity_hash,
                           const struct sf_catalog_mutation *ops, const ProtobufCMessage *request,
                           char out_hex[SF_SHA256_HEX_BYTES])
{
    const SF_PB(RequestMeta) *meta = sf_catalog_meta_of(request);
    struct sf_keyhash kh;
    SF_ASSERT(meta != NULL);
    sf_keyhash_init(&kh, tag);
    sf_keyhash_bytes(&kh, sf_view_str(name));
    sf_keyhash_bytes(&kh, sf_view_str(identity_hash));
    sf_keyhash_bytes(&kh, sf_view_str(meta->client_id));
    ops->scope(request, &kh);
    sf_keyhash_bytes(&kh, sf_view_str(meta->idempotency_key));
    sf_keyhash_finish_hex(&kh, out_hex);
}

void sf_catalog_intent_key(const char *tag, const struct sf_catalog_mutation *ops,
                           const ProtobufCMessage *request, char out_hex[SF_SHA256_HEX_BYTES])
{
    struct sf_keyhash kh;
    sf_keyhash_init(&kh, tag);
    sf_keyhash_bytes(&kh, sf_view_str(ops->kind_name));
    ops->scope(request, &kh);
    sf_keyhash_finish_hex(&kh, out_hex);
}

void sf_catalog_fingerprint(const ProtobufCMessage *request, char out_hex[SF_SHA256_HEX_BYTES])
{
    size_t size = request->descriptor->sizeof_message;
    ProtobufCMessage *copy = sf_memdup(request, size);
    const ProtobufCFieldDescriptor *field = meta_field(request);
    if (field != NULL)
        *(void **)(void *)((char *)copy + field->offset) = NULL;
    struct sf_buf json = {0};
    sf_pbjson_encode(copy, &json);
    sf_sha256_hex(sf_buf_view(&json), out_hex);
    sf_buf_fini(&json);
    free(copy);
}

bool sf_catalog_same(const ProtobufCMessage *a, const ProtobufCMessage *b)
{
    if (a == NULL || b == NULL)
        return a == b;
    struct sf_buf left = {0};
    struct sf_buf right = {0};
    sf_pbjson_encode(a, &left);
    sf_pbjson_encode(b, &right);
    bool same = sf_view_equal(sf_buf_view(&left), sf_buf_view(&right));
    sf_buf_fini(&left);
    sf_buf_fini(&right);
    return same;
}

SF_PB(DescriptorCompleteness) *
    sf_catalog_completeness(bool has_stats, bool has_index, struct sf_arena *arena)
{
    SF_PB(DescriptorCompleteness) *out = sf_arena_alloc(arena, sizeof(*out));
    if (out == NULL)
        return NULL;
    searchfabric__v1__descriptor_completeness__init(out);
    if (has_stats && has_index) {
        SF_PB(DescriptorReady) *ready = sf_arena_alloc(arena, sizeof(*ready));
        if (ready == NULL)
            return NULL;
        searchfabric__v1__descriptor_ready__init(ready);
        out->state_case = SEARCHFABRIC__V1__DESCRIPTOR_COMPLETENESS__STATE_READY;
        out->ready = ready;
        return out;
    }
    SF_PB(DescriptorPublishing) *publishing = sf_arena_alloc(arena, sizeof(*publishing));
    char **fields = sf_arena_alloc(arena, 2 * sizeof(*fields));
    if (publishing == NULL || fields == NULL)
        return NULL;
    searchfabric__v1__descriptor_publishing__init(publishing);
    publishing->missing_fields = fields;
    if (!has_stats)
        fields[publishing->n_missing_fields++] = sf_arena_str(arena, sf_view_str("approx_stats"));
    if (!has_index)
        fields[publishing->n_missing_fields++] = sf_arena_str(arena, sf_view_str("index"));
    out->state_case = SEARCHFABRIC__V1__DESCRIPTOR_COMPLETENESS__STATE_PUBLISHING;
    out->publishing = publishing;
    return out;
}

static SF_PB(NamespaceLifecycle) *
    lifecycle_branch(SF_PB(NamespaceLifecycleState) state, struct sf_arena *arena)
{
    SF_PB(NamespaceLifecycle) *out = sf_arena_alloc(arena, sizeof(*out));
    if (out == NULL)
        return NULL;
    searchfabric__v1__namespace_lifecycle__init(out);
    if (state == SF_PBE(NAMESPACE_LIFECYCLE_STATE, QUIESCING)) {
        SF_PB(NamespaceQuiescing) *quiescing = sf_arena_alloc(arena, sizeof(*quiescing));
        if (quiescing == NULL)
            return NULL;
        searchfabric__v1__namespace_quiescing__init(quiescing);
        out->state_case = SEARCHFABRIC__V1__NAMESPACE_LIFECYCLE__STATE_QUIESCING;
        out->quiescing = quiescing;
    } else {
        SF_PB(NamespaceActive) *active = sf_arena_alloc(arena, sizeof(*active));
        if (active == NULL)
            return NULL;
        searchfabric__v1__namespace_active__init(active);
        out->state_case = SEARCHFABRIC__V1__NAMESPACE_LIFECYCLE__STATE_ACTIVE;
        out->active = active;
    }
    return out;
}

SF_PB(NamespaceDescriptor) *
    sf_catalog_namespace_descriptor(const SF_PB(NamespaceRow) * row, struct sf_arena *arena)
{
    SF_PB(NamespaceDescriptor) *out = sf_arena_alloc(arena, sizeof(*out));
    if (out == NULL)
        return NULL;
    searchfabric__v1__namespace_descriptor__init(out);
    out->namespace_id = row->namespace_id;
    out->namespace_name = row->namespace_name;
    out->created_at_unix_ms = row->created_at_unix_ms;
    out->updated_at_unix_ms = row->updated_at_unix_ms;
    out->lifecycle = lifecycle_branch(row->lifecycle_state, arena);
    out->options = row->options;
    out->encryption = row->encryption;
    out->approx_stats = row->approx_stats;
    out->index = row->index;
    out->completeness =
        sf_catalog_completeness(row->approx_stats != NULL, row->index != NULL, arena);
    return sf_arena_overflowed(arena) ? NULL : out;
}

SF_PB(CollectionDescriptor) *
    sf_catalog_collection_descriptor(const SF_PB(CollectionRow) * row, struct sf_arena *arena)
{
    SF_PB(CollectionDescriptor) *out = sf_arena_alloc(arena, sizeof(*out));
    if (out == NULL)
        return NULL;
    searchfabric__v1__collection_descriptor__init(out);
    out->collection = row->collection;
    out->collection_name = row->collection_name;
    out->created_at_unix_ms = row->created_at_unix_ms;
    out->updated_at_unix_ms = row->updated_at_unix_ms;
    out->options = row->options;
    out->encryption = row->encryption;
    out->approx_stats = row->approx_stats;
    out->index = row->index;
    out->completeness =
        sf_catalog_completeness(row->approx_stats != NULL, row->index != NULL, arena);
    return sf_arena_overflowed(arena) ? NULL : out;
}

SF_PB(CollectionSchemaDescriptor) *
    sf_catalog_schema_descriptor(const SF_PB(SchemaGenerationBody) * body, struct sf_arena *arena)
{
    SF_PB(CollectionSchemaDescriptor) *out = sf_arena_alloc(arena, sizeof(*out));
    if (out == NULL)
        return NULL;
    searchfabric__v1__collection_schema_descriptor__init(out);
    out->collection = body->collection;
    out->definition = body->definition;
    out->applied_schema_version = body->schema_version;
    out->applied_schema_generation_token = body->schema_generation_token;
    out->applied_commit_ts = body->applied_commit_ts;
    out->active_schema_update_policy = body->active_schema_update_policy;
    out->effective_max_result_window = body->effective_max_result_window;
    return out;
}

/* The zero-child aggregate that a namespace is born with (CCS 5.2). */
static void seed_aggregate(SF_PB(NamespaceRow) * row, struct sf_arena *arena)
{
    SF_PB(ApproxStats) *stats = sf_arena_alloc(arena, sizeof(*stats));
    SF_PB(IndexStatus) *index = sf_arena_alloc(arena, sizeof(*index));
    SF_PB(IndexUpToDate) *fresh = sf_arena_alloc(arena, sizeof(*fresh));
    if (stats == NULL || index == NULL || fresh == NULL)
        return;
    searchfabric__v1__approx_stats__init(stats);
    searchfabric__v1__index_status__init(index);
    searchfabric__v1__index_up_to_date__init(fresh);
    index->state_case = SEARCHFABRIC__V1__INDEX_STATUS__STATE_UP_TO_DATE;
    index->up_to_date = fresh;
    row->approx_stats = stats;
    row->index = index;
}

SF_PB(NamespaceRow) * sf_catalog_namespace_row(const SF_PB(NamespaceDescriptorObject) * object,
                                               const SF_PB(NamespaceRow) * before,
                                               struct sf_arena *arena)
{
    SF_PB(NamespaceRow) *row = sf_arena_alloc(arena, sizeof(*row));
    if (row == NULL)
        return NULL;
    searchfabric__v1__namespace_row__init(row);
    row->namespace_id = object->namespace_id;
    row->namespace_name = object->namespace_name;
    row->namespace_name_allocation_epoch = object->namespace_name_allocation_epoch;
    row->namespace_revision = object->namespace_revision;
    row->lifecycle_state = object->lifecycle_state;
    row->lifecycle_updated_at_unix_ms = object->lifecycle_updated_at_unix_ms;
    if (object->_lifecycle_gc_after_unix_ms_case != 0) {
        row->_lifecycle_gc_after_unix_ms_case =
            SEARCHFABRIC__V1__NAMESPACE_ROW___LIFECYCLE_GC_AFTER_UNIX_MS_LIFECYCLE_GC_AFTER_UNIX_MS;
        row->lifecycle_gc_after_unix_ms = object->lifecycle_gc_after_unix_ms;
    }
    row->options = object->options;
    row->encryption = object->encryption;
    row->internal_policy_state = object->internal_policy_state;
    row->created_at_unix_ms = object->created_at_unix_ms;
    row->updated_at_unix_ms = object->updated_at_unix_ms;
    if (before != NULL) {
        row->approx_stats = before->approx_stats;
        row->index = before->index;
        row->collection_name_binding_revision = before->collection_name_binding_revision;
    } else {
        row->collection_name_binding_revision = 1;
        seed_aggregate(row, arena);
    }
    return sf_arena_overflowed(arena) ? NULL : row;
}

SF_PB(CollectionRow) * sf_catalog_collection_row(const SF_PB(CollectionDescriptorObject) * object,
                                                 const SF_PB(CollectionRow) * before,
                                                 struct sf_arena *arena)
{
    SF_PB(CollectionRow) *row = sf_arena_alloc(arena, sizeof(*row));
    if (row == NULL)
        return NULL;
    if (before != NULL) {
        *row = *before;
    } else {
        searchfabric__v1__collection_row__init(row);
        row->lifecycle_state = SF_PBE(COLLECTION_ADMISSION_LIFECYCLE, ACTIVE);
        row->expected_previous_head = -1;
        row->manifest_head_reconciler_status = SF_PBE(MANIFEST_HEAD_RECONCILER_STATUS, IDLE);
    }
    row->collection = object->collection;
    row->collection_name = object->collection_name;
    row->collection_name_allocation_epoch = object->collection_name_allocation_epoch;
    row->descriptor_revision = object->descriptor_revision;
    row->collection_truth_mode = object->collection_truth_mode;
    row->options = object->options;
    row->encryption = object->encryption;
    row->internal_policy_state = object->internal_policy_state;
    row->created_at_unix_ms = object->created_at_unix_ms;
    row->updated_at_unix_ms = object->updated_at_unix_ms;
    return row;
}

/* ---- refusals of reads that need a schema -------------------------------------------------- */

enum sf_err sf_catalog_bootstrap_refusal(struct sf_diag *diag)
{
    sf_diag_set(diag, SF_CATALOG_UNAVAILABLE, "the collection has no schema generation yet");
    sf_diag_detail(diag, "catalog_unavailable_reason", "schema_bootstrap");
    sf_diag_detail(diag, "schema_bootstrap_state", "no_active_schema_generation");
    return SF_CATALOG_UNAVAILABLE;
}

enum sf_err sf_catalog_convergence_refusal(struct sf_diag *diag)
{
    sf_diag_set(diag, SF_CATALOG_UNAVAILABLE, "no schema generation is ready to serve");
    sf_diag_detail(diag, "catalog_unavailable_reason", "schema_convergence");
    sf_diag_detail(diag, "schema_convergence_state", "no_ready_serving_generation");
    return SF_CATALOG_UNAVAILABLE;
}
