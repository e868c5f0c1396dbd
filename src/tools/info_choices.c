/* SPDX-License-Identifier: MIT
 *
 * Which algorithm each collective would take for each size, and how long that is predicted to last.
 */
#include "info.h"

#include "choice.h"
#include "coll.h"
#include "config.h"
#include "forecast.h"
#include "group_wishes.h"
#include "layout.h"
#include "tuning.h"

#include <stdlib.h>

/* Blocks of nothing, and of up to 1 GiB. */
enum { MOST_CLASS = 31 };

static void print_size(FILE *file, int class)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
    const int power = class - 1;

    if (class)
        fprintf(file, "%5d %-3s", 1 << power % 10, units[power / 10]);
    else
        fprintf(file, "%5d B  ", 0);
}

/* A line for each run of sizes that go by one algorithm. */
static int print_collective(FILE *file, const struct ko_situation *situation,
                            enum ko_collective what, int wanted)
{
    const int most = what == KO_BARRIER ? 0 : MOST_CLASS;
    int last = -1;

    for (int class = 0; class <= most; class ++) {
        double us;
        int row = ko_choose(situation, what, false, class, wanted, &us);

        if (row < 0)
            return KOLO_E_NOMEM;
        if (row == last)
            continue;
        if (us <= 0 && ko_choice_predict(situation, row, class, &us))
            us = 0; /* a wish is not predicted until asked for */
        fprintf(file, "  %-15s from ", ko_collective_name(what));
        print_size(file, class);
        fprintf(file, " %-14s %10.4g us  %s\n", ko_paper_texts[row].name, us,
                ko_algorithms[row].why);
        last = row;
    }
    return KOLO_OK;
}

static int read_situation(int n, int per_host, struct ko_situation *situation,
                          struct ko_costs *costs, struct ko_hosts **hosts)
{
    int err = ko_layout_even(n, per_host, hosts);

    if (!err)
        err = ko_situation_read(*hosts, situation);
    if (!err)
        err = ko_tuning_get(costs);
    situation->n = n;
    situation->costs = costs;
    return err;
}

int ko_choices_print(int n, int per_host, FILE *file)
{
    struct ko_situation situation;
    struct ko_hosts *hosts = NULL;
    struct ko_costs costs;
    short wishes[KO_NCOLLECTIVES];
    int err = read_situation(n, per_host, &situation, &costs, &hosts);

    if (!err)
        err = ko_wishes_read(ko_config_text(KO_CONFIG_ALGO), wishes);
    if (!err)
        fprintf(file, "%d ranks, %d on a host, by %s: sizes of a block, and what is predicted\n", n,
                per_host < n ? per_host : n,
                ko_config_is_set(KO_CONFIG_TUNING) ? ko_config_text(KO_CONFIG_TUNING)
                                                   : "costs that usually hold");
    for (int what = 0; what < KO_NCOLLECTIVES && !err; what++)
        err = print_collective(file, &situation, (enum ko_collective)what, wishes[what]);
    free(hosts);
    return err;
}
