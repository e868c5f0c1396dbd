/* SPDX-License-Identifier: MIT
 *
 * sanitized.h: whether this is a build for AddressSanitizer or ThreadSanitizer, where everything
 * takes several times as long and memory is kept after it was freed. Tests that count bytes allow
 * more there, and those that go through many cases, all of which the plain build has, take fewer.
 * The same of a build whose programs run on an emulated machine (tests/arm/run).
 */
#ifndef SANITIZED_H
#define SANITIZED_H

/* ThreadSanitizer allows no threads in a child of a process that has some. */
#if defined(__SANITIZE_THREAD__)
enum { HAS_TSAN = 1 };
#else
enum { HAS_TSAN = 0 };
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { IS_SANITIZED = 1 };
#else
enum { IS_SANITIZED = 0 };
#endif

#ifdef EMULATED
enum { IS_EMULATED = 1 };
#else
enum { IS_EMULATED = 0 };
#endif

/* Begins a case of ranks that are processes, if one of threads makes the same calls:
 * ThreadSanitizer looks at one process at a time, and sees no more there. */
#define SKIP_PROCESSES_UNDER_TSAN() \
    do {                            \
        if (HAS_TSAN)               \
            skip();                 \
    } while (0)

#endif
