/*
 * Model: the check goes both ways, in pages. Objects to rows: a committed record, an allocator
 * object, a versioned control object, a head without its row; what nothing names is an orphan. Rows
 * to objects: what the object of a row's revision, version, name or identity says is what the row
 * must say. Last come replay pointers, the chain, checkpoints, and rows of tables that no object
 * stands behind.
 *
 *   page: list keys or read rows -> fetch their objects side by side -> judge each
 *         suspected? -> take the gates -> read afresh -> judge again, tell, repair
 *
 * Memory holds one page, so a run's cost in it does not grow with the catalog. Of one namespace
 * only what its id leads to is read: its directory, its names, its rows, and the records that its
 * control objects name. Between pages a run looks whether somebody still waits for the answer.
 *
 * A repair writes under the owner's epoch and leaves a row alone that moved. What only an object
 * could tell is never guessed: a missing object is reported and stays a problem.
 */
#include "catalog/catalog_check.h"

#include "catalog/catalog_check_priv.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- one page ------------------------------------------------------------------------------ */

enum sf_err sf_check_alive(struct sf_check *c)
{
    if (sf_catalog_ending(c->catalog))
        return sf_diag_set(c->diag, SF_ERR_STOPPED,
                           "the catalog ends; the check did not come "
                           "through");
    if (sf_call_cancelled(c->call))
        return sf_diag_set(c->diag, SF_CANCELLED, "nobody waits for the check any more");
    return SF_OK;
}

struct sf_buf *sf_check_want(struct sf_check *c)
{
    if (c->key_count == c->key_room) {
        c->key_room *= 2;
        c->keys = sf_realloc(c->keys, c->key_room * sizeof(*c->keys));
    }
    c->keys[c->key_count] = (struct sf_buf){0};
    return &c->keys[c->key_count++];
}

void sf_check_fetch(struct sf_check *c)
{
    sf_catalog_ahead_add(c->catalog, c->sched, c->ahead, c->keys, c->key_count);
    for (size_t i = 0; i < c->key_count; i++)
        sf_buf_fini(&c->keys[i]);
    c->key_count = 0;
}

/* A fault of the thing itself does not end the run. */
static enum sf_err keep_going(struct sf_check *c, enum sf_err err, const char *subject,
                              struct sf_view key)
{
    if (err != SF_ERR_CORRUPT)
        return err;
    char text[sizeof(c->diag->message)];
    bool sure = c->sure;
    snprintf(text, sizeof(text), "%s", c->diag->message);
    sf_diag_init(c->diag);
    c->sure = true;
    sf_check_tell(c, &(struct sf_check_finding){.kind = "row_broken",
                                                .subject = subject,
                                                .key = key,
                                                .explanation = text,
                                                .repair = "",
                                                .problem = true});
    c->sure = sure;
    return SF_OK;
}

/* ---- objects ------------------------------------------------------------------------------- */

/* Reads and decodes the object; one that is broken is told when sure. */
static enum sf_err load(struct sf_check *c, struct sf_check_object *object, struct sf_arena *arena)
{
    struct sf_arena *one = c->one;
    struct sf_buf key = {0};
    bool broken = false;
    sf_buf_append(&key, object->key.ptr, object->key.len);
    c->one = arena;
    enum sf_err err = sf_check_look(c, &key, object->family->desc, &object->message, object->sha256,
                                    NULL, &broken);
    c->one = one;
    object->loaded = err == SF_OK && !broken;
    if (err == SF_OK && broken && c->sure) /* tells of it, with the reason */
        err = sf_check_read(c, &key, object->family->desc, &object->message, &broken);
    c->suspect = c->suspect || broken;
    sf_buf_fini(&key);
    return err;
}

static enum sf_err judge_surely(struct sf_check *c, struct sf_check_object *object)
{
    struct sf_catalog_gates gates = {.namespace_id = object->namespace_id,
                                     .namespace_exclusive = object->collection_id == 0,
                                     .collection_id = object->collection_id};
    bool gated = object->family->gated && gates.namespace_id != 0;
    enum sf_err err = sf_check_alive(c);
    if (err != SF_OK)
        return err;
    sf_arena_reset(c->one);
    object->loaded = false;
    if (gated)
        sf_catalog_gates_acquire(c->catalog, &gates);
    c->sure = true;
    err = load(c, object, c->one);
    if (err == SF_OK && object->loaded && object->message != NULL)
        err = object->family->judge(c, object);
    if (gated)
        sf_catalog_gates_release(c->catalog, &gates);
    if (err == SF_OK && c->after != NULL)
        err = c->after(c);
    c->after = NULL;
    c->sure = false;
    return err;
}

/* Records that a namespace's control objects name, in place of the whole log. */
static enum sf_err judge_record(struct sf_check *c, const struct sf_check_object *object)
{
    struct sf_buf key = {0};
    ProtobufCMessage *record = NULL;
    bool broken = false;
    sf_catalog_key_outcome(&key, sf_check_command_of(object->message));
    enum sf_err err = sf_check_look(c, &key, &searchfabric__v1__command_outcome_object__descriptor,
                                    &record, NULL, NULL, &broken);
    if (err == SF_OK && record != NULL)
        err = sf_check_record_shown(c, sf_buf_view(&key),
                                    (const SF_PB(CommandOutcomeObject) *)record);
    sf_buf_fini(&key);
    return err;
}

static enum sf_err judge_object(struct sf_check *c, struct sf_check_object *object)
{
    enum sf_err err = SF_OK;
    if (object->family == NULL || object->family->judge == NULL)
        return SF_OK;
    sf_arena_reset(c->one);
    c->suspect = false;
    if (!object->loaded)
        err = load(c, object, c->one);
    bool there = err == SF_OK && object->loaded && object->message != NULL;
    if (there && object->family->record && c->namespace_id != 0)
        err = judge_record(c, object);
    if (err == SF_OK && there)
        err = object->family->judge(c, object);
    if (c->suspect || err == SF_ERR_CORRUPT) {
        sf_diag_init(c->diag);
        err = judge_surely(c, object);
    }
    return keep_going(c, err, object->family->subject, object->key);
}

/* Ids in a key: the digits behind "H/". */
static void take_ids(struct sf_check_object *object)
{
    struct sf_view name;
    if (!sf_catalog_key_ids(object->key, &object->namespace_id, &object->collection_id, &name))
        object->namespace_id = object->collection_id = 0;
}

static const struct sf_check_family *family_of(struct sf_view key,
                                               const struct sf_check_family *families, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (memmem(key.ptr, key.len, families[i].text, strlen(families[i].text)) != NULL)
            return &families[i];
    }
    return NULL;
}

static void tell_unknown(struct sf_check *c, struct sf_view key)
{
    c->sure = true;
    sf_check_tell(c, &(struct sf_check_finding){
                         .kind = "orphan_object",
                         .subject = "unknown",
                         .key = key,
                         .explanation = "an object of no family that this program knows; nothing "
                                        "names it and nothing reads it",
                         .repair = ""});
    c->sure = false;
}

/* Objects of some keys: fetched, with what their judges read, then judged. */
static enum sf_err judge_some(struct sf_check *c, const struct sf_list_entry *entries, size_t count,
                              const struct sf_check_family *families, size_t family_count)
{
    struct sf_check_object objects[SF_CHECK_PAGE] = {0};
    enum sf_err err = sf_check_alive(c);
    if (err != SF_OK)
        return err;
    sf_arena_reset(c->chunk);
    sf_catalog_ahead_forget(c->ahead);
    for (size_t i = 0; i < count; i++) {
        objects[i].key = entries[i].key;
        objects[i].family = family_of(entries[i].key, families, family_count);
        take_ids(&objects[i]);
        if (objects[i].family != NULL && objects[i].family->judge != NULL)
            sf_buf_append(sf_check_want(c), entries[i].key.ptr, entries[i].key.len);
    }
    sf_check_fetch(c);
    for (size_t i = 0; i < count && err == SF_OK; i++) {
        const struct sf_check_family *family = objects[i].family;
        if (family == NULL || family->judge == NULL)
            continue;
        err = load(c, &objects[i], c->chunk);
        if (err == SF_ERR_LIMIT) { /* too large to be held together: it is read alone */
            objects[i].loaded = false;
            sf_diag_init(c->diag);
            sf_arena_reset(c->one);
            err = SF_OK;
        }
        if (err == SF_OK && objects[i].loaded && objects[i].message != NULL &&
            family->wants != NULL)
            family->wants(c, &objects[i]);
    }
    sf_check_fetch(c);
    for (size_t i = 0; i < count && err == SF_OK; i++) {
        if (objects[i].family == NULL)
            tell_unknown(c, objects[i].key);
        err = judge_object(c, &objects[i]);
    }
    return err;
}

enum sf_err sf_check_prefix(struct sf_check *c, const char *prefix,
                            const struct sf_check_family *families, size_t family_count)
{
    struct sf_buf after = {0};
    enum sf_err err = SF_OK;
    size_t count = SF_LIMIT_LIST_PAGE_ENTRIES;
    while (err == SF_OK && count == SF_LIMIT_LIST_PAGE_ENTRIES) {
        struct sf_list_entry *entries = NULL;
        sf_arena_reset(c->page);
        err = sf_catalog_list(c->catalog, c->sched, prefix, &after, c->page, c->diag, &entries,
                              &count);
        for (size_t i = 0; i < count && err == SF_OK; i += SF_CHECK_PAGE) {
            size_t some = count - i < SF_CHECK_PAGE ? count - i : SF_CHECK_PAGE;
            err = judge_some(c, entries + i, some, families, family_count);
        }
    }
    sf_buf_fini(&after);
    return err;
}

/* ---- rows ---------------------------------------------------------------------------------- */

static enum sf_err row_surely(struct sf_check *c, const struct sf_check_table *table,
                              const ProtobufCMessage *row)
{
    struct sf_catalog_gates gates = sf_check_gates(table->table, row);
    ProtobufCMessage *now = NULL;
    bool odd = false;
    enum sf_err err = sf_check_alive(c);
    if (err != SF_OK)
        return err;
    sf_arena_reset(c->one);
    bool gated = table->gated && gates.namespace_id != 0;
    if (gated)
        sf_catalog_gates_acquire(c->catalog, &gates);
    struct sf_sql_conn *conn = sf_sql_acquire(c->catalog->deps.sql, c->sched, SF_SQL_READ);
    err = sf_catalog_rows_look(conn, table->table, row, c->one, c->diag, &now, &odd);
    sf_sql_release(conn);
    c->sure = true;
    if (err == SF_OK && odd)
        err = sf_check_odd(c, table->table, now);
    if (err == SF_OK && now != NULL)
        err = table->judge(c, now);
    if (gated)
        sf_catalog_gates_release(c->catalog, &gates);
    if (err == SF_OK && c->after != NULL)
        err = c->after(c);
    c->after = NULL;
    c->sure = false;
    return err;
}

static enum sf_err judge_row(struct sf_check *c, const struct sf_check_table *table,
                             const ProtobufCMessage *row, bool odd)
{
    sf_arena_reset(c->one);
    c->suspect = odd;
    c->response.rows_read++;
    enum sf_err err = table->judge(c, row);
    if (c->suspect || err == SF_ERR_CORRUPT) {
        sf_diag_init(c->diag);
        err = row_surely(c, table, row);
    }
    return keep_going(c, err, sf_catalog_table_name(table->table),
                      sf_view_str(sf_catalog_table_name(table->table)));
}

enum sf_err sf_check_batch(struct sf_check *c, const struct sf_check_table *table,
                           const struct sf_catalog_batch *batch)
{
    enum sf_err err = sf_check_alive(c);
    if (err != SF_OK)
        return err;
    sf_catalog_ahead_forget(c->ahead);
    for (size_t i = 0; i < batch->count; i++)
        table->wants(c, batch->rows[i]);
    sf_check_fetch(c);
    for (size_t i = 0; i < batch->count && err == SF_OK; i++)
        err = judge_row(c, table, batch->rows[i], batch->odd != NULL && batch->odd[i]);
    return err;
}

/* Cuts the page where the rows of another namespace begin. */
static bool cut_past(const struct sf_check *c, enum sf_catalog_table table,
                     struct sf_catalog_batch *batch)
{
    size_t count = 0;
    while (count < batch->count &&
           (c->namespace_id == 0 ||
            sf_catalog_row_namespace(table, batch->rows[count]) == c->namespace_id))
        count++;
    bool past = count < batch->count;
    batch->count = count;
    return past;
}

/* Is a key ("{namespace}/...") of what is checked? */
static bool asked_for(const struct sf_check *c, const char *key)
{
    char own[24];
    int len = snprintf(own, sizeof(own), "%" PRIu64, c->namespace_id);
    return c->namespace_id == 0 ||
           (strncmp(key, own, (size_t)len) == 0 && (key[len] == '/' || key[len] == '\0'));
}

/* Rows that do not decode. */
static void tell_broken(struct sf_check *c, enum sf_catalog_table table,
                        const struct sf_catalog_batch *batch)
{
    c->sure = true;
    for (size_t i = 0; i < batch->broken_count; i++) {
        if (!asked_for(c, batch->broken[i]))
            continue;
        sf_check_tell(c, &(struct sf_check_finding){
                             .kind = "row_broken",
                             .subject = sf_catalog_table_name(table),
                             .key = sf_view_str(batch->broken[i]),
                             .explanation = "the row does not decode, and whoever reads it fails; "
                                            "its objects are the truth: `sfctl projection rebuild` "
                                            "makes it again",
                             .repair = "",
                             .problem = true});
    }
    c->sure = false;
}

enum sf_err sf_check_table_run(struct sf_check *c, const struct sf_check_table *table)
{
    struct sf_catalog_cursor cursor = {.skips = true};
    enum sf_err err = SF_OK;
    bool past = false;
    if (c->namespace_id != 0)
        sf_catalog_cursor_before(&cursor, table->table, c->namespace_id);
    while (err == SF_OK && !cursor.ended && !past) {
        struct sf_catalog_batch batch;
        sf_arena_reset(c->page);
        struct sf_sql_conn *conn = sf_sql_acquire(c->catalog->deps.sql, c->sched, SF_SQL_READ);
        err = sf_catalog_rows_read(conn, table->table, &cursor, SF_CHECK_PAGE,
                                   SF_LIMIT_CHECKPOINT_SHARD_BYTES, c->page, c->diag, &batch);
        sf_sql_release(conn);
        past = err == SF_OK && cut_past(c, table->table, &batch);
        if (err == SF_OK)
            tell_broken(c, table->table, &batch);
        if (err == SF_OK)
            err = sf_check_batch(c, table, &batch);
    }
    sf_catalog_cursor_fini(&cursor);
    return err;
}

/* ---- the call ------------------------------------------------------------------------------ */

/* Directory of the namespace below "catalog/" or "catalog-allocator/collection-name/". */
static void directory(const struct sf_check *c, bool of_names, char *out, size_t size)
{
    struct sf_buf key = {0};
    if (of_names)
        sf_catalog_key_collection_name(&key, c->namespace_id, "");
    else
        sf_catalog_key_namespace(&key, c->namespace_id, 0);
    sf_buf_append(&key, "", 1);
    snprintf(out, size, "%s", (const char *)key.data);
    *strrchr(out, '/') = '\0';
    if (of_names) /* the hash of the name, too */
        *strrchr(out, '/') = '\0';
    snprintf(out + strlen(out), 2, "/");
    sf_buf_fini(&key);
}

static enum sf_err check_rows(struct sf_check *c)
{
    enum sf_err err = SF_OK;
    for (size_t i = 0; i < sf_check_table_count && err == SF_OK; i++) {
        enum sf_catalog_table table = sf_check_tables[i].table;
        if (c->namespace_id != 0 && table == SF_CATALOG_TABLE_REPLAY)
            err = sf_check_records_of_namespace(c);
        else if (c->namespace_id == 0 || table != SF_CATALOG_TABLE_NAMESPACE_NAMES)
            err = sf_check_table_run(c, &sf_check_tables[i]);
    }
    return err;
}

static enum sf_err check_namespace(struct sf_check *c)
{
    char prefix[128];
    directory(c, false, prefix, sizeof(prefix));
    enum sf_err err = sf_check_prefix(c, prefix, sf_check_controls, sf_check_control_count);
    if (err == SF_OK)
        err = check_rows(c);
    directory(c, true, prefix, sizeof(prefix));
    if (err == SF_OK)
        err = sf_check_prefix(c, prefix, sf_check_collection_names, 1);
    if (err == SF_OK)
        err = sf_check_statistics_rows(c);
    return err == SF_OK ? sf_check_unknown_rows(c) : err;
}

static enum sf_err check_all(struct sf_check *c)
{
    /* records first: what they show, the other checks then compare */
    enum sf_err err = sf_check_prefix(c, "catalog-log/", sf_check_log, 1);
    if (err == SF_OK)
        err = check_rows(c);
    if (err == SF_OK)
        err = sf_check_prefix(c, "catalog-allocator/namespace-name/", sf_check_namespace_names, 1);
    if (err == SF_OK)
        err =
            sf_check_prefix(c, "catalog-allocator/collection-name/", sf_check_collection_names, 1);
    if (err == SF_OK)
        err = sf_check_prefix(c, "catalog/", sf_check_controls, sf_check_control_count);
    if (err == SF_OK)
        err = sf_check_statistics_rows(c);
    if (err == SF_OK)
        err = sf_check_unknown_rows(c);
    if (err == SF_OK)
        err = sf_check_prefix(c, "catalog-replay-", sf_check_pointers, 1);
    if (err == SF_OK)
        err = sf_check_checkpoints(c);
    return err == SF_OK ? sf_check_chain(c) : err;
}

static enum sf_err run_check(struct sf_check *c)
{
    enum sf_err err = sf_catalog_owner_check(c->catalog, c->sched, c->diag);
    if (err == SF_OK)
        err = sf_check_alive(c);
    if (err == SF_OK)
        err = c->namespace_id != 0 ? check_namespace(c) : check_all(c);
    return err;
}

static enum sf_err check_catalog(struct sf_catalog *catalog, struct sf_sched *sched,
                                 struct sf_call *call, const ProtobufCMessage *message)
{
    const SF_PB(CheckCatalogRequest) *request = (const SF_PB(CheckCatalogRequest) *)message;
    struct sf_check c = {.catalog = catalog,
                         .sched = sched,
                         .call = call,
                         .diag = sf_call_diag(call),
                         .namespace_id = request->namespace_id,
                         .repair = request->repair,
                         .max = request->max_findings == 0 ? SF_CATALOG_FINDINGS
                                                           : request->max_findings};
    searchfabric__v1__check_catalog_response__init(&c.response);
    if (c.max > SF_CATALOG_FINDINGS_MAX)
        return sf_diag_bad_field(c.diag, "max_findings", "out_of_range", "at most 10000");
    c.response.findings =
        sf_arena_alloc(sf_call_arena(call), (c.max + 1) * sizeof(*c.response.findings));
    c.page = sf_arena_new(SF_LIMIT_CHECKPOINT_ARENA_BYTES);
    c.chunk = sf_arena_new(SF_LIMIT_CHECKPOINT_ARENA_BYTES);
    c.one = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    c.ahead = sf_catalog_ahead_new();
    c.key_room = SF_CHECK_PAGE;
    c.keys = sf_calloc(c.key_room, sizeof(*c.keys));
    enum sf_err err = c.response.findings == NULL ? SF_ERR_LIMIT : run_check(&c);
    SF_LOG(INFO, "catalog_checked", SF_KV_U64("namespace_id", c.namespace_id),
           SF_KV_U64("rows", c.response.rows_read), SF_KV_U64("objects", c.response.objects_read),
           SF_KV_U64("problems", c.response.problems), SF_KV_U64("repaired", c.response.repaired),
           SF_KV_STR("error", err == SF_OK ? "" : sf_err_info(err)->meaning));
    if (err == SF_OK)
        sf_call_respond(call, &c.response.base);
    sf_catalog_ahead_destroy(c.ahead);
    free(c.keys);
    sf_arena_destroy(c.one);
    sf_arena_destroy(c.chunk);
    sf_arena_destroy(c.page);
    return err;
}

void sf_catalog_check_call(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    sf_catalog_operate(self, call, request, check_catalog);
}
