#include "publish/wal_chunk.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "publish/keys.h"
#include "support/proves.h"

static void begin(struct sf_buf *out)
{
    Searchfabric__V1__WalChunkHeader header = SEARCHFABRIC__V1__WAL_CHUNK_HEADER__INIT;
    header.format_version = 1;
    header.attempt_id = (char *)(uintptr_t) "p-1";
    header.modality = SEARCHFABRIC__V1__MODALITY__MODALITY_SEMANTIC_SEARCH;
    header.writer_mode = SEARCHFABRIC__V1__WRITER_MODE__WRITER_MODE_STREAM;
    header.chunk_epoch = 4;
    header.chunk_seq = 9;
    sf_wal_chunk_begin(out, &header);
}

static struct sf_wal_place add(struct sf_buf *out, uint32_t ordinal, const char *body)
{
    Searchfabric__V1__WalFrame frame = SEARCHFABRIC__V1__WAL_FRAME__INIT;
    Searchfabric__V1__WriteIntent intent = SEARCHFABRIC__V1__WRITE_INTENT__INIT;
    Searchfabric__V1__WalRow row = SEARCHFABRIC__V1__WAL_ROW__INIT;
    Searchfabric__V1__WalRow *rows[] = {&row};
    struct sf_wal_place place;
    frame.kind = SEARCHFABRIC__V1__WAL_FRAME_KIND__WAL_FRAME_KIND_ROWS;
    frame.intent = &intent;
    intent.slice_ordinal = ordinal;
    row.body.data = (uint8_t *)(uintptr_t)body;
    row.body.len = strlen(body);
    frame.n_rows = 1;
    frame.rows = rows;
    sf_wal_chunk_add(out, &frame, &place);
    return place;
}

static void test_round_trip(void **state)
{
    struct sf_arena *arena = sf_arena_new(1u << 20);
    struct sf_buf body = {0};
    struct sf_wal_chunk chunk;
    struct sf_wal_place places[3];
    (void)state;
    begin(&body);
    places[0] = add(&body, 1, "one");
    places[1] = add(&body, 2, "");
    places[2] = add(&body, 3, "three");
    sf_wal_chunk_end(&body, 3);
    assert_memory_equal(body.data, "SFWAL01\n", 8);
    assert_int_equal(sf_wal_chunk_decode(sf_buf_view(&body), arena, NULL, &chunk), SF_OK);
    assert_int_equal(chunk.count, 3);
    assert_int_equal(chunk.header->chunk_seq, 9);
    assert_false(sf_wal_chunk_is_seal(&chunk));
    for (unsigned i = 0; i < 3; i++) {
        const Searchfabric__V1__WalFrame *frame = NULL;
        assert_int_equal(chunk.records[i].frame->intent->slice_ordinal, i + 1);
        assert_memory_equal(&chunk.records[i].place, &places[i], sizeof(places[i]));
        struct sf_view record =
            sf_view_bytes(body.data + places[i].offset_bytes, places[i].length_bytes);
        assert_int_equal(sf_wal_record_decode(record, places[i].checksum_xxh3, arena, NULL, &frame),
                         SF_OK);
        assert_int_equal(frame->intent->slice_ordinal, i + 1);
        assert_int_equal(
            sf_wal_record_decode(record, places[i].checksum_xxh3 ^ 1, arena, NULL, &frame),
            SF_ERR_CORRUPT);
        record.len--;
        assert_int_equal(sf_wal_record_decode(record, places[i].checksum_xxh3, arena, NULL, &frame),
                         SF_ERR_CORRUPT);
    }
    sf_buf_fini(&body);
    sf_arena_destroy(arena);
}

/* No cut, no flipped bit and no appended byte goes unnoticed. */
static void test_damage(void **state)
{
    struct sf_buf body = {0};
    struct sf_rng rng;
    (void)state;
    begin(&body);
    (void)add(&body, 1, "one");
    (void)add(&body, 2, "two");
    sf_wal_chunk_end(&body, 2);
    sf_rng_init(&rng, 5);
    for (size_t cut = 0; cut < body.len; cut++) {
        struct sf_arena *arena = sf_arena_new(1u << 20);
        struct sf_wal_chunk chunk;
        assert_int_equal(sf_wal_chunk_decode(sf_view_bytes(body.data, cut), arena, NULL, &chunk),
                         SF_ERR_CORRUPT);
        sf_arena_destroy(arena);
    }
    for (size_t at = 0; at < body.len; at++) {
        struct sf_arena *arena = sf_arena_new(1u << 20);
        struct sf_wal_chunk chunk;
        uint8_t bit = (uint8_t)(1u << sf_rng_below(&rng, 8));
        body.data[at] ^= bit;
        assert_int_equal(sf_wal_chunk_decode(sf_buf_view(&body), arena, NULL, &chunk),
                         SF_ERR_CORRUPT);
        body.data[at] ^= bit;
        sf_arena_destroy(arena);
    }
    struct sf_arena *arena = sf_arena_new(1u << 20);
    struct sf_wal_chunk chunk;
    sf_buf_append(&body, "x", 1);
    assert_int_equal(sf_wal_chunk_decode(sf_buf_view(&body), arena, NULL, &chunk), SF_ERR_CORRUPT);
    sf_arena_destroy(arena);
    sf_buf_fini(&body);
}

static void test_trailer_counts(void **state)
{
    struct sf_arena *arena = sf_arena_new(1u << 20);
    struct sf_buf body = {0};
    struct sf_wal_chunk chunk;
    (void)state;
    begin(&body);
    (void)add(&body, 1, "one");
    sf_wal_chunk_end(&body, 2); /* says two */
    assert_int_equal(sf_wal_chunk_decode(sf_buf_view(&body), arena, NULL, &chunk), SF_ERR_CORRUPT);
    sf_buf_fini(&body);
    sf_arena_destroy(arena);
}

static void test_keys(void **state)
{
    struct sf_buf key = {0};
    (void)state;
    sf_wal_chunk_key(&key, 3, 7, 2, 15);
    sf_buf_append(&key, "", 1);
    assert_string_equal((const char *)key.data,
                        "wal/semantic-batch/shard=7/00000000000000000002/00000000000000000015");
    sf_buf_clear(&key);
    sf_manifest_key(&key, (struct sf_collection_ref){{1}, {2}}, 3);
    sf_buf_append(&key, "", 1); /* SHA-256("1") = 6b86b273... */
    assert_string_equal((const char *)key.data,
                        "manifests/6b/1/2/manifest_v00000000000000000003.json");
    sf_buf_clear(&key);
    sf_committed_head_key(&key, (struct sf_collection_ref){{1}, {2}});
    sf_buf_append(&key, "", 1);
    assert_string_equal((const char *)key.data, "catalog/6b/1/2/manifest_committed_head.json");
    sf_buf_fini(&key);
    for (unsigned i = 0; i < SF_WAL_STREAMS; i++)
        assert_int_equal(sf_wal_stream_of(sf_wal_stream_modality(i), sf_wal_stream_mode(i)), i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_trailer_counts),
        cmocka_unit_test(test_keys),
    };
    return SF_RUN_TESTS("wal_chunk", tests);
}
