/*
 * Echo over gRPC on loopback. The server runs in a process of its own, so that its CPU time and
 * memory are its own; this process holds the clients: C connections with S calls in flight each.
 * Where the build has the gRPC C core (peer_grpc_core), the same load is put on it in the same run
 * and the ratio of server CPU per call is printed. usage: bench_rpc_echo [calls per setting]
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "bench_common.h"
#include "exec/reactor.h"
#include "interop/echo_service.h"
#include "rpc/channel.h"
#include "rpc/server.h"

struct setting {
    const char *name;
    unsigned conns;
    unsigned in_flight; /* per connection */
};

static const struct setting settings[] = {
    {"1 conn x 1 call", 1, 1},
    {"1 conn x 32 calls", 1, 32},
    {"8 conns x 32 calls", 8, 32},
};

/* One setting's run. */
struct run {
    struct sf_task task;
    struct sf_loop *loop;
    struct sf_channel **channels;
    unsigned conns, in_flight;
    size_t to_start, to_end;
    size_t failed;
    uint32_t *latency_us; /* one a call */
    size_t measured;
    Sftest__V1__EchoRequest request;
    struct sf_waiter done;
};

struct slot {
    struct run *run;
    struct sf_channel *channel;
    int64_t start_ns;
};

static void start_call(struct slot *slot);

static void on_done(void *user, const struct sf_diag *diag, const ProtobufCMessage *response)
{
    struct slot *slot = user;
    struct run *run = slot->run;
    int64_t ns = bench_now_ns() - slot->start_ns;

    (void)response;
    if (diag->err != SF_OK)
        run->failed++;
    run->latency_us[run->measured++] = (uint32_t)(ns / 1000);
    if (run->to_start > 0)
        start_call(slot);
    else
        free(slot);
    if (--run->to_end == 0)
        sf_waiter_wake(&run->done);
}

static void start_call(struct slot *slot)
{
    struct run *run = slot->run;

    run->to_start--;
    slot->start_ns = bench_now_ns();
    sf_channel_unary(slot->channel, "/sftest.v1.Echo/Unary", &run->request.base, NULL, run->loop,
                     on_done, slot);
}

static void on_run(struct sf_task *task)
{
    struct run *run = SF_CONTAINER_OF(task, struct run, task);

    for (unsigned i = 0; i < run->in_flight; i++) {
        for (unsigned c = 0; c < run->conns && run->to_start > 0; c++) {
            struct slot *slot = sf_malloc(sizeof(*slot));
            *slot = (struct slot){.run = run, .channel = run->channels[c]};
            start_call(slot);
        }
    }
}

/* Runs one setting against a server; its CPU microseconds per call. */
static double measure(struct sf_reactors *reactors, const struct setting *setting, size_t calls,
                      pid_t pid, uint16_t port, const char *who)
{
    struct sf_diag diag;
    struct run run = {.task = {.run = on_run},
                      .loop = sf_reactors_loop(reactors, 0),
                      .conns = setting->conns,
                      .in_flight = setting->in_flight,
                      .request = SFTEST__V1__ECHO_REQUEST__INIT};
    uint8_t body[32] = {0};
    double cpu = 0;

    run.request.text = (char *)(uintptr_t) "4f3c2a1e-0b5d-4c6e-9f8a-7b6c5d4e3f2a";
    run.request.body = (ProtobufCBinaryData){sizeof(body), body};
    run.channels = sf_calloc(run.conns, sizeof(struct sf_channel *));
    run.latency_us = sf_calloc(calls, sizeof(*run.latency_us));
    sf_diag_init(&diag);
    for (unsigned i = 0; i < run.conns; i++) {
        SF_ASSERT(sf_grpc_channel_new(run.loop, "127.0.0.1", port, &diag, &run.channels[i]) ==
                  SF_OK);
        sf_grpc_channel_add_service(run.channels[i], &sftest__v1__echo__descriptor);
    }
    sf_waiter_init(&run.done, NULL);
    for (unsigned round = 0; round < 2; round++) { /* the first warms up */
        size_t count = round == 0 ? calls / 10 + 1 : calls;
        run.to_start = run.to_end = count;
        run.measured = run.failed = 0;
        cpu = bench_cpu_us(pid);
        int64_t start_ns = bench_now_ns();
        sf_loop_post(run.loop, &run.task);
        sf_waiter_wait(&run.done);
        double seconds = (double)(bench_now_ns() - start_ns) / 1e9;
        cpu = (bench_cpu_us(pid) - cpu) / (double)count;
        if (round == 0)
            continue;
        bench_sort(run.latency_us, count);
        printf("%-8s %-20s %9.0f calls/s  p50 %5u us  p99 %5u us  p99.9 %5u us  server CPU %6.2f "
               "us/call  server RSS %ld KiB  failed %zu\n",
               who, setting->name, (double)count / seconds, run.latency_us[count / 2],
               run.latency_us[count - count / 100 - 1], run.latency_us[count - count / 1000 - 1],
               cpu, bench_rss_kib(pid), run.failed);
    }
    sf_waiter_fini(&run.done);
    for (unsigned i = 0; i < run.conns; i++)
        sf_channel_destroy(run.channels[i]);
    free(run.channels);
    free(run.latency_us);
    return cpu;
}

/* The child: serves until it is told to stop. */
static int serve(int out)
{
    struct sf_reactors *reactors = NULL;
    struct sf_rpc_server *server = NULL;
    struct sf_diag diag;
    sigset_t set;
    int got;

    sf_diag_init(&diag);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    SF_ASSERT(sf_reactors_start(1, sf_clock_system(), &diag, &reactors) == SF_OK);
    struct sf_echo *echo = sf_echo_new(NULL);
    const struct sf_service *services[] = {sf_echo_service(echo)};
    struct sf_rpc_server_options options = {
        .host = "127.0.0.1", .reactors = reactors, .services = services, .service_count = 1};
    SF_ASSERT(sf_rpc_server_start(&options, &diag, &server) == SF_OK);
    uint16_t port = sf_rpc_server_port(server);
    SF_ASSERT(write(out, &port, sizeof(port)) == sizeof(port));
    (void)sigwait(&set, &got);
    sf_rpc_server_stop(server, 1000);
    sf_reactors_stop(reactors);
    sf_echo_destroy(echo);
    return 0;
}

/* Starts a server process: our own (`program` NULL) or another that writes its port to fd 3. */
static pid_t spawn(const char *program, uint16_t *out_port)
{
    int pipe_fds[2];

    (void)fflush(NULL);
    SF_ASSERT(pipe(pipe_fds) == 0);
    pid_t pid = fork();
    SF_ASSERT(pid >= 0);
    if (pid == 0) {
        (void)close(pipe_fds[0]);
        if (program == NULL)
            _exit(serve(pipe_fds[1]));
        (void)dup2(pipe_fds[1], 3);
        (void)execl(program, program, (char *)NULL);
        _exit(127);
    }
    (void)close(pipe_fds[1]);
    bool ok = read(pipe_fds[0], out_port, sizeof(*out_port)) == sizeof(*out_port);
    (void)close(pipe_fds[0]);
    if (ok)
        return pid;
    (void)waitpid(pid, NULL, 0);
    return 0;
}

static void stop(pid_t pid)
{
    (void)kill(pid, SIGTERM);
    (void)waitpid(pid, NULL, 0);
}

static void peer_path(const char *self, char *out, size_t size)
{
    const char *slash = strrchr(self, '/');

    (void)snprintf(out, size, "%.*speer_grpc_core", slash == NULL ? 0 : (int)(slash - self + 1),
                   self);
}

int main(int argc, char **argv)
{
    size_t calls = argc > 1 ? strtoul(argv[1], NULL, 10) : 100000;
    struct sf_reactors *reactors = NULL;
    uint16_t port = 0, peer_port = 0;
    struct sf_diag diag;
    char path[512];

    (void)signal(SIGPIPE, SIG_IGN);
    peer_path(argv[0], path, sizeof(path));
    pid_t pid = spawn(NULL, &port); /* before there are threads */
    pid_t peer = access(path, X_OK) == 0 ? spawn(path, &peer_port) : 0;
    sf_diag_init(&diag);
    SF_ASSERT(calls > 0 && pid != 0);
    SF_ASSERT(sf_reactors_start(1, sf_clock_system(), &diag, &reactors) == SF_OK);
    for (size_t i = 0; i < SF_ARRAY_LEN(settings); i++) {
        size_t count = settings[i].in_flight == 1 ? calls / 5 + 1 : calls;
        double own = measure(reactors, &settings[i], count, pid, port, "ours");
        if (peer == 0)
            continue;
        double other = measure(reactors, &settings[i], count, peer, peer_port, "grpc-c");
        printf("         ratio of server CPU: %.1f\n", own > 0 ? other / own : 0);
    }
    if (peer == 0)
        printf("peer: none (built where the gRPC C core's headers are)\n");
    sf_reactors_stop(reactors);
    stop(pid);
    if (peer != 0)
        stop(peer);
    return 0;
}
