/*
 * A store with something in every table: the projection alone answers reads, is rebuilt whole from
 * objects whatever stood in it, and nobody is served while it is. The lifecycle policy throughout:
 * warm after 1000 ms, gone after 100000 ms.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "component/catalog/catalog_manifests.h"
#include "component/catalog/lineage_world.h"
#include "component/catalog/quota_world.h"

#define T0 WORLD_UNIX_MS

/* ---- something in every table ------------------------------------------------------------- */

struct made {
    uint64_t ns, books, films; /* films is dropped */
};

static void put_policy(struct world *w, uint64_t ns, uint64_t c)
{
    SF_PB(PutCollectionSchemaRequest) *put = world_schema_request(w, "s1", ns, c, 1, "tok-1");
    SF_PB(CollectionSettings) settings;
    SF_PB(LifecyclePolicy) policy;
    SF_PB(LifecycleTransition) step, *steps[] = {&step};
    searchfabric__v1__collection_settings__init(&settings);
    searchfabric__v1__lifecycle_policy__init(&policy);
    searchfabric__v1__lifecycle_transition__init(&step);
    put->definition->fields[0]->type = SF_PBE(FIELD_TYPE, TIMESTAMP);
    policy.time_partition_field = put->definition->fields[0]->name;
    policy.window_ms = 1000;
    policy.transitions = steps;
    policy.n_transitions = 1;
    policy._retention_ms_case = SEARCHFABRIC__V1__LIFECYCLE_POLICY___RETENTION_MS_RETENTION_MS;
    policy.retention_ms = 100000;
    step.after_ms = 1000;
    step.target_tier = SF_PBE(DATA_TIER, WARM);
    settings.lifecycle_policy = &policy;
    put->definition->settings = &settings;
    assert_non_null(world_call(w, "PutCollectionSchema", put));
}

/* The committed manifest of a version with three windows, and the catalog's head at it. */
static void publish(struct world *w, const struct made *m, uint64_t version)
{
    char sha256[SF_SHA256_HEX_BYTES];
    SF_PB(SubmitHeadAdvanceIntentRequest) advance;
    SF_PB(ManifestSummaryObject) *summary = summary_new(w, version, 3);
    for (int i = 0; i < 3; i++)
        summary_window(w, summary, T0 - 1000 + i * 1000, T0 + i * 1000, SF_PBE(DATA_TIER, HOT),
                       version, "o", NULL, 0);
    manifest_write(w, m->ns, m->books, version, 3, 30, summary, sha256);
    manifest_point(w, m->ns, m->books, version, sha256);
    searchfabric__v1__submit_head_advance_intent_request__init(&advance);
    advance.collection = world_ref(w, m->ns, m->books);
    advance.expected_head_version = (int64_t)version - 1;
    advance.new_head_version = version;
    advance.manifest_checksum_or_etag = sha256;
    assert_non_null(world_call(w, "SubmitHeadAdvanceIntent", &advance));
}

static void catch_up(struct world *w)
{
    world_job(w, "manifest-head");
    world_job(w, "lifecycle-windows");
    world_enrich(w);
}

static struct made make(struct world *w)
{
    struct made m = {.ns = world_namespace(w, "n1", "alpha")};
    uint64_t closing = world_namespace(w, "n2", "beta");
    m.books = world_collection(w, "c1", m.ns, "books");
    m.films = world_collection(w, "c2", m.ns, "films");
    put_policy(w, m.ns, m.books);
    world_ready(w, m.ns, m.books, 1, "tok-1");
    world_schema(w, "s2", m.ns, m.films, 1, "tok-f");
    assert_int_equal(lineage_drop(w, "d1", m.ns, m.films, NULL), DROPPED);
    assert_non_null(lineage_transition(w, closing, NS_STATE(QUIESCING), 1));
    assert_non_null(lease(w, m.ns, "query_rcu", "gw", "r0", 100, 0));
    publish(w, &m, 1);
    world_job(w, "statistics");
    catch_up(w);
    return m;
}

static const char *windows(struct world *w)
{
    return world_rows(w,
                      "SELECT CAST(window_start_ms AS TEXT), effective_tier,"
                      " CAST(next_transition_at_unix_ms AS TEXT),"
                      " CAST(retention_deadline_unix_ms AS TEXT), window_state"
                      " FROM collection_lifecycle_windows ORDER BY collection_id, window_start_ms",
                      5);
}

static const char *statistics(struct world *w)
{
    struct sf_buf out = {0};
    sf_buf_append_str(&out, world_rows(w,
                                       "SELECT latest_applied_schema_generation_token,"
                                       " CAST(latest_collected_at_unix_ms AS TEXT)"
                                       " FROM collection_statistics_heads ORDER BY collection_id",
                                       2));
    sf_buf_append_str(&out, world_rows(w,
                                       "SELECT s.applied_schema_generation_token, s.snapshot_json"
                                       " FROM collection_statistics_snapshots s"
                                       " JOIN collection_statistics_heads h"
                                       " ON h.namespace_id = s.namespace_id"
                                       " AND h.collection_id = s.collection_id"
                                       " AND h.latest_stats_commit_ts = s.stats_commit_ts"
                                       " ORDER BY s.collection_id",
                                       2));
    const char *text = sf_arena_str(w->arena, sf_buf_view(&out));
    sf_buf_fini(&out);
    return text;
}

/* All rows but for what a rebuild is to change: quota state, leases, binding revisions. */
static const char *dump(struct world *w)
{
    struct sf_buf out = {0};
    const char *rows = world_dump(w);
    const char *quota = strstr(rows, "# namespace_quota_state\n");
    const char *after = strchr(quota + 1, '#');
    assert_non_null(strstr(rows, "\"films\"")); /* the tombstone */
    sf_buf_append(&out, rows, (size_t)(quota - rows));
    sf_buf_append_str(&out, after);
    sf_buf_append_str(&out, statistics(w));
    sf_buf_append_str(&out, windows(w));
    const char *text = sf_arena_str(w->arena, sf_buf_view(&out));
    sf_buf_fini(&out);
    return text;
}

static const char *answer(struct world *w, const char *method, const void *request)
{
    const void *response = world_call(w, method, request);
    if (response == NULL)
        fail_msg("%s: %s", method, w->diag.message);
    return world_json(w, response);
}

/* Every public read, and the reads of the serving side. */
static const char *reads(struct world *w, const struct made *m)
{
    struct sf_buf out = {0};
    SF_PB(RequestMeta) *meta = world_meta(w, "", SF_PBE(CLIENT_KIND, ES_QUERY_GATEWAY));
    SF_PB(CollectionNameBinding) binding;
    SF_PB(ListNamespacesRequest) namespaces;
    SF_PB(GetNamespaceMetadataRequest) ns;
    SF_PB(ListCollectionsRequest) list;
    SF_PB(GetCollectionMetadataRequest) get;
    SF_PB(GetCollectionSchemaRequest) schema;
    SF_PB(GetSchemaSyncStatusRequest) sync;
    SF_PB(GetCollectionStatisticsRequest) stats;
    SF_PB(GetCollectionAdmissionStateRequest) admission;
    SF_PB(ResolveCollectionNameBindingRequest) resolve;
    SF_PB(ResolveServingGenerationRequest) serving;
    searchfabric__v1__collection_name_binding__init(&binding);
    searchfabric__v1__list_namespaces_request__init(&namespaces);
    searchfabric__v1__get_namespace_metadata_request__init(&ns);
    searchfabric__v1__list_collections_request__init(&list);
    searchfabric__v1__get_collection_metadata_request__init(&get);
    searchfabric__v1__get_collection_schema_request__init(&schema);
    searchfabric__v1__get_schema_sync_status_request__init(&sync);
    searchfabric__v1__get_collection_statistics_request__init(&stats);
    searchfabric__v1__get_collection_admission_state_request__init(&admission);
    searchfabric__v1__resolve_collection_name_binding_request__init(&resolve);
    searchfabric__v1__resolve_serving_generation_request__init(&serving);
    namespaces.meta = ns.meta = list.meta = get.meta = schema.meta = sync.meta = stats.meta = meta;
    binding.namespace_id = list.namespace_id = m->ns;
    binding.collection_name = world_text(w, "books");
    schema.collection = sync.collection = stats.collection = admission.collection =
        serving.collection = world_ref(w, m->ns, m->books);
    resolve.name_binding = &binding;
    sf_buf_append_str(&out, answer(w, "ListNamespaces", &namespaces));
    ns.lookup_case = SEARCHFABRIC__V1__GET_NAMESPACE_METADATA_REQUEST__LOOKUP_NAMESPACE_ID;
    ns.namespace_id = m->ns;
    sf_buf_append_str(&out, answer(w, "GetNamespaceMetadata", &ns));
    ns.lookup_case = SEARCHFABRIC__V1__GET_NAMESPACE_METADATA_REQUEST__LOOKUP_NAMESPACE_NAME;
    ns.namespace_name = world_text(w, "beta");
    sf_buf_append_str(&out, answer(w, "GetNamespaceMetadata", &ns));
    sf_buf_append_str(&out, answer(w, "ListCollections", &list));
    get.lookup_case = SEARCHFABRIC__V1__GET_COLLECTION_METADATA_REQUEST__LOOKUP_COLLECTION;
    get.collection = schema.collection;
    sf_buf_append_str(&out, answer(w, "GetCollectionMetadata", &get));
    get.lookup_case = SEARCHFABRIC__V1__GET_COLLECTION_METADATA_REQUEST__LOOKUP_NAME_BINDING;
    get.name_binding = &binding;
    sf_buf_append_str(&out, answer(w, "GetCollectionMetadata", &get));
    sf_buf_append_str(&out, answer(w, "GetCollectionSchema", &schema));
    sf_buf_append_str(&out, answer(w, "GetSchemaSyncStatus", &sync));
    sf_buf_append_str(&out, answer(w, "GetCollectionStatistics", &stats));
    sf_buf_append_str(&out, answer(w, "GetCollectionAdmissionState", &admission));
    sf_buf_append_str(&out, answer(w, "ResolveCollectionNameBinding", &resolve));
    sf_buf_append_str(&out, answer(w, "ResolveServingGeneration", &serving));
    const char *text = sf_arena_str(w->arena, sf_buf_view(&out));
    sf_buf_fini(&out);
    return text;
}

/* ---- the store under the wire ------------------------------------------------------------- */

/* Stands above the wire: refuses all reads, or those of a key part, or holds requests of one up. */
struct above {
    struct sf_store_vtable vtable;
    const struct sf_store_vtable *below;
    pthread_mutex_t mu;
    pthread_cond_t changed;
    const char *part;     /* held; NULL = nothing */
    bool held, go;        /* under mu */
    _Atomic bool refuse;  /* reads and lists */
    const char *refused;  /* part of the keys whose reads are refused; NULL = of all */
    _Atomic unsigned met; /* of those */
};

static struct above above = {.mu = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static bool has(struct sf_view key, const char *part)
{
    return memmem(key.ptr, key.len, part, strlen(part)) != NULL;
}

static void hold(struct sf_view key)
{
    pthread_mutex_lock(&above.mu);
    if (above.part != NULL && has(key, above.part)) {
        above.held = true;
        pthread_cond_broadcast(&above.changed);
        while (!above.go)
            pthread_cond_wait(&above.changed, &above.mu);
    }
    pthread_mutex_unlock(&above.mu);
}

static void get_above(struct sf_store *store, struct sf_get *get)
{
    if (atomic_load(&above.refuse) && (above.refused == NULL || has(get->key, above.refused))) {
        atomic_fetch_add(&above.met, 1);
        get->err = SF_ERR_UNAVAILABLE;
        get->done(get);
        return;
    }
    hold(get->key);
    above.below->get(store, get);
}

static enum sf_err list_above(struct sf_store *store, struct sf_sched *sched, struct sf_view prefix,
                              struct sf_view start_after, size_t limit, struct sf_arena *arena,
                              struct sf_list_entry **out_entries, size_t *out_count)
{
    if (atomic_load(&above.refuse)) {
        atomic_fetch_add(&above.met, 1);
        return SF_ERR_UNAVAILABLE;
    }
    hold(prefix);
    return above.below->list(store, sched, prefix, start_after, limit, arena, out_entries,
                             out_count);
}

static void submit_above(struct sf_store *store, struct sf_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        hold(batch->puts[i].key);
    above.below->submit(store, batch);
}

static void above_begin(struct world *w)
{
    above.below = w->wire.base.vtable;
    above.vtable = *above.below;
    above.vtable.get = get_above;
    above.vtable.list = list_above;
    above.vtable.submit = submit_above;
    above.part = above.refused = NULL;
    above.held = above.go = false;
    atomic_store(&above.refuse, false);
    atomic_store(&above.met, 0);
    w->wire.base.vtable = &above.vtable;
}

static void above_end(struct world *w)
{
    w->wire.base.vtable = above.below;
}

/* ---- the projection is enough ------------------------------------------------------------- */

static void test_reads_without_the_store(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.1-01");
    struct made m = make(w);
    for (int after_restart = 0; after_restart < 2; after_restart++) {
        if (after_restart) {
            world_restart(w);
            catch_up(w);
        }
        const char *warm = reads(w, &m);
        above_begin(w);
        atomic_store(&above.refuse, true);
        for (int again = 0; again < 4; again++) {
            if (again >= 2)
                sf_catalog_flush(w->catalog); /* as eviction does, of everything */
            assert_string_equal(reads(w, &m), warm);
        }
        assert_int_equal(atomic_load(&above.met), 0);
        above_end(w);
    }
}

static const SF_PB(GetSchemaSyncStatusResponse) * sync_of(struct world *w, const struct made *m)
{
    SF_PB(GetSchemaSyncStatusRequest) request;
    searchfabric__v1__get_schema_sync_status_request__init(&request);
    request.meta = world_meta(w, "", SF_PBE(CLIENT_KIND, CONTROL_ADMIN));
    request.collection = world_ref(w, m->ns, m->books);
    return world_call(w, "GetSchemaSyncStatus", &request);
}

/* What was adopted under another owner epoch is read from the store again, once. */
static void test_adopted_once_per_owner(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.1-01");
    struct made m = make(w);
    for (int lost = 0; lost < 2; lost++) {
        if (lost)
            world_rebuild(w);
        else
            world_restart(w);
        above_begin(w);
        atomic_store(&above.refuse, true);
        assert_null(sync_of(w, &m));
        assert_int_equal(w->diag.err, SF_BACKEND_UNAVAILABLE);
        assert_true(atomic_load(&above.met) > 0);
        atomic_store(&above.refuse, false);
        assert_non_null(sync_of(w, &m));
        sf_catalog_flush(w->catalog);
        atomic_store(&above.refuse, true);
        atomic_store(&above.met, 0);
        assert_non_null(sync_of(w, &m));
        assert_int_equal(atomic_load(&above.met), 0);
        above_end(w);
    }
}

/* A change that reached the block and not the rows is found by the next look. */
static void test_half_a_change_is_adopted_again(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n1", "alpha");
    struct made m = {.ns = ns, .books = world_collection(w, "c1", ns, "books")};
    SF_PB(ReportSchemaConvergenceSignalRequest) signal;
    world_schema(w, "s1", ns, m.books, 1, "tok-1");
    searchfabric__v1__report_schema_convergence_signal_request__init(&signal);
    signal.collection = world_ref(w, ns, m.books);
    signal.schema_version = 1;
    signal.schema_generation_token = world_text(w, "tok-1");
    signal.signal = SF_PBE(SCHEMA_CONVERGENCE_SIGNAL, SERVING_GENERATION_READY);
    assert_int_equal(sync_of(w, &m)->state->state_case,
                     SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_APPLYING);
    above_begin(w);
    above.refused = "optimizer_statistics_head";
    atomic_store(&above.refuse, true);
    assert_null(world_call(w, "ReportSchemaConvergenceSignal", &signal));
    assert_true(atomic_load(&above.met) > 0);
    assert_string_equal(world_rows(w, "SELECT sync_state FROM schema_generations", 1),
                        "APPLYING\n");
    atomic_store(&above.refuse, false);
    assert_int_equal(sync_of(w, &m)->state->state_case,
                     SEARCHFABRIC__V1__SCHEMA_SYNC_STATE__STATE_READY);
    above_end(w);
}

/* ---- rebuilt whole ------------------------------------------------------------------------ */

/* Loses the projection in one of three ways; the catalog is open afterwards. */
static void lose(struct world *w, int how)
{
    SF_PB(CreateCheckpointRequest) cut;
    searchfabric__v1__create_checkpoint_request__init(&cut);
    switch (how) {
    case 0:
        world_rebuild(w);
        return;
    case 1: /* rows come from a checkpoint, those without a record from their objects */
        assert_non_null(world_call(w, "CreateCheckpoint", &cut));
        world_rebuild(w);
        return;
    default: /* wrong rows are left in place */
        world_stop(w);
        world_sql(
            w, "UPDATE collection_lifecycle_windows SET retention_deadline_unix_ms = 5,"
               " next_transition_at_unix_ms = 6;"
               "UPDATE collection_statistics_heads"
               " SET latest_applied_schema_generation_token = 'wrong';"
               "UPDATE collections SET collection_name = 'wrong' WHERE collection_name = 'books';"
               "UPDATE namespaces SET namespace_name = 'wrong' WHERE namespace_name = 'beta';"
               "UPDATE schema_generations SET schema_generation_token = 'wrong';"
               "DELETE FROM collection_tombstones;"
               "DELETE FROM catalog_replay_index;"
               "DELETE FROM catalog_lane_shards;");
        assert_int_equal(world_open(w), SF_OK);
    }
}

/* Budgets that outlast what each start forfeits. */
static const struct sf_catalog_quota_class ample = {
    .name = "default", .budgets = {[SF_CATALOG_QUERY_RCU] = {1000, 100000}}};
static const struct sf_catalog_policy ample_policy = {.classes = &ample, .class_count = 1};

static void test_every_table(void **state)
{
    struct world *w = *state;
    w->policy = &ample_policy;
    world_restart(w);
    SF_PROVES("CCS-5.1-04", "CCS-11-06", "CCS-11-09", "CCS-11-10", "CCS-11-16");
    struct made m = make(w);
    const char *before = dump(w), *answers = reads(w, &m), *due = windows(w);
    const char *snapshots = statistics(w);
    assert_non_null(strstr(due, "\n")); /* there are windows, and statistics */
    assert_non_null(strstr(snapshots, "tok-1"));
    for (int how = 0; how < 3; how++) {
        uint64_t epoch = quota_object(w, m.ns)->quota_epoch;
        uint64_t binding = lineage_binding(w, m.ns);
        assert_int_equal(active_leases(w, m.ns), 1);
        lose(w, how);
        /* quota: a fresh epoch, the row is the object's, nothing of the old epoch is granted */
        assert_true(quota_object(w, m.ns)->quota_epoch > epoch);
        assert_row_is_object(w, m.ns);
        assert_int_equal(active_leases(w, m.ns), 0);
        assert_null(lease(w, m.ns, "query_rcu", "gw", "late", 1, epoch));
        assert_int_equal(w->diag.err, SF_VERSION_CONFLICT);
        assert_true(lineage_binding(w, m.ns) >= binding + (how == 0 ? 1 : 0));
        assert_string_equal(statistics(w), snapshots); /* from head and snapshot, at once */
        catch_up(w);
        assert_string_equal(windows(w), due);
        assert_string_equal(dump(w), before);
        char id[16];
        snprintf(id, sizeof(id), "r%d", how + 1);
        assert_non_null(lease(w, m.ns, "query_rcu", "gw", id, 100, 0));
        /* nothing but the revision of names differs in an answer */
        assert_int_equal(strlen(reads(w, &m)), strlen(answers));
    }
}

/* ---- policies of rows --------------------------------------------------------------------- */

static const struct sf_catalog_quota_class classes[] = {
    {.name = "default", .budgets = {[SF_CATALOG_QUERY_RCU] = {1000, 5000}}},
    {.name = "marker-class", .budgets = {[SF_CATALOG_QUERY_RCU] = {7, 70}}},
};
static const struct sf_catalog_policy policy = {.classes = classes,
                                                .class_count = SF_ARRAY_LEN(classes)};

#define MARKED                                                                                     \
    "internal_policy_state_json = '{\"quota_class\":\"marker-class\","                             \
    "\"policy_profile\":\"marker-profile\",\"audit\":{\"marker-key\":\"marker-value\"}}'"

/* The call ends as expected, and no text of a policy gets out with it. */
static void no_marker(struct world *w, enum sf_err expected, const char *method,
                      const void *request)
{
    const void *response = world_call(w, method, request);
    enum sf_err err = response != NULL ? SF_OK : w->diag.err;
    if (err != expected)
        fail_msg("%s: %s", method, err == SF_OK ? "answered" : w->diag.message);
    if (response != NULL) {
        assert_null(strstr(world_json(w, response), "marker"));
        return;
    }
    assert_null(strstr(w->diag.message, "marker"));
    for (unsigned i = 0; i < w->diag.detail_count; i++) {
        assert_null(strstr(w->diag.details[i].key, "marker"));
        assert_null(strstr(w->diag.details[i].value, "marker"));
    }
}

/* Every public mutation, admitted and refused, over rows that carry the marker. */
static void mutate_marked(struct world *w, const struct made *m)
{
    SF_PB(PutNamespaceMetadataRequest) *ns = world_namespace_request(w, "m1", "alpha");
    ns->options = world_options(w, "a", "b");
    no_marker(w, SF_OK, "PutNamespaceMetadata", ns);
    ns->options = world_options(w, "a", "c");
    no_marker(w, SF_IDEMPOTENCY_CONFLICT, "PutNamespaceMetadata", ns);
    no_marker(w, SF_OK, "PutNamespaceMetadata", world_namespace_request(w, "m2", "beta"));
    SF_PB(PutCollectionMetadataRequest) *put = world_collection_request(w, "m3", m->ns, "books");
    put->options = world_options(w, "a", "b");
    no_marker(w, SF_OK, "PutCollectionMetadata", put);
    put->options = world_options(w, "a", "c");
    no_marker(w, SF_IDEMPOTENCY_CONFLICT, "PutCollectionMetadata", put);
    no_marker(w, SF_VERSION_CONFLICT, "PutCollectionMetadata",
              world_collection_request(w, "m4", m->ns, "films"));
    SF_PB(PutCollectionSchemaRequest) *schema =
        world_schema_request(w, "m5", m->ns, m->books, 2, "tok-2");
    no_marker(w, SF_BAD_REQUEST, "PutCollectionSchema", schema); /* another field type */
    schema->definition->fields[0]->type = SF_PBE(FIELD_TYPE, TIMESTAMP);
    no_marker(w, SF_OK, "PutCollectionSchema", schema);
    no_marker(w, SF_VERSION_CONFLICT, "DropCollection",
              lineage_drop_request(w, "m7", m->ns, m->books, "tok-9"));
    no_marker(w, SF_RESOURCE_NOT_FOUND, "DropCollection",
              lineage_drop_request(w, "m8", m->ns, 77, NULL));
    no_marker(w, SF_OK, "DropCollection", lineage_drop_request(w, "m9", m->ns, m->books, "tok-2"));
}

/* What a row says of policies grants nothing and is in no public answer and no refusal. */
static void test_policies_of_rows(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.3-11", "CCS-2.2-06");
    w->policy = &policy;
    world_restart(w);
    struct made m = make(w);
    uint64_t other = world_namespace(w, "n3", "gamma");
    uint64_t marked = world_namespace(w, "n4", "delta");
    (void)world_collection(w, "c3", other, "c");
    (void)world_collection(w, "c4", marked, "c");
    world_sql(w, "UPDATE collections SET " MARKED ";");
    sf_catalog_flush(w->catalog);
    for (int after_restart = 0; after_restart < 2; after_restart++) {
        if (after_restart)
            world_restart(w);
        uint64_t ns = after_restart ? marked : other;
        const struct lease *granted = lease(w, ns, "query_rcu", "gw", "first", 9999, 0);
        assert_int_equal(granted->granted_units, 5000);
    }
    world_sql(w, "UPDATE namespaces SET " MARKED ";");
    sf_catalog_flush(w->catalog);
    assert_null(strstr(reads(w, &m), "marker"));
    SF_PB(GetCollectionMetadataRequest) get;
    searchfabric__v1__get_collection_metadata_request__init(&get);
    get.meta = world_meta(w, "", SF_PBE(CLIENT_KIND, CONTROL_ADMIN));
    get.lookup_case = SEARCHFABRIC__V1__GET_COLLECTION_METADATA_REQUEST__LOOKUP_COLLECTION;
    get.collection = world_ref(w, m.ns, m.films);
    no_marker(w, SF_RESOURCE_NOT_FOUND, "GetCollectionMetadata", &get);
    mutate_marked(w, &m);
}

/* ---- nobody is served before -------------------------------------------------------------- */

struct opening {
    struct world *w;
    pthread_t thread;
    enum sf_err err;
};

static void *open_it(void *arg)
{
    struct opening *opening = arg;
    opening->err = world_open(opening->w);
    return NULL;
}

/* Opens over an empty projection, held up at the first request of `part`. While that lasts there
 * is no service that could take a request, and no other process may write or read rows. */
static void held_open(struct world *w, const char *part)
{
    struct opening opening = {.w = w};
    world_stop(w);
    sf_sql_close(w->sql);
    sf_test_sql_empty(&w->place);
    assert_int_equal(sf_catalog_projection_open_at(&w->place.where, &w->diag, &w->sql), SF_OK);
    above_begin(w);
    above.part = part;
    assert_int_equal(pthread_create(&opening.thread, NULL, open_it, &opening), 0);
    pthread_mutex_lock(&above.mu);
    while (!above.held)
        pthread_cond_wait(&above.changed, &above.mu);
    pthread_mutex_unlock(&above.mu);
    assert_int_equal(pthread_tryjoin_np(opening.thread, NULL), EBUSY);
    assert_null(w->channel);
    assert_string_equal(
        world_rows(
            w, "SELECT CAST(COUNT(*) AS TEXT) FROM catalog_lane_shards WHERE lane_shard >= 0", 1),
        "0\n");
    pthread_mutex_lock(&above.mu);
    above.go = true;
    pthread_cond_broadcast(&above.changed);
    pthread_mutex_unlock(&above.mu);
    assert_int_equal(pthread_join(opening.thread, NULL), 0);
    assert_int_equal(opening.err, SF_OK);
    above_end(w);
}

static void test_replay_waits_for_pointers(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-11-04");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t id = world_collection(w, "c1", ns, "books");
    const void *schema = world_schema_request(w, "s1", ns, id, 1, "tok-1");
    const char *first = world_json(w, world_call(w, "PutCollectionSchema", schema));
    size_t pointers = world_list(w, "catalog-replay-", NULL);
    assert_int_equal(pointers, 4);
    for (int business = 0; business < 2; business++) {
        const char *prefix = business ? "catalog-replay-business/" : "catalog-replay-transport/";
        const char *key = NULL;
        while (world_list(w, prefix, &key) != 0)
            assert_int_equal(sf_store_remove_wait(w->truth, NULL, sf_view_str(key)), SF_OK);
        held_open(w, prefix);
        assert_int_equal(world_list(w, "catalog-replay-", NULL), pointers);
        assert_string_equal(world_json(w, world_call(w, "PutCollectionSchema", schema)), first);
    }
}

static void test_create_waits_for_epochs(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-11-12");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t id = world_collection(w, "c1", ns, "books");
    assert_int_equal(lineage_drop(w, "d1", ns, id, NULL), DROPPED);
    sf_clock_manual_advance(&w->clock, GC_DELAY_MS);
    assert_int_equal(lineage_sweep(w)->released_collection_names, 1);
    for (int of_collection = 0; of_collection < 2; of_collection++) {
        held_open(w, of_collection ? "catalog-allocator/collection-name/"
                                   : "catalog-allocator/namespace-name/");
        assert_string_equal(
            world_rows(w,
                       "SELECT collection_name FROM collection_name_epochs"
                       " UNION ALL SELECT namespace_name FROM namespace_name_epochs",
                       1),
            "books\nalpha\n");
    }
    assert_true(world_collection(w, "c2", ns, "books") > id);
    assert_true(lineage_epoch(w, ns, "books") == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_reads_without_the_store, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_adopted_once_per_owner, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_half_a_change_is_adopted_again, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(test_every_table, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_policies_of_rows, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_replay_waits_for_pointers, world_setup_shared,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(test_create_waits_for_epochs, world_setup_shared,
                                        world_teardown),
    };
    return SF_RUN_TESTS("catalog_rebuilt", tests);
}
