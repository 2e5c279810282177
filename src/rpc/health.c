/*
 * Health. States and watchers are under one mutex; a watcher is a held call with the service it
 * asked for. A watch is a stream method here, so that its end is heard of: the request is its first
 * message. Telling a watcher drops the news when it reads too slowly; it hears the state of that
 * time when it reads again (writable).
 */
#include "rpc/health.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/map.h"
#include "base/mem.h"
#include "grpc/health/v1/health.pb-c.h"

typedef Grpc__Health__V1__HealthCheckResponse__ServingStatus serving_status;

#define SERVING         GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
#define NOT_SERVING     GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING
#define SERVICE_UNKNOWN GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN
#define NOT_TOLD        GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__UNKNOWN

struct state {
    serving_status status;
};

struct watch {
    struct watch *prev, *next;
    struct sf_call *call;
    char *service;
    serving_status told; /* last state sent, NOT_TOLD: none */
};

struct sf_health {
    struct sf_service service;
    pthread_mutex_t mu;

    /* under mu */
    struct sf_map *states; /* service -> struct state, owned */
    struct watch *watches;
    bool down;
};

static serving_status status_locked(const struct sf_health *health, const char *service)
{
    const struct state *state = sf_map_get(health->states, sf_view_str(service));

    if (state == NULL)
        return SERVICE_UNKNOWN;
    return health->down ? NOT_SERVING : state->status;
}

/* The state goes out if it is news and the stream takes it. */
static void tell_locked(struct sf_health *health, struct watch *watch)
{
    Grpc__Health__V1__HealthCheckResponse response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;

    response.status = status_locked(health, watch->service);
    if (response.status != watch->told && sf_call_send(watch->call, &response.base) == SF_OK)
        watch->told = response.status;
}

static void check(void *self, struct sf_call *call, const ProtobufCMessage *message)
{
    struct sf_health *health = self;
    const Grpc__Health__V1__HealthCheckRequest *request =
        (const Grpc__Health__V1__HealthCheckRequest *)(const void *)message;
    Grpc__Health__V1__HealthCheckResponse response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;

    pthread_mutex_lock(&health->mu);
    response.status = status_locked(health, request->service);
    pthread_mutex_unlock(&health->mu);
    if (response.status != SERVICE_UNKNOWN) {
        sf_call_respond(call, &response.base);
        return;
    }
    (void)sf_diag_set(sf_call_diag(call), SF_RESOURCE_NOT_FOUND, "unknown service");
    sf_call_fail(call, sf_call_diag(call));
}

static void watch_open(void *self, struct sf_call *call)
{
    (void)self;
    sf_call_set_state(call, NULL);
}

/* Takes the watch out of the list; under mu. */
static void unlink_locked(struct sf_health *health, struct watch *watch)
{
    if (watch->next != NULL)
        watch->next->prev = watch->prev;
    if (watch->prev != NULL)
        watch->prev->next = watch->next;
    else
        health->watches = watch->next;
    watch->prev = watch->next = NULL;
    watch->call = NULL;
}

static void watch_message(void *self, struct sf_call *call, const ProtobufCMessage *message)
{
    struct sf_health *health = self;
    const Grpc__Health__V1__HealthCheckRequest *request =
        (const Grpc__Health__V1__HealthCheckRequest *)(const void *)message;

    if (sf_call_state(call) != NULL)
        return; /* one request a watch */
    struct watch *watch = sf_calloc(1, sizeof(*watch));
    watch->call = call;
    watch->service = sf_strdup(request->service);
    watch->told = NOT_TOLD;
    sf_call_set_state(call, watch);
    pthread_mutex_lock(&health->mu);
    watch->next = health->watches;
    if (watch->next != NULL)
        watch->next->prev = watch;
    health->watches = watch;
    tell_locked(health, watch);
    if (health->down) {
        unlink_locked(health, watch);
        sf_call_finish(call);
    }
    pthread_mutex_unlock(&health->mu);
}

static void watch_half_close(void *self, struct sf_call *call)
{
    (void)self, (void)call;
}

static void watch_writable(void *self, struct sf_call *call)
{
    struct sf_health *health = self;
    struct watch *watch = sf_call_state(call);

    pthread_mutex_lock(&health->mu);
    if (watch != NULL && watch->call != NULL)
        tell_locked(health, watch);
    pthread_mutex_unlock(&health->mu);
}

static void watch_closed(void *self, struct sf_call *call)
{
    struct sf_health *health = self;
    struct watch *watch = sf_call_state(call);

    if (watch == NULL)
        return;
    pthread_mutex_lock(&health->mu); /* nobody else is at the call after this */
    if (watch->call != NULL)
        unlink_locked(health, watch);
    pthread_mutex_unlock(&health->mu);
    free(watch->service);
    free(watch);
}

static const struct sf_stream_ops watch_ops = {
    .open = watch_open,
    .message = watch_message,
    .half_close = watch_half_close,
    .closed = watch_closed,
    .writable = watch_writable,
};

#define TYPES                                                                                      \
    .request = &grpc__health__v1__health_check_request__descriptor,                                \
    .response = &grpc__health__v1__health_check_response__descriptor

static const struct sf_method methods[] = {
    {.name = "Check", TYPES, .unary = check},
    {.name = "Watch", TYPES, .stream = &watch_ops},
};

struct sf_health *sf_health_new(void)
{
    struct sf_health *health = sf_calloc(1, sizeof(*health));

    health->service = (struct sf_service){
        .full_name = "grpc.health.v1.Health",
        .methods = methods,
        .method_count = SF_ARRAY_LEN(methods),
        .self = health,
    };
    health->states = sf_map_new();
    SF_ASSERT(pthread_mutex_init(&health->mu, NULL) == 0);
    return health;
}

void sf_health_destroy(struct sf_health *health)
{
    if (health == NULL)
        return;
    sf_map_destroy(health->states, free);
    pthread_mutex_destroy(&health->mu);
    free(health);
}

const struct sf_service *sf_health_service(const struct sf_health *health)
{
    return &health->service;
}

void sf_health_set(struct sf_health *health, const char *service, bool serving)
{
    pthread_mutex_lock(&health->mu);
    struct state *state = sf_map_get(health->states, sf_view_str(service));
    if (state == NULL) {
        state = sf_calloc(1, sizeof(*state));
        (void)sf_map_put(health->states, sf_view_str(service), state);
    }
    state->status = serving ? SERVING : NOT_SERVING;
    for (struct watch *watch = health->watches; watch != NULL; watch = watch->next)
        tell_locked(health, watch);
    pthread_mutex_unlock(&health->mu);
}

void sf_health_shutdown(struct sf_health *health)
{
    pthread_mutex_lock(&health->mu);
    health->down = true;
    while (health->watches != NULL) {
        struct watch *watch = health->watches;
        struct sf_call *call = watch->call;
        tell_locked(health, watch);
        unlink_locked(health, watch);
        sf_call_finish(call);
    }
    pthread_mutex_unlock(&health->mu);
}
