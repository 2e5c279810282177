/*
 * Model: items are grouped by index, in the order in which indices appear; the items of an index
 * are cut into chunks by fixed numbers of items and bytes. A chunk is one allocation (through the
 * fixed sequence of plans of es_plan.h) and one mutation batch with the receipt it returned. The
 * batch of a chunk is under way while the next chunk allocates; all are awaited at the end.
 *
 * Which chunk an item belongs to is given by the request alone, never by what the catalog says of
 * the index: a retry after a change of policy or schema must not find an item in another chunk,
 * under another key. Documents that the schema does not take leave their chunk; they do not move
 * the others.
 *
 *   item --bad id, bad document--> its own error, never planned
 *   chunk --AllocateIds(plan first)--> ids | conflict at `first`: 409 for it, next plan | error:
 * all
 *         --StreamMutations--> acknowledged | error: all
 *
 * Every key derives from the request's key, the index, the chunk and the plan, so that a retry
 * under the same key walks the same way and is answered with the same ids.
 */
#include "gateway/es_priv.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/text.h"
#include "gateway/es_mapping.h"

#define ALLOCATE_METHOD "/searchfabric.v1.IdAllocatorService/AllocateIds"

/* Memory of one chunk's messages beside the documents themselves. */
#define CHUNK_ARENA_BYTES (16u << 20)

/* All items of one index, in order. */
struct write_group {
    struct sf_view index;
    uint32_t *at; /* positions in the request; owned */
    size_t count;
    size_t room;
    struct es_binding *binding; /* NULL: the index could not be resolved */
};

/* One allocation and one batch. */
struct write_chunk {
    struct write_group *group;
    uint64_t number;              /* within the index, from 0 */
    size_t from;                  /* into group->at */
    size_t count;                 /* items */
    struct sf_es_plan_item *plan; /* owned, one per item */
    struct sf_arena *arena;       /* owned: messages */
    struct es_submit submit;      /* the batch under way */
    bool submitted;               /* submit awaits its result */
    uint64_t *ids;                /* in the arena: realized, one per item in the plan */
    char batch_id[SF_SHA256_HEX_BYTES];
    struct write_chunk *next;
};

/* One es_write. */
struct write {
    struct sf_es *es;
    struct es_request *request;
    const struct sf_es_bulk_item *items;
    struct sf_es_result *results;
    struct write_group *groups; /* owned */
    size_t group_count;
    size_t group_room;
    struct sf_map *by_name;     /* index -> position in groups plus one */
    struct write_chunk *chunks; /* owned list, in order */
    struct write_chunk **chunks_end;
};

/* ---- items ----------------------------------------------------------------------------------- */

static const char *no_memory_text = "the request exceeds its memory";

static void item_error(struct sf_es_result *result, int status, const char *type,
                       const char *reason)
{
    result->error = (struct sf_es_error){status, type, reason != NULL ? reason : no_memory_text};
}

/* What this edge can say of an item without asking anybody; true when nothing speaks against it. */
static bool item_check(struct write *w, const struct sf_es_bulk_item *item,
                       struct sf_es_result *result)
{
    uint64_t id;

    if (item->error.status != 0) {
        result->error = item->error;
    } else if (item->action == SF_ES_ACTION_UPDATE || item->action == SF_ES_ACTION_DELETE) {
        item_error(result, 501, "unsupported_operation_exception",
                   item->action == SF_ES_ACTION_UPDATE
                       ? "update is not served: documents are created only"
                       : "delete is not served: documents are created only");
    } else if (item->index.len == 0) {
        item_error(result, 400, "action_request_validation_exception",
                   "Validation Failed: 1: index is missing;");
    } else if (item->action == SF_ES_ACTION_INDEX && item->has_id) {
        item_error(result, 501, "unsupported_operation_exception",
                   "index under an explicit _id (upsert) is not served: use create");
    } else if (item->has_id && !sf_parse_u64(item->id, &id)) {
        item_error(result, 400, "illegal_argument_exception",
                   sf_arena_printf(w->request->arena,
                                   "_id [%.*s] is not served: ids are unsigned 64-bit numbers "
                                   "written as decimal digits without leading zeros",
                                   (int)(item->id.len < 64 ? item->id.len : 64),
                                   (const char *)item->id.ptr));
    } else if (item->source.len > SF_LIMIT_DOCUMENT_BYTES) {
        item_error(result, 413, "illegal_argument_exception", "a document has at most 4 MiB");
    } else {
        return true;
    }
    return false;
}

static struct write_group *group_of(struct write *w, struct sf_view index)
{
    uintptr_t number = (uintptr_t)sf_map_get(w->by_name, index);

    if (number != 0)
        return &w->groups[number - 1];
    if (w->group_count == w->group_room) {
        w->group_room = w->group_room == 0 ? 4 : w->group_room * 2;
        w->groups = sf_realloc(w->groups, w->group_room * sizeof(*w->groups));
    }
    struct write_group *group = &w->groups[w->group_count++];
    *group = (struct write_group){.index = index};
    (void)sf_map_put(w->by_name, index, (void *)(uintptr_t)w->group_count);
    return group;
}

static void group_add(struct write_group *group, uint32_t position)
{
    if (group->count == group->room) {
        group->room = group->room == 0 ? 16 : group->room * 2;
        group->at = sf_realloc(group->at, group->room * sizeof(*group->at));
    }
    group->at[group->count++] = position;
}

/* The same error for all items of a group. */
static void group_fail(struct write *w, const struct write_group *group, const struct sf_diag *diag)
{
    struct sf_es_error error = sf_es_error_of(diag, w->request->arena);

    for (size_t i = 0; i < group->count; i++)
        w->results[group->at[i]].error = error;
}

/* ---- chunks ---------------------------------------------------------------------------------- */

static const struct sf_es_bulk_item *chunk_item(const struct write *w,
                                                const struct write_chunk *chunk, size_t i)
{
    return &w->items[chunk->group->at[chunk->from + i]];
}

static struct sf_es_result *chunk_result(const struct write *w, const struct write_chunk *chunk,
                                         size_t i)
{
    return &w->results[chunk->group->at[chunk->from + i]];
}

static void item_burned(struct write *w, struct write_chunk *chunk, size_t i)
{
    item_error(chunk_result(w, chunk, i), 409, "version_conflict_engine_exception",
               sf_arena_printf(w->request->arena,
                               "[%" PRIu64 "]: version conflict, the id is taken or was passed "
                               "over: explicit ids of an index must ascend",
                               chunk->plan[i].id));
}

/* Plan `first` failed for a reason of its own: the explicit ids before it are known to be burned,
 * all others share the error. */
static void chunk_fail_plan(struct write *w, struct write_chunk *chunk, size_t first,
                            const struct sf_diag *diag)
{
    struct sf_es_error error = sf_es_error_of(diag, w->request->arena);

    for (size_t i = 0; i < chunk->count; i++) {
        if (i < first && chunk->plan[i].explicit_id)
            item_burned(w, chunk, i);
        else
            chunk_result(w, chunk, i)->error = error;
    }
}

/* The plan was realized: what it left out is burned. */
static void chunk_refuse_burned(struct write *w, struct write_chunk *chunk)
{
    for (size_t i = 0; i < chunk->count; i++)
        if (chunk->plan[i].refused)
            item_burned(w, chunk, i);
}

/* The batch of a realized plan failed. */
static void chunk_fail(struct write *w, struct write_chunk *chunk, const struct sf_diag *diag)
{
    struct sf_es_error error = sf_es_error_of(diag, w->request->arena);

    for (size_t i = 0; i < chunk->count; i++)
        if (!chunk->plan[i].refused)
            chunk_result(w, chunk, i)->error = error;
}

/* Builds the plan of the items that are not refused. */
static bool plan_build(struct write_chunk *chunk, Searchfabric__V1__AllocationPlan *plan)
{
    static Searchfabric__V1__IssueItem issue = SEARCHFABRIC__V1__ISSUE_ITEM__INIT;
    Searchfabric__V1__AllocationPlanItem *items =
        sf_arena_alloc(chunk->arena, chunk->count * sizeof(*items));
    Searchfabric__V1__DocumentID *ids = sf_arena_alloc(chunk->arena, chunk->count * sizeof(*ids));

    searchfabric__v1__allocation_plan__init(plan);
    plan->items = sf_arena_alloc(chunk->arena, chunk->count * sizeof(*plan->items));
    if (items == NULL || ids == NULL || plan->items == NULL)
        return false;
    for (size_t i = 0; i < chunk->count; i++) {
        if (chunk->plan[i].refused)
            continue;
        Searchfabric__V1__AllocationPlanItem *item = &items[plan->n_items];
        searchfabric__v1__allocation_plan_item__init(item);
        if (chunk->plan[i].explicit_id) {
            Searchfabric__V1__DocumentID *id = &ids[plan->n_items];
            searchfabric__v1__document_id__init(id);
            id->id_value_case = SEARCHFABRIC__V1__DOCUMENT_ID__ID_VALUE_U64;
            id->u64 = chunk->plan[i].id;
            item->item_case = SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__ITEM_EXPLICIT_DOC_ID;
            item->explicit_doc_id = id;
        } else {
            item->item_case = SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__ITEM_ISSUE;
            item->issue = &issue;
        }
        plan->items[plan->n_items++] = item;
    }
    return true;
}

static enum sf_err allocate_once(struct write *w, struct write_chunk *chunk, size_t first,
                                 struct sf_diag *diag,
                                 const Searchfabric__V1__AllocateIdsSuccessResponse **out_response)
{
    Searchfabric__V1__AllocateIdsRequest allocate = SEARCHFABRIC__V1__ALLOCATE_IDS_REQUEST__INIT;
    Searchfabric__V1__CollectionRef ref = SEARCHFABRIC__V1__COLLECTION_REF__INIT;
    Searchfabric__V1__AllocationPlan plan;
    Searchfabric__V1__RequestMeta meta;
    const ProtobufCMessage *message;

    if (!plan_build(chunk, &plan))
        return sf_diag_set(diag, SF_ERR_LIMIT, "%s", no_memory_text);
    /* The plan without explicit ids has one name, however many documents it has: under one key
     * another number of documents meets the first plan and is refused. */
    es_key(w->request, "documents", chunk->group->index, chunk->number,
           first < chunk->count ? first : UINT64_MAX, chunk->batch_id);
    es_meta(w->es, &meta, chunk->batch_id);
    ref.namespace_id = chunk->group->binding->namespace_id;
    ref.collection_id = chunk->group->binding->collection_id;
    allocate.meta = &meta;
    allocate.collection = &ref;
    allocate.route_intent =
        SEARCHFABRIC__V1__ID_ALLOCATION_ROUTE_INTENT__ID_ALLOCATION_ROUTE_INTENT_CREATE_INSERT;
    allocate.plan = &plan;
    enum sf_err err = es_call(w->es->options.channels.allocator, ALLOCATE_METHOD, &allocate.base,
                              chunk->arena, diag, &message);
    if (err != SF_OK)
        return err;
    *out_response = (const Searchfabric__V1__AllocateIdsSuccessResponse *)(const void *)message;
    if ((*out_response)->n_realized_doc_ids != plan.n_items)
        return sf_diag_set(diag, SF_INTERNAL, "the allocator's answer does not fit the plan");
    return SF_OK;
}

/* Walks the sequence of plans until one succeeds. False: the chunk is answered. */
static bool chunk_allocate(struct write *w, struct write_chunk *chunk,
                           const Searchfabric__V1__AllocateIdsSuccessResponse **out_response)
{
    size_t first = sf_es_plan_first(chunk->plan, chunk->count);

    for (;;) {
        struct sf_diag diag;
        sf_diag_init(&diag);
        if (sf_es_plan_select(chunk->plan, chunk->count, first) == 0) {
            chunk_refuse_burned(w, chunk);
            return false;
        }
        sf_arena_reset(chunk->arena);
        enum sf_err err = allocate_once(w, chunk, first, &diag, out_response);
        if (err == SF_OK) {
            chunk_refuse_burned(w, chunk);
            return true;
        }
        bool burned = err == SF_VERSION_CONFLICT && first < chunk->count &&
                      sf_diag_get(&diag, "allocator_conflict_reason") != NULL;
        if (!burned) {
            chunk_fail_plan(w, chunk, first, &diag);
            return false;
        }
        first = sf_es_plan_next(chunk->plan, chunk->count, first);
    }
}

/* One create row per item of the plan, under its realized id, with the document as it came in. */
static bool rows_build(const struct write *w, struct write_chunk *chunk,
                       const Searchfabric__V1__AllocateIdsSuccessResponse *realized,
                       Searchfabric__V1__MutationBatch *batch)
{
    size_t n = realized->n_realized_doc_ids;
    Searchfabric__V1__MutationEntry *entries = sf_arena_alloc(chunk->arena, n * sizeof(*entries));
    Searchfabric__V1__RowMutation *rows = sf_arena_alloc(chunk->arena, n * sizeof(*rows));

    batch->entries = sf_arena_alloc(chunk->arena, n * sizeof(*batch->entries));
    chunk->ids = sf_arena_alloc(chunk->arena, n * sizeof(*chunk->ids));
    if (entries == NULL || rows == NULL || batch->entries == NULL || chunk->ids == NULL)
        return false;
    for (size_t i = 0; i < chunk->count; i++) {
        if (chunk->plan[i].refused)
            continue;
        size_t k = batch->n_entries++;
        struct sf_view source = chunk_item(w, chunk, i)->source;
        searchfabric__v1__row_mutation__init(&rows[k]);
        rows[k].doc_id = realized->realized_doc_ids[k]->doc_id;
        rows[k].op = SEARCHFABRIC__V1__ROW_OP__ROW_OP_CREATE;
        rows[k].body.data = (uint8_t *)(uintptr_t)source.ptr;
        rows[k].body.len = source.len;
        searchfabric__v1__mutation_entry__init(&entries[k]);
        entries[k].entry_case = SEARCHFABRIC__V1__MUTATION_ENTRY__ENTRY_ROW;
        entries[k].row = &rows[k];
        batch->entries[k] = &entries[k];
        chunk->ids[k] = rows[k].doc_id->u64;
    }
    return true;
}

static void chunk_submit(struct write *w, struct write_chunk *chunk,
                         const Searchfabric__V1__AllocateIdsSuccessResponse *realized)
{
    Searchfabric__V1__MutationBatch *batch = sf_arena_alloc(chunk->arena, sizeof(*batch));
    Searchfabric__V1__CollectionRef *ref = sf_arena_alloc(chunk->arena, sizeof(*ref));
    struct sf_diag diag;

    sf_diag_init(&diag);
    if (batch != NULL && ref != NULL) {
        searchfabric__v1__mutation_batch__init(batch);
        searchfabric__v1__collection_ref__init(ref);
        ref->namespace_id = chunk->group->binding->namespace_id;
        ref->collection_id = chunk->group->binding->collection_id;
    }
    if (batch == NULL || ref == NULL || !rows_build(w, chunk, realized, batch)) {
        (void)sf_diag_set(&diag, SF_ERR_LIMIT, "%s", no_memory_text);
        chunk_fail(w, chunk, &diag);
        return;
    }
    batch->batch_id = chunk->batch_id;
    batch->stream_identity = (char *)(uintptr_t)w->es->options.client_id;
    batch->collection = ref;
    batch->schema_generation_token = realized->schema_generation_token;
    batch->allocator_receipt = realized->allocator_receipt;
    batch->durability = SEARCHFABRIC__V1__DURABILITY_POLICY__DURABILITY_POLICY_WAL_CHUNK_DURABLE;
    batch->visibility =
        w->request->wait_visible
            ? SEARCHFABRIC__V1__VISIBILITY_POLICY__VISIBILITY_POLICY_WAIT_FOR_VISIBLE
            : SEARCHFABRIC__V1__VISIBILITY_POLICY__VISIBILITY_POLICY_ASYNC;
    chunk->submit.batch = batch;
    chunk->submit.timeout_ms = w->es->options.write_timeout_ms;
    es_ingest_submit(w->es->ingest, &chunk->submit);
    chunk->submitted = true;
}

static void chunk_run(struct write *w, struct write_group *group, uint64_t number, size_t from,
                      size_t count)
{
    struct write_chunk *chunk = sf_calloc(1, sizeof(*chunk));
    const Searchfabric__V1__AllocateIdsSuccessResponse *realized = NULL;

    chunk->group = group;
    chunk->number = number;
    chunk->from = from;
    chunk->count = count;
    chunk->plan = sf_calloc(count, sizeof(*chunk->plan));
    chunk->arena = sf_arena_new(CHUNK_ARENA_BYTES);
    for (size_t i = 0; i < count; i++) {
        const struct sf_es_bulk_item *item = chunk_item(w, chunk, i);
        chunk->plan[i].explicit_id = item->has_id;
        if (item->has_id) {
            bool parsed = sf_parse_u64(item->id, &chunk->plan[i].id);
            SF_ASSERT(parsed);
        }
    }
    *w->chunks_end = chunk;
    w->chunks_end = &chunk->next;
    if (chunk_allocate(w, chunk, &realized) && realized != NULL)
        chunk_submit(w, chunk, realized);
}

static void chunk_finish(struct write *w, struct write_chunk *chunk)
{
    struct es_submit *submit = &chunk->submit;
    size_t k = 0;
    size_t range = 0;

    if (!chunk->submitted)
        return;
    es_ingest_wait(submit);
    if (submit->diag.err != SF_OK) {
        chunk_fail(w, chunk, &submit->diag);
        return;
    }
    for (size_t i = 0; i < chunk->count; i++) {
        if (chunk->plan[i].refused)
            continue;
        struct sf_es_result *result = chunk_result(w, chunk, i);
        while (range + 1 < submit->range_count && submit->ranges[range].last_entry_index < k)
            range++;
        result->doc_id = chunk->ids[k++];
        result->commit_ts = range < submit->range_count ? submit->ranges[range].commit_ts : 0;
        result->forced_refresh = w->request->forced_refresh;
    }
}

static void chunk_destroy(struct write_chunk *chunk)
{
    if (chunk->submitted)
        free(chunk->submit.ranges);
    free(chunk->plan);
    sf_arena_destroy(chunk->arena);
    free(chunk);
}

/* ---- groups ---------------------------------------------------------------------------------- */

static enum sf_err group_resolve(struct write *w, struct write_group *group, struct sf_diag *diag)
{
    enum sf_err err = es_index_resolve(w->es, w->request, group->index, diag, &group->binding);

    if (err == SF_RESOURCE_NOT_FOUND && w->es->options.auto_create &&
        sf_es_index_name_violation(group->index) == NULL) {
        Searchfabric__V1__CollectionSchemaDefinition *definition;
        struct sf_es_error error;
        if (!sf_es_mapping_read(sf_view_str(""), w->request->arena, &definition, &error))
            return sf_diag_set(diag, SF_ERR_LIMIT, "%s", no_memory_text);
        err = es_index_create(w->es, w->request, group->index, definition, diag);
        if (err == SF_OK || err == SF_ERR_EXISTS)
            err = es_index_resolve(w->es, w->request, group->index, diag, &group->binding);
    }
    return err;
}

/* Drops those of `count` items from `from` on whose document the schema in force does not take; the
 * others move together and keep their order. Returns how many are left. */
static size_t documents_check(struct write *w, struct write_group *group, size_t from, size_t count)
{
    size_t kept = from;

    for (size_t i = from; i < from + count; i++) {
        const struct sf_es_bulk_item *item = &w->items[group->at[i]];
        sf_modality_mask touched;
        struct sf_diag diag;
        sf_diag_init(&diag);
        enum sf_err err =
            sf_plan_row(group->binding->schema, SEARCHFABRIC__V1__ROW_OP__ROW_OP_CREATE,
                        item->source, group->at[i], &diag, &touched);
        if (err == SF_OK)
            group->at[kept++] = group->at[i];
        else
            w->results[group->at[i]].error = sf_es_error_of(&diag, w->request->arena);
    }
    return kept - from;
}

/* Items of the chunk that begins at `from`. */
static size_t chunk_cut(const struct write *w, const struct write_group *group, size_t from)
{
    size_t count = 0;
    size_t bytes = 0;

    while (from + count < group->count && count < SF_LIMIT_ES_PLAN_ITEMS) {
        size_t len = w->items[group->at[from + count]].source.len;
        if (count > 0 && bytes + len > SF_LIMIT_ES_PLAN_BYTES)
            break;
        bytes += len;
        count++;
    }
    return count;
}

static void group_run(struct write *w, struct write_group *group)
{
    struct sf_diag diag;
    uint64_t number = 0;

    sf_diag_init(&diag);
    if (group_resolve(w, group, &diag) != SF_OK) {
        group_fail(w, group, &diag);
        return;
    }
    for (size_t from = 0; from < group->count; number++) {
        size_t count = chunk_cut(w, group, from);
        size_t kept = documents_check(w, group, from, count);
        if (kept > 0)
            chunk_run(w, group, number, from, kept);
        from += count;
    }
}

void es_write(struct sf_es *es, struct es_request *request, const struct sf_es_bulk_item *items,
              size_t count, struct sf_es_result *results)
{
    struct write w = {.es = es, .request = request, .items = items, .results = results};

    w.chunks_end = &w.chunks;
    w.by_name = sf_map_new();
    for (size_t i = 0; i < count; i++) {
        results[i] = (struct sf_es_result){0};
        if (item_check(&w, &items[i], &results[i]))
            group_add(group_of(&w, items[i].index), (uint32_t)i);
    }
    for (size_t i = 0; i < w.group_count; i++)
        group_run(&w, &w.groups[i]);
    while (w.chunks != NULL) {
        struct write_chunk *chunk = w.chunks;
        w.chunks = chunk->next;
        chunk_finish(&w, chunk);
        chunk_destroy(chunk);
    }
    for (size_t i = 0; i < w.group_count; i++) {
        es_binding_release(w.groups[i].binding);
        free(w.groups[i].at);
    }
    free(w.groups);
    sf_map_destroy(w.by_name, NULL);
}
