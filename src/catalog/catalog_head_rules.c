/*
 * Model: three decisions without I/O. An intent is admitted when its tuple fits the head that
 * stands and the committed pointer that was read for it (OP-48). A pointer is equal to the head,
 * ahead of it, or it does not fit the lineage, and then nothing is repaired by guessing. The
 * reconciler's status moves along this table and in no other way:
 *
 *   IDLE -gap-> REPAIR_PENDING -attempt-> REPAIRING -attempt-> REPAIRING -converged-> IDLE
 *   any of them -broken-> ERROR -operator-> REPAIR_PENDING
 */
#include "catalog/catalog_head.h"
#include "catalog/catalog_rules.h"

#define STATUS(name) SF_PBE(MANIFEST_HEAD_RECONCILER_STATUS, name)

enum sf_err sf_catalog_head_check(const SF_PB(SubmitHeadAdvanceIntentRequest) * request,
                                  struct sf_diag *diag)
{
    enum sf_err err = sf_catalog_ref_check(request->collection, diag);
    if (err == SF_OK && request->expected_head_version < SF_CATALOG_HEAD_NONE)
        err = sf_diag_bad_field(diag, "expected_head_version", "out_of_range",
                                "a head version is at least 0; -1 stands for none");
    if (err == SF_OK && request->new_head_version > INT64_MAX)
        err = sf_diag_bad_field(diag, "new_head_version", "out_of_range",
                                "a head version is at most 9223372036854775807");
    if (err == SF_OK && (request->new_head_version == 0 ||
                         (int64_t)request->new_head_version <= request->expected_head_version))
        err = sf_diag_bad_field(diag, "new_head_version", "out_of_range",
                                "the new head lies above the expected one");
    if (err == SF_OK)
        err = sf_identity_check("manifest_checksum_or_etag",
                                sf_view_str(request->manifest_checksum_or_etag), 1,
                                SF_CATALOG_HEAD_CHECKSUM_CHARS, diag);
    return err;
}

/* 0 and -1 say the same: no head yet. */
static uint64_t version_of(int64_t expected)
{
    return expected < 0 ? 0 : (uint64_t)expected;
}

enum sf_catalog_head_verdict sf_catalog_head_cas(const SF_PB(SubmitHeadAdvanceIntentRequest) *
                                                     request,
                                                 const SF_PB(CollectionRow) * row,
                                                 const SF_PB(ManifestCommittedHeadObject) * pointer)
{
    uint64_t committed = pointer == NULL ? 0 : pointer->committed_manifest_version;
    uint64_t expected = version_of(request->expected_head_version);
    bool names_pointer = request->new_head_version == committed;
    bool same_checksum = names_pointer && strcmp(request->manifest_checksum_or_etag,
                                                 pointer->manifest_checksum_or_etag) == 0;
    if (request->new_head_version == row->manifest_head_version &&
        expected == version_of(row->expected_previous_head) && same_checksum)
        return SF_CATALOG_HEAD_MATCHES;
    if (expected != row->manifest_head_version && !SF_MUTANT(ccs_any_head))
        return SF_CATALOG_HEAD_MOVED;
    if (request->new_head_version > committed && !SF_MUTANT(ccs_head_ahead))
        return SF_CATALOG_HEAD_ABOVE_POINTER;
    if (names_pointer && !same_checksum)
        return SF_CATALOG_HEAD_OTHER_CHECKSUM;
    return SF_CATALOG_HEAD_ADVANCE;
}

/* Why the manifest is not the one that the pointer names, or NULL. */
static const char *manifest_fault(const SF_PB(ManifestCommittedHeadObject) * pointer,
                                  const struct sf_catalog_head_manifest *manifest)
{
    if (!manifest->found)
        return "the manifest that the committed pointer names is missing or broken";
    if (strcmp(pointer->manifest_checksum_or_etag, manifest->sha256) != 0 &&
        strcmp(pointer->manifest_checksum_or_etag, manifest->etag.text) != 0)
        return "the committed pointer's checksum is not that of its manifest";
    const SF_PB(CollectionManifestObject) *message = manifest->message;
    if (message->manifest_version != pointer->committed_manifest_version)
        return "the manifest that the committed pointer names has another version";
    if (message->previous_manifest_version != pointer->previous_committed_manifest_version)
        return "the committed pointer's previous version is not its manifest's";
    if (message->collection == NULL ||
        message->collection->namespace_id != pointer->collection->namespace_id ||
        message->collection->collection_id != pointer->collection->collection_id)
        return "the manifest that the committed pointer names is another collection's";
    return NULL;
}

/* Why the pointer does not follow what the row knows, or NULL. */
static const char *pointer_fault(const SF_PB(CollectionRow) * row,
                                 const SF_PB(ManifestCommittedHeadObject) * pointer)
{
    uint64_t version = pointer == NULL ? 0 : pointer->committed_manifest_version;
    if (pointer == NULL &&
        (row->manifest_head_version != 0 || row->committed_manifest_version != 0))
        return "the committed pointer is gone";
    if (version < row->manifest_head_version)
        return "the committed pointer is behind the head";
    if (version < row->committed_manifest_version)
        return "the committed pointer went back";
    if (pointer != NULL && version == row->committed_manifest_version &&
        row->_committed_manifest_checksum_or_etag_case != 0 &&
        strcmp(pointer->manifest_checksum_or_etag, row->committed_manifest_checksum_or_etag) != 0)
        return "the committed pointer changed its checksum under one version";
    return NULL;
}

enum sf_catalog_head_state sf_catalog_head_judge(const SF_PB(CollectionRow) * row,
                                                 const SF_PB(ManifestCommittedHeadObject) * pointer,
                                                 bool broken,
                                                 const struct sf_catalog_head_manifest *manifest,
                                                 const char **out_reason)
{
    *out_reason = broken ? "the committed pointer does not verify" : pointer_fault(row, pointer);
    if (*out_reason == NULL && pointer != NULL && manifest->read)
        *out_reason = manifest_fault(pointer, manifest);
    if (*out_reason != NULL)
        return SF_CATALOG_HEAD_BROKEN;
    return pointer != NULL && pointer->committed_manifest_version > row->manifest_head_version
               ? SF_CATALOG_HEAD_GAP
               : SF_CATALOG_HEAD_EQUAL;
}

static const struct sf_catalog_head_move moves[] = {
    {STATUS(IDLE), SF_CATALOG_HEAD_ON_GAP, STATUS(REPAIR_PENDING), false},
    {STATUS(IDLE), SF_CATALOG_HEAD_ON_BROKEN, STATUS(ERROR), true},
    {STATUS(REPAIR_PENDING), SF_CATALOG_HEAD_ON_ATTEMPT, STATUS(REPAIRING), true},
    {STATUS(REPAIR_PENDING), SF_CATALOG_HEAD_ON_CONVERGED, STATUS(IDLE), false},
    {STATUS(REPAIR_PENDING), SF_CATALOG_HEAD_ON_BROKEN, STATUS(ERROR), true},
    {STATUS(REPAIRING), SF_CATALOG_HEAD_ON_ATTEMPT, STATUS(REPAIRING), true},
    {STATUS(REPAIRING), SF_CATALOG_HEAD_ON_CONVERGED, STATUS(IDLE), false},
    {STATUS(REPAIRING), SF_CATALOG_HEAD_ON_BROKEN, STATUS(ERROR), true},
    {STATUS(ERROR), SF_CATALOG_HEAD_ON_OPERATOR, STATUS(REPAIR_PENDING), false},
};

const struct sf_catalog_head_move *sf_catalog_head_move(SF_PB(ManifestHeadReconcilerStatus) from,
                                                        enum sf_catalog_head_event event)
{
    for (size_t i = 0; i < SF_ARRAY_LEN(moves); i++) {
        if (moves[i].from == from && moves[i].event == event)
            return &moves[i];
    }
    return NULL;
}

const char *sf_catalog_head_status_text(SF_PB(ManifestHeadReconcilerStatus) status)
{
    switch (status) {
    case STATUS(REPAIR_PENDING):
        return "REPAIR_PENDING";
    case STATUS(REPAIRING):
        return "REPAIRING";
    case STATUS(ERROR):
        return "ERROR";
    default:
        return "IDLE";
    }
}
