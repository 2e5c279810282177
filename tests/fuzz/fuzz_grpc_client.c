/*
 * The channel's way in: a call to a peer that answers with what the input spells out, in frames,
 * and then closes. Whatever it says, done comes once, and with an error unless the peer said OK.
 *
 *   input: a list of (type, flags, n, n bytes), sent as frames of the call's stream; type 7 is a
 *   block of literal headers "status text NUL details" in place of HEADERS
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
#include "exec/reactor.h"
#include "interop/echo_service.h"
#include "rpc/channel.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct sf_reactors *reactors;
static int listen_fd;
static uint16_t port;

static void start_once(void)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    struct sf_diag diag;

    if (reactors != NULL)
        return;
    sf_log_set_fd(-1);
    sf_diag_init(&diag);
    SF_ASSERT(sf_reactors_start(1, sf_clock_system(), &diag, &reactors) == SF_OK);
    listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    SF_ASSERT(bind(listen_fd, (struct sockaddr *)(void *)&addr, len) == 0);
    SF_ASSERT(listen(listen_fd, 16) == 0);
    SF_ASSERT(getsockname(listen_fd, (struct sockaddr *)(void *)&addr, &len) == 0);
    port = ntohs(addr.sin_port);
}

static void frame(struct sf_buf *out, uint8_t type, uint8_t flags, uint8_t stream,
                  struct sf_view payload)
{
    const uint8_t head[9] = {(uint8_t)(payload.len >> 16),
                             (uint8_t)(payload.len >> 8),
                             (uint8_t)payload.len,
                             type,
                             flags,
                             0,
                             0,
                             0,
                             stream};

    sf_buf_append(out, head, sizeof(head));
    sf_buf_append(out, payload.ptr, payload.len);
}

static void literal(struct sf_buf *out, const char *name, struct sf_view value)
{
    const uint8_t head[2] = {0, (uint8_t)strlen(name)};
    const uint8_t value_len = (uint8_t)(value.len & 0x7f);

    if (value_len == 0x7f)
        return;
    sf_buf_append(out, head, sizeof(head));
    sf_buf_append_str(out, name);
    sf_buf_append(out, &value_len, 1);
    sf_buf_append(out, value.ptr, value_len);
}

/* HEADERS whose values come from `bytes`. */
static void headers(struct sf_buf *out, uint8_t flags, struct sf_view bytes)
{
    static const char *const names[] = {"grpc-message", "grpc-status-details-bin", "grpc-encoding"};
    struct sf_buf block = {0};

    if (!(flags & 2))
        literal(&block, ":status", sf_view_str((flags & 16) ? "503" : "200"));
    literal(&block, "content-type", sf_view_str("application/grpc"));
    if (bytes.len > 0) {
        char status[4] = {0};
        status[0] = (char)('0' + bytes.ptr[0] % 10);
        literal(&block, "grpc-status", sf_view_str(status));
        literal(&block, names[bytes.ptr[0] / 10 % 3], sf_view_bytes(bytes.ptr + 1, bytes.len - 1));
    }
    frame(out, 1, (flags & 1) | 4, 1, sf_buf_view(&block));
    sf_buf_fini(&block);
}

static void spell(const uint8_t *at, size_t left, struct sf_buf *out)
{
    frame(out, 4, 0, 0, (struct sf_view){0});
    while (left >= 3) {
        size_t n = at[2] < left - 3 ? at[2] : left - 3;
        struct sf_view payload = {at + 3, n};
        if (at[0] % 12 == 7)
            headers(out, at[1], payload);
        else
            frame(out, at[0] % 12, at[1], at[0] & 0x40 ? 0 : 1, payload);
        at += 3 + n;
        left -= 3 + n;
    }
}

struct outcome {
    unsigned calls;
    struct sf_waiter waiter;
};

static void on_done(void *user, const struct sf_diag *diag, const ProtobufCMessage *response)
{
    struct outcome *outcome = user;

    SF_ASSERT((diag->err == SF_OK) == (response != NULL));
    outcome->calls++;
    sf_waiter_wake(&outcome->waiter);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Sftest__V1__EchoRequest request = SFTEST__V1__ECHO_REQUEST__INIT;
    struct sf_call_options options = {.timeout_ms = 2000};
    struct outcome outcome = {0};
    struct sf_channel *channel;
    struct sf_buf out = {0};
    struct sf_diag diag;
    char answer[4096];

    start_once();
    sf_diag_init(&diag);
    SF_ASSERT(sf_grpc_channel_new(sf_reactors_loop(reactors, 0), "127.0.0.1", port, &diag,
                                  &channel) == SF_OK);
    sf_grpc_channel_add_service(channel, &sftest__v1__echo__descriptor);
    sf_waiter_init(&outcome.waiter, NULL);
    sf_channel_unary(channel, "/sftest.v1.Echo/Unary", &request.base, &options, NULL, on_done,
                     &outcome);
    int fd = (int)TEMP_FAILURE_RETRY(accept(listen_fd, NULL, NULL));
    SF_ASSERT(fd >= 0);
    (void)recv(fd, answer, sizeof(answer), 0); /* the greeting and the request */
    spell(data, size, &out);
    (void)send(fd, out.data, out.len, MSG_NOSIGNAL);
    (void)shutdown(fd, SHUT_WR);
    sf_waiter_wait(&outcome.waiter);
    SF_ASSERT(outcome.calls == 1);
    sf_waiter_fini(&outcome.waiter);
    sf_channel_destroy(channel);
    while (recv(fd, answer, sizeof(answer), 0) > 0)
        ;
    struct linger linger = {.l_onoff = 1};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
    (void)close(fd);
    sf_buf_fini(&out);
    return 0;
}
