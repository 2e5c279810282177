/*
 * What the Elasticsearch edge asks of the services, and what it makes of their answers.
 */
#include "component/gateway/edge_world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/limits.h"

static struct edge edge;
static struct answer answer;

static int setup(void **state)
{
    (void)state;
    edge_start(&edge, 0);
    return 0;
}

static int setup_impatient(void **state)
{
    (void)state;
    edge_start(&edge, 50);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    edge_stop(&edge);
    free(answer.body);
    answer.body = NULL;
    return 0;
}

static void post(const char *path, const char *key, const char *body)
{
    edge_send(&edge, &answer, "POST", path, key, body);
}

static void assert_answer(int status, const char *part)
{
    if (answer.status != status || strstr(answer.body, part) == NULL)
        fail_msg("%d: %s", answer.status, answer.body);
}

static bool is_issue(unsigned call, size_t item)
{
    return edge.allocations[call]->plan->items[item]->item_case ==
           SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__ITEM_ISSUE;
}

static uint64_t explicit_id(unsigned call, size_t item)
{
    assert_false(is_issue(call, item));
    return edge.allocations[call]->plan->items[item]->explicit_doc_id->u64;
}

static const Searchfabric__V1__RowMutation *row(unsigned batch, size_t entry)
{
    return edge.batches[batch]->entries[entry]->row;
}

/* The batch realizes exactly what the allocation returned, all three parts unchanged. */
static void assert_carried(unsigned batch, const struct replay *replay)
{
    const Searchfabric__V1__MutationBatch *b = edge.batches[batch];
    const Searchfabric__V1__AllocateIdsSuccessResponse *r = replay->response;

    assert_int_equal(b->n_entries, r->n_realized_doc_ids);
    for (size_t i = 0; i < b->n_entries; i++) {
        assert_int_equal(row(batch, i)->op, OP(CREATE));
        assert_int_equal(row(batch, i)->doc_id->id_value_case,
                         SEARCHFABRIC__V1__DOCUMENT_ID__ID_VALUE_U64);
        assert_int_equal(row(batch, i)->doc_id->u64, r->realized_doc_ids[i]->doc_id->u64);
    }
    assert_string_equal(b->schema_generation_token, r->schema_generation_token);
    assert_int_equal(b->allocator_receipt.len, r->allocator_receipt.len);
    assert_memory_equal(b->allocator_receipt.data, r->allocator_receipt.data,
                        r->allocator_receipt.len);
}

static void test_auto_id(void **state)
{
    (void)state;
    SF_PROVES("ALLOC-11.1-01");
    edge.next_doc_id = UINT64_C(9007199254740993);
    post("/books/_doc", NULL, "{\"a\" : 1}");
    assert_answer(201, "\"_id\":\"9007199254740993\"");
    assert_int_equal(edge.resolves, 1);
    assert_int_equal(edge.allocation_count, 1);
    const Searchfabric__V1__AllocateIdsRequest *asked = edge.allocations[0];
    assert_int_equal(asked->meta->client_kind, KIND(ES_WRITE_GATEWAY));
    assert_int_equal(asked->collection->namespace_id, 7);
    assert_int_equal(asked->collection->collection_id, 9);
    assert_int_equal(
        asked->route_intent,
        SEARCHFABRIC__V1__ID_ALLOCATION_ROUTE_INTENT__ID_ALLOCATION_ROUTE_INTENT_CREATE_INSERT);
    assert_int_equal(asked->plan->n_items, 1);
    assert_true(is_issue(0, 0));
    assert_int_equal(edge.batch_count, 1);
    assert_carried(0, &edge.replays[0]);
    assert_int_equal(row(0, 0)->body.len, 9);
    assert_memory_equal(row(0, 0)->body.data, "{\"a\" : 1}", 9);
}

static void test_explicit_id(void **state)
{
    (void)state;
    SF_PROVES("ALLOC-11.1-02", "ALLOC-11.1-03");
    edge_send(&edge, &answer, "PUT", "/books/_create/42", NULL, "{}");
    assert_answer(201, "\"_id\":\"42\"");
    assert_int_equal(edge.allocation_count, 1);
    assert_int_equal(edge.allocations[0]->plan->n_items, 1);
    assert_int_equal(explicit_id(0, 0), 42);
    assert_carried(0, &edge.replays[0]);
    post("/books/_doc", NULL, "{}");
    assert_carried(1, &edge.replays[1]);
}

static void test_ids_that_are_none(void **state)
{
    static const char *const bad[] = {"-1", "1.0", "007", "+5", "18446744073709551616", "abc"};
    static const char *const good[] = {"0", "18446744073709551615"};

    (void)state;
    SF_PROVES("ALLOC-3.3-04");
    for (size_t i = 0; i < SF_ARRAY_LEN(bad); i++) {
        char path[64];
        (void)snprintf(path, sizeof(path), "/books/_create/%s", bad[i]);
        post(path, NULL, "{}");
        assert_answer(400, "illegal_argument_exception");
    }
    assert_int_equal(edge.allocation_count, 0);
    for (size_t i = 0; i < SF_ARRAY_LEN(good); i++) {
        char path[64];
        (void)snprintf(path, sizeof(path), "/books/_create/%s", good[i]);
        post(path, NULL, "{}");
        assert_answer(201, good[i]);
    }
}

static void test_plans_follow_the_rows(void **state)
{
    (void)state;
    SF_PROVES("ALLOC-3.3-01", "ALLOC-3.3-02", "ALLOC-3.3-03", "ALLOC-6.3-02");
    post("/books/_bulk", NULL,
         "{\"index\":{}}\n{\"n\":0}\n{\"create\":{}}\n{\"n\":1}\n{\"index\":{}}\n{\"n\":2}\n");
    assert_answer(200, "\"errors\":false");
    assert_int_equal(edge.allocations[0]->plan->n_items, 3);
    for (size_t i = 0; i < 3; i++)
        assert_true(is_issue(0, i));
    post("/books/_bulk", NULL,
         "{\"create\":{\"_id\":\"10\"}}\n{}\n{\"create\":{\"_id\":\"11\"}}\n{}\n"
         "{\"create\":{\"_id\":\"12\"}}\n{}\n");
    assert_answer(200, "\"errors\":false");
    assert_int_equal(edge.allocations[1]->plan->n_items, 3);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(explicit_id(1, i), 10 + i);
    post("/books/_bulk", NULL,
         "{\"create\":{\"_id\":\"20\"}}\n{\"n\":0}\n{\"index\":{}}\n{\"n\":1}\n"
         "{\"create\":{\"_id\":\"22\"}}\n{\"n\":2}\n");
    assert_answer(200, "\"errors\":false");
    assert_int_equal(edge.allocation_count, 3);
    assert_int_equal(explicit_id(2, 0), 20);
    assert_true(is_issue(2, 1));
    assert_int_equal(explicit_id(2, 2), 22);
    for (size_t i = 0; i < 3; i++) {
        char doc[16];
        (void)snprintf(doc, sizeof(doc), "{\"n\":%zu}", i);
        assert_int_equal(row(2, i)->doc_id->u64, 20 + i);
        assert_memory_equal(row(2, i)->body.data, doc, 7);
    }
}

static void test_one_allocation_for_a_mixed_bulk(void **state)
{
    struct sf_buf body = {0};
    const char *at;

    (void)state;
    SF_PROVES("ALLOC-11.1-04");
    for (int i = 0; i < 100; i++) {
        if (i % 3 == 0)
            sf_buf_printf(&body, "{\"create\":{\"_id\":\"%d\"}}\n{}\n", 1000 + i);
        else
            sf_buf_append_str(&body, "{\"index\":{}}\n{}\n");
    }
    edge_request(&edge, "POST", "/books/_bulk", NULL, (const char *)body.data, body.len, &answer);
    assert_answer(200, "\"errors\":false");
    assert_int_equal(edge.allocation_count, 1);
    assert_int_equal(edge.batch_count, 1);
    assert_int_equal(edge.batches[0]->n_entries, 100);
    at = answer.body;
    for (int i = 0; i < 100; i++) {
        char id[32];
        (void)snprintf(id, sizeof(id), "\"_id\":\"%d\"", 1000 + i);
        at = strstr(at, id);
        assert_non_null(at);
    }
    sf_buf_fini(&body);
}

static void test_routes_that_create_nothing_allocate_nothing(void **state)
{
    (void)state;
    post("/books/_bulk", NULL,
         "{\"update\":{\"_id\":\"1\"}}\n{\"doc\":{}}\n{\"delete\":{\"_id\":\"1\"}}\n"
         "{\"index\":{\"_id\":\"1\"}}\n{}\n");
    assert_answer(200, "\"status\":501");
    post("/books/_update/1", NULL, "{\"doc\":{}}");
    assert_answer(501, "unsupported_operation_exception");
    edge_send(&edge, &answer, "PUT", "/books/_doc/1", NULL, "{}");
    assert_answer(501, "unsupported_operation_exception");
    edge_send(&edge, &answer, "DELETE", "/books/_doc/1", NULL, "");
    assert_answer(501, "unsupported_operation_exception");
    assert_int_equal(edge.allocation_count, 0);
}

static void test_refused_ids_leave_the_others_in_order(void **state)
{
    static const char body[] =
        "{\"create\":{\"_id\":\"3\"}}\n{\"n\":0}\n{\"index\":{}}\n{\"n\":1}\n"
        "{\"create\":{\"_id\":\"4\"}}\n{\"n\":2}\n"
        "{\"create\":{\"_id\":\"50\"}}\n{\"n\":3}\n"
        "{\"create\":{\"_id\":\"49\"}}\n{\"n\":4}\n{\"index\":{}}\n{\"n\":5}\n";
    char first[4096];

    (void)state;
    edge.next_doc_id = 10;
    post("/books/_bulk", "key-1", body);
    assert_answer(200, "\"errors\":true");
    /* 3 and 4 are burned, 49 cannot follow 50; the rest goes on: 10, 50, 51. */
    assert_int_equal(edge.batch_count, 1);
    assert_int_equal(edge.batches[0]->n_entries, 3);
    assert_int_equal(row(0, 0)->doc_id->u64, 10);
    assert_int_equal(row(0, 1)->doc_id->u64, 50);
    assert_int_equal(row(0, 2)->doc_id->u64, 51);
    assert_memory_equal(row(0, 0)->body.data, "{\"n\":1}", 7);
    assert_memory_equal(row(0, 1)->body.data, "{\"n\":3}", 7);
    assert_memory_equal(row(0, 2)->body.data, "{\"n\":5}", 7);
    assert_int_equal(edge.allocation_count, 3);
    const char *items = strstr(answer.body, "\"items\"");
    assert_non_null(items);
    (void)snprintf(first, sizeof(first), "%s", items);

    /* The retry, with ids issued in between, walks to the same plan and gets the same answer. */
    post("/books/_doc", NULL, "{}");
    post("/books/_bulk", "key-1", body);
    assert_string_equal(strstr(answer.body, "\"items\""), first);
    assert_int_equal(edge.allocation_count, 7);
    for (unsigned i = 0; i < 3; i++)
        assert_string_equal(edge.allocations[i]->meta->idempotency_key,
                            edge.allocations[4 + i]->meta->idempotency_key);
    assert_string_equal(edge.batches[0]->batch_id, edge.batches[2]->batch_id);
    assert_string_equal(edge.batches[0]->stream_identity, edge.batches[2]->stream_identity);
}

static void test_keys(void **state)
{
    (void)state;
    /* Without a header each request has keys of its own; with one they repeat. */
    post("/books/_doc", NULL, "{}");
    post("/books/_doc", NULL, "{}");
    assert_string_not_equal(edge.allocations[0]->meta->idempotency_key,
                            edge.allocations[1]->meta->idempotency_key);
    post("/books/_doc", "k", "{}");
    post("/books/_doc", "k", "{}");
    assert_string_equal(edge.allocations[2]->meta->idempotency_key,
                        edge.allocations[3]->meta->idempotency_key);
    assert_string_equal(edge.batches[2]->batch_id, edge.batches[3]->batch_id);
    assert_int_equal(row(2, 0)->doc_id->u64, row(3, 0)->doc_id->u64);
    post("/books/_doc", "k2", "{}");
    assert_string_not_equal(edge.allocations[3]->meta->idempotency_key,
                            edge.allocations[4]->meta->idempotency_key);
    post("/books/_doc", "", "{}");
    assert_answer(400, "Idempotency-Key");
    /* The key says nothing about how many documents there are: more under it meet the first plan.
     */
    post("/books/_bulk", "k3", "{\"create\":{}}\n{}\n");
    post("/books/_bulk", "k3", "{\"create\":{}}\n{}\n{\"create\":{}}\n{}\n");
    assert_string_equal(edge.allocations[5]->meta->idempotency_key,
                        edge.allocations[6]->meta->idempotency_key);
}

/* A step of a request goes wrong, in one of the ways in which it can. */
enum broken_step {
    STEP_CATALOG,          /* the facts cannot be read */
    STEP_ALLOCATOR_BEFORE, /* no ids are given */
    STEP_ALLOCATOR_AFTER,  /* ids are given, the answer is lost */
    STEP_INGEST_REFUSES,   /* the batch is refused for now */
    STEP_INGEST_AFTER,     /* the batch is taken, the stream breaks */
    STEP_INGEST_SILENT,    /* the batch is taken, nobody says so */
    STEP_COUNT
};

static void break_step(enum broken_step step)
{
    edge.catalog_err = step == STEP_CATALOG ? SF_BACKEND_UNAVAILABLE : SF_OK;
    edge.allocator_err = step == STEP_ALLOCATOR_BEFORE ? SF_BACKEND_UNAVAILABLE : SF_OK;
    edge.allocator_forgets = step == STEP_ALLOCATOR_AFTER;
    edge.ingest_mode = step == STEP_INGEST_REFUSES  ? INGEST_REFUSE
                       : step == STEP_INGEST_AFTER  ? INGEST_BREAK
                       : step == STEP_INGEST_SILENT ? INGEST_SILENT
                                                    : INGEST_ACK;
}

/* All batches under one id hold the same documents under the same ids: the coordinator takes one
 * of them. Returns the number of different ones from batch `from` on. */
static unsigned distinct_batches(unsigned from)
{
    unsigned distinct = 0;

    for (unsigned i = from; i < edge.batch_count; i++) {
        unsigned first = from;
        while (strcmp(edge.batches[first]->batch_id, edge.batches[i]->batch_id) != 0)
            first++;
        distinct += first == i;
        assert_string_equal(edge.batches[first]->stream_identity, edge.batches[i]->stream_identity);
        assert_int_equal(edge.batches[first]->n_entries, edge.batches[i]->n_entries);
        for (size_t k = 0; k < edge.batches[i]->n_entries; k++) {
            assert_int_equal(row(first, k)->doc_id->u64, row(i, k)->doc_id->u64);
            assert_int_equal(row(first, k)->body.len, row(i, k)->body.len);
            assert_memory_equal(row(first, k)->body.data, row(i, k)->body.data,
                                row(i, k)->body.len);
        }
    }
    return distinct;
}

static void test_a_retry_after_any_broken_step_doubles_nothing(void **state)
{
    static const char body[] = "{\"create\":{\"_id\":\"%u\"}}\n{\"n\":0}\n"
                               "{\"index\":{}}\n{\"n\":1}\n{\"create\":{\"_id\":\"0\"}}\n{}\n";
    char text[256];
    char key[16];
    char want[64];

    (void)state;
    edge.next_doc_id = 5;
    for (unsigned step = 0; step < STEP_COUNT; step++) {
        unsigned batches = edge.batch_count;
        unsigned replays = edge.replay_count;
        unsigned id = 10 * (step + 1);
        (void)snprintf(key, sizeof(key), "key-%u", step);
        (void)snprintf(text, sizeof(text), body, id);
        (void)snprintf(want, sizeof(want), "\"_id\":\"%u\"", id + 1);
        break_step((enum broken_step)step);
        for (int i = 0; i < 2; i++) { /* it stays broken for a while */
            post("/books/_bulk", key, text);
            assert_answer(200, "\"errors\":true");
            assert_null(strstr(answer.body, want));
        }
        break_step(STEP_COUNT);
        for (int i = 0; i < 2; i++) {
            post("/books/_bulk", key, text);
            assert_answer(200, want);
            assert_non_null(strstr(answer.body, "\"status\":409")); /* id 0, and it alone */
        }
        assert_int_equal(distinct_batches(batches), 1);
        assert_int_equal(edge.replay_count, replays + 1);
    }
}

static void bulk_of(struct sf_buf *body, unsigned count)
{
    sf_buf_clear(body);
    sf_buf_append_str(body, "{\"index\":{}}\n{\"v\":[1,2,3]}\n"); /* a number too many */
    for (unsigned i = 1; i < count; i++)
        sf_buf_append_str(body, "{\"index\":{}}\n{}\n");
}

/* Which documents share an allocation is a matter of the request: neither the ceiling of plans nor
 * what the schema takes moves one to another part, and so under another key. */
static void test_parts_do_not_follow_the_catalog(void **state)
{
    Searchfabric__V1__AllocatorAdmissionPolicy policy =
        SEARCHFABRIC__V1__ALLOCATOR_ADMISSION_POLICY__INIT;
    struct sf_buf body = {0};

    (void)state;
    bulk_of(&body, SF_LIMIT_ES_PLAN_ITEMS + 2);
    edge_request(&edge, "POST", "/books/_bulk", "k", (const char *)body.data, body.len, &answer);
    assert_answer(200, "document_parsing_exception");
    assert_int_equal(edge.allocation_count, 2);
    assert_int_equal(edge.allocations[0]->plan->n_items, SF_LIMIT_ES_PLAN_ITEMS - 1);
    assert_int_equal(edge.allocations[1]->plan->n_items, 2);
    /* the ceiling falls; what was realized under the key is met all the same */
    policy.max_plan_items_per_request = 1;
    edge.facts.state.allocator_admission_policy = &policy;
    edge.facts.state.descriptor_etag = "etag-lower";
    free(answer.body);
    edge_request(&edge, "POST", "/books/_bulk", "k", (const char *)body.data, body.len, &answer);
    assert_int_equal(edge.allocation_count, 4);
    assert_int_equal(edge.replay_count, 2);
    assert_int_equal(distinct_batches(0), 2);
    sf_buf_fini(&body);
}

static void test_refresh_waits_for_visibility(void **state)
{
    (void)state;
    post("/books/_doc", NULL, "{}");
    post("/books/_doc?refresh=wait_for", NULL, "{}");
    post("/books/_doc?refresh=true", NULL, "{}");
    assert_answer(201, "\"forced_refresh\":true");
    post("/books/_doc?refresh=false", NULL, "{}");
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(edge.batches[i]->durability,
                         SEARCHFABRIC__V1__DURABILITY_POLICY__DURABILITY_POLICY_WAL_CHUNK_DURABLE);
        assert_int_equal(
            edge.batches[i]->visibility,
            i == 1 || i == 2
                ? SEARCHFABRIC__V1__VISIBILITY_POLICY__VISIBILITY_POLICY_WAIT_FOR_VISIBLE
                : SEARCHFABRIC__V1__VISIBILITY_POLICY__VISIBILITY_POLICY_ASYNC);
    }
}

static void test_names_are_confirmed_by_their_revision(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        post("/books/_doc", NULL, "{}");
    assert_int_equal(edge.resolves, 1);
    assert_int_equal(edge.reads, 3);
    assert_int_equal(edge.confirmed, 2);
    edge.binding_revision = 2;
    post("/books/_doc", NULL, "{}");
    assert_answer(201, "created");
    assert_int_equal(edge.resolves, 2);
    /* What is not there is asked for each time. */
    post("/none/_doc", NULL, "{}");
    assert_answer(404, "index_not_found_exception");
    post("/none/_doc", NULL, "{}");
    assert_int_equal(edge.resolves, 4);
}

static void test_bad_documents_take_no_id(void **state)
{
    (void)state;
    post("/books/_bulk", NULL,
         "{\"index\":{}}\nnope\n{\"index\":{}}\n{\"v\":[1,2]}\n{\"index\":{}}\n{\"v\":[1]}\n");
    assert_answer(200, "document_parsing_exception");
    assert_int_equal(edge.allocations[0]->plan->n_items, 1);
    assert_int_equal(edge.batches[0]->n_entries, 1);
}

static void test_errors_of_the_services(void **state)
{
    (void)state;
    edge.allocator_err = SF_BACKEND_UNAVAILABLE;
    post("/books/_doc", NULL, "{}");
    assert_answer(503, "unavailable_shards_exception");
    assert_non_null(strstr(answer.head, "Retry-After"));
    edge.allocator_err = SF_OWNERSHIP_CONFLICT;
    post("/books/_doc", NULL, "{}");
    assert_answer(409, "illegal_state_exception");
    edge.allocator_err = SF_OK;
    edge.ingest_mode = INGEST_REFUSE;
    post("/books/_doc", NULL, "{}");
    assert_answer(429, "es_rejected_execution_exception");
    post("/books/_bulk", NULL, "{\"index\":{}}\n{}\n");
    assert_answer(200, "\"status\":429");
    edge.ingest_mode = INGEST_BREAK;
    post("/books/_doc", NULL, "{}");
    assert_answer(503, "unavailable_shards_exception");
    /* The next one opens a stream of its own. */
    edge.ingest_mode = INGEST_ACK;
    post("/books/_doc", NULL, "{}");
    assert_answer(201, "created");
}

static void test_no_acknowledgement_in_time(void **state)
{
    (void)state;
    edge.ingest_mode = INGEST_SILENT;
    post("/books/_doc", "k", "{}");
    assert_answer(504, "timeout_exception");
    edge.ingest_mode = INGEST_ACK;
    post("/books/_doc", "k", "{}");
    assert_answer(201, "\"_id\":\"0\"");
}

int main(void)
{
#define EDGE_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        EDGE_TEST(test_auto_id),
        EDGE_TEST(test_explicit_id),
        EDGE_TEST(test_ids_that_are_none),
        EDGE_TEST(test_plans_follow_the_rows),
        EDGE_TEST(test_one_allocation_for_a_mixed_bulk),
        EDGE_TEST(test_routes_that_create_nothing_allocate_nothing),
        EDGE_TEST(test_refused_ids_leave_the_others_in_order),
        EDGE_TEST(test_keys),
        EDGE_TEST(test_parts_do_not_follow_the_catalog),
        EDGE_TEST(test_refresh_waits_for_visibility),
        EDGE_TEST(test_names_are_confirmed_by_their_revision),
        EDGE_TEST(test_bad_documents_take_no_id),
        EDGE_TEST(test_errors_of_the_services),
        cmocka_unit_test_setup_teardown(test_a_retry_after_any_broken_step_doubles_nothing,
                                        setup_impatient, teardown),
        cmocka_unit_test_setup_teardown(test_no_acknowledgement_in_time, setup_impatient, teardown),
    };
    return SF_RUN_TESTS("es_edge", tests);
}
