#include <stdio.h>

#include "commit/commit_priv.h"

/* Metrics of the coordinator; names by analogy with the allocator's. Source: note 10, contract 7.
 */

static struct sf_metric *one(struct sf_metrics *registry, enum sf_metric_type type,
                             const char *name, const char *help)
{
    static const char *const none[] = {NULL};
    return sf_metric_series(sf_metrics_family(registry, type, name, help, none), none);
}

void sf_commit_metrics_init(struct sf_commit_metrics *metrics, struct sf_metrics *registry)
{
    static const char *const labels[] = {"modality_combination", NULL};
    static const char *const by_shard[] = {"shard", NULL};
    static const char *const by_source[] = {"shard", "source", "modality", NULL};
    static const char *const combinations[8] = {
        "none", "metadata",     "semantic",     "metadata+semantic",
        "aux",  "metadata+aux", "semantic+aux", "metadata+semantic+aux"};
    *metrics = (struct sf_commit_metrics){0};
    if (registry == NULL)
        return;
#define PREFIX "searchfabric_commit_coordinator_"
    metrics->pending_intents = one(registry, SF_METRIC_GAUGE, PREFIX "pending_intents",
                                   "Write intents that are not durable yet.");
    metrics->oldest_age_ms =
        sf_metrics_family(registry, SF_METRIC_GAUGE, PREFIX "oldest_pending_intent_age_ms",
                          "Age of the oldest intent that is not published.", by_shard);
    metrics->lag_ms =
        sf_metrics_family(registry, SF_METRIC_GAUGE, PREFIX "safe_ts_lag_ms",
                          "Greatest safe_ts lag of the shard's lanes, physical ms.", by_shard);
    metrics->lag_tso =
        sf_metrics_family(registry, SF_METRIC_GAUGE, PREFIX "safe_ts_lag_tso",
                          "Greatest safe_ts lag of the shard's lanes, timestamp units.", by_shard);
    metrics->pressure = sf_metrics_family(
        registry, SF_METRIC_GAUGE, PREFIX "pressure",
        "What slows the shard down: milliseconds (tso, durability_lag), percent of "
        "the bound (hot_tier, writer_queue), slices (publish_backlog).",
        by_source);
    metrics->tso_batch_size = one(registry, SF_METRIC_GAUGE, PREFIX "tso_batch_size",
                                  "Timestamps that the last request of a lane asked for.");
    metrics->tso_rtt_ms = one(registry, SF_METRIC_HISTOGRAM, PREFIX "tso_rtt_ms",
                              "Time that a lane's request for timestamps took.");
    metrics->tso_exhausted = one(registry, SF_METRIC_COUNTER, PREFIX "tso_range_exhausted_total",
                                 "Times a lane had work and no timestamp in hand.");
    metrics->ready_depth = one(registry, SF_METRIC_GAUGE, PREFIX "manifest_ready_depth",
                               "Durable slices that no committed manifest holds yet.");
    metrics->epoch_changes = one(registry, SF_METRIC_COUNTER, PREFIX "leader_epoch_changes_total",
                                 "Shards claimed by this process.");
    metrics->recovery_ms =
        one(registry, SF_METRIC_HISTOGRAM, PREFIX "recovery_ms", "Time from the claim to serving.");
    metrics->lane_hits = one(registry, SF_METRIC_COUNTER, PREFIX "lane_hits_total",
                             "Lane look-ups answered from memory.");
    metrics->lane_misses = one(registry, SF_METRIC_COUNTER, PREFIX "lane_misses_total",
                               "Lane look-ups that read the committed manifest.");
    metrics->lane_load_ms = one(registry, SF_METRIC_HISTOGRAM, PREFIX "lane_reactivation_ms",
                                "Time to bring a cold lane back.");
    metrics->refused = one(registry, SF_METRIC_COUNTER, PREFIX "refused_batches_total",
                           "Submissions that were refused.");
    metrics->slices = one(registry, SF_METRIC_COUNTER, PREFIX "slices_total",
                          "Row-bearing slices that got a timestamp.");
    metrics->chunks =
        one(registry, SF_METRIC_COUNTER, PREFIX "wal_chunks_total", "WAL chunks that were stored.");
    struct sf_metric_family *waits =
        sf_metrics_family(registry, SF_METRIC_HISTOGRAM, PREFIX "barrier_wait_ms",
                          "Time from registration to durability, by touched modalities.", labels);
    for (unsigned i = 1; i < 8; i++)
        metrics->barrier_wait[i] =
            sf_metric_series(waits, (const char *const[]){combinations[i], NULL});
#undef PREFIX
}

void sf_commit_metrics_shard(const struct sf_commit_metrics *metrics, struct sf_shard *shard)
{
    char id[16];
    if (metrics->lag_ms == NULL)
        return;
    snprintf(id, sizeof(id), "%u", shard->id);
    const char *const values[] = {id, NULL};
    shard->lag_ms = sf_metric_series(metrics->lag_ms, values);
    shard->lag_tso = sf_metric_series(metrics->lag_tso, values);
    shard->oldest_age_ms = sf_metric_series(metrics->oldest_age_ms, values);
    static const char *const sources[SF_PRESSURE_COUNT][2] = {
        [SF_PRESSURE_TSO] = {"tso", ""},
        [SF_PRESSURE_HOT_TIER] = {"hot_tier", ""},
        [SF_PRESSURE_WRITER_QUEUE] = {"writer_queue", ""},
        [SF_PRESSURE_LAG_METADATA] = {"durability_lag", "metadata"},
        [SF_PRESSURE_LAG_SEMANTIC] = {"durability_lag", "semantic"},
        [SF_PRESSURE_PUBLISH_BACKLOG] = {"publish_backlog", ""},
    };
    for (unsigned i = 0; i < SF_PRESSURE_COUNT; i++)
        shard->pressure[i] = sf_metric_series(
            metrics->pressure, (const char *const[]){id, sources[i][0], sources[i][1], NULL});
}
