#include "publish/keys.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/hash.h"

/*
 * One place for the spelling of keys. Numbers that must sort are zero-padded to 20 digits; ids are
 * plain decimal; H(ns) spreads namespaces over prefixes (first two hex digits of the SHA-256 of the
 * id's decimal text).
 */

unsigned sf_wal_stream_of(Searchfabric__V1__Modality modality, Searchfabric__V1__WriterMode mode)
{
    SF_ASSERT(modality >= 1 && (unsigned)modality <= SF_MODALITY_COUNT);
    SF_ASSERT(mode == SEARCHFABRIC__V1__WRITER_MODE__WRITER_MODE_STREAM ||
              mode == SEARCHFABRIC__V1__WRITER_MODE__WRITER_MODE_BATCH);
    unsigned semantic = modality == SEARCHFABRIC__V1__MODALITY__MODALITY_SEMANTIC_SEARCH ? 2u : 0u;
    return semantic + (mode == SEARCHFABRIC__V1__WRITER_MODE__WRITER_MODE_BATCH ? 1u : 0u);
}

Searchfabric__V1__Modality sf_wal_stream_modality(unsigned index)
{
    return index < 2 ? SEARCHFABRIC__V1__MODALITY__MODALITY_METADATA_SEARCH
                     : SEARCHFABRIC__V1__MODALITY__MODALITY_SEMANTIC_SEARCH;
}

Searchfabric__V1__WriterMode sf_wal_stream_mode(unsigned index)
{
    return index % 2 == 0 ? SEARCHFABRIC__V1__WRITER_MODE__WRITER_MODE_STREAM
                          : SEARCHFABRIC__V1__WRITER_MODE__WRITER_MODE_BATCH;
}

uint8_t sf_wal_stream_covers(unsigned index)
{
    if (index >= 2)
        return SF_MODALITY_BIT(SEARCHFABRIC__V1__MODALITY__MODALITY_SEMANTIC_SEARCH);
    return SF_MODALITY_BIT(SEARCHFABRIC__V1__MODALITY__MODALITY_METADATA_SEARCH) |
           SF_MODALITY_BIT(SEARCHFABRIC__V1__MODALITY__MODALITY_METADATA_AUX);
}

void sf_wal_chunk_key(struct sf_buf *out, unsigned stream, uint32_t shard_id, uint64_t epoch,
                      uint64_t seq)
{
    SF_ASSERT(stream < SF_WAL_STREAMS);
    sf_buf_printf(out, "wal/%s-%s/shard=%" PRIu32 "/%020" PRIu64 "/%020" PRIu64,
                  stream < 2 ? "metadata" : "semantic", stream % 2 == 0 ? "stream" : "batch",
                  shard_id, epoch, seq);
}

void sf_leader_key(struct sf_buf *out, uint32_t shard_id)
{
    sf_buf_printf(out, "coordinator/shard=%" PRIu32 "/leader.json", shard_id);
}

static void append_collection(struct sf_buf *out, const char *root, struct sf_collection_ref ref)
{
    char id[24];
    char hex[SF_SHA256_HEX_BYTES];
    snprintf(id, sizeof(id), "%" PRIu64, ref.namespace_id.v);
    sf_sha256_hex(sf_view_str(id), hex);
    sf_buf_printf(out, "%s/%.2s/%s/%" PRIu64 "/", root, hex, id, ref.collection_id.v);
}

void sf_committed_head_key(struct sf_buf *out, struct sf_collection_ref collection)
{
    append_collection(out, "catalog", collection);
    sf_buf_append_str(out, "manifest_committed_head.json");
}

void sf_manifest_key(struct sf_buf *out, struct sf_collection_ref collection, uint64_t version)
{
    append_collection(out, "manifests", collection);
    sf_buf_printf(out, "manifest_v%020" PRIu64 ".json", version);
}

void sf_manifest_list_key(struct sf_buf *out, struct sf_collection_ref collection,
                          const char *attempt_id)
{
    append_collection(out, "manifests", collection);
    sf_buf_printf(out, "list_%s.json", attempt_id);
}
