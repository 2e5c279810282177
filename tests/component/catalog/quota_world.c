#include "component/catalog/quota_world.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/pbjson.h"
#include "searchfabric/v1/catalog_operations_private.pb-c.h"

static char *keep(struct world *w, const char *text)
{
    return sf_arena_str(w->arena, sf_view_str(text));
}

static SF_PB(QuotaLeaseKey) * lease_key(struct world *w, uint64_t ns, const char *dimension,
                                        const char *holder, const char *id)
{
    SF_PB(QuotaLeaseKey) *key = sf_arena_alloc(w->arena, sizeof(*key));
    searchfabric__v1__quota_lease_key__init(key);
    key->namespace_id = ns;
    key->api_plane =
        strncmp(dimension, "query", 5) == 0 ? SF_PBE(API_PLANE, QUERY) : SF_PBE(API_PLANE, WRITE);
    key->throttled_dimension = keep(w, dimension);
    key->lease_holder_id = keep(w, holder);
    key->lease_request_id = keep(w, id);
    return key;
}

SF_PB(AcquireQuotaLeaseRequest) * lease_request(struct world *w, uint64_t ns, const char *dimension,
                                                const char *holder, const char *id, uint64_t units,
                                                uint64_t observed)
{
    SF_PB(AcquireQuotaLeaseRequest) *request = sf_arena_alloc(w->arena, sizeof(*request));
    searchfabric__v1__acquire_quota_lease_request__init(request);
    request->lease = lease_key(w, ns, dimension, holder, id);
    request->requested_units = units;
    request->observed_quota_epoch = observed;
    return request;
}

const struct lease *lease(struct world *w, uint64_t ns, const char *dimension, const char *holder,
                          const char *id, uint64_t units, uint64_t observed)
{
    const SF_PB(AcquireQuotaLeaseResponse) *response = world_call(
        w, "AcquireQuotaLease", lease_request(w, ns, dimension, holder, id, units, observed));
    if (response == NULL)
        return NULL;
    struct lease *out = sf_arena_alloc(w->arena, sizeof(*out));
    *out = (struct lease){response->granted_units, response->lease_epoch,
                          response->expires_at_unix_ms};
    return out;
}

int give_back(struct world *w, uint64_t ns, const char *dimension, const char *holder,
              const char *id, uint64_t unspent)
{
    SF_PB(ReturnQuotaLeaseRequest) request;
    searchfabric__v1__return_quota_lease_request__init(&request);
    request.lease = lease_key(w, ns, dimension, holder, id);
    request.unspent_units = unspent;
    const SF_PB(ReturnQuotaLeaseResponse) *response = world_call(w, "ReturnQuotaLease", &request);
    return response == NULL ? 0 : (int)response->terminal_state;
}

bool press(struct world *w, uint64_t ns, uint64_t collection, const char *dimension,
           uint64_t lag_ms, bool active)
{
    SF_PB(ReportIngestPressureRequest) request;
    SF_PB(CollectionRef) ref;
    searchfabric__v1__report_ingest_pressure_request__init(&request);
    searchfabric__v1__collection_ref__init(&ref);
    ref.namespace_id = ns;
    ref.collection_id = collection;
    request.collection = &ref;
    request.throttled_dimension = keep(w, dimension);
    request.lag_ms = lag_ms;
    request.source = SF_PBE(INGEST_PRESSURE_SOURCE, DURABILITY_LAG);
    request.active = active;
    return world_call(w, "ReportIngestPressure", &request) != NULL;
}

uint64_t run_sweep(struct world *w)
{
    SF_PB(RunCatalogJobRequest) request;
    searchfabric__v1__run_catalog_job_request__init(&request);
    request.name = keep(w, "quota-sweep");
    const SF_PB(RunCatalogJobResponse) *response = world_call(w, "RunCatalogJob", &request);
    assert_non_null(response);
    return response->done;
}

const SF_PB(NamespaceQuotaStateObject) * quota_object(struct world *w, uint64_t ns)
{
    char decimal[24], hex[SF_SHA256_HEX_BYTES], key[128];
    snprintf(decimal, sizeof(decimal), "%" PRIu64, ns);
    sf_sha256_hex(sf_view_str(decimal), hex);
    snprintf(key, sizeof(key), "catalog/%.2s/%s/namespace_quota_state.json", hex, decimal);
    return world_object(w, key, &searchfabric__v1__namespace_quota_state_object__descriptor);
}

void assert_same_lease(const struct lease *a, const struct lease *b)
{
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal(a->granted_units, b->granted_units);
    assert_int_equal(a->lease_epoch, b->lease_epoch);
    assert_int_equal(a->expires_at_unix_ms, b->expires_at_unix_ms);
}

size_t active_leases(struct world *w, uint64_t ns)
{
    SF_PB(ShowQuotaRequest) request;
    searchfabric__v1__show_quota_request__init(&request);
    request.namespace_id = ns;
    const SF_PB(ShowQuotaResponse) *response = world_call(w, "ShowQuota", &request);
    assert_non_null(response);
    return response->n_leases;
}

const char *sql_text(struct world *w, const char *sql)
{
    struct sf_sql_stmt *stmt;
    bool row;
    const char *out = NULL;
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_READ);
    assert_int_equal(sf_sql_prepare(conn, sql, &w->diag, &stmt), SF_OK);
    assert_int_equal(sf_sql_step(stmt, &w->diag, &row), SF_OK);
    if (row)
        out = sf_arena_str(w->arena, sf_sql_col_text(stmt, 0));
    sf_sql_finish(stmt);
    sf_sql_release(conn);
    return out;
}

void sql_run(struct world *w, const char *sql)
{
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_WRITE);
    assert_int_equal(sf_sql_exec(conn, sql, &w->diag), SF_OK);
    sf_sql_release(conn);
}

const char *lease_state(struct world *w, const char *id)
{
    struct sf_sql_stmt *stmt;
    bool row;
    const char *out = NULL;
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_READ);
    assert_int_equal(sf_sql_prepare(conn,
                                    "SELECT terminal_state FROM namespace_quota_leases"
                                    " WHERE lease_request_id = ?1",
                                    &w->diag, &stmt),
                     SF_OK);
    sf_sql_bind_text(stmt, 1, sf_view_str(id));
    assert_int_equal(sf_sql_step(stmt, &w->diag, &row), SF_OK);
    if (row)
        out = sf_arena_str(w->arena, sf_sql_col_text(stmt, 0));
    sf_sql_finish(stmt);
    sf_sql_release(conn);
    return out;
}

void assert_row_is_object(struct world *w, uint64_t ns)
{
    struct sf_sql_stmt *stmt;
    bool row;
    ProtobufCMessage *state = NULL;
    const SF_PB(NamespaceQuotaStateObject) *object = quota_object(w, ns);
    assert_non_null(object);
    struct sf_sql_conn *conn = sf_sql_acquire(w->sql, NULL, SF_SQL_READ);
    assert_int_equal(sf_sql_prepare(conn,
                                    "SELECT quota_epoch, quota_state_json, last_refill_at_unix_ms,"
                                    " updated_at_unix_ms FROM namespace_quota_state"
                                    " WHERE namespace_id = ?1",
                                    &w->diag, &stmt),
                     SF_OK);
    sf_sql_bind_u64(stmt, 1, ns);
    assert_int_equal(sf_sql_step(stmt, &w->diag, &row), SF_OK);
    assert_true(row);
    assert_int_equal(sf_sql_col_u64(stmt, 0), object->quota_epoch);
    assert_int_equal(sf_sql_col_i64(stmt, 2), object->last_refill_at_unix_ms);
    assert_int_equal(sf_sql_col_i64(stmt, 3), object->updated_at_unix_ms);
    assert_int_equal(sf_pbjson_decode(&searchfabric__v1__namespace_quota_state_object__descriptor,
                                      sf_sql_col_text(stmt, 1), w->arena, &w->diag, &state),
                     SF_OK);
    SF_PB(NamespaceQuotaStateObject) plain = *object; /* the digest is the object's alone */
    plain.sha256 = (char *)(uintptr_t)protobuf_c_empty_string;
    assert_string_equal(world_json(w, state), world_json(w, &plain));
    sf_sql_finish(stmt);
    sf_sql_release(conn);
}

void spend(struct world *w, uint64_t ns, const char *prefix, struct ledger *ledger)
{
    for (unsigned i = 0; i < 20; i++) {
        char id[24];
        snprintf(id, sizeof(id), "%s%u", prefix, i);
        const struct lease *got = lease(w, ns, "query_rcu", "gw", id, 100 + i * 30, 0);
        if (got != NULL) {
            ledger->total += got->granted_units;
            ledger->grants++;
        }
        sf_clock_manual_advance(&w->clock, 100);
        ledger->steps++;
    }
}
