/* SPDX-License-Identifier: MIT
 *
 * status.h: how a function says that it failed. The place that decides the error calls ko_fail
 * once; everybody above only passes the code on. The text is the thread's own until a work or a
 * group copies it.
 */
#ifndef KO_STATUS_H
#define KO_STATUS_H

#include "kolo.h"

#include <stddef.h>

/* Longest error text, its NUL included; longer ones are cut. */
#define KO_ERROR_TEXT 632

/* "Not yet": an internal answer of functions that never block. No public function returns it. */
#define KO_AGAIN (-1)

/* Keeps the text for kolo_last_error(), logs it at INFO, returns status. */
int ko_fail(int status, const char *format, ...) __attribute__((cold, format(printf, 2, 3)));

/* The same for a failed system call: appends ": " and the text of error (an errno). */
int ko_fail_errno(int error, const char *format, ...) __attribute__((cold, format(printf, 2, 3)));

/* Makes text the thread's error text without logging it; returns status. For passing on an error
 * that another thread or rank decided. text may be the thread's own text. */
int ko_fail_again(int status, const char *text);

/* Keeps the thread's text for that, for who goes on after a call that may fail; it is mostly "". */
void ko_error_keep(char text[KO_ERROR_TEXT]);

/* A failure's code is never KOLO_OK. Said here so that compilers and analyzers know that an output
 * is set whenever the code says so. */
static inline int ko_failed(int status)
{
    if (status == KOLO_OK)
        __builtin_unreachable();
    return status;
}

#define ko_fail(...) ko_failed((ko_fail)(__VA_ARGS__))
#define ko_fail_errno(...) ko_failed((ko_fail_errno)(__VA_ARGS__))

/* calloc; on failure ko_fail with what it was for, and NULL. Freed by kolo_free. */
void *ko_alloc(size_t nbytes, const char *what);
/* The same, but what is in it is not set. */
void *ko_alloc_unset(size_t nbytes, const char *what);

#endif
