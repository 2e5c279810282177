#include "publish/manifest.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "contract/descriptor_set.h"
#include "object/memory_store.h"
#include "support/proves.h"

static const struct sf_collection_ref REF = {{3}, {4}};

static void id_of(unsigned n, char out[SF_SHA256_HEX_BYTES])
{
    char text[16];
    snprintf(text, sizeof(text), "%u", n);
    sf_sha256_hex(sf_view_str(text), out);
}

static void add(struct sf_manifest_queue *queue, unsigned n)
{
    Searchfabric__V1__ManifestSlice slice = SEARCHFABRIC__V1__MANIFEST_SLICE__INIT;
    Searchfabric__V1__DuplicateEntry entry = SEARCHFABRIC__V1__DUPLICATE_ENTRY__INIT;
    char id[SF_SHA256_HEX_BYTES];
    id_of(n, id);
    slice.write_intent_id = entry.write_intent_id = id;
    slice.commit_ts = entry.commit_ts = 1000 + n;
    slice.row_count = 2;
    slice.logical_bytes = 10;
    sf_manifest_queue_add(queue, &slice, &entry);
}

/* Stores what the plan says, as the publisher would. */
static void store_plan(struct sf_store *store, struct sf_manifest_plan *plan)
{
    for (size_t i = 0; i < plan->list_count; i++) {
        struct sf_put put = {.key = sf_buf_view(&plan->lists[i].key),
                             .body = sf_buf_view(&plan->lists[i].body),
                             .cond = SF_PUT_ABSENT};
        assert_int_equal(sf_store_put_wait(store, NULL, &put), SF_OK);
    }
    struct sf_put manifest = {.key = sf_buf_view(&plan->manifest_key),
                              .body = sf_buf_view(&plan->manifest),
                              .cond = SF_PUT_ABSENT};
    assert_int_equal(sf_store_put_wait(store, NULL, &manifest), SF_OK);
    struct sf_put head = {
        .key = sf_buf_view(&plan->head_key), .body = sf_buf_view(&plan->head), .cond = SF_PUT_ANY};
    assert_int_equal(sf_store_put_wait(store, NULL, &head), SF_OK);
    plan->head_etag = head.etag;
}

struct seen {
    unsigned next; /* slice expected next */
    unsigned duplicates;
};

static void see(void *user, const Searchfabric__V1__ManifestSlice *slice)
{
    struct seen *seen = user;
    char id[SF_SHA256_HEX_BYTES];
    id_of(seen->next, id);
    assert_string_equal(slice->write_intent_id, id);
    assert_int_equal(slice->commit_ts, 1000 + seen->next);
    seen->next++;
}

static void see_duplicate(void *user, const Searchfabric__V1__DuplicateEntry *entry)
{
    struct seen *seen = user;
    (void)entry;
    seen->duplicates++;
}

/* Random publishes; after each the lineage read back holds every slice once, in order, and a state
 * loaded from it goes on as the one in memory would. */
static void test_lineage_property(void **state)
{
    struct sf_rng rng;
    (void)state;
    sf_rng_init(&rng, 23);
    for (unsigned round = 0; round < 12; round++) {
        struct sf_store *store = sf_memory_store_new_inline();
        struct sf_manifest_state st = {0};
        struct sf_manifest_queue ready = {0};
        struct sf_attempts attempts;
        struct sf_manifest_inputs inputs = {
            .collection = REF,
            .publisher_epoch = 1,
            .base_interval = 1 + (uint32_t)sf_rng_below(&rng, 5),
            .list_entries = 1 + (uint32_t)sf_rng_below(&rng, 6),
            .attempts = &attempts,
        };
        unsigned given = 0;
        sf_attempts_init(&attempts, round + 1);
        for (unsigned version = 1; version <= 30; version++) {
            struct sf_manifest_plan plan = {0};
            struct sf_chain chain;
            struct seen seen = {0};
            unsigned count = 1 + (unsigned)sf_rng_below(&rng, 9);
            for (unsigned i = 0; i < count; i++)
                add(&ready, given++);
            inputs.version = version * 2; /* gaps are fine */
            inputs.frontier = (struct sf_frontier){.local_max_commit_ts = 1000 + given,
                                                   .applied_ts = {1000 + given, 990 + given, 0},
                                                   .enabled = 3};
            sf_manifest_plan_build(&plan, &st, &ready, count, &inputs);
            store_plan(store, &plan);
            sf_manifest_state_commit(&st, &plan, &ready, count);
            sf_manifest_plan_fini(&plan);
            assert_int_equal(ready.count, 0);
            sf_chain_init(&chain, REF, 0);
            assert_int_equal(sf_chain_read_wait(&chain, store, NULL, NULL), SF_OK);
            sf_chain_each_slice(&chain, see, &seen);
            sf_chain_each_duplicate(&chain, see_duplicate, &seen);
            assert_int_equal(seen.next, given);
            assert_int_equal(seen.duplicates, given);
            assert_int_equal(chain.head->committed_manifest_version, version * 2);
            assert_int_equal(chain.head->safe_ts, 990 + given);
            assert_int_equal(sf_chain_newest(&chain)->total_rows, 2 * given);
            assert_true(chain.manifest_count <= inputs.base_interval);
            if (sf_rng_below(&rng, 3) == 0) { /* go on from what was read */
                struct sf_manifest_state loaded = {0};
                sf_manifest_state_load(&loaded, &chain);
                assert_int_equal(loaded.version, st.version);
                assert_string_equal(loaded.sha256, st.sha256);
                assert_string_equal(loaded.head_etag.text, st.head_etag.text);
                assert_int_equal(loaded.deltas, st.deltas);
                assert_int_equal(loaded.tail.count, st.tail.count);
                assert_int_equal(loaded.ref_count, st.ref_count);
                assert_int_equal(loaded.safe_ts, st.safe_ts);
                sf_manifest_state_fini(&st);
                st = loaded;
            }
            sf_chain_fini(&chain);
        }
        sf_manifest_state_fini(&st);
        sf_store_destroy(store);
    }
}

/* Watermarks of a manifest never fall below the one before it. */
static void test_watermarks_only_grow(void **state)
{
    struct sf_manifest_state st = {0};
    struct sf_manifest_queue ready = {0};
    struct sf_manifest_plan plan = {0};
    struct sf_attempts attempts;
    struct sf_manifest_inputs inputs = {.collection = REF,
                                        .base_interval = 4,
                                        .list_entries = 8,
                                        .version = 1,
                                        .attempts = &attempts};
    (void)state;
    sf_attempts_init(&attempts, 1);
    inputs.frontier =
        (struct sf_frontier){.local_max_commit_ts = 90, .applied_ts = {80, 70, 0}, .enabled = 3};
    add(&ready, 1);
    sf_manifest_plan_build(&plan, &st, &ready, 1, &inputs);
    sf_manifest_state_commit(&st, &plan, &ready, 1);
    sf_manifest_plan_fini(&plan);
    assert_int_equal(st.safe_ts, 70);
    inputs.version = 2;
    inputs.frontier =
        (struct sf_frontier){.local_max_commit_ts = 60, .applied_ts = {50, 75, 0}, .enabled = 3};
    add(&ready, 2);
    sf_manifest_plan_build(&plan, &st, &ready, 1, &inputs);
    assert_int_equal(plan.frontier.applied_ts[0], 80);
    assert_int_equal(plan.frontier.applied_ts[1], 75);
    assert_int_equal(plan.frontier.local_max_commit_ts, 90);
    assert_int_equal(plan.safe_ts, 75);
    sf_manifest_plan_fini(&plan);
    sf_manifest_queue_fini(&ready);
    sf_manifest_state_fini(&st);
}

/* A link that does not verify is never followed. */
static void test_broken_links(void **state)
{
    struct sf_store *store = sf_memory_store_new_inline();
    struct sf_manifest_state st = {0};
    struct sf_manifest_queue ready = {0};
    struct sf_manifest_plan plan = {0};
    struct sf_attempts attempts;
    struct sf_manifest_inputs inputs = {.collection = REF,
                                        .base_interval = 4,
                                        .list_entries = 8,
                                        .version = 1,
                                        .attempts = &attempts,
                                        .frontier = {.enabled = 1}};
    struct sf_chain chain;
    struct sf_buf key = {0};
    (void)state;
    sf_attempts_init(&attempts, 1);
    add(&ready, 1);
    sf_manifest_plan_build(&plan, &st, &ready, 1, &inputs);
    store_plan(store, &plan);
    /* another manifest of the same version, well formed, that no head names */
    struct sf_manifest_plan other = {0};
    sf_manifest_plan_build(&other, &st, &ready, 1, &inputs);
    struct sf_put put = {.key = sf_buf_view(&other.manifest_key),
                         .body = sf_buf_view(&other.manifest),
                         .cond = SF_PUT_ANY};
    assert_int_equal(sf_store_put_wait(store, NULL, &put), SF_OK);
    sf_chain_init(&chain, REF, 0);
    assert_int_equal(sf_chain_read_wait(&chain, store, NULL, NULL), SF_ERR_CORRUPT);
    sf_chain_fini(&chain);
    /* and none at all */
    sf_manifest_key(&key, REF, 1);
    assert_int_equal(sf_store_remove_wait(store, NULL, sf_buf_view(&key)), SF_OK);
    sf_chain_init(&chain, REF, 0);
    assert_int_equal(sf_chain_read_wait(&chain, store, NULL, NULL), SF_ERR_CORRUPT);
    sf_chain_fini(&chain);
    /* a collection without a head holds nothing */
    sf_chain_init(&chain, (struct sf_collection_ref){{3}, {5}}, 0);
    assert_int_equal(sf_chain_read_wait(&chain, store, NULL, NULL), SF_OK);
    assert_null(chain.head);
    sf_chain_fini(&chain);
    sf_buf_fini(&key);
    sf_manifest_plan_fini(&plan);
    sf_manifest_plan_fini(&other);
    sf_manifest_queue_fini(&ready);
    sf_store_destroy(store);
}

static void test_queue_marks(void **state)
{
    struct sf_store *store = sf_memory_store_new_inline();
    struct sf_manifest_state st = {0};
    struct sf_manifest_queue ready = {0};
    struct sf_manifest_plan plan = {0};
    struct sf_attempts attempts;
    struct sf_manifest_inputs inputs = {.collection = REF,
                                        .base_interval = 4,
                                        .list_entries = 8,
                                        .version = 1,
                                        .attempts = &attempts,
                                        .frontier = {.enabled = 1}};
    struct sf_chain chain;
    struct seen seen = {.next = 1};
    (void)state;
    sf_attempts_init(&attempts, 1);
    add(&ready, 1);
    add(&ready, 2);
    sf_manifest_plan_build(&plan, &st, &ready, 2, &inputs);
    store_plan(store, &plan);
    sf_manifest_plan_fini(&plan);
    add(&ready, 3);
    sf_chain_init(&chain, REF, 0);
    assert_int_equal(sf_chain_read_wait(&chain, store, NULL, NULL), SF_OK);
    sf_manifest_queue_mark_present(&ready, &chain);
    assert_int_equal(sf_manifest_queue_present_prefix(&ready), 2);
    sf_manifest_state_load(&st, &chain);
    sf_chain_fini(&chain);
    inputs.version = 2; /* present ones are passed over */
    sf_manifest_plan_build(&plan, &st, &ready, 3, &inputs);
    store_plan(store, &plan);
    sf_manifest_state_commit(&st, &plan, &ready, 3);
    sf_manifest_plan_fini(&plan);
    sf_chain_init(&chain, REF, 0);
    assert_int_equal(sf_chain_read_wait(&chain, store, NULL, NULL), SF_OK);
    sf_chain_each_slice(&chain, see, &seen);
    assert_int_equal(seen.next, 4);
    sf_chain_fini(&chain);
    sf_manifest_state_fini(&st);
    sf_store_destroy(store);
}

/* Stands in for a worker that knows the content: the newest manifest again, with a summary. */
static void summarize(struct sf_store *store, struct sf_manifest_state *st)
{
    struct sf_chain chain;
    struct sf_buf body = {0};
    struct sf_buf key = {0};
    sf_chain_init(&chain, REF, 0);
    assert_int_equal(sf_chain_read_wait(&chain, store, NULL, NULL), SF_OK);
    Searchfabric__V1__CollectionManifestObject manifest = *sf_chain_newest(&chain);
    Searchfabric__V1__ManifestCommittedHeadObject head = *chain.head;
    Searchfabric__V1__ManifestSummaryRef ref = SEARCHFABRIC__V1__MANIFEST_SUMMARY_REF__INIT;
    char digest[SF_SHA256_HEX_BYTES];
    ref.key = (char *)(uintptr_t) "manifests/4e/3/4/summary_a-1.json";
    ref.sha256 = (char *)(uintptr_t)st->sha256;
    ref.manifest_version = manifest.manifest_version;
    manifest.summary = &ref;
    manifest.manifest_version++;
    sf_durable_encode(&manifest.base, &body, digest);
    sf_manifest_key(&key, REF, manifest.manifest_version);
    struct sf_put put = {
        .key = sf_buf_view(&key), .body = sf_buf_view(&body), .cond = SF_PUT_ABSENT};
    assert_int_equal(sf_store_put_wait(store, NULL, &put), SF_OK);
    head.committed_manifest_version = manifest.manifest_version;
    head.manifest_checksum_or_etag = digest;
    sf_buf_clear(&body);
    sf_buf_clear(&key);
    sf_durable_encode(&head.base, &body, NULL);
    sf_committed_head_key(&key, REF);
    put = (struct sf_put){.key = sf_buf_view(&key), .body = sf_buf_view(&body)};
    put.cond = SF_PUT_ANY;
    assert_int_equal(sf_store_put_wait(store, NULL, &put), SF_OK);
    sf_chain_fini(&chain);
    sf_chain_init(&chain, REF, 0);
    assert_int_equal(sf_chain_read_wait(&chain, store, NULL, NULL), SF_OK);
    sf_manifest_state_load(st, &chain);
    sf_chain_fini(&chain);
    sf_buf_fini(&body);
    sf_buf_fini(&key);
}

/* What background work published of the content is still named after any number of publishes, by
 * deltas and bases, of a publisher that read it and of one that goes on from memory. */
static void test_summary_is_carried_on(void **state)
{
    (void)state;
    struct sf_store *store = sf_memory_store_new_inline();
    struct sf_manifest_state st = {0};
    struct sf_manifest_queue ready = {0};
    struct sf_attempts attempts;
    struct sf_manifest_inputs inputs = {.collection = REF,
                                        .publisher_epoch = 1,
                                        .base_interval = 3,
                                        .list_entries = 2,
                                        .attempts = &attempts};
    sf_attempts_init(&attempts, 7);
    for (unsigned n = 0; n < 9; n++) {
        struct sf_manifest_plan plan = {0};
        struct sf_chain chain;
        add(&ready, n);
        inputs.version = 10 * (n + 1);
        inputs.frontier = (struct sf_frontier){.enabled = 1, .applied_ts = {1000 + n, 0, 0}};
        sf_manifest_plan_build(&plan, &st, &ready, 1, &inputs);
        store_plan(store, &plan);
        sf_manifest_state_commit(&st, &plan, &ready, 1);
        sf_manifest_plan_fini(&plan);
        sf_chain_init(&chain, REF, 0);
        assert_int_equal(sf_chain_read_wait(&chain, store, NULL, NULL), SF_OK);
        const Searchfabric__V1__ManifestSummaryRef *found = sf_chain_newest(&chain)->summary;
        if (n < 2) {
            assert_null(found);
        } else {
            assert_non_null(found);
            assert_string_equal(found->key, "manifests/4e/3/4/summary_a-1.json");
            assert_int_equal(found->manifest_version, 20);
        }
        assert_int_equal(sf_chain_newest(&chain)->total_rows, 2 * (n + 1));
        sf_chain_fini(&chain);
        if (n == 1)
            summarize(store, &st);
    }
    sf_manifest_state_fini(&st);
    sf_store_destroy(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lineage_property),     cmocka_unit_test(test_summary_is_carried_on),
        cmocka_unit_test(test_watermarks_only_grow), cmocka_unit_test(test_broken_links),
        cmocka_unit_test(test_queue_marks),
    };
    if (sf_pbjson_register(
            sf_view_bytes(sf_contract_descriptor_set, sf_contract_descriptor_set_size)) != SF_OK)
        return 1;
    return SF_RUN_TESTS("manifest", tests);
}
