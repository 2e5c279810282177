/*
 * Model: requests are counted in and out; a deposed or draining catalog lets none in. Memory of the
 * catalog holds nothing that decides a mutation: facts that reads answer from and records of
 * repeats, all in one bounded cache (catalog_cache.h). A commit forgets what it changed after its
 * transaction and before its answer; of a binding first the name, then the revision, so that no old
 * mapping is read under a new one.
 */
#include "catalog/catalog_cache.h"
#include "catalog/catalog_priv.h"
#include "catalog/catalog_projector.h"

bool sf_catalog_enter(struct sf_catalog *catalog, bool mutation, struct sf_diag *diag)
{
    if (atomic_load(&catalog->deposed)) {
        sf_diag_set(diag, SF_BACKEND_UNAVAILABLE, "this catalog owner was replaced by a newer one");
        return false;
    }
    if (mutation && atomic_load(&catalog->stalled) != 0) {
        sf_diag_set(diag, SF_BACKEND_UNAVAILABLE, "the object store does not answer");
        return false;
    }
    pthread_mutex_lock(&catalog->state_mu);
    bool open = !atomic_load(&catalog->draining);
    if (open)
        catalog->in_flight++;
    pthread_mutex_unlock(&catalog->state_mu);
    if (!open)
        sf_diag_set(diag, SF_BACKEND_UNAVAILABLE, "the catalog is draining");
    return open;
}

void sf_catalog_leave(struct sf_catalog *catalog)
{
    pthread_mutex_lock(&catalog->state_mu);
    SF_ASSERT(catalog->in_flight > 0);
    bool wake = --catalog->in_flight == 0 && catalog->idle_wanted;
    if (wake)
        catalog->idle_wanted = false;
    pthread_mutex_unlock(&catalog->state_mu);
    if (wake)
        sf_waiter_wake(&catalog->idle);
}

enum sf_err sf_catalog_depose(struct sf_catalog *catalog, const char *met, uint64_t epoch)
{
    if (!atomic_exchange(&catalog->deposed, true))
        SF_LOG(ERROR, "catalog_deposed", SF_KV_U64("owner_epoch", catalog->owner_epoch),
               SF_KV_STR("met", met), SF_KV_U64("newer_epoch", epoch));
    return SF_ERR_DEPOSED;
}

bool sf_catalog_ending(const struct sf_catalog *catalog)
{
    return atomic_load(&catalog->draining) || atomic_load(&catalog->deposed);
}

/* A pause of one task: posted to the loop, timed there, woken from there. */
struct pause {
    struct sf_task task;
    struct sf_timer timer;
    struct sf_waiter waiter;
    struct sf_loop *loop;
    int64_t delay_ms;
};

static void pause_fired(struct sf_timer *timer)
{
    struct pause *pause = SF_CONTAINER_OF(timer, struct pause, timer);
    sf_waiter_wake(&pause->waiter);
}

static void pause_on_loop(struct sf_task *task)
{
    struct pause *pause = SF_CONTAINER_OF(task, struct pause, task);
    sf_timer_init(&pause->timer, pause->loop, pause_fired);
    sf_timer_start(&pause->timer, pause->delay_ms);
}

void sf_catalog_pause(struct sf_catalog *catalog, struct sf_sched *sched, unsigned tries)
{
    if (catalog->deps.loop == NULL)
        return;
    int64_t base = SF_CATALOG_PAUSE_MAX_MS;
    if (tries < 8)
        base = (int64_t)SF_CATALOG_PAUSE_MIN_MS << tries;
    uint64_t salt[3] = {catalog->owner_epoch, tries, atomic_fetch_add(&catalog->read_turn, 1)};
    uint64_t jitter = sf_xxh64(salt, sizeof(salt), 0) % (uint64_t)base;
    struct pause pause = {.loop = catalog->deps.loop, .delay_ms = base / 2 + (int64_t)jitter / 2};
    pause.task.run = pause_on_loop;
    sf_waiter_init(&pause.waiter, sched);
    sf_loop_post(pause.loop, &pause.task);
    sf_waiter_wait(&pause.waiter);
    sf_waiter_fini(&pause.waiter);
}

void sf_catalog_watermark_note(struct sf_catalog *catalog, uint64_t segment)
{
    uint64_t seen = atomic_load(&catalog->watermark);
    while (seen < segment && !atomic_compare_exchange_weak(&catalog->watermark, &seen, segment))
        ;
}

/* ---- what memory holds -------------------------------------------------------------------- */

static void forget(struct sf_catalog *catalog, enum sf_catalog_fact fact, uint64_t namespace_id,
                   uint64_t collection_id, const char *text)
{
    struct sf_catalog_cache_key key = {.fact = fact,
                                       .namespace_id = namespace_id,
                                       .collection_id = collection_id,
                                       .text = sf_view_str(text)};
    sf_catalog_cache_forget(catalog->cache, &key);
}

void sf_catalog_state_forget(struct sf_catalog *catalog, uint64_t namespace_id,
                             uint64_t collection_id)
{
    static const enum sf_catalog_fact facts[] = {SF_CATALOG_FACT_COLLECTION, SF_CATALOG_FACT_SCHEMA,
                                                 SF_CATALOG_FACT_SYNC, SF_CATALOG_FACT_ADMISSION};
    for (size_t i = 0; i < SF_ARRAY_LEN(facts); i++)
        forget(catalog, facts[i], namespace_id, collection_id, "");
}

void sf_catalog_state_binding(struct sf_catalog *catalog, uint64_t namespace_id, const char *name)
{
    forget(catalog, SF_CATALOG_FACT_COLLECTION_NAME, namespace_id, 0, name);
    forget(catalog, SF_CATALOG_FACT_BINDING, namespace_id, 0, "");
}

void sf_catalog_state_namespace(struct sf_catalog *catalog, uint64_t namespace_id, const char *name)
{
    if (name != NULL)
        forget(catalog, SF_CATALOG_FACT_NAMESPACE_NAME, 0, 0, name);
    forget(catalog, SF_CATALOG_FACT_NAMESPACE, namespace_id, 0, "");
    forget(catalog, SF_CATALOG_FACT_BINDING, namespace_id, 0, "");
}

void sf_catalog_state_descriptor(struct sf_catalog *catalog, uint64_t namespace_id,
                                 uint64_t collection_id)
{
    forget(catalog, collection_id == 0 ? SF_CATALOG_FACT_NAMESPACE : SF_CATALOG_FACT_COLLECTION,
           namespace_id, collection_id, "");
}

void sf_catalog_state_command(struct sf_catalog *catalog, const char *command_identity)
{
    forget(catalog, SF_CATALOG_FACT_COMMAND, 0, 0, command_identity);
}

static struct sf_catalog_cache_key record_key(const char *command_identity)
{
    return (struct sf_catalog_cache_key){.fact = SF_CATALOG_FACT_COMMAND,
                                         .text = sf_view_str(command_identity)};
}

enum sf_err sf_catalog_state_record(struct sf_catalog *catalog, struct sf_sql_conn *conn,
                                    const char *command_identity, struct sf_arena *arena,
                                    struct sf_diag *diag, SF_PB(CommandOutcomeObject) * *out_record)
{
    struct sf_catalog_cache_key key = record_key(command_identity);
    struct sf_catalog_value *value = sf_catalog_cache_get(catalog->cache, &key);
    ProtobufCMessage *message = NULL;
    enum sf_err err;
    if (value != NULL) {
        err = sf_pb_unpack(&searchfabric__v1__command_outcome_object__descriptor,
                           sf_view_bytes(value->bytes, value->len), arena, diag, &message);
        *out_record = (SF_PB(CommandOutcomeObject) *)message;
    } else {
        err = sf_catalog_sql_replay(conn, command_identity, arena, diag, out_record);
    }
    if (value == NULL && err == SF_OK && *out_record != NULL) {
        value = sf_catalog_value_new(0, protobuf_c_message_get_packed_size(&(*out_record)->base));
        (void)protobuf_c_message_pack(&(*out_record)->base, value->bytes);
        sf_catalog_cache_put(catalog->cache, &key, value);
    }
    sf_catalog_value_drop(value);
    return err;
}

/* A name that the record or the rows say, NULL = none does. */
static const char *known_name(const char *recorded, const char *of_row)
{
    return recorded[0] != '\0' ? recorded : of_row;
}

void sf_catalog_state_committed(struct sf_catalog *catalog,
                                const SF_PB(CommandOutcomeObject) * outcome,
                                const struct sf_catalog_rows *rows)
{
    const SF_PB(CommandScope) *scope = outcome->scope;
    if (scope->collection_id == 0 && scope->collection_name[0] == '\0') {
        const char *name =
            known_name(scope->namespace_name, rows->ns == NULL ? NULL : rows->ns->namespace_name);
        if (name == NULL)
            sf_catalog_cache_flush(catalog->cache);
        sf_catalog_state_namespace(catalog, scope->namespace_id, name);
        return;
    }
    sf_catalog_state_forget(catalog, scope->namespace_id, scope->collection_id);
    sf_catalog_projectors_changed(catalog);
    if (outcome->command_kind == SF_PBE(COMMAND_KIND, DROP_COLLECTION))
        sf_catalog_state_descriptor(catalog, scope->namespace_id, 0); /* its aggregate */
    if (outcome->collection_name_binding_revision == 0)
        return;
    if (outcome->command_kind == SF_PBE(COMMAND_KIND, DROP_COLLECTION))
        sf_catalog_state_namespace(catalog, scope->namespace_id, NULL); /* its aggregate */
    const char *name =
        known_name(scope->collection_name,
                   rows->collection == NULL ? NULL : rows->collection->collection_name);
    if (name != NULL)
        sf_catalog_state_binding(catalog, scope->namespace_id, name);
    else
        sf_catalog_cache_flush(catalog->cache);
}

void sf_catalog_flush(struct sf_catalog *catalog)
{
    sf_catalog_cache_flush(catalog->cache);
}

enum sf_err sf_catalog_forget_job(struct sf_catalog *catalog, struct sf_sched *sched,
                                  struct sf_diag *diag, uint64_t *out_done)
{
    struct sf_catalog_cache_stats stats;
    (void)sched;
    (void)diag;
    sf_catalog_cache_stats(catalog->cache, &stats);
    sf_catalog_flush(catalog);
    *out_done = stats.entries;
    return SF_OK;
}

enum sf_err sf_catalog_projection_job(struct sf_catalog *catalog, struct sf_sched *sched,
                                      struct sf_diag *diag, uint64_t *out_done)
{
    struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, sched, SF_SQL_READ);
    enum sf_err err = sf_sql_begin(conn, diag);
    if (err == SF_OK)
        err = sf_catalog_sql_look(catalog, conn, diag);
    sf_sql_rollback(conn);
    sf_sql_release(conn);
    bool lost = err != SF_OK && err != SF_ERR_DEPOSED;
    if (atomic_exchange(&catalog->projection_lost, lost) && !lost)
        SF_LOG(INFO, "catalog_projection_back", SF_KV_U64("owner_epoch", catalog->owner_epoch));
    *out_done = err == SF_OK ? 1 : 0;
    return err;
}

void sf_catalog_refuse(struct sf_call *call, struct sf_diag *diag)
{
    switch (diag->err) {
    case SF_ERR_UNAVAILABLE:
    case SF_ERR_AMBIGUOUS:
    case SF_ERR_DEPOSED:
    case SF_ERR_STOPPED:
    case SF_ERR_IO:
    case SF_ERR_PRECONDITION:
    case SF_ERR_CANCELLED_STAGE:
        diag->err = SF_BACKEND_UNAVAILABLE;
        break;
    case SF_ERR_EXISTS: /* a unique key of the projection: an invariant is broken */
        diag->err = SF_INTERNAL;
        break;
    default:
        diag->err = sf_err_public(diag->err);
        break;
    }
    if (diag->area == NULL)
        sf_diag_area(diag, "catalog");
    if (diag->err == SF_FORBIDDEN || diag->err == SF_OWNERSHIP_CONFLICT)
        SF_LOG(WARN, "catalog_caller_refused", SF_KV_STR("rpc_method", sf_call_method(call)),
               SF_KV_STR("caller", sf_call_identity(call)->name),
               SF_KV_STR("error", sf_err_info(diag->err)->name),
               SF_KV_STR("reason", diag->message));
    if (diag->err == SF_BACKEND_UNAVAILABLE && sf_diag_get(diag, "failing_authority") == NULL)
        sf_diag_detail(diag, "failing_authority", "catalog");
    sf_call_fail(call, diag);
}
