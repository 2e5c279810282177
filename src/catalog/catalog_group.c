/*
 * Model: commands that are ready gather while a group is under way; its leader (a lane task) takes
 * all of them as the next group. The first task that comes while somebody leads waits, as the heir
 * who leads next; the others return with their lanes held, and who leads their group ends their
 * commands. So a group costs a few changes of threads, however many commands it has.
 *
 * A group is one segment, listed at the first free slot of the chain: one append in flight, and
 * every slot that this process did not write is read before the next is tried. A foreign takeover
 * record there ends this owner.
 *
 *   stage 0   control objects, name epochs (compare-and-swap), the segment (for all commands)
 *   stage 1   the outcome: the commit point
 *   stage 2   replay pointers, what follows from the outcome; one SQL transaction; the answers
 *
 * A group's rows are written while the next group is appended; one group at a time, in the order of
 * the segments. The lanes of a group are held until its rows stand, so the next one touches none of
 * them. The watermark passes no group that has not been shown whole.
 *
 * On a store that this process holds alone all stages travel in one batch with one sync. Elsewhere
 * the boundary is looked at between the append and stage 1. Whatever fails is brought to an end put
 * by put: an orphan is replaced, a lost name epoch means a fresh attempt, a listed command that is
 * given up is settled by an abort marker before its lane goes on.
 */
#include "catalog/catalog_head.h"
#include "catalog/catalog_projector.h"
#include "catalog/catalog_rules.h"

#include <stdlib.h>

#define GROUP_MAX 128

/* One command of the group. */
struct member {
    struct sf_catalog_command *command; /* borrowed until its end */
    bool over;                          /* result decided without a commit */
    bool committed;                     /* the outcome stands */
    bool unsettled;                     /* the office ended while something was in doubt */
    struct sf_catalog_put outcome;      /* encoded for the group's slot */
    struct sf_catalog_put pointers[2];  /* of that outcome */
    size_t pointer_count;               /* used entries */
};

struct group {
    struct sf_catalog *catalog;                      /* whose */
    struct sf_sched *sched;                          /* of the leader */
    struct member members[GROUP_MAX];                /* in the order of their arrival */
    size_t count;                                    /* of them */
    uint64_t slot;                                   /* of the segment that stands, 0 = none */
    struct sf_put puts[GROUP_MAX * 6 + 1];           /* one batch */
    struct sf_catalog_put *whose[GROUP_MAX * 6 + 1]; /* by index in puts */
};

/* ---- append ------------------------------------------------------------------------------- */

/* Encodes the segment that lists the group's commands at `slot`. */
static void encode_segment(struct group *group, uint64_t slot, struct sf_catalog_put *put)
{
    struct sf_catalog *catalog = group->catalog;
    SF_PB(RecoverySegmentEntry) entries[GROUP_MAX];
    SF_PB(RecoverySegmentEntry) * list[GROUP_MAX];
    SF_PB(RecoverySegmentObject) segment;
    char attempt_id[SF_ATTEMPT_ID_BYTES];
    searchfabric__v1__recovery_segment_object__init(&segment);
    sf_attempts_next(catalog->deps.attempts, attempt_id);
    segment.format_version = SF_CATALOG_FORMAT_VERSION;
    segment.attempt_id = attempt_id;
    segment.recovery_segment_epoch = slot;
    segment.owner_id = catalog->owner_id;
    segment.entries = list;
    for (size_t i = 0; i < group->count; i++) {
        const struct sf_catalog_command *command = group->members[i].command;
        SF_PB(RecoverySegmentEntry) *entry = &entries[segment.n_entries];
        searchfabric__v1__recovery_segment_entry__init(entry);
        entry->command_identity = (char *)(uintptr_t)command->command_identity;
        entry->command_kind = command->ops->kind;
        entry->lane_shard = command->plan.lane_shard;
        entry->owner_epoch = catalog->owner_epoch;
        entry->attempt_id = (char *)(uintptr_t)command->plan.attempt_id;
        entry->attempt = command->plan.attempt;
        entry->applied_ts = command->plan.outcome.applied_ts;
        entry->transport_lookup_key = (char *)(uintptr_t)command->transport_key;
        if (segment.n_entries == 0 || entry->applied_ts < segment.min_applied_ts)
            segment.min_applied_ts = entry->applied_ts;
        if (entry->applied_ts > segment.max_applied_ts)
            segment.max_applied_ts = entry->applied_ts;
        list[segment.n_entries++] = entry;
    }
    sf_buf_clear(&put->key);
    sf_catalog_key_segment(&put->key, slot);
    put->cond = SF_MUTANT(ccs_segment_overwrites) ? SF_PUT_ANY : SF_PUT_ABSENT;
    sf_catalog_put_encode(put, &segment.base, true, NULL);
}

static void add_put(struct group *group, size_t *io_count, struct sf_catalog_put *put,
                    uint32_t stage, uint32_t command)
{
    if (put->state != SF_CATALOG_PUT_PENDING)
        return;
    sf_catalog_put_fill(put, stage, command, &group->puts[*io_count]);
    group->whose[*io_count] = put;
    (*io_count)++;
}

/* Encodes outcome and pointers of every member for `slot`. */
static void encode_outcomes(struct group *group, uint64_t slot)
{
    for (size_t i = 0; i < group->count; i++) {
        struct member *member = &group->members[i];
        for (size_t k = 0; k < member->pointer_count; k++)
            sf_catalog_put_fini(&member->pointers[k]);
        sf_catalog_outcome_encode(member->command, slot, &member->outcome);
        member->pointer_count =
            sf_catalog_pointer_puts(&member->command->plan.outcome, member->pointers);
    }
}

/* Pointers of a member, and what follows from its outcome. */
static void add_derived(struct group *group, size_t *io_count, size_t index, uint32_t stage)
{
    struct member *member = &group->members[index];
    for (size_t k = 0; k < member->pointer_count && !SF_MUTANT(ccs_no_pointers); k++)
        add_put(group, io_count, &member->pointers[k], stage, (uint32_t)index);
    if (member->command->plan.follows)
        add_put(group, io_count, &member->command->plan.follow, stage, (uint32_t)index);
}

/* Lays out the batch of one append; all stages when `whole`. */
static size_t lay_out(struct group *group, struct sf_catalog_put *segment, bool whole)
{
    size_t count = 0;
    for (size_t i = 0; i < group->count; i++) {
        struct sf_catalog_plan *plan = &group->members[i].command->plan;
        for (size_t k = 0; k < plan->control_count; k++)
            add_put(group, &count, &plan->controls[k], 0, (uint32_t)i);
    }
    add_put(group, &count, segment, 0, SF_COMMAND_ALL);
    for (size_t i = 0; whole && i < group->count; i++)
        add_put(group, &count, &group->members[i].outcome, SF_MUTANT(ccs_outcome_early) ? 0 : 1,
                (uint32_t)i);
    for (size_t i = 0; whole && i < group->count; i++)
        add_derived(group, &count, i, 2);
    return count;
}

/* The slot is taken by a segment of another process: read it and go on, or stop for ever. */
static enum sf_err read_foreign(struct group *group, const struct sf_catalog_put *segment,
                                uint64_t slot)
{
    struct sf_catalog *catalog = group->catalog;
    struct sf_arena *arena = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    struct sf_diag diag;
    sf_diag_init(&diag);
    ProtobufCMessage *message = NULL;
    enum sf_err err = sf_catalog_decode(&searchfabric__v1__recovery_segment_object__descriptor,
                                        true, sf_buf_view(&segment->found), arena, &diag, &message);
    if (err == SF_OK) {
        const SF_PB(RecoverySegmentObject) *found = (const SF_PB(RecoverySegmentObject) *)message;
        if (found->takeover != NULL && !SF_MUTANT(ccs_ignore_takeover))
            err = sf_catalog_depose(catalog, "segment", slot);
        else
            atomic_store(&catalog->newest_segment, slot);
    } else {
        SF_LOG(ERROR, "catalog_segment_broken", SF_KV_U64("segment", slot),
               SF_KV_STR("error", diag.message));
    }
    sf_arena_destroy(arena);
    return err;
}

/* Takes the first results of a batch: a stage-0 put that is not certain is brought to an end, later
 * stages are only noted when they stand. */
static enum sf_err take_results(struct group *group, size_t count)
{
    enum sf_err err = SF_OK;
    for (size_t i = 0; i < count; i++) {
        struct sf_put *put = &group->puts[i];
        struct sf_catalog_put *whose = group->whose[i];
        if (put->err == SF_OK) {
            whose->state = SF_CATALOG_PUT_STANDS;
            whose->etag = put->etag;
            continue;
        }
        if (put->err == SF_ERR_CANCELLED_STAGE)
            continue;
        enum sf_err one = sf_catalog_put_settle(group->catalog, group->sched, whose, put->err,
                                                &put->etag, SF_CATALOG_PUT_TRIES);
        if (err == SF_OK)
            err = one;
    }
    return err;
}

/* Appends the group's segment; on an exclusive store everything else rides along. SF_OK: the
 * segment stands at group->slot. SF_ERR_UNAVAILABLE: it never will. Else the office ended. */
static enum sf_err append(struct group *group)
{
    struct sf_catalog *catalog = group->catalog;
    bool whole = catalog->deps.store->exclusive || SF_MUTANT(ccs_outcome_early);
    enum sf_err err = SF_OK;
    struct sf_catalog_put segment = {0};
    while (err == SF_OK && group->slot == 0) {
        uint64_t slot = atomic_load(&catalog->newest_segment) + 1;
        encode_segment(group, slot, &segment);
        encode_outcomes(group, slot);
        struct sf_batch batch = {.puts = group->puts};
        batch.count = lay_out(group, &segment, whole);
        sf_store_submit_wait(catalog->deps.store, group->sched, &batch);
        err = take_results(group, batch.count);
        if (err != SF_OK)
            break;
        if (segment.state == SF_CATALOG_PUT_STANDS) {
            group->slot = slot;
            atomic_store(&catalog->newest_segment, slot);
        } else if (segment.state == SF_CATALOG_PUT_LOST) {
            err = read_foreign(group, &segment, slot);
        } else {
            err = SF_ERR_UNAVAILABLE;
        }
    }
    sf_catalog_put_fini(&segment);
    return err;
}

/* ---- one command after the append --------------------------------------------------------- */

static void decide(struct member *member, enum sf_catalog_commit result)
{
    member->over = true;
    member->command->result = result;
}

/* Gives a listed command up: settled by a marker, unless its outcome stands after all. */
static void give_up(struct group *group, struct member *member, enum sf_catalog_commit result)
{
    struct sf_catalog_command *command = member->command;
    struct sf_diag diag;
    sf_diag_init(&diag);
    SF_PB(RecoverySegmentEntry) entry;
    searchfabric__v1__recovery_segment_entry__init(&entry);
    entry.command_identity = command->command_identity;
    entry.command_kind = command->ops->kind;
    entry.lane_shard = command->plan.lane_shard;
    entry.attempt_id = command->plan.attempt_id;
    entry.attempt = command->plan.attempt;
    entry.applied_ts = command->plan.outcome.applied_ts;
    struct sf_catalog_settled settled = {0};
    enum sf_err err = SF_ERR_UNAVAILABLE;
    if (SF_MUTANT(ccs_doubt_is_failure) || SF_MUTANT(ccs_no_marker)) {
        decide(member, result);
        return;
    }
    for (unsigned tries = 1; err == SF_ERR_UNAVAILABLE; tries++) {
        err = sf_catalog_abort(group->catalog, group->sched, &entry, group->slot,
                               "aborted_by_owner", command->scratch, &diag, &settled);
        if (err == SF_ERR_UNAVAILABLE) {
            if (sf_catalog_ending(group->catalog))
                break;
            sf_catalog_pause(group->catalog, group->sched, tries);
        }
    }
    if (err == SF_OK && settled.committed) {
        member->committed = true;
        return;
    }
    member->unsettled = err != SF_OK;
    decide(member, err == SF_OK ? result : SF_CATALOG_GIVEN_UP);
}

/* Owner epoch and attempt of a control object that stands instead of ours. */
static bool read_header(const struct sf_catalog_put *put, struct sf_arena *arena,
                        uint64_t *out_owner_epoch, uint64_t *out_attempt, const char **out_command)
{
    ProtobufCMessage *message = NULL;
    if (sf_catalog_decode(put->desc, false, sf_buf_view(&put->found), arena, NULL, &message) !=
        SF_OK)
        return false;
    const char *base = (const char *)message;
    const ProtobufCFieldDescriptor *epoch =
        protobuf_c_message_descriptor_get_field_by_name(put->desc, "owner_epoch");
    const ProtobufCFieldDescriptor *attempt =
        protobuf_c_message_descriptor_get_field_by_name(put->desc, "attempt");
    const ProtobufCFieldDescriptor *command =
        protobuf_c_message_descriptor_get_field_by_name(put->desc, "command_identity");
    memcpy(out_owner_epoch, base + epoch->offset, sizeof(*out_owner_epoch));
    memcpy(out_attempt, base + attempt->offset, sizeof(*out_attempt));
    *out_command = "";
    if (command != NULL)
        memcpy(out_command, base + command->offset, sizeof(*out_command));
    return true;
}

/* A foreign object stands at a control key: replace an orphan of an older attempt. SF_OK: try
 * again; SF_ERR_PRECONDITION: the attempt is lost; SF_ERR_DEPOSED. */
static enum sf_err meet_foreign(struct group *group, struct member *member, size_t index)
{
    struct sf_catalog_plan *plan = &member->command->plan;
    struct sf_catalog_put *put = &plan->controls[index];
    if (put->found.len == 0) { /* a swap whose object is gone */
        put->cond = SF_PUT_ABSENT;
        return SF_OK;
    }
    uint64_t owner_epoch, attempt;
    const char *command_identity;
    if (!read_header(put, member->command->scratch, &owner_epoch, &attempt, &command_identity))
        return SF_ERR_PRECONDITION;
    if (owner_epoch > group->catalog->owner_epoch && !SF_MUTANT(ccs_no_elder))
        return sf_catalog_depose(group->catalog, "control object", owner_epoch);
    if (SF_MUTANT(ccs_no_nonce) &&
        strcmp(command_identity, member->command->command_identity) == 0) {
        put->state = SF_CATALOG_PUT_STANDS;
        return SF_OK;
    }
    if ((int)index == plan->name_epoch_put)
        return SF_ERR_PRECONDITION;
    if (owner_epoch == group->catalog->owner_epoch && attempt >= plan->attempt)
        return SF_ERR_PRECONDITION;
    put->cond = SF_MUTANT(ccs_orphan_overwrites) ? SF_PUT_ANY : SF_PUT_MATCH;
    put->match = put->found_etag;
    return SF_OK;
}

/* Makes the control objects stand. */
static enum sf_err finish_controls(struct group *group, struct member *member)
{
    struct sf_catalog_plan *plan = &member->command->plan;
    for (size_t i = 0; i < plan->control_count; i++) {
        struct sf_catalog_put *put = &plan->controls[i];
        while (put->state != SF_CATALOG_PUT_STANDS) {
            enum sf_err err = SF_OK;
            if (put->state == SF_CATALOG_PUT_LOST)
                err = meet_foreign(group, member, i);
            if (err == SF_OK && put->state != SF_CATALOG_PUT_STANDS)
                err = sf_catalog_put_run(group->catalog, group->sched, put, SF_CATALOG_PUT_TRIES);
            if (err == SF_OK && put->state == SF_CATALOG_PUT_UNSENT)
                err = SF_ERR_UNAVAILABLE;
            if (err != SF_OK)
                return err;
        }
    }
    return SF_OK;
}

/* Something else stands at the outcome key: may the outcome replace it? SF_OK: try again. */
static enum sf_err meet_outcome(struct group *group, struct member *member)
{
    struct sf_catalog_put *put = &member->outcome;
    if (put->found.len == 0) {
        put->cond = SF_PUT_ABSENT;
        return SF_OK;
    }
    ProtobufCMessage *message = NULL;
    enum sf_err err = sf_catalog_decode(put->desc, false, sf_buf_view(&put->found),
                                        member->command->scratch, NULL, &message);
    if (err != SF_OK)
        return err;
    const SF_PB(CommandOutcomeObject) *found = (const SF_PB(CommandOutcomeObject) *)message;
    uint64_t named = found->entry == NULL ? 0 : found->entry->recovery_segment_epoch;
    bool replace = found->abort != NULL && SF_MUTANT(ccs_no_relist);
    if (found->owner_epoch > group->catalog->owner_epoch && !replace)
        return sf_catalog_depose(group->catalog, "outcome", found->owner_epoch);
    if (found->abort == NULL || (named >= group->slot && !replace))
        return SF_ERR_PRECONDITION;
    put->cond = SF_PUT_MATCH;
    put->match = put->found_etag;
    return SF_OK;
}

/* Makes the outcome stand. */
static enum sf_err finish_outcome(struct group *group, struct member *member)
{
    struct sf_catalog_put *put = &member->outcome;
    while (put->state != SF_CATALOG_PUT_STANDS) {
        enum sf_err err = SF_OK;
        if (put->state == SF_CATALOG_PUT_LOST)
            err = meet_outcome(group, member);
        if (err == SF_OK)
            err = sf_catalog_put_run(group->catalog, group->sched, put, SF_CATALOG_PUT_TRIES);
        if (err == SF_OK && put->state == SF_CATALOG_PUT_UNSENT)
            err = SF_ERR_UNAVAILABLE;
        if (err != SF_OK)
            return err;
    }
    return SF_OK;
}

/* What stands before the outcome may be put. False: the member is over or was committed. */
static bool prepare(struct group *group, struct member *member)
{
    enum sf_err err = SF_OK;
    if (member->command->plan.marker_slot >= group->slot)
        err = SF_ERR_PRECONDITION;
    if (err == SF_OK && !SF_MUTANT(ccs_controls_late))
        err = finish_controls(group, member);
    if (err == SF_OK)
        return true;
    if (err == SF_ERR_DEPOSED || err == SF_ERR_STOPPED) {
        member->unsettled = true;
        decide(member, SF_CATALOG_GIVEN_UP);
    } else {
        give_up(group, member, err == SF_ERR_PRECONDITION ? SF_CATALOG_RETRY : SF_CATALOG_GIVEN_UP);
    }
    return false;
}

/* Outcomes and pointers of all prepared members in one batch, where they did not ride along. */
static void submit_outcomes(struct group *group, const bool *ready)
{
    size_t count = 0;
    for (size_t i = 0; i < group->count; i++) {
        if (ready[i])
            add_put(group, &count, &group->members[i].outcome, 0, (uint32_t)i);
    }
    for (size_t i = 0; i < group->count; i++) {
        if (ready[i])
            add_derived(group, &count, i, 1);
    }
    if (count == 0)
        return;
    struct sf_batch batch = {.puts = group->puts, .count = count};
    sf_store_submit_wait(group->catalog->deps.store, group->sched, &batch);
    /* an office that ends here shows again at each put that is still in doubt */
    (void)take_results(group, count);
}

/* Makes what follows from a committed outcome stand, where the batch did not. */
static enum sf_err finish_follow(struct group *group, struct member *member)
{
    const struct sf_catalog_plan *plan = &member->command->plan;
    enum sf_err err =
        plan->follows && plan->follow.state != SF_CATALOG_PUT_STANDS ? SF_ERR_UNAVAILABLE : SF_OK;
    for (unsigned tries = 1; err == SF_ERR_UNAVAILABLE; tries++) {
        err = sf_catalog_head_follow(group->catalog, group->sched, &plan->outcome);
        if (err != SF_ERR_UNAVAILABLE || sf_catalog_ending(group->catalog))
            break;
        sf_catalog_pause(group->catalog, group->sched, tries);
    }
    return err;
}

/* From a prepared command to a committed one whose pointers stand, or to its end. */
static void finish(struct group *group, struct member *member)
{
    enum sf_err err = member->committed ? SF_OK : finish_outcome(group, member);
    if (err == SF_ERR_DEPOSED || err == SF_ERR_STOPPED) {
        member->unsettled = true;
        decide(member, SF_CATALOG_GIVEN_UP);
        return;
    }
    if (err == SF_OK)
        member->committed = true;
    else
        give_up(group, member, err == SF_ERR_PRECONDITION ? SF_CATALOG_RETRY : SF_CATALOG_GIVEN_UP);
    for (size_t k = 0;
         member->committed && k < member->pointer_count && !SF_MUTANT(ccs_no_pointers); k++) {
        struct sf_catalog_put *pointer = &member->pointers[k];
        err = SF_OK;
        if (pointer->state == SF_CATALOG_PUT_PENDING || pointer->state == SF_CATALOG_PUT_UNSENT)
            err = sf_catalog_put_run(group->catalog, group->sched, pointer, 0);
        if (err == SF_OK)
            err = sf_catalog_pointer_replace(group->catalog, group->sched, pointer);
        if (err != SF_OK || pointer->state == SF_CATALOG_PUT_UNSENT) {
            member->unsettled = true;
            decide(member, SF_CATALOG_GIVEN_UP);
            return;
        }
    }
    if (member->committed && finish_follow(group, member) != SF_OK) {
        member->unsettled = true;
        decide(member, SF_CATALOG_GIVEN_UP);
    }
}

static void finish_all(struct group *group)
{
    bool ready[GROUP_MAX] = {false};
    for (size_t i = 0; i < group->count; i++)
        ready[i] = prepare(group, &group->members[i]);
    submit_outcomes(group, ready);
    for (size_t i = 0; i < group->count; i++) {
        if (!group->members[i].over)
            finish(group, &group->members[i]);
    }
}

/* ---- materialize -------------------------------------------------------------------------- */

static bool is_shown(const struct member *member)
{
    return member->committed && !member->over;
}

/* Did a member from `from` on, in the same transaction, look at the owner epoch of this one's
 * shard? Nobody else raises it before the transaction ends. */
static bool epoch_seen(const struct group *group, size_t from, size_t index)
{
    for (size_t i = from; i < index; i++) {
        if (is_shown(&group->members[i]) && group->members[i].command->plan.lane_shard ==
                                                group->members[index].command->plan.lane_shard)
            return true;
    }
    return false;
}

/* Shows one committed command of a transaction over the members from `from` on; a schema generation
 * of this owner's making needs no adoption. The binding revision after it goes to the cache later.
 */
static enum sf_err show(struct group *group, struct sf_sql_conn *conn, size_t from, size_t index,
                        struct sf_diag *diag, bool *out_dropped)
{
    struct sf_catalog_command *command = group->members[index].command;
    const struct sf_catalog_plan *plan = &command->plan;
    const SF_PB(CommandOutcomeObject) *outcome = &plan->outcome;
    enum sf_err err =
        sf_catalog_project(group->catalog, conn, outcome, plan->object,
                           !epoch_seen(group, from, index), command->scratch, diag, out_dropped);
    if (err == SF_OK && !*out_dropped &&
        outcome->command_kind == SF_PBE(COMMAND_KIND, PUT_COLLECTION_SCHEMA) &&
        outcome->replay_classification == SF_PBE(REPLAY_CLASSIFICATION, ORIGINAL))
        err = sf_catalog_project_adopted(group->catalog, conn, outcome->scope->namespace_id,
                                         outcome->scope->collection_id, outcome->schema_version,
                                         diag);
    return err;
}

/* One transaction over members [from, to); raises the watermark to `watermark` unless 0. */
static enum sf_err show_range(struct group *group, size_t from, size_t to, uint64_t watermark)
{
    struct sf_diag diag;
    sf_diag_init(&diag);
    struct sf_sql_conn *conn = sf_sql_acquire(group->catalog->deps.sql, group->sched, SF_SQL_WRITE);
    enum sf_err err = sf_sql_begin(conn, &diag);
    bool dropped = false;
    for (size_t i = from; i < to && err == SF_OK && !dropped; i++) {
        if (is_shown(&group->members[i]))
            err = show(group, conn, from, i, &diag, &dropped);
    }
    if (err == SF_OK && !dropped && watermark != 0)
        err = sf_catalog_project_watermark(group->catalog, conn, watermark, &diag);
    if (dropped)
        err = sf_catalog_depose(group->catalog, "projection", 0);
    if (err == SF_OK)
        err = sf_sql_commit(conn, &diag);
    else
        sf_sql_rollback(conn);
    sf_sql_release(conn);
    if (err != SF_OK && err != SF_ERR_DEPOSED)
        SF_LOG(WARN, "catalog_materialize_failed", SF_KV_U64("segment", group->slot),
               SF_KV_STR("error", diag.message));
    if (err == SF_OK && watermark != 0)
        sf_catalog_watermark_note(group->catalog, watermark);
    return err;
}

/* Facts that the commit changed leave the cache before the answer. */
static void refresh_cache(struct group *group, const struct member *member)
{
    struct sf_catalog *catalog = group->catalog;
    const SF_PB(CommandOutcomeObject) *outcome = &member->command->plan.outcome;
    if (outcome->command_kind == SF_PBE(COMMAND_KIND, HEAD_ADVANCE)) {
        sf_catalog_head_advanced(catalog, outcome);
        sf_catalog_projectors_changed(catalog);
    } else {
        sf_catalog_state_committed(catalog, outcome, &member->command->rows);
    }
    if (outcome->terminal_state == SF_PBE(COMMAND_TERMINAL_STATE, APPLIED))
        sf_catalog_presplit(catalog, member->command->plan.object);
}

/* Shows the group; a transaction that fails is run again command by command, until all rows stand
 * or the office ends. */
static void materialize(struct group *group)
{
    bool all_settled = true;
    size_t committed = 0;
    for (size_t i = 0; i < group->count; i++) {
        all_settled = all_settled && !group->members[i].unsettled;
        committed += group->members[i].committed && !group->members[i].over ? 1 : 0;
    }
    if (!all_settled)
        group->catalog->show_gap = true;
    if (committed == 0)
        return;
    enum sf_err err = SF_OK;
    if (!SF_MUTANT(ccs_ack_early))
        err = show_range(group, 0, group->count, group->catalog->show_gap ? 0 : group->slot);
    for (size_t i = 0; i < group->count; i++) {
        struct member *member = &group->members[i];
        if (!member->committed || member->over)
            continue;
        enum sf_err one = err;
        for (unsigned tries = 1; one != SF_OK && !sf_catalog_ending(group->catalog); tries++) {
            if (tries > 1)
                sf_catalog_pause(group->catalog, group->sched, tries);
            one = show_range(group, i, i + 1, 0);
        }
        if (one != SF_OK) {
            group->catalog->show_gap = true;
            decide(member, SF_CATALOG_GIVEN_UP);
            continue;
        }
        refresh_cache(group, member);
        atomic_fetch_add(&group->catalog->commands_applied, 1);
        decide(member, SF_CATALOG_COMMITTED);
    }
}

/* ---- the group ---------------------------------------------------------------------------- */

/* Notes that everything up to the group's slot is settled and shown; raises the watermark when it
 * stayed far behind, as it does while nothing is committed. */
static void note_settled(struct group *group)
{
    struct sf_catalog *catalog = group->catalog;
    for (size_t i = 0; i < group->count; i++)
        catalog->show_gap = catalog->show_gap || group->members[i].unsettled;
    if (catalog->show_gap)
        return;
    atomic_store(&catalog->settled, group->slot);
    if (group->slot >= atomic_load(&catalog->watermark) + SF_CATALOG_WATERMARK_LAG)
        (void)show_range(group, 0, 0, group->slot);
}

/* Up to the replay pointers. Errors: why no member is committed, with slot 0 none was listed. */
static enum sf_err commit(struct group *group)
{
    struct sf_catalog *catalog = group->catalog;
    enum sf_err err = sf_catalog_ending(catalog) ? SF_ERR_STOPPED : append(group);
    if (err == SF_OK && !catalog->deps.store->exclusive && !SF_MUTANT(ccs_no_boundary_look))
        err = sf_catalog_boundary_look(catalog, group->sched);
    if (err != SF_OK) {
        for (size_t i = 0; i < group->count; i++) {
            bool listed = group->slot != 0 && err != SF_ERR_DEPOSED && err != SF_ERR_STOPPED;
            if (listed) /* the boundary cannot be read: nothing of the group may count */
                give_up(group, &group->members[i], SF_CATALOG_GIVEN_UP);
            else
                decide(&group->members[i], SF_CATALOG_GIVEN_UP);
        }
        return err;
    }
    if (SF_MUTANT(ccs_watermark_ahead))
        (void)show_range(group, 0, 0, group->slot);
    atomic_fetch_add(&catalog->groups_committed, 1);
    finish_all(group);
    return SF_OK;
}

/* Waits for the turn to write rows; only the leader does. */
static void show_enter(struct sf_catalog *catalog, struct sf_sched *sched)
{
    struct sf_waiter waiter;
    sf_waiter_init(&waiter, sched);
    pthread_mutex_lock(&catalog->group_mu);
    bool busy = catalog->showing;
    SF_ASSERT(catalog->show_wait == NULL);
    if (busy)
        catalog->show_wait = &waiter;
    catalog->showing = true;
    pthread_mutex_unlock(&catalog->group_mu);
    if (busy)
        sf_waiter_wait(&waiter);
    sf_waiter_fini(&waiter);
}

/* Ends the turn, or hands it to who waits. */
static void show_leave(struct sf_catalog *catalog)
{
    pthread_mutex_lock(&catalog->group_mu);
    struct sf_waiter *next = catalog->show_wait;
    catalog->show_wait = NULL;
    catalog->showing = next != NULL;
    pthread_mutex_unlock(&catalog->group_mu);
    if (next != NULL)
        sf_waiter_wake(next);
}

/* The group's turn: rows, watermark. `err` is what the commit came to. */
static void show_group(struct group *group, enum sf_err err)
{
    if (err == SF_ERR_DEPOSED || err == SF_ERR_STOPPED) {
        group->catalog->show_gap = true; /* listed, and left to the next owner */
        return;
    }
    if (err == SF_OK)
        materialize(group);
    note_settled(group);
}

/* A task that leads, or waits to lead the next group. On its stack, since its command may be ended
 * by another leader: before it leads, or, where more commands waited than a group takes, after it
 * returned. */
struct sf_catalog_heir {
    struct sf_waiter waiter; /* opened once, with `leads` set */
    uint64_t number;         /* of this task; under group_mu, its own once it leads */
    bool leads;              /* false: nothing was left to lead */
    bool own;                /* it led the group of its own command, which has its result */
};

/* Lets the next group begin under the heir. True: something waits and there is no heir, so the
 * caller leads again. */
static bool hand_on(struct sf_catalog *catalog)
{
    pthread_mutex_lock(&catalog->group_mu);
    struct sf_catalog_heir *heir = catalog->group_heir;
    bool more = catalog->group_head != NULL;
    catalog->group_heir = NULL;
    catalog->group_led = more;
    pthread_mutex_unlock(&catalog->group_mu);
    if (heir != NULL) {
        heir->leads = more;
        sf_waiter_wake(&heir->waiter);
    }
    return more && heir == NULL;
}

/* Takes what waits as a group. */
static struct group *take_group(struct sf_catalog *catalog)
{
    struct group *group = sf_calloc(1, sizeof(*group));
    group->catalog = catalog;
    group->sched = catalog->deps.sched;
    pthread_mutex_lock(&catalog->group_mu);
    while (catalog->group_head != NULL && group->count < GROUP_MAX) {
        group->members[group->count++].command = catalog->group_head;
        catalog->group_head = catalog->group_head->next;
    }
    if (catalog->group_head == NULL)
        catalog->group_tail = NULL;
    pthread_mutex_unlock(&catalog->group_mu);
    return group;
}

/* Ends the group's commands, but the leader's own. */
static void end_members(struct group *group, struct sf_catalog_heir *self)
{
    for (size_t i = 0; i < group->count; i++) {
        struct member *member = &group->members[i];
        sf_catalog_put_fini(&member->outcome);
        for (size_t k = 0; k < member->pointer_count; k++)
            sf_catalog_put_fini(&member->pointers[k]);
        if (member->command->task_number == self->number)
            self->own = true;
        else
            sf_catalog_command_end(member->command);
    }
    free(group);
}

/* Takes what waits as a group, commits it, hands the lead on, shows it, ends its commands. Returns
 * whether the caller must lead again. */
static bool lead(struct sf_catalog *catalog, struct sf_catalog_heir *self)
{
    struct group *group = take_group(catalog);
    int64_t begin_ns = sf_clock_mono_ns(catalog->deps.clock);
    enum sf_err err = group->count == 0 ? SF_ERR_STOPPED : commit(group); /* 0: all given up */
    bool turn = group->slot != 0;
    if (turn)
        show_enter(catalog, group->sched);
    bool again = hand_on(catalog);
    if (turn) {
        show_group(group, err);
        show_leave(catalog);
    }
    if (catalog->metric_group_ms != NULL && group->count != 0)
        sf_metric_observe_ms(catalog->metric_group_ms,
                             (double)(sf_clock_mono_ns(catalog->deps.clock) - begin_ns) / 1e6);
    end_members(group, self);
    return again;
}

void sf_catalog_group_flush(struct sf_catalog *catalog)
{
    pthread_mutex_lock(&catalog->group_mu);
    struct sf_catalog_command *list = catalog->group_head;
    catalog->group_head = catalog->group_tail = NULL;
    pthread_mutex_unlock(&catalog->group_mu);
    while (list != NULL) {
        struct sf_catalog_command *command = list;
        list = command->next;
        sf_catalog_command_end(command); /* its result is GIVEN_UP since it was queued */
    }
}

/* Queues the command with its lane held, since a flush may end it at once. True: the caller leads.
 * False: *out_heir says whether it waits to lead. */
static bool join_group(struct sf_catalog_command *command, struct sf_catalog_heir *heir,
                       bool *out_heir)
{
    struct sf_catalog *catalog = command->catalog;
    pthread_mutex_lock(&catalog->group_mu);
    bool leads = !catalog->group_led;
    *out_heir = !leads && catalog->group_heir == NULL;
    catalog->group_led = true;
    if (*out_heir)
        catalog->group_heir = heir;
    command->hold = sf_sched_hold(catalog->deps.sched);
    heir->number = ++catalog->group_tasks;
    command->task_number = heir->number;
    if (catalog->group_tail != NULL)
        catalog->group_tail->next = command;
    else
        catalog->group_head = command;
    catalog->group_tail = command;
    pthread_mutex_unlock(&catalog->group_mu);
    return leads;
}

enum sf_catalog_commit sf_catalog_group_commit(struct sf_catalog_command *command)
{
    struct sf_catalog *catalog = command->catalog;
    struct sf_catalog_heir self = {.leads = false};
    bool is_heir;
    command->next = NULL;
    command->result = SF_CATALOG_GIVEN_UP;
    if (atomic_load(&catalog->stalled) != 0)
        return SF_CATALOG_GIVEN_UP;
    sf_waiter_init(&self.waiter, catalog->deps.sched);
    bool again = join_group(command, &self, &is_heir);
    if (is_heir) {
        sf_waiter_wait(&self.waiter);
        again = self.leads;
    }
    while (again)
        again = lead(catalog, &self);
    sf_waiter_fini(&self.waiter);
    if (!self.own)
        return SF_CATALOG_PENDING;
    sf_sched_release(catalog->deps.sched, command->hold);
    return command->result;
}
