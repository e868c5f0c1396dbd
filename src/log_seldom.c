/* SPDX-License-Identifier: MIT */
#include "log_seldom.h"

#include "clock.h"
#include "log.h"
#include "status.h"

#include <stdarg.h>
#include <stdio.h>

enum { QUIET_MS = 10000 };

void ko_log_seldom(struct ko_seldom *seldom, const char *format, ...)
{
    const int64_t now_ns = ko_now_ns();
    char text[KO_ERROR_TEXT + 200], others[96] = "";
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (now_ns < seldom->quiet_until_ns) {
        seldom->nunsaid++;
        ko_log(KO_LOG_DEBUG, "%s", text);
        return;
    }
    if (seldom->nunsaid)
        snprintf(others, sizeof others, " (as were %llu others, which KOLO_DEBUG=DEBUG names)",
                 (unsigned long long)seldom->nunsaid);
    ko_log(KO_LOG_WARN, "%s%s", text, others);
    seldom->quiet_until_ns = now_ns + QUIET_MS * INT64_C(1000000);
    seldom->nunsaid = 0;
}
