/*
 * Objects stand in one array sorted by key (binary search, memmove on insert): stores of tests are
 * small and lists need byte order. One mutex guards the array. Completions that have no loop go to
 * the store's loop, or inline, or to a helper thread that does nothing else, so that `done` always
 * runs later and never under the mutex.
 */
#include "object/memory_store.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/limits.h"
#include "base/mem.h"
#include "object/object_priv.h"

struct object {
    uint8_t *key;        /* owned */
    size_t key_len;      /* bytes of key */
    uint8_t *body;       /* owned */
    size_t body_len;     /* bytes of body */
    struct sf_etag etag; /* hash of the body */
};

struct memory_store {
    struct sf_store base;   /* what callers hold */
    struct sf_loop *loop;   /* immutable: completions without a loop; NULL = thread or inline */
    bool inline_done;       /* immutable: completions without a loop run within the call */
    pthread_mutex_t mu;     /* guards all below */
    struct object *objects; /* sorted by key */
    size_t count;           /* used entries of objects */
    size_t cap;             /* allocated entries */
    pthread_t thread;       /* runs completions when there is no loop */
    pthread_cond_t wake;    /* tasks or stop */
    struct sf_task *head;   /* tasks for the thread, oldest first */
    struct sf_task **tail;  /* where the next one goes */
    bool stop;              /* thread ends once the tasks are done */
};

static struct memory_store *store_of(struct sf_store *store)
{
    return SF_CONTAINER_OF(store, struct memory_store, base);
}

static void etag_of(struct sf_view body, struct sf_etag *out)
{
    uint64_t a = sf_xxh64(body.ptr, body.len, 1);
    uint64_t b = sf_xxh64(body.ptr, body.len, 2);

    *out = (struct sf_etag){{0}};
    (void)snprintf(out->text, sizeof(out->text), "%016llx%016llx", (unsigned long long)a,
                   (unsigned long long)b);
}

/* Place of `key`, or where it would go. */
static size_t find_locked(const struct memory_store *s, struct sf_view key, bool *out_found)
{
    size_t lo = 0;
    size_t hi = s->count;

    *out_found = false;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = sf_view_compare(sf_view_bytes(s->objects[mid].key, s->objects[mid].key_len), key);
        if (c == 0) {
            *out_found = true;
            return mid;
        }
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void insert_locked(struct memory_store *s, size_t at, struct sf_view key)
{
    if (s->count == s->cap) {
        s->cap = s->cap == 0 ? 64 : s->cap * 2;
        s->objects = sf_realloc(s->objects, s->cap * sizeof(s->objects[0]));
    }
    memmove(&s->objects[at + 1], &s->objects[at], (s->count - at) * sizeof(s->objects[0]));
    s->objects[at] =
        (struct object){.key = sf_memdup(key.ptr, key.len), .key_len = key.len, .body = NULL};
    s->count++;
}

static enum sf_err put_locked(struct memory_store *s, struct sf_put *put)
{
    bool found;
    size_t at = find_locked(s, put->key, &found);

    if (put->cond == SF_PUT_ABSENT && found)
        return SF_ERR_PRECONDITION;
    if (put->cond == SF_PUT_MATCH &&
        (!found || strcmp(s->objects[at].etag.text, put->match.text) != 0))
        return SF_ERR_PRECONDITION;
    if (!found)
        insert_locked(s, at, put->key);
    struct object *o = &s->objects[at];
    free(o->body);
    o->body = sf_memdup(put->body.ptr == NULL ? (const uint8_t *)"" : put->body.ptr, put->body.len);
    o->body_len = put->body.len;
    etag_of(put->body, &o->etag);
    put->etag = o->etag;
    return SF_OK;
}

static void queue_for_thread(struct memory_store *s, struct sf_task *task)
{
    task->next = NULL;
    (void)pthread_mutex_lock(&s->mu);
    *s->tail = task;
    s->tail = &task->next;
    (void)pthread_cond_signal(&s->wake);
    (void)pthread_mutex_unlock(&s->mu);
}

static void *thread_main(void *arg)
{
    struct memory_store *s = arg;

    (void)pthread_mutex_lock(&s->mu);
    for (;;) {
        while (s->head == NULL && !s->stop)
            (void)pthread_cond_wait(&s->wake, &s->mu);
        struct sf_task *task = s->head;
        if (task == NULL)
            break;
        s->head = task->next;
        if (s->head == NULL)
            s->tail = &s->head;
        (void)pthread_mutex_unlock(&s->mu);
        task->run(task);
        (void)pthread_mutex_lock(&s->mu);
    }
    (void)pthread_mutex_unlock(&s->mu);
    return NULL;
}

static void run_batch_done(struct sf_task *task)
{
    struct sf_batch *batch = SF_CONTAINER_OF(task, struct sf_batch, task);

    batch->done(batch);
}

static void run_get_done(struct sf_task *task)
{
    struct sf_get *get = SF_CONTAINER_OF(task, struct sf_get, task);

    get->done(get);
}

static void complete(struct memory_store *s, struct sf_loop *loop, struct sf_task *task)
{
    if (loop == NULL)
        loop = s->loop;
    if (loop != NULL)
        sf_loop_post(loop, task);
    else if (s->inline_done)
        task->run(task);
    else
        queue_for_thread(s, task);
}

static void memory_submit(struct sf_store *store, struct sf_batch *batch)
{
    struct memory_store *s = store_of(store);
    struct sf_cancels cancels = {0};

    sf_batch_check(batch);
    (void)pthread_mutex_lock(&s->mu);
    for (size_t i = 0; i < batch->count; i++) {
        struct sf_put *put = &batch->puts[i];
        put->err = SF_ERR_CANCELLED_STAGE;
        if (!sf_cancels_hit(&cancels, put)) {
            put->err = sf_put_check_limits(put);
            if (put->err == SF_OK)
                put->err = put_locked(s, put);
        }
        if (put->err != SF_OK)
            sf_cancels_add(&cancels, put);
    }
    (void)pthread_mutex_unlock(&s->mu);
    sf_cancels_fini(&cancels);
    batch->task.run = run_batch_done;
    complete(s, batch->loop, &batch->task);
}

static void memory_get(struct sf_store *store, struct sf_get *get)
{
    struct memory_store *s = store_of(store);
    bool found;

    (void)pthread_mutex_lock(&s->mu);
    size_t at = find_locked(s, get->key, &found);
    if (found) {
        sf_get_fill(get, sf_view_bytes(s->objects[at].body, s->objects[at].body_len));
        get->etag = s->objects[at].etag;
    }
    (void)pthread_mutex_unlock(&s->mu);
    get->err = found ? SF_OK : SF_ERR_NOT_FOUND;
    get->task.run = run_get_done;
    complete(s, get->loop, &get->task);
}

static enum sf_err memory_list(struct sf_store *store, struct sf_sched *sched,
                               struct sf_view prefix, struct sf_view start_after, size_t limit,
                               struct sf_arena *arena, struct sf_list_entry **out_entries,
                               size_t *out_count)
{
    struct memory_store *s = store_of(store);
    struct sf_list_entry *entries = sf_arena_alloc(arena, (limit + 1) * sizeof(*entries));
    size_t count = 0;
    bool found;

    (void)sched;
    if (entries == NULL)
        return SF_ERR_LIMIT;
    (void)pthread_mutex_lock(&s->mu);
    size_t at = find_locked(s, prefix, &found);
    if (sf_view_compare(start_after, prefix) >= 0 && start_after.len > 0) {
        at = find_locked(s, start_after, &found);
        at += found ? 1 : 0;
    }
    for (; at < s->count && count < limit; at++) {
        const struct object *o = &s->objects[at];
        if (o->key_len < prefix.len ||
            (prefix.len > 0 && memcmp(o->key, prefix.ptr, prefix.len) != 0))
            break;
        entries[count].key = sf_view_bytes(sf_arena_dup(arena, o->key, o->key_len), o->key_len);
        entries[count++].size_bytes = o->body_len;
    }
    (void)pthread_mutex_unlock(&s->mu);
    *out_entries = entries;
    *out_count = count;
    return sf_arena_overflowed(arena) ? SF_ERR_LIMIT : SF_OK;
}

static enum sf_err memory_remove(struct sf_store *store, struct sf_sched *sched, struct sf_view key)
{
    struct memory_store *s = store_of(store);
    bool found;

    (void)sched;
    (void)pthread_mutex_lock(&s->mu);
    size_t at = find_locked(s, key, &found);
    if (found) {
        free(s->objects[at].key);
        free(s->objects[at].body);
        s->count--;
        memmove(&s->objects[at], &s->objects[at + 1], (s->count - at) * sizeof(s->objects[0]));
    }
    (void)pthread_mutex_unlock(&s->mu);
    return SF_OK;
}

static void memory_destroy(struct sf_store *store)
{
    struct memory_store *s = store_of(store);

    if (s->loop == NULL && !s->inline_done) {
        (void)pthread_mutex_lock(&s->mu);
        s->stop = true;
        (void)pthread_cond_signal(&s->wake);
        (void)pthread_mutex_unlock(&s->mu);
        (void)pthread_join(s->thread, NULL);
    }
    for (size_t i = 0; i < s->count; i++) {
        free(s->objects[i].key);
        free(s->objects[i].body);
    }
    free(s->objects);
    (void)pthread_cond_destroy(&s->wake);
    (void)pthread_mutex_destroy(&s->mu);
    free(s);
}

static const struct sf_store_vtable memory_vtable = {.submit = memory_submit,
                                                     .get = memory_get,
                                                     .list = memory_list,
                                                     .remove = memory_remove,
                                                     .destroy = memory_destroy};

static struct sf_store *store_new(struct sf_loop *loop, bool inline_done)
{
    struct memory_store *s = sf_calloc(1, sizeof(*s));

    s->base = (struct sf_store){.vtable = &memory_vtable, .exclusive = false};
    s->loop = loop;
    s->inline_done = inline_done;
    s->tail = &s->head;
    (void)pthread_mutex_init(&s->mu, NULL);
    (void)pthread_cond_init(&s->wake, NULL);
    if (loop == NULL && !inline_done)
        SF_ASSERT(pthread_create(&s->thread, NULL, thread_main, s) == 0);
    return &s->base;
}

struct sf_store *sf_memory_store_new(struct sf_loop *loop)
{
    return store_new(loop, false);
}

struct sf_store *sf_memory_store_new_inline(void)
{
    return store_new(NULL, true);
}
