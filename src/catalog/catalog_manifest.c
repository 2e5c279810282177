/*
 * Model: a committed manifest is reached by digests alone. The pointer names the SHA-256 of the
 * manifest's bytes, the manifest that of its summary; an object that the pointer does not lead to
 * is never looked at, so an uncommitted tier move or a late publisher cannot show. A manifest that
 * is gone is one that a newer pointer replaced meanwhile: the pointer is read again. Whatever does
 * not verify is refused whole, and what was derived before stays.
 */
#include "catalog/catalog_manifest.h"

#include <inttypes.h>
#include <stdio.h>

#define HEAD_READS 3 /* of one read, while the pointer moves */

/* "{root}/H(ns)/{ns}/{collection}/" */
static void append_directory(struct sf_buf *out, const char *root, uint64_t namespace_id,
                             uint64_t collection_id)
{
    char text[24];
    char hex[SF_SHA256_HEX_BYTES];
    snprintf(text, sizeof(text), "%" PRIu64, namespace_id);
    sf_sha256_hex(sf_view_str(text), hex);
    sf_buf_printf(out, "%s/%.2s/%s/%" PRIu64 "/", root, hex, text, collection_id);
}

void sf_catalog_key_committed_head(struct sf_buf *out, uint64_t namespace_id,
                                   uint64_t collection_id)
{
    append_directory(out, "catalog", namespace_id, collection_id);
    sf_buf_append_str(out, "manifest_committed_head.json");
}

static enum sf_err corrupt(struct sf_diag *diag, const char *what)
{
    return sf_diag_set(diag, SF_ERR_CORRUPT, "committed manifest: %s", what);
}

static bool same_ref(const SF_PB(CollectionRef) * a, const SF_PB(CollectionRef) * b)
{
    return a != NULL && a->namespace_id == b->namespace_id && a->collection_id == b->collection_id;
}

/* Does `key` lie among the manifests of the collection? */
static bool own_key(const SF_PB(CollectionRef) * ref, const char *key)
{
    struct sf_buf directory = {0};
    append_directory(&directory, "manifests", ref->namespace_id, ref->collection_id);
    bool own = strlen(key) > directory.len && memcmp(key, directory.data, directory.len) == 0;
    sf_buf_fini(&directory);
    return own;
}

/* ---- tuples, summaries -------------------------------------------------------------------- */

int sf_catalog_tuple_compare(char *const *a, size_t a_count, char *const *b, size_t b_count)
{
    for (size_t i = 0; i < a_count && i < b_count; i++) {
        int order = strcmp(a[i], b[i]);
        if (order != 0)
            return order;
    }
    return a_count == b_count ? 0 : (a_count < b_count ? -1 : 1);
}

static enum sf_err check_fields(const SF_PB(ManifestSummaryObject) * summary, struct sf_diag *diag)
{
    if (summary->n_field_stats > SF_CATALOG_SUMMARY_FIELDS)
        return corrupt(diag, "too many field statistics");
    for (size_t i = 0; i < summary->n_field_stats; i++) {
        const SF_PB(FieldStatistics) *field = summary->field_stats[i];
        if (field->field_name[0] == '\0' ||
            (i > 0 && strcmp(summary->field_stats[i - 1]->field_name, field->field_name) >= 0))
            return corrupt(diag, "field statistics out of order");
        if (field->null_count > summary->row_count || field->distinct_count > summary->row_count)
            return corrupt(diag, "field statistics of more rows than there are");
    }
    return SF_OK;
}

static enum sf_err check_tuples(const SF_PB(ManifestSummaryObject) * summary, struct sf_diag *diag)
{
    if (summary->n_extended_stats > SF_CATALOG_SUMMARY_TUPLES)
        return corrupt(diag, "too many extended statistics");
    for (size_t i = 0; i < summary->n_extended_stats; i++) {
        const SF_PB(ExtendedStatistics) *tuple = summary->extended_stats[i];
        const SF_PB(ExtendedStatistics) *before = i == 0 ? NULL : summary->extended_stats[i - 1];
        if (tuple->n_field_paths < 2 ||
            (before != NULL &&
             sf_catalog_tuple_compare(before->field_paths, before->n_field_paths,
                                      tuple->field_paths, tuple->n_field_paths) >= 0))
            return corrupt(diag, "extended statistics out of order");
        if (tuple->distinct_count > summary->row_count)
            return corrupt(diag, "extended statistics of more rows than there are");
    }
    return SF_OK;
}

static enum sf_err check_windows(const SF_PB(ManifestSummaryObject) * summary, struct sf_diag *diag)
{
    size_t objects = 0;
    if (summary->n_lifecycle_windows > SF_CATALOG_SUMMARY_WINDOWS)
        return corrupt(diag, "too many lifecycle windows");
    for (size_t i = 0; i < summary->n_lifecycle_windows; i++) {
        const SF_PB(ManifestLifecycleWindow) *window = summary->lifecycle_windows[i];
        if (window->window_start_ms >= window->window_end_ms ||
            (i > 0 && summary->lifecycle_windows[i - 1]->window_end_ms > window->window_start_ms))
            return corrupt(diag, "lifecycle windows overlap or run backwards");
        if (window->tier < SF_PBE(DATA_TIER, HOT) || window->tier > SF_PBE(DATA_TIER, COLD))
            return corrupt(diag, "lifecycle window without a tier");
        if (window->published_manifest_version == 0 ||
            window->published_manifest_version > summary->manifest_version)
            return corrupt(diag, "lifecycle window of a later manifest");
        if (window->n_retired_object_keys != 0 && window->retired_at_unix_ms <= 0)
            return corrupt(diag, "retired objects without a time");
        objects += window->n_object_keys + window->n_retired_object_keys;
        if (objects > SF_CATALOG_SUMMARY_OBJECTS)
            return corrupt(diag, "too many objects");
    }
    return SF_OK;
}

enum sf_err sf_catalog_summary_check(const SF_PB(ManifestSummaryObject) * summary,
                                     uint64_t manifest_version, struct sf_diag *diag)
{
    if (summary->manifest_version == 0 || summary->manifest_version > manifest_version)
        return corrupt(diag, "summary of a later manifest");
    enum sf_err err = check_fields(summary, diag);
    if (err == SF_OK)
        err = check_tuples(summary, diag);
    if (err == SF_OK)
        err = check_windows(summary, diag);
    return err;
}

/* ---- reads -------------------------------------------------------------------------------- */

/* What a read follows. */
struct walk {
    struct sf_catalog *catalog;
    struct sf_sched *sched;
    const SF_PB(CollectionRef) * ref;
    struct sf_arena *arena;
    struct sf_diag *diag;
};

/* Reads the object that a link names. SF_ERR_NOT_FOUND leaves the diag alone. */
static enum sf_err read_link(const struct walk *walk, const char *key, const char *sha256,
                             const ProtobufCMessageDescriptor *desc, ProtobufCMessage **out)
{
    char found[SF_SHA256_HEX_BYTES];
    if (!own_key(walk->ref, key))
        return corrupt(walk->diag, "a link leaves the collection");
    enum sf_err err = sf_catalog_read(walk->catalog, walk->sched, sf_view_str(key), desc, false,
                                      walk->arena, walk->diag, out, found, NULL);
    if (err == SF_OK && strcmp(found, sha256) != 0)
        err = corrupt(walk->diag, "an object is not the one that its link names");
    return err;
}

static enum sf_err read_head(const struct walk *walk, struct sf_catalog_manifest *out)
{
    struct sf_buf key = {0};
    ProtobufCMessage *message = NULL;
    sf_catalog_key_committed_head(&key, walk->ref->namespace_id, walk->ref->collection_id);
    enum sf_err err = sf_catalog_read(walk->catalog, walk->sched, sf_buf_view(&key),
                                      &searchfabric__v1__manifest_committed_head_object__descriptor,
                                      false, walk->arena, walk->diag, &message, NULL, NULL);
    sf_buf_fini(&key);
    out->head = (const SF_PB(ManifestCommittedHeadObject) *)message;
    if (err == SF_OK &&
        (!same_ref(out->head->collection, walk->ref) || out->head->committed_manifest_version == 0))
        err = corrupt(walk->diag, "the pointer is of another collection");
    return err;
}

static enum sf_err read_object(const struct walk *walk, struct sf_catalog_manifest *out)
{
    ProtobufCMessage *message = NULL;
    enum sf_err err =
        read_link(walk, out->head->manifest_key, out->head->manifest_checksum_or_etag,
                  &searchfabric__v1__collection_manifest_object__descriptor, &message);
    out->object = (const SF_PB(CollectionManifestObject) *)message;
    if (err == SF_OK && (!same_ref(out->object->collection, walk->ref) ||
                         out->object->manifest_version != out->head->committed_manifest_version))
        err = corrupt(walk->diag, "the manifest is of another collection or version");
    return err;
}

static enum sf_err read_summary(const struct walk *walk, struct sf_catalog_manifest *out)
{
    const SF_PB(ManifestSummaryRef) *ref = out->object->summary;
    ProtobufCMessage *message = NULL;
    if (ref == NULL)
        return SF_OK;
    enum sf_err err = read_link(walk, ref->key, ref->sha256,
                                &searchfabric__v1__manifest_summary_object__descriptor, &message);
    const SF_PB(ManifestSummaryObject) *summary = (const SF_PB(ManifestSummaryObject) *)message;
    if (err == SF_OK && (!same_ref(summary->collection, walk->ref) ||
                         summary->manifest_version != ref->manifest_version))
        err = corrupt(walk->diag, "the summary is of another collection or manifest");
    if (err == SF_OK)
        err = sf_catalog_summary_check(summary, out->object->manifest_version, walk->diag);
    if (err == SF_OK)
        out->summary = summary;
    return err;
}

enum sf_err sf_catalog_manifest_read(struct sf_catalog *catalog, struct sf_sched *sched,
                                     const SF_PB(CollectionRef) * ref, bool with_summary,
                                     struct sf_arena *arena, struct sf_diag *diag,
                                     struct sf_catalog_manifest *out_manifest)
{
    const struct walk walk = {catalog, sched, ref, arena, diag};
    enum sf_err err = SF_OK;
    uint64_t gone = 0; /* version whose objects were not there */
    for (int i = 0; i < HEAD_READS; i++) {
        *out_manifest = (struct sf_catalog_manifest){0};
        err = read_head(&walk, out_manifest);
        if (err == SF_ERR_NOT_FOUND && gone == 0)
            return SF_OK; /* nothing was committed */
        if (err == SF_OK && out_manifest->head->committed_manifest_version == gone)
            break;
        if (err == SF_OK)
            err = read_object(&walk, out_manifest);
        if (err == SF_OK && with_summary)
            err = read_summary(&walk, out_manifest);
        if (err != SF_ERR_NOT_FOUND)
            return err;
        gone = out_manifest->head == NULL ? gone : out_manifest->head->committed_manifest_version;
    }
    return corrupt(diag, "an object that a link names is missing");
}
