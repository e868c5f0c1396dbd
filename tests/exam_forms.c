/* SPDX-License-Identifier: MIT */
#include "exam.h"

int exam_take_forms(kolo_group *group, enum ko_collective what, const size_t *counts,
                    size_t ncounts, const struct exam_memory *memory)
{
    const unsigned ncases = (unsigned)ncounts * 4;
    int failed = 0;

    /* the last for sure */
    for (unsigned i = (ncases - 1) % EXAM_STEP; i < ncases && !failed; i += EXAM_STEP) {
        const struct exam exam = {.what = what,
                                  .dtype = i % 3 ? KOLO_INT32 : KOLO_BFLOAT16,
                                  .op = i % 3 == 1 ? KOLO_AVG : KOLO_SUM,
                                  .count = counts[i / 4],
                                  .root = (int)(i / 3) % kolo_group_size(group),
                                  .seed = i,
                                  .is_in_place = i & 1,
                                  .is_async = i & 2,
                                  .shift = i % 3 * 4,
                                  .memory = memory};

        failed = exam_take(group, &exam);
    }
    return failed;
}

int exam_take_types(kolo_group *group, size_t count, const struct exam_memory *memory)
{
    int failed = 0;

    for (int dtype = 0; dtype < KOLO_NDTYPES && !failed; dtype++)
        for (int op = 0; op < KOLO_NOPS && !failed; op++) {
            const struct exam exam = {.what = op % 3 ? KO_ALL_REDUCE : KO_REDUCE_SCATTER,
                                      .dtype = (kolo_dtype)dtype,
                                      .op = (kolo_op)op,
                                      .count = count,
                                      .seed = (unsigned)(dtype * KOLO_NOPS + op),
                                      .is_in_place = dtype & 1,
                                      .memory = memory};

            if ((dtype + op) % EXAM_STEP == 0 && exam_allows(exam.dtype, exam.op))
                failed = exam_take(group, &exam);
        }
    return failed;
}
