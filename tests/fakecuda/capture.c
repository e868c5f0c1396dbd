/* SPDX-License-Identifier: MIT
 *
 * What threads may do while streams are captured. A capture forbids calls that might have to wait
 * for its stream to the thread that began it and, if it is of the strictest kind, to all others; to
 * those not that have made an exception for themselves. Such a call is an error, and the end of all
 * captures that forbid it.
 */
#include "double.h"

#include <stdlib.h>

struct double_capture {
    uint64_t number;
    pthread_t thread; /* that began it */
    int mode;
    bool is_broken;
    ko_cu_graph graph;
    struct double_capture *next; /* of all */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list, and what is in it */
static struct double_capture *captures;
static uint64_t ncaptures;
static _Thread_local int own_mode = KO_CU_CAPTURE_GLOBAL;

struct double_capture *double_capture_open(int mode)
{
    struct double_capture *capture = calloc(1, sizeof *capture);

    capture->thread = pthread_self();
    capture->mode = mode;
    capture->graph = double_graph_new();
    pthread_mutex_lock(&lock);
    capture->number = ++ncaptures;
    capture->next = captures;
    captures = capture;
    pthread_mutex_unlock(&lock);
    return capture;
}

uint64_t double_capture_number(const struct double_capture *capture)
{
    return capture->number;
}

struct double_capture *double_capture_find(uint64_t number)
{
    struct double_capture *capture;

    pthread_mutex_lock(&lock);
    for (capture = captures; capture && capture->number != number;)
        capture = capture->next;
    pthread_mutex_unlock(&lock);
    return capture;
}

void double_capture_add(struct double_capture *capture, const struct double_task *task,
                        size_t nbytes)
{
    double_graph_add(&capture->graph, task, nbytes);
}

void double_capture_break(struct double_capture *capture)
{
    pthread_mutex_lock(&lock);
    capture->is_broken = true;
    pthread_mutex_unlock(&lock);
}

bool double_capture_is_ended_here(const struct double_capture *capture)
{
    return capture->mode == KO_CU_CAPTURE_RELAXED || pthread_equal(capture->thread, pthread_self());
}

ko_cu_result double_capture_close(struct double_capture *capture, bool are_joined,
                                  ko_cu_graph *graph)
{
    struct double_capture **link = &captures;
    ko_cu_result result = KO_CU_SUCCESS;

    pthread_mutex_lock(&lock);
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    pthread_mutex_unlock(&lock);
    *graph = capture->graph;
    if (capture->is_broken || !are_joined) {
        (void)double_graph_destroy(capture->graph);
        *graph = NULL;
        result = capture->is_broken ? KO_CU_CAPTURE_BROKEN : DOUBLE_CAPTURE_UNJOINED;
    }
    free(capture);
    return result;
}

/* With the lock. */
static bool forbids(const struct double_capture *capture)
{
    const bool is_own = pthread_equal(capture->thread, pthread_self());

    if (own_mode == KO_CU_CAPTURE_RELAXED || capture->mode == KO_CU_CAPTURE_RELAXED)
        return false;
    return is_own || (own_mode == KO_CU_CAPTURE_GLOBAL && capture->mode == KO_CU_CAPTURE_GLOBAL);
}

ko_cu_result double_capture_forbids(void)
{
    ko_cu_result result = KO_CU_SUCCESS;

    pthread_mutex_lock(&lock);
    for (struct double_capture *capture = captures; capture; capture = capture->next)
        if (forbids(capture)) {
            capture->is_broken = true;
            result = KO_CU_CAPTURE_FORBIDS;
        }
    pthread_mutex_unlock(&lock);
    return result;
}

ko_cu_result double_capture_mode(int *mode)
{
    const int before = own_mode;

    if (*mode < KO_CU_CAPTURE_GLOBAL || *mode > KO_CU_CAPTURE_RELAXED)
        return KO_CU_INVALID_VALUE;
    own_mode = *mode;
    *mode = before;
    return KO_CU_SUCCESS;
}
