/* SPDX-License-Identifier: MIT
 *
 * Keys of an attempt A begin with "A/": master, here/K and come (machines that have begun), ready,
 * failed, done (machines that have finished), over. left counts those that have gone.
 */
#include "launch_nodes.h"

#include "clock.h"
#include "config.h"
#include "meeting.h"
#include "status.h"
#include "store.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAP_MS = 20, LEAVE_MS = 5000 };

static void name_key(int attempt, const char *name, char *key, size_t cap)
{
    snprintf(key, cap, "%d/%s", attempt, name);
}

static int set_text(struct ko_nodes *nodes, int attempt, const char *name, const char *text)
{
    char key[48];

    name_key(attempt, name, key, sizeof key);
    return kolo_store_set(nodes->keys, key, (kolo_bytes){text, strlen(text)});
}

static int get_text(struct ko_nodes *nodes, int attempt, const char *name,
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

/* False too if the store has gone, which *err says. */
static bool has(struct ko_nodes *nodes, int attempt, const char *name, int *err)
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
        err = set_text(nodes, attempt, then, "1");
    return err;
}

/* ---- the store --------------------------------------------------------------------------- */

static int number_machine(struct ko_nodes *nodes)
{
    int64_t n;
    int err = KOLO_OK;

    if (nodes->node_rank >= 0)
        return KOLO_OK;
    err = kolo_store_add(nodes->keys, "machines", 1, &n);
    if (!err && n > nodes->nnodes)
        err = ko_fail(KOLO_E_INVALID, "%lld machines have come, but --nnodes is %d", (long long)n,
                      nodes->nnodes);
    if (!err)
        nodes->node_rank = (int)n - 1;
    return err;
}

int ko_nodes_open(struct ko_nodes *nodes, const char *name, int port, const char *run_id)
{
    char prefix[128], host[KO_HOST_TEXT];
    int err = KOLO_E_SYSTEM;

    ko_meeting_reachable(name, host);
    nodes->is_server = nodes->node_rank <= 0;
    if (nodes->is_server)
        err = kolo_store_open_tcp(host, port, 1, -1, &nodes->store);
    if (err && nodes->node_rank != 0) {
        nodes->is_server = false;
        err = kolo_store_open_tcp(host, port, 0, -1, &nodes->store);
    }
    if (err)
        return err;
    snprintf(prefix, sizeof prefix, "kolorun/%.100s", run_id);
    err = kolo_store_open_prefix(nodes->store, prefix, &nodes->keys);
    return err ? err : number_machine(nodes);
}

void ko_nodes_close(struct ko_nodes *nodes)
{
    ko_deadline deadline = ko_deadline_in(LEAVE_MS);
    int64_t left = 0;
    int err = nodes->keys ? kolo_store_add(nodes->keys, "left", 1, &left) : KOLO_E_INVALID;

    while (!err && nodes->is_server && left < nodes->nnodes && !ko_deadline_passed(&deadline)) {
        poll(NULL, 0, NAP_MS);
        err = kolo_store_add(nodes->keys, "left", 0, &left);
    }
    kolo_store_close(nodes->keys);
    kolo_store_close(nodes->store);
    nodes->keys = nodes->store = NULL;
}

/* ---- an attempt -------------------------------------------------------------------------- */

/* Machine 0's address on the way to the store, and its port. */
static int publish_master(struct ko_nodes *nodes, int attempt, int port)
{
    char host[200], text[KO_NODES_TEXT];
    int err = ko_store_own_address(nodes->store, host, sizeof host);

    snprintf(text, sizeof text, "%d %s", port, host);
    return err ? err : set_text(nodes, attempt, "master", text);
}

static int fail_missing(struct ko_nodes *nodes, int attempt, const ko_deadline *deadline)
{
    char list[128] = "", name[32];
    int err = KOLO_OK;

    for (int i = 0; i < nodes->nnodes && strlen(list) < sizeof list - 16; i++) {
        snprintf(name, sizeof name, "here/%d", i);
        if (!has(nodes, attempt, name, &err) && !err)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%d", *list ? ", " : "", i);
    }
    return ko_fail(KOLO_E_TIMEOUT, "waited %d ms for %d machines; not there: machine %s",
                   deadline->timeout_ms, nodes->nnodes, list);
}

static int wait_ready(struct ko_nodes *nodes, int attempt, int stop_fd)
{
    int64_t timeout_ms = 0;
    struct pollfd stop = {.fd = stop_fd, .events = POLLIN};
    int err = ko_config_number(KO_CONFIG_TIMEOUT_MS, &timeout_ms);
    ko_deadline deadline = ko_deadline_in((int)timeout_ms);

    while (!err && !has(nodes, attempt, "ready", &err) && !err) {
        if (ko_deadline_passed(&deadline))
            return fail_missing(nodes, attempt, &deadline);
        if (poll(&stop, 1, NAP_MS) > 0)
            return ko_fail(KOLO_E_ABORTED, "a signal came");
    }
    return err;
}

int ko_nodes_meet(struct ko_nodes *nodes, int attempt, int stop_fd, char master[KO_NODES_TEXT],
                  int *port)
{
    char text[KO_NODES_TEXT + 16], here[32], *host;
    int err = KOLO_OK;

    nodes->is_done = false;
    snprintf(here, sizeof here, "here/%d", nodes->node_rank);
    if (nodes->node_rank == 0)
        err = publish_master(nodes, attempt, *port);
    if (!err)
        err = set_text(nodes, attempt, here, "1");
    if (!err)
        err = count(nodes, attempt, "come", "ready");
    if (!err)
        err = wait_ready(nodes, attempt, stop_fd);
    if (!err)
        err = get_text(nodes, attempt, "master", text);
    if (err)
        return err;
    *port = (int)strtol(text, &host, 10);
    snprintf(master, KO_NODES_TEXT, "%s", *host ? host + 1 : host);
    return KOLO_OK;
}

void ko_nodes_fail(struct ko_nodes *nodes, int attempt, int code, const char *how, bool is_final)
{
    char key[48], text[KO_NODES_TEXT];
    void *value;
    size_t nbytes;

    if (!nodes->store)
        return;
    name_key(attempt, "failed", key, sizeof key);
    snprintf(text, sizeof text, "%d %cmachine %d: %s", code, is_final ? '!' : '?', nodes->node_rank,
             how);
    if (!kolo_store_compare_set(nodes->keys, key, (kolo_bytes){NULL, 0},
                                (kolo_bytes){text, strlen(text)}, &value, &nbytes))
        kolo_free(value);
}

void ko_nodes_finish(struct ko_nodes *nodes, int attempt)
{
    if (!nodes->store || nodes->is_done)
        return;
    nodes->is_done = true;
    count(nodes, attempt, "done", "over");
}

/* "3 ?machine 1: rank 5 ended with exit code 3", or with "!" for good. */
static enum ko_nodes_state read_failure(struct ko_nodes *nodes, int attempt, int *code,
                                        char how[KO_NODES_TEXT])
{
    char text[KO_NODES_TEXT + 16], *end;

    if (get_text(nodes, attempt, "failed", text))
        return KO_NODES_LOST;
    *code = (int)strtol(text, &end, 10);
    if (end[0] != ' ' || !end[1])
        return KO_NODES_LOST;
    snprintf(how, KO_NODES_TEXT, "%s", end + 2);
    return end[1] == '?' ? KO_NODES_FAILED : KO_NODES_ENDED;
}

enum ko_nodes_state ko_nodes_check(struct ko_nodes *nodes, int attempt, int *code,
                                   char how[KO_NODES_TEXT])
{
    enum ko_nodes_state state = KO_NODES_RUNNING;
    int err = KOLO_OK;

    if (has(nodes, attempt, "failed", &err))
        state = read_failure(nodes, attempt, code, how);
    else if (!err && has(nodes, attempt, "over", &err))
        state = KO_NODES_OVER;
    if (!err && state != KO_NODES_LOST)
        return state;
    *code = KO_NODES_LOST_CODE;
    snprintf(how, KO_NODES_TEXT, "the kolorun that serves all machines has gone");
    return KO_NODES_LOST;
}
