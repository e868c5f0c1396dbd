/* SPDX-License-Identifier: MIT
 *
 * The driver's door: it opens, or says in one sentence why it does not. What was found is kept for
 * good, so each case is a process of its own. The driver is the double of tests/fakecuda.
 */
#include "cuda_driver.h"
#include "kolo.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Runs body in a child with NAME=VALUE set; a body returns 0 if all is well. */
static void check_child(int (*body)(const void *), const void *argument, const char *name,
                        const char *value)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        if (name)
            setenv(name, value, 1);
        _exit(body(argument));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static int is_refused(const void *expected)
{
    const struct ko_cuda *cuda = NULL;

    for (int turn = 0; turn < 2; turn++) { /* the second time from memory */
        const int err = ko_cuda_open(&cuda);

        if (err != KOLO_E_UNSUPPORTED || cuda || !strstr(kolo_last_error(), expected)) {
            fprintf(stderr, "status %d: %s\n", err, err ? kolo_last_error() : "");
            return 1;
        }
    }
    return 0;
}

static void test_reasons(void **state)
{
    (void)state;
    check_child(is_refused, "KOLO_CUDA is 0", "KOLO_CUDA", "0");
    check_child(is_refused, "finds no GPU", "FAKECUDA_DEVICES", "0");
    check_child(is_refused, "no cuStreamWaitValue32 of CUDA 11.7", "FAKECUDA_VERSION", "11060");
    check_child(is_refused, "no cuInit of CUDA 2.0", "FAKECUDA_VERSION", "1000");
    check_child(is_refused, "is the CUDA toolkit's stub", "FAKECUDA_BREAK", "cuInit=34");
    check_child(is_refused, "finds no GPU", "FAKECUDA_BREAK", "cuInit=100");
    check_child(is_refused, "does not start: CUDA_ERROR_NOT_PERMITTED (800)", "FAKECUDA_BREAK",
                "cuDeviceGetCount=800");
}

static int opens(const void *unused)
{
    const struct ko_cuda *cuda, *again;
    int count = 0;

    (void)unused;
    return ko_cuda_open(&cuda) || ko_cuda_open(&again) || cuda != again ||
           cuda->device_count(&count) || count != 3;
}

static void test_it_opens(void **state)
{
    (void)state;
    check_child(opens, NULL, "FAKECUDA_DEVICES", "3");
}

static int opens_without(const void *is_there)
{
    const struct ko_cuda *cuda;

    return ko_cuda_open(&cuda) || (cuda->range_export != NULL) != (is_there != NULL) ||
           !cuda->flush_writes;
}

static void test_it_goes_without_some(void **state)
{
    (void)state;
    check_child(opens_without, "it", NULL, NULL);
    check_child(opens_without, NULL, "FAKECUDA_WITHOUT", "cuMemGetHandleForAddressRange");
    check_child(is_refused, "no cuMemAlloc of CUDA 3.2", "FAKECUDA_WITHOUT", "cuMemAlloc");
}

static int has_texts(const void *unused)
{
    const struct ko_cuda *cuda;

    (void)unused;
    if (ko_cuda_open(&cuda) || ko_cuda_check(cuda, KO_CU_SUCCESS, "nothing"))
        return 1;
    if (ko_cuda_check(cuda, KO_CU_OUT_OF_MEMORY, "12 bytes") != KOLO_E_NOMEM ||
        strcmp(kolo_last_error(), "12 bytes: CUDA_ERROR_OUT_OF_MEMORY (2)") != 0)
        return 2;
    if (ko_cuda_check(cuda, KO_CU_NOT_SUPPORTED, "x") != KOLO_E_UNSUPPORTED)
        return 3;
    return ko_cuda_check(cuda, 12345, "x") != KOLO_E_SYSTEM ||
           strcmp(kolo_last_error(), "x: unknown (12345)") != 0;
}

static void test_errors_have_names(void **state)
{
    (void)state;
    check_child(has_texts, NULL, NULL, NULL);
}

/* The GPUs are taken in turn, and the thread has its former one again afterwards. */
static int enters(const void *unused)
{
    struct ko_cuda_place first = {0}, second = {0};
    const struct ko_cuda *cuda;
    ko_cu_context context;
    ko_cu_device device = -1;

    (void)unused;
    if (ko_cuda_open(&cuda) || ko_cuda_enter(cuda, 7, &first) || ko_cuda_enter(cuda, 3, &second))
        return 1;
    if (first.ordinal != 1 || second.ordinal != 0)
        return 2;
    if (cuda->context_device(&device) || device != second.device)
        return 3;
    ko_cuda_leave(cuda, &second);
    if (cuda->context_device(&device) || device != first.device)
        return 4;
    ko_cuda_leave(cuda, &first);
    ko_cuda_leave(cuda, &first); /* no more */
    return cuda->context_current(&context) || context ? 5 : 0;
}

/* Of a GPU that cannot be entered nothing is kept. */
static int is_kept_out(const void *unused)
{
    struct ko_cuda_place place = {0};
    const struct ko_cuda *cuda;

    (void)unused;
    if (ko_cuda_open(&cuda) || ko_cuda_enter(cuda, 0, &place) != KOLO_E_NOMEM || place.is_entered)
        return 1;
    ko_cuda_leave(cuda, &place);
    return strcmp(kolo_last_error(), "a GPU cannot be entered: CUDA_ERROR_OUT_OF_MEMORY (2)") != 0;
}

static void test_gpus_are_entered_in_turn(void **state)
{
    (void)state;
    check_child(enters, NULL, "FAKECUDA_DEVICES", "3");
    check_child(is_kept_out, NULL, "FAKECUDA_BREAK", "cuDevicePrimaryCtxRetain=2");
}

/* ---- the double itself ----------------------------------------------------------------------- */

/* What it is to break, or to be without, and does not know, is the end of a test at once. */
static void test_unknown_names_abort(void **state)
{
    static const char *const what[][2] = {{"FAKECUDA_BREAK", "cuMemAlloc=2,cuMemAlloc_v2=2"},
                                          {"FAKECUDA_BREAK", "cuMemAlloc"},
                                          {"FAKECUDA_WITHOUT", "cuMem"}};
    const struct ko_cuda *cuda;
    int status;

    (void)state;
    for (size_t i = 0; i < sizeof what / sizeof *what; i++) {
        const pid_t pid = fork();

        if (pid == 0) {
            (void)freopen("/dev/null", "w", stderr);
            setenv(what[i][0], what[i][1], 1);
            _exit(ko_cuda_open(&cuda) ? 1 : 0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reasons),
        cmocka_unit_test(test_it_opens),
        cmocka_unit_test(test_it_goes_without_some),
        cmocka_unit_test(test_errors_have_names),
        cmocka_unit_test(test_gpus_are_entered_in_turn),
        cmocka_unit_test(test_unknown_names_abort),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
