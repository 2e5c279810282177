/* `sfctl alloc restore-mark|verify` on a store's folder, as an operator runs them. */
#include "support/proves.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "contract/descriptor_set.h"
#include "object/durable.h"
#include "searchfabric/v1/durable.pb-c.h"
#include "support/tempdir.h"

#define STATE_KEY "id-allocator/state/79/7/9.json"
#define LOOKUP    "a0293aaf9706c34e26edec6d81b35135342a3198c537d948eb1df237d1e6bfd5"

static char output[4096]; /* of the last run, both streams */

/* Runs sfctl with these arguments; returns its exit code. */
static int run(const char *arguments)
{
    char command[1024];
    (void)snprintf(command, sizeof(command), "%s %s 2>&1", SFCTL, arguments);
    FILE *pipe = popen(command, "r"); /* NOLINT(cert-env33-c): a fixed command of the test */
    assert_non_null(pipe);
    size_t n = fread(output, 1, sizeof(output) - 1, pipe);
    output[n] = '\0';
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void put(struct sf_store *store, const char *key, const ProtobufCMessage *message)
{
    struct sf_buf body = {0};
    sf_durable_encode(message, &body, NULL);
    struct sf_put p = {.key = sf_view_str(key), .body = sf_buf_view(&body), .cond = SF_PUT_ABSENT};
    assert_int_equal(sf_store_put_wait(store, NULL, &p), SF_OK);
    sf_buf_fini(&body);
}

/* A state that says 3, and a result that realized 41. */
static void plant(struct sf_store *store)
{
    Searchfabric__V1__AllocatorStateObject state = SEARCHFABRIC__V1__ALLOCATOR_STATE_OBJECT__INIT;
    Searchfabric__V1__AllocatorReplaySuccessObject record =
        SEARCHFABRIC__V1__ALLOCATOR_REPLAY_SUCCESS_OBJECT__INIT;
    Searchfabric__V1__DocumentID id = SEARCHFABRIC__V1__DOCUMENT_ID__INIT;
    Searchfabric__V1__RealizedDocId realized = SEARCHFABRIC__V1__REALIZED_DOC_ID__INIT;
    Searchfabric__V1__RealizedDocId *list[] = {&realized};
    Searchfabric__V1__AllocationPlan plan = SEARCHFABRIC__V1__ALLOCATION_PLAN__INIT;
    Searchfabric__V1__AllocationPlanItem item = SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__INIT;
    Searchfabric__V1__AllocationPlanItem *items[] = {&item};

    state.attempt_id = (char *)"planted-1";
    state.namespace_id = 7;
    state.collection_id = 9;
    state.next_doc_id = (char *)"3";
    state.allocation_epoch = 4;
    state.allocator_state_version = 5;
    state.owner_id = (char *)"planted";
    state.updated_at_unix_ms = 1000;
    put(store, STATE_KEY, &state.base);
    id.id_value_case = SEARCHFABRIC__V1__DOCUMENT_ID__ID_VALUE_U64;
    id.u64 = 41;
    realized.doc_id = &id;
    record.attempt_id = (char *)"planted-2";
    item.item_case = SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__ITEM_EXPLICIT_DOC_ID;
    item.explicit_doc_id = &id;
    plan.items = items;
    plan.n_items = 1;
    record.plan = &plan;
    record.transport_lookup_key = (char *)LOOKUP;
    record.payload_fingerprint = (char *)LOOKUP;
    record.namespace_id = 7;
    record.collection_id = 9;
    record.realized_doc_ids = list;
    record.n_realized_doc_ids = 1;
    put(store, "id-allocator/replay-success/e8/" LOOKUP ".json", &record.base);
}

static void test_mark_and_verify(void **state)
{
    (void)state;
    char folder[SF_TEMPDIR_BYTES];
    char arguments[512];
    struct sf_store *store = NULL;
    struct sf_arena *arena = sf_arena_new(1u << 20);
    ProtobufCMessage *message = NULL;

    assert_int_equal(sf_pbjson_register(sf_view_bytes(sf_contract_descriptor_set,
                                                      sf_contract_descriptor_set_size)),
                     SF_OK);
    sf_log_set_fd(-1);
    sf_tempdir_make(folder);
    /* a folder without a store is refused and stays empty: a wrong path marks nothing */
    (void)snprintf(arguments, sizeof(arguments), "alloc restore-mark %s", folder);
    assert_int_equal(run(arguments), 2);
    assert_non_null(strstr(output, "no embedded store"));
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(sf_embedded_store_open(folder, NULL, &store), SF_OK);
    plant(store);
    /* a folder in use is left alone */
    (void)snprintf(arguments, sizeof(arguments), "alloc restore-mark %s", folder);
    assert_int_not_equal(run(arguments), 0);
    sf_store_destroy(store);

    (void)snprintf(arguments, sizeof(arguments), "alloc restore-mark %s --reason drill", folder);
    assert_int_equal(run(arguments), 0);
    assert_non_null(strstr(output, "closed until it is verified"));
    (void)snprintf(arguments, sizeof(arguments), "--json alloc verify %s 7/9 --dry-run", folder);
    assert_int_equal(run(arguments), 0);
    assert_non_null(strstr(output, "\"next_before\":\"3\",\"next_after\":\"42\""));
    assert_non_null(strstr(output, "\"written\":false"));
    (void)snprintf(arguments, sizeof(arguments), "alloc verify %s 7/9", folder);
    assert_int_equal(run(arguments), 0);
    assert_non_null(strstr(output, "next_doc_id 3 -> 42, 1 results, 0 unfinished applies, open"));
    /* wrong words send nothing */
    (void)snprintf(arguments, sizeof(arguments), "alloc verify %s books", folder);
    assert_int_equal(run(arguments), 2);
    assert_int_equal(run("alloc verify"), 2);
    (void)snprintf(arguments, sizeof(arguments), "alloc rebuild %s 7/9 --floor 007", folder);
    assert_int_equal(run(arguments), 2);
    /* nor does text that no object can hold */
    (void)snprintf(arguments, sizeof(arguments),
                   "alloc restore-mark %s --reason \"$(printf '\\377')\"", folder);
    assert_int_equal(run(arguments), 2);
    (void)snprintf(arguments, sizeof(arguments),
                   "--client-id \"$(printf '\\377')\" alloc restore-mark %s", folder);
    assert_int_equal(run(arguments), 2);

    assert_int_equal(sf_embedded_store_open(folder, NULL, &store), SF_OK);
    struct sf_diag diag;
    sf_diag_init(&diag);
    assert_int_equal(sf_durable_read_wait(store, NULL, sf_view_str(STATE_KEY),
                                          &searchfabric__v1__allocator_state_object__descriptor,
                                          arena, &diag, &message, NULL),
                     SF_OK);
    const Searchfabric__V1__AllocatorStateObject *object = (const void *)message;
    assert_string_equal(object->next_doc_id, "42");
    assert_int_equal(object->allocation_epoch, 5);
    assert_int_equal(object->allocator_state_version, 6);
    assert_true(object->updated_at_unix_ms > 1000);
    sf_store_destroy(store);
    sf_arena_destroy(arena);
    sf_tempdir_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mark_and_verify)};
    return SF_RUN_TESTS("alloc_restore_tool", tests);
}
