/*
 * What the allocator decides, as pure functions: shape of a request, admission facts, the plan
 * arithmetic, keys and fingerprints. No I/O, no clock, no memory beyond the call. Private to the
 * folder and to its tests.
 *
 * Derivations (A-18, frozen by golden vectors). All digests are sf_keyhash digests, lower-case hex.
 *   transport_lookup_key  tag "sf/alloc/transport/1"; identity hash (hex text), client_id,
 *                         client_kind number, full method name, namespace_id, collection_id,
 *                         idempotency_key
 *   payload_fingerprint   tag "sf/alloc/payload/1"; namespace_id, collection_id, route_intent
 *                         number, item count, then one field with all items in order: 00 for
 *                         issue, 01 and the id as 8 bytes big-endian for an explicit one
 */
#ifndef SF_ALLOCATOR_ALLOCATOR_RULES_H
#define SF_ALLOCATOR_ALLOCATOR_RULES_H

#include "base/arena.h"
#include "base/hash.h"
#include "base/ids.h"
#include "contract/receipt.h"
#include "searchfabric/v1/catalog_control_private.pb-c.h"
#include "searchfabric/v1/durable.pb-c.h"

#define SF_ALLOC_DECIMAL_BYTES 21 /* "18446744073709551616" and NUL */

/* Exclusive upper bound of what was handed out: 0 .. 2^64. */
struct sf_watermark {
    uint64_t next;  /* next id, 0 when exhausted */
    bool exhausted; /* the bound is 2^64: no id is left */
};

/* Decimal text of the bound, as the state object holds it. */
void sf_watermark_text(struct sf_watermark mark, char out_text[SF_ALLOC_DECIMAL_BYTES]);

/* Parses canonical decimal text "0" .. "18446744073709551616"; false for anything else. */
bool sf_watermark_parse(struct sf_view text, struct sf_watermark *out_mark);

/* < 0, 0, > 0 as the first bound is below, equal to or above the second. */
int sf_watermark_compare(struct sf_watermark a, struct sf_watermark b);

/* Shape of a plan, the label of metrics and logs. */
enum sf_plan_shape {
    SF_PLAN_INVALID, /* the request did not pass the shape check */
    SF_PLAN_ISSUE_ONLY,
    SF_PLAN_EXPLICIT_ONLY,
    SF_PLAN_MIXED,
    SF_PLAN_SHAPE_COUNT
};
const char *sf_plan_shape_text(enum sf_plan_shape shape);

/* Text of a client kind for labels and logs: the contract's enum name, "UNKNOWN" for a number it
 * does not have. */
const char *sf_client_kind_text(Searchfabric__V1__ClientKind kind);

/* One plan item: before the plan ran only explicit ones have an id. The receipt's item type, so
 * that a realized plan is signed as it stands. */
#define sf_plan_item sf_receipt_item

/* A request that passed the shape check; texts point into the message. */
struct sf_alloc_request {
    struct sf_collection_ref collection;                    /* whose ids */
    const char *idempotency_key;                            /* 1 to 128 bytes */
    const char *client_id;                                  /* who asks, as it says */
    Searchfabric__V1__ClientKind client_kind;               /* what asks */
    Searchfabric__V1__IdAllocationRouteIntent route_intent; /* create or insert */
    const Searchfabric__V1__AllocationPlan *plan;           /* as it came */
    struct sf_plan_item *items;                             /* in the arena; plan order */
    size_t item_count;                                      /* >= 1 */
    size_t issue_count;                                     /* of these, `issue` items */
    enum sf_plan_shape shape;                               /* which kinds of items it has */
};

/* Unpacks an AllocateIdsRequest as sf_pb_unpack does, all bytes alike, but long plans faster.
 * Messages of `issue` items may be shared. Errors as sf_pb_unpack. */
SF_MUST_USE enum sf_err sf_alloc_request_unpack(struct sf_view bytes, struct sf_arena *arena,
                                                struct sf_diag *diag,
                                                ProtobufCMessage **out_message);

/* Reads and checks a request without any state. Errors (details field, violation unless noted):
 * SF_INVALID_ARGUMENT for what cannot be read as one (meta, idempotency_key, client_id,
 * client_kind, collection, route_intent, plan, an item without branch or id); then SF_BAD_REQUEST
 * for what is readable but breaks a rule (overlong texts, duplicate explicit ids);
 * SF_TOO_MANY_OPERATIONS above SF_LIMIT_ALLOC_PLAN_ITEMS, which no policy can admit; SF_ERR_LIMIT
 * when the arena is full. Source, ALLOC-3.5-10 to 13, 12-02. */
SF_MUST_USE enum sf_err sf_alloc_request_check(const Searchfabric__V1__AllocateIdsRequest *message,
                                               struct sf_arena *arena,
                                               struct sf_alloc_request *out_request,
                                               struct sf_diag *diag);

/* Admission facts of a collection that admits allocation. */
struct sf_alloc_facts {
    uint64_t max_plan_items;   /* > 0 */
    uint64_t max_jump;         /* > 0 */
    char *token;               /* write-admission schema_generation_token; owned */
    char *etag;                /* validator, "" = this snapshot must not be kept; owned */
    uint64_t binding_revision; /* second half of the validator */
};
void sf_alloc_facts_fini(struct sf_alloc_facts *facts);

/* Judges a snapshot for `collection`; on SF_OK *out_facts is filled (sf_alloc_facts_fini). Errors:
 * SF_RESOURCE_NOT_FOUND (tombstoned), SF_OWNERSHIP_CONFLICT (truth mode, generation policy or
 * caller profile), SF_CATALOG_UNAVAILABLE (a fact is missing; without active generation with the
 * bootstrap details). Source: ALLOC-3.5, 4.1, 12-04 to 07, A-10. */
SF_MUST_USE enum sf_err sf_alloc_facts_read(const Searchfabric__V1__CollectionAdmissionState *state,
                                            struct sf_collection_ref collection,
                                            struct sf_alloc_facts *out_facts, struct sf_diag *diag);

/* Admits one request under the facts: caller kind (SF_OWNERSHIP_CONFLICT), then the item ceiling
 * (SF_TOO_MANY_OPERATIONS, scope allocator_plan_items). */
SF_MUST_USE enum sf_err sf_alloc_admit(const struct sf_alloc_facts *facts,
                                       const struct sf_alloc_request *request,
                                       struct sf_diag *diag);

/* Runs a plan in order against `mark`; on SF_OK every item has its id and *mark has moved. On an
 * error *mark is as it was: SF_VERSION_CONFLICT (explicit id below the watermark),
 * SF_TOO_MANY_OPERATIONS (window, identity space). Source: ALLOC-5.3, 5.5, 12-08 to 12, A-11, A-12.
 */
SF_MUST_USE enum sf_err sf_alloc_plan_run(struct sf_plan_item *items, size_t count,
                                          uint64_t max_jump, struct sf_watermark *mark,
                                          struct sf_diag *diag);

/* See the top of this header. */
void sf_alloc_transport_key(const char *identity_hash_hex, const char *method,
                            const struct sf_alloc_request *request,
                            char out_hex[SF_SHA256_HEX_BYTES]);
void sf_alloc_fingerprint(const struct sf_alloc_request *request,
                          char out_hex[SF_SHA256_HEX_BYTES]);

/* Object keys (allocator note 7.1), appended. The shard is the first two hex digits of the SHA-256
 * of the decimal namespace id, or of the lookup key's text. */
void sf_alloc_state_key(struct sf_collection_ref collection, struct sf_buf *out);
void sf_alloc_replay_key(const char *transport_lookup_key, struct sf_buf *out);
void sf_alloc_audit_key(const char *allocation_attempt_id, struct sf_buf *out);
void sf_alloc_segment_key(uint64_t allocator_recovery_epoch, struct sf_buf *out);

#define SF_ALLOC_STATE_PREFIX   "id-allocator/state/"
#define SF_ALLOC_REPLAY_PREFIX  "id-allocator/replay-success/"
#define SF_ALLOC_AUDIT_PREFIX   "id-allocator/failure-audit/"
#define SF_ALLOC_SEGMENT_PREFIX "id-allocator/recovery-segments/"

/* The number in a segment's object key; false for any other key. */
bool sf_alloc_segment_parse(struct sf_view object_key, uint64_t *out_epoch);

#endif
