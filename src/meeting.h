/* SPDX-License-Identifier: MIT
 *
 * meeting.h: the store in which the ranks of a job meet, opened in the way that their launcher
 * leaves them.
 */
#ifndef KO_MEETING_H
#define KO_MEETING_H

#include "clock.h"
#include "kolo.h"
#include "launcher.h"

#include <stdbool.h>

/* Opens the store, serving it where it is this rank's to do so; by the deadline, which is
 * timeout_ms from now. The store is the caller's to close. */
int ko_meeting_open(const struct ko_placement *placement, const ko_deadline *deadline,
                    kolo_store **store);

/* Whether rank 0 serves the store, so that it has to leave last. */
bool ko_meeting_has_server(const struct ko_placement *placement);

/* Whether rank 0 serves at an address of the loopback, though there may be other machines. */
bool ko_meeting_is_kept_here(const struct ko_placement *placement);

/* The first address of this host that others may reach: KOLO_IFADDR; else one of an interface that
 * is up, IPv4 before IPv6; else that of the loopback. */
void ko_meeting_own_address(char host[KO_HOST_TEXT]);

/* The name of a host, or, if it is known here only as an address of the loopback, as many systems
 * have it for their own name, the first address by which others reach this host; then KOLO_DEBUG
 * says so. What is an address already, localhost, and a name that is not known soon enough (two
 * seconds, or a quarter of the time that is left) stay. */
void ko_meeting_reachable(const char *name, const ko_deadline *deadline, char host[KO_HOST_TEXT]);

#endif
