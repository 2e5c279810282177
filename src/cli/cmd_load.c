/*
 * `sfctl load FILE.ndjson --index NAME`: bulk load through the Elasticsearch port. The file is cut
 * into requests of --batch documents; request n carries the Idempotency-Key `{key}-{n}`, so that a
 * request which got no answer is sent again, byte for byte, until --retry-seconds have passed
 * without one, and no document is ever doubled. Requests go out one after another on one
 * connection: explicit ids of a collection must ascend.
 */
#include "cli/cli_priv.h"

#include <curl/curl.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/load_file.h"

#define RESPONSE_MAX_BYTES ((size_t)256 << 20)
#define PROGRESS_EVERY_MS  100
#define BATCH_MAX          10000
#define RETRY_MAX_S        86400
#define REFUSALS_SHOWN     10 /* refused documents that get a line each */
#define AGAIN_PAUSE_MS     100

/* One load. */
struct load {
    struct sf_cli *cli;       /* key, timeout, arena */
    const char *path;         /* NDJSON file */
    const char *index;        /* index name */
    const char *es;           /* HOST:PORT of the Elasticsearch port */
    const char *ack_log_path; /* --ack-log, NULL = none */
    const char *refresh;      /* refresh parameter of the last request, NULL = none */
    FILE *ack_log;            /* a line per acknowledged document: its number from 0, tab, id */
    uint64_t batch;           /* documents a request */
    bool explicit_ids;        /* --first-id was given */
    uint64_t first_id;        /* id of the first document */
    uint64_t retry_seconds;   /* without an answer before giving up */
    struct sf_load_file file; /* its documents */
    CURL *curl;               /* one connection, kept */
    char *url;                /* in cli->arena */
    struct sf_buf request;    /* body under way */
    struct sf_buf response;   /* its answer */
    uint64_t acked;           /* documents acknowledged */
    uint64_t refused;         /* documents refused */
    uint64_t retries;         /* requests sent again */
    bool key_taken;           /* an answer said that the key stands for other documents */
    int64_t started_ms;       /* monotonic */
    int64_t progress_ms;      /* last progress line */
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
    if (code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL)
        return false;
    return code != CURLE_OK || status == 429 || status == 502 || status == 503 || status == 504;
}

static void pause_ms(long ms)
{
    struct timespec pause = {ms / 1000, (ms % 1000) * 1000000};

    (void)nanosleep(&pause, NULL);
}

/* Sends the present request once; returns the HTTP status, 0 without an answer. */
static long send_once(struct load *load, uint64_t number, CURLcode *out_code)
{
    struct sf_buf key_header = {0};
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/x-ndjson");

    sf_buf_printf(&key_header, "Idempotency-Key: %s-%" PRIu64, sf_cli_key(load->cli), number);
    sf_buf_append(&key_header, "", 1);
    headers = curl_slist_append(headers, (const char *)key_header.data);
    sf_buf_fini(&key_header);
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

/* The exit code of a request that is not sent again; prints its error. */
static int take_status(const struct load *load, CURLcode code, long status)
{
    if (code != CURLE_OK)
        return sf_cli_usage("--es %s: %s", load->es, curl_easy_strerror(code));
    if (status == 200)
        return SF_CLI_OK;
    fprintf(stderr, "sfctl: load: HTTP %ld: ", status);
    sf_cli_print_text(sf_buf_view(&load->response), stderr);
    fputc('\n', stderr);
    return SF_CLI_REFUSED;
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
        if (!worth_retrying(code, status))
            return take_status(load, code, status);
        if (sf_clock_mono_ms(clock) >= give_up_ms) {
            fprintf(stderr, "sfctl: load: no answer from %s for %" PRIu64 " s: ", load->es,
                    load->retry_seconds);
            if (code == CURLE_OK)
                fprintf(stderr, "HTTP %ld\n", status);
            else
                fprintf(stderr, "%s\n", curl_easy_strerror(code));
            return SF_CLI_UNAVAILABLE;
        }
        load->retries++;
        pause_ms(wait_ms);
        wait_ms = wait_ms < 100 ? wait_ms * 2 : 100;
    }
}

/* One item of a bulk answer, that of document number `doc`. False when the answer is not of the
 * documented shape. */
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
    if (reason != NULL && strstr(reason, sf_err_info(SF_IDEMPOTENCY_CONFLICT)->code) != NULL)
        load->key_taken = true;
    if (load->refused++ < REFUSALS_SHOWN)
        fprintf(stderr, "sfctl: load: document %zu refused, status %d: %s\n", doc, (int)status,
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

/* Sends documents first..first+count-1 as request `number` until each has its answer. */
static int run_request(struct load *load, uint64_t number, size_t first, size_t count)
{
    bool again = true;

    build_request(load, first, count);
    for (uint64_t tries = 0; again; tries++) {
        if (tries > 0)
            pause_ms(AGAIN_PAUSE_MS);
        again = false;
        int exit_code = send_request(load, number);
        if (exit_code == SF_CLI_OK)
            exit_code = take_response(load, first, count, &again);
        if (exit_code != SF_CLI_OK)
            return exit_code;
        if (load->key_taken) {
            fprintf(stderr,
                    "sfctl: load: stopped at document %zu: key %s stands for another file, "
                    "--batch or --first-id\n",
                    first, sf_cli_key(load->cli));
            return SF_CLI_REFUSED;
        }
        if (again && tries * AGAIN_PAUSE_MS >= load->retry_seconds * 1000) {
            fprintf(stderr,
                    "sfctl: load: request %" PRIu64 " is still held back after %" PRIu64
                    " s (429 or 503)\n",
                    number, load->retry_seconds);
            return SF_CLI_UNAVAILABLE;
        }
    }
    return SF_CLI_OK;
}

/* The address of the bulk call; `refresh` NULL = none. */
static char *make_url(const struct load *load, const char *refresh)
{
    char *index = curl_easy_escape(load->curl, load->index, 0);

    SF_ASSERT(index != NULL);
    char *url = sf_arena_printf(load->cli->arena, "http://%s/%s/_bulk%s%s", load->es, index,
                                refresh == NULL ? "" : "?refresh=", refresh == NULL ? "" : refresh);
    curl_free(index);
    SF_ASSERT(url != NULL);
    return url;
}

static int run_requests(struct load *load)
{
    uint64_t number = 0;

    for (size_t first = 0; first < load->file.doc_count; number++) {
        size_t left = load->file.doc_count - first;
        size_t count = left < load->batch ? left : (size_t)load->batch;
        if (left == count)
            load->url = make_url(load, load->refresh);
        int exit_code = run_request(load, number, first, count);
        if (exit_code != SF_CLI_OK)
            return exit_code;
        first += count;
        show_progress(load, first == load->file.doc_count);
    }
    return SF_CLI_OK;
}

static void print_summary(const struct load *load)
{
    int64_t ms = sf_clock_mono_ms(sf_clock_system()) - load->started_ms;
    double seconds = (double)(ms < 1 ? 1 : ms) / 1000.0;
    double rate = (double)load->acked / seconds;

    if (load->cli->json) {
        struct sf_cli_json json;
        sf_cli_json_begin(&json);
        sf_cli_json_number(&json, "documents", (double)load->file.doc_count, 0);
        sf_cli_json_number(&json, "acknowledged", (double)load->acked, 0);
        sf_cli_json_number(&json, "refused", (double)load->refused, 0);
        sf_cli_json_number(&json, "retries", (double)load->retries, 0);
        sf_cli_json_number(&json, "seconds", seconds, 3);
        sf_cli_json_number(&json, "documents_per_second", rate, 0);
        sf_cli_json_str(&json, "idempotency_key", sf_cli_key(load->cli));
        sf_cli_json_end(&json, stdout);
        return;
    }
    printf("%" PRIu64 " of %zu documents acknowledged, %" PRIu64 " refused, %" PRIu64
           " retries, %.2f s, %.0f documents/s\n",
           load->acked, load->file.doc_count, load->refused, load->retries, seconds, rate);
    if (!load->key_taken)
        printf("repeat safely with: --key %s\n", sf_cli_key(load->cli));
}

enum {
    OPTION_INDEX = SF_CLI_FLAG_OWN,
    OPTION_ES,
    OPTION_BATCH,
    OPTION_FIRST_ID,
    OPTION_RETRY_SECONDS,
    OPTION_ACK_LOG,
    OPTION_WAIT
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct load *load = state->input;
    switch (key) {
    case OPTION_INDEX:
        load->index = arg;
        return 0;
    case OPTION_ES:
        load->es = arg;
        return 0;
    case OPTION_BATCH:
        if (!sf_parse_u64(sf_view_str(arg), &load->batch) || load->batch == 0 ||
            load->batch > BATCH_MAX)
            argp_error(state, "--batch wants 1 to %d", BATCH_MAX);
        return 0;
    case OPTION_FIRST_ID:
        load->explicit_ids = true;
        if (!sf_parse_u64(sf_view_str(arg), &load->first_id))
            argp_error(state, "--first-id wants a decimal id");
        return 0;
    case OPTION_RETRY_SECONDS:
        if (!sf_parse_u64(sf_view_str(arg), &load->retry_seconds) ||
            load->retry_seconds > RETRY_MAX_S)
            argp_error(state, "--retry-seconds wants a number up to %d", RETRY_MAX_S);
        return 0;
    case OPTION_ACK_LOG:
        load->ack_log_path = arg;
        return 0;
    case OPTION_WAIT:
        load->refresh = "wait_for";
        return 0;
    case ARGP_KEY_ARG:
        return sf_cli_take_word(&load->path, 1, arg, state);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int open_all(struct load *load)
{
    struct sf_cli *cli = load->cli;
    if (sf_load_file_open(load->path, &cli->diag, &load->file) != SF_OK) {
        (void)sf_cli_fail(cli, "load");
        return SF_CLI_USAGE;
    }
    if (load->explicit_ids && load->file.doc_count > 0 &&
        load->first_id > UINT64_MAX - (load->file.doc_count - 1))
        return sf_cli_usage("--first-id %" PRIu64 " leaves no room for %zu documents",
                            load->first_id, load->file.doc_count);
    if (load->ack_log_path != NULL && (load->ack_log = fopen(load->ack_log_path, "we")) == NULL)
        return sf_cli_usage("cannot write %s: %s", load->ack_log_path, strerror(errno));
    load->curl = curl_easy_init();
    SF_ASSERT(load->curl != NULL);
    load->url = make_url(load, NULL);
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
        {"index", OPTION_INDEX, "NAME", 0, "index to load into (required)", 0},
        {"es", OPTION_ES, "HOST:PORT", 0,
         "Elasticsearch port of the server (default 127.0.0.1:9200)", 0},
        {"batch", OPTION_BATCH, "N", 0, "documents a request, 1 to 10000 (default 500)", 0},
        {"first-id", OPTION_FIRST_ID, "ID", 0,
         "give document n (from 0) the explicit id ID+n; default: ids are issued", 0},
        {"retry-seconds", OPTION_RETRY_SECONDS, "S", 0,
         "keep sending a request that gets no answer (default 30)", 0},
        {"ack-log", OPTION_ACK_LOG, "FILE", 0,
         "write a line for each acknowledged document: its number from 0, tab, id", 0},
        {"wait", OPTION_WAIT, NULL, 0, "the last request waits until its documents are visible", 0},
        {0}};
    static const struct argp argp = {
        options,
        parse,
        "FILE.ndjson",
        "Loads one JSON document a line. Documents are kept byte for byte; empty lines are skipped "
        "and do not count.\v"
        "The summary names the key of the load. The same command with `sfctl --key KEY load` "
        "repeats it and doubles nothing. --batch is part of what a key means: keep it. Exit code 4 "
        "when some documents were refused; the first ten are shown.",
        NULL,
        NULL,
        NULL};
    struct load load = {.cli = cli, .es = "127.0.0.1:9200", .batch = 500, .retry_seconds = 30};
    if (argp_parse(&argp, argc, argv, 0, NULL, &load) != 0)
        return SF_CLI_USAGE;
    if (load.path == NULL || load.index == NULL)
        return sf_cli_usage("load wants FILE.ndjson and --index NAME");
    int exit_code = open_all(&load);
    if (exit_code == SF_CLI_OK) {
        exit_code = run_requests(&load);
        if (exit_code != SF_CLI_USAGE)
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
