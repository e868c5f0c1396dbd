/* SPDX-License-Identifier: MIT
 *
 * Each function is asked for by name, which gives the default version of it; those have not changed
 * since rdma-core 33, whose _ibv_query_gid_ex is the newest of them.
 */
#include "ib_driver.h"

#include "config.h"
#include "once.h"
#include "status.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#define ROW(member, name, result, parameters) #name,
static const char *const ib_names[] = {KO_IB_LIST(ROW) KO_IB_OPTIONAL_LIST(ROW)};
static const char *const cm_names[] = {KO_IB_CM_LIST(ROW)};
#undef ROW

#define ONE(member, name, result, parameters) +1
enum { IB_NEEDED = KO_IB_LIST(ONE), CM_NEEDED = KO_IB_CM_LIST(ONE) }; /* the first of the names */
#undef ONE

static struct {
    struct ko_once once;
    struct ko_ib functions;
} driver = {.once.first = PTHREAD_ONCE_INIT};

static struct {
    struct ko_once once;
    struct ko_ib_cm functions;
} cm = {.once.first = PTHREAD_ONCE_INIT};

/* The tables are made of pointers, in the order of the names. */
_Static_assert(sizeof driver.functions == sizeof ib_names, "pointers alone");
_Static_assert(sizeof cm.functions == sizeof cm_names, "pointers alone");

/* Finds the first `needed` of n, and what there is of the others. */
static int find_functions(const char *file, const char *const *list, size_t n, size_t needed,
                          void **functions)
{
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);

    if (!library)
        return ko_fail(KOLO_E_UNSUPPORTED, "there is no %.*s (package %.*s1): %s",
                       (int)strcspn(file, "."), file, (int)strcspn(file, "."), file, dlerror());
    for (size_t i = 0; i < n; i++) {
        functions[i] = dlsym(library, list[i]);
        if (!functions[i] && i < needed)
            return ko_fail(KOLO_E_UNSUPPORTED, "%s has no %s; it is older than rdma-core 33", file,
                           list[i]);
    }
    return KOLO_OK;
}

static int open_driver(void)
{
    struct ko_ib *const ib = &driver.functions;
    int64_t is_wanted;
    int err = ko_config_number(KO_CONFIG_IB, &is_wanted);

    if (err)
        return err;
    if (!is_wanted)
        return ko_fail(KOLO_E_UNSUPPORTED, "KOLO_IB is 0");
    err = find_functions("libibverbs.so.1", ib_names, sizeof ib_names / sizeof *ib_names, IB_NEEDED,
                         (void **)ib);
    /* A child of fork shall not take registered pages from its parent. Where the kernel copies them
     * for the child the library does nothing. */
    if (!err)
        (void)ib->fork_init();
    return err;
}

int ko_ib_open(const struct ko_ib **ib)
{
    int err = ko_once(&driver.once, open_driver);

    if (!err)
        *ib = &driver.functions;
    return err;
}

static int open_cm(void)
{
    return find_functions("librdmacm.so.1", cm_names, sizeof cm_names / sizeof *cm_names, CM_NEEDED,
                          (void **)&cm.functions);
}

int ko_ib_cm_open(const struct ko_ib_cm **functions)
{
    int err = ko_once(&cm.once, open_cm);

    if (!err)
        *functions = &cm.functions;
    return err;
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

int ko_ib_check_dmabuf(const struct ko_ib *ib)
{
    return ib->reg_dmabuf ? KOLO_OK
                          : ko_fail(KOLO_E_UNSUPPORTED, "libibverbs.so.1 has no ibv_reg_dmabuf_mr; "
                                                        "it is older than rdma-core 34");
}

int ko_ib_fail_dmabuf(const char *name, size_t nbytes, int error)
{
    if (error == EOPNOTSUPP || error == EPROTONOSUPPORT || error == ENOSYS)
        return ko_fail(KOLO_E_UNSUPPORTED,
                       "the driver of %s, or this Linux, cannot register dma-bufs (%s)", name,
                       strerror(error));
    return ko_fail(KOLO_E_SYSTEM, "a dma-buf of %zu bytes cannot be registered with %s: %s%s",
                   nbytes, name, strerror(error),
                   error == ENOMEM ? " (the part of the GPU's memory that other devices can see, "
                                     "BAR1, may be too small)"
                                   : "");
}

const char *ko_ib_status_cause(int status)
{
    switch (status) {
    case KO_IB_WC_RETRY_EXC_ERR:
        return "nothing came back: the GIDs do not reach each other (KOLO_IB_GID_INDEX, "
               "KOLO_IB_HCA), a link is down, packets are dropped (KOLO_IB_TC), or the other "
               "process is gone";
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
    case KO_IB_WC_LOC_QP_OP_ERR:
        return "the adapter could not carry out a request: its port or network device may be down "
               "or gone (rdma link, dmesg), or over iWARP the other end; else please report it";
    case KO_IB_WC_LOC_LEN_ERR:
        return "the adapter did not take a request of kolo's; please report it";
    case KO_IB_WC_FATAL_ERR:
    case KO_IB_WC_GENERAL_ERR:
        return "the adapter or its driver has failed; see dmesg";
    default:
        return "see dmesg of both hosts";
    }
}
