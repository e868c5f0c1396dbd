/* SPDX-License-Identifier: MIT */
#include "predictions.h"

#include "layout.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct ko_costs free_costs(void)
{
    return (struct ko_costs){.cores = 1e6, .spin = 1e12};
}

void assert_close(double got, double want, double tolerance)
{
    if (fabs(got - want) > tolerance * fabs(want) + 1e-9)
        fail_msg("%g instead of %g", got, want);
}

const struct ko_paper_text *predicted_text(enum ko_collective what, const char *name)
{
    for (int i = 0; i < ko_npaper_texts; i++)
        if (ko_paper_texts[i].what == what && !strcmp(ko_paper_texts[i].name, name))
            return &ko_paper_texts[i];
    fail_msg("no %s", name);
    abort(); /* not reached */
}

struct ko_simulation predicted_call(const struct ko_paper_text *text, int n, int per_host,
                                    size_t count, const struct ko_costs *costs)
{
    struct ko_simulation simulation = {.call = {.text = text,
                                                .n = n,
                                                .count = count,
                                                .slice = PREDICTED_SLICE,
                                                .slots = PREDICTED_SLOTS},
                                       .element = PREDICTED_ELEMENT,
                                       .costs = costs};
    struct ko_hosts *hosts;

    assert_int_equal(ko_layout_even(n, per_host, &hosts), 0);
    simulation.call.hosts = hosts;
    return simulation;
}

double predicted_us(struct ko_simulation *simulation,
                    int (*by)(const struct ko_simulation *simulation, double *us))
{
    double us = -1;

    if (by(simulation, &us))
        fail_msg("%s, %d ranks: %s", simulation->call.text->name, simulation->call.n,
                 kolo_last_error());
    free((void *)(uintptr_t)simulation->call.hosts);
    return us;
}

double predict_wholly(enum ko_collective what, const char *name, int n, int per_host, size_t count,
                      const struct ko_costs *costs, size_t most_actions, bool is_whole)
{
    struct ko_simulation simulation =
        predicted_call(predicted_text(what, name), n, per_host, count, costs);

    simulation.most_actions = most_actions;
    simulation.is_whole = is_whole;
    return predicted_us(&simulation, ko_simulate);
}

double predict(enum ko_collective what, const char *name, int n, int per_host, size_t count,
               const struct ko_costs *costs)
{
    return predict_wholly(what, name, n, per_host, count, costs, 0, false);
}

double predict_by_few(const struct ko_paper_text *text, int n, int per_host, size_t count,
                      const struct ko_costs *costs)
{
    struct ko_simulation simulation = predicted_call(text, n, per_host, count, costs);

    return predicted_us(&simulation, ko_simulate_many);
}
