/*
 * Removals of keys that a later command may write again: the records of commands and the replay
 * pointers of business keys. Claims keep a removal and a command apart within this process; the
 * object control/catalog-removals.json keeps them apart across owners.
 *
 * A claim's key is a command identity, or "{kind}/{lookup key}" of a business pointer.
 */
#ifndef SF_CATALOG_REMOVALS_H
#define SF_CATALOG_REMOVALS_H

#include "catalog/catalog_priv.h"

#define SF_CATALOG_REMOVALS_KEY "control/catalog-removals.json"

#define SF_CATALOG_DELETE_DOUBT_MS  3600000 /* a delete in doubt may land that late */
#define SF_CATALOG_DELETE_SEND_MS   600000  /* a batch sends its deletes within it */
#define SF_CATALOG_DELETES_IN_DOUBT 4096    /* then no further removal begins */
#define SF_CATALOG_REMOVALS_TRIES   8       /* swaps lost in a row */
#define SF_CATALOG_CLAIM_BYTES      160     /* of a claim's key, with its end */

/* Commands under way, removals, deletes in doubt. Any thread. */
struct sf_catalog_claims;
struct sf_catalog_claims *sf_catalog_claims_new(void);
void sf_catalog_claims_destroy(struct sf_catalog_claims *claims);

/* Claim key of a business pointer. */
void sf_catalog_claim_of_business(const char *kind_name, const char *lookup_key,
                                  char out[SF_CATALOG_CLAIM_BYTES]);

/* A command begins (false: a removal of the key is under way or a delete of it is in doubt: come
 * back), ends. Several at once are fine. */
bool sf_catalog_claim_command(struct sf_catalog *catalog, const char *key);
void sf_catalog_unclaim_command(struct sf_catalog *catalog, const char *key);

/* A removal begins (false: a command is under way, or a delete of the key is in doubt), ends; with
 * `doubt` the key is left alone for SF_CATALOG_DELETE_DOUBT_MS. */
bool sf_catalog_claim_removal(struct sf_catalog *catalog, const char *key);
void sf_catalog_unclaim_removal(struct sf_catalog *catalog, const char *key, bool doubt);

/* A delete of the key by an elder owner may be on its way: as after a removal in doubt. */
void sf_catalog_claim_doubt(struct sf_catalog *catalog, const char *key);

/* How long the key is still left alone; 0 = a removal that ends soon, or nothing. */
int64_t sf_catalog_claim_wait_ms(struct sf_catalog *catalog, const char *key);

/* Keys being removed or in doubt, in `arena`, in order of their claims. NULL: the arena is full. */
const char **sf_catalog_claims_list(struct sf_catalog *catalog, struct sf_arena *arena,
                                    size_t *out_count);

/* ---- the object --------------------------------------------------------------------------- */

/* At a start, once the takeover record stands: swaps this owner's epoch in and puts what is listed
 * in doubt. Nothing was ever removed: one GET. Errors: SF_ERR_DEPOSED, SF_ERR_UNAVAILABLE,
 * SF_ERR_CORRUPT. */
SF_MUST_USE enum sf_err sf_catalog_removals_adopt(struct sf_catalog *catalog,
                                                  struct sf_sched *sched, struct sf_diag *diag);

/* Before the first delete of what is claimed: the object lists all claims of removals, and then
 * this owner was not taken over from. Errors as above; nothing may then be deleted. A store held
 * exclusively has no elder owner and gets no object. */
SF_MUST_USE enum sf_err sf_catalog_removals_begin(struct sf_catalog *catalog,
                                                  struct sf_sched *sched, struct sf_diag *diag);

/* Does the object list what is over? Then sf_catalog_removals_end makes it say what is left. */
bool sf_catalog_removals_over(struct sf_catalog *catalog);
SF_MUST_USE enum sf_err sf_catalog_removals_end(struct sf_catalog *catalog, struct sf_sched *sched,
                                                struct sf_diag *diag);

#endif
