/* SPDX-License-Identifier: MIT
 *
 * Connecting to a host that may have several addresses, some of which lead nowhere. In each round
 * all of them race: the families take turns, each starts a little after the one before it, or as
 * soon as that has failed, and the first that is there wins. One that has failed starts again,
 * after a pause, while another is still open: that one may lead nowhere, and keep the round for as
 * long as it may take. A round without a winner is followed by a pause. The pauses grow, with some
 * jitter so that the ranks of a job do not knock in step.
 */
#include "socket.h"

#include "look_up.h"
#include "status.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    RACERS = 16,
    LEAD_MS = 100,
    FIRST_ROUND_MS = 2000,
    LONGEST_ROUND_MS = 20000,
    FIRST_PAUSE_MS = 50,
    LONGEST_PAUSE_MS = 2000,
    LOOK_MS = 50,   /* between looks at whether a search is to end */
    HASTY_MS = 100, /* a silence that is no longer than this tells nothing */
    ADDRESS = 64,
    CAUSE = 240
};

struct racer {
    const struct addrinfo *address;
    int fd;    /* -1: not started, or failed */
    int error; /* of its last failure */
    int tries;
    int pause_ms; /* after its next failure */
    int64_t started_ns;
    ko_deadline next_try; /* if it has failed */
};

struct race {
    int nracers, nstarted;
    int tries; /* of the racer that was tried most often */
    struct racer racers[RACERS];
    ko_deadline next_start;
    const atomic_bool *is_stopped; /* NULL: nobody stops it */
};

struct search {
    const char *host;
    int port;
    int tries;
    int round_ms;
    const atomic_bool *is_stopped; /* as in a race */
    char cause[CAUSE];             /* of the last round's failure */
};

/* Relaxed: nothing that another thread has written is read because of it. */
static bool is_set(const atomic_bool *flag)
{
    return flag && atomic_load_explicit(flag, memory_order_relaxed);
}

static int at_most(int ms, const atomic_bool *is_stopped)
{
    return is_stopped && ms > LOOK_MS ? LOOK_MS : ms;
}

/* Give or take a quarter. */
static int about(int ms)
{
    uint64_t mix = ((uint64_t)ko_now_ns() ^ (uint64_t)getpid() << 20) * 0x9E3779B97F4A7C15u;

    return ms * 3 / 4 + (int)((mix >> 33) % (uint64_t)(ms / 2 + 1));
}

static int longer_pause(int ms)
{
    return ms * 3 / 2 < LONGEST_PAUSE_MS ? ms * 3 / 2 : LONGEST_PAUSE_MS;
}

/* ---- one round ---------------------------------------------------------------------------- */

/* The families in turns, beginning with that which the system puts first. */
static void line_up(struct race *race, const struct addrinfo *list)
{
    const struct addrinfo *same = list, *other = list;
    const struct addrinfo **turn = &same;
    bool is_same;

    while ((same || other) && race->nracers < RACERS) {
        is_same = turn == &same;
        while (*turn && ((*turn)->ai_family == list->ai_family) != is_same)
            *turn = (*turn)->ai_next;
        if (*turn) {
            race->racers[race->nracers++] =
                (struct racer){.address = *turn, .fd = -1, .pause_ms = FIRST_PAUSE_MS};
            *turn = (*turn)->ai_next;
        }
        turn = is_same ? &other : &same;
    }
}

static void fail_racer(struct racer *racer, int error)
{
    if (racer->fd >= 0)
        close(racer->fd);
    racer->fd = -1;
    racer->error = error;
    racer->next_try = ko_deadline_in(about(racer->pause_ms));
    racer->pause_ms = longer_pause(racer->pause_ms);
}

static bool is_hopeless(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

/* 0, or an errno that is of this machine rather than of the address. */
static int start(struct race *race, struct racer *racer)
{
    const int error =
        ko_socket_start(racer->address->ai_addr, racer->address->ai_addrlen, &racer->fd);

    racer->started_ns = ko_now_ns();
    racer->tries++;
    if (racer->tries > race->tries)
        race->tries = racer->tries;
    if (error)
        fail_racer(racer, error);
    return is_hopeless(error) ? error : 0;
}

static int start_next(struct race *race)
{
    race->next_start = ko_deadline_in(LEAD_MS);
    return start(race, &race->racers[race->nstarted++]);
}

static int start_again(struct race *race)
{
    int error = 0;

    for (int i = 0; i < race->nstarted && !error; i++)
        if (race->racers[i].fd < 0 && ko_deadline_passed(&race->racers[i].next_try))
            error = start(race, &race->racers[i]);
    return error;
}

/* Looks at who runs. The winner, or NULL; *running is how many are left. */
static struct racer *look(struct race *race, int *running)
{
    int error;

    *running = 0;
    for (int i = 0; i < race->nstarted; i++) {
        if (race->racers[i].fd < 0)
            continue;
        error = ko_socket_connect_error(race->racers[i].fd);
        if (!error)
            return &race->racers[i];
        if (error == EINPROGRESS)
            (*running)++;
        else
            fail_racer(&race->racers[i], error);
    }
    return NULL;
}

static ko_deadline earlier(ko_deadline one, ko_deadline other)
{
    return one.at_ns < other.at_ns ? one : other;
}

static void wait_for_news(const struct race *race, const ko_deadline *limit)
{
    struct pollfd entries[RACERS];
    ko_deadline next = *limit;
    nfds_t n = 0;

    if (race->nstarted < race->nracers)
        next = earlier(next, race->next_start);
    for (int i = 0; i < race->nstarted; i++)
        if (race->racers[i].fd >= 0)
            entries[n++] = (struct pollfd){.fd = race->racers[i].fd, .events = POLLOUT};
        else
            next = earlier(next, race->racers[i].next_try);
    poll(entries, n, at_most(ko_deadline_left_ms(&next), race->is_stopped));
}

/* At the end of a round. One that has only just begun again has failed as it did before. */
static void give_up(struct racer *racer)
{
    const bool is_hasty = ko_now_ns() - racer->started_ns < HASTY_MS * 1000000LL;

    fail_racer(racer, racer->tries > 1 && is_hasty ? racer->error : ETIMEDOUT);
}

/* 0 and *fd, or an errno: EAGAIN if nobody has won. */
static int run_race(struct race *race, const ko_deadline *limit, int *fd)
{
    struct racer *winner = NULL;
    int running = 0;
    int error = 0;

    while (!winner && !error) {
        if (race->nstarted < race->nracers &&
            (running == 0 || ko_deadline_passed(&race->next_start)))
            error = start_next(race);
        else if (running > 0)
            error = start_again(race);
        winner = look(race, &running);
        if (winner || (running == 0 && race->nstarted < race->nracers))
            continue;
        if (running == 0 || ko_deadline_passed(limit) || is_set(race->is_stopped))
            error = error ? error : EAGAIN;
        else
            wait_for_news(race, limit);
    }
    if (winner) {
        *fd = winner->fd;
        winner->fd = -1;
        error = 0;
    }
    for (int i = 0; i < race->nstarted; i++)
        if (race->racers[i].fd >= 0)
            give_up(&race->racers[i]);
    return error;
}

/* "10.0.0.1: Connection refused, ::1: Network is unreachable" */
static void say_causes(const struct race *race, char *cause, size_t cap)
{
    char address[ADDRESS];
    size_t used = 0;

    cause[0] = '\0';
    for (int i = 0; i < race->nstarted && used < cap; i++) {
        const struct racer *racer = &race->racers[i];

        if (getnameinfo(racer->address->ai_addr, racer->address->ai_addrlen, address,
                        sizeof address, NULL, 0, NI_NUMERICHOST))
            snprintf(address, sizeof address, "?");
        used += (size_t)snprintf(cause + used, cap - used, "%s%s: %s", i ? ", " : "", address,
                                 strerror(racer->error));
    }
}

static int race_of(struct race *race, const struct addrinfo *list, const ko_deadline *limit,
                   int *fd, char *cause, size_t cap)
{
    int error;

    line_up(race, list);
    error = run_race(race, limit, fd);
    if (error == EAGAIN)
        say_causes(race, cause, cap);
    return error;
}

int ko_socket_race(const struct addrinfo *list, const ko_deadline *limit, int *fd, char *cause,
                   size_t cap)
{
    struct race race = {0};

    return race_of(&race, list, limit, fd, cause, cap);
}

bool ko_socket_is_refused(const char *host, int port)
{
    const ko_deadline soon = ko_deadline_in(HASTY_MS);
    struct race race = {0};
    struct addrinfo *list;
    bool is_refused = true;
    int fd = -1;

    if (ko_look_up(host, port, 0, &soon, &list))
        return false;
    line_up(&race, list);
    if (!run_race(&race, &soon, &fd))
        close(fd);
    freeaddrinfo(list);
    for (int i = 0; i < race.nracers; i++)
        is_refused = is_refused && race.racers[i].error == ECONNREFUSED;
    return fd < 0 && is_refused;
}

/* What has failed for want of time says less than the failure before it. */
static void note_cause(struct search *search, bool is_hasty, const char *cause)
{
    if (!is_hasty || !*search->cause)
        snprintf(search->cause, sizeof search->cause, "%s", cause);
}

/* KOLO_OK, KO_AGAIN with search->cause, or an error that waiting will not mend. */
static int search_once(struct search *search, const ko_deadline *deadline, int *fd)
{
    const bool is_hasty = ko_deadline_left_ms(deadline) < HASTY_MS;
    struct race race = {.is_stopped = search->is_stopped};
    struct addrinfo *list;
    ko_deadline limit;
    char cause[CAUSE];
    int error = ko_look_up(search->host, search->port, 0, deadline, &list);

    if (error) {
        search->tries++;
        note_cause(search, is_hasty, ko_look_up_error(error));
        return KO_AGAIN; /* the name of a host that is still starting may appear later */
    }
    limit = ko_deadline_within(deadline, search->round_ms);
    error = race_of(&race, list, &limit, fd, cause, sizeof cause);
    search->tries += race.tries;
    freeaddrinfo(list);
    if (error == EAGAIN)
        note_cause(search, is_hasty, cause);
    else if (error)
        return ko_fail_errno(error, "cannot make a socket to connect to %s:%d", search->host,
                             search->port);
    return error ? KO_AGAIN : KOLO_OK;
}

/* ---- until the deadline ------------------------------------------------------------------- */

void ko_socket_pause(int ms, const atomic_bool *is_stopped)
{
    const ko_deadline end = ko_deadline_in(ms);

    while (!is_set(is_stopped) && !ko_deadline_passed(&end))
        poll(NULL, 0, at_most(ko_deadline_left_ms(&end), is_stopped));
}

/* Not past the deadline. */
static void pause_about(int base_ms, const ko_deadline *deadline, const atomic_bool *is_stopped)
{
    int ms = about(base_ms);
    int left = ko_deadline_left_ms(deadline);

    ko_socket_pause(ms < left ? ms : left, is_stopped);
}

int ko_socket_connect(const char *host, int port, const ko_deadline *deadline, int *fd)
{
    return ko_socket_connect_unless(host, port, deadline, NULL, fd);
}

int ko_socket_connect_unless(const char *host, int port, const ko_deadline *deadline,
                             const atomic_bool *is_stopped, int *fd)
{
    struct search search = {
        .host = host, .port = port, .round_ms = FIRST_ROUND_MS, .is_stopped = is_stopped};
    int pause_ms = FIRST_PAUSE_MS;
    int err;

    if (!host || !*host || port < 1 || port > 65535)
        return ko_fail(KOLO_E_INVALID,
                       "cannot connect to \"%s:%d\": give a host and a port from 1 "
                       "to 65535",
                       host ? host : "", port);
    for (;;) {
        err = search_once(&search, deadline, fd);
        if (err != KO_AGAIN)
            return err;
        if (is_set(is_stopped))
            return ko_fail(KOLO_E_ABORTED, "connecting to %s:%d was stopped", host, port);
        if (ko_deadline_passed(deadline))
            return ko_fail(KOLO_E_TIMEOUT,
                           "cannot connect to %s:%d within %d ms: %s (tried %d time%s); is it "
                           "running there, and does a firewall let it through?",
                           host, port, deadline->timeout_ms, search.cause, search.tries,
                           search.tries == 1 ? "" : "s");
        pause_about(pause_ms, deadline, is_stopped);
        pause_ms = longer_pause(pause_ms);
        if (search.round_ms < LONGEST_ROUND_MS)
            search.round_ms *= 2;
    }
}
