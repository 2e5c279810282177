/*
 * What must hold of everything at once, kept beside the services under test. Invariants of
 * protocols.md section 5 by number:
 *
 *   1   a success is the same bytes at every answer, on every node, after every crash
 *   2   an outcome that stands never changes; a name has one id
 *   4   no doc id is realized twice; ids of a plan ascend; a state write covers them before
 *   5   no commit_ts names two slices; a fresh one lies above what the lane acknowledged before
 *   6   versions and watermarks of manifests grow; they cover durable rows alone
 *   7   what was acknowledged stands, and is visible if that was the gate
 *   A batch made for an elder schema generation is not admitted once a younger one was answered;
 * what was acknowledged durable before is answered as a duplicate then, and never refused (1).
 *   A batch of an unknown generation, or with a receipt that is not its own, is refused and never
 * shows. Every delivery of a batch with a receipt counts as admitted no later than its receipt.
 *   9   nothing new appears under an elder owner once a younger one serves
 *
 * Facts are read through the backend, apart from the services.
 */
#ifndef SF_TESTS_SIM_ALL_MODEL_H
#define SF_TESTS_SIM_ALL_MODEL_H

#include "fault/all/all_requests.h"

struct all_model;

struct all_model *all_model_new(struct all_cluster *cluster);
void all_model_free(struct all_model *model);

const struct all_op *all_model_op(const struct all_model *model, unsigned index);
const struct all_facts *all_model_facts(const struct all_model *model);

/* True once `index` has its final answer: a success or a refusal that no retry changes. */
bool all_model_is_done(const struct all_model *model, unsigned index);
bool all_model_succeeded(const struct all_model *model, unsigned index);

/* A call of operation `index`, judged by the model when it is answered. What it refers to is known
 * (see all_model_can_send). */
struct all_call *all_model_call(struct all_model *model, unsigned index);

/* True when what the operation refers to is known. */
bool all_model_can_send(const struct all_model *model, unsigned index);

/* A question, judged by what had been answered before it was sent: nothing older may come back. */
struct all_call *all_model_read(struct all_model *model, enum all_read read, unsigned collection);

/* A batch that must be refused: made for a generation that is not in force, or with a receipt that
 * is not its own. Judged when it is answered; that it never shows is judged with everything else,
 * for nobody knows its key. NULL while there is nothing to make it of. */
struct all_call *all_model_forgery(struct all_model *model, struct sf_rng *rng);

/* `owner` serves from now on. */
void all_model_served(struct all_model *model, const char *owner);

/* Looks at the durable objects; after each step (cheap when nothing was applied). */
void all_model_check_step(struct all_model *model);

/* True when everything that stands is in the committed manifests. */
bool all_model_is_published(struct all_model *model);

/* At the end, when everything that stands is published. */
void all_model_check_end(struct all_model *model);

#endif
