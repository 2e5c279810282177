#include "publish/reader.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "contract/descriptor_set.h"
#include "object/memory_store.h"
#include "publish/manifest.h"
#include "publish/wal_chunk.h"
#include "support/proves.h"

static const struct sf_collection_ref REF = {{3}, {4}};

/* A row as a test states it; each is a slice of its own, in its own chunk. */
struct given {
    uint64_t doc_id;
    uint64_t commit_ts;
    uint64_t partition;
    uint64_t epoch;
    uint64_t seq;
    const char *body; /* NULL = DELETE */
    bool batch_mode;
    Searchfabric__V1__FlowKind flow;
};

struct made {
    struct sf_store *store;
    struct sf_manifest_state state;
    struct sf_attempts attempts;
    unsigned slices;
};

static void put(struct made *made, struct sf_view key, struct sf_view body)
{
    struct sf_put p = {.key = key, .body = body, .cond = SF_PUT_ANY};
    assert_int_equal(sf_store_put_wait(made->store, NULL, &p), SF_OK);
}

static void publish(struct made *made, const Searchfabric__V1__ManifestSlice *slice)
{
    struct sf_manifest_queue ready = {0};
    struct sf_manifest_plan plan = {0};
    struct sf_manifest_inputs inputs = {.collection = REF,
                                        .base_interval = 3,
                                        .list_entries = 2,
                                        .version = made->slices,
                                        .attempts = &made->attempts,
                                        .frontier = {.enabled = 1}};
    sf_manifest_queue_add(&ready, slice, NULL);
    sf_manifest_plan_build(&plan, &made->state, &ready, 1, &inputs);
    for (size_t i = 0; i < plan.list_count; i++)
        put(made, sf_buf_view(&plan.lists[i].key), sf_buf_view(&plan.lists[i].body));
    put(made, sf_buf_view(&plan.manifest_key), sf_buf_view(&plan.manifest));
    put(made, sf_buf_view(&plan.head_key), sf_buf_view(&plan.head));
    sf_manifest_state_commit(&made->state, &plan, &ready, 1);
    sf_manifest_plan_fini(&plan);
}

static void add(struct made *made, const struct given *g)
{
    Searchfabric__V1__WalChunkHeader header = SEARCHFABRIC__V1__WAL_CHUNK_HEADER__INIT;
    Searchfabric__V1__WalFrame frame = SEARCHFABRIC__V1__WAL_FRAME__INIT;
    Searchfabric__V1__WriteIntent intent = SEARCHFABRIC__V1__WRITE_INTENT__INIT;
    Searchfabric__V1__WalRow row = SEARCHFABRIC__V1__WAL_ROW__INIT;
    Searchfabric__V1__WalRow *rows[] = {&row};
    Searchfabric__V1__ManifestSlice slice = SEARCHFABRIC__V1__MANIFEST_SLICE__INIT;
    Searchfabric__V1__WalAnchor anchor = SEARCHFABRIC__V1__WAL_ANCHOR__INIT;
    Searchfabric__V1__WalAnchor *anchors[] = {&anchor};
    struct sf_wal_place place;
    struct sf_buf key = {0};
    struct sf_buf body = {0};
    char id[SF_SHA256_HEX_BYTES];
    char text[16];
    made->slices++;
    snprintf(text, sizeof(text), "%u", made->slices);
    sf_sha256_hex(sf_view_str(text), id);
    header.format_version = 1;
    header.attempt_id = text;
    frame.kind = SEARCHFABRIC__V1__WAL_FRAME_KIND__WAL_FRAME_KIND_ROWS;
    frame.intent = &intent;
    frame.rows = rows;
    frame.n_rows = 1;
    intent.write_intent_id = id;
    intent.flow_kind = g->flow;
    row.doc_id = g->doc_id;
    row.op = g->body == NULL ? SEARCHFABRIC__V1__ROW_OP__ROW_OP_DELETE
                             : SEARCHFABRIC__V1__ROW_OP__ROW_OP_INDEX;
    row.body.data = (uint8_t *)(uintptr_t)g->body;
    row.body.len = g->body == NULL ? 0 : strlen(g->body);
    row.source_partition = g->partition;
    row.source_epoch = g->epoch;
    row.source_seq = g->seq;
    sf_wal_chunk_begin(&body, &header);
    sf_wal_chunk_add(&body, &frame, &place);
    sf_wal_chunk_end(&body, 1);
    anchor.modality = SEARCHFABRIC__V1__MODALITY__MODALITY_METADATA_SEARCH;
    anchor.writer_mode = g->batch_mode ? SEARCHFABRIC__V1__WRITER_MODE__WRITER_MODE_BATCH
                                       : SEARCHFABRIC__V1__WRITER_MODE__WRITER_MODE_STREAM;
    anchor.chunk_epoch = 1;
    anchor.chunk_seq = made->slices;
    anchor.offset_bytes = place.offset_bytes;
    anchor.length_bytes = place.length_bytes;
    anchor.checksum_xxh3 = place.checksum_xxh3;
    sf_wal_chunk_key(&key, g->batch_mode ? 1 : 0, 0, 1, made->slices);
    put(made, sf_buf_view(&key), sf_buf_view(&body));
    slice.write_intent_id = id;
    slice.commit_ts = g->commit_ts;
    slice.row_count = 1;
    slice.anchors = anchors;
    slice.n_anchors = 1;
    publish(made, &slice);
    sf_buf_fini(&key);
    sf_buf_fini(&body);
}

static void begin(struct made *made)
{
    *made = (struct made){.store = sf_memory_store_new_inline()};
    sf_attempts_init(&made->attempts, 9);
}

static void end(struct made *made)
{
    sf_manifest_state_fini(&made->state);
    sf_store_destroy(made->store);
}

static bool collect(void *user, const struct sf_row *row)
{
    sf_buf_printf(user, "%llu=%.*s@%llu\n", (unsigned long long)row->doc_id.v, (int)row->body.len,
                  (const char *)row->body.ptr, (unsigned long long)row->commit_ts.v);
    return true;
}

static void expect(struct made *made, const char *rows)
{
    struct sf_buf out = {0};
    struct sf_diag diag;
    sf_diag_init(&diag);
    assert_int_equal(sf_rows_read(made->store, NULL, REF, collect, &out, NULL, &diag), SF_OK);
    sf_buf_append(&out, "", 1);
    assert_string_equal((const char *)out.data, rows);
    sf_buf_fini(&out);
}

static void test_empty(void **state)
{
    struct made made;
    struct sf_rows_head head = {.manifest_version = 7};
    (void)state;
    begin(&made);
    expect(&made, "");
    assert_int_equal(sf_rows_head_read(made.store, NULL, REF, &head, NULL), SF_OK);
    assert_int_equal(head.manifest_version, 0);
    end(&made);
}

static void test_order_and_delete(void **state)
{
    struct made made;
    struct sf_rows_head head;
    (void)state;
    begin(&made);
    add(&made, &(struct given){.doc_id = UINT64_MAX, .commit_ts = 5, .body = "max"});
    add(&made, &(struct given){.doc_id = 0, .commit_ts = 6, .body = "zero"});
    add(&made, &(struct given){.doc_id = 9, .commit_ts = 7, .body = "gone"});
    add(&made, &(struct given){.doc_id = 9, .commit_ts = 8});
    add(&made, &(struct given){.doc_id = 8, .commit_ts = 9});
    add(&made, &(struct given){.doc_id = 8, .commit_ts = 10, .body = "back"});
    expect(&made, "0=zero@6\n8=back@10\n18446744073709551615=max@5\n");
    assert_int_equal(sf_rows_head_read(made.store, NULL, REF, &head, NULL), SF_OK);
    assert_int_equal(head.slices, 6);
    assert_int_equal(head.total_rows, 6);
    assert_int_equal(head.manifest_version, 6);
    end(&made);
}

/* All orders of arrival, pairs that differ in one component, and pairs where a lower one disagrees.
 */
static void test_conflicts(void **state)
{
    static const struct {
        struct given lose, win;
    } pairs[] = {
        {{1, 10, 9, 9, 9, "lose", false, 0}, {1, 11, 1, 1, 1, "win", false, 0}},
        {{1, 10, 1, 5, 5, "lose", false, 0}, {1, 10, 2, 5, 5, "win", false, 0}},
        {{1, 10, 1, 9, 9, "lose", false, 0}, {1, 10, 2, 1, 1, "win", false, 0}},
        {{1, 10, 1, 1, 5, "lose", false, 0}, {1, 10, 1, 2, 5, "win", false, 0}},
        {{1, 10, 1, 1, 9, "lose", false, 0}, {1, 10, 1, 2, 1, "win", false, 0}},
        {{1, 10, 1, 1, 1, "lose", false, 0}, {1, 10, 1, 1, 2, "win", false, 0}},
        {{1, 10, UINT64_C(1) << 62, 1, 1, "lose", false, 0},
         {1, 10, UINT64_C(1) << 63, 1, 1, "win", false, 0}},
    };
    (void)state;
    SF_PROVES("COORD-4.3-11", "COORD-4.3-12", "COORD-4.3-13", "COORD-4.3-14");
    for (size_t i = 0; i < SF_ARRAY_LEN(pairs); i++) {
        for (unsigned variant = 0; variant < 16; variant++) {
            struct given lose = pairs[i].lose;
            struct given win = pairs[i].win;
            struct made made;
            char text[64];
            lose.batch_mode = (variant & 1) != 0; /* writer and flow decide nothing */
            win.batch_mode = (variant & 2) != 0;
            lose.flow = (variant & 4) != 0 ? SEARCHFABRIC__V1__FLOW_KIND__FLOW_KIND_A
                                           : SEARCHFABRIC__V1__FLOW_KIND__FLOW_KIND_B;
            win.flow = (variant & 4) != 0 ? SEARCHFABRIC__V1__FLOW_KIND__FLOW_KIND_B
                                          : SEARCHFABRIC__V1__FLOW_KIND__FLOW_KIND_A;
            begin(&made);
            add(&made, (variant & 8) != 0 ? &win : &lose);
            add(&made, (variant & 8) != 0 ? &lose : &win);
            snprintf(text, sizeof(text), "1=win@%llu\n", (unsigned long long)win.commit_ts);
            expect(&made, text);
            end(&made);
        }
    }
}

static void test_corruption_is_found(void **state)
{
    struct made made;
    struct sf_diag diag;
    struct sf_buf body = {0};
    struct sf_buf out = {0};
    struct sf_buf key = {0};
    (void)state;
    begin(&made);
    add(&made, &(struct given){.doc_id = 1, .commit_ts = 5, .body = "hello"});
    sf_wal_chunk_key(&key, 0, 0, 1, 1);
    assert_int_equal(sf_store_get_wait(made.store, NULL, sf_buf_view(&key), &body, NULL), SF_OK);
    uint8_t *at = memmem(body.data, body.len, "hello", 5);
    assert_non_null(at);
    *at = 'j';
    put(&made, sf_buf_view(&key), sf_buf_view(&body));
    sf_diag_init(&diag);
    assert_int_equal(sf_rows_read(made.store, NULL, REF, collect, &out, NULL, &diag),
                     SF_ERR_CORRUPT);
    assert_non_null(strstr(diag.message, "wal/metadata-stream/shard=0/"));
    assert_int_equal(sf_store_remove_wait(made.store, NULL, sf_buf_view(&key)), SF_OK);
    assert_int_equal(sf_rows_read(made.store, NULL, REF, collect, &out, NULL, &diag),
                     SF_ERR_CORRUPT);
    assert_int_equal(out.len, 0);
    sf_buf_fini(&body);
    sf_buf_fini(&key);
    sf_buf_fini(&out);
    end(&made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_order_and_delete),
        cmocka_unit_test(test_conflicts),
        cmocka_unit_test(test_corruption_is_found),
    };
    if (sf_pbjson_register(
            sf_view_bytes(sf_contract_descriptor_set, sf_contract_descriptor_set_size)) != SF_OK)
        return 1;
    return SF_RUN_TESTS("reader", tests);
}
