/*
 * Read; if absent, create (create-only) and read again: what stands then is the identity, whoever
 * wrote it. So an unknown outcome of the create needs no care of its own.
 */
#include "cluster/store_identity.h"

#include <stdio.h>

#include "base/hash.h"
#include "base/limits.h"
#include "searchfabric/v1/durable.pb-c.h"

#define IDENTITY_KEY "control/store.json"
#define OPEN_TRIES   5
#define ARENA_BYTES  ((size_t)1 << 16)

static enum sf_err read_identity(const struct sf_store_identity_options *o, struct sf_diag *diag,
                                 struct sf_store_identity *out)
{
    struct sf_arena *arena = sf_arena_new(ARENA_BYTES);
    ProtobufCMessage *message = NULL;

    enum sf_err err = sf_durable_read_wait(o->store, o->sched, sf_view_str(IDENTITY_KEY),
                                           &searchfabric__v1__store_identity__descriptor, arena,
                                           diag, &message, NULL);
    if (err == SF_OK) {
        const Searchfabric__V1__StoreIdentity *m = (const void *)message;
        bool valid = strlen(m->store_id) == SF_STORE_ID_BYTES - 1 &&
                     m->catalog_lane_shard_count >= 1 && m->coordinator_shard_count >= 1;
        if (valid) {
            (void)snprintf(out->store_id, sizeof(out->store_id), "%s", m->store_id);
            out->catalog_lane_shard_count = m->catalog_lane_shard_count;
            out->coordinator_shard_count = m->coordinator_shard_count;
            out->created_at_unix_ms = m->created_at_unix_ms;
        } else {
            err = sf_diag_set(diag, SF_ERR_CORRUPT, "%s: a field is missing", IDENTITY_KEY);
        }
    }
    sf_arena_destroy(arena);
    return err;
}

static uint32_t or_default(uint32_t wanted, uint32_t fallback)
{
    return wanted == 0 ? fallback : wanted;
}

static enum sf_err create_identity(const struct sf_store_identity_options *o)
{
    Searchfabric__V1__StoreIdentity m = SEARCHFABRIC__V1__STORE_IDENTITY__INIT;
    char attempt[SF_ATTEMPT_ID_BYTES];
    char id[SF_STORE_ID_BYTES];
    struct sf_buf body = {0};

    sf_attempts_next(o->attempts, attempt);
    sf_hex_encode(o->random, sizeof(o->random), id);
    m.attempt_id = attempt;
    m.store_id = id;
    m.created_at_unix_ms = sf_clock_unix_ms(o->clock);
    m.catalog_lane_shard_count =
        or_default(o->catalog_lane_shard_count, SF_CATALOG_LANE_SHARDS_DEFAULT);
    m.coordinator_shard_count =
        or_default(o->coordinator_shard_count, SF_COORDINATOR_SHARDS_DEFAULT);
    sf_durable_encode(&m.base, &body, NULL);
    struct sf_put put = {
        .key = sf_view_str(IDENTITY_KEY), .body = sf_buf_view(&body), .cond = SF_PUT_ABSENT};
    enum sf_err err = sf_store_put_wait(o->store, o->sched, &put);
    sf_buf_fini(&body);
    return err;
}

static enum sf_err check_wanted(uint32_t wanted, uint32_t standing, const char *what,
                                struct sf_diag *diag)
{
    if (wanted == 0 || wanted == standing)
        return SF_OK;
    return sf_diag_set(diag, SF_ERR_CONFIG,
                       "%s is %u in the configuration, but this store was created with %u and that "
                       "never changes",
                       what, wanted, standing);
}

enum sf_err sf_store_identity_open(const struct sf_store_identity_options *options,
                                   struct sf_diag *diag, struct sf_store_identity *out_identity)
{
    const struct sf_store_identity_options *o = options;

    if (o->catalog_lane_shard_count > SF_LIMIT_SHARDS ||
        o->coordinator_shard_count > SF_LIMIT_SHARDS)
        return sf_diag_set(diag, SF_ERR_CONFIG, "a store has at most %u shards of a kind",
                           SF_LIMIT_SHARDS);
    enum sf_err err = read_identity(o, diag, out_identity);
    for (int i = 0; err == SF_ERR_NOT_FOUND && i < OPEN_TRIES; i++) {
        enum sf_err put_err = create_identity(o);
        if (put_err == SF_ERR_UNAVAILABLE)
            return sf_diag_set(diag, put_err, "%s could not be created", IDENTITY_KEY);
        err = read_identity(o, diag, out_identity);
    }
    if (err == SF_ERR_NOT_FOUND)
        return sf_diag_set(diag, SF_ERR_UNAVAILABLE, "%s could not be created", IDENTITY_KEY);
    if (err == SF_OK)
        err = check_wanted(o->catalog_lane_shard_count, out_identity->catalog_lane_shard_count,
                           "the number of catalog lane shards", diag);
    if (err == SF_OK)
        err = check_wanted(o->coordinator_shard_count, out_identity->coordinator_shard_count,
                           "the number of coordinator shards", diag);
    return err;
}
