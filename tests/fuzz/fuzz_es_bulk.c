/*
 * Any bulk body: every document and id of an item lies within what was sent, every answer is one
 * valid JSON text, and no item is lost or made up.
 */
#include <stdlib.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/text.h"
#include "gateway/es_bulk.h"
#include "gateway/es_reply.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_item(const struct sf_es_bulk_item *item, struct sf_view body)
{
    struct sf_es_result result = {.error = item->error, .doc_id = 1};
    struct sf_buf out = {0};

    if (item->source.len > 0)
        SF_ASSERT(item->source.ptr >= body.ptr &&
                  item->source.ptr + item->source.len < body.ptr + body.len);
    SF_ASSERT(memchr(item->source.len > 0 ? (const void *)item->source.ptr : "", '\n',
                     item->source.len) == NULL);
    SF_ASSERT(sf_utf8_valid(item->index) && (!item->has_id || sf_utf8_valid(item->id)));
    sf_es_reply_item(item, &result, &out);
    SF_ASSERT(sf_json_valid(sf_buf_view(&out), 8));
    sf_buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sf_arena *arena = sf_arena_new(16u << 20);
    struct sf_view body = sf_view_bytes(data, size);
    struct sf_es_bulk_item *items;
    struct sf_es_error error;
    size_t count;

    if (sf_es_bulk_parse(body, sf_view_str("books"), arena, &items, &count, &error)) {
        SF_ASSERT(count > 0 && count <= size / 2);
        for (size_t i = 0; i < count; i++)
            check_item(&items[i], body);
    } else {
        struct sf_buf out = {0};
        SF_ASSERT(error.status >= 400 && error.type != NULL && error.reason != NULL);
        sf_es_reply_error(&error, sf_view_str("books"), &out);
        SF_ASSERT(sf_json_valid(sf_buf_view(&out), 8));
        sf_buf_fini(&out);
    }
    sf_arena_destroy(arena);
    return 0;
}
