/* Lineages under crashes, lost and wrong rows, and races of one lineage's commands. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "catalog/catalog_retention.h"
#include "component/catalog/lineage_world.h"

/* ---- crash points ------------------------------------------------------------------------- */

enum victim { DROP, QUIESCE, TOMBSTONE, RELEASE_COLLECTION, RELEASE_NAMESPACE, VICTIMS };

struct scene {
    uint64_t ns, id;
    uint64_t binding; /* before the command; 0 = not watched */
};

/* Everything before the command whose crash is looked at. */
static struct scene prepare(struct world *w, enum victim victim)
{
    struct scene s = {.ns = world_namespace(w, "n1", "alpha")};
    if (victim == DROP || victim == RELEASE_COLLECTION) {
        s.id = world_collection(w, "c1", s.ns, "books");
        world_schema(w, "s1", s.ns, s.id, 1, "tok-1");
    }
    if (victim == RELEASE_COLLECTION)
        assert_int_equal(lineage_drop(w, "d0", s.ns, s.id, NULL), DROPPED);
    if (victim == RELEASE_NAMESPACE)
        assert_non_null(lineage_transition(w, s.ns, NS_STATE(TOMBSTONED), 1));
    if (victim == RELEASE_COLLECTION || victim == RELEASE_NAMESPACE)
        sf_clock_manual_advance(&w->clock, GC_DELAY_MS);
    if (victim != RELEASE_NAMESPACE)
        s.binding = lineage_binding(w, s.ns);
    return s;
}

static const void *run(struct world *w, enum victim victim, const struct scene *s)
{
    SF_PB(RunReleaseSweepRequest) sweep;
    searchfabric__v1__run_release_sweep_request__init(&sweep);
    switch (victim) {
    case DROP:
        return world_call(w, "DropCollection", lineage_drop_request(w, "d1", s->ns, s->id, NULL));
    case QUIESCE:
        return lineage_transition(w, s->ns, NS_STATE(QUIESCING), 1);
    case TOMBSTONE:
        return lineage_transition(w, s->ns, NS_STATE(TOMBSTONED), 1);
    default:
        return world_call(w, "RunReleaseSweep", &sweep);
    }
}

/* Has the command's effect been seen? */
static bool applied(struct world *w, enum victim victim, const struct scene *s)
{
    const SF_PB(ShowLineageResponse) *shown = lineage_show(w, s->ns, s->id);
    switch (victim) {
    case DROP:
        return shown->collection_row->lifecycle_state ==
               SF_PBE(COLLECTION_ADMISSION_LIFECYCLE, TOMBSTONED);
    case QUIESCE:
        return shown->namespace_row->lifecycle_state == NS_STATE(QUIESCING);
    case TOMBSTONE:
        return shown->namespace_row->lifecycle_state == NS_STATE(TOMBSTONED);
    default:
        return shown == NULL;
    }
}

static SF_PB(CommandKind) kind_of(enum victim victim)
{
    switch (victim) {
    case DROP:
        return KIND(DROP_COLLECTION);
    case RELEASE_COLLECTION:
        return KIND(COLLECTION_NAME_RESERVATION_RELEASE);
    case RELEASE_NAMESPACE:
        return KIND(NAMESPACE_NAME_RESERVATION_RELEASE);
    default:
        return KIND(NAMESPACE_LIFECYCLE_TRANSITION);
    }
}

/* Kills after `cut` puts of the command; true when it got through unharmed. */
static bool crash_at(enum victim victim, uint64_t cut)
{
    struct world *w = world_new(false);
    struct scene s = prepare(w, victim);
    atomic_store(&w->wire.applied, 0);
    atomic_store(&w->wire.cut_after, cut);
    const void *first = run(w, victim, &s);
    bool through = !atomic_load(&w->wire.dead);
    world_restart(w);
    const SF_PB(CommandOutcomeObject) *record = lineage_record(w, kind_of(victim), 0);
    /* the outcome decides: with it the effect is there without a further call, else it is not */
    assert_true(applied(w, victim, &s) == (record != NULL));
    if (first != NULL && victim != RELEASE_COLLECTION && victim != RELEASE_NAMESPACE)
        assert_non_null(record);
    assert_non_null(run(w, victim, &s)); /* the retry applies cleanly, or repeats */
    assert_true(applied(w, victim, &s));
    assert_null(lineage_record(w, kind_of(victim), 1)); /* and only once */
    if (victim == DROP || victim == RELEASE_COLLECTION)
        assert_true(lineage_binding(w, s.ns) == s.binding + 1);
    world_rebuild(w);
    assert_true(applied(w, victim, &s));
    world_destroy(w);
    return through;
}

static void test_crash_points(void **state)
{
    (void)state;
    SF_PROVES("CCS-4.5-19", "CCS-6.2-07");
    for (int victim = 0; victim < VICTIMS; victim++) {
        uint64_t cut = 0;
        while (!crash_at((enum victim)victim, cut))
            cut++;
        /* segment, outcome, transport pointer; a control object but for releases; a drop has a
         * business pointer as well */
        bool release = victim == RELEASE_COLLECTION || victim == RELEASE_NAMESPACE;
        assert_int_equal(cut, victim == DROP ? 5 : release ? 3 : 4);
    }
}

/* An id that was reserved before a crash is never used; the retry's is greater. */
static void test_id_gap(void **state)
{
    (void)state;
    SF_PROVES("CCS-3.3-05");
    for (uint64_t cut = 0; cut < 3; cut++) {
        struct world *w = world_new(false);
        uint64_t reserved = atomic_load(&w->next_tso);
        atomic_store(&w->wire.applied, 0);
        atomic_store(&w->wire.cut_after, cut);
        assert_null(
            world_call(w, "PutNamespaceMetadata", world_namespace_request(w, "n1", "alpha")));
        assert_true(atomic_load(&w->next_tso) > reserved);
        world_restart(w);
        assert_true(world_namespace(w, "n1", "alpha") > reserved);
        assert_true(lineage_epoch(w, 0, "alpha") == 1);
        world_destroy(w);
    }
}

/* A generation becomes the active one with its record, not before. */
static void test_schema_persisted(void **state)
{
    (void)state;
    SF_PROVES("CCS-7-07");
    for (uint64_t cut = 0; cut < 4; cut++) { /* object and segment; outcome; transport pointer */
        struct world *w = world_new(false);
        uint64_t ns = world_namespace(w, "n1", "alpha");
        uint64_t id = world_collection(w, "c1", ns, "books");
        world_schema(w, "s1", ns, id, 1, "tok-1");
        world_ready(w, ns, id, 1, "tok-1");
        atomic_store(&w->wire.applied, 0);
        atomic_store(&w->wire.cut_after, cut);
        assert_null(world_call(w, "PutCollectionSchema",
                               world_schema_request(w, "s2", ns, id, 2, "tok-2")));
        world_restart(w);
        bool recorded = lineage_record(w, KIND(PUT_COLLECTION_SCHEMA), 1) != NULL;
        assert_true(recorded ==
                    (lineage_show(w, ns, id)->collection_row->active_schema_version == 2));
        const char *state_now = lineage_sql(w,
                                            "SELECT sync_state FROM schema_generations"
                                            " WHERE namespace_id = ?1 AND collection_id = ?2"
                                            " ORDER BY schema_version DESC",
                                            ns, id);
        assert_string_equal(state_now, recorded ? "APPLYING" : "READY");
        world_destroy(w);
    }
}

/* ---- wrong and lost rows ------------------------------------------------------------------ */

#define THE_ROW " WHERE namespace_id = ?1 AND collection_id = ?2"

static const char *row_state(struct world *w, uint64_t ns, uint64_t id)
{
    return lineage_sql(w, "SELECT lifecycle_state FROM collections" THE_ROW, ns, id);
}

static void check_dropped(struct world *w, uint64_t ns, uint64_t id)
{
    struct sf_buf key = {0};
    sf_catalog_key_tombstone(&key, ns, id, 1);
    const SF_PB(CollectionTombstoneObject) *object =
        world_object(w, sf_arena_str(w->arena, sf_buf_view(&key)),
                     &searchfabric__v1__collection_tombstone_object__descriptor);
    sf_buf_fini(&key);
    const SF_PB(CollectionRow) *row = lineage_show(w, ns, id)->collection_row;
    assert_string_equal(row_state(w, ns, id), "TOMBSTONED");
    assert_true(row->_drop_revision_case != 0 && row->drop_revision == object->drop_revision);
    assert_true(row->dropped_at_unix_ms == object->dropped_at_unix_ms);
    assert_true(row->gc_after_unix_ms == object->gc_after_unix_ms);
    assert_string_equal(row->active_schema_generation_token, "tok-1");
    assert_int_equal(lineage_get_collection(w, ns, id), SF_RESOURCE_NOT_FOUND);
    assert_int_equal(lineage_listed(w, ns, ""), 0);
    lineage_conflict(
        w,
        world_call(w, "PutCollectionMetadata", world_collection_request(w, "again", ns, "books")),
        "collection_name", "tombstoned");
}

static void test_tombstone_repair(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-9.3-01", "CCS-9.3-02", "CCS-9.3-03", "CCS-4.5-15");
    static const char *const damages[] = {
        "UPDATE collections SET lifecycle_state = 'ACTIVE'",
        "UPDATE collections SET drop_revision = NULL, dropped_at_unix_ms = NULL,"
        " gc_after_unix_ms = NULL",
        "UPDATE collections SET lifecycle_state = 'ACTIVE', drop_revision = NULL,"
        " dropped_at_unix_ms = NULL, gc_after_unix_ms = NULL",
        "DELETE FROM collections",
    };
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t id = world_collection(w, "c1", ns, "books");
    world_schema(w, "s1", ns, id, 1, "tok-1");
    assert_int_equal(lineage_drop(w, "d1", ns, id, NULL), DROPPED);
    for (size_t i = 0; i < SF_ARRAY_LEN(damages); i++) {
        uint64_t binding = lineage_binding(w, ns);
        lineage_exec(w, damages[i]);
        sf_catalog_flush(w->catalog);
        if (i == 0)
            assert_int_equal(lineage_get_collection(w, ns, id), SF_OK); /* the damage shows */
        assert_int_equal(world_job(w, "tombstone-repair"), 1);
        check_dropped(w, ns, id);
        assert_true(lineage_binding(w, ns) == binding + 1);
        assert_int_equal(world_job(w, "tombstone-repair"), 0);
    }
    /* on contact: any drop finds the tombstone itself, under any key */
    for (size_t i = 0; i < SF_ARRAY_LEN(damages); i++) {
        for (int same_key = 0; same_key < 2; same_key++) {
            char key[16];
            snprintf(key, sizeof(key), same_key ? "d1" : "d2-%zu", i);
            if (i == 1)
                continue; /* the row says TOMBSTONED: nothing to find */
            lineage_exec(w, damages[i]);
            if (i == 3)
                lineage_exec(w, "DELETE FROM collection_tombstones");
            sf_catalog_flush(w->catalog);
            assert_int_equal(lineage_drop(w, key, ns, id, NULL), ALREADY_DROPPED);
            check_dropped(w, ns, id);
        }
    }
    /* a released one stays released, whatever rows and objects are left */
    sf_clock_manual_advance(&w->clock, GC_DELAY_MS);
    assert_int_equal(lineage_sweep(w)->released_collection_names, 1);
    assert_int_equal(lineage_drop(w, "d1", ns, id, NULL), 0);
    assert_int_equal(w->diag.err, SF_RESOURCE_NOT_FOUND);
    assert_string_equal(row_state(w, ns, id), "");
}

/* A row that names an earlier horizon releases nothing: the objects decide. */
static void test_wrong_horizon(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t other = world_namespace(w, "n2", "beta");
    uint64_t id = world_collection(w, "c1", ns, "books");
    assert_int_equal(lineage_drop(w, "d1", ns, id, NULL), DROPPED);
    assert_non_null(lineage_transition(w, other, NS_STATE(TOMBSTONED), 1));
    lineage_exec(w, "UPDATE collections SET gc_after_unix_ms = 5");
    lineage_exec(w, "UPDATE namespaces SET lifecycle_gc_after_unix_ms = 5"
                    " WHERE lifecycle_state = 'TOMBSTONED'");
    const SF_PB(RunReleaseSweepResponse) *swept = lineage_sweep(w);
    assert_int_equal(swept->released_collection_names + swept->released_namespace_names, 0);
    assert_int_equal(swept->kept, 2);
    assert_null(lineage_record(w, KIND(COLLECTION_NAME_RESERVATION_RELEASE), 0));
    assert_null(lineage_record(w, KIND(NAMESPACE_NAME_RESERVATION_RELEASE), 0));
    world_rebuild(w);
    sf_clock_manual_advance(&w->clock, GC_DELAY_MS);
    swept = lineage_sweep(w);
    assert_int_equal(swept->released_collection_names + swept->released_namespace_names, 2);
}

/* Retention: the record of a release goes after that of the drop, never before. */
static void test_release_outlives_drop(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t id = world_collection(w, "c1", ns, "books");
    assert_int_equal(lineage_drop(w, "d1", ns, id, NULL), DROPPED);
    sf_clock_manual_advance(&w->clock, GC_DELAY_MS);
    assert_int_equal(lineage_sweep(w)->released_collection_names, 1);
    const SF_PB(CommandOutcomeObject) *release =
        lineage_record(w, KIND(COLLECTION_NAME_RESERVATION_RELEASE), 0);
    const SF_PB(CommandOutcomeObject) *drop = lineage_record(w, KIND(DROP_COLLECTION), 0);
    for (int gone = 0; gone < 2; gone++) {
        bool current = gone != 0;
        if (gone)
            lineage_exec(w, "DELETE FROM catalog_replay_index"
                            " WHERE command_kind = 'DROP_COLLECTION'");
        struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_READ);
        assert_int_equal(sf_catalog_record_current(conn, release, w->arena, &w->diag, &current),
                         SF_OK);
        assert_true(current == (gone == 0));
        assert_int_equal(sf_catalog_record_current(conn, drop, w->arena, &w->diag, &current),
                         SF_OK);
        assert_false(current);
        sf_sql_release(conn);
    }
}

/* Puts a control object that no record names. */
static void plant(struct world *w, struct sf_buf *key, const ProtobufCMessage *object)
{
    struct sf_catalog_put put = {.key = *key};
    sf_catalog_put_encode(&put, object, false, NULL);
    struct sf_put raw = {0};
    sf_catalog_put_fill(&put, 0, 0, &raw);
    raw.cond = SF_PUT_ABSENT;
    assert_int_equal(sf_store_put_wait(w->truth, NULL, &raw), SF_OK);
    sf_catalog_put_fini(&put);
}

static void test_orphans(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-9.3-04", "CCS-4.4-11", "CCS-11-05", "CCS-11-08");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t id = world_collection(w, "c1", ns, "books");
    world_schema(w, "s1", ns, id, 1, "tok-1");
    const char *before = world_answers(w, ns);
    const SF_PB(CommandOutcomeObject) *record = lineage_record(w, KIND(PUT_NAMESPACE_METADATA), 0);
    SF_PB(NamespaceDescriptorObject)
    descriptor = *(const SF_PB(NamespaceDescriptorObject) *)world_object(
        w, record->control_objects[0]->key,
        &searchfabric__v1__namespace_descriptor_object__descriptor);
    struct sf_buf key = {0};
    descriptor.namespace_revision = 2;
    descriptor.lifecycle_state = NS_STATE(TOMBSTONED);
    sf_catalog_key_namespace(&key, ns, 2);
    plant(w, &key, &descriptor.base);
    record = lineage_record(w, KIND(PUT_COLLECTION_METADATA), 0);
    SF_PB(CollectionDescriptorObject)
    collection = *(const SF_PB(CollectionDescriptorObject) *)world_object(
        w, record->control_objects[0]->key,
        &searchfabric__v1__collection_descriptor_object__descriptor);
    collection.descriptor_revision = 2;
    collection.options = world_options(w, "planted", "yes");
    key = (struct sf_buf){0};
    sf_catalog_key_collection(&key, ns, id, 2);
    plant(w, &key, &collection.base);
    record = lineage_record(w, KIND(PUT_COLLECTION_SCHEMA), 0);
    SF_PB(SchemaGenerationObject)
    generation = *(const SF_PB(SchemaGenerationObject) *)world_object(
        w, record->control_objects[0]->key,
        &searchfabric__v1__schema_generation_object__descriptor);
    SF_PB(SchemaGenerationBody) body = *generation.body;
    body.schema_version = 2;
    body.schema_generation_token = "tok-2";
    generation.body = &body;
    key = (struct sf_buf){0};
    sf_catalog_key_generation(&key, ns, id, 2, "tok-2");
    plant(w, &key, &generation.base);
    SF_PB(CollectionTombstoneObject) tombstone;
    searchfabric__v1__collection_tombstone_object__init(&tombstone);
    tombstone.format_version = SF_CATALOG_FORMAT_VERSION;
    tombstone.attempt_id = "planted";
    tombstone.command_identity =
        record->command_identity; /* APPLIED, but it names another object */
    tombstone.collection = collection.collection;
    tombstone.collection_name = "books";
    tombstone.collection_name_allocation_epoch = 1;
    tombstone.drop_revision = 1;
    tombstone.gc_after_unix_ms = 1;
    tombstone.descriptor_revision = 1;
    key = (struct sf_buf){0};
    sf_catalog_key_tombstone(&key, ns, id, 1);
    plant(w, &key, &tombstone.base);
    assert_int_equal(world_job(w, "tombstone-repair"), 0);
    for (int round = 0; round < 3; round++) {
        assert_string_equal(world_answers(w, ns), before);
        assert_string_equal(row_state(w, ns, id), "ACTIVE");
        assert_int_equal(lineage_sweep(w)->kept, 0);
        if (round == 0)
            world_restart(w);
        else
            world_rebuild(w);
    }
    /* the orphan is in the way of nothing */
    assert_int_equal(lineage_drop(w, "d1", ns, id, "tok-1"), DROPPED);
    check_dropped(w, ns, id);
}

/* A row of the index is gone: the records themselves answer, by pointer where a key is shared. */
static void test_lost_index(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-4.4-06");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t id = world_collection(w, "c1", ns, "books");
    world_schema(w, "s1", ns, id, 1, "tok-1");
    assert_int_equal(lineage_drop(w, "d1", ns, id, NULL), DROPPED);
    assert_non_null(lineage_transition(w, ns, NS_STATE(QUIESCING), 1));
    lineage_exec(w, "DELETE FROM catalog_replay_index");
    sf_catalog_flush(w->catalog);
    size_t records = lineage_records(w);
    assert_int_equal(lineage_drop(w, "d1", ns, id, NULL), ALREADY_DROPPED);
    assert_int_equal(lineage_transition(w, ns, NS_STATE(QUIESCING), 1)->outcome,
                     SF_PBE(INTENT_OUTCOME, DUPLICATE));
    assert_true(lineage_revision(w, ns) == 2);
    assert_int_equal(lineage_records(w), records);
    lineage_exec(w, "DELETE FROM catalog_replay_index");
    sf_catalog_flush(w->catalog);
    assert_null(world_call(w, "DropCollection", lineage_drop_request(w, "d1", ns, id, "tok-1")));
    assert_int_equal(w->diag.err, SF_IDEMPOTENCY_CONFLICT);
    lineage_exec(w, "DELETE FROM catalog_replay_index");
    sf_catalog_flush(w->catalog);
    assert_int_equal(lineage_drop(w, "d2", ns, id, NULL), ALREADY_DROPPED); /* by the pointer */
    assert_int_equal(lineage_records(w), records + 1);
}

/* ---- races -------------------------------------------------------------------------------- */

/* Holds one kind of command up at its apply, and writes down who went where. */
struct hold {
    struct sf_catalog_trace base;
    pthread_mutex_t mu;
    pthread_cond_t changed;
    const char *kind; /* held; NULL = nothing */
    bool held, go;
    char log[4096];      /* "lane KIND LANE\n", "apply KIND LANE\n" */
    struct sf_buf *puts; /* the wire's log, for one order of both; NULL = none */
};

static void note(struct hold *hold, const char *what, const char *request, const char *lane)
{
    size_t len = strlen(hold->log);
    assert_true((size_t)snprintf(hold->log + len, sizeof(hold->log) - len, "%s %s %s\n", what,
                                 request, lane) < sizeof(hold->log) - len);
    if (hold->puts != NULL)
        sf_buf_printf(hold->puts, "%s %s %s\n", what, request, lane);
    pthread_cond_broadcast(&hold->changed);
}

static void on_lane(struct sf_catalog_trace *trace, const char *request, const char *lane,
                    uint64_t key)
{
    struct hold *hold = SF_CONTAINER_OF(trace, struct hold, base);
    (void)key;
    pthread_mutex_lock(&hold->mu);
    note(hold, "lane", request, lane);
    pthread_mutex_unlock(&hold->mu);
}

static void on_apply(struct sf_catalog_trace *trace, const char *request, const char *lane)
{
    struct hold *hold = SF_CONTAINER_OF(trace, struct hold, base);
    pthread_mutex_lock(&hold->mu);
    note(hold, "apply", request, lane);
    if (hold->kind != NULL && strcmp(hold->kind, request) == 0) {
        hold->kind = NULL;
        hold->held = true;
        pthread_cond_broadcast(&hold->changed);
        while (!hold->go)
            pthread_cond_wait(&hold->changed, &hold->mu);
    }
    pthread_mutex_unlock(&hold->mu);
}

static void hold_open(struct hold *hold, struct world *w)
{
    memset(hold, 0, sizeof(*hold));
    hold->base = (struct sf_catalog_trace){.lane = on_lane, .apply = on_apply};
    pthread_mutex_init(&hold->mu, NULL);
    pthread_cond_init(&hold->changed, NULL);
    world_stop(w);
    w->trace = &hold->base;
    assert_int_equal(world_open(w), SF_OK);
}

static void hold_close(struct hold *hold, struct world *w)
{
    world_stop(w);
    w->trace = NULL;
    assert_int_equal(world_open(w), SF_OK);
    pthread_cond_destroy(&hold->changed);
    pthread_mutex_destroy(&hold->mu);
}

static void hold_arm(struct hold *hold, const char *kind)
{
    pthread_mutex_lock(&hold->mu);
    hold->kind = kind;
    hold->held = hold->go = false;
    hold->log[0] = '\0';
    pthread_mutex_unlock(&hold->mu);
}

/* Waits until the armed command is held, or until the log has `line`. */
static void hold_wait(struct hold *hold, const char *line)
{
    pthread_mutex_lock(&hold->mu);
    while (line == NULL ? !hold->held : strstr(hold->log, line) == NULL)
        pthread_cond_wait(&hold->changed, &hold->mu);
    pthread_mutex_unlock(&hold->mu);
}

static void hold_go(struct hold *hold)
{
    pthread_mutex_lock(&hold->mu);
    hold->go = true;
    pthread_cond_broadcast(&hold->changed);
    pthread_mutex_unlock(&hold->mu);
}

/* One call on a thread of its own, with memory of its own. */
struct side {
    struct world world;
    pthread_t thread;
    const char *method;
    const void *request;
    const void *answer;
};

static void *side_run(void *arg)
{
    struct side *side = arg;
    side->answer = world_call(&side->world, side->method, side->request);
    return NULL;
}

static struct side *side_start(struct world *w, const char *method, const void *request)
{
    struct side *side = sf_calloc(1, sizeof(*side));
    memcpy((void *)&side->world, (const void *)w, sizeof(*w));
    side->world.arena = sf_arena_new((size_t)1 << 20);
    side->method = method;
    side->request = request;
    assert_int_equal(pthread_create(&side->thread, NULL, side_run, side), 0);
    return side;
}

/* The answer; its diag is in w->diag. It lives until side_end. */
static const void *side_join(struct side *side, struct world *w)
{
    assert_int_equal(pthread_join(side->thread, NULL), 0);
    w->diag = side->world.diag;
    return side->answer;
}

static void side_end(struct side *side)
{
    sf_arena_destroy(side->world.arena);
    free(side);
}

static const void *transition_request(struct world *w, uint64_t ns,
                                      SF_PB(NamespaceLifecycleState) target, uint64_t expected)
{
    SF_PB(SubmitNamespaceLifecycleTransitionRequest) *out = sf_arena_alloc(w->arena, sizeof(*out));
    searchfabric__v1__submit_namespace_lifecycle_transition_request__init(out);
    out->namespace_id = ns;
    out->target_lifecycle_state = target;
    out->expected_namespace_revision = expected;
    return out;
}

static const void *sweep_request(struct world *w)
{
    SF_PB(RunReleaseSweepRequest) *out = sf_arena_alloc(w->arena, sizeof(*out));
    searchfabric__v1__run_release_sweep_request__init(out);
    return out;
}

/* Holds `first` of `kind` at its apply, starts `second` and lets it come as far as `line`; both
 * answers are the caller's to end. */
static void race(struct hold *hold, struct world *w, const char *kind, struct side *sides[2],
                 const char *const methods[2], const void *const requests[2], const char *line)
{
    hold_arm(hold, kind);
    sides[0] = side_start(w, methods[0], requests[0]);
    hold_wait(hold, NULL);
    sides[1] = side_start(w, methods[1], requests[1]);
    hold_wait(hold, line);
    hold_go(hold);
}

#define UPDATE_NS   "PutNamespaceMetadata"
#define UPDATE_COLL "PutCollectionMetadata"
#define TRANSITION  "SubmitNamespaceLifecycleTransition"

static void test_namespace_races(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-3.1-02", "CCS-4.5-06");
    struct hold hold;
    struct side *sides[2];
    hold_open(&hold, w);
    uint64_t ns = world_namespace(w, "n1", "alpha");
    /* an update holds the id lane: the transition waits, and sees the revision that it made */
    race(&hold, w, "PUT_NAMESPACE_METADATA", sides, (const char *const[]){UPDATE_NS, TRANSITION},
         (const void *const[]){world_namespace_request(w, "n2", "alpha"),
                               transition_request(w, ns, NS_STATE(QUIESCING), 2)},
         "lane NAMESPACE_LIFECYCLE_TRANSITION namespace-id");
    assert_non_null(side_join(sides[0], w));
    const SF_PB(SubmitNamespaceLifecycleTransitionResponse) *moved = side_join(sides[1], w);
    assert_non_null(moved);
    assert_true(moved->namespace_revision == 3);
    assert_non_null(strstr(hold.log, "apply PUT_NAMESPACE_METADATA namespace-id"));
    side_end(sides[0]);
    side_end(sides[1]);
    /* a transition holds the id lane: the update that resolved before it is refused */
    static const struct {
        SF_PB(NamespaceLifecycleState) target;
        const char *text;
    } targets[] = {{NS_STATE(ACTIVE), "active"},
                   {NS_STATE(QUIESCING), "quiescing"},
                   {NS_STATE(TOMBSTONED), "tombstoned"}};
    for (size_t i = 0; i < SF_ARRAY_LEN(targets); i++) {
        char key[16];
        snprintf(key, sizeof(key), "u%zu", i);
        size_t records = lineage_records(w);
        race(&hold, w, "NAMESPACE_LIFECYCLE_TRANSITION", sides,
             (const char *const[]){TRANSITION, UPDATE_NS},
             (const void *const[]){transition_request(w, ns, targets[i].target, 3 + i),
                                   world_namespace_request(w, key, "alpha")},
             "lane PUT_NAMESPACE_METADATA namespace-id");
        assert_non_null(side_join(sides[0], w));
        lineage_conflict(w, side_join(sides[1], w), "resolved_namespace_lineage", targets[i].text);
        assert_int_equal(lineage_records(w), records + 1);
        side_end(sides[0]);
        side_end(sides[1]);
    }
    hold_close(&hold, w);
}

static void test_collection_races(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-3.1-09", "CCS-4.5-04", "CCS-4.5-05");
    struct hold hold;
    struct side *sides[2];
    hold_open(&hold, w);
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t id = world_collection(w, "c1", ns, "books");
    /* the drop waits for the update, and its tombstone refers to what the update made */
    race(&hold, w, "PUT_COLLECTION_METADATA", sides,
         (const char *const[]){UPDATE_COLL, "DropCollection"},
         (const void *const[]){world_collection_request(w, "c2", ns, "books"),
                               lineage_drop_request(w, "d1", ns, id, NULL)},
         "lane DROP_COLLECTION collection-id");
    assert_non_null(side_join(sides[0], w));
    assert_non_null(side_join(sides[1], w));
    assert_non_null(strstr(hold.log, "apply PUT_COLLECTION_METADATA collection-id"));
    assert_true(lineage_show(w, ns, id)->tombstone->descriptor_revision == 2);
    side_end(sides[0]);
    side_end(sides[1]);
    /* the update that resolved the lineage finds it dropped */
    id = world_collection(w, "c3", ns, "boats");
    size_t objects = world_list(w, "catalog/", NULL);
    race(&hold, w, "DROP_COLLECTION", sides, (const char *const[]){"DropCollection", UPDATE_COLL},
         (const void *const[]){lineage_drop_request(w, "d2", ns, id, NULL),
                               world_collection_request(w, "c4", ns, "boats")},
         "lane PUT_COLLECTION_METADATA collection-id");
    assert_non_null(side_join(sides[0], w));
    lineage_conflict(w, side_join(sides[1], w), "resolved_collection_lineage", "tombstoned");
    assert_int_equal(world_list(w, "catalog/", NULL), objects + 1); /* the tombstone */
    side_end(sides[0]);
    side_end(sides[1]);
    hold_close(&hold, w);
}

static void test_release_races(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-3.1-03", "CCS-3.1-10");
    struct hold hold;
    struct side *sides[2];
    hold_open(&hold, w);
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t id = world_collection(w, "c1", ns, "books");
    assert_int_equal(lineage_drop(w, "d1", ns, id, NULL), DROPPED);
    sf_clock_manual_advance(&w->clock, GC_DELAY_MS);
    race(&hold, w, "COLLECTION_NAME_RESERVATION_RELEASE", sides,
         (const char *const[]){"RunReleaseSweep", UPDATE_COLL},
         (const void *const[]){sweep_request(w), world_collection_request(w, "c2", ns, "books")},
         "lane PUT_COLLECTION_METADATA collection-name");
    assert_non_null(side_join(sides[0], w));
    const SF_PB(PutCollectionMetadataResponse) *collection = side_join(sides[1], w);
    assert_non_null(collection);
    assert_true(collection->descriptor->collection->collection_id > id);
    assert_true(lineage_epoch(w, ns, "books") == 2);
    assert_non_null(strstr(hold.log, "apply COLLECTION_NAME_RESERVATION_RELEASE collection-name"));
    id = collection->descriptor->collection->collection_id;
    side_end(sides[0]);
    side_end(sides[1]);
    assert_int_equal(lineage_drop(w, "d2", ns, id, NULL), DROPPED);
    assert_non_null(lineage_transition(w, ns, NS_STATE(TOMBSTONED), 1));
    sf_clock_manual_advance(&w->clock, GC_DELAY_MS);
    race(&hold, w, "NAMESPACE_NAME_RESERVATION_RELEASE", sides,
         (const char *const[]){"RunReleaseSweep", UPDATE_NS},
         (const void *const[]){sweep_request(w), world_namespace_request(w, "n2", "alpha")},
         "lane PUT_NAMESPACE_METADATA namespace-name");
    assert_non_null(side_join(sides[0], w));
    const SF_PB(PutNamespaceMetadataResponse) *space = side_join(sides[1], w);
    assert_non_null(space);
    assert_true(space->descriptor->namespace_id > ns);
    assert_true(lineage_epoch(w, 0, "alpha") == 2);
    assert_non_null(strstr(hold.log, "apply NAMESPACE_NAME_RESERVATION_RELEASE namespace-name"));
    side_end(sides[0]);
    side_end(sides[1]);
    hold_close(&hold, w);
}

/* No ACTIVE child in a TOMBSTONED namespace, whoever comes first. */
static void test_child_races(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-4.5-21");
    struct hold hold;
    struct side *sides[2];
    hold_open(&hold, w);
    uint64_t ns = world_namespace(w, "n1", "alpha");
    race(&hold, w, "PUT_COLLECTION_METADATA", sides, (const char *const[]){UPDATE_COLL, TRANSITION},
         (const void *const[]){world_collection_request(w, "c1", ns, "books"),
                               transition_request(w, ns, NS_STATE(TOMBSTONED), 1)},
         "lane NAMESPACE_LIFECYCLE_TRANSITION namespace-id");
    const SF_PB(PutCollectionMetadataResponse) *made = side_join(sides[0], w);
    assert_non_null(made);
    lineage_conflict(w, side_join(sides[1], w), "resolved_collection_lineage", "active");
    uint64_t id = made->descriptor->collection->collection_id;
    side_end(sides[0]);
    side_end(sides[1]);
    assert_int_equal(lineage_drop(w, "d1", ns, id, NULL), DROPPED);
    race(&hold, w, "NAMESPACE_LIFECYCLE_TRANSITION", sides,
         (const char *const[]){TRANSITION, UPDATE_COLL},
         (const void *const[]){transition_request(w, ns, NS_STATE(TOMBSTONED), 1),
                               world_collection_request(w, "c2", ns, "boats")},
         "lane PUT_COLLECTION_METADATA collection-name");
    assert_non_null(side_join(sides[0], w));
    lineage_conflict(w, side_join(sides[1], w), "parent_namespace", "tombstoned");
    side_end(sides[0]);
    side_end(sides[1]);
    assert_true(lineage_epoch(w, ns, "boats") == 0);
    hold_close(&hold, w);
}

/* Of many transitions from one revision one is admitted. */
static void test_transition_race(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-3.1-04");
    for (uint64_t round = 0; round < 8; round++) {
        char name[16];
        struct side *sides[8];
        size_t admitted = 0;
        snprintf(name, sizeof(name), "n%" PRIu64, round);
        uint64_t ns = world_namespace(w, name, name);
        for (size_t i = 0; i < SF_ARRAY_LEN(sides); i++)
            sides[i] = side_start(
                w, TRANSITION,
                transition_request(w, ns, i % 2 ? NS_STATE(QUIESCING) : NS_STATE(TOMBSTONED), 1));
        SF_PB(NamespaceLifecycleState) won = NS_STATE(UNSPECIFIED);
        for (size_t i = 0; i < SF_ARRAY_LEN(sides); i++) {
            const SF_PB(SubmitNamespaceLifecycleTransitionResponse) *moved = side_join(sides[i], w);
            if (moved == NULL) {
                assert_int_equal(w->diag.err, SF_VERSION_CONFLICT);
            } else {
                admitted += moved->outcome == SF_PBE(INTENT_OUTCOME, ACCEPTED) ? 1 : 0;
                won = moved->lifecycle_state;
            }
        }
        for (size_t i = 0; i < SF_ARRAY_LEN(sides); i++)
            side_end(sides[i]);
        assert_int_equal(admitted, 1);
        assert_true(lineage_revision(w, ns) == 2);
        assert_int_equal(lineage_show(w, ns, 0)->namespace_row->lifecycle_state, won);
    }
}

/* ---- the order of writes ------------------------------------------------------------------ */

/* Position of a line that begins so, from `from` on; fails without one. */
static size_t line_at(const char *log, size_t from, const char *begin)
{
    const char *at = strstr(log + from, begin);
    if (at == NULL)
        fail_msg("no '%s' in:\n%s", begin, log + from);
    return (size_t)(at - log);
}

/* Control object (when there is one), segment, outcome, transport and business pointer. */
static void check_order(const char *log, bool control, bool business)
{
    size_t outcome = line_at(log, 0, "put catalog-log/");
    if (control)
        assert_true(line_at(log, 0, "put catalog/") < outcome);
    else
        assert_null(strstr(log, "put catalog/"));
    assert_true(line_at(log, 0, "put catalog-recovery-segments/") < outcome);
    assert_true(line_at(log, 0, "put catalog-replay-transport/") > outcome);
    if (business)
        assert_true(line_at(log, 0, "put catalog-replay-business/") > outcome);
    else
        assert_null(strstr(log, "put catalog-replay-business/"));
}

static void test_write_order(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-4.4-04", "CCS-4.4-07");
    struct hold hold;
    struct sf_buf log = {0};
    hold_open(&hold, w);
    hold.puts = &log;
    w->wire.log = &log;
#define STEP(call, control, business)                                                              \
    do {                                                                                           \
        sf_buf_clear(&log);                                                                        \
        call;                                                                                      \
        check_order(sf_arena_str(w->arena, sf_buf_view(&log)), control, business);                 \
    } while (0)
    uint64_t ns = 0;
    uint64_t id = 0;
    STEP(ns = world_namespace(w, "n1", "alpha"), true, false);
    STEP(id = world_collection(w, "c1", ns, "books"), true, false);
    for (int of_collection = 0; of_collection < 2; of_collection++) {
        sf_buf_clear(&log);
        if (of_collection)
            assert_non_null(
                world_call(w, UPDATE_COLL, world_collection_request(w, "c2", ns, "books")));
        else
            assert_non_null(world_call(w, UPDATE_NS, world_namespace_request(w, "n2", "alpha")));
        const char *text = sf_arena_str(w->arena, sf_buf_view(&log));
        size_t name_lane = line_at(text, 0,
                                   of_collection ? "lane PUT_COLLECTION_METADATA collection-name"
                                                 : "lane PUT_NAMESPACE_METADATA namespace-name");
        size_t id_lane = line_at(text, 0,
                                 of_collection ? "lane PUT_COLLECTION_METADATA collection-id"
                                               : "lane PUT_NAMESPACE_METADATA namespace-id");
        assert_true(name_lane < id_lane && id_lane < line_at(text, 0, "put "));
        check_order(text, true, false);
    }
    STEP(world_schema(w, "s1", ns, id, 1, "tok-1"), true, true);
    STEP(lineage_drop(w, "d1", ns, id, NULL), true, true);
    STEP(lineage_drop(w, "d2", ns, id, NULL), false, false); /* a repeat writes a record alone */
    STEP(lineage_transition(w, ns, NS_STATE(QUIESCING), 2), true, false);
    sf_clock_manual_advance(&w->clock, GC_DELAY_MS);
    STEP(lineage_sweep(w), false, false);
    assert_non_null(lineage_transition(w, ns, NS_STATE(TOMBSTONED), 3));
    sf_clock_manual_advance(&w->clock, GC_DELAY_MS);
    STEP(lineage_sweep(w), false, false);
    assert_null(lineage_show(w, ns, 0));
    w->wire.log = NULL;
    hold_close(&hold, w);
    sf_buf_fini(&log);
}

/* ---- the answer waits for the rows -------------------------------------------------------- */

/* Holds the next commit of the projection. */
struct commit_hold {
    struct sf_sql_faults base;
    pthread_mutex_t mu;
    pthread_cond_t changed;
    bool armed, held, go;
};

static enum sf_err before_commit(struct sf_sql_faults *faults)
{
    struct commit_hold *hold = SF_CONTAINER_OF(faults, struct commit_hold, base);
    pthread_mutex_lock(&hold->mu);
    if (hold->armed) {
        hold->armed = false;
        hold->held = true;
        pthread_cond_broadcast(&hold->changed);
        while (!hold->go)
            pthread_cond_wait(&hold->changed, &hold->mu);
    }
    pthread_mutex_unlock(&hold->mu);
    return SF_OK;
}

static void test_answer_waits(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-4.4-09");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t id = world_collection(w, "c1", ns, "books");
    struct commit_hold hold = {.base = {.before_commit = before_commit}};
    pthread_mutex_init(&hold.mu, NULL);
    pthread_cond_init(&hold.changed, NULL);
    struct sf_sql *plain = w->sql;
    world_stop(w);
    w->sql = sf_sql_share(plain, &hold.base);
    assert_int_equal(world_open(w), SF_OK);
    hold.armed = true;
    struct side *side =
        side_start(w, "DropCollection", lineage_drop_request(w, "d1", ns, id, NULL));
    pthread_mutex_lock(&hold.mu);
    while (!hold.held)
        pthread_cond_wait(&hold.changed, &hold.mu);
    pthread_mutex_unlock(&hold.mu);
    assert_non_null(lineage_record(w, KIND(DROP_COLLECTION), 0)); /* durable, pointers too */
    assert_int_equal(world_list(w, "catalog-replay-business/DROP_COLLECTION/", NULL), 1);
    assert_int_equal(pthread_tryjoin_np(side->thread, NULL), EBUSY); /* and not answered */
    pthread_mutex_lock(&hold.mu);
    hold.go = true;
    pthread_cond_broadcast(&hold.changed);
    pthread_mutex_unlock(&hold.mu);
    assert_non_null(side_join(side, w));
    side_end(side);
    world_stop(w);
    sf_sql_close(w->sql);
    w->sql = plain;
    assert_int_equal(world_open(w), SF_OK);
    pthread_cond_destroy(&hold.changed);
    pthread_mutex_destroy(&hold.mu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crash_points),
        cmocka_unit_test(test_id_gap),
        cmocka_unit_test(test_schema_persisted),
        cmocka_unit_test_setup_teardown(test_tombstone_repair, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_wrong_horizon, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_release_outlives_drop, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_orphans, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_lost_index, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_namespace_races, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_collection_races, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_release_races, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_child_races, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_transition_race, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_write_order, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_answer_waits, world_setup, world_teardown),
    };
    return SF_RUN_TESTS("catalog_lineage_faults", tests);
}
