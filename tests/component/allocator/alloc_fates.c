#include "component/allocator/alloc_fates.h"

#include "base/mutant.h"

struct fates fates;

static enum script_fate put_fate(void *ctx, const struct sf_put *put)
{
    struct fates *f = ctx;

    if (script_is_state_key(put->key)) {
        unsigned n = f->state_seen++;
        return n < f->state_count ? f->state[n] : f->state_rest;
    }
    if (f->before_replay != NULL)
        f->before_replay(f->world);
    unsigned n = f->replay_seen++;
    return n < f->replay_count ? f->replay[n] : f->replay_rest;
}

static enum sf_err get_fate(void *ctx, struct sf_view key)
{
    const struct fates *f = ctx;

    return f->get_fails_state_only && !script_is_state_key(key) ? SF_OK : f->get_failure;
}

void fates_calm(struct world *w)
{
    fates = (struct fates){.world = w};
    script_store_on(w->script, put_fate, get_fate, &fates);
}

int fates_setup(void **state)
{
    int rc = world_setup(state);
    if (rc == 0)
        fates_calm(*state);
    return rc;
}

int fates_teardown(void **state)
{
    sf_mutant_set(SF_MUTANT_ID_NONE);
    return world_teardown(state);
}

struct process *fates_restart(struct world *w)
{
    world_kill(&w->processes[w->process_count - 1]);
    fates_calm(w);
    return world_start(w);
}

bool results_same(const struct result *a, const struct result *b)
{
    return a->diag.err == SF_OK && b->diag.err == SF_OK && a->packed.len > 0 &&
           sf_view_equal(sf_buf_view(&a->packed), sf_buf_view(&b->packed));
}
