/* SPDX-License-Identifier: MIT
 *
 * ib_driver.h: libibverbs, opened at run time, so that one build runs with and without. Nothing of
 * it is touched before somebody asks.
 */
#ifndef KO_IB_DRIVER_H
#define KO_IB_DRIVER_H

#include "ib_abi.h"
#include "ib_abi_cm.h"

#include <stdbool.h>

/* The library's functions, by the names of KO_IB_LIST; those of KO_IB_OPTIONAL_LIST, which come
 * last, may be NULL. */
#define KO_IB_MEMBER(member, name, result, parameters) result(*member) parameters;
struct ko_ib {
    KO_IB_LIST(KO_IB_MEMBER) KO_IB_OPTIONAL_LIST(KO_IB_MEMBER)
};

/* Those of librdmacm. */
struct ko_ib_cm {
    KO_IB_CM_LIST(KO_IB_MEMBER)
};
#undef KO_IB_MEMBER

/* Opens the library at the first call, and keeps it to the end of the process: its providers do not
 * bear being closed. Any thread. KOLO_E_UNSUPPORTED says why there is none: no library, one that is
 * too old, KOLO_IB=0. */
int ko_ib_open(const struct ko_ib **ib);

/* Likewise librdmacm, which is needed for iWARP alone. */
int ko_ib_cm_open(const struct ko_ib_cm **cm);

/* "RETRY_EXC_ERR"; "status 77" is not known. */
const char *ko_ib_status_name(int status);

/* KOLO_E_UNSUPPORTED, and why, if the library cannot register dma-bufs. */
int ko_ib_check_dmabuf(const struct ko_ib *ib);

/* The failure to register one, of nbytes, with the adapter of that name, by its errno. */
int ko_ib_fail_dmabuf(const char *name, size_t nbytes, int error);

/* What most often lies behind a status, for an error's text; never NULL. */
const char *ko_ib_status_cause(int status);

#endif
