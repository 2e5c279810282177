/* What the embedded store does with a log that is not as it was written: the end of it may be cut
 * anywhere, as a crash leaves it, and nothing that was acknowledged before the cut is missed;
 * damage before the end is never passed over in silence. */
#include "support/proves.h"
#include "support/tempdir.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "object/store.h"

#define OBJECTS    40
#define BODY_BYTES 3000

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

static void key_of(unsigned i, char out[16])
{
    (void)snprintf(out, 16, "k%04u", i);
}

/* Writes the objects one after the other, each acknowledged, in a process that then dies. */
static void write_and_die(void)
{
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        struct sf_store *store = NULL;
        char body[BODY_BYTES];
        if (sf_embedded_store_open(folder, NULL, &store) != SF_OK)
            _exit(1);
        for (unsigned i = 0; i < OBJECTS; i++) {
            char key[16];
            key_of(i, key);
            memset(body, 'a' + (int)(i % 26), sizeof(body));
            struct sf_put put = {.key = sf_view_str(key),
                                 .body = sf_view_bytes(body, sizeof(body)),
                                 .cond = SF_PUT_ABSENT};
            if (sf_store_put_wait(store, NULL, &put) != SF_OK)
                _exit(2);
        }
        (void)raise(SIGKILL);
        _exit(3);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

/* Path and size of the store's largest write-ahead log. */
static off_t log_find(char out[512])
{
    DIR *dir = opendir(folder);
    off_t largest = 0;

    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        const char *dot = strrchr(entry->d_name, '.');
        struct stat st;
        char path[512];
        if (dot == NULL || strcmp(dot, ".log") != 0)
            continue;
        (void)snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        assert_int_equal(stat(path, &st), 0);
        if (st.st_size > largest) {
            largest = st.st_size;
            (void)snprintf(out, 512, "%s", path);
        }
    }
    (void)closedir(dir);
    assert_true(largest > OBJECTS * BODY_BYTES);
    return largest;
}

/* Number of objects from the first on that stand without a gap; fails when one stands above it. */
static unsigned unbroken_run(struct sf_store *store)
{
    unsigned run = 0;
    bool gap = false;

    for (unsigned i = 0; i < OBJECTS; i++) {
        struct sf_buf body = {0};
        char key[16];
        key_of(i, key);
        enum sf_err err = sf_store_get_wait(store, NULL, sf_view_str(key), &body, NULL);
        assert_true(err == SF_OK || err == SF_ERR_NOT_FOUND);
        assert_false(gap && err == SF_OK);
        gap = err != SF_OK;
        run += gap ? 0 : 1;
        sf_buf_fini(&body);
    }
    return run;
}

static void test_damage_before_the_end_is_not_passed_over(void **state)
{
    char path[512];
    (void)state;
    write_and_die();
    off_t size = log_find(path);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    uint8_t byte = 0;
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, size / 2), 1);
    byte ^= 0x5a;
    assert_int_equal(pwrite(fd, &byte, 1, size / 2), 1);
    (void)close(fd);
    struct sf_store *store = NULL;
    struct sf_diag diag;
    sf_diag_init(&diag);
    /* Every object was acknowledged: half of them gone is nothing to start with. */
    assert_int_equal(sf_embedded_store_open(folder, &diag, &store), SF_ERR_IO);
    assert_non_null(strstr(diag.message, "orruption"));
    /* It stays refused, and undoing the damage brings everything back. */
    assert_int_equal(sf_embedded_store_open(folder, &diag, &store), SF_ERR_IO);
    fd = open(path, O_RDWR | O_CLOEXEC);
    byte ^= 0x5a;
    assert_int_equal(pwrite(fd, &byte, 1, size / 2), 1);
    (void)close(fd);
    assert_int_equal(sf_embedded_store_open(folder, &diag, &store), SF_OK);
    assert_int_equal(unbroken_run(store), OBJECTS);
    sf_store_destroy(store);
}

/* A log that ends within a record, as a crash within a write leaves it. */
static void test_a_log_cut_anywhere_opens(void **state)
{
    static const off_t cuts[] = {1, 6, 7, 8, 100, BODY_BYTES, BODY_BYTES + 500, 40000};
    (void)state;
    for (size_t i = 0; i < SF_ARRAY_LEN(cuts); i++) {
        char path[512];
        struct sf_store *store = NULL;
        write_and_die();
        off_t size = log_find(path);
        assert_int_equal(truncate(path, size - cuts[i]), 0);
        assert_int_equal(sf_embedded_store_open(folder, NULL, &store), SF_OK);
        unsigned run = unbroken_run(store);
        assert_true(run < OBJECTS);
        assert_true((off_t)run >= OBJECTS - 2 - cuts[i] / BODY_BYTES);
        /* What was cut off is as if it never was: the same key is free, and durable when written.
         */
        char key[16];
        key_of(OBJECTS - 1, key);
        struct sf_put put = {
            .key = sf_view_str(key), .body = sf_view_str("again"), .cond = SF_PUT_ABSENT};
        assert_int_equal(sf_store_put_wait(store, NULL, &put), SF_OK);
        sf_store_destroy(store);
        assert_int_equal(sf_embedded_store_open(folder, NULL, &store), SF_OK);
        struct sf_buf body = {0};
        assert_int_equal(sf_store_get_wait(store, NULL, sf_view_str(key), &body, NULL), SF_OK);
        assert_true(sf_view_equal(sf_buf_view(&body), sf_view_str("again")));
        sf_buf_fini(&body);
        sf_store_destroy(store);
        sf_tempdir_remove(folder);
        sf_tempdir_make(folder);
    }
}

/* Blocks that a file system had set aside for the log read as zeros. */
static void test_zeros_behind_the_log_are_its_end(void **state)
{
    char path[512];
    struct sf_store *store = NULL;
    (void)state;
    write_and_die();
    off_t size = log_find(path);
    assert_int_equal(truncate(path, size + 70000), 0);
    assert_int_equal(sf_embedded_store_open(folder, NULL, &store), SF_OK);
    assert_int_equal(unbroken_run(store), OBJECTS);
    sf_store_destroy(store);
}

/* No file can grow any more, RocksDB's own log neither: the store fails, its process lives. */
static void test_no_room_for_anything_ends_no_process(void **state)
{
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        static char body[20000];
        struct sf_store *store = NULL;
        const struct rlimit none = {.rlim_cur = 4096, .rlim_max = 4096};
        if (sf_embedded_store_open(folder, NULL, &store) != SF_OK)
            _exit(1);
        if (sf_embedded_store_failed(store))
            _exit(3);
        (void)signal(SIGXFSZ, SIG_IGN);
        (void)setrlimit(RLIMIT_FSIZE, &none);
        enum sf_err errs[4];
        for (unsigned i = 0; i < SF_ARRAY_LEN(errs); i++) {
            struct sf_put put = {.key = sf_view_str("k"),
                                 .body = sf_view_bytes(body, sizeof(body))};
            errs[i] = sf_store_put_wait(store, NULL, &put);
        }
        if (!sf_embedded_store_failed(store))
            _exit(4);
        sf_store_destroy(store);
        _exit(errs[0] == SF_ERR_AMBIGUOUS && errs[3] == SF_ERR_UNAVAILABLE ? 0 : 2);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_damage_before_the_end_is_not_passed_over, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_log_cut_anywhere_opens, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_room_for_anything_ends_no_process, setup, teardown),
        cmocka_unit_test_setup_teardown(test_zeros_behind_the_log_are_its_end, setup, teardown),
    };
    return SF_RUN_TESTS("embedded_damage", tests);
}
