#include "publish/head_notices.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/text.h"
#include "searchfabric/v1/catalog_control_private.pb-c.h"

/*
 * One entry per collection that was published lately. Publishers on any loop write the newest
 * version into it; everything else happens on the notices' own loop. The expected head of an intent
 * is what the catalog said last, at first the version committed before; a conflict says where the
 * head really is, and the next try starts there.
 *
 *   (told) WAITING -> CALLING -> WAITING    newer version meanwhile, or failed: after a pause
 *                        |-----> RESTING -> gone, when the period passed without news
 */

#define METHOD          "/searchfabric.v1.CatalogControlPrivateService/SubmitHeadAdvanceIntent"
#define CALL_TIMEOUT_MS 30000
#define RETRY_MIN_MS    100
#define UNKNOWN         (-1)

struct entry {
    struct sf_head_notices *notices;
    struct sf_head_notice newest; /* under mu */
    struct entry *next_woken;     /* under mu */
    bool woken;                   /* in the list; under mu */
    /* loop */
    struct sf_timer timer;
    bool calling;
    unsigned failures;  /* in a row */
    uint64_t told;      /* version that the catalog has */
    uint64_t asked;     /* version of the call under way */
    int64_t head;       /* of the catalog, UNKNOWN */
    int64_t not_before; /* monotonic ms of the next call */
    Searchfabric__V1__CollectionRef ref;
    Searchfabric__V1__SubmitHeadAdvanceIntentRequest request;
    char checksum[SF_SHA256_HEX_BYTES]; /* of the request */
};

struct sf_head_notices {
    struct sf_head_notices_options options;
    pthread_mutex_t mu;
    struct sf_map *entries; /* collection -> struct entry; under mu */
    struct entry *woken;    /* told since the loop looked; under mu */
    bool posted;            /* wake is queued; under mu */
    struct sf_task wake;
    struct sf_task stop;
    struct sf_waiter stopped; /* opened when the last call ended */
    /* loop */
    struct sf_rng rng;
    bool stopping;
    size_t calls; /* under way */
};

static struct sf_view key_of(const struct sf_collection_ref *collection)
{
    return sf_view_bytes(collection, sizeof(*collection));
}

/* Pause after the entry's failure: jittered, doubling to a cap. */
static int64_t retry_ms(struct entry *entry)
{
    int64_t ceiling = SF_HEAD_NOTICE_RETRY_MAX_MS;
    if (entry->failures < 9)
        ceiling = (int64_t)RETRY_MIN_MS << entry->failures;
    if (ceiling > SF_HEAD_NOTICE_RETRY_MAX_MS)
        ceiling = SF_HEAD_NOTICE_RETRY_MAX_MS;
    return ceiling / 2 + (int64_t)sf_rng_below(&entry->notices->rng, (uint64_t)ceiling / 2 + 1);
}

/* Arms the timer for the next call, or for the end of the rest. */
static void arm(struct entry *entry)
{
    int64_t wait = entry->not_before - entry->notices->options.loop->now_ms;
    if (!entry->notices->stopping)
        sf_timer_start(&entry->timer, wait > 0 ? wait : 0);
}

static void answered(void *user, const struct sf_diag *diag, const ProtobufCMessage *response);

static void call(struct entry *entry, const struct sf_head_notice *notice)
{
    static const struct sf_call_options options = {.timeout_ms = CALL_TIMEOUT_MS};
    struct sf_head_notices *notices = entry->notices;
    searchfabric__v1__collection_ref__init(&entry->ref);
    searchfabric__v1__submit_head_advance_intent_request__init(&entry->request);
    entry->ref.namespace_id = notice->collection.namespace_id.v;
    entry->ref.collection_id = notice->collection.collection_id.v;
    memcpy(entry->checksum, notice->checksum, sizeof(entry->checksum));
    entry->request.collection = &entry->ref;
    entry->request.expected_head_version =
        entry->head == UNKNOWN ? (int64_t)notice->previous : entry->head;
    entry->request.new_head_version = notice->version;
    entry->request.manifest_checksum_or_etag = entry->checksum;
    entry->asked = notice->version;
    entry->calling = true;
    notices->calls++;
    sf_channel_unary(notices->options.catalog, METHOD, &entry->request.base, &options,
                     notices->options.loop, answered, entry);
}

static void fired(struct sf_timer *timer)
{
    struct entry *entry = SF_CONTAINER_OF(timer, struct entry, timer);
    struct sf_head_notices *notices = entry->notices;
    pthread_mutex_lock(&notices->mu);
    struct sf_head_notice notice = entry->newest;
    bool rest_over = notice.version <= entry->told && !entry->woken;
    if (rest_over)
        (void)sf_map_del(notices->entries, key_of(&notice.collection));
    pthread_mutex_unlock(&notices->mu);
    if (rest_over)
        free(entry);
    else if (notice.version > entry->told)
        call(entry, &notice);
}

/* The head as a conflict names it; false when it names none. */
static bool head_of(const struct sf_diag *diag, uint64_t *out_version)
{
    const char *text = sf_diag_get(diag, "manifest_head_version");
    return diag->err == SF_VERSION_CONFLICT && text != NULL &&
           sf_parse_u64(sf_view_str(text), out_version) && *out_version <= INT64_MAX;
}

static void answered(void *user, const struct sf_diag *diag, const ProtobufCMessage *response)
{
    struct entry *entry = user;
    struct sf_head_notices *notices = entry->notices;
    int64_t now_ms = notices->options.loop->now_ms;
    uint64_t head = 0;
    bool told = diag->err == SF_OK;
    if (told)
        head = ((const Searchfabric__V1__SubmitHeadAdvanceIntentResponse *)response)
                   ->manifest_head_version;
    entry->calling = false;
    if (told || head_of(diag, &head)) {
        told = told || head >= entry->asked;
        bool moved = entry->head != (int64_t)head;
        entry->head = (int64_t)head;
        entry->failures = told || moved ? 0 : entry->failures + 1;
        if (told)
            entry->told = entry->asked;
        entry->not_before = now_ms + (told ? SF_HEAD_NOTICE_PERIOD_MS : retry_ms(entry));
    } else if (diag->err == SF_RESOURCE_NOT_FOUND || diag->err == SF_FORBIDDEN) {
        entry->told = entry->asked; /* the collection is gone, or this is no publisher */
        entry->not_before = now_ms + SF_HEAD_NOTICE_PERIOD_MS;
    } else {
        entry->failures++;
        entry->not_before = now_ms + retry_ms(entry);
    }
    SF_LOG(DEBUG, "head_notice", SF_KV_U64("namespace_id", entry->ref.namespace_id),
           SF_KV_U64("collection_id", entry->ref.collection_id),
           SF_KV_U64("manifest_version", entry->asked),
           SF_KV_STR("result", sf_err_info(diag->err)->name));
    notices->calls--;
    if (!notices->stopping)
        arm(entry);
    else if (notices->calls == 0)
        sf_waiter_wake(&notices->stopped);
}

/* Entries that were told of something: those that neither call nor wait begin. */
static void woken(struct sf_task *task)
{
    struct sf_head_notices *notices = SF_CONTAINER_OF(task, struct sf_head_notices, wake);
    for (;;) {
        pthread_mutex_lock(&notices->mu);
        struct entry *entry = notices->woken;
        if (entry != NULL) {
            notices->woken = entry->next_woken;
            entry->woken = false;
        } else {
            notices->posted = false;
        }
        pthread_mutex_unlock(&notices->mu);
        if (entry == NULL)
            return;
        if (!entry->calling && !sf_timer_active(&entry->timer))
            arm(entry);
    }
}

struct sf_head_notices *sf_head_notices_new(const struct sf_head_notices_options *options)
{
    struct sf_head_notices *notices = sf_calloc(1, sizeof(*notices));
    notices->options = *options;
    pthread_mutex_init(&notices->mu, NULL);
    notices->entries = sf_map_new();
    notices->wake.run = woken;
    sf_rng_init(&notices->rng, options->random_seed);
    return notices;
}

/* The entry of the collection, made when there is room; NULL when there is none. */
static struct entry *entry_of(struct sf_head_notices *notices,
                              const struct sf_collection_ref *collection)
{
    struct entry *entry = sf_map_get(notices->entries, key_of(collection));
    if (entry != NULL || sf_map_count(notices->entries) >= SF_HEAD_NOTICE_COLLECTIONS)
        return entry;
    entry = sf_calloc(1, sizeof(*entry));
    entry->notices = notices;
    entry->head = UNKNOWN;
    sf_timer_init(&entry->timer, notices->options.loop, fired);
    (void)sf_map_put(notices->entries, key_of(collection), entry);
    return entry;
}

void sf_head_notices_tell(struct sf_head_notices *notices, const struct sf_head_notice *notice)
{
    if (notices == NULL)
        return;
    bool post = false;
    pthread_mutex_lock(&notices->mu);
    struct entry *entry = entry_of(notices, &notice->collection);
    if (entry != NULL && notice->version > entry->newest.version) {
        entry->newest = *notice;
        if (!entry->woken) {
            entry->woken = true;
            entry->next_woken = notices->woken;
            notices->woken = entry;
        }
        post = !notices->posted;
        notices->posted = true;
    }
    pthread_mutex_unlock(&notices->mu);
    if (post)
        sf_loop_post(notices->options.loop, &notices->wake);
}

static void stop_on_loop(struct sf_task *task)
{
    struct sf_head_notices *notices = SF_CONTAINER_OF(task, struct sf_head_notices, stop);
    struct sf_map_iter iter = {0};
    notices->stopping = true;
    pthread_mutex_lock(&notices->mu);
    while (sf_map_next(notices->entries, &iter))
        sf_timer_stop(&((struct entry *)iter.value)->timer);
    pthread_mutex_unlock(&notices->mu);
    if (notices->calls == 0)
        sf_waiter_wake(&notices->stopped);
}

void sf_head_notices_destroy(struct sf_head_notices *notices)
{
    if (notices == NULL)
        return;
    sf_waiter_init(&notices->stopped, NULL);
    notices->stop.run = stop_on_loop;
    sf_loop_post(notices->options.loop, &notices->stop);
    sf_waiter_wait(&notices->stopped);
    sf_waiter_fini(&notices->stopped);
    sf_map_destroy(notices->entries, free);
    pthread_mutex_destroy(&notices->mu);
    free(notices);
}
