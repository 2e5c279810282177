/*
 * Raw protobuf from a peer. What the scan lets through must unpack (unless merged parts pass the
 * arena), and from then on every form is stable: packed bytes, and JSON, which must decode again.
 */
#include "base/limits.h"
#include "base/pb.h"
#include "base/pbjson.h"
#include "test.pb-c.h"
#include "test_descriptor_set.h"

#define BUDGET (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void json_is_stable(const ProtobufCMessage *message)
{
    struct sf_arena *arena = sf_arena_new(64 * BUDGET);
    struct sf_buf first = {0};
    struct sf_buf second = {0};
    ProtobufCMessage *back = NULL;

    sf_pbjson_encode(message, &first);
    enum sf_err err =
        sf_pbjson_decode(message->descriptor, sf_buf_view(&first), arena, NULL, &back);
    SF_ASSERT(err == SF_OK);
    sf_pbjson_encode(back, &second);
    SF_ASSERT(sf_view_equal(sf_buf_view(&first), sf_buf_view(&second)));
    sf_buf_fini(&first);
    sf_buf_fini(&second);
    sf_arena_destroy(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum sf_err registered =
        sf_pbjson_register(sf_view_bytes(sf_test_descriptor_set, sf_test_descriptor_set_size));
    SF_ASSERT(registered == SF_OK);

    struct sf_arena *arena = sf_arena_new(BUDGET);
    struct sf_view bytes = sf_view_bytes(data, size);
    const ProtobufCMessageDescriptor *desc = &sf__test__v1__kinds__descriptor;
    ProtobufCMessage *message = NULL;
    struct sf_diag diag;

    sf_diag_init(&diag);
    enum sf_err err = sf_pb_unpack(desc, bytes, arena, &diag, &message);
    if (err == SF_OK) {
        struct sf_buf packed = {0};
        sf_pb_pack(message, &packed);
        enum sf_err again = sf_pb_scan(desc, sf_buf_view(&packed), SIZE_MAX, NULL);
        SF_ASSERT(again == SF_OK);
        sf_buf_fini(&packed);
        json_is_stable(message);
    } else {
        SF_ASSERT(err == SF_ERR_PARSE || err == SF_ERR_LIMIT);
        SF_ASSERT(diag.err == err && diag.message[0] != '\0');
    }
    sf_arena_destroy(arena);
    return 0;
}
