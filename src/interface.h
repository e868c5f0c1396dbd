/* SPDX-License-Identifier: MIT
 *
 * interface.h: addresses of this host. No state; any thread.
 */
#ifndef KO_INTERFACE_H
#define KO_INTERFACE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

enum { KO_INTERFACE_TEXT = 256 };

/* The address of the interface of that name, NULL: of the first that is no loopback: its first of
 * IPv4, else of IPv6 that is not link-local. False: there is none. */
bool ko_interface_address(const char *name, char *host, size_t nbytes);

/* Whether this host has an interface of that name, whatever its addresses. */
bool ko_interface_exists(const char *name);

/* Whether this host has the address, of IPv4 or IPv6 and whatever port; all of 127.0.0.0/8 are. */
bool ko_interface_has(const struct sockaddr *address);

/* What KOLO_IFADDR names: an interface's address, or else its own text. False and "": it is not
 * set. */
bool ko_interface_wanted(char *host, size_t nbytes);

#endif
