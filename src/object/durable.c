/*
 * Durable control objects. The checksum is taken over the canonical JSON of the message with an
 * empty `sha256`; canonical JSON leaves empty strings out, so that is the object without the field.
 * A writer encodes once and cuts the member out of the text; a reader does the same with what is
 * stored. Text that is not canonical (another order, spaces) is decoded, encoded again without the
 * field and compared: unknown members are part of the canonical form, so an object of a newer
 * binary verifies too. The header fields are found by name in the descriptor, so one function
 * serves every message of durable.proto.
 */
#include "object/durable.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/pbjson.h"

#define DURABLE_FORMAT_VERSION 1u

void sf_attempts_init(struct sf_attempts *attempts, uint64_t process_random)
{
    (void)snprintf(attempts->process, sizeof(attempts->process), "%016llx",
                   (unsigned long long)process_random);
    atomic_init(&attempts->counter, 0);
}

void sf_attempts_next(struct sf_attempts *attempts, char out_id[SF_ATTEMPT_ID_BYTES])
{
    uint64_t n = atomic_fetch_add_explicit(&attempts->counter, 1, memory_order_relaxed) + 1;

    (void)snprintf(out_id, SF_ATTEMPT_ID_BYTES, "%s-%llu", attempts->process,
                   (unsigned long long)n);
}

/* Address of the header field `name`; the message types are ours, so it exists. */
static void *header_field(ProtobufCMessage *message, const char *name, ProtobufCType type)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field_by_name(message->descriptor, name);

    SF_ASSERT(field != NULL && field->type == type && field->label != PROTOBUF_C_LABEL_REPEATED);
    return (char *)message + field->offset;
}

static char **sha_field(ProtobufCMessage *message)
{
    return header_field(message, "sha256", PROTOBUF_C_TYPE_STRING);
}

static uint32_t *format_field(ProtobufCMessage *message)
{
    return header_field(message, "format_version", PROTOBUF_C_TYPE_UINT32);
}

/* Digest of the canonical JSON without the checksum field; `copy` is a shallow copy. */
static void content_digest(ProtobufCMessage *copy, char out_hex[SF_SHA256_HEX_BYTES])
{
    static char empty[1];
    struct sf_buf json = {0};

    *sha_field(copy) = empty;
    sf_pbjson_encode(copy, &json);
    sf_sha256_hex(sf_buf_view(&json), out_hex);
    sf_buf_fini(&json);
}

#define MEMBER_START ",\"sha256\":\""
#define MEMBER_BYTES (sizeof(MEMBER_START) - 1 + SF_SHA256_HEX_BYTES - 1 + 1)

/* Position of the checksum's member in canonical JSON; false when it is not there as written. Only
 * scalars come before it, and a string's quotes are escaped, so the first match is the member. */
static bool find_member(struct sf_view json, const char *hex, size_t *out_at)
{
    char member[MEMBER_BYTES + 1];

    if (strlen(hex) != SF_SHA256_HEX_BYTES - 1)
        return false;
    (void)snprintf(member, sizeof(member), MEMBER_START "%s\"", hex);
    const char *found = memmem(json.ptr, json.len, member, MEMBER_BYTES);
    if (found == NULL)
        return false;
    *out_at = (size_t)(found - (const char *)json.ptr);
    return true;
}

/* Digest of the text without the member at `at`. */
static void digest_without(struct sf_view json, size_t at, char out_hex[SF_SHA256_HEX_BYTES])
{
    struct sf_buf rest = {0};
    const char *text = (const char *)json.ptr;

    sf_buf_reserve(&rest, json.len);
    sf_buf_append(&rest, text, at);
    sf_buf_append(&rest, text + at + MEMBER_BYTES, json.len - at - MEMBER_BYTES);
    sf_sha256_hex(sf_buf_view(&rest), out_hex);
    sf_buf_fini(&rest);
}

void sf_durable_encode(const ProtobufCMessage *message, struct sf_buf *out, char *out_sha256_hex)
{
    ProtobufCMessage *copy = sf_memdup(message, message->descriptor->sizeof_message);
    char hex[SF_SHA256_HEX_BYTES];
    size_t start = out->len, at = 0;
    char *const *attempt_id = header_field(copy, "attempt_id", PROTOBUF_C_TYPE_STRING);

    SF_ASSERT(*attempt_id != NULL && (*attempt_id)[0] != '\0');
    *format_field(copy) = DURABLE_FORMAT_VERSION;
    memset(hex, '0', sizeof(hex) - 1); /* keeps the place */
    hex[sizeof(hex) - 1] = '\0';
    *sha_field(copy) = hex;
    sf_pbjson_encode(copy, out);
    free(copy);
    struct sf_view json = sf_view_bytes(out->data + start, out->len - start);
    SF_ASSERT(find_member(json, hex, &at));
    digest_without(json, at, hex);
    memcpy(out->data + start + at + sizeof(MEMBER_START) - 1, hex, sizeof(hex) - 1);
    if (out_sha256_hex != NULL)
        sf_sha256_hex(json, out_sha256_hex);
}

/* Does the checksum match the stored text, or else the canonical form of the message? */
static bool verifies(const ProtobufCMessage *message, struct sf_view body)
{
    ProtobufCMessage *copy = sf_memdup(message, message->descriptor->sizeof_message);
    const char *stated = *sha_field(copy);
    char hex[SF_SHA256_HEX_BYTES];
    size_t at = 0;

    bool same = find_member(body, stated, &at);
    if (same) {
        digest_without(body, at, hex);
        same = strcmp(hex, stated) == 0;
    }
    if (!same) {
        content_digest(copy, hex);
        same = strcmp(hex, stated) == 0;
    }
    free(copy);
    return same;
}

static enum sf_err corrupt(const ProtobufCMessageDescriptor *desc, struct sf_diag *diag,
                           const char *why)
{
    return sf_diag_set(diag, SF_ERR_CORRUPT, "%s: %s", desc->short_name, why);
}

enum sf_err sf_durable_decode(const ProtobufCMessageDescriptor *desc, struct sf_view body,
                              struct sf_arena *arena, struct sf_diag *diag,
                              ProtobufCMessage **out_message)
{
    ProtobufCMessage *message = NULL;

    enum sf_err err = sf_pbjson_decode(desc, body, arena, diag, &message);
    if (err == SF_ERR_LIMIT)
        return corrupt(desc, diag, "the stored JSON is larger than the reader allows");
    if (err != SF_OK)
        return corrupt(desc, diag, "the stored JSON does not decode");
    uint32_t format = *format_field(message);
    if (format > DURABLE_FORMAT_VERSION)
        return sf_diag_set(diag, SF_ERR_CORRUPT,
                           "%s: format_version %u is newer than this binary reads (%u)",
                           desc->short_name, format, DURABLE_FORMAT_VERSION);
    if (format == 0)
        return corrupt(desc, diag, "format_version is missing");
    if (!verifies(message, body))
        return corrupt(desc, diag, "the checksum does not match the content");
    *out_message = message;
    return SF_OK;
}

enum sf_err sf_durable_read_wait(struct sf_store *store, struct sf_sched *sched, struct sf_view key,
                                 const ProtobufCMessageDescriptor *desc, struct sf_arena *arena,
                                 struct sf_diag *diag, ProtobufCMessage **out_message,
                                 struct sf_etag *out_etag)
{
    struct sf_buf body = {0};

    enum sf_err err = sf_store_get_wait(store, sched, key, &body, out_etag);
    if (err == SF_OK)
        err = sf_durable_decode(desc, sf_buf_view(&body), arena, diag, out_message);
    else
        (void)sf_diag_set(diag, err, "%s: %s", desc->short_name, sf_err_info(err)->meaning);
    if (err != SF_OK)
        sf_diag_wrap(diag, "object %.*s", (int)key.len, (const char *)key.ptr);
    sf_buf_fini(&body);
    return err;
}
