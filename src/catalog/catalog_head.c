/*
 * Model: two objects and five columns. The committed pointer is the publisher's; here it is only
 * read, each time anew, and its version and checksum are never used or stored apart. The head
 * object is the catalog's: it follows from the outcome of an advance (stage 3 of protocols.md
 * section 2), or tells of the reconciler's work. It is always swapped, never under a lower owner
 * epoch, and nothing is ever decided by what it says: a head object that no outcome led to has no
 * effect. The rows follow from outcomes alone, so that a rebuild writes the same heads.
 */
#include "catalog/catalog_head.h"

#include "catalog/catalog_manifest.h"

#define STATUS(name) SF_PBE(MANIFEST_HEAD_RECONCILER_STATUS, name)

/* ---- reads -------------------------------------------------------------------------------- */

enum sf_err sf_catalog_head_pointer(struct sf_catalog *catalog, const SF_PB(CollectionRef) * ref,
                                    struct sf_arena *arena, struct sf_diag *diag,
                                    SF_PB(ManifestCommittedHeadObject) * *out_pointer)
{
    struct sf_buf key = {0};
    ProtobufCMessage *message = NULL;
    *out_pointer = NULL;
    sf_catalog_key_committed_head(&key, ref->namespace_id, ref->collection_id);
    enum sf_err err = sf_catalog_read(catalog, catalog->deps.sched, sf_buf_view(&key),
                                      &searchfabric__v1__manifest_committed_head_object__descriptor,
                                      false, arena, diag, &message, NULL, NULL);
    sf_buf_fini(&key);
    if (err == SF_ERR_NOT_FOUND)
        return SF_OK;
    if (err != SF_OK)
        return err;
    SF_PB(ManifestCommittedHeadObject) *pointer = (SF_PB(ManifestCommittedHeadObject) *)message;
    if (pointer->collection == NULL || pointer->collection->namespace_id != ref->namespace_id ||
        pointer->collection->collection_id != ref->collection_id ||
        pointer->committed_manifest_version == 0 ||
        pointer->committed_manifest_version > INT64_MAX ||
        pointer->previous_committed_manifest_version >= pointer->committed_manifest_version ||
        pointer->manifest_checksum_or_etag[0] == '\0' || pointer->manifest_key[0] == '\0' ||
        pointer->publisher_epoch == 0 || pointer->updated_at_unix_ms <= 0)
        return sf_diag_set(diag, SF_ERR_CORRUPT, "the committed pointer lacks what it must have");
    *out_pointer = pointer;
    return SF_OK;
}

enum sf_err sf_catalog_head_manifest_read(struct sf_catalog *catalog,
                                          const SF_PB(ManifestCommittedHeadObject) * pointer,
                                          struct sf_arena *arena, struct sf_diag *diag,
                                          struct sf_catalog_head_manifest *out_manifest)
{
    ProtobufCMessage *message = NULL;
    *out_manifest = (struct sf_catalog_head_manifest){.read = true};
    enum sf_err err =
        sf_catalog_read(catalog, catalog->deps.sched, sf_view_str(pointer->manifest_key),
                        &searchfabric__v1__collection_manifest_object__descriptor, false, arena,
                        diag, &message, out_manifest->sha256, &out_manifest->etag);
    out_manifest->found = err == SF_OK;
    out_manifest->message = (const SF_PB(CollectionManifestObject) *)message;
    if (err != SF_ERR_NOT_FOUND && err != SF_ERR_CORRUPT)
        return err;
    sf_diag_init(diag);
    return SF_OK;
}

/* ---- the head object ---------------------------------------------------------------------- */

/* What stands at the head's key, for the condition of a swap. A body that does not verify is
 * replaced like any other: the object is derivative. *out_version is 0 when none stands. */
static enum sf_err read_head(struct sf_catalog *catalog, struct sf_sched *sched,
                             struct sf_catalog_put *put, struct sf_diag *diag,
                             uint64_t *out_version)
{
    struct sf_arena *arena = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    ProtobufCMessage *message = NULL;
    uint64_t owner_epoch = 0;
    *out_version = 0;
    enum sf_err err = sf_catalog_read(catalog, sched, sf_buf_view(&put->key),
                                      &searchfabric__v1__manifest_head_object__descriptor, false,
                                      arena, diag, &message, NULL, &put->match);
    put->cond = err == SF_ERR_NOT_FOUND ? SF_PUT_ABSENT : SF_PUT_MATCH;
    if (SF_MUTANT(ccs_head_overwrites))
        put->cond = SF_PUT_ANY;
    if (err == SF_OK) {
        const SF_PB(ManifestHeadObject) *now = (const SF_PB(ManifestHeadObject) *)message;
        owner_epoch = now->owner_epoch;
        *out_version = now->manifest_head_version;
    } else if (err == SF_ERR_NOT_FOUND || err == SF_ERR_CORRUPT) {
        sf_diag_init(diag);
        err = SF_OK;
    }
    sf_arena_destroy(arena);
    if (err == SF_OK && owner_epoch > catalog->owner_epoch && !SF_MUTANT(ccs_no_head_elder)) {
        sf_catalog_depose(catalog, "manifest head", owner_epoch);
        err = sf_diag_set(diag, SF_ERR_DEPOSED, "a newer owner moved the manifest head");
    }
    return err;
}

static void encode_head(struct sf_catalog *catalog, const SF_PB(CollectionRef) * ref,
                        const struct sf_catalog_head_content *content, struct sf_catalog_put *put)
{
    SF_PB(ManifestHeadObject) head;
    char attempt_id[SF_ATTEMPT_ID_BYTES];
    searchfabric__v1__manifest_head_object__init(&head);
    sf_attempts_next(catalog->deps.attempts, attempt_id);
    head.format_version = SF_CATALOG_FORMAT_VERSION;
    head.attempt_id = attempt_id;
    head.owner_epoch = catalog->owner_epoch;
    head.attempt = atomic_fetch_add(&catalog->attempts, 1) + 1;
    head.collection = (SF_PB(CollectionRef) *)(uintptr_t)ref;
    head.manifest_head_version = content->version;
    head.expected_previous_head = content->expected_previous;
    head.last_update_epoch = content->last_update_epoch;
    head.reconciler_status = content->status;
    sf_catalog_put_encode(put, &head.base, false, NULL);
}

enum sf_err sf_catalog_head_plan(struct sf_catalog_command *command,
                                 const SF_PB(CollectionRef) * ref,
                                 const struct sf_catalog_head_content *content)
{
    struct sf_catalog_put *put = &command->plan.follow;
    uint64_t version;
    sf_catalog_key_manifest_head(&put->key, ref->namespace_id, ref->collection_id);
    enum sf_err err =
        read_head(command->catalog, command->catalog->deps.sched, put, &command->diag, &version);
    if (err == SF_OK)
        encode_head(command->catalog, ref, content, put);
    command->plan.follows = err == SF_OK;
    return err;
}

/* Swaps until `content` stands; with `at_least` it is enough that a head of its version stands. */
static enum sf_err swap_head(struct sf_catalog *catalog, struct sf_sched *sched,
                             const SF_PB(CollectionRef) * ref,
                             const struct sf_catalog_head_content *content, bool at_least)
{
    struct sf_catalog_put put = {0};
    struct sf_diag diag;
    enum sf_err err = SF_OK;
    sf_catalog_key_manifest_head(&put.key, ref->namespace_id, ref->collection_id);
    for (bool stands = false; !stands && err == SF_OK;) {
        uint64_t version = 0;
        sf_diag_init(&diag);
        err = read_head(catalog, sched, &put, &diag, &version);
        if (err != SF_OK || (at_least && version >= content->version))
            break;
        encode_head(catalog, ref, content, &put);
        err = sf_catalog_put_run(catalog, sched, &put, at_least ? 0 : SF_CATALOG_PUT_TRIES);
        if (err == SF_OK && put.state == SF_CATALOG_PUT_UNSENT)
            err = at_least ? SF_ERR_STOPPED : SF_ERR_UNAVAILABLE;
        stands = put.state == SF_CATALOG_PUT_STANDS;
    }
    sf_catalog_put_fini(&put);
    return err;
}

enum sf_err sf_catalog_head_swap(struct sf_catalog *catalog, const SF_PB(CollectionRef) * ref,
                                 const struct sf_catalog_head_content *content,
                                 struct sf_diag *diag)
{
    enum sf_err err = swap_head(catalog, catalog->deps.sched, ref, content, false);
    return err == SF_OK ? SF_OK : sf_diag_set(diag, err, "the manifest head was not written");
}

struct sf_catalog_head_content sf_catalog_head_content_of(const SF_PB(HeadAdvanceTuple) * tuple)
{
    bool all = tuple->new_head_version >= tuple->committed_manifest_version;
    return (struct sf_catalog_head_content){tuple->new_head_version, tuple->expected_head_version,
                                            tuple->last_update_epoch,
                                            all ? STATUS(IDLE) : STATUS(REPAIR_PENDING)};
}

enum sf_err sf_catalog_head_follow(struct sf_catalog *catalog, struct sf_sched *sched,
                                   const SF_PB(CommandOutcomeObject) * outcome)
{
    if (outcome->command_kind != SF_PBE(COMMAND_KIND, HEAD_ADVANCE) ||
        outcome->head_advance == NULL || outcome->scope == NULL)
        return SF_OK;
    SF_PB(CollectionRef) ref;
    searchfabric__v1__collection_ref__init(&ref);
    ref.namespace_id = outcome->scope->namespace_id;
    ref.collection_id = outcome->scope->collection_id;
    struct sf_catalog_head_content content = sf_catalog_head_content_of(outcome->head_advance);
    return swap_head(catalog, sched, &ref, &content, true);
}

enum sf_err sf_catalog_head_follow_all(struct sf_catalog *catalog, struct sf_sched *sched,
                                       SF_PB(CommandOutcomeObject) *const *outcomes, size_t count)
{
    struct sf_map *seen = sf_map_new();
    enum sf_err err = SF_OK;
    for (size_t i = count; i > 0 && err == SF_OK; i--) {
        const SF_PB(CommandOutcomeObject) *outcome = outcomes[i - 1];
        if (outcome->command_kind != SF_PBE(COMMAND_KIND, HEAD_ADVANCE) || outcome->scope == NULL)
            continue;
        uint64_t key[2] = {outcome->scope->namespace_id, outcome->scope->collection_id};
        if (sf_map_put(seen, sf_view_bytes(key, sizeof(key)), outcomes[i - 1]) == NULL)
            err = sf_catalog_head_follow(catalog, sched, outcome);
    }
    sf_map_destroy(seen, NULL);
    return err;
}

/* ---- rows --------------------------------------------------------------------------------- */

/* The checksum goes before the version: on MySQL an assignment sees those to its left. */
#define SET_PAIR(version, checksum)                                                                \
    " committed_manifest_checksum_or_etag = CASE WHEN committed_manifest_version < " version       \
    " THEN " checksum " ELSE committed_manifest_checksum_or_etag END,"                             \
    " committed_manifest_version = CASE WHEN committed_manifest_version < " version                \
    " THEN " version " ELSE committed_manifest_version END"

enum sf_err sf_catalog_project_head(struct sf_sql_conn *conn,
                                    const SF_PB(CommandOutcomeObject) * outcome,
                                    struct sf_diag *diag)
{
    const SF_PB(HeadAdvanceTuple) *tuple = outcome->head_advance;
    struct sf_sql_stmt *stmt;
    if (tuple == NULL || outcome->scope == NULL)
        return sf_diag_set(diag, SF_ERR_CORRUPT, "record %s has no head-advance tuple",
                           outcome->command_identity);
    enum sf_err err =
        sf_sql_prepare(conn,
                       "UPDATE collections SET manifest_head_version = ?3,"
                       " expected_previous_head = ?4,"
                       " manifest_head_last_update_epoch ="
                       " CASE WHEN manifest_head_last_update_epoch < ?5 THEN ?5"
                       " ELSE manifest_head_last_update_epoch END,"
                       " manifest_head_reconciler_status = ?6," SET_PAIR(
                           "?7", "?8") " WHERE namespace_id = ?1 AND collection_id = ?2"
                                       " AND manifest_head_version < ?3",
                       diag, &stmt);
    if (err != SF_OK)
        return err;
    struct sf_catalog_head_content content = sf_catalog_head_content_of(tuple);
    sf_sql_bind_u64(stmt, 1, outcome->scope->namespace_id);
    sf_sql_bind_u64(stmt, 2, outcome->scope->collection_id);
    sf_sql_bind_u64(stmt, 3, content.version);
    sf_sql_bind_i64(stmt, 4, content.expected_previous);
    sf_sql_bind_u64(stmt, 5, content.last_update_epoch);
    sf_sql_bind_text(stmt, 6, sf_view_str(sf_catalog_head_status_text(content.status)));
    sf_sql_bind_u64(stmt, 7, tuple->committed_manifest_version);
    sf_sql_bind_text(stmt, 8, sf_view_str(tuple->committed_manifest_checksum_or_etag));
    return sf_sql_run(stmt, diag, NULL);
}

enum sf_err sf_catalog_heads_after_rebuild(struct sf_sql_conn *conn, struct sf_diag *diag)
{
    return sf_sql_exec(conn,
                       "UPDATE collections SET manifest_head_reconciler_status = 'REPAIR_PENDING'"
                       " WHERE lifecycle_state = 'ACTIVE';",
                       diag);
}

static enum sf_err update_row(struct sf_sql_conn *conn, const SF_PB(CollectionRef) * ref,
                              SF_PB(ManifestHeadReconcilerStatus) status, uint64_t epoch,
                              const SF_PB(ManifestCommittedHeadObject) * pointer,
                              struct sf_diag *diag)
{
    struct sf_sql_stmt *stmt;
    enum sf_err err =
        sf_sql_prepare(conn,
                       "UPDATE collections SET manifest_head_reconciler_status = ?3,"
                       " manifest_head_last_update_epoch = ?4," SET_PAIR(
                           "?5", "?6") " WHERE namespace_id = ?1 AND collection_id = ?2",
                       diag, &stmt);
    if (err != SF_OK)
        return err;
    sf_sql_bind_u64(stmt, 1, ref->namespace_id);
    sf_sql_bind_u64(stmt, 2, ref->collection_id);
    sf_sql_bind_text(stmt, 3, sf_view_str(sf_catalog_head_status_text(status)));
    sf_sql_bind_u64(stmt, 4, epoch);
    sf_sql_bind_u64(stmt, 5, pointer == NULL ? 0 : pointer->committed_manifest_version);
    sf_sql_bind_text(stmt, 6,
                     sf_view_str(pointer == NULL ? "" : pointer->manifest_checksum_or_etag));
    return sf_sql_run(stmt, diag, NULL);
}

enum sf_err sf_catalog_head_row(struct sf_catalog *catalog, const SF_PB(CollectionRef) * ref,
                                SF_PB(ManifestHeadReconcilerStatus) status, uint64_t epoch,
                                const SF_PB(ManifestCommittedHeadObject) * pointer,
                                struct sf_diag *diag)
{
    struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, catalog->deps.sched, SF_SQL_WRITE);
    enum sf_err err = sf_sql_begin(conn, diag);
    if (err == SF_OK && !SF_MUTANT(ccs_no_head_fence))
        err = sf_catalog_sql_look(catalog, conn, diag);
    if (err == SF_OK)
        err = update_row(conn, ref, status, epoch, pointer, diag);
    if (err == SF_OK)
        err = sf_sql_commit(conn, diag);
    else
        sf_sql_rollback(conn);
    sf_sql_release(conn);
    sf_catalog_state_forget(catalog, ref->namespace_id, ref->collection_id);
    return err;
}
