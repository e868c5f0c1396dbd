/* SPDX-License-Identifier: MIT
 *
 * layout.h: makes a struct ko_hosts, the same on all ranks that give the same names.
 */
#ifndef KO_LAYOUT_H
#define KO_LAYOUT_H

#include "hosts.h"

#include <stddef.h>
#include <stdint.h>

/* machines[n]: by rank, equal strings for ranks of one machine. *hosts is one block of memory, to
 * be freed by free(); its ranks share memory where a host has several. KOLO_E_NOMEM. */
int ko_layout_make(const char *const machines[], int n, struct ko_hosts **hosts);

/* The same for ranks of which per_host >= 1 at a time sit on one host, in their order. */
int ko_layout_even(int n, int per_host, struct ko_hosts **hosts);

/* The longest slice of a group's collectives: what a slot of slot_bytes holds where ranks share
 * memory, else what a message carries between two ranks; half of it among more, of whom each passes
 * on what it gets (by measurement). */
size_t ko_layout_slice_bytes(const struct ko_hosts *hosts, uint32_t slot_bytes);

#endif
