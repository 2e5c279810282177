/*
 * Metrics registry. Families and series are made under the registry's lock and never removed, so a
 * series pointer stays valid and is updated with relaxed atomics only; rendering reads the same
 * atomics and may see one update of a pair and not the other, which a scrape tolerates. A family
 * holds at most SF_LIMIT_METRIC_SERIES series: label values that came from outside cannot make it
 * grow, they are folded into one series whose every value is "other".
 */
#include "base/metrics.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/text.h"

#define LABELS_MAX 8u

static const double bucket_ms[] = {0.1, 0.25, 0.5, 1,   2.5,  5,    10,   25,
                                   50,  100,  250, 500, 1000, 2500, 10000};

#define BUCKETS SF_ARRAY_LEN(bucket_ms)

struct sf_metric {
    struct sf_metric *next;            /* next series of the family; immutable once linked */
    char *values[LABELS_MAX];          /* immutable, owned: label values */
    _Atomic int64_t value;             /* atomic: counter, gauge, or number of observations */
    _Atomic uint64_t sum_us;           /* atomic: sum of observations in microseconds */
    _Atomic uint64_t buckets[BUCKETS]; /* atomic: observations per bucket, not cumulative */
};

struct sf_metric_family {
    struct sf_metric_family *next;  /* immutable once linked */
    struct sf_metrics *owner;       /* immutable */
    enum sf_metric_type type;       /* immutable */
    const char *name;               /* immutable, static text */
    const char *help;               /* immutable, static text */
    const char *labels[LABELS_MAX]; /* immutable, static text */
    size_t label_count;             /* immutable */
    struct sf_metric *first;        /* under the owner's lock */
    size_t series_count;            /* under the owner's lock */
};

struct sf_metrics {
    pthread_mutex_t mu;             /* guards the lists */
    struct sf_metric_family *first; /* under mu: in order of registration */
    struct sf_metric_family **tail; /* under mu: where the next family goes */
};

struct sf_metrics *sf_metrics_new(void)
{
    struct sf_metrics *metrics = sf_calloc(1, sizeof(*metrics));

    SF_ASSERT(pthread_mutex_init(&metrics->mu, NULL) == 0);
    metrics->tail = &metrics->first;
    return metrics;
}

void sf_metrics_destroy(struct sf_metrics *metrics)
{
    if (metrics == NULL)
        return;
    for (struct sf_metric_family *f = metrics->first; f != NULL;) {
        struct sf_metric_family *next_family = f->next;
        for (struct sf_metric *m = f->first; m != NULL;) {
            struct sf_metric *next = m->next;
            for (size_t i = 0; i < f->label_count; i++)
                free(m->values[i]);
            free(m);
            m = next;
        }
        free(f);
        f = next_family;
    }
    (void)pthread_mutex_destroy(&metrics->mu);
    free(metrics);
}

struct sf_metric_family *sf_metrics_family(struct sf_metrics *metrics, enum sf_metric_type type,
                                           const char *name, const char *help,
                                           const char *const *labels)
{
    struct sf_metric_family *family;

    (void)pthread_mutex_lock(&metrics->mu);
    for (family = metrics->first; family != NULL; family = family->next) {
        if (strcmp(family->name, name) == 0)
            break;
    }
    if (family == NULL) {
        family = sf_calloc(1, sizeof(*family));
        family->owner = metrics;
        family->type = type;
        family->name = name;
        family->help = help;
        for (; labels != NULL && labels[family->label_count] != NULL; family->label_count++) {
            SF_ASSERT(family->label_count < LABELS_MAX);
            family->labels[family->label_count] = labels[family->label_count];
        }
        *metrics->tail = family;
        metrics->tail = &family->next;
    }
    (void)pthread_mutex_unlock(&metrics->mu);
    SF_ASSERT(family->type == type);
    return family;
}

static struct sf_metric *find_series(const struct sf_metric_family *family,
                                     const char *const *values)
{
    for (struct sf_metric *m = family->first; m != NULL; m = m->next) {
        size_t i = 0;
        while (i < family->label_count && strcmp(m->values[i], values[i]) == 0)
            i++;
        if (i == family->label_count)
            return m;
    }
    return NULL;
}

struct sf_metric *sf_metric_series(struct sf_metric_family *family, const char *const *values)
{
    static const char *const other[LABELS_MAX] = {"other", "other", "other", "other",
                                                  "other", "other", "other", "other"};

    for (size_t i = 0; i < family->label_count; i++)
        SF_ASSERT(values != NULL && values[i] != NULL);
    (void)pthread_mutex_lock(&family->owner->mu);
    struct sf_metric *m = find_series(family, values);
    if (m == NULL && family->series_count >= SF_LIMIT_METRIC_SERIES) {
        values = other;
        m = find_series(family, values);
    }
    if (m == NULL) {
        m = sf_calloc(1, sizeof(*m));
        for (size_t i = 0; i < family->label_count; i++)
            m->values[i] = sf_strdup(values[i]);
        m->next = family->first;
        family->first = m;
        family->series_count++;
    }
    (void)pthread_mutex_unlock(&family->owner->mu);
    return m;
}

void sf_metric_add(struct sf_metric *metric, int64_t delta)
{
    (void)atomic_fetch_add_explicit(&metric->value, delta, memory_order_relaxed);
}

void sf_metric_set(struct sf_metric *metric, int64_t value)
{
    atomic_store_explicit(&metric->value, value, memory_order_relaxed);
}

void sf_metric_observe_ms(struct sf_metric *metric, double value_ms)
{
    double clamped = value_ms > 0 ? value_ms : 0;

    for (size_t i = 0; i < BUCKETS; i++) {
        if (clamped <= bucket_ms[i]) {
            (void)atomic_fetch_add_explicit(&metric->buckets[i], 1, memory_order_relaxed);
            break;
        }
    }
    (void)atomic_fetch_add_explicit(&metric->sum_us, (uint64_t)(clamped * 1000.0 + 0.5),
                                    memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&metric->value, 1, memory_order_relaxed);
}

int64_t sf_metric_value(const struct sf_metric *metric)
{
    return atomic_load_explicit(&metric->value, memory_order_relaxed);
}

/* Appends text with the escapes of the exposition format; what is not UTF-8 becomes '?'. */
static void append_escaped(struct sf_buf *out, const char *text, bool quoted)
{
    struct sf_view rest = sf_view_str(text);

    while (rest.len > 0) {
        size_t n = sf_utf8_scalar_length(rest.ptr, rest.len);
        if (n == 0)
            sf_buf_append_str(out, "?");
        else if (*rest.ptr == '\\')
            sf_buf_append_str(out, "\\\\");
        else if (*rest.ptr == '\n')
            sf_buf_append_str(out, "\\n");
        else if (*rest.ptr == '"' && quoted)
            sf_buf_append_str(out, "\\\"");
        else
            sf_buf_append(out, rest.ptr, n);
        n = n == 0 ? 1 : n;
        rest.ptr += n;
        rest.len -= n;
    }
}

/* Appends `name suffix {labels, le}` and a space. */
static void append_name(struct sf_buf *out, const struct sf_metric_family *family,
                        const struct sf_metric *metric, const char *suffix, const char *le)
{
    const char *separator = "{";

    sf_buf_append_str(out, family->name);
    sf_buf_append_str(out, suffix);
    for (size_t i = 0; i < family->label_count; i++) {
        sf_buf_printf(out, "%s%s=\"", separator, family->labels[i]);
        append_escaped(out, metric->values[i], true);
        sf_buf_append_str(out, "\"");
        separator = ",";
    }
    if (le != NULL) {
        sf_buf_printf(out, "%sle=\"%s\"", separator, le);
        separator = ",";
    }
    sf_buf_append_str(out, separator[0] == ',' ? "} " : " ");
}

static void render_histogram(struct sf_buf *out, const struct sf_metric_family *family,
                             const struct sf_metric *metric)
{
    /* The count is read first: a bucket bumped meanwhile must not exceed it, so it is raised. */
    uint64_t count = (uint64_t)sf_metric_value(metric);
    uint64_t sum_us = atomic_load_explicit(&metric->sum_us, memory_order_relaxed);
    uint64_t below = 0;

    for (size_t i = 0; i < BUCKETS; i++) {
        char le[24];
        below += atomic_load_explicit(&metric->buckets[i], memory_order_relaxed);
        (void)snprintf(le, sizeof(le), "%g", bucket_ms[i]);
        append_name(out, family, metric, "_bucket", le);
        sf_buf_printf(out, "%" PRIu64 "\n", below);
    }
    if (count < below)
        count = below;
    append_name(out, family, metric, "_bucket", "+Inf");
    sf_buf_printf(out, "%" PRIu64 "\n", count);
    append_name(out, family, metric, "_sum", NULL);
    sf_buf_printf(out, "%" PRIu64 ".%03" PRIu64 "\n", sum_us / 1000, sum_us % 1000);
    append_name(out, family, metric, "_count", NULL);
    sf_buf_printf(out, "%" PRIu64 "\n", count);
}

void sf_metrics_render(struct sf_metrics *metrics, struct sf_buf *out)
{
    static const char *const types[] = {"counter", "gauge", "histogram"};

    (void)pthread_mutex_lock(&metrics->mu);
    for (const struct sf_metric_family *f = metrics->first; f != NULL; f = f->next) {
        sf_buf_printf(out, "# HELP %s ", f->name);
        append_escaped(out, f->help, false);
        sf_buf_printf(out, "\n# TYPE %s %s\n", f->name, types[f->type]);
        for (const struct sf_metric *m = f->first; m != NULL; m = m->next) {
            if (f->type == SF_METRIC_HISTOGRAM) {
                render_histogram(out, f, m);
            } else {
                append_name(out, f, m, "", NULL);
                sf_buf_printf(out, "%" PRId64 "\n", sf_metric_value(m));
            }
        }
    }
    (void)pthread_mutex_unlock(&metrics->mu);
}
