/* SPDX-License-Identifier: MIT
 *
 * ranks.h: runs one function on every rank of a group, the ranks as threads over a local store
 * (where ThreadSanitizer sees everything) or as processes over a TCP store (where they can be
 * killed). A rank returns its failure as a value: 0, or ranks_fail(...). Never assert in a rank:
 * cmocka's asserts jump, and only the test's own thread may.
 */
#ifndef RANKS_H
#define RANKS_H

#include "kolo.h"
#include "sanitized.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ranks_kind { RANKS_THREADS, RANKS_PROCESSES };

struct ranks {
    enum ranks_kind kind;
    int n;
    int timeout_ms; /* of the group; 0: 20 s (ranks_lengthen) */
    int tolerated;  /* so many ranks may be killed by a signal */

    /* Processes: what a rank does before it joins, as by going to another host; 0, or 1 if it
     * cannot; NULL: nothing. store: where rank 0 serves it; NULL: the loopback interface. join:
     * how they do else; NULL: there. */
    int (*settle)(int rank, void *argument);
    const char *store;
    int (*join)(int rank, int n, int timeout_ms, kolo_group **group);
};

typedef int (*ranks_body)(kolo_group *group, void *argument);

/* A `settle`: ranks 0, 3, 6 ... are of one host, the others of another. */
int ranks_settle_on_two_hosts(int rank, void *unused);

/* Joins, runs body on each rank, frees the groups. Returns 0 if every rank did; else prints each
 * failure's text and returns the number of failed ranks. A run that takes longer than the group's
 * time-out + 60 s is a failure (processes; ranks_within). argument is shared by threads, copied to
 * processes. */
int ranks_run(const struct ranks *ranks, ranks_body body, void *argument);

/* The same of processes, and what rank 0 has logged meanwhile, from KOLO_DEBUG=INFO on, of which
 * cap - 1 bytes are kept. */
int ranks_run_logged(int n, ranks_body body, char *text, size_t cap);

/* The same as threads and, but for ThreadSanitizer, as processes, over shared memory, RDMA (a
 * double's) and TCP, until one fails. */
int ranks_run_all_ways(int n, ranks_body body);

/* Prints the text of the calling rank's failure, with kolo_last_error(); returns 1. */
int ranks_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Whether the calling rank is to fail, of which nothing is printed. */
void ranks_expect_failures(bool does);

/* 0 if err is code and this thread's text contains `text`, else ranks_fail. */
int ranks_expect(int err, int code, const char *text);

/* A time-out that is as long as ms on a machine that has nothing else to do: longer by as many
 * times as more threads have lately wanted its processors than it has. */
int ranks_lengthen(int ms);

/* 0 if what began then (ko_now_ns) has taken no longer than it may on a machine that has nothing
 * else to do: on another one it may take as many times as long as a thread waits for a processor.
 */
int ranks_within(int64_t began_ns, int limit_ms, const char *what);

/* ranks_expect of a call that was to end soon, and began then. */
enum { RANKS_SOON_MS = IS_SANITIZED ? 20000 : 5000 };
int ranks_expect_soon(int64_t began_ns, int err, int code, const char *text);

/* n duplicates of a group; and their end, of those that there are. */
int ranks_duplicate(kolo_group *group, kolo_group **duplicates, int n);
void ranks_free_all(kolo_group **groups, int n);

/* An environment variable. */
void ranks_set_number(const char *name, int number);

/* Ranks 0 and 1 send each other a byte: each has a link then, and nothing on its way. */
int ranks_exchange(kolo_group *group);

/* The rank `last` comes back when all others have come here, who do not wait for it: they are past
 * all calls that they had to make with it, so that it can be lost without failing one of those. */
int ranks_let_be_last(kolo_group *group, int last);

void ranks_nap_ms(int ms);

/* Of a thread: aborts the group in 100 ms, for `enough`. */
void *ranks_abort_soon(void *group);

/* How many names there are in a folder, as of this process's descriptors in /proc/self/fd. */
int ranks_count_entries(const char *path);

/* A port of 127.0.0.1 at which a store can listen, and that no other program is given until so many
 * more have been asked for, or the process ends. */
enum { RANKS_RESERVED_PORTS = 4 };
int ranks_reserve_port(void);

#endif
