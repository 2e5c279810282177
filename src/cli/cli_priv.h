/*
 * sfctl inside: one struct for the connection and the options that all commands share, the table of
 * commands, and output helpers. A command parses its own arguments, calls the server, prints, and
 * returns an exit code.
 */
#ifndef SF_CLI_CLI_PRIV_H
#define SF_CLI_CLI_PRIV_H

#include <argp.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/diag.h"
#include "base/ids.h"
#include "base/limits.h"
#include "exec/reactor.h"
#include "object/store.h"
#include "rpc/channel.h"
#include "searchfabric/v1/search_fabric.pb-c.h"

/* Exit codes; documented in docs/operations/sfctl.md. */
enum sf_cli_exit {
    SF_CLI_OK = 0,          /* done */
    SF_CLI_REFUSED = 1,     /* the server refused: the SF_* code is on stderr */
    SF_CLI_USAGE = 2,       /* wrong arguments; nothing was sent */
    SF_CLI_UNAVAILABLE = 3, /* no answer or a retryable error: try again */
    SF_CLI_DATA = 4         /* data read back does not verify, or some documents were refused */
};

#define SF_CLI_TIMEOUT_MS 10000  /* of a call, unless --timeout says otherwise */
#define SF_CLI_PATIENT_MS 600000 /* of one that goes through the whole catalog */

/* What every command gets. Filled by main, one per process. */
struct sf_cli {
    const char *host;             /* server, default 127.0.0.1 */
    uint16_t port;                /* gRPC port, default 7400 */
    const char *client_id;        /* RequestMeta.client_id, default "sfctl" */
    const char *idempotency_key;  /* --key; NULL = a random one */
    int64_t timeout_ms;           /* of one call; SF_CLI_TIMEOUT_MS unless given */
    bool timeout_given;           /* --timeout was */
    bool json;                    /* --json: one JSON value (or one a line) instead of tables */
    struct sf_arena *arena;       /* lives as long as the process */
    struct sf_reactors *reactors; /* NULL until connected */
    struct sf_channel *channel;   /* NULL until connected */
    struct sf_diag diag;          /* of the last call */
    char random_key[33];          /* the key that was made up, hex */
};

/* One command word with its actions. */
struct sf_cli_command {
    const char *name;                                      /* "namespace" */
    const char *summary;                                   /* one line for the overview */
    int (*run)(struct sf_cli *cli, int argc, char **argv); /* returns an exit code */
};

/* The commands. argv[0] is the command as usage texts show it ("sfctl namespace"). Each prints its
 * result or its error and returns an exit code; --help ends the process. */
int sf_cli_namespace(struct sf_cli *cli, int argc, char **argv);
int sf_cli_collection(struct sf_cli *cli, int argc, char **argv);
int sf_cli_schema(struct sf_cli *cli, int argc, char **argv);
int sf_cli_catalog(struct sf_cli *cli, int argc, char **argv);
int sf_cli_alloc(struct sf_cli *cli, int argc, char **argv);
/* `alloc restore-mark` (verify false) and `alloc verify`. */
int sf_cli_alloc_restore(struct sf_cli *cli, bool verify, int argc, char **argv);
/* `alloc rebuild`. */
int sf_cli_alloc_rebuild(struct sf_cli *cli, int argc, char **argv);
/* `alloc explain`. */
int sf_cli_alloc_explain(struct sf_cli *cli, int argc, char **argv);
/* `alloc gc`, `alloc export rebuild`. */
int sf_cli_alloc_gc(struct sf_cli *cli, int argc, char **argv);
int sf_cli_alloc_export(struct sf_cli *cli, int argc, char **argv);
int sf_cli_load(struct sf_cli *cli, int argc, char **argv);
int sf_cli_rows(struct sf_cli *cli, int argc, char **argv);
int sf_cli_manifest(struct sf_cli *cli, int argc, char **argv);
int sf_cli_status(struct sf_cli *cli, int argc, char **argv);
int sf_cli_object(struct sf_cli *cli, int argc, char **argv);
int sf_cli_checkpoint(struct sf_cli *cli, int argc, char **argv);
int sf_cli_gc(struct sf_cli *cli, int argc, char **argv);
int sf_cli_fsck(struct sf_cli *cli, int argc, char **argv);
int sf_cli_quota(struct sf_cli *cli, int argc, char **argv);
int sf_cli_replay(struct sf_cli *cli, int argc, char **argv);
int sf_cli_stats(struct sf_cli *cli, int argc, char **argv);
int sf_cli_store(struct sf_cli *cli, int argc, char **argv);
int sf_cli_projection(struct sf_cli *cli, int argc, char **argv);

/* ---- command line ---- */

/* Flags that several commands have: a letter and a long name that mean the same thing in all of
 * them. A flag of one command alone has no letter; its keys count from SF_CLI_FLAG_OWN. */
enum sf_cli_flag {
    SF_CLI_FLAG_LIMIT = 'l',     /* --limit N, from 1: at most so many entries */
    SF_CLI_FLAG_DRY_RUN = 'n',   /* --dry-run: tell and change nothing */
    SF_CLI_FLAG_NAMESPACE = 'N', /* --namespace NAME|ID */
    SF_CLI_FLAG_PREFIX = 'p',    /* --prefix TEXT */
    SF_CLI_FLAG_RAW = 'r',       /* --raw: bytes as they are stored */
    SF_CLI_FLAG_OWN = 256        /* first key of a command's own flags */
};

/* Their rows of an option table; `text` says what the flag does in that command. */
#define SF_CLI_OPTION_LIMIT(text)                                                                  \
    {                                                                                              \
        "limit", SF_CLI_FLAG_LIMIT, "N", 0, (text), 0                                              \
    }
#define SF_CLI_OPTION_DRY_RUN(text)                                                                \
    {                                                                                              \
        "dry-run", SF_CLI_FLAG_DRY_RUN, NULL, 0, (text), 0                                         \
    }
#define SF_CLI_OPTION_NAMESPACE(text)                                                              \
    {                                                                                              \
        "namespace", SF_CLI_FLAG_NAMESPACE, "NAME|ID", 0, (text), 0                                \
    }
#define SF_CLI_OPTION_PREFIX(text)                                                                 \
    {                                                                                              \
        "prefix", SF_CLI_FLAG_PREFIX, "TEXT", 0, (text), 0                                         \
    }
#define SF_CLI_OPTION_RAW(text)                                                                    \
    {                                                                                              \
        "raw", SF_CLI_FLAG_RAW, NULL, 0, (text), 0                                                 \
    }

/* Reads the number of --limit, 1 to UINT32_MAX; anything else ends the process with the usage. */
uint32_t sf_cli_take_limit(const char *arg, const struct argp_state *state);

/* Which entries a list shows; `limit` counts down as they are shown. */
struct sf_cli_list {
    const char *prefix; /* of names, "" = all */
    uint32_t limit;     /* how many more, UINT32_MAX = all */
};

/* Page size to ask for, 0 = the server's own: no more than is shown. */
uint32_t sf_cli_page_size(const struct sf_cli_list *list);

/* For a list's parser: takes --prefix and --limit. True when `key` was one of them. */
bool sf_cli_take_list(struct sf_cli_list *list, int key, const char *arg,
                      const struct argp_state *state);

/* Longest --key: `load` appends "-" and a request number, and the sum must stay an idempotency key.
 */
#define SF_CLI_KEY_MAX_SCALARS (SF_LIMIT_IDEMPOTENCY_KEY_SCALARS - 21)

/* Reads "HOST:PORT" (an IPv6 host in brackets) into cli->host and cli->port. False when malformed;
 * nothing is changed then. */
bool sf_cli_parse_server(struct sf_cli *cli, const char *text);

/* True when `key` is fit for an idempotency key of every command: 1 to SF_CLI_KEY_MAX_SCALARS
 * characters of UTF-8 without control characters (it travels in an HTTP header, too). False: the
 * reason is in `diag`. */
bool sf_cli_check_key(struct sf_diag *diag, const char *key);

/* For ARGP_KEY_ARG: stores word number state->arg_num in `words`; ARGP_ERR_UNKNOWN past `capacity`,
 * which argp reports as too many arguments. */
error_t sf_cli_take_word(const char **words, size_t capacity, const char *arg,
                         const struct argp_state *state);

/* Parses "NAMESPACE_ID/COLLECTION_ID"; false when it is no such text, NULL included. */
bool sf_cli_parse_ref(const char *text, struct sf_collection_ref *out_ref);

/* Attempt ids of a tool that writes objects itself. */
struct sf_attempts;
void sf_cli_attempts_init(struct sf_attempts *attempts);

/* True when `dir` is a folder that holds an entry `name`. Commands that open a store by its folder
 * ask first: opening one makes what is not there. */
bool sf_cli_dir_has(const char *dir, const char *name);

/* Prints "sfctl: ..." to stderr and returns SF_CLI_USAGE. */
int sf_cli_usage(const char *fmt, ...) SF_PRINTF(1, 2);

/* ---- calls ---- */

/* Method prefix of the public catalog, and the client kind that an operator's calls carry. */
#define SF_CLI_CATALOG    "/searchfabric.v1.CatalogControlService/"
#define SF_CLI_KIND_ADMIN SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_CONTROL_ADMIN

/* Opens the channel on first use. On error prints it and returns an exit code other than SF_CLI_OK.
 */
SF_MUST_USE int sf_cli_connect(struct sf_cli *cli);

/* One unary call; the response lives in cli->arena. On error prints code, message and details to
 * stderr (`what` names the thing asked about, NULL = the method's name) and returns SF_CLI_REFUSED,
 * SF_CLI_UNAVAILABLE or SF_CLI_DATA. */
SF_MUST_USE int sf_cli_call(struct sf_cli *cli, const char *what, const char *method,
                            const ProtobufCMessage *request, const ProtobufCMessage **out_response);

/* Prints the diag of a failed step to stderr ("sfctl: what: CODE message (key=value ...)") and,
 * when a retry is worth it and the key was made up here, the key to retry with; returns the exit
 * code: SF_CLI_UNAVAILABLE when the error may pass, SF_CLI_DATA when stored bytes do not verify,
 * else SF_CLI_REFUSED. */
int sf_cli_fail(struct sf_cli *cli, const char *what);

/* The idempotency key of this run: --key, or a random one made on first use. */
const char *sf_cli_key(struct sf_cli *cli);

/* RequestMeta for a mutation (with the idempotency key) or, `mutation` false, a read. Lives in the
 * arena. */
Searchfabric__V1__RequestMeta *sf_cli_meta(struct sf_cli *cli, Searchfabric__V1__ClientKind kind,
                                           bool mutation);

/* The encryption that sfctl creates things with: provider managed. Lives in the arena. */
Searchfabric__V1__EncryptionPolicy *sf_cli_encryption(struct sf_cli *cli);

/* A reference as a message. Lives in the arena. */
Searchfabric__V1__CollectionRef *sf_cli_collection_ref(struct sf_cli *cli,
                                                       struct sf_collection_ref ref);

/* Reads a namespace by name, or by its id in digits; prints the error and returns its exit code
 * when there is none. The descriptor lives in the arena. */
SF_MUST_USE int sf_cli_get_namespace(struct sf_cli *cli, const char *name_or_id,
                                     const Searchfabric__V1__NamespaceDescriptor **out_descriptor);

/* Lifecycle actions (cmd_lineage.c): each prints its result and returns an exit code. A namespace
 * is named, or given by its id in digits; what is tombstoned is found too. `token` NULL:
 * unconditional.
 */
int sf_cli_namespace_show(struct sf_cli *cli, const char *name_or_id);
int sf_cli_namespace_transition(struct sf_cli *cli, const char *name_or_id, const char *state);
int sf_cli_collection_show(struct sf_cli *cli, const char *path);
int sf_cli_collection_drop(struct sf_cli *cli, const char *path, const char *token);

/* Gives a call that goes through the whole catalog SF_CLI_PATIENT_MS, unless --timeout was given.
 */
void sf_cli_patient(struct sf_cli *cli);

/* Id of a namespace, tombstoned ones included. */
SF_MUST_USE int sf_cli_namespace_id(struct sf_cli *cli, const char *name_or_id, uint64_t *out_id);

/* Identity of "NAMESPACE/COLLECTION" (the namespace by name or id), dropped ones included. */
SF_MUST_USE int sf_cli_lineage_ref(struct sf_cli *cli, const char *path,
                                   struct sf_collection_ref *out_ref);

/* Splits "NAMESPACE/COLLECTION", resolves the namespace and fills the binding (strings in the
 * arena). SF_CLI_USAGE when malformed. */
SF_MUST_USE int sf_cli_bind_name(struct sf_cli *cli, const char *path,
                                 Searchfabric__V1__CollectionNameBinding *out_binding);

/* Reads a collection by "NAMESPACE/COLLECTION". The descriptor lives in the arena. */
SF_MUST_USE int
sf_cli_get_collection(struct sf_cli *cli, const char *path,
                      const Searchfabric__V1__CollectionDescriptor **out_descriptor);

/* Resolves "NAMESPACE/COLLECTION" to its stable reference. */
SF_MUST_USE int sf_cli_resolve_collection(struct sf_cli *cli, const char *path,
                                          struct sf_collection_ref *out_ref);

/* Called for each collection of a list; an exit code other than SF_CLI_OK ends it. */
typedef int (*sf_cli_collection_fn)(void *user,
                                    const Searchfabric__V1__CollectionDescriptor *descriptor);

/* Reads a namespace's collections page by page, as `list` wants them. Returns the first exit code
 * that is not SF_CLI_OK. */
SF_MUST_USE int sf_cli_each_collection(struct sf_cli *cli, const char *namespace_name,
                                       struct sf_cli_list *list, sf_cli_collection_fn each,
                                       void *user);

/* ---- output ---- */

/* Prints a message as canonical JSON and a line end on stdout. */
void sf_cli_print_json(const ProtobufCMessage *message);

/* Prints a message as indented JSON on stdout. */
void sf_cli_print_pretty(const ProtobufCMessage *message);

/* One JSON object in one line, for what is no message of the contract: begin, members, end.
 * Integers that may pass 2^53 are decimal strings, as in the contract's JSON. */
struct sf_cli_json {
    struct sf_buf text; /* owned; the object so far */
};
void sf_cli_json_begin(struct sf_cli_json *json);
/* Member of text; bytes that are not UTF-8 are replaced by U+FFFD. NULL prints null. */
void sf_cli_json_str(struct sf_cli_json *json, const char *name, const char *value);
void sf_cli_json_view(struct sf_cli_json *json, const char *name, struct sf_view value);
/* uint64 as a decimal string. */
void sf_cli_json_u64(struct sf_cli_json *json, const char *name, uint64_t value);
/* A JSON number with `decimals` digits behind the point. */
void sf_cli_json_number(struct sf_cli_json *json, const char *name, double value, int decimals);
void sf_cli_json_bool(struct sf_cli_json *json, const char *name, bool value);
/* Bytes as they are: member "NAME" with the value itself when they are JSON in one line, else
 * member "NAME_hex" with their hex digits. */
void sf_cli_json_bytes(struct sf_cli_json *json, const char *name, struct sf_view bytes);
/* Prints the object and a line end to `out`; frees. */
void sf_cli_json_end(struct sf_cli_json *json, FILE *out);

/* A table that aligns its columns: sf_cli_table_begin(titles...), rows, end. All cells are copied.
 */
struct sf_cli_table {
    char **cells;      /* owned; rows * columns */
    size_t columns;    /* per row */
    size_t cell_count; /* cells in use */
};
void sf_cli_table_begin(struct sf_cli_table *table, size_t columns, const char *const *titles);
/* Adds a row; a NULL or empty cell prints as "-". */
void sf_cli_table_row(struct sf_cli_table *table, const char *const *cells);
/* Prints to `out` (NULL: nothing, after an error) and frees; fine for a zeroed table. */
void sf_cli_table_end(struct sf_cli_table *table, FILE *out);

/* "2026-11-30T15:04:05.123Z" in out (at least 32 bytes). */
void sf_cli_format_unix_ms(int64_t unix_ms, char *out);

/* Length of the longest prefix of `text` of at most `max_bytes` that ends on a character's edge. */
size_t sf_cli_cut(struct sf_view text, size_t max_bytes);

/* Prints text for people: control bytes as '?', so that no document drives the terminal. */
void sf_cli_print_text(struct sf_view text, FILE *out);

/* A read-only object store over the server's operations service (get, ranged get, list), for a
 * connected `cli`, which outlives it. A failed request leaves what the server said in cli->diag.
 * Destroy with sf_store_destroy. */
struct sf_store *sf_cli_remote_store_new(struct sf_cli *cli);

#endif
