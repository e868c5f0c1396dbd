/* SPDX-License-Identifier: MIT
 *
 * failure.h: how the trainer says that something went wrong: one sentence on stderr, written by the
 * place that decides it; everybody above only passes the code on.
 */
#ifndef TRAIN_FAILURE_H
#define TRAIN_FAILURE_H

enum { TRAIN_OK = 0, TRAIN_FAILED = 1, TRAIN_USAGE = 2 }; /* also the exit statuses */

/* Prints "kolo-train: " and the sentence; returns TRAIN_FAILED. */
int train_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same for a failed call of kolo, with its own sentence after what; TRAIN_OK if status is 0. */
int train_check(int status, const char *what);

/* Takes note of a sentence that another rank prints; returns TRAIN_FAILED. */
int train_note(const char *sentence);

/* The first of all these sentences, "" if there was none. */
const char *train_failure(void);

#endif
