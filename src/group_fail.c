/* SPDX-License-Identifier: MIT
 *
 * A group fails once. Whoever decides it keeps the text, wakes this rank's waiters, writes the text
 * into the store for ranks that no link of ours reaches, and tells it over every open link; a rank
 * that is told does the same, so the news travels against every wait there is.
 */
#include "group.h"

#include "error_file.h"
#include "group_let_go.h"
#include "log.h"
#include "mailbox_gpu.h"
#include "store.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { STORE_MS = 1000 }; /* at most, for the store's part in a failure */

int ko_group_error(kolo_group *group)
{
    return ko_fail_again(atomic_load(&group->failed), group->failure_text);
}

enum { KEY_TEXT = 40 };

/* Under which the ranks leave word of a group's failure; the first one counts. */
static void key_of_group(const kolo_group *group, char key[KEY_TEXT])
{
    snprintf(key, KEY_TEXT, "failed/%016llx", (unsigned long long)group->id);
}

/* Under which a rank leaves word of its last failure, in whatever group; for those whom it keeps
 * waiting in others. */
static void key_of_rank(const kolo_group *group, int rank, char key[KEY_TEXT])
{
    snprintf(key, KEY_TEXT, "failed/rank/%d", group->world_ranks[rank]);
}

/* The limit is this request's alone: what others ask of the same store may take longer. */
static int ask_store(const kolo_group *group, const char *key, struct ko_request *request,
                     struct ko_reply *reply)
{
    const ko_deadline deadline = ko_deadline_in(STORE_MS);
    struct ko_endpoint *endpoint = group->endpoint;

    return ko_endpoint_after_asking(
        endpoint, ko_store_call_key(endpoint->store, request, key, &deadline, reply));
}

static int write_word(const kolo_group *group, const char *key, enum ko_store_op op)
{
    struct ko_failure failure = {.status = atomic_load(&group->failed)};
    struct ko_request request = {.op = op, .value = {&failure, sizeof failure}};
    struct ko_reply reply = {0};
    int err;

    memcpy(failure.text, group->failure_text, sizeof failure.text);
    err = ask_store(group, key, &request, &reply);
    if (!err)
        kolo_free(reply.value);
    return err;
}

/* Errors change nothing. */
static void write_failure(kolo_group *group)
{
    char key[KEY_TEXT];

    key_of_group(group, key);
    if (!write_word(group, key, KO_STORE_COMPARE_SET)) {
        key_of_rank(group, group->rank, key);
        if (!write_word(group, key, KO_STORE_SET))
            atomic_store(&group->endpoint->has_left_word, true);
    }
    (void)ko_group_check(group); /* the thread's text again: the store may have failed too */
}

void ko_group_take_word_back(kolo_group *group)
{
    struct ko_request request = {.op = KO_STORE_DELETE};
    struct ko_reply reply;
    char key[KEY_TEXT], text[KO_ERROR_TEXT];

    if (!ko_endpoint_may_ask(group->endpoint) ||
        !atomic_exchange(&group->endpoint->has_left_word, false))
        return;
    ko_error_keep(text);
    key_of_rank(group, group->rank, key);
    (void)ask_store(group, key, &request, &reply);
    (void)ko_fail_again(KOLO_OK, text);
}

/* Who finds another thread at it waits: it may be about to end a connection. */
void ko_group_write_failure(kolo_group *group)
{
    if (group->size == 1 || atomic_load(&group->has_written))
        return;
    pthread_mutex_lock(&group->writing);
    if (!atomic_load(&group->has_written) && !atomic_load(&group->endpoint->store_is_lost))
        write_failure(group);
    atomic_store(&group->has_written, true);
    pthread_mutex_unlock(&group->writing);
}

/* Who is told that a group was freed looks for a reason, which another group may be: the thread
 * that has failed that one may not have come to writing it yet. A store that does not answer is not
 * waited for with each of them. */
void ko_group_write_failures(struct ko_endpoint *endpoint)
{
    pthread_mutex_lock(&endpoint->groups_lock);
    for (kolo_group *group = endpoint->groups; group; group = group->next)
        if (ko_group_has_failed(group) && ko_endpoint_may_ask(endpoint))
            ko_group_write_failure(group);
    pthread_mutex_unlock(&endpoint->groups_lock);
}

static bool names_rank(const char *text)
{
    while ((text = strstr(text, "rank"))) {
        text += text[4] == 's' ? 5 : 4;
        if (*text == ' ' && isdigit((unsigned char)text[1]))
            return true;
    }
    return false;
}

/* What has failed on this rank alone, others are to know from where. */
static void write_text(kolo_group *group, const char *text)
{
    if (group->size == 1 || names_rank(text))
        snprintf(group->failure_text, sizeof group->failure_text, "%s", text);
    else
        snprintf(group->failure_text, sizeof group->failure_text, "rank %d: %s", group->rank, text);
}

static bool become_failed(kolo_group *group, int status, const char *text)
{
    bool is_first;

    pthread_mutex_lock(&group->lock);
    is_first = !atomic_load(&group->failed);
    if (is_first) {
        write_text(group, text);
        atomic_store(&group->failed, status); /* releases the text */
    }
    pthread_mutex_unlock(&group->lock);
    return is_first;
}

/* False: another thread is in a call. It is awake now. */
static bool try_tell_collectives(kolo_group *group)
{
    ko_channel_wake(&group->collectives);
    if (!ko_engine_try_turn(&group->engine))
        return false;
    ko_channel_tell_failure(&group->collectives);
    ko_engine_finish(&group->engine);
    return true;
}

/* A work of the engine. */
static void tell(struct kolo_work *telling)
{
    kolo_group *group = (kolo_group *)((char *)telling - offsetof(kolo_group, telling));

    ko_channel_tell_failure(&group->collectives);
    ko_mailbox_tell_failure(group);
    ko_work_complete(telling, KOLO_OK);
}

/* Threads that are in calls tell their peers themselves, unless they have looked for failures for
 * the last time: a work behind them sees to that. */
static void tell_peers(kolo_group *group)
{
    const bool has_told = try_tell_collectives(group);

    if (ko_mailbox_try_tell_failure(group) && has_told)
        return;
    group->telling.run = tell;
    (void)ko_engine_submit(&group->engine, &group->telling);
}

int ko_group_fail(kolo_group *group, int status, const char *text)
{
    if (!become_failed(group, status, text))
        return ko_group_check(group);
    ko_log(KO_LOG_WARN, "%s: %s", kolo_status_name(status), group->failure_text);
    ko_gpu_let_all_go(group->gpu);
    ko_group_let_go(group);
    tell_peers(group);
    ko_error_file_write(group->failure_text);
    return ko_group_check(group);
}

/* The failure that stands under a key; false if there is none, or no store any more. */
static bool read_failure(kolo_group *group, const char *key, struct ko_failure *failure)
{
    struct ko_request check = {.op = KO_STORE_CHECK}, get = {.op = KO_STORE_GET};
    char text[KO_ERROR_TEXT]; /* the thread's: a store that has gone is no failed call of its */
    struct ko_reply reply;
    bool is_whole;

    if (!ko_endpoint_may_ask(group->endpoint))
        return false;
    ko_error_keep(text);
    if (ask_store(group, key, &check, &reply) || !reply.number ||
        ask_store(group, key, &get, &reply)) {
        (void)ko_fail_again(KOLO_OK, text);
        return false;
    }
    is_whole = reply.nbytes == sizeof *failure;
    if (is_whole)
        memcpy(failure, reply.value, sizeof *failure);
    kolo_free(reply.value);
    failure->text[sizeof failure->text - 1] = 0;
    return is_whole;
}

int ko_group_check_store(kolo_group *group)
{
    struct ko_failure failure;
    char key[KEY_TEXT];

    key_of_group(group, key);
    if (group->size > 1 && !atomic_load(&group->failed) && read_failure(group, key, &failure))
        return ko_group_fail(group, ko_failure_status(&failure), failure.text);
    return ko_group_check(group);
}

/* That a rank has gone, as the store has that it serves. */
static bool has_lost_server(const kolo_group *group)
{
    const struct ko_endpoint *endpoint = group->endpoint;

    return atomic_load(&endpoint->store_is_lost) && endpoint->store_rank >= 0 &&
           endpoint->store_rank != endpoint->rank;
}

/* That rank, if it is of this group; else -1. */
static int lost_server(const kolo_group *group)
{
    const struct ko_endpoint *endpoint = group->endpoint;

    if (!has_lost_server(group))
        return -1;
    for (int r = 0; r < group->size; r++)
        if (group->world_ranks[r] == endpoint->store_rank)
            return r;
    return -1;
}

int ko_group_check_server(kolo_group *group, const char *text)
{
    int server = lost_server(group);
    char who[160], whole[KO_ERROR_TEXT];

    if (server < 0)
        return ko_group_check(group);
    ko_group_describe_rank(group, server, who, sizeof who);
    snprintf(whole, sizeof whole, "%s, which serves the store, was lost%s%.300s", who,
             *text ? "; then: " : "", text);
    return ko_group_fail(group, KOLO_E_PEER_LOST, whole);
}

/* The peer may have failed in another group, and have gone for that; false: not that is known. Its
 * word of the same group, which it writes before, fails this one. */
static bool put_reason_first(kolo_group *group, int peer, char text[KO_ERROR_TEXT])
{
    struct ko_failure failure;
    char key[KEY_TEXT], whole[KO_ERROR_TEXT];

    key_of_rank(group, peer, key);
    if (!read_failure(group, key, &failure) || ko_group_check_store(group))
        return false;
    snprintf(whole, sizeof whole, "another group of rank %d's failed: %.280s; then %.290s", peer,
             failure.text, text);
    memcpy(text, whole, sizeof whole);
    return true;
}

/* Who is not of this group is no reason for it to fail, but may be one for a rank that is. */
static void put_server_first(const kolo_group *group, char text[KO_ERROR_TEXT])
{
    char whole[KO_ERROR_TEXT];

    snprintf(whole, sizeof whole,
             "rank %d of the world, which serves the store, was lost; then %.300s",
             group->endpoint->store_rank, text);
    memcpy(text, whole, sizeof whole);
}

bool ko_group_find_reason(kolo_group *group, int peer, char text[KO_ERROR_TEXT])
{
    const int end = peer < 0 ? group->size : peer + 1;

    if (has_lost_server(group)) {
        put_server_first(group, text);
        return true;
    }
    for (int r = peer < 0 ? 0 : peer; r < end; r++)
        if (r != group->rank && put_reason_first(group, r, text))
            return true;
    return false;
}

int ko_group_fail_for(kolo_group *group, int peer, int status, const char *text)
{
    char copy[KO_ERROR_TEXT];
    int err;

    snprintf(copy, sizeof copy, "%s", text); /* which may be the thread's own */
    err = ko_group_check_store(group);
    if (!err && status == KOLO_E_PEER_LOST)
        err = ko_group_check_server(group, copy);
    if (err)
        return err;
    if (peer >= 0 || status == KOLO_E_PEER_LOST)
        (void)ko_group_find_reason(group, peer, copy);
    return ko_group_fail(group, status, copy);
}

int ko_group_fail_lost(kolo_group *group, const char *text)
{
    return ko_group_fail_for(group, -1, KOLO_E_PEER_LOST, text);
}

void kolo_group_abort(kolo_group *group, const char *reason)
{
    char text[KO_ERROR_TEXT];

    if (!group)
        return;
    snprintf(text, sizeof text, "rank %d aborted the group: %s", group->rank,
             reason && *reason ? reason : "no reason given");
    (void)ko_group_fail(group, KOLO_E_ABORTED, text);
}

int kolo_group_error(const kolo_group *group, const char **text)
{
    int failed = group ? atomic_load(&group->failed) : KOLO_OK;

    if (text)
        *text = failed ? group->failure_text : "";
    return group ? failed : ko_fail(KOLO_E_INVALID, "kolo_group_error: group is NULL");
}

void ko_group_describe_rank(kolo_group *group, int rank, char *text, size_t nbytes)
{
    const struct ko_contact *contact = ko_endpoint_known(group->endpoint, group->world_ranks[rank]);
    const int in_world = group->world_ranks[rank];
    char name[96], world[40] = "";
    const char *why;
    uint32_t index;

    if (in_world != rank)
        snprintf(world, sizeof world, "rank %d of the world", in_world);
    if (!contact ||
        !ko_topology_find(&group->endpoint->own, contact, rank == group->rank, &index, &why)) {
        snprintf(text, nbytes, *world ? "rank %d (%s)" : "rank %d%s", rank, world);
        return;
    }
    ko_contact_name(contact, name, sizeof name);
    snprintf(text, nbytes, "rank %d (%s%s%s, over %s)", rank, world, *world ? ", " : "", name,
             contact->addresses[index].transport);
}
