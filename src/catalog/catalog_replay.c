/*
 * Model: what would this key return? The identity is given, or computed from its parts as a request
 * would; then the record, its row and its pointers are looked at, nothing is changed.
 */
#include "catalog/catalog_check.h"

#include "base/pbjson.h"
#include "catalog/catalog_lifecycle.h"
#include "catalog/catalog_rules.h"
#include "searchfabric/v1/catalog_operations_private.pb-c.h"

/* A request of the kind that carries the scope and meta of a key; only those are hashed. */
static enum sf_err identity_of(const SF_PB(ShowReplayRequest) * show, struct sf_diag *diag,
                               char out_hex[SF_SHA256_HEX_BYTES])
{
    SF_PB(RequestMeta) meta;
    SF_PB(PutNamespaceMetadataRequest) ns;
    SF_PB(PutCollectionMetadataRequest) collection;
    SF_PB(PutCollectionSchemaRequest) schema;
    SF_PB(DropCollectionRequest) drop;
    SF_PB(CollectionNameBinding) binding;
    SF_PB(CollectionRef) ref;
    searchfabric__v1__request_meta__init(&meta);
    searchfabric__v1__put_namespace_metadata_request__init(&ns);
    searchfabric__v1__put_collection_metadata_request__init(&collection);
    searchfabric__v1__put_collection_schema_request__init(&schema);
    searchfabric__v1__drop_collection_request__init(&drop);
    searchfabric__v1__collection_name_binding__init(&binding);
    searchfabric__v1__collection_ref__init(&ref);
    meta.client_id = show->client_id;
    meta.idempotency_key = show->idempotency_key;
    ns.meta = collection.meta = schema.meta = drop.meta = &meta;
    ns.namespace_name = show->scope->namespace_name;
    binding.namespace_id = ref.namespace_id = show->scope->namespace_id;
    binding.collection_name = show->scope->collection_name;
    ref.collection_id = show->scope->collection_id;
    collection.name_binding = &binding;
    schema.collection = drop.collection = &ref;
    const struct {
        const struct sf_catalog_mutation *ops;
        const ProtobufCMessage *request;
    } kinds[] = {{&sf_catalog_put_namespace, &ns.base},
                 {&sf_catalog_put_collection, &collection.base},
                 {&sf_catalog_put_schema, &schema.base},
                 {&sf_catalog_drop_collection, &drop.base}};
    char hash[SF_SHA256_HEX_BYTES];
    sf_sha256_hex(sf_view_str(show->authenticated_client_identity), hash);
    for (size_t i = 0; i < SF_ARRAY_LEN(kinds); i++) {
        if (strcmp(show->command_kind, kinds[i].ops->kind_name) != 0)
            continue;
        sf_catalog_replay_key(SF_CATALOG_TAG_COMMAND, kinds[i].ops->kind_name, hash, kinds[i].ops,
                              kinds[i].request, out_hex);
        return SF_OK;
    }
    return sf_diag_bad_field(
        diag, "command_kind", "unknown",
        "no public mutation has this kind: look its command up by its identity");
}

/* The parts of an identity, with the limits that a request had. */
static enum sf_err check_parts(const SF_PB(ShowReplayRequest) * show, struct sf_diag *diag)
{
    enum sf_err err = sf_identity_check("authenticated_client_identity",
                                        sf_view_str(show->authenticated_client_identity), 1,
                                        SF_LIMIT_PRINCIPAL_SUBJECT_SCALARS, diag);
    if (err == SF_OK)
        err = sf_identity_check("client_id", sf_view_str(show->client_id), 1,
                                SF_LIMIT_CLIENT_ID_SCALARS, diag);
    if (err == SF_OK)
        err = sf_identity_check("idempotency_key", sf_view_str(show->idempotency_key), 1,
                                SF_LIMIT_IDEMPOTENCY_KEY_SCALARS, diag);
    if (err == SF_OK)
        err = sf_name_check("scope.namespace_name", sf_view_str(show->scope->namespace_name), true,
                            diag);
    if (err == SF_OK)
        err = sf_name_check("scope.collection_name", sf_view_str(show->scope->collection_name),
                            true, diag);
    return err;
}

/* Does a replay pointer stand and name the command? */
static enum sf_err pointer_stands(struct sf_catalog *catalog, struct sf_sched *sched,
                                  const struct sf_catalog_put *pointer, const char *identity,
                                  struct sf_arena *arena, struct sf_diag *diag, bool *out_stands)
{
    ProtobufCMessage *message = NULL;
    enum sf_err err = sf_catalog_read(catalog, sched, sf_buf_view(&pointer->key),
                                      &searchfabric__v1__replay_pointer_object__descriptor, false,
                                      arena, diag, &message, NULL, NULL);
    *out_stands =
        err == SF_OK &&
        strcmp(((const SF_PB(ReplayPointerObject) *)message)->command_identity, identity) == 0;
    return err == SF_ERR_NOT_FOUND ? SF_OK : err;
}

static enum sf_err look_pointers(struct sf_catalog *catalog, struct sf_sched *sched,
                                 struct sf_arena *arena, struct sf_diag *diag,
                                 SF_PB(ShowReplayResponse) * response)
{
    struct sf_catalog_put puts[2];
    bool stands[2] = {false, false};
    size_t count = sf_catalog_pointer_puts(response->outcome, puts);
    enum sf_err err = SF_OK;
    for (size_t i = 0; i < count && err == SF_OK; i++)
        err = pointer_stands(catalog, sched, &puts[i], response->command_identity, arena, diag,
                             &stands[i]);
    for (size_t i = 0; i < count; i++)
        sf_catalog_put_fini(&puts[i]);
    response->transport_pointer_present = stands[0];
    response->business_pointer_present = stands[1];
    return err;
}

/* The success payload as JSON, when its type is known. */
static void show_success(SF_PB(ShowReplayResponse) * response, struct sf_arena *arena)
{
    static const ProtobufCMessageDescriptor *const types[] = {
        &searchfabric__v1__put_namespace_metadata_response__descriptor,
        &searchfabric__v1__put_collection_metadata_response__descriptor,
        &searchfabric__v1__put_collection_schema_response__descriptor,
        &searchfabric__v1__drop_collection_success_response__descriptor,
    };
    const SF_PB(CommandOutcomeObject) *outcome = response->outcome;
    ProtobufCMessage *message = NULL;
    for (size_t i = 0; i < SF_ARRAY_LEN(types); i++) {
        struct sf_diag diag;
        struct sf_buf json = {0};
        sf_diag_init(&diag);
        if (strcmp(types[i]->name, outcome->success_payload_type) != 0 ||
            sf_pb_unpack(types[i],
                         sf_view_bytes(outcome->success_payload.data, outcome->success_payload.len),
                         arena, &diag, &message) != SF_OK)
            continue;
        sf_pbjson_encode(message, &json);
        response->success_json = sf_arena_str(arena, sf_buf_view(&json));
        sf_buf_fini(&json);
    }
}

static char *verdict_of(struct sf_catalog *catalog, const SF_PB(ShowReplayResponse) * response)
{
    const SF_PB(CommandOutcomeObject) *outcome = response->outcome;
    if (outcome == NULL)
        return "nothing: the key is new";
    if (outcome->abort != NULL)
        return "aborted attempt: the key is free";
    if (!response->row_present && sf_catalog_record_expired(catalog, outcome))
        return "nothing: the record is past the retention";
    if (outcome->terminal_state != SF_PBE(COMMAND_TERMINAL_STATE, APPLIED))
        return "conflict on another payload";
    return outcome->command_kind == SF_PBE(COMMAND_KIND, DROP_COLLECTION) ? "already_dropped"
                                                                          : "original answer";
}

static enum sf_err show(struct sf_catalog *catalog, struct sf_sched *sched, struct sf_call *call,
                        const ProtobufCMessage *message)
{
    const SF_PB(ShowReplayRequest) *request = (const SF_PB(ShowReplayRequest) *)message;
    struct sf_arena *arena = sf_call_arena(call);
    struct sf_diag *diag = sf_call_diag(call);
    char identity[SF_SHA256_HEX_BYTES];
    SF_PB(ShowReplayResponse) response;
    SF_PB(CommandOutcomeObject) *row = NULL;
    ProtobufCMessage *found = NULL;
    struct sf_buf key = {0};
    searchfabric__v1__show_replay_response__init(&response);
    enum sf_err err = SF_OK;
    if (request->command_identity[0] != '\0') {
        if (strlen(request->command_identity) != SF_SHA256_HEX_BYTES - 1 ||
            strspn(request->command_identity, "0123456789abcdef") != SF_SHA256_HEX_BYTES - 1)
            return sf_diag_bad_field(diag, "command_identity", "malformed",
                                     "a command identity is 64 lower-case hex digits");
        memcpy(identity, request->command_identity, sizeof(identity));
    } else if (request->scope == NULL) {
        return sf_diag_bad_field(diag, "scope", "missing", "a key is looked up in its scope");
    } else {
        err = check_parts(request, diag);
        if (err == SF_OK)
            err = identity_of(request, diag, identity);
    }
    if (err != SF_OK)
        return err;
    response.command_identity = identity;
    sf_catalog_key_outcome(&key, identity);
    err = sf_catalog_read(catalog, sched, sf_buf_view(&key),
                          &searchfabric__v1__command_outcome_object__descriptor, false, arena, diag,
                          &found, NULL, NULL);
    sf_buf_fini(&key);
    err = err == SF_ERR_NOT_FOUND ? SF_OK : err;
    response.outcome = (SF_PB(CommandOutcomeObject) *)found;
    response.found = found != NULL;
    if (err == SF_OK) {
        struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, sched, SF_SQL_READ);
        err = sf_catalog_sql_replay(conn, identity, arena, diag, &row);
        sf_sql_release(conn);
        response.row_present = row != NULL;
    }
    if (err == SF_OK && response.found && response.outcome->abort == NULL) {
        show_success(&response, arena);
        err = look_pointers(catalog, sched, arena, diag, &response);
    }
    response.verdict = verdict_of(catalog, &response);
    if (err == SF_OK)
        sf_call_respond(call, &response.base);
    return err;
}

void sf_catalog_replay_call(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    sf_catalog_operate(self, call, request, show);
}
