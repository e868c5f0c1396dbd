/* SPDX-License-Identifier: MIT
 *
 * ib_ports.h: the ports of this machine's RDMA adapters, which of them kolo would use, and why.
 */
#ifndef KO_IB_PORTS_H
#define KO_IB_PORTS_H

#include "ib_driver.h"

enum {
    KO_IB_PORTS_CAP = 32,
    KO_IB_GIDS_CAP = 16,
    KO_IB_NAME = 32,
    KO_IB_GID_TEXT = 48,
    KO_IB_CHOSEN_CAP = 4
};

struct ko_ib_gid_row {
    int index, type; /* KO_IB_GID_ */
    ko_ib_gid gid;
};

struct ko_ib_port {
    char device[KO_IB_NAME];
    int number;
    int transport, link_layer, state, mtu; /* mtu as the library counts: 5 is 4096 bytes */
    uint16_t lid;
    int gbps;
    int numa; /* node of the adapter; -1: unknown */
    int ngids;
    struct ko_ib_gid_row gids[KO_IB_GIDS_CAP]; /* those that are set; more are left out */
    int chosen_gid;                            /* in gids; -1: none can be used */
    bool has_pkey;                             /* an entry of KOLO_IB_PKEY's index */
    bool serves;
    int item;      /* which of KOLO_IB_HCA's names is its; else 0 */
    char why[128]; /* why it is chosen, or not */
};

struct ko_ib_ports {
    int count;
    int nchosen, chosen[KO_IB_CHOSEN_CAP]; /* in list, the best first */
    char unopened[160]; /* why an adapter cannot be opened, so that its ports are not listed: the
                           first such; "" if there is none */
    char unknown[KO_IB_NAME]; /* the first name in KOLO_IB_HCA that no port has; or "" */
    struct ko_ib_port list[KO_IB_PORTS_CAP];
};

/* Lists all ports and chooses among them: one, of several that are as good by this rank's number on
 * its host, or one for each item of KOLO_IB_HCA. host: the
 * numeric address on which tcp listens, NULL or "" if that is not known. A machine without any is
 * no error; KOLO_E_INVALID for a variable. */
int ko_ib_ports_read(const struct ko_ib *ib, const char *host, struct ko_ib_ports *ports);

/* True if the i-th of the list is chosen. */
bool ko_ib_port_is_chosen(const struct ko_ib_ports *ports, int i);

/* Opens the adapter of that name; KOLO_E_UNSUPPORTED, and why. */
int ko_ib_device_open(const struct ko_ib *ib, const char *name, struct ko_ib_context **context);

/* Whether that adapter can register GPU memory by dma-bufs; KOLO_E_UNSUPPORTED, and why. */
int ko_ib_device_check_dmabuf(const struct ko_ib *ib, const char *name);

/* "::ffff:10.0.0.2" */
void ko_ib_gid_text(const ko_ib_gid *gid, char text[KO_IB_GID_TEXT]);

/* The GID of a numeric address; false if it is none. */
bool ko_ib_gid_of_host(const char *host, ko_ib_gid *gid);

/* "RoCE v2" */
const char *ko_ib_gid_type_name(int type);

/* "InfiniBand", "RoCE" or "iWARP" */
const char *ko_ib_port_kind(const struct ko_ib_port *port);

#endif
