/*
 * One encoder and one decoder; the public calls differ in the two digits that the alphabets do not
 * share and in whether padding is allowed.
 */
#include "base/base64.h"

static const char standard_digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char url_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/* What a decoder takes. */
struct form {
    bool standard; /* '+' and '/' */
    bool url;      /* '-' and '_' */
    bool padding;  /* "=" and "==" at the end of a multiple of four */
};

static void encode(struct sf_view bytes, const char *digits, struct sf_buf *out)
{
    for (size_t i = 0; i < bytes.len; i += 3) {
        size_t n = bytes.len - i < 3 ? bytes.len - i : 3;
        uint32_t v = (uint32_t)bytes.ptr[i] << 16;
        if (n > 1)
            v |= (uint32_t)bytes.ptr[i + 1] << 8;
        if (n > 2)
            v |= bytes.ptr[i + 2];
        char four[4] = {digits[v >> 18], digits[v >> 12 & 63], digits[v >> 6 & 63], digits[v & 63]};
        sf_buf_append(out, four, n + 1);
    }
}

static int digit_value(uint8_t c, struct form form)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    if ((form.standard && c == '+') || (form.url && c == '-'))
        return 62;
    return (form.standard && c == '/') || (form.url && c == '_') ? 63 : -1;
}

/* Writes at most sf_base64_room(text.len) bytes. */
static bool decode(struct sf_view text, struct form form, uint8_t *out, size_t *out_len)
{
    uint32_t bits = 0;
    unsigned bit_count = 0;
    size_t n = 0;
    size_t len = text.len;

    if (form.padding && len > 0 && len % 4 == 0 && text.ptr[len - 1] == '=')
        len -= text.ptr[len - 2] == '=' ? 2 : 1;
    if (len % 4 == 1)
        return false;
    for (size_t i = 0; i < len; i++) {
        int digit = digit_value(text.ptr[i], form);
        if (digit < 0)
            return false;
        bits = (bits << 6 | (uint32_t)digit) & 0xffffffu;
        bit_count += 6;
        if (bit_count >= 8) {
            bit_count -= 8;
            out[n++] = (uint8_t)(bits >> bit_count);
        }
    }
    *out_len = n;
    return (bits & ((1u << bit_count) - 1)) == 0;
}

static bool decode_to_buf(struct sf_view text, struct form form, struct sf_buf *out)
{
    size_t len = 0;

    if (!sf_buf_reserve(out, sf_base64_room(text.len)) ||
        !decode(text, form, out->data + out->len, &len))
        return false;
    out->len += len;
    return true;
}

void sf_base64_encode(struct sf_view bytes, struct sf_buf *out)
{
    encode(bytes, standard_digits, out);
}

void sf_base64_url_encode(struct sf_view bytes, struct sf_buf *out)
{
    encode(bytes, url_digits, out);
}

bool sf_base64_decode(struct sf_view text, struct sf_buf *out)
{
    return decode_to_buf(text, (struct form){.standard = true, .padding = true}, out);
}

bool sf_base64_url_decode(struct sf_view text, struct sf_buf *out)
{
    return decode_to_buf(text, (struct form){.url = true}, out);
}

bool sf_base64_decode_any(struct sf_view text, uint8_t *out_bytes, size_t *out_len)
{
    return decode(text, (struct form){.standard = true, .url = true, .padding = true}, out_bytes,
                  out_len);
}
