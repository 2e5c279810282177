/*
 * The allocation epochs as a projection shows them: those of committed creates. A rebuild, and the
 * first start is one, takes them from the allocator objects, which may be one ahead: an epoch that
 * was reserved by a create that did not become APPLIED is taken again.
 */
#include "fault/catalog/ccs_history.h"

/* Last epoch of a name that a committed create took; ns_id 0: of a namespace name. */
static uint64_t committed_epoch(const struct history *h, uint64_t ns_id, const char *name)
{
    const struct state *s = h->states[h->command_count];
    uint64_t last = 0;
    if (ns_id == 0)
        return s->ns_epoch[name_index(name)];
    for (size_t i = 0; i < s->coll_count; i++) {
        if (s->coll[i].ns_id == ns_id && s->coll[i].name == name_index(name) &&
            s->coll[i].epoch > last)
            last = s->coll[i].epoch;
    }
    return last;
}

static size_t check_table(const struct history *h, struct sf_sql_conn *conn, const char *query)
{
    struct sf_sql_stmt *stmt;
    struct sf_diag diag;
    bool row = true;
    size_t committed = 0;
    enum sf_err err = sf_sql_prepare(conn, query, &diag, &stmt);
    SF_ASSERT(err == SF_OK);
    for (;;) {
        char name[16];
        err = sf_sql_step(stmt, &diag, &row);
        SF_ASSERT(err == SF_OK);
        if (!row)
            return committed;
        bool of_ns = sf_sql_col_is_null(stmt, 0);
        struct sf_view text = sf_sql_col_text(stmt, 1);
        snprintf(name, sizeof(name), "%.*s", (int)text.len, text.ptr);
        uint64_t ns_id = of_ns ? 0 : sf_sql_col_u64(stmt, 0);
        uint64_t shown = sf_sql_col_u64(stmt, 2);
        uint64_t last = committed_epoch(h, ns_id, name);
        committed += last != 0;
        if (shown < last || shown > last + 1)
            sim_violation(h->w->sim,
                          "a projection shows epoch %" PRIu64 " of %s in %" PRIu64
                          ", committed is %" PRIu64,
                          shown, name, ns_id, last);
    }
}

void check_epochs(const struct history *h, struct sf_sql *sql)
{
    const struct state *s = h->states[h->command_count];
    size_t wanted = 0;
    for (size_t i = 0; i < s->coll_count; i++)
        wanted += s->coll[i].epoch == 1;
    for (int i = 0; i < NS_NAMES; i++)
        wanted += s->ns_epoch[i] != 0;
    struct sf_sql_conn *conn = sf_sql_acquire(sql, NULL, SF_SQL_READ);
    size_t found = check_table(h, conn,
                               "SELECT NULL, namespace_name, last_allocated_epoch"
                               " FROM namespace_name_epochs");
    found += check_table(h, conn,
                         "SELECT namespace_id, collection_name, last_allocated_epoch"
                         " FROM collection_name_epochs");
    sf_sql_release(conn);
    if (found != wanted)
        sim_violation(h->w->sim, "%zu names have an epoch, a projection knows %zu", wanted, found);
}
