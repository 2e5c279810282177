/*
 * The binary form of a WAL chunk: 8 bytes magic, then records of length (4 bytes little-endian),
 * XXH3-64 of the payload (8 bytes little-endian) and payload. First payload a WalChunkHeader, last
 * a WalChunkTrailer whose SHA-256 covers everything before it, WalFrames between. Pure; decoding is
 * fuzzed. Source: durable.proto, WalChunkHeader.
 */
#ifndef SF_PUBLISH_WAL_CHUNK_H
#define SF_PUBLISH_WAL_CHUNK_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/diag.h"
#include "searchfabric/v1/durable.pb-c.h"

#define SF_WAL_MAGIC             "SFWAL01\n"
#define SF_WAL_MAGIC_BYTES       8
#define SF_WAL_RECORD_HEAD_BYTES 12 /* length and checksum before each payload */

/* Where a record stands in its chunk; offset and length span the whole record. */
struct sf_wal_place {
    uint64_t offset_bytes;  /* of the frame in the chunk */
    uint64_t length_bytes;  /* of the frame */
    uint64_t checksum_xxh3; /* of the payload, as in the record */
};

/* Starts a chunk in the empty buffer `out`. */
void sf_wal_chunk_begin(struct sf_buf *out, const Searchfabric__V1__WalChunkHeader *header);

/* Appends one frame; `out_place` gets its place. */
void sf_wal_chunk_add(struct sf_buf *out, const Searchfabric__V1__WalFrame *frame,
                      struct sf_wal_place *out_place);

/* Ends the chunk of `frame_count` frames. */
void sf_wal_chunk_end(struct sf_buf *out, uint32_t frame_count);

/* One decoded frame with its place. */
struct sf_wal_record {
    const Searchfabric__V1__WalFrame *frame; /* in the arena of the decode */
    struct sf_wal_place place;               /* of the frame in the chunk */
};

/* A decoded chunk; all of it in the arena. */
struct sf_wal_chunk {
    const Searchfabric__V1__WalChunkHeader *header; /* in the arena of the decode */
    const struct sf_wal_record *records;            /* in the arena; in the chunk's order */
    size_t count;                                   /* of them */
};

/* Decodes and verifies a whole chunk. Errors: SF_ERR_CORRUPT (anything that does not verify),
 * SF_ERR_LIMIT (arena). */
SF_MUST_USE enum sf_err sf_wal_chunk_decode(struct sf_view body, struct sf_arena *arena,
                                            struct sf_diag *diag, struct sf_wal_chunk *out_chunk);

/* Decodes one record read by its place (an anchor): exactly `record`, whose payload must carry
 * `checksum_xxh3`. Errors as above. */
SF_MUST_USE enum sf_err sf_wal_record_decode(struct sf_view record, uint64_t checksum_xxh3,
                                             struct sf_arena *arena, struct sf_diag *diag,
                                             const Searchfabric__V1__WalFrame **out_frame);

/* True when the chunk is a seal: one SEAL frame alone. */
bool sf_wal_chunk_is_seal(const struct sf_wal_chunk *chunk);

#endif
