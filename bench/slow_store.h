/* A store as far away as wanted, in front of another one. */
#ifndef SF_BENCH_SLOW_STORE_H
#define SF_BENCH_SLOW_STORE_H

#include "object/store.h"

/* Answers each stage of a batch `put_delay_ms` after it was sent, each read `get_delay_ms` after.
 * Lists and deletes pass. */
struct slow_store {
    struct sf_store base;    /* what callers hold */
    struct sf_store *inner;  /* borrowed */
    struct sf_loop *loop;    /* of the timers */
    int64_t put_delay_ms;    /* of a stage */
    int64_t get_delay_ms;    /* of a read */
    _Atomic uint64_t puts;   /* asked for */
    _Atomic uint64_t rounds; /* stages */
};

/* Sets `store` up over `inner`; it lives until the inner one is destroyed. */
void slow_store_init(struct slow_store *store, struct sf_store *inner, struct sf_loop *loop,
                     int64_t put_delay_ms, int64_t get_delay_ms);

#endif
