/*
 * Model: what each fact in memory is, how it is read from one snapshot of the projection, and how a
 * read goes from fact to fact to its answer. A lookup by name first asks for the id (the name's
 * lane), then for what stands under the id (the id's lane); the answers that do not depend on the
 * caller are kept packed. Where a binding revision is part of an answer it is read before the
 * mapping, and the mapping tells the revision of its own snapshot: the greater of both goes out, so
 * that a revision never stands for two bindings. That a name is not bound holds under the revision
 * of the same snapshot alone. That an id is unknown is never kept.
 */
#include "catalog/catalog_head.h"
#include "catalog/catalog_read.h"

/* ---- refusals ----------------------------------------------------------------------------- */

static enum sf_err not_found(struct sf_diag *diag, const char *what)
{
    return sf_diag_set(diag, SF_RESOURCE_NOT_FOUND, "no such %s", what);
}

static enum sf_err too_large(struct sf_diag *diag)
{
    return sf_diag_set(diag, SF_ERR_LIMIT, "the answer is too large");
}

static bool readable_namespace(const SF_PB(NamespaceRow) * row)
{
    return row != NULL && row->lifecycle_state != SF_PBE(NAMESPACE_LIFECYCLE_STATE, TOMBSTONED);
}

static bool active_collection(const SF_PB(CollectionRow) * row)
{
    return row != NULL && row->lifecycle_state == SF_PBE(COLLECTION_ADMISSION_LIFECYCLE, ACTIVE);
}

/* ---- loading ------------------------------------------------------------------------------ */

/* One fact being read. */
struct load {
    struct sf_sql_conn *conn;               /* snapshot */
    const struct sf_catalog_cache_key *key; /* which fact */
    struct sf_arena *arena;                 /* rows */
    struct sf_diag *diag;                   /* refusal */
    struct sf_catalog_value *value;         /* the fact */
};

static void keep_number(struct load *load, uint64_t number, bool negative, uint64_t bound)
{
    load->value = sf_catalog_value_new(number, 0);
    load->value->negative = negative;
    load->value->bound = bound;
}

static void keep_message(struct load *load, const ProtobufCMessage *message)
{
    load->value = sf_catalog_value_new(0, protobuf_c_message_get_packed_size(message));
    (void)protobuf_c_message_pack(message, load->value->bytes);
}

static enum sf_err load_namespace_name(struct load *load)
{
    SF_PB(NamespaceRow) *row = NULL;
    const char *name = sf_arena_str(load->arena, load->key->text);
    if (name == NULL)
        return too_large(load->diag);
    enum sf_err err =
        sf_catalog_sql_namespace_named(load->conn, name, load->arena, load->diag, &row);
    if (err != SF_OK)
        return err;
    bool readable = readable_namespace(row);
    keep_number(load, readable ? row->namespace_id : 0, !readable, 0);
    return SF_OK;
}

static enum sf_err load_namespace(struct load *load)
{
    SF_PB(NamespaceRow) *row = NULL;
    enum sf_err err = sf_catalog_sql_namespace(load->conn, load->key->namespace_id, load->arena,
                                               load->diag, &row);
    if (err != SF_OK)
        return err;
    if (!readable_namespace(row))
        return not_found(load->diag, "namespace");
    SF_PB(GetNamespaceMetadataResponse) response;
    searchfabric__v1__get_namespace_metadata_response__init(&response);
    response.descriptor = sf_catalog_namespace_descriptor(row, load->arena);
    if (response.descriptor == NULL)
        return too_large(load->diag);
    keep_message(load, &response.base);
    return SF_OK;
}

static enum sf_err load_binding(struct load *load)
{
    SF_PB(NamespaceRow) *row = NULL;
    enum sf_err err = sf_catalog_sql_namespace(load->conn, load->key->namespace_id, load->arena,
                                               load->diag, &row);
    if (err != SF_OK)
        return err;
    if (row == NULL)
        return not_found(load->diag, "namespace");
    keep_number(load, row->collection_name_binding_revision, !readable_namespace(row), 0);
    return SF_OK;
}

static enum sf_err load_collection_name(struct load *load)
{
    SF_PB(NamespaceRow) *ns = NULL;
    SF_PB(CollectionRow) *row = NULL;
    const char *name = sf_arena_str(load->arena, load->key->text);
    if (name == NULL)
        return too_large(load->diag);
    enum sf_err err =
        sf_catalog_sql_namespace(load->conn, load->key->namespace_id, load->arena, load->diag, &ns);
    if (err == SF_OK)
        err = sf_catalog_sql_collection_named(load->conn, load->key->namespace_id, name,
                                              load->arena, load->diag, &row);
    if (err != SF_OK)
        return err;
    if (ns == NULL)
        return not_found(load->diag, "active collection");
    bool active = active_collection(row);
    keep_number(load, active ? row->collection->collection_id : 0, !active,
                ns->collection_name_binding_revision);
    return SF_OK;
}

static enum sf_err load_collection(struct load *load)
{
    SF_PB(CollectionRow) *row = NULL;
    enum sf_err err =
        sf_catalog_sql_collection(load->conn, load->key->namespace_id, load->key->collection_id,
                                  load->arena, load->diag, &row);
    if (err != SF_OK)
        return err;
    if (!active_collection(row))
        return not_found(load->diag, "active collection");
    SF_PB(GetCollectionMetadataResponse) response;
    searchfabric__v1__get_collection_metadata_response__init(&response);
    response.descriptor = sf_catalog_collection_descriptor(row, load->arena);
    if (response.descriptor == NULL)
        return too_large(load->diag);
    keep_message(load, &response.base);
    return SF_OK;
}

/* The active generation of an active collection, or the refusal. */
static enum sf_err active_generation(struct load *load, SF_PB(SchemaGenerationRow) * *out_row)
{
    SF_PB(CollectionRow) *row = NULL;
    uint64_t namespace_id = load->key->namespace_id;
    uint64_t collection_id = load->key->collection_id;
    enum sf_err err = sf_catalog_sql_collection(load->conn, namespace_id, collection_id,
                                                load->arena, load->diag, &row);
    if (err != SF_OK)
        return err;
    if (!active_collection(row))
        return not_found(load->diag, "active collection");
    if (row->_active_schema_version_case == 0)
        return sf_catalog_bootstrap_refusal(load->diag);
    err = sf_catalog_sql_generation(load->conn, namespace_id, collection_id,
                                    SF_CATALOG_GENERATION_VERSION, row->active_schema_version, NULL,
                                    load->arena, load->diag, out_row);
    if (err == SF_OK && *out_row == NULL)
        return sf_diag_set(load->diag, SF_ERR_CORRUPT, "the active schema generation has no row");
    return err;
}

static enum sf_err load_schema(struct load *load)
{
    SF_PB(SchemaGenerationRow) *row = NULL;
    enum sf_err err = active_generation(load, &row);
    if (err != SF_OK)
        return err;
    SF_ASSERT(row != NULL);
    SF_PB(GetCollectionSchemaResponse) response;
    searchfabric__v1__get_collection_schema_response__init(&response);
    response.schema = sf_catalog_schema_descriptor(row->body, load->arena);
    if (response.schema == NULL)
        return too_large(load->diag);
    keep_message(load, &response.base);
    return SF_OK;
}

static enum sf_err load_sync(struct load *load)
{
    SF_PB(SchemaGenerationRow) *row = NULL;
    enum sf_err err = active_generation(load, &row);
    if (err != SF_OK)
        return err;
    SF_ASSERT(row != NULL);
    SF_PB(GetSchemaSyncStatusResponse) response;
    searchfabric__v1__get_schema_sync_status_response__init(&response);
    response.state = row->convergence->state;
    response.applied_schema_version = row->body->schema_version;
    response.applied_schema_generation_token = row->body->schema_generation_token;
    keep_message(load, &response.base);
    return SF_OK;
}

static enum sf_err load_admission(struct load *load)
{
    uint64_t namespace_id = load->key->namespace_id;
    uint64_t collection_id = load->key->collection_id;
    SF_PB(NamespaceRow) *ns = NULL;
    SF_PB(CollectionRow) *row = NULL;
    SF_PB(SchemaGenerationRow) *active = NULL;
    SF_PB(SchemaGenerationRow) *ready = NULL;
    enum sf_err err =
        sf_catalog_sql_namespace(load->conn, namespace_id, load->arena, load->diag, &ns);
    if (err == SF_OK)
        err = sf_catalog_sql_collection(load->conn, namespace_id, collection_id, load->arena,
                                        load->diag, &row);
    if (err == SF_OK && row == NULL)
        err = not_found(load->diag, "collection");
    if (err == SF_OK && row->_active_schema_version_case != 0)
        err = sf_catalog_sql_generation(load->conn, namespace_id, collection_id,
                                        SF_CATALOG_GENERATION_VERSION, row->active_schema_version,
                                        NULL, load->arena, load->diag, &active);
    if (err == SF_OK)
        err = sf_catalog_sql_generation(load->conn, namespace_id, collection_id,
                                        SF_CATALOG_GENERATION_READY, 0, NULL, load->arena,
                                        load->diag, &ready);
    if (err != SF_OK)
        return err;
    SF_PB(CollectionAdmissionState) *state =
        sf_catalog_admission_build(row, active, ready, load->arena);
    if (state == NULL)
        return too_large(load->diag);
    size_t at = strlen(state->descriptor_etag) + 1;
    size_t len = protobuf_c_message_get_packed_size(&state->base);
    load->value = sf_catalog_value_new(at, at + len);
    load->value->bound = ns == NULL ? 0 : ns->collection_name_binding_revision;
    memcpy(load->value->bytes, state->descriptor_etag, at);
    (void)protobuf_c_message_pack(&state->base, load->value->bytes + at);
    return SF_OK;
}

typedef enum sf_err (*load_fn)(struct load *load);

/* How a fact is read; facts without a line are kept by whoever makes them. */
static const load_fn loads[SF_CATALOG_FACT_COUNT] = {
    [SF_CATALOG_FACT_NAMESPACE_NAME] = load_namespace_name,
    [SF_CATALOG_FACT_NAMESPACE] = load_namespace,
    [SF_CATALOG_FACT_BINDING] = load_binding,
    [SF_CATALOG_FACT_COLLECTION_NAME] = load_collection_name,
    [SF_CATALOG_FACT_COLLECTION] = load_collection,
    [SF_CATALOG_FACT_SCHEMA] = load_schema,
    [SF_CATALOG_FACT_SYNC] = load_sync,
    [SF_CATALOG_FACT_ADMISSION] = load_admission,
};

enum sf_err sf_catalog_fact_load(struct sf_catalog *catalog, const struct sf_catalog_cache_key *key,
                                 struct sf_arena *arena, struct sf_diag *diag,
                                 struct sf_catalog_value **out_value)
{
    enum sf_err err = SF_OK;
    *out_value = NULL;
    if (key->fact == SF_CATALOG_FACT_SYNC || key->fact == SF_CATALOG_FACT_ADMISSION)
        err = sf_catalog_adopt_alone(catalog, key->namespace_id, key->collection_id, arena, diag);
    if (err == SF_OK && key->fact == SF_CATALOG_FACT_ADMISSION)
        err = sf_catalog_head_admit(catalog, key->namespace_id, key->collection_id, arena, diag);
    if (err != SF_OK)
        return err;
    struct load load = {.key = key, .arena = arena, .diag = diag};
    load.conn = sf_sql_acquire(catalog->deps.sql, catalog->deps.sched, SF_SQL_READ);
    err = sf_sql_begin(load.conn, diag);
    if (err == SF_OK)
        err = sf_catalog_sql_look(catalog, load.conn, diag);
    if (err == SF_OK)
        err = loads[key->fact](&load);
    sf_sql_rollback(load.conn);
    sf_sql_release(load.conn);
    *out_value = load.value;
    return err;
}

/* ---- from fact to fact -------------------------------------------------------------------- */

bool sf_catalog_reading_init(struct sf_catalog_reading *reading)
{
    const ProtobufCMessage *request = reading->request;
    const SF_PB(CollectionRef) *ref = NULL;
    const SF_PB(CollectionNameBinding) *binding = NULL;
    reading->stage = SF_CATALOG_STAGE_ANSWER;
    switch (reading->kind) {
    case SF_CATALOG_READ_NAMESPACE: {
        const SF_PB(GetNamespaceMetadataRequest) *get =
            (const SF_PB(GetNamespaceMetadataRequest) *)request;
        if (get->lookup_case ==
            SEARCHFABRIC__V1__GET_NAMESPACE_METADATA_REQUEST__LOOKUP_NAMESPACE_ID)
            reading->namespace_id = get->namespace_id;
        else
            reading->name = sf_view_str(get->namespace_name);
        break;
    }
    case SF_CATALOG_READ_COLLECTION: {
        const SF_PB(GetCollectionMetadataRequest) *get =
            (const SF_PB(GetCollectionMetadataRequest) *)request;
        if (get->lookup_case ==
            SEARCHFABRIC__V1__GET_COLLECTION_METADATA_REQUEST__LOOKUP_COLLECTION)
            ref = get->collection;
        else
            binding = get->name_binding;
        break;
    }
    case SF_CATALOG_READ_SCHEMA:
        ref = ((const SF_PB(GetCollectionSchemaRequest) *)request)->collection;
        break;
    case SF_CATALOG_READ_SYNC:
        ref = ((const SF_PB(GetSchemaSyncStatusRequest) *)request)->collection;
        break;
    case SF_CATALOG_READ_BINDING:
        binding = ((const SF_PB(ResolveCollectionNameBindingRequest) *)request)->name_binding;
        break;
    case SF_CATALOG_READ_ADMISSION:
        ref = ((const SF_PB(GetCollectionAdmissionStateRequest) *)request)->collection;
        break;
    default:
        return false;
    }
    if (ref != NULL) {
        reading->namespace_id = ref->namespace_id;
        reading->collection_id = ref->collection_id;
    } else if (binding != NULL) {
        reading->namespace_id = binding->namespace_id;
        reading->name = sf_view_str(binding->collection_name);
    }
    if (reading->kind == SF_CATALOG_READ_BINDING || reading->kind == SF_CATALOG_READ_ADMISSION)
        reading->stage = SF_CATALOG_STAGE_BINDING;
    else if (reading->name.len != 0)
        reading->stage = SF_CATALOG_STAGE_NAME;
    return true;
}

/* The fact that answers a kind. */
static const enum sf_catalog_fact answers[] = {
    [SF_CATALOG_READ_NAMESPACE] = SF_CATALOG_FACT_NAMESPACE,
    [SF_CATALOG_READ_COLLECTION] = SF_CATALOG_FACT_COLLECTION,
    [SF_CATALOG_READ_SCHEMA] = SF_CATALOG_FACT_SCHEMA,
    [SF_CATALOG_READ_SYNC] = SF_CATALOG_FACT_SYNC,
    [SF_CATALOG_READ_ADMISSION] = SF_CATALOG_FACT_ADMISSION,
};

static struct sf_catalog_cache_key name_key(const struct sf_catalog_reading *reading)
{
    return (struct sf_catalog_cache_key){.fact = reading->kind == SF_CATALOG_READ_NAMESPACE
                                                     ? SF_CATALOG_FACT_NAMESPACE_NAME
                                                     : SF_CATALOG_FACT_COLLECTION_NAME,
                                         .namespace_id = reading->namespace_id,
                                         .text = reading->name};
}

struct sf_catalog_cache_key sf_catalog_reading_key(const struct sf_catalog_reading *reading)
{
    switch (reading->stage) {
    case SF_CATALOG_STAGE_NAME:
        return name_key(reading);
    case SF_CATALOG_STAGE_BINDING:
    case SF_CATALOG_STAGE_UNBOUND:
        return (struct sf_catalog_cache_key){.fact = SF_CATALOG_FACT_BINDING,
                                             .namespace_id = reading->namespace_id};
    default:
        return (struct sf_catalog_cache_key){.fact = answers[reading->kind],
                                             .namespace_id = reading->namespace_id,
                                             .collection_id = reading->collection_id};
    }
}

static bool refuse(const struct sf_catalog_reading *reading, const char *what)
{
    struct sf_diag *diag = sf_call_diag(reading->call);
    not_found(diag, what);
    sf_catalog_refuse(reading->call, diag);
    return true;
}

static bool answer_binding(const struct sf_catalog_reading *reading, uint64_t collection_id)
{
    SF_PB(ResolveCollectionNameBindingResponse) response;
    SF_PB(CollectionRef) ref;
    searchfabric__v1__resolve_collection_name_binding_response__init(&response);
    searchfabric__v1__collection_ref__init(&ref);
    ref.namespace_id = reading->namespace_id;
    ref.collection_id = collection_id;
    response.collection = collection_id == 0 ? NULL : &ref;
    response.collection_name_binding_revision = reading->revision;
    sf_call_respond(reading->call, &response.base);
    return true;
}

/* The mapping was read under another revision than it holds for: it is read again. */
static void forget_name(const struct sf_catalog_reading *reading)
{
    struct sf_catalog_cache_key key = name_key(reading);
    sf_catalog_cache_forget(reading->catalog->cache, &key);
}

static bool take_name(struct sf_catalog_reading *reading, const struct sf_catalog_value *value)
{
    if (reading->kind == SF_CATALOG_READ_BINDING) {
        if (value->bound >= reading->revision) {
            reading->revision = value->bound;
            return answer_binding(reading, value->number);
        }
        forget_name(reading);
        return false;
    }
    if (!value->negative && reading->kind == SF_CATALOG_READ_NAMESPACE) {
        reading->namespace_id = value->number;
        reading->stage = SF_CATALOG_STAGE_ANSWER;
    } else if (!value->negative) {
        reading->collection_id = value->number;
        reading->stage = SF_CATALOG_STAGE_ANSWER;
    } else if (reading->kind == SF_CATALOG_READ_NAMESPACE) {
        return refuse(reading, "namespace");
    } else {
        reading->revision = value->bound;
        reading->stage = SF_CATALOG_STAGE_UNBOUND;
    }
    return false;
}

static bool take_unbound(struct sf_catalog_reading *reading, const struct sf_catalog_value *value)
{
    if (value->negative || reading->revision >= value->number)
        return refuse(reading, "active collection");
    forget_name(reading);
    reading->stage = SF_CATALOG_STAGE_NAME;
    return false;
}

static bool take_binding(struct sf_catalog_reading *reading, const struct sf_catalog_value *value)
{
    if (reading->kind == SF_CATALOG_READ_BINDING && value->negative)
        return refuse(reading, "namespace");
    reading->revision = value->number;
    reading->stage =
        reading->kind == SF_CATALOG_READ_BINDING ? SF_CATALOG_STAGE_NAME : SF_CATALOG_STAGE_ANSWER;
    return false;
}

/* The state with its binding revision, or "not modified" to who knows both. */
static bool answer_admission(struct sf_catalog_reading *reading,
                             const struct sf_catalog_value *value)
{
    if (value->bound > reading->revision && !SF_MUTANT(ccs_older_binding))
        reading->revision = value->bound;
    const SF_PB(GetCollectionAdmissionStateRequest) *request =
        (const SF_PB(GetCollectionAdmissionStateRequest) *)reading->request;
    SF_PB(GetCollectionAdmissionStateResponse) response;
    SF_PB(AdmissionStateNotModified) same;
    searchfabric__v1__get_collection_admission_state_response__init(&response);
    searchfabric__v1__admission_state_not_modified__init(&same);
    if (request->_known_descriptor_etag_case != 0 &&
        request->_known_collection_name_binding_revision_case != 0 &&
        request->known_collection_name_binding_revision == reading->revision &&
        strcmp(request->known_descriptor_etag, (const char *)value->bytes) == 0) {
        response.result_case =
            SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_RESPONSE__RESULT_NOT_MODIFIED;
        response.not_modified = &same;
        sf_call_respond(reading->call, &response.base);
        return true;
    }
    struct sf_diag *diag = sf_call_diag(reading->call);
    ProtobufCMessage *state = NULL;
    if (sf_pb_unpack(&searchfabric__v1__collection_admission_state__descriptor,
                     sf_view_bytes(value->bytes + value->number, value->len - value->number),
                     sf_call_arena(reading->call), diag, &state) != SF_OK) {
        sf_catalog_refuse(reading->call, diag);
        return true;
    }
    response.result_case = SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_RESPONSE__RESULT_STATE;
    response.state = (SF_PB(CollectionAdmissionState) *)state;
    response.state->collection_name_binding_revision = reading->revision;
    sf_call_respond(reading->call, &response.base);
    return true;
}

bool sf_catalog_reading_take(struct sf_catalog_reading *reading,
                             const struct sf_catalog_value *value)
{
    switch (reading->stage) {
    case SF_CATALOG_STAGE_BINDING:
        return take_binding(reading, value);
    case SF_CATALOG_STAGE_NAME:
        return take_name(reading, value);
    case SF_CATALOG_STAGE_UNBOUND:
        return take_unbound(reading, value);
    default:
        if (reading->kind == SF_CATALOG_READ_ADMISSION)
            return answer_admission(reading, value);
        sf_call_respond_bytes(reading->call, sf_view_bytes(value->bytes, value->len));
        return true;
    }
}
