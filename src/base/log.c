/*
 * Structured log. A line is formatted in a stack buffer and leaves with one write(2), so that lines
 * of different threads never mix and no lock is held over I/O. A value is printed bare when it
 * consists of printable ASCII without space, quote, '=' or backslash; otherwise it is quoted, with
 * control bytes as \xHH, so that no value can forge a line. A line too long ends in "...".
 */
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/limits.h"

#define LINE_BYTES 4096u
#define CUT_MARK   "...\n"

static _Atomic int log_level = SF_LOG_INFO;
static _Atomic int log_fd = 2;

struct line {
    char text[LINE_BYTES]; /* not terminated */
    size_t len;            /* bytes used */
    bool cut;              /* something did not fit */
};

bool sf_log_enabled(enum sf_log_level level)
{
    return (int)level >= atomic_load_explicit(&log_level, memory_order_relaxed);
}

void sf_log_set_level(enum sf_log_level level)
{
    atomic_store_explicit(&log_level, (int)level, memory_order_relaxed);
}

void sf_log_set_fd(int fd)
{
    atomic_store_explicit(&log_fd, fd, memory_order_relaxed);
}

static void put(struct line *line, const char *bytes, size_t len)
{
    size_t room = sizeof(line->text) - sizeof(CUT_MARK) - line->len;

    if (line->cut || len > room) {
        line->cut = true;
        return;
    }
    memcpy(line->text + line->len, bytes, len);
    line->len += len;
}

static void put_str(struct line *line, const char *text)
{
    put(line, text, strlen(text));
}

static bool is_bare(struct sf_view value)
{
    for (size_t i = 0; i < value.len; i++) {
        uint8_t c = value.ptr[i];
        if (c <= ' ' || c >= 0x7f || c == '"' || c == '=' || c == '\\')
            return false;
    }
    return value.len > 0;
}

static void put_value(struct line *line, struct sf_view value)
{
    if (is_bare(value)) {
        put(line, (const char *)value.ptr, value.len);
        return;
    }
    put_str(line, "\"");
    for (size_t i = 0; i < value.len && !line->cut; i++) {
        uint8_t c = value.ptr[i];
        char escaped[5];
        if (c == '"' || c == '\\') {
            escaped[0] = '\\';
            escaped[1] = (char)c;
            put(line, escaped, 2);
        } else if (c < ' ' || c == 0x7f) {
            int n = snprintf(escaped, sizeof(escaped), "\\x%02x", c);
            put(line, escaped, (size_t)n);
        } else {
            put(line, (const char *)&value.ptr[i], 1);
        }
    }
    put_str(line, "\"");
}

static void put_pair(struct line *line, const struct sf_log_kv *pair)
{
    char number[24];

    put_str(line, " ");
    put_str(line, pair->key);
    put_str(line, "=");
    switch (pair->type) {
    case SF_KV_TYPE_STR:
        put_value(line, sf_view_str(pair->value.str));
        break;
    case SF_KV_TYPE_VIEW:
        put_value(line, pair->value.view);
        break;
    case SF_KV_TYPE_U64:
        (void)snprintf(number, sizeof(number), "%" PRIu64, pair->value.u64);
        put_str(line, number);
        break;
    case SF_KV_TYPE_I64:
        (void)snprintf(number, sizeof(number), "%" PRId64, pair->value.i64);
        put_str(line, number);
        break;
    }
}

static void put_time(struct line *line)
{
    struct timespec now;
    struct tm utc;
    char text[48];

    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &utc);
    size_t n = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
    (void)snprintf(text + n, sizeof(text) - n, ".%03uZ", (unsigned)(now.tv_nsec / 1000000) % 1000u);
    put_str(line, text);
}

bool sf_log_site_allows(struct sf_log_site *site, int64_t now_s, uint64_t *out_suppressed)
{
    *out_suppressed = 0;
    if (atomic_exchange_explicit(&site->second, now_s, memory_order_relaxed) != now_s)
        atomic_store_explicit(&site->lines, 0, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&site->lines, 1, memory_order_relaxed) >=
        SF_LIMIT_LOG_LINES_PER_SECOND) {
        atomic_fetch_add_explicit(&site->suppressed, 1, memory_order_relaxed);
        return false;
    }
    *out_suppressed = atomic_exchange_explicit(&site->suppressed, 0, memory_order_relaxed);
    return true;
}

static int64_t mono_second(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

void sf_log_write(struct sf_log_site *site, enum sf_log_level level, const char *event,
                  const struct sf_log_kv *pairs, size_t count)
{
    static const char *const names[] = {" DEBUG ", " INFO ", " WARN ", " ERROR "};
    int fd = atomic_load_explicit(&log_fd, memory_order_relaxed);
    uint64_t suppressed = 0;
    struct line line;

    if ((int)level < atomic_load_explicit(&log_level, memory_order_relaxed) || fd < 0)
        return;
    if (level >= SF_LOG_WARN && !sf_log_site_allows(site, mono_second(), &suppressed))
        return;
    line.len = 0;
    line.cut = false;
    put_time(&line);
    put_str(&line, names[level]);
    put_str(&line, event);
    for (size_t i = 0; i < count; i++)
        put_pair(&line, &pairs[i]);
    if (suppressed > 0)
        put_pair(&line, &SF_KV_U64("suppressed", suppressed));
    if (line.cut) {
        memcpy(line.text + line.len, CUT_MARK, sizeof(CUT_MARK) - 1);
        line.len += sizeof(CUT_MARK) - 1;
    } else {
        line.text[line.len++] = '\n';
    }
    while (write(fd, line.text, line.len) < 0 && errno == EINTR)
        ;
}
