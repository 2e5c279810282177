/* Side tables of the JSON codec: what protobuf-c's descriptors leave out (map flag, json_name). */
#ifndef SF_BASE_PBJSON_PRIV_H
#define SF_BASE_PBJSON_PRIV_H

#include "base/json.h"
#include "base/pbjson.h"

/* Field number that carries unknown JSON members inside a message: length-delimited, `"name":value`
 * as text. It lies in the range that protobuf reserves for implementations, so no schema has it. */
#define SF_PBJSON_UNKNOWN_FIELD 19999u

/* Most fields one message type may have (a bitmap of them lives on the stack). */
#define SF_PBJSON_FIELDS_MAX 256u

struct sf_pbjson_message;

/* One field, at the same index as in the protobuf-c descriptor (by ascending number). */
struct sf_pbjson_field {
    uint32_t number;                     /* field number */
    struct sf_view name;                 /* proto name, in the descriptor set */
    struct sf_view json_name;            /* JSON name, in the descriptor set */
    struct sf_view type_name;            /* full name of its message type, empty for others */
    const struct sf_pbjson_message *sub; /* its message type, NULL for others */
    char *key;                           /* owned: `"name":` as it is written */
    size_t key_len;                      /* bytes of key */
};

/* A name that a member may have in the input. */
struct sf_pbjson_name {
    struct sf_view text; /* in the descriptor set */
    unsigned index;      /* of the field */
};

/* One message type. */
struct sf_pbjson_message {
    char *full_name;                /* owned, "package.Message" */
    bool map_entry;                 /* a synthesized entry of a map field */
    unsigned field_count;           /* number of fields */
    struct sf_pbjson_field *fields; /* owned, by ascending number */
    unsigned name_count;            /* number of names */
    struct sf_pbjson_name *names;   /* owned, by bytes */
};

/* The side table of `desc`; an unregistered type is an assertion. Any thread after registration. */
const struct sf_pbjson_message *sf_pbjson_side(const ProtobufCMessageDescriptor *desc);

/* Index of the field with this name in either form, or -1. */
int sf_pbjson_field_of(const struct sf_pbjson_message *side, struct sf_json_str name);

/* Size of one value of `type` in a message or in a repeated field's array. */
size_t sf_pbjson_value_bytes(ProtobufCType type);

/* Order of two map entries (messages of type `entry`) by key: text by bytes, numbers by value. */
int sf_pbjson_key_compare(const ProtobufCMessageDescriptor *entry, const ProtobufCMessage *a,
                          const ProtobufCMessage *b);

#endif
