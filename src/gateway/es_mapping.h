/*
 * Settings and mappings of an index, to and from a schema definition. Pure. Private to the gateway.
 *
 * What cannot be mapped is refused with its name; nothing is dropped in silence. Settings and field
 * parameters that mean something only to the engine behind the collection (shards, analyzers,
 * formats) are kept as options, so that the engine and a later read find them.
 */
#ifndef SF_GATEWAY_ES_MAPPING_H
#define SF_GATEWAY_ES_MAPPING_H

#include "base/arena.h"
#include "base/buf.h"
#include "gateway/es_bulk.h"
#include "searchfabric/v1/search_fabric.pb-c.h"

/* Reads the body of PUT /{index} (empty = no mapping) into a definition in `arena`: truth mode
 * SEARCH_FABRIC, ids from the allocator. False with *out_error when something is not served. */
bool sf_es_mapping_read(struct sf_view body, struct sf_arena *arena,
                        Searchfabric__V1__CollectionSchemaDefinition **out_definition,
                        struct sf_es_error *out_error);

/* Appends the JSON objects of `"mappings":` and `"settings":` as GET /{index} shows them. */
void sf_es_mapping_write(const Searchfabric__V1__CollectionSchemaDefinition *definition,
                         struct sf_buf *out);

#endif
