/*
 * The start-up probe: a store that ignores conditions loses data silently, so a node proves the
 * configured store through the configured endpoint before it serves. Each step names what it saw,
 * so that the operator knows which promise the store breaks. The probe's keys carry a random part
 * and are removed at the end.
 */
#include <stdio.h>

#include "base/hash.h"
#include "base/limits.h"
#include "base/rng.h"
#include "object/object_priv.h"

struct probe {
    struct sf_store *store; /* under test */
    struct sf_sched *sched; /* how to wait */
    struct sf_diag *diag;   /* where a broken rule is told */
    char prefix[48];        /* "probe/{random}/" */
    unsigned bodies;        /* bodies made so far: no object gets the same bytes twice */
};

/* One put through the store; body and key are the probe's. */
struct probe_put {
    char key[64];      /* object key */
    char body[96];     /* unique bytes */
    struct sf_put put; /* refers to both */
};

static void probe_put_init(struct probe *p, struct probe_put *out, const char *name,
                           enum sf_put_cond cond, const struct sf_etag *match)
{
    (void)snprintf(out->key, sizeof(out->key), "%s%s", p->prefix, name);
    (void)snprintf(out->body, sizeof(out->body), "{\"probe\":\"%s\",\"n\":%u}", p->prefix,
                   ++p->bodies);
    out->put =
        (struct sf_put){.key = sf_view_str(out->key), .body = sf_view_str(out->body), .cond = cond};
    if (match != NULL)
        out->put.match = *match;
}

static enum sf_err refuse(struct probe *p, const char *what, enum sf_err got)
{
    return sf_diag_set(p->diag, SF_ERR_CONFIG, "the object store may not be used: %s (got %s)",
                       what, sf_err_info(got)->name);
}

static enum sf_err expect_put(struct probe *p, const char *name, enum sf_put_cond cond,
                              const struct sf_etag *match, enum sf_err want, const char *what,
                              struct sf_etag *out_etag)
{
    struct probe_put pp;

    probe_put_init(p, &pp, name, cond, match);
    enum sf_err err = sf_store_put_wait(p->store, p->sched, &pp.put);
    if (err != want)
        return refuse(p, what, err);
    if (out_etag != NULL)
        *out_etag = pp.put.etag;
    return SF_OK;
}

static enum sf_err probe_conditions(struct probe *p)
{
    struct sf_etag first;
    struct sf_etag second;

    enum sf_err err = expect_put(p, "a", SF_PUT_ABSENT, NULL, SF_OK,
                                 "a create-only put of an absent key must succeed", &first);
    if (err == SF_OK)
        err = expect_put(p, "a", SF_PUT_ABSENT, NULL, SF_ERR_PRECONDITION,
                         "a second create-only put of one key must fail with 412", NULL);
    if (err == SF_OK)
        err = expect_put(p, "a", SF_PUT_MATCH, &first, SF_OK,
                         "a swap with the current etag must succeed", &second);
    if (err == SF_OK && strcmp(first.text, second.text) == 0)
        err = refuse(p, "an etag must change with the content", SF_OK);
    if (err == SF_OK)
        err = expect_put(p, "a", SF_PUT_MATCH, &first, SF_ERR_PRECONDITION,
                         "a swap with a stale etag must fail with 412", NULL);
    if (err == SF_OK)
        err = expect_put(p, "missing", SF_PUT_MATCH, &first, SF_ERR_PRECONDITION,
                         "a swap of an absent key must fail and create nothing", NULL);
    return err;
}

static enum sf_err probe_reads(struct probe *p)
{
    struct sf_buf body = {0};
    struct sf_etag etag;
    char key[64];
    char want[96];

    (void)snprintf(key, sizeof(key), "%smissing", p->prefix);
    enum sf_err err = sf_store_get_wait(p->store, p->sched, sf_view_str(key), &body, NULL);
    if (err != SF_ERR_NOT_FOUND) {
        sf_buf_fini(&body);
        return refuse(p, "a failed swap must leave the key absent", err);
    }
    (void)snprintf(key, sizeof(key), "%sa", p->prefix);
    (void)snprintf(want, sizeof(want), "{\"probe\":\"%s\",\"n\":%u}", p->prefix, 3u);
    err = sf_store_get_wait(p->store, p->sched, sf_view_str(key), &body, &etag);
    bool same = err == SF_OK && sf_view_equal(sf_buf_view(&body), sf_view_str(want));
    sf_buf_fini(&body);
    return same ? SF_OK : refuse(p, "a read must see the last successful put", err);
}

struct racer {
    struct sf_batch batch;   /* one put */
    struct sf_waiter waiter; /* woken when it is done */
    struct probe_put pp;     /* what it puts */
};

static void racer_done(struct sf_batch *batch)
{
    sf_waiter_wake(&SF_CONTAINER_OF(batch, struct racer, batch)->waiter);
}

static enum sf_err probe_race(struct probe *p)
{
    struct racer racers[2];
    int won = 0;
    int lost = 0;

    for (int i = 0; i < 2; i++) {
        struct racer *r = &racers[i];
        probe_put_init(p, &r->pp, "race", SF_PUT_ABSENT, NULL);
        r->batch = (struct sf_batch){.puts = &r->pp.put, .count = 1, .done = racer_done};
        sf_waiter_init(&r->waiter, p->sched);
        sf_store_submit(p->store, &r->batch);
    }
    for (int i = 0; i < 2; i++) {
        sf_waiter_wait(&racers[i].waiter);
        sf_waiter_fini(&racers[i].waiter);
        won += racers[i].pp.put.err == SF_OK;
        lost += racers[i].pp.put.err == SF_ERR_PRECONDITION;
    }
    if (won == 1 && lost == 1)
        return SF_OK;
    return refuse(p, "of two concurrent create-only puts exactly one must succeed",
                  racers[0].pp.put.err == SF_OK ? racers[1].pp.put.err : racers[0].pp.put.err);
}

static enum sf_err probe_list(struct probe *p)
{
    struct sf_arena *arena = sf_arena_new(1u << 20);
    struct sf_list_entry *entries = NULL;
    size_t count = 0;
    char want[64];

    enum sf_err err = sf_store_list_wait(p->store, p->sched, sf_view_str(p->prefix),
                                         (struct sf_view){0}, 10, arena, &entries, &count);
    bool right = err == SF_OK && count == 2;
    for (size_t i = 0; right && i < 2; i++) {
        (void)snprintf(want, sizeof(want), "%s%s", p->prefix, i == 0 ? "a" : "race");
        right = sf_view_equal(entries[i].key, sf_view_str(want));
    }
    sf_arena_destroy(arena);
    return right ? SF_OK : refuse(p, "a list must show, in byte order, what was just put", err);
}

static void probe_clean(struct probe *p)
{
    static const char *const names[] = {"a", "missing", "race"};
    char key[64];

    for (size_t i = 0; i < SF_ARRAY_LEN(names); i++) {
        (void)snprintf(key, sizeof(key), "%s%s", p->prefix, names[i]);
        /* What stays behind harms nobody: the next probe uses other keys. */
        enum sf_err ignored = sf_store_remove_wait(p->store, p->sched, sf_view_str(key));
        (void)ignored;
    }
}

enum sf_err sf_store_probe(struct sf_store *store, struct sf_sched *sched, struct sf_diag *diag)
{
    struct probe p = {.store = store, .sched = sched, .diag = diag};
    uint8_t random[12];
    char hex[2 * sizeof(random) + 1];

    sf_random_bytes(random, sizeof(random));
    sf_hex_encode(random, sizeof(random), hex);
    (void)snprintf(p.prefix, sizeof(p.prefix), "probe/%s/", hex);
    enum sf_err err = probe_conditions(&p);
    if (err == SF_OK)
        err = probe_reads(&p);
    if (err == SF_OK)
        err = probe_race(&p);
    if (err == SF_OK)
        err = probe_list(&p);
    probe_clean(&p);
    return err;
}
