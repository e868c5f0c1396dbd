/* SPDX-License-Identifier: MIT
 *
 * store_served.h: a store over TCP for a test, *state, and strangers who dial it beside an honest
 * client.
 */
#ifndef STORE_SERVED_H
#define STORE_SERVED_H

#include <sys/types.h>

int store_served_open(void **state);
int store_served_close(void **state);
#define STORE_SERVED(name) \
    cmocka_unit_test_setup_teardown(name, store_served_open, store_served_close)

/* The server in a process of its own, at *port or, where that is 0, at one that is set there; with
 * so many open files at most, if not 0. */
pid_t store_start_process(int *port, unsigned most_files);
void store_stop_process(pid_t server);

/* A connection; the caller's to close. */
int store_dial(void **state);

/* Nothing is there to read, and after a PING only its echo is. */
void store_hear_nothing(int fd);

/* Some requests of a client's, which is served as if it were alone. */
void store_work_honestly(void **state);

#endif
