/* SPDX-License-Identifier: MIT
 *
 * A rank claims each member of its list, and itself, in the store: the first to claim a rank leaves
 * its list there, and whoever has another one finds that. Of two lists that share a rank the later
 * one is found, at the latest at that rank. Groups of lists that share none may be made in one
 * call, as a split does. The last of all ranks takes the claims away.
 */
#include "group_lists.h"

#include "store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_TEXT = 150, CLAIM_TEXT = LIST_TEXT + 64, DONE = -1 };

/* "2, 1, 0", or the first of them and how many there are. */
static void print_list(const struct ko_members *members, char text[LIST_TEXT])
{
    const size_t room = LIST_TEXT - 32; /* for what is said of the rest, and one more rank */
    size_t used = 0;
    int i = 0;

    text[0] = 0;
    for (; i < members->n && used < room; i++)
        used += (size_t)snprintf(text + used, LIST_TEXT - used, "%s%d", i ? ", " : "",
                                 members->ranks[i]);
    if (i < members->n)
        snprintf(text + used, LIST_TEXT - used, ", ..., %d in all", members->n);
}

/* What was claimed with another list, of which a group has been made perhaps: its ranks find the
 * failure in the store as soon as they wait there. A stand-in for it writes it. */
static void fail_other(kolo_group *parent, uint64_t id, const char *text)
{
    const size_t nbytes = (size_t)parent->size * sizeof(int);
    int *ranks = ko_alloc(nbytes, "ranks");
    kolo_group *other;

    if (!ranks)
        return;
    memcpy(ranks, parent->world_ranks, nbytes);
    ko_endpoint_retain(parent->endpoint);
    if (ko_group_make(parent->endpoint, id, ranks, parent->rank, parent->size,
                      kolo_group_timeout(parent), &other))
        return;
    (void)ko_group_fail(other, KOLO_E_MISMATCH, text);
    kolo_group_free(other);
}

/* "0123456789abcdef 2 0, 1, 2" stands there: group, rank, list. */
static int compare(kolo_group *parent, const struct ko_members *members, const char *claim)
{
    char ours[LIST_TEXT], text[KO_ERROR_TEXT];
    uint64_t id;
    int rank, used = 0;

    if (sscanf(claim, "%16" SCNx64 " %d %n", &id, &rank, &used) != 2 || !used)
        return ko_group_fail(parent, KOLO_E_PROTOCOL,
                             "the store holds a list of ranks that is none");
    if (id == members->id)
        return KOLO_OK;
    print_list(members, ours);
    snprintf(
        text, sizeof text,
        "kolo_group_new: rank %d lists the ranks %.*s, rank %d lists %s; all members of a group "
        "list the same ones, in the same order",
        rank, LIST_TEXT, claim + used, parent->rank, ours);
    fail_other(parent, id, text);
    return ko_fail(KOLO_E_MISMATCH, "%s", text);
}

/* Of the key under which a rank of the call is claimed, or (DONE) those are counted who have.
 */
static int ask(kolo_group *parent, const struct ko_members *members, int rank,
               struct ko_request *request, struct ko_reply *reply)
{
    const ko_deadline deadline = ko_deadline_in(kolo_group_timeout(parent));
    char key[64];

    snprintf(key, sizeof key, "lists/%016" PRIx64 "/%d", members->call, rank);
    return ko_endpoint_after_store(
        parent->endpoint,
        ko_store_call_key(parent->endpoint->store, request, key, &deadline, reply));
}

static int claim(kolo_group *parent, const struct ko_members *members, int rank, const char *text)
{
    struct ko_request request = {.op = KO_STORE_COMPARE_SET, .value = {text, strlen(text)}};
    struct ko_reply reply;
    int err = ask(parent, members, rank, &request, &reply);

    if (err)
        return err == KOLO_E_PEER_LOST ? ko_group_fail_lost(parent, kolo_last_error())
                                       : ko_group_fail(parent, err, kolo_last_error());
    err = compare(parent, members, reply.value);
    kolo_free(reply.value);
    return err;
}

/* When all ranks have compared theirs the last one takes the claims away. What cannot be taken back
 * stays there. */
static void forget(kolo_group *parent, const struct ko_members *members)
{
    struct ko_request count = {.op = KO_STORE_ADD, .delta = 1}, take = {.op = KO_STORE_DELETE};
    struct ko_reply reply;
    char text[KO_ERROR_TEXT]; /* the thread's, of a list that differs */
    bool is_last;
    int err;

    ko_error_keep(text);
    err = ask(parent, members, DONE, &count, &reply);
    is_last = !err && reply.number == parent->size;
    for (int r = DONE; is_last && !err && r < parent->size; r++)
        err = ask(parent, members, r, &take, &reply);
    (void)ko_fail_again(KOLO_OK, text);
}

/* Who is not listed has no part in the group, but must not be listed by others either. */
int ko_members_compare(kolo_group *parent, const struct ko_members *members)
{
    char list[LIST_TEXT], text[CLAIM_TEXT];
    bool is_member = false;
    int err;

    print_list(members, list);
    snprintf(text, sizeof text, "%016" PRIx64 " %d %s", members->id, parent->rank, list);
    for (int i = 0; i < members->n; i++)
        is_member = is_member || members->ranks[i] == parent->rank;
    err = claim(parent, members, parent->rank, text);
    for (int i = 0; i < members->n && is_member && !err; i++)
        if (members->ranks[i] != parent->rank)
            err = claim(parent, members, members->ranks[i], text);
    if (!ko_group_has_failed(parent))
        forget(parent, members);
    return err;
}
