/* Failure-audit objects and recovery segments: what they hold, and that nothing depends on them. */
#include "component/allocator/alloc_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/allocator_rules.h"
#include "base/hash.h"
#include "base/limits.h"
#include "object/compress.h"

#define AUDIT    "id-allocator/failure-audit/"
#define SEGMENTS "id-allocator/recovery-segments/"
#define ARENA    ((size_t)64 << 20)

static struct result r, r2; /* of the running test */

static int teardown(void **state)
{
    result_fini(&r);
    result_fini(&r2);
    r = (struct result){0};
    r2 = (struct result){0};
    return world_teardown(state);
}

/* A process with the given artifacts. */
static struct process *start_with(struct world *w, bool audit, bool segments)
{
    w->artifacts =
        (struct sf_allocator_artifacts){.failure_audit = audit, .recovery_segments = segments};
    return world_start(w);
}

static size_t list(struct world *w, const char *prefix, struct sf_arena *arena,
                   struct sf_list_entry **out)
{
    size_t count = 0;

    assert_int_equal(sf_store_list_wait(w->backend, NULL, sf_view_str(prefix), (struct sf_view){0},
                                        1000, arena, out, &count),
                     SF_OK);
    return count;
}

static size_t object_count(struct world *w, const char *prefix)
{
    struct sf_arena *arena = sf_arena_new(ARENA);
    struct sf_list_entry *entries = NULL;
    size_t count = list(w, prefix, arena, &entries);

    sf_arena_destroy(arena);
    return count;
}

static void put_any(struct world *w, struct sf_view key, struct sf_view body)
{
    struct sf_put put = {.key = key, .body = body, .cond = SF_PUT_ANY};
    assert_int_equal(sf_store_put_wait(w->backend, NULL, &put), SF_OK);
}

static void remove_all(struct world *w, const char *prefix)
{
    struct sf_arena *arena = sf_arena_new(ARENA);
    struct sf_list_entry *entries = NULL;
    size_t count = list(w, prefix, arena, &entries);

    for (size_t i = 0; i < count; i++)
        assert_int_equal(sf_store_remove_wait(w->backend, NULL, entries[i].key), SF_OK);
    sf_arena_destroy(arena);
}

/* ---- failure audit ---- */

/* The one audit object of `key`, checked against its own name; body appended to `out_body`. */
static const Searchfabric__V1__AllocatorFailureAuditObject *
audit_of(struct world *w, const char *key, struct sf_arena *arena, struct sf_buf *out_body)
{
    const Searchfabric__V1__AllocatorFailureAuditObject *found = NULL;
    struct sf_list_entry *entries = NULL;
    size_t count = list(w, AUDIT, arena, &entries);

    for (size_t i = 0; i < count; i++) {
        ProtobufCMessage *message = NULL;
        struct sf_buf body = {0};
        char h[SF_SHA256_HEX_BYTES];
        char want[256];
        assert_int_equal(sf_store_get_wait(w->backend, NULL, entries[i].key, &body, NULL), SF_OK);
        assert_int_equal(
            sf_durable_decode(&searchfabric__v1__allocator_failure_audit_object__descriptor,
                              sf_buf_view(&body), arena, NULL, &message),
            SF_OK);
        const Searchfabric__V1__AllocatorFailureAuditObject *object = (const void *)message;
        sf_sha256_hex(sf_view_str(object->allocation_attempt_id), h);
        (void)snprintf(want, sizeof(want), AUDIT "%.2s/%s.json", h, object->allocation_attempt_id);
        assert_true(sf_view_equal(entries[i].key, sf_view_str(want)));
        if (strcmp(object->idempotency_key, key) == 0) {
            assert_null(found);
            found = object;
            sf_buf_append(out_body, body.data, body.len);
        }
        sf_buf_fini(&body);
    }
    sf_buf_append(out_body, "", 1);
    return found;
}

/* One refusal: its object holds the facts of the answer and nothing of a success. */
static void expect_audited(struct world *w, const char *key, enum sf_err err, const char *detail)
{
    struct sf_arena *arena = sf_arena_new(ARENA);
    struct sf_buf body = {0};

    world_settle(w);
    const Searchfabric__V1__AllocatorFailureAuditObject *object = audit_of(w, key, arena, &body);
    if (object == NULL)
        fail_msg("no audit of %s", key);
    assert_string_equal(object->error->code, sf_err_info(err)->code);
    assert_true(object->error->message[0] != '\0');
    bool have = detail == NULL;
    for (size_t i = 0; i < object->error->n_diagnostics; i++)
        have = have || strcmp(object->error->diagnostics[i]->key, detail) == 0;
    if (!have)
        fail_msg("%s: no diagnostic %s", key, detail);
    assert_true(object->started_at_unix_ms >= 1767225600000 &&
                object->failed_at_unix_ms >= object->started_at_unix_ms &&
                object->failed_at_unix_ms <= w->loop.clock.unix_ms);
    assert_int_equal(strlen(object->authenticated_client_identity_hash), SF_SHA256_HEX_BYTES - 1);
    static const char *const only_success[] = {
        "realized", "Realized", "schema_generation_token", "schemaGenerationToken",
        "receipt",  "Receipt"};
    for (size_t i = 0; i < SF_ARRAY_LEN(only_success); i++)
        assert_null(strstr((char *)body.data, only_success[i]));
    sf_buf_fini(&body);
    sf_arena_destroy(arena);
}

static bool allow_all_but_8(void *self, const struct sf_identity *identity,
                            struct sf_collection_ref collection)
{
    (void)self;
    (void)identity;
    return collection.collection_id.v != 8;
}

static enum script_fate refuse_state(void *ctx, const struct sf_put *put)
{
    (void)ctx;
    return script_is_state_key(put->key) ? SCRIPT_REFUSE : SCRIPT_APPLY;
}

static void test_audit_holds_each_failure(void **state)
{
    struct world *w = *state;
    const struct sf_allocator_grants grants = {.allows = allow_all_but_8};
    SF_PROVES("ALLOC-6.4-02", "ALLOC-6.4-03", "ALLOC-6.4-04", "ALLOC-7.1-08", "ALLOC-7.3-13");

    w->grants = &grants;
    struct process *p = start_with(w, true, false);
    allocate(p, &r, "malformed", NULL, 0);
    expect_err(&r, SF_INVALID_ARGUMENT);
    expect_audited(w, "malformed", SF_INVALID_ARGUMENT, "field");
    allocate(p, &r, "twice", PLAN(4, 4));
    expect_err(&r, SF_BAD_REQUEST);
    expect_audited(w, "twice", SF_BAD_REQUEST, "field");
    call_run(
        p, &r,
        &(struct call_spec){
            .key = "denied", .collection_id = 8, .items = (const uint64_t[]){ISSUE}, .count = 1});
    expect_err(&r, SF_FORBIDDEN);
    expect_audited(w, "denied", SF_FORBIDDEN, NULL);
    w->facts.exists = false;
    allocate(p, &r, "gone", PLAN(ISSUE));
    expect_audited(w, "gone", SF_RESOURCE_NOT_FOUND, NULL);
    w->facts.exists = true;
    w->facts.token = NULL;
    w->facts.etag = "";
    allocate(p, &r, "bootstrap", PLAN(ISSUE));
    expect_audited(w, "bootstrap", SF_CATALOG_UNAVAILABLE, "schema_bootstrap_state");
    w->facts.token = "tok-1";
    w->facts.generation_policy = 2;
    allocate(p, &r, "owner", PLAN(ISSUE));
    expect_audited(w, "owner", SF_OWNERSHIP_CONFLICT, NULL);
    w->facts.generation_policy = 1;
    allocate_ok(p, &r, "good", PLAN(5));
    allocate(p, &r, "good", PLAN(6));
    expect_err(&r, SF_IDEMPOTENCY_CONFLICT);
    expect_audited(w, "good", SF_IDEMPOTENCY_CONFLICT, NULL);
    allocate(p, &r, "burned", PLAN(3));
    expect_err(&r, SF_VERSION_CONFLICT);
    expect_audited(w, "burned", SF_VERSION_CONFLICT, "allocator_conflict_reason");
    allocate(p, &r, "far", PLAN(5000));
    expect_err(&r, SF_TOO_MANY_OPERATIONS);
    expect_audited(w, "far", SF_TOO_MANY_OPERATIONS, "limit_scope");
    script_store_on(w->script, refuse_state, NULL, NULL);
    allocate(p, &r, "down", PLAN(ISSUE));
    expect_err(&r, SF_BACKEND_UNAVAILABLE);
    expect_audited(w, "down", SF_BACKEND_UNAVAILABLE, "outcome_unknown");
    script_store_on(w->script, NULL, NULL, NULL);
    /* the failures are nobody's result: one success stands, and a retry is judged afresh */
    assert_int_equal(world_replay_count(w), 1);
    allocate_ok(p, &r, "down", PLAN(ISSUE));
    EXPECT_IDS(&r, 6);
    w->grants = NULL;
}

static void test_audit_is_off_by_default(void **state)
{
    struct world *w = *state;
    SF_PROVES("ALLOC-6.4-02");

    allocate(&w->processes[0], &r, "a", NULL, 0);
    expect_err(&r, SF_INVALID_ARGUMENT);
    world_settle(w);
    assert_int_equal(object_count(w, AUDIT), 0);
    assert_int_equal(object_count(w, SEGMENTS), 0);
}

static void test_an_attempt_is_an_object(void **state)
{
    struct world *w = *state;
    struct process *p = start_with(w, true, false);
    SF_PROVES("ALLOC-7.1-08", "ALLOC-7.1-09");

    allocate_ok(p, &r, "a", PLAN(9));
    for (unsigned i = 0; i < 3; i++)
        allocate(p, &r, "same", PLAN(1));
    world_settle(w);
    assert_int_equal(object_count(w, AUDIT), 3);
    /* forged and deleted: the same refusal, the same replay */
    struct sf_arena *arena = sf_arena_new(ARENA);
    struct sf_list_entry *entries = NULL;
    size_t count = list(w, AUDIT, arena, &entries);
    for (size_t i = 0; i < count; i++)
        put_any(w, entries[i].key,
                sf_view_str("{\"realizedDocIds\":[{\"docId\":{\"u64\":\"1\"}}]}"));
    sf_arena_destroy(arena);
    allocate(p, &r, "same", PLAN(1));
    expect_err(&r, SF_VERSION_CONFLICT);
    remove_all(w, AUDIT);
    allocate(p, &r, "same", PLAN(1));
    expect_err(&r, SF_VERSION_CONFLICT);
    allocate_ok(p, &r, "a", PLAN(9));
    EXPECT_IDS(&r, 9);
}

static enum script_fate lose_audit(void *ctx, const struct sf_put *put)
{
    (void)ctx;
    return put->key.len > strlen(AUDIT) && memcmp(put->key.ptr, AUDIT, strlen(AUDIT)) == 0
               ? SCRIPT_LOSE
               : SCRIPT_APPLY;
}

/* What cannot be written is counted, what does not fit is dropped; answers come all the same. */
static void test_audit_fails_alone(void **state)
{
    struct world *w = *state;
    struct process *p = start_with(w, true, false);
    struct sf_allocator_stats stats;

    script_store_on(w->script, lose_audit, NULL, NULL);
    allocate(p, &r, "a", NULL, 0);
    expect_err(&r, SF_INVALID_ARGUMENT);
    world_settle(w);
    assert_true(metrics_have(p, "searchfabric_id_allocator_artifact_entries_total{artifact="
                                "\"failure_audit\",result=\"failed\"} 1"));
    script_store_on(w->script, NULL, NULL, NULL);
    for (unsigned i = 0; i < SF_LIMIT_ALLOC_FEED_ENTRIES + 5; i++) {
        allocate(p, &r, "b", NULL, 0);
        expect_err(&r, SF_INVALID_ARGUMENT);
    }
    sf_allocator_stats(p->allocator, &stats);
    assert_int_equal(stats.artifacts_dropped, 5);
    allocate_ok(p, &r, "c", PLAN(ISSUE));
}

/* Overlong texts are refused for that, and cut in the audit. */
static void test_audit_cuts_texts(void **state)
{
    struct world *w = *state;
    struct process *p = start_with(w, true, false);
    char key[2048];
    struct sf_arena *arena = sf_arena_new(ARENA);
    struct sf_buf body = {0};

    (void)arena;
    memset(key, 'k', 550);
    key[550] = '\0';
    allocate(p, &r, key, PLAN(ISSUE));
    expect_err(&r, SF_BAD_REQUEST);
    world_settle(w);
    assert_non_null(audit_of(w, key, arena, &body));
    sf_buf_fini(&body);
    sf_arena_destroy(arena);
}

/* ---- recovery segments ---- */

static const Searchfabric__V1__AllocatorRecoverySegmentObject *
segment_read(struct world *w, struct sf_view key, struct sf_arena *arena)
{
    ProtobufCMessage *message = NULL;
    struct sf_buf stored = {0};
    struct sf_buf plain = {0};
    uint64_t epoch = 0;

    assert_int_equal(sf_store_get_wait(w->backend, NULL, key, &stored, NULL), SF_OK);
    assert_int_equal(sf_expand(sf_buf_view(&stored), &plain, NULL), SF_OK);
    assert_int_equal(
        sf_durable_decode(&searchfabric__v1__allocator_recovery_segment_object__descriptor,
                          sf_buf_view(&plain), arena, NULL, &message),
        SF_OK);
    assert_true(sf_alloc_segment_parse(key, &epoch));
    const Searchfabric__V1__AllocatorRecoverySegmentObject *segment = (const void *)message;
    assert_int_equal(segment->allocator_recovery_epoch, epoch);
    sf_buf_fini(&stored);
    sf_buf_fini(&plain);
    return segment;
}

static void test_segments_list_applies(void **state)
{
    struct world *w = *state;
    struct sf_arena *arena = sf_arena_new(ARENA);
    struct sf_list_entry *entries = NULL;
    SF_PROVES("ALLOC-7.1-10");

    struct process *a = start_with(w, false, true);
    allocate_ok(a, &r, "a1", PLAN(ISSUE, ISSUE, 7, 8, ISSUE));
    allocate_ok(a, &r, "a1", PLAN(ISSUE, ISSUE, 7, 8, ISSUE)); /* a repeat is no apply */
    allocate(a, &r, "a2", PLAN(2));                            /* nor is a refusal */
    allocate_ok(a, &r, "a3", PLAN(ISSUE));
    world_settle(w);
    struct process *b = start_with(w, false, true);
    allocate_ok(b, &r, "b1", PLAN(20));
    world_settle(w);
    allocate_ok(b, &r, "b2", PLAN(21));
    world_settle(w);
    assert_int_equal(list(w, SEGMENTS, arena, &entries), 3);
    assert_true(sf_view_equal(entries[0].key, sf_view_str(SEGMENTS "segment_00000000000000000001"
                                                                   ".json.zst")));
    const Searchfabric__V1__AllocatorRecoverySegmentObject *first =
        segment_read(w, entries[0].key, arena);
    assert_string_equal(first->owner_id, a->attempts.process);
    assert_int_equal(first->n_entries, 2);
    const Searchfabric__V1__AllocatorAppliedEntry *e = first->entries[0];
    assert_int_equal(e->sequence, 1);
    assert_string_equal(e->idempotency_key, "a1");
    assert_int_equal(e->namespace_id, NS);
    assert_int_equal(e->collection_id, COLL);
    assert_int_equal(e->n_runs, 3);
    assert_true(e->runs[0]->first_doc_id == 0 && e->runs[0]->count == 2 &&
                e->runs[0]->allocator_issued);
    assert_true(e->runs[1]->first_doc_id == 7 && e->runs[1]->count == 2 &&
                !e->runs[1]->allocator_issued);
    assert_true(e->runs[2]->first_doc_id == 9 && e->runs[2]->count == 1 &&
                e->runs[2]->allocator_issued);
    assert_int_equal(first->entries[1]->sequence, 2);
    assert_string_equal(first->entries[1]->idempotency_key, "a3");
    assert_true(first->entries[1]->allocator_state_version > e->allocator_state_version);
    const Searchfabric__V1__AllocatorRecoverySegmentObject *third =
        segment_read(w, entries[2].key, arena);
    assert_string_equal(third->owner_id, b->attempts.process);
    assert_int_equal(third->entries[0]->sequence, 2);
    assert_true(third->entries[0]->allocation_epoch > e->allocation_epoch);
    sf_arena_destroy(arena);
}

/* Two processes that found the same tail: the second takes the next number. */
static void test_segments_of_two_owners(void **state)
{
    struct world *w = *state;
    struct sf_arena *arena = sf_arena_new(ARENA);
    struct sf_list_entry *entries = NULL;
    SF_PROVES("ALLOC-7.1-10");

    struct process *a = start_with(w, false, true);
    struct process *b = start_with(w, false, true);
    for (unsigned i = 0; i < 3; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "a%u", i);
        call_run(a, &r,
                 &(struct call_spec){.key = key, .items = (const uint64_t[]){ISSUE}, .count = 1});
        call_run(b, &r,
                 &(struct call_spec){.key = key,
                                     .client_id = "gw-2",
                                     .collection_id = 10,
                                     .items = (const uint64_t[]){ISSUE},
                                     .count = 1});
        world_settle(w);
    }
    size_t count = list(w, SEGMENTS, arena, &entries);
    unsigned of_a = 0, of_b = 0;
    for (size_t i = 0; i < count; i++) {
        const Searchfabric__V1__AllocatorRecoverySegmentObject *segment =
            segment_read(w, entries[i].key, arena);
        assert_int_equal(segment->allocator_recovery_epoch, i + 1);
        *(strcmp(segment->owner_id, a->attempts.process) == 0 ? &of_a : &of_b) +=
            (unsigned)segment->n_entries;
    }
    assert_int_equal(of_a, 3);
    assert_int_equal(of_b, 3);
    sf_arena_destroy(arena);
}

static enum script_fate doubt_segments(void *ctx, const struct sf_put *put)
{
    unsigned *left = ctx;

    if (put->key.len < strlen(SEGMENTS) || memcmp(put->key.ptr, SEGMENTS, strlen(SEGMENTS)) != 0 ||
        *left == 0)
        return SCRIPT_APPLY;
    return --*left % 2 == 0 ? SCRIPT_DARK : SCRIPT_LOSE;
}

/* A put in doubt is repeated and meets itself: still one segment. */
static void test_segment_in_doubt(void **state)
{
    struct world *w = *state;
    unsigned left = 3;

    struct process *p = start_with(w, false, true);
    script_store_on(w->script, doubt_segments, NULL, &left);
    allocate_ok(p, &r, "a", PLAN(ISSUE));
    world_settle(w);
    assert_int_equal(left, 0); /* applied in the dark, then in doubt twice more, then found */
    assert_int_equal(object_count(w, SEGMENTS), 1);
    allocate_ok(p, &r, "b", PLAN(ISSUE));
    world_settle(w);
    assert_int_equal(object_count(w, SEGMENTS), 2);
    assert_true(metrics_have(p, "searchfabric_id_allocator_artifact_entries_total{artifact="
                                "\"recovery_segment\",result=\"written\"} 2"));
}

/* An apply that a later owner finished is listed by that owner. */
static void test_rolled_forward_is_listed(void **state)
{
    struct world *w = *state;
    struct sf_arena *arena = sf_arena_new(ARENA);
    struct sf_list_entry *entries = NULL;

    struct process *a = start_with(w, false, false);
    allocate_ok(a, &r, "a", PLAN(4));
    Searchfabric__V1__AllocatorStateObject *state_object = world_state(w, COLL, arena);
    Searchfabric__V1__AllocatorReplaySuccessObject *record = world_replay(w, "a", arena);
    struct sf_buf key = {0};
    struct sf_buf body = {0};
    state_object->pending_applies = &record;
    state_object->n_pending_applies = 1;
    sf_durable_encode(&state_object->base, &body, NULL);
    sf_alloc_state_key((struct sf_collection_ref){{NS}, {COLL}}, &key);
    put_any(w, sf_buf_view(&key), sf_buf_view(&body));
    remove_all(w, "id-allocator/replay-success/");
    struct process *b = start_with(w, false, true);
    allocate_ok(b, &r, "b", PLAN(ISSUE));
    world_settle(w);
    assert_int_equal(list(w, SEGMENTS, arena, &entries), 1);
    const Searchfabric__V1__AllocatorRecoverySegmentObject *segment =
        segment_read(w, entries[0].key, arena);
    assert_int_equal(segment->n_entries, 2);
    assert_string_equal(segment->entries[0]->idempotency_key, "a");
    assert_true(segment->entries[0]->rolled_forward);
    assert_false(segment->entries[1]->rolled_forward);
    sf_buf_fini(&key);
    sf_buf_fini(&body);
    sf_arena_destroy(arena);
}

/* ---- nothing depends on them ---- */

static void no_harm(struct world *w)
{
    (void)w;
}

/* Every second time all artifacts are deleted, else overwritten with something else. */
static void delete_and_forge(struct world *w)
{
    static const char *const prefixes[] = {AUDIT, SEGMENTS};
    static unsigned turn;

    turn++;
    for (size_t k = 0; k < SF_ARRAY_LEN(prefixes); k++) {
        struct sf_arena *arena = sf_arena_new(ARENA);
        struct sf_list_entry *entries = NULL;
        size_t count = list(w, prefixes[k], arena, &entries);
        for (size_t i = 0; turn % 2 == 1 && i < count; i++)
            put_any(w, entries[i].key, sf_view_str("{\"next_doc_id\":\"777\"}"));
        sf_arena_destroy(arena);
        if (turn % 2 == 0)
            remove_all(w, prefixes[k]);
    }
    put_any(w, sf_view_str(SEGMENTS "segment_00000000000000000900.json.zst"),
            sf_view_str("forged"));
}

static void test_losing_them_changes_no_answer(void **state)
{
    struct world *w = *state;
    struct sf_buf plain = {0};
    struct sf_buf harmed = {0};
    void *other = NULL;
    SF_PROVES("ALLOC-7.1-06", "ALLOC-7.1-09", "ALLOC-7.1-11", "ALLOC-7.4-10");

    world_run_script(w, start_with(w, false, false), no_harm, &plain);
    assert_int_equal(world_setup(&other), 0);
    struct world *w2 = other;
    world_run_script(w2, start_with(w2, true, true), delete_and_forge, &harmed);
    assert_true(plain.len > 1000);
    assert_true(sf_view_equal(sf_buf_view(&plain), sf_buf_view(&harmed)));
    /* a new owner finds the same with none of them left */
    remove_all(w2, AUDIT);
    remove_all(w2, SEGMENTS);
    allocate_ok(start_with(w, false, false), &r, "after", PLAN(ISSUE));
    allocate_ok(start_with(w2, true, true), &r2, "after", PLAN(ISSUE));
    expect_ids(&r2, r.ids, r.count);
    assert_int_equal(world_teardown(&other), 0);
    sf_buf_fini(&plain);
    sf_buf_fini(&harmed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_audit_holds_each_failure, world_setup, teardown),
        cmocka_unit_test_setup_teardown(test_audit_is_off_by_default, world_setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_attempt_is_an_object, world_setup, teardown),
        cmocka_unit_test_setup_teardown(test_audit_fails_alone, world_setup, teardown),
        cmocka_unit_test_setup_teardown(test_audit_cuts_texts, world_setup, teardown),
        cmocka_unit_test_setup_teardown(test_segments_list_applies, world_setup, teardown),
        cmocka_unit_test_setup_teardown(test_segments_of_two_owners, world_setup, teardown),
        cmocka_unit_test_setup_teardown(test_segment_in_doubt, world_setup, teardown),
        cmocka_unit_test_setup_teardown(test_rolled_forward_is_listed, world_setup, teardown),
        cmocka_unit_test_setup_teardown(test_losing_them_changes_no_answer, world_setup, teardown),
    };
    return SF_RUN_TESTS("alloc_artifacts", tests);
}
