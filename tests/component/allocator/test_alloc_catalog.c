/* What the allocator asks of the catalog, and when. */
#include "component/allocator/alloc_world.h"

#include <stdio.h>
#include <stdlib.h>

static struct result r; /* of the running test */
static struct result r2;

static int setup(void **state)
{
    return world_setup(state);
}

static int teardown(void **state)
{
    result_fini(&r);
    result_fini(&r2);
    r = (struct result){0};
    r2 = (struct result){0};
    return world_teardown(state);
}

static void test_admission_reads(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-4.2-01", "ALLOC-4.1-11", "ALLOC-7.1-07", "ALLOC-4.1-12", "ALLOC-2.1-11",
              "ALLOC-4.1-01", "ALLOC-4.2-03");

    allocate_ok(p, &r, "a", PLAN(ISSUE));
    EXPECT_IDS(&r, 0);
    allocate_ok(p, &r, "b", PLAN(ISSUE));
    assert_int_equal(w->ccs_reads, 2); /* one for every fresh request, confirmed the second time */
    assert_int_equal(w->ccs_not_modified, 1);
    w->facts.etag = "etag-2";
    w->facts.token = "tok-2";
    allocate_ok(p, &r, "c", PLAN(ISSUE));
    assert_string_equal(r.token, "tok-2");
    assert_int_equal(w->ccs_not_modified, 1);
    w->facts.binding_revision = 2;        /* the other half of the validator */
    allocate_ok(p, &r, "d", PLAN(ISSUE)); /* a name bound anew selects no other state */
    EXPECT_IDS(&r, 3);
    assert_int_equal(w->ccs_not_modified, 1);
    allocate_ok(p, &r, "e", PLAN(ISSUE));
    assert_int_equal(w->ccs_not_modified, 2);
    /* a snapshot without validator serves once and is asked for again */
    w->facts.etag = "";
    allocate_ok(p, &r, "f", PLAN(ISSUE));
    allocate_ok(p, &r, "g", PLAN(ISSUE));
    w->facts.token = "tok-3";
    allocate_ok(p, &r, "h", PLAN(ISSUE));
    assert_string_equal(r.token, "tok-3");
    assert_int_equal(w->ccs_not_modified, 2);
    assert_int_equal(w->ccs_reads, 8);
}

static void test_catalog_gone(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-4.1-13", "ALLOC-4.2-04", "ALLOC-2.1-04");

    allocate_ok(p, &r, "a", PLAN(ISSUE));
    w->facts.down = true; /* rich local state, warm facts: still not admitted */
    allocate(p, &r2, "b", PLAN(ISSUE));
    expect_err(&r2, SF_CATALOG_UNAVAILABLE);
    expect_detail(&r2, "catalog_unavailable_reason", "admission_facts_unavailable");
    allocate(p, &r2, "a", PLAN(ISSUE));
    expect_same(&r, &r2);
    w->facts.down = false;
    w->facts.lifecycle = 2;
    w->facts.etag = "etag-2";
    allocate(p, &r2, "b", PLAN(ISSUE));
    expect_err(&r2, SF_RESOURCE_NOT_FOUND);
    world_kill(p);
    p = world_start(w);
    allocate(p, &r2, "a", PLAN(ISSUE));
    expect_same(&r, &r2);
}

static void test_drop_race(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    SF_PROVES("ALLOC-4.1-14");
    struct result many[40] = {{0}};
    unsigned admitted = 0;

    /* a stream of requests, a few at a time; the collection is dropped while some are under way */
    for (int i = 0; i < 40; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "k%d", i);
        call_start(p, &many[i],
                   &(struct call_spec){.key = key, .items = &(uint64_t){ISSUE}, .count = 1});
        if (i % 4 == 3) {
            w->facts.hold = true;
            manual_loop_run(&w->loop); /* the read is asked for */
            if (i == 19) {
                w->facts.lifecycle = 2;
                w->facts.etag = "etag-dropped";
            }
            world_ccs_release(w); /* and answered with the facts of now */
            manual_loop_run(&w->loop);
        }
    }
    for (int i = 0; i < 40; i++) {
        world_finish(w, &many[i]);
        if (i < 16)
            expect_err(&many[i], SF_OK);
        else
            expect_err(&many[i], SF_RESOURCE_NOT_FOUND);
        admitted += many[i].diag.err == SF_OK;
        result_fini(&many[i]);
    }
    assert_int_equal(admitted, 16);
    assert_string_equal(world_next(w), "16");
}

static void test_one_admission_read_for_a_group(void **state)
{
    struct world *w = *state;
    struct process *p = &w->processes[0];
    enum { N = 32 };
    struct result *many = calloc(N, sizeof(*many));
    assert_non_null(many);

    allocate_ok(p, &r, "first", PLAN(ISSUE));
    script_store_reset_counts(w->script);
    unsigned reads = w->ccs_reads;
    for (int i = 0; i < N; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "k%d", i);
        call_start(p, &many[i],
                   &(struct call_spec){.key = key, .items = &(uint64_t){ISSUE}, .count = 1});
    }
    for (int i = 0; i < N; i++) {
        world_finish(w, &many[i]);
        assert_int_equal(many[i].diag.err, SF_OK);
        assert_int_equal(many[i].ids[0], i + 1); /* in the order of arrival */
    }
    assert_int_equal(w->ccs_reads, reads + 1);
    assert_int_equal(script_store_counts(w->script).state_puts, 1);
    assert_int_equal(script_store_counts(w->script).replay_puts, N);
    for (int i = 0; i < N; i++)
        result_fini(&many[i]);
    free(many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_admission_reads, setup, teardown),
        cmocka_unit_test_setup_teardown(test_catalog_gone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_drop_race, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_admission_read_for_a_group, setup, teardown),
    };
    return SF_RUN_TESTS("alloc_catalog", tests);
}
