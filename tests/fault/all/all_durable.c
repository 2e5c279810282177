/* Durable objects: read through the backend, each time that something was applied. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/allocator_rules.h"
#include "base/map.h"
#include "fault/all/all_model_priv.h"
#include "object/durable.h"
#include "publish/chain.h"
#include "publish/keys.h"
#include "publish/reader.h"

#define PB(name)    Searchfabric__V1__##name
#define ARENA_BYTES (16u << 20)
#define LIST_MOST   1000

static ProtobufCMessage *decode(struct all_model *m, struct sf_view body,
                                const ProtobufCMessageDescriptor *desc, struct sf_arena *arena)
{
    ProtobufCMessage *message = NULL;
    struct sf_diag diag;

    sf_diag_init(&diag);
    if (sf_durable_decode(desc, body, arena, &diag, &message) != SF_OK)
        sim_violation(m->sim, "an object does not verify: %s", diag.message);
    return message;
}

/* True when the object is another one than `seen`; its body is in `body`. */
static bool moved(struct all_model *m, struct sf_view key, struct sf_etag *seen,
                  struct sf_buf *body)
{
    struct sf_etag etag = {{0}};

    if (sf_store_get_wait(sim_backend(m->sim), NULL, key, body, &etag) != SF_OK) {
        if (seen->text[0] != '\0')
            sim_violation(m->sim, "%.*s is gone", (int)key.len, (const char *)key.ptr);
        return false;
    }
    bool same = strcmp(etag.text, seen->text) == 0;
    *seen = etag;
    return !same;
}

static size_t list(struct all_model *m, const char *prefix, struct sf_arena *arena,
                   struct sf_list_entry **out_entries)
{
    size_t count = 0;
    enum sf_err err =
        sf_store_list_wait(sim_backend(m->sim), NULL, sf_view_str(prefix), (struct sf_view){0},
                           LIST_MOST, arena, out_entries, &count);

    SIM_CHECK(m->sim, err == SF_OK && count < LIST_MOST);
    return count;
}

/* Changes whenever an object comes, and nearly whenever one is rewritten. */
static bool same_listing(const struct sf_list_entry *entries, size_t count, uint64_t *signature)
{
    uint64_t now = count << 32;

    for (size_t i = 0; i < count; i++)
        now += entries[i].size_bytes;
    bool same = now == *signature;
    *signature = now;
    return same;
}

/* ---- allocator ------------------------------------------------------------------------------- */

static void check_state(struct all_model *m, unsigned c, struct sf_arena *arena)
{
    struct sf_buf key = {0};
    struct sf_buf body = {0};

    sf_alloc_state_key(all_ref(m, c), &key);
    if (moved(m, sf_buf_view(&key), &m->state_etag[c], &body)) {
        const PB(AllocatorStateObject) *state = (const void *)decode(
            m, sf_buf_view(&body), &searchfabric__v1__allocator_state_object__descriptor, arena);
        struct sf_watermark next;
        SIM_CHECK(m->sim, sf_watermark_parse(sf_view_str(state->next_doc_id), &next));
        if (next.exhausted || next.next < m->next_doc_id[c])
            sim_violation(m->sim, "the watermark of collection %u went back", c);
        if (state->allocator_state_version <= m->state_version[c] ||
            state->allocation_epoch < m->allocation_epoch[c])
            sim_violation(m->sim, "the allocator state of collection %u went back", c);
        m->next_doc_id[c] = next.next;
        m->state_version[c] = state->allocator_state_version;
        m->allocation_epoch[c] = state->allocation_epoch;
    }
    sf_buf_fini(&key);
    sf_buf_fini(&body);
}

static unsigned alloc_named(const struct all_model *m, const char *key)
{
    for (unsigned i = ALL_FIRST_ALLOC; i < ALL_FIRST_BATCH; i++)
        if (strcmp(m->ops[i].key, key) == 0)
            return i;
    sim_violation(m->sim, "ids were allocated for a key that nobody sent: %s", key);
}

/* A replay-success object that was not there before. */
static void take_allocation(struct all_model *m, const PB(AllocatorReplaySuccessObject) * object)
{
    unsigned index = alloc_named(m, object->idempotency_key);
    const struct all_op *op = &m->ops[index];
    uint64_t last = 0;

    if (m->answers[index].object)
        sim_violation(m->sim, "two successes stand for %s", op->key);
    if (m->answers[index].refused)
        sim_violation(m->sim, "%s was refused as burned and has a success", op->key);
    SIM_CHECK(m->sim, object->n_realized_doc_ids == op->count);
    SIM_CHECK(m->sim, object->collection_id == m->facts.collection_id[op->collection]);
    m->answers[index].object = true;
    m->answers[index].applied_at_ms = (uint64_t)object->applied_at_unix_ms;
    for (size_t i = 0; i < op->count; i++) {
        uint64_t id = object->realized_doc_ids[i]->doc_id->u64;
        uint64_t slot[2] = {op->collection, id};
        if (id >= m->next_doc_id[op->collection])
            sim_violation(m->sim, "%s realized %" PRIu64 ", which no state covers", op->key, id);
        if (op->items[i] != ALL_ISSUE && op->items[i] != id)
            sim_violation(m->sim, "%s asked for another id", op->key);
        if (object->realized_doc_ids[i]->allocator_issued != (op->items[i] == ALL_ISSUE))
            sim_violation(m->sim, "%s: who chose %" PRIu64 " is told wrongly", op->key, id);
        if (i > 0 && id <= last)
            sim_violation(m->sim, "%s realized ids out of order", op->key);
        last = id;
        if (sf_map_put(m->doc_ids, sf_view_bytes(slot, sizeof(slot)), &m->ops[index]) != NULL)
            sim_violation(m->sim, "doc id %" PRIu64 " of collection %u was realized twice", id,
                          op->collection);
    }
}

static void check_allocations(struct all_model *m, struct sf_arena *arena)
{
    struct sf_list_entry *entries = NULL;
    size_t count = list(m, "id-allocator/replay-success/", arena, &entries);
    size_t known = 0;

    if (same_listing(entries, count, &m->replay_signature))
        return;
    for (unsigned i = ALL_FIRST_ALLOC; i < ALL_FIRST_BATCH; i++)
        known += m->answers[i].object;
    SIM_CHECK(m->sim, count >= known); /* none ever goes */
    for (unsigned i = ALL_FIRST_ALLOC; i < ALL_FIRST_BATCH; i++)
        m->answers[i].object = false;
    sf_map_clear(m->doc_ids, NULL);
    for (size_t i = 0; i < count; i++) {
        struct sf_buf body = {0};
        enum sf_err err = sf_store_get_wait(sim_backend(m->sim), NULL, entries[i].key, &body, NULL);
        SIM_CHECK(m->sim, err == SF_OK);
        take_allocation(
            m, (const void *)decode(m, sf_buf_view(&body),
                                    &searchfabric__v1__allocator_replay_success_object__descriptor,
                                    arena));
        sf_buf_fini(&body);
    }
}

/* ---- catalog --------------------------------------------------------------------------------- */

static struct all_outcome *outcome_at(struct all_model *m, struct sf_view key)
{
    for (size_t i = 0; i < m->outcome_count; i++)
        if (sf_view_equal(sf_buf_view(&m->outcomes[i].key), key))
            return &m->outcomes[i];
    return NULL;
}

/* What stands at a key of the command log: an abort marker may be replaced, an outcome never. */
static void check_outcome(struct all_model *m, struct sf_view key, struct sf_arena *arena)
{
    struct sf_buf body = {0};
    struct sf_etag etag = {{0}};
    struct all_outcome *known = outcome_at(m, key);
    enum sf_err err = sf_store_get_wait(sim_backend(m->sim), NULL, key, &body, &etag);

    SIM_CHECK(m->sim, err == SF_OK);
    if (known != NULL) {
        if (strcmp(known->etag.text, etag.text) != 0)
            sim_violation(m->sim, "an outcome was rewritten: %.*s", (int)key.len,
                          (const char *)key.ptr);
        sf_buf_fini(&body);
        return;
    }
    const PB(CommandOutcomeObject) *outcome = (const void *)decode(
        m, sf_buf_view(&body), &searchfabric__v1__command_outcome_object__descriptor, arena);
    if (outcome->abort == NULL) {
        if (outcome->owner_epoch < m->cluster->served_catalog_epoch)
            sim_violation(m->sim,
                          "an outcome of owner epoch %" PRIu64 " came after %" PRIu64 " served",
                          outcome->owner_epoch, m->cluster->served_catalog_epoch);
        SF_ASSERT(m->outcome_count < ALL_MOST_OUTCOMES);
        known = &m->outcomes[m->outcome_count++];
        known->etag = etag;
        sf_buf_append(&known->key, key.ptr, key.len);
    }
    sf_buf_fini(&body);
}

static void check_outcomes(struct all_model *m, struct sf_arena *arena, bool all)
{
    struct sf_list_entry *entries = NULL;
    size_t count = list(m, "catalog-log/", arena, &entries);

    if (same_listing(entries, count, &m->outcome_signature) && !all)
        return;
    for (size_t i = 0; i < count; i++)
        check_outcome(m, entries[i].key, arena);
    for (size_t i = 0; i < m->outcome_count && all; i++) {
        struct sf_buf body = {0};
        if (sf_store_get_wait(sim_backend(m->sim), NULL, sf_buf_view(&m->outcomes[i].key), &body,
                              NULL) != SF_OK)
            sim_violation(m->sim, "an outcome is gone");
        sf_buf_fini(&body);
    }
}

/* ---- write plane ----------------------------------------------------------------------------- */

bool all_slice_stands(const struct all_model *m, const struct judge *judge, const struct all_op *op,
                      uint64_t commit_ts)
{
    for (size_t i = 0; i < judge->count; i++) {
        const struct judged_frame *f = &judge->frames[i];
        if (f->collection_id == m->facts.collection_id[op->collection] &&
            f->commit_ts == commit_ts && strcmp(f->batch_id, op->key) == 0 &&
            judge_stands(judge, f->id, f->epoch))
            return true;
    }
    return false;
}

/* Slices of a committed lineage. */
struct lineage {
    struct sf_chain chain;
    const PB(ManifestSlice) * slices[256];
    size_t count;
};

static void collect(void *user, const PB(ManifestSlice) * slice)
{
    struct lineage *l = user;

    SF_ASSERT(l->count < SF_ARRAY_LEN(l->slices));
    l->slices[l->count++] = slice;
}

static void lineage_read(struct all_model *m, unsigned c, struct lineage *l)
{
    struct sf_diag diag;

    sf_diag_init(&diag);
    l->count = 0;
    sf_chain_init(&l->chain, all_ref(m, c), 0);
    if (sf_chain_read_wait(&l->chain, sim_backend(m->sim), NULL, &diag) != SF_OK)
        sim_violation(m->sim, "the lineage of collection %u: %s", c, diag.message);
    sf_chain_each_slice(&l->chain, collect, l);
}

static bool lineage_holds(const struct lineage *l, const char *id, uint64_t commit_ts)
{
    for (size_t i = 0; i < l->count; i++)
        if (l->slices[i]->commit_ts == commit_ts && strcmp(l->slices[i]->write_intent_id, id) == 0)
            return true;
    return false;
}

bool all_slice_is_visible(struct all_model *m, const struct all_op *op, uint64_t commit_ts)
{
    struct lineage l;
    bool found = false;

    lineage_read(m, op->collection, &l);
    for (size_t i = 0; i < l.count; i++)
        found = found || (l.slices[i]->commit_ts == commit_ts &&
                          strcmp(l.slices[i]->batch_id, op->key) == 0);
    sf_chain_fini(&l.chain);
    return found;
}

/* Slices ascend, none is held twice, all stand; watermarks cover what is held. */
static void check_slices(struct all_model *m, unsigned c, const struct lineage *l,
                         const struct judge *judge)
{
    for (size_t i = 0; i < l->count; i++) {
        const PB(ManifestSlice) *s = l->slices[i];
        if (i > 0 && s->commit_ts <= l->slices[i - 1]->commit_ts)
            sim_violation(m->sim, "collection %u: commit_ts %" PRIu64 " after %" PRIu64, c,
                          s->commit_ts, l->slices[i - 1]->commit_ts);
        for (size_t k = 0; k < i; k++)
            if (strcmp(s->batch_id, l->slices[k]->batch_id) == 0 &&
                s->slice_ordinal == l->slices[k]->slice_ordinal)
                sim_violation(m->sim, "collection %u: %s/%u is held twice", c, s->batch_id,
                              s->slice_ordinal);
        if (!judge_stands(judge, s->write_intent_id, s->anchors[0]->chunk_epoch))
            sim_violation(m->sim, "collection %u: %s/%u is visible and does not stand", c,
                          s->batch_id, s->slice_ordinal);
    }
}

static void check_covered(struct all_model *m, unsigned c, const struct lineage *l,
                          const struct judge *judge, const uint64_t applied[SF_MODALITY_COUNT])
{
    for (size_t i = 0; i < judge->count; i++) {
        const struct judged_frame *f = &judge->frames[i];
        if (f->collection_id != m->facts.collection_id[c] || !judge_stands(judge, f->id, f->epoch))
            continue;
        for (unsigned k = 0; k < SF_MODALITY_COUNT; k++)
            if ((f->touched & (1u << k)) != 0 && f->commit_ts <= applied[k] &&
                !lineage_holds(l, f->id, f->commit_ts))
                sim_violation(m->sim, "collection %u: a watermark covers %s/%u, which is not held",
                              c, f->batch_id, f->ordinal);
    }
}

static void check_manifest(struct all_model *m, unsigned c, const struct lineage *l,
                           const struct judge *judge)
{
    const PB(CollectionManifestObject) *newest = sf_chain_newest(&l->chain);
    const uint64_t applied[SF_MODALITY_COUNT] = {newest->watermarks->applied_ts_metadata_search,
                                                 newest->watermarks->applied_ts_semantic_search,
                                                 newest->watermarks->applied_ts_metadata_aux};

    check_slices(m, c, l, judge);
    check_covered(m, c, l, judge, applied);
    SIM_CHECK(m->sim, newest->manifest_version > m->version[c]);
    SIM_CHECK(m->sim, newest->safe_ts >= m->safe_ts[c]);
    SIM_CHECK(m->sim, l->chain.head->safe_ts == newest->safe_ts);
    SIM_CHECK(m->sim, l->chain.head->publisher_epoch >= m->publisher_epoch[c]);
    SIM_CHECK(m->sim, newest->local_max_commit_ts >= newest->safe_ts);
    for (unsigned k = 0; k < SF_MODALITY_COUNT; k++) {
        SIM_CHECK(m->sim, applied[k] >= m->applied[c][k]);
        m->applied[c][k] = applied[k];
    }
    m->version[c] = newest->manifest_version;
    m->safe_ts[c] = newest->safe_ts;
    m->publisher_epoch[c] = l->chain.head->publisher_epoch;
}

static uint32_t shard_of(const struct all_model *m, uint64_t collection_id)
{
    return sf_commit_shard_of((struct sf_collection_ref){{m->facts.namespace_id}, {collection_id}},
                              m->cluster->coordinator_shards);
}

/* Frames in force of a shard below `epoch`. */
static size_t elder_frames(const struct all_model *m, const struct judge *judge, uint32_t shard,
                           uint64_t epoch)
{
    size_t count = 0;

    for (size_t i = 0; i < judge->count; i++)
        count += judge->frames[i].in_force && judge->frames[i].epoch < epoch &&
                 shard_of(m, judge->frames[i].collection_id) == shard;
    return count;
}

/* Nothing becomes durable under an elder leader once a younger one serves. */
static void check_frozen(struct all_model *m, const struct judge *judge)
{
    SIM_CHECK(m->sim, !judge->corrupt);
    for (uint32_t s = 0; s < m->cluster->coordinator_shards; s++)
        if (elder_frames(m, judge, s, m->served_epoch[s]) != m->frozen_frames[s])
            sim_violation(m->sim, "shard %u: a frame below epoch %" PRIu64 " came after it served",
                          s, m->served_epoch[s]);
}

static void check_head(struct all_model *m, unsigned c)
{
    struct sf_buf key = {0};
    struct sf_buf body = {0};

    sf_committed_head_key(&key, all_ref(m, c));
    if (moved(m, sf_buf_view(&key), &m->head_etag[c], &body)) {
        struct judge judge;
        struct lineage l;
        judge_read(&judge, sim_backend(m->sim));
        check_frozen(m, &judge);
        lineage_read(m, c, &l);
        check_manifest(m, c, &l, &judge);
        sf_chain_fini(&l.chain);
        judge_free(&judge);
    }
    sf_buf_fini(&key);
    sf_buf_fini(&body);
}

/* ---- when it is looked at -------------------------------------------------------------------- */

void all_model_served(struct all_model *m, const char *owner)
{
    struct judge judge;

    judge_read(&judge, sim_backend(m->sim));
    for (uint32_t s = 0; s < m->cluster->coordinator_shards; s++) {
        struct sf_arena *arena = sf_arena_new(ARENA_BYTES);
        struct sf_buf key = {0};
        struct sf_buf body = {0};
        sf_leader_key(&key, s);
        enum sf_err err =
            sf_store_get_wait(sim_backend(m->sim), NULL, sf_buf_view(&key), &body, NULL);
        SIM_CHECK(m->sim, err == SF_OK);
        const PB(CoordinatorLeaderObject) *leader = (const void *)decode(
            m, sf_buf_view(&body), &searchfabric__v1__coordinator_leader_object__descriptor, arena);
        if (strcmp(leader->owner_id, owner) == 0) {
            SIM_CHECK(m->sim, leader->coordinator_epoch > m->served_epoch[s]);
            m->served_epoch[s] = leader->coordinator_epoch;
            m->frozen_frames[s] = elder_frames(m, &judge, s, leader->coordinator_epoch);
        }
        sf_buf_fini(&key);
        sf_buf_fini(&body);
        sf_arena_destroy(arena);
    }
    judge_free(&judge);
}

void all_model_check_step(struct all_model *m)
{
    uint64_t puts = sf_fault_store_counts(sim_network(m->sim)).puts_applied;

    if (puts == m->seen_puts)
        return;
    m->seen_puts = puts;
    struct sf_arena *arena = sf_arena_new(ARENA_BYTES);
    check_outcomes(m, arena, false);
    for (unsigned c = 0; c < ALL_COLLECTIONS; c++) {
        if (m->facts.collection_id[c] == 0)
            continue;
        check_state(m, c, arena);
        check_head(m, c);
    }
    check_allocations(m, arena);
    sf_arena_destroy(arena);
}

bool all_model_is_published(struct all_model *m)
{
    struct judge judge;
    bool done = true;

    judge_read(&judge, sim_backend(m->sim));
    for (unsigned c = 0; c < ALL_COLLECTIONS && done; c++) {
        struct lineage l;
        lineage_read(m, c, &l);
        for (size_t i = 0; i < judge.count && done; i++) {
            const struct judged_frame *f = &judge.frames[i];
            done = f->collection_id != m->facts.collection_id[c] ||
                   !judge_stands(&judge, f->id, f->epoch) || lineage_holds(&l, f->id, f->commit_ts);
        }
        sf_chain_fini(&l.chain);
    }
    judge_free(&judge);
    return done;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void check_timestamps(struct all_model *m)
{
    struct judge judge;

    judge_read(&judge, sim_backend(m->sim));
    check_frozen(m, &judge);
    for (size_t i = 0; i < judge.count; i++) {
        const struct judged_frame *a = &judge.frames[i];
        for (size_t k = 0; k < i; k++) {
            const struct judged_frame *b = &judge.frames[k];
            if (a->collection_id == b->collection_id && a->commit_ts == b->commit_ts &&
                (strcmp(a->id, b->id) != 0 || a->epoch != b->epoch))
                sim_violation(m->sim, "commit_ts %" PRIu64 " stands in the WAL for %s and %s",
                              a->commit_ts, a->batch_id, b->batch_id);
        }
    }
    judge_free(&judge);
}

/* Rows of one collection as they are read at the end. */
struct rows {
    struct all_model *m;
    unsigned collection;
    const struct lineage *lineage;
    size_t seen[ALL_OPS]; /* rows found, by batch; the hot document apart */
    uint64_t hot_ts;      /* at which the hot document was written last; 0 = it is not there */
};

static unsigned batch_of_slice(const struct all_model *m, const char *batch_id)
{
    for (unsigned i = ALL_FIRST_BATCH; i < ALL_FIRST_NEXT; i++)
        if (strcmp(m->ops[i].key, batch_id) == 0)
            return i;
    sim_violation(m->sim, "a slice of a batch that nobody sent: %s", batch_id);
}

/* The batch that wrote at `commit_ts`. */
static unsigned writer_of(const struct rows *rows, uint64_t commit_ts)
{
    for (size_t i = 0; i < rows->lineage->count; i++)
        if (rows->lineage->slices[i]->commit_ts == commit_ts)
            return batch_of_slice(rows->m, rows->lineage->slices[i]->batch_id);
    sim_violation(rows->m->sim, "a row at commit_ts %" PRIu64 ", where no slice is", commit_ts);
}

static void batch_rows(const struct all_model *m, unsigned index, struct all_row out[ALL_ITEMS])
{
    uint64_t ids[ALL_ITEMS] = {0};

    if (m->ops[index].alloc >= 0)
        all_realized_ids(m, (unsigned)m->ops[index].alloc, ids);
    all_rows(&m->ops[index], ids, out);
}

static bool on_row(void *user, const struct sf_row *row)
{
    struct rows *rows = user;
    struct all_model *m = rows->m;
    unsigned index = writer_of(rows, row->commit_ts.v);
    struct all_row wanted[ALL_ITEMS];

    batch_rows(m, index, wanted);
    for (size_t i = 0; i < m->ops[index].count; i++) {
        if (wanted[i].doc_id != row->doc_id.v)
            continue;
        if (!sf_view_equal(row->body, sf_view_str(wanted[i].body)))
            sim_violation(m->sim, "document %" PRIu64 " of %s has another body", row->doc_id.v,
                          m->ops[index].key);
        if (row->doc_id.v == ALL_HOT_ID)
            rows->hot_ts = row->commit_ts.v;
        else
            rows->seen[index]++;
        return true;
    }
    sim_violation(m->sim, "%s wrote document %" PRIu64 ", which it does not hold",
                  m->ops[index].key, row->doc_id.v);
}

/* Rows that a slice of `op` must show, the hot document apart. */
static size_t rows_of_slice(const struct all_op *op, uint32_t ordinal)
{
    size_t first = op->barrier != 0 && ordinal > 0 ? op->barrier : 0;
    size_t end = op->barrier != 0 && ordinal == 0 ? op->barrier : op->count;

    return end - first - (op->alloc < 0 && first == 0 ? 1 : 0);
}

/* The document that many write is the newest one's. */
static void check_hot(struct all_model *m, unsigned c, const struct lineage *l, uint64_t shown)
{
    uint64_t newest = 0;

    for (size_t i = 0; i < l->count; i++) {
        const struct all_op *op = &m->ops[batch_of_slice(m, l->slices[i]->batch_id)];
        if (op->alloc < 0 && l->slices[i]->slice_ordinal == 0)
            newest = l->slices[i]->commit_ts;
    }
    if (shown != newest)
        sim_violation(m->sim,
                      "collection %u shows a document of %" PRIu64 ", the newest is of %" PRIu64, c,
                      shown, newest);
    for (unsigned i = ALL_FIRST_INDEX; i < ALL_FIRST_NEXT; i++)
        if (m->ops[i].collection == c && m->answers[i].durable &&
            m->answers[i].slices[0].commit_ts > newest)
            sim_violation(m->sim, "%s is not the newest version of its document", m->ops[i].key);
}

static void check_rows(struct all_model *m, unsigned c)
{
    struct lineage l;
    struct rows rows = {.m = m, .collection = c, .lineage = &l};
    struct sf_rows_head head;
    struct sf_diag diag;
    size_t wanted[ALL_OPS] = {0};
    uint64_t total = 0;

    sf_diag_init(&diag);
    lineage_read(m, c, &l);
    if (sf_rows_read(sim_backend(m->sim), NULL, all_ref(m, c), on_row, &rows, &head, &diag) !=
        SF_OK)
        sim_violation(m->sim, "rows of collection %u: %s", c, diag.message);
    for (size_t i = 0; i < l.count; i++) {
        unsigned index = batch_of_slice(m, l.slices[i]->batch_id);
        wanted[index] += rows_of_slice(&m->ops[index], l.slices[i]->slice_ordinal);
        total += l.slices[i]->row_count;
    }
    SIM_CHECK(m->sim, head.slices == l.count && head.total_rows == total);
    for (unsigned i = ALL_FIRST_BATCH; i < ALL_FIRST_NEXT; i++)
        if (rows.seen[i] != wanted[i])
            sim_violation(m->sim, "%s shows %zu rows of %zu", m->ops[i].key, rows.seen[i],
                          wanted[i]);
    check_hot(m, c, &l, rows.hot_ts);
    sf_chain_fini(&l.chain);
}

void all_model_check_end(struct all_model *m)
{
    struct sf_arena *arena = sf_arena_new(ARENA_BYTES);

    m->seen_puts = UINT64_MAX;
    m->replay_signature = 0;
    all_model_check_step(m);
    check_outcomes(m, arena, true);
    sf_arena_destroy(arena);
    check_timestamps(m);
    for (unsigned c = 0; c < ALL_COLLECTIONS; c++)
        check_rows(m, c);
    for (unsigned i = ALL_FIRST_BATCH; i < ALL_FIRST_NEXT; i++)
        for (size_t k = 0; k < m->answers[i].slice_count; k++)
            if (!all_slice_is_visible(m, &m->ops[i], m->answers[i].slices[k].commit_ts))
                sim_violation(m->sim, "%s/%zu was acknowledged and is lost", m->ops[i].key, k);
}
