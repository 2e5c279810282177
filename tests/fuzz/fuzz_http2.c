/*
 * The server's whole way in: a connection to a real server on a reactor, fed with frames that the
 * input spells out, until the server has closed it. The input is a list of operations, so that most
 * of it is well-formed enough to get past the framing:
 *
 *   0 n bytes...        raw bytes
 *   1 f                 HEADERS of a new stream: method, END_STREAM, odd headers by the bits of f
 *   2 s n f bytes...    DATA on stream s
 *   3 s                 RST_STREAM
 *   4 t f s n bytes...  any frame
 *   5 s n bytes...      DATA with a message prefix of n
 */
#include <stdlib.h>
#include <sys/socket.h>
#include <errno.h>
#include <netinet/in.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
#include "exec/reactor.h"
#include "interop/echo_service.h"
#include "rpc/server.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct sf_reactors *reactors;
static uint16_t port;

struct input {
    const uint8_t *at;
    size_t left;
};

static uint8_t take(struct input *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->at++;
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

static struct sf_view take_bytes(struct input *in, size_t n)
{
    struct sf_view bytes = {in->at, n < in->left ? n : in->left};

    in->at += bytes.len;
    in->left -= bytes.len;
    return bytes;
}

static void literal(struct sf_buf *out, const char *name, const char *value)
{
    const uint8_t head[2] = {0, (uint8_t)strlen(name)};
    const uint8_t value_len = (uint8_t)strlen(value);

    sf_buf_append(out, head, sizeof(head));
    sf_buf_append_str(out, name);
    sf_buf_append(out, &value_len, 1);
    sf_buf_append_str(out, value);
}

static void headers(struct sf_buf *out, uint8_t stream, uint8_t f)
{
    static const char *const paths[] = {
        "/sftest.v1.Echo/Unary", "/sftest.v1.Echo/Chat", "/sftest.v1.Echo/Collect",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"};
    struct sf_buf block = {0};

    literal(&block, ":method", (f & 0xc0) == 0xc0 ? "GET" : "POST");
    literal(&block, ":scheme", "http");
    literal(&block, ":path", paths[f & 3]);
    literal(&block, ":authority", "x");
    literal(&block, "content-type", "application/grpc");
    if (f & 8)
        literal(&block, "grpc-encoding", "gzip");
    if (f & 16)
        literal(&block, "grpc-timeout", f & 32 ? "1m" : "1x");
    if (f & 32)
        literal(&block, "x-a-bin", f & 64 ? "AAA" : "A");
    frame(out, 1, (f & 4) ? 5 : 4, stream, sf_buf_view(&block));
    sf_buf_fini(&block);
}

static void spell(struct input *in, struct sf_buf *out)
{
    uint8_t next_stream = 1;

    while (in->left > 0) {
        struct sf_buf message = {0};
        uint8_t stream, n, flags;
        switch (take(in) % 6) {
        case 0:
            n = take(in);
            struct sf_view raw = take_bytes(in, n);
            sf_buf_append(out, raw.ptr, raw.len);
            break;
        case 1:
            headers(out, next_stream, take(in));
            next_stream = (uint8_t)(next_stream + 2);
            break;
        case 2:
            stream = take(in);
            n = take(in);
            flags = take(in);
            frame(out, 0, flags & 9, stream, take_bytes(in, n));
            break;
        case 3:
            frame(out, 3, 0, take(in), sf_view_bytes("\0\0\0\x08", 4));
            break;
        case 4:
            stream = take(in);
            flags = take(in);
            n = take(in);
            frame(out, stream % 11, flags, take(in), take_bytes(in, n));
            break;
        default:
            stream = take(in);
            n = take(in);
            const uint8_t prefix[5] = {n & 1, 0, 0, 0, n};
            struct sf_view body = take_bytes(in, n);
            sf_buf_append(&message, prefix, sizeof(prefix));
            sf_buf_append(&message, body.ptr, body.len);
            frame(out, 0, n & 1, stream, sf_buf_view(&message));
            sf_buf_fini(&message);
            break;
        }
    }
}

static void start_once(void)
{
    static struct sf_rpc_server *server;
    struct sf_diag diag;

    if (server != NULL)
        return;
    sf_log_set_fd(-1);
    sf_diag_init(&diag);
    SF_ASSERT(sf_reactors_start(1, sf_clock_system(), &diag, &reactors) == SF_OK);
    static const struct sf_service *services[1];
    services[0] = sf_echo_service(sf_echo_new(NULL));
    struct sf_rpc_server_options options = {
        .host = "127.0.0.1", .reactors = reactors, .services = services, .service_count = 1};
    SF_ASSERT(sf_rpc_server_start(&options, &diag, &server) == SF_OK);
    port = sf_rpc_server_port(server);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct input in = {data, size};
    struct sf_buf out = {0};
    char answer[4096];

    start_once();
    addr.sin_port = htons(port);
    sf_buf_append(&out, preface, sizeof(preface) - 1);
    spell(&in, &out);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    SF_ASSERT(fd >= 0 &&
              TEMP_FAILURE_RETRY(connect(fd, (struct sockaddr *)(void *)&addr, sizeof(addr))) == 0);
    (void)send(fd, out.data, out.len, MSG_NOSIGNAL);
    (void)shutdown(fd, SHUT_WR);
    while (recv(fd, answer, sizeof(answer), 0) > 0)
        ;
    /* Ends with a reset, so that a million of them leave no ports waiting. */
    struct linger linger = {.l_onoff = 1};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
    (void)close(fd);
    sf_buf_fini(&out);
    return 0;
}
