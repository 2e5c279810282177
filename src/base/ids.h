/* Identifiers that could be swapped by mistake are one-field structs (style: Names). */
#ifndef SF_BASE_IDS_H
#define SF_BASE_IDS_H

#include <stdint.h>

/* A namespace, from the oracle; 0 = none. */
struct sf_namespace_id {
    uint64_t v; /* the number */
};

/* A collection, from the oracle; 0 = none. */
struct sf_collection_id {
    uint64_t v; /* the number */
};

/* The stable identity of a collection lineage: the lane key of allocator and coordinator. */
struct sf_collection_ref {
    struct sf_namespace_id namespace_id;   /* the namespace it was created in */
    struct sf_collection_id collection_id; /* the collection; unique by itself, too */
};

/* A point on the one time axis: physical_ms << 18 | logical (TiDB PD layout); 0 = none. */
struct sf_tso {
    uint64_t v; /* the packed timestamp; compared as unsigned */
};

/* A document of one collection; every value is valid, 0 included. */
struct sf_doc_id {
    uint64_t v; /* the number */
};

#define SF_TSO_LOGICAL_BITS 18

/* Physical milliseconds since the Unix epoch of a timestamp. */
static inline uint64_t sf_tso_physical_ms(struct sf_tso ts)
{
    return ts.v >> SF_TSO_LOGICAL_BITS;
}

/* The least timestamp of physical millisecond `ms`. */
static inline struct sf_tso sf_tso_from_ms(uint64_t ms)
{
    return (struct sf_tso){ms << SF_TSO_LOGICAL_BITS};
}

#endif
