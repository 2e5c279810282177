/*
 * The built-in oracle over a memory store, with a clock moved by hand. The oracle runs on a real
 * loop; the test's thread asks and waits. `gate` stands between oracle and store: it can hold a
 * swap back, or apply it and call its outcome unknown.
 */
#include "support/proves.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/pbjson.h"
#include "contract/descriptor_set.h"
#include "exec/reactor.h"
#include "object/memory_store.h"
#include "searchfabric/v1/durable.pb-c.h"
#include "tso/tso.h"

#define START_MS INT64_C(1767225600000)
#define DAY_MS   INT64_C(86400000)

/* ---- a store that does as it is told ---- */

enum gate_mode { GATE_OPEN, GATE_HOLD, GATE_APPLY_UNKNOWN, GATE_DROP_UNKNOWN, GATE_REFUSE };

struct gate {
    struct sf_store base;
    struct sf_store *inner;
    _Atomic int mode;
    struct sf_batch *held;
    sem_t arrived; /* a batch is held */
};

static struct gate gate;

static void run_done(struct sf_task *task)
{
    struct sf_batch *batch = SF_CONTAINER_OF(task, struct sf_batch, task);

    batch->done(batch);
}

static void answer(struct sf_batch *batch, enum sf_err err)
{
    batch->puts[0].err = err;
    batch->task.run = run_done;
    sf_loop_post(batch->loop, &batch->task);
}

static void gate_submit(struct sf_store *store_, struct sf_batch *batch)
{
    (void)store_;
    if (batch->loop == NULL) { /* the waiting put of an open */
        sf_store_submit(gate.inner, batch);
        return;
    }
    switch (atomic_load(&gate.mode)) {
    case GATE_HOLD:
        gate.held = batch;
        (void)sem_post(&gate.arrived);
        break;
    case GATE_APPLY_UNKNOWN: {
        struct sf_put copy = batch->puts[0];
        atomic_store(&gate.mode, GATE_OPEN);
        SF_ASSERT(sf_store_put_wait(gate.inner, NULL, &copy) == SF_OK);
        answer(batch, SF_ERR_AMBIGUOUS);
        break;
    }
    case GATE_DROP_UNKNOWN:
        atomic_store(&gate.mode, GATE_OPEN);
        answer(batch, SF_ERR_AMBIGUOUS);
        break;
    case GATE_REFUSE:
        answer(batch, SF_ERR_UNAVAILABLE);
        break;
    default:
        sf_store_submit(gate.inner, batch);
        break;
    }
}

static void gate_get(struct sf_store *store_, struct sf_get *get)
{
    (void)store_;
    sf_store_get(gate.inner, get);
}

static const struct sf_store_vtable gate_vtable = {.submit = gate_submit, .get = gate_get};

/* ---- the world of a test ---- */

static struct sf_clock_manual hand_clock;
static struct sf_reactors *reactors;
static struct sf_attempts attempts;
static struct sf_store *store;

static int setup(void **state)
{
    (void)state;
    sf_clock_manual_init(&hand_clock, START_MS, 0);
    sf_attempts_init(&attempts, 7);
    store = sf_memory_store_new(NULL);
    gate = (struct gate){.base = {.vtable = &gate_vtable}, .inner = store};
    if (sem_init(&gate.arrived, 0, 0) != 0)
        return -1;
    return sf_reactors_start(1, sf_clock_system(), NULL, &reactors) == SF_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    sf_reactors_stop(reactors);
    sf_store_destroy(store);
    (void)sem_destroy(&gate.arrived);
    return 0;
}

static enum sf_err open_with(struct sf_store *over, bool accept_jump, struct sf_tso_source **out)
{
    const struct sf_oracle_options options = {.store = over,
                                              .loop = sf_reactors_loop(reactors, 0),
                                              .clock = &hand_clock.base,
                                              .attempts = &attempts,
                                              .window_ms = 3000,
                                              .accept_clock_jump = accept_jump};
    struct sf_diag diag;

    sf_diag_init(&diag);
    enum sf_err err = sf_oracle_open(&options, NULL, &diag, out);
    assert_int_equal(diag.err == SF_ERR_CONFIG, err == SF_ERR_CONFIG);
    return err;
}

static struct sf_tso_source *open_oracle(void)
{
    struct sf_tso_source *source = NULL;

    assert_int_equal(open_with(store, false, &source), SF_OK);
    return source;
}

static uint64_t get(struct sf_tso_source *source, uint32_t count)
{
    struct sf_tso first;

    assert_int_equal(sf_tso_get_wait(source, NULL, count, &first), SF_OK);
    return first.v;
}

static enum sf_err get_err(struct sf_tso_source *source)
{
    struct sf_tso first;

    return sf_tso_get_wait(source, NULL, 1, &first);
}

static void read_window(uint64_t *out_end, uint64_t *out_epoch)
{
    struct sf_arena *arena = sf_arena_new(1u << 16);
    ProtobufCMessage *message = NULL;

    assert_int_equal(sf_durable_read_wait(store, NULL, sf_view_str("tso/window.json"),
                                          &searchfabric__v1__tso_window__descriptor, arena, NULL,
                                          &message, NULL),
                     SF_OK);
    const Searchfabric__V1__TsoWindow *w = (const void *)message;
    *out_end = w->window_end_ts;
    *out_epoch = w->tso_epoch;
    sf_arena_destroy(arena);
}

static void test_window_stands_before_it_is_used(void **state)
{
    struct sf_tso_source *source = open_oracle();
    uint64_t end;
    uint64_t epoch;

    (void)state;
    read_window(&end, &epoch);
    assert_true(end == (uint64_t)(START_MS + 3000) << 18);
    assert_true(epoch == 1);
    uint64_t ts = get(source, 1);
    assert_true(ts == (uint64_t)START_MS << 18);
    assert_true(get(source, 10) == ts + 1);
    assert_true(get(source, 1) == ts + 11);
    sf_clock_manual_advance(&hand_clock, 5);
    assert_true(get(source, 1) == (uint64_t)(START_MS + 5) << 18);
    sf_tso_source_destroy(source);
}

static void test_monotonic_over_restart(void **state)
{
    struct sf_tso_source *source = open_oracle();
    uint64_t end;
    uint64_t epoch;

    (void)state;
    uint64_t before = get(source, 100);
    sf_tso_source_destroy(source);
    source = open_oracle();
    read_window(&end, &epoch);
    assert_true(epoch == 2);
    uint64_t after = get(source, 1);
    assert_true(after == (uint64_t)(START_MS + 3000) << 18);
    assert_true(after > before + 99);
    sf_tso_source_destroy(source);
    sf_clock_manual_advance(&hand_clock, 60000);
    source = open_oracle();
    assert_true(get(source, 1) == (uint64_t)(START_MS + 60000) << 18);
    sf_tso_source_destroy(source);
}

static void test_monotonic_over_clock_steps_back(void **state)
{
    struct sf_tso_source *source = open_oracle();

    (void)state;
    uint64_t last = get(source, 1);
    hand_clock.unix_ms -= 3600000;
    for (int i = 0; i < 10; i++) {
        uint64_t next = get(source, 3);
        assert_true(next == last + 1);
        last = next + 2;
    }
    sf_tso_source_destroy(source);
    hand_clock.unix_ms -= 400 * DAY_MS;
    source = open_oracle();
    assert_true(get(source, 1) > last);
    sf_tso_source_destroy(source);
}

/* A clock set back by an hour: who waits for a timestamp half a second ahead waits a second, and
 * after two hours the clock is there again. */
static void test_goes_on_while_the_clock_lies_behind(void **state)
{
    struct sf_tso_source *source = open_oracle();

    (void)state;
    assert_true(get(source, 1) == (uint64_t)START_MS << 18);
    hand_clock.unix_ms -= 3600000;
    sf_clock_manual_advance(&hand_clock, 1000);
    assert_true(get(source, 1) == (uint64_t)(START_MS + 500) << 18);
    sf_clock_manual_advance(&hand_clock, 2 * 3600000 - 1000);
    assert_true(get(source, 1) == (uint64_t)(START_MS + 3600000) << 18);
    assert_true(hand_clock.unix_ms == START_MS + 3600000);
    sf_tso_source_destroy(source);
}

/* One millisecond holds 2^18 timestamps; a burst beyond runs on into the next ones. */
static void test_more_than_a_millisecond_holds(void **state)
{
    struct sf_tso_source *source = open_oracle();
    uint64_t want = (uint64_t)START_MS << 18;

    (void)state;
    for (int i = 0; i < 9; i++) {
        assert_true(get(source, 65536) == want);
        want += 65536;
    }
    assert_true(want >> 18 == (uint64_t)START_MS + 2);
    sf_clock_manual_advance(&hand_clock, 1);
    assert_true(get(source, 1) == want);
    sf_tso_source_destroy(source);
}

/* The clock passes the window by far: it is moved before anything is given out. */
static void test_window_moves_with_use(void **state)
{
    struct sf_tso_source *source = open_oracle();
    uint64_t end;
    uint64_t epoch;

    (void)state;
    for (int i = 0; i < 20; i++) {
        sf_clock_manual_advance(&hand_clock, i % 2 == 0 ? 700 : 10000);
        uint64_t ts = get(source, 1);
        assert_true(ts >= (uint64_t)hand_clock.unix_ms << 18);
        read_window(&end, &epoch);
        assert_true(ts < end);
        assert_true(epoch == 1);
    }
    sf_tso_source_destroy(source);
}

static void test_day_jump_needs_consent(void **state)
{
    struct sf_tso_source *source = open_oracle();

    (void)state;
    sf_tso_source_destroy(source);
    hand_clock.unix_ms += DAY_MS + 3001;
    assert_int_equal(open_with(store, false, &source), SF_ERR_CONFIG);
    assert_int_equal(open_with(store, true, &source), SF_OK);
    assert_true(get(source, 1) == (uint64_t)hand_clock.unix_ms << 18);
    sf_tso_source_destroy(source);
    hand_clock.unix_ms += DAY_MS + 3000; /* a day past the end exactly is no jump */
    source = open_oracle();
    sf_tso_source_destroy(source);
}

static void test_day_jump_while_serving_is_refused_until_it_is_over(void **state)
{
    struct sf_tso_source *source = open_oracle();

    (void)state;
    uint64_t before = get(source, 1);
    hand_clock.unix_ms += 2 * DAY_MS;
    assert_int_equal(get_err(source), SF_BACKEND_UNAVAILABLE);
    hand_clock.unix_ms -= 2 * DAY_MS;
    assert_true(get(source, 1) == before + 1);
    sf_clock_manual_advance(&hand_clock, 3 * DAY_MS); /* idle for days is no jump */
    assert_true(get(source, 1) == (uint64_t)hand_clock.unix_ms << 18);
    sf_tso_source_destroy(source);
}

static void test_lost_swap_stops_for_good(void **state)
{
    struct sf_tso_source *old = open_oracle();
    uint64_t last_of_old = get(old, 1);
    struct sf_tso_source *new = open_oracle();

    (void)state;
    uint64_t first_of_new = get(new, 1);
    assert_true(first_of_new > last_of_old);
    assert_true(get(old, 1) < first_of_new); /* its own window is its own still */
    assert_true(sf_oracle_is_serving(old));
    sf_clock_manual_advance(&hand_clock, 4000);
    assert_int_equal(get_err(old), SF_BACKEND_UNAVAILABLE);
    assert_false(sf_oracle_is_serving(old));
    assert_true(sf_oracle_is_serving(new));
    assert_int_equal(get_err(old), SF_BACKEND_UNAVAILABLE);
    assert_true(get(new, 1) > first_of_new);
    sf_tso_source_destroy(new);
    assert_int_equal(get_err(old), SF_BACKEND_UNAVAILABLE);
    sf_tso_source_destroy(old);
}

struct async {
    struct sf_tso_request request;
    sem_t done;
};

static void async_done(struct sf_tso_request *request)
{
    (void)sem_post(&SF_CONTAINER_OF(request, struct async, request)->done);
}

static void async_get(struct sf_tso_source *source, struct async *a, uint32_t count)
{
    *a = (struct async){.request = {.count = count, .done = async_done}};
    assert_int_equal(sem_init(&a->done, 0, 0), 0);
    sf_tso_get(source, &a->request);
}

static void async_wait(struct async *a)
{
    while (sem_wait(&a->done) != 0) {
    }
    (void)sem_destroy(&a->done);
}

/* While the store is slow the window that stands is served; what does not fit waits for it. */
static void test_slow_store_holds_back_only_what_needs_it(void **state)
{
    struct sf_tso_source *source = NULL;
    struct async beyond;

    (void)state;
    assert_int_equal(open_with(&gate.base, false, &source), SF_OK);
    atomic_store(&gate.mode, GATE_HOLD);
    sf_clock_manual_advance(&hand_clock, 2000);
    uint64_t inside = get(source, 1); /* past half of the window: a swap starts behind it */
    while (sem_wait(&gate.arrived) != 0) {
    }
    assert_true(get(source, 1) == inside + 1);
    sf_clock_manual_advance(&hand_clock, 5000);
    async_get(source, &beyond, 1);
    assert_int_equal(sem_trywait(&beyond.done), -1);
    atomic_store(&gate.mode, GATE_OPEN);
    sf_store_submit(store, gate.held);
    async_wait(&beyond);
    assert_int_equal(beyond.request.err, SF_OK);
    assert_true(beyond.request.first.v >= (uint64_t)hand_clock.unix_ms << 18);
    sf_tso_source_destroy(source);
}

static void test_unknown_outcome_is_looked_up(void **state)
{
    static const enum gate_mode modes[] = {GATE_APPLY_UNKNOWN, GATE_DROP_UNKNOWN};

    (void)state;
    for (size_t i = 0; i < SF_ARRAY_LEN(modes); i++) {
        struct sf_tso_source *source = NULL;
        uint64_t end;
        uint64_t epoch;
        atomic_store(&gate.mode, GATE_OPEN);
        assert_int_equal(open_with(&gate.base, false, &source), SF_OK);
        atomic_store(&gate.mode, modes[i]);
        sf_clock_manual_advance(&hand_clock, 10000);
        uint64_t ts = get(source, 1);
        read_window(&end, &epoch);
        assert_true(ts < end);
        sf_tso_source_destroy(source);
    }
}

static void test_refused_swap_fails_the_request_and_not_the_oracle(void **state)
{
    struct sf_tso_source *source = NULL;

    (void)state;
    assert_int_equal(open_with(&gate.base, false, &source), SF_OK);
    atomic_store(&gate.mode, GATE_REFUSE);
    sf_clock_manual_advance(&hand_clock, 10000);
    assert_int_equal(get_err(source), SF_BACKEND_UNAVAILABLE);
    atomic_store(&gate.mode, GATE_OPEN);
    assert_true(get(source, 1) == (uint64_t)hand_clock.unix_ms << 18);
    sf_tso_source_destroy(source);
}

static void test_damaged_window_is_refused(void **state)
{
    struct sf_put put = {.key = sf_view_str("tso/window.json"), .body = sf_view_str("{}")};
    struct sf_tso_source *source = NULL;

    (void)state;
    assert_int_equal(sf_store_put_wait(store, NULL, &put), SF_OK);
    assert_int_equal(open_with(store, false, &source), SF_ERR_CORRUPT);
}

#define ASKERS 4
#define ASKS   200

struct asker {
    pthread_t thread;
    struct sf_tso_source *source;
    uint32_t id;
    struct range {
        uint64_t first, count;
    } got[ASKS];
};

static void *ask(void *arg)
{
    struct asker *a = arg;
    uint64_t last = 0;

    for (uint32_t i = 0; i < ASKS; i++) {
        struct sf_tso first;
        uint32_t count = 1 + (a->id * 131 + i * 17) % 1000;
        enum sf_err err = sf_tso_get_wait(a->source, NULL, count, &first);
        SF_ASSERT(err == SF_OK && first.v > last);
        last = first.v + count - 1;
        a->got[i] = (struct range){first.v, count};
    }
    return NULL;
}

static int by_first(const void *a, const void *b)
{
    const struct range *x = a;
    const struct range *y = b;

    return (x->first > y->first) - (x->first < y->first);
}

static void test_concurrent_requests_never_share(void **state)
{
    static struct asker askers[ASKERS];
    static struct range all[ASKERS * ASKS];
    struct sf_tso_source *oracle = open_oracle();
    struct sf_tso_source *batcher = sf_tso_batcher_new(oracle, sf_reactors_loop(reactors, 0));

    (void)state;
    for (uint32_t i = 0; i < ASKERS; i++) {
        askers[i].source = i % 2 == 0 ? oracle : batcher;
        askers[i].id = i;
        assert_int_equal(pthread_create(&askers[i].thread, NULL, ask, &askers[i]), 0);
    }
    for (size_t i = 0; i < ASKERS; i++) {
        assert_int_equal(pthread_join(askers[i].thread, NULL), 0);
        memcpy(&all[i * ASKS], askers[i].got, sizeof(askers[i].got));
    }
    qsort(all, ASKERS * ASKS, sizeof(all[0]), by_first);
    for (size_t i = 1; i < ASKERS * ASKS; i++)
        assert_true(all[i - 1].first + all[i - 1].count <= all[i].first);
    sf_tso_source_destroy(oracle); /* waits for its loop: the batcher is idle by then */
    sf_tso_source_destroy(batcher);
}

static int register_contract(void **state)
{
    (void)state;
    return sf_pbjson_register(
               sf_view_bytes(sf_contract_descriptor_set, sf_contract_descriptor_set_size)) == SF_OK
               ? 0
               : -1;
}

#define ORACLE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ORACLE(test_window_stands_before_it_is_used),
        ORACLE(test_monotonic_over_restart),
        ORACLE(test_monotonic_over_clock_steps_back),
        ORACLE(test_goes_on_while_the_clock_lies_behind),
        ORACLE(test_more_than_a_millisecond_holds),
        ORACLE(test_window_moves_with_use),
        ORACLE(test_day_jump_needs_consent),
        ORACLE(test_day_jump_while_serving_is_refused_until_it_is_over),
        ORACLE(test_lost_swap_stops_for_good),
        ORACLE(test_slow_store_holds_back_only_what_needs_it),
        ORACLE(test_unknown_outcome_is_looked_up),
        ORACLE(test_refused_swap_fails_the_request_and_not_the_oracle),
        ORACLE(test_damaged_window_is_refused),
        ORACLE(test_concurrent_requests_never_share)};

    return SF_RUN_TESTS_WITH("oracle", tests, register_contract, NULL);
}
