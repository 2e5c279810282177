/*
 * Model: a round first finds the boundary: the first segment that is younger than the retention (on
 * the oracle's axis) or above the bound of the older of the two kept checkpoints; never above the
 * newest segment. The boundary object is swapped forward before the first delete. Then go
 *
 *   records   whose row is older than the retention, whose entry lies below the boundary and which
 *             name nothing current: row, pointers, outcome, then the superseded control object
 *   leftovers of segments below the boundary: abort markers, records without a row
 *   segments  below the boundary, once nothing of them is left to look at
 *
 * Before each batch of deletes its keys are listed for whoever takes over, and the chain is looked
 * at (catalog_removals.c): an owner that was taken over from deletes nothing. A round is bounded
 * and the next goes on; a crash leaves a record without a row, which answers nothing. A tombstone
 * object stays: a later record of the same drop may name it.
 */
#include "catalog/catalog_retention.h"

#include "catalog/catalog_job.h"

#include <stdio.h>
#include <stdlib.h>

#include "catalog/catalog_rules.h"
#include "searchfabric/v1/catalog_operations_private.pb-c.h"

#define BATCH 128

/* One round. */
struct round {
    struct sf_catalog *catalog; /* whose */
    struct sf_sched *sched;     /* of the task */
    struct sf_diag *diag;       /* of the caller */
    struct sf_arena *arena;     /* of a batch; reset between */
    bool dry_run;               /* counts and removes nothing */
    uint64_t max;               /* commands that may still be worked on */
    uint64_t cut_ts;            /* older than this is past the retention */
    int64_t cut_ms;             /* the same for what carries a wall clock */
    uint64_t limit;             /* bound of the older kept checkpoint, 0 = none */
    uint64_t from;              /* boundary before the round */
    uint64_t boundary;          /* lowest segment that counts after it */
    int64_t next_ms;            /* when the first segment that stayed gets too old, 0 = unknown */
    int64_t send_until_ms;      /* deletes of the batch at hand are sent before this; mono */
    uint64_t removed, segments, controls, kept_current, kept_bound; /* numbers of the answer */
    struct sf_diag broken; /* first record or segment that was set aside; err SF_OK = none */
};

/* Sets a fault of one record or segment aside: it stays, the others go. */
static enum sf_err set_aside(struct round *r, enum sf_err err)
{
    if (!sf_catalog_own_fault(err))
        return err;
    if (r->broken.err == SF_OK) {
        r->broken = *r->diag;
        r->broken.err = err;
    }
    sf_diag_init(r->diag);
    return SF_OK;
}

/* ---- the boundary ------------------------------------------------------------------------- */

static enum sf_err read_segment(struct round *r, uint64_t slot,
                                SF_PB(RecoverySegmentObject) * *out_segment)
{
    struct sf_buf key = {0};
    ProtobufCMessage *message = NULL;
    sf_catalog_key_segment(&key, slot);
    sf_arena_reset(r->arena);
    enum sf_err err = sf_catalog_read(r->catalog, r->sched, sf_buf_view(&key),
                                      &searchfabric__v1__recovery_segment_object__descriptor, true,
                                      r->arena, r->diag, &message, NULL, NULL);
    sf_buf_fini(&key);
    *out_segment = (SF_PB(RecoverySegmentObject) *)message;
    return err;
}

/* The older of the two kept checkpoints bounds what may go. */
static enum sf_err find_limit(struct round *r)
{
    struct sf_catalog_checkpoints list = {0};
    struct sf_arena *arena = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    enum sf_err err = sf_catalog_checkpoints_list(r->catalog, r->sched, arena, r->diag, &list);
    const struct sf_catalog_checkpoint *older =
        err == SF_OK ? sf_catalog_checkpoint_pick(&list, r->from, SF_CATALOG_CHECKPOINTS_KEPT - 1)
                     : NULL;
    if (SF_MUTANT(ccs_boundary_ahead))
        r->limit = UINT64_MAX;
    else if (older != NULL)
        r->limit = older->manifest->checkpoint_upper_bound_recovery_segment_epoch;
    sf_catalog_checkpoints_fini(&list);
    sf_arena_destroy(arena);
    return err;
}

/* Begins at the boundary that stands: the owner before may have moved it after this one's start. */
static enum sf_err find_from(struct round *r)
{
    ProtobufCMessage *message = NULL;
    sf_arena_reset(r->arena);
    enum sf_err err = sf_catalog_owner_check(r->catalog, r->sched, r->diag);
    if (err == SF_OK)
        err = sf_catalog_read(r->catalog, r->sched, sf_view_str(SF_CATALOG_BOUNDARY_KEY),
                              &searchfabric__v1__catalog_boundary_object__descriptor, false,
                              r->arena, r->diag, &message, NULL, NULL);
    if (err != SF_OK)
        return err;
    uint64_t stands =
        ((const SF_PB(CatalogBoundaryObject) *)message)->lowest_recovery_segment_epoch;
    r->from = atomic_load(&r->catalog->lowest_segment);
    if (stands > r->from) {
        r->from = stands;
        atomic_store(&r->catalog->lowest_segment, stands);
    }
    return SF_OK;
}

/* Moves r->boundary over what is old enough. */
static enum sf_err find_boundary(struct round *r)
{
    uint64_t newest = atomic_load(&r->catalog->newest_segment);
    enum sf_err err = SF_OK;
    r->boundary = r->from;
    while (err == SF_OK && r->boundary <= r->limit && r->boundary < newest &&
           r->boundary - r->from < r->max && !sf_catalog_ending(r->catalog)) {
        SF_PB(RecoverySegmentObject) *segment = NULL;
        err = read_segment(r, r->boundary, &segment);
        if (err == SF_ERR_NOT_FOUND)
            err = sf_diag_set(r->diag, SF_ERR_CORRUPT, "the chain has a hole at segment %llu",
                              (unsigned long long)r->boundary);
        if (err != SF_OK)
            break;
        bool old = segment->takeover != NULL ? segment->takeover->taken_at_unix_ms < r->cut_ms
                                             : segment->max_applied_ts < r->cut_ts;
        if (!old) {
            int64_t born_ms = segment->takeover != NULL
                                  ? segment->takeover->taken_at_unix_ms
                                  : (int64_t)(segment->max_applied_ts >> SF_TSO_LOGICAL_BITS);
            r->next_ms = sf_clock_unix_ms(r->catalog->deps.clock) + (born_ms - r->cut_ms);
            break;
        }
        r->boundary++;
    }
    return err;
}

/* Swaps the boundary object forward. */
static enum sf_err move_boundary(struct round *r)
{
    struct sf_catalog *catalog = r->catalog;
    ProtobufCMessage *message = NULL;
    char attempt_id[SF_ATTEMPT_ID_BYTES];
    struct sf_catalog_put put = {.cond = SF_PUT_MATCH};
    sf_arena_reset(r->arena);
    enum sf_err err = sf_catalog_owner_check(catalog, r->sched, r->diag);
    if (err == SF_OK)
        err = sf_catalog_read(catalog, r->sched, sf_view_str(SF_CATALOG_BOUNDARY_KEY),
                              &searchfabric__v1__catalog_boundary_object__descriptor, false,
                              r->arena, r->diag, &message, NULL, &put.match);
    SF_PB(CatalogBoundaryObject) *object = (SF_PB(CatalogBoundaryObject) *)message;
    if (err != SF_OK ||
        (object->lowest_recovery_segment_epoch >= r->boundary && !SF_MUTANT(ccs_boundary_back)))
        return err;
    sf_attempts_next(catalog->deps.attempts, attempt_id);
    object->attempt_id = attempt_id;
    object->lowest_recovery_segment_epoch = r->boundary;
    object->updated_at_unix_ms = sf_clock_unix_ms(catalog->deps.clock);
    sf_buf_append_str(&put.key, SF_CATALOG_BOUNDARY_KEY);
    sf_catalog_put_encode(&put, &object->base, false, NULL);
    err = sf_catalog_put_run(catalog, r->sched, &put, SF_CATALOG_PUT_TRIES);
    if (err == SF_OK && put.state != SF_CATALOG_PUT_STANDS)
        err = SF_ERR_UNAVAILABLE; /* somebody else moved it: the next round looks again */
    sf_catalog_put_fini(&put);
    if (err != SF_OK)
        return sf_diag_set(r->diag, err, "cannot move %s", SF_CATALOG_BOUNDARY_KEY);
    atomic_store(&catalog->lowest_segment, r->boundary);
    SF_LOG(INFO, "catalog_boundary_moved", SF_KV_U64("from_segment", r->from),
           SF_KV_U64("lowest_segment", r->boundary));
    return SF_OK;
}

/* ---- objects of one record ---------------------------------------------------------------- */

/* False: in doubt, or not sent: a batch that was held up for long, by a sleeping machine or by its
 * store, may have been taken over from, and its keys written again after the doubt. */
static bool remove_key(struct round *r, const struct sf_buf *key)
{
    if (sf_clock_mono_ms(r->catalog->deps.clock) >= r->send_until_ms &&
        !r->catalog->deps.store->exclusive && !SF_MUTANT(ccs_delete_any_time))
        return false;
    return sf_store_remove_wait(r->catalog->deps.store, r->sched, sf_buf_view(key)) == SF_OK;
}

/* Only these records have a business pointer. */
static bool has_business(const SF_PB(CommandOutcomeObject) * outcome)
{
    return outcome->abort == NULL && outcome->_business_lookup_key_case != 0 &&
           outcome->terminal_state == SF_PBE(COMMAND_TERMINAL_STATE, APPLIED) &&
           outcome->replay_classification == SF_PBE(REPLAY_CLASSIFICATION, ORIGINAL);
}

static void business_claim(const SF_PB(CommandOutcomeObject) * outcome,
                           char out[SF_CATALOG_CLAIM_BYTES])
{
    sf_catalog_claim_of_business(sf_catalog_kind_name(outcome->command_kind),
                                 outcome->business_lookup_key, out);
}

/* Removes the business pointer if it names this record. False: in doubt. */
static bool remove_business(struct round *r, const SF_PB(CommandOutcomeObject) * outcome)
{
    struct sf_buf key = {0};
    ProtobufCMessage *message = NULL;
    struct sf_diag diag;
    bool ok = true;
    if (!has_business(outcome))
        return true;
    sf_diag_init(&diag);
    sf_catalog_key_business(&key, sf_catalog_kind_name(outcome->command_kind),
                            outcome->business_lookup_key);
    enum sf_err err = sf_catalog_read(r->catalog, r->sched, sf_buf_view(&key),
                                      &searchfabric__v1__replay_pointer_object__descriptor, false,
                                      r->arena, &diag, &message, NULL, NULL);
    if (err == SF_OK && strcmp(((const SF_PB(ReplayPointerObject) *)message)->command_identity,
                               outcome->command_identity) == 0)
        ok = remove_key(r, &key);
    else if (err != SF_OK && err != SF_ERR_NOT_FOUND)
        ok = false;
    sf_buf_fini(&key);
    return ok;
}

/* Superseded descriptors and generations go with the record that wrote them. */
static void remove_controls(struct round *r, const SF_PB(CommandOutcomeObject) * outcome)
{
    if (outcome->replay_classification != SF_PBE(REPLAY_CLASSIFICATION, ORIGINAL))
        return;
    for (size_t i = 0; i < outcome->n_control_objects; i++) {
        struct sf_buf key = {0};
        if (strstr(outcome->control_objects[i]->key, "/collection_tombstone_v") != NULL)
            continue;
        sf_buf_append_str(&key, outcome->control_objects[i]->key);
        r->controls += remove_key(r, &key) ? 1 : 0; /* else it stays an orphan, which is harmless */
        sf_buf_fini(&key);
    }
}

/* Pointers, then the record. False: something is in doubt. */
static bool remove_objects(struct round *r, const SF_PB(CommandOutcomeObject) * outcome)
{
    struct sf_buf key = {0};
    bool ok = true;
    if (SF_MUTANT(ccs_record_first)) {
        sf_catalog_key_outcome(&key, outcome->command_identity);
        ok = remove_key(r, &key);
        sf_buf_clear(&key);
    }
    if (ok && outcome->abort == NULL) {
        sf_catalog_key_transport(&key, outcome->transport_lookup_key);
        ok = remove_key(r, &key) && remove_business(r, outcome);
    }
    sf_buf_clear(&key);
    sf_catalog_key_outcome(&key, outcome->command_identity);
    ok = ok && remove_key(r, &key);
    sf_buf_fini(&key);
    if (ok && outcome->abort == NULL)
        remove_controls(r, outcome);
    return ok;
}

/* ---- records with rows -------------------------------------------------------------------- */

struct batch {
    SF_PB(CommandOutcomeObject) * items[BATCH];
    size_t count;
    bool with_rows; /* else no record of it has one */
    size_t left;    /* records that are to be looked at again */
};

/* Reads old rows after *io_after that name nothing current; *out_end: no old row is left. */
static enum sf_err read_old(struct round *r, struct sf_buf *io_after, struct batch *batch,
                            bool *out_end)
{
    struct sf_sql_conn *conn = sf_sql_acquire(r->catalog->deps.sql, r->sched, SF_SQL_READ);
    SF_PB(CommandOutcomeObject) * old[BATCH];
    struct sf_sql_stmt *stmt;
    size_t count = 0;
    bool row = true;
    enum sf_err err = sf_sql_prepare(conn,
                                     "SELECT command_identity FROM catalog_replay_index"
                                     " WHERE command_identity > ?1 AND applied_ts < ?2"
                                     " ORDER BY command_identity LIMIT ?3",
                                     r->diag, &stmt);
    char identities[BATCH][SF_SHA256_HEX_BYTES];
    if (err == SF_OK) {
        sf_sql_bind_text(stmt, 1, sf_buf_view(io_after));
        sf_sql_bind_u64(stmt, 2, r->cut_ts);
        sf_sql_bind_i64(stmt, 3, BATCH);
    }
    while (err == SF_OK && row && count < BATCH) {
        err = sf_sql_step(stmt, r->diag, &row);
        if (err == SF_OK && row)
            snprintf(identities[count++], SF_SHA256_HEX_BYTES, "%.*s",
                     (int)sf_sql_col_text(stmt, 0).len, (const char *)sf_sql_col_text(stmt, 0).ptr);
    }
    sf_sql_finish(stmt);
    *out_end = count < BATCH;
    for (size_t i = 0; i < count && err == SF_OK; i++) {
        bool current = false;
        sf_buf_clear(io_after);
        sf_buf_append_str(io_after, identities[i]);
        old[i] = NULL;
        err = set_aside(r, sf_catalog_sql_replay(conn, identities[i], r->arena, r->diag, &old[i]));
        if (err != SF_OK || old[i] == NULL)
            continue;
        if (old[i]->entry == NULL || old[i]->entry->recovery_segment_epoch >= r->boundary) {
            r->kept_bound++;
            continue;
        }
        err = sf_catalog_record_current(conn, old[i], r->arena, r->diag, &current);
        current = current || err != SF_OK; /* what is not known stays */
        err = set_aside(r, err);
        r->kept_current += current ? 1 : 0;
        if (err == SF_OK && !current)
            batch->items[batch->count++] = old[i];
    }
    sf_sql_release(conn);
    return err;
}

/* Deletes the batch's rows under the owner's epoch, in one transaction. */
static enum sf_err delete_rows(struct round *r, const struct batch *batch)
{
    struct sf_sql_conn *conn = sf_sql_acquire(r->catalog->deps.sql, r->sched, SF_SQL_WRITE);
    enum sf_err err = sf_sql_begin(conn, r->diag);
    uint64_t count = 0, low = 0, high = 0;
    if (err == SF_OK)
        err = sf_catalog_sql_shards(conn, r->diag, &count, &low, &high);
    if (err == SF_OK && (count < r->catalog->lane_shards || high > r->catalog->owner_epoch) &&
        !SF_MUTANT(ccs_no_retention_fence)) {
        sf_catalog_depose(r->catalog, "projection", high);
        err = sf_diag_set(r->diag, SF_ERR_DEPOSED, "a newer owner has the projection");
    }
    for (size_t i = 0; i < batch->count && err == SF_OK; i++) {
        struct sf_sql_stmt *stmt;
        err = sf_sql_prepare(conn, "DELETE FROM catalog_replay_index WHERE command_identity = ?1",
                             r->diag, &stmt);
        if (err != SF_OK)
            break;
        sf_sql_bind_text(stmt, 1, sf_view_str(batch->items[i]->command_identity));
        err = sf_sql_run(stmt, r->diag, NULL);
    }
    if (err == SF_OK)
        err = sf_sql_commit(conn, r->diag);
    else
        sf_sql_rollback(conn);
    sf_sql_release(conn);
    for (size_t i = 0; i < batch->count && err == SF_OK; i++)
        sf_catalog_state_command(r->catalog, batch->items[i]->command_identity);
    return err;
}

static bool claim_business(struct round *r, const SF_PB(CommandOutcomeObject) * outcome)
{
    char business[SF_CATALOG_CLAIM_BYTES];
    business_claim(outcome, business);
    return sf_catalog_claim_removal(r->catalog, business);
}

/* Claims what is removed with a record; false: a command is under way. */
static bool claim_record(struct round *r, const SF_PB(CommandOutcomeObject) * outcome)
{
    if (!sf_catalog_claim_removal(r->catalog, outcome->command_identity))
        return false;
    if (!has_business(outcome) || claim_business(r, outcome))
        return true;
    sf_catalog_unclaim_removal(r->catalog, outcome->command_identity, false);
    return false;
}

static void unclaim_record(struct round *r, const SF_PB(CommandOutcomeObject) * outcome, bool doubt)
{
    char business[SF_CATALOG_CLAIM_BYTES];
    sf_catalog_unclaim_removal(r->catalog, outcome->command_identity, doubt);
    if (!has_business(outcome))
        return;
    business_claim(outcome, business);
    sf_catalog_unclaim_removal(r->catalog, business, doubt);
}

/* Removes a batch that is claimed: the list, rows, objects. After `err` nothing but the claims. */
static enum sf_err remove_claimed(struct round *r, struct batch *batch, enum sf_err err)
{
    r->send_until_ms = sf_clock_mono_ms(r->catalog->deps.clock) + SF_CATALOG_DELETE_SEND_MS;
    if (err == SF_OK && batch->count != 0)
        err = sf_catalog_removals_begin(r->catalog, r->sched, r->diag);
    if (err == SF_OK && batch->with_rows)
        err = delete_rows(r, batch);
    for (size_t i = 0; i < batch->count; i++) {
        bool doubt = err == SF_OK && !remove_objects(r, batch->items[i]);
        r->removed += err == SF_OK && !doubt ? 1 : 0;
        batch->left += doubt ? 1 : 0;
        unclaim_record(r, batch->items[i], doubt);
    }
    batch->count = 0;
    return err;
}

static enum sf_err remove_batch(struct round *r, struct batch *batch)
{
    size_t mine = 0;
    for (size_t i = 0; i < batch->count; i++) {
        if (claim_record(r, batch->items[i]))
            batch->items[mine++] = batch->items[i];
    }
    batch->count = mine;
    return remove_claimed(r, batch, SF_OK);
}

static enum sf_err remove_records(struct round *r)
{
    struct sf_buf after = {0};
    enum sf_err err = SF_OK;
    for (bool end = false; !end && err == SF_OK && r->max > 0 && !sf_catalog_ending(r->catalog);) {
        struct batch batch = {.with_rows = true};
        sf_arena_reset(r->arena);
        err = read_old(r, &after, &batch, &end);
        if (batch.count > r->max)
            batch.count = r->max;
        r->max -= batch.count;
        if (err == SF_OK && r->dry_run)
            r->removed += batch.count;
        else if (err == SF_OK && batch.count != 0)
            err = remove_batch(r, &batch);
    }
    sf_buf_fini(&after);
    return err;
}

/* ---- leftovers and segments --------------------------------------------------------------- */

/* Is what stands at the key past the retention, without a row? The identity is claimed. */
static enum sf_err read_leftover(struct round *r, const char *command_identity,
                                 SF_PB(CommandOutcomeObject) * *out_leftover)
{
    struct sf_buf key = {0};
    ProtobufCMessage *message = NULL;
    SF_PB(CommandOutcomeObject) *row = NULL;
    *out_leftover = NULL;
    sf_catalog_key_outcome(&key, command_identity);
    enum sf_err err = sf_catalog_read(r->catalog, r->sched, sf_buf_view(&key),
                                      &searchfabric__v1__command_outcome_object__descriptor, false,
                                      r->arena, r->diag, &message, NULL, NULL);
    sf_buf_fini(&key);
    if (err == SF_ERR_NOT_FOUND)
        return SF_OK;
    if (err != SF_OK ||
        !sf_catalog_record_expired(r->catalog, (const SF_PB(CommandOutcomeObject) *)message))
        return err; /* settled by a later listing */
    struct sf_sql_conn *conn = sf_sql_acquire(r->catalog->deps.sql, r->sched, SF_SQL_READ);
    err = sf_catalog_sql_replay(conn, command_identity, r->arena, r->diag, &row);
    sf_sql_release(conn);
    if (err == SF_OK && row == NULL)
        *out_leftover = (SF_PB(CommandOutcomeObject) *)message;
    return err;
}

/* Adds what a removal that was cut short left at the key of a command, claimed. */
static enum sf_err add_leftover(struct round *r, const char *command_identity, struct batch *batch)
{
    SF_PB(CommandOutcomeObject) *found = NULL;
    if (!sf_catalog_claim_removal(r->catalog, command_identity)) {
        batch->left++;
        return SF_OK;
    }
    enum sf_err err = read_leftover(r, command_identity, &found);
    bool business = err == SF_OK && found != NULL && has_business(found);
    bool mine = !business || claim_business(r, found);
    batch->left += mine ? 0 : 1;
    if (err == SF_OK && found != NULL && mine)
        batch->items[batch->count++] = found;
    else
        sf_catalog_unclaim_removal(r->catalog, command_identity, false);
    return err;
}

/* Clears one segment and removes it. */
static enum sf_err clear_segment(struct round *r, uint64_t slot)
{
    SF_PB(RecoverySegmentObject) *segment = NULL;
    struct sf_buf key = {0};
    struct batch batch = {0};
    enum sf_err err = read_segment(r, slot, &segment);
    for (size_t i = 0; err == SF_OK && i < segment->n_entries; i++) {
        err = add_leftover(r, segment->entries[i]->command_identity, &batch);
        if (batch.count == BATCH)
            err = remove_claimed(r, &batch, err);
    }
    err = remove_claimed(r, &batch, err);
    sf_catalog_key_segment(&key, slot);
    if (err == SF_OK && batch.left == 0) {
        err = sf_store_remove_wait(r->catalog->deps.store, r->sched, sf_buf_view(&key));
        r->segments += err == SF_OK ? 1 : 0;
    }
    sf_buf_fini(&key);
    return err;
}

enum sf_err sf_catalog_leftover_remove(struct sf_catalog *catalog, struct sf_sched *sched,
                                       const char *command_identity, struct sf_diag *diag,
                                       bool *out_removed)
{
    struct round r = {.catalog = catalog, .sched = sched, .diag = diag};
    struct batch batch = {0};
    r.arena = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    enum sf_err err = add_leftover(&r, command_identity, &batch);
    err = remove_claimed(&r, &batch, err);
    if (err == SF_OK)
        err = sf_catalog_removals_end(catalog, sched, diag);
    *out_removed = r.removed != 0;
    sf_arena_destroy(r.arena);
    return err;
}

/* Segments below the boundary, those of earlier rounds too. */
static enum sf_err remove_segments(struct round *r)
{
    struct sf_arena *arena = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    struct sf_buf after = {0};
    struct sf_list_entry *entries = NULL;
    size_t count = 0;
    enum sf_err err = sf_catalog_owner_check(r->catalog, r->sched, r->diag);
    if (err == SF_OK)
        err = sf_catalog_list(r->catalog, r->sched, SF_CATALOG_SEGMENT_PREFIX, &after, arena,
                              r->diag, &entries, &count);
    for (size_t i = 0; i < count && err == SF_OK && r->max > 0; i++) {
        uint64_t slot = 0;
        if (!sf_catalog_segment_of_key(entries[i].key, &slot) || slot >= r->boundary)
            continue;
        r->max--;
        if (r->dry_run) {
            r->segments++;
            continue;
        }
        if (i % BATCH == BATCH - 1)
            err = sf_catalog_owner_check(r->catalog, r->sched, r->diag);
        if (err == SF_OK)
            err = set_aside(r, clear_segment(r, slot));
    }
    sf_buf_fini(&after);
    sf_arena_destroy(arena);
    return err;
}

/* ---- a round ------------------------------------------------------------------------------ */

static enum sf_err find_cut(struct round *r)
{
    struct sf_catalog *catalog = r->catalog;
    uint64_t retention_ms = catalog->deps.replay_retention_ms == 0
                                ? SF_CATALOG_RETENTION_MS
                                : catalog->deps.replay_retention_ms;
    struct sf_tso now;
    enum sf_err err = sf_tso_get_wait(catalog->deps.tso, r->sched, 1, &now);
    if (err != SF_OK)
        return sf_diag_set(r->diag, err, "the oracle gives no time");
    uint64_t now_ms = now.v >> SF_TSO_LOGICAL_BITS;
    if (SF_MUTANT(ccs_retention_young))
        retention_ms = 0;
    r->cut_ms = now_ms > retention_ms ? (int64_t)(now_ms - retention_ms) : 0;
    r->cut_ts = (uint64_t)r->cut_ms << SF_TSO_LOGICAL_BITS;
    return SF_OK;
}

static enum sf_err run_round(struct round *r)
{
    enum sf_err err = find_from(r);
    if (err == SF_OK)
        err = find_cut(r);
    if (err == SF_OK)
        err = find_limit(r);
    if (err == SF_OK)
        err = find_boundary(r);
    bool moves = !r->dry_run && r->boundary > r->from;
    if (err == SF_OK && moves && !SF_MUTANT(ccs_boundary_late))
        err = move_boundary(r);
    if (err == SF_OK)
        err = remove_records(r);
    if (err == SF_OK)
        err = remove_segments(r);
    if (err == SF_OK && moves && SF_MUTANT(ccs_boundary_late))
        err = move_boundary(r);
    if (err == SF_OK && !r->dry_run)
        err = sf_catalog_removals_end(r->catalog, r->sched, r->diag);
    if (!r->dry_run && (r->removed != 0 || r->segments != 0))
        SF_LOG(INFO, "catalog_retention", SF_KV_U64("records", r->removed),
               SF_KV_U64("control_objects", r->controls), SF_KV_U64("segments", r->segments),
               SF_KV_U64("lowest_segment", r->boundary));
    if (err == SF_OK && r->broken.err != SF_OK) {
        *r->diag = r->broken;
        err = r->broken.err;
    }
    return err;
}

static struct round make_round(struct sf_catalog *catalog, struct sf_sched *sched,
                               struct sf_diag *diag)
{
    return (struct round){.catalog = catalog,
                          .sched = sched,
                          .diag = diag,
                          .arena = sf_arena_new(SF_CATALOG_ARENA_BYTES),
                          .max = SF_CATALOG_RETENTION_BATCH};
}

enum sf_err sf_catalog_retention_job(struct sf_catalog *catalog, struct sf_sched *sched,
                                     struct sf_diag *diag, uint64_t *out_done)
{
    int64_t now_ms = sf_clock_unix_ms(catalog->deps.clock);
    if (catalog->retention_next_ms > now_ms && !sf_catalog_removals_over(catalog))
        return SF_OK; /* the oldest segment is younger: nothing is asked */
    struct round r = make_round(catalog, sched, diag);
    enum sf_err err = run_round(&r);
    *out_done = r.removed + r.segments;
    catalog->retention_next_ms = err == SF_OK && *out_done == 0 ? r.next_ms : 0;
    if (err == SF_OK && *out_done == 0 && r.next_ms == 0) /* it waits for a checkpoint */
        catalog->retention_next_ms = now_ms + SF_CATALOG_CHECKPOINT_INTERVAL_MS;
    sf_arena_destroy(r.arena);
    return err;
}

static enum sf_err call_round(struct sf_catalog *catalog, struct sf_sched *sched,
                              struct sf_call *call, const ProtobufCMessage *message)
{
    const SF_PB(RunRetentionRequest) *request = (const SF_PB(RunRetentionRequest) *)message;
    SF_PB(RunRetentionResponse) response;
    char reason[160];
    struct round r = make_round(catalog, sched, sf_call_diag(call));
    searchfabric__v1__run_retention_response__init(&response);
    r.dry_run = request->dry_run;
    if (request->max_commands != 0)
        r.max = request->max_commands;
    enum sf_err err = run_round(&r);
    response.records_removed = r.removed;
    response.segments_removed = r.segments;
    response.control_objects_removed = r.controls;
    response.boundary_segment_epoch = r.boundary;
    response.records_kept = r.kept_current + r.kept_bound;
    snprintf(reason, sizeof(reason),
             "%llu name a current object, %llu are not below the older of two kept checkpoints",
             (unsigned long long)r.kept_current, (unsigned long long)r.kept_bound);
    if (response.records_kept != 0)
        response.kept_reason = reason;
    if (err == SF_OK)
        sf_call_respond(call, &response.base);
    sf_arena_destroy(r.arena);
    return err;
}

void sf_catalog_retention_call(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    sf_catalog_operate(self, call, request, call_round);
}
