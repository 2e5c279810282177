/*
 * Two contending coordinators over the faulty store; clients send batches with rows of one or both
 * modalities and barrier marks, again and again under the same batch_id, to whichever node they
 * find, and send some once more long after. Checked against what the durable objects say
 * (coord_judge.h): protocols.md section 5, invariants 5, 6, 7, 9, 11 and the answers of 1.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "commit/commit.h"
#include "contract/descriptor_set.h"
#include "fault/commit/coord_judge.h"
#include "fault/commit/sim_publish.h"
#include "fault/sim/sim.h"
#include "publish/keys.h"
#include "publish/reader.h"
#include "rpc/channel.h"
#include "searchfabric/v1/commit_coordinator.pb-c.h"

#define NAMESPACE   9
#define COLLECTIONS 2
#define SHARDS      2
#define CLIENTS     3
#define BATCHES     6
#define MOST_UNITS  3
#define MOST_EPOCHS 400
#define WINDOW_MS   6000
#define SUBMIT      "/searchfabric.v1.CommitCoordinatorService/SubmitPlannedBatch"

/* A batch as a client means it. */
struct plan {
    uint64_t collection_id;
    char batch_id[32];
    unsigned units; /* rows, with a barrier between */
    unsigned touched[MOST_UNITS];
    bool visible;
    bool ingest_ack;
    bool batch_mode;
    uint64_t first_admitted_ts;
    bool answered;                  /* durable or visible */
    uint64_t commit_ts[MOST_UNITS]; /* once answered */
    bool given_up;                  /* refused as expired before an answer came */
};

/* A slice that an event named with its timestamp. */
struct named {
    const struct plan *plan;
    uint32_t ordinal;
    uint64_t commit_ts;
    uint64_t epoch;
};

struct world {
    struct sim *sim;
    struct sim_node *nodes[2];
    struct plan plans[CLIENTS][BATCHES];
    struct named named[8192];
    size_t named_count;
    unsigned clients_done;
    bool over;
    uint64_t last_tso;
    unsigned tso_divisor; /* the oracle's physical time runs this much slower */
    /* seen in the backend */
    uint64_t seen_puts;
    struct sf_etag head_etag[COLLECTIONS];
    struct sf_etag leader_etag[SHARDS];
    uint64_t version[COLLECTIONS];
    uint64_t safe_ts[COLLECTIONS];
    uint64_t applied[COLLECTIONS][SF_MODALITY_COUNT];
    uint64_t publisher_epoch[COLLECTIONS];
    uint64_t leader_epoch[SHARDS];
    uint64_t bound[SHARDS][MOST_EPOCHS];     /* highest durable bound under an epoch */
    uint64_t old_bound[SHARDS][MOST_EPOCHS]; /* durable when the epoch was claimed */
    char owner[SHARDS][MOST_EPOCHS][48];
};

/* ---- the oracle --------------------------------------------------------------------------------
 */

struct sim_tso {
    struct sf_tso_source base;
    struct world *w;
};

static void tso_answer(struct sf_task *task)
{
    struct sf_tso_request *request = SF_CONTAINER_OF(task, struct sf_tso_request, task);
    request->done(request);
}

static uint64_t tso_take(struct world *w, uint32_t count)
{
    uint64_t ms = (uint64_t)SIM_EPOCH_UNIX_MS + (uint64_t)sim_now_ms(w->sim) / w->tso_divisor;
    uint64_t first = sf_tso_from_ms(ms).v;
    if (first <= w->last_tso)
        first = w->last_tso + 1;
    w->last_tso = first + count - 1;
    return first;
}

static void tso_get(struct sf_tso_source *source, struct sf_tso_request *request)
{
    struct sim_tso *tso = SF_CONTAINER_OF(source, struct sim_tso, base);
    bool fails = sf_rng_below(sim_rng(tso->w->sim), 100) < 2;
    request->err = fails ? SF_BACKEND_UNAVAILABLE : SF_OK;
    request->first.v = fails ? 0 : tso_take(tso->w, request->count);
    request->task.run = tso_answer;
    sf_loop_post(request->loop, &request->task);
}

static void tso_destroy(struct sf_tso_source *source)
{
    (void)source;
}

static const struct sf_tso_source_vtable tso_vtable = {.get = tso_get, .destroy = tso_destroy};

/* ---- a node ------------------------------------------------------------------------------------
 */

struct life {
    struct world *w;
    struct sim_tso tso;
    struct sf_attempts attempts;
    struct sf_commit *commit;
    struct sf_channel *channel;
    unsigned callers;
    struct sf_waiter *stopping;
};

static void *node_start(struct sim_process *process, void *ctx)
{
    struct life *life = sf_calloc(1, sizeof(*life));
    struct sf_loop *loops[] = {sim_process_loop(process, 0), sim_process_loop(process, 1)};
    struct sf_diag diag;
    life->w = ctx;
    life->tso = (struct sim_tso){.base.vtable = &tso_vtable, .w = ctx};
    sf_attempts_init(&life->attempts, sim_process_random(process));
    struct sf_commit_deps deps = {.store = sim_process_store(process),
                                  .loops = loops,
                                  .loop_count = 2,
                                  .clock = sim_process_clock(process),
                                  .tso = &life->tso.base,
                                  .attempts = &life->attempts,
                                  .owner_id = sim_process_name(process),
                                  .random_seed = sim_process_random(process),
                                  .shard_count = SHARDS,
                                  .duplicate_window_ms = WINDOW_MS,
                                  .wal_chunk_bytes = 600,
                                  .lane_idle_ms = 1000,
                                  .manifest_base_interval = 4,
                                  .manifest_list_entries = 3};
    sf_diag_init(&diag);
    enum sf_err err = sf_commit_open(&deps, sim_process_sched(process), &diag, &life->commit);
    if (err != SF_OK) {
        sim_trace(life->w->sim, "%s: open: %s: %s", sim_process_name(process),
                  sf_err_info(err)->name, diag.message);
        if (err == SF_ERR_CORRUPT && !sim_process_is_dead(process))
            sim_violation(life->w->sim, "corrupt at open: %s", diag.message);
        free(life);
        return NULL;
    }
    const struct sf_service *services[] = {sf_commit_service(life->commit)};
    life->channel = sf_inproc_channel_new(services, 1, "planner", sim_process_clock(process));
    return life;
}

static void node_stop(struct sim_process *process, void *service, void *ctx)
{
    struct life *life = service;
    struct sf_waiter waiter;
    (void)ctx;
    sf_waiter_init(&waiter, sim_process_sched(process));
    life->stopping = &waiter;
    if (life->callers > 0)
        sf_waiter_wait(&waiter);
    sf_waiter_fini(&waiter);
    sf_channel_destroy(life->channel);
    sf_commit_close(life->commit, sim_process_sched(process));
    free(life);
}

/* ---- checks over durable state ------------------------------------------------------------------
 */

static struct sf_collection_ref ref_of(unsigned index)
{
    return (struct sf_collection_ref){{NAMESPACE}, {index + 1}};
}

/* Slices of a committed lineage. */
struct lineage {
    const Searchfabric__V1__ManifestSlice **slices;
    size_t count;
    size_t cap;
};

static void collect(void *user, const Searchfabric__V1__ManifestSlice *slice)
{
    struct lineage *l = user;
    if (l->count == l->cap) {
        l->cap = l->cap == 0 ? 64 : 2 * l->cap;
        l->slices = sf_realloc(l->slices, l->cap * sizeof(l->slices[0]));
    }
    l->slices[l->count++] = slice;
}

static bool held(const struct lineage *l, const char *id, uint64_t commit_ts)
{
    for (size_t i = 0; i < l->count; i++) {
        if (l->slices[i]->commit_ts == commit_ts && strcmp(l->slices[i]->write_intent_id, id) == 0)
            return true;
    }
    return false;
}

/* Invariants 5 and 6 on one committed lineage. */
static void check_lineage(struct world *w, unsigned c, const struct sf_chain *chain,
                          const struct lineage *l, const struct judge *judge)
{
    const Searchfabric__V1__CollectionManifestObject *m = sf_chain_newest(chain);
    uint64_t applied[SF_MODALITY_COUNT] = {m->watermarks->applied_ts_metadata_search,
                                           m->watermarks->applied_ts_semantic_search,
                                           m->watermarks->applied_ts_metadata_aux};
    for (size_t i = 0; i < l->count; i++) {
        if (i > 0 && l->slices[i]->commit_ts <= l->slices[i - 1]->commit_ts)
            sim_violation(w->sim, "collection %u: commit_ts %" PRIu64 " after %" PRIu64, c + 1,
                          l->slices[i]->commit_ts, l->slices[i - 1]->commit_ts);
        for (size_t k = 0; k < i; k++) {
            if (strcmp(l->slices[i]->write_intent_id, l->slices[k]->write_intent_id) == 0)
                sim_violation(w->sim, "collection %u: slice %s is held twice", c + 1,
                              l->slices[i]->batch_id);
        }
        if (!judge_stands(judge, l->slices[i]->write_intent_id,
                          l->slices[i]->anchors[0]->chunk_epoch))
            sim_violation(w->sim, "collection %u: %s/%u is visible and does not stand", c + 1,
                          l->slices[i]->batch_id, l->slices[i]->slice_ordinal);
    }
    for (size_t i = 0; i < judge->count; i++) {
        const struct judged_frame *f = &judge->frames[i];
        if (f->collection_id != c + 1 || !judge_stands(judge, f->id, f->epoch))
            continue;
        for (unsigned k = 0; k < SF_MODALITY_COUNT; k++) {
            if ((f->touched & (1u << k)) != 0 && f->commit_ts <= applied[k] &&
                !held(l, f->id, f->commit_ts))
                sim_violation(w->sim,
                              "collection %u: applied_ts of modality %u covers %s/%u, not held",
                              c + 1, k + 1, f->batch_id, f->ordinal);
        }
    }
    SIM_CHECK(w->sim, m->manifest_version > w->version[c]);
    SIM_CHECK(w->sim, m->safe_ts >= w->safe_ts[c]);
    SIM_CHECK(w->sim, chain->head->safe_ts == m->safe_ts);
    SIM_CHECK(w->sim, chain->head->publisher_epoch >= w->publisher_epoch[c]);
    SIM_CHECK(w->sim, m->local_max_commit_ts >= m->safe_ts);
    for (unsigned k = 0; k < SF_MODALITY_COUNT; k++) {
        SIM_CHECK(w->sim, applied[k] >= w->applied[c][k]);
        w->applied[c][k] = applied[k];
    }
    w->version[c] = m->manifest_version;
    w->safe_ts[c] = m->safe_ts;
    w->publisher_epoch[c] = chain->head->publisher_epoch;
}

static void read_lineage(struct world *w, unsigned c, struct sf_chain *chain, struct lineage *l)
{
    struct sf_diag diag;
    sf_diag_init(&diag);
    *l = (struct lineage){0};
    sf_chain_init(chain, ref_of(c), 0);
    if (sf_chain_read_wait(chain, sim_backend(w->sim), NULL, &diag) != SF_OK)
        sim_violation(w->sim, "collection %u: %s", c + 1, diag.message);
    sf_chain_each_slice(chain, collect, l);
}

static bool moved(struct world *w, struct sf_view key, struct sf_etag *seen, struct sf_buf *body)
{
    struct sf_etag etag = {{0}};
    if (sf_store_get_wait(sim_backend(w->sim), NULL, key, body, &etag) != SF_OK)
        return false;
    bool same = strcmp(etag.text, seen->text) == 0;
    *seen = etag;
    return !same;
}

static void check_head(struct world *w, unsigned c)
{
    struct sf_buf key = {0};
    struct sf_buf body = {0};
    sf_committed_head_key(&key, ref_of(c));
    if (moved(w, sf_buf_view(&key), &w->head_etag[c], &body)) {
        struct judge judge;
        struct sf_chain chain;
        struct lineage l;
        judge_read(&judge, sim_backend(w->sim));
        read_lineage(w, c, &chain, &l);
        check_lineage(w, c, &chain, &l, &judge);
        free(l.slices);
        sf_chain_fini(&chain);
        judge_free(&judge);
    }
    sf_buf_fini(&key);
    sf_buf_fini(&body);
}

/* One owner per epoch; epochs and bounds only grow. */
static void check_leader(struct world *w, uint32_t shard)
{
    struct sf_buf key = {0};
    struct sf_buf body = {0};
    sf_leader_key(&key, shard);
    if (moved(w, sf_buf_view(&key), &w->leader_etag[shard], &body)) {
        struct sf_arena *arena = sf_arena_new(1u << 20);
        ProtobufCMessage *message = NULL;
        enum sf_err err =
            sf_durable_decode(&searchfabric__v1__coordinator_leader_object__descriptor,
                              sf_buf_view(&body), arena, NULL, &message);
        SIM_CHECK(w->sim, err == SF_OK);
        const Searchfabric__V1__CoordinatorLeaderObject *leader = (const void *)message;
        uint64_t epoch = leader->coordinator_epoch;
        SIM_CHECK(w->sim, epoch < MOST_EPOCHS && epoch >= w->leader_epoch[shard]);
        char *owner = w->owner[shard][epoch];
        if (owner[0] == '\0') {
            snprintf(owner, sizeof(w->owner[0][0]), "%s", leader->owner_id);
            w->old_bound[shard][epoch] = leader->issued_upper_bound_ts;
        }
        if (strcmp(owner, leader->owner_id) != 0)
            sim_violation(w->sim, "epoch %" PRIu64 " of shard %u has two owners", epoch, shard);
        SIM_CHECK(w->sim, leader->issued_upper_bound_ts >= w->bound[shard][w->leader_epoch[shard]]);
        w->leader_epoch[shard] = epoch;
        w->bound[shard][epoch] = leader->issued_upper_bound_ts;
        sf_arena_destroy(arena);
    }
    sf_buf_fini(&key);
    sf_buf_fini(&body);
}

static void check_step(struct sim *sim, void *ctx)
{
    struct world *w = ctx;
    uint64_t puts = sf_fault_store_counts(sim_network(sim)).puts_applied;
    if (puts == w->seen_puts)
        return;
    w->seen_puts = puts;
    for (uint32_t s = 0; s < SHARDS; s++)
        check_leader(w, s);
    for (unsigned c = 0; c < COLLECTIONS; c++)
        check_head(w, c);
}

/* ---- clients -----------------------------------------------------------------------------------
 */

/* One delivery of a batch to one node. */
struct delivery {
    struct sf_task task;
    struct world *w;
    struct plan *plan;
    struct sim_node *node;
    uint64_t number; /* life of the node */
    struct life *life;
    struct sf_loop *loop; /* the client's */
    struct sf_waiter waiter;
    bool admitted;
    bool gate;
    Searchfabric__V1__BatchRefusal refusal;
    uint64_t commit_ts[MOST_UNITS];
};

static void name_slice(struct world *w, const struct plan *plan, uint32_t ordinal,
                       uint64_t commit_ts, uint64_t epoch)
{
    for (size_t i = 0; i < w->named_count; i++) {
        const struct named *n = &w->named[i];
        if (n->plan->collection_id == plan->collection_id && n->commit_ts == commit_ts &&
            (n->plan != plan || n->ordinal != ordinal))
            sim_violation(w->sim, "commit_ts %" PRIu64 " was assigned twice: %s/%u and %s/%u",
                          commit_ts, n->plan->batch_id, n->ordinal, plan->batch_id, ordinal);
    }
    SF_ASSERT(w->named_count < SF_ARRAY_LEN(w->named));
    w->named[w->named_count++] = (struct named){plan, ordinal, commit_ts, epoch};
}

static void on_admitted(struct delivery *d, const Searchfabric__V1__BatchAdmitted *admitted,
                        uint64_t epoch)
{
    struct world *w = d->w;
    uint32_t shard = sf_commit_shard_of(ref_of((unsigned)d->plan->collection_id - 1), SHARDS);
    check_step(w->sim, w);
    if (admitted->n_slices != d->plan->units)
        sim_violation(w->sim, "%s: %zu slices, not %u", d->plan->batch_id, admitted->n_slices,
                      d->plan->units);
    for (unsigned i = 0; i < d->plan->units; i++) {
        uint64_t ts = admitted->slices[i]->commit_ts;
        SIM_CHECK(w->sim, admitted->slices[i]->slice_ordinal == 2 * i);
        d->commit_ts[i] = ts;
        if (d->plan->answered && d->plan->commit_ts[i] != ts)
            sim_violation(w->sim, "%s/%u was answered %" PRIu64 ", now %" PRIu64, d->plan->batch_id,
                          2 * i, d->plan->commit_ts[i], ts);
        name_slice(w, d->plan, 2 * i, ts, epoch);
        if (admitted->duplicate)
            continue;
        if (ts >= w->bound[shard][epoch])
            sim_violation(w->sim,
                          "%s: commit_ts %" PRIu64 " is not below the durable bound %" PRIu64,
                          d->plan->batch_id, ts, w->bound[shard][epoch]);
        if (d->plan->units == 1 && ts <= w->old_bound[shard][epoch])
            sim_violation(w->sim, "%s: commit_ts %" PRIu64 " is not above the old bound %" PRIu64,
                          d->plan->batch_id, ts, w->old_bound[shard][epoch]);
    }
    d->admitted = true;
}

/* A gate says what holds now, in the durable objects. */
static void on_gate(struct delivery *d, const Searchfabric__V1__BatchGateReached *reached)
{
    struct world *w = d->w;
    struct judge judge;
    d->gate = true;
    SIM_CHECK(w->sim, d->admitted);
    judge_read(&judge, sim_backend(w->sim));
    for (size_t i = 0; i < w->named_count; i++) {
        const struct named *n = &w->named[i];
        if (n->plan->collection_id == d->plan->collection_id && n->commit_ts <= reached->safe_ts &&
            n->epoch >= w->leader_epoch[sf_commit_shard_of(
                            ref_of((unsigned)n->plan->collection_id - 1), SHARDS)] &&
            !judge_batch_stands(&judge, n->plan->collection_id, n->plan->batch_id, n->ordinal,
                                n->commit_ts))
            sim_violation(w->sim, "safe_ts %" PRIu64 " covers %s/%u, not durable", reached->safe_ts,
                          n->plan->batch_id, n->ordinal);
    }
    for (unsigned i = 0; i < d->plan->units && !d->plan->ingest_ack; i++) {
        if (!judge_batch_stands(&judge, d->plan->collection_id, d->plan->batch_id, 2 * i,
                                d->commit_ts[i]))
            sim_violation(w->sim, "%s/%u was acknowledged and does not stand", d->plan->batch_id,
                          2 * i);
    }
    judge_free(&judge);
    if (!d->plan->visible)
        return;
    struct sf_chain chain;
    struct lineage l;
    read_lineage(w, (unsigned)d->plan->collection_id - 1, &chain, &l);
    for (unsigned i = 0; i < d->plan->units; i++) {
        bool found = false;
        for (size_t k = 0; k < l.count; k++)
            found = found || (l.slices[k]->commit_ts == d->commit_ts[i] &&
                              strcmp(l.slices[k]->batch_id, d->plan->batch_id) == 0);
        if (!found)
            sim_violation(w->sim, "%s/%u was acknowledged visible and is not", d->plan->batch_id,
                          2 * i);
    }
    free(l.slices);
    sf_chain_fini(&chain);
}

static void on_event(void *user, const ProtobufCMessage *message)
{
    struct delivery *d = user;
    const Searchfabric__V1__SubmitPlannedBatchResponse *event = (const void *)message;
    if (!sim_node_is_current(d->node, d->number))
        return;
    switch (event->event_case) {
    case SEARCHFABRIC__V1__SUBMIT_PLANNED_BATCH_RESPONSE__EVENT_ADMITTED:
        on_admitted(d, event->admitted, event->coordinator_epoch);
        break;
    case SEARCHFABRIC__V1__SUBMIT_PLANNED_BATCH_RESPONSE__EVENT_GATE_REACHED:
        on_gate(d, event->gate_reached);
        break;
    case SEARCHFABRIC__V1__SUBMIT_PLANNED_BATCH_RESPONSE__EVENT_REFUSED:
        d->refusal = event->refused->refusal;
        break;
    default:
        sim_violation(d->w->sim, "event of unknown kind");
    }
}

static void on_writable(void *user)
{
    (void)user;
}

static void on_done(void *user, const struct sf_diag *diag)
{
    struct delivery *d = user;
    (void)diag;
    sf_waiter_wake(&d->waiter);
}

static const struct sf_client_stream_ops stream_ops = {
    .message = on_event, .writable = on_writable, .done = on_done};

static void fill_rows(const struct plan *plan, struct sf_arena *arena,
                      Searchfabric__V1__MutationBatch *batch,
                      Searchfabric__V1__PlannedBatch *planned)
{
    size_t entries = 2 * plan->units - 1;
    batch->entries = sf_arena_alloc(arena, entries * sizeof(batch->entries[0]));
    planned->entry_plans = sf_arena_alloc(arena, entries * sizeof(planned->entry_plans[0]));
    batch->n_entries = planned->n_entry_plans = entries;
    for (size_t i = 0; i < entries; i++) {
        Searchfabric__V1__MutationEntry *entry = sf_arena_alloc(arena, sizeof(*entry));
        Searchfabric__V1__EntryPlan *p = sf_arena_alloc(arena, sizeof(*p));
        searchfabric__v1__mutation_entry__init(entry);
        searchfabric__v1__entry_plan__init(p);
        batch->entries[i] = entry;
        planned->entry_plans[i] = p;
        p->first_entry_index = p->last_entry_index = (uint32_t)i;
        if (i % 2 == 1) {
            entry->entry_case = SEARCHFABRIC__V1__MUTATION_ENTRY__ENTRY_BARRIER_MARK;
            entry->barrier_mark = sf_arena_alloc(arena, sizeof(*entry->barrier_mark));
            searchfabric__v1__barrier_mark__init(entry->barrier_mark);
            continue;
        }
        Searchfabric__V1__RowMutation *row = sf_arena_alloc(arena, sizeof(*row));
        searchfabric__v1__row_mutation__init(row);
        entry->entry_case = SEARCHFABRIC__V1__MUTATION_ENTRY__ENTRY_ROW;
        entry->row = row;
        row->doc_id = sf_arena_alloc(arena, sizeof(*row->doc_id));
        searchfabric__v1__document_id__init(row->doc_id);
        row->doc_id->id_value_case = SEARCHFABRIC__V1__DOCUMENT_ID__ID_VALUE_U64;
        row->doc_id->u64 = i;
        row->op = SEARCHFABRIC__V1__ROW_OP__ROW_OP_INDEX;
        row->body.data = (uint8_t *)(uintptr_t)plan->batch_id;
        row->body.len = strlen(plan->batch_id);
        row->source_partition = UINT64_C(1) << 63;
        row->source_seq = i + 1;
        p->touched_modalities = sf_arena_alloc(arena, 2 * sizeof(p->touched_modalities[0]));
        for (unsigned m = 0; m < 2; m++) {
            if ((plan->touched[i / 2] & (1u << m)) != 0)
                p->touched_modalities[p->n_touched_modalities++] =
                    (Searchfabric__V1__Modality)(m + 1);
        }
    }
}

static void send_batch(struct sf_client_stream *stream, const struct plan *plan)
{
    static Searchfabric__V1__Modality enabled[] = {
        SEARCHFABRIC__V1__MODALITY__MODALITY_METADATA_SEARCH,
        SEARCHFABRIC__V1__MODALITY__MODALITY_SEMANTIC_SEARCH};
    struct sf_arena *arena = sf_arena_new(1u << 20);
    Searchfabric__V1__SubmitPlannedBatchRequest request =
        SEARCHFABRIC__V1__SUBMIT_PLANNED_BATCH_REQUEST__INIT;
    Searchfabric__V1__PlannedBatch planned = SEARCHFABRIC__V1__PLANNED_BATCH__INIT;
    Searchfabric__V1__MutationBatch batch = SEARCHFABRIC__V1__MUTATION_BATCH__INIT;
    Searchfabric__V1__CollectionRef ref = SEARCHFABRIC__V1__COLLECTION_REF__INIT;
    char fingerprint[SF_SHA256_HEX_BYTES];
    sf_sha256_hex(sf_view_str(plan->batch_id), fingerprint);
    ref.namespace_id = NAMESPACE;
    ref.collection_id = plan->collection_id;
    batch.collection = &ref;
    batch.batch_id = (char *)(uintptr_t)plan->batch_id;
    batch.batch_fingerprint = fingerprint;
    batch.stream_identity = (char *)(uintptr_t) "s";
    batch.schema_generation_token = (char *)(uintptr_t) "t";
    batch.durability =
        plan->ingest_ack ? SEARCHFABRIC__V1__DURABILITY_POLICY__DURABILITY_POLICY_INGEST_ACK
                         : SEARCHFABRIC__V1__DURABILITY_POLICY__DURABILITY_POLICY_WAL_CHUNK_DURABLE;
    batch.visibility = plan->visible
                           ? SEARCHFABRIC__V1__VISIBILITY_POLICY__VISIBILITY_POLICY_WAIT_FOR_VISIBLE
                           : SEARCHFABRIC__V1__VISIBILITY_POLICY__VISIBILITY_POLICY_ASYNC;
    planned.batch = &batch;
    planned.flow_kind = SEARCHFABRIC__V1__FLOW_KIND__FLOW_KIND_B;
    planned.source_kind = SEARCHFABRIC__V1__SOURCE_KIND__SOURCE_KIND_NATIVE_SEARCH_API;
    planned.writer_mode = plan->batch_mode ? SEARCHFABRIC__V1__WRITER_MODE__WRITER_MODE_BATCH
                                           : SEARCHFABRIC__V1__WRITER_MODE__WRITER_MODE_STREAM;
    planned.enabled_modalities = enabled;
    planned.n_enabled_modalities = 2;
    planned.first_admitted_ts = plan->first_admitted_ts;
    fill_rows(plan, arena, &batch, &planned);
    request.submission_id = 1;
    request.planned_batch = &planned;
    enum sf_err err = sf_client_stream_send(stream, &request.base);
    SF_ASSERT(err == SF_OK);
    sf_client_stream_half_close(stream);
    sf_arena_destroy(arena);
}

static void deliver_on_loop(struct sf_task *task)
{
    struct delivery *d = SF_CONTAINER_OF(task, struct delivery, task);
    struct sf_call_options options = {.timeout_ms = 1500};
    struct sf_client_stream *stream =
        sf_channel_stream(d->life->channel, SUBMIT, &options, d->loop, &stream_ops, d);
    send_batch(stream, d->plan);
}

/* Delivers once to a node that is up; false when there was none. */
static bool deliver(struct world *w, struct sim_process *process, struct plan *plan,
                    struct delivery *d)
{
    struct sim_node *node = w->nodes[sf_rng_below(sim_rng(w->sim), 2)];
    uint64_t number = 0;
    struct life *life = sim_node_service(node, &number);
    if (life == NULL || life->stopping != NULL)
        return false;
    *d = (struct delivery){.task.run = deliver_on_loop,
                           .w = w,
                           .plan = plan,
                           .node = node,
                           .number = number,
                           .life = life,
                           .loop = sim_process_loop(process, 0)};
    life->callers++;
    sf_waiter_init(&d->waiter, sim_process_sched(process));
    sf_loop_post(d->loop, &d->task);
    sf_waiter_wait(&d->waiter);
    sf_waiter_fini(&d->waiter);
    if (--life->callers == 0 && life->stopping != NULL)
        sf_waiter_wake(life->stopping);
    return true;
}

static void check_refusal(struct world *w, const struct delivery *d)
{
    switch (d->refusal) {
    case SEARCHFABRIC__V1__BATCH_REFUSAL__BATCH_REFUSAL_UNSPECIFIED:
    case SEARCHFABRIC__V1__BATCH_REFUSAL__BATCH_REFUSAL_OVERLOADED:
    case SEARCHFABRIC__V1__BATCH_REFUSAL__BATCH_REFUSAL_DEPENDENCY_UNAVAILABLE:
    case SEARCHFABRIC__V1__BATCH_REFUSAL__BATCH_REFUSAL_NOT_LEADER:
    case SEARCHFABRIC__V1__BATCH_REFUSAL__BATCH_REFUSAL_OUTCOME_UNKNOWN:
    case SEARCHFABRIC__V1__BATCH_REFUSAL__BATCH_REFUSAL_DUPLICATE_WINDOW_EXPIRED:
        return;
    default:
        sim_violation(w->sim, "%s was refused: %d", d->plan->batch_id, (int)d->refusal);
    }
}

#define EXPIRED SEARCHFABRIC__V1__BATCH_REFUSAL__BATCH_REFUSAL_DUPLICATE_WINDOW_EXPIRED

struct client {
    struct world *w;
    unsigned id;
};

/* Delivers until answered or expired. */
static void finish_batch(struct world *w, struct sim_process *process, struct plan *plan)
{
    struct delivery d;
    while (!plan->answered && !plan->given_up) {
        bool sent = deliver(w, process, plan, &d);
        if (sent) {
            check_refusal(w, &d);
            plan->given_up = d.refusal == EXPIRED;
        }
        if (sent && d.gate) {
            plan->answered = true;
            memcpy(plan->commit_ts, d.commit_ts, sizeof(plan->commit_ts));
            sim_trace(w->sim, "client: %s answered", plan->batch_id);
            break;
        }
        sim_sleep(process, 1 + (int64_t)sf_rng_below(sim_rng(w->sim), 300));
    }
}

static void make_plan(struct world *w, struct plan *plan, unsigned client, unsigned n)
{
    struct sf_rng *rng = sim_rng(w->sim);
    *plan =
        (struct plan){.collection_id = 1 + sf_rng_below(rng, COLLECTIONS),
                      .units = sf_rng_below(rng, 3) == 0 ? 2 + (unsigned)sf_rng_below(rng, 2) : 1,
                      .visible = sf_rng_below(rng, 3) == 0,
                      .ingest_ack = sf_rng_below(rng, 4) == 0,
                      .batch_mode = sf_rng_below(rng, 4) == 0,
                      .first_admitted_ts = tso_take(w, 1)};
    if (plan->visible)
        plan->ingest_ack = false;
    for (unsigned i = 0; i < plan->units; i++)
        plan->touched[i] = 1 + (unsigned)sf_rng_below(rng, 3);
    snprintf(plan->batch_id, sizeof(plan->batch_id), "c%u-%u", client, n);
}

static void run_client(struct sim_process *process, void *arg)
{
    struct client *c = arg;
    struct world *w = c->w;
    for (unsigned n = 0; n < BATCHES; n++) {
        struct plan *plan = &w->plans[c->id][n];
        struct delivery d;
        make_plan(w, plan, c->id, n);
        finish_batch(w, process, plan);
        if (plan->ingest_ack) /* promises admission only: may be lost */
            plan->answered = false;
        else if (sf_rng_below(sim_rng(w->sim), 3) == 0 && deliver(w, process, plan, &d))
            check_refusal(w, &d); /* again: on_admitted compares */
        sim_sleep(process, (int64_t)sf_rng_below(sim_rng(w->sim), 400));
    }
    w->clients_done++;
}

/* Sends answered batches once more, long after. */
static void run_late(struct sim_process *process, void *arg)
{
    struct world *w = arg;
    for (unsigned i = 0; i < 8; i++) {
        struct delivery d;
        sim_sleep(process, 1500);
        struct plan *plan = &w->plans[sf_rng_below(sim_rng(w->sim), CLIENTS)]
                                     [sf_rng_below(sim_rng(w->sim), BATCHES)];
        if (plan->answered && deliver(w, process, plan, &d))
            check_refusal(w, &d);
    }
    w->clients_done++;
}

/* Keeps time going while nodes are down. */
static void run_clock(struct sim_process *process, void *arg)
{
    const struct world *w = arg;
    while (!w->over)
        sim_sleep(process, 50);
}

static bool clients_done(struct sim *sim, void *ctx)
{
    const struct world *w = ctx;
    (void)sim;
    return w->clients_done == CLIENTS + 1;
}

/* Everything that stands is visible. */
static bool all_published(struct sim *sim, void *ctx)
{
    struct world *w = ctx;
    struct judge judge;
    bool done = true;
    judge_read(&judge, sim_backend(sim));
    for (unsigned c = 0; c < COLLECTIONS && done; c++) {
        struct sf_chain chain;
        struct lineage l;
        read_lineage(w, c, &chain, &l);
        for (size_t i = 0; i < judge.count && done; i++) {
            const struct judged_frame *f = &judge.frames[i];
            done = f->collection_id != c + 1 || !judge_stands(&judge, f->id, f->epoch) ||
                   held(&l, f->id, f->commit_ts);
        }
        free(l.slices);
        sf_chain_fini(&chain);
    }
    judge_free(&judge);
    return done;
}

static bool count_row(void *user, const struct sf_row *row)
{
    (void)row;
    ++*(unsigned *)user;
    return true;
}

static void check_end(struct world *w)
{
    struct judge judge;
    judge_read(&judge, sim_backend(w->sim));
    SIM_CHECK(w->sim, !judge.corrupt);
    for (size_t i = 0; i < judge.count; i++) {
        const struct judged_frame *a = &judge.frames[i];
        for (size_t k = 0; k < i; k++) {
            const struct judged_frame *b = &judge.frames[k];
            if (a->collection_id == b->collection_id && a->commit_ts == b->commit_ts &&
                (strcmp(a->id, b->id) != 0 || a->epoch != b->epoch))
                sim_violation(w->sim, "commit_ts %" PRIu64 " was assigned twice", a->commit_ts);
            /* a later slice of a batch is sent only once the one before its barrier stands */
            if (a->collection_id == b->collection_id && strcmp(a->batch_id, b->batch_id) == 0 &&
                a->epoch == b->epoch && a->ordinal > b->ordinal &&
                !judge_stands(&judge, b->id, b->epoch))
                sim_violation(w->sim, "%s/%u overtook a barrier", a->batch_id, a->ordinal);
        }
    }
    for (unsigned c = 0; c < CLIENTS; c++) {
        for (unsigned n = 0; n < BATCHES; n++) {
            const struct plan *plan = &w->plans[c][n];
            for (unsigned i = 0; i < plan->units && plan->answered; i++) {
                if (!judge_batch_stands(&judge, plan->collection_id, plan->batch_id, 2 * i,
                                        plan->commit_ts[i]))
                    sim_violation(w->sim, "%s/%u was acknowledged and is lost", plan->batch_id,
                                  2 * i);
            }
        }
    }
    judge_free(&judge);
    for (unsigned c = 0; c < COLLECTIONS; c++) {
        struct sf_diag diag;
        unsigned rows = 0;
        sf_diag_init(&diag);
        if (sf_rows_read(sim_backend(w->sim), NULL, ref_of(c), count_row, &rows, NULL, &diag) !=
            SF_OK)
            sim_violation(w->sim, "rows of collection %u: %s", c + 1, diag.message);
    }
}

static void run_coord(struct sim *sim)
{
    struct world *w = sf_calloc(1, sizeof(*w));
    const struct sim_service service = {.start = node_start, .stop = node_stop, .ctx = w};
    struct sim_options options = sim_default_options();
    struct client clients[CLIENTS];
    sf_log_set_fd(-1);
    w->sim = sim;
    sim_configure(sim, &options);
    w->tso_divisor = 1 + (unsigned)sf_rng_below(sim_rng(sim), 4);
    w->nodes[0] = sim_node_new(sim, "a", &service);
    w->nodes[1] = sim_node_new(sim, "b", &service);
    sim_set_invariant(sim, check_step, w);
    struct sim_process *process = sim_process_new(sim, "clients");
    for (unsigned i = 0; i < CLIENTS; i++) {
        clients[i] = (struct client){.w = w, .id = i};
        sim_spawn(process, run_client, &clients[i]);
    }
    sim_spawn(process, run_late, w);
    sim_spawn(process, run_clock, w);
    sim_run_for(sim, 8000);
    sim_settle(sim);
    sim_run_until(sim, clients_done, w, 120000, "every batch is answered");
    sim_run_until(sim, all_published, w, 60000, "everything that stands is visible");
    check_end(w);
    w->over = true;
    sim_run_for(sim, 100);
    sim_stop_nodes(sim);
    sim_set_invariant(sim, NULL, NULL);
    free(w);
}

int main(int argc, char **argv)
{
    static const char *const proves[] = {"COORD-2-13", "COORD-3-15", "COORD-3-16", "COORD-7.2-06",
                                         NULL};
    static const struct sim_scenario scenarios[] = {
        {.name = "coord", .area = "coord", .run = run_coord, .proves = proves},
        {.name = "publish", .area = "publish", .run = run_publish}};
    enum sf_err err = sf_pbjson_register(
        sf_view_bytes(sf_contract_descriptor_set, sf_contract_descriptor_set_size));
    SF_ASSERT(err == SF_OK);
    return sim_main(argc, argv, scenarios, SF_ARRAY_LEN(scenarios));
}
