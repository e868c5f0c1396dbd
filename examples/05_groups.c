/* SPDX-License-Identifier: MIT
 *
 * Groups: some ranks of a group, with numbers of their own. What happens in one has nothing to do
 * with what happens in another: messages do not mix, a time-out of one is not the other's. Making
 * one of a list sends nothing, and an idle one costs next to nothing, so a program may have
 * thousands. A split is a collective call: its ranks tell each other their colors.
 *
 *     kolorun -n 4 build/bin/05_groups
 */
#include <kolo.h>

#include <stdio.h>

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, kolo_last_error());
    return 1;
}

/* The sum of the members' numbers in the world, on each member of the group. */
static int sum_of(kolo_group *group, int number, int *sum)
{
    return kolo_all_reduce(group, &number, sum, 1, KOLO_INT32, KOLO_SUM);
}

int main(void)
{
    static const int outer[] = {3, 0};
    kolo_group *world, *ends, *parity;
    int rank, sum;

    if (kolo_group_join("env://", -1, &world))
        return fail("joining");
    rank = kolo_group_rank(world);
    if (kolo_group_size(world) != 4) {
        fprintf(stderr, "this takes four ranks: kolorun -n 4\n");
        return 1;
    }

    /* By a list: all ranks make the call; who is not in the list gets NULL. Rank 3 of the world is
     * the first in the list, so it is rank 0 there. kolo_group_new_local is for the members alone.
     */
    if (kolo_group_new(world, outer, 2, &ends))
        return fail("new");
    if (ends) {
        if (sum_of(ends, rank, &sum))
            return fail("the ends");
        printf("rank %d is %d of the ends; their sum is %d\n", rank, kolo_group_rank(ends), sum);
    }

    /* By color: ranks that say the same become one group, ordered by the key. */
    if (kolo_group_split(world, rank % 2, 0, &parity) || sum_of(parity, rank, &sum))
        return fail("split");
    printf("rank %d is %d of the %s; their sum is %d\n", rank, kolo_group_rank(parity),
           rank % 2 ? "odd" : "even", sum);

    /* Before something that must not begin without anybody: a barrier that names who is missing. */
    if (kolo_monitored_barrier(world, 10000, 1))
        return fail("barrier");
    kolo_group_free(parity);
    kolo_group_free(ends);
    kolo_group_free(world);
    return 0;
}
