/* SPDX-License-Identifier: MIT
 *
 * choice.h: which algorithm carries a call out: the one that a simulation under the measured costs
 * (simulate.h) predicts to be the fastest. Depends only on what all ranks know alike.
 */
#ifndef KO_CHOICE_H
#define KO_CHOICE_H

#include "simulate.h"

/* What a group's choices depend on. */
struct ko_situation {
    int n;
    const struct ko_hosts *hosts;
    const struct ko_costs *costs;
    size_t slice_bytes;
    int slots;
    bool is_ordered; /* reductions in the order of the ranks only */
};

/* Calls of one class are treated alike: class 0 has no bytes, class k those from 2^(k-1) on. Bytes
 * are of one block; SIZE_MAX is for blocks whose length not all ranks know. */
int ko_size_class(size_t nbytes);

/* True if the algorithm (a row of algorithms.h) can carry out a call of the class. */
bool ko_choice_allows(const struct ko_situation *situation, int row, bool is_uneven, int class);

/* True if there is something to win by telling hosts apart: else rows of KO_SPREAD are left out. */
bool ko_choice_is_spread(const struct ko_situation *situation);

/* Predicts the microseconds of a call of the class, among any number of ranks in some milliseconds.
 */
int ko_choice_predict(const struct ko_situation *situation, int row, int class, double *us);

/* True if us is so much less than that of an earlier row that it is taken instead. */
bool ko_choice_is_better(double us, double earlier_us);

/* The row for calls of a class; *us is what was predicted, 0 if nothing could be. wanted >= 0: that
 * row if it can. -1 after an error, of which a lack of memory is the only one. */
int ko_choose(const struct ko_situation *situation, enum ko_collective what, bool is_uneven,
              int class, int wanted, double *us);

#endif
