/*
 * Model: a definition shown as GET /{index} shows it: dotted field names become nested properties
 * again, types keep the name under which they came in, kept parameters come back as they were.
 */
#include "gateway/es_mapping.h"

#include <stdlib.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"

#define T(name) SEARCHFABRIC__V1__FIELD_TYPE__FIELD_TYPE_##name

/* How a type is called that kept no other name. */
static const char *const type_names[] = {
    [T(KEYWORD)] = "keyword",     [T(TEXT)] = "text",
    [T(INT64)] = "long",          [T(UINT64)] = "unsigned_long",
    [T(FLOAT64)] = "double",      [T(BOOL)] = "boolean",
    [T(TIMESTAMP)] = "date",      [T(DENSE_VECTOR)] = "dense_vector",
    [T(GEO_POINT)] = "geo_point", [T(IP)] = "ip",
    [T(BINARY)] = "binary",       [T(OBJECT)] = "flattened",
};

static int by_name(const void *a, const void *b)
{
    const Searchfabric__V1__FieldDefinition *const *left = a;
    const Searchfabric__V1__FieldDefinition *const *right = b;

    return strcmp((*left)->name, (*right)->name);
}

static void append_text(struct sf_buf *out, const char *text)
{
    sf_json_append_string(out, sf_view_str(text));
}

/* Options that were JSON go out as they came in; plain text is quoted. */
static void append_value(struct sf_buf *out, const char *value)
{
    if (sf_json_valid(sf_view_str(value), SF_LIMIT_JSON_DEPTH))
        sf_buf_append_str(out, value);
    else
        append_text(out, value);
}

static void write_field(const Searchfabric__V1__FieldDefinition *field, struct sf_buf *out)
{
    static const char *const similarity[] = {"cosine", "cosine", "dot_product", "l2_norm"};
    const char *type = "object";

    if ((unsigned)field->type < SF_ARRAY_LEN(type_names) && type_names[field->type] != NULL)
        type = type_names[field->type];
    for (size_t i = 0; i < field->n_options; i++)
        if (strcmp(field->options[i]->key, "type") == 0)
            type = field->options[i]->value;
    sf_buf_append_str(out, "{\"type\":");
    append_text(out, type);
    if (field->vector != NULL && field->vector->similarity < SF_ARRAY_LEN(similarity))
        sf_buf_printf(out, ",\"dims\":%u,\"similarity\":\"%s\"", field->vector->dimensions,
                      similarity[field->vector->similarity]);
    for (size_t i = 0; i < field->n_options; i++) {
        if (strcmp(field->options[i]->key, "type") == 0)
            continue;
        sf_buf_append_str(out, ",");
        append_text(out, field->options[i]->key);
        sf_buf_append_str(out, ":");
        append_value(out, field->options[i]->value);
    }
    sf_buf_append_str(out, "}");
}

/* Writes fields[from..to), all of which share the first `prefix` bytes, as nested properties. */
static void write_properties(const Searchfabric__V1__FieldDefinition *const *fields, size_t from,
                             size_t to, size_t prefix, struct sf_buf *out)
{
    sf_buf_append_str(out, "{");
    for (size_t i = from; i < to;) {
        const char *name = fields[i]->name + prefix;
        size_t len = strcspn(name, ".");
        if (i > from)
            sf_buf_append_str(out, ",");
        sf_json_append_string(out, sf_view_bytes(name, len));
        sf_buf_append_str(out, ":");
        if (name[len] == '\0') {
            write_field(fields[i++], out);
            continue;
        }
        size_t end = i + 1;
        while (end < to && strncmp(fields[end]->name + prefix, name, len + 1) == 0)
            end++;
        sf_buf_append_str(out, "{\"properties\":");
        write_properties(fields, i, end, prefix + len + 1, out);
        sf_buf_append_str(out, "}");
        i = end;
    }
    sf_buf_append_str(out, "}");
}

void sf_es_mapping_write(const Searchfabric__V1__CollectionSchemaDefinition *definition,
                         struct sf_buf *out)
{
    const char *comma = "";

    sf_buf_append_str(out, "\"mappings\":{");
    if (definition->undeclared_fields ==
        SEARCHFABRIC__V1__UNDECLARED_FIELD_POLICY__UNDECLARED_FIELD_POLICY_REJECT)
        sf_buf_append_str(out, "\"dynamic\":\"strict\"");
    else
        sf_buf_append_str(out, "\"dynamic\":\"false\"");
    if (definition->n_fields > 0) {
        const Searchfabric__V1__FieldDefinition **sorted =
            sf_calloc(definition->n_fields, sizeof(*sorted));
        for (size_t i = 0; i < definition->n_fields; i++)
            sorted[i] = definition->fields[i];
        qsort(sorted, definition->n_fields, sizeof(*sorted), by_name);
        sf_buf_append_str(out, ",\"properties\":");
        write_properties(sorted, 0, definition->n_fields, 0, out);
        free(sorted);
    }
    sf_buf_append_str(out, "},\"settings\":{\"index\":{");
    for (size_t i = 0; i < definition->n_options; i++) {
        if (strncmp(definition->options[i]->key, "index.", 6) != 0)
            continue;
        sf_buf_append_str(out, comma);
        append_text(out, definition->options[i]->key + 6);
        sf_buf_append_str(out, ":");
        append_text(out, definition->options[i]->value);
        comma = ",";
    }
    sf_buf_append_str(out, "}}");
}
