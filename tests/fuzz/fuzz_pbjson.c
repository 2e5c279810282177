/*
 * JSON of a stored object. What decodes has one canonical form: encoding, decoding and encoding
 * again give the same bytes, and so does the way over the wire, unknown members included.
 */
#include "base/pb.h"
#include "base/pbjson.h"
#include "test.pb-c.h"
#include "test_descriptor_set.h"

#define BUDGET (8u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum sf_err registered =
        sf_pbjson_register(sf_view_bytes(sf_test_descriptor_set, sf_test_descriptor_set_size));
    SF_ASSERT(registered == SF_OK);

    const ProtobufCMessageDescriptor *desc = &sf__test__v1__kinds__descriptor;
    struct sf_arena *arena = sf_arena_new(BUDGET);
    ProtobufCMessage *message = NULL;
    struct sf_diag diag;

    sf_diag_init(&diag);
    if (sf_pbjson_decode(desc, sf_view_bytes(data, size), arena, &diag, &message) == SF_OK) {
        struct sf_buf forms[3] = {{0}, {0}, {0}};
        struct sf_buf packed = {0};
        struct sf_arena *other = sf_arena_new(4 * BUDGET);
        ProtobufCMessage *back = NULL;

        sf_pbjson_encode(message, &forms[0]);
        enum sf_err err = sf_pbjson_decode(desc, sf_buf_view(&forms[0]), other, NULL, &back);
        SF_ASSERT(err == SF_OK);
        sf_pbjson_encode(back, &forms[1]);
        SF_ASSERT(sf_view_equal(sf_buf_view(&forms[0]), sf_buf_view(&forms[1])));

        sf_arena_reset(other);
        sf_pb_pack(message, &packed);
        err = sf_pb_unpack(desc, sf_buf_view(&packed), other, NULL, &back);
        SF_ASSERT(err == SF_OK);
        sf_pbjson_encode(back, &forms[2]);
        SF_ASSERT(sf_view_equal(sf_buf_view(&forms[0]), sf_buf_view(&forms[2])));

        for (size_t i = 0; i < SF_ARRAY_LEN(forms); i++)
            sf_buf_fini(&forms[i]);
        sf_buf_fini(&packed);
        sf_arena_destroy(other);
    } else {
        SF_ASSERT(diag.err != SF_OK && sf_diag_get(&diag, "field") != NULL);
    }
    sf_arena_destroy(arena);
    return 0;
}
