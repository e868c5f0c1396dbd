/* SPDX-License-Identifier: MIT
 *
 * cublas.h: what the trainer uses of NVIDIA's cuBLAS, opened at run time and declared here, so that
 * the trainer is built and runs without it. tests/cuda_abi.cc compares this with a toolkit's.
 */
#ifndef TRAIN_CUBLAS_H
#define TRAIN_CUBLAS_H

#include "cuda_abi.h"

typedef int cublas_status; /* cublasStatus_t */
typedef struct cublas_context *cublas_handle;

enum { CUBLAS_AS_IT_IS = 0, CUBLAS_TRANSPOSED = 1 }; /* cublasOperation_t */
enum { CUBLAS_EXACT_FLOAT = 2 };                     /* cublasMath_t: float32 stays float32 */

/* X(member of struct cublas, name, parameters). Matrices are column by column. */
/* clang-format off */
#define CUBLAS_LIST(X) \
    X(create, cublasCreate_v2, (cublas_handle *handle)) \
    X(destroy, cublasDestroy_v2, (cublas_handle handle)) \
    X(set_stream, cublasSetStream_v2, (cublas_handle handle, ko_cu_stream stream)) \
    X(set_math, cublasSetMathMode, (cublas_handle handle, int mode)) \
    X(multiply, cublasSgemmStridedBatched, \
      (cublas_handle handle, int a_form, int b_form, int rows, int cols, int inner, \
       const float *alpha, const float *a, int a_pitch, long long a_step, const float *b, \
       int b_pitch, long long b_step, const float *beta, float *c, int c_pitch, long long c_step, \
       int n))
/* clang-format on */

struct cublas {
#define CUBLAS_MEMBER(member, name, parameters) cublas_status(*member) parameters;
    CUBLAS_LIST(CUBLAS_MEMBER)
#undef CUBLAS_MEMBER
};

/* Opens the library, for the rest of the process. Says what is missing. */
int cublas_open(struct cublas *cublas);

#endif
