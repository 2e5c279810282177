/*
 * Scripted schedules (ccs_script.h) in which the store has lost something: a shard of the newest
 * checkpoint, bytes of one, a committed record. A rebuild goes on from the checkpoint before and
 * answers as ever; what stands nowhere any more ends the start.
 */
#include "fault/catalog/ccs_script.h"

#include <stdlib.h>

#include "catalog/catalog_checkpoint.h"
#include "searchfabric/v1/catalog_operations_private.pb-c.h"

/* ---- checkpoints -------------------------------------------------------------------------- */

/* Two checkpoints; what is old was removed, so that nothing but them holds it. */
static void make_checkpoints(struct client *c)
{
    part_make_old(c);
    struct sf_buf first = {0};
    part_retain_all(c);
    script_forget_key(c->w, "c0-own-2", &first); /* superseded, and gone by now */
    sf_buf_fini(&first);
    put_own(c, 4);
    part_cut_checkpoint(c);
    put_own(c, 5);
}

/* Key of the only shard of checkpoint `epoch`. */
static void shard_key(uint64_t epoch, char out[96])
{
    snprintf(out, 96, SF_CATALOG_CHECKPOINT_PREFIX "shard=0/checkpoint_%020" PRIu64 ".json.zst",
             epoch);
}

/* The number of the newest checkpoint, by its shard. */
static uint64_t newest_checkpoint(struct world *w)
{
    struct sf_list_entry *entries = NULL;
    struct sf_arena *arena = sf_arena_new((size_t)1 << 20);
    uint64_t newest = 0;
    size_t count = 0;
    enum sf_err err =
        sf_store_list_wait(sim_backend(w->sim), NULL, sf_view_str(SF_CATALOG_CHECKPOINT_PREFIX),
                           sf_view_str(""), 100, arena, &entries, &count);
    SF_ASSERT(err == SF_OK);
    for (size_t i = 0; i < count; i++) {
        uint64_t epoch = 0;
        uint32_t shard;
        bool manifest;
        if (sf_catalog_checkpoint_of_key(entries[i].key, &epoch, &shard, &manifest) &&
            epoch > newest)
            newest = epoch;
    }
    sf_arena_destroy(arena);
    SIM_CHECK(w->sim, newest > 1);
    return newest;
}

static void lose_shard(struct world *w)
{
    char key[96];
    shard_key(newest_checkpoint(w), key);
    enum sf_err err = sf_store_remove_wait(sim_backend(w->sim), NULL, sf_view_str(key));
    SF_ASSERT(err == SF_OK);
}

static void put_body(struct world *w, const char *key, struct sf_view body)
{
    struct sf_put put = {.key = sf_view_str(key), .body = body, .cond = SF_PUT_ANY};
    enum sf_err err = sf_store_put_wait(sim_backend(w->sim), NULL, &put);
    SF_ASSERT(err == SF_OK);
}

/* One byte of the shard is another one. */
static void flip_byte(struct world *w)
{
    char key[96];
    struct sf_buf body = {0};
    shard_key(newest_checkpoint(w), key);
    enum sf_err err = sf_store_get_wait(sim_backend(w->sim), NULL, sf_view_str(key), &body, NULL);
    SF_ASSERT(err == SF_OK);
    body.data[body.len / 2] ^= 1;
    put_body(w, key, sf_buf_view(&body));
    sf_buf_fini(&body);
}

/* The shard is whole and holds other rows than those that were cut: those of another day. */
static void swap_rows(struct world *w)
{
    char key[96];
    struct sf_buf body = {0};
    struct sf_diag diag;
    struct sf_arena *arena = sf_arena_new((size_t)1 << 20);
    ProtobufCMessage *message = NULL;
    shard_key(newest_checkpoint(w), key);
    enum sf_err err = sf_store_get_wait(sim_backend(w->sim), NULL, sf_view_str(key), &body, NULL);
    SF_ASSERT(err == SF_OK);
    err = sf_catalog_decode(&searchfabric__v1__checkpoint_shard_object__descriptor, true,
                            sf_buf_view(&body), arena, &diag, &message);
    SF_ASSERT(err == SF_OK);
    SF_PB(CheckpointShardObject) *shard = (SF_PB(CheckpointShardObject) *)message;
    SIM_CHECK(w->sim, shard->n_namespaces == 1);
    shard->namespaces[0]->created_at_unix_ms++;
    struct sf_catalog_put put = {0};
    sf_catalog_put_encode(&put, message, true, NULL);
    put_body(w, key, sf_buf_view(&put.body));
    sf_catalog_put_fini(&put);
    sf_buf_fini(&body);
    sf_arena_destroy(arena);
}

static void run_broken(struct sim *sim, void (*damage)(struct world *w))
{
    struct script script = {0};
    struct world *w = script_begin(sim, &script);
    struct sim_process *clients = sim_process_new(sim, "clients");
    struct part make = {.client = {.w = w, .id = 0}, .run = make_checkpoints};
    sim_spawn(clients, script_run_part, &make);
    script_until_within(w, 1, 2 * MONTH_MS);
    damage(w);
    sim_spawn(clients, script_tick, NULL);
    script_finish(w, clients);
}

static void run_missing_shard(struct sim *sim)
{
    run_broken(sim, lose_shard);
}

static void run_corrupt_shard(struct sim *sim)
{
    run_broken(sim, flip_byte);
}

static void run_other_shard(struct sim *sim)
{
    run_broken(sim, swap_rows);
}

/* ---- the boundary ------------------------------------------------------------------------- */

/* Everything is old, and only the first record is in a checkpoint. */
static void make_uncut(struct client *c)
{
    put_own(c, 1);
    part_cut_checkpoint(c);
    part_cut_checkpoint(c);
    put_own(c, 2);
    put_shared_namespace(c); /* the newest segment is never removed */
    sim_sleep(c->process, MONTH_MS);
    c->w->aged = true;
    part_retain(c);
}

/* Retention, while what a rebuild needs stands in segments alone. */
static void run_uncut(struct sim *sim)
{
    struct script script = {0};
    struct world *w = script_begin(sim, &script);
    struct sim_process *clients = sim_process_new(sim, "clients");
    struct part make = {.client = {.w = w, .id = 0}, .run = make_uncut};
    sim_spawn(clients, script_run_part, &make);
    script_until_within(w, 1, 2 * MONTH_MS);
    sim_spawn(clients, script_tick, NULL);
    script_finish(w, clients);
}

/* ---- a record ----------------------------------------------------------------------------- */

/* Takes the newest record out of the store; `out_key` and `out_body` are what it was. */
static void lose_record(struct world *w, uint64_t applied_after, struct sf_buf *out_key,
                        struct sf_buf *out_body)
{
    struct sf_list_entry *entries = NULL;
    struct sf_arena *arena = sf_arena_new((size_t)8 << 20);
    struct sf_diag diag;
    size_t count = 0;
    uint64_t newest = applied_after;
    enum sf_err err =
        sf_store_list_wait(sim_backend(w->sim), NULL, sf_view_str("catalog-log/"), sf_view_str(""),
                           SF_LIMIT_LIST_PAGE_ENTRIES, arena, &entries, &count);
    SF_ASSERT(err == SF_OK);
    for (size_t i = 0; i < count; i++) {
        ProtobufCMessage *message = NULL;
        err = sf_durable_read_wait(sim_backend(w->sim), NULL, entries[i].key,
                                   &searchfabric__v1__command_outcome_object__descriptor, arena,
                                   &diag, &message, NULL);
        SF_ASSERT(err == SF_OK);
        const SF_PB(CommandOutcomeObject) *outcome = (const void *)message;
        if (outcome->applied_ts <= newest)
            continue;
        newest = outcome->applied_ts;
        sf_buf_clear(out_key);
        sf_buf_append(out_key, entries[i].key.ptr, entries[i].key.len);
    }
    SIM_CHECK(w->sim, out_key->len != 0);
    err = sf_store_get_wait(sim_backend(w->sim), NULL, sf_buf_view(out_key), out_body, NULL);
    SF_ASSERT(err == SF_OK);
    err = sf_store_remove_wait(sim_backend(w->sim), NULL, sf_buf_view(out_key));
    SF_ASSERT(err == SF_OK);
    sf_arena_destroy(arena);
    sim_trace(w->sim, "record lost: %.*s", (int)out_key->len, (const char *)out_key->data);
}

/* The newest record is gone and so are the rows: a start fails until the record is there again. */
static void run_lost_record(struct sim *sim)
{
    struct script script = {0};
    struct world *w = script_begin(sim, &script);
    struct sim_process *clients = sim_process_new(sim, "clients");
    struct part create = {.client = {.w = w, .id = 0}, .run = part_create_own};
    struct part update = {.client = {.w = w, .id = 0}, .run = part_update_own};
    struct part again = {.client = {.w = w, .id = 0}, .run = part_update_own};
    struct sf_buf key = {0};
    struct sf_buf body = {0};
    sim_spawn(clients, script_tick, NULL);
    sim_spawn(clients, script_run_part, &create);
    script_until(w, 1);
    sim_spawn(clients, script_run_part, &update);
    script_until(w, 2);
    sim_node_kill(w->nodes[0]);
    lose_record(w, 0, &key, &body);
    script_lose_rows(w, "DELETE FROM catalog_lane_shards;");
    script.may_fail = true;
    sim_spawn(clients, script_run_part, &again);
    sim_run_for(sim, 4000);
    script.may_fail = false;
    sf_buf_append(&key, "", 1);
    put_body(w, (const char *)key.data, sf_buf_view(&body));
    SIM_CHECK(sim, script.shuts != 0 && script.done == 2);
    (void)script_next_owner(w);
    script_until(w, 3);
    sf_buf_fini(&key);
    sf_buf_fini(&body);
    script_finish(w, clients);
}

/* ---- a lease ------------------------------------------------------------------------------ */

/* A power cut takes back the transaction of a lease that was answered: its request is granted again
 * under another epoch only, since nobody knows what else was granted under the first. */
static void run_lost_lease(struct sim *sim)
{
    struct script script = {0};
    struct world *w = script_begin(sim, &script);
    struct sim_process *clients = sim_process_new(sim, "clients");
    struct part create = {.client = {.w = w, .id = 0}, .run = part_create_shared};
    struct part lease = {.client = {.w = w, .id = 0}, .run = part_take_lease};
    struct part again = {.client = {.w = w, .id = 0}, .run = part_take_lease};
    sim_spawn(clients, script_tick, NULL);
    sim_spawn(clients, script_run_part, &create);
    script_until(w, 1);
    sim_spawn(clients, script_run_part, &lease);
    script_until(w, 2);
    uint64_t epoch = script.lease_epoch;
    sim_node_kill(w->nodes[0]);
    script_lose_rows(w, "DELETE FROM namespace_quota_leases; DELETE FROM namespace_quota_state;");
    sim_spawn(clients, script_run_part, &again);
    script_until(w, 3);
    if (script.lease_epoch <= epoch)
        sim_violation(sim, "a lease that was lost was granted again under epoch %" PRIu64, epoch);
    script_finish(w, clients);
}

const struct sim_scenario ccs_loss_scripts[] = {
    SCRIPT(missing_shard), SCRIPT(corrupt_shard), SCRIPT(other_shard),
    SCRIPT(uncut),         SCRIPT(lost_lease),    HELD_SCRIPT(lost_record),
};
const size_t ccs_loss_script_count = SF_ARRAY_LEN(ccs_loss_scripts);
