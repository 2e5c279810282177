/*
 * Judges each call: is there a state of its lineage, between what was known to stand when the call
 * began and what the chain held when it ended, that explains the answer? The earliest such state
 * is known to stand from then on. Calls are judged in the order in which they ended.
 */
#include "fault/catalog/ccs_history.h"

/* A call under judgement. */
struct trial {
    struct history *h;
    struct asked *asked;
    const struct command *own; /* committed under its key or intent, NULL = none */
    size_t own_pos;            /* number of that, from 1 */
    size_t low, high;          /* states low..high come into question */
};

static bool of_namespace(const struct command *command)
{
    return command->coll_name == NO_NAME;
}

/* Does a command exclude what the op asks for? Updates of a namespace do not touch its children. */
static bool concerns(const struct command *command, const struct op *op)
{
    bool by_coll = op->kind != OP_PUT_NS && op->kind != OP_TRANSITION && op->kind != OP_GET_NS &&
                   op->kind != OP_LIST_NS;
    const SF_PB(CommandOutcomeObject) *o = command->outcome;
    if (command->ns_name != op->ns_name)
        return false;
    if (!of_namespace(command))
        return by_coll ? command->coll_name == op->coll_name : op->kind == OP_TRANSITION;
    return !by_coll || o->command_kind != SF_PBE(COMMAND_KIND, PUT_NAMESPACE_METADATA) ||
           o->control_objects == NULL || strstr(o->control_objects[0]->key, "_v1.json") != NULL;
}

static bool is_candidate(const struct trial *t, size_t pos)
{
    return pos == t->low || concerns(&t->h->commands[pos - 1], &t->asked->op);
}

/* Something changed under the call while it was on its way. */
static bool has_race(const struct trial *t)
{
    for (size_t pos = t->low + 1; pos <= t->high; pos++) {
        if (concerns(&t->h->commands[pos - 1], &t->asked->op))
            return true;
    }
    return false;
}

static bool is_living(const struct ns_state *ns)
{
    return ns != NULL && (ns->life == LIFE_ACTIVE || ns->life == LIFE_QUIESCING);
}

/* ---- refusals of commands ----------------------------------------------------------------- */

static bool put_ns_refused(const struct trial *t, const struct state *s)
{
    const struct ns_state *ns = model_ns_named(s, t->asked->op.ns_name);
    if (t->asked->err != SF_VERSION_CONFLICT)
        return false;
    return strcmp(t->asked->detail, "resolved_namespace_lineage") == 0
               ? has_race(t)
               : ns != NULL && ns->life == LIFE_TOMBSTONED;
}

static bool put_coll_refused(const struct trial *t, const struct state *s)
{
    const struct op *op = &t->asked->op;
    const struct ns_state *ns = model_ns(s, op->ns_id);
    const struct coll_state *coll = model_coll_named(s, op->ns_id, op->coll_name);
    if (t->asked->err == SF_RESOURCE_NOT_FOUND)
        return ns == NULL || ns->life == LIFE_RELEASED;
    if (t->asked->err != SF_VERSION_CONFLICT || ns == NULL)
        return false;
    if (strcmp(t->asked->detail, "resolved_collection_lineage") == 0)
        return has_race(t);
    if (strcmp(t->asked->detail, "parent_namespace") == 0)
        return ns->life == LIFE_TOMBSTONED || (ns->life == LIFE_QUIESCING && coll == NULL) ||
               has_race(t);
    return coll != NULL && coll->life == LIFE_TOMBSTONED;
}

static bool schema_refused(const struct trial *t, const struct state *s)
{
    const struct op *op = &t->asked->op;
    const struct coll_state *coll = model_coll(s, op->ns_id, op->coll_id);
    if (coll == NULL || coll->life != LIFE_ACTIVE)
        return t->asked->err == SF_RESOURCE_NOT_FOUND;
    return op->version <= coll->schema_version &&
           (t->asked->err == SF_VERSION_CONFLICT || t->asked->err == SF_IDEMPOTENCY_CONFLICT);
}

static bool drop_refused(const struct trial *t, const struct state *s)
{
    const struct op *op = &t->asked->op;
    const struct coll_state *coll = model_coll(s, op->ns_id, op->coll_id);
    if (coll == NULL || coll->life == LIFE_RELEASED)
        return t->asked->err == SF_RESOURCE_NOT_FOUND;
    return t->asked->err == SF_VERSION_CONFLICT && coll->life == LIFE_ACTIVE && op->fenced &&
           op->version != coll->schema_version;
}

static bool has_active_child(const struct state *s, uint64_t ns_id)
{
    for (size_t i = 0; i < s->coll_count; i++) {
        if (s->coll[i].ns_id == ns_id && s->coll[i].life == LIFE_ACTIVE)
            return true;
    }
    return false;
}

static bool transition_refused(const struct trial *t, const struct state *s)
{
    const struct op *op = &t->asked->op;
    const struct ns_state *ns = model_ns(s, op->ns_id);
    if (ns == NULL || ns->life == LIFE_RELEASED)
        return t->asked->err == SF_RESOURCE_NOT_FOUND;
    if (t->asked->err != SF_VERSION_CONFLICT)
        return false;
    if ((uint64_t)op->expected != ns->revision || ns->life == LIFE_TOMBSTONED)
        return true;
    if (op->target == SF_PBE(NAMESPACE_LIFECYCLE_STATE, ACTIVE))
        return ns->life != LIFE_QUIESCING;
    if (op->target == SF_PBE(NAMESPACE_LIFECYCLE_STATE, QUIESCING))
        return ns->life != LIFE_ACTIVE;
    return has_active_child(s, ns->id);
}

static bool head_refused(const struct trial *t, const struct state *s)
{
    const struct op *op = &t->asked->op;
    const struct coll_state *coll = model_coll(s, op->ns_id, op->coll_id);
    if (coll == NULL || coll->life != LIFE_ACTIVE)
        return t->asked->err == SF_RESOURCE_NOT_FOUND;
    uint64_t expected = op->expected < 0 ? 0 : (uint64_t)op->expected;
    const struct seen *seen = publish_of(t->h, op->coll_id);
    bool unpublished = seen == NULL || op->version > seen->published ||
                       seen->published_seq[op->version] > t->asked->start_seq ||
                       strcmp(seen->checksums[op->version], op->sum) != 0;
    return t->asked->err == SF_VERSION_CONFLICT &&
           (expected != coll->head || op->version <= coll->head || unpublished);
}

static bool is_refused(const struct trial *t, const struct state *s)
{
    switch (t->asked->op.kind) {
    case OP_PUT_NS:
        return put_ns_refused(t, s);
    case OP_PUT_COLL:
        return put_coll_refused(t, s);
    case OP_SCHEMA:
        return schema_refused(t, s);
    case OP_DROP:
        return drop_refused(t, s);
    case OP_TRANSITION:
        return transition_refused(t, s);
    default:
        return head_refused(t, s);
    }
}

/* ---- answers of commands ------------------------------------------------------------------ */

/* Does the request say what the committed command under its key says? */
static bool says_the_same(const struct trial *t)
{
    const SF_PB(CommandOutcomeObject) *o = t->own->outcome;
    if (t->asked->op.kind == OP_DROP)
        return (o->fence != NULL) == t->asked->op.fenced;
    if (o->terminal_state != SF_PBE(COMMAND_TERMINAL_STATE, APPLIED))
        return true;
    return t->own->value == t->asked->op.value || t->asked->op.key[0] == '\0';
}

static bool drop_answered(const struct trial *t, const struct state *s, bool stands)
{
    const struct op *op = &t->asked->op;
    const struct coll_state *coll = model_coll(s, op->ns_id, op->coll_id);
    const SF_PB(DropCollectionSuccessResponse) *response = (const void *)t->asked->response;
    if (response->status == SF_PBE(DROP_COLLECTION_STATUS, ALREADY_DROPPED))
        return coll != NULL && coll->life == LIFE_TOMBSTONED;
    return stands &&
           t->own->outcome->replay_classification == SF_PBE(REPLAY_CLASSIFICATION, ORIGINAL);
}

/* The stored bytes of the command under the call's key. */
static bool is_stored_answer(const struct trial *t)
{
    const SF_PB(CommandOutcomeObject) *o = t->own->outcome;
    size_t size = protobuf_c_message_get_packed_size(t->asked->response);
    uint8_t *bytes = sf_calloc(1, size + 1);
    protobuf_c_message_pack(t->asked->response, bytes);
    bool same = size == o->success_payload.len && memcmp(bytes, o->success_payload.data, size) == 0;
    free(bytes);
    return same;
}

/* ACCEPTED says what the command did, DUPLICATE where the head stands today. */
static bool head_answered(const struct trial *t, const struct state *s, bool stands)
{
    const struct op *op = &t->asked->op;
    const SF_PB(SubmitHeadAdvanceIntentResponse) *response = (const void *)t->asked->response;
    const struct coll_state *coll = model_coll(s, op->ns_id, op->coll_id);
    if (coll == NULL || coll->life != LIFE_ACTIVE)
        return false;
    if (response->outcome == SF_PBE(INTENT_OUTCOME, ACCEPTED))
        return stands && response->manifest_head_version == op->version;
    return response->manifest_head_version == coll->head && coll->head >= op->version;
}

static bool intent_answered(const struct trial *t)
{
    const struct op *op = &t->asked->op;
    const SF_PB(SubmitNamespaceLifecycleTransitionResponse) *response =
        (const void *)t->asked->response;
    return response->namespace_revision == (uint64_t)op->expected + 1 &&
           (uint64_t)response->lifecycle_state == op->target;
}

/* Is the answer what the state gives, once the call's own command is part of it or not? */
static bool command_explained(const struct trial *t, size_t pos)
{
    const struct op *op = &t->asked->op;
    const struct state *s = t->h->states[pos];
    bool stands = t->own != NULL && t->own_pos <= pos;
    if (stands && !says_the_same(t))
        return t->asked->err == SF_IDEMPOTENCY_CONFLICT;
    if (t->asked->err != SF_OK) {
        if (stands && op->kind == OP_DROP)
            return drop_refused(t, s);
        if (stands && op->kind == OP_HEAD)
            return t->asked->err == SF_RESOURCE_NOT_FOUND && head_refused(t, s);
        if (stands)
            return t->own->outcome->terminal_state == SF_PBE(COMMAND_TERMINAL_STATE, FAILED) &&
                   (t->asked->err == SF_IDEMPOTENCY_CONFLICT ||
                    t->asked->err == SF_VERSION_CONFLICT);
        return is_refused(t, s);
    }
    if (op->kind == OP_DROP)
        return drop_answered(t, s, stands);
    if (op->kind == OP_HEAD)
        return head_answered(t, s, stands);
    if (!stands)
        return false;
    return op->key[0] == '\0' ? intent_answered(t) : is_stored_answer(t);
}

/* ---- answers of reads --------------------------------------------------------------------- */

static bool shows_ns(const struct ns_state *ns, const SF_PB(NamespaceDescriptor) * seen)
{
    if (seen == NULL || !is_living(ns))
        return seen == NULL && !is_living(ns);
    SF_PB(NamespaceLifecycle__StateCase)
    branch = ns->life == LIFE_ACTIVE ? SEARCHFABRIC__V1__NAMESPACE_LIFECYCLE__STATE_ACTIVE
                                     : SEARCHFABRIC__V1__NAMESPACE_LIFECYCLE__STATE_QUIESCING;
    return seen->namespace_id == ns->id && option_of(seen->options) == ns->value &&
           seen->lifecycle != NULL && seen->lifecycle->state_case == branch;
}

static bool shows_coll(const struct coll_state *coll, const SF_PB(CollectionDescriptor) * seen)
{
    bool active = coll != NULL && coll->life == LIFE_ACTIVE;
    if (seen == NULL || !active)
        return seen == NULL && !active;
    return seen->collection->collection_id == coll->id && option_of(seen->options) == coll->value &&
           name_index(seen->collection_name) == coll->name;
}

static bool get_ns_explained(const struct trial *t, const struct state *s)
{
    const struct op *op = &t->asked->op;
    const SF_PB(GetNamespaceMetadataResponse) *response = (const void *)t->asked->response;
    const struct ns_state *ns =
        op->ns_id != 0 ? model_ns(s, op->ns_id) : model_ns_named(s, op->ns_name);
    return shows_ns(ns, response == NULL ? NULL : response->descriptor);
}

static bool get_coll_explained(const struct trial *t, const struct state *s)
{
    const struct op *op = &t->asked->op;
    const SF_PB(GetCollectionMetadataResponse) *response = (const void *)t->asked->response;
    const struct coll_state *coll = op->coll_id != 0
                                        ? model_coll(s, op->ns_id, op->coll_id)
                                        : model_coll_named(s, op->ns_id, op->coll_name);
    return shows_coll(coll, response == NULL ? NULL : response->descriptor);
}

static bool resolve_explained(const struct trial *t, const struct state *s)
{
    const struct op *op = &t->asked->op;
    const SF_PB(ResolveCollectionNameBindingResponse) *response = (const void *)t->asked->response;
    const struct coll_state *coll = model_coll_named(s, op->ns_id, op->coll_name);
    if (response == NULL)
        return !is_living(model_ns(s, op->ns_id));
    if (coll == NULL || coll->life != LIFE_ACTIVE)
        return response->collection == NULL;
    return response->collection != NULL && response->collection->collection_id == coll->id;
}

static bool schema_explained(const struct trial *t, const struct state *s)
{
    const struct op *op = &t->asked->op;
    const SF_PB(GetCollectionSchemaResponse) *response = (const void *)t->asked->response;
    const struct coll_state *coll = model_coll(s, op->ns_id, op->coll_id);
    if (coll == NULL || coll->life != LIFE_ACTIVE)
        return t->asked->err == SF_RESOURCE_NOT_FOUND;
    if (coll->schema_version == 0)
        return t->asked->err == SF_CATALOG_UNAVAILABLE;
    return response != NULL && response->schema->applied_schema_version == coll->schema_version &&
           response->schema->effective_max_result_window == coll->schema_value;
}

static bool admission_explained(const struct trial *t, const struct state *s)
{
    const struct op *op = &t->asked->op;
    const SF_PB(GetCollectionAdmissionStateResponse) *response = (const void *)t->asked->response;
    const struct coll_state *coll = model_coll(s, op->ns_id, op->coll_id);
    if (coll == NULL || coll->life == LIFE_RELEASED)
        return t->asked->err == SF_RESOURCE_NOT_FOUND;
    if (response == NULL || response->state == NULL)
        return false;
    if (coll->life == LIFE_TOMBSTONED)
        return response->state->lifecycle == SF_PBE(COLLECTION_ADMISSION_LIFECYCLE, TOMBSTONED);
    uint64_t active = response->state->_active_schema_version_case != 0
                          ? response->state->active_schema_version
                          : 0;
    return response->state->lifecycle == SF_PBE(COLLECTION_ADMISSION_LIFECYCLE, ACTIVE) &&
           active == coll->schema_version;
}

/* The part of a list that the op's name stands for. */
static bool list_explained(const struct trial *t, const struct state *s)
{
    const struct op *op = &t->asked->op;
    if (op->kind == OP_LIST_NS) {
        const SF_PB(ListNamespacesResponse) *list = (const void *)t->asked->response;
        const SF_PB(NamespaceDescriptor) *seen = NULL;
        for (size_t i = 0; i < list->n_namespaces; i++) {
            if (name_index(list->namespaces[i]->namespace_name) == op->ns_name)
                seen = list->namespaces[i];
        }
        return shows_ns(model_ns_named(s, op->ns_name), seen);
    }
    const SF_PB(ListCollectionsResponse) *list = (const void *)t->asked->response;
    const SF_PB(CollectionDescriptor) *seen = NULL;
    if (list == NULL)
        return !is_living(model_ns(s, op->ns_id));
    for (size_t i = 0; i < list->n_collections; i++) {
        if (name_index(list->collections[i]->collection_name) == op->coll_name)
            seen = list->collections[i];
    }
    return shows_coll(model_coll_named(s, op->ns_id, op->coll_name), seen);
}

static bool is_explained(const struct trial *t, size_t pos)
{
    const struct state *s = t->h->states[pos];
    enum op_kind kind = t->asked->op.kind;
    bool found =
        t->asked->err == SF_OK || t->asked->err == SF_RESOURCE_NOT_FOUND || kind == OP_GET_SCHEMA;
    if (kind <= OP_LAST_COMMAND)
        return command_explained(t, pos);
    if (!found)
        return false;
    switch (kind) {
    case OP_GET_NS:
        return get_ns_explained(t, s);
    case OP_GET_COLL:
        return get_coll_explained(t, s);
    case OP_RESOLVE:
        return resolve_explained(t, s);
    case OP_GET_SCHEMA:
        return schema_explained(t, s);
    case OP_ADMISSION:
        return admission_explained(t, s);
    default:
        return list_explained(t, s);
    }
}

/* ---- judgement ---------------------------------------------------------------------------- */

/* What an answer made known: command number `pos` stood when it came. */
struct known {
    uint64_t end_seq;
    size_t pos;
};

static size_t low_of(const struct history *h, const struct asked *asked, const struct known *known,
                     size_t count)
{
    size_t low = 0;
    for (size_t i = 0; i < count; i++) {
        if (known[i].end_seq < asked->start_seq && known[i].pos > low &&
            concerns(&h->commands[known[i].pos - 1], &asked->op))
            low = known[i].pos;
    }
    return low;
}

static size_t high_of(const struct history *h, const struct asked *asked)
{
    size_t high = 0;
    while (high < h->command_count && h->commands[high].slot <= asked->end_slot)
        high++;
    return high;
}

SF_NORETURN static void condemn(const struct trial *t)
{
    char text[160];
    struct sf_buf json = {0};
    if (t->asked->response != NULL)
        sf_pbjson_encode(t->asked->response, &json);
    sim_violation(t->h->w->sim,
                  "asked at %" PRId64 "..%" PRId64
                  " ms: %s was answered %s %s %.*s, which no state after %zu..%zu of %zu commands "
                  "explains; its own command: %zu",
                  t->asked->start_ms, t->asked->end_ms, op_text(&t->asked->op, text),
                  sf_err_info(t->asked->err)->name, t->asked->detail, (int)json.len,
                  (const char *)json.data, t->low, t->high, t->h->command_count, t->own_pos);
}

/* Looks for the first state that explains the answer when `own` is the call's command. */
static bool try_own(struct trial *t, const struct command *own, size_t own_pos, size_t *out_pos)
{
    t->own = own;
    t->own_pos = own_pos;
    for (size_t pos = t->low; pos <= t->high; pos++) {
        if (is_candidate(t, pos) && is_explained(t, pos)) {
            *out_pos = pos;
            return true;
        }
    }
    return false;
}

static size_t judge(struct history *h, struct asked *asked, const struct known *known, size_t count)
{
    struct trial t = {.h = h, .asked = asked};
    size_t pos = 0;
    size_t own_pos = 0;
    bool is_new = true; /* nothing stands under its key */
    t.low = low_of(h, asked, known, count);
    t.high = high_of(h, asked);
    for (;;) {
        const struct command *own = history_command_after(h, &asked->op, own_pos, &own_pos);
        if (own == NULL)
            break;
        is_new = is_new && history_aged(h, own, asked->end_ms);
        if (try_own(&t, own, own_pos, &pos))
            return pos;
    }
    if (is_new && try_own(&t, NULL, 0, &pos))
        return pos;
    condemn(&t);
}

/* A list says something of each name. */
static void judge_list(struct history *h, struct asked *asked, const struct known *known,
                       size_t count)
{
    struct asked part = *asked;
    int names = asked->op.kind == OP_LIST_NS ? NS_NAMES : COLL_NAMES;
    for (int i = 0; i < names; i++) {
        if (asked->op.kind == OP_LIST_NS)
            part.op.ns_name = i;
        else
            part.op.coll_name = i;
        (void)judge(h, &part, known, count);
    }
}

static int by_end(const void *left, const void *right)
{
    const struct asked *a = *(const struct asked *const *)left;
    const struct asked *b = *(const struct asked *const *)right;
    return a->end_seq < b->end_seq ? -1 : a->end_seq > b->end_seq;
}

/* No drop is answered as the effective one twice. */
static void judge_drops(const struct history *h)
{
    for (size_t i = 0; i < h->call_count; i++) {
        const struct asked *a = &h->calls[i];
        const SF_PB(DropCollectionSuccessResponse) *response = (const void *)a->response;
        if (a->op.kind != OP_DROP || a->end_seq == 0 || response == NULL ||
            response->status != SF_PBE(DROP_COLLECTION_STATUS, DROPPED))
            continue;
        for (size_t k = 0; k < i; k++) {
            const struct asked *b = &h->calls[k];
            const SF_PB(DropCollectionSuccessResponse) *other = (const void *)b->response;
            if (b->op.kind == OP_DROP && other != NULL && b->op.coll_id == a->op.coll_id &&
                other->status == response->status)
                sim_violation(h->w->sim, "collection %" PRIu64 " was dropped twice", a->op.coll_id);
        }
    }
}

void judge_calls(struct history *h)
{
    struct asked **order = sf_calloc(h->call_count + 1, sizeof(struct asked *));
    struct known *known = sf_calloc(h->call_count + 1, sizeof(*known));
    size_t count = 0;
    size_t known_count = 0;
    for (size_t i = 0; i < h->call_count; i++) {
        if (h->calls[i].end_seq != 0 && h->calls[i].op.kind != OP_SWEEP)
            order[count++] = &h->calls[i];
    }
    qsort(order, count, sizeof(struct asked *), by_end);
    for (size_t i = 0; i < count; i++) {
        if (order[i]->op.kind == OP_LIST_NS || order[i]->op.kind == OP_LIST_COLL) {
            judge_list(h, order[i], known, known_count);
            continue;
        }
        size_t pos = judge(h, order[i], known, known_count);
        if (pos != 0)
            known[known_count++] = (struct known){order[i]->end_seq, pos};
    }
    free(order);
    free(known);
    judge_drops(h);
}
