/*
 * What the allocator reads itself. A request: its reader and the general one agree on all bytes.
 * Stored runs of ids: what passes the check is walked to its end, with as many items as it says.
 */
#include "allocator/allocator_items.h"
#include "base/limits.h"
#include "base/pb.h"

#define ARENA_BYTES ((size_t)8 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_request(struct sf_view bytes)
{
    const ProtobufCMessageDescriptor *desc = &searchfabric__v1__allocate_ids_request__descriptor;
    struct sf_arena *own_arena = sf_arena_new(ARENA_BYTES);
    struct sf_arena *arena = sf_arena_new(ARENA_BYTES);
    ProtobufCMessage *own = NULL, *general = NULL;

    enum sf_err own_err = sf_alloc_request_unpack(bytes, own_arena, NULL, &own);
    enum sf_err err = sf_pb_unpack(desc, bytes, arena, NULL, &general);
    SF_ASSERT(own_err == err || err == SF_ERR_LIMIT); /* it needs less memory */
    if (err == SF_OK) {
        struct sf_buf own_packed = {0}, packed = {0};
        sf_pb_pack(own, &own_packed);
        sf_pb_pack(general, &packed);
        SF_ASSERT(sf_view_equal(sf_buf_view(&own_packed), sf_buf_view(&packed)));
        sf_buf_fini(&own_packed);
        sf_buf_fini(&packed);
    }
    sf_arena_destroy(own_arena);
    sf_arena_destroy(arena);
}

static void read_runs(struct sf_view bytes)
{
    sf_replay_record record = SEARCHFABRIC__V1__ALLOCATOR_REPLAY_SUCCESS_OBJECT__INIT;
    struct sf_plan_item item;
    size_t count = 0;
    uint64_t last = 0;

    record.item_runs = (ProtobufCBinaryData){bytes.len, (uint8_t *)(uintptr_t)bytes.ptr};
    if (bytes.len == 0 || !sf_alloc_items_whole(&record))
        return;
    struct sf_alloc_items items = sf_alloc_items_of(&record);
    for (; sf_alloc_items_next(&items, &item); count++) {
        SF_ASSERT(count == 0 || item.doc_id > last);
        last = item.doc_id;
    }
    SF_ASSERT(count == sf_alloc_items_count(&record) && count <= SF_LIMIT_ALLOC_PLAN_ITEMS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_request(sf_view_bytes(data, size));
    read_runs(sf_view_bytes(data, size));
    return 0;
}
