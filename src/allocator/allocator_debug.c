/*
 * Model: below the debug level nothing here runs. At it, each request is told item by item: what
 * was asked, and the ids that it got, in lines of a bounded number of items (note 14: full ids and
 * reservation lists in debug logs only).
 */
#include "allocator/allocator_priv.h"

#include "base/limits.h"
#include "base/log.h"
#include "base/pb.h"

#define LINE_ITEMS 256

/* Writes items [first, first + count) as "issue:7 explicit:9"; without ids an issued one is
 * "issue".
 */
static void line(const struct sf_alloc_op *op, const char *result, size_t first, size_t count,
                 const struct sf_plan_item *items, bool realized)
{
    const struct sf_alloc_request *r = &op->request;
    struct sf_buf text = {0};

    for (size_t i = first; i < first + count; i++) {
        const char *kind = items[i].allocator_issued ? "issue" : "explicit";
        sf_buf_printf(&text, i == first ? "%s" : " %s", kind);
        if (realized || !items[i].allocator_issued)
            sf_buf_printf(&text, ":%llu", (unsigned long long)items[i].doc_id);
    }
    SF_LOG(DEBUG, "alloc_request_items", SF_KV_U64("namespace_id", r->collection.namespace_id.v),
           SF_KV_U64("collection_id", r->collection.collection_id.v),
           SF_KV_STR("client_id", r->client_id), SF_KV_STR("idempotency_key", r->idempotency_key),
           SF_KV_STR("result", result), SF_KV_U64("item_count", r->item_count),
           SF_KV_U64("first_item", first), SF_KV_VIEW("items", sf_buf_view(&text)));
    sf_buf_fini(&text);
}

/* The answer's items; NULL when it does not unpack. */
static struct sf_plan_item *realized_items(struct sf_view packed, struct sf_arena *arena)
{
    ProtobufCMessage *message = NULL;

    if (sf_pb_unpack(&searchfabric__v1__allocate_ids_success_response__descriptor, packed, arena,
                     NULL, &message) != SF_OK)
        return NULL;
    const Searchfabric__V1__AllocateIdsSuccessResponse *m = (const void *)message;
    struct sf_plan_item *items =
        sf_arena_alloc(arena, (m->n_realized_doc_ids + 1) * sizeof(*items));
    for (size_t i = 0; items != NULL && i < m->n_realized_doc_ids; i++)
        items[i] =
            (struct sf_plan_item){.doc_id = m->realized_doc_ids[i]->doc_id->u64,
                                  .allocator_issued = m->realized_doc_ids[i]->allocator_issued};
    return items;
}

void sf_alloc_debug_items(const struct sf_alloc_op *op, const struct sf_view *packed,
                          const char *result)
{
    const struct sf_plan_item *items = op->request.items;

    if (!sf_log_enabled(SF_LOG_DEBUG) || op->request.shape == SF_PLAN_INVALID)
        return;
    struct sf_arena *arena = sf_arena_new(SF_ALLOC_DECODE_BYTES);
    if (packed != NULL)
        items = realized_items(*packed, arena);
    for (size_t i = 0; items != NULL && i < op->request.item_count; i += LINE_ITEMS) {
        size_t left = op->request.item_count - i;
        line(op, result, i, left < LINE_ITEMS ? left : LINE_ITEMS, items, packed != NULL);
    }
    sf_arena_destroy(arena);
}
