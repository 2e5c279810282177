/*
 * Model: objects to rows. A committed record without its rows is shown. A versioned control object
 * that an APPLIED record names by key and SHA-256 is committed: its thing has a row, of this
 * revision or a later one. One that no record names is an orphan; it stays, for a command on its
 * way may replace it, and a delete of it could hit what the command put. A replay pointer whose
 * record is gone says that the record was lost, for pointers are written after it and removed
 * before it.
 */
#include "catalog/catalog_check_priv.h"

#include <stdio.h>

#include "catalog/catalog_retention.h"
#include "catalog/catalog_rules.h"

/* ---- records ------------------------------------------------------------------------------- */

/* Shows a committed record that has no row, with its control object's rows. */
static enum sf_err show_record(struct sf_check *c, const SF_PB(CommandOutcomeObject) * outcome,
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

static enum sf_err record_has_row(struct sf_check *c, const char *identity, bool *out_present)
{
    SF_PB(CommandOutcomeObject) *row = NULL;
    struct sf_sql_conn *conn = sf_sql_acquire(c->catalog->deps.sql, c->sched, SF_SQL_READ);
    enum sf_err err = sf_catalog_sql_replay(conn, identity, c->one, c->diag, &row);
    sf_sql_release(conn);
    *out_present = row != NULL;
    return err;
}

/* A record that has no row, claimed: no command of it is under way. */
static enum sf_err tell_unshown(struct sf_check *c, struct sf_view key,
                                const SF_PB(CommandOutcomeObject) * outcome, bool *out_remove)
{
    bool expired = sf_catalog_record_expired(c->catalog, outcome);
    struct sf_check_finding f = {
        .kind = expired ? "record_expired" : "row_missing",
        .subject = "catalog_replay_index",
        .key = key,
        .explanation = expired ? "past the retention; a removal of it was cut short, it answers "
                                 "nothing"
                               : "the record is committed and the projection does not show it; the "
                                 "record is the truth",
        .repair = expired ? "the record is removed" : "pointers and rows are written from it",
        .problem = !expired};
    enum sf_err err = SF_OK;
    *out_remove = expired && c->repair;
    if (*out_remove)
        return SF_OK; /* told once it was tried, without this claim */
    if (c->repair)
        err = show_record(c, outcome, &f.repaired);
    if (err == SF_OK)
        sf_check_tell(c, &f);
    return err;
}

static enum sf_err remove_expired(struct sf_check *c, struct sf_view key,
                                  const SF_PB(CommandOutcomeObject) * outcome)
{
    struct sf_check_finding f = {.kind = "record_expired",
                                 .subject = "catalog_replay_index",
                                 .key = key,
                                 .explanation =
                                     "past the retention; a removal of it was cut short, "
                                     "it answers nothing",
                                 .repair = "the record is removed"};
    enum sf_err err = sf_catalog_leftover_remove(c->catalog, c->sched, outcome->command_identity,
                                                 c->diag, &f.repaired);
    if (err == SF_OK)
        sf_check_tell(c, &f);
    return err;
}

/* The record as it stands now; NULL: none, or an abort marker. */
static enum sf_err read_record(struct sf_check *c, const char *identity,
                               const SF_PB(CommandOutcomeObject) * *out_record)
{
    struct sf_buf key = {0};
    ProtobufCMessage *found = NULL;
    bool broken = false;
    sf_catalog_key_outcome(&key, identity);
    enum sf_err err = sf_check_read(c, &key, &searchfabric__v1__command_outcome_object__descriptor,
                                    &found, &broken);
    sf_buf_fini(&key);
    *out_record = (const SF_PB(CommandOutcomeObject) *)found;
    if (*out_record != NULL && (*out_record)->abort != NULL)
        *out_record = NULL;
    return err;
}

enum sf_err sf_check_record_shown(struct sf_check *c, struct sf_view key,
                                  const SF_PB(CommandOutcomeObject) * outcome)
{
    const char *identity = outcome->command_identity;
    bool shown = false, removes = false, sure = c->sure;
    if (outcome->abort != NULL)
        return SF_OK;
    enum sf_err err = record_has_row(c, identity, &shown);
    if (err != SF_OK || shown || !sf_catalog_claim_removal(c->catalog, identity))
        return err; /* under way: its own command shows it */
    c->sure = true; /* the claim keeps others out */
    err = record_has_row(c, identity, &shown);
    if (err == SF_OK && !shown)
        err = read_record(c, identity, &outcome);
    if (err == SF_OK && !shown && outcome != NULL)
        err = tell_unshown(c, key, outcome, &removes);
    sf_catalog_unclaim_removal(c->catalog, identity, false);
    if (err == SF_OK && removes)
        err = remove_expired(c, key, outcome);
    c->sure = sure;
    return err;
}

static enum sf_err check_log(struct sf_check *c, struct sf_check_object *object)
{
    return sf_check_record_shown(c, object->key,
                                 (const SF_PB(CommandOutcomeObject) *)object->message);
}

const struct sf_check_family sf_check_log[1] = {
    {"/", "catalog-log", &searchfabric__v1__command_outcome_object__descriptor, false, false, NULL,
     check_log}};

/* ---- pointers ------------------------------------------------------------------------------ */

static void pointer_wants(struct sf_check *c, const struct sf_check_object *object)
{
    sf_catalog_key_outcome(sf_check_want(c),
                           ((const SF_PB(ReplayPointerObject) *)object->message)->command_identity);
}

/* The pointer was read after nothing stood at the record's key, or the run is not sure yet. */
static enum sf_err check_pointer(struct sf_check *c, struct sf_check_object *object)
{
    const SF_PB(ReplayPointerObject) *pointer = (const SF_PB(ReplayPointerObject) *)object->message;
    struct sf_buf key = {0};
    ProtobufCMessage *record = NULL;
    bool broken = false;
    sf_catalog_key_outcome(&key, pointer->command_identity);
    enum sf_err err = sf_check_read(c, &key, &searchfabric__v1__command_outcome_object__descriptor,
                                    &record, &broken);
    if (err == SF_OK && record == NULL && !broken && !sf_check_unsure(c)) {
        struct sf_buf text = {0};
        ProtobufCMessage *again = NULL;
        sf_buf_append(&text, object->key.ptr, object->key.len);
        err = sf_check_look(c, &text, &searchfabric__v1__replay_pointer_object__descriptor, &again,
                            NULL, NULL, &broken);
        sf_buf_fini(&text);
        if (err == SF_OK && again != NULL)
            sf_check_tell(c, &(struct sf_check_finding){
                                 .kind = "object_missing",
                                 .subject = "catalog-log",
                                 .key = sf_buf_view(&key),
                                 .explanation = "a replay pointer stands and the record that it "
                                                "names is gone: pointers are written after records "
                                                "and removed before them; restore the record",
                                 .repair = "",
                                 .problem = true});
    }
    sf_buf_fini(&key);
    return err;
}

const struct sf_check_family sf_check_pointers[1] = {
    {"/", "catalog-replay", &searchfabric__v1__replay_pointer_object__descriptor, false, false,
     pointer_wants, check_pointer}};

/* ---- control objects ----------------------------------------------------------------------- */

const char *sf_check_command_of(const ProtobufCMessage *object)
{
    const char *identity = "";
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field_by_name(object->descriptor, "command_identity");
    if (field != NULL)
        memcpy(&identity, (const char *)object + field->offset, sizeof(identity));
    else if (object->descriptor == &searchfabric__v1__schema_generation_object__descriptor &&
             ((const SF_PB(SchemaGenerationObject) *)object)->body != NULL)
        identity = ((const SF_PB(SchemaGenerationObject) *)object)->body->command_identity;
    return identity;
}

static void control_wants(struct sf_check *c, const struct sf_check_object *object)
{
    sf_catalog_key_outcome(sf_check_want(c), sf_check_command_of(object->message));
}

/* The thing of a committed descriptor without its row. A record's row and the thing's are written
 * together, so one without the other is a loss; what the row alone knew (manifest head, lagging
 * fields) no descriptor can give back. The first object of a thing tells. */
static enum sf_err tell_lost(struct sf_check *c, struct sf_check_object *object,
                             const SF_PB(CommandOutcomeObject) * record)
{
    bool tombstoned = false;
    if ((c->judged[0] == object->namespace_id && c->judged[1] == object->collection_id) ||
        sf_catalog_record_expired(c->catalog, record) || /* its release may be past the retention */
        sf_check_unsure(c))
        return SF_OK;
    c->judged[0] = object->namespace_id;
    c->judged[1] = object->collection_id;
    enum sf_err err =
        sf_check_is_tombstoned(c, object->namespace_id, object->collection_id, &tombstoned);
    if (err == SF_OK && !tombstoned)
        sf_check_tell(c, &(struct sf_check_finding){
                             .kind = "row_lost",
                             .subject = object->collection_id == 0 ? "namespaces" : "collections",
                             .key = object->key,
                             .explanation = "the object is committed, the projection shows its "
                                            "record and has no row of it: `sfctl projection "
                                            "rebuild` makes it again",
                             .repair = "",
                             .problem = true});
    return err;
}

static enum sf_err too_large(struct sf_check *c)
{
    return sf_diag_set(c->diag, SF_ERR_LIMIT, "a row does not fit its memory");
}

/* The row shows an earlier revision than a committed descriptor. */
static enum sf_err check_descriptor(struct sf_check *c, struct sf_check_object *object,
                                    const SF_PB(CommandOutcomeObject) * record)
{
    SF_PB(CommandOutcomeObject) *shown = NULL;
    struct sf_check_lineage lineage;
    struct sf_sql_conn *conn = sf_sql_acquire(c->catalog->deps.sql, c->sched, SF_SQL_READ);
    enum sf_err err =
        sf_catalog_sql_replay(conn, record->command_identity, c->one, c->diag, &shown);
    sf_sql_release(conn);
    if (err == SF_OK)
        err = sf_check_lineage(c, object->namespace_id, object->collection_id, &lineage);
    if (err != SF_OK || shown == NULL) /* the record's own finding */
        return err;
    if (object->collection_id == 0) {
        const SF_PB(NamespaceDescriptorObject) *descriptor =
            (const SF_PB(NamespaceDescriptorObject) *)object->message;
        if (lineage.ns == NULL)
            return tell_lost(c, object, record);
        if (lineage.ns->namespace_revision >= descriptor->namespace_revision)
            return SF_OK;
        SF_PB(NamespaceRow) *wanted = sf_catalog_namespace_row(descriptor, lineage.ns, c->one);
        if (wanted == NULL)
            return too_large(c);
        wanted->internal_policy_state = sf_check_said_policy(wanted->internal_policy_state);
        return sf_check_differs(c, SF_CATALOG_TABLE_NAMESPACES, &lineage.ns->base, &wanted->base,
                                object->key, true);
    }
    const SF_PB(CollectionDescriptorObject) *descriptor =
        (const SF_PB(CollectionDescriptorObject) *)object->message;
    if (lineage.collection == NULL)
        return tell_lost(c, object, record);
    if (lineage.collection->descriptor_revision >= descriptor->descriptor_revision)
        return SF_OK;
    SF_PB(CollectionRow) *wanted =
        sf_catalog_collection_row(descriptor, lineage.collection, c->one);
    if (wanted == NULL)
        return too_large(c);
    wanted->internal_policy_state = sf_check_said_policy(wanted->internal_policy_state);
    return sf_check_differs(c, SF_CATALOG_TABLE_COLLECTIONS, &lineage.collection->base,
                            &wanted->base, object->key, true);
}

/* The collection's row names its newest generation. */
static enum sf_err check_active(struct sf_check *c, const SF_PB(CollectionRow) * row,
                                const SF_PB(SchemaGenerationBody) * body, struct sf_view key)
{
    if (row->active_schema_version > body->schema_version ||
        (row->active_schema_version == body->schema_version &&
         strcmp(row->active_schema_generation_token, body->schema_generation_token) == 0))
        return SF_OK;
    SF_PB(CollectionRow) wanted = *row;
    wanted._active_schema_version_case =
        SEARCHFABRIC__V1__COLLECTION_ROW___ACTIVE_SCHEMA_VERSION_ACTIVE_SCHEMA_VERSION;
    wanted.active_schema_version = body->schema_version;
    wanted._active_schema_generation_token_case =
        SEARCHFABRIC__V1__COLLECTION_ROW___ACTIVE_SCHEMA_GENERATION_TOKEN_ACTIVE_SCHEMA_GENERATION_TOKEN;
    wanted.active_schema_generation_token = body->schema_generation_token;
    return sf_check_differs(c, SF_CATALOG_TABLE_COLLECTIONS, &row->base, &wanted.base, key, true);
}

/* A committed generation has its row, and the collection's row names none that is older. */
static enum sf_err check_generation(struct sf_check *c, struct sf_check_object *object,
                                    const SF_PB(CommandOutcomeObject) * record)
{
    SF_PB(SchemaGenerationObject) *generation = (SF_PB(SchemaGenerationObject) *)object->message;
    SF_PB(SchemaGenerationRow) *row = NULL;
    SF_PB(CommandOutcomeObject) *shown = NULL;
    struct sf_check_lineage lineage = {0};
    const SF_PB(SchemaGenerationBody) *body = generation->body;
    struct sf_sql_conn *conn = sf_sql_acquire(c->catalog->deps.sql, c->sched, SF_SQL_READ);
    enum sf_err err = sf_catalog_sql_generation(conn, object->namespace_id, object->collection_id,
                                                SF_CATALOG_GENERATION_VERSION, body->schema_version,
                                                NULL, c->one, c->diag, &row);
    if (err == SF_OK)
        err = sf_catalog_sql_replay(conn, record->command_identity, c->one, c->diag, &shown);
    sf_sql_release(conn);
    if (err == SF_OK)
        err = sf_check_lineage(c, object->namespace_id, object->collection_id, &lineage);
    if (err != SF_OK || shown == NULL || lineage.collection == NULL)
        return err; /* the record's finding, or the collection's; or it was released */
    if (row == NULL) {
        SF_PB(SchemaGenerationRow) wanted;
        SF_PB(SchemaConvergence) convergence;
        SF_PB(SchemaGenerationBody) plain = *body;
        searchfabric__v1__schema_generation_row__init(&wanted);
        searchfabric__v1__schema_convergence__init(&convergence);
        plain.command_identity = (char *)(uintptr_t)protobuf_c_empty_string;
        wanted.body = &plain;
        wanted.updated_at_unix_ms = plain.created_at_unix_ms;
        if (generation->convergence != NULL) {
            convergence = *generation->convergence;
            wanted.convergence = &convergence;
            wanted.updated_at_unix_ms = convergence.updated_at_unix_ms;
        }
        err = sf_check_differs(c, SF_CATALOG_TABLE_GENERATIONS, NULL, &wanted.base, object->key,
                               true);
    }
    if (err == SF_OK)
        err = check_active(c, lineage.collection, body, object->key);
    return err;
}

/* Is the object the one that the record names? *out_named: by key; *out_same: its digest, too. */
static void find_reference(const struct sf_check_object *object,
                           const SF_PB(CommandOutcomeObject) * record, bool *out_named,
                           bool *out_same)
{
    char digest[SF_SHA256_HEX_BYTES];
    *out_named = *out_same = false;
    memcpy(digest, object->sha256, sizeof(digest));
    if (object->message->descriptor == &searchfabric__v1__schema_generation_object__descriptor)
        sf_catalog_body_sha256(((const SF_PB(SchemaGenerationObject) *)object->message)->body,
                               digest);
    for (size_t i = 0; record != NULL && i < record->n_control_objects; i++) {
        if (!sf_view_equal(sf_view_str(record->control_objects[i]->key), object->key))
            continue;
        *out_named = true;
        *out_same = strcmp(record->control_objects[i]->sha256, digest) == 0;
    }
}

static enum sf_err judge_committed(struct sf_check *c, struct sf_check_object *object,
                                   const SF_PB(CommandOutcomeObject) * record)
{
    const ProtobufCMessageDescriptor *desc = object->message->descriptor;
    if (desc == &searchfabric__v1__schema_generation_object__descriptor)
        return check_generation(c, object, record);
    if (desc == &searchfabric__v1__collection_tombstone_object__descriptor)
        return sf_check_tombstone_object(c, object);
    return check_descriptor(c, object, record);
}

/* A versioned control object: is it named by an APPLIED record, and shown? */
static enum sf_err check_control(struct sf_check *c, struct sf_check_object *object)
{
    struct sf_buf key = {0};
    ProtobufCMessage *found = NULL;
    bool broken = false, named = false, same = false;
    if (object->message->descriptor == &searchfabric__v1__schema_generation_object__descriptor &&
        ((const SF_PB(SchemaGenerationObject) *)object->message)->body == NULL)
        return sf_diag_set(c->diag, SF_ERR_CORRUPT, "%.*s has no body", (int)object->key.len,
                           (const char *)object->key.ptr);
    sf_catalog_key_outcome(&key, sf_check_command_of(object->message));
    enum sf_err err = sf_check_read(c, &key, &searchfabric__v1__command_outcome_object__descriptor,
                                    &found, &broken);
    sf_buf_fini(&key);
    if (err != SF_OK || broken)
        return err;
    const SF_PB(CommandOutcomeObject) *record = (const SF_PB(CommandOutcomeObject) *)found;
    find_reference(object, record, &named, &same);
    if (!named) {
        sf_check_orphan(c, object,
                        "no applied record names this object: an attempt that was given up left "
                        "it, or its record is past the retention; readers and recovery ignore it, "
                        "and a command that needs its key replaces it",
                        "", false);
    } else if (!same) {
        sf_check_tell(c, &(struct sf_check_finding){
                             .kind = "object_broken",
                             .subject = object->family->subject,
                             .key = object->key,
                             .explanation = "the object verifies by itself and is not the one that "
                                            "its record names by SHA-256; the record is the truth: "
                                            "restore the object",
                             .repair = "",
                             .problem = true});
    } else if (record->terminal_state == SF_PBE(COMMAND_TERMINAL_STATE, APPLIED)) {
        err = judge_committed(c, object, record);
    }
    return err;
}

const struct sf_check_family sf_check_controls[] = {
    {"/namespace_descriptor_v", "namespace_descriptor",
     &searchfabric__v1__namespace_descriptor_object__descriptor, true, true, control_wants,
     check_control},
    {"/collection_descriptor_v", "collection_descriptor",
     &searchfabric__v1__collection_descriptor_object__descriptor, true, true, control_wants,
     check_control},
    {"/schema_generation_v", "schema_generation",
     &searchfabric__v1__schema_generation_object__descriptor, true, true, control_wants,
     check_control},
    {"/collection_tombstone_v", "collection_tombstone",
     &searchfabric__v1__collection_tombstone_object__descriptor, true, true, control_wants,
     check_control},
    {"/namespace_quota_state.json", "namespace_quota_state",
     &searchfabric__v1__namespace_quota_state_object__descriptor, false, false, NULL,
     sf_check_quota_object},
    {"/manifest_head.json", "manifest_head", &searchfabric__v1__manifest_head_object__descriptor,
     true, false, NULL, sf_check_head_object},
    {"/optimizer_statistics_head.json", "optimizer_statistics_head",
     &searchfabric__v1__optimizer_statistics_head_object__descriptor, true, false,
     sf_check_statistics_wants, sf_check_statistics_head},
    {"/optimizer_statistics_v", "optimizer_statistics",
     &searchfabric__v1__optimizer_statistics_snapshot_object__descriptor, true, false, NULL,
     sf_check_statistics_snapshot},
    {"/manifest_committed_head.json", "manifest_committed_head", NULL, false, false, NULL, NULL},
};
const size_t sf_check_control_count = SF_ARRAY_LEN(sf_check_controls);

/* ---- the chain, checkpoints ---------------------------------------------------------------- */

static void tell_hole(struct sf_check *c, struct sf_view key)
{
    c->sure = true;
    sf_check_tell(c, &(struct sf_check_finding){
                         .kind = "segment_missing",
                         .subject = "catalog-recovery-segments",
                         .key = key,
                         .explanation = "segments right below this one are missing: a rebuild that "
                                        "needs them fails closed",
                         .repair = "",
                         .problem = true});
    c->sure = false;
}

static void tell_segment(struct sf_check *c, struct sf_view key, const char *why)
{
    c->sure = true;
    sf_check_tell(c, &(struct sf_check_finding){
                         .kind = "object_broken",
                         .subject = "catalog-recovery-segments",
                         .key = key,
                         .explanation = sf_arena_printf(
                             c->one, "%s: a rebuild that needs the segment fails closed", why),
                         .repair = "",
                         .problem = true});
    c->sure = false;
}

/* Reads the segment of a slot, as a rebuild would. */
static enum sf_err check_segment(struct sf_check *c, struct sf_view key, uint64_t slot)
{
    ProtobufCMessage *message = NULL;
    sf_arena_reset(c->one);
    enum sf_err err = sf_catalog_read(c->catalog, c->sched, key,
                                      &searchfabric__v1__recovery_segment_object__descriptor, true,
                                      c->one, c->diag, &message, NULL, NULL);
    if (err == SF_ERR_CORRUPT) {
        char why[sizeof(c->diag->message)];
        memcpy(why, c->diag->message, sizeof(why));
        sf_diag_init(c->diag);
        tell_segment(c, key, why);
        return SF_OK;
    }
    if (err == SF_OK &&
        ((const SF_PB(RecoverySegmentObject) *)message)->recovery_segment_epoch != slot)
        tell_segment(c, key, "it is the segment of another slot");
    return err == SF_ERR_NOT_FOUND ? SF_OK : err; /* removed by retention meanwhile */
}

/* Every slot from the boundary to the newest has its segment, and all of them verify. */
enum sf_err sf_check_chain(struct sf_check *c)
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
        err = sf_check_alive(c);
        if (err != SF_OK)
            break;
        err = sf_catalog_list(c->catalog, c->sched, SF_CATALOG_SEGMENT_PREFIX, &after, c->page,
                              c->diag, &entries, &count);
        for (size_t i = 0; i < count && err == SF_OK && next <= newest; i++) {
            uint64_t slot = 0;
            if (!sf_catalog_segment_of_key(entries[i].key, &slot))
                continue;
            if (slot > next)
                tell_hole(c, entries[i].key);
            err = check_segment(c, entries[i].key, slot);
            next = slot + 1;
        }
    }
    sf_buf_fini(&after);
    return err;
}

static void tell_incomplete(struct sf_check *c, const struct sf_catalog_checkpoint *checkpoint)
{
    struct sf_buf key = {0};
    sf_catalog_key_checkpoint(&key, checkpoint->epoch);
    c->sure = true;
    sf_check_tell(c, &(struct sf_check_finding){
                         .kind = "checkpoint_incomplete",
                         .subject = "catalog-checkpoints",
                         .key = sf_buf_view(&key),
                         .explanation = sf_arena_printf(c->page, "no rebuild begins with it: %s",
                                                        checkpoint->problem),
                         .repair = "",
                         .problem = false});
    c->sure = false;
    sf_buf_fini(&key);
}

/* An object below control/, which must verify where it stands. */
static enum sf_err check_fixed(struct sf_check *c, const char *key,
                               const ProtobufCMessageDescriptor *desc)
{
    struct sf_buf text = {0};
    ProtobufCMessage *message = NULL;
    bool broken = false;
    sf_arena_reset(c->one);
    sf_buf_append_str(&text, key);
    c->sure = true;
    enum sf_err err = sf_check_read(c, &text, desc, &message, &broken);
    c->sure = false;
    sf_buf_fini(&text);
    return err;
}

enum sf_err sf_check_checkpoints(struct sf_check *c)
{
    struct sf_catalog_checkpoints list = {0};
    sf_arena_reset(c->page);
    enum sf_err err = sf_catalog_checkpoints_list(c->catalog, c->sched, c->page, c->diag, &list);
    for (size_t i = 0; i < list.count && err == SF_OK; i++) {
        if (!list.items[i].complete)
            tell_incomplete(c, &list.items[i]);
    }
    sf_catalog_checkpoints_fini(&list);
    if (err == SF_OK)
        err = check_fixed(c, SF_CATALOG_BOUNDARY_KEY,
                          &searchfabric__v1__catalog_boundary_object__descriptor);
    if (err == SF_OK)
        err = check_fixed(c, SF_CATALOG_REMOVALS_KEY,
                          &searchfabric__v1__catalog_removals_object__descriptor);
    return err;
}
