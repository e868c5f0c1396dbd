/* SPDX-License-Identifier: MIT
 *
 * log_seldom.h: warnings that others can cause as often as they like, such as of strangers who are
 * turned away: one in ten seconds, with the number of those that it stands for. One thread at a
 * time.
 */
#ifndef KO_LOG_SELDOM_H
#define KO_LOG_SELDOM_H

#include <stdint.h>

/* Of one kind of warning; begins as zeros. */
struct ko_seldom {
    int64_t quiet_until_ns;
    uint64_t nunsaid; /* since the last one */
};

/* Warns; soon after a warning says it at the level DEBUG instead. */
void ko_log_seldom(struct ko_seldom *seldom, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
