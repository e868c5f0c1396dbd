/* SPDX-License-Identifier: MIT
 *
 * launch_descriptors.h: kolorun's limit of open files, and those that it waits for. One thread.
 */
#ifndef KO_LAUNCH_DESCRIPTORS_H
#define KO_LAUNCH_DESCRIPTORS_H

#include "launch_output.h"

#include <poll.h>
#include <stdbool.h>
#include <sys/resource.h>

struct ko_worker;

/* Raises the limit of open files to what that many ranks take, as far as is allowed. *before is for
 * ko_descriptors_restore, in a rank: programs may count on the limit that they know. */
void ko_descriptors_raise(int nprocs, struct rlimit *before);
void ko_descriptors_restore(const struct rlimit *before);

/* What the job's loop waits for. */
enum {
    KO_POLL_SIGNALS,
    KO_POLL_ENDS,
    KO_POLL_JOINS,
    KO_POLL_SINKS,
    KO_POLL_OWN = KO_POLL_SINKS + 2
};

struct ko_polls {
    struct pollfd *list;        /* before the sinks set by the job, the rest by each wait */
    struct ko_stream **streams; /* list[KO_POLL_OWN + i] is streams[i]'s */
    int nstreams;
};

/* False if there is no memory; to be closed in any case. */
bool ko_polls_open(struct ko_polls *polls, int nprocs);
/* As poll(2), for sinks that hold something too, and for streams that want to be read. */
int ko_polls_wait(struct ko_polls *polls, const struct ko_sink sinks[2], struct ko_worker *workers,
                  int nworkers, int timeout_ms);
void ko_polls_close(struct ko_polls *polls);

#endif
