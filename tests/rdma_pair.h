/* SPDX-License-Identifier: MIT
 *
 * rdma_pair.h: two rdma devices of this process, on an adapter of tests/fakeverbs, and a wire
 * between them. All but rdma_pair_open_devices and rdma_pair_open_wire assert.
 */
#ifndef RDMA_PAIR_H
#define RDMA_PAIR_H

#include "rdma.h"

enum { RDMA_SLICE = 1 << 20, RDMA_LIMIT_MS = 10000 };

static const struct ko_transport *const rdma = &ko_transport_rdma;
static const struct ko_site rdma_pair_site = {.listen_host = "127.0.0.1"};

struct rdma_pair {
    struct ko_device *left, *right;
    struct ko_wire *from, *to;
    bool has_answered;
    uint32_t channel; /* of the group 0; those of one have their completions in one queue */
};

int rdma_pair_open_devices(struct rdma_pair *pair);
/* Opens the wire; the first error, if it cannot be. */
int rdma_pair_open_wire(struct rdma_pair *pair);
/* Its two halves: the left end connects; the right end takes it in, and both go on until open. */
int rdma_pair_begin(struct rdma_pair *pair);
int rdma_pair_end(struct rdma_pair *pair);
/* What the second half does again and again. */
int rdma_pair_step(struct rdma_pair *pair);
/* Both. */
struct rdma_pair rdma_pair_new(void);
void rdma_pair_close(struct rdma_pair *pair);

struct ko_rdma_wire *rdma_pair_of(struct ko_wire *wire);

/* A function of the double's own. */
void *rdma_pair_find(const char *name);

void rdma_pair_fill(unsigned char *bytes, size_t nbytes, unsigned key);

/* A message of nbytes in body, which comes to lie in got. */
void rdma_pair_pass_bytes(struct ko_wire *from, struct ko_wire *to, const unsigned char *body,
                          unsigned char *got, size_t nbytes);
/* One in each direction. */
void rdma_pair_pass(struct rdma_pair *pair, size_t nbytes);

/* Sends the post from the left end until it is announced, or has come, at the right one. */
void rdma_pair_announce(struct rdma_pair *pair, struct ko_post *post);

/* How many lines of a file, such as a log, have the words. */
int rdma_pair_count_lines(const char *path, const char *words);

/* Opens a wire, while the calls fail one after the other, each the first time that it is made,
 * which keeps the wire from opening, then the second, ... the last-th. Nothing is left behind. */
void rdma_pair_break(const char *const *calls, size_t ncalls, int last);

/* The wire's failure, whose text has all the words, of which NULL is the last. */
void rdma_pair_expect(struct ko_wire *wire, int status, const char *const *words);

#endif
