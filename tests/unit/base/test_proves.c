/*
 * The record of proved requirements: only ids of tests that passed, teardown included, are written.
 * The tests that must fail run in a child process.
 */
#include "support/proves.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int fails(void **state)
{
    (void)state;
    return 1;
}

static int works(void **state)
{
    (void)state;
    return 0;
}

static int takes_state(void **state)
{
    *state = (void *)"from setup";
    return 0;
}

static void passing(void **state)
{
    (void)state;
    SF_PROVES("A-1", "A-2");
}

static void failing(void **state)
{
    (void)state;
    SF_PROVES("B-1");
    fail();
}

static void skipping(void **state)
{
    (void)state;
    SF_PROVES("C-1");
    skip();
}

static void with_state(void **state)
{
    SF_PROVES("D-1");
    assert_string_equal(*state, "from setup");
}

static void proving_nothing(void **state)
{
    (void)state;
}

static int run_child(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passing),
        cmocka_unit_test(failing),
        cmocka_unit_test(skipping),
        cmocka_unit_test_setup(with_state, takes_state),
        cmocka_unit_test_prestate(with_state, (void *)"from setup"),
        cmocka_unit_test_setup_teardown(passing, works, works),
        cmocka_unit_test_setup_teardown(passing, works, fails),
        cmocka_unit_test_setup_teardown(passing, fails, works),
        cmocka_unit_test_setup_teardown(failing, works, works),
        cmocka_unit_test(proving_nothing),
    };

    return SF_RUN_TESTS("group", tests);
}

static void test_only_passed_tests_are_recorded(void **state)
{
    (void)state;
    char path[] = "/tmp/sf-proves-XXXXXX";
    char text[1024];
    int fd = mkstemp(path);
    int status = 0;

    assert_true(fd >= 0);
    (void)fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY);
        (void)dup2(null, 1);
        (void)dup2(null, 2);
        (void)setenv("SF_PROVED_FILE", path, 1);
        int failed = run_child();
        (void)fflush(NULL);
        _exit(failed);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 0);
    ssize_t n = read(fd, text, sizeof(text) - 1);
    (void)close(fd);
    (void)unlink(path);
    assert_true(n >= 0);
    text[n] = '\0';
    assert_string_equal(text, "A-1\tgroup/passing\nA-2\tgroup/passing\n"
                              "D-1\tgroup/with_state\n"
                              "D-1\tgroup/with_state\n"
                              "A-1\tgroup/passing\nA-2\tgroup/passing\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_only_passed_tests_are_recorded)};

    return SF_RUN_TESTS("proves", tests);
}
