/*
 * Model: the way in of statistics, the serving side and lifecycle windows: what a request says of
 * itself is checked on the caller's thread, everything else on a lane.
 */
#include "catalog/catalog_on_serving.h"

#include "catalog/catalog_rules.h"
#include "catalog/catalog_serving.h"
#include "catalog/catalog_statistics.h"
#include "catalog/catalog_tier.h"
#include "searchfabric/v1/catalog_operations_private.pb-c.h"

/* Starts a checked call on the lane of `ref`, or answers the refusal. */
static void start(struct sf_catalog *catalog, struct sf_call *call, const ProtobufCMessage *request,
                  const SF_PB(CollectionRef) * ref, bool mutation, sf_catalog_call_fn run,
                  enum sf_err err)
{
    if (err == SF_OK)
        sf_catalog_call_start(catalog, call, request, ref, mutation, run);
    else
        sf_catalog_refuse(call, sf_call_diag(call));
}

void sf_catalog_on_get_statistics(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    const SF_PB(GetCollectionStatisticsRequest) *get =
        (const SF_PB(GetCollectionStatisticsRequest) *)request;
    struct sf_diag *diag = sf_call_diag(call);
    sf_diag_init(diag);
    enum sf_err err = sf_catalog_meta_check(get->meta, false, diag);
    if (err == SF_OK)
        err = sf_catalog_caller_check(SF_CATALOG_FAMILY_READ, get->meta->client_kind, diag);
    if (err == SF_OK)
        err = sf_catalog_ref_check(get->collection, diag);
    if (err == SF_OK)
        err = sf_catalog_statistics_check(get, diag);
    start(self, call, request, get->collection, false, sf_catalog_statistics_run, err);
}

void sf_catalog_on_report_backlog(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    const SF_PB(ReportIndexBacklogRequest) *report =
        (const SF_PB(ReportIndexBacklogRequest) *)request;
    struct sf_diag *diag = sf_call_diag(call);
    sf_diag_init(diag);
    start(self, call, request, report->collection, true, sf_catalog_backlog_run,
          sf_catalog_backlog_check(report, diag));
}

void sf_catalog_on_report_observation(void *self, struct sf_call *call,
                                      const ProtobufCMessage *request)
{
    const SF_PB(ReportServingObservationRequest) *report =
        (const SF_PB(ReportServingObservationRequest) *)request;
    struct sf_diag *diag = sf_call_diag(call);
    sf_diag_init(diag);
    start(self, call, request, report->collection, true, sf_catalog_observation_run,
          sf_catalog_observation_check(report, diag));
}

void sf_catalog_on_resolve_serving(void *self, struct sf_call *call,
                                   const ProtobufCMessage *request)
{
    const SF_PB(ResolveServingGenerationRequest) *get =
        (const SF_PB(ResolveServingGenerationRequest) *)request;
    struct sf_diag *diag = sf_call_diag(call);
    sf_diag_init(diag);
    start(self, call, request, get->collection, false, sf_catalog_resolve_run,
          sf_catalog_resolve_check(get, diag));
}

void sf_catalog_on_claim_transitions(void *self, struct sf_call *call,
                                     const ProtobufCMessage *request)
{
    struct sf_diag *diag = sf_call_diag(call);
    sf_diag_init(diag);
    start(self, call, request, NULL, true, sf_catalog_claim_run,
          sf_catalog_claim_check((const SF_PB(ClaimLifecycleTransitionsRequest) *)request, diag));
}

void sf_catalog_on_report_transition_failed(void *self, struct sf_call *call,
                                            const ProtobufCMessage *request)
{
    struct sf_diag *diag = sf_call_diag(call);
    sf_diag_init(diag);
    start(self, call, request, NULL, true, sf_catalog_claim_failed_run,
          sf_catalog_claim_failed_check(
              (const SF_PB(ReportLifecycleTransitionFailedRequest) *)request, diag));
}

void sf_catalog_on_list_reclaimable(void *self, struct sf_call *call,
                                    const ProtobufCMessage *request)
{
    struct sf_diag *diag = sf_call_diag(call);
    sf_diag_init(diag);
    start(self, call, request, NULL, false, sf_catalog_reclaim_run,
          sf_catalog_reclaim_request_check((const SF_PB(ListReclaimableWindowsRequest) *)request,
                                           diag));
}

void sf_catalog_on_show_statistics(void *self, struct sf_call *call,
                                   const ProtobufCMessage *request)
{
    struct sf_diag *diag = sf_call_diag(call);
    sf_diag_init(diag);
    start(self, call, request, NULL, false, sf_catalog_statistics_show_run,
          sf_catalog_ref_check(((const SF_PB(ShowStatisticsRequest) *)request)->collection, diag));
}

void sf_catalog_on_show_windows(void *self, struct sf_call *call, const ProtobufCMessage *request)
{
    struct sf_diag *diag = sf_call_diag(call);
    sf_diag_init(diag);
    start(self, call, request, NULL, false, sf_catalog_windows_show_run,
          sf_catalog_ref_check(((const SF_PB(ShowLifecycleWindowsRequest) *)request)->collection,
                               diag));
}
