/* SPDX-License-Identifier: MIT
 *
 * What libibverbs says of each adapter's ports; which of them are taken is ib_choice.c's to say.
 */
#include "ib_choice.h"

#include "config.h"
#include "numa.h"
#include "status.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { MOST_PORTS_OF_ONE = 8 };

#define UNOPENED "the RDMA adapter %.31s cannot be opened: %.64s"

/* ---- words ------------------------------------------------------------------------------- */

void ko_ib_gid_text(const ko_ib_gid *gid, char text[KO_IB_GID_TEXT])
{
    inet_ntop(AF_INET6, gid->raw, text, KO_IB_GID_TEXT);
}

bool ko_ib_gid_of_host(const char *host, ko_ib_gid *gid)
{
    memset(gid, 0, sizeof *gid);
    if (host && inet_pton(AF_INET, host, gid->raw + 12) == 1) {
        gid->raw[10] = gid->raw[11] = 0xff;
        return true;
    }
    return host && inet_pton(AF_INET6, host, gid->raw) == 1;
}

const char *ko_ib_gid_type_name(int type)
{
    return type == KO_IB_GID_ROCE_V2 ? "RoCE v2" : type == KO_IB_GID_ROCE_V1 ? "RoCE v1" : "IB";
}

const char *ko_ib_port_kind(const struct ko_ib_port *port)
{
    return port->transport == KO_IB_TRANSPORT_IWARP    ? "iWARP"
           : port->link_layer == KO_IB_LINK_INFINIBAND ? "InfiniBand"
                                                       : "RoCE";
}

/* ---- wishes -------------------------------------------------------------------------------- */

static int read_wishes(struct ko_ib_wishes *wishes)
{
    int64_t gid, pkey;
    int err = ko_config_number(KO_CONFIG_IB_GID_INDEX, &gid);

    if (!err)
        err = ko_config_number(KO_CONFIG_IB_PKEY, &pkey);
    if (!err)
        *wishes = (struct ko_ib_wishes){.gid = (int)gid, .pkey = (int)pkey};
    return err;
}

/* ---- reading ------------------------------------------------------------------------------ */

/* Lanes and the speed of each, as the library counts them. */
static int gbps_of(int width, int speed)
{
    static const struct {
        int code, value;
    } lanes[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}},
      tenths[] = {{1, 25},   {2, 50},   {4, 100},  {8, 100},
                  {16, 140}, {32, 250}, {64, 500}, {128, 1000}};
    int n = 0, each = 0;

    for (size_t i = 0; i < sizeof lanes / sizeof *lanes; i++)
        n = lanes[i].code == width ? lanes[i].value : n;
    for (size_t i = 0; i < sizeof tenths / sizeof *tenths; i++)
        each = tenths[i].code == speed ? tenths[i].value : each;
    return n * each / 10;
}

static int numa_of(const char *device)
{
    char folder[96];

    snprintf(folder, sizeof folder, "/sys/class/infiniband/%.31s/device", device);
    return ko_numa_of_device(folder);
}

/* As far as queue pairs can be told of entries: by one byte. */
static void read_gids(const struct ko_ib *ib, struct ko_ib_context *context, int table,
                      struct ko_ib_port *port)
{
    static const ko_ib_gid none;
    struct ko_ib_gid_entry entry;

    for (int i = 0; i < table && i <= UINT8_MAX && port->ngids < KO_IB_GIDS_CAP; i++)
        if (!ib->query_gid(context, (uint32_t)port->number, (uint32_t)i, &entry, 0, sizeof entry) &&
            memcmp(&entry.gid, &none, sizeof none) != 0)
            port->gids[port->ngids++] = (struct ko_ib_gid_row){i, (int)entry.gid_type, entry.gid};
}

/* The first entry is always there; iWARP has none. */
static bool has_pkey(const struct ko_ib *ib, struct ko_ib_context *context, int number, int wish)
{
    uint16_t pkey;

    return !wish || context->device->transport_type == KO_IB_TRANSPORT_IWARP ||
           (!ib->query_pkey(context, (uint8_t)number, wish, &pkey) && pkey);
}

/* False if there is no port of this number. */
static bool read_port(const struct ko_ib *ib, struct ko_ib_context *context, const char *device,
                      const struct ko_ib_wishes *wishes, struct ko_ib_port *port)
{
    struct ko_ib_port_attr attr;

    memset(&attr, 0, sizeof attr);
    if (ib->query_port(context, (uint8_t)port->number, &attr))
        return false;
    snprintf(port->device, sizeof port->device, "%s", device);
    port->transport = context->device->transport_type;
    port->link_layer = attr.link_layer;
    port->state = attr.state;
    port->mtu = attr.active_mtu;
    port->lid = attr.lid;
    port->gbps = gbps_of(attr.active_width, attr.active_speed);
    port->numa = numa_of(device);
    port->chosen_gid = -1;
    port->has_pkey = has_pkey(ib, context, port->number, wishes->pkey);
    read_gids(ib, context, attr.gid_tbl_len, port);
    return true;
}

static void read_device(const struct ko_ib *ib, struct ko_ib_device *device,
                        const struct ko_ib_wishes *wishes, struct ko_ib_ports *ports)
{
    struct ko_ib_context *context = ib->open_device(device);

    if (!context && !*ports->unopened)
        snprintf(ports->unopened, sizeof ports->unopened, UNOPENED, ib->device_name(device),
                 strerror(errno));
    for (int i = 1; context && i <= MOST_PORTS_OF_ONE && ports->count < KO_IB_PORTS_CAP; i++) {
        struct ko_ib_port *port = &ports->list[ports->count];

        *port = (struct ko_ib_port){.number = i};
        if (!read_port(ib, context, ib->device_name(device), wishes, port))
            break;
        ports->count++;
    }
    if (context)
        (void)ib->close_device(context);
}

/* ---- all ---------------------------------------------------------------------------------- */

bool ko_ib_port_is_chosen(const struct ko_ib_ports *ports, int i)
{
    for (int k = 0; k < ports->nchosen; k++)
        if (ports->chosen[k] == i)
            return true;
    return false;
}

int ko_ib_ports_read(const struct ko_ib *ib, const char *host, struct ko_ib_ports *ports)
{
    struct ko_ib_device **devices;
    struct ko_ib_wishes wishes;
    int n = 0;
    int err = read_wishes(&wishes);

    if (err)
        return err;
    memset(ports, 0, sizeof *ports);
    devices = ib->get_devices(&n); /* NULL: the kernel has no such drivers */
    for (int i = 0; devices && i < n; i++)
        read_device(ib, devices[i], &wishes, ports);
    if (devices)
        ib->free_devices(devices);
    ko_ib_choose(ports, &wishes, host);
    return KOLO_OK;
}

int ko_ib_device_open(const struct ko_ib *ib, const char *name, struct ko_ib_context **context)
{
    int n = 0;
    struct ko_ib_device **devices = ib->get_devices(&n);

    *context = NULL;
    errno = ENODEV;
    for (int i = 0; devices && i < n && !*context; i++)
        if (!strcmp(ib->device_name(devices[i]), name))
            *context = ib->open_device(devices[i]);
    if (!*context)
        n = ko_fail(KOLO_E_UNSUPPORTED, UNOPENED, name, strerror(errno));
    else
        n = KOLO_OK;
    if (devices)
        ib->free_devices(devices);
    return n;
}

/* A descriptor that is none is what stops whoever could register it. */
static int try_dmabuf(const struct ko_ib *ib, const char *name, struct ko_ib_context *context)
{
    struct ko_ib_pd *pd = ib->alloc_pd(context);
    struct ko_ib_mr *mr;
    int error;

    if (!pd)
        return ko_fail_errno(errno, "a protection domain of %s", name);
    mr = ib->reg_dmabuf(pd, 0, 1, 0, -1, KO_IB_LOCAL_WRITE);
    error = mr ? 0 : errno;
    if (mr)
        (void)ib->dereg_mr(mr);
    (void)ib->free_pd(pd);
    return error && error != EBADF && error != EINVAL ? ko_ib_fail_dmabuf(name, 1, error) : KOLO_OK;
}

int ko_ib_device_check_dmabuf(const struct ko_ib *ib, const char *name)
{
    struct ko_ib_context *context;
    int err = ko_ib_check_dmabuf(ib);

    if (!err)
        err = ko_ib_device_open(ib, name, &context);
    if (err)
        return err;
    err = try_dmabuf(ib, name, context);
    (void)ib->close_device(context);
    return err;
}
