/* SPDX-License-Identifier: MIT
 *
 * thread.h: threads of the library's own, which take no signals, since those are the program's; and
 * conditions whose time-outs go by the clock of clock.h.
 */
#ifndef KO_THREAD_H
#define KO_THREAD_H

#include <pthread.h>

/* Starts a thread, to be joined; what it is for stands in the error's text. */
int ko_thread_start(pthread_t *thread, void *(*body)(void *), void *argument, const char *what);

void ko_condition_init(pthread_cond_t *condition);

#endif
