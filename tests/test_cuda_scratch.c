/* SPDX-License-Identifier: MIT
 *
 * A group's own memory on its GPU, on the double of NVIDIA's driver: it grows by more than is asked
 * for where there is room, and by no more where there is none.
 */
#include "gpu.h"
#include "gpu_rank.h"
#include "kolo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

/* Of all pieces' length. */
enum { UNIT = 1 << 21 };

static struct ko_gpu *open_gpu(bool prefers_pieces)
{
    static const atomic_int never_stops;
    struct ko_gpu *gpu;

    assert_int_equal(ko_gpu_open(gpu_rank.stream, &never_stops, &gpu), KOLO_OK);
    if (prefers_pieces)
        ko_gpu_prefer_pieces(gpu);
    return gpu;
}

static size_t length_at(ko_cu_ptr memory)
{
    return ko_cuda_length_at(gpu_rank.cuda, memory, 100 * (uint64_t)UNIT, false);
}

static void it_grows(bool prefers_pieces)
{
    struct ko_gpu *gpu = open_gpu(prefers_pieces);
    ko_cu_ptr first, second, third;

    assert_int_equal(ko_gpu_scratch(gpu, KO_GPU_FOR_PIECES, 4 * UNIT, &first), KOLO_OK);
    assert_int_equal(length_at(first), 4 * UNIT);
    assert_int_equal(ko_gpu_scratch(gpu, KO_GPU_FOR_PIECES, 5 * UNIT, &second), KOLO_OK);
    assert_int_equal(length_at(second), 8 * UNIT);
    setenv("FAKECUDA_LONGEST", "20971520", 1); /* 10 units */
    assert_int_equal(ko_gpu_scratch(gpu, KO_GPU_FOR_PIECES, 9 * UNIT, &third), KOLO_OK);
    assert_int_equal(length_at(third), 9 * UNIT);
    assert_int_equal(ko_gpu_scratch(gpu, KO_GPU_FOR_PIECES, 11 * UNIT, &first), KOLO_E_NOMEM);
    assert_string_equal(kolo_last_error(), "the GPU has no memory for what a call reduces: "
                                           "CUDA_ERROR_OUT_OF_MEMORY (2)");
    assert_int_equal(ko_gpu_scratch(gpu, KO_GPU_FOR_PIECES, 9 * UNIT, &second), KOLO_OK);
    assert_true(second == third);
    unsetenv("FAKECUDA_LONGEST");
    ko_gpu_close(gpu);
}

static void whole_memory(void **state)
{
    (void)state;
    it_grows(false);
}

static void memory_in_pieces(void **state)
{
    (void)state;
    it_grows(true);
}

static int enter(void **state)
{
    (void)state;
    return gpu_rank_enter(NULL);
}

static int leave(void **state)
{
    (void)state;
    return gpu_rank_leave(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_memory),
        cmocka_unit_test(memory_in_pieces),
    };

    return cmocka_run_group_tests(tests, enter, leave);
}
