/* SPDX-License-Identifier: MIT
 *
 * What strangers may send to a store server, without sockets. The first byte of the input says how
 * much memory there is, whether old clients may have a second connection, and whether clients have
 * one turn for each piece or as many as they need; then come pieces, each behind a byte that says
 * whose of four clients it is and how long. A piece of no length hangs up: the next one begins a
 * new connection. Build it with -fsanitize=fuzzer, or call it as tests/test_store_fuzz.c does.
 */
#include "store_output.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

enum { CLIENTS = 4, WHOLE_REST = 63 };
enum { IS_TIGHT_TABLE = 1, IS_TIGHT_BUFFERS = 2, IS_LISTED = 4, IS_OF_TWO = 8, IS_BY_TURNS = 16 };
enum { TIGHT_TABLE = 2 << 10, TABLE = 4 << 20, TIGHT_BUFFERS = 4 << 10, BUFFERS = 4 << 20 };

struct client {
    struct ko_session session; /* first, so that a session is its client */
    bool is_open, is_woken, has_one_turn;
};

static void wake_client(struct ko_session *session)
{
    ((struct client *)session)->is_woken = true;
}

static void hang_up(struct client *client)
{
    if (client->is_open)
        ko_session_close(&client->session);
    client->is_open = false;
}

/* Runs it, for a turn or more; a client that is to be cut off is. False if it is no more. */
static bool run(struct client *client)
{
    client->is_woken = false;
    do
        if (ko_session_run(&client->session))
            hang_up(client);
    while (client->is_open && client->session.has_more && !client->has_one_turn);
    return client->is_open;
}

/* Takes out all that the client is to get, as a socket might that takes a piece in parts. */
static uint8_t *read_all(struct ko_session *session)
{
    const size_t nbytes = ko_output_nbytes(session);
    uint8_t *bytes = malloc(nbytes + 1);
    const struct ko_buffer *first;
    size_t n;

    if (!bytes || ko_output_room(session) < nbytes)
        abort();
    for (size_t at = 0; at < nbytes; at += n) {
        first = ko_output_first(session);
        n = (ko_buffer_fill(first) + 1) / 2;
        memcpy(bytes + at, ko_buffer_bytes(first), n);
        ko_output_consume(session, n);
    }
    return bytes;
}

/* Gives the client n bytes, as many at a time as it wants; one that is swamped by replies reads
 * them. What is behind a message that waits does not come in. */
static void feed(struct client *client, const uint8_t *data, size_t n)
{
    struct ko_session *session = &client->session;
    size_t part;

    for (; n > 0; data += part, n -= part) {
        part = ko_session_wants(session);
        part = part < n ? part : n;
        if (part == 0 && ko_output_nbytes(session) < KO_SESSION_OUTPUT_BOUND)
            return;
        if (part == 0)
            free(read_all(session));
        if (ko_buffer_reserve(&session->in, part))
            return;
        if (part > 0)
            memcpy(session->in.data + session->in.tail, data, part);
        session->in.tail += part;
        if (!run(client))
            return;
    }
}

static bool has_other_half(struct ko_session *session, enum ko_half half)
{
    (void)session;
    (void)half;
    return true;
}

/* The next turn of those that have more to do. */
static void run_others(struct client *clients, const struct client *client)
{
    for (int i = 0; i < CLIENTS; i++)
        if (&clients[i] != client && clients[i].is_open && clients[i].session.has_more)
            run(&clients[i]);
}

/* What one piece has set off at the others, and what that sets off. */
static void run_woken(struct client *clients)
{
    bool is_quiet = false;

    while (!is_quiet) {
        is_quiet = true;
        for (int i = 0; i < CLIENTS; i++)
            if (clients[i].is_open && clients[i].is_woken) {
                run(&clients[i]);
                is_quiet = false;
            }
    }
}

/* Moves *data past one piece. */
static void take_piece(struct ko_service *service, struct client *clients, const uint8_t **data,
                       size_t *nbytes)
{
    struct client *client = &clients[**data % CLIENTS];
    size_t n = **data / CLIENTS;

    (*data)++;
    (*nbytes)--;
    if (n == WHOLE_REST || n > *nbytes)
        n = *nbytes;
    if (n > 0 && !client->is_open) {
        ko_session_open(&client->session, service, wake_client);
        client->is_open = true;
    }
    if (n > 0)
        feed(client, *data, n);
    else
        hang_up(client);
    run_others(clients, client);
    run_woken(clients);
    if (ko_table_is_untidy(service->table))
        ko_table_tidy_some(service->table);
    *data += n;
    *nbytes -= n;
}

/* The keys that a client is told of are those of the table, and can be taken out of their "/". */
static void check_list(struct ko_service *service)
{
    static const uint8_t list_keys[] = "\0\xce\xf7\x85\x3c\x11";
    struct client client = {.is_open = true};
    uint8_t *reply, *list;
    const uint8_t *at;
    size_t nbytes;
    struct ko_table_place place = {0};
    size_t nkeys, nslashed = 0, nkept, nfound = 0;
    kolo_bytes found;

    while (ko_table_next(service->table, &place, &found))
        nfound++;
    if (nfound != (size_t)ko_table_count(service->table))
        abort();
    ko_session_open(&client.session, service, wake_client);
    feed(&client, list_keys, sizeof list_keys - 1);
    if (!client.is_open) /* no memory for the list */
        return;
    nbytes = ko_output_nbytes(&client.session);
    reply = read_all(&client.session);
    list = reply + 8;
    nkeys = (size_t)ko_wire_u64(reply);
    at = list;
    for (size_t i = 0; i < nkeys; i++) {
        kolo_bytes key = ko_list_next(&at);

        nslashed += key.nbytes > 0 && *(const char *)key.data == '/';
    }
    if (at != reply + nbytes || nkeys != (size_t)ko_table_count(service->table) ||
        ko_list_strip(list, nkeys, (kolo_bytes){"/", 1}, &nkept) != nslashed)
        abort();
    free(reply);
    hang_up(&client);
}

/* Numbers and operations belong together both ways. */
static void check_numbering(enum ko_wire_numbering numbering, uint8_t number)
{
    const enum ko_store_op operation = number % KO_STORE_NOPS;
    int meant = ko_wire_operation(numbering, number);
    int opcode = ko_wire_opcode(numbering, operation);

    if (meant >= 0 && ko_wire_opcode(numbering, (enum ko_store_op)meant) != number)
        abort();
    if (opcode >= 0 && ko_wire_operation(numbering, (uint8_t)opcode) != (int)operation)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    struct ko_service service = {0};
    struct client clients[CLIENTS];
    size_t most;
    uint8_t first;

    if (nbytes == 0)
        return 0;
    first = *data++;
    nbytes--;
    service.budget.cap = first & IS_TIGHT_BUFFERS ? TIGHT_BUFFERS : BUFFERS;
    service.has_other_half = first & IS_OF_TWO ? has_other_half : NULL;
    most = first & IS_TIGHT_TABLE ? TIGHT_TABLE : TABLE;
    if (ko_table_open(most, &service.table))
        return 0;
    ko_table_keep_apart(service.table);
    for (int i = 0; i < CLIENTS; i++)
        clients[i] = (struct client){.has_one_turn = first & IS_BY_TURNS};
    while (nbytes > 0)
        take_piece(&service, clients, &data, &nbytes);
    if (ko_table_used(service.table) > most)
        abort();
    if (first & IS_LISTED)
        check_list(&service);
    check_numbering(KO_WIRE_MODERN, first);
    check_numbering(KO_WIRE_EARLY_2, first);
    check_numbering(KO_WIRE_2_1, first);
    check_numbering(KO_WIRE_1_13, first);
    for (int i = 0; i < CLIENTS; i++)
        hang_up(&clients[i]);
    if (service.budget.used != 0 || service.budget.expected != 0)
        abort();
    ko_table_free(service.table);
    return 0;
}
