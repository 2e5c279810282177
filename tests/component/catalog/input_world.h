/*
 * Requests of every method of the catalog for tests of bad input: built from JSON, one field of
 * them changed, sent as raw bytes over a gRPC connection on loopback, so that what no protobuf
 * runtime would pack arrives too.
 */
#ifndef SF_TESTS_COMPONENT_CATALOG_INPUT_WORLD_H
#define SF_TESTS_COMPONENT_CATALOG_INPUT_WORLD_H

#include "component/catalog/reject_world.h"

/* In a text: becomes U+0000 on the wire. */
#define INPUT_NUL "\x01\x02\x01"

struct input {
    struct world *w;
    struct sf_reactors *reactors;
    struct sf_rpc_server *server;
    struct sf_channel *channel;
    uint64_t ns;     /* $N: a namespace */
    uint64_t ready;  /* $C: its collection that serves */
    uint64_t other;  /* $D: another one, for what changes things */
    unsigned serial; /* $K, $U, $S: counts up with every request */
};

/* A well-formed request. */
struct input_template {
    const char *method; /* "PutNamespaceMetadata" */
    const char *branch; /* only for fields below this path; NULL = the others */
    const char *json;   /* $M and $R stand for the RequestMeta of a mutation and of a read */
    bool strict;        /* unknown fields are refused */
};

struct input_call {
    const ProtobufCMethodDescriptor *method;
    const char *path; /* "/searchfabric.v1.CatalogControlService/PutNamespaceMetadata" */
};

/* A field of a request. */
struct input_field {
    const ProtobufCFieldDescriptor *desc;
    ProtobufCMessage *owner; /* message that holds it */
};

struct input *input_new(void);
void input_destroy(struct input *in);

/* The request of a template. */
ProtobufCMessage *input_build(struct input *in, const ProtobufCMessageDescriptor *desc,
                              const struct input_template *from);

/* The field at "definition.fields.name": first elements of what is repeated. Fails when a message
 * on the way is absent. */
struct input_field input_find(ProtobufCMessage *request, const char *path);

/* Sets it; a branch of a oneof and what is optional becomes present. */
void input_set_text(struct input_field field, const char *text);
void input_set_number(struct input_field field, uint64_t number);
/* Absent: what has presence is cleared, else the default. */
void input_clear(struct input_field field);

/* Sends the request; answered or refused as in->w->diag says. */
enum sf_err input_send(struct input *in, const char *path, const ProtobufCMessage *request);

/* `path` as the wire's scan names it: "definition.fields[0].name". */
const char *input_wire_path(struct input *in, const ProtobufCMessageDescriptor *desc,
                            const char *path);

#endif
