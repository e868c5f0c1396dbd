/* SPDX-License-Identifier: MIT
 *
 * The double's copies and fills, in the order of streams.
 */
#include "double.h"

#include <stdatomic.h>
#include <string.h>

enum { MOST_WORDS = 32 };

struct transfer {
    struct double_task task;
    ko_cu_ptr to, from;
    size_t nbytes;
    unsigned char byte;
    int device; /* that copies */
};

/* A few words come each as a whole, so that those which others write may be looked at. */
static bool are_words(const struct transfer *transfer)
{
    const ko_cu_ptr to = transfer->to, from = transfer->from;

    return (to | from | transfer->nbytes) % 4 == 0 && transfer->nbytes <= MOST_WORDS * 4 &&
           (to + transfer->nbytes <= from || from + transfer->nbytes <= to);
}

static void copy_words(const struct transfer *transfer)
{
    _Atomic uint32_t *const to = (_Atomic uint32_t *)(uintptr_t)transfer->to;
    _Atomic uint32_t *const from = (_Atomic uint32_t *)(uintptr_t)transfer->from;

    for (size_t i = 0; i < transfer->nbytes / 4; i++)
        atomic_store_explicit(to + i, atomic_load_explicit(from + i, memory_order_relaxed),
                              memory_order_relaxed);
}

static bool is_let_go(struct double_task *task)
{
    (void)task;
    return !double_is_held("transfers");
}

static void do_copy(struct double_task *task)
{
    const struct transfer *transfer = (const struct transfer *)task;

    double_count_copy(transfer->device, transfer->to, transfer->from, transfer->nbytes);
    if (are_words(transfer)) {
        copy_words(transfer);
        return;
    }
    memmove((void *)(uintptr_t)transfer->to, (const void *)(uintptr_t)transfer->from,
            transfer->nbytes);
}

static void do_fill(struct double_task *task)
{
    const struct transfer *transfer = (const struct transfer *)task;
    _Atomic uint32_t *const to = (_Atomic uint32_t *)(uintptr_t)transfer->to;

    if ((transfer->to | transfer->nbytes) % 4) {
        memset((void *)(uintptr_t)transfer->to, transfer->byte, transfer->nbytes);
        return;
    }
    for (size_t i = 0; i < transfer->nbytes / 4; i++) /* streams may wait for any of them */
        atomic_store_explicit(to + i, 0x01010101u * transfer->byte, memory_order_relaxed);
}

/* Between a GPU's memory and such of the host's as the driver has not locked. */
static bool is_pageable(ko_cu_ptr to, ko_cu_ptr from, int device)
{
    struct double_home home;
    const bool is_to = double_find(to, device, &home), is_from = double_find(from, device, &home);

    return is_to != is_from && !double_is_locked(is_to ? from : to);
}

ko_cu_result double_copy(ko_cu_ptr to, ko_cu_ptr from, size_t nbytes, ko_cu_stream stream)
{
    const struct transfer transfer = {
        {.run = do_copy, .is_ready = is_let_go}, to, from, nbytes, 0, double_gpu_of(stream)};
    ko_cu_result result;

    if (!double_is_valid(to, nbytes) || !double_is_valid(from, nbytes))
        return KO_CU_INVALID_VALUE;
    result = double_enqueue(stream, &transfer.task, sizeof transfer);
    if (!result && double_number("FAKECUDA_STRICT", 0) && is_pageable(to, from, transfer.device))
        double_await_all_of(stream);
    return result;
}

ko_cu_result double_fill(ko_cu_ptr to, unsigned char byte, size_t nbytes, ko_cu_stream stream)
{
    const struct transfer transfer = {
        {.run = do_fill, .is_ready = is_let_go}, to, 0, nbytes, byte, 0};

    if (!double_is_valid(to, nbytes))
        return KO_CU_INVALID_VALUE;
    return double_enqueue(stream, &transfer.task, sizeof transfer);
}
