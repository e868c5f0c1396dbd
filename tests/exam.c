/* SPDX-License-Identifier: MIT
 *
 * Buffers between guards, the call in all its forms, and what every element of the output must be.
 */
#include "exam_values.h"

#include "ranks.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 48, GUARD_BYTE = 0xa5, STALE_BYTE = 0xcc };

struct exam_buffer {
    unsigned char *base; /* guard, data, guard; NULL: the rank has none */
    unsigned char *data;
    size_t nbytes, all_bytes; /* of the data; with the guards */
    bool is_shared;
    unsigned char *away; /* in other memory: all of it */
};

struct exam_run {
    struct exam exam;
    kolo_group *group;
    struct exam_buffer in, out; /* in place: only out or only in has memory */
    const void *in_at;
    void *out_at;
    unsigned char *given; /* what lay at in_at; NULL: nothing */
    kolo_work *work;
    int status;
};

bool exam_has_root(enum ko_collective what)
{
    return what == KO_REDUCE || what == KO_BROADCAST || what == KO_GATHER || what == KO_SCATTER;
}

bool exam_can_be_uneven(enum ko_collective what)
{
    return what == KO_ALL_GATHER || what == KO_REDUCE_SCATTER || what == KO_GATHER ||
           what == KO_SCATTER || what == KO_ALL_TO_ALL;
}

void exam_set_variables(const char *transport, const char *algorithm, int slice_bytes)
{
    char text[16];

    snprintf(text, sizeof text, "%d", slice_bytes);
    setenv("KOLO_TRANSPORT", transport, 1);
    setenv("KOLO_ALGO", algorithm, 1);
    setenv("KOLO_SLICE_BYTES", text, 1);
    setenv("KOLO_SLOTS", "2", 1);
    setenv("KOLO_DEBUG", "NONE", 1);
}

/* ---- blocks ------------------------------------------------------------------------------ */

/* What rank `from` gives to rank `to`. */
static size_t block_count(const struct exam *exam, int from, int to)
{
    const size_t a = (size_t)from, b = (size_t)to, most = exam->count + 3;

    if (!exam->is_uneven)
        return exam->count;
    switch (exam->what) {
    case KO_ALL_TO_ALL:
        return (exam->count + 7 * a + 4 * b) % most;
    case KO_ALL_GATHER:
    case KO_GATHER:
        return (exam->count + 5 * a) % most;
    default:
        return (exam->count + 5 * b) % most;
    }
}

/* Block i of the rank's in or out. Uneven ones lie from the last to the first, with gaps. */
static size_t length_at(const struct exam *exam, int rank, int i, bool is_out)
{
    return is_out ? block_count(exam, i, rank) : block_count(exam, rank, i);
}

static size_t start_at(const struct exam *exam, int n, int rank, int i, bool is_out)
{
    size_t start = 1;

    if (!exam->is_uneven)
        return (size_t)i * exam->count;
    for (int k = n - 1; k > i; k--)
        start += length_at(exam, rank, k, is_out) + 1;
    return start;
}

/* Of all blocks, and of the gaps. */
static size_t total(const struct exam *exam, int n, int rank, bool is_out)
{
    if (!exam->is_uneven)
        return (size_t)n * exam->count;
    return start_at(exam, n, rank, 0, is_out) + length_at(exam, rank, 0, is_out) + 1;
}

static bool has_blocks(const struct exam *exam, bool is_out)
{
    if (is_out)
        return exam->what == KO_ALL_GATHER || exam->what == KO_GATHER ||
               exam->what == KO_ALL_TO_ALL;
    return exam->what == KO_REDUCE_SCATTER || exam->what == KO_SCATTER ||
           exam->what == KO_ALL_TO_ALL;
}

/* ---- outputs ------------------------------------------------------------------------------ */

/* What all ranks have given this one: block by block, and between them what was there before. */
static void write_blocks(const struct exam *exam, int n, int rank, size_t count, unsigned char *to)
{
    const size_t size = kolo_dtype_size(exam->dtype);

    memset(to, STALE_BYTE, count * size);
    for (int from = 0; from < n; from++) {
        const size_t first = exam->what == KO_ALL_TO_ALL ? start_at(exam, n, from, rank, false) : 0;

        exam_write_inputs(exam, n, from,
                          (struct exam_part){first, length_at(exam, rank, from, true)},
                          to + start_at(exam, n, rank, from, true) * size);
    }
}

/* The rank's output, of so many elements. */
static void write_expected(const struct exam *exam, int n, int rank, size_t count, void *to)
{
    struct exam_part part = {0, count};

    if (!count)
        return;
    switch (exam->what) {
    case KO_REDUCE_SCATTER:
        part.first = start_at(exam, n, rank, rank, false); /* fall through */
    case KO_ALL_REDUCE:
    case KO_REDUCE:
        exam_write_reduced(exam, n, part, to);
        break;
    case KO_SCATTER:
        part.first = start_at(exam, n, exam->root, rank, false); /* fall through */
    case KO_BROADCAST:
        exam_write_inputs(exam, n, exam->root, part, to);
        break;
    default:
        write_blocks(exam, n, rank, count, to);
    }
}

/* ---- buffers ----------------------------------------------------------------------------- */

static size_t in_count(const struct exam *exam, int n, int rank)
{
    if (exam->what == KO_BARRIER || (exam->what == KO_SCATTER && rank != exam->root))
        return 0;
    return has_blocks(exam, false) ? total(exam, n, rank, false) : block_count(exam, rank, rank);
}

static size_t out_count(const struct exam *exam, int n, int rank)
{
    bool is_roots = exam->what == KO_REDUCE || exam->what == KO_GATHER;

    if (exam->what == KO_BARRIER || (is_roots && rank != exam->root))
        return 0;
    return has_blocks(exam, true) ? total(exam, n, rank, true) : block_count(exam, rank, rank);
}

static void make(struct exam_buffer *buffer, size_t nbytes, size_t shift, bool is_shared)
{
    void *base = NULL;

    if (!is_shared)
        base = malloc(nbytes + 2 * GUARD + shift);
    else if (kolo_mem_alloc(nbytes + 2 * GUARD + shift, &base))
        base = NULL;
    if (!base)
        abort();
    buffer->base = base;
    buffer->is_shared = is_shared;
    memset(buffer->base, GUARD_BYTE, nbytes + 2 * GUARD + shift);
    buffer->data = buffer->base + GUARD + shift;
    buffer->nbytes = nbytes;
    buffer->all_bytes = nbytes + 2 * GUARD + shift;
    memset(buffer->data, STALE_BYTE, nbytes);
}

static bool is_guarded(const struct exam_buffer *buffer)
{
    for (const unsigned char *at = buffer->base; at && at < buffer->data; at++)
        if (*at != GUARD_BYTE)
            return false;
    for (size_t i = 0; buffer->base && i < GUARD; i++)
        if (buffer->data[buffer->nbytes + i] != GUARD_BYTE)
            return false;
    return true;
}

/* Lays in and out into one buffer or two, as the exam says and kolo.h allows. */
static void lay_out(struct exam_run *run, int n, int rank)
{
    const struct exam *exam = &run->exam;
    const size_t size = kolo_dtype_size(exam->dtype);
    const size_t ins = in_count(exam, n, rank) * size, outs = out_count(exam, n, rank) * size;
    const size_t own = start_at(exam, n, rank, rank, ins <= outs) * size;
    bool is_one = exam->is_in_place && exam->what != KO_ALL_TO_ALL && ins && outs;

    if (exam->what == KO_BROADCAST)
        is_one = true;
    if (is_one && ins > outs) { /* reduce_scatter, scatter */
        make(&run->in, ins, exam->shift, exam->has_shared_in);
        run->in_at = run->in.data;
        run->out_at = run->in.data + own;
        return;
    }
    if (outs || !ins)
        make(&run->out, outs, exam->shift, exam->has_shared_out);
    run->out_at = run->out.data;
    if (is_one) {
        run->in_at = run->out.data + (outs > ins ? own : 0);
        return;
    }
    if (ins)
        make(&run->in, ins, exam->shift, exam->has_shared_in);
    run->in_at = run->in.data;
}

static void *allocate(size_t nbytes)
{
    void *memory = malloc(nbytes + 1);

    if (!memory)
        abort();
    return memory;
}

/* The sanitizers see what is copied, and not how it is made. */
static void fill(struct exam_run *run, int n, int rank)
{
    const struct exam *exam = &run->exam;
    const size_t count = in_count(exam, n, rank), nbytes = count * kolo_dtype_size(exam->dtype);

    if (!nbytes || (exam->what == KO_BROADCAST && rank != exam->root))
        return;
    run->given = allocate(nbytes);
    exam_write_inputs(exam, n, rank, (struct exam_part){0, count}, run->given);
    memcpy((void *)(uintptr_t)run->in_at, run->given, nbytes);
}

/* What points into the buffer at `from` points there at `to`. */
static void move_pointers(struct exam_run *run, const struct exam_buffer *buffer,
                          const unsigned char *from, unsigned char *to)
{
    const unsigned char *const in = run->in_at, *const out = run->out_at;

    if (in >= from && in < from + buffer->all_bytes)
        run->in_at = to + (in - from);
    if (out >= from && out < from + buffer->all_bytes)
        run->out_at = to + (out - from);
}

static void send_away(struct exam_run *run, struct exam_buffer *buffer)
{
    if (!run->exam.memory || !buffer->base)
        return;
    buffer->away = run->exam.memory->make(buffer->base, buffer->all_bytes);
    move_pointers(run, buffer, buffer->base, buffer->away);
}

static void fetch_back(struct exam_run *run, struct exam_buffer *buffer)
{
    if (!buffer->away)
        return;
    move_pointers(run, buffer, buffer->away, buffer->base);
    run->exam.memory->fetch(buffer->base, buffer->away, buffer->all_bytes);
    buffer->away = NULL;
}

/* ---- the call ---------------------------------------------------------------------------- */

/* Lists of the rank's blocks. */
struct lists {
    size_t numbers[4][EXAM_MOST_RANKS];
    kolo_blocks in, out;
};

static void list_blocks(const struct exam_run *run, struct lists *lists)
{
    const int n = kolo_group_size(run->group), rank = kolo_group_rank(run->group);

    if (n > EXAM_MOST_RANKS)
        abort();
    lists->in = (kolo_blocks){lists->numbers[0], lists->numbers[1]};
    lists->out = (kolo_blocks){lists->numbers[2], lists->numbers[3]};
    for (int i = 0; i < n; i++) {
        lists->numbers[0][i] = length_at(&run->exam, rank, i, false);
        lists->numbers[1][i] = start_at(&run->exam, n, rank, i, false);
        lists->numbers[2][i] = length_at(&run->exam, rank, i, true);
        lists->numbers[3][i] = start_at(&run->exam, n, rank, i, true);
    }
}

static int call_uneven(struct exam_run *run)
{
    const struct exam *e = &run->exam;
    const int rank = kolo_group_rank(run->group);
    const size_t count = block_count(e, rank, rank);
    kolo_group *g = run->group;
    struct lists l;

    list_blocks(run, &l);
    switch (e->what) {
    case KO_ALL_GATHER:
        return kolo_all_gather_v(g, run->in_at, run->out_at, &l.out, e->dtype);
    case KO_REDUCE_SCATTER:
        return kolo_reduce_scatter_v(g, run->in_at, &l.in, run->out_at, e->dtype, e->op);
    case KO_GATHER:
        return kolo_gather_v(g, run->in_at, count, run->out_at, rank == e->root ? &l.out : NULL,
                             e->dtype, e->root);
    case KO_SCATTER:
        return kolo_scatter_v(g, run->in_at, rank == e->root ? &l.in : NULL, run->out_at, count,
                              e->dtype, e->root);
    default:
        return kolo_all_to_all_v(g, run->in_at, &l.in, run->out_at, &l.out, e->dtype);
    }
}

static int call_uneven_async(struct exam_run *run)
{
    const struct exam *e = &run->exam;
    const int rank = kolo_group_rank(run->group);
    const size_t count = block_count(e, rank, rank);
    kolo_group *g = run->group;
    kolo_work **w = &run->work;
    struct lists l; /* gone when the work runs */

    list_blocks(run, &l);
    switch (e->what) {
    case KO_ALL_GATHER:
        return kolo_all_gather_v_async(g, run->in_at, run->out_at, &l.out, e->dtype, w);
    case KO_REDUCE_SCATTER:
        return kolo_reduce_scatter_v_async(g, run->in_at, &l.in, run->out_at, e->dtype, e->op, w);
    case KO_GATHER:
        return kolo_gather_v_async(g, run->in_at, count, run->out_at, &l.out, e->dtype, e->root, w);
    case KO_SCATTER:
        return kolo_scatter_v_async(g, run->in_at, &l.in, run->out_at, count, e->dtype, e->root, w);
    default:
        return kolo_all_to_all_v_async(g, run->in_at, &l.in, run->out_at, &l.out, e->dtype, w);
    }
}

static int call_blocking(struct exam_run *run)
{
    const struct exam *e = &run->exam;
    kolo_group *g = run->group;

    switch (e->what) {
    case KO_ALL_REDUCE:
        return kolo_all_reduce(g, run->in_at, run->out_at, e->count, e->dtype, e->op);
    case KO_REDUCE:
        return kolo_reduce(g, run->in_at, run->out_at, e->count, e->dtype, e->op, e->root);
    case KO_BROADCAST:
        return kolo_broadcast(g, run->out_at, e->count, e->dtype, e->root);
    case KO_ALL_GATHER:
        return kolo_all_gather(g, run->in_at, run->out_at, e->count, e->dtype);
    case KO_REDUCE_SCATTER:
        return kolo_reduce_scatter(g, run->in_at, run->out_at, e->count, e->dtype, e->op);
    case KO_GATHER:
        return kolo_gather(g, run->in_at, run->out_at, e->count, e->dtype, e->root);
    case KO_SCATTER:
        return kolo_scatter(g, run->in_at, run->out_at, e->count, e->dtype, e->root);
    case KO_ALL_TO_ALL:
        return kolo_all_to_all(g, run->in_at, run->out_at, e->count, e->dtype);
    default:
        return kolo_barrier(g);
    }
}

static int call_async(struct exam_run *run)
{
    const struct exam *e = &run->exam;
    kolo_group *g = run->group;
    kolo_work **w = &run->work;

    switch (e->what) {
    case KO_ALL_REDUCE:
        return kolo_all_reduce_async(g, run->in_at, run->out_at, e->count, e->dtype, e->op, w);
    case KO_REDUCE:
        return kolo_reduce_async(g, run->in_at, run->out_at, e->count, e->dtype, e->op, e->root, w);
    case KO_BROADCAST:
        return kolo_broadcast_async(g, run->out_at, e->count, e->dtype, e->root, w);
    case KO_ALL_GATHER:
        return kolo_all_gather_async(g, run->in_at, run->out_at, e->count, e->dtype, w);
    case KO_REDUCE_SCATTER:
        return kolo_reduce_scatter_async(g, run->in_at, run->out_at, e->count, e->dtype, e->op, w);
    case KO_GATHER:
        return kolo_gather_async(g, run->in_at, run->out_at, e->count, e->dtype, e->root, w);
    case KO_SCATTER:
        return kolo_scatter_async(g, run->in_at, run->out_at, e->count, e->dtype, e->root, w);
    case KO_ALL_TO_ALL:
        return kolo_all_to_all_async(g, run->in_at, run->out_at, e->count, e->dtype, w);
    default:
        return kolo_barrier_async(g, w);
    }
}

struct exam_run *exam_begin(kolo_group *group, const struct exam *exam)
{
    struct exam_run *run = calloc(1, sizeof *run);

    if (!run)
        abort();
    run->exam = *exam;
    run->group = group;
    lay_out(run, kolo_group_size(group), kolo_group_rank(group));
    fill(run, kolo_group_size(group), kolo_group_rank(group));
    send_away(run, &run->in);
    send_away(run, &run->out);
    if (exam->memory && exam->memory->before && exam->memory->before())
        abort();
    if (exam->is_uneven)
        run->status = exam->is_async ? call_uneven_async(run) : call_uneven(run);
    else
        run->status = exam->is_async ? call_async(run) : call_blocking(run);
    if (exam->memory && exam->memory->after && exam->memory->after())
        run->status = KOLO_E_SYSTEM;
    return run;
}

static int complain(const struct exam_run *run, const char *what, size_t i)
{
    const struct exam *e = &run->exam;

    return ranks_fail("rank %d of %d: %s%s%s%s of %zu %s, %s, root %d, shift %zu: %s (element %zu)",
                      kolo_group_rank(run->group), kolo_group_size(run->group),
                      ko_collective_name(e->what), e->is_uneven ? "_v" : "",
                      e->is_async ? "_async" : "", e->is_in_place ? " in place" : "", e->count,
                      kolo_dtype_name(e->dtype), kolo_op_name(e->op), e->root, e->shift, what, i);
}

/* The first byte that differs; nbytes: none. */
static size_t difference(const unsigned char *a, const unsigned char *b, size_t nbytes)
{
    size_t i = 0;

    if (!nbytes || !memcmp(a, b, nbytes))
        return nbytes;
    while (a[i] == b[i])
        i++;
    return i;
}

static int check_out(const struct exam_run *run, int n, int rank)
{
    const size_t size = kolo_dtype_size(run->exam.dtype);
    const size_t count = out_count(&run->exam, n, rank);
    unsigned char *want = allocate(count * size);
    size_t at;

    write_expected(&run->exam, n, rank, count, want);
    at = difference(want, run->out_at, count * size);
    free(want);
    return at < count * size ? complain(run, "a wrong result", at / size) : 0;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* What is not the output lies as it was. */
static int check_in(const struct exam_run *run, int n, int rank)
{
    const size_t size = kolo_dtype_size(run->exam.dtype);
    const size_t ins = in_count(&run->exam, n, rank) * size;
    const size_t outs = out_count(&run->exam, n, rank) * size;
    const uintptr_t in = (uintptr_t)run->in_at, out = (uintptr_t)run->out_at;
    const bool is_shared = out < in + ins && in < out + outs;
    const size_t before = !is_shared ? ins : out > in ? out - in : 0;
    const size_t behind = is_shared ? smaller(ins, out + outs - in) : ins;
    size_t at = difference(run->given, run->in_at, before);

    if (at < before)
        return complain(run, "an input was changed", at / size);
    if (behind == ins)
        return 0;
    at = difference(run->given + behind, (const unsigned char *)run->in_at + behind, ins - behind);
    return at < ins - behind ? complain(run, "an input was changed", (behind + at) / size) : 0;
}

static int await(struct exam_run *run)
{
    if (!run->status && run->work)
        run->status = kolo_work_wait(run->work, -1);
    kolo_work_free(run->work);
    fetch_back(run, &run->in);
    fetch_back(run, &run->out);
    return run->status;
}

static void discard(struct exam_buffer *buffer)
{
    if (!buffer->is_shared)
        free(buffer->base);
    else if (kolo_mem_free(buffer->base))
        abort();
}

static void free_run(struct exam_run *run)
{
    discard(&run->in);
    discard(&run->out);
    free(run->given);
    free(run);
}

int exam_end(struct exam_run *run)
{
    const int n = kolo_group_size(run->group), rank = kolo_group_rank(run->group);
    int failed = 0;

    if (await(run))
        failed = complain(run, kolo_status_name(run->status), 0);
    if (!failed)
        failed = check_out(run, n, rank);
    if (!failed)
        failed = check_in(run, n, rank);
    if (!failed && (!is_guarded(&run->in) || !is_guarded(&run->out)))
        failed = complain(run, "wrote beside its buffer", 0);
    free_run(run);
    return failed;
}

int exam_try(kolo_group *group, const struct exam *exam)
{
    struct exam_run *run = exam_begin(group, exam);
    int status = await(run);

    free_run(run);
    return status;
}

int exam_take(kolo_group *group, const struct exam *exam)
{
    return exam_end(exam_begin(group, exam));
}
