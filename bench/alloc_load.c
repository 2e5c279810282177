#include "alloc_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/allocator.h"
#include "base/mem.h"
#include "bench_common.h"
#include "etcd_kv.pb-c.h"
#include "rpc/channel.h"
#include "searchfabric/v1/search_fabric.pb-c.h"

#define MOST_CONNECTIONS 64u
#define MOST_ITEMS       1000u
#define FIRST_OWN        1000000u /* collection of the first slot with one of its own */

/* A slot's request. */
struct client {
    struct bench_slot *slot; /* it belongs to */
    struct sf_channel *channel;
    struct load *load;
    char key[64]; /* idempotency key */
    Searchfabric__V1__AllocateIdsRequest request;
    Searchfabric__V1__RequestMeta meta;
    Searchfabric__V1__CollectionRef collection;
    Searchfabric__V1__AllocationPlan plan;
    Searchfabric__V1__AllocationPlanItem **items;
    Searchfabric__V1__AllocationPlanItem *explicit_items; /* one an item, with plan->items */
    Searchfabric__V1__DocumentID *doc_ids;                /* of them */
};

struct load {
    const struct bench_alloc_load *order;
    struct sf_channel *channels[MOST_CONNECTIONS];
    struct client *clients;
    uint64_t sent;
    Searchfabric__V1__AllocationPlanItem issue_item;
    Searchfabric__V1__IssueItem issue;
};

/* Next id of each slot's own collection; lives as long as the program, as the collections do. */
static uint64_t own_next[4096];

static void channels_open(struct sf_loop *loop, uint16_t port, unsigned count,
                          struct sf_channel **channels)
{
    bench_must(count >= 1 && count <= MOST_CONNECTIONS, "counting connections");
    for (unsigned i = 0; i < count; i++)
        bench_must(sf_grpc_channel_new(loop, "127.0.0.1", port, NULL, &channels[i]) == SF_OK,
                   "a channel");
}

static void on_allocated(void *user, const struct sf_diag *diag, const ProtobufCMessage *message)
{
    struct client *c = user;
    const Searchfabric__V1__AllocateIdsSuccessResponse *r = (const void *)message;
    const struct bench_alloc_load *order = c->load->order;

    if (diag->err != SF_OK)
        (void)fprintf(stderr, "%s\n", diag->message);
    bench_must(diag->err == SF_OK && r->n_realized_doc_ids == order->items &&
                   r->allocator_receipt.len != 0,
               "an allocation");
    if (order->spread == BENCH_OWN)
        own_next[c->slot->index] = r->realized_doc_ids[order->items - 1]->doc_id->u64 + 1;
    bench_flow_answered(c->slot);
}

/* Names explicit ids: all, or every second one, from the slot's next on. */
static void name_ids(struct client *c, enum bench_plan plan)
{
    uint64_t next = own_next[c->slot->index];

    for (unsigned i = 0; i < c->load->order->items; i++) {
        bool issue = plan == BENCH_MIXED && i % 2 == 0;
        c->doc_ids[i].u64 = next + i;
        c->items[i] = issue ? &c->load->issue_item : &c->explicit_items[i];
    }
}

static void send_allocation(struct bench_slot *slot)
{
    struct load *load = slot->flow->user;
    const struct bench_alloc_load *order = load->order;
    struct client *c = &load->clients[slot->index];
    uint64_t number = load->sent++;

    c->slot = slot;
    (void)snprintf(c->key, sizeof(c->key), "bench/%llu/%llu", (unsigned long long)order->run,
                   (unsigned long long)(order->keys == 0 ? number : number % order->keys));
    c->collection.collection_id = order->spread == BENCH_ONE     ? 1
                                  : order->spread == BENCH_ROUND ? 2 + number % order->collections
                                                                 : FIRST_OWN + slot->index;
    if (order->plan != BENCH_ISSUE)
        name_ids(c, order->plan);
    sf_channel_unary(c->channel, SF_ALLOCATOR_METHOD, &c->request.base, NULL, slot->flow->loop,
                     on_allocated, c);
}

static void client_init(struct load *load, struct client *c, struct sf_channel *channel)
{
    unsigned items = load->order->items;

    c->load = load;
    c->channel = channel;
    searchfabric__v1__allocate_ids_request__init(&c->request);
    searchfabric__v1__request_meta__init(&c->meta);
    searchfabric__v1__collection_ref__init(&c->collection);
    searchfabric__v1__allocation_plan__init(&c->plan);
    c->meta.idempotency_key = c->key;
    c->meta.client_id = (char *)"bench";
    c->meta.client_kind = SEARCHFABRIC__V1__CLIENT_KIND__CLIENT_KIND_ES_WRITE_GATEWAY;
    c->collection.namespace_id = 1;
    c->items = sf_calloc(items, sizeof(Searchfabric__V1__AllocationPlanItem *));
    c->explicit_items = sf_calloc(items, sizeof(*c->explicit_items));
    c->doc_ids = sf_calloc(items, sizeof(*c->doc_ids));
    for (unsigned i = 0; i < items; i++) {
        searchfabric__v1__allocation_plan_item__init(&c->explicit_items[i]);
        searchfabric__v1__document_id__init(&c->doc_ids[i]);
        c->doc_ids[i].id_value_case = SEARCHFABRIC__V1__DOCUMENT_ID__ID_VALUE_U64;
        c->explicit_items[i].item_case =
            SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__ITEM_EXPLICIT_DOC_ID;
        c->explicit_items[i].explicit_doc_id = &c->doc_ids[i];
        c->items[i] = &load->issue_item;
    }
    c->plan.items = c->items;
    c->plan.n_items = items;
    c->request.meta = &c->meta;
    c->request.collection = &c->collection;
    c->request.plan = &c->plan;
    c->request.route_intent =
        SEARCHFABRIC__V1__ID_ALLOCATION_ROUTE_INTENT__ID_ALLOCATION_ROUTE_INTENT_CREATE_INSERT;
}

void bench_alloc_load_run(struct sf_loop *loop, const struct bench_alloc_load *order,
                          struct bench_flow_result *out_result)
{
    struct load load = {.order = order};
    struct bench_flow flow = {.loop = loop,
                              .in_flight = order->in_flight,
                              .ms = order->ms,
                              .most_calls = order->most_calls,
                              .send = send_allocation,
                              .user = &load};

    bench_must(order->items >= 1 && order->items <= MOST_ITEMS &&
                   order->in_flight <= SF_ARRAY_LEN(own_next),
               "reading the order");
    searchfabric__v1__allocation_plan_item__init(&load.issue_item);
    searchfabric__v1__issue_item__init(&load.issue);
    load.issue_item.item_case = SEARCHFABRIC__V1__ALLOCATION_PLAN_ITEM__ITEM_ISSUE;
    load.issue_item.issue = &load.issue;
    channels_open(loop, order->port, order->connections, load.channels);
    load.clients = sf_calloc(order->in_flight, sizeof(*load.clients));
    for (unsigned i = 0; i < order->in_flight; i++)
        client_init(&load, &load.clients[i], load.channels[i % order->connections]);
    bench_flow_run(&flow, out_result);
    for (unsigned i = 0; i < order->connections; i++)
        sf_channel_destroy(load.channels[i]);
    for (unsigned i = 0; i < order->in_flight; i++) {
        free(load.clients[i].items);
        free(load.clients[i].explicit_items);
        free(load.clients[i].doc_ids);
    }
    free(load.clients);
}

/* ---- etcd ---- */

struct etcd_client {
    struct bench_slot *slot;
    Etcdserverpb__PutRequest request;
    char key[96];
};

struct etcd_load {
    struct sf_channel *channels[MOST_CONNECTIONS];
    unsigned connections;
    struct etcd_client *clients;
    uint64_t sent;
};

static void on_put(void *user, const struct sf_diag *diag, const ProtobufCMessage *message)
{
    struct etcd_client *c = user;

    (void)message;
    if (diag->err != SF_OK)
        (void)fprintf(stderr, "etcd: %s\n", diag->message);
    bench_must(diag->err == SF_OK, "a put into etcd");
    bench_flow_answered(c->slot);
}

static void send_put(struct bench_slot *slot)
{
    struct etcd_load *load = slot->flow->user;
    struct etcd_client *c = &load->clients[slot->index];

    c->slot = slot;
    c->request.key.len =
        (size_t)snprintf(c->key, sizeof(c->key), "replay/%016llx%016llx%016llx%016llx", 0ULL, 0ULL,
                         0ULL, (unsigned long long)load->sent++);
    c->request.key.data = (uint8_t *)c->key;
    sf_channel_unary(load->channels[slot->index % load->connections], "/etcdserverpb.KV/Put",
                     &c->request.base, NULL, slot->flow->loop, on_put, c);
}

void bench_etcd_load_run(struct sf_loop *loop, uint16_t port, unsigned connections,
                         unsigned in_flight, int64_t ms, size_t bytes,
                         struct bench_flow_result *out_result)
{
    struct etcd_load load = {.connections = connections};
    struct bench_flow flow = {
        .loop = loop, .in_flight = in_flight, .ms = ms, .send = send_put, .user = &load};
    uint8_t *body = sf_malloc(bytes);

    memset(body, 'y', bytes);
    channels_open(loop, port, connections, load.channels);
    for (unsigned i = 0; i < connections; i++)
        sf_grpc_channel_add_service(load.channels[i], &etcdserverpb__kv__descriptor);
    load.clients = sf_calloc(in_flight, sizeof(*load.clients));
    for (unsigned i = 0; i < in_flight; i++) {
        etcdserverpb__put_request__init(&load.clients[i].request);
        load.clients[i].request.value = (ProtobufCBinaryData){bytes, body};
    }
    bench_flow_run(&flow, out_result);
    for (unsigned i = 0; i < connections; i++)
        sf_channel_destroy(load.channels[i]);
    free(load.clients);
    free(body);
}
