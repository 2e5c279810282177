/*
 * The echo service on a port of its own, for clients in other languages. Prints "listening PORT",
 * drains on SIGTERM, prints "drained". Options are KEY=VALUE: port, reactors, keepalive_ms,
 * first_request_ms, idle_ms, drain_ms, auth (1: calls with metadata "authorization: deny" are
 * refused, and the identity is the value otherwise).
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/hash.h"
#include "exec/reactor.h"
#include "interop/echo_service.h"
#include "rpc/server.h"

static long option(int argc, char **argv, const char *key, long otherwise)
{
    size_t len = strlen(key);

    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], key, len) == 0 && argv[i][len] == '=')
            return strtol(argv[i] + len + 1, NULL, 10);
    return otherwise;
}

static enum sf_err authenticate(void *self, struct sf_call *call, struct sf_identity *out_identity,
                                struct sf_diag *diag)
{
    const char *who = sf_call_metadata(call, "authorization");

    (void)self;
    if (who == NULL)
        return sf_diag_set(diag, SF_UNAUTHENTICATED, "who are you?");
    if (strcmp(who, "deny") == 0)
        return sf_diag_set(diag, SF_FORBIDDEN, "denied");
    out_identity->name = who;
    sf_sha256_hex(sf_view_str(who), out_identity->hash_hex);
    return SF_OK;
}

int main(int argc, char **argv)
{
    struct sf_reactors *reactors = NULL;
    struct sf_rpc_server *server = NULL;
    struct sf_diag diag;
    sigset_t set;
    int got;

    sf_diag_init(&diag);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that dies leaves no server behind */
    (void)signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (sf_reactors_start((unsigned)option(argc, argv, "reactors", 2), sf_clock_system(), &diag,
                          &reactors) != SF_OK) {
        (void)fprintf(stderr, "%s\n", diag.message);
        return 1;
    }
    struct sf_echo *echo = sf_echo_new(sf_reactors_loop(reactors, 0));
    const struct sf_rpc_auth auth = {.authenticate = authenticate};
    const struct sf_service *services[] = {sf_echo_service(echo)};
    struct sf_rpc_server_options options = {
        .host = "127.0.0.1",
        .port = (uint16_t)option(argc, argv, "port", 0),
        .reactors = reactors,
        .services = services,
        .service_count = 1,
        .auth = option(argc, argv, "auth", 0) ? &auth : NULL,
        .keepalive_ms = option(argc, argv, "keepalive_ms", 0),
        .first_request_timeout_ms = option(argc, argv, "first_request_ms", 0),
        .idle_timeout_ms = option(argc, argv, "idle_ms", 0),
    };
    if (sf_rpc_server_start(&options, &diag, &server) != SF_OK) {
        (void)fprintf(stderr, "%s\n", diag.message);
        return 1;
    }
    (void)printf("listening %u\n", sf_rpc_server_port(server));
    (void)fflush(stdout);
    (void)sigwait(&set, &got);
    sf_rpc_server_stop(server, option(argc, argv, "drain_ms", 10000));
    sf_reactors_stop(reactors);
    sf_echo_destroy(echo);
    (void)printf("drained\n");
    return 0;
}
