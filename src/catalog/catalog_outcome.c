/*
 * Model: the key catalog-log/.../{command_identity}.json decides a command. It holds nothing, an
 * abort marker that names an entry of the chain, or the outcome, which names its entry too. An
 * entry is settled by an outcome of any entry (this one's: committed) or by a marker that names it
 * or a later one. A marker that names an earlier entry is replaced by compare-and-swap, so that the
 * swap of a retry still in flight fails as well. Pointers are a function of the outcome alone:
 * whoever publishes them again writes the same bytes.
 */
#include "catalog/catalog_head.h"
#include "catalog/catalog_retention.h"
#include "catalog/catalog_rules.h"

void sf_catalog_outcome_encode(struct sf_catalog_command *command, uint64_t slot,
                               struct sf_catalog_put *put)
{
    struct sf_catalog_plan *plan = &command->plan;
    SF_PB(CommandOutcomeObject) *outcome = &plan->outcome;
    plan->entry.recovery_segment_epoch = slot;
    plan->entry.attempt_id = plan->attempt_id;
    outcome->entry = &plan->entry;
    outcome->attempt_id = plan->attempt_id;
    outcome->attempt = plan->attempt;
    outcome->owner_epoch = command->catalog->owner_epoch;
    outcome->lane_shard = plan->lane_shard;
    sf_buf_clear(&put->key);
    sf_catalog_key_outcome(&put->key, command->command_identity);
    put->cond = SF_MUTANT(ccs_outcome_overwrites) ? SF_PUT_ANY : plan->outcome_cond;
    put->match = plan->outcome_match;
    sf_catalog_put_encode(put, &outcome->base, false, NULL);
}

static void fill_marker(struct sf_catalog *catalog, const SF_PB(RecoverySegmentEntry) * entry,
                        const char *reason, SF_PB(SegmentEntryRef) * ref,
                        SF_PB(AbortMarker) * abort, char *attempt_id,
                        SF_PB(CommandOutcomeObject) * marker)
{
    searchfabric__v1__abort_marker__init(abort);
    abort->reason = (char *)(uintptr_t)reason;
    abort->aborting_owner_epoch = catalog->owner_epoch;
    searchfabric__v1__command_outcome_object__init(marker);
    marker->format_version = SF_CATALOG_FORMAT_VERSION;
    marker->attempt_id = attempt_id;
    marker->owner_epoch = catalog->owner_epoch;
    marker->attempt = entry->attempt;
    marker->command_identity = entry->command_identity;
    marker->command_kind = entry->command_kind;
    marker->lane_shard = entry->lane_shard;
    marker->entry = ref;
    marker->terminal_state = SF_PBE(COMMAND_TERMINAL_STATE, FAILED);
    marker->abort = abort;
    marker->created_ts = entry->applied_ts;
}

/* Puts the marker of one try under the condition that `seen` (NULL = absent) still stands. */
static enum sf_err put_marker(struct sf_catalog *catalog, struct sf_sched *sched,
                              const SF_PB(RecoverySegmentEntry) * entry, uint64_t slot,
                              const char *reason, const struct sf_etag *seen, bool *out_stands)
{
    SF_PB(SegmentEntryRef) ref;
    SF_PB(AbortMarker) abort;
    SF_PB(CommandOutcomeObject) marker;
    char attempt_id[SF_ATTEMPT_ID_BYTES];
    searchfabric__v1__segment_entry_ref__init(&ref);
    ref.recovery_segment_epoch = slot;
    ref.attempt_id = entry->attempt_id;
    sf_attempts_next(catalog->deps.attempts, attempt_id);
    fill_marker(catalog, entry, reason, &ref, &abort, attempt_id, &marker);
    struct sf_catalog_put put = {.cond = seen == NULL ? SF_PUT_ABSENT : SF_PUT_MATCH};
    if (seen != NULL)
        put.match = *seen;
    if (SF_MUTANT(ccs_marker_overwrites))
        put.cond = SF_PUT_ANY;
    sf_catalog_key_outcome(&put.key, entry->command_identity);
    sf_catalog_put_encode(&put, &marker.base, false, NULL);
    enum sf_err err = sf_catalog_put_run(catalog, sched, &put, 0);
    if (err == SF_OK && put.state == SF_CATALOG_PUT_UNSENT)
        err = SF_ERR_STOPPED;
    *out_stands = put.state == SF_CATALOG_PUT_STANDS;
    sf_catalog_put_fini(&put);
    return err;
}

/* Does what stands at the key settle the entry? Fills *out for an outcome of its own. */
static bool settles(struct sf_catalog *catalog, const SF_PB(CommandOutcomeObject) * found,
                    const SF_PB(RecoverySegmentEntry) * entry, uint64_t slot,
                    struct sf_catalog_settled *out)
{
    uint64_t named = found->entry == NULL ? 0 : found->entry->recovery_segment_epoch;
    if (found->abort != NULL)
        return named >= slot || SF_MUTANT(ccs_no_reabort);
    if (named < slot && sf_catalog_record_expired(catalog, found))
        return false; /* retention removed its row: as good as a marker of an earlier entry */
    out->committed =
        SF_MUTANT(ccs_any_listing) || (found->entry != NULL && named == slot &&
                                       strcmp(found->entry->attempt_id, entry->attempt_id) == 0);
    return true;
}

enum sf_err sf_catalog_abort(struct sf_catalog *catalog, struct sf_sched *sched,
                             const SF_PB(RecoverySegmentEntry) * entry, uint64_t slot,
                             const char *reason, struct sf_arena *arena, struct sf_diag *diag,
                             struct sf_catalog_settled *out_settled)
{
    struct sf_buf key = {0};
    sf_catalog_key_outcome(&key, entry->command_identity);
    enum sf_err err = SF_OK;
    *out_settled = (struct sf_catalog_settled){0};
    for (bool done = false; !done && err == SF_OK;) {
        ProtobufCMessage *found = NULL;
        struct sf_etag etag;
        err = sf_catalog_read(catalog, sched, sf_buf_view(&key),
                              &searchfabric__v1__command_outcome_object__descriptor, false, arena,
                              diag, &found, NULL, &etag);
        bool absent = err == SF_ERR_NOT_FOUND;
        if (absent)
            err = SF_OK;
        if (err != SF_OK)
            break;
        if (!absent) {
            out_settled->outcome = (SF_PB(CommandOutcomeObject) *)found;
            if (settles(catalog, out_settled->outcome, entry, slot, out_settled))
                break;
        }
        err = put_marker(catalog, sched, entry, slot, reason, absent ? NULL : &etag, &done);
        if (done)
            atomic_fetch_add(&catalog->attempts_aborted, 1);
    }
    if (!out_settled->committed)
        out_settled->outcome = NULL;
    sf_buf_fini(&key);
    return err;
}

enum sf_err sf_catalog_peek(struct sf_catalog *catalog, struct sf_sched *sched,
                            const SF_PB(RecoverySegmentEntry) * entry, uint64_t slot,
                            struct sf_arena *arena, struct sf_diag *diag,
                            struct sf_catalog_settled *out_settled)
{
    struct sf_buf key = {0};
    ProtobufCMessage *found = NULL;
    *out_settled = (struct sf_catalog_settled){0};
    sf_catalog_key_outcome(&key, entry->command_identity);
    enum sf_err err = sf_catalog_read(catalog, sched, sf_buf_view(&key),
                                      &searchfabric__v1__command_outcome_object__descriptor, false,
                                      arena, diag, &found, NULL, NULL);
    sf_buf_fini(&key);
    out_settled->absent = err == SF_ERR_NOT_FOUND;
    if (out_settled->absent)
        return SF_OK;
    if (err == SF_OK) {
        out_settled->outcome = (SF_PB(CommandOutcomeObject) *)found;
        (void)settles(catalog, out_settled->outcome, entry, slot, out_settled);
    }
    return err;
}

static void fill_pointer(const SF_PB(CommandOutcomeObject) * outcome,
                         SF_PB(ReplayPointerFamily) family, char *lookup_key,
                         struct sf_catalog_put *put)
{
    SF_PB(ReplayPointerObject) pointer;
    struct sf_buf object_key = {0};
    sf_catalog_key_outcome(&object_key, outcome->command_identity);
    sf_buf_append(&object_key, "", 1);
    searchfabric__v1__replay_pointer_object__init(&pointer);
    pointer.format_version = SF_CATALOG_FORMAT_VERSION;
    pointer.attempt_id = outcome->attempt_id;
    pointer.family = family;
    pointer.lookup_key = lookup_key;
    pointer.command_identity = outcome->command_identity;
    pointer.command_kind = outcome->command_kind;
    pointer.scope = outcome->scope;
    pointer.created_ts = outcome->created_ts;
    pointer.applied_ts = outcome->applied_ts;
    pointer.command_object_key = (char *)object_key.data;
    put->cond = SF_PUT_ABSENT;
    sf_catalog_put_encode(put, &pointer.base, false, NULL);
    sf_buf_fini(&object_key);
}

size_t sf_catalog_pointer_puts(const SF_PB(CommandOutcomeObject) * outcome,
                               struct sf_catalog_put puts[2])
{
    memset(puts, 0, 2 * sizeof(*puts));
    sf_catalog_key_transport(&puts[0].key, outcome->transport_lookup_key);
    fill_pointer(outcome, SF_PBE(REPLAY_POINTER_FAMILY, TRANSPORT), outcome->transport_lookup_key,
                 &puts[0]);
    if (outcome->_business_lookup_key_case == 0 ||
        outcome->terminal_state != SF_PBE(COMMAND_TERMINAL_STATE, APPLIED) ||
        outcome->replay_classification != SF_PBE(REPLAY_CLASSIFICATION, ORIGINAL))
        return 1;
    sf_catalog_key_business(&puts[1].key, sf_catalog_kind_name(outcome->command_kind),
                            outcome->business_lookup_key);
    fill_pointer(outcome, SF_PBE(REPLAY_POINTER_FAMILY, BUSINESS), outcome->business_lookup_key,
                 &puts[1]);
    return 2;
}

bool sf_catalog_pointer_elder(struct sf_view found, struct sf_view own)
{
    struct sf_arena *arena = sf_arena_new(1 << 20);
    ProtobufCMessage *there = NULL, *here = NULL;
    struct sf_diag diag;
    const ProtobufCMessageDescriptor *desc = &searchfabric__v1__replay_pointer_object__descriptor;
    bool elder = sf_catalog_decode(desc, false, found, arena, &diag, &there) == SF_OK &&
                 sf_catalog_decode(desc, false, own, arena, &diag, &here) == SF_OK &&
                 strcmp(((const SF_PB(ReplayPointerObject) *)there)->command_identity,
                        ((const SF_PB(ReplayPointerObject) *)here)->command_identity) != 0 &&
                 ((const SF_PB(ReplayPointerObject) *)there)->applied_ts <
                     ((const SF_PB(ReplayPointerObject) *)here)->applied_ts;
    sf_arena_destroy(arena);
    return elder;
}

enum sf_err sf_catalog_pointer_replace(struct sf_catalog *catalog, struct sf_sched *sched,
                                       struct sf_catalog_put *put)
{
    enum sf_err err = SF_OK;
    while (err == SF_OK && put->state == SF_CATALOG_PUT_LOST) {
        if (put->found.len == 0)
            put->cond = SF_PUT_ABSENT;
        else if (sf_catalog_pointer_elder(sf_buf_view(&put->found), sf_buf_view(&put->body)))
            put->cond = SF_PUT_MATCH;
        else
            break;
        put->match = put->found_etag;
        put->state = SF_CATALOG_PUT_PENDING;
        err = sf_catalog_put_run(catalog, sched, put, 0);
    }
    return err;
}

enum sf_err sf_catalog_pointers(struct sf_catalog *catalog, struct sf_sched *sched,
                                const SF_PB(CommandOutcomeObject) * outcome)
{
    struct sf_catalog_put puts[2];
    size_t count = sf_catalog_pointer_puts(outcome, puts);
    enum sf_err err = SF_OK;
    for (size_t i = 0; i < count && err == SF_OK; i++) {
        err = sf_catalog_put_run(catalog, sched, &puts[i], 0);
        if (err == SF_OK)
            err = sf_catalog_pointer_replace(catalog, sched, &puts[i]);
        if (err == SF_OK && puts[i].state == SF_CATALOG_PUT_UNSENT)
            err = SF_ERR_STOPPED;
    }
    for (size_t i = 0; i < count; i++)
        sf_catalog_put_fini(&puts[i]);
    return err == SF_OK ? sf_catalog_head_follow(catalog, sched, outcome) : err;
}

const ProtobufCMessageDescriptor *sf_catalog_control_type(SF_PB(CommandKind) kind)
{
    switch (kind) {
    case SF_PBE(COMMAND_KIND, PUT_NAMESPACE_METADATA):
    case SF_PBE(COMMAND_KIND, NAMESPACE_LIFECYCLE_TRANSITION):
        return &searchfabric__v1__namespace_descriptor_object__descriptor;
    case SF_PBE(COMMAND_KIND, PUT_COLLECTION_METADATA):
        return &searchfabric__v1__collection_descriptor_object__descriptor;
    case SF_PBE(COMMAND_KIND, PUT_COLLECTION_SCHEMA):
        return &searchfabric__v1__schema_generation_object__descriptor;
    case SF_PBE(COMMAND_KIND, DROP_COLLECTION):
        return &searchfabric__v1__collection_tombstone_object__descriptor;
    default:
        return NULL;
    }
}

enum sf_err sf_catalog_control_read(struct sf_catalog *catalog, struct sf_sched *sched,
                                    const SF_PB(CommandOutcomeObject) * outcome,
                                    struct sf_arena *arena, struct sf_diag *diag,
                                    ProtobufCMessage **out_object)
{
    *out_object = NULL;
    if (outcome->n_control_objects == 0)
        return SF_OK;
    const ProtobufCMessageDescriptor *type = sf_catalog_control_type(outcome->command_kind);
    if (type == NULL)
        return sf_diag_set(diag, SF_ERR_CORRUPT, "record %s is not of this revision",
                           outcome->command_identity);
    const SF_PB(ControlObjectRef) *ref = outcome->control_objects[0];
    char digest[SF_SHA256_HEX_BYTES];
    enum sf_err err = sf_catalog_read(catalog, sched, sf_view_str(ref->key), type, false, arena,
                                      diag, out_object, digest, NULL);
    if (err == SF_ERR_NOT_FOUND)
        return sf_diag_set(diag, SF_ERR_CORRUPT, "committed object %s is gone", ref->key);
    if (err != SF_OK)
        return err;
    if (outcome->command_kind == SF_PBE(COMMAND_KIND, PUT_COLLECTION_SCHEMA)) {
        const SF_PB(SchemaGenerationObject) *generation =
            (const SF_PB(SchemaGenerationObject) *)*out_object;
        if (generation->body == NULL || generation->body->definition == NULL ||
            generation->body->collection == NULL)
            return sf_diag_set(diag, SF_ERR_CORRUPT, "%s has no body", ref->key);
        sf_catalog_body_sha256(generation->body, digest);
    }
    if (strcmp(digest, ref->sha256) != 0)
        return sf_diag_set(diag, SF_ERR_CORRUPT, "%s is not what its record names", ref->key);
    return SF_OK;
}
