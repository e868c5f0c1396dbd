/* SPDX-License-Identifier: MIT */
#include "predictions.h"

#include "layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

const struct ko_paper_text *predicted_text(enum ko_collective what, const char *name)
{
    for (int i = 0; i < ko_npaper_texts; i++)
        if (ko_paper_texts[i].what == what && !strcmp(ko_paper_texts[i].name, name))
            return &ko_paper_texts[i];
    fail_msg("no %s", name);
    return NULL;
}

double predict_wholly(enum ko_collective what, const char *name, int n, int per_host, size_t count,
                      const struct ko_costs *costs, size_t most_actions, bool is_whole)
{
    struct ko_hosts *hosts;
    struct ko_simulation simulation = {.call = {.text = predicted_text(what, name),
                                                .n = n,
                                                .count = count,
                                                .slice = PREDICTED_SLICE,
                                                .slots = PREDICTED_SLOTS},
                                       .element = PREDICTED_ELEMENT,
                                       .costs = costs,
                                       .most_actions = most_actions,
                                       .is_whole = is_whole};
    double us = -1;

    assert_int_equal(ko_layout_even(n, per_host, &hosts), 0);
    simulation.call.hosts = hosts;
    if (ko_simulate(&simulation, &us))
        fail_msg("%s, %d ranks: %s", name, n, kolo_last_error());
    free(hosts);
    return us;
}

double predict(enum ko_collective what, const char *name, int n, int per_host, size_t count,
               const struct ko_costs *costs)
{
    return predict_wholly(what, name, n, per_host, count, costs, 0, false);
}

double predict_by_few(const struct ko_paper_text *text, int n, int per_host, size_t count,
                      const struct ko_costs *costs)
{
    struct ko_hosts *hosts;
    struct ko_simulation simulation = {.call = {.text = text,
                                                .n = n,
                                                .count = count,
                                                .slice = PREDICTED_SLICE,
                                                .slots = PREDICTED_SLOTS},
                                       .element = PREDICTED_ELEMENT,
                                       .costs = costs};
    double us = -1;

    assert_int_equal(ko_layout_even(n, per_host, &hosts), 0);
    simulation.call.hosts = hosts;
    if (ko_simulate_many(&simulation, &us))
        fail_msg("%s, %d ranks: %s", text->name, n, kolo_last_error());
    free(hosts);
    return us;
}
