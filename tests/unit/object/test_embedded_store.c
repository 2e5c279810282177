/* What only the embedded store promises: durability over a reopen, etags that never come back, one
 * owner, completion on a loop. */
#include "support/proves.h"
#include "support/tempdir.h"

#include <semaphore.h>
#include <stdio.h>

#include "base/clock.h"
#include "exec/reactor.h"
#include "object/store.h"

static char folder[SF_TEMPDIR_BYTES];

static int setup(void **state)
{
    (void)state;
    sf_tempdir_make(folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sf_tempdir_remove(folder);
    return 0;
}

static struct sf_store *open_store(void)
{
    struct sf_store *store = NULL;

    assert_int_equal(sf_embedded_store_open(folder, NULL, &store), SF_OK);
    assert_true(store->exclusive);
    return store;
}

static struct sf_etag put_any(struct sf_store *store, const char *key, const char *body)
{
    struct sf_put put = {.key = sf_view_str(key), .body = sf_view_str(body)};

    assert_int_equal(sf_store_put_wait(store, NULL, &put), SF_OK);
    return put.etag;
}

static void test_objects_and_etags_survive_reopen(void **state)
{
    struct sf_store *store = open_store();
    struct sf_etag first = put_any(store, "k", "1");
    struct sf_etag read;
    struct sf_buf body = {0};

    (void)state;
    sf_store_destroy(store);
    store = open_store();
    assert_int_equal(sf_store_get_wait(store, NULL, sf_view_str("k"), &body, &read), SF_OK);
    assert_string_equal(read.text, first.text);
    assert_memory_equal(body.data, "1", 1);
    sf_buf_fini(&body);
    struct sf_put put = {
        .key = sf_view_str("k"), .body = sf_view_str("2"), .cond = SF_PUT_MATCH, .match = first};
    assert_int_equal(sf_store_put_wait(store, NULL, &put), SF_OK);
    sf_store_destroy(store);
}

static void test_etag_never_comes_back(void **state)
{
    struct sf_store *store = open_store();
    struct sf_etag first = put_any(store, "k", "same bytes");

    (void)state;
    assert_int_equal(sf_store_remove_wait(store, NULL, sf_view_str("k")), SF_OK);
    sf_store_destroy(store);
    store = open_store();
    struct sf_etag again = put_any(store, "k", "same bytes");
    assert_string_not_equal(first.text, again.text);
    sf_store_destroy(store);
}

static void test_second_owner_is_refused(void **state)
{
    struct sf_store *store = open_store();
    struct sf_store *second = NULL;
    struct sf_diag diag;

    (void)state;
    sf_diag_init(&diag);
    assert_int_equal(sf_embedded_store_open(folder, &diag, &second), SF_ERR_LOCKED);
    sf_store_destroy(store);
}

static void test_unwritable_folder_is_an_error(void **state)
{
    struct sf_store *store = NULL;
    struct sf_diag diag;

    (void)state;
    sf_diag_init(&diag);
    assert_int_equal(sf_embedded_store_open("/proc/no-such-folder/store", &diag, &store),
                     SF_ERR_IO);
    assert_int_equal(diag.err, SF_ERR_IO);
}

struct on_loop {
    struct sf_batch batch;
    struct sf_get get;
    struct sf_put put;
    struct sf_store *store;
    struct sf_loop *loop;
    sem_t done;
    bool right_thread;
};

static void get_done(struct sf_get *get)
{
    struct on_loop *o = SF_CONTAINER_OF(get, struct on_loop, get);

    o->right_thread = o->right_thread && sf_loop_is_current(o->loop);
    (void)sem_post(&o->done);
}

static void batch_done(struct sf_batch *batch)
{
    struct on_loop *o = SF_CONTAINER_OF(batch, struct on_loop, batch);

    o->right_thread = sf_loop_is_current(o->loop);
    o->get = (struct sf_get){.key = o->put.key, .loop = o->loop, .done = get_done};
    sf_store_get(o->store, &o->get);
}

static void test_completions_run_on_the_loop(void **state)
{
    struct sf_reactors *reactors = NULL;
    struct on_loop o = {.store = open_store()};

    (void)state;
    assert_int_equal(sf_reactors_start(1, sf_clock_system(), NULL, &reactors), SF_OK);
    o.loop = sf_reactors_loop(reactors, 0);
    assert_int_equal(sem_init(&o.done, 0, 0), 0);
    o.put = (struct sf_put){.key = sf_view_str("k"), .body = sf_view_str("v")};
    o.batch = (struct sf_batch){.puts = &o.put, .count = 1, .loop = o.loop, .done = batch_done};
    sf_store_submit(o.store, &o.batch);
    while (sem_wait(&o.done) != 0) {
    }
    assert_true(o.right_thread);
    assert_int_equal(o.put.err, SF_OK);
    assert_int_equal(o.get.err, SF_OK);
    assert_string_equal(o.get.etag.text, o.put.etag.text);
    sf_buf_fini(&o.get.body);
    (void)sem_destroy(&o.done);
    sf_reactors_stop(reactors);
    sf_store_destroy(o.store);
}

#define EMBEDDED(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EMBEDDED(test_objects_and_etags_survive_reopen), EMBEDDED(test_etag_never_comes_back),
        EMBEDDED(test_second_owner_is_refused), EMBEDDED(test_unwritable_folder_is_an_error),
        EMBEDDED(test_completions_run_on_the_loop)};

    return SF_RUN_TESTS("embedded_store", tests);
}
