/*
 * Reading a collection as it is committed: head -> manifests -> WAL frames. Nothing but durable
 * objects is looked at; every checksum on the way is verified. This is what `sfctl rows` and the
 * demo's comparison use.
 */
#ifndef SF_PUBLISH_READER_H
#define SF_PUBLISH_READER_H

#include "base/diag.h"
#include "base/ids.h"
#include "object/store.h"
#include "searchfabric/v1/search_fabric.pb-c.h"

/* One visible row. `body` is valid during the callback. */
struct sf_row {
    struct sf_doc_id doc_id;    /* of the document */
    Searchfabric__V1__RowOp op; /* of the winning write; never DELETE */
    struct sf_tso commit_ts;    /* of the winning write */
    struct sf_view body;        /* as ingested, byte for byte */
    uint64_t source_partition;  /* where the winning write came from */
    uint64_t source_epoch;      /* of that source */
    uint64_t source_seq;        /* in that source */
};

/* What the committed head says. All zero when the collection has no manifest yet. */
struct sf_rows_head {
    uint64_t manifest_version; /* committed */
    struct sf_tso safe_ts;     /* all up to it is visible */
    uint64_t publisher_epoch;  /* of who committed it */
    uint64_t slices;           /* slices held */
    uint64_t total_rows;       /* rows of all slices, hidden ones included */
};

/* False stops the walk. */
typedef bool (*sf_row_fn)(void *user, const struct sf_row *row);

/* Lists the visible rows of `collection` in doc_id order: per document the row with the highest
 * commit_ts, then the greatest (source_partition, source_epoch, source_seq); documents whose winner
 * is a DELETE are left out. `out_head` may be NULL. Blocks: worker task, or plain thread with
 * `sched` NULL. Holds all rows in memory meanwhile. Errors: SF_ERR_UNAVAILABLE, SF_ERR_CORRUPT (key
 * in `diag`). A collection without a committed head has no rows: SF_OK. */
SF_MUST_USE enum sf_err sf_rows_read(struct sf_store *store, struct sf_sched *sched,
                                     struct sf_collection_ref collection, sf_row_fn each,
                                     void *user, struct sf_rows_head *out_head,
                                     struct sf_diag *diag);

/* The committed head alone; SF_OK with zeros when there is none. Errors as sf_rows_read. */
SF_MUST_USE enum sf_err sf_rows_head_read(struct sf_store *store, struct sf_sched *sched,
                                          struct sf_collection_ref collection,
                                          struct sf_rows_head *out_head, struct sf_diag *diag);

#endif
