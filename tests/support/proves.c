/*
 * The record of proved requirements. cmocka leaves a failing test with longjmp, so a test function
 * that returns has passed its body; each test is therefore wrapped in functions that call the real
 * ones and, after the last of them (the teardown if there is one, else the body) has succeeded,
 * write the ids noted meanwhile.
 */
#include "support/proves.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_IDS 256

/* One wrapped test; passed to cmocka as the initial state. */
struct wrapped {
    const struct CMUnitTest *test; /* the caller's test */
    const char *group;             /* the caller's group name */
    void *state;                   /* the state the real functions see */
    int body_passed;               /* the body returned */
};

static const char *noted[MAX_IDS];       /* ids of the running test */
static size_t noted_count;               /* used part of noted */
static CMFixtureFunction group_setup;    /* the caller's group fixtures */
static CMFixtureFunction group_teardown; /* NULL for none */
static void *group_state;                /* what the group setup left */

void sf_proves(const char *const *ids)
{
    for (; *ids != NULL; ids++) {
        assert_true(noted_count < MAX_IDS);
        noted[noted_count++] = *ids;
    }
}

void sf_proves_record(const char *test, const char *const *ids)
{
    const char *path = getenv("SF_PROVED_FILE");

    if (path == NULL || path[0] == '\0' || ids[0] == NULL)
        return;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0) {
        perror(path);
        exit(1);
    }
    for (; *ids != NULL; ids++) {
        char line[512];
        int n = snprintf(line, sizeof(line), "%s\t%s\n", *ids, test);
        if (n < 0 || (size_t)n >= sizeof(line) || write(fd, line, (size_t)n) != n) {
            perror(path);
            exit(1);
        }
    }
    (void)close(fd);
}

static void record(const struct wrapped *w)
{
    char name[256];
    const char *ids[MAX_IDS + 1];

    memcpy(ids, noted, noted_count * sizeof(noted[0]));
    ids[noted_count] = NULL;
    (void)snprintf(name, sizeof(name), "%s/%s", w->group, w->test->name);
    sf_proves_record(name, ids);
}

static int wrapped_setup(void **state)
{
    struct wrapped *w = *state;

    w->state = w->test->initial_state != NULL ? w->test->initial_state : group_state;
    return w->test->setup_func == NULL ? 0 : w->test->setup_func(&w->state);
}

static void wrapped_test(void **state)
{
    struct wrapped *w = *state;

    noted_count = 0;
    w->body_passed = 0;
    w->test->test_func(&w->state);
    w->body_passed = 1;
    if (w->test->teardown_func == NULL)
        record(w);
}

static int wrapped_teardown(void **state)
{
    struct wrapped *w = *state;
    int rc = w->test->teardown_func(&w->state);

    if (rc == 0 && w->body_passed)
        record(w);
    return rc;
}

static int wrapped_group_setup(void **state)
{
    int rc = group_setup == NULL ? 0 : group_setup(state);

    group_state = *state;
    return rc;
}

static int wrapped_group_teardown(void **state)
{
    return group_teardown == NULL ? 0 : group_teardown(state);
}

int sf_run_tests_with(const char *name, const struct CMUnitTest *tests, size_t count,
                      CMFixtureFunction setup, CMFixtureFunction teardown)
{
    struct wrapped *wraps = calloc(count == 0 ? 1 : count, sizeof(*wraps));
    struct CMUnitTest *copies = calloc(count == 0 ? 1 : count, sizeof(*copies));

    if (wraps == NULL || copies == NULL)
        abort();
    for (size_t i = 0; i < count; i++) {
        wraps[i] = (struct wrapped){.test = &tests[i], .group = name};
        copies[i] = (struct CMUnitTest){
            .name = tests[i].name,
            .test_func = wrapped_test,
            .setup_func = wrapped_setup,
            .teardown_func = tests[i].teardown_func == NULL ? NULL : wrapped_teardown,
            .initial_state = &wraps[i]};
    }
    group_setup = setup;
    group_teardown = teardown;
    group_state = NULL;
    int failed =
        _cmocka_run_group_tests(name, copies, count, wrapped_group_setup, wrapped_group_teardown);
    free(copies);
    free(wraps);
    return failed;
}

int sf_run_tests(const char *name, const struct CMUnitTest *tests, size_t count)
{
    return sf_run_tests_with(name, tests, count, NULL, NULL);
}
