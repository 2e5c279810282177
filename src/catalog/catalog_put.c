/*
 * Model: a put has four ends (protocols.md section 1): these bytes stand, another object stands,
 * it certainly never was applied, or it is in doubt. Doubt is no end: the same bytes are put again
 * under the same condition until one object stands, for a try that is still on its way may land at
 * any time. A failed condition is decided by reading: own bytes mean success (each try's bytes hold
 * an attempt id that no other try uses), foreign bytes mean the race is lost. Only the end of the
 * process or of its office leaves a doubt behind; then nothing more is begun.
 */
#include "catalog/catalog_priv.h"

void sf_catalog_put_fini(struct sf_catalog_put *put)
{
    sf_buf_fini(&put->key);
    sf_buf_fini(&put->body);
    sf_buf_fini(&put->found);
}

void sf_catalog_put_fill(const struct sf_catalog_put *put, uint32_t stage, uint32_t command,
                         struct sf_put *out)
{
    *out = (struct sf_put){.key = sf_buf_view(&put->key),
                           .body = sf_buf_view(&put->body),
                           .cond = put->cond,
                           .match = put->match,
                           .stage = stage,
                           .command = command};
}

/* After a failed condition: what stands? SF_OK, or SF_ERR_UNAVAILABLE when it cannot be read. */
static enum sf_err read_back(struct sf_catalog *catalog, struct sf_sched *sched,
                             struct sf_catalog_put *put)
{
    sf_buf_clear(&put->found);
    put->found_etag.text[0] = '\0';
    enum sf_err err = sf_store_get_wait(catalog->deps.store, sched, sf_buf_view(&put->key),
                                        &put->found, &put->found_etag);
    if (err == SF_ERR_NOT_FOUND) {
        sf_buf_clear(&put->found);
        put->found_etag.text[0] = '\0';
        put->state = SF_CATALOG_PUT_LOST;
        return SF_OK;
    }
    if (err != SF_OK)
        return err;
    bool own = sf_view_equal(sf_buf_view(&put->found), sf_buf_view(&put->body));
    put->state = own ? SF_CATALOG_PUT_STANDS : SF_CATALOG_PUT_LOST;
    if (own)
        put->etag = put->found_etag;
    return SF_OK;
}

/* Takes one result; true when the put came to an end. */
static bool take_result(struct sf_catalog *catalog, struct sf_sched *sched,
                        struct sf_catalog_put *put, enum sf_err result, const struct sf_etag *etag)
{
    switch (result) {
    case SF_OK:
        put->state = SF_CATALOG_PUT_STANDS;
        put->etag = *etag;
        return true;
    case SF_ERR_PRECONDITION:
        return read_back(catalog, sched, put) == SF_OK;
    case SF_ERR_AMBIGUOUS:
        put->doubt = true;
        if (SF_MUTANT(ccs_doubt_is_failure)) {
            put->doubt = false;
            put->state = SF_CATALOG_PUT_UNSENT;
            return true;
        }
        return false;
    default: /* certain: not applied */
        return false;
    }
}

/* The loop of sf_catalog_put_settle; *io_stalled notes that mutations are being refused for it. */
static enum sf_err settle_loop(struct sf_catalog *catalog, struct sf_sched *sched,
                               struct sf_catalog_put *put, enum sf_err result, struct sf_etag etag,
                               unsigned limit, bool *io_stalled)
{
    for (unsigned tries = 1;; tries++) {
        if (take_result(catalog, sched, put, result, &etag)) {
            put->doubt = false;
            return SF_OK;
        }
        bool open = put->doubt || result == SF_ERR_PRECONDITION;
        if (result == SF_ERR_LIMIT || (!open && limit != 0 && tries >= limit))
            break;
        if (sf_catalog_ending(catalog) || (catalog->opening && tries >= SF_CATALOG_OPEN_TRIES)) {
            if (!open)
                break;
            return atomic_load(&catalog->deposed) ? SF_ERR_DEPOSED : SF_ERR_STOPPED;
        }
        if (tries > SF_CATALOG_PUT_TRIES && !*io_stalled) {
            *io_stalled = true;
            atomic_fetch_add(&catalog->stalled, 1);
            sf_catalog_group_flush(catalog);
        }
        if (result != SF_ERR_CANCELLED_STAGE)
            sf_catalog_pause(catalog, sched, tries);
        struct sf_put again;
        sf_catalog_put_fill(put, 0, 0, &again);
        result = sf_store_put_wait(catalog->deps.store, sched, &again);
        etag = again.etag;
    }
    put->state = SF_CATALOG_PUT_UNSENT;
    return SF_OK;
}

enum sf_err sf_catalog_put_settle(struct sf_catalog *catalog, struct sf_sched *sched,
                                  struct sf_catalog_put *put, enum sf_err first,
                                  const struct sf_etag *first_etag, unsigned limit)
{
    bool stalled = false;
    enum sf_err err = settle_loop(catalog, sched, put, first, *first_etag, limit, &stalled);
    if (stalled)
        atomic_fetch_sub(&catalog->stalled, 1);
    return err;
}

enum sf_err sf_catalog_put_run(struct sf_catalog *catalog, struct sf_sched *sched,
                               struct sf_catalog_put *put, unsigned limit)
{
    struct sf_put once;
    sf_catalog_put_fill(put, 0, 0, &once);
    enum sf_err result = sf_store_put_wait(catalog->deps.store, sched, &once);
    return sf_catalog_put_settle(catalog, sched, put, result, &once.etag, limit);
}
