/* SPDX-License-Identifier: MIT
 *
 * The ports of RDMA adapters as a rank would choose among them.
 */
#include "info.h"

#include "ib_ports.h"
#include "kolo.h"
#include "status.h"

#include <stdlib.h>

static void print_port(FILE *file, const struct ko_ib_port *port, bool is_chosen)
{
    char gid[KO_IB_GID_TEXT];

    fprintf(file, "%c %s:%d  %s, link %s, %d Gb/s, packets of %d bytes", is_chosen ? '*' : ' ',
            port->device, port->number, ko_ib_port_kind(port),
            port->state == KO_IB_PORT_ACTIVE ? "active" : "down", port->gbps, 128 << port->mtu);
    if (port->numa >= 0)
        fprintf(file, ", NUMA node %d", port->numa);
    if (port->link_layer == KO_IB_LINK_INFINIBAND)
        fprintf(file, ", LID %u", port->lid);
    fprintf(file, "\n    %s: %s\n", is_chosen ? "chosen" : "not chosen", port->why);
    for (int i = 0; i < port->ngids; i++) {
        ko_ib_gid_text(&port->gids[i].gid, gid);
        fprintf(file, "    %c GID %-3d %-8s %s\n", i == port->chosen_gid ? '*' : ' ',
                port->gids[i].index, ko_ib_gid_type_name(port->gids[i].type), gid);
    }
}

bool ko_rdma_print(FILE *file)
{
    struct ko_ib_ports *ports = ko_alloc(sizeof *ports, "a list of ports");
    const char *host = ko_config_text(KO_CONFIG_IFADDR);
    const struct ko_ib *ib;
    bool has_one;

    if (!ports || ko_ib_open(&ib) || ko_ib_ports_read(ib, host, ports)) {
        fprintf(file, "no RDMA: %s\n", kolo_last_error());
        free(ports);
        return false;
    }
    has_one = ports->chosen >= 0;
    if (!ports->count)
        fputs("no RDMA: this machine has no adapter that libibverbs knows (are its kernel modules "
              "loaded?)\n",
              file);
    else
        fputs("ports of RDMA adapters (* the one that rdma takes, and its GID; KOLO_IB_HCA and "
              "KOLO_IB_GID_INDEX choose others)\n",
              file);
    for (int i = 0; i < ports->count; i++)
        print_port(file, &ports->list[i], i == ports->chosen);
    free(ports);
    return has_one;
}
