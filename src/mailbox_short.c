/* SPDX-License-Identifier: MIT
 *
 * What most messages of one slice need: the link takes it at once, or it has come whole, or does
 * within tenths of a microsecond. These have no letter, and ask for no time; what is on this way is
 * measured in instructions. Sends that wait for a receipt go the long way. Over messages this is
 * for who waits: those of one who goes on are held, to travel together.
 */
#include "copy.h"
#include "mailbox_parts.h"
#include "window_slots.h"

/* Whether messages with this peer may pass at once. With the lock. What it has refused a letter
 * says. */
static inline bool is_open(const struct ko_mailbox *mailbox, const struct ko_correspondence *with,
                           const struct ko_link *link)
{
    return link && link->wire && !with->refused.seq &&
           atomic_load_explicit(&mailbox->held, memory_order_relaxed) < 0 &&
           !atomic_load_explicit(&mailbox->group->failed, memory_order_relaxed);
}

/* Where another rank may need this processor, one look. */
static inline int looks_of(const struct ko_mailbox *mailbox, int looks)
{
    return mailbox->channel.is_crowded ? 1 : looks;
}

/* Looks for room, in the next slot or in a longer place, and copies there what is one slice; what
 * the peer would take from where it lies is not for this way. What has been committed is out, even
 * if its bell is not. */
static __attribute__((noinline)) bool put(struct ko_correspondence *with, struct ko_link *link,
                                          const struct ko_stamp *stamp, const void *from, int looks)
{
    const size_t nbytes = stamp->count;
    const uint64_t sent = link->sent;

    if (nbytes > link->slice_bytes || ko_window_may_refer(link, from, nbytes))
        return false;
    link->flow = ko_correspondence_is_awaited(with, link) ? KO_AWAITED : KO_STREAM;
    while (ko_window_copy(link, stamp, from, nbytes) == KO_AGAIN && --looks > 0)
        ko_pause();
    if (link->sent == sent)
        return false;
    with->had_come = link->received;
    return true;
}

static inline bool send(struct ko_correspondence *with, struct ko_link *link,
                        const struct ko_stamp *stamp, const void *from, int looks)
{
    const size_t nbytes = stamp->count;

    if (!link->inbox)
        return looks > KO_LOOKS_OF_A_PASSER && ko_message_give(link, stamp, from);
    if (!ko_window_posts_inline(link, from, nbytes) || !ko_window_sees_slot(link))
        return put(with, link, stamp, from, looks);
    if (ko_window_give(link, stamp, from, nbytes)) /* a broken wire shows at the next wait */
        (void)ko_window_ring_receiver(link);
    return true;
}

/* Of a message that a socket has taken only a part of the rest is a letter's, flushing: its sender
 * waits for that as for any. */
static __attribute__((noinline)) int await_rest(struct ko_mailbox *mailbox, int to,
                                                const struct ko_stamp *stamp, const void *from)
{
    struct ko_letter letter = {.group = mailbox->group,
                               .peer = to,
                               .tag = (int)stamp->root,
                               .dtype = (kolo_dtype)stamp->dtype,
                               .is_send = true,
                               .buffer = (unsigned char *)(uintptr_t)from,
                               .nbytes = stamp->count};
    int err;

    ko_work_init(&letter.work);
    ko_correspondence_enter_given(&mailbox->with[to], &letter, mailbox->channel.ports[to].link);
    mailbox->nopen++;
    ko_mailbox_await_locked(mailbox, &letter, NULL, NULL);
    err = ko_work_result(&letter.work);
    ko_work_clear(&letter.work);
    return err;
}

// NOLINTNEXTLINE(readability-function-size): in registers, which a struct is not
int ko_mailbox_send(kolo_group *group, int to, uint64_t call, const void *from, size_t nbytes,
                    int looks)
{
    struct ko_mailbox *mailbox = ko_mailbox_existing(group);
    struct ko_correspondence *with;
    struct ko_link *link;
    int err = KO_AGAIN;

    if (!mailbox)
        return err;
    ko_biased_lock_take(&mailbox->lock);
    link = mailbox->channel.ports[to].link;
    with = &mailbox->with[to];
    if (is_open(mailbox, with, link) && !with->is_refusing && !with->sending.first &&
        mailbox->desk.eager_bytes) {
        const struct ko_stamp stamp = {with->sent + 1, nbytes, {.call = call}};

        if (send(with, link, &stamp, from, looks_of(mailbox, looks))) {
            err = KOLO_OK;
            with->sent++;
            mailbox->visits++;
            if (link->posts && link->flushed < link->sent)
                err = await_rest(mailbox, to, &stamp, from);
        }
    }
    ko_biased_lock_give(&mailbox->lock);
    return err;
}

/* Whether the next message from there is the next receive's. */
static inline bool is_next(const struct ko_correspondence *with)
{
    return !with->is_arriving && !with->awaited.first && !with->parcels &&
           !with->desk->anyone.first;
}

static inline bool receive(struct ko_link *link, struct ko_message *message, void *to, int looks)
{
    if (!link->inbox)
        return looks > KO_LOOKS_OF_A_PASSER && ko_message_take(link, message, to, looks);
    return ko_window_take(link, message, to, looks);
}

bool ko_mailbox_receive(kolo_group *group, int from, struct ko_message *message, void *to,
                        int looks)
{
    struct ko_mailbox *mailbox = ko_mailbox_existing(group);
    struct ko_correspondence *with;
    struct ko_link *link;
    bool is_done = false;

    if (!mailbox)
        return false;
    ko_biased_lock_take(&mailbox->lock);
    link = mailbox->channel.ports[from].link;
    with = &mailbox->with[from];
    if (is_open(mailbox, with, link) && is_next(with)) {
        message->seq = with->received + 1;
        is_done = receive(link, message, to, looks_of(mailbox, looks));
        with->received += is_done;
        mailbox->visits += is_done;
    }
    ko_biased_lock_give(&mailbox->lock);
    return is_done;
}
