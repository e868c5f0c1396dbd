/* SPDX-License-Identifier: MIT
 *
 * What most short messages between windows need: the link copies it at once, or it has come whole,
 * or does within tenths of a microsecond. These have no letter, and ask for no time; what is on
 * this way is measured in instructions.
 */
#include "dtype.h"
#include "mailbox_parts.h"
#include "reference.h"

static bool send_short(struct ko_correspondence *with, struct ko_link *link, const kolo_p2p *op,
                       size_t nbytes)
{
    const struct ko_stamp stamp = {
        .seq = with->sent + 1, .count = nbytes, .call = ko_message_call(op->tag, op->dtype)};

    if (nbytes >= KO_REFERENCE_LEAST || nbytes > link->slice_bytes)
        return false; /* shorter ones are copied, whatever their memory */
    if (with->sending.first || link->ops->post(link, &stamp, op->buffer, nbytes))
        return false;
    with->sent++;
    return true;
}

static bool receive_short(struct ko_correspondence *with, struct ko_link *link, const kolo_p2p *op,
                          size_t nbytes, int looks)
{
    struct ko_message message = {with->received + 1, ko_message_call(op->tag, op->dtype), nbytes,
                                 0};

    if (with->is_arriving || with->awaited.first || with->parcels || with->desk->anyone.first ||
        !ko_window_take(link, &message, op->buffer, looks))
        return false;
    with->received++;
    if (op->message)
        *op->message = (kolo_message){with->peer, op->tag, op->dtype,
                                      message.nbytes >> ko_dtype_shift(op->dtype)};
    return true;
}

/* Looks at the link to this peer, and at nothing else. With the lock. */
static bool pass(struct ko_mailbox *mailbox, const kolo_p2p *op, size_t nbytes, int looks)
{
    struct ko_correspondence *with = &mailbox->with[op->peer];
    struct ko_link *link = mailbox->channel.ports[op->peer].link;

    if (!link || !link->inbox || atomic_load_explicit(&mailbox->held, memory_order_relaxed) >= 0 ||
        atomic_load_explicit(&mailbox->group->failed, memory_order_relaxed))
        return false;
    if (op->is_send)
        return send_short(with, link, op, nbytes);
    return receive_short(with, link, op, nbytes, mailbox->channel.is_crowded ? 1 : looks);
}

bool ko_mailbox_pass(kolo_group *group, const kolo_p2p *op, size_t nbytes, int looks)
{
    struct ko_mailbox *mailbox = ko_mailbox_existing(group);
    bool is_done;

    if (!mailbox || op->peer < 0)
        return false;
    ko_biased_lock_take(&mailbox->lock);
    is_done = pass(mailbox, op, nbytes, looks);
    mailbox->visits += is_done;
    ko_biased_lock_give(&mailbox->lock);
    return is_done;
}
