/*
 * Model: the allocator object of a name holds the newest epoch that was given out for it, for ever;
 * the row follows it. An object ahead of its row is a reservation on its way or given up, and
 * harmless. A lineage that holds the name was given its epoch by that object: where the object is
 * gone or behind, the next lineage of the name would get an epoch twice. The committed descriptor
 * and record of the lineage then tell exactly what the object said, and it is put again so; where
 * no lineage stands, nothing tells.
 */
#include "catalog/catalog_check_priv.h"

#include <inttypes.h>

#include "catalog/catalog_checkpoint.h"

/* What an allocator object says, whichever kind it is. */
struct name {
    SF_PB(NameEpochRow) row; /* last_allocated_epoch 0 = there is no object */
    uint64_t owner_epoch;    /* of its writer */
    struct sf_etag etag;     /* of the object */
    bool broken;             /* it does not verify */
};

static void name_key(uint64_t namespace_id, const char *name, struct sf_buf *out)
{
    if (namespace_id == 0)
        sf_catalog_key_namespace_name(out, name);
    else
        sf_catalog_key_collection_name(out, namespace_id, name);
}

static void take_message(const ProtobufCMessage *message, struct name *out)
{
    SF_PB(NameEpochRow) *row = &out->row;
    if (message->descriptor == &searchfabric__v1__namespace_name_epoch_object__descriptor) {
        const SF_PB(NamespaceNameEpochObject) *object =
            (const SF_PB(NamespaceNameEpochObject) *)message;
        row->name = object->namespace_name;
        row->last_allocated_epoch = object->last_allocated_epoch;
        out->owner_epoch = object->owner_epoch;
    } else {
        const SF_PB(CollectionNameEpochObject) *object =
            (const SF_PB(CollectionNameEpochObject) *)message;
        row->name = object->collection_name;
        row->namespace_id = object->namespace_id;
        row->last_allocated_epoch = object->last_allocated_epoch;
        out->owner_epoch = object->owner_epoch;
    }
}

static enum sf_err read_name(struct sf_check *c, const struct sf_buf *key, bool of_namespace,
                             struct name *out)
{
    const ProtobufCMessageDescriptor *desc =
        of_namespace ? &searchfabric__v1__namespace_name_epoch_object__descriptor
                     : &searchfabric__v1__collection_name_epoch_object__descriptor;
    ProtobufCMessage *message = NULL;
    *out = (struct name){0};
    searchfabric__v1__name_epoch_row__init(&out->row);
    enum sf_err err = sf_check_look(c, key, desc, &message, NULL, &out->etag, &out->broken);
    if (err == SF_OK && out->broken)
        err = sf_check_read(c, key, desc, &message, &out->broken); /* tells of it */
    if (err == SF_OK && message != NULL)
        take_message(message, out);
    return err;
}

static enum sf_catalog_table table_of(uint64_t namespace_id)
{
    return namespace_id == 0 ? SF_CATALOG_TABLE_NAMESPACE_NAMES : SF_CATALOG_TABLE_COLLECTION_NAMES;
}

/* ---- rows ---------------------------------------------------------------------------------- */

void sf_check_name_wants(struct sf_check *c, const ProtobufCMessage *message)
{
    const SF_PB(NameEpochRow) *row = (const SF_PB(NameEpochRow) *)message;
    name_key(row->namespace_id, row->name, sf_check_want(c));
}

/* Does a lineage hold the name? Then its own check tells. */
static enum sf_err is_bound(struct sf_check *c, const SF_PB(NameEpochRow) * row, bool *out_bound)
{
    SF_PB(NamespaceRow) *ns = NULL;
    SF_PB(CollectionRow) *collection = NULL;
    struct sf_sql_conn *conn = sf_sql_acquire(c->catalog->deps.sql, c->sched, SF_SQL_READ);
    enum sf_err err = row->namespace_id == 0
                          ? sf_catalog_sql_namespace_named(conn, row->name, c->one, c->diag, &ns)
                          : sf_catalog_sql_collection_named(conn, row->namespace_id, row->name,
                                                            c->one, c->diag, &collection);
    sf_sql_release(conn);
    *out_bound = ns != NULL || collection != NULL;
    return err;
}

enum sf_err sf_check_name(struct sf_check *c, const ProtobufCMessage *message)
{
    const SF_PB(NameEpochRow) *row = (const SF_PB(NameEpochRow) *)message;
    struct sf_buf key = {0};
    struct name name;
    bool bound = false;
    name_key(row->namespace_id, row->name, &key);
    enum sf_err err = read_name(c, &key, row->namespace_id == 0, &name);
    bool absent = name.row.last_allocated_epoch == 0;
    if (err == SF_OK && absent && !name.broken)
        err = is_bound(c, row, &bound);
    if (err == SF_OK && absent && !name.broken && !bound)
        sf_check_tell(c, &(struct sf_check_finding){
                             .kind = "object_missing",
                             .subject = sf_catalog_table_name(table_of(row->namespace_id)),
                             .key = sf_buf_view(&key),
                             .explanation =
                                 "the row shows an epoch of a name that nobody holds, and the "
                                 "object that gave it out is gone: the next lineage of the name "
                                 "would begin at epoch 1 again; restore the object",
                             .repair = "",
                             .problem = true});
    else if (err == SF_OK && !absent && name.row.last_allocated_epoch != row->last_allocated_epoch)
        err = sf_check_differs(c, table_of(row->namespace_id), message, &name.row.base,
                               sf_buf_view(&key),
                               name.row.last_allocated_epoch < row->last_allocated_epoch);
    sf_buf_fini(&key);
    return err;
}

/* ---- objects ------------------------------------------------------------------------------- */

static enum sf_err check_object(struct sf_check *c, struct sf_check_object *object)
{
    struct name name = {0};
    ProtobufCMessage *row = NULL;
    searchfabric__v1__name_epoch_row__init(&name.row);
    take_message(object->message, &name);
    enum sf_catalog_table table = table_of(name.row.namespace_id);
    struct sf_sql_conn *conn = sf_sql_acquire(c->catalog->deps.sql, c->sched, SF_SQL_READ);
    enum sf_err err = sf_catalog_rows_find(conn, table, &name.row.base, c->one, c->diag, &row);
    sf_sql_release(conn);
    /* a first reservation that was given up has an object alone */
    if (err == SF_OK && row == NULL)
        err = sf_check_differs(c, table, NULL, &name.row.base, object->key, false);
    return err;
}

const struct sf_check_family sf_check_namespace_names[1] = {
    {"/", "namespace_name_epochs", &searchfabric__v1__namespace_name_epoch_object__descriptor,
     false, false, NULL, check_object}};
const struct sf_check_family sf_check_collection_names[1] = {
    {"/", "collection_name_epochs", &searchfabric__v1__collection_name_epoch_object__descriptor,
     false, false, NULL, check_object}};

/* ---- lineages ------------------------------------------------------------------------------ */

/* A lineage and what the object of its name is to say. */
struct holder {
    uint64_t namespace_id;        /* the namespace, or the collection's */
    uint64_t collection_id;       /* 0 = the namespace itself */
    const char *name;             /* that it holds */
    uint64_t epoch;               /* of the name's allocation */
    const char *command_identity; /* of its create; NULL = not known */
    const char *attempt_id;       /* of the create's entry */
};

/* The create that reserved the epoch: named by the first descriptor, APPLIED by its record. */
static enum sf_err find_create(struct sf_check *c, struct holder *holder)
{
    struct sf_buf key = {0};
    ProtobufCMessage *first = NULL, *record = NULL;
    bool broken = false;
    if (holder->collection_id == 0)
        sf_catalog_key_namespace(&key, holder->namespace_id, 1);
    else
        sf_catalog_key_collection(&key, holder->namespace_id, holder->collection_id, 1);
    enum sf_err err = sf_check_look(
        c, &key,
        holder->collection_id == 0 ? &searchfabric__v1__namespace_descriptor_object__descriptor
                                   : &searchfabric__v1__collection_descriptor_object__descriptor,
        &first, NULL, NULL, &broken);
    sf_buf_clear(&key);
    if (err == SF_OK && first != NULL) {
        sf_catalog_key_outcome(&key, sf_check_command_of(first));
        err = sf_check_look(c, &key, &searchfabric__v1__command_outcome_object__descriptor, &record,
                            NULL, NULL, &broken);
    }
    sf_buf_fini(&key);
    const SF_PB(CommandOutcomeObject) *outcome = (const SF_PB(CommandOutcomeObject) *)record;
    if (err != SF_OK || outcome == NULL || outcome->entry == NULL ||
        outcome->terminal_state != SF_PBE(COMMAND_TERMINAL_STATE, APPLIED))
        return err;
    uint64_t epoch = holder->collection_id == 0 ? outcome->namespace_name_allocation_epoch
                                                : outcome->collection_name_allocation_epoch;
    if (epoch == holder->epoch) {
        holder->command_identity = outcome->command_identity;
        holder->attempt_id = outcome->entry->attempt_id;
    }
    return SF_OK;
}

static void encode(struct sf_check *c, const struct holder *holder,
                   char attempt_id[SF_ATTEMPT_ID_BYTES], struct sf_catalog_put *put)
{
    struct sf_catalog *catalog = c->catalog;
    SF_PB(NamespaceNameEpochObject) of_namespace;
    SF_PB(CollectionNameEpochObject) of_collection;
    searchfabric__v1__namespace_name_epoch_object__init(&of_namespace);
    searchfabric__v1__collection_name_epoch_object__init(&of_collection);
    sf_attempts_next(catalog->deps.attempts, attempt_id);
#define FILL(object)                                                                               \
    do {                                                                                           \
        (object).format_version = SF_CATALOG_FORMAT_VERSION;                                       \
        (object).attempt_id = attempt_id;                                                          \
        (object).owner_epoch = catalog->owner_epoch;                                               \
        (object).attempt = atomic_fetch_add(&catalog->attempts, 1) + 1;                            \
        (object).last_allocated_epoch = holder->epoch;                                             \
        (object).allocating_command_identity = (char *)(uintptr_t)holder->command_identity;        \
        (object).allocating_attempt_id = (char *)(uintptr_t)holder->attempt_id;                    \
        (object).updated_at_unix_ms = sf_clock_unix_ms(catalog->deps.clock);                       \
    } while (0)
    if (holder->collection_id == 0) {
        FILL(of_namespace);
        of_namespace.namespace_name = (char *)(uintptr_t)holder->name;
        of_namespace.allocated_namespace_id = holder->namespace_id;
        sf_catalog_put_encode(put, &of_namespace.base, false, NULL);
    } else {
        FILL(of_collection);
        of_collection.namespace_id = holder->namespace_id;
        of_collection.collection_name = (char *)(uintptr_t)holder->name;
        of_collection.allocated_collection_id = holder->collection_id;
        sf_catalog_put_encode(put, &of_collection.base, false, NULL);
    }
#undef FILL
}

/* Swaps the object to what the lineage proves; *out_done false: somebody else swapped it. */
static enum sf_err put_again(struct sf_check *c, const struct holder *holder,
                             const struct name *seen, const struct sf_buf *key, bool *out_done)
{
    char attempt_id[SF_ATTEMPT_ID_BYTES];
    struct sf_catalog_put put = {.cond = seen->row.last_allocated_epoch == 0 ? SF_PUT_ABSENT
                                                                             : SF_PUT_MATCH,
                                 .match = seen->etag};
    if (seen->owner_epoch > c->catalog->owner_epoch)
        return sf_catalog_depose(c->catalog, "name epoch", seen->owner_epoch);
    enum sf_err err = sf_catalog_owner_check(c->catalog, c->sched, c->diag);
    if (err != SF_OK)
        return err;
    sf_buf_append(&put.key, key->data, key->len);
    encode(c, holder, attempt_id, &put);
    err = sf_catalog_put_run(c->catalog, c->sched, &put, SF_CATALOG_PUT_TRIES);
    *out_done = err == SF_OK && put.state == SF_CATALOG_PUT_STANDS;
    sf_catalog_put_fini(&put);
    return err;
}

/* The object is gone, or says less than the lineage proves. */
static enum sf_err tell_behind(struct sf_check *c, struct holder *holder, const struct name *seen,
                               const struct sf_buf *key)
{
    struct sf_check_finding f = {
        .kind = seen->row.last_allocated_epoch == 0 ? "object_missing" : "object_differs",
        .subject = holder->collection_id == 0 ? "namespace_name_epochs" : "collection_name_epochs",
        .key = sf_buf_view(key),
        .repair = "the object is put again with that epoch, under the owner's epoch",
        .problem = true};
    f.explanation = sf_arena_printf(
        c->one,
        "the lineage that holds the name has epoch %" PRIu64
        " and the object of the name says %" PRIu64
        ": the next lineage would get an epoch twice; the lineage's record is the truth",
        holder->epoch, seen->row.last_allocated_epoch);
    enum sf_err err = find_create(c, holder);
    if (holder->command_identity == NULL)
        f.repair = "";
    else if (err == SF_OK && c->repair)
        err = put_again(c, holder, seen, key, &f.repaired);
    if (err == SF_OK && f.explanation != NULL)
        sf_check_tell(c, &f);
    return err;
}

enum sf_err sf_check_name_of(struct sf_check *c, uint64_t namespace_id, uint64_t collection_id,
                             const char *name, uint64_t epoch)
{
    struct holder holder = {
        .namespace_id = namespace_id, .collection_id = collection_id, .name = name, .epoch = epoch};
    struct sf_buf key = {0};
    struct name seen;
    name_key(collection_id == 0 ? 0 : namespace_id, name, &key);
    enum sf_err err = read_name(c, &key, collection_id == 0, &seen);
    bool behind = err == SF_OK && !seen.broken && seen.row.last_allocated_epoch < epoch;
    if (behind && !sf_check_unsure(c))
        err = tell_behind(c, &holder, &seen, &key);
    sf_buf_fini(&key);
    return err;
}
