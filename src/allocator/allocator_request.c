/*
 * A plan is a list of very small messages, and a general reader spends more on each than on
 * everything else that happens to it. Here the two forms that encoders write,
 *
 *   0a 02 0a 00                    an `issue` item
 *   0a l  12 l' 08 <varint>        an explicit one
 *
 * are recognised as they stand. What is left of the message, and any message with another form in
 * its plan, goes through the general reader, so that the result is the same for all bytes.
 */
#include "allocator/allocator_rules.h"

#include <string.h>

#include "base/limits.h"
#include "base/pb.h"

#define PLAN_FIELD   10u   /* AllocateIdsRequest.plan */
#define ITEM_TAG     0x0au /* AllocationPlan.items */
#define ISSUE_TAG    0x0au /* AllocationPlanItem.issue */
#define EXPLICIT_TAG 0x12u /* .explicit_doc_id */
#define U64_TAG      0x08u /* DocumentID.u64 */
#define MOST_ITEMS   4096u /* far from what the general reader bounds */

typedef Searchfabric__V1__AllocationPlanItem sf_plan_message;

/* An explicit item with its id. */
struct explicit_item {
    sf_plan_message item;
    Searchfabric__V1__DocumentID doc_id;
};

/* Bytes being read. */
struct reader {
    const uint8_t *at;  /* next one */
    const uint8_t *end; /* past the last */
};

/* Reads a varint of up to 64 bits; false when there is none. */
static bool read_varint(struct reader *r, uint64_t *out_value)
{
    *out_value = 0;
    for (unsigned shift = 0; shift < 70 && r->at < r->end; shift += 7) {
        uint8_t byte = *r->at++;
        if (shift == 63 && byte > 1)
            return false;
        *out_value |= (uint64_t)(byte & 0x7fu) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

/* Steps over `bytes` bytes; false when there are fewer. */
static bool skip(struct reader *r, uint64_t bytes)
{
    if (bytes > (uint64_t)(r->end - r->at))
        return false;
    r->at += bytes;
    return true;
}

/* Finds the only plan of the message: its content and where its field begins; false when there is
 * none, another one, or anything that is not plain. */
static bool find_plan(struct sf_view bytes, struct sf_view *out_field, struct reader *out_plan)
{
    struct reader r = {bytes.ptr, bytes.ptr + bytes.len};
    bool found = false;

    while (r.at < r.end) {
        const uint8_t *start = r.at;
        uint64_t key, len = 0;
        if (!read_varint(&r, &key))
            return false;
        bool bounded = (key & 7) == 2;
        if (!(bounded || (key & 7) == 0) || !read_varint(&r, &len) || (bounded && !skip(&r, len)))
            return false;
        if (key >> 3 != PLAN_FIELD)
            continue;
        if (found || !bounded)
            return false;
        found = true;
        *out_field = sf_view_bytes(start, (size_t)(r.at - start));
        *out_plan = (struct reader){r.at - len, r.at};
    }
    return found;
}

/* Reads one item; false when it has another form. */
static bool read_item(struct reader *r, bool *out_issue, uint64_t *out_doc_id)
{
    const uint8_t *at = r->at;
    size_t left = (size_t)(r->end - at);

    if (left < 4 || at[0] != ITEM_TAG || at[1] > left - 2)
        return false;
    r->at += 2 + at[1];
    *out_issue = at[1] == 2 && at[2] == ISSUE_TAG && at[3] == 0;
    if (*out_issue)
        return true;
    struct reader id = {at + 5, r->at};
    return at[1] >= 4 && at[2] == EXPLICIT_TAG && at[3] == at[1] - 2 && at[4] == U64_TAG &&
           read_varint(&id, out_doc_id) && id.at == id.end;
}

/* Counts the items; false when one has another form or there are too many. */
static bool count_items(struct reader r, size_t *out_items, size_t *out_explicit)
{
    uint64_t doc_id;
    bool issue;

    *out_items = *out_explicit = 0;
    while (r.at < r.end) {
        if (*out_items == MOST_ITEMS || !read_item(&r, &issue, &doc_id))
            return false;
        ++*out_items;
        *out_explicit += issue ? 0 : 1;
    }
    return true;
}

/* The plan's message; NULL when the arena is full. Its issue items are one. */
static Searchfabric__V1__AllocationPlan *build_plan(struct reader r, size_t items, size_t named,
                                                    struct sf_arena *arena)
{
    struct parts {
        Searchfabric__V1__AllocationPlan plan;
        sf_plan_message issue_item;
        Searchfabric__V1__IssueItem issue;
    } *p = sf_arena_alloc(arena, sizeof(*p));
    sf_plan_message **list = sf_arena_alloc(arena, items * sizeof(sf_plan_message *));
    struct explicit_item *explicit_items = sf_arena_alloc(arena, named * sizeof(*explicit_items));

    if (p == NULL || list == NULL || explicit_items == NULL)
        return NULL;
    searchfabric__v1__allocation_plan__init(&p->plan);
    searchfabric__v1__allocation_plan_item__init(&p->issue_item);
    searchfabric__v1__issue_item__init(&p->issue);
    p->issue_item.item_case = SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__ITEM_ISSUE;
    p->issue_item.issue = &p->issue;
    p->plan.items = items == 0 ? NULL : list;
    p->plan.n_items = items;
    for (size_t i = 0; i < items; i++) {
        uint64_t doc_id = 0;
        bool issue = false;
        (void)read_item(&r, &issue, &doc_id);
        list[i] = &p->issue_item;
        if (issue)
            continue;
        struct explicit_item *e = explicit_items++;
        searchfabric__v1__allocation_plan_item__init(&e->item);
        searchfabric__v1__document_id__init(&e->doc_id);
        e->item.item_case = SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__ITEM_EXPLICIT_DOC_ID;
        e->item.explicit_doc_id = &e->doc_id;
        e->doc_id.id_value_case = SEARCHFABRIC__V1__DOCUMENT_ID__ID_VALUE_U64;
        e->doc_id.u64 = doc_id;
        list[i] = &e->item;
    }
    return &p->plan;
}

/* The message without the field at `field`; in `arena` unless that was the last one. */
static bool without_field(struct sf_view bytes, struct sf_view field, struct sf_arena *arena,
                          struct sf_view *out_rest)
{
    size_t before = (size_t)(field.ptr - bytes.ptr);
    size_t after = bytes.len - before - field.len;

    *out_rest = sf_view_bytes(bytes.ptr, before);
    if (after == 0)
        return true;
    uint8_t *rest = sf_arena_alloc(arena, before + after);
    if (rest == NULL)
        return false;
    memcpy(rest, bytes.ptr, before);
    memcpy(rest + before, field.ptr + field.len, after);
    *out_rest = sf_view_bytes(rest, before + after);
    return true;
}

/* False when the general reader must do it. */
static bool unpack_fast(struct sf_view bytes, struct sf_arena *arena,
                        ProtobufCMessage **out_message)
{
    struct sf_view field, rest;
    struct reader plan;
    size_t items, named;

    if (!find_plan(bytes, &field, &plan) || !count_items(plan, &items, &named) ||
        !without_field(bytes, field, arena, &rest) ||
        sf_pb_unpack(&searchfabric__v1__allocate_ids_request__descriptor, rest, arena, NULL,
                     out_message) != SF_OK)
        return false;
    Searchfabric__V1__AllocateIdsRequest *request = (void *)*out_message;
    request->plan = build_plan(plan, items, named, arena);
    return request->plan != NULL;
}

enum sf_err sf_alloc_request_unpack(struct sf_view bytes, struct sf_arena *arena,
                                    struct sf_diag *diag, ProtobufCMessage **out_message)
{
    if (unpack_fast(bytes, arena, out_message))
        return SF_OK;
    return sf_pb_unpack(&searchfabric__v1__allocate_ids_request__descriptor, bytes, arena, diag,
                        out_message);
}
