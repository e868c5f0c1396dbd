/* SPDX-License-Identifier: MIT
 *
 * Collectives that move without computing. broadcast: one rank's buffer becomes everybody's.
 * scatter: one rank has a block for each. gather: one rank gets a block from each. all_gather:
 * everybody gets a block from each. Every rank of the group makes the same call; the one at which
 * things begin or end is called the root. If they do not, an error says who called what.
 *
 *     kolorun -n 3 build/bin/07_gather_scatter
 */
#include <kolo.h>

#include <stdio.h>
#include <string.h>

enum { RANKS = 3 };

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, kolo_last_error());
    return 1;
}

static void print(int rank, const char *what, const int *numbers, int n)
{
    char text[100] = "";

    for (int i = 0; i < n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), " %d", numbers[i]);
    printf("rank %d: %s%s\n", rank, what, text);
}

int main(void)
{
    const char *const names[RANKS] = {"Ada", "Grace", "Mary Lee"};
    int numbers[RANKS] = {0}, mine = 0, all[RANKS], rank;
    kolo_group *world;
    kolo_bytes *blobs;

    if (kolo_group_join("env://", -1, &world))
        return fail("joining");
    rank = kolo_group_rank(world);
    if (kolo_group_size(world) != RANKS) {
        fprintf(stderr, "this takes three ranks: kolorun -n 3\n");
        return 1;
    }
    for (int i = 0; i < RANKS && rank == 0; i++)
        numbers[i] = 10 * (i + 1);
    if (kolo_broadcast(world, numbers, RANKS, KOLO_INT32, 0))
        return fail("broadcast");
    print(rank, "after broadcast", numbers, RANKS);
    if (kolo_scatter(world, numbers, &mine, 1, KOLO_INT32, 0))
        return fail("scatter");
    mine += rank;
    if (kolo_gather(world, &mine, all, 1, KOLO_INT32, 2)) /* only rank 2's is written */
        return fail("gather");
    if (rank == 2)
        print(rank, "has gathered", all, RANKS);
    if (kolo_all_gather(world, &mine, all, 1, KOLO_INT32))
        return fail("all_gather");
    print(rank, "after all_gather", all, RANKS);

    /* If nobody knows how much the others have: blobs. One free is for all of them. */
    if (kolo_all_gather_bytes(world, (kolo_bytes){names[rank], strlen(names[rank])}, &blobs))
        return fail("all_gather_bytes");
    printf("rank %d: rank 2 is called %.*s\n", rank, (int)blobs[2].nbytes,
           (const char *)blobs[2].data);
    kolo_free(blobs);
    kolo_group_free(world);
    return 0;
}
