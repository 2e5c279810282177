/*
 * Tells the catalog which manifest was committed: one head_advance_intent for the newest version of
 * a collection, at most every SF_HEAD_NOTICE_PERIOD_MS, tried again while the process lives.
 * Nothing waits for it: the committed head alone says what is visible, and what is lost with the
 * process is found by the catalog's reconciler. Source: note 2.2 and 9.1; protocols.md section 4,
 * Publish.
 */
#ifndef SF_PUBLISH_HEAD_NOTICES_H
#define SF_PUBLISH_HEAD_NOTICES_H

#include "base/hash.h"
#include "base/ids.h"
#include "rpc/channel.h"

#define SF_HEAD_NOTICE_PERIOD_MS    10000
#define SF_HEAD_NOTICE_COLLECTIONS  65536 /* beyond, a collection's notice is dropped */
#define SF_HEAD_NOTICE_RETRY_MAX_MS 60000 /* longest pause after a failure */

struct sf_head_notices;

struct sf_head_notices_options {
    struct sf_channel *catalog; /* private service, as the manifest publisher; borrowed */
    struct sf_loop *loop;       /* timers and answers */
    uint64_t random_seed;       /* jitter */
};

/* What was committed. */
struct sf_head_notice {
    struct sf_collection_ref collection; /* whose head */
    uint64_t version;                    /* of the committed head */
    uint64_t previous;                   /* committed before it, 0 = none */
    char checksum[SF_SHA256_HEX_BYTES];  /* of the manifest's bytes */
};

SF_NONNULL struct sf_head_notices *
sf_head_notices_new(const struct sf_head_notices_options *options);

/* Notes a committed head; a newer version of a collection takes the place of an older one that was
 * not told yet. Any thread; never blocks, never fails. NULL notices: nothing happens. */
void sf_head_notices_tell(struct sf_head_notices *notices, const struct sf_head_notice *notice);

/* Tells nothing more, waits for calls under way, frees. A plain thread, the loop running; nobody
 * tells any more. NULL is fine. */
void sf_head_notices_destroy(struct sf_head_notices *notices);

#endif
