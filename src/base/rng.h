/* Random numbers: a seeded generator (xoshiro256**) for choices, the system's for secrets and
 * identities. */
#ifndef SF_BASE_RNG_H
#define SF_BASE_RNG_H

#include "base/compiler.h"

/* Seeded generator; equal seeds give equal sequences on every machine. One owner. */
struct sf_rng {
    uint64_t state[4]; /* never all zero */
};

/* Seeds by splitmix64 of `seed`. */
void sf_rng_init(struct sf_rng *rng, uint64_t seed);

/* Next 64 bits. */
uint64_t sf_rng_u64(struct sf_rng *rng);

/* Uniform in [0, bound); bound > 0. */
uint64_t sf_rng_below(struct sf_rng *rng, uint64_t bound);

/* Fills with bytes of the system's generator (getrandom); aborts when there is none. */
void sf_random_bytes(void *out, size_t len);

#endif
