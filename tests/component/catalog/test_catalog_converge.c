/* A convergence signal that fails half way: what its block says is what is read from then on, not
 * only after the next start. */
#include <stdatomic.h>

#include "component/catalog/catalog_world.h"

static _Atomic bool heads_unreadable;
static const struct sf_store_vtable *below;
static struct sf_store_vtable above;

static void answer_unavailable(struct sf_task *task)
{
    struct sf_get *get = SF_CONTAINER_OF(task, struct sf_get, task);
    get->done(get);
}

static void get_above(struct sf_store *store, struct sf_get *get)
{
    static const char text[] = "statistics_head";
    bool head = memmem(get->key.ptr, get->key.len, text, sizeof(text) - 1) != NULL;
    if (!head || !atomic_load(&heads_unreadable)) {
        below->get(store, get);
        return;
    }
    get->err = SF_ERR_UNAVAILABLE;
    if (get->loop == NULL) {
        get->done(get);
        return;
    }
    get->task.run = answer_unavailable;
    sf_loop_post(get->loop, &get->task);
}

static const char *sync_state(struct world *w, SF_PB(CollectionRef) * ref)
{
    SF_PB(GetSchemaSyncStatusRequest) get;
    searchfabric__v1__get_schema_sync_status_request__init(&get);
    get.meta = world_meta(w, "", SF_PBE(CLIENT_KIND, CONTROL_ADMIN));
    get.collection = ref;
    const void *answer = world_call(w, "GetSchemaSyncStatus", &get);
    assert_non_null(answer);
    return world_json(w, answer);
}

static void test_half_a_signal_is_read_at_once(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t collection = world_collection(w, "c", ns, "books");
    SF_PB(CollectionRef) ref;
    SF_PB(ReportSchemaConvergenceSignalRequest) signal;
    world_schema(w, "s", ns, collection, 1, "tok-1");
    searchfabric__v1__collection_ref__init(&ref);
    ref.namespace_id = ns;
    ref.collection_id = collection;
    assert_non_null(strstr(sync_state(w, &ref), "applying")); /* adopted by this look */

    above = *w->wire.base.vtable;
    below = w->wire.base.vtable;
    above.get = get_above;
    w->wire.base.vtable = &above;
    atomic_store(&heads_unreadable, true);
    searchfabric__v1__report_schema_convergence_signal_request__init(&signal);
    signal.collection = &ref;
    signal.schema_version = 1;
    signal.schema_generation_token = (char *)(uintptr_t) "tok-1";
    signal.signal = SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, SERVING_GENERATION_READY);
    assert_null(world_call(w, "ReportSchemaConvergenceSignal", &signal));
    assert_int_equal(w->diag.err, SF_BACKEND_UNAVAILABLE);
    atomic_store(&heads_unreadable, false);

    /* the block was swapped before the failure, so the generation is READY, now and after a start
     */
    const char *now = sync_state(w, &ref);
    w->wire.base.vtable = below;
    world_restart(w);
    assert_string_equal(now, sync_state(w, &ref));
    assert_non_null(strstr(now, "ready"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(
        test_half_a_signal_is_read_at_once, world_setup, world_teardown)};
    return SF_RUN_TESTS("catalog_converge", tests);
}
