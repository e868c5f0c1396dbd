/* SPDX-License-Identifier: MIT
 *
 * pthread_once hands nothing to what it calls, which therefore looks at its thread's own.
 */
#include "once.h"

#include <stdio.h>

static _Thread_local struct {
    struct ko_once *once;
    int (*act)(void);
} called;

static void run(void)
{
    struct ko_once *const once = called.once; /* act may call another's */

    once->status = called.act();
    snprintf(once->why, sizeof once->why, "%s", once->status ? kolo_last_error() : "");
}

int ko_once(struct ko_once *once, int (*act)(void))
{
    called.once = once;
    called.act = act;
    pthread_once(&once->first, run);
    return once->status ? ko_fail_again(once->status, once->why) : KOLO_OK;
}
