/* Small builders of batches and admission states for the gateway's tests. */
#ifndef SF_TESTS_UNIT_GATEWAY_FIXTURE_H
#define SF_TESTS_UNIT_GATEWAY_FIXTURE_H

#include <string.h>

#include "gateway/planner_rules.h"

#define M(name)    SEARCHFABRIC__V1__MODALITY__MODALITY_##name
#define OP(name)   SEARCHFABRIC__V1__ROW_OP__ROW_OP_##name
#define KIND(name) SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_##name
#define F(name)    SEARCHFABRIC__V1__FIELD_TYPE__FIELD_TYPE_##name

#define FIXTURE_ROWS 8

/* A batch of CREATE rows 1, 2, ... with document {}. */
struct batch_fixture {
    Searchfabric__V1__MutationBatch batch;
    Searchfabric__V1__CollectionRef ref;
    Searchfabric__V1__MutationEntry entries[FIXTURE_ROWS];
    Searchfabric__V1__MutationEntry *entry_list[FIXTURE_ROWS];
    Searchfabric__V1__RowMutation rows[FIXTURE_ROWS];
    Searchfabric__V1__DocumentID ids[FIXTURE_ROWS];
};

static inline void batch_body(struct batch_fixture *f, size_t row, const char *body)
{
    f->rows[row].body.data = (uint8_t *)(uintptr_t)body;
    f->rows[row].body.len = strlen(body);
}

static inline void batch_init(struct batch_fixture *f, size_t rows)
{
    searchfabric__v1__mutation_batch__init(&f->batch);
    searchfabric__v1__collection_ref__init(&f->ref);
    f->ref.namespace_id = 7;
    f->ref.collection_id = 9;
    f->batch.batch_id = "batch-1";
    f->batch.stream_identity = "stream-1";
    f->batch.collection = &f->ref;
    f->batch.schema_generation_token = "gen-1";
    f->batch.durability = SEARCHFABRIC__V1__DURABILITY_POLICY__DURABILITY_POLICY_WAL_CHUNK_DURABLE;
    f->batch.visibility = SEARCHFABRIC__V1__VISIBILITY_POLICY__VISIBILITY_POLICY_ASYNC;
    f->batch.n_entries = rows;
    f->batch.entries = f->entry_list;
    for (size_t i = 0; i < FIXTURE_ROWS; i++) {
        searchfabric__v1__document_id__init(&f->ids[i]);
        f->ids[i].id_value_case = SEARCHFABRIC__V1__DOCUMENT_ID__ID_VALUE_U64;
        f->ids[i].u64 = i + 1;
        searchfabric__v1__row_mutation__init(&f->rows[i]);
        f->rows[i].doc_id = &f->ids[i];
        f->rows[i].op = OP(CREATE);
        searchfabric__v1__mutation_entry__init(&f->entries[i]);
        f->entries[i].entry_case = SEARCHFABRIC__V1__MUTATION_ENTRY__ENTRY_ROW;
        f->entries[i].row = &f->rows[i];
        f->entry_list[i] = &f->entries[i];
        batch_body(f, i, "{}");
    }
}

#define FIXTURE_FIELDS 8

/* A live SEARCH_FABRIC collection; fields are added one by one. */
struct state_fixture {
    Searchfabric__V1__CollectionAdmissionState state;
    Searchfabric__V1__CollectionRef ref;
    Searchfabric__V1__FieldDefinition fields[FIXTURE_FIELDS];
    Searchfabric__V1__FieldDefinition *field_list[FIXTURE_FIELDS];
    Searchfabric__V1__Modality field_modalities[FIXTURE_FIELDS];
    Searchfabric__V1__VectorSettings vectors[FIXTURE_FIELDS];
    Searchfabric__V1__Modality enabled[3];
    Searchfabric__V1__EventTimeContract event_time;
};

static inline void state_init(struct state_fixture *f)
{
    searchfabric__v1__collection_admission_state__init(&f->state);
    searchfabric__v1__collection_ref__init(&f->ref);
    f->ref.namespace_id = 7;
    f->ref.collection_id = 9;
    f->state.collection = &f->ref;
    f->state.lifecycle =
        SEARCHFABRIC__V1__COLLECTION_ADMISSION_LIFECYCLE__COLLECTION_ADMISSION_LIFECYCLE_ACTIVE;
    f->state.collection_truth_mode =
        SEARCHFABRIC__V1__COLLECTION_TRUTH_MODE__COLLECTION_TRUTH_MODE_SEARCH_FABRIC;
    f->state.generation_policy =
        SEARCHFABRIC__V1__DOC_ID_GENERATION_POLICY__DOC_ID_GENERATION_POLICY_ALLOCATOR_OPTIONAL;
    f->state._active_schema_generation_token_case =
        SEARCHFABRIC__V1__COLLECTION_ADMISSION_STATE___ACTIVE_SCHEMA_GENERATION_TOKEN_ACTIVE_SCHEMA_GENERATION_TOKEN;
    f->state.active_schema_generation_token = "gen-1";
    f->state.descriptor_etag = "etag-1";
    f->state.fields = f->field_list;
    f->enabled[0] = M(METADATA_SEARCH);
    f->state.enabled_modalities = f->enabled;
    f->state.n_enabled_modalities = 1;
}

/* Adds a field; `dims` for vectors, which enable semantic search. */
static inline void state_field(struct state_fixture *f, const char *name,
                               Searchfabric__V1__FieldType type, uint32_t dims)
{
    size_t i = f->state.n_fields++;
    Searchfabric__V1__FieldDefinition *field = &f->fields[i];

    searchfabric__v1__field_definition__init(field);
    field->name = (char *)(uintptr_t)name;
    field->type = type;
    f->field_modalities[i] = type == F(DENSE_VECTOR) ? M(SEMANTIC_SEARCH) : M(METADATA_SEARCH);
    field->n_modalities = 1;
    field->modalities = &f->field_modalities[i];
    if (type == F(DENSE_VECTOR)) {
        searchfabric__v1__vector_settings__init(&f->vectors[i]);
        f->vectors[i].dimensions = dims;
        field->vector = &f->vectors[i];
        f->enabled[1] = M(SEMANTIC_SEARCH);
        f->state.n_enabled_modalities = 2;
    }
    f->field_list[i] = field;
}

#endif
