#include "commit/commit_marks.h"

#include <string.h>

#include "base/rng.h"
#include "support/proves.h"

#define N 200

struct model {
    uint64_t ts[N];
    uint8_t touched[N];
    bool finished[N];
    unsigned count;
    uint64_t local_max;
    uint64_t applied[3];
    uint64_t safe;
    uint8_t enabled;
};

/* The rule as the protocol states it, by brute force. */
static void advance(struct model *m)
{
    uint64_t safe = UINT64_MAX;
    for (unsigned k = 0; k < 3; k++) {
        uint64_t at = m->local_max;
        for (unsigned i = 0; i < m->count; i++) {
            if (!m->finished[i] && (m->touched[i] & (1u << k)) != 0 && m->ts[i] - 1 < at)
                at = m->ts[i] - 1;
        }
        m->applied[k] = at > m->applied[k] ? at : m->applied[k];
        if ((m->enabled & (1u << k)) != 0 && m->applied[k] < safe)
            safe = m->applied[k];
    }
    if (safe != UINT64_MAX && safe > m->safe)
        m->safe = safe;
}

static void test_against_model(void **state)
{
    struct sf_rng rng;
    (void)state;
    SF_PROVES("COORD-5.1-06");
    sf_rng_init(&rng, 17);
    for (unsigned round = 0; round < 100; round++) {
        struct sf_marks marks;
        struct sf_marks_intent intents[N];
        struct model m = {0};
        struct sf_frontier zero = {0};
        sf_marks_init(&marks, &zero, 0);
        m.enabled = (uint8_t)(1 + sf_rng_below(&rng, 7));
        sf_marks_enable(&marks, m.enabled);
        while (m.count < N) {
            if (m.count == 0 || sf_rng_below(&rng, 2) == 0) {
                uint8_t touched = (uint8_t)(1 + sf_rng_below(&rng, 7)) & m.enabled;
                if (touched == 0)
                    continue;
                m.local_max += 1 + sf_rng_below(&rng, 5);
                m.ts[m.count] = m.local_max;
                m.touched[m.count] = touched;
                sf_marks_open(&marks, &intents[m.count], m.local_max, touched);
                m.count++;
            } else {
                unsigned i = (unsigned)sf_rng_below(&rng, m.count);
                if (m.finished[i])
                    continue;
                m.finished[i] = true;
                sf_marks_finish(&marks, &intents[i]);
            }
            advance(&m);
            uint64_t safe = UINT64_MAX;
            for (unsigned k = 0; k < 3; k++) {
                if ((m.enabled & (1u << k)) == 0)
                    continue;
                assert_true(marks.frontier.applied_ts[k] == m.applied[k]);
                safe = m.applied[k] < safe ? m.applied[k] : safe;
            }
            assert_true(sf_frontier_safe_ts(&marks.frontier) == safe); /* min of the enabled */
            assert_true(marks.safe_ts == m.safe);
            assert_true(marks.frontier.local_max_commit_ts == m.local_max);
        }
        for (unsigned i = 0; i < m.count; i++) {
            if (!m.finished[i])
                sf_marks_finish(&marks, &intents[i]);
        }
        for (unsigned i = 0; i < m.count; i++)
            assert_int_equal(intents[i].queues, 0); /* may be freed now */
        assert_true(marks.safe_ts == m.local_max);  /* nothing open: the lane's newest */
    }
}

/* A modality that no open write touches advances with the lane; one that is open does not. */
static void test_untouched_advances(void **state)
{
    struct sf_marks marks;
    struct sf_marks_intent a;
    struct sf_marks_intent b;
    struct sf_frontier zero = {0};
    (void)state;
    sf_marks_init(&marks, &zero, 0);
    sf_marks_enable(&marks, 3);
    sf_marks_open(&marks, &a, 10, 1); /* metadata */
    assert_true(marks.frontier.applied_ts[0] == 9);
    assert_true(marks.frontier.applied_ts[1] == 10);
    sf_marks_open(&marks, &b, 20, 2); /* semantic */
    assert_true(marks.frontier.applied_ts[0] == 9);
    assert_true(marks.frontier.applied_ts[1] == 19);
    assert_true(marks.safe_ts == 9);
    sf_marks_finish(&marks, &b);
    assert_true(marks.frontier.applied_ts[1] == 20);
    assert_true(marks.safe_ts == 9);
    sf_marks_finish(&marks, &a);
    assert_true(marks.safe_ts == 20);
}

/* A modality that joins never takes safe_ts back. */
static void test_enable_never_lowers(void **state)
{
    struct sf_marks marks;
    struct sf_frontier from = {.local_max_commit_ts = 50, .applied_ts = {50, 0, 0}, .enabled = 1};
    (void)state;
    sf_marks_init(&marks, &from, 50);
    sf_marks_enable(&marks, 7);
    assert_true(marks.safe_ts == 50);
    assert_true(marks.frontier.applied_ts[1] >= 50 && marks.frontier.applied_ts[2] >= 50);
    sf_marks_enable(&marks, 1);
    assert_true(marks.safe_ts == 50);
}

/* A modality that leaves while a write of it is open takes nothing out of the promise. */
static void test_open_write_of_a_disabled_modality(void **state)
{
    struct sf_marks marks;
    struct sf_marks_intent a;
    struct sf_marks_intent b;
    struct sf_frontier zero = {0};
    (void)state;
    sf_marks_init(&marks, &zero, 0);
    sf_marks_enable(&marks, 3);
    sf_marks_open(&marks, &a, 10, 2); /* semantic */
    sf_marks_enable(&marks, 1);       /* metadata alone from here on */
    sf_marks_open(&marks, &b, 20, 1);
    sf_marks_finish(&marks, &b);
    assert_true(marks.safe_ts == 9);
    sf_marks_finish(&marks, &a);
    assert_true(marks.safe_ts == 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_model),
        cmocka_unit_test(test_untouched_advances),
        cmocka_unit_test(test_enable_never_lowers),
        cmocka_unit_test(test_open_write_of_a_disabled_modality),
    };
    return SF_RUN_TESTS("commit_marks", tests);
}
