/*
 * What must hold of the allocator's objects and answers, kept beside the services under test:
 *
 *   watermarks and epochs of state objects only grow, versions by one; an epoch has one owner
 *   no doc id stands in two replay-success objects of a collection
 *   a replay-success object names the state write that covers it, its own or its lease's: its ids
 *   follow the arithmetic of its plan and lie between the watermark before that write and the one
 *   after it, or in the range that the write reserved
 *   a lease is of the owner that recorded it, ends at the watermark and begins at or below the one
 *   that its write met; nobody plans in it for longer than its owner may go unproved after the next
 *   owner's first write
 *   a replay-success object never changes
 *   an answer is what stands under its key; every later answer is the same, byte for byte
 *   a refusal is that of a watermark which stood between the request and its answer
 *   a key that is first asked for when its collection is dropped has no success
 *   a key refused as burned never has a success
 */
#ifndef SF_TESTS_SIM_ALLOC_MODEL_H
#define SF_TESTS_SIM_ALLOC_MODEL_H

#include "base/buf.h"
#include "base/err.h"
#include "fault/sim/sim.h"

#define MODEL_REQUESTS    24
#define MODEL_COLLECTIONS 2
#define MODEL_ITEMS       4
#define MODEL_ISSUE       UINT64_MAX
#define MODEL_NS          7u
#define MODEL_MAX_JUMP    20u /* of the catalog's policy */

/* One request of the run; every client sends all of them. */
struct model_request {
    char key[16];
    uint64_t collection_id;
    uint64_t items[MODEL_ITEMS]; /* MODEL_ISSUE or an explicit id */
    size_t count;
};

struct model;

/* Requests are drawn from the world's seed, `issue_percent` of them without explicit ids. In half
 * of the runs the second collection starts near the end of its ids: its state is planted in the
 * backend. `proved_ms`: how long an owner that leases may go unproved. */
struct model *model_new(struct sim *sim, unsigned issue_percent, int64_t proved_ms);
void model_free(struct model *model);

const struct model_request *model_request(const struct model *model, unsigned index);

/* What was known when a request was sent; for model_answered. */
struct model_sent {
    uint64_t version; /* of its collection's state */
    bool answered;    /* a success had been answered */
};

/* A request goes out. `dropped`: its collection is. */
struct model_sent model_sent(struct model *model, unsigned index, bool dropped);

/* An answer that counts: packed bytes with SF_OK, else what refused it. */
void model_answered(struct model *model, unsigned index, const struct model_sent *sent,
                    enum sf_err err, struct sf_view packed);

/* Refused because the collection was dropped at `drop_at_ms`. `answered_before`: a success had been
 * answered when the request was sent. That, or a result that stood before the drop, forbids it; a
 * plan admitted before the drop may still succeed beside it. */
void model_dropped(struct model *model, unsigned index, int64_t drop_at_ms, bool answered_before);

/* True once a success was answered. */
bool model_succeeded(const struct model *model, unsigned index);

/* Results that came out of a lease. */
unsigned model_leased(const struct model *model);

/* Looks at the objects; after each step (cheap when nothing was applied). */
void model_check_step(struct model *model);

/* At the end: every request is answered, and what was answered is what stands. */
void model_check_end(struct model *model);

#endif
