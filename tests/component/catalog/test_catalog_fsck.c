/*
 * fsck finds each kind of difference: one is made by hand, the exact line is told, a dry run
 * changes nothing, a repair mends it, and the next run finds nothing. On every SQL backend.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "catalog/catalog_check.h"
#include "catalog/catalog_head.h"
#include "catalog/catalog_manifest.h"
#include "catalog/catalog_statistics.h"
#include "component/catalog/catalog_manifests.h"
#include "component/catalog/lineage_world.h"
#include "component/catalog/quota_world.h"
#include "rpc/rpc_priv.h"

/* ---- runs ---------------------------------------------------------------------------------- */

static const SF_PB(CheckCatalogResponse) * check_of(struct world *w, uint64_t ns, bool repair)
{
    SF_PB(CheckCatalogRequest) request;
    searchfabric__v1__check_catalog_request__init(&request);
    request.namespace_id = ns;
    request.repair = repair;
    const SF_PB(CheckCatalogResponse) *response = world_call(w, "CheckCatalog", &request);
    if (response == NULL)
        fail_msg("the check ends with %s: %s", sf_err_info(w->diag.err)->name, w->diag.message);
    return response;
}

static const SF_PB(CheckCatalogResponse) * check(struct world *w, bool repair)
{
    return check_of(w, 0, repair);
}

/* All findings, one a line: "PROBLEM kind subject key: explanation [repair]". */
static const char *lines_of(struct world *w, const SF_PB(CheckCatalogResponse) * response)
{
    struct sf_buf text = {0};
    for (size_t i = 0; i < response->n_findings; i++) {
        const SF_PB(CatalogFinding) *f = response->findings[i];
        sf_buf_printf(&text, "%s%s %s %s %s: %s [%s]", i == 0 ? "" : "\n",
                      f->problem ? "PROBLEM" : "harmless", f->kind, f->subject, f->key,
                      f->explanation, f->repair);
    }
    const char *out = sf_arena_str(w->arena, sf_buf_view(&text));
    sf_buf_fini(&text);
    return out;
}

/* Everything that a check could change: rows of every table, bytes of every object. */
static const char *everything(struct world *w)
{
    struct sf_buf text = {0};
    struct sf_list_entry *entries = NULL;
    size_t count = 0;
    sf_buf_append_str(&text, world_json(w, world_digest(w)));
    assert_int_equal(sf_store_list_wait(w->truth, NULL, sf_view_str("c"), sf_view_str(""), 1000,
                                        w->arena, &entries, &count),
                     SF_OK);
    assert_true(count < 1000);
    for (size_t i = 0; i < count; i++) {
        struct sf_buf body = {0};
        char hex[SF_SHA256_HEX_BYTES];
        assert_int_equal(sf_store_get_wait(w->truth, NULL, entries[i].key, &body, NULL), SF_OK);
        sf_sha256_hex(sf_buf_view(&body), hex);
        sf_buf_printf(&text, "\n%.*s %s", (int)entries[i].key.len, (const char *)entries[i].key.ptr,
                      hex);
        sf_buf_fini(&body);
    }
    const char *out = sf_arena_str(w->arena, sf_buf_view(&text));
    sf_buf_fini(&text);
    return out;
}

static const char *line(struct world *w, const char *format, ...)
{
    char text[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return world_text(w, text);
}

/* A dry run tells exactly `lines` and changes nothing. */
static void tells(struct world *w, const char *lines)
{
    const char *before = everything(w);
    const SF_PB(CheckCatalogResponse) *told = check(w, false);
    assert_string_equal(lines_of(w, told), lines);
    assert_true(told->repaired == 0);
    assert_string_equal(everything(w), before);
}

/* So it does, a repair mends all of it, and the next run finds nothing. */
static void mends(struct world *w, const char *lines)
{
    tells(w, lines);
    const SF_PB(CheckCatalogResponse) *done = check(w, true);
    if (done->repaired != done->problems)
        fail_msg("not all is mended: %s", lines_of(w, done));
    assert_true(done->n_findings > 0);
    for (size_t i = 0; i < done->n_findings; i++)
        assert_true(done->findings[i]->repaired);
    assert_string_equal(lines_of(w, check(w, true)), "");
}

/* ---- differences --------------------------------------------------------------------------- */

static const char *key_text(struct world *w, struct sf_buf *key)
{
    const char *text = sf_arena_str(w->arena, sf_buf_view(key));
    sf_buf_fini(key);
    return text;
}

static void lose(struct world *w, const char *key)
{
    assert_int_equal(sf_store_remove_wait(w->truth, NULL, sf_view_str(key)), SF_OK);
}

/* Rows of a checkpointed table, changed as messages: the same on every database. */
static ProtobufCMessage *row_of(struct world *w, enum sf_catalog_table table,
                                const ProtobufCMessage *like)
{
    ProtobufCMessage *row = NULL;
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_READ);
    assert_int_equal(sf_catalog_rows_find(conn, table, like, w->arena, &w->diag, &row), SF_OK);
    sf_sql_release(conn);
    return row;
}

static void set_row(struct world *w, enum sf_catalog_table table, const ProtobufCMessage *row,
                    bool there)
{
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_WRITE);
    assert_int_equal(sf_sql_begin(conn, &w->diag), SF_OK);
    assert_int_equal(sf_catalog_rows_delete(conn, table, row, &w->diag), SF_OK);
    if (there)
        assert_int_equal(sf_catalog_rows_insert(conn, table, row, &w->diag), SF_OK);
    assert_int_equal(sf_sql_commit(conn, &w->diag), SF_OK);
    sf_sql_release(conn);
    sf_catalog_flush(w->catalog);
}

static SF_PB(CollectionRow) * collection_row(struct world *w, uint64_t ns, uint64_t id)
{
    SF_PB(CollectionRow) like;
    searchfabric__v1__collection_row__init(&like);
    like.collection = world_ref(w, ns, id);
    SF_PB(CollectionRow) *row =
        (SF_PB(CollectionRow) *)row_of(w, SF_CATALOG_TABLE_COLLECTIONS, &like.base);
    assert_non_null(row);
    return row;
}

static uint64_t make(struct world *w, uint64_t *out_id)
{
    uint64_t ns = world_namespace(w, "n1", "alpha");
    *out_id = world_collection(w, "c1", ns, "books");
    world_schema(w, "s1", ns, *out_id, 1, "tok-1");
    world_ready(w, ns, *out_id, 1, "tok-1");
    return ns;
}

/* ---- drops --------------------------------------------------------------------------------- */

static const char *tombstone_key(struct world *w, uint64_t ns, uint64_t id)
{
    struct sf_buf key = {0};
    sf_catalog_key_tombstone(&key, ns, id, SF_CATALOG_DROP_REVISION);
    return key_text(w, &key);
}

#define RESTORED                                                                                   \
    "the collection was dropped and its name is reserved: its tombstone stands; a row does not "   \
    "show it; the tombstone is the truth [the rows of collection and tombstone are written from "  \
    "the objects]"
#define REWRITTEN "the object is the truth [the row is written again from the object]"

static void test_tombstones(void **state)
{
    struct world *w = *state;
    uint64_t id, ns = make(w, &id);
    assert_int_equal(lineage_drop(w, "d1", ns, id, NULL), DROPPED);
    assert_string_equal(lines_of(w, check(w, true)), "");
    const char *dump = world_dump(w), *key = tombstone_key(w, ns, id);
    world_execute(w, "DELETE FROM collection_tombstones");
    mends(w, line(w, "PROBLEM row_missing collection_tombstones %s: " RESTORED, key));
    assert_string_equal(world_dump(w), dump);
    world_execute(w, "UPDATE collections SET lifecycle_state = 'ACTIVE'");
    tells(w,
          line(w,
               "PROBLEM row_differs collections %s: the row differs from its object in "
               "drop_revision (1, should be nothing), dropped_at_unix_ms (%" PRId64
               ", should be nothing), gc_after_unix_ms (%" PRId64 ", should be nothing); " REWRITTEN
               "\nPROBLEM row_differs collections %s: " RESTORED,
               world_text(
                   w, lineage_record(w, KIND(PUT_COLLECTION_METADATA), 0)->control_objects[0]->key),
               WORLD_UNIX_MS, WORLD_UNIX_MS + GC_DELAY_MS, key));
    assert_true(check(w, true)->repaired == 2);
    assert_string_equal(lines_of(w, check(w, true)), "");
    assert_string_equal(world_dump(w), dump);
    world_execute(w, "UPDATE collections SET gc_after_unix_ms = 5");
    mends(w,
          line(w,
               "PROBLEM row_differs collections %s: the row differs from its object in "
               "gc_after_unix_ms (5, should be %" PRId64 "); " REWRITTEN,
               world_text(
                   w, lineage_record(w, KIND(PUT_COLLECTION_METADATA), 0)->control_objects[0]->key),
               WORLD_UNIX_MS + GC_DELAY_MS));
    assert_string_equal(world_dump(w), dump);
}

static SF_PB(TombstoneRow) * tombstone_row(struct world *w, uint64_t ns, uint64_t id)
{
    SF_PB(TombstoneRow) like;
    SF_PB(CollectionTombstoneObject) tombstone;
    searchfabric__v1__tombstone_row__init(&like);
    searchfabric__v1__collection_tombstone_object__init(&tombstone);
    like.tombstone = &tombstone;
    tombstone.collection = world_ref(w, ns, id);
    return (SF_PB(TombstoneRow) *)row_of(w, SF_CATALOG_TABLE_TOMBSTONES, &like.base);
}

/* What a tombstone's row says, what a release leaves, what nothing tells. */
static void test_tombstone_rows(void **state)
{
    struct world *w = *state;
    uint64_t id, ns = make(w, &id);
    const SF_PB(CollectionRow) *alive = collection_row(w, ns, id);
    assert_int_equal(lineage_drop(w, "d1", ns, id, NULL), DROPPED);
    const char *dump = world_dump(w), *key = tombstone_key(w, ns, id);
    SF_PB(TombstoneRow) *row = tombstone_row(w, ns, id);
    row->tombstone->gc_after_unix_ms = 7;
    set_row(w, SF_CATALOG_TABLE_TOMBSTONES, &row->base, true);
    mends(w, line(w,
                  "PROBLEM row_differs collection_tombstones %s: the row differs from its "
                  "object in tombstone.gc_after_unix_ms (7, should be %" PRId64 "); " REWRITTEN,
                  key, WORLD_UNIX_MS + GC_DELAY_MS));
    assert_string_equal(world_dump(w), dump);
    row = tombstone_row(w, ns, id);
    /* what was reported of the collection goes with its release */
    world_execute(w, "INSERT INTO collection_index_backlogs (namespace_id, collection_id,"
                     " schema_generation_token, unindexed_bytes, reported_at_unix_ms)"
                     " SELECT namespace_id, collection_id, 'tok-1', collection_id, 1"
                     " FROM collections;"
                     "INSERT INTO collection_observations (namespace_id, collection_id,"
                     " schema_generation_token, failed_repairs, observed_at_unix_ms)"
                     " SELECT namespace_id, collection_id, 'tok-1', 1, 1 FROM collections;");
    sf_clock_manual_advance(&w->clock, GC_DELAY_MS);
    assert_int_equal(lineage_sweep(w)->released_collection_names, 1);
    world_enrich(w);
    (void)world_job(w, "statistics");
    (void)world_job(w, "lifecycle-windows");
    const char *kept = line(w,
                            "harmless orphan_object optimizer_statistics_head catalog/%.2s/%" PRIu64
                            "/%" PRIu64 "/optimizer_statistics_head.json: the head of a "
                            "collection that has no row: its name was released; heads are not "
                            "deleted []",
                            key + strlen("catalog/"), ns, id);
    assert_string_equal(lines_of(w, check(w, true)), kept);
    dump = world_dump(w);
    set_row(w, SF_CATALOG_TABLE_TOMBSTONES, &row->base, true);
    const char *released = "a row shows a collection whose name was released; the release's record "
                           "is the truth [the rows of the released collection are deleted]";
    const SF_PB(CheckCatalogResponse) *done = check(w, false);
    assert_true(done->problems == 1);
    assert_string_equal(
        strstr(lines_of(w, done), "PROBLEM"),
        line(w, "PROBLEM row_unknown collection_tombstones %s: %s\n%s", key, released, kept));
    assert_true(check(w, true)->repaired == 1);
    assert_string_equal(world_dump(w), dump);
    set_row(w, SF_CATALOG_TABLE_COLLECTIONS, &alive->base, true);
    world_execute(w, "UPDATE collections SET lifecycle_state = 'TOMBSTONED'");
    done = check(w, true);
    assert_true(done->problems == 1 && done->repaired == 1);
    assert_string_equal(lines_of(w, done),
                        line(w, "PROBLEM row_unknown collections %s: %s\n%s", key, released, kept));
    assert_string_equal(world_dump(w), dump);
    assert_string_equal(lines_of(w, check(w, true)), kept);
}

static void test_tombstone_lost(void **state)
{
    struct world *w = *state;
    uint64_t id, ns = make(w, &id);
    assert_int_equal(lineage_drop(w, "d1", ns, id, NULL), DROPPED);
    lose(w, tombstone_key(w, ns, id));
    const SF_PB(CheckCatalogResponse) *found = check(w, true);
    assert_true(found->problems == 2 && found->repaired == 0);
    for (size_t i = 0; i < 2; i++)
        assert_string_equal(found->findings[i]->kind, "object_missing");
    assert_string_equal(found->findings[0]->subject, "collections");
    assert_string_equal(found->findings[1]->subject, "collection_tombstones");
}

/* ---- rows that were set back, or lost ------------------------------------------------------ */

static void test_generations(void **state)
{
    struct world *w = *state;
    uint64_t id, ns = make(w, &id);
    const char *dump = world_dump(w);
    struct sf_buf buf = {0};
    sf_catalog_key_generation(&buf, ns, id, 1, "tok-1");
    const char *key = key_text(w, &buf);
    world_execute(w, "DELETE FROM schema_generations");
    mends(w, line(w,
                  "PROBLEM row_missing schema_generations %s: the object stands and the table "
                  "has no such row; " REWRITTEN,
                  key));
    assert_string_equal(world_dump(w), dump);
    world_execute(w, "UPDATE collections SET active_schema_version = NULL,"
                     " active_schema_generation_token = NULL");
    mends(w, line(w,
                  "PROBLEM row_differs collections %s: the row differs from its object in "
                  "active_schema_version (nothing, should be 1), active_schema_generation_token "
                  "(nothing, should be \"tok-1\"); " REWRITTEN,
                  key));
    assert_string_equal(world_dump(w), dump);
}

/* The row says what an earlier revision said. */
static void test_set_back(void **state)
{
    struct world *w = *state;
    uint64_t id, ns = make(w, &id);
    SF_PB(CollectionRow) *elder = collection_row(w, ns, id);
    SF_PB(PutCollectionMetadataRequest) *put = world_collection_request(w, "c2", ns, "books");
    put->options = world_options(w, "x", "y");
    assert_non_null(world_call(w, "PutCollectionMetadata", put));
    assert_string_equal(lines_of(w, check(w, true)), "");
    const char *dump = world_dump(w);
    set_row(w, SF_CATALOG_TABLE_COLLECTIONS, &elder->base, true);
    struct sf_buf buf = {0};
    sf_catalog_key_collection(&buf, ns, id, 2);
    mends(w, line(w,
                  "PROBLEM row_differs collections %s: the row differs from its object in "
                  "descriptor_revision (1, should be 2), options; " REWRITTEN,
                  key_text(w, &buf)));
    assert_string_equal(world_dump(w), dump);
}

/* A row that does not decode ends no run: the others are judged. */
static void test_broken_row(void **state)
{
    struct world *w = *state;
    uint64_t id, ns = make(w, &id);
    (void)world_collection(w, "c2", ns, "more");
    (void)id;
    world_execute(w,
                  "UPDATE collections SET encryption_json = '{}' WHERE collection_name = 'books';"
                  "UPDATE collections SET updated_at_unix_ms = 5 WHERE collection_name = 'more'");
    const SF_PB(CheckCatalogResponse) *done = check(w, true);
    bool broken = false, mended = false;
    for (size_t i = 0; i < done->n_findings; i++) {
        const SF_PB(CatalogFinding) *f = done->findings[i];
        broken = broken || (strcmp(f->kind, "row_broken") == 0 && f->problem && !f->repaired &&
                            strcmp(f->key, line(w, "%" PRIu64 "/%" PRIu64, ns, id)) == 0);
        mended = mended || (strcmp(f->kind, "row_differs") == 0 && f->repaired);
    }
    assert_true(broken && mended && done->problems > done->repaired);
    world_rebuild(w);
    assert_true(check(w, false)->problems == 0);
}

/* Columns that only repeat what the row's message says. */
static void test_derived_columns(void **state)
{
    struct world *w = *state;
    uint64_t id, ns = make(w, &id);
    assert_non_null(lease(w, ns, "query_rcu", "gw-1", "r1", 10, 0));
    assert_int_equal(lineage_drop(w, "d1", ns, id, NULL), DROPPED);
    const char *digest = world_json(w, world_digest(w));
    const char *odd = "columns that follow from the row's own message say something else; the "
                      "message is the truth [the row is written again from its message]";
    world_execute(w, "UPDATE collection_tombstones SET drop_revision = drop_revision + 1;"
                     "UPDATE namespace_quota_state SET last_refill_at_unix_ms = 5;"
                     "UPDATE catalog_replay_index SET payload_fingerprint = 'x'"
                     " WHERE command_kind = 'DROP_COLLECTION'");
    mends(w, line(w,
                  "PROBLEM row_differs collection_tombstones %" PRIu64 "/%" PRIu64 ": %s\n"
                  "PROBLEM row_differs namespace_quota_state %" PRIu64 "/0: %s\n"
                  "PROBLEM row_differs catalog_replay_index %s: %s",
                  ns, id, odd, ns, odd,
                  lineage_record(w, KIND(DROP_COLLECTION), 0)->command_identity, odd));
    assert_string_equal(world_json(w, world_digest(w)), digest);
}

/* ---- names --------------------------------------------------------------------------------- */

#define PUT_AGAIN                                                                                  \
    "the next lineage would get an epoch twice; the lineage's record is the truth [the object is " \
    "put again with that epoch, under the owner's epoch]"

/* Without its object a name would begin at epoch 1 again. */
static void test_names(void **state)
{
    struct world *w = *state;
    uint64_t id, ns = make(w, &id);
    struct sf_buf buf = {0};
    sf_catalog_key_collection_name(&buf, ns, "books");
    const char *key = key_text(w, &buf);
    sf_catalog_key_namespace_name(&buf, "alpha");
    const char *ns_key = key_text(w, &buf);
    lose(w, ns_key);
    mends(w, line(w,
                  "PROBLEM object_missing namespace_name_epochs %s: the lineage that holds the "
                  "name has epoch 1 and the object of the name says 0: " PUT_AGAIN,
                  ns_key));
    assert_true(lineage_epoch(w, 0, "alpha") == 1);
    lose(w, key);
    mends(w, line(w,
                  "PROBLEM object_missing collection_name_epochs %s: the lineage that holds the "
                  "name has epoch 1 and the object of the name says 0: " PUT_AGAIN,
                  key));
    assert_true(lineage_epoch(w, ns, "books") == 1);
    assert_int_equal(lineage_drop(w, "d1", ns, id, NULL), DROPPED);
    sf_clock_manual_advance(&w->clock, GC_DELAY_MS);
    assert_int_equal(lineage_sweep(w)->released_collection_names, 1);
    uint64_t next = world_collection(w, "c2", ns, "books"); /* not epoch 1 again */
    assert_true(lineage_epoch(w, ns, "books") == 2 && next != id);
    assert_true(collection_row(w, ns, next)->collection_name_allocation_epoch == 2);
    /* an epoch row that was raised follows its object */
    world_execute(w, "UPDATE collection_name_epochs SET last_allocated_epoch ="
                     " last_allocated_epoch + 3");
    const SF_PB(CheckCatalogResponse) *done = check(w, true);
    assert_true(done->problems == 1 && done->repaired == 1);
    assert_string_equal(done->findings[0]->explanation,
                        "the row differs from its object in last_allocated_epoch (5, should be 2); "
                        "the object is the truth");
    assert_true(check(w, false)->problems == 0);
}

/* Nobody holds the name: nothing tells its epoch but the row, and the row is never the truth. */
static void test_free_name(void **state)
{
    struct world *w = *state;
    uint64_t id, ns = make(w, &id);
    assert_int_equal(lineage_drop(w, "d1", ns, id, NULL), DROPPED);
    sf_clock_manual_advance(&w->clock, GC_DELAY_MS);
    assert_int_equal(lineage_sweep(w)->released_collection_names, 1);
    struct sf_buf buf = {0};
    sf_catalog_key_collection_name(&buf, ns, "books");
    lose(w, key_text(w, &buf));
    const SF_PB(CheckCatalogResponse) *found = check(w, true);
    assert_true(found->problems == 1 && found->repaired == 0);
    assert_string_equal(found->findings[0]->explanation,
                        "the row shows an epoch of a name that nobody holds, and the object that "
                        "gave it out is gone: the next lineage of the name would begin at epoch 1 "
                        "again; restore the object");
}

/* ---- quota --------------------------------------------------------------------------------- */

#define RAISED                                                                                     \
    "[the state is taken over under a higher quota epoch, which ends the leases of before]"

static SF_PB(QuotaStateRow) * quota_row(struct world *w, uint64_t ns)
{
    SF_PB(QuotaStateRow) like;
    SF_PB(NamespaceQuotaStateObject) state;
    searchfabric__v1__quota_state_row__init(&like);
    searchfabric__v1__namespace_quota_state_object__init(&state);
    like.state = &state;
    state.namespace_id = ns;
    return (SF_PB(QuotaStateRow) *)row_of(w, SF_CATALOG_TABLE_QUOTA, &like.base);
}

/* A row that does not show its object may miss leases: the epoch is raised. */
static void test_quota(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n", "alpha");
    struct sf_buf buf = {0};
    sf_catalog_key_quota(&buf, ns);
    const char *key = key_text(w, &buf);
    uint64_t epoch = lease(w, ns, "query_rcu", "gw-1", "r1", 10, 0)->lease_epoch;
    assert_string_equal(lines_of(w, check(w, true)), "");
    assert_true(quota_object(w, ns)->quota_epoch == epoch);
    SF_PB(QuotaStateRow) *row = quota_row(w, ns);
    row->state->dimensions[0]->leaseable_units++;
    set_row(w, SF_CATALOG_TABLE_QUOTA, &row->base, true);
    mends(w, line(w,
                  "PROBLEM row_differs namespace_quota_state %s: the row does not show the "
                  "quota object; the object is the truth of what was debited, and leases may be "
                  "missing " RAISED,
                  key));
    assert_row_is_object(w, ns);
    assert_true(quota_object(w, ns)->quota_epoch == epoch + 1 && active_leases(w, ns) == 0);
    assert_null(lease(w, ns, "query_rcu", "gw-1", "r2", 10, epoch));
    assert_int_equal(w->diag.err, SF_VERSION_CONFLICT);
    assert_true(lease(w, ns, "query_rcu", "gw-1", "r2", 10, 0)->lease_epoch == epoch + 1);
    world_execute(w, "DELETE FROM namespace_quota_state");
    mends(w, line(w,
                  "PROBLEM row_missing namespace_quota_state %s: the quota object stands and "
                  "the table has no such row; the object is the truth of what was debited " RAISED,
                  key));
    assert_true(quota_object(w, ns)->quota_epoch == epoch + 2);
    lose(w, key);
    mends(w, line(w,
                  "PROBLEM object_missing namespace_quota_state %s: the row shows a quota "
                  "object that is gone; what was debited is not known " RAISED,
                  key));
    assert_true(quota_object(w, ns)->quota_epoch == epoch + 3);
    assert_true(lease(w, ns, "query_rcu", "gw-1", "r3", 10, 0)->lease_epoch == epoch + 3);
    assert_string_equal(lines_of(w, check(w, true)), "");
}

/* The owner before died between object and row: its next lease heals it. */
static void test_quota_of_before(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n", "alpha");
    assert_non_null(lease(w, ns, "query_rcu", "gw-1", "r1", 10, 0));
    world_execute(w, "DELETE FROM namespace_quota_state");
    world_restart(w);
    const SF_PB(CheckCatalogResponse) *found = check(w, false);
    assert_true(found->problems == 0 && found->harmless == 1);
    assert_string_equal(found->findings[0]->kind, "row_missing");
    assert_non_null(lease(w, ns, "query_rcu", "gw-1", "r2", 10, 0));
    assert_string_equal(lines_of(w, check(w, true)), "");
}

/* ---- statistics ---------------------------------------------------------------------------- */

static const char *snapshot_key(struct world *w, uint64_t ns, uint64_t id, uint64_t ts)
{
    struct sf_buf key = {0};
    sf_catalog_key_statistics(&key, ns, id, "tok-1", ts);
    return key_text(w, &key);
}

static const char *statistics_head_key(struct world *w, uint64_t ns, uint64_t id)
{
    struct sf_buf key = {0};
    sf_catalog_key_statistics_head(&key, ns, id);
    return key_text(w, &key);
}

static uint64_t head_ts(struct world *w, uint64_t ns, uint64_t id)
{
    const SF_PB(OptimizerStatisticsHeadObject) *head =
        world_object(w, statistics_head_key(w, ns, id),
                     &searchfabric__v1__optimizer_statistics_head_object__descriptor);
    return head == NULL ? 0 : head->latest_stats_commit_ts;
}

/* A collection whose head names a snapshot of a manifest. */
static uint64_t collected(struct world *w, uint64_t *out_id)
{
    uint64_t ns = make(w, out_id);
    manifest_publish(w, ns, *out_id, 1, 5, 500, NULL);
    (void)check(w, true); /* advances the manifest's head */
    assert_int_equal(world_job(w, "statistics"), 1);
    assert_true(head_ts(w, ns, *out_id) != 0);
    return ns;
}

#define SHOWN_AGAIN                                                                                \
    "the rows do not show the snapshot that the head object names; the head object is the truth "  \
    "[rows of head and snapshot are written from the objects]"

static void test_statistics_rows(void **state)
{
    struct world *w = *state;
    uint64_t id, ns = collected(w, &id);
    assert_string_equal(lines_of(w, check(w, true)), "");
    const char *key = statistics_head_key(w, ns, id), *all = everything(w);
    world_execute(w, "DELETE FROM collection_statistics_heads");
    mends(w, line(w, "PROBLEM row_missing collection_statistics_heads %s: " SHOWN_AGAIN, key));
    assert_string_equal(everything(w), all);
    world_execute(w, "UPDATE collection_statistics_heads SET latest_collected_at_unix_ms = 5");
    mends(w, line(w, "PROBLEM row_differs collection_statistics_heads %s: " SHOWN_AGAIN, key));
    assert_string_equal(everything(w), all);
    world_execute(w, "UPDATE collection_statistics_snapshots SET collected_at_unix_ms = 5");
    const char *differs = "the row does not say what the immutable snapshot says; the object is "
                          "the truth [the row is written again from the object]";
    mends(w, line(w,
                  "PROBLEM row_differs collection_statistics_snapshots %s: %s\n"
                  "PROBLEM row_differs collection_statistics_snapshots %s: %s",
                  snapshot_key(w, ns, id, 0), differs, snapshot_key(w, ns, id, head_ts(w, ns, id)),
                  differs));
    assert_string_equal(everything(w), all);
    world_execute(w, "DELETE FROM collection_statistics_snapshots");
    mends(w, line(w, "PROBLEM row_missing collection_statistics_snapshots %s: " SHOWN_AGAIN, key));
}

static void test_statistics_objects(void **state)
{
    struct world *w = *state;
    uint64_t id, ns = collected(w, &id);
    const char *key = statistics_head_key(w, ns, id);
    uint64_t ts = head_ts(w, ns, id);
    lose(w, key);
    mends(w, line(w,
                  "PROBLEM object_missing collection_statistics_heads %s: a row shows a "
                  "statistics head whose object is gone; the serving generation's newest "
                  "snapshot tells what it is to name [the head is put again, naming that "
                  "snapshot]",
                  key));
    assert_true(head_ts(w, ns, id) == ts);
    lose(w, snapshot_key(w, ns, id, ts));
    tells(w, line(w,
                  "PROBLEM object_missing optimizer_statistics %s: the head names the snapshot "
                  "of generation \"tok-1\" at %" PRIu64 ", and that object is gone: a rebuild "
                  "would fail; the committed manifest is the truth [a fresh snapshot is made "
                  "from the committed manifest, and the head moved to it]",
                  key, ts));
    const SF_PB(CheckCatalogResponse) *done = check(w, true);
    assert_true(done->problems == 2 && done->repaired == 2);
    assert_string_equal(done->findings[1]->explanation,
                        "the row shows an older snapshot whose object is gone; the head names "
                        "another one");
    assert_true(head_ts(w, ns, id) > ts);
    assert_string_equal(lines_of(w, check(w, true)), "");
    world_rebuild(w); /* it would have failed */
    assert_true(check(w, false)->problems == 0);
}

/* Snapshots that nothing names are deleted once they are old enough; a retired one is left to its
 * job, and one that a row shows is never retired. */
static void test_statistics_orphans(void **state)
{
    struct world *w = *state;
    uint64_t id, ns = collected(w, &id);
    for (int i = 0; i < 6; i++) {
        sf_clock_manual_advance(&w->clock, 1000);
        manifest_publish(w, ns, id, (uint64_t)i + 2, 5, 500, NULL);
        assert_int_equal(world_job(w, "statistics"), 1);
    }
    (void)check(w, true);
    assert_string_equal(lines_of(w, check(w, true)), ""); /* retired rows name the older ones */
    world_rebuild(w);                                     /* and are forgotten */
    (void)world_job(w, "manifest-head");
    (void)world_job(w, "statistics");
    const SF_PB(CheckCatalogResponse) *found = check(w, true);
    assert_true(found->problems == 0 && found->harmless > 0);
    size_t before = world_list(w, "catalog/", NULL);
    assert_string_equal(found->findings[0]->kind, "orphan_object");
    assert_string_equal(found->findings[0]->subject, "optimizer_statistics");
    assert_string_equal(found->findings[0]->explanation,
                        "a statistics snapshot that no head, row or retired row names: a cycle "
                        "that was cut short left it, or a rebuild forgot it; too young to go");
    sf_clock_manual_advance(&w->clock, SF_CATALOG_STATISTICS_RETENTION_MS);
    const SF_PB(CheckCatalogResponse) *told = check(w, false);
    assert_true(told->harmless == found->harmless);
    assert_int_equal(world_list(w, "catalog/", NULL), before);
    const SF_PB(CheckCatalogResponse) *done = check(w, true);
    assert_true(done->harmless == found->harmless && done->findings[0]->repaired);
    assert_string_equal(done->findings[0]->repair,
                        "the object is deleted; its key is never written again");
    assert_int_equal(world_list(w, "catalog/", NULL), before - done->harmless);
    assert_string_equal(lines_of(w, check(w, true)), "");
    world_execute(w, "INSERT INTO retired_statistics_snapshots (namespace_id, collection_id,"
                     " applied_schema_generation_token, stats_commit_ts, retired_at_unix_ms)"
                     " SELECT namespace_id, collection_id, applied_schema_generation_token,"
                     " stats_commit_ts, 1 FROM collection_statistics_snapshots");
    mends(w, line(w,
                  "PROBLEM row_unknown retired_statistics_snapshots %" PRIu64 "/%" PRIu64
                  ": a row says that a statistics snapshot is to be removed which a row still "
                  "shows; the snapshot's row is the truth [the row is deleted, so that the "
                  "snapshot stays]",
                  ns, id));
}

/* ---- manifest heads ------------------------------------------------------------------------ */

static void test_heads(void **state)
{
    struct world *w = *state;
    uint64_t id, ns = make(w, &id);
    struct sf_buf buf = {0};
    sf_catalog_key_committed_head(&buf, ns, id);
    const char *pointer = key_text(w, &buf);
    sf_catalog_key_manifest_head(&buf, ns, id);
    const char *head = key_text(w, &buf);
    manifest_publish(w, ns, id, 1, 5, 500, NULL);
    tells(w, line(w,
                  "harmless head_behind collections %s: the head columns say version 0, the "
                  "committed pointer 1; the pointer is the truth, and the job manifest-head "
                  "follows it [the head is advanced by the intent that the publisher would have "
                  "sent]",
                  pointer));
    const SF_PB(CheckCatalogResponse) *done = check(w, true);
    assert_true(done->harmless == 1 && done->findings[0]->repaired);
    assert_true(collection_row(w, ns, id)->manifest_head_version == 1);
    assert_string_equal(lines_of(w, check(w, true)), "");
    lose(w, head);
    mends(w, line(w,
                  "PROBLEM object_missing manifest_head %s: the head object says version 0, the "
                  "row and the committed pointer 1; the committed pointer is the truth [the "
                  "head object is swapped to what the row says, under the owner's epoch]",
                  head));
    /* a row that was set back is behind */
    SF_PB(CollectionRow) *row = collection_row(w, ns, id);
    row->manifest_head_version = 0;
    set_row(w, SF_CATALOG_TABLE_COLLECTIONS, &row->base, true);
    done = check(w, false);
    assert_true(done->n_findings == 1 && strcmp(done->findings[0]->kind, "head_behind") == 0);
    /* a pointer that does not fit is an operator's matter */
    row->manifest_head_version = 9;
    set_row(w, SF_CATALOG_TABLE_COLLECTIONS, &row->base, true);
    done = check(w, true);
    assert_true(done->problems == 1 && done->repaired == 0);
    assert_string_equal(done->findings[0]->kind, "head_unfit");
    assert_string_equal(done->findings[0]->key, pointer);
}

/* ---- rows and objects that nothing stands behind ------------------------------------------- */

static void test_left_over(void **state)
{
    struct world *w = *state;
    uint64_t id, ns = make(w, &id);
    (void)ns;
    world_execute(w, "INSERT INTO collection_index_backlogs (namespace_id, collection_id,"
                     " schema_generation_token, unindexed_bytes, reported_at_unix_ms)"
                     " SELECT namespace_id, collection_id + 1, 'tok', collection_id, 1"
                     " FROM collections");
    mends(w, line(w,
                  "harmless row_unknown collection_index_backlogs %" PRIu64 "/%" PRIu64
                  ": rows of a lineage that has none of its own: it was released, or its row is "
                  "lost; nothing reads them [the rows are deleted]",
                  ns, id + 1));
}

/* A record that is lost while its pointer stands; an object of no family; a control object that is
 * not the one that its record names. */
static void test_objects(void **state)
{
    struct world *w = *state;
    uint64_t id, ns = make(w, &id);
    truth_put(w, "catalog/00/1/what.json", sf_view_str("{}"));
    assert_string_equal(lines_of(w, check(w, true)),
                        "harmless orphan_object unknown catalog/00/1/what.json: an object of no "
                        "family that this program knows; nothing names it and nothing reads it []");
    lose(w, "catalog/00/1/what.json");
    const SF_PB(CommandOutcomeObject) *record = lineage_record(w, KIND(PUT_COLLECTION_METADATA), 0);
    const char *control = record->control_objects[0]->key;
    SF_PB(CollectionDescriptorObject) *object =
        (SF_PB(CollectionDescriptorObject) *)(uintptr_t)world_object(
            w, control, &searchfabric__v1__collection_descriptor_object__descriptor);
    struct sf_buf body = {0}, before = {0};
    assert_int_equal(sf_store_get_wait(w->truth, NULL, sf_view_str(control), &before, NULL), SF_OK);
    object->attempt_id = world_text(w, "another");
    sf_durable_encode(&object->base, &body, NULL);
    truth_put(w, control, sf_buf_view(&body));
    const SF_PB(CheckCatalogResponse) *found = check(w, true);
    assert_true(found->problems == 1 && found->repaired == 0);
    assert_string_equal(found->findings[0]->kind, "object_broken");
    assert_string_equal(found->findings[0]->explanation,
                        "the object verifies by itself and is not the one that its record names by "
                        "SHA-256; the record is the truth: restore the object");
    truth_put(w, control, sf_buf_view(&before));
    sf_buf_fini(&body);
    sf_buf_fini(&before);
    assert_string_equal(lines_of(w, check(w, true)), "");
    struct sf_buf key = {0};
    sf_catalog_key_outcome(&key, record->command_identity);
    lose(w, key_text(w, &key));
    world_execute(w, "DELETE FROM catalog_replay_index");
    found = check(w, true);
    bool told = false;
    for (size_t i = 0; i < found->n_findings; i++)
        told = told || (strcmp(found->findings[i]->subject, "catalog-log") == 0 &&
                        strcmp(found->findings[i]->kind, "object_missing") == 0);
    assert_true(told && found->problems > found->repaired);
    (void)ns;
}

/* ---- one namespace ------------------------------------------------------------------------- */

/* Only what the namespace needs is read, and it finds what it should. */
static void test_one_namespace(void **state)
{
    struct world *w = *state;
    uint64_t id, ns = make(w, &id);
    uint64_t other = world_namespace(w, "o1", "beta");
    uint64_t other_id = world_collection(w, "o2", other, "books");
    world_schema(w, "o3", other, other_id, 1, "tok-1");
    const char *dump = world_dump(w);
    char foreign[64], own[64];
    snprintf(foreign, sizeof(foreign), "/%" PRIu64 "/", other);
    snprintf(own, sizeof(own), "/%" PRIu64 "/", ns);
    world_execute(w, "UPDATE collections SET updated_at_unix_ms = 5;"
                     "UPDATE namespaces SET updated_at_unix_ms = 5;"
                     "DELETE FROM catalog_replay_index;");
    atomic_store(&w->wire.listed_records, false);
    world_trace(w);
    const SF_PB(CheckCatalogResponse) *found = check_of(w, ns, false);
    const char *trace = world_traced(w);
    assert_false(atomic_load(&w->wire.listed_records));
    assert_null(strstr(trace, foreign));
    assert_non_null(strstr(trace, own));
    assert_null(strstr(trace, "list catalog-log"));
    assert_null(strstr(trace, "list catalog-replay"));
    if (w->wire.base.exclusive) /* else the owner looks at the chain's tail */
        assert_null(strstr(trace, "list catalog-recovery"));
    size_t missing = 0, differs = 0;
    for (size_t i = 0; i < found->n_findings; i++) {
        missing += strcmp(found->findings[i]->kind, "row_missing") == 0 ? 1 : 0;
        differs += strcmp(found->findings[i]->kind, "row_differs") == 0 ? 1 : 0;
    }
    assert_true(missing == 3 && differs == 2 && found->problems == 5);
    found = check_of(w, ns, true);
    assert_true(found->problems == found->repaired);
    assert_string_equal(lines_of(w, check_of(w, ns, true)), "");
    assert_true(check_of(w, other, false)->problems == 5);
    found = check(w, true);
    assert_true(found->problems == 5 && found->repaired == 5);
    assert_string_equal(world_dump(w), dump);
}

/* ---- ends ---------------------------------------------------------------------------------- */

/* A call that the test ends. */
struct asked {
    struct sf_call call;
    struct sf_waiter waiter; /* opened by the answer */
    enum sf_err err;         /* of it */
};

static void on_respond(struct sf_call *call, const ProtobufCMessage *response)
{
    (void)response;
    sf_waiter_wake(&SF_CONTAINER_OF(call, struct asked, call)->waiter);
}

static void on_fail(struct sf_call *call, const struct sf_diag *diag)
{
    struct asked *asked = SF_CONTAINER_OF(call, struct asked, call);
    asked->err = diag->err;
    sf_waiter_wake(&asked->waiter);
}

static void leave(void *arg)
{
    struct asked *asked = arg;
    atomic_store(&asked->call.cancelled, true);
}

/* The client goes while the first page is listed: nothing more is read or mended. */
static void test_cancelled(void **state)
{
    static const struct sf_call_ops ops = {.respond = on_respond, .fail = on_fail};
    struct world *w = *state;
    struct asked asked = {.err = SF_OK};
    SF_PB(CheckCatalogRequest) request;
    uint64_t id;
    (void)make(w, &id);
    searchfabric__v1__check_catalog_request__init(&request);
    request.repair = true;
    world_execute(w, "UPDATE collections SET updated_at_unix_ms = 5;");
    const char *before = everything(w);
    sf_call_init(&asked.call, &ops, NULL, w->arena);
    sf_waiter_init(&asked.waiter, NULL);
    uint64_t gets = atomic_load(&w->wire.gets), lists = atomic_load(&w->wire.lists);
    w->wire.listed_arg = &asked;
    w->wire.listed = leave;
    sf_catalog_check_call(w->catalog, &asked.call, &request.base);
    sf_waiter_wait(&asked.waiter);
    w->wire.listed = NULL;
    sf_waiter_fini(&asked.waiter);
    assert_int_equal(asked.err, SF_CANCELLED);
    assert_true(atomic_load(&w->wire.gets) == gets && atomic_load(&w->wire.lists) == lists + 1);
    assert_string_equal(everything(w), before);
    assert_true(check(w, true)->repaired == 1); /* the lane is free */
}

/* An owner that was taken over from mends nothing. */
static void test_deposed(void **state)
{
    struct world *w = *state;
    SF_PB(CheckCatalogRequest) request;
    uint64_t id;
    (void)make(w, &id);
    world_execute(w, "UPDATE collections SET updated_at_unix_ms = 5;");
    const char *dump = world_dump(w);
    world_depose(w);
    searchfabric__v1__check_catalog_request__init(&request);
    request.repair = true;
    assert_null(world_call(w, "CheckCatalog", &request));
    assert_int_equal(w->diag.err, SF_BACKEND_UNAVAILABLE);
    assert_string_equal(world_dump(w), dump);
}

/* More than a page of everything; a problem is told even where harmless things fill the answer. */
static void test_many(void **state)
{
    struct world *w = *state;
    SF_PB(CheckCatalogRequest) request;
    uint64_t ns = world_namespace(w, "n", "alpha");
    for (int i = 0; i < 300; i++) {
        char key[32];
        snprintf(key, sizeof(key), "c%03d", i);
        (void)world_collection(w, key, ns, key);
    }
    const SF_PB(CheckCatalogResponse) *all = check(w, true);
    assert_string_equal(lines_of(w, all), "");
    /* 1 + 300 things with a name and a record each */
    assert_true(all->rows_read == 3 * 301);
    assert_true(check_of(w, ns, false)->rows_read == 3 * 301 - 1);
    world_execute(w, "UPDATE collections SET updated_at_unix_ms = 5;");
    all = check(w, true);
    assert_true(all->problems == 300 && all->repaired == 300);
    assert_string_equal(lines_of(w, check(w, false)), "");
    for (int i = 0; i < 3; i++) {
        char key[64];
        snprintf(key, sizeof(key), "catalog/00/1/what-%d.json", i);
        truth_put(w, key, sf_view_str("{}"));
    }
    struct sf_buf key = {0};
    sf_catalog_key_segment(&key, 2);
    lose(w, key_text(w, &key)); /* found last */
    searchfabric__v1__check_catalog_request__init(&request);
    request.max_findings = 2;
    all = world_call(w, "CheckCatalog", &request);
    assert_true(all->n_findings == 2 && all->problems == 1 && all->harmless == 3);
    assert_string_equal(all->findings[1]->kind, "segment_missing");
}

#define TEST(name)        cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
#define TEST_SHARED(name) cmocka_unit_test_setup_teardown(name, world_setup_shared, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_tombstones),
        TEST(test_tombstone_rows),
        TEST(test_tombstone_lost),
        TEST(test_generations),
        TEST(test_set_back),
        TEST(test_broken_row),
        TEST(test_derived_columns),
        TEST(test_names),
        TEST(test_free_name),
        TEST(test_quota),
        TEST_SHARED(test_quota),
        TEST(test_quota_of_before),
        TEST(test_statistics_rows),
        TEST(test_statistics_objects),
        TEST(test_statistics_orphans),
        TEST_SHARED(test_statistics_orphans),
        TEST(test_heads),
        TEST(test_left_over),
        TEST(test_objects),
        TEST(test_one_namespace),
        TEST_SHARED(test_one_namespace),
        TEST(test_cancelled),
        TEST_SHARED(test_deposed),
        TEST(test_many),
    };
    return SF_RUN_TESTS("catalog_fsck", tests);
}
