/* SPDX-License-Identifier: MIT
 *
 * All arrays of a trial are one allocation, which goes to the GPU and comes back as a whole.
 */
#include "bits.h"

#include "dtype.h"
#include "gpu_rank.h"
#include "ranks.h"
#include "seeded.h"

#include <stdlib.h>
#include <string.h>

enum { GUARD = 64, PACK = 16, GUARD_BYTE = 0x5c, MOST_ARRAYS = 4 * KO_FOLD_MOST };

struct bits {
    int n;
    struct bits_array arrays[MOST_ARRAYS];
    size_t starts[MOST_ARRAYS]; /* bytes, of the elements */
    size_t nbytes;
    unsigned char *content, *wanted;
    ko_cu_ptr memory;
};

static size_t bytes_of(const struct bits_array *array)
{
    return array->count << ko_dtype_shift(array->dtype);
}

struct bits *bits_new(const struct bits_array *arrays, int n)
{
    struct bits *bits = calloc(1, sizeof *bits);

    if (!bits || n > MOST_ARRAYS)
        abort();
    bits->n = n;
    for (int i = 0; i < n; i++) {
        bits->arrays[i] = arrays[i];
        bits->starts[i] = bits->nbytes + GUARD + arrays[i].shift;
        bits->nbytes = (bits->starts[i] + bytes_of(&arrays[i]) + GUARD + PACK - 1) / PACK * PACK;
    }
    bits->content = malloc(2 * bits->nbytes);
    if (!bits->content || gpu_rank.cuda->alloc(&bits->memory, bits->nbytes))
        abort();
    bits->wanted = bits->content + bits->nbytes;
    memset(bits->content, GUARD_BYTE, bits->nbytes);
    return bits;
}

void bits_free(struct bits *bits)
{
    if (gpu_rank.cuda->free(bits->memory))
        abort();
    free(bits->content);
    free(bits);
}

unsigned char *bits_content(struct bits *bits, int array)
{
    return bits->content + bits->starts[array];
}

unsigned char *bits_wanted(struct bits *bits, int array)
{
    return bits->wanted + bits->starts[array];
}

uint64_t bits_at(const struct bits *bits, int array)
{
    return bits->memory + bits->starts[array];
}

void bits_randomize(struct bits *bits, int array, bool is_tame, unsigned *seed)
{
    const kolo_dtype dtype = bits->arrays[array].dtype;
    const size_t nbytes = bytes_of(&bits->arrays[array]), width = kolo_dtype_size(dtype);
    unsigned char *content = bits_content(bits, array);
    uint64_t state = (uint64_t)rand_r(seed);

    seeded_fill(&state, content, nbytes);
    for (size_t i = width - 1; i < nbytes && is_tame && ko_dtype_is_float(dtype); i += width)
        content[i] &= 0xbf; /* the exponent's highest bit */
}

void bits_put(struct bits *bits)
{
    memcpy(bits->wanted, bits->content, bits->nbytes);
    if (gpu_rank.cuda->copy(bits->memory, (uintptr_t)bits->content, bits->nbytes, gpu_rank.stream))
        abort();
}

/* ---- comparing ------------------------------------------------------------------------------- */

static bool is_nan(kolo_dtype dtype, const unsigned char *at)
{
    static const uint64_t infinities[KOLO_NDTYPES] = {
        [KOLO_FLOAT16] = 0x7c00,     [KOLO_BFLOAT16] = 0x7f80,
        [KOLO_FLOAT32] = 0x7f800000, [KOLO_FLOAT64] = (uint64_t)0x7ff << 52,
        [KOLO_FLOAT8_E4M3] = 0x7e, /* its largest number: it has none */
        [KOLO_FLOAT8_E5M2] = 0x7c,
    };
    const unsigned sign = 8 * (unsigned)kolo_dtype_size(dtype) - 1;
    uint64_t number = 0;

    memcpy(&number, at, kolo_dtype_size(dtype));
    number &= ~((uint64_t)1 << sign);
    return infinities[dtype] && number > infinities[dtype];
}

static int check_array(struct bits *bits, int a, const char *what)
{
    const struct bits_array *array = &bits->arrays[a];
    const size_t width = kolo_dtype_size(array->dtype);

    for (size_t i = 0; i < array->count; i++) {
        unsigned char *have = bits_content(bits, a) + i * width;
        const unsigned char *want = bits_wanted(bits, a) + i * width;

        if (is_nan(array->dtype, have) && is_nan(array->dtype, want))
            memcpy(have, want, width);
        if (memcmp(have, want, width) != 0)
            return ranks_fail("%s: element %zu of %zu %s of array %d is wrong", what, i,
                              array->count, kolo_dtype_name(array->dtype), a);
    }
    return 0;
}

int bits_check(struct bits *bits, const char *what)
{
    int failed = 0;

    if (gpu_rank.cuda->copy((uintptr_t)bits->content, bits->memory, bits->nbytes,
                            gpu_rank.stream) ||
        gpu_rank.cuda->stream_sync(gpu_rank.stream))
        return ranks_fail("%s: the GPU has failed", what);
    for (int a = 0; a < bits->n && !failed; a++)
        failed = check_array(bits, a, what);
    for (size_t i = 0; i < bits->nbytes && !failed; i++)
        if (bits->content[i] != bits->wanted[i])
            failed = ranks_fail("%s: byte %zu is beside all arrays, and was touched", what, i);
    return failed;
}
