/* SPDX-License-Identifier: MIT */
#include "poller.h"

#include "descriptors.h"
#include "status.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

static int control(struct ko_poller *poller, int operation, int fd, int wanted, void *owner)
{
    struct epoll_event event = {.events = EPOLLRDHUP, .data.ptr = owner};

    if (wanted & KO_POLL_IN)
        event.events |= EPOLLIN;
    if (wanted & KO_POLL_OUT)
        event.events |= EPOLLOUT;
    if (epoll_ctl(poller->epoll_fd, operation, fd, &event))
        return ko_fail_errno(errno, "epoll_ctl on descriptor %d", fd);
    return KOLO_OK;
}

int ko_poller_open_quiet(struct ko_poller *poller)
{
    poller->wake_fd = -1;
    poller->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    return poller->epoll_fd < 0 ? ko_fail_errno(errno, "epoll_create1") : KOLO_OK;
}

int ko_poller_open(struct ko_poller *poller)
{
    int err = ko_poller_open_quiet(poller);

    if (err)
        return err;
    poller->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    err = poller->wake_fd < 0 ? ko_fail_errno(errno, "eventfd")
                              : control(poller, EPOLL_CTL_ADD, poller->wake_fd, KO_POLL_IN, NULL);
    if (err)
        ko_poller_close(poller);
    else
        ko_descriptors_note(poller->wake_fd);
    return err;
}

int ko_poller_add(struct ko_poller *poller, int fd, int wanted, void *owner)
{
    return control(poller, EPOLL_CTL_ADD, fd, wanted, owner);
}

int ko_poller_change(struct ko_poller *poller, int fd, int wanted, void *owner)
{
    return control(poller, EPOLL_CTL_MOD, fd, wanted, owner);
}

void ko_poller_remove(struct ko_poller *poller, int fd)
{
    epoll_ctl(poller->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

int ko_poller_keep(struct ko_poller *poller, int fd, int wanted, void *owner, int *polled)
{
    int err = KOLO_OK;

    if (wanted == *polled)
        return KOLO_OK;
    if (!wanted)
        ko_poller_remove(poller, fd);
    else if (*polled)
        err = ko_poller_change(poller, fd, wanted, owner);
    else
        err = ko_poller_add(poller, fd, wanted, owner);
    if (!err)
        *polled = wanted;
    return err;
}

int ko_poller_renew(struct ko_poller *poller)
{
    struct ko_poller fresh;
    int err = ko_poller_open_quiet(&fresh);

    if (err)
        return err;
    close(poller->epoll_fd);
    poller->epoll_fd = fresh.epoll_fd;
    return control(poller, EPOLL_CTL_ADD, poller->wake_fd, KO_POLL_IN, NULL);
}

static int happened_of(uint32_t bits)
{
    return (bits & EPOLLIN ? KO_POLL_IN : 0) | (bits & EPOLLOUT ? KO_POLL_OUT : 0) |
           (bits & (EPOLLHUP | EPOLLRDHUP | EPOLLERR) ? KO_POLL_HUP : 0);
}

int ko_poller_wait(struct ko_poller *poller, int timeout_ms, struct ko_event *events, int cap)
{
    struct epoll_event raw[64];
    uint64_t wakes;
    int n = epoll_wait(poller->epoll_fd, raw, cap < 64 ? cap : 64, timeout_ms);

    if (n < 0 && errno != EINTR) {
        ko_fail_errno(errno, "epoll_wait");
        return -1;
    }
    for (int i = 0; i < n; i++) {
        events[i] = (struct ko_event){raw[i].data.ptr, happened_of(raw[i].events)};
        if (!events[i].owner && read(poller->wake_fd, &wakes, sizeof wakes) < 0)
            events[i].happened = 0; /* another waiter took the wake: nothing is lost */
    }
    return n < 0 ? 0 : n;
}

void ko_poller_wake(struct ko_poller *poller)
{
    uint64_t one = 1;

    if (write(poller->wake_fd, &one, sizeof one) < 0)
        return; /* the counter is full, so the poller is awake already */
}

void ko_poller_close(struct ko_poller *poller)
{
    if (poller->epoll_fd > 0)
        close(poller->epoll_fd);
    if (poller->wake_fd > 0)
        close(poller->wake_fd);
    *poller = (struct ko_poller){.epoll_fd = -1, .wake_fd = -1};
}
