/* Calls of the catalog over gRPC by many clients: closed loops, or a given rate. */
#ifndef SF_BENCH_CATALOG_LOAD_H
#define SF_BENCH_CATALOG_LOAD_H

#include <sys/types.h>

#include "exec/reactor.h"
#include "rpc/channel.h"
#include "searchfabric/v1/search_fabric.pb-c.h"

/* What the clients call. */
enum bench_call {
    BENCH_CREATE,   /* PutCollectionMetadata of a new name */
    BENCH_UPDATE,   /* PutCollectionMetadata of a known name, other options */
    BENCH_SCHEMA,   /* PutCollectionSchema, the first generation */
    BENCH_DROP,     /* DropCollection */
    BENCH_GET_REF,  /* GetCollectionMetadata by ref */
    BENCH_GET_NAME, /* GetCollectionMetadata by name */
    BENCH_LIST,     /* ListCollections below a prefix, one page of 100 */
    BENCH_LEASE,    /* AcquireQuotaLease of `units` of query_rcu */
    BENCH_CALL_COUNT
};

/* One run. */
struct bench_load {
    enum bench_call call;
    unsigned clients;           /* calls in flight; 0: as many as `rate` needs */
    double rate;                /* calls a second, 0 = closed loops */
    size_t calls;               /* all in all */
    int64_t most_ms;            /* ends earlier after so long, 0 = never */
    const uint64_t *namespaces; /* spread over these */
    size_t namespace_count;     /* >= 1 */
    uint64_t *ids;              /* of the collections: written by CREATE, read by others */
    size_t first;               /* number of the first name */
    size_t known;               /* names that reads spread over, from `first` */
    uint64_t units;             /* of a lease, 0 = 1 */
    const char *round;          /* in the keys, so that they are new */
};

/* What it came to. */
struct bench_load_result {
    size_t done;    /* calls answered */
    size_t failed;  /* of them with an error */
    size_t refused; /* by an error that the build does not serve the method */
    double seconds;
    double cpu_us;           /* of the server, a call */
    uint32_t p50_us, p99_us; /* latency, from the moment a call was started */
    uint32_t late_p99_us;    /* with a rate: the start after the moment it was due; the driver's */
};

struct bench_driver;

/* A driver with some connections to a node's port. */
struct bench_driver *bench_driver_new(uint16_t port, unsigned connections);
void bench_driver_destroy(struct bench_driver *driver);

/* Runs; `server` is whose CPU time counts. */
void bench_load_run(struct bench_driver *driver, const struct bench_load *load, pid_t server,
                    struct bench_load_result *out_result);

/* Name of collection number `n`. */
void bench_name(size_t n, char out[32]);

/* Makes a namespace; its id. */
uint64_t bench_namespace(struct bench_driver *driver, const char *name);

/* One call by full method name; false with the error when it was refused. `arena` takes the
 * answer. */
bool bench_call_wait(struct bench_driver *driver, const char *method,
                     const ProtobufCMessage *request, struct sf_arena *arena,
                     const ProtobufCMessage **out_response, struct sf_diag *diag);

#endif
