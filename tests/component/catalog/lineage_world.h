/* Calls and looks of the tests about drops, transitions and releases. */
#ifndef SF_TESTS_COMPONENT_CATALOG_LINEAGE_WORLD_H
#define SF_TESTS_COMPONENT_CATALOG_LINEAGE_WORLD_H

#include "catalog/catalog_lifecycle.h"
#include "component/catalog/catalog_world.h"
#include "searchfabric/v1/catalog_operations_private.pb-c.h"

#define GC_DELAY_MS INT64_C(604800000) /* the default, 7 days */

#define DROPPED         SF_PBE(DROP_COLLECTION_STATUS, DROPPED)
#define ALREADY_DROPPED SF_PBE(DROP_COLLECTION_STATUS, ALREADY_DROPPED)
#define NS_STATE(name)  SF_PBE(NAMESPACE_LIFECYCLE_STATE, name)
#define KIND(name)      SF_PBE(COMMAND_KIND, name)

/* A drop; `token` NULL: unconditional. */
SF_PB(DropCollectionRequest) * lineage_drop_request(struct world *w, const char *key, uint64_t ns,
                                                    uint64_t id, const char *token);

/* Drops as the control admin; the status, or 0 with w->diag. */
int lineage_drop(struct world *w, const char *key, uint64_t ns, uint64_t id, const char *token);

/* Submits a transition; NULL with w->diag. */
const SF_PB(SubmitNamespaceLifecycleTransitionResponse) *
    lineage_transition(struct world *w, uint64_t ns, SF_PB(NamespaceLifecycleState) target,
                       uint64_t expected);

/* One sweep of everything. */
const SF_PB(RunReleaseSweepResponse) * lineage_sweep(struct world *w);

/* Private state; `id` 0: of the namespace. NULL with w->diag. */
const SF_PB(ShowLineageResponse) * lineage_show(struct world *w, uint64_t ns, uint64_t id);
uint64_t lineage_revision(struct world *w, uint64_t ns);
uint64_t lineage_binding(struct world *w, uint64_t ns);

/* The error of the call, and both lifecycle-conflict details. */
void lineage_conflict(struct world *w, const void *answer, const char *scope, const char *state);

/* The `nth` record (0-based, in apply order) of a kind; NULL when there are fewer. */
const SF_PB(CommandOutcomeObject) *
    lineage_record(struct world *w, SF_PB(CommandKind) kind, size_t nth);
size_t lineage_records(struct world *w);

/* Error of a read about one collection or namespace, SF_OK when it answers. */
enum sf_err lineage_get_collection(struct world *w, uint64_t ns, uint64_t id);
enum sf_err lineage_get_named(struct world *w, uint64_t ns, const char *name);
enum sf_err lineage_get_schema(struct world *w, uint64_t ns, uint64_t id);
enum sf_err lineage_get_sync(struct world *w, uint64_t ns, uint64_t id);
enum sf_err lineage_get_namespace(struct world *w, uint64_t ns);
enum sf_err lineage_get_namespace_named(struct world *w, const char *name);
size_t lineage_listed(struct world *w, uint64_t ns, const char *prefix);
size_t lineage_listed_namespaces(struct world *w, const char *prefix);

/* First column of the first row of a query that binds ns and id, as text ("" without a row). */
const char *lineage_sql(struct world *w, const char *sql, uint64_t ns, uint64_t id);
void lineage_exec(struct world *w, const char *sql);

/* Key of an allocator object; its last epoch. */
uint64_t lineage_epoch(struct world *w, uint64_t ns, const char *name);

#endif
