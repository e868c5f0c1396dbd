/* SPDX-License-Identifier: MIT */
#include "group_fork.h"

#include "group.h"
#include "mailbox.h"
#include "work.h"

#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static kolo_group *first; /* of this process's, by their next_here */
static pthread_once_t is_watching = PTHREAD_ONCE_INIT;

static void lock_list(void)
{
    pthread_mutex_lock(&lock);
}

static void unlock_list(void)
{
    pthread_mutex_unlock(&lock);
}

/* Nobody is to hear of it. */
static void silence(kolo_group *group)
{
    group->collectives.has_told = true;
    ko_mailbox_silence(group);
    atomic_store(&group->has_written, true);
}

/* Takes no other lock: a thread that is not here any more may have held it. */
static void fail_in_child(void)
{
    for (kolo_group *group = first; group; group = group->next_here) {
        snprintf(group->failure_text, sizeof group->failure_text,
                 "the group is that of the process from which fork made this one, which has no "
                 "part in it; it can join as a rank of its own");
        silence(group);
        atomic_store(&group->failed, KOLO_E_INVALID);
        group->link_here = NULL;
    }
    first = NULL;
    ko_work_leave_to_parent();
    unlock_list();
}

static void watch_forks(void)
{
    (void)pthread_atfork(lock_list, unlock_list, fail_in_child);
}

void ko_fork_watch(kolo_group *group)
{
    (void)pthread_once(&is_watching, watch_forks);
    lock_list();
    group->link_here = &first;
    group->next_here = first;
    if (first)
        first->link_here = &group->next_here;
    first = group;
    unlock_list();
}

bool ko_fork_forget(kolo_group *group)
{
    bool is_here;

    lock_list();
    is_here = group->link_here;
    if (is_here) {
        *group->link_here = group->next_here;
        if (group->next_here)
            group->next_here->link_here = group->link_here;
    }
    unlock_list();
    return is_here;
}
