/*
 * The tables behind catalog_rows.h: columns, and what is derived of them once. Private to
 * catalog_rows.c and catalog_rows_tables.c.
 */
#ifndef SF_CATALOG_ROWS_PRIV_H
#define SF_CATALOG_ROWS_PRIV_H

#include "catalog/catalog_rows.h"

#define SF_ROWS_COLUMNS 32 /* of a table, at most */
#define SF_ROWS_PATH    3  /* steps of a field's path, at most */

/* How a column is coded. */
enum sf_rows_kind {
    SF_ROWS_U64,
    SF_ROWS_I64,
    SF_ROWS_SMALL,         /* enum or 32-bit number as a plain number */
    SF_ROWS_TEXT,          /* string */
    SF_ROWS_ENUM,          /* enum as text, without its prefix */
    SF_ROWS_JSON,          /* message */
    SF_ROWS_JSON_OR_EMPTY, /* message, "{}" when absent */
    SF_ROWS_JSON_REQUIRED, /* message; a row without it is broken */
    SF_ROWS_SYNC           /* schema sync state: three columns */
};

/* One column of a table; where it is coded as several in SQL, all of them. */
struct sf_rows_column {
    const char *name;       /* in SQL; for SF_ROWS_SYNC the first of the three */
    enum sf_rows_kind kind; /* how it is coded */
    const char *field;      /* path in the row message, NULL = always NULL or fixed */
    const char *prefix;     /* SF_ROWS_ENUM: of the enumerators */
    bool derived;           /* written, not read */
};

/* One table. */
struct sf_rows_table {
    const char *name;                      /* in SQL */
    const char *field;                     /* in CheckpointShardObject */
    const ProtobufCMessageDescriptor *row; /* of its message */
    size_t key_count;                      /* the first columns */
    const struct sf_rows_column *columns;  /* all of them, in the table's order of reading */
    size_t column_count;                   /* of them */
};

/* A column's fields, found once. */
struct sf_rows_path {
    const ProtobufCFieldDescriptor *steps[SF_ROWS_PATH]; /* from the row inward */
    size_t depth;                                        /* steps used */
};

/* What is derived of a table, made once. */
struct sf_rows_prepared {
    struct sf_rows_path paths[SF_ROWS_COLUMNS]; /* by column */
    char *select[SF_CATALOG_KEY_COLUMNS + 2];   /* by number of fixed keys; [0]: from the start,
                                                   [n]: key n beyond; last: one row */
    char *insert;                               /* of one row */
    char *remove;                               /* of one row, by its key */
};

extern const struct sf_rows_table sf_rows_tables[SF_CATALOG_TABLE_COUNT];

/* By table; valid after sf_rows_prepare. */
extern struct sf_rows_prepared sf_rows_prepared[SF_CATALOG_TABLE_COUNT];

/* Fills sf_rows_prepared on the first call. Any thread. */
void sf_rows_prepare(void);

/* Number of SQL columns of a column. */
int sf_rows_span(const struct sf_rows_column *column);

#endif
