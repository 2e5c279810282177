/*
 * Model: planning a batch is a table lookup per document. The schema becomes a map from dotted path
 * to field, and a set of the paths that lead to one ("a.b" lies below "a"), so that the walk over a
 * document enters only containers that can hold something declared and skips everything else with
 * the validator alone. Arrays are transparent, as in Elasticsearch: each element is a value of the
 * array's path. A member name with a dot in it names a nested path.
 *
 * What a document touches follows from declared fields that carry a value; values themselves are
 * not interpreted, with two exceptions that the write path cannot leave to the engines: a dense
 * vector must have its number of numbers, and a lifecycle-managed collection must get an event
 * time.
 */
#include "gateway/planner_rules.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/pb.h"
#include "base/text.h"

#define METADATA_BIT (1u << SEARCHFABRIC__V1__MODALITY__MODALITY_METADATA_SEARCH)

/* Longest dotted path that is compared: a declared name has at most 256 scalars. */
#define PATH_BYTES 1024

/* One declared field, or a place on the way to one. */
struct plan_field {
    const Searchfabric__V1__FieldDefinition *definition; /* NULL: only a prefix of declared paths */
    sf_modality_mask modalities;                         /* engines that index it */
    bool has_children;                                   /* declared paths lie below */
    bool event_time;                                     /* it is the time_partition_field */
};

struct sf_plan_schema {
    const Searchfabric__V1__CollectionAdmissionState *state; /* borrowed */
    struct sf_map *fields;                                   /* dotted path -> struct plan_field */
    sf_modality_mask enabled;                                /* of the generation */
    bool reject_undeclared;                                  /* UNDECLARED_FIELD_POLICY_REJECT */
    bool single;      /* metadata search alone is enabled: no walk is needed for modalities */
    bool has_vectors; /* a dense vector is declared */
};

/* ---- schema ---------------------------------------------------------------------------------- */

static struct plan_field *field_at(struct sf_map *fields, struct sf_view path)
{
    struct plan_field *field = sf_map_get(fields, path);

    if (field == NULL) {
        field = sf_calloc(1, sizeof(*field));
        (void)sf_map_put(fields, path, field);
    }
    return field;
}

static void schema_add(struct sf_plan_schema *schema,
                       const Searchfabric__V1__FieldDefinition *definition)
{
    struct sf_view name = sf_view_str(definition->name);

    for (size_t i = 0; i < name.len; i++)
        if (name.ptr[i] == '.')
            field_at(schema->fields, sf_view_bytes(name.ptr, i))->has_children = true;

    struct plan_field *field = field_at(schema->fields, name);
    field->definition = definition;
    for (size_t i = 0; i < definition->n_modalities; i++)
        field->modalities |= 1u << definition->modalities[i];
    if (definition->type == SEARCHFABRIC__V1__FIELD_TYPE__FIELD_TYPE_DENSE_VECTOR)
        schema->has_vectors = true;
    if (schema->state->event_time != NULL &&
        strcmp(schema->state->event_time->time_partition_field, definition->name) == 0)
        field->event_time = true;
}

struct sf_plan_schema *sf_plan_schema_new(const Searchfabric__V1__CollectionAdmissionState *state)
{
    struct sf_plan_schema *schema = sf_calloc(1, sizeof(*schema));

    schema->state = state;
    schema->fields = sf_map_new();
    schema->enabled = METADATA_BIT;
    for (size_t i = 0; i < state->n_enabled_modalities; i++)
        schema->enabled |= 1u << state->enabled_modalities[i];
    schema->reject_undeclared =
        state->undeclared_fields ==
        SEARCHFABRIC__V1__UNDECLARED_FIELD_POLICY__UNDECLARED_FIELD_POLICY_REJECT;
    for (size_t i = 0; i < state->n_fields; i++)
        schema_add(schema, state->fields[i]);
    schema->single = schema->enabled == METADATA_BIT;
    return schema;
}

void sf_plan_schema_destroy(struct sf_plan_schema *schema)
{
    if (schema == NULL)
        return;
    sf_map_destroy(schema->fields, free);
    free(schema);
}

/* ---- one document ---------------------------------------------------------------------------- */

/* A walk over one document. */
struct walk {
    const struct sf_plan_schema *schema;
    struct sf_json json;
    sf_modality_mask valued; /* engines one of whose fields has a value */
    sf_modality_mask named;  /* engines one of whose fields is named, null included */
    bool has_event_time;     /* non-null */
    char path[PATH_BYTES];   /* dotted path of the present value */
    size_t path_len;         /* SIZE_MAX: longer than any declared path */
    const char *violation;   /* why the document is refused; NULL while it is not */
    char bad_path[128];      /* field concerned, cut */
};

static bool walk_refuse(struct walk *w, const char *violation)
{
    if (w->violation == NULL) {
        size_t len = w->path_len < sizeof(w->bad_path) ? w->path_len : sizeof(w->bad_path) - 1;
        if (w->path_len == SIZE_MAX)
            len = 0;
        while (len > 0 && len < w->path_len && ((uint8_t)w->path[len] & 0xC0u) == 0x80u)
            len--;
        memcpy(w->bad_path, w->path, len);
        w->bad_path[len] = '\0';
        w->violation = violation;
    }
    (void)sf_json_fail(&w->json, violation);
    return false;
}

/* Appends ".name" to the path; returns the length to go back to. */
static size_t path_push(struct walk *w, struct sf_json_str name)
{
    size_t before = w->path_len;
    size_t dot = before == 0 ? 0 : 1;

    if (before == SIZE_MAX || before + dot + name.raw.len > sizeof(w->path)) {
        w->path_len = SIZE_MAX;
        return before;
    }
    if (dot == 1)
        w->path[before] = '.';
    w->path_len = before + dot + sf_json_unescape(name, w->path + before + dot);
    return before;
}

static const struct plan_field *path_field(const struct walk *w)
{
    if (w->path_len == SIZE_MAX)
        return NULL;
    return sf_map_get(w->schema->fields, sf_view_bytes(w->path, w->path_len));
}

/* A dense vector: an array of exactly `dimensions` numbers. */
static bool walk_vector(struct walk *w, const Searchfabric__V1__FieldDefinition *definition)
{
    uint32_t dimensions = definition->vector == NULL ? 0 : definition->vector->dimensions;
    uint32_t count = 0;
    struct sf_view number;

    if (sf_json_peek(&w->json) != SF_JSON_ARRAY)
        return walk_refuse(w, "not_a_vector");
    if (!sf_json_array_begin(&w->json))
        return false;
    while (sf_json_array_next(&w->json)) {
        if (sf_json_peek(&w->json) != SF_JSON_NUMBER)
            return w->json.error == NULL && walk_refuse(w, "not_a_vector");
        if (!sf_json_number(&w->json, &number))
            return false;
        count++;
    }
    if (w->json.error != NULL)
        return false;
    return count == dimensions || walk_refuse(w, "wrong_dimensions");
}

static void walk_note(struct walk *w, const struct plan_field *field, bool has_value)
{
    if (field == NULL || field->definition == NULL)
        return;
    w->named |= field->modalities;
    if (has_value) {
        w->valued |= field->modalities;
        w->has_event_time |= field->event_time;
    }
}

static bool walk_value(struct walk *w);

static bool walk_object(struct walk *w)
{
    struct sf_json_str name;

    if (!sf_json_object_begin(&w->json))
        return false;
    while (sf_json_object_next(&w->json, &name)) {
        size_t before = path_push(w, name);
        if (!walk_value(w))
            return false;
        w->path_len = before;
    }
    return w->json.error == NULL;
}

static bool walk_array(struct walk *w)
{
    if (!sf_json_array_begin(&w->json))
        return false;
    while (sf_json_array_next(&w->json))
        if (!walk_value(w))
            return false;
    return w->json.error == NULL;
}

/* A value at the present path. */
static bool walk_value(struct walk *w)
{
    const struct plan_field *field = path_field(w);
    enum sf_json_type type = sf_json_peek(&w->json);
    bool leaf = field != NULL && field->definition != NULL;

    if (type == SF_JSON_ERROR)
        return false;
    if (type == SF_JSON_NULL) {
        walk_note(w, field, false);
        return sf_json_null(&w->json);
    }
    if (leaf && field->definition->type == SEARCHFABRIC__V1__FIELD_TYPE__FIELD_TYPE_DENSE_VECTOR) {
        walk_note(w, field, true);
        return walk_vector(w, field->definition);
    }
    if (type == SF_JSON_ARRAY)
        return walk_array(w);
    if (type == SF_JSON_OBJECT) {
        walk_note(w, field, true);
        if ((field != NULL && field->has_children) || (!leaf && w->schema->reject_undeclared))
            return walk_object(w);
        return sf_json_skip(&w->json, NULL);
    }
    walk_note(w, field, true);
    if (!leaf && w->schema->reject_undeclared)
        return walk_refuse(w, "undeclared_field");
    return sf_json_skip(&w->json, NULL);
}

static enum sf_err row_refuse(struct sf_diag *diag, uint32_t entry_index, const char *violation,
                              const char *message)
{
    enum sf_err err = sf_diag_bad_field(diag, "entries.row.body", violation,
                                        "entry %" PRIu32 ": %s", entry_index, message);
    if (diag != NULL)
        sf_diag_detail(diag, "entry_index", "%" PRIu32, entry_index);
    return err;
}

static enum sf_err walk_error(const struct walk *w, uint32_t entry_index, struct sf_diag *diag)
{
    char text[320];

    if (w->violation != NULL) {
        (void)snprintf(text, sizeof(text), "field '%s' of the document: %s", w->bad_path,
                       w->violation);
        return row_refuse(diag, entry_index, w->violation, text);
    }
    (void)snprintf(text, sizeof(text), "the document is not one JSON object: %s at byte %zu",
                   w->json.error == NULL ? "text after the object" : w->json.error,
                   sf_json_offset(&w->json));
    return row_refuse(diag, entry_index, w->json.too_deep ? "too_deep" : "malformed", text);
}

static bool needs_event_time(const struct sf_plan_schema *schema, Searchfabric__V1__RowOp op)
{
    const Searchfabric__V1__EventTimeContract *contract = schema->state->event_time;

    if (contract == NULL || op == SEARCHFABRIC__V1__ROW_OP__ROW_OP_DELETE)
        return false;
    if (op == SEARCHFABRIC__V1__ROW_OP__ROW_OP_UPSERT ||
        op == SEARCHFABRIC__V1__ROW_OP__ROW_OP_PATCH)
        return contract->required_on_upsert_and_patch;
    return true;
}

enum sf_err sf_plan_row(const struct sf_plan_schema *schema, Searchfabric__V1__RowOp op,
                        struct sf_view body, uint32_t entry_index, struct sf_diag *diag,
                        sf_modality_mask *out_touched)
{
    if (op == SEARCHFABRIC__V1__ROW_OP__ROW_OP_DELETE) {
        *out_touched = schema->enabled;
        return SF_OK;
    }

    struct walk w;
    w.schema = schema;
    w.valued = w.named = 0;
    w.has_event_time = false;
    w.path_len = 0;
    w.violation = NULL;
    sf_json_init(&w.json, body, SF_LIMIT_JSON_DEPTH);

    bool needs_walk = !schema->single || schema->reject_undeclared || schema->has_vectors ||
                      needs_event_time(schema, op);
    if (sf_json_peek(&w.json) != SF_JSON_OBJECT)
        (void)sf_json_fail(&w.json, "an object is expected");
    else if (needs_walk)
        (void)walk_object(&w);
    else
        (void)sf_json_skip(&w.json, NULL);
    if (w.json.error != NULL || !sf_json_end(&w.json))
        return walk_error(&w, entry_index, diag);
    if (needs_event_time(schema, op) && !w.has_event_time)
        return row_refuse(diag, entry_index, "event_time_required",
                          "the document has no value for the collection's event time field");

    switch (op) {
    case SEARCHFABRIC__V1__ROW_OP__ROW_OP_CREATE:
        *out_touched = (METADATA_BIT | w.valued) & schema->enabled;
        break;
    case SEARCHFABRIC__V1__ROW_OP__ROW_OP_PATCH:
        /* A patch that names no declared field still changes the stored document. */
        *out_touched = w.named & schema->enabled;
        if (*out_touched == 0)
            *out_touched = METADATA_BIT;
        break;
    default:
        *out_touched = schema->enabled;
        break;
    }
    return SF_OK;
}

/* ---- the plan -------------------------------------------------------------------------------- */

Searchfabric__V1__AckGate sf_ack_gate(Searchfabric__V1__DurabilityPolicy durability,
                                      Searchfabric__V1__VisibilityPolicy visibility)
{
    if (visibility == SEARCHFABRIC__V1__VISIBILITY_POLICY__VISIBILITY_POLICY_WAIT_FOR_VISIBLE)
        return SEARCHFABRIC__V1__ACK_GATE__ACK_GATE_VISIBLE;
    if (durability == SEARCHFABRIC__V1__DURABILITY_POLICY__DURABILITY_POLICY_WAL_CHUNK_DURABLE)
        return SEARCHFABRIC__V1__ACK_GATE__ACK_GATE_DURABLE;
    return SEARCHFABRIC__V1__ACK_GATE__ACK_GATE_ADMITTED_DISPATCHED;
}

/* Modalities of `mask`, ascending; NULL on arena overflow. */
static Searchfabric__V1__Modality *mask_list(struct sf_arena *arena, sf_modality_mask mask,
                                             size_t *out_count)
{
    Searchfabric__V1__Modality *list = sf_arena_alloc(arena, 32 * sizeof(*list));

    *out_count = 0;
    for (int bit = 0; list != NULL && bit < 32; bit++)
        if ((mask & (1u << bit)) != 0)
            list[(*out_count)++] = (Searchfabric__V1__Modality)bit;
    return list;
}

static Searchfabric__V1__SourceKind source_kind_of(Searchfabric__V1__ClientKind kind)
{
    switch (kind) {
    case SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_TIDB_CDC_ADAPTER:
        return SEARCHFABRIC__V1__SOURCE_KIND__SOURCE_KIND_TICDC;
    case SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_TIDB_WRITE_GATEWAY:
        return SEARCHFABRIC__V1__SOURCE_KIND__SOURCE_KIND_TIDB_REMOTE_DML;
    default:
        return SEARCHFABRIC__V1__SOURCE_KIND__SOURCE_KIND_NATIVE_SEARCH_API;
    }
}

/* First eight bytes of the digest of `tag` and `text` as a number. */
static uint64_t text_number(const char *tag, const char *text)
{
    struct sf_keyhash kh;
    uint8_t digest[SF_SHA256_BYTES];
    uint64_t value = 0;

    sf_keyhash_init(&kh, tag);
    sf_keyhash_bytes(&kh, sf_view_str(text));
    sf_keyhash_finish(&kh, digest);
    for (int i = 0; i < 8; i++)
        value = value << 8 | digest[i];
    return value;
}

/* Rows of Flow B that brought no source tuple get one that a redelivery gets again (decision 9). */
static void fill_source(Searchfabric__V1__MutationBatch *batch)
{
    uint64_t partition = text_number("sf/ingest/partition/1", batch->stream_identity) | 1ull << 63;
    uint64_t epoch = text_number("sf/ingest/epoch/1", batch->batch_id);

    for (size_t i = 0; i < batch->n_entries; i++) {
        Searchfabric__V1__MutationEntry *entry = batch->entries[i];
        if (entry->entry_case != SEARCHFABRIC__V1__MUTATION_ENTRY__ENTRY_ROW)
            continue;
        Searchfabric__V1__RowMutation *row = entry->row;
        if (row->source_partition != 0 || row->source_epoch != 0 || row->source_seq != 0)
            continue;
        row->source_partition = partition;
        row->source_epoch = epoch;
        row->source_seq = i + 1;
    }
}

/* Appends the entry to the last plan when it touches the same engines, else opens a new one. */
static bool plan_entry(Searchfabric__V1__PlannedBatch *plan, struct sf_arena *arena, uint32_t index,
                       sf_modality_mask touched, sf_modality_mask *last)
{
    if (plan->n_entry_plans > 0 && *last == touched) {
        plan->entry_plans[plan->n_entry_plans - 1]->last_entry_index = index;
        return true;
    }
    Searchfabric__V1__EntryPlan *entry = sf_arena_alloc(arena, sizeof(*entry));
    if (entry == NULL)
        return false;
    searchfabric__v1__entry_plan__init(entry);
    entry->first_entry_index = entry->last_entry_index = index;
    entry->touched_modalities = mask_list(arena, touched, &entry->n_touched_modalities);
    plan->entry_plans[plan->n_entry_plans++] = entry;
    *last = touched;
    return entry->touched_modalities != NULL;
}

static enum sf_err plan_entries(const struct sf_plan_schema *schema,
                                const Searchfabric__V1__MutationBatch *batch,
                                struct sf_arena *arena, struct sf_diag *diag,
                                Searchfabric__V1__PlannedBatch *plan, uint32_t *out_rows)
{
    sf_modality_mask last = 0;

    *out_rows = 0;
    plan->entry_plans = sf_arena_alloc(arena, batch->n_entries * sizeof(*plan->entry_plans));
    if (plan->entry_plans == NULL)
        return sf_diag_set(diag, SF_ERR_LIMIT, "the plan of the batch exceeds its memory");
    for (uint32_t i = 0; i < batch->n_entries; i++) {
        const Searchfabric__V1__MutationEntry *entry = batch->entries[i];
        sf_modality_mask touched = 0;
        if (entry->entry_case == SEARCHFABRIC__V1__MUTATION_ENTRY__ENTRY_ROW) {
            struct sf_view body = sf_view_bytes(entry->row->body.data, entry->row->body.len);
            enum sf_err err = sf_plan_row(schema, entry->row->op, body, i, diag, &touched);
            if (err != SF_OK)
                return err;
            (*out_rows)++;
        }
        if (!plan_entry(plan, arena, i, touched, &last))
            return sf_diag_set(diag, SF_ERR_LIMIT, "the plan of the batch exceeds its memory");
    }
    return SF_OK;
}

/* What follows from the batch and its sender alone. */
static void plan_source(Searchfabric__V1__PlannedBatch *plan,
                        Searchfabric__V1__MutationBatch *batch,
                        Searchfabric__V1__ClientKind client_kind, uint32_t rows)
{
    bool flow_a = client_kind == SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_TIDB_CDC_ADAPTER;

    plan->flow_kind = flow_a ? SEARCHFABRIC__V1__FLOW_KIND__FLOW_KIND_A
                             : SEARCHFABRIC__V1__FLOW_KIND__FLOW_KIND_B;
    plan->source_kind = source_kind_of(client_kind);
    plan->writer_mode = rows >= SF_PLANNER_BATCH_MODE_ROWS
                            ? SEARCHFABRIC__V1__WRITER_MODE__WRITER_MODE_BATCH
                            : SEARCHFABRIC__V1__WRITER_MODE__WRITER_MODE_STREAM;
    if (!flow_a)
        fill_source(batch);
    plan->batch = batch;
}

enum sf_err sf_plan_batch(const struct sf_plan_schema *schema,
                          Searchfabric__V1__MutationBatch *batch,
                          Searchfabric__V1__ClientKind client_kind, struct sf_arena *arena,
                          struct sf_diag *diag, Searchfabric__V1__PlannedBatch *out_plan)
{
    uint32_t rows;
    enum sf_err err = plan_entries(schema, batch, arena, diag, out_plan, &rows);

    if (err != SF_OK)
        return err;
    out_plan->has_flow_a_source =
        schema->state->collection_truth_mode ==
        SEARCHFABRIC__V1__COLLECTION_TRUTH_MODE__COLLECTION_TRUTH_MODE_EXTERNAL;
    out_plan->enabled_modalities =
        mask_list(arena, schema->enabled, &out_plan->n_enabled_modalities);
    if (out_plan->enabled_modalities == NULL)
        return sf_diag_set(diag, SF_ERR_LIMIT, "the plan of the batch exceeds its memory");
    plan_source(out_plan, batch, client_kind, rows);
    return SF_OK;
}

enum sf_err sf_plan_known(Searchfabric__V1__MutationBatch *batch,
                          Searchfabric__V1__ClientKind client_kind, struct sf_arena *arena,
                          struct sf_diag *diag, Searchfabric__V1__PlannedBatch *out_plan)
{
    sf_modality_mask last = 0;

    out_plan->known_only = true;
    out_plan->entry_plans = sf_arena_alloc(arena, sizeof(*out_plan->entry_plans));
    out_plan->enabled_modalities = mask_list(arena, METADATA_BIT, &out_plan->n_enabled_modalities);
    if (out_plan->entry_plans == NULL || out_plan->enabled_modalities == NULL ||
        !plan_entry(out_plan, arena, 0, METADATA_BIT, &last))
        return sf_diag_set(diag, SF_ERR_LIMIT, "the plan of the batch exceeds its memory");
    out_plan->entry_plans[0]->last_entry_index = (uint32_t)batch->n_entries - 1;
    plan_source(out_plan, batch, client_kind, 0);
    return SF_OK;
}
