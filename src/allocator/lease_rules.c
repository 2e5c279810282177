/* Rates are counted by whole seconds: two counters a lane, no timer, nothing to do while idle. */
#include "allocator/lease_rules.h"

#define SECOND_MS 1000
#define SHORT_MS  1000 /* a range used up faster is too small */
#define LONG_MS   4000 /* a range that lasted longer is too large */

/* Lets the counters end with the second of `now_ms`. */
static void roll(struct sf_lease_use *use, int64_t now_ms)
{
    int64_t second = now_ms / SECOND_MS;

    if (second == use->second)
        return;
    bool next = second == use->second + 1;
    use->last_requests = next ? use->requests : 0;
    use->last_ids = next ? use->ids : 0;
    use->requests = 0;
    use->ids = 0;
    use->second = second;
}

void sf_lease_note_issue(struct sf_lease_use *use, int64_t now_ms, uint64_t ids)
{
    roll(use, now_ms);
    use->requests++;
    use->ids += ids;
}

void sf_lease_note_explicit(struct sf_lease_use *use, int64_t now_ms)
{
    use->explicit_seen = true;
    use->explicit_ms = now_ms;
}

void sf_lease_note_range(struct sf_lease_use *use, int64_t now_ms, uint64_t ids)
{
    use->range_ids = ids;
    use->range_ms = now_ms;
}

uint64_t sf_lease_rate(const struct sf_lease_use *use, int64_t now_ms)
{
    struct sf_lease_use now = *use;

    roll(&now, now_ms);
    return now.requests > now.last_requests ? now.requests : now.last_requests;
}

enum sf_lease_heat sf_lease_heat(const struct sf_alloc_lease_policy *policy,
                                 const struct sf_lease_use *use, int64_t now_ms)
{
    if (!policy->on)
        return SF_LEASE_OFF;
    if (use->explicit_seen && now_ms - use->explicit_ms < (int64_t)policy->quiet_ms)
        return SF_LEASE_EXPLICIT;
    return sf_lease_rate(use, now_ms) < policy->hot_per_s ? SF_LEASE_SLOW : SF_LEASE_HOT;
}

const char *sf_lease_heat_text(enum sf_lease_heat heat)
{
    static const char *const texts[] = {"hot", "leasing_off", "explicit_ids_lately",
                                        "rate_below_threshold"};
    return texts[heat];
}

static uint64_t clamp(uint64_t ids, const struct sf_alloc_lease_policy *policy)
{
    if (ids < policy->min_ids)
        return policy->min_ids;
    return ids > policy->max_ids ? policy->max_ids : ids;
}

uint64_t sf_lease_range_ids(const struct sf_alloc_lease_policy *policy,
                            const struct sf_lease_use *use, int64_t now_ms)
{
    struct sf_lease_use now = *use;

    if (use->range_ids == 0) {
        roll(&now, now_ms);
        return clamp(now.ids > now.last_ids ? now.ids : now.last_ids, policy);
    }
    int64_t lasted_ms = now_ms - use->range_ms;
    if (lasted_ms < SHORT_MS)
        return clamp(2 * use->range_ids, policy);
    return clamp(lasted_ms > LONG_MS ? use->range_ids / 2 : use->range_ids, policy);
}

struct sf_watermark sf_watermark_up(struct sf_watermark mark, uint64_t ids)
{
    if (mark.exhausted || ids == 0)
        return mark;
    if (ids > UINT64_MAX - mark.next)
        return (struct sf_watermark){.exhausted = true};
    return (struct sf_watermark){.next = mark.next + ids};
}

uint64_t sf_watermark_between(struct sf_watermark low, struct sf_watermark high)
{
    if (sf_watermark_compare(low, high) >= 0)
        return 0;
    if (high.exhausted && low.next == 0)
        return UINT64_MAX;       /* 2^64 does not fit */
    return high.next - low.next; /* next of 2^64 is 0: the difference holds modulo 2^64 */
}
