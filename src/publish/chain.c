#include "publish/chain.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/limits.h"
#include "base/mem.h"
#include "object/durable.h"
#include "publish/keys.h"

/*
 * Each link names the digest of the bytes it points at: the head its manifest, a manifest the one
 * before it, the base its lists. So a walk that ends well has read exactly what the committed head
 * stands for, and an orphan (a manifest that no head ever named) can never slip in: its number may
 * lie between two links, but no link names it.
 */

void sf_chain_init(struct sf_chain *chain, struct sf_collection_ref collection, uint64_t from_ts)
{
    *chain = (struct sf_chain){.collection = collection, .from_ts = from_ts};
    chain->arena = sf_arena_new(SF_LIMIT_MANIFEST_CHAIN_BYTES);
}

void sf_chain_fini(struct sf_chain *chain)
{
    sf_arena_destroy(chain->arena);
    free(chain->manifests);
    free(chain->lists);
    *chain = (struct sf_chain){0};
}

const Searchfabric__V1__CollectionManifestObject *sf_chain_newest(const struct sf_chain *chain)
{
    return chain->manifest_count == 0 ? NULL : chain->manifests[0];
}

const Searchfabric__V1__CollectionManifestObject *sf_chain_base(const struct sf_chain *chain)
{
    return chain->manifest_count == 0 ? NULL : chain->manifests[chain->manifest_count - 1];
}

/* Skips the lists that are too old. */
static void next_list(struct sf_chain *chain)
{
    const Searchfabric__V1__CollectionManifestObject *base = sf_chain_base(chain);
    while (chain->next_list < base->n_slice_lists &&
           base->slice_lists[chain->next_list]->max_commit_ts < chain->from_ts)
        chain->next_list++;
    chain->state = chain->next_list < base->n_slice_lists ? SF_CHAIN_LIST : SF_CHAIN_DONE;
}

bool sf_chain_want(struct sf_chain *chain, struct sf_buf *out_key)
{
    switch (chain->state) {
    case SF_CHAIN_HEAD:
        sf_committed_head_key(out_key, chain->collection);
        return true;
    case SF_CHAIN_MANIFEST:
        sf_manifest_key(out_key, chain->collection, chain->next_version);
        return true;
    case SF_CHAIN_LIST:
        sf_buf_append_str(out_key, sf_chain_base(chain)->slice_lists[chain->next_list]->key);
        return true;
    case SF_CHAIN_DONE:
        break;
    }
    return false;
}

static enum sf_err corrupt(struct sf_diag *diag, const char *what)
{
    return sf_diag_set(diag, SF_ERR_CORRUPT, "committed lineage: %s", what);
}

static bool same_collection(const struct sf_chain *chain,
                            const Searchfabric__V1__CollectionRef *ref)
{
    return ref != NULL && ref->namespace_id == chain->collection.namespace_id.v &&
           ref->collection_id == chain->collection.collection_id.v;
}

static enum sf_err decode(struct sf_chain *chain, const ProtobufCMessageDescriptor *desc,
                          struct sf_view body, const char *sha256, struct sf_diag *diag,
                          ProtobufCMessage **out)
{
    char hex[SF_SHA256_HEX_BYTES];
    sf_sha256_hex(body, hex);
    if (sha256 != NULL && strcmp(hex, sha256) != 0)
        return corrupt(diag, "object is not the one that the link names");
    return sf_durable_decode(desc, body, chain->arena, diag, out);
}

static enum sf_err want_manifest(struct sf_chain *chain, uint64_t version, const char *sha256,
                                 struct sf_diag *diag)
{
    if (version == 0 || strlen(sha256) != 64)
        return corrupt(diag, "link names no manifest");
    chain->next_version = version;
    memcpy(chain->next_sha256, sha256, 65);
    chain->state = SF_CHAIN_MANIFEST;
    return SF_OK;
}

static enum sf_err feed_head(struct sf_chain *chain, struct sf_view body,
                             const struct sf_etag *etag, struct sf_diag *diag)
{
    ProtobufCMessage *message = NULL;
    enum sf_err err = decode(chain, &searchfabric__v1__manifest_committed_head_object__descriptor,
                             body, NULL, diag, &message);
    if (err != SF_OK)
        return err;
    chain->head = (const void *)message;
    chain->head_etag = *etag;
    if (!same_collection(chain, chain->head->collection))
        return corrupt(diag, "head of another collection");
    return want_manifest(chain, chain->head->committed_manifest_version,
                         chain->head->manifest_checksum_or_etag, diag);
}

static enum sf_err feed_manifest(struct sf_chain *chain, struct sf_view body, struct sf_diag *diag)
{
    ProtobufCMessage *message = NULL;
    enum sf_err err = decode(chain, &searchfabric__v1__collection_manifest_object__descriptor, body,
                             chain->next_sha256, diag, &message);
    if (err != SF_OK)
        return err;
    const Searchfabric__V1__CollectionManifestObject *manifest = (const void *)message;
    if (!same_collection(chain, manifest->collection) ||
        manifest->manifest_version != chain->next_version)
        return corrupt(diag, "manifest of another collection or version");
    if (chain->manifest_count == chain->manifest_cap) {
        chain->manifest_cap = chain->manifest_cap == 0 ? 16 : chain->manifest_cap * 2;
        chain->manifests =
            sf_realloc(chain->manifests, chain->manifest_cap * sizeof(chain->manifests[0]));
    }
    chain->manifests[chain->manifest_count++] = manifest;
    if (manifest->kind == SEARCHFABRIC__V1__MANIFEST_KIND__MANIFEST_KIND_DELTA) {
        if (manifest->previous_manifest_version >= manifest->manifest_version)
            return corrupt(diag, "manifest follows a later one");
        return want_manifest(chain, manifest->previous_manifest_version,
                             manifest->previous_manifest_sha256, diag);
    }
    if (manifest->kind != SEARCHFABRIC__V1__MANIFEST_KIND__MANIFEST_KIND_BASE)
        return corrupt(diag, "manifest of unknown kind");
    chain->lists = sf_calloc(manifest->n_slice_lists + 1, sizeof(chain->lists[0]));
    next_list(chain);
    return SF_OK;
}

static enum sf_err feed_list(struct sf_chain *chain, struct sf_view body, struct sf_diag *diag)
{
    ProtobufCMessage *message = NULL;
    const Searchfabric__V1__ManifestListRef *ref =
        sf_chain_base(chain)->slice_lists[chain->next_list];
    enum sf_err err = decode(chain, &searchfabric__v1__manifest_list_object__descriptor, body,
                             ref->sha256, diag, &message);
    if (err != SF_OK)
        return err;
    const Searchfabric__V1__ManifestListObject *list = (const void *)message;
    if (!same_collection(chain, list->collection) || list->n_slices != ref->entry_count)
        return corrupt(diag, "list of another collection or length");
    chain->lists[chain->list_count++] = list;
    chain->next_list++;
    next_list(chain);
    return SF_OK;
}

enum sf_err sf_chain_feed(struct sf_chain *chain, enum sf_err err, struct sf_view body,
                          const struct sf_etag *etag, struct sf_diag *diag)
{
    SF_ASSERT(chain->state != SF_CHAIN_DONE);
    if (err == SF_ERR_NOT_FOUND && chain->state == SF_CHAIN_HEAD) {
        chain->state = SF_CHAIN_DONE;
        return SF_OK;
    }
    if (err == SF_ERR_NOT_FOUND)
        return corrupt(diag, "object that a link names is missing");
    if (err != SF_OK)
        return sf_diag_set(diag, err, "committed lineage: read failed");
    if (chain->state == SF_CHAIN_HEAD)
        return feed_head(chain, body, etag, diag);
    return chain->state == SF_CHAIN_MANIFEST ? feed_manifest(chain, body, diag)
                                             : feed_list(chain, body, diag);
}

enum sf_err sf_chain_read_wait(struct sf_chain *chain, struct sf_store *store,
                               struct sf_sched *sched, struct sf_diag *diag)
{
    struct sf_buf key = {0};
    struct sf_buf body = {0};
    enum sf_err err = SF_OK;
    while (err == SF_OK && (sf_buf_clear(&key), sf_chain_want(chain, &key))) {
        struct sf_etag etag = {{0}};
        sf_buf_clear(&body);
        enum sf_err read = sf_store_get_wait(store, sched, sf_buf_view(&key), &body, &etag);
        err = sf_chain_feed(chain, read, sf_buf_view(&body), &etag, diag);
        if (err != SF_OK && diag != NULL)
            sf_diag_wrap(diag, "%.*s", (int)key.len, (const char *)key.data);
    }
    sf_buf_fini(&key);
    sf_buf_fini(&body);
    return err;
}

void sf_chain_each_slice(const struct sf_chain *chain, sf_chain_slice_fn each, void *user)
{
    for (size_t i = 0; i < chain->list_count; i++) {
        for (size_t k = 0; k < chain->lists[i]->n_slices; k++)
            each(user, chain->lists[i]->slices[k]);
    }
    for (size_t i = chain->manifest_count; i-- > 0;) {
        for (size_t k = 0; k < chain->manifests[i]->n_slices; k++)
            each(user, chain->manifests[i]->slices[k]);
    }
}

void sf_chain_each_duplicate(const struct sf_chain *chain, sf_chain_duplicate_fn each, void *user)
{
    for (size_t i = 0; i < chain->list_count; i++) {
        for (size_t k = 0; k < chain->lists[i]->n_duplicates; k++)
            each(user, chain->lists[i]->duplicates[k]);
    }
    for (size_t i = chain->manifest_count; i-- > 0;) {
        for (size_t k = 0; k < chain->manifests[i]->n_duplicates; k++)
            each(user, chain->manifests[i]->duplicates[k]);
    }
}
