/* SPDX-License-Identifier: MIT
 *
 * Communication behind computation: an asynchronous all_reduce goes on in a thread of the group's
 * own while this one works on something else.
 *
 *     kolorun -n 2 build/bin/11_overlap
 */
#include <kolo.h>

#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 4 << 20 };

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, kolo_last_error());
    return 1;
}

/* Something that has nothing to do with the buffers under way. */
static double compute(void)
{
    double sum = 0;

    for (int i = 1; i < 20000000; i++)
        sum += 1.0 / i;
    return sum;
}

int main(void)
{
    float *gradient = malloc(COUNT * sizeof *gradient);
    kolo_group *world;
    kolo_work *work;

    if (!gradient || kolo_group_join("env://", -1, &world))
        return fail("joining");
    for (size_t i = 0; i < COUNT; i++)
        gradient[i] = (float)kolo_group_rank(world);

    if (kolo_all_reduce_async(world, gradient, gradient, COUNT, KOLO_FLOAT32, KOLO_AVG, &work))
        return fail("all_reduce");
    printf("rank %d computed %.6f meanwhile\n", kolo_group_rank(world), compute());
    if (kolo_work_wait(work, -1))
        return fail("waiting");
    kolo_work_free(work);

    printf("rank %d: the average is %g\n", kolo_group_rank(world), (double)gradient[COUNT - 1]);
    kolo_group_free(world);
    free(gradient);
    return 0;
}
