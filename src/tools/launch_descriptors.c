/* SPDX-License-Identifier: MIT
 *
 * kolorun's descriptors: each rank takes several, of which the loop waits for some. poll(2) takes
 * no list that is longer than the limit of open files, whatever is in it: so what is closed, or not
 * to be read now, is not in the list.
 */
#include "launch_descriptors.h"

#include "launch.h"

#include <stdlib.h>
#include <sys/resource.h>

enum {
    PER_RANK = 5, /* two pipes and their copies in files, and a pidfd */
    OWN = 256     /* for the rest: what is inherited, a store's connections */
};

void ko_descriptors_raise(int nprocs, struct rlimit *before)
{
    const rlim_t needed = (rlim_t)nprocs * PER_RANK + OWN;
    struct rlimit limit;

    *before = (struct rlimit){0};
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= needed)
        return;
    *before = limit;
    limit.rlim_cur = needed < limit.rlim_max ? needed : limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit); /* or a rank that finds none left says so */
}

void ko_descriptors_restore(const struct rlimit *before)
{
    if (before->rlim_max)
        setrlimit(RLIMIT_NOFILE, before);
}

bool ko_polls_open(struct ko_polls *polls, int nprocs)
{
    polls->list = calloc((size_t)nprocs * 2 + KO_POLL_OWN, sizeof *polls->list);
    polls->streams = calloc((size_t)nprocs * 2, sizeof(struct ko_stream *));
    return polls->list && polls->streams;
}

int ko_polls_wait(struct ko_polls *polls, const struct ko_sink sinks[2], struct ko_worker *workers,
                  int nworkers, int timeout_ms)
{
    struct pollfd *p = polls->list + KO_POLL_OWN;

    for (int i = 0; i < 2; i++)
        polls->list[KO_POLL_SINKS + i] =
            (struct pollfd){.fd = sinks[i].used ? sinks[i].fd : -1, .events = POLLOUT};
    polls->nstreams = 0;
    for (int i = 0; i < 2 * nworkers; i++) {
        struct ko_stream *stream = &workers[i / 2].streams[i % 2];

        if (!ko_stream_wants(stream))
            continue;
        polls->streams[polls->nstreams++] = stream;
        *p++ = (struct pollfd){.fd = stream->fd, .events = POLLIN};
    }
    return poll(polls->list, (nfds_t)(p - polls->list), timeout_ms);
}

void ko_polls_close(struct ko_polls *polls)
{
    free(polls->list);
    free(polls->streams);
}
