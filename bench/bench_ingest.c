/*
 * Planned batches through the commit coordinator over the embedded store: to durable and to
 * visible.
 *
 * durable:  `clients` closed loops of one-row batches on one collection, WAL_CHUNK_DURABLE.
 * spread:   the same over 64 collections.
 * bulk:     batches of 100 rows on one collection; an operation is a batch.
 * mixed:    one-row batches that touch both modalities: two frames in two streams.
 * visible:  one-row batches on one collection, WAIT_FOR_VISIBLE.
 *
 * Submissions go through the in-process channel, so the CPU per operation holds the caller's part.
 */
#include <argp.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "bench_common.h"
#include "commit/commit.h"
#include "contract/descriptor_set.h"
#include "exec/reactor.h"
#include "rpc/channel.h"
#include "searchfabric/v1/commit_coordinator.pb-c.h"

#define MOST_CLIENTS 512u
#define MOST_SAMPLES (4u << 20)
#define BULK_ROWS    100u
#define BODY_BYTES   200u
#define REACTORS     2u
#define SUBMIT       "/searchfabric.v1.CommitCoordinatorService/SubmitPlannedBatch"

enum kind { KIND_DURABLE, KIND_SPREAD, KIND_BULK, KIND_MIXED, KIND_VISIBLE, KIND_COUNT };

/* What one kind of run came to. */
struct result {
    uint32_t *latencies_us; /* samples, unsorted until printed */
    _Atomic size_t count;
    double seconds;
    double cpu_seconds;
};

/* One closed loop. */
struct client {
    struct bench *bench;
    unsigned id;
    uint64_t next; /* number of its next batch */
    int64_t sent_ns;
    struct sf_task start;
    struct client *blocked; /* next that waits for the stream */
};

/* The stream of one reactor; on its loop. */
struct lane {
    struct bench *bench;
    struct sf_loop *loop;
    struct sf_client_stream *stream;
    struct client *blocked; /* whose batch did not fit */
    struct sf_task open;
    struct sf_task end;
};

struct bench {
    struct sf_reactors *reactors;
    struct sf_store *store;
    struct sf_tso_source *tso;
    struct sf_commit *commit;
    struct sf_channel *channel;
    struct lane lanes[REACTORS];
    struct result *result; /* of the run under way */
    enum kind kind;
    unsigned round;
    int64_t end_ns;          /* nothing new after this */
    uint64_t first_admitted; /* stamp of every batch of a run */
    _Atomic unsigned running;
    sem_t done;
    struct client clients[MOST_CLIENTS];
    char body[BODY_BYTES];
};

/* ---- loops ---- */

/* Everything of one request, on the stack of its sending. */
struct request {
    Searchfabric__V1__SubmitPlannedBatchRequest message;
    Searchfabric__V1__PlannedBatch planned;
    Searchfabric__V1__MutationBatch batch;
    Searchfabric__V1__CollectionRef ref;
    Searchfabric__V1__EntryPlan plan;
    Searchfabric__V1__EntryPlan *plans[1];
    Searchfabric__V1__Modality modalities[2];
    Searchfabric__V1__MutationEntry entries[BULK_ROWS];
    Searchfabric__V1__MutationEntry *entry_at[BULK_ROWS];
    Searchfabric__V1__RowMutation rows[BULK_ROWS];
    Searchfabric__V1__DocumentID ids[BULK_ROWS];
    char batch_id[32];
    char fingerprint[SF_SHA256_HEX_BYTES];
};

static void fill_rows(struct request *r, const struct client *c, size_t rows)
{
    for (size_t i = 0; i < rows; i++) {
        searchfabric__v1__mutation_entry__init(&r->entries[i]);
        searchfabric__v1__row_mutation__init(&r->rows[i]);
        searchfabric__v1__document_id__init(&r->ids[i]);
        r->entry_at[i] = &r->entries[i];
        r->entries[i].entry_case = SEARCHFABRIC__V1__MUTATION_ENTRY__ENTRY_ROW;
        r->entries[i].row = &r->rows[i];
        r->ids[i].id_value_case = SEARCHFABRIC__V1__DOCUMENT_ID__ID_VALUE_U64;
        r->ids[i].u64 = (uint64_t)c->id << 40 | c->next << 8 | i;
        r->rows[i].doc_id = &r->ids[i];
        r->rows[i].op = SEARCHFABRIC__V1__ROW_OP__ROW_OP_CREATE;
        r->rows[i].body = (ProtobufCBinaryData){BODY_BYTES, (uint8_t *)c->bench->body};
        r->rows[i].source_partition = UINT64_C(1) << 63 | c->id;
        r->rows[i].source_epoch = c->next;
        r->rows[i].source_seq = i + 1;
    }
}

static void fill(struct request *r, struct client *c)
{
    const struct bench *b = c->bench;
    size_t rows = b->kind == KIND_BULK ? BULK_ROWS : 1;
    searchfabric__v1__submit_planned_batch_request__init(&r->message);
    searchfabric__v1__planned_batch__init(&r->planned);
    searchfabric__v1__mutation_batch__init(&r->batch);
    searchfabric__v1__collection_ref__init(&r->ref);
    searchfabric__v1__entry_plan__init(&r->plan);
    c->next++;
    (void)snprintf(r->batch_id, sizeof(r->batch_id), "%u-%u-%llu", b->round, c->id,
                   (unsigned long long)c->next);
    sf_sha256_hex(sf_view_str(r->batch_id), r->fingerprint);
    r->ref.namespace_id = 1;
    r->ref.collection_id = b->kind == KIND_SPREAD ? 2 + c->next % 64 : 1;
    r->modalities[0] = SEARCHFABRIC__V1__MODALITY__MODALITY_METADATA_SEARCH;
    r->modalities[1] = SEARCHFABRIC__V1__MODALITY__MODALITY_SEMANTIC_SEARCH;
    r->plans[0] = &r->plan;
    r->plan.last_entry_index = (uint32_t)rows - 1;
    r->plan.touched_modalities = r->modalities;
    r->plan.n_touched_modalities = b->kind == KIND_MIXED ? 2 : 1;
    fill_rows(r, c, rows);
    r->batch.batch_id = r->batch_id;
    r->batch.batch_fingerprint = r->fingerprint;
    r->batch.stream_identity = (char *)(uintptr_t) "bench";
    r->batch.schema_generation_token = (char *)(uintptr_t) "token";
    r->batch.collection = &r->ref;
    r->batch.durability = SEARCHFABRIC__V1__DURABILITY_POLICY__DURABILITY_POLICY_WAL_CHUNK_DURABLE;
    r->batch.visibility =
        b->kind == KIND_VISIBLE
            ? SEARCHFABRIC__V1__VISIBILITY_POLICY__VISIBILITY_POLICY_WAIT_FOR_VISIBLE
            : SEARCHFABRIC__V1__VISIBILITY_POLICY__VISIBILITY_POLICY_ASYNC;
    r->batch.entries = r->entry_at;
    r->batch.n_entries = rows;
    r->planned.batch = &r->batch;
    r->planned.flow_kind = SEARCHFABRIC__V1__FLOW_KIND__FLOW_KIND_B;
    r->planned.source_kind = SEARCHFABRIC__V1__SOURCE_KIND__SOURCE_KIND_NATIVE_SEARCH_API;
    r->planned.writer_mode = SEARCHFABRIC__V1__WRITER_MODE__WRITER_MODE_STREAM;
    r->planned.entry_plans = r->plans;
    r->planned.n_entry_plans = 1;
    r->planned.enabled_modalities = r->modalities;
    r->planned.n_enabled_modalities = 2;
    r->planned.first_admitted_ts = b->first_admitted;
    r->message.submission_id = c->id;
    r->message.planned_batch = &r->planned;
}

static void send_next(struct client *c)
{
    struct lane *lane = &c->bench->lanes[c->id % REACTORS];
    struct request r;
    fill(&r, c);
    c->sent_ns = bench_now_ns();
    enum sf_err err = sf_client_stream_send(lane->stream, &r.message.base);
    if (err == SF_ERR_FULL) {
        c->blocked = lane->blocked;
        lane->blocked = c;
        return;
    }
    bench_must(err == SF_OK, "sending a batch");
}

static void on_event(void *user, const ProtobufCMessage *message)
{
    struct lane *lane = user;
    struct bench *b = lane->bench;
    const Searchfabric__V1__SubmitPlannedBatchResponse *event = (const void *)message;
    struct client *c = &b->clients[event->submission_id];
    bench_must(event->event_case != SEARCHFABRIC__V1__SUBMIT_PLANNED_BATCH_RESPONSE__EVENT_REFUSED,
               "a batch");
    if (event->event_case != SEARCHFABRIC__V1__SUBMIT_PLANNED_BATCH_RESPONSE__EVENT_GATE_REACHED)
        return;
    size_t at = atomic_fetch_add(&b->result->count, 1);
    if (at < MOST_SAMPLES)
        b->result->latencies_us[at] = (uint32_t)((bench_now_ns() - c->sent_ns) / 1000);
    if (bench_now_ns() < b->end_ns)
        send_next(c);
    else if (atomic_fetch_sub(&b->running, 1) == 1)
        (void)sem_post(&b->done);
}

static void on_writable(void *user)
{
    struct lane *lane = user;
    struct client *c = lane->blocked;
    lane->blocked = NULL;
    while (c != NULL) {
        struct client *next = c->blocked;
        send_next(c);
        c = next;
    }
}

static void on_done(void *user, const struct sf_diag *diag)
{
    const struct lane *lane = user;
    (void)diag;
    (void)sem_post(&lane->bench->done);
}

static const struct sf_client_stream_ops stream_ops = {
    .message = on_event, .writable = on_writable, .done = on_done};

static void open_lane(struct sf_task *task)
{
    struct lane *lane = SF_CONTAINER_OF(task, struct lane, open);
    lane->stream =
        sf_channel_stream(lane->bench->channel, SUBMIT, NULL, lane->loop, &stream_ops, lane);
    (void)sem_post(&lane->bench->done);
}

static void end_lane(struct sf_task *task)
{
    sf_client_stream_half_close(SF_CONTAINER_OF(task, struct lane, end)->stream);
}

static void start_client(struct sf_task *task)
{
    send_next(SF_CONTAINER_OF(task, struct client, start));
}

static void wait_done(struct bench *b)
{
    while (sem_wait(&b->done) != 0) {
    }
}

static void run_kind(struct bench *b, enum kind kind, unsigned clients, int64_t ms,
                     struct result *result)
{
    struct sf_tso stamp;
    bench_must(sf_tso_get_wait(b->tso, NULL, 1, &stamp) == SF_OK, "getting a timestamp");
    double cpu = bench_own_cpu_seconds();
    int64_t start = bench_now_ns();
    b->result = result;
    b->kind = kind;
    b->round++;
    b->first_admitted = stamp.v;
    b->end_ns = start + ms * 1000000;
    atomic_store(&b->running, clients);
    for (unsigned i = 0; i < clients; i++)
        sf_loop_post(b->lanes[i % REACTORS].loop, &b->clients[i].start);
    wait_done(b);
    result->seconds += (double)(bench_now_ns() - start) / 1e9;
    result->cpu_seconds += bench_own_cpu_seconds() - cpu;
}

static void print_result(const char *name, unsigned clients, struct result *r)
{
    size_t count = atomic_load(&r->count);
    size_t samples = count < MOST_SAMPLES ? count : MOST_SAMPLES;
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u);
    bench_sort(r->latencies_us, samples);
    (void)printf("%-8s %8u %10.0f %8u %8u %8u %10.2f %8ld\n", name, clients,
                 (double)count / r->seconds, r->latencies_us[samples / 2],
                 r->latencies_us[samples - 1 - samples / 100],
                 r->latencies_us[samples - 1 - samples / 1000],
                 r->cpu_seconds * 1e6 / (double)count, u.ru_maxrss / 1024);
    (void)fflush(stdout);
}

static void run_levels(struct bench *b, int64_t ms)
{
    static const char *const names[KIND_COUNT] = {"durable", "spread", "bulk", "mixed", "visible"};
    static const unsigned levels[] = {1, 8, 64, 512};
    (void)printf("%-8s %8s %10s %8s %8s %8s %10s %8s\n", "", "clients", "batches/s", "p50 us",
                 "p99 us", "p999 us", "cpu us/op", "rss MiB");
    for (size_t i = 0; i < SF_ARRAY_LEN(levels); i++) {
        for (int k = 0; k < KIND_COUNT; k++) {
            struct result result = {.latencies_us = sf_calloc(MOST_SAMPLES, sizeof(uint32_t))};
            run_kind(b, (enum kind)k, levels[i], ms, &result);
            print_result(names[k], levels[i], &result);
            free(result.latencies_us);
        }
    }
}

/* ---- the program ---- */

static void run_all(struct bench *b, const char *folder, int64_t ms)
{
    struct sf_loop *loops[REACTORS];
    struct sf_attempts attempts;
    struct sf_diag diag;
    sf_diag_init(&diag);
    bench_must(sf_reactors_start(REACTORS, sf_clock_system(), NULL, &b->reactors) == SF_OK,
               "starting reactors");
    bench_must(sf_embedded_store_open(folder, NULL, &b->store) == SF_OK, "opening the store");
    for (unsigned i = 0; i < REACTORS; i++)
        loops[i] = sf_reactors_loop(b->reactors, i);
    sf_attempts_init(&attempts, 1);
    const struct sf_oracle_options oracle = {
        .store = b->store, .loop = loops[0], .clock = sf_clock_system(), .attempts = &attempts};
    bench_must(sf_oracle_open(&oracle, NULL, NULL, &b->tso) == SF_OK, "opening the oracle");
    const struct sf_commit_deps deps = {.store = b->store,
                                        .loops = loops,
                                        .loop_count = REACTORS,
                                        .clock = sf_clock_system(),
                                        .tso = b->tso,
                                        .attempts = &attempts,
                                        .owner_id = "bench"};
    bench_must(sf_commit_open(&deps, NULL, &diag, &b->commit) == SF_OK, "opening the coordinator");
    const struct sf_service *services[] = {sf_commit_service(b->commit)};
    b->channel = sf_inproc_channel_new(services, 1, "planner", sf_clock_system());
    for (unsigned i = 0; i < REACTORS; i++) {
        b->lanes[i] =
            (struct lane){.bench = b, .loop = loops[i], .open.run = open_lane, .end.run = end_lane};
        sf_loop_post(loops[i], &b->lanes[i].open);
        wait_done(b);
    }
    for (unsigned i = 0; i < MOST_CLIENTS; i++)
        b->clients[i] = (struct client){.bench = b, .id = i, .start.run = start_client};
    run_levels(b, ms);
    for (unsigned i = 0; i < REACTORS; i++) {
        sf_loop_post(loops[i], &b->lanes[i].end);
        wait_done(b);
    }
    bench_must(sf_commit_drain(b->commit, NULL, 30000) == SF_OK, "draining");
    sf_channel_destroy(b->channel);
    sf_commit_close(b->commit, NULL);
    sf_tso_source_destroy(b->tso);
    sf_reactors_stop(b->reactors);
    sf_store_destroy(b->store);
}

/* The command line. */
struct command {
    const char *folder; /* where the store goes */
    int64_t ms;         /* of one run */
};

static const struct argp_option option_table[] = {
    {"dir", 'd', "FOLDER", 0, "Where the store goes (default: a fresh folder under .)", 0},
    {"ms", 't', "N", 0, "Milliseconds of one run (default 2000)", 0},
    {0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct command *c = state->input;
    switch (key) {
    case 'd':
        c->folder = arg;
        break;
    case 't':
        c->ms = strtoll(arg, NULL, 10);
        if (c->ms < 1)
            argp_error(state, "--ms takes a positive number");
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

int main(int argc, char **argv)
{
    const struct argp argp = {
        option_table, parse, NULL, "Batches to durable and to visible through the coordinator.",
        NULL,         NULL,  NULL};
    char template[] = "./bench-ingest-XXXXXX";
    struct command c = {.ms = 2000};
    struct bench *b = sf_calloc(1, sizeof(*b));
    if (argp_parse(&argp, argc, argv, 0, NULL, &c) != 0)
        return 1;
    bench_must(sf_pbjson_register(sf_view_bytes(sf_contract_descriptor_set,
                                                sf_contract_descriptor_set_size)) == SF_OK,
               "registering the contract");
    sf_log_set_fd(-1);
    memset(b->body, 'x', sizeof(b->body));
    const char *folder = c.folder != NULL ? c.folder : mkdtemp(template);
    bench_must(folder != NULL, "making a folder");
    (void)sem_init(&b->done, 0, 0);
    run_all(b, folder, c.ms);
    (void)sem_destroy(&b->done);
    free(b);
    if (c.folder == NULL)
        bench_remove_folder(folder);
    return 0;
}
