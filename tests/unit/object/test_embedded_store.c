/* What only the embedded store promises: durability over a reopen, etags that never come back, one
 * owner, completion on a loop. */
#include "support/proves.h"
#include "support/tempdir.h"

#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
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

#define BIG_PUTS  4
#define BIG_BYTES ((size_t)20 << 20)

struct big {
    struct sf_batch batch;
    struct sf_put put;
    sem_t *done;
    char key[16];
};

static void big_done(struct sf_batch *batch)
{
    (void)sem_post(SF_CONTAINER_OF(batch, struct big, batch)->done);
}

/* More than one write may carry is split, oldest first; all of it stands. */
static void test_queue_larger_than_a_merge(void **state)
{
    struct sf_store *store = open_store();
    uint8_t *body = sf_calloc(1, BIG_BYTES);
    struct big bigs[BIG_PUTS];
    sem_t done;

    (void)state;
    assert_int_equal(sem_init(&done, 0, 0), 0);
    for (size_t i = 0; i < BIG_PUTS; i++) {
        struct big *b = &bigs[i];
        (void)snprintf(b->key, sizeof(b->key), "big/%zu", i);
        b->done = &done;
        b->put = (struct sf_put){.key = sf_view_str(b->key),
                                 .body = sf_view_bytes(body, BIG_BYTES),
                                 .cond = SF_PUT_ABSENT};
        b->batch = (struct sf_batch){.puts = &b->put, .count = 1, .done = big_done};
        sf_store_submit(store, &b->batch);
    }
    for (size_t i = 0; i < BIG_PUTS; i++) {
        while (sem_wait(&done) != 0) {
        }
    }
    assert_true(sf_embedded_store_syncs(store) >= 2);
    for (size_t i = 0; i < BIG_PUTS; i++) {
        struct sf_buf read = {0};
        assert_int_equal(bigs[i].put.err, SF_OK);
        assert_int_equal(sf_store_get_wait(store, NULL, bigs[i].put.key, &read, NULL), SF_OK);
        assert_int_equal(read.len, BIG_BYTES);
        sf_buf_fini(&read);
    }
    (void)sem_destroy(&done);
    free(body);
    sf_store_destroy(store);
}

/* Runs this program anew in `role` (see main) on the folder, so that the store's threads are its
 * own; `out_fd` is its standard output (NULL: inherited). */
static pid_t spawn(const char *role, int *out_fd)
{
    char *argv[] = {"test_embedded_store", (char *)(uintptr_t)role, folder, NULL};
    posix_spawn_file_actions_t actions;
    int fds[2] = {-1, -1};
    pid_t child = 0;

    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    if (out_fd != NULL) {
        assert_int_equal(pipe(fds), 0);
        assert_int_equal(posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO), 0);
        assert_int_equal(posix_spawn_file_actions_addclose(&actions, fds[0]), 0);
        assert_int_equal(posix_spawn_file_actions_addclose(&actions, fds[1]), 0);
    }
    assert_int_equal(posix_spawn(&child, "/proc/self/exe", &actions, NULL, argv, environ), 0);
    (void)posix_spawn_file_actions_destroy(&actions);
    if (out_fd != NULL) {
        (void)close(fds[1]);
        *out_fd = fds[0];
    }
    return child;
}

/* A process that is killed with -9 at any point has lost nothing that it was told is durable. */
static void write_until_killed(void)
{
    struct sf_store *store = open_store();

    for (unsigned i = 0;; i++) {
        char key[32];
        (void)snprintf(key, sizeof(key), "k/%06u", i);
        struct sf_put put = {
            .key = sf_view_str(key), .body = sf_view_str(key), .cond = SF_PUT_ABSENT};
        if (sf_store_put_wait(store, NULL, &put) != SF_OK ||
            write(STDOUT_FILENO, &i, sizeof(i)) != sizeof(i))
            _exit(1);
    }
}

static void test_kill_loses_nothing_acknowledged(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 3; round++) {
        unsigned last = 0;
        int fd = -1;
        sf_tempdir_remove(folder);
        pid_t child = spawn("write-until-killed", &fd);
        while (last < 20 + 37 * round)
            assert_int_equal(read(fd, &last, sizeof(last)), sizeof(last));
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        while (read(fd, &last, sizeof(last)) == sizeof(last)) {
        }
        (void)close(fd);
        struct sf_store *store = open_store();
        for (unsigned i = 0; i <= last; i++) {
            struct sf_buf body = {0};
            char key[32];
            (void)snprintf(key, sizeof(key), "k/%06u", i);
            assert_int_equal(sf_store_get_wait(store, NULL, sf_view_str(key), &body, NULL), SF_OK);
            assert_true(sf_view_equal(sf_buf_view(&body), sf_view_str(key)));
            sf_buf_fini(&body);
        }
        sf_store_destroy(store);
    }
}

/* The disk refuses to grow a file: the put in hand is in doubt, later ones are refused for certain,
 * what stood stands. */
static int write_into_a_full_disk(void)
{
    struct sf_store *store = open_store();
    static uint8_t big[1u << 20];
    const struct rlimit limit = {2u << 20, 2u << 20};
    struct sf_put put = {.key = sf_view_str("small"), .body = sf_view_str("stands")};
    struct sf_buf body = {0};
    enum sf_err err = SF_OK;

    sf_log_set_fd(-1);
    if (sf_store_put_wait(store, NULL, &put) != SF_OK)
        return 2;
    (void)signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
        return 3;
    for (unsigned i = 0; i < 10 && err == SF_OK; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "big/%u", i);
        put = (struct sf_put){.key = sf_view_str(key), .body = sf_view_bytes(big, sizeof(big))};
        err = sf_store_put_wait(store, NULL, &put);
    }
    if (err != SF_ERR_AMBIGUOUS)
        return 4;
    put = (struct sf_put){.key = sf_view_str("later"), .body = sf_view_str("x")};
    if (sf_store_put_wait(store, NULL, &put) != SF_ERR_UNAVAILABLE)
        return 5;
    if (sf_store_remove_wait(store, NULL, sf_view_str("small")) != SF_ERR_UNAVAILABLE)
        return 6;
    if (sf_store_get_wait(store, NULL, sf_view_str("small"), &body, NULL) != SF_OK)
        return 7;
    return 0;
}

static void test_failed_write_is_in_doubt_and_stops_the_store(void **state)
{
    struct sf_buf body = {0};
    int status = 0;

    (void)state;
    pid_t child = spawn("write-into-a-full-disk", NULL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    struct sf_store *store = open_store();
    assert_int_equal(sf_store_get_wait(store, NULL, sf_view_str("small"), &body, NULL), SF_OK);
    sf_buf_fini(&body);
    assert_int_equal(sf_store_get_wait(store, NULL, sf_view_str("later"), &body, NULL),
                     SF_ERR_NOT_FOUND);
    sf_buf_fini(&body);
    sf_store_destroy(store);
}

/* Looks a key up in memory; the mark of a look that found nothing. */
static uint64_t look(struct sf_store *store, const char *key)
{
    struct sf_get get = {.key = sf_view_str(key)};

    assert_true(sf_store_get_cached(store, &get));
    assert_int_equal(get.err, SF_ERR_NOT_FOUND);
    assert_true(get.absent_mark != 0);
    return get.absent_mark;
}

static enum sf_err create(struct sf_store *store, const char *key, uint64_t mark)
{
    struct sf_put put = {.key = sf_view_str(key),
                         .body = sf_view_str("1"),
                         .cond = SF_PUT_ABSENT,
                         .absent_mark = mark};

    return sf_store_put_wait(store, NULL, &put);
}

static void test_reads_from_memory(void **state)
{
    struct sf_store *store = open_store();
    struct sf_etag etag = put_any(store, "k", "body");
    struct sf_get get = {.key = sf_view_str("k")};

    (void)state;
    assert_true(sf_store_get_cached(store, &get));
    assert_int_equal(get.err, SF_OK);
    assert_string_equal(get.etag.text, etag.text);
    assert_true(sf_view_equal(sf_buf_view(&get.body), sf_view_str("body")));
    assert_int_equal(get.absent_mark, 0);
    sf_buf_fini(&get.body);
    (void)look(store, "other");
    sf_store_destroy(store);
}

/* A create-only put with the mark of a look stays create-only, whatever came in between. */
static void test_absent_mark_never_overrules_the_condition(void **state)
{
    struct sf_store *store = open_store();
    uint64_t mark = look(store, "k");

    (void)state;
    assert_int_equal(create(store, "k", mark), SF_OK);
    assert_int_equal(create(store, "k", mark), SF_ERR_PRECONDITION);
    assert_int_equal(create(store, "k", 0), SF_ERR_PRECONDITION);
    assert_int_equal(sf_store_remove_wait(store, NULL, sf_view_str("k")), SF_OK);
    assert_int_equal(create(store, "k", mark), SF_OK);
    sf_store_destroy(store);
    store = open_store();
    assert_int_equal(create(store, "k", 0), SF_ERR_PRECONDITION);
    sf_store_destroy(store);
}

/* Two creates of one key in one batch, both with a mark: one stands. A swap follows what the batch
 * did before it. */
static void test_one_batch_sees_its_own_puts(void **state)
{
    struct sf_store *store = open_store();
    struct sf_etag stale = put_any(store, "swapped", "1");
    uint64_t mark = look(store, "k");
    struct sf_put puts[] = {
        {.key = sf_view_str("k"), .cond = SF_PUT_ABSENT, .absent_mark = mark},
        {.key = sf_view_str("k"), .cond = SF_PUT_ABSENT, .absent_mark = mark, .command = 1},
        {.key = sf_view_str("swapped"), .cond = SF_PUT_MATCH, .match = stale, .command = 2},
        {.key = sf_view_str("swapped"), .cond = SF_PUT_MATCH, .match = stale, .command = 3}};
    struct sf_batch batch = {.puts = puts, .count = SF_ARRAY_LEN(puts)};
    struct sf_etag read;
    struct sf_buf body = {0};

    (void)state;
    sf_store_submit_wait(store, NULL, &batch);
    assert_int_equal(puts[0].err, SF_OK);
    assert_int_equal(puts[1].err, SF_ERR_PRECONDITION);
    assert_int_equal(puts[2].err, SF_OK);
    assert_int_equal(puts[3].err, SF_ERR_PRECONDITION);
    puts[0] = (struct sf_put){.key = sf_view_str("last"), .body = sf_view_str("first")};
    puts[1] = (struct sf_put){.key = sf_view_str("last"), .body = sf_view_str("second")};
    batch.count = 2;
    sf_store_submit_wait(store, NULL, &batch);
    assert_int_equal(sf_store_get_wait(store, NULL, sf_view_str("last"), &body, &read), SF_OK);
    assert_true(sf_view_equal(sf_buf_view(&body), sf_view_str("second")));
    assert_string_equal(read.text, puts[1].etag.text);
    sf_buf_fini(&body);
    sf_store_destroy(store);
}

#define EMBEDDED(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(int argc, char **argv)
{
    if (argc == 3) {
        (void)snprintf(folder, sizeof(folder), "%s", argv[2]);
        if (strcmp(argv[1], "write-into-a-full-disk") == 0)
            _exit(write_into_a_full_disk());
        write_until_killed();
    }

    const struct CMUnitTest tests[] = {EMBEDDED(test_objects_and_etags_survive_reopen),
                                       EMBEDDED(test_etag_never_comes_back),
                                       EMBEDDED(test_second_owner_is_refused),
                                       EMBEDDED(test_unwritable_folder_is_an_error),
                                       EMBEDDED(test_completions_run_on_the_loop),
                                       EMBEDDED(test_queue_larger_than_a_merge),
                                       EMBEDDED(test_kill_loses_nothing_acknowledged),
                                       EMBEDDED(test_reads_from_memory),
                                       EMBEDDED(test_absent_mark_never_overrules_the_condition),
                                       EMBEDDED(test_one_batch_sees_its_own_puts),
                                       EMBEDDED(test_failed_write_is_in_doubt_and_stops_the_store)};

    return SF_RUN_TESTS("embedded_store", tests);
}
