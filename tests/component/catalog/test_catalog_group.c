/* Groups of commands: more of them wait than one group takes. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "component/catalog/catalog_world.h"

#define CREATE    "/searchfabric.v1.CatalogControlService/PutCollectionMetadata"
#define AT_ONCE   600u
#define LATE      3u
#define SETTLE_US 20000 /* from a trace point to the queue, from an answer to an idle worker */
#define PATIENCE  1500  /* times SETTLE_US */

/* Creates under way, and a store whose batches wait for the test. */
struct crowd {
    struct sf_catalog_trace trace;
    _Atomic unsigned planned;  /* commands about to be queued for a group */
    _Atomic unsigned batches;  /* begun; each is a group */
    _Atomic unsigned let_go;   /* of them */
    _Atomic unsigned answered; /* calls */
    _Atomic unsigned failed;   /* calls that were not applied */
};

static void on_apply(struct sf_catalog_trace *trace, const char *request, const char *lane)
{
    (void)request, (void)lane;
    atomic_fetch_add(&SF_CONTAINER_OF(trace, struct crowd, trace)->planned, 1);
}

static void on_batch(void *arg)
{
    struct crowd *crowd = arg;
    unsigned number = atomic_fetch_add(&crowd->batches, 1) + 1;
    while (atomic_load(&crowd->let_go) < number)
        usleep(1000);
}

static void on_answer(void *user, const struct sf_diag *diag, const ProtobufCMessage *response)
{
    struct crowd *crowd = user;
    if (diag->err != SF_OK || response == NULL)
        atomic_fetch_add(&crowd->failed, 1);
    atomic_fetch_add(&crowd->answered, 1);
}

/* Waits until `*counter` is `wanted`, and a little longer. */
static void await(const _Atomic unsigned *counter, unsigned wanted)
{
    for (unsigned i = 0; i < PATIENCE && atomic_load(counter) != wanted; i++)
        usleep(SETTLE_US);
    assert_int_equal(atomic_load(counter), wanted);
    usleep(SETTLE_US);
}

static void create(struct world *w, struct crowd *crowd, uint64_t ns, unsigned number)
{
    char text[32];
    (void)snprintf(text, sizeof(text), "crowd-%u", number);
    const char *name = sf_arena_str(w->arena, sf_view_str(text));
    sf_channel_unary(w->channel, CREATE, &world_collection_request(w, name, ns, name)->base, NULL,
                     NULL, on_answer, crowd);
}

/* A task that leads while its own command waits behind a whole group returns before its command is
 * ended; the worker's next task, which stands at the same place of the stack, must not take the
 * command for its own. Group sizes: 1, 128, 128, 128, 128, the rest. */
static void test_commands_beyond_a_group_are_answered(void **state)
{
    struct world *w = *state;
    struct crowd crowd = {.trace = {.apply = on_apply}};
    uint64_t ns = world_namespace(w, "n1", "alpha");
    world_stop(w);
    w->trace = &crowd.trace;
    assert_int_equal(world_open(w), SF_OK);
    w->wire.submitted_arg = &crowd;
    w->wire.submitted = on_batch;
    for (unsigned i = 0; i < AT_ONCE; i++)
        create(w, &crowd, ns, i);
    await(&crowd.planned, AT_ONCE);
    for (unsigned late = 0; late < LATE; late++) {
        /* a group begins under the heir; a command comes that leads next, behind all the others */
        atomic_fetch_add(&crowd.let_go, 1);
        await(&crowd.batches, late + 2);
        await(&crowd.answered, late == 0 ? 1 : 1 + 128 * late);
        create(w, &crowd, ns, AT_ONCE + late);
        await(&crowd.planned, AT_ONCE + late + 1);
    }
    atomic_store(&crowd.let_go, UINT32_MAX);
    await(&crowd.answered, AT_ONCE + LATE);
    assert_int_equal(atomic_load(&crowd.failed), 0);
    w->wire.submitted = NULL;
    world_stop(w);
    w->trace = NULL;
    assert_int_equal(world_open(w), SF_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_commands_beyond_a_group_are_answered, world_setup,
                                        world_teardown),
    };
    return SF_RUN_TESTS("catalog_group", tests);
}
