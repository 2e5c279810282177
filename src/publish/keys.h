/*
 * Keys and small enums of the write plane's durable objects: manifests, committed heads, WAL
 * chunks. Written by coordinator and publisher, read by recovery and readers. Source:
 * durable.proto.
 */
#ifndef SF_PUBLISH_KEYS_H
#define SF_PUBLISH_KEYS_H

#include "base/buf.h"
#include "base/ids.h"
#include "searchfabric/v1/commit_coordinator.pb-c.h"

/* Modalities as a set: bit (modality - 1). */
#define SF_MODALITY_COUNT         3
#define SF_MODALITY_BIT(modality) ((uint8_t)(1u << ((unsigned)(modality)-1u)))

/* The WAL streams of a shard: two writers (metadata, which carries metadata_aux too, and semantic)
 * in two modes (stream, batch). */
#define SF_WAL_STREAMS 4

/* Stream of a modality and mode; both must be specified values. */
unsigned sf_wal_stream_of(Searchfabric__V1__Modality modality, Searchfabric__V1__WriterMode mode);

/* The writer's own modality and the mode of stream `index` (< SF_WAL_STREAMS). */
Searchfabric__V1__Modality sf_wal_stream_modality(unsigned index);
Searchfabric__V1__WriterMode sf_wal_stream_mode(unsigned index);

/* Modalities that a frame in stream `index` makes durable. */
uint8_t sf_wal_stream_covers(unsigned index);

/* Appends `wal/{modality}-{mode}/shard={n}/{epoch}/{seq}`. */
void sf_wal_chunk_key(struct sf_buf *out, unsigned stream, uint32_t shard_id, uint64_t epoch,
                      uint64_t seq);

/* Appends `coordinator/shard={n}/leader.json`. */
void sf_leader_key(struct sf_buf *out, uint32_t shard_id);

/* Appends `catalog/H(ns)/{ns}/{collection}/manifest_committed_head.json`. */
void sf_committed_head_key(struct sf_buf *out, struct sf_collection_ref collection);

/* Appends `manifests/H(ns)/{ns}/{collection}/manifest_v{version}.json`. */
void sf_manifest_key(struct sf_buf *out, struct sf_collection_ref collection, uint64_t version);

/* Appends `manifests/H(ns)/{ns}/{collection}/list_{attempt_id}.json`. */
void sf_manifest_list_key(struct sf_buf *out, struct sf_collection_ref collection,
                          const char *attempt_id);

#endif
