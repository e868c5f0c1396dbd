/* SPDX-License-Identifier: MIT
 *
 * look_up.h: names of hosts, with a deadline, which getaddrinfo does not have: a silent name server
 * keeps it for half a minute.
 */
#ifndef KO_LOOK_UP_H
#define KO_LOOK_UP_H

#include "clock.h"

#include <netdb.h>

/* getaddrinfo for TCP and a port's number, with flags beside AI_NUMERICSERV; NULL or "" is the
 * wildcard of AI_PASSIVE. 0 and *list, for freeaddrinfo, or an error: EAI_INPROGRESS at the
 * deadline. Addresses, unlike names, are read without a thread and without waiting. */
int ko_look_up(const char *host, int port, int flags, const ko_deadline *deadline,
               struct addrinfo **list);

const char *ko_look_up_error(int error);

#endif
