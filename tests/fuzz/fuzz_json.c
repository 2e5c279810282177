/* Any text: the reader never leaves it, and a string that it accepts survives being written. */
#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/text.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sf_view text = sf_view_bytes(data, size);
    struct sf_json j;
    struct sf_json_str string;
    struct sf_view raw;

    sf_json_init(&j, text, SF_LIMIT_JSON_DEPTH);
    bool valid = sf_json_skip(&j, &raw) && sf_json_end(&j);
    SF_ASSERT(valid == sf_json_valid(text, SF_LIMIT_JSON_DEPTH));
    if (!valid) {
        SF_ASSERT(j.error != NULL && sf_json_offset(&j) <= size);
        return 0;
    }
    SF_ASSERT(sf_json_valid(raw, SF_LIMIT_JSON_DEPTH) && sf_utf8_valid(text));
    sf_json_init(&j, raw, SF_LIMIT_JSON_DEPTH);
    if (sf_json_peek(&j) == SF_JSON_STRING && sf_json_string(&j, &string)) {
        uint8_t *plain = sf_malloc(string.raw.len);
        size_t n = sf_json_unescape(string, plain);
        struct sf_buf out = {0};
        struct sf_json_str again = {0};
        SF_ASSERT(sf_utf8_valid(sf_view_bytes(plain, n)));
        sf_json_append_string(&out, sf_view_bytes(plain, n));
        sf_json_init(&j, sf_buf_view(&out), 1);
        bool back = sf_json_string(&j, &again) && sf_json_end(&j);
        SF_ASSERT(back);
        uint8_t *second = sf_malloc(again.raw.len);
        SF_ASSERT(sf_json_unescape(again, second) == n &&
                  (n == 0 || memcmp(second, plain, n) == 0));
        free(second);
        free(plain);
        sf_buf_fini(&out);
    }
    return 0;
}
