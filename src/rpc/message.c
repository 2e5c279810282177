/* Copies of messages between the two sides of an in-process call, and lists of them. */
#include <stdlib.h>

#include "base/limits.h"
#include "base/mem.h"
#include "base/pb.h"
#include "rpc/rpc_priv.h"

ProtobufCMessage *sf_rpc_unpack(const ProtobufCMessageDescriptor *desc, struct sf_view packed,
                                struct sf_arena *arena, struct sf_diag *diag)
{
    ProtobufCMessage *message = NULL;

    if (packed.len > SF_LIMIT_RPC_MESSAGE_BYTES) {
        (void)sf_diag_set(diag, SF_ERR_LIMIT, "message above %u bytes", SF_LIMIT_RPC_MESSAGE_BYTES);
        return NULL;
    }
    return sf_pb_unpack(desc, packed, arena, diag, &message) == SF_OK ? message : NULL;
}

ProtobufCMessage *sf_rpc_copy(const ProtobufCMessage *message, struct sf_arena *arena,
                              struct sf_diag *diag)
{
    struct sf_buf packed = {0};

    sf_pb_pack(message, &packed);
    ProtobufCMessage *copy = sf_rpc_unpack(message->descriptor, sf_buf_view(&packed), arena, diag);
    sf_buf_fini(&packed);
    return copy;
}

struct sf_rpc_message *sf_rpc_message_new(const ProtobufCMessage *message, struct sf_diag *diag)
{
    struct sf_rpc_message *node = sf_calloc(1, sizeof(*node));

    node->arena = sf_arena_new(SF_LIMIT_RPC_ARENA_BYTES);
    node->bytes = protobuf_c_message_get_packed_size(message);
    node->message = sf_rpc_copy(message, node->arena, diag);
    if (node->message != NULL)
        return node;
    sf_rpc_message_destroy(node);
    return NULL;
}

void sf_rpc_message_destroy(struct sf_rpc_message *message)
{
    if (message == NULL)
        return;
    sf_arena_destroy(message->arena);
    free(message);
}

void sf_rpc_message_queue_push(struct sf_rpc_message_queue *queue, struct sf_rpc_message *message)
{
    message->next = NULL;
    if (queue->head == NULL)
        queue->head = message;
    else
        queue->tail->next = message;
    queue->tail = message;
    queue->bytes += message->bytes;
}

struct sf_rpc_message *sf_rpc_message_queue_pop(struct sf_rpc_message_queue *queue)
{
    struct sf_rpc_message *message = queue->head;

    if (message != NULL) {
        queue->head = message->next;
        queue->bytes -= message->bytes;
        message->next = NULL;
    }
    return message;
}

void sf_rpc_message_queue_clear(struct sf_rpc_message_queue *queue)
{
    for (struct sf_rpc_message *message; (message = sf_rpc_message_queue_pop(queue)) != NULL;)
        sf_rpc_message_destroy(message);
}
