/* SPDX-License-Identifier: MIT
 *
 * One text per thread, fixed in size, so that failing needs no memory.
 */
#include "status.h"

#include "fault.h"
#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Here they are defined; status.h's macros are for those who call them. */
#undef ko_fail
#undef ko_fail_errno

static _Thread_local char error_text[KO_ERROR_TEXT];

const char *kolo_version(void)
{
#define TEXT_OF(x) #x
#define VERSION_TEXT(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)
    return VERSION_TEXT(KOLO_VERSION_MAJOR, KOLO_VERSION_MINOR, KOLO_VERSION_PATCH);
}

const char *kolo_status_name(int status)
{
    static const char *const names[] = {
        [KOLO_OK] = "KOLO_OK",
        [KOLO_E_INVALID] = "KOLO_E_INVALID",
        [KOLO_E_NOMEM] = "KOLO_E_NOMEM",
        [KOLO_E_SYSTEM] = "KOLO_E_SYSTEM",
        [KOLO_E_TIMEOUT] = "KOLO_E_TIMEOUT",
        [KOLO_E_PEER_LOST] = "KOLO_E_PEER_LOST",
        [KOLO_E_ABORTED] = "KOLO_E_ABORTED",
        [KOLO_E_MISMATCH] = "KOLO_E_MISMATCH",
        [KOLO_E_UNSUPPORTED] = "KOLO_E_UNSUPPORTED",
        [KOLO_E_PROTOCOL] = "KOLO_E_PROTOCOL",
        [KOLO_E_TRUNCATED] = "KOLO_E_TRUNCATED",
        [KOLO_E_INTERNAL] = "KOLO_E_INTERNAL",
    };
    if (status < 0 || (size_t)status >= sizeof names / sizeof *names)
        return "unknown";
    return names[status];
}

const char *kolo_last_error(void)
{
    return error_text;
}

void kolo_free(void *memory)
{
    free(memory);
}

int ko_fail(int status, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(error_text, sizeof error_text, format, arguments);
    va_end(arguments);
    ko_log(KO_LOG_INFO, "%s: %s", kolo_status_name(status), error_text);
    return status;
}

/* The one that a user meets by no fault of anybody's says what sets it; that which only a fault
 * outside of kolo brings, where to look. */
static const char *reason_of(int error, char *text, size_t cap)
{
    const char *reason = strerror_r(error, text, cap);
    struct rlimit limit;

    if (error == EBADF)
        return "Bad file descriptor (has the program closed one of kolo's?)";
    if (error != EMFILE || getrlimit(RLIMIT_NOFILE, &limit))
        return reason;
    snprintf(text, cap, "Too many open files (the limit is %llu: ulimit -n)",
             (unsigned long long)limit.rlim_cur);
    return text;
}

int ko_fail_errno(int error, const char *format, ...)
{
    char text[KO_ERROR_TEXT - 64];
    char reason[64];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return ko_fail(error == ENOMEM ? KOLO_E_NOMEM : KOLO_E_SYSTEM, "%s: %s", text,
                   reason_of(error, reason, sizeof reason));
}

int ko_fail_again(int status, const char *text)
{
    if (text != error_text)
        snprintf(error_text, sizeof error_text, "%s", text);
    return status;
}

void ko_error_keep(char text[KO_ERROR_TEXT])
{
    memcpy(text, error_text, *error_text ? KO_ERROR_TEXT : 1);
}

static void *allocated(void *memory, size_t nbytes, const char *what)
{
    if (!memory)
        ko_fail(KOLO_E_NOMEM, "no memory for %s (%zu bytes)", what, nbytes);
    return memory;
}

void *ko_alloc(size_t nbytes, const char *what)
{
    return allocated(ko_fault(KO_FAULT_ALLOC) ? NULL : calloc(1, nbytes ? nbytes : 1), nbytes,
                     what);
}

void *ko_alloc_unset(size_t nbytes, const char *what)
{
    return allocated(ko_fault(KO_FAULT_ALLOC) ? NULL : malloc(nbytes ? nbytes : 1), nbytes, what);
}
