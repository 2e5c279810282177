/*
 * Metrics registry with Prometheus text exposition. Metrics are registered once at start (names and
 * label names are static text) and then updated with atomics from any thread. Label values are few
 * and bounded: a series past SF_LIMIT_METRIC_SERIES of its family is folded into the label
 * value "other".
 */
#ifndef SF_BASE_METRICS_H
#define SF_BASE_METRICS_H

#include "base/buf.h"

struct sf_metrics;       /* a registry */
struct sf_metric_family; /* one name with its series */
struct sf_metric;        /* one series; pointer stays valid as long as the registry */

/* A registry. Destroy it after the last update; NULL is fine. */
struct sf_metrics *sf_metrics_new(void);
void sf_metrics_destroy(struct sf_metrics *metrics);

enum sf_metric_type { SF_METRIC_COUNTER, SF_METRIC_GAUGE, SF_METRIC_HISTOGRAM };

/* Registers a family; the same name again returns the same family. `labels` is NULL-terminated or
 * NULL. Histograms use fixed buckets in milliseconds: 0.1 0.25 0.5 1 2.5 5 10 25 50 100 250 500
 * 1000 2500 10000. */
struct sf_metric_family *sf_metrics_family(struct sf_metrics *metrics, enum sf_metric_type type,
                                           const char *name, const char *help,
                                           const char *const *labels);

/* The series with these label values (in the order of the labels, NULL-terminated; NULL for none);
 * made on first use. Takes a lock: cache the pointer on hot paths. */
struct sf_metric *sf_metric_series(struct sf_metric_family *family, const char *const *values);

/* Adds to a counter (delta >= 0) or gauge. */
void sf_metric_add(struct sf_metric *metric, int64_t delta);

/* Sets a gauge. */
void sf_metric_set(struct sf_metric *metric, int64_t value);

/* Adds one observation, in milliseconds, to a histogram. */
void sf_metric_observe_ms(struct sf_metric *metric, double value_ms);

/* Value of a counter or gauge; number of observations of a histogram. */
int64_t sf_metric_value(const struct sf_metric *metric);

/* Appends the whole registry in Prometheus text format 0.0.4. */
void sf_metrics_render(struct sf_metrics *metrics, struct sf_buf *out);

#endif
