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
#define KO_ERROR_TEXT 512

/* "Not yet": an internal answer of functions that never block. No public function returns it. */
#define KO_AGAIN (-1)

/* Keeps the text for kolo_last_error(), logs it at INFO, returns status. */
int ko_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for a failed system call: appends ": " and the text of error (an errno). */
int ko_fail_errno(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Makes text the thread's error text without logging it; returns status. For passing on an error
 * that another thread or rank decided. text may be the thread's own text. */
int ko_fail_again(int status, const char *text);

/* calloc; on failure ko_fail with what it was for, and NULL. Freed by kolo_free. */
void *ko_alloc(size_t nbytes, const char *what);

#endif
