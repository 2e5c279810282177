/*
 * Model: the claims name the allocation and carry one digest over the ordered (doc_id, issued)
 * list. A verifier knows the ids of its batch but not who chose each, so the claims say that too,
 * as one bit an item. Each claim is compared on its own, so that a refusal names the one that
 * differs. The signature is checked first: nothing of an unsigned receipt is looked at.
 */
#include "contract/receipt.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/pb.h"

#define CREATE_INSERT                                                                              \
    SEARCHFABRIC__V1__ID_ALLOCATION_ROUTE_INTENT__ID_ALLOCATION_ROUTE_INTENT_CREATE_INSERT
#define DIGEST_ITEM_BYTES 9

/* Writes one item as the digest and the fingerprint see it. */
static void item_write(uint8_t *at, uint64_t doc_id, bool issued)
{
    for (unsigned i = 0; i < 8; i++)
        at[i] = (uint8_t)(doc_id >> (56 - 8 * i));
    at[8] = issued ? 1 : 0;
}

void sf_receipt_ids_digest(const struct sf_receipt_item *items, size_t count,
                           uint8_t out_digest[32])
{
    uint8_t *bytes = sf_malloc(count * DIGEST_ITEM_BYTES + 1);
    for (size_t i = 0; i < count; i++)
        item_write(bytes + i * DIGEST_ITEM_BYTES, items[i].doc_id, items[i].allocator_issued);
    sf_sha256(sf_view_bytes(bytes, count * DIGEST_ITEM_BYTES), out_digest);
    free(bytes);
}

/* Fills the bits of `claims` from the items; the bytes are owned by the caller. */
static uint8_t *issued_bits(const struct sf_receipt_facts *facts,
                            Searchfabric__V1__AllocatorReceiptClaims *claims)
{
    size_t issued = 0;
    uint8_t *bits = sf_calloc(facts->item_count / 8 + 1, 1);
    size_t len = 0;
    for (size_t i = 0; i < facts->item_count; i++) {
        if (!facts->items[i].allocator_issued)
            continue;
        issued++;
        bits[i / 8] = (uint8_t)(bits[i / 8] | 1u << (i % 8));
        len = i / 8 + 1;
    }
    claims->all_issued = issued == facts->item_count;
    claims->allocator_issued_bits.data = bits;
    claims->allocator_issued_bits.len = claims->all_issued ? 0 : len;
    return bits;
}

void sf_receipt_sign(struct sf_keyring *ring, const struct sf_receipt_facts *facts,
                     struct sf_buf *out)
{
    SF_ASSERT(facts->item_count >= 1 && facts->item_count <= SF_LIMIT_ALLOC_PLAN_ITEMS);
    Searchfabric__V1__CollectionRef collection = SEARCHFABRIC__V1__COLLECTION_REF__INIT;
    Searchfabric__V1__AllocatorReceiptClaims claims =
        SEARCHFABRIC__V1__ALLOCATOR_RECEIPT_CLAIMS__INIT;
    uint8_t digest[SF_SHA256_BYTES];

    collection.namespace_id = facts->collection.namespace_id.v;
    collection.collection_id = facts->collection.collection_id.v;
    sf_receipt_ids_digest(facts->items, facts->item_count, digest);
    claims.authenticated_client_identity_hash = (char *)facts->identity_hash_hex;
    claims.client_id = (char *)facts->client_id;
    claims.client_kind = facts->client_kind;
    claims.collection = &collection;
    claims.route_intent = facts->route_intent;
    claims.transport_lookup_key = (char *)facts->transport_lookup_key;
    claims.payload_fingerprint = (char *)facts->payload_fingerprint;
    claims.item_count = (uint32_t)facts->item_count;
    claims.realized_ids_sha256.data = digest;
    claims.realized_ids_sha256.len = sizeof(digest);
    claims.schema_generation_token = (char *)facts->schema_generation_token;
    claims.applied_at_unix_ms = facts->applied_at_unix_ms;
    uint8_t *bits = issued_bits(facts, &claims);

    struct sf_buf packed = {0};
    sf_pb_pack(&claims.base, &packed);
    size_t before = out->len;
    sf_token_sign(ring, SF_TOKEN_ALLOCATOR_RECEIPT, facts->applied_at_unix_ms, 0,
                  sf_buf_view(&packed), out);
    SF_ASSERT(out->len - before <= SF_LIMIT_RECEIPT_BYTES);
    sf_buf_fini(&packed);
    free(bits);
}

static enum sf_err refuse(struct sf_diag *diag, const char *violation)
{
    return sf_diag_bad_field(diag, "allocator_receipt", violation,
                             "the allocator receipt does not hold for this batch: %s", violation);
}

/* True when item `i` was issued by the allocator, as the claims say. */
static bool claimed_issued(const Searchfabric__V1__AllocatorReceiptClaims *claims, size_t i)
{
    if (claims->all_issued)
        return true;
    return i / 8 < claims->allocator_issued_bits.len &&
           (claims->allocator_issued_bits.data[i / 8] >> (i % 8) & 1) != 0;
}

/* True when the batch's ids are the realized ones: all of them, in order. */
static bool ids_match(const Searchfabric__V1__AllocatorReceiptClaims *claims,
                      const struct sf_receipt_expected *expected)
{
    if (claims->item_count != expected->doc_id_count || expected->doc_id_count == 0 ||
        expected->doc_id_count > SF_LIMIT_ALLOC_PLAN_ITEMS ||
        claims->realized_ids_sha256.len != SF_SHA256_BYTES)
        return false;
    size_t len = expected->doc_id_count * DIGEST_ITEM_BYTES;
    uint8_t *bytes = sf_malloc(len);
    uint8_t digest[SF_SHA256_BYTES];
    for (size_t i = 0; i < expected->doc_id_count; i++)
        item_write(bytes + i * DIGEST_ITEM_BYTES, expected->doc_ids[i], claimed_issued(claims, i));
    sf_sha256(sf_view_bytes(bytes, len), digest);
    free(bytes);
    return memcmp(digest, claims->realized_ids_sha256.data, sizeof(digest)) == 0;
}

/* The first claim that disagrees with the batch, or NULL. */
static const char *disagreement(const Searchfabric__V1__AllocatorReceiptClaims *claims,
                                const struct sf_receipt_expected *expected)
{
    if (strcmp(claims->authenticated_client_identity_hash, expected->identity_hash_hex) != 0)
        return "identity";
    if ((expected->client_id != NULL && strcmp(claims->client_id, expected->client_id) != 0) ||
        (expected->client_kind != SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_UNSPECIFIED &&
         claims->client_kind != expected->client_kind))
        return "client";
    if (claims->collection == NULL ||
        claims->collection->namespace_id != expected->collection.namespace_id.v ||
        claims->collection->collection_id != expected->collection.collection_id.v)
        return "collection";
    if (claims->route_intent != CREATE_INSERT)
        return "route_intent";
    if (strcmp(claims->schema_generation_token, expected->schema_generation_token) != 0)
        return "schema_generation_token";
    return ids_match(claims, expected) ? NULL : "doc_ids";
}

enum sf_err sf_receipt_verify(struct sf_keyring *ring, struct sf_view receipt,
                              const struct sf_receipt_expected *expected, struct sf_arena *arena,
                              struct sf_diag *diag,
                              Searchfabric__V1__AllocatorReceiptClaims **out_claims)
{
    struct sf_view packed;
    ProtobufCMessage *message = NULL;

    if (receipt.len == 0)
        return refuse(diag, "missing");
    if (receipt.len > SF_LIMIT_RECEIPT_BYTES)
        return refuse(diag, "too_long");
    enum sf_token_reason reason =
        sf_token_verify(ring, SF_TOKEN_ALLOCATOR_RECEIPT, 0, receipt, &packed);
    if (reason != SF_TOKEN_OK)
        return refuse(diag, sf_token_reason_text(reason));
    if (sf_pb_unpack(&searchfabric__v1__allocator_receipt_claims__descriptor, packed, arena, NULL,
                     &message) != SF_OK)
        return refuse(diag, "malformed");
    Searchfabric__V1__AllocatorReceiptClaims *claims = (void *)message;
    const char *what = disagreement(claims, expected);
    if (what != NULL)
        return refuse(diag, what);
    *out_claims = claims;
    return SF_OK;
}
