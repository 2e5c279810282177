/*
 * A read-only object store over the server's operations service, so that the row reader and the
 * object commands run against a live server as they would against the store itself. Puts and
 * deletes answer SF_ERR_UNAVAILABLE: nothing is ever written through it.
 */
#include "cli/cli_priv.h"

#include <stdlib.h>

#include "base/limits.h"
#include "base/mem.h"
#include "searchfabric/v1/operations_private.pb-c.h"

#define CALL_ARENA_BYTES ((size_t)32 << 20)
#define SERVICE          "/searchfabric.v1.OperationsService/"

struct remote_store {
    struct sf_store base; /* what callers see */
    struct sf_cli *cli;   /* borrowed: channel, timeout, diag */
};

static struct remote_store *from_base(struct sf_store *store)
{
    return SF_CONTAINER_OF(store, struct remote_store, base);
}

static enum sf_err translate(enum sf_err err)
{
    if (err == SF_OK)
        return SF_OK;
    return err == SF_RESOURCE_NOT_FOUND ? SF_ERR_NOT_FOUND : SF_ERR_UNAVAILABLE;
}

/* Reads one piece of an object; appends it to get->body. */
static enum sf_err get_piece(struct remote_store *remote, struct sf_get *get, uint64_t offset,
                             bool *out_more)
{
    struct sf_arena *arena = sf_arena_new(CALL_ARENA_BYTES);
    sf_diag_init(&remote->cli->diag);
    Searchfabric__V1__GetObjectRequest request;
    searchfabric__v1__get_object_request__init(&request);
    request.key = sf_arena_str(arena, get->key);
    request.offset_bytes = get->range_offset + offset;
    request.length_bytes = get->range_len == 0 ? 0 : get->range_len - offset;
    struct sf_call_options options = {.timeout_ms = remote->cli->timeout_ms};
    const ProtobufCMessage *response = NULL;
    enum sf_err err = translate(sf_channel_unary_wait(remote->cli->channel, NULL,
                                                      SERVICE "GetObject", &request.base, &options,
                                                      arena, &remote->cli->diag, &response));
    *out_more = false;
    if (err == SF_OK) {
        const Searchfabric__V1__GetObjectResponse *got = (const void *)response;
        sf_buf_append(&get->body, got->body.data, got->body.len);
        snprintf(get->etag.text, sizeof(get->etag.text), "%s", got->etag);
        *out_more = got->more && got->body.len > 0;
    }
    sf_arena_destroy(arena);
    return err;
}

/* The reads of this store wait on the caller's thread: sfctl has one thread and nothing else to do.
 * The completion of a get without a loop may come on any thread, this one included. */
static void remote_get(struct sf_store *store, struct sf_get *get)
{
    struct remote_store *remote = from_base(store);
    SF_ASSERT(get->loop == NULL);
    bool more = true;
    get->err = SF_OK;
    size_t before = get->body.len;
    while (more && get->err == SF_OK)
        get->err = get_piece(remote, get, get->body.len - before, &more);
    get->done(get);
}

static void remote_submit(struct sf_store *store, struct sf_batch *batch)
{
    (void)store;
    SF_ASSERT(batch->loop == NULL);
    for (size_t i = 0; i < batch->count; i++)
        batch->puts[i].err = SF_ERR_UNAVAILABLE;
    batch->done(batch);
}

static enum sf_err remote_list(struct sf_store *store, struct sf_sched *sched,
                               struct sf_view prefix, struct sf_view start_after, size_t limit,
                               struct sf_arena *arena, struct sf_list_entry **out_entries,
                               size_t *out_count)
{
    struct remote_store *remote = from_base(store);
    sf_diag_init(&remote->cli->diag);
    Searchfabric__V1__ListObjectsRequest request;
    searchfabric__v1__list_objects_request__init(&request);
    request.prefix = sf_arena_str(arena, prefix);
    request.start_after = sf_arena_str(arena, start_after);
    request.limit = (uint32_t)limit;
    struct sf_call_options options = {.timeout_ms = remote->cli->timeout_ms};
    const ProtobufCMessage *response = NULL;
    enum sf_err err = translate(
        sf_channel_unary_wait(remote->cli->channel, sched, SERVICE "ListObjects", &request.base,
                              &options, arena, &remote->cli->diag, &response));
    if (err != SF_OK)
        return err;
    const Searchfabric__V1__ListObjectsResponse *got = (const void *)response;
    struct sf_list_entry *entries = sf_arena_alloc(arena, (got->n_objects + 1) * sizeof(*entries));
    if (entries == NULL)
        return SF_ERR_LIMIT;
    for (size_t i = 0; i < got->n_objects; i++)
        entries[i] =
            (struct sf_list_entry){sf_view_str(got->objects[i]->key), got->objects[i]->size_bytes};
    *out_entries = entries;
    *out_count = got->n_objects;
    return SF_OK;
}

static enum sf_err remote_remove(struct sf_store *store, struct sf_sched *sched, struct sf_view key)
{
    (void)store;
    (void)sched;
    (void)key;
    return SF_ERR_UNAVAILABLE;
}

static void remote_destroy(struct sf_store *store)
{
    free(from_base(store));
}

struct sf_store *sf_cli_remote_store_new(struct sf_cli *cli)
{
    static const struct sf_store_vtable vtable = {.submit = remote_submit,
                                                  .get = remote_get,
                                                  .list = remote_list,
                                                  .remove = remote_remove,
                                                  .destroy = remote_destroy};
    struct remote_store *remote = sf_calloc(1, sizeof(*remote));
    remote->base.vtable = &vtable;
    remote->cli = cli;
    return &remote->base;
}
