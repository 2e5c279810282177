/* Names and prefixes from callers: one clear verdict, and a successor that bounds the prefix. */
#include "base/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sf_view text = sf_view_bytes(data, size);
    struct sf_diag diag;
    struct sf_buf successor = {0};
    struct sf_buf key = {0};
    uint64_t number;

    sf_diag_init(&diag);
    if (sf_name_check("name", text, true, &diag) != SF_OK)
        SF_ASSERT(diag.err == SF_BAD_REQUEST && sf_diag_get(&diag, "violation") != NULL);
    if (sf_utf8_valid(text) && sf_prefix_successor(text, &successor)) {
        SF_ASSERT(sf_utf8_valid(sf_buf_view(&successor)));
        SF_ASSERT(sf_view_compare(sf_buf_view(&successor), text) > 0);
        SF_ASSERT(successor.len > text.len || memcmp(successor.data, data, successor.len) != 0);
    }
    sf_key_append_component(&key, text);
    SF_ASSERT(key.len >= size);
    (void)sf_parse_u64(text, &number);
    (void)sf_identity_check("id", text, 1, 128, &diag);
    sf_buf_fini(&successor);
    sf_buf_fini(&key);
    return 0;
}
