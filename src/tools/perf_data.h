/* SPDX-License-Identifier: MIT
 *
 * perf_data.h: data whose reductions are known to the last bit. What a rank has at index i follows
 * from (seed, rank, i): integers are any bits, floats are chosen so that every partial result, in
 * whatever order, is exact. A pattern holds the elements; buffers are filled and compared by it.
 */
#ifndef KO_PERF_DATA_H
#define KO_PERF_DATA_H

#include "kolo.h"

#include <stdbool.h>
#include <stdint.h>

/* Beside kolo's ops, as nccl-tests has it: each rank's elements times a factor of its own, summed.
 * A number in the place of a kolo_op. */
enum { KO_PERF_MULSUM = KOLO_NOPS, KO_PERF_NOPS };

/* "sum", "mulsum". */
const char *ko_perf_op_name(int op);

/* What mulsum multiplies a rank's elements by: 1 or 2. */
int ko_perf_factor(int rank);

/* One run's inputs. is_rough: floats of full precision instead, whose sums depend on their order
 * and are known to nobody. */
struct ko_perf_data {
    kolo_dtype dtype;
    int op;
    int nranks;
    uint64_t seed;
    bool is_rough;
};

enum { KO_PERF_REDUCED = -1 }; /* in place of a rank: the reduction over all of them */

struct ko_perf_pattern;

/* What rank has, or the reduction. KOLO_E_NOMEM. */
int ko_perf_pattern_new(const struct ko_perf_data *data, int rank,
                        struct ko_perf_pattern **pattern);

/* buffer[count] = elements first ... of the pattern, which never ends. */
void ko_perf_pattern_fill(const struct ko_perf_pattern *pattern, void *buffer, size_t first,
                          size_t count);

/* How many of buffer[count] are not, bit for bit, elements first ... of the pattern. */
size_t ko_perf_pattern_wrong(const struct ko_perf_pattern *pattern, const void *buffer,
                             size_t first, size_t count);

void ko_perf_pattern_free(struct ko_perf_pattern *pattern);

/* How many elements of nbytes each differ. */
size_t ko_perf_count_unequal(const void *a, const void *b, size_t count, size_t nbytes);

#endif
