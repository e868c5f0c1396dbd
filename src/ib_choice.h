/* SPDX-License-Identifier: MIT
 *
 * ib_choice.h: a part of ib_ports.h, for ib_ports.c alone: which ports are taken.
 */
#ifndef KO_IB_CHOICE_H
#define KO_IB_CHOICE_H

#include "ib_ports.h"

/* Indices in a port's tables. */
struct ko_ib_wishes {
    int gid, pkey; /* gid -1: none */
};

/* Of the ports that have been listed; host as in ko_ib_ports_read. */
void ko_ib_choose(struct ko_ib_ports *ports, const struct ko_ib_wishes *wishes, const char *host);

#endif
