/* Reads: what memory holds changes no answer, and how they go over the lanes. */
#include <stdio.h>

#include "catalog/catalog_cache.h"
#include "component/catalog/lineage_world.h"

static struct sf_catalog_stats stats_of(struct world *w)
{
    struct sf_catalog_stats stats;
    sf_catalog_stats(w->catalog, &stats);
    return stats;
}

/* ---- requests ----------------------------------------------------------------------------- */

static SF_PB(CollectionRef) * ref_of(struct world *w, uint64_t ns, uint64_t id)
{
    SF_PB(CollectionRef) *ref = sf_arena_alloc(w->arena, sizeof(*ref));
    searchfabric__v1__collection_ref__init(ref);
    ref->namespace_id = ns;
    ref->collection_id = id;
    return ref;
}

static SF_PB(CollectionNameBinding) * binding_of(struct world *w, uint64_t ns, const char *name)
{
    SF_PB(CollectionNameBinding) *binding = sf_arena_alloc(w->arena, sizeof(*binding));
    searchfabric__v1__collection_name_binding__init(binding);
    binding->namespace_id = ns;
    binding->collection_name = sf_arena_str(w->arena, sf_view_str(name));
    return binding;
}

/* One read of each kind about a namespace "alpha" and its collection "books". */
enum { READS = 8 };
struct question {
    const char *method;
    const void *request;
};

static void questions(struct world *w, uint64_t ns, uint64_t id, const char *collection,
                      struct question out[READS])
{
    static SF_PB(GetNamespaceMetadataRequest) by_id, by_name;
    static SF_PB(GetCollectionMetadataRequest) by_ref, by_binding;
    static SF_PB(GetCollectionSchemaRequest) schema;
    static SF_PB(GetSchemaSyncStatusRequest) sync;
    static SF_PB(ResolveCollectionNameBindingRequest) resolve;
    static SF_PB(GetCollectionAdmissionStateRequest) admission;
    SF_PB(RequestMeta) *meta = world_meta(w, "", SF_PBE(CLIENT_KIND, CONTROL_ADMIN));
    searchfabric__v1__get_namespace_metadata_request__init(&by_id);
    searchfabric__v1__get_namespace_metadata_request__init(&by_name);
    searchfabric__v1__get_collection_metadata_request__init(&by_ref);
    searchfabric__v1__get_collection_metadata_request__init(&by_binding);
    searchfabric__v1__get_collection_schema_request__init(&schema);
    searchfabric__v1__get_schema_sync_status_request__init(&sync);
    searchfabric__v1__resolve_collection_name_binding_request__init(&resolve);
    searchfabric__v1__get_collection_admission_state_request__init(&admission);
    by_id.meta = by_name.meta = by_ref.meta = by_binding.meta = schema.meta = sync.meta = meta;
    by_id.lookup_case = SEARCHFABRIC__V1__GET_NAMESPACE_METADATA_REQUEST__LOOKUP_NAMESPACE_ID;
    by_id.namespace_id = ns;
    by_name.lookup_case = SEARCHFABRIC__V1__GET_NAMESPACE_METADATA_REQUEST__LOOKUP_NAMESPACE_NAME;
    by_name.namespace_name = (char *)"alpha";
    by_ref.lookup_case = SEARCHFABRIC__V1__GET_COLLECTION_METADATA_REQUEST__LOOKUP_COLLECTION;
    by_ref.collection = schema.collection = sync.collection = admission.collection =
        ref_of(w, ns, id);
    by_binding.lookup_case = SEARCHFABRIC__V1__GET_COLLECTION_METADATA_REQUEST__LOOKUP_NAME_BINDING;
    by_binding.name_binding = resolve.name_binding = binding_of(w, ns, collection);
    const struct question all[READS] = {
        {"GetNamespaceMetadata", &by_id},           {"GetNamespaceMetadata", &by_name},
        {"GetCollectionMetadata", &by_ref},         {"GetCollectionMetadata", &by_binding},
        {"GetCollectionSchema", &schema},           {"GetSchemaSyncStatus", &sync},
        {"ResolveCollectionNameBinding", &resolve}, {"GetCollectionAdmissionState", &admission}};
    memcpy(out, all, sizeof(all));
}

/* The answer as text, or the refusal. */
static const char *answer_of(struct world *w, const char *method, const void *request)
{
    const void *answer = world_call(w, method, request);
    if (answer != NULL)
        return world_json(w, answer);
    char text[SF_DIAG_TEXT_BYTES + 32];
    snprintf(text, sizeof(text), "%d: %s", (int)w->diag.err, w->diag.message);
    return sf_arena_str(w->arena, sf_view_str(text));
}

/* ---- disposable --------------------------------------------------------------------------- */

enum { MOST_ANSWERS = 400 };
struct tape {
    bool flush; /* between all requests */
    const char *answers[MOST_ANSWERS];
    size_t count;
};

static void record(struct world *w, struct tape *tape, const char *method, const void *request)
{
    if (tape->flush)
        sf_catalog_flush(w->catalog);
    assert_true(tape->count < MOST_ANSWERS);
    tape->answers[tape->count++] = answer_of(w, method, request);
}

static void record_reads(struct world *w, struct tape *tape, uint64_t ns, uint64_t id,
                         const char *name)
{
    struct question all[READS];
    questions(w, ns, id, name, all);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < READS; i++)
            record(w, tape, all[i].method, all[i].request);
    }
}

/* Creations, updates, schemas and signals, with every read in between. */
static void workload(struct world *w, struct tape *tape)
{
    uint64_t ns = world_namespace(w, "n1", "alpha");
    record_reads(w, tape, ns, 12345, "books");
    uint64_t id = world_collection(w, "c1", ns, "books");
    record_reads(w, tape, ns, id, "books");
    record_reads(w, tape, ns, id, "films");
    uint64_t films = world_collection(w, "c2", ns, "films");
    record_reads(w, tape, ns, films, "films");
    world_schema(w, "s1", ns, id, 1, "tok-1");
    record_reads(w, tape, ns, id, "books");
    world_ready(w, ns, id, 1, "tok-1");
    record_reads(w, tape, ns, id, "books");
    world_schema(w, "s2", ns, id, 2, "tok-2");
    record_reads(w, tape, ns, id, "books");
    SF_PB(PutCollectionMetadataRequest) *update = world_collection_request(w, "c3", ns, "books");
    update->options = world_options(w, "color", "red");
    record(w, tape, "PutCollectionMetadata", update);
    record_reads(w, tape, ns, id, "books");
    SF_PB(PutNamespaceMetadataRequest) *ns_update = world_namespace_request(w, "n2", "alpha");
    ns_update->options = world_options(w, "color", "blue");
    record(w, tape, "PutNamespaceMetadata", ns_update);
    record_reads(w, tape, ns, id, "books");
    record(w, tape, "PutCollectionMetadata", update); /* repeats */
    record(w, tape, "PutCollectionMetadata", update);
    record(w, tape, "PutNamespaceMetadata", ns_update);
}

static void test_disposable(void **state)
{
    (void)state;
    SF_PROVES("CCS-3.2-06");
    for (int shared = 0; shared < 2; shared++) {
        static struct tape kept, flushed;
        kept = (struct tape){.flush = false};
        flushed = (struct tape){.flush = true};
        struct world *one = world_new(shared == 0);
        struct world *other = world_new(shared == 0);
        workload(one, &kept);
        workload(other, &flushed);
        assert_int_equal(kept.count, flushed.count);
        for (size_t i = 0; i < kept.count; i++)
            assert_string_equal(kept.answers[i], flushed.answers[i]);
        assert_true(stats_of(one).cache_hits > 0);
        world_destroy(one);
        world_destroy(other);
    }
}

/* ---- one read for all --------------------------------------------------------------------- */

enum { ASKERS = 100 };

struct crowd {
    _Atomic unsigned answered;
    _Atomic unsigned failed;
};

static void on_answer(void *user, const struct sf_diag *diag, const ProtobufCMessage *response)
{
    struct crowd *crowd = user;
    if (response == NULL || diag->err != SF_OK)
        atomic_fetch_add(&crowd->failed, 1);
    atomic_fetch_add(&crowd->answered, 1);
}

/* Asks `q` a hundred times while the projection is held; returns how often it was read. */
static uint64_t ask_together(struct world *w, const struct question *q, bool is_private)
{
    char path[160];
    struct crowd crowd = {0};
    snprintf(path, sizeof(path), "/searchfabric.v1.CatalogControl%sService/%s",
             is_private ? "Private" : "", q->method);
    sf_catalog_flush(w->catalog);
    struct sf_catalog_stats before = stats_of(w);
    struct sf_sql_conn *held = sf_sql_acquire(w->sql, NULL, SF_SQL_WRITE);
    for (unsigned i = 0; i < ASKERS; i++)
        sf_channel_unary(w->channel, path, q->request, NULL, NULL, on_answer, &crowd);
    assert_int_equal(atomic_load(&crowd.answered), 0);
    sf_sql_release(held);
    while (atomic_load(&crowd.answered) < ASKERS) {
    }
    assert_int_equal(atomic_load(&crowd.failed), 0);
    return stats_of(w).cache_misses - before.cache_misses;
}

static void test_one_read_for_all(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-3.2-05");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t id = world_collection(w, "c1", ns, "books");
    world_schema(w, "s1", ns, id, 1, "tok-1");
    world_ready(w, ns, id, 1, "tok-1");
    struct question all[READS];
    questions(w, ns, id, "books", all);
    /* by name: what the name is bound to, then what stands under the id; a binding: the revision,
     * then the name; admission: the revision, then the state */
    const uint64_t expected[READS] = {1, 2, 1, 2, 1, 1, 2, 2};
    for (size_t i = 0; i < READS; i++)
        assert_int_equal(ask_together(w, &all[i], i >= READS - 2), expected[i]);
}

/* ---- memory alone ------------------------------------------------------------------------- */

/* A second round touches neither the projection nor the store. */
static void test_memory_alone(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t id = world_collection(w, "c1", ns, "books");
    world_schema(w, "s1", ns, id, 1, "tok-1");
    world_ready(w, ns, id, 1, "tok-1");
    struct question all[READS];
    const char *first[READS];
    questions(w, ns, id, "books", all);
    for (size_t i = 0; i < READS; i++)
        first[i] = answer_of(w, all[i].method, all[i].request);
    struct sf_catalog_stats before = stats_of(w);
    atomic_store(&w->wire.dead, true); /* no read of the store succeeds */
    struct sf_sql_conn *held = sf_sql_acquire(w->sql, NULL, SF_SQL_WRITE);
    for (size_t i = 0; i < READS; i++)
        assert_string_equal(answer_of(w, all[i].method, all[i].request), first[i]);
    sf_sql_release(held);
    assert_int_equal(stats_of(w).cache_misses, before.cache_misses);
    /* a collection that is not there is not remembered */
    uint64_t entries = stats_of(w).cache_entries;
    for (uint64_t unknown = 1; unknown <= 100; unknown++) {
        questions(w, ns, unknown, "books", all);
        assert_null(world_call(w, all[2].method, all[2].request));
        assert_int_equal(w->diag.err, SF_RESOURCE_NOT_FOUND);
    }
    assert_int_equal(stats_of(w).cache_entries, entries);
    assert_int_equal(stats_of(w).cache_misses, before.cache_misses + 100);
    atomic_store(&w->wire.dead, false);
}

/* That a name is not bound holds under one binding revision. */
static void test_unbound_name(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n1", "alpha");
    struct question all[READS];
    questions(w, ns, 1, "books", all);
    for (int round = 0; round < 3; round++)
        assert_null(world_call(w, all[3].method, all[3].request));
    uint64_t misses = stats_of(w).cache_misses;
    assert_null(world_call(w, all[3].method, all[3].request));
    assert_int_equal(stats_of(w).cache_misses, misses); /* remembered */
    (void)world_collection(w, "c1", ns, "films");       /* another name: another revision */
    assert_null(world_call(w, all[3].method, all[3].request));
    assert_true(stats_of(w).cache_misses > misses); /* read again */
    uint64_t id = world_collection(w, "c2", ns, "books");
    const SF_PB(GetCollectionMetadataResponse) *found =
        world_call(w, all[3].method, all[3].request);
    assert_non_null(found);
    assert_true(found->descriptor->collection->collection_id == id);
}

/* A dropped lineage is seen by nobody from its answer on; its name comes back under another
 * revision. */
static void test_rebound_name(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-3.2-03");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t first = world_collection(w, "c1", ns, "books");
    world_schema(w, "s1", ns, first, 1, "tok-1");
    struct question all[READS];
    questions(w, ns, first, "books", all);
    for (size_t i = 0; i < READS; i++)
        assert_non_null(world_call(w, all[i].method, all[i].request));
    const SF_PB(ResolveCollectionNameBindingResponse) *bound =
        world_call(w, all[6].method, all[6].request);
    assert_true(bound->collection->collection_id == first);
    assert_true(lineage_drop(w, "d1", ns, first, NULL) != 0);
    for (size_t i = 2; i < 6; i++) {
        assert_null(world_call(w, all[i].method, all[i].request));
        assert_int_equal(w->diag.err, SF_RESOURCE_NOT_FOUND);
    }
    const SF_PB(ResolveCollectionNameBindingResponse) *unbound =
        world_call(w, all[6].method, all[6].request);
    assert_null(unbound->collection);
    assert_true(unbound->collection_name_binding_revision >
                bound->collection_name_binding_revision);
    const SF_PB(GetCollectionAdmissionStateResponse) *dead =
        world_call(w, all[7].method, all[7].request);
    assert_int_equal(dead->state->lifecycle, SF_PBE(COLLECTION_ADMISSION_LIFECYCLE, TOMBSTONED));
    sf_clock_manual_advance(&w->clock, INT64_C(8) * 24 * 3600 * 1000);
    (void)lineage_sweep(w); /* the name is free again */
    uint64_t second = world_collection(w, "c2", ns, "books");
    assert_true(second != first);
    const SF_PB(ResolveCollectionNameBindingResponse) *again =
        world_call(w, all[6].method, all[6].request);
    assert_true(again->collection->collection_id == second);
    assert_true(again->collection_name_binding_revision >
                unbound->collection_name_binding_revision);
    const SF_PB(GetCollectionMetadataResponse) *named =
        world_call(w, all[3].method, all[3].request);
    assert_true(named->descriptor->collection->collection_id == second);
    assert_null(world_call(w, all[2].method, all[2].request)); /* the old ref stays dead */
}

/* ---- equal bytes -------------------------------------------------------------------------- */

static void packed(struct world *w, const char *identity, const struct question *q,
                   struct sf_buf *out)
{
    const ProtobufCMessage *answer = world_call_as(w, identity, q->method, q->request);
    assert_non_null(answer);
    sf_buf_clear(out);
    sf_pb_pack(answer, out);
}

/* Reads of unchanged rows are equal byte for byte: from memory, from the projection, of another
 * caller, at another time, after a restart. */
static void test_equal_bytes(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.1-02");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t id = world_collection(w, "c1", ns, "books");
    world_schema(w, "s1", ns, id, 1, "tok-1");
    world_ready(w, ns, id, 1, "tok-1");
    struct question all[READS];
    struct sf_buf first[READS] = {{0}};
    struct sf_buf again = {0};
    questions(w, ns, id, "books", all);
    for (size_t i = 0; i < READS; i++)
        packed(w, NULL, &all[i], &first[i]);
    for (int round = 0; round < 4; round++) {
        if (round == 1)
            sf_catalog_flush(w->catalog);
        if (round == 2)
            sf_clock_manual_advance(&w->clock, 3600 * 1000);
        if (round == 3)
            world_restart(w);
        questions(w, ns, id, "books", all);
        for (size_t i = 0; i < READS; i++) {
            packed(w, round == 0 ? "searchfabric:ingest-gateway" : NULL, &all[i], &again);
            assert_true(sf_view_equal(sf_buf_view(&again), sf_buf_view(&first[i])));
        }
    }
    for (size_t i = 0; i < READS; i++)
        sf_buf_fini(&first[i]);
    sf_buf_fini(&again);
}

/* A damaged row comes back from the objects. */
static void test_row_restored(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-3.2-08");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    (void)world_collection(w, "c1", ns, "books");
    const char *before = world_answers(w, ns);
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_WRITE);
    assert_int_equal(sf_sql_exec(conn,
                                 "UPDATE collections SET options_json = '{\"values\":{\"x\":"
                                 "\"forged\"}}', descriptor_revision = descriptor_revision + 5;",
                                 &w->diag),
                     SF_OK);
    sf_sql_release(conn);
    sf_catalog_flush(w->catalog);
    assert_string_not_equal(world_answers(w, ns), before);
    world_rebuild(w);
    assert_string_equal(world_answers(w, ns), before);
}

/* ---- lanes -------------------------------------------------------------------------------- */

enum { MOST_STRETCHES = 16 };
struct lanes {
    struct sf_catalog_trace base;
    struct {
        const char *lane;
        uint64_t key;
    } seen[MOST_STRETCHES];
    _Atomic size_t count;
};

static void on_lane(struct sf_catalog_trace *trace, const char *request, const char *lane,
                    uint64_t key)
{
    struct lanes *lanes = SF_CONTAINER_OF(trace, struct lanes, base);
    (void)request;
    size_t at = atomic_fetch_add(&lanes->count, 1);
    assert_true(at < MOST_STRETCHES);
    lanes->seen[at].lane = lane;
    lanes->seen[at].key = key;
}

/* Calls, and checks that the request went over exactly these lanes. */
static const void *over(struct world *w, struct lanes *lanes, const char *method,
                        const void *request, const char *names)
{
    char seen[256] = "";
    atomic_store(&lanes->count, 0);
    const void *answer = world_call(w, method, request);
    for (size_t i = 0; i < atomic_load(&lanes->count); i++) {
        size_t len = strlen(seen);
        snprintf(seen + len, sizeof(seen) - len, "%s%s", i == 0 ? "" : " ", lanes->seen[i].lane);
    }
    assert_string_equal(seen, names);
    return answer;
}

static void test_lanes(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-3.1-05", "CCS-3.1-11");
    struct lanes lanes = {.base = {.lane = on_lane}};
    world_stop(w);
    w->trace = &lanes.base;
    assert_int_equal(world_open(w), SF_OK);
    atomic_store(&lanes.count, 0);
    uint64_t ns = world_namespace(w, "n1", "alpha");
    atomic_store(&lanes.count, 0);
    uint64_t id = world_collection(w, "c1", ns, "books");
    uint64_t ns_key = sf_catalog_lane_key(SF_CATALOG_LANE_NAMESPACE_ID, ns, 0, sf_view_str(""));
    uint64_t id_key = sf_catalog_collection_lane(ns, id);
    struct question all[READS];
    SF_PB(PutCollectionSchemaRequest) *schema = world_schema_request(w, "s1", ns, id, 1, "tok-1");
    assert_non_null(over(w, &lanes, "PutCollectionSchema", schema, "collection-id"));
    assert_true(lanes.seen[0].key == id_key);
    questions(w, ns, id, "books", all);
    for (int warm = 0; warm < 2; warm++) {
        const char *by_id =
            world_json(w, over(w, &lanes, all[0].method, all[0].request, "namespace-id"));
        assert_true(lanes.seen[0].key == ns_key);
        const char *by_name = world_json(
            w, over(w, &lanes, all[1].method, all[1].request, "namespace-name namespace-id"));
        assert_true(lanes.seen[0].key == sf_catalog_lane_key(SF_CATALOG_LANE_NAMESPACE_NAME, 0, 0,
                                                             sf_view_str("alpha")));
        assert_true(lanes.seen[1].key == ns_key);
        assert_string_equal(by_name, by_id);
        assert_non_null(over(w, &lanes, all[2].method, all[2].request, "collection-id"));
        assert_true(lanes.seen[0].key == id_key);
        assert_non_null(
            over(w, &lanes, all[3].method, all[3].request, "collection-name collection-id"));
        assert_true(lanes.seen[0].key == sf_catalog_lane_key(SF_CATALOG_LANE_COLLECTION_NAME, ns, 0,
                                                             sf_view_str("books")));
        assert_true(lanes.seen[1].key == id_key);
        for (size_t i = 4; i < 6; i++) {
            assert_non_null(over(w, &lanes, all[i].method, all[i].request, "collection-id"));
            assert_true(lanes.seen[0].key == id_key);
        }
    }
    questions(w, ns + 1, id, "books", all); /* the id is known, the namespace is not its own */
    for (size_t i = 2; i < 6; i++) {
        if (i == 3)
            continue;
        assert_null(over(w, &lanes, all[i].method, all[i].request, "collection-id"));
        assert_int_equal(w->diag.err, SF_RESOURCE_NOT_FOUND);
    }
    SF_PB(DropCollectionRequest) *drop = lineage_drop_request(w, "d0", ns + 1, id, NULL);
    assert_null(over(w, &lanes, "DropCollection", drop, "collection-id"));
    assert_int_equal(w->diag.err, SF_RESOURCE_NOT_FOUND);
    drop = lineage_drop_request(w, "d1", ns, id, NULL);
    assert_non_null(over(w, &lanes, "DropCollection", drop, "collection-id"));
    assert_true(lanes.seen[0].key == id_key);
    world_stop(w);
    w->trace = NULL;
    assert_int_equal(world_open(w), SF_OK);
}

static void test_room(void **state)
{
    struct world *w = *state;
    const size_t good[] = {SF_CATALOG_CACHE_BYTES_MIN, SF_CATALOG_CACHE_BYTES_MAX};
    const size_t bad[] = {SF_CATALOG_CACHE_BYTES_MIN - 1, SF_CATALOG_CACHE_BYTES_MAX + 1};
    for (size_t i = 0; i < SF_ARRAY_LEN(good); i++) {
        world_stop(w);
        w->cache_bytes = bad[i];
        assert_int_equal(world_open(w), SF_ERR_CONFIG);
        w->cache_bytes = good[i];
        assert_int_equal(world_open(w), SF_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_disposable),
        cmocka_unit_test_setup_teardown(test_one_read_for_all, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_memory_alone, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_unbound_name, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_unbound_name, world_setup_shared, world_teardown),
        cmocka_unit_test_setup_teardown(test_rebound_name, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_rebound_name, world_setup_shared, world_teardown),
        cmocka_unit_test_setup_teardown(test_equal_bytes, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_equal_bytes, world_setup_shared, world_teardown),
        cmocka_unit_test_setup_teardown(test_row_restored, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_lanes, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_room, world_setup, world_teardown),
    };
    return SF_RUN_TESTS("catalog_reads", tests);
}
