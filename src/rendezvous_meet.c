/* SPDX-License-Identifier: MIT
 *
 * The wait until all ranks have come, and what is said if they do not.
 */
#include "rank_list.h"
#include "rendezvous_parts.h"
#include "status.h"
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    LEAVE_JOIN_MS = 1000,
    LOOKED_AT_ONCE = 64, /* ranks, of each request for all of them */
    LONGEST_NAMES = 40,  /* of a host and its address */
    LONGEST_PLACE = 56   /* of a rank, in a list */
};

static void come_key(int rank, char *key, size_t nbytes)
{
    snprintf(key, nbytes, "come/%d", rank);
}

/* Where this rank is, for those who ask who has come: of a long name the address's part is kept. */
static void say_place(struct ko_world *world, char *place, size_t nbytes)
{
    char host[65] = "", address[64] = "";
    int room;

    (void)gethostname(host, sizeof host - 1);
    if (ko_store_own_address(world->store, address, sizeof address))
        address[0] = 0;
    room = LONGEST_NAMES - 1 - (int)strnlen(address, LONGEST_NAMES - 1);
    snprintf(place, nbytes, "%.*s%s%s", room, host, address[0] ? " " : "", address);
}

/* ", 0 (node1 10.0.0.1)" behind what the list holds already, while there is room. */
static bool list_come(struct ko_world *world, int rank, const char *key, char *list, size_t cap)
{
    size_t used = strlen(list), nbytes;
    void *place;

    if (used + LONGEST_PLACE > cap || kolo_store_get(world->keys, key, &place, &nbytes))
        return false;
    snprintf(list + used, cap - used, "%s%d (%.*s)", used ? ", " : "", rank, LONGEST_NAMES,
             (char *)place);
    kolo_free(place);
    return true;
}

static const char *awaited_key(const struct ko_world *world)
{
    return world->has_rounds && world->rank == 0 ? "proposed" : "all";
}

static int await_verdict(struct ko_world *world, const ko_deadline *deadline)
{
    const char *const keys[] = {awaited_key(world)};

    return ko_store_wait_until(world->keys, keys, 1, deadline);
}

static bool has_verdict(struct ko_world *world)
{
    const char *const keys[] = {awaited_key(world)};
    int exists;

    return !kolo_store_check(world->keys, keys, 1, &exists) && exists;
}

struct roster {
    bool *is_missing;
    int looked;     /* at the first so many ranks */
    char come[160]; /* where some are that have come */
    int more;       /* and as many as there was no room for */
};

static int look_for_one(struct ko_world *world, int rank, struct roster *roster)
{
    char key[32];
    const char *const keys[] = {key};
    int exists;

    come_key(rank, key, sizeof key);
    if (kolo_store_check(world->keys, keys, 1, &exists))
        return KOLO_E_PEER_LOST; /* there is no store any more to time out at */
    roster->is_missing[rank] = !exists;
    if (exists && !list_come(world, rank, key, roster->come, sizeof roster->come - 24))
        roster->more++;
    return KOLO_OK;
}

/* True if the next n ranks have all come, by one request. */
static bool are_there(struct ko_world *world, int first, int n)
{
    char names[LOOKED_AT_ONCE][32];
    const char *keys[LOOKED_AT_ONCE];
    int exist;

    for (int i = 0; i < n; i++) {
        come_key(first + i, names[i], sizeof names[i]);
        keys[i] = names[i];
    }
    return !kolo_store_check(world->keys, keys, (size_t)n, &exist) && exist;
}

/* Which ranks have not said that they wait for the others. KO_AGAIN: another has said so. */
static int look_for_all(struct ko_world *world, struct roster *roster)
{
    const ko_deadline limit = ko_deadline_in(LEAVE_JOIN_MS);
    int err = KOLO_OK;

    while (roster->looked < world->size && !ko_deadline_passed(&limit)) {
        const int left = world->size - roster->looked;
        const int n = left < LOOKED_AT_ONCE ? left : LOOKED_AT_ONCE;

        if (has_verdict(world))
            return KO_AGAIN;
        if (*roster->come && are_there(world, roster->looked, n))
            roster->more += n; /* a few are named */
        else
            for (int i = 0; i < n && !err; i++)
                err = look_for_one(world, roster->looked + i, roster);
        if (err)
            return err;
        roster->looked += n;
    }
    if (roster->more)
        snprintf(roster->come + strlen(roster->come), 24, " and %d more", roster->more);
    return KOLO_OK;
}

/* A launcher may tell rank 0 "localhost" and the others where that is; or somebody all of them. */
static const char *place_of_store(const struct ko_world *world)
{
    return world->is_kept_here
               ? "The store is at an address of the loopback, which no other machine reaches. "
               : "";
}

static int fail_missing(struct ko_world *world, const struct roster *roster,
                        const ko_deadline *deadline)
{
    char list[160], of[32] = "";
    int missing = 0;

    ko_rank_list(roster->is_missing, roster->looked, list, sizeof list);
    for (int r = 0; r < roster->looked; r++)
        missing += roster->is_missing[r];
    if (roster->looked < world->size)
        snprintf(of, sizeof of, " of the first %d", roster->looked);
    return ko_fail(
        KOLO_E_TIMEOUT,
        "rank %d of %d waited %d ms for all ranks to join; %d%s have not come: rank %s. Were "
        "they started, with this store's address? %s sets the limit. %sHere are %s",
        world->rank, world->size, deadline->timeout_ms, missing, of, missing ? list : "(none)",
        ko_deadline_source(deadline), place_of_store(world), roster->come);
}

/* Whatever there is to look at, one rank does: all others would ask the same of one server at the
 * same time. It may have died meanwhile. KO_AGAIN: the verdict is there. */
static int name_missing(struct ko_world *world, const ko_deadline *deadline)
{
    const ko_deadline soon = ko_deadline_in(LEAVE_JOIN_MS);
    struct roster roster = {0};
    int64_t turn;
    int err = kolo_store_add(world->keys, "looking", 1, &turn);

    if (err)
        return KOLO_E_PEER_LOST;
    if (turn > 1 && !await_verdict(world, &soon))
        return KO_AGAIN;
    roster.is_missing =
        ko_alloc((size_t)world->size * sizeof *roster.is_missing, "a list of ranks");
    if (!roster.is_missing)
        return KOLO_E_NOMEM;
    err = look_for_all(world, &roster);
    if (!err)
        err = fail_missing(world, &roster, deadline);
    kolo_free(roster.is_missing);
    return err;
}

/* ---- the verdict ---------------------------------------------------------------------------- */

/* What stands under "all": one of these, and after the second and third a sentence. */
enum verdict { JOINED = '1', TIMED_OUT = 'T', REFUSED = 'R', OVER = 'O' };

static int read_verdict(const char *value, size_t nbytes)
{
    if (nbytes > 0 && value[0] == JOINED)
        return KOLO_OK;
    if (nbytes > 0 && value[0] == OVER)
        return KO_AGAIN;
    return ko_fail(nbytes > 0 && value[0] == REFUSED ? KOLO_E_INVALID : KOLO_E_TIMEOUT, "%.*s",
                   nbytes > 0 ? (int)(nbytes - 1) : 0, value + 1);
}

/* The first to say something under a key counts: returns what that says. PyTorch's server wakes
 * nobody who waits for a key when it is compared and set: setting it once more, to the same, does.
 */
static int say_first(kolo_store *keys, const char *key, kolo_bytes text)
{
    void *value;
    size_t nbytes;
    int err = kolo_store_compare_set(keys, key, (kolo_bytes){NULL, 0}, text, &value, &nbytes);

    if (err)
        return err;
    if (nbytes == text.nbytes && !memcmp(value, text.data, nbytes))
        err = kolo_store_set(keys, key, text);
    if (!err)
        err = read_verdict(value, nbytes);
    kolo_free(value);
    return err;
}

/* In a round any rank proposes, and rank 0 says: by that the others know that it lives. */
static void propose(struct ko_world *world, enum verdict verdict, const char *sentence)
{
    char text[KO_ERROR_TEXT + 1];

    snprintf(text, sizeof text, "%c%s", verdict, sentence);
    (void)say_first(world->keys, world->has_rounds ? "proposed" : "all",
                    (kolo_bytes){text, strlen(text)});
}

static int take_verdict(struct ko_world *world)
{
    void *value;
    size_t nbytes;
    int err = kolo_store_get(world->keys, awaited_key(world), &value, &nbytes);

    if (err)
        return err;
    if (world->has_rounds && world->rank == 0)
        err = say_first(world->keys, "all", (kolo_bytes){value, nbytes});
    else
        err = read_verdict(value, nbytes);
    kolo_free(value);
    return err;
}

int ko_world_end_round(kolo_store *keys)
{
    int err = say_first(keys, "all", (kolo_bytes){(char[]){OVER}, 1});

    return err == KOLO_E_PEER_LOST ? err : KOLO_OK;
}

/* Says to the ranks that still wait who was missing, so that all end with one sentence; unless the
 * last has come just now. */
static int give_up(struct ko_world *world, const ko_deadline *deadline)
{
    const ko_deadline soon = ko_deadline_in(LEAVE_JOIN_MS);
    char text[KO_ERROR_TEXT];
    int err;

    kolo_store_set_timeout(world->keys, LEAVE_JOIN_MS);
    err = name_missing(world, deadline);
    if (err == KO_AGAIN)
        return take_verdict(world);
    if (err != KOLO_E_TIMEOUT)
        return err;
    snprintf(text, sizeof text, "%s", kolo_last_error());
    propose(world, TIMED_OUT, text);
    if (await_verdict(world, &soon))
        return ko_fail_again(KOLO_E_TIMEOUT, text);
    err = take_verdict(world);
    return err == KO_AGAIN ? ko_fail_again(KOLO_E_TIMEOUT, text) : err;
}

/* ---- coming, and leaving again -------------------------------------------------------------- */

/* The first to come says how many ranks there are, and who says so. */
static int check_size(struct ko_world *world)
{
    char text[32], *end;
    void *value;
    size_t nbytes;
    long size, rank;
    int err;

    snprintf(text, sizeof text, "%d %d", world->size, world->rank);
    err = kolo_store_compare_set(world->keys, "size", (kolo_bytes){NULL, 0},
                                 (kolo_bytes){text, strlen(text)}, &value, &nbytes);
    if (err)
        return err;
    size = strtol(value, &end, 10);
    rank = strtol(end, NULL, 10);
    kolo_free(value);
    if (size == world->size)
        return KOLO_OK;
    return ko_fail(KOLO_E_INVALID,
                   "rank %ld says that there are %ld ranks, rank %d says %d: start all with one "
                   "WORLD_SIZE (KOLO_SIZE, world_size=)",
                   rank, size, world->rank, world->size);
}

/* The rank that serves the store gives the others, if they still live, the time to read; and if
 * they are to hear of a refusal, the time to come. */
static void leave_unmet(struct ko_world *world, bool is_refused)
{
    ko_deadline deadline = ko_deadline_in(LEAVE_JOIN_MS);
    const struct timespec nap = {.tv_nsec = 2000000};
    char text[KO_ERROR_TEXT];
    int64_t left = 0, come = world->size;
    int err;

    snprintf(text, sizeof text, "%s", kolo_last_error());
    err = kolo_store_add(world->keys, "left", 1, &left);
    if (!err && !is_refused)
        err = kolo_store_add(world->keys, "come", 0, &come);
    while (world->has_server && world->rank == 0 && !err && left < come &&
           !ko_deadline_passed(&deadline)) {
        nanosleep(&nap, NULL);
        err = kolo_store_add(world->keys, "left", 0, &left);
    }
    (void)ko_fail_again(KOLO_OK, text);
}

/* This rank is none of the world that the others are to be; they hear it from here. */
static int refuse(struct ko_world *world, const ko_deadline *deadline)
{
    char text[KO_ERROR_TEXT];
    int err;

    snprintf(text, sizeof text, "%s", kolo_last_error());
    propose(world, REFUSED, text);
    err = await_verdict(world, deadline);
    if (!err)
        err = take_verdict(world);
    if (err == KOLO_E_INVALID)
        leave_unmet(world, true);
    return err == KO_AGAIN || err == KOLO_E_INVALID ? err : ko_fail_again(KOLO_E_INVALID, text);
}

static int wait_for_all(struct ko_world *world, const ko_deadline *deadline)
{
    char key[32], place[136];
    int err;

    come_key(world->rank, key, sizeof key);
    say_place(world, place, sizeof place);
    err = kolo_store_set(world->keys, key, (kolo_bytes){place, strlen(place)});
    if (!err)
        err = await_verdict(world, deadline);
    if (!err)
        err = take_verdict(world);
    else if (err == KOLO_E_TIMEOUT)
        err = give_up(world, deadline);
    if (err == KOLO_E_TIMEOUT || err == KOLO_E_INVALID)
        leave_unmet(world, err == KOLO_E_INVALID);
    return err;
}

/* The last to come says so to the rest. */
static int come(struct ko_world *world, const ko_deadline *deadline)
{
    int64_t come;
    int err = kolo_store_add(world->keys, "come", 1, &come);

    if (err)
        return err;
    if (come > world->size)
        return ko_fail(
            KOLO_E_INVALID,
            "%lld ranks have joined a world of %d; is another job using the same store, or "
            "is a rank number given twice?",
            (long long)come, world->size);
    if (come == world->size)
        propose(world, JOINED, "");
    return wait_for_all(world, deadline);
}

int ko_world_meet(struct ko_world *world, const ko_deadline *deadline)
{
    int err = check_size(world);

    if (err == KOLO_E_INVALID)
        return refuse(world, deadline);
    return err ? err : come(world, deadline);
}
