/*
 * Model: what a batch must be before anything else is asked about it. Two passes: the first finds
 * what cannot be read as a batch (SF_INVALID_ARGUMENT), the second what can be read but breaks a
 * rule (SF_BAD_REQUEST), so that malformed always wins. Then, with the admission state at hand, who
 * may write here at all and which rows need a receipt.
 */
#include "gateway/planner_rules.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/limits.h"
#include "base/pb.h"
#include "base/text.h"

#define FLOW_B_PARTITION (1ull << 63)

static enum sf_err refuse(struct sf_diag *diag, enum sf_err code, const char *field,
                          const char *violation, const char *message)
{
    (void)sf_diag_set(diag, code, "%s: %s", field, message);
    if (diag != NULL) {
        sf_diag_detail(diag, "field", "%s", field);
        sf_diag_detail(diag, "violation", "%s", violation);
    }
    return code;
}

static enum sf_err refuse_entry(struct sf_diag *diag, enum sf_err code, size_t index,
                                const char *field, const char *violation, const char *message)
{
    char text[160];

    (void)snprintf(text, sizeof(text), "entry %zu: %s", index, message);
    (void)refuse(diag, code, field, violation, text);
    if (diag != NULL)
        sf_diag_detail(diag, "entry_index", "%zu", index);
    return code;
}

static enum sf_err row_malformed(const Searchfabric__V1__RowMutation *row, size_t index,
                                 struct sf_diag *diag)
{
    if (row->doc_id == NULL ||
        row->doc_id->id_value_case != SEARCHFABRIC__V1__DOCUMENT_ID__ID_VALUE_U64)
        return refuse_entry(diag, SF_INVALID_ARGUMENT, index, "entries.row.doc_id", "required",
                            "every row brings its document id; ingest allocates none");
    if (row->op < SEARCHFABRIC__V1__ROW_OP__ROW_OP_CREATE ||
        row->op > SEARCHFABRIC__V1__ROW_OP__ROW_OP_DELETE)
        return refuse_entry(diag, SF_INVALID_ARGUMENT, index, "entries.row.op", "unknown_value",
                            "the operation is unset or unknown");
    return SF_OK;
}

static enum sf_err batch_malformed(const Searchfabric__V1__MutationBatch *batch,
                                   struct sf_diag *diag)
{
    if (batch->collection == NULL || batch->collection->namespace_id == 0 ||
        batch->collection->collection_id == 0)
        return refuse(diag, SF_INVALID_ARGUMENT, "collection", "required",
                      "namespace_id and collection_id must be set");
    if (batch->durability < SEARCHFABRIC__V1__DURABILITY_POLICY__DURABILITY_POLICY_INGEST_ACK ||
        batch->durability >
            SEARCHFABRIC__V1__DURABILITY_POLICY__DURABILITY_POLICY_WAL_CHUNK_DURABLE)
        return refuse(diag, SF_INVALID_ARGUMENT, "durability", "unknown_value",
                      "the policy is unset or unknown");
    if (batch->visibility < SEARCHFABRIC__V1__VISIBILITY_POLICY__VISIBILITY_POLICY_ASYNC ||
        batch->visibility > SEARCHFABRIC__V1__VISIBILITY_POLICY__VISIBILITY_POLICY_WAIT_FOR_VISIBLE)
        return refuse(diag, SF_INVALID_ARGUMENT, "visibility", "unknown_value",
                      "the policy is unset or unknown");
    if (batch->n_entries == 0)
        return refuse(diag, SF_INVALID_ARGUMENT, "entries", "required", "the batch is empty");
    for (size_t i = 0; i < batch->n_entries; i++) {
        const Searchfabric__V1__MutationEntry *entry = batch->entries[i];
        if (entry->entry_case == SEARCHFABRIC__V1__MUTATION_ENTRY__ENTRY__NOT_SET)
            return refuse_entry(diag, SF_INVALID_ARGUMENT, i, "entries", "required",
                                "neither a row nor a mark");
        if (entry->entry_case != SEARCHFABRIC__V1__MUTATION_ENTRY__ENTRY_ROW)
            continue;
        enum sf_err err = row_malformed(entry->row, i, diag);
        if (err != SF_OK)
            return err;
    }
    return SF_OK;
}

static bool hex_digest(const char *text)
{
    size_t len = strspn(text, "0123456789abcdef");

    return len == SF_SHA256_HEX_BYTES - 1 && text[len] == '\0';
}

static enum sf_err header_illegal(const Searchfabric__V1__MutationBatch *batch,
                                  struct sf_diag *diag)
{
    enum sf_err err = sf_identity_check("batch_id", sf_view_str(batch->batch_id), 1,
                                        SF_LIMIT_IDEMPOTENCY_KEY_SCALARS, diag);

    if (err == SF_OK)
        err = sf_identity_check("stream_identity", sf_view_str(batch->stream_identity), 1,
                                SF_LIMIT_CLIENT_ID_SCALARS, diag);
    if (err == SF_OK)
        err = sf_identity_check("schema_generation_token",
                                sf_view_str(batch->schema_generation_token), 1,
                                SF_LIMIT_SCHEMA_TOKEN_SCALARS, diag);
    if (err != SF_OK)
        return err;
    if (batch->batch_fingerprint[0] != '\0' && !hex_digest(batch->batch_fingerprint))
        return refuse(diag, SF_BAD_REQUEST, "batch_fingerprint", "malformed",
                      "64 lower-case hex digits are expected");
    if (batch->allocator_receipt.len > SF_LIMIT_RECEIPT_BYTES)
        return refuse(diag, SF_BAD_REQUEST, "allocator_receipt", "too_long",
                      "the receipt is longer than any that was issued");
    if (batch->n_entries > SF_LIMIT_BATCH_ENTRIES)
        return refuse(diag, SF_BAD_REQUEST, "entries", "too_long",
                      "a batch has at most 65536 entries");
    return SF_OK;
}

static enum sf_err row_illegal(const Searchfabric__V1__RowMutation *row, size_t index, bool flow_a,
                               struct sf_diag *diag)
{
    bool is_delete = row->op == SEARCHFABRIC__V1__ROW_OP__ROW_OP_DELETE;

    if (row->body.len > SF_LIMIT_DOCUMENT_BYTES)
        return refuse_entry(diag, SF_BAD_REQUEST, index, "entries.row.body", "too_long",
                            "a document has at most 4 MiB");
    if (is_delete != (row->body.len == 0))
        return refuse_entry(
            diag, SF_BAD_REQUEST, index, "entries.row.body", is_delete ? "forbidden" : "required",
            is_delete ? "a delete carries no document" : "the operation needs a document");
    if ((row->commit_ts != 0) != flow_a)
        return refuse_entry(diag, SF_BAD_REQUEST, index, "entries.row.commit_ts", "mixed_flows",
                            "rows with and without the source's commit_ts in one batch");
    if (row->source_partition != 0 && ((row->source_partition & FLOW_B_PARTITION) == 0) != flow_a)
        return refuse_entry(diag, SF_BAD_REQUEST, index, "entries.row.source_partition",
                            "out_of_range",
                            "bit 63 is set exactly in partitions of rows without a commit_ts");
    return SF_OK;
}

/* Sequence numbers that rows bring must grow within (partition, epoch) of the batch's run. */
static bool seq_falls(const Searchfabric__V1__RowMutation *before,
                      const Searchfabric__V1__RowMutation *row)
{
    return before != NULL && row->source_seq != 0 &&
           before->source_partition == row->source_partition &&
           before->source_epoch == row->source_epoch && row->source_seq <= before->source_seq;
}

enum sf_err sf_ingest_batch_check(const Searchfabric__V1__MutationBatch *batch,
                                  struct sf_diag *diag)
{
    const Searchfabric__V1__RowMutation *before = NULL;
    enum sf_err err = batch_malformed(batch, diag);
    bool flow_a = false;
    size_t body_bytes = 0;

    if (err == SF_OK)
        err = header_illegal(batch, diag);
    for (size_t i = 0; err == SF_OK && i < batch->n_entries; i++) {
        const Searchfabric__V1__MutationEntry *entry = batch->entries[i];
        if (entry->entry_case == SEARCHFABRIC__V1__MUTATION_ENTRY__ENTRY_BARRIER_MARK)
            err = sf_identity_check("entries.barrier_mark.barrier_id",
                                    sf_view_str(entry->barrier_mark->barrier_id), 0,
                                    SF_LIMIT_IDEMPOTENCY_KEY_SCALARS, diag);
        if (entry->entry_case != SEARCHFABRIC__V1__MUTATION_ENTRY__ENTRY_ROW)
            continue;
        if (before == NULL)
            flow_a = entry->row->commit_ts != 0;
        err = row_illegal(entry->row, i, flow_a, diag);
        if (err == SF_OK && seq_falls(before, entry->row))
            err = refuse_entry(diag, SF_BAD_REQUEST, i, "entries.row.source_seq", "out_of_range",
                               "sequence numbers of a partition must grow");
        before = entry->row;
        body_bytes += entry->row->body.len;
    }
    if (err == SF_OK && body_bytes > SF_LIMIT_BATCH_BYTES)
        return refuse(diag, SF_BAD_REQUEST, "entries", "too_long", "a batch has at most 8 MiB");
    return err;
}

void sf_ingest_batch_fingerprint(const Searchfabric__V1__MutationBatch *batch,
                                 char out_hex[SF_SHA256_HEX_BYTES])
{
    Searchfabric__V1__MutationBatch part = SEARCHFABRIC__V1__MUTATION_BATCH__INIT;
    struct sf_buf bytes = {0};

    part.collection = batch->collection;
    part.schema_generation_token = batch->schema_generation_token;
    part.n_entries = batch->n_entries;
    part.entries = batch->entries;
    sf_pb_pack(&part.base, &bytes);
    sf_sha256_hex(sf_buf_view(&bytes), out_hex);
    sf_buf_fini(&bytes);
}

/* ---- admission ------------------------------------------------------------------------------- */

static enum sf_err ownership(struct sf_diag *diag,
                             const Searchfabric__V1__CollectionAdmissionState *state,
                             Searchfabric__V1__ClientKind kind, const char *message)
{
    const ProtobufCEnumValue *mode = protobuf_c_enum_descriptor_get_value(
        &searchfabric__v1__collection_truth_mode__descriptor, (int)state->collection_truth_mode);
    const ProtobufCEnumValue *caller =
        protobuf_c_enum_descriptor_get_value(&searchfabric__v1__client_kind__descriptor, (int)kind);

    (void)sf_diag_set(diag, SF_OWNERSHIP_CONFLICT, "%s", message);
    if (diag != NULL) {
        sf_diag_detail(diag, "collection_truth_mode", "%s", mode == NULL ? "" : mode->name);
        sf_diag_detail(diag, "client_kind", "%s", caller == NULL ? "" : caller->name);
    }
    return SF_OWNERSHIP_CONFLICT;
}

enum sf_err sf_ingest_kind_admit(const Searchfabric__V1__CollectionAdmissionState *state,
                                 Searchfabric__V1__ClientKind kind, struct sf_diag *diag)
{
    bool external = state->collection_truth_mode ==
                    SEARCHFABRIC__V1__COLLECTION_TRUTH_MODE__COLLECTION_TRUTH_MODE_EXTERNAL;

    switch (kind) {
    case SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_ES_WRITE_GATEWAY:
    case SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_TP_WRITE_GATEWAY:
        return external ? ownership(diag, state, kind, "TiDB owns the rows of this collection")
                        : SF_OK;
    case SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_TIDB_WRITE_GATEWAY:
        return SF_OK;
    case SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_TIDB_CDC_ADAPTER:
        return external ? SF_OK
                        : ownership(diag, state, kind,
                                    "this collection has no change feed as its source");
    default:
        return sf_diag_set(diag, SF_FORBIDDEN, "clients of this kind do not write rows");
    }
}

enum sf_err sf_ingest_batch_admit(const Searchfabric__V1__CollectionAdmissionState *state,
                                  const Searchfabric__V1__MutationBatch *batch,
                                  Searchfabric__V1__ClientKind client_kind, struct sf_diag *diag)
{
    enum sf_err err = sf_ingest_kind_admit(state, client_kind, diag);
    bool flow_a = client_kind == SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_TIDB_CDC_ADAPTER;
    bool needs_receipt =
        state->generation_policy ==
        SEARCHFABRIC__V1__DOC_ID_GENERATION_POLICY__DOC_ID_GENERATION_POLICY_ALLOCATOR_OPTIONAL;

    for (size_t i = 0; err == SF_OK && i < batch->n_entries; i++) {
        const Searchfabric__V1__MutationEntry *entry = batch->entries[i];
        if (entry->entry_case != SEARCHFABRIC__V1__MUTATION_ENTRY__ENTRY_ROW)
            continue;
        if ((entry->row->commit_ts != 0) != flow_a)
            return refuse_entry(diag, SF_BAD_REQUEST, i, "entries.row.commit_ts",
                                flow_a ? "required" : "forbidden",
                                flow_a ? "a change feed brings its commit_ts"
                                       : "commit_ts is injected for this kind of client");
        if (needs_receipt && batch->allocator_receipt.len == 0 &&
            entry->row->op == SEARCHFABRIC__V1__ROW_OP__ROW_OP_CREATE) {
            err = refuse_entry(diag, SF_BAD_REQUEST, i, "allocator_receipt", "required",
                               "creates of this collection need an allocator receipt");
            if (diag != NULL) {
                sf_diag_area(diag, "ingest");
                sf_diag_detail(diag, "ingest_rejection_reason", "receipt_missing");
                sf_diag_detail(diag, "batch_id", "%s", batch->batch_id);
            }
        }
    }
    return err;
}
