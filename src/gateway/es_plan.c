/*
 * Model: the allocator runs a plan against one watermark; an issued id raises it by one, an
 * explicit one to just above itself. Before the explicit id at `first` the watermark is unknown and
 * only ids are issued, which cannot fail. From `first` on it is known, so what follows can be
 * decided here exactly as the allocator will.
 */
#include "gateway/es_plan.h"

size_t sf_es_plan_first(const struct sf_es_plan_item *items, size_t count)
{
    size_t i = 0;

    while (i < count && !items[i].explicit_id)
        i++;
    return i;
}

size_t sf_es_plan_select(struct sf_es_plan_item *items, size_t count, size_t first)
{
    uint64_t next = 0;      /* watermark, known from `first` on */
    bool exhausted = false; /* the watermark is 2^64 */
    size_t kept = 0;

    for (size_t i = 0; i < count; i++) {
        struct sf_es_plan_item *item = &items[i];
        bool known = i > first;
        if (item->explicit_id)
            item->refused = i < first || (known && (exhausted || item->id < next));
        else
            item->refused = false;
        if (item->refused)
            continue;
        kept++;
        if (item->explicit_id) {
            next = item->id + 1;
            exhausted = next == 0;
        } else if (known && !exhausted) {
            next++;
            exhausted = next == 0;
        }
    }
    return kept;
}

size_t sf_es_plan_next(const struct sf_es_plan_item *items, size_t count, size_t first)
{
    size_t i = first + 1;

    while (i < count && !(items[i].explicit_id && items[i].id > items[first].id))
        i++;
    return i < count ? i : count;
}
