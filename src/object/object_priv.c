/*
 * What the stores of this folder share. Cancellation: a put that fails takes the later stages of
 * its command with it; failures are rare, so they stand in a short list that is searched linearly.
 */
#include "object/object_priv.h"

#include <stdlib.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/text.h"

void sf_cancels_add(struct sf_cancels *cancels, const struct sf_put *put)
{
    for (size_t i = 0; i < cancels->count; i++) {
        if (cancels->failed[i].command == put->command)
            return; /* puts come in stage order: the first failure is the lowest */
    }
    if (cancels->count == cancels->cap) {
        cancels->cap = cancels->cap == 0 ? 8 : cancels->cap * 2;
        cancels->failed = sf_realloc(cancels->failed, cancels->cap * sizeof(cancels->failed[0]));
    }
    cancels->failed[cancels->count++] =
        (struct sf_cancel){.command = put->command, .stage = put->stage};
}

bool sf_cancels_hit(const struct sf_cancels *cancels, const struct sf_put *put)
{
    for (size_t i = 0; i < cancels->count; i++) {
        const struct sf_cancel *c = &cancels->failed[i];
        if (c->stage < put->stage && (c->command == put->command || c->command == SF_COMMAND_ALL))
            return true;
    }
    return false;
}

void sf_cancels_fini(struct sf_cancels *cancels)
{
    free(cancels->failed);
    *cancels = (struct sf_cancels){0};
}

enum sf_err sf_put_check_limits(const struct sf_put *put)
{
    if (put->key.len == 0 || put->key.len > SF_LIMIT_OBJECT_KEY_BYTES ||
        put->body.len > SF_LIMIT_OBJECT_BYTES || !sf_utf8_valid(put->key))
        return SF_ERR_LIMIT;
    return SF_OK;
}

void sf_batch_check(const struct sf_batch *batch)
{
    SF_ASSERT(batch->count >= 1);
    for (size_t i = 1; i < batch->count; i++)
        SF_ASSERT(batch->puts[i - 1].stage <= batch->puts[i].stage);
}

static void run_batch_done(struct sf_task *task)
{
    struct sf_batch *batch = SF_CONTAINER_OF(task, struct sf_batch, task);

    batch->done(batch);
}

void sf_batch_post_done(struct sf_batch *batch)
{
    batch->task.run = run_batch_done;
    sf_loop_post(batch->loop, &batch->task);
}

static void run_get_done(struct sf_task *task)
{
    struct sf_get *get = SF_CONTAINER_OF(task, struct sf_get, task);

    get->done(get);
}

void sf_get_post_done(struct sf_get *get)
{
    get->task.run = run_get_done;
    sf_loop_post(get->loop, &get->task);
}

void sf_get_fill(struct sf_get *get, struct sf_view body)
{
    size_t offset = get->range_offset < body.len ? (size_t)get->range_offset : body.len;
    size_t len = body.len - offset;

    if (get->range_len != 0 && get->range_len < len)
        len = (size_t)get->range_len;
    sf_buf_append(&get->body, len == 0 ? NULL : body.ptr + offset, len);
}
