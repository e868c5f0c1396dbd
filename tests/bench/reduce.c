/* SPDX-License-Identifier: MIT
 *
 * How near the host's reductions come to what memory allows: each beside a loop that reads and
 * writes the same bytes by full vectors and adds floats, measured in turns. Not a test.
 *   reduce [WORD...]     only rows whose name has each WORD in it
 * Per size of one array: GB/s read and written, and the limit's time divided by ours; the last
 * line, and the exit code, say whether any is below 0.90.
 */
#include "reduce.h"
#include "caches.h"
#include "copy.h"
#include "dtype.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { MOST = 8, SAMPLES = 9, NSIZES = 4 };

static const size_t sizes[NSIZES] = {4 << 10, 256 << 10, 4 << 20, 64 << 20};

/* Arrays that do not begin at the same place in a page. */
enum { ROOM = (64 << 20) + 4096, SHIFT = 21 * 64 };

/* Of the limit's time to ours. */
static const double LEAST_RATIO = 0.90;

static char *out;
static const void *parts[MOST];

/* ---- the limits --------------------------------------------------------------------------- */

#if defined(__AVX512F__)
enum { WIDTH = 64 };
#elif defined(__AVX2__)
enum { WIDTH = 32 };
#else
enum { WIDTH = 16 };
#endif

typedef float vector __attribute__((vector_size(WIDTH), aligned(1), may_alias));

static inline void stream(char *to, vector value)
{
#if defined(__AVX512F__)
    _mm512_stream_ps((void *)to, value);
#elif defined(__AVX2__)
    _mm256_stream_ps((void *)to, value);
#else
    *(vector *)(void *)to = value;
#endif
}

static inline __attribute__((always_inline)) void limit_of(int n, bool is_streaming, size_t nbytes)
{
    char *to = out;
    const char *from[MOST];

    for (int k = 0; k < n; k++)
        from[k] = parts[k];
#pragma GCC unroll 4
    for (size_t at = 0; at < nbytes; at += WIDTH) {
        vector sum = *(const vector *)(const void *)(from[0] + at);

        for (int k = 1; k < n; k++)
            sum += *(const vector *)(const void *)(from[k] + at);
        if (is_streaming)
            stream(to + at, sum);
        else
            *(vector *)(void *)(to + at) = sum;
    }
}

static void limit(int n, bool is_streaming, size_t nbytes)
{
    switch (n * 2 + is_streaming) {
    case 2:
        limit_of(1, false, nbytes);
        break;
    case 3:
        limit_of(1, true, nbytes);
        break;
    case 4:
        limit_of(2, false, nbytes);
        break;
    case 5:
        limit_of(2, true, nbytes);
        break;
    case 6:
        limit_of(3, false, nbytes);
        break;
    case 8:
        limit_of(4, false, nbytes);
        break;
    case 9:
        limit_of(4, true, nbytes);
        break;
    default:
        limit_of(8, false, nbytes);
    }
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

/* ---- ours --------------------------------------------------------------------------------- */

enum how { LAST, MANY, STREAM, SCALE, COPY, NHOWS };

static const char *const how_names[] = {"last", "many", "streaming", "scale", "copy"};

struct row {
    enum how how;
    int n;
    kolo_dtype dtype;
    kolo_op op;
};

static void ours(const struct row *row, const struct ko_reduction *reduction, size_t nbytes)
{
    const size_t count = nbytes / reduction->nbytes;
    const struct ko_parts of = {parts, row->n, count, 3};
    void *const outs[] = {out};

    if (row->how == LAST)
        reduction->last(out, parts[0], parts[1], count, 3);
    else if (row->how == MANY)
        reduction->many(out, parts, row->n, count, 3);
    else if (row->how == STREAM)
        ko_reduce_into(reduction, outs, 1, &of, true);
    else if (row->how == SCALE)
        reduction->scale(out, parts[0], count, 0.5);
    else
        ko_copy_streaming(out, parts[0], nbytes);
}

/* ---- measuring ---------------------------------------------------------------------------- */

static double now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static double time_us(const struct row *row, const struct ko_reduction *reduction, size_t nbytes,
                      bool is_limit)
{
    const int batch = (int)((size_t)(4 << 20) / nbytes / (size_t)row->n) + 1;
    const bool is_streaming = row->how == STREAM || row->how == COPY;
    double begin = now_us();

    for (int i = 0; i < batch; i++) {
        if (is_limit)
            limit(row->n, is_streaming, nbytes);
        else
            ours(row, reduction, nbytes);
        __asm__ volatile("" ::: "memory");
    }
    return (now_us() - begin) / batch;
}

static struct {
    int points, below;
    double lowest;
    char name[80]; /* of the lowest */
} verdict = {.lowest = 1e300};

static void judge(const char *name, size_t nbytes, double ratio)
{
    verdict.points++;
    verdict.below += ratio < LEAST_RATIO;
    if (ratio >= verdict.lowest)
        return;
    verdict.lowest = ratio;
    snprintf(verdict.name, sizeof verdict.name, "%.50s of %zu KiB", name, nbytes >> 10);
}

static void measure(const struct row *row, const char *name, size_t nbytes)
{
    double least[2] = {1e300, 1e300};
    struct ko_reduction reduction;

    if (ko_reduction_find(row->dtype, row->op, &reduction))
        return;
    for (int i = 0; i < 2 * SAMPLES; i++) {
        double us = time_us(row, &reduction, nbytes, i & 1);

        if (us < least[i & 1])
            least[i & 1] = us;
    }
    judge(name, nbytes, least[1] / least[0]);
    printf(" %7.1f %5.2f", (double)nbytes * (row->n + 1) * 1e-3 / least[0], least[1] / least[0]);
    fflush(stdout);
}

static bool is_wanted(const char *name, char **words, int nwords)
{
    for (int i = 0; i < nwords; i++)
        if (!strstr(name, words[i]))
            return false;
    return true;
}

static void measure_row(const struct row *row, char **words, int nwords)
{
    char name[80];
    struct ko_reduction reduction;

    snprintf(name, sizeof name, "%s %s %s %d", how_names[row->how], kolo_dtype_name(row->dtype),
             kolo_op_name(row->op), row->n);
    if (!is_wanted(name, words, nwords) || ko_reduction_find(row->dtype, row->op, &reduction))
        return;
    printf("%-30s", name);
    for (int i = 0; i < NSIZES; i++)
        if ((size_t)row->n * sizes[i] <= (size_t)256 << 20 &&
            (sizes[i] >= 4 << 20 || (row->how != STREAM && row->how != COPY)))
            measure(row, name, sizes[i]);
        else
            printf(" %13s", "");
    printf("\n");
}

static void allocate(void)
{
    char *memory = mmap(NULL, (MOST + 1) * (size_t)ROOM + 16 * SHIFT, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        exit(2);
    out = memory;
    for (int i = 0; i < MOST; i++) {
        char *part = memory + (size_t)(i + 1) * ROOM + (size_t)(i + 1) * SHIFT;

        for (size_t at = 0; at < (size_t)(i < 4 ? 64 : 4) << 20; at += 4) /* 1.5 in each type */
            memcpy(part + at, "\x3f\x3f\x3f\x3f", 4);
        parts[i] = part;
    }
}

int main(int argc, char **argv)
{
    static const int numbers[] = {3, 4, 8};

    allocate();
    printf("%-30s", "");
    for (int i = 0; i < NSIZES; i++)
        printf(" %9zu KiB", sizes[i] >> 10);
    printf("   (cache share %zu KiB)\n", ko_cache_bytes() >> 10);
    measure_row(&(struct row){COPY, 1, KOLO_UINT8, KOLO_SUM}, argv + 1, argc - 1);
    for (int dtype = 0; dtype < KOLO_NDTYPES; dtype++) {
        for (int op = 0; op < KOLO_NOPS; op++)
            measure_row(&(struct row){LAST, 2, (kolo_dtype)dtype, (kolo_op)op}, argv + 1, argc - 1);
        for (int i = 0; i < 3; i++)
            for (int op = KOLO_SUM; op <= KOLO_AVG; op += KOLO_AVG)
                measure_row(&(struct row){MANY, numbers[i], (kolo_dtype)dtype, (kolo_op)op},
                            argv + 1, argc - 1);
        for (int n = 2; n <= 4; n += 2)
            measure_row(&(struct row){STREAM, n, (kolo_dtype)dtype, KOLO_SUM}, argv + 1, argc - 1);
        measure_row(&(struct row){SCALE, 1, (kolo_dtype)dtype, KOLO_SUM}, argv + 1, argc - 1);
    }
    if (!verdict.points)
        return fprintf(stderr, "no row has all these words in its name\n"), 2;
    printf("%d of %d points are below %.2f of their limit; the lowest, %.2f, is %s\n",
           verdict.below, verdict.points, LEAST_RATIO, verdict.lowest, verdict.name);
    return verdict.below > 0;
}
