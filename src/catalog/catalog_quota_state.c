/*
 * Model: namespace_quota_state.json is overwritten outside the segment chain, by compare-and-swap
 * and never under a lower owner epoch. A new owner swaps its epoch in before it first grants; with
 * the same swap it debits what it is about to grant. It keeps the quota epoch only when it can
 * trust the leases: the projection was not rebuilt, and its row shows the object as it stands, so
 * that every grant of the owner before is in the table beside it. Else it raises the epoch and
 * forgets the leases. What the owner before had debited and not granted is forfeited either way.
 *
 *   absent, or of another owner --adopt--> ours --swap--> ours ...   (row follows, see `dirty`)
 *
 * Ingest pressure tightens budgets in memory only, for a bounded time: nobody can throttle a
 * namespace for ever, and a new owner hears of it again.
 */
#include "catalog/catalog_quota.h"

#include <stdlib.h>

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* ---- encoding ----------------------------------------------------------------------------- */

/* The object with its parts, on the stack of whoever writes it. */
struct encoded {
    SF_PB(NamespaceQuotaStateObject) object;
    SF_PB(QuotaDimensionState) dimensions[SF_CATALOG_DIMENSIONS];
    SF_PB(QuotaDimensionState) * list[SF_CATALOG_DIMENSIONS];
};

static void encode(struct sf_quota_namespace *ns, struct encoded *out)
{
    SF_PB(NamespaceQuotaStateObject) *object = &out->object;
    searchfabric__v1__namespace_quota_state_object__init(object);
    object->format_version = SF_CATALOG_FORMAT_VERSION;
    object->attempt_id = ns->attempt_id;
    object->owner_epoch = ns->catalog->owner_epoch;
    object->namespace_id = ns->namespace_id;
    object->quota_epoch = ns->quota_epoch;
    object->last_refill_at_unix_ms = ns->swapped_at_ms;
    object->updated_at_unix_ms = ns->swapped_at_ms;
    for (int i = 0; i < SF_CATALOG_DIMENSIONS; i++) {
        const struct sf_quota_bucket *bucket = &ns->buckets[i];
        SF_PB(QuotaDimensionState) *dimension = &out->dimensions[i];
        searchfabric__v1__quota_dimension_state__init(dimension);
        dimension->api_plane = sf_quota_plane((enum sf_catalog_dimension)i);
        dimension->throttled_dimension =
            (char *)(uintptr_t)sf_catalog_dimension_name((enum sf_catalog_dimension)i);
        dimension->refill_units_per_second = bucket->rate;
        dimension->burst_units = bucket->burst;
        dimension->reserved_units = ns->swapped_credit[i];
        dimension->leaseable_units = bucket->stored.units;
        dimension->refilled_at_unix_ms = bucket->stored.at_ms;
        out->list[i] = dimension;
    }
    object->dimensions = out->list;
    object->n_dimensions = SF_CATALOG_DIMENSIONS;
}

enum sf_err sf_quota_show(struct sf_quota_namespace *ns, struct sf_sql_conn *conn,
                          struct sf_diag *diag)
{
    struct encoded encoded;
    enum sf_err err = SF_OK;
    if (ns->clear)
        err = sf_quota_sql_clear(conn, ns->namespace_id, diag);
    encode(ns, &encoded);
    if (err == SF_OK)
        err = sf_quota_sql_state_put(conn, &encoded.object, diag);
    return err;
}

/* ---- swapping ----------------------------------------------------------------------------- */

/* Debits what `want` asks for, and tops up the budgets that are in use anyway. */
static void debit(struct sf_quota_namespace *ns, const uint64_t want[SF_CATALOG_DIMENSIONS],
                  int64_t now_ms)
{
    for (int i = 0; i < SF_CATALOG_DIMENSIONS; i++) {
        struct sf_quota_bucket *bucket = &ns->buckets[i];
        bool low = ns->used[i] && bucket->credit < sf_quota_bucket_chunk(bucket) / 2;
        if (want[i] != 0 || low)
            sf_quota_bucket_debit(bucket, want[i], now_ms);
        ns->used[i] = ns->used[i] || want[i] != 0;
    }
}

/* Puts the state as it is in memory under the condition of `put`, whose key is set. */
static enum sf_err put_state(struct sf_quota_namespace *ns, struct sf_sched *sched, int64_t now_ms,
                             struct sf_catalog_put *put)
{
    struct sf_catalog *catalog = ns->catalog;
    struct encoded encoded;
    sf_attempts_next(catalog->deps.attempts, ns->attempt_id);
    ns->swapped_at_ms = now_ms;
    for (int i = 0; i < SF_CATALOG_DIMENSIONS; i++)
        ns->swapped_credit[i] = ns->buckets[i].credit;
    encode(ns, &encoded);
    sf_catalog_put_encode(put, &encoded.object.base, false, NULL);
    sf_quota_count(catalog->quotas->metric_swaps, 1);
    enum sf_err err = sf_catalog_put_run(catalog, sched, put, SF_CATALOG_PUT_TRIES);
    if (err == SF_OK && put->state == SF_CATALOG_PUT_UNSENT)
        err = SF_ERR_UNAVAILABLE;
    return err;
}

enum sf_err sf_quota_swap(struct sf_quota_namespace *ns, struct sf_sched *sched,
                          const uint64_t want[SF_CATALOG_DIMENSIONS], struct sf_diag *diag)
{
    struct sf_catalog_put put = {.cond = SF_PUT_MATCH, .match = ns->etag};
    int64_t now_ms = sf_clock_unix_ms(ns->catalog->deps.clock);
    SF_ASSERT(ns->adopted);
    if (SF_MUTANT(ccs_quota_overwrites))
        put.cond = SF_PUT_ANY;
    sf_catalog_key_quota(&put.key, ns->namespace_id);
    debit(ns, want, now_ms);
    enum sf_err err = put_state(ns, sched, now_ms, &put);
    if (err == SF_OK && put.state == SF_CATALOG_PUT_STANDS) {
        ns->etag = put.etag;
        ns->dirty = true;
    } else {
        ns->adopted = false; /* what stands decides: it is read again */
    }
    sf_catalog_put_fini(&put);
    if (err != SF_OK && diag->err == SF_OK)
        sf_diag_set(diag, err, "the quota state was not changed");
    return err;
}

/* ---- adoption ----------------------------------------------------------------------------- */

/* What the projection says of a namespace. */
struct projected {
    SF_PB(NamespaceRow) * row;
    SF_PB(NamespaceQuotaStateObject) * state; /* NULL = no row */
};

static enum sf_err read_projected(struct sf_quota_namespace *ns, struct sf_sched *sched,
                                  struct sf_arena *arena, struct sf_diag *diag,
                                  struct projected *out)
{
    struct sf_catalog *catalog = ns->catalog;
    *out = (struct projected){0};
    struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, sched, SF_SQL_READ);
    enum sf_err err = sf_sql_begin(conn, diag);
    if (err == SF_OK && !catalog->opening)
        err = sf_catalog_sql_look(catalog, conn, diag);
    if (err == SF_OK)
        err = sf_catalog_sql_namespace(conn, ns->namespace_id, arena, diag, &out->row);
    if (err == SF_OK)
        err = sf_quota_sql_state(conn, ns->namespace_id, arena, diag, &out->state);
    sf_sql_rollback(conn);
    sf_sql_release(conn);
    if (err == SF_OK && (out->row == NULL || out->row->lifecycle_state ==
                                                 SF_PBE(NAMESPACE_LIFECYCLE_STATE, TOMBSTONED)))
        err = sf_diag_set(diag, SF_RESOURCE_NOT_FOUND, "no such namespace");
    return err;
}

/* Budgets of the namespace's class. */
static void take_class(struct sf_quota_namespace *ns, const SF_PB(NamespaceRow) * row)
{
    const char *name =
        row->internal_policy_state == NULL ? "" : row->internal_policy_state->quota_class;
    ns->namespace_revision = row->namespace_revision;
    for (int i = 0; i < SF_CATALOG_DIMENSIONS; i++)
        sf_catalog_policy_budget(ns->catalog->deps.policy, name, (enum sf_catalog_dimension)i,
                                 &ns->budgets[i]);
}

static void load_buckets(struct sf_quota_namespace *ns,
                         const SF_PB(NamespaceQuotaStateObject) * now, int64_t now_ms)
{
    for (int i = 0; i < SF_CATALOG_DIMENSIONS; i++)
        sf_quota_bucket_init(&ns->buckets[i], ns->budgets[i].refill_units_per_second,
                             ns->budgets[i].burst_units, now_ms);
    if (SF_MUTANT(ccs_quota_full_start))
        return;
    for (size_t k = 0; now != NULL && k < now->n_dimensions; k++) {
        const SF_PB(QuotaDimensionState) *dimension = now->dimensions[k];
        enum sf_catalog_dimension i = sf_quota_dimension(dimension->throttled_dimension);
        struct sf_quota_stored stored = {.units = dimension->leaseable_units,
                                         .at_ms = dimension->refilled_at_unix_ms,
                                         .reserved = dimension->reserved_units};
        if (i != SF_CATALOG_DIMENSIONS)
            sf_quota_bucket_load(&ns->buckets[i], ns->budgets[i].refill_units_per_second,
                                 ns->budgets[i].burst_units, &stored, now_ms);
    }
}

/* May the leases in the projection be kept under the epoch of `object`? */
static bool trusted(const struct sf_catalog *catalog,
                    const SF_PB(NamespaceQuotaStateObject) * object,
                    const struct projected *projected, bool rebuilt)
{
    if (rebuilt)
        return SF_MUTANT(ccs_quota_keep_epoch);
    if (object->owner_epoch == catalog->owner_epoch)
        return true; /* nobody else granted since */
    return (projected->state != NULL &&
            strcmp(projected->state->attempt_id, object->attempt_id) == 0) ||
           SF_MUTANT(ccs_quota_trust_any);
}

static void decide_epoch(struct sf_quota_namespace *ns,
                         const SF_PB(NamespaceQuotaStateObject) * object,
                         const struct projected *projected, bool rebuilt)
{
    uint64_t shown = projected->state == NULL ? 0 : projected->state->quota_epoch;
    uint64_t stands = object == NULL ? 0 : object->quota_epoch;
    if (object != NULL && trusted(ns->catalog, object, projected, rebuilt))
        ns->quota_epoch = stands;
    else
        ns->quota_epoch = max_u64(stands, shown) + 1;
    ns->clear = shown != ns->quota_epoch;
    if (object != NULL && ns->quota_epoch != stands)
        SF_LOG(INFO, "catalog_quota_epoch_raised", SF_KV_U64("namespace_id", ns->namespace_id),
               SF_KV_U64("quota_epoch", ns->quota_epoch),
               SF_KV_U64("owner_epoch", ns->catalog->owner_epoch),
               SF_KV_STR("reason", rebuilt ? "projection_rebuilt" : "leases_unknown"));
}

/* One try: reads the object, swaps. *out_stands false: somebody else swapped meanwhile. */
static enum sf_err adopt_once(struct sf_quota_namespace *ns, struct sf_sched *sched, bool create,
                              bool rebuilt, const uint64_t want[SF_CATALOG_DIMENSIONS],
                              struct sf_arena *arena, struct sf_diag *diag, bool *out_stands)
{
    struct sf_catalog *catalog = ns->catalog;
    struct projected projected;
    ProtobufCMessage *found = NULL;
    struct sf_catalog_put put = {0};
    enum sf_err err = read_projected(ns, sched, arena, diag, &projected);
    if (err != SF_OK)
        return err;
    sf_catalog_key_quota(&put.key, ns->namespace_id);
    err = sf_catalog_read(catalog, sched, sf_buf_view(&put.key),
                          &searchfabric__v1__namespace_quota_state_object__descriptor, false, arena,
                          diag, &found, NULL, &put.match);
    put.cond = err == SF_ERR_NOT_FOUND ? SF_PUT_ABSENT : SF_PUT_MATCH;
    if (err == SF_ERR_NOT_FOUND && create)
        err = SF_OK;
    const SF_PB(NamespaceQuotaStateObject) *object =
        (const SF_PB(NamespaceQuotaStateObject) *)found;
    if (err == SF_OK && object != NULL && object->owner_epoch > catalog->owner_epoch &&
        !SF_MUTANT(ccs_no_quota_elder))
        err = sf_catalog_depose(catalog, "quota state", object->owner_epoch);
    if (err == SF_OK) {
        int64_t now_ms = sf_clock_unix_ms(catalog->deps.clock);
        take_class(ns, projected.row);
        load_buckets(ns, object, now_ms);
        decide_epoch(ns, object, &projected, rebuilt);
        debit(ns, want, now_ms);
        err = put_state(ns, sched, now_ms, &put);
    }
    *out_stands = err == SF_OK && put.state == SF_CATALOG_PUT_STANDS;
    ns->etag = put.etag;
    sf_catalog_put_fini(&put);
    return err;
}

enum sf_err sf_quota_adopt(struct sf_quota_namespace *ns, struct sf_sched *sched, bool create,
                           bool rebuilt, const uint64_t want[SF_CATALOG_DIMENSIONS],
                           struct sf_diag *diag)
{
    struct sf_arena *arena = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    enum sf_err err = SF_OK;
    bool stands = false;
    ns->adopted = false;
    while (err == SF_OK && !stands) {
        sf_arena_reset(arena);
        err = adopt_once(ns, sched, create, rebuilt, want, arena, diag, &stands);
    }
    sf_arena_destroy(arena);
    ns->adopted = ns->dirty = err == SF_OK;
    if (err != SF_OK && err != SF_ERR_NOT_FOUND && diag->err == SF_OK)
        sf_diag_set(diag, err, "the quota state was not taken over");
    return err;
}

/* ---- rebuild ------------------------------------------------------------------------------ */

/* Raises the quota epoch of one namespace and shows it; nothing without an object. */
static enum sf_err rebuild_one(struct sf_catalog *catalog, struct sf_sched *sched,
                               uint64_t namespace_id, struct sf_diag *diag)
{
    static const uint64_t nothing[SF_CATALOG_DIMENSIONS];
    struct sf_quota_namespace *ns = sf_calloc(1, sizeof(*ns));
    ns->catalog = catalog;
    ns->namespace_id = namespace_id;
    enum sf_err err = sf_quota_adopt(ns, sched, false, true, nothing, diag);
    if (err == SF_OK) {
        struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, sched, SF_SQL_WRITE);
        err = sf_sql_begin(conn, diag);
        if (err == SF_OK)
            err = sf_catalog_project_claimed(catalog, conn, diag);
        if (err == SF_OK)
            err = sf_quota_show(ns, conn, diag);
        if (err == SF_OK)
            err = sf_sql_commit(conn, diag);
        else
            sf_sql_rollback(conn);
        sf_sql_release(conn);
    }
    free(ns);
    return err == SF_ERR_NOT_FOUND ? SF_OK : err;
}

enum sf_err sf_catalog_quota_rebuild(struct sf_catalog *catalog, struct sf_sched *sched,
                                     struct sf_diag *diag)
{
    struct sf_arena *arena = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    uint64_t after = 0;
    enum sf_err err = SF_OK;
    for (bool more = true; more && err == SF_OK;) {
        uint64_t *ids = NULL;
        size_t count = 0;
        sf_arena_reset(arena);
        struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, sched, SF_SQL_READ);
        err = sf_quota_sql_namespaces(conn, after, SF_LIMIT_LIST_PAGE_ENTRIES, arena, diag, &ids,
                                      &count);
        sf_sql_release(conn);
        for (size_t i = 0; i < count && err == SF_OK; i++)
            err = rebuild_one(catalog, sched, ids[i], diag);
        more = count == SF_LIMIT_LIST_PAGE_ENTRIES;
        after = count == 0 ? after : ids[count - 1];
    }
    sf_arena_destroy(arena);
    return err;
}

/* ---- pressure ----------------------------------------------------------------------------- */

/* What a lag leaves of a budget. */
static unsigned percent_of_lag(uint64_t lag_ms)
{
    if (lag_ms < 1000)
        return 50;
    return lag_ms < 5000 ? 25 : 10;
}

unsigned sf_quota_percent(struct sf_quota_namespace *ns, enum sf_catalog_dimension dimension,
                          int64_t now_ms)
{
    unsigned percent = 100;
    size_t kept = 0;
    for (size_t i = 0; i < ns->pressure_count; i++) {
        struct sf_quota_pressure *pressure = &ns->pressures[i];
        if (pressure->until_ms <= now_ms)
            continue;
        if (pressure->dimension == dimension && pressure->percent < percent)
            percent = pressure->percent;
        ns->pressures[kept++] = *pressure;
    }
    ns->pressure_count = kept;
    return percent;
}

/* The next time at which a report ends, at most `now_ms`. */
static int64_t next_end(const struct sf_quota_namespace *ns, int64_t now_ms)
{
    int64_t end = now_ms;
    for (size_t i = 0; i < ns->pressure_count; i++) {
        if (ns->pressures[i].until_ms < end)
            end = ns->pressures[i].until_ms;
    }
    return end;
}

void sf_quota_refill(struct sf_quota_namespace *ns, int64_t now_ms)
{
    for (bool done = !ns->adopted; !done;) {
        int64_t until = next_end(ns, now_ms);
        for (int i = 0; i < SF_CATALOG_DIMENSIONS; i++)
            sf_quota_bucket_refill(&ns->buckets[i], until,
                                   sf_quota_percent(ns, (enum sf_catalog_dimension)i, until - 1));
        for (int i = 0; i < SF_CATALOG_DIMENSIONS; i++)
            sf_quota_percent(ns, (enum sf_catalog_dimension)i, until); /* forgets what ended */
        done = until == now_ms;
    }
}

/* Where a report of this origin stands, or goes: NULL when its dimension has no room left. */
static struct sf_quota_pressure *pressure_slot(struct sf_quota_namespace *ns,
                                               const struct sf_quota_pressure *report)
{
    size_t same_dimension = 0;
    for (size_t i = 0; i < ns->pressure_count; i++) {
        struct sf_quota_pressure *at = &ns->pressures[i];
        if (at->dimension != report->dimension)
            continue;
        same_dimension++;
        if (at->collection_id == report->collection_id && at->source == report->source)
            return at;
    }
    if (same_dimension < SF_QUOTA_PRESSURES / 2)
        return &ns->pressures[ns->pressure_count++];
    return NULL;
}

/* No room: the report joins the first of its dimension, which gets no looser. */
static void fold(struct sf_quota_namespace *ns, const struct sf_quota_pressure *report)
{
    for (size_t i = 0; i < ns->pressure_count; i++) {
        struct sf_quota_pressure *at = &ns->pressures[i];
        if (at->dimension != report->dimension)
            continue;
        at->collection_id = 0; /* nobody's alone: only time ends it */
        at->percent = report->percent < at->percent ? report->percent : at->percent;
        at->until_ms = report->until_ms > at->until_ms ? report->until_ms : at->until_ms;
        return;
    }
}

void sf_quota_press(struct sf_quota_namespace *ns,
                    const SF_PB(ReportIngestPressureRequest) * report,
                    enum sf_catalog_dimension dimension, int64_t now_ms)
{
    const struct sf_catalog_policy *policy = ns->catalog->deps.policy;
    int64_t lasts_ms =
        policy == NULL || policy->pressure_ms == 0 ? SF_QUOTA_PRESSURE_MS : policy->pressure_ms;
    struct sf_quota_pressure fresh = {.collection_id = report->collection->collection_id,
                                      .dimension = dimension,
                                      .source = report->source,
                                      .percent = percent_of_lag(report->lag_ms),
                                      .until_ms = now_ms + lasts_ms};
    sf_quota_refill(ns, now_ms);
    sf_quota_percent(ns, dimension, now_ms); /* forgets what is over */
    if (!report->active) {
        for (size_t i = 0; i < ns->pressure_count; i++) {
            struct sf_quota_pressure *at = &ns->pressures[i];
            if (at->collection_id == fresh.collection_id && at->dimension == dimension &&
                at->source == fresh.source) {
                *at = ns->pressures[--ns->pressure_count];
                break;
            }
        }
        return;
    }
    struct sf_quota_pressure *slot = pressure_slot(ns, &fresh);
    if (slot != NULL)
        *slot = fresh;
    else
        fold(ns, &fresh);
    sf_quota_refill(ns, now_ms);
}
