/* SPDX-License-Identifier: MIT
 *
 * The wait until all ranks have come, and what is said if they do not.
 */
#include "log.h"
#include "rendezvous_parts.h"
#include "rendezvous_roster.h"
#include "rendezvous_settings.h"
#include "status.h"
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    LEAVE_JOIN_MS = 1000,
    LEAVE_REFUSED_MS = 3000, /* in which the others, started at about the same time, may come, */
    LEAVE_LOST_MS = 10000,   /* and where one of them has ended, of which launchers tell at once */
    FIRST_SAID_MS = 500,     /* who has come, at the level INFO */
    SAID_AGAIN_MS = 3000
};

/* Where this rank is, for those who ask who has come: of a long name the address's part is kept. */
static void say_place(const struct ko_world *world, char *place, size_t nbytes)
{
    char host[65] = "", address[64] = "";
    int room;

    (void)gethostname(host, sizeof host - 1);
    if (ko_store_own_address(world->store, address, sizeof address))
        address[0] = 0;
    room = KO_ROSTER_PLACE - 1 - (int)strnlen(address, KO_ROSTER_PLACE - 1);
    snprintf(place, nbytes, "%.*s%s%s", room, host, address[0] ? " " : "", address);
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

/* Which ranks have not said that they wait for the others. KO_AGAIN: another has said so. */
static int look_for_all(struct ko_world *world, struct ko_roster *roster)
{
    const ko_deadline limit = ko_deadline_in(LEAVE_JOIN_MS);
    int err = KOLO_OK;

    while (roster->looked < world->size && !err && !ko_deadline_passed(&limit))
        err = has_verdict(world) ? KO_AGAIN : ko_roster_look(roster, world->keys);
    return err;
}

/* Says who has come if more have since, and that within the time that looking may take. */
static void say_roster(struct ko_world *world, struct ko_roster *roster)
{
    const ko_deadline limit = ko_deadline_in(LEAVE_JOIN_MS);
    int64_t come;
    int err = kolo_store_add(world->keys, "come", 0, &come);

    roster->looked = 0;
    if (come == roster->said)
        return;
    while (!err && roster->looked < world->size && !ko_deadline_passed(&limit))
        err = ko_roster_look(roster, world->keys);
    if (!err)
        ko_roster_say(roster);
}

/* Waits as await_verdict does, and says now and then for whom. Of pauses that end nothing is said.
 */
static int await_and_say(struct ko_world *world, struct ko_roster *roster,
                         const ko_deadline *deadline)
{
    ko_deadline pause = ko_deadline_within(deadline, FIRST_SAID_MS);
    int err;

    for (;;) {
        ko_log_hush(true);
        err = await_verdict(world, &pause);
        ko_log_hush(false);
        if (err != KOLO_E_TIMEOUT || ko_deadline_passed(deadline) || !ko_deadline_passed(&pause))
            return err;
        say_roster(world, roster);
        pause = ko_deadline_within(deadline, SAID_AGAIN_MS);
    }
}

/* Over a connection of its own: a server that does not answer within a pause loses that, and with
 * the first one this rank's will would be done. */
static int say_who_comes(struct ko_world *world, const ko_deadline *deadline)
{
    struct ko_world self = *world;
    struct ko_roster roster;
    int err;

    if (ko_store_clone(world->keys, &self.keys))
        return await_verdict(world, deadline);
    if (ko_roster_open(world->size, &roster)) {
        err = await_verdict(world, deadline);
    } else {
        err = await_and_say(&self, &roster, deadline);
        ko_roster_close(&roster);
    }
    kolo_store_close(self.keys);
    return err;
}

/* One rank of those whose log wants it says who has come: all others would ask the same. */
static int await_others(struct ko_world *world, const ko_deadline *deadline)
{
    int64_t turn;

    if (!ko_log_wants(KO_LOG_INFO) || kolo_store_add(world->keys, "saying", 1, &turn) || turn > 1)
        return await_verdict(world, deadline);
    return say_who_comes(world, deadline);
}

/* A launcher may tell rank 0 "localhost" and the others where that is; or somebody all of them. */
static const char *place_of_store(const struct ko_world *world)
{
    return world->is_kept_here
               ? "The store is at an address of the loopback, which no other machine reaches. "
               : "";
}

static int fail_missing(struct ko_world *world, struct ko_roster *roster,
                        const ko_deadline *deadline)
{
    char list[120], come[216], of[32] = "";
    const int missing = ko_roster_missing(roster, list, sizeof list);

    ko_roster_come(roster, come, sizeof come);
    if (roster->looked < world->size)
        snprintf(of, sizeof of, " of the first %d", roster->looked);
    return ko_fail(
        KOLO_E_TIMEOUT,
        "rank %d of %d waited %d ms for all ranks to join; %d%s have not come: rank %s. Were "
        "they started, with this store's address? %s sets the limit. %sHere are %s",
        world->rank, world->size, deadline->timeout_ms, missing, of, missing ? list : "(none)",
        ko_deadline_source(deadline), place_of_store(world), come);
}

/* Whatever there is to look at, one rank does: all others would ask the same of one server at the
 * same time. It may have died meanwhile. KO_AGAIN: the verdict is there. */
static int name_missing(struct ko_world *world, const ko_deadline *deadline)
{
    const ko_deadline soon = ko_deadline_in(LEAVE_JOIN_MS);
    struct ko_roster roster;
    int64_t turn;
    int err = kolo_store_add(world->keys, "looking", 1, &turn);

    if (err)
        return KOLO_E_PEER_LOST;
    if (turn > 1 && !await_verdict(world, &soon))
        return KO_AGAIN;
    err = ko_roster_open(world->size, &roster);
    if (err)
        return err;
    err = look_for_all(world, &roster);
    if (!err)
        err = fail_missing(world, &roster, deadline);
    ko_roster_close(&roster);
    return err;
}

/* ---- the verdict ---------------------------------------------------------------------------- */

/* What stands under "all": one of these, and after all but the first and the last a sentence that
 * ends with a zero, behind which wills may stand. */
enum verdict { JOINED = '1', TIMED_OUT = 'T', REFUSED = 'R', LOST = 'L', OVER = 'O' };

static int status_of(char verdict)
{
    if (verdict == REFUSED)
        return KOLO_E_INVALID;
    return verdict == LOST ? KOLO_E_PEER_LOST : KOLO_E_TIMEOUT;
}

static int read_verdict(const char *value, size_t nbytes)
{
    if (nbytes > 0 && value[0] == JOINED)
        return KOLO_OK;
    if (nbytes > 0 && value[0] == OVER)
        return KO_AGAIN;
    return ko_fail(status_of(nbytes > 0 ? *value : TIMED_OUT), "%.*s",
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
                    (kolo_bytes){text, strlen(text) + 1});
}

int ko_world_leave_will(const struct ko_world *world, kolo_store *store)
{
    char place[136], text[KO_ERROR_TEXT];

    say_place(world, place, sizeof place);
    snprintf(text, sizeof text, "%crank %d (%s) ended, or gave up, before all %d ranks had joined",
             LOST, world->rank, place, world->size);
    return ko_store_will(store, "all", (kolo_bytes){text, strlen(text) + 1});
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
    world->has_lost_one = err == KOLO_E_PEER_LOST;
    return err;
}

bool ko_world_is_refused(kolo_store *keys, char text[KO_ERROR_TEXT])
{
    void *value;
    size_t nbytes;
    bool is_refused;

    if (kolo_store_get(keys, "all", &value, &nbytes))
        return false;
    is_refused = nbytes > 0 && *(char *)value == REFUSED;
    if (is_refused)
        snprintf(text, KO_ERROR_TEXT, "%s", (char *)value + 1);
    kolo_free(value);
    return is_refused;
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
    ko_error_keep(text);
    propose(world, TIMED_OUT, text);
    if (await_verdict(world, &soon))
        return ko_fail_again(KOLO_E_TIMEOUT, text);
    err = take_verdict(world);
    return err == KO_AGAIN ? ko_fail_again(KOLO_E_TIMEOUT, text) : err;
}

/* ---- coming, and leaving again -------------------------------------------------------------- */

/* What another rank, or this one, has said: text with an end of its own. */
static int compare(const struct ko_world *world, const char *said)
{
    char *end;
    const long size = strtol(said, &end, 10), rank = strtol(end, &end, 10);

    if (size != world->size)
        return ko_fail(KOLO_E_INVALID,
                       "rank %ld says that there are %ld ranks, rank %d says %d: start all with "
                       "one WORLD_SIZE (KOLO_SIZE, world_size=)",
                       rank, size, world->rank, world->size);
    return ko_settings_compare(end + (*end == '\n'), (int)rank, world->rank);
}

/* The first to come says how many ranks there are, who says so, and what all have to set alike. */
static int check_alike(struct ko_world *world)
{
    char text[32 + KO_SETTINGS_TEXT];
    void *value;
    size_t nbytes;
    int err, used;

    used = snprintf(text, sizeof text, "%d %d\n", world->size, world->rank);
    ko_settings_write(text + used, sizeof text - (size_t)used);
    err = kolo_store_compare_set(world->keys, "size", (kolo_bytes){NULL, 0},
                                 (kolo_bytes){text, strlen(text)}, &value, &nbytes);
    if (err)
        return err;
    err = compare(world, value);
    kolo_free(value);
    return err;
}

/* Whom the rank that serves the store waits for, to read the verdict: with a refusal or a loss
 * those too who have yet to come, and would look for the store until their time-outs. */
struct audience {
    int64_t size; /* with this rank; 0: those who have come */
    int limit_ms;
};

static struct audience audience_of(const struct ko_world *world, int err)
{
    if (world->has_lost_one)
        return (struct audience){world->size - 1, LEAVE_LOST_MS};
    if (err == KOLO_E_INVALID)
        return (struct audience){world->size, LEAVE_REFUSED_MS};
    return (struct audience){0, LEAVE_JOIN_MS};
}

static void leave_unmet(struct ko_world *world, int status)
{
    struct audience audience = audience_of(world, status);
    ko_deadline deadline = ko_deadline_in(audience.limit_ms);
    const struct timespec nap = {.tv_nsec = 2000000};
    char text[KO_ERROR_TEXT];
    int64_t left = 0;
    int err;

    ko_error_keep(text);
    err = kolo_store_add(world->keys, "left", 1, &left);
    if (!err && !audience.size)
        err = kolo_store_add(world->keys, "come", 0, &audience.size);
    while (world->has_server && world->rank == 0 && !err && left < audience.size &&
           !ko_deadline_passed(&deadline)) {
        nanosleep(&nap, NULL);
        err = kolo_store_add(world->keys, "left", 0, &left);
    }
    (void)ko_fail_again(KOLO_OK, text);
}

/* This rank is none of the world that the others are to be; they hear it from here. If they are one
 * already, and that is being left, it is not this rank's: one with fewer ranks does not show by
 * this one's number. */
static int refuse(struct ko_world *world, const ko_deadline *deadline)
{
    char text[KO_ERROR_TEXT];
    int err;

    ko_error_keep(text);
    propose(world, REFUSED, text);
    err = await_verdict(world, deadline);
    if (!err)
        err = take_verdict(world);
    if (!err && ko_world_is_earlier(world, err, deadline))
        err = KO_AGAIN;
    if (err == KOLO_E_INVALID)
        leave_unmet(world, err);
    return err == KO_AGAIN || err == KOLO_E_INVALID ? err : ko_fail_again(KOLO_E_INVALID, text);
}

static int wait_for_all(struct ko_world *world, const ko_deadline *deadline)
{
    char key[32], place[136];
    int err;

    ko_roster_key(world->rank, key, sizeof key);
    say_place(world, place, sizeof place);
    err = kolo_store_set(world->keys, key, (kolo_bytes){place, strlen(place)});
    if (!err)
        err = await_others(world, deadline);
    if (!err)
        err = take_verdict(world);
    else if (err == KOLO_E_TIMEOUT)
        err = give_up(world, deadline);
    if (err == KOLO_E_TIMEOUT || err == KOLO_E_INVALID || world->has_lost_one)
        leave_unmet(world, err);
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
    int err = check_alike(world);

    if (err == KOLO_E_INVALID)
        return refuse(world, deadline);
    return err ? err : come(world, deadline);
}
