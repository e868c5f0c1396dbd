/* SPDX-License-Identifier: MIT
 *
 * A port serves if the variables allow it, its link is up and it has a GID. Of those the nearest to
 * the GPU that this thread uses, or else to the processor on which it runs, is taken, then the
 * fastest; those that are as good are dealt to a host's ranks, if all reach each other, else the
 * first is taken. Where KOLO_IB_HCA names several adapters, each gives its best port, in the same
 * order.
 */
#include "ib_choice.h"

#include "config.h"
#include "cuda_driver.h"
#include "launcher.h"
#include "numa.h"
#include "status.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- names -------------------------------------------------------------------------------- */

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
static bool can_serve(struct ko_ib_port *port, const struct ko_ib_wishes *wishes)
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

/* ---- dealing ------------------------------------------------------------------------------ */

/* Whether what can be reached from one can be from the other, as far as addresses tell: a subnet of
 * InfiniBand, or of RoCE a network of usual size. */
static bool is_in_subnet(const struct ko_ib_port *a, const struct ko_ib_port *b)
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    const unsigned char *left = a->gids[a->chosen_gid].gid.raw;
    const unsigned char *right = b->gids[b->chosen_gid].gid.raw;

    if (a->link_layer == KO_IB_LINK_ETHERNET && left[0] == 0xfe)
        return false;
    return !memcmp(left, right, memcmp(left, mapped, sizeof mapped) ? 8 : 15);
}

static bool is_as_good(const struct ko_ib_port *a, const struct ko_ib_port *b, int node)
{
    return !is_better(a, b, node) && !is_better(b, a, node) && a->link_layer == b->link_layer &&
           is_in_subnet(a, b);
}

/* 0 if no launcher has said it. */
static unsigned local_rank(void)
{
    struct ko_placement placement;

    return ko_placement_read(environ, &placement) || placement.local_rank < 0
               ? 0
               : (unsigned)placement.local_rank;
}

/* Takes the port that is this rank's turn in place of the best; returns how many are as good. By
 * each round of turns the next begins one later, lest ranks of one node of memory, which may have
 * every other number, all get the same. */
static unsigned deal(struct ko_ib_ports *ports, int node, unsigned turn)
{
    const struct ko_ib_port *best = &ports->list[ports->chosen[0]];
    unsigned n = 0;
    int list[KO_IB_PORTS_CAP];

    for (int i = 0; i < ports->count; i++)
        if (ports->list[i].serves && is_as_good(best, &ports->list[i], node))
            list[n++] = i;
    if (n > 1)
        ports->chosen[0] = list[(turn + turn / n) % n];
    return n;
}

/* ---- all ---------------------------------------------------------------------------------- */

static bool can_be_dealt(const struct ko_ib_ports *ports)
{
    const char *list = ko_config_text(KO_CONFIG_IB_HCA);

    return (!*list || *list == '^') &&
           ports->list[ports->chosen[0]].transport == KO_IB_TRANSPORT_IB;
}

static void say_why(struct ko_ib_port *port, bool is_near, bool has_gpu)
{
    snprintf(port->why, sizeof port->why, "active%s%s, GID %d",
             !is_near  ? ""
             : has_gpu ? ", on the GPU's NUMA node"
                       : ", on this NUMA node",
             *ko_config_text(KO_CONFIG_IB_HCA) ? ", allowed by KOLO_IB_HCA" : "",
             port->gids[port->chosen_gid].index);
}

void ko_ib_choose(struct ko_ib_ports *ports, const struct ko_ib_wishes *wishes, const char *host)
{
    const int gpus = ko_cuda_numa_node(), node = gpus >= 0 ? gpus : ko_numa_of_thread();
    const unsigned turn = local_rank();
    unsigned as_good = 1;

    find_unknown(ports);
    for (int i = 0; i < ports->count; i++) {
        struct ko_ib_port *port = &ports->list[i];

        choose_gid(port, wishes->gid, host);
        port->serves = can_serve(port, wishes);
        if (!port->serves)
            continue;
        snprintf(port->why, sizeof port->why, "another is as good or better");
        enter(ports, i, node);
    }
    if (ports->nchosen)
        drop_strangers(ports);
    if (ports->nchosen && can_be_dealt(ports))
        as_good = deal(ports, node, turn);
    for (int i = 0; i < ports->nchosen; i++) {
        struct ko_ib_port *port = &ports->list[ports->chosen[i]];

        say_why(port, port->numa >= 0 && port->numa == node, gpus >= 0);
        if (as_good > 1)
            snprintf(port->why + strlen(port->why), sizeof port->why - strlen(port->why),
                     ", by local rank %u among %u that are as good", turn, as_good);
    }
}
