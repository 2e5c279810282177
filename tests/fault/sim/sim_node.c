/*
 * Nodes and chaos. A node's life:
 *
 *   DOWN --delay--> STARTING --service--> UP --killed or stopped--> STOPPING --> DRAINING --> DOWN
 *                       |  no service, or killed meanwhile                          ^
 *                       +---------------------------------------------------------> +
 *
 * Starting and stopping are tasks of the process. A process that was killed stops too: its calls
 * all fail, so that its tasks unwind and its memory is given back; nothing it does counts. A state
 * that lasts too long is a hang, which is a violation.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "fault/sim/sim_priv.h"

#define NODE_HANG_MS INT64_C(600000)

static void move(struct sim_node *node, enum sim_node_state state)
{
    node->state = state;
    node->since_ms = node->sim->now_ms;
}

static void start_task(struct sim_process *process, void *arg)
{
    struct sim_node *node = arg;

    node->running = node->service.start(process, node->service.ctx);
    node->starting_done = true;
}

static void stop_task(struct sim_process *process, void *arg)
{
    struct sim_node *node = arg;

    node->service.stop(process, node->running, node->service.ctx);
    node->running = NULL;
    node->stopping_done = true;
}

static void tick_down(struct sim_node *node)
{
    char name[64];

    if (node->stop_for_good || node->sim->now_ms < node->restart_at_ms)
        return;
    node->life++;
    (void)snprintf(name, sizeof(name), "%s.%llu", node->name, (unsigned long long)node->life);
    node->process = sim_process_make(node->sim, name, node->sim->options.workers);
    node->starting_done = false;
    sim_trace(node->sim, "%s starts", name);
    move(node, NODE_STARTING);
    sim_spawn(node->process, start_task, node);
}

static void tick_starting(struct sim_node *node)
{
    if (!node->starting_done)
        return;
    if (node->running == NULL) {
        sim_trace(node->sim, "%s did not start", node->process->name);
        sim_process_kill(node->process);
        move(node, NODE_DRAINING);
    } else {
        move(node, NODE_UP);
    }
}

static void tick_up(struct sim_node *node)
{
    if (!node->process->dead && !node->stop_for_good && !node->stop_wanted)
        return;
    node->stop_wanted = false;
    node->stopping_done = false;
    move(node, NODE_STOPPING);
    sim_spawn(node->process, stop_task, node);
}

static void tick_draining(struct sim_node *node)
{
    if (!sim_process_is_quiet(node->process))
        return;
    sim_process_destroy(node->process);
    node->process = NULL;
    node->restart_at_ms =
        node->sim->now_ms + sim_draw_ms(&node->sim->chaos, node->sim->options.max_restart_ms);
    move(node, NODE_DOWN);
}

static void tick(struct sim_node *node)
{
    switch (node->state) {
    case NODE_DOWN:
        tick_down(node);
        return;
    case NODE_STARTING:
        tick_starting(node);
        break;
    case NODE_UP:
        tick_up(node);
        return;
    case NODE_STOPPING:
        if (node->stopping_done) {
            sim_process_kill(node->process);
            move(node, NODE_DRAINING);
        }
        break;
    case NODE_DRAINING:
        tick_draining(node);
        break;
    }
    if (node->state != NODE_DOWN && node->sim->now_ms - node->since_ms > NODE_HANG_MS)
        sim_violation(node->sim, "%s hangs while %s", node->process->name,
                      node->state == NODE_STARTING   ? "starting"
                      : node->state == NODE_STOPPING ? "stopping"
                                                     : "its tasks and timers should end");
}

/* A node whose process lives, by lot; NULL when there is none. */
static struct sim_node *draw_node(struct sim *sim)
{
    struct sim_node *found = NULL;
    uint64_t count = 0;

    for (struct sim_node *n = sim->nodes; n != NULL; n = n->next) {
        if (n->process != NULL && !n->process->dead && n->process->paused_until_ms <= sim->now_ms &&
            sf_rng_below(&sim->chaos, ++count) == 0)
            found = n;
    }
    return found;
}

static void chaos(struct sim *sim)
{
    const struct sim_chaos *c = &sim->options.chaos;

    if (c->interval_ms == 0 || sim->now_ms < sim->next_chaos_ms)
        return;
    sim->next_chaos_ms = sim->now_ms + 1 + sim_draw_ms(&sim->chaos, 2 * c->interval_ms);
    struct sim_node *node = draw_node(sim);
    if (node == NULL)
        return;
    if (sf_rng_below(&sim->chaos, 2) == 0) {
        if (sim->kills < c->max_kills) {
            sim->kills++;
            sim_process_kill(node->process);
        }
    } else if (sim->pauses < c->max_pauses) {
        sim->pauses++;
        sim_process_pause(node->process, 1 + sim_draw_ms(&sim->chaos, c->max_pause_ms - 1));
    }
}

void sim_nodes_tick(struct sim *sim)
{
    chaos(sim);
    for (struct sim_node *n = sim->nodes; n != NULL; n = n->next)
        tick(n);
}

int64_t sim_nodes_next_ms(const struct sim *sim)
{
    int64_t next = INT64_MAX;
    const struct sim_chaos *c = &sim->options.chaos;
    bool more = sim->kills < c->max_kills || sim->pauses < c->max_pauses;

    if (c->interval_ms != 0 && more)
        next = sim->next_chaos_ms;
    for (const struct sim_node *n = sim->nodes; n != NULL; n = n->next) {
        if (n->state == NODE_DOWN && !n->stop_for_good && n->restart_at_ms < next)
            next = n->restart_at_ms;
    }
    return next;
}

bool sim_nodes_busy(const struct sim *sim)
{
    for (const struct sim_node *n = sim->nodes; n != NULL; n = n->next) {
        if (n->state != NODE_DOWN)
            return true;
    }
    return false;
}

struct sim_node *sim_node_new(struct sim *sim, const char *name, const struct sim_service *service)
{
    struct sim_node *node = sf_calloc(1, sizeof(*node));
    struct sim_node **at = &sim->nodes;

    *node = (struct sim_node){.sim = sim, .service = *service, .restart_at_ms = sim->now_ms};
    (void)snprintf(node->name, sizeof(node->name), "%s", name);
    while (*at != NULL)
        at = &(*at)->next;
    *at = node;
    return node;
}

void *sim_node_service(struct sim_node *node, uint64_t *out_life)
{
    if (out_life != NULL)
        *out_life = node->life;
    return node->state == NODE_UP && !node->process->dead ? node->running : NULL;
}

struct sim_process *sim_node_process(struct sim_node *node)
{
    return node->process;
}

bool sim_node_is_current(const struct sim_node *node, uint64_t life)
{
    return node->life == life && node->process != NULL && !node->process->dead;
}

void sim_node_kill(struct sim_node *node)
{
    if (node->process != NULL)
        sim_process_kill(node->process);
}

void sim_node_stop(struct sim_node *node)
{
    if (node->state != NODE_UP)
        return;
    sim_trace(node->sim, "%s stops in good order", node->process->name);
    node->stop_wanted = true;
}

void sim_stop_nodes(struct sim *sim)
{
    for (struct sim_node *n = sim->nodes; n != NULL; n = n->next)
        n->stop_for_good = true;
    sim_nodes_tick(sim);
    while (sim_nodes_busy(sim)) {
        if (!sim_step(sim) && sim_nodes_busy(sim))
            sim_violation(sim, "a node does not stop: its tasks wait for ever");
        sim_nodes_tick(sim);
    }
    while (sim->nodes != NULL) {
        struct sim_node *n = sim->nodes;
        sim->nodes = n->next;
        free(n);
    }
}
