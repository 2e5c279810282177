/*
 * The catalog's decisions as pure functions: no I/O, no clock, no state. Source: spec/contract
 * section 1-4, 10 and the open points named at each function; decisions.md 3.
 */
#ifndef SF_CATALOG_RULES_H
#define SF_CATALOG_RULES_H

#include "catalog/catalog_priv.h"

#define SF_CATALOG_FIELD_NAME_SCALARS 256 /* of a declared field's name, a path in a row's body */
#define SF_CATALOG_TUPLE_PATHS        8   /* fields of one extended statistic */

/* RPC families of the caller matrix (OP-07). */
enum sf_catalog_family {
    SF_CATALOG_FAMILY_PUT_NAMESPACE,
    SF_CATALOG_FAMILY_PUT_COLLECTION,
    SF_CATALOG_FAMILY_PUT_SCHEMA,
    SF_CATALOG_FAMILY_DROP,
    SF_CATALOG_FAMILY_READ
};

/* RequestMeta of a mutation (idempotency_key required) or a read. SF_BAD_REQUEST. CCS 3.1, OP-55.
 */
enum sf_err sf_catalog_meta_check(const SF_PB(RequestMeta) * meta, bool mutation,
                                  struct sf_diag *diag);

/* SF_FORBIDDEN when the kind may never call the family. OP-06, OP-07. */
enum sf_err sf_catalog_caller_check(enum sf_catalog_family family, SF_PB(ClientKind) kind,
                                    struct sf_diag *diag);

/* SF_OWNERSHIP_CONFLICT of a collection of `mode` met by `kind`, with both detail keys. */
enum sf_err sf_catalog_mode_conflict(SF_PB(ClientKind) kind, SF_PB(CollectionTruthMode) mode,
                                     struct sf_diag *diag, const char *message);

/* SF_OWNERSHIP_CONFLICT when the truth mode does not admit the kind. OP-06, OP-07. */
enum sf_err sf_catalog_mode_check(SF_PB(ClientKind) kind, SF_PB(CollectionTruthMode) mode,
                                  struct sf_diag *diag);

/* Mode reserved by a create that says none: EXTERNAL for the DDL adapter. OP-08. */
SF_PB(CollectionTruthMode) sf_catalog_mode_default(SF_PB(ClientKind) kind);

/* SF_VERSION_CONFLICT with the two canonical lifecycle-conflict keys. OP-03. */
enum sf_err sf_catalog_lifecycle_conflict(struct sf_diag *diag, const char *scope,
                                          const char *state, const char *message);

/* SF_CATALOG_UNAVAILABLE without a schema generation, without a READY one; canonical details (note
 * section 7, OP-04). */
enum sf_err sf_catalog_bootstrap_refusal(struct sf_diag *diag);
enum sf_err sf_catalog_convergence_refusal(struct sf_diag *diag);

/* "active", "quiescing", "tombstoned". */
const char *sf_catalog_lifecycle_text(SF_PB(NamespaceLifecycleState) state);

/* SF_BAD_REQUEST when a message or one inside it holds unknown fields. OP-13. */
enum sf_err sf_catalog_unknown_check(const ProtobufCMessage *message, struct sf_diag *diag);

/* Field checks of the requests; `meta` is checked apart. SF_BAD_REQUEST. */
enum sf_err sf_catalog_encryption_check(const SF_PB(EncryptionPolicy) * encryption,
                                        struct sf_diag *diag);
enum sf_err sf_catalog_options_check(const SF_PB(DescriptorOptions) * options,
                                     struct sf_diag *diag);
/* A map of options, as an array of pointers to its entry messages: at most `max`, keys 1..128
 * scalars and each once, values at most 1024. `field` names it in refusals. */
enum sf_err sf_catalog_entries_check(const char *field, const void *entries, size_t count,
                                     size_t max, struct sf_diag *diag);
enum sf_err sf_catalog_ref_check(const SF_PB(CollectionRef) * ref, struct sf_diag *diag);
enum sf_err sf_catalog_binding_check(const SF_PB(CollectionNameBinding) * binding,
                                     struct sf_diag *diag);

/* RequestMeta of any request message, NULL when absent. */
SF_PB(RequestMeta) * sf_catalog_meta_of(const ProtobufCMessage *request);

#define SF_CATALOG_TAG_COMMAND   "sf/ccs/command/1"
#define SF_CATALOG_TAG_TRANSPORT "sf/ccs/transport/1"

/* Of internal intents; the tags keep the two replay families apart (CCS-4.1-07). */
#define SF_CATALOG_TAG_INTENT        "sf/ccs/intent/1"
#define SF_CATALOG_TAG_INTENT_LOOKUP "sf/ccs/intent-transport/1"

/* Replay key of an internal intent: digest under `tag` of the kind and the intent's tuple. */
void sf_catalog_intent_key(const char *tag, const struct sf_catalog_mutation *ops,
                           const ProtobufCMessage *request, char out_hex[SF_SHA256_HEX_BYTES]);

/* Replay key of a public mutation: digest under `tag` of kind or method name, hash of the
 * authenticated identity, client_id, scope as received, idempotency_key (OP-11, OP-12). */
void sf_catalog_replay_key(const char *tag, const char *name, const char *identity_hash,
                           const struct sf_catalog_mutation *ops, const ProtobufCMessage *request,
                           char out_hex[SF_SHA256_HEX_BYTES]);

/* SHA-256 of the canonical JSON of the request without RequestMeta. OP-13. */
void sf_catalog_fingerprint(const ProtobufCMessage *request, char out_hex[SF_SHA256_HEX_BYTES]);

/* Canonical JSON equality of two messages of one type; NULL equals NULL only. */
bool sf_catalog_same(const ProtobufCMessage *a, const ProtobufCMessage *b);

/* Public descriptors of rows, in `arena`; completeness derived. CCS 5.2, 5.3. */
SF_PB(NamespaceDescriptor) *
    sf_catalog_namespace_descriptor(const SF_PB(NamespaceRow) * row, struct sf_arena *arena);
SF_PB(CollectionDescriptor) *
    sf_catalog_collection_descriptor(const SF_PB(CollectionRow) * row, struct sf_arena *arena);
SF_PB(DescriptorCompleteness) *
    sf_catalog_completeness(bool has_stats, bool has_index, struct sf_arena *arena);
SF_PB(CollectionSchemaDescriptor) *
    sf_catalog_schema_descriptor(const SF_PB(SchemaGenerationBody) * body, struct sf_arena *arena);

/* The row that a descriptor object becomes; approx_stats, index and binding revision are the
 * projection's own and taken from `before` (NULL on create: the zero-child aggregate). */
SF_PB(NamespaceRow) * sf_catalog_namespace_row(const SF_PB(NamespaceDescriptorObject) * object,
                                               const SF_PB(NamespaceRow) * before,
                                               struct sf_arena *arena);
SF_PB(CollectionRow) * sf_catalog_collection_row(const SF_PB(CollectionDescriptorObject) * object,
                                                 const SF_PB(CollectionRow) * before,
                                                 struct sf_arena *arena);

/* Fence of a drop: it must name the active generation. SF_VERSION_CONFLICT. OP-37. */
enum sf_err sf_catalog_drop_fence_check(const SF_PB(SchemaFencePrecondition) * fence,
                                        const SF_PB(CollectionRow) * collection,
                                        struct sf_diag *diag);

/* catalog_schema.c ------------------------------------------------------------------------- */

/* A schema request as far as it can be judged alone. SF_BAD_REQUEST. */
enum sf_err sf_catalog_schema_check(const SF_PB(PutCollectionSchemaRequest) * request,
                                    struct sf_diag *diag);

/* Fence, version and monotonic rules against the lineage. SF_VERSION_CONFLICT. OP-16, OP-37. */
enum sf_err sf_catalog_fence_check(const SF_PB(PutCollectionSchemaRequest) * request,
                                   const SF_PB(SchemaGenerationRow) * active,
                                   const SF_PB(SchemaGenerationRow) * same_version,
                                   const SF_PB(SchemaGenerationRow) * same_token,
                                   struct sf_diag *diag);

/* Changes that the update policy does not admit. SF_BAD_REQUEST. OP-39. */
enum sf_err sf_catalog_compatible_check(const SF_PB(PutCollectionSchemaRequest) * request,
                                        const SF_PB(SchemaGenerationRow) * active,
                                        struct sf_diag *diag);

/* Frozen query window: the settings', else the default; at least 1. OP-39. */
uint32_t sf_catalog_result_window(const SF_PB(CollectionSchemaDefinition) * definition,
                                  uint32_t server_default);

/* Modalities of a definition, ascending, without repeats; METADATA_SEARCH always. Returns the
 * count; `out` has room for 3. */
size_t sf_catalog_modalities(const SF_PB(CollectionSchemaDefinition) * definition,
                             SF_PB(Modality) out[3]);

/* Admission facts of a collection; the binding revision is left 0. CCS 5.2. */
SF_PB(CollectionAdmissionState) *
    sf_catalog_admission_build(const SF_PB(CollectionRow) * collection,
                               const SF_PB(SchemaGenerationRow) * active,
                               const SF_PB(SchemaGenerationRow) * ready, struct sf_arena *arena);

/* One convergence signal (OP-36). */
enum sf_catalog_move {
    SF_CATALOG_MOVE_REFUSED, /* not a move of this state */
    SF_CATALOG_MOVE_REPEAT,  /* already there */
    SF_CATALOG_MOVE_GO       /* *out_state is the new state */
};
enum sf_catalog_move sf_catalog_converge(SF_PB(SchemaSyncState__StateCase) from,
                                         SF_PB(SchemaConvergenceSignal) signal,
                                         SF_PB(SchemaSyncState__StateCase) * out_state);

/* A sync state of the given branch with its reason, in `arena`. */
SF_PB(SchemaSyncState) * sf_catalog_sync_state(SF_PB(SchemaSyncState__StateCase) which,
                                               const char *reason, struct sf_arena *arena);

#endif
