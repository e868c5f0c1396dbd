/* SPDX-License-Identifier: MIT
 *
 * What is said of a letter that has waited in vain. Mostly the other side has made a mistake with a
 * tag or a rank: so messages that have come, and that nobody asks for, are told of.
 */
#include "mailbox_parts.h"

#include <stdio.h>
#include <string.h>

/* Behind "to send a message of tag 3", before "to rank 1". */
static const char *why_not_sent(const struct ko_mailbox *mailbox, const struct ko_letter *letter)
{
    if (!letter->is_aside)
        return "";
    return letter->nbytes > mailbox->desk.eager_bytes
               ? ", longer than KOLO_EAGER_BYTES and not yet received,"
               : ", for which its KOLO_UNEXPECTED_BYTES had no room and which is not yet received,";
}

static size_t count_works(const struct ko_works *works)
{
    size_t n = 0;

    for (size_t i = 0; i < works->n; i++)
        n += works->list[i] != NULL;
    return n;
}

static void describe_letter(struct ko_letter_wait *waiting)
{
    const struct ko_letter *letter = waiting->letter;
    char tag[KO_TAG_TEXT], others[64] = "";

    ko_channel_describe_tag(letter->tag, tag);
    if (waiting->others)
        snprintf(others, sizeof others, "for any of %zu works, one of them ",
                 count_works(waiting->others));
    if (letter->is_send)
        snprintf(waiting->what, sizeof waiting->what, "%sto send a message%s%s to", others, tag,
                 why_not_sent(waiting->mailbox, letter));
    else
        snprintf(waiting->what, sizeof waiting->what, "%sfor a message%s from", others, tag);
    waiting->wait.what = waiting->what;
}

/* False if nobody has missed a message of this tag, or any, of the peer's. */
static bool describe_unasked(const struct ko_mailbox *mailbox, int peer, int tag, char *text,
                             size_t nbytes)
{
    kolo_message first;
    const size_t n = ko_correspondence_count_unasked(&mailbox->with[peer], tag, &first);
    size_t length;

    if (!n)
        return false;
    length = first.count * kolo_dtype_size(first.dtype);
    if (n == 1)
        snprintf(text, nbytes, "; rank %d has sent one of tag %d, %zu bytes, that is not asked for",
                 peer, first.tag, length);
    else
        snprintf(text, nbytes,
                 "; rank %d has sent %zu that are not asked for, the first of tag %d, %zu bytes",
                 peer, n, first.tag, length);
    return true;
}

/* What the rank itself has sent is of most interest; else what another has sent in its stead. */
static void describe_receive(const struct ko_mailbox *mailbox, const struct ko_letter *receive,
                             char *text, size_t nbytes)
{
    const int peer = receive->peer;
    bool is_told = peer >= 0 && describe_unasked(mailbox, peer, KOLO_ANY_TAG, text, nbytes);

    for (int i = 0; i < mailbox->group->size && !is_told; i++)
        is_told = i != peer && describe_unasked(mailbox, i, peer < 0 ? KOLO_ANY_TAG : receive->tag,
                                                text, nbytes);
}

void ko_mailbox_describe_wait(struct ko_wait *wait, char *text, size_t nbytes)
{
    struct ko_letter_wait *waiting = (struct ko_letter_wait *)wait;

    text[0] = 0;
    describe_letter(waiting);
    if (!waiting->letter->is_send)
        describe_receive(waiting->mailbox, waiting->letter, text, nbytes);
}

int ko_mailbox_fail_alone(struct ko_mailbox *mailbox, const struct ko_letter *receive)
{
    char tag[KO_TAG_TEXT], gone[256], unasked[160] = "", text[KO_ERROR_TEXT];

    ko_channel_describe_tag(receive->tag, tag);
    ko_channel_describe_gone(&mailbox->channel, gone, sizeof gone);
    describe_receive(mailbox, receive, unasked, sizeof unasked);
    snprintf(
        text, sizeof text,
        "all other ranks have freed their groups or ended, while rank %d waits for a message%s "
        "from any%s%s",
        mailbox->group->rank, tag, gone, unasked);
    return ko_group_fail_lost(mailbox->group, text);
}
