/* Everything is decided when a batch or get is submitted; only the completion comes later. Late
 * puts are copied, so that they outlive their sender. */
#include "component/allocator/script_store.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct late {
    struct late *next;
    bool is_remove;    /* of put.key */
    struct sf_put put; /* key and body are the two below */
    uint8_t *key;
    uint8_t *body;
};

struct script_store {
    struct sf_store base;
    struct sf_store *backend;
    struct sf_loop *loop;
    script_put_fn on_put;
    script_get_fn on_get;
    void *ctx;
    script_remove_fn on_remove;
    void *remove_ctx;
    struct late *late;
    struct late **late_tail;
    bool hold;
    bool hold_reservations;
    struct sf_task *held;
    struct sf_task **held_tail;
    struct script_counts counts;
};

static struct script_store *of(struct sf_store *store)
{
    return SF_CONTAINER_OF(store, struct script_store, base);
}

static bool has_prefix(struct sf_view key, const char *prefix)
{
    return key.len >= strlen(prefix) && memcmp(key.ptr, prefix, strlen(prefix)) == 0;
}

bool script_is_state_key(struct sf_view key)
{
    return has_prefix(key, "id-allocator/state/");
}

static void complete(struct script_store *s, const struct sf_loop *loop, struct sf_task *task,
                     bool hold)
{
    if (loop == NULL) { /* a waiting form */
        task->run(task);
        return;
    }
    if (!hold) {
        sf_loop_post(s->loop, task);
        return;
    }
    task->next = NULL;
    *s->held_tail = task;
    s->held_tail = &task->next;
}

static void count(struct script_store *s, struct sf_view key, bool put)
{
    if (script_is_state_key(key))
        put ? s->counts.state_puts++ : s->counts.state_gets++;
    else if (has_prefix(key, "id-allocator/replay-success/"))
        put ? s->counts.replay_puts++ : s->counts.replay_gets++;
    else if (put)
        s->counts.other++;
}

static void apply(struct script_store *s, struct sf_put *put)
{
    uint32_t stage = put->stage;
    uint32_t command = put->command;

    put->stage = 0;
    put->command = 0;
    put->err = sf_store_put_wait(s->backend, NULL, put);
    put->stage = stage;
    put->command = command;
}

static void keep_late(struct script_store *s, const struct sf_put *put)
{
    struct late *late = sf_calloc(1, sizeof(*late));

    late->put = *put;
    late->key = sf_memdup(put->key.ptr, put->key.len);
    late->body = sf_memdup(put->body.ptr, put->body.len);
    late->put.key.ptr = late->key;
    late->put.body.ptr = late->body;
    *s->late_tail = late;
    s->late_tail = &late->next;
}

static void run_put(struct script_store *s, struct sf_put *put)
{
    enum script_fate fate = s->on_put == NULL ? SCRIPT_APPLY : s->on_put(s->ctx, put);

    count(s, put->key, true);
    switch (fate) {
    case SCRIPT_APPLY:
        apply(s, put);
        break;
    case SCRIPT_REFUSE:
        put->err = SF_ERR_UNAVAILABLE;
        break;
    case SCRIPT_LOSE:
        put->err = SF_ERR_AMBIGUOUS;
        break;
    case SCRIPT_DARK:
        apply(s, put);
        put->err = SF_ERR_AMBIGUOUS;
        break;
    case SCRIPT_LATE:
        keep_late(s, put);
        put->err = SF_ERR_AMBIGUOUS;
        break;
    case SCRIPT_OWN_412:
        apply(s, put);
        put->err = SF_ERR_PRECONDITION;
        break;
    case SCRIPT_LIMIT:
        put->err = SF_ERR_LIMIT;
        break;
    }
}

static void batch_done(struct sf_task *task)
{
    struct sf_batch *batch = SF_CONTAINER_OF(task, struct sf_batch, task);
    batch->done(batch);
}

/* True when an earlier stage of the put's command, or of all, failed. */
static bool cancelled(const struct sf_batch *batch, size_t at)
{
    for (size_t i = 0; i < at; i++) {
        const struct sf_put *p = &batch->puts[i];
        if (p->err != SF_OK && p->stage < batch->puts[at].stage &&
            (p->command == SF_COMMAND_ALL || p->command == batch->puts[at].command))
            return true;
    }
    return false;
}

static void submit(struct sf_store *store, struct sf_batch *batch)
{
    struct script_store *s = of(store);

    for (size_t i = 0; i < batch->count; i++) {
        if (cancelled(batch, i))
            batch->puts[i].err = SF_ERR_CANCELLED_STAGE;
        else
            run_put(s, &batch->puts[i]);
    }
    batch->task.run = batch_done;
    complete(s, batch->loop, &batch->task,
             s->hold || (s->hold_reservations && batch->count == 1 &&
                         script_is_state_key(batch->puts[0].key)));
}

static void get_done(struct sf_task *task)
{
    struct sf_get *get = SF_CONTAINER_OF(task, struct sf_get, task);
    get->done(get);
}

static void get_run(struct sf_store *store, struct sf_get *get)
{
    struct script_store *s = of(store);

    count(s, get->key, false);
    get->err = s->on_get == NULL ? SF_OK : s->on_get(s->ctx, get->key);
    if (get->err == SF_OK)
        get->err = sf_store_get_wait(s->backend, NULL, get->key, &get->body, &get->etag);
    get->task.run = get_done;
    complete(s, get->loop, &get->task, s->hold);
}

static enum sf_err list(struct sf_store *store, struct sf_sched *sched, struct sf_view prefix,
                        struct sf_view start_after, size_t limit, struct sf_arena *arena,
                        struct sf_list_entry **out_entries, size_t *out_count)
{
    (void)sched;
    return sf_store_list_wait(of(store)->backend, NULL, prefix, start_after, limit, arena,
                              out_entries, out_count);
}

static enum sf_err remove_run(struct sf_store *store, struct sf_sched *sched, struct sf_view key)
{
    struct script_store *s = of(store);
    enum script_fate fate = s->on_remove == NULL ? SCRIPT_APPLY : s->on_remove(s->remove_ctx, key);
    const struct sf_put late = {.key = key};

    (void)sched;
    if (fate == SCRIPT_LATE) {
        keep_late(s, &late);
        SF_CONTAINER_OF(s->late_tail, struct late, next)->is_remove = true;
    }
    if (fate == SCRIPT_APPLY || fate == SCRIPT_DARK) {
        enum sf_err err = sf_store_remove_wait(s->backend, NULL, key);
        if (err != SF_OK || fate == SCRIPT_APPLY)
            return err;
    }
    return fate == SCRIPT_REFUSE ? SF_ERR_UNAVAILABLE : SF_ERR_AMBIGUOUS;
}

static const struct sf_store_vtable vtable = {
    .submit = submit, .get = get_run, .list = list, .remove = remove_run};

struct script_store *script_store_new(struct sf_store *backend, struct sf_loop *loop)
{
    struct script_store *s = sf_calloc(1, sizeof(*s));

    s->base.vtable = &vtable;
    s->backend = backend;
    s->loop = loop;
    s->late_tail = &s->late;
    s->held_tail = &s->held;
    return s;
}

static void late_free(struct late *late)
{
    free(late->key);
    free(late->body);
    free(late);
}

void script_store_destroy(struct script_store *s)
{
    while (s->late != NULL) {
        struct late *late = s->late;
        s->late = late->next;
        late_free(late);
    }
    free(s);
}

struct sf_store *script_store_store(struct script_store *script)
{
    return &script->base;
}

void script_store_on(struct script_store *s, script_put_fn put, script_get_fn get, void *ctx)
{
    s->on_put = put;
    s->on_get = get;
    s->ctx = ctx;
}

void script_store_on_remove(struct script_store *s, script_remove_fn remove, void *ctx)
{
    s->on_remove = remove;
    s->remove_ctx = ctx;
}

static void release(struct script_store *s)
{
    while (s->held != NULL) {
        struct sf_task *task = s->held;
        s->held = task->next;
        if (s->held == NULL)
            s->held_tail = &s->held;
        sf_loop_post(s->loop, task);
    }
}

void script_store_hold(struct script_store *s, bool hold)
{
    s->hold = hold;
    if (!hold)
        release(s);
}

void script_store_hold_reservations(struct script_store *s, bool hold)
{
    s->hold_reservations = hold;
    if (!hold)
        release(s);
}

void script_store_exclusive(struct script_store *s, bool exclusive)
{
    s->base.exclusive = exclusive;
}

unsigned script_store_land_late(struct script_store *s)
{
    unsigned landed = 0;

    while (s->late != NULL) {
        struct late *late = s->late;
        s->late = late->next;
        if (s->late == NULL)
            s->late_tail = &s->late;
        if (late->is_remove)
            late->put.err = sf_store_remove_wait(s->backend, NULL, late->put.key);
        else
            apply(s, &late->put);
        landed += late->put.err == SF_OK ? 1 : 0;
        late_free(late);
    }
    return landed;
}

struct script_counts script_store_counts(const struct script_store *s)
{
    return s->counts;
}

void script_store_reset_counts(struct script_store *s)
{
    s->counts = (struct script_counts){0};
}
