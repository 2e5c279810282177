/*
 * A store whose every put and get a test may decide. It runs batches the S3 way over an inline
 * memory store: put by put, stage by stage, a failed put cancels the later stages of its command.
 * Completions go to the batch's loop, at once where it has none; they can be held back and let go
 * by hand.
 */
#ifndef SF_TESTS_SCRIPT_STORE_H
#define SF_TESTS_SCRIPT_STORE_H

#include "object/store.h"

/* What happens to one put. */
enum script_fate {
    SCRIPT_APPLY,   /* reaches the store, its answer comes back */
    SCRIPT_REFUSE,  /* not applied, UNAVAILABLE */
    SCRIPT_LOSE,    /* not applied, AMBIGUOUS */
    SCRIPT_DARK,    /* applied, AMBIGUOUS */
    SCRIPT_LATE,    /* AMBIGUOUS; applied by script_store_land_late */
    SCRIPT_OWN_412, /* applied, answered with 412 */
    SCRIPT_LIMIT    /* refused for good */
};

/* What went through it. */
struct script_counts {
    unsigned state_gets; /* reads of allocator state objects */
    unsigned state_puts; /* writes of them that were tried */
    unsigned replay_gets;
    unsigned replay_puts;
    unsigned other; /* writes of any other key */
};

struct script_store;

/* Decides the fate of a put, in the order in which they run; NULL applies all. */
typedef enum script_fate (*script_put_fn)(void *ctx, const struct sf_put *put);

/* Decides a read: SF_OK lets it through, anything else is its result. */
typedef enum sf_err (*script_get_fn)(void *ctx, struct sf_view key);

/* Decides a delete: SCRIPT_APPLY, _REFUSE, _LOSE, _DARK or _LATE as of a put. */
typedef enum script_fate (*script_remove_fn)(void *ctx, struct sf_view key);
void script_store_on_remove(struct script_store *script, script_remove_fn remove, void *ctx);

struct script_store *script_store_new(struct sf_store *backend, struct sf_loop *loop);
void script_store_destroy(struct script_store *script);

/* The store to hand to a service. */
struct sf_store *script_store_store(struct script_store *script);

/* Sets the hooks (NULL: none) and what they are called with. */
void script_store_on(struct script_store *script, script_put_fn put, script_get_fn get, void *ctx);

/* Holds completions back from now on, or lets the held ones go in their order. */
void script_store_hold(struct script_store *script, bool hold);

/* The same for writes of a state object alone, which is what a reservation of ids ahead is. */
void script_store_hold_reservations(struct script_store *script, bool hold);

/* Says whether reads cost no round trip and nobody else writes (struct sf_store). */
void script_store_exclusive(struct script_store *script, bool exclusive);

/* Applies the puts and deletes with fate SCRIPT_LATE, oldest first; conditions are looked at now.
 * Returns how many were applied. */
unsigned script_store_land_late(struct script_store *script);

struct script_counts script_store_counts(const struct script_store *script);
void script_store_reset_counts(struct script_store *script);

/* True for a key of an allocator state object. */
bool script_is_state_key(struct sf_view key);

#endif
