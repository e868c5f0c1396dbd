/* SPDX-License-Identifier: MIT */
#include "failure.h"

#include "kolo.h"

#include <stdarg.h>
#include <stdio.h>

static char first[1024];

int train_note(const char *sentence)
{
    if (!*first)
        snprintf(first, sizeof first, "%s", sentence);
    return TRAIN_FAILED;
}

/* One write per sentence, so that those of several ranks do not mix. */
int train_fail(const char *format, ...)
{
    char text[sizeof first];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "kolo-train: %s\n", text);
    return train_note(text);
}

const char *train_failure(void)
{
    return first;
}

int train_check(int status, const char *what)
{
    if (status == KOLO_OK)
        return TRAIN_OK;
    return train_fail("%s: %s: %s", what, kolo_status_name(status), kolo_last_error());
}
