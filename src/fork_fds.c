/* SPDX-License-Identifier: MIT
 *
 * A list, guarded by one lock, which a fork finds free. What has been opened and is not in the list
 * yet stays open in a child of that moment.
 */
#include "fork_fds.h"

#include <pthread.h>
#include <stddef.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ko_fork_fd *first;
static pthread_once_t is_watching = PTHREAD_ONCE_INIT;

static void lock_list(void)
{
    pthread_mutex_lock(&lock);
}

static void unlock_list(void)
{
    pthread_mutex_unlock(&lock);
}

/* Closes, and does not shut down: the connections are the parent's. Their numbers may soon be those
 * of something else in the child. */
static void close_in_child(void)
{
    for (struct ko_fork_fd *own = first; own; own = own->next) {
        close(own->fd);
        own->fd = -1;
    }
    first = NULL;
    unlock_list();
}

static void watch_forks(void)
{
    (void)pthread_atfork(lock_list, unlock_list, close_in_child);
}

void ko_fork_fd_keep(struct ko_fork_fd *own, int fd)
{
    own->fd = fd;
    if (fd < 0)
        return;
    (void)pthread_once(&is_watching, watch_forks);
    lock_list();
    own->next = first;
    own->link = &first;
    if (first)
        first->link = &own->next;
    first = own;
    unlock_list();
}

void ko_fork_fd_close(struct ko_fork_fd *own)
{
    if (own->fd < 0)
        return;
    lock_list();
    *own->link = own->next;
    if (own->next)
        own->next->link = own->link;
    close(own->fd); /* with the lock: no child is made that has it open and cannot know it */
    unlock_list();
    own->fd = -1;
}
