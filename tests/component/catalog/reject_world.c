#include "component/catalog/reject_world.h"

#include <inttypes.h>
#include <stdio.h>

const char *reject_mark(struct world *w)
{
    struct sf_buf text = {0};
    struct sf_list_entry *entries = NULL;
    char hex[SF_SHA256_HEX_BYTES], after[SF_LIMIT_OBJECT_KEY_BYTES + 1] = "";
    size_t count;
    do {
        struct sf_arena *arena = sf_arena_new((size_t)8 << 20);
        assert_int_equal(sf_store_list_wait(w->truth, NULL, sf_view_str(""), sf_view_str(after),
                                            SF_LIMIT_LIST_PAGE_ENTRIES, arena, &entries, &count),
                         SF_OK);
        for (size_t i = 0; i < count; i++) {
            struct sf_buf body = {0};
            struct sf_etag etag;
            assert_int_equal(sf_store_get_wait(w->truth, NULL, entries[i].key, &body, &etag),
                             SF_OK);
            sf_buf_append(&text, entries[i].key.ptr, entries[i].key.len);
            sf_buf_printf(&text, " %s\n", etag.text);
            sf_buf_fini(&body);
            snprintf(after, sizeof(after), "%.*s", (int)entries[i].key.len,
                     (const char *)entries[i].key.ptr);
        }
        sf_arena_destroy(arena);
    } while (count == SF_LIMIT_LIST_PAGE_ENTRIES);
    struct sf_sql_stmt *stmt;
    bool row;
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_READ);
    assert_int_equal(sf_sql_prepare(conn, "SELECT total_changes()", &w->diag, &stmt), SF_OK);
    assert_int_equal(sf_sql_step(stmt, &w->diag, &row), SF_OK);
    sf_buf_printf(&text, "%" PRId64, sf_sql_col_i64(stmt, 0));
    sf_sql_finish(stmt);
    sf_sql_release(conn);
    sf_sha256_hex(sf_buf_view(&text), hex);
    sf_buf_fini(&text);
    return sf_arena_str(w->arena, sf_view_str(hex));
}
