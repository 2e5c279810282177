/* Shared by the reads of src/catalog: _read moves a read along, _fact knows what each fact is and
 * says, _list serves the lists. */
#ifndef SF_CATALOG_CATALOG_READ_H
#define SF_CATALOG_CATALOG_READ_H

#include "catalog/catalog_cache.h"
#include "catalog/catalog_rules.h"

/* What a read asks for next. */
enum sf_catalog_stage {
    SF_CATALOG_STAGE_BINDING, /* the namespace's binding revision */
    SF_CATALOG_STAGE_NAME,    /* which id the name is bound to */
    SF_CATALOG_STAGE_UNBOUND, /* the revision under which the name was found not to be bound */
    SF_CATALOG_STAGE_ANSWER   /* the answer itself */
};

/* One read on its way; small, so that it may begin on the stack. */
struct sf_catalog_reading {
    struct sf_task task;              /* on a lane: its flight, a list or a signal */
    struct sf_catalog_waiter waiter;  /* in a flight, or waiting for a look */
    struct sf_catalog *catalog;       /* immutable */
    enum sf_catalog_read_kind kind;   /* immutable */
    struct sf_call *call;             /* answered once */
    const ProtobufCMessage *request;  /* valid as long as the call */
    enum sf_catalog_stage stage;      /* what is asked for */
    uint64_t namespace_id;            /* 0 = not known yet */
    uint64_t collection_id;           /* 0 = not known yet */
    struct sf_view name;              /* of the request; empty = by id */
    uint64_t revision;                /* BINDING: what it read; UNBOUND: what the name is under */
    struct sf_catalog_flight *flight; /* that it leads */
    sf_catalog_call_fn run;           /* CALL: what it does */
};

/* Reads what the request says; false for kinds that are answered from no fact. */
bool sf_catalog_reading_init(struct sf_catalog_reading *reading);

/* The fact that the reading asks for. */
struct sf_catalog_cache_key sf_catalog_reading_key(const struct sf_catalog_reading *reading);

/* Takes the fact asked for: true when the call was answered, else the stage moved on. */
bool sf_catalog_reading_take(struct sf_catalog_reading *reading,
                             const struct sf_catalog_value *value);

/* Reads a fact in one snapshot that begins now; on the collection's lane where a convergence block
 * is part of it. Errors: SF_RESOURCE_NOT_FOUND (nothing is kept of it), SF_CATALOG_UNAVAILABLE,
 * SF_ERR_*. The value is the caller's to drop. */
enum sf_err sf_catalog_fact_load(struct sf_catalog *catalog, const struct sf_catalog_cache_key *key,
                                 struct sf_arena *arena, struct sf_diag *diag,
                                 struct sf_catalog_value **out_value);

/* Serves one page; SF_OK when the call was answered. */
enum sf_err sf_catalog_list_run(struct sf_catalog *catalog, enum sf_catalog_read_kind kind,
                                struct sf_call *call, const ProtobufCMessage *request);

#endif
