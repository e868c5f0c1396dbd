/* SPDX-License-Identifier: MIT
 *
 * clock.h: time, always CLOCK_MONOTONIC, and deadlines, which every wait in kolo has. Steps of the
 * wall clock change nothing.
 */
#ifndef KO_CLOCK_H
#define KO_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Nanoseconds since some fixed moment of this boot; one moment for all processes of the machine. */
int64_t ko_now_ns(void);

typedef struct ko_deadline {
    int64_t at_ns;      /* as ko_now_ns */
    int32_t timeout_ms; /* what it was made from, for messages */
    bool is_given;      /* that was a caller's, and not KOLO_TIMEOUT_MS */
} ko_deadline;

/* What sets the limit, for messages. */
static inline const char *ko_deadline_source(const ko_deadline *deadline)
{
    return deadline->is_given ? "the timeout_ms that was given" : "KOLO_TIMEOUT_MS";
}

/* timeout_ms from now; a negative one is taken as 0. */
ko_deadline ko_deadline_in(int timeout_ms);

bool ko_deadline_passed(const ko_deadline *deadline);

/* Milliseconds left, rounded up, 0 when passed: what poll and epoll_wait take. */
int ko_deadline_left_ms(const ko_deadline *deadline);

/* The same moment for pthread_cond_timedwait, on a condition with the monotonic clock. */
struct timespec ko_deadline_timespec(const ko_deadline *deadline);

/* The earlier of the deadline and timeout_ms from now. */
ko_deadline ko_deadline_within(const ko_deadline *deadline, int timeout_ms);

#endif
