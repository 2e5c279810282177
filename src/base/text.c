/*
 * Rules for text. Names are compared byte by byte everywhere, so what could make two of them look
 * alike is refused at the door and nothing is ever rewritten: text must be NFC already, and
 * control, bidirectional, default-ignorable and noncharacter code points are refused (OP-54).
 * Unassigned scalars and spaces are allowed.
 *
 * Unicode data is utf8proc's (15.0). It lacks the unassigned default-ignorable code points, which
 * are added here; the test compares the whole set with the published tables.
 */
#include "base/text.h"

#include <utf8proc.h>

#include "base/limits.h"

size_t sf_utf8_scalar_length(const uint8_t *at, size_t len)
{
    uint8_t a = len == 0 ? 0xff : at[0];

    if (a < 0x80)
        return 1;
    if (a < 0xc2 || a > 0xf4)
        return 0;
    /* The second byte excludes overlong forms, surrogates and what lies above U+10FFFF. */
    uint8_t low = a == 0xe0 ? 0xa0 : a == 0xf0 ? 0x90 : 0x80;
    uint8_t high = a == 0xed ? 0x9f : a == 0xf4 ? 0x8f : 0xbf;
    size_t n = a < 0xe0 ? 2 : a < 0xf0 ? 3 : 4;
    if (len < n || at[1] < low || at[1] > high)
        return 0;
    for (size_t i = 2; i < n; i++) {
        if ((at[i] & 0xc0u) != 0x80u)
            return 0;
    }
    return n;
}

bool sf_utf8_valid(struct sf_view text)
{
    const uint8_t *at = text.ptr;
    size_t left = text.len;

    while (left > 0) {
        uint64_t w;
        if (left >= sizeof(w)) {
            memcpy(&w, at, sizeof(w));
            if ((w & 0x8080808080808080u) == 0) {
                at += sizeof(w);
                left -= sizeof(w);
                continue;
            }
        }
        size_t n = sf_utf8_scalar_length(at, left);
        if (n == 0)
            return false;
        at += n;
        left -= n;
    }
    return true;
}

size_t sf_utf8_scalars(struct sf_view text)
{
    size_t count = 0;

    for (size_t i = 0; i < text.len; i++)
        count += (text.ptr[i] & 0xc0u) != 0x80u;
    return count;
}

static bool is_bidi_control(utf8proc_int32_t c)
{
    return c == 0x061c || c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) ||
           (c >= 0x2066 && c <= 0x2069);
}

static bool is_default_ignorable(utf8proc_int32_t c)
{
    return utf8proc_get_property(c)->ignorable || c == 0x2065 || (c >= 0xfff0 && c <= 0xfff8) ||
           (c >= 0xe0000 && c <= 0xe0fff);
}

static bool is_noncharacter(utf8proc_int32_t c)
{
    return (c >= 0xfdd0 && c <= 0xfdef) || (c & 0xfffe) == 0xfffe;
}

/* The class that forbids `c` in a name, or NULL. */
static const char *forbidden_class(utf8proc_int32_t c)
{
    if (c < 0x20 || (c >= 0x7f && c <= 0x9f))
        return "control_character";
    if (is_bidi_control(c))
        return "bidi_control";
    if (is_noncharacter(c))
        return "noncharacter";
    if (is_default_ignorable(c))
        return "default_ignorable";
    return NULL;
}

/* True when canonical composition leaves the (valid, bounded) name as it is. */
static bool is_nfc(struct sf_view name)
{
    /* A scalar decomposes canonically into four at most. */
    utf8proc_int32_t scalars[SF_LIMIT_NAME_SCALARS * 4];
    const utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    utf8proc_ssize_t count = utf8proc_decompose(name.ptr, (utf8proc_ssize_t)name.len, scalars,
                                                (utf8proc_ssize_t)SF_ARRAY_LEN(scalars), options);
    SF_ASSERT(count >= 0 && (size_t)count <= SF_ARRAY_LEN(scalars));
    count = utf8proc_normalize_utf32(scalars, count, options);
    SF_ASSERT(count >= 0);

    size_t at = 0;
    for (utf8proc_ssize_t i = 0; i < count; i++) {
        utf8proc_uint8_t encoded[4];
        size_t n = (size_t)utf8proc_encode_char(scalars[i], encoded);
        if (name.len - at < n || memcmp(name.ptr + at, encoded, n) != 0)
            return false;
        at += n;
    }
    return at == name.len;
}

static enum sf_err check_scalars(const char *field, struct sf_view name, struct sf_diag *diag)
{
    for (size_t at = 0, position = 0; at < name.len; position++) {
        utf8proc_int32_t c;
        utf8proc_ssize_t n = utf8proc_iterate(name.ptr + at, (utf8proc_ssize_t)(name.len - at), &c);
        SF_ASSERT(n > 0);
        const char *forbidden = forbidden_class(c);
        if (forbidden != NULL)
            return sf_diag_bad_field(diag, field, forbidden,
                                     "%s: character %zu (U+%04X) is not allowed", field,
                                     position + 1, (unsigned)c);
        at += (size_t)n;
    }
    return SF_OK;
}

enum sf_err sf_name_check(const char *field, struct sf_view name, bool allow_empty,
                          struct sf_diag *diag)
{
    if (name.len == 0)
        return allow_empty ? SF_OK
                           : sf_diag_bad_field(diag, field, "empty", "%s must not be empty", field);
    if (!sf_utf8_valid(name))
        return sf_diag_bad_field(diag, field, "invalid_utf8", "%s is not valid UTF-8", field);
    if (sf_utf8_scalars(name) > SF_LIMIT_NAME_SCALARS)
        return sf_diag_bad_field(diag, field, "too_long", "%s has more than %d characters", field,
                                 SF_LIMIT_NAME_SCALARS);
    enum sf_err err = check_scalars(field, name, diag);
    if (err != SF_OK)
        return err;
    if (!is_nfc(name))
        return sf_diag_bad_field(diag, field, "not_nfc",
                                 "%s is not in Unicode normalization form C", field);
    return SF_OK;
}

enum sf_err sf_identity_check(const char *field, struct sf_view text, size_t min_scalars,
                              size_t max_scalars, struct sf_diag *diag)
{
    if (!sf_utf8_valid(text))
        return sf_diag_bad_field(diag, field, "invalid_utf8", "%s is not valid UTF-8", field);
    size_t count = sf_utf8_scalars(text);
    if (count < min_scalars)
        return sf_diag_bad_field(diag, field, count == 0 ? "empty" : "too_short",
                                 "%s has %zu characters, at least %zu are needed", field, count,
                                 min_scalars);
    if (count > max_scalars)
        return sf_diag_bad_field(diag, field, "too_long",
                                 "%s has %zu characters, at most %zu are allowed", field, count,
                                 max_scalars);
    return SF_OK;
}

void sf_key_append_component(struct sf_buf *out, struct sf_view component)
{
    bool dots =
        sf_view_equal(component, sf_view_str(".")) || sf_view_equal(component, sf_view_str(".."));

    for (size_t i = 0; i < component.len; i++) {
        uint8_t c = component.ptr[i];
        if (c == '%' || c == '/' || c == '\\' || dots)
            sf_buf_printf(out, "%%%02X", c);
        else
            sf_buf_append(out, &c, 1);
    }
}

bool sf_parse_u64(struct sf_view text, uint64_t *out_value)
{
    uint64_t value = 0;

    if (text.len == 0 || text.len > 20 || (text.len > 1 && text.ptr[0] == '0'))
        return false;
    for (size_t i = 0; i < text.len; i++) {
        uint8_t digit = (uint8_t)(text.ptr[i] - '0');
        if (digit > 9 || __builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return false;
    }
    *out_value = value;
    return true;
}

bool sf_prefix_successor(struct sf_view prefix, struct sf_buf *out)
{
    size_t len = prefix.len;

    SF_ASSERT(sf_utf8_valid(prefix));
    while (len > 0) {
        size_t at = len - 1;
        while ((prefix.ptr[at] & 0xc0u) == 0x80u)
            at--;
        utf8proc_int32_t c;
        utf8proc_uint8_t encoded[4];
        (void)utf8proc_iterate(prefix.ptr + at, (utf8proc_ssize_t)(len - at), &c);
        if (c != 0x10ffff) {
            c = c == 0xd7ff ? 0xe000 : c + 1;
            size_t n = (size_t)utf8proc_encode_char(c, encoded);
            sf_buf_append(out, prefix.ptr, at);
            sf_buf_append(out, encoded, n);
            return true;
        }
        len = at;
    }
    return false;
}
