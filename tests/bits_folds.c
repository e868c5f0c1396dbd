/* SPDX-License-Identifier: MIT */
#include "bits.h"
#include "gpu_rank.h"
#include "ranks.h"
#include "reduce.h"

#include <stdio.h>
#include <stdlib.h>

/* The array of output o. */
static int out_of(const struct bits_fold *fold, int o)
{
    return fold->is_in_place ? o : fold->nparts + o;
}

static struct bits *make(const struct bits_fold *fold)
{
    struct bits_array arrays[2 * KO_FOLD_MOST];
    const int n = fold->is_in_place ? fold->nparts : fold->nparts + fold->nouts;
    const size_t width = kolo_dtype_size(fold->dtype);

    if (fold->is_in_place && fold->nouts > fold->nparts)
        abort();
    for (int i = 0; i < n; i++)
        arrays[i] = (struct bits_array){.dtype = fold->dtype,
                                        .count = fold->count,
                                        .shift = fold->shift +
                                                 (fold->is_uneven ? (size_t)i % 9 : 0) * width};
    return bits_new(arrays, n);
}

static void expect(struct bits *bits, const struct bits_fold *fold)
{
    const size_t nbytes = fold->count * kolo_dtype_size(fold->dtype);
    const struct ko_reduction *reduction = ko_reduction_of(fold->dtype, fold->op);
    unsigned char *scaled = malloc((size_t)fold->nparts * nbytes + 1);
    const void *parts[KO_FOLD_MOST];

    if (!scaled)
        abort();
    for (int p = 0; p < fold->nparts; p++) {
        parts[p] = bits_content(bits, p);
        if (fold->factors) {
            parts[p] = scaled + (size_t)p * nbytes;
            reduction->scale(scaled + (size_t)p * nbytes, bits_content(bits, p), fold->count,
                             fold->factors[p]);
        }
    }
    for (int o = 0; o < fold->nouts; o++)
        reduction->many(bits_wanted(bits, out_of(fold, o)), parts, fold->nparts, fold->count,
                        fold->nparts + 1);
    free(scaled);
}

int bits_take_fold(const struct bits_fold *fold, unsigned *seed)
{
    struct bits *bits = make(fold);
    struct ko_fold args = {
        .count = fold->count, .nparts = (uint32_t)fold->nparts, .nouts = (uint32_t)fold->nouts};
    char what[96];
    int failed;

    for (int p = 0; p < fold->nparts; p++) {
        bits_randomize(bits, p, fold->is_tame, seed);
        args.parts[p] = bits_at(bits, p);
    }
    for (int o = 0; o < fold->nouts; o++)
        args.outs[o] = bits_at(bits, out_of(fold, o));
    bits_put(bits);
    expect(bits, fold);
    snprintf(what, sizeof what, "%s%s of %d parts", fold->factors ? "premul " : "",
             kolo_op_name(fold->op), fold->nparts);
    failed = fold->factors
                 ? ko_cuda_premul(fold->dtype, &args, fold->factors, gpu_rank.stream)
                 : ko_cuda_fold(fold->dtype, fold->op, args, fold->nparts + 1, gpu_rank.stream);
    failed = failed ? ranks_fail("%s", what) : bits_check(bits, what);
    bits_free(bits);
    return failed;
}
