#include "commit/commit_rules.h"

#include "base/limits.h"
#include "base/text.h"
#include "commit/commit.h"
#include "publish/keys.h"

/*
 * The coordinator trusts the gateway for what only the catalog knows (schema, lifecycle, ids) and
 * checks for itself what its own order rests on: flow kind against the timestamps that came, plans
 * that cover the entries, one source with growing numbers, so that no two rows ever tie.
 */

#define INVALID SEARCHFABRIC__V1__BATCH_REFUSAL__BATCH_REFUSAL_INVALID_BATCH
#define FINE    SEARCHFABRIC__V1__BATCH_REFUSAL__BATCH_REFUSAL_UNSPECIFIED

/* Flow B owns the upper half of the partition numbers, so tuples of the flows never tie. */
#define FLOW_B_PARTITION_BIT (UINT64_C(1) << 63)

static Searchfabric__V1__BatchRefusal invalid(struct sf_diag *diag, const char *field,
                                              const char *violation)
{
    (void)sf_diag_bad_field(diag, field, violation, "planned batch: %s: %s", field, violation);
    return INVALID;
}

static Searchfabric__V1__BatchRefusal invalid_entry(struct sf_diag *diag, size_t index,
                                                    const char *field, const char *violation)
{
    (void)sf_diag_bad_field(diag, field, violation, "planned batch: entry %zu: %s: %s", index,
                            field, violation);
    sf_diag_detail(diag, "entry_index", "%zu", index);
    return INVALID;
}

/* Ascending, without repeats, known values; the set in `out_set`. */
static bool modality_set(const Searchfabric__V1__Modality *list, size_t count, uint8_t *out_set)
{
    *out_set = 0;
    for (size_t i = 0; i < count; i++) {
        if (list[i] < 1 || (unsigned)list[i] > SF_MODALITY_COUNT ||
            (i > 0 && list[i] <= list[i - 1]))
            return false;
        *out_set |= SF_MODALITY_BIT(list[i]);
    }
    return true;
}

static bool lower_hex_digest(const char *text)
{
    for (size_t i = 0; i < SF_SHA256_HEX_BYTES - 1; i++) {
        if (!((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f')))
            return false;
    }
    return text[SF_SHA256_HEX_BYTES - 1] == '\0';
}

static Searchfabric__V1__BatchRefusal check_identity(const Searchfabric__V1__MutationBatch *batch,
                                                     struct sf_diag *diag)
{
    if (sf_identity_check("batch_id", sf_view_str(batch->batch_id), 1, 128, diag) != SF_OK ||
        sf_identity_check("stream_identity", sf_view_str(batch->stream_identity), 1, 256, diag) !=
            SF_OK)
        return INVALID;
    if (!lower_hex_digest(batch->batch_fingerprint))
        return invalid(diag, "batch_fingerprint", "not_a_digest");
    if (batch->collection == NULL || batch->collection->namespace_id == 0 ||
        batch->collection->collection_id == 0)
        return invalid(diag, "collection", "required");
    return FINE;
}

static Searchfabric__V1__BatchRefusal check_policy(const Searchfabric__V1__PlannedBatch *planned,
                                                   struct sf_diag *diag)
{
    const Searchfabric__V1__MutationBatch *batch = planned->batch;
    if (batch->durability < 1 || batch->durability > 2)
        return invalid(diag, "durability", "unspecified");
    if (batch->visibility < 1 || batch->visibility > 2)
        return invalid(diag, "visibility", "unspecified");
    if (planned->flow_kind == SEARCHFABRIC__V1__FLOW_KIND__FLOW_KIND_A)
        return invalid(diag, "flow_kind", "flow_a_not_served");
    if (planned->flow_kind != SEARCHFABRIC__V1__FLOW_KIND__FLOW_KIND_B)
        return invalid(diag, "flow_kind", "unspecified");
    if (planned->has_flow_a_source)
        return invalid(diag, "has_flow_a_source", "flow_a_not_served");
    if (planned->source_kind != SEARCHFABRIC__V1__SOURCE_KIND__SOURCE_KIND_NATIVE_SEARCH_API &&
        planned->source_kind != SEARCHFABRIC__V1__SOURCE_KIND__SOURCE_KIND_TIDB_REMOTE_DML)
        return invalid(diag, "source_kind", "not_of_flow_b");
    if (planned->writer_mode != SEARCHFABRIC__V1__WRITER_MODE__WRITER_MODE_STREAM &&
        planned->writer_mode != SEARCHFABRIC__V1__WRITER_MODE__WRITER_MODE_BATCH)
        return invalid(diag, "writer_mode", "unspecified");
    if (planned->first_admitted_ts == 0)
        return invalid(diag, "first_admitted_ts", "required");
    return FINE;
}

static bool is_row(const Searchfabric__V1__MutationEntry *entry)
{
    return entry->entry_case == SEARCHFABRIC__V1__MUTATION_ENTRY__ENTRY_ROW;
}

static Searchfabric__V1__BatchRefusal check_plans(const Searchfabric__V1__PlannedBatch *planned,
                                                  struct sf_diag *diag)
{
    uint8_t enabled = 0;
    uint8_t touched = 0;
    uint64_t next = 0;
    if (!modality_set(planned->enabled_modalities, planned->n_enabled_modalities, &enabled) ||
        enabled == 0)
        return invalid(diag, "enabled_modalities", "not_an_ascending_set");
    for (size_t i = 0; i < planned->n_entry_plans; i++) {
        const Searchfabric__V1__EntryPlan *plan = planned->entry_plans[i];
        if (plan->first_entry_index != next || plan->last_entry_index < next ||
            plan->last_entry_index >= planned->batch->n_entries)
            return invalid(diag, "entry_plans", "not_contiguous");
        if (!modality_set(plan->touched_modalities, plan->n_touched_modalities, &touched))
            return invalid(diag, "touched_modalities", "not_an_ascending_set");
        if ((touched & ~enabled) != 0)
            return invalid(diag, "touched_modalities", "not_enabled");
        for (uint64_t k = next; touched == 0 && k <= plan->last_entry_index; k++) {
            if (is_row(planned->batch->entries[k]))
                return invalid_entry(diag, k, "touched_modalities", "empty_for_a_row");
        }
        next = (uint64_t)plan->last_entry_index + 1;
    }
    if (next != planned->batch->n_entries)
        return invalid(diag, "entry_plans", "not_contiguous");
    return FINE;
}

static Searchfabric__V1__BatchRefusal check_row(const Searchfabric__V1__RowMutation *row,
                                                const Searchfabric__V1__RowMutation *before,
                                                size_t index, struct sf_diag *diag)
{
    if (row->commit_ts != 0)
        return invalid_entry(diag, index, "commit_ts", "not_zero_in_flow_b");
    if (row->doc_id == NULL ||
        row->doc_id->id_value_case != SEARCHFABRIC__V1__DOCUMENT_ID__ID_VALUE_U64)
        return invalid_entry(diag, index, "doc_id", "required");
    if (row->op < 1 || row->op > SEARCHFABRIC__V1__ROW_OP__ROW_OP_DELETE)
        return invalid_entry(diag, index, "op", "unspecified");
    if (row->body.len > SF_LIMIT_DOCUMENT_BYTES)
        return invalid_entry(diag, index, "body", "too_large");
    if (row->op == SEARCHFABRIC__V1__ROW_OP__ROW_OP_DELETE && row->body.len != 0)
        return invalid_entry(diag, index, "body", "delete_with_body");
    if ((row->source_partition & FLOW_B_PARTITION_BIT) == 0)
        return invalid_entry(diag, index, "source_partition", "not_of_flow_b");
    if (before == NULL)
        return FINE;
    if (row->source_partition != before->source_partition ||
        row->source_epoch != before->source_epoch)
        return invalid_entry(diag, index, "source_partition", "more_than_one_source");
    if (row->source_seq <= before->source_seq)
        return invalid_entry(diag, index, "source_seq", "does_not_grow");
    return FINE;
}

static Searchfabric__V1__BatchRefusal check_entries(const Searchfabric__V1__MutationBatch *batch,
                                                    struct sf_diag *diag)
{
    const Searchfabric__V1__RowMutation *before = NULL;
    if (batch->n_entries == 0 || batch->n_entries > SF_LIMIT_BATCH_ENTRIES)
        return invalid(diag, "entries", batch->n_entries == 0 ? "empty" : "too_many");
    for (size_t i = 0; i < batch->n_entries; i++) {
        const Searchfabric__V1__MutationEntry *entry = batch->entries[i];
        if (entry->entry_case == SEARCHFABRIC__V1__MUTATION_ENTRY__ENTRY_BARRIER_MARK)
            continue;
        if (entry->entry_case == SEARCHFABRIC__V1__MUTATION_ENTRY__ENTRY_PROGRESS_MARK)
            return invalid_entry(diag, i, "progress_mark", "not_of_flow_b");
        if (!is_row(entry))
            return invalid_entry(diag, i, "entry", "required");
        Searchfabric__V1__BatchRefusal refusal = check_row(entry->row, before, i, diag);
        if (refusal != FINE)
            return refusal;
        before = entry->row;
    }
    return FINE;
}

Searchfabric__V1__BatchRefusal sf_commit_batch_check(const Searchfabric__V1__PlannedBatch *planned,
                                                     struct sf_diag *diag)
{
    if (planned == NULL || planned->batch == NULL)
        return invalid(diag, "batch", "required");
    Searchfabric__V1__BatchRefusal refusal = check_identity(planned->batch, diag);
    if (refusal == FINE)
        refusal = check_policy(planned, diag);
    if (refusal == FINE)
        refusal = check_entries(planned->batch, diag);
    if (refusal == FINE)
        refusal = check_plans(planned, diag);
    return refusal;
}

static uint8_t plan_set(const Searchfabric__V1__EntryPlan *plan)
{
    uint8_t set = 0;
    (void)modality_set(plan->touched_modalities, plan->n_touched_modalities, &set);
    return set;
}

uint8_t sf_commit_entry_touched(const Searchfabric__V1__PlannedBatch *planned, uint32_t index)
{
    size_t low = 0;
    size_t high = planned->n_entry_plans;
    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;
        if (planned->entry_plans[mid]->first_entry_index <= index)
            low = mid;
        else
            high = mid;
    }
    return plan_set(planned->entry_plans[low]);
}

static void begin_unit(struct sf_commit_cut *cut, uint32_t index, bool is_barrier)
{
    cut->units[cut->count] = (struct sf_commit_unit){.is_barrier = is_barrier,
                                                     .ordinal = (uint32_t)cut->count,
                                                     .first_entry_index = index,
                                                     .last_entry_index = index};
    cut->count++;
    cut->slice_count += is_barrier ? 0 : 1;
}

static void add_row(struct sf_commit_cut *cut, const Searchfabric__V1__RowMutation *row,
                    uint32_t index, uint8_t touched)
{
    struct sf_commit_unit *unit = &cut->units[cut->count - 1];
    if (unit->row_count == 0) {
        unit->source_partition = row->source_partition;
        unit->source_epoch = row->source_epoch;
        unit->first_source_seq = row->source_seq;
    }
    unit->last_entry_index = index;
    unit->last_source_seq = row->source_seq;
    unit->row_count++;
    unit->logical_bytes += row->body.len;
    unit->touched |= touched;
    for (unsigned m = 0; m < SF_MODALITY_COUNT; m++)
        cut->wal_bytes += (touched & (1u << m)) != 0 ? row->body.len + 48 : 0;
}

void sf_commit_batch_cut(const Searchfabric__V1__PlannedBatch *planned, struct sf_arena *arena,
                         struct sf_commit_cut *out_cut)
{
    const Searchfabric__V1__MutationBatch *batch = planned->batch;
    size_t marks = 0;
    size_t plan = 0;
    *out_cut = (struct sf_commit_cut){0};
    for (size_t i = 0; i < batch->n_entries; i++)
        marks += is_row(batch->entries[i]) ? 0 : 1;
    out_cut->units = sf_arena_alloc(arena, (2 * marks + 1) * sizeof(out_cut->units[0]));
    SF_ASSERT(out_cut->units != NULL);
    (void)modality_set(planned->enabled_modalities, planned->n_enabled_modalities,
                       &out_cut->enabled);
    out_cut->wal_bytes = 512;
    for (uint32_t i = 0; i < batch->n_entries; i++) {
        while (planned->entry_plans[plan]->last_entry_index < i)
            plan++;
        if (!is_row(batch->entries[i])) {
            begin_unit(out_cut, i, true);
            continue;
        }
        if (out_cut->count == 0 || out_cut->units[out_cut->count - 1].is_barrier)
            begin_unit(out_cut, i, false);
        add_row(out_cut, batch->entries[i]->row, i, plan_set(planned->entry_plans[plan]));
    }
}

bool sf_commit_inject(uint64_t local_max_commit_ts, uint64_t next_tso, uint64_t *out_commit_ts)
{
    if (local_max_commit_ts >= UINT64_MAX - 1 || next_tso == UINT64_MAX)
        return false;
    uint64_t after = local_max_commit_ts + 1;
    *out_commit_ts = after > next_tso ? after : next_tso;
    return true;
}

void sf_commit_intent_id(struct sf_collection_ref collection, const char *stream_identity,
                         const char *batch_id, const char *batch_fingerprint, uint32_t ordinal,
                         char out_id[SF_SHA256_HEX_BYTES])
{
    struct sf_keyhash hash;
    sf_keyhash_init(&hash, "sf/commit/intent/1");
    sf_keyhash_u64(&hash, collection.namespace_id.v);
    sf_keyhash_u64(&hash, collection.collection_id.v);
    sf_keyhash_bytes(&hash, sf_view_str(stream_identity));
    sf_keyhash_bytes(&hash, sf_view_str(batch_id));
    sf_keyhash_bytes(&hash, sf_view_str(batch_fingerprint));
    sf_keyhash_u64(&hash, ordinal);
    sf_keyhash_finish_hex(&hash, out_id);
}

void sf_commit_batch_key(const char *stream_identity, const char *batch_id,
                         uint8_t out_key[SF_SHA256_BYTES])
{
    struct sf_keyhash hash;
    sf_keyhash_init(&hash, "sf/commit/batch/1");
    sf_keyhash_bytes(&hash, sf_view_str(stream_identity));
    sf_keyhash_bytes(&hash, sf_view_str(batch_id));
    sf_keyhash_finish(&hash, out_key);
}

uint32_t sf_commit_shard_of(struct sf_collection_ref collection, uint32_t shard_count)
{
    uint8_t key[16];
    uint8_t digest[SF_SHA256_BYTES];
    uint64_t hash = 0;
    for (unsigned i = 0; i < 8; i++) {
        key[i] = (uint8_t)(collection.namespace_id.v >> (56 - 8 * i));
        key[8 + i] = (uint8_t)(collection.collection_id.v >> (56 - 8 * i));
    }
    sf_sha256(sf_view_bytes(key, sizeof(key)), digest);
    for (unsigned i = 0; i < 8; i++)
        hash = hash << 8 | digest[i];
    return (uint32_t)(hash % shard_count);
}

uint64_t sf_commit_lag_ms(uint64_t newest_ts, uint64_t safe_ts)
{
    uint64_t newest = sf_tso_physical_ms((struct sf_tso){newest_ts});
    uint64_t safe = sf_tso_physical_ms((struct sf_tso){safe_ts});
    return newest > safe ? newest - safe : 0;
}

uint64_t sf_commit_ts_add_ms(uint64_t ts, uint64_t ms)
{
    uint64_t most = UINT64_MAX >> SF_TSO_LOGICAL_BITS;
    uint64_t delta = (ms > most ? most : ms) << SF_TSO_LOGICAL_BITS;
    return ts > UINT64_MAX - delta ? UINT64_MAX : ts + delta;
}

uint64_t sf_commit_ts_sub_ms(uint64_t ts, uint64_t ms)
{
    uint64_t most = UINT64_MAX >> SF_TSO_LOGICAL_BITS;
    uint64_t delta = (ms > most ? most : ms) << SF_TSO_LOGICAL_BITS;
    return ts < delta ? 0 : ts - delta;
}

bool sf_commit_expired(uint64_t first_admitted_ts, uint64_t now_ts, uint64_t window_ms)
{
    return first_admitted_ts < sf_commit_ts_sub_ms(now_ts, window_ms);
}
