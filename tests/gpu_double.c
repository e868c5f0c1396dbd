/* SPDX-License-Identifier: MIT
 *
 * Not every program with ranks has the double, so that its functions are found by name.
 */
#include "gpu_double.h"

#include "gpu_rank.h"

#include <dlfcn.h>
#include <stdlib.h>

static void *find(const char *name)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *function = library ? dlsym(library, name) : NULL;

    if (!function)
        abort();
    dlclose(library);
    return function;
}

struct gpu_bytes gpu_bytes_now(void)
{
    void (*between)(int device, int home, uint64_t *read, uint64_t *written);
    uint64_t (*with_host)(void);
    struct gpu_bytes bytes = {0};

    *(void **)&between = find("fakecuda_bytes_between");
    *(void **)&with_host = find("fakecuda_bytes_with_host");
    for (int home = 0; home < DOUBLE_MOST_DEVICES; home++) {
        uint64_t read, written;

        between(gpu_rank.device, home, &read, &written);
        *(home == gpu_rank.device ? &bytes.read : &bytes.read_there) += read;
        *(home == gpu_rank.device ? &bytes.written : &bytes.written_there) += written;
    }
    bytes.with_host = with_host();
    return bytes;
}

struct gpu_bytes gpu_bytes_since(struct gpu_bytes before)
{
    const struct gpu_bytes now = gpu_bytes_now();

    return (struct gpu_bytes){
        now.read - before.read, now.written - before.written, now.read_there - before.read_there,
        now.written_there - before.written_there, now.with_host - before.with_host};
}

void gpu_bytes_of_all(uint64_t *read, uint64_t *written)
{
    void (*bytes)(uint64_t *, uint64_t *);

    *(void **)&bytes = find("fakecuda_bytes");
    bytes(read, written);
}

uint64_t gpu_bytes_narrow(void)
{
    uint64_t (*narrow)(void);

    *(void **)&narrow = find("fakecuda_bytes_narrow");
    return narrow();
}

uint64_t gpu_bytes_pageable(void)
{
    uint64_t (*pageable)(void);

    *(void **)&pageable = find("fakecuda_bytes_pageable");
    return pageable();
}

uint64_t gpu_bytes_locked(uint64_t *most)
{
    void (*locked)(uint64_t * now, uint64_t * most);
    uint64_t now;

    *(void **)&locked = find("fakecuda_bytes_locked");
    locked(&now, most);
    return now;
}

void gpu_hold(const char *functions)
{
    void (*hold)(const char *functions);

    *(void **)&hold = find("fakecuda_hold");
    hold(functions);
}

int gpu_held(void)
{
    int (*held)(void);

    *(void **)&held = find("fakecuda_held");
    return held();
}

void gpu_manage(ko_cu_ptr memory, bool is_at_host)
{
    void (*manage)(ko_cu_ptr memory, bool is_at_host);

    *(void **)&manage = find("fakecuda_manage");
    manage(memory, is_at_host);
}

int gpu_fail(ko_cu_result error)
{
    ko_cu_result (*fault)(ko_cu_stream stream, ko_cu_result error);

    *(void **)&fault = find("fakecuda_fault");
    return fault(gpu_rank.stream, error);
}

struct fakecuda_blocks gpu_blocks_now(void)
{
    void (*look)(int device, struct fakecuda_blocks *blocks);
    struct fakecuda_blocks blocks;

    *(void **)&look = find("fakecuda_blocks");
    look(gpu_rank.device, &blocks);
    return blocks;
}
