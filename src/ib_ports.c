/* SPDX-License-Identifier: MIT
 *
 * A port serves if the variables allow it, its link is up and it has a GID. Of those the nearest to
 * the GPU that this thread uses, or else to the processor on which it runs, is taken, then the
 * fastest, then the first. Where KOLO_IB_HCA names several adapters, each gives its best port, in
 * the same order.
 */
#include "ib_ports.h"

#include "config.h"
#include "cuda_driver.h"
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

/* Indices in a port's tables. */
struct wishes {
    int gid, pkey; /* gid -1: none */
};

static int read_wishes(struct wishes *wishes)
{
    int64_t gid, pkey;
    int err = ko_config_number(KO_CONFIG_IB_GID_INDEX, &gid);

    if (!err)
        err = ko_config_number(KO_CONFIG_IB_PKEY, &pkey);
    if (!err)
        *wishes = (struct wishes){.gid = (int)gid, .pkey = (int)pkey};
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

static void read_gids(const struct ko_ib *ib, struct ko_ib_context *context, int table,
                      struct ko_ib_port *port)
{
    static const ko_ib_gid none;
    struct ko_ib_gid_entry entry;

    for (int i = 0; i < table && port->ngids < KO_IB_GIDS_CAP; i++)
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
                      const struct wishes *wishes, struct ko_ib_port *port)
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
                        const struct wishes *wishes, struct ko_ib_ports *ports)
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

/* ---- choosing ----------------------------------------------------------------------------- */

/* Whether "mlx5_0" or "mlx5_0:1", so long, is this port. */
static bool is_named(const struct ko_ib_port *port, const char *name, size_t length)
{
    char full[KO_IB_NAME + 8];

    snprintf(full, sizeof full, "%s:%d", port->device, port->number);
    return (length == strlen(port->device) && !strncmp(name, port->device, length)) ||
           (length == strlen(full) && !strncmp(name, full, length));
}

/* Which item of the list is this port; -1: none. */
static int place_in(const struct ko_ib_port *port, const char *list)
{
    for (int place = 0; *list; place++) {
        const size_t item = strcspn(list, ",");

        if (is_named(port, list, item))
            return place;
        list += item + (list[item] == ',');
    }
    return -1;
}

/* Finds a name in KOLO_IB_HCA that nothing here has. */
static void find_unknown(struct ko_ib_ports *ports)
{
    const char *list = ko_config_text(KO_CONFIG_IB_HCA);

    for (list += *list == '^'; *list && !*ports->unknown;) {
        const size_t item = strcspn(list, ",");
        bool is_known = !item;

        for (int i = 0; i < ports->count; i++)
            is_known |= is_named(&ports->list[i], list, item);
        if (!is_known)
            snprintf(ports->unknown, sizeof ports->unknown, "%.*s", (int)item, list);
        list += item + (list[item] == ',');
    }
}

/* Sets the port's item; false if it is not to be used. */
static bool is_allowed(struct ko_ib_port *port)
{
    const char *list = ko_config_text(KO_CONFIG_IB_HCA);
    int place = 0;

    if (*list == '^')
        place = place_in(port, list + 1) < 0 ? 0 : -1;
    else if (*list)
        place = place_in(port, list);
    port->item = place;
    return place >= 0;
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

/* How good a GID is: that of the address in use, then any other but the link's own. */
static int gid_rank(const struct ko_ib_port *port, const struct ko_ib_gid_row *row,
                    const ko_ib_gid *host)
{
    int rank = port->link_layer == KO_IB_LINK_ETHERNET && row->type == KO_IB_GID_ROCE_V2 ? 8 : 0;

    if (port->link_layer != KO_IB_LINK_ETHERNET)
        return 1; /* the first */
    if (host && !memcmp(host, &row->gid, sizeof *host))
        rank += 4;
    return rank + (row->gid.raw[0] == 0xfe ? 1 : 2);
}

static void choose_gid(struct ko_ib_port *port, int wish, const char *host)
{
    ko_ib_gid of_host;
    const bool has_host = ko_ib_gid_of_host(host, &of_host);
    int best = 0;

    for (int i = 0; i < port->ngids; i++) {
        const int rank = wish < 0 ? gid_rank(port, &port->gids[i], has_host ? &of_host : NULL)
                                  : port->gids[i].index == wish;

        if (rank > best) {
            best = rank;
            port->chosen_gid = i;
        }
    }
}

/* Queue pairs of iWARP are joined by librdmacm alone. */
static bool can_be_joined(const struct ko_ib_port *port)
{
    const struct ko_ib_cm *cm;

    return port->transport != KO_IB_TRANSPORT_IWARP || !ko_ib_cm_open(&cm);
}

/* Says why the port cannot serve; false if it cannot. */
static bool can_serve(struct ko_ib_port *port, const struct wishes *wishes)
{
    if (!is_allowed(port))
        snprintf(port->why, sizeof port->why, "KOLO_IB_HCA does not allow it");
    else if (port->state != KO_IB_PORT_ACTIVE)
        snprintf(port->why, sizeof port->why, "its link is not active");
    else if (port->chosen_gid < 0 && wishes->gid >= 0)
        snprintf(port->why, sizeof port->why, "it has no GID of index %d (KOLO_IB_GID_INDEX)",
                 wishes->gid);
    else if (port->chosen_gid < 0)
        snprintf(port->why, sizeof port->why, "it has no GID: give its network device an address");
    else if (!port->has_pkey)
        snprintf(port->why, sizeof port->why, "it has no partition key of index %d (KOLO_IB_PKEY)",
                 wishes->pkey);
    else if (!can_be_joined(port))
        snprintf(port->why, sizeof port->why, "%s", kolo_last_error());
    else
        return true;
    return false;
}

/* Whether the first of two that serve goes before the second. */
static bool is_better(const struct ko_ib_port *a, const struct ko_ib_port *b, int node)
{
    const bool a_near = node >= 0 && a->numa == node, b_near = node >= 0 && b->numa == node;

    if (a->transport != b->transport) /* iWARP is slower */
        return a->transport == KO_IB_TRANSPORT_IB;
    return a_near != b_near ? a_near : a->gbps > b->gbps;
}

/* Takes the place of a worse one of its item, or one behind those that are as good. */
static void enter(struct ko_ib_ports *ports, int i, int node)
{
    const struct ko_ib_port *port = &ports->list[i];
    int *chosen = ports->chosen, at = 0, end = 0;

    while (end < ports->nchosen && ports->list[chosen[end]].item != port->item)
        end++;
    if (end < ports->nchosen && !is_better(port, &ports->list[chosen[end]], node))
        return;
    while (at < end && !is_better(port, &ports->list[chosen[at]], node))
        at++;
    if (end == KO_IB_CHOSEN_CAP) {
        struct ko_ib_port *last = &ports->list[at == KO_IB_CHOSEN_CAP ? i : chosen[end - 1]];

        snprintf(last->why, sizeof last->why,
                 "KOLO_IB_HCA names more than %d, and others are better", KO_IB_CHOSEN_CAP);
    }
    if (at == KO_IB_CHOSEN_CAP)
        return;
    if (end == ports->nchosen && end < KO_IB_CHOSEN_CAP)
        ports->nchosen++;
    else if (end == KO_IB_CHOSEN_CAP)
        end--;
    memmove(chosen + at + 1, chosen + at, (size_t)(end - at) * sizeof *chosen);
    chosen[at] = i;
}

/* Queue pairs of iWARP, and those of another kind than the best port's, go with no others. */
static void drop_strangers(struct ko_ib_ports *ports)
{
    const struct ko_ib_port *best = &ports->list[ports->chosen[0]];
    int n = 1;

    for (int i = 1; i < ports->nchosen; i++) {
        struct ko_ib_port *port = &ports->list[ports->chosen[i]];

        if (best->transport == KO_IB_TRANSPORT_IB && port->transport == best->transport &&
            port->link_layer == best->link_layer)
            ports->chosen[n++] = ports->chosen[i];
        else
            snprintf(port->why, sizeof port->why,
                     "it does not go together with the best, which is %s", ko_ib_port_kind(best));
    }
    ports->nchosen = n;
}

static void choose(struct ko_ib_ports *ports, const struct wishes *wishes, const char *host)
{
    const int gpus = ko_cuda_numa_node(), node = gpus >= 0 ? gpus : ko_numa_of_thread();

    for (int i = 0; i < ports->count; i++) {
        struct ko_ib_port *port = &ports->list[i];

        choose_gid(port, wishes->gid, host);
        if (!can_serve(port, wishes))
            continue;
        snprintf(port->why, sizeof port->why, "another is as good or better");
        enter(ports, i, node);
    }
    if (ports->nchosen)
        drop_strangers(ports);
    for (int i = 0; i < ports->nchosen; i++) {
        struct ko_ib_port *port = &ports->list[ports->chosen[i]];

        snprintf(port->why, sizeof port->why, "active%s%s, GID %d",
                 port->numa < 0 || port->numa != node ? ""
                 : gpus >= 0                          ? ", on the GPU's NUMA node"
                                                      : ", on this NUMA node",
                 *ko_config_text(KO_CONFIG_IB_HCA) ? ", allowed by KOLO_IB_HCA" : "",
                 port->gids[port->chosen_gid].index);
    }
}

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
    struct wishes wishes;
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
    find_unknown(ports);
    choose(ports, &wishes, host);
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
