/*
 * Progress, at the end of a run, when owners are stable: no name is stuck. Whatever the run left of
 * a namespace name, it can be brought to a living namespace with a child of each name; all of that
 * can be dropped and released, and the names taken again. Every call is judged as the others are.
 */
#include "fault/catalog/ccs_history.h"

#define TRIES 24

static struct asked *ask_new(struct client *c, struct op op)
{
    struct history *h = c->w->history;
    if (op.kind < OP_LAST_COMMAND && op.kind != OP_TRANSITION) {
        op.value = ++h->next_value;
        snprintf(op.key, sizeof(op.key), "k%" PRIu64, ++h->next_key);
    }
    struct asked *asked = perform(c, c->w->rebuilder, &op);
    work_learn(h, asked);
    sf_arena_reset(c->arena);
    return asked;
}

SF_NORETURN static void stuck(struct client *c, const struct asked *asked, const char *what)
{
    char text[160];
    sim_violation(c->w->sim, "%s: %s is still answered %s %s", what, op_text(&asked->op, text),
                  sf_err_info(asked->err)->name, asked->detail);
}

/* Lets horizons pass and releases what may be released. */
static void sweep(struct client *c)
{
    if (!c->w->history->served[OP_SWEEP])
        return;
    sim_sleep(c->process, CCS_GC_DELAY_MS);
    (void)ask_new(c, (struct op){.kind = OP_SWEEP, .ns_name = NO_NAME, .coll_name = NO_NAME});
}

/* From whatever revision it has. */
static struct asked *transition(struct client *c, int name, uint64_t ns_id, uint64_t target)
{
    struct asked *asked = NULL;
    uint64_t newest = work_guess_revision(c->w->history, ns_id);
    for (uint64_t back = 0; back < 4 && back < newest; back++) {
        asked = ask_new(c, (struct op){.kind = OP_TRANSITION,
                                       .ns_name = name,
                                       .ns_id = ns_id,
                                       .coll_name = NO_NAME,
                                       .target = target,
                                       .expected = (int64_t)(newest - back)});
        if (asked->err == SF_OK)
            return asked;
    }
    return asked;
}

/* A living namespace of the name. */
static uint64_t revive_namespace(struct client *c, int name)
{
    struct asked *asked = NULL;
    for (int i = 0; i < TRIES; i++) {
        asked = ask_new(c, (struct op){.kind = OP_PUT_NS, .ns_name = name, .coll_name = NO_NAME});
        if (asked->err == SF_OK)
            return ((const SF_PB(PutNamespaceMetadataResponse) *)asked->response)
                ->descriptor->namespace_id;
        sweep(c);
    }
    stuck(c, asked, "a namespace name is stuck");
}

static uint64_t revive_collection(struct client *c, int name, uint64_t ns_id, int coll_name)
{
    struct asked *asked = NULL;
    for (int i = 0; i < TRIES; i++) {
        asked = ask_new(
            c, (struct op){
                   .kind = OP_PUT_COLL, .ns_name = name, .ns_id = ns_id, .coll_name = coll_name});
        if (asked->err == SF_OK)
            return ((const SF_PB(PutCollectionMetadataResponse) *)asked->response)
                ->descriptor->collection->collection_id;
        if (strcmp(asked->detail, "parent_namespace") == 0)
            (void)transition(c, name, ns_id, SF_PBE(NAMESPACE_LIFECYCLE_STATE, ACTIVE));
        sweep(c);
    }
    stuck(c, asked, "a collection name is stuck");
}

/* Drops the children, tombstones the namespace, and waits until its name is free. */
static void bury_namespace(struct client *c, int name, uint64_t ns_id,
                           const uint64_t coll_ids[COLL_NAMES])
{
    struct asked *asked = NULL;
    for (int i = 0; i < COLL_NAMES; i++) {
        asked = ask_new(c, (struct op){.kind = OP_DROP,
                                       .ns_name = name,
                                       .coll_name = i,
                                       .ns_id = ns_id,
                                       .coll_id = coll_ids[i]});
        if (asked->err != SF_OK)
            stuck(c, asked, "a collection cannot be dropped");
    }
    asked = transition(c, name, ns_id, SF_PBE(NAMESPACE_LIFECYCLE_STATE, TOMBSTONED));
    if (asked->err != SF_OK)
        stuck(c, asked, "a namespace cannot be tombstoned");
    for (int i = 0; i < TRIES; i++) {
        sweep(c);
        asked = ask_new(c, (struct op){.kind = OP_PUT_NS, .ns_name = name, .coll_name = NO_NAME});
        if (asked->err == SF_OK)
            return;
    }
    stuck(c, asked, "a released namespace name cannot be taken again");
}

void revive_names(struct client *c)
{
    struct history *h = c->w->history;
    int name = (int)sf_rng_below(sim_rng(c->w->sim), NS_NAMES);
    uint64_t ns_id = revive_namespace(c, name);
    uint64_t coll_ids[COLL_NAMES];
    for (int i = 0; i < COLL_NAMES; i++)
        coll_ids[i] = revive_collection(c, name, ns_id, i);
    if (h->served[OP_DROP] && h->served[OP_TRANSITION] && h->served[OP_SWEEP])
        bury_namespace(c, name, ns_id, coll_ids);
}
