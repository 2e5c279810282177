/*
 * Reading what a collection's manifest publisher committed. The catalog does not know the
 * publisher: the pointer and the objects it names are the interface (OP-46).
 */
#ifndef SF_CATALOG_MANIFEST_H
#define SF_CATALOG_MANIFEST_H

#include "catalog/catalog_priv.h"

/* Bounds of one summary: a schema's fields and tuples, windows and objects of a long-lived
 * collection. */
#define SF_CATALOG_SUMMARY_FIELDS  1000
#define SF_CATALOG_SUMMARY_TUPLES  64
#define SF_CATALOG_SUMMARY_WINDOWS 65536
#define SF_CATALOG_SUMMARY_OBJECTS 262144 /* over all windows */

/* A committed manifest, in the arena of the read. */
struct sf_catalog_manifest {
    const SF_PB(ManifestCommittedHeadObject) * head; /* NULL = nothing was committed */
    const SF_PB(CollectionManifestObject) * object;  /* NULL = nothing was committed */
    const SF_PB(ManifestSummaryObject) * summary;    /* NULL = the manifest has none, or not read */
};

/* Key of a collection's committed pointer. */
void sf_catalog_key_committed_head(struct sf_buf *out, uint64_t namespace_id,
                                   uint64_t collection_id);

/* Reads the committed pointer, the manifest that it names and, when `with_summary`, that one's
 * summary. Each link is checked: digest of the bytes, collection, version, place of the key.
 * Blocks. Errors: SF_ERR_CORRUPT (a link does not verify, a summary is malformed),
 * SF_ERR_UNAVAILABLE, SF_ERR_LIMIT. Note 5.7, 5.8, 5.9; OP-46. */
enum sf_err sf_catalog_manifest_read(struct sf_catalog *catalog, struct sf_sched *sched,
                                     const SF_PB(CollectionRef) * ref, bool with_summary,
                                     struct sf_arena *arena, struct sf_diag *diag,
                                     struct sf_catalog_manifest *out_manifest);

/* Order and shape of a summary; pure. SF_ERR_CORRUPT. */
enum sf_err sf_catalog_summary_check(const SF_PB(ManifestSummaryObject) * summary,
                                     uint64_t manifest_version, struct sf_diag *diag);

/* Canonical order of tuples: path by path in byte order, the shorter first. */
int sf_catalog_tuple_compare(char *const *a, size_t a_count, char *const *b, size_t b_count);

#endif
