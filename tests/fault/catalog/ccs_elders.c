/*
 * The rule of overwritten objects: none is ever swapped under a lower owner epoch, and the boundary
 * only moves forward. Looked at after every step, for what the run has made known of: heads and
 * statistics heads of its collections, budgets and name of the shared namespace, the list of
 * removals.
 */
#include "catalog/catalog_head.h"
#include "catalog/catalog_removals.h"
#include "fault/catalog/ccs_history.h"

/* NULL: there is no room for one more. */
static struct elder *find(struct world *w, const struct sf_buf *key)
{
    for (size_t i = 0; i < w->elder_count; i++) {
        if (sf_view_equal(sf_buf_view(key), sf_buf_view(&w->elders[i].key)))
            return &w->elders[i];
    }
    if (w->elder_count == MAX_ELDERS)
        return NULL;
    struct elder *elder = &w->elders[w->elder_count++];
    sf_buf_append(&elder->key, key->data, key->len);
    return elder;
}

void elders_raise(struct world *w, const struct sf_buf *key, uint64_t epoch)
{
    struct elder *elder = find(w, key);
    if (elder != NULL && elder->epoch < epoch)
        elder->epoch = epoch;
}

/* `number` is the field that only grows. */
static void look(struct world *w, const struct sf_buf *key, const ProtobufCMessageDescriptor *desc,
                 const char *number)
{
    struct elder *elder = find(w, key);
    struct sf_buf body = {0};
    if (elder == NULL)
        return;
    enum sf_err err = sf_store_get_wait(sim_backend(w->sim), NULL, sf_buf_view(key), &body, NULL);
    if (err == SF_OK && !sf_view_equal(sf_buf_view(&body), sf_buf_view(&elder->body))) {
        const ProtobufCFieldDescriptor *field =
            protobuf_c_message_descriptor_get_field_by_name(desc, number);
        struct sf_arena *arena = sf_arena_new((size_t)1 << 20);
        struct sf_diag diag;
        ProtobufCMessage *message = NULL;
        uint64_t epoch = 0;
        sf_buf_clear(&elder->body);
        sf_buf_append(&elder->body, body.data, body.len);
        err = sf_catalog_decode(desc, false, sf_buf_view(&body), arena, &diag, &message);
        SF_ASSERT(err == SF_OK && field != NULL);
        memcpy(&epoch, (const char *)message + field->offset, sizeof(epoch));
        sf_arena_destroy(arena);
        if (epoch < elder->epoch)
            sim_violation(w->sim, "%.*s was swapped under %s %" PRIu64 " after %" PRIu64,
                          (int)key->len, (const char *)key->data, number, epoch, elder->epoch);
        elder->epoch = epoch;
    }
    sf_buf_fini(&body);
}

void elders_look(struct world *w, const struct sf_buf *key, const ProtobufCMessageDescriptor *desc)
{
    look(w, key, desc, "owner_epoch");
}

static void look_collection(struct world *w, uint64_t namespace_id, uint64_t collection_id)
{
    struct sf_buf key = {0};
    sf_catalog_key_statistics_head(&key, namespace_id, collection_id);
    elders_look(w, &key, &searchfabric__v1__optimizer_statistics_head_object__descriptor);
    sf_buf_clear(&key);
    sf_catalog_key_manifest_head(&key, namespace_id, collection_id);
    elders_look(w, &key, &searchfabric__v1__manifest_head_object__descriptor);
    sf_buf_fini(&key);
}

static void look_shared(struct world *w)
{
    struct sf_buf key = {0};
    sf_catalog_key_quota(&key, w->shared_namespace);
    elders_look(w, &key, &searchfabric__v1__namespace_quota_state_object__descriptor);
    sf_buf_clear(&key);
    sf_catalog_key_namespace_name(&key, "shared");
    elders_look(w, &key, &searchfabric__v1__namespace_name_epoch_object__descriptor);
    sf_buf_fini(&key);
}

static void look_retention(struct world *w)
{
    struct sf_buf key = {0};
    sf_buf_append_str(&key, SF_CATALOG_REMOVALS_KEY);
    elders_look(w, &key, &searchfabric__v1__catalog_removals_object__descriptor);
    sf_buf_clear(&key);
    sf_buf_append_str(&key, SF_CATALOG_BOUNDARY_KEY);
    look(w, &key, &searchfabric__v1__catalog_boundary_object__descriptor,
         "lowest_recovery_segment_epoch");
    sf_buf_fini(&key);
}

void elders_watch(struct sim *sim, void *ctx)
{
    struct world *w = ctx;
    (void)sim;
    look_retention(w);
    if (w->shared_namespace != 0)
        look_shared(w);
    if (w->shared_collection != 0)
        look_collection(w, w->shared_namespace, w->shared_collection);
    for (size_t i = 0; w->history != NULL && i < w->history->seen_count; i++) {
        const struct seen *seen = &w->history->seen[i];
        if (seen->coll_id != 0)
            look_collection(w, seen->ns_id, seen->coll_id);
    }
}

void elders_fini(struct world *w)
{
    for (size_t i = 0; i < w->elder_count; i++) {
        sf_buf_fini(&w->elders[i].key);
        sf_buf_fini(&w->elders[i].body);
    }
}
