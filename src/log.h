/* SPDX-License-Identifier: MIT
 *
 * log.h: one line per event, to stderr or KOLO_DEBUG_FILE. The level is KOLO_DEBUG's. A line never
 * changes errno, is written by one write(), and may come from any thread.
 */
#ifndef KO_LOG_H
#define KO_LOG_H

#include <stdbool.h>

/* ERROR: the library cannot go on. WARN: the user should change something. INFO: what was decided,
 * and why (once each). DEBUG: each connection and group. TRACE: each call. */
enum ko_log_level {
    KO_LOG_NONE,
    KO_LOG_ERROR,
    KO_LOG_WARN,
    KO_LOG_INFO,
    KO_LOG_DEBUG,
    KO_LOG_TRACE
};

void ko_log(enum ko_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

bool ko_log_wants(enum ko_log_level level);

/* The rank that the calling thread's lines carry from now on; -1 for none. */
void ko_log_set_rank(int rank);

/* Until it is taken back the calling thread's lines of the level INFO are left out: of errors that
 * it means to have. */
void ko_log_hush(bool hush);

/* Reads KOLO_DEBUG and KOLO_DEBUG_FILE again; the first ko_log does it by itself. */
void ko_log_reopen(void);

/* KOLO_E_INVALID if KOLO_DEBUG is no level, or KOLO_DEBUG_FILE cannot be opened: logging goes on
 * without them, and says the same on stderr. */
int ko_log_check_level(void);
int ko_log_check_file(void);

#endif
