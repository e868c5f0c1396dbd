/* SPDX-License-Identifier: MIT
 *
 * A double of cuBLAS, for the double of NVIDIA's driver: products are made in order, in double, by
 * the thread of the stream. FAKECUBLAS_BREAK=NAME=E: the function fails with the error E.
 */
#include "../../examples/ddp/cublas.h"
#include "../fakecuda/double.h"

#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NOT_INITIALIZED = 1, ALLOC_FAILED = 3, INVALID_VALUE = 7 };

struct cublas_context {
    ko_cu_stream stream;
};

/* Columns lie one behind the other, a matrix's element (row, col) at col * pitch + row. */
struct operand {
    const float *values;
    int pitch;
    long long step;
    bool is_transposed;
};

struct product {
    struct double_task task;
    struct operand a, b;
    float alpha, beta;
    int rows, cols, inner, n;
    float *c;
    int c_pitch;
    long long c_step;
};

#define EXPORT(member, name, parameters) \
    __attribute__((visibility("default"))) cublas_status name parameters;
CUBLAS_LIST(EXPORT)
#undef EXPORT

static cublas_status enter(const char *function)
{
    const char *wish = getenv("FAKECUBLAS_BREAK");
    const size_t length = strlen(function);

    return wish && !strncmp(wish, function, length) && wish[length] == '=' ? atoi(wish + length + 1)
                                                                           : SUCCESS;
}

cublas_status cublasCreate_v2(cublas_handle *handle)
{
    cublas_status status = enter("cublasCreate_v2");

    if (!status && !(*handle = calloc(1, sizeof **handle)))
        status = ALLOC_FAILED;
    return status;
}

cublas_status cublasDestroy_v2(cublas_handle handle)
{
    free(handle);
    return handle ? SUCCESS : NOT_INITIALIZED;
}

cublas_status cublasSetStream_v2(cublas_handle handle, ko_cu_stream stream)
{
    handle->stream = stream;
    return enter("cublasSetStream_v2");
}

cublas_status cublasSetMathMode(cublas_handle handle, int mode)
{
    (void)handle;
    return mode == CUBLAS_EXACT_FLOAT ? enter("cublasSetMathMode") : INVALID_VALUE;
}

/* ---- products -------------------------------------------------------------------------------- */

/* An operand's columns, one behind the other. */
static void widen(const struct operand *of, int rows, int cols, double *values)
{
    const size_t down = of->is_transposed ? (size_t)of->pitch : 1;
    const size_t right = of->is_transposed ? 1 : (size_t)of->pitch;

    for (size_t col = 0; col < (size_t)cols; col++)
        for (size_t row = 0; row < (size_t)rows; row++)
            *values++ = (double)of->values[row * down + col * right];
}

/* sums = a times one column of b. Each sum is read and written once for four of its terms, which
 * are added one after the other all the same. */
static void multiply_column(const struct product *of, const double *a, const double *b,
                            double *restrict sums)
{
    const size_t rows = (size_t)of->rows, inner = (size_t)of->inner;
    size_t k = 0;

    memset(sums, 0, rows * sizeof *sums);
    for (; k + 4 <= inner; k += 4, a += 4 * rows)
#pragma omp simd
        for (size_t row = 0; row < rows; row++)
            sums[row] = sums[row] + a[row] * b[k] + a[rows + row] * b[k + 1] +
                        a[2 * rows + row] * b[k + 2] + a[3 * rows + row] * b[k + 3];
    for (; k < inner; k++, a += rows)
#pragma omp simd
        for (size_t row = 0; row < rows; row++)
            sums[row] += a[row] * b[k];
}

static void multiply(const struct product *of, const double *a, const double *b, double *sums)
{
    for (int col = 0; col < of->cols; col++) {
        float *out = of->c + (size_t)col * (size_t)of->c_pitch;

        multiply_column(of, a, b + (size_t)col * (size_t)of->inner, sums);
        for (int row = 0; row < of->rows; row++)
            out[row] = (float)((double)of->alpha * sums[row] +
                               (of->beta == 0 ? 0 : (double)(of->beta * out[row])));
    }
}

static void run(struct double_task *task)
{
    struct product product = *(struct product *)task, *of = &product;
    double *a = malloc((size_t)of->rows * (size_t)of->inner * sizeof *a);
    double *b = malloc((size_t)of->inner * (size_t)of->cols * sizeof *b);
    double *sums = malloc((size_t)of->rows * sizeof *sums);

    for (int i = 0; i < of->n; i++) {
        widen(&of->a, of->rows, of->inner, a);
        widen(&of->b, of->inner, of->cols, b);
        multiply(of, a, b, sums);
        of->a.values += of->a.step;
        of->b.values += of->b.step;
        of->c += of->c_step;
    }
    free(a);
    free(b);
    free(sums);
}

cublas_status cublasSgemmStridedBatched(cublas_handle handle, int a_form, int b_form, int rows,
                                        int cols, int inner, const float *alpha, const float *a,
                                        int a_pitch, long long a_step, const float *b, int b_pitch,
                                        long long b_step, const float *beta, float *c, int c_pitch,
                                        long long c_step, int n)
{
    cublas_status status = enter("cublasSgemmStridedBatched");
    struct product product = {.task = {.run = run},
                              .a = {a, a_pitch, a_step, a_form != CUBLAS_AS_IT_IS},
                              .b = {b, b_pitch, b_step, b_form != CUBLAS_AS_IT_IS},
                              .alpha = *alpha,
                              .beta = *beta,
                              .rows = rows,
                              .cols = cols,
                              .inner = inner,
                              .n = n,
                              .c = c,
                              .c_pitch = c_pitch,
                              .c_step = c_step};

    if (status)
        return status;
    if (a_pitch < (a_form ? inner : rows) || b_pitch < (b_form ? cols : inner) || c_pitch < rows)
        return INVALID_VALUE;
    return double_enqueue(handle->stream, &product.task, sizeof product) ? INVALID_VALUE : SUCCESS;
}
