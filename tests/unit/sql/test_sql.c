/* The projection interface on each database: schema handshake, values, transactions, turns, faults.
 */
#include "support/proves.h"
#include "support/sqlserver.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "sql/sql.h"

static struct sf_test_sql place; /* fresh for each test */

#define STEP(number, label, text)                                                                  \
    {                                                                                              \
        .version = (number), .name = (label), .sqlite = (text), .postgres = (text),                \
        .mysql = (text)                                                                            \
    }

static const struct sf_sql_migration steps[] = {
    {.version = 1,
     .name = "first",
     .sqlite = "CREATE TABLE t (id BIGINT NOT NULL PRIMARY KEY, name TEXT UNIQUE, body BLOB);"
               "CREATE TABLE other (a INTEGER)",
     .postgres = "CREATE DOMAIN sf_u64 AS NUMERIC(20, 0)"
                 " CHECK (VALUE >= 0 AND VALUE <= 18446744073709551615);"
                 "CREATE TABLE t (id sf_u64 NOT NULL PRIMARY KEY,"
                 " name VARCHAR(200) COLLATE \"C\" UNIQUE, body BYTEA);"
                 "CREATE TABLE other (a INTEGER)",
     .mysql = "CREATE TABLE t (id BIGINT UNSIGNED NOT NULL, name VARCHAR(200), body BLOB,"
              " PRIMARY KEY (id), UNIQUE KEY (name))"
              " DEFAULT CHARACTER SET utf8mb4 COLLATE @COLLATION@;"
              "CREATE TABLE other (a INTEGER)"},
    STEP(2, "second", "ALTER TABLE t ADD COLUMN n INTEGER"),
    STEP(3, "third", "CREATE INDEX t_n ON t (n)")};

static int setup(void **state)
{
    (void)state;
    sf_test_sql_make(&place, false);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sf_test_sql_drop(&place);
    return 0;
}

static enum sf_err open_steps(const struct sf_sql_migration *m, size_t count, struct sf_diag *diag,
                              struct sf_sql **out_db)
{
    struct sf_sql_options options = place.where;

    options.migrations = m;
    options.migration_count = count;
    sf_diag_init(diag);
    return sf_sql_open(&options, diag, out_db);
}

static struct sf_sql *open_db(void)
{
    struct sf_sql *db = NULL;
    struct sf_diag diag;

    enum sf_err err = open_steps(steps, SF_ARRAY_LEN(steps), &diag, &db);
    if (err != SF_OK)
        fail_msg("%s", diag.message);
    return db;
}

static struct sf_sql_stmt *prepare(struct sf_sql_conn *conn, const char *sql)
{
    struct sf_sql_stmt *stmt = NULL;

    assert_int_equal(sf_sql_prepare(conn, sql, NULL, &stmt), SF_OK);
    return stmt;
}

static enum sf_err insert(struct sf_sql_conn *conn, uint64_t id, const char *name)
{
    struct sf_sql_stmt *stmt = prepare(conn, "INSERT INTO t (id, name) VALUES (?1, ?2)");

    sf_sql_bind_u64(stmt, 1, id);
    sf_sql_bind_text(stmt, 2, sf_view_str(name));
    return sf_sql_run(stmt, NULL, NULL);
}

static int64_t count_rows(struct sf_sql_conn *conn)
{
    struct sf_sql_stmt *stmt = prepare(conn, "SELECT count(*) FROM t");
    bool row = false;

    assert_int_equal(sf_sql_step(stmt, NULL, &row), SF_OK);
    assert_true(row);
    int64_t count = sf_sql_col_i64(stmt, 0);
    sf_sql_finish(stmt);
    return count;
}

static int64_t count_committed(struct sf_sql *db)
{
    struct sf_sql_conn *conn = sf_sql_acquire(db, NULL, SF_SQL_READ);
    int64_t count = count_rows(conn);

    sf_sql_release(conn);
    return count;
}

static void test_migrations_run_once_and_in_order(void **state)
{
    struct sf_sql *db = NULL;
    struct sf_diag diag;

    (void)state;
    assert_int_equal(open_steps(steps, 1, &diag, &db), SF_OK);
    assert_int_equal(sf_sql_schema_version(db), 1);
    struct sf_sql_conn *conn = sf_sql_acquire(db, NULL, SF_SQL_WRITE);
    assert_int_equal(insert(conn, 1, "kept"), SF_OK);
    sf_sql_release(conn);
    sf_sql_close(db);
    db = open_db();
    assert_int_equal(sf_sql_schema_version(db), 3);
    assert_int_equal(count_committed(db), 1);
    sf_sql_close(db);
    db = open_db();
    sf_sql_close(db);
}

static void test_newer_schema_is_refused(void **state)
{
    struct sf_sql *db = open_db();
    struct sf_diag diag;

    (void)state;
    sf_sql_close(db);
    assert_int_equal(open_steps(steps, 2, &diag, &db), SF_ERR_CONFIG);
    assert_non_null(strstr(diag.message, "schema version 3"));
    assert_non_null(strstr(diag.message, "up to 2"));
}

static void test_changed_step_is_refused(void **state)
{
    struct sf_sql_migration changed[3];
    struct sf_sql *db = open_db();
    struct sf_diag diag;

    (void)state;
    sf_sql_close(db);
    memcpy(changed, steps, sizeof(changed));
    changed[1].sqlite = changed[1].postgres = changed[1].mysql =
        "ALTER TABLE t ADD COLUMN m INTEGER";
    assert_int_equal(open_steps(changed, 3, &diag, &db), SF_ERR_CONFIG);
    assert_non_null(strstr(diag.message, "step 2"));
}

/* A step that fails half way leaves the schema as it was before the step. */
static void test_failing_step_leaves_nothing(void **state)
{
    struct sf_sql_migration broken[2] = {
        steps[0], STEP(2, "broken", "CREATE TABLE half (a INTEGER); NONSENSE")};
    struct sf_sql_migration good[2] = {steps[0], STEP(2, "good", "CREATE TABLE half (a INTEGER)")};
    struct sf_sql *db = NULL;
    struct sf_diag diag;

    (void)state;
    assert_int_not_equal(open_steps(broken, 2, &diag, &db), SF_OK);
    assert_non_null(strstr(diag.message, "broken"));
    assert_int_equal(open_steps(good, 2, &diag, &db), SF_OK);
    sf_sql_close(db);
}

static void test_file_that_is_no_database_is_corrupt(void **state)
{
    struct sf_sql *db = NULL;
    struct sf_diag diag;

    (void)state;
    if (place.where.kind != SF_SQL_SQLITE)
        return;
    FILE *f = fopen(place.path, "w");
    assert_non_null(f);
    for (int i = 0; i < 200; i++)
        (void)fputs("this is no database at all\n", f);
    (void)fclose(f);
    assert_int_equal(open_steps(steps, 3, &diag, &db), SF_ERR_CORRUPT);
    place.where.path = "/proc/none/p.sqlite";
    assert_int_equal(open_steps(steps, 3, &diag, &db), SF_ERR_IO);
}

static void test_u64_is_lossless_and_sorts(void **state)
{
    static const uint64_t values[] = {0,
                                      1,
                                      (1ull << 53) + 1,
                                      (1ull << 63) - 1,
                                      1ull << 63,
                                      (1ull << 63) + 1,
                                      UINT64_MAX - 1,
                                      UINT64_MAX};
    struct sf_sql *db = open_db();
    struct sf_sql_conn *conn = sf_sql_acquire(db, NULL, SF_SQL_WRITE);
    bool row = false;

    (void)state;
    for (size_t i = SF_ARRAY_LEN(values); i > 0; i--) {
        char name[8];
        (void)snprintf(name, sizeof(name), "%zu", i);
        assert_int_equal(insert(conn, values[i - 1], name), SF_OK);
    }
    struct sf_sql_stmt *stmt = prepare(conn, "SELECT id FROM t ORDER BY id");
    for (size_t i = 0; i < SF_ARRAY_LEN(values); i++) {
        assert_int_equal(sf_sql_step(stmt, NULL, &row), SF_OK);
        assert_true(row);
        assert_true(sf_sql_col_u64(stmt, 0) == values[i]);
    }
    sf_sql_finish(stmt);
    stmt = prepare(conn, "SELECT id + 1 FROM t WHERE id > ?1 ORDER BY id LIMIT 1");
    sf_sql_bind_u64(stmt, 1, (1ull << 63) - 2);
    assert_int_equal(sf_sql_step(stmt, NULL, &row), SF_OK);
    assert_true(sf_sql_col_u64(stmt, 0) == 1ull << 63);
    sf_sql_release(conn);
    sf_sql_close(db);
}

static void test_text_and_blobs_are_byte_exact(void **state)
{
    static const uint8_t blob[] = {0, 255, 0, 10, 39};
    static const char *const names[] = {"a", "A", "\xc3\xa4", "a\xcc\x88", "z", ""};
    struct sf_sql *db = open_db();
    struct sf_sql_conn *conn = sf_sql_acquire(db, NULL, SF_SQL_WRITE);
    bool row = false;

    (void)state;
    for (uint64_t i = 0; i < SF_ARRAY_LEN(names); i++)
        assert_int_equal(insert(conn, i, names[i]), SF_OK); /* unique: none equals another */
    assert_int_equal(insert(conn, 99, "A"), SF_ERR_EXISTS);
    struct sf_sql_stmt *stmt = prepare(conn, "UPDATE t SET body = ?2 WHERE name = ?1");
    uint64_t changes = 0;
    sf_sql_bind_text(stmt, 1, sf_view_str("\xc3\xa4"));
    sf_sql_bind_blob(stmt, 2, sf_view_bytes(blob, sizeof(blob)));
    assert_int_equal(sf_sql_run(stmt, NULL, &changes), SF_OK);
    assert_int_equal(changes, 1);
    stmt = prepare(conn, "SELECT name, body FROM t WHERE body IS NOT NULL");
    assert_int_equal(sf_sql_step(stmt, NULL, &row), SF_OK);
    assert_true(sf_view_equal(sf_sql_col_text(stmt, 0), sf_view_str("\xc3\xa4")));
    assert_true(sf_view_equal(sf_sql_col_blob(stmt, 1), sf_view_bytes(blob, sizeof(blob))));
    assert_int_equal(sf_sql_step(stmt, NULL, &row), SF_OK);
    assert_false(row);
    stmt = prepare(conn, "SELECT name, body, n FROM t WHERE name = ?1");
    sf_sql_bind_text(stmt, 1, (struct sf_view){0});
    assert_int_equal(sf_sql_step(stmt, NULL, &row), SF_OK);
    assert_true(row);
    assert_false(sf_sql_col_is_null(stmt, 0));
    assert_int_equal(sf_sql_col_text(stmt, 0).len, 0);
    assert_true(sf_sql_col_is_null(stmt, 1));
    assert_int_equal(sf_sql_col_blob(stmt, 1).len, 0);
    assert_true(sf_sql_col_u64(stmt, 2) == 0);
    sf_sql_release(conn);
    sf_sql_close(db);
}

static uint64_t upsert(struct sf_sql_conn *conn, const struct sf_sql_upsert *upsert, uint64_t id,
                       const char *name, int64_t n)
{
    struct sf_sql_stmt *stmt = NULL;
    uint64_t changes = 99;

    assert_int_equal(sf_sql_prepare_upsert(conn, upsert, NULL, &stmt), SF_OK);
    sf_sql_bind_u64(stmt, 1, id);
    sf_sql_bind_text(stmt, 2, sf_view_str(name));
    sf_sql_bind_i64(stmt, 3, n);
    assert_int_equal(sf_sql_run(stmt, NULL, &changes), SF_OK);
    return changes;
}

static bool row_is(struct sf_sql_conn *conn, uint64_t id, const char *name, int64_t n)
{
    struct sf_sql_stmt *stmt = prepare(conn, "SELECT name, n FROM t WHERE id = ?1");
    bool row = false;

    sf_sql_bind_u64(stmt, 1, id);
    assert_int_equal(sf_sql_step(stmt, NULL, &row), SF_OK);
    bool same = row && sf_view_equal(sf_sql_col_text(stmt, 0), sf_view_str(name)) &&
                sf_sql_col_i64(stmt, 1) == n;
    sf_sql_finish(stmt);
    return same;
}

static const struct sf_sql_upsert insert_only = {
    .table = "t", .columns = "id, name, n", .key = "id"};
static const struct sf_sql_upsert overwrite = {
    .table = "t", .columns = "id, name, n", .key = "id", .update = "name, n"};
static const struct sf_sql_upsert guarded = {
    .table = "t", .columns = "id, name, n", .key = "id", .update = "n, name", .guard = "n"};

static void test_upserts(void **state)
{
    struct sf_sql *db = open_db();
    struct sf_sql_conn *conn = sf_sql_acquire(db, NULL, SF_SQL_WRITE);

    (void)state;
    assert_true(upsert(conn, &insert_only, 1, "a", 5) > 0);
    assert_int_equal(upsert(conn, &insert_only, 1, "b", 6), 0);
    assert_true(row_is(conn, 1, "a", 5));
    assert_int_equal(upsert(conn, &guarded, 1, "c", 4), 0);
    assert_int_equal(upsert(conn, &guarded, 1, "c", 5), 0);
    assert_true(row_is(conn, 1, "a", 5));
    assert_true(upsert(conn, &guarded, 1, "c", 6) > 0);
    assert_true(row_is(conn, 1, "c", 6));
    assert_true(upsert(conn, &guarded, 2, "d", 1) > 0);
    assert_true(upsert(conn, &overwrite, 2, "e", 0) > 0);
    assert_true(row_is(conn, 2, "e", 0));
    const struct sf_sql_upsert *const all[] = {&insert_only, &overwrite, &guarded};
    for (size_t i = 0; i < SF_ARRAY_LEN(all); i++) {
        struct sf_sql_stmt *stmt = NULL;
        assert_int_equal(sf_sql_prepare_upsert(conn, all[i], NULL, &stmt), SF_OK);
        sf_sql_bind_u64(stmt, 1, 3);
        sf_sql_bind_text(stmt, 2, sf_view_str("c")); /* the name of row 1 */
        sf_sql_bind_i64(stmt, 3, 100);
        assert_int_equal(sf_sql_run(stmt, NULL, NULL), SF_ERR_EXISTS);
    }
    assert_true(row_is(conn, 1, "c", 6));
    assert_int_equal(count_rows(conn), 2);
    sf_sql_release(conn);
    sf_sql_close(db);
}

static void test_transaction_stands_or_falls_whole(void **state)
{
    struct sf_sql *db = open_db();
    struct sf_sql_conn *conn = sf_sql_acquire(db, NULL, SF_SQL_WRITE);

    (void)state;
    assert_int_equal(sf_sql_begin(conn, NULL), SF_OK);
    assert_int_equal(insert(conn, 1, "a"), SF_OK);
    assert_int_equal(insert(conn, 2, "b"), SF_OK);
    assert_int_equal(count_committed(db), 0); /* readers see committed rows only */
    sf_sql_rollback(conn);
    assert_int_equal(count_rows(conn), 0);
    assert_int_equal(sf_sql_begin(conn, NULL), SF_OK);
    assert_int_equal(insert(conn, 1, "a"), SF_OK);
    assert_int_equal(insert(conn, 1, "again"), SF_ERR_EXISTS);
    struct sf_sql_stmt *stmt = NULL;
    assert_int_equal(sf_sql_prepare(conn, "SELECT 1", NULL, &stmt), SF_ERR_UNAVAILABLE);
    assert_int_equal(sf_sql_commit(conn, NULL), SF_ERR_UNAVAILABLE); /* a refused row ends it */
    assert_int_equal(sf_sql_begin(conn, NULL), SF_OK);
    assert_int_equal(insert(conn, 1, "a"), SF_OK);
    assert_int_equal(insert(conn, 2, "b"), SF_OK);
    assert_int_equal(sf_sql_commit(conn, NULL), SF_OK);
    assert_int_equal(sf_sql_begin(conn, NULL), SF_OK);
    assert_int_equal(insert(conn, 3, "c"), SF_OK);
    sf_sql_release(conn); /* open: rolled back */
    assert_int_equal(count_committed(db), 2);
    sf_sql_close(db);
    db = open_db();
    assert_int_equal(count_committed(db), 2);
    sf_sql_close(db);
}

static void test_reader_keeps_its_snapshot(void **state)
{
    struct sf_sql *db = open_db();
    struct sf_sql_conn *reader = sf_sql_acquire(db, NULL, SF_SQL_READ);

    (void)state;
    assert_int_equal(sf_sql_begin(reader, NULL), SF_OK);
    assert_int_equal(count_rows(reader), 0);
    struct sf_sql_conn *writer = sf_sql_acquire(db, NULL, SF_SQL_WRITE);
    assert_int_equal(insert(writer, 1, "a"), SF_OK);
    assert_int_equal(count_rows(reader), 0);
    assert_int_equal(sf_sql_commit(reader, NULL), SF_OK);
    assert_int_equal(count_rows(reader), 1);
    if (place.where.kind != SF_SQL_MYSQL) /* it has no such readers that TiDB knows too */
        assert_int_equal(insert(reader, 2, "b"), SF_ERR_UNAVAILABLE); /* readers never write */
    sf_sql_release(reader);
    sf_sql_release(writer);
    sf_sql_close(db);
}

static const struct sf_sql_upsert body_row = {
    .table = "t", .columns = "id, body", .key = "id", .update = "body"};

/* SQLite's log is copied back beside the writer, and starts anew under steady writes. */
static void test_log_stays_bounded(void **state)
{
    const int rounds = 600, pages = 100;
    const off_t most = (off_t)(49152 + 2 * pages) * 4120;
    struct sf_buf path = {0};
    struct stat st;
    char blob[4000] = {0};
    off_t largest = 0;

    (void)state;
    if (place.where.kind != SF_SQL_SQLITE)
        skip();
    struct sf_sql *db = open_db();
    sf_buf_printf(&path, "%s-wal", place.where.path);
    sf_buf_append(&path, "", 1);
    struct sf_sql_conn *conn = sf_sql_acquire(db, NULL, SF_SQL_WRITE);
    for (int round = 0; round < rounds; round++) {
        assert_int_equal(sf_sql_begin(conn, NULL), SF_OK);
        for (int i = 0; i < pages; i++) {
            struct sf_sql_stmt *stmt;
            assert_int_equal(sf_sql_prepare_upsert(conn, &body_row, NULL, &stmt), SF_OK);
            sf_sql_bind_u64(stmt, 1, (uint64_t)i);
            blob[0] = (char)round;
            sf_sql_bind_blob(stmt, 2, sf_view_bytes(blob, sizeof(blob)));
            assert_int_equal(sf_sql_run(stmt, NULL, NULL), SF_OK);
        }
        assert_int_equal(sf_sql_commit(conn, NULL), SF_OK);
        assert_int_equal(stat((const char *)path.data, &st), 0);
        largest = st.st_size > largest ? st.st_size : largest;
    }
    sf_sql_release(conn);
    assert_true(largest <= most); /* not rounds x pages = 247 MB */
    sf_buf_fini(&path);
    sf_sql_close(db);
}

/* Two processes on one file: the second writer waits, and finds the first one's rows. */
static void test_two_databases_on_one_file(void **state)
{
    struct sf_sql *a = open_db();
    struct sf_sql *b = open_db();
    struct sf_sql_conn *conn = sf_sql_acquire(a, NULL, SF_SQL_WRITE);

    (void)state;
    assert_int_equal(insert(conn, 1, "a"), SF_OK);
    sf_sql_release(conn);
    assert_int_equal(count_committed(b), 1);
    sf_sql_close(a);
    sf_sql_close(b);
}

struct scripted {
    struct sf_sql_faults base;
    enum sf_err before, after;
};

static enum sf_err before_commit(struct sf_sql_faults *faults)
{
    return SF_CONTAINER_OF(faults, struct scripted, base)->before;
}

static enum sf_err after_commit(struct sf_sql_faults *faults)
{
    return SF_CONTAINER_OF(faults, struct scripted, base)->after;
}

static enum sf_err commit_one(struct sf_sql *db, uint64_t id)
{
    struct sf_sql_conn *conn = sf_sql_acquire(db, NULL, SF_SQL_WRITE);
    char name[24];

    (void)snprintf(name, sizeof(name), "%llu", (unsigned long long)id);
    assert_int_equal(sf_sql_begin(conn, NULL), SF_OK);
    assert_int_equal(insert(conn, id, name), SF_OK);
    enum sf_err err = sf_sql_commit(conn, NULL);
    sf_sql_release(conn);
    return err;
}

static void test_faults_around_the_commit(void **state)
{
    struct scripted faults = {
        .base = {.before_commit = before_commit, .after_commit = after_commit}};
    struct sf_sql *db = open_db();
    struct sf_sql *handle = sf_sql_share(db, &faults.base);

    (void)state;
    assert_int_equal(commit_one(handle, 1), SF_OK);
    faults.before = SF_ERR_UNAVAILABLE;
    assert_int_equal(commit_one(handle, 2), SF_ERR_UNAVAILABLE);
    assert_int_equal(count_committed(db), 1);
    assert_int_equal(commit_one(db, 3), SF_OK); /* the faults are the handle's own */
    faults.before = SF_OK;
    faults.after = SF_ERR_AMBIGUOUS;
    assert_int_equal(commit_one(handle, 4), SF_ERR_AMBIGUOUS);
    assert_int_equal(count_committed(db), 3);
    sf_sql_close(db);
    faults.after = SF_OK;
    assert_int_equal(commit_one(handle, 5), SF_OK); /* the last handle keeps the database */
    sf_sql_close(handle);
}

#define WRITERS 4
#define ROWS    50

struct worker {
    pthread_t thread;
    struct sf_sql *db;
    uint64_t id;
};

static void *work(void *arg)
{
    struct worker *w = arg;

    for (uint64_t i = 0; i < ROWS; i++) {
        struct sf_sql_conn *conn = sf_sql_acquire(w->db, NULL, SF_SQL_WRITE);
        char name[32];
        (void)snprintf(name, sizeof(name), "%llu/%llu", (unsigned long long)w->id,
                       (unsigned long long)i);
        SF_ASSERT(sf_sql_begin(conn, NULL) == SF_OK);
        SF_ASSERT(insert(conn, w->id * 1000 + i, name) == SF_OK);
        SF_ASSERT(sf_sql_commit(conn, NULL) == SF_OK);
        sf_sql_release(conn);
        SF_ASSERT(count_committed(w->db) > 0);
    }
    return NULL;
}

static void test_many_tasks_take_turns(void **state)
{
    struct worker workers[WRITERS];

    (void)state;
    for (size_t f = 0; f < 2; f++) {
        if (f == 1 && place.where.kind == SF_SQL_SQLITE)
            place.where.path = NULL; /* once more in memory */
        else if (f == 1)
            sf_test_sql_empty(&place);
        struct sf_sql *db = open_db();
        for (uint64_t i = 0; i < WRITERS; i++) {
            workers[i] = (struct worker){.db = db, .id = i};
            assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
        }
        for (size_t i = 0; i < WRITERS; i++)
            assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        assert_int_equal(count_committed(db), WRITERS * ROWS);
        sf_sql_close(db);
    }
}

#define SQL(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {SQL(test_migrations_run_once_and_in_order),
                                       SQL(test_newer_schema_is_refused),
                                       SQL(test_changed_step_is_refused),
                                       SQL(test_failing_step_leaves_nothing),
                                       SQL(test_file_that_is_no_database_is_corrupt),
                                       SQL(test_u64_is_lossless_and_sorts),
                                       SQL(test_text_and_blobs_are_byte_exact),
                                       SQL(test_upserts),
                                       SQL(test_transaction_stands_or_falls_whole),
                                       SQL(test_reader_keeps_its_snapshot),
                                       SQL(test_log_stays_bounded),
                                       SQL(test_two_databases_on_one_file),
                                       SQL(test_faults_around_the_commit),
                                       SQL(test_many_tasks_take_turns)};

    return SF_RUN_TESTS("sql", tests);
}
