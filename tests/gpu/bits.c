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

/* Elements: of most arrays, and of some of a few parts, so that all of a GPU's blocks have some. */
enum { FEW = 5003, MANY = 1 << 20 };

static unsigned below(unsigned n, unsigned *seed)
{
    return (unsigned)rand_r(seed) % n;
}

static int take_fold(kolo_dtype dtype, kolo_op op, bool is_scaled, unsigned *seed)
{
    static double factors[KO_FOLD_MOST];
    const bool is_long = !below(40, seed);
    struct bits_fold fold = {.dtype = dtype,
                             .op = op,
                             .count = is_long ? MANY : below(FEW, seed),
                             .shift = kolo_dtype_size(dtype) * below(5, seed),
                             .nparts = 1 + (int)below(is_long ? 3 : KO_FOLD_MOST, seed),
                             .is_in_place = below(2, seed),
                             .is_uneven = !below(3, seed),
                             .is_tame = below(2, seed)};

    fold.nouts = 1 + (int)below((unsigned)fold.nparts, seed);
    for (int p = 0; p < fold.nparts && is_scaled; p++)
        factors[p] = ((double)below(20001, seed) - 10000) / 3000;
    fold.factors = is_scaled ? factors : NULL;
    return bits_take_fold(&fold, seed);
}

static int take_folds(unsigned *seed, long *n)
{
    int failed = 0;

    for (int dtype = 0; dtype < KOLO_NDTYPES && !failed; dtype++) {
        for (int op = 0; op < KOLO_NOPS && !failed; op++)
            if (ko_reduction_of((kolo_dtype)dtype, (kolo_op)op)) {
                failed = take_fold((kolo_dtype)dtype, (kolo_op)op, false, seed);
                ++*n;
            }
        failed = failed || take_fold((kolo_dtype)dtype, KOLO_SUM, true, seed);
        ++*n;
    }
    return failed;
}

static int take_gradients(unsigned *seed, long *n)
{
    enum { TIMES = 30 };
    int failed = 0;

    for (int i = 0; i < TIMES && !failed; i++, *n += 3) {
        const size_t most = i ? FEW : MANY;

        failed = bits_take_casts(most, seed) || bits_take_rounded(most, seed) ||
                 bits_take_step(most, seed);
    }
    return failed;
}

int main(int argc, char **argv)
{
    unsigned seed = argc > 2 ? (unsigned)atoi(argv[2]) : (unsigned)ko_now_ns();
    const ko_deadline end = ko_deadline_in(argc > 1 ? atoi(argv[1]) * 1000 : 0);
    long n = 0;
    int failed;

    if (argc < 2)
        return 2;
    fprintf(stderr, "seed %u\n", seed);
    failed = gpu_rank_enter(NULL);
    do
        failed = failed || take_folds(&seed, &n) || take_gradients(&seed, &n);
    while (!failed && !ko_deadline_passed(&end));
    report("kernels' results, compared with the host's bit by bit", (double)n, "calls",
           failed ? "FAILED" : "ok");
    return failed;
}
