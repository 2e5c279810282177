/*
 * Side tables from a serialized google.protobuf.FileDescriptorSet. Only five message types of
 * descriptor.proto matter here, so a small walker of wire fields reads them; unpacking with
 * generated code would need the contract's generated code in this layer. Registration has two
 * steps: every message of every file is entered under its full name, then field types are resolved
 * to their tables, so that coding a message looks up one name, that of its outermost type.
 *
 * Tables live as long as the process and are read without a lock after registration.
 */
#include "base/pbjson_priv.h"

#include <stdlib.h>

#include "base/map.h"
#include "base/mem.h"

/* Field numbers of descriptor.proto. */
#define FILE_SET_FILE         1
#define FILE_PACKAGE          2
#define FILE_MESSAGE_TYPE     4
#define MESSAGE_NAME          1
#define MESSAGE_FIELD         2
#define MESSAGE_NESTED_TYPE   3
#define MESSAGE_OPTIONS       7
#define MESSAGE_OPT_MAP_ENTRY 7
#define FIELD_NAME            1
#define FIELD_NUMBER          3
#define FIELD_TYPE_NAME       6
#define FIELD_JSON_NAME       10
#define NESTING_MAX           32

/* An escape sequence is at most six times its character; 512 bytes hold any name escaped whole. */
#define FIELD_NAME_MAX 85

static struct sf_map *tables; /* full name -> struct sf_pbjson_message */
static struct sf_map *sets;   /* descriptor sets registered so far */
static char set_known;        /* its address is the value of every entry of sets */

/* One field of a message on the wire. */
struct wire_field {
    uint32_t number;     /* of the field */
    uint64_t value;      /* of a varint field */
    struct sf_view body; /* of a length-delimited field */
};

static bool next_varint(struct sf_view *rest, uint64_t *out_value)
{
    uint64_t value = 0;

    for (size_t i = 0; i < rest->len && i < 10; i++) {
        value |= (uint64_t)(rest->ptr[i] & 0x7fu) << (7 * i);
        if (rest->ptr[i] < 0x80) {
            rest->ptr += i + 1;
            rest->len -= i + 1;
            *out_value = value;
            return true;
        }
    }
    return false;
}

/* Takes the next field off `rest`; false when malformed. */
static bool next_field(struct sf_view *rest, struct wire_field *out)
{
    uint64_t tag;
    size_t skip;

    *out = (struct wire_field){0};
    if (!next_varint(rest, &tag))
        return false;
    out->number = (uint32_t)(tag >> 3);
    switch (tag & 7u) {
    case 0:
        return next_varint(rest, &out->value);
    case 1:
        skip = 8;
        break;
    case 2: {
        uint64_t len;
        if (!next_varint(rest, &len) || len > rest->len)
            return false;
        out->body = sf_view_bytes(rest->ptr, (size_t)len);
        skip = (size_t)len;
        break;
    }
    case 5:
        skip = 4;
        break;
    default:
        return false;
    }
    if (skip > rest->len)
        return false;
    rest->ptr += skip;
    rest->len -= skip;
    return true;
}

static bool parse_field(struct sf_view body, struct sf_pbjson_field *field)
{
    struct wire_field wire;
    struct sf_buf key = {0};

    while (body.len > 0) {
        if (!next_field(&body, &wire))
            return false;
        if (wire.number == FIELD_NAME)
            field->name = wire.body;
        else if (wire.number == FIELD_NUMBER)
            field->number = (uint32_t)wire.value;
        else if (wire.number == FIELD_TYPE_NAME)
            field->type_name = wire.body;
        else if (wire.number == FIELD_JSON_NAME)
            field->json_name = wire.body;
    }
    if (field->name.len == 0 || field->name.len > FIELD_NAME_MAX || field->number == 0)
        return false;
    if (field->json_name.len == 0)
        field->json_name = field->name;
    if (field->type_name.len > 0 && field->type_name.ptr[0] == '.') {
        field->type_name.ptr++;
        field->type_name.len--;
    }
    sf_buf_append_str(&key, "\"");
    sf_buf_append(&key, field->name.ptr, field->name.len);
    sf_buf_append_str(&key, "\":");
    field->key = (char *)key.data;
    field->key_len = key.len;
    return true;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = ((const struct sf_pbjson_field *)a)->number;
    uint32_t y = ((const struct sf_pbjson_field *)b)->number;

    return (x > y) - (x < y);
}

static int by_text(const void *a, const void *b)
{
    return sf_view_compare(((const struct sf_pbjson_name *)a)->text,
                           ((const struct sf_pbjson_name *)b)->text);
}

static void index_names(struct sf_pbjson_message *message)
{
    message->names = sf_calloc((size_t)message->field_count * 2, sizeof(*message->names));
    for (unsigned i = 0; i < message->field_count; i++) {
        const struct sf_pbjson_field *field = &message->fields[i];
        message->names[message->name_count++] = (struct sf_pbjson_name){field->name, i};
        if (!sf_view_equal(field->name, field->json_name))
            message->names[message->name_count++] = (struct sf_pbjson_name){field->json_name, i};
    }
    if (message->name_count > 1)
        qsort(message->names, message->name_count, sizeof(*message->names), by_text);
}

static void free_message(void *value)
{
    struct sf_pbjson_message *message = value;

    for (unsigned i = 0; i < message->field_count; i++)
        free(message->fields[i].key);
    free(message->full_name);
    free(message->fields);
    free(message->names);
    free(message);
}

static bool is_map_entry(struct sf_view options)
{
    struct wire_field wire;

    while (options.len > 0 && next_field(&options, &wire)) {
        if (wire.number == MESSAGE_OPT_MAP_ENTRY)
            return wire.value != 0;
    }
    return false;
}

/* Enters the message `body`, whose surroundings are named `scope` ("" or "a.b."), and those inside
 * it. A name that is known already keeps its table. */
static bool enter_message(struct sf_view scope, struct sf_view body, unsigned depth)
{
    struct sf_pbjson_message *message = sf_calloc(1, sizeof(*message));
    struct sf_view rest = body;
    struct sf_view name = {0};
    struct wire_field wire;
    struct sf_buf full = {0};
    bool good = depth < NESTING_MAX;

    message->fields = sf_calloc(SF_PBJSON_FIELDS_MAX, sizeof(*message->fields));
    while (good && rest.len > 0) {
        good = next_field(&rest, &wire);
        if (good && wire.number == MESSAGE_NAME)
            name = wire.body;
        else if (good && wire.number == MESSAGE_OPTIONS)
            message->map_entry = is_map_entry(wire.body);
        else if (good && wire.number == MESSAGE_FIELD)
            good = message->field_count < SF_PBJSON_FIELDS_MAX &&
                   parse_field(wire.body, &message->fields[message->field_count++]);
    }
    good = good && name.len > 0;
    sf_buf_append(&full, scope.ptr, scope.len);
    sf_buf_append(&full, name.ptr, name.len);
    message->full_name = sf_calloc(1, full.len + 1);
    if (full.len > 0)
        memcpy(message->full_name, full.data, full.len);
    if (!good || sf_map_get(tables, sf_buf_view(&full)) != NULL) {
        free_message(message);
    } else {
        message->fields =
            sf_realloc(message->fields, (size_t)message->field_count * sizeof(*message->fields));
        if (message->field_count > 1)
            qsort(message->fields, message->field_count, sizeof(*message->fields), by_number);
        index_names(message);
        (void)sf_map_put(tables, sf_buf_view(&full), message);
    }
    sf_buf_append_str(&full, ".");
    for (rest = body; good && rest.len > 0;) {
        good = next_field(&rest, &wire);
        if (good && wire.number == MESSAGE_NESTED_TYPE)
            good = enter_message(sf_buf_view(&full), wire.body, depth + 1);
    }
    sf_buf_fini(&full);
    return good;
}

static bool enter_file(struct sf_view file)
{
    struct sf_view rest = file;
    struct wire_field wire;
    struct sf_buf scope = {0};
    bool good = true;

    while (good && rest.len > 0) {
        good = next_field(&rest, &wire);
        if (good && wire.number == FILE_PACKAGE && wire.body.len > 0) {
            sf_buf_clear(&scope);
            sf_buf_append(&scope, wire.body.ptr, wire.body.len);
            sf_buf_append_str(&scope, ".");
        }
    }
    for (rest = file; good && rest.len > 0;) {
        good = next_field(&rest, &wire);
        if (good && wire.number == FILE_MESSAGE_TYPE)
            good = enter_message(sf_buf_view(&scope), wire.body, 0);
    }
    sf_buf_fini(&scope);
    return good;
}

/* Points every field of message type to its table. Enum types have no table and stay NULL. */
static void resolve(void)
{
    struct sf_map_iter iter = {0};

    while (sf_map_next(tables, &iter)) {
        struct sf_pbjson_message *message = iter.value;
        for (unsigned i = 0; i < message->field_count; i++) {
            struct sf_pbjson_field *field = &message->fields[i];
            if (field->type_name.len > 0)
                field->sub = sf_map_get(tables, field->type_name);
        }
    }
}

enum sf_err sf_pbjson_register(struct sf_view descriptor_set)
{
    struct sf_view rest = descriptor_set;
    struct wire_field wire;

    if (tables == NULL) {
        tables = sf_map_new();
        sets = sf_map_new();
    }
    if (sf_map_get(sets, descriptor_set) != NULL)
        return SF_OK;
    while (rest.len > 0) {
        if (!next_field(&rest, &wire))
            return SF_ERR_PARSE;
        if (wire.number == FILE_SET_FILE && !enter_file(wire.body))
            return SF_ERR_PARSE;
    }
    resolve();
    (void)sf_map_put(sets, descriptor_set, &set_known);
    return SF_OK;
}

const struct sf_pbjson_message *sf_pbjson_side(const ProtobufCMessageDescriptor *desc)
{
    SF_ASSERT(tables != NULL);
    const struct sf_pbjson_message *side = sf_map_get(tables, sf_view_str(desc->name));
    SF_ASSERT(side != NULL && side->field_count == desc->n_fields);
    return side;
}

size_t sf_pbjson_value_bytes(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return 8;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    default:
        return 4;
    }
}

static int find_name(const struct sf_pbjson_message *side, struct sf_view name)
{
    unsigned low = 0;
    unsigned high = side->name_count;

    while (low < high) {
        unsigned mid = low + (high - low) / 2;
        int c = sf_view_compare(side->names[mid].text, name);
        if (c == 0)
            return (int)side->names[mid].index;
        if (c < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return -1;
}

int sf_pbjson_field_of(const struct sf_pbjson_message *side, struct sf_json_str name)
{
    uint8_t plain[512];

    if (!name.escaped)
        return find_name(side, name.raw);
    /* Names of fields are short; one too long for the buffer is not among them. */
    if (name.raw.len > sizeof(plain))
        return -1;
    return find_name(side, sf_view_bytes(plain, sf_json_unescape(name, plain)));
}

int sf_pbjson_key_compare(const ProtobufCMessageDescriptor *entry, const ProtobufCMessage *a,
                          const ProtobufCMessage *b)
{
    const ProtobufCFieldDescriptor *key = &entry->fields[0];
    const char *at_a = (const char *)a + key->offset;
    const char *at_b = (const char *)b + key->offset;

    switch (key->type) {
    case PROTOBUF_C_TYPE_STRING:
        return sf_view_compare(sf_view_str(*(const char *const *)(const void *)at_a),
                               sf_view_str(*(const char *const *)(const void *)at_b));
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64: {
        int64_t x = *(const int64_t *)(const void *)at_a;
        int64_t y = *(const int64_t *)(const void *)at_b;
        return (x > y) - (x < y);
    }
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64: {
        uint64_t x = *(const uint64_t *)(const void *)at_a;
        uint64_t y = *(const uint64_t *)(const void *)at_b;
        return (x > y) - (x < y);
    }
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32: {
        uint32_t x = *(const uint32_t *)(const void *)at_a;
        uint32_t y = *(const uint32_t *)(const void *)at_b;
        return (x > y) - (x < y);
    }
    default: {
        int32_t x = *(const int32_t *)(const void *)at_a;
        int32_t y = *(const int32_t *)(const void *)at_b;
        return (x > y) - (x < y);
    }
    }
}
