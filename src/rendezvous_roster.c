/* SPDX-License-Identifier: MIT
 *
 * Ranks are told by the place that they have in common, since those of one machine mostly come
 * together and in order. Who has come does not go again, so that each is asked for once.
 */
#include "rendezvous_roster.h"

#include "log.h"
#include "rank_list.h"
#include "status.h"

#include <stdio.h>
#include <string.h>

enum {
    LOOKED_AT_ONCE = 64, /* ranks, of each request for all of them */
    LISTED = 96,         /* bytes for the ranks of one place, in an error's text */
    MORE = 24,           /* " and 123 more" */
    LINE = 800           /* of a log */
};

void ko_roster_key(int rank, char *key, size_t nbytes)
{
    snprintf(key, nbytes, "come/%d", rank);
}

int ko_roster_open(int size, struct ko_roster *roster)
{
    struct ko_roster opened = {.size = size, .said = -1};

    opened.places = ko_alloc((size_t)size * sizeof *opened.places, "a list of ranks");
    opened.is_listed = ko_alloc((size_t)size * sizeof *opened.is_listed, "a list of ranks");
    if (!opened.places || !opened.is_listed) {
        ko_roster_close(&opened);
        return KOLO_E_NOMEM;
    }
    *roster = opened;
    return KOLO_OK;
}

void ko_roster_close(struct ko_roster *roster)
{
    kolo_free(roster->places);
    kolo_free(roster->is_listed);
    roster->places = NULL;
    roster->is_listed = NULL;
}

/* ---- looking ------------------------------------------------------------------------------ */

static bool has_come(const struct ko_roster *roster, int rank)
{
    return *roster->places[rank];
}

static int count_come(const struct ko_roster *roster)
{
    int n = 0;

    for (int r = 0; r < roster->size; r++)
        n += has_come(roster, r);
    return n;
}

static int find_place(struct ko_roster *roster, kolo_store *keys, int rank)
{
    char key[32];
    size_t nbytes;
    void *place;

    ko_roster_key(rank, key, sizeof key);
    if (kolo_store_get(keys, key, &place, &nbytes))
        return KOLO_E_PEER_LOST; /* there is no store any more to time out at */
    snprintf(roster->places[rank], sizeof roster->places[rank], "%s", nbytes ? (char *)place : "?");
    kolo_free(place);
    return KOLO_OK;
}

static int look_for_one(struct ko_roster *roster, kolo_store *keys, int rank)
{
    char key[32];
    const char *const list[] = {key};
    int exists;

    ko_roster_key(rank, key, sizeof key);
    if (kolo_store_check(keys, list, 1, &exists))
        return KOLO_E_PEER_LOST;
    return exists ? find_place(roster, keys, rank) : KOLO_OK;
}

/* True if the next n ranks have all come, by one request. */
static bool are_there(kolo_store *keys, int first, int n)
{
    char names[LOOKED_AT_ONCE][32];
    const char *list[LOOKED_AT_ONCE];
    int exist;

    for (int i = 0; i < n; i++) {
        ko_roster_key(first + i, names[i], sizeof names[i]);
        list[i] = names[i];
    }
    return !kolo_store_check(keys, list, (size_t)n, &exist) && exist;
}

static bool are_known(const struct ko_roster *roster, int first, int n)
{
    for (int r = first; r < first + n; r++)
        if (!has_come(roster, r))
            return false;
    return true;
}

int ko_roster_look(struct ko_roster *roster, kolo_store *keys)
{
    const int first = roster->looked, left = roster->size - first;
    const int n = left < LOOKED_AT_ONCE ? left : LOOKED_AT_ONCE;
    int err = KOLO_OK;

    if (!are_known(roster, first, n)) {
        const bool all = are_there(keys, first, n);

        for (int r = first; r < first + n && !err; r++)
            if (!has_come(roster, r))
                err = all ? find_place(roster, keys, r) : look_for_one(roster, keys, r);
    }
    if (!err)
        roster->looked += n;
    return err;
}

/* ---- telling ------------------------------------------------------------------------------ */

int ko_roster_missing(struct ko_roster *roster, char *list, size_t nbytes)
{
    int n = 0;

    for (int r = 0; r < roster->looked; r++) {
        roster->is_listed[r] = !has_come(roster, r);
        n += roster->is_listed[r];
    }
    ko_rank_list(roster->is_listed, roster->looked, list, nbytes);
    return n;
}

/* Whether no rank before it has come from the same place; the last before it mostly has. */
static bool is_first_there(const struct ko_roster *roster, int rank)
{
    for (int r = rank - 1; r >= 0; r--)
        if (!strcmp(roster->places[r], roster->places[rank]))
            return false;
    return true;
}

/* The first rank from rank on that is the first of its place; size: there is none. */
static int next_place(const struct ko_roster *roster, int rank)
{
    while (rank < roster->size && (!has_come(roster, rank) || !is_first_there(roster, rank)))
        rank++;
    return rank;
}

/* "0-3, 7 (node1 10.0.0.1)", of all ranks that are where the first is. Returns how many. */
static int tell_place(struct ko_roster *roster, int first, char *text, size_t nbytes)
{
    size_t used;
    int n = 0;

    for (int r = 0; r < roster->size; r++) {
        roster->is_listed[r] = !strcmp(roster->places[r], roster->places[first]);
        n += roster->is_listed[r];
    }
    ko_rank_list(roster->is_listed, roster->size, text, nbytes - KO_ROSTER_PLACE - 4);
    used = strlen(text);
    snprintf(text + used, nbytes - used, " (%s)", roster->places[first]);
    return n;
}

void ko_roster_come(struct ko_roster *roster, char *text, size_t nbytes)
{
    char place[LISTED + KO_ROSTER_PLACE + 4];
    size_t used = 0;
    int more = 0;

    text[0] = 0;
    for (int r = next_place(roster, 0); r < roster->size; r = next_place(roster, r + 1)) {
        const int n = tell_place(roster, r, place, sizeof place);

        if (more || used + strlen(place) + 2 + MORE > nbytes)
            more += n;
        else
            used += (size_t)snprintf(text + used, nbytes - used, "%s%s", used ? ", " : "", place);
    }
    if (more)
        snprintf(text + used, nbytes - used, " and %d more", more);
}

void ko_roster_say(struct ko_roster *roster)
{
    const int come = count_come(roster);
    char line[LINE], place[LINE];
    size_t used = 0;

    if (come == roster->said)
        return;
    roster->said = come;
    (void)ko_roster_missing(roster, line, sizeof line);
    ko_log(KO_LOG_INFO, "%d of %d ranks have joined; missing: rank %s", come, roster->size, line);
    for (int r = next_place(roster, 0); r < roster->size; r = next_place(roster, r + 1)) {
        (void)tell_place(roster, r, place, sizeof place);
        if (used > 0 && used + strlen(place) + 2 >= sizeof line) {
            ko_log(KO_LOG_INFO, "have joined: %s", line);
            used = 0;
        }
        used += (size_t)snprintf(line + used, sizeof line - used, "%s%s", used ? ", " : "", place);
    }
    if (used > 0)
        ko_log(KO_LOG_INFO, "have joined: %s", line);
}
