/*
 * StreamMutations from the first message to the acknowledgement, against a catalog, a coordinator
 * and an oracle that do what the test says.
 */
#include "component/gateway/ingest_world.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/limits.h"
#include "contract/receipt.h"

#define GATE(name)    SEARCHFABRIC__V1__BATCH_GATE__BATCH_GATE_##name
#define ACK(name)     SEARCHFABRIC__V1__ACK_GATE__ACK_GATE_##name
#define REFUSAL(name) SEARCHFABRIC__V1__BATCH_REFUSAL__BATCH_REFUSAL_##name
#define CREATE_INSERT                                                                              \
    SEARCHFABRIC__V1__ID_ALLOCATION_ROUTE_INTENT__ID_ALLOCATION_ROUTE_INTENT_CREATE_INSERT
#define CALLER_REQUIRED                                                                            \
    SEARCHFABRIC__V1__DOC_ID_GENERATION_POLICY__DOC_ID_GENERATION_POLICY_CALLER_REQUIRED

static struct world world;
static struct batch_fixture fixture;

static int setup(void **state)
{
    (void)state;
    world_init(&world);
    batch_init(&fixture, 3);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_fini(&world);
    return 0;
}

/* A collection whose rows bring their ids: no receipts. */
static void open_plain(void)
{
    world.facts.state.generation_policy = CALLER_REQUIRED;
    world_open(&world, NULL, KIND(ES_WRITE_GATEWAY));
}

static const Searchfabric__V1__MutationAck *last_ack(void)
{
    assert_true(world.ack_count > 0);
    return world.acks[world.ack_count - 1];
}

static void assert_error(enum sf_err code)
{
    const Searchfabric__V1__MutationAck *ack = last_ack();

    assert_non_null(ack->error);
    assert_string_equal(ack->error->code, sf_err_info(code)->code);
    assert_int_equal(ack->gate, ACK(UNSPECIFIED));
    assert_string_equal(ack->batch_id, "batch-1");
    assert_string_equal(ack->stream_identity, "stream-1");
    assert_int_equal(ack->collection->collection_id, 9);
}

/* Refused without a word to the coordinator. */
static void assert_refused(enum sf_err code)
{
    assert_error(code);
    assert_int_equal(world.planned_count, 0);
}

/* The catalog's facts refuse the newest batch; the coordinator is asked whether it stands, says no,
 * and what the facts said is the answer. */
static void assert_stale(enum sf_err code)
{
    unsigned last = world.planned_count - 1;

    assert_true(world.planned_count > 0);
    assert_true(world.planned[last]->planned_batch->known_only);
    assert_int_equal(world.ack_count, last);
    world_refuse(&world, last, REFUSAL(NOT_KNOWN));
    assert_int_equal(world.ack_count, last + 1);
    assert_error(code);
}

static void test_a_batch_is_planned_and_acknowledged(void **state)
{
    (void)state;
    open_plain();
    assert_non_null(world.opened);
    assert_int_equal(world.opened->duplicate_window_ms, 15 * 60 * 1000);
    assert_int_equal(world.opened->max_batch_entries, 65536);
    world_send(&world, &fixture.batch);
    assert_int_equal(world.planned_count, 1);
    assert_int_equal(world.ack_count, 0);
    const Searchfabric__V1__PlannedBatch *plan = world.planned[0]->planned_batch;
    assert_string_equal(plan->meta->client_id, "gw-1");
    assert_int_equal(plan->meta->client_kind, KIND(ES_WRITE_GATEWAY));
    assert_int_equal(plan->flow_kind, SEARCHFABRIC__V1__FLOW_KIND__FLOW_KIND_B);
    assert_int_equal(plan->first_admitted_ts, sf_tso_from_ms(1000000).v);
    char loopback[SF_SHA256_HEX_BYTES];
    char fingerprint[SF_SHA256_HEX_BYTES];
    sf_sha256_hex(sf_view_str("loopback"), loopback);
    assert_string_equal(plan->authenticated_client_identity_hash, loopback);
    sf_ingest_batch_fingerprint(&fixture.batch, fingerprint);
    assert_string_equal(plan->batch->batch_fingerprint, fingerprint);
    assert_int_equal(plan->batch->n_entries, 3);
    assert_memory_equal(plan->batch->entries[1]->row->body.data, "{}", 2);

    world_admit(&world, 0, false, 777);
    assert_int_equal(world.ack_count, 0);
    world_gate(&world, 0, GATE(DURABLE));
    const Searchfabric__V1__MutationAck *ack = last_ack();
    assert_null(ack->error);
    assert_int_equal(ack->gate, ACK(DURABLE));
    assert_int_equal(ack->row_count, 3);
    assert_int_equal(ack->n_ranges, 1);
    assert_int_equal(ack->ranges[0]->commit_ts, 777);
    assert_int_equal(ack->ranges[0]->last_entry_index, 2);
    assert_int_equal(ack->safe_ts, 500);
    assert_int_equal(ack->watermarks->applied_ts_metadata_search, 500);
    assert_int_equal(ack->first_admitted_ts, sf_tso_from_ms(1000000).v);
    assert_false(ack->duplicate);
}

static void test_gates_follow_the_policy(void **state)
{
    (void)state;
    open_plain();
    fixture.batch.visibility =
        SEARCHFABRIC__V1__VISIBILITY_POLICY__VISIBILITY_POLICY_WAIT_FOR_VISIBLE;
    world_send(&world, &fixture.batch);
    world_admit(&world, 0, true, 777);
    world_gate(&world, 0, GATE(ADMITTED_DISPATCHED));
    world_gate(&world, 0, GATE(DURABLE));
    assert_int_equal(world.ack_count, 0);
    world_gate(&world, 0, GATE(VISIBLE));
    assert_int_equal(last_ack()->gate, ACK(VISIBLE));
    assert_int_equal(last_ack()->committed_manifest_version, 3);
    assert_true(last_ack()->duplicate);
}

static void test_a_refused_batch_does_not_end_the_stream(void **state)
{
    (void)state;
    open_plain();
    fixture.rows[1].op = 0;
    world_send(&world, &fixture.batch);
    assert_refused(SF_INVALID_ARGUMENT);
    assert_string_equal(ack_detail(last_ack(), "entry_index"), "1");
    fixture.rows[1].op = OP(CREATE);
    fixture.batch.batch_fingerprint =
        "0000000000000000000000000000000000000000000000000000000000000000";
    world_send(&world, &fixture.batch);
    assert_refused(SF_BAD_REQUEST);
    assert_string_equal(ack_detail(last_ack(), "violation"), "mismatch");
    fixture.batch.batch_fingerprint = "";
    world_send(&world, &fixture.batch);
    assert_int_equal(world.planned_count, 1);
    assert_false(world.done);
}

static void test_catalog_facts_decide(void **state)
{
    (void)state;
    open_plain();
    world.facts.state.lifecycle =
        SEARCHFABRIC__V1__COLLECTION_ADMISSION_LIFECYCLE__COLLECTION_ADMISSION_LIFECYCLE_TOMBSTONED;
    world_send(&world, &fixture.batch);
    assert_stale(SF_RESOURCE_NOT_FOUND);

    world.facts.state.lifecycle =
        SEARCHFABRIC__V1__COLLECTION_ADMISSION_LIFECYCLE__COLLECTION_ADMISSION_LIFECYCLE_ACTIVE;
    world.facts.state.descriptor_etag = "etag-2";
    world.facts.state.active_schema_generation_token = "gen-2";
    world_send(&world, &fixture.batch);
    assert_stale(SF_VERSION_CONFLICT);
    assert_string_equal(ack_detail(last_ack(), "ingest_rejection_reason"),
                        "schema_generation_mismatch");
    assert_string_equal(ack_detail(last_ack(), "active_schema_generation_token"), "gen-2");
    assert_int_equal(
        last_ack()->error->context->ingest->reason,
        SEARCHFABRIC__V1__INGEST_REJECTION_REASON__INGEST_REJECTION_REASON_SCHEMA_GENERATION_MISMATCH);

    world.facts.state.descriptor_etag = "etag-3";
    world.facts.state._active_schema_generation_token_case = 0;
    world.facts.state.schema_bootstrap_state =
        SEARCHFABRIC__V1__SCHEMA_BOOTSTRAP_STATE__SCHEMA_BOOTSTRAP_STATE_NO_ACTIVE_SCHEMA_GENERATION;
    world_send(&world, &fixture.batch);
    assert_error(SF_CATALOG_UNAVAILABLE);
    assert_string_equal(ack_detail(last_ack(), "schema_bootstrap_state"),
                        "no_active_schema_generation");

    world.catalog_err = SF_RESOURCE_NOT_FOUND;
    world_send(&world, &fixture.batch);
    assert_error(SF_RESOURCE_NOT_FOUND);
    world.catalog_err = SF_BACKEND_UNAVAILABLE;
    world_send(&world, &fixture.batch);
    assert_error(SF_BACKEND_UNAVAILABLE);
    assert_string_equal(ack_detail(last_ack(), "failing_authority"), "catalog");
    assert_int_equal(world.planned_count, 2); /* the last three went nowhere */
}

/* The facts moved on between a batch's acknowledgement and its repeat. */
static void next_generation(void)
{
    world.facts.state.descriptor_etag = "etag-2";
    world.facts.state.active_schema_generation_token = "gen-2";
}

static void test_a_repeat_outlives_its_generation(void **state)
{
    (void)state;
    open_plain();
    next_generation();
    fixture.batch.first_admitted_ts = 12345;
    /* Not even its documents have to fit the new generation. */
    world.facts.state.undeclared_fields =
        SEARCHFABRIC__V1__UNDECLARED_FIELD_POLICY__UNDECLARED_FIELD_POLICY_REJECT;
    fixture.rows[0].body.data = (uint8_t *)(uintptr_t) "{\"gone\":1}";
    fixture.rows[0].body.len = strlen("{\"gone\":1}");
    world_send(&world, &fixture.batch);
    assert_int_equal(world.planned_count, 1);
    const Searchfabric__V1__PlannedBatch *plan = world.planned[0]->planned_batch;
    assert_true(plan->known_only);
    assert_int_equal(plan->first_admitted_ts, 12345);
    assert_int_equal(plan->flow_kind, SEARCHFABRIC__V1__FLOW_KIND__FLOW_KIND_B);
    assert_int_equal(plan->n_entry_plans, 1);
    assert_int_equal(plan->entry_plans[0]->last_entry_index, 2);
    assert_string_equal(plan->batch->schema_generation_token, "gen-1");
    world_admit(&world, 0, true, 777);
    world_gate(&world, 0, GATE(DURABLE));
    assert_null(last_ack()->error);
    assert_true(last_ack()->duplicate);
    assert_int_equal(last_ack()->row_count, 3);
    assert_int_equal(last_ack()->ranges[0]->commit_ts, 777);
    /* What the window itself says is said as ever; a plan that cannot be is the facts' matter. */
    world_send(&world, &fixture.batch);
    world_refuse(&world, 1, REFUSAL(FINGERPRINT_CONFLICT));
    assert_error(SF_IDEMPOTENCY_CONFLICT);
    world_send(&world, &fixture.batch);
    world_refuse(&world, 2, REFUSAL(OVERLOADED));
    assert_error(SF_RATE_LIMITED);
    world_send(&world, &fixture.batch);
    world_refuse(&world, 3, REFUSAL(INVALID_BATCH));
    assert_error(SF_VERSION_CONFLICT);
    /* A batch of the active generation is planned in full. */
    fixture.batch.schema_generation_token = "gen-2";
    fixture.rows[0].body.len = 2;
    fixture.rows[0].body.data = (uint8_t *)(uintptr_t) "{}";
    world_send(&world, &fixture.batch);
    assert_int_equal(world.planned_count, 5);
    assert_false(world.planned[4]->planned_batch->known_only);
}

static void test_reads_are_conditional_and_shared(void **state)
{
    (void)state;
    open_plain();
    world_send(&world, &fixture.batch);
    assert_int_equal(world.reads, 1);
    world_send(&world, &fixture.batch);
    assert_int_equal(world.reads, 2);
    assert_int_equal(world.not_modified, 1);
    /* One read for what comes in while another is under way; each began after its batch came. */
    world.catalog_holds = true;
    world_send(&world, &fixture.batch);
    for (int i = 0; i < 10; i++)
        world_send(&world, &fixture.batch);
    assert_int_equal(world.reads, 3);
    world_catalog_release(&world);
    assert_int_equal(world.planned_count, 3);
    assert_int_equal(world.reads, 4);
    world_catalog_release(&world);
    assert_int_equal(world.planned_count, 13);
    assert_int_equal(world.reads, 4);
}

static void test_grants_come_before_the_catalog(void **state)
{
    (void)state;
    open_plain();
    world.forbid = true;
    world_send(&world, &fixture.batch);
    assert_refused(SF_FORBIDDEN);
    assert_int_equal(world.reads, 0);
}

/* ---- receipts -------------------------------------------------------------------------------- */

static struct sf_receipt_item items[3];

static struct sf_receipt_facts receipt_facts(void)
{
    static char hash[SF_SHA256_HEX_BYTES];

    sf_sha256_hex(sf_view_str("loopback"), hash);
    for (size_t i = 0; i < 3; i++)
        items[i] = (struct sf_receipt_item){i + 1, true};
    return (struct sf_receipt_facts){.identity_hash_hex = hash,
                                     .client_id = "gw-1",
                                     .client_kind = KIND(ES_WRITE_GATEWAY),
                                     .collection = {{7}, {9}},
                                     .route_intent = CREATE_INSERT,
                                     .transport_lookup_key = "key",
                                     .payload_fingerprint = "print",
                                     .items = items,
                                     .item_count = 3,
                                     .schema_generation_token = "gen-1",
                                     .applied_at_unix_ms = 999000};
}

static void test_a_receipt_admits_its_batch(void **state)
{
    struct sf_receipt_facts facts = receipt_facts();

    (void)state;
    world_open(&world, NULL, KIND(ES_WRITE_GATEWAY));
    world_receipt(&world, &facts, &fixture.batch);
    world_send(&world, &fixture.batch);
    assert_int_equal(world.planned_count, 1);
    /* The receipt's apply time counts as the first admission, whatever the client says. */
    assert_int_equal(world.planned[0]->planned_batch->first_admitted_ts, sf_tso_from_ms(999000).v);
}

/* Its receipt is of its own generation; one of something else asks nothing of the coordinator. */
static void test_a_receipt_outlives_its_generation(void **state)
{
    struct sf_receipt_facts facts = receipt_facts();

    (void)state;
    world_open(&world, NULL, KIND(ES_WRITE_GATEWAY));
    next_generation();
    world_receipt(&world, &facts, &fixture.batch);
    fixture.batch.allocator_receipt.data[fixture.batch.allocator_receipt.len / 2] ^= 1;
    world_send(&world, &fixture.batch);
    assert_refused(SF_VERSION_CONFLICT);
    fixture.batch.allocator_receipt.data[fixture.batch.allocator_receipt.len / 2] ^= 1;
    world_send(&world, &fixture.batch);
    assert_int_equal(world.planned_count, 1);
    assert_true(world.planned[0]->planned_batch->known_only);
    assert_int_equal(world.planned[0]->planned_batch->first_admitted_ts, sf_tso_from_ms(999000).v);
    world_refuse(&world, 0, REFUSAL(NOT_KNOWN));
    assert_error(SF_VERSION_CONFLICT);
    assert_string_equal(ack_detail(last_ack(), "active_schema_generation_token"), "gen-2");
}

static void test_no_receipt_no_create(void **state)
{
    (void)state;
    SF_PROVES("ALLOC-2.2-02");
    world_open(&world, NULL, KIND(ES_WRITE_GATEWAY));
    world_send(&world, &fixture.batch);
    assert_refused(SF_BAD_REQUEST);
    assert_string_equal(ack_detail(last_ack(), "ingest_rejection_reason"), "receipt_missing");
    /* Nor without the token, nor without the id. */
    struct sf_receipt_facts facts = receipt_facts();
    world_receipt(&world, &facts, &fixture.batch);
    fixture.batch.schema_generation_token = "";
    world_send(&world, &fixture.batch);
    assert_refused(SF_BAD_REQUEST);
    fixture.batch.schema_generation_token = "gen-1";
    fixture.rows[0].doc_id = NULL;
    world_send(&world, &fixture.batch);
    assert_refused(SF_INVALID_ARGUMENT);
}

/* Every way in which a receipt may not be that of the batch. */
enum mismatch {
    OTHER_IDENTITY,
    OTHER_CLIENT,
    OTHER_COLLECTION,
    OTHER_NAMESPACE,
    OTHER_TOKEN,
    SWAPPED_IDS,
    CHANGED_ID,
    DROPPED_ROW,
    ADDED_ROW,
    FLIPPED_BIT,
    CUT_SHORT,
    MISMATCH_COUNT
};

static void make_mismatch(enum mismatch what, struct sf_receipt_facts *facts)
{
    switch (what) {
    case OTHER_CLIENT:
        facts->client_id = "gw-2";
        break;
    case OTHER_COLLECTION:
        facts->collection.collection_id.v = 10;
        break;
    case OTHER_NAMESPACE:
        facts->collection.namespace_id.v = 8;
        break;
    case OTHER_TOKEN:
        facts->schema_generation_token = "gen-0";
        break;
    case SWAPPED_IDS:
        fixture.ids[0].u64 = 2;
        fixture.ids[1].u64 = 1;
        break;
    case CHANGED_ID:
        fixture.ids[2].u64 = 99;
        break;
    case DROPPED_ROW:
        fixture.batch.n_entries = 2;
        break;
    case ADDED_ROW:
        fixture.batch.n_entries = 4;
        break;
    default:
        break;
    }
}

static void test_receipts_of_something_else(void **state)
{
    (void)state;
    SF_PROVES("ALLOC-6.3-04", "ALLOC-6.3-05", "ALLOC-6.3-07", "ALLOC-6.3-08", "ALLOC-2.2-06",
              "ALLOC-5.1-07");
    for (int what = 0; what < MISMATCH_COUNT; what++) {
        struct sf_receipt_facts facts = receipt_facts();
        world_fini(&world);
        world_init(&world);
        batch_init(&fixture, 3);
        make_mismatch((enum mismatch)what, &facts);
        world_receipt(&world, &facts, &fixture.batch);
        if (what == FLIPPED_BIT)
            fixture.batch.allocator_receipt.data[fixture.batch.allocator_receipt.len / 2] ^= 1;
        if (what == CUT_SHORT)
            fixture.batch.allocator_receipt.len--;
        world_open(&world, what == OTHER_IDENTITY ? "thief" : NULL, KIND(ES_WRITE_GATEWAY));
        world_send(&world, &fixture.batch);
        if (world.ack_count != 1 || last_ack()->error == NULL)
            fail_msg("mismatch %d was admitted", what);
        assert_refused(SF_BAD_REQUEST);
        assert_string_equal(ack_detail(last_ack(), "ingest_rejection_reason"), "receipt_invalid");
        assert_string_equal(ack_detail(last_ack(), "field"), "allocator_receipt");
    }
}

static void test_receipts_are_for_creates_only(void **state)
{
    static const Searchfabric__V1__RowOp ops[] = {OP(INDEX), OP(UPSERT), OP(PATCH), OP(DELETE)};

    (void)state;
    SF_PROVES("ALLOC-6.3-06");
    world_open(&world, NULL, KIND(ES_WRITE_GATEWAY));
    for (size_t i = 0; i < SF_ARRAY_LEN(ops); i++) {
        struct sf_receipt_facts facts = receipt_facts();
        batch_init(&fixture, 3);
        fixture.rows[1].op = ops[i];
        if (ops[i] == OP(DELETE))
            fixture.rows[1].body.len = 0;
        world_receipt(&world, &facts, &fixture.batch);
        world_send(&world, &fixture.batch);
        assert_refused(SF_BAD_REQUEST);
        assert_string_equal(ack_detail(last_ack(), "ingest_rejection_reason"), "receipt_invalid");
    }
    /* And for collections that take ids from the allocator. */
    struct sf_receipt_facts facts = receipt_facts();
    batch_init(&fixture, 3);
    world.facts.state.generation_policy = CALLER_REQUIRED;
    world.facts.state.descriptor_etag = "etag-2";
    world_receipt(&world, &facts, &fixture.batch);
    world_send(&world, &fixture.batch);
    assert_refused(SF_BAD_REQUEST);
}

/* ---- timestamps ------------------------------------------------------------------------------ */

static void test_a_retry_sends_the_first_admission_back(void **state)
{
    (void)state;
    open_plain();
    fixture.batch.first_admitted_ts = 12345;
    world_send(&world, &fixture.batch);
    assert_int_equal(world.planned[0]->planned_batch->first_admitted_ts, 12345);
    fixture.batch.first_admitted_ts = UINT64_MAX;
    world_send(&world, &fixture.batch);
    assert_int_equal(world.planned_count, 1);
    assert_string_equal(last_ack()->error->code, "SF_BAD_REQUEST");
    assert_string_equal(ack_detail(last_ack(), "field"), "first_admitted_ts");
}

static void test_no_timestamp_no_admission(void **state)
{
    (void)state;
    open_plain();
    world.tso_err = SF_BACKEND_UNAVAILABLE;
    world_send(&world, &fixture.batch);
    assert_refused(SF_BACKEND_UNAVAILABLE);
    assert_string_equal(ack_detail(last_ack(), "failing_authority"), "tso");
}

/* ---- the coordinator ------------------------------------------------------------------------- */

static void test_refusals_are_projected(void **state)
{
    (void)state;
    SF_PROVES("COORD-6.2-08");
    open_plain();
    world_send(&world, &fixture.batch);
    world_refuse(&world, 0, REFUSAL(OVERLOADED));
    assert_string_equal(last_ack()->error->code, "SF_RATE_LIMITED");
    assert_int_equal(last_ack()->error->context->context_case,
                     SEARCHFABRIC__V1__ERROR_CONTEXT__CONTEXT_RATE_LIMITED);
    world_send(&world, &fixture.batch);
    world_refuse(&world, 1, REFUSAL(FINGERPRINT_CONFLICT));
    assert_string_equal(last_ack()->error->code, "SF_IDEMPOTENCY_CONFLICT");
    assert_string_equal(ack_detail(last_ack(), "batch_id"), "batch-1");
}

static void test_a_lost_coordinator_leaves_the_outcome_open(void **state)
{
    struct sf_diag diag;

    (void)state;
    open_plain();
    for (int i = 0; i < 3; i++)
        world_send(&world, &fixture.batch);
    world_admit(&world, 1, false, 777);
    sf_diag_init(&diag);
    (void)sf_diag_set(&diag, SF_BACKEND_UNAVAILABLE, "gone");
    sf_call_fail(world.coordinator_call, &diag);
    world_run(&world);
    assert_int_equal(world.ack_count, 3);
    for (unsigned i = 0; i < 3; i++) {
        assert_string_equal(world.acks[i]->error->code, "SF_BACKEND_UNAVAILABLE");
        assert_string_equal(ack_detail(world.acks[i], "outcome_unknown"), "true");
    }
    /* The next batch opens the way anew. */
    world_send(&world, &fixture.batch);
    assert_int_equal(world.streams, 2);
    world_admit(&world, 3, false, 778);
    world_gate(&world, 3, GATE(DURABLE));
    assert_null(last_ack()->error);
}

/* ---- the stream ------------------------------------------------------------------------------ */

static void test_back_pressure_by_count(void **state)
{
    (void)state;
    open_plain();
    for (unsigned i = 0; i < SF_LIMIT_INGEST_INFLIGHT_BATCHES + 50; i++)
        world_send(&world, &fixture.batch);
    /* The peer is paused: what it sent on top waits outside. */
    assert_int_equal(world.planned_count, SF_LIMIT_INGEST_INFLIGHT_BATCHES);
    /* It goes on once half is answered. */
    for (unsigned i = 0; i < SF_LIMIT_INGEST_INFLIGHT_BATCHES / 2; i++) {
        world_admit(&world, i, false, 777 + i);
        world_gate(&world, i, GATE(DURABLE));
    }
    assert_int_equal(world.planned_count, SF_LIMIT_INGEST_INFLIGHT_BATCHES + 50);
    assert_int_equal(world.ack_count, SF_LIMIT_INGEST_INFLIGHT_BATCHES / 2);
}

static void test_back_pressure_by_bytes(void **state)
{
    size_t len = 4u << 20;
    char *body = malloc(len);
    unsigned sent = 0;

    (void)state;
    assert_non_null(body);
    memset(body, ' ', len);
    body[0] = '{';
    body[len - 1] = '}';
    open_plain();
    batch_init(&fixture, 1);
    fixture.rows[0].body.data = (uint8_t *)body;
    fixture.rows[0].body.len = len;
    while (sent < 64 && world_queue(&world, &fixture.batch) == SF_OK) {
        world_run(&world);
        sent++;
    }
    /* At most the budget and the one batch that passed it are under way. */
    assert_true(world.planned_count <= SF_LIMIT_INGEST_INFLIGHT_BYTES / len + 1);
    assert_true(sent < 64);
    for (unsigned i = 0; i < world.planned_count; i++)
        world_refuse(&world, i, REFUSAL(OVERLOADED));
    assert_int_equal(world.ack_count, sent);
    free(body);
}

static void test_half_close_waits_for_the_answers(void **state)
{
    (void)state;
    open_plain();
    world_send(&world, &fixture.batch);
    sf_client_stream_half_close(world.stream);
    world_run(&world);
    assert_false(world.done);
    world_admit(&world, 0, false, 777);
    world_gate(&world, 0, GATE(DURABLE));
    assert_int_equal(world.ack_count, 1);
    assert_true(world.done);
    assert_int_equal(world.end.err, SF_OK);
}

static void test_a_cancelled_stream_forgets_its_answers(void **state)
{
    (void)state;
    open_plain();
    world_send(&world, &fixture.batch);
    sf_client_stream_cancel(world.stream);
    world_run(&world);
    assert_true(world.done);
    world_admit(&world, 0, false, 777);
    world_gate(&world, 0, GATE(DURABLE));
    assert_int_equal(world.ack_count, 0);
}

static void test_a_drain_ends_streams_when_they_are_answered(void **state)
{
    (void)state;
    open_plain();
    world_send(&world, &fixture.batch);
    sf_ingest_drain(world.ingest);
    world_run(&world);
    assert_false(world.done);
    /* What comes now is refused, what was admitted is answered, then the stream ends. */
    world_send(&world, &fixture.batch);
    assert_int_equal(world.planned_count, 1);
    assert_string_equal(last_ack()->error->code, "SF_BACKEND_UNAVAILABLE");
    assert_false(world.done);
    world_admit(&world, 0, false, 777);
    world_gate(&world, 0, GATE(DURABLE));
    assert_null(last_ack()->error);
    assert_true(world.done);
    assert_int_equal(world.end.err, SF_BACKEND_UNAVAILABLE);
    /* A new stream is not let in. */
    world_stream(&world, NULL);
    world_run(&world);
    assert_true(world.done);
}

static void test_streams_begin_with_one_open(void **state)
{
    (void)state;
    /* A batch first. */
    world_stream(&world, NULL);
    world_send(&world, &fixture.batch);
    assert_true(world.done);
    assert_int_equal(world.end.err, SF_INVALID_ARGUMENT);
    assert_int_equal(world.ack_count, 0);
    /* An open twice. */
    Searchfabric__V1__StreamMutationsRequest request =
        SEARCHFABRIC__V1__STREAM_MUTATIONS_REQUEST__INIT;
    Searchfabric__V1__StreamOpen open = SEARCHFABRIC__V1__STREAM_OPEN__INIT;
    request.request_case = SEARCHFABRIC__V1__STREAM_MUTATIONS_REQUEST__REQUEST_OPEN;
    request.open = &open;
    world_open(&world, NULL, KIND(ES_WRITE_GATEWAY));
    assert_int_equal(sf_client_stream_send(world.stream, &request.base), SF_OK);
    world_run(&world);
    assert_true(world.done);
    assert_int_equal(world.end.err, SF_INVALID_ARGUMENT);
    /* A kind that is none. */
    world_open(&world, NULL, KIND(UNSPECIFIED));
    assert_true(world.done);
    assert_int_equal(world.end.err, SF_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_batch_is_planned_and_acknowledged, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gates_follow_the_policy, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_refused_batch_does_not_end_the_stream, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_catalog_facts_decide, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_repeat_outlives_its_generation, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_receipt_outlives_its_generation, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reads_are_conditional_and_shared, setup, teardown),
        cmocka_unit_test_setup_teardown(test_grants_come_before_the_catalog, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_receipt_admits_its_batch, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_receipt_no_create, setup, teardown),
        cmocka_unit_test_setup_teardown(test_receipts_of_something_else, setup, teardown),
        cmocka_unit_test_setup_teardown(test_receipts_are_for_creates_only, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_retry_sends_the_first_admission_back, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_no_timestamp_no_admission, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refusals_are_projected, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_lost_coordinator_leaves_the_outcome_open, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_back_pressure_by_count, setup, teardown),
        cmocka_unit_test_setup_teardown(test_back_pressure_by_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_half_close_waits_for_the_answers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_cancelled_stream_forgets_its_answers, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_drain_ends_streams_when_they_are_answered, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_streams_begin_with_one_open, setup, teardown),
    };
    return SF_RUN_TESTS("ingest", tests);
}
