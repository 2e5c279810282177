/*
 * Strict pull reader of JSON text (RFC 8259). It allocates nothing, keeps raw slices of what it
 * passes and never changes a byte, which is what a codec that must preserve unknown members and a
 * validator of documents that come back byte for byte need. Strings must be valid UTF-8 without
 * lone surrogates; depth is bounded. The first error is sticky: every later call fails.
 *
 *     struct sf_json j;
 *     struct sf_json_str name;
 *     sf_json_init(&j, text, SF_LIMIT_JSON_DEPTH);
 *     if (sf_json_object_begin(&j))
 *         while (sf_json_object_next(&j, &name))
 *             ... read or skip exactly one value ...
 *     if (!sf_json_end(&j)) ... j.error, sf_json_offset(&j) ...
 */
#ifndef SF_BASE_JSON_H
#define SF_BASE_JSON_H

#include "base/buf.h"

enum sf_json_type {
    SF_JSON_ERROR, /* no value starts here (the error is set) */
    SF_JSON_NULL,
    SF_JSON_BOOL,
    SF_JSON_NUMBER,
    SF_JSON_STRING,
    SF_JSON_OBJECT,
    SF_JSON_ARRAY
};

/* A cursor over text that the caller keeps alive and unchanged. */
struct sf_json {
    const uint8_t *start; /* first byte of the text */
    const uint8_t *at;    /* next byte to read */
    const uint8_t *end;   /* one past the last byte */
    unsigned depth;       /* containers open now */
    unsigned max_depth;   /* most containers open at once */
    bool fresh;           /* a container was just opened: no comma before its first item */
    bool too_deep;        /* the error is the depth limit */
    const char *error;    /* static text of the first error, NULL while there is none */
};

/* A string as it stands in the text, without its quotes. */
struct sf_json_str {
    struct sf_view raw; /* checked; with escape sequences when `escaped` */
    bool escaped;       /* holds at least one escape sequence */
};

/* Starts reading `text`; nothing is read yet. */
void sf_json_init(struct sf_json *j, struct sf_view text, unsigned max_depth);

/* Type of the value that comes next. */
enum sf_json_type sf_json_peek(struct sf_json *j);

/* Enters an object or array; false (error) when the next value is not one. */
bool sf_json_object_begin(struct sf_json *j);
bool sf_json_array_begin(struct sf_json *j);

/* Moves to the next member or element; the caller then reads exactly one value. False after the
 * last one (the container is left) or on an error: look at j->error. */
bool sf_json_object_next(struct sf_json *j, struct sf_json_str *out_name);
bool sf_json_array_next(struct sf_json *j);

/* Reads one value of the type named; false (error) when the next value is another. */
bool sf_json_string(struct sf_json *j, struct sf_json_str *out_string);
bool sf_json_number(struct sf_json *j, struct sf_view *out_raw);
bool sf_json_bool(struct sf_json *j, bool *out_value);
bool sf_json_null(struct sf_json *j);

/* Checks and passes one value of any type; `out_raw` (NULL allowed) is its text without the space
 * around it. */
bool sf_json_skip(struct sf_json *j, struct sf_view *out_raw);

/* True when everything was read without error and only space is left. */
bool sf_json_end(struct sf_json *j);

/* Sets the error unless there is one; returns false. For callers that find a value wrong. */
bool sf_json_fail(struct sf_json *j, const char *static_text);

/* Byte offset of the cursor, for messages. */
size_t sf_json_offset(const struct sf_json *j);

/* Decodes escape sequences into `out` (room for raw.len bytes); returns the length. The result is
 * valid UTF-8 and may hold NUL. */
size_t sf_json_unescape(struct sf_json_str string, void *out);

/* True when the decoded string equals `text`. */
bool sf_json_str_is(struct sf_json_str string, const char *text);

/* True when `text` is one JSON value, at most `max_depth` containers deep. */
bool sf_json_valid(struct sf_view text, unsigned max_depth);

/* Appends `text` (valid UTF-8, an invariant) as a JSON string with quotes: only quote, backslash
 * and control characters are escaped, each in its shortest form. */
void sf_json_append_string(struct sf_buf *out, struct sf_view text);

#endif
