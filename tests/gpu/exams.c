/* SPDX-License-Identifier: MIT
 *
 * Every collective on a GPU, among ranks that share it, or take the machine's in turn, against an
 * oracle: odd counts, blocks of other lengths, any alignment, in and out of place, blocking and
 * asynchronous, outputs poisoned and guarded; messages around a ring; and the calls of training:
 * steps of optimizers, compressed gradients, unscaling. Where ranks reach each other's memory, any
 * numbers are reduced with the host's bits.
 *   exams threads|processes|hosts|pieces|pool|graphs RANKS SECONDS [SEED]
 * Goes on with other calls until the time is over; hosts: processes that take themselves to be on
 * two; pieces: whose memory is in pieces; pool: and cannot be handed over; graphs: whose
 * collectives are captured, and launched. That they took the way which this and KOLO_CUDA_IPC ask
 * for is looked at too. The driver is whatever the loader finds.
 */
#include "bits.h"
#include "clock.h"
#include "exam_values.h"
#include "gpu_rank.h"
#include "gpu_share.h"
#include "gradient_exam.h"
#include "group.h"
#include "ranks.h"
#include "report.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SLICE_BYTES = 65536, LONG_EVERY = 500, GUARD_BYTE = 0xa5 };

static struct wish {
    enum ranks_kind kind;
    const char *kind_name;
    int n, seconds;
    unsigned seed;
    const struct exam_memory *memory;
} wish;

/* Of all ranks, also those that are processes. */
static struct counts {
    atomic_long calls, long_calls, odd_calls;
    atomic_long reached, staged, divided, by_host, captured, by_handles, by_descriptors;
    atomic_long taken_by_handles; /* of those, in the exams of collectives themselves */
    atomic_bool are_spread;       /* over several GPUs */
} * counts;

/* Bytes by which buffers are off alignment: whole packs of the kernels and halves of them, or any
 * number of elements. */
static size_t choose_shift(unsigned *seed, kolo_dtype dtype)
{
    return rand_r(seed) % 2 ? (size_t)(rand_r(seed) % 5) * 8
                            : (size_t)(rand_r(seed) % 17) * kolo_dtype_size(dtype);
}

/* The same on all ranks. */
static struct exam choose(unsigned *seed, int n)
{
    static const size_t some[] = {0, 1, 3, 15, 16, 17, 1023, 1025, 5001, 65537};
    struct exam exam = {.memory = wish.memory};

    exam.what = (enum ko_collective)(rand_r(seed) % KO_NCOLLECTIVES);
    do {
        exam.dtype = (kolo_dtype)(rand_r(seed) % KOLO_NDTYPES);
        exam.op = (kolo_op)(rand_r(seed) % KOLO_NOPS);
    } while (exam_is_reducing(exam.what) && !exam_allows(exam.dtype, exam.op));
    exam.count = rand_r(seed) % 100 ? some[rand_r(seed) % 10] : 1000003;
    exam.root = rand_r(seed) % n;
    exam.seed = (unsigned)rand_r(seed);
    exam.is_in_place = rand_r(seed) % 2;
    exam.is_async = rand_r(seed) % 2;
    exam.shift = choose_shift(seed, exam.dtype);
    exam.is_uneven = rand_r(seed) % 3 == 0 && exam_can_be_uneven(exam.what);
    return exam;
}

/* Makes it an all_reduce of which each rank's share is a turn and a quarter of all threads of its
 * GPU: the kernel's long loop, and the turn in which not all have something. */
static void lengthen(struct exam *exam, int n)
{
    exam->what = KO_ALL_REDUCE;
    exam->is_uneven = false;
    if (kolo_dtype_size(exam->dtype) < 4 || !exam_allows(exam->dtype, exam->op)) {
        exam->dtype = KOLO_FLOAT32;
        exam->op = KOLO_SUM;
        exam->shift -= exam->shift % kolo_dtype_size(exam->dtype);
    }
    exam->count = (size_t)n * (gpu_rank_long_bytes() / 8 * 5) / kolo_dtype_size(exam->dtype) +
                  exam->seed % 1000;
}

static unsigned char byte_of(const struct exam *exam, int rank, size_t i)
{
    return (unsigned char)(exam_scramble((uint64_t)rank, (uint64_t)exam->seed << 32 | i) >> 8);
}

/* As long as the exam's block and as far off alignment, from each rank to the next; what lies
 * before it stays. */
static int pass_on(kolo_group *group, const struct exam *exam)
{
    const int rank = kolo_group_rank(group), n = wish.n, from = (rank + n - 1) % n;
    const size_t nbytes = exam->count + 1, shift = exam->shift, all = shift + nbytes;
    unsigned char *content = malloc(all), *got = malloc(all);
    char *in, *out;
    int err;

    if (!content || !got)
        abort();
    memset(content, GUARD_BYTE, shift);
    for (size_t i = 0; i < nbytes; i++)
        content[shift + i] = byte_of(exam, rank, i);
    in = wish.memory->make(content, all);
    out = wish.memory->make(content, all);
    err = kolo_sendrecv(group, in + shift, nbytes, (rank + 1) % n, out + shift, nbytes, from,
                        KOLO_UINT8, 1);
    wish.memory->fetch(got, in, all);
    wish.memory->fetch(got, out, all);
    for (size_t i = 0; i < all && !err; i++)
        err = got[i] != (i < shift ? GUARD_BYTE : byte_of(exam, from, i - shift));
    free(content);
    free(got);
    return err ? ranks_fail("a message of %zu bytes to rank %d", nbytes, rank) : 0;
}

/* One of training's calls; the same seed on all ranks. */
static int train(kolo_group *group, unsigned seed)
{
    static int (*const exams[])(kolo_group *, const struct exam_memory *, unsigned) = {
        gradient_exam_step, gradient_exam_compressed, gradient_exam_unscale};

    return exams[seed % 3](group, wish.memory, seed / 3);
}

static int take_collective(kolo_group *group, const struct exam *exam)
{
    const uint64_t before = group->gpu_ways.by_handles;
    int failed = exam_take(group, exam);

    atomic_fetch_add(&counts->taken_by_handles, (long)(group->gpu_ways.by_handles - before));
    return failed;
}

/* ---- the ways that they took ----------------------------------------------------------------- */

static void count_ways(const kolo_group *group)
{
    const struct ko_gpu_ways *ways = &group->gpu_ways;

    atomic_store(&counts->are_spread, group->share && ko_gpu_share_is_spread(group->share));
    atomic_fetch_add(&counts->reached, (long)ways->reached);
    atomic_fetch_add(&counts->staged, (long)ways->staged);
    atomic_fetch_add(&counts->divided, (long)ways->divided);
    atomic_fetch_add(&counts->by_host, (long)ways->by_host);
    atomic_fetch_add(&counts->captured, (long)ways->captured);
    atomic_fetch_add(&counts->by_handles, (long)ways->by_handles);
    atomic_fetch_add(&counts->by_descriptors, (long)ways->by_descriptors);
}

static bool is_kind(const char *name)
{
    return !strcmp(wish.kind_name, name);
}

static bool is_ipc(const char *way)
{
    const char *wanted = getenv("KOLO_CUDA_IPC");

    return wanted && !strcmp(wanted, way);
}

/* Of other processes' buffers in pieces, which have no handles. But between GPUs gradients travel
 * as smaller floats in memory of the library's, which has some where they are allowed. */
static bool were_pieces_reached_as_wanted(void)
{
    const bool may_cast_by_handles = counts->are_spread && !is_ipc("vmm");

    return counts->by_descriptors &&
           !(may_cast_by_handles ? counts->taken_by_handles : counts->by_handles);
}

/* Of other processes' buffers, how they were reached. */
static bool were_reached_as_wanted(void)
{
    if (wish.kind == RANKS_THREADS)
        return !counts->by_handles && !counts->by_descriptors;
    return is_kind("pieces") || is_ipc("vmm") ? were_pieces_reached_as_wanted()
                                              : counts->by_handles && !counts->by_descriptors;
}

/* Those of all ranks' numbers in the order of the ranks, as a kernel adds them that reaches all. */
static bool has_the_hosts_bits(void)
{
    return !is_kind("hosts") && !is_ipc("off");
}

/* What falls back in silence is found here. */
static bool went_as_wanted(void)
{
    if (is_kind("hosts"))
        return counts->divided;
    if (is_ipc("off")) /* what needs no other rank's buffer still stays where it is */
        return counts->by_host && !counts->by_handles && !counts->by_descriptors;
    if (is_kind("pool")) /* blocks of different lengths go by the host */
        return counts->staged && counts->reached;
    return (is_kind("graphs") ? counts->captured : counts->reached) && !counts->staged &&
           !counts->by_host && were_reached_as_wanted();
}

static bool report_ways(void)
{
    const bool is_right = went_as_wanted();
    char note[256];

    snprintf(note, sizeof note,
             "%s: %ld where the buffers are, %ld in graphs, %ld in copies on the GPU, %ld divided "
             "between hosts, %ld by way of the host; %ld buffers by handles, %ld by descriptors",
             is_right ? "ok" : "FAILED", counts->reached, counts->captured, counts->staged,
             counts->divided, counts->by_host, counts->by_handles, counts->by_descriptors);
    report_text("the collectives' ways, of all ranks", note);
    return is_right;
}

/* ---- the run ----------------------------------------------------------------------------------
 */

static int take(kolo_group *group, void *unused)
{
    const ko_deadline end = ko_deadline_in(wish.seconds * 1000);
    unsigned seed = wish.seed;
    int goes_on = 1, failed = gpu_rank_enter(group);

    (void)unused;
    for (long i = 0; !failed && goes_on; i++) {
        const bool is_long = i % LONG_EVERY == 1;
        struct exam exam = choose(&seed, wish.n);

        if (is_long)
            lengthen(&exam, wish.n);
        if (exam.seed % 3 == 0) /* each rank's is another */
            exam.shift += (size_t)kolo_group_rank(group) * kolo_dtype_size(exam.dtype);
        failed = take_collective(group, &exam);
        atomic_fetch_add(&counts->odd_calls, exam.shift % 8 != 0);
        atomic_fetch_add(&counts->long_calls, is_long);
        if (!failed && !is_long)
            failed = pass_on(group, &exam);
        if (!failed)
            failed = train(group, (unsigned)rand_r(&seed));
        if (!failed && has_the_hosts_bits())
            failed = bits_take_call(group, wish.memory, (unsigned)rand_r(&seed));
        atomic_fetch_add(&counts->calls, 1);
        goes_on = !ko_deadline_passed(&end);
        if (!failed && kolo_all_reduce(group, &goes_on, &goes_on, 1, KOLO_INT32, KOLO_MIN))
            failed = ranks_fail("all_reduce");
    }
    count_ways(group);
    return failed;
}

static int settle(int rank, void *unused)
{
    (void)unused;
    return setenv("KOLO_HOST", rank % 2 ? "north" : "south", 1);
}

int main(int argc, char **argv)
{
    struct ranks ranks = {0};
    char what[64];
    bool is_right;

    if (argc < 4)
        return 2;
    wish.kind = strcmp(argv[1], "threads") ? RANKS_PROCESSES : RANKS_THREADS;
    wish.kind_name = argv[1];
    wish.n = atoi(argv[2]);
    wish.seconds = atoi(argv[3]);
    wish.seed = argc > 4 ? (unsigned)atoi(argv[4]) : (unsigned)ko_now_ns();
    counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (counts == MAP_FAILED || wish.n < 1)
        return 2;
    wish.memory = !strcmp(argv[1], "pieces")   ? &gpu_rank_pieces
                  : !strcmp(argv[1], "pool")   ? &gpu_rank_pool
                  : !strcmp(argv[1], "graphs") ? &gpu_rank_graphs
                                               : &gpu_rank_memory;
    ranks = (struct ranks){.kind = wish.kind, .n = wish.n};
    exam_set_variables("shm", "", SLICE_BYTES);
    if (!strcmp(argv[1], "hosts")) {
        ranks.settle = settle;
        setenv("KOLO_TRANSPORT", "shm,tcp", 1);
        setenv("KOLO_CUDA_PIECE_BYTES", "64K", 1);
    }
    fprintf(stderr, "seed %u\n", wish.seed);
    is_right = !ranks_run(&ranks, take, NULL);
    snprintf(what, sizeof what, "calls of %d %s", wish.n, argv[1]);
    report(what, (double)(atomic_load(&counts->calls) / wish.n), "calls",
           is_right ? "ok" : "FAILED");
    report("those of them that are long", (double)(atomic_load(&counts->long_calls) / wish.n),
           "calls", "");
    report("those of them whose buffers begin between multiples of 8 bytes",
           (double)(atomic_load(&counts->odd_calls) / wish.n), "calls", "");
    return !(report_ways() && is_right);
}
