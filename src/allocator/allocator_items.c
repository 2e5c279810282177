#include "allocator/allocator_items.h"

#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"

#define U64_BRANCH SEARCHFABRIC__V1__DOCUMENT_ID__ID_VALUE_U64

typedef Searchfabric__V1__AllocatorIdRun sf_id_run;

/* ---- store ---- */

/* Fills record->realized_doc_ids item by item; false when the arena is full. */
static bool plain_store(const struct sf_alloc_request *request, struct sf_arena *arena,
                        sf_replay_record *record)
{
    struct pair {
        Searchfabric__V1__RealizedDocId realized;
        Searchfabric__V1__DocumentID doc_id;
    };
    struct pair *pairs = sf_arena_alloc(arena, request->item_count * sizeof(*pairs));
    Searchfabric__V1__RealizedDocId **list =
        sf_arena_alloc(arena, request->item_count * sizeof(Searchfabric__V1__RealizedDocId *));

    if (pairs == NULL || list == NULL)
        return false;
    for (size_t i = 0; i < request->item_count; i++) {
        searchfabric__v1__realized_doc_id__init(&pairs[i].realized);
        searchfabric__v1__document_id__init(&pairs[i].doc_id);
        pairs[i].doc_id.id_value_case = U64_BRANCH;
        pairs[i].doc_id.u64 = request->items[i].doc_id;
        pairs[i].realized.doc_id = &pairs[i].doc_id;
        pairs[i].realized.allocator_issued = request->items[i].allocator_issued;
        list[i] = &pairs[i].realized;
    }
    record->plan = (Searchfabric__V1__AllocationPlan *)request->plan;
    record->realized_doc_ids = list;
    record->n_realized_doc_ids = request->item_count;
    return true;
}

/* ---- runs ---- */

#define VARINT_BYTES 10u /* at most */

static uint8_t *put_varint(uint8_t *at, uint64_t value)
{
    while (value >= 0x80) {
        *at++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *at++ = (uint8_t)value;
    return at;
}

/* Reads one at `*at`; false when it does not end or does not fit. */
static bool get_varint(const ProtobufCBinaryData *bytes, size_t *at, uint64_t *out_value)
{
    *out_value = 0;
    for (unsigned shift = 0; shift < 7 * VARINT_BYTES && *at < bytes->len; shift += 7) {
        uint64_t group = bytes->data[*at] & 0x7fu;
        if (shift == 63 && group > 1)
            return false;
        *out_value |= group << shift;
        if (bytes->data[(*at)++] < 0x80)
            return true;
    }
    return false;
}

/* Length of the run that begins at item `from`. */
static size_t run_length(const struct sf_alloc_request *request, size_t from)
{
    const struct sf_plan_item *first = &request->items[from];
    size_t n = 1;

    while (from + n < request->item_count && first[n].doc_id - first->doc_id == n &&
           first[n].allocator_issued == first->allocator_issued)
        n++;
    return n;
}

static bool runs_store(const struct sf_alloc_request *request, struct sf_arena *arena,
                       sf_replay_record *record)
{
    uint8_t *bytes = sf_malloc(request->item_count * 2 * VARINT_BYTES);
    uint8_t *at = bytes;
    uint64_t end = 0; /* of the run before */

    for (size_t i = 0; i < request->item_count;) {
        size_t n = run_length(request, i);
        at = put_varint(at, request->items[i].doc_id - end);
        at = put_varint(at, 2 * n + (request->items[i].allocator_issued ? 1 : 0));
        end = request->items[i].doc_id + n;
        i += n;
    }
    record->item_runs.len = (size_t)(at - bytes);
    record->item_runs.data = sf_arena_dup(arena, bytes, record->item_runs.len);
    free(bytes);
    return record->item_runs.data != NULL;
}

bool sf_alloc_items_store(const struct sf_alloc_request *request, struct sf_arena *arena,
                          sf_replay_record *record)
{
    return request->item_count <= SF_LIMIT_ALLOC_PLAIN_ITEMS ? plain_store(request, arena, record)
                                                             : runs_store(request, arena, record);
}

/* ---- read ---- */

static bool plain_whole(const sf_replay_record *record)
{
    if (record->n_realized_doc_ids == 0 || record->plan == NULL ||
        record->plan->n_items != record->n_realized_doc_ids)
        return false;
    for (size_t i = 0; i < record->n_realized_doc_ids; i++) {
        const Searchfabric__V1__RealizedDocId *item = record->realized_doc_ids[i];
        if (item->doc_id == NULL || item->doc_id->id_value_case != U64_BRANCH)
            return false;
    }
    return true;
}

/* Checks that the runs are readable, ascend and are of at most so many items as a plan may have. */
static bool runs_whole(const sf_replay_record *record)
{
    uint64_t items = 0;
    uint64_t end = 0;
    uint64_t gap, length;
    bool full = false; /* 2^64 - 1 was taken: nothing can follow */

    for (size_t at = 0; at < record->item_runs.len;) {
        if (full || !get_varint(&record->item_runs, &at, &gap) ||
            !get_varint(&record->item_runs, &at, &length) || gap > UINT64_MAX - end)
            return false;
        uint64_t first = end + gap;
        length /= 2;
        if (length == 0 || length > SF_LIMIT_ALLOC_PLAN_ITEMS - items ||
            length - 1 > UINT64_MAX - first)
            return false;
        items += length;
        end = first + length;
        full = end == 0;
    }
    return true;
}

bool sf_alloc_items_whole(const sf_replay_record *record)
{
    if (record->item_runs.len == 0)
        return plain_whole(record);
    return record->n_realized_doc_ids == 0 && record->plan == NULL && runs_whole(record);
}

size_t sf_alloc_items_count(const sf_replay_record *record)
{
    size_t items = record->n_realized_doc_ids;
    uint64_t gap, length;

    for (size_t at = 0; at < record->item_runs.len;) {
        if (!get_varint(&record->item_runs, &at, &gap) ||
            !get_varint(&record->item_runs, &at, &length))
            break;
        items += length / 2;
    }
    return items;
}

struct sf_alloc_items sf_alloc_items_of(const sf_replay_record *record)
{
    return (struct sf_alloc_items){.record = record};
}

/* Moves to the next run; false after the last. */
static bool next_run(struct sf_alloc_items *items)
{
    const ProtobufCBinaryData *runs = &items->record->item_runs;
    uint64_t gap, length;

    if (items->at == runs->len || !get_varint(runs, &items->at, &gap) ||
        !get_varint(runs, &items->at, &length))
        return false;
    items->next_id += gap;
    items->left = length / 2;
    items->issued = length % 2 != 0;
    return true;
}

bool sf_alloc_items_next(struct sf_alloc_items *items, struct sf_plan_item *out_item)
{
    const sf_replay_record *record = items->record;

    if (items->at < record->n_realized_doc_ids) {
        const Searchfabric__V1__RealizedDocId *item = record->realized_doc_ids[items->at++];
        *out_item = (struct sf_plan_item){.doc_id = item->doc_id->u64,
                                          .allocator_issued = item->allocator_issued};
        return true;
    }
    if (items->left == 0 && (record->n_realized_doc_ids != 0 || !next_run(items)))
        return false;
    *out_item =
        (struct sf_plan_item){.doc_id = items->next_id++, .allocator_issued = items->issued};
    items->left--;
    return true;
}

uint64_t sf_alloc_items_first(const sf_replay_record *record)
{
    struct sf_alloc_items items = sf_alloc_items_of(record);
    struct sf_plan_item item = {0};

    (void)sf_alloc_items_next(&items, &item);
    return item.doc_id;
}

struct sf_watermark sf_alloc_items_end(const sf_replay_record *record)
{
    struct sf_alloc_items items = sf_alloc_items_of(record);
    struct sf_watermark end = {0};
    struct sf_plan_item item;

    while (sf_alloc_items_next(&items, &item)) {
        struct sf_watermark above = {.next = item.doc_id + 1,
                                     .exhausted = item.doc_id == UINT64_MAX};
        if (sf_watermark_compare(above, end) > 0)
            end = above;
    }
    return end;
}

/* True when `item` goes on where the run ends. */
static bool run_takes(const sf_id_run *run, const struct sf_plan_item *item)
{
    return run->allocator_issued == item->allocator_issued &&
           item->doc_id - run->first_doc_id == run->count;
}

bool sf_alloc_items_runs(const sf_replay_record *record, struct sf_arena *arena,
                         sf_id_run ***out_runs, size_t *out_count)
{
    sf_id_run **list = sf_arena_alloc(arena, sf_alloc_items_count(record) *
                                                 sizeof(Searchfabric__V1__AllocatorIdRun *));
    struct sf_alloc_items items = sf_alloc_items_of(record);
    struct sf_plan_item item;
    sf_id_run *run = NULL;
    size_t count = 0;

    while (list != NULL && sf_alloc_items_next(&items, &item)) {
        if (run != NULL && run_takes(run, &item)) {
            run->count++;
            continue;
        }
        run = sf_arena_alloc(arena, sizeof(*run));
        if (run == NULL)
            return false;
        searchfabric__v1__allocator_id_run__init(run);
        run->first_doc_id = item.doc_id;
        run->count = 1;
        run->allocator_issued = item.allocator_issued;
        list[count++] = run;
    }
    *out_runs = list;
    *out_count = count;
    return list != NULL;
}

/* ---- the answer ---- */

#define TAG_REALIZED ((1u << 3) | 2u) /* AllocateIdsSuccessResponse.realized_doc_ids */
#define TAG_TOKEN    ((2u << 3) | 2u) /* .schema_generation_token */
#define TAG_RECEIPT  ((3u << 3) | 2u) /* .allocator_receipt */
#define TAG_DOC_ID   ((1u << 3) | 2u) /* RealizedDocId.doc_id */
#define TAG_ISSUED   (2u << 3)        /* .allocator_issued */
#define TAG_U64      (1u << 3)        /* DocumentID.u64 */
#define ITEM_BYTES   (2u + 2u + 1u + VARINT_BYTES + 2u)

/* One RealizedDocId as a field of the response. Its two lengths stay below 128. */
static uint8_t *put_item(uint8_t *at, uint64_t doc_id, bool issued)
{
    uint8_t *start = at;

    at[4] = TAG_U64;
    at = put_varint(at + 5, doc_id);
    start[0] = TAG_REALIZED;
    start[2] = TAG_DOC_ID;
    start[3] = (uint8_t)(at - start - 4);
    if (issued) {
        *at++ = TAG_ISSUED;
        *at++ = 1;
    }
    start[1] = (uint8_t)(at - start - 2);
    return at;
}

static void put_bytes(struct sf_buf *out, uint8_t tag, const void *bytes, size_t len)
{
    uint8_t head[1 + VARINT_BYTES] = {tag};

    if (len == 0)
        return;
    sf_buf_append(out, head, (size_t)(put_varint(head + 1, len) - head));
    sf_buf_append(out, bytes, len);
}

void sf_alloc_items_answer(const sf_replay_record *record, struct sf_buf *out_packed)
{
    struct sf_alloc_items items = sf_alloc_items_of(record);
    struct sf_plan_item item;

    if (sf_buf_reserve(out_packed, sf_alloc_items_count(record) * ITEM_BYTES)) {
        uint8_t *at = out_packed->data + out_packed->len;
        while (sf_alloc_items_next(&items, &item))
            at = put_item(at, item.doc_id, item.allocator_issued);
        out_packed->len = (size_t)(at - out_packed->data);
    }
    put_bytes(out_packed, TAG_TOKEN, record->schema_generation_token,
              strlen(record->schema_generation_token));
    put_bytes(out_packed, TAG_RECEIPT, record->allocator_receipt.data,
              record->allocator_receipt.len);
}
