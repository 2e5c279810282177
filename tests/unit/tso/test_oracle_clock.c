/* The clock on the oracle's axis: the wall clock, and where that was set back, what was given out.
 */
#include "support/proves.h"

#include <stdlib.h>

#include "base/pbjson.h"
#include "contract/descriptor_set.h"
#include "exec/reactor.h"
#include "object/memory_store.h"
#include "tso/tso.h"

#define START_MS INT64_C(1767225600000)
#define MINUTE   INT64_C(60000)

struct rig {
    struct sf_reactors *reactors;
    struct sf_store *store;
    struct sf_attempts attempts;
    struct sf_clock_manual clock;
    struct sf_tso_source *oracle;
};

static void rig_open(struct rig *rig)
{
    const struct sf_oracle_options options = {.store = rig->store,
                                              .loop = sf_reactors_loop(rig->reactors, 0),
                                              .clock = &rig->clock.base,
                                              .attempts = &rig->attempts,
                                              .window_ms = 3000};
    assert_int_equal(sf_oracle_open(&options, NULL, NULL, &rig->oracle), SF_OK);
}

static int64_t next_ms(struct rig *rig)
{
    struct sf_tso first;

    assert_int_equal(sf_tso_get_wait(rig->oracle, NULL, 1, &first), SF_OK);
    return (int64_t)sf_tso_physical_ms(first);
}

/* Asserts that the clock lies within `slack_ms` below the timestamp given out next. */
static void assert_near(struct rig *rig, int64_t slack_ms)
{
    int64_t now = sf_clock_unix_ms(sf_oracle_clock(rig->oracle));
    int64_t next = next_ms(rig);

    assert_true(now <= next);
    assert_true(now >= next - slack_ms);
}

static void test_never_behind_what_was_given_out(void **state)
{
    struct rig rig = {0};
    (void)state;
    assert_int_equal(sf_pbjson_register(sf_view_bytes(sf_contract_descriptor_set,
                                                      sf_contract_descriptor_set_size)),
                     SF_OK);
    sf_clock_manual_init(&rig.clock, START_MS, 0);
    sf_attempts_init(&rig.attempts, 7);
    rig.store = sf_memory_store_new(NULL);
    assert_int_equal(sf_reactors_start(1, sf_clock_system(), NULL, &rig.reactors), SF_OK);
    rig_open(&rig);

    /* in step with a clock that is right */
    assert_int_equal(next_ms(&rig), START_MS);
    assert_int_equal(sf_clock_unix_ms(sf_oracle_clock(rig.oracle)), START_MS);
    sf_clock_manual_advance(&rig.clock, 10 * MINUTE);
    assert_int_equal(sf_clock_unix_ms(sf_oracle_clock(rig.oracle)), START_MS + 10 * MINUTE);
    assert_near(&rig, 0);

    /* set back by two hours while serving, then idle for an hour */
    rig.clock.unix_ms -= 120 * MINUTE;
    assert_near(&rig, 0);
    sf_clock_manual_advance(&rig.clock, 60 * MINUTE);
    assert_near(&rig, 0);

    /* the same over a restart: it continues at the end of the old window */
    sf_tso_source_destroy(rig.oracle);
    rig_open(&rig);
    assert_true(sf_clock_unix_ms(sf_oracle_clock(rig.oracle)) >= START_MS + 40 * MINUTE);
    assert_near(&rig, 0);

    /* and once the clock has caught up, it leads again; durations are the machine's all along */
    sf_clock_manual_advance(&rig.clock, 240 * MINUTE);
    assert_int_equal(sf_clock_unix_ms(sf_oracle_clock(rig.oracle)), rig.clock.unix_ms);
    assert_near(&rig, 0);
    assert_int_equal(sf_clock_mono_ns(sf_oracle_clock(rig.oracle)), rig.clock.mono_ns);
    assert_int_equal(sf_clock_mono_ms(sf_oracle_clock(rig.oracle)),
                     sf_clock_mono_ms(&rig.clock.base));

    sf_tso_source_destroy(rig.oracle);
    sf_reactors_stop(rig.reactors);
    sf_store_destroy(rig.store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_never_behind_what_was_given_out)};
    return SF_RUN_TESTS("oracle_clock", tests);
}
