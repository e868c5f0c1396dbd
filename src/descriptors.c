/* SPDX-License-Identifier: MIT
 *
 * The usual limit of 1024 is there for programs that use select(), which can have no more; the one
 * up to which each process may raise it, for the system's sake. Doubling makes it rare.
 */
#include "descriptors.h"

#include "log.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/resource.h>

enum {
    RESERVE = 64, /* for what is opened meanwhile, here and by the program */
    LOOKS = 1000  /* at a thread that raises the limit */
};

/* Whether that leaves less than the reserve of a limit that may be raised. */
static bool is_near_limit(int newest, struct rlimit *limit)
{
    return !getrlimit(RLIMIT_NOFILE, limit) && limit->rlim_cur < limit->rlim_max &&
           (rlim_t)newest + RESERVE >= limit->rlim_cur;
}

static void raise_limit(int newest)
{
    struct rlimit limit;
    rlim_t before;

    if (!is_near_limit(newest, &limit))
        return;
    before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max / 2 < before ? limit.rlim_max : 2 * before;
    if (!setrlimit(RLIMIT_NOFILE, &limit))
        ko_log(KO_LOG_INFO, "the limit of open files was %llu, and is %llu now",
               (unsigned long long)before, (unsigned long long)limit.rlim_cur);
}

/* One thread at a time: who has read the limit before another raised it would lower it again. The
 * other's raise serves both, so that it is waited for: it may have lost its core on the way. But
 * not for ever, as for a thread that a fork has left behind. */
void ko_descriptors_note(int newest)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct rlimit unused;

    for (int looks = 0; looks < LOOKS && is_near_limit(newest, &unused); looks++) {
        if (!pthread_mutex_trylock(&lock)) {
            raise_limit(newest);
            pthread_mutex_unlock(&lock);
            return;
        }
        sched_yield();
    }
}
