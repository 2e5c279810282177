/*
 * Rows of the projection's tables as messages of durable.proto, whole and both ways: what a
 * checkpoint holds, what a rebuild writes back and what the check compares. One table is one entry
 * in catalog_rows_tables.c: its columns with the fields that hold them. A new column is one line
 * there, a new table one entry and a repeated field of CheckpointShardObject.
 */
#ifndef SF_CATALOG_ROWS_H
#define SF_CATALOG_ROWS_H

#include "catalog/catalog_priv.h"

#define SF_CATALOG_KEY_COLUMNS 3 /* most key columns of a table */

/* The tables in the order in which they are written and read back: a replay row is judged by the
 * rows before it. */
enum sf_catalog_table {
    SF_CATALOG_TABLE_NAMESPACES,
    SF_CATALOG_TABLE_COLLECTIONS,
    SF_CATALOG_TABLE_GENERATIONS,
    SF_CATALOG_TABLE_TOMBSTONES,
    SF_CATALOG_TABLE_QUOTA,
    SF_CATALOG_TABLE_NAMESPACE_NAMES,
    SF_CATALOG_TABLE_COLLECTION_NAMES,
    SF_CATALOG_TABLE_REPLAY,
    SF_CATALOG_TABLE_COUNT
};

/* Where a walk over a table stands. Zero-initialise; end with sf_catalog_cursor_fini. */
struct sf_catalog_cursor {
    bool started; /* a row was read */
    bool ended;   /* no row is left */
    bool skips;   /* rows that do not decode are told and passed, derived columns compared */
    size_t level; /* key columns that the next query fixes */
    uint64_t numbers[SF_CATALOG_KEY_COLUMNS];    /* key of the last row read */
    struct sf_buf texts[SF_CATALOG_KEY_COLUMNS]; /* the same, of text columns */
};
void sf_catalog_cursor_fini(struct sf_catalog_cursor *cursor);

/* Sets a fresh cursor before the first row of a namespace; the walk goes on past its last. Of a
 * table whose first key column is namespace_id. */
void sf_catalog_cursor_before(struct sf_catalog_cursor *cursor, enum sf_catalog_table table,
                              uint64_t namespace_id);

/* Namespace of a row by its key, 0 = its key names none. */
uint64_t sf_catalog_row_namespace(enum sf_catalog_table table, const ProtobufCMessage *row);

/* Rows of one read. */
struct sf_catalog_batch {
    ProtobufCMessage **rows; /* in the arena */
    size_t count;            /* of them */
    bool *odd;               /* a derived column says something else; of a cursor that skips */
    char **broken;           /* keys of rows that were passed, "a/b"; in the arena */
    size_t broken_count;     /* of them */
    size_t
        text_bytes; /* of their text columns; their JSON is about that and some 100 bytes a row */
};

/* SQL name of a table; name of its repeated field in CheckpointShardObject. */
const char *sf_catalog_table_name(enum sf_catalog_table table);
const char *sf_catalog_table_field(enum sf_catalog_table table);

/* Reads on in key order, at most `max_rows` rows (1..1000), ending after the row that passes
 * `max_bytes` of text. On a connection in a transaction. cursor->ended: that was the last. Errors:
 * SF_ERR_CORRUPT (a row that does not decode, unless the cursor skips them), SF_ERR_LIMIT (arena),
 * those of SQL. */
SF_MUST_USE enum sf_err sf_catalog_rows_read(struct sf_sql_conn *conn, enum sf_catalog_table table,
                                             struct sf_catalog_cursor *cursor, size_t max_rows,
                                             size_t max_bytes, struct sf_arena *arena,
                                             struct sf_diag *diag,
                                             struct sf_catalog_batch *out_batch);

/* Inserts a row; one with the same key is SF_ERR_EXISTS. In a transaction of the writer. */
SF_MUST_USE enum sf_err sf_catalog_rows_insert(struct sf_sql_conn *conn,
                                               enum sf_catalog_table table,
                                               const ProtobufCMessage *row, struct sf_diag *diag);

/* Removes the row with the key of `row`; harmless without one. */
SF_MUST_USE enum sf_err sf_catalog_rows_delete(struct sf_sql_conn *conn,
                                               enum sf_catalog_table table,
                                               const ProtobufCMessage *row, struct sf_diag *diag);

/* The row with the key of `like`, NULL when there is none. */
SF_MUST_USE enum sf_err sf_catalog_rows_find(struct sf_sql_conn *conn, enum sf_catalog_table table,
                                             const ProtobufCMessage *like, struct sf_arena *arena,
                                             struct sf_diag *diag, ProtobufCMessage **out_row);

/* The same; *out_odd: a derived column does not say what the row's message says. */
SF_MUST_USE enum sf_err sf_catalog_rows_look(struct sf_sql_conn *conn, enum sf_catalog_table table,
                                             const ProtobufCMessage *like, struct sf_arena *arena,
                                             struct sf_diag *diag, ProtobufCMessage **out_row,
                                             bool *out_odd);

#endif
