/* SPDX-License-Identifier: MIT
 *
 * Where nobody has given an address, rank 0 serves the store on a port that the system chooses and
 * shares "host port" through the launcher. It shares what went wrong, too, so that no rank waits
 * for a server that cannot be.
 */
#include "meeting.h"

#include "interface.h"
#include "log.h"
#include "look_up.h"
#include "pmi.h"
#include "pmix.h"
#include "secret_token.h"
#include "status.h"
#include "store.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { LOOK_UP_MS = 2000 };

/* What rank 0 shares instead of an address. */
static const char no_server[] = "none";

/* ---- addresses --------------------------------------------------------------------------- */

void ko_meeting_own_address(char host[KO_HOST_TEXT])
{
    if (!ko_interface_wanted(host, KO_HOST_TEXT) && !ko_interface_address(NULL, host, KO_HOST_TEXT))
        snprintf(host, KO_HOST_TEXT, "127.0.0.1");
}

static bool is_on_one_node(const struct ko_placement *placement)
{
    return placement->nnodes == 1 || placement->local_size == placement->size;
}

/* As it is spelled, so that all ranks find the same. */
static bool is_at_loopback(const struct ko_placement *placement)
{
    return !strcmp(placement->host, "localhost") || !strncmp(placement->host, "127.", 4) ||
           !strcmp(placement->host, "::1");
}

bool ko_meeting_is_kept_here(const struct ko_placement *placement)
{
    return placement->meeting == KO_MEET_RANK0 && !is_on_one_node(placement) &&
           is_at_loopback(placement);
}

static void choose_address(const struct ko_placement *placement, char host[KO_HOST_TEXT])
{
    if (is_on_one_node(placement))
        snprintf(host, KO_HOST_TEXT, "127.0.0.1");
    else
        ko_meeting_own_address(host);
}

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 ==
               IN_LOOPBACKNET;
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

/* Names and numbers that mean the loopback to whoever writes them. */
static bool is_meant(const char *host)
{
    unsigned char bytes[sizeof(struct in6_addr)];

    return strstr(host, "localhost") || inet_pton(AF_INET, host, bytes) == 1 || strchr(host, ':');
}

static void stand_in(enum ko_log_level level, const char *name, const char *why,
                     char host[KO_HOST_TEXT])
{
    ko_meeting_own_address(host);
    ko_log(level, "%s %s; %s stands for it, KOLO_IFADDR would choose another", name, why, host);
}

/* 0, or an error of ko_look_up, with which host is the name. A name server that is silent leaves
 * most of the time for what goes without it, or for who asks it again. */
static int find_reachable(const char *name, const ko_deadline *deadline, char host[KO_HOST_TEXT])
{
    const int part_ms = ko_deadline_left_ms(deadline) / 4;
    const ko_deadline soon =
        ko_deadline_within(deadline, part_ms < LOOK_UP_MS ? part_ms : LOOK_UP_MS);
    struct addrinfo *list;
    int error;

    snprintf(host, KO_HOST_TEXT, "%s", name);
    if (is_meant(name))
        return 0;
    error = ko_look_up(name, 0, 0, &soon, &list);
    if (error)
        return error;
    /* as many systems have it for their own name */
    if (is_loopback(list->ai_addr))
        stand_in(KO_LOG_INFO, name,
                 "is an address of the loopback here (/etc/hosts?), which other machines do not "
                 "reach",
                 host);
    freeaddrinfo(list);
    return 0;
}

void ko_meeting_reachable(const char *name, const ko_deadline *deadline, char host[KO_HOST_TEXT])
{
    (void)find_reachable(name, deadline, host);
}

/* ---- ways to the store ------------------------------------------------------------------- */

static int open_at(const struct ko_placement *placement, const char *host, int port,
                   const ko_deadline *deadline, kolo_store **store)
{
    char cause[KO_ERROR_TEXT];
    bool is_server = placement->rank == 0;
    int err = kolo_store_open_tcp(host, port, is_server, ko_deadline_left_ms(deadline), store);

    if (!err || is_server)
        return err;
    snprintf(cause, sizeof cause, "%s", kolo_last_error());
    return ko_fail(err, "rank %d does not reach rank 0, which serves the store: %.400s",
                   placement->rank, cause);
}

/* All ranks of a machine find the same address for its name. Rank 0's own may not be known yet, as
 * when a cluster's name server learns it when the machine is ready. */
static int find_rank0(const struct ko_placement *placement, const ko_deadline *deadline,
                      char host[KO_HOST_TEXT])
{
    int error = find_reachable(placement->host, deadline, host);

    if (!error || placement->rank > 0)
        return error;
    stand_in(KO_LOG_WARN, placement->host, "is not known here", host);
    return 0;
}

static int open_at_rank0(const struct ko_placement *placement, const ko_deadline *deadline,
                         kolo_store **store)
{
    char host[KO_HOST_TEXT];

    snprintf(host, sizeof host, "%s", placement->host);
    if (!is_on_one_node(placement))
        (void)find_rank0(placement, deadline, host); /* connecting goes on looking */
    return open_at(placement, host, placement->port, deadline, store);
}

/* A node's name need not be known: not needed on one node, nor by the node itself. */
static int open_at_node0(const struct ko_placement *placement, const ko_deadline *deadline,
                         kolo_store **store)
{
    char host[KO_HOST_TEXT] = "127.0.0.1";
    int error = is_on_one_node(placement) ? 0 : find_rank0(placement, deadline, host);

    if (error && error != EAI_AGAIN && error != EAI_INPROGRESS)
        return ko_fail(KOLO_E_SYSTEM,
                       "rank 0 is on node %s, which has no address here (%s): set KOLO_MASTER to "
                       "its address, or use srun --mpi=pmi2",
                       host, ko_look_up_error(error));
    return open_at(placement, host, placement->port, deadline, store);
}

/* A store of PyTorch's asks for no token and shows none: who has one is to say that it may do so,
 * but within the machine, where only a process of this machine can be in its place. */
static int check_agent(const struct ko_placement *placement)
{
    struct ko_guard guard;
    int err = ko_guard_read_for_store(&guard);

    if (err)
        return err;
    ko_secret_forget(&guard.secret);
    if (guard.has_secret && !is_at_loopback(placement))
        return ko_fail(KOLO_E_INVALID,
                       "this job has a token, of which the launcher's store at %s:%d "
                       "(TORCHELASTIC_USE_AGENT_STORE) asks and shows no proof: set "
                       "KOLO_AUTH_STORE=none on all ranks to meet there all the same, or use "
                       "--rdzv-backend c10d, with which rank 0 serves the store",
                       placement->host, placement->port);
    ko_log(guard.has_secret ? KO_LOG_WARN : KO_LOG_INFO,
           "the launcher's store at %s:%d is joined without proof of a token%s", placement->host,
           placement->port,
           guard.has_secret ? ", though this job has one: it protects only the connections "
                              "between ranks"
                            : "");
    return KOLO_OK;
}

static int open_at_agent(const struct ko_placement *placement, const ko_deadline *deadline,
                         kolo_store **store)
{
    char cause[KO_ERROR_TEXT];
    int err = check_agent(placement);

    if (err)
        return err;
    err = ko_store_join_foreign(placement->host, placement->port, ko_deadline_left_ms(deadline),
                                store);
    if (!err)
        return KOLO_OK;
    snprintf(cause, sizeof cause, "%s", kolo_last_error());
    return ko_fail(err,
                   "rank %d does not reach the launcher's store, which "
                   "TORCHELASTIC_USE_AGENT_STORE promises: %.400s",
                   placement->rank, cause);
}

static int share(const struct ko_placement *placement, char text[KO_PMI_TEXT],
                 const ko_deadline *deadline)
{
    static atomic_int times; /* as often as the other ranks */
    const int64_t began_ns = ko_now_ns();
    struct ko_pmix library;
    char key[24];
    char cause[KO_ERROR_TEXT];
    int err;

    snprintf(key, sizeof key, "kolo%d", atomic_fetch_add(&times, 1));
    if (placement->meeting == KO_MEET_PMI)
        err = ko_pmi_share(placement->pmi_fd, placement->rank, key, text, deadline);
    else if (!(err = ko_pmix_load(&library)))
        err = ko_pmix_share(&library, placement->rank, key, text, KO_PMI_TEXT, deadline);
    if (!err)
        return KOLO_OK;
    snprintf(cause, sizeof cause, "%s", kolo_last_error());
    return ko_fail(err, "rank %d of %d, %lld ms after it began to meet the others: %.500s",
                   placement->rank, placement->size,
                   (long long)((ko_now_ns() - began_ns) / 1000000), cause);
}

/* Rank 0: serves the store, says where, or that it cannot. */
static int open_and_share(const struct ko_placement *placement, const ko_deadline *deadline,
                          kolo_store **store)
{
    char host[KO_HOST_TEXT], text[KO_PMI_TEXT], cause[KO_ERROR_TEXT];
    int err, share_err;

    choose_address(placement, host);
    err = open_at(placement, host, 0, deadline, store);
    snprintf(cause, sizeof cause, "%s", err ? kolo_last_error() : "");
    if (err)
        snprintf(text, sizeof text, "%s", no_server);
    else
        snprintf(text, sizeof text, "[%.200s]:%d", host, kolo_store_port(*store));
    share_err = share(placement, text, deadline);
    if (err)
        return ko_fail_again(err, cause);
    if (share_err)
        kolo_store_close(*store);
    return share_err;
}

static int get_and_open(const struct ko_placement *placement, const ko_deadline *deadline,
                        kolo_store **store)
{
    char text[KO_PMI_TEXT], host[KO_HOST_TEXT];
    int port;
    int err = share(placement, text, deadline);

    if (!err && !strcmp(text, no_server))
        err = ko_fail(KOLO_E_PEER_LOST, "rank 0 cannot serve the store: see its own error");
    if (!err)
        err = ko_address_parse("the address that rank 0 has shared", text, false, host, &port);
    return err ? err : open_at(placement, host, port, deadline, store);
}

/* ---- all of them ------------------------------------------------------------------------- */

bool ko_meeting_has_server(const struct ko_placement *placement)
{
    return placement->meeting != KO_MEET_ALONE && placement->meeting != KO_MEET_AGENT &&
           placement->meeting != KO_MEET_FILE;
}

int ko_meeting_open(const struct ko_placement *placement, const ko_deadline *deadline,
                    kolo_store **store)
{
    switch (placement->meeting) {
    case KO_MEET_ALONE:
        return kolo_store_open_local(store);
    case KO_MEET_RANK0:
        return open_at_rank0(placement, deadline, store);
    case KO_MEET_NODE0:
        return open_at_node0(placement, deadline, store);
    case KO_MEET_AGENT:
        return open_at_agent(placement, deadline, store);
    case KO_MEET_FILE:
        return kolo_store_open_file(placement->host, placement->size, ko_deadline_left_ms(deadline),
                                    store);
    case KO_MEET_PMI:
    case KO_MEET_PMIX:
    default:
        return placement->rank == 0 ? open_and_share(placement, deadline, store)
                                    : get_and_open(placement, deadline, store);
    }
}
