/*
 * Model: an operator's call is counted in like any request, so that a close waits for it, and
 * queued on the slow jobs' lane. What it reads it reads in pages; what it changes it changes under
 * the gates of the thing, so commands go on beside it.
 */
#include "catalog/catalog_operate.h"

#include <stdlib.h>

#include "catalog/catalog_job.h"

/* One call on its way. */
struct operation {
    struct sf_task task;
    struct sf_catalog *catalog;
    struct sf_call *call;
    const ProtobufCMessage *request;
    sf_catalog_operate_fn fn;
};

static void run(struct sf_task *task)
{
    struct operation *op = SF_CONTAINER_OF(task, struct operation, task);
    struct sf_catalog *catalog = op->catalog;
    struct sf_diag *diag = sf_call_diag(op->call);
    enum sf_err err = op->fn(catalog, catalog->deps.sched, op->call, op->request);
    if (err != SF_OK) {
        if (diag->err == SF_OK)
            sf_diag_set(diag, err, "%s", sf_err_info(err)->meaning);
        sf_catalog_refuse(op->call, diag);
    }
    free(op);
    sf_catalog_leave(catalog);
}

void sf_catalog_operate(struct sf_catalog *catalog, struct sf_call *call,
                        const ProtobufCMessage *request, sf_catalog_operate_fn fn)
{
    struct sf_diag *diag = sf_call_diag(call);
    sf_diag_init(diag);
    if (!sf_catalog_enter(catalog, false, diag)) {
        sf_catalog_refuse(call, diag);
        return;
    }
    struct operation *op = sf_calloc(1, sizeof(*op));
    *op = (struct operation){
        .task.run = run, .catalog = catalog, .call = call, .request = request, .fn = fn};
    if (sf_sched_submit(catalog->deps.sched, sf_catalog_job_lane(SF_CATALOG_JOB_SLOW), &op->task) ==
        SF_OK)
        return;
    free(op);
    sf_diag_set(diag, SF_BACKEND_UNAVAILABLE, "the catalog is busy");
    sf_catalog_refuse(call, diag);
    sf_catalog_leave(catalog);
}

enum sf_err sf_catalog_list(struct sf_catalog *catalog, struct sf_sched *sched, const char *prefix,
                            struct sf_buf *io_after, struct sf_arena *arena, struct sf_diag *diag,
                            struct sf_list_entry **out_entries, size_t *out_count)
{
    enum sf_err err = SF_ERR_UNAVAILABLE;
    for (unsigned tries = 1; tries <= SF_CATALOG_PUT_TRIES; tries++) {
        *out_count = 0;
        err = sf_store_list_wait(catalog->deps.store, sched, sf_view_str(prefix),
                                 sf_buf_view(io_after), SF_LIMIT_LIST_PAGE_ENTRIES, arena,
                                 out_entries, out_count);
        if (err != SF_ERR_UNAVAILABLE || sf_catalog_ending(catalog))
            break;
        sf_catalog_pause(catalog, sched, tries);
    }
    if (err != SF_OK) {
        *out_count = 0;
        return sf_diag_set(diag, err, "cannot list %s", prefix);
    }
    if (*out_count != 0) {
        struct sf_view last = (*out_entries)[*out_count - 1].key;
        sf_buf_clear(io_after);
        sf_buf_append(io_after, last.ptr, last.len);
    }
    return SF_OK;
}
