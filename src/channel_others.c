/* SPDX-License-Identifier: MIT
 *
 * Whom a rank has waited for in vain may be waiting itself. What a time-out says of that, as far as
 * the ranks have left word (group_waits.h).
 */
#include "channel_parts.h"

#include "group.h"
#include "rank_list.h"

#include <stdio.h>
#include <stdlib.h>

#define MAYBE "which may be stopped, be busy, or have only just come"

static bool is_message(const struct ko_waits_word *word)
{
    return word->what == KO_WAITS_FOR_MESSAGE || word->what == KO_WAITS_TO_SEND;
}

/* "for a message from rank 2" */
static const char *describe_message(const struct ko_waits_word *word, char text[64])
{
    if (word->peer < 0)
        snprintf(text, 64, "for a message from any rank");
    else
        snprintf(text, 64, "%s rank %d",
                 word->what == KO_WAITS_TO_SEND ? "to send a message to" : "for a message from",
                 (int)word->peer);
    return text;
}

/* ---- in a collective --------------------------------------------------------------------- */

/* Sets the flags of the ranks that do not wait in the call, and counts them. */
static int list_idle(const struct ko_channel *channel, const struct ko_waits_word *words,
                     bool *is_idle)
{
    int n = 0;

    for (int r = 0; r < channel->group->size; r++) {
        is_idle[r] = r != channel->group->rank &&
                     (words[r].what != KO_WAITS_IN_CALL || words[r].call != channel->seq);
        n += is_idle[r];
    }
    return n;
}

static int first_in_message(const struct ko_channel *channel, const struct ko_waits_word *words)
{
    for (int r = 0; r < channel->group->size; r++)
        if (r != channel->group->rank && is_message(&words[r]))
            return r;
    return -1;
}

static void describe_call(const struct ko_channel *channel, int peer,
                          const struct ko_waits_word *words, bool *is_idle, char *text,
                          size_t nbytes)
{
    const int nidle = list_idle(channel, words, is_idle);
    const int other = first_in_message(channel, words);
    char list[96], message[64];
    int used = 0;

    ko_rank_list(is_idle, channel->group->size, list, sizeof list);
    if (!nidle)
        used = snprintf(text, nbytes, "; rank %d waits too, as do all", peer);
    else if (!is_idle[peer])
        used = snprintf(text, nbytes, "; rank %d waits too, as do all but rank %s, " MAYBE, peer,
                        list);
    if (other >= 0 && used >= 0 && (size_t)used < nbytes)
        snprintf(text + used, nbytes - (size_t)used, "; rank %d waits %s", other,
                 describe_message(&words[other], message));
}

/* ---- for a message ----------------------------------------------------------------------- */

/* The last of the ranks that wait for each other's messages one after another, from r on: it waits
 * for something else, or for this rank. */
static int end_of_chain(const struct ko_channel *channel, const struct ko_waits_word *words, int r)
{
    for (int i = 0; i < channel->group->size; i++) {
        if (!is_message(&words[r]) || words[r].peer < 0 || words[r].peer == channel->group->rank)
            return r;
        r = words[r].peer;
    }
    return r;
}

static void describe_end(const struct ko_channel *channel, const struct ko_waits_word *word,
                         char *text, size_t nbytes)
{
    if (word->what == KO_WAITS_NOT)
        snprintf(text, nbytes, ", " MAYBE);
    else if (word->what == KO_WAITS_IN_CALL)
        snprintf(text, nbytes, ", which waits in the group's collective #%llu",
                 (unsigned long long)word->call);
    else if (word->peer < 0)
        snprintf(text, nbytes, ", which waits for any rank");
    else
        snprintf(text, nbytes,
                 word->peer == channel->group->rank ? ", which waits for rank %d" : "",
                 (int)word->peer);
}

static void describe_chain(const struct ko_channel *channel, int peer,
                           const struct ko_waits_word *words, char *text, size_t nbytes)
{
    const struct ko_waits_word *word = &words[peer];
    const int end = end_of_chain(channel, words, peer);
    char message[64], onward[32] = "", last[96] = "";

    if (word->what == KO_WAITS_IN_CALL)
        snprintf(text, nbytes, "; rank %d waits in the group's collective #%llu", peer,
                 (unsigned long long)word->call);
    if (!is_message(word))
        return;
    if (end != peer && end != word->peer)
        snprintf(onward, sizeof onward, ", and so on to rank %d", end);
    if (end != peer)
        describe_end(channel, &words[end], last, sizeof last);
    snprintf(text, nbytes, "; rank %d waits %s%s%s", peer, describe_message(word, message), onward,
             last);
}

void ko_channel_describe_others(struct ko_channel *channel, int peer, char *text, size_t nbytes)
{
    const size_t n = (size_t)channel->group->size;
    struct ko_waits_word *words = calloc(n, sizeof *words);
    bool *is_idle = calloc(n, sizeof *is_idle);

    text[0] = 0;
    if (peer >= 0 && words && is_idle && ko_waits_read(channel->group, words)) {
        if (channel->is_in_call)
            describe_call(channel, peer, words, is_idle, text, nbytes);
        else
            describe_chain(channel, peer, words, text, nbytes);
    }
    free(words);
    free(is_idle);
}
