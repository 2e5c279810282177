/*
 * Model: a namespace whose private policy makes it a whale may get its storage ranges split ahead
 * of its data (note 10.1). The hook runs as a task of its own after the namespace is shown; nothing
 * waits for it, and what becomes of it changes no answer. Without a hook nothing runs.
 */
#include "catalog/catalog_priv.h"

#include <stdlib.h>

#define PRESPLIT_LANE UINT64_C(0x70726573706c6974)

/* One namespace on its way to the hook. */
struct presplit_task {
    struct sf_task task;        /* on the hook's lane */
    struct sf_catalog *catalog; /* immutable */
    uint64_t namespace_id;      /* immutable */
};

static void presplit_run(struct sf_task *task)
{
    struct presplit_task *self = SF_CONTAINER_OF(task, struct presplit_task, task);
    struct sf_catalog *catalog = self->catalog;
    struct sf_catalog_presplit *hook = catalog->deps.presplit;
    enum sf_err err = hook->split(hook, catalog->deps.sched, self->namespace_id);
    if (err != SF_OK)
        SF_LOG(WARN, "catalog_presplit_failed", SF_KV_U64("namespace_id", self->namespace_id),
               SF_KV_STR("error", sf_err_info(err)->name));
    free(self);
    sf_catalog_leave(catalog);
}

void sf_catalog_presplit(struct sf_catalog *catalog, const ProtobufCMessage *object)
{
    if (catalog->deps.presplit == NULL || object == NULL ||
        object->descriptor != &searchfabric__v1__namespace_descriptor_object__descriptor)
        return;
    const SF_PB(NamespaceDescriptorObject) *created =
        (const SF_PB(NamespaceDescriptorObject) *)object;
    struct sf_diag diag;
    sf_diag_init(&diag);
    if (created->namespace_revision != 1 || created->internal_policy_state == NULL ||
        strcmp(created->internal_policy_state->policy_profile, SF_CATALOG_WHALE_PROFILE) != 0 ||
        !sf_catalog_enter(catalog, false, &diag))
        return;
    struct presplit_task *self = sf_calloc(1, sizeof(*self));
    *self = (struct presplit_task){
        .task.run = presplit_run, .catalog = catalog, .namespace_id = created->namespace_id};
    if (sf_sched_submit(catalog->deps.sched, PRESPLIT_LANE, &self->task) == SF_OK)
        return;
    SF_LOG(WARN, "catalog_presplit_failed", SF_KV_U64("namespace_id", created->namespace_id),
           SF_KV_STR("error", "the catalog is busy"));
    free(self);
    sf_catalog_leave(catalog);
}
