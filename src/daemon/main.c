/*
 * searchfabricd: command line, configuration, signals. SIGTERM and SIGINT end gracefully (a second
 * one at once), SIGHUP reads the key ring again. Exit codes: 0 ended gracefully or the
 * configuration is good, 1 could not start, 2 wrong command line or configuration.
 */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "daemon/policy.h"
#include "daemon/server.h"

#define EXIT_START 1
#define EXIT_USAGE 2

/* Between threads of this process: the start ended. */
#define SIGNAL_STARTED SIGUSR1

const char *argp_program_version = "searchfabricd " SF_VERSION;

/* Where --demo keeps its indices unless a configuration says otherwise. */
#define DEMO_NAMESPACE "demo"

enum option_key {
    OPTION_CONFIG = 'c',
    OPTION_DATA_DIR = 'd',
    OPTION_CHECK = 1000,
    OPTION_ROLE,
    OPTION_DEMO,
    OPTION_CLOCK,
    OPTION_GRPC_PORT,
    OPTION_ADMIN_PORT,
    OPTION_ES_PORT
};

/* What the command line says; NULL and -1 = not said. */
struct arguments {
    const char *config;     /* --config */
    const char *data_dir;   /* --data-dir */
    const char *role;       /* --role */
    long grpc_port;         /* --grpc-port */
    long admin_port;        /* --admin-port */
    long es_port;           /* --es-port */
    bool check;             /* --check-config */
    bool demo;              /* --demo */
    bool accept_clock_jump; /* --accept-clock-jump */
};

static long read_port(struct argp_state *state, const char *text)
{
    uint64_t port;

    if (!sf_parse_u64(sf_view_str(text), &port) || port > 65535)
        argp_error(state, "%s is not a port (0 to 65535)", text);
    return (long)port;
}

static error_t on_option(int key, char *value, struct argp_state *state)
{
    struct arguments *arguments = state->input;

    switch (key) {
    case OPTION_CONFIG:
        arguments->config = value;
        return 0;
    case OPTION_DATA_DIR:
        arguments->data_dir = value;
        return 0;
    case OPTION_CHECK:
        arguments->check = true;
        return 0;
    case OPTION_ROLE:
        arguments->role = value;
        return 0;
    case OPTION_DEMO:
        arguments->demo = true;
        return 0;
    case OPTION_CLOCK:
        arguments->accept_clock_jump = true;
        return 0;
    case OPTION_GRPC_PORT:
        arguments->grpc_port = read_port(state, value);
        return 0;
    case OPTION_ADMIN_PORT:
        arguments->admin_port = read_port(state, value);
        return 0;
    case OPTION_ES_PORT:
        arguments->es_port = read_port(state, value);
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument %s", value);
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options[] = {
    {"config", OPTION_CONFIG, "FILE", 0, "YAML configuration; without it, the defaults", 0},
    {"check-config", OPTION_CHECK, NULL, 0, "Check the configuration and exit", 0},
    {"data-dir", OPTION_DATA_DIR, "DIR", 0,
     "Folder of the embedded store, its projection and the key ring", 0},
    {"role", OPTION_ROLE, "LIST", 0,
     "Roles of this process, comma separated; this build serves 'all' only", 0},
    {"demo", OPTION_DEMO, NULL, 0,
     "Create the namespace of the Elasticsearch port at start ('demo' without --config)", 0},
    {"accept-clock-jump", OPTION_CLOCK, NULL, 0,
     "Start although the clock is more than a day past the last timestamp window", 0},
    {"grpc-port", OPTION_GRPC_PORT, "PORT", 0, "gRPC (default 7400; 0 = any free port)", 0},
    {"admin-port", OPTION_ADMIN_PORT, "PORT", 0, "Metrics and health (default 7401)", 0},
    {"es-port", OPTION_ES_PORT, "PORT", 0, "Elasticsearch-compatible writes (default 9200)", 0},
    {0}};

static const struct argp parser = {
    .options = options,
    .parser = on_option,
    .doc = "The control and write plane of a search platform: catalog, id allocator, commit "
           "coordinator and their gateways in one process.\v"
           "SIGTERM ends gracefully, SIGHUP reads the key ring again. All ports bind loopback. "
           "Everything that was acknowledged as durable survives kill -9."};

static void replace(char **text, const char *value)
{
    free(*text);
    *text = sf_strdup(value);
}

/* The configuration with the command line's word over the file's. */
static enum sf_err read_config(const struct arguments *arguments, struct sf_diag *diag,
                               struct sf_config **out_config)
{
    struct sf_config *config;

    if (arguments->config != NULL) {
        enum sf_err err = sf_config_load(arguments->config, diag, &config);
        if (err != SF_OK)
            return err;
    } else {
        config = sf_config_defaults();
        if (arguments->demo)
            replace(&config->es_namespace, DEMO_NAMESPACE);
    }
    *out_config = config;
    if (arguments->data_dir != NULL)
        replace(&config->data_dir, arguments->data_dir);
    if (arguments->grpc_port >= 0)
        config->grpc.port = (uint16_t)arguments->grpc_port;
    if (arguments->admin_port >= 0)
        config->admin.port = (uint16_t)arguments->admin_port;
    if (arguments->es_port >= 0)
        config->es.port = (uint16_t)arguments->es_port;
    if (arguments->role != NULL) {
        enum sf_err err =
            sf_roles_parse("--role", sf_view_str(arguments->role), diag, &config->roles);
        if (err != SF_OK)
            return err;
    }
    if (config->roles != SF_ROLE_ALL)
        return sf_diag_set(diag, SF_ERR_CONFIG,
                           "%s: this build runs all roles in one process and none alone; use "
                           "'all'",
                           arguments->role != NULL ? "--role" : "roles");
    struct sf_catalog_policy *policy = NULL;
    enum sf_err err = sf_policy_new(config, diag, &policy);
    if (err != SF_OK) {
        if (arguments->config != NULL)
            sf_diag_wrap(diag, "%s", arguments->config);
        return err;
    }
    sf_policy_destroy(policy);
    return SF_OK;
}

static enum sf_err open_log(const struct sf_config *config, struct sf_diag *diag)
{
    sf_log_set_level(config->log_level);
    if (config->log_file == NULL)
        return SF_OK;
    int fd = open(config->log_file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
    if (fd < 0)
        return sf_diag_set(diag, SF_ERR_IO, "cannot open log file %s: %s", config->log_file,
                           strerror(errno));
    sf_log_set_fd(fd);
    return SF_OK;
}

/* Serves until a signal says to end. */
static void serve(struct sf_server *server, const sigset_t *signals)
{
    for (;;) {
        int number;
        struct sf_diag diag;
        if (sigwait(signals, &number) != 0)
            continue;
        if (number != SIGHUP) {
            SF_LOG(INFO, "signal_end", SF_KV_I64("signal", number));
            return;
        }
        sf_diag_init(&diag);
        if (sf_server_reload(server, &diag) == SF_OK)
            SF_LOG(INFO, "keyring_reloaded", SF_KV_I64("signal", number));
        else
            SF_LOG(ERROR, "keyring_reload_failed", SF_KV_STR("reason", diag.message));
    }
}

/* A start on a thread of its own. */
struct starting {
    const struct sf_server_options *how; /* what is started */
    struct sf_diag *diag;                /* why it was refused */
    struct sf_server **server;           /* what serves */
    pthread_t waiter;                    /* the thread that is told */
    enum sf_err err;                     /* how it ended */
    atomic_bool done;                    /* it ended */
};

static void *start_run(void *user)
{
    struct starting *s = user;

    s->err = sf_server_start(s->how, s->diag, s->server);
    atomic_store(&s->done, true);
    (void)pthread_kill(s->waiter, SIGNAL_STARTED);
    return NULL;
}

/* SIGTERM or SIGINT during the start end it at once: a recovery may take long, and what it wrote is
 * as good as after a crash. One thread alone takes signals, this one, so that each that comes as
 * the start ends is still there for serve(); SIGHUP always is. */
static enum sf_err start(const struct sf_server_options *how, struct sf_diag *diag,
                         struct sf_server **out_server)
{
    struct starting s = {.how = how, .diag = diag, .server = out_server, .waiter = pthread_self()};
    sigset_t wanted;
    pthread_t thread;
    int number;

    if (pthread_create(&thread, NULL, start_run, &s) != 0)
        return sf_diag_set(diag, SF_ERR_LIMIT, "no thread for the start");
    (void)sigemptyset(&wanted);
    (void)sigaddset(&wanted, SIGTERM);
    (void)sigaddset(&wanted, SIGINT);
    (void)sigaddset(&wanted, SIGNAL_STARTED);
    while (!atomic_load(&s.done)) {
        if (sigwait(&wanted, &number) != 0 || number == SIGNAL_STARTED)
            continue;
        SF_LOG(INFO, "signal_end", SF_KV_I64("signal", number));
        _exit(0);
    }
    (void)pthread_join(thread, NULL);
    return s.err;
}

/* A second SIGTERM or SIGINT during the drain ends the process at once. */
static void *end_at_once(void *signals)
{
    int number;

    while (sigwait(signals, &number) != 0 || number == SIGHUP)
        ;
    _exit(EXIT_START);
}

static void allow_second_signal(sigset_t *signals)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, end_at_once, signals) == 0)
        (void)pthread_detach(thread);
}

static void block_signals(sigset_t *signals)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};

    (void)sigemptyset(signals);
    (void)sigaddset(signals, SIGTERM);
    (void)sigaddset(signals, SIGINT);
    (void)sigaddset(signals, SIGHUP);
    (void)sigaddset(signals, SIGNAL_STARTED);
    (void)pthread_sigmask(SIG_BLOCK, signals, NULL);
    (void)sigdelset(signals, SIGNAL_STARTED);
    (void)sigaction(SIGPIPE, &ignore, NULL);
}

int main(int argc, char **argv)
{
    struct arguments arguments = {.grpc_port = -1, .admin_port = -1, .es_port = -1};
    static sigset_t signals;
    struct sf_config *config = NULL;
    struct sf_server *server;
    struct sf_diag diag;

    argp_err_exit_status = EXIT_USAGE;
    if (argp_parse(&parser, argc, argv, 0, NULL, &arguments) != 0)
        return EXIT_USAGE;
    sf_diag_init(&diag);
    if (read_config(&arguments, &diag, &config) != SF_OK) {
        (void)fprintf(stderr, "searchfabricd: %s\n", diag.message);
        sf_config_destroy(config);
        return EXIT_USAGE;
    }
    if (arguments.check) {
        (void)printf("configuration ok\n");
        sf_config_destroy(config);
        return 0;
    }
    block_signals(&signals);
    enum sf_err err = open_log(config, &diag);
    const struct sf_server_options server_options = {
        .config = config, .demo = arguments.demo, .accept_clock_jump = arguments.accept_clock_jump};
    if (err == SF_OK)
        err = start(&server_options, &diag, &server);
    if (err != SF_OK) {
        (void)fprintf(stderr, "searchfabricd: %s\n", diag.message);
        sf_config_destroy(config);
        return EXIT_START;
    }
    serve(server, &signals);
    allow_second_signal(&signals);
    sf_server_stop(server);
    sf_config_destroy(config);
    return 0;
}
