/* SPDX-License-Identifier: MIT
 *
 * How a client reaches a server, and finds out which numbering it speaks. A server of PyTorch 2.5
 * and on, or of kolo's, answers VALIDATE and PING. One of 1.13 to 2.1 takes these for a SET of a
 * key of an impossible length and hangs up: then the count of keys is asked for, which is 6 in all
 * of them; and behind it a wait is taken back as 2.1 does it, which it answers in any case, while
 * one of 1.13 or 2.0 hangs up at an opcode that it does not know. Nothing else may be tried on such
 * a server before that: it reads the rest of a message that it knows without looking at anybody
 * else. One of 2.2 to 2.4 hangs up at PING, which it does not know, and at what does not begin with
 * VALIDATE: then the count of keys is asked for behind that.
 */
#include "store_client.h"

#include "socket.h"
#include "status.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    FIRST_PAUSE_MS = 50,
    LONGEST_PAUSE_MS = 2000,
    HASTY_MS = 100,      /* a silence that is no longer than this tells nothing */
    OLD_PROBE_MS = 2000, /* a later server may neither answer what is of an older one nor hang up */
    MANY_KEYS = 1 << 30
};

/* In this order; a busy server may hang up without a meaning. */
static const enum ko_wire_numbering probes[] = {KO_WIRE_MODERN, KO_WIRE_MODERN, KO_WIRE_MODERN,
                                                KO_WIRE_OLD, KO_WIRE_EARLY_2};
enum { NPROBES = sizeof probes / sizeof *probes };

/* With this nonce a PING behind a VALIDATE is a length that no older server takes memory for. */
#define PROBE_NONCE 0xFFFFFFFFu

/* ---- the connection ----------------------------------------------------------------------- */

/* Relaxed: it may as well be called a moment later. */
bool ko_client_is_stopped(struct ko_client *client)
{
    return atomic_load_explicit(&client->is_stopped, memory_order_relaxed);
}

int ko_client_fail_stopped(const struct ko_client *client)
{
    return ko_fail(KOLO_E_ABORTED, "%s was closed during the call", client->where);
}

void ko_client_disconnect(struct ko_client *client)
{
    pthread_mutex_lock(&client->fd_lock);
    ko_fork_fd_close(&client->socket);
    pthread_mutex_unlock(&client->fd_lock);
}

int ko_client_fail_with(const struct ko_client *client, int err, const char *what)
{
    char cause[KO_ERROR_TEXT];

    snprintf(cause, sizeof cause, "%s", kolo_last_error());
    return ko_fail(err, "%s, %s: %s", client->where, what, cause);
}

/* ---- the handshake ------------------------------------------------------------------------ */

static int ask(int fd, const struct ko_buffer *question, void *answer, size_t nbytes,
               const ko_deadline *deadline)
{
    int err = ko_socket_send_all(fd, question->data, question->tail, deadline);

    return err ? err : ko_socket_recv_all(fd, answer, nbytes, deadline);
}

static void put_validate(struct ko_buffer *question)
{
    ko_buffer_put_u8(question, KO_STORE_VALIDATE);
    ko_buffer_put_u32(question, KO_WIRE_MAGIC);
}

static int ask_for_pong(int fd, struct ko_buffer *question, const ko_deadline *deadline)
{
    uint8_t echo[4];
    int err;

    ko_buffer_put_u8(question, KO_STORE_PING);
    ko_buffer_put_u32(question, PROBE_NONCE);
    err = ask(fd, question, echo, sizeof echo, deadline);
    if (!err && memcmp(echo, ko_refusal, sizeof echo) == 0)
        return ko_fail(KOLO_E_PROTOCOL, "it asks for a token; all ranks of a job need the same "
                                        "(KOLO_AUTH_TOKEN_FILE, KOLO_AUTH_TOKEN)");
    if (!err && ko_wire_u32(echo) != PROBE_NONCE)
        err = ko_fail(KOLO_E_PROTOCOL, "what answers is no TCPStore of PyTorch's or of kolo's");
    return err;
}

/* No answer is as good as a hang-up, unless all time is used. */
static int ask_old(int fd, const struct ko_buffer *question, void *answer, size_t nbytes,
                   const ko_deadline *deadline)
{
    ko_deadline limit = ko_deadline_within(deadline, OLD_PROBE_MS);
    int err = ask(fd, question, answer, nbytes, &limit);

    return err == KOLO_E_TIMEOUT && !ko_deadline_passed(deadline) ? KOLO_E_PEER_LOST : err;
}

static void put_opcode(struct ko_buffer *question, enum ko_wire_numbering numbering,
                       enum ko_store_op op)
{
    ko_buffer_put_u8(question, (uint8_t)ko_wire_opcode(numbering, op));
}

static int ask_for_count(int fd, struct ko_buffer *question, enum ko_wire_numbering numbering,
                         const ko_deadline *deadline)
{
    uint8_t number[8];
    int err;

    put_opcode(question, numbering, KO_STORE_NUM_KEYS);
    err = ask_old(fd, question, number, sizeof number, deadline);
    if (!err && ko_wire_u64(number) > MANY_KEYS)
        err = ko_fail(KOLO_E_PROTOCOL, "what answers is no TCPStore of an earlier PyTorch's");
    return err;
}

static int ask_to_cancel(int fd, struct ko_buffer *question, const ko_deadline *deadline)
{
    const ko_deadline limit = ko_deadline_within(deadline, OLD_PROBE_MS);
    uint8_t answer;
    int err;

    put_opcode(question, KO_WIRE_2_1, KO_STORE_CANCEL_WAIT);
    err = ask(fd, question, &answer, 1, &limit);
    if (!err && answer != KO_WIRE_WAIT_CANCELED)
        err = ko_fail(KOLO_E_PROTOCOL, "what answers is no TCPStore of PyTorch 2.1's");
    return err;
}

/* The numbering that the next try is about. A server that has once spoken one of them is asked for
 * that first. */
static enum ko_wire_numbering next_probe(const struct ko_client *client, int turn)
{
    bool is_old = client->numbering == KO_WIRE_1_13 || client->numbering == KO_WIRE_2_1;
    enum ko_wire_numbering known = is_old ? KO_WIRE_OLD : client->numbering;
    int first = 0;

    while (known && probes[first] != known)
        first++;
    return probes[(turn + first) % NPROBES];
}

/* A server that has answered as one of the earlier of two forms is asked for what only the later
 * one has, unless it is known to have hung up at that. If it hangs up now, that is one more thing
 * known of it, for the next try; if it does not answer in time, nothing is. One that is taken to be
 * of 2.2 to 2.4 may be a later one that was busy before. */
static int settle(struct ko_client *client, int fd, enum ko_wire_numbering numbering,
                  const ko_deadline *deadline)
{
    const bool is_old = numbering == KO_WIRE_OLD;
    const enum ko_wire_numbering earlier = is_old ? KO_WIRE_1_13 : KO_WIRE_EARLY_2;
    const enum ko_wire_numbering later = is_old ? KO_WIRE_2_1 : KO_WIRE_MODERN;
    uint8_t bytes[8];
    struct ko_buffer question = {.data = bytes, .cap = sizeof bytes};
    int err;

    if (client->numbering == earlier)
        return KOLO_OK;
    err = is_old ? ask_to_cancel(fd, &question, deadline) : ask_for_pong(fd, &question, deadline);
    if (!err)
        client->numbering = later;
    else if (err == KOLO_E_PEER_LOST && client->numbering != later)
        client->numbering = earlier;
    return err == KOLO_E_TIMEOUT && !ko_deadline_passed(deadline) ? KOLO_E_PEER_LOST : err;
}

static int probe(struct ko_client *client, int fd, enum ko_wire_numbering numbering,
                 const ko_deadline *deadline)
{
    uint8_t bytes[16];
    struct ko_buffer question = {.data = bytes, .cap = sizeof bytes};
    int err;

    if (numbering != KO_WIRE_OLD)
        put_validate(&question);
    if (numbering != KO_WIRE_MODERN) {
        err = ask_for_count(fd, &question, numbering, deadline);
        return err ? err : settle(client, fd, numbering, deadline);
    }
    err = ask_for_pong(fd, &question, deadline);
    if (!err)
        client->numbering = KO_WIRE_MODERN;
    return err;
}

/* What is known of the tries to reach a server. */
struct approach {
    int tries, turn;
    bool is_hasty;             /* the present one has no time for an answer */
    bool is_unproven;          /* the one that cause is of got no further than the token's proof */
    char cause[KO_ERROR_TEXT]; /* of the last one that had the time */
};

static void note_failure(struct approach *approach, int err, bool is_unproven)
{
    if (approach->is_hasty && err == KOLO_E_TIMEOUT && *approach->cause)
        return;
    approach->is_unproven = is_unproven && (err == KOLO_E_PEER_LOST || err == KOLO_E_TIMEOUT);
    snprintf(approach->cause, sizeof approach->cause, "%s", kolo_last_error());
}

static int shake_hands(struct ko_client *client, int fd, struct approach *approach,
                       const ko_deadline *deadline)
{
    const enum ko_wire_numbering known = client->numbering;
    enum ko_wire_numbering numbering = next_probe(client, approach->turn);
    struct ko_gate gate;
    int err = ko_gate_begin(&gate, &client->guard, &ko_claim_store, true);
    bool is_unproven;

    if (!err)
        err = ko_gate_pass_until(&gate, fd, deadline);
    is_unproven = err && client->guard.has_secret;
    if (!err)
        err = probe(client, fd, numbering, deadline);
    approach->turn = client->numbering == known ? approach->turn + 1 : 0;
    approach->tries++;
    if (err)
        note_failure(approach, err, is_unproven);
    return err;
}

static int fail_handshake(const struct ko_client *client, int err, const struct approach *approach,
                          const ko_deadline *deadline)
{
    const char *advice = approach->is_unproven
                             ? "; this end has a token, of which a store of PyTorch's own asks and "
                               "shows no proof: set KOLO_AUTH_STORE=none on all ranks to meet "
                               "there all the same"
                             : "";

    return ko_fail(err == KOLO_E_PEER_LOST ? KOLO_E_TIMEOUT : err,
                   "%s answers connections, but not with the store's handshake, within %d ms: %s "
                   "(tried %d time%s)%s",
                   client->where, deadline->timeout_ms, approach->cause, approach->tries,
                   approach->tries == 1 ? "" : "s", advice);
}

/* From here on ko_client_stop ends what waits for the other end. */
static void attach(struct ko_client *client, int fd)
{
    pthread_mutex_lock(&client->fd_lock);
    ko_fork_fd_keep(&client->socket, fd);
    if (ko_client_is_stopped(client))
        shutdown(fd, SHUT_RDWR);
    pthread_mutex_unlock(&client->fd_lock);
}

/* Connects and shakes hands, again and again until the deadline: a server whose queue is full may
 * take a connection and drop it. */
static int reach(struct ko_client *client, const ko_deadline *deadline)
{
    struct approach approach = {0};
    int pause_ms = FIRST_PAUSE_MS;
    int left;
    int fd;
    int err;

    for (;;) {
        approach.is_hasty = ko_deadline_left_ms(deadline) < HASTY_MS;
        err = ko_socket_connect_unless(client->host, client->port, deadline, &client->is_stopped,
                                       &fd);
        if (err == KOLO_E_TIMEOUT && approach.is_hasty && approach.tries > 0)
            return fail_handshake(client, err, &approach, deadline);
        if (err)
            return err;
        attach(client, fd);
        err = shake_hands(client, fd, &approach, deadline);
        if (!err)
            return KOLO_OK;
        ko_client_disconnect(client);
        if (err != KOLO_E_PEER_LOST || ko_client_is_stopped(client))
            return fail_handshake(client, err, &approach, deadline);
        if (approach.tries >= NPROBES) { /* before that the other numberings, at once */
            left = ko_deadline_left_ms(deadline);
            ko_socket_pause(pause_ms < left ? pause_ms : left, &client->is_stopped);
            pause_ms = pause_ms * 3 / 2 < LONGEST_PAUSE_MS ? pause_ms * 3 / 2 : LONGEST_PAUSE_MS;
        }
        if (ko_deadline_passed(deadline))
            return fail_handshake(client, err, &approach, deadline);
    }
}

int ko_client_connect(struct ko_client *client, const ko_deadline *deadline)
{
    const int err = reach(client, deadline);

    return err && ko_client_is_stopped(client) ? ko_client_fail_stopped(client) : err;
}
