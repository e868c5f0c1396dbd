/* SPDX-License-Identifier: MIT
 *
 * Calls that wait for other processes are those with a callback, since the others know no deadline.
 */
#include "pmix.h"

#include "beside_mpi.h"
#include "pmi.h"
#include "status.h"
#include "thread.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    SUCCESS = KO_PMIX_SUCCESS,
    DONE_AT_ONCE = -157, /* there will be no callback */
    SCOPE_GLOBAL = 3
};

/* A call that is under way. Both sides hold it, since the callback may come when nobody waits any
 * more. */
struct call {
    pthread_mutex_t lock;
    pthread_cond_t has_ended;
    int holders;
    bool is_done;
    int status;
    char text[512];
};

/* A call by its name, what it waits for, and what it may mean that it fails. */
struct step {
    const char *name, *waits_for, *hint;
};

static const struct step init_step = {"PMIx_Init", NULL,
                                      "does the launcher that started this process still run?"};
static const struct step put_step = {"PMIx_Put", NULL, "does the launcher still run?"};
static const struct step fence_step = {
    "PMIx_Fence", "for all ranks to come; " KO_PMI_WHO,
    "a rank may have ended before it came, which the launcher says itself"};
static const struct step get_step = {
    "PMIx_Get",
    "for the address that rank 0 has left; KOLO_TIMEOUT_MS, or the "
    "timeout_ms of the join, sets the limit, and KOLO_MASTER=host:port of rank 0 does without",
    "rank 0 may have ended, which the launcher says itself"};

/* ---- the library ------------------------------------------------------------------------- */

int ko_pmix_load(struct ko_pmix *library)
{
    const struct {
        const char *name;
        void *function;
    } functions[] = {{"PMIx_Init", &library->init},
                     {"PMIx_Put", &library->put},
                     {"PMIx_Commit", &library->commit},
                     {"PMIx_Fence_nb", &library->fence},
                     {"PMIx_Get_nb", &library->get},
                     {"PMIx_Finalize", &library->finalize},
                     {"PMIx_Error_string", &library->error_string}};
    void *handle = dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

    if (!handle)
        return ko_fail(KOLO_E_UNSUPPORTED,
                       "this process was launched over PMIx, whose library is not here (%s): "
                       "install it, or set KOLO_MASTER to rank 0's host:port",
                       dlerror());
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *symbol = dlsym(handle, functions[i].name);

        if (!symbol)
            return ko_fail(KOLO_E_UNSUPPORTED, "libpmix.so.2 has no %s", functions[i].name);
        memcpy(functions[i].function, &symbol, sizeof symbol);
    }
    return KOLO_OK;
}

static int fail(const struct ko_pmix *library, const struct step *step, int status)
{
    return ko_fail(KOLO_E_SYSTEM, "%s failed: %s; %s", step->name, library->error_string(status),
                   step->hint);
}

/* ---- calls with a deadline --------------------------------------------------------------- */

static struct call *begin_call(void)
{
    struct call *call = ko_alloc(sizeof *call, "a call of PMIx");

    if (!call)
        return NULL;
    pthread_mutex_init(&call->lock, NULL);
    ko_condition_init(&call->has_ended);
    call->holders = 2;
    return call;
}

/* Unlocks. */
static void let_go(struct call *call, int nholders)
{
    bool is_last = (call->holders -= nholders) == 0;

    pthread_mutex_unlock(&call->lock);
    if (!is_last)
        return;
    pthread_cond_destroy(&call->has_ended);
    pthread_mutex_destroy(&call->lock);
    free(call);
}

static void end_call(int status, struct ko_pmix_value *value, void *opaque)
{
    struct call *call = opaque;

    pthread_mutex_lock(&call->lock);
    call->status = status;
    if (status == SUCCESS && value && value->type == KO_PMIX_STRING && value->data.string)
        snprintf(call->text, sizeof call->text, "%s", value->data.string);
    call->is_done = true;
    pthread_cond_signal(&call->has_ended);
    let_go(call, 1);
}

static void end_fence(int status, void *call)
{
    end_call(status, NULL, call);
}

/* started is what the function that began the call has returned. Gives the call up. */
static int await(const struct ko_pmix *library, const struct step *step, struct call *call,
                 int started, char *text, size_t cap, const ko_deadline *deadline)
{
    bool has_callback = started == SUCCESS;
    int status = started == DONE_AT_ONCE ? SUCCESS : started;
    const struct timespec until = ko_deadline_timespec(deadline);

    pthread_mutex_lock(&call->lock);
    while (has_callback && !call->is_done && !ko_deadline_passed(deadline))
        pthread_cond_timedwait(&call->has_ended, &call->lock, &until);
    if (has_callback && !call->is_done) {
        let_go(call, 1);
        return ko_fail(KOLO_E_TIMEOUT, "waited %d ms in %s %s", deadline->timeout_ms, step->name,
                       step->waits_for);
    }
    if (has_callback)
        status = call->status;
    if (text)
        snprintf(text, cap, "%s", call->text);
    let_go(call, has_callback ? 1 : 2);
    return status == SUCCESS ? KOLO_OK : fail(library, step, status);
}

static int wait_for_all(const struct ko_pmix *library, const ko_deadline *deadline)
{
    struct call *call = begin_call();

    if (!call)
        return KOLO_E_NOMEM;
    return await(library, &fence_step, call, library->fence(NULL, 0, NULL, 0, end_fence, call),
                 NULL, 0, deadline);
}

static int get(const struct ko_pmix *library, const struct ko_pmix_process *self, const char *key,
               char *text, size_t cap, const ko_deadline *deadline)
{
    struct ko_pmix_process of = *self;
    struct call *call = begin_call();
    int err;

    if (!call)
        return KOLO_E_NOMEM;
    of.rank = 0;
    err = await(library, &get_step, call, library->get(&of, key, NULL, 0, end_call, call), text,
                cap, deadline);
    if (!err && !*text)
        err = ko_fail(KOLO_E_PROTOCOL, "PMIx gave no text of rank 0");
    return err;
}

static int put(const struct ko_pmix *library, const char *key, char *text)
{
    struct ko_pmix_value value = {.type = KO_PMIX_STRING, .data.string = text};
    int status = library->put(SCOPE_GLOBAL, key, &value);

    if (status == SUCCESS)
        status = library->commit();
    return status == SUCCESS ? KOLO_OK : fail(library, &put_step, status);
}

static int (*kept_finalize)(const void *, size_t); /* NULL: nothing is to be done at the end */

static void finalize_kept(void)
{
    kept_finalize(NULL, 0);
}

/* The library counts its users. Open MPI cannot begin when the last has gone. */
static void finalize(const struct ko_pmix *library)
{
    if (ko_mpi_state() != KO_MPI_BEFORE || kept_finalize) {
        library->finalize(NULL, 0);
        return;
    }
    kept_finalize = library->finalize;
    ko_mpi_at_end(finalize_kept);
}

int ko_pmix_share(const struct ko_pmix *library, int rank, const char *key, char *text, size_t cap,
                  const ko_deadline *deadline)
{
    struct ko_pmix_process self;
    int status, err;

    if (ko_mpi_state() == KO_MPI_OVER) /* the library begins once more, but not well */
        return ko_fail(KOLO_E_INVALID, KO_PMI_MPI_OVER);
    status = library->init(&self, NULL, 0);
    err = status == SUCCESS ? KOLO_OK : fail(library, &init_step, status);

    if (err)
        return err;
    if (rank == 0)
        err = put(library, key, text);
    if (!err)
        err = wait_for_all(library, deadline);
    if (!err && rank != 0)
        err = get(library, &self, key, text, cap, deadline);
    if (err != KOLO_E_TIMEOUT) /* with a call under way it might never return */
        finalize(library);
    return err;
}
