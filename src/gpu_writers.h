/* SPDX-License-Identifier: MIT
 *
 * gpu_writers.h: which ranks of a host have a GPU write into the others' buffers just now. Each has
 * words about itself in host memory that all of them share: who is about to begin such work says so
 * and then looks whether another one has given up its call; who gives up says so and then waits for
 * those who write. Whichever says it first, the other one sees it. No driver comes between, which
 * may have its callers wait for a GPU that stands still. Any thread, but for one rank's begin, end
 * and put, which are whoever's who carries out its calls.
 */
#ifndef KO_GPU_WRITERS_H
#define KO_GPU_WRITERS_H

#include "clock.h"
#include "unix_socket.h"

#include <stdbool.h>
#include <stdint.h>

struct ko_gpu_writers;

/* Where the words are, for the others. Travels as it is. */
struct ko_gpu_writers_place {
    uint64_t id; /* for those of the same process; 0: there are none */
    char socket[KO_UNIX_NAME];
};

/* For n ranks, numbered from 0: one of them makes the words, */
int ko_gpu_writers_make(int n, struct ko_gpu_writers **writers, struct ko_gpu_writers_place *place);

/* the others of its process find them; those of other processes ask for them, without waiting, */
int ko_gpu_writers_find(const struct ko_gpu_writers_place *place, struct ko_gpu_writers **writers);
int ko_gpu_writers_ask(const struct ko_gpu_writers_place *place, struct ko_gpu_writers **writers);

/* and when all have asked it hands them to so many, and these take them; the deadline is for what
 * is under way between the two. The words of one that has failed are of no use. */
int ko_gpu_writers_hand(struct ko_gpu_writers *writers, int nprocesses,
                        const ko_deadline *deadline);
int ko_gpu_writers_take(struct ko_gpu_writers *writers, int n, const ko_deadline *deadline);

/* NULL is allowed. */
void ko_gpu_writers_free(struct ko_gpu_writers *writers);

/* From now on the rank writes into others' buffers; not if one of n ranks has given up, which
 * *which is then. */
bool ko_gpu_writers_begin(struct ko_gpu_writers *writers, int n, int rank, int *which);

/* All that it had GPUs do is done. */
void ko_gpu_writers_end(struct ko_gpu_writers *writers, int rank);

/* From now on nobody begins to write there. */
void ko_gpu_writers_give_up(struct ko_gpu_writers *writers, int rank);
bool ko_gpu_writers_has_begun(const struct ko_gpu_writers *writers, int rank);

/* Whether any other of n ranks has, which *which is then. */
bool ko_gpu_writers_any_gave_up(const struct ko_gpu_writers *writers, int n, int rank, int *which);

/* The same of calls that stay in streams, of which there may be several. They have numbers, the
 * same for all ranks, one after another; which may come round. As ko_gpu_writers_begin: */
bool ko_gpu_writers_put(struct ko_gpu_writers *writers, int n, int rank, uint32_t call, int *which);

/* The rank's streams have done their part in all calls up to this one. Any thread. */
void ko_gpu_writers_have_done(struct ko_gpu_writers *writers, int rank, uint32_t call);

/* Whether the rank has put a part in any call up to this one into a stream that has not done it. */
bool ko_gpu_writers_stream(const struct ko_gpu_writers *writers, int rank, uint32_t call);

#endif
