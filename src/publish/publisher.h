/*
 * The manifest publisher of one collection. Takes slices that are durable everywhere, in lane
 * order, and makes them visible: one new manifest (create-only) and one swap of the committed head
 * cover all that gathered while the last publish was under way. That swap is the visibility point.
 * Lives on one loop; every callback runs there, never inside a call of this header.
 * Source: protocols.md section 4, Publish; note 5.4.
 */
#ifndef SF_PUBLISH_PUBLISHER_H
#define SF_PUBLISH_PUBLISHER_H

#include "object/durable.h"
#include "publish/chain.h"
#include "publish/head_notices.h"
#include "publish/keys.h"

struct sf_publisher;

/* What a manifest says of its lane. */
struct sf_frontier {
    uint64_t local_max_commit_ts;           /* newest admitted write */
    uint64_t applied_ts[SF_MODALITY_COUNT]; /* by modality - 1; only enabled ones count */
    uint8_t enabled;                        /* SF_MODALITY_BIT set */
};

/* min over the enabled modalities; 0 when none is. */
uint64_t sf_frontier_safe_ts(const struct sf_frontier *frontier);

/* Fills the wire form: every enabled modality, and no other. */
void sf_frontier_watermarks(const struct sf_frontier *frontier,
                            Searchfabric__V1__EngineWatermarks *out_marks);

/* What a manifest says. */
void sf_frontier_read(const Searchfabric__V1__CollectionManifestObject *manifest,
                      struct sf_frontier *out_frontier);

struct sf_publisher_ops {
    /* The load ended. `chain` is valid during the call; NULL unless err is SF_OK. Errors as
     * sf_chain_feed; SF_ERR_DEPOSED when the head carries a higher publisher_epoch. */
    void (*loaded)(void *user, enum sf_err err, const struct sf_chain *chain);
    /* Asks for the lane's frontier while a manifest is built. Watermarks must stay below
     * `below_ts` (the lowest slice handed over and not taken; UINT64_MAX = none) and below every
     * slice not handed over yet. */
    void (*frontier)(void *user, uint64_t below_ts, struct sf_frontier *out_frontier);
    /* The first `count` slices handed over and not yet reported stand in committed `version`. */
    void (*published)(void *user, uint64_t version, size_t count);
    /* Nothing more will be published: SF_ERR_DEPOSED, SF_ERR_CORRUPT. Last callback but loaded. */
    void (*stopped)(void *user, enum sf_err err);
};

struct sf_publisher_options {
    struct sf_store *store;       /* holds manifests and the head */
    struct sf_loop *loop;         /* of every call and callback */
    struct sf_clock *clock;       /* times in manifests */
    struct sf_attempts *attempts; /* ids of its puts */
    struct sf_rng *rng;           /* jitter; the loop's */
    size_t *ops_outstanding; /* store calls under way, kept by the owner of the loop's objects */
    struct sf_collection_ref collection; /* whose manifests */
    uint64_t publisher_epoch;            /* the coordinator epoch */
    uint32_t base_interval;              /* >= 1; a base every so many manifests */
    uint32_t list_entries;               /* >= 1; slices of one overflow object */
    struct sf_head_notices *notices;     /* told of every committed head; borrowed; NULL = none */
};

SF_NONNULL struct sf_publisher *sf_publisher_new(const struct sf_publisher_options *options,
                                                 const struct sf_publisher_ops *ops, void *user);

/* No more callbacks; freed as soon as no store call is under way. NULL is fine. */
void sf_publisher_destroy(struct sf_publisher *publisher);

/* Reads the committed lineage; `loaded` follows. Lists whose newest commit_ts lies below `from_ts`
 * are left out. Once, before the first submit; again only after it failed. */
void sf_publisher_load(struct sf_publisher *publisher, uint64_t from_ts);

/* Hands over one durable slice, in lane order; both messages are copied. After `loaded` was OK. */
void sf_publisher_submit(struct sf_publisher *publisher,
                         const Searchfabric__V1__ManifestSlice *slice,
                         const Searchfabric__V1__DuplicateEntry *duplicate);

/* Version of the committed head that is known; 0 = none. */
uint64_t sf_publisher_version(const struct sf_publisher *publisher);

#endif
