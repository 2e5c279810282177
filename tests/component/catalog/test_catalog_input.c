/*
 * Bad input, everywhere: the cases are made by walking the request descriptors of the three
 * services, so that a field that is in no row of the tables below fails the test. Each string gets
 * every kind of text, each enum unset and unknown values, each id zero, each message is left out,
 * and given an unknown field. A refusal is SF_BAD_REQUEST with the field and a documented word, and
 * nothing is written. Source: note 3.1, 10.2, OP-05, OP-54, OP-55.
 */
#include "base/file.h"
#include "component/catalog/input_world.h"

#include <stdio.h>
#include <stdlib.h>

#include "searchfabric/v1/catalog_operations_private.pb-c.h"

#define BINDING    "{\"namespace_id\":$N,\"collection_name\":\"books\"}"
#define ENCRYPTION "{\"provider_managed\":{}}"
#define PAGE       "{\"page_size\":1}"
#define SIDE       "\"modalities\":[\"MODALITY_METADATA_SEARCH\"]"
#define LEASE                                                                                      \
    "{\"namespace_id\":$N,\"api_plane\":\"API_PLANE_QUERY\",\"throttled_dimension\":\"query_rcu\"" \
    ",\"lease_holder_id\":\"h\",\"lease_request_id\":\"r$K\"}"
#define DEFINITION                                                                                 \
    "{\"collection_truth_mode\":\"COLLECTION_TRUTH_MODE_SEARCH_FABRIC\",\"doc_id_mapping\":"       \
    "{\"generation_policy\":\"DOC_ID_GENERATION_POLICY_ALLOCATOR_OPTIONAL\"},\"settings\":"        \
    "{\"lifecycle_policy\":{\"time_partition_field\":\"t\",\"window_ms\":\"1000\","                \
    "\"transitions\":[{\"after_ms\":\"10\",\"target_tier\":\"DATA_TIER_WARM\"}]},"                 \
    "\"allocator_admission_policy\":{\"caller_profile\":"                                          \
    "\"ALLOCATOR_CALLER_PROFILE_ES_WRITE_GATEWAY_ONLY\",\"max_plan_items_per_request\":\"10\","    \
    "\"max_forward_reservation_jump\":\"10\"}},\"fields\":[{\"name\":\"v\",\"type\":"              \
    "\"FIELD_TYPE_DENSE_VECTOR\"," SIDE ",\"vector\":{\"dimensions\":3,\"similarity\":"            \
    "\"VECTOR_SIMILARITY_L2\"},\"options\":{\"a\":\"b\"}},"                                        \
    "{\"name\":\"t\",\"type\":\"FIELD_TYPE_TIMESTAMP\"," SIDE "},"                                 \
    "{\"name\":\"a\",\"type\":\"FIELD_TYPE_KEYWORD\"," SIDE "},"                                   \
    "{\"name\":\"b\",\"type\":\"FIELD_TYPE_KEYWORD\"," SIDE "}],\"undeclared_fields\":"            \
    "\"UNDECLARED_FIELD_POLICY_STORE\",\"options\":{\"x\":\"y\"},\"extended_statistics\":"         \
    "[{\"field_paths\":[\"a\",\"b\"]}]}"
#define SCHEMA(ref)                                                                                \
    "{\"meta\":$M,\"collection\":" ref ",\"schema_version\":\"$S\",\"fence\":"                     \
    "{\"schema_generation_token\":\"tok$S\"},\"definition\":" DEFINITION                           \
    ",\"active_schema_update_policy\":\"ACTIVE_SCHEMA_UPDATE_POLICY_REBUILD\"}"

static const struct input_template templates[] = {
    {"PutNamespaceMetadata", NULL,
     "{\"meta\":$M,\"namespace_name\":\"u$U\",\"encryption\":" ENCRYPTION
     ",\"options\":{\"entries\":{\"a\":\"b\"}}}",
     true},
    {"ListNamespaces", NULL, "{\"meta\":$R,\"prefix\":\"a\",\"page\":" PAGE "}", false},
    {"GetNamespaceMetadata", NULL, "{\"meta\":$R,\"namespace_name\":\"alpha\"}", false},
    {"PutCollectionMetadata", NULL,
     "{\"meta\":$M,\"name_binding\":{\"namespace_id\":$N,\"collection_name\":\"u$U\"},"
     "\"encryption\":" ENCRYPTION ",\"options\":{\"entries\":{\"a\":\"b\"}}}",
     true},
    {"ListCollections", NULL,
     "{\"meta\":$R,\"namespace_id\":$N,\"prefix\":\"b\",\"page\":" PAGE "}", false},
    {"GetCollectionMetadata", "collection", "{\"meta\":$R,\"collection\":$C}", false},
    {"GetCollectionMetadata", NULL, "{\"meta\":$R,\"name_binding\":" BINDING "}", false},
    {"PutCollectionSchema", NULL, SCHEMA("$D"), true},
    {"GetCollectionSchema", NULL, "{\"meta\":$R,\"collection\":$C}", false},
    {"GetSchemaSyncStatus", NULL, "{\"meta\":$R,\"collection\":$C}", false},
    {"DropCollection", NULL,
     "{\"meta\":$M,\"collection\":$D,\"fence\":{\"schema_generation_token\":\"none\"}}", true},
    {"GetCollectionStatistics", NULL,
     "{\"meta\":$R,\"collection\":$C,\"target_fields\":[\"a\"],"
     "\"extended_requests\":[{\"field_paths\":[\"a\",\"b\"]}]}",
     false},
    {"ResolveCollectionNameBinding", NULL, "{\"name_binding\":" BINDING "}", false},
    {"GetCollectionAdmissionState", NULL, "{\"collection\":$C,\"known_descriptor_etag\":\"e\"}",
     false},
    {"ReportSchemaConvergenceSignal", NULL,
     "{\"collection\":$D,\"schema_version\":\"1\",\"schema_generation_token\":\"none\","
     "\"signal\":\"SCHEMA_CONVERGENCE_SIGNAL_DRIFT_DETECTED\",\"reason\":\"r\"}",
     false},
    {"ReportIndexBacklog", NULL, "{\"collection\":$D,\"schema_generation_token\":\"none\"}", false},
    {"ReportServingObservation", NULL, "{\"collection\":$D,\"schema_generation_token\":\"none\"}",
     false},
    {"ResolveServingGeneration", NULL, "{\"collection\":$C}", false},
    {"ClaimLifecycleTransitions", NULL, "{\"worker_id\":\"w\"}", false},
    {"ReportLifecycleTransitionFailed", NULL, "{\"claim_id\":\"c\",\"reason\":\"r\"}", false},
    {"AcquireQuotaLease", NULL, "{\"lease\":" LEASE ",\"requested_units\":\"1\"}", true},
    {"ReturnQuotaLease", NULL, "{\"lease\":" LEASE "}", true},
    {"ReportIngestPressure", NULL,
     "{\"collection\":$C,\"throttled_dimension\":\"ingest_bytes\",\"lag_ms\":\"1\","
     "\"source\":\"INGEST_PRESSURE_SOURCE_TSO\"}",
     true},
    {"SubmitHeadAdvanceIntent", NULL,
     "{\"collection\":$D,\"new_head_version\":\"1\",\"manifest_checksum_or_etag\":\"e\"}", true},
    {"SubmitNamespaceLifecycleTransition", NULL,
     "{\"namespace_id\":$N,\"target_lifecycle_state\":\"NAMESPACE_LIFECYCLE_STATE_QUIESCING\","
     "\"expected_namespace_revision\":\"999\"}",
     true},
    {"RunReleaseSweep", NULL, "{\"namespace_id\":$N}", false},
    {"RunCatalogJob", NULL, "{\"name\":\"forget-facts\",\"collection\":$C}", false},
    {"CheckCatalog", NULL, "{\"namespace_id\":$N}", false},
    {"ShowReplay", NULL,
     "{\"command_kind\":\"DROP_COLLECTION\",\"authenticated_client_identity\":\"i\","
     "\"client_id\":\"c\",\"idempotency_key\":\"k\",\"scope\":{\"namespace_id\":$N}}",
     false},
    {"ShowQuota", NULL, "{\"namespace_id\":$N}", true},
    {"ShowStatistics", NULL, "{\"collection\":$C}", false},
    {"ShowManifestHead", NULL, "{\"collection\":$C}", false},
    {"RepairManifestHead", NULL, "{\"collection\":$C}", false},
    {"ShowLifecycleWindows", NULL, "{\"collection\":$C}", false},
    {"ShowLineage", "collection", "{\"collection\":$C}", false},
    {"ShowLineage", "name_binding", "{\"name_binding\":" BINDING "}", false},
    {"ShowLineage", NULL, "{\"namespace_name\":\"alpha\"}", false},
};

/* ---- rows --------------------------------------------------------------------------------- */

/* A string: `limit` in scalars (0 = none). `empty` and `shape` are the words for the empty text and
 * for a text that is none of those the field takes; NULL = such a text is taken. A name has rules
 * of its own for characters. Methods: "*" = all, "*M" = mutations, "*R" = the rest. */
struct text_row {
    const char *method, *path;
    unsigned limit;
    bool name;
    const char *empty, *shape;
    const char *field; /* as refused, NULL = the path */
};

#define NAME(method, path)                                                                         \
    {                                                                                              \
        (method), (path), 128, true, "empty", NULL, NULL                                           \
    }
#define PREFIX(method, path)                                                                       \
    {                                                                                              \
        (method), (path), 128, true, NULL, NULL, NULL                                              \
    }
#define TEXT(method, path, most)                                                                   \
    {                                                                                              \
        (method), (path), (most), false, "empty", NULL, NULL                                       \
    }
#define OPTIONS(method, path, as)                                                                  \
    {(method), path ".key", 128, false, "empty", NULL, as ".key"},                                 \
    {                                                                                              \
        (method), path ".value", 1024, false, NULL, NULL, as ".value"                              \
    }

/* clang-format off */
static const struct text_row texts[] = {
    TEXT("*M", "meta.idempotency_key", 128),
    {"*R", "meta.idempotency_key", 0, false, NULL, NULL, NULL}, /* reads ignore it */
    TEXT("*", "meta.correlation_id", 128),
    TEXT("*", "meta.client_id", 256),
    TEXT("*", "meta.principal_subject", 256),
    NAME("PutNamespaceMetadata", "namespace_name"),
    OPTIONS("PutNamespaceMetadata", "options.entries", "options"),
    PREFIX("ListNamespaces", "prefix"),
    {"ListNamespaces", "page.page_token", 0, false, NULL, "rejected", NULL},
    NAME("GetNamespaceMetadata", "namespace_name"),
    NAME("PutCollectionMetadata", "name_binding.collection_name"),
    OPTIONS("PutCollectionMetadata", "options.entries", "options"),
    PREFIX("ListCollections", "prefix"),
    {"ListCollections", "page.page_token", 0, false, NULL, "rejected", NULL},
    NAME("GetCollectionMetadata", "name_binding.collection_name"),
    TEXT("PutCollectionSchema", "fence.schema_generation_token", 64),
    {"PutCollectionSchema", "definition.settings.lifecycle_policy.time_partition_field", 0, false,
     "not_a_timestamp", "not_a_timestamp", NULL},
    TEXT("PutCollectionSchema", "definition.fields.name", 256),
    OPTIONS("PutCollectionSchema", "definition.fields.options", "definition.fields.options"),
    OPTIONS("PutCollectionSchema", "definition.options", "definition.options"),
    {"PutCollectionSchema", "definition.extended_statistics.field_paths", 0, false, "unknown",
     "unknown", NULL},
    TEXT("DropCollection", "fence.schema_generation_token", 64),
    {"GetCollectionStatistics", "target_fields", 256, false, "empty", "unknown", NULL},
    {"GetCollectionStatistics", "extended_requests.field_paths", 256, false, "empty", "unknown",
     "extended_requests"},
    NAME("ResolveCollectionNameBinding", "name_binding.collection_name"),
    {"GetCollectionAdmissionState", "known_descriptor_etag", 0, false, NULL, NULL, NULL}, /* compared */
    TEXT("ReportSchemaConvergenceSignal", "schema_generation_token", 64),
    TEXT("ReportSchemaConvergenceSignal", "reason", 255),
    TEXT("ReportIndexBacklog", "schema_generation_token", 64),
    TEXT("ReportServingObservation", "schema_generation_token", 64),
    {"ReportServingObservation", "definition_sha256", 0, false, NULL, "malformed", NULL},
    TEXT("ResolveServingGeneration", "expected_schema_generation_token", 64),
    TEXT("ClaimLifecycleTransitions", "worker_id", 128),
    TEXT("ReportLifecycleTransitionFailed", "claim_id", 128),
    {"ReportLifecycleTransitionFailed", "reason", 255, false, NULL, NULL, NULL},
    {"AcquireQuotaLease", "lease.throttled_dimension", 64, false, "empty", "unknown", NULL},
    TEXT("AcquireQuotaLease", "lease.lease_holder_id", 128),
    TEXT("AcquireQuotaLease", "lease.lease_request_id", 128),
    {"ReturnQuotaLease", "lease.throttled_dimension", 64, false, "empty", "unknown", NULL},
    TEXT("ReturnQuotaLease", "lease.lease_holder_id", 128),
    TEXT("ReturnQuotaLease", "lease.lease_request_id", 128),
    {"ReportIngestPressure", "throttled_dimension", 64, false, "empty", "unknown", NULL},
    TEXT("SubmitHeadAdvanceIntent", "manifest_checksum_or_etag", 255),
    {"RunCatalogJob", "name", 0, false, "unknown", "unknown", NULL},
    {"ShowReplay", "command_identity", 0, false, NULL, "malformed", NULL},
    {"ShowReplay", "command_kind", 0, false, "unknown", "unknown", NULL},
    TEXT("ShowReplay", "authenticated_client_identity", 256),
    TEXT("ShowReplay", "client_id", 256),
    TEXT("ShowReplay", "idempotency_key", 128),
    PREFIX("ShowReplay", "scope.namespace_name"),
    PREFIX("ShowReplay", "scope.collection_name"),
    NAME("ShowLineage", "namespace_name"),
    NAME("ShowLineage", "name_binding.collection_name"),
};

/* An enum; unknown values are always refused. */
static const struct {
    const char *method, *path;
    bool zero;         /* unset is taken */
    const char *field; /* as refused, NULL = the path */
} enums[] = {
    {"*", "meta.client_kind", false, NULL},
    {"PutCollectionMetadata", "collection_truth_mode", true, NULL},
    {"PutCollectionSchema", "active_schema_update_policy", true, NULL},
    {"PutCollectionSchema", "definition.collection_truth_mode", false, NULL},
    {"PutCollectionSchema", "definition.doc_id_mapping.generation_policy", false, NULL},
    {"PutCollectionSchema", "definition.settings.lifecycle_policy.transitions.target_tier", false,
     "definition.settings.lifecycle_policy.transitions"},
    {"PutCollectionSchema", "definition.settings.allocator_admission_policy.caller_profile", false,
     "definition.settings.allocator_admission_policy"},
    {"PutCollectionSchema", "definition.fields.type", false, NULL},
    {"PutCollectionSchema", "definition.fields.modalities", false, NULL},
    {"PutCollectionSchema", "definition.fields.vector.similarity", true, "definition.fields.vector"},
    {"PutCollectionSchema", "definition.undeclared_fields", true, NULL},
    {"ReportSchemaConvergenceSignal", "signal", false, NULL},
    {"AcquireQuotaLease", "lease.api_plane", false, NULL},
    {"ReturnQuotaLease", "lease.api_plane", false, NULL},
    {"ReportIngestPressure", "source", false, NULL},
    {"SubmitNamespaceLifecycleTransition", "target_lifecycle_state", false, NULL},
};

/* Ids that may be zero; every other is refused. */
static const struct {
    const char *method, *path;
} zero_ids[] = {
    {"RunReleaseSweep", "namespace_id"},
    {"CheckCatalog", "namespace_id"},
    {"ShowReplay", "scope.namespace_id"},
    {"ShowReplay", "scope.collection_id"},
};

/* Messages that may be absent; every other is required. As refused otherwise, NULL = the path. */
static const struct {
    const char *method, *path;
    const char *field; /* refused under this name; NULL = may be absent */
} absents[] = {
    {"PutNamespaceMetadata", "encryption", "encryption"}, /* of a create */
    {"PutNamespaceMetadata", "encryption.provider_managed", "encryption"},
    {"PutNamespaceMetadata", "options", NULL},
    {"ListNamespaces", "page", NULL},
    {"PutCollectionMetadata", "encryption", "encryption"},
    {"PutCollectionMetadata", "encryption.provider_managed", "encryption"},
    {"PutCollectionMetadata", "options", NULL},
    {"ListCollections", "page", NULL},
    {"GetCollectionMetadata", "collection", "lookup"},
    {"GetCollectionMetadata", "name_binding", "lookup"},
    {"PutCollectionSchema", "definition.settings",
     "definition.settings.allocator_admission_policy"}, /* of ALLOCATOR_OPTIONAL */
    {"PutCollectionSchema", "definition.settings.lifecycle_policy", NULL},
    {"DropCollection", "fence", NULL},
    {"RunCatalogJob", "collection", NULL},
    {"ShowLineage", "collection", "lookup"},
    {"ShowLineage", "name_binding", "lookup"},
};
/* clang-format on */

/* ---- cases -------------------------------------------------------------------------------- */

/* One field of one method. */
struct place {
    struct input *in;
    struct input_call call;
    const struct input_template *from;
    const char *path;  /* of the field */
    const char *field; /* as refused */
};

static bool method_fits(const struct place *at, const char *row)
{
    if (row[0] != '*')
        return strcmp(row, at->call.method->name) == 0;
    return row[1] == '\0' || (row[1] == 'M') == (strstr(at->from->json, "$M") != NULL);
}

static ProtobufCMessage *fresh(const struct place *at)
{
    return input_build(at->in, at->call.method->input, at->from);
}

static unsigned cases;      /* run */
static struct sf_buf words; /* docs/specs/core/error-codes.md */

/* The word stands in the document's table of them. */
static bool documented(const char *violation)
{
    char word[64];
    if (words.len == 0) {
        struct sf_diag diag;
        assert_int_equal(sf_file_read(SF_ERROR_CODES, 1u << 20, false, &diag, &words), SF_OK);
        sf_buf_append(&words, "", 1);
    }
    const char *table = strstr((const char *)words.data, "## Words of `violation`");
    assert_non_null(table);
    snprintf(word, sizeof(word), "`%s`", violation);
    return strstr(table, word) != NULL;
}

/* Sends the request; NULL = it must not be refused as malformed. */
static void expect(const struct place *at, const ProtobufCMessage *request, const char *what,
                   const char *field, const char *violation)
{
    struct world *w = at->in->w;
    const char *before = violation == NULL ? NULL : reject_mark(w);
    enum sf_err err = input_send(at->in, at->call.path, request);
    const char *got_field = sf_diag_get(&w->diag, "field");
    const char *got = sf_diag_get(&w->diag, "violation");
    bool right = violation == NULL
                     ? err != SF_BAD_REQUEST && err != SF_INVALID_ARGUMENT && err != SF_INTERNAL
                     : err == SF_BAD_REQUEST && got != NULL && got_field != NULL &&
                           strcmp(got, violation) == 0 && strcmp(got_field, field) == 0;
    if (!right)
        fail_msg("%s %s, %s: %s %s %s (%s) instead of %s", at->call.method->name, at->path, what,
                 sf_err_info(err)->name, got_field, got, w->diag.message,
                 violation == NULL ? "an admitted one" : violation);
    if (violation != NULL && !documented(violation))
        fail_msg("%s is no documented violation", violation);
    if (violation != NULL && strcmp(reject_mark(w), before) != 0)
        fail_msg("%s %s, %s: something was written", at->call.method->name, at->path, what);
    cases++;
}

static void try_text(const struct place *at, const char *what, const char *text,
                     const char *violation)
{
    ProtobufCMessage *request = fresh(at);
    input_set_text(input_find(request, at->path), text);
    expect(at, request, what, at->field, violation);
}

/* Bytes that are no text are found by the scan of the wire, which names elements by number. */
static void try_bytes(const struct place *at)
{
    static const char *const bad[] = {"a\xc0\xaf", "\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                      "a\xe2\x82"};
    struct place raw = *at;
    raw.field = input_wire_path(at->in, at->call.method->input, at->path);
    for (size_t i = 0; i < SF_ARRAY_LEN(bad); i++)
        try_text(&raw, "invalid UTF-8", bad[i], "invalid_utf8");
    try_text(&raw, "U+0000", "a" INPUT_NUL "b", "control_character");
}

static const char *repeat(struct world *w, const char *unit, unsigned count)
{
    struct sf_buf text = {0};
    for (unsigned i = 0; i < count; i++)
        sf_buf_append_str(&text, unit);
    const char *out = sf_arena_str(w->arena, sf_buf_view(&text));
    sf_buf_fini(&text);
    return out;
}

static void try_row(const struct place *at, const struct text_row *row)
{
    static const struct {
        const char *text, *word; /* the word is a name's */
    } odd[] = {
        {"e\xcc\x81", "not_nfc"},
        {"a\xd8\x9c", "bidi_control"},
        {"a\xe2\x80\x8e", "bidi_control"},
        {"a\xe2\x80\xae", "bidi_control"},
        {"a\xe2\x81\xa6", "bidi_control"},
        {"a\xc2\xad", "default_ignorable"},
        {"\xe2\x80\x8b", "default_ignorable"},
        {"a\xef\xbb\xbf", "default_ignorable"},
        {"a\x1f", "control_character"},
        {"a\x7f", "control_character"},
        {"a\xc2\x85", "control_character"},
        {"\xef\xb7\x90", "noncharacter"},
        {"a\xef\xbf\xbf", "noncharacter"},
        {"\xf4\x8f\xbf\xbf", "noncharacter"},
    };
    struct world *w = at->in->w;
    const ProtobufCFieldDescriptor *desc = input_find(fresh(at), at->path).desc;
    bool branch = at->from->branch == NULL && strchr(at->path, '.') == NULL &&
                  (desc->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0 && row->name;
    try_text(at, "empty", "", row->empty);
    ProtobufCMessage *request = fresh(at);
    input_clear(input_find(request, at->path));
    if (branch) /* of a lookup */
        expect(at, request, "absent", "lookup", "missing");
    else
        expect(at, request, "absent", at->field,
               (desc->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0 ? NULL : row->empty);
    if (row->limit != 0) {
        try_text(at, "limit", repeat(w, "\xf0\x9f\x98\x80", row->limit), row->shape);
        try_text(at, "limit + 1", repeat(w, "x", row->limit + 1), "too_long");
        try_text(at, "limit + 1", repeat(w, "\xf0\x9f\x98\x80", row->limit + 1), "too_long");
    } else {
        try_text(at, "long", repeat(w, "x", 10000), row->shape);
    }
    for (size_t i = 0; i < SF_ARRAY_LEN(odd); i++)
        try_text(at, odd[i].word, odd[i].text, row->name ? odd[i].word : row->shape);
    try_bytes(at);
}

/* ---- the walk ----------------------------------------------------------------------------- */

/* What is done with each field that is found. */
typedef void (*visit_fn)(struct place *at, const ProtobufCFieldDescriptor *field);

static const struct input_template *template_of(const char *method, const char *path)
{
    for (size_t i = 0; i < SF_ARRAY_LEN(templates); i++) {
        const char *branch = templates[i].branch;
        size_t n = branch == NULL ? 0 : strlen(branch);
        if (strcmp(templates[i].method, method) == 0 &&
            (n == 0 || (strncmp(path, branch, n) == 0 && (path[n] == '.' || path[n] == '\0'))))
            return &templates[i];
    }
    return NULL;
}

static void walk_fields(struct place *at, const ProtobufCMessageDescriptor *desc,
                        const char *prefix, visit_fn visit)
{
    for (unsigned i = 0; i < desc->n_fields; i++) {
        char path[200];
        snprintf(path, sizeof(path), "%s%s%s", prefix, prefix[0] == '\0' ? "" : ".",
                 desc->fields[i].name);
        at->path = at->field = path;
        at->from = template_of(at->call.method->name, path);
        visit(at, &desc->fields[i]);
        if (desc->fields[i].type == PROTOBUF_C_TYPE_MESSAGE)
            walk_fields(at, desc->fields[i].descriptor, path, visit);
    }
}

static void walk(struct input *in, visit_fn visit)
{
    static const ProtobufCServiceDescriptor *const services[] = {
        &searchfabric__v1__catalog_control_service__descriptor,
        &searchfabric__v1__catalog_control_private_service__descriptor,
        &searchfabric__v1__catalog_operations_service__descriptor,
    };
    for (size_t i = 0; i < SF_ARRAY_LEN(services); i++) {
        for (unsigned k = 0; k < services[i]->n_methods; k++) {
            char path[160];
            struct place at = {.in = in, .call.method = &services[i]->methods[k]};
            snprintf(path, sizeof(path), "/%s/%s", services[i]->name, at.call.method->name);
            at.call.path = path;
            walk_fields(&at, at.call.method->input, "", visit);
        }
    }
}

static bool used_texts[SF_ARRAY_LEN(texts)];
static bool used_enums[SF_ARRAY_LEN(enums)];
static bool used_absents[SF_ARRAY_LEN(absents)];

static void visit_text(struct place *at, const ProtobufCFieldDescriptor *field)
{
    if (field->type != PROTOBUF_C_TYPE_STRING)
        return;
    if (at->from == NULL)
        fail_msg("%s has no template", at->call.method->name);
    for (size_t i = 0; i < SF_ARRAY_LEN(texts); i++) {
        if (!method_fits(at, texts[i].method) || strcmp(texts[i].path, at->path) != 0)
            continue;
        used_texts[i] = true;
        if (texts[i].field != NULL)
            at->field = texts[i].field;
        try_row(at, &texts[i]);
        return;
    }
    fail_msg("%s: the string %s is in no row", at->call.method->name, at->path);
}

static void try_number(struct place *at, const char *what, uint64_t number, const char *violation)
{
    ProtobufCMessage *request = fresh(at);
    input_set_number(input_find(request, at->path), number);
    expect(at, request, what, at->field, violation);
}

static void visit_enum(struct place *at, const ProtobufCFieldDescriptor *field)
{
    if (field->type != PROTOBUF_C_TYPE_ENUM)
        return;
    if (at->from == NULL)
        fail_msg("%s has no template", at->call.method->name);
    const ProtobufCEnumDescriptor *desc = field->descriptor;
    int greatest = desc->values[desc->n_values - 1].value;
    for (size_t i = 0; i < SF_ARRAY_LEN(enums); i++) {
        if (!method_fits(at, enums[i].method) || strcmp(enums[i].path, at->path) != 0)
            continue;
        used_enums[i] = true;
        if (enums[i].field != NULL)
            at->field = enums[i].field;
        try_number(at, "unset", 0, enums[i].zero ? NULL : "unknown");
        try_number(at, "one too many", (uint64_t)greatest + 1, "unknown");
        try_number(at, "far", 77, "unknown");
        try_number(at, "negative", UINT32_MAX, "unknown");
        return;
    }
    fail_msg("%s: the enum %s is in no row", at->call.method->name, at->path);
}

static void visit_id(struct place *at, const ProtobufCFieldDescriptor *field)
{
    size_t n = strlen(field->name);
    bool may = false;
    if (field->type != PROTOBUF_C_TYPE_UINT64 || n < 3 || strcmp(field->name + n - 3, "_id") != 0)
        return;
    if (at->from == NULL)
        fail_msg("%s has no template", at->call.method->name);
    for (size_t i = 0; i < SF_ARRAY_LEN(zero_ids); i++)
        may = may || (strcmp(zero_ids[i].method, at->call.method->name) == 0 &&
                      strcmp(zero_ids[i].path, at->path) == 0);
    try_number(at, "zero", 0, may ? NULL : "zero");
}

/* Sends `request` with an unknown field in `target`, which is it or within it. */
static void try_unknown(const struct place *at, const ProtobufCMessage *request,
                        ProtobufCMessage *target)
{
    static uint8_t one = 1;
    ProtobufCMessageUnknownField unknown = {
        .tag = 9999, .wire_type = PROTOBUF_C_WIRE_TYPE_VARINT, .len = 1, .data = &one};
    target->n_unknown_fields = 1;
    target->unknown_fields = &unknown;
    expect(at, request, "unknown field", target->descriptor->short_name,
           at->from->strict ? "unknown_field" : NULL);
}

static void visit_message(struct place *at, const ProtobufCFieldDescriptor *field)
{
    if (field->type != PROTOBUF_C_TYPE_MESSAGE)
        return;
    if (at->from == NULL)
        fail_msg("%s has no template", at->call.method->name);
    ProtobufCMessage *request = fresh(at);
    char inner[220];
    const ProtobufCMessageDescriptor *desc = field->descriptor;
    ProtobufCMessage *target = request;
    if (desc->n_fields != 0) {
        snprintf(inner, sizeof(inner), "%s.%s", at->path, desc->fields[0].name);
        target = input_find(request, inner).owner;
    }
    try_unknown(at, request, target);
}

static void visit_absent(struct place *at, const ProtobufCFieldDescriptor *field)
{
    const char *violation = "missing";
    if (field->type != PROTOBUF_C_TYPE_MESSAGE || field->label == PROTOBUF_C_LABEL_REPEATED)
        return;
    for (size_t i = 0; i < SF_ARRAY_LEN(absents); i++) {
        if (strcmp(absents[i].method, at->call.method->name) != 0 ||
            strcmp(absents[i].path, at->path) != 0)
            continue;
        used_absents[i] = true;
        at->field = absents[i].field;
        violation = at->field == NULL ? NULL : violation;
    }
    ProtobufCMessage *request = fresh(at);
    input_clear(input_find(request, at->path));
    expect(at, request, "absent", at->field, violation);
}

/* ---- tests -------------------------------------------------------------------------------- */

static int setup(void **state)
{
    static const struct input_template schema = {"PutCollectionSchema", NULL, SCHEMA("$C"), true};
    struct input *in = input_new();
    ProtobufCMessage *put =
        input_build(in, &searchfabric__v1__put_collection_schema_request__descriptor, &schema);
    assert_non_null(world_call(in->w, "PutCollectionSchema", put));
    world_ready(in->w, in->ns, in->ready, 1, "tok1");
    *state = in;
    return 0;
}

static int teardown(void **state)
{
    input_destroy(*state);
    return 0;
}

/* The templates themselves are admitted, and with an unknown field at the top as they say. */
static void test_templates(void **state)
{
    static const ProtobufCServiceDescriptor *const services[] = {
        &searchfabric__v1__catalog_control_service__descriptor,
        &searchfabric__v1__catalog_control_private_service__descriptor,
        &searchfabric__v1__catalog_operations_service__descriptor,
    };
    for (size_t i = 0; i < SF_ARRAY_LEN(templates); i++) {
        const ProtobufCMethodDescriptor *method = NULL;
        char path[160] = "";
        for (size_t k = 0; k < SF_ARRAY_LEN(services) && method == NULL; k++) {
            method =
                protobuf_c_service_descriptor_get_method_by_name(services[k], templates[i].method);
            snprintf(path, sizeof(path), "/%s/%s", services[k]->name, templates[i].method);
        }
        assert_non_null(method);
        struct place at = {.in = *state,
                           .call = {method, path},
                           .from = &templates[i],
                           .path = "",
                           .field = method->input->short_name};
        expect(&at, fresh(&at), "template", NULL, NULL);
        ProtobufCMessage *request = fresh(&at);
        try_unknown(&at, request, request);
    }
}

static void test_texts(void **state)
{
    SF_PROVES("CCS-3.1-14", "CCS-3.1-15", "CCS-3.1-16", "CCS-3.1-17", "CCS-3.1-18", "CCS-3.1-19",
              "CCS-3.1-22", "CCS-3.1-23", "CCS-3.1-24", "CCS-3.1-25", "CCS-10.2-02", "CCS-10.2-03");
    cases = 0;
    walk(*state, visit_text);
    for (size_t i = 0; i < SF_ARRAY_LEN(texts); i++) {
        if (!used_texts[i])
            fail_msg("no string is at %s %s", texts[i].method, texts[i].path);
    }
    print_message("%u cases\n", cases);
    assert_true(cases > 2000);
}

/* Each mutation with a key that is absent, empty, one too long and as long as may be. */
static void test_idempotency_keys(void **state)
{
    struct input *in = *state;
    SF_PROVES("CCS-3.1-21");
    static const struct input_template drop = {"DropCollection", NULL,
                                               "{\"meta\":$M,\"collection\":$D}", true};
    static const struct {
        const char *method;
        const ProtobufCMessageDescriptor *desc;
    } mutations[] = {
        {"PutNamespaceMetadata", &searchfabric__v1__put_namespace_metadata_request__descriptor},
        {"PutCollectionMetadata", &searchfabric__v1__put_collection_metadata_request__descriptor},
        {"PutCollectionSchema", &searchfabric__v1__put_collection_schema_request__descriptor},
        {"DropCollection", &searchfabric__v1__drop_collection_request__descriptor},
    };
    const struct {
        const char *key, *word; /* key NULL = absent, word NULL = succeeds */
    } keys[] = {{NULL, "empty"},
                {"", "empty"},
                {repeat(in->w, "x", 129), "too_long"},
                {repeat(in->w, "\xf0\x9f\x98\x80", 129), "too_long"},
                {repeat(in->w, "\xf0\x9f\x98\x80", 128), NULL}};
    for (size_t i = 0; i < SF_ARRAY_LEN(mutations); i++) {
        char path[160];
        snprintf(path, sizeof(path), "/searchfabric.v1.CatalogControlService/%s",
                 mutations[i].method);
        for (size_t k = 0; k < SF_ARRAY_LEN(keys); k++) {
            const struct input_template *from =
                i == 3 ? &drop : template_of(mutations[i].method, "");
            ProtobufCMessage *request = input_build(in, mutations[i].desc, from);
            struct input_field field = input_find(request, "meta.idempotency_key");
            const char *before = reject_mark(in->w);
            if (keys[k].key == NULL)
                input_clear(field);
            else
                input_set_text(field, keys[k].key);
            enum sf_err err = input_send(in, path, request);
            assert_int_equal(err, keys[k].word == NULL ? SF_OK : SF_BAD_REQUEST);
            if (keys[k].word == NULL)
                continue;
            assert_string_equal(sf_diag_get(&in->w->diag, "field"), "meta.idempotency_key");
            assert_string_equal(sf_diag_get(&in->w->diag, "violation"), keys[k].word);
            assert_string_equal(reject_mark(in->w), before);
        }
    }
}

static void test_enums(void **state)
{
    walk(*state, visit_enum);
    for (size_t i = 0; i < SF_ARRAY_LEN(enums); i++) {
        if (!used_enums[i])
            fail_msg("no enum is at %s %s", enums[i].method, enums[i].path);
    }
}

static void test_ids(void **state)
{
    walk(*state, visit_id);
}

static void test_unknown_fields(void **state)
{
    walk(*state, visit_message);
}

static void test_absent_messages(void **state)
{
    walk(*state, visit_absent);
    for (size_t i = 0; i < SF_ARRAY_LEN(absents); i++) {
        if (!used_absents[i])
            fail_msg("no message is at %s %s", absents[i].method, absents[i].path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_templates, setup, teardown),
        cmocka_unit_test_setup_teardown(test_texts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_idempotency_keys, setup, teardown),
        cmocka_unit_test_setup_teardown(test_enums, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ids, setup, teardown),
        cmocka_unit_test_setup_teardown(test_absent_messages, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unknown_fields, setup, teardown),
    };
    int failed = SF_RUN_TESTS("catalog_input", tests);
    sf_buf_fini(&words);
    return failed;
}
