/*
 * Quota leases under contending owners, kills, pauses and a lost projection. Three holders take
 * and return units of two budgets, ask again under the same request id, with the same request and
 * with another one, and name old epochs.
 *
 * Checked, from note section 5.10 and invariant 10:
 *   a request id is answered the same grant as long as its epoch lasts; another request under it
 *     never gets one
 *   epochs never go back; after a lost projection no grant is under an epoch that was granted
 * before units granted under one epoch never exceed what the durable state was debited in that
 * epoch over any span, units granted stay within burst and refill: a restart gives nothing twice
 *   once owners are stable every budget gives again
 */
#include "fault/catalog/ccs_world.h"

#include "contract/served.h"

#define STEPS        24
#define MAX_GRANTS   400
#define MAX_VERSIONS 600
#define BUDGETS      2
#define RATE         CCS_QUOTA_RATE
#define BURST        CCS_QUOTA_BURST
#define CLOCKS_MS    400 /* by which clocks of owners and of the check differ at most */
#define ACQUIRE      PRIVATE "AcquireQuotaLease"
#define RETURN       PRIVATE "ReturnQuotaLease"

static const SF_PB(ApiPlane) planes[BUDGETS] = {SF_PBE(API_PLANE, WRITE), SF_PBE(API_PLANE, QUERY)};
static const char *const dimensions[BUDGETS] = {"ingest_entries", "query_qps"};

/* A grant as it was first answered, and the request under its id. */
struct grant {
    unsigned holder;
    unsigned number; /* of the request id */
    unsigned budget;
    uint64_t requested;
    uint64_t observed; /* epoch that the request names */
    uint64_t units;    /* 0 = not answered yet */
    uint64_t epoch;
    int64_t expires_ms;
    int64_t answered_ms;
    uint64_t returned; /* units that a return may have given back */
};

/* One version of a budget in the durable state. */
struct version {
    unsigned budget;
    uint64_t epoch;
    uint64_t units;     /* level ... */
    int64_t at_ms;      /* ... at this time, which may lie ahead */
    int64_t swapped_ms; /* when it was written */
};

/* A run. */
struct quota {
    struct world *w;
    uint64_t ns_id;
    int64_t born_ms;
    struct grant grants[MAX_GRANTS];
    size_t grant_count;
    struct version versions[MAX_VERSIONS];
    size_t version_count;
    struct sf_buf object; /* as read last */
    char key[160];        /* of the object */
    uint64_t epoch_seen;  /* highest of any grant */
    uint64_t epoch_floor; /* grants asked for from now on lie above */
    unsigned next_number;
};

/* A holder. */
struct holder {
    struct quota *q;
    struct client client;
};

/* ---- the durable state -------------------------------------------------------------------- */

static void note_version(struct quota *q, const SF_PB(NamespaceQuotaStateObject) * state)
{
    for (size_t i = 0; i < state->n_dimensions; i++) {
        const SF_PB(QuotaDimensionState) *dimension = state->dimensions[i];
        for (unsigned budget = 0; budget < BUDGETS; budget++) {
            if (strcmp(dimension->throttled_dimension, dimensions[budget]) != 0)
                continue;
            SF_ASSERT(q->version_count < MAX_VERSIONS);
            sim_trace(q->w->sim, "quota: %s epoch %" PRIu64 ": %" PRIu64 " at %" PRId64,
                      dimensions[budget], state->quota_epoch, dimension->leaseable_units,
                      dimension->refilled_at_unix_ms - SIM_EPOCH_UNIX_MS);
            q->versions[q->version_count++] =
                (struct version){.budget = budget,
                                 .epoch = state->quota_epoch,
                                 .units = dimension->leaseable_units,
                                 .at_ms = dimension->refilled_at_unix_ms,
                                 .swapped_ms = state->updated_at_unix_ms};
        }
    }
}

/* After every step: keeps each version of the object. */
static void watch_object(struct sim *sim, void *ctx)
{
    struct quota *q = ctx;
    struct sf_buf body = {0};
    struct sf_diag diag;
    ProtobufCMessage *message = NULL;
    if (q->ns_id == 0)
        return;
    struct sf_buf key = {0};
    sf_buf_append_str(&key, q->key);
    elders_look(q->w, &key, &searchfabric__v1__namespace_quota_state_object__descriptor);
    sf_buf_fini(&key);
    enum sf_err err = sf_store_get_wait(sim_backend(sim), NULL, sf_view_str(q->key), &body, NULL);
    if (err == SF_OK && !sf_view_equal(sf_buf_view(&body), sf_buf_view(&q->object))) {
        sf_buf_clear(&q->object);
        sf_buf_append(&q->object, body.data, body.len);
        struct sf_arena *arena = sf_arena_new((size_t)1 << 20);
        err = sf_durable_read_wait(sim_backend(sim), NULL, sf_view_str(q->key),
                                   &searchfabric__v1__namespace_quota_state_object__descriptor,
                                   arena, &diag, &message, NULL);
        SF_ASSERT(err == SF_OK);
        note_version(q, (const void *)message);
        sf_arena_destroy(arena);
    }
    sf_buf_fini(&body);
}

/* Refill within a span, rounded up. */
static uint64_t refill(int64_t from_ms, int64_t to_ms)
{
    return to_ms <= from_ms ? 0 : ((uint64_t)(to_ms - from_ms) * RATE + 999) / 1000;
}

/* Units that the swaps into and within an epoch took from a budget: the level before a swap, with
 * what refills until the time that the level after it is of. */
static uint64_t debited(const struct quota *q, unsigned budget, uint64_t epoch)
{
    struct version last = {.units = BURST};
    uint64_t total = 0;
    for (size_t i = 0; i < q->version_count; i++) {
        const struct version *v = &q->versions[i];
        if (v->budget != budget)
            continue;
        uint64_t level = last.units + (last.at_ms == 0 ? 0 : refill(last.at_ms, v->swapped_ms));
        if (level > BURST)
            level = BURST;
        int64_t from_ms = last.at_ms > v->swapped_ms ? last.at_ms : v->swapped_ms;
        level += refill(from_ms, v->at_ms);
        if (v->epoch == epoch && level > v->units)
            total += level - v->units;
        last = *v;
    }
    return total;
}

/* ---- answers ------------------------------------------------------------------------------ */

static void check_epoch_sums(struct quota *q)
{
    for (size_t i = 0; i < q->grant_count; i++) {
        const struct grant *g = &q->grants[i];
        uint64_t sum = 0, returned = 0;
        for (size_t k = 0; k < q->grant_count; k++) {
            const struct grant *other = &q->grants[k];
            if (other->epoch == g->epoch && other->budget == g->budget && other->units != 0) {
                sum += other->units;
                returned += other->returned;
            }
        }
        if (g->units != 0 && sum > debited(q, g->budget, g->epoch) + returned)
            sim_violation(q->w->sim,
                          "%s: %" PRIu64 " units granted under epoch %" PRIu64 ", %" PRIu64
                          " debited, %" PRIu64 " returned",
                          dimensions[g->budget], sum, g->epoch, debited(q, g->budget, g->epoch),
                          returned);
    }
}

static void check_span(struct quota *q, unsigned budget)
{
    uint64_t sum = 0, returned = 0;
    int64_t span_ms = sim_now_ms(q->w->sim) - q->born_ms + CLOCKS_MS;
    for (size_t i = 0; i < q->grant_count; i++) {
        if (q->grants[i].budget == budget) {
            sum += q->grants[i].units;
            returned += q->grants[i].returned;
        }
    }
    if (sum > BURST + RATE * (uint64_t)span_ms / 1000 + returned)
        sim_violation(q->w->sim, "%s: %" PRIu64 " units granted within %" PRId64 " ms",
                      dimensions[budget], sum, span_ms);
}

static void judge_grant(struct quota *q, struct grant *g, uint64_t requested, uint64_t seen_before,
                        uint64_t floor, const SF_PB(AcquireQuotaLeaseResponse) * response)
{
    if (response->granted_units == 0 || response->granted_units > requested)
        sim_violation(q->w->sim, "%" PRIu64 " units granted of %" PRIu64, response->granted_units,
                      requested);
    if (response->lease_epoch < seen_before || response->lease_epoch <= floor)
        sim_violation(q->w->sim,
                      "a grant is under epoch %" PRIu64 " after %" PRIu64
                      ", which ended at %" PRIu64,
                      response->lease_epoch, seen_before, floor);
    if (g->units != 0 && g->epoch == response->lease_epoch) {
        if (g->requested != requested || g->units != response->granted_units ||
            g->expires_ms != response->expires_at_unix_ms)
            sim_violation(q->w->sim,
                          "request %u was answered %" PRIu64 " units to %" PRId64 ", now %" PRIu64
                          " to %" PRId64,
                          g->number, g->units, g->expires_ms, response->granted_units,
                          response->expires_at_unix_ms);
        return;
    }
    if (g->units != 0) { /* the id is free again under a new epoch: another grant */
        SF_ASSERT(q->grant_count < MAX_GRANTS);
        q->grants[q->grant_count] = *g;
        g->number = ++q->next_number + 100000;
        g = &q->grants[q->grant_count++];
        g->returned = 0;
    }
    g->requested = requested;
    g->units = response->granted_units;
    g->epoch = response->lease_epoch;
    g->expires_ms = response->expires_at_unix_ms;
    g->answered_ms = sim_now_ms(q->w->sim);
    sim_trace(q->w->sim, "client: request %u is granted %" PRIu64 " of %s under epoch %" PRIu64,
              g->number, g->units, dimensions[g->budget], g->epoch);
    if (g->epoch > q->epoch_seen)
        q->epoch_seen = g->epoch;
    check_span(q, g->budget);
    check_epoch_sums(q);
}

/* ---- requests ----------------------------------------------------------------------------- */

static void fill_key(struct quota *q, const struct grant *g, char text[2][24],
                     SF_PB(QuotaLeaseKey) * key)
{
    searchfabric__v1__quota_lease_key__init(key);
    snprintf(text[0], sizeof(text[0]), "holder-%u", g->holder);
    snprintf(text[1], sizeof(text[1]), "request-%u", g->number);
    key->namespace_id = q->ns_id;
    key->api_plane = planes[g->budget];
    key->throttled_dimension = (char *)(uintptr_t)dimensions[g->budget];
    key->lease_holder_id = text[0];
    key->lease_request_id = text[1];
}

/* Until somebody says something; SF_RATE_LIMITED does. */
static enum sf_err call(struct client *c, const char *method, const ProtobufCMessage *request,
                        const ProtobufCMessage **out_response)
{
    struct world *w = c->w;
    for (;;) {
        struct sf_diag diag;
        sf_diag_init(&diag);
        struct sim_node *node = w->nodes[sf_rng_below(sim_rng(w->sim), 2)];
        if (w->rebuilder != NULL)
            node = w->rebuilder;
        enum sf_err err =
            call_node(w, c->process, node, method, request, c->arena, &diag, out_response);
        if (err != SF_ERR_STOPPED && err != SF_BACKEND_UNAVAILABLE &&
            err != SF_CATALOG_UNAVAILABLE) {
            sim_trace(w->sim, "client: %s -> %s %s", strrchr(method, '/') + 1,
                      sf_err_info(err)->name, err == SF_OK ? "" : diag.message);
            return err;
        }
        sim_sleep(c->process, 1 + (int64_t)sf_rng_below(sim_rng(w->sim), 200));
    }
}

/* Asks under a grant's id; the last try counts for what was known before it. */
static enum sf_err acquire(struct holder *h, struct grant *g, uint64_t requested)
{
    struct quota *q = h->q;
    char text[2][24];
    SF_PB(AcquireQuotaLeaseRequest) request;
    SF_PB(QuotaLeaseKey) key;
    const ProtobufCMessage *response = NULL;
    uint64_t seen = q->epoch_seen;
    uint64_t floor = q->epoch_floor;
    fill_key(q, g, text, &key);
    searchfabric__v1__acquire_quota_lease_request__init(&request);
    request.lease = &key;
    request.requested_units = requested;
    request.observed_quota_epoch = g->observed;
    enum sf_err err = call(&h->client, ACQUIRE, &request.base, &response);
    bool refusal = err == SF_RATE_LIMITED || (err == SF_VERSION_CONFLICT && g->observed != 0) ||
                   (err == SF_IDEMPOTENCY_CONFLICT && requested != g->requested);
    if (err == SF_OK)
        judge_grant(q, g, requested, seen, floor, (const void *)response);
    else if (!refusal)
        sim_violation(q->w->sim, "a lease was refused: %s", sf_err_info(err)->name);
    return err;
}

static void give_back(struct holder *h, struct grant *g)
{
    struct quota *q = h->q;
    char text[2][24];
    SF_PB(ReturnQuotaLeaseRequest) request;
    SF_PB(QuotaLeaseKey) key;
    const ProtobufCMessage *response = NULL;
    if (g->returned != 0)
        return;
    fill_key(q, g, text, &key);
    searchfabric__v1__return_quota_lease_request__init(&request);
    request.lease = &key;
    request.unspent_units = sf_rng_below(sim_rng(q->w->sim), g->units + 1);
    g->returned = request.unspent_units; /* it may land even if nobody says so */
    enum sf_err err = call(&h->client, RETURN, &request.base, &response);
    if (err != SF_OK && err != SF_RESOURCE_NOT_FOUND && err != SF_VERSION_CONFLICT)
        sim_violation(q->w->sim, "a return was refused: %s", sf_err_info(err)->name);
}

static struct grant *new_grant(struct holder *h, unsigned budget, uint64_t requested)
{
    struct quota *q = h->q;
    SF_ASSERT(q->grant_count < MAX_GRANTS);
    struct grant *g = &q->grants[q->grant_count++];
    *g = (struct grant){.holder = h->client.id,
                        .number = ++q->next_number,
                        .budget = budget,
                        .requested = requested};
    return g;
}

static struct grant *own_grant(struct holder *h)
{
    struct quota *q = h->q;
    for (int i = 0; i < 6 && q->grant_count > 0; i++) {
        struct grant *g = &q->grants[sf_rng_below(sim_rng(q->w->sim), q->grant_count)];
        if (g->holder == h->client.id && g->number < 100000)
            return g;
    }
    return NULL;
}

static void step(struct holder *h)
{
    struct quota *q = h->q;
    struct sf_rng *rng = sim_rng(q->w->sim);
    uint64_t lot = sf_rng_below(rng, 100);
    struct grant *g = lot < 45 ? own_grant(h) : NULL;
    if (g == NULL) {
        g = new_grant(h, (unsigned)sf_rng_below(rng, BUDGETS), 1 + sf_rng_below(rng, BURST / 2));
        g->observed = sf_rng_below(rng, 3) == 0 ? q->epoch_seen : 0;
        (void)acquire(h, g, g->requested);
    } else if (lot < 10 && g->units != 0) {
        give_back(h, g);
    } else {
        (void)acquire(h, g, g->requested + (lot < 16 ? 1 : 0));
    }
}

static void run_holder(struct sim_process *process, void *arg)
{
    struct holder *h = arg;
    h->client.process = process;
    h->client.arena = sf_arena_new((size_t)64 << 20);
    for (int i = 0; i < STEPS; i++) {
        step(h);
        sf_arena_reset(h->client.arena);
        sim_sleep(process, (int64_t)sf_rng_below(sim_rng(h->q->w->sim), 300));
    }
    sf_arena_destroy(h->client.arena);
    h->q->w->clients_done++;
}

/* ---- the run ------------------------------------------------------------------------------ */

static void create_namespace(struct sim_process *process, void *arg)
{
    struct quota *q = arg;
    struct client c = {.w = q->w, .process = process, .arena = sf_arena_new((size_t)1 << 20)};
    struct sf_buf key = {0};
    put_shared_namespace(&c);
    sf_catalog_key_namespace(&key, q->w->shared_namespace, 1);
    while (key.len > 0 && key.data[key.len - 1] != '/')
        key.len--;
    snprintf(q->key, sizeof(q->key), "%.*snamespace_quota_state.json", (int)key.len,
             (const char *)key.data);
    sf_buf_fini(&key);
    q->ns_id = q->w->shared_namespace;
    q->born_ms = sim_now_ms(q->w->sim);
    sf_arena_destroy(c.arena);
    q->w->clients_done++;
}

/* Every budget gives again, at whoever serves. */
static void run_last(struct sim_process *process, void *arg)
{
    struct holder *h = arg;
    h->client.process = process;
    h->client.arena = sf_arena_new((size_t)64 << 20);
    for (unsigned budget = 0; budget < BUDGETS; budget++) {
        struct grant *g = new_grant(h, budget, 1);
        int tries = 0;
        while (acquire(h, g, 1) != SF_OK) {
            if (++tries > 50)
                sim_violation(h->q->w->sim, "%s gives nothing any more", dimensions[budget]);
            sim_sleep(process, 500);
        }
    }
    sf_arena_destroy(h->client.arena);
    h->q->w->clients_done++;
}

struct done_wait {
    struct world *w;
    unsigned count;
};

static bool is_done(struct sim *sim, void *ctx)
{
    const struct done_wait *wait = ctx;
    (void)sim;
    return wait->w->clients_done >= wait->count;
}

static void until(struct quota *q, unsigned count, const char *what)
{
    struct done_wait wait = {q->w, count};
    sim_run_until(q->w->sim, is_done, &wait, 300000, what);
}

static void run_quota(struct sim *sim, bool lose)
{
    struct sim_options options = sim_default_options();
    struct quota *q = sf_calloc(1, sizeof(*q));
    struct holder holders[CLIENTS + 1];
    q->w = world_new(sim, &options);
    q->w->nodes[0] = sim_node_new(sim, "a", &q->w->service);
    q->w->nodes[1] = sim_node_new(sim, "b", &q->w->service);
    sim_set_invariant(sim, watch_object, q);
    struct sim_process *process = sim_process_new(sim, "clients");
    sim_spawn(process, create_namespace, q);
    until(q, 1, "the namespace is created");
    for (unsigned i = 0; i <= CLIENTS; i++)
        holders[i] = (struct holder){.q = q, .client = {.w = q->w, .id = i}};
    for (unsigned i = 0; i < CLIENTS; i++)
        sim_spawn(process, run_holder, &holders[i]);
    sim_run_for(sim, 3000);
    if (lose) {
        lose_projection(q->w, "DELETE FROM catalog_lane_shards;");
        q->epoch_floor = q->epoch_seen;
    }
    sim_run_for(sim, 5000);
    sim_settle(sim);
    sim_node_kill(q->w->nodes[0]);
    until(q, 1 + CLIENTS, "every lease is answered");
    sim_spawn(process, run_last, &holders[CLIENTS]);
    until(q, 2 + CLIENTS, "every budget gives again");
    const struct sim_service rebuild = {
        .start = ccs_start_rebuilding, .stop = ccs_stop, .ctx = q->w};
    q->w->rebuilder = sim_node_new(sim, "rebuild", &rebuild);
    q->epoch_floor = q->epoch_seen;
    sim_spawn(process, run_last, &holders[CLIENTS]);
    until(q, 3 + CLIENTS, "every budget gives again after a rebuild");
    sim_set_invariant(sim, NULL, NULL);
    sf_buf_fini(&q->object);
    world_destroy(q->w);
    free(q);
}

static bool is_served(void)
{
    return sf_contract_method_find(sf_view_str(ACQUIRE))->served;
}

void ccs_quota_run(struct sim *sim)
{
    if (is_served())
        run_quota(sim, false);
}

void ccs_quota_run_lost(struct sim *sim)
{
    if (is_served())
        run_quota(sim, true);
}
