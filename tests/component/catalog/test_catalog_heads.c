/* Manifest heads: advances, their repair, crashes between every two puts, pointers that do not fit,
 * lost projections. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "catalog/catalog_head.h"
#include "catalog/catalog_manifest.h"
#include "component/catalog/catalog_world.h"

#define STATUS(name) SF_PBE(MANIFEST_HEAD_RECONCILER_STATUS, name)

/* ---- the publisher's side ----------------------------------------------------------------- */

static SF_PB(CollectionRef) ref_of(uint64_t ns, uint64_t collection)
{
    SF_PB(CollectionRef) ref;
    searchfabric__v1__collection_ref__init(&ref);
    ref.namespace_id = ns;
    ref.collection_id = collection;
    return ref;
}

static void put(struct world *w, const char *key, const ProtobufCMessage *message, char *out_sha)
{
    struct sf_buf body = {0};
    sf_durable_encode(message, &body, out_sha);
    struct sf_put put = {.key = sf_view_str(key), .body = sf_buf_view(&body), .cond = SF_PUT_ANY};
    assert_int_equal(sf_store_put_wait(w->truth, NULL, &put), SF_OK);
    sf_buf_fini(&body);
}

static const char *pointer_key(struct world *w, uint64_t ns, uint64_t collection)
{
    struct sf_buf key = {0};
    sf_catalog_key_committed_head(&key, ns, collection);
    const char *text = sf_arena_str(w->arena, sf_buf_view(&key));
    sf_buf_fini(&key);
    return text;
}

static const char *head_key(struct world *w, uint64_t ns, uint64_t collection)
{
    struct sf_buf key = {0};
    sf_catalog_key_manifest_head(&key, ns, collection);
    const char *text = sf_arena_str(w->arena, sf_buf_view(&key));
    sf_buf_fini(&key);
    return text;
}

/* Points the committed head at a version; the manifest is there or not. */
static void point(struct world *w, uint64_t ns, uint64_t collection, uint64_t version,
                  uint64_t previous, const char *checksum)
{
    SF_PB(CollectionRef) ref = ref_of(ns, collection);
    SF_PB(ManifestCommittedHeadObject) pointer;
    char attempt_id[SF_ATTEMPT_ID_BYTES];
    char manifest_key[160];
    searchfabric__v1__manifest_committed_head_object__init(&pointer);
    sf_attempts_next(&w->attempts, attempt_id);
    snprintf(manifest_key, sizeof(manifest_key), "manifests/%llu/%llu/manifest_v%llu.json",
             (unsigned long long)ns, (unsigned long long)collection, (unsigned long long)version);
    pointer.format_version = 1;
    pointer.attempt_id = attempt_id;
    pointer.collection = &ref;
    pointer.committed_manifest_version = version;
    pointer.previous_committed_manifest_version = previous;
    pointer.manifest_checksum_or_etag = (char *)(uintptr_t)checksum;
    pointer.publisher_epoch = 1;
    pointer.updated_at_unix_ms = WORLD_UNIX_MS;
    pointer.manifest_key = manifest_key;
    put(w, pointer_key(w, ns, collection), &pointer.base, NULL);
}

/* Publishes a manifest and points at it; returns its checksum. */
static const char *publish(struct world *w, uint64_t ns, uint64_t collection, uint64_t version,
                           uint64_t previous)
{
    SF_PB(CollectionRef) ref = ref_of(ns, collection);
    SF_PB(CollectionManifestObject) manifest;
    char attempt_id[SF_ATTEMPT_ID_BYTES];
    char sha[SF_SHA256_HEX_BYTES];
    char key[160];
    searchfabric__v1__collection_manifest_object__init(&manifest);
    sf_attempts_next(&w->attempts, attempt_id);
    snprintf(key, sizeof(key), "manifests/%llu/%llu/manifest_v%llu.json", (unsigned long long)ns,
             (unsigned long long)collection, (unsigned long long)version);
    manifest.format_version = 1;
    manifest.attempt_id = attempt_id;
    manifest.collection = &ref;
    manifest.manifest_version = version;
    manifest.previous_manifest_version = previous;
    manifest.publisher_epoch = 1;
    put(w, key, &manifest.base, sha);
    point(w, ns, collection, version, previous, sha);
    return sf_arena_str(w->arena, sf_view_str(sha));
}

static SF_PB(SubmitHeadAdvanceIntentRequest) * intent_of(struct world *w, uint64_t ns,
                                                         uint64_t collection, int64_t expected,
                                                         uint64_t version, const char *checksum)
{
    SF_PB(SubmitHeadAdvanceIntentRequest) *out = sf_arena_alloc(w->arena, sizeof(*out));
    SF_PB(CollectionRef) *ref = sf_arena_alloc(w->arena, sizeof(*ref));
    searchfabric__v1__submit_head_advance_intent_request__init(out);
    *ref = ref_of(ns, collection);
    out->collection = ref;
    out->expected_head_version = expected;
    out->new_head_version = version;
    out->manifest_checksum_or_etag = sf_arena_str(w->arena, sf_view_str(checksum));
    return out;
}

/* Advances and expects `outcome`. */
static void advance(struct world *w, const SF_PB(SubmitHeadAdvanceIntentRequest) * intent,
                    SF_PB(IntentOutcome) outcome)
{
    const SF_PB(SubmitHeadAdvanceIntentResponse) *answer =
        world_call(w, "SubmitHeadAdvanceIntent", intent);
    assert_non_null(answer);
    assert_int_equal(answer->outcome, outcome);
    assert_true(answer->manifest_head_version == intent->new_head_version);
}

static const SF_PB(ShowManifestHeadResponse) *
    show(struct world *w, uint64_t ns, uint64_t collection)
{
    SF_PB(ShowManifestHeadRequest) request;
    SF_PB(CollectionRef) ref = ref_of(ns, collection);
    searchfabric__v1__show_manifest_head_request__init(&request);
    request.collection = &ref;
    const void *answer = world_call(w, "ShowManifestHead", &request);
    assert_non_null(answer);
    return answer;
}

/* Row: version, status, last_update_epoch. */
static void assert_row(struct world *w, uint64_t ns, uint64_t collection, uint64_t version,
                       SF_PB(ManifestHeadReconcilerStatus) status, uint64_t epoch)
{
    const SF_PB(ShowManifestHeadResponse) *now = show(w, ns, collection);
    assert_true(now->projected_head_version == version);
    assert_int_equal(now->projected_reconciler_status, status);
    assert_true(now->projected_last_update_epoch == epoch);
}

static const SF_PB(ManifestHeadObject) *
    head_object(struct world *w, uint64_t ns, uint64_t collection)
{
    return world_object(w, head_key(w, ns, collection),
                        &searchfabric__v1__manifest_head_object__descriptor);
}

static uint64_t run_job(struct world *w, const char *name)
{
    SF_PB(RunCatalogJobRequest) request;
    searchfabric__v1__run_catalog_job_request__init(&request);
    request.name = (char *)(uintptr_t)name;
    const SF_PB(RunCatalogJobResponse) *answer = world_call(w, "RunCatalogJob", &request);
    assert_non_null(answer);
    return answer->done;
}

static const SF_PB(RepairManifestHeadResponse) *
    repair(struct world *w, uint64_t ns, uint64_t collection, bool dry_run)
{
    SF_PB(RepairManifestHeadRequest) request;
    SF_PB(CollectionRef) ref = ref_of(ns, collection);
    searchfabric__v1__repair_manifest_head_request__init(&request);
    request.collection = &ref;
    request.dry_run = dry_run;
    return world_call(w, "RepairManifestHead", &request);
}

static const void *admission(struct world *w, uint64_t ns, uint64_t collection)
{
    SF_PB(GetCollectionAdmissionStateRequest) request;
    SF_PB(CollectionRef) ref = ref_of(ns, collection);
    searchfabric__v1__get_collection_admission_state_request__init(&request);
    request.collection = &ref;
    return world_call(w, "GetCollectionAdmissionState", &request);
}

/* ---- the intent --------------------------------------------------------------------------- */

static void test_record(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-4.1-02", "CCS-4.3-18", "CCS-4.5-27", "CCS-8-04", "CCS-8-12", "CCS-9.1-03");
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t id = world_collection(w, "c", ns, "books");
    const char *sum = publish(w, ns, id, 1, 0);
    SF_PB(SubmitHeadAdvanceIntentRequest) *intent = intent_of(w, ns, id, 0, 1, sum);
    assert_null(world_call_as(w, "query-broker", "SubmitHeadAdvanceIntent", intent));
    assert_int_equal(w->diag.err, SF_FORBIDDEN);
    assert_non_null(world_call_as(w, "searchfabric:publisher", "SubmitHeadAdvanceIntent", intent));
    char identity[SF_SHA256_HEX_BYTES], lookup[SF_SHA256_HEX_BYTES], business[SF_SHA256_HEX_BYTES];
    sf_catalog_intent_key(SF_CATALOG_TAG_INTENT, &sf_catalog_head_advance, &intent->base, identity);
    sf_catalog_intent_key(SF_CATALOG_TAG_INTENT_LOOKUP, &sf_catalog_head_advance, &intent->base,
                          lookup);
    sf_catalog_head_advance.business(&intent->base, business);
    char key[256];
    char hex[SF_SHA256_HEX_BYTES];
    sf_sha256_hex(sf_view_str(identity), hex);
    snprintf(key, sizeof(key), "catalog-log/%.2s/%s.json", hex, identity);
    const SF_PB(CommandOutcomeObject) *record =
        world_object(w, key, &searchfabric__v1__command_outcome_object__descriptor);
    assert_non_null(record);
    assert_int_equal(record->replay_family, SF_PBE(REPLAY_FAMILY, INTERNAL_INTENT));
    assert_int_equal(record->command_kind, SF_PBE(COMMAND_KIND, HEAD_ADVANCE));
    assert_int_equal(record->_idempotency_key_case, 0);
    assert_string_equal(record->business_lookup_key, business);
    assert_true(record->head_advance->expected_head_version == 0);
    assert_true(record->head_advance->new_head_version == 1);
    assert_string_equal(record->head_advance->manifest_checksum_or_etag, sum);
    const char *const families[] = {"transport/", "business/HEAD_ADVANCE/"};
    const char *const lookups[] = {lookup, business};
    for (int i = 0; i < 2; i++) {
        sf_sha256_hex(sf_view_str(lookups[i]), hex);
        snprintf(key, sizeof(key), "catalog-replay-%s%.2s/%s.json", families[i], hex, lookups[i]);
        const SF_PB(ReplayPointerObject) *pointer =
            world_object(w, key, &searchfabric__v1__replay_pointer_object__descriptor);
        assert_non_null(pointer);
        assert_string_equal(pointer->command_identity, identity);
    }
    char digits[32];
    snprintf(digits, sizeof(digits), "%llu", (unsigned long long)ns);
    sf_sha256_hex(sf_view_str(digits), hex);
    snprintf(key, sizeof(key), "catalog/%.2s/%llu/%llu/manifest_head.json", hex,
             (unsigned long long)ns, (unsigned long long)id);
    const SF_PB(ManifestHeadObject) *head =
        world_object(w, key, &searchfabric__v1__manifest_head_object__descriptor);
    assert_non_null(head);
    assert_true(head->manifest_head_version == 1 && head->expected_previous_head == 0);
    assert_true(head->last_update_epoch == 1);
    assert_int_equal(head->reconciler_status, STATUS(IDLE));
    const SF_PB(ShowManifestHeadResponse) *now = show(w, ns, id);
    assert_true(now->projected_committed_version == 1);
    assert_string_equal(now->projected_committed_checksum_or_etag, sum);
    assert_true(now->committed_head->committed_manifest_version == 1);
}

static void test_duplicates(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-4.5-28");
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t id = world_collection(w, "c", ns, "books");
    SF_PB(SubmitHeadAdvanceIntentRequest) *first =
        intent_of(w, ns, id, -1, 1, publish(w, ns, id, 1, 0));
    advance(w, first, SF_PBE(INTENT_OUTCOME, ACCEPTED));
    for (int i = 0; i < 10; i++) {
        advance(w, first, SF_PBE(INTENT_OUTCOME, DUPLICATE));
        assert_row(w, ns, id, 1, STATUS(IDLE), 1);
    }
    advance(w, intent_of(w, ns, id, 1, 4, publish(w, ns, id, 4, 1)), /* over 2 and 3 */
            SF_PBE(INTENT_OUTCOME, ACCEPTED));
    const SF_PB(SubmitHeadAdvanceIntentResponse) *late =
        world_call(w, "SubmitHeadAdvanceIntent", first);
    assert_int_equal(late->outcome, SF_PBE(INTENT_OUTCOME, DUPLICATE));
    assert_true(late->manifest_head_version == 4);
    assert_row(w, ns, id, 4, STATUS(IDLE), 2);
}

/* The tuple is what stands, but its record was removed by age: nothing is written again. */
static void test_duplicate_without_record(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t id = world_collection(w, "c", ns, "books");
    SF_PB(SubmitHeadAdvanceIntentRequest) *intent =
        intent_of(w, ns, id, 0, 1, publish(w, ns, id, 1, 0));
    advance(w, intent, SF_PBE(INTENT_OUTCOME, ACCEPTED));
    char identity[SF_SHA256_HEX_BYTES], business[SF_SHA256_HEX_BYTES];
    sf_catalog_intent_key(SF_CATALOG_TAG_INTENT, &sf_catalog_head_advance, &intent->base, identity);
    sf_catalog_head_advance.business(&intent->base, business);
    struct sf_buf key = {0};
    sf_catalog_key_outcome(&key, identity);
    assert_int_equal(sf_store_remove_wait(w->truth, NULL, sf_buf_view(&key)), SF_OK);
    sf_buf_clear(&key);
    sf_catalog_key_business(&key, "HEAD_ADVANCE", business);
    assert_int_equal(sf_store_remove_wait(w->truth, NULL, sf_buf_view(&key)), SF_OK);
    sf_buf_fini(&key);
    world_execute(w, "DELETE FROM catalog_replay_index WHERE command_kind = 'HEAD_ADVANCE';");
    uint64_t puts = atomic_load(&w->wire.applied);
    advance(w, intent, SF_PBE(INTENT_OUTCOME, DUPLICATE));
    assert_true(atomic_load(&w->wire.applied) == puts);
    assert_row(w, ns, id, 1, STATUS(IDLE), 1);
}

static void assert_conflict(struct world *w, const SF_PB(SubmitHeadAdvanceIntentRequest) * intent,
                            const char *word)
{
    assert_null(world_call(w, "SubmitHeadAdvanceIntent", intent));
    assert_int_equal(w->diag.err, SF_VERSION_CONFLICT);
    assert_string_equal(sf_diag_get(&w->diag, "head_advance_conflict"), word);
}

/* Refusals leave nothing behind and are judged anew. */
static void test_refusals(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t id = world_collection(w, "c", ns, "books");
    uint64_t gone = world_collection(w, "d", ns, "gone");
    const char *one = publish(w, ns, id, 1, 0);
    advance(w, intent_of(w, ns, id, 0, 1, one), SF_PBE(INTENT_OUTCOME, ACCEPTED));
    size_t records = world_list(w, "catalog-log/", NULL);
    assert_conflict(w, intent_of(w, ns, id, 1, 2, "later"), "above_committed");
    assert_conflict(w, intent_of(w, ns, id, 0, 1, "other"), "head_moved");
    assert_conflict(w, intent_of(w, ns, id, 5, 6, one), "head_moved");
    assert_string_equal(sf_diag_get(&w->diag, "manifest_head_version"), "1");
    assert_string_equal(sf_diag_get(&w->diag, "committed_manifest_version"), "1");
    const char *two = publish(w, ns, id, 2, 1);
    assert_conflict(w, intent_of(w, ns, id, 1, 2, "later"), "checksum_differs");
    assert_null(world_call(w, "SubmitHeadAdvanceIntent", intent_of(w, ns, id, 1, 1, one)));
    assert_int_equal(w->diag.err, SF_BAD_REQUEST);
    assert_null(world_call(w, "SubmitHeadAdvanceIntent", intent_of(w, ns, 12345, 0, 1, one)));
    assert_int_equal(w->diag.err, SF_RESOURCE_NOT_FOUND);
    publish(w, ns, gone, 1, 0);
    world_execute(w, "UPDATE collections SET lifecycle_state = 'TOMBSTONED' WHERE"
                     " collection_name = 'gone';");
    assert_null(world_call(w, "SubmitHeadAdvanceIntent", intent_of(w, ns, gone, 0, 1, one)));
    assert_int_equal(w->diag.err, SF_RESOURCE_NOT_FOUND);
    assert_int_equal(world_list(w, "catalog-log/", NULL), records);
    assert_row(w, ns, id, 1, STATUS(IDLE), 1);
    SF_PB(SubmitHeadAdvanceIntentRequest) *poisoned = intent_of(w, ns, id, 2, 3, two);
    assert_conflict(w, poisoned, "head_moved"); /* out of order */
    advance(w, intent_of(w, ns, id, 1, 2, two), SF_PBE(INTENT_OUTCOME, ACCEPTED));
    assert_conflict(w, poisoned, "above_committed");
    point(w, ns, id, 3, 2, two);
    advance(w, poisoned, SF_PBE(INTENT_OUTCOME, ACCEPTED));
}

struct racer {
    pthread_t thread;
    struct world *w;
    const SF_PB(SubmitHeadAdvanceIntentRequest) * intent;
    struct sf_arena *arena;
    enum sf_err err;
};

static void *race(void *arg)
{
    struct racer *racer = arg;
    struct sf_diag diag;
    const ProtobufCMessage *response = NULL;
    struct sf_call_options options = {0};
    sf_diag_init(&diag);
    racer->err = sf_channel_unary_wait(
        racer->w->channel, NULL,
        "/searchfabric.v1.CatalogControlPrivateService/SubmitHeadAdvanceIntent",
        &racer->intent->base, &options, racer->arena, &diag, &response);
    return NULL;
}

static void test_race(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-3.1-13");
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t id = world_collection(w, "c", ns, "books");
    for (uint64_t round = 0; round < 20; round++) {
        struct racer racers[2] = {0};
        const char *sum = publish(w, ns, id, 2 * round + 2, 2 * round);
        uint64_t base = show(w, ns, id)->projected_head_version;
        for (uint64_t i = 0; i < 2; i++) {
            racers[i].w = w;
            racers[i].arena = sf_arena_new((size_t)1 << 20);
            racers[i].intent = intent_of(w, ns, id, (int64_t)base, 2 * round + 1 + i,
                                         i == 0 ? "below the pointer" : sum);
            assert_int_equal(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
        }
        for (int i = 0; i < 2; i++) {
            pthread_join(racers[i].thread, NULL);
            sf_arena_destroy(racers[i].arena);
        }
        assert_int_equal((racers[0].err == SF_OK) + (racers[1].err == SF_OK), 1);
        enum sf_err lost = racers[0].err == SF_OK ? racers[1].err : racers[0].err;
        assert_int_equal(lost, SF_VERSION_CONFLICT);
    }
}

/* ---- crashes ------------------------------------------------------------------------------ */

/* An advance cut after every number of puts: segment, outcome, two pointers, head object. Once the
 * outcome stands the advance is there after the start, without being asked for again. */
static void test_cuts(void **state)
{
    (void)state;
    SF_PROVES("CCS-4.4-10");
    for (int exclusive = 0; exclusive < 2; exclusive++) {
        for (uint64_t cut = 0; cut <= 5; cut++) {
            struct world *w = world_new(exclusive != 0);
            uint64_t ns = world_namespace(w, "n", "alpha");
            uint64_t id = world_collection(w, "c", ns, "books");
            advance(w, intent_of(w, ns, id, 0, 1, publish(w, ns, id, 1, 0)),
                    SF_PBE(INTENT_OUTCOME, ACCEPTED));
            const char *sum = publish(w, ns, id, 2, 1);
            SF_PB(SubmitHeadAdvanceIntentRequest) *intent = intent_of(w, ns, id, 1, 2, sum);
            atomic_store(&w->wire.cut_after, atomic_load(&w->wire.applied) + cut);
            const void *answer = world_call(w, "SubmitHeadAdvanceIntent", intent);
            assert_true((answer != NULL) == (cut == 5));
            world_restart(w);
            uint64_t version = cut < 2 ? 1 : 2;
            assert_row(w, ns, id, version, STATUS(IDLE), version);
            const SF_PB(ManifestHeadObject) *head = head_object(w, ns, id);
            assert_true(head->manifest_head_version == version);
            assert_true(head->last_update_epoch == version);
            const SF_PB(ShowManifestHeadResponse) *now = show(w, ns, id);
            assert_true(now->projected_committed_version == version);
            advance(w, intent,
                    cut < 2 ? SF_PBE(INTENT_OUTCOME, ACCEPTED) : SF_PBE(INTENT_OUTCOME, DUPLICATE));
            assert_row(w, ns, id, 2, STATUS(IDLE), 2);
            assert_true(head_object(w, ns, id)->manifest_head_version == 2);
            world_destroy(w);
        }
    }
}

/* A head object of a newer owner ends this one before it swaps anything. */
static void test_newer_owner(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t id = world_collection(w, "c", ns, "books");
    const char *sum = publish(w, ns, id, 1, 0);
    SF_PB(CollectionRef) ref = ref_of(ns, id);
    SF_PB(ManifestHeadObject) newer;
    searchfabric__v1__manifest_head_object__init(&newer);
    newer.format_version = 1;
    newer.attempt_id = "newer-1";
    newer.owner_epoch = 1000;
    newer.collection = &ref;
    put(w, head_key(w, ns, id), &newer.base, NULL);
    size_t records = world_list(w, "catalog-log/", NULL);
    assert_null(world_call(w, "SubmitHeadAdvanceIntent", intent_of(w, ns, id, 0, 1, sum)));
    assert_int_equal(w->diag.err, SF_BACKEND_UNAVAILABLE);
    struct sf_catalog_stats stats;
    sf_catalog_stats(w->catalog, &stats);
    assert_true(stats.deposed);
    assert_int_equal(world_list(w, "catalog-log/", NULL), records);
    assert_true(head_object(w, ns, id)->owner_epoch == 1000);
}

/* ---- repair ------------------------------------------------------------------------------- */

/* No field of a public message, however deep, is about committed pointers or heads. */
static void no_head_field(const ProtobufCMessageDescriptor *message, int depth)
{
    static const char *const words[] = {"manifest", "head", "repair", "reconcil", "publisher"};
    for (unsigned i = 0; i < message->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->fields[i];
        for (size_t k = 0; k < SF_ARRAY_LEN(words); k++)
            assert_null(strstr(field->name, words[k]));
        if (field->type == PROTOBUF_C_TYPE_MESSAGE && depth < 8)
            no_head_field(field->descriptor, depth + 1);
    }
}

/* What the serving side and the broker read. */
static const char *serving_reads(struct world *w, uint64_t ns, uint64_t id)
{
    struct sf_buf out = {0};
    SF_PB(ResolveServingGenerationRequest) serving;
    SF_PB(GetCollectionStatisticsRequest) statistics;
    SF_PB(CollectionRef) ref = ref_of(ns, id);
    searchfabric__v1__resolve_serving_generation_request__init(&serving);
    searchfabric__v1__get_collection_statistics_request__init(&statistics);
    serving.collection = statistics.collection = &ref;
    statistics.meta = world_meta(w, "", SF_PBE(CLIENT_KIND, ES_QUERY_GATEWAY));
    sf_buf_append_str(&out, world_json(w, admission(w, ns, id)));
    sf_buf_append_str(&out, world_json(w, world_call(w, "ResolveServingGeneration", &serving)));
    sf_buf_append_str(&out, world_json(w, world_call(w, "GetCollectionStatistics", &statistics)));
    const char *text = sf_arena_str(w->arena, sf_buf_view(&out));
    sf_buf_fini(&out);
    return text;
}

static void test_gap(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-2.2-03", "CCS-9.1-01", "CCS-9.1-02", "CCS-9.1-04", "CCS-9.1-05");
    no_head_field(&searchfabric__v1__namespace_descriptor__descriptor, 0);
    no_head_field(&searchfabric__v1__collection_descriptor__descriptor, 0);
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t id = world_collection(w, "c", ns, "books");
    world_schema(w, "s", ns, id, 1, "tok-1");
    world_ready(w, ns, id, 1, "tok-1");
    advance(w, intent_of(w, ns, id, 0, 1, publish(w, ns, id, 1, 0)),
            SF_PBE(INTENT_OUTCOME, ACCEPTED));
    const char *answers = world_answers(w, ns);
    const char *admitted = serving_reads(w, ns, id);
    const char *sum = publish(w, ns, id, 5, 1); /* nobody tells the catalog */
    assert_int_equal(run_job(w, "manifest-head"), 0);
    assert_int_equal(run_job(w, "manifest-head-audit"), 1);
    assert_row(w, ns, id, 1, STATUS(REPAIR_PENDING), 1);
    sf_catalog_flush(w->catalog);
    assert_string_equal(world_answers(w, ns), answers);
    assert_string_equal(serving_reads(w, ns, id), admitted);
    assert_null(strstr(answers, "anifest"));
    assert_null(strstr(admitted, "anifest"));
    assert_int_equal(run_job(w, "manifest-head"), 1);
    assert_row(w, ns, id, 5, STATUS(IDLE), 3); /* the attempt, then the advance */
    assert_string_equal(show(w, ns, id)->projected_committed_checksum_or_etag, sum);
    assert_true(head_object(w, ns, id)->manifest_head_version == 5);
    assert_int_equal(head_object(w, ns, id)->reconciler_status, STATUS(IDLE));
    /* what the publisher would have sent is a duplicate now */
    advance(w, intent_of(w, ns, id, 1, 5, sum), SF_PBE(INTENT_OUTCOME, DUPLICATE));
    sf_catalog_flush(w->catalog);
    assert_string_equal(world_answers(w, ns), answers);
    assert_string_equal(serving_reads(w, ns, id), admitted);
}

/* A refused intent is a hint; one that stops short leaves the rest to the reconciler. */
static void test_hints(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t id = world_collection(w, "c", ns, "books");
    publish(w, ns, id, 1, 0);
    const char *two = publish(w, ns, id, 2, 1);
    assert_conflict(w, intent_of(w, ns, id, 1, 2, two), "head_moved");
    assert_int_equal(run_job(w, "manifest-head"), 1); /* looks */
    assert_row(w, ns, id, 0, STATUS(REPAIR_PENDING), 0);
    assert_int_equal(run_job(w, "manifest-head"), 1); /* repairs */
    assert_row(w, ns, id, 2, STATUS(IDLE), 2);
    publish(w, ns, id, 4, 2);
    advance(w, intent_of(w, ns, id, 2, 3, "short of the pointer"),
            SF_PBE(INTENT_OUTCOME, ACCEPTED));
    assert_row(w, ns, id, 3, STATUS(REPAIR_PENDING), 3);
    assert_int_equal(run_job(w, "manifest-head"), 1);
    assert_row(w, ns, id, 4, STATUS(IDLE), 5);
}

/* Nothing is behind: no store request, whatever the jobs do. */
static void test_idle(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t id = world_collection(w, "c", ns, "books");
    advance(w, intent_of(w, ns, id, 0, 1, publish(w, ns, id, 1, 0)),
            SF_PBE(INTENT_OUTCOME, ACCEPTED));
    uint64_t gets = atomic_load(&w->wire.gets);
    uint64_t puts = atomic_load(&w->wire.applied);
    uint64_t lists = atomic_load(&w->wire.lists);
    for (int i = 0; i < 10; i++)
        assert_int_equal(run_job(w, "manifest-head"), 0);
    assert_true(atomic_load(&w->wire.gets) == gets && atomic_load(&w->wire.lists) == lists);
    assert_true(atomic_load(&w->wire.applied) == puts);
}

static _Atomic bool segments_fail;
static const struct sf_store_vtable *below;
static struct sf_store_vtable above;

/* Fails every append, certainly not applied. */
static void submit_above(struct sf_store *store, struct sf_batch *batch)
{
    static const char text[] = "catalog-recovery-segments";
    bool hit = false;
    for (size_t i = 0; i < batch->count; i++)
        hit = hit || (batch->puts[i].key.len > sizeof(text) &&
                      memcmp(batch->puts[i].key.ptr, text, sizeof(text) - 1) == 0);
    if (!hit || !atomic_load(&segments_fail)) {
        below->submit(store, batch);
        return;
    }
    for (size_t i = 0; i < batch->count; i++)
        batch->puts[i].err =
            batch->puts[i].stage == 0 ? SF_ERR_UNAVAILABLE : SF_ERR_CANCELLED_STAGE;
    batch->done(batch);
}

static void test_failed_attempts(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-9.1-06", "CCS-9.1-07");
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t id = world_collection(w, "c", ns, "books");
    advance(w, intent_of(w, ns, id, 0, 1, publish(w, ns, id, 1, 0)),
            SF_PBE(INTENT_OUTCOME, ACCEPTED));
    publish(w, ns, id, 2, 1);
    run_job(w, "manifest-head-audit");
    assert_row(w, ns, id, 1, STATUS(REPAIR_PENDING), 1);
    above = *w->wire.base.vtable;
    below = w->wire.base.vtable;
    above.submit = submit_above;
    w->wire.base.vtable = &above;
    atomic_store(&segments_fail, true);
    for (uint64_t i = 1; i <= 2; i++) {
        run_job(w, "manifest-head");
        assert_row(w, ns, id, 1, STATUS(REPAIRING), 1 + i);
        assert_true(head_object(w, ns, id)->manifest_head_version == 1);
        assert_int_equal(head_object(w, ns, id)->reconciler_status, STATUS(REPAIRING));
    }
    atomic_store(&segments_fail, false);
    run_job(w, "manifest-head");
    assert_row(w, ns, id, 2, STATUS(IDLE), 5); /* one more attempt and its advance */
    w->wire.base.vtable = below;
}

/* Cut after every put of a repair: REPAIRING head object, segment, outcome, pointers, head. */
static void test_crash_mid_repair(void **state)
{
    (void)state;
    SF_PROVES("CCS-9.1-09");
    for (uint64_t cut = 0; cut <= 6; cut++) {
        struct world *w = world_new(true);
        uint64_t ns = world_namespace(w, "n", "alpha");
        uint64_t id = world_collection(w, "c", ns, "books");
        advance(w, intent_of(w, ns, id, 0, 1, publish(w, ns, id, 1, 0)),
                SF_PBE(INTENT_OUTCOME, ACCEPTED));
        publish(w, ns, id, 2, 1);
        atomic_store(&w->wire.cut_after, atomic_load(&w->wire.applied) + cut);
        (void)repair(w, ns, id, false);
        world_restart(w);
        uint64_t version = cut < 3 ? 1 : 2;
        assert_true(show(w, ns, id)->projected_head_version == version);
        assert_true(head_object(w, ns, id)->manifest_head_version == version);
        const SF_PB(RepairManifestHeadResponse) *done = repair(w, ns, id, false);
        assert_non_null(done);
        assert_int_equal(done->status, STATUS(IDLE));
        assert_true(done->manifest_head_version == 2);
        assert_true(head_object(w, ns, id)->manifest_head_version == 2);
        world_destroy(w);
    }
}

/* A pointer whose checksum is not its manifest's: an operator's matter, healed by one. */
static void test_error(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-9.1-08");
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t id = world_collection(w, "c", ns, "books");
    advance(w, intent_of(w, ns, id, 0, 1, publish(w, ns, id, 1, 0)),
            SF_PBE(INTENT_OUTCOME, ACCEPTED));
    const char *sum = publish(w, ns, id, 2, 1);
    point(w, ns, id, 2, 1, "not the manifest's");
    const SF_PB(RepairManifestHeadResponse) *dry = repair(w, ns, id, true);
    assert_int_equal(dry->status, STATUS(IDLE)); /* nothing was changed */
    assert_non_null(strstr(dry->explanation, "checksum"));
    assert_row(w, ns, id, 1, STATUS(IDLE), 1);
    run_job(w, "manifest-head-audit");
    assert_row(w, ns, id, 1, STATUS(ERROR), 2);
    assert_int_equal(head_object(w, ns, id)->reconciler_status, STATUS(ERROR));
    assert_true(show(w, ns, id)->projected_committed_version == 1);
    assert_null(admission(w, ns, id));
    assert_int_equal(w->diag.err, SF_CATALOG_UNAVAILABLE);
    assert_string_equal(sf_diag_get(&w->diag, "catalog_unavailable_reason"), "recovery");
    assert_null(world_call(w, "SubmitHeadAdvanceIntent", intent_of(w, ns, id, 1, 2, sum)));
    assert_int_equal(w->diag.err, SF_CATALOG_UNAVAILABLE);
    uint64_t gets = atomic_load(&w->wire.gets);
    assert_int_equal(run_job(w, "manifest-head"), 0); /* never by itself */
    assert_true(atomic_load(&w->wire.gets) == gets);
    const SF_PB(RepairManifestHeadResponse) *again = repair(w, ns, id, false);
    assert_int_equal(again->status, STATUS(ERROR));
    assert_row(w, ns, id, 1, STATUS(ERROR), 3);
    point(w, ns, id, 2, 1, sum); /* the operator put it right */
    again = repair(w, ns, id, false);
    assert_int_equal(again->status, STATUS(IDLE));
    assert_row(w, ns, id, 2, STATUS(IDLE), 5);
    assert_non_null(admission(w, ns, id));
}

/* What else does not fit. */
static void test_broken_pointers(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-8-11");
    uint64_t ns = world_namespace(w, "n", "alpha");
    for (int kind = 0; kind < 5; kind++) {
        char name[16];
        snprintf(name, sizeof(name), "c%d", kind);
        uint64_t id = world_collection(w, name, ns, name);
        const char *two = NULL;
        const char *one = publish(w, ns, id, 1, 0);
        advance(w, intent_of(w, ns, id, 0, 1, one), SF_PBE(INTENT_OUTCOME, ACCEPTED));
        switch (kind) {
        case 0: /* no manifest */
            point(w, ns, id, 2, 1, one);
            break;
        case 1: /* another predecessor */
            two = publish(w, ns, id, 2, 0);
            point(w, ns, id, 2, 1, two);
            break;
        case 2: /* gone */
            assert_int_equal(
                sf_store_remove_wait(w->truth, NULL, sf_view_str(pointer_key(w, ns, id))), SF_OK);
            break;
        case 3: { /* no object of its kind */
            struct sf_put broken = {.key = sf_view_str(pointer_key(w, ns, id)),
                                    .body = sf_view_str("{\"committed_manifest_version\":[]}"),
                                    .cond = SF_PUT_ANY};
            assert_int_equal(sf_store_put_wait(w->truth, NULL, &broken), SF_OK);
            break;
        }
        default: { /* lacks what it must have */
            SF_PB(CollectionRef) ref = ref_of(ns, id);
            SF_PB(ManifestCommittedHeadObject) pointer;
            searchfabric__v1__manifest_committed_head_object__init(&pointer);
            pointer.format_version = 1;
            pointer.attempt_id = "short-1";
            pointer.collection = &ref;
            pointer.committed_manifest_version = 2;
            put(w, pointer_key(w, ns, id), &pointer.base, NULL);
        }
        }
        const SF_PB(RepairManifestHeadResponse) *done = repair(w, ns, id, false);
        assert_non_null(done);
        assert_int_equal(done->status, STATUS(ERROR));
        assert_row(w, ns, id, 1, STATUS(ERROR), 2);
    }
}

/* ---- lost projection ---------------------------------------------------------------------- */

static void test_rebuild(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-11-15");
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t id = world_collection(w, "c", ns, "books");
    uint64_t never = world_collection(w, "e", ns, "never");
    const char *one = publish(w, ns, id, 1, 0);
    advance(w, intent_of(w, ns, id, 0, 1, one), SF_PBE(INTENT_OUTCOME, ACCEPTED));
    publish(w, ns, id, 3, 1); /* not told */
    SF_PB(CollectionRef) ref = ref_of(ns, id);
    SF_PB(ManifestHeadObject) planted;
    searchfabric__v1__manifest_head_object__init(&planted);
    planted.format_version = 1;
    planted.attempt_id = "planted-1";
    planted.collection = &ref;
    planted.manifest_head_version = 9;
    put(w, head_key(w, ns, id), &planted.base, NULL);
    world_rebuild(w);
    assert_row(w, ns, id, 1, STATUS(REPAIR_PENDING), 1);
    assert_row(w, ns, never, 0, STATUS(REPAIR_PENDING), 0);
    assert_string_equal(show(w, ns, id)->projected_committed_checksum_or_etag, one);
    assert_non_null(admission(w, ns, never)); /* checked by its first use */
    assert_row(w, ns, never, 0, STATUS(IDLE), 0);
    assert_non_null(admission(w, ns, id));
    assert_row(w, ns, id, 1, STATUS(REPAIR_PENDING), 1);
    run_job(w, "manifest-head");
    assert_row(w, ns, id, 3, STATUS(IDLE), 3);
    assert_true(head_object(w, ns, id)->manifest_head_version == 3);
}

static void test_rebuild_checks_pointers(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-11-14");
    uint64_t ns = world_namespace(w, "n", "alpha");
    uint64_t ids[4];
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof(name), "c%d", i);
        ids[i] = world_collection(w, name, ns, name);
        advance(w, intent_of(w, ns, ids[i], 0, 1, publish(w, ns, ids[i], 1, 0)),
                SF_PBE(INTENT_OUTCOME, ACCEPTED));
    }
    point(w, ns, ids[0], 1, 0, "not the manifest's");
    const char *two = publish(w, ns, ids[1], 2, 0);
    point(w, ns, ids[1], 2, 1, two); /* another predecessor than its manifest's */
    point(w, ns, ids[2], 2, 1, "not the manifest's");
    world_rebuild(w);
    for (int i = 0; i < 2; i++) {
        assert_null(admission(w, ns, ids[i]));
        assert_int_equal(w->diag.err, SF_CATALOG_UNAVAILABLE);
        assert_int_equal(show(w, ns, ids[i])->projected_reconciler_status, STATUS(ERROR));
    }
    /* an advance is no way around the check either */
    assert_null(world_call(w, "SubmitHeadAdvanceIntent",
                           intent_of(w, ns, ids[2], 1, 2, "not the manifest's")));
    assert_int_equal(w->diag.err, SF_CATALOG_UNAVAILABLE);
    assert_true(show(w, ns, ids[2])->projected_head_version == 1);
    run_job(w, "manifest-head");
    assert_int_equal(show(w, ns, ids[2])->projected_reconciler_status, STATUS(ERROR));
    assert_non_null(admission(w, ns, ids[3]));
    assert_row(w, ns, ids[3], 1, STATUS(IDLE), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_record, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_duplicates, world_setup_shared, world_teardown),
        cmocka_unit_test_setup_teardown(test_duplicate_without_record, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_refusals, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_race, world_setup_shared, world_teardown),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test_setup_teardown(test_newer_owner, world_setup_shared, world_teardown),
        cmocka_unit_test_setup_teardown(test_gap, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_hints, world_setup_shared, world_teardown),
        cmocka_unit_test_setup_teardown(test_idle, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_failed_attempts, world_setup, world_teardown),
        cmocka_unit_test(test_crash_mid_repair),
        cmocka_unit_test_setup_teardown(test_error, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_broken_pointers, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_rebuild, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_rebuild_checks_pointers, world_setup_shared,
                                        world_teardown),
    };
    return SF_RUN_TESTS("catalog_heads", tests);
}
