#include "publish/wal_chunk.h"

#include <xxhash.h>

#include "base/hash.h"
#include "base/limits.h"
#include "base/pb.h"

/*
 * A chunk is written once and read rarely: by recovery as a whole, by readers frame by frame
 * through anchors. So each record has its own checksum, and the trailer's SHA-256 covers all of
 * them: a chunk that was cut, spliced or rotted is never taken for a shorter one.
 */

static void put_le(uint8_t *out, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        out[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get_le(const uint8_t *in, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)in[i] << (8 * i);
    return value;
}

static void add_record(struct sf_buf *out, const ProtobufCMessage *message,
                       struct sf_wal_place *out_place)
{
    uint8_t head[SF_WAL_RECORD_HEAD_BYTES] = {0};
    size_t start = out->len;
    sf_buf_append(out, head, sizeof(head));
    sf_pb_pack(message, out);
    size_t payload_len = out->len - start - sizeof(head);
    SF_ASSERT(payload_len <= UINT32_MAX);
    uint64_t checksum = XXH3_64bits(out->data + start + sizeof(head), payload_len);
    put_le(out->data + start, payload_len, 4);
    put_le(out->data + start + 4, checksum, 8);
    *out_place = (struct sf_wal_place){start, out->len - start, checksum};
}

void sf_wal_chunk_begin(struct sf_buf *out, const Searchfabric__V1__WalChunkHeader *header)
{
    struct sf_wal_place place;
    SF_ASSERT(out->len == 0);
    sf_buf_append(out, SF_WAL_MAGIC, SF_WAL_MAGIC_BYTES);
    add_record(out, &header->base, &place);
}

void sf_wal_chunk_add(struct sf_buf *out, const Searchfabric__V1__WalFrame *frame,
                      struct sf_wal_place *out_place)
{
    add_record(out, &frame->base, out_place);
}

void sf_wal_chunk_end(struct sf_buf *out, uint32_t frame_count)
{
    uint8_t digest[SF_SHA256_BYTES];
    struct sf_wal_place place;
    Searchfabric__V1__WalChunkTrailer trailer = SEARCHFABRIC__V1__WAL_CHUNK_TRAILER__INIT;
    sf_sha256(sf_buf_view(out), digest);
    trailer.frame_count = frame_count;
    trailer.sha256 = (ProtobufCBinaryData){sizeof(digest), digest};
    add_record(out, &trailer.base, &place);
}

static enum sf_err corrupt(struct sf_diag *diag, const char *what)
{
    return sf_diag_set(diag, SF_ERR_CORRUPT, "WAL chunk: %s", what);
}

/* Takes the record at `*offset`; its payload in `out_payload`. */
static enum sf_err next_record(struct sf_view body, size_t *offset, struct sf_diag *diag,
                               struct sf_view *out_payload, struct sf_wal_place *out_place)
{
    size_t left = body.len - *offset;
    if (left < SF_WAL_RECORD_HEAD_BYTES)
        return corrupt(diag, "record cut short");
    const uint8_t *head = body.ptr + *offset;
    size_t payload_len = (size_t)get_le(head, 4);
    uint64_t checksum = get_le(head + 4, 8);
    if (payload_len > left - SF_WAL_RECORD_HEAD_BYTES)
        return corrupt(diag, "record longer than the chunk");
    *out_payload = sf_view_bytes(head + SF_WAL_RECORD_HEAD_BYTES, payload_len);
    if (XXH3_64bits(out_payload->ptr, payload_len) != checksum)
        return corrupt(diag, "record checksum does not verify");
    *out_place = (struct sf_wal_place){*offset, SF_WAL_RECORD_HEAD_BYTES + payload_len, checksum};
    *offset += SF_WAL_RECORD_HEAD_BYTES + payload_len;
    return SF_OK;
}

static enum sf_err unpack(const ProtobufCMessageDescriptor *desc, struct sf_view payload,
                          struct sf_arena *arena, struct sf_diag *diag, ProtobufCMessage **out)
{
    enum sf_err err = sf_pb_unpack(desc, payload, arena, diag, out);
    if (err == SF_ERR_PARSE)
        return corrupt(diag, "record does not decode");
    return err;
}

/* Counts the records and verifies each; the last one is the trailer. */
static enum sf_err scan_records(struct sf_view body, struct sf_diag *diag, size_t *out_count,
                                struct sf_wal_place *out_last, struct sf_view *out_trailer)
{
    size_t offset = SF_WAL_MAGIC_BYTES;
    *out_count = 0;
    while (offset < body.len) {
        enum sf_err err = next_record(body, &offset, diag, out_trailer, out_last);
        if (err != SF_OK)
            return err;
        ++*out_count;
    }
    return *out_count >= 2 ? SF_OK : corrupt(diag, "no trailer");
}

static enum sf_err check_trailer(struct sf_view body, struct sf_view payload, size_t offset,
                                 size_t frames, struct sf_arena *arena, struct sf_diag *diag)
{
    uint8_t digest[SF_SHA256_BYTES];
    ProtobufCMessage *message = NULL;
    enum sf_err err =
        unpack(&searchfabric__v1__wal_chunk_trailer__descriptor, payload, arena, diag, &message);
    if (err != SF_OK)
        return err;
    const Searchfabric__V1__WalChunkTrailer *trailer = (const void *)message;
    sf_sha256(sf_view_bytes(body.ptr, offset), digest);
    if (trailer->frame_count != frames || trailer->sha256.len != sizeof(digest) ||
        memcmp(trailer->sha256.data, digest, sizeof(digest)) != 0)
        return corrupt(diag, "trailer does not verify");
    return SF_OK;
}

enum sf_err sf_wal_chunk_decode(struct sf_view body, struct sf_arena *arena, struct sf_diag *diag,
                                struct sf_wal_chunk *out_chunk)
{
    size_t count = 0;
    struct sf_wal_place place = {0};
    struct sf_view payload = {0};
    ProtobufCMessage *message = NULL;
    if (body.len < SF_WAL_MAGIC_BYTES || memcmp(body.ptr, SF_WAL_MAGIC, SF_WAL_MAGIC_BYTES) != 0)
        return corrupt(diag, "no magic");
    enum sf_err err = scan_records(body, diag, &count, &place, &payload);
    if (err == SF_OK)
        err = check_trailer(body, payload, place.offset_bytes, count - 2, arena, diag);
    if (err != SF_OK)
        return err;
    size_t offset = SF_WAL_MAGIC_BYTES;
    struct sf_wal_record *records = sf_arena_alloc(arena, (count - 2 + 1) * sizeof(*records));
    if (records == NULL)
        return sf_diag_set(diag, SF_ERR_LIMIT, "WAL chunk: too many frames");
    for (size_t i = 0; i < count - 1; i++) {
        err = next_record(body, &offset, diag, &payload, &place);
        if (err == SF_OK)
            err = unpack(i == 0 ? &searchfabric__v1__wal_chunk_header__descriptor
                                : &searchfabric__v1__wal_frame__descriptor,
                         payload, arena, diag, &message);
        if (err != SF_OK)
            return err;
        if (i == 0)
            out_chunk->header = (const void *)message;
        else
            records[i - 1] = (struct sf_wal_record){(const void *)message, place};
    }
    if (out_chunk->header->format_version != 1)
        return corrupt(diag, "format version is not 1");
    out_chunk->records = records;
    out_chunk->count = count - 2;
    return SF_OK;
}

enum sf_err sf_wal_record_decode(struct sf_view record, uint64_t checksum_xxh3,
                                 struct sf_arena *arena, struct sf_diag *diag,
                                 const Searchfabric__V1__WalFrame **out_frame)
{
    size_t offset = 0;
    struct sf_view payload = {0};
    struct sf_wal_place place = {0};
    ProtobufCMessage *message = NULL;
    enum sf_err err = next_record(record, &offset, diag, &payload, &place);
    if (err != SF_OK)
        return err;
    if (offset != record.len || place.checksum_xxh3 != checksum_xxh3)
        return corrupt(diag, "record is not the one that the anchor names");
    err = unpack(&searchfabric__v1__wal_frame__descriptor, payload, arena, diag, &message);
    if (err == SF_OK)
        *out_frame = (const void *)message;
    return err;
}

bool sf_wal_chunk_is_seal(const struct sf_wal_chunk *chunk)
{
    return chunk->count == 1 &&
           chunk->records[0].frame->kind == SEARCHFABRIC__V1__WAL_FRAME_KIND__WAL_FRAME_KIND_SEAL;
}
