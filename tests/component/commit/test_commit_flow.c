#include "component/commit/commit_world.h"

#include <stdlib.h>

#define DURABLE SEARCHFABRIC__V1__BATCH_GATE__BATCH_GATE_DURABLE
#define VISIBLE SEARCHFABRIC__V1__BATCH_GATE__BATCH_GATE_VISIBLE

static void test_one_row(void **state)
{
    struct world *w = world_new();
    struct sf_buf rows = {0};
    struct sf_rows_head head;
    (void)state;
    assert_int_equal(world_open(w), SF_OK);
    struct entry entry = {.doc_id = 11, .body = "{\"a\":1}"};
    struct outcome out = world_wait(w, world_submit(w, &(struct batch_spec){.collection_id = 1,
                                                                            .batch_id = "b1",
                                                                            .entries = &entry,
                                                                            .count = 1,
                                                                            .visible = true}));
    assert_true(out.admitted);
    assert_int_equal(out.gate, VISIBLE);
    assert_int_equal(out.slices, 1);
    assert_int_equal(out.manifest_version, 1);
    assert_true(out.commit_ts[0] == WORLD_TSO0 + 1000);
    assert_true(out.safe_ts == out.commit_ts[0]);
    assert_int_equal(world_rows(w, 1, &rows, &head), 1);
    assert_string_equal((const char *)rows.data, "11={\"a\":1}\n");
    assert_int_equal(head.manifest_version, 1);
    assert_true(head.safe_ts.v == out.commit_ts[0]);
    sf_buf_fini(&rows);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_row)};
    return SF_RUN_TESTS("commit_flow", tests);
}
