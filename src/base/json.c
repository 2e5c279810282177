/*
 * Strict JSON reader. Every byte is looked at once; strings go eight bytes at a time while they are
 * plain ASCII. Depth is counted by the container calls; sf_json_skip recurses through them and is
 * bounded by the same count.
 *
 * A hand-written reader because the library at hand cannot do what the durable format needs: it
 * refuses integers of 2^63 and above and \u0000, and it rewrites decimals, while unknown members
 * and user documents must survive byte for byte.
 */
#include "base/json.h"

#include "base/text.h"

void sf_json_init(struct sf_json *j, struct sf_view text, unsigned max_depth)
{
    static const uint8_t empty[1];

    j->start = text.len == 0 ? empty : text.ptr;
    j->at = j->start;
    j->end = j->start + text.len;
    j->depth = 0;
    j->max_depth = max_depth;
    j->fresh = false;
    j->too_deep = false;
    j->error = NULL;
}

bool sf_json_fail(struct sf_json *j, const char *static_text)
{
    if (j->error == NULL)
        j->error = static_text;
    return false;
}

size_t sf_json_offset(const struct sf_json *j)
{
    return (size_t)(j->at - j->start);
}

static void skip_space(struct sf_json *j)
{
    while (j->at < j->end && (*j->at == ' ' || *j->at == '\n' || *j->at == '\r' || *j->at == '\t'))
        j->at++;
}

enum sf_json_type sf_json_peek(struct sf_json *j)
{
    if (j->error != NULL)
        return SF_JSON_ERROR;
    skip_space(j);
    if (j->at < j->end) {
        switch (*j->at) {
        case '{':
            return SF_JSON_OBJECT;
        case '[':
            return SF_JSON_ARRAY;
        case '"':
            return SF_JSON_STRING;
        case 't':
        case 'f':
            return SF_JSON_BOOL;
        case 'n':
            return SF_JSON_NULL;
        default:
            if (*j->at == '-' || (*j->at >= '0' && *j->at <= '9'))
                return SF_JSON_NUMBER;
            break;
        }
    }
    (void)sf_json_fail(j, j->at == j->end ? "unexpected end of text" : "a value is expected");
    return SF_JSON_ERROR;
}

static bool begin(struct sf_json *j, enum sf_json_type type, const char *expected)
{
    enum sf_json_type found = sf_json_peek(j);

    if (found == SF_JSON_ERROR)
        return false;
    if (found != type)
        return sf_json_fail(j, expected);
    if (j->depth == j->max_depth) {
        j->too_deep = true;
        return sf_json_fail(j, "nested too deeply");
    }
    j->at++;
    j->depth++;
    j->fresh = true;
    return true;
}

bool sf_json_object_begin(struct sf_json *j)
{
    return begin(j, SF_JSON_OBJECT, "an object is expected");
}

bool sf_json_array_begin(struct sf_json *j)
{
    return begin(j, SF_JSON_ARRAY, "an array is expected");
}

/* Steps over the comma before an item, or over the closing bracket (then false). */
static bool next_item(struct sf_json *j, uint8_t close, const char *expected)
{
    if (j->error != NULL)
        return false;
    skip_space(j);
    if (j->at == j->end)
        return sf_json_fail(j, "unexpected end of text");
    if (*j->at == close) {
        j->at++;
        j->depth--;
        j->fresh = false;
        return false;
    }
    if (!j->fresh) {
        if (*j->at != ',')
            return sf_json_fail(j, expected);
        j->at++;
    }
    j->fresh = false;
    return true;
}

bool sf_json_array_next(struct sf_json *j)
{
    return next_item(j, ']', "',' or ']' is expected");
}

bool sf_json_object_next(struct sf_json *j, struct sf_json_str *out_name)
{
    if (!next_item(j, '}', "',' or '}' is expected"))
        return false;
    skip_space(j);
    if (j->at == j->end || *j->at != '"')
        return sf_json_fail(j, "a member name is expected");
    if (!sf_json_string(j, out_name))
        return false;
    skip_space(j);
    if (j->at == j->end || *j->at != ':')
        return sf_json_fail(j, "':' is expected");
    j->at++;
    return true;
}

static int hex4(const uint8_t *at)
{
    int value = 0;

    for (unsigned i = 0; i < 4; i++) {
        uint8_t c = at[i];
        uint8_t lower = c | 0x20u;
        if (c >= '0' && c <= '9')
            value = value * 16 + (c - '0');
        else if (lower >= 'a' && lower <= 'f')
            value = value * 16 + (lower - 'a' + 10);
        else
            return -1;
    }
    return value;
}

/* Length of the escape sequence at `at` (a backslash), 0 when it is malformed. */
static size_t escape_length(const uint8_t *at, const uint8_t *end)
{
    if (end - at < 2)
        return 0;
    if (at[1] != 'u')
        return at[1] != '\0' && strchr("\"\\/bfnrt", at[1]) != NULL ? 2 : 0;
    int unit = end - at < 6 ? -1 : hex4(at + 2);
    if (unit < 0 || (unit >= 0xdc00 && unit <= 0xdfff))
        return 0;
    if (unit < 0xd800 || unit > 0xdbff)
        return 6;
    if (end - at < 12 || at[6] != '\\' || at[7] != 'u')
        return 0;
    int low = hex4(at + 8);
    return low >= 0xdc00 && low <= 0xdfff ? 12 : 0;
}

/* Passes bytes that need no look of their own: ASCII but quote, backslash and controls. */
static const uint8_t *skip_plain(const uint8_t *at, const uint8_t *end)
{
    const uint64_t ones = 0x0101010101010101u;
    const uint64_t highs = 0x8080808080808080u;

    while (end - at >= 8) {
        uint64_t w;
        memcpy(&w, at, sizeof(w));
        uint64_t quote = w ^ (ones * '"');
        uint64_t slash = w ^ (ones * '\\');
        uint64_t special = w | (w - ones * 0x20u) | (quote - ones) | (slash - ones);
        if ((special & highs) != 0)
            break;
        at += 8;
    }
    while (at < end && *at >= 0x20 && *at < 0x80 && *at != '"' && *at != '\\')
        at++;
    return at;
}

bool sf_json_string(struct sf_json *j, struct sf_json_str *out_string)
{
    enum sf_json_type type = sf_json_peek(j);

    if (type == SF_JSON_ERROR)
        return false;
    if (type != SF_JSON_STRING)
        return sf_json_fail(j, "a string is expected");
    const uint8_t *first = ++j->at;
    out_string->escaped = false;
    for (;;) {
        j->at = skip_plain(j->at, j->end);
        if (j->at == j->end)
            return sf_json_fail(j, "unterminated string");
        uint8_t c = *j->at;
        size_t n;
        if (c == '"')
            break;
        if (c < 0x20)
            return sf_json_fail(j, "control character in a string");
        if (c == '\\') {
            n = escape_length(j->at, j->end);
            out_string->escaped = true;
            if (n == 0)
                return sf_json_fail(j, "malformed escape sequence");
        } else {
            n = sf_utf8_scalar_length(j->at, (size_t)(j->end - j->at));
            if (n == 0)
                return sf_json_fail(j, "invalid UTF-8 in a string");
        }
        j->at += n;
    }
    out_string->raw = sf_view_bytes(first, (size_t)(j->at - first));
    j->at++;
    return true;
}

static const uint8_t *skip_digits(const uint8_t *at, const uint8_t *end)
{
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return at;
}

bool sf_json_number(struct sf_json *j, struct sf_view *out_raw)
{
    enum sf_json_type type = sf_json_peek(j);

    if (type == SF_JSON_ERROR)
        return false;
    if (type != SF_JSON_NUMBER)
        return sf_json_fail(j, "a number is expected");

    const uint8_t *at = j->at + (*j->at == '-' ? 1 : 0);
    const uint8_t *digits = at;
    at = skip_digits(at, j->end);
    bool good = at > digits && (*digits != '0' || at == digits + 1);
    if (good && at < j->end && *at == '.') {
        digits = at + 1;
        at = skip_digits(digits, j->end);
        good = at > digits;
    }
    if (good && at < j->end && (*at == 'e' || *at == 'E')) {
        digits = at + 1;
        if (digits < j->end && (*digits == '+' || *digits == '-'))
            digits++;
        at = skip_digits(digits, j->end);
        good = at > digits;
    }
    if (!good)
        return sf_json_fail(j, "malformed number");
    *out_raw = sf_view_bytes(j->at, (size_t)(at - j->at));
    j->at = at;
    return true;
}

static bool word(struct sf_json *j, const char *text)
{
    size_t n = strlen(text);

    if ((size_t)(j->end - j->at) < n || memcmp(j->at, text, n) != 0)
        return sf_json_fail(j, "a value is expected");
    j->at += n;
    return true;
}

bool sf_json_bool(struct sf_json *j, bool *out_value)
{
    enum sf_json_type type = sf_json_peek(j);

    if (type == SF_JSON_ERROR)
        return false;
    if (type != SF_JSON_BOOL)
        return sf_json_fail(j, "true or false is expected");
    *out_value = *j->at == 't';
    return word(j, *out_value ? "true" : "false");
}

bool sf_json_null(struct sf_json *j)
{
    enum sf_json_type type = sf_json_peek(j);

    if (type == SF_JSON_ERROR)
        return false;
    if (type != SF_JSON_NULL)
        return sf_json_fail(j, "null is expected");
    return word(j, "null");
}

bool sf_json_skip(struct sf_json *j, struct sf_view *out_raw)
{
    struct sf_json_str text;
    struct sf_view number;
    bool flag;
    enum sf_json_type type = sf_json_peek(j);
    const uint8_t *first = j->at;

    switch (type) {
    case SF_JSON_OBJECT:
        if (sf_json_object_begin(j)) {
            while (sf_json_object_next(j, &text))
                (void)sf_json_skip(j, NULL);
        }
        break;
    case SF_JSON_ARRAY:
        if (sf_json_array_begin(j)) {
            while (sf_json_array_next(j))
                (void)sf_json_skip(j, NULL);
        }
        break;
    case SF_JSON_STRING:
        (void)sf_json_string(j, &text);
        break;
    case SF_JSON_NUMBER:
        (void)sf_json_number(j, &number);
        break;
    case SF_JSON_BOOL:
        (void)sf_json_bool(j, &flag);
        break;
    case SF_JSON_NULL:
        (void)sf_json_null(j);
        break;
    case SF_JSON_ERROR:
        break;
    }
    if (j->error != NULL)
        return false;
    if (out_raw != NULL)
        *out_raw = sf_view_bytes(first, (size_t)(j->at - first));
    return true;
}

bool sf_json_end(struct sf_json *j)
{
    if (j->error != NULL)
        return false;
    skip_space(j);
    return j->at == j->end ? true : sf_json_fail(j, "text after the value");
}

bool sf_json_valid(struct sf_view text, unsigned max_depth)
{
    struct sf_json j;

    sf_json_init(&j, text, max_depth);
    return sf_json_skip(&j, NULL) && sf_json_end(&j);
}

/* Writes one scalar value as UTF-8; returns its length. */
static size_t put_scalar(uint8_t *out, uint32_t c)
{
    if (c < 0x80) {
        out[0] = (uint8_t)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (uint8_t)(0xc0u | (c >> 6));
        out[1] = (uint8_t)(0x80u | (c & 0x3fu));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (uint8_t)(0xe0u | (c >> 12));
        out[1] = (uint8_t)(0x80u | ((c >> 6) & 0x3fu));
        out[2] = (uint8_t)(0x80u | (c & 0x3fu));
        return 3;
    }
    out[0] = (uint8_t)(0xf0u | (c >> 18));
    out[1] = (uint8_t)(0x80u | ((c >> 12) & 0x3fu));
    out[2] = (uint8_t)(0x80u | ((c >> 6) & 0x3fu));
    out[3] = (uint8_t)(0x80u | (c & 0x3fu));
    return 4;
}

/* The scalar value of the (checked) escape sequence at `at`. */
static uint32_t escape_value(const uint8_t *at, size_t length)
{
    if (length == 2) {
        static const char from[] = "bfnrt";
        static const char to[] = "\b\f\n\r\t";
        const char *found = strchr(from, at[1]);
        return found == NULL ? at[1] : (uint8_t)to[found - from];
    }
    uint32_t unit = (uint32_t)hex4(at + 2);
    if (length == 6)
        return unit;
    return 0x10000u + ((unit - 0xd800u) << 10) + ((uint32_t)hex4(at + 8) - 0xdc00u);
}

size_t sf_json_unescape(struct sf_json_str string, void *out)
{
    uint8_t *to = out;
    const uint8_t *at = string.raw.ptr;
    const uint8_t *end = at + string.raw.len;

    if (!string.escaped) {
        if (string.raw.len > 0)
            memcpy(to, at, string.raw.len);
        return string.raw.len;
    }
    while (at < end) {
        if (*at != '\\') {
            *to++ = *at++;
            continue;
        }
        size_t n = escape_length(at, end);
        SF_ASSERT(n != 0);
        to += put_scalar(to, escape_value(at, n));
        at += n;
    }
    return (size_t)(to - (uint8_t *)out);
}

bool sf_json_str_is(struct sf_json_str string, const char *text)
{
    struct sf_view want = sf_view_str(text);
    uint8_t plain[256];

    if (!string.escaped)
        return sf_view_equal(string.raw, want);
    /* An escape sequence is at most six times as long as what it stands for. */
    if (string.raw.len > sizeof(plain) || string.raw.len > want.len * 6)
        return false;
    size_t n = sf_json_unescape(string, plain);
    return sf_view_equal(sf_view_bytes(plain, n), want);
}

static void append_escaped(struct sf_buf *out, uint8_t c)
{
    static const char from[] = "\"\\\b\f\n\r\t";
    static const char to[] = "\"\\bfnrt";
    const char *found = c == 0 ? NULL : strchr(from, c);

    if (found != NULL) {
        char pair[2] = {'\\', to[found - from]};
        sf_buf_append(out, pair, sizeof(pair));
    } else {
        static const char hex[] = "0123456789abcdef";
        char six[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15u]};
        sf_buf_append(out, six, sizeof(six));
    }
}

void sf_json_append_string(struct sf_buf *out, struct sf_view text)
{
    const uint8_t *at = text.ptr;
    const uint8_t *end = text.len == 0 ? at : at + text.len;
    const uint8_t *pending = at;

    sf_buf_append(out, "\"", 1);
    while (at < end) {
        at = skip_plain(at, end);
        if (at == end)
            break;
        if (*at >= 0x80) {
            size_t n = sf_utf8_scalar_length(at, (size_t)(end - at));
            SF_ASSERT(n != 0);
            at += n;
            continue;
        }
        sf_buf_append(out, pending, (size_t)(at - pending));
        append_escaped(out, *at++);
        pending = at;
    }
    if (pending < end)
        sf_buf_append(out, pending, (size_t)(end - pending));
    sf_buf_append(out, "\"", 1);
}
