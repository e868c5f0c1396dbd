/* SPDX-License-Identifier: MIT */
#include "topology.h"

#include "config.h"
#include "interface.h"
#include "socket.h"
#include "status.h"
#include "tuning.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The boot id names a running kernel; abstract Unix sockets belong to a network namespace; a
 * segment is passed only within one user. KOLO_HOST can set apart what these have in common, never
 * join what they do not. */
static void describe_machine(char *text, size_t nbytes)
{
    char boot[48] = "unknown";
    struct stat network = {0};
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

    if (file) {
        if (!fgets(boot, sizeof boot, file))
            snprintf(boot, sizeof boot, "unknown");
        fclose(file);
    }
    boot[strcspn(boot, "\n")] = 0;
    (void)stat("/proc/self/ns/net", &network);
    snprintf(text, nbytes, "%.40s/%llu/%u/%s", boot, (unsigned long long)network.st_ino,
             (unsigned)geteuid(), ko_config_text(KO_CONFIG_HOST));
}

/* None of a machine that has more of them than a contact has room for. */
static void describe_cores(uint64_t cores[KO_CONTACT_CORES / 64])
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set))
        return;
    for (size_t core = 0; core < KO_CONTACT_CORES && core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &set))
            cores[core / 64] |= UINT64_C(1) << core % 64;
}

int ko_topology_check_host(void)
{
    const char *name = ko_config_text(KO_CONFIG_HOST);

    if (strlen(name) > KO_HOST_NAME)
        return ko_fail(KOLO_E_INVALID, "KOLO_HOST is \"%.40s...\": a name has at most %d bytes",
                       name, KO_HOST_NAME);
    return KOLO_OK;
}

int ko_topology_check_address(void)
{
    char host[KO_INTERFACE_TEXT];

    if (!ko_interface_wanted(host, sizeof host))
        return KOLO_OK;
    if (ko_interface_exists(host)) /* no address of it has been found */
        return ko_fail(KOLO_E_INVALID,
                       "KOLO_IFADDR is \"%s\", an interface of this machine that is down or has no "
                       "address; ip address lists those that have one",
                       host);
    return ko_socket_check_address("KOLO_IFADDR", host);
}

int ko_contact_begin(struct ko_contact *contact)
{
    int64_t slots, slice_bytes, checks;
    struct stat namespace;
    struct ko_costs costs;
    int err = ko_config_number(KO_CONFIG_SLOTS, &slots);

    if (!err)
        err = ko_config_number(KO_CONFIG_SLICE_BYTES, &slice_bytes);
    if (!err)
        err = ko_config_number(KO_CONFIG_CHECK, &checks);
    if (!err)
        err = ko_topology_check_host();
    if (!err)
        err = ko_topology_check_transports();
    if (!err)
        err = ko_topology_check_address();
    if (!err)
        err = ko_tuning_get(&costs);
    if (err)
        return err;
    memset(contact, 0, sizeof *contact);
    contact->magic = KO_HELLO_MAGIC;
    contact->version = KO_HELLO_VERSION;
    contact->slots = (uint32_t)slots;
    contact->slice_bytes = (uint32_t)slice_bytes;
    contact->checks_calls = checks != 0;
    contact->pid = (int32_t)getpid();
    contact->processes = stat("/proc/self/ns/pid", &namespace) ? 0 : namespace.st_ino;
    contact->costs = costs;
    if (!ko_config_is_set(KO_CONFIG_TUNING))
        contact->costs.cores = 0;
    describe_cores(contact->cores);
    describe_machine(contact->machine, sizeof contact->machine);
    if (gethostname(contact->host, sizeof contact->host - 1))
        snprintf(contact->host, sizeof contact->host, "unknown");
    return KOLO_OK;
}

void ko_contact_add(struct ko_contact *contact, struct ko_device *device)
{
    uint32_t i = contact->naddresses++;

    snprintf(contact->addresses[i].transport, sizeof contact->addresses[i].transport, "%s",
             device->transport->name);
    contact->addresses[i].nbytes =
        (uint32_t)device->transport->address(device, contact->addresses[i].bytes);
}

static int check_addresses(const struct ko_contact *contact, int rank)
{
    if (contact->naddresses > KO_CONTACT_TRANSPORTS)
        return ko_fail(KOLO_E_PROTOCOL, "rank %d published %u addresses, at most %d are possible",
                       rank, contact->naddresses, KO_CONTACT_TRANSPORTS);
    for (uint32_t i = 0; i < contact->naddresses; i++)
        if (contact->addresses[i].nbytes > KO_ADDRESS_BYTES ||
            !memchr(contact->addresses[i].transport, 0, sizeof contact->addresses[i].transport))
            return ko_fail(KOLO_E_PROTOCOL, "rank %d published a malformed address", rank);
    return KOLO_OK;
}

/* As those of a tuning file, but that cores may be left to be counted. */
static int check_costs(const struct ko_contact *contact, int rank)
{
    struct ko_costs costs = contact->costs;
    char what[KO_ERROR_TEXT];

    if (costs.cores == 0)
        costs.cores = 1;
    if (!ko_costs_check(&costs))
        return KOLO_OK;
    snprintf(what, sizeof what, "%s", kolo_last_error());
    return ko_fail(KOLO_E_PROTOCOL, "rank %d published costs (KOLO_TUNING) of which %.200s", rank,
                   what);
}

/* Another version's may be of another size. */
static int check_version(const struct ko_contact *contact, size_t nbytes, int rank)
{
    if (nbytes < offsetof(struct ko_contact, slots) || contact->magic != KO_HELLO_MAGIC ||
        contact->version == KO_HELLO_VERSION)
        return KOLO_OK;
    return ko_fail(KOLO_E_PROTOCOL,
                   "rank %d speaks version %u of kolo's protocol, this rank version %u; use one "
                   "version of kolo everywhere",
                   rank, contact->version, KO_HELLO_VERSION);
}

/* Of what both ends of a link have to take alike. */
static int check_variables(const struct ko_contact *contact, int rank, const struct ko_contact *own)
{
    if (contact->slots != own->slots || contact->slice_bytes != own->slice_bytes)
        return ko_fail(
            KOLO_E_INVALID,
            "rank %d has KOLO_SLOTS %u and KOLO_SLICE_BYTES %u, this rank %u and %u; set "
            "them alike on all ranks",
            rank, contact->slots, contact->slice_bytes, own->slots, own->slice_bytes);
    if (contact->checks_calls != own->checks_calls)
        return ko_fail(KOLO_E_INVALID,
                       "rank %d has KOLO_CHECK %u, this rank %u; set it alike on all ranks", rank,
                       contact->checks_calls, own->checks_calls);
    return KOLO_OK;
}

int ko_contact_check(const void *data, size_t nbytes, int rank, const struct ko_contact *own)
{
    const struct ko_contact *contact = data;
    int err = check_version(contact, nbytes, rank);

    if (err)
        return err;
    if (nbytes != sizeof *contact || contact->magic != KO_HELLO_MAGIC ||
        !memchr(contact->machine, 0, sizeof contact->machine) ||
        !memchr(contact->host, 0, sizeof contact->host))
        return ko_fail(KOLO_E_PROTOCOL,
                       "what stands in the store for rank %d (%zu bytes) is no contact of kolo's; "
                       "is the store used by another program too?",
                       rank, nbytes);
    err = check_variables(contact, rank, own);
    if (!err)
        err = check_addresses(contact, rank);
    return err ? err : check_costs(contact, rank);
}

bool ko_contact_has_windows(const struct ko_contact *contact)
{
    for (uint32_t i = 0; i < contact->naddresses; i++) {
        const struct ko_transport *transport = ko_transport_find(contact->addresses[i].transport);

        if (transport && transport != &ko_transport_self && transport->kind == KO_WINDOW)
            return true;
    }
    return false;
}

/* Whether an item of KOLO_TRANSPORT is the name of a transport. */
static bool is_transport(const char *item, size_t length)
{
    for (const struct ko_transport *const *row = ko_transports; *row; row++)
        if (strlen((*row)->name) == length && !memcmp((*row)->name, item, length))
            return true;
    return false;
}

int ko_topology_check_transports(void)
{
    const char *list = ko_config_text(KO_CONFIG_TRANSPORT);

    for (const char *item = list; *list; item++) {
        const size_t length = strcspn(item, ",");

        if (!is_transport(item, length))
            return ko_fail(KOLO_E_INVALID,
                           "KOLO_TRANSPORT is \"%.100s\", and no transport is called \"%.*s\"; it "
                           "lists some of shm, rdma and tcp, with commas",
                           list, (int)(length < 64 ? length : 64), item);
        item += length;
        if (!*item)
            break;
    }
    return KOLO_OK;
}

bool ko_topology_allows(const struct ko_transport *transport)
{
    const char *list = ko_config_text(KO_CONFIG_TRANSPORT);
    size_t length = strlen(transport->name);

    if (!*list || transport == &ko_transport_self)
        return true;
    for (;; list++) {
        size_t item = strcspn(list, ",");

        if (item == length && !strncmp(list, transport->name, length))
            return true;
        list += item;
        if (!*list)
            return false;
    }
}

bool ko_contact_is_here(const struct ko_contact *own, const struct ko_contact *peer)
{
    return own->pid == peer->pid && own->processes == peer->processes &&
           !strcmp(own->machine, peer->machine);
}

/* The reason why transport serves this pair, or NULL if it does not. */
static const char *reason(const struct ko_transport *transport, const struct ko_contact *own,
                          const struct ko_contact *peer, bool is_self)
{
    if (transport == &ko_transport_self)
        return is_self ? "the same rank" : NULL;
    if (transport == &ko_transport_shm) {
        if (strcmp(own->machine, peer->machine) != 0)
            return NULL;
        return ko_contact_is_here(own, peer) ? "threads of one process"
                                             : "the same machine and user";
    }
    if (transport == &ko_transport_rdma && !strcmp(own->machine, peer->machine))
        return *ko_config_text(KO_CONFIG_TRANSPORT) ? "KOLO_TRANSPORT asks for it" : NULL;
    return strcmp(own->machine, peer->machine) != 0
               ? "another machine, container or user"
               : "the same machine, but shared memory is not allowed by KOLO_TRANSPORT";
}

static bool has_address(const struct ko_contact *contact, const struct ko_transport *transport,
                        uint32_t *index)
{
    for (uint32_t i = 0; i < contact->naddresses; i++)
        if (!strcmp(contact->addresses[i].transport, transport->name)) {
            *index = i;
            return true;
        }
    return false;
}

bool ko_topology_find(const struct ko_contact *own, const struct ko_contact *peer, bool is_self,
                      uint32_t *index, const char **why)
{
    for (const struct ko_transport *const *row = ko_transports; *row; row++) {
        const char *text = ko_topology_allows(*row) ? reason(*row, own, peer, is_self) : NULL;

        if (text && has_address(own, *row, index) && has_address(peer, *row, index)) {
            *why = text;
            return true;
        }
    }
    return false;
}

/* Also of one that its parent has not waited for yet, which a signal would still find. */
static bool has_ended(pid_t pid)
{
    struct pollfd process = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
    int n;

    if (process.fd < 0)
        return kill(pid, 0) && errno == ESRCH;
    n = poll(&process, 1, 0);
    close(process.fd);
    return n == 1;
}

bool ko_contact_is_gone(const struct ko_contact *own, const struct ko_contact *peer)
{
    return own->processes && own->processes == peer->processes && peer->pid > 0 &&
           !strcmp(own->machine, peer->machine) && has_ended(peer->pid);
}

void ko_contact_name(const struct ko_contact *contact, char *name, size_t nbytes)
{
    snprintf(name, nbytes, "%s:%d", contact->host, (int)contact->pid);
}
