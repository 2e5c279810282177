/* fsck: every difference is explained and repaired from the objects; what a key would return. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "catalog/catalog_check.h"
#include "component/catalog/lineage_world.h"
#include "searchfabric/v1/catalog_operations_private.pb-c.h"

static const SF_PB(CheckCatalogResponse) * check(struct world *w, bool repair)
{
    SF_PB(CheckCatalogRequest) request;
    searchfabric__v1__check_catalog_request__init(&request);
    request.repair = repair;
    const SF_PB(CheckCatalogResponse) *response = world_call(w, "CheckCatalog", &request);
    assert_non_null(response);
    return response;
}

static size_t findings(const SF_PB(CheckCatalogResponse) * response, const char *kind)
{
    size_t count = 0;
    for (size_t i = 0; i < response->n_findings; i++)
        count += strcmp(response->findings[i]->kind, kind) == 0 ? 1 : 0;
    return count;
}

static uint64_t make(struct world *w, uint64_t *out_id)
{
    uint64_t ns = world_namespace(w, "n1", "alpha");
    *out_id = world_collection(w, "c1", ns, "books");
    world_schema(w, "s1", ns, *out_id, 1, "tok-1");
    world_ready(w, ns, *out_id, 1, "tok-1");
    return ns;
}

static void test_clean(void **state)
{
    struct world *w = *state;
    uint64_t id;
    (void)make(w, &id);
    const SF_PB(CheckCatalogResponse) *found = check(w, true);
    assert_int_equal(found->n_findings, 0);
    assert_true(found->problems == 0 && found->harmless == 0);
    assert_true(found->rows_read >= 8 && found->objects_read > found->rows_read);
}

/* Rows that were changed, lost, or speak of more than their object. */
static void test_rows(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-3.2-08");
    uint64_t id, ns = make(w, &id);
    const char *dump = world_dump(w), *answers = world_answers(w, ns);
    world_execute(w, "UPDATE namespaces SET options_json = '{\"entries\":{\"x\":\"y\"}}';"
                     "UPDATE collections SET updated_at_unix_ms = 5;"
                     "UPDATE schema_generations SET sync_state = 'APPLYING';"
                     "UPDATE catalog_replay_index SET original_outcome_json ="
                     " REPLACE(original_outcome_json, 'client-1', 'client-2');");
    const SF_PB(CheckCatalogResponse) *told = check(w, false);
    assert_true(told->problems == 6 && told->repaired == 0);
    assert_int_equal(findings(told, "row_differs"), 6);
    assert_string_not_equal(world_dump(w), dump);
    const SF_PB(CheckCatalogResponse) *done = check(w, true);
    assert_true(done->problems == 6 && done->repaired == 6);
    assert_string_equal(world_dump(w), dump);
    assert_string_equal(world_answers(w, ns), answers);
    assert_true(check(w, false)->problems == 0);
    /* lost records: rows and answers come back */
    world_execute(w, "DELETE FROM catalog_replay_index; DELETE FROM collections;"
                     "DELETE FROM schema_generations; DELETE FROM collection_name_epochs;");
    done = check(w, true);
    assert_int_equal(findings(done, "row_missing"), 3);
    assert_true(done->problems == done->repaired);
    assert_true(check(w, true)->problems == 0);
    assert_string_equal(world_dump(w), dump);
}

/* The rows of records stand, those of the things are gone; a released thing has none either. */
static void test_lost_rows(void **state)
{
    struct world *w = *state;
    uint64_t id;
    uint64_t ns = make(w, &id);
    uint64_t closed = world_namespace(w, "n9", "closed");
    uint64_t dropped = world_collection(w, "c9", ns, "dropped");
    assert_int_equal(lineage_drop(w, "d9", ns, dropped, NULL), DROPPED);
    assert_non_null(lineage_transition(w, closed, NS_STATE(TOMBSTONED), 1));
    sf_clock_manual_advance(&w->clock, GC_DELAY_MS);
    const SF_PB(RunReleaseSweepResponse) *swept = lineage_sweep(w);
    assert_int_equal(swept->released_collection_names, 1);
    assert_int_equal(swept->released_namespace_names, 1);
    assert_true(check(w, false)->problems == 0);
    world_execute(w, "DELETE FROM namespaces;");
    const SF_PB(CheckCatalogResponse) *found = check(w, false);
    assert_int_equal(findings(found, "row_lost"), 1);
    assert_true(found->problems == 1);
    world_execute(w, "DELETE FROM collections; DELETE FROM schema_generations;");
    found = check(w, true);
    assert_int_equal(findings(found, "row_lost"), 2); /* nothing of them is guessed */
    assert_true(found->repaired == 0);
    world_rebuild(w);
    assert_true(check(w, false)->problems == 0);
}

static void test_pointers(void **state)
{
    struct world *w = *state;
    uint64_t id;
    (void)make(w, &id);
    struct sf_list_entry *entries = NULL;
    size_t count = 0;
    assert_int_equal(sf_store_list_wait(w->truth, NULL, sf_view_str("catalog-replay-"),
                                        sf_view_str(""), 100, w->arena, &entries, &count),
                     SF_OK);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(sf_store_remove_wait(w->truth, NULL, entries[i].key), SF_OK);
    const SF_PB(CheckCatalogResponse) *told = check(w, false);
    assert_int_equal(findings(told, "pointer_missing"), count);
    assert_int_equal(world_list(w, "catalog-replay-", NULL), 0);
    const SF_PB(CheckCatalogResponse) *done = check(w, true);
    assert_true(done->repaired == done->problems && done->problems > 0);
    assert_int_equal(world_list(w, "catalog-replay-", NULL), count);
    assert_true(check(w, false)->problems == 0);
}

/* A missing object is a problem that nothing repairs; an orphan is none. */
static void test_objects(void **state)
{
    struct world *w = *state;
    uint64_t id, ns = make(w, &id);
    SF_PB(CollectionDescriptorObject) planted;
    SF_PB(CollectionRef) ref;
    searchfabric__v1__collection_descriptor_object__init(&planted);
    searchfabric__v1__collection_ref__init(&ref);
    ref.namespace_id = ns;
    ref.collection_id = id;
    planted.format_version = 1;
    planted.attempt_id = "planted";
    planted.command_identity = "none";
    planted.collection = &ref;
    planted.collection_name = "books";
    planted.descriptor_revision = 2;
    planted.encryption = world_encryption(w);
    struct sf_catalog_put put = {0};
    sf_catalog_key_collection(&put.key, ns, id, 2);
    sf_catalog_put_encode(&put, &planted.base, false, NULL);
    struct sf_put once;
    sf_catalog_put_fill(&put, 0, 0, &once);
    assert_int_equal(sf_store_put_wait(w->truth, NULL, &once), SF_OK);
    sf_catalog_put_fini(&put);
    const SF_PB(CheckCatalogResponse) *found = check(w, true);
    assert_true(found->problems == 0 && found->harmless == 1);
    assert_string_equal(found->findings[0]->kind, "orphan_object");
    struct sf_buf key = {0};
    sf_catalog_key_namespace(&key, ns, 1);
    assert_int_equal(sf_store_remove_wait(w->truth, NULL, sf_buf_view(&key)), SF_OK);
    sf_buf_fini(&key);
    found = check(w, true);
    assert_true(found->problems == 1 && found->repaired == 0);
    assert_int_equal(findings(found, "object_missing"), 1);
    sf_catalog_key_segment(&key, 2);
    assert_int_equal(findings(found, "object_broken"), 0);
    struct sf_buf body = {0};
    assert_int_equal(sf_store_get_wait(w->truth, NULL, sf_buf_view(&key), &body, NULL), SF_OK);
    once = (struct sf_put){.key = sf_buf_view(&key),
                           .body = sf_view_bytes(body.data, body.len - 5),
                           .cond = SF_PUT_ANY};
    assert_int_equal(sf_store_put_wait(w->truth, NULL, &once), SF_OK);
    found = check(w, true);
    assert_int_equal(findings(found, "object_broken"), 1);
    assert_int_equal(findings(found, "segment_missing"), 0);
    sf_buf_fini(&body);
    assert_int_equal(sf_store_remove_wait(w->truth, NULL, sf_buf_view(&key)), SF_OK);
    sf_buf_fini(&key);
    assert_int_equal(findings(check(w, true), "segment_missing"), 1);
}

/* The limit of findings, at it and above. */
static void test_limit(void **state)
{
    struct world *w = *state;
    SF_PB(CheckCatalogRequest) request;
    uint64_t id;
    (void)make(w, &id);
    world_execute(w, "UPDATE namespaces SET updated_at_unix_ms = 5;"
                     "UPDATE collections SET updated_at_unix_ms = 5;");
    searchfabric__v1__check_catalog_request__init(&request);
    request.max_findings = 1;
    const SF_PB(CheckCatalogResponse) *found = world_call(w, "CheckCatalog", &request);
    assert_true(found->n_findings == 1 && found->problems == 2);
    request.max_findings = SF_CATALOG_FINDINGS_MAX;
    assert_non_null(world_call(w, "CheckCatalog", &request));
    request.max_findings = SF_CATALOG_FINDINGS_MAX + 1;
    assert_null(world_call(w, "CheckCatalog", &request));
    assert_int_equal(w->diag.err, SF_BAD_REQUEST);
}

static void test_replay(void **state)
{
    struct world *w = *state;
    SF_PB(ShowReplayRequest) request;
    SF_PB(CommandScope) scope;
    uint64_t id, ns = make(w, &id);
    searchfabric__v1__show_replay_request__init(&request);
    searchfabric__v1__command_scope__init(&scope);
    scope.namespace_id = ns;
    scope.collection_name = "books";
    request.command_kind = "PUT_COLLECTION_METADATA";
    request.authenticated_client_identity = "loopback";
    request.client_id = "client-1";
    request.idempotency_key = "c1";
    request.scope = &scope;
    const SF_PB(ShowReplayResponse) *shown = world_call(w, "ShowReplay", &request);
    assert_non_null(shown);
    assert_true(shown->found && shown->row_present && shown->transport_pointer_present);
    assert_string_equal(shown->verdict, "original answer");
    assert_non_null(strstr(shown->success_json, "\"books\""));
    SF_PROVES("CCS-4.3-17");
    char fingerprint[SF_SHA256_HEX_BYTES];
    SF_PB(PutCollectionMetadataRequest) *sent = world_collection_request(w, "c1", ns, "books");
    sf_catalog_fingerprint(&sent->base, fingerprint);
    assert_string_equal(shown->outcome->payload_fingerprint, fingerprint);
    sent->options = world_options(w, "v", "1");
    sf_catalog_fingerprint(&sent->base, fingerprint);
    assert_string_not_equal(shown->outcome->payload_fingerprint, fingerprint);
    SF_PB(ShowReplayRequest) direct;
    searchfabric__v1__show_replay_request__init(&direct);
    direct.command_identity = shown->command_identity;
    const SF_PB(ShowReplayResponse) *same = world_call(w, "ShowReplay", &direct);
    assert_string_equal(world_json(w, same), world_json(w, shown));
    request.idempotency_key = "other";
    shown = world_call(w, "ShowReplay", &request);
    assert_false(shown->found);
    assert_string_equal(shown->verdict, "nothing: the key is new");
    request.command_kind = "HEAD_ADVANCE";
    assert_null(world_call(w, "ShowReplay", &request));
    assert_int_equal(w->diag.err, SF_BAD_REQUEST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_clean, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_rows, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_lost_rows, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_pointers, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_objects, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_limit, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_replay, world_setup, world_teardown),
    };
    return SF_RUN_TESTS("catalog_check", tests);
}
