/* SPDX-License-Identifier: MIT
 *
 * The first collective: the sum of what every rank has, on every rank. All ranks make the same
 * call, and nobody says who sends what to whom: kolo chooses that, by how long it would take.
 *
 *     kolorun -n 4 build/bin/06_all_reduce
 *
 * An argument is where ranks meet that no launcher has started, as
 * tcp://host:port?rank=0&world_size=2.
 */
#include <kolo.h>

#include <stdio.h>

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, kolo_last_error());
    return 1;
}

int main(int argc, char **argv)
{
    float mine[3], sum[3];
    kolo_group *world;
    int rank;

    if (kolo_group_join(argc > 1 ? argv[1] : "env://", -1, &world))
        return fail("joining");
    rank = kolo_group_rank(world);
    for (int i = 0; i < 3; i++)
        mine[i] = (float)(10 * rank + i);

    if (kolo_all_reduce(world, mine, sum, 3, KOLO_FLOAT32, KOLO_SUM))
        return fail("all_reduce");

    printf("rank %d of %d: %g %g %g became %g %g %g\n", rank, kolo_group_size(world),
           (double)mine[0], (double)mine[1], (double)mine[2], (double)sum[0], (double)sum[1],
           (double)sum[2]);
    kolo_group_free(world);
    return 0;
}
