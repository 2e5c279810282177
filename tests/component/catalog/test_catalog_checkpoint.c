/* Checkpoints: what they hold, when they are cut, and recovery from them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/pbjson.h"
#include "catalog/catalog_checkpoint.h"
#include "component/catalog/lineage_world.h"
#include "component/catalog/quota_world.h"
#include "searchfabric/v1/catalog_operations_private.pb-c.h"

/* ---- calls -------------------------------------------------------------------------------- */

static const SF_PB(CheckpointManifestObject) * create(struct world *w)
{
    SF_PB(CreateCheckpointRequest) request;
    searchfabric__v1__create_checkpoint_request__init(&request);
    const SF_PB(CreateCheckpointResponse) *response = world_call(w, "CreateCheckpoint", &request);
    assert_non_null(response);
    return response->manifest;
}

static const SF_PB(ListCheckpointsResponse) * list(struct world *w)
{
    SF_PB(ListCheckpointsRequest) request;
    searchfabric__v1__list_checkpoints_request__init(&request);
    const SF_PB(ListCheckpointsResponse) *response = world_call(w, "ListCheckpoints", &request);
    assert_non_null(response);
    return response;
}

static const SF_PB(VerifyCheckpointResponse) * verify(struct world *w, uint64_t epoch)
{
    SF_PB(VerifyCheckpointRequest) request;
    searchfabric__v1__verify_checkpoint_request__init(&request);
    request.checkpoint_epoch = epoch;
    return world_call(w, "VerifyCheckpoint", &request);
}

static uint64_t run_job(struct world *w)
{
    SF_PB(RunCatalogJobRequest) request;
    searchfabric__v1__run_catalog_job_request__init(&request);
    request.name = "checkpoint";
    const SF_PB(RunCatalogJobResponse) *response = world_call(w, "RunCatalogJob", &request);
    assert_non_null(response);
    return response->done;
}

/* Shard `index` of a manifest as it stands. */
static const SF_PB(CheckpointShardObject) *
    shard_of(struct world *w, const SF_PB(CheckpointManifestObject) * manifest, size_t index)
{
    SF_PB(CheckpointShardObject) *shard = NULL;
    assert_int_equal(
        sf_catalog_checkpoint_shard(w->catalog, NULL, manifest, index, w->arena, &w->diag, &shard),
        SF_OK);
    return shard;
}

/* Overwrites an object. */
static void damage(struct world *w, const char *key)
{
    struct sf_put put = {.key = sf_view_str(key), .body = sf_view_str("damaged")};
    assert_int_equal(sf_store_put_wait(w->truth, NULL, &put), SF_OK);
}

static void remove_object(struct world *w, const char *key)
{
    assert_int_equal(sf_store_remove_wait(w->truth, NULL, sf_view_str(key)), SF_OK);
}

/* A namespace with two collections, one with two generations, all updated a few times. */
struct made {
    uint64_t ns, books, films;
};

static struct made make(struct world *w)
{
    struct made made;
    made.ns = world_namespace(w, "n1", "alpha");
    made.books = world_collection(w, "c1", made.ns, "books");
    made.films = world_collection(w, "c2", made.ns, "films");
    world_schema(w, "s1", made.ns, made.books, 1, "tok-1");
    world_ready(w, made.ns, made.books, 1, "tok-1");
    for (int i = 0; i < 5; i++) {
        char key[16];
        snprintf(key, sizeof(key), "u%d", i);
        SF_PB(PutCollectionMetadataRequest) *update =
            world_collection_request(w, key, made.ns, "films");
        update->options = world_options(w, "v", key);
        assert_non_null(world_call(w, "PutCollectionMetadata", update));
    }
    return made;
}

static void more(struct world *w, struct made made, const char *key)
{
    (void)world_collection(w, key, made.ns, key);
}

/* ---- contents ----------------------------------------------------------------------------- */

/* Every row of the shards, table by table in order, as world_dump writes them. */
static const char *dump_shards(struct world *w, const SF_PB(CheckpointManifestObject) * manifest)
{
    struct sf_buf text = {0};
    for (int t = 0; t < SF_CATALOG_TABLE_COUNT; t++) {
        enum sf_catalog_table table = (enum sf_catalog_table)t;
        sf_buf_printf(&text, "# %s\n", sf_catalog_table_name(table));
        for (size_t i = 0; i < manifest->n_checkpoint_shards; i++) {
            ProtobufCMessage **rows = NULL;
            size_t count = sf_catalog_checkpoint_rows(shard_of(w, manifest, i), table, &rows);
            for (size_t k = 0; k < count; k++) {
                bool of_namespace = table == SF_CATALOG_TABLE_NAMESPACE_NAMES;
                if ((of_namespace || table == SF_CATALOG_TABLE_COLLECTION_NAMES) &&
                    of_namespace != (((const SF_PB(NameEpochRow) *)rows[k])->namespace_id == 0))
                    continue;
                world_strip(table, rows[k]);
                sf_pbjson_encode(rows[k], &text);
                sf_buf_append_str(&text, "\n");
            }
        }
    }
    const char *out = sf_arena_str(w->arena, sf_buf_view(&text));
    sf_buf_fini(&text);
    return out;
}

/* Pointer and head of books, as an advance would leave them. */
static void point_heads(struct world *w)
{
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_WRITE);
    struct sf_sql_stmt *stmt;
    assert_int_equal(sf_sql_prepare(conn,
                                    "UPDATE collections SET committed_manifest_version = ?1,"
                                    " committed_manifest_checksum_or_etag = 'sum',"
                                    " manifest_head_version = ?2"
                                    " WHERE collection_name = 'books'",
                                    &w->diag, &stmt),
                     SF_OK);
    sf_sql_bind_u64(stmt, 1, 7);
    sf_sql_bind_u64(stmt, 2, 6);
    assert_int_equal(sf_sql_run(stmt, &w->diag, NULL), SF_OK);
    sf_sql_release(conn);
}

/* It says what the columns of the collection's row say. */
static void check_pointer_row(struct world *w, const SF_PB(ManifestPointerRow) * row)
{
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_READ);
    struct sf_sql_stmt *stmt;
    bool found = false;
    assert_int_equal(
        sf_sql_prepare(conn,
                       "SELECT namespace_id, collection_id, committed_manifest_version,"
                       " committed_manifest_checksum_or_etag, manifest_head_version"
                       " FROM collections WHERE collection_name = 'books'",
                       &w->diag, &stmt),
        SF_OK);
    assert_int_equal(sf_sql_step(stmt, &w->diag, &found), SF_OK);
    assert_true(found);
    assert_true(row->committed_head->collection->namespace_id == sf_sql_col_u64(stmt, 0));
    assert_true(row->committed_head->collection->collection_id == sf_sql_col_u64(stmt, 1));
    assert_true(row->committed_head->committed_manifest_version == sf_sql_col_u64(stmt, 2));
    assert_true(sf_view_equal(sf_view_str(row->committed_head->manifest_checksum_or_etag),
                              sf_sql_col_text(stmt, 3)));
    assert_true(row->head->manifest_head_version == sf_sql_col_u64(stmt, 4));
    assert_true(row->committed_head->committed_manifest_version == 7);
    assert_true(row->head->manifest_head_version == 6);
    sf_sql_release(conn);
}

static void test_contents(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-8-05", "CCS-8-13", "CCS-8-14", "CCS-8-17");
    struct made made = make(w);
    uint64_t gone = world_collection(w, "c9", made.ns, "gone");
    assert_int_equal(lineage_drop(w, "d9", made.ns, gone, NULL), DROPPED);
    assert_non_null(lease(w, made.ns, "query_rcu", "gw", "r1", 10, 0));
    point_heads(w);
    const SF_PB(CheckpointManifestObject) *manifest = create(w);
    assert_true(manifest->checkpoint_epoch == 1);
    const SF_PB(CheckpointManifestObject) *stored =
        world_object(w, "catalog-checkpoints/checkpoint_00000000000000000001.manifest.json",
                     &searchfabric__v1__checkpoint_manifest_object__descriptor);
    assert_non_null(stored);
    assert_true(stored->checkpoint_shard_count == stored->n_checkpoint_shards);
    assert_true(stored->n_checkpoint_shards == 1);
    assert_string_equal(stored->checkpoint_shards[0]->key,
                        "catalog-checkpoints/shard=0/checkpoint_00000000000000000001.json.zst");
    struct sf_catalog_stats stats;
    sf_catalog_stats(w->catalog, &stats);
    assert_true(stored->checkpoint_upper_bound_recovery_segment_epoch == stats.newest_segment);
    assert_true(stored->n_watermarks == stats.lane_shards);
    /* one row per key, equal to the tables at the same cut */
    assert_string_equal(dump_shards(w, stored), world_dump(w));
    const SF_PB(CheckpointShardObject) *shard = shard_of(w, stored, 0);
    assert_int_equal(shard->n_namespaces, 1);
    assert_int_equal(shard->n_collections, 3);
    assert_int_equal(shard->n_schema_generations, 1);
    assert_int_equal(shard->n_replay_index, 11);
    assert_int_equal(shard->n_tombstones, 1);
    assert_int_equal(shard->n_name_epochs, 4);
    assert_int_equal(shard->n_quota_states, 1);
    assert_int_equal(shard->n_manifest_pointers, 1);
    check_pointer_row(w, shard->manifest_pointers[0]);
    uint64_t newest = 0;
    for (size_t i = 0; i < shard->n_replay_index; i++) {
        if (shard->replay_index[i]->outcome->applied_ts > newest)
            newest = shard->replay_index[i]->outcome->applied_ts;
    }
    assert_true(stored->checkpoint_upper_bound_applied_ts == newest);
    (void)made;
}

/* Allocator rows equal the allocator objects. */
static void test_name_epochs(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-8-15");
    struct made made = make(w);
    const SF_PB(CheckpointShardObject) *shard = shard_of(w, create(w), 0);
    assert_int_equal(shard->n_name_epochs, 3);
    for (size_t i = 0; i < shard->n_name_epochs; i++) {
        const SF_PB(NameEpochRow) *row = shard->name_epochs[i];
        struct sf_buf key = {0};
        uint64_t epoch;
        if (row->namespace_id == 0) {
            sf_catalog_key_namespace_name(&key, row->name);
            sf_buf_append(&key, "", 1);
            epoch = ((const SF_PB(NamespaceNameEpochObject) *)world_object(
                         w, (const char *)key.data,
                         &searchfabric__v1__namespace_name_epoch_object__descriptor))
                        ->last_allocated_epoch;
        } else {
            assert_true(row->namespace_id == made.ns);
            sf_catalog_key_collection_name(&key, row->namespace_id, row->name);
            sf_buf_append(&key, "", 1);
            epoch = ((const SF_PB(CollectionNameEpochObject) *)world_object(
                         w, (const char *)key.data,
                         &searchfabric__v1__collection_name_epoch_object__descriptor))
                        ->last_allocated_epoch;
        }
        assert_true(epoch == row->last_allocated_epoch && epoch == 1);
        sf_buf_fini(&key);
    }
}

/* `count` rows of names straight into the projection. */
static void plant_names(struct world *w, unsigned count)
{
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_WRITE);
    assert_int_equal(sf_sql_begin(conn, &w->diag), SF_OK);
    for (unsigned i = 0; i < count; i++) {
        char name[32];
        SF_PB(NameEpochRow) row;
        searchfabric__v1__name_epoch_row__init(&row);
        snprintf(name, sizeof(name), "planted-%06u", i);
        row.name = name;
        row.last_allocated_epoch = i + 1;
        assert_int_equal(
            sf_catalog_rows_insert(conn, SF_CATALOG_TABLE_NAMESPACE_NAMES, &row.base, &w->diag),
            SF_OK);
    }
    assert_int_equal(sf_sql_commit(conn, &w->diag), SF_OK);
    sf_sql_release(conn);
}

/* A shard holds at most its limit; all rows come back. */
static void test_shards(void **state)
{
    struct world *w = *state;
    plant_names(w, SF_LIMIT_CHECKPOINT_SHARD_ROWS);
    const SF_PB(CheckpointManifestObject) *manifest = create(w);
    assert_int_equal(manifest->n_checkpoint_shards, 1);
    assert_true(manifest->checkpoint_shards[0]->row_count == SF_LIMIT_CHECKPOINT_SHARD_ROWS);
    (void)world_namespace(w, "n1", "one-more"); /* three rows: namespace, name, record */
    manifest = create(w);
    assert_int_equal(manifest->n_checkpoint_shards, 2);
    assert_true(manifest->checkpoint_shards[0]->row_count == SF_LIMIT_CHECKPOINT_SHARD_ROWS);
    assert_true(manifest->checkpoint_shards[1]->row_count == 3);
    assert_true(verify(w, 0)->complete);
    assert_true(verify(w, 0)->row_count == SF_LIMIT_CHECKPOINT_SHARD_ROWS + 3);
    const char *before = world_dump(w);
    world_rebuild(w);
    assert_string_equal(world_dump(w), before);
}

/* Two are kept; epochs go on after what stands, also after half a checkpoint. */
static void test_kept(void **state)
{
    struct world *w = *state;
    struct made made = make(w);
    for (int i = 0; i < 4; i++) {
        char key[16];
        snprintf(key, sizeof(key), "k%d", i);
        more(w, made, key);
        assert_true(create(w)->checkpoint_epoch == (uint64_t)i + 1);
    }
    const SF_PB(ListCheckpointsResponse) *found = list(w);
    assert_int_equal(found->n_checkpoints, 2);
    assert_true(found->checkpoints[0]->checkpoint_epoch == 4 && found->checkpoints[0]->complete);
    assert_true(found->checkpoints[1]->checkpoint_epoch == 3 && found->checkpoints[1]->complete);
    assert_int_equal(world_list(w, "catalog-checkpoints/", NULL), 4);
    /* the newest loses its manifest: it counts no more, its epoch is not taken again */
    remove_object(w, "catalog-checkpoints/checkpoint_00000000000000000004.manifest.json");
    found = list(w);
    assert_false(found->checkpoints[0]->complete);
    assert_string_equal(found->checkpoints[0]->problem, "it has no manifest");
    assert_true(create(w)->checkpoint_epoch == 5);
    found = list(w);
    assert_int_equal(found->n_checkpoints, 3);
    assert_true(found->checkpoints[0]->checkpoint_epoch == 5 && found->checkpoints[0]->complete);
    assert_true(found->checkpoints[2]->checkpoint_epoch == 3 && found->checkpoints[2]->complete);
    assert_null(verify(w, 9));
    assert_int_equal(w->diag.err, SF_RESOURCE_NOT_FOUND);
}

/* ---- recovery ----------------------------------------------------------------------------- */

/* Does the trace hold "get" of a segment at or below `bound`? */
static bool read_below(const char *trace, uint64_t bound)
{
    for (uint64_t slot = 1; slot <= bound; slot++) {
        char line[128];
        snprintf(line, sizeof(line),
                 "get catalog-recovery-segments/segment_%020" PRIu64 ".json.zst", slot);
        if (strstr(trace, line) != NULL)
            return true;
    }
    return false;
}

static void test_rebuild(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-8-18", "CCS-11-02", "CCS-11-03", "CCS-9.2-01", "CCS-5.1-04", "CCS-5.6-04",
              "CCS-9.2-04", "CCS-11-13", "CCS-4.4-17");
    struct made made = make(w);
    const SF_PB(CheckpointManifestObject) *manifest = create(w);
    uint64_t bound = manifest->checkpoint_upper_bound_recovery_segment_epoch;
    more(w, made, "later-1");
    world_schema(w, "s2", made.ns, made.films, 1, "tok-a");
    world_ready(w, made.ns, made.films, 1, "tok-a");
    SF_PB(PutCollectionMetadataRequest) *update =
        world_collection_request(w, "late", made.ns, "books");
    update->options = world_options(w, "v", "late");
    const char *answer = world_json(w, world_call(w, "PutCollectionMetadata", update));
    const char *answers = world_answers(w, made.ns), *dump = world_dump(w);
    world_trace(w);
    world_rebuild(w);
    const char *trace = world_traced(w);
    assert_false(read_below(trace, bound));
    const char *read_manifest = strstr(trace, "get catalog-checkpoints/checkpoint_");
    const char *read_shard = strstr(trace, "get catalog-checkpoints/shard=0/");
    const char *read_segment = strstr(trace, "get catalog-recovery-segments/");
    const char *read_record = strstr(trace, "get catalog-log/");
    assert_true(read_manifest != NULL && read_manifest < read_shard);
    assert_true(read_shard < read_segment && read_segment < read_record);
    assert_string_equal(world_answers(w, made.ns), answers);
    assert_string_equal(world_dump(w), dump);
    assert_string_equal(world_json(w, world_call(w, "PutCollectionMetadata", update)), answer);
    /* the same once more without the checkpoint */
    remove_object(w, "catalog-checkpoints/checkpoint_00000000000000000001.manifest.json");
    world_rebuild(w);
    assert_string_equal(world_dump(w), dump);
}

/* What a newer checkpoint lacks, the one before has. */
static void test_fall_back(void **state)
{
    (void)state;
    SF_PROVES("CCS-8-18");
    for (int how = 0; how < 4; how++) {
        struct world *w = world_new(true);
        struct made made = make(w);
        uint64_t bound = create(w)->checkpoint_upper_bound_recovery_segment_epoch;
        more(w, made, "between");
        (void)create(w);
        more(w, made, "after");
        const char *dump = world_dump(w);
        if (how == 0)
            damage(w, "catalog-checkpoints/shard=0/checkpoint_00000000000000000002.json.zst");
        else if (how == 1)
            remove_object(w,
                          "catalog-checkpoints/shard=0/checkpoint_00000000000000000002.json.zst");
        else if (how == 2)
            damage(w, "catalog-checkpoints/checkpoint_00000000000000000002.manifest.json");
        else
            remove_object(w, "catalog-checkpoints/checkpoint_00000000000000000002.manifest.json");
        world_trace(w);
        world_rebuild(w);
        assert_false(read_below(world_traced(w), bound));
        assert_string_equal(world_dump(w), dump);
        assert_int_equal(verify(w, 2)->complete, false);
        assert_int_equal(verify(w, 1)->complete, true);
        world_destroy(w);
    }
}

/* A shard of the right size with other bytes is found when it is read; then the one before. */
static void test_flipped_byte(void **state)
{
    struct world *w = *state;
    struct made made = make(w);
    (void)create(w);
    more(w, made, "between");
    const SF_PB(CheckpointShardRef) *ref = create(w)->checkpoint_shards[0];
    const char *dump = world_dump(w);
    struct sf_buf body = {0};
    assert_int_equal(sf_store_get_wait(w->truth, NULL, sf_view_str(ref->key), &body, NULL), SF_OK);
    body.data[body.len / 2] ^= 1;
    struct sf_put put = {.key = sf_view_str(ref->key), .body = sf_buf_view(&body)};
    assert_int_equal(sf_store_put_wait(w->truth, NULL, &put), SF_OK);
    sf_buf_fini(&body);
    assert_true(list(w)->checkpoints[0]->complete); /* as far as a listing shows */
    assert_int_equal(verify(w, 0)->n_problems, 1);
    world_rebuild(w);
    assert_string_equal(world_dump(w), dump);
}

/* A hole above the bound, or a record's missing object there, fails closed and says which. */
static void test_fails_closed(void **state)
{
    (void)state;
    SF_PROVES("CCS-11-18");
    for (int how = 0; how < 2; how++) {
        struct world *w = world_new(true);
        struct made made = make(w);
        uint64_t bound = create(w)->checkpoint_upper_bound_recovery_segment_epoch;
        more(w, made, "late-1");
        more(w, made, "late-2");
        struct sf_buf key = {0};
        if (how == 0) {
            sf_catalog_key_segment(&key, bound + 1);
        } else {
            const SF_PB(GetCollectionMetadataResponse) * got;
            SF_PB(GetCollectionMetadataRequest) get;
            SF_PB(CollectionNameBinding) binding;
            searchfabric__v1__get_collection_metadata_request__init(&get);
            searchfabric__v1__collection_name_binding__init(&binding);
            binding.namespace_id = made.ns;
            binding.collection_name = "late-1";
            get.meta = world_meta(w, "", SF_PBE(CLIENT_KIND, CONTROL_ADMIN));
            get.lookup_case =
                SEARCHFABRIC__V1__GET_COLLECTION_METADATA_REQUEST__LOOKUP_NAME_BINDING;
            get.name_binding = &binding;
            got = world_call(w, "GetCollectionMetadata", &get);
            assert_non_null(got);
            sf_catalog_key_collection(&key, made.ns, got->descriptor->collection->collection_id, 1);
        }
        sf_buf_append(&key, "", 1);
        remove_object(w, (const char *)key.data);
        world_stop(w);
        world_execute(w, "DELETE FROM catalog_lane_shards;");
        assert_int_equal(world_open(w), SF_ERR_CORRUPT);
        char slot[32];
        snprintf(slot, sizeof(slot), "segment %" PRIu64, bound + 1);
        assert_non_null(strstr(w->diag.message, how == 0 ? slot : (const char *)key.data));
        sf_buf_fini(&key);
        world_destroy(w);
    }
}

/* A convergence block that moved after the cut is seen, also of a generation superseded since. */
static void test_convergence_after(void **state)
{
    struct world *w = *state;
    uint64_t ns = world_namespace(w, "n1", "alpha");
    uint64_t id = world_collection(w, "c1", ns, "books");
    world_schema(w, "s1", ns, id, 1, "tok-1");
    (void)create(w);
    world_ready(w, ns, id, 1, "tok-1");
    world_schema(w, "s2", ns, id, 2, "tok-2");
    const char *answers = world_answers(w, ns), *dump = world_dump(w);
    assert_non_null(strstr(dump, "\"ready\":{}"));
    world_rebuild(w);
    assert_string_equal(world_answers(w, ns), answers);
    assert_string_equal(world_dump(w), dump);
}

/* The allocator object's epoch wins over a row. */
static void test_epoch_of_object(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-5.4-04", "CCS-11-12");
    struct made made = make(w);
    const char *dump = world_dump(w);
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_WRITE);
    struct sf_sql_stmt *stmt;
    assert_int_equal(sf_sql_prepare(conn,
                                    "UPDATE collection_name_epochs SET last_allocated_epoch = ?1",
                                    &w->diag, &stmt),
                     SF_OK);
    sf_sql_bind_u64(stmt, 1, 0);
    assert_int_equal(sf_sql_run(stmt, &w->diag, NULL), SF_OK);
    sf_sql_release(conn);
    (void)create(w); /* with the wrong rows in it */
    world_rebuild(w);
    assert_string_equal(world_dump(w), dump);
    (void)made;
}

/* Lost pointers above the bound come back with the bytes that they had. */
static void test_pointers_above(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-9.2-03", "CCS-11-04");
    struct made made = make(w);
    (void)create(w);
    world_schema(w, "s2", made.ns, made.films, 1, "tok-a");
    struct sf_buf key[2] = {0}, body[2] = {0};
    const SF_PB(PutCollectionSchemaRequest) *request =
        world_schema_request(w, "s2", made.ns, made.films, 1, "tok-a");
    struct sf_list_entry *entries = NULL;
    size_t count = 0, found = 0;
    assert_int_equal(sf_store_list_wait(w->truth, NULL, sf_view_str("catalog-replay-"),
                                        sf_view_str(""), 100, w->arena, &entries, &count),
                     SF_OK);
    for (size_t i = 0; i < count; i++) {
        struct sf_buf one = {0};
        assert_int_equal(sf_store_get_wait(w->truth, NULL, entries[i].key, &one, NULL), SF_OK);
        char id[32];
        snprintf(id, sizeof(id), "\"%" PRIu64 "\"", made.films);
        sf_buf_append(&one, "", 1);
        if (strstr((const char *)one.data, "PUT_COLLECTION_SCHEMA") != NULL &&
            strstr((const char *)one.data, id) != NULL && found < 2) {
            sf_buf_append(&key[found], entries[i].key.ptr, entries[i].key.len);
            sf_buf_append(&body[found++], one.data, one.len - 1);
            assert_int_equal(sf_store_remove_wait(w->truth, NULL, entries[i].key), SF_OK);
        }
        sf_buf_fini(&one);
    }
    assert_int_equal(found, 2); /* transport and business */
    world_rebuild(w);
    for (size_t i = 0; i < found; i++) {
        struct sf_buf one = {0};
        assert_int_equal(sf_store_get_wait(w->truth, NULL, sf_buf_view(&key[i]), &one, NULL),
                         SF_OK);
        assert_true(sf_view_equal(sf_buf_view(&one), sf_buf_view(&body[i])));
        sf_buf_fini(&one);
        sf_buf_fini(&key[i]);
        sf_buf_fini(&body[i]);
    }
    assert_non_null(world_call(w, "PutCollectionSchema", request));
}

/* Lost pointers below the bound: the walk does not come there, repair publishes them from the
 * records; replays need none of them meanwhile. */
static void test_pointers_below(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-9.2-03");
    struct made made = make(w);
    SF_PB(PutCollectionSchemaRequest) *schema =
        world_schema_request(w, "s1", made.ns, made.books, 1, "tok-1");
    const char *first = world_json(w, world_call(w, "PutCollectionSchema", schema));
    (void)create(w);
    struct sf_list_entry *entries = NULL;
    struct sf_buf bodies[16] = {0};
    size_t count = 0;
    assert_int_equal(sf_store_list_wait(w->truth, NULL, sf_view_str("catalog-replay-"),
                                        sf_view_str(""), 16, w->arena, &entries, &count),
                     SF_OK);
    assert_int_equal(count, 10); /* nine commands, one of them with a business key */
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(sf_store_get_wait(w->truth, NULL, entries[i].key, &bodies[i], NULL),
                         SF_OK);
        assert_int_equal(sf_store_remove_wait(w->truth, NULL, entries[i].key), SF_OK);
    }
    world_rebuild(w);
    assert_string_equal(world_json(w, world_call(w, "PutCollectionSchema", schema)), first);
    SF_PB(CheckCatalogRequest) check;
    searchfabric__v1__check_catalog_request__init(&check);
    const SF_PB(CheckCatalogResponse) *found = world_call(w, "CheckCatalog", &check);
    assert_non_null(found);
    assert_true(found->problems >= 9);
    check.repair = true;
    assert_non_null(world_call(w, "CheckCatalog", &check));
    for (size_t i = 0; i < count; i++) {
        struct sf_buf body = {0};
        assert_int_equal(sf_store_get_wait(w->truth, NULL, entries[i].key, &body, NULL), SF_OK);
        assert_true(sf_view_equal(sf_buf_view(&body), sf_buf_view(&bodies[i])));
        sf_buf_fini(&body);
        sf_buf_fini(&bodies[i]);
    }
    check.repair = false;
    found = world_call(w, "CheckCatalog", &check);
    assert_true(found->problems == 0);
}

/* Records are read in the order of the segment's entries. */
static void test_order(void **state)
{
    struct world *w = *state;
    SF_PROVES("CCS-9.2-02");
    struct made made = make(w);
    (void)create(w);
    more(w, made, "late-1");
    more(w, made, "late-2");
    more(w, made, "late-3");
    struct sf_catalog_stats stats;
    sf_catalog_stats(w->catalog, &stats);
    const char *keys[3];
    for (uint64_t i = 0; i < 3; i++) {
        struct sf_buf key = {0}, record = {0}, body = {0};
        ProtobufCMessage *message = NULL;
        sf_catalog_key_segment(&key, stats.newest_segment - 2 + i);
        assert_int_equal(sf_store_get_wait(w->truth, NULL, sf_buf_view(&key), &body, NULL), SF_OK);
        assert_int_equal(sf_catalog_decode(&searchfabric__v1__recovery_segment_object__descriptor,
                                           true, sf_buf_view(&body), w->arena, &w->diag, &message),
                         SF_OK);
        sf_catalog_key_outcome(
            &record, ((const SF_PB(RecoverySegmentObject) *)message)->entries[0]->command_identity);
        keys[i] = sf_arena_str(w->arena, sf_buf_view(&record));
        sf_buf_fini(&key);
        sf_buf_fini(&record);
        sf_buf_fini(&body);
    }
    world_trace(w);
    world_rebuild(w);
    const char *trace = world_traced(w);
    const char *at[3];
    for (int i = 0; i < 3; i++) {
        at[i] = strstr(trace, keys[i]);
        assert_non_null(at[i]);
    }
    assert_true(at[0] < at[1] && at[1] < at[2]);
}

/* ---- cadence ------------------------------------------------------------------------------ */

static void test_cadence(void **state)
{
    (void)state;
    SF_PROVES("CCS-8-16");
    struct world *w = world_new(true);
    w->checkpoint_commands = 3;
    w->checkpoint_interval_ms = 60000;
    world_restart(w);
    assert_true(run_job(w) == 0); /* nothing happened yet */
    uint64_t ns = world_namespace(w, "n1", "alpha");
    assert_true(run_job(w) == 0);
    sf_clock_manual_advance(&w->clock, 60000);
    assert_true(run_job(w) == 1); /* the time bound */
    uint64_t gets = atomic_load(&w->wire.gets), lists = atomic_load(&w->wire.lists);
    uint64_t applied = atomic_load(&w->wire.applied);
    sf_clock_manual_advance(&w->clock, 3600000);
    assert_true(run_job(w) == 0); /* an idle catalog asks the store nothing */
    assert_true(gets == atomic_load(&w->wire.gets) && lists == atomic_load(&w->wire.lists));
    assert_true(applied == atomic_load(&w->wire.applied));
    (void)world_collection(w, "c1", ns, "one");
    assert_true(run_job(w) == 1); /* an hour had passed */
    (void)world_collection(w, "c2", ns, "two");
    (void)world_collection(w, "c3", ns, "three");
    assert_true(run_job(w) == 0);
    (void)world_collection(w, "c4", ns, "four");
    assert_true(run_job(w) == 1); /* the command bound */
    /* what stands unsaved is remembered over a restart */
    (void)world_collection(w, "c5", ns, "five");
    world_restart(w);
    assert_true(run_job(w) == 0);
    sf_clock_manual_advance(&w->clock, 60000);
    assert_true(run_job(w) == 1);
    assert_true(run_job(w) == 0);
    world_destroy(w);
}

/* An owner that was taken over from cuts nothing. */
static void test_deposed(void **state)
{
    struct world *w = *state;
    (void)make(w);
    world_depose(w);
    SF_PB(CreateCheckpointRequest) request;
    searchfabric__v1__create_checkpoint_request__init(&request);
    assert_null(world_call(w, "CreateCheckpoint", &request));
    assert_int_equal(w->diag.err, SF_BACKEND_UNAVAILABLE);
    assert_null(world_object(w, "catalog-checkpoints/checkpoint_00000000000000000001.manifest.json",
                             &searchfabric__v1__checkpoint_manifest_object__descriptor));
    struct sf_catalog_stats stats;
    sf_catalog_stats(w->catalog, &stats);
    assert_true(stats.deposed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_contents, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_name_epochs, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_shards, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_kept, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_rebuild, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_rebuild, world_setup_shared, world_teardown),
        cmocka_unit_test(test_fall_back),
        cmocka_unit_test_setup_teardown(test_flipped_byte, world_setup, world_teardown),
        cmocka_unit_test(test_fails_closed),
        cmocka_unit_test_setup_teardown(test_convergence_after, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_epoch_of_object, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_pointers_above, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_pointers_below, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_order, world_setup, world_teardown),
        cmocka_unit_test(test_cadence),
        cmocka_unit_test_setup_teardown(test_deposed, world_setup_shared, world_teardown),
    };
    return SF_RUN_TESTS("catalog_checkpoint", tests);
}
