/*
 * Allocator receipts: signed claims that bind one allocation (who, where, which ids in which order,
 * under which schema generation) to the batch that realizes it (protocols.md section 3, Receipt;
 * allocator note 6.3). The allocator signs, ingest verifies; the format is the signed wrapper of
 * base/token.h around searchfabric.v1.AllocatorReceiptClaims. No expiry.
 */
#ifndef SF_CONTRACT_RECEIPT_H
#define SF_CONTRACT_RECEIPT_H

#include "base/arena.h"
#include "base/ids.h"
#include "base/token.h"
#include "searchfabric/v1/durable.pb-c.h"

/* One realized item, in plan order. */
struct sf_receipt_item {
    uint64_t doc_id;       /* the document's id */
    bool allocator_issued; /* the allocator chose it */
};

/* What the allocator attests. All text is borrowed for the call and NUL-terminated. */
struct sf_receipt_facts {
    const char *identity_hash_hex;            /* SHA-256 hex of the authenticated identity */
    const char *client_id;                    /* as sent to AllocateIds */
    Searchfabric__V1__ClientKind client_kind; /* of the caller */
    struct sf_collection_ref collection;      /* the exact lineage */
    Searchfabric__V1__IdAllocationRouteIntent route_intent; /* CREATE_INSERT */
    const char *transport_lookup_key;    /* name of the allocation, 64 hex digits */
    const char *payload_fingerprint;     /* of its canonical payload, 64 hex digits */
    const struct sf_receipt_item *items; /* every realized item, in order */
    size_t item_count;                   /* >= 1 */
    const char *schema_generation_token; /* active when it was allocated */
    int64_t applied_at_unix_ms;          /* stable over replays */
};

/* Appends the signed receipt (at most SF_LIMIT_RECEIPT_BYTES). Any thread. */
void sf_receipt_sign(struct sf_keyring *ring, const struct sf_receipt_facts *facts,
                     struct sf_buf *out);

/* What the bearer of a receipt must agree with. */
struct sf_receipt_expected {
    const char *identity_hash_hex;            /* of the caller who sends the batch */
    const char *client_id;                    /* of the sender, or NULL = not compared */
    Searchfabric__V1__ClientKind client_kind; /* of the sender, or UNSPECIFIED = not compared */
    struct sf_collection_ref collection;      /* target of the batch */
    const uint64_t *doc_ids;                  /* ids of the batch's create rows, in order */
    size_t doc_id_count;                      /* number of them */
    const char *schema_generation_token;      /* of the batch */
};

/* Verifies signature and every claim against the batch; the route intent must be CREATE_INSERT. On
 * SF_OK *out_claims (in `arena`) holds the claims. Error: SF_BAD_REQUEST with details `field` =
 * "allocator_receipt" and `violation`: "missing", "too_long", "malformed", "signature",
 * "unknown_key", "identity", "client", "collection", "route_intent", "schema_generation_token",
 * "doc_ids". Any thread. Source: ALLOC-6.3-04 to 6.3-08. */
SF_MUST_USE enum sf_err sf_receipt_verify(struct sf_keyring *ring, struct sf_view receipt,
                                          const struct sf_receipt_expected *expected,
                                          struct sf_arena *arena, struct sf_diag *diag,
                                          Searchfabric__V1__AllocatorReceiptClaims **out_claims);

/* SHA-256 over, per item in order: doc_id as 8 bytes big-endian, then 01 if issued, else 00. */
void sf_receipt_ids_digest(const struct sf_receipt_item *items, size_t count,
                           uint8_t out_digest[32]);

#endif
