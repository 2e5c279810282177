/* Every command kind through the same phases: what is written in which order, killed before the
 * record, kept from its rows, and with a record that is lost. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "component/catalog/catalog_manifests.h"
#include "component/catalog/lineage_world.h"

/* One command of each kind, in what an update does too. */
enum victim {
    CREATE_NAMESPACE,
    UPDATE_NAMESPACE,
    CREATE_COLLECTION,
    UPDATE_COLLECTION,
    SCHEMA,
    DROP,
    QUIESCE,
    RELEASE_COLLECTION,
    RELEASE_NAMESPACE,
    ADVANCE,
    VICTIMS
};

static const struct {
    SF_PB(CommandKind) kind;
    bool control;  /* writes a versioned control object */
    bool epoch;    /* writes a name's epoch object */
    bool business; /* has a business identity */
    size_t before; /* records of its kind that the scene needs */
} facts[VICTIMS] = {
    [CREATE_NAMESPACE] = {KIND(PUT_NAMESPACE_METADATA), true, true, false, 1},
    [UPDATE_NAMESPACE] = {KIND(PUT_NAMESPACE_METADATA), true, false, false, 1},
    [CREATE_COLLECTION] = {KIND(PUT_COLLECTION_METADATA), true, true, false, 1},
    [UPDATE_COLLECTION] = {KIND(PUT_COLLECTION_METADATA), true, false, false, 1},
    [SCHEMA] = {KIND(PUT_COLLECTION_SCHEMA), true, false, true, 1},
    [DROP] = {KIND(DROP_COLLECTION), true, false, true, 0},
    [QUIESCE] = {KIND(NAMESPACE_LIFECYCLE_TRANSITION), true, false, false, 0},
    [RELEASE_COLLECTION] = {KIND(COLLECTION_NAME_RESERVATION_RELEASE), false, false, false, 0},
    [RELEASE_NAMESPACE] = {KIND(NAMESPACE_NAME_RESERVATION_RELEASE), false, false, false, 0},
    [ADVANCE] = {KIND(HEAD_ADVANCE), false, false, true, 0},
};

struct scene {
    uint64_t ns, id;
    char sha256[SF_SHA256_HEX_BYTES]; /* of the manifest that an advance names */
};

/* Everything before the command. */
static struct scene prepare(struct world *w, enum victim victim)
{
    struct scene s = {.ns = world_namespace(w, "n1", "alpha")};
    if (victim == RELEASE_NAMESPACE) {
        assert_non_null(lineage_transition(w, s.ns, NS_STATE(TOMBSTONED), 1));
        sf_clock_manual_advance(&w->clock, GC_DELAY_MS);
        return s;
    }
    s.id = world_collection(w, "c1", s.ns, "books");
    world_schema(w, "s1", s.ns, s.id, 1, "tok-1");
    world_ready(w, s.ns, s.id, 1, "tok-1");
    if (victim == RELEASE_COLLECTION) {
        assert_int_equal(lineage_drop(w, "d0", s.ns, s.id, NULL), DROPPED);
        sf_clock_manual_advance(&w->clock, GC_DELAY_MS);
    }
    if (victim == ADVANCE) {
        manifest_write(w, s.ns, s.id, 1, 3, 30, NULL, s.sha256);
        manifest_point(w, s.ns, s.id, 1, s.sha256);
    }
    return s;
}

static const void *advance_request(struct world *w, const struct scene *s)
{
    SF_PB(SubmitHeadAdvanceIntentRequest) *out = sf_arena_alloc(w->arena, sizeof(*out));
    searchfabric__v1__submit_head_advance_intent_request__init(out);
    out->collection = world_ref(w, s->ns, s->id);
    out->expected_head_version = 0;
    out->new_head_version = 1;
    out->manifest_checksum_or_etag = world_text(w, s->sha256);
    return out;
}

static const void *put_collection(struct world *w, const struct scene *s, const char *name)
{
    SF_PB(PutCollectionMetadataRequest) *request =
        world_collection_request(w, "victim", s->ns, name);
    request->options = world_options(w, "v", "1");
    return world_call(w, "PutCollectionMetadata", request);
}

static const void *put_namespace(struct world *w, const char *name)
{
    SF_PB(PutNamespaceMetadataRequest) *request = world_namespace_request(w, "victim", name);
    request->options = world_options(w, "v", "1");
    return world_call(w, "PutNamespaceMetadata", request);
}

static const void *run(struct world *w, enum victim victim, const struct scene *s)
{
    SF_PB(RunReleaseSweepRequest) sweep;
    searchfabric__v1__run_release_sweep_request__init(&sweep);
    switch (victim) {
    case CREATE_NAMESPACE:
        return put_namespace(w, "beta");
    case UPDATE_NAMESPACE:
        return put_namespace(w, "alpha");
    case CREATE_COLLECTION:
        return put_collection(w, s, "boats");
    case UPDATE_COLLECTION:
        return put_collection(w, s, "books");
    case SCHEMA:
        return world_call(w, "PutCollectionSchema",
                          world_schema_request(w, "victim", s->ns, s->id, 2, "tok-2"));
    case DROP:
        return world_call(w, "DropCollection",
                          lineage_drop_request(w, "victim", s->ns, s->id, NULL));
    case QUIESCE:
        return lineage_transition(w, s->ns, NS_STATE(QUIESCING), 1);
    case ADVANCE:
        return world_call(w, "SubmitHeadAdvanceIntent", advance_request(w, s));
    default:
        return world_call(w, "RunReleaseSweep", &sweep);
    }
}

/* The victim's own record; NULL while there is none. */
static const SF_PB(CommandOutcomeObject) * record_of(struct world *w, enum victim victim)
{
    return lineage_record(w, facts[victim].kind, facts[victim].before);
}

/* Authoritative rows and public answers; released lineages have none. */
static const char *picture(struct world *w, enum victim victim, const struct scene *s)
{
    struct sf_buf out = {0};
    if (victim != RELEASE_NAMESPACE)
        sf_buf_append_str(&out, world_answers(w, s->ns));
    sf_buf_append_str(&out, world_dump(w));
    const char *text = sf_arena_str(w->arena, sf_buf_view(&out));
    sf_buf_fini(&out);
    return text;
}

static void assert_picture(struct world *w, enum victim victim, const struct scene *s,
                           const char *before)
{
    const char *now = picture(w, victim, s);
    size_t same = 0;
    while (now[same] != '\0' && now[same] == before[same])
        same++;
    if (now[same] != before[same])
        fail_msg("victim %d: %.300s\n became %.300s", (int)victim,
                 before + (same < 200 ? 0 : same - 200), now + (same < 200 ? 0 : same - 200));
}

/* ---- the order of writes ------------------------------------------------------------------ */

/* One list of what was decided, put and shown. */
struct tracer {
    struct sf_catalog_trace trace;
    struct sf_sql_faults faults;
    struct sf_sql *plain; /* the world's own handle */
    struct world *w;
};

static void append(struct world *w, const char *line)
{
    if (w->wire.log != NULL)
        sf_buf_append_str(w->wire.log, line);
}

static void on_apply(struct sf_catalog_trace *trace, const char *request, const char *lane)
{
    struct tracer *tracer = SF_CONTAINER_OF(trace, struct tracer, trace);
    char line[128];
    snprintf(line, sizeof(line), "apply %s %s\n", request, lane);
    append(tracer->w, line);
}

static enum sf_err before_commit(struct sf_sql_faults *faults)
{
    append(SF_CONTAINER_OF(faults, struct tracer, faults)->w, "commit\n");
    return SF_OK;
}

static void tracer_open(struct tracer *tracer, struct world *w)
{
    *tracer = (struct tracer){.trace = {.apply = on_apply},
                              .faults = {.before_commit = before_commit},
                              .plain = w->sql,
                              .w = w};
    world_stop(w);
    w->trace = &tracer->trace;
    w->sql = sf_sql_share(tracer->plain, &tracer->faults);
    assert_int_equal(world_open(w), SF_OK);
}

static void tracer_close(struct tracer *tracer)
{
    struct world *w = tracer->w;
    world_stop(w);
    w->trace = NULL;
    sf_sql_close(w->sql);
    w->sql = tracer->plain;
    assert_int_equal(world_open(w), SF_OK);
}

/* Position of the only line that begins so; SIZE_MAX without one. */
static size_t only(const char *log, const char *begin)
{
    const char *at = strstr(log, begin);
    if (at != NULL && strstr(at + 1, begin) != NULL)
        fail_msg("'%s' more than once in:\n%s", begin, log);
    return at == NULL ? SIZE_MAX : (size_t)(at - log);
}

static size_t one(const char *log, const char *begin)
{
    size_t at = only(log, begin);
    if (at == SIZE_MAX)
        fail_msg("no '%s' in:\n%s", begin, log);
    return at;
}

/* Resolved, then objects and listing, then the record, then pointers and rows. */
static void check_order(const char *log, enum victim victim)
{
    char apply[80];
    snprintf(apply, sizeof(apply), "apply %s ", sf_catalog_kind_name(facts[victim].kind));
    size_t resolved = one(log, apply);
    size_t segment = one(log, "put catalog-recovery-segments/");
    size_t record = one(log, "put catalog-log/");
    assert_true(resolved < segment && segment < record);
    assert_true(one(log, "put catalog-replay-transport/") > record);
    assert_true(one(log, "commit\n") > record);
    size_t epoch = only(log, "put catalog-allocator/");
    assert_int_equal(epoch != SIZE_MAX, facts[victim].epoch);
    if (facts[victim].epoch)
        assert_true(resolved < epoch && epoch < record);
    size_t business = only(log, "put catalog-replay-business/");
    assert_int_equal(business != SIZE_MAX, facts[victim].business);
    if (facts[victim].business)
        assert_true(business > record);
    size_t control = only(log, "put catalog/"); /* of an advance: the head, which follows */
    assert_int_equal(control != SIZE_MAX, facts[victim].control || victim == ADVANCE);
    if (facts[victim].control)
        assert_true(resolved < control && control < record);
    else if (victim == ADVANCE)
        assert_true(control > record && strstr(log, "/manifest_head.json") != NULL);
}

static void test_write_order(void **state)
{
    (void)state;
    SF_PROVES("CCS-4.4-01", "CCS-4.4-08");
    for (int i = 0; i < VICTIMS; i++) {
        enum victim victim = (enum victim)i;
        struct world *w = world_new(false);
        struct scene s = prepare(w, victim);
        struct tracer tracer;
        struct sf_buf log = {0};
        tracer_open(&tracer, w);
        (void)picture(w, victim, &s); /* the new owner's epoch is in what it swaps */
        w->wire.log = &log;
        assert_non_null(run(w, victim, &s));
        w->wire.log = NULL;
        assert_non_null(record_of(w, victim));
        check_order(sf_arena_str(w->arena, sf_buf_view(&log)), victim);
        tracer_close(&tracer);
        sf_buf_fini(&log);
        world_destroy(w);
    }
}

/* ---- killed before the record ------------------------------------------------------------- */

/* Puts of the victim before its record. */
static uint64_t puts_before_record(enum victim victim)
{
    return 1 + (facts[victim].control ? 1U : 0U) + (facts[victim].epoch ? 1U : 0U);
}

static void test_orphan_is_not_committed(void **state)
{
    (void)state;
    SF_PROVES("CCS-4.4-14");
    for (int i = 0; i < 2 * VICTIMS; i++) {
        enum victim victim = (enum victim)(i / 2);
        struct world *w = world_new(false);
        struct scene s = prepare(w, victim);
        const char *before = picture(w, victim, &s);
        size_t objects = world_list(w, "catalog/", NULL);
        atomic_store(&w->wire.applied, 0);
        atomic_store(&w->wire.cut_after, puts_before_record(victim));
        const void *answer = run(w, victim, &s);
        assert_true(atomic_load(&w->wire.dead));
        if (victim != RELEASE_COLLECTION && victim != RELEASE_NAMESPACE) { /* a sweep counts */
            assert_null(answer);
            assert_int_equal(w->diag.err, SF_BACKEND_UNAVAILABLE);
        }
        /* the control object stands, nothing names it */
        assert_int_equal(world_list(w, "catalog/", NULL),
                         objects + (facts[victim].control ? 1U : 0U));
        assert_null(record_of(w, victim));
        if (i % 2)
            world_rebuild(w);
        else
            world_restart(w);
        if (facts[victim].epoch) /* a rebuild shows the epoch that the attempt reserved */
            lineage_exec(w, "DELETE FROM namespace_name_epochs WHERE namespace_name = 'beta';"
                            "DELETE FROM collection_name_epochs WHERE collection_name = 'boats';");
        assert_picture(w, victim, &s, before);
        assert_null(record_of(w, victim));
        assert_non_null(run(w, victim, &s));
        assert_non_null(record_of(w, victim));
        /* the orphan is replaced; one of a fresh id is left behind */
        assert_int_equal(world_list(w, "catalog/", NULL),
                         objects + (facts[victim].control || victim == ADVANCE ? 1U : 0U) +
                             (facts[victim].epoch ? 1U : 0U));
        const char *after = picture(w, victim, &s);
        assert_string_not_equal(after, before);
        world_rebuild(w);
        assert_picture(w, victim, &s, after);
        world_destroy(w);
    }
}

/* ---- kept from the rows ------------------------------------------------------------------- */

/* Refuses the commits of the projection. */
struct refusal {
    struct sf_sql_faults faults;
    struct sf_sql *plain;
    _Atomic bool refusing;
    _Atomic unsigned refused;
};

static enum sf_err refuse_commit(struct sf_sql_faults *faults)
{
    struct refusal *refusal = SF_CONTAINER_OF(faults, struct refusal, faults);
    if (!atomic_load(&refusal->refusing))
        return SF_OK;
    atomic_fetch_add(&refusal->refused, 1);
    return SF_ERR_UNAVAILABLE;
}

struct side {
    struct world world; /* memory of its own */
    pthread_t thread;
    enum victim victim;
    struct scene scene;
    const void *answer;
};

static void *side_run(void *arg)
{
    struct side *side = arg;
    side->answer = run(&side->world, side->victim, &side->scene);
    return NULL;
}

/* The command's record stands, its rows cannot be written until its owner's office ends. */
static void keep_from_rows(struct world *w, enum victim victim, const struct scene *s,
                           struct refusal *refusal)
{
    struct side side = {.victim = victim, .scene = *s};
    memcpy((void *)&side.world, (const void *)w, sizeof(*w));
    side.world.arena = sf_arena_new((size_t)8 << 20);
    atomic_store(&refusal->refusing, true);
    assert_int_equal(pthread_create(&side.thread, NULL, side_run, &side), 0);
    while (atomic_load(&refusal->refused) < 3)
        sched_yield();
    sf_catalog_drain(w->catalog);
    assert_int_equal(pthread_join(side.thread, NULL), 0);
    if (victim != RELEASE_COLLECTION && victim != RELEASE_NAMESPACE) {
        assert_null(side.answer);
        assert_int_equal(side.world.diag.err, SF_BACKEND_UNAVAILABLE);
    }
    sf_arena_destroy(side.world.arena);
    world_stop(w);
    atomic_store(&refusal->refusing, false);
}

static void test_no_answer_without_rows(void **state)
{
    (void)state;
    SF_PROVES("CCS-4.4-18");
    for (int i = 0; i < VICTIMS; i++) {
        enum victim victim = (enum victim)i;
        struct world *w = world_new(false);
        struct scene s = prepare(w, victim);
        struct refusal refusal = {.faults = {.before_commit = refuse_commit}, .plain = w->sql};
        world_stop(w);
        w->sql = sf_sql_share(refusal.plain, &refusal.faults);
        assert_int_equal(world_open(w), SF_OK);
        keep_from_rows(w, victim, &s, &refusal);
        sf_clock_manual_advance(&w->clock, 1000);
        assert_int_equal(world_open(w), SF_OK);
        const SF_PB(CommandOutcomeObject) *record = record_of(w, victim);
        assert_non_null(record);
        /* the same key gets the success that was recorded; a repeated drop says so */
        const ProtobufCMessage *again = run(w, victim, &s);
        assert_non_null(again);
        if (facts[victim].kind == KIND(PUT_NAMESPACE_METADATA) ||
            facts[victim].kind == KIND(PUT_COLLECTION_METADATA) || victim == SCHEMA) {
            struct sf_buf bytes = {0};
            sf_pb_pack(again, &bytes);
            assert_true(
                sf_view_equal(sf_buf_view(&bytes), sf_view_bytes(record->success_payload.data,
                                                                 record->success_payload.len)));
            sf_buf_fini(&bytes);
        }
        if (victim == DROP)
            assert_int_equal(((const SF_PB(DropCollectionSuccessResponse) *)again)->status,
                             ALREADY_DROPPED);
        assert_null(lineage_record(w, facts[victim].kind, facts[victim].before + 1));
        world_stop(w);
        sf_sql_close(w->sql);
        w->sql = refusal.plain;
        assert_int_equal(world_open(w), SF_OK);
        world_destroy(w);
    }
}

/* ---- a record that is lost ---------------------------------------------------------------- */

/* Takes an object out of the truth; its body goes to `body`. */
static void take(struct world *w, const char *key, struct sf_buf *body)
{
    sf_buf_clear(body);
    assert_int_equal(sf_store_get_wait(w->truth, NULL, sf_view_str(key), body, NULL), SF_OK);
    assert_int_equal(sf_store_remove_wait(w->truth, NULL, sf_view_str(key)), SF_OK);
}

/* A start over an empty projection is refused with a message about `key`. */
static void rebuild_fails(struct world *w, const char *key)
{
    world_stop(w);
    sf_sql_close(w->sql);
    sf_test_sql_empty(&w->place);
    assert_int_equal(sf_catalog_projection_open_at(&w->place.where, &w->diag, &w->sql), SF_OK);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(world_open(w), SF_ERR_CORRUPT);
        if (strstr(w->diag.message, key) == NULL)
            fail_msg("%s is not in: %s", key, w->diag.message);
    }
}

static void test_lost_objects(void **state)
{
    (void)state;
    SF_PROVES("CCS-11-18");
    for (int i = 0; i < VICTIMS; i++) {
        enum victim victim = (enum victim)i;
        struct world *w = world_new(false);
        struct scene s = prepare(w, victim);
        assert_non_null(run(w, victim, &s));
        const char *before = picture(w, victim, &s);
        const SF_PB(CommandOutcomeObject) *record = record_of(w, victim);
        struct sf_buf key = {0}, body = {0};
        sf_catalog_key_outcome(&key, record->command_identity);
        const char *record_key = sf_arena_str(w->arena, sf_buf_view(&key));
        sf_buf_fini(&key);
        /* the record: not aborted, and nothing put in its place */
        take(w, record_key, &body);
        rebuild_fails(w, record_key);
        assert_int_equal(sf_store_get_wait(w->truth, NULL, sf_view_str(record_key), &key, NULL),
                         SF_ERR_NOT_FOUND);
        truth_put(w, record_key, sf_buf_view(&body));
        assert_int_equal(world_open(w), SF_OK);
        assert_picture(w, victim, &s, before);
        /* what it names */
        if (facts[victim].control) {
            const char *object_key = record->control_objects[0]->key;
            take(w, object_key, &body);
            rebuild_fails(w, object_key);
            truth_put(w, object_key, sf_buf_view(&body));
            assert_int_equal(world_open(w), SF_OK);
            assert_picture(w, victim, &s, before);
        }
        sf_buf_fini(&body);
        world_destroy(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write_order),
        cmocka_unit_test(test_orphan_is_not_committed),
        cmocka_unit_test(test_no_answer_without_rows),
        cmocka_unit_test(test_lost_objects),
    };
    return SF_RUN_TESTS("catalog_kinds", tests);
}
