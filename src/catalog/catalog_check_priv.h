/*
 * Shared by the files of the check (catalog_check*.c). One run is one task; everything here is its
 * own. Model: a judge looks at one row or one object and tells what is amiss. It runs twice at
 * most: first on what a page fetched ahead, without gates, where a finding is a suspicion only;
 * then, for what is suspected, under the gates of the thing and on a row and an object read afresh,
 * where it counts and is repaired. So a command on its way is never taken for a difference.
 */
#ifndef SF_CATALOG_CHECK_PRIV_H
#define SF_CATALOG_CHECK_PRIV_H

#include "catalog/catalog_check.h"
#include "catalog/catalog_fetch.h"
#include "catalog/catalog_gate.h"
#include "searchfabric/v1/catalog_operations_private.pb-c.h"

#define SF_CHECK_PAGE 128 /* rows or objects that are fetched and judged together */

/* One run. */
struct sf_check {
    struct sf_catalog *catalog;     /* immutable */
    struct sf_sched *sched;         /* of the task */
    struct sf_call *call;           /* asks; its end ends the run */
    struct sf_diag *diag;           /* of the call */
    struct sf_arena *page;          /* of a page of rows or keys; reset between */
    struct sf_arena *chunk;         /* of a page's objects; reset between */
    struct sf_arena *one;           /* of one thing; reset between */
    struct sf_catalog_ahead *ahead; /* objects of the page, each taken once */
    struct sf_buf *keys;            /* to be fetched with the next page; owned */
    size_t key_count;               /* of them */
    size_t key_room;                /* allocated */
    uint64_t namespace_id;          /* 0 = all */
    bool repair;                    /* else nothing is changed */
    bool sure;                      /* the judge holds the gates: what it finds counts */
    bool suspect;                   /* a judge that is not sure found something */
    /* What a judge that holds gates leaves to be done, and told of, once they are free; NULL =
       nothing. Set anew for each thing. */
    enum sf_err (*after)(struct sf_check *c);
    SF_PB(CollectionRef) after_ref; /* what it is about */
    const char *after_text;         /* explanation of its finding, in `one` */
    size_t max;                     /* findings returned */
    uint64_t judged[2];             /* namespace and collection whose lost row was told last */
    SF_PB(CheckCatalogResponse) response; /* so far */
};

/* What is wrong with one thing. Texts are copied. */
struct sf_check_finding {
    const char *kind;        /* of docs/operations/catalog.md */
    const char *subject;     /* table, or family of objects */
    struct sf_view key;      /* object key, or key of a row */
    const char *explanation; /* what stands where, which side is the truth */
    const char *repair;      /* what repair does, "" = nothing */
    bool problem;            /* else harmless */
    bool repaired;           /* done */
};

/* An object of a walk. */
struct sf_check_object {
    struct sf_view key;                   /* valid as long as the page */
    const struct sf_check_family *family; /* NULL = of none that is known */
    uint64_t namespace_id;                /* of the key; 0 = it names none */
    uint64_t collection_id;               /* of the key; 0 = it names none */
    ProtobufCMessage *message;            /* NULL = absent, broken, or not loaded */
    bool loaded;                          /* it was looked for */
    char sha256[SF_SHA256_HEX_BYTES];     /* of its bytes */
};

/* A family of objects below one prefix. */
struct sf_check_family {
    const char *text;                       /* its keys contain this */
    const char *subject;                    /* name in findings */
    const ProtobufCMessageDescriptor *desc; /* NULL = its objects are not the catalog's */
    bool gated;  /* sure under the gates of the namespace and collection in the key; else the judge
                    itself keeps others out */
    bool record; /* a record names it: of one namespace, records are found by these */
    /* Keys that the judge will read; NULL = none. Of a loaded object. */
    void (*wants)(struct sf_check *c, const struct sf_check_object *object);
    enum sf_err (*judge)(struct sf_check *c, struct sf_check_object *object); /* NULL = none */
};

/* ---- catalog_check.c: walking ------------------------------------------------------------- */

/* SF_CANCELLED, SF_ERR_STOPPED once nobody waits for the answer, or the catalog ends. */
SF_MUST_USE enum sf_err sf_check_alive(struct sf_check *c);

/* Adds a key to what the next page fetches; the caller appends its text. */
struct sf_buf *sf_check_want(struct sf_check *c);

/* Fetches what was wanted, side by side. */
void sf_check_fetch(struct sf_check *c);

/* Walks the objects below `prefix`, page by page. */
SF_MUST_USE enum sf_err sf_check_prefix(struct sf_check *c, const char *prefix,
                                        const struct sf_check_family *families, size_t count);

/* ---- catalog_check_report.c --------------------------------------------------------------- */

/* Tells a finding; a suspicion alone while the judge is not sure. */
void sf_check_tell(struct sf_check *c, const struct sf_check_finding *finding);

/* True: the caller stops here, for it is not sure and this was noted. */
bool sf_check_unsure(struct sf_check *c);

/* What differs between a row and what it should be, as text in the arena `one`: "options,
 * updated_at_unix_ms (5, should be 7)". */
const char *sf_check_difference(struct sf_check *c, const ProtobufCMessage *seen,
                                const ProtobufCMessage *wanted);

/* Gates of what a row is about; *_id 0 = none. */
struct sf_catalog_gates sf_check_gates(enum sf_catalog_table table, const ProtobufCMessage *row);

/* Reports a row (NULL = there is none) that its object contradicts, and writes it again from the
 * object unless it moved. */
SF_MUST_USE enum sf_err sf_check_differs(struct sf_check *c, enum sf_catalog_table table,
                                         const ProtobufCMessage *row,
                                         const ProtobufCMessage *wanted, struct sf_view key,
                                         bool problem);

/* Reports a row whose derived columns do not say what its message says, and writes it again. */
SF_MUST_USE enum sf_err sf_check_odd(struct sf_check *c, enum sf_catalog_table table,
                                     const ProtobufCMessage *row);

/* Runs `fn` in a transaction that looks at the owner epoch, when the run repairs; *out_done. */
typedef enum sf_err (*sf_check_rows_fn)(struct sf_check *c, struct sf_sql_conn *conn, void *arg);
SF_MUST_USE enum sf_err sf_check_write(struct sf_check *c, sf_check_rows_fn fn, void *arg,
                                       bool *out_done);

/* Deletes one object under the owner's office, when the run repairs; *out_done. Only for keys that
 * are never written again. */
SF_MUST_USE enum sf_err sf_check_delete(struct sf_check *c, struct sf_view key, bool *out_done);

/* Reads an object: what was fetched ahead, or, when sure, as it stands now. Absent: NULL. One that
 * does not verify is a finding of its own and NULL with *out_broken. */
SF_MUST_USE enum sf_err sf_check_read(struct sf_check *c, const struct sf_buf *key,
                                      const ProtobufCMessageDescriptor *desc,
                                      ProtobufCMessage **out, bool *out_broken);

/* The same, silent about a broken one; with digest (NULL = not wanted) and etag. */
SF_MUST_USE enum sf_err sf_check_look(struct sf_check *c, const struct sf_buf *key,
                                      const ProtobufCMessageDescriptor *desc,
                                      ProtobufCMessage **out, char *out_sha256,
                                      struct sf_etag *out_etag, bool *out_broken);

/* A committed object is gone. */
void sf_check_missing(struct sf_check *c, const char *subject, const struct sf_buf *key,
                      bool problem);

/* Rows of a lineage, each NULL when there is none; in `one`, from one snapshot. */
struct sf_check_lineage {
    SF_PB(NamespaceRow) * ns;          /* the namespace */
    SF_PB(CollectionRow) * collection; /* NULL also when a namespace was asked for */
};
SF_MUST_USE enum sf_err sf_check_lineage(struct sf_check *c, uint64_t namespace_id,
                                         uint64_t collection_id, struct sf_check_lineage *out);

/* A policy that says nothing is the same as none (NULL): the table's column has no NULL. */
SF_PB(InternalPolicyState) * sf_check_said_policy(SF_PB(InternalPolicyState) * policy);

/* ---- rows to objects: catalog_check_rows.c ------------------------------------------------- */

/* One table's check. */
struct sf_check_table {
    enum sf_catalog_table table;                                    /* which one */
    void (*wants)(struct sf_check *c, const ProtobufCMessage *row); /* keys that the judge reads */
    enum sf_err (*judge)(struct sf_check *c, const ProtobufCMessage *row);
    bool gated; /* sure under the gates of the row's lineage */
};
extern const struct sf_check_table sf_check_tables[];
extern const size_t sf_check_table_count;

/* A table, or its rows of the namespace, page by page. */
SF_MUST_USE enum sf_err sf_check_table_run(struct sf_check *c, const struct sf_check_table *table);

/* Rows of one page: their objects are fetched, then each is judged. */
SF_MUST_USE enum sf_err sf_check_batch(struct sf_check *c, const struct sf_check_table *table,
                                       const struct sf_catalog_batch *batch);

/* Records of the replay index of one namespace. */
SF_MUST_USE enum sf_err sf_check_records_of_namespace(struct sf_check *c);

/* ---- names: catalog_check_names.c ---------------------------------------------------------- */

void sf_check_name_wants(struct sf_check *c, const ProtobufCMessage *row);
SF_MUST_USE enum sf_err sf_check_name(struct sf_check *c, const ProtobufCMessage *row);

/* The allocator object of a lineage's name must know of the lineage's epoch. `collection_id` 0: of
 * the namespace. */
SF_MUST_USE enum sf_err sf_check_name_of(struct sf_check *c, uint64_t namespace_id,
                                         uint64_t collection_id, const char *name, uint64_t epoch);

extern const struct sf_check_family sf_check_namespace_names[1];
extern const struct sf_check_family sf_check_collection_names[1];

/* ---- drops: catalog_check_tombstone.c ------------------------------------------------------ */

void sf_check_tombstone_wants(struct sf_check *c, const ProtobufCMessage *row);
SF_MUST_USE enum sf_err sf_check_tombstone_row(struct sf_check *c, const ProtobufCMessage *row);
SF_MUST_USE enum sf_err sf_check_tombstone_object(struct sf_check *c,
                                                  struct sf_check_object *object);

/* Makes `wanted` say of a drop what its tombstone says. *out_gone: the name was released, which was
 * told; the row is to go. */
SF_MUST_USE enum sf_err sf_check_dropped(struct sf_check *c, const SF_PB(CollectionRow) * row,
                                         SF_PB(CollectionRow) * wanted, bool *out_gone);

/* An object that nothing names; `repair` "" or what was done, `repaired`. */
void sf_check_orphan(struct sf_check *c, const struct sf_check_object *object,
                     const char *explanation, const char *repair, bool repaired);

/* Was the thing tombstoned, as its objects say? `collection_id` 0: the namespace. */
SF_MUST_USE enum sf_err sf_check_is_tombstoned(struct sf_check *c, uint64_t namespace_id,
                                               uint64_t collection_id, bool *out_tombstoned);

/* ---- objects to rows: catalog_check_objects.c ---------------------------------------------- */

extern const struct sf_check_family sf_check_log[1];
extern const struct sf_check_family sf_check_pointers[1];
extern const struct sf_check_family sf_check_controls[];
extern const size_t sf_check_control_count;

/* Is the committed record of a command shown? Outside of gates. */
SF_MUST_USE enum sf_err sf_check_record_shown(struct sf_check *c, struct sf_view key,
                                              const SF_PB(CommandOutcomeObject) * outcome);

/* Command that wrote a versioned control object, "" = none. */
const char *sf_check_command_of(const ProtobufCMessage *object);

/* The chain of segments; checkpoints; what stands below control/. */
SF_MUST_USE enum sf_err sf_check_chain(struct sf_check *c);
SF_MUST_USE enum sf_err sf_check_checkpoints(struct sf_check *c);

/* ---- what is derived: catalog_check_derived.c, catalog_check_statistics*.c ----------------- */

void sf_check_quota_wants(struct sf_check *c, const ProtobufCMessage *row);
SF_MUST_USE enum sf_err sf_check_quota_row(struct sf_check *c, const ProtobufCMessage *row);
SF_MUST_USE enum sf_err sf_check_quota_object(struct sf_check *c, struct sf_check_object *object);

/* Head object and columns of a collection, against the committed pointer. */
SF_MUST_USE enum sf_err sf_check_head(struct sf_check *c, const SF_PB(CollectionRow) * row);
SF_MUST_USE enum sf_err sf_check_head_object(struct sf_check *c, struct sf_check_object *object);

void sf_check_statistics_wants(struct sf_check *c, const struct sf_check_object *object);
SF_MUST_USE enum sf_err sf_check_statistics_head(struct sf_check *c,
                                                 struct sf_check_object *object);
SF_MUST_USE enum sf_err sf_check_statistics_snapshot(struct sf_check *c,
                                                     struct sf_check_object *object);

/* The row of one snapshot: collection (2), generation token, timestamp. */
#define SF_CHECK_OF_SNAPSHOT                                                                       \
    " WHERE namespace_id = ?1 AND collection_id = ?2"                                              \
    " AND applied_schema_generation_token = ?3 AND stats_commit_ts = ?4"

/* Does the head object name this snapshot? Yes also when the head does not verify. */
SF_MUST_USE enum sf_err sf_check_head_names(struct sf_check *c, const SF_PB(CollectionRef) * ref,
                                            const char *token, uint64_t ts, bool *out_named);

/* Of sf_check_write: shows the snapshot `arg` and the head that names it. */
SF_MUST_USE enum sf_err sf_check_statistics_show(struct sf_check *c, struct sf_sql_conn *conn,
                                                 void *arg);

/* Rows of heads and snapshots, page by page. */
SF_MUST_USE enum sf_err sf_check_statistics_rows(struct sf_check *c);

/* Rows of tables without objects whose lineage is gone. */
SF_MUST_USE enum sf_err sf_check_unknown_rows(struct sf_check *c);

#endif
