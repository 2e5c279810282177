/*
 * The items of a replay record: what the request asked for and what it got, in order. A plan of up
 * to SF_LIMIT_ALLOC_PLAIN_ITEMS items stands there item by item (`plan`, `realized_doc_ids`), a
 * longer one as `item_runs`: runs of consecutive ids that were all issued or all explicit, which
 * say the same. Readers of records go through here. Private to the folder.
 */
#ifndef SF_ALLOCATOR_ALLOCATOR_ITEMS_H
#define SF_ALLOCATOR_ALLOCATOR_ITEMS_H

#include "allocator/allocator_rules.h"

typedef Searchfabric__V1__AllocatorReplaySuccessObject sf_replay_record;

/* A walk over the items. */
struct sf_alloc_items {
    const sf_replay_record *record; /* whose */
    size_t at;                      /* next plain item, or next byte of the runs */
    uint64_t next_id;               /* of the present run */
    uint64_t left;                  /* items of the present run */
    bool issued;                    /* the present run */
};

/* Fills the record from a realized request; false when the arena is full. */
bool sf_alloc_items_store(const struct sf_alloc_request *request, struct sf_arena *arena,
                          sf_replay_record *record);

/* True when the record has items, each with its id, and its two forms do not contradict. */
bool sf_alloc_items_whole(const sf_replay_record *record);

/* Items of a whole record. */
size_t sf_alloc_items_count(const sf_replay_record *record);

/* Starts a walk over a whole record; gives its next item, false after the last. */
struct sf_alloc_items sf_alloc_items_of(const sf_replay_record *record);
bool sf_alloc_items_next(struct sf_alloc_items *items, struct sf_plan_item *out_item);

/* Id of the first item of a whole record; the bound above all its ids. */
uint64_t sf_alloc_items_first(const sf_replay_record *record);
struct sf_watermark sf_alloc_items_end(const sf_replay_record *record);

/* The items as runs, in `arena`; false when it is full. */
bool sf_alloc_items_runs(const sf_replay_record *record, struct sf_arena *arena,
                         Searchfabric__V1__AllocatorIdRun ***out_runs, size_t *out_count);

/* Appends the packed AllocateIdsSuccessResponse that a whole record stands for: the bytes that
 * sf_pb_pack would give. */
void sf_alloc_items_answer(const sf_replay_record *record, struct sf_buf *out_packed);

#endif
