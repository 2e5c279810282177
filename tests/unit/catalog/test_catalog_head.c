/*
 * Rules of manifest heads as tables. Key digests were computed by hand from their definition, not
 * from program output.
 */
#include "catalog/catalog_head.h"
#include "catalog/catalog_rules.h"

#include <stdio.h>

#include "support/proves.h"

#define STATUS(name) SF_PBE(MANIFEST_HEAD_RECONCILER_STATUS, name)

struct intent {
    SF_PB(CollectionRef) ref;
    SF_PB(SubmitHeadAdvanceIntentRequest) request;
};

static void intent_init(struct intent *intent, int64_t expected, uint64_t version,
                        const char *checksum)
{
    searchfabric__v1__collection_ref__init(&intent->ref);
    intent->ref.namespace_id = 7;
    intent->ref.collection_id = 9;
    searchfabric__v1__submit_head_advance_intent_request__init(&intent->request);
    intent->request.collection = &intent->ref;
    intent->request.expected_head_version = expected;
    intent->request.new_head_version = version;
    intent->request.manifest_checksum_or_etag = (char *)(uintptr_t)checksum;
}

static void test_keys(void **state)
{
    struct intent intent;
    char key[SF_SHA256_HEX_BYTES];
    char other[SF_SHA256_HEX_BYTES];
    (void)state;
    SF_PROVES("CCS-4.2-07");
    intent_init(&intent, 0, 3, "abc");
    const struct sf_catalog_mutation *ops = &sf_catalog_head_advance;
    sf_catalog_intent_key(SF_CATALOG_TAG_INTENT, ops, &intent.request.base, key);
    assert_string_equal(key, "797913c4d690bb3bae59d7eabf8544d9fea99d0bd66b4bc700c53795ad2f5632");
    sf_catalog_intent_key(SF_CATALOG_TAG_INTENT_LOOKUP, ops, &intent.request.base, other);
    assert_string_equal(other, "2cb1ffb48dc72f76b950a8ebc56de41f02965fa0e952262c03d0f2a57689ded0");
    ops->business(&intent.request.base, other);
    assert_string_equal(other, "4b2ceb2a848c43aba999e2180811e4cbe955da8c30820f21111b11b9c3899b23");
    for (int field = 0; field < 5; field++) { /* each of the five values counts */
        char identity[SF_SHA256_HEX_BYTES];
        char business[SF_SHA256_HEX_BYTES];
        intent_init(&intent, field == 2 ? 1 : 0, field == 3 ? 4 : 3, field == 4 ? "abd" : "abc");
        intent.ref.namespace_id += field == 0 ? 1 : 0;
        intent.ref.collection_id += field == 1 ? 1 : 0;
        sf_catalog_intent_key(SF_CATALOG_TAG_INTENT, ops, &intent.request.base, identity);
        ops->business(&intent.request.base, business);
        assert_string_not_equal(identity, key);
        assert_string_not_equal(business, other);
    }
}

static void test_requests(void **state)
{
    char long_ok[SF_CATALOG_HEAD_CHECKSUM_CHARS + 2];
    struct intent intent;
    struct sf_diag diag;
    (void)state;
    memset(long_ok, 'a', sizeof(long_ok));
    long_ok[sizeof(long_ok) - 1] = '\0'; /* one above the limit */
    const struct {
        int64_t expected;
        uint64_t version;
        const char *checksum, *field;
    } rows[] = {
        {0, 1, "c", NULL},
        {-1, 1, "c", NULL},
        {4, 9, long_ok + 1, NULL},
        {INT64_MAX - 1, INT64_MAX, "c", NULL},
        {-2, 1, "c", "expected_head_version"},
        {0, 0, "c", "new_head_version"},
        {-1, 0, "c", "new_head_version"},
        {3, 3, "c", "new_head_version"},
        {3, 2, "c", "new_head_version"},
        {0, (uint64_t)INT64_MAX + 1, "c", "new_head_version"},
        {0, 1, "", "manifest_checksum_or_etag"},
        {0, 1, long_ok, "manifest_checksum_or_etag"},
    };
    for (size_t i = 0; i < SF_ARRAY_LEN(rows); i++) {
        intent_init(&intent, rows[i].expected, rows[i].version, rows[i].checksum);
        sf_diag_init(&diag);
        enum sf_err err = sf_catalog_head_check(&intent.request, &diag);
        assert_int_equal(err, rows[i].field == NULL ? SF_OK : SF_BAD_REQUEST);
        if (rows[i].field != NULL)
            assert_string_equal(sf_diag_get(&diag, "field"), rows[i].field);
    }
    intent.request.collection = NULL;
    assert_int_equal(sf_catalog_head_check(&intent.request, &diag), SF_BAD_REQUEST);
}

/* OP-48: first advance, gaps, the pointer's bound and checksum. */
static void test_cas(void **state)
{
    (void)state;
    const struct {
        uint64_t head;
        int64_t previous;
        uint64_t committed; /* 0 = no pointer; its checksum is "c" */
        int64_t expected;
        uint64_t version;
        const char *checksum;
        enum sf_catalog_head_verdict verdict;
    } rows[] = {
        {0, -1, 1, 0, 1, "c", SF_CATALOG_HEAD_ADVANCE},
        {0, -1, 1, -1, 1, "c", SF_CATALOG_HEAD_ADVANCE},
        {0, -1, 7, 0, 7, "c", SF_CATALOG_HEAD_ADVANCE},  /* over several versions */
        {2, 1, 7, 2, 5, "any", SF_CATALOG_HEAD_ADVANCE}, /* below the pointer */
        {2, 1, 3, 2, 3, "d", SF_CATALOG_HEAD_OTHER_CHECKSUM},
        {2, 1, 3, 2, 4, "c", SF_CATALOG_HEAD_ABOVE_POINTER},
        {0, -1, 0, 0, 1, "c", SF_CATALOG_HEAD_ABOVE_POINTER},
        {2, 1, 3, 1, 3, "c", SF_CATALOG_HEAD_MOVED},
        {2, 1, 3, 0, 3, "c", SF_CATALOG_HEAD_MOVED},
        {0, -1, 3, 1, 3, "c", SF_CATALOG_HEAD_MOVED},
        {3, 2, 3, 2, 3, "c", SF_CATALOG_HEAD_MATCHES},
        {1, 0, 1, -1, 1, "c", SF_CATALOG_HEAD_MATCHES},
        {3, 2, 3, 2, 3, "d", SF_CATALOG_HEAD_MOVED},
        {3, 1, 3, 2, 3, "c", SF_CATALOG_HEAD_MOVED}, /* another way led there */
        {3, 2, 4, 2, 3, "c", SF_CATALOG_HEAD_MOVED}, /* its checksum is not known any more */
    };
    for (size_t i = 0; i < SF_ARRAY_LEN(rows); i++) {
        struct intent intent;
        SF_PB(CollectionRow) row;
        SF_PB(ManifestCommittedHeadObject) pointer;
        searchfabric__v1__collection_row__init(&row);
        searchfabric__v1__manifest_committed_head_object__init(&pointer);
        intent_init(&intent, rows[i].expected, rows[i].version, rows[i].checksum);
        row.manifest_head_version = rows[i].head;
        row.expected_previous_head = rows[i].previous;
        pointer.committed_manifest_version = rows[i].committed;
        pointer.manifest_checksum_or_etag = "c";
        assert_int_equal(
            sf_catalog_head_cas(&intent.request, &row, rows[i].committed == 0 ? NULL : &pointer),
            rows[i].verdict);
    }
}

/* A pointer at version 5 after 3 with a manifest that fits; each row breaks one thing. */
static void test_judge(void **state)
{
    (void)state;
    const struct {
        const char *reason; /* a word of it, NULL = none */
        uint64_t head, known, pointer, version, previous;
        const char *known_checksum, *digest, *etag;
        bool read, found, broken, foreign;
        enum sf_catalog_head_state state;
    } rows[] = {
        {NULL, 3, 3, 5, 5, 3, "b", "c", "", true, true, false, false, SF_CATALOG_HEAD_GAP},
        {NULL, 3, 3, 5, 5, 3, "b", "x", "c", true, true, false, false, SF_CATALOG_HEAD_GAP},
        {NULL, 5, 5, 5, 5, 3, "c", "c", "", true, true, false, false, SF_CATALOG_HEAD_EQUAL},
        {NULL, 5, 5, 5, 0, 0, "c", "", "", false, false, false, false, SF_CATALOG_HEAD_EQUAL},
        {NULL, 0, 0, 0, 0, 0, NULL, "", "", false, false, false, false, SF_CATALOG_HEAD_EQUAL},
        {"gone", 1, 1, 0, 0, 0, "a", "", "", false, false, false, false, SF_CATALOG_HEAD_BROKEN},
        {"behind", 6, 6, 5, 5, 3, "d", "c", "", true, true, false, false, SF_CATALOG_HEAD_BROKEN},
        {"back", 3, 6, 5, 5, 3, "d", "c", "", true, true, false, false, SF_CATALOG_HEAD_BROKEN},
        {"changed", 3, 5, 5, 5, 3, "d", "c", "", true, true, false, false, SF_CATALOG_HEAD_BROKEN},
        {"missing", 3, 3, 5, 5, 3, "b", "c", "", true, false, false, false, SF_CATALOG_HEAD_BROKEN},
        {"checksum", 3, 3, 5, 5, 3, "b", "x", "", true, true, false, false, SF_CATALOG_HEAD_BROKEN},
        {"another version", 3, 3, 5, 6, 3, "b", "c", "", true, true, false, false,
         SF_CATALOG_HEAD_BROKEN},
        {"previous", 3, 3, 5, 5, 2, "b", "c", "", true, true, false, false, SF_CATALOG_HEAD_BROKEN},
        {"collection", 3, 3, 5, 5, 3, "b", "c", "", true, true, false, true,
         SF_CATALOG_HEAD_BROKEN},
        {"verify", 3, 3, 0, 0, 0, "b", "", "", false, false, true, false, SF_CATALOG_HEAD_BROKEN},
    };
    for (size_t i = 0; i < SF_ARRAY_LEN(rows); i++) {
        SF_PB(CollectionRef) ref = SEARCHFABRIC__V1__COLLECTION_REF__INIT;
        SF_PB(CollectionRef) other = SEARCHFABRIC__V1__COLLECTION_REF__INIT;
        SF_PB(CollectionRow) row = SEARCHFABRIC__V1__COLLECTION_ROW__INIT;
        SF_PB(ManifestCommittedHeadObject)
        pointer = SEARCHFABRIC__V1__MANIFEST_COMMITTED_HEAD_OBJECT__INIT;
        SF_PB(CollectionManifestObject)
        message = SEARCHFABRIC__V1__COLLECTION_MANIFEST_OBJECT__INIT;
        struct sf_catalog_head_manifest manifest = {
            .read = rows[i].read, .found = rows[i].found, .message = &message};
        const char *reason = NULL;
        other.collection_id = 1;
        row.manifest_head_version = rows[i].head;
        row.committed_manifest_version = rows[i].known;
        if (rows[i].known_checksum != NULL) {
            row._committed_manifest_checksum_or_etag_case =
                SEARCHFABRIC__V1__COLLECTION_ROW___COMMITTED_MANIFEST_CHECKSUM_OR_ETAG_COMMITTED_MANIFEST_CHECKSUM_OR_ETAG;
            row.committed_manifest_checksum_or_etag = (char *)(uintptr_t)rows[i].known_checksum;
        }
        pointer.collection = &ref;
        pointer.committed_manifest_version = rows[i].pointer;
        pointer.previous_committed_manifest_version = 3;
        pointer.manifest_checksum_or_etag = "c";
        message.collection = rows[i].foreign ? &other : &ref;
        message.manifest_version = rows[i].version;
        message.previous_manifest_version = rows[i].previous;
        snprintf(manifest.sha256, sizeof(manifest.sha256), "%s", rows[i].digest);
        snprintf(manifest.etag.text, sizeof(manifest.etag.text), "%s", rows[i].etag);
        assert_int_equal(sf_catalog_head_judge(&row, rows[i].pointer == 0 ? NULL : &pointer,
                                               rows[i].broken, &manifest, &reason),
                         rows[i].state);
        assert_true((reason == NULL) == (rows[i].reason == NULL));
        if (reason != NULL)
            assert_non_null(strstr(reason, rows[i].reason));
    }
}

/* Every pair of status and event: the nine moves and no other. */
static void test_moves(void **state)
{
    (void)state;
    const struct {
        SF_PB(ManifestHeadReconcilerStatus) from;
        enum sf_catalog_head_event event;
        SF_PB(ManifestHeadReconcilerStatus) to; /* UNSPECIFIED = no move */
        bool counts;
    } rows[] = {
        {STATUS(IDLE), SF_CATALOG_HEAD_ON_GAP, STATUS(REPAIR_PENDING), false},
        {STATUS(IDLE), SF_CATALOG_HEAD_ON_ATTEMPT, 0, false},
        {STATUS(IDLE), SF_CATALOG_HEAD_ON_CONVERGED, 0, false},
        {STATUS(IDLE), SF_CATALOG_HEAD_ON_BROKEN, STATUS(ERROR), true},
        {STATUS(IDLE), SF_CATALOG_HEAD_ON_OPERATOR, 0, false},
        {STATUS(REPAIR_PENDING), SF_CATALOG_HEAD_ON_GAP, 0, false},
        {STATUS(REPAIR_PENDING), SF_CATALOG_HEAD_ON_ATTEMPT, STATUS(REPAIRING), true},
        {STATUS(REPAIR_PENDING), SF_CATALOG_HEAD_ON_CONVERGED, STATUS(IDLE), false},
        {STATUS(REPAIR_PENDING), SF_CATALOG_HEAD_ON_BROKEN, STATUS(ERROR), true},
        {STATUS(REPAIR_PENDING), SF_CATALOG_HEAD_ON_OPERATOR, 0, false},
        {STATUS(REPAIRING), SF_CATALOG_HEAD_ON_GAP, 0, false},
        {STATUS(REPAIRING), SF_CATALOG_HEAD_ON_ATTEMPT, STATUS(REPAIRING), true},
        {STATUS(REPAIRING), SF_CATALOG_HEAD_ON_CONVERGED, STATUS(IDLE), false},
        {STATUS(REPAIRING), SF_CATALOG_HEAD_ON_BROKEN, STATUS(ERROR), true},
        {STATUS(REPAIRING), SF_CATALOG_HEAD_ON_OPERATOR, 0, false},
        {STATUS(ERROR), SF_CATALOG_HEAD_ON_GAP, 0, false},
        {STATUS(ERROR), SF_CATALOG_HEAD_ON_ATTEMPT, 0, false},
        {STATUS(ERROR), SF_CATALOG_HEAD_ON_CONVERGED, 0, false},
        {STATUS(ERROR), SF_CATALOG_HEAD_ON_BROKEN, 0, false},
        {STATUS(ERROR), SF_CATALOG_HEAD_ON_OPERATOR, STATUS(REPAIR_PENDING), false},
    };
    for (size_t i = 0; i < SF_ARRAY_LEN(rows); i++) {
        const struct sf_catalog_head_move *move = sf_catalog_head_move(rows[i].from, rows[i].event);
        assert_int_equal(move == NULL ? 0 : (int)move->to, (int)rows[i].to);
        assert_true(move == NULL || move->counts == rows[i].counts);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),  cmocka_unit_test(test_requests), cmocka_unit_test(test_cas),
        cmocka_unit_test(test_judge), cmocka_unit_test(test_moves),
    };
    return SF_RUN_TESTS("catalog_head", tests);
}
