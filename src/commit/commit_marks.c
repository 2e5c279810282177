#include "commit/commit_marks.h"

#include "base/mutant.h"

/*
 * One queue per modality, in lane order, holds the intents that are not finished; finished ones are
 * taken off when they reach the front. So the lowest unfinished intent of a modality is a look at
 * the front of its queue, whatever the order of completions.
 */

static uint64_t lowest_open(struct sf_marks *marks, unsigned m)
{
    while (marks->first[m] != NULL && marks->first[m]->finished) {
        struct sf_marks_intent *intent = marks->first[m];
        marks->first[m] = intent->next[m];
        if (marks->first[m] == NULL)
            marks->last[m] = NULL;
        intent->queues &= (uint8_t) ~(1u << m);
    }
    return marks->first[m] == NULL ? UINT64_MAX : marks->first[m]->commit_ts;
}

static void advance(struct sf_marks *marks)
{
    uint64_t open_limit = UINT64_MAX; /* an open write holds safe_ts, its modality enabled or not */
    for (unsigned m = 0; m < SF_MODALITY_COUNT; m++) {
        uint64_t limit = lowest_open(marks, m);
        uint64_t at = marks->frontier.local_max_commit_ts;
        if (limit <= at && !SF_MUTANT(coord_safe_ts_early)) {
            at = limit - 1;
            open_limit = at < open_limit ? at : open_limit;
        }
        if (at > marks->frontier.applied_ts[m])
            marks->frontier.applied_ts[m] = at;
    }
    uint64_t safe = sf_frontier_safe_ts(&marks->frontier);
    safe = safe < open_limit ? safe : open_limit;
    if (safe > marks->safe_ts)
        marks->safe_ts = safe;
}

void sf_marks_init(struct sf_marks *marks, const struct sf_frontier *frontier, uint64_t safe_ts)
{
    *marks = (struct sf_marks){.frontier = *frontier, .safe_ts = safe_ts};
}

void sf_marks_enable(struct sf_marks *marks, uint8_t enabled)
{
    for (unsigned m = 0; m < SF_MODALITY_COUNT; m++) {
        bool joins = (enabled & ~marks->frontier.enabled & (1u << m)) != 0;
        if (joins && marks->frontier.applied_ts[m] < marks->safe_ts)
            marks->frontier.applied_ts[m] = marks->safe_ts;
    }
    marks->frontier.enabled = enabled;
    advance(marks);
}

void sf_marks_open(struct sf_marks *marks, struct sf_marks_intent *intent, uint64_t commit_ts,
                   uint8_t touched)
{
    SF_ASSERT(commit_ts > marks->frontier.local_max_commit_ts);
    *intent =
        (struct sf_marks_intent){.commit_ts = commit_ts, .touched = touched, .queues = touched};
    for (unsigned m = 0; m < SF_MODALITY_COUNT; m++) {
        if ((touched & (1u << m)) == 0)
            continue;
        if (marks->last[m] == NULL)
            marks->first[m] = intent;
        else
            marks->last[m]->next[m] = intent;
        marks->last[m] = intent;
    }
    marks->frontier.local_max_commit_ts = commit_ts;
    advance(marks);
}

void sf_marks_finish(struct sf_marks *marks, struct sf_marks_intent *intent)
{
    intent->finished = true;
    advance(marks);
}

void sf_marks_raise(struct sf_marks *marks, uint64_t commit_ts)
{
    if (commit_ts > marks->frontier.local_max_commit_ts)
        marks->frontier.local_max_commit_ts = commit_ts;
    advance(marks);
}
