/* SPDX-License-Identifier: MIT
 *
 * A message to and fro between two ranks, and how long that takes.
 *
 *     kolorun -n 2 build/bin/12_ping_pong
 *     KOLO_TRANSPORT=tcp kolorun -n 2 build/bin/12_ping_pong
 */
#include <kolo.h>

#include <stdio.h>
#include <time.h>

enum { ROUNDS = 100000, TAG = 7 };

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, kolo_last_error());
    return 1;
}

static double now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

/* One round: rank 0 throws the ball, rank 1 throws it back. */
static int throw_once(kolo_group *world, double *ball)
{
    const int me = kolo_group_rank(world), other = 1 - me;
    int err = me == 0 ? kolo_send(world, ball, 1, KOLO_FLOAT64, other, TAG)
                      : kolo_recv(world, ball, 1, KOLO_FLOAT64, other, TAG);
    if (err)
        return err;
    return me == 0 ? kolo_recv(world, ball, 1, KOLO_FLOAT64, other, TAG)
                   : kolo_send(world, ball, 1, KOLO_FLOAT64, other, TAG);
}

int main(void)
{
    kolo_group *world;
    double ball = 1, begin;

    if (kolo_group_join("env://", -1, &world))
        return fail("joining");
    if (kolo_group_size(world) != 2) {
        fprintf(stderr, "this takes two ranks: kolorun -n 2\n");
        return 1;
    }
    begin = now_us();
    for (int i = 0; i < ROUNDS; i++)
        if (throw_once(world, &ball))
            return fail("throwing");
    if (kolo_group_rank(world) == 0)
        printf("%.2f us one way\n", (now_us() - begin) / ROUNDS / 2);
    kolo_group_free(world);
    return 0;
}
