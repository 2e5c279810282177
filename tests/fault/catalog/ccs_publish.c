/*
 * The manifest publisher of a run: commits manifests of collections by writing the manifest and
 * swapping the pointer, at once and without faults. What the catalog makes of it is under test.
 */
#include "catalog/catalog_manifest.h"
#include "fault/catalog/ccs_history.h"

static void put_object(struct history *h, const char *key, const ProtobufCMessage *message,
                       char out_sha256[SF_SHA256_HEX_BYTES])
{
    struct sf_buf body = {0};
    sf_durable_encode(message, &body, out_sha256);
    struct sf_put put = {.key = sf_view_str(key), .body = sf_buf_view(&body), .cond = SF_PUT_ANY};
    enum sf_err err = sf_store_put_wait(sim_backend(h->w->sim), NULL, &put);
    SF_ASSERT(err == SF_OK);
    sf_buf_fini(&body);
}

static void seen_ref(const struct seen *seen, SF_PB(CollectionRef) * ref)
{
    searchfabric__v1__collection_ref__init(ref);
    ref->namespace_id = seen->ns_id;
    ref->collection_id = seen->coll_id;
}

/* The directory is that of the pointer, among the manifests: projectors read nothing else. */
static void manifest_key(const struct seen *seen, uint64_t version, char key[160])
{
    struct sf_buf pointer = {0};
    sf_catalog_key_committed_head(&pointer, seen->ns_id, seen->coll_id);
    const char *from = memchr(pointer.data, '/', pointer.len);
    size_t len = pointer.len - (size_t)(from - (const char *)pointer.data);
    while (len > 0 && from[len - 1] != '/')
        len--;
    snprintf(key, 160, "manifests%.*smanifest_v%020" PRIu64 ".json", (int)len, from, version);
    sf_buf_fini(&pointer);
}

static void put_manifest(struct history *h, const struct seen *seen, uint64_t version,
                         char key[160], char out_sha256[SF_SHA256_HEX_BYTES])
{
    SF_PB(CollectionManifestObject) manifest;
    SF_PB(CollectionRef) ref;
    char attempt[32];
    searchfabric__v1__collection_manifest_object__init(&manifest);
    seen_ref(seen, &ref);
    snprintf(attempt, sizeof(attempt), "publish-%" PRIu64, ++h->next_value);
    manifest_key(seen, version, key);
    manifest.format_version = 1;
    manifest.attempt_id = attempt;
    manifest.collection = &ref;
    manifest.manifest_version = version;
    manifest.previous_manifest_version = version - 1;
    manifest.kind = SF_PBE(MANIFEST_KIND, BASE);
    manifest.base_manifest_version = version;
    manifest.publisher_epoch = 1;
    manifest.created_at_unix_ms = SIM_EPOCH_UNIX_MS;
    manifest.total_rows = version * 1000;
    manifest.total_logical_bytes = version * 100000;
    put_object(h, key, &manifest.base, out_sha256);
}

void publish(struct history *h, struct seen *seen)
{
    SF_PB(ManifestCommittedHeadObject) pointer;
    SF_PB(CollectionRef) ref;
    char attempt[32], manifest_key[160], sha256[SF_SHA256_HEX_BYTES];
    struct sf_buf key = {0};
    if (seen->published == MAX_PUBLISHED)
        return;
    uint64_t version = seen->published + 1;
    put_manifest(h, seen, version, manifest_key, sha256);
    searchfabric__v1__manifest_committed_head_object__init(&pointer);
    seen_ref(seen, &ref);
    snprintf(attempt, sizeof(attempt), "pointer-%" PRIu64, ++h->next_value);
    pointer.format_version = 1;
    pointer.attempt_id = attempt;
    pointer.collection = &ref;
    pointer.committed_manifest_version = version;
    pointer.previous_committed_manifest_version = version - 1;
    pointer.manifest_checksum_or_etag = sha256;
    pointer.publisher_epoch = 1;
    pointer.updated_at_unix_ms = SIM_EPOCH_UNIX_MS + (int64_t)sim_now_ms(h->w->sim);
    pointer.manifest_key = manifest_key;
    pointer.safe_ts = TSO_START + version;
    sf_catalog_key_committed_head(&key, seen->ns_id, seen->coll_id);
    sf_buf_append(&key, "", 1);
    put_object(h, (const char *)key.data, &pointer.base, NULL);
    sf_buf_fini(&key);
    snprintf(seen->checksums[version], sizeof(seen->checksums[version]), "%s", sha256);
    seen->published = version;
    seen->published_seq[version] = ++h->seq;
    sim_trace(h->w->sim, "publisher: %" PRIu64 " v%" PRIu64, seen->coll_id, version);
}

struct seen *publish_of(struct history *h, uint64_t coll_id)
{
    for (size_t i = 0; i < h->seen_count; i++) {
        if (h->seen[i].coll_id == coll_id)
            return &h->seen[i];
    }
    return NULL;
}
