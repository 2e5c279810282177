/*
 * Scripted schedules, each for a fence that chance hardly reaches. A director (the scenario's own
 * function) starts clients one by one and changes owners by hand; a gate between each catalog and
 * its store (ccs_gate.c) holds chosen calls of the first owner. Nothing else goes wrong.
 */
#ifndef SF_TESTS_FAULT_CCS_SCRIPT_H
#define SF_TESTS_FAULT_CCS_SCRIPT_H

#include "fault/catalog/ccs_history.h"

#define MONTH_MS (RETENTION_MS + INT64_C(86400000))
#define HOURS_MS INT64_C(7200000)

/* What happens to puts of one owner's life whose key holds `part`, and to its other calls. */
struct script {
    const char *owner;  /* name of the life, NULL = the first one of `a` */
    const char *part;   /* NULL = nothing */
    int64_t early_ms;   /* > 0: sent this much later, once */
    int64_t delay_ms;   /* > 0: applied, the answer comes this much later, once */
    bool refuse;        /* not applied, and the answer says so */
    int64_t hold_ms;    /* > 0: the next owner's first read of a record takes this much longer */
    int64_t late_ms;    /* > 0: the first delete of a record lands this much later */
    int64_t deleted_ms; /* > 0: the first delete's answer comes this much later */
    int64_t listed_ms;  /* > 0: the next listing of segments is answered this much later */
    const char *look;   /* the first owner's next read of such a key takes late_ms longer */
    unsigned pass;      /* so many reads of that kind before it do not */
    char *key;          /* of the put that is being kept; others of that kind pass */
    struct sf_buf body; /* its bytes */
    enum sf_put_cond cond;
    struct sf_etag match;
    uint64_t lease_epoch; /* of the lease that was granted last */
    bool may_fail;        /* a start may find something lost and fail closed */
    unsigned shuts;       /* starts that did */
    unsigned done;        /* clients that are through */
};

/* One client's doing. */
struct part {
    struct client client;
    void (*run)(struct client *c);
};

/* A world without faults, owner `a` alone serving. `script` stays the caller's. */
struct world *script_begin(struct sim *sim, struct script *script);
/* Asks everything again, compares it with a rebuild, ends the world. */
void script_finish(struct world *w, struct sim_process *clients);
/* Another owner, `b`, starts and is the only one that clients call. Returns the one before. */
struct sim_node *script_next_owner(struct world *w);

/* For sim_spawn: keeps time going in small steps, so that the director's waits end when they
 * should; runs a struct part and counts it. */
void script_tick(struct sim_process *process, void *arg);
void script_run_part(struct sim_process *process, void *arg);
/* Until so many parts are through. */
void script_until(struct world *w, unsigned done);
void script_until_within(struct world *w, unsigned done, int64_t max_ms);

/* The put that was kept lands, if its condition holds; later ones pass. */
void script_land(struct world *w);
/* Takes rows out of the projection while its owner serves. */
void script_lose_rows(struct world *w, const char *sql);

/* What parts do (ccs_script.c). */
void part_create_shared(struct client *c);
void part_create_own(struct client *c);
void part_update_own(struct client *c);
void part_create_collection(struct client *c);
/* An own namespace with updates that are past the retention, and two checkpoints since. */
void part_make_old(struct client *c);
void part_cut_checkpoint(struct client *c);
/* Takes a lease of the shared namespace, under one request id for each client. */
void part_take_lease(struct client *c);
/* One round of retention, as far as it comes. */
void part_retain(struct client *c);
/* Retention to its end, and once more when no delete is in doubt. */
void part_retain_all(struct client *c);
/* The key is no longer one that has an answer; `out` gets what it was. */
void script_forget_key(struct world *w, const char *key, struct sf_buf *out);
/* Whether the second update's key was a new one (and its value is the namespace's again), or was
 * answered as before; what of the two updates is superseded is no longer asked for. */
void script_forget_superseded(struct world *w, struct sf_buf *first);

/* A row of a table of scenarios: `run_{schedule}` as "ccs_{schedule}". Seeds change only the order
 * of what happens at the same time, so few of them do. */
#define SCRIPT(schedule)                                                                           \
    {                                                                                              \
        .name = "ccs_" #schedule, .area = "ccs", .run = run_##schedule, .most_seeds = 60           \
    }
/* The same, of a schedule that must find the first owner alive where it is held. */
#define HELD_SCRIPT(schedule)                                                                      \
    {                                                                                              \
        .name = "ccs_" #schedule, .area = "ccs", .run = run_##schedule, .most_seeds = 60,          \
        .own_crashes = true                                                                        \
    }

/* ccs_script.c, ccs_stale.c and ccs_loss.c: their scenarios. */
extern const struct sim_scenario ccs_scripts[];
extern const size_t ccs_script_count;
extern const struct sim_scenario ccs_stale_scripts[];
extern const size_t ccs_stale_script_count;
extern const struct sim_scenario ccs_loss_scripts[];
extern const size_t ccs_loss_script_count;

#endif
