/*
 * Page tokens and stored segments. The first byte chooses: the rest is a token's text; or it is
 * signed as claims and must come back as they are or be refused as malformed; or it is a stored
 * body, plain or zstd.
 */
#include <stdlib.h>

#include "base/pbjson.h"
#include "catalog/catalog_priv.h"
#include "contract/descriptor_set.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void decode_stored(struct sf_view body, bool compressed, struct sf_arena *arena)
{
    struct sf_diag diag;
    ProtobufCMessage *message = NULL;
    enum sf_err err = sf_catalog_decode(&searchfabric__v1__recovery_segment_object__descriptor,
                                        compressed, body, arena, &diag, &message);
    SF_ASSERT(err == SF_OK || err == SF_ERR_CORRUPT);
}

static void round_trip(struct sf_keyring *ring, struct sf_view claims, struct sf_arena *arena)
{
    struct sf_buf text = {0};
    const SF_PB(PageTokenClaims) *found = NULL;
    sf_catalog_page_encode(ring, 1000, 2000, claims, &text);
    enum sf_token_reason reason =
        sf_catalog_page_decode(ring, 1500, sf_buf_view(&text), arena, &found);
    SF_ASSERT(reason == SF_TOKEN_OK || reason == SF_TOKEN_MALFORMED);
    SF_ASSERT((reason == SF_TOKEN_OK) == (found != NULL));
    SF_ASSERT(sf_catalog_page_decode(ring, 2001, sf_buf_view(&text), arena, &found) != SF_TOKEN_OK);
    sf_buf_fini(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sf_keyring *ring;
    if (ring == NULL) {
        ring = sf_keyring_new_for_test(1);
        if (sf_pbjson_register(sf_view_bytes(sf_contract_descriptor_set,
                                             sf_contract_descriptor_set_size)) != SF_OK)
            abort();
    }
    if (size == 0)
        return 0;
    struct sf_arena *arena = sf_arena_new((size_t)4 << 20);
    struct sf_view rest = sf_view_bytes(data + 1, size - 1);
    const SF_PB(PageTokenClaims) *claims = NULL;
    switch (data[0] % 4) {
    case 0:
        SF_ASSERT(sf_catalog_page_decode(ring, 1500, rest, arena, &claims) != SF_TOKEN_OK);
        break;
    case 1:
        if (rest.len <= 4096)
            round_trip(ring, rest, arena);
        break;
    default:
        decode_stored(rest, data[0] % 4 == 3, arena);
        break;
    }
    sf_arena_destroy(arena);
    return 0;
}
