/*
 * Model: a budget is one token bucket in two places. The durable level (units at a time) lies in
 * the namespace's quota object; it refills by the clock alone, so it needs no write while nobody
 * asks. Before units are granted they are debited there in a chunk, which may reach up to
 * SF_QUOTA_CHUNK_MS of refill ahead: then the level's time lies in the future. The owner grants
 * from this credit, paced by a bucket in memory:
 *
 *   units granted <= units debited durably    whatever crashes (invariant 10)
 *   units granted <= burst + rate * time      memory paces what the debit ran ahead of
 *
 * An owner that dies forfeits its credit: at most one chunk, which the refill brings back within
 * SF_QUOTA_CHUNK_MS. Arithmetic: rates and bursts are at most SF_LIMIT_QUOTA_UNITS (10^15), so that
 * burst * 1000 fits 64 bits; the elapsed time is cut at the time that fills the bucket.
 */
#include "catalog/catalog_quota_bucket.h"

#include "base/compiler.h"
#include "base/limits.h"
#include "base/mutant.h"

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* `percent` of a number of at most SF_LIMIT_QUOTA_UNITS; at least 1. */
static uint64_t part(uint64_t value, unsigned percent)
{
    uint64_t cut = value * percent / 100;
    return cut == 0 ? 1 : cut;
}

/* Milliseconds in which `units` refill, rounded up. */
static int64_t refill_ms(uint64_t units, uint64_t rate)
{
    return (int64_t)((units * 1000 + rate - 1) / rate);
}

/* Refills a level up to now; thousandths of a unit are kept, so that none is lost or made. */
static void refill(struct sf_quota_level *level, uint64_t rate, uint64_t burst, int64_t now_ms)
{
    level->units = min_u64(level->units, burst);
    if (now_ms <= level->at_ms)
        return;
    int64_t elapsed = now_ms - level->at_ms;
    level->at_ms = now_ms;
    if (elapsed >= refill_ms(burst - level->units, rate)) {
        level->units = burst;
        level->fraction = 0;
        return;
    }
    uint64_t thousandths = rate * (uint64_t)elapsed + level->fraction;
    level->units = min_u64(level->units + thousandths / 1000, burst);
    level->fraction = thousandths % 1000;
}

uint64_t sf_quota_bucket_chunk(const struct sf_quota_bucket *bucket)
{
    uint64_t chunk = bucket->rate * (uint64_t)SF_QUOTA_CHUNK_MS / 1000;
    return min_u64(chunk == 0 ? 1 : chunk, bucket->burst);
}

void sf_quota_bucket_init(struct sf_quota_bucket *bucket, uint64_t rate, uint64_t burst,
                          int64_t now_ms)
{
    SF_ASSERT(rate > 0 && rate <= SF_LIMIT_QUOTA_UNITS);
    SF_ASSERT(burst > 0 && burst <= SF_LIMIT_QUOTA_UNITS);
    *bucket = (struct sf_quota_bucket){.rate = rate,
                                       .burst = burst,
                                       .stored = {.units = burst, .at_ms = now_ms},
                                       .now = {.units = burst, .at_ms = now_ms}};
}

void sf_quota_bucket_load(struct sf_quota_bucket *bucket, uint64_t rate, uint64_t burst,
                          const struct sf_quota_stored *stored, int64_t now_ms)
{
    struct sf_quota_level level = {.units = stored->units, .at_ms = stored->at_ms};
    sf_quota_bucket_init(bucket, rate, burst, now_ms);
    if (level.at_ms - now_ms > 2 * SF_QUOTA_CHUNK_MS)
        level = (struct sf_quota_level){.at_ms = now_ms}; /* the clock was set back */
    refill(&level, rate, burst, now_ms);
    /* the credit may have been granted just now: it was part of a full bucket */
    level.units = min_u64(level.units, burst - min_u64(stored->reserved, burst));
    bucket->stored = bucket->now = level;
}

void sf_quota_bucket_refill(struct sf_quota_bucket *bucket, int64_t now_ms, unsigned percent)
{
    SF_ASSERT(percent >= 1 && percent <= 100);
    if (bucket->now.at_ms - now_ms > 2 * SF_QUOTA_CHUNK_MS)
        bucket->now.at_ms = now_ms;
    refill(&bucket->now, part(bucket->rate, percent), part(bucket->burst, percent), now_ms);
}

void sf_quota_bucket_debit(struct sf_quota_bucket *bucket, uint64_t units, int64_t now_ms)
{
    uint64_t chunk = sf_quota_bucket_chunk(bucket);
    uint64_t missing = units > bucket->credit ? units - bucket->credit : 0;
    if (bucket->stored.at_ms - now_ms > 2 * SF_QUOTA_CHUNK_MS)
        bucket->stored.at_ms = now_ms;
    refill(&bucket->stored, bucket->rate, bucket->burst, now_ms);
    /* credit that was not granted is part of a full bucket: memory knows the level */
    uint64_t level = bucket->now.units > bucket->credit ? bucket->now.units - bucket->credit : 0;
    bucket->stored.units = min_u64(bucket->stored.units, level);
    /* more than the level cannot be granted now; a chunk may run ahead of it */
    missing = min_u64(missing, bucket->stored.units);
    uint64_t amount = missing > chunk ? missing : chunk;
    /* not further ahead than a chunk */
    int64_t ahead = bucket->stored.at_ms > now_ms ? bucket->stored.at_ms - now_ms : 0;
    if (ahead > SF_QUOTA_CHUNK_MS)
        ahead = SF_QUOTA_CHUNK_MS;
    uint64_t room =
        bucket->stored.units + bucket->rate * (uint64_t)(SF_QUOTA_CHUNK_MS - ahead) / 1000;
    amount = min_u64(amount, room);
    bucket->credit += amount;
    if (amount <= bucket->stored.units) {
        bucket->stored.units -= amount;
        return;
    }
    uint64_t debt = amount - bucket->stored.units;
    bucket->stored.units = 0;
    bucket->stored.at_ms += refill_ms(debt, bucket->rate);
}

void sf_quota_bucket_grant(struct sf_quota_bucket *bucket, uint64_t units)
{
    if (SF_MUTANT(ccs_quota_no_debit) && units > bucket->credit)
        bucket->credit = units;
    SF_ASSERT(units <= bucket->now.units && units <= bucket->credit);
    bucket->now.units -= units;
    bucket->credit -= units;
}

void sf_quota_bucket_return(struct sf_quota_bucket *bucket, uint64_t units)
{
    bucket->credit = min_u64(bucket->credit + units, 2 * bucket->burst);
    bucket->now.units = min_u64(bucket->now.units + units, bucket->burst);
}

int64_t sf_quota_bucket_wait_ms(const struct sf_quota_bucket *bucket, uint64_t units,
                                int64_t now_ms, unsigned percent)
{
    uint64_t wanted = min_u64(units, part(bucket->burst, percent));
    int64_t wait = bucket->now.at_ms - now_ms;
    if (wanted > bucket->now.units)
        wait += refill_ms(wanted - bucket->now.units, part(bucket->rate, percent));
    return wait < 1 ? 1 : wait;
}
