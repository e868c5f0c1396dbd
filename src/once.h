/* SPDX-License-Identifier: MIT
 *
 * once.h: what a process does at the first call and never again, as opening a library. How that
 * went holds for good: if it failed, everybody who asks gets the same code and sentence.
 */
#ifndef KO_ONCE_H
#define KO_ONCE_H

#include "status.h"

#include <pthread.h>

struct ko_once {
    pthread_once_t first; /* PTHREAD_ONCE_INIT */
    int status;
    char why[KO_ERROR_TEXT]; /* of a status that is not KOLO_OK */
};

/* Calls act, the same at every call, if nobody has; others wait meanwhile. Returns its status. Any
 * thread; act may do something else once. */
int ko_once(struct ko_once *once, int (*act)(void));

#endif
