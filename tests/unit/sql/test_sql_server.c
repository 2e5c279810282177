/*
 * What only a server can do to us: it goes away, it is slow, it has another collation, others use
 * it at once. On SQLite only the texts of the dialects are looked at.
 */
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "sql/sql_priv.h"
#include "support/proves.h"
#include "support/sqlserver.h"

static struct sf_test_sql place;

static const struct sf_sql_migration step = {
    .version = 1,
    .name = "first",
    .sqlite = "CREATE TABLE t (id BIGINT NOT NULL PRIMARY KEY, name TEXT)",
    .postgres = "CREATE TABLE t (id BIGINT NOT NULL PRIMARY KEY, name VARCHAR(64) COLLATE \"C\")",
    .mysql = "CREATE TABLE t (id BIGINT NOT NULL, name VARCHAR(64), PRIMARY KEY (id))"
             " DEFAULT CHARACTER SET utf8mb4 COLLATE @COLLATION@"};

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

static enum sf_err open_db(struct sf_diag *diag, struct sf_sql **out_db)
{
    struct sf_sql_options options = place.where;

    options.migrations = &step;
    options.migration_count = 1;
    sf_diag_init(diag);
    return sf_sql_open(&options, diag, out_db);
}

static bool on_server(void)
{
    return place.where.kind != SF_SQL_SQLITE;
}

static enum sf_err insert(struct sf_sql_conn *conn, int64_t id)
{
    struct sf_sql_stmt *stmt = NULL;

    enum sf_err err =
        sf_sql_prepare(conn, "INSERT INTO t (id, name) VALUES (?1, 'x')", NULL, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_i64(stmt, 1, id);
    return sf_sql_run(stmt, NULL, NULL);
}

static const char *count_rows(void)
{
    static char out[256];

    assert_true(sf_test_sql_raw(&place, "SELECT COUNT(*) FROM t", out, sizeof(out)));
    return out;
}

/* Begins within two seconds of tries, as callers do with a pause between them. */
static void begin_soon(struct sf_sql_conn *conn)
{
    int64_t until_ms = sf_clock_mono_ms(sf_clock_system()) + 5000;

    while (sf_sql_begin(conn, NULL) != SF_OK)
        assert_true(sf_clock_mono_ms(sf_clock_system()) < until_ms);
}

static void test_lost_connection(void **state)
{
    struct sf_sql *db = NULL;
    struct sf_diag diag;

    (void)state;
    if (!on_server())
        return;
    assert_int_equal(open_db(&diag, &db), SF_OK);
    struct sf_sql_conn *conn = sf_sql_acquire(db, NULL, SF_SQL_WRITE);
    /* between two statements: the transaction is over, the next one works */
    begin_soon(conn);
    assert_int_equal(insert(conn, 1), SF_OK);
    sf_test_sql_cut(&place);
    assert_int_equal(insert(conn, 2), SF_ERR_UNAVAILABLE);
    assert_int_equal(sf_sql_commit(conn, &diag), SF_ERR_UNAVAILABLE);
    assert_string_equal(count_rows(), "0");
    begin_soon(conn);
    assert_int_equal(insert(conn, 1), SF_OK);
    assert_int_equal(sf_sql_commit(conn, &diag), SF_OK);
    assert_string_equal(count_rows(), "1");
    /* at the commit: nobody knows */
    begin_soon(conn);
    assert_int_equal(insert(conn, 2), SF_OK);
    sf_test_sql_cut(&place);
    assert_int_equal(sf_sql_commit(conn, &diag), SF_ERR_AMBIGUOUS);
    begin_soon(conn);
    sf_sql_rollback(conn);
    sf_sql_release(conn);
    sf_sql_close(db);
}

/* One writer at a time over all processes; who waits too long is told so. */
static void test_writers_take_turns(void **state)
{
    struct sf_sql *a = NULL, *b = NULL;
    struct sf_diag diag;

    (void)state;
    if (!on_server())
        return;
    place.where.server.statement_timeout_ms = 1000;
    assert_int_equal(open_db(&diag, &a), SF_OK);
    assert_int_equal(open_db(&diag, &b), SF_OK);
    struct sf_sql_conn *first = sf_sql_acquire(a, NULL, SF_SQL_WRITE);
    struct sf_sql_conn *second = sf_sql_acquire(b, NULL, SF_SQL_WRITE);
    assert_int_equal(sf_sql_begin(first, &diag), SF_OK);
    assert_int_equal(insert(first, 1), SF_OK);
    int64_t before_ms = sf_clock_mono_ms(sf_clock_system());
    assert_int_equal(sf_sql_begin(second, &diag), SF_ERR_UNAVAILABLE);
    assert_true(sf_clock_mono_ms(sf_clock_system()) - before_ms < 8000);
    assert_int_equal(sf_sql_commit(first, &diag), SF_OK);
    begin_soon(second);
    assert_int_equal(insert(second, 1), SF_ERR_EXISTS);
    sf_sql_release(first);
    sf_sql_release(second);
    sf_sql_close(a);
    sf_sql_close(b);
}

static void *open_once(void *arg)
{
    struct sf_diag diag;

    return (void *)(intptr_t)(open_db(&diag, arg) == SF_OK);
}

static void test_processes_that_start_at_once(void **state)
{
    pthread_t threads[6];
    struct sf_sql *dbs[6] = {0};
    char out[64];

    (void)state;
    if (!on_server())
        return;
    for (size_t i = 0; i < SF_ARRAY_LEN(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, open_once, &dbs[i]), 0);
    for (size_t i = 0; i < SF_ARRAY_LEN(threads); i++) {
        void *ok = NULL;
        assert_int_equal(pthread_join(threads[i], &ok), 0);
        assert_non_null(ok);
        sf_sql_close(dbs[i]);
    }
    assert_true(
        sf_test_sql_raw(&place, "SELECT COUNT(*) FROM schema_migrations", out, sizeof(out)));
    assert_string_equal(out, "1");
}

static void test_other_collations_are_refused(void **state)
{
    struct sf_sql *db = NULL;
    struct sf_diag diag;
    char out[512];

    (void)state;
    if (!on_server())
        return;
    assert_int_equal(open_db(&diag, &db), SF_OK);
    sf_sql_close(db);
    assert_true(sf_test_sql_raw(&place,
                                place.where.kind == SF_SQL_POSTGRES
                                    ? "ALTER TABLE t ALTER COLUMN name TYPE VARCHAR(64)"
                                      " COLLATE \"default\""
                                    : "ALTER TABLE t MODIFY name VARCHAR(64) CHARACTER SET utf8mb4"
                                      " COLLATE utf8mb4_bin",
                                out, sizeof(out)));
    assert_int_equal(open_db(&diag, &db), SF_ERR_CONFIG);
    assert_non_null(strstr(diag.message, "does not compare byte for byte"));
    assert_non_null(strstr(diag.message, "t.name"));
}

static void test_refusals_hold_no_password(void **state)
{
    struct sf_sql *db = NULL;
    struct sf_diag diag;
    char folder[SF_TEMPDIR_BYTES], path[SF_TEMPDIR_BYTES + 16];

    (void)state;
    if (!on_server())
        return;
    sf_tempdir_make(folder);
    (void)snprintf(path, sizeof(path), "%s/secret", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    (void)fputs("wrong-but-secret\n", f);
    (void)fclose(f);
    place.where.server.password_file = path;
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(open_db(&diag, &db), SF_ERR_CONFIG); /* others may read it */
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_not_equal(open_db(&diag, &db), SF_OK);
    assert_null(strpbrk(diag.message, "\n\t")); /* one line of the log */
    assert_null(strstr(diag.message, "secret\n"));
    assert_null(strstr(diag.message, "wrong-but"));
    place.where.server.password_file = place.password_file;
    sf_tempdir_remove(folder);
}

/* A server that takes connections and says nothing does not hold us. */
static void test_silent_server(void **state)
{
    struct sf_sql *db = NULL;
    struct sf_diag diag;
    char folder[SF_TEMPDIR_BYTES], path[SF_TEMPDIR_BYTES + 32];
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    (void)state;
    if (!on_server())
        return;
    bool pg = place.where.kind == SF_SQL_POSTGRES;
    sf_tempdir_make(folder);
    (void)snprintf(path, sizeof(path), "%s/%s", folder, pg ? ".s.PGSQL.5432" : "sock");
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 4), 0);
    place.where.server.host = pg ? folder : path;
    place.where.server.connect_timeout_ms = 2000;
    place.where.server.statement_timeout_ms = 1000;
    int64_t before_ms = sf_clock_mono_ms(sf_clock_system());
    assert_int_equal(open_db(&diag, &db), SF_ERR_IO);
    assert_true(sf_clock_mono_ms(sf_clock_system()) - before_ms < 20000);
    place.where.server.host = place.host;
    (void)close(fd);
    sf_tempdir_remove(folder);
}

/* A projection can be dropped, a database that is none is left alone. */
static void test_drop(void **state)
{
    struct sf_sql *db = NULL;
    struct sf_diag diag;
    char out[512];

    (void)state;
    assert_int_equal(open_db(&diag, &db), SF_OK);
    sf_sql_close(db);
    assert_int_equal(sf_sql_drop(&place.where, &diag), SF_OK);
    assert_false(sf_test_sql_raw(&place, "SELECT COUNT(*) FROM t", out, sizeof(out)));
    assert_int_equal(sf_sql_drop(&place.where, &diag), SF_OK); /* nothing is there */
    if (!on_server())
        return;
    assert_true(sf_test_sql_raw(&place, "CREATE TABLE theirs (id INT)", out, sizeof(out)));
    assert_int_equal(sf_sql_drop(&place.where, &diag), SF_ERR_CONFIG);
    assert_true(sf_test_sql_raw(&place, "SELECT COUNT(*) FROM theirs", out, sizeof(out)));
}

static const char *upsert_text(const struct sf_sql_upsert *upsert, enum sf_sql_kind kind)
{
    static char out[1024];
    struct sf_buf text = {0};

    sql_upsert_text(upsert, kind, &text);
    (void)snprintf(out, sizeof(out), "%s", (const char *)text.data);
    sf_buf_fini(&text);
    return out;
}

static void test_upsert_texts(void **state)
{
    static const struct sf_sql_upsert upsert = {
        .table = "t", .columns = "a, b, c", .key = "a", .update = "b, c", .guard = "b"};
    static const struct sf_sql_upsert once = {.table = "t", .columns = "a, b", .key = "a"};

    (void)state;
    SF_PROVES("CCS-5.1-17");
    assert_string_equal(upsert_text(&upsert, SF_SQL_POSTGRES),
                        "INSERT INTO t (a, b, c) VALUES (?1, ?2, ?3) ON CONFLICT (a) DO UPDATE SET"
                        " b = EXCLUDED.b, c = EXCLUDED.c WHERE EXCLUDED.b > t.b");
    assert_string_equal(upsert_text(&once, SF_SQL_POSTGRES),
                        "INSERT INTO t (a, b) VALUES (?1, ?2) ON CONFLICT (a) DO NOTHING");
    assert_string_equal(upsert_text(&upsert, SF_SQL_MYSQL),
                        "INSERT INTO t (a, b, c) VALUES (?1, ?2, ?3) ON DUPLICATE KEY UPDATE"
                        " a = IF(a = VALUES(a), a, NULL), c = IF(VALUES(b) > b, VALUES(c), c),"
                        " b = IF(VALUES(b) > b, VALUES(b), b)");
}

#define SQL(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {SQL(test_upsert_texts),
                                       SQL(test_drop),
                                       SQL(test_lost_connection),
                                       SQL(test_writers_take_turns),
                                       SQL(test_processes_that_start_at_once),
                                       SQL(test_other_collations_are_refused),
                                       SQL(test_refusals_hold_no_password),
                                       SQL(test_silent_server)};

    return SF_RUN_TESTS("sql_server", tests);
}
