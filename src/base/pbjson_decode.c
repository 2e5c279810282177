/*
 * JSON in. One pass over the text, into an arena. Members may come in any order and in both name
 * forms; a member given twice, a second member of a oneof, a value of the wrong type or out of
 * range, NUL in text and null inside a list are refused with the path of the member. null for a
 * whole member means absent. Map entries are sorted by key, so that what is decoded encodes without
 * a sort.
 *
 * 64-bit numbers are exact or refused: as text they are canonical decimals, as JSON numbers they
 * must be integers without exponent of at most 2^53, since tools that write larger ones as numbers
 * have rounded them already.
 *
 * Members of unknown name are kept as `"name":value`, name in canonical form, value byte for byte,
 * sorted by name, in unknown fields of the message; the encoder writes them back.
 */
#include "base/pbjson_priv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base64.h"
#include "base/limits.h"
#include "base/text.h"

#define EXACT_MAX (UINT64_C(1) << 53) /* integers up to here survive a double */

/* Where in the message the decoder is, for the path of an error. */
struct frame {
    const struct frame *parent; /* message around it, NULL at the top */
    struct sf_view name;        /* member being read, empty before the first */
    struct sf_view key;         /* its map key, when in_map */
    size_t index;               /* its list position, when in_list */
    bool in_list;               /* index is valid */
    bool in_map;                /* key is valid */
    unsigned depth;             /* 1 at the top */
};

struct decoder {
    struct sf_json j;       /* cursor over the text */
    struct sf_arena *arena; /* home of the message */
    struct sf_diag *diag;   /* where the first fault is told */
    enum sf_err err;        /* first error, SF_OK while none */
};

static ProtobufCMessage *decode_message(struct decoder *dec, const struct frame *parent,
                                        const struct sf_pbjson_message *side,
                                        const ProtobufCMessageDescriptor *desc);

static size_t add_text(char *text, size_t size, size_t used, int n)
{
    (void)text;
    if (n < 0)
        return used;
    return used + (size_t)n < size ? used + (size_t)n : size - 1;
}

static size_t member_path(const struct frame *frame, char *text, size_t size)
{
    size_t used = frame->parent == NULL ? 0 : member_path(frame->parent, text, size);

    if (frame->name.len == 0)
        return used;
    used = add_text(text, size, used,
                    snprintf(text + used, size - used, "%s%.*s", used == 0 ? "" : ".",
                             (int)frame->name.len, (const char *)frame->name.ptr));
    if (frame->in_list)
        used =
            add_text(text, size, used, snprintf(text + used, size - used, "[%zu]", frame->index));
    if (frame->in_map)
        used = add_text(text, size, used,
                        snprintf(text + used, size - used, "[\"%.*s\"]",
                                 frame->key.len > 64 ? 64 : (int)frame->key.len,
                                 (const char *)frame->key.ptr));
    return used;
}

/* Records the first error; returns false for the caller to pass on. */
static bool fail(struct decoder *dec, const struct frame *frame, enum sf_err err, const char *why)
{
    char path[SF_DIAG_VALUE_BYTES];

    if (dec->err != SF_OK)
        return false;
    dec->err = err;
    (void)sf_json_fail(&dec->j, why);
    if (dec->diag == NULL)
        return false;
    path[0] = '\0';
    size_t used = member_path(frame, path, sizeof(path));
    /* The path may have been cut inside a character. */
    while (used > 0 && !sf_utf8_valid(sf_view_bytes(path, used)))
        path[--used] = '\0';
    (void)sf_diag_set(dec->diag, err, "%s%sbyte %zu: %s", path, path[0] == '\0' ? "" : ", ",
                      sf_json_offset(&dec->j), why);
    sf_diag_detail(dec->diag, "field", "%s", path);
    sf_diag_detail(dec->diag, "violation", "%s", why);
    return false;
}

static bool fail_text(struct decoder *dec, const struct frame *frame)
{
    return fail(dec, frame, dec->j.too_deep ? SF_ERR_LIMIT : SF_ERR_PARSE, dec->j.error);
}

static bool fail_memory(struct decoder *dec, const struct frame *frame)
{
    return fail(dec, frame, SF_ERR_LIMIT, "message needs too much memory");
}

/* An integer as it stands in the text. */
struct integer {
    uint64_t magnitude; /* without its sign */
    bool negative;      /* a minus stood before it */
};

/* Reads "-"? digits in canonical form. */
static bool parse_integer(struct sf_view text, struct integer *out)
{
    out->negative = text.len > 0 && text.ptr[0] == '-';
    if (out->negative) {
        text.ptr++;
        text.len--;
    }
    return sf_parse_u64(text, &out->magnitude) && !(out->negative && out->magnitude == 0);
}

static bool signed_value(struct integer number, int64_t min, int64_t max, int64_t *out)
{
    if (number.negative) {
        if (number.magnitude > 0 - (uint64_t)min)
            return false;
        *out = (int64_t)(0 - number.magnitude);
        return true;
    }
    if (number.magnitude > (uint64_t)max)
        return false;
    *out = (int64_t)number.magnitude;
    return true;
}

static bool unsigned_value(struct integer number, uint64_t max, uint64_t *out)
{
    *out = number.magnitude;
    return !number.negative && number.magnitude <= max;
}

/* Stores `number` at `at` if the type can hold it. */
static bool store_integer(ProtobufCType type, struct integer number, void *at)
{
    int64_t i;
    uint64_t u;

    switch (type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_ENUM:
        if (!signed_value(number, INT32_MIN, INT32_MAX, &i))
            return false;
        *(int32_t *)at = (int32_t)i;
        return true;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        if (!unsigned_value(number, UINT32_MAX, &u))
            return false;
        *(uint32_t *)at = (uint32_t)u;
        return true;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        if (!unsigned_value(number, UINT64_MAX, &u))
            return false;
        *(uint64_t *)at = u;
        return true;
    default:
        if (!signed_value(number, INT64_MIN, INT64_MAX, &i))
            return false;
        *(int64_t *)at = i;
        return true;
    }
}

static bool decode_integer(struct decoder *dec, const struct frame *frame, ProtobufCType type,
                           void *at)
{
    struct integer number;
    struct sf_view text;
    struct sf_json_str quoted = {0};
    enum sf_json_type found = sf_json_peek(&dec->j);

    if (found == SF_JSON_STRING) {
        if (!sf_json_string(&dec->j, &quoted))
            return fail_text(dec, frame);
        text = quoted.raw;
    } else if (found == SF_JSON_NUMBER) {
        if (!sf_json_number(&dec->j, &text))
            return fail_text(dec, frame);
    } else {
        return fail(dec, frame, SF_ERR_PARSE, "an integer is expected");
    }
    if (!parse_integer(text, &number))
        return fail(dec, frame, SF_ERR_PARSE, "not an integer in canonical decimal form");
    if (found == SF_JSON_NUMBER && number.magnitude > EXACT_MAX)
        return fail(dec, frame, SF_ERR_PARSE, "a number above 2^53 must be given as a string");
    if (!store_integer(type, number, at))
        return fail(dec, frame, SF_ERR_PARSE, "number out of range");
    return true;
}

static bool decode_floating(struct decoder *dec, const struct frame *frame, bool single, void *at)
{
    struct sf_view text;
    struct sf_json_str quoted = {0};
    enum sf_json_type found = sf_json_peek(&dec->j);
    double value;

    if (found == SF_JSON_STRING) {
        if (!sf_json_string(&dec->j, &quoted))
            return fail_text(dec, frame);
        text = quoted.raw;
    } else if (!sf_json_number(&dec->j, &text)) {
        return fail(dec, frame, SF_ERR_PARSE, "a number is expected");
    }
    if (sf_view_equal(text, sf_view_str("NaN"))) {
        value = (double)NAN;
    } else if (sf_view_equal(text, sf_view_str("Infinity"))) {
        value = (double)INFINITY;
    } else if (sf_view_equal(text, sf_view_str("-Infinity"))) {
        value = -(double)INFINITY;
    } else {
        struct sf_json inner;
        struct sf_view number;
        sf_json_init(&inner, text, 1);
        if (!sf_json_number(&inner, &number) || number.len != text.len)
            return fail(dec, frame, SF_ERR_PARSE, "a number is expected");
        char *copy = sf_arena_str(dec->arena, text);
        if (copy == NULL)
            return fail_memory(dec, frame);
        value = single ? (double)strtof(copy, NULL) : strtod(copy, NULL);
        if (isinf(value))
            return fail(dec, frame, SF_ERR_PARSE, "number out of range");
    }
    if (single)
        *(float *)at = (float)value;
    else
        *(double *)at = value;
    return true;
}

/* Decoded, NUL-terminated copy of a string in the arena; NULL after fail(). */
static char *copy_string(struct decoder *dec, const struct frame *frame, struct sf_json_str string)
{
    char *copy = sf_arena_alloc(dec->arena, string.raw.len + 1);

    if (copy == NULL) {
        (void)fail_memory(dec, frame);
        return NULL;
    }
    size_t n = sf_json_unescape(string, copy);
    copy[n] = '\0';
    if (string.escaped && strlen(copy) != n) {
        (void)fail(dec, frame, SF_ERR_PARSE, "NUL in a string");
        return NULL;
    }
    return copy;
}

static bool decode_string(struct decoder *dec, const struct frame *frame, char **out)
{
    struct sf_json_str string;

    if (sf_json_peek(&dec->j) != SF_JSON_STRING)
        return fail(dec, frame, SF_ERR_PARSE, "a string is expected");
    if (!sf_json_string(&dec->j, &string))
        return fail_text(dec, frame);
    char *copy = copy_string(dec, frame, string);
    if (copy == NULL)
        return false;
    *out = copy;
    return true;
}

static bool decode_bytes(struct decoder *dec, const struct frame *frame, ProtobufCBinaryData *out)
{
    struct sf_json_str string;

    if (sf_json_peek(&dec->j) != SF_JSON_STRING)
        return fail(dec, frame, SF_ERR_PARSE, "a base64 string is expected");
    if (!sf_json_string(&dec->j, &string))
        return fail_text(dec, frame);
    struct sf_view text = string.raw;
    if (string.escaped) { /* "\/" is a legal way to write a digit */
        uint8_t *plain = sf_arena_alloc(dec->arena, text.len);
        if (plain == NULL)
            return fail_memory(dec, frame);
        text = sf_view_bytes(plain, sf_json_unescape(string, plain));
    }
    out->data = sf_arena_alloc(dec->arena, sf_base64_room(text.len));
    if (out->data == NULL)
        return fail_memory(dec, frame);
    if (!sf_base64_decode_any(text, out->data, &out->len))
        return fail(dec, frame, SF_ERR_PARSE, "malformed base64");
    return true;
}

static bool decode_enum(struct decoder *dec, const struct frame *frame,
                        const ProtobufCEnumDescriptor *desc, void *at)
{
    struct sf_json_str string;
    char name[256];

    if (sf_json_peek(&dec->j) != SF_JSON_STRING)
        return decode_integer(dec, frame, PROTOBUF_C_TYPE_ENUM, at);
    if (!sf_json_string(&dec->j, &string))
        return fail_text(dec, frame);
    const ProtobufCEnumValue *value = NULL;
    if (string.raw.len < sizeof(name)) {
        size_t n = sf_json_unescape(string, name);
        name[n] = '\0';
        value = strlen(name) == n ? protobuf_c_enum_descriptor_get_value_by_name(desc, name) : NULL;
    }
    if (value == NULL)
        return fail(dec, frame, SF_ERR_PARSE, "not a value of the enum");
    *(int32_t *)at = value->value;
    return true;
}

/* Reads one value (not null) and stores it at `at`. */
static bool decode_value(struct decoder *dec, const struct frame *frame,
                         const struct sf_pbjson_field *side, const ProtobufCFieldDescriptor *field,
                         void *at)
{
    bool flag;

    switch (field->type) {
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_DOUBLE:
        return decode_floating(dec, frame, field->type == PROTOBUF_C_TYPE_FLOAT, at);
    case PROTOBUF_C_TYPE_BOOL:
        if (!sf_json_bool(&dec->j, &flag))
            return fail_text(dec, frame);
        *(protobuf_c_boolean *)at = flag;
        return true;
    case PROTOBUF_C_TYPE_ENUM:
        return decode_enum(dec, frame, field->descriptor, at);
    case PROTOBUF_C_TYPE_STRING:
        return decode_string(dec, frame, at);
    case PROTOBUF_C_TYPE_BYTES:
        return decode_bytes(dec, frame, at);
    case PROTOBUF_C_TYPE_MESSAGE: {
        SF_ASSERT(side->sub != NULL); /* the set covers what is coded */
        ProtobufCMessage *sub = decode_message(dec, frame, side->sub, field->descriptor);
        *(ProtobufCMessage **)at = sub;
        return sub != NULL;
    }
    default:
        return decode_integer(dec, frame, field->type, at);
    }
}

/* An array in the arena that doubles as it fills. */
struct list {
    char *items;  /* in the arena */
    size_t count; /* used */
    size_t room;  /* allocated */
};

/* Room for one item more of `size` bytes; NULL after fail(). The item is zeroed. */
static void *list_add(struct decoder *dec, const struct frame *frame, struct list *list,
                      size_t size)
{
    if (list->count == list->room) {
        size_t room = list->room == 0 ? 4 : list->room * 2;
        char *items = sf_arena_alloc(dec->arena, room * size);
        if (items == NULL) {
            (void)fail_memory(dec, frame);
            return NULL;
        }
        if (list->count > 0)
            memcpy(items, list->items, list->count * size);
        list->items = items;
        list->room = room;
    }
    return list->items + size * list->count++;
}

static bool decode_list(struct decoder *dec, struct frame *frame,
                        const struct sf_pbjson_field *side, const ProtobufCFieldDescriptor *field,
                        struct list *list)
{
    size_t size = sf_pbjson_value_bytes(field->type);

    if (!sf_json_array_begin(&dec->j))
        return fail_text(dec, frame);
    frame->in_list = true;
    while (sf_json_array_next(&dec->j)) {
        frame->index = list->count;
        void *at = list_add(dec, frame, list, size);
        if (at == NULL || !decode_value(dec, frame, side, field, at))
            return false;
    }
    frame->in_list = false;
    return dec->j.error == NULL ? true : fail_text(dec, frame);
}

/* Stores a member name as the key of a map entry. */
static bool decode_key(struct decoder *dec, const struct frame *frame,
                       const ProtobufCFieldDescriptor *field, struct sf_json_str name, void *at)
{
    struct integer number;

    if (field->type == PROTOBUF_C_TYPE_STRING) {
        char *copy = copy_string(dec, frame, name);
        *(char **)at = copy;
        return copy != NULL;
    }
    if (field->type == PROTOBUF_C_TYPE_BOOL) {
        bool yes = sf_json_str_is(name, "true");
        if (!yes && !sf_json_str_is(name, "false"))
            return fail(dec, frame, SF_ERR_PARSE, "a key must be true or false");
        *(protobuf_c_boolean *)at = yes;
        return true;
    }
    if (!parse_integer(name.raw, &number) || !store_integer(field->type, number, at))
        return fail(dec, frame, SF_ERR_PARSE, "a key must be an integer of the key's type");
    return true;
}

static int compare_entries(const void *a, const void *b)
{
    const ProtobufCMessage *x = *(const ProtobufCMessage *const *)a;
    const ProtobufCMessage *y = *(const ProtobufCMessage *const *)b;

    return sf_pbjson_key_compare(x->descriptor, x, y);
}

static bool decode_map(struct decoder *dec, struct frame *frame, const struct sf_pbjson_field *side,
                       const ProtobufCFieldDescriptor *field, struct list *list)
{
    const ProtobufCMessageDescriptor *desc = field->descriptor;
    struct sf_json_str name;

    if (!sf_json_object_begin(&dec->j))
        return fail_text(dec, frame);
    while (sf_json_object_next(&dec->j, &name)) {
        ProtobufCMessage *entry = sf_arena_alloc(dec->arena, desc->sizeof_message);
        ProtobufCMessage **slot = list_add(dec, frame, list, sizeof(void *));
        if (entry == NULL || slot == NULL)
            return fail_memory(dec, frame);
        desc->message_init(entry);
        *slot = entry;
        frame->in_map = true;
        frame->key = name.raw;
        if (!decode_key(dec, frame, &desc->fields[0], name,
                        (char *)entry + desc->fields[0].offset) ||
            !decode_value(dec, frame, &side->sub->fields[1], &desc->fields[1],
                          (char *)entry + desc->fields[1].offset))
            return false;
        frame->in_map = false;
    }
    if (dec->j.error != NULL)
        return fail_text(dec, frame);
    if (list->count > 1)
        qsort(list->items, list->count, sizeof(ProtobufCMessage *), compare_entries);
    for (size_t i = 1; i < list->count; i++) {
        const char *pair = list->items + (i - 1) * sizeof(ProtobufCMessage *);
        if (compare_entries(pair, pair + sizeof(ProtobufCMessage *)) == 0)
            return fail(dec, frame, SF_ERR_PARSE, "a key is given twice");
    }
    return true;
}

/* Reads the member whose field is `field` into the message at `base`. */
static bool decode_field(struct decoder *dec, struct frame *frame,
                         const struct sf_pbjson_field *side, const ProtobufCFieldDescriptor *field,
                         char *base)
{
    void *at = base + field->offset;
    void *quantifier = base + field->quantifier_offset;

    if (sf_json_peek(&dec->j) == SF_JSON_NULL)
        return sf_json_null(&dec->j) ? true : fail_text(dec, frame);
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        struct list list = {0};
        bool map = side->sub != NULL && side->sub->map_entry;
        if (!(map ? decode_map(dec, frame, side, field, &list)
                  : decode_list(dec, frame, side, field, &list)))
            return false;
        *(void **)at = list.items;
        *(size_t *)quantifier = list.count;
        return true;
    }
    if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0) {
        if (*(uint32_t *)quantifier != 0)
            return fail(dec, frame, SF_ERR_PARSE, "a second member of one alternative");
        *(uint32_t *)quantifier = field->id;
    } else if (field->label == PROTOBUF_C_LABEL_OPTIONAL && field->type != PROTOBUF_C_TYPE_STRING &&
               field->type != PROTOBUF_C_TYPE_MESSAGE) {
        *(protobuf_c_boolean *)quantifier = 1;
    }
    return decode_value(dec, frame, side, field, at);
}

static size_t put_varint(uint8_t *out, size_t value)
{
    size_t n = 0;

    while (value >= 0x80) {
        out[n++] = (uint8_t)(value | 0x80u);
        value >>= 7;
    }
    out[n++] = (uint8_t)value;
    return n;
}

/* Keeps the member as an unknown field: length, then `"name":value`. */
static bool keep_unknown(struct decoder *dec, const struct frame *frame, struct list *list,
                         struct sf_json_str name)
{
    struct sf_view value;
    struct sf_buf text = {0};
    uint8_t prefix[10];

    if (!sf_json_skip(&dec->j, &value))
        return fail_text(dec, frame);
    if (name.escaped) {
        uint8_t *plain = sf_arena_alloc(dec->arena, name.raw.len);
        if (plain == NULL)
            return fail_memory(dec, frame);
        sf_json_append_string(&text, sf_view_bytes(plain, sf_json_unescape(name, plain)));
    } else {
        sf_json_append_string(&text, name.raw);
    }
    sf_buf_append(&text, ":", 1);
    size_t prefix_len = put_varint(prefix, text.len + value.len);
    ProtobufCMessageUnknownField *field = list_add(dec, frame, list, sizeof(*field));
    uint8_t *data = sf_arena_alloc(dec->arena, prefix_len + text.len + value.len);
    if (field != NULL && data != NULL) {
        memcpy(data, prefix, prefix_len);
        memcpy(data + prefix_len, text.data, text.len);
        memcpy(data + prefix_len + text.len, value.ptr, value.len);
        *field = (ProtobufCMessageUnknownField){.tag = SF_PBJSON_UNKNOWN_FIELD,
                                                .wire_type = PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED,
                                                .len = prefix_len + text.len + value.len,
                                                .data = data};
    }
    sf_buf_fini(&text);
    return field != NULL && data != NULL ? true : fail_memory(dec, frame);
}

/* The name of a kept member, as it is written. */
static struct sf_view unknown_name(const ProtobufCMessageUnknownField *field)
{
    struct sf_json j;
    struct sf_json_str name = {0};
    size_t at = 0;

    while (field->data[at] >= 0x80)
        at++;
    at++;
    sf_json_init(&j, sf_view_bytes(field->data + at, field->len - at), 1);
    bool good = sf_json_string(&j, &name);
    SF_ASSERT(good);
    return name.raw;
}

static int compare_unknown(const void *a, const void *b)
{
    return sf_view_compare(unknown_name(a), unknown_name(b));
}

static bool finish_unknown(struct decoder *dec, struct frame *frame, struct list *list,
                           ProtobufCMessage *message)
{
    ProtobufCMessageUnknownField *fields = (void *)list->items;

    if (list->count == 0)
        return true;
    qsort(fields, list->count, sizeof(*fields), compare_unknown);
    for (size_t i = 1; i < list->count; i++) {
        if (compare_unknown(&fields[i - 1], &fields[i]) == 0) {
            frame->name = unknown_name(&fields[i]);
            return fail(dec, frame, SF_ERR_PARSE, "a member is given twice");
        }
    }
    message->unknown_fields = fields;
    message->n_unknown_fields = (unsigned)list->count;
    return true;
}

static ProtobufCMessage *decode_message(struct decoder *dec, const struct frame *parent,
                                        const struct sf_pbjson_message *side,
                                        const ProtobufCMessageDescriptor *desc)
{
    struct frame frame = {.parent = parent, .depth = parent == NULL ? 1 : parent->depth + 1};
    uint64_t seen[SF_PBJSON_FIELDS_MAX / 64] = {0};
    struct list unknown = {0};
    struct sf_json_str name;

    if (frame.depth > SF_LIMIT_PB_DEPTH) {
        (void)fail(dec, &frame, SF_ERR_LIMIT, "nested too deeply");
        return NULL;
    }
    ProtobufCMessage *message = sf_arena_alloc(dec->arena, desc->sizeof_message);
    if (message == NULL) {
        (void)fail_memory(dec, &frame);
        return NULL;
    }
    desc->message_init(message);
    if (!sf_json_object_begin(&dec->j)) {
        (void)fail_text(dec, &frame);
        return NULL;
    }
    while (sf_json_object_next(&dec->j, &name)) {
        int index = sf_pbjson_field_of(side, name);
        frame.name = name.raw;
        if (index < 0) {
            if (!keep_unknown(dec, &frame, &unknown, name))
                return NULL;
            continue;
        }
        uint64_t bit = UINT64_C(1) << (index % 64);
        if ((seen[index / 64] & bit) != 0) {
            (void)fail(dec, &frame, SF_ERR_PARSE, "a member is given twice");
            return NULL;
        }
        seen[index / 64] |= bit;
        if (!decode_field(dec, &frame, &side->fields[index], &desc->fields[index], (char *)message))
            return NULL;
    }
    if (dec->j.error != NULL) {
        (void)fail_text(dec, &frame);
        return NULL;
    }
    return finish_unknown(dec, &frame, &unknown, message) ? message : NULL;
}

enum sf_err sf_pbjson_decode(const ProtobufCMessageDescriptor *desc, struct sf_view json,
                             struct sf_arena *arena, struct sf_diag *diag,
                             ProtobufCMessage **out_message)
{
    struct decoder dec = {.arena = arena, .diag = diag};
    struct frame top = {0};

    sf_json_init(&dec.j, json, SF_LIMIT_JSON_DEPTH);
    ProtobufCMessage *message = decode_message(&dec, NULL, sf_pbjson_side(desc), desc);
    if (message != NULL && !sf_json_end(&dec.j))
        (void)fail_text(&dec, &top);
    if (dec.err != SF_OK)
        return dec.err;
    *out_message = message;
    return SF_OK;
}
