/*
 * `sfctl load FILE.ndjson --index NAME`: bulk load through the Elasticsearch port. The file is cut
 * into requests of
 * --batch documents; request n carries the Idempotency-Key `{key}-{n}`, so that a request which got
 * no answer is sent again, byte for byte, until --retry-seconds have passed without one, and no
 * document is ever doubled. Requests go out one after another on one connection: explicit ids of a
 * collection must ascend.
 */
#include "cli/cli_priv.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/rng.h"
#include "base/text.h"
#include "cli/load_file.h"

#define RESPONSE_MAX_BYTES ((size_t)256 << 20)
#define PROGRESS_EVERY_MS  100

/* One load. */
struct load {
    struct sf_cli *cli;
    const char *path;         /* NDJSON file */
    const char *index;        /* index name */
    const char *es;           /* HOST:PORT of the Elasticsearch port */
    const char *ack_log_path; /* --ack-log, NULL = none */
    const char *refresh;      /* refresh parameter of the last request, NULL = none */
    FILE *ack_log;            /* one line per acknowledged document: line number, tab, id */
    uint64_t batch;           /* documents a request */
    bool explicit_ids;        /* --first-id was given */
    uint64_t first_id;        /* id of the first document */
    uint64_t retry_seconds;   /* without an answer before giving up */
    struct sf_load_file file;
    CURL *curl;
    char *url;              /* in cli->arena */
    struct sf_buf request;  /* body under way */
    struct sf_buf response; /* its answer */
    uint64_t acked;         /* documents acknowledged */
    uint64_t refused;       /* documents refused */
    uint64_t retries;       /* requests sent again */
    int64_t started_ms;     /* monotonic */
    int64_t progress_ms;    /* last progress line */
};

static size_t on_response(char *bytes, size_t size, size_t count, void *user)
{
    struct load *load = user;
    sf_buf_append(&load->response, bytes, size * count);
    return load->response.overflowed ? 0 : size * count;
}

static void show_progress(struct load *load, bool last)
{
    int64_t now = sf_clock_mono_ms(sf_clock_system());
    if (load->cli->json || isatty(STDERR_FILENO) == 0 ||
        (!last && now - load->progress_ms < PROGRESS_EVERY_MS))
        return;
    load->progress_ms = now;
    uint64_t done = load->acked + load->refused;
    uint64_t total = load->file.doc_count == 0 ? 1 : load->file.doc_count;
    int filled = (int)(done * 30 / total);
    double seconds = (double)(now - load->started_ms) / 1000.0;
    fprintf(stderr, "\r[%.*s%*s] %" PRIu64 "/%zu %3" PRIu64 "%%  %.0f docs/s%s", filled,
            "##############################", 30 - filled, "", done, load->file.doc_count,
            done * 100 / total, seconds > 0 ? (double)done / seconds : 0.0, last ? "\n" : "");
    fflush(stderr);
}

static void build_request(struct load *load, size_t first, size_t count)
{
    sf_buf_clear(&load->request);
    for (size_t i = first; i < first + count; i++) {
        if (load->explicit_ids)
            sf_buf_printf(&load->request, "{\"create\":{\"_id\":\"%" PRIu64 "\"}}\n",
                          load->first_id + i);
        else
            sf_buf_append_str(&load->request, "{\"create\":{}}\n");
        sf_buf_append(&load->request, load->file.docs[i].ptr, load->file.docs[i].len);
        sf_buf_append_str(&load->request, "\n");
    }
}

/* True when the request may have run or may run later: the same bytes go out again. */
static bool worth_retrying(CURLcode code, long status)
{
    return code != CURLE_OK || status == 429 || status == 502 || status == 503 || status == 504;
}

/* Sends the present request once; returns the HTTP status, 0 without an answer. */
static long send_once(struct load *load, uint64_t number, CURLcode *out_code)
{
    char key_header[256];
    snprintf(key_header, sizeof(key_header), "Idempotency-Key: %s-%" PRIu64,
             load->cli->idempotency_key, number);
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/x-ndjson");
    headers = curl_slist_append(headers, key_header);
    headers = curl_slist_append(headers, "Expect:");
    sf_buf_clear(&load->response);
    curl_easy_setopt(load->curl, CURLOPT_URL, load->url);
    curl_easy_setopt(load->curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(load->curl, CURLOPT_POSTFIELDS, (const char *)load->request.data);
    curl_easy_setopt(load->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)load->request.len);
    curl_easy_setopt(load->curl, CURLOPT_TIMEOUT_MS, (long)load->cli->timeout_ms);
    *out_code = curl_easy_perform(load->curl);
    long status = 0;
    if (*out_code == CURLE_OK)
        curl_easy_getinfo(load->curl, CURLINFO_RESPONSE_CODE, &status);
    curl_slist_free_all(headers);
    return status;
}

/* Sends until an answer comes that is not worth a retry. Returns an exit code. */
static int send_request(struct load *load, uint64_t number)
{
    struct sf_clock *clock = sf_clock_system();
    int64_t give_up_ms = sf_clock_mono_ms(clock) + (int64_t)load->retry_seconds * 1000;
    long wait_ms = 20;
    for (;;) {
        CURLcode code = CURLE_OK;
        long status = send_once(load, number, &code);
        if (!worth_retrying(code, status)) {
            if (status == 200)
                return SF_CLI_OK;
            fprintf(stderr, "sfctl: load: HTTP %ld: %.*s\n", status,
                    (int)(load->response.len & 0xffff), (const char *)load->response.data);
            return SF_CLI_REFUSED;
        }
        if (sf_clock_mono_ms(clock) >= give_up_ms) {
            fprintf(stderr, "sfctl: load: no answer from %s: %s (HTTP %ld)\n", load->es,
                    curl_easy_strerror(code), status);
            return SF_CLI_UNAVAILABLE;
        }
        load->retries++;
        struct timespec pause = {wait_ms / 1000, (wait_ms % 1000) * 1000000};
        nanosleep(&pause, NULL);
        wait_ms = wait_ms < 100 ? wait_ms * 2 : 100;
    }
}

/* One item of a bulk answer. False when the answer is not of the documented shape. */
static bool take_item(struct load *load, size_t doc, json_t *item, bool *out_again)
{
    json_t *create = json_object_get(item, "create");
    const char *id = json_string_value(json_object_get(create, "_id"));
    json_int_t status = json_integer_value(json_object_get(create, "status"));
    if (create == NULL || status == 0)
        return false;
    if (status == 429 || status == 503) {
        *out_again = true;
        return true;
    }
    if (status == 200 || status == 201) {
        if (id == NULL)
            return false;
        load->acked++;
        if (load->ack_log != NULL)
            fprintf(load->ack_log, "%zu\t%s\n", doc, id);
        return true;
    }
    const char *reason =
        json_string_value(json_object_get(json_object_get(create, "error"), "reason"));
    if (load->refused++ < 10)
        fprintf(stderr, "sfctl: load: document %zu refused, status %d: %s\n", doc + 1, (int)status,
                reason == NULL ? "" : reason);
    return true;
}

/* Reads the answer for documents first..first+count-1. */
static int take_response(struct load *load, size_t first, size_t count, bool *out_again)
{
    json_error_t error;
    json_t *root = json_loadb((const char *)load->response.data, load->response.len, 0, &error);
    json_t *items = json_object_get(root, "items");
    bool ok = json_is_array(items) && json_array_size(items) == count;
    uint64_t acked = load->acked;
    uint64_t refused = load->refused;
    for (size_t i = 0; ok && i < count; i++)
        ok = take_item(load, first + i, json_array_get(items, i), out_again);
    json_decref(root);
    if (*out_again) {
        load->acked = acked;
        load->refused = refused;
    }
    if (!ok) {
        fprintf(stderr, "sfctl: load: the answer is not that of a bulk request\n");
        return SF_CLI_DATA;
    }
    if (load->ack_log != NULL && fflush(load->ack_log) != 0)
        return SF_CLI_DATA;
    return SF_CLI_OK;
}

static int run_requests(struct load *load)
{
    uint64_t number = 0;
    for (size_t first = 0; first < load->file.doc_count; number++) {
        size_t left = load->file.doc_count - first;
        size_t count = left < load->batch ? left : (size_t)load->batch;
        build_request(load, first, count);
        if (left == count && load->refresh != NULL) {
            load->url = sf_arena_printf(load->cli->arena, "http://%s/%s/_bulk?refresh=%s", load->es,
                                        load->index, load->refresh);
        }
        bool again = true;
        for (unsigned tries = 0; again; tries++) {
            again = false;
            int exit_code = send_request(load, number);
            if (exit_code == SF_CLI_OK)
                exit_code = take_response(load, first, count, &again);
            if (exit_code != SF_CLI_OK)
                return exit_code;
            if (again && tries >= load->retry_seconds * 10)
                return SF_CLI_UNAVAILABLE;
            struct timespec pause = {0, again ? 100000000 : 0};
            nanosleep(&pause, NULL);
        }
        first += count;
        show_progress(load, first == load->file.doc_count);
    }
    return SF_CLI_OK;
}

static void print_summary(const struct load *load)
{
    int64_t ms = sf_clock_mono_ms(sf_clock_system()) - load->started_ms;
    double seconds = (double)(ms < 1 ? 1 : ms) / 1000.0;
    if (load->cli->json)
        printf("{\"documents\":%zu,\"acknowledged\":%" PRIu64 ",\"refused\":%" PRIu64
               ",\"retries\":%" PRIu64
               ",\"seconds\":%.3f,\"documents_per_second\":%.0f,\"idempotency_key\":\"%s\"}\n",
               load->file.doc_count, load->acked, load->refused, load->retries, seconds,
               (double)load->acked / seconds, load->cli->idempotency_key);
    else
        printf("%" PRIu64 " of %zu documents acknowledged, %" PRIu64 " refused, %" PRIu64
               " retries, %.2f s, %.0f documents/s\nrepeat safely with: --key %s\n",
               load->acked, load->file.doc_count, load->refused, load->retries, seconds,
               (double)load->acked / seconds, load->cli->idempotency_key);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct load *load = state->input;
    switch (key) {
    case 'i':
        load->index = arg;
        return 0;
    case 'e':
        load->es = arg;
        return 0;
    case 'b':
        if (!sf_parse_u64(sf_view_str(arg), &load->batch) || load->batch == 0 ||
            load->batch > 10000)
            argp_error(state, "--batch wants 1 to 10000");
        return 0;
    case 'f':
        load->explicit_ids = true;
        if (!sf_parse_u64(sf_view_str(arg), &load->first_id))
            argp_error(state, "--first-id wants a decimal id");
        return 0;
    case 'r':
        if (!sf_parse_u64(sf_view_str(arg), &load->retry_seconds))
            argp_error(state, "--retry-seconds wants a number");
        return 0;
    case 'a':
        load->ack_log_path = arg;
        return 0;
    case 'w':
        load->refresh = "wait_for";
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 0)
            return ARGP_ERR_UNKNOWN;
        load->path = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int open_all(struct load *load)
{
    struct sf_cli *cli = load->cli;
    if (cli->idempotency_key == NULL) {
        uint8_t bytes[16];
        sf_random_bytes(bytes, sizeof(bytes));
        sf_hex_encode(bytes, sizeof(bytes), cli->random_key);
        cli->idempotency_key = cli->random_key;
    }
    if (sf_load_file_open(load->path, &cli->diag, &load->file) != SF_OK) {
        (void)sf_cli_fail(cli, "load");
        return SF_CLI_USAGE;
    }
    if (load->ack_log_path != NULL && (load->ack_log = fopen(load->ack_log_path, "we")) == NULL)
        return sf_cli_usage("cannot write %s", load->ack_log_path);
    load->curl = curl_easy_init();
    SF_ASSERT(load->curl != NULL);
    load->url = sf_arena_printf(load->cli->arena, "http://%s/%s/_bulk", load->es, load->index);
    curl_easy_setopt(load->curl, CURLOPT_WRITEFUNCTION, on_response);
    curl_easy_setopt(load->curl, CURLOPT_WRITEDATA, load);
    curl_easy_setopt(load->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(load->curl, CURLOPT_NOPROXY, "*");
    load->response.max_bytes = RESPONSE_MAX_BYTES;
    load->started_ms = sf_clock_mono_ms(sf_clock_system());
    return SF_CLI_OK;
}

int sf_cli_load(struct sf_cli *cli, int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"index", 'i', "NAME", 0, "index to load into (required)", 0},
        {"es", 'e', "HOST:PORT", 0, "Elasticsearch port of the server (default 127.0.0.1:9200)", 0},
        {"batch", 'b', "N", 0, "documents a request (default 500)", 0},
        {"first-id", 'f', "ID", 0, "give document n the explicit id ID+n; default: ids are issued",
         0},
        {"retry-seconds", 'r', "S", 0, "keep sending a request that gets no answer (default 30)",
         0},
        {"ack-log", 'a', "FILE", 0,
         "write 'document number, tab, id' for each acknowledged document", 0},
        {"wait", 'w', NULL, 0, "the last request waits until its documents are visible", 0},
        {0}};
    static const struct argp argp = {
        options,
        parse,
        "FILE.ndjson",
        "Loads one JSON document a line. Documents are kept byte for byte. With --key a "
        "repeated load of the same file doubles nothing.",
        NULL,
        NULL,
        NULL};
    struct load load = {.cli = cli, .es = "127.0.0.1:9200", .batch = 500, .retry_seconds = 30};
    if (argp_parse(&argp, argc, argv, 0, NULL, &load) != 0 || load.path == NULL ||
        load.index == NULL)
        return sf_cli_usage("load wants FILE.ndjson and --index NAME");
    int exit_code = open_all(&load);
    if (exit_code == SF_CLI_OK) {
        exit_code = run_requests(&load);
        print_summary(&load);
    }
    if (exit_code == SF_CLI_OK && load.refused > 0)
        exit_code = SF_CLI_DATA;
    if (load.ack_log != NULL && fclose(load.ack_log) != 0)
        exit_code = SF_CLI_DATA;
    curl_easy_cleanup(load.curl);
    sf_buf_fini(&load.request);
    sf_buf_fini(&load.response);
    sf_load_file_close(&load.file);
    return exit_code;
}
