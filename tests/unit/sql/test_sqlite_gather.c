/* Logs written in large pieces: what another connection sees, rollbacks, caches that overflow. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "sql/sqlite_gather.h"
#include "support/proves.h"

struct pair {
    char folder[64];
    char path[96];
    sqlite3 *writer; /* over the VFS under test */
    sqlite3 *reader; /* over SQLite's own */
};

static void run(sqlite3 *db, const char *sql)
{
    char *message = NULL;
    int rc = sqlite3_exec(db, sql, NULL, NULL, &message);
    if (rc != SQLITE_OK)
        fail_msg("%s: %s", sql, message);
}

static sqlite3_int64 number(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *stmt = NULL;
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    sqlite3_int64 value = sqlite3_column_int64(stmt, 0);
    assert_int_equal(sqlite3_finalize(stmt), SQLITE_OK);
    return value;
}

static void assert_sound(sqlite3 *db)
{
    assert_int_equal(number(db, "SELECT COUNT(*) FROM pragma_integrity_check"
                                " WHERE integrity_check = 'ok'"),
                     1);
}

static void open_writer(struct pair *p)
{
    assert_int_equal(sqlite3_open_v2(p->path, &p->writer,
                                     SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, SQL_GATHER_VFS),
                     SQLITE_OK);
    run(p->writer, "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;");
}

static int setup(void **state)
{
    struct pair *p = calloc(1, sizeof(*p));
    (void)snprintf(p->folder, sizeof(p->folder), "/tmp/sf-gather-XXXXXX");
    assert_non_null(mkdtemp(p->folder));
    (void)snprintf(p->path, sizeof(p->path), "%s/db", p->folder);
    open_writer(p);
    run(p->writer, "CREATE TABLE t (id INTEGER PRIMARY KEY, key BLOB UNIQUE, body BLOB);");
    assert_int_equal(sqlite3_open_v2(p->path, &p->reader, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    struct pair *p = *state;
    char command[128];
    assert_int_equal(sqlite3_close(p->reader), SQLITE_OK);
    assert_int_equal(sqlite3_close(p->writer), SQLITE_OK);
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", p->folder);
    assert_int_equal(system(command), 0);
    free(p);
    return 0;
}

#define INSERT_ROWS(count)                                                                         \
    "INSERT INTO t (key, body) WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"    \
    " WHERE i < " count ") SELECT randomblob(32), randomblob(1500) FROM n;"

/* What is committed stands in the file at once, whatever its size; the log begins anew meanwhile.
 */
static void test_a_commit_is_seen_by_others(void **state)
{
    struct pair *p = *state;
    sqlite3_int64 rows = 0;
    run(p->writer, "PRAGMA wal_autocheckpoint=300;");
    for (int round = 0; round < 200; round++) {
        static const int counts[] = {1, 7, 90, 2, 300};
        static const char *const texts[] = {INSERT_ROWS("1"), INSERT_ROWS("7"), INSERT_ROWS("90"),
                                            INSERT_ROWS("2"), INSERT_ROWS("300")};
        run(p->writer, texts[round % 5]);
        rows += counts[round % 5];
        assert_int_equal(number(p->reader, "SELECT COUNT(*) FROM t"), rows);
        assert_int_equal(number(p->reader, "SELECT SUM(LENGTH(body)) FROM t"), rows * 1500);
    }
    assert_sound(p->reader);
}

/* Frames go to the log before their commit, are read back and written again in place. */
static void test_transactions_larger_than_the_cache(void **state)
{
    struct pair *p = *state;
    sqlite3_int64 rows = 0;
    run(p->writer, "PRAGMA cache_size=10; PRAGMA cache_spill=10;");
    for (int round = 0; round < 40; round++) {
        run(p->writer, "BEGIN IMMEDIATE;" INSERT_ROWS("150") "SAVEPOINT s;" INSERT_ROWS("60"));
        run(p->writer, "UPDATE t SET body = randomblob(1500) WHERE id % 3 = 0;");
        run(p->writer, round % 2 == 0 ? "ROLLBACK TO s;" : "RELEASE s;");
        assert_int_equal(number(p->reader, "SELECT COUNT(*) FROM t"), rows);
        run(p->writer, round % 5 == 4 ? "ROLLBACK;" : "COMMIT;");
        if (round % 5 != 4)
            rows += round % 2 == 0 ? 150 : 210;
        assert_int_equal(number(p->reader, "SELECT COUNT(*) FROM t"), rows);
    }
    assert_sound(p->reader);
    assert_sound(p->writer);
}

/* A writer that opens a log that others left goes on behind it. */
static void test_goes_on_in_a_log_that_stands(void **state)
{
    struct pair *p = *state;
    for (int round = 1; round <= 5; round++) {
        run(p->writer, "PRAGMA wal_autocheckpoint=0;" INSERT_ROWS("20"));
        assert_int_equal(number(p->reader, "SELECT COUNT(*) FROM t"), round * 20);
        assert_int_equal(sqlite3_close(p->writer), SQLITE_OK); /* the reader keeps the log */
        open_writer(p);
    }
    assert_sound(p->reader);
}

/* No room in the file: the commit fails, nothing of it is seen, and the next one goes on. */
static void test_a_write_that_fails_fails_the_commit(void **state)
{
    struct pair *p = *state;
    struct rlimit before, small;
    run(p->writer, "PRAGMA wal_autocheckpoint=0;" INSERT_ROWS("90"));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 400000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int rc = sqlite3_exec(p->writer, INSERT_ROWS("300"), NULL, NULL, NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_not_equal(rc, SQLITE_OK);
    assert_int_equal(number(p->reader, "SELECT COUNT(*) FROM t"), 90);
    for (int round = 1; round <= 4; round++) {
        run(p->writer, INSERT_ROWS("40"));
        assert_int_equal(number(p->reader, "SELECT COUNT(*) FROM t"), 90 + round * 40);
    }
    assert_sound(p->reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_commit_is_seen_by_others, setup, teardown),
        cmocka_unit_test_setup_teardown(test_transactions_larger_than_the_cache, setup, teardown),
        cmocka_unit_test_setup_teardown(test_goes_on_in_a_log_that_stands, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_write_that_fails_fails_the_commit, setup, teardown),
    };
    (void)signal(SIGXFSZ, SIG_IGN);
    if (sql_gather_register() != SQLITE_OK)
        return 1;
    return SF_RUN_TESTS("sqlite_gather", tests);
}
