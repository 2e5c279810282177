/* Copies SQLite's write-ahead log back into its file beside the writer. */
#ifndef SF_SQL_SQLITE_COPIER_H
#define SF_SQL_SQLITE_COPIER_H

#include <sqlite3.h>

struct sql_copier;

/* Takes over what the writer's automatic checkpoints did; owns `link`, a further connection to the
 * same file. */
struct sql_copier *sql_copier_start(sqlite3 *writer, sqlite3 *link);

/* Ends the thread and closes its connection; the writer is not in use and is closed next. NULL is
 * fine. */
void sql_copier_stop(struct sql_copier *copier);

#endif
