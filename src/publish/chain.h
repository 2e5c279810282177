/*
 * Walking a collection's committed lineage: head -> manifests back to the newest base -> lists that
 * the base names. Pure: it says which key it wants next and takes the answer, so that the publisher
 * (on a loop) and readers (waiting) share every check. Source: protocols.md section 4, Publish.
 */
#ifndef SF_PUBLISH_CHAIN_H
#define SF_PUBLISH_CHAIN_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/diag.h"
#include "base/ids.h"
#include "object/store.h"
#include "searchfabric/v1/durable.pb-c.h"

/* The walk's place: what it asks for next. */
enum sf_chain_state { SF_CHAIN_HEAD, SF_CHAIN_MANIFEST, SF_CHAIN_LIST, SF_CHAIN_DONE };

struct sf_chain {
    /* immutable */
    struct sf_collection_ref collection;
    uint64_t from_ts;       /* lists whose newest commit_ts lies below are not read */
    struct sf_arena *arena; /* owns every message below; owned by the chain */
    /* results, whole when the state is DONE */
    enum sf_chain_state state;
    const Searchfabric__V1__ManifestCommittedHeadObject *head;    /* NULL = nothing was published */
    struct sf_etag head_etag;                                     /* of that head */
    const Searchfabric__V1__CollectionManifestObject **manifests; /* newest first, base last */
    size_t manifest_count;
    const Searchfabric__V1__ManifestListObject **lists; /* read lists, in lane order */
    size_t list_count;
    /* private */
    size_t manifest_cap;
    size_t next_list;      /* ref of the base to look at next */
    uint64_t next_version; /* manifest wanted */
    char next_sha256[65];  /* digest it must have */
};

/* Starts a walk; release with sf_chain_fini. */
void sf_chain_init(struct sf_chain *chain, struct sf_collection_ref collection, uint64_t from_ts);
void sf_chain_fini(struct sf_chain *chain);

/* Appends the next key wanted; false when the walk is complete. */
bool sf_chain_want(struct sf_chain *chain, struct sf_buf *out_key);

/* Takes the answer for the key wanted. `err` is the read's: SF_ERR_NOT_FOUND is fine for the head
 * alone. Errors: SF_ERR_CORRUPT (a link does not verify or is missing), SF_ERR_UNAVAILABLE,
 * SF_ERR_LIMIT. */
SF_MUST_USE enum sf_err sf_chain_feed(struct sf_chain *chain, enum sf_err err, struct sf_view body,
                                      const struct sf_etag *etag, struct sf_diag *diag);

/* Runs the walk to its end, waiting for each read. Errors as sf_chain_feed; the key that failed is
 * in `diag`. */
SF_MUST_USE enum sf_err sf_chain_read_wait(struct sf_chain *chain, struct sf_store *store,
                                           struct sf_sched *sched, struct sf_diag *diag);

/* Called once per slice that the lineage holds (that was read), in lane order. */
typedef void (*sf_chain_slice_fn)(void *user, const Searchfabric__V1__ManifestSlice *slice);
void sf_chain_each_slice(const struct sf_chain *chain, sf_chain_slice_fn each, void *user);

/* Called once per duplicate entry that was read, in lane order. */
typedef void (*sf_chain_duplicate_fn)(void *user, const Searchfabric__V1__DuplicateEntry *entry);
void sf_chain_each_duplicate(const struct sf_chain *chain, sf_chain_duplicate_fn each, void *user);

/* The newest manifest, or NULL. */
const Searchfabric__V1__CollectionManifestObject *sf_chain_newest(const struct sf_chain *chain);

/* The base, or NULL. */
const Searchfabric__V1__CollectionManifestObject *sf_chain_base(const struct sf_chain *chain);

#endif
