/*
 * Model: a window ages from its end. The policy's ladder says at which age it may move to which
 * colder tier, its retention at which age it may go. Nothing here changes anything: a tier changes
 * when a manifest says so, a window goes when a manifest no longer holds it.
 */
#include "catalog/catalog_window.h"

/* base + age, at most INT64_MAX. */
static int64_t later(int64_t base_ms, uint64_t age_ms)
{
    uint64_t room = (uint64_t)INT64_MAX - (uint64_t)base_ms; /* exact for negative bases too */
    return age_ms > room ? INT64_MAX : (int64_t)((uint64_t)base_ms + age_ms);
}

struct sf_catalog_when sf_catalog_next_transition(int64_t window_end_ms, SF_PB(DataTier) tier,
                                                  const SF_PB(LifecyclePolicy) * policy)
{
    for (size_t i = 0; policy != NULL && i < policy->n_transitions; i++) {
        const SF_PB(LifecycleTransition) *step = policy->transitions[i];
        if (step->target_tier > tier)
            return (struct sf_catalog_when){true, later(window_end_ms, step->after_ms)};
    }
    return (struct sf_catalog_when){false, 0};
}

SF_PB(DataTier)
sf_catalog_due_tier(int64_t window_end_ms, SF_PB(DataTier) tier,
                    const SF_PB(LifecyclePolicy) * policy, int64_t now_unix_ms)
{
    SF_PB(DataTier) due = tier;
    for (size_t i = 0; policy != NULL && i < policy->n_transitions; i++) {
        const SF_PB(LifecycleTransition) *step = policy->transitions[i];
        if (step->target_tier > due && now_unix_ms >= later(window_end_ms, step->after_ms))
            due = step->target_tier;
    }
    return due;
}

struct sf_catalog_when sf_catalog_retention_deadline(int64_t window_end_ms,
                                                     const SF_PB(LifecyclePolicy) * policy)
{
    if (policy == NULL || policy->_retention_ms_case == 0)
        return (struct sf_catalog_when){false, 0};
    return (struct sf_catalog_when){true, later(window_end_ms, policy->retention_ms)};
}

bool sf_catalog_reached(struct sf_catalog_when when, int64_t now_unix_ms)
{
    return when.present && now_unix_ms >= when.unix_ms;
}

enum sf_catalog_reclaim sf_catalog_reclaim_check(const SF_PB(ManifestLifecycleWindow) * window,
                                                 const SF_PB(LifecyclePolicy) * policy,
                                                 uint64_t grace_ms, int64_t now_unix_ms)
{
    struct sf_catalog_when deadline = sf_catalog_retention_deadline(window->window_end_ms, policy);
    if (!sf_catalog_reached(deadline, now_unix_ms))
        return SF_CATALOG_RECLAIM_EARLY;
    if (window->n_object_keys != 0)
        return SF_CATALOG_RECLAIM_REFERENCED;
    if (window->n_retired_object_keys == 0)
        return SF_CATALOG_RECLAIM_EMPTY;
    struct sf_catalog_when safe = {true, later(window->retired_at_unix_ms, grace_ms)};
    return sf_catalog_reached(safe, now_unix_ms) ? SF_CATALOG_RECLAIM_NOW
                                                 : SF_CATALOG_RECLAIM_GRACE;
}
