/* The start-up probe refuses every kind of store that would lose data, and says why. */
#include "support/proves.h"

#include "object/memory_store.h"

/* How the store under test breaks its promises. */
enum vice {
    IGNORES_CONDITIONS,
    IGNORES_MATCH,
    MATCH_CREATES,
    REFUSES_MATCH,
    BOTH_RACERS_WIN,
    BOTH_RACERS_LOSE,
    ETAG_STANDS_STILL,
    LISTS_LATE,
    LISTS_OUT_OF_ORDER,
    READS_NOTHING,
    FORGETS_PUTS,
    IS_DOWN
};

struct vicious {
    struct sf_store base;
    struct sf_store *inner;
    enum vice vice;
};

static struct vicious store;

static bool about_race(const struct sf_put *put)
{
    return put->key.len > 4 && memcmp(put->key.ptr + put->key.len - 4, "race", 4) == 0;
}

static void before_put(struct sf_put *put)
{
    struct sf_buf body = {0};

    switch (store.vice) {
    case IGNORES_CONDITIONS:
        put->cond = SF_PUT_ANY;
        break;
    case IGNORES_MATCH:
        if (put->cond == SF_PUT_MATCH)
            put->cond = SF_PUT_ANY;
        break;
    case MATCH_CREATES:
        if (put->cond == SF_PUT_MATCH &&
            sf_store_get_wait(store.inner, NULL, put->key, &body, NULL) == SF_ERR_NOT_FOUND)
            put->cond = SF_PUT_ANY;
        sf_buf_fini(&body);
        break;
    case REFUSES_MATCH:
        put->match = (struct sf_etag){"quoted"};
        break;
    case BOTH_RACERS_WIN:
        if (about_race(put))
            put->cond = SF_PUT_ANY;
        break;
    default:
        break;
    }
}

static void after_put(struct sf_put *put)
{
    if (store.vice == BOTH_RACERS_LOSE && about_race(put))
        put->err = SF_ERR_PRECONDITION;
    if (store.vice == ETAG_STANDS_STILL)
        put->etag = (struct sf_etag){"1"};
    if (store.vice == IS_DOWN)
        put->err = SF_ERR_UNAVAILABLE;
    if (store.vice == FORGETS_PUTS && put->err == SF_OK)
        (void)!sf_store_remove_wait(store.inner, NULL, put->key);
}

static void vicious_submit(struct sf_store *base, struct sf_batch *batch)
{
    (void)base;
    for (size_t i = 0; i < batch->count; i++) {
        struct sf_put *put = &batch->puts[i];
        before_put(put);
        put->err = sf_store_put_wait(store.inner, NULL, put);
        after_put(put);
    }
    batch->done(batch);
}

static void vicious_get(struct sf_store *base, struct sf_get *get)
{
    (void)base;
    if (store.vice == READS_NOTHING) {
        get->err = SF_ERR_NOT_FOUND;
        get->done(get);
    } else {
        sf_store_get(store.inner, get);
    }
}

static enum sf_err vicious_list(struct sf_store *base, struct sf_sched *sched,
                                struct sf_view prefix, struct sf_view start_after, size_t limit,
                                struct sf_arena *arena, struct sf_list_entry **out_entries,
                                size_t *out_count)
{
    (void)base;
    enum sf_err err = sf_store_list_wait(store.inner, sched, prefix, start_after, limit, arena,
                                         out_entries, out_count);
    if (store.vice == LISTS_LATE && *out_count > 0)
        (*out_count)--;
    if (store.vice == LISTS_OUT_OF_ORDER && *out_count > 1) {
        struct sf_list_entry first = (*out_entries)[0];
        (*out_entries)[0] = (*out_entries)[1];
        (*out_entries)[1] = first;
    }
    return err;
}

static enum sf_err vicious_remove(struct sf_store *base, struct sf_sched *sched, struct sf_view key)
{
    (void)base;
    return sf_store_remove_wait(store.inner, sched, key);
}

static const struct sf_store_vtable vicious_vtable = {
    .submit = vicious_submit, .get = vicious_get, .list = vicious_list, .remove = vicious_remove};

static void test_every_vice_is_refused_with_its_reason(void **state)
{
    static const struct {
        enum vice vice;
        const char *reason;
    } cases[] = {
        {IGNORES_CONDITIONS, "a second create-only put"},
        {IGNORES_MATCH, "stale etag"},
        {MATCH_CREATES, "a swap of an absent key"},
        {REFUSES_MATCH, "a swap with the current etag must succeed"},
        {BOTH_RACERS_WIN, "exactly one"},
        {BOTH_RACERS_LOSE, "exactly one"},
        {ETAG_STANDS_STILL, "a swap with the current etag must succeed"},
        {LISTS_LATE, "a list must show"},
        {LISTS_OUT_OF_ORDER, "a list must show"},
        {READS_NOTHING, "a read must see"},
        {FORGETS_PUTS, "a second create-only put"},
        {IS_DOWN, "SF_ERR_UNAVAILABLE"},
    };

    (void)state;
    for (size_t i = 0; i < SF_ARRAY_LEN(cases); i++) {
        struct sf_diag diag;
        store = (struct vicious){.base = {.vtable = &vicious_vtable},
                                 .inner = sf_memory_store_new_inline(),
                                 .vice = cases[i].vice};
        sf_diag_init(&diag);
        assert_int_equal(sf_store_probe(&store.base, NULL, &diag), SF_ERR_CONFIG);
        if (strstr(diag.message, cases[i].reason) == NULL)
            fail_msg("%s: not about \"%s\"", diag.message, cases[i].reason);
        sf_store_destroy(store.inner);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_vice_is_refused_with_its_reason)};

    return SF_RUN_TESTS("probe", tests);
}
