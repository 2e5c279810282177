#include <stdlib.h>

#include "base/mem.h"
#include "base/mutant.h"
#include "commit/commit_priv.h"

/*
 * The duplicate window of a lane: batch identity -> fingerprint, slices with their timestamps, and
 * whoever waits for the batch. A batch is answered when all its slices stand; a redelivery joins,
 * whatever happened to the first delivery's caller. Entries are many and live long, so once all is
 * published only digests and numbers stay.
 */

struct sf_dup *sf_dup_find(struct sf_lane *lane, const char *stream_identity, const char *batch_id)
{
    uint8_t key[SF_SHA256_BYTES];
    sf_commit_batch_key(stream_identity, batch_id, key);
    return sf_map_get(lane->dups, sf_view_bytes(key, sizeof(key)));
}

static const char *copy_text(char **at, const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = *at;
    memcpy(copy, text, size);
    *at += size;
    return copy;
}

void sf_dup_name(struct sf_dup *dup, const struct sf_dup_identity *identity)
{
    if (dup->names != NULL)
        return;
    size_t size = strlen(identity->stream_identity) + strlen(identity->batch_id) +
                  strlen(identity->batch_fingerprint) + strlen(identity->schema_token) + 4;
    struct sf_dup_names *names = sf_malloc(sizeof(*names) + size);
    char *at = names->text;
    names->stream_identity = copy_text(&at, identity->stream_identity);
    names->batch_id = copy_text(&at, identity->batch_id);
    names->batch_fingerprint = copy_text(&at, identity->batch_fingerprint);
    names->schema_token = copy_text(&at, identity->schema_token);
    dup->names = names;
}

bool sf_dup_same_batch(const struct sf_dup *dup, const char *batch_fingerprint)
{
    uint8_t digest[SF_SHA256_BYTES];
    sf_sha256(sf_view_str(batch_fingerprint), digest);
    return memcmp(digest, dup->fingerprint, sizeof(digest)) == 0;
}

struct sf_dup *sf_dup_new(struct sf_lane *lane, const struct sf_dup_identity *identity)
{
    struct sf_dup *dup = sf_calloc(1, sizeof(*dup));
    dup->lane = lane;
    sf_commit_batch_key(identity->stream_identity, identity->batch_id, dup->key);
    sf_sha256(sf_view_str(identity->batch_fingerprint), dup->fingerprint);
    dup->first_admitted_ts = identity->first_admitted_ts;
    dup->slice_count = identity->slice_count;
    if (dup->slice_count == 0)
        return dup; /* marks alone: nothing to remember */
    dup->slices = sf_calloc(dup->slice_count, sizeof(dup->slices[0]));
    dup->listed = true;
    lane->shard->duplicates++;
    (void)sf_map_put(lane->dups, sf_view_bytes(dup->key, sizeof(dup->key)), dup);
    if (lane->dup_last == NULL)
        lane->dup_first = dup;
    else
        lane->dup_last->next = dup;
    lane->dup_last = dup;
    return dup;
}

void sf_dup_free(struct sf_dup *dup)
{
    if (dup->listed)
        dup->lane->shard->duplicates--;
    free(dup->names);
    free(dup->slices);
    free(dup);
}

struct sf_dup_slice *sf_dup_slice(struct sf_dup *dup, uint32_t ordinal)
{
    for (uint32_t i = 0; i < dup->known; i++) {
        if (dup->slices[i].ordinal == ordinal)
            return &dup->slices[i];
    }
    return NULL;
}

struct sf_dup_slice *sf_dup_slice_add(struct sf_dup *dup, uint32_t ordinal)
{
    if (dup->known == dup->slice_count) /* entries of another build's cut: keep them all */
        dup->slices = sf_realloc(dup->slices, ++dup->slice_count * sizeof(dup->slices[0]));
    struct sf_dup_slice *slice = &dup->slices[dup->known++];
    *slice = (struct sf_dup_slice){.ordinal = ordinal};
    return slice;
}

void sf_dup_wait(struct sf_dup *dup, struct sf_submit *submit)
{
    submit->dup = dup;
    submit->next_waiting = dup->waiters;
    dup->waiters = submit;
}

/* How far all slices of the batch are. */
static enum sf_slice_state dup_state(const struct sf_dup *dup, uint64_t *out_version)
{
    enum sf_slice_state state = SF_SLICE_PUBLISHED;
    *out_version = 0;
    for (uint32_t i = 0; i < dup->known; i++) {
        const struct sf_dup_slice *slice = &dup->slices[i];
        state = slice->state < state ? slice->state : state;
        *out_version =
            slice->manifest_version > *out_version ? slice->manifest_version : *out_version;
    }
    return state;
}

static Searchfabric__V1__BatchGate wanted_gate(const struct sf_submit *submit)
{
    if (submit->visibility ==
        SEARCHFABRIC__V1__VISIBILITY_POLICY__VISIBILITY_POLICY_WAIT_FOR_VISIBLE)
        return SEARCHFABRIC__V1__BATCH_GATE__BATCH_GATE_VISIBLE;
    if (submit->durability ==
        SEARCHFABRIC__V1__DURABILITY_POLICY__DURABILITY_POLICY_WAL_CHUNK_DURABLE)
        return SEARCHFABRIC__V1__BATCH_GATE__BATCH_GATE_DURABLE;
    return SEARCHFABRIC__V1__BATCH_GATE__BATCH_GATE_ADMITTED_DISPATCHED;
}

static bool gate_open(Searchfabric__V1__BatchGate gate, enum sf_slice_state state)
{
    if (gate == SEARCHFABRIC__V1__BATCH_GATE__BATCH_GATE_VISIBLE)
        return state == SF_SLICE_PUBLISHED;
    if (gate == SEARCHFABRIC__V1__BATCH_GATE__BATCH_GATE_DURABLE &&
        !SF_MUTANT(coord_ack_before_durable))
        return state >= SF_SLICE_DURABLE;
    return true;
}

void sf_dup_check(struct sf_dup *dup)
{
    uint64_t version = 0;
    if (dup->running)
        return;
    enum sf_slice_state state = dup_state(dup, &version);
    struct sf_submit **at = &dup->waiters;
    while (*at != NULL) {
        struct sf_submit *submit = *at;
        Searchfabric__V1__BatchGate gate = wanted_gate(submit);
        if (!submit->admitted)
            sf_submit_admit(submit);
        if (!gate_open(gate, state)) {
            at = &submit->next_waiting;
            continue;
        }
        *at = submit->next_waiting;
        sf_submit_reach(submit, gate,
                        gate == SEARCHFABRIC__V1__BATCH_GATE__BATCH_GATE_VISIBLE ? version : 0);
    }
    if (!dup->listed && dup->waiters == NULL) {
        sf_dup_free(dup);
    } else if (state == SF_SLICE_PUBLISHED) { /* from here on the entry is only compared with */
        free(dup->names);
        dup->names = NULL;
    }
}

static bool dup_settled(const struct sf_dup *dup)
{
    uint64_t version;
    return !dup->running && dup->waiters == NULL && dup_state(dup, &version) == SF_SLICE_PUBLISHED;
}

void sf_dup_drop(struct sf_dup *dup)
{
    struct sf_lane *lane = dup->lane;
    struct sf_dup **at = &lane->dup_first;
    struct sf_dup *before = NULL;
    while (*at != dup) {
        before = *at;
        at = &(*at)->next;
    }
    *at = dup->next;
    if (lane->dup_last == dup)
        lane->dup_last = before;
    (void)sf_map_del(lane->dups, sf_view_bytes(dup->key, sizeof(dup->key)));
    sf_dup_free(dup);
}

void sf_dups_prune(struct sf_lane *lane)
{
    const struct sf_shard *shard = lane->shard;
    while (lane->dup_first != NULL && dup_settled(lane->dup_first) &&
           sf_commit_expired(lane->dup_first->first_admitted_ts, shard->newest_tso,
                             shard->commit->deps.duplicate_window_ms))
        sf_dup_drop(lane->dup_first);
}

void sf_dups_free(struct sf_lane *lane)
{
    for (struct sf_dup *dup = lane->dup_first; dup != NULL;) {
        struct sf_dup *next = dup->next;
        sf_dup_free(dup);
        dup = next;
    }
    lane->dup_first = lane->dup_last = NULL;
    sf_map_destroy(lane->dups, NULL);
    lane->dups = NULL;
}
