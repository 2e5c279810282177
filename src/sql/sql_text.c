/*
 * Statement texts: placeholders of each dialect, and scripts cut into statements. Our texts hold no
 * comments with quotes and no literals with ';', so quotes are all that has to be skipped.
 */
#include "sql/sql_priv.h"

size_t sql_placeholders(const char *sql, enum sf_sql_kind kind, struct sf_buf *out,
                        uint8_t out_order[SQL_MAX_BINDINGS])
{
    size_t count = 0;
    bool quoted = false;

    while (*sql != '\0') {
        if (*sql == '\'')
            quoted = !quoted;
        if (quoted || *sql != '?') {
            sf_buf_append(out, sql++, 1);
            continue;
        }
        unsigned index = 0;
        for (sql++; *sql >= '0' && *sql <= '9'; sql++)
            index = index * 10 + (unsigned)(*sql - '0');
        SF_ASSERT(index >= 1 && index <= SQL_MAX_BINDINGS && count < SQL_MAX_BINDINGS);
        if (kind == SF_SQL_POSTGRES)
            sf_buf_printf(out, "$%u", index);
        else
            sf_buf_append_str(out, "?");
        out_order[count++] = (uint8_t)index;
    }
    sf_buf_append(out, "", 1);
    return count;
}

bool sql_next_statement(const char **script, struct sf_view *out_statement)
{
    *script += strspn(*script, "; \n");
    size_t len = strcspn(*script, ";");
    *out_statement = sf_view_bytes(*script, len);
    *script += len;
    return len != 0;
}
