/* Header texts of gRPC. Everything a peer sends is untrusted: lengths and digits are checked. */
#include "rpc/wire.h"

#include <stdio.h>

#define TIMEOUT_CAP_MS ((int64_t)1 << 41) /* about 68 years: no overflow when added to a clock */

/* Nanoseconds of a unit, 0 when unknown. */
static int64_t unit_ns(uint8_t unit)
{
    switch (unit) {
    case 'H':
        return INT64_C(3600000000000);
    case 'M':
        return INT64_C(60000000000);
    case 'S':
        return INT64_C(1000000000);
    case 'm':
        return INT64_C(1000000);
    case 'u':
        return INT64_C(1000);
    case 'n':
        return INT64_C(1);
    default:
        return 0;
    }
}

bool sf_grpc_timeout_parse(struct sf_view text, int64_t *out_ms)
{
    int64_t value = 0;

    if (text.len < 2 || text.len > SF_GRPC_TIMEOUT_MAX_DIGITS + 1)
        return false;
    for (size_t i = 0; i + 1 < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9')
            return false;
        value = value * 10 + (text.ptr[i] - '0');
    }
    int64_t ns = unit_ns(text.ptr[text.len - 1]);
    if (ns == 0)
        return false;
    if (ns >= 1000000) {
        int64_t unit_ms = ns / 1000000;
        *out_ms = value > TIMEOUT_CAP_MS / unit_ms ? TIMEOUT_CAP_MS : value * unit_ms;
    } else {
        *out_ms = (value * ns + 999999) / 1000000;
    }
    return true;
}

void sf_grpc_timeout_format(int64_t ms, char out_text[SF_GRPC_TIMEOUT_MAX_DIGITS + 2])
{
    static const struct {
        int64_t ms;
        char unit;
    } units[] = {{1, 'm'}, {1000, 'S'}, {60000, 'M'}, {3600000, 'H'}};
    const int64_t most = 99999999;

    for (size_t i = 0; i < SF_ARRAY_LEN(units); i++) {
        int64_t value = ms / units[i].ms + (ms % units[i].ms != 0);
        bool last = i + 1 == SF_ARRAY_LEN(units);
        if (value <= most || last) {
            (void)snprintf(out_text, SF_GRPC_TIMEOUT_MAX_DIGITS + 2, "%u%c",
                           (unsigned)(value < most ? value : most), units[i].unit);
            return;
        }
    }
}

void sf_grpc_message_encode(struct sf_view text, struct sf_buf *out)
{
    static const char hex[] = "0123456789ABCDEF";

    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.ptr[i];
        if (c >= 0x20 && c <= 0x7e && c != '%') {
            sf_buf_append(out, &c, 1);
        } else {
            char escape[3] = {'%', hex[c >> 4], hex[c & 15]};
            sf_buf_append(out, escape, sizeof(escape));
        }
    }
}

static int hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

void sf_grpc_message_decode(struct sf_view text, struct sf_buf *out)
{
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.ptr[i];
        if (c == '%' && i + 2 < text.len && hex_digit(text.ptr[i + 1]) >= 0 &&
            hex_digit(text.ptr[i + 2]) >= 0) {
            c = (uint8_t)(hex_digit(text.ptr[i + 1]) * 16 + hex_digit(text.ptr[i + 2]));
            i += 2;
        }
        sf_buf_append(out, &c, 1);
    }
}

bool sf_grpc_content_type(struct sf_view text)
{
    static const char prefix[] = "application/grpc";
    size_t n = sizeof(prefix) - 1;

    if (text.len < n || memcmp(text.ptr, prefix, n) != 0)
        return false;
    return text.len == n || text.ptr[n] == '+' || text.ptr[n] == ';' || text.ptr[n] == ' ';
}
