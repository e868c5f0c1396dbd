/* SPDX-License-Identifier: MIT */
#include "error_file.h"

#include "status.h"
#include "utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Nobody else's file has it. */
static const char sign[] = "\"by\": \"kolo\"";

/* As a string of JSON, without its quotes, U+FFFD in place of each byte that is not UTF-8; cut at
 * cap, between characters. */
static void escape(const char *text, char *json, size_t cap)
{
    size_t used = 0;
    int length;

    for (; *text && used + 8 < cap; text += length ? length : 1) {
        const unsigned char c = (unsigned char)*text;

        length = ko_utf8_length(text);
        if (length == 0)
            used += (size_t)snprintf(json + used, cap - used, "\\ufffd");
        else if (c < ' ' || c == 0x7f)
            used += (size_t)snprintf(json + used, cap - used, "\\u%04x", c);
        else if (c == '"' || c == '\\')
            used += (size_t)snprintf(json + used, cap - used, "\\%c", c);
        else
            used += (size_t)snprintf(json + used, cap - used, "%.*s", length, text);
    }
    json[used] = 0;
}

void ko_error_file_write(const char *text)
{
    const char *path = getenv("TORCHELASTIC_ERROR_FILE");
    char message[2 * KO_ERROR_TEXT], json[4 * KO_ERROR_TEXT + 200];
    int error = errno;
    int fd = path && *path ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666) : -1;
    int length;

    if (fd >= 0) {
        escape(text, message, sizeof message);
        /* torchrun shows the callstack, kolorun the message */
        length = snprintf(json, sizeof json,
                          "{\"message\": {\"message\": \"%s\", \"extraInfo\": "
                          "{\"timestamp\": \"%lld\", %s, \"py_callstack\": \"%s\"}}}\n",
                          message, (long long)time(NULL), sign, message);
        if (write(fd, json, (size_t)length) != length)
            unlink(path); /* half of it would only confuse */
        close(fd);
    }
    errno = error;
}

/* Whether the sign stands in it, outside of a text, where its quotes have backslashes. A pipe, or a
 * terminal as /dev/stderr may be, is not waited for. */
static bool is_own(const char *path)
{
    char json[4 * KO_ERROR_TEXT + 200];
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat status;
    bool is_file = fd >= 0 && !fstat(fd, &status) && S_ISREG(status.st_mode);
    ssize_t length = is_file ? read(fd, json, sizeof json - 1) : 0;

    if (fd >= 0)
        close(fd);
    json[length > 0 ? length : 0] = 0;
    return strstr(json, sign);
}

void ko_error_file_take_back(void)
{
    const char *path = getenv("TORCHELASTIC_ERROR_FILE");
    int error = errno;

    if (path && *path && is_own(path))
        unlink(path);
    errno = error;
}
