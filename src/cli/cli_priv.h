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

/* What every command gets. Filled by main, one per process. */
struct sf_cli {
    const char *host;             /* server, default 127.0.0.1 */
    uint16_t port;                /* gRPC port, default 7400 */
    const char *client_id;        /* RequestMeta.client_id, default "sfctl" */
    const char *idempotency_key;  /* --key; NULL = a random one */
    int64_t timeout_ms;           /* of one call, default 10000 */
    bool json;                    /* --json: one JSON value (or one a line) instead of tables */
    struct sf_arena *arena;       /* lives as long as the process */
    struct sf_reactors *reactors; /* NULL until connected */
    struct sf_channel *channel;   /* NULL until connected */
    struct sf_diag diag;          /* of the last call */
    char random_key[33];          /* the key that was made up, hex */
};

/* One command word with its actions. */
struct sf_cli_command {
    const char *name;    /* "namespace" */
    const char *summary; /* one line for the overview */
    int (*run)(struct sf_cli *cli, int argc,
               char **argv); /* argv[0] is the command word; returns an exit code */
};

int sf_cli_namespace(struct sf_cli *cli, int argc, char **argv);
int sf_cli_collection(struct sf_cli *cli, int argc, char **argv);
int sf_cli_schema(struct sf_cli *cli, int argc, char **argv);
int sf_cli_alloc(struct sf_cli *cli, int argc, char **argv);
int sf_cli_alloc_restore(struct sf_cli *cli, int argc,
                         char **argv); /* argv[0]: restore-mark, verify */
int sf_cli_load(struct sf_cli *cli, int argc, char **argv);
int sf_cli_rows(struct sf_cli *cli, int argc, char **argv);
int sf_cli_status(struct sf_cli *cli, int argc, char **argv);
int sf_cli_object(struct sf_cli *cli, int argc, char **argv);
int sf_cli_store(struct sf_cli *cli, int argc, char **argv);

/* Opens the channel on first use. On error prints it and returns an exit code other than SF_CLI_OK.
 */
SF_MUST_USE int sf_cli_connect(struct sf_cli *cli);

/* One unary call; the response lives in cli->arena. On error prints code, message and details to
 * stderr and returns SF_CLI_REFUSED or SF_CLI_UNAVAILABLE. */
SF_MUST_USE int sf_cli_call(struct sf_cli *cli, const char *method, const ProtobufCMessage *request,
                            const ProtobufCMessage **out_response);

/* Prints the diag of a failed step to stderr ("sfctl: what: CODE message (key=value ...)"); returns
 * its exit code. */
int sf_cli_fail(struct sf_cli *cli, const char *what);

/* RequestMeta for a mutation (with the idempotency key) or, `mutation` false, a read. Lives in the
 * arena. */
Searchfabric__V1__RequestMeta *sf_cli_meta(struct sf_cli *cli, Searchfabric__V1__ClientKind kind,
                                           bool mutation);

/* Resolves a namespace name. */
SF_MUST_USE int sf_cli_resolve_namespace(struct sf_cli *cli, const char *name,
                                         uint64_t *out_namespace_id);

/* Resolves "NAMESPACE/COLLECTION" to its stable reference. */
SF_MUST_USE int sf_cli_resolve_collection(struct sf_cli *cli, const char *path,
                                          struct sf_collection_ref *out_ref);

/* Splits "NAMESPACE/COLLECTION" at the first slash; copies to the arena. False (usage printed) when
 * malformed. */
bool sf_cli_split_path(struct sf_cli *cli, const char *path, const char **out_namespace,
                       const char **out_collection);

/* Prints a message as canonical JSON and a line end on stdout. */
void sf_cli_print_json(const ProtobufCMessage *message);

/* Prints a message as indented JSON on stdout. */
void sf_cli_print_pretty(const ProtobufCMessage *message);

/* A table that aligns its columns: sf_cli_table_begin(titles...), rows, end. All cells are copied.
 */
struct sf_cli_table {
    char **cells;      /* owned; rows * columns */
    size_t columns;    /* per row */
    size_t cell_count; /* cells in use */
};
void sf_cli_table_begin(struct sf_cli_table *table, size_t columns, const char *const *titles);
void sf_cli_table_row(struct sf_cli_table *table, const char *const *cells);
/* Prints to stdout and frees. */
void sf_cli_table_end(struct sf_cli_table *table);

/* "2026-11-30 15:04:05.123Z" in out (at least 32 bytes). */
void sf_cli_format_unix_ms(int64_t unix_ms, char *out);

/* Prints "sfctl: ..." to stderr and returns SF_CLI_USAGE. */
int sf_cli_usage(const char *fmt, ...) SF_PRINTF(1, 2);

/* A read-only object store over the server's operations service (get, ranged get, list). Destroy
 * with sf_store_destroy. `channel` outlives it. */
struct sf_store *sf_cli_remote_store_new(struct sf_channel *channel, int64_t timeout_ms);

#endif
