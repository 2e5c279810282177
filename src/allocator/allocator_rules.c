/*
 * Model: a collection has one number, the watermark: the exclusive upper bound of everything that
 * was ever handed out, 0 .. 2^64. A plan walks its items in order; `issue` takes the watermark
 * itself, an explicit id must lie at or above it and within the window, and both move it to one
 * past the id. So ids of a plan ascend, nothing below the watermark is ever handed out again, and a
 * plan that fails at any item has moved nothing.
 *
 * A request is judged in three steps that need more and more: its shape alone; the collection's
 * admission facts; the watermark.
 */
#include "allocator/allocator_rules.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/text.h"

#define ISSUE    SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__ITEM_ISSUE
#define EXPLICIT SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__ITEM_EXPLICIT_DOC_ID
#define CREATE_INSERT                                                                              \
    SEARCHFABRIC__V1__ID_ALLOCATION_ROUTE_INTENT__ID_ALLOCATION_ROUTE_INTENT_CREATE_INSERT

static const char exhausted_text[] = "18446744073709551616";

void sf_watermark_text(struct sf_watermark mark, char out_text[SF_ALLOC_DECIMAL_BYTES])
{
    if (mark.exhausted)
        memcpy(out_text, exhausted_text, sizeof(exhausted_text));
    else
        (void)snprintf(out_text, SF_ALLOC_DECIMAL_BYTES, "%" PRIu64, mark.next);
}

bool sf_watermark_parse(struct sf_view text, struct sf_watermark *out_mark)
{
    *out_mark = (struct sf_watermark){0};
    if (sf_view_equal(text, sf_view_str(exhausted_text))) {
        out_mark->exhausted = true;
        return true;
    }
    return sf_parse_u64(text, &out_mark->next);
}

int sf_watermark_compare(struct sf_watermark a, struct sf_watermark b)
{
    if (a.exhausted != b.exhausted)
        return a.exhausted ? 1 : -1;
    return (a.next > b.next) - (a.next < b.next);
}

const char *sf_plan_shape_text(enum sf_plan_shape shape)
{
    static const char *const texts[SF_PLAN_SHAPE_COUNT] = {"invalid", "issue_only", "explicit_only",
                                                           "mixed"};
    return texts[shape];
}

const char *sf_client_kind_text(Searchfabric__V1__ClientKind kind)
{
    const ProtobufCEnumValue *value =
        protobuf_c_enum_descriptor_get_value(&searchfabric__v1__client_kind__descriptor, (int)kind);
    return value == NULL ? "UNKNOWN" : value->name;
}

/* Records that the request cannot be read as one. */
static enum sf_err malformed(struct sf_diag *diag, const char *field, const char *violation)
{
    sf_diag_set(diag, SF_INVALID_ARGUMENT, "%s: %s", field, violation);
    sf_diag_detail(diag, "field", "%s", field);
    sf_diag_detail(diag, "violation", "%s", violation);
    return SF_INVALID_ARGUMENT;
}

static enum sf_err limit_exceeded(struct sf_diag *diag, const char *scope, uint64_t limit,
                                  uint64_t requested)
{
    sf_diag_set(diag, SF_TOO_MANY_OPERATIONS, "%s: limit %" PRIu64 ", requested %" PRIu64, scope,
                limit, requested);
    sf_diag_area(diag, "allocator");
    sf_diag_detail(diag, "limit_scope", "%s", scope);
    sf_diag_detail(diag, "configured_limit", "%" PRIu64, limit);
    sf_diag_detail(diag, "requested_value", "%" PRIu64, requested);
    return SF_TOO_MANY_OPERATIONS;
}

/* What must be there for the message to be a request at all. */
static enum sf_err envelope_check(const Searchfabric__V1__AllocateIdsRequest *m,
                                  struct sf_diag *diag)
{
    if (m->meta == NULL)
        return malformed(diag, "meta", "missing");
    if (m->meta->idempotency_key[0] == '\0')
        return malformed(diag, "meta.idempotency_key", "missing");
    if (m->meta->client_id[0] == '\0')
        return malformed(diag, "meta.client_id", "missing");
    if (m->meta->client_kind == SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_UNSPECIFIED)
        return malformed(diag, "meta.client_kind", "unspecified");
    if (m->collection == NULL || m->collection->namespace_id == 0 ||
        m->collection->collection_id == 0)
        return malformed(diag, "collection", "missing");
    if (m->route_intent != CREATE_INSERT)
        return malformed(diag, "route_intent",
                         m->route_intent == 0 ? "unspecified" : "unknown_value");
    if (m->plan == NULL || m->plan->n_items == 0)
        return malformed(diag, "plan.items", "empty");
    return SF_OK;
}

/* Reads the items into out->items; every one must have a branch. */
static enum sf_err items_read(struct sf_arena *arena, struct sf_alloc_request *out,
                              struct sf_diag *diag)
{
    const Searchfabric__V1__AllocationPlan *plan = out->plan;

    for (size_t i = 0; i < plan->n_items; i++) {
        const Searchfabric__V1__AllocationPlanItem *item = plan->items[i];
        bool branch = item->item_case == ISSUE || (item->item_case == EXPLICIT &&
                                                   item->explicit_doc_id->id_value_case ==
                                                       SEARCHFABRIC__V1__DOCUMENT_ID__ID_VALUE_U64);
        if (!branch)
            return malformed(diag, "plan.items", "no_valid_branch");
    }
    if (plan->n_items > SF_LIMIT_ALLOC_PLAN_ITEMS)
        return SF_OK; /* refused below, after the other rules of the shape */
    out->items = sf_arena_alloc(arena, plan->n_items * sizeof(*out->items));
    if (out->items == NULL)
        return sf_diag_set(diag, SF_ERR_LIMIT, "the request does not fit its arena");
    out->item_count = plan->n_items;
    for (size_t i = 0; i < plan->n_items; i++) {
        const Searchfabric__V1__AllocationPlanItem *item = plan->items[i];
        out->items[i].allocator_issued = item->item_case == ISSUE;
        out->items[i].doc_id = item->item_case == ISSUE ? 0 : item->explicit_doc_id->u64;
        out->issue_count += item->item_case == ISSUE ? 1 : 0;
    }
    out->shape = out->issue_count == out->item_count ? SF_PLAN_ISSUE_ONLY
                 : out->issue_count == 0             ? SF_PLAN_EXPLICIT_ONLY
                                                     : SF_PLAN_MIXED;
    return SF_OK;
}

static int u64_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* True when two explicit items name the same id. */
static bool has_duplicates(const struct sf_alloc_request *request)
{
    size_t count = request->item_count - request->issue_count;
    uint64_t *ids = sf_malloc((count + 1) * sizeof(*ids));
    bool ascending = true;
    bool found = false;
    size_t n = 0;

    for (size_t i = 0; i < request->item_count; i++) {
        if (request->items[i].allocator_issued)
            continue;
        ascending = ascending && (n == 0 || ids[n - 1] < request->items[i].doc_id);
        ids[n++] = request->items[i].doc_id;
    }
    if (!ascending) {
        qsort(ids, n, sizeof(*ids), u64_compare);
        for (size_t i = 1; i < n && !found; i++)
            found = ids[i - 1] == ids[i];
    }
    free(ids);
    return found;
}

/* Rules that a readable request may break. */
static enum sf_err rules_check(const Searchfabric__V1__RequestMeta *meta,
                               const struct sf_alloc_request *request, struct sf_diag *diag)
{
    enum sf_err err = sf_identity_check("meta.idempotency_key", sf_view_str(meta->idempotency_key),
                                        1, SF_LIMIT_IDEMPOTENCY_KEY_SCALARS, diag);
    if (err == SF_OK)
        err = sf_identity_check("meta.client_id", sf_view_str(meta->client_id), 1,
                                SF_LIMIT_CLIENT_ID_SCALARS, diag);
    if (err == SF_OK && meta->_correlation_id_case != 0)
        err = sf_identity_check("meta.correlation_id", sf_view_str(meta->correlation_id), 1,
                                SF_LIMIT_CORRELATION_ID_SCALARS, diag);
    if (err == SF_OK && meta->_principal_subject_case != 0)
        err = sf_identity_check("meta.principal_subject", sf_view_str(meta->principal_subject), 1,
                                SF_LIMIT_PRINCIPAL_SUBJECT_SCALARS, diag);
    if (err != SF_OK)
        return err;
    if (request->plan->n_items > SF_LIMIT_ALLOC_PLAN_ITEMS)
        return limit_exceeded(diag, "allocator_plan_items", SF_LIMIT_ALLOC_PLAN_ITEMS,
                              request->plan->n_items);
    if (has_duplicates(request))
        return sf_diag_bad_field(diag, "plan.items", "duplicate_explicit_doc_id",
                                 "an explicit_doc_id stands twice in the plan");
    return SF_OK;
}

enum sf_err sf_alloc_request_check(const Searchfabric__V1__AllocateIdsRequest *message,
                                   struct sf_arena *arena, struct sf_alloc_request *out_request,
                                   struct sf_diag *diag)
{
    *out_request = (struct sf_alloc_request){.shape = SF_PLAN_INVALID};
    if (message->meta != NULL) {
        out_request->idempotency_key = message->meta->idempotency_key;
        out_request->client_id = message->meta->client_id;
        out_request->client_kind = message->meta->client_kind;
    }
    if (message->collection != NULL) {
        out_request->collection.namespace_id.v = message->collection->namespace_id;
        out_request->collection.collection_id.v = message->collection->collection_id;
    }
    out_request->route_intent = message->route_intent;
    out_request->plan = message->plan;
    enum sf_err err = envelope_check(message, diag);
    if (err == SF_OK)
        err = items_read(arena, out_request, diag);
    if (err == SF_OK)
        err = rules_check(message->meta, out_request, diag);
    if (err != SF_OK)
        out_request->shape = SF_PLAN_INVALID;
    return err;
}

void sf_alloc_facts_fini(struct sf_alloc_facts *facts)
{
    free(facts->token);
    free(facts->etag);
    *facts = (struct sf_alloc_facts){0};
}

/* SF_CATALOG_UNAVAILABLE without the bootstrap context. */
static enum sf_err incomplete(struct sf_diag *diag, const char *fact)
{
    sf_diag_set(diag, SF_CATALOG_UNAVAILABLE, "the admission state lacks %s", fact);
    sf_diag_area(diag, "allocator");
    sf_diag_detail(diag, "catalog_unavailable_reason", "admission_facts_incomplete");
    return SF_CATALOG_UNAVAILABLE;
}

static enum sf_err bootstrap(struct sf_diag *diag)
{
    sf_diag_set(diag, SF_CATALOG_UNAVAILABLE, "no schema generation is active yet");
    sf_diag_area(diag, "allocator");
    sf_diag_detail(diag, "catalog_unavailable_reason", "schema_bootstrap");
    sf_diag_detail(diag, "schema_bootstrap_state", "no_active_schema_generation");
    return SF_CATALOG_UNAVAILABLE;
}

static enum sf_err not_admitted(struct sf_diag *diag, const char *what)
{
    sf_diag_set(diag, SF_OWNERSHIP_CONFLICT, "%s does not admit allocation for this caller", what);
    sf_diag_area(diag, "allocator");
    return SF_OWNERSHIP_CONFLICT;
}

/* The identity-policy half of the snapshot. */
static enum sf_err policy_check(const Searchfabric__V1__CollectionAdmissionState *s,
                                struct sf_diag *diag)
{
    const Searchfabric__V1__AllocatorAdmissionPolicy *policy = s->allocator_admission_policy;

    if (s->generation_policy ==
        SEARCHFABRIC__V1__DOC_ID_GENERATION_POLICY__DOC_ID_GENERATION_POLICY_UNSPECIFIED)
        return incomplete(diag, "generation_policy");
    if (s->generation_policy !=
        SEARCHFABRIC__V1__DOC_ID_GENERATION_POLICY__DOC_ID_GENERATION_POLICY_ALLOCATOR_OPTIONAL)
        return not_admitted(diag, "generation_policy");
    if (policy == NULL)
        return incomplete(diag, "allocator_admission_policy");
    if (policy->caller_profile !=
        SEARCHFABRIC__V1__ALLOCATOR_CALLER_PROFILE__ALLOCATOR_CALLER_PROFILE_ES_WRITE_GATEWAY_ONLY)
        return not_admitted(diag, "caller_profile");
    if (policy->max_plan_items_per_request == 0)
        return incomplete(diag, "max_plan_items_per_request");
    if (policy->max_forward_reservation_jump == 0)
        return incomplete(diag, "max_forward_reservation_jump");
    return SF_OK;
}

enum sf_err sf_alloc_facts_read(const Searchfabric__V1__CollectionAdmissionState *state,
                                struct sf_collection_ref collection,
                                struct sf_alloc_facts *out_facts, struct sf_diag *diag)
{
    const char *token = state->_active_schema_generation_token_case == 0
                            ? ""
                            : state->active_schema_generation_token;

    *out_facts = (struct sf_alloc_facts){0};
    if (state->collection == NULL || state->collection->namespace_id != collection.namespace_id.v ||
        state->collection->collection_id != collection.collection_id.v)
        return incomplete(diag, "the collection that was asked for");
    if (state->lifecycle ==
        SEARCHFABRIC__V1__COLLECTION_ADMISSION_LIFECYCLE__COLLECTION_ADMISSION_LIFECYCLE_TOMBSTONED)
        return sf_diag_set(diag, SF_RESOURCE_NOT_FOUND, "the collection is dropped");
    if (state->lifecycle !=
        SEARCHFABRIC__V1__COLLECTION_ADMISSION_LIFECYCLE__COLLECTION_ADMISSION_LIFECYCLE_ACTIVE)
        return incomplete(diag, "lifecycle");
    if (state->collection_truth_mode ==
        SEARCHFABRIC__V1__COLLECTION_TRUTH_MODE__COLLECTION_TRUTH_MODE_UNSPECIFIED)
        return incomplete(diag, "collection_truth_mode");
    if (state->collection_truth_mode !=
        SEARCHFABRIC__V1__COLLECTION_TRUTH_MODE__COLLECTION_TRUTH_MODE_SEARCH_FABRIC)
        return not_admitted(diag, "collection_truth_mode");
    if (token[0] == '\0')
        return bootstrap(diag);
    enum sf_err err = policy_check(state, diag);
    if (err != SF_OK)
        return err;
    out_facts->max_plan_items = state->allocator_admission_policy->max_plan_items_per_request;
    out_facts->max_jump = state->allocator_admission_policy->max_forward_reservation_jump;
    out_facts->token = sf_strdup(token);
    out_facts->etag = sf_strdup(state->descriptor_etag);
    out_facts->binding_revision = state->collection_name_binding_revision;
    return SF_OK;
}

enum sf_err sf_alloc_admit(const struct sf_alloc_facts *facts,
                           const struct sf_alloc_request *request, struct sf_diag *diag)
{
    if (request->client_kind != SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_ES_WRITE_GATEWAY)
        return not_admitted(diag, "caller_profile");
    if (request->item_count > facts->max_plan_items)
        return limit_exceeded(diag, "allocator_plan_items", facts->max_plan_items,
                              request->item_count);
    return SF_OK;
}

/* Moves the watermark to one past `id`. */
static struct sf_watermark after(uint64_t id)
{
    return (struct sf_watermark){.next = id + 1, .exhausted = id == UINT64_MAX};
}

enum sf_err sf_alloc_plan_run(struct sf_plan_item *items, size_t count, uint64_t max_jump,
                              struct sf_watermark *mark, struct sf_diag *diag)
{
    struct sf_watermark at = *mark;

    for (size_t i = 0; i < count; i++) {
        if (items[i].allocator_issued) {
            if (at.exhausted)
                return limit_exceeded(diag, "allocator_identity_space_remaining", 0, 1);
            items[i].doc_id = at.next;
        } else {
            uint64_t id = items[i].doc_id;
            if (at.exhausted || id < at.next) {
                sf_diag_set(diag, SF_VERSION_CONFLICT,
                            "doc_id %" PRIu64 " lies below the watermark", id);
                sf_diag_area(diag, "allocator");
                sf_diag_detail(diag, "doc_id", "%" PRIu64, id);
                sf_diag_detail(diag, "allocator_conflict_reason", "below_watermark_burned_gap");
                return SF_VERSION_CONFLICT;
            }
            if (id - at.next > max_jump)
                return limit_exceeded(diag, "allocator_forward_reservation_window", max_jump,
                                      id - at.next);
        }
        at = after(items[i].doc_id);
    }
    *mark = at;
    return SF_OK;
}

void sf_alloc_transport_key(const char *identity_hash_hex, const char *method,
                            const struct sf_alloc_request *request,
                            char out_hex[SF_SHA256_HEX_BYTES])
{
    struct sf_keyhash kh;

    sf_keyhash_init(&kh, "sf/alloc/transport/1");
    sf_keyhash_bytes(&kh, sf_view_str(identity_hash_hex));
    sf_keyhash_bytes(&kh, sf_view_str(request->client_id));
    sf_keyhash_u64(&kh, (uint64_t)request->client_kind);
    sf_keyhash_bytes(&kh, sf_view_str(method));
    sf_keyhash_u64(&kh, request->collection.namespace_id.v);
    sf_keyhash_u64(&kh, request->collection.collection_id.v);
    sf_keyhash_bytes(&kh, sf_view_str(request->idempotency_key));
    sf_keyhash_finish_hex(&kh, out_hex);
}

void sf_alloc_fingerprint(const struct sf_alloc_request *request, char out_hex[SF_SHA256_HEX_BYTES])
{
    uint8_t *items = sf_malloc(request->item_count * 9 + 1);
    size_t len = 0;
    struct sf_keyhash kh;

    for (size_t i = 0; i < request->item_count; i++) {
        items[len++] = request->items[i].allocator_issued ? 0 : 1;
        for (unsigned b = 0; b < 8 && !request->items[i].allocator_issued; b++)
            items[len++] = (uint8_t)(request->items[i].doc_id >> (56 - 8 * b));
    }
    sf_keyhash_init(&kh, "sf/alloc/payload/1");
    sf_keyhash_u64(&kh, request->collection.namespace_id.v);
    sf_keyhash_u64(&kh, request->collection.collection_id.v);
    sf_keyhash_u64(&kh, (uint64_t)request->route_intent);
    sf_keyhash_u64(&kh, request->item_count);
    sf_keyhash_bytes(&kh, sf_view_bytes(items, len));
    sf_keyhash_finish_hex(&kh, out_hex);
    free(items);
}

/* Appends the two hex digits that spread keys. */
static void shard_append(struct sf_view component, struct sf_buf *out)
{
    char hex[SF_SHA256_HEX_BYTES];
    sf_sha256_hex(component, hex);
    sf_buf_append(out, hex, 2);
}

void sf_alloc_state_key(struct sf_collection_ref collection, struct sf_buf *out)
{
    char ns[SF_ALLOC_DECIMAL_BYTES];
    int len = snprintf(ns, sizeof(ns), "%" PRIu64, collection.namespace_id.v);

    sf_buf_append_str(out, SF_ALLOC_STATE_PREFIX);
    shard_append(sf_view_bytes(ns, (size_t)len), out);
    sf_buf_printf(out, "/%s/%" PRIu64 ".json", ns, collection.collection_id.v);
}

void sf_alloc_replay_key(const char *transport_lookup_key, struct sf_buf *out)
{
    sf_buf_append_str(out, SF_ALLOC_REPLAY_PREFIX);
    shard_append(sf_view_str(transport_lookup_key), out);
    sf_buf_printf(out, "/%s.json", transport_lookup_key);
}

void sf_alloc_audit_key(const char *allocation_attempt_id, struct sf_buf *out)
{
    sf_buf_append_str(out, SF_ALLOC_AUDIT_PREFIX);
    shard_append(sf_view_str(allocation_attempt_id), out);
    sf_buf_printf(out, "/%s.json", allocation_attempt_id);
}

#define SEGMENT_HEAD   SF_ALLOC_SEGMENT_PREFIX "segment_"
#define SEGMENT_TAIL   ".json.zst"
#define SEGMENT_DIGITS 20 /* so that keys sort as their numbers do */

void sf_alloc_segment_key(uint64_t allocator_recovery_epoch, struct sf_buf *out)
{
    sf_buf_printf(out, SEGMENT_HEAD "%0*" PRIu64 SEGMENT_TAIL, SEGMENT_DIGITS,
                  allocator_recovery_epoch);
}

bool sf_alloc_segment_parse(struct sf_view object_key, uint64_t *out_epoch)
{
    struct sf_buf again = {0};
    uint64_t epoch = 0;
    size_t head = strlen(SEGMENT_HEAD);

    if (object_key.len != head + SEGMENT_DIGITS + strlen(SEGMENT_TAIL))
        return false;
    for (size_t i = head; i < head + SEGMENT_DIGITS; i++) {
        uint8_t digit = (uint8_t)(object_key.ptr[i] - '0');
        if (digit > 9 || epoch > (UINT64_MAX - digit) / 10)
            return false;
        epoch = 10 * epoch + digit;
    }
    sf_alloc_segment_key(epoch, &again);
    bool same = memcmp(again.data, object_key.ptr, object_key.len) == 0;
    sf_buf_fini(&again);
    *out_epoch = epoch;
    return same;
}
