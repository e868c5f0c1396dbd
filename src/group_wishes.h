/* SPDX-License-Identifier: MIT
 *
 * group_wishes.h: what KOLO_ALGO asks for: "ring", for every collective that has it, or
 * "all_reduce=ring,broadcast=binomial", or both, the later one counting; and how collectives are
 * spelt.
 */
#ifndef KO_GROUP_WISHES_H
#define KO_GROUP_WISHES_H

#include "algorithms.h"

#include <stdbool.h>
#include <stddef.h>

enum { KO_NAMES_CAP = 256 };

/* True if text of so many bytes is the name, which is in small letters: case and underscores do not
 * count, so that all_reduce is also allreduce and AllReduce. */
bool ko_name_is(const char *name, const char *text, size_t length);

/* The enum ko_collective of that name, spelt so; -1: none. */
int ko_collective_find(const char *text, size_t length);

/* "all_reduce, reduce, ..." */
void ko_collectives_list(char names[KO_NAMES_CAP]);

/* rows[what] is an index into algorithms.h, or -1. KOLO_E_INVALID names the word that is wrong. */
int ko_wishes_read(const char *text, short rows[KO_NCOLLECTIVES]);

#endif
