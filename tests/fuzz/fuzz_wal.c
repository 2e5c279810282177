/*
 * WAL chunks and single records, as read from the store. What decodes is what a writer would write:
 * built again from its parts it decodes to the same, and each record by its place is the same
 * frame. The first byte says whether checksums are made right before decoding, so that damage
 * behind them is reached too.
 */
#include <xxhash.h>

#include "base/hash.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/pb.h"
#include "publish/wal_chunk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t get_u32(const uint8_t *in)
{
    return (uint32_t)in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
}

/* Makes the record checksums of `body` right, as far as its lengths go. */
static void mend(struct sf_buf *body)
{
    size_t at = SF_WAL_MAGIC_BYTES;
    while (body->len >= at && body->len - at >= SF_WAL_RECORD_HEAD_BYTES) {
        size_t len = get_u32(body->data + at);
        if (len > body->len - at - SF_WAL_RECORD_HEAD_BYTES)
            return;
        uint64_t sum = XXH3_64bits(body->data + at + SF_WAL_RECORD_HEAD_BYTES, len);
        for (unsigned i = 0; i < 8; i++)
            body->data[at + 4 + i] = (uint8_t)(sum >> (8 * i));
        at += SF_WAL_RECORD_HEAD_BYTES + len;
    }
}

static bool same(const ProtobufCMessage *a, const ProtobufCMessage *b)
{
    struct sf_buf x = {0};
    struct sf_buf y = {0};
    sf_pb_pack(a, &x);
    sf_pb_pack(b, &y);
    bool equal = sf_view_equal(sf_buf_view(&x), sf_buf_view(&y));
    sf_buf_fini(&x);
    sf_buf_fini(&y);
    return equal;
}

/* A decoded chunk, written again, is the same chunk. */
static void round_trip(const struct sf_wal_chunk *chunk)
{
    struct sf_arena *arena = sf_arena_new(64u << 20);
    struct sf_buf body = {0};
    struct sf_wal_chunk again;
    sf_wal_chunk_begin(&body, chunk->header);
    for (size_t i = 0; i < chunk->count; i++) {
        struct sf_wal_place place;
        sf_wal_chunk_add(&body, chunk->records[i].frame, &place);
    }
    sf_wal_chunk_end(&body, (uint32_t)chunk->count);
    enum sf_err err = sf_wal_chunk_decode(sf_buf_view(&body), arena, NULL, &again);
    SF_ASSERT(err == SF_OK && again.count == chunk->count);
    SF_ASSERT(same(&again.header->base, &chunk->header->base));
    for (size_t i = 0; i < again.count; i++) {
        const struct sf_wal_place *place = &again.records[i].place;
        const Searchfabric__V1__WalFrame *frame = NULL;
        SF_ASSERT(same(&again.records[i].frame->base, &chunk->records[i].frame->base));
        err = sf_wal_record_decode(
            sf_view_bytes(body.data + place->offset_bytes, place->length_bytes),
            place->checksum_xxh3, arena, NULL, &frame);
        SF_ASSERT(err == SF_OK && same(&frame->base, &chunk->records[i].frame->base));
    }
    SF_ASSERT(sf_wal_chunk_is_seal(&again) == sf_wal_chunk_is_seal(chunk));
    sf_buf_fini(&body);
    sf_arena_destroy(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sf_arena *arena = sf_arena_new(8u << 20);
    struct sf_buf body = {0};
    struct sf_wal_chunk chunk = {0};
    const Searchfabric__V1__WalFrame *frame = NULL;
    struct sf_diag diag;
    if (size > 0)
        sf_buf_append(&body, data + 1, size - 1);
    if (size > 0 && (data[0] & 1) != 0)
        mend(&body);
    sf_diag_init(&diag);
    enum sf_err err = sf_wal_chunk_decode(sf_buf_view(&body), arena, &diag, &chunk);
    if (err == SF_OK)
        round_trip(&chunk);
    else
        SF_ASSERT((err == SF_ERR_CORRUPT || err == SF_ERR_LIMIT) && diag.err == err);
    uint64_t sum =
        body.len > SF_WAL_RECORD_HEAD_BYTES
            ? XXH3_64bits(body.data + SF_WAL_RECORD_HEAD_BYTES, body.len - SF_WAL_RECORD_HEAD_BYTES)
            : 0;
    err = sf_wal_record_decode(sf_buf_view(&body), sum, arena, &diag, &frame);
    SF_ASSERT(err == SF_OK || err == SF_ERR_CORRUPT || err == SF_ERR_LIMIT);
    sf_buf_fini(&body);
    sf_arena_destroy(arena);
    return 0;
}
