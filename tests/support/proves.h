/*
 * Test support: cmocka with a record of the requirements that a run proved. A test names the ids it
 * proves with SF_PROVES in its body; once it has passed, a line "id<TAB>group/test" for each id is
 * appended to the file named by the environment variable SF_PROVED_FILE (nothing is written when it
 * is not set). A test that fails or is skipped records nothing.
 *
 *     static void test_x(void **state)
 *     {
 *         SF_PROVES("ALLOC-5.3-01", "ALLOC-5.3-02");
 *         ...
 *     }
 *     int main(void)
 *     {
 *         const struct CMUnitTest tests[] = {cmocka_unit_test(test_x)};
 *         return SF_RUN_TESTS("x", tests);
 *     }
 */
#ifndef SF_TESTS_SUPPORT_PROVES_H
#define SF_TESTS_SUPPORT_PROVES_H

/* cmocka needs these, in this order. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

/* Notes requirement ids for the running test; recorded when it passes. From the test's thread. */
#define SF_PROVES(...) sf_proves((const char *const[]){__VA_ARGS__, NULL})

/* Runs a local array of tests; the value is main's exit status (number of failed tests). */
#define SF_RUN_TESTS(name, tests)                                                                  \
    sf_run_tests_with((name), (tests), sizeof(tests) / sizeof((tests)[0]), NULL, NULL)

/* The same with group fixtures (NULL for none). */
#define SF_RUN_TESTS_WITH(name, tests, setup, teardown)                                            \
    sf_run_tests_with((name), (tests), sizeof(tests) / sizeof((tests)[0]), (setup), (teardown))

/* Notes the ids of a NULL-terminated array; use SF_PROVES. */
void sf_proves(const char *const *ids);

/* Runs `count` tests as one group; returns the number that failed. */
int sf_run_tests(const char *name, const struct CMUnitTest *tests, size_t count);

/* Runs `count` tests between group fixtures (NULL for none). */
int sf_run_tests_with(const char *name, const struct CMUnitTest *tests, size_t count,
                      CMFixtureFunction setup, CMFixtureFunction teardown);

/* Records ids (NULL-terminated) as proved by `test` at once; for programs that do not use cmocka.
 */
void sf_proves_record(const char *test, const char *const *ids);

#endif
