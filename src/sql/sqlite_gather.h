/*
 * SQLite writes each page of its write-ahead log in two pieces, a header and the page, neither of
 * them aligned: two system calls a page, and three pages of the kernel touched. This VFS lies over
 * the system's own and writes what a transaction appends to a log in large pieces.
 */
#ifndef SF_SQL_SQLITE_GATHER_H
#define SF_SQL_SQLITE_GATHER_H

#include <sqlite3.h>

/* Name of the VFS, for sqlite3_open_v2. */
#define SQL_GATHER_VFS "sf-gather"

/* Registers the VFS; once per process, before the first connection is opened with it. SQLITE_OK or
 * what SQLite says. */
int sql_gather_register(void);

#endif
