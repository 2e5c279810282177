/* Any body of PUT /{index}: a definition that was taken is shown as valid JSON; a refusal has its
 * reason. */
#include "base/json.h"
#include "base/limits.h"
#include "gateway/es_mapping.h"
#include "gateway/es_reply.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sf_arena *arena = sf_arena_new(16u << 20);
    Searchfabric__V1__CollectionSchemaDefinition *definition;
    struct sf_es_error error;
    struct sf_buf out = {0};

    if (sf_es_mapping_read(sf_view_bytes(data, size), arena, &definition, &error)) {
        sf_buf_append_str(&out, "{");
        sf_es_mapping_write(definition, &out);
        sf_buf_append_str(&out, "}");
    } else {
        SF_ASSERT(error.status == 400 && error.type != NULL && error.reason != NULL);
        sf_es_reply_error(&error, sf_view_str("books"), &out);
    }
    SF_ASSERT(sf_json_valid(sf_buf_view(&out), SF_LIMIT_JSON_DEPTH));
    sf_buf_fini(&out);
    sf_arena_destroy(arena);
    return 0;
}
