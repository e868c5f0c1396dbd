/* SPDX-License-Identifier: MIT */
#include "choice.h"

#include <stdint.h>

/* Actions of a simulation: a first call of its size must not wait for long. Among more ranks than
 * these even counting the actions takes too long. */
enum { MOST_ACTIONS = 6000, MOST_RANKS = 128 };

/* A later row has to be so much better than an earlier one. */
static const double EQUAL = 0.97;

/* What blocks of unknown length are taken to have. */
static const size_t USUAL_BYTES = 64 * 1024;

int ko_size_class(size_t nbytes)
{
    if (nbytes == SIZE_MAX)
        return KO_SIZE_CLASSES - 1;
    return nbytes ? 64 - __builtin_clzll(nbytes) : 0;
}

/* The longest of a class, and one in its middle. */
static size_t longest_bytes(int class)
{
    return class < 64 ? ((size_t)1 << class) - 1 : SIZE_MAX;
}

static size_t middle_bytes(int class)
{
    if (class == KO_SIZE_CLASSES - 1)
        return USUAL_BYTES;
    return class < 2 ? (size_t) class : (size_t)3 << (class - 2);
}

bool ko_choice_allows(const struct ko_situation *situation, int row, bool is_uneven, int class)
{
    const struct ko_paper_text *text = &ko_paper_texts[row];

    if (situation->is_ordered && ko_is_reducing(text->what) && !(text->flags & KO_ORDERED))
        return false;
    if (is_uneven && text->flags & KO_EVEN)
        return false;
    return !(text->flags & KO_SMALL) ||
           longest_bytes(class) <= situation->slice_bytes / (size_t)situation->n;
}

bool ko_choice_is_spread(const struct ko_situation *situation)
{
    return situation->hosts->n > 1 && situation->hosts->n < situation->n;
}

int ko_choice_predict(const struct ko_situation *situation, int row, int class, double *us)
{
    const struct ko_simulation simulation = {.call = {.text = &ko_paper_texts[row],
                                                      .n = situation->n,
                                                      .count = middle_bytes(class),
                                                      .slice = situation->slice_bytes,
                                                      .slots = situation->slots,
                                                      .hosts = situation->hosts},
                                             .element = 1,
                                             .costs = situation->costs,
                                             .most_actions = MOST_ACTIONS};
    int err = KOLO_E_UNSUPPORTED;

    if (situation->n <= MOST_RANKS)
        err = ko_simulate(&simulation, us);
    return err == KOLO_E_UNSUPPORTED ? ko_simulate_many(&simulation, us) : err;
}

/* Whether the row is worth a prediction, or could be. */
static bool is_in_question(const struct ko_situation *situation, const struct ko_paper_text *text)
{
    return (!(text->flags & KO_SPREAD) || ko_choice_is_spread(situation)) &&
           (!(text->flags & KO_MANY) || situation->n > 2) &&
           (!(text->flags & KO_FEW) || situation->n <= KO_FEW_RANKS);
}

/* Where nothing could be simulated: the last row that can, since the table begins with those that
 * send the most messages. */
static int last_resort(const struct ko_situation *situation, enum ko_collective what,
                       bool is_uneven, int class)
{
    int last = -1;

    for (int row = 0; row < ko_npaper_texts; row++)
        if (ko_paper_texts[row].what == what && !(ko_paper_texts[row].flags & KO_SPREAD) &&
            ko_choice_allows(situation, row, is_uneven, class))
            last = row;
    return last;
}

bool ko_choice_is_better(double us, double earlier_us)
{
    return us < EQUAL * earlier_us;
}

int ko_choose(const struct ko_situation *situation, enum ko_collective what, bool is_uneven,
              int class, int wanted, double *us)
{
    double best_us = 0;
    int best = -1;

    *us = 0;
    if (wanted >= 0 && ko_choice_allows(situation, wanted, is_uneven, class))
        return wanted;
    for (int row = 0; row < ko_npaper_texts; row++) {
        const struct ko_paper_text *text = &ko_paper_texts[row];
        double row_us;
        int err;

        if (text->what != what || !is_in_question(situation, text) ||
            !ko_choice_allows(situation, row, is_uneven, class))
            continue;
        err = ko_choice_predict(situation, row, class, &row_us);
        if (err == KOLO_E_NOMEM) /* other ranks may have it, and choose another row */
            return -1;
        if (err)
            continue;
        if (best < 0 || ko_choice_is_better(row_us, best_us)) {
            best = row;
            best_us = row_us;
        }
    }
    *us = best_us;
    return best >= 0 ? best : last_resort(situation, what, is_uneven, class);
}
