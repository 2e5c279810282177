/* The data folder: one owner, refusal with its pid, release by any kind of death. */
#include "support/proves.h"
#include "support/tempdir.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cluster/datadir.h"

static char base[SF_TEMPDIR_BYTES];
static char folder[SF_TEMPDIR_BYTES + 16];

static int setup(void **state)
{
    (void)state;
    sf_tempdir_make(base);
    (void)snprintf(folder, sizeof(folder), "%s/new/data", base);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sf_tempdir_remove(base);
    return 0;
}

static enum sf_err open_dir(struct sf_diag *diag, struct sf_datadir **out)
{
    sf_diag_init(diag);
    return sf_datadir_open(folder, diag, out);
}

static void test_folder_is_made_private_and_reopens(void **state)
{
    struct sf_datadir *d = NULL;
    struct sf_diag diag;
    struct stat st;
    char path[SF_DATADIR_PATH_BYTES];

    (void)state;
    assert_int_equal(open_dir(&diag, &d), SF_OK);
    assert_int_equal(stat(folder, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    sf_datadir_path(d, "objects", path, sizeof(path));
    assert_memory_equal(path, folder, strlen(folder));
    assert_string_equal(path + strlen(folder), "/objects");
    sf_datadir_close(d);
    (void)snprintf(path, sizeof(path), "%s//", folder);
    assert_int_equal(sf_datadir_open(path, &diag, &d), SF_OK);
    sf_datadir_path(d, "x", path, sizeof(path));
    assert_string_equal(path + strlen(folder), "/x");
    sf_datadir_close(d);
}

static void test_second_owner_is_told_the_pid(void **state)
{
    struct sf_datadir *d = NULL;
    struct sf_datadir *second = NULL;
    struct sf_diag diag;
    char pid[32];

    (void)state;
    assert_int_equal(open_dir(&diag, &d), SF_OK);
    assert_int_equal(open_dir(&diag, &second), SF_ERR_LOCKED);
    (void)snprintf(pid, sizeof(pid), "%ld", (long)getpid());
    assert_string_equal(sf_diag_get(&diag, "owner_pid"), pid);
    assert_non_null(strstr(diag.message, pid));
    assert_non_null(strstr(diag.message, folder));
    sf_datadir_close(d);
}

/* The owner is killed with -9: the folder is free at once, whatever pid stands in the file. */
static void test_killed_owner_leaves_the_folder_free(void **state)
{
    struct sf_datadir *d = NULL;
    struct sf_diag diag;
    int fds[2];
    char byte = 0;
    char pid[32];

    (void)state;
    assert_int_equal(pipe(fds), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (open_dir(&diag, &d) == SF_OK && write(fds[1], "x", 1) == 1)
            (void)pause();
        _exit(1);
    }
    assert_int_equal(read(fds[0], &byte, 1), 1);
    assert_int_equal(open_dir(&diag, &d), SF_ERR_LOCKED);
    (void)snprintf(pid, sizeof(pid), "%ld", (long)child);
    assert_string_equal(sf_diag_get(&diag, "owner_pid"), pid);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(open_dir(&diag, &d), SF_OK);
    sf_datadir_close(d);
    (void)close(fds[0]);
    (void)close(fds[1]);
}

static void test_bad_paths(void **state)
{
    struct sf_datadir *d = NULL;
    struct sf_diag diag;
    char longer[SF_DATADIR_PATH_BYTES + 1];

    (void)state;
    sf_diag_init(&diag);
    assert_int_equal(sf_datadir_open("/proc/none/data", &diag, &d), SF_ERR_IO);
    assert_int_equal(sf_datadir_open("", &diag, &d), SF_ERR_CONFIG);
    (void)snprintf(folder, sizeof(folder), "%s/file", base);
    int fd = open(folder, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(open_dir(&diag, &d), SF_ERR_CONFIG);
    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    assert_int_equal(sf_datadir_open(longer, &diag, &d), SF_ERR_CONFIG);
}

#define DATADIR(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {DATADIR(test_folder_is_made_private_and_reopens),
                                       DATADIR(test_second_owner_is_told_the_pid),
                                       DATADIR(test_killed_owner_leaves_the_folder_free),
                                       DATADIR(test_bad_paths)};

    return SF_RUN_TESTS("datadir", tests);
}
