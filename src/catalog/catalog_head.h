/*
 * Manifest heads: `manifest_head.json` and its columns follow `manifest_committed_head.json`, which
 * the manifest publisher swaps. The committed pointer alone says what is visible; the head says how
 * far the catalog has taken note of it. Source: note sections 4.5 and 9.1, OP-48.
 */
#ifndef SF_CATALOG_HEAD_H
#define SF_CATALOG_HEAD_H

#include "catalog/catalog_priv.h"
#include "searchfabric/v1/catalog_operations_private.pb-c.h"

#define SF_CATALOG_HEAD_NONE           (-1) /* expected version of a first advance; 0 is the same */
#define SF_CATALOG_HEAD_CHECKSUM_CHARS 255  /* scalars of manifest_checksum_or_etag */
#define SF_CATALOG_HEAD_HINTS          65536 /* collections to look at; a hint beyond is dropped */
#define SF_CATALOG_HEAD_CYCLE          64    /* looks, and repairs, of one job cycle */

/* ---- rules: catalog_head_rules.c ---------------------------------------------------------- */

/* A request as far as it can be judged alone. SF_BAD_REQUEST. */
enum sf_err sf_catalog_head_check(const SF_PB(SubmitHeadAdvanceIntentRequest) * request,
                                  struct sf_diag *diag);

/* What an intent comes to. */
enum sf_catalog_head_verdict {
    SF_CATALOG_HEAD_ADVANCE,        /* admitted */
    SF_CATALOG_HEAD_MATCHES,        /* the tuple is what stands: a duplicate */
    SF_CATALOG_HEAD_MOVED,          /* the head is not the expected one */
    SF_CATALOG_HEAD_ABOVE_POINTER,  /* not committed yet */
    SF_CATALOG_HEAD_OTHER_CHECKSUM, /* of the committed version itself */
};

/* Compare-and-swap of an intent on `row`, against the committed pointer (NULL = none). */
enum sf_catalog_head_verdict
sf_catalog_head_cas(const SF_PB(SubmitHeadAdvanceIntentRequest) * request,
                    const SF_PB(CollectionRow) * row,
                    const SF_PB(ManifestCommittedHeadObject) * pointer);

/* What the pointer names, as it was found. */
struct sf_catalog_head_manifest {
    bool read;                                       /* looked for; else its fields are not used */
    bool found;                                      /* it stands and verifies */
    char sha256[SF_SHA256_HEX_BYTES];                /* of its bytes */
    struct sf_etag etag;                             /* of the object */
    const SF_PB(CollectionManifestObject) * message; /* when found */
};

/* State of a collection's head against the pointer. */
enum sf_catalog_head_state {
    SF_CATALOG_HEAD_EQUAL, /* nothing to do */
    SF_CATALOG_HEAD_GAP,   /* the pointer is ahead */
    SF_CATALOG_HEAD_BROKEN /* the pointer does not fit: an operator's matter */
};

/* Judges the pointer (NULL = none; `broken`: it does not verify) against row and manifest.
 * *out_reason (static text) when BROKEN. Note sections 9.1 and 11. */
enum sf_catalog_head_state sf_catalog_head_judge(const SF_PB(CollectionRow) * row,
                                                 const SF_PB(ManifestCommittedHeadObject) * pointer,
                                                 bool broken,
                                                 const struct sf_catalog_head_manifest *manifest,
                                                 const char **out_reason);

/* What moves manifest_head_reconciler_status. */
enum sf_catalog_head_event {
    SF_CATALOG_HEAD_ON_GAP,       /* the pointer was found ahead */
    SF_CATALOG_HEAD_ON_ATTEMPT,   /* an advance is about to be tried */
    SF_CATALOG_HEAD_ON_CONVERGED, /* head and pointer are equal */
    SF_CATALOG_HEAD_ON_BROKEN,    /* the pointer does not fit */
    SF_CATALOG_HEAD_ON_OPERATOR   /* somebody asks for repair by hand */
};

/* A move of the reconciler. */
struct sf_catalog_head_move {
    SF_PB(ManifestHeadReconcilerStatus) from; /* status before */
    enum sf_catalog_head_event event;         /* what happens */
    SF_PB(ManifestHeadReconcilerStatus) to;   /* status after */
    bool counts;                              /* raises last_update_epoch */
};

/* The move of `event` from `from`, or NULL: nothing moves. */
const struct sf_catalog_head_move *sf_catalog_head_move(SF_PB(ManifestHeadReconcilerStatus) from,
                                                        enum sf_catalog_head_event event);

/* "IDLE", ...: the column's text. */
const char *sf_catalog_head_status_text(SF_PB(ManifestHeadReconcilerStatus) status);

/* ---- the intent: catalog_plan_head.c ------------------------------------------------------ */

extern const struct sf_catalog_mutation sf_catalog_head_advance;

/* ---- objects and rows: catalog_head.c ----------------------------------------------------- */

void sf_catalog_key_manifest_head(struct sf_buf *out, uint64_t namespace_id,
                                  uint64_t collection_id);

/* Reads the committed pointer as it stands now; NULL when nothing was published. Errors:
 * SF_ERR_CORRUPT (it does not verify, or lacks what it must have), SF_ERR_UNAVAILABLE. */
enum sf_err sf_catalog_head_pointer(struct sf_catalog *catalog, const SF_PB(CollectionRef) * ref,
                                    struct sf_arena *arena, struct sf_diag *diag,
                                    SF_PB(ManifestCommittedHeadObject) * *out_pointer);

/* Reads the manifest that the pointer names. SF_OK also when it is missing or does not verify.
 * Errors: SF_ERR_UNAVAILABLE. */
enum sf_err sf_catalog_head_manifest_read(struct sf_catalog *catalog,
                                          const SF_PB(ManifestCommittedHeadObject) * pointer,
                                          struct sf_arena *arena, struct sf_diag *diag,
                                          struct sf_catalog_head_manifest *out_manifest);

/* What manifest_head.json is to say. */
struct sf_catalog_head_content {
    uint64_t version;                           /* of the head */
    int64_t expected_previous;                  /* of the advance that led there, -1 = none */
    uint64_t last_update_epoch;                 /* counter */
    SF_PB(ManifestHeadReconcilerStatus) status; /* of the reconciler */
};

/* After the advance of a record: IDLE, or REPAIR_PENDING when its pointer was further ahead. */
struct sf_catalog_head_content sf_catalog_head_content_of(const SF_PB(HeadAdvanceTuple) * tuple);

/* Registers the head object as what follows from the command's outcome: reads what stands for the
 * condition of the swap. Errors: SF_ERR_DEPOSED, SF_ERR_UNAVAILABLE. */
enum sf_err sf_catalog_head_plan(struct sf_catalog_command *command,
                                 const SF_PB(CollectionRef) * ref,
                                 const struct sf_catalog_head_content *content);

/* Makes manifest_head.json say at least what a HEAD_ADVANCE outcome says; any other outcome: SF_OK.
 * Errors as sf_catalog_put_settle; SF_ERR_UNAVAILABLE. */
enum sf_err sf_catalog_head_follow(struct sf_catalog *catalog, struct sf_sched *sched,
                                   const SF_PB(CommandOutcomeObject) * outcome);

/* The same for outcomes in chain order; the newest of a collection is enough. */
enum sf_err sf_catalog_head_follow_all(struct sf_catalog *catalog, struct sf_sched *sched,
                                       SF_PB(CommandOutcomeObject) *const *outcomes, size_t count);

/* Swaps manifest_head.json to `content` whatever it says, under this owner's epoch. */
enum sf_err sf_catalog_head_swap(struct sf_catalog *catalog, const SF_PB(CollectionRef) * ref,
                                 const struct sf_catalog_head_content *content,
                                 struct sf_diag *diag);

/* Rows of a HEAD_ADVANCE outcome, in a transaction of the writer. */
enum sf_err sf_catalog_project_head(struct sf_sql_conn *conn,
                                    const SF_PB(CommandOutcomeObject) * outcome,
                                    struct sf_diag *diag);

/* After a rebuild: every collection's pointer is to be checked before it is relied on. */
enum sf_err sf_catalog_heads_after_rebuild(struct sf_sql_conn *conn, struct sf_diag *diag);

/* Writes the reconciler's columns and, with `pointer`, the committed pair in one transaction that
 * looks at the owner epoch. */
enum sf_err sf_catalog_head_row(struct sf_catalog *catalog, const SF_PB(CollectionRef) * ref,
                                SF_PB(ManifestHeadReconcilerStatus) status, uint64_t epoch,
                                const SF_PB(ManifestCommittedHeadObject) * pointer,
                                struct sf_diag *diag);

/* ---- the reconciler: catalog_head_repair.c ------------------------------------------------ */

struct sf_catalog_heads;

struct sf_catalog_heads *sf_catalog_heads_new(void);
void sf_catalog_heads_destroy(struct sf_catalog_heads *heads);

/* Something about the collection's head may be amiss: the job looks at it. Never blocks. */
void sf_catalog_head_hint(struct sf_catalog *catalog, uint64_t namespace_id,
                          uint64_t collection_id);

/* An advance was committed and shown. */
void sf_catalog_head_advanced(struct sf_catalog *catalog,
                              const SF_PB(CommandOutcomeObject) * outcome);

/* Before admission facts are answered: a collection whose pointer is still to be checked is
 * checked. On the collection's lane. SF_CATALOG_UNAVAILABLE while an operator is needed. */
enum sf_err sf_catalog_head_admit(struct sf_catalog *catalog, uint64_t namespace_id,
                                  uint64_t collection_id, struct sf_arena *arena,
                                  struct sf_diag *diag);

/* SF_CATALOG_UNAVAILABLE of a collection whose head is in ERROR. */
enum sf_err sf_catalog_head_gated(struct sf_diag *diag);

/* What a look without moves saw. */
struct sf_catalog_head_seen {
    bool active;                                /* there is an active collection */
    enum sf_catalog_head_state state;           /* head against pointer */
    SF_PB(ManifestHeadReconcilerStatus) status; /* of the row */
    const char *reason;                         /* BROKEN: static text */
    uint64_t pointer_version;                   /* committed; 0 = nothing was published */
    const SF_PB(CollectionRow) * row;           /* in the arena */
};

/* Looks at one collection and moves nothing; under its gate. Errors as the reads. */
enum sf_err sf_catalog_head_examine(struct sf_catalog *catalog, const SF_PB(CollectionRef) * ref,
                                    struct sf_arena *arena, struct sf_diag *diag,
                                    struct sf_catalog_head_seen *out_seen);

/* Repairs one collection's head as the job does; takes its gate. *out_equal: it converged. */
enum sf_err sf_catalog_head_mend(struct sf_catalog *catalog, const SF_PB(CollectionRef) * ref,
                                 struct sf_arena *arena, struct sf_diag *diag, bool *out_equal);

/* Jobs: repairs what is known to be behind, then looks where hints point; looks at the next
 * collections in order (by hand only). */
enum sf_err sf_catalog_heads_run(struct sf_catalog *catalog, struct sf_sched *sched,
                                 struct sf_diag *diag, uint64_t *out_done);
enum sf_err sf_catalog_heads_audit(struct sf_catalog *catalog, struct sf_sched *sched,
                                   struct sf_diag *diag, uint64_t *out_done);

/* Handlers of SubmitHeadAdvanceIntent, ShowManifestHead, RepairManifestHead. */
void sf_catalog_head_submit(void *self, struct sf_call *call, const ProtobufCMessage *request);
void sf_catalog_head_show(void *self, struct sf_call *call, const ProtobufCMessage *request);
void sf_catalog_head_repair_call(void *self, struct sf_call *call, const ProtobufCMessage *request);

#endif
