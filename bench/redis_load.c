/* One connection holds its share of the requests in flight: what comes back is counted, and as many
 * new ones are written at once. Redis answers in order, so a ring of send times is enough. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "alloc_load.h"
#include "base/buf.h"
#include "base/mem.h"
#include "bench_common.h"

#define REPLIES_A_REQUEST 2u

struct link {
    int fd;
    unsigned in_flight; /* its share */
    int64_t *sent_ns;   /* ring of `in_flight` */
    uint64_t sent;      /* requests */
    uint64_t replies;   /* lines that came back */
    struct sf_buf out;  /* to be written */
};

struct redis_load {
    struct bench_flow samples; /* latencies */
    uint64_t next;             /* number of the next key */
    size_t bytes;              /* of a value */
    char *body;                /* of them */
    int64_t end_ns;
};

static int dial(uint16_t port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    bench_must(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0,
               "connecting to Redis");
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
}

static void request_add(struct redis_load *load, struct link *l)
{
    char head[256];
    int n = snprintf(head, sizeof(head),
                     "*2\r\n$4\r\nINCR\r\n$3\r\nids\r\n*3\r\n$3\r\nSET\r\n$71\r\nreplay:%064llx\r\n"
                     "$%zu\r\n",
                     (unsigned long long)load->next++, load->bytes);

    l->sent_ns[l->sent++ % l->in_flight] = bench_now_ns();
    sf_buf_append(&l->out, head, (size_t)n);
    sf_buf_append(&l->out, load->body, load->bytes);
    sf_buf_append(&l->out, "\r\n", 2);
}

static void flush(struct link *l)
{
    for (size_t at = 0; at < l->out.len;) {
        ssize_t n = write(l->fd, l->out.data + at, l->out.len - at);
        bench_must(n > 0, "writing to Redis");
        at += (size_t)n;
    }
    sf_buf_clear(&l->out);
}

/* Counts what came back and asks anew; false when the link has nothing in flight any more. */
static bool take_replies(struct redis_load *load, struct link *l)
{
    char text[65536];
    ssize_t n = read(l->fd, text, sizeof(text));
    int64_t now_ns = bench_now_ns();

    bench_must(n > 0, "reading from Redis");
    for (ssize_t i = 0; i < n; i++) {
        bench_must(text[i] != '-', "a command of Redis");
        if (text[i] != '\n' || ++l->replies % REPLIES_A_REQUEST != 0)
            continue;
        uint64_t done = l->replies / REPLIES_A_REQUEST;
        bench_flow_sample(&load->samples, now_ns - l->sent_ns[(done - 1) % l->in_flight]);
        if (now_ns < load->end_ns)
            request_add(load, l);
    }
    flush(l);
    return l->sent > l->replies / REPLIES_A_REQUEST;
}

void bench_redis_load_run(uint16_t port, unsigned connections, unsigned in_flight, int64_t ms,
                          size_t bytes, struct bench_flow_result *out_result)
{
    static uint64_t next; /* keys stay new over the runs of one program */
    struct redis_load load = {.next = next, .bytes = bytes, .body = sf_malloc(bytes)};
    struct link *links = sf_calloc(connections, sizeof(*links));
    struct pollfd *polls = sf_calloc(connections, sizeof(*polls));
    unsigned open = connections;
    int64_t start_ns = bench_now_ns();

    memset(load.body, 'y', bytes);
    bench_flow_samples_open(&load.samples);
    load.end_ns = start_ns + ms * 1000000;
    for (unsigned i = 0; i < connections; i++) {
        links[i].fd = dial(port);
        links[i].in_flight = in_flight / connections;
        links[i].sent_ns = sf_calloc(links[i].in_flight, sizeof(int64_t));
        polls[i] = (struct pollfd){.fd = links[i].fd, .events = POLLIN};
        for (unsigned k = 0; k < links[i].in_flight; k++)
            request_add(&load, &links[i]);
        flush(&links[i]);
    }
    while (open > 0) {
        bench_must(poll(polls, connections, -1) > 0 || errno == EINTR, "waiting for Redis");
        for (unsigned i = 0; i < connections; i++) {
            if (polls[i].revents == 0 || take_replies(&load, &links[i]))
                continue;
            polls[i].fd = -1; /* poll passes it by */
            open--;
        }
    }
    double seconds = (double)(bench_now_ns() - start_ns) / 1e9;
    bench_flow_samples_close(&load.samples, seconds, out_result);
    for (unsigned i = 0; i < connections; i++) {
        (void)close(links[i].fd);
        free(links[i].sent_ns);
        sf_buf_fini(&links[i].out);
    }
    next = load.next;
    free(links);
    free(polls);
    free(load.body);
}
