/* The comparison at the end: records, rows and answers against a rebuild from the store alone. */
#include "fault/catalog/ccs_world.h"
#include "searchfabric/v1/catalog_operations_private.pb-c.h"

static bool all_reread(struct sim *sim, void *ctx)
{
    const struct world *w = ctx;
    (void)sim;
    return w->reread;
}

/* What is read of the shared collection, if the run has one. */
static void reread_collection(struct world *w, struct sim_process *process, struct client *c,
                              struct sf_buf *json)
{
    struct parts parts;
    parts_init(&parts, "");
    SF_PB(ListCollectionsRequest) collections;
    searchfabric__v1__list_collections_request__init(&collections);
    collections.meta = &parts.meta;
    collections.namespace_id = w->shared_namespace;
    to_json(ask(w, process, PUBLIC "ListCollections", &collections.base, c->arena), json);
    sf_buf_append(&w->answers, json->data, json->len);
    SF_PB(GetCollectionSchemaRequest) schema;
    SF_PB(CollectionRef) ref;
    fill_ref(w, &ref);
    searchfabric__v1__get_collection_schema_request__init(&schema);
    schema.meta = &parts.meta;
    schema.collection = &ref;
    to_json(ask(w, process, PUBLIC "GetCollectionSchema", &schema.base, c->arena), json);
    sf_buf_append(&w->answers, json->data, json->len);
    SF_PB(GetSchemaSyncStatusRequest) sync;
    searchfabric__v1__get_schema_sync_status_request__init(&sync);
    sync.meta = &parts.meta;
    sync.collection = &ref;
    to_json(ask(w, process, PUBLIC "GetSchemaSyncStatus", &sync.base, c->arena), json);
    sf_buf_append(&w->answers, json->data, json->len);
}

void check_run_projectors(struct world *w, struct sim_process *process, struct sf_arena *arena)
{
    static const char *const jobs[] = {"collection-stats", "collection-index",
                                       "namespace-aggregate"};
    for (size_t i = 0; i < SF_ARRAY_LEN(jobs); i++) {
        SF_PB(RunCatalogJobRequest) request;
        searchfabric__v1__run_catalog_job_request__init(&request);
        request.name = (char *)(uintptr_t)jobs[i];
        (void)ask(w, process, OPERATIONS "RunCatalogJob", &request.base, arena);
    }
}

/* Asks every key again, and every read, at the node that serves now. */
static void run_reread(struct sim_process *process, void *arg)
{
    struct world *w = arg;
    struct client c = {.w = w, .process = process, .id = 0};
    struct sf_buf json = {0};
    c.arena = sf_arena_new((size_t)64 << 20);
    sf_buf_clear(&w->answers);
    for (size_t i = 0; i < w->key_count; i++)
        (void)mutate(w, process, w->keys[i].key, w->keys[i].method, w->keys[i].request, c.arena);
    check_run_projectors(w, process, c.arena);
    for (unsigned i = 0; i < CLIENTS; i++)
        read_own(&c, i);
    read_sync(&c);
    read_admission(&c);
    struct parts parts;
    SF_PB(ListNamespacesRequest) list;
    parts_init(&parts, "");
    searchfabric__v1__list_namespaces_request__init(&list);
    list.meta = &parts.meta;
    to_json(ask(w, process, PUBLIC "ListNamespaces", &list.base, c.arena), &json);
    sf_buf_append(&w->answers, json.data, json.len);
    if (w->shared_collection != 0)
        reread_collection(w, process, &c, &json);
    sf_buf_fini(&json);
    sf_arena_destroy(c.arena);
    w->reread = true;
}

/* Rows of one query as text; `since` is bound when it is not 0. */
static void dump_since(struct sf_sql_conn *conn, const char *query, uint64_t since, int columns,
                       struct sf_buf *out)
{
    struct sf_sql_stmt *stmt;
    struct sf_diag diag;
    bool row = true;
    enum sf_err err = sf_sql_prepare(conn, query, &diag, &stmt);
    SF_ASSERT(err == SF_OK);
    if (since != 0)
        sf_sql_bind_u64(stmt, 1, since);
    for (;;) {
        err = sf_sql_step(stmt, &diag, &row);
        SF_ASSERT(err == SF_OK);
        if (!row)
            break;
        for (int i = 0; i < columns; i++) {
            struct sf_view text = sf_sql_col_text(stmt, i);
            sf_buf_append(out, text.ptr, text.len);
            sf_buf_append_str(out, i + 1 == columns ? "\n" : " | ");
        }
    }
}

static void dump_query(struct sf_sql_conn *conn, const char *query, int columns, struct sf_buf *out)
{
    dump_since(conn, query, 0, columns, out);
}

void check_dump_rows(struct sf_sql *sql, uint64_t since, struct sf_buf *out)
{
    struct sf_sql_conn *conn = sf_sql_acquire(sql, NULL, SF_SQL_READ);
    dump_query(conn,
               "SELECT CAST(namespace_id AS TEXT), namespace_name,"
               " CAST(namespace_name_allocation_epoch AS TEXT), CAST(namespace_revision AS TEXT),"
               " lifecycle_state, CAST(lifecycle_updated_at_unix_ms AS TEXT),"
               " CAST(lifecycle_gc_after_unix_ms AS TEXT), options_json, encryption_json,"
               " CAST(created_at_unix_ms AS TEXT), CAST(updated_at_unix_ms AS TEXT)"
               " FROM namespaces ORDER BY namespace_id",
               11, out);
    dump_query(conn,
               "SELECT CAST(collection_id AS TEXT), collection_name,"
               " CAST(collection_name_allocation_epoch AS TEXT),"
               " CAST(descriptor_revision AS TEXT), CAST(active_schema_version AS TEXT),"
               " active_schema_generation_token, lifecycle_state, CAST(drop_revision AS TEXT),"
               " CAST(dropped_at_unix_ms AS TEXT), CAST(gc_after_unix_ms AS TEXT),"
               " CAST(manifest_head_version AS TEXT), options_json, encryption_json,"
               " CAST(created_at_unix_ms AS TEXT), CAST(updated_at_unix_ms AS TEXT)"
               " FROM collections ORDER BY namespace_id, collection_id",
               15, out);
    dump_query(conn,
               "SELECT CAST(schema_version AS TEXT), schema_generation_token,"
               " schema_definition_json, CAST(applied_commit_ts AS TEXT), sync_state,"
               " CAST(updated_at_unix_ms AS TEXT) FROM schema_generations"
               " ORDER BY namespace_id, collection_id, schema_version",
               6, out);
    dump_since(conn,
               "SELECT command_identity, business_lookup_key, terminal_state,"
               " replay_classification, original_outcome_json FROM catalog_replay_index"
               " WHERE applied_ts >= ?1 ORDER BY command_identity",
               since, 5, out);
    dump_query(conn,
               "SELECT latest_applied_schema_generation_token,"
               " CAST(latest_collected_at_unix_ms AS TEXT) FROM collection_statistics_heads"
               " ORDER BY namespace_id, collection_id",
               2, out);
    sf_sql_release(conn);
}

void check_same_text(struct world *w, const char *what, const struct sf_buf *a,
                     const struct sf_buf *b)
{
    size_t n = a->len < b->len ? a->len : b->len;
    size_t at = 0;
    if (sf_view_equal(sf_buf_view(a), sf_buf_view(b)))
        return;
    while (at < n && a->data[at] == b->data[at])
        at++;
    size_t from = at > 200 ? at - 200 : 0;
    sim_violation(w->sim, "%s differ after a rebuild: ...%.*s... | ...%.*s...", what,
                  (int)(a->len - from < 600 ? a->len - from : 600), (const char *)a->data + from,
                  (int)(b->len - from < 600 ? b->len - from : 600), (const char *)b->data + from);
}

/* The epoch object of a name is the one that the lineage's create wrote. */
static void check_epoch_object(struct world *w, const SF_PB(CommandOutcomeObject) * outcome,
                               struct sf_arena *arena)
{
    struct sf_buf key = {0};
    struct sf_diag diag;
    ProtobufCMessage *message = NULL;
    if (outcome->command_kind == SF_PBE(COMMAND_KIND, PUT_NAMESPACE_METADATA)) {
        sf_catalog_key_namespace_name(&key, outcome->scope->namespace_name);
        enum sf_err err =
            sf_durable_read_wait(sim_backend(w->sim), NULL, sf_buf_view(&key),
                                 &searchfabric__v1__namespace_name_epoch_object__descriptor, arena,
                                 &diag, &message, NULL);
        SF_ASSERT(err == SF_OK);
        const SF_PB(NamespaceNameEpochObject) *epoch = (const void *)message;
        if (epoch->allocated_namespace_id != outcome->scope->namespace_id)
            sim_violation(w->sim, "the epoch object of %s names another lineage",
                          outcome->scope->namespace_name);
    } else if (outcome->command_kind == SF_PBE(COMMAND_KIND, PUT_COLLECTION_METADATA)) {
        sf_catalog_key_collection_name(&key, outcome->scope->namespace_id,
                                       outcome->scope->collection_name);
        enum sf_err err =
            sf_durable_read_wait(sim_backend(w->sim), NULL, sf_buf_view(&key),
                                 &searchfabric__v1__collection_name_epoch_object__descriptor, arena,
                                 &diag, &message, NULL);
        SF_ASSERT(err == SF_OK);
        const SF_PB(CollectionNameEpochObject) *epoch = (const void *)message;
        if (epoch->allocated_collection_id != outcome->scope->collection_id)
            sim_violation(w->sim, "the epoch object of %s names another lineage",
                          outcome->scope->collection_name);
    }
    sf_buf_fini(&key);
}

/* One lineage per name at epoch 1, each committed control object as its record names it. Returns
 * how many commands are committed. */
static size_t check_records(struct world *w)
{
    struct sf_arena *arena = sf_arena_new((size_t)64 << 20);
    struct sf_list_entry *entries = NULL;
    size_t count = 0;
    struct sf_diag diag;
    enum sf_err err =
        sf_store_list_wait(sim_backend(w->sim), NULL, sf_view_str("catalog-log/"), sf_view_str(""),
                           SF_LIMIT_LIST_PAGE_ENTRIES, arena, &entries, &count);
    SF_ASSERT(err == SF_OK);
    size_t applied = 0;
    size_t intents = 0; /* they have no key */
    for (size_t i = 0; i < count; i++) {
        ProtobufCMessage *message = NULL;
        err = sf_durable_read_wait(sim_backend(w->sim), NULL, entries[i].key,
                                   &searchfabric__v1__command_outcome_object__descriptor, arena,
                                   &diag, &message, NULL);
        SF_ASSERT(err == SF_OK);
        const SF_PB(CommandOutcomeObject) *outcome = (const void *)message;
        if (outcome->abort != NULL)
            continue;
        applied++;
        intents += outcome->command_kind == SF_PBE(COMMAND_KIND, HEAD_ADVANCE) ? 1 : 0;
        if (outcome->_namespace_name_allocation_epoch_case != 0)
            SIM_CHECK(w->sim, outcome->namespace_name_allocation_epoch == 1);
        if (outcome->_collection_name_allocation_epoch_case != 0)
            SIM_CHECK(w->sim, outcome->collection_name_allocation_epoch == 1);
        check_epoch_object(w, outcome, arena);
        struct sf_buf body = {0};
        for (size_t k = 0; k < outcome->n_control_objects; k++) {
            const SF_PB(ControlObjectRef) *ref = outcome->control_objects[k];
            char digest[SF_SHA256_HEX_BYTES];
            sf_buf_clear(&body);
            err = sf_store_get_wait(sim_backend(w->sim), NULL, sf_view_str(ref->key), &body, NULL);
            SF_ASSERT(err == SF_OK);
            sf_sha256_hex(sf_buf_view(&body), digest);
            if (outcome->command_kind != SF_PBE(COMMAND_KIND, PUT_COLLECTION_SCHEMA) &&
                strcmp(digest, ref->sha256) != 0)
                sim_violation(w->sim, "%s is not what its record names", ref->key);
        }
        sf_buf_fini(&body);
    }
    SIM_CHECK(w->sim, applied == w->key_count + intents);
    sf_arena_destroy(arena);
    return applied;
}

/* A rebuild finishes each committed command at its own entry of the chain, hence once, however
 * often it was listed. */
static void check_rebuilt_once(struct world *w, size_t committed)
{
    struct sf_catalog_stats stats;
    const struct life *life = sim_node_service(w->rebuilder, NULL);
    if (life == NULL)
        return;
    sf_catalog_stats(life->catalog, &stats);
    if (stats.recovered > committed)
        sim_violation(w->sim, "a rebuild finished %" PRIu64 " commands, committed are %zu",
                      stats.recovered, committed);
}

/* Lowest watermark of the contenders' projection. */
static uint64_t watermark_of(struct world *w)
{
    struct sf_diag diag;
    uint64_t count = 0, low = 0, high = 0;
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_READ);
    enum sf_err err = sf_catalog_sql_shards(conn, &diag, &count, &low, &high);
    SF_ASSERT(err == SF_OK);
    sf_sql_release(conn);
    return low;
}

static void check_entry(struct world *w, const SF_PB(RecoverySegmentEntry) * entry, uint64_t slot,
                        struct sf_arena *arena)
{
    struct sf_buf key = {0};
    struct sf_diag diag;
    ProtobufCMessage *message = NULL;
    sf_catalog_key_outcome(&key, entry->command_identity);
    enum sf_err err = sf_durable_read_wait(sim_backend(w->sim), NULL, sf_buf_view(&key),
                                           &searchfabric__v1__command_outcome_object__descriptor,
                                           arena, &diag, &message, NULL);
    sf_buf_fini(&key);
    if (err == SF_ERR_NOT_FOUND && w->aged)
        return;
    if (err == SF_ERR_NOT_FOUND)
        sim_violation(w->sim, "segment %" PRIu64 " lists %s, which nothing settles", slot,
                      entry->command_identity);
    SF_ASSERT(err == SF_OK);
    const SF_PB(CommandOutcomeObject) *found = (const void *)message;
    if (found->abort != NULL && found->entry->recovery_segment_epoch < slot)
        sim_violation(w->sim, "segment %" PRIu64 " lists %s, settled at %" PRIu64 " only", slot,
                      entry->command_identity, found->entry->recovery_segment_epoch);
}

void check_settled(struct world *w)
{
    uint64_t watermark = watermark_of(w);
    struct sf_arena *arena = sf_arena_new((size_t)64 << 20);
    struct sf_buf key = {0};
    struct sf_buf body = {0};
    struct sf_diag diag;
    for (uint64_t slot = 1; slot <= watermark; slot++) {
        ProtobufCMessage *message = NULL;
        sf_arena_reset(arena);
        sf_buf_clear(&key);
        sf_buf_clear(&body);
        sf_catalog_key_segment(&key, slot);
        enum sf_err err =
            sf_store_get_wait(sim_backend(w->sim), NULL, sf_buf_view(&key), &body, NULL);
        if (err == SF_ERR_NOT_FOUND && w->aged)
            continue;
        SF_ASSERT(err == SF_OK);
        err = sf_catalog_decode(&searchfabric__v1__recovery_segment_object__descriptor, true,
                                sf_buf_view(&body), arena, &diag, &message);
        SF_ASSERT(err == SF_OK);
        const SF_PB(RecoverySegmentObject) *segment = (const void *)message;
        for (size_t i = 0; i < segment->n_entries; i++)
            check_entry(w, segment->entries[i], slot, arena);
    }
    sim_trace(w->sim, "settled up to %" PRIu64, watermark);
    sf_buf_fini(&key);
    sf_buf_fini(&body);
    sf_arena_destroy(arena);
}

uint64_t check_since(const struct world *w)
{
    return w->aged ? TSO_START + ((uint64_t)RETENTION_MS << 18) : TSO_START;
}

void check_end(struct world *w, struct sim_process *clients)
{
    const struct sim_service rebuild = {.start = ccs_start_rebuilding, .stop = ccs_stop, .ctx = w};
    struct sf_buf before = {0};
    struct sf_buf after = {0};
    struct sf_buf answers = {0};
    w->reread = false;
    sim_spawn(clients, run_reread, w);
    sim_run_until(w->sim, all_reread, w, 120000, "every key is answered again");
    sf_buf_append(&answers, w->answers.data, w->answers.len);
    size_t committed = check_records(w);
    check_settled(w);
    check_dump_rows(w->sql, check_since(w), &before);
    w->rebuilder = sim_node_new(w->sim, "rebuild", &rebuild);
    w->reread = false;
    sim_spawn(clients, run_reread, w);
    sim_run_until(w->sim, all_reread, w, 120000, "every key is answered after a rebuild");
    check_rebuilt_once(w, committed);
    check_same_text(w, "answers", &answers, &w->answers);
    check_dump_rows(w->rebuilt, check_since(w), &after);
    check_same_text(w, "rows", &before, &after);
    sf_buf_fini(&before);
    sf_buf_fini(&after);
    sf_buf_fini(&answers);
}
