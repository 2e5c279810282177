/* The waiting form of a timestamp request, and the common destroy. */
#include "tso/tso.h"

struct tso_wait {
    struct sf_tso_request request; /* the demand */
    struct sf_waiter waiter;       /* woken by its completion */
};

static void wait_done(struct sf_tso_request *request)
{
    sf_waiter_wake(&SF_CONTAINER_OF(request, struct tso_wait, request)->waiter);
}

enum sf_err sf_tso_get_wait(struct sf_tso_source *source, struct sf_sched *sched, uint32_t count,
                            struct sf_tso *out_first)
{
    struct tso_wait wait = {.request = {.count = count, .done = wait_done}};

    if (source->vtable->take != NULL && source->vtable->take(source, count, out_first))
        return SF_OK;
    sf_waiter_init(&wait.waiter, sched);
    sf_tso_get(source, &wait.request);
    sf_waiter_wait(&wait.waiter);
    sf_waiter_fini(&wait.waiter);
    *out_first = wait.request.first;
    return wait.request.err;
}

void sf_tso_source_destroy(struct sf_tso_source *source)
{
    if (source != NULL)
        source->vtable->destroy(source);
}
