/* Replay-success objects are decoded once, when they appear; their etags are compared again at
 * every look, so that a rewrite is seen. The two state objects are read at every look. */
#include "fault/alloc/sim_alloc_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/allocator_rules.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/pb.h"
#include "object/durable.h"

/* What is known of a request. */
struct outcome {
    struct sf_buf packed; /* first success, empty = none */
    bool burned;          /* refused with SF_VERSION_CONFLICT */
    bool answered;        /* finally: success or a refusal of the plan */
    bool sent;            /* somebody asked for it */
    bool sent_dropped;    /* and nobody did before its collection was dropped */
    bool stands;          /* a replay-success object is there */
    int64_t stood_at_ms;  /* since when */
    struct sf_etag etag;  /* of that object */
    struct sf_buf key;    /* of that object */
};

/* Watermarks reach 2^64. */
__extension__ typedef unsigned __int128 wide_t;

#define MAX_VERSIONS   1024
#define CLOCK_SLACK_MS 300 /* clocks of processes differ by 100, and a step takes its time */
#define END            ((wide_t)1 << 64) /* the bound of a collection without ids */

/* One write of a state object. */
struct seen_write {
    wide_t before;  /* watermark that it met */
    wide_t after;   /* watermark that it set */
    uint64_t epoch; /* of its owner */
    bool leased;    /* it records a lease, of `lease_epoch`, which begins at `start` */
    wide_t start;
    uint64_t lease_epoch;
    int64_t seen_ms; /* when it was applied */
};

/* A state object as seen last. */
struct seen_state {
    wide_t next;                            /* watermark */
    uint64_t epoch;                         /* allocation_epoch */
    uint64_t version;                       /* allocator_state_version */
    char owner[64];                         /* of the epoch */
    struct sf_etag etag;                    /* of the object */
    struct seen_write writes[MAX_VERSIONS]; /* by version */
};

struct model {
    struct sim *sim;
    struct model_request requests[MODEL_REQUESTS];
    struct outcome outcomes[MODEL_REQUESTS];
    struct seen_state states[MODEL_COLLECTIONS];
    struct sf_map *ids; /* (collection, doc id) -> request + 1 */
    uint64_t seen_puts;
    int64_t proved_ms; /* how long an owner that leases may go unproved */
    unsigned leased;   /* results out of a lease */
};

/* The second collection had an owner before, who left few ids. */
static void plant_near_the_end(struct model *m, uint64_t next)
{
    Searchfabric__V1__AllocatorStateObject state = SEARCHFABRIC__V1__ALLOCATOR_STATE_OBJECT__INIT;
    char text[SF_ALLOC_DECIMAL_BYTES];
    struct sf_buf key = {0};
    struct sf_buf body = {0};

    (void)snprintf(text, sizeof(text), "%" PRIu64, next);
    state.attempt_id = (char *)"planted-1";
    state.namespace_id = MODEL_NS;
    state.collection_id = 2;
    state.next_doc_id = text;
    state.allocation_epoch = 1;
    state.allocator_state_version = 1;
    state.owner_id = (char *)"planted";
    sf_alloc_state_key((struct sf_collection_ref){{MODEL_NS}, {2}}, &key);
    sf_durable_encode(&state.base, &body, NULL);
    struct sf_put put = {
        .key = sf_buf_view(&key), .body = sf_buf_view(&body), .cond = SF_PUT_ABSENT};
    SIM_CHECK(m->sim, sf_store_put_wait(sim_backend(m->sim), NULL, &put) == SF_OK);
    sf_buf_fini(&key);
    sf_buf_fini(&body);
}

struct model *model_new(struct sim *sim, unsigned issue_percent, int64_t proved_ms)
{
    struct model *m = sf_calloc(1, sizeof(*m));
    struct sf_rng *rng = sim_rng(sim);
    uint64_t base[1 + MODEL_COLLECTIONS] = {0}; /* where the ids of a collection begin */

    m->sim = sim;
    m->proved_ms = proved_ms;
    m->ids = sf_map_new();
    if (sf_rng_below(rng, 2) == 0) {
        base[2] = UINT64_MAX - 10 - sf_rng_below(rng, 30);
        plant_near_the_end(m, base[2]);
        m->seen_puts = UINT64_MAX;
        model_check_step(m);
    }
    for (unsigned i = 0; i < MODEL_REQUESTS; i++) {
        struct model_request *q = &m->requests[i];
        (void)snprintf(q->key, sizeof(q->key), "r%u", i);
        q->collection_id = 1 + sf_rng_below(rng, MODEL_COLLECTIONS);
        q->count = 1 + sf_rng_below(rng, MODEL_ITEMS);
        /* issue alone, explicit alone, mixed */
        uint64_t shape = sf_rng_below(rng, 100) < issue_percent ? 0 : 1 + sf_rng_below(rng, 2);
        uint64_t at = 2u * i + sf_rng_below(rng, 6);
        if (sf_rng_below(rng, 12) == 0)
            at += sf_rng_below(rng, 3 * MODEL_MAX_JUMP); /* out of reach for now, or for good */
        for (size_t k = 0; k < q->count; k++) {
            bool issue = shape == 0 || (shape == 2 && sf_rng_below(rng, 2) == 0) ||
                         at >= UINT64_MAX - base[q->collection_id]; /* MODEL_ISSUE is no id here */
            q->items[k] = issue ? MODEL_ISSUE : base[q->collection_id] + at;
            at += 1 + sf_rng_below(rng, 3);
        }
    }
    return m;
}

void model_free(struct model *m)
{
    for (unsigned i = 0; i < MODEL_REQUESTS; i++) {
        sf_buf_fini(&m->outcomes[i].packed);
        sf_buf_fini(&m->outcomes[i].key);
    }
    sf_map_destroy(m->ids, NULL);
    free(m);
}

const struct model_request *model_request(const struct model *m, unsigned index)
{
    return &m->requests[index];
}

/* The arithmetic of the note, written down once more: the outcome of a plan at this watermark. */
static enum sf_err plan_outcome(const struct model_request *q, wide_t next)
{
    for (size_t i = 0; i < q->count; i++) {
        wide_t id = q->items[i] == MODEL_ISSUE ? next : q->items[i];
        if (id >= END)
            return SF_TOO_MANY_OPERATIONS;
        if (id < next)
            return SF_VERSION_CONFLICT;
        if (id - next > MODEL_MAX_JUMP)
            return SF_TOO_MANY_OPERATIONS;
        next = id + 1;
    }
    return SF_OK;
}

struct model_sent model_sent(struct model *m, unsigned index, bool dropped)
{
    struct outcome *o = &m->outcomes[index];

    if (!o->sent)
        o->sent_dropped = dropped;
    o->sent = true;
    return (struct model_sent){.version = m->states[m->requests[index].collection_id - 1].version,
                               .answered = o->packed.len != 0};
}

/* True when a watermark of the state refuses the plan: the one that `version` left, or one that a
 * later write passed (plans of one write run in turn, each against what those before it left). A
 * deposed owner may say why an earlier watermark refused what the standing one refuses too. */
static bool some_watermark_refuses(const struct seen_state *seen, uint64_t version,
                                   const struct model_request *q)
{
    wide_t next = version == 0 ? 0 : seen->writes[version].after;

    for (; next <= seen->next; next++)
        if (plan_outcome(q, next) != SF_OK)
            return true;
    return false;
}

static void check_refusal(struct model *m, unsigned index, const struct model_sent *sent,
                          enum sf_err err)
{
    const struct model_request *q = &m->requests[index];

    m->seen_puts = UINT64_MAX; /* look at once: a refusal speaks of a state that stands */
    model_check_step(m);
    if (!some_watermark_refuses(&m->states[q->collection_id - 1], sent->version, q))
        sim_violation(m->sim, "%s was refused (%s) and no watermark does so", q->key,
                      sf_err_info(err)->name);
}

void model_answered(struct model *m, unsigned index, const struct model_sent *sent, enum sf_err err,
                    struct sf_view packed)
{
    struct outcome *o = &m->outcomes[index];
    const char *key = m->requests[index].key;

    o->answered = true;
    if (err != SF_OK)
        check_refusal(m, index, sent, err);
    if (err == SF_VERSION_CONFLICT)
        o->burned = true;
    if (err == SF_OK) {
        if (o->sent_dropped)
            sim_violation(m->sim, "%s was first asked for after the drop, and given ids", key);
        if (o->packed.len == 0)
            sf_buf_append(&o->packed, packed.ptr, packed.len);
        else if (!sf_view_equal(sf_buf_view(&o->packed), packed))
            sim_violation(m->sim, "%s was answered twice, differently", key);
        if (!o->stands) {
            m->seen_puts = UINT64_MAX; /* look at once: an answer comes after its object */
            model_check_step(m);
        }
        if (!o->stands)
            sim_violation(m->sim, "%s was answered and nothing stands", key);
    }
    if (o->burned && o->packed.len != 0)
        sim_violation(m->sim, "%s was refused as burned and succeeded", key);
}

void model_dropped(struct model *m, unsigned index, int64_t drop_at_ms, bool answered_before)
{
    struct outcome *o = &m->outcomes[index];

    o->answered = true;
    if (answered_before || (o->stands && o->stood_at_ms < drop_at_ms))
        sim_violation(m->sim, "%s was answered, and not again once its collection was dropped",
                      m->requests[index].key);
}

unsigned model_leased(const struct model *m)
{
    return m->leased;
}

bool model_succeeded(const struct model *m, unsigned index)
{
    return m->outcomes[index].packed.len != 0;
}

/* The answer that a record stands for. */
static void record_answer(const Searchfabric__V1__AllocatorReplaySuccessObject *o,
                          struct sf_buf *out)
{
    Searchfabric__V1__AllocateIdsSuccessResponse response =
        SEARCHFABRIC__V1__ALLOCATE_IDS_SUCCESS_RESPONSE__INIT;

    response.realized_doc_ids = o->realized_doc_ids;
    response.n_realized_doc_ids = o->n_realized_doc_ids;
    response.schema_generation_token = o->schema_generation_token;
    response.allocator_receipt = o->allocator_receipt;
    sf_pb_pack(&response.base, out);
}

static ProtobufCMessage *read_object(struct model *m, struct sf_view key,
                                     const ProtobufCMessageDescriptor *desc, struct sf_arena *arena,
                                     struct sf_etag *out_etag)
{
    ProtobufCMessage *message = NULL;
    struct sf_diag diag;

    sf_diag_init(&diag);
    enum sf_err err = sf_durable_read_wait(sim_backend(m->sim), NULL, key, desc, arena, &diag,
                                           &message, out_etag);
    if (err == SF_ERR_NOT_FOUND)
        return NULL;
    if (err != SF_OK)
        sim_violation(m->sim, "object does not verify: %s", diag.message);
    return message;
}

static wide_t bound_of(struct model *m, const char *text)
{
    struct sf_watermark mark;

    SIM_CHECK(m->sim, sf_watermark_parse(sf_view_str(text), &mark));
    return mark.exhausted ? END : mark.next;
}

/* The lease that a state write records. */
static void take_lease(struct model *m, unsigned c, const Searchfabric__V1__AllocatorStateObject *o,
                       struct seen_write *write)
{
    const Searchfabric__V1__AllocatorLease *lease = o->lease;

    if (lease == NULL)
        return;
    write->leased = true;
    write->start = bound_of(m, lease->range_start);
    write->lease_epoch = lease->lease_epoch;
    if (strcmp(lease->owner_id, o->owner_id) != 0 || lease->allocation_epoch != o->allocation_epoch)
        sim_violation(m->sim, "collection %u has a lease of another owner", c + 1);
    if (bound_of(m, lease->range_end) != write->after || write->start >= write->after)
        sim_violation(m->sim, "a lease of collection %u does not end at the watermark", c + 1);
    /* it reserved anew, or carries on what its predecessor recorded */
    const struct seen_write *before = &m->states[c].writes[o->allocator_state_version - 1];
    bool carried = before->leased && before->lease_epoch == lease->lease_epoch &&
                   before->epoch == o->allocation_epoch && write->after == write->before;
    if (lease->lease_epoch != o->allocator_state_version && !carried)
        sim_violation(m->sim, "a lease of collection %u is of no write", c + 1);
}

/* A state object that was not seen before. */
static void take_write(struct model *m, unsigned c, const Searchfabric__V1__AllocatorStateObject *o,
                       const struct sf_etag *etag)
{
    struct seen_state *seen = &m->states[c];
    wide_t next = bound_of(m, o->next_doc_id);

    if (next < seen->next)
        sim_violation(m->sim, "the watermark of collection %u went back", c + 1);
    if (o->allocator_state_version != seen->version + 1)
        sim_violation(m->sim, "version %" PRIu64 " of collection %u follows %" PRIu64,
                      o->allocator_state_version, c + 1, seen->version);
    if (o->allocation_epoch < seen->epoch || o->allocation_epoch > seen->epoch + 1)
        sim_violation(m->sim, "epoch %" PRIu64 " of collection %u follows %" PRIu64,
                      o->allocation_epoch, c + 1, seen->epoch);
    if ((strcmp(o->owner_id, seen->owner) == 0) != (o->allocation_epoch == seen->epoch))
        sim_violation(m->sim, "epoch %" PRIu64 " of collection %u has two owners, or an owner two",
                      o->allocation_epoch, c + 1);
    SIM_CHECK(m->sim, o->allocator_state_version < MAX_VERSIONS);
    struct seen_write *write = &seen->writes[o->allocator_state_version];
    *write = (struct seen_write){.before = seen->next,
                                 .after = next,
                                 .epoch = o->allocation_epoch,
                                 .seen_ms = sim_now_ms(m->sim)};
    take_lease(m, c, o, write);
    seen->next = next;
    seen->epoch = o->allocation_epoch;
    seen->version = o->allocator_state_version;
    (void)snprintf(seen->owner, sizeof(seen->owner), "%s", o->owner_id);
    seen->etag = *etag;
}

static void check_state(struct model *m, unsigned c, struct sf_arena *arena)
{
    struct seen_state *seen = &m->states[c];
    struct sf_etag etag;
    struct sf_buf key = {0};

    sf_alloc_state_key((struct sf_collection_ref){{MODEL_NS}, {c + 1}}, &key);
    const Searchfabric__V1__AllocatorStateObject *o = (const void *)read_object(
        m, sf_buf_view(&key), &searchfabric__v1__allocator_state_object__descriptor, arena, &etag);
    sf_buf_fini(&key);
    if (o == NULL) {
        SIM_CHECK(m->sim, seen->version == 0);
        return;
    }
    if (strcmp(seen->etag.text, etag.text) != 0)
        take_write(m, c, o, &etag);
}

/* The state write that a replay-success object names. */
static const struct seen_write *
covering_write(struct model *m, const struct model_request *q,
               const Searchfabric__V1__AllocatorReplaySuccessObject *object)
{
    const struct seen_state *seen = &m->states[q->collection_id - 1];
    uint64_t version = object->allocator_state_version + object->lease_epoch;

    if ((object->lease_epoch == 0) == (object->allocator_state_version == 0))
        sim_violation(m->sim, "%s names both a write and a lease, or none", q->key);
    if (version == 0 || version > seen->version)
        sim_violation(m->sim, "%s stands before its state write", q->key);
    if (seen->writes[version].epoch != object->allocation_epoch)
        sim_violation(m->sim, "%s is of another owner than its state write", q->key);
    return &seen->writes[version];
}

/* The ids that a result may have by the write it names. */
static void bounds_of(const struct model *m, const struct model_request *q,
                      const Searchfabric__V1__AllocatorReplaySuccessObject *object,
                      const struct seen_write *write, wide_t *out_low, wide_t *out_high)
{
    uint64_t version = object->allocator_state_version + object->lease_epoch;
    const struct seen_write *before = &m->states[q->collection_id - 1].writes[version - 1];
    bool grants = write->leased && write->lease_epoch == version;

    *out_low = write->before;
    *out_high = write->after;
    if (object->lease_epoch != 0) {
        *out_low = write->start;
        if (!grants)
            *out_high = 0; /* none */
        return;
    }
    /* a group starts in the lease it met, and ends where the one it reserves begins */
    if (before->leased && before->epoch == write->epoch)
        *out_low = before->start;
    if (grants)
        *out_high = write->start;
}

/* A deposed owner may go on for a while, and no longer. */
static void check_owner(struct model *m, const struct model_request *q,
                        const Searchfabric__V1__AllocatorReplaySuccessObject *object)
{
    const struct seen_state *seen = &m->states[q->collection_id - 1];
    int64_t planned_ms = object->created_at_unix_ms - SIM_EPOCH_UNIX_MS;

    m->leased++;
    for (uint64_t v = object->lease_epoch + 1; v <= seen->version; v++) {
        if (seen->writes[v].epoch == object->allocation_epoch)
            continue;
        if (planned_ms > seen->writes[v].seen_ms + m->proved_ms + CLOCK_SLACK_MS)
            sim_violation(m->sim, "%s was planned at %lld in a lease that ended at %lld", q->key,
                          (long long)planned_ms, (long long)seen->writes[v].seen_ms);
        return;
    }
}

/* A replay-success object that was not there before. */
static void take_object(struct model *m, struct sf_view key, struct outcome *o, unsigned index,
                        const Searchfabric__V1__AllocatorReplaySuccessObject *object)
{
    const struct model_request *q = &m->requests[index];

    o->stands = true;
    o->stood_at_ms = sim_now_ms(m->sim);
    sf_buf_append(&o->key, key.ptr, key.len);
    if (o->burned)
        sim_violation(m->sim, "%s was refused as burned and has a success", q->key);
    if (object->n_realized_doc_ids != q->count)
        sim_violation(m->sim, "%s realized %zu of %zu items", q->key, object->n_realized_doc_ids,
                      q->count);
    const struct seen_write *write = covering_write(m, q, object);
    wide_t next;
    wide_t high;
    bounds_of(m, q, object, write, &next, &high);
    if (object->lease_epoch != 0)
        check_owner(m, q, object);
    for (size_t i = 0; i < q->count; i++) {
        uint64_t id = object->realized_doc_ids[i]->doc_id->u64;
        uint64_t slot[2] = {q->collection_id, id};
        bool issue = q->items[i] == MODEL_ISSUE;
        /* other plans of the same write may have moved the watermark before the first item */
        if (id < next || (issue && i > 0 && id != next) || (!issue && q->items[i] != id) ||
            (!issue && i > 0 && id - next > MODEL_MAX_JUMP))
            sim_violation(m->sim, "%s realized %" PRIu64 " as item %zu", q->key, id, i);
        if (object->realized_doc_ids[i]->allocator_issued != issue)
            sim_violation(m->sim, "%s tells an issued id from a named one wrongly", q->key);
        next = (wide_t)id + 1;
        if (next > high)
            sim_violation(m->sim, "%s realized %" PRIu64 " above its own write", q->key, id);
        if (sf_map_put(m->ids, sf_view_bytes(slot, sizeof(slot)), o) != NULL)
            sim_violation(m->sim, "doc id %" PRIu64 " of collection %" PRIu64 " realized twice", id,
                          q->collection_id);
    }
}

static unsigned request_named(const struct model *m, const char *key)
{
    for (unsigned i = 0; i < MODEL_REQUESTS; i++)
        if (strcmp(m->requests[i].key, key) == 0)
            return i;
    sim_violation(m->sim, "an object for a key that nobody sent: %s", key);
}

static struct outcome *outcome_at(struct model *m, struct sf_view key)
{
    for (unsigned i = 0; i < MODEL_REQUESTS; i++)
        if (sf_view_equal(sf_buf_view(&m->outcomes[i].key), key))
            return &m->outcomes[i];
    return NULL;
}

static void check_objects(struct model *m, struct sf_arena *arena)
{
    struct sf_list_entry *entries = NULL;
    size_t count = 0;

    enum sf_err err =
        sf_store_list_wait(sim_backend(m->sim), NULL, sf_view_str("id-allocator/replay-success/"),
                           (struct sf_view){0}, 1000, arena, &entries, &count);
    SIM_CHECK(m->sim, err == SF_OK);
    for (size_t i = 0; i < count; i++) {
        struct sf_etag etag;
        struct sf_buf body = {0};
        struct outcome *known = outcome_at(m, entries[i].key);
        if (known != NULL) {
            err = sf_store_get_wait(sim_backend(m->sim), NULL, entries[i].key, &body, &etag);
            sf_buf_fini(&body);
            if (err != SF_OK || strcmp(etag.text, known->etag.text) != 0)
                sim_violation(m->sim, "a replay-success object changed");
            continue;
        }
        const Searchfabric__V1__AllocatorReplaySuccessObject *object = (const void *)read_object(
            m, entries[i].key, &searchfabric__v1__allocator_replay_success_object__descriptor,
            arena, &etag);
        unsigned index = request_named(m, object->idempotency_key);
        struct outcome *o = &m->outcomes[index];
        if (o->stands)
            sim_violation(m->sim, "two objects for %s", object->idempotency_key);
        take_object(m, entries[i].key, o, index, object);
        o->etag = etag;
    }
}

void model_check_step(struct model *m)
{
    uint64_t puts = sf_fault_store_counts(sim_network(m->sim)).puts_applied;

    if (puts == m->seen_puts)
        return;
    m->seen_puts = puts;
    struct sf_arena *arena = sf_arena_new(64u << 20);
    for (unsigned c = 0; c < MODEL_COLLECTIONS; c++)
        check_state(m, c, arena);
    check_objects(m, arena);
    sf_arena_destroy(arena);
}

void model_check_end(struct model *m)
{
    struct sf_arena *arena = sf_arena_new(64u << 20);

    m->seen_puts = UINT64_MAX;
    model_check_step(m);
    for (unsigned i = 0; i < MODEL_REQUESTS; i++) {
        struct outcome *o = &m->outcomes[i];
        struct sf_buf packed = {0};
        if (!o->answered)
            sim_violation(m->sim, "%s was never answered", m->requests[i].key);
        if (o->packed.len == 0)
            continue;
        const Searchfabric__V1__AllocatorReplaySuccessObject *object = (const void *)read_object(
            m, sf_buf_view(&o->key), &searchfabric__v1__allocator_replay_success_object__descriptor,
            arena, NULL);
        SIM_CHECK(m->sim, object != NULL);
        record_answer(object, &packed);
        if (!sf_view_equal(sf_buf_view(&packed), sf_buf_view(&o->packed)))
            sim_violation(m->sim, "%s: the answer is not what stands", m->requests[i].key);
        sf_buf_fini(&packed);
    }
    sf_arena_destroy(arena);
}
