/*
 * Model: one walk over the body. Settings are flattened to dotted names without the leading
 * "index."; `properties` are flattened to dotted field names. A field's type picks the row of a
 * table; its parameters must be on a list and are kept as text. Vectors are indexed by semantic
 * search, everything else by metadata search.
 */
#include "gateway/es_mapping.h"

#include <stdlib.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"

#define MAX_FIELDS         1000
#define MAX_FIELD_OPTIONS  32
#define MAX_SCHEMA_OPTIONS 64
#define MAX_DEPTH          20 /* Elasticsearch's own limit on nesting of mappings */
#define NAME_BYTES         1024
#define OPTION_SCALARS     1024

/* Ceilings of collections that the edge creates: the allocator's own, and a jump over half of the
 * ids. Documents bring ids of any scheme, and every id that is a signed 64-bit number is one jump
 * away from an empty index; but no single id uses up the space. */
#define PLAN_ITEMS   SF_LIMIT_ALLOC_PLAN_ITEMS
#define FORWARD_JUMP ((uint64_t)INT64_MAX)

#define SETTING_JUMP "search_fabric.max_forward_reservation_jump"

/* An Elasticsearch type and what it becomes. */
struct type_row {
    const char *es;
    Searchfabric__V1__FieldType type;
    bool canonical; /* the type that a field of this kind is shown as when it kept no other name */
};

#define T(name) SEARCHFABRIC__V1__FIELD_TYPE__FIELD_TYPE_##name

static const struct type_row types[] = {
    {"keyword", T(KEYWORD), true},
    {"text", T(TEXT), true},
    {"long", T(INT64), true},
    {"integer", T(INT64), false},
    {"short", T(INT64), false},
    {"byte", T(INT64), false},
    {"unsigned_long", T(UINT64), true},
    {"double", T(FLOAT64), true},
    {"float", T(FLOAT64), false},
    {"half_float", T(FLOAT64), false},
    {"boolean", T(BOOL), true},
    {"date", T(TIMESTAMP), true},
    {"dense_vector", T(DENSE_VECTOR), true},
    {"geo_point", T(GEO_POINT), true},
    {"ip", T(IP), true},
    {"binary", T(BINARY), true},
    {"flattened", T(OBJECT), true},
    {"match_only_text", T(TEXT), false},
    {"wildcard", T(KEYWORD), false},
};

/* Parameters that are kept for the engine. */
static const char *const parameters[] = {
    "analyzer",
    "search_analyzer",
    "search_quote_analyzer",
    "ignore_above",
    "norms",
    "format",
    "coerce",
    "index",
    "doc_values",
    "store",
    "null_value",
    "fields",
    "term_vector",
    "index_options",
    "locale",
    "ignore_malformed",
    "position_increment_gap",
    "eager_global_ordinals",
    "meta",
    "fielddata",
};

/* Settings that are kept for the engine. */
static const char *const settings_kept[] = {"number_of_shards", "number_of_replicas",
                                            "refresh_interval", "hidden", "codec"};

struct mapping {
    struct sf_json json;
    struct sf_arena *arena;
    struct sf_es_error *error;
    Searchfabric__V1__CollectionSchemaDefinition *definition;
    Searchfabric__V1__CollectionSettings *settings;
    Searchfabric__V1__AllocatorAdmissionPolicy *policy;
    char name[NAME_BYTES]; /* dotted, of the present setting or field */
    size_t name_len;
};

static bool refuse(struct mapping *m, const char *type, const char *format, const char *name,
                   size_t len)
{
    if (m->error->status == 0) {
        char *reason = sf_arena_printf(m->arena, format, (int)len, name);
        *m->error = (struct sf_es_error){
            400, type, reason != NULL ? reason : "the mapping exceeds its memory"};
    }
    (void)sf_json_fail(&m->json, "refused");
    return false;
}

static bool refuse_name(struct mapping *m, const char *type, const char *format)
{
    return refuse(m, type, format, m->name, m->name_len);
}

static bool refuse_str(struct mapping *m, const char *type, const char *format,
                       struct sf_json_str text)
{
    return refuse(m, type, format, (const char *)text.raw.ptr, text.raw.len);
}

static bool no_memory(struct mapping *m)
{
    return refuse(m, "illegal_argument_exception", "the mapping exceeds its memory%.*s", "", 0);
}

static bool name_push(struct mapping *m, struct sf_json_str part, size_t *out_before)
{
    size_t dot = m->name_len == 0 ? 0 : 1;

    *out_before = m->name_len;
    if (m->name_len + dot + part.raw.len >= sizeof(m->name) || part.raw.len == 0)
        return refuse_str(m, "mapper_parsing_exception", "name [%.*s] is empty or too long", part);
    if (dot == 1)
        m->name[m->name_len] = '.';
    m->name_len += dot;
    m->name_len += sf_json_unescape(part, m->name + m->name_len);
    m->name[m->name_len] = '\0';
    if (memchr(m->name, '\0', m->name_len) != NULL)
        return refuse_str(m, "mapper_parsing_exception", "name [%.*s] holds U+0000", part);
    return true;
}

static void name_pop(struct mapping *m, size_t before)
{
    m->name_len = before;
    m->name[before] = '\0';
}

/* A scalar as text (strings decoded, else as written), or any value as its JSON when `any`. */
static bool value_text(struct mapping *m, bool any, char **out_text)
{
    struct sf_json_str text;
    struct sf_view raw;

    switch (sf_json_peek(&m->json)) {
    case SF_JSON_ERROR:
        return false;
    case SF_JSON_STRING: {
        if (!sf_json_string(&m->json, &text))
            return false;
        char *copy = sf_arena_alloc(m->arena, text.raw.len + 1);
        if (copy == NULL)
            return no_memory(m);
        size_t len = sf_json_unescape(text, copy);
        if (memchr(copy, '\0', len) != NULL)
            return refuse_name(m, "illegal_argument_exception", "[%.*s] holds U+0000");
        *out_text = copy;
        break;
    }
    case SF_JSON_OBJECT:
    case SF_JSON_ARRAY:
        if (!any)
            return refuse_name(m, "illegal_argument_exception", "[%.*s] must be a plain value");
        /* fallthrough */
    default:
        if (!sf_json_skip(&m->json, &raw))
            return false;
        *out_text = sf_arena_str(m->arena, raw);
        if (*out_text == NULL)
            return no_memory(m);
        break;
    }
    if (sf_utf8_scalars(sf_view_str(*out_text)) > OPTION_SCALARS)
        return refuse_name(m, "illegal_argument_exception", "the value of [%.*s] is too long");
    return true;
}

/* ---- settings -------------------------------------------------------------------------------- */

static bool add_option(struct mapping *m, const char *key, char *value)
{
    Searchfabric__V1__CollectionSchemaDefinition *d = m->definition;
    Searchfabric__V1__CollectionSchemaDefinition__OptionsEntry *entry;

    if (d->options == NULL)
        d->options = sf_arena_alloc(m->arena, MAX_SCHEMA_OPTIONS * sizeof(*d->options));
    if (d->options == NULL || d->n_options == MAX_SCHEMA_OPTIONS)
        return no_memory(m);
    entry = sf_arena_alloc(m->arena, sizeof(*entry));
    if (entry == NULL)
        return no_memory(m);
    searchfabric__v1__collection_schema_definition__options_entry__init(entry);
    entry->key = sf_arena_printf(m->arena, "index.%s", key);
    entry->value = value;
    if (entry->key == NULL)
        return no_memory(m);
    d->options[d->n_options++] = entry;
    return true;
}

static bool setting_number(struct mapping *m, const char *text, uint64_t max, uint64_t *out_value)
{
    if (sf_parse_u64(sf_view_str(text), out_value) && *out_value >= 1 && *out_value <= max)
        return true;
    return refuse_name(m, "illegal_argument_exception",
                       "Failed to parse the value of setting [index.%.*s]");
}

static bool setting_set(struct mapping *m)
{
    const char *name = strncmp(m->name, "index.", 6) == 0 ? m->name + 6 : m->name;
    char *text = NULL;
    uint64_t number;

    for (size_t i = 0; i < SF_ARRAY_LEN(settings_kept); i++)
        if (strcmp(name, settings_kept[i]) == 0)
            return value_text(m, false, &text) && add_option(m, name, text);
    if (strcmp(name, "max_result_window") == 0) {
        if (!value_text(m, false, &text) || !setting_number(m, text, 1000000, &number))
            return false;
        m->settings->_max_result_window_case =
            SEARCHFABRIC__V1__COLLECTION_SETTINGS___MAX_RESULT_WINDOW_MAX_RESULT_WINDOW;
        m->settings->max_result_window = (uint32_t)number;
        return true;
    }
    if (strcmp(name, SETTING_JUMP) == 0)
        return value_text(m, false, &text) &&
               setting_number(m, text, UINT64_MAX, &m->policy->max_forward_reservation_jump);
    return refuse(m, "illegal_argument_exception", "unknown setting [index.%.*s]: it is not served",
                  name, strlen(name));
}

static bool read_settings(struct mapping *m, unsigned depth)
{
    struct sf_json_str part;

    if (sf_json_peek(&m->json) == SF_JSON_NULL)
        return sf_json_null(&m->json);
    if (!sf_json_object_begin(&m->json))
        return false;
    while (sf_json_object_next(&m->json, &part)) {
        size_t before;
        if (!name_push(m, part, &before))
            return false;
        bool ok = sf_json_peek(&m->json) == SF_JSON_OBJECT && depth < MAX_DEPTH
                      ? read_settings(m, depth + 1)
                      : setting_set(m);
        if (!ok)
            return false;
        name_pop(m, before);
    }
    return m->json.error == NULL;
}

/* ---- fields ---------------------------------------------------------------------------------- */

static bool field_option(struct mapping *m, Searchfabric__V1__FieldDefinition *field,
                         const char *key, char *value)
{
    Searchfabric__V1__FieldDefinition__OptionsEntry *entry;

    if (field->options == NULL)
        field->options = sf_arena_alloc(m->arena, MAX_FIELD_OPTIONS * sizeof(*field->options));
    if (field->options == NULL || field->n_options == MAX_FIELD_OPTIONS)
        return no_memory(m);
    entry = sf_arena_alloc(m->arena, sizeof(*entry));
    if (entry == NULL)
        return no_memory(m);
    searchfabric__v1__field_definition__options_entry__init(entry);
    entry->key = sf_arena_str(m->arena, sf_view_str(key));
    entry->value = value;
    if (entry->key == NULL)
        return no_memory(m);
    field->options[field->n_options++] = entry;
    return true;
}

static bool vector_parameter(struct mapping *m, Searchfabric__V1__FieldDefinition *field,
                             struct sf_json_str name, bool *out_done)
{
    char *text;
    uint64_t dims;

    *out_done = true;
    if (field->vector == NULL) {
        field->vector = sf_arena_alloc(m->arena, sizeof(*field->vector));
        if (field->vector == NULL)
            return no_memory(m);
        searchfabric__v1__vector_settings__init(field->vector);
    }
    if (sf_json_str_is(name, "dims")) {
        if (!value_text(m, false, &text))
            return false;
        if (!sf_parse_u64(sf_view_str(text), &dims) || dims < 1 || dims > 4096)
            return refuse_name(m, "mapper_parsing_exception",
                               "The number of dimensions for field [%.*s] should be in the range "
                               "[1, 4096]");
        field->vector->dimensions = (uint32_t)dims;
        return true;
    }
    if (sf_json_str_is(name, "similarity")) {
        if (!value_text(m, false, &text))
            return false;
        if (strcmp(text, "cosine") == 0)
            field->vector->similarity =
                SEARCHFABRIC__V1__VECTOR_SIMILARITY__VECTOR_SIMILARITY_COSINE;
        else if (strcmp(text, "dot_product") == 0)
            field->vector->similarity =
                SEARCHFABRIC__V1__VECTOR_SIMILARITY__VECTOR_SIMILARITY_DOT_PRODUCT;
        else if (strcmp(text, "l2_norm") == 0)
            field->vector->similarity = SEARCHFABRIC__V1__VECTOR_SIMILARITY__VECTOR_SIMILARITY_L2;
        else
            return refuse_name(m, "mapper_parsing_exception",
                               "the similarity of field [%.*s] is not served");
        return true;
    }
    if (sf_json_str_is(name, "element_type")) {
        if (!value_text(m, false, &text))
            return false;
        return strcmp(text, "float") == 0 ||
               refuse_name(m, "mapper_parsing_exception",
                           "the element_type of field [%.*s] is not served");
    }
    *out_done = false;
    return true;
}

static bool field_parameter(struct mapping *m, Searchfabric__V1__FieldDefinition *field,
                            struct sf_json_str name)
{
    char *text;

    if (field->type == T(DENSE_VECTOR)) {
        bool done;
        if (!vector_parameter(m, field, name, &done) || done)
            return m->json.error == NULL;
    }
    for (size_t i = 0; i < SF_ARRAY_LEN(parameters); i++)
        if (sf_json_str_is(name, parameters[i]))
            return value_text(m, true, &text) && field_option(m, field, parameters[i], text);
    char *shown = sf_arena_printf(m->arena, "%.*s", (int)name.raw.len, (const char *)name.raw.ptr);
    char *reason =
        shown == NULL
            ? NULL
            : sf_arena_printf(m->arena, "unknown parameter [%s] on mapper [%s]: it is not served",
                              shown, m->name);
    if (reason == NULL)
        return no_memory(m);
    return refuse(m, "mapper_parsing_exception", "%.*s", reason, strlen(reason));
}

static const struct type_row *type_of(const char *es)
{
    for (size_t i = 0; i < SF_ARRAY_LEN(types); i++)
        if (strcmp(types[i].es, es) == 0)
            return &types[i];
    return NULL;
}

/* Finds "type" and whether there are "properties", without moving the cursor. */
static bool field_peek(struct mapping *m, char **out_type, bool *out_properties)
{
    struct sf_json saved = m->json;
    struct sf_json_str name;
    bool ok = true;

    *out_type = NULL;
    *out_properties = false;
    if (!sf_json_object_begin(&m->json))
        return false;
    while (ok && sf_json_object_next(&m->json, &name)) {
        if (sf_json_str_is(name, "type")) {
            ok = value_text(m, false, out_type);
        } else {
            *out_properties |= sf_json_str_is(name, "properties");
            ok = sf_json_skip(&m->json, NULL);
        }
    }
    if (!ok || m->json.error != NULL)
        return false;
    m->json = saved;
    return true;
}

static Searchfabric__V1__FieldDefinition *field_new(struct mapping *m, const struct type_row *row)
{
    Searchfabric__V1__CollectionSchemaDefinition *d = m->definition;
    Searchfabric__V1__FieldDefinition *field = sf_arena_alloc(m->arena, sizeof(*field));

    if (d->fields == NULL)
        d->fields = sf_arena_alloc(m->arena, MAX_FIELDS * sizeof(*d->fields));
    if (field == NULL || d->fields == NULL) {
        (void)no_memory(m);
        return NULL;
    }
    if (d->n_fields == MAX_FIELDS) {
        (void)refuse_name(m, "illegal_argument_exception",
                          "Limit of total fields [1000] has been exceeded at [%.*s]");
        return NULL;
    }
    searchfabric__v1__field_definition__init(field);
    field->name = sf_arena_str(m->arena, sf_view_bytes(m->name, m->name_len));
    field->type = row->type;
    field->n_modalities = 1;
    field->modalities = sf_arena_alloc(m->arena, sizeof(*field->modalities));
    if (field->name == NULL || field->modalities == NULL) {
        (void)no_memory(m);
        return NULL;
    }
    field->modalities[0] = row->type == T(DENSE_VECTOR)
                               ? SEARCHFABRIC__V1__MODALITY__MODALITY_SEMANTIC_SEARCH
                               : SEARCHFABRIC__V1__MODALITY__MODALITY_METADATA_SEARCH;
    d->fields[d->n_fields++] = field;
    return field;
}

static bool read_leaf(struct mapping *m, const char *es_type)
{
    const struct type_row *row = type_of(es_type);
    struct sf_json_str name;

    if (row == NULL) {
        char *reason = sf_arena_printf(
            m->arena, "No handler for type [%s] declared on field [%s]: it is not served", es_type,
            m->name);
        return reason == NULL
                   ? no_memory(m)
                   : refuse(m, "mapper_parsing_exception", "%.*s", reason, strlen(reason));
    }
    Searchfabric__V1__FieldDefinition *field = field_new(m, row);
    if (field == NULL)
        return false;
    if (!row->canonical) {
        char *kept = sf_arena_str(m->arena, sf_view_str(es_type));
        if (kept == NULL || !field_option(m, field, "type", kept))
            return no_memory(m);
    }
    if (!sf_json_object_begin(&m->json))
        return false;
    while (sf_json_object_next(&m->json, &name)) {
        bool ok = sf_json_str_is(name, "type") ? sf_json_skip(&m->json, NULL)
                                               : field_parameter(m, field, name);
        if (!ok)
            return false;
    }
    if (m->json.error != NULL)
        return false;
    if (row->type == T(DENSE_VECTOR) && (field->vector == NULL || field->vector->dimensions == 0))
        return refuse_name(m, "mapper_parsing_exception",
                           "field [%.*s] of type dense_vector needs [dims]");
    return true;
}

static bool read_properties(struct mapping *m, unsigned depth);

/* An object: its properties, or (enabled: false, or nothing declared) one stored field. */
static bool read_object(struct mapping *m, bool has_properties, unsigned depth)
{
    static const struct type_row stored = {"object", T(OBJECT), false};
    struct sf_json_str name;
    bool flag;

    if (!has_properties) {
        Searchfabric__V1__FieldDefinition *field = field_new(m, &stored);
        char *kept = sf_arena_str(m->arena, sf_view_str("object"));
        if (field == NULL || kept == NULL || !field_option(m, field, "type", kept))
            return field == NULL ? false : no_memory(m);
    }
    if (!sf_json_object_begin(&m->json))
        return false;
    while (sf_json_object_next(&m->json, &name)) {
        bool ok;
        if (sf_json_str_is(name, "type"))
            ok = sf_json_skip(&m->json, NULL);
        else if (sf_json_str_is(name, "properties"))
            ok = read_properties(m, depth + 1);
        else if (sf_json_str_is(name, "enabled") && !has_properties)
            ok = sf_json_bool(&m->json, &flag);
        else
            ok = refuse_str(m, "mapper_parsing_exception",
                            "parameter [%.*s] of an object is not served", name);
        if (!ok)
            return false;
    }
    return m->json.error == NULL;
}

static bool read_field(struct mapping *m, unsigned depth)
{
    char *type = NULL;
    bool has_properties;

    if (sf_json_peek(&m->json) != SF_JSON_OBJECT)
        return refuse_name(m, "mapper_parsing_exception",
                           "Expected map for property of field [%.*s]");
    if (!field_peek(m, &type, &has_properties))
        return false;
    if (type == NULL && !has_properties)
        return refuse_name(m, "mapper_parsing_exception", "No type specified for field [%.*s]");
    if (type == NULL || strcmp(type, "object") == 0)
        return read_object(m, has_properties, depth);
    return read_leaf(m, type);
}

static bool read_properties(struct mapping *m, unsigned depth)
{
    struct sf_json_str part;

    if (depth > MAX_DEPTH)
        return refuse_name(m, "illegal_argument_exception",
                           "Limit of mapping depth [20] has been exceeded at [%.*s]");
    if (sf_json_peek(&m->json) == SF_JSON_NULL)
        return sf_json_null(&m->json);
    if (!sf_json_object_begin(&m->json))
        return false;
    while (sf_json_object_next(&m->json, &part)) {
        size_t before;
        if (!name_push(m, part, &before) || !read_field(m, depth))
            return false;
        name_pop(m, before);
    }
    return m->json.error == NULL;
}

static bool read_dynamic(struct mapping *m)
{
    char *text = NULL;

    if (!value_text(m, false, &text) || text == NULL)
        return false;
    if (strcmp(text, "strict") == 0)
        m->definition->undeclared_fields =
            SEARCHFABRIC__V1__UNDECLARED_FIELD_POLICY__UNDECLARED_FIELD_POLICY_REJECT;
    else if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
        return refuse(m, "mapper_parsing_exception", "[dynamic] of [%.*s] is not served", text,
                      strlen(text));
    return true;
}

static bool read_mappings(struct mapping *m)
{
    struct sf_json_str name;

    if (sf_json_peek(&m->json) == SF_JSON_NULL)
        return sf_json_null(&m->json);
    if (!sf_json_object_begin(&m->json))
        return false;
    while (sf_json_object_next(&m->json, &name)) {
        bool ok;
        if (sf_json_str_is(name, "properties"))
            ok = read_properties(m, 1);
        else if (sf_json_str_is(name, "dynamic"))
            ok = read_dynamic(m);
        else
            ok = refuse_str(m, "mapper_parsing_exception",
                            "Root mapping definition has unsupported parameters: [%.*s]", name);
        if (!ok)
            return false;
    }
    return m->json.error == NULL;
}

/* ---- the body -------------------------------------------------------------------------------- */

static bool read_empty_object(struct mapping *m, struct sf_json_str name)
{
    struct sf_json_str member;

    if (!sf_json_object_begin(&m->json))
        return false;
    if (sf_json_object_next(&m->json, &member))
        return refuse_str(m, "illegal_argument_exception", "[%.*s] is not served", name);
    return m->json.error == NULL;
}

static bool read_body(struct mapping *m)
{
    struct sf_json_str name;

    if (!sf_json_object_begin(&m->json))
        return false;
    while (sf_json_object_next(&m->json, &name)) {
        bool ok;
        m->name_len = 0;
        if (sf_json_str_is(name, "settings"))
            ok = read_settings(m, 1);
        else if (sf_json_str_is(name, "mappings"))
            ok = read_mappings(m);
        else if (sf_json_str_is(name, "aliases"))
            ok = read_empty_object(m, name);
        else
            ok = refuse_str(m, "parse_exception", "unknown key [%.*s] for create index", name);
        if (!ok)
            return false;
    }
    return sf_json_end(&m->json);
}

static bool definition_new(struct mapping *m)
{
    Searchfabric__V1__CollectionSchemaDefinition *d = sf_arena_alloc(m->arena, sizeof(*d));
    Searchfabric__V1__DocIDMapping *ids = sf_arena_alloc(m->arena, sizeof(*ids));

    m->settings = sf_arena_alloc(m->arena, sizeof(*m->settings));
    m->policy = sf_arena_alloc(m->arena, sizeof(*m->policy));
    if (d == NULL || ids == NULL || m->settings == NULL || m->policy == NULL)
        return no_memory(m);
    searchfabric__v1__collection_schema_definition__init(d);
    searchfabric__v1__doc_idmapping__init(ids);
    searchfabric__v1__collection_settings__init(m->settings);
    searchfabric__v1__allocator_admission_policy__init(m->policy);
    d->collection_truth_mode =
        SEARCHFABRIC__V1__COLLECTION_TRUTH_MODE__COLLECTION_TRUTH_MODE_SEARCH_FABRIC;
    d->doc_id_mapping = ids;
    ids->generation_policy =
        SEARCHFABRIC__V1__DOC_ID_GENERATION_POLICY__DOC_ID_GENERATION_POLICY_ALLOCATOR_OPTIONAL;
    d->settings = m->settings;
    m->settings->allocator_admission_policy = m->policy;
    m->policy->caller_profile =
        SEARCHFABRIC__V1__ALLOCATOR_CALLER_PROFILE__ALLOCATOR_CALLER_PROFILE_ES_WRITE_GATEWAY_ONLY;
    m->policy->max_plan_items_per_request = PLAN_ITEMS;
    m->policy->max_forward_reservation_jump = FORWARD_JUMP;
    d->undeclared_fields = SEARCHFABRIC__V1__UNDECLARED_FIELD_POLICY__UNDECLARED_FIELD_POLICY_STORE;
    m->definition = d;
    return true;
}

bool sf_es_mapping_read(struct sf_view body, struct sf_arena *arena,
                        Searchfabric__V1__CollectionSchemaDefinition **out_definition,
                        struct sf_es_error *out_error)
{
    struct mapping m = {.arena = arena, .error = out_error};

    *out_error = (struct sf_es_error){0};
    sf_json_init(&m.json, body, SF_LIMIT_JSON_DEPTH);
    if (!definition_new(&m))
        return false;
    if (body.len > 0 && !read_body(&m)) {
        if (out_error->status == 0) {
            const char *why = m.json.error != NULL ? m.json.error : "text after the object";
            char *reason = sf_arena_printf(arena, "Failed to parse the body: %s at byte %zu", why,
                                           sf_json_offset(&m.json));
            *out_error =
                (struct sf_es_error){400, "parse_exception", reason != NULL ? reason : why};
        }
        return false;
    }
    *out_definition = m.definition;
    return true;
}
