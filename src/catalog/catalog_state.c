/*
 * Model: memory of the catalog holds nothing that decides a mutation. It holds admission facts of
 * collections for the hot path (disposable: any entry may be forgotten at any time), the binding
 * revision of their namespaces, and which generations were adopted under this owner's epoch.
 * Freshness: a commit raises `state_version` and forgets what it changed after its transaction and
 * before its answer; whoever fills the cache read the version before its snapshot and keeps nothing
 * when it moved. All maps are under state_mu.
 */
#include "catalog/catalog_priv.h"

#include <stdlib.h>

struct collection_key {
    uint64_t namespace_id;
    uint64_t collection_id;
};

static struct sf_view key_view(const struct collection_key *key)
{
    return sf_view_bytes(key, sizeof(*key));
}

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

uint64_t sf_catalog_state_version(struct sf_catalog *catalog)
{
    pthread_mutex_lock(&catalog->state_mu);
    uint64_t version = catalog->state_version;
    pthread_mutex_unlock(&catalog->state_mu);
    return version;
}

void sf_catalog_admission_destroy(void *admission)
{
    struct sf_catalog_admission *entry = admission;
    if (entry == NULL)
        return;
    sf_arena_destroy(entry->arena);
    free(entry);
}

void sf_catalog_state_forget(struct sf_catalog *catalog, uint64_t namespace_id,
                             uint64_t collection_id)
{
    struct collection_key key = {namespace_id, collection_id};
    pthread_mutex_lock(&catalog->state_mu);
    catalog->state_version++;
    sf_catalog_admission_destroy(sf_map_del(catalog->admissions, key_view(&key)));
    pthread_mutex_unlock(&catalog->state_mu);
}

static void set_binding_locked(struct sf_catalog *catalog, uint64_t namespace_id, uint64_t revision)
{
    uint64_t *slot = sf_map_get(catalog->bindings, sf_map_key_u64(&namespace_id));
    if (slot == NULL) {
        slot = sf_malloc(sizeof(*slot));
        sf_map_put(catalog->bindings, sf_map_key_u64(&namespace_id), slot);
        *slot = revision;
    } else if (revision > *slot) {
        *slot = revision;
    }
}

void sf_catalog_state_binding(struct sf_catalog *catalog, uint64_t namespace_id)
{
    pthread_mutex_lock(&catalog->state_mu);
    catalog->state_version++;
    free(sf_map_del(catalog->bindings, sf_map_key_u64(&namespace_id)));
    pthread_mutex_unlock(&catalog->state_mu);
}

void sf_catalog_state_keep(struct sf_catalog *catalog, uint64_t version,
                           struct sf_catalog_admission *admission, uint64_t binding_revision)
{
    const SF_PB(CollectionRef) *ref = admission->state->collection;
    struct collection_key key = {ref->namespace_id, ref->collection_id};
    pthread_mutex_lock(&catalog->state_mu);
    if (catalog->state_version == version) {
        if (sf_map_count(catalog->admissions) >= SF_CATALOG_ADMISSIONS) {
            sf_map_clear(catalog->admissions, sf_catalog_admission_destroy);
            sf_map_clear(catalog->bindings, free);
        }
        set_binding_locked(catalog, ref->namespace_id, binding_revision);
        admission = sf_map_put(catalog->admissions, key_view(&key), admission);
    }
    pthread_mutex_unlock(&catalog->state_mu);
    sf_catalog_admission_destroy(admission);
}

void sf_catalog_admission_respond(struct sf_call *call,
                                  const SF_PB(GetCollectionAdmissionStateRequest) * request,
                                  const SF_PB(CollectionAdmissionState) * state,
                                  uint64_t binding_revision)
{
    SF_PB(GetCollectionAdmissionStateResponse) response;
    searchfabric__v1__get_collection_admission_state_response__init(&response);
    SF_PB(AdmissionStateNotModified) same;
    searchfabric__v1__admission_state_not_modified__init(&same);
    SF_PB(CollectionAdmissionState) full = *state;
    bool known = request->_known_descriptor_etag_case != 0 &&
                 request->_known_collection_name_binding_revision_case != 0 &&
                 request->known_collection_name_binding_revision == binding_revision &&
                 strcmp(request->known_descriptor_etag, state->descriptor_etag) == 0;
    if (known) {
        response.result_case =
            SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_RESPONSE__RESULT_NOT_MODIFIED;
        response.not_modified = &same;
    } else {
        full.collection_name_binding_revision = binding_revision;
        response.result_case =
            SEARCHFABRIC__V1__GET_COLLECTION_ADMISSION_STATE_RESPONSE__RESULT_STATE;
        response.state = &full;
    }
    sf_call_respond(call, &response.base);
}

bool sf_catalog_state_answer(struct sf_catalog *catalog, struct sf_call *call,
                             const SF_PB(GetCollectionAdmissionStateRequest) * request)
{
    struct collection_key key = {request->collection->namespace_id,
                                 request->collection->collection_id};
    bool found = false;
    pthread_mutex_lock(&catalog->state_mu);
    const struct sf_catalog_admission *entry = sf_map_get(catalog->admissions, key_view(&key));
    const uint64_t *binding = sf_map_get(catalog->bindings, sf_map_key_u64(&key.namespace_id));
    if (entry != NULL && binding != NULL) {
        found = true;
        sf_catalog_admission_respond(call, request, entry->state, *binding);
    }
    pthread_mutex_unlock(&catalog->state_mu);
    return found;
}

uint64_t sf_catalog_adopted(struct sf_catalog *catalog, uint64_t namespace_id,
                            uint64_t collection_id)
{
    struct collection_key key = {namespace_id, collection_id};
    pthread_mutex_lock(&catalog->state_mu);
    const uint64_t *version = sf_map_get(catalog->adopted, key_view(&key));
    uint64_t value = version == NULL ? 0 : *version;
    pthread_mutex_unlock(&catalog->state_mu);
    return value;
}

void sf_catalog_adopt_mark(struct sf_catalog *catalog, uint64_t namespace_id,
                           uint64_t collection_id, uint64_t version)
{
    struct collection_key key = {namespace_id, collection_id};
    uint64_t *value = sf_malloc(sizeof(*value));
    *value = version;
    pthread_mutex_lock(&catalog->state_mu);
    if (sf_map_count(catalog->adopted) >= SF_CATALOG_ADMISSIONS)
        sf_map_clear(catalog->adopted, free);
    free(sf_map_put(catalog->adopted, key_view(&key), value));
    pthread_mutex_unlock(&catalog->state_mu);
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
    if (diag->err == SF_BACKEND_UNAVAILABLE && sf_diag_get(diag, "failing_authority") == NULL)
        sf_diag_detail(diag, "failing_authority", "catalog");
    sf_call_fail(call, diag);
}
