/*
 * The statement of an upsert. PostgreSQL and SQLite: INSERT ... ON CONFLICT (key), overwriting only
 * where the guard grows. MySQL family: ON DUPLICATE KEY UPDATE with VALUES(), which MariaDB, MySQL
 * 8 and TiDB share. It has no condition, so every assignment carries the guard's; assignments take
 * effect from left to right, hence the guard column comes last. It also fires on any unique key:
 * the first assignment sets a key column to NULL when the row that was met has another key, and the
 * server refuses that. INSERT IGNORE would hide other errors, REPLACE would delete the row.
 */
#include "sql/sql_priv.h"

/* Cuts the next name off a ", "-separated list; false at its end. */
static bool next_name(const char **list, struct sf_view *out_name)
{
    while (**list == ',' || **list == ' ')
        (*list)++;
    size_t len = strcspn(*list, ", ");
    *out_name = sf_view_bytes(*list, len);
    *list += len;
    return len != 0;
}

static int width(struct sf_view name)
{
    return (int)name.len;
}

static const char *text(struct sf_view name)
{
    return (const char *)name.ptr;
}

static void append_insert(const struct sf_sql_upsert *upsert, struct sf_buf *out)
{
    const char *list = upsert->columns;
    struct sf_view name;

    sf_buf_printf(out, "INSERT INTO %s (%s) VALUES (", upsert->table, upsert->columns);
    for (int i = 1; next_name(&list, &name); i++)
        sf_buf_printf(out, "%s?%d", i == 1 ? "" : ", ", i);
    sf_buf_append_str(out, ")");
}

static void append_on_conflict(const struct sf_sql_upsert *upsert, struct sf_buf *out)
{
    const char *list = upsert->update;
    struct sf_view name;

    sf_buf_printf(out, " ON CONFLICT (%s) DO ", upsert->key);
    if (list == NULL) {
        sf_buf_append_str(out, "NOTHING");
        return;
    }
    sf_buf_append_str(out, "UPDATE SET ");
    for (bool first = true; next_name(&list, &name); first = false)
        sf_buf_printf(out, "%s%.*s = EXCLUDED.%.*s", first ? "" : ", ", width(name), text(name),
                      width(name), text(name));
    if (upsert->guard != NULL)
        sf_buf_printf(out, " WHERE EXCLUDED.%s > %s.%s", upsert->guard, upsert->table,
                      upsert->guard);
}

/* `c = <new value>`, under the guard's condition if there is one. */
static void append_assignment(const char *guard, struct sf_view name, struct sf_buf *out)
{
    if (guard == NULL)
        sf_buf_printf(out, ", %.*s = VALUES(%.*s)", width(name), text(name), width(name),
                      text(name));
    else
        sf_buf_printf(out, ", %.*s = IF(VALUES(%s) > %s, VALUES(%.*s), %.*s)", width(name),
                      text(name), guard, guard, width(name), text(name), width(name), text(name));
}

static void append_on_duplicate(const struct sf_sql_upsert *upsert, struct sf_buf *out)
{
    const char *list = upsert->key;
    struct sf_view name;
    struct sf_view first;

    (void)next_name(&list, &first);
    sf_buf_printf(out, " ON DUPLICATE KEY UPDATE %.*s = IF(", width(first), text(first));
    list = upsert->key;
    for (const char *join = ""; next_name(&list, &name); join = " AND ")
        sf_buf_printf(out, "%s%.*s = VALUES(%.*s)", join, width(name), text(name), width(name),
                      text(name));
    sf_buf_printf(out, ", %.*s, NULL)", width(first), text(first));
    for (list = upsert->update; list != NULL && next_name(&list, &name);) {
        if (upsert->guard == NULL || !sf_view_equal(name, sf_view_str(upsert->guard)))
            append_assignment(upsert->guard, name, out);
    }
    if (upsert->guard != NULL)
        append_assignment(upsert->guard, sf_view_str(upsert->guard), out);
}

void sql_upsert_text(const struct sf_sql_upsert *upsert, enum sf_sql_kind kind, struct sf_buf *out)
{
    SF_ASSERT(upsert->update != NULL || upsert->guard == NULL);
    append_insert(upsert, out);
    if (kind == SF_SQL_MYSQL)
        append_on_duplicate(upsert, out);
    else
        append_on_conflict(upsert, out);
    sf_buf_append(out, "", 1);
}
