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
#include <string.h>

#define MAYBE "which may be stopped, be busy, or have only just come"

static bool is_message(const struct ko_waits_word *word)
{
    return word->what == KO_WAITS_FOR_MESSAGE || word->what == KO_WAITS_TO_SEND;
}

void ko_channel_describe_tag(int tag, char text[KO_TAG_TEXT])
{
    snprintf(text, KO_TAG_TEXT, tag < 0 ? "" : " of tag %d", tag);
}

enum { MESSAGE_TEXT = 80 };

/* "for a message of tag 1 from rank 2" */
static const char *describe_message(const struct ko_waits_word *word, char text[MESSAGE_TEXT])
{
    const bool is_send = word->what == KO_WAITS_TO_SEND;
    char tag[KO_TAG_TEXT], peer[24] = "any rank";

    ko_channel_describe_tag((int)(uint32_t)word->call, tag);
    if (word->peer >= 0)
        snprintf(peer, sizeof peer, "rank %d", (int)word->peer);
    snprintf(text, MESSAGE_TEXT, "%s%s %s %s", is_send ? "to send a message" : "for a message", tag,
             is_send ? "to" : "from", peer);
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
    char list[96], message[MESSAGE_TEXT];
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
    char message[MESSAGE_TEXT], onward[32] = "", last[96] = "";

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

/* ---- for any message --------------------------------------------------------------------- */

/* Whether a rank is one of those that are listed. */
struct kind {
    const char *name;
    bool (*is_of)(const struct ko_channel *channel, const struct ko_waits_word *words, int r);
};

static bool has_vanished(const struct ko_channel *channel, const struct ko_waits_word *words, int r)
{
    (void)words;
    return channel->ports[r].has_vanished;
}

static bool has_freed(const struct ko_channel *channel, const struct ko_waits_word *words, int r)
{
    (void)words;
    return channel->ports[r].has_left && !channel->ports[r].has_vanished;
}

/* What it has said of itself no longer holds when it has gone. */
static bool waits(const struct ko_channel *channel, const struct ko_waits_word *words, int r)
{
    return r != channel->group->rank && !channel->ports[r].has_left && words &&
           words[r].what != KO_WAITS_NOT;
}

static bool is_in_call(const struct ko_channel *channel, const struct ko_waits_word *words, int r)
{
    return waits(channel, words, r) && words[r].what == KO_WAITS_IN_CALL;
}

static bool receives(const struct ko_channel *channel, const struct ko_waits_word *words, int r)
{
    return waits(channel, words, r) && words[r].what == KO_WAITS_FOR_MESSAGE;
}

static bool sends(const struct ko_channel *channel, const struct ko_waits_word *words, int r)
{
    return waits(channel, words, r) && words[r].what == KO_WAITS_TO_SEND;
}

static void add_kind(const struct ko_channel *channel, const struct ko_waits_word *words,
                     const struct kind *kind, char *text, size_t nbytes)
{
    const size_t used = strlen(text), n = (size_t)channel->group->size;
    bool *is_listed = calloc(n, sizeof *is_listed);
    char list[96];
    int count = 0;

    for (size_t r = 0; is_listed && r < n; r++) {
        is_listed[r] = kind->is_of(channel, words, (int)r);
        count += is_listed[r];
    }
    if (count) {
        ko_rank_list(is_listed, (int)n, list, sizeof list);
        snprintf(text + used, nbytes - used, "; %s: rank %s", kind->name, list);
    }
    free(is_listed);
}

void ko_channel_describe_gone(const struct ko_channel *channel, char *text, size_t nbytes)
{
    static const struct kind vanished = {"ended, or freed the group, before they had connected",
                                         has_vanished};
    static const struct kind freed = {"have freed the group", has_freed};

    text[0] = 0;
    add_kind(channel, NULL, &vanished, text, nbytes);
    add_kind(channel, NULL, &freed, text, nbytes);
}

/* Its process, which has not said bye. */
static bool has_ended(const struct ko_channel *channel, const struct ko_waits_word *words, int r)
{
    const struct ko_port *port = &channel->ports[r];

    (void)words;
    return (!port->has_left || port->has_vanished) &&
           ko_endpoint_is_gone(channel->group->endpoint, channel->group->world_ranks[r]);
}

void ko_channel_describe_ended(const struct ko_channel *channel, char *text, size_t nbytes)
{
    static const struct kind ended = {"processes that have ended", has_ended};

    text[0] = 0;
    add_kind(channel, NULL, &ended, text, nbytes);
}

/* The only rank that waits; -1: none does, or several do. */
static int only_waiter(const struct ko_channel *channel, const struct ko_waits_word *words)
{
    int only = -1;

    for (int r = 0; r < channel->group->size; r++) {
        if (!waits(channel, words, r))
            continue;
        if (only >= 0)
            return -1;
        only = r;
    }
    return only;
}

static void describe_waiter(int r, const struct ko_waits_word *words, char *text, size_t nbytes)
{
    char message[MESSAGE_TEXT];

    if (words[r].what == KO_WAITS_IN_CALL)
        snprintf(text, nbytes, "; rank %d waits in the group's collective #%llu", r,
                 (unsigned long long)words[r].call);
    else
        snprintf(text, nbytes, "; rank %d waits %s", r, describe_message(&words[r], message));
}

static void describe_waiters(const struct ko_channel *channel, const struct ko_waits_word *words,
                             char *text, size_t nbytes)
{
    static const struct kind kinds[] = {{"wait in a collective", is_in_call},
                                        {"wait for a message", receives},
                                        {"wait to send a message", sends}};
    const int only = only_waiter(channel, words);
    const size_t used = strlen(text);

    if (only >= 0) {
        describe_waiter(only, words, text + used, nbytes - used);
        return;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        add_kind(channel, words, &kinds[i], text, nbytes);
}

/* ---- all of it --------------------------------------------------------------------------- */

void ko_channel_describe_others(struct ko_channel *channel, int peer, char *text, size_t nbytes)
{
    const size_t n = (size_t)channel->group->size;
    struct ko_waits_word *words = calloc(n, sizeof *words);
    bool *is_idle = calloc(n, sizeof *is_idle);

    text[0] = 0;
    if (peer < 0)
        ko_channel_describe_gone(channel, text, nbytes);
    if (words && is_idle && ko_waits_read(channel->group, words)) {
        if (peer < 0)
            describe_waiters(channel, words, text, nbytes);
        else if (channel->is_in_call)
            describe_call(channel, peer, words, is_idle, text, nbytes);
        else
            describe_chain(channel, peer, words, text, nbytes);
    }
    free(words);
    free(is_idle);
}
