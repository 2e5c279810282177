#include "publish/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/limits.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/pb.h"

/*
 * A delta holds its own slices and names the manifest before it. Every base_interval manifests a
 * base holds the tail (slices in no list yet) and names the lists; a full list_entries of the tail
 * moves into an immutable list of its own. So a publish costs what it adds, a base costs at most a
 * tail and one reference per list, and a reader needs one base with at most base_interval deltas.
 */

/* ---- queue --------------------------------------------------------------------------------- */

static void entry_free(struct sf_manifest_entry *entry)
{
    sf_buf_fini(&entry->slice);
    sf_buf_fini(&entry->duplicate);
    free(entry);
}

void sf_manifest_queue_drop(struct sf_manifest_queue *queue, size_t count)
{
    for (; count > 0; count--) {
        struct sf_manifest_entry *entry = queue->first;
        queue->first = entry->next;
        queue->count--;
        entry_free(entry);
    }
    if (queue->first == NULL)
        queue->last = NULL;
}

void sf_manifest_queue_fini(struct sf_manifest_queue *queue)
{
    sf_manifest_queue_drop(queue, queue->count);
}

static void queue_append(struct sf_manifest_queue *queue, struct sf_manifest_entry *entry)
{
    entry->next = NULL;
    if (queue->last == NULL)
        queue->first = entry;
    else
        queue->last->next = entry;
    queue->last = entry;
    queue->count++;
}

void sf_manifest_queue_add(struct sf_manifest_queue *queue,
                           const Searchfabric__V1__ManifestSlice *slice,
                           const Searchfabric__V1__DuplicateEntry *duplicate)
{
    struct sf_manifest_entry *entry = sf_calloc(1, sizeof(*entry));
    SF_ASSERT(strlen(slice->write_intent_id) == SF_SHA256_HEX_BYTES - 1);
    memcpy(entry->write_intent_id, slice->write_intent_id, SF_SHA256_HEX_BYTES);
    entry->commit_ts = slice->commit_ts;
    entry->rows = slice->row_count;
    entry->bytes = slice->logical_bytes;
    sf_pb_pack(&slice->base, &entry->slice);
    if (duplicate != NULL)
        sf_pb_pack(&duplicate->base, &entry->duplicate);
    queue_append(queue, entry);
}

uint64_t sf_manifest_queue_ts(const struct sf_manifest_queue *queue, size_t index)
{
    const struct sf_manifest_entry *entry = queue->first;
    if (index >= queue->count)
        return UINT64_MAX;
    for (; index > 0; index--)
        entry = entry->next;
    return entry->commit_ts;
}

uint64_t sf_manifest_queue_min_ts(const struct sf_manifest_queue *queue)
{
    uint64_t min = UINT64_MAX;
    for (const struct sf_manifest_entry *e = queue->first; e != NULL; e = e->next)
        min = e->commit_ts < min ? e->commit_ts : min;
    return min;
}

static void collect_id(void *user, const Searchfabric__V1__ManifestSlice *slice)
{
    (void)sf_map_put(user, sf_view_str(slice->write_intent_id), user);
}

void sf_manifest_queue_mark_present(struct sf_manifest_queue *queue, const struct sf_chain *chain)
{
    struct sf_map *ids = sf_map_new();
    sf_chain_each_slice(chain, collect_id, ids);
    for (struct sf_manifest_entry *e = queue->first; e != NULL; e = e->next)
        e->present = sf_map_get(ids, sf_view_str(e->write_intent_id)) != NULL;
    sf_map_destroy(ids, NULL);
}

size_t sf_manifest_queue_present_prefix(const struct sf_manifest_queue *queue)
{
    size_t n = 0;
    for (const struct sf_manifest_entry *e = queue->first; e != NULL && e->present; e = e->next)
        n++;
    return n;
}

/* ---- state --------------------------------------------------------------------------------- */

static void refs_free(struct sf_manifest_list_ref *refs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(refs[i].key);
    free(refs);
}

void sf_manifest_state_fini(struct sf_manifest_state *state)
{
    sf_manifest_queue_fini(&state->tail);
    refs_free(state->refs, state->ref_count);
    free(state->summary.key);
    *state = (struct sf_manifest_state){0};
}

static int anchor_compare(const struct sf_manifest_anchor *a, const struct sf_manifest_anchor *b)
{
    if (a->epoch != b->epoch)
        return a->epoch < b->epoch ? -1 : 1;
    if (a->seq != b->seq)
        return a->seq < b->seq ? -1 : 1;
    return (a->offset_bytes > b->offset_bytes) - (a->offset_bytes < b->offset_bytes);
}

static void note_anchor(struct sf_manifest_anchor start[SF_WAL_STREAMS],
                        struct sf_manifest_anchor durable[SF_WAL_STREAMS],
                        const Searchfabric__V1__WalAnchor *anchor)
{
    unsigned stream = sf_wal_stream_of(anchor->modality, anchor->writer_mode);
    struct sf_manifest_anchor at = {true,
                                    anchor->shard_id,
                                    anchor->chunk_epoch,
                                    anchor->chunk_seq,
                                    anchor->offset_bytes,
                                    anchor->length_bytes,
                                    anchor->checksum_xxh3};
    if (!start[stream].present || anchor_compare(&at, &start[stream]) < 0)
        start[stream] = at;
    if (!durable[stream].present || anchor_compare(&at, &durable[stream]) > 0)
        durable[stream] = at;
}

/* Duplicate entries of a lineage by slice identity, while a state is loaded. */
struct load_tail {
    struct sf_manifest_state *state;
    struct sf_map *duplicates;
};

static void note_duplicate(void *user, const Searchfabric__V1__DuplicateEntry *entry)
{
    struct load_tail *load = user;
    (void)sf_map_put(load->duplicates, sf_view_str(entry->write_intent_id),
                     (void *)(uintptr_t)entry);
}

static void load_manifest_tail(struct load_tail *load,
                               const Searchfabric__V1__CollectionManifestObject *manifest)
{
    for (size_t i = 0; i < manifest->n_slices; i++) {
        const Searchfabric__V1__ManifestSlice *slice = manifest->slices[i];
        sf_manifest_queue_add(&load->state->tail, slice,
                              sf_map_get(load->duplicates, sf_view_str(slice->write_intent_id)));
    }
}

static void load_anchors(struct sf_manifest_state *state,
                         const Searchfabric__V1__CollectionManifestObject *newest)
{
    struct sf_manifest_anchor ignored[SF_WAL_STREAMS] = {0};
    for (size_t i = 0; i < newest->n_wal_replay_start_anchors; i++)
        note_anchor(state->start, ignored, newest->wal_replay_start_anchors[i]);
    memset(ignored, 0, sizeof(ignored));
    for (size_t i = 0; i < newest->n_wal_durable_anchors; i++)
        note_anchor(ignored, state->durable, newest->wal_durable_anchors[i]);
}

static void load_refs(struct sf_manifest_state *state,
                      const Searchfabric__V1__CollectionManifestObject *base)
{
    state->ref_count = base->n_slice_lists;
    state->refs = sf_calloc(base->n_slice_lists + 1, sizeof(state->refs[0]));
    for (size_t i = 0; i < base->n_slice_lists; i++) {
        const Searchfabric__V1__ManifestListRef *ref = base->slice_lists[i];
        state->refs[i] = (struct sf_manifest_list_ref){.key = sf_strdup(ref->key),
                                                       .entry_count = ref->entry_count,
                                                       .min_commit_ts = ref->min_commit_ts,
                                                       .max_commit_ts = ref->max_commit_ts};
        snprintf(state->refs[i].sha256, sizeof(state->refs[i].sha256), "%s", ref->sha256);
    }
}

static void load_summary(struct sf_manifest_state *state,
                         const Searchfabric__V1__CollectionManifestObject *newest)
{
    if (newest->summary == NULL)
        return;
    state->summary = (struct sf_manifest_summary_ref){.key = sf_strdup(newest->summary->key),
                                                      .version = newest->summary->manifest_version};
    snprintf(state->summary.sha256, sizeof(state->summary.sha256), "%s", newest->summary->sha256);
}

void sf_frontier_read(const Searchfabric__V1__CollectionManifestObject *newest,
                      struct sf_frontier *frontier)
{
    *frontier = (struct sf_frontier){.local_max_commit_ts = newest->local_max_commit_ts};
    for (size_t i = 0; i < newest->n_enabled_modalities; i++)
        frontier->enabled |= SF_MODALITY_BIT(newest->enabled_modalities[i]);
    const Searchfabric__V1__EngineWatermarks *marks = newest->watermarks;
    if (marks == NULL)
        return;
    frontier->applied_ts[0] = marks->applied_ts_metadata_search;
    frontier->applied_ts[1] = marks->applied_ts_semantic_search;
    frontier->applied_ts[2] = marks->applied_ts_metadata_aux;
}

void sf_manifest_state_load(struct sf_manifest_state *state, const struct sf_chain *chain)
{
    const Searchfabric__V1__CollectionManifestObject *newest = sf_chain_newest(chain);
    sf_manifest_state_fini(state);
    if (chain->head == NULL)
        return;
    struct load_tail load = {state, sf_map_new()};
    state->version = newest->manifest_version;
    snprintf(state->sha256, sizeof(state->sha256), "%s", chain->head->manifest_checksum_or_etag);
    state->head_etag = chain->head_etag;
    state->base_version = sf_chain_base(chain)->manifest_version;
    state->deltas = (uint32_t)(chain->manifest_count - 1);
    state->safe_ts = newest->safe_ts;
    state->total_rows = newest->total_rows;
    state->total_bytes = newest->total_logical_bytes;
    sf_frontier_read(newest, &state->frontier);
    load_anchors(state, newest);
    load_refs(state, sf_chain_base(chain));
    load_summary(state, newest);
    sf_chain_each_duplicate(chain, note_duplicate, &load);
    for (size_t i = chain->manifest_count; i-- > 0;)
        load_manifest_tail(&load, chain->manifests[i]);
    sf_map_destroy(load.duplicates, NULL);
}

/* ---- plan ---------------------------------------------------------------------------------- */

void sf_manifest_plan_fini(struct sf_manifest_plan *plan)
{
    sf_buf_fini(&plan->manifest_key);
    sf_buf_fini(&plan->manifest);
    sf_buf_fini(&plan->head_key);
    sf_buf_fini(&plan->head);
    for (size_t i = 0; i < plan->list_count; i++) {
        sf_buf_fini(&plan->lists[i].key);
        sf_buf_fini(&plan->lists[i].body);
        free(plan->lists[i].ref.key);
    }
    *plan = (struct sf_manifest_plan){0};
}

/* Entries of one object, unpacked. */
struct unpacked {
    Searchfabric__V1__ManifestSlice **slices;
    Searchfabric__V1__DuplicateEntry **duplicates;
    size_t slice_count;
    size_t duplicate_count;
};

/* Walks tail, then the new entries that are not present. */
struct entry_walk {
    const struct sf_manifest_entry *at;
    const struct sf_manifest_entry *ready;
    size_t ready_left;
};

static const struct sf_manifest_entry *walk_next(struct entry_walk *walk)
{
    if (walk->at != NULL) {
        const struct sf_manifest_entry *entry = walk->at;
        walk->at = entry->next;
        return entry;
    }
    while (walk->ready_left > 0) {
        const struct sf_manifest_entry *entry = walk->ready;
        walk->ready = entry->next;
        walk->ready_left--;
        if (!entry->present)
            return entry;
    }
    return NULL;
}

/* Unpacks up to `limit` entries; what we packed ourselves unpacks. */
static void unpack_entries(struct entry_walk *walk, size_t limit, struct sf_arena *arena,
                           struct unpacked *out)
{
    const struct sf_manifest_entry *entry;
    out->slices = sf_arena_alloc(arena, (limit + 1) * sizeof(out->slices[0]));
    out->duplicates = sf_arena_alloc(arena, (limit + 1) * sizeof(out->duplicates[0]));
    out->slice_count = out->duplicate_count = 0;
    while (out->slice_count < limit && (entry = walk_next(walk)) != NULL) {
        ProtobufCMessage *message = NULL;
        enum sf_err err = sf_pb_unpack(&searchfabric__v1__manifest_slice__descriptor,
                                       sf_buf_view(&entry->slice), arena, NULL, &message);
        SF_ASSERT(err == SF_OK);
        out->slices[out->slice_count++] = (void *)message;
        if (entry->duplicate.len == 0)
            continue;
        err = sf_pb_unpack(&searchfabric__v1__duplicate_entry__descriptor,
                           sf_buf_view(&entry->duplicate), arena, NULL, &message);
        SF_ASSERT(err == SF_OK);
        out->duplicates[out->duplicate_count++] = (void *)message;
    }
}

static void init_ref(Searchfabric__V1__CollectionRef *ref, struct sf_collection_ref collection)
{
    searchfabric__v1__collection_ref__init(ref);
    ref->namespace_id = collection.namespace_id.v;
    ref->collection_id = collection.collection_id.v;
}

static void build_list(struct sf_manifest_plan *plan, struct entry_walk *walk,
                       const struct sf_manifest_inputs *inputs)
{
    struct sf_arena *arena = sf_arena_new(SF_LIMIT_MANIFEST_CHAIN_BYTES);
    struct sf_manifest_list *list = &plan->lists[plan->list_count++];
    Searchfabric__V1__ManifestListObject object = SEARCHFABRIC__V1__MANIFEST_LIST_OBJECT__INIT;
    Searchfabric__V1__CollectionRef ref;
    struct unpacked entries;
    char attempt[SF_ATTEMPT_ID_BYTES];
    sf_attempts_next(inputs->attempts, attempt);
    init_ref(&ref, inputs->collection);
    unpack_entries(walk, inputs->list_entries, arena, &entries);
    object.attempt_id = attempt;
    object.collection = &ref;
    object.n_slices = entries.slice_count;
    object.slices = entries.slices;
    object.n_duplicates = entries.duplicate_count;
    object.duplicates = entries.duplicates;
    sf_manifest_list_key(&list->key, inputs->collection, attempt);
    sf_durable_encode(&object.base, &list->body, list->ref.sha256);
    list->ref.key = sf_calloc(list->key.len + 1, 1);
    memcpy(list->ref.key, list->key.data, list->key.len);
    list->ref.entry_count = (uint32_t)entries.slice_count;
    list->ref.min_commit_ts = UINT64_MAX;
    for (size_t i = 0; i < entries.slice_count; i++) {
        uint64_t ts = entries.slices[i]->commit_ts;
        list->ref.min_commit_ts = ts < list->ref.min_commit_ts ? ts : list->ref.min_commit_ts;
        list->ref.max_commit_ts = ts > list->ref.max_commit_ts ? ts : list->ref.max_commit_ts;
    }
    sf_arena_destroy(arena);
}

/* The new manifest's numbers: totals, anchors, watermarks that never fall. */
static void plan_numbers(struct sf_manifest_plan *plan, const struct sf_manifest_state *state,
                         const struct sf_manifest_queue *ready, size_t taken,
                         const struct sf_frontier *frontier)
{
    const struct sf_manifest_entry *entry = ready->first;
    plan->total_rows = state->total_rows;
    plan->total_bytes = state->total_bytes;
    memcpy(plan->start, state->start, sizeof(plan->start));
    memcpy(plan->durable, state->durable, sizeof(plan->durable));
    for (size_t i = 0; i < taken; i++, entry = entry->next) {
        if (entry->present)
            continue;
        plan->total_rows += entry->rows;
        plan->total_bytes += entry->bytes;
    }
    plan->frontier = *frontier;
    for (unsigned m = 0; m < SF_MODALITY_COUNT; m++) {
        if (plan->frontier.applied_ts[m] < state->frontier.applied_ts[m])
            plan->frontier.applied_ts[m] = state->frontier.applied_ts[m];
    }
    if (plan->frontier.local_max_commit_ts < state->frontier.local_max_commit_ts)
        plan->frontier.local_max_commit_ts = state->frontier.local_max_commit_ts;
    plan->safe_ts = sf_frontier_safe_ts(&plan->frontier);
    if (plan->safe_ts < state->safe_ts)
        plan->safe_ts = state->safe_ts;
}

static size_t fill_anchors(const struct sf_manifest_anchor at[SF_WAL_STREAMS],
                           Searchfabric__V1__WalAnchor *messages,
                           Searchfabric__V1__WalAnchor **pointers)
{
    size_t n = 0;
    for (unsigned i = 0; i < SF_WAL_STREAMS; i++) {
        if (!at[i].present)
            continue;
        Searchfabric__V1__WalAnchor *anchor = &messages[n];
        searchfabric__v1__wal_anchor__init(anchor);
        anchor->modality = sf_wal_stream_modality(i);
        anchor->writer_mode = sf_wal_stream_mode(i);
        anchor->shard_id = at[i].shard_id;
        anchor->chunk_epoch = at[i].epoch;
        anchor->chunk_seq = at[i].seq;
        anchor->offset_bytes = at[i].offset_bytes;
        anchor->length_bytes = at[i].length_bytes;
        anchor->checksum_xxh3 = at[i].checksum_xxh3;
        pointers[n] = anchor;
        n++;
    }
    return n;
}

static void fill_watermarks(Searchfabric__V1__EngineWatermarks *marks,
                            const struct sf_frontier *frontier)
{
    searchfabric__v1__engine_watermarks__init(marks);
    if ((frontier->enabled & 1u) != 0) {
        marks->_applied_ts_metadata_search_case =
            SEARCHFABRIC__V1__ENGINE_WATERMARKS___APPLIED_TS_METADATA_SEARCH_APPLIED_TS_METADATA_SEARCH;
        marks->applied_ts_metadata_search = frontier->applied_ts[0];
    }
    if ((frontier->enabled & 2u) != 0) {
        marks->_applied_ts_semantic_search_case =
            SEARCHFABRIC__V1__ENGINE_WATERMARKS___APPLIED_TS_SEMANTIC_SEARCH_APPLIED_TS_SEMANTIC_SEARCH;
        marks->applied_ts_semantic_search = frontier->applied_ts[1];
    }
    if ((frontier->enabled & 4u) != 0) {
        marks->_applied_ts_metadata_aux_case =
            SEARCHFABRIC__V1__ENGINE_WATERMARKS___APPLIED_TS_METADATA_AUX_APPLIED_TS_METADATA_AUX;
        marks->applied_ts_metadata_aux = frontier->applied_ts[2];
    }
}

void sf_frontier_watermarks(const struct sf_frontier *frontier,
                            Searchfabric__V1__EngineWatermarks *out_marks)
{
    fill_watermarks(out_marks, frontier);
}

/* References of a base: those that stood and those just cut. */
static void fill_refs(const struct sf_manifest_plan *plan, const struct sf_manifest_state *state,
                      struct sf_arena *arena, Searchfabric__V1__CollectionManifestObject *object)
{
    size_t count = state->ref_count + plan->list_count;
    Searchfabric__V1__ManifestListRef **refs = sf_arena_alloc(arena, (count + 1) * sizeof(refs[0]));
    for (size_t i = 0; i < count; i++) {
        const struct sf_manifest_list_ref *from =
            i < state->ref_count ? &state->refs[i] : &plan->lists[i - state->ref_count].ref;
        refs[i] = sf_arena_alloc(arena, sizeof(*refs[i]));
        searchfabric__v1__manifest_list_ref__init(refs[i]);
        refs[i]->key = from->key;
        refs[i]->sha256 = sf_arena_str(arena, sf_view_str(from->sha256));
        refs[i]->entry_count = from->entry_count;
        refs[i]->min_commit_ts = from->min_commit_ts;
        refs[i]->max_commit_ts = from->max_commit_ts;
    }
    object->n_slice_lists = count;
    object->slice_lists = refs;
    object->n_duplicate_lists = count; /* a list holds the duplicate entries of its slices */
    object->duplicate_lists = refs;
}

/* The summary stays with the lineage until somebody who knows more puts another in its place. */
static Searchfabric__V1__ManifestSummaryRef *fill_summary(const struct sf_manifest_state *state,
                                                          struct sf_arena *arena)
{
    if (state->summary.key == NULL)
        return NULL;
    Searchfabric__V1__ManifestSummaryRef *ref = sf_arena_alloc(arena, sizeof(*ref));
    searchfabric__v1__manifest_summary_ref__init(ref);
    ref->key = state->summary.key;
    ref->sha256 = sf_arena_str(arena, sf_view_str(state->summary.sha256));
    ref->manifest_version = state->summary.version;
    return ref;
}

static void build_head(struct sf_manifest_plan *plan, const struct sf_manifest_state *state,
                       const struct sf_manifest_inputs *inputs)
{
    Searchfabric__V1__ManifestCommittedHeadObject head =
        SEARCHFABRIC__V1__MANIFEST_COMMITTED_HEAD_OBJECT__INIT;
    Searchfabric__V1__CollectionRef ref;
    char attempt[SF_ATTEMPT_ID_BYTES];
    char *key = sf_calloc(plan->manifest_key.len + 1, 1);
    memcpy(key, plan->manifest_key.data, plan->manifest_key.len);
    sf_attempts_next(inputs->attempts, attempt);
    init_ref(&ref, inputs->collection);
    head.attempt_id = attempt;
    head.collection = &ref;
    head.committed_manifest_version = plan->version;
    head.previous_committed_manifest_version = state->version;
    head.manifest_checksum_or_etag = plan->sha256;
    head.publisher_epoch = inputs->publisher_epoch;
    head.updated_at_unix_ms = inputs->unix_ms;
    head.manifest_key = key;
    head.safe_ts = plan->safe_ts;
    sf_committed_head_key(&plan->head_key, inputs->collection);
    sf_durable_encode(&head.base, &plan->head, NULL);
    free(key);
}

static void encode_manifest(struct sf_manifest_plan *plan, const struct sf_manifest_state *state,
                            const struct unpacked *entries, struct sf_arena *arena,
                            const struct sf_manifest_inputs *inputs)
{
    Searchfabric__V1__CollectionManifestObject object =
        SEARCHFABRIC__V1__COLLECTION_MANIFEST_OBJECT__INIT;
    Searchfabric__V1__CollectionRef ref;
    Searchfabric__V1__EngineWatermarks marks;
    Searchfabric__V1__WalAnchor anchors[2 * SF_WAL_STREAMS];
    Searchfabric__V1__WalAnchor *pointers[2 * SF_WAL_STREAMS];
    Searchfabric__V1__Modality enabled[SF_MODALITY_COUNT];
    char attempt[SF_ATTEMPT_ID_BYTES];
    char previous[SF_SHA256_HEX_BYTES];
    sf_attempts_next(inputs->attempts, attempt);
    memcpy(previous, state->sha256, sizeof(previous));
    init_ref(&ref, inputs->collection);
    fill_watermarks(&marks, &plan->frontier);
    object.attempt_id = attempt;
    object.collection = &ref;
    object.manifest_version = plan->version;
    object.kind = plan->is_base ? SEARCHFABRIC__V1__MANIFEST_KIND__MANIFEST_KIND_BASE
                                : SEARCHFABRIC__V1__MANIFEST_KIND__MANIFEST_KIND_DELTA;
    object.previous_manifest_version = state->version;
    object.previous_manifest_sha256 = previous;
    object.base_manifest_version = plan->is_base ? plan->version : state->base_version;
    object.publisher_epoch = inputs->publisher_epoch;
    object.local_max_commit_ts = plan->frontier.local_max_commit_ts;
    object.watermarks = &marks;
    object.safe_ts = plan->safe_ts;
    for (unsigned m = 0; m < SF_MODALITY_COUNT; m++) {
        if ((plan->frontier.enabled & (1u << m)) != 0)
            enabled[object.n_enabled_modalities++] = (Searchfabric__V1__Modality)(m + 1);
    }
    object.enabled_modalities = enabled;
    object.n_wal_replay_start_anchors = fill_anchors(plan->start, anchors, pointers);
    object.wal_replay_start_anchors = pointers;
    object.n_wal_durable_anchors =
        fill_anchors(plan->durable, anchors + SF_WAL_STREAMS, pointers + SF_WAL_STREAMS);
    object.wal_durable_anchors = pointers + SF_WAL_STREAMS;
    object.n_slices = entries->slice_count;
    object.slices = entries->slices;
    object.n_duplicates = entries->duplicate_count;
    object.duplicates = entries->duplicates;
    object.total_rows = plan->total_rows;
    object.total_logical_bytes = plan->total_bytes;
    object.created_at_unix_ms = inputs->unix_ms;
    object.summary = fill_summary(state, arena);
    if (plan->is_base)
        fill_refs(plan, state, arena, &object);
    sf_manifest_key(&plan->manifest_key, inputs->collection, plan->version);
    sf_durable_encode(&object.base, &plan->manifest, plan->sha256);
}

static size_t count_new(const struct sf_manifest_queue *ready, size_t taken)
{
    const struct sf_manifest_entry *entry = ready->first;
    size_t n = 0;
    for (; taken > 0; taken--, entry = entry->next)
        n += entry->present ? 0 : 1;
    return n;
}

void sf_manifest_plan_build(struct sf_manifest_plan *plan, const struct sf_manifest_state *state,
                            const struct sf_manifest_queue *ready, size_t taken,
                            const struct sf_manifest_inputs *inputs)
{
    struct sf_arena *arena = sf_arena_new(SF_LIMIT_MANIFEST_CHAIN_BYTES);
    size_t held = state->tail.count + count_new(ready, taken);
    struct unpacked entries;
    struct entry_walk walk = {NULL, ready->first, taken};
    plan->version = inputs->version;
    plan->is_base = state->version == 0 || state->deltas + 1 >= inputs->base_interval ||
                    held >= 2 * (size_t)inputs->list_entries;
    plan_numbers(plan, state, ready, taken, &inputs->frontier);
    if (plan->is_base) {
        walk.at = state->tail.first;
        for (size_t left = held;
             left >= inputs->list_entries && plan->list_count < SF_MANIFEST_PLAN_LISTS;
             left -= inputs->list_entries) {
            build_list(plan, &walk, inputs);
            plan->listed += plan->lists[plan->list_count - 1].ref.entry_count;
        }
    }
    /* The anchors of the new slices, listed or not. */
    struct entry_walk fresh = {NULL, ready->first, taken};
    unpack_entries(&fresh, taken, arena, &entries);
    for (size_t i = 0; i < entries.slice_count; i++) {
        for (size_t k = 0; k < entries.slices[i]->n_anchors; k++)
            note_anchor(plan->start, plan->durable, entries.slices[i]->anchors[k]);
    }
    unpack_entries(&walk, held, arena, &entries);
    encode_manifest(plan, state, &entries, arena, inputs);
    build_head(plan, state, inputs);
    sf_arena_destroy(arena);
}

void sf_manifest_state_commit(struct sf_manifest_state *state, struct sf_manifest_plan *plan,
                              struct sf_manifest_queue *ready, size_t taken)
{
    for (size_t i = 0; i < taken; i++) {
        struct sf_manifest_entry *entry = ready->first;
        ready->first = entry->next;
        ready->count--;
        if (ready->first == NULL)
            ready->last = NULL;
        if (entry->present)
            entry_free(entry);
        else
            queue_append(&state->tail, entry);
    }
    sf_manifest_queue_drop(&state->tail, plan->listed);
    if (plan->list_count > 0) {
        state->refs =
            sf_realloc(state->refs, (state->ref_count + plan->list_count) * sizeof(state->refs[0]));
        for (size_t i = 0; i < plan->list_count; i++) {
            state->refs[state->ref_count++] = plan->lists[i].ref;
            plan->lists[i].ref.key = NULL;
        }
    }
    state->version = plan->version;
    memcpy(state->sha256, plan->sha256, sizeof(state->sha256));
    state->head_etag = plan->head_etag;
    state->deltas = plan->is_base ? 0 : state->deltas + 1;
    state->base_version = plan->is_base ? plan->version : state->base_version;
    state->safe_ts = plan->safe_ts;
    state->frontier = plan->frontier;
    state->total_rows = plan->total_rows;
    state->total_bytes = plan->total_bytes;
    memcpy(state->start, plan->start, sizeof(state->start));
    memcpy(state->durable, plan->durable, sizeof(state->durable));
}
