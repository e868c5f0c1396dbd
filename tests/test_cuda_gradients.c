/* SPDX-License-Identifier: MIT
 *
 * Training's calls on GPU memory, on the double of NVIDIA's driver: among ranks that share a GPU,
 * that have several, and by way of host memory; in one pass over memory; in graphs.
 */
#include "gpu_double.h"
#include "gpu_rank.h"
#include "gradient_exam.h"
#include "ranks.h"
#include "sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

/* So many elements that no two bytes of each are pushed (kernel_args.h). */
enum { SLICE_BYTES = 4096, EXAMS = 12, COUNT = 40003 };

static void run_on(const char *ngpus, enum ranks_kind kind, int n, ranks_body body)
{
    setenv("FAKECUDA_DEVICES", ngpus, 1);
    exam_set_variables("shm", "", SLICE_BYTES);
    assert_int_equal(ranks_run(&(struct ranks){.kind = kind, .n = n}, body, NULL), 0);
}

/* ---- results --------------------------------------------------------------------------------- */

static int take_exams(kolo_group *group, void *unused)
{
    int failed = gpu_rank_enter(group);

    (void)unused;
    for (unsigned seed = 0; seed < EXAMS && !failed; seed++) {
        failed = gradient_exam_step(group, &gpu_rank_memory, seed);
        if (!failed)
            failed = gradient_exam_compressed(group, &gpu_rank_memory, seed);
        if (!failed)
            failed = gradient_exam_unscale(group, &gpu_rank_memory, seed);
    }
    if (!failed) /* the stream is no matter for buffers of the host */
        failed = gradient_exam_step(group, NULL, 3);
    return gpu_rank_leave(failed);
}

static void take_on_gpus(enum ranks_kind kind)
{
    static const int sizes[] = {1, 2, 3, 5, 8};

    for (int i = 0; i < 5; i++)
        run_on("1", kind, sizes[i], take_exams);
    run_on("3", kind, 3, take_exams);
    run_on("2", kind, 4, take_exams);
    setenv("KOLO_CUDA_PEERS", "0", 1); /* by way of the host */
    run_on("3", kind, 3, take_exams);
    unsetenv("KOLO_CUDA_PEERS");
}

static void test_processes(void **state)
{
    (void)state;
    take_on_gpus(RANKS_PROCESSES);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* What ranks that are processes leave here, too. */
static struct counts {
    atomic_uint_fast64_t read, written, read_there, written_there; /* there: of other GPUs */
} * counts;

static void *make(size_t nbytes)
{
    void *content = calloc(1, nbytes), *made;

    if (!content)
        abort();
    made = gpu_rank_memory.make(content, nbytes);
    if (gpu_rank.cuda->stream_sync(gpu_rank.stream))
        abort();
    free(content);
    return made;
}

enum counted { SGD, MOMENTUM, ADAM, COMPRESSED, COMPRESSED_SGD, COMPRESSED_ADAM, NCOUNTED };

static bool is_compressed(enum counted what)
{
    return what >= COMPRESSED;
}

static uint64_t nstates_of(enum counted what)
{
    return what == ADAM || what == COMPRESSED_ADAM ? 2 : what == MOMENTUM;
}

static kolo_update make_update(void)
{
    return (kolo_update){.grad = make(COUNT * sizeof(float)),
                         .param = make(COUNT * sizeof(float)),
                         .states = {make(COUNT * sizeof(float)), make(COUNT * sizeof(float))},
                         .count = COUNT};
}

static int count_one(kolo_group *group, const kolo_update *update, enum counted what)
{
    const kolo_step step = {.optimizer = nstates_of(what) == 2 ? KOLO_ADAM : KOLO_SGD,
                            .number = 2,
                            .momentum = what == MOMENTUM ? 0.9F : 0,
                            .beta1 = 0.9F,
                            .beta2 = 0.9F,
                            .epsilon = 1,
                            .wire = is_compressed(what) ? KOLO_FLOAT16 : 0};
    struct gpu_bytes there = gpu_bytes_now();
    uint64_t before[2], after[2];
    int err = kolo_barrier(group);

    gpu_bytes_of_all(&before[0], &before[1]);
    if (!err)
        err = what == COMPRESSED
                  ? kolo_all_reduce_compressed(group, update->grad, update->param, COUNT,
                                               KOLO_BFLOAT16, KOLO_SUM)
                  : kolo_all_reduce_step(group, update, KOLO_FLOAT32, KOLO_AVG, &step);
    if (err || kolo_barrier(group))
        return ranks_fail("%d", what);
    gpu_bytes_of_all(&after[0], &after[1]);
    atomic_fetch_add(&counts[what].read, after[0] - before[0]);
    atomic_fetch_add(&counts[what].written, after[1] - before[1]);
    there = gpu_bytes_since(there);
    atomic_fetch_add(&counts[what].read_there, there.read_there);
    atomic_fetch_add(&counts[what].written_there, there.written_there);
    return 0;
}

static int count_bytes(kolo_group *group, void *unused)
{
    int failed = gpu_rank_enter(group);
    const kolo_update update = make_update();

    (void)unused;
    for (int what = 0; what < NCOUNTED && !failed; what++)
        failed = count_one(group, &update, (enum counted)what);
    return gpu_rank_leave(failed);
}

/* Gradients are read once, and what all have alike once; all of it is written to each rank. */
static void expect_floor(uint64_t n, enum counted what)
{
    const uint64_t unit = COUNT * sizeof(float);

    assert_int_equal(counts[what].read, unit * (n + (what != COMPRESSED) + nstates_of(what)));
    assert_int_equal(counts[what].written, unit * n * (1 + nstates_of(what)));
}

/* From each other GPU a rank's share of the gradients comes, half of it if they travel as smaller
 * ones; there goes the rank's share of the result. */
static void expect_floor_between(uint64_t n, enum counted what)
{
    const uint64_t unit = COUNT * sizeof(float), travels = is_compressed(what) ? unit / 2 : unit;

    assert_int_equal(counts[what].read_there, (n - 1) * travels);
    assert_int_equal(counts[what].written_there,
                     (n - 1) * (what == COMPRESSED ? travels : unit * (1 + nstates_of(what))));
}

static void test_one_pass(void **state)
{
    (void)state;
    for (int n = IS_SANITIZED ? 4 : 1; n <= 4; n++)
        for (int ngpus = 1; ngpus <= 2; ngpus++) {
            memset(counts, 0, NCOUNTED * sizeof *counts);
            run_on(ngpus == 1 ? "1" : "4", RANKS_PROCESSES, n, count_bytes);
            for (int what = 0; what < NCOUNTED; what++) {
                if (ngpus == 1 || n == 1 || !is_compressed((enum counted)what))
                    expect_floor((uint64_t)n, (enum counted)what);
                if (ngpus > 1)
                    expect_floor_between((uint64_t)n, (enum counted)what);
            }
        }
}

/* ---- graphs ---------------------------------------------------------------------------------- */

enum { LAUNCHES = 5, SMALL = 1003 };

/* Gradients in host memory, their copy, and what comes of them. */
static struct trained {
    kolo_update update;
    float grads[SMALL], params[SMALL], states[2][SMALL];
    float *unscaled, *found, none;
} * make_trained(int rank)
{
    struct trained *trained = calloc(1, sizeof *trained);

    if (!trained)
        abort();
    for (int i = 0; i < SMALL; i++) {
        trained->grads[i] = (float)((i * 5 + rank * 3) % 11);
        trained->params[i] = (float)(i % 13);
    }
    trained->update.count = SMALL;
    trained->update.grad = gpu_rank_memory.make(trained->grads, sizeof trained->grads);
    trained->update.param = gpu_rank_memory.make(trained->params, sizeof trained->params);
    for (int s = 0; s < 2; s++)
        trained->update.states[s] =
            gpu_rank_memory.make(trained->states[s], sizeof trained->states[s]);
    trained->unscaled = gpu_rank_memory.make(trained->grads, sizeof trained->grads);
    trained->found = gpu_rank_memory.make(&trained->none, sizeof trained->none);
    if (gpu_rank.cuda->stream_sync(gpu_rank.stream)) /* params are about to change here */
        abort();
    return trained;
}

/* A step as mixed precision makes it, by what the ranks reduced: unscaled, checked, halved on its
 * way. */
static int capture(kolo_group *group, const struct trained *trained, const kolo_step *step,
                   ko_cu_graph_exec *exec)
{
    const kolo_cast cast = {.from = KOLO_FLOAT32, .to = KOLO_FLOAT32, .factor = 0.5F};
    const kolo_tensor tensor = {trained->update.grad, trained->unscaled, SMALL};
    kolo_update update = trained->update;
    int failed = gpu_rank_capture();

    update.grad = trained->unscaled;
    if (!failed && kolo_unscale(group, &tensor, 1, &cast, trained->found))
        failed = ranks_fail("unscale");
    if (!failed && kolo_all_reduce_compressed(group, trained->unscaled, trained->unscaled, SMALL,
                                              KOLO_BFLOAT16, KOLO_SUM))
        failed = ranks_fail("compressed");
    if (!failed && kolo_all_reduce_step(group, &update, KOLO_FLOAT32, KOLO_AVG, step))
        failed = ranks_fail("step");
    return failed | gpu_rank_captured(exec);
}

static void move_here(struct trained *trained, int n, const kolo_step *step)
{
    for (int i = 0; i < SMALL; i++) {
        float sum = 0, states[2] = {trained->states[0][i], trained->states[1][i]};

        for (int r = 0; r < n; r++)
            sum += (float)((i * 5 + r * 3) % 11) * 0.5F;
        trained->params[i] = gradient_exam_move(step, trained->params[i], sum, states);
        trained->states[0][i] = states[0];
        trained->states[1][i] = states[1];
    }
}

static int compare(struct trained *trained, int n, const kolo_step *step, int nsteps)
{
    float params[SMALL], found;

    for (int i = 0; i < nsteps; i++)
        move_here(trained, n, step);
    gpu_rank_memory.fetch(params, trained->update.param, sizeof params);
    gpu_rank_memory.fetch(&found, trained->found, sizeof found);
    if (found != (float)0)
        return ranks_fail("found %g", (double)found);
    for (int i = 0; i < SMALL; i++)
        if (params[i] != trained->params[i])
            return ranks_fail("parameter %d is %.9g, not %.9g", i, (double)params[i],
                              (double)trained->params[i]);
    return 0;
}

/* A longer call than those in the graph, which wants more memory for elements as smaller ones. */
static int compress_meanwhile(kolo_group *group)
{
    const kolo_update other = make_update();

    return kolo_all_reduce_compressed(group, other.grad, other.grad, COUNT, KOLO_FLOAT16, KOLO_SUM)
               ? ranks_fail("compressed meanwhile")
               : 0;
}

static int capture_and_launch(kolo_group *group, void *unused)
{
    const kolo_step step = {.optimizer = KOLO_ADAM,
                            .number = 2,
                            .rate = 0.25F,
                            .beta1 = 0.9F,
                            .beta2 = 0.99F,
                            .epsilon = 1e-3F};
    ko_cu_graph_exec exec = NULL;
    int failed = gpu_rank_enter(group);
    struct trained *trained = make_trained(kolo_group_rank(group));

    (void)unused;
    if (!failed)
        failed = capture(group, trained, &step, &exec);
    for (int i = 0; i < LAUNCHES && !failed; i++) {
        if (gpu_rank.cuda->graph_launch(exec, gpu_rank.stream))
            failed = ranks_fail("a launch");
        if (!failed && i == LAUNCHES / 2)
            failed = compress_meanwhile(group);
    }
    if (!failed)
        failed = compare(trained, kolo_group_size(group), &step, LAUNCHES);
    if (exec)
        (void)gpu_rank.cuda->graph_exec_destroy(exec);
    free(trained);
    return gpu_rank_leave(failed);
}

static int compress(kolo_group *group, float *values)
{
    return kolo_all_reduce_compressed(group, values, values, COUNT, KOLO_BFLOAT16, KOLO_SUM)
               ? ranks_fail("compressed")
               : 0;
}

static float *make_filled(float value)
{
    float content[COUNT], *made;

    for (int i = 0; i < COUNT; i++)
        content[i] = value;
    made = gpu_rank_memory.make(content, sizeof content);
    if (gpu_rank.cuda->stream_sync(gpu_rank.stream))
        abort();
    return made;
}

static int expect_filled(float *values, float value)
{
    float content[COUNT];

    gpu_rank_memory.fetch(content, values, sizeof content);
    for (int i = 0; i < COUNT; i++)
        if (content[i] != value)
            return ranks_fail("element %d is %g, not %g", i, (double)content[i], (double)value);
    return 0;
}

/* A graph that has cast its elements waits in another stream for rank 0's, while all make a call
 * that casts its own. */
static int compress_beside_graph(kolo_group *group, void *unused)
{
    const int rank = kolo_group_rank(group);
    ko_cu_graph_exec exec = NULL;
    ko_cu_stream stream = NULL;
    int failed = gpu_rank_enter(group);
    float *captured = make_filled((float)(1 + rank)), *called = make_filled((float)(10 + rank));

    (void)unused;
    failed = failed || gpu_rank.cuda->stream_create(&stream, KO_CU_STREAM_NON_BLOCKING) ||
             gpu_rank_capture() || compress(group, captured) || gpu_rank_captured(&exec);
    if (!failed && rank && gpu_rank.cuda->graph_launch(exec, stream))
        failed = ranks_fail("a launch");
    ranks_nap_ms(20); /* it has come to its wait */
    failed = failed || kolo_barrier(group) || compress(group, called);
    if (!failed && !rank && gpu_rank.cuda->graph_launch(exec, stream))
        failed = ranks_fail("rank 0's launch");
    if (!failed && gpu_rank.cuda->stream_sync(stream))
        failed = ranks_fail("the graph");
    failed = failed || expect_filled(captured, 3) || expect_filled(called, 21);
    if (!failed && kolo_barrier(group))
        failed = ranks_fail("barrier");
    if (exec)
        (void)gpu_rank.cuda->graph_exec_destroy(exec);
    return gpu_rank_leave(failed);
}

static void launch_on_gpus(enum ranks_kind kind)
{
    run_on("2", kind, 2, compress_beside_graph);
    for (int n = 1; n <= 4; n++) {
        run_on("1", kind, n, capture_and_launch);
        run_on("4", kind, n, capture_and_launch);
    }
}

static void test_graphs(void **state)
{
    (void)state;
    launch_on_gpus(RANKS_PROCESSES);
}

/* ---- wrong calls ----------------------------------------------------------------------------- */

static int mix(kolo_group *group, void *unused)
{
    int failed = gpu_rank_enter(group);
    float skip = 0;
    kolo_update update = make_update();
    kolo_step step = {.optimizer = KOLO_SGD, .number = 1, .skip_at = &skip};

    (void)unused;
    if (!failed)
        failed = ranks_expect(kolo_all_reduce_step(group, &update, KOLO_FLOAT32, KOLO_SUM, &step),
                              KOLO_E_INVALID,
                              "all_reduce_step: 3 buffers are in GPU memory and 1 in host memory");
    return gpu_rank_leave(failed);
}

static int break_kernels(kolo_group *group, void *unused)
{
    int failed = gpu_rank_enter(group);
    const kolo_update update = make_update();
    const kolo_step step = {.optimizer = KOLO_SGD, .number = 1};
    const kolo_cast cast = {.from = KOLO_FLOAT32, .to = KOLO_FLOAT32, .factor = 1};
    const kolo_tensor tensor = {update.grad, update.grad, COUNT};

    (void)unused;
    setenv("FAKECUDA_BREAK", "cuLaunchKernel=719", 1);
    if (!failed)
        failed = ranks_expect(
            getenv("BY_STEP") ? kolo_all_reduce_step(group, &update, KOLO_FLOAT32, KOLO_SUM, &step)
                              : kolo_unscale(group, &tensor, 1, &cast, update.param),
            KOLO_E_SYSTEM, "a kernel cannot be started");
    unsetenv("FAKECUDA_BREAK");
    return gpu_rank_leave(failed);
}

static void test_failing_kernels(void **state)
{
    (void)state;
    run_on("1", RANKS_PROCESSES, 1, break_kernels);
    setenv("BY_STEP", "1", 1);
    run_on("1", RANKS_PROCESSES, 1, break_kernels);
    setenv("KOLO_CUDA_PEERS", "0", 1);
    run_on("2", RANKS_PROCESSES, 2, break_kernels);
    unsetenv("KOLO_CUDA_PEERS");
    unsetenv("BY_STEP");
}

/* Last, since a process that has had threads is not to be forked under ThreadSanitizer. */
static void test_threads(void **state)
{
    (void)state;
    run_on("1", RANKS_THREADS, 2, mix);
    take_on_gpus(RANKS_THREADS);
    launch_on_gpus(RANKS_THREADS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processes), cmocka_unit_test(test_one_pass),
        cmocka_unit_test(test_graphs),    cmocka_unit_test(test_failing_kernels),
        cmocka_unit_test(test_threads),
    };

    setenv("FAKECUDA_JITTER", "50", 1);
    counts = mmap(NULL, NCOUNTED * sizeof *counts, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (counts == MAP_FAILED)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
