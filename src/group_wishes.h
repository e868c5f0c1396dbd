/* SPDX-License-Identifier: MIT
 *
 * group_wishes.h: what KOLO_ALGO asks for: "ring", for every collective that has it, or
 * "all_reduce=ring,broadcast=binomial", or both, the later one counting.
 */
#ifndef KO_GROUP_WISHES_H
#define KO_GROUP_WISHES_H

#include "algorithms.h"

/* rows[what] is an index into algorithms.h, or -1. KOLO_E_INVALID names the word that is wrong. */
int ko_wishes_read(const char *text, short rows[KO_NCOLLECTIVES]);

#endif
