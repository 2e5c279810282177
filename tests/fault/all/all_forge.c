/*
 * Batches that the ingest gateway must refuse, whatever goes wrong around it. Each is made of what
 * an honest batch would say, with one thing changed, and has a key of its own: that one of its rows
 * becomes visible is found by the checks of the durable objects ("a batch that nobody sent").
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "fault/all/all_model_priv.h"

#define PB(name) Searchfabric__V1__##name

enum forgery {
    FORGED_GENERATION, /* replaced, or never heard of */
    FORGED_PLAN,       /* the receipt of another plan */
    FORGED_IDS,        /* ids that the receipt does not name */
    FORGED_SEAL,       /* one byte of the receipt is another one */
    FORGERIES
};

/* The collection's generation may be another one at the answer: that alone refuses a batch. */
static bool is_right(const struct all_model *m, const struct all_call *call)
{
    unsigned collection = (unsigned)call->floor[0];
    const char *reason = sf_diag_get(&call->diag, "ingest_rejection_reason");
    bool generation = call->err == SF_VERSION_CONFLICT && reason != NULL &&
                      strcmp(reason, "schema_generation_mismatch") == 0;
    bool receipt =
        call->err == SF_BAD_REQUEST && reason != NULL && strcmp(reason, "receipt_invalid") == 0;

    if (call->index == FORGED_GENERATION)
        return generation;
    return receipt || (generation && m->next_sent[collection]);
}

static void on_forgery(struct all_call *call)
{
    static const char *const names[FORGERIES] = {"of another generation", "with another's receipt",
                                                 "with ids of its own", "with a broken receipt"};
    struct all_model *m = call->ctx;

    sim_trace(m->sim, "client: a batch %s -> %s %s", names[call->index],
              sf_err_info(call->err)->name, call->err == SF_OK ? "" : call->diag.message);
    if (call->err == SF_OK)
        sim_violation(m->sim, "a batch %s was admitted", names[call->index]);
    if (!all_is_passing(call->err) && !is_right(m, call))
        sim_violation(m->sim, "a batch %s was answered %s: %s", names[call->index],
                      sf_err_info(call->err)->name, call->diag.message);
}

/* An answered allocation of the collection, other than `but`; -1 = there is none. */
static int answered_alloc(const struct all_model *m, unsigned collection, int but,
                          struct sf_rng *rng)
{
    unsigned first = (unsigned)sf_rng_below(rng, ALL_ALLOCS);

    for (unsigned i = 0; i < ALL_ALLOCS; i++) {
        unsigned index = ALL_FIRST_ALLOC + (first + i) % ALL_ALLOCS;
        if ((int)index != but && m->ops[index].collection == collection &&
            m->answers[index].succeeded)
            return (int)index;
    }
    return -1;
}

static struct sf_view answer_of(const struct all_model *m, int alloc)
{
    return alloc < 0 ? (struct sf_view){0} : sf_buf_view(&m->answers[alloc].first);
}

/* Rows keep the ids of their own plan, the receipt is `other`'s. */
static void swap_receipt(PB(MutationBatch) * batch, struct sf_arena *arena, struct sf_view other)
{
    PB(AllocateIdsSuccessResponse) *r =
        searchfabric__v1__allocate_ids_success_response__unpack(NULL, other.len, other.ptr);

    SF_ASSERT(r != NULL);
    batch->allocator_receipt.len = r->allocator_receipt.len;
    batch->allocator_receipt.data =
        sf_arena_dup(arena, r->allocator_receipt.data, r->allocator_receipt.len);
    searchfabric__v1__allocate_ids_success_response__free_unpacked(r, NULL);
}

static void forge(PB(MutationBatch) * batch, enum forgery kind, struct sf_arena *arena,
                  struct sf_view other, struct sf_rng *rng)
{
    if (kind == FORGED_PLAN)
        swap_receipt(batch, arena, other);
    else if (kind == FORGED_IDS)
        batch->entries[batch->n_entries - 1]->row->doc_id->u64 += 1 + sf_rng_below(rng, 1000);
    else if (kind == FORGED_SEAL)
        batch->allocator_receipt.data[sf_rng_below(rng, batch->allocator_receipt.len)] ^= 1;
}

struct all_call *all_model_forgery(struct all_model *m, struct sf_rng *rng)
{
    enum forgery kind = (enum forgery)sf_rng_below(rng, FORGERIES);
    unsigned collection = (unsigned)sf_rng_below(rng, ALL_COLLECTIONS);
    bool with_receipt = kind != FORGED_GENERATION;
    int alloc = with_receipt ? answered_alloc(m, collection, -1, rng) : -1;
    int other = kind == FORGED_PLAN ? answered_alloc(m, collection, alloc, rng) : alloc;
    struct all_op op = {.kind = ALL_BATCH,
                        .collection = collection,
                        .variant = ALL_INDEXES, /* rows that no honest batch writes */
                        .count = alloc < 0 ? ALL_ITEMS : m->ops[alloc].count,
                        .alloc = alloc,
                        .policy = (enum all_policy)sf_rng_below(rng, 3)};

    if (!all_is_ready(m, collection) || (with_receipt && other < 0))
        return NULL;
    (void)snprintf(op.key, sizeof(op.key), "forged-%u", m->forgeries++);
    struct sf_view answer = answer_of(m, alloc);
    const char *token = with_receipt               ? all_token_of(answer)
                        : m->next_told[collection] ? all_token(1)
                                                   : "gen-0";
    struct all_call *call = all_op_call(m->cluster, &op, &m->facts, token, answer);
    forge((PB(MutationBatch) *)(uintptr_t)call->request, kind, call->arena, answer_of(m, other),
          rng);
    call->answered = on_forgery;
    call->ctx = m;
    call->index = (unsigned)kind;
    call->floor[0] = collection;
    return call;
}
