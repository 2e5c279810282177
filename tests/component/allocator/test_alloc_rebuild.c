/* State objects that are lost or broken, made anew from results, segments and an operator's bound.
 */
#include "component/allocator/alloc_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/allocator_rules.h"
#include "object/compress.h"
#include "object/durable.h"

#define ARENA ((size_t)64 << 20)
#define TOP   UINT64_MAX

static struct result r, r2; /* of the running test */
static struct sf_allocator_rebuilt told[16];
static size_t told_count;

static int teardown(void **state)
{
    result_fini(&r);
    result_fini(&r2);
    r = (struct result){0};
    r2 = (struct result){0};
    return world_teardown(state);
}

static void tell(void *user, const struct sf_allocator_rebuilt *rebuilt)
{
    (void)user;
    assert_true(told_count < SF_ARRAY_LEN(told));
    told[told_count++] = *rebuilt;
}

static enum sf_err rebuild_with(struct world *w, struct sf_allocator_rebuild_options options)
{
    struct sf_attempts attempts;
    struct sf_diag diag;

    sf_attempts_init(&attempts, 77);
    sf_diag_init(&diag);
    options.store = w->backend;
    options.attempts = &attempts;
    options.now_unix_ms = w->loop.clock.unix_ms;
    told_count = 0;
    return sf_allocator_rebuild_wait(&options, &diag, tell, NULL);
}

static const struct sf_collection_ref one = {{NS}, {COLL}};

/* Rebuilds (NS, COLL). */
static void rebuild(struct world *w)
{
    assert_int_equal(rebuild_with(w, (struct sf_allocator_rebuild_options){.only = one}), SF_OK);
    assert_int_equal(told_count, 1);
}

static void put_any(struct world *w, struct sf_view key, struct sf_view body)
{
    struct sf_put put = {.key = key, .body = body, .cond = SF_PUT_ANY};
    assert_int_equal(sf_store_put_wait(w->backend, NULL, &put), SF_OK);
}

/* Loses the state of a collection (`body` NULL), or overwrites it. */
static void harm_state(struct world *w, uint64_t collection_id, const char *body)
{
    struct sf_buf key = {0};

    sf_alloc_state_key((struct sf_collection_ref){{NS}, {collection_id}}, &key);
    if (body == NULL)
        assert_int_equal(sf_store_remove_wait(w->backend, NULL, sf_buf_view(&key)), SF_OK);
    else
        put_any(w, sf_buf_view(&key), sf_view_str(body));
    sf_buf_fini(&key);
}

static void test_lost_and_broken_state(void **state)
{
    struct world *w = *state;
    static const char *const harms[] = {NULL, "{}", "not even JSON"};
    uint64_t next = 0;

    for (size_t i = 0; i < SF_ARRAY_LEN(harms); i++) {
        struct sf_arena *arena = sf_arena_new(ARENA);
        struct process *p = world_start(w);
        char key[16];
        (void)snprintf(key, sizeof(key), "a%zu", i);
        allocate_ok(p, &r, key, PLAN(ISSUE, next + 100, ISSUE));
        next += 102;
        Searchfabric__V1__AllocatorStateObject *before = world_state(w, COLL, arena);
        harm_state(w, COLL, harms[i]);
        rebuild(w);
        assert_true(told[0].rebuilt && !told[0].state_whole);
        assert_int_equal(told[0].state_found, harms[i] != NULL);
        assert_int_equal(told[0].replay_objects, i + 1);
        Searchfabric__V1__AllocatorStateObject *after = world_state(w, COLL, arena);
        assert_string_equal(after->next_doc_id, before->next_doc_id);
        assert_true(after->allocation_epoch > before->allocation_epoch);
        assert_true(after->allocator_state_version > before->allocator_state_version);
        assert_true(after->updated_at_unix_ms >= before->updated_at_unix_ms);
        allocate_ok(world_start(w), &r2, key, PLAN(ISSUE, next - 2, ISSUE));
        expect_same(&r, &r2);
        sf_arena_destroy(arena);
    }
    /* the process of before is deposed, a new one goes on above every id */
    allocate_ok(world_start(w), &r, "new", PLAN(ISSUE));
    EXPECT_IDS(&r, next);
}

static void test_whole_state_is_left_alone(void **state)
{
    struct world *w = *state;
    struct sf_buf key = {0};
    struct sf_buf before = {0};
    struct sf_buf after = {0};

    allocate_ok(&w->processes[0], &r, "a", PLAN(ISSUE));
    sf_alloc_state_key(one, &key);
    assert_int_equal(sf_store_get_wait(w->backend, NULL, sf_buf_view(&key), &before, NULL), SF_OK);
    rebuild(w);
    assert_false(told[0].rebuilt);
    assert_string_equal(told[0].next_before, "1");
    assert_int_equal(sf_store_get_wait(w->backend, NULL, sf_buf_view(&key), &after, NULL), SF_OK);
    assert_true(sf_view_equal(sf_buf_view(&before), sf_buf_view(&after)));
    /* nothing is known of another one: nothing is made */
    assert_int_equal(rebuild_with(w, (struct sf_allocator_rebuild_options){.only = {{NS}, {4}}}),
                     SF_OK);
    assert_false(told[0].rebuilt || told[0].state_found);
    sf_buf_fini(&key);
    sf_buf_fini(&before);
    sf_buf_fini(&after);
}

/* A state that lies below its results is raised, what is pending in it goes on. */
static void test_state_that_lies_below(void **state)
{
    struct world *w = *state;
    struct sf_arena *arena = sf_arena_new(ARENA);
    struct sf_buf key = {0};
    struct sf_buf body = {0};

    allocate_ok(&w->processes[0], &r, "a", PLAN(50));
    Searchfabric__V1__AllocatorStateObject *object = world_state(w, COLL, arena);
    Searchfabric__V1__AllocatorReplaySuccessObject *record = world_replay(w, "a", arena);
    object->next_doc_id = (char *)"7";
    object->pending_applies = &record;
    object->n_pending_applies = 1;
    sf_alloc_state_key(one, &key);
    sf_durable_encode(&object->base, &body, NULL);
    put_any(w, sf_buf_view(&key), sf_buf_view(&body));
    rebuild(w);
    assert_true(told[0].rebuilt && told[0].state_whole);
    assert_string_equal(told[0].next_before, "7");
    assert_string_equal(told[0].next_after, "51");
    assert_string_equal(world_next(w), "51");
    assert_int_equal(world_state(w, COLL, arena)->n_pending_applies, 1);
    sf_buf_fini(&key);
    sf_buf_fini(&body);
    sf_arena_destroy(arena);
}

static void test_the_last_id(void **state)
{
    struct world *w = *state;

    w->facts.max_jump = TOP;
    allocate_ok(&w->processes[0], &r, "a", PLAN(TOP));
    harm_state(w, COLL, NULL);
    rebuild(w);
    assert_string_equal(told[0].next_after, "18446744073709551616");
    allocate(world_start(w), &r, "b", PLAN(ISSUE));
    expect_err(&r, SF_TOO_MANY_OPERATIONS);
}

static void test_all_of_them(void **state)
{
    struct world *w = *state;
    char key[16];

    for (uint64_t c = 1; c <= 4; c++) {
        (void)snprintf(key, sizeof(key), "k%u", (unsigned)c);
        call_run(
            &w->processes[0], &r,
            &(struct call_spec){
                .key = key, .collection_id = c, .items = (const uint64_t[]){10 * c}, .count = 1});
        assert_int_equal(r.diag.err, SF_OK);
    }
    harm_state(w, 2, NULL);
    harm_state(w, 3, "broken");
    put_any(w, sf_view_str("id-allocator/state/79/7/9.json.bak"), sf_view_str("a copy"));
    assert_int_equal(rebuild_with(w, (struct sf_allocator_rebuild_options){.dry_run = true}),
                     SF_OK);
    assert_int_equal(told_count, 4);
    assert_true(told[1].rebuilt && told[2].rebuilt);
    assert_int_equal(rebuild_with(w, (struct sf_allocator_rebuild_options){0}), SF_OK);
    assert_int_equal(told_count, 4);
    for (size_t i = 0; i < 4; i++) {
        char next[24];
        (void)snprintf(next, sizeof(next), "%zu", 10 * (i + 1) + 1);
        assert_int_equal(told[i].collection.collection_id.v, i + 1);
        assert_string_equal(told[i].next_after, next);
        assert_int_equal(told[i].rebuilt, i == 1 || i == 2);
    }
    assert_int_equal(rebuild_with(w, (struct sf_allocator_rebuild_options){0}), SF_OK);
    for (size_t i = 0; i < 4; i++)
        assert_false(told[i].rebuilt);
}

/* Results that are gone or broken tell nothing: segments or the operator's bound do. */
static void test_segments_and_floor(void **state)
{
    struct world *w = *state;
    struct sf_arena *arena = sf_arena_new(ARENA);
    struct sf_list_entry *entries = NULL;
    size_t count = 0;

    w->artifacts.recovery_segments = true;
    allocate_ok(world_start(w), &r, "a", PLAN(70, 71));
    world_settle(w);
    harm_state(w, COLL, NULL);
    assert_int_equal(sf_store_list_wait(w->backend, NULL,
                                        sf_view_str("id-allocator/replay-success/"),
                                        (struct sf_view){0}, 10, arena, &entries, &count),
                     SF_OK);
    assert_int_equal(count, 1);
    put_any(w, entries[0].key, sf_view_str("broken"));
    struct sf_allocator_rebuild_options options = {.only = one};
    assert_int_equal(rebuild_with(w, options), SF_INTERNAL); /* its ids are not known */
    assert_string_equal(world_next(w), "");
    options.floor = "x1";
    assert_int_equal(rebuild_with(w, options), SF_INVALID_ARGUMENT);
    assert_int_equal(sf_store_remove_wait(w->backend, NULL, entries[0].key), SF_OK);
    options.floor = NULL;
    options.dry_run = true;
    assert_int_equal(rebuild_with(w, options), SF_OK);
    assert_false(told[0].rebuilt);
    options.use_segments = true;
    assert_int_equal(rebuild_with(w, options), SF_OK);
    assert_string_equal(told[0].next_after, "72");
    options.floor = "90";
    options.dry_run = false;
    assert_int_equal(rebuild_with(w, options), SF_OK);
    assert_string_equal(world_next(w), "90");
    allocate_ok(world_start(w), &r, "b", PLAN(ISSUE));
    EXPECT_IDS(&r, 90);
    sf_arena_destroy(arena);
}

/* Whole objects that stand under the key of another are as broken as any. */
static void test_objects_under_another_key(void **state)
{
    struct world *w = *state;
    struct sf_arena *arena = sf_arena_new(ARENA);
    struct sf_buf key = {0};
    struct sf_buf body = {0};
    struct sf_list_entry *entries = NULL;
    size_t count = 0;

    allocate_ok(&w->processes[0], &r, "a", PLAN(70));
    call_run(&w->processes[0], &r2,
             &(struct call_spec){
                 .key = "b", .collection_id = 3, .items = &(uint64_t){ISSUE}, .count = 1});
    assert_int_equal(r2.diag.err, SF_OK);
    sf_alloc_state_key((struct sf_collection_ref){{NS}, {3}}, &key);
    assert_int_equal(sf_store_get_wait(w->backend, NULL, sf_buf_view(&key), &body, NULL), SF_OK);
    sf_buf_clear(&key);
    sf_alloc_state_key(one, &key);
    put_any(w, sf_buf_view(&key), sf_buf_view(&body));
    rebuild(w);
    assert_true(told[0].state_found && !told[0].state_whole);
    assert_string_equal(told[0].next_after, "71");
    /* the result of "b" where that of "a" stood: the ids of "a" are not known any more */
    assert_int_equal(sf_store_list_wait(w->backend, NULL,
                                        sf_view_str("id-allocator/replay-success/"),
                                        (struct sf_view){0}, 10, arena, &entries, &count),
                     SF_OK);
    assert_int_equal(count, 2);
    const char *of_b = world_replay(w, "b", arena)->transport_lookup_key;
    for (size_t i = 0; i < 2; i++)
        if (memmem(entries[i].key.ptr, entries[i].key.len, of_b, strlen(of_b)) != NULL) {
            sf_buf_clear(&body);
            assert_int_equal(sf_store_get_wait(w->backend, NULL, entries[i].key, &body, NULL),
                             SF_OK);
            put_any(w, entries[1 - i].key, sf_buf_view(&body));
        }
    harm_state(w, COLL, NULL);
    assert_int_equal(rebuild_with(w, (struct sf_allocator_rebuild_options){.only = one}),
                     SF_INTERNAL);
    /* a bound that lies above nothing new is taken at its word all the same */
    assert_int_equal(
        rebuild_with(w, (struct sf_allocator_rebuild_options){.only = one, .floor = "71"}), SF_OK);
    uint64_t version = world_state(w, COLL, arena)->allocator_state_version;
    assert_int_equal(
        rebuild_with(w, (struct sf_allocator_rebuild_options){.only = one, .floor = "5"}), SF_OK);
    assert_true(told[0].rebuilt && told[0].state_whole);
    assert_string_equal(world_next(w), "71");
    assert_true(world_state(w, COLL, arena)->allocator_state_version > version);
    sf_buf_fini(&key);
    sf_buf_fini(&body);
    sf_arena_destroy(arena);
}

/* A segment that verifies and lists a run of no ids, or one past the last id, tells nothing. */
static void test_segment_with_a_run_that_cannot_be(void **state)
{
    static const uint64_t runs[][2] = {{0, 0}, {7, 0}, {TOP, 2}}; /* first id, count */
    struct world *w = *state;

    for (size_t i = 0; i < SF_ARRAY_LEN(runs); i++) {
        Searchfabric__V1__AllocatorRecoverySegmentObject segment =
            SEARCHFABRIC__V1__ALLOCATOR_RECOVERY_SEGMENT_OBJECT__INIT;
        Searchfabric__V1__AllocatorAppliedEntry entry =
            SEARCHFABRIC__V1__ALLOCATOR_APPLIED_ENTRY__INIT;
        Searchfabric__V1__AllocatorIdRun run = SEARCHFABRIC__V1__ALLOCATOR_ID_RUN__INIT;
        struct sf_buf key = {0}, plain = {0}, body = {0};
        run.first_doc_id = runs[i][0];
        run.count = runs[i][1];
        entry.namespace_id = NS;
        entry.collection_id = COLL;
        entry.runs = (Searchfabric__V1__AllocatorIdRun *[]){&run};
        entry.n_runs = 1;
        segment.attempt_id = (char *)"a";
        segment.entries = (Searchfabric__V1__AllocatorAppliedEntry *[]){&entry};
        segment.n_entries = 1;
        sf_durable_encode(&segment.base, &plain, NULL);
        sf_compress(sf_buf_view(&plain), &body);
        sf_alloc_segment_key(1, &key);
        put_any(w, sf_buf_view(&key), sf_buf_view(&body));
        struct sf_allocator_rebuild_options options = {.only = one, .use_segments = true};
        assert_int_equal(rebuild_with(w, options), SF_INTERNAL);
        assert_string_equal(world_next(w), "");
        options.floor = "5";
        options.dry_run = true;
        assert_int_equal(rebuild_with(w, options), SF_OK);
        assert_string_equal(told[0].next_after, "5");
        sf_buf_fini(&key);
        sf_buf_fini(&plain);
        sf_buf_fini(&body);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_lost_and_broken_state, world_setup, teardown),
        cmocka_unit_test_setup_teardown(test_whole_state_is_left_alone, world_setup, teardown),
        cmocka_unit_test_setup_teardown(test_state_that_lies_below, world_setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_last_id, world_setup, teardown),
        cmocka_unit_test_setup_teardown(test_all_of_them, world_setup, teardown),
        cmocka_unit_test_setup_teardown(test_segments_and_floor, world_setup, teardown),
        cmocka_unit_test_setup_teardown(test_objects_under_another_key, world_setup, teardown),
        cmocka_unit_test_setup_teardown(test_segment_with_a_run_that_cannot_be, world_setup,
                                        teardown),
    };
    return SF_RUN_TESTS("alloc_rebuild", tests);
}
