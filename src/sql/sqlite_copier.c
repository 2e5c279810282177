/*
 * Model: SQLite's write-ahead log grows with every commit until its pages are copied back into the
 * file, with two syncs. The thread here does that on a connection of its own while the writer goes
 * on, so no commit waits for it. A log that has been copied back to its end starts anew with the
 * next commit; under load a copy that runs beside the writer never quite reaches that end. So once
 * the log is long and the thread has left little, the writer copies the rest after a commit. Where
 * it cannot (a reader holds an old snapshot), it tries again a good deal later; a log that became
 * too long all the same is copied back by the writer whatever that takes.
 */
#include "sql/sqlite_copier.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/mem.h"

/* In pages of the log. */
#define COPY_EVERY 8192  /* the thread copies when so many are new */
#define LONG_LOG   32768 /* from here on the writer copies a small rest */
#define SMALL_REST 2048  /* what the writer copies */
#define MOST_LOG   49152 /* from here on it copies what there is */

struct sql_copier {
    sqlite3 *link;       /* of the thread */
    pthread_t thread;    /* copies */
    pthread_mutex_t mu;  /* guards due, busy and stop */
    pthread_cond_t wake; /* for the thread, and for the writer that waits for it */
    bool due;            /* there is something to copy */
    bool busy;           /* the thread copies */
    bool stop;           /* the thread ends */
    _Atomic int copied;  /* pages from the log's start that are in the file, as last seen */
    int next_try;        /* of the writer; only it touches this */
};

/* False when the other one copies just now, or it failed: the log stays. */
static bool copy_back(sqlite3 *link, struct sql_copier *copier)
{
    int pages = 0, copied = 0;
    if (sqlite3_wal_checkpoint_v2(link, NULL, SQLITE_CHECKPOINT_PASSIVE, &pages, &copied) !=
            SQLITE_OK ||
        copied < 0)
        return false;
    atomic_store(&copier->copied, copied);
    return true;
}

static void *copier_main(void *arg)
{
    struct sql_copier *copier = arg;
    (void)pthread_mutex_lock(&copier->mu);
    while (!copier->stop) {
        if (!copier->due) {
            (void)pthread_cond_wait(&copier->wake, &copier->mu);
            continue;
        }
        copier->due = false;
        copier->busy = true;
        (void)pthread_mutex_unlock(&copier->mu);
        (void)copy_back(copier->link, copier);
        (void)pthread_mutex_lock(&copier->mu);
        copier->busy = false;
        (void)pthread_cond_broadcast(&copier->wake);
    }
    (void)pthread_mutex_unlock(&copier->mu);
    return NULL;
}

/* The writer copies; one that must waits for the thread first, which is what slows it down. */
static bool copy_by_writer(sqlite3 *writer, struct sql_copier *copier, bool must)
{
    (void)pthread_mutex_lock(&copier->mu);
    while (must && copier->busy)
        (void)pthread_cond_wait(&copier->wake, &copier->mu);
    (void)pthread_mutex_unlock(&copier->mu);
    return copy_back(writer, copier);
}

/* After a commit of the writer: the log has `pages` now. */
static int on_commit(void *user, sqlite3 *writer, const char *name, int pages)
{
    struct sql_copier *copier = user;
    int copied = atomic_load(&copier->copied);
    (void)name;
    if (pages < copied) { /* the log started anew */
        copied = 0;
        atomic_store(&copier->copied, 0);
    }
    if (pages < LONG_LOG)
        copier->next_try = LONG_LOG;
    if (pages >= copier->next_try && (pages - copied <= SMALL_REST || pages >= MOST_LOG)) {
        if (copy_by_writer(writer, copier, pages >= MOST_LOG))
            copier->next_try = pages + COPY_EVERY;
    } else if (pages - copied >= (pages < LONG_LOG ? COPY_EVERY : SMALL_REST)) {
        (void)pthread_mutex_lock(&copier->mu);
        copier->due = true;
        (void)pthread_cond_broadcast(&copier->wake);
        (void)pthread_mutex_unlock(&copier->mu);
    }
    return SQLITE_OK;
}

struct sql_copier *sql_copier_start(sqlite3 *writer, sqlite3 *link)
{
    struct sql_copier *copier = sf_calloc(1, sizeof(*copier));
    copier->link = link;
    copier->next_try = LONG_LOG;
    (void)pthread_mutex_init(&copier->mu, NULL);
    (void)pthread_cond_init(&copier->wake, NULL);
    SF_ASSERT(pthread_create(&copier->thread, NULL, copier_main, copier) == 0);
    (void)sqlite3_wal_hook(writer, on_commit, copier);
    return copier;
}

void sql_copier_stop(struct sql_copier *copier)
{
    if (copier == NULL)
        return;
    (void)pthread_mutex_lock(&copier->mu);
    copier->stop = true;
    (void)pthread_cond_broadcast(&copier->wake);
    (void)pthread_mutex_unlock(&copier->mu);
    (void)pthread_join(copier->thread, NULL);
    (void)sqlite3_close(copier->link);
    (void)pthread_cond_destroy(&copier->wake);
    (void)pthread_mutex_destroy(&copier->mu);
    free(copier);
}
