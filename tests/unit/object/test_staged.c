/*
 * The staged runner over a scripted backend: unknown outcomes are read back over the attempt's own
 * bytes, 409 is no loss, a certain answer after an unknown one stays unknown, stages run in turn.
 */
#include "support/proves.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "hand_loop.h"
#include "object/memory_store.h"
#include "object/staged.h"

#define MOST_STEPS 16

/* What the backend does with the next put of the script's key. */
enum effect {
    APPLY,   /* for real; the answer is the real one unless the step names another */
    DROP,    /* nothing */
    FOREIGN, /* somebody else's object is put instead */
    REPLACE  /* applied, and then overwritten by somebody else */
};

struct step {
    enum effect effect;
    int answer; /* enum sf_try_result, or -1 for the real one */
};

struct scripted {
    struct sf_staged_backend base;
    struct sf_store *store; /* what stands */
    const struct step *steps;
    size_t step_count;
    size_t next_step; /* the last one repeats */
    char sent[512];   /* keys, in the order they were sent */
    unsigned puts, gets, failing_gets;
    bool hold;                       /* answers wait in held */
    struct sf_try *held[MOST_STEPS]; /* sent and not answered */

    size_t held_count;
    bool dead;
};

static struct hand_loop loop;
static struct scripted backend;
static struct sf_staged *staged;

/* One answer on its way. */
struct answering {
    struct sf_task task;
    struct sf_try *attempt;
};

static void run_answer(struct sf_task *task)
{
    struct answering *a = SF_CONTAINER_OF(task, struct answering, task);
    struct sf_try *attempt = a->attempt;

    free(a);
    attempt->done(attempt);
}

static void answer_later(struct sf_try *attempt)
{
    struct answering *a = sf_calloc(1, sizeof(*a));

    a->attempt = attempt;
    a->task.run = run_answer;
    sf_loop_post(&loop.base, &a->task);
}

static enum sf_try_result put_now(struct sf_view key, struct sf_view body, enum sf_put_cond cond,
                                  const struct sf_etag *match, struct sf_etag *out_etag)
{
    struct sf_put put = {.key = key, .body = body, .cond = cond, .match = *match};

    if (sf_store_put_wait(backend.store, NULL, &put) != SF_OK)
        return SF_TRY_PRECONDITION;
    *out_etag = put.etag;
    return SF_TRY_OK;
}

static void scripted_put(struct sf_staged_backend *base, struct sf_try *attempt)
{
    const struct sf_put *put = attempt->put;
    struct step step = {APPLY, -1};
    struct sf_etag ignored;

    (void)base;
    backend.puts++;
    size_t used = strlen(backend.sent);
    (void)snprintf(backend.sent + used, sizeof(backend.sent) - used, "%.*s ", (int)put->key.len,
                   (const char *)put->key.ptr);
    if (backend.step_count > 0) {
        size_t at =
            backend.next_step < backend.step_count ? backend.next_step : backend.step_count - 1;
        step = backend.steps[at];
        backend.next_step++;
    }
    attempt->result = SF_TRY_AMBIGUOUS;
    if (step.effect == APPLY || step.effect == REPLACE)
        attempt->result = put_now(put->key, put->body, put->cond, &put->match, &attempt->etag);
    if (step.effect == FOREIGN || step.effect == REPLACE)
        (void)put_now(put->key, sf_view_str("somebody else's"), SF_PUT_ANY, &put->match, &ignored);
    if (step.answer >= 0)
        attempt->result = (enum sf_try_result)step.answer;
    if (backend.hold)
        backend.held[backend.held_count++] = attempt;
    else
        answer_later(attempt);
}

static void run_get(struct sf_task *task)
{
    struct sf_get *get = SF_CONTAINER_OF(task, struct sf_get, task);

    get->done(get);
}

static void scripted_get(struct sf_staged_backend *base, struct sf_get *get)
{
    (void)base;
    backend.gets++;
    if (backend.failing_gets > 0) {
        backend.failing_gets--;
        get->err = SF_ERR_UNAVAILABLE;
    } else {
        get->err = sf_store_get_wait(backend.store, NULL, get->key, &get->body, &get->etag);
    }
    get->task.run = run_get;
    sf_loop_post(&loop.base, &get->task);
}

static bool scripted_closed(struct sf_staged_backend *base)
{
    (void)base;
    return backend.dead;
}

static int setup(void **state)
{
    (void)state;
    hand_loop_init(&loop);
    backend = (struct scripted){.base = {.loop = &loop.base,
                                         .put = scripted_put,
                                         .get = scripted_get,
                                         .closed = scripted_closed},
                                .store = sf_memory_store_new_inline()};
    staged = sf_staged_new(&backend.base, 1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sf_staged_destroy(staged);
    sf_store_destroy(backend.store);
    hand_loop_fini(&loop);
    return 0;
}

static unsigned done_count;

static void on_done(struct sf_batch *batch)
{
    (void)batch;
    done_count++;
}

/* Puts "own" at "k" under a script and a condition; returns the result. */
static enum sf_err run_script(enum sf_put_cond cond, const struct step *steps, size_t count)
{
    struct sf_put put = {.key = sf_view_str("k"), .body = sf_view_str("own"), .cond = cond};
    struct sf_batch batch = {.puts = &put, .count = 1, .loop = &loop.base, .done = on_done};

    if (cond == SF_PUT_MATCH) {
        struct sf_put first = {.key = put.key, .body = sf_view_str("before")};
        assert_int_equal(sf_store_put_wait(backend.store, NULL, &first), SF_OK);
        put.match = first.etag;
    }
    backend.steps = steps;
    backend.step_count = count;
    done_count = 0;
    sf_staged_submit(staged, &batch);
    assert_int_equal(done_count, 0);
    hand_loop_run(&loop);
    assert_int_equal(done_count, 1);
    if (put.err == SF_OK)
        assert_true(put.etag.text[0] != '\0');
    return put.err;
}

static void assert_stands(const char *want)
{
    struct sf_buf body = {0};

    assert_int_equal(sf_store_get_wait(backend.store, NULL, sf_view_str("k"), &body, NULL), SF_OK);
    assert_int_equal(body.len, strlen(want));
    assert_memory_equal(body.data, want, body.len);
    sf_buf_fini(&body);
}

#define SCRIPT(cond, ...)                                                                          \
    run_script(cond, (const struct step[]){__VA_ARGS__},                                           \
               sizeof((const struct step[]){__VA_ARGS__}) / sizeof(struct step))

static void test_unknown_but_applied_is_success(void **state)
{
    (void)state;
    assert_int_equal(SCRIPT(SF_PUT_ABSENT, {APPLY, SF_TRY_AMBIGUOUS}), SF_OK);
    assert_int_equal(backend.puts, 1);
}

static void test_unknown_and_not_seen_is_sent_again(void **state)
{
    (void)state;
    assert_int_equal(
        SCRIPT(SF_PUT_MATCH, {DROP, SF_TRY_AMBIGUOUS}, {DROP, SF_TRY_AMBIGUOUS}, {APPLY, -1}),
        SF_OK);
    assert_int_equal(backend.puts, 3);
    assert_stands("own");
}

static void test_412_over_own_object_is_success(void **state)
{
    (void)state;
    assert_int_equal(SCRIPT(SF_PUT_ABSENT, {APPLY, SF_TRY_PRECONDITION}), SF_OK);
    assert_int_equal(backend.puts, 1);
}

static void test_412_over_foreign_object_is_a_loss(void **state)
{
    (void)state;
    assert_int_equal(SCRIPT(SF_PUT_ABSENT, {FOREIGN, SF_TRY_PRECONDITION}), SF_ERR_PRECONDITION);
    assert_int_equal(backend.puts, 1);
    assert_stands("somebody else's");
}

static void test_swap_of_absent_key_is_a_loss(void **state)
{
    struct sf_put put = {.key = sf_view_str("k"),
                         .body = sf_view_str("own"),
                         .cond = SF_PUT_MATCH,
                         .match = {"no such etag"}};
    struct sf_batch batch = {.puts = &put, .count = 1, .loop = &loop.base, .done = on_done};

    (void)state;
    sf_staged_submit(staged, &batch);
    hand_loop_run(&loop);
    assert_int_equal(put.err, SF_ERR_PRECONDITION);
}

/* It may have stood before the other one: the caller must know that it cannot be told. */
static void test_overwritten_since_stays_unknown(void **state)
{
    (void)state;
    assert_int_equal(SCRIPT(SF_PUT_ABSENT, {REPLACE, SF_TRY_AMBIGUOUS}, {APPLY, -1}),
                     SF_ERR_AMBIGUOUS);
    assert_stands("somebody else's");
}

static void test_409_is_retried_and_is_no_loss(void **state)
{
    (void)state;
    assert_int_equal(
        SCRIPT(SF_PUT_ABSENT, {DROP, SF_TRY_CONFLICT}, {DROP, SF_TRY_CONFLICT}, {APPLY, -1}),
        SF_OK);
    assert_int_equal(backend.puts, 3);
    assert_int_equal(backend.gets, 0);
}

static void test_endless_409_ends_as_unavailable(void **state)
{
    (void)state;
    assert_int_equal(SCRIPT(SF_PUT_ABSENT, {DROP, SF_TRY_CONFLICT}), SF_ERR_UNAVAILABLE);
    assert_true(backend.puts > 1 && backend.puts < 20);
}

static void test_unavailable_is_certain_only_without_doubt(void **state)
{
    (void)state;
    assert_int_equal(SCRIPT(SF_PUT_ABSENT, {DROP, SF_TRY_UNAVAILABLE}), SF_ERR_UNAVAILABLE);
    backend.next_step = 0;
    assert_int_equal(SCRIPT(SF_PUT_ABSENT, {DROP, SF_TRY_AMBIGUOUS}, {DROP, SF_TRY_UNAVAILABLE}),
                     SF_ERR_AMBIGUOUS);
    assert_true(loop.now_ms > 0); /* it waited between tries */
}

static void test_endless_doubt_ends_unknown(void **state)
{
    (void)state;
    assert_int_equal(SCRIPT(SF_PUT_MATCH, {DROP, SF_TRY_AMBIGUOUS}), SF_ERR_AMBIGUOUS);
    assert_true(backend.puts < 20);
    assert_stands("before");
}

static void test_lost_swap_answered_with_500_stays_unknown(void **state)
{
    (void)state;
    /* The first answer left doubt, so the loss cannot be told from "applied and overwritten". */
    assert_int_equal(SCRIPT(SF_PUT_MATCH, {FOREIGN, SF_TRY_AMBIGUOUS}, {APPLY, -1}),
                     SF_ERR_AMBIGUOUS);
    assert_stands("somebody else's");
}

static void test_failing_read_back_is_repeated(void **state)
{
    (void)state;
    backend.failing_gets = 2;
    assert_int_equal(SCRIPT(SF_PUT_ABSENT, {APPLY, SF_TRY_AMBIGUOUS}), SF_OK);
    assert_int_equal(backend.puts, 1);
    assert_int_equal(backend.gets, 3);
}

static void test_412_that_cannot_be_read_back_is_unknown(void **state)
{
    (void)state;
    backend.failing_gets = 1000;
    assert_int_equal(SCRIPT(SF_PUT_ABSENT, {FOREIGN, SF_TRY_PRECONDITION}), SF_ERR_AMBIGUOUS);
}

static void test_closed_backend_ends_everything(void **state)
{
    (void)state;
    backend.dead = true;
    assert_int_equal(SCRIPT(SF_PUT_ABSENT, {DROP, SF_TRY_AMBIGUOUS}), SF_ERR_UNAVAILABLE);
    assert_int_equal(backend.puts, 1);
}

static void answer_held(size_t i)
{
    answer_later(backend.held[i]);
    hand_loop_run(&loop);
}

static void test_stages_run_in_turn(void **state)
{
    static const char *const keys[] = {"a0", "b0", "a1", "b1", "a2"};
    struct sf_put puts[5];
    struct sf_batch batch = {.puts = puts, .count = 5, .loop = &loop.base, .done = on_done};
    struct sf_put taken = {.key = sf_view_str("b0"), .body = sf_view_str("x")};

    (void)state;
    assert_int_equal(sf_store_put_wait(backend.store, NULL, &taken), SF_OK);
    for (size_t i = 0; i < 5; i++)
        puts[i] = (struct sf_put){.key = sf_view_str(keys[i]),
                                  .body = sf_view_str(keys[i]),
                                  .cond = SF_PUT_ABSENT,
                                  .stage = (uint32_t)(keys[i][1] - '0'),
                                  .command = (uint32_t)(keys[i][0] - 'a')};
    backend.hold = true;
    done_count = 0;
    sf_staged_submit(staged, &batch);
    hand_loop_run(&loop);
    assert_string_equal(backend.sent, "a0 b0 "); /* a stage is sent at once */
    answer_held(1);
    assert_string_equal(backend.sent, "a0 b0 "); /* and waited for whole */
    answer_held(0);
    assert_string_equal(backend.sent, "a0 b0 a1 "); /* b lost its condition: no b1 */
    answer_held(2);
    assert_string_equal(backend.sent, "a0 b0 a1 a2 ");
    assert_int_equal(done_count, 0);
    answer_held(3);
    assert_int_equal(done_count, 1);
    assert_int_equal(puts[1].err, SF_ERR_PRECONDITION);
    assert_int_equal(puts[3].err, SF_ERR_CANCELLED_STAGE);
    assert_int_equal(puts[0].err | puts[2].err | puts[4].err, SF_OK);
}

static void test_batch_without_anything_to_send_completes(void **state)
{
    struct sf_put puts[2] = {{.key = sf_view_str(""), .body = sf_view_str("x")},
                             {.key = sf_view_str("later"), .body = sf_view_str("x"), .stage = 1}};
    struct sf_batch batch = {.puts = puts, .count = 2, .loop = &loop.base, .done = on_done};

    (void)state;
    done_count = 0;
    sf_staged_submit(staged, &batch);
    hand_loop_run(&loop);
    assert_int_equal(done_count, 1);
    assert_int_equal(puts[0].err, SF_ERR_LIMIT);
    assert_int_equal(puts[1].err, SF_ERR_CANCELLED_STAGE);
    assert_int_equal(backend.puts, 0);
}

#define STAGED(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {STAGED(test_unknown_but_applied_is_success),
                                       STAGED(test_unknown_and_not_seen_is_sent_again),
                                       STAGED(test_412_over_own_object_is_success),
                                       STAGED(test_412_over_foreign_object_is_a_loss),
                                       STAGED(test_swap_of_absent_key_is_a_loss),
                                       STAGED(test_overwritten_since_stays_unknown),
                                       STAGED(test_409_is_retried_and_is_no_loss),
                                       STAGED(test_endless_409_ends_as_unavailable),
                                       STAGED(test_unavailable_is_certain_only_without_doubt),
                                       STAGED(test_endless_doubt_ends_unknown),
                                       STAGED(test_lost_swap_answered_with_500_stays_unknown),
                                       STAGED(test_failing_read_back_is_repeated),
                                       STAGED(test_412_that_cannot_be_read_back_is_unknown),
                                       STAGED(test_closed_backend_ends_everything),
                                       STAGED(test_stages_run_in_turn),
                                       STAGED(test_batch_without_anything_to_send_completes)};

    return SF_RUN_TESTS("staged", tests);
}
