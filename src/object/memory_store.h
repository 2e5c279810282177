/*
 * A store in memory, for tests and for the simulator. Etags are hashes of the content, as S3's may
 * be: equal bytes, equal etag. A batch is applied whole at once, as the embedded store does.
 */
#ifndef SF_OBJECT_MEMORY_STORE_H
#define SF_OBJECT_MEMORY_STORE_H

#include "object/store.h"

/* A new empty store. Completions without a loop run on `loop` (deterministic under a simulated
 * loop), or, with NULL, on a thread of the store. Any thread may use it. Never fails. */
struct sf_store *sf_memory_store_new(struct sf_loop *loop);

/* A backend for the fault store: completions without a loop run inside the call that asks. */
struct sf_store *sf_memory_store_new_inline(void);

#endif
