/* Shared by the sources of this folder: queues of requests and their completion. */
#ifndef SF_TSO_PRIV_H
#define SF_TSO_PRIV_H

#include "tso/tso.h"

/* Requests in order; zero-initialise. */
struct sf_tso_queue {
    struct sf_tso_request *head; /* oldest */
    struct sf_tso_request *last; /* newest */
};

static inline void sf_tso_queue_push(struct sf_tso_queue *queue, struct sf_tso_request *request)
{
    request->next = NULL;
    if (queue->head == NULL)
        queue->head = request;
    else
        queue->last->next = request;
    queue->last = request;
}

/* The oldest request, NULL when there is none. */
static inline struct sf_tso_request *sf_tso_queue_pop(struct sf_tso_queue *queue)
{
    struct sf_tso_request *request = queue->head;

    if (request != NULL)
        queue->head = request->next;
    return request;
}

static inline void sf_tso_run_done(struct sf_task *task)
{
    struct sf_tso_request *request = SF_CONTAINER_OF(task, struct sf_tso_request, task);

    request->done(request);
}

/* Completes a request from a later turn of `loop`: at once when it wants that loop or any thread,
 * else over a post. */
static inline void sf_tso_complete_on_loop(struct sf_tso_request *request, struct sf_loop *loop)
{
    if (request->loop == NULL || request->loop == loop) {
        request->done(request);
        return;
    }
    request->task.run = sf_tso_run_done;
    sf_loop_post(request->loop, &request->task);
}

#endif
