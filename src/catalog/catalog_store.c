/*
 * Model: every durable object of the catalog has one key template (note section 8), one message of
 * durable.proto and one codec (object/durable.h); segments are the same JSON under zstd. Here the
 * keys are built and bodies become messages and back; when and under which condition something is
 * put is decided elsewhere.
 */
#include "catalog/catalog_fetch.h"
#include "catalog/catalog_head.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/pbjson.h"
#include "object/compress.h"

/* Appends "H(text)/": first two hex digits of SHA-256 of the component's own text. */
static void append_hash(struct sf_buf *out, struct sf_view text)
{
    char hex[SF_SHA256_HEX_BYTES];
    sf_sha256_hex(text, hex);
    sf_buf_printf(out, "%.2s/", hex);
}

/* "catalog/H(ns)/ns/" */
static void append_namespace_dir(struct sf_buf *out, uint64_t namespace_id)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, namespace_id);
    sf_buf_append_str(out, "catalog/");
    append_hash(out, sf_view_str(text));
    sf_buf_printf(out, "%s/", text);
}

static void append_collection_dir(struct sf_buf *out, uint64_t namespace_id, uint64_t collection_id)
{
    append_namespace_dir(out, namespace_id);
    sf_buf_printf(out, "%" PRIu64 "/", collection_id);
}

void sf_catalog_key_namespace(struct sf_buf *out, uint64_t namespace_id, uint64_t revision)
{
    append_namespace_dir(out, namespace_id);
    sf_buf_printf(out, "namespace_descriptor_v%" PRIu64 ".json", revision);
}

void sf_catalog_key_quota(struct sf_buf *out, uint64_t namespace_id)
{
    append_namespace_dir(out, namespace_id);
    sf_buf_append_str(out, "namespace_quota_state.json");
}

void sf_catalog_key_collection(struct sf_buf *out, uint64_t namespace_id, uint64_t collection_id,
                               uint64_t revision)
{
    append_collection_dir(out, namespace_id, collection_id);
    sf_buf_printf(out, "collection_descriptor_v%" PRIu64 ".json", revision);
}

void sf_catalog_key_generation(struct sf_buf *out, uint64_t namespace_id, uint64_t collection_id,
                               uint64_t version, const char *token)
{
    append_collection_dir(out, namespace_id, collection_id);
    sf_buf_printf(out, "schema_generation_v%" PRIu64 "_", version);
    sf_key_append_component(out, sf_view_str(token));
    sf_buf_append_str(out, ".json");
}

void sf_catalog_key_tombstone(struct sf_buf *out, uint64_t namespace_id, uint64_t collection_id,
                              uint64_t drop_revision)
{
    append_collection_dir(out, namespace_id, collection_id);
    sf_buf_printf(out, "collection_tombstone_v%" PRIu64 ".json", drop_revision);
}

void sf_catalog_key_manifest_head(struct sf_buf *out, uint64_t namespace_id, uint64_t collection_id)
{
    append_collection_dir(out, namespace_id, collection_id);
    sf_buf_append_str(out, "manifest_head.json");
}

void sf_catalog_key_statistics_head(struct sf_buf *out, uint64_t namespace_id,
                                    uint64_t collection_id)
{
    append_collection_dir(out, namespace_id, collection_id);
    sf_buf_append_str(out, "optimizer_statistics_head.json");
}

void sf_catalog_key_statistics(struct sf_buf *out, uint64_t namespace_id, uint64_t collection_id,
                               const char *token, uint64_t stats_commit_ts)
{
    append_collection_dir(out, namespace_id, collection_id);
    sf_buf_append_str(out, "optimizer_statistics_v");
    sf_key_append_component(out, sf_view_str(token));
    sf_buf_printf(out, "_%" PRIu64 ".json", stats_commit_ts);
}

void sf_catalog_key_namespace_name(struct sf_buf *out, const char *name)
{
    sf_buf_append_str(out, "catalog-allocator/namespace-name/");
    append_hash(out, sf_view_str(name));
    sf_key_append_component(out, sf_view_str(name));
    sf_buf_append_str(out, ".json");
}

void sf_catalog_key_collection_name(struct sf_buf *out, uint64_t namespace_id, const char *name)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, namespace_id);
    sf_buf_append_str(out, "catalog-allocator/collection-name/");
    append_hash(out, sf_view_str(text));
    sf_buf_printf(out, "%s/", text);
    append_hash(out, sf_view_str(name));
    sf_key_append_component(out, sf_view_str(name));
    sf_buf_append_str(out, ".json");
}

void sf_catalog_key_outcome(struct sf_buf *out, const char *command_identity)
{
    sf_buf_append_str(out, "catalog-log/");
    append_hash(out, sf_view_str(command_identity));
    sf_buf_printf(out, "%s.json", command_identity);
}

void sf_catalog_key_transport(struct sf_buf *out, const char *lookup_key)
{
    sf_buf_append_str(out, "catalog-replay-transport/");
    append_hash(out, sf_view_str(lookup_key));
    sf_buf_printf(out, "%s.json", lookup_key);
}

void sf_catalog_key_business(struct sf_buf *out, const char *kind_name, const char *lookup_key)
{
    sf_buf_printf(out, "catalog-replay-business/%s/", kind_name);
    append_hash(out, sf_view_str(lookup_key));
    sf_buf_printf(out, "%s.json", lookup_key);
}

void sf_catalog_key_segment(struct sf_buf *out, uint64_t epoch)
{
    sf_buf_printf(out, SF_CATALOG_SEGMENT_PREFIX "%020" PRIu64 ".json.zst", epoch);
}

bool sf_catalog_segment_of_key(struct sf_view key, uint64_t *out_epoch)
{
    size_t prefix = strlen(SF_CATALOG_SEGMENT_PREFIX);
    static const char suffix[] = ".json.zst";
    if (key.len != prefix + 20 + strlen(suffix) ||
        memcmp(key.ptr, SF_CATALOG_SEGMENT_PREFIX, prefix) != 0 ||
        memcmp(key.ptr + prefix + 20, suffix, strlen(suffix)) != 0)
        return false;
    uint64_t value = 0;
    for (size_t i = prefix; i < prefix + 20; i++) {
        if (key.ptr[i] < '0' || key.ptr[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(key.ptr[i] - '0');
    }
    *out_epoch = value;
    return true;
}

static bool take_id(struct sf_view *rest, uint64_t *out)
{
    const char *slash = memchr(rest->ptr, '/', rest->len);
    if (slash == NULL)
        return false;
    size_t len = (size_t)(slash - (const char *)rest->ptr);
    bool ok = sf_parse_u64(sf_view_bytes(rest->ptr, len), out);
    *rest = sf_view_bytes(rest->ptr + len + 1, rest->len - len - 1);
    return ok;
}

bool sf_catalog_key_ids(struct sf_view key, uint64_t *out_namespace_id, uint64_t *out_collection_id,
                        struct sf_view *out_name)
{
    *out_namespace_id = *out_collection_id = 0;
    if (key.len < 11 || memcmp(key.ptr, "catalog/", 8) != 0 || key.ptr[10] != '/')
        return false;
    *out_name = sf_view_bytes(key.ptr + 11, key.len - 11);
    return take_id(out_name, out_namespace_id) &&
           (memchr(out_name->ptr, '/', out_name->len) == NULL ||
            take_id(out_name, out_collection_id));
}

const char *sf_catalog_kind_name(SF_PB(CommandKind) kind)
{
    const ProtobufCEnumValue *value = protobuf_c_enum_descriptor_get_value(
        &searchfabric__v1__command_kind__descriptor, (int)kind);
    return value == NULL ? "UNKNOWN" : value->name + strlen("COMMAND_KIND_");
}

void sf_catalog_put_encode(struct sf_catalog_put *put, const ProtobufCMessage *message,
                           bool compressed, char *out_sha256_hex)
{
    sf_buf_clear(&put->body);
    put->desc = message->descriptor;
    put->compressed = compressed;
    put->state = SF_CATALOG_PUT_PENDING;
    put->doubt = false;
    if (!compressed) {
        sf_durable_encode(message, &put->body, NULL);
    } else {
        struct sf_buf plain = {0};
        sf_durable_encode(message, &plain, NULL);
        sf_compress(sf_buf_view(&plain), &put->body);
        sf_buf_fini(&plain);
    }
    if (out_sha256_hex != NULL)
        sf_sha256_hex(sf_buf_view(&put->body), out_sha256_hex);
}

enum sf_err sf_catalog_decode(const ProtobufCMessageDescriptor *desc, bool compressed,
                              struct sf_view body, struct sf_arena *arena, struct sf_diag *diag,
                              ProtobufCMessage **out_message)
{
    if (!compressed)
        return sf_durable_decode(desc, body, arena, diag, out_message);
    struct sf_buf plain = {0};
    enum sf_err err = sf_expand(body, &plain, diag);
    if (err == SF_OK)
        err = sf_durable_decode(desc, sf_buf_view(&plain), arena, diag, out_message);
    sf_buf_fini(&plain);
    return err;
}

enum sf_err sf_catalog_read(struct sf_catalog *catalog, struct sf_sched *sched, struct sf_view key,
                            const ProtobufCMessageDescriptor *desc, bool compressed,
                            struct sf_arena *arena, struct sf_diag *diag,
                            ProtobufCMessage **out_message, char *out_body_sha_hex,
                            struct sf_etag *out_etag)
{
    struct sf_buf body = {0};
    bool ahead = sf_catalog_ahead_take(catalog->ahead, key, &body, out_etag);
    enum sf_err err = ahead ? SF_OK : SF_ERR_UNAVAILABLE;
    for (unsigned tries = 1; !ahead && tries <= SF_CATALOG_PUT_TRIES; tries++) {
        sf_buf_clear(&body);
        err = sf_store_get_wait(catalog->deps.store, sched, key, &body, out_etag);
        if (err != SF_ERR_UNAVAILABLE || sf_catalog_ending(catalog))
            break;
        sf_catalog_pause(catalog, sched, tries);
    }
    if (err == SF_OK) {
        err = sf_catalog_decode(desc, compressed, sf_buf_view(&body), arena, diag, out_message);
        if (err == SF_OK && out_body_sha_hex != NULL)
            sf_sha256_hex(sf_buf_view(&body), out_body_sha_hex);
        if (err != SF_OK)
            sf_diag_wrap(diag, "%.*s", (int)key.len, (const char *)key.ptr);
    } else if (err != SF_ERR_NOT_FOUND) {
        sf_diag_set(diag, err, "cannot read %.*s", (int)key.len, (const char *)key.ptr);
    }
    sf_buf_fini(&body);
    return err;
}

void sf_catalog_body_sha256(const SF_PB(SchemaGenerationBody) * body,
                            char out_hex[SF_SHA256_HEX_BYTES])
{
    struct sf_buf json = {0};
    sf_pbjson_encode(&body->base, &json);
    sf_sha256_hex(sf_buf_view(&json), out_hex);
    sf_buf_fini(&json);
}
