/* SPDX-License-Identifier: MIT
 *
 * Each function is asked for by name, which gives the default version of it; those have not changed
 * since rdma-core 33, whose _ibv_query_gid_ex is the newest of them.
 */
#include "ib_driver.h"

#include "config.h"
#include "status.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

static struct {
    pthread_once_t once;
    struct ko_ib functions;
    int status;
    char why[KO_ERROR_TEXT]; /* of a status that is not KOLO_OK */
} driver = {.once = PTHREAD_ONCE_INIT};

static int find_functions(void *library, struct ko_ib *ib)
{
    static const char *const names[] = {
#define ROW(member, name, result, parameters) #name,
        KO_IB_LIST(ROW)
#undef ROW
    };
    void **const functions = (void **)ib; /* the struct is made of pointers, in the same order */

    _Static_assert(sizeof *ib == sizeof names, "pointers alone");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        functions[i] = dlsym(library, names[i]);
        if (!functions[i])
            return ko_fail(KOLO_E_UNSUPPORTED,
                           "libibverbs.so.1 has no %s; it is older than rdma-core 33", names[i]);
    }
    return KOLO_OK;
}

static int open_driver(struct ko_ib *ib)
{
    int64_t is_wanted;
    void *library;
    int err = ko_config_number(KO_CONFIG_IB, &is_wanted);

    if (err)
        return err;
    if (!is_wanted)
        return ko_fail(KOLO_E_UNSUPPORTED, "KOLO_IB is 0");
    library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return ko_fail(KOLO_E_UNSUPPORTED, "there is no libibverbs (package libibverbs1): %s",
                       dlerror());
    err = find_functions(library, ib);
    /* A child of fork shall not take registered pages from its parent. Where the kernel copies them
     * for the child the library does nothing. */
    if (!err)
        (void)ib->fork_init();
    return err;
}

static void open_once(void)
{
    driver.status = open_driver(&driver.functions);
    snprintf(driver.why, sizeof driver.why, "%s", driver.status ? kolo_last_error() : "");
}

int ko_ib_open(const struct ko_ib **ib)
{
    pthread_once(&driver.once, open_once);
    if (driver.status)
        return ko_fail_again(driver.status, driver.why);
    *ib = &driver.functions;
    return KOLO_OK;
}

const char *ko_ib_status_name(int status)
{
    static const char *const names[] = {
#define NAME(name) #name,
        KO_IB_STATUS_LIST(NAME)
#undef NAME
    };

    return status >= 0 && status < KO_IB_NSTATUS ? names[status] : "of no known name";
}

const char *ko_ib_status_cause(int status)
{
    switch (status) {
    case KO_IB_WC_RETRY_EXC_ERR:
        return "nothing came back: the GIDs do not reach each other (KOLO_IB_GID_INDEX; both must "
               "be of one kind and subnet), a link or switch is down, the fabric drops packets "
               "(KOLO_IB_TC), or the other process is gone";
    case KO_IB_WC_RNR_RETRY_EXC_ERR:
        return "the other end had no buffer ready; that is kolo's to prevent, please report it";
    case KO_IB_WC_REM_ACCESS_ERR:
        return "the other end does not let this memory be written; it has taken it back, or the "
               "two ends are not of one version";
    case KO_IB_WC_WR_FLUSH_ERR:
        return "the queue pair had failed before; see what was said first";
    case KO_IB_WC_LOC_PROT_ERR:
    case KO_IB_WC_LOC_ACCESS_ERR:
        return "memory was unmapped while it was being sent or received";
    case KO_IB_WC_REM_OP_ERR:
    case KO_IB_WC_REM_ABORT_ERR:
    case KO_IB_WC_REM_INV_REQ_ERR:
        return "the other end's adapter refused; its log (dmesg) may say why";
    case KO_IB_WC_LOC_LEN_ERR:
    case KO_IB_WC_LOC_QP_OP_ERR:
        return "the adapter did not take a request of kolo's; please report it";
    case KO_IB_WC_FATAL_ERR:
    case KO_IB_WC_GENERAL_ERR:
        return "the adapter or its driver has failed; see dmesg";
    default:
        return "see dmesg of both hosts";
    }
}
