/*
 * The Write Planner's rules: pure functions from an admission state and a batch to a plan or a
 * refusal. No I/O, no clock. Private to the gateway.
 *
 * A row's document is opaque: it is checked to be one JSON object and looked through for the
 * declared fields that it carries, and stays as it is, byte for byte.
 */
#ifndef SF_GATEWAY_PLANNER_RULES_H
#define SF_GATEWAY_PLANNER_RULES_H

#include "base/arena.h"
#include "base/diag.h"
#include "base/hash.h"
#include "searchfabric/v1/catalog_control_private.pb-c.h"
#include "searchfabric/v1/commit_coordinator.pb-c.h"

/* Set of modalities: bit 1 << Modality. */
typedef uint32_t sf_modality_mask;

/* Rows from which on a batch is written by the batch writers: a bulk load and a trickle of single
 * writes do not share chunks, so that neither waits for the other. */
#define SF_PLANNER_BATCH_MODE_ROWS 256

/* What planning needs of one schema generation, prepared once per admission state. */
struct sf_plan_schema;

/* Prepares the schema of `state`; the state must outlive it. Destroy with sf_plan_schema_destroy.
 */
struct sf_plan_schema *sf_plan_schema_new(const Searchfabric__V1__CollectionAdmissionState *state);

/* NULL is fine. */
void sf_plan_schema_destroy(struct sf_plan_schema *schema);

/* Checks everything of a batch that needs no other facts: required parts, enums, limits, one flow
 * kind. Malformed input wins over illegal input. Errors: SF_INVALID_ARGUMENT, SF_BAD_REQUEST, both
 * with field, violation and entry_index where one entry is at fault. Source: contract allocator.md
 * A-09, coordinator.md section 5 and C-12. */
SF_MUST_USE enum sf_err sf_ingest_batch_check(const Searchfabric__V1__MutationBatch *batch,
                                              struct sf_diag *diag);

/* Lower-case hex SHA-256 of the serialization of `batch` with only collection,
 * schema_generation_token and entries set (MutationBatch.batch_fingerprint). */
void sf_ingest_batch_fingerprint(const Searchfabric__V1__MutationBatch *batch,
                                 char out_hex[SF_SHA256_HEX_BYTES]);

/* Modalities that one document of a write with `op` touches. CREATE always touches metadata search
 * and each engine one of whose fields has a value; INDEX, UPSERT and DELETE touch every enabled
 * engine, since an older version may have to go there; PATCH touches the engines of the fields that
 * it names, null included. Errors: SF_BAD_REQUEST (not one JSON object, wrong vector, undeclared
 * field under REJECT, no event time), detail entry_index = `entry_index`. */
SF_MUST_USE enum sf_err sf_plan_row(const struct sf_plan_schema *schema, Searchfabric__V1__RowOp op,
                                    struct sf_view body, uint32_t entry_index, struct sf_diag *diag,
                                    sf_modality_mask *out_touched);

/* May a client of this kind write here? Never changes in the life of a collection. Errors:
 * SF_FORBIDDEN (a kind that never writes), SF_OWNERSHIP_CONFLICT (truth mode). */
SF_MUST_USE enum sf_err
sf_ingest_kind_admit(const Searchfabric__V1__CollectionAdmissionState *state,
                     Searchfabric__V1__ClientKind kind, struct sf_diag *diag);

/* May a client of this kind write here, and is every row an operation this collection admits
 * without a receipt? Errors: SF_FORBIDDEN (a kind that never writes), SF_OWNERSHIP_CONFLICT (truth
 * mode), SF_BAD_REQUEST receipt_missing. Source: ccs.md section 10, allocator.md 2.2. */
SF_MUST_USE enum sf_err
sf_ingest_batch_admit(const Searchfabric__V1__CollectionAdmissionState *state,
                      const Searchfabric__V1__MutationBatch *batch,
                      Searchfabric__V1__ClientKind client_kind, struct sf_diag *diag);

/* Fills flow kind, source kind, writer mode, entry plans, enabled modalities and has_flow_a_source
 * of `out_plan` (memory from `arena`), and the source tuple of Flow B rows that brought none: a
 * partition named by the stream, an epoch named by the batch, the entry's number. The batch passed
 * sf_ingest_batch_check and sf_ingest_batch_admit. Errors: SF_BAD_REQUEST, SF_TOO_MANY_OPERATIONS
 * is never given here. */
SF_MUST_USE enum sf_err sf_plan_batch(const struct sf_plan_schema *schema,
                                      Searchfabric__V1__MutationBatch *batch,
                                      Searchfabric__V1__ClientKind client_kind,
                                      struct sf_arena *arena, struct sf_diag *diag,
                                      Searchfabric__V1__PlannedBatch *out_plan);

/* The same for a batch that only a redelivery's answer is asked for (PlannedBatch.known_only): sets
 * known_only and looks at no document, since the documents need not fit the active generation; the
 * plan says metadata search throughout. Errors: SF_ERR_LIMIT (arena). */
SF_MUST_USE enum sf_err sf_plan_known(Searchfabric__V1__MutationBatch *batch,
                                      Searchfabric__V1__ClientKind client_kind,
                                      struct sf_arena *arena, struct sf_diag *diag,
                                      Searchfabric__V1__PlannedBatch *out_plan);

/* The gate that a batch with these policies is acknowledged at (coordinator.md section 9). */
Searchfabric__V1__AckGate sf_ack_gate(Searchfabric__V1__DurabilityPolicy durability,
                                      Searchfabric__V1__VisibilityPolicy visibility);

#endif
