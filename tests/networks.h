/* SPDX-License-Identifier: MIT
 *
 * networks.h: hosts on one machine: network namespaces, each with an interface of its own, joined
 * by a bridge. What a host sends to the others can be counted. Needs root and the ip command.
 */
#ifndef NETWORKS_H
#define NETWORKS_H

#include <stdint.h>

enum { NETWORKS_MOST = 4 };

struct networks {
    int n;
    int home;               /* the namespace of before */
    int fds[NETWORKS_MOST]; /* by host */
    int bridge;
};

/* Returns 0, or prints why it cannot be and returns 1. */
int networks_open(struct networks *networks, int n);
void networks_close(struct networks *networks);

/* Runs a command of the shell where the calling thread is. 0, or prints it and returns 1. */
int networks_command(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Moves the calling thread to a host; -1: home. 0 or 1. */
int networks_enter(const struct networks *networks, int host);

/* "10.77.0.1" for host 0 */
const char *networks_address(int host, char *text, int nbytes);

/* What this thread's host has sent over its interface so far. */
struct networks_traffic {
    int64_t bytes;  /* headers and all */
    int64_t frames; /* each with a header; TCP's segments may leave in bundles, with one */
    int64_t again;  /* TCP's segments that were sent before, among them */
};

struct networks_traffic networks_traffic(void);

/* What programs have written of it, since then: without headers, of which acknowledgements have
 * nothing else, and without what was sent again; at least, and at most. */
struct networks_payload {
    int64_t least, most;
};

struct networks_payload networks_payload(const struct networks_traffic *since);

/* The bytes alone. */
uint64_t networks_sent(void);

#endif
