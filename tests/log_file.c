/* SPDX-License-Identifier: MIT */
#include "log_file.h"

#include "log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[32];

void log_file_open(const char *level)
{
    int fd;

    snprintf(path, sizeof path, "/tmp/test-log-XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    setenv("KOLO_DEBUG", level, 1);
    setenv("KOLO_DEBUG_FILE", path, 1);
    ko_log_reopen();
}

int log_file_close(const char *text, char line[LOG_LINE])
{
    FILE *log = fopen(path, "r");
    char next[LOG_LINE];
    int n = 0;

    unsetenv("KOLO_DEBUG");
    unsetenv("KOLO_DEBUG_FILE");
    ko_log_reopen();
    assert_non_null(log);
    unlink(path);
    *line = '\0';
    while (fgets(next, sizeof next, log))
        if (strstr(next, text) && !n++)
            memcpy(line, next, sizeof next);
    fclose(log);
    return n;
}
