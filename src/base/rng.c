/*
 * xoshiro256** seeded by splitmix64 (Blackman and Vigna), for choices that must repeat under a
 * seed; the system's generator for secrets and identities, which must not.
 */
#include "base/rng.h"

#include <errno.h>
#include <sys/random.h>

static uint64_t rotl(uint64_t x, unsigned k)
{
    return (x << k) | (x >> (64 - k));
}

static uint64_t splitmix64(uint64_t *x)
{
    uint64_t z = (*x += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void sf_rng_init(struct sf_rng *rng, uint64_t seed)
{
    for (unsigned i = 0; i < 4; i++)
        rng->state[i] = splitmix64(&seed);
}

uint64_t sf_rng_u64(struct sf_rng *rng)
{
    uint64_t *s = rng->state;
    uint64_t result = rotl(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

uint64_t sf_rng_below(struct sf_rng *rng, uint64_t bound)
{
    SF_ASSERT(bound > 0);

    /* Values below 2^64 mod bound would make the low remainders likelier: draw again. */
    uint64_t skip = (0 - bound) % bound;
    uint64_t x;
    do {
        x = sf_rng_u64(rng);
    } while (x < skip);
    return x % bound;
}

void sf_random_bytes(void *out, size_t len)
{
    uint8_t *at = out;

    while (len > 0) {
        ssize_t n = getrandom(at, len, 0);
        if (n < 0 && errno == EINTR)
            continue;
        SF_ASSERT(n > 0);
        at += n;
        len -= (size_t)n;
    }
}
