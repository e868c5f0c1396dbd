/* SPDX-License-Identifier: MIT
 *
 * Requests and their completions. Every request is signaled, so that each slot is known to be free,
 * and a failure is known by its own status and not by that of what was flushed behind it. Those of
 * the first rail that become ready together are posted together, by whoever has made them ready:
 * each call has the adapter look for what is new. Where it has nothing to do it is given the first
 * at once.
 */
#include "rdma.h"

#include "socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

enum {
    IMM_PROBE = 1, /* of a write that carries nothing */
    IMM_DONE = 2,
    IMM_LINE = 3 /* its number above this */
};

static uint64_t work_of(const struct ko_rdma_rail *rail, enum ko_rdma_work work, unsigned number)
{
    return rail->id | (uint64_t)work << 56 | number;
}

static unsigned number_of(const struct ko_ib_wc *wc)
{
    return (uint8_t)wc->wr_id;
}

static int number_of_rail(const struct ko_rdma_rail *rail)
{
    return (int)(rail - rail->wire->rails);
}

static unsigned char *receive_slot(const struct ko_rdma_slots *slots, unsigned slot)
{
    return slots->memory + (size_t)slot * KO_RDMA_SLOT;
}

static unsigned char *send_slot(const struct ko_rdma_slots *slots, unsigned slot)
{
    return receive_slot(slots, KO_RDMA_SLOTS + slot);
}

/* ---- failure ----------------------------------------------------------------------------- */

/* Whether a status says that the other end is gone, as far as this end can see. siw tells by
 * LOC_QP_OP_ERR of what it could not send because the connection had ended. */
static bool is_loss(const struct ko_rdma_wire *wire, int status)
{
    return (status == KO_IB_WC_LOC_QP_OP_ERR && wire->device->cm) ||
           status == KO_IB_WC_RETRY_EXC_ERR || status == KO_IB_WC_RNR_RETRY_EXC_ERR ||
           status == KO_IB_WC_REM_OP_ERR || status == KO_IB_WC_REM_ABORT_ERR ||
           status == KO_IB_WC_REM_ACCESS_ERR || status == KO_IB_WC_REM_INV_REQ_ERR ||
           status == KO_IB_WC_RESP_TIMEOUT_ERR || status == KO_IB_WC_WR_FLUSH_ERR;
}

static const char *name_of(uint64_t wr_id)
{
    static const char *const words[] = {[KO_RDMA_GOT] = "receiving",
                                        [KO_RDMA_SENT] = "sending",
                                        [KO_RDMA_WROTE] = "writing",
                                        [KO_RDMA_PROBED] = "the first write",
                                        [KO_RDMA_TOLD] = "telling of a write",
                                        [KO_RDMA_LINED] = "telling where to write",
                                        [KO_RDMA_GATHERED] = "sending from a GPU"};

    return words[wr_id >> 56];
}

static void work_failed(const struct ko_rdma_rail *rail, const struct ko_ib_wc *wc)
{
    const int last = atomic_load(&rail->adapter->last_event);
    struct ko_rdma_wire *wire = rail->wire;
    char ours[KO_RDMA_END_TEXT], theirs[KO_RDMA_END_TEXT], address[KO_SOCKET_NAME];

    if (wire->status)
        return;
    ko_rdma_card_text(&wire->card.rails[number_of_rail(rail)], ours);
    ko_rdma_card_text(&wire->theirs.rails[number_of_rail(rail)], theirs);
    ko_socket_peer_name(wire->tcp->fd, address);
    ko_rdma_fail(
        wire,
        ko_fail(is_loss(wire, wc->status) && wire->stage == KO_RDMA_OPEN ? KOLO_E_PEER_LOST
                                                                         : KOLO_E_SYSTEM,
                "%s ended with %s (%d, vendor error %u)%s%s: %s; between %s here and %s of "
                "rank %d (%s)",
                name_of(wc->wr_id), ko_ib_status_name(wc->status), wc->status, wc->vendor_err,
                last >= 0 ? " after the event " : "",
                last >= 0 ? wire->device->ib->event_name(last) : "", ko_ib_status_cause(wc->status),
                ours, theirs, (int)wire->base.hello.from, address));
}

/* A connection of iWARP that the network or the other end has ended takes no request any more, and
 * may say so before any completion does. */
__attribute__((cold)) void ko_rdma_call_failed(struct ko_rdma_wire *wire,
                                               const struct ko_rdma_rail *rail, int error,
                                               const char *what)
{
    const int number = error < 0 ? errno : error, from = (int)wire->base.hello.from;
    const char *device = rail->adapter->port.device;
    const bool has_ended = number == ENOTCONN || number == ECONNRESET || number == EPIPE;

    if (has_ended && wire->stage == KO_RDMA_OPEN)
        ko_rdma_fail(wire, ko_fail(KOLO_E_PEER_LOST,
                                   "%s to rank %d over %s: the connection has ended (%s); its "
                                   "port or network device may be down or gone, or the rank",
                                   what, from, device, strerror(number)));
    else
        ko_rdma_fail(wire, ko_fail_errno(number, "%s to rank %d over %s", what, from, device));
}

void ko_rdma_look_for_end(struct ko_rdma_wire *wire, const struct ko_rdma_rail *rail)
{
    const char *name = rail->adapter->port.device;
    const int of_cq = atomic_load(&rail->cq->fatal_event);
    const int fatal = of_cq ? of_cq : atomic_load(&rail->fatal_event);

    if (atomic_load(&rail->adapter->last_event) == KO_IB_EVENT_DEVICE_FATAL)
        ko_rdma_fail(wire,
                     ko_fail(KOLO_E_SYSTEM,
                             "the RDMA adapter %s has failed or been removed; see dmesg", name));
    else if (fatal)
        ko_rdma_fail(wire, ko_fail(KOLO_E_SYSTEM,
                                   "a queue of the RDMA adapter %s, to rank %d, has failed: %s; "
                                   "see dmesg",
                                   name, (int)wire->base.hello.from,
                                   wire->device->ib->event_name(fatal - 1)));
}

/* ---- posting ----------------------------------------------------------------------------- */

/* Some libraries tell of a request that they have not taken by `bad` alone (libsiw 44). */
static int refusal(int error, const void *bad)
{
    return error || !bad ? error : EIO;
}

static int post_to(struct ko_ib_qp *qp, struct ko_ib_send *list, struct ko_ib_send **bad)
{
    return qp->context->ops.post_send(qp, list, bad);
}

/* Linux's iWARP in software sends by a socket of the kernel's, in the name of the thread that
 * posts: if the peer has closed its end that raises SIGPIPE, which ends a process by default. It is
 * for this thread alone, and taken back before anybody sees it. */
static int post_without_signal(struct ko_ib_qp *qp, struct ko_ib_send *list,
                               struct ko_ib_send **bad)
{
    const struct timespec at_once = {0};
    sigset_t pipe, before, pending;
    bool had_one;
    int error;

    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    had_one = !sigpending(&pending) && sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    error = post_to(qp, list, bad);
    if (!had_one)
        (void)sigtimedwait(&pipe, NULL, &at_once);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* 0, or an errno, and which of the list was not taken; NULL: the library does not say. */
static int post(const struct ko_rdma_rail *rail, struct ko_ib_send *list, struct ko_ib_send **bad)
{
    const bool is_software = !strncmp(rail->adapter->port.device, "siw", 3);
    int error;

    *bad = NULL;
    error = is_software ? post_without_signal(rail->qp, list, bad) : post_to(rail->qp, list, bad);
    return refusal(error, *bad);
}

/* Posts a list, of which no request may be refused. */
static inline void post_all(struct ko_rdma_wire *wire, const struct ko_rdma_rail *rail,
                            struct ko_ib_send *list)
{
    struct ko_ib_send *bad;
    int error = post(rail, list, &bad);

    if (error)
        ko_rdma_call_failed(wire, rail, error, name_of(bad ? bad->wr_id : list->wr_id));
}

void ko_rdma_post_listed(struct ko_rdma_wire *wire)
{
    struct ko_rdma_list *list = &wire->list;

    list->requests[list->n - 1].next = NULL;
    list->n = 0;
    post_all(wire, &wire->rails[0], list->requests);
}

static void enlist(struct ko_rdma_wire *wire, const struct ko_ib_send *send)
{
    struct ko_rdma_list *list = &wire->list;
    struct ko_ib_send *own = &list->requests[list->n];

    *own = *send;
    own->sg_list = list->pieces[list->n];
    own->next = own + 1;
    memcpy(own->sg_list, send->sg_list, (size_t)send->num_sge * sizeof *send->sg_list);
    if (++list->n == KO_RDMA_LIST)
        ko_rdma_post_listed(wire);
}

unsigned char *ko_rdma_slot(struct ko_rdma_wire *wire)
{
    if (wire->slots.nsends == KO_RDMA_SLOTS)
        return NULL;
    return send_slot(&wire->slots, wire->slots.next);
}

static void send_pieces(struct ko_rdma_wire *wire, uint64_t id, struct ko_ib_sge *pieces, int n)
{
    const bool is_idle = !ko_rdma_is_flying(wire);
    struct ko_rdma_slots *slots = &wire->slots;
    struct ko_ib_send send; /* to clear the rest, of other requests, would take longer than this */

    send.wr_id = id;
    send.next = NULL;
    send.sg_list = pieces;
    send.num_sge = n;
    send.opcode = KO_IB_SEND;
    send.send_flags = KO_IB_SIGNALED;
    if (n == 1 && pieces->length <= slots->inline_bytes)
        send.send_flags |= KO_IB_INLINE;
    slots->next = slots->next + 1 < KO_RDMA_SLOTS ? slots->next + 1 : 0;
    slots->nsends++;
    if (is_idle)
        post_all(wire, &wire->rails[0], &send);
    else
        enlist(wire, &send);
}

static struct ko_ib_sge next_slot(const struct ko_rdma_slots *slots, size_t nbytes)
{
    return (struct ko_ib_sge){(uintptr_t)send_slot(slots, slots->next), (uint32_t)nbytes,
                              slots->mr->lkey};
}

void ko_rdma_send_slot(struct ko_rdma_wire *wire, size_t nbytes)
{
    struct ko_ib_sge piece = next_slot(&wire->slots, nbytes);

    send_pieces(wire, work_of(&wire->rails[0], KO_RDMA_SENT, wire->slots.next), &piece, 1);
}

/* The slot has room for what the part lacks to a whole number of words: any bytes will do. */
void ko_rdma_send_gathered(struct ko_rdma_wire *wire, size_t nbytes, const struct ko_ib_sge *part,
                           int flying)
{
    const uint64_t id = flying < 0 ? work_of(&wire->rails[0], KO_RDMA_SENT, wire->slots.next)
                                   : work_of(&wire->rails[0], KO_RDMA_GATHERED, (unsigned)flying);
    struct ko_ib_sge pieces[KO_RDMA_PIECES] = {next_slot(&wire->slots, nbytes), *part,
                                               next_slot(&wire->slots, -part->length % 8)};

    send_pieces(wire, id, pieces, pieces[2].length ? 3 : 2);
}

static void post_receives(struct ko_rdma_wire *wire, const struct ko_rdma_rail *rail,
                          struct ko_ib_recv *list)
{
    struct ko_ib_recv *bad = NULL;
    int error = wire->status ? 0 : rail->qp->context->ops.post_recv(rail->qp, list, &bad);

    error = refusal(error, bad);
    if (error)
        ko_rdma_call_failed(wire, rail, error, "posting a receive for what comes");
}

void ko_rdma_post_slots(struct ko_rdma_wire *wire, const uint8_t *slots, int n)
{
    struct ko_ib_sge pieces[KO_RDMA_REPOST];
    struct ko_ib_recv list[KO_RDMA_REPOST];

    for (int i = 0; i < n; i++) {
        pieces[i] = (struct ko_ib_sge){(uintptr_t)receive_slot(&wire->slots, slots[i]),
                                       KO_RDMA_SLOT, wire->slots.mr->lkey};
        list[i] = (struct ko_ib_recv){.wr_id = work_of(&wire->rails[0], KO_RDMA_GOT, slots[i]),
                                      .next = i + 1 < n ? &list[i + 1] : NULL,
                                      .sg_list = &pieces[i],
                                      .num_sge = 1};
    }
    post_receives(wire, &wire->rails[0], list);
}

void ko_rdma_post_ears(struct ko_rdma_wire *wire, struct ko_rdma_rail *rail, int n)
{
    struct ko_ib_recv list[KO_RDMA_REPOST];

    for (int i = 0; i < n; i++)
        list[i] = (struct ko_ib_recv){.wr_id = work_of(rail, KO_RDMA_GOT, 0),
                                      .next = i + 1 < n ? &list[i + 1] : NULL};
    post_receives(wire, rail, list);
}

/* Posts a stripe's write. Where it cannot say itself that it is done something behind it does: the
 * first rail's is told in a slot. */
static void write_stripe(struct ko_rdma_wire *wire, struct ko_rdma_rail *rail,
                         struct ko_ib_send *send)
{
    struct ko_ib_send tell = {.wr_id = work_of(rail, KO_RDMA_TOLD, 0),
                              .opcode = KO_IB_SEND,
                              .send_flags = KO_IB_SIGNALED};

    if (rail == &wire->rails[0]) {
        enlist(wire, send);
        return;
    }
    send->next = rail->has_imm ? NULL : &tell;
    post_all(wire, rail, send);
}

int ko_rdma_write(struct ko_rdma_wire *wire, const struct ko_rdma_line *line,
                  const struct ko_rdma_region *region, unsigned flying)
{
    const struct ko_post *message = wire->out.first;
    const size_t all = message->frame.nbytes, stripe = ko_rdma_stripe(all, wire->nrails);
    int i = 0;

    for (size_t at = 0; at < all && !wire->status; at += stripe, i++) {
        struct ko_rdma_rail *rail = &wire->rails[i];
        struct ko_ib_sge piece = {(uintptr_t)message->body + at,
                                  (uint32_t)(stripe < all - at ? stripe : all - at),
                                  region->mrs[rail->adapter - wire->device->adapters]->lkey};
        struct ko_ib_send send = {.wr_id = work_of(rail, KO_RDMA_WROTE, flying),
                                  .sg_list = &piece,
                                  .num_sge = 1,
                                  .opcode = rail->has_imm ? KO_IB_WRITE_IMM : KO_IB_WRITE,
                                  .send_flags = KO_IB_SIGNALED,
                                  .imm_data = htonl(IMM_DONE),
                                  .remote_addr = line->at + at,
                                  .rkey = line->keys[i]};

        write_stripe(wire, rail, &send);
    }
    return i;
}

/* Where the write cannot say itself that it has come, CLEAR is put behind it. */
void ko_rdma_write_line(struct ko_rdma_wire *wire, const struct ko_rdma_line *line)
{
    const unsigned index = line->number % KO_RDMA_LINES;
    const bool is_idle = !ko_rdma_is_flying(wire), has_imm = wire->rails[0].has_imm;
    struct ko_ib_sge piece = {(uintptr_t)&wire->lines.go[index], sizeof *line,
                              wire->slots.mr->lkey};
    struct ko_ib_send send = {.wr_id = work_of(&wire->rails[0], KO_RDMA_LINED, 0),
                              .sg_list = &piece,
                              .num_sge = 1,
                              .opcode = has_imm ? KO_IB_WRITE_IMM : KO_IB_WRITE,
                              .send_flags = KO_IB_SIGNALED,
                              .imm_data = htonl(IMM_LINE | index << 8),
                              .remote_addr = wire->theirs.lines_at + index * sizeof *line,
                              .rkey = wire->theirs.lines_key};

    if (sizeof *line <= wire->slots.inline_bytes)
        send.send_flags |= KO_IB_INLINE;
    wire->lines.go[index] = *line;
    wire->lines.nwrites++;
    if (is_idle && has_imm)
        post_all(wire, &wire->rails[0], &send);
    else
        enlist(wire, &send);
}

/* Writes nothing, to nowhere, in the way in which messages will be written: what the adapter cannot
 * do it refuses at once (iWARP has no immediates). */
static void probe(struct ko_rdma_wire *wire, struct ko_rdma_rail *rail)
{
    struct ko_ib_send *bad, send = {.wr_id = work_of(rail, KO_RDMA_PROBED, 0),
                                    .opcode = KO_IB_WRITE_IMM,
                                    .send_flags = KO_IB_SIGNALED,
                                    .imm_data = htonl(IMM_PROBE)};

    rail->has_imm = !post(rail, &send, &bad);
    if (rail->has_imm)
        return;
    send.opcode = KO_IB_WRITE;
    post_all(wire, rail, &send);
}

void ko_rdma_probe(struct ko_rdma_wire *wire)
{
    for (int i = 0; i < wire->nrails && !wire->status; i++)
        probe(wire, &wire->rails[i]);
}

/* ---- completions ------------------------------------------------------------------------- */

/* What a write has told, or what is told behind one by a rail that has no slots. */
static void hear_write(struct ko_rdma_rail *rail, const struct ko_ib_wc *wc)
{
    const uint32_t imm = wc->opcode == KO_IB_WC_RECV ? IMM_DONE : ntohl(wc->imm_data);

    if (imm == IMM_DONE)
        ko_rdma_hear_done(rail->wire, number_of_rail(rail));
    else if ((imm & 0xff) == IMM_LINE && rail == &rail->wire->rails[0])
        ko_rdma_hear_line(rail->wire, (int)(imm >> 8));
    else if (imm != IMM_PROBE)
        ko_rdma_refuse(rail->wire, "an immediate of no known kind came");
}

static void got(struct ko_rdma_rail *rail, const struct ko_ib_wc *wc)
{
    const bool is_first = rail == &rail->wire->rails[0];
    const uint8_t slot = (uint8_t)number_of(wc);

    if (is_first && wc->opcode == KO_IB_WC_RECV) {
        ko_rdma_hear_slot(rail->wire, slot, wc->byte_len);
        return;
    }
    if (is_first)
        ko_rdma_post_slots(rail->wire, &slot, 1);
    else
        ko_rdma_post_ears(rail->wire, rail, 1);
    hear_write(rail, wc);
}

void ko_rdma_complete(struct ko_rdma_rail *rail, const struct ko_ib_wc *wc)
{
    struct ko_rdma_wire *wire = rail->wire;

    if (wc->status) {
        work_failed(rail, wc);
        return;
    }
    switch ((enum ko_rdma_work)(wc->wr_id >> 56)) {
    case KO_RDMA_GOT:
        got(rail, wc);
        return;
    case KO_RDMA_SENT:
        wire->slots.nsends--;
        return;
    case KO_RDMA_WROTE:
        ko_rdma_write_ended(wire, number_of(wc));
        return;
    case KO_RDMA_PROBED:
        if (++wire->nprobed == wire->nrails)
            wire->stage = KO_RDMA_OPEN;
        return;
    case KO_RDMA_TOLD:
        return;
    case KO_RDMA_LINED:
        wire->lines.nwrites--;
        return;
    case KO_RDMA_GATHERED:
        wire->slots.nsends--;
        ko_rdma_write_ended(wire, number_of(wc));
        return;
    }
}
