/* SPDX-License-Identifier: MIT
 *
 * What most short messages between windows need: the link copies it at once, or it has come whole,
 * or does within tenths of a microsecond. These have no letter, and ask for no time; what is on
 * this way is measured in instructions.
 */
#include "mailbox_parts.h"
#include "reference.h"

/* Whether messages with this peer may pass at once. With the lock. */
static bool is_open(const struct ko_mailbox *mailbox, const struct ko_link *link)
{
    return link && link->inbox && atomic_load_explicit(&mailbox->held, memory_order_relaxed) < 0 &&
           !atomic_load_explicit(&mailbox->group->failed, memory_order_relaxed);
}

/* Where another rank may need this processor, one look. */
static int looks_of(const struct ko_mailbox *mailbox, int looks)
{
    return mailbox->channel.is_crowded ? 1 : looks;
}

/* Into the next slot, which is looked for so many times. */
static bool post(struct ko_link *link, const struct ko_stamp *stamp, const void *from, int looks)
{
    int err = link->ops->post(link, stamp, from, stamp->count);

    while (err == KO_AGAIN && --looks > 0) {
        ko_pause();
        err = link->ops->post(link, stamp, from, stamp->count);
    }
    return !err;
}

static bool send(struct ko_correspondence *with, struct ko_link *link,
                 const struct ko_message *message, const void *from, int looks)
{
    const size_t nbytes = message->nbytes;
    const struct ko_stamp stamp = {with->sent + 1, nbytes, {.call = message->call}};

    if (nbytes >= KO_REFERENCE_LEAST || nbytes > link->slice_bytes)
        return false; /* shorter ones are copied, whatever their memory */
    if (with->sending.first || !post(link, &stamp, from, looks))
        return false;
    with->sent++;
    return true;
}

bool ko_mailbox_send(kolo_group *group, int to, const struct ko_message *message, const void *from,
                     int looks)
{
    struct ko_mailbox *mailbox = ko_mailbox_existing(group);
    struct ko_link *link;
    bool is_done;

    if (!mailbox)
        return false;
    ko_biased_lock_take(&mailbox->lock);
    link = mailbox->channel.ports[to].link;
    is_done = is_open(mailbox, link) &&
              send(&mailbox->with[to], link, message, from, looks_of(mailbox, looks));
    mailbox->visits += is_done;
    ko_biased_lock_give(&mailbox->lock);
    return is_done;
}

static bool receive(struct ko_correspondence *with, struct ko_link *link,
                    struct ko_message *message, void *to, int looks)
{
    message->seq = with->received + 1;
    if (with->is_arriving || with->awaited.first || with->parcels || with->desk->anyone.first ||
        !ko_window_take(link, message, to, looks))
        return false;
    with->received++;
    return true;
}

bool ko_mailbox_receive(kolo_group *group, int from, struct ko_message *message, void *to,
                        int looks)
{
    struct ko_mailbox *mailbox = ko_mailbox_existing(group);
    struct ko_link *link;
    bool is_done;

    if (!mailbox || from < 0)
        return false;
    ko_biased_lock_take(&mailbox->lock);
    link = mailbox->channel.ports[from].link;
    is_done = is_open(mailbox, link) &&
              receive(&mailbox->with[from], link, message, to, looks_of(mailbox, looks));
    mailbox->visits += is_done;
    ko_biased_lock_give(&mailbox->lock);
    return is_done;
}
