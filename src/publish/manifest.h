/*
 * What a publisher holds of its collection and how the next manifest is made from it. Pure: no
 * store, no clock. Source: protocols.md section 4, Publish; durable.proto,
 * CollectionManifestObject.
 */
#ifndef SF_PUBLISH_MANIFEST_H
#define SF_PUBLISH_MANIFEST_H

#include "base/hash.h"
#include "object/durable.h"
#include "publish/chain.h"
#include "publish/publisher.h"

#define SF_MANIFEST_PLAN_LISTS 16 /* overflow objects that one base may cut */

/* One slice with its duplicate entry, both packed. */
struct sf_manifest_entry {
    struct sf_manifest_entry *next;            /* in lane order */
    struct sf_buf slice;                       /* packed ManifestSlice */
    struct sf_buf duplicate;                   /* packed DuplicateEntry */
    uint64_t commit_ts;                        /* TSO of the slice */
    uint64_t rows;                             /* in it */
    uint64_t bytes;                            /* logical bytes of its rows */
    bool present;                              /* already in the committed lineage that was read */
    char write_intent_id[SF_SHA256_HEX_BYTES]; /* identity of the slice */
};

/* Entries in lane order. Zeroed = empty. */
struct sf_manifest_queue {
    struct sf_manifest_entry *first; /* oldest */
    struct sf_manifest_entry *last;  /* newest */
    size_t count;                    /* entries */
};

void sf_manifest_queue_fini(struct sf_manifest_queue *queue);
void sf_manifest_queue_add(struct sf_manifest_queue *queue,
                           const Searchfabric__V1__ManifestSlice *slice,
                           const Searchfabric__V1__DuplicateEntry *duplicate);
/* Frees the first `count` entries. */
void sf_manifest_queue_drop(struct sf_manifest_queue *queue, size_t count);
/* commit_ts of entry `index`; UINT64_MAX past the end. */
uint64_t sf_manifest_queue_ts(const struct sf_manifest_queue *queue, size_t index);
/* Lowest commit_ts; UINT64_MAX when empty. */
uint64_t sf_manifest_queue_min_ts(const struct sf_manifest_queue *queue);
/* Marks the entries that `chain` holds, by slice identity. */
void sf_manifest_queue_mark_present(struct sf_manifest_queue *queue, const struct sf_chain *chain);
/* Number of entries at the front that are marked. */
size_t sf_manifest_queue_present_prefix(const struct sf_manifest_queue *queue);

/* A list object that the lineage names. */
struct sf_manifest_list_ref {
    char *key;                        /* owned */
    char sha256[SF_SHA256_HEX_BYTES]; /* of its bytes */
    uint32_t entry_count;             /* entries in it */
    uint64_t min_commit_ts;           /* of its entries */
    uint64_t max_commit_ts;           /* of its entries */
};

/* Lowest and newest frame of a stream. */
struct sf_manifest_anchor {
    bool present;           /* there is one */
    uint32_t shard_id;      /* of the chunk */
    uint64_t epoch;         /* of the chunk */
    uint64_t seq;           /* of the chunk */
    uint64_t offset_bytes;  /* of the frame in it */
    uint64_t length_bytes;  /* of the frame */
    uint64_t checksum_xxh3; /* of the frame */
};

/* The summary that background work gave a manifest. Zeroed = none. */
struct sf_manifest_summary_ref {
    char *key;                        /* owned; NULL = none */
    char sha256[SF_SHA256_HEX_BYTES]; /* of its bytes */
    uint64_t version;                 /* manifest that it was made for */
};

/* What the committed head holds. Zeroed = nothing published. */
struct sf_manifest_state {
    uint64_t version;                                  /* of the manifest */
    char sha256[SF_SHA256_HEX_BYTES];                  /* of the manifest */
    struct sf_etag head_etag;                          /* empty = no head */
    uint64_t base_version;                             /* that its deltas stand on */
    uint32_t deltas;                                   /* since the base */
    uint64_t safe_ts;                                  /* TSO below which all is visible */
    struct sf_frontier frontier;                       /* watermarks */
    uint64_t total_rows;                               /* of all slices */
    uint64_t total_bytes;                              /* logical bytes of all slices */
    struct sf_manifest_queue tail;                     /* entries in no list */
    struct sf_manifest_list_ref *refs;                 /* in lane order */
    size_t ref_count;                                  /* of them */
    struct sf_manifest_summary_ref summary;            /* carried on by each publish */
    struct sf_manifest_anchor start[SF_WAL_STREAMS];   /* lowest frame, by stream */
    struct sf_manifest_anchor durable[SF_WAL_STREAMS]; /* newest frame, by stream */
};

void sf_manifest_state_fini(struct sf_manifest_state *state);
/* Takes over what a complete walk read (which may have left out old lists, never their refs). */
void sf_manifest_state_load(struct sf_manifest_state *state, const struct sf_chain *chain);

/* An overflow object to be written. */
struct sf_manifest_list {
    struct sf_buf key;               /* of the overflow object; owned */
    struct sf_buf body;              /* of it; owned */
    struct sf_manifest_list_ref ref; /* ref.key owned */
    bool stands;                     /* known to be stored */
};

/* The next publish: bytes and keys, and the state after it. */
struct sf_manifest_plan {
    uint64_t version;                 /* of the manifest */
    bool is_base;                     /* else a delta */
    struct sf_buf manifest_key;       /* where it goes */
    struct sf_buf manifest;           /* its bytes */
    char sha256[SF_SHA256_HEX_BYTES]; /* of manifest */
    struct sf_buf head_key;           /* of the committed head */
    struct sf_buf head;               /* its bytes */
    struct sf_etag head_etag;         /* set by the caller once the swap stands */
    struct sf_manifest_list lists[SF_MANIFEST_PLAN_LISTS]; /* written before the manifest */
    size_t list_count;                                     /* used entries */
    size_t listed; /* entries that move into the lists: of the tail first, then of the new ones */
    uint64_t safe_ts;                                  /* TSO below which all is visible */
    struct sf_frontier frontier;                       /* watermarks */
    uint64_t total_rows;                               /* of all slices */
    uint64_t total_bytes;                              /* logical bytes of all slices */
    struct sf_manifest_anchor start[SF_WAL_STREAMS];   /* lowest frame, by stream */
    struct sf_manifest_anchor durable[SF_WAL_STREAMS]; /* newest frame, by stream */
};

void sf_manifest_plan_fini(struct sf_manifest_plan *plan);

struct sf_manifest_inputs {
    struct sf_collection_ref collection; /* whose */
    uint64_t publisher_epoch;            /* that fences the head */
    uint32_t base_interval;              /* a base every so many manifests */
    uint32_t list_entries;               /* most entries of an overflow object */
    uint64_t version;                    /* number to create */
    struct sf_frontier frontier;         /* watermarks as known */
    int64_t unix_ms;                     /* now */
    struct sf_attempts *attempts;        /* makes attempt ids */
};

/* Builds the publish of the first `taken` entries of `ready` on top of `state` into the empty
 * `plan`. Watermarks never fall below those of `state`. */
void sf_manifest_plan_build(struct sf_manifest_plan *plan, const struct sf_manifest_state *state,
                            const struct sf_manifest_queue *ready, size_t taken,
                            const struct sf_manifest_inputs *inputs);

/* The plan is committed: moves its entries from `ready` into `state`. */
void sf_manifest_state_commit(struct sf_manifest_state *state, struct sf_manifest_plan *plan,
                              struct sf_manifest_queue *ready, size_t taken);

#endif
