/*
 * The binding revision of a namespace, as gateways use it: an answer, positive or negative, may be
 * cached while the revision is unchanged. So the revision never goes back, one value never stands
 * for two bindings of a name, and a binding that was changed has another revision than any that was
 * seen before the change was asked for. All of it across owners and rebuilds.
 */
#include "fault/catalog/ccs_history.h"

/* What an answer said of one name, or of one collection. */
struct sight {
    const struct asked *asked;
    uint64_t revision;
    bool by_name;        /* else by id */
    uint64_t collection; /* bound id, 0 = none; by id: the lifecycle */
};

static bool see(const struct asked *asked, struct sight *out)
{
    *out = (struct sight){.asked = asked};
    if (asked->end_seq == 0 || asked->response == NULL)
        return false;
    if (asked->op.kind == OP_RESOLVE) {
        const SF_PB(ResolveCollectionNameBindingResponse) *resolve = (const void *)asked->response;
        out->by_name = true;
        out->revision = resolve->collection_name_binding_revision;
        out->collection = resolve->collection == NULL ? 0 : resolve->collection->collection_id;
        return true;
    }
    if (asked->op.kind != OP_ADMISSION)
        return false;
    const SF_PB(CollectionAdmissionState) *state =
        ((const SF_PB(GetCollectionAdmissionStateResponse) *)asked->response)->state;
    if (state == NULL)
        return false;
    out->revision = state->collection_name_binding_revision;
    out->collection = state->lifecycle;
    return true;
}

static void compare(const struct history *h, const struct sight *a, const struct sight *b)
{
    char text[160];
    bool same_thing = a->by_name == b->by_name &&
                      a->asked->op.coll_name == b->asked->op.coll_name &&
                      a->asked->op.coll_id == b->asked->op.coll_id;
    if (a->asked->op.ns_id != b->asked->op.ns_id)
        return;
    if (same_thing && a->revision == b->revision && a->collection != b->collection)
        sim_violation(h->w->sim, "%s: revision %" PRIu64 " stands for %" PRIu64 " and for %" PRIu64,
                      op_text(&a->asked->op, text), a->revision, a->collection, b->collection);
    if (a->asked->end_seq < b->asked->start_seq && a->revision > b->revision)
        sim_violation(h->w->sim, "%s: revision %" PRIu64 " after %" PRIu64,
                      op_text(&b->asked->op, text), b->revision, a->revision);
}

/* Was the change of a binding first asked for after `from`, and known to stand before `to`? */
static bool changed_between(const struct history *h, const struct command *change, size_t pos,
                            uint64_t from, uint64_t to)
{
    bool answered = false;
    for (size_t i = 0; i < h->call_count; i++) {
        const struct asked *asked = &h->calls[i];
        size_t at = 0;
        if (asked->first_seq == 0 || history_command(h, &asked->op, &at) != change || at != pos)
            continue;
        if (asked->first_seq < from)
            return false;
        answered = answered || (asked->err == SF_OK && asked->end_seq != 0 && asked->end_seq < to);
    }
    return answered;
}

static bool is_change(const struct command *command)
{
    const SF_PB(CommandOutcomeObject) *o = command->outcome;
    if (o->replay_classification != SF_PBE(REPLAY_CLASSIFICATION, ORIGINAL) ||
        o->n_control_objects == 0)
        return false;
    return o->command_kind == SF_PBE(COMMAND_KIND, DROP_COLLECTION) ||
           (o->command_kind == SF_PBE(COMMAND_KIND, PUT_COLLECTION_METADATA) &&
            strstr(o->control_objects[0]->key, "_descriptor_v1.json") != NULL);
}

/* The sights around each change: the last ones before, the first ones after. */
static void check_change(const struct history *h, size_t pos, const struct sight *sights,
                         size_t count)
{
    const struct command *change = &h->commands[pos - 1];
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < count; k++) {
            const struct asked *before = sights[i].asked;
            const struct asked *after = sights[k].asked;
            if (before->op.ns_id != change->outcome->scope->namespace_id ||
                after->op.ns_id != before->op.ns_id || before->end_seq >= after->start_seq ||
                sights[i].revision != sights[k].revision)
                continue;
            if (changed_between(h, change, pos, before->end_seq, after->start_seq))
                sim_violation(h->w->sim,
                              "revision %" PRIu64 " of namespace %" PRIu64
                              " is the same before and after a binding changed in segment %" PRIu64,
                              sights[i].revision, before->op.ns_id, change->slot);
        }
    }
}

void judge_bindings(struct history *h)
{
    struct sight *sights = sf_calloc(h->call_count + 1, sizeof(*sights));
    size_t count = 0;
    for (size_t i = 0; i < h->call_count; i++)
        count += see(&h->calls[i], &sights[count]);
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < count; k++)
            compare(h, &sights[i], &sights[k]);
    }
    for (size_t pos = 1; pos <= h->command_count; pos++) {
        if (is_change(&h->commands[pos - 1]))
            check_change(h, pos, sights, count);
    }
    free(sights);
}
