/*
 * Model: the projection's schema, step by step. A step has one text per dialect: the MySQL family's
 * is the note's own DDL (sections 5.2 to 5.10), the others map its types (5.1). Beyond the note
 * stand catalog_lane_shards (owner epoch and watermark of each lane shard; without its rows the
 * projection counts as lost), collection_tombstones (the tombstone object, so that checkpoints
 * carry it), namespace_quota_leases.request_fingerprint (OP-49), ACTIVE as a target lifecycle state
 * (OP-30), the indexes that bounded sweeps need, and what the projectors keep (work that is due,
 * reported backlogs and observations, claims of transitions, snapshots that wait for their
 * removal), and catalog_adoptions (under which owner epoch a collection's objects were adopted).
 * A released step never changes; the next one is added here, with all three texts, and must not
 * rewrite a table of a released one.
 */
#include "catalog/catalog_ddl.h"

#include "catalog/catalog_rules.h"

#define PROJECTION_READERS 4u /* snapshots of commands and misses at once, unless asked for */

static const char *const names[SF_CATALOG_DDL_STEPS] = {
    "catalog",        "replay_and_statistics", "lifecycle_quota_and_tombstones",
    "projectors",     "manifest_heads",        "adoptions",
    "partial_indexes"};

struct sf_sql_options sf_catalog_projection_where(const struct sf_config_projection *projection,
                                                  const char *path)
{
    const struct sf_config_projection *p = projection;
    static const enum sf_sql_kind kinds[] = {[SF_PROJECTION_SQLITE] = SF_SQL_SQLITE,
                                             [SF_PROJECTION_POSTGRES] = SF_SQL_POSTGRES,
                                             [SF_PROJECTION_MYSQL] = SF_SQL_MYSQL};
    static const enum sf_sql_tls tls[] = {[SF_PROJECTION_TLS_OFF] = SF_SQL_TLS_OFF,
                                          [SF_PROJECTION_TLS_REQUIRE] = SF_SQL_TLS_REQUIRE,
                                          [SF_PROJECTION_TLS_VERIFY] = SF_SQL_TLS_VERIFY};

    return (struct sf_sql_options){.kind = kinds[p->kind],
                                   .path = p->kind == SF_PROJECTION_SQLITE ? path : NULL,
                                   .readers = p->readers,
                                   .server = {.host = p->host,
                                              .port = (uint16_t)p->port,
                                              .database = p->database,
                                              .user = p->user,
                                              .password_file = p->password_file,
                                              .tls = tls[p->tls],
                                              .tls_ca_file = p->tls_ca_file,
                                              .connect_timeout_ms = p->connect_timeout_ms,
                                              .statement_timeout_ms = p->statement_timeout_ms}};
}

enum sf_err sf_catalog_projection_open_at(const struct sf_sql_options *where, struct sf_diag *diag,
                                          struct sf_sql **out_sql)
{
    struct sf_sql_migration steps[SF_CATALOG_DDL_STEPS];
    struct sf_sql_options options = *where;

    if (options.readers == 0)
        options.readers = PROJECTION_READERS;
    options.migrations = steps;
    options.migration_count = SF_ARRAY_LEN(steps);
    for (uint32_t i = 0; i < SF_CATALOG_DDL_STEPS; i++)
        steps[i] = (struct sf_sql_migration){.version = i + 1,
                                             .name = names[i],
                                             .sqlite = sf_catalog_ddl_sqlite[i],
                                             .postgres = sf_catalog_ddl_postgres[i],
                                             .mysql = sf_catalog_ddl_mysql[i]};
    enum sf_err err = sf_sql_open(&options, diag, out_sql);
    if (options.kind == SF_SQL_SQLITE && (err == SF_ERR_CORRUPT || err == SF_ERR_IO))
        sf_diag_wrap(diag, "projection (once %s* is removed it is rebuilt from the objects)",
                     options.path == NULL ? "it" : options.path);
    else if (err != SF_OK && options.kind != SF_SQL_SQLITE)
        sf_diag_wrap(diag, "projection in database %s at %s", options.server.database,
                     options.server.host);
    return err;
}

enum sf_err sf_catalog_projection_open(const char *path, struct sf_sql_faults *faults,
                                       struct sf_diag *diag, struct sf_sql **out_sql)
{
    const struct sf_sql_options where = {.path = path, .faults = faults};

    return sf_catalog_projection_open_at(&where, diag, out_sql);
}
