/* SPDX-License-Identifier: MIT
 *
 * The ports of RDMA adapters as a rank would choose among them.
 */
#include "info.h"

#include "ib_ports.h"
#include "interface.h"
#include "json.h"
#include "kolo.h"
#include "status.h"
#include "transport.h"

#include <stdio.h>
#include <stdlib.h>

/* "", or why GPU memory cannot be registered with the port's adapter. */
static const char *why_no_dmabuf(const struct ko_ib *ib, const struct ko_ib_port *port)
{
    return ko_ib_device_check_dmabuf(ib, port->device) ? kolo_last_error() : "";
}

static void print_port(FILE *file, const struct ko_ib *ib, const struct ko_ib_port *port,
                       bool is_chosen)
{
    const char *why = why_no_dmabuf(ib, port);
    char gid[KO_IB_GID_TEXT];

    fprintf(file, "%c %s:%d  %s, link %s, %d Gb/s, packets of %d bytes", is_chosen ? '*' : ' ',
            port->device, port->number, ko_ib_port_kind(port),
            port->state == KO_IB_PORT_ACTIVE ? "active" : "down", port->gbps, 128 << port->mtu);
    if (port->numa >= 0)
        fprintf(file, ", NUMA node %d", port->numa);
    if (port->link_layer == KO_IB_LINK_INFINIBAND)
        fprintf(file, ", LID %u", port->lid);
    fprintf(file, "\n    %s: %s\n", is_chosen ? "chosen" : "not chosen", port->why);
    fprintf(file, "    GPU memory (dma-buf): %s\n", *why ? why : "can be registered");
    for (int i = 0; i < port->ngids; i++) {
        ko_ib_gid_text(&port->gids[i].gid, gid);
        fprintf(file, "    %c GID %-3d %-8s %s\n", i == port->chosen_gid ? '*' : ' ',
                port->gids[i].index, ko_ib_gid_type_name(port->gids[i].type), gid);
    }
}

static void print_text(FILE *file, const struct ko_ib *ib, const struct ko_ib_ports *ports,
                       const char *reason)
{
    if (*reason)
        fprintf(file, "no RDMA: %s\n", reason);
    else
        fputs("ports of RDMA adapters (* those that rdma takes, and their GIDs; KOLO_IB_HCA and "
              "KOLO_IB_GID_INDEX choose others)\n",
              file);
    if (*ports->unopened && ports->count)
        fprintf(file, "  %s\n", ports->unopened);
    if (*ports->unknown)
        fprintf(file, "  KOLO_IB_HCA names %s, and there is no RDMA adapter of that name\n",
                ports->unknown);
    for (int i = 0; i < ports->count; i++)
        print_port(file, ib, &ports->list[i], ko_ib_port_is_chosen(ports, i));
}

/* ---- JSON -------------------------------------------------------------------------------- */

static void print_member(FILE *file, const char *before, const char *name, const char *text)
{
    fprintf(file, "%s\"%s\": ", before, name);
    ko_json_string(file, text);
}

static void print_json_gid(FILE *file, const struct ko_ib_gid_row *row, const char *before,
                           bool is_chosen)
{
    char gid[KO_IB_GID_TEXT];

    ko_ib_gid_text(&row->gid, gid);
    fprintf(file, "%s\n      {\"index\": %d", before, row->index);
    print_member(file, ", ", "type", ko_ib_gid_type_name(row->type));
    print_member(file, ", ", "gid", gid);
    fprintf(file, ", \"chosen\": %s}", is_chosen ? "true" : "false");
}

static void print_json_port(FILE *file, const struct ko_ib *ib, const struct ko_ib_port *port,
                            const char *before, bool is_chosen)
{
    const char *why = why_no_dmabuf(ib, port);
    char numa[16] = "null";

    if (port->numa >= 0)
        snprintf(numa, sizeof numa, "%d", port->numa);
    fprintf(file, "%s\n    {", before);
    print_member(file, "", "device", port->device);
    print_member(file, ", ", "kind", ko_ib_port_kind(port));
    fprintf(file,
            ", \"port\": %d, \"active\": %s, \"gbps\": %d, \"packet_bytes\": %d, \"numa\": %s, "
            "\"lid\": %u, \"chosen\": %s",
            port->number, port->state == KO_IB_PORT_ACTIVE ? "true" : "false", port->gbps,
            128 << port->mtu, numa, port->lid, is_chosen ? "true" : "false");
    print_member(file, ", ", "reason", port->why);
    fprintf(file, ", \"dma_buf\": %s", *why ? "false" : "true");
    if (*why)
        print_member(file, ", ", "dma_buf_reason", why);
    fputs(", \"gids\": [", file);
    for (int i = 0; i < port->ngids; i++)
        print_json_gid(file, &port->gids[i], i ? "," : "", is_chosen && i == port->chosen_gid);
    fputs("]}", file);
}

static void print_json(FILE *file, const struct ko_ib *ib, const struct ko_ib_ports *ports,
                       const char *reason)
{
    fputs("{\n  \"reason\": ", file);
    if (*reason)
        ko_json_string(file, reason);
    else
        fputs("null", file);
    print_member(file, ",\n  ", "unopened", ports->unopened);
    print_member(file, ",\n  ", "unknown", ports->unknown);
    fputs(",\n  \"ports\": [", file);
    for (int i = 0; i < ports->count; i++)
        print_json_port(file, ib, &ports->list[i], i ? "," : "", ko_ib_port_is_chosen(ports, i));
    fputs("\n  ]\n}\n", file);
}

/* ---- both -------------------------------------------------------------------------------- */

/* Whether a rank could open what is chosen, at that address; else nothing is, and why. Without
 * KOLO_IFADDR the address is that of the way to the store, which nobody knows here. */
static bool can_be_opened(struct ko_ib_ports *ports, const char *host)
{
    struct ko_site site = {.listen_host = "127.0.0.1"};
    struct ko_device *device;

    if (!*host && ports->list[ports->chosen[0]].transport == KO_IB_TRANSPORT_IWARP)
        return true;
    if (*host)
        snprintf(site.listen_host, sizeof site.listen_host, "%.63s", host);
    if (!ko_transport_rdma.open(&site, &device)) {
        ko_transport_rdma.close(device);
        return true;
    }
    for (int i = 0; i < ports->nchosen; i++) {
        struct ko_ib_port *port = &ports->list[ports->chosen[i]];

        snprintf(port->why, sizeof port->why, "it would be, if RDMA could be used");
    }
    ports->nchosen = 0;
    return false;
}

static bool print_at(FILE *file, bool is_json, const char *host)
{
    static const char no_adapter[] = "this machine has no adapter that libibverbs knows (are its "
                                     "kernel modules loaded?)";
    static const struct ko_ib_ports none;
    struct ko_ib_ports *ports = ko_alloc(sizeof *ports, "a list of ports");
    const char *reason = "";
    const struct ko_ib *ib = NULL;
    const bool is_known = ports && !ko_ib_open(&ib) && !ko_ib_ports_read(ib, host, ports);
    const struct ko_ib_ports *list = is_known ? ports : &none;
    const bool is_served = is_known && ports->nchosen > 0;
    const bool has_one = is_served && can_be_opened(ports, host);
    char why[KO_ERROR_TEXT];

    if (!is_known || is_served != has_one) {
        snprintf(why, sizeof why, "%s", kolo_last_error()); /* what is tried later may fail, too */
        reason = why;
    } else if (!ports->count) {
        reason = *ports->unopened ? ports->unopened : no_adapter;
    }
    if (is_json)
        print_json(file, ib, list, reason);
    else
        print_text(file, ib, list, reason);
    free(ports);
    return has_one;
}

bool ko_rdma_print(FILE *file, bool is_json)
{
    char host[KO_INTERFACE_TEXT];

    (void)ko_interface_wanted(host, sizeof host);
    return print_at(file, is_json, host);
}
