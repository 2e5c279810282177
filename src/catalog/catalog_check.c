/*
 * Model: the check goes both ways, in pages. Rows to objects: what the object of a row's revision,
 * version, name or identity says is what the row must say. Objects to rows: a committed record, an
 * allocator object without a row; a versioned control object that no APPLIED record names is an
 * orphan and harmless; a namespace or collection whose record has its row, which is not tombstoned
 * and has no row of its own lost it. Last, the chain must be dense from the boundary on.
 *
 * A repair holds the gates of the thing, reads the row again and leaves it alone when it moved
 * since it was judged; it writes under the owner's epoch. What only an object could tell is never
 * guessed: a missing object is reported and stays a problem.
 */
#include "catalog/catalog_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "catalog/catalog_gate.h"
#include "catalog/catalog_retention.h"
#include "catalog/catalog_rules.h"
#include "searchfabric/v1/catalog_operations_private.pb-c.h"

#define PAGE 128

/* One run. */
struct check {
    struct sf_catalog *catalog;
    struct sf_sched *sched;
    struct sf_call *call;
    struct sf_diag *diag;
    struct sf_arena *page; /* of a page of rows or keys; reset between */
    struct sf_arena *one;  /* of one thing; reset between */
    uint64_t namespace_id; /* 0 = all */
    bool repair;
    size_t max;
    uint64_t judged[2]; /* namespace and collection whose missing row was judged last */
    SF_PB(CheckCatalogResponse) response;
};

/* ---- findings ----------------------------------------------------------------------------- */

/* What is wrong with one thing. */
struct finding {
    const char *kind, *subject, *explanation, *repair;
    struct sf_view key;
    bool problem;
    bool repaired;
};

static void add_finding(struct check *c, const struct finding *f)
{
    struct sf_arena *arena = sf_call_arena(c->call);
    c->response.problems += f->problem ? 1 : 0;
    c->response.harmless += f->problem ? 0 : 1;
    c->response.repaired += f->repaired ? 1 : 0;
    if (c->response.n_findings >= c->max)
        return;
    SF_PB(CatalogFinding) *out = sf_arena_alloc(arena, sizeof(*out));
    if (out == NULL)
        return;
    searchfabric__v1__catalog_finding__init(out);
    out->kind = sf_arena_str(arena, sf_view_str(f->kind));
    out->subject = sf_arena_str(arena, sf_view_str(f->subject));
    out->key = sf_arena_str(arena, f->key);
    out->explanation = sf_arena_str(arena, sf_view_str(f->explanation));
    out->repair = sf_arena_str(arena, sf_view_str(f->repair));
    out->repaired = f->repaired;
    out->problem = f->problem;
    if (!sf_arena_overflowed(arena))
        c->response.findings[c->response.n_findings++] = out;
}

/* ---- repairs ------------------------------------------------------------------------------ */

/* What a row is about. */
static struct sf_catalog_gates gates_of(enum sf_catalog_table table, const ProtobufCMessage *row)
{
    struct sf_catalog_gates gates = {0};
    if (table == SF_CATALOG_TABLE_NAMESPACES) {
        gates.namespace_id = ((const SF_PB(NamespaceRow) *)row)->namespace_id;
        gates.namespace_exclusive = true;
    } else if (table == SF_CATALOG_TABLE_COLLECTIONS) {
        gates.namespace_id = ((const SF_PB(CollectionRow) *)row)->collection->namespace_id;
        gates.collection_id = ((const SF_PB(CollectionRow) *)row)->collection->collection_id;
    } else if (table == SF_CATALOG_TABLE_GENERATIONS) {
        const SF_PB(SchemaGenerationRow) *generation = (const SF_PB(SchemaGenerationRow) *)row;
        gates.namespace_id = generation->body->collection->namespace_id;
        gates.collection_id = generation->body->collection->collection_id;
    } else if (table == SF_CATALOG_TABLE_COLLECTION_NAMES) {
        gates.namespace_id = ((const SF_PB(NameEpochRow) *)row)->namespace_id;
        gates.namespace_exclusive = true;
    }
    return gates;
}

static enum sf_err owner_guard(struct check *c, struct sf_sql_conn *conn)
{
    uint64_t count, low, high;
    enum sf_err err = sf_catalog_sql_shards(conn, c->diag, &count, &low, &high);
    if (err == SF_OK && (count < c->catalog->lane_shards || high > c->catalog->owner_epoch)) {
        sf_catalog_depose(c->catalog, "projection", high);
        err = sf_diag_set(c->diag, SF_ERR_DEPOSED, "a newer owner has the projection");
    }
    return err;
}

/* Writes `wanted` in place of `seen` (NULL = no row), unless the row moved. */
static enum sf_err rewrite(struct check *c, enum sf_catalog_table table,
                           const ProtobufCMessage *seen, const ProtobufCMessage *wanted,
                           bool *out_done)
{
    struct sf_catalog_gates gates = gates_of(table, wanted);
    ProtobufCMessage *now = NULL;
    if (gates.namespace_id != 0)
        sf_catalog_gates_acquire(c->catalog, &gates);
    struct sf_sql_conn *conn = sf_sql_acquire(c->catalog->deps.sql, c->sched, SF_SQL_WRITE);
    enum sf_err err = sf_sql_begin(conn, c->diag);
    if (err == SF_OK)
        err = owner_guard(c, conn);
    if (err == SF_OK)
        err = sf_catalog_rows_find(conn, table, wanted, c->one, c->diag, &now);
    if (err == SF_ERR_CORRUPT && seen == NULL) { /* it does not decode: the object decides */
        sf_diag_init(c->diag);
        err = SF_OK;
    }
    bool same = now == NULL || seen == NULL ? now == NULL : sf_catalog_same(now, seen);
    if (err == SF_OK && same)
        err = sf_catalog_rows_delete(conn, table, wanted, c->diag);
    if (err == SF_OK && same)
        err = sf_catalog_rows_insert(conn, table, wanted, c->diag);
    if (err == SF_OK && same)
        err = sf_sql_commit(conn, c->diag);
    else
        sf_sql_rollback(conn);
    sf_sql_release(conn);
    if (gates.collection_id != 0)
        sf_catalog_state_forget(c->catalog, gates.namespace_id, gates.collection_id);
    if (table == SF_CATALOG_TABLE_NAMESPACES)
        sf_catalog_state_namespace(c->catalog, gates.namespace_id,
                                   ((const SF_PB(NamespaceRow) *)wanted)->namespace_name);
    if (table == SF_CATALOG_TABLE_COLLECTIONS)
        sf_catalog_state_binding(c->catalog, gates.namespace_id,
                                 ((const SF_PB(CollectionRow) *)wanted)->collection_name);
    if (gates.namespace_id != 0)
        sf_catalog_gates_release(c->catalog, &gates);
    *out_done = err == SF_OK && same;
    return err;
}

/* Reports a row that its object contradicts, and repairs it. */
static enum sf_err differs(struct check *c, enum sf_catalog_table table,
                           const ProtobufCMessage *row, const ProtobufCMessage *wanted,
                           struct sf_view key, bool problem)
{
    struct finding f = {.kind = row == NULL ? "row_missing" : "row_differs",
                        .subject = sf_catalog_table_name(table),
                        .key = key,
                        .explanation = row == NULL
                                           ? "the object is committed and the table has no such row"
                                           : "the row does not say what its object says",
                        .repair = "the row is written again from the object",
                        .problem = problem};
    enum sf_err err = c->repair ? rewrite(c, table, row, wanted, &f.repaired) : SF_OK;
    if (err == SF_OK)
        add_finding(c, &f);
    return err;
}

/* Reads an object; absent: NULL. One that does not verify is a finding of its own and NULL with
 * *out_broken. */
static enum sf_err read_object(struct check *c, const struct sf_buf *key,
                               const ProtobufCMessageDescriptor *desc, ProtobufCMessage **out,
                               bool *out_broken)
{
    struct sf_diag diag;
    sf_diag_init(&diag);
    *out = NULL;
    *out_broken = false;
    enum sf_err err = sf_catalog_read(c->catalog, c->sched, sf_buf_view(key), desc, false, c->one,
                                      &diag, out, NULL, NULL);
    c->response.objects_read++;
    if (err == SF_ERR_CORRUPT) {
        *out = NULL;
        *out_broken = true;
        add_finding(c, &(struct finding){.kind = "object_broken",
                                         .subject = "object",
                                         .key = sf_buf_view(key),
                                         .explanation = diag.message,
                                         .repair = "",
                                         .problem = true});
    } else if (err != SF_OK && err != SF_ERR_NOT_FOUND) {
        *c->diag = diag;
        return err;
    }
    return SF_OK;
}

static void missing(struct check *c, const char *subject, const struct sf_buf *key, bool problem)
{
    add_finding(c, &(struct finding){.kind = "object_missing",
                                     .subject = subject,
                                     .key = sf_buf_view(key),
                                     .explanation =
                                         problem ? "a row shows what this object held; it is gone, "
                                                   "and nothing else can tell its contents"
                                                 : "superseded and removed",
                                     .repair = "",
                                     .problem = problem});
}

/* ---- rows to objects ---------------------------------------------------------------------- */

/* A policy that says nothing is the same as none: the table's column has no NULL. */
static SF_PB(InternalPolicyState) * said_policy(SF_PB(InternalPolicyState) * policy)
{
    bool empty = policy != NULL && protobuf_c_message_get_packed_size(&policy->base) == 0;
    return empty ? NULL : policy;
}

static enum sf_err check_namespace(struct check *c, const ProtobufCMessage *message)
{
    const SF_PB(NamespaceRow) *row = (const SF_PB(NamespaceRow) *)message;
    struct sf_buf key = {0};
    ProtobufCMessage *object;
    bool broken;
    sf_catalog_key_namespace(&key, row->namespace_id, row->namespace_revision);
    enum sf_err err = read_object(
        c, &key, &searchfabric__v1__namespace_descriptor_object__descriptor, &object, &broken);
    if (err == SF_OK && object == NULL && !broken)
        missing(c, "namespaces", &key, true);
    if (err == SF_OK && object != NULL) {
        SF_PB(NamespaceRow) *wanted =
            sf_catalog_namespace_row((const SF_PB(NamespaceDescriptorObject) *)object, row, c->one);
        if (wanted != NULL)
            wanted->internal_policy_state = said_policy(wanted->internal_policy_state);
        if (wanted != NULL && !sf_catalog_same(&wanted->base, message))
            err = differs(c, SF_CATALOG_TABLE_NAMESPACES, message, &wanted->base, sf_buf_view(&key),
                          true);
    }
    sf_buf_fini(&key);
    return err;
}

static enum sf_err check_collection(struct check *c, const ProtobufCMessage *message)
{
    const SF_PB(CollectionRow) *row = (const SF_PB(CollectionRow) *)message;
    struct sf_buf key = {0};
    ProtobufCMessage *object;
    bool broken;
    sf_catalog_key_collection(&key, row->collection->namespace_id, row->collection->collection_id,
                              row->descriptor_revision);
    enum sf_err err = read_object(
        c, &key, &searchfabric__v1__collection_descriptor_object__descriptor, &object, &broken);
    if (err == SF_OK && object == NULL && !broken)
        missing(c, "collections", &key, true);
    if (err == SF_OK && object != NULL) {
        SF_PB(CollectionRow) *wanted = sf_catalog_collection_row(
            (const SF_PB(CollectionDescriptorObject) *)object, row, c->one);
        if (wanted != NULL)
            wanted->internal_policy_state = said_policy(wanted->internal_policy_state);
        if (wanted != NULL && !sf_catalog_same(&wanted->base, message))
            err = differs(c, SF_CATALOG_TABLE_COLLECTIONS, message, &wanted->base,
                          sf_buf_view(&key), true);
    }
    sf_buf_fini(&key);
    return err;
}

static enum sf_err check_generation(struct check *c, const ProtobufCMessage *message)
{
    const SF_PB(SchemaGenerationRow) *row = (const SF_PB(SchemaGenerationRow) *)message;
    const SF_PB(CollectionRef) *ref = row->body->collection;
    SF_PB(CollectionRow) *collection = NULL;
    struct sf_buf key = {0};
    ProtobufCMessage *found;
    bool broken;
    sf_catalog_key_generation(&key, ref->namespace_id, ref->collection_id,
                              row->body->schema_version, row->body->schema_generation_token);
    enum sf_err err = read_object(c, &key, &searchfabric__v1__schema_generation_object__descriptor,
                                  &found, &broken);
    if (err == SF_OK && found == NULL && !broken) {
        struct sf_sql_conn *conn = sf_sql_acquire(c->catalog->deps.sql, c->sched, SF_SQL_READ);
        err = sf_catalog_sql_collection(conn, ref->namespace_id, ref->collection_id, c->one,
                                        c->diag, &collection);
        sf_sql_release(conn);
        missing(c, "schema_generations", &key,
                collection != NULL &&
                    collection->active_schema_version <= row->body->schema_version);
    }
    SF_PB(SchemaGenerationObject) *object = (SF_PB(SchemaGenerationObject) *)found;
    if (err == SF_OK && object != NULL && object->body != NULL) {
        SF_PB(SchemaGenerationRow) wanted = *row;
        SF_PB(SchemaConvergence) convergence;
        searchfabric__v1__schema_convergence__init(&convergence);
        object->body->command_identity = (char *)(uintptr_t)protobuf_c_empty_string;
        wanted.body = object->body;
        if (object->convergence != NULL) {
            convergence.state = object->convergence->state;
            convergence.updated_at_unix_ms = object->convergence->updated_at_unix_ms;
            wanted.updated_at_unix_ms = convergence.updated_at_unix_ms;
            if (!sf_catalog_same(&convergence.state->base, &row->convergence->state->base))
                wanted.convergence = &convergence;
            else
                wanted.updated_at_unix_ms = row->updated_at_unix_ms;
        }
        wanted.convergence = object->convergence == NULL ? row->convergence : wanted.convergence;
        if (!sf_catalog_same(&wanted.body->base, &row->body->base) ||
            wanted.convergence != row->convergence)
            err = differs(c, SF_CATALOG_TABLE_GENERATIONS, message, &wanted.base, sf_buf_view(&key),
                          true);
    }
    sf_buf_fini(&key);
    return err;
}

/* Epoch of a name by its allocator object; 0 = none. */
static enum sf_err read_epoch(struct check *c, const struct sf_buf *key, bool of_namespace,
                              SF_PB(NameEpochRow) * out)
{
    ProtobufCMessage *object;
    bool broken;
    enum sf_err err =
        read_object(c, key,
                    of_namespace ? &searchfabric__v1__namespace_name_epoch_object__descriptor
                                 : &searchfabric__v1__collection_name_epoch_object__descriptor,
                    &object, &broken);
    searchfabric__v1__name_epoch_row__init(out);
    if (err != SF_OK || object == NULL)
        return err;
    if (of_namespace) {
        out->name = ((const SF_PB(NamespaceNameEpochObject) *)object)->namespace_name;
        out->last_allocated_epoch =
            ((const SF_PB(NamespaceNameEpochObject) *)object)->last_allocated_epoch;
    } else {
        const SF_PB(CollectionNameEpochObject) *name =
            (const SF_PB(CollectionNameEpochObject) *)object;
        out->name = name->collection_name;
        out->namespace_id = name->namespace_id;
        out->last_allocated_epoch = name->last_allocated_epoch;
    }
    return SF_OK;
}

static enum sf_err check_name(struct check *c, const ProtobufCMessage *message)
{
    const SF_PB(NameEpochRow) *row = (const SF_PB(NameEpochRow) *)message;
    bool of_namespace = row->namespace_id == 0;
    SF_PB(NameEpochRow) wanted;
    struct sf_buf key = {0};
    if (of_namespace)
        sf_catalog_key_namespace_name(&key, row->name);
    else
        sf_catalog_key_collection_name(&key, row->namespace_id, row->name);
    enum sf_err err = read_epoch(c, &key, of_namespace, &wanted);
    if (err == SF_OK && wanted.last_allocated_epoch == 0)
        missing(c, "name epochs", &key, true);
    /* an object ahead of its row: a reservation under way, or given up; harmless */
    else if (err == SF_OK && wanted.last_allocated_epoch != row->last_allocated_epoch)
        err = differs(
            c, of_namespace ? SF_CATALOG_TABLE_NAMESPACE_NAMES : SF_CATALOG_TABLE_COLLECTION_NAMES,
            message, &wanted.base, sf_buf_view(&key),
            wanted.last_allocated_epoch < row->last_allocated_epoch);
    sf_buf_fini(&key);
    return err;
}

/* Are the record's pointers there? */
static enum sf_err check_pointers(struct check *c, const SF_PB(CommandOutcomeObject) * outcome)
{
    struct sf_catalog_put puts[2];
    size_t count = sf_catalog_pointer_puts(outcome, puts);
    enum sf_err err = SF_OK;
    for (size_t i = 0; i < count && err == SF_OK; i++) {
        ProtobufCMessage *object;
        bool broken;
        err = read_object(c, &puts[i].key, &searchfabric__v1__replay_pointer_object__descriptor,
                          &object, &broken);
        if (err != SF_OK || object != NULL || broken)
            continue;
        struct finding f = {.kind = "pointer_missing",
                            .subject =
                                i == 0 ? "catalog-replay-transport" : "catalog-replay-business",
                            .key = sf_buf_view(&puts[i].key),
                            .explanation = "the record stands and its replay pointer does not",
                            .repair = "the pointer is published again from the record",
                            .problem = true};
        if (c->repair) {
            err = sf_catalog_pointers(c->catalog, c->sched, outcome);
            f.repaired = err == SF_OK;
        }
        if (err == SF_OK)
            add_finding(c, &f);
    }
    for (size_t i = 0; i < count; i++)
        sf_catalog_put_fini(&puts[i]);
    return err;
}

static enum sf_err check_record(struct check *c, const ProtobufCMessage *message)
{
    const SF_PB(ReplayIndexRow) *row = (const SF_PB(ReplayIndexRow) *)message;
    const char *identity = row->outcome->command_identity;
    struct sf_buf key = {0};
    ProtobufCMessage *found;
    bool broken;
    if (!sf_catalog_claim_command(c->catalog, identity))
        return SF_OK; /* it is being removed */
    sf_catalog_key_outcome(&key, identity);
    enum sf_err err = read_object(c, &key, &searchfabric__v1__command_outcome_object__descriptor,
                                  &found, &broken);
    SF_PB(CommandOutcomeObject) *outcome = (SF_PB(CommandOutcomeObject) *)found;
    if (err == SF_OK && outcome == NULL && !broken)
        missing(c, "catalog_replay_index", &key, true);
    if (err == SF_OK && outcome != NULL) {
        SF_PB(ReplayIndexRow) wanted = *row;
        outcome->sha256 = (char *)(uintptr_t)protobuf_c_empty_string;
        wanted.outcome = outcome;
        if (!sf_catalog_same(&outcome->base, &row->outcome->base))
            err =
                differs(c, SF_CATALOG_TABLE_REPLAY, message, &wanted.base, sf_buf_view(&key), true);
        if (err == SF_OK)
            err = check_pointers(c, outcome);
    }
    sf_catalog_unclaim_command(c->catalog, identity);
    sf_buf_fini(&key);
    return err;
}

/* Which namespace a row belongs to; 0 = none. */
static uint64_t namespace_of(enum sf_catalog_table table, const ProtobufCMessage *row)
{
    if (table == SF_CATALOG_TABLE_REPLAY) {
        const SF_PB(CommandOutcomeObject) *outcome = ((const SF_PB(ReplayIndexRow) *)row)->outcome;
        return outcome->scope == NULL ? 0 : outcome->scope->namespace_id;
    }
    return gates_of(table, row).namespace_id;
}

static const struct {
    enum sf_catalog_table table;
    enum sf_err (*check)(struct check *c, const ProtobufCMessage *row);
} row_checks[] = {
    {SF_CATALOG_TABLE_NAMESPACES, check_namespace},
    {SF_CATALOG_TABLE_COLLECTIONS, check_collection},
    {SF_CATALOG_TABLE_GENERATIONS, check_generation},
    {SF_CATALOG_TABLE_NAMESPACE_NAMES, check_name},
    {SF_CATALOG_TABLE_COLLECTION_NAMES, check_name},
    {SF_CATALOG_TABLE_REPLAY, check_record},
};

static enum sf_err check_table(struct check *c, size_t which)
{
    enum sf_catalog_table table = row_checks[which].table;
    struct sf_catalog_cursor cursor = {0};
    enum sf_err err = SF_OK;
    while (err == SF_OK && !cursor.ended && !sf_catalog_ending(c->catalog)) {
        struct sf_catalog_batch batch;
        sf_arena_reset(c->page);
        struct sf_sql_conn *conn = sf_sql_acquire(c->catalog->deps.sql, c->sched, SF_SQL_READ);
        err = sf_catalog_rows_read(conn, table, &cursor, PAGE, SF_LIMIT_CHECKPOINT_SHARD_BYTES,
                                   c->page, c->diag, &batch);
        sf_sql_release(conn);
        for (size_t i = 0; i < batch.count && err == SF_OK; i++) {
            c->response.rows_read++;
            sf_arena_reset(c->one);
            if (c->namespace_id == 0 || namespace_of(table, batch.rows[i]) == c->namespace_id)
                err = row_checks[which].check(c, batch.rows[i]);
        }
    }
    sf_catalog_cursor_fini(&cursor);
    return err;
}

/* ---- objects to rows ---------------------------------------------------------------------- */

/* Shows a committed record that has no row, with its control object's rows. */
static enum sf_err show_record(struct check *c, const SF_PB(CommandOutcomeObject) * outcome,
                               bool *out_done)
{
    struct sf_catalog *catalog = c->catalog;
    ProtobufCMessage *object = NULL;
    bool dropped = false;
    struct sf_catalog_gates gates = {
        .namespace_id = outcome->scope == NULL ? 0 : outcome->scope->namespace_id,
        .namespace_exclusive = true,
        .collection_id = outcome->scope == NULL ? 0 : outcome->scope->collection_id};
    if (gates.namespace_id != 0)
        sf_catalog_gates_acquire(catalog, &gates);
    enum sf_err err = sf_catalog_control_read(catalog, c->sched, outcome, c->one, c->diag, &object);
    if (err == SF_OK)
        err = sf_catalog_pointers(catalog, c->sched, outcome);
    if (err == SF_OK) {
        struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, c->sched, SF_SQL_WRITE);
        err = sf_sql_begin(conn, c->diag);
        if (err == SF_OK)
            err =
                sf_catalog_project(catalog, conn, outcome, object, true, c->one, c->diag, &dropped);
        if (err == SF_OK && dropped)
            err = sf_catalog_depose(catalog, "projection", 0);
        if (err == SF_OK)
            err = sf_sql_commit(conn, c->diag);
        else
            sf_sql_rollback(conn);
        sf_sql_release(conn);
    }
    if (gates.collection_id != 0)
        sf_catalog_state_forget(catalog, gates.namespace_id, gates.collection_id);
    if (gates.namespace_id != 0)
        sf_catalog_gates_release(catalog, &gates);
    *out_done = err == SF_OK;
    return err;
}

static enum sf_err record_has_row(struct check *c, const char *identity, bool *out_present)
{
    SF_PB(CommandOutcomeObject) *row = NULL;
    struct sf_sql_conn *conn = sf_sql_acquire(c->catalog->deps.sql, c->sched, SF_SQL_READ);
    enum sf_err err = sf_catalog_sql_replay(conn, identity, c->one, c->diag, &row);
    sf_sql_release(conn);
    *out_present = row != NULL;
    return err;
}

static enum sf_err check_log(struct check *c, struct sf_view key)
{
    ProtobufCMessage *found;
    struct sf_buf text = {0};
    bool broken;
    sf_buf_append(&text, key.ptr, key.len);
    enum sf_err err = read_object(c, &text, &searchfabric__v1__command_outcome_object__descriptor,
                                  &found, &broken);
    sf_buf_fini(&text);
    SF_PB(CommandOutcomeObject) *outcome = (SF_PB(CommandOutcomeObject) *)found;
    if (err != SF_OK || outcome == NULL || outcome->abort != NULL)
        return err;
    if (c->namespace_id != 0 &&
        (outcome->scope == NULL || outcome->scope->namespace_id != c->namespace_id))
        return SF_OK;
    bool present = false;
    err = record_has_row(c, outcome->command_identity, &present);
    if (err != SF_OK || present || !sf_catalog_claim_removal(c->catalog, outcome->command_identity))
        return err; /* under way: its own command shows it */
    err = record_has_row(c, outcome->command_identity, &present);
    if (err == SF_OK && !present) {
        bool expired = sf_catalog_record_expired(c->catalog, outcome);
        struct finding f = {
            .kind = expired ? "record_expired" : "row_missing",
            .subject = "catalog_replay_index",
            .key = key,
            .explanation = expired
                               ? "past the retention; a removal of it was cut short, it answers "
                                 "nothing"
                               : "the record is committed and the projection does not show it",
            .repair = expired ? "the record is removed" : "pointers and rows are written from it",
            .problem = !expired};
        if (c->repair && !expired)
            err = show_record(c, outcome, &f.repaired);
        sf_catalog_unclaim_removal(c->catalog, outcome->command_identity, false);
        if (c->repair && expired)
            err = sf_catalog_leftover_remove(c->catalog, c->sched, outcome->command_identity,
                                             c->diag, &f.repaired);
        if (err == SF_OK)
            add_finding(c, &f);
        return err;
    }
    sf_catalog_unclaim_removal(c->catalog, outcome->command_identity, false);
    return err;
}

static enum sf_err check_allocator(struct check *c, struct sf_view key)
{
    bool of_namespace = memmem(key.ptr, key.len, "/namespace-name/", 16) != NULL;
    enum sf_catalog_table table =
        of_namespace ? SF_CATALOG_TABLE_NAMESPACE_NAMES : SF_CATALOG_TABLE_COLLECTION_NAMES;
    SF_PB(NameEpochRow) wanted;
    ProtobufCMessage *row = NULL;
    struct sf_buf text = {0};
    sf_buf_append(&text, key.ptr, key.len);
    enum sf_err err = read_epoch(c, &text, of_namespace, &wanted);
    sf_buf_fini(&text);
    if (err != SF_OK || wanted.last_allocated_epoch == 0 ||
        (c->namespace_id != 0 && wanted.namespace_id != c->namespace_id))
        return err;
    struct sf_sql_conn *conn = sf_sql_acquire(c->catalog->deps.sql, c->sched, SF_SQL_READ);
    err = sf_catalog_rows_find(conn, table, &wanted.base, c->one, c->diag, &row);
    sf_sql_release(conn);
    /* a first reservation that was given up has an object alone */
    return err == SF_OK && row == NULL ? differs(c, table, NULL, &wanted.base, key, false) : err;
}

/* Only what is tombstoned can have been released, and a release takes the rows. */
static enum sf_err is_tombstoned(struct check *c, uint64_t namespace_id, uint64_t collection_id,
                                 bool *out_tombstoned)
{
    struct sf_buf prefix = {0}, after = {0};
    enum sf_err err = SF_OK;
    size_t count = SF_LIMIT_LIST_PAGE_ENTRIES;
    *out_tombstoned = false;
    if (collection_id != 0)
        sf_catalog_key_tombstone(&prefix, namespace_id, collection_id, 0);
    else
        sf_catalog_key_namespace(&prefix, namespace_id, 0);
    prefix.len -= strlen("0.json");
    sf_buf_append(&prefix, "", 1);
    while (err == SF_OK && count == SF_LIMIT_LIST_PAGE_ENTRIES && !*out_tombstoned) {
        struct sf_list_entry *entries = NULL;
        err = sf_catalog_list(c->catalog, c->sched, (const char *)prefix.data, &after, c->one,
                              c->diag, &entries, &count);
        for (size_t i = 0; i < count && err == SF_OK && !*out_tombstoned; i++) {
            ProtobufCMessage *object = NULL;
            struct sf_buf key = {0};
            bool broken;
            sf_buf_append(&key, entries[i].key.ptr, entries[i].key.len);
            if (collection_id == 0)
                err =
                    read_object(c, &key, &searchfabric__v1__namespace_descriptor_object__descriptor,
                                &object, &broken);
            *out_tombstoned =
                collection_id != 0 ||
                (object != NULL &&
                 ((const SF_PB(NamespaceDescriptorObject) *)object)->lifecycle_state ==
                     SF_PBE(NAMESPACE_LIFECYCLE_STATE, TOMBSTONED));
            sf_buf_fini(&key);
        }
    }
    sf_buf_fini(&prefix);
    sf_buf_fini(&after);
    return err;
}

/* Does the thing of a committed descriptor have its row? A record's row and the thing's are written
 * together, so one without the other is a loss; only the first object of a thing is judged. */
static enum sf_err check_shown(struct check *c, struct sf_view key, const char *identity,
                               uint64_t namespace_id, uint64_t collection_id)
{
    SF_PB(CommandOutcomeObject) *record = NULL;
    SF_PB(NamespaceRow) *ns = NULL;
    SF_PB(CollectionRow) *collection = NULL;
    bool tombstoned = false;
    if (c->judged[0] == namespace_id && c->judged[1] == collection_id)
        return SF_OK;
    struct sf_sql_conn *conn = sf_sql_acquire(c->catalog->deps.sql, c->sched, SF_SQL_READ);
    enum sf_err err = sf_sql_begin(conn, c->diag);
    if (err == SF_OK)
        err = sf_catalog_sql_replay(conn, identity, c->one, c->diag, &record);
    if (err == SF_OK && collection_id == 0)
        err = sf_catalog_sql_namespace(conn, namespace_id, c->one, c->diag, &ns);
    else if (err == SF_OK)
        err = sf_catalog_sql_collection(conn, namespace_id, collection_id, c->one, c->diag,
                                        &collection);
    sf_sql_rollback(conn);
    sf_sql_release(conn);
    if (err != SF_OK || record == NULL || ns != NULL || collection != NULL)
        return err;
    if (sf_catalog_record_expired(c->catalog, record)) /* what released it may be past retention */
        return SF_OK;
    c->judged[0] = namespace_id;
    c->judged[1] = collection_id;
    err = is_tombstoned(c, namespace_id, collection_id, &tombstoned);
    if (err == SF_OK && !tombstoned)
        add_finding(c,
                    &(struct finding){.kind = "row_lost",
                                      .subject = collection_id == 0 ? "namespaces" : "collections",
                                      .key = key,
                                      .explanation = "the object is committed, the projection "
                                                     "shows its record and has no row of it",
                                      .repair = "",
                                      .problem = true});
    return err;
}

/* A versioned control object: is it named by an APPLIED record? */
static enum sf_err check_control(struct check *c, struct sf_view key)
{
    static const struct {
        const char *family;
        const ProtobufCMessageDescriptor *desc;
    } families[] = {
        {"/namespace_descriptor_v", &searchfabric__v1__namespace_descriptor_object__descriptor},
        {"/collection_descriptor_v", &searchfabric__v1__collection_descriptor_object__descriptor},
        {"/schema_generation_v", &searchfabric__v1__schema_generation_object__descriptor},
        {"/collection_tombstone_v", &searchfabric__v1__collection_tombstone_object__descriptor},
    };
    const ProtobufCMessageDescriptor *desc = NULL;
    for (size_t i = 0; i < SF_ARRAY_LEN(families); i++) {
        if (memmem(key.ptr, key.len, families[i].family, strlen(families[i].family)) != NULL)
            desc = families[i].desc;
    }
    if (desc == NULL)
        return SF_OK;
    ProtobufCMessage *object, *record = NULL;
    struct sf_buf text = {0};
    bool broken, broken_record = false, named = false;
    sf_buf_append(&text, key.ptr, key.len);
    enum sf_err err = read_object(c, &text, desc, &object, &broken);
    const char *identity = "";
    if (err == SF_OK && object != NULL) {
        const ProtobufCFieldDescriptor *field =
            protobuf_c_message_descriptor_get_field_by_name(desc, "command_identity");
        if (field != NULL)
            memcpy(&identity, (const char *)object + field->offset, sizeof(identity));
        else if (((const SF_PB(SchemaGenerationObject) *)object)->body != NULL)
            identity = ((const SF_PB(SchemaGenerationObject) *)object)->body->command_identity;
        sf_buf_clear(&text);
        sf_catalog_key_outcome(&text, identity);
        err = read_object(c, &text, &searchfabric__v1__command_outcome_object__descriptor, &record,
                          &broken_record);
    }
    sf_buf_fini(&text);
    const SF_PB(CommandOutcomeObject) *outcome = (const SF_PB(CommandOutcomeObject) *)record;
    for (size_t i = 0; outcome != NULL && i < outcome->n_control_objects; i++)
        named = named || sf_view_equal(sf_view_str(outcome->control_objects[i]->key), key);
    if (err == SF_OK && named &&
        outcome->terminal_state == SF_PBE(COMMAND_TERMINAL_STATE, APPLIED)) {
        if (desc == &searchfabric__v1__namespace_descriptor_object__descriptor)
            return check_shown(c, key, identity,
                               ((const SF_PB(NamespaceDescriptorObject) *)object)->namespace_id, 0);
        if (desc == &searchfabric__v1__collection_descriptor_object__descriptor) {
            const SF_PB(CollectionRef) *ref =
                ((const SF_PB(CollectionDescriptorObject) *)object)->collection;
            return check_shown(c, key, identity, ref->namespace_id, ref->collection_id);
        }
    }
    if (err == SF_OK && object != NULL && !broken_record && !named)
        add_finding(
            c, &(struct finding){.kind = "orphan_object",
                                 .subject = "catalog",
                                 .key = key,
                                 .explanation =
                                     "no applied record names this object: an attempt that was "
                                     "given up left it, or its record is past the retention; "
                                     "readers and recovery ignore it",
                                 .repair = "",
                                 .problem = false});
    return err;
}

static enum sf_err check_prefix(struct check *c, const char *prefix,
                                enum sf_err (*check)(struct check *c, struct sf_view key))
{
    struct sf_buf after = {0};
    enum sf_err err = SF_OK;
    size_t count = SF_LIMIT_LIST_PAGE_ENTRIES;
    while (err == SF_OK && count == SF_LIMIT_LIST_PAGE_ENTRIES && !sf_catalog_ending(c->catalog)) {
        struct sf_list_entry *entries = NULL;
        sf_arena_reset(c->page);
        err = sf_catalog_list(c->catalog, c->sched, prefix, &after, c->page, c->diag, &entries,
                              &count);
        for (size_t i = 0; i < count && err == SF_OK; i++) {
            sf_arena_reset(c->one);
            err = check(c, entries[i].key);
        }
    }
    sf_buf_fini(&after);
    return err;
}

/* ---- the chain ---------------------------------------------------------------------------- */

/* Every slot from the boundary to the newest has its segment. */
static enum sf_err check_chain(struct check *c)
{
    uint64_t next = atomic_load(&c->catalog->lowest_segment);
    uint64_t newest = atomic_load(&c->catalog->newest_segment);
    struct sf_buf after = {0};
    enum sf_err err = SF_OK;
    size_t count = SF_LIMIT_LIST_PAGE_ENTRIES;
    sf_catalog_key_segment(&after, next - 1);
    while (err == SF_OK && count == SF_LIMIT_LIST_PAGE_ENTRIES && next <= newest) {
        struct sf_list_entry *entries = NULL;
        sf_arena_reset(c->page);
        err = sf_catalog_list(c->catalog, c->sched, SF_CATALOG_SEGMENT_PREFIX, &after, c->page,
                              c->diag, &entries, &count);
        for (size_t i = 0; i < count && err == SF_OK && next <= newest; i++) {
            uint64_t slot = 0;
            if (!sf_catalog_segment_of_key(entries[i].key, &slot))
                continue;
            if (slot > next)
                add_finding(c, &(struct finding){.kind = "segment_missing",
                                                 .subject = "catalog-recovery-segments",
                                                 .key = entries[i].key,
                                                 .explanation = "segments right below this one are "
                                                                "missing: a rebuild that needs "
                                                                "them fails closed",
                                                 .repair = "",
                                                 .problem = true});
            next = slot + 1;
        }
    }
    sf_buf_fini(&after);
    return err;
}

/* ---- the call ----------------------------------------------------------------------------- */

static enum sf_err run_check(struct check *c)
{
    char prefix[96];
    enum sf_err err = sf_catalog_owner_check(c->catalog, c->sched, c->diag);
    /* records first: what they show, the rows' own checks then compare */
    if (err == SF_OK)
        err = check_prefix(c, "catalog-log/", check_log);
    for (size_t i = 0; i < SF_ARRAY_LEN(row_checks) && err == SF_OK; i++)
        err = check_table(c, i);
    if (err == SF_OK)
        err = check_prefix(c, "catalog-allocator/", check_allocator);
    struct sf_buf key = {0};
    if (c->namespace_id != 0) {
        sf_catalog_key_namespace(&key, c->namespace_id, 0);
        sf_buf_append(&key, "", 1);
        snprintf(prefix, sizeof(prefix), "%s", (const char *)key.data);
        *strrchr(prefix, '/') = '\0';
        snprintf(prefix + strlen(prefix), 2, "/");
    } else {
        snprintf(prefix, sizeof(prefix), "catalog/");
    }
    sf_buf_fini(&key);
    if (err == SF_OK)
        err = check_prefix(c, prefix, check_control);
    return err == SF_OK ? check_chain(c) : err;
}

static enum sf_err check_catalog(struct sf_catalog *catalog, struct sf_sched *sched,
                                 struct sf_call *call, const ProtobufCMessage *message)
{
    const SF_PB(CheckCatalogRequest) *request = (const SF_PB(CheckCatalogRequest) *)message;
    struct check c = {.catalog = catalog,
                      .sched = sched,
                      .call = call,
                      .diag = sf_call_diag(call),
                      .namespace_id = request->namespace_id,
                      .repair = request->repair,
                      .max =
                          request->max_findings == 0 ? SF_CATALOG_FINDINGS : request->max_findings};
    searchfabric__v1__check_catalog_response__init(&c.response);
    if (c.max > SF_CATALOG_FINDINGS_MAX)
        return sf_diag_bad_field(c.diag, "max_findings", "out_of_range", "at most 10000");
    c.response.findings =
        sf_arena_alloc(sf_call_arena(call), (c.max + 1) * sizeof(*c.response.findings));
    c.page = sf_arena_new(SF_LIMIT_CHECKPOINT_ARENA_BYTES);
    c.one = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    enum sf_err err = c.response.findings == NULL ? SF_ERR_LIMIT : run_check(&c);
    SF_LOG(INFO, "catalog_checked", SF_KV_U64("namespace_id", c.namespace_id),
           SF_KV_U64("rows", c.response.rows_read), SF_KV_U64("objects", c.response.objects_read),
           SF_KV_U64("problems", c.response.problems), SF_KV_U64("repaired", c.response.repaired));
    if (err == SF_OK)
        sf_call_respond(call, &c.response.base);
    sf_arena_destroy(c.one);
    sf_arena_destroy(c.page);
    return err;
}

void sf_catalog_check_call(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    sf_catalog_operate(self, call, request, check_catalog);
}
