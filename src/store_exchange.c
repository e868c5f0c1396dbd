/* SPDX-License-Identifier: MIT
 *
 * One request and its reply as bytes. One table says for each operation of what kind the reply is.
 */
#include "store_client.h"

#include "poller.h"
#include "socket.h"
#include "status.h"

#include <errno.h>
#include <string.h>

enum {
    LIST_PIECE = 64 << 10,
    MESSAGE_MAX = 16 << 20 /* of several keys or values; servers take 64 MiB, or more */
};

/* Of a list of all keys, whose length only the server knows. One of kolo's has no more memory for
 * it, as usual. */
#define LIST_MAX ((size_t)1 << 30)

enum reply_kind {
    REPLY_PONG, /* none of its own */
    REPLY_NUMBER,
    REPLY_BYTE,
    REPLY_BYTES,
    REPLY_POPPED, /* a number, and if it is not 0, bytes */
    REPLY_LIST,   /* as many items as there are keys in the request */
    REPLY_KEYS    /* a number, and so many items */
};

static const struct exchange {
    const char *name;
    enum reply_kind reply;
} exchanges[KO_STORE_NOPS] = {
    [KO_STORE_SET] = {"set", REPLY_PONG},
    [KO_STORE_COMPARE_SET] = {"compare_set", REPLY_BYTES},
    [KO_STORE_GET] = {"get", REPLY_BYTES},
    [KO_STORE_ADD] = {"add", REPLY_NUMBER},
    [KO_STORE_CHECK] = {"check", REPLY_BYTE},
    [KO_STORE_WAIT] = {"wait", REPLY_BYTE},
    [KO_STORE_NUM_KEYS] = {"num_keys", REPLY_NUMBER},
    [KO_STORE_DELETE] = {"delete", REPLY_NUMBER},
    [KO_STORE_APPEND] = {"append", REPLY_PONG},
    [KO_STORE_MULTI_GET] = {"multi_get", REPLY_LIST},
    [KO_STORE_MULTI_SET] = {"multi_set", REPLY_PONG},
    [KO_STORE_QUEUE_PUSH] = {"queue_push", REPLY_PONG},
    [KO_STORE_QUEUE_POP] = {"queue_pop", REPLY_POPPED},
    [KO_STORE_QUEUE_LEN] = {"queue_len", REPLY_NUMBER},
    [KO_STORE_LIST_KEYS] = {"list_keys", REPLY_KEYS},
    [KO_STORE_BARRIER] = {"barrier", REPLY_BYTE},
    [KO_STORE_WILL] = {"will", REPLY_PONG},
};

const char *ko_client_verb(enum ko_store_op op)
{
    return exchanges[op].name;
}

/* ---- requests ----------------------------------------------------------------------------- */

static bool has_count(enum ko_store_op op)
{
    return op == KO_STORE_WAIT || op == KO_STORE_CHECK || op == KO_STORE_MULTI_GET ||
           op == KO_STORE_MULTI_SET;
}

/* On the wire a user's key has a "/" before it, as PyTorch's clients put it. */
static void put_key(struct ko_buffer *out, kolo_bytes key, bool is_bare)
{
    ko_buffer_put_u64(out, key.nbytes + !is_bare);
    if (!is_bare)
        ko_buffer_put_u8(out, '/');
    memcpy(out->data + out->tail, key.data, key.nbytes);
    out->tail += key.nbytes;
}

static size_t item_size(const struct ko_request *request, size_t i)
{
    return 9 + request->keys[i].nbytes + (request->values ? 8 + request->values[i].nbytes : 0);
}

static size_t longest_size(const struct ko_request *request)
{
    size_t nbytes = 64 + request->value.nbytes + request->expected.nbytes;

    for (size_t i = 0; i < request->nkeys; i++)
        nbytes += item_size(request, i);
    return nbytes;
}

struct ko_request ko_client_part(const struct ko_request *request, size_t from)
{
    struct ko_request part = *request;
    size_t nbytes = 0;

    part.nkeys = 0;
    part.keys += from;
    if (part.values)
        part.values += from;
    for (size_t i = from; i < request->nkeys; i++) {
        nbytes += item_size(request, i);
        if (nbytes > MESSAGE_MAX && part.nkeys > 0)
            break;
        part.nkeys++;
    }
    return part;
}

/* What makes a server answer, behind a request without a reply. */
static void put_ping(struct ko_client *client)
{
    if (client->numbering != KO_WIRE_MODERN) {
        ko_buffer_put_u8(&client->out,
                         (uint8_t)ko_wire_opcode(client->numbering, KO_STORE_NUM_KEYS));
        return;
    }
    ko_buffer_put_u8(&client->out, KO_STORE_PING);
    ko_buffer_put_u32(&client->out, ++client->nonce);
}

int ko_client_put(struct ko_client *client, const struct ko_request *request)
{
    struct ko_buffer *out = &client->out;
    enum ko_store_op op = request->op;

    if (ko_buffer_reserve(out, longest_size(request)))
        return KOLO_E_NOMEM;
    ko_buffer_put_u8(out, (uint8_t)ko_wire_opcode(client->numbering, op));
    if (has_count(op))
        ko_buffer_put_u64(out, request->nkeys);
    for (size_t i = 0; i < request->nkeys; i++) {
        put_key(out, request->keys[i], request->is_bare);
        if (op == KO_STORE_MULTI_SET)
            ko_buffer_put_bytes(out, request->values[i]);
    }
    if (op == KO_STORE_COMPARE_SET)
        ko_buffer_put_bytes(out, request->expected);
    if (op == KO_STORE_ADD || op == KO_STORE_BARRIER)
        ko_buffer_put_u64(out, (uint64_t)request->delta);
    if (op == KO_STORE_SET || op == KO_STORE_APPEND || op == KO_STORE_COMPARE_SET ||
        op == KO_STORE_QUEUE_PUSH || op == KO_STORE_WILL)
        ko_buffer_put_bytes(out, request->value);
    if (exchanges[op].reply == REPLY_PONG)
        put_ping(client);
    return KOLO_OK;
}

/* Sends what has been put together. */
int ko_client_flush(struct ko_client *client, const ko_deadline *deadline)
{
    size_t nbytes = ko_buffer_fill(&client->out);
    int err =
        ko_socket_send_all(client->socket.fd, ko_buffer_bytes(&client->out), nbytes, deadline);

    ko_buffer_consume(&client->out, nbytes);
    return err;
}

/* ---- replies ------------------------------------------------------------------------------ */

static int receive_bytes(struct ko_client *client, const ko_deadline *deadline,
                         struct ko_reply *reply)
{
    uint8_t length[8];
    uint64_t nbytes;
    char *value;
    int err = ko_socket_recv_all(client->socket.fd, length, sizeof length, deadline);

    if (err)
        return err;
    nbytes = ko_wire_u64(length);
    if (nbytes > KO_STORE_VALUE_MAX)
        return ko_fail(KOLO_E_PROTOCOL, "a value of %llu bytes came; %zu are the most",
                       (unsigned long long)nbytes, KO_STORE_VALUE_MAX);
    value = ko_alloc((size_t)nbytes + 1, "a store's value");
    if (!value)
        return KOLO_E_NOMEM;
    err = ko_socket_recv_all(client->socket.fd, value, (size_t)nbytes, deadline);
    if (err) {
        kolo_free(value);
        return err;
    }
    reply->value = value;
    reply->nbytes = (size_t)nbytes;
    return KOLO_OK;
}

/* Reads until got has nbytes, and whatever has come behind them: nothing else is on the way. */
static int receive_until(struct ko_client *client, struct ko_buffer *got, size_t nbytes,
                         const ko_deadline *deadline)
{
    size_t fill = ko_buffer_fill(got);
    size_t more = nbytes > fill + LIST_PIECE ? nbytes - fill : LIST_PIECE;
    ssize_t n;
    int err = ko_buffer_reserve(got, more);

    while (!err && ko_buffer_fill(got) < nbytes) {
        n = recv(client->socket.fd, got->data + got->tail, got->cap - got->tail, 0);
        if (n > 0)
            got->tail += (size_t)n;
        else if (n < 0 && ko_socket_is_not_yet(errno))
            err = ko_socket_wait(client->socket.fd, KO_POLL_IN, deadline);
        else
            err = ko_fail(KOLO_E_PEER_LOST, "the connection ended within an answer");
    }
    return err;
}

/* The next item's length, of *left bytes that all of them may take. */
static int check_item(uint64_t length, size_t *left)
{
    if (length > KO_STORE_VALUE_MAX)
        return ko_fail(KOLO_E_PROTOCOL, "an item of %llu bytes came; %zu are the most",
                       (unsigned long long)length, KO_STORE_VALUE_MAX);
    if (length > *left)
        return ko_fail(KOLO_E_PROTOCOL, "a list came that takes more than %zu bytes", LIST_MAX);
    *left -= (size_t)length;
    return KOLO_OK;
}

/* n items of some length each, of no more than `left` bytes in all; *list is to be freed in any
 * case. */
static int receive_items(struct ko_client *client, uint64_t n, size_t left,
                         const ko_deadline *deadline, struct ko_buffer *list)
{
    size_t at = 0;
    uint64_t length;
    int err = KOLO_OK;

    for (uint64_t i = 0; i < n && !err; i++) {
        if (at + 8 > ko_buffer_fill(list))
            err = receive_until(client, list, at + 8, deadline);
        length = err ? 0 : ko_wire_u64(ko_buffer_bytes(list) + at);
        if (!err)
            err = check_item(length, &left);
        at += 8 + (size_t)length;
        if (!err && at > ko_buffer_fill(list))
            err = receive_until(client, list, at, deadline);
    }
    if (!err && at != ko_buffer_fill(list))
        err = ko_fail(KOLO_E_PROTOCOL, "more came than was asked for");
    return err;
}

static int receive_list(struct ko_client *client, uint64_t n, size_t most,
                        const ko_deadline *deadline, struct ko_reply *reply)
{
    struct ko_buffer list = {0};
    int err = receive_items(client, n, most, deadline, &list);

    if (err) {
        ko_buffer_free(&list);
        return err;
    }
    reply->value = list.data;
    reply->nbytes = ko_buffer_fill(&list);
    return KOLO_OK;
}

/* Without the "/" that was put before them; keys of others, which have none, are not shown. */
static int receive_keys(struct ko_client *client, int64_t n, const ko_deadline *deadline,
                        struct ko_reply *reply)
{
    int err;

    if (n < 0 || (uint64_t)n > LIST_MAX / 8)
        return ko_fail(KOLO_E_PROTOCOL, "a list of %lld keys came; %zu are the most", (long long)n,
                       LIST_MAX / 8);
    err = receive_list(client, (uint64_t)n, LIST_MAX - (size_t)n * 8, deadline, reply);
    if (!err)
        reply->number =
            (int64_t)ko_list_strip(reply->value, (size_t)n, (kolo_bytes){"/", 1}, &reply->nbytes);
    return err;
}

static int receive_number(struct ko_client *client, const ko_deadline *deadline, int64_t *number)
{
    uint8_t raw[8];
    int err = ko_socket_recv_all(client->socket.fd, raw, sizeof raw, deadline);

    if (!err)
        *number = (int64_t)ko_wire_u64(raw);
    return err;
}

static int receive_pong(struct ko_client *client, const ko_deadline *deadline)
{
    uint8_t raw[4];
    int64_t nkeys;
    int err;

    if (client->numbering != KO_WIRE_MODERN)
        return receive_number(client, deadline, &nkeys);
    err = ko_socket_recv_all(client->socket.fd, raw, sizeof raw, deadline);
    if (!err && ko_wire_u32(raw) != client->nonce)
        err = ko_fail(KOLO_E_PROTOCOL, "a wrong answer to a PING came");
    return err;
}

static int receive_byte(struct ko_client *client, const ko_deadline *deadline, int64_t *is_ready)
{
    uint8_t byte;
    int err = ko_socket_recv_all(client->socket.fd, &byte, 1, deadline);

    if (!err && byte > 1)
        err = ko_fail(KOLO_E_PROTOCOL, "the byte %d came in answer; 0 and 1 are the answers", byte);
    if (!err)
        *is_ready = byte == KO_WIRE_READY;
    return err;
}

int ko_client_receive(struct ko_client *client, const struct ko_request *request,
                      const ko_deadline *deadline, struct ko_reply *reply)
{
    enum reply_kind kind = exchanges[request->op].reply;
    int err;

    if (kind == REPLY_PONG)
        return receive_pong(client, deadline);
    if (kind == REPLY_BYTE)
        return receive_byte(client, deadline, &reply->number);
    if (kind == REPLY_BYTES)
        return receive_bytes(client, deadline, reply);
    if (kind == REPLY_LIST)
        return receive_list(client, request->nkeys, request->nkeys * KO_STORE_VALUE_MAX, deadline,
                            reply);
    err = receive_number(client, deadline, &reply->number);
    if (!err && kind == REPLY_POPPED && reply->number > 0)
        err = receive_bytes(client, deadline, reply);
    if (!err && kind == REPLY_KEYS)
        err = receive_keys(client, reply->number, deadline, reply);
    return err;
}
