/* SPDX-License-Identifier: MIT
 *
 * rdma_calls.h: the last part of rdma.h: what its files do with a wire.
 */
#ifndef KO_RDMA_CALLS_H
#define KO_RDMA_CALLS_H

/* ---- rdma.c ------------------------------------------------------------------------------ */

/* What every call ends with: the bits that the wire wants to be waited for. */
void ko_rdma_want(struct ko_rdma_wire *wire);
/* Keeps the poller's idea of the connection over tcp. */
int ko_rdma_poll_tcp(struct ko_rdma_wire *wire);

/* ---- rdma_plain.c ------------------------------------------------------------------------ */

/* The wire will have no queue pairs: closes what there is of them, and writes a card that says so.
 */
void ko_rdma_go_plain(struct ko_rdma_wire *wire);
/* Both ends know it, and the connection over tcp is open: from now on the wire's transport is
 * another row, by which everything goes over that connection. */
int ko_rdma_plain_open(struct ko_rdma_wire *wire);

/* ---- rdma_queue.c ------------------------------------------------------------------------ */

/* Makes the queue pairs, with all receives posted, and our card; for an answer the other end's card
 * has come. Where the adapters have no room for them the wire goes plain, if it may, which is
 * warned of once. Safe to close after a failure. */
int ko_rdma_queue_open(struct ko_rdma_wire *wire);
void ko_rdma_queue_close(struct ko_rdma_wire *wire);
/* Keeps the first failure, with this thread's text, and stops the queue pairs, so that the adapters
 * leave everybody's memory alone. */
void ko_rdma_fail(struct ko_rdma_wire *wire, int status);

/* ---- rdma_card.c ------------------------------------------------------------------------- */

/* Takes the card that is in a hello, if it is one that can be joined to this end's. */
int ko_rdma_card_take(struct ko_rdma_wire *wire, const struct ko_hello *hello);
/* Gives each rail its adapter: of a wire that begins here in turns, of an answer the one that is
 * nearest to the other end's by their addresses. */
void ko_rdma_card_match(struct ko_rdma_wire *wire);
int ko_rdma_card_write(struct ko_rdma_wire *wire);
/* Joins our queue pairs to theirs, unless librdmacm has to. */
int ko_rdma_card_join(struct ko_rdma_wire *wire);
/* "mlx5_0 port 1, GID 3 = ::ffff:10.0.0.2 (RoCE v2)" */
enum { KO_RDMA_END_TEXT = 128 };
void ko_rdma_card_text(const struct ko_rdma_end *end, char text[KO_RDMA_END_TEXT]);

/* ---- rdma_work.c ------------------------------------------------------------------------- */

/* What a completion is of: in its wr_id, whose number is a slot's or that of a message that flies.
 */
enum ko_rdma_work {
    KO_RDMA_GOT,
    KO_RDMA_SENT,
    KO_RDMA_WROTE,
    KO_RDMA_PROBED,
    KO_RDMA_TOLD,
    KO_RDMA_LINED,
    KO_RDMA_GATHERED /* a slot, with the last part of a message that flies behind it */
};

/* Where the next slot's contents are to be put together, NULL if all are on their way; and the
 * slot's sending, with nbytes in it: at once if nothing is on its way, else with the list. */
unsigned char *ko_rdma_slot(struct ko_rdma_wire *wire);
void ko_rdma_send_slot(struct ko_rdma_wire *wire, size_t nbytes);
/* The same, with a part of the first post's body behind it, which the adapter takes from where it
 * lies. flying: the message's number if it is its last, else -1. */
void ko_rdma_send_gathered(struct ko_rdma_wire *wire, size_t nbytes, const struct ko_ib_sge *part,
                           int flying);
/* Posts the requests that wait for others to be posted with them; nearly always there are none. */
void ko_rdma_post_listed(struct ko_rdma_wire *wire);

static inline void ko_rdma_post_list(struct ko_rdma_wire *wire)
{
    if (wire->list.n)
        ko_rdma_post_listed(wire);
}

/* Posts n receives, at most KO_RDMA_REPOST. */
void ko_rdma_post_slots(struct ko_rdma_wire *wire, const uint8_t *slots, int n);
/* The same of a rail that has no slots. */
void ko_rdma_post_ears(struct ko_rdma_wire *wire, struct ko_rdma_rail *rail, int n);
/* Writes the first post's body to a place, as number `flying`; returns how many stripes it has. */
int ko_rdma_write(struct ko_rdma_wire *wire, const struct ko_rdma_line *line,
                  const struct ko_rdma_region *region, unsigned flying);
/* Writes a line into the peer's, fewer than KO_RDMA_LINES of which are on their way. */
void ko_rdma_write_line(struct ko_rdma_wire *wire, const struct ko_rdma_line *line);
/* A first write by each rail. */
void ko_rdma_probe(struct ko_rdma_wire *wire);

/* A request or a receive of the rail's has ended. */
void ko_rdma_complete(struct ko_rdma_rail *rail, const struct ko_ib_wc *wc);
/* Fails the wire: a call of the library's for the rail has, as "sending", with an errno, or with -1
 * and errno set. */
void ko_rdma_call_failed(struct ko_rdma_wire *wire, const struct ko_rdma_rail *rail, int error,
                         const char *what);
/* Fails the wire if the rail's adapter, or a queue of the rail, has told that it failed: nothing
 * else may be said any more. */
void ko_rdma_look_for_end(struct ko_rdma_wire *wire, const struct ko_rdma_rail *rail);

/* ---- rdma_cm.c --------------------------------------------------------------------------- */

/* Opens what iWARP needs, for a device that listens at host. */
int ko_rdma_cm_open(struct ko_rdma_device *device, const char *host);
/* The end that begins listens, and says in its card where; the other, with that card, goes there.
 */
int ko_rdma_meet_begin(struct ko_rdma_wire *wire);
/* KO_AGAIN, or KOLO_OK once the queue pairs are joined. */
int ko_rdma_meet(struct ko_rdma_wire *wire);
void ko_rdma_meeting_close(struct ko_rdma_wire *wire);

/* ---- rdma_out.c -------------------------------------------------------------------------- */

/* Sends what can be sent, and posts emptied slots. */
void ko_rdma_pump(struct ko_rdma_wire *wire);
/* Queues a post, and sends it unless it may wait. */
void ko_rdma_send(struct ko_rdma_wire *wire, struct ko_post *post);
/* Sends a message that leaves at once; false if none such can now. */
bool ko_rdma_give(struct ko_rdma_wire *wire, const struct ko_frame *frame, const void *body);
/* Says where the peer is to write; false if there is no room now. */
bool ko_rdma_tell_line(struct ko_rdma_wire *wire, const struct ko_rdma_line *line);
/* The peer has said where the first post is to go, in the line awaited, or in line number `index`.
 */
enum { KO_RDMA_AWAITED = -1 };
void ko_rdma_hear_line(struct ko_rdma_wire *wire, int index);
/* A stripe of the message that flies under that number has arrived. */
void ko_rdma_write_ended(struct ko_rdma_wire *wire, unsigned flying);
/* Gives all posts back. */
void ko_rdma_drop_posts(struct ko_rdma_wire *wire);
/* True if something waits to leave, or has left and not arrived; is_flying: the latter alone. */
bool ko_rdma_is_sending(const struct ko_rdma_wire *wire);

static inline bool ko_rdma_is_flying(const struct ko_rdma_wire *wire)
{
    return wire->slots.nsends || wire->lines.nwrites || wire->out.begun != wire->out.ended;
}

/* The first and the last that is sent. */
void ko_rdma_say_ready(struct ko_rdma_wire *wire);
void ko_rdma_say_bye(struct ko_rdma_wire *wire);

/* ---- rdma_in.c --------------------------------------------------------------------------- */

/* Fails the wire: what has come, as in "more credits came", is not what kolo sends. */
void ko_rdma_refuse(struct ko_rdma_wire *wire, const char *what);
/* The peer has so many receives for messages more. */
void ko_rdma_take_credits(struct ko_rdma_wire *wire, unsigned credits);
/* A slot has come with nbytes; that rail has written its stripe. */
void ko_rdma_hear_slot(struct ko_rdma_wire *wire, uint8_t slot, size_t nbytes);
void ko_rdma_hear_done(struct ko_rdma_wire *wire, int rail);
/* Posts the slots that have been emptied. */
void ko_rdma_repost(struct ko_rdma_wire *wire);
/* Takes in what has come, and sends what waited for it; false if nothing has. */
bool ko_rdma_look(struct ko_rdma_wire *wire);
/* KOLO_E_PEER_LOST once nothing can come any more of a peer that has closed its connection over
 * tcp, KO_AGAIN until then. */
int ko_rdma_await_last_words(const struct ko_rdma_wire *wire);
int ko_rdma_next(struct ko_rdma_wire *wire, const struct ko_frame **frame);
int ko_rdma_land(struct ko_rdma_wire *wire, void *to);
/* Lands the record in front if it is all of this message; else leaves it to ko_rdma_next. */
bool ko_rdma_take(struct ko_rdma_wire *wire, struct ko_message *message, void *to);
bool ko_rdma_lands_in(struct ko_rdma_wire *wire, struct ko_held *held);

#endif
