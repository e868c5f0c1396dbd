/* SPDX-License-Identifier: MIT
 *
 * The rest of the family. reduce: the sum on one rank only. reduce_scatter: each rank gets its
 * block of the sum, which is the first half of an all_reduce (all_gather is the other). all_to_all:
 * each rank has a block for each other; seen as a matrix with a row for each rank, it is
 * transposed.
 *
 *     kolorun -n 2 build/bin/08_reduce_scatter
 */
#include <kolo.h>

#include <stdio.h>

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, kolo_last_error());
    return 1;
}

int main(void)
{
    int row[2], column[2], sum[2] = {0}, mine, rank;
    kolo_group *world;

    if (kolo_group_join("env://", -1, &world))
        return fail("joining");
    rank = kolo_group_rank(world);
    if (kolo_group_size(world) != 2) {
        fprintf(stderr, "this takes two ranks: kolorun -n 2\n");
        return 1;
    }
    for (int i = 0; i < 2; i++)
        row[i] = 10 * rank + i;
    printf("rank %d begins with %d %d\n", rank, row[0], row[1]);

    if (kolo_reduce(world, row, sum, 2, KOLO_INT32, KOLO_SUM, 1))
        return fail("reduce");
    if (rank == 1)
        printf("rank 1 has the sums %d %d\n", sum[0], sum[1]);

    if (kolo_reduce_scatter(world, row, &mine, 1, KOLO_INT32, KOLO_SUM))
        return fail("reduce_scatter");
    printf("rank %d has the sum %d\n", rank, mine);

    if (kolo_all_to_all(world, row, column, 1, KOLO_INT32))
        return fail("all_to_all");
    printf("rank %d has column %d: %d %d\n", rank, rank, column[0], column[1]);

    if (kolo_barrier(world)) /* returns when every rank has called it, and does nothing else */
        return fail("barrier");
    kolo_group_free(world);
    return 0;
}
