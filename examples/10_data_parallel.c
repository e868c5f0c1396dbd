/* SPDX-License-Identifier: MIT
 *
 * Data-parallel training by hand. All ranks begin with the same model; each computes the gradient
 * of its own share of the samples; the average over all ranks is the gradient of all samples, so
 * all make the same step and stay the same. Here the model is a line, y = a x + b. kolo_ddp does
 * the same behind the computation, and examples/ddp trains a network with it.
 *
 *     kolorun -n 2 build/bin/10_data_parallel
 */
#include <kolo.h>

#include <stdio.h>

enum { SAMPLES = 64, STEPS = 400 };

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, kolo_last_error());
    return 1;
}

/* Sample i of all ranks' samples: on the line that is to be found, with a little noise. */
static void sample(int i, double *x, double *y)
{
    *x = (double)i / SAMPLES;
    *y = 3 * *x - 1 + (i % 2 ? 0.01 : -0.01);
}

/* The mean squared error's gradient over this rank's samples: every size-th, beginning at rank. */
static void compute_gradient(kolo_group *group, const double model[2], double gradient[2])
{
    const int size = kolo_group_size(group);

    gradient[0] = gradient[1] = 0;
    for (int i = kolo_group_rank(group); i < SAMPLES; i += size) {
        double x, y, error;

        sample(i, &x, &y);
        error = model[0] * x + model[1] - y;
        gradient[0] += 2 * error * x * size / SAMPLES;
        gradient[1] += 2 * error * size / SAMPLES;
    }
}

int main(void)
{
    double model[2], gradient[2];
    kolo_group *world;

    if (kolo_group_join("env://", -1, &world))
        return fail("joining");
    model[0] = model[1] = kolo_group_rank(world); /* each begins elsewhere, and takes rank 0's */
    if (kolo_broadcast(world, model, 2, KOLO_FLOAT64, 0))
        return fail("broadcast");
    for (int step = 0; step < STEPS; step++) {
        compute_gradient(world, model, gradient);
        if (kolo_all_reduce(world, gradient, gradient, 2, KOLO_FLOAT64, KOLO_AVG))
            return fail("all_reduce");
        for (int i = 0; i < 2; i++)
            model[i] -= 0.5 * gradient[i];
    }
    printf("rank %d: y = %.3f x + %.3f\n", kolo_group_rank(world), model[0], model[1]);
    kolo_group_free(world);
    return 0;
}
