/* SPDX-License-Identifier: MIT
 *
 * layout.h: makes a struct ko_hosts, the same on all ranks that give the same names.
 */
#ifndef KO_LAYOUT_H
#define KO_LAYOUT_H

#include "hosts.h"

/* machines[n]: by rank, equal strings for ranks of one machine. *hosts is one block of memory, to
 * be freed by free(). KOLO_E_NOMEM. */
int ko_layout_make(const char *const machines[], int n, struct ko_hosts **hosts);

#endif
