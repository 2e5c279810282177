/* Databases are made and dropped over connections of the servers' superusers, one per statement. */
#include "support/sqlserver.h"

#include <libpq-fe.h>
#include <mysql.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/proves.h"

enum sf_sql_kind sf_test_sql_kind(void)
{
    const char *name = getenv("SF_TEST_PROJECTION");

    if (name == NULL || strcmp(name, "sqlite") == 0)
        return SF_SQL_SQLITE;
    if (strcmp(name, "postgres") == 0)
        return SF_SQL_POSTGRES;
    assert_string_equal(name, "mysql");
    return SF_SQL_MYSQL;
}

/* Folder of the servers. */
static void servers_folder(char out[128])
{
    const char *file = getenv("SF_SQL_SERVERS");
    FILE *f = file == NULL ? NULL : fopen(file, "r");

    if (f == NULL || fgets(out, 128, f) == NULL)
        fail_msg("no SQL servers: SF_SQL_SERVERS must name the file that tools/sql-servers wrote");
    (void)fclose(f);
    out[strcspn(out, "\n")] = '\0';
}

/* The last connection: making one is dear at PostgreSQL. */
static PGconn *pg_kept;

static void pg_forget(void)
{
    PQfinish(pg_kept);
    pg_kept = NULL;
}

static PGconn *pg_open(const char *host, const char *database)
{
    const char *const keys[] = {"host", "user", "dbname", NULL};
    const char *const values[] = {host, "postgres", database, NULL};

    if (pg_kept == NULL || PQstatus(pg_kept) != CONNECTION_OK ||
        strcmp(PQdb(pg_kept), database) != 0 || strcmp(PQhost(pg_kept), host) != 0) {
        pg_forget();
        pg_kept = PQconnectdbParams(keys, values, 0);
    }
    return pg_kept;
}

static bool pg_raw(const char *host, const char *database, const char *sql, char *out, size_t size)
{
    PGconn *pg = pg_open(host, database);
    PGresult *result = PQexec(pg, sql);
    ExecStatusType status = PQresultStatus(result);
    bool ok = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;

    if (!ok)
        (void)snprintf(out, size, "%s", PQerrorMessage(pg));
    else if (status == PGRES_TUPLES_OK && PQntuples(result) > 0)
        (void)snprintf(out, size, "%s", PQgetvalue(result, 0, 0));
    PQclear(result);
    return ok;
}

static bool my_raw(const char *socket, const char *database, const char *sql, char *out,
                   size_t size)
{
    MYSQL *my = mysql_init(NULL);
    bool ok = mysql_real_connect(my, NULL, "root", "", database, 0, socket, 0) != NULL &&
              mysql_set_character_set(my, "utf8mb4") == 0 &&
              mysql_real_query(my, sql, strlen(sql)) == 0;

    if (ok) {
        MYSQL_RES *rows = mysql_store_result(my);
        MYSQL_ROW row = rows == NULL ? NULL : mysql_fetch_row(rows);
        if (row != NULL && row[0] != NULL)
            (void)snprintf(out, size, "%s", row[0]);
        mysql_free_result(rows);
    } else {
        (void)snprintf(out, size, "%s", mysql_error(my));
    }
    mysql_close(my);
    return ok;
}

static int first_value(void *arg, int columns, char **values, char **names)
{
    char *out = arg;

    (void)names;
    if (out[0] == '\0' && values[columns - 1] != NULL) /* the last: a plan's text is there */
        (void)snprintf(out, 4096, "%s", values[columns - 1]);
    return 0;
}

static bool lite_raw(const char *path, const char *sql, char *out, size_t size)
{
    char value[4096] = "";
    char *message = NULL;
    sqlite3 *lite = NULL;

    assert_int_equal(sqlite3_open(path, &lite), SQLITE_OK);
    bool ok = sqlite3_exec(lite, sql, first_value, value, &message) == SQLITE_OK;
    (void)snprintf(out, size, "%s", ok ? value : message);
    sqlite3_free(message);
    (void)sqlite3_close(lite);
    return ok;
}

static bool raw(const struct sf_test_sql *db, const char *database, const char *sql, char *out,
                size_t size)
{
    out[0] = '\0';
    switch (db->where.kind) {
    case SF_SQL_POSTGRES:
        return pg_raw(db->host, database == NULL ? "postgres" : database, sql, out, size);
    case SF_SQL_MYSQL:
        return my_raw(db->host, database, sql, out, size);
    default:
        return lite_raw(db->path, sql, out, size);
    }
}

bool sf_test_sql_raw(const struct sf_test_sql *db, const char *sql, char *out, size_t size)
{
    return raw(db, db->database, sql, out, size);
}

static void admin(const struct sf_test_sql *db, const char *fmt)
{
    char sql[256], out[512];

    (void)snprintf(sql, sizeof(sql), "%s %s%s", fmt, db->database,
                   fmt[0] == 'D' && db->where.kind == SF_SQL_POSTGRES ? " WITH (FORCE)" : "");
    if (!raw(db, NULL, sql, out, sizeof(out)))
        fail_msg("%s: %s", sql, out);
}

/* Databases with the catalog's schema and without rows, for the next test of this program: making
 * the tables anew for each would take most of its time. */
static struct {
    char names[8][64];
    size_t count;
} pool;

static void make_server(struct sf_test_sql *db, bool reuse)
{
    static atomic_uint next;
    char folder[128];

    servers_folder(folder);
    (void)snprintf(db->host, sizeof(db->host), "%s/%s", folder,
                   db->where.kind == SF_SQL_POSTGRES ? "pg" : "my/sock");
    (void)snprintf(db->password_file, sizeof(db->password_file), "%s/secret", folder);
    db->where.server = (struct sf_sql_server){.host = db->host,
                                              .database = db->database,
                                              .user = "sf",
                                              .password_file = db->password_file};
    db->reuse = reuse;
    if (reuse && pool.count > 0) {
        memcpy(db->database, pool.names[--pool.count], sizeof(db->database));
        return;
    }
    (void)snprintf(db->database, sizeof(db->database), "t%ld_%u", (long)getpid(),
                   atomic_fetch_add(&next, 1));
    admin(db, "CREATE DATABASE");
}

void sf_test_sql_make(struct sf_test_sql *db, bool in_memory)
{
    *db = (struct sf_test_sql){.where = {.kind = sf_test_sql_kind()}};
    if (db->where.kind != SF_SQL_SQLITE) {
        make_server(db, in_memory);
    } else if (!in_memory) {
        sf_tempdir_make(db->folder);
        (void)snprintf(db->path, sizeof(db->path), "%s/p.sqlite", db->folder);
        db->where.path = db->path;
    }
}

/* Removes all rows but those of the schema's own tables. */
static void delete_rows(const struct sf_test_sql *db)
{
    char query[512], list[4096], out[512], sql[160];
    bool pg = db->where.kind == SF_SQL_POSTGRES;

    (void)snprintf(query, sizeof(query),
                   "SELECT %s FROM information_schema.tables WHERE table_schema = %s"
                   " AND table_name NOT LIKE 'schema_migrations%%'"
                   " AND table_name NOT LIKE 'schema_write_lock%%'",
                   pg ? "string_agg('DELETE FROM ' || table_name, ';')"
                      : "group_concat(table_name)",
                   pg ? "current_schema()" : "database()");
    assert_true(sf_test_sql_raw(db, query, list, sizeof(list)));
    if (pg) { /* a connection is dear there: all at once */
        if (list[0] != '\0' && !sf_test_sql_raw(db, list, out, sizeof(out)))
            fail_msg("%s: %s", list, out);
        return;
    }
    for (char *save = NULL, *name = strtok_r(list, ",", &save); name != NULL;
         name = strtok_r(NULL, ",", &save)) {
        (void)snprintf(sql, sizeof(sql), "DELETE FROM %s", name);
        if (!sf_test_sql_raw(db, sql, out, sizeof(out)))
            fail_msg("%s: %s", sql, out);
    }
}

void sf_test_sql_empty(struct sf_test_sql *db)
{
    char path[SF_TEMPDIR_BYTES + 32];

    if (db->where.kind != SF_SQL_SQLITE && db->reuse) {
        delete_rows(db);
        return;
    }
    if (db->where.kind != SF_SQL_SQLITE) {
        admin(db, "DROP DATABASE");
        admin(db, "CREATE DATABASE");
        return;
    }
    for (size_t i = 0; db->folder[0] != '\0' && i < 3; i++) {
        (void)snprintf(path, sizeof(path), "%s%s", db->path,
                       i == 0   ? ""
                       : i == 1 ? "-wal"
                                : "-shm");
        (void)unlink(path);
    }
}

void sf_test_sql_drop(struct sf_test_sql *db)
{
    if (db->where.kind == SF_SQL_SQLITE) {
        if (db->folder[0] != '\0')
            sf_tempdir_remove(db->folder);
    } else if (db->reuse && pool.count < sizeof(pool.names) / sizeof(pool.names[0])) {
        delete_rows(db);
        memcpy(pool.names[pool.count++], db->database, sizeof(db->database));
    } else {
        admin(db, "DROP DATABASE");
    }
}

void sf_test_sql_cut(const struct sf_test_sql *db)
{
    char sql[256], out[256];

    if (db->where.kind == SF_SQL_POSTGRES) {
        (void)snprintf(sql, sizeof(sql),
                       "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
                       " WHERE datname = '%s'",
                       db->database);
        assert_true(raw(db, NULL, sql, out, sizeof(out)));
        return;
    }
    assert_int_equal(db->where.kind, SF_SQL_MYSQL);
    (void)snprintf(sql, sizeof(sql),
                   "SELECT id FROM information_schema.processlist WHERE db = '%s' AND"
                   " command <> 'Killed' LIMIT 1",
                   db->database);
    while (raw(db, NULL, sql, out, sizeof(out)) && out[0] != '\0') {
        char kill[300], ignored[256];
        (void)snprintf(kill, sizeof(kill), "KILL CONNECTION %s", out);
        (void)raw(db, NULL, kill, ignored, sizeof(ignored));
    }
}
