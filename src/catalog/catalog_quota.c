/*
 * Model: all requests about one namespace's budgets run on its namespace-id lane, up to
 * SF_QUOTA_BATCH of them in one projection transaction: each first looks for its own repeat, then
 * takes what is there. A grant is answered when its row stands, so a repeat finds it, in this
 * process or the next. Credit that is missing is debited durably first; then the batch begins anew.
 * In the steady state a lease costs no put.
 *
 *   begin -> look at owner epoch -> decide each -> commit -> answer
 *              | credit missing, or not this owner's yet
 *              v
 *            swap the object, begin anew
 *
 * A refusal of a batch (store or projection gone) leaves units debited, never granted twice: what a
 * commit in doubt may have granted stays taken, and the repeat finds its row or takes afresh.
 */
#include "catalog/catalog_quota.h"

#include <stdlib.h>

#include "catalog/catalog_rules.h"

#define IDLE_MS 60000 /* a namespace that nobody asks for is forgotten after this */

/* What a request came to, before the commit. */
enum decision {
    DECIDED_REFUSE,  /* the call's diag says why */
    DECIDED_GRANT,   /* row inserted */
    DECIDED_REPLAY,  /* row was there */
    DECIDED_END,     /* a return; `lease.state` is the answer */
    DECIDED_PRESSURE /* nothing to write */
};

struct sf_quota_request {
    enum sf_quota_kind kind;         /* immutable */
    struct sf_call *call;            /* answered once */
    const ProtobufCMessage *request; /* valid as long as the call */
    struct sf_quota_request *next;   /* queue, then batch */
    enum decision decision;          /* lane */
    struct sf_quota_lease lease;     /* lane: what is answered */
};

/* One batch on the lane. */
struct batch {
    struct sf_quota_namespace *ns;
    struct sf_quota_request *list;         /* in order of arrival */
    int64_t now_ms;                        /* one time for all of it */
    uint64_t want[SF_CATALOG_DIMENSIONS];  /* units asked for */
    uint64_t taken[SF_CATALOG_DIMENSIONS]; /* units given back by returns, to be credited */
    bool leases;                           /* something other than pressure is in it */
    bool swapped;                          /* credit was debited for it: no second time */
};

/* How one try went. */
enum step { STEP_DONE, STEP_SWAP, STEP_AGAIN, STEP_REFUSED };

static const SF_PB(QuotaLeaseKey) * key_of(const struct sf_quota_request *item)
{
    return item->kind == SF_QUOTA_ACQUIRE
               ? ((const SF_PB(AcquireQuotaLeaseRequest) *)item->request)->lease
               : ((const SF_PB(ReturnQuotaLeaseRequest) *)item->request)->lease;
}

/* A number that is the same for every try of the same request. */
static uint64_t spread_of(const SF_PB(QuotaLeaseKey) * key)
{
    uint64_t seed = sf_xxh64(key->lease_holder_id, strlen(key->lease_holder_id), key->namespace_id);
    return sf_xxh64(key->lease_request_id, strlen(key->lease_request_id), seed);
}

/* ---- decisions ---------------------------------------------------------------------------- */

static enum sf_err refuse_limited(struct batch *batch, struct sf_quota_request *item,
                                  enum sf_catalog_dimension dimension, uint64_t units)
{
    const struct sf_quota_bucket *bucket = &batch->ns->buckets[dimension];
    struct sf_diag *diag = sf_call_diag(item->call);
    unsigned percent = sf_quota_percent(batch->ns, dimension, batch->now_ms);
    uint64_t chunk = sf_quota_bucket_chunk(bucket);
    int64_t wait_ms =
        sf_quota_bucket_wait_ms(bucket, units < chunk ? units : chunk, batch->now_ms, percent);
    /* up to half as long again, so that those who were refused together do not return together */
    wait_ms += (int64_t)(spread_of(key_of(item)) % (uint64_t)(wait_ms / 2 + 1));
    sf_diag_set(diag, SF_RATE_LIMITED, "the namespace's budget of %s is used up",
                sf_catalog_dimension_name(dimension));
    sf_diag_detail(diag, "retry_after_ms", "%lld", (long long)wait_ms);
    sf_diag_detail(diag, "throttled_dimension", "%s", sf_catalog_dimension_name(dimension));
    sf_diag_detail(diag, "server_limit", "%llu", (unsigned long long)bucket->rate);
    item->decision = DECIDED_REFUSE;
    return SF_OK;
}

static enum sf_err refuse(struct sf_quota_request *item)
{
    item->decision = DECIDED_REFUSE;
    return SF_OK;
}

/* Takes units and inserts the row. */
static enum sf_err grant(struct batch *batch, struct sf_quota_request *item,
                         enum sf_catalog_dimension dimension, struct sf_sql_conn *conn,
                         struct sf_diag *diag)
{
    const struct sf_catalog_policy *policy = batch->ns->catalog->deps.policy;
    const SF_PB(AcquireQuotaLeaseRequest) *request =
        (const SF_PB(AcquireQuotaLeaseRequest) *)item->request;
    struct sf_quota_bucket *bucket = &batch->ns->buckets[dimension];
    uint64_t units = request->requested_units;
    units = units < bucket->now.units ? units : bucket->now.units;
    if (!SF_MUTANT(ccs_quota_no_debit))
        units = units < bucket->credit ? units : bucket->credit;
    if (units == 0)
        return refuse_limited(batch, item, dimension, request->requested_units);
    int64_t ttl_ms =
        policy == NULL || policy->lease_ttl_ms == 0 ? SF_QUOTA_TTL_MS : policy->lease_ttl_ms;
    int64_t spread_ms = (int64_t)(spread_of(request->lease) % (uint64_t)(ttl_ms * 2 / 5 + 1));
    item->lease.granted_units = units;
    item->lease.lease_epoch = batch->ns->quota_epoch;
    item->lease.expires_at_unix_ms = batch->now_ms + ttl_ms * 4 / 5 + spread_ms;
    item->lease.state = SF_PBE(QUOTA_LEASE_STATE, ACTIVE);
    item->decision = DECIDED_GRANT;
    sf_quota_bucket_grant(bucket, units);
    return sf_quota_sql_lease_put(conn, request->lease, &item->lease, batch->now_ms, diag);
}

/* What a repeat must have in common with the first request. The observed epoch is a precondition,
 * not payload: a gateway may have learned it in between. */
static void payload_of(const SF_PB(AcquireQuotaLeaseRequest) * request,
                       char out_hex[SF_SHA256_HEX_BYTES])
{
    struct sf_keyhash kh;
    sf_keyhash_init(&kh, "sf/ccs/quota-lease/1");
    sf_keyhash_u64(&kh, request->requested_units);
    sf_keyhash_finish_hex(&kh, out_hex);
}

static enum sf_err decide_acquire(struct batch *batch, struct sf_quota_request *item,
                                  struct sf_sql_conn *conn, struct sf_diag *diag)
{
    const SF_PB(AcquireQuotaLeaseRequest) *request =
        (const SF_PB(AcquireQuotaLeaseRequest) *)item->request;
    char fingerprint[SF_SHA256_HEX_BYTES];
    bool found = false;
    payload_of(request, fingerprint);
    enum sf_err err = sf_quota_sql_lease(conn, request->lease, diag, &item->lease, &found);
    if (err != SF_OK)
        return err;
    if (found && strcmp(item->lease.fingerprint, fingerprint) != 0) {
        sf_diag_set(sf_call_diag(item->call), SF_IDEMPOTENCY_CONFLICT,
                    "the lease_request_id was used with another payload");
        return refuse(item);
    }
    if (found) {
        item->decision = DECIDED_REPLAY;
        return SF_OK;
    }
    item->lease = (struct sf_quota_lease){0};
    memcpy(item->lease.fingerprint, fingerprint, sizeof(fingerprint));
    if (request->observed_quota_epoch != 0 &&
        request->observed_quota_epoch != batch->ns->quota_epoch) {
        sf_diag_set(sf_call_diag(item->call), SF_VERSION_CONFLICT,
                    "the observed quota epoch is not the current one");
        sf_diag_detail(sf_call_diag(item->call), "quota_epoch", "%llu",
                       (unsigned long long)batch->ns->quota_epoch);
        return refuse(item);
    }
    return grant(batch, item, sf_quota_dimension(request->lease->throttled_dimension), conn, diag);
}

static enum sf_err decide_return(struct batch *batch, struct sf_quota_request *item,
                                 struct sf_sql_conn *conn, struct sf_diag *diag)
{
    const SF_PB(ReturnQuotaLeaseRequest) *request =
        (const SF_PB(ReturnQuotaLeaseRequest) *)item->request;
    bool found = false;
    enum sf_err err = sf_quota_sql_lease(conn, request->lease, diag, &item->lease, &found);
    if (err != SF_OK)
        return err;
    if (!found) {
        sf_diag_set(sf_call_diag(item->call), SF_RESOURCE_NOT_FOUND, "no such lease");
        return refuse(item);
    }
    if (request->unspent_units > item->lease.granted_units) {
        sf_diag_bad_field(sf_call_diag(item->call), "unspent_units", "out_of_range",
                          "more than the lease granted");
        return refuse(item);
    }
    item->decision = DECIDED_END;
    if (item->lease.state != SF_PBE(QUOTA_LEASE_STATE, ACTIVE))
        return SF_OK; /* a repeat, or too late: nothing is credited */
    bool late = item->lease.expires_at_unix_ms <= batch->now_ms;
    item->lease.state =
        late ? SF_PBE(QUOTA_LEASE_STATE, EXPIRED) : SF_PBE(QUOTA_LEASE_STATE, RETURNED);
    if (!late)
        batch->taken[sf_quota_dimension(request->lease->throttled_dimension)] +=
            request->unspent_units;
    return sf_quota_sql_lease_end(conn, request->lease, item->lease.state, batch->now_ms, diag);
}

static enum sf_err decide_pressure(struct sf_quota_request *item, struct sf_sql_conn *conn,
                                   struct sf_diag *diag)
{
    const SF_PB(ReportIngestPressureRequest) *report =
        (const SF_PB(ReportIngestPressureRequest) *)item->request;
    SF_PB(CollectionRow) *row = NULL;
    enum sf_err err = sf_catalog_sql_collection(conn, report->collection->namespace_id,
                                                report->collection->collection_id,
                                                sf_call_arena(item->call), diag, &row);
    item->decision = DECIDED_PRESSURE;
    if (err != SF_OK)
        return err;
    if (row == NULL || row->lifecycle_state != SF_PBE(COLLECTION_ADMISSION_LIFECYCLE, ACTIVE)) {
        sf_diag_set(sf_call_diag(item->call), SF_RESOURCE_NOT_FOUND, "no such active collection");
        return refuse(item);
    }
    return SF_OK;
}

static enum sf_err decide(struct batch *batch, struct sf_quota_request *item,
                          struct sf_sql_conn *conn, struct sf_diag *diag)
{
    sf_diag_init(sf_call_diag(item->call));
    switch (item->kind) {
    case SF_QUOTA_ACQUIRE:
        return decide_acquire(batch, item, conn, diag);
    case SF_QUOTA_RETURN:
        return decide_return(batch, item, conn, diag);
    default:
        return decide_pressure(item, conn, diag);
    }
}

/* ---- one try ------------------------------------------------------------------------------ */

/* Must the object be swapped before the batch can be decided? */
static bool swap_needed(const struct batch *batch)
{
    const struct sf_quota_namespace *ns = batch->ns;
    if (batch->leases && !ns->adopted)
        return true;
    if (SF_MUTANT(ccs_quota_no_debit))
        return false;
    for (int i = 0; i < SF_CATALOG_DIMENSIONS && !batch->swapped; i++) {
        const struct sf_quota_bucket *bucket = &ns->buckets[i];
        uint64_t wanted = batch->want[i] < bucket->now.units ? batch->want[i] : bucket->now.units;
        if (wanted > bucket->credit)
            return true;
    }
    return false;
}

/* Everything between begin and commit. */
static enum sf_err in_transaction(struct batch *batch, struct sf_sql_conn *conn,
                                  struct sf_diag *diag, bool *out_stale)
{
    struct sf_quota_namespace *ns = batch->ns;
    uint64_t revision = 0;
    enum sf_err err =
        SF_MUTANT(ccs_no_quota_fence) ? SF_OK : sf_catalog_sql_look(ns->catalog, conn, diag);
    if (err == SF_OK)
        err = sf_quota_sql_namespace(conn, ns->namespace_id, diag, &revision);
    if (err == SF_OK && revision == 0)
        return sf_diag_set(diag, SF_RESOURCE_NOT_FOUND, "no such namespace");
    *out_stale = err == SF_OK && ns->adopted && revision != ns->namespace_revision;
    if (*out_stale)
        return SF_OK;
    if (err == SF_OK && ns->dirty && ns->adopted)
        err = sf_quota_show(ns, conn, diag);
    for (struct sf_quota_request *item = batch->list; item != NULL && err == SF_OK;
         item = item->next)
        err = decide(batch, item, conn, diag);
    return err;
}

static enum step try_once(struct batch *batch, struct sf_diag *diag)
{
    struct sf_quota_namespace *ns = batch->ns;
    struct sf_catalog *catalog = ns->catalog;
    struct sf_quota_bucket before[SF_CATALOG_DIMENSIONS];
    bool stale = false;
    sf_quota_refill(ns, batch->now_ms);
    if (swap_needed(batch))
        return STEP_SWAP;
    memcpy(before, ns->buckets, sizeof(before));
    memset(batch->taken, 0, sizeof(batch->taken));
    struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, catalog->deps.sched, SF_SQL_WRITE);
    enum sf_err err = sf_sql_begin(conn, diag);
    if (err == SF_OK)
        err = in_transaction(batch, conn, diag, &stale);
    if (err == SF_OK && !stale)
        err = sf_sql_commit(conn, diag);
    else
        sf_sql_rollback(conn);
    sf_sql_release(conn);
    if (stale) {
        ns->adopted = false; /* its policy may have changed */
        return STEP_SWAP;
    }
    if (err == SF_OK) {
        ns->dirty = ns->clear = false;
        for (int i = 0; i < SF_CATALOG_DIMENSIONS && ns->adopted; i++)
            sf_quota_bucket_return(&ns->buckets[i], batch->taken[i]);
        return STEP_DONE;
    }
    if (err != SF_ERR_AMBIGUOUS ||
        SF_MUTANT(ccs_quota_doubt_refunds)) /* in doubt: what it may have granted stays taken */
        memcpy(ns->buckets, before, sizeof(before));
    bool later = err == SF_ERR_UNAVAILABLE || err == SF_ERR_AMBIGUOUS;
    return later ? STEP_AGAIN : STEP_REFUSED;
}

/* Swaps what the batch needs; a refusal is in `diag`. */
static enum sf_err swap(struct batch *batch, struct sf_diag *diag)
{
    struct sf_quota_namespace *ns = batch->ns;
    struct sf_sched *sched = ns->catalog->deps.sched;
    enum sf_err err = SF_OK;
    if (ns->adopted)
        err = sf_quota_swap(ns, sched, batch->want, diag);
    if (err == SF_OK && !ns->adopted)
        err = sf_quota_adopt(ns, sched, true, false, batch->want, diag);
    batch->swapped = true;
    return err;
}

static enum sf_err run_batch(struct batch *batch, struct sf_diag *diag)
{
    struct sf_catalog *catalog = batch->ns->catalog;
    for (unsigned tries = 1;;) {
        sf_diag_init(diag);
        enum step step = try_once(batch, diag);
        if (step == STEP_DONE)
            return SF_OK;
        if (step == STEP_SWAP) {
            sf_diag_init(diag);
            enum sf_err err = swap(batch, diag);
            if (err != SF_OK)
                return err;
            continue;
        }
        if (step == STEP_REFUSED || tries > SF_CATALOG_PUT_TRIES || sf_catalog_ending(catalog))
            return diag->err == SF_OK ? SF_ERR_UNAVAILABLE : diag->err;
        sf_catalog_pause(catalog, catalog->deps.sched, tries++);
    }
}

/* ---- answers ------------------------------------------------------------------------------ */

static void answer_lease(struct sf_quota_request *item)
{
    SF_PB(AcquireQuotaLeaseResponse) response;
    searchfabric__v1__acquire_quota_lease_response__init(&response);
    response.granted_units = item->lease.granted_units;
    response.lease_epoch = item->lease.lease_epoch;
    response.expires_at_unix_ms = item->lease.expires_at_unix_ms;
    sf_call_respond(item->call, &response.base);
}

static void answer_return(struct sf_quota_request *item)
{
    SF_PB(ReturnQuotaLeaseResponse) response;
    searchfabric__v1__return_quota_lease_response__init(&response);
    response.terminal_state = item->lease.state;
    sf_call_respond(item->call, &response.base);
}

static void answer_pressure(struct batch *batch, struct sf_quota_request *item)
{
    const SF_PB(ReportIngestPressureRequest) *report =
        (const SF_PB(ReportIngestPressureRequest) *)item->request;
    SF_PB(ReportIngestPressureResponse) response;
    searchfabric__v1__report_ingest_pressure_response__init(&response);
    sf_quota_press(batch->ns, report, sf_quota_dimension(report->throttled_dimension),
                   batch->now_ms);
    SF_LOG(INFO, "catalog_quota_pressure",
           SF_KV_U64("namespace_id", report->collection->namespace_id),
           SF_KV_U64("collection_id", report->collection->collection_id),
           SF_KV_STR("dimension", report->throttled_dimension), SF_KV_U64("lag_ms", report->lag_ms),
           SF_KV_STR("state", report->active ? "on" : "over"));
    sf_call_respond(item->call, &response.base);
}

static void answer(struct batch *batch, struct sf_quota_request *item, const struct sf_diag *failed)
{
    struct sf_catalog_quotas *quotas = batch->ns->catalog->quotas;
    if (failed != NULL)
        *sf_call_diag(item->call) = *failed;
    if (failed != NULL || item->decision == DECIDED_REFUSE) {
        if (sf_call_diag(item->call)->err == SF_RATE_LIMITED)
            sf_quota_count(quotas->metric_limited, 1);
        sf_catalog_refuse(item->call, sf_call_diag(item->call));
    } else if (item->decision == DECIDED_PRESSURE) {
        answer_pressure(batch, item);
    } else if (item->decision == DECIDED_END) {
        answer_return(item);
    } else {
        sf_quota_count(
            item->decision == DECIDED_GRANT ? quotas->metric_granted : quotas->metric_replayed, 1);
        answer_lease(item);
    }
    free(item);
}

/* ---- lanes -------------------------------------------------------------------------------- */

static uint64_t lane_of(uint64_t namespace_id)
{
    return sf_catalog_lane_key(SF_CATALOG_LANE_NAMESPACE_ID, namespace_id, 0, sf_view_str(""));
}

/* Takes up to SF_QUOTA_BATCH requests of the queue. */
static void take(struct batch *batch)
{
    struct sf_quota_namespace *ns = batch->ns;
    struct sf_quota_request **end = &batch->list;
    pthread_mutex_lock(&ns->catalog->quotas->mu);
    for (size_t i = 0; i < SF_QUOTA_BATCH && ns->head != NULL; i++) {
        *end = ns->head;
        ns->head = ns->head->next;
        ns->waiting--;
        end = &(*end)->next;
    }
    if (ns->head == NULL)
        ns->tail = NULL;
    *end = NULL;
    pthread_mutex_unlock(&ns->catalog->quotas->mu);
}

static void count_wants(struct batch *batch)
{
    for (struct sf_quota_request *item = batch->list; item != NULL; item = item->next) {
        batch->leases = batch->leases || item->kind != SF_QUOTA_PRESSURE;
        if (item->kind != SF_QUOTA_ACQUIRE)
            continue;
        const SF_PB(AcquireQuotaLeaseRequest) *request =
            (const SF_PB(AcquireQuotaLeaseRequest) *)item->request;
        uint64_t *want = &batch->want[sf_quota_dimension(request->lease->throttled_dimension)];
        uint64_t units = request->requested_units;
        *want = units > SF_LIMIT_QUOTA_UNITS - *want ? SF_LIMIT_QUOTA_UNITS : *want + units;
    }
}

/* Answers the whole batch; returns how many there were. They stay counted in until the lane is done
 * with the namespace, for the last one to leave may end the catalog. */
static size_t answer_all(struct batch *batch, const struct sf_diag *failed)
{
    size_t count = 0;
    while (batch->list != NULL) {
        struct sf_quota_request *item = batch->list;
        batch->list = item->next;
        answer(batch, item, failed);
        count++;
    }
    return count;
}

/* Queues the next batch, or gives the lane up; what cannot be queued is refused. Returns how many
 * were answered. */
static size_t go_on(struct sf_quota_namespace *ns)
{
    struct sf_catalog *catalog = ns->catalog;
    struct batch rest = {.ns = ns};
    pthread_mutex_lock(&catalog->quotas->mu);
    ns->queued = ns->head != NULL;
    bool submit = ns->queued;
    pthread_mutex_unlock(&catalog->quotas->mu);
    if (!submit ||
        sf_sched_submit(catalog->deps.sched, lane_of(ns->namespace_id), &ns->task) == SF_OK)
        return 0;
    struct sf_diag diag;
    sf_diag_init(&diag);
    sf_diag_set(&diag, SF_BACKEND_UNAVAILABLE, "the catalog takes no more work now");
    pthread_mutex_lock(&catalog->quotas->mu);
    rest.list = ns->head;
    ns->head = ns->tail = NULL;
    ns->waiting = 0;
    ns->queued = false;
    pthread_mutex_unlock(&catalog->quotas->mu);
    return answer_all(&rest, &diag);
}

static void run_on_lane(struct sf_task *task)
{
    struct sf_quota_namespace *ns = SF_CONTAINER_OF(task, struct sf_quota_namespace, task);
    struct sf_catalog *catalog = ns->catalog;
    struct sf_diag diag;
    struct batch batch = {.ns = ns, .now_ms = sf_clock_unix_ms(catalog->deps.clock)};
    take(&batch);
    count_wants(&batch);
    enum sf_err err = run_batch(&batch, &diag);
    if (err != SF_OK && diag.err == SF_OK)
        sf_diag_set(&diag, err, "%s", sf_err_info(err)->meaning);
    size_t answered = answer_all(&batch, err == SF_OK ? NULL : &diag);
    answered += go_on(ns);
    while (answered-- > 0)
        sf_catalog_leave(catalog);
}

/* Forgets entries that nobody used since `before_ms`: their credit is forfeited. */
static void forget_idle_locked(struct sf_catalog_quotas *quotas, int64_t before_ms)
{
    struct sf_map_iter iter = {0};
    while (sf_map_next(quotas->namespaces, &iter)) {
        struct sf_quota_namespace *ns = iter.value;
        if (!ns->queued && ns->pressure_count == 0 && ns->used_ms < before_ms)
            free(sf_map_del(quotas->namespaces, sf_map_key_u64(&ns->namespace_id)));
    }
}

/* The namespace's entry; NULL when there is no room. Under mu. */
static struct sf_quota_namespace *entry_locked(struct sf_catalog *catalog, uint64_t namespace_id,
                                               int64_t now_ms)
{
    struct sf_catalog_quotas *quotas = catalog->quotas;
    struct sf_quota_namespace *ns = sf_map_get(quotas->namespaces, sf_map_key_u64(&namespace_id));
    if (ns != NULL)
        return ns;
    if (sf_map_count(quotas->namespaces) >= SF_LIMIT_QUOTA_NAMESPACES)
        forget_idle_locked(quotas, INT64_MAX);
    if (sf_map_count(quotas->namespaces) >= SF_LIMIT_QUOTA_NAMESPACES)
        return NULL;
    ns = sf_calloc(1, sizeof(*ns));
    ns->catalog = catalog;
    ns->namespace_id = namespace_id;
    ns->task.run = run_on_lane;
    ns->used_ms = now_ms;
    sf_map_put(quotas->namespaces, sf_map_key_u64(&namespace_id), ns);
    return ns;
}

static bool enqueue(struct sf_catalog *catalog, uint64_t namespace_id,
                    struct sf_quota_request *item)
{
    int64_t now_ms = sf_clock_unix_ms(catalog->deps.clock);
    pthread_mutex_lock(&catalog->quotas->mu);
    struct sf_quota_namespace *ns = entry_locked(catalog, namespace_id, now_ms);
    bool room = ns != NULL && ns->waiting < SF_LIMIT_QUOTA_WAITING;
    if (room) {
        ns->used_ms = now_ms;
        if (!ns->queued)
            room = sf_sched_submit(catalog->deps.sched, lane_of(namespace_id), &ns->task) == SF_OK;
        ns->queued = ns->queued || room;
    }
    if (room) {
        if (ns->tail != NULL)
            ns->tail->next = item;
        else
            ns->head = item;
        ns->tail = item;
        ns->waiting++;
    }
    pthread_mutex_unlock(&catalog->quotas->mu);
    return room;
}

void sf_quota_start(struct sf_catalog *catalog, enum sf_quota_kind kind, uint64_t namespace_id,
                    struct sf_call *call, const ProtobufCMessage *request)
{
    struct sf_diag *diag = sf_call_diag(call);
    if (!sf_catalog_enter(catalog, true, diag)) {
        sf_catalog_refuse(call, diag);
        return;
    }
    struct sf_quota_request *item = sf_calloc(1, sizeof(*item));
    *item = (struct sf_quota_request){.kind = kind, .call = call, .request = request};
    if (enqueue(catalog, namespace_id, item))
        return;
    free(item);
    sf_diag_set(diag, SF_RATE_LIMITED, "too many requests of this namespace wait");
    sf_diag_detail(diag, "retry_after_ms", "%d", 100);
    sf_diag_detail(diag, "throttled_dimension", "quota_requests");
    sf_diag_detail(diag, "server_limit", "%u", SF_LIMIT_QUOTA_WAITING);
    sf_catalog_refuse(call, diag);
    sf_catalog_leave(catalog);
}

/* ---- sweeper ------------------------------------------------------------------------------ */

enum sf_err sf_catalog_quota_sweep(struct sf_catalog *catalog, struct sf_sched *sched,
                                   struct sf_diag *diag, uint64_t *out_done)
{
    const struct sf_catalog_policy *policy = catalog->deps.policy;
    struct sf_catalog_quotas *quotas = catalog->quotas;
    struct sf_quota_sweep sweep = {
        .now_ms = sf_clock_unix_ms(catalog->deps.clock),
        .retention_ms = policy == NULL || policy->lease_retention_ms == 0
                            ? SF_QUOTA_RETENTION_MS
                            : policy->lease_retention_ms,
        .swept_ms = quotas->swept_ms,
    };
    struct sf_arena *arena = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, sched, SF_SQL_WRITE);
    enum sf_err err = sf_sql_begin(conn, diag);
    if (err == SF_OK)
        err = sf_catalog_sql_look(catalog, conn, diag);
    if (err == SF_OK)
        err = sf_quota_sql_sweep(conn, &sweep, arena, diag);
    if (err == SF_OK && sweep.expired + sweep.pruned != 0)
        err = sf_sql_commit(conn, diag);
    else
        sf_sql_rollback(conn);
    sf_sql_release(conn);
    sf_arena_destroy(arena);
    if (err != SF_OK)
        return err;
    quotas->swept_ms = sweep.swept_ms;
    *out_done = sweep.expired + sweep.pruned;
    sf_quota_count(quotas->metric_expired, (int64_t)sweep.expired);
    pthread_mutex_lock(&quotas->mu);
    forget_idle_locked(quotas, sweep.now_ms - IDLE_MS);
    pthread_mutex_unlock(&quotas->mu);
    return SF_OK;
}
