/* Tokens from callers: none that the ring did not sign verifies, whatever its bytes. */
#include "base/token.h"

#include "base/compiler.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sf_keyring *ring;
    struct sf_view claims;
    struct sf_buf token = {0};

    if (ring == NULL)
        ring = sf_keyring_new_for_test(1);
    enum sf_token_reason reason =
        sf_token_verify(ring, SF_TOKEN_PAGE, 1000, sf_view_bytes(data, size), &claims);
    SF_ASSERT(reason != SF_TOKEN_OK);

    /* the input as claims of a genuine token, and that token with one byte of the input's choice */
    sf_token_sign(ring, SF_TOKEN_PAGE, 1, 2000, sf_view_bytes(data, size), &token);
    reason = sf_token_verify(ring, SF_TOKEN_PAGE, 1000, sf_buf_view(&token), &claims);
    SF_ASSERT(reason == SF_TOKEN_OK && sf_view_equal(claims, sf_view_bytes(data, size)));
    if (size >= 2 && data[1] != 0) {
        token.data[data[0] % token.len] ^= data[1];
        reason = sf_token_verify(ring, SF_TOKEN_PAGE, 1000, sf_buf_view(&token), &claims);
        SF_ASSERT(reason != SF_TOKEN_OK);
    }
    sf_buf_fini(&token);
    return 0;
}
