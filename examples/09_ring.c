/* SPDX-License-Identifier: MIT
 *
 * An all_reduce by hand, as a ring. The buffer is cut into a chunk for each rank. In n-1 steps each
 * rank sends a chunk to the right, receives another from the left and adds it to its own: then each
 * has one chunk that is complete. In n-1 more the complete chunks go around. Each rank sends
 * 2(n-1)/n of the buffer, however many there are: less is not possible. kolo's own is
 * kernels/ring.h; kolo-explain all_reduce --algo ring --ranks 4 tells it step by step.
 *
 *     kolorun -n 4 build/bin/09_ring
 */
#include <kolo.h>

#include <stdio.h>

enum { MOST_RANKS = 16, CHUNK = 1000, TAG = 1 };

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, kolo_last_error());
    return 1;
}

/* Sends one chunk to the right while another comes from the left. */
static int shift(kolo_group *group, const float *out, float *in)
{
    const int rank = kolo_group_rank(group), n = kolo_group_size(group);

    return kolo_sendrecv(group, out, CHUNK, (rank + 1) % n, in, CHUNK, (rank + n - 1) % n,
                         KOLO_FLOAT32, TAG);
}

static int ring_all_reduce(kolo_group *group, float *buffer)
{
    const int rank = kolo_group_rank(group), n = kolo_group_size(group);
    float incoming[CHUNK];
    int err = KOLO_OK;

    for (int step = 0; step < n - 1 && !err; step++) { /* reduce_scatter */
        float *out = buffer + (rank - step + n) % n * CHUNK;
        float *sum = buffer + (rank - step - 1 + n) % n * CHUNK;

        err = shift(group, out, incoming);
        for (int i = 0; i < CHUNK && !err; i++)
            sum[i] += incoming[i];
    }
    for (int step = 0; step < n - 1 && !err; step++) /* all_gather */
        err = shift(group, buffer + (rank - step + 1 + n) % n * CHUNK,
                    buffer + (rank - step + n) % n * CHUNK);
    return err;
}

int main(void)
{
    static float mine[MOST_RANKS * CHUNK], sum[MOST_RANKS * CHUNK];
    kolo_group *world;
    int n, ndifferent = 0;

    if (kolo_group_join("env://", -1, &world))
        return fail("joining");
    n = kolo_group_size(world);
    if (n > MOST_RANKS) {
        fprintf(stderr, "this takes up to %d ranks\n", MOST_RANKS);
        return 1;
    }
    for (int i = 0; i < n * CHUNK; i++)
        mine[i] = (float)(kolo_group_rank(world) * 100 + i % 7);
    if (kolo_all_reduce(world, mine, sum, (size_t)(n * CHUNK), KOLO_FLOAT32, KOLO_SUM) ||
        ring_all_reduce(world, mine))
        return fail("all_reduce");
    for (int i = 0; i < n * CHUNK; i++)
        ndifferent += mine[i] < sum[i] || mine[i] > sum[i];
    printf("rank %d: the last sum is %g; %d of %d differ from kolo's\n", kolo_group_rank(world),
           (double)mine[n * CHUNK - 1], ndifferent, n * CHUNK);
    kolo_group_free(world);
    return 0;
}
