/*
 * Replay identities of every command kind. The expected digests were worked out apart: SHA-256 over
 * the domain tag and the inputs that the note lists, each as a field with its length before it.
 */
#include "catalog/catalog_head.h"
#include "catalog/catalog_lifecycle.h"
#include "catalog/catalog_rules.h"
#include "support/proves.h"

#define LOOPBACK "64edaa3fb9310e98cdb183cddbf156d9964a05c017fa7f8ee3c262909fa36759"

/* One kind: its identities, and the business identity where it has one. */
struct derivation {
    const struct sf_catalog_mutation *ops;
    const ProtobufCMessage *request;
    SF_PB(CommandKind) kind;
    bool intent;
    const char *command, *transport, *business;
};

static void check(const struct derivation *d)
{
    char command[SF_SHA256_HEX_BYTES], transport[SF_SHA256_HEX_BYTES];
    assert_int_equal(d->ops->kind, d->kind);
    assert_int_equal(d->ops->intent, d->intent);
    if (d->intent) {
        sf_catalog_intent_key(SF_CATALOG_TAG_INTENT, d->ops, d->request, command);
        sf_catalog_intent_key(SF_CATALOG_TAG_INTENT_LOOKUP, d->ops, d->request, transport);
    } else {
        sf_catalog_replay_key(SF_CATALOG_TAG_COMMAND, d->ops->kind_name, LOOPBACK, d->ops,
                              d->request, command);
        sf_catalog_replay_key(SF_CATALOG_TAG_TRANSPORT, d->ops->rpc_method, LOOPBACK, d->ops,
                              d->request, transport);
    }
    assert_string_equal(command, d->command);
    assert_string_equal(transport, d->transport);
    assert_int_equal(d->ops->business != NULL, d->business != NULL);
    if (d->business != NULL) {
        char business[SF_SHA256_HEX_BYTES];
        d->ops->business(d->request, business);
        assert_string_equal(business, d->business);
    }
}

static void test_public_kinds(void **state)
{
    (void)state;
    SF_PROVES("CCS-4.4-03");
    SF_PB(RequestMeta) meta;
    SF_PB(CollectionRef) ref;
    SF_PB(CollectionNameBinding) binding;
    SF_PB(SchemaFencePrecondition) fence;
    SF_PB(PutNamespaceMetadataRequest) ns;
    SF_PB(PutCollectionMetadataRequest) collection;
    SF_PB(PutCollectionSchemaRequest) schema;
    SF_PB(DropCollectionRequest) drop;
    searchfabric__v1__request_meta__init(&meta);
    searchfabric__v1__collection_ref__init(&ref);
    searchfabric__v1__collection_name_binding__init(&binding);
    searchfabric__v1__schema_fence_precondition__init(&fence);
    searchfabric__v1__put_namespace_metadata_request__init(&ns);
    searchfabric__v1__put_collection_metadata_request__init(&collection);
    searchfabric__v1__put_collection_schema_request__init(&schema);
    searchfabric__v1__drop_collection_request__init(&drop);
    meta.idempotency_key = "k1";
    meta.client_id = "client-1";
    meta.client_kind = SF_PBE(CLIENT_KIND, CONTROL_ADMIN);
    ns.meta = collection.meta = schema.meta = drop.meta = &meta;
    ns.namespace_name = "alpha";
    binding.namespace_id = ref.namespace_id = 7;
    binding.collection_name = "books";
    ref.collection_id = 9;
    collection.name_binding = &binding;
    schema.collection = drop.collection = &ref;
    schema.schema_version = 3;
    schema.fence = &fence;
    fence.schema_generation_token = "tok";
    const struct derivation kinds[] = {
        {&sf_catalog_put_namespace, &ns.base, SF_PBE(COMMAND_KIND, PUT_NAMESPACE_METADATA), false,
         "036834e342e769491e83f07825ffa917ebcd058f714ea055ba268b0b68d97501",
         "d69790f43a9e1a77498a42482562a81a7bbf0e89ff94e3103cf4663cbf8cac6f", NULL},
        {&sf_catalog_put_collection, &collection.base,
         SF_PBE(COMMAND_KIND, PUT_COLLECTION_METADATA), false,
         "5abdc196a6c66cf3b0e88af42a8f393b13209aaf91b121998c5128168a81f4ad",
         "4a1b7efa7a61e67c52760316ef6b0838a14bb6f693d6c9c74d03cc31cc940250", NULL},
        {&sf_catalog_put_schema, &schema.base, SF_PBE(COMMAND_KIND, PUT_COLLECTION_SCHEMA), false,
         "54467e0330938efaeeac83f1f1570a5da3170124accc9298554e5bcc845aa95e",
         "cc5a149a386b4018b8f6816b65ce2587b00982c92e92f5c99ffe2dfb39ac0cdc",
         "f0e2ff991e279df3b9883599f699e089074c3decde892074160aed98f38a3b54"},
        {&sf_catalog_drop_collection, &drop.base, SF_PBE(COMMAND_KIND, DROP_COLLECTION), false,
         "47d152a2db476e5f63c866d44269932822e48a0f79636184b5d2ca08422568e0",
         "39742c1b49976a06c9fe23fe8704f5cb2ceca2b90c181065e0e66b5647299a88",
         "ac4c1592271c884448b3cd2dd671f17e6cfe432a74d6d0c356c9ff9b64630204"},
    };
    for (size_t i = 0; i < SF_ARRAY_LEN(kinds); i++)
        check(&kinds[i]);
    /* the transport identity of a key is that of one method alone */
    assert_string_not_equal(kinds[2].transport, kinds[3].transport);
}

static void test_intents(void **state)
{
    (void)state;
    SF_PROVES("CCS-4.4-03");
    SF_PB(CollectionRef) ref;
    SF_PB(SubmitHeadAdvanceIntentRequest) advance;
    SF_PB(SubmitNamespaceLifecycleTransitionRequest) transition;
    SF_PB(NamespaceNameReservationReleaseIntent) ns;
    SF_PB(CollectionNameReservationReleaseIntent) collection;
    searchfabric__v1__collection_ref__init(&ref);
    searchfabric__v1__submit_head_advance_intent_request__init(&advance);
    searchfabric__v1__submit_namespace_lifecycle_transition_request__init(&transition);
    searchfabric__v1__namespace_name_reservation_release_intent__init(&ns);
    searchfabric__v1__collection_name_reservation_release_intent__init(&collection);
    ref.namespace_id = transition.namespace_id = collection.namespace_id = 7;
    ref.collection_id = 9;
    advance.collection = &ref;
    advance.expected_head_version = 4;
    advance.new_head_version = 5;
    advance.manifest_checksum_or_etag = "sum";
    transition.target_lifecycle_state = SF_PBE(NAMESPACE_LIFECYCLE_STATE, TOMBSTONED);
    transition.expected_namespace_revision = 2;
    ns.namespace_name = "alpha";
    collection.collection_name = "books";
    ns.releasing_namespace_name_allocation_epoch = 2;
    collection.releasing_collection_name_allocation_epoch = 2;
    ns.release_cutoff_unix_ms = collection.release_cutoff_unix_ms = 1000;
    const struct derivation kinds[] = {
        {&sf_catalog_head_advance, &advance.base, SF_PBE(COMMAND_KIND, HEAD_ADVANCE), true,
         "c001d22a08018a69c431f21393e2e9aa773b0070f56afea3f8889785fb54ae6c",
         "591e65a4955a6117b00081c36976e72c342b93fb3f8d4f29c44376881d56ea2b",
         "6806130ac56a8260238f44891e3809a17f649b1c7a3c50a5b62c03c6326deed1"},
        {&sf_catalog_transition_namespace, &transition.base,
         SF_PBE(COMMAND_KIND, NAMESPACE_LIFECYCLE_TRANSITION), true,
         "4e5d68993c155ff78e5b7d22a39602f6d3fbd0266d9e3afe563fd0e31829bef5",
         "aa6b7307fcb3cc145fc5f5c44abb88b04438ee7e93f610b33ace3ca457554865", NULL},
        {&sf_catalog_release_namespace, &ns.base,
         SF_PBE(COMMAND_KIND, NAMESPACE_NAME_RESERVATION_RELEASE), true,
         "e532cb85af52aa62c2c570b27bbe260b39c9cfc6a9e263b67d5dd3f05ecf11b7",
         "7208aef7d947070ed06c8a796c9fb612797cd6912455885bc501367f2e56127b", NULL},
        {&sf_catalog_release_collection, &collection.base,
         SF_PBE(COMMAND_KIND, COLLECTION_NAME_RESERVATION_RELEASE), true,
         "39e379ad63dc9dbe0c87a23655d3af4defc7c9b7f5ee16112eae96822b2ddebc",
         "a430b829893734c3be8c29c86236bae7aaa50902e1ebce153724fbe5bac8db76", NULL},
    };
    for (size_t i = 0; i < SF_ARRAY_LEN(kinds); i++)
        check(&kinds[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_public_kinds),
        cmocka_unit_test(test_intents),
    };
    return SF_RUN_TESTS("catalog_keys", tests);
}
