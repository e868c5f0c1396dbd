/* SPDX-License-Identifier: MIT
 *
 * Whether the GPU computes what the host does, bit by bit: every kernel that reduces, casts or
 * takes steps, on random bits, for as long as there is time, and each at least once. bits SECONDS
 * [SEED]
 */
#include "bits.h"

#include "clock.h"
#include "gpu_rank.h"
#include "ranks.h"
#include "reduce.h"
#include "report.h"

#include <stdlib.h>

enum { FEW = 5003 }; /* elements of most arrays */

static unsigned below(unsigned n, unsigned *seed)
{
    return (unsigned)rand_r(seed) % n;
}

/* Elements of the others: that all of the GPU's threads go through their loops twice at least, and
 * some of them another time. */
static size_t count_long(kolo_dtype dtype, unsigned *seed)
{
    const size_t nbytes = gpu_rank_long_bytes();

    return (nbytes + below((unsigned)nbytes / 2, seed)) / kolo_dtype_size(dtype);
}

static struct trials {
    long all, with_long;
} trials;

static int take_fold(kolo_dtype dtype, kolo_op op, bool is_scaled, unsigned *seed)
{
    static double factors[KO_FOLD_MOST];
    const bool is_long = trials.all % 40 == 0;
    struct bits_fold fold = {.dtype = dtype,
                             .op = op,
                             .count = is_long ? count_long(dtype, seed) : below(FEW, seed),
                             .shift = kolo_dtype_size(dtype) * below(5, seed),
                             .nparts = 1 + (int)below(is_long ? 4 : KO_FOLD_MOST, seed),
                             .is_in_place = below(2, seed),
                             .is_uneven = !below(is_long ? 8 : 3, seed),
                             .is_tame = below(2, seed)};

    fold.nouts = 1 + (int)below((unsigned)fold.nparts, seed);
    for (int p = 0; p < fold.nparts && is_scaled; p++)
        factors[p] = ((double)below(20001, seed) - 10000) / 3000;
    fold.factors = is_scaled ? factors : NULL;
    trials.all++;
    trials.with_long += is_long;
    return bits_take_fold(&fold, seed);
}

static int take_folds(unsigned *seed)
{
    int failed = 0;

    for (int dtype = 0; dtype < KOLO_NDTYPES && !failed; dtype++) {
        for (int op = 0; op < KOLO_NOPS && !failed; op++)
            if (ko_reduction_of((kolo_dtype)dtype, (kolo_op)op))
                failed = take_fold((kolo_dtype)dtype, (kolo_op)op, false, seed);
        failed = failed || take_fold((kolo_dtype)dtype, KOLO_SUM, true, seed);
    }
    return failed;
}

static int take_gradients(unsigned *seed)
{
    enum { TIMES = 30 };
    int failed = 0;

    for (int i = 0; i < TIMES && !failed; i++, trials.all += 3, trials.with_long += i ? 0 : 3) {
        /* a thread of theirs has 8 elements in a turn */
        const size_t most = i ? FEW : gpu_rank_long_bytes() / 4, least = i ? 0 : most / 4 * 3;

        failed = bits_take_casts(least, most, seed) || bits_take_rounded(least, most, seed) ||
                 bits_take_step(least, most, seed);
    }
    return failed;
}

int main(int argc, char **argv)
{
    unsigned seed = argc > 2 ? (unsigned)atoi(argv[2]) : (unsigned)ko_now_ns();
    const ko_deadline end = ko_deadline_in(argc > 1 ? atoi(argv[1]) * 1000 : 0);
    int failed;

    if (argc < 2)
        return 2;
    fprintf(stderr, "seed %u\n", seed);
    failed = gpu_rank_enter(NULL);
    do
        failed = failed || take_folds(&seed) || take_gradients(&seed);
    while (!failed && !ko_deadline_passed(&end));
    report("kernels' results, compared with the host's bit by bit", (double)trials.all, "calls",
           failed ? "FAILED" : "ok");
    report("those of them with arrays that all threads go through twice", (double)trials.with_long,
           "calls", "");
    return failed;
}
