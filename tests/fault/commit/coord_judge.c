#include "fault/commit/coord_judge.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "publish/keys.h"
#include "publish/wal_chunk.h"

/* Chunks come from the list in key order: stream, shard, epoch, seq; one run is followed at a time.
 */
struct run {
    char prefix[200]; /* key up to the seq */
    uint64_t next;
    bool broken; /* a gap or the seal was met */
};

static void add(struct judge *judge, const Searchfabric__V1__WalFrame *frame, unsigned stream,
                bool in_force)
{
    const Searchfabric__V1__WriteIntent *intent = frame->intent;
    if (judge->count == judge->cap) {
        judge->cap = judge->cap == 0 ? 64 : judge->cap * 2;
        judge->frames = sf_realloc(judge->frames, judge->cap * sizeof(judge->frames[0]));
    }
    struct judged_frame *f = &judge->frames[judge->count++];
    *f = (struct judged_frame){.collection_id = intent->collection->collection_id,
                               .ordinal = intent->slice_ordinal,
                               .epoch = frame->coordinator_epoch,
                               .commit_ts = intent->commit_ts,
                               .covers = sf_wal_stream_covers(stream),
                               .in_force = in_force};
    snprintf(f->id, sizeof(f->id), "%s", intent->write_intent_id);
    snprintf(f->batch_id, sizeof(f->batch_id), "%s", intent->batch_id);
    for (size_t i = 0; i < intent->n_touched_modalities; i++)
        f->touched |= SF_MODALITY_BIT(intent->touched_modalities[i]);
}

static void read_chunk(struct judge *judge, struct sf_store *backend, struct sf_view key,
                       struct run *run)
{
    struct sf_arena *arena = sf_arena_new(64u << 20);
    struct sf_buf body = {0};
    struct sf_wal_chunk chunk = {0};
    const char *text = sf_arena_str(arena, key);
    const char *slash = strrchr(text, '/') + 1;
    uint64_t seq = strtoull(slash, NULL, 10);
    if (strncmp(run->prefix, text, (size_t)(slash - text)) != 0 ||
        run->prefix[slash - text] != '\0') {
        *run = (struct run){0};
        memcpy(run->prefix, text, (size_t)(slash - text));
    }
    enum sf_err err = sf_store_get_wait(backend, NULL, key, &body, NULL);
    if (err == SF_OK)
        err = sf_wal_chunk_decode(sf_buf_view(&body), arena, NULL, &chunk);
    judge->corrupt = judge->corrupt || err != SF_OK;
    run->broken = run->broken || seq != run->next || err != SF_OK || sf_wal_chunk_is_seal(&chunk);
    run->next++;
    for (size_t i = 0; err == SF_OK && i < chunk.count; i++) {
        unsigned stream = sf_wal_stream_of(chunk.header->modality, chunk.header->writer_mode);
        if (chunk.records[i].frame->kind == SEARCHFABRIC__V1__WAL_FRAME_KIND__WAL_FRAME_KIND_ROWS)
            add(judge, chunk.records[i].frame, stream, !run->broken);
    }
    sf_buf_fini(&body);
    sf_arena_destroy(arena);
}

void judge_read(struct judge *judge, struct sf_store *backend)
{
    struct sf_arena *arena = sf_arena_new(16u << 20);
    struct sf_list_entry *entries = NULL;
    struct sf_view after = {0};
    struct run run = {0};
    size_t count = 1000;
    *judge = (struct judge){0};
    while (count == 1000) {
        enum sf_err err = sf_store_list_wait(backend, NULL, sf_view_str("wal/"), after, 1000, arena,
                                             &entries, &count);
        SF_ASSERT(err == SF_OK);
        for (size_t i = 0; i < count; i++)
            read_chunk(judge, backend, entries[i].key, &run);
        if (count > 0)
            after = entries[count - 1].key;
    }
    sf_arena_destroy(arena);
}

void judge_free(struct judge *judge)
{
    free(judge->frames);
    *judge = (struct judge){0};
}

bool judge_stands(const struct judge *judge, const char *id, uint64_t epoch)
{
    uint8_t done = 0;
    uint8_t touched = 0xff;
    for (size_t i = 0; i < judge->count; i++) {
        const struct judged_frame *f = &judge->frames[i];
        if (!f->in_force || f->epoch != epoch || strcmp(f->id, id) != 0)
            continue;
        touched = f->touched;
        done |= f->covers;
    }
    return (touched & ~done) == 0;
}

bool judge_batch_stands(const struct judge *judge, uint64_t collection_id, const char *batch_id,
                        uint32_t ordinal, uint64_t commit_ts)
{
    for (size_t i = 0; i < judge->count; i++) {
        const struct judged_frame *f = &judge->frames[i];
        if (f->collection_id == collection_id && f->ordinal == ordinal &&
            f->commit_ts == commit_ts && strcmp(f->batch_id, batch_id) == 0 &&
            judge_stands(judge, f->id, f->epoch))
            return true;
    }
    return false;
}
