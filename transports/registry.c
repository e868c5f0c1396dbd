/* SPDX-License-Identifier: MIT */
#include "transport.h"

#include <string.h>

const struct ko_transport *const ko_transports[] = {
    &ko_transport_self, /* a rank and itself */
    &ko_transport_shm,  /* ranks of one machine, network namespace and user */
    &ko_transport_rdma, /* hosts with adapters for it */
    &ko_transport_tcp,  /* anywhere else */
    NULL,
};

const struct ko_transport *ko_transport_find(const char *name)
{
    for (const struct ko_transport *const *row = ko_transports; *row; row++)
        if (!strcmp((*row)->name, name))
            return *row;
    return NULL;
}
