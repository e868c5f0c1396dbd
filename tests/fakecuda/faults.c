/* SPDX-License-Identifier: MIT
 *
 * Contexts that end by a fault, as of a kernel of the user's.
 */
#include "double.h"

struct fault {
    struct double_task task;
    ko_cu_context context;
    ko_cu_result result;
};

ko_cu_result double_fault_of(ko_cu_context context)
{
    return __atomic_load_n(&context->fault, __ATOMIC_ACQUIRE);
}

ko_cu_result double_fault(const struct double_trait *trait)
{
    const ko_cu_context context = trait->outlives ? NULL : double_context();

    return context ? double_fault_of(context) : KO_CU_SUCCESS;
}

static void end_context(struct double_task *task)
{
    const struct fault *fault = (const struct fault *)task;

    __atomic_store_n(&fault->context->fault, fault->result, __ATOMIC_RELEASE);
}

ko_cu_result fakecuda_fault(ko_cu_stream stream, ko_cu_result result)
{
    const struct fault fault = {
        {.run = end_context}, double_context_of(double_gpu_of(stream)), result};

    return double_enqueue(stream, &fault.task, sizeof fault);
}
