/*
 * Model: a lane serializes what names the same thing; a gate serializes what touches the same thing
 * from different lanes. Child work (create, update, schema, drop, head advance) shares its
 * namespace's gate, a lifecycle transition or a release of the namespace's name takes it alone;
 * what changes one collection takes that collection's gate, so that the release of its name, which
 * runs on the name lane, excludes it. Order: name lane, namespace, collection. Waiters are admitted
 * in arrival order, so that a stream of children cannot starve a transition. A gate that nobody
 * holds or waits for is not kept.
 */
#include "catalog/catalog_gate.h"

#include <stdlib.h>

struct gate_key {
    uint64_t namespace_id;
    uint64_t collection_id; /* 0 = the namespace's own gate */
};

struct gate_waiter {
    struct sf_waiter waiter;
    struct gate_waiter *next;
    bool exclusive;
};

struct gate {
    struct gate_waiter *head, *tail; /* in arrival order */
    unsigned shared;                 /* holders that share it */
    bool exclusive;                  /* one holder has it alone */
};

struct sf_catalog_gate_table {
    pthread_mutex_t mu;
    struct sf_map *gates; /* gate_key -> struct gate; under mu */
};

struct sf_catalog_gate_table *sf_catalog_gate_table_new(void)
{
    struct sf_catalog_gate_table *table = sf_calloc(1, sizeof(*table));
    pthread_mutex_init(&table->mu, NULL);
    table->gates = sf_map_new();
    return table;
}

void sf_catalog_gate_table_destroy(struct sf_catalog_gate_table *table)
{
    if (table == NULL)
        return;
    SF_ASSERT(sf_map_count(table->gates) == 0);
    sf_map_destroy(table->gates, NULL);
    pthread_mutex_destroy(&table->mu);
    free(table);
}

static bool fits(const struct gate *gate, bool exclusive)
{
    return !gate->exclusive && (!exclusive || gate->shared == 0);
}

static void hold(struct gate *gate, bool exclusive)
{
    if (exclusive)
        gate->exclusive = true;
    else
        gate->shared++;
}

static void acquire(struct sf_catalog *catalog, struct gate_key key, bool exclusive)
{
    struct sf_catalog_gate_table *table = catalog->gates;
    struct gate_waiter self = {.exclusive = exclusive};
    pthread_mutex_lock(&table->mu);
    struct gate *gate = sf_map_get(table->gates, sf_view_bytes(&key, sizeof(key)));
    if (gate == NULL) {
        gate = sf_calloc(1, sizeof(*gate));
        sf_map_put(table->gates, sf_view_bytes(&key, sizeof(key)), gate);
    }
    bool wait = gate->head != NULL || !fits(gate, exclusive);
    if (wait) {
        sf_waiter_init(&self.waiter, catalog->deps.sched);
        if (gate->tail != NULL)
            gate->tail->next = &self;
        else
            gate->head = &self;
        gate->tail = &self;
    } else {
        hold(gate, exclusive);
    }
    pthread_mutex_unlock(&table->mu);
    if (wait) {
        sf_waiter_wait(&self.waiter); /* the release that woke it made it a holder */
        sf_waiter_fini(&self.waiter);
    }
}

static void release(struct sf_catalog *catalog, struct gate_key key, bool exclusive)
{
    struct sf_catalog_gate_table *table = catalog->gates;
    struct gate_waiter *woken = NULL;
    struct gate_waiter **end = &woken;
    pthread_mutex_lock(&table->mu);
    struct gate *gate = sf_map_get(table->gates, sf_view_bytes(&key, sizeof(key)));
    SF_ASSERT(gate != NULL);
    if (exclusive)
        gate->exclusive = false;
    else
        gate->shared--;
    while (gate->head != NULL && fits(gate, gate->head->exclusive)) {
        struct gate_waiter *next = gate->head;
        gate->head = next->next;
        next->next = NULL;
        hold(gate, next->exclusive);
        *end = next;
        end = &next->next;
    }
    if (gate->head == NULL)
        gate->tail = NULL;
    if (gate->head == NULL && !gate->exclusive && gate->shared == 0)
        free(sf_map_del(table->gates, sf_view_bytes(&key, sizeof(key))));
    pthread_mutex_unlock(&table->mu);
    while (woken != NULL) {
        struct gate_waiter *next = woken->next;
        sf_waiter_wake(&woken->waiter);
        woken = next;
    }
}

void sf_catalog_gates_acquire(struct sf_catalog *catalog, const struct sf_catalog_gates *gates)
{
    if (SF_MUTANT(ccs_no_gates))
        return;
    if (gates->namespace_id != 0)
        acquire(catalog, (struct gate_key){.namespace_id = gates->namespace_id},
                gates->namespace_exclusive);
    if (gates->collection_id != 0)
        acquire(catalog, (struct gate_key){gates->namespace_id, gates->collection_id}, true);
}

void sf_catalog_gates_release(struct sf_catalog *catalog, const struct sf_catalog_gates *gates)
{
    if (SF_MUTANT(ccs_no_gates))
        return;
    if (gates->collection_id != 0)
        release(catalog, (struct gate_key){gates->namespace_id, gates->collection_id}, true);
    if (gates->namespace_id != 0)
        release(catalog, (struct gate_key){.namespace_id = gates->namespace_id},
                gates->namespace_exclusive);
}

bool sf_catalog_gate_waited_for(struct sf_catalog *catalog, uint64_t namespace_id)
{
    struct sf_catalog_gate_table *table = catalog->gates;
    struct gate_key key = {.namespace_id = namespace_id};
    pthread_mutex_lock(&table->mu);
    const struct gate *gate = sf_map_get(table->gates, sf_view_bytes(&key, sizeof(key)));
    bool waits = gate != NULL && gate->head != NULL;
    pthread_mutex_unlock(&table->mu);
    return waits;
}
