/* SPDX-License-Identifier: MIT
 *
 * Point to point: one rank sends, another receives. Both calls block: kolo_send until the buffer
 * may be used again, kolo_recv until the message is there. The world group is all processes that
 * were started together; each has a rank in it, from 0 on. A number goes from rank to rank around a
 * ring, and everybody adds to it.
 *
 *     kolorun -n 4 build/bin/02_send_recv
 */
#include <kolo.h>

#include <stdio.h>

enum { TAG = 0 }; /* tells messages of one sender apart; here there is one kind only */

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, kolo_last_error());
    return 1;
}

int main(void)
{
    kolo_group *world;
    int rank, size, left, right;
    float number = 1;

    if (kolo_group_join("env://", -1, &world))
        return fail("joining");
    rank = kolo_group_rank(world);
    size = kolo_group_size(world);
    left = (rank + size - 1) % size;
    right = (rank + 1) % size;

    /* Rank 0 begins; the others wait for what comes. If all began with kolo_recv, all would wait
     * for ever: that is a deadlock, and kolo would end it after KOLO_TIMEOUT_MS and say who waited.
     */
    if (rank > 0 && kolo_recv(world, &number, 1, KOLO_FLOAT32, left, TAG))
        return fail("recv");
    printf("rank %d has %g and sends %g to rank %d\n", rank, (double)number, (double)(number + 1),
           right);
    number += 1;
    if (kolo_send(world, &number, 1, KOLO_FLOAT32, right, TAG))
        return fail("send");
    if (rank == 0) {
        if (kolo_recv(world, &number, 1, KOLO_FLOAT32, left, TAG))
            return fail("recv");
        printf("rank 0 has %g: it has been around\n", (double)number);
    }
    kolo_group_free(world);
    return 0;
}
