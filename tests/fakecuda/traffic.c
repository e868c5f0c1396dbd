/* SPDX-License-Identifier: MIT
 *
 * What the double's GPUs have read and written, of their own memory and of each other's.
 */
#include "double.h"

#include <stdatomic.h>

static struct {
    atomic_uint_fast64_t read, written;
} between[DOUBLE_MOST_DEVICES][DOUBLE_MOST_DEVICES];
static atomic_uint_fast64_t with_host, pageable, narrow;

void double_count(int device, int home, uint64_t read, uint64_t written)
{
    atomic_fetch_add(&between[device][home].read, read);
    atomic_fetch_add(&between[device][home].written, written);
}

static bool count_end(int device, ko_cu_ptr at, uint64_t nbytes, bool is_write)
{
    struct double_home home;
    const bool is_there = double_find(at, device, &home);

    if (is_there)
        double_count(device, home.device, is_write ? 0 : nbytes, is_write ? nbytes : 0);
    return is_there;
}

void double_count_copy(int device, ko_cu_ptr to, ko_cu_ptr from, uint64_t nbytes)
{
    const bool is_read = count_end(device, from, nbytes, false);

    if (count_end(device, to, nbytes, true) == is_read)
        return;
    atomic_fetch_add(&with_host, nbytes);
    if (!double_is_locked(is_read ? to : from))
        atomic_fetch_add(&pageable, nbytes);
}

void double_count_narrow(uint64_t nbytes)
{
    atomic_fetch_add(&narrow, nbytes);
}

uint64_t fakecuda_bytes_narrow(void)
{
    return atomic_load(&narrow);
}

uint64_t fakecuda_bytes_pageable(void)
{
    return atomic_load(&pageable);
}

uint64_t fakecuda_bytes_with_host(void)
{
    return atomic_load(&with_host);
}

void fakecuda_bytes_between(int device, int home, uint64_t *read, uint64_t *written)
{
    *read = atomic_load(&between[device][home].read);
    *written = atomic_load(&between[device][home].written);
}

void fakecuda_bytes(uint64_t *read, uint64_t *written)
{
    uint64_t some_read, some_written;

    *read = *written = 0;
    for (int i = 0; i < DOUBLE_MOST_DEVICES * DOUBLE_MOST_DEVICES; i++) {
        fakecuda_bytes_between(i / DOUBLE_MOST_DEVICES, i % DOUBLE_MOST_DEVICES, &some_read,
                               &some_written);
        *read += some_read;
        *written += some_written;
    }
}
