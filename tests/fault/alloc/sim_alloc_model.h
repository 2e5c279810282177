/*
 * What must hold of the allocator's objects and answers, kept beside the services under test:
 *
 *   watermarks, versions and epochs of state objects only grow; a version names one state
 *   no doc id stands in two replay-success objects of a collection
 *   when a replay-success object appears, its ids lie below the watermark that stands
 *   a replay-success object never changes
 *   an answer is what stands under its key; every later answer is the same, byte for byte
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

/* One request of the run; every client sends all of them. */
struct model_request {
    char key[16];
    uint64_t collection_id;
    uint64_t items[MODEL_ITEMS]; /* MODEL_ISSUE or an explicit id */
    size_t count;
};

struct model;

/* Requests are drawn from the world's seed. */
struct model *model_new(struct sim *sim);
void model_free(struct model *model);

const struct model_request *model_request(const struct model *model, unsigned index);

/* An answer that counts: packed bytes with SF_OK, else what refused it. */
void model_answered(struct model *model, unsigned index, enum sf_err err, struct sf_view packed);

/* True once a success was answered. */
bool model_succeeded(const struct model *model, unsigned index);

/* Looks at the objects; after each step (cheap when nothing was applied). */
void model_check_step(struct model *model);

/* At the end: every request is answered, and what was answered is what stands. */
void model_check_end(struct model *model);

#endif
