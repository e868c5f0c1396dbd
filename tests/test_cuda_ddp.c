/* SPDX-License-Identifier: MIT
 *
 * Data-parallel training of parameters in GPU memory that do not lie side by side, on the double of
 * NVIDIA's driver: each array is an allocation of its own, or some are in host memory. Gradients
 * are small integers, so that averages are exact.
 */
#include "gpu_rank.h"
#include "gradient_exam.h"
#include "ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { NPARAMS = 5, MOST = 1201, NSTEPS = 3 };

static const size_t counts[NPARAMS] = {700, 3, 0, MOST, 1};

enum arrays { DATA, FIRST, SECOND, GRAD, NARRAYS };

struct training {
    kolo_ddp_options options;
    bool has_step, is_mixed;
    kolo_optimizer optimizer;
};

struct model {
    kolo_param params[NPARAMS];
    bool is_on_gpu[NPARAMS];
    float arrays[NARRAYS][NPARAMS][MOST]; /* what is wanted of each; of gradients what was put */
};

/* ---- a model --------------------------------------------------------------------------------- */

static void *make_array(bool is_on_gpu, const float *content, size_t count)
{
    const size_t nbytes = count * sizeof(float);
    void *made;

    if (is_on_gpu)
        return gpu_rank_memory.make(content, nbytes);
    made = malloc(nbytes);
    if (!made)
        abort();
    return memcpy(made, content, nbytes);
}

static struct model *model_make(bool is_mixed, int rank)
{
    static const char *const names[NPARAMS] = {"a", "b", "c", "d", "e"};
    struct model *model = calloc(1, sizeof *model);

    if (!model)
        abort();
    for (size_t i = 0; i < NPARAMS; i++) {
        kolo_param *param = &model->params[i];
        float(*arrays)[NPARAMS][MOST] = model->arrays;

        *param = (kolo_param){.name = names[i], .count = counts[i], .dtype = KOLO_FLOAT32};
        model->is_on_gpu[i] = !is_mixed || i % 2;
        if (!counts[i])
            continue;
        for (size_t k = 0; k < counts[i]; k++)
            arrays[DATA][i][k] = (float)((k + i) % 19) / 7 + (float)rank;
        param->data = make_array(model->is_on_gpu[i], arrays[DATA][i], counts[i]);
        param->grad = make_array(model->is_on_gpu[i], arrays[GRAD][i], counts[i]);
        param->states[0] = make_array(model->is_on_gpu[i], arrays[FIRST][i], counts[i]);
        param->states[1] = make_array(model->is_on_gpu[i], arrays[SECOND][i], counts[i]);
    }
    if (gpu_rank.cuda->stream_sync(gpu_rank.stream))
        abort();
    for (size_t i = 0; i < NPARAMS; i++) /* they are rank 0's once there is a ddp */
        for (size_t k = 0; k < counts[i]; k++)
            model->arrays[DATA][i][k] = (float)((k + i) % 19) / 7;
    return model;
}

static void free_array(bool is_on_gpu, void *array)
{
    if (is_on_gpu)
        (void)gpu_rank.cuda->free((uintptr_t)array);
    else
        free(array);
}

static void model_free(struct model *model)
{
    for (size_t i = 0; i < NPARAMS; i++) {
        if (!counts[i])
            continue;
        free_array(model->is_on_gpu[i], model->params[i].data);
        free_array(model->is_on_gpu[i], model->params[i].grad);
        free_array(model->is_on_gpu[i], model->params[i].states[0]);
        free_array(model->is_on_gpu[i], model->params[i].states[1]);
    }
    free(model);
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* The average of (2 rank + 1) times it is size times it. */
static float part_of_gradient(size_t i, size_t k, uint64_t number)
{
    return (float)((k * 3 + i + (size_t)number) % 16);
}

/* Begun in the group's stream; what was there before is no matter. */
static int backward(struct model *model, size_t i, int rank, uint64_t number)
{
    const kolo_param *param = &model->params[i];
    float *content = model->arrays[GRAD][i];

    for (size_t k = 0; k < param->count; k++)
        content[k] = part_of_gradient(i, k, number) * (float)(2 * rank + 1);
    if (!param->count)
        return 0;
    if (!model->is_on_gpu[i])
        memcpy(param->grad, content, param->count * sizeof(float));
    else if (gpu_rank.cuda->copy((uintptr_t)param->grad, (uintptr_t)content,
                                 param->count * sizeof(float), gpu_rank.stream))
        return ranks_fail("a gradient cannot be put");
    return 0;
}

/* What is there now: not by the group's stream, which might still have to make it. */
static void read_array(bool is_on_gpu, float *content, const void *array, size_t count)
{
    const size_t nbytes = count * sizeof(float);
    ko_cu_stream stream;

    if (!is_on_gpu) {
        memcpy(content, array, nbytes);
        return;
    }
    if (gpu_rank.cuda->stream_create(&stream, KO_CU_STREAM_NON_BLOCKING) ||
        gpu_rank.cuda->copy((uintptr_t)content, (uintptr_t)array, nbytes, stream) ||
        gpu_rank.cuda->stream_sync(stream) || gpu_rank.cuda->stream_destroy(stream))
        abort();
}

static int compare_array(const struct model *model, size_t i, const void *array, const float *want)
{
    float content[MOST];

    if (!counts[i])
        return 0;
    read_array(model->is_on_gpu[i], content, array, counts[i]);
    for (size_t k = 0; k < counts[i]; k++)
        if (content[k] != want[k])
            return ranks_fail("element %zu of parameter %zu is %g, not %g", k, i,
                              (double)content[k], (double)want[k]);
    return 0;
}

static void move_here(struct model *model, const kolo_step *step, int size)
{
    for (size_t i = 0; i < NPARAMS; i++)
        for (size_t k = 0; k < counts[i]; k++) {
            float(*arrays)[NPARAMS][MOST] = model->arrays;
            float states[2] = {arrays[FIRST][i][k], arrays[SECOND][i][k]};

            arrays[DATA][i][k] =
                gradient_exam_move(step, arrays[DATA][i][k],
                                   (float)size * part_of_gradient(i, k, step->number), states);
            arrays[FIRST][i][k] = states[0];
            arrays[SECOND][i][k] = states[1];
        }
}

static int check_averages(const struct model *model, int size, uint64_t number)
{
    float want[MOST];
    int failed = 0;

    for (size_t i = 0; i < NPARAMS && !failed; i++) {
        for (size_t k = 0; k < counts[i]; k++)
            want[k] = (float)size * part_of_gradient(i, k, number);
        failed = compare_array(model, i, model->params[i].grad, want);
    }
    return failed;
}

static int take_one(kolo_group *group, struct model *model, kolo_ddp *ddp, const kolo_step *step,
                    bool has_step)
{
    const int rank = kolo_group_rank(group), size = kolo_group_size(group);
    int failed = kolo_ddp_set_step(ddp, has_step ? step : NULL) ? ranks_fail("set_step") : 0;

    for (size_t i = NPARAMS; i-- > 0 && !failed;) {
        failed = backward(model, i, rank, step->number);
        if (!failed && kolo_ddp_ready(ddp, i))
            failed = ranks_fail("ready");
    }
    if (!failed && kolo_ddp_wait(ddp))
        failed = ranks_fail("wait");
    if (failed)
        return failed;
    if (!has_step)
        return check_averages(model, size, step->number);
    move_here(model, step, size);
    return 0;
}

static int compare(const struct model *model, const kolo_step *step)
{
    const int nstates = step->optimizer == KOLO_ADAM ? 2 : 1;
    int failed = 0;

    for (size_t i = 0; i < NPARAMS && !failed; i++) {
        failed = compare_array(model, i, model->params[i].data, model->arrays[DATA][i]);
        for (int s = 0; s < nstates && !failed; s++)
            failed =
                compare_array(model, i, model->params[i].states[s], model->arrays[FIRST + s][i]);
    }
    return failed;
}

static int train(kolo_group *group, void *argument)
{
    const struct training *training = argument;
    kolo_step step = {.optimizer = training->optimizer,
                      .rate = 0.125F,
                      .momentum = 0.5F,
                      .beta1 = 0.5F,
                      .beta2 = 0.75F,
                      .epsilon = 0.01F};
    int failed = gpu_rank_enter(group);
    struct model *model = model_make(training->is_mixed, kolo_group_rank(group));
    kolo_ddp *ddp = NULL;

    if (!failed && kolo_ddp_create(group, model->params, NPARAMS, &training->options, &ddp))
        failed = ranks_fail("create");
    if (!failed && kolo_group_size(group) > 1)
        failed = compare(model, &step);
    for (step.number = 1; step.number <= NSTEPS && !failed; step.number++)
        failed = take_one(group, model, ddp, &step, training->has_step);
    if (!failed)
        failed = compare(model, &step);
    if (!failed) /* averages again */
        failed = take_one(group, model, ddp, &step, false);
    kolo_ddp_free(ddp);
    model_free(model);
    return gpu_rank_leave(failed);
}

static void run_on(const char *ngpus, enum ranks_kind kind, int n, struct training *training)
{
    setenv("FAKECUDA_DEVICES", ngpus, 1);
    exam_set_variables("shm", "", 4096);
    assert_int_equal(ranks_run(&(struct ranks){.kind = kind, .n = n}, train, training), 0);
}

/* With and without steps; over a GPU that all share, several, and by way of the host. */
static void train_all(enum ranks_kind kind)
{
    static const kolo_dtype wires[] = {0, KOLO_FLOAT16, KOLO_BFLOAT16};

    for (int i = 0; i < 12; i++) {
        struct training training = {.options = {.first_bucket_bytes = 3000,
                                                .bucket_bytes = 3000,
                                                .no_overlap = i / 6,
                                                .wire = wires[i % 3]},
                                    .has_step = i % 4 != 0,
                                    .is_mixed = i / 2 % 2,
                                    .optimizer = i % 2 ? KOLO_ADAM : KOLO_SGD};

        for (int n = 2; n <= 3; n++)
            run_on(i % 3 ? "1" : "3", kind, n, &training);
        if (!training.has_step) /* a group of one averages nothing */
            continue;
        run_on("1", kind, 1, &training);
        setenv("KOLO_CUDA_PEERS", "0", 1);
        run_on("2", kind, 2, &training);
        unsetenv("KOLO_CUDA_PEERS");
    }
}

static void processes_train(void **state)
{
    (void)state;
    train_all(RANKS_PROCESSES);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static int capture_one(kolo_group *group, struct model *model, kolo_ddp *ddp,
                       ko_cu_graph_exec *exec)
{
    int failed = gpu_rank_capture();

    for (size_t i = NPARAMS; i-- > 0 && !failed;) {
        failed = backward(model, i, kolo_group_rank(group), 1);
        if (!failed && kolo_ddp_ready(ddp, i))
            failed = ranks_fail("ready");
    }
    if (!failed && kolo_ddp_wait(ddp))
        failed = ranks_fail("wait");
    return failed | gpu_rank_captured(exec);
}

static int capture(kolo_group *group, void *unused)
{
    int failed = gpu_rank_enter(group);
    struct model *model = model_make(false, kolo_group_rank(group));
    ko_cu_graph_exec exec = NULL;
    kolo_ddp *ddp = NULL;

    (void)unused;
    if (!failed && kolo_ddp_create(group, model->params, NPARAMS, NULL, &ddp))
        failed = ranks_fail("create");
    if (!failed)
        failed = capture_one(group, model, ddp, &exec);
    for (int i = 0; i < 2 && !failed; i++) {
        if (gpu_rank.cuda->graph_launch(exec, gpu_rank.stream) ||
            gpu_rank.cuda->stream_sync(gpu_rank.stream))
            failed = ranks_fail("a launch");
        if (!failed)
            failed = check_averages(model, kolo_group_size(group), 1);
    }
    if (exec)
        (void)gpu_rank.cuda->graph_exec_destroy(exec);
    kolo_ddp_free(ddp);
    model_free(model);
    return gpu_rank_leave(failed);
}

static void steps_are_captured(void **state)
{
    (void)state;
    setenv("FAKECUDA_DEVICES", "1", 1);
    exam_set_variables("shm", "", 4096);
    for (int n = 2; n <= 3; n++)
        assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = n}, capture, NULL),
                         0);
}

/* ---- arenas ---------------------------------------------------------------------------------- */

/* What kolo would copy by. */
static int train_without_copies(kolo_ddp *ddp)
{
    int failed = 0;

    setenv("FAKECUDA_BREAK", "cuMemcpyAsync=719", 1);
    for (size_t i = 2; i-- > 0 && !failed;)
        failed = kolo_ddp_ready(ddp, i);
    if (!failed)
        failed = kolo_ddp_wait(ddp);
    unsetenv("FAKECUDA_BREAK");
    return failed ? ranks_fail("a step") : 0;
}

/* Gradients that lie side by side are reduced where they are, also those that travel as smaller
 * floats: nothing is copied into a bucket or out of it. */
static int train_in_an_arena(kolo_group *group, void *wire)
{
    const kolo_ddp_options options = {.wire = *(const kolo_dtype *)wire};
    const int size = kolo_group_size(group), rank = kolo_group_rank(group);
    float grads[MOST], have[MOST];
    int failed = gpu_rank_enter(group);
    kolo_param params[2] = {{.name = "a", .count = 700, .dtype = KOLO_FLOAT32},
                            {.name = "b", .count = MOST - 700, .dtype = KOLO_FLOAT32}};
    float *data, *grad;
    kolo_ddp *ddp = NULL;

    for (size_t k = 0; k < MOST; k++)
        grads[k] = part_of_gradient(0, k, 1) * (float)(2 * rank + 1);
    data = gpu_rank_memory.make(grads, sizeof grads);
    grad = gpu_rank_memory.make(grads, sizeof grads);
    for (int i = 0; i < 2; i++) {
        params[i].data = data + (i ? params[0].count : 0);
        params[i].grad = grad + (i ? params[0].count : 0);
    }
    if (!failed && kolo_ddp_create(group, params, 2, &options, &ddp))
        failed = ranks_fail("create");
    if (!failed)
        failed = train_without_copies(ddp);
    kolo_ddp_free(ddp);
    gpu_rank_memory.fetch(have, data, sizeof have);
    gpu_rank_memory.fetch(have, grad, sizeof have);
    for (size_t k = 0; k < MOST && !failed; k++)
        if (have[k] != (float)size * part_of_gradient(0, k, 1))
            failed = ranks_fail("gradient %zu is %g", k, (double)have[k]);
    return gpu_rank_leave(failed);
}

static void arenas_are_not_copied(void **state)
{
    kolo_dtype wires[] = {0, KOLO_FLOAT16, KOLO_BFLOAT16};

    (void)state;
    setenv("FAKECUDA_DEVICES", "1", 1);
    exam_set_variables("shm", "", 4096);
    for (int i = 0; i < 3; i++)
        assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2 + i % 2},
                                   train_in_an_arena, &wires[i]),
                         0);
}

/* ---- wrong calls ----------------------------------------------------------------------------- */

static int be_short(kolo_group *group, void *unused)
{
    static const float values[8];
    int failed = gpu_rank_enter(group);
    kolo_param param = {.name = "w", .count = 8, .dtype = KOLO_FLOAT32};
    kolo_ddp *ddp;

    (void)unused;
    param.data = gpu_rank_memory.make(values, sizeof values);
    param.grad = gpu_rank_memory.make(values, sizeof values);
    param.count = (size_t)1 << 30; /* more than what allocations are rounded up to */
    if (gpu_rank.cuda->stream_sync(gpu_rank.stream))
        abort();
    if (!failed)
        failed = ranks_expect(kolo_ddp_create(group, &param, 1, NULL, &ddp), KOLO_E_INVALID,
                              "ddp: data of parameter w is too short: it takes 4294967296 bytes");
    free_array(true, param.data);
    free_array(true, param.grad);
    return gpu_rank_leave(failed);
}

/* The other ranks are not left waiting. */
static int break_copies(kolo_group *group, void *unused)
{
    const int rank = kolo_group_rank(group);
    int failed = gpu_rank_enter(group);
    struct model *model = model_make(false, rank);
    kolo_ddp *ddp = NULL;

    (void)unused;
    if (!failed && kolo_ddp_create(group, model->params, NPARAMS, NULL, &ddp))
        failed = ranks_fail("create");
    if (!failed && rank == 1) {
        setenv("FAKECUDA_BREAK", "cuMemcpyAsync=719", 1);
        failed = ranks_expect(kolo_ddp_ready(ddp, 4), KOLO_E_SYSTEM,
                              "a parameter on the GPU cannot be copied");
        unsetenv("FAKECUDA_BREAK");
    } else if (!failed) {
        failed = ranks_expect(kolo_barrier(group), KOLO_E_SYSTEM,
                              "a parameter on the GPU cannot be copied");
    }
    kolo_ddp_free(ddp);
    model_free(model);
    return gpu_rank_leave(failed);
}

static void faults_are_told(void **state)
{
    (void)state;
    setenv("FAKECUDA_DEVICES", "1", 1);
    exam_set_variables("shm", "", 4096);
    for (int n = 1; n <= 2; n++)
        assert_int_equal(
            ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = n}, be_short, NULL), 0);
    assert_int_equal(
        ranks_run(&(struct ranks){.kind = RANKS_PROCESSES, .n = 2}, break_copies, NULL), 0);
}

/* ---- memory that goes ------------------------------------------------------------------------ */

/* The driver would have who frees memory wait for all streams of the GPU, and one waits for a call
 * that the other rank makes when its ddp is there and has gone. */
static int come_and_go(kolo_group *aside, const struct model *model)
{
    const kolo_step step = {.optimizer = KOLO_SGD, .rate = 1, .number = 1};
    kolo_ddp *ddp = NULL;
    int failed = 0;

    if (kolo_ddp_create(aside, model->params, NPARAMS, NULL, &ddp) || kolo_ddp_set_step(ddp, &step))
        failed = ranks_fail("a ddp beside");
    kolo_ddp_free(ddp);
    return failed;
}

static int train_beside(kolo_group *group, void *unused)
{
    const int rank = kolo_group_rank(group);
    kolo_group *aside = NULL;
    kolo_work *work = NULL;
    struct model *model;
    ko_cu_stream stream;
    void *memory;
    int failed = gpu_rank_enter(group);

    (void)unused;
    model = model_make(false, rank);
    memory = (void *)(uintptr_t)gpu_rank_fresh(MOST * sizeof(float));
    if (failed || gpu_rank.cuda->stream_create(&stream, KO_CU_STREAM_NON_BLOCKING) ||
        kolo_group_duplicate(group, &aside) || kolo_group_set_stream(aside, stream) ||
        come_and_go(aside, model))
        return ranks_fail("the beginning");
    if (!rank && kolo_all_reduce_async(group, memory, memory, MOST, KOLO_FLOAT32, KOLO_SUM, &work))
        failed = ranks_fail("all_reduce_async");
    failed = failed || come_and_go(aside, model);
    if (!failed && rank && kolo_all_reduce(group, memory, memory, MOST, KOLO_FLOAT32, KOLO_SUM))
        failed = ranks_fail("all_reduce");
    if (work && ranks_expect(kolo_work_wait(work, -1), KOLO_OK, ""))
        failed = 1;
    kolo_work_free(work);
    kolo_group_free(aside);
    if (!failed)
        model_free(model);
    return gpu_rank_leave(failed);
}

static void nobody_is_waited_for(void **state)
{
    (void)state;
    setenv("FAKECUDA_DEVICES", "1", 1);
    exam_set_variables("shm", "", 4096);
    assert_int_equal(ranks_run(&(struct ranks){.kind = RANKS_THREADS, .n = 2}, train_beside, NULL),
                     0);
}

/* ---------------------------------------------------------------------------------------------- */

/* This and the one before last, since a process that has had threads is not to be forked under
 * ThreadSanitizer. */
static void threads_train(void **state)
{
    (void)state;
    train_all(RANKS_THREADS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_train),       cmocka_unit_test(steps_are_captured),
        cmocka_unit_test(arenas_are_not_copied), cmocka_unit_test(faults_are_told),
        cmocka_unit_test(threads_train),         cmocka_unit_test(nobody_is_waited_for),
    };

    setenv("FAKECUDA_JITTER", "50", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
