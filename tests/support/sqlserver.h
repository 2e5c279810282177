/*
 * Fresh databases for tests, on the kind that SF_TEST_PROJECTION names: sqlite (default), postgres,
 * mysql. The servers are those of tools/sql-servers; SF_SQL_SERVERS names the file that names their
 * folder. A test that needs a server and finds none fails.
 */
#ifndef SF_TESTS_SUPPORT_SQLSERVER_H
#define SF_TESTS_SUPPORT_SQLSERVER_H

#include "sql/sql.h"
#include "support/tempdir.h"

/* A database and how it is opened. */
struct sf_test_sql {
    struct sf_sql_options where;      /* kind, path or server; the rest is the test's to fill */
    char folder[SF_TEMPDIR_BYTES];    /* SQLite: holds the file */
    char path[SF_TEMPDIR_BYTES + 16]; /* SQLite: the file */
    char host[160];                   /* servers: socket */
    char database[64];                /* servers */
    char password_file[160];          /* servers */
    bool reuse;                       /* servers: kept, without rows, for the next test */
};

/* Kind under test. */
enum sf_sql_kind sf_test_sql_kind(void);

/* Makes an empty database. With `in_memory` SQLite needs no file, and on a server one of an earlier
 * test of this program is taken, whose schema stands and holds no rows. */
void sf_test_sql_make(struct sf_test_sql *db, bool in_memory);

/* Empties it: dropped and made again, or (`in_memory`) without rows. Nobody has it open. */
void sf_test_sql_empty(struct sf_test_sql *db);

/* Drops it. Nobody has it open. */
void sf_test_sql_drop(struct sf_test_sql *db);

/* Runs one statement past the interface, on a server (in its database) or on SQLite's file; the
 * first column of the first row goes to `out` (size bytes), empty without one. False on an error,
 * with its message in `out`. */
bool sf_test_sql_raw(const struct sf_test_sql *db, const char *sql, char *out, size_t size);

/* Cuts every connection to the database at the server. */
void sf_test_sql_cut(const struct sf_test_sql *db);

#endif
