/* SPDX-License-Identifier: MIT
 *
 * ib_driver.h: libibverbs, opened at run time, so that one build runs with and without. Nothing of
 * it is touched before somebody asks.
 */
#ifndef KO_IB_DRIVER_H
#define KO_IB_DRIVER_H

#include "ib_abi.h"

#include <stdbool.h>

/* The library's functions, by the names of KO_IB_LIST. */
struct ko_ib {
#define KO_IB_MEMBER(member, name, result, parameters) result(*member) parameters;
    KO_IB_LIST(KO_IB_MEMBER)
#undef KO_IB_MEMBER
};

/* Opens the library at the first call, and keeps it to the end of the process: its providers do not
 * bear being closed. Any thread. KOLO_E_UNSUPPORTED says why there is none: no library, one that is
 * too old, KOLO_IB=0. */
int ko_ib_open(const struct ko_ib **ib);

/* "RETRY_EXC_ERR"; "status 77" is not known. */
const char *ko_ib_status_name(int status);

/* What most often lies behind a status, for an error's text; never NULL. */
const char *ko_ib_status_cause(int status);

#endif
