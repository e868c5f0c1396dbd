/* SPDX-License-Identifier: MIT
 *
 * What every function of the double goes by first: whether it is held up, broken, or forbidden.
 */
#include "double.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- names ----------------------------------------------------------------------------------- */

static void check_name(const char *where, const char *name, size_t length)
{
    if (double_knows(name, length))
        return;
    fprintf(stderr, "%s: kolo uses no function %.*s of the driver\n", where, (int)length, name);
    abort();
}

static void check_broken(const char *name, size_t length)
{
    const char *equals = memchr(name, '=', length);

    check_name("FAKECUDA_BREAK", name, equals ? (size_t)(equals - name) : length);
    if (equals && atoi(equals + 1))
        return;
    fprintf(stderr, "FAKECUDA_BREAK: %.*s has no error, as in cuInit=100\n", (int)length, name);
    abort();
}

/* Of a list, what is between its commas. */
static const char *next_item(const char *item, size_t *length)
{
    item += *length;
    item += *item == ',';
    *length = strcspn(item, ",");
    return item;
}

void double_check_names(void)
{
    const char *broken = getenv("FAKECUDA_BREAK"), *missing = getenv("FAKECUDA_WITHOUT");
    size_t length = 0;

    while (broken && *(broken = next_item(broken, &length)))
        check_broken(broken, length);
    length = 0;
    while (missing && *(missing = next_item(missing, &length)))
        check_name("FAKECUDA_WITHOUT", missing, length);
}

/* ---- holding --------------------------------------------------------------------------------- */

static _Atomic(const char *) to_hold = "";
static atomic_int nheld;

void fakecuda_hold(const char *functions)
{
    size_t length = 0;

    for (const char *item = functions; *(item = next_item(item, &length));)
        if (strncmp(item, "transfers", length) != 0)
            check_name("fakecuda_hold", item, length);
    atomic_store(&to_hold, functions);
}

int fakecuda_held(void)
{
    return atomic_load(&nheld);
}

bool double_is_held(const char *name)
{
    return double_names(atomic_load(&to_hold), name);
}

static void stay_while_held(const char *function)
{
    const struct timespec nap = {.tv_nsec = 1000000};

    if (!double_is_held(function))
        return;
    atomic_fetch_add(&nheld, 1);
    while (double_is_held(function))
        nanosleep(&nap, NULL);
    atomic_fetch_sub(&nheld, 1);
}

/* ---- all of it ------------------------------------------------------------------------------- */

struct double_trait double_trait_of(const char *function)
{
    return (struct double_trait){
        /* what may have to wait for a stream that is captured */
        .is_unsafe = double_names("cuCtxEnablePeerAccess,cuMemAlloc,cuMemFree,cuMemHostRegister,"
                                  "cuMemHostUnregister,cuIpcGetMemHandle,cuIpcOpenMemHandle,"
                                  "cuIpcCloseMemHandle,cuLibraryLoadData,cuStreamCreate,"
                                  "cuStreamCreateWithPriority,cuStreamSynchronize,cuStreamQuery,"
                                  "cuEventQuery,cuEventSynchronize",
                                  function),
        .outlives = !strncmp(function, "cuDevice", 8) ||
                    double_names("cuInit,cuDriverGetVersion,cuGetErrorName,cuCtxGetCurrent,"
                                 "cuCtxPushCurrent,cuCtxPopCurrent,cuCtxGetDevice,"
                                 "cuThreadExchangeStreamCaptureMode",
                                 function),
        .is_end = double_names("cuStreamDestroy,cuEventDestroy,cuGraphDestroy,cuGraphExecDestroy,"
                               "cuMemRelease,cuLibraryUnload,cuStreamEndCapture",
                               function)};
}

static bool is_pure(const char *function)
{
    return double_names("cuInit,cuDriverGetVersion,cuGetErrorName", function);
}

/* 0: it is not broken. */
static int how_broken(const char *function)
{
    const char *item = getenv("FAKECUDA_BREAK");
    const size_t name = strlen(function);
    size_t length = 0;

    if (!item || !*item)
        return 0;
    double_check_names(); /* the variable may be new */
    while (*(item = next_item(item, &length)))
        if (!strncmp(item, function, name) && item[name] == '=')
            return atoi(item + name + 1);
    return 0;
}

ko_cu_result double_enter(const char *function, const struct double_trait *trait)
{
    int broken;

    stay_while_held(function);
    broken = how_broken(function);
    if (broken < 0)
        raise(-broken);
    if (broken)
        return broken;
    if (!is_pure(function) && !double_is_started())
        return KO_CU_NOT_INITIALIZED;
    if (!trait->outlives)
        double_await_entry();
    return trait->is_unsafe ? double_capture_forbids() : KO_CU_SUCCESS;
}
