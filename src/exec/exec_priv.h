/* What the files of exec/ share: the thread form of a waiter and the task queue. */
#ifndef SF_EXEC_PRIV_H
#define SF_EXEC_PRIV_H

#include "exec/sched.h"

/* First-in first-out list of tasks; zero-initialise. */
struct sf_task_queue {
    struct sf_task *head; /* next to run */
    struct sf_task *tail; /* last queued; undefined while head is NULL */
};

static inline void sf_task_queue_push(struct sf_task_queue *queue, struct sf_task *task)
{
    task->next = NULL;
    if (queue->head == NULL)
        queue->head = task;
    else
        queue->tail->next = task;
    queue->tail = task;
}

/* Takes the first task, NULL when empty. */
static inline struct sf_task *sf_task_queue_pop(struct sf_task_queue *queue)
{
    struct sf_task *task = queue->head;

    if (task != NULL) {
        queue->head = task->next;
        task->next = NULL;
    }
    return task;
}

/* Waiter over one word of memory, for plain threads and the pool's workers. */
void sf_gate_init(struct sf_waiter *waiter);
void sf_gate_wait(struct sf_waiter *waiter);
void sf_gate_wake(struct sf_waiter *waiter);
void sf_gate_fini(struct sf_waiter *waiter);

#endif
