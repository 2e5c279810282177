/*
 * The operator of a lineage run: checkpoints are cut and checked while clients write and owners
 * change, jobs are run by hand, the catalog is checked. What an operator does changes no answer;
 * that is for the judge to say. Here it is checked that each call comes to an end, that a
 * checkpoint's bound never passes the chain, and, when all is quiet, that nothing is found amiss.
 */
#include "fault/catalog/ccs_history.h"

#include "contract/served.h"
#include "searchfabric/v1/catalog_operations_private.pb-c.h"

bool operate_serves(const char *method)
{
    char path[96];
    snprintf(path, sizeof(path), OPERATIONS "%s", method);
    const struct sf_contract_method *found = sf_contract_method_find(sf_view_str(path));
    return found != NULL && found->served;
}

enum sf_err operate(struct client *c, bool until_answered, const char *method,
                    const ProtobufCMessage *request, const ProtobufCMessage **out_response)
{
    struct world *w = c->w;
    char path[96];
    snprintf(path, sizeof(path), OPERATIONS "%s", method);
    for (int i = 0; i < 200; i++) {
        struct sf_diag diag;
        sf_diag_init(&diag);
        struct sim_node *node = w->nodes[sf_rng_below(sim_rng(w->sim), 2)];
        if (w->rebuilder != NULL)
            node = w->rebuilder;
        enum sf_err err =
            call_node(w, c->process, node, path, request, c->arena, &diag, out_response);
        bool again = err == SF_ERR_STOPPED || err == SF_BACKEND_UNAVAILABLE ||
                     err == SF_CATALOG_UNAVAILABLE || err == SF_RATE_LIMITED;
        sim_trace(w->sim, "operator: %s -> %s %s", method, sf_err_info(err)->name,
                  err == SF_OK ? "" : diag.message);
        if (err != SF_OK && err != SF_RESOURCE_NOT_FOUND && !again)
            sim_violation(w->sim, "the operator's %s ended with %s: %s", method,
                          sf_err_info(err)->name, diag.message);
        if (!again || !until_answered)
            return err;
        sim_sleep(c->process, 1 + (int64_t)sf_rng_below(sim_rng(w->sim), 200));
    }
    sim_violation(w->sim, "the operator's %s is never answered", method);
}

/* ---- checkpoints -------------------------------------------------------------------------- */

static void cut_checkpoint(struct client *c, bool until_answered)
{
    SF_PB(CreateCheckpointRequest) request;
    const ProtobufCMessage *response = NULL;
    searchfabric__v1__create_checkpoint_request__init(&request);
    if (operate(c, until_answered, "CreateCheckpoint", &request.base, &response) != SF_OK)
        return;
    const SF_PB(CheckpointManifestObject) *manifest =
        ((const SF_PB(CreateCheckpointResponse) *)response)->manifest;
    uint64_t tail = history_tail(c->w->history);
    c->w->checkpoints++;
    if (manifest->checkpoint_upper_bound_recovery_segment_epoch > tail)
        sim_violation(c->w->sim,
                      "a checkpoint is bounded by %" PRIu64 ", the chain ends at %" PRIu64,
                      manifest->checkpoint_upper_bound_recovery_segment_epoch, tail);
}

/* `sound`: the newest one must be complete. */
static void verify_checkpoint(struct client *c, bool sound)
{
    SF_PB(VerifyCheckpointRequest) request;
    const ProtobufCMessage *response = NULL;
    searchfabric__v1__verify_checkpoint_request__init(&request);
    enum sf_err err = operate(c, sound, "VerifyCheckpoint", &request.base, &response);
    if (!sound)
        return;
    const SF_PB(VerifyCheckpointResponse) *verify = (const void *)response;
    if (err != SF_OK || !verify->complete || verify->n_problems != 0)
        sim_violation(c->w->sim, "the newest checkpoint does not verify: %s",
                      err == SF_OK && verify->n_problems != 0 ? verify->problems[0] : "");
}

/* ---- jobs and checks ---------------------------------------------------------------------- */

static void run_some_job(struct client *c)
{
    SF_PB(ListCatalogJobsRequest) list;
    SF_PB(RunCatalogJobRequest) run;
    const ProtobufCMessage *response = NULL;
    searchfabric__v1__list_catalog_jobs_request__init(&list);
    searchfabric__v1__run_catalog_job_request__init(&run);
    if (operate(c, false, "ListCatalogJobs", &list.base, &response) != SF_OK)
        return;
    const SF_PB(ListCatalogJobsResponse) *jobs = (const void *)response;
    if (jobs->n_jobs == 0)
        return;
    run.name = jobs->jobs[sf_rng_below(sim_rng(c->w->sim), jobs->n_jobs)]->name;
    sim_trace(c->w->sim, "operator: job %s", run.name);
    if (c->w->aged)
        history_collect(c->w->history); /* retention is a job */
    (void)operate(c, false, "RunCatalogJob", &run.base, &response);
}

static const SF_PB(CheckCatalogResponse) *
    check_once(struct client *c, bool until_answered, bool repair)
{
    SF_PB(CheckCatalogRequest) request;
    const ProtobufCMessage *response = NULL;
    searchfabric__v1__check_catalog_request__init(&request);
    request.repair = repair;
    if (operate(c, until_answered, "CheckCatalog", &request.base, &response) != SF_OK)
        return NULL;
    return (const void *)response;
}

/* `sound`: nothing may be amiss; `mended`: nor is anything left that a repair would mend. */
static void check_catalog(struct client *c, bool sound, bool mended)
{
    const SF_PB(CheckCatalogResponse) *found =
        check_once(c, sound, !sound && sf_rng_below(sim_rng(c->w->sim), 2) == 0);
    for (size_t i = 0; sound && i < found->n_findings; i++) {
        const SF_PB(CatalogFinding) *finding = found->findings[i];
        if (finding->problem || (mended && finding->repair[0] != '\0'))
            sim_violation(c->w->sim, "the check finds %s of %s %s: %s", finding->kind,
                          finding->subject, finding->key, finding->explanation);
    }
    if (sound && found->problems != 0)
        sim_violation(c->w->sim, "the check counts %" PRIu64 " problems", found->problems);
}

/* ---- what the scenarios call -------------------------------------------------------------- */

void operate_step(struct client *c)
{
    uint64_t lot = sf_rng_below(sim_rng(c->w->sim), 100);
    if (lot < 45 && operate_serves("CreateCheckpoint"))
        cut_checkpoint(c, false);
    else if (lot < 60 && operate_serves("VerifyCheckpoint"))
        verify_checkpoint(c, false);
    else if (lot < 75 && operate_serves("CheckCatalog"))
        check_catalog(c, false, false);
    else
        run_some_job(c);
    sf_arena_reset(c->arena);
}

void operate_checkpoint(struct client *c)
{
    if (operate_serves("CreateCheckpoint"))
        cut_checkpoint(c, true);
    if (operate_serves("VerifyCheckpoint"))
        verify_checkpoint(c, true);
}

void operate_verify(struct client *c)
{
    verify_checkpoint(c, true);
}

void operate_sound(struct client *c)
{
    if (operate_serves("CheckCatalog"))
        check_catalog(c, true, false);
}

void operate_mended(struct client *c)
{
    if (!operate_serves("CheckCatalog"))
        return;
    (void)check_once(c, true, true);
    check_catalog(c, true, true);
}

/* ---- retention ---------------------------------------------------------------------------- */

void operate_retention(struct client *c, bool until_done)
{
    SF_PB(RunRetentionRequest) request;
    searchfabric__v1__run_retention_request__init(&request);
    if (!operate_serves("RunRetention"))
        return;
    for (int i = 0; i < 40; i++) {
        const ProtobufCMessage *response = NULL;
        history_collect(c->w->history);
        request.max_commands = until_done ? 0 : 1 + (uint32_t)sf_rng_below(sim_rng(c->w->sim), 20);
        enum sf_err err = operate(c, until_done, "RunRetention", &request.base, &response);
        const SF_PB(RunRetentionResponse) *round = (const void *)response;
        if (!until_done || (err == SF_OK && round->records_removed == 0 &&
                            round->segments_removed == 0 && round->checkpoints_removed == 0))
            return;
        sf_arena_reset(c->arena);
    }
    sim_violation(c->w->sim, "retention never ends");
}
