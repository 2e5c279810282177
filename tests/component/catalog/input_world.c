#include "component/catalog/input_world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/pbjson.h"
#include "rpc/server.h"
#include "searchfabric/v1/catalog_operations_private.pb-c.h"

#define META(key)                                                                                  \
    "{" key "\"correlation_id\":\"c\",\"client_id\":\"i\",\"principal_subject\":\"p\","            \
    "\"client_kind\":\"CLIENT_KIND_CONTROL_ADMIN\"}"

/* ---- requests ----------------------------------------------------------------------------- */

static void expand(struct input *in, const char *json, struct sf_buf *out)
{
    for (; *json != '\0'; json++) {
        if (*json != '$') {
            sf_buf_append(out, json, 1);
            continue;
        }
        switch (*++json) {
        case 'M':
            expand(in, META("\"idempotency_key\":\"$K\","), out);
            break;
        case 'R':
            sf_buf_append_str(out, META(""));
            break;
        case 'N':
            sf_buf_printf(out, "\"%" PRIu64 "\"", in->ns);
            break;
        case 'C':
            sf_buf_printf(out,
                          "{\"namespace_id\":\"%" PRIu64 "\",\"collection_id\":\"%" PRIu64 "\"}",
                          in->ns, in->ready);
            break;
        case 'D':
            sf_buf_printf(out,
                          "{\"namespace_id\":\"%" PRIu64 "\",\"collection_id\":\"%" PRIu64 "\"}",
                          in->ns, in->other);
            break;
        default: /* K, U, S */
            sf_buf_printf(out, "%u", in->serial);
        }
    }
}

ProtobufCMessage *input_build(struct input *in, const ProtobufCMessageDescriptor *desc,
                              const struct input_template *from)
{
    struct sf_buf json = {0};
    ProtobufCMessage *out = NULL;
    in->serial++;
    expand(in, from->json, &json);
    if (sf_pbjson_decode(desc, sf_buf_view(&json), in->w->arena, &in->w->diag, &out) != SF_OK ||
        sf_catalog_unknown_check(out, &in->w->diag) != SF_OK)
        fail_msg("%s: %s", from->method, in->w->diag.message);
    sf_buf_fini(&json);
    return out;
}

/* ---- fields ------------------------------------------------------------------------------- */

static void *at(const ProtobufCMessage *message, unsigned offset)
{
    return (char *)(uintptr_t)message + offset;
}

/* The message that the field holds. */
static ProtobufCMessage *step_into(struct input_field field)
{
    void *slot = at(field.owner, field.desc->offset);
    if (field.desc->label == PROTOBUF_C_LABEL_REPEATED) {
        assert_true(*(size_t *)at(field.owner, field.desc->quantifier_offset) > 0);
        return (*(ProtobufCMessage ***)slot)[0];
    }
    if ((field.desc->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0)
        assert_int_equal(*(uint32_t *)at(field.owner, field.desc->quantifier_offset),
                         field.desc->id);
    return *(ProtobufCMessage **)slot;
}

struct input_field input_find(ProtobufCMessage *request, const char *path)
{
    struct input_field field = {.owner = request};
    for (;;) {
        char name[80];
        const char *dot = strchr(path, '.');
        snprintf(name, sizeof(name), "%.*s", dot == NULL ? 79 : (int)(dot - path), path);
        field.desc = protobuf_c_message_descriptor_get_field_by_name(field.owner->descriptor, name);
        assert_non_null(field.desc);
        if (dot == NULL)
            return field;
        field.owner = step_into(field);
        if (field.owner == NULL)
            fail_msg("%s lacks %s", request->descriptor->short_name, path);
        path = dot + 1;
    }
}

/* Makes it present; its place, of a repeated field that of the first element. */
static void *make_present(struct input_field field)
{
    void *slot = at(field.owner, field.desc->offset);
    if (field.desc->label == PROTOBUF_C_LABEL_REPEATED) {
        assert_true(*(size_t *)at(field.owner, field.desc->quantifier_offset) > 0);
        return *(void **)slot;
    }
    if ((field.desc->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0)
        *(uint32_t *)at(field.owner, field.desc->quantifier_offset) = field.desc->id;
    return slot;
}

void input_set_text(struct input_field field, const char *text)
{
    *(const char **)make_present(field) = text;
}

void input_set_number(struct input_field field, uint64_t number)
{
    void *slot = make_present(field);
    if (field.desc->type == PROTOBUF_C_TYPE_ENUM)
        *(int *)slot = (int)number;
    else
        *(uint64_t *)slot = number;
}

void input_clear(struct input_field field)
{
    if ((field.desc->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0)
        *(uint32_t *)at(field.owner, field.desc->quantifier_offset) = 0;
    else if (field.desc->type == PROTOBUF_C_TYPE_STRING)
        input_set_text(field, "");
    else if (field.desc->type == PROTOBUF_C_TYPE_MESSAGE)
        *(void **)at(field.owner, field.desc->offset) = NULL;
    else
        input_set_number(field, 0);
}

const char *input_wire_path(struct input *in, const ProtobufCMessageDescriptor *desc,
                            const char *path)
{
    char out[256] = "";
    while (path != NULL) {
        char name[80];
        const char *dot = strchr(path, '.');
        snprintf(name, sizeof(name), "%.*s", dot == NULL ? 79 : (int)(dot - path), path);
        const ProtobufCFieldDescriptor *field =
            protobuf_c_message_descriptor_get_field_by_name(desc, name);
        size_t used = strlen(out);
        snprintf(out + used, sizeof(out) - used, "%s%s%s", used == 0 ? "" : ".", name,
                 field->label == PROTOBUF_C_LABEL_REPEATED ? "[0]" : "");
        desc = field->descriptor;
        path = dot == NULL ? NULL : dot + 1;
    }
    return sf_arena_str(in->w->arena, sf_view_str(out));
}

/* ---- wire --------------------------------------------------------------------------------- */

enum sf_err input_send(struct input *in, const char *path, const ProtobufCMessage *request)
{
    struct sf_buf bytes = {0};
    const struct sf_call_options options = {.timeout_ms = 30000};
    const ProtobufCMessage *response = NULL;
    sf_pb_pack(request, &bytes);
    for (size_t i = 0; i + 3 <= bytes.len; i++) {
        if (memcmp(bytes.data + i, INPUT_NUL, 3) == 0)
            bytes.data[i + 1] = 0;
    }
    /* to a message without fields they are all unknown, and packed as they came */
    ProtobufCMessage *raw = protobuf_c_message_unpack(
        &searchfabric__v1__list_catalog_jobs_request__descriptor, NULL, bytes.len, bytes.data);
    assert_non_null(raw);
    sf_diag_init(&in->w->diag);
    enum sf_err err = sf_channel_unary_wait(in->channel, NULL, path, raw, &options, in->w->arena,
                                            &in->w->diag, &response);
    protobuf_c_message_free_unpacked(raw, NULL);
    sf_buf_fini(&bytes);
    return err;
}

struct input *input_new(void)
{
    struct input *in = sf_calloc(1, sizeof(*in));
    const struct sf_service *services[SF_CATALOG_SERVICE_COUNT];
    in->w = world_new(true);
    sf_catalog_services(in->w->catalog, services);
    assert_int_equal(sf_reactors_start(1, sf_clock_system(), &in->w->diag, &in->reactors), SF_OK);
    const struct sf_rpc_server_options options = {.host = "127.0.0.1",
                                                  .reactors = in->reactors,
                                                  .services = services,
                                                  .service_count = SF_CATALOG_SERVICE_COUNT};
    assert_int_equal(sf_rpc_server_start(&options, &in->w->diag, &in->server), SF_OK);
    assert_int_equal(sf_grpc_channel_new(sf_reactors_loop(in->reactors, 0), "127.0.0.1",
                                         sf_rpc_server_port(in->server), &in->w->diag,
                                         &in->channel),
                     SF_OK);
    in->ns = world_namespace(in->w, "n", "alpha");
    in->ready = world_collection(in->w, "c", in->ns, "books");
    in->other = world_collection(in->w, "d", in->ns, "films");
    return in;
}

void input_destroy(struct input *in)
{
    sf_channel_destroy(in->channel);
    sf_rpc_server_stop(in->server, 1000);
    sf_reactors_stop(in->reactors);
    world_destroy(in->w);
    free(in);
}
