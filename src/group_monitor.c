/* SPDX-License-Identifier: MIT
 *
 * A barrier that names who is missing. It goes by the store, not by links: there each rank leaves
 * word that it has come, and rank 0 that all have. So it does not matter in what call a missing
 * rank is, whether it lives, or what its links are worth. Rank 0's deadline counts; the others give
 * it as much time from its own coming, and a little to say what it has found. Whoever gives up says
 * so under the same key as rank 0 that all have come: the first to say something there decides for
 * all of them, so that none leaves in peace while another fails. Of a barrier to which all have
 * come, the last one to leave takes that key away, so that nothing is left of it.
 */
#include "group.h"
#include "rank_list.h"
#include "store.h"

#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOOK_MS = 100, /* between two looks at the group; in a wait for the store others wait for it */
    VERDICT_MS = 2000, /* for rank 0 to tell */
    STORE_MS = 1000    /* at most, for whoever gives up to say so */
};

struct barrier {
    kolo_group *group;
    uint64_t number; /* of the group's monitored barriers, from 1 on */
    int timeout_ms;
    bool wait_all;
};

enum {
    ALL = -1, /* whose word is the verdict: all have come, or why the group fails */
    LEFT = -2 /* under which those are counted who have said or read that */
};

static void key_of(const struct barrier *barrier, int rank, char *key, size_t nbytes)
{
    snprintf(key, nbytes, "monitored/%016llx/%llu/%d", (unsigned long long)barrier->group->id,
             (unsigned long long)barrier->number, rank);
}

static kolo_store *store_of(const struct barrier *barrier)
{
    return barrier->group->endpoint->store;
}

/* What the store did, as the group's error. */
static int after_store(const struct barrier *barrier, int err)
{
    if (!ko_endpoint_after_store(barrier->group->endpoint, err))
        return KOLO_OK;
    return err == KOLO_E_PEER_LOST ? ko_group_fail_lost(barrier->group, kolo_last_error())
                                   : ko_group_fail(barrier->group, err, kolo_last_error());
}

/* A store that has gone may have done so since the others waited for this very rank. */
static int leave_word(const struct barrier *barrier)
{
    char key[64], text[KO_ERROR_TEXT];
    int err;

    key_of(barrier, barrier->group->rank, key, sizeof key);
    err = kolo_store_set(store_of(barrier), key, (kolo_bytes){"", 0});
    if (err == KOLO_E_PEER_LOST) {
        snprintf(text, sizeof text,
                 "rank %d came to a monitored barrier, too late perhaps: the others may have given "
                 "it up there; %.200s",
                 barrier->group->rank, kolo_last_error());
        err = ko_fail_again(err, text);
    }
    return after_store(barrier, err);
}

/* Nobody looks at it any more. What cannot be taken back stays there. */
static void take_back(const struct barrier *barrier, int rank)
{
    char key[64];
    int was_there;

    key_of(barrier, rank, key, sizeof key);
    (void)kolo_store_delete(store_of(barrier), key, &was_there);
}

/* Waits for a rank's word at most so long, and not longer than the group lasts: KO_AGAIN if it has
 * not come, any error has failed the group; a time-out is mostly how rank 0 has. */
static int await_word(const struct barrier *barrier, int rank, const ko_deadline *deadline)
{
    const ko_deadline soon = ko_deadline_within(deadline, LOOK_MS);
    const char *keys[1];
    char key[64];
    int err;

    key_of(barrier, rank, key, sizeof key);
    keys[0] = key;
    err = kolo_store_wait(store_of(barrier), keys, 1, ko_deadline_left_ms(&soon));
    if (err != KOLO_E_TIMEOUT)
        return after_store(barrier, err);
    err = ko_group_check_store(barrier->group);
    return err ? err : KO_AGAIN;
}

static int has_come(const struct barrier *barrier, int rank, bool *has)
{
    const char *keys[1];
    char key[64];
    int exists = 0, err;

    key_of(barrier, rank, key, sizeof key);
    keys[0] = key;
    err = after_store(barrier, kolo_store_check(store_of(barrier), keys, 1, &exists));
    *has = exists != 0;
    return err;
}

/* ---- the verdict ------------------------------------------------------------------------- */

/* What stands there, a ko_failure without what its text leaves unused; of status KOLO_OK: all have
 * come. Any other fails the group here too. */
static int obey(const struct barrier *barrier, const void *value, size_t nbytes)
{
    struct ko_failure verdict = {.status = KOLO_E_PROTOCOL, .text = "no verdict of a barrier"};

    if (nbytes >= offsetof(struct ko_failure, text) && nbytes <= sizeof verdict) {
        verdict.text[0] = 0;
        memcpy(&verdict, value, nbytes);
        verdict.text[sizeof verdict.text - 1] = 0;
    }
    return verdict.status == KOLO_OK
               ? KOLO_OK
               : ko_group_fail(barrier->group, ko_failure_status(&verdict), verdict.text);
}

/* The first to say something counts: *value is what that said. PyTorch's server wakes nobody who
 * waits for a key when it is compared and set: setting it once more, to the same, does. */
static int say_first(const struct barrier *barrier, kolo_bytes said, const ko_deadline *deadline,
                     struct ko_reply *reply)
{
    struct ko_request decide = {.op = KO_STORE_COMPARE_SET, .value = said};
    struct ko_request wake = {.op = KO_STORE_SET, .value = said};
    struct ko_reply none;
    char key[64];
    int err;

    key_of(barrier, ALL, key, sizeof key);
    err = ko_store_call_key(store_of(barrier), &decide, key, deadline, reply);
    if (!err && reply->nbytes == said.nbytes && !memcmp(reply->value, said.data, said.nbytes))
        (void)ko_store_call_key(store_of(barrier), &wake, key, deadline, &none);
    return err;
}

static kolo_bytes bytes_of(const struct ko_failure *verdict)
{
    return (kolo_bytes){verdict, offsetof(struct ko_failure, text) + strlen(verdict->text)};
}

/* Unless another has given up just before, or the group has failed, perhaps while rank 0 was not
 * yet here. */
static int say_all(const struct barrier *barrier)
{
    const struct ko_failure verdict = {.status = KOLO_OK};
    const ko_deadline deadline = ko_deadline_in(kolo_group_timeout(barrier->group));
    struct ko_reply reply;
    int err = ko_group_check_store(barrier->group);

    if (err)
        return err;
    err = after_store(barrier, say_first(barrier, bytes_of(&verdict), &deadline, &reply));
    if (err)
        return err;
    err = obey(barrier, reply.value, reply.nbytes);
    kolo_free(reply.value);
    return err;
}

/* Fails the group with this text, unless the verdict is another: perhaps that all have come, just
 * now. A store that does not answer is not waited for. */
static int give_up(const struct barrier *barrier, int status, const char *text)
{
    const ko_deadline deadline = ko_deadline_in(STORE_MS);
    struct ko_failure verdict = {.status = status};
    struct ko_reply reply;
    int err;

    snprintf(verdict.text, sizeof verdict.text, "%s", text);
    err = say_first(barrier, bytes_of(&verdict), &deadline, &reply);
    if (err == KOLO_E_PEER_LOST)
        return after_store(barrier, err);
    if (err)
        return ko_group_fail(barrier->group, status, verdict.text);
    err = obey(barrier, reply.value, reply.nbytes);
    kolo_free(reply.value);
    return err;
}

static int take_verdict(const struct barrier *barrier)
{
    char key[64];
    void *value;
    size_t nbytes;
    int err;

    key_of(barrier, ALL, key, sizeof key);
    err = after_store(barrier, kolo_store_get(store_of(barrier), key, &value, &nbytes));
    if (err)
        return err;
    err = obey(barrier, value, nbytes);
    kolo_free(value);
    return err;
}

/* ---- who is missing ---------------------------------------------------------------------- */

/* One is missing for certain, and perhaps ended. */
static int fail_first(const struct barrier *barrier, int rank, bool is_ended)
{
    char who[160], text[KO_ERROR_TEXT];

    ko_group_describe_rank(barrier->group, rank, who, sizeof who);
    if (is_ended)
        snprintf(
            text, sizeof text,
            "%s cannot come to the monitored barrier: its process has ended, or it has freed its "
            "groups",
            who);
    else
        snprintf(
            text, sizeof text,
            "%s has not come to the monitored barrier within %d ms; whether others have is not "
            "known, wait_all asks",
            who, barrier->timeout_ms);
    (void)ko_group_find_reason(barrier->group, rank, text);
    return give_up(barrier, is_ended ? KOLO_E_PEER_LOST : KOLO_E_TIMEOUT, text);
}

static int fail_listed(const struct barrier *barrier, const bool *is_missing, const bool *is_ended)
{
    const int n = barrier->group->size;
    char missing[240], ended[150], text[KO_ERROR_TEXT];
    int count = 0, nended = 0;

    for (int r = 0; r < n; r++) {
        count += is_missing[r];
        nended += is_ended[r];
    }
    ko_rank_list(is_missing, n, missing, sizeof missing);
    ko_rank_list(is_ended, n, ended, sizeof ended);
    snprintf(text, sizeof text,
             "%d of %d ranks have not come to the monitored barrier within %d ms: rank %s%s%s",
             count, n, barrier->timeout_ms, missing,
             nended ? "; have ended, or freed their groups: rank " : "", ended);
    for (int r = 0; r < n; r++)
        if (is_missing[r] && ko_group_find_reason(barrier->group, r, text))
            break;
    return give_up(barrier, KOLO_E_TIMEOUT, text);
}

/* The time is over: fails the group with what the store knows of each rank. */
static int fail_missing(const struct barrier *barrier)
{
    const int n = barrier->group->size;
    bool *is_missing = ko_alloc(2 * (size_t)n * sizeof *is_missing, "lists of ranks");
    bool *is_ended = is_missing + n;
    bool has = false;
    int err = KOLO_OK;

    if (!is_missing)
        return give_up(barrier, KOLO_E_NOMEM, kolo_last_error());
    for (int r = 0; r < n && !err; r++) {
        err = has_come(barrier, r, &has);
        is_missing[r] = !has;
        is_ended[r] =
            !err && !has &&
            ko_endpoint_has_ended(barrier->group->endpoint, barrier->group->world_ranks[r]);
    }
    if (!err)
        err = fail_listed(barrier, is_missing, is_ended);
    free(is_missing);
    return err;
}

/* ---- the barrier ------------------------------------------------------------------------- */

/* Whether it is waited for in vain; who wants a whole list waits for the others all the same. */
static bool has_ended(const struct barrier *barrier, int rank)
{
    return !barrier->wait_all &&
           ko_endpoint_has_ended(barrier->group->endpoint, barrier->group->world_ranks[rank]);
}

/* As rank 0 does, in the order of the ranks. */
static int await_rank(const struct barrier *barrier, int rank, const ko_deadline *deadline)
{
    int err;

    while ((err = await_word(barrier, rank, deadline)) == KO_AGAIN) {
        const bool is_late = ko_deadline_passed(deadline);
        const bool is_ended = has_ended(barrier, rank);

        if (is_late && barrier->wait_all)
            return fail_missing(barrier);
        if (is_late || is_ended)
            return fail_first(barrier, rank, is_ended);
    }
    return err;
}

/* Rank 0 is counted too: it may say the verdict a second time, which would bring the key back. */
static void leave(const struct barrier *barrier)
{
    char key[64];
    int64_t nleft = 0;

    take_back(barrier, barrier->group->rank);
    key_of(barrier, LEFT, key, sizeof key);
    if (kolo_store_add(store_of(barrier), key, 1, &nleft) || nleft < barrier->group->size)
        return;
    take_back(barrier, ALL);
    take_back(barrier, LEFT);
}

static int gather_all(const struct barrier *barrier)
{
    const ko_deadline deadline = ko_deadline_in(barrier->timeout_ms);
    int err = leave_word(barrier);

    for (int r = 1; r < barrier->group->size && !err; r++)
        err = await_rank(barrier, r, &deadline);
    if (!err)
        err = say_all(barrier);
    if (!err)
        leave(barrier);
    return err;
}

static int fail_without_verdict(const struct barrier *barrier, bool is_ended)
{
    char who[160], text[KO_ERROR_TEXT];

    ko_group_describe_rank(barrier->group, 0, who, sizeof who);
    if (is_ended)
        snprintf(text, sizeof text,
                 "%s came to the monitored barrier, but its process has ended, or it has freed its "
                 "groups, without saying that all have come",
                 who);
    else
        snprintf(text, sizeof text,
                 "%s has come to the monitored barrier, but did not say within %d ms that all have",
                 who, barrier->timeout_ms + VERDICT_MS);
    (void)ko_group_find_reason(barrier->group, 0, text);
    return give_up(barrier, is_ended ? KOLO_E_PEER_LOST : KOLO_E_TIMEOUT, text);
}

static int await_verdict(const struct barrier *barrier)
{
    const ko_deadline deadline = ko_deadline_in(barrier->timeout_ms + VERDICT_MS);
    bool is_ended = false;
    int err;

    while ((err = await_word(barrier, ALL, &deadline)) == KO_AGAIN) {
        if (is_ended || ko_deadline_passed(&deadline))
            return fail_without_verdict(barrier, is_ended);
        is_ended = has_ended(barrier, 0); /* which it may be behind its word */
    }
    return err ? err : take_verdict(barrier);
}

/* It may have taken its own word back already, when all have come. */
static int await_rank_0(const struct barrier *barrier)
{
    const ko_deadline deadline = ko_deadline_in(barrier->timeout_ms);
    bool is_over = false;
    int err;

    while ((err = await_word(barrier, 0, &deadline)) == KO_AGAIN) {
        const bool is_late = ko_deadline_passed(&deadline), is_ended = has_ended(barrier, 0);

        err = has_come(barrier, ALL, &is_over);
        if (err || is_over)
            return err;
        if (is_ended)
            return fail_first(barrier, 0, true);
        if (is_late)
            return fail_missing(barrier);
    }
    return err;
}

static int come_to_rank_0(const struct barrier *barrier)
{
    int err = leave_word(barrier);

    if (!err)
        err = await_rank_0(barrier);
    if (!err)
        err = await_verdict(barrier);
    if (!err)
        leave(barrier);
    return err;
}

int kolo_monitored_barrier(kolo_group *group, int timeout_ms, int wait_all)
{
    struct barrier barrier = {.group = group, .wait_all = wait_all != 0};
    char text[KO_ERROR_TEXT];
    int err;

    if (!group)
        return ko_fail(KOLO_E_INVALID, "kolo_monitored_barrier: group is NULL");
    err = ko_group_check(group);
    if (err || group->size == 1)
        return err;
    barrier.timeout_ms = timeout_ms < 0 ? kolo_group_timeout(group) : timeout_ms;
    if (barrier.timeout_ms > INT_MAX - VERDICT_MS)
        barrier.timeout_ms = INT_MAX - VERDICT_MS;
    pthread_mutex_lock(&group->lock);
    barrier.number = ++group->nmonitored;
    pthread_mutex_unlock(&group->lock);
    ko_error_keep(text);
    err = group->rank == 0 ? gather_all(&barrier) : come_to_rank_0(&barrier);
    return err ? err : ko_fail_again(KOLO_OK, text); /* a look that was in vain is no failed call */
}
