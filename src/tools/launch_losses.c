/* SPDX-License-Identifier: MIT
 *
 * Keys: alive/K counts what machine K has said about being alive; gone grows by " K.I" when the
 * connection of its I-th kolorun ends; where/K says where it is. lost/K counts how many kolorun
 * with the number K were lost, if others may take their place (launch_nodes.c), and attempt is with
 * which they are to begin.
 *
 * Silence is counted, not measured: a server that has been stopped or starved itself does not take
 * its own absence for that of all others.
 */
#include "launch_losses.h"

#include "clock.h"
#include "status.h"
#include "store.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BEAT_MS = 500, KEY = 48 };

static int number_key(struct ko_nodes *nodes, const char *name, int machine, int64_t delta,
                      int64_t *number)
{
    char key[KEY];

    snprintf(key, sizeof key, "%s/%d", name, machine);
    return kolo_store_add(nodes->keys, key, delta, number);
}

int ko_losses_open(struct ko_nodes *nodes)
{
    int64_t beats;
    int err = KOLO_OK;

    nodes->lives = calloc((size_t)nodes->nnodes, sizeof *nodes->lives);
    if (!nodes->lives)
        return ko_fail(KOLO_E_NOMEM, "no memory for the states of %d machines", nodes->nnodes);
    for (int i = 0; i < nodes->nnodes && !err; i++) {
        nodes->lives[i].silent_ms = -1;
        err = number_key(nodes, "alive", i, 0, &beats);
    }
    return err;
}

int ko_losses_join(struct ko_nodes *nodes)
{
    char key[KEY], address[200] = "", host[HOST_NAME_MAX + 1] = "", text[KO_NODES_TEXT];
    int err = ko_store_own_address(nodes->store, address, sizeof address);

    gethostname(host, sizeof host - 1);
    snprintf(key, sizeof key, "where/%d", nodes->node_rank);
    snprintf(text, sizeof text, "%.60s, %.180s", host, address);
    if (!err)
        err = kolo_store_set(nodes->keys, key, (kolo_bytes){text, strlen(text)});
    if (err || nodes->is_server)
        return err;
    snprintf(text, sizeof text, " %d.%d", nodes->node_rank, nodes->incarnation);
    return ko_store_will(nodes->keys, "gone", (kolo_bytes){text, strlen(text)});
}

/* ---- a loss ------------------------------------------------------------------------------ */

/* Who comes in its place begins with the next attempt, if there may be one. */
static int give_number_back(struct ko_nodes *nodes, int attempt, int machine)
{
    const int next = nodes->is_meeting ? attempt : attempt + 1;
    char text[16];
    int64_t n;
    int err;

    if (next > nodes->max_restarts)
        return KOLO_OK;
    snprintf(text, sizeof text, "%d", next);
    err = kolo_store_set(nodes->keys, "attempt", (kolo_bytes){text, strlen(text)});
    return err ? err : number_key(nodes, "lost", machine, 1, &n);
}

static void describe(struct ko_nodes *nodes, int machine, const char *why, char how[KO_NODES_TEXT])
{
    char key[KEY];
    void *where = NULL;
    size_t nbytes;

    snprintf(key, sizeof key, "where/%d", machine);
    if (kolo_store_get(nodes->keys, key, &where, &nbytes))
        snprintf(how, KO_NODES_TEXT, "machine %d was lost: %s", machine, why);
    else
        snprintf(how, KO_NODES_TEXT, "machine %d (%.120s) was lost: %s", machine, (char *)where,
                 why);
    kolo_free(where);
}

/* True if the machine was waited for in this attempt: not if it is stopping the one before. */
static bool has_come(struct ko_nodes *nodes, int attempt, int machine, int *err)
{
    char name[KEY];

    snprintf(name, sizeof name, "here/%d", machine);
    return !nodes->is_meeting || ko_nodes_has(nodes, attempt, name, err);
}

static int lose(struct ko_nodes *nodes, int attempt, int machine, const char *why)
{
    char how[KO_NODES_TEXT], key[KEY];
    const char *keys[] = {key};
    int has_left = 0;
    int err;

    nodes->lives[machine].silent_ms = -1;
    snprintf(key, sizeof key, "left/%d", machine);
    err = kolo_store_check(nodes->keys, keys, 1, &has_left);
    if (err || has_left)
        return err;
    nodes->lives[machine].is_lost = true;
    describe(nodes, machine, why, how);
    if (has_come(nodes, attempt, machine, &err)) {
        err = ko_nodes_set(nodes, attempt, "lost", how);
        if (!err)
            err = ko_nodes_set_failed(nodes, attempt, KO_NODES_LOST_CODE,
                                      nodes->is_meeting ? '!' : '?', how);
        if (!err && nodes->is_meeting) {
            nodes->code = KO_NODES_LOST_CODE;
            return ko_fail(KOLO_E_PEER_LOST, "%s", how);
        }
    }
    return err ? err : give_number_back(nodes, attempt, machine);
}

/* ---- ends of connections ----------------------------------------------------------------- */

static int lose_connection(struct ko_nodes *nodes, int attempt, int machine, int incarnation)
{
    int64_t nlost = 0;
    int err;

    if (machine < 0 || machine >= nodes->nnodes || machine == nodes->node_rank)
        return KOLO_OK;
    err = number_key(nodes, "lost", machine, 0, &nlost);
    if (err || nlost != incarnation || nodes->lives[machine].is_lost)
        return err;
    return lose(nodes, attempt, machine, "its kolorun has ended, or its connection");
}

static int look_for_ends(struct ko_nodes *nodes, int attempt)
{
    const char *keys[] = {"gone"};
    int exists = 0, machine, incarnation, length;
    void *gone = NULL;
    size_t nbytes;
    int err = kolo_store_check(nodes->keys, keys, 1, &exists);

    if (err || !exists)
        return err;
    err = kolo_store_get(nodes->keys, "gone", &gone, &nbytes);
    while (!err && nodes->ngone < nbytes &&
           sscanf((char *)gone + nodes->ngone, " %d.%d%n", &machine, &incarnation, &length) == 2) {
        nodes->ngone += (size_t)length;
        err = lose_connection(nodes, attempt, machine, incarnation);
    }
    kolo_free(gone);
    return err;
}

/* ---- silence ----------------------------------------------------------------------------- */

static int listen_to(struct ko_nodes *nodes, int attempt, int machine, int passed_ms)
{
    struct ko_life *life = &nodes->lives[machine];
    char why[80];
    int64_t beats = 0;
    int err = number_key(nodes, "alive", machine, 0, &beats);

    if (err)
        return err;
    if (beats != life->beats) {
        *life = (struct ko_life){.beats = beats};
        return KOLO_OK;
    }
    if (life->silent_ms < 0 || !nodes->lost_after_ms)
        return KOLO_OK;
    if (passed_ms < nodes->lost_after_ms - life->silent_ms) {
        life->silent_ms += passed_ms;
        return KOLO_OK;
    }
    snprintf(why, sizeof why, "its kolorun has said nothing for %g s (--lost-after)",
             nodes->lost_after_ms / 1000.0);
    return lose(nodes, attempt, machine, why);
}

static int listen_to_all(struct ko_nodes *nodes, int attempt)
{
    const int64_t now_ns = ko_now_ns();
    int64_t passed_ms = (now_ns - nodes->listened_ns) / 1000000;
    int err = KOLO_OK;

    nodes->listened_ns = now_ns;
    if (passed_ms > 2 * BEAT_MS)
        passed_ms = 2 * BEAT_MS;
    for (int i = 0; i < nodes->nnodes && !err; i++)
        if (i != nodes->node_rank)
            err = listen_to(nodes, attempt, i, (int)passed_ms);
    return err;
}

/* ---- all of it --------------------------------------------------------------------------- */

int ko_losses_tend(struct ko_nodes *nodes, int attempt)
{
    const bool is_time = ko_deadline_passed(&nodes->beat);
    int64_t beats;
    int err = KOLO_OK;

    if (nodes->is_lost || !nodes->is_admitted)
        return KOLO_OK;
    if (is_time)
        nodes->beat = ko_deadline_in(BEAT_MS);
    if (!nodes->is_server)
        return is_time ? number_key(nodes, "alive", nodes->node_rank, 1, &beats) : KOLO_OK;
    err = look_for_ends(nodes, attempt);
    return err || !is_time ? err : listen_to_all(nodes, attempt);
}

void ko_losses_begin(struct ko_nodes *nodes)
{
    for (int i = 0; nodes->lives && i < nodes->nnodes; i++) {
        nodes->lives[i].silent_ms = 0;
        nodes->lives[i].is_lost = false;
    }
}

int ko_losses_count(const struct ko_nodes *nodes)
{
    int n = 0;

    for (int i = 0; nodes->lives && i < nodes->nnodes; i++)
        n += nodes->lives[i].is_lost;
    return n;
}

void ko_losses_close(struct ko_nodes *nodes)
{
    free(nodes->lives);
    nodes->lives = NULL;
}
