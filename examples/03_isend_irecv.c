/* SPDX-License-Identifier: MIT
 *
 * The same without waiting: kolo_isend and kolo_irecv return at once with a work, which is asked or
 * waited for later. Until it is complete its buffer is the library's: what is in it may not have
 * been sent yet, or not have come yet. So all ranks can send and receive at once, in both
 * directions, and none has to be the first.
 *
 *     kolorun -n 3 build/bin/03_isend_irecv
 */
#include <kolo.h>

#include <stdio.h>

enum { FROM_LEFT, FROM_RIGHT }; /* tags */

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, kolo_last_error());
    return 1;
}

int main(void)
{
    kolo_group *world;
    kolo_work *works[4];
    int rank, size, left, right, got_left, got_right;

    if (kolo_group_join("env://", -1, &world))
        return fail("joining");
    rank = kolo_group_rank(world);
    size = kolo_group_size(world);
    left = (rank + size - 1) % size;
    right = (rank + 1) % size;

    /* Receives first: then what comes goes straight to where it belongs. */
    if (kolo_irecv(world, &got_left, 1, KOLO_INT32, left, FROM_LEFT, &works[0]) ||
        kolo_irecv(world, &got_right, 1, KOLO_INT32, right, FROM_RIGHT, &works[1]) ||
        kolo_isend(world, &rank, 1, KOLO_INT32, right, FROM_LEFT, &works[2]) ||
        kolo_isend(world, &rank, 1, KOLO_INT32, left, FROM_RIGHT, &works[3]))
        return fail("starting");

    /* Here there is time for something else; see 11_overlap.c. */

    for (int i = 0; i < 4; i++) {
        if (kolo_work_wait(works[i], -1))
            return fail("waiting");
        kolo_work_free(works[i]);
    }
    printf("rank %d sits between %d and %d\n", rank, got_left, got_right);

    /* kolo_batch does all that in one call, and kolo_sendrecv for one of each. */
    kolo_group_free(world);
    return 0;
}
