#include "commit/commit_barrier.h"

#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "support/proves.h"

#define METADATA 1
#define SEMANTIC 2
#define AUX      4

static void fill(struct sf_barrier_record *record, unsigned n, uint64_t epoch, uint8_t touched)
{
    *record = (struct sf_barrier_record){
        .commit_ts = 100 + n, .dispatch_number = n, .coordinator_epoch = epoch, .touched = touched};
    snprintf(record->write_intent_id, sizeof(record->write_intent_id), "%064u", n);
}

static struct sf_barrier_completion done(const struct sf_barrier_record *record, uint8_t modalities,
                                         uint64_t seq)
{
    return (struct sf_barrier_completion){.write_intent_id = record->write_intent_id,
                                          .commit_ts = record->commit_ts,
                                          .dispatch_number = record->dispatch_number,
                                          .coordinator_epoch = record->coordinator_epoch,
                                          .modalities = modalities,
                                          .anchor = {.stream = 0, .epoch = 1, .seq = seq}};
}

static void test_one_record(void **state)
{
    struct sf_barrier barrier;
    struct sf_barrier_record a;
    struct sf_barrier_record again;
    (void)state;
    SF_PROVES("COORD-5.4-01");
    sf_barrier_init(&barrier, 3);
    fill(&a, 1, 3, METADATA);
    fill(&again, 1, 3, METADATA);
    assert_int_equal(sf_barrier_register(&barrier, &a), SF_BARRIER_ACCEPTED);
    assert_int_equal(sf_barrier_register(&barrier, &again), SF_BARRIER_DUPLICATE);
    assert_int_equal(sf_map_count(barrier.open), 1);
    fill(&again, 2, 2, METADATA); /* of an older leader */
    assert_int_equal(sf_barrier_register(&barrier, &again), SF_BARRIER_STALE_EPOCH);
    assert_int_equal(sf_map_count(barrier.open), 1);
    sf_barrier_forget(&barrier, &again); /* not the record that is open */
    assert_int_equal(sf_map_count(barrier.open), 1);
    sf_barrier_forget(&barrier, &a);
    assert_int_equal(sf_map_count(barrier.open), 0);
    sf_barrier_fini(&barrier);
}

static void test_completion_rules(void **state)
{
    struct sf_barrier barrier;
    struct sf_barrier_record a;
    struct sf_barrier_record *out = NULL;
    (void)state;
    sf_barrier_init(&barrier, 3);
    fill(&a, 1, 3, METADATA | SEMANTIC);
    assert_int_equal(sf_barrier_register(&barrier, &a), SF_BARRIER_ACCEPTED);
    struct sf_barrier_completion c = done(&a, METADATA | AUX, 7);
    c.coordinator_epoch = 2; /* a zombie's */
    assert_int_equal(sf_barrier_complete(&barrier, &c, &out), SF_BARRIER_STALE_EPOCH);
    c.coordinator_epoch = 4;
    assert_int_equal(sf_barrier_complete(&barrier, &c, &out), SF_BARRIER_STALE_EPOCH);
    c = done(&a, METADATA, 7);
    c.commit_ts++;
    assert_int_equal(sf_barrier_complete(&barrier, &c, &out), SF_BARRIER_DUPLICATE);
    c = done(&a, METADATA, 7);
    c.dispatch_number++;
    assert_int_equal(sf_barrier_complete(&barrier, &c, &out), SF_BARRIER_DUPLICATE);
    c = done(&a, AUX, 7); /* touches nothing of it */
    assert_int_equal(sf_barrier_complete(&barrier, &c, &out), SF_BARRIER_DUPLICATE);
    assert_int_equal(a.completed, 0);
    c = done(&a, METADATA | AUX, 7);
    assert_int_equal(sf_barrier_complete(&barrier, &c, &out), SF_BARRIER_ACCEPTED);
    assert_ptr_equal(out, &a);
    assert_int_equal(a.completed, METADATA);
    assert_int_equal(a.anchors[0].seq, 7);
    c = done(&a, METADATA, 9); /* the repeat changes nothing */
    assert_int_equal(sf_barrier_complete(&barrier, &c, &out), SF_BARRIER_DUPLICATE);
    assert_int_equal(a.anchors[0].seq, 7);
    c = done(&a, SEMANTIC, 8);
    assert_int_equal(sf_barrier_complete(&barrier, &c, &out), SF_BARRIER_ACCEPTED);
    assert_int_equal(a.completed, a.touched);
    sf_barrier_forget(&barrier, &a);
    assert_int_equal(sf_barrier_complete(&barrier, &c, &out), SF_BARRIER_DUPLICATE);
    sf_barrier_fini(&barrier);
}

/* Completions duplicated, reordered, of other epochs and dispatches: each intent becomes durable
 * exactly once, and only when each modality it touches was reported. */
static void test_random_reports(void **state)
{
    enum { N = 40 };
    struct sf_rng rng;
    (void)state;
    SF_PROVES("COORD-5.4-08");
    sf_rng_init(&rng, 11);
    for (unsigned round = 0; round < 200; round++) {
        struct sf_barrier barrier;
        struct sf_barrier_record records[N];
        uint8_t reported[N] = {0};
        unsigned durable[N] = {0};
        unsigned left = N;
        sf_barrier_init(&barrier, 5);
        for (unsigned i = 0; i < N; i++) {
            fill(&records[i], i, 5, (uint8_t)(1 + sf_rng_below(&rng, 7)));
            assert_int_equal(sf_barrier_register(&barrier, &records[i]), SF_BARRIER_ACCEPTED);
        }
        while (left > 0) {
            unsigned i = (unsigned)sf_rng_below(&rng, N);
            uint8_t bit = (uint8_t)(1u << sf_rng_below(&rng, 3));
            struct sf_barrier_record *out = NULL;
            struct sf_barrier_completion c = done(&records[i], bit, i);
            bool counts = true;
            switch (sf_rng_below(&rng, 6)) {
            case 0:
                c.coordinator_epoch = 4;
                counts = false;
                break;
            case 1:
                c.dispatch_number += 1000;
                counts = false;
                break;
            default:
                break;
            }
            uint8_t fresh = (uint8_t)(bit & records[i].touched & ~reported[i]);
            enum sf_barrier_result result = sf_barrier_complete(&barrier, &c, &out);
            assert_true((result == SF_BARRIER_ACCEPTED) == (counts && fresh != 0));
            if (result != SF_BARRIER_ACCEPTED)
                continue;
            reported[i] |= fresh;
            if (out->completed == out->touched) {
                durable[i]++;
                left--;
            }
        }
        for (unsigned i = 0; i < N; i++)
            assert_int_equal(durable[i], 1);
        sf_barrier_fini(&barrier);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_record),
        cmocka_unit_test(test_completion_rules),
        cmocka_unit_test(test_random_reports),
    };
    return SF_RUN_TESTS("commit_barrier", tests);
}
