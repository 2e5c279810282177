/*
 * Diagnostics in fixed space: no allocation, so that reporting an error cannot fail. Text that does
 * not fit ends in "..."; the cut is made at a scalar boundary so that the result stays UTF-8.
 */
#include "base/diag.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define CUT_MARK "..."

/* Formats into dst; marks what was cut. */
static void format_cut(char *dst, size_t size, const char *fmt, va_list args)
{
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): started by every caller */
    int n = vsnprintf(dst, size, fmt, args);

    if (n < 0) {
        dst[0] = '\0';
        return;
    }
    if ((size_t)n < size)
        return;
    size_t end = size - sizeof(CUT_MARK);
    while (end > 0 && ((unsigned char)dst[end] & 0xC0u) == 0x80u)
        end--;
    memcpy(dst + end, CUT_MARK, sizeof(CUT_MARK));
}

void sf_diag_init(struct sf_diag *diag)
{
    diag->err = SF_OK;
    diag->area = NULL;
    diag->message[0] = '\0';
    diag->detail_count = 0;
}

enum sf_err sf_diag_set(struct sf_diag *diag, enum sf_err err, const char *fmt, ...)
{
    if (diag == NULL)
        return err;

    char text[SF_DIAG_TEXT_BYTES]; /* arguments may point into the diag itself */
    va_list args;

    va_start(args, fmt);
    format_cut(text, sizeof(text), fmt, args);
    va_end(args);
    memcpy(diag->message, text, strlen(text) + 1);
    diag->err = err;
    diag->detail_count = 0;
    return err;
}

void sf_diag_wrap(struct sf_diag *diag, const char *fmt, ...)
{
    if (diag == NULL)
        return;

    char text[SF_DIAG_TEXT_BYTES];
    char old[SF_DIAG_TEXT_BYTES];
    va_list args;

    va_start(args, fmt);
    format_cut(text, sizeof(text), fmt, args);
    va_end(args);
    memcpy(old, diag->message, strlen(diag->message) + 1);

    size_t n = strlen(text);
    size_t room = sizeof(diag->message) - n;
    memcpy(diag->message, text, n + 1);
    if (old[0] == '\0' || room <= sizeof(CUT_MARK) + 2)
        return;
    memcpy(diag->message + n, ": ", 2);
    n += 2;
    room -= 2;
    size_t m = strlen(old);
    if (m < room) {
        memcpy(diag->message + n, old, m + 1);
        return;
    }
    m = room - sizeof(CUT_MARK);
    while (m > 0 && ((unsigned char)old[m] & 0xC0u) == 0x80u)
        m--;
    memcpy(diag->message + n, old, m);
    memcpy(diag->message + n + m, CUT_MARK, sizeof(CUT_MARK));
}

void sf_diag_area(struct sf_diag *diag, const char *area)
{
    if (diag != NULL)
        diag->area = area;
}

static struct sf_diag_detail *find_detail(struct sf_diag *diag, const char *key)
{
    for (unsigned i = 0; i < diag->detail_count; i++) {
        if (strcmp(diag->details[i].key, key) == 0)
            return &diag->details[i];
    }
    return NULL;
}

void sf_diag_detail(struct sf_diag *diag, const char *key, const char *fmt, ...)
{
    if (diag == NULL)
        return;

    struct sf_diag_detail *detail = find_detail(diag, key);
    char value[SF_DIAG_VALUE_BYTES];
    va_list args;

    va_start(args, fmt);
    format_cut(value, sizeof(value), fmt, args);
    va_end(args);
    if (detail == NULL) {
        size_t n = strlen(key);

        SF_ASSERT(diag->detail_count < SF_DIAG_MAX_DETAILS);
        SF_ASSERT(n < SF_DIAG_KEY_BYTES);
        detail = &diag->details[diag->detail_count++];
        memcpy(detail->key, key, n + 1);
    }
    memcpy(detail->value, value, strlen(value) + 1);
}

const char *sf_diag_get(const struct sf_diag *diag, const char *key)
{
    for (unsigned i = 0; i < diag->detail_count; i++) {
        if (strcmp(diag->details[i].key, key) == 0)
            return diag->details[i].value;
    }
    return NULL;
}

enum sf_err sf_diag_bad_field(struct sf_diag *diag, const char *field, const char *violation,
                              const char *fmt, ...)
{
    if (diag == NULL)
        return SF_BAD_REQUEST;

    char text[SF_DIAG_TEXT_BYTES];
    va_list args;

    va_start(args, fmt);
    format_cut(text, sizeof(text), fmt, args);
    va_end(args);
    (void)sf_diag_set(diag, SF_BAD_REQUEST, "%s", text);
    sf_diag_detail(diag, "field", "%s", field);
    sf_diag_detail(diag, "violation", "%s", violation);
    return SF_BAD_REQUEST;
}
