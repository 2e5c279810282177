/*
 * The catalog as the notes describe it, one command after another. Each committed command must be
 * admissible where it stands in the chain:
 *   a create takes a free name, an id that nobody had, and the epoch after the last one
 *   an update meets a living lineage; a new child meets an ACTIVE namespace
 *   only the first drop of a lineage takes effect, and its horizon never moves
 *   a transition meets the revision that it names; TOMBSTONED meets no active child, and is final
 *   a release meets the tombstone whose horizon it names, after that horizon
 *   a head advance meets the head that it names, and raises it
 */
#include "fault/catalog/ccs_history.h"

uint64_t option_of(const SF_PB(DescriptorOptions) * options)
{
    uint64_t value = 0;
    if (options != NULL && options->n_entries == 1)
        (void)sf_parse_u64(sf_view_str(options->entries[0]->value), &value);
    return value;
}

const struct ns_state *model_ns(const struct state *s, uint64_t id)
{
    for (size_t i = 0; i < s->ns_count; i++) {
        if (s->ns[i].id == id)
            return &s->ns[i];
    }
    return NULL;
}

const struct ns_state *model_ns_named(const struct state *s, int name)
{
    for (size_t i = 0; i < s->ns_count; i++) {
        if (s->ns[i].name == name && s->ns[i].life != LIFE_RELEASED)
            return &s->ns[i];
    }
    return NULL;
}

const struct coll_state *model_coll(const struct state *s, uint64_t ns_id, uint64_t id)
{
    for (size_t i = 0; i < s->coll_count; i++) {
        if (s->coll[i].id == id && s->coll[i].ns_id == ns_id)
            return &s->coll[i];
    }
    return NULL;
}

const struct coll_state *model_coll_named(const struct state *s, uint64_t ns_id, int name)
{
    for (size_t i = 0; i < s->coll_count; i++) {
        if (s->coll[i].ns_id == ns_id && s->coll[i].name == name &&
            s->coll[i].life != LIFE_RELEASED)
            return &s->coll[i];
    }
    return NULL;
}

/* A step of the model: the state it changes and what it must say when that is not admissible. */
struct step {
    struct history *h;
    struct state *s;
    const struct command *command;
};

#define ADMIT(step, cond, why)                                                                     \
    do {                                                                                           \
        if (!(cond))                                                                               \
            refuse((step), (why));                                                                 \
    } while (0)

SF_NORETURN static void refuse(const struct step *step, const char *why)
{
    const SF_PB(CommandOutcomeObject) *o = step->command->outcome;
    sim_violation(step->h->w->sim,
                  "segment %" PRIu64 " holds a %s of n%d/c%d under key '%s' that cannot be: %s",
                  step->command->slot,
                  protobuf_c_enum_descriptor_get_value(&searchfabric__v1__command_kind__descriptor,
                                                       (int)o->command_kind)
                      ->name,
                  step->command->ns_name, step->command->coll_name,
                  o->_idempotency_key_case != 0 ? o->idempotency_key : "", why);
}

static struct ns_state *ns_at(const struct step *step)
{
    return (struct ns_state *)(uintptr_t)model_ns(step->s,
                                                  step->command->outcome->scope->namespace_id);
}

static struct coll_state *coll_at(const struct step *step)
{
    const SF_PB(CommandScope) *scope = step->command->outcome->scope;
    return (struct coll_state *)(uintptr_t)model_coll(step->s, scope->namespace_id,
                                                      scope->collection_id);
}

uint64_t model_object_number(const SF_PB(CommandOutcomeObject) * outcome)
{
    uint64_t number = 0;
    if (outcome->n_control_objects == 0)
        return 0;
    const char *at = strrchr(outcome->control_objects[0]->key, '/');
    at = at == NULL ? NULL : strstr(at, "_v");
    while (at != NULL && at[2] >= '0' && at[2] <= '9') {
        number = number * 10 + (uint64_t)(at[2] - '0');
        at++;
    }
    return number;
}

static void check_id_is_new(const struct step *step, uint64_t id)
{
    for (size_t i = 0; i < step->s->ns_count; i++)
        ADMIT(step, step->s->ns[i].id != id, "the id was given before");
    for (size_t i = 0; i < step->s->coll_count; i++)
        ADMIT(step, step->s->coll[i].id != id, "the id was given before");
}

/* ---- namespaces --------------------------------------------------------------------------- */

static void create_ns(const struct step *step)
{
    const SF_PB(CommandOutcomeObject) *o = step->command->outcome;
    struct state *s = step->s;
    int name = step->command->ns_name;
    SF_ASSERT(s->ns_count < MAX_LINEAGES && name >= 0 && name < NS_NAMES);
    ADMIT(step, model_ns_named(s, name) == NULL, "the name is taken");
    check_id_is_new(step, o->scope->namespace_id);
    ADMIT(step, o->namespace_name_allocation_epoch == s->ns_epoch[name] + 1,
          "its epoch does not follow the last one of the name");
    ADMIT(step, model_object_number(o) == 1, "a new lineage begins at revision 1");
    s->ns_epoch[name]++;
    s->ns[s->ns_count++] = (struct ns_state){.id = o->scope->namespace_id,
                                             .name = name,
                                             .epoch = s->ns_epoch[name],
                                             .revision = 1,
                                             .value = step->command->value};
}

static void play_put_ns(const struct step *step)
{
    struct ns_state *ns = ns_at(step);
    if (ns == NULL) {
        create_ns(step);
        return;
    }
    const SF_PB(CommandOutcomeObject) *o = step->command->outcome;
    ADMIT(step, ns->life == LIFE_ACTIVE || ns->life == LIFE_QUIESCING, "the lineage has ended");
    ADMIT(step, o->namespace_name_allocation_epoch == ns->epoch, "an update keeps the epoch");
    ADMIT(step, model_object_number(o) == ns->revision + 1, "revisions go up by one");
    ns->revision++;
    ns->value = step->command->value;
}

static bool has_child(const struct state *s, uint64_t ns_id, bool tombstoned_too)
{
    for (size_t i = 0; i < s->coll_count; i++) {
        const struct coll_state *coll = &s->coll[i];
        if (coll->ns_id == ns_id &&
            (coll->life == LIFE_ACTIVE || (tombstoned_too && coll->life == LIFE_TOMBSTONED)))
            return true;
    }
    return false;
}

/* The horizon that the descriptor object of a transition to TOMBSTONED carries. */
static int64_t read_ns_horizon(const struct step *step)
{
    ProtobufCMessage *message = NULL;
    struct sf_diag diag;
    const SF_PB(CommandOutcomeObject) *o = step->command->outcome;
    ADMIT(step, o->n_control_objects == 1, "a transition writes a descriptor");
    enum sf_err err = sf_durable_read_wait(
        sim_backend(step->h->w->sim), NULL, sf_view_str(o->control_objects[0]->key),
        &searchfabric__v1__namespace_descriptor_object__descriptor, step->h->arena, &diag, &message,
        NULL);
    if (err == SF_ERR_NOT_FOUND)
        return INT64_MIN; /* removed by retention */
    SF_ASSERT(err == SF_OK);
    const SF_PB(NamespaceDescriptorObject) *object = (const void *)message;
    ADMIT(step, object->_lifecycle_gc_after_unix_ms_case != 0, "a tombstone has a horizon");
    return object->lifecycle_gc_after_unix_ms;
}

static void play_transition(const struct step *step)
{
    const SF_PB(CommandOutcomeObject) *o = step->command->outcome;
    struct ns_state *ns = ns_at(step);
    ADMIT(step, ns != NULL, "there is no such namespace");
    ADMIT(step, ns->revision == o->expected_namespace_revision, "it expects another revision");
    ADMIT(step, model_object_number(o) == ns->revision + 1, "revisions go up by one");
    ADMIT(step, ns->life == LIFE_ACTIVE || ns->life == LIFE_QUIESCING, "TOMBSTONED is final");
    ns->revision++;
    switch (o->target_lifecycle_state) {
    case SF_PBE(NAMESPACE_LIFECYCLE_STATE, ACTIVE):
        ADMIT(step, ns->life == LIFE_QUIESCING, "ACTIVE comes from QUIESCING only");
        ns->life = LIFE_ACTIVE;
        break;
    case SF_PBE(NAMESPACE_LIFECYCLE_STATE, QUIESCING):
        ADMIT(step, ns->life == LIFE_ACTIVE, "QUIESCING comes from ACTIVE only");
        ns->life = LIFE_QUIESCING;
        break;
    default:
        ADMIT(step, !has_child(step->s, ns->id, false), "it has an active child");
        ns->life = LIFE_TOMBSTONED;
        ns->gc_after_ms = read_ns_horizon(step);
    }
}

static void play_ns_release(const struct step *step)
{
    const SF_PB(CommandOutcomeObject) *o = step->command->outcome;
    const struct ns_state *found = model_ns_named(step->s, step->command->ns_name);
    struct ns_state *ns = (struct ns_state *)(uintptr_t)found;
    ADMIT(step, ns != NULL && ns->life == LIFE_TOMBSTONED, "nothing of that name is tombstoned");
    ADMIT(step, o->releasing_namespace_name_allocation_epoch == ns->epoch,
          "it releases another epoch");
    ADMIT(step, ns->gc_after_ms == INT64_MIN || o->release_cutoff_unix_ms == ns->gc_after_ms,
          "it names another horizon");
    ADMIT(step, o->applied_at_unix_ms >= o->release_cutoff_unix_ms, "the horizon is not reached");
    ADMIT(step, !has_child(step->s, ns->id, true), "children reserve their names");
    ns->life = LIFE_RELEASED;
}

/* ---- collections -------------------------------------------------------------------------- */

static uint64_t last_coll_epoch(const struct state *s, uint64_t ns_id, int name)
{
    uint64_t last = 0;
    for (size_t i = 0; i < s->coll_count; i++) {
        if (s->coll[i].ns_id == ns_id && s->coll[i].name == name && s->coll[i].epoch > last)
            last = s->coll[i].epoch;
    }
    return last;
}

static void create_coll(const struct step *step, const struct ns_state *ns)
{
    const SF_PB(CommandOutcomeObject) *o = step->command->outcome;
    struct state *s = step->s;
    int name = step->command->coll_name;
    SF_ASSERT(s->coll_count < MAX_LINEAGES && name >= 0 && name < COLL_NAMES);
    ADMIT(step, ns->life == LIFE_ACTIVE, "the namespace takes no new child");
    ADMIT(step, model_coll_named(s, ns->id, name) == NULL, "the name is taken");
    check_id_is_new(step, o->scope->collection_id);
    uint64_t epoch = last_coll_epoch(s, ns->id, name) + 1;
    ADMIT(step, o->collection_name_allocation_epoch == epoch,
          "its epoch does not follow the last one of the name");
    ADMIT(step, model_object_number(o) == 1, "a new lineage begins at revision 1");
    s->coll[s->coll_count++] = (struct coll_state){.id = o->scope->collection_id,
                                                   .ns_id = ns->id,
                                                   .ns_name = ns->name,
                                                   .name = name,
                                                   .epoch = epoch,
                                                   .revision = 1,
                                                   .value = step->command->value};
}

static void play_put_coll(const struct step *step)
{
    const SF_PB(CommandOutcomeObject) *o = step->command->outcome;
    const struct ns_state *ns = ns_at(step);
    struct coll_state *coll = coll_at(step);
    ADMIT(step, ns != NULL && (ns->life == LIFE_ACTIVE || ns->life == LIFE_QUIESCING),
          "there is no living namespace");
    if (coll == NULL) {
        create_coll(step, ns);
        return;
    }
    ADMIT(step, coll->life == LIFE_ACTIVE, "the lineage has ended");
    ADMIT(step, o->collection_name_allocation_epoch == coll->epoch, "an update keeps the epoch");
    ADMIT(step, model_object_number(o) > coll->revision, "revisions go up");
    coll->revision = model_object_number(o);
    coll->value = step->command->value;
}

static void play_schema(const struct step *step)
{
    const SF_PB(CommandOutcomeObject) *o = step->command->outcome;
    struct coll_state *coll = coll_at(step);
    ADMIT(step, coll != NULL && coll->life == LIFE_ACTIVE, "there is no active collection");
    ADMIT(step, o->schema_version > coll->schema_version, "schema versions go up");
    coll->schema_version = o->schema_version;
    coll->schema_value = step->command->value;
}

/* The tombstone that the effective drop names: its horizon. */
static int64_t read_horizon(const struct step *step)
{
    ProtobufCMessage *message = NULL;
    struct sf_diag diag;
    const SF_PB(CommandOutcomeObject) *o = step->command->outcome;
    ADMIT(step, o->n_control_objects == 1, "an effective drop writes a tombstone");
    enum sf_err err = sf_durable_read_wait(
        sim_backend(step->h->w->sim), NULL, sf_view_str(o->control_objects[0]->key),
        &searchfabric__v1__collection_tombstone_object__descriptor, step->h->arena, &diag, &message,
        NULL);
    if (err == SF_ERR_NOT_FOUND)
        return INT64_MIN; /* removed after the release */
    SF_ASSERT(err == SF_OK);
    const SF_PB(CollectionTombstoneObject) *tombstone = (const void *)message;
    ADMIT(step, tombstone->collection->collection_id == o->scope->collection_id,
          "its tombstone is another collection's");
    return tombstone->gc_after_unix_ms;
}

static void play_drop(const struct step *step)
{
    const SF_PB(CommandOutcomeObject) *o = step->command->outcome;
    struct coll_state *coll = coll_at(step);
    ADMIT(step, coll != NULL, "there is no such collection");
    if (o->replay_classification == SF_PBE(REPLAY_CLASSIFICATION, REPLAY_SAME_PAYLOAD)) {
        ADMIT(step, coll->life == LIFE_TOMBSTONED, "it repeats a drop that is not in force");
        return;
    }
    ADMIT(step, coll->life == LIFE_ACTIVE, "only one drop of a lineage takes effect");
    if (o->fence != NULL) {
        char token[32];
        snprintf(token, sizeof(token), "tok-%" PRIu64, coll->schema_version);
        ADMIT(step,
              coll->schema_version != 0 && strcmp(o->fence->schema_generation_token, token) == 0,
              "its fence names another generation");
    }
    coll->life = LIFE_TOMBSTONED;
    coll->gc_after_ms = read_horizon(step);
}

static void play_coll_release(const struct step *step)
{
    const SF_PB(CommandOutcomeObject) *o = step->command->outcome;
    const struct coll_state *found =
        model_coll_named(step->s, o->scope->namespace_id, step->command->coll_name);
    struct coll_state *coll = (struct coll_state *)(uintptr_t)found;
    ADMIT(step, coll != NULL && coll->life == LIFE_TOMBSTONED,
          "nothing of that name is tombstoned");
    ADMIT(step, o->releasing_collection_name_allocation_epoch == coll->epoch,
          "it releases another epoch");
    ADMIT(step, coll->gc_after_ms == INT64_MIN || o->release_cutoff_unix_ms == coll->gc_after_ms,
          "it names another horizon");
    ADMIT(step, o->applied_at_unix_ms >= o->release_cutoff_unix_ms, "the horizon is not reached");
    coll->life = LIFE_RELEASED;
}

static void play_head(const struct step *step)
{
    const SF_PB(HeadAdvanceTuple) *tuple = step->command->outcome->head_advance;
    struct coll_state *coll = coll_at(step);
    ADMIT(step, coll != NULL && coll->life == LIFE_ACTIVE, "there is no active collection");
    int64_t expected = tuple->expected_head_version < 0 ? 0 : tuple->expected_head_version;
    ADMIT(step, (uint64_t)expected == coll->head, "it expects another head");
    ADMIT(step, tuple->new_head_version > coll->head, "heads go up");
    const struct seen *seen = publish_of(step->h, coll->id);
    ADMIT(step, seen != NULL && tuple->new_head_version <= seen->published,
          "nothing of that version was committed");
    bool newest = tuple->new_head_version == tuple->committed_manifest_version;
    ADMIT(step,
          !newest || strcmp(seen->checksums[tuple->new_head_version],
                            tuple->manifest_checksum_or_etag) == 0,
          "the committed manifest has another checksum");
    ADMIT(step,
          tuple->committed_manifest_version <= seen->published &&
              strcmp(seen->checksums[tuple->committed_manifest_version],
                     tuple->committed_manifest_checksum_or_etag) == 0,
          "no such pointer was ever committed");
    coll->head = tuple->new_head_version;
}

/* ---- all ---------------------------------------------------------------------------------- */

static void play(const struct step *step)
{
    const SF_PB(CommandOutcomeObject) *o = step->command->outcome;
    if (o->terminal_state != SF_PBE(COMMAND_TERMINAL_STATE, APPLIED))
        return; /* a business conflict that was written down */
    if (o->replay_classification == SF_PBE(REPLAY_CLASSIFICATION, REPLAY_SAME_PAYLOAD) &&
        o->command_kind != SF_PBE(COMMAND_KIND, DROP_COLLECTION))
        return;
    switch (o->command_kind) {
    case SF_PBE(COMMAND_KIND, PUT_NAMESPACE_METADATA):
        play_put_ns(step);
        return;
    case SF_PBE(COMMAND_KIND, PUT_COLLECTION_METADATA):
        play_put_coll(step);
        return;
    case SF_PBE(COMMAND_KIND, PUT_COLLECTION_SCHEMA):
        play_schema(step);
        return;
    case SF_PBE(COMMAND_KIND, DROP_COLLECTION):
        play_drop(step);
        return;
    case SF_PBE(COMMAND_KIND, HEAD_ADVANCE):
        play_head(step);
        return;
    case SF_PBE(COMMAND_KIND, NAMESPACE_LIFECYCLE_TRANSITION):
        play_transition(step);
        return;
    case SF_PBE(COMMAND_KIND, NAMESPACE_NAME_RESERVATION_RELEASE):
        play_ns_release(step);
        return;
    default:
        play_coll_release(step);
    }
}

void model_run(struct history *h)
{
    struct state *state = sf_arena_alloc(h->arena, sizeof(*state));
    SF_ASSERT(state != NULL);
    h->states[0] = state;
    for (size_t i = 0; i < h->command_count; i++) {
        struct state *next = sf_arena_dup(h->arena, state, sizeof(*state));
        SF_ASSERT(next != NULL);
        play(&(struct step){.h = h, .s = next, .command = &h->commands[i]});
        h->states[i + 1] = state = next;
    }
}
