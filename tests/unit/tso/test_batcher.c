/* The batching client: exactly the demand that gathered, served in order, by a later request. */
#include "support/proves.h"

#include "base/rng.h"
#include "tso/tso.h"

#define MOST 16

/* ---- a loop run by hand ---- */

static struct sf_task *queue[64];
static size_t queued;
static bool on_loop;

static void hand_post(struct sf_loop *loop, struct sf_task *task)
{
    (void)loop;
    assert_true(queued < SF_ARRAY_LEN(queue));
    queue[queued++] = task;
}

static bool hand_is_current(struct sf_loop *loop)
{
    (void)loop;
    return on_loop;
}

static const struct sf_loop_vtable hand_vtable = {.post = hand_post, .is_current = hand_is_current};
static struct sf_loop loop = {.vtable = &hand_vtable};

static void run_loop(void)
{
    on_loop = true;
    while (queued > 0) {
        struct sf_task *task = queue[0];
        memmove(&queue[0], &queue[1], --queued * sizeof(queue[0]));
        task->run(task);
    }
    on_loop = false;
}

/* ---- a source that answers when told ---- */

static struct sf_tso_request *asked[MOST];
static size_t asked_count;

static void fake_get(struct sf_tso_source *source, struct sf_tso_request *request)
{
    (void)source;
    asked[asked_count++] = request;
}

static const struct sf_tso_source_vtable fake_vtable = {.get = fake_get};
static struct sf_tso_source fake = {.vtable = &fake_vtable};

static void answer(size_t i, enum sf_err err, uint64_t first)
{
    on_loop = true;
    asked[i]->err = err;
    asked[i]->first = (struct sf_tso){first};
    asked[i]->done(asked[i]);
    on_loop = false;
}

/* ---- callers ---- */

static struct sf_tso_request callers[MOST];
static size_t done_order[MOST];
static size_t done_count;

static void caller_done(struct sf_tso_request *request)
{
    done_order[done_count++] = (size_t)(request - callers);
}

static void call(struct sf_tso_source *batcher, size_t i, uint32_t count)
{
    callers[i] = (struct sf_tso_request){.count = count, .loop = &loop, .done = caller_done};
    sf_tso_get(batcher, &callers[i]);
}

static int setup(void **state)
{
    asked_count = 0;
    done_count = 0;
    *state = sf_tso_batcher_new(&fake, &loop);
    return 0;
}

static int teardown(void **state)
{
    sf_tso_source_destroy(*state);
    return 0;
}

static void test_asks_for_what_gathered(void **state)
{
    call(*state, 0, 3);
    run_loop();
    assert_int_equal(asked_count, 1);
    assert_int_equal(asked[0]->count, 3);
    call(*state, 1, 10);
    call(*state, 2, 1);
    call(*state, 3, 5);
    run_loop();
    assert_int_equal(asked_count, 1); /* one under way: they gather */
    assert_int_equal(done_count, 0);
    answer(0, SF_OK, 100);
    assert_int_equal(done_count, 1);
    assert_true(callers[0].first.v == 100);
    assert_int_equal(asked_count, 2);
    assert_int_equal(asked[1]->count, 16);
    answer(1, SF_OK, 1000);
    assert_int_equal(done_count, 4);
    assert_true(callers[1].first.v == 1000);
    assert_true(callers[2].first.v == 1010);
    assert_true(callers[3].first.v == 1011);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(done_order[i], i);
    run_loop();
    assert_int_equal(asked_count, 2); /* nothing waits: nothing is asked for */
}

static void test_demand_above_one_request_is_split(void **state)
{
    call(*state, 0, 1);
    call(*state, 1, SF_LIMIT_TSO_PER_REQUEST);
    call(*state, 2, SF_LIMIT_TSO_PER_REQUEST - 1);
    call(*state, 3, 1);
    call(*state, 4, 1);
    run_loop();
    answer(0, SF_OK, 1);
    assert_int_equal(asked[1]->count, SF_LIMIT_TSO_PER_REQUEST);
    answer(1, SF_OK, 1000000);
    assert_int_equal(asked[2]->count, SF_LIMIT_TSO_PER_REQUEST);
    answer(2, SF_OK, 2000000);
    assert_true(callers[3].first.v == 2000000 + SF_LIMIT_TSO_PER_REQUEST - 1);
    answer(3, SF_OK, 3000000);
    assert_int_equal(done_count, 5);
}

static void test_failure_reaches_exactly_its_askers(void **state)
{
    call(*state, 0, 1);
    call(*state, 1, 1);
    run_loop();
    call(*state, 2, 1);
    run_loop();
    answer(0, SF_BACKEND_UNAVAILABLE, 0);
    assert_int_equal(callers[0].err, SF_BACKEND_UNAVAILABLE);
    answer(1, SF_OK, 50);
    assert_int_equal(callers[1].err, SF_OK);
    assert_true(callers[1].first.v == 50);
    assert_true(callers[2].first.v == 51);
}

#define LANES  1000
#define ROUNDS 20

struct lane {
    struct sf_tso_request request;
    bool waiting;
};

static struct lane lanes[LANES];
static uint64_t last_given; /* highest timestamp handed out so far */
static uint64_t range_first, range_end;

static void lane_done(struct sf_tso_request *request)
{
    struct lane *lane = SF_CONTAINER_OF(request, struct lane, request);

    assert_int_equal(request->err, SF_OK);
    assert_true(request->first.v > last_given);
    assert_true(request->first.v >= range_first);
    assert_true(request->first.v + request->count <= range_end);
    last_given = request->first.v + request->count - 1;
    lane->waiting = false;
}

/* A thousand lanes at once, in random amounts: what is handed out strictly increases over all of
 * them and lies in a range that the source returned; requests are few. */
static void test_many_lanes_share_few_increasing_ranges(void **state)
{
    struct sf_rng rng;
    size_t demands = 0;
    uint64_t next = 1;

    SF_PROVES("COORD-4.2-12");
    sf_rng_init(&rng, 5);
    last_given = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < LANES; i++) {
            if (lanes[i].waiting || sf_rng_below(&rng, 2) == 0)
                continue;
            lanes[i].waiting = true;
            lanes[i].request = (struct sf_tso_request){
                .count = 1 + (uint32_t)sf_rng_below(&rng, 20), .loop = &loop, .done = lane_done};
            on_loop = true; /* lanes live on the batcher's loop */
            sf_tso_get(*state, &lanes[i].request);
            on_loop = false;
            demands++;
        }
        if (asked_count == 0)
            continue;
        struct sf_tso_request *request = asked[--asked_count];
        assert_int_equal(asked_count, 0); /* one under way at a time */
        next += 1 + sf_rng_below(&rng, 1000);
        range_first = next;
        range_end = next + request->count;
        next = range_end;
        on_loop = true;
        request->err = SF_OK;
        request->first = (struct sf_tso){range_first};
        request->done(request);
        on_loop = false;
    }
    while (asked_count > 0) {
        struct sf_tso_request *request = asked[--asked_count];
        range_first = next;
        range_end = next += request->count;
        request->err = SF_OK;
        request->first = (struct sf_tso){range_first};
        on_loop = true;
        request->done(request);
        on_loop = false;
    }
    assert_true(demands > LANES);
}

static void assert_metric(struct sf_metrics *metrics, const char *line)
{
    struct sf_buf text = {0};

    sf_metrics_render(metrics, &text);
    sf_buf_append(&text, "", 1);
    if (strstr((const char *)text.data, line) == NULL)
        fail_msg("no line \"%s\" in:\n%s", line, (const char *)text.data);
    sf_buf_fini(&text);
}

static void test_meter_shows_size_time_and_waits(void **state)
{
    struct sf_metrics *metrics = sf_metrics_new();
    struct sf_clock_manual clock;

    sf_clock_manual_init(&clock, 0, 0);
    sf_tso_batcher_meter(*state, metrics, &clock.base);
    call(*state, 0, 3);
    run_loop();
    call(*state, 1, 4);
    call(*state, 2, 5);
    run_loop();
    sf_clock_manual_advance(&clock, 40);
    answer(0, SF_OK, 100);
    answer(1, SF_BACKEND_UNAVAILABLE, 0);
    assert_metric(metrics, "searchfabric_tso_batches_total 2\n");
    assert_metric(metrics, "searchfabric_tso_batch_timestamps_total 12\n");
    assert_metric(metrics, "searchfabric_tso_batch_size 9\n");
    assert_metric(metrics, "searchfabric_tso_failed_batches_total 1\n");
    assert_metric(metrics, "searchfabric_tso_range_exhausted_total 2\n");
    assert_metric(metrics, "searchfabric_tso_rtt_ms_bucket{le=\"25\"} 1\n");
    assert_metric(metrics, "searchfabric_tso_rtt_ms_bucket{le=\"50\"} 2\n");
    sf_metrics_destroy(metrics);
}

#define BATCHER(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {BATCHER(test_asks_for_what_gathered),
                                       BATCHER(test_demand_above_one_request_is_split),
                                       BATCHER(test_failure_reaches_exactly_its_askers),
                                       BATCHER(test_many_lanes_share_few_increasing_ranges),
                                       BATCHER(test_meter_shows_size_time_and_waits)};

    return SF_RUN_TESTS("batcher", tests);
}
