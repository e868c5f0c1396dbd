/* SPDX-License-Identifier: MIT
 *
 * wire.h: bytes of a wire format written as hex digits, for tests that play a client by hand.
 */
#ifndef KO_TESTS_WIRE_H
#define KO_TESTS_WIRE_H

#include <stddef.h>
#include <stdint.h>

/* No conversation here has a longer message. */
enum { WIRE_LONGEST = 512 };

/* Hex digits, spaces between them, to at most WIRE_LONGEST bytes; returns how many. */
size_t wire_unhex(const char *hex, uint8_t *bytes);

/* Sends the bytes; receives as many and asserts that they are these. */
void say(int fd, const char *hex);
void hear(int fd, const char *hex);

/* The other end hangs up, within a generous time. Closes fd. */
void hear_end(int fd);

#endif
