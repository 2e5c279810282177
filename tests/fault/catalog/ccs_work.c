/*
 * What clients of a lineage run do: a small set of names, ids and keys, used again on purpose. Keys
 * come back with the same payload and with another one, intents are repeated, ids of lineages that
 * ended are asked for, schema generations are put again under other keys.
 */
#include "fault/catalog/ccs_history.h"

static uint64_t below(struct history *h, uint64_t n)
{
    return sf_rng_below(sim_rng(h->w->sim), n);
}

static bool chance(struct history *h, unsigned percent)
{
    return below(h, 100) < percent;
}

/* ---- what is known ------------------------------------------------------------------------ */

static void learn(struct history *h, const struct op *op, int coll_name, uint64_t ns_id,
                  uint64_t coll_id)
{
    for (size_t i = 0; i < h->seen_count; i++) {
        if (h->seen[i].ns_id == ns_id && h->seen[i].coll_id == coll_id)
            return;
    }
    SF_ASSERT(h->seen_count < MAX_LINEAGES);
    h->seen[h->seen_count++] = (struct seen){
        .ns_name = op->ns_name, .coll_name = coll_name, .ns_id = ns_id, .coll_id = coll_id};
}

void work_learn(struct history *h, const struct asked *asked)
{
    const struct op *op = &asked->op;
    if (asked->err != SF_OK)
        return;
    if (op->kind == OP_PUT_NS) {
        const SF_PB(PutNamespaceMetadataResponse) *put = (const void *)asked->response;
        learn(h, op, NO_NAME, put->descriptor->namespace_id, 0);
    } else if (op->kind == OP_PUT_COLL) {
        const SF_PB(PutCollectionMetadataResponse) *put = (const void *)asked->response;
        learn(h, op, op->coll_name, op->ns_id, put->descriptor->collection->collection_id);
    }
}

/* A lineage by lot, mostly one of the newest; NULL = none is known. */
static const struct seen *draw_seen(struct history *h, bool collection)
{
    const struct seen *found[MAX_LINEAGES];
    size_t count = 0;
    for (size_t i = h->seen_count; i-- > 0;) {
        if ((h->seen[i].coll_id != 0) == collection)
            found[count++] = &h->seen[i];
    }
    if (count == 0)
        return NULL;
    size_t newest = count < 3 ? count : 3;
    return found[chance(h, 75) ? below(h, newest) : below(h, count)];
}

/* ---- new ops ------------------------------------------------------------------------------ */

static void name_key(struct history *h, struct op *op)
{
    op->value = ++h->next_value;
    snprintf(op->key, sizeof(op->key), "k%" PRIu64, ++h->next_key);
}

/* Highest schema version that anybody put to the collection. */
static uint64_t last_version(const struct history *h, uint64_t coll_id)
{
    uint64_t last = 0;
    for (size_t i = 0; i < h->call_count; i++) {
        const struct op *op = &h->calls[i].op;
        if (op->kind == OP_SCHEMA && op->coll_id == coll_id && op->version > last)
            last = op->version;
    }
    return last;
}

/* The generation once more under another key, with the same content or another one. */
static bool repeat_schema(struct history *h, struct op *op)
{
    for (size_t i = h->call_count; i-- > 0;) {
        const struct op *other = &h->calls[i].op;
        if (other->kind != OP_SCHEMA || other->coll_id != op->coll_id)
            continue;
        op->version = other->version;
        if (chance(h, 60))
            op->value = other->value;
        return true;
    }
    return false;
}

uint64_t work_guess_revision(struct history *h, uint64_t ns_id)
{
    struct sf_arena *arena = sf_arena_new((size_t)1 << 20);
    struct sf_buf key = {0};
    struct sf_list_entry *entries = NULL;
    size_t count = 0;
    uint64_t newest = 0;
    sf_catalog_key_namespace(&key, ns_id, 1);
    size_t prefix = key.len;
    while (prefix > 0 && key.data[prefix - 1] != 'v')
        prefix--;
    enum sf_err err =
        sf_store_list_wait(sim_backend(h->w->sim), NULL, sf_view_bytes(key.data, prefix),
                           sf_view_str(""), 100, arena, &entries, &count);
    SF_ASSERT(err == SF_OK);
    for (size_t i = 0; i < count; i++) {
        uint64_t revision = 0;
        for (size_t at = prefix; at < entries[i].key.len && entries[i].key.ptr[at] != '.'; at++)
            revision = revision * 10 + (uint64_t)(entries[i].key.ptr[at] - '0');
        newest = revision > newest ? revision : newest;
    }
    sf_buf_fini(&key);
    sf_arena_destroy(arena);
    return newest;
}

static bool scope_collection(struct history *h, struct op *op)
{
    const struct seen *seen = draw_seen(h, true);
    if (seen == NULL)
        return false;
    op->ns_name = seen->ns_name;
    op->coll_name = seen->coll_name;
    op->ns_id = seen->ns_id;
    op->coll_id = seen->coll_id;
    return true;
}

static bool scope_namespace(struct history *h, struct op *op)
{
    const struct seen *seen = draw_seen(h, false);
    if (seen == NULL)
        return false;
    op->ns_name = seen->ns_name;
    op->ns_id = seen->ns_id;
    return true;
}

static bool fill_transition(struct history *h, struct op *op)
{
    static const uint64_t targets[] = {SF_PBE(NAMESPACE_LIFECYCLE_STATE, ACTIVE),
                                       SF_PBE(NAMESPACE_LIFECYCLE_STATE, QUIESCING),
                                       SF_PBE(NAMESPACE_LIFECYCLE_STATE, TOMBSTONED)};
    if (!scope_namespace(h, op))
        return false;
    op->target = targets[below(h, SF_ARRAY_LEN(targets))];
    op->expected = (int64_t)work_guess_revision(h, op->ns_id) - (chance(h, 15) ? 1 : 0);
    return op->expected > 0;
}

/* Where the collection's head stands as far as an answer told. */
static uint64_t known_head(const struct history *h, uint64_t coll_id)
{
    uint64_t head = 0;
    for (size_t i = 0; i < h->call_count; i++) {
        const struct asked *asked = &h->calls[i];
        const SF_PB(SubmitHeadAdvanceIntentResponse) *response = (const void *)asked->response;
        if (asked->op.kind == OP_HEAD && asked->op.coll_id == coll_id && response != NULL &&
            response->manifest_head_version > head)
            head = response->manifest_head_version;
    }
    return head;
}

/* An advance to what was published, sometimes past it or from a wrong head. */
static bool fill_head(struct history *h, struct op *op)
{
    if (!scope_collection(h, op))
        return false;
    struct seen *seen = publish_of(h, op->coll_id);
    if (chance(h, 70))
        publish(h, seen);
    if (seen->published == 0)
        return false;
    op->version = chance(h, 70) ? seen->published : 1 + below(h, seen->published);
    snprintf(op->sum, sizeof(op->sum), "%s", seen->checksums[op->version]);
    uint64_t head = chance(h, 85) ? known_head(h, op->coll_id) : below(h, op->version);
    op->expected = head == 0 && chance(h, 50) ? -1 : (int64_t)head;
    if (chance(h, 8)) {
        op->version = seen->published + 1;
        snprintf(op->sum, sizeof(op->sum), "not-published-yet");
    }
    return op->expected < (int64_t)op->version;
}

static bool fill_command(struct history *h, struct op *op)
{
    switch (op->kind) {
    case OP_PUT_NS:
        op->ns_name = (int)below(h, NS_NAMES);
        name_key(h, op);
        return true;
    case OP_PUT_COLL:
        op->coll_name = (int)below(h, COLL_NAMES);
        name_key(h, op);
        return scope_namespace(h, op);
    case OP_SCHEMA:
        name_key(h, op);
        if (!scope_collection(h, op))
            return false;
        if (!chance(h, 30) || !repeat_schema(h, op))
            op->version = last_version(h, op->coll_id) + 1;
        return true;
    case OP_DROP:
        name_key(h, op);
        op->fenced = chance(h, 35);
        if (!scope_collection(h, op))
            return false;
        op->version = last_version(h, op->coll_id);
        op->fenced = op->fenced && op->version != 0;
        return true;
    case OP_HEAD:
        return fill_head(h, op);
    default:
        return fill_transition(h, op);
    }
}

static bool fill_read(struct history *h, struct op *op)
{
    switch (op->kind) {
    case OP_LIST_NS:
        return true;
    case OP_GET_NS:
        op->ns_name = (int)below(h, NS_NAMES);
        return chance(h, 50) || scope_namespace(h, op);
    case OP_GET_SCHEMA:
    case OP_ADMISSION:
        return scope_collection(h, op);
    case OP_GET_COLL:
        if (chance(h, 50))
            return scope_collection(h, op);
        break;
    case OP_SWEEP:
        return chance(h, 60) || scope_namespace(h, op);
    default:
        break;
    }
    op->coll_name = (int)below(h, COLL_NAMES);
    return scope_namespace(h, op);
}

/* An earlier command again under its key, or another payload under it. */
static bool draw_repeat(struct history *h, struct op *op)
{
    if (h->call_count == 0)
        return false;
    for (int tries = 0; tries < 8; tries++) {
        const struct op *other = &h->calls[below(h, h->call_count)].op;
        if (other->kind > OP_LAST_COMMAND)
            continue;
        *op = *other;
        if (op->key[0] == '\0' || chance(h, 65))
            return true;
        if (op->kind == OP_DROP && op->version != 0)
            op->fenced = !op->fenced;
        else if (op->kind != OP_DROP)
            op->value = ++h->next_value;
        return true;
    }
    return false;
}

static bool draw_op(struct history *h, struct op *op)
{
    static const enum op_kind lot[] = {
        OP_PUT_NS,     OP_PUT_NS,     OP_PUT_COLL,   OP_PUT_COLL, OP_PUT_COLL, OP_PUT_COLL,
        OP_SCHEMA,     OP_SCHEMA,     OP_DROP,       OP_DROP,     OP_DROP,     OP_TRANSITION,
        OP_SWEEP,      OP_TRANSITION, OP_TRANSITION, OP_SWEEP,    OP_SWEEP,    OP_GET_NS,
        OP_GET_COLL,   OP_GET_COLL,   OP_RESOLVE,    OP_RESOLVE,  OP_LIST_NS,  OP_LIST_COLL,
        OP_GET_SCHEMA, OP_ADMISSION,  OP_ADMISSION,  OP_HEAD,     OP_HEAD,     OP_HEAD};
    if (chance(h, h->repeat_percent) && draw_repeat(h, op))
        return true;
    *op = (struct op){
        .kind = lot[below(h, SF_ARRAY_LEN(lot))], .ns_name = NO_NAME, .coll_name = NO_NAME};
    if (!h->served[op->kind])
        return false;
    return op->kind <= OP_LAST_COMMAND ? fill_command(h, op) : fill_read(h, op);
}

void work_step(struct client *c)
{
    struct history *h = c->w->history;
    struct op op;
    while (!draw_op(h, &op)) {
    }
    work_learn(h, perform(c, NULL, &op));
    sf_arena_reset(c->arena);
}
