/*
 * Model: what stands of checkpoints is found by one listing. A manifest that parses and whose
 * shards are all listed with the sizes that it names is complete as far as a listing shows; whether
 * a shard's bytes verify shows when they are read, and whoever reads them goes on to the one before
 * when they do not. Of several the highest bound is the newest: an owner that was taken over from
 * may have put a manifest late.
 */
#include "catalog/catalog_checkpoint.h"

#include <stdio.h>
#include <stdlib.h>

#include "searchfabric/v1/catalog_operations_private.pb-c.h"

#define NUMBER_DIGITS 20

/* ---- keys --------------------------------------------------------------------------------- */

static bool take_text(struct sf_view *view, const char *text)
{
    size_t len = strlen(text);
    if (view->len < len || memcmp(view->ptr, text, len) != 0)
        return false;
    *view = sf_view_bytes(view->ptr + len, view->len - len);
    return true;
}

static bool take_number(struct sf_view *view, size_t max_digits, uint64_t *out)
{
    size_t n = 0;
    while (n < view->len && n < max_digits && view->ptr[n] >= '0' && view->ptr[n] <= '9')
        n++;
    if (n == 0 || !sf_parse_u64(sf_view_bytes(view->ptr, n), out))
        return false;
    *view = sf_view_bytes(view->ptr + n, view->len - n);
    return true;
}

/* A zero-padded number: sf_parse_u64 takes no leading zeros. */
static bool take_padded(struct sf_view *view, uint64_t *out)
{
    if (view->len < NUMBER_DIGITS)
        return false;
    uint64_t value = 0;
    for (size_t i = 0; i < NUMBER_DIGITS; i++) {
        if (view->ptr[i] < '0' || view->ptr[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(view->ptr[i] - '0');
    }
    *out = value;
    *view = sf_view_bytes(view->ptr + NUMBER_DIGITS, view->len - NUMBER_DIGITS);
    return true;
}

bool sf_catalog_checkpoint_of_key(struct sf_view key, uint64_t *out_epoch, uint32_t *out_shard,
                                  bool *out_manifest)
{
    uint64_t shard = 0;
    if (!take_text(&key, SF_CATALOG_CHECKPOINT_PREFIX))
        return false;
    *out_manifest = !take_text(&key, "shard=");
    if (!*out_manifest && (!take_number(&key, 10, &shard) || !take_text(&key, "/")))
        return false;
    *out_shard = (uint32_t)shard;
    return take_text(&key, "checkpoint_") && take_padded(&key, out_epoch) &&
           take_text(&key, *out_manifest ? ".manifest.json" : ".json.zst") && key.len == 0;
}

/* ---- listing ------------------------------------------------------------------------------ */

/* One listed object. */
struct listed {
    uint64_t epoch, size_bytes;
    uint32_t shard;
    bool manifest;
};

struct listing {
    struct listed *items; /* owned */
    size_t count, capacity;
};

/* Highest epoch first; its manifest, then its shards in order. */
static int compare_listed(const void *a, const void *b)
{
    const struct listed *x = a, *y = b;
    if (x->epoch != y->epoch)
        return x->epoch > y->epoch ? -1 : 1;
    if (x->manifest != y->manifest)
        return x->manifest ? -1 : 1;
    return x->shard == y->shard ? 0 : x->shard < y->shard ? -1 : 1;
}

static enum sf_err list_objects(struct sf_catalog *catalog, struct sf_sched *sched,
                                struct sf_diag *diag, struct listing *out)
{
    struct sf_arena *arena = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    struct sf_buf after = {0};
    enum sf_err err = SF_OK;
    size_t count = SF_LIMIT_LIST_PAGE_ENTRIES;
    while (err == SF_OK && count == SF_LIMIT_LIST_PAGE_ENTRIES) {
        struct sf_list_entry *entries = NULL;
        sf_arena_reset(arena);
        err = sf_catalog_list(catalog, sched, SF_CATALOG_CHECKPOINT_PREFIX, &after, arena, diag,
                              &entries, &count);
        for (size_t i = 0; err == SF_OK && i < count; i++) {
            struct listed item = {.size_bytes = entries[i].size_bytes};
            if (!sf_catalog_checkpoint_of_key(entries[i].key, &item.epoch, &item.shard,
                                              &item.manifest))
                continue;
            if (out->count == out->capacity) {
                out->capacity = out->capacity == 0 ? 64 : out->capacity * 2;
                out->items = sf_realloc(out->items, out->capacity * sizeof(*out->items));
            }
            out->items[out->count++] = item;
        }
    }
    if (out->count != 0)
        qsort(out->items, out->count, sizeof(*out->items), compare_listed);
    sf_buf_fini(&after);
    sf_arena_destroy(arena);
    return err;
}

/* Why a checkpoint is not complete, "" when it is; `items` are its objects, the manifest first. */
static const char *judge(const SF_PB(CheckpointManifestObject) * manifest, uint64_t epoch,
                         const struct listed *items, size_t count)
{
    if (manifest->checkpoint_epoch != epoch)
        return "the manifest names another epoch";
    if (manifest->checkpoint_shard_count != manifest->n_checkpoint_shards)
        return "the manifest's shard count is not the length of its list";
    if (SF_MUTANT(ccs_checkpoint_partial))
        return "";
    if (count - 1 < manifest->n_checkpoint_shards)
        return "a shard is missing";
    for (size_t i = 0; i < manifest->n_checkpoint_shards; i++) {
        const SF_PB(CheckpointShardRef) *ref = manifest->checkpoint_shards[i];
        if (ref->checkpoint_shard_id != i || items[i + 1].shard != i)
            return "a shard is missing";
        if (items[i + 1].size_bytes != ref->size_bytes && !SF_MUTANT(ccs_checkpoint_unverified))
            return "a shard has another size";
    }
    return "";
}

static enum sf_err read_one(struct sf_catalog *catalog, struct sf_sched *sched,
                            const struct listed *items, size_t count, struct sf_arena *arena,
                            struct sf_diag *diag, struct sf_catalog_checkpoint *out)
{
    struct sf_buf key = {0};
    struct sf_diag own;
    ProtobufCMessage *message = NULL;
    *out = (struct sf_catalog_checkpoint){.epoch = items[0].epoch, .problem = "it has no manifest"};
    if (!items[0].manifest)
        return SF_OK;
    sf_diag_init(&own);
    sf_catalog_key_checkpoint(&key, out->epoch);
    enum sf_err err = sf_catalog_read(catalog, sched, sf_buf_view(&key),
                                      &searchfabric__v1__checkpoint_manifest_object__descriptor,
                                      false, arena, &own, &message, NULL, NULL);
    sf_buf_fini(&key);
    if (err == SF_ERR_CORRUPT) {
        out->problem = "the manifest does not verify";
        return SF_OK;
    }
    if (err == SF_ERR_NOT_FOUND)
        return SF_OK;
    if (err != SF_OK) {
        *diag = own;
        return err;
    }
    out->manifest = (SF_PB(CheckpointManifestObject) *)message;
    out->problem = judge(out->manifest, out->epoch, items, count);
    out->complete = out->problem[0] == '\0';
    return SF_OK;
}

enum sf_err sf_catalog_checkpoints_list(struct sf_catalog *catalog, struct sf_sched *sched,
                                        struct sf_arena *arena, struct sf_diag *diag,
                                        struct sf_catalog_checkpoints *out_list)
{
    struct listing listing = {0};
    *out_list = (struct sf_catalog_checkpoints){0};
    enum sf_err err = list_objects(catalog, sched, diag, &listing);
    if (listing.count != 0) {
        out_list->newest_epoch = listing.items[0].epoch;
        out_list->items = sf_calloc(listing.count, sizeof(*out_list->items));
    }
    for (size_t i = 0; i < listing.count && err == SF_OK;) {
        size_t end = i + 1;
        while (end < listing.count && listing.items[end].epoch == listing.items[i].epoch)
            end++;
        err = read_one(catalog, sched, listing.items + i, end - i, arena, diag,
                       &out_list->items[out_list->count]);
        out_list->count += err == SF_OK ? 1 : 0;
        i = end;
    }
    free(listing.items);
    return err;
}

void sf_catalog_checkpoints_fini(struct sf_catalog_checkpoints *list)
{
    free(list->items);
    *list = (struct sf_catalog_checkpoints){0};
}

static bool better(const struct sf_catalog_checkpoint *a, const struct sf_catalog_checkpoint *b)
{
    uint64_t x = a->manifest->checkpoint_upper_bound_recovery_segment_epoch;
    uint64_t y = b->manifest->checkpoint_upper_bound_recovery_segment_epoch;
    return x != y ? x > y : a->epoch > b->epoch;
}

const struct sf_catalog_checkpoint *
sf_catalog_checkpoint_pick(const struct sf_catalog_checkpoints *list, uint64_t lowest_segment,
                           size_t skip)
{
    const struct sf_catalog_checkpoint *last = NULL;
    for (size_t n = 0; n <= skip; n++) {
        const struct sf_catalog_checkpoint *best = NULL;
        for (size_t i = 0; i < list->count; i++) {
            const struct sf_catalog_checkpoint *one = &list->items[i];
            if (!one->complete ||
                one->manifest->checkpoint_upper_bound_recovery_segment_epoch + 1 < lowest_segment)
                continue;
            if ((last == NULL || better(last, one)) && (best == NULL || better(one, best)))
                best = one;
        }
        if (best == NULL)
            return NULL;
        last = best;
    }
    return last;
}

/* ---- shards ------------------------------------------------------------------------------- */

size_t sf_catalog_checkpoint_rows(const SF_PB(CheckpointShardObject) * shard,
                                  enum sf_catalog_table table, ProtobufCMessage ***out_rows)
{
    const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field_by_name(
        &searchfabric__v1__checkpoint_shard_object__descriptor, sf_catalog_table_field(table));
    size_t count;
    memcpy(&count, (const char *)shard + field->quantifier_offset, sizeof(count));
    memcpy(out_rows, (const char *)shard + field->offset, sizeof(*out_rows));
    return count;
}

static uint64_t row_count(const SF_PB(CheckpointShardObject) * shard)
{
    return shard->n_namespaces + shard->n_collections + shard->n_schema_generations +
           shard->n_tombstones + shard->n_replay_index + shard->n_name_epochs +
           shard->n_quota_states + shard->n_manifest_pointers;
}

static enum sf_err read_body(struct sf_catalog *catalog, struct sf_sched *sched, struct sf_view key,
                             struct sf_buf *out_body)
{
    enum sf_err err = SF_ERR_UNAVAILABLE;
    for (unsigned tries = 1; tries <= SF_CATALOG_PUT_TRIES; tries++) {
        sf_buf_clear(out_body);
        err = sf_store_get_wait(catalog->deps.store, sched, key, out_body, NULL);
        if (err != SF_ERR_UNAVAILABLE || sf_catalog_ending(catalog))
            break;
        sf_catalog_pause(catalog, sched, tries);
    }
    return err;
}

enum sf_err sf_catalog_checkpoint_shard(struct sf_catalog *catalog, struct sf_sched *sched,
                                        const SF_PB(CheckpointManifestObject) * manifest,
                                        size_t index, struct sf_arena *arena, struct sf_diag *diag,
                                        SF_PB(CheckpointShardObject) * *out_shard)
{
    const SF_PB(CheckpointShardRef) *ref = manifest->checkpoint_shards[index];
    struct sf_buf body = {0};
    char sha256[SF_SHA256_HEX_BYTES];
    ProtobufCMessage *message = NULL;
    enum sf_err err = read_body(catalog, sched, sf_view_str(ref->key), &body);
    if (err == SF_ERR_NOT_FOUND)
        err = sf_diag_set(diag, SF_ERR_CORRUPT, "%s is missing", ref->key);
    else if (err != SF_OK)
        sf_diag_set(diag, err, "cannot read %s", ref->key);
    if (err == SF_OK) {
        sf_sha256_hex(sf_buf_view(&body), sha256);
        if ((body.len != ref->size_bytes || strcmp(sha256, ref->sha256) != 0) &&
            !SF_MUTANT(ccs_checkpoint_unverified))
            err = sf_diag_set(diag, SF_ERR_CORRUPT, "%s is not what its manifest names", ref->key);
    }
    if (err == SF_OK)
        err = sf_catalog_decode(&searchfabric__v1__checkpoint_shard_object__descriptor, true,
                                sf_buf_view(&body), arena, diag, &message);
    sf_buf_fini(&body);
    if (err != SF_OK)
        return err;
    *out_shard = (SF_PB(CheckpointShardObject) *)message;
    if ((*out_shard)->checkpoint_epoch != manifest->checkpoint_epoch ||
        (*out_shard)->checkpoint_shard_id != ref->checkpoint_shard_id ||
        row_count(*out_shard) != ref->row_count)
        return sf_diag_set(diag, SF_ERR_CORRUPT, "%s is not what its manifest names", ref->key);
    return SF_OK;
}

/* ---- the job ------------------------------------------------------------------------------ */

/* Commands in the projection that are newer than `applied_ts`. */
static enum sf_err count_newer(struct sf_catalog *catalog, struct sf_sched *sched,
                               uint64_t applied_ts, struct sf_diag *diag, uint64_t *out_count)
{
    struct sf_sql_stmt *stmt;
    bool row = false;
    struct sf_sql_conn *conn = sf_sql_acquire(catalog->deps.sql, sched, SF_SQL_READ);
    enum sf_err err = sf_sql_prepare(
        conn, "SELECT COUNT(*) FROM catalog_replay_index WHERE applied_ts > ?1", diag, &stmt);
    if (err == SF_OK) {
        sf_sql_bind_u64(stmt, 1, applied_ts);
        err = sf_sql_step(stmt, diag, &row);
        *out_count = err == SF_OK && row ? (uint64_t)sf_sql_col_i64(stmt, 0) : 0;
        sf_sql_finish(stmt);
    }
    sf_sql_release(conn);
    return err;
}

/* What the store's newest checkpoint leaves to do; asked once by a process. */
static enum sf_err learn(struct sf_catalog *catalog, struct sf_sched *sched, struct sf_diag *diag)
{
    struct sf_catalog_checkpoints list = {0};
    struct sf_arena *arena = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    uint64_t applied = atomic_load(&catalog->commands_applied), newer = 0;
    enum sf_err err = sf_catalog_checkpoints_list(catalog, sched, arena, diag, &list);
    const struct sf_catalog_checkpoint *newest =
        err == SF_OK ? sf_catalog_checkpoint_pick(&list, 0, 0) : NULL;
    if (err == SF_OK)
        err = count_newer(catalog, sched,
                          newest == NULL ? 0 : newest->manifest->checkpoint_upper_bound_applied_ts,
                          diag, &newer);
    if (err == SF_OK) {
        catalog->checkpoint_known = true;
        catalog->checkpoint_at_ms = newest == NULL ? sf_clock_unix_ms(catalog->deps.clock)
                                                   : newest->manifest->created_at_unix_ms;
        catalog->checkpoint_commands = applied - newer; /* wraps: only differences count */
    }
    sf_catalog_checkpoints_fini(&list);
    sf_arena_destroy(arena);
    return err;
}

/* Cuts one and notes it for the cadence. */
static enum sf_err cut_and_note(struct sf_catalog *catalog, struct sf_sched *sched,
                                struct sf_arena *arena, struct sf_diag *diag,
                                SF_PB(CheckpointManifestObject) * *out_manifest)
{
    uint64_t applied = atomic_load(&catalog->commands_applied);
    enum sf_err err = sf_catalog_checkpoint_cut(catalog, sched, arena, diag, out_manifest);
    if (err == SF_OK) {
        catalog->checkpoint_known = true;
        catalog->checkpoint_at_ms = sf_clock_unix_ms(catalog->deps.clock);
        catalog->checkpoint_commands = applied;
    }
    return err;
}

enum sf_err sf_catalog_checkpoint_job(struct sf_catalog *catalog, struct sf_sched *sched,
                                      struct sf_diag *diag, uint64_t *out_done)
{
    uint64_t every = catalog->deps.checkpoint_commands == 0 ? SF_CATALOG_CHECKPOINT_COMMANDS
                                                            : catalog->deps.checkpoint_commands;
    uint32_t interval_ms = catalog->deps.checkpoint_interval_ms == 0
                               ? SF_CATALOG_CHECKPOINT_INTERVAL_MS
                               : catalog->deps.checkpoint_interval_ms;
    enum sf_err err = SF_OK;
    *out_done = 0;
    if (!catalog->checkpoint_known)
        err = learn(catalog, sched, diag);
    uint64_t commands = atomic_load(&catalog->commands_applied) - catalog->checkpoint_commands;
    int64_t age_ms = sf_clock_unix_ms(catalog->deps.clock) - catalog->checkpoint_at_ms;
    if (err != SF_OK || commands == 0 || (commands < every && age_ms < (int64_t)interval_ms))
        return err;
    struct sf_arena *arena = sf_arena_new(SF_CATALOG_ARENA_BYTES);
    SF_PB(CheckpointManifestObject) *manifest = NULL;
    err = cut_and_note(catalog, sched, arena, diag, &manifest);
    sf_arena_destroy(arena);
    *out_done = err == SF_OK ? 1 : 0;
    return err;
}

/* ---- operator's calls --------------------------------------------------------------------- */

static enum sf_err create(struct sf_catalog *catalog, struct sf_sched *sched, struct sf_call *call,
                          const ProtobufCMessage *request)
{
    SF_PB(CreateCheckpointResponse) response;
    int64_t begin_ms = sf_clock_mono_ms(catalog->deps.clock);
    (void)request;
    searchfabric__v1__create_checkpoint_response__init(&response);
    enum sf_err err =
        cut_and_note(catalog, sched, sf_call_arena(call), sf_call_diag(call), &response.manifest);
    response.duration_ms = (uint64_t)(sf_clock_mono_ms(catalog->deps.clock) - begin_ms);
    if (err == SF_OK)
        sf_call_respond(call, &response.base);
    return err;
}

void sf_catalog_checkpoint_create(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    sf_catalog_operate(self, call, request, create);
}

static enum sf_err list_call(struct sf_catalog *catalog, struct sf_sched *sched,
                             struct sf_call *call, const ProtobufCMessage *request)
{
    uint32_t limit = ((const SF_PB(ListCheckpointsRequest) *)request)->limit;
    struct sf_arena *arena = sf_call_arena(call);
    struct sf_catalog_checkpoints list = {0};
    SF_PB(ListCheckpointsResponse) response;
    searchfabric__v1__list_checkpoints_response__init(&response);
    enum sf_err err = sf_catalog_checkpoints_list(catalog, sched, arena, sf_call_diag(call), &list);
    size_t count = limit == 0 ? 100 : limit;
    if (count > list.count)
        count = list.count;
    response.checkpoints = sf_arena_alloc(arena, (count + 1) * sizeof(*response.checkpoints));
    for (size_t i = 0; i < count && err == SF_OK && response.checkpoints != NULL; i++) {
        SF_PB(CheckpointSummary) *summary = sf_arena_alloc(arena, sizeof(*summary));
        if (summary == NULL)
            break;
        searchfabric__v1__checkpoint_summary__init(summary);
        summary->checkpoint_epoch = list.items[i].epoch;
        summary->manifest = list.items[i].manifest;
        summary->complete = list.items[i].complete;
        summary->problem = sf_arena_str(arena, sf_view_str(list.items[i].problem));
        response.checkpoints[response.n_checkpoints++] = summary;
    }
    if (err == SF_OK && sf_arena_overflowed(arena))
        err = sf_diag_set(sf_call_diag(call), SF_ERR_LIMIT, "the answer is too large");
    if (err == SF_OK)
        sf_call_respond(call, &response.base);
    sf_catalog_checkpoints_fini(&list);
    return err;
}

void sf_catalog_checkpoint_list(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    sf_catalog_operate(self, call, request, list_call);
}

#define MAX_PROBLEMS 100

/* Reads every shard of one checkpoint into the answer. */
static enum sf_err verify_shards(struct sf_catalog *catalog, struct sf_sched *sched,
                                 const struct sf_catalog_checkpoint *found, struct sf_call *call,
                                 SF_PB(VerifyCheckpointResponse) * response)
{
    struct sf_arena *shards = sf_arena_new(SF_LIMIT_CHECKPOINT_ARENA_BYTES);
    struct sf_arena *arena = sf_call_arena(call);
    enum sf_err err = SF_OK;
    for (size_t i = 0; i < found->manifest->n_checkpoint_shards && err == SF_OK; i++) {
        SF_PB(CheckpointShardObject) *shard = NULL;
        struct sf_diag diag;
        sf_diag_init(&diag);
        sf_arena_reset(shards);
        err =
            sf_catalog_checkpoint_shard(catalog, sched, found->manifest, i, shards, &diag, &shard);
        if (err == SF_ERR_CORRUPT && response->n_problems < MAX_PROBLEMS)
            response->problems[response->n_problems++] =
                sf_arena_str(arena, sf_view_str(diag.message));
        if (err == SF_OK) {
            response->row_count += found->manifest->checkpoint_shards[i]->row_count;
            response->size_bytes += found->manifest->checkpoint_shards[i]->size_bytes;
        } else if (err != SF_ERR_CORRUPT) {
            *sf_call_diag(call) = diag;
        }
        err = err == SF_ERR_CORRUPT ? SF_OK : err;
    }
    sf_arena_destroy(shards);
    return err;
}

static enum sf_err verify_call(struct sf_catalog *catalog, struct sf_sched *sched,
                               struct sf_call *call, const ProtobufCMessage *request)
{
    uint64_t epoch = ((const SF_PB(VerifyCheckpointRequest) *)request)->checkpoint_epoch;
    struct sf_arena *arena = sf_call_arena(call);
    struct sf_catalog_checkpoints list = {0};
    SF_PB(VerifyCheckpointResponse) response;
    searchfabric__v1__verify_checkpoint_response__init(&response);
    response.problems = sf_arena_alloc(arena, (MAX_PROBLEMS + 1) * sizeof(*response.problems));
    enum sf_err err = sf_catalog_checkpoints_list(catalog, sched, arena, sf_call_diag(call), &list);
    const struct sf_catalog_checkpoint *found = NULL;
    for (size_t i = 0; i < list.count && found == NULL; i++)
        found = epoch == 0 || list.items[i].epoch == epoch ? &list.items[i] : NULL;
    if (err == SF_OK && found == NULL)
        err = sf_diag_set(sf_call_diag(call), SF_RESOURCE_NOT_FOUND, "no such checkpoint");
    if (err == SF_OK && response.problems == NULL)
        err = sf_diag_set(sf_call_diag(call), SF_ERR_LIMIT, "the answer is too large");
    if (err == SF_OK) {
        response.checkpoint_epoch = found->epoch;
        if (!found->complete)
            response.problems[response.n_problems++] =
                sf_arena_str(arena, sf_view_str(found->problem));
        if (found->manifest != NULL)
            err = verify_shards(catalog, sched, found, call, &response);
        response.complete = response.n_problems == 0;
    }
    if (err == SF_OK)
        sf_call_respond(call, &response.base);
    sf_catalog_checkpoints_fini(&list);
    return err;
}

void sf_catalog_checkpoint_verify(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    sf_catalog_operate(self, call, request, verify_call);
}
