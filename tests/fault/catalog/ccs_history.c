/*
 * Calls and what they were answered, and the committed commands behind them. A call is tried at
 * either contender under the same key until it gets an answer that says something; its window is
 * that of the last try. The chain is read as it grows, since retention removes it.
 */
#include "fault/catalog/ccs_history.h"

#include "contract/served.h"

struct history *history_new(struct world *w)
{
    struct history *h = sf_calloc(1, sizeof(*h));
    h->w = w;
    h->repeat_percent = 20;
    h->arena = sf_arena_new((size_t)256 << 20);
    h->calls = sf_calloc(MAX_CALLS, sizeof(*h->calls));
    h->listed = sf_calloc(MAX_ENTRIES, sizeof(*h->listed));
    h->commands = sf_calloc(MAX_COMMANDS, sizeof(*h->commands));
    h->states = sf_calloc(MAX_COMMANDS + 1, sizeof(struct state *));
    for (int kind = 0; kind < OP_COUNT; kind++)
        h->served[kind] =
            sf_contract_method_find(sf_view_str(op_method((enum op_kind)kind)))->served;
    return h;
}

void history_destroy(struct history *h)
{
    if (h == NULL)
        return;
    sf_arena_destroy(h->arena);
    free(h->calls);
    free(h->listed);
    free(h->commands);
    free(h->states);
    free(h);
}

/* ---- the chain ---------------------------------------------------------------------------- */

static void list_segment(struct history *h, const SF_PB(RecoverySegmentObject) * segment)
{
    for (size_t i = 0; i < segment->n_entries; i++) {
        SF_ASSERT(h->listed_count < MAX_ENTRIES);
        struct listed *listed = &h->listed[h->listed_count++];
        listed->slot = segment->recovery_segment_epoch;
        listed->index = i;
        snprintf(listed->command_identity, sizeof(listed->command_identity), "%s",
                 segment->entries[i]->command_identity);
        snprintf(listed->attempt_id, sizeof(listed->attempt_id), "%s",
                 segment->entries[i]->attempt_id);
    }
}

uint64_t history_tail(struct history *h)
{
    struct sf_buf key = {0};
    struct sf_buf body = {0};
    struct sf_diag diag;
    for (;;) {
        ProtobufCMessage *message = NULL;
        sf_buf_clear(&key);
        sf_buf_clear(&body);
        sf_catalog_key_segment(&key, h->tail + 1);
        enum sf_err err =
            sf_store_get_wait(sim_backend(h->w->sim), NULL, sf_buf_view(&key), &body, NULL);
        if (err == SF_ERR_NOT_FOUND)
            break;
        SF_ASSERT(err == SF_OK);
        struct sf_arena *arena = sf_arena_new((size_t)4 << 20);
        err = sf_catalog_decode(&searchfabric__v1__recovery_segment_object__descriptor, true,
                                sf_buf_view(&body), arena, &diag, &message);
        SF_ASSERT(err == SF_OK);
        list_segment(h, (const void *)message);
        sf_arena_destroy(arena);
        h->tail++;
    }
    sf_buf_fini(&key);
    sf_buf_fini(&body);
    return h->tail;
}

/* ---- committed commands ------------------------------------------------------------------- */

int name_index(const char *name)
{
    bool known = name != NULL && (name[0] == 'n' || name[0] == 'c') && name[1] >= '0' &&
                 name[1] <= '9' && name[2] == '\0';
    return known ? name[1] - '0' : NO_NAME;
}

static const struct listed *entry_of(const struct history *h,
                                     const SF_PB(CommandOutcomeObject) * outcome)
{
    for (size_t i = 0; i < h->listed_count; i++) {
        const struct listed *listed = &h->listed[i];
        if (listed->slot == outcome->entry->recovery_segment_epoch &&
            strcmp(listed->command_identity, outcome->command_identity) == 0 &&
            strcmp(listed->attempt_id, outcome->entry->attempt_id) == 0)
            return listed;
    }
    return NULL;
}

static int by_place(const void *left, const void *right)
{
    const struct command *a = left;
    const struct command *b = right;
    if (a->slot != b->slot)
        return a->slot < b->slot ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* A key whose record was removed by age has another one at another entry. */
static bool is_known(const struct history *h, const SF_PB(CommandOutcomeObject) * outcome)
{
    for (size_t i = 0; i < h->command_count; i++) {
        if (strcmp(h->commands[i].outcome->command_identity, outcome->command_identity) == 0 &&
            h->commands[i].slot == outcome->entry->recovery_segment_epoch)
            return true;
    }
    return false;
}

static void add_command(struct history *h, const SF_PB(CommandOutcomeObject) * outcome)
{
    const struct listed *listed = entry_of(h, outcome);
    if (listed == NULL)
        sim_violation(h->w->sim, "the record of %s names an entry that is not in the chain",
                      outcome->command_identity);
    SF_ASSERT(h->command_count < MAX_COMMANDS);
    h->commands[h->command_count++] = (struct command){.slot = listed->slot,
                                                       .index = listed->index,
                                                       .ns_name = NO_NAME,
                                                       .coll_name = NO_NAME,
                                                       .outcome = outcome};
}

static const ProtobufCMessage *unpack(struct history *h, const ProtobufCMessageDescriptor *desc,
                                      const SF_PB(CommandOutcomeObject) * outcome)
{
    const ProtobufCMessage *message =
        protobuf_c_message_unpack(desc, sf_arena_pb_allocator(h->arena),
                                  outcome->success_payload.len, outcome->success_payload.data);
    SF_ASSERT(message != NULL);
    return message;
}

/* What the request under the record's key said, as the answer repeats it. */
static uint64_t value_of(struct history *h, const SF_PB(CommandOutcomeObject) * outcome)
{
    if (outcome->terminal_state != SF_PBE(COMMAND_TERMINAL_STATE, APPLIED))
        return 0;
    if (outcome->command_kind == SF_PBE(COMMAND_KIND, PUT_NAMESPACE_METADATA)) {
        const SF_PB(PutNamespaceMetadataResponse) *put = (const void *)unpack(
            h, &searchfabric__v1__put_namespace_metadata_response__descriptor, outcome);
        return option_of(put->descriptor->options);
    }
    if (outcome->command_kind == SF_PBE(COMMAND_KIND, PUT_COLLECTION_METADATA)) {
        const SF_PB(PutCollectionMetadataResponse) *put = (const void *)unpack(
            h, &searchfabric__v1__put_collection_metadata_response__descriptor, outcome);
        return option_of(put->descriptor->options);
    }
    if (outcome->command_kind == SF_PBE(COMMAND_KIND, PUT_COLLECTION_SCHEMA)) {
        const SF_PB(PutCollectionSchemaResponse) *put = (const void *)unpack(
            h, &searchfabric__v1__put_collection_schema_response__descriptor, outcome);
        return put->schema->effective_max_result_window;
    }
    return 0;
}

/* Names of a command: its own, else those of the lineage whose id it gives. */
static void name_command(struct history *h, struct command *command)
{
    const SF_PB(CommandScope) *scope = command->outcome->scope;
    command->ns_name = name_index(scope->namespace_name);
    command->coll_name = name_index(scope->collection_name);
    for (size_t i = 0; i < h->command_count; i++) {
        const struct command *other = &h->commands[i];
        SF_PB(CommandKind) kind = other->outcome->command_kind;
        const SF_PB(CommandScope) *named = other->outcome->scope;
        if (command->ns_name == NO_NAME && named->namespace_id == scope->namespace_id &&
            kind == SF_PBE(COMMAND_KIND, PUT_NAMESPACE_METADATA))
            command->ns_name = name_index(named->namespace_name);
        if (command->coll_name == NO_NAME && scope->collection_id != 0 &&
            named->collection_id == scope->collection_id &&
            kind == SF_PBE(COMMAND_KIND, PUT_COLLECTION_METADATA))
            command->coll_name = name_index(named->collection_name);
    }
}

void history_collect(struct history *h)
{
    struct sf_arena *arena = sf_arena_new((size_t)64 << 20);
    struct sf_list_entry *entries = NULL;
    size_t count = 0;
    struct sf_diag diag;
    (void)history_tail(h);
    enum sf_err err =
        sf_store_list_wait(sim_backend(h->w->sim), NULL, sf_view_str("catalog-log/"),
                           sf_view_str(""), SF_LIMIT_LIST_PAGE_ENTRIES, arena, &entries, &count);
    SF_ASSERT(err == SF_OK);
    for (size_t i = 0; i < count; i++) {
        ProtobufCMessage *message = NULL;
        err = sf_durable_read_wait(sim_backend(h->w->sim), NULL, entries[i].key,
                                   &searchfabric__v1__command_outcome_object__descriptor, h->arena,
                                   &diag, &message, NULL);
        SF_ASSERT(err == SF_OK);
        const SF_PB(CommandOutcomeObject) *outcome = (const void *)message;
        if (outcome->abort == NULL && !is_known(h, outcome))
            add_command(h, outcome);
    }
    sf_arena_destroy(arena);
    qsort(h->commands, h->command_count, sizeof(*h->commands), by_place);
    for (size_t i = 0; i < h->command_count; i++) {
        h->commands[i].value = value_of(h, h->commands[i].outcome);
        name_command(h, &h->commands[i]);
    }
}

static bool is_command_of(const struct command *command, const struct op *op)
{
    const SF_PB(CommandOutcomeObject) *o = command->outcome;
    if (op->key[0] != '\0')
        return o->_idempotency_key_case != 0 && strcmp(o->idempotency_key, op->key) == 0;
    if (op->kind == OP_TRANSITION)
        return o->command_kind == SF_PBE(COMMAND_KIND, NAMESPACE_LIFECYCLE_TRANSITION) &&
               o->scope->namespace_id == op->ns_id &&
               (uint64_t)o->target_lifecycle_state == op->target &&
               o->expected_namespace_revision == (uint64_t)op->expected;
    return op->kind == OP_HEAD && o->command_kind == SF_PBE(COMMAND_KIND, HEAD_ADVANCE) &&
           o->scope->collection_id == op->coll_id && o->head_advance != NULL &&
           o->head_advance->expected_head_version == op->expected &&
           o->head_advance->new_head_version == op->version &&
           strcmp(o->head_advance->manifest_checksum_or_etag, op->sum) == 0;
}

const struct command *history_command(const struct history *h, const struct op *op, size_t *out_pos)
{
    return history_command_after(h, op, 0, out_pos);
}

bool history_aged(const struct history *h, const struct command *command, int64_t at_ms)
{
    int64_t applied_ms = (int64_t)(command->outcome->applied_ts >> 18) - SIM_EPOCH_UNIX_MS;
    return h->w->aged && applied_ms + RETENTION_MS <= at_ms + 1000;
}

const struct command *history_command_after(const struct history *h, const struct op *op,
                                            size_t after, size_t *out_pos)
{
    for (size_t i = after; i < h->command_count && op->kind <= OP_LAST_COMMAND; i++) {
        if (is_command_of(&h->commands[i], op)) {
            *out_pos = i + 1;
            return &h->commands[i];
        }
    }
    return NULL;
}

/* ---- calls -------------------------------------------------------------------------------- */

/* Says nothing: to be asked again. */
static bool is_no_answer(enum sf_err err, const struct sf_diag *diag)
{
    if (err == SF_CATALOG_UNAVAILABLE) {
        const char *reason = sf_diag_get(diag, "catalog_unavailable_reason");
        return reason != NULL && strcmp(reason, "recovery") == 0;
    }
    return err == SF_ERR_STOPPED || err == SF_BACKEND_UNAVAILABLE || err == SF_RATE_LIMITED;
}

static void keep_answer(struct history *h, struct asked *asked, enum sf_err err,
                        const struct sf_diag *diag, const ProtobufCMessage *response)
{
    char text[160];
    asked->err = err;
    asked->end_slot = history_tail(h);
    asked->end_ms = sim_now_ms(h->w->sim);
    asked->end_seq = ++h->seq;
    if (err == SF_OK) {
        asked->response = sf_pb_dup(response, h->arena);
        SF_ASSERT(asked->response != NULL);
    } else {
        const char *scope = sf_diag_get(diag, "reservation_scope");
        snprintf(asked->detail, sizeof(asked->detail), "%s", scope == NULL ? "" : scope);
    }
    sim_trace(h->w->sim, "client: #%td %s -> %s %s%s", asked - h->calls, op_text(&asked->op, text),
              sf_err_info(err)->name, err == SF_OK ? "" : diag->message, asked->detail);
}

struct asked *perform(struct client *c, struct sim_node *node, const struct op *op)
{
    struct world *w = c->w;
    struct history *h = w->history;
    SF_ASSERT(h->call_count < MAX_CALLS);
    struct asked *asked = &h->calls[h->call_count++];
    asked->op = *op;
    const ProtobufCMessage *request = op_request(op, c->arena);
    for (;;) {
        struct sf_diag diag;
        const ProtobufCMessage *response = NULL;
        sf_diag_init(&diag);
        struct sim_node *at = node != NULL ? node : w->nodes[sf_rng_below(sim_rng(w->sim), 2)];
        asked->start_ms = sim_now_ms(w->sim);
        asked->start_seq = ++h->seq;
        if (asked->first_seq == 0)
            asked->first_seq = asked->start_seq;
        enum sf_err err =
            call_node(w, c->process, at, op_method(op->kind), request, c->arena, &diag, &response);
        if (!is_no_answer(err, &diag)) {
            keep_answer(h, asked, err, &diag, response);
            return asked;
        }
        wait_to_retry(c->process, w, &diag);
    }
}
