/*
 * Model: create-only, then read: whoever creates it first decides, and an ambiguous create is
 * settled by the read that follows.
 */
#include "daemon/identity.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/rng.h"
#include "searchfabric/v1/durable.pb-c.h"

#define IDENTITY_KEY "control/store.json"
#define ARENA_BYTES  ((size_t)1 << 16)
#define TRIES        3

static enum sf_err identity_create(struct sf_store *store, struct sf_clock *clock,
                                   struct sf_attempts *attempts,
                                   const struct sf_store_identity *identity)
{
    Searchfabric__V1__StoreIdentity object = SEARCHFABRIC__V1__STORE_IDENTITY__INIT;
    char attempt_id[SF_ATTEMPT_ID_BYTES];
    char store_id[33];
    uint8_t random[16];
    struct sf_buf body = {0};

    sf_attempts_next(attempts, attempt_id);
    sf_random_bytes(random, sizeof(random));
    sf_hex_encode(random, sizeof(random), store_id);
    object.format_version = 1;
    object.attempt_id = attempt_id;
    object.store_id = store_id;
    object.created_at_unix_ms = sf_clock_unix_ms(clock);
    object.catalog_lane_shard_count = identity->catalog_lane_shards;
    object.coordinator_shard_count = identity->coordinator_shards;
    sf_durable_encode(&object.base, &body, NULL);
    struct sf_put put = {
        .key = sf_view_str(IDENTITY_KEY), .body = sf_buf_view(&body), .cond = SF_PUT_ABSENT};
    enum sf_err err = sf_store_put_wait(store, NULL, &put);
    sf_buf_fini(&body);
    return err;
}

static enum sf_err identity_read(struct sf_store *store, struct sf_diag *diag,
                                 struct sf_store_identity *identity)
{
    struct sf_arena *arena = sf_arena_new(ARENA_BYTES);
    ProtobufCMessage *message;
    enum sf_err err = sf_durable_read_wait(store, NULL, sf_view_str(IDENTITY_KEY),
                                           &searchfabric__v1__store_identity__descriptor, arena,
                                           diag, &message, NULL);

    if (err == SF_OK) {
        const Searchfabric__V1__StoreIdentity *object =
            (const Searchfabric__V1__StoreIdentity *)(const void *)message;
        if (strlen(object->store_id) != sizeof(identity->store_id) - 1 ||
            object->catalog_lane_shard_count == 0 || object->coordinator_shard_count == 0) {
            err = sf_diag_set(diag, SF_ERR_CORRUPT, "%s lacks what it must have", IDENTITY_KEY);
        } else {
            (void)snprintf(identity->store_id, sizeof(identity->store_id), "%s", object->store_id);
            identity->catalog_lane_shards = object->catalog_lane_shard_count;
            identity->coordinator_shards = object->coordinator_shard_count;
        }
    }
    sf_arena_destroy(arena);
    return err;
}

enum sf_err sf_store_identity_open(struct sf_store *store, struct sf_clock *clock,
                                   struct sf_attempts *attempts, struct sf_diag *diag,
                                   struct sf_store_identity *identity)
{
    enum sf_err err = identity_read(store, diag, identity);

    for (int i = 0; err == SF_ERR_NOT_FOUND && i < TRIES; i++) {
        enum sf_err created = identity_create(store, clock, attempts, identity);
        if (created != SF_OK && created != SF_ERR_PRECONDITION && created != SF_ERR_AMBIGUOUS)
            return sf_diag_set(diag, created, "cannot create %s", IDENTITY_KEY);
        err = identity_read(store, diag, identity);
    }
    return err;
}
