/* What the committer may take for certain without a read: never more than holds. Random writes and
 * looks are compared with a model that knows everything. */
#include "support/proves.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "object/embedded_keys.h"

#define KEYS   200000u /* more than the table of the last writes holds */
#define MERGES 3000u

/* What really stands at a key. */
struct model {
    char text[16];
    uint64_t sequence; /* newest write, 0 = none */
    bool removed;      /* by that write */
};

static struct sf_view key_of(const struct model *m)
{
    return sf_view_str(m->text);
}

static void check_key(const struct sf_embedded_keys *keys, const struct model *m, uint64_t mark,
                      bool was_absent, unsigned *certain)
{
    uint64_t hash = sf_embedded_keys_hash(keys, key_of(m));
    bool absent = m->sequence == 0 || m->removed;

    if (was_absent && sf_embedded_keys_absent(keys, hash, mark)) {
        assert_true(absent);
        (*certain)++;
    }
    if (m->sequence != 0 && sf_embedded_keys_stands(keys, hash, m->sequence))
        assert_false(m->removed);
    if (m->sequence > 1)
        assert_false(sf_embedded_keys_stands(keys, hash, m->sequence - 1));
}

static void test_certain_answers_hold(void **state)
{
    struct sf_embedded_keys *keys = sf_embedded_keys_new();
    struct model *models = sf_calloc(KEYS, sizeof(*models));
    uint64_t sequence = 0;
    unsigned certain = 0;
    struct sf_rng rng;

    (void)state;
    sf_rng_init(&rng, 1);
    for (unsigned i = 0; i < KEYS; i++)
        (void)snprintf(models[i].text, sizeof(models[i].text), "k%u", i);
    for (unsigned merge = 0; merge < MERGES; merge++) {
        struct model *looked = &models[sf_rng_below(&rng, KEYS)];
        bool was_absent = looked->sequence == 0 || looked->removed;
        uint64_t mark = sequence + 1;
        unsigned writes = 1 + (unsigned)sf_rng_below(&rng, 64);
        sf_embedded_keys_begin(keys, writes);
        for (unsigned i = 0; i < writes; i++) {
            struct model *m =
                sf_rng_below(&rng, 32) == 0 ? looked : &models[sf_rng_below(&rng, KEYS)];
            uint64_t hash = sf_embedded_keys_hash(keys, key_of(m));
            uint64_t seen = UINT64_MAX;
            m->sequence = ++sequence;
            m->removed = sf_rng_below(&rng, 4) == 0;
            sf_embedded_keys_note(keys, key_of(m), hash, sequence, m->removed);
            assert_true(sf_embedded_keys_in_merge(keys, key_of(m), hash, &seen));
            assert_int_equal(seen, m->removed ? 0 : sequence);
            check_key(keys, looked, mark, was_absent, &certain);
            check_key(keys, m, mark, false, &certain);
        }
    }
    assert_true(certain > MERGES); /* it does answer */
    free(models);
    sf_embedded_keys_destroy(keys);
}

static void test_a_merge_forgets_the_one_before(void **state)
{
    struct sf_embedded_keys *keys = sf_embedded_keys_new();
    uint64_t hash = sf_embedded_keys_hash(keys, sf_view_str("a"));
    uint64_t seen = 0;

    (void)state;
    sf_embedded_keys_begin(keys, 1);
    assert_false(sf_embedded_keys_in_merge(keys, sf_view_str("a"), hash, &seen));
    sf_embedded_keys_note(keys, sf_view_str("a"), hash, 7, false);
    sf_embedded_keys_begin(keys, 1000);
    assert_false(sf_embedded_keys_in_merge(keys, sf_view_str("a"), hash, &seen));
    assert_true(sf_embedded_keys_stands(keys, hash, 7));
    assert_false(sf_embedded_keys_absent(keys, hash, 7)); /* the look saw up to 6 */
    assert_false(sf_embedded_keys_absent(keys, hash, 0)); /* no look at all */
    sf_embedded_keys_destroy(keys);
}

static void test_old_marks_prove_nothing(void **state)
{
    struct sf_embedded_keys *keys = sf_embedded_keys_new();
    uint64_t hash = sf_embedded_keys_hash(keys, sf_view_str("never written"));
    char text[16];

    (void)state;
    assert_true(sf_embedded_keys_absent(keys, hash, 1));
    for (unsigned i = 1; i <= KEYS; i++) {
        int n = snprintf(text, sizeof(text), "k%u", i);
        struct sf_view key = sf_view_bytes(text, (size_t)n);
        sf_embedded_keys_begin(keys, 1);
        sf_embedded_keys_note(keys, key, sf_embedded_keys_hash(keys, key), i, false);
    }
    assert_false(sf_embedded_keys_absent(keys, hash, 1));
    assert_true(sf_embedded_keys_absent(keys, hash, KEYS + 1));
    sf_embedded_keys_destroy(keys);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_certain_answers_hold),
                                       cmocka_unit_test(test_a_merge_forgets_the_one_before),
                                       cmocka_unit_test(test_old_marks_prove_nothing)};

    return SF_RUN_TESTS("embedded_keys", tests);
}
