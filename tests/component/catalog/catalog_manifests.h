/*
 * Stands in for the manifest publisher and its workers: writes manifests, summaries and the
 * committed pointer of a collection straight into the truth.
 */
#ifndef SF_TESTS_COMPONENT_CATALOG_MANIFESTS_H
#define SF_TESTS_COMPONENT_CATALOG_MANIFESTS_H

#include "component/catalog/catalog_world.h"

/* Writes summary (NULL = none) and manifest of a version; nothing points at them yet. The digest of
 * the manifest goes to out_sha256_hex. */
void manifest_write(struct world *w, uint64_t ns, uint64_t collection, uint64_t version,
                    uint64_t rows, uint64_t bytes, const SF_PB(ManifestSummaryObject) * summary,
                    char out_sha256_hex[SF_SHA256_HEX_BYTES]);

/* The committed pointer's swap. */
void manifest_point(struct world *w, uint64_t ns, uint64_t collection, uint64_t version,
                    const char *sha256_hex);

/* Both, and the wake that a head advance causes. */
void manifest_publish(struct world *w, uint64_t ns, uint64_t collection, uint64_t version,
                      uint64_t rows, uint64_t bytes, const SF_PB(ManifestSummaryObject) * summary);

/* Key of a manifest; in the world's arena. */
const char *manifest_key(struct world *w, uint64_t ns, uint64_t collection, uint64_t version);

/* Puts raw bytes at a key. */
void truth_put(struct world *w, const char *key, struct sf_view body);

/* A summary in the world's arena: add to it. */
SF_PB(ManifestSummaryObject) * summary_new(struct world *w, uint64_t version, uint64_t rows);
void summary_field(struct world *w, SF_PB(ManifestSummaryObject) * summary, const char *name,
                   uint64_t nulls, uint64_t distinct, const char *min, const char *max);
void summary_tuple(struct world *w, SF_PB(ManifestSummaryObject) * summary, const char *a,
                   const char *b, uint64_t distinct);
SF_PB(ManifestLifecycleWindow) *
    summary_window(struct world *w, SF_PB(ManifestSummaryObject) * summary, int64_t start_ms,
                   int64_t end_ms, SF_PB(DataTier) tier, uint64_t published_version,
                   const char *object, const char *retired, int64_t retired_at_ms);

/* Rows of a query as text, one line each, columns separated by "|"; cast numbers to TEXT in it. */
const char *world_rows(struct world *w, const char *query, int columns);

/* Runs statements on the projection. */
void world_sql(struct world *w, const char *statements);

SF_PB(CollectionRef) * world_ref(struct world *w, uint64_t ns, uint64_t collection);
char *world_text(struct world *w, const char *text);

#endif
