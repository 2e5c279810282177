/*
 * Structured log: one line an event, `ts level event key=value ...`, ids first, values quoted where
 * needed. Event names come from docs/operations/log-events.md. Secrets never; hot paths log
 * summaries only. Any thread; a line is written with one write(2) to stderr or the configured file.
 *
 * One place in the code writes at most SF_LIMIT_LOG_LINES_PER_SECOND lines of WARN or ERROR a
 * second; the next line it writes says in `suppressed` how many were left out.
 */
#ifndef SF_BASE_LOG_H
#define SF_BASE_LOG_H

#include <stdatomic.h>

#include "base/view.h"

enum sf_log_level { SF_LOG_DEBUG, SF_LOG_INFO, SF_LOG_WARN, SF_LOG_ERROR };

/* One key with its formatted value; built by the SF_KV macros. */
struct sf_log_kv {
    const char *key;                                                               /* static text */
    enum { SF_KV_TYPE_STR, SF_KV_TYPE_VIEW, SF_KV_TYPE_U64, SF_KV_TYPE_I64 } type; /* of value */
    union {
        const char *str;     /* SF_KV_TYPE_STR: NUL-terminated, NULL prints as empty */
        struct sf_view view; /* SF_KV_TYPE_VIEW: UTF-8 */
        uint64_t u64;        /* SF_KV_TYPE_U64 */
        int64_t i64;         /* SF_KV_TYPE_I64 */
    } value;                 /* the member that `type` names */
};

#define SF_KV_STR(k, v) ((struct sf_log_kv){.key = (k), .type = SF_KV_TYPE_STR, .value.str = (v)})
#define SF_KV_VIEW(k, v)                                                                           \
    ((struct sf_log_kv){.key = (k), .type = SF_KV_TYPE_VIEW, .value.view = (v)})
#define SF_KV_U64(k, v) ((struct sf_log_kv){.key = (k), .type = SF_KV_TYPE_U64, .value.u64 = (v)})
#define SF_KV_I64(k, v) ((struct sf_log_kv){.key = (k), .type = SF_KV_TYPE_I64, .value.i64 = (v)})

/* Lowest level that is written (default INFO). */
void sf_log_set_level(enum sf_log_level level);

/* True when lines of `level` are written: for what is costly to format. Any thread. */
bool sf_log_enabled(enum sf_log_level level);

/* Sends lines to file descriptor `fd` (default 2); -1 drops them (tests, simulator). */
void sf_log_set_fd(int fd);

/* What one SF_LOG remembers. */
struct sf_log_site {
    _Atomic int64_t second;      /* monotonic second that `lines` counts */
    _Atomic uint32_t lines;      /* lines of that second, those left out included */
    _Atomic uint64_t suppressed; /* lines left out since the last one that was written */
};

/* True when a line may be written at monotonic second `now_s`; *out_suppressed is what was left out
 * before it. Any thread; threads that race at the turn of a second may write a few more. */
bool sf_log_site_allows(struct sf_log_site *site, int64_t now_s, uint64_t *out_suppressed);

/* Writes one event with `count` pairs; use SF_LOG. */
void sf_log_write(struct sf_log_site *site, enum sf_log_level level, const char *event,
                  const struct sf_log_kv *pairs, size_t count);

/* SF_LOG(INFO, "store_open", SF_KV_STR("store_id", id), ...): at least one pair. The event is a
 * literal, so that tools/check-events finds it. */
#define SF_LOG(level, event, ...)                                                                  \
    do {                                                                                           \
        static struct sf_log_site sf_log_site_here;                                                \
        sf_log_write(&sf_log_site_here, SF_LOG_##level, (event),                                   \
                     (struct sf_log_kv[]){__VA_ARGS__},                                            \
                     sizeof((struct sf_log_kv[]){__VA_ARGS__}) / sizeof(struct sf_log_kv));        \
    } while (0)

#endif
