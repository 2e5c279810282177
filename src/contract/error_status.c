/*
 * Model: a diag carries details as text (key -> value). The table `branches` says which key selects
 * which typed context branch; its builder turns the texts of that branch into typed fields. All
 * details also go, sorted by key, into the diagnostics map, so an older client that knows only the
 * map loses nothing. Enum texts on the wire of the map are the lower-case tail of the enum's value
 * name ("RESERVATION_SCOPE_NAMESPACE_NAME" <-> "namespace_name"), so one rule serves all enums.
 *
 * Decoding trusts nothing: the bytes are scanned before they are unpacked, unknown codes become
 * SF_INTERNAL, and a missing or broken detail falls back to the bare gRPC status.
 */
#include "contract/error_status.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/pb.h"
#include "base/text.h"
#include "google/rpc/status.pb-c.h"

/* Enough for the largest diag: 12 details, message, messages of the deepest branch. */
#define ERROR_ARENA_BYTES (32u << 10)
/* A peer's detail: bounded by the metadata limit, times what unpacking adds. */
#define DECODE_ARENA_BYTES (128u << 10)

static const char type_url[] = "type.googleapis.com/searchfabric.v1.ErrorStatus";

/* What a branch builder works on. */
struct build {
    const struct sf_diag *diag;              /* source of the texts */
    struct sf_arena *arena;                  /* where messages go */
    Searchfabric__V1__ErrorContext *context; /* to fill */
};

/* Allocates a message of type `desc`; NULL on overflow. */
static void *message_new(struct build *b, const ProtobufCMessageDescriptor *desc)
{
    ProtobufCMessage *message = sf_arena_alloc(b->arena, desc->sizeof_message);
    if (message != NULL)
        protobuf_c_message_init(desc, message);
    return message;
}

/* Text of detail `key` in the arena; the empty text when absent or on overflow (sticky). */
static char *text_of(struct build *b, const char *key)
{
    const char *value = sf_diag_get(b->diag, key);
    char *copy = value == NULL ? NULL : sf_arena_str(b->arena, sf_view_str(value));
    return copy == NULL ? (char *)protobuf_c_empty_string : copy;
}

/* Number of detail `key`, 0 when absent or not a decimal uint64. */
static uint64_t number_of(const struct build *b, const char *key)
{
    uint64_t value = 0;
    const char *text = sf_diag_get(b->diag, key);
    return text != NULL && sf_parse_u64(sf_view_str(text), &value) ? value : 0;
}

/* True when detail `key` is a uint32. */
static bool index_of(const struct build *b, const char *key, uint32_t *out)
{
    const char *text = sf_diag_get(b->diag, key);
    uint64_t value = 0;
    if (text == NULL || !sf_parse_u64(sf_view_str(text), &value) || value > UINT32_MAX)
        return false;
    *out = (uint32_t)value;
    return true;
}

/* Enum value of detail `key`: the text is the value's name, or its lower-case tail after `prefix`.
 * 0 (UNSPECIFIED) when there is none. */
static int enum_of(const struct build *b, const char *key, const ProtobufCEnumDescriptor *desc,
                   const char *prefix)
{
    const char *text = sf_diag_get(b->diag, key);
    if (text == NULL)
        return 0;
    size_t prefix_len = strlen(prefix);
    for (unsigned i = 0; i < desc->n_values; i++) {
        const char *name = desc->values[i].name;
        if (strcmp(name, text) == 0)
            return desc->values[i].value;
        if (strncmp(name, prefix, prefix_len) != 0)
            continue;
        const char *tail = name + prefix_len;
        size_t n = 0;
        while (tail[n] != '\0' && tolower((unsigned char)tail[n]) == text[n])
            n++;
        if (tail[n] == '\0' && text[n] == '\0')
            return desc->values[i].value;
    }
    return 0;
}

#define MESSAGE(b, name) message_new(b, &searchfabric__v1__##name##__descriptor)

static Searchfabric__V1__SchemaBootstrapContext *schema_bootstrap(struct build *b)
{
    Searchfabric__V1__SchemaBootstrapContext *m = MESSAGE(b, schema_bootstrap_context);
    if (m != NULL)
        m->schema_bootstrap_state = text_of(b, "schema_bootstrap_state");
    return m;
}

/* The allocator's context with room for one reason; NULL on overflow. */
static Searchfabric__V1__AllocatorErrorContext *allocator_context(struct build *b)
{
    Searchfabric__V1__AllocatorErrorContext *m = MESSAGE(b, allocator_error_context);
    if (m != NULL) {
        b->context->context_case = SEARCHFABRIC__V1__ERROR_CONTEXT__CONTEXT_ALLOCATOR;
        b->context->allocator = m;
    }
    return m;
}

static void build_allocator_bootstrap(struct build *b)
{
    Searchfabric__V1__AllocatorErrorContext *allocator = allocator_context(b);
    Searchfabric__V1__AllocatorCatalogUnavailable *m = MESSAGE(b, allocator_catalog_unavailable);
    if (allocator == NULL || m == NULL)
        return;
    allocator->reason_case = SEARCHFABRIC__V1__ALLOCATOR_ERROR_CONTEXT__REASON_CATALOG_UNAVAILABLE;
    allocator->catalog_unavailable = m;
    m->reason_case = SEARCHFABRIC__V1__ALLOCATOR_CATALOG_UNAVAILABLE__REASON_SCHEMA_BOOTSTRAP;
    m->schema_bootstrap = schema_bootstrap(b);
}

static void build_allocator_conflict(struct build *b)
{
    Searchfabric__V1__AllocatorErrorContext *allocator = allocator_context(b);
    Searchfabric__V1__AllocatorReservationConflict *m = MESSAGE(b, allocator_reservation_conflict);
    Searchfabric__V1__DocumentID *doc_id = MESSAGE(b, document_id);
    if (allocator == NULL || m == NULL || doc_id == NULL)
        return;
    allocator->reason_case = SEARCHFABRIC__V1__ALLOCATOR_ERROR_CONTEXT__REASON_RESERVATION_CONFLICT;
    allocator->reservation_conflict = m;
    doc_id->id_value_case = SEARCHFABRIC__V1__DOCUMENT_ID__ID_VALUE_U64;
    doc_id->u64 = number_of(b, "doc_id");
    m->doc_id = doc_id;
    m->conflict_reason = (Searchfabric__V1__AllocatorReservationConflictReason)enum_of(
        b, "allocator_conflict_reason",
        &searchfabric__v1__allocator_reservation_conflict_reason__descriptor,
        "ALLOCATOR_RESERVATION_CONFLICT_REASON_");
}

static void build_allocator_limit(struct build *b)
{
    Searchfabric__V1__AllocatorErrorContext *allocator = allocator_context(b);
    Searchfabric__V1__AllocatorLimitRejection *m = MESSAGE(b, allocator_limit_rejection);
    if (allocator == NULL || m == NULL)
        return;
    allocator->reason_case = SEARCHFABRIC__V1__ALLOCATOR_ERROR_CONTEXT__REASON_LIMIT_REJECTION;
    allocator->limit_rejection = m;
    /* "allocator_plan_items" <-> ALLOCATOR_LIMIT_SCOPE_PLAN_ITEMS */
    static const struct {
        const char *text;
        Searchfabric__V1__AllocatorLimitScope value;
    } scopes[] = {
        {"allocator_plan_items",
         SEARCHFABRIC__V1__ALLOCATOR_LIMIT_SCOPE__ALLOCATOR_LIMIT_SCOPE_PLAN_ITEMS},
        {"allocator_forward_reservation_window",
         SEARCHFABRIC__V1__ALLOCATOR_LIMIT_SCOPE__ALLOCATOR_LIMIT_SCOPE_FORWARD_RESERVATION_WINDOW},
        {"allocator_identity_space_remaining",
         SEARCHFABRIC__V1__ALLOCATOR_LIMIT_SCOPE__ALLOCATOR_LIMIT_SCOPE_IDENTITY_SPACE_REMAINING},
    };
    for (size_t i = 0; i < SF_ARRAY_LEN(scopes); i++)
        if (strcmp(sf_diag_get(b->diag, "limit_scope"), scopes[i].text) == 0)
            m->limit_scope = scopes[i].value;
    m->configured_limit = number_of(b, "configured_limit");
    m->requested_value = number_of(b, "requested_value");
}

/* The catalog's context with room for one reason; NULL on overflow. */
static Searchfabric__V1__CatalogErrorContext *catalog_context(struct build *b)
{
    Searchfabric__V1__CatalogErrorContext *m = MESSAGE(b, catalog_error_context);
    if (m != NULL) {
        b->context->context_case = SEARCHFABRIC__V1__ERROR_CONTEXT__CONTEXT_CATALOG;
        b->context->catalog = m;
    }
    return m;
}

static void build_lifecycle_conflict(struct build *b)
{
    Searchfabric__V1__CatalogErrorContext *catalog = catalog_context(b);
    Searchfabric__V1__LifecycleConflict *m = MESSAGE(b, lifecycle_conflict);
    if (catalog == NULL || m == NULL)
        return;
    catalog->reason_case = SEARCHFABRIC__V1__CATALOG_ERROR_CONTEXT__REASON_LIFECYCLE_CONFLICT;
    catalog->lifecycle_conflict = m;
    m->reservation_scope = (Searchfabric__V1__ReservationScope)enum_of(
        b, "reservation_scope", &searchfabric__v1__reservation_scope__descriptor,
        "RESERVATION_SCOPE_");
    m->conflicting_lifecycle_state = (Searchfabric__V1__ConflictingLifecycleState)enum_of(
        b, "conflicting_lifecycle_state",
        &searchfabric__v1__conflicting_lifecycle_state__descriptor, "CONFLICTING_LIFECYCLE_STATE_");
}

/* missing_descriptor_fields is a comma-joined list. */
static Searchfabric__V1__DescriptorPublishing *descriptor_publishing(struct build *b)
{
    Searchfabric__V1__DescriptorPublishing *m = MESSAGE(b, descriptor_publishing);
    char *list = text_of(b, "missing_descriptor_fields");
    if (m == NULL || list[0] == '\0')
        return m;
    size_t count = 1;
    for (const char *p = list; *p != '\0'; p++)
        count += *p == ',';
    m->missing_fields = sf_arena_alloc(b->arena, count * sizeof(*m->missing_fields));
    if (m->missing_fields == NULL)
        return NULL;
    char *save = NULL;
    for (char *word = strtok_r(list, ",", &save); word != NULL; word = strtok_r(NULL, ",", &save))
        m->missing_fields[m->n_missing_fields++] = word;
    return m;
}

/* Fills the branch that catalog_unavailable_reason names. */
static void catalog_unavailable_reason(struct build *b, Searchfabric__V1__CatalogUnavailable *m)
{
    const char *reason = sf_diag_get(b->diag, "catalog_unavailable_reason");
    if (strcmp(reason, "schema_bootstrap") == 0) {
        m->reason_case = SEARCHFABRIC__V1__CATALOG_UNAVAILABLE__REASON_SCHEMA_BOOTSTRAP;
        m->schema_bootstrap = schema_bootstrap(b);
    } else if (strcmp(reason, "schema_convergence") == 0) {
        m->reason_case = SEARCHFABRIC__V1__CATALOG_UNAVAILABLE__REASON_SCHEMA_CONVERGENCE;
        m->schema_convergence = MESSAGE(b, schema_convergence_context);
        if (m->schema_convergence != NULL)
            m->schema_convergence->schema_convergence_state =
                text_of(b, "schema_convergence_state");
    } else if (strcmp(reason, "statistics_freshness") == 0) {
        m->reason_case = SEARCHFABRIC__V1__CATALOG_UNAVAILABLE__REASON_STATISTICS_FRESHNESS;
        m->statistics_freshness = MESSAGE(b, statistics_freshness_context);
        if (m->statistics_freshness == NULL)
            return;
        m->statistics_freshness->max_staleness_ms = number_of(b, "max_staleness_ms");
        m->statistics_freshness->latest_stats_commit_ts = number_of(b, "latest_stats_commit_ts");
        m->statistics_freshness->latest_stats_collected_at_unix_ms =
            (int64_t)number_of(b, "latest_stats_collected_at_unix_ms");
    } else if (strcmp(reason, "recovery") == 0) {
        m->reason_case = SEARCHFABRIC__V1__CATALOG_UNAVAILABLE__REASON_RECOVERY;
        m->recovery = MESSAGE(b, recovery_context);
    } else if (strcmp(reason, "descriptor_publishing") == 0) {
        m->reason_case = SEARCHFABRIC__V1__CATALOG_UNAVAILABLE__REASON_DESCRIPTOR_PUBLISHING;
        m->descriptor_publishing = descriptor_publishing(b);
    } else if (strcmp(reason, "descriptor_integrity") == 0) {
        m->reason_case = SEARCHFABRIC__V1__CATALOG_UNAVAILABLE__REASON_DESCRIPTOR_INTEGRITY;
        m->descriptor_integrity = MESSAGE(b, descriptor_integrity_context);
        if (m->descriptor_integrity != NULL)
            m->descriptor_integrity->field = text_of(b, "field");
    }
}

static void build_catalog_unavailable(struct build *b)
{
    Searchfabric__V1__CatalogErrorContext *catalog = catalog_context(b);
    Searchfabric__V1__CatalogUnavailable *m = MESSAGE(b, catalog_unavailable);
    if (catalog == NULL || m == NULL)
        return;
    catalog->reason_case = SEARCHFABRIC__V1__CATALOG_ERROR_CONTEXT__REASON_CATALOG_UNAVAILABLE;
    catalog->catalog_unavailable = m;
    catalog_unavailable_reason(b, m);
}

static void build_schema_fence(struct build *b)
{
    Searchfabric__V1__CatalogErrorContext *catalog = catalog_context(b);
    Searchfabric__V1__SchemaFenceConflict *m = MESSAGE(b, schema_fence_conflict);
    if (catalog == NULL || m == NULL)
        return;
    catalog->reason_case = SEARCHFABRIC__V1__CATALOG_ERROR_CONTEXT__REASON_SCHEMA_FENCE_CONFLICT;
    catalog->schema_fence_conflict = m;
    m->active_schema_version = number_of(b, "active_schema_version");
    m->active_schema_generation_token = text_of(b, "active_schema_generation_token");
    m->violated_precondition = text_of(b, "violated_precondition");
}

static void build_ownership(struct build *b)
{
    Searchfabric__V1__CatalogErrorContext *catalog = catalog_context(b);
    Searchfabric__V1__OwnershipConflict *m = MESSAGE(b, ownership_conflict);
    if (catalog == NULL || m == NULL)
        return;
    catalog->reason_case = SEARCHFABRIC__V1__CATALOG_ERROR_CONTEXT__REASON_OWNERSHIP_CONFLICT;
    catalog->ownership_conflict = m;
    m->collection_truth_mode = (Searchfabric__V1__CollectionTruthMode)enum_of(
        b, "collection_truth_mode", &searchfabric__v1__collection_truth_mode__descriptor,
        "COLLECTION_TRUTH_MODE_");
    m->client_kind = (Searchfabric__V1__ClientKind)enum_of(
        b, "client_kind", &searchfabric__v1__client_kind__descriptor, "CLIENT_KIND_");
}

static void build_page_token(struct build *b)
{
    Searchfabric__V1__PageTokenContext *m = MESSAGE(b, page_token_context);
    if (m == NULL)
        return;
    b->context->context_case = SEARCHFABRIC__V1__ERROR_CONTEXT__CONTEXT_PAGE_TOKEN;
    b->context->page_token = m;
    m->page_token_reason = (Searchfabric__V1__PageTokenReason)enum_of(
        b, "page_token_reason", &searchfabric__v1__page_token_reason__descriptor,
        "PAGE_TOKEN_REASON_");
}

static void build_rate_limited(struct build *b)
{
    Searchfabric__V1__RateLimitedContext *m = MESSAGE(b, rate_limited_context);
    if (m == NULL)
        return;
    b->context->context_case = SEARCHFABRIC__V1__ERROR_CONTEXT__CONTEXT_RATE_LIMITED;
    b->context->rate_limited = m;
    m->retry_after_ms = number_of(b, "retry_after_ms");
    m->throttled_dimension = text_of(b, "throttled_dimension");
    m->server_limit = number_of(b, "server_limit");
}

static void build_ingest(struct build *b)
{
    Searchfabric__V1__IngestErrorContext *m = MESSAGE(b, ingest_error_context);
    if (m == NULL)
        return;
    b->context->context_case = SEARCHFABRIC__V1__ERROR_CONTEXT__CONTEXT_INGEST;
    b->context->ingest = m;
    m->batch_id = text_of(b, "batch_id");
    m->reason = (Searchfabric__V1__IngestRejectionReason)enum_of(
        b, "ingest_rejection_reason", &searchfabric__v1__ingest_rejection_reason__descriptor,
        "INGEST_REJECTION_REASON_");
    if (index_of(b, "entry_index", &m->entry_index))
        m->_entry_index_case = SEARCHFABRIC__V1__INGEST_ERROR_CONTEXT___ENTRY_INDEX_ENTRY_INDEX;
    m->active_schema_generation_token = text_of(b, "active_schema_generation_token");
}

static void build_backend(struct build *b)
{
    Searchfabric__V1__BackendUnavailableContext *m = MESSAGE(b, backend_unavailable_context);
    if (m == NULL)
        return;
    b->context->context_case = SEARCHFABRIC__V1__ERROR_CONTEXT__CONTEXT_BACKEND_UNAVAILABLE;
    b->context->backend_unavailable = m;
    m->failing_authority = text_of(b, "failing_authority");
    const char *unknown = sf_diag_get(b->diag, "outcome_unknown");
    m->outcome_unknown = unknown != NULL && strcmp(unknown, "true") == 0;
}

static void build_unimplemented(struct build *b)
{
    Searchfabric__V1__UnimplementedContext *m = MESSAGE(b, unimplemented_context);
    if (m == NULL)
        return;
    b->context->context_case = SEARCHFABRIC__V1__ERROR_CONTEXT__CONTEXT_UNIMPLEMENTED;
    b->context->unimplemented = m;
    const char *path = sf_diag_get(b->diag, "rpc_method");
    if (path[0] == '/')
        path++;
    const char *slash = strchr(path, '/');
    if (slash == NULL)
        return;
    char *service = sf_arena_str(b->arena, sf_view_bytes(path, (size_t)(slash - path)));
    char *method = sf_arena_str(b->arena, sf_view_str(slash + 1));
    if (service == NULL || method == NULL)
        return;
    m->service = service;
    m->method = method;
}

static void build_bad_request(struct build *b)
{
    Searchfabric__V1__BadRequestContext *m = MESSAGE(b, bad_request_context);
    if (m == NULL)
        return;
    b->context->context_case = SEARCHFABRIC__V1__ERROR_CONTEXT__CONTEXT_BAD_REQUEST;
    b->context->bad_request = m;
    m->field = text_of(b, "field");
    m->violation = text_of(b, "violation");
    if (index_of(b, "entry_index", &m->entry_index))
        m->_entry_index_case = SEARCHFABRIC__V1__BAD_REQUEST_CONTEXT___ENTRY_INDEX_ENTRY_INDEX;
}

/* First row whose area (NULL = any) and key are in the diag wins: special before general. */
static const struct branch {
    const char *area;
    const char *key;
    void (*build)(struct build *b);
} branches[] = {
    {NULL, "allocator_conflict_reason", build_allocator_conflict},
    {NULL, "limit_scope", build_allocator_limit},
    {"allocator", "schema_bootstrap_state", build_allocator_bootstrap},
    {"allocator", "catalog_unavailable_reason", NULL}, /* no context but bootstrap: ALLOC-12-06 */
    {NULL, "reservation_scope", build_lifecycle_conflict},
    {NULL, "catalog_unavailable_reason", build_catalog_unavailable},
    {NULL, "violated_precondition", build_schema_fence},
    {"catalog", "collection_truth_mode", build_ownership},
    {NULL, "page_token_reason", build_page_token},
    {NULL, "throttled_dimension", build_rate_limited},
    {NULL, "ingest_rejection_reason", build_ingest},
    {NULL, "failing_authority", build_backend},
    {NULL, "rpc_method", build_unimplemented},
    {NULL, "violation", build_bad_request},
};

/* The context of `diag`, or NULL when no branch applies. */
static Searchfabric__V1__ErrorContext *context_build(const struct sf_diag *diag,
                                                     struct sf_arena *arena)
{
    struct build b = {.diag = diag, .arena = arena};
    for (size_t i = 0; i < SF_ARRAY_LEN(branches); i++) {
        const struct branch *branch = &branches[i];
        if (sf_diag_get(diag, branch->key) == NULL)
            continue;
        if (branch->area != NULL && (diag->area == NULL || strcmp(branch->area, diag->area) != 0))
            continue;
        if (branch->build == NULL)
            return NULL;
        b.context = MESSAGE(&b, error_context);
        if (b.context != NULL)
            branch->build(&b);
        return b.context;
    }
    return NULL;
}

static int entry_compare(const void *a, const void *b)
{
    const Searchfabric__V1__ErrorStatus__DiagnosticsEntry *const *x = a;
    const Searchfabric__V1__ErrorStatus__DiagnosticsEntry *const *y = b;
    return strcmp((*x)->key, (*y)->key);
}

/* All details as map entries, sorted by key so that equal errors are equal bytes. */
static void diagnostics_build(const struct sf_diag *diag, struct sf_arena *arena,
                              Searchfabric__V1__ErrorStatus *status)
{
    if (diag->detail_count == 0)
        return;
    struct build b = {.diag = diag, .arena = arena};
    status->diagnostics = sf_arena_alloc(arena, diag->detail_count * sizeof(*status->diagnostics));
    if (status->diagnostics == NULL)
        return;
    for (unsigned i = 0; i < diag->detail_count; i++) {
        Searchfabric__V1__ErrorStatus__DiagnosticsEntry *entry =
            MESSAGE(&b, error_status__diagnostics_entry);
        if (entry == NULL)
            return;
        entry->key = sf_arena_str(arena, sf_view_str(diag->details[i].key));
        entry->value = sf_arena_str(arena, sf_view_str(diag->details[i].value));
        status->diagnostics[status->n_diagnostics++] = entry;
    }
    if (!sf_arena_overflowed(arena))
        qsort(status->diagnostics, status->n_diagnostics, sizeof(*status->diagnostics),
              entry_compare);
}

Searchfabric__V1__ErrorStatus *sf_error_status_build(const struct sf_diag *diag,
                                                     struct sf_arena *arena)
{
    SF_ASSERT(diag->err != SF_OK);
    struct build b = {.diag = diag, .arena = arena};
    Searchfabric__V1__ErrorStatus *status = MESSAGE(&b, error_status);
    if (status == NULL)
        return NULL;
    status->code = sf_arena_str(arena, sf_view_str(sf_err_info(sf_err_public(diag->err))->code));
    status->message = sf_arena_str(arena, sf_view_str(diag->message));
    status->context = context_build(diag, arena);
    diagnostics_build(diag, arena, status);
    return sf_arena_overflowed(arena) ? NULL : status;
}

void sf_error_status_encode(const struct sf_diag *diag, struct sf_buf *out)
{
    struct sf_arena *arena = sf_arena_new(ERROR_ARENA_BYTES);
    Searchfabric__V1__ErrorStatus *detail = sf_error_status_build(diag, arena);
    SF_ASSERT(detail != NULL); /* a diag is bounded and fits */
    struct sf_buf packed = {0};
    sf_pb_pack(&detail->base, &packed);

    Google__Protobuf__Any any = GOOGLE__PROTOBUF__ANY__INIT;
    any.type_url = (char *)type_url;
    any.value = (ProtobufCBinaryData){packed.len, packed.data};
    Google__Protobuf__Any *details[] = {&any};
    Google__Rpc__Status status = GOOGLE__RPC__STATUS__INIT;
    status.code = (int32_t)sf_err_info(sf_err_public(diag->err))->grpc;
    status.message = detail->message;
    status.n_details = 1;
    status.details = details;
    sf_pb_pack(&status.base, out);

    sf_buf_fini(&packed);
    sf_arena_destroy(arena);
}

/* Static area text of a context, NULL when it has none. */
static const char *area_of(const Searchfabric__V1__ErrorContext *context)
{
    if (context == NULL)
        return NULL;
    switch (context->context_case) {
    case SEARCHFABRIC__V1__ERROR_CONTEXT__CONTEXT_ALLOCATOR:
        return "allocator";
    case SEARCHFABRIC__V1__ERROR_CONTEXT__CONTEXT_CATALOG:
        return "catalog";
    case SEARCHFABRIC__V1__ERROR_CONTEXT__CONTEXT_INGEST:
        return "ingest";
    default:
        return NULL;
    }
}

enum sf_err sf_error_status_read(const Searchfabric__V1__ErrorStatus *status, struct sf_diag *diag)
{
    enum sf_err err = sf_err_from_code(status->code);
    if (err == SF_ERR_COUNT || err == SF_OK)
        sf_diag_set(diag, SF_INTERNAL, "unknown error code \"%.64s\": %s", status->code,
                    status->message);
    else
        sf_diag_set(diag, err, "%s", status->message);
    const char *area = area_of(status->context);
    if (area != NULL)
        sf_diag_area(diag, area);
    size_t count = status->n_diagnostics;
    if (count > SF_DIAG_MAX_DETAILS)
        count = SF_DIAG_MAX_DETAILS;
    for (size_t i = 0; i < count; i++) {
        const Searchfabric__V1__ErrorStatus__DiagnosticsEntry *entry = status->diagnostics[i];
        if (entry->key[0] != '\0' && strlen(entry->key) < SF_DIAG_KEY_BYTES)
            sf_diag_detail(diag, entry->key, "%s", entry->value);
    }
    return diag->err;
}

enum sf_err sf_error_from_grpc(int grpc_status)
{
    switch (grpc_status) {
    case SF_GRPC_OK:
        return SF_OK;
    case SF_GRPC_CANCELLED:
        return SF_CANCELLED;
    case SF_GRPC_INVALID_ARGUMENT:
    case SF_GRPC_OUT_OF_RANGE:
        return SF_INVALID_ARGUMENT;
    case SF_GRPC_DEADLINE_EXCEEDED:
        return SF_DEADLINE_EXCEEDED;
    case SF_GRPC_NOT_FOUND:
        return SF_RESOURCE_NOT_FOUND;
    case SF_GRPC_ALREADY_EXISTS:
        return SF_IDEMPOTENCY_CONFLICT;
    case SF_GRPC_PERMISSION_DENIED:
        return SF_FORBIDDEN;
    case SF_GRPC_RESOURCE_EXHAUSTED:
        return SF_RATE_LIMITED;
    case SF_GRPC_FAILED_PRECONDITION:
        return SF_OWNERSHIP_CONFLICT;
    case SF_GRPC_ABORTED:
        return SF_VERSION_CONFLICT;
    case SF_GRPC_UNIMPLEMENTED:
        return SF_UNIMPLEMENTED;
    case SF_GRPC_UNAVAILABLE:
        return SF_BACKEND_UNAVAILABLE;
    case SF_GRPC_UNAUTHENTICATED:
        return SF_UNAUTHENTICATED;
    default:
        return SF_INTERNAL;
    }
}

/* Reads the one ErrorStatus detail of a serialized google.rpc.Status; false when there is none that
 * can be read. */
static bool details_read(struct sf_view bytes, struct sf_arena *arena, struct sf_diag *diag)
{
    struct sf_diag scratch;
    sf_diag_init(&scratch);
    ProtobufCMessage *message = NULL;
    if (sf_pb_unpack(&google__rpc__status__descriptor, bytes, arena, &scratch, &message) != SF_OK)
        return false;
    const Google__Rpc__Status *status = (const Google__Rpc__Status *)message;
    for (size_t i = 0; i < status->n_details; i++) {
        const Google__Protobuf__Any *any = status->details[i];
        if (strcmp(any->type_url, type_url) != 0)
            continue;
        if (sf_pb_unpack(&searchfabric__v1__error_status__descriptor,
                         sf_view_bytes(any->value.data, any->value.len), arena, &scratch,
                         &message) != SF_OK)
            return false;
        sf_error_status_read((const Searchfabric__V1__ErrorStatus *)message, diag);
        return true;
    }
    return false;
}

enum sf_err sf_error_status_decode(int grpc_status, struct sf_view message, struct sf_view details,
                                   struct sf_diag *diag)
{
    sf_diag_init(diag);
    if (grpc_status == SF_GRPC_OK)
        return SF_OK;
    bool read = false;
    if (details.len > 0) {
        struct sf_arena *arena = sf_arena_new(DECODE_ARENA_BYTES);
        read = details_read(details, arena, diag);
        sf_arena_destroy(arena);
    }
    if (!read)
        sf_diag_set(diag, sf_error_from_grpc(grpc_status), "%.*s",
                    (int)(message.len < SF_DIAG_TEXT_BYTES ? message.len : SF_DIAG_TEXT_BYTES),
                    message.len == 0 ? "" : (const char *)message.ptr);
    return diag->err;
}

bool sf_error_status_lacks_key(const struct sf_diag *diag, char out_key[SF_DIAG_KEY_BYTES])
{
    const char *keys = sf_err_info(sf_err_public(diag->err))->required_keys;
    while (*keys != '\0') {
        size_t len = strcspn(keys, ",");
        SF_ASSERT(len < SF_DIAG_KEY_BYTES);
        memcpy(out_key, keys, len);
        out_key[len] = '\0';
        if (sf_diag_get(diag, out_key) == NULL)
            return true;
        keys += len + (keys[len] == ',');
    }
    return false;
}
