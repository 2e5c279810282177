/*
 * What a projection owes whatever database it is in: the same digest after a rebuild and on another
 * database, rows that do not change when they are shown again, transactions that stand or fall
 * whole when the process dies in one, pages by key.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "component/catalog/lineage_world.h"

static const SF_PB(ProjectionTableDigest) *
    table_of(const SF_PB(DigestProjectionResponse) * digest, const char *name)
{
    for (size_t i = 0; i < digest->n_tables; i++) {
        if (strcmp(digest->tables[i]->table, name) == 0)
            return digest->tables[i];
    }
    fail_msg("no table %s", name);
    return NULL;
}

/* Equal in every authoritative table; `all`: in the others too. */
static void same_digest(const SF_PB(DigestProjectionResponse) * a,
                        const SF_PB(DigestProjectionResponse) * b, bool all)
{
    for (size_t i = 0; i < a->n_tables; i++) {
        const SF_PB(ProjectionTableDigest) *x = a->tables[i];
        const SF_PB(ProjectionTableDigest) *y = table_of(b, x->table);
        assert_int_equal(x->authoritative, y->authoritative);
        if (!all && !x->authoritative)
            continue;
        if (x->row_count != y->row_count || strcmp(x->sha256, y->sha256) != 0)
            fail_msg("%s: %lu rows %s, %lu rows %s", x->table, (unsigned long)x->row_count,
                     x->sha256, (unsigned long)y->row_count, y->sha256);
    }
    assert_string_equal(a->sha256, b->sha256);
}

/* A bit of everything that leaves rows; returns the first namespace. */
static uint64_t fill(struct world *w)
{
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t other = world_namespace(w, "n2", "\xc3\xa4lpha \xf0\x9f\x98\x80");
    SF_PB(PutNamespaceMetadataRequest) *update = world_namespace_request(w, "n3", "alpha");

    update->options = world_options(w, "b \"quoted\"\\", "caf\xc3\xa9 \x7f <&> 1e400");
    assert_non_null(world_call(w, "PutNamespaceMetadata", update));
    assert_non_null(world_call(w, "PutNamespaceMetadata", update)); /* answered, not done again */
    uint64_t books = world_collection(w, "c1", ns, "books");
    uint64_t gone = world_collection(w, "c2", ns, "gone");
    (void)world_collection(w, "c3", other, "books");
    world_schema(w, "s1", ns, books, 1, "tok-1");
    world_ready(w, ns, books, 1, "tok-1");
    world_schema(w, "s2", ns, books, 2, "tok-2");
    assert_int_equal(lineage_drop(w, "d1", ns, gone, NULL), DROPPED);
    return ns;
}

/* ---- digests ------------------------------------------------------------------------------ */

static void test_digest_survives_a_rebuild(void **state)
{
    struct world *w = *state;

    SF_PROVES("CCS-5.1-05", "CCS-5.1-12");
    uint64_t ns = fill(w);
    const char *answers = world_answers(w, ns);
    const SF_PB(DigestProjectionResponse) *live = world_digest(w);
    assert_int_equal(table_of(live, "namespaces")->row_count, 2);
    assert_int_equal(table_of(live, "collections")->row_count, 3);
    assert_int_equal(table_of(live, "schema_generations")->row_count, 2);
    assert_int_equal(table_of(live, "collection_tombstones")->row_count, 1);
    assert_int_equal(table_of(live, "catalog_replay_index")->row_count, 9);
    world_restart(w);
    same_digest(live, world_digest(w), false);
    world_rebuild(w);
    same_digest(live, world_digest(w), false);
    assert_string_equal(world_answers(w, ns), answers);
    /* one more row, one other digest */
    (void)world_namespace(w, "n9", "gamma");
    assert_string_not_equal(world_digest(w)->sha256, live->sha256);
}

/* The rebuild of one store has one digest: here, and in SQLite in memory. */
static void test_digest_is_the_same_on_every_database(void **state)
{
    struct world *w = *state;
    struct sf_sql *here = w->sql;
    const struct sf_sql_options memory = {.kind = SF_SQL_SQLITE};

    SF_PROVES("CCS-5.1-04");
    (void)fill(w);
    world_rebuild(w);
    here = w->sql;
    const SF_PB(DigestProjectionResponse) *first = world_digest(w);
    world_stop(w);
    assert_int_equal(sf_catalog_projection_open_at(&memory, &w->diag, &w->sql), SF_OK);
    assert_int_equal(world_open(w), SF_OK);
    same_digest(first, world_digest(w), false);
    world_stop(w);
    sf_sql_close(w->sql);
    w->sql = here;
}

/* ---- idempotence -------------------------------------------------------------------------- */

/* Takes every shard's watermark back to before the first segment. */
static void lower_watermarks(struct world *w)
{
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_WRITE);
    struct sf_sql_stmt *stmt;
    assert_int_equal(
        sf_sql_prepare(conn, "UPDATE catalog_lane_shards SET watermark = ?1", &w->diag, &stmt),
        SF_OK);
    sf_sql_bind_u64(stmt, 1, 0);
    assert_int_equal(sf_sql_run(stmt, &w->diag, NULL), SF_OK);
    sf_sql_release(conn);
}

/* Every record is shown again, first beside its replay row, then without it. */
static void test_rows_shown_again_do_not_change(void **state)
{
    struct world *w = *state;

    SF_PROVES("CCS-5.1-11");
    (void)fill(w);
    const SF_PB(DigestProjectionResponse) *before = world_digest(w);
    for (int i = 0; i < 2; i++) {
        world_stop(w);
        lower_watermarks(w);
        assert_int_equal(world_open(w), SF_OK);
        same_digest(before, world_digest(w), false);
    }
    for (int i = 0; i < 2; i++) {
        world_stop(w);
        lower_watermarks(w);
        world_execute(w, "DELETE FROM catalog_replay_index");
        assert_int_equal(world_open(w), SF_OK);
        same_digest(before, world_digest(w), false);
    }
}

/* The index is no ledger: truncated, it comes back from the records. */
static void test_truncated_index(void **state)
{
    struct world *w = *state;

    SF_PROVES("CCS-5.6-04");
    (void)fill(w);
    const SF_PB(DigestProjectionResponse) *before = world_digest(w);
    world_stop(w);
    world_execute(w, "DELETE FROM catalog_replay_index; DELETE FROM catalog_lane_shards");
    assert_int_equal(world_open(w), SF_OK);
    same_digest(before, world_digest(w), false);
}

/* ---- a process that dies ------------------------------------------------------------------ */

/* Dies at the `countdown`-th commit from now on. */
struct killer {
    struct sf_sql_faults base;
    int countdown; /* < 0: never */
};

static enum sf_err kill_at(struct sf_sql_faults *faults)
{
    struct killer *killer = SF_CONTAINER_OF(faults, struct killer, base);

    if (killer->countdown >= 0 && killer->countdown-- == 0)
        (void)raise(SIGKILL);
    return SF_OK;
}

/* In a child: creates a namespace, then dies in the transaction of a collection. */
static void child(struct sf_test_sql *place, bool before)
{
    static struct killer killer = {.countdown = -1};

    if (before)
        killer.base.before_commit = kill_at;
    else
        killer.base.after_commit = kill_at;
    place->where.faults = &killer.base;
    struct world *w = world_new_at(true, place);
    uint64_t ns = world_namespace(w, "n1", "alpha");
    killer.countdown = 0;
    (void)world_call(w, "PutCollectionMetadata", world_collection_request(w, "c1", ns, "books"));
    _exit(0);
}

static uint64_t count(struct sf_sql *sql, const char *query)
{
    struct sf_sql_conn *conn = sf_sql_acquire(sql, NULL, SF_SQL_READ);
    struct sf_sql_stmt *stmt;
    struct sf_diag diag;
    bool row = false;

    assert_int_equal(sf_sql_prepare(conn, query, &diag, &stmt), SF_OK);
    assert_int_equal(sf_sql_step(stmt, &diag, &row), SF_OK);
    assert_true(row);
    uint64_t value = (uint64_t)sf_sql_col_i64(stmt, 0);
    sf_sql_release(conn);
    return value;
}

static void test_killed_in_a_transaction(void **state)
{
    (void)state;
    SF_PROVES("CCS-5.1-06");
    for (int before = 0; before < 2; before++) {
        struct sf_test_sql place;
        struct sf_sql *sql;
        struct sf_diag diag;
        int status = 0;
        sf_test_sql_make(&place, false);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            child(&place, before == 1);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        place.where.faults = NULL;
        assert_int_equal(sf_catalog_projection_open_at(&place.where, &diag, &sql), SF_OK);
        uint64_t rows = before == 1 ? 0 : 1;
        assert_int_equal(count(sql, "SELECT COUNT(*) FROM namespaces"), 1);
        assert_int_equal(count(sql, "SELECT COUNT(*) FROM collections"), rows);
        assert_int_equal(count(sql, "SELECT COUNT(*) FROM collection_name_epochs"), rows);
        assert_int_equal(count(sql, "SELECT COUNT(*) FROM catalog_replay_index"), 1 + rows);
        sf_sql_close(sql);
        sf_test_sql_drop(&place);
    }
}

/* ---- pages -------------------------------------------------------------------------------- */

static const SF_PB(ListCollectionsResponse) *
    page_of(struct world *w, uint64_t ns, uint32_t size, const char *token)
{
    SF_PB(ListCollectionsRequest) list;
    SF_PB(PageRequest) page;
    searchfabric__v1__list_collections_request__init(&list);
    searchfabric__v1__page_request__init(&page);
    list.meta = world_meta(w, "", SF_PBE(CLIENT_KIND, CONTROL_ADMIN));
    list.namespace_id = ns;
    list.page = &page;
    page.page_size = size;
    page.page_token = (char *)(uintptr_t)token;
    const void *answer = world_call(w, "ListCollections", &list);
    assert_non_null(answer);
    return answer;
}

/* A page shows the projection as it is when it is asked for. */
static void test_pages_are_live(void **state)
{
    struct world *w = *state;

    SF_PROVES("CCS-10.2-18");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    (void)world_collection(w, "c1", ns, "a");
    (void)world_collection(w, "c2", ns, "b");
    uint64_t d = world_collection(w, "c3", ns, "d");
    (void)world_collection(w, "c4", ns, "f");
    const SF_PB(ListCollectionsResponse) *first = page_of(w, ns, 2, "");
    assert_int_equal(first->n_collections, 2);
    (void)world_collection(w, "c5", ns, "e");
    assert_int_equal(lineage_drop(w, "d1", ns, d, NULL), DROPPED);
    const SF_PB(ListCollectionsResponse) *second = page_of(w, ns, 0, first->next_page->token);
    assert_int_equal(second->n_collections, 2);
    assert_string_equal(second->collections[0]->collection_name, "e");
    assert_string_equal(second->collections[1]->collection_name, "f");
}

/* Names that nobody touches appear once each, whatever happens between two pages. */
static void test_churn_between_pages(void **state)
{
    struct world *w = *state;
    unsigned seen[40] = {0};
    const char *token = "";
    unsigned round = 0;

    SF_PROVES("CCS-10.2-19");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    for (unsigned i = 0; i < SF_ARRAY_LEN(seen); i++) {
        char name[16];
        snprintf(name, sizeof(name), "keep-%02u", i);
        (void)world_collection(w, name, ns, name);
    }
    do {
        const SF_PB(ListCollectionsResponse) *page = page_of(w, ns, round == 0 ? 3 : 0, token);
        for (size_t i = 0; i < page->n_collections; i++) {
            unsigned at = 0;
            if (sscanf(page->collections[i]->collection_name, "keep-%02u", &at) == 1 &&
                strlen(page->collections[i]->collection_name) == 7)
                seen[at]++;
        }
        token = page->next_page->token;
        char name[32], key[32];
        for (unsigned n = 0; n < 3; n++) { /* before, at and behind the page */
            snprintf(name, sizeof(name), "keep-%02u-%u", (round * 3 + n * 2) % 40, round);
            snprintf(key, sizeof(key), "x%u-%u", round, n);
            uint64_t id = world_collection(w, key, ns, name);
            snprintf(key, sizeof(key), "y%u-%u", round, n);
            if (n != 1)
                assert_int_equal(lineage_drop(w, key, ns, id, NULL), DROPPED);
        }
        round++;
    } while (token[0] != '\0' && round < 200);
    for (unsigned i = 0; i < SF_ARRAY_LEN(seen); i++)
        assert_int_equal(seen[i], 1);
}

/* The plan of a page walks the name key from the last name on: no sort, no offset. */
static void test_plan_of_a_page(void **state)
{
    struct world *w = *state;
    char sql[4096], plan[4096];
    static const char *const arguments[] = {"1", "'a'", "'c5'", "10", "'d'"};

    SF_PROVES("CCS-5.1-10");
    uint64_t ns = world_namespace(w, "n1", "alpha");
    for (int i = 0; i < 60; i++) {
        char name[16];
        snprintf(name, sizeof(name), "c%d", i);
        (void)world_collection(w, name, ns, name);
    }
    struct sf_buf text = {0};
    const char *page = sf_catalog_sql_collection_page(true);
    assert_null(strstr(page, "OFFSET"));
    for (const char *at = page; *at != '\0'; at++) {
        if (*at == '?')
            sf_buf_append_str(&text, arguments[*++at - '1']);
        else
            sf_buf_append(&text, at, 1);
    }
    if (w->place.where.kind == SF_SQL_SQLITE) {
        static char explain[4096]; /* the statement cache knows it by address */
        snprintf(explain, sizeof(explain), "EXPLAIN QUERY PLAN %.*s", (int)text.len,
                 (const char *)text.data);
        sf_buf_fini(&text);
        struct sf_sql_stmt *stmt;
        bool row = false;
        struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_READ);
        assert_int_equal(sf_sql_prepare(conn, explain, &w->diag, &stmt), SF_OK);
        assert_int_equal(sf_sql_step(stmt, &w->diag, &row), SF_OK);
        struct sf_view detail = sf_sql_col_text(stmt, 3);
        snprintf(plan, sizeof(plan), "%.*s", (int)detail.len, (const char *)detail.ptr);
        assert_non_null(strstr(plan, "USING INDEX"));
        assert_non_null(
            strstr(plan, "(namespace_id=? AND collection_name>? AND collection_name<?)"));
        assert_int_equal(sf_sql_step(stmt, &w->diag, &row), SF_OK);
        assert_false(row); /* no sort */
        sf_sql_release(conn);
        return;
    }
    bool pg = w->place.where.kind == SF_SQL_POSTGRES;
    snprintf(sql, sizeof(sql), "%s%.*s",
             pg ? "SET enable_seqscan = off; EXPLAIN (FORMAT JSON) " : "EXPLAIN FORMAT=JSON ",
             (int)text.len, (const char *)text.data);
    sf_buf_fini(&text);
    if (!sf_test_sql_raw(&w->place, sql, plan, sizeof(plan)))
        fail_msg("%s", plan);
    if (strstr(plan, "uk_namespace_collection_name") == NULL || strstr(plan, "Sort") != NULL ||
        strstr(plan, "filesort") != NULL)
        fail_msg("%s", plan);
}

#define WORLD(fn) cmocka_unit_test_setup_teardown(fn, world_setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_killed_in_a_transaction), /* first: it forks, the others have threads */
        WORLD(test_digest_survives_a_rebuild),
        WORLD(test_digest_is_the_same_on_every_database),
        WORLD(test_rows_shown_again_do_not_change),
        WORLD(test_truncated_index),
        WORLD(test_pages_are_live),
        WORLD(test_churn_between_pages),
        WORLD(test_plan_of_a_page),
    };
    return SF_RUN_TESTS("projection", tests);
}
