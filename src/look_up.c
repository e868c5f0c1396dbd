/* SPDX-License-Identifier: MIT
 *
 * A thread for each name, which is left behind at the deadline, and then ends by itself: nothing
 * stops a getaddrinfo.
 */
#include "look_up.h"

#include "log.h"
#include "status.h"
#include "thread.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { SLOW_MS = 1000 };

struct look_up {
    pthread_mutex_t lock;
    pthread_cond_t end;
    bool has_ended, is_left; /* these and the next two under the lock */
    int error;
    struct addrinfo *list;
    struct addrinfo hints;
    char service[16];
    char host[NI_MAXHOST];
};

static void free_look_up(struct look_up *it)
{
    if (it->list)
        freeaddrinfo(it->list);
    pthread_cond_destroy(&it->end);
    pthread_mutex_destroy(&it->lock);
    free(it);
}

static void *look(void *argument)
{
    struct look_up *it = argument;
    struct addrinfo *list = NULL;
    int error = getaddrinfo(it->host, it->service, &it->hints, &list);
    bool is_left;

    pthread_mutex_lock(&it->lock);
    it->error = error;
    it->list = error ? NULL : list;
    it->has_ended = true;
    is_left = it->is_left;
    pthread_cond_signal(&it->end);
    pthread_mutex_unlock(&it->lock);
    if (is_left)
        free_look_up(it);
    return NULL;
}

/* With the lock held. */
static void await_until(struct look_up *it, const ko_deadline *deadline)
{
    const struct timespec at = ko_deadline_timespec(deadline);

    while (!it->has_ended && !ko_deadline_passed(deadline))
        pthread_cond_timedwait(&it->end, &it->lock, &at);
}

/* True if it has ended; else its thread frees it. */
static bool await(struct look_up *it, const ko_deadline *deadline)
{
    const ko_deadline soon = ko_deadline_within(deadline, SLOW_MS);
    bool has_ended;

    pthread_mutex_lock(&it->lock);
    await_until(it, &soon);
    if (!it->has_ended && !ko_deadline_passed(deadline)) {
        ko_log(KO_LOG_WARN,
               "the address of \"%.200s\" is still looked up after %d ms: the name server is "
               "silent; an address in place of the name needs none",
               it->host, SLOW_MS);
        await_until(it, deadline);
    }
    has_ended = it->has_ended;
    it->is_left = !has_ended;
    pthread_mutex_unlock(&it->lock);
    return has_ended;
}

static int look_beside(struct look_up *it, const ko_deadline *deadline, struct addrinfo **list)
{
    pthread_t thread;
    int error;

    if (ko_thread_start(&thread, look, it, "a thread that looks up a host's name")) {
        error = getaddrinfo(it->host, it->service, &it->hints, list);
        free_look_up(it);
        return error;
    }
    if (!await(it, deadline)) {
        pthread_detach(thread);
        return EAI_INPROGRESS;
    }
    pthread_join(thread, NULL);
    error = it->error;
    *list = it->list;
    it->list = NULL;
    free_look_up(it);
    return error;
}

static int look_up_name(const char *host, const char *service, const struct addrinfo *hints,
                        const ko_deadline *deadline, struct addrinfo **list)
{
    struct look_up *it = ko_alloc(sizeof *it, "a host's name");

    if (!it)
        return EAI_MEMORY;
    *it = (struct look_up){.hints = *hints};
    pthread_mutex_init(&it->lock, NULL);
    ko_condition_init(&it->end);
    snprintf(it->service, sizeof it->service, "%s", service);
    snprintf(it->host, sizeof it->host, "%s", host);
    return look_beside(it, deadline, list);
}

int ko_look_up(const char *host, int port, int flags, const ko_deadline *deadline,
               struct addrinfo **list)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = flags | AI_NUMERICSERV | AI_NUMERICHOST};
    char service[16];
    int error;

    snprintf(service, sizeof service, "%d", port);
    error = getaddrinfo(host && *host ? host : NULL, service, &hints, list);
    if (error != EAI_NONAME || !host || !*host)
        return error;
    hints.ai_flags &= ~AI_NUMERICHOST;
    return look_up_name(host, service, &hints, deadline, list);
}

const char *ko_look_up_error(int error)
{
    return error == EAI_INPROGRESS ? "its name was not looked up in time: the name server is silent"
                                   : gai_strerror(error);
}
