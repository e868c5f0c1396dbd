/* SPDX-License-Identifier: MIT
 *
 * What the others read and write of a rank is one piece of memory: the flags, and the input.
 */
#include "one_shot.h"

#include "gpu_rank.h"
#include "launch.h"
#include "ranks.h"

#include <string.h>

enum {
    INPUT_AT = 4096,
    FLAGS_BYTES = 2 * CHECK_BLOCKS * CHECK_RANKS * 4,
    NTHREADS = 512,
    PERIOD = 65537, /* floats, after which contents repeat */
    KEPT_BYTES = PERIOD * 4
};

/* ---- opening --------------------------------------------------------------------------------- */

static bool open_peers(struct one_shot *shot, const ko_cu_ipc_handle *handles, ko_cu_ptr own)
{
    bool is_right = true;

    for (uint32_t r = 0; r < shot->args.n && is_right; r++) {
        ko_cu_ptr memory = own;

        is_right = r == shot->args.rank ||
                   !gpu_rank.cuda->ipc_open(&memory, handles[r], KO_CU_IPC_LAZY_PEER_ACCESS);
        shot->args.flags[r] = memory;
        shot->args.ins[r] = memory + INPUT_AT;
    }
    return is_right;
}

int one_shot_open(kolo_group *group, size_t most, struct one_shot *shot)
{
    ko_cu_ipc_handle own_handle = {.bytes = {0}}, handles[CHECK_RANKS];
    ko_cu_ptr own = 0;
    int is_right;

    *shot = (struct one_shot){.group = group};
    shot->args.rank = (uint32_t)kolo_group_rank(group);
    shot->args.n = (uint32_t)kolo_group_size(group);
    is_right = !launch_open(gpu_rank.cuda) && watch_page_make(gpu_rank.cuda, false, &shot->page) &&
               !gpu_rank.cuda->alloc(&own, INPUT_AT + most) &&
               !gpu_rank.cuda->alloc(&shot->out, most) &&
               !gpu_rank.cuda->alloc(&shot->kept, KEPT_BYTES) &&
               !gpu_rank.cuda->fill(own, 0, FLAGS_BYTES, gpu_rank.stream) &&
               !gpu_rank.cuda->stream_sync(gpu_rank.stream) &&
               !gpu_rank.cuda->ipc_export(&own_handle, own);
    if (kolo_all_gather(group, &own_handle, handles, sizeof own_handle, KOLO_UINT8) ||
        kolo_all_reduce(group, &is_right, &is_right, 1, KOLO_INT32, KOLO_MIN))
        return ranks_fail("handles");
    shot->in = own + INPUT_AT;
    shot->args.out = shot->out;
    shot->args.stop = shot->page.at;
    is_right = is_right && open_peers(shot, handles, own);
    if (kolo_all_reduce(group, &is_right, &is_right, 1, KOLO_INT32, KOLO_MIN))
        return ranks_fail("all_reduce");
    return is_right ? 0 : ranks_fail("memory cannot be shared");
}

/* ---- calls ----------------------------------------------------------------------------------- */

static bool enqueue(struct one_shot *shot, size_t nbytes)
{
    const size_t wanted = (nbytes + NTHREADS * 16 - 1) / (NTHREADS * 16);

    shot->args.count = nbytes / sizeof(float);
    shot->args.epoch++;
    return !launch(LAUNCH_check_one_shot_sum,
                   wanted < CHECK_BLOCKS ? (unsigned)wanted : CHECK_BLOCKS, NTHREADS, &shot->args,
                   gpu_rank.stream);
}

static enum one_shot_verdict await(struct one_shot *shot, bool is_right, int ms)
{
    return watch_or_stop(gpu_rank.cuda, gpu_rank.stream, ms, shot->page.host) && is_right
               ? ONE_SHOT_RIGHT
               : ONE_SHOT_LATE;
}

enum one_shot_verdict one_shot_call(struct one_shot *shot, size_t nbytes, int times, int ms)
{
    bool is_right = true;

    for (int i = 0; i < times && is_right; i++)
        is_right = enqueue(shot, nbytes);
    return await(shot, is_right, ms);
}

/* ---- results --------------------------------------------------------------------------------- */

/* Of whole numbers, so that every sum is exact. */
static float element(uint32_t rank, int content, size_t i)
{
    return (float)(i % 1000 + 1000 * rank + 5000 * (size_t)content);
}

static void make_content(uint32_t rank, int content, float *period)
{
    for (size_t i = 0; i < PERIOD; i++)
        period[i] = element(rank, content, i);
}

static void make_sums(uint32_t n, int content, float *period)
{
    for (size_t i = 0; i < PERIOD; i++) {
        period[i] = 0;
        for (uint32_t r = 0; r < n; r++)
            period[i] += element(r, content, i);
    }
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* period, which has to stay, as often as it fits. */
static bool put(const struct one_shot *shot, size_t nbytes, const float *period)
{
    const size_t step = PERIOD * sizeof *period;
    bool is_right = true;

    for (size_t at = 0; at < nbytes && is_right; at += step)
        is_right = !gpu_rank.cuda->copy(shot->in + at, (uintptr_t)period, least(step, nbytes - at),
                                        gpu_rank.stream);
    return is_right;
}

static bool is_sum(ko_cu_ptr out, size_t nbytes, const float *period)
{
    static float got[PERIOD];
    bool is_right = true;

    for (size_t at = 0; at < nbytes && is_right; at += sizeof got)
        is_right = !gpu_rank.cuda->copy((uintptr_t)got, out + at, least(sizeof got, nbytes - at),
                                        gpu_rank.stream) &&
                   !gpu_rank.cuda->stream_sync(gpu_rank.stream) &&
                   !memcmp(got, period, least(sizeof got, nbytes - at));
    return is_right;
}

static bool are_sums(const struct one_shot *shot, size_t nbytes, size_t kept_nbytes)
{
    static float sums[2][PERIOD];

    for (int k = 0; k < 2; k++)
        make_sums(shot->args.n, k, sums[k]);
    return is_sum(shot->kept, kept_nbytes, sums[0]) && is_sum(shot->out, nbytes, sums[1]);
}

enum one_shot_verdict one_shot_exam(struct one_shot *shot, size_t nbytes, int ms)
{
    static float contents[2][PERIOD];
    const size_t kept_nbytes = least(nbytes, KEPT_BYTES);
    bool is_right = true;

    for (int k = 0; k < 2 && is_right; k++) {
        make_content(shot->args.rank, k, contents[k]);
        is_right = !gpu_rank.cuda->fill(shot->out, 0xa5, nbytes, gpu_rank.stream) &&
                   put(shot, nbytes, contents[k]) && enqueue(shot, nbytes) &&
                   (k || !gpu_rank.cuda->copy(shot->kept, shot->out, kept_nbytes, gpu_rank.stream));
    }
    if (await(shot, is_right, ms) == ONE_SHOT_LATE)
        return ONE_SHOT_LATE;
    return are_sums(shot, nbytes, kept_nbytes) ? ONE_SHOT_RIGHT : ONE_SHOT_WRONG;
}
