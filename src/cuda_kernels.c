/* SPDX-License-Identifier: MIT
 *
 * Kernels are found by name: ko_fold_DTYPE_OP, and so on (kernel_args.h). The image is empty in a
 * build without nvcc.
 */
#include "cuda_kernels.h"

#include "dtype.h"
#include "once.h"
#include "reduce.h"
#include "status.h"

#include <stdio.h>
#include <string.h>

enum { NTHREADS = 512, BLOCK_BYTES = 16 * NTHREADS }; /* a pack of an array for each thread */

/* What nvcc made of kernels/ (the Makefile's cuda_image). */
extern const unsigned char ko_cuda_image[];
extern const size_t ko_cuda_image_bytes;

static struct {
    struct ko_once once;
    ko_cu_kernel folds[KOLO_NDTYPES][KOLO_NOPS];
    ko_cu_kernel premuls[KOLO_NDTYPES];
    ko_cu_kernel scales[KOLO_NDTYPES][KOLO_NDTYPES]; /* from, to; NULL: there is none */
    ko_cu_kernel rounded[KOLO_NDTYPES];              /* sums, by wire */
    ko_cu_kernel steps[KO_NSTEP_RULES][KOLO_NDTYPES][KOLO_NDTYPES]; /* dtype, wire */
    ko_cu_kernel push, tell;
} loaded = {.once.first = PTHREAD_ONCE_INIT};

/* What an op is called for a dtype: those of bool are the logical ones. */
static const char *fold_name(kolo_dtype dtype, kolo_op op)
{
    static const kolo_op of_bool[KOLO_NOPS] = {
        [KOLO_SUM] = KOLO_BOR,   [KOLO_PROD] = KOLO_BAND, [KOLO_MIN] = KOLO_BAND,
        [KOLO_MAX] = KOLO_BOR,   [KOLO_BAND] = KOLO_BAND, [KOLO_BOR] = KOLO_BOR,
        [KOLO_BXOR] = KOLO_BXOR,
    };

    if (dtype == KOLO_BOOL)
        op = of_bool[op];
    return kolo_op_name(op == KOLO_AVG ? KOLO_SUM : op);
}

static int find_fold(const struct ko_cuda *cuda, ko_cu_library library, kolo_dtype dtype,
                     kolo_op op)
{
    char name[64];

    if (!ko_reduction_of(dtype, op))
        return KOLO_OK;
    snprintf(name, sizeof name, "ko_fold_%s_%s", kolo_dtype_name(dtype), fold_name(dtype, op));
    return ko_cuda_check(cuda, cuda->library_kernel(&loaded.folds[dtype][op], library, name), name);
}

static int find_premul(const struct ko_cuda *cuda, ko_cu_library library, kolo_dtype dtype)
{
    char name[64];

    snprintf(name, sizeof name, "ko_premul_%s", kolo_dtype_name(dtype));
    return ko_cuda_check(cuda, cuda->library_kernel(&loaded.premuls[dtype], library, name), name);
}

/* Those that gradients have. */
static const kolo_dtype gradients[] = {KOLO_FLOAT32, KOLO_FLOAT16, KOLO_BFLOAT16};
enum { NGRADIENTS = sizeof gradients / sizeof *gradients };

static int find_scale(const struct ko_cuda *cuda, ko_cu_library library, kolo_dtype from,
                      kolo_dtype to)
{
    char name[64];

    snprintf(name, sizeof name, "ko_scale_%s_%s", kolo_dtype_name(from), kolo_dtype_name(to));
    return ko_cuda_check(cuda, cuda->library_kernel(&loaded.scales[from][to], library, name), name);
}

static int find_step(const struct ko_cuda *cuda, ko_cu_library library, enum ko_step_rule rule,
                     kolo_dtype dtype, kolo_dtype wire)
{
    char name[64];

    snprintf(name, sizeof name, "ko_%s_%s%s%s", rule == KO_SGD_RULE ? "sgd" : "adam",
             kolo_dtype_name(dtype), wire == dtype ? "" : "_as_",
             wire == dtype ? "" : kolo_dtype_name(wire));
    return ko_cuda_check(
        cuda, cuda->library_kernel(&loaded.steps[rule][dtype][wire], library, name), name);
}

/* Of float32 that goes as something smaller. */
static int find_rounded(const struct ko_cuda *cuda, ko_cu_library library, kolo_dtype wire)
{
    char name[64];
    int err;

    snprintf(name, sizeof name, "ko_fold_float32_as_%s_sum", kolo_dtype_name(wire));
    err = ko_cuda_check(cuda, cuda->library_kernel(&loaded.rounded[wire], library, name), name);
    for (int rule = 0; rule < KO_NSTEP_RULES && !err; rule++)
        err = find_step(cuda, library, (enum ko_step_rule)rule, KOLO_FLOAT32, wire);
    return err;
}

static int find_epilogues(const struct ko_cuda *cuda, ko_cu_library library)
{
    int err = KOLO_OK;

    for (int i = 0; i < NGRADIENTS && !err; i++) {
        for (int j = 0; j < NGRADIENTS && !err; j++)
            err = find_scale(cuda, library, gradients[i], gradients[j]);
        for (int rule = 0; rule < KO_NSTEP_RULES && !err; rule++)
            err = find_step(cuda, library, (enum ko_step_rule)rule, gradients[i], gradients[i]);
        if (!err && gradients[i] != KOLO_FLOAT32)
            err = find_rounded(cuda, library, gradients[i]);
    }
    return err;
}

static int find_messages(const struct ko_cuda *cuda, ko_cu_library library)
{
    int err = ko_cuda_check(cuda, cuda->library_kernel(&loaded.push, library, "ko_push_bytes"),
                            "ko_push_bytes");

    return err ? err
               : ko_cuda_check(cuda, cuda->library_kernel(&loaded.tell, library, "ko_tell_words"),
                               "ko_tell_words");
}

static int check_build(void)
{
    return ko_cuda_image_bytes
               ? KOLO_OK
               : ko_fail(KOLO_E_UNSUPPORTED, "this build of kolo has no kernels for GPUs; build it "
                                             "where nvcc is, or with CUDA=1 to see why not");
}

/* Since CUDA 12.8 nvcc packs images by zstd (the Makefile's compress-mode), which drivers can undo
 * since 12.4. What those before say to such an image is no help. */
static bool is_packed_for_later(int version)
{
    static const unsigned char zstd[] = {0x28, 0xb5, 0x2f, 0xfd};

    return version && version < 12040 &&
           memmem(ko_cuda_image, ko_cuda_image_bytes, zstd, sizeof zstd);
}

/* What the driver says to the image, at once or when a kernel of it is wanted on a GPU. */
static int check_image(const struct ko_cuda *cuda, ko_cu_result result)
{
    int version = 0;

    if (!result || result == KO_CU_OUT_OF_MEMORY)
        return ko_cuda_check(cuda, result, "the kernels cannot be loaded");
    (void)cuda->driver_version(&version);
    if (is_packed_for_later(version))
        return ko_fail(KOLO_E_UNSUPPORTED,
                       "the driver, of CUDA %d.%d, is too old to unpack the kernels of this build "
                       "of kolo (%d), which drivers of CUDA 12.4 and later can; update it, or "
                       "build with an nvcc of before CUDA 12.8",
                       version / 1000, version % 1000 / 10, result);
    if (result == KO_CU_NO_BINARY)
        return ko_fail(KOLO_E_UNSUPPORTED,
                       "this build of kolo has no kernels for this GPU "
                       "(CUDA_ERROR_NO_BINARY_FOR_GPU, %d); build it with CUDA_ARCHS naming its "
                       "compute capability",
                       result);
    if (result != KO_CU_TEXT_TOO_NEW)
        return ko_cuda_check(cuda, result, "the kernels cannot be loaded");
    return ko_fail(KOLO_E_UNSUPPORTED,
                   "the driver, of CUDA %d.%d, is too old for the kernels of this build of kolo "
                   "(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, %d); update it, or build with an older "
                   "nvcc",
                   version / 1000, version % 1000 / 10, result);
}

static int load(void)
{
    const struct ko_cuda *cuda;
    ko_cu_library library;
    int err = ko_cuda_open(&cuda);

    if (!err)
        err = check_build();
    if (!err)
        err = check_image(
            cuda, cuda->library_load(&library, ko_cuda_image, NULL, NULL, 0, NULL, NULL, 0));
    for (int dtype = 0; dtype < KOLO_NDTYPES && !err; dtype++) {
        for (int op = 0; op < KOLO_NOPS && !err; op++)
            err = find_fold(cuda, library, (kolo_dtype)dtype, (kolo_op)op);
        if (!err)
            err = find_premul(cuda, library, (kolo_dtype)dtype);
    }
    if (!err)
        err = find_epilogues(cuda, library);
    return err ? err : find_messages(cuda, library);
}

int ko_cuda_kernels_open(void)
{
    return ko_once(&loaded.once, load);
}

/* With what is no kernel left out: not every dtype has every op. */
static ko_cu_result preload(const struct ko_cuda *cuda, const ko_cu_kernel *kernels, size_t n)
{
    ko_cu_result result = KO_CU_SUCCESS;

    for (size_t i = 0; i < n && !result; i++)
        if (kernels[i])
            result = ko_cuda_preload(cuda, kernels[i]);
    return result;
}

/* All of them, as nobody knows which will be called for. The driver knows which are loaded. */
int ko_cuda_kernels_preload(void)
{
    const struct ko_cuda *cuda;
    ko_cu_result result;
    int err = ko_cuda_open(&cuda);

    if (!err)
        err = ko_cuda_kernels_open();
    if (err)
        return err;
    result = preload(cuda, &loaded.folds[0][0], sizeof loaded.folds / sizeof(ko_cu_kernel));
    if (!result)
        result = preload(cuda, loaded.premuls, KOLO_NDTYPES);
    if (!result)
        result = preload(cuda, &loaded.scales[0][0], sizeof loaded.scales / sizeof(ko_cu_kernel));
    if (!result)
        result = preload(cuda, loaded.rounded, KOLO_NDTYPES);
    if (!result)
        result = preload(cuda, &loaded.steps[0][0][0], sizeof loaded.steps / sizeof(ko_cu_kernel));
    if (!result)
        result = preload(cuda, &loaded.push, 1);
    if (!result)
        result = preload(cuda, &loaded.tell, 1);
    return check_image(cuda, result);
}

static int launch_blocks(ko_cu_kernel kernel, unsigned nblocks, void *argument, ko_cu_stream stream)
{
    const struct ko_cuda *cuda;
    void *arguments[] = {argument};
    int err = ko_cuda_open(&cuda);

    return err ? err
               : ko_cuda_check(cuda,
                               cuda->launch(kernel, nblocks, 1, 1, NTHREADS, 1, 1, 0, stream,
                                            arguments, NULL),
                               "a kernel cannot be started");
}

/* A kernel whose blocks go through nbytes, however many they are: as many as have a turn, more than
 * there is room for at once, since the GPU moves more bytes so than in blocks that stay (by a
 * tenth, measured on an H200). */
static int launch(ko_cu_kernel kernel, uint64_t nbytes, void *argument, ko_cu_stream stream)
{
    const uint64_t nblocks = (nbytes + BLOCK_BYTES - 1) / BLOCK_BYTES;

    return nbytes ? launch_blocks(kernel, (unsigned)nblocks, argument, stream) : KOLO_OK;
}

int ko_cuda_fold(kolo_dtype dtype, kolo_op op, struct ko_fold fold, int nranks, ko_cu_stream stream)
{
    struct ko_reduction reduction;
    int err = ko_reduction_find(dtype, op, &reduction);

    if (!err)
        err = ko_cuda_kernels_open();
    if (err)
        return err;
    fold.divisor = op == KOLO_AVG ? (uint32_t)nranks : 1;
    return launch(loaded.folds[dtype][op], fold.count * reduction.nbytes, &fold, stream);
}

/* As the type that the dtype is computed in; reduce.h says how. */
static uint64_t factor_bits(kolo_dtype dtype, const struct ko_reduction *reduction, double factor)
{
    const float small = (float)factor;
    const uint64_t one = 1;
    uint64_t bits = 0;

    if (dtype == KOLO_FLOAT64)
        memcpy(&bits, &factor, sizeof factor);
    else if (ko_dtype_is_float(dtype))
        memcpy(&bits, &small, sizeof small);
    else
        reduction->scale(&bits, &one, 1, factor);
    return bits;
}

int ko_cuda_premul(kolo_dtype dtype, const struct ko_fold *fold, const double *factors,
                   ko_cu_stream stream)
{
    struct ko_premul_fold premul = {.fold = *fold};
    struct ko_reduction reduction;
    int err = ko_reduction_find(dtype, KOLO_SUM, &reduction);

    if (!err)
        err = ko_cuda_kernels_open();
    if (err)
        return err;
    premul.fold.divisor = 1;
    for (uint32_t p = 0; p < fold->nparts; p++)
        premul.factors[p] = factor_bits(dtype, &reduction, factors[p]);
    return launch(loaded.premuls[dtype], fold->count * reduction.nbytes, &premul, stream);
}

/* The number of blocks follows from nbytes alone, as all ranks have to have the same. */
int ko_cuda_push(struct ko_push push, ko_cu_stream stream)
{
    const uint64_t block = KO_PUSH_PAIRS * 8;
    int err = ko_cuda_kernels_open();

    return err || !push.nbytes
               ? err
               : launch_blocks(loaded.push, (unsigned)((push.nbytes + block - 1) / block), &push,
                               stream);
}

int ko_cuda_tell(struct ko_tell tell, ko_cu_stream stream)
{
    int err = ko_cuda_kernels_open();

    return err ? err : launch_blocks(loaded.tell, 1, &tell, stream);
}

/* ---- gradients ------------------------------------------------------------------------------- */

static int open_for(kolo_dtype dtype)
{
    int err = ko_gradients_check(dtype);

    return err ? err : ko_cuda_kernels_open();
}

int ko_cuda_fold_rounded(kolo_dtype wire, kolo_op op, struct ko_fold fold, int nranks,
                         ko_cu_stream stream)
{
    int err = open_for(wire);

    fold.divisor = op == KOLO_AVG ? (uint32_t)nranks : 1;
    return err ? err : launch(loaded.rounded[wire], fold.count * sizeof(float), &fold, stream);
}

int ko_cuda_scale(kolo_dtype from, kolo_dtype to, struct ko_scale scale, ko_cu_stream stream)
{
    uint64_t most = 0;
    int err = open_for(from);

    if (!err)
        err = open_for(to);
    if (err)
        return err;
    for (uint32_t i = 0; i < scale.n; i++)
        most = scale.counts[i] > most ? scale.counts[i] : most;
    return launch(loaded.scales[from][to], most << ko_dtype_shift(from), &scale, stream);
}

int ko_cuda_step(const struct ko_gradients *of, struct ko_step step, ko_cu_stream stream)
{
    int err = open_for(of->dtype);

    step.divisor = of->op == KOLO_AVG ? (uint32_t)of->nranks : 1;
    return err ? err
               : launch(loaded.steps[of->rule][of->dtype][of->wire], step.count * sizeof(float),
                        &step, stream);
}
