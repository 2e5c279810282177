/*
 * Reflection. The set is cut into its files (raw slices, sent as they are) and read once for an
 * index: names of files, and the full names of messages, enums, services and methods. A file is
 * answered with all it imports, itself first. v1alpha has the messages of v1 under another name, so
 * one handler on v1's types serves both.
 */
#include "rpc/reflection.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "google/protobuf/descriptor.pb-c.h"
#include "grpc/reflection/v1/reflection.pb-c.h"

struct file {
    struct sf_view bytes; /* the serialized FileDescriptorProto, in the set */
    const Google__Protobuf__FileDescriptorProto *desc;
};

struct sf_reflection {
    struct sf_service v1;
    struct sf_service v1alpha;
    Google__Protobuf__FileDescriptorSet *set;
    size_t file_count;
    struct file *files;
    struct sf_map *by_name;   /* file name -> struct file */
    struct sf_map *by_symbol; /* full name -> struct file */
    size_t service_count;
    char **services; /* owned names */
};

typedef Grpc__Reflection__V1__ServerReflectionRequest reflection_request;
typedef Grpc__Reflection__V1__ServerReflectionResponse reflection_response;

/* ---- index ---- */

static void add_symbol(struct sf_reflection *r, struct file *file, const char *scope,
                       const char *name, char **out_full)
{
    char *full = NULL;

    SF_ASSERT(asprintf(&full, "%s%s%s", scope, scope[0] == '\0' ? "" : ".", name) >= 0);
    (void)sf_map_put(r->by_symbol, sf_view_str(full), file);
    if (out_full != NULL)
        *out_full = full;
    else
        free(full);
}

static void add_message(struct sf_reflection *r, struct file *file, const char *scope,
                        const Google__Protobuf__DescriptorProto *message)
{
    char *full;

    add_symbol(r, file, scope, message->name, &full);
    for (size_t i = 0; i < message->n_nested_type; i++)
        add_message(r, file, full, message->nested_type[i]);
    for (size_t i = 0; i < message->n_enum_type; i++)
        add_symbol(r, file, full, message->enum_type[i]->name, NULL);
    free(full);
}

static void add_service(struct sf_reflection *r, struct file *file, const char *scope,
                        const Google__Protobuf__ServiceDescriptorProto *service)
{
    char *full;

    add_symbol(r, file, scope, service->name, &full);
    for (size_t i = 0; i < service->n_method; i++)
        add_symbol(r, file, full, service->method[i]->name, NULL);
    free(full);
}

static void add_file(struct sf_reflection *r, struct file *file)
{
    const Google__Protobuf__FileDescriptorProto *desc = file->desc;
    const char *scope = desc->package == NULL ? "" : desc->package;

    (void)sf_map_put(r->by_name, sf_view_str(desc->name), file);
    for (size_t i = 0; i < desc->n_message_type; i++)
        add_message(r, file, scope, desc->message_type[i]);
    for (size_t i = 0; i < desc->n_enum_type; i++)
        add_symbol(r, file, scope, desc->enum_type[i]->name, NULL);
    for (size_t i = 0; i < desc->n_service; i++)
        add_service(r, file, scope, desc->service[i]);
}

/* The next entry of the set's one field (number 1, length-delimited); the set unpacked, so its form
 * is right. */
static struct sf_view next_file(struct sf_view *rest)
{
    size_t len = 0;
    unsigned shift = 0;
    size_t at = 1;

    SF_ASSERT(rest->len > 2 && rest->ptr[0] == 0x0a);
    do {
        len |= (size_t)(rest->ptr[at] & 0x7f) << shift;
        shift += 7;
    } while (rest->ptr[at++] & 0x80);
    SF_ASSERT(len <= rest->len - at);
    struct sf_view file = {rest->ptr + at, len};
    rest->ptr += at + len;
    rest->len -= at + len;
    return file;
}

/* ---- answers ---- */

static void fill_error(reflection_response *response, Grpc__Reflection__V1__ErrorResponse *error,
                       enum sf_grpc_status code, const char *message)
{
    grpc__reflection__v1__error_response__init(error);
    error->error_code = (int32_t)code;
    error->error_message = (char *)(uintptr_t)message;
    response->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ERROR_RESPONSE;
    response->error_response = error;
}

/* Appends a file and what it imports, each once. */
static void list_file(const struct sf_reflection *r, const struct file *file,
                      ProtobufCBinaryData *list, size_t *count)
{
    for (size_t i = 0; i < *count; i++)
        if (list[i].data == file->bytes.ptr)
            return;
    list[(*count)++] =
        (ProtobufCBinaryData){file->bytes.len, (uint8_t *)(uintptr_t)file->bytes.ptr};
    for (size_t i = 0; i < file->desc->n_dependency; i++) {
        const struct file *import = sf_map_get(r->by_name, sf_view_str(file->desc->dependency[i]));
        if (import != NULL)
            list_file(r, import, list, count);
    }
}

static void send(struct sf_call *call, const reflection_response *response)
{
    enum sf_err err = sf_call_send(call, &response->base);

    if (err == SF_OK || err == SF_CANCELLED)
        return;
    (void)sf_diag_set(sf_call_diag(call), err, "answers are not read");
    sf_call_fail(call, sf_call_diag(call));
}

static void answer_file(const struct sf_reflection *r, struct sf_call *call,
                        reflection_response *response, const struct file *file)
{
    Grpc__Reflection__V1__FileDescriptorResponse files =
        GRPC__REFLECTION__V1__FILE_DESCRIPTOR_RESPONSE__INIT;
    Grpc__Reflection__V1__ErrorResponse error;
    ProtobufCBinaryData *list = sf_calloc(r->file_count, sizeof(*list));

    if (file == NULL) {
        fill_error(response, &error, SF_GRPC_NOT_FOUND, "not found");
    } else {
        list_file(r, file, list, &files.n_file_descriptor_proto);
        files.file_descriptor_proto = list;
        response->message_response_case =
            GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE;
        response->file_descriptor_response = &files;
    }
    send(call, response);
    free(list);
}

static void answer_services(const struct sf_reflection *r, struct sf_call *call,
                            reflection_response *response)
{
    Grpc__Reflection__V1__ListServiceResponse services =
        GRPC__REFLECTION__V1__LIST_SERVICE_RESPONSE__INIT;
    Grpc__Reflection__V1__ServiceResponse *entries = sf_calloc(r->service_count, sizeof(*entries));
    Grpc__Reflection__V1__ServiceResponse **list =
        sf_calloc(r->service_count, sizeof(Grpc__Reflection__V1__ServiceResponse *));

    for (size_t i = 0; i < r->service_count; i++) {
        grpc__reflection__v1__service_response__init(&entries[i]);
        entries[i].name = r->services[i];
        list[i] = &entries[i];
    }
    services.n_service = r->service_count;
    services.service = list;
    response->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE;
    response->list_services_response = &services;
    send(call, response);
    free(list);
    free(entries);
}

/* No extensions exist in proto3 files: a known type has an empty list. */
static void answer_extensions(const struct sf_reflection *r, struct sf_call *call,
                              reflection_response *response, const char *type)
{
    Grpc__Reflection__V1__ExtensionNumberResponse numbers =
        GRPC__REFLECTION__V1__EXTENSION_NUMBER_RESPONSE__INIT;
    Grpc__Reflection__V1__ErrorResponse error;

    if (sf_map_get(r->by_symbol, sf_view_str(type)) == NULL) {
        fill_error(response, &error, SF_GRPC_NOT_FOUND, "not found");
    } else {
        numbers.base_type_name = (char *)(uintptr_t)type;
        response->message_response_case =
            GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ALL_EXTENSION_NUMBERS_RESPONSE;
        response->all_extension_numbers_response = &numbers;
    }
    send(call, response);
}

static void on_message(void *self, struct sf_call *call, const ProtobufCMessage *message)
{
    struct sf_reflection *r = self;
    const reflection_request *request = (const reflection_request *)(const void *)message;
    reflection_response response = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
    Grpc__Reflection__V1__ErrorResponse error;

    response.valid_host = request->host;
    response.original_request = (reflection_request *)(uintptr_t)request;
    switch (request->message_request_case) {
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_BY_FILENAME:
        answer_file(r, call, &response,
                    sf_map_get(r->by_name, sf_view_str(request->file_by_filename)));
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL:
        answer_file(r, call, &response,
                    sf_map_get(r->by_symbol, sf_view_str(request->file_containing_symbol)));
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_EXTENSION:
        answer_file(r, call, &response, NULL);
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_ALL_EXTENSION_NUMBERS_OF_TYPE:
        answer_extensions(r, call, &response, request->all_extension_numbers_of_type);
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_LIST_SERVICES:
        answer_services(r, call, &response);
        break;
    default:
        fill_error(&response, &error, SF_GRPC_INVALID_ARGUMENT, "no request");
        send(call, &response);
        break;
    }
}

static void on_open(void *self, struct sf_call *call)
{
    (void)self, (void)call;
}

static void on_half_close(void *self, struct sf_call *call)
{
    (void)self;
    sf_call_finish(call);
}

static void on_closed(void *self, struct sf_call *call)
{
    (void)self, (void)call;
}

static const struct sf_stream_ops info_ops = {
    .open = on_open,
    .message = on_message,
    .half_close = on_half_close,
    .closed = on_closed,
};

static const struct sf_method methods[] = {
    {.name = "ServerReflectionInfo",
     .request = &grpc__reflection__v1__server_reflection_request__descriptor,
     .response = &grpc__reflection__v1__server_reflection_response__descriptor,
     .stream = &info_ops},
};

/* ---- life ---- */

struct sf_reflection *sf_reflection_new(struct sf_view descriptor_set)
{
    Google__Protobuf__FileDescriptorSet *set =
        google__protobuf__file_descriptor_set__unpack(NULL, descriptor_set.len, descriptor_set.ptr);

    if (set == NULL)
        return NULL;
    struct sf_reflection *r = sf_calloc(1, sizeof(*r));
    r->v1 = (struct sf_service){
        .full_name = "grpc.reflection.v1.ServerReflection",
        .methods = methods,
        .method_count = SF_ARRAY_LEN(methods),
        .self = r,
    };
    r->v1alpha = r->v1;
    r->v1alpha.full_name = "grpc.reflection.v1alpha.ServerReflection";
    r->set = set;
    r->file_count = set->n_file;
    r->files = sf_calloc(r->file_count, sizeof(*r->files));
    r->by_name = sf_map_new();
    r->by_symbol = sf_map_new();
    for (size_t i = 0; i < r->file_count; i++) {
        r->files[i] = (struct file){.bytes = next_file(&descriptor_set), .desc = set->file[i]};
        add_file(r, &r->files[i]);
    }
    return r;
}

static void free_services(struct sf_reflection *r)
{
    for (size_t i = 0; i < r->service_count; i++)
        free(r->services[i]);
    free(r->services);
}

void sf_reflection_destroy(struct sf_reflection *r)
{
    if (r == NULL)
        return;
    free_services(r);
    sf_map_destroy(r->by_name, NULL);
    sf_map_destroy(r->by_symbol, NULL);
    google__protobuf__file_descriptor_set__free_unpacked(r->set, NULL);
    free(r->files);
    free(r);
}

const struct sf_service *sf_reflection_service_v1(const struct sf_reflection *reflection)
{
    return &reflection->v1;
}

const struct sf_service *sf_reflection_service_v1alpha(const struct sf_reflection *reflection)
{
    return &reflection->v1alpha;
}

void sf_reflection_set_services(struct sf_reflection *reflection, const char *const *names,
                                size_t count)
{
    free_services(reflection);
    reflection->service_count = count;
    reflection->services = sf_calloc(count, sizeof(char *));
    for (size_t i = 0; i < count; i++)
        reflection->services[i] = sf_strdup(names[i]);
}
