/* SPDX-License-Identifier: MIT
 *
 * Keys of an attempt A begin with "A/": master, here/K and come (machines that have begun), ready,
 * failed, lost, done (machines that have finished), over. Beside them options is how the first
 * machine was started; machine/K.I is the claim to a number, which one kolorun alone has, and
 * another after I that were lost with it; left counts those that have gone, and left/K is there for
 * each: whoever waits for one of them would wait in vain. launch_losses.c has some more.
 */
#include "launch.h"
#include "launch_losses.h"

#include "clock.h"
#include "config.h"
#include "interface.h"
#include "meeting.h"
#include "status.h"
#include "store.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* No request waits for another machine, so that one which lasts is not going to be answered; and
 * nothing else is done meanwhile. */
enum { NAP_MS = 20, LEAVE_MS = 5000, ANSWER_MS = 5000 };

static void name_key(int attempt, const char *name, char *key, size_t cap)
{
    snprintf(key, cap, "%d/%s", attempt, name);
}

int ko_nodes_set(struct ko_nodes *nodes, int attempt, const char *name, const char *text)
{
    char key[48];

    name_key(attempt, name, key, sizeof key);
    return kolo_store_set(nodes->keys, key, (kolo_bytes){text, strlen(text)});
}

int ko_nodes_get(struct ko_nodes *nodes, int attempt, const char *name,
                 char text[KO_NODES_TEXT + 16])
{
    char key[48];
    void *value;
    size_t nbytes;
    int err;

    name_key(attempt, name, key, sizeof key);
    err = kolo_store_get(nodes->keys, key, &value, &nbytes);
    if (err)
        return err;
    snprintf(text, KO_NODES_TEXT + 16, "%s", (char *)value);
    kolo_free(value);
    return KOLO_OK;
}

bool ko_nodes_has(struct ko_nodes *nodes, int attempt, const char *name, int *err)
{
    char key[48];
    const char *keys[] = {key};
    int exists = 0;

    name_key(attempt, name, key, sizeof key);
    *err = kolo_store_check(nodes->keys, keys, 1, &exists);
    return !*err && exists;
}

/* One more machine at a counter; the last one sets the key `then`. */
static int count(struct ko_nodes *nodes, int attempt, const char *counter, const char *then)
{
    char key[48];
    int64_t n;
    int err;

    name_key(attempt, counter, key, sizeof key);
    err = kolo_store_add(nodes->keys, key, 1, &n);
    if (!err && n > nodes->nnodes)
        err =
            ko_fail(KOLO_E_INVALID,
                    "more machines than --nnodes %d have come: is a --node-rank given twice, or a "
                    "--rdzv-id in use by another job?",
                    nodes->nnodes);
    if (!err && n == nodes->nnodes)
        err = ko_nodes_set(nodes, attempt, then, "1");
    return err;
}

/* ---- the store --------------------------------------------------------------------------- */

/* False too if another kolorun has this number, or if the store has gone, which *err says. */
static bool claim(struct ko_nodes *nodes, int number, int *err)
{
    char key[48];
    int64_t n = 0, nlost = 0;

    snprintf(key, sizeof key, "lost/%d", number);
    *err = kolo_store_add(nodes->keys, key, 0, &nlost);
    snprintf(key, sizeof key, "machine/%d.%d", number, (int)nlost);
    if (!*err)
        *err = kolo_store_add(nodes->keys, key, 1, &n);
    if (*err || n != 1)
        return false;
    nodes->node_rank = number;
    nodes->incarnation = (int)nlost;
    return true;
}

/* Who is refused here has no part in the job, and must leave no trace in it. */
static int number_machine(struct ko_nodes *nodes)
{
    const int wanted = nodes->node_rank;
    int number = wanted < 0 ? 0 : wanted;
    int err = KOLO_OK;

    nodes->is_admitted = claim(nodes, number, &err);
    while (!err && !nodes->is_admitted && wanted < 0 && ++number < nodes->nnodes)
        nodes->is_admitted = claim(nodes, number, &err);
    if (err || nodes->is_admitted)
        return err;
    if (wanted < 0)
        return ko_fail(KOLO_E_INVALID,
                       "all %d machines of --nnodes have come already: is the --rdzv-id in use by "
                       "another job?",
                       nodes->nnodes);
    return ko_fail(KOLO_E_INVALID,
                   "machine %d has come already: is its --node-rank given twice, or the --rdzv-id "
                   "in use by another job?",
                   wanted);
}

static int fail_limit(struct ko_nodes *nodes, const char *before)
{
    nodes->code = KO_EXIT_TIMEOUT;
    return ko_fail(KOLO_E_TIMEOUT, "the job ran past its limit of %g s before %s",
                   nodes->limit->timeout_ms / 1000.0, before);
}

static int open_by(struct ko_nodes *nodes, const char *host, int port, int timeout_ms)
{
    int err = KOLO_E_SYSTEM;

    nodes->is_server = nodes->node_rank <= 0;
    if (nodes->is_server)
        err = kolo_store_open_tcp(host, port, 1, timeout_ms, &nodes->store);
    if (err && nodes->node_rank != 0) {
        nodes->is_server = false;
        err = kolo_store_open_tcp(host, port, 0, timeout_ms, &nodes->store);
    }
    return err;
}

/* Machines that were started differently could not run together: the first says how, and whoever
 * differs is refused before it has a number. */
static int compare_options(struct ko_nodes *nodes)
{
    char text[96];
    void *value;
    size_t nbytes;
    int err;

    snprintf(text, sizeof text, "-n %d --nnodes %d --max-restarts %d", nodes->nprocs, nodes->nnodes,
             nodes->max_restarts);
    err = kolo_store_compare_set(nodes->keys, "options", (kolo_bytes){NULL, 0},
                                 (kolo_bytes){text, strlen(text)}, &value, &nbytes);
    if (err)
        return err;
    if (nbytes != strlen(text) || memcmp(value, text, nbytes))
        err = ko_fail(KOLO_E_INVALID,
                      "this machine has %s, but the first to come has %.*s: all need the same",
                      text, (int)nbytes, (const char *)value);
    kolo_free(value);
    return err;
}

static int open_store(struct ko_nodes *nodes, const char *name, int port)
{
    char host[KO_HOST_TEXT], cause[KO_ERROR_TEXT];
    ko_deadline deadline;
    int timeout_ms = nodes->join_ms;
    int err = ko_config_timeout(&timeout_ms);

    if (err)
        return err;
    if (nodes->limit && ko_deadline_left_ms(nodes->limit) < timeout_ms)
        timeout_ms = ko_deadline_left_ms(nodes->limit);
    deadline = ko_deadline_in(timeout_ms);
    ko_meeting_reachable(name, &deadline, host);
    err = open_by(nodes, host, port, ko_deadline_left_ms(&deadline));
    if (!err)
        return KOLO_OK;
    if (nodes->limit && ko_deadline_passed(nodes->limit))
        return fail_limit(nodes, "the other machines were reached");
    snprintf(cause, sizeof cause, "%s", kolo_last_error());
    return ko_fail(err, "the other machines are not reached: %.400s", cause);
}

/* In place of one that was lost it may not be the first. */
static int find_attempt(struct ko_nodes *nodes)
{
    const char *keys[] = {"attempt"};
    int exists = 0;
    void *text;
    size_t nbytes;
    int err = kolo_store_check(nodes->keys, keys, 1, &exists);

    if (err || !exists)
        return err;
    err = kolo_store_get(nodes->keys, "attempt", &text, &nbytes);
    if (err)
        return err;
    nodes->attempt = (int)strtol(text, NULL, 10);
    kolo_free(text);
    return KOLO_OK;
}

/* Who was given up, and is there after all, needs a number anew, and finds his own given away if
 * another has come in his place. */
static int claim_again(struct ko_nodes *nodes)
{
    char key[32];
    int64_t nlost = 0;
    int err;

    snprintf(key, sizeof key, "lost/%d", nodes->node_rank);
    err = kolo_store_add(nodes->keys, key, 0, &nlost);
    if (err || nlost == nodes->incarnation)
        return err;
    nodes->is_admitted = claim(nodes, nodes->node_rank, &err);
    if (err || nodes->is_admitted)
        return err ? err : ko_losses_join(nodes);
    return ko_fail(
        KOLO_E_INVALID,
        "the other machines have given machine %d up, and another kolorun has its number",
        nodes->node_rank);
}

int ko_nodes_open(struct ko_nodes *nodes, const char *name, int port, const char *run_id)
{
    char prefix[128];
    int err = open_store(nodes, name, port);

    if (err)
        return err;
    snprintf(nodes->endpoint, sizeof nodes->endpoint, "%.200s:%d", name, port);
    snprintf(prefix, sizeof prefix, "kolorun/%.100s", run_id);
    err = kolo_store_open_prefix(nodes->store, prefix, &nodes->keys);
    if (!err)
        err = compare_options(nodes);
    if (!err && nodes->is_server)
        err = ko_losses_open(nodes);
    if (!err)
        err = number_machine(nodes);
    if (!err)
        err = find_attempt(nodes);
    if (!err)
        err = ko_losses_join(nodes);
    if (!err)
        kolo_store_set_timeout(nodes->keys, ANSWER_MS);
    return err;
}

/* Says that this machine goes; *left is how many have. */
static int say_goodbye(struct ko_nodes *nodes, int64_t *left)
{
    char key[32];
    int err;

    if (!nodes->is_admitted || nodes->is_lost)
        return KOLO_E_INVALID;
    snprintf(key, sizeof key, "left/%d", nodes->node_rank);
    err = kolo_store_set(nodes->keys, key, (kolo_bytes){"1", 1});
    return err ? err : kolo_store_add(nodes->keys, "left", 1, left);
}

/* How many have ever come, of those that have numbers. */
static int count_come(struct ko_nodes *nodes, int *err)
{
    char key[32];
    const char *keys[] = {key};
    int exists = 0, n = 0;

    for (int i = 0; i < nodes->nnodes && !*err; i++) {
        snprintf(key, sizeof key, "where/%d", i);
        *err = kolo_store_check(nodes->keys, keys, 1, &exists);
        n += !*err && exists;
    }
    return n;
}

void ko_nodes_close(struct ko_nodes *nodes)
{
    ko_deadline deadline = ko_deadline_in(LEAVE_MS);
    int64_t left = 0;
    int err = say_goodbye(nodes, &left);
    const int come = nodes->is_server && !err ? count_come(nodes, &err) : 0;

    while (!err && left + ko_losses_count(nodes) < come && !ko_deadline_passed(&deadline)) {
        poll(NULL, 0, NAP_MS);
        err = kolo_store_add(nodes->keys, "left", 0, &left);
    }
    ko_losses_close(nodes);
    kolo_store_close(nodes->keys);
    kolo_store_close(nodes->store);
    nodes->keys = nodes->store = NULL;
}

/* ---- an attempt -------------------------------------------------------------------------- */

/* Machine 0's address, by default that on the way to the store, and its port. */
static int publish_master(struct ko_nodes *nodes, int attempt, int port)
{
    char host[KO_INTERFACE_TEXT], text[KO_NODES_TEXT];
    int err = ko_interface_wanted(host, sizeof host)
                  ? KOLO_OK
                  : ko_store_own_address(nodes->store, host, sizeof host);

    snprintf(text, sizeof text, "%d %.200s", port, host);
    return err ? err : ko_nodes_set(nodes, attempt, "master", text);
}

/* "3 ?machine 1: rank 5 ended with exit code 3", or with "!" for good. */
static enum ko_nodes_state read_failure(struct ko_nodes *nodes, int attempt, int *code,
                                        char how[KO_NODES_TEXT])
{
    char text[KO_NODES_TEXT + 16], *end;

    if (ko_nodes_get(nodes, attempt, "failed", text))
        return KO_NODES_LOST;
    *code = (int)strtol(text, &end, 10);
    if (end[0] != ' ' || !end[1])
        return KO_NODES_LOST;
    snprintf(how, KO_NODES_TEXT, "%s", end + 2);
    return end[1] == '?' ? KO_NODES_FAILED : KO_NODES_ENDED;
}

/* "1, 3": the machines whose key prefix/K is there, or is not. */
static void list_machines(struct ko_nodes *nodes, const char *prefix, bool is_there, char list[128])
{
    char key[48];
    const char *keys[] = {key};
    int exists, err = KOLO_OK;

    *list = 0;
    for (int i = 0; i < nodes->nnodes && !err && strlen(list) < 112; i++) {
        snprintf(key, sizeof key, "%s/%d", prefix, i);
        err = kolo_store_check(nodes->keys, keys, 1, &exists);
        if (!err && is_there == (exists != 0))
            snprintf(list + strlen(list), 128 - strlen(list), "%s%d", *list ? ", " : "", i);
    }
}

static int fail_missing(struct ko_nodes *nodes, int attempt, const ko_deadline *deadline)
{
    char list[128], prefix[32];

    name_key(attempt, "here", prefix, sizeof prefix);
    list_machines(nodes, prefix, false, list);
    return ko_fail(KOLO_E_TIMEOUT, "waited %d ms for %d machines; not there: machine %s",
                   deadline->timeout_ms, nodes->nnodes, list);
}

/* For machines that wait for others, of which some have left: why, if they have said so. */
static int fail_left(struct ko_nodes *nodes, int attempt)
{
    char how[KO_NODES_TEXT], list[128];
    int err = KOLO_OK;

    if (ko_nodes_has(nodes, attempt, "failed", &err) &&
        read_failure(nodes, attempt, &nodes->code, how) != KO_NODES_LOST)
        return ko_fail(KOLO_E_PEER_LOST, "%s", how);
    list_machines(nodes, "left", true, list);
    return ko_fail(KOLO_E_PEER_LOST, "machine %s has left, so there is no further attempt", list);
}

/* KOLO_E_ABORTED if a signal has come that ends a job; others are for ranks, and there are none. */
static int read_signals(struct ko_nodes *nodes, int signal_fd)
{
    struct signalfd_siginfo info;

    while (read(signal_fd, &info, sizeof info) == sizeof info)
        if (info.ssi_signo != SIGUSR1 && info.ssi_signo != SIGUSR2 && info.ssi_signo != SIGCHLD) {
            nodes->code = KO_EXIT_SIGNAL + (int)info.ssi_signo;
            return ko_fail(KOLO_E_ABORTED, "it was told to end");
        }
    return KOLO_OK;
}

/* What may end the wait for others: they are all there, or somebody has left. */
static int look_for_others(struct ko_nodes *nodes, int attempt, bool *is_ready)
{
    int64_t left = 0;
    int err;

    *is_ready = ko_nodes_has(nodes, attempt, "ready", &err);
    if (*is_ready || err)
        return err;
    err = ko_losses_tend(nodes, attempt);
    if (err)
        return err;
    err = kolo_store_add(nodes->keys, "left", 0, &left);
    if (err || !left)
        return err;
    *is_ready =
        ko_nodes_has(nodes, attempt, "ready", &err); /* who left may have met all others first */
    return *is_ready || err ? err : fail_left(nodes, attempt);
}

static int check_limits(struct ko_nodes *nodes, int attempt, const ko_deadline *deadline)
{
    if (ko_deadline_passed(deadline))
        return fail_missing(nodes, attempt, deadline);
    if (!nodes->limit || !ko_deadline_passed(nodes->limit))
        return KOLO_OK;
    return fail_limit(nodes, "all machines had met");
}

static int wait_ready(struct ko_nodes *nodes, int attempt, int signal_fd)
{
    int timeout_ms = nodes->join_ms;
    bool is_ready = false;
    int err = ko_config_timeout(&timeout_ms);
    ko_deadline deadline = ko_deadline_in(timeout_ms);

    if (!err)
        err = look_for_others(nodes, attempt, &is_ready);
    while (!err && !is_ready) {
        struct pollfd signals = {.fd = signal_fd, .events = POLLIN};

        if (poll(&signals, 1, NAP_MS) > 0)
            err = read_signals(nodes, signal_fd);
        if (!err)
            err = check_limits(nodes, attempt, &deadline);
        if (!err)
            err = look_for_others(nodes, attempt, &is_ready);
    }
    return err;
}

static int come(struct ko_nodes *nodes, int attempt, int port)
{
    char here[32];
    int err = claim_again(nodes);

    snprintf(here, sizeof here, "here/%d", nodes->node_rank);
    if (!err && nodes->node_rank == 0)
        err = publish_master(nodes, attempt, port);
    if (!err)
        err = ko_nodes_set(nodes, attempt, here, "1");
    return err ? err : count(nodes, attempt, "come", "ready");
}

int ko_nodes_meet(struct ko_nodes *nodes, int attempt, int signal_fd, char master[KO_NODES_TEXT],
                  int *port)
{
    char text[KO_NODES_TEXT + 16], *host;
    int err;

    nodes->is_done = false;
    nodes->is_meeting = true;
    nodes->code = 0;
    err = come(nodes, attempt, *port);
    if (!err)
        err = wait_ready(nodes, attempt, signal_fd);
    nodes->is_meeting = false;
    if (!err)
        err = ko_nodes_get(nodes, attempt, "master", text);
    if (err)
        return err;
    ko_losses_begin(nodes);
    *port = (int)strtol(text, &host, 10);
    snprintf(master, KO_NODES_TEXT, "%s", *host ? host + 1 : host);
    return KOLO_OK;
}

int ko_nodes_set_failed(struct ko_nodes *nodes, int attempt, int code, char kind, const char *how)
{
    char key[48], text[KO_NODES_TEXT + 16];
    void *value;
    size_t nbytes;
    int err;

    name_key(attempt, "failed", key, sizeof key);
    snprintf(text, sizeof text, "%d %c%s", code, kind, how);
    err = kolo_store_compare_set(nodes->keys, key, (kolo_bytes){NULL, 0},
                                 (kolo_bytes){text, strlen(text)}, &value, &nbytes);
    if (!err)
        kolo_free(value);
    return err;
}

/* What was lost with a machine may have made the ranks here fail: then that is to be said first. */
void ko_nodes_fail(struct ko_nodes *nodes, int attempt, int code, const char *how, bool is_final)
{
    char text[KO_NODES_TEXT];

    if (!nodes->is_admitted || nodes->is_lost)
        return;
    if (!is_final)
        ko_losses_tend(nodes, attempt);
    snprintf(text, sizeof text, "machine %d: %.200s", nodes->node_rank, how);
    ko_nodes_set_failed(nodes, attempt, code, is_final ? '!' : '?', text);
}

bool ko_nodes_has_loss(struct ko_nodes *nodes, int attempt, char how[KO_NODES_TEXT])
{
    char text[KO_NODES_TEXT + 16];
    int err;

    if (!nodes->is_admitted || nodes->is_lost || ko_losses_tend(nodes, attempt) ||
        !ko_nodes_has(nodes, attempt, "lost", &err) || ko_nodes_get(nodes, attempt, "lost", text))
        return false;
    snprintf(how, KO_NODES_TEXT, "%.255s", text);
    return true;
}

void ko_nodes_finish(struct ko_nodes *nodes, int attempt)
{
    if (!nodes->store || nodes->is_done || nodes->is_lost)
        return;
    nodes->is_done = true;
    count(nodes, attempt, "done", "over");
}

static enum ko_nodes_state lose_server(struct ko_nodes *nodes, int err, int *code,
                                       char how[KO_NODES_TEXT])
{
    char silent[48] = "has gone";

    nodes->is_lost = true;
    *code = KO_NODES_LOST_CODE;
    if (err == KOLO_E_TIMEOUT)
        snprintf(silent, sizeof silent, "has not answered for %d s", ANSWER_MS / 1000);
    snprintf(how, KO_NODES_TEXT, "the kolorun that serves all machines, at %.150s, %s",
             nodes->endpoint, silent);
    return KO_NODES_LOST;
}

enum ko_nodes_state ko_nodes_check(struct ko_nodes *nodes, int attempt, int *code,
                                   char how[KO_NODES_TEXT])
{
    enum ko_nodes_state state = KO_NODES_RUNNING;
    int err = ko_losses_tend(nodes, attempt);

    if (!err && ko_nodes_has(nodes, attempt, "failed", &err))
        state = read_failure(nodes, attempt, code, how);
    else if (!err && ko_nodes_has(nodes, attempt, "over", &err))
        state = KO_NODES_OVER;
    if (!err && state != KO_NODES_LOST)
        return state;
    return lose_server(nodes, err, code, how);
}

void ko_nodes_stay(struct ko_nodes *nodes, int attempt)
{
    char how[KO_NODES_TEXT];
    int code;
    int err = ko_losses_tend(nodes, attempt);

    if (err)
        lose_server(nodes, err, &code, how);
}
