/* SPDX-License-Identifier: MIT
 *
 * Contacts, what is refused of them, and which transport joins whom.
 */
#include "interface.h"
#include "status.h"
#include "topology.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A contact that can be reached over everything. */
static struct ko_contact whole(void)
{
    struct ko_contact contact;

    assert_int_equal(ko_contact_begin(&contact), KOLO_OK);
    contact.naddresses = 3;
    strcpy(contact.addresses[0].transport, "self");
    strcpy(contact.addresses[1].transport, "shm");
    strcpy(contact.addresses[2].transport, "tcp");
    return contact;
}

static void begin(void **state)
{
    struct ko_contact contact, again;
    char name[96];

    (void)state;
    assert_int_equal(ko_contact_begin(&contact), KOLO_OK);
    assert_int_equal(ko_contact_begin(&again), KOLO_OK);
    assert_memory_equal(&contact, &again, sizeof contact);
    assert_int_equal(contact.pid, getpid());
    assert_int_equal(contact.slots, 8);
    assert_int_equal(contact.slice_bytes, 131072);
    assert_int_equal(contact.naddresses, 0);
    assert_true(strlen(contact.machine) > 10);
    ko_contact_name(&contact, name, sizeof name);
    assert_non_null(strchr(name, ':'));
    setenv("KOLO_SLOTS", "many", 1);
    assert_int_equal(ko_contact_begin(&again), KOLO_E_INVALID);
    unsetenv("KOLO_SLOTS");
    setenv("KOLO_SLICE_BYTES", "1", 1);
    assert_int_equal(ko_contact_begin(&again), KOLO_E_INVALID);
    unsetenv("KOLO_SLICE_BYTES");
}

/* Another KOLO_HOST is another machine, whatever else is equal. */
static void a_host_of_its_own(void **state)
{
    const char *const names[] = {"", "left", "right"};
    struct ko_contact contacts[3];
    char longest[KO_HOST_NAME + 2];

    (void)state;
    for (int i = 0; i < 3; i++) {
        setenv("KOLO_HOST", names[i], 1);
        assert_int_equal(ko_contact_begin(&contacts[i]), KOLO_OK);
        for (int k = 0; k < i; k++)
            assert_string_not_equal(contacts[k].machine, contacts[i].machine);
    }
    memset(longest, 'h', sizeof longest);
    longest[KO_HOST_NAME] = 0;
    setenv("KOLO_HOST", longest, 1);
    assert_int_equal(ko_contact_begin(&contacts[0]), KOLO_OK);
    assert_non_null(strstr(contacts[0].machine, longest));
    longest[KO_HOST_NAME] = 'h';
    longest[KO_HOST_NAME + 1] = 0;
    setenv("KOLO_HOST", longest, 1);
    assert_int_equal(ko_contact_begin(&contacts[0]), KOLO_E_INVALID);
    assert_non_null(strstr(kolo_last_error(), "KOLO_HOST"));
    unsetenv("KOLO_HOST");
}

static void add(void **state)
{
    const struct ko_site site = {.listen_host = "127.0.0.1"};
    struct ko_contact contact;
    struct ko_device *device;

    (void)state;
    assert_int_equal(ko_contact_begin(&contact), KOLO_OK);
    assert_int_equal(ko_transport_tcp.open(&site, &device), KOLO_OK);
    ko_contact_add(&contact, device);
    assert_int_equal(contact.naddresses, 1);
    assert_string_equal(contact.addresses[0].transport, "tcp");
    assert_true(contact.addresses[0].nbytes > 0);
    assert_false(ko_contact_has_windows(&contact));
    ko_transport_tcp.close(device);
    assert_int_equal(ko_transport_self.open(&site, &device), KOLO_OK);
    ko_contact_add(&contact, device);
    assert_false(ko_contact_has_windows(&contact)); /* to itself does not count */
    ko_transport_self.close(device);
    assert_int_equal(ko_transport_shm.open(&site, &device), KOLO_OK);
    ko_contact_add(&contact, device);
    assert_true(ko_contact_has_windows(&contact));
    ko_transport_shm.close(device);
}

static void check(void **state)
{
    struct ko_contact own = whole(), theirs = own;

    (void)state;
    assert_int_equal(ko_contact_check(&theirs, sizeof theirs, 3, &own), KOLO_OK);
    assert_int_equal(ko_contact_check(&theirs, sizeof theirs - 1, 3, &own), KOLO_E_PROTOCOL);
    assert_non_null(strstr(kolo_last_error(), "rank 3"));
    assert_int_equal(ko_contact_check(&theirs, 0, 3, &own), KOLO_E_PROTOCOL);
    theirs.magic++;
    assert_int_equal(ko_contact_check(&theirs, sizeof theirs, 3, &own), KOLO_E_PROTOCOL);
    theirs = own;
    theirs.version++;
    assert_int_equal(ko_contact_check(&theirs, sizeof theirs, 3, &own), KOLO_E_PROTOCOL);
    assert_non_null(strstr(kolo_last_error(), "rank 3 speaks version"));
    assert_int_equal(ko_contact_check(&theirs, sizeof theirs - 64, 3, &own), KOLO_E_PROTOCOL);
    assert_non_null(strstr(kolo_last_error(), "rank 3 speaks version")); /* other versions' size */
    assert_int_equal(ko_contact_check(&theirs, 7, 3, &own), KOLO_E_PROTOCOL);
    assert_non_null(strstr(kolo_last_error(), "no contact of kolo's"));
    theirs = own;
    memset(theirs.machine, 'x', sizeof theirs.machine);
    assert_int_equal(ko_contact_check(&theirs, sizeof theirs, 3, &own), KOLO_E_PROTOCOL);
    theirs = own;
    memset(theirs.host, 'x', sizeof theirs.host);
    assert_int_equal(ko_contact_check(&theirs, sizeof theirs, 3, &own), KOLO_E_PROTOCOL);
    theirs = own;
    theirs.slots++;
    assert_int_equal(ko_contact_check(&theirs, sizeof theirs, 3, &own), KOLO_E_INVALID);
    assert_non_null(strstr(kolo_last_error(), "KOLO_SLOTS"));
    theirs = own;
    theirs.slice_bytes++;
    assert_int_equal(ko_contact_check(&theirs, sizeof theirs, 3, &own), KOLO_E_INVALID);
    setenv("KOLO_CHECK", "1", 1);
    theirs = whole();
    unsetenv("KOLO_CHECK");
    assert_int_equal(ko_contact_check(&theirs, sizeof theirs, 3, &own), KOLO_E_INVALID);
    assert_string_equal(kolo_last_error(),
                        "rank 3 has KOLO_CHECK 1, this rank 0; set it alike on all ranks");
}

static void check_addresses(void **state)
{
    struct ko_contact own = whole(), theirs = own;

    (void)state;
    theirs.naddresses = KO_CONTACT_TRANSPORTS + 1;
    assert_int_equal(ko_contact_check(&theirs, sizeof theirs, 3, &own), KOLO_E_PROTOCOL);
    theirs.naddresses = UINT32_MAX;
    assert_int_equal(ko_contact_check(&theirs, sizeof theirs, 3, &own), KOLO_E_PROTOCOL);
    theirs = own;
    theirs.addresses[1].nbytes = KO_ADDRESS_BYTES + 1;
    assert_int_equal(ko_contact_check(&theirs, sizeof theirs, 3, &own), KOLO_E_PROTOCOL);
    theirs = own;
    memset(theirs.addresses[2].transport, 's', sizeof theirs.addresses[2].transport);
    assert_int_equal(ko_contact_check(&theirs, sizeof theirs, 3, &own), KOLO_E_PROTOCOL);
}

/* Of costs as of a tuning file; only cores may be 0, to be counted. */
static void check_costs(void **state)
{
    static const double wrong[] = {NAN, -NAN, INFINITY, -INFINITY, -1, -1e-300, 1e15, 1e300};
    static const double wrong_cores[] = {NAN, -1, 0.5, 65537, INFINITY};
    struct ko_contact own = whole(), theirs = own;

    (void)state;
    assert_true(theirs.costs.cores == 0);
    theirs.costs.cores = 65536;
    theirs.costs.links[KO_LOCAL].latency = 0; /* as in a tuning file */
    assert_int_equal(ko_contact_check(&theirs, sizeof theirs, 3, &own), KOLO_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        theirs = own;
        theirs.costs.links[KO_LOCAL].latency = wrong[i];
        assert_int_equal(ko_contact_check(&theirs, sizeof theirs, 3, &own), KOLO_E_PROTOCOL);
        assert_non_null(strstr(kolo_last_error(), "rank 3 published costs"));
        assert_non_null(strstr(kolo_last_error(), "local.latency is"));
        theirs = own;
        theirs.costs.call = wrong[i];
        assert_int_equal(ko_contact_check(&theirs, sizeof theirs, 3, &own), KOLO_E_PROTOCOL);
    }
    for (size_t i = 0; i < sizeof wrong_cores / sizeof *wrong_cores; i++) {
        theirs = own;
        theirs.costs.cores = wrong_cores[i];
        assert_int_equal(ko_contact_check(&theirs, sizeof theirs, 3, &own), KOLO_E_PROTOCOL);
        assert_non_null(strstr(kolo_last_error(), "cores is"));
    }
}

static void allows(void **state)
{
    (void)state;
    unsetenv("KOLO_TRANSPORT");
    assert_true(ko_topology_allows(&ko_transport_tcp));
    setenv("KOLO_TRANSPORT", "shm", 1);
    assert_true(ko_topology_allows(&ko_transport_shm));
    assert_true(ko_topology_allows(&ko_transport_self)); /* always */
    assert_false(ko_topology_allows(&ko_transport_tcp));
    setenv("KOLO_TRANSPORT", "rdma,tcp", 1);
    assert_true(ko_topology_allows(&ko_transport_tcp));
    assert_false(ko_topology_allows(&ko_transport_shm));
    setenv("KOLO_TRANSPORT", "shmem,tc,tcpx", 1);
    assert_false(ko_topology_allows(&ko_transport_shm));
    assert_false(ko_topology_allows(&ko_transport_tcp));
    unsetenv("KOLO_TRANSPORT");
}

static void refuse_transports(const char *list, const char *sentence)
{
    struct ko_contact contact;

    setenv("KOLO_TRANSPORT", list, 1);
    assert_int_equal(ko_topology_check_transports(), KOLO_E_INVALID);
    if (sentence)
        assert_string_equal(kolo_last_error(), sentence);
    assert_int_equal(ko_contact_begin(&contact), KOLO_E_INVALID);
}

/* A misspelt one would leave ranks without any, or with a slower one. */
static void checks_transports(void **state)
{
    static const char *const right[] = {"", "shm", "tcp,shm", "self,rdma"};

    (void)state;
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        setenv("KOLO_TRANSPORT", right[i], 1);
        assert_int_equal(ko_topology_check_transports(), KOLO_OK);
    }
    refuse_transports("ib", "KOLO_TRANSPORT is \"ib\", and no transport is called \"ib\"; it lists "
                            "some of shm, rdma and tcp, with commas");
    refuse_transports("shm,tc",
                      "KOLO_TRANSPORT is \"shm,tc\", and no transport is called \"tc\"; it "
                      "lists some of shm, rdma and tcp, with commas");
    refuse_transports(",", NULL);
    refuse_transports("shm,", NULL);
    refuse_transports("shm, tcp", NULL);
    refuse_transports("SHM", NULL);
    unsetenv("KOLO_TRANSPORT");
}

static void checks_address(void **state)
{
    struct ko_contact contact;
    char host[KO_INTERFACE_TEXT];

    (void)state;
    setenv("KOLO_IFADDR", "127.0.0.1", 1);
    assert_int_equal(ko_contact_begin(&contact), KOLO_OK);
    setenv("KOLO_IFADDR", "lo", 1);
    assert_int_equal(ko_contact_begin(&contact), KOLO_OK);
    assert_true(ko_interface_wanted(host, sizeof host));
    assert_string_equal(host, "127.0.0.1");
    setenv("KOLO_IFADDR", "lo-none", 1);
    assert_int_equal(ko_contact_begin(&contact), KOLO_E_INVALID);
    assert_non_null(strstr(kolo_last_error(), "KOLO_IFADDR is \"lo-none\"; it takes an address"));
    unsetenv("KOLO_IFADDR");
}

/* In a network whose only interface is down. 77: there can be none here. */
static int check_where_lo_is_down(void)
{
    struct ko_contact contact;

    if (unshare(CLONE_NEWUSER | CLONE_NEWNET))
        return 77;
    setenv("KOLO_IFADDR", "lo", 1);
    if (ko_contact_begin(&contact) != KOLO_E_INVALID)
        return 1;
    return !strstr(kolo_last_error(), "KOLO_IFADDR is \"lo\", an interface of this machine that is "
                                      "down or has no address");
}

/* It is not taken for a host's name, which a name server may be asked for in vain for long. */
static void an_interface_without_address_is_told_at_once(void **state)
{
    const pid_t child = fork();
    int status;

    (void)state;
    if (child == 0)
        _exit(check_where_lo_is_down());
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(status, 0);
}

static void expect(const struct ko_contact *own, const struct ko_contact *peer, bool is_self,
                   const char *transport, const char *reason)
{
    const char *why;
    uint32_t index = 99;

    assert_true(ko_topology_find(own, peer, is_self, &index, &why));
    assert_string_equal(peer->addresses[index].transport, transport);
    assert_string_equal(why, reason);
}

static void choose(void **state)
{
    struct ko_contact own = whole(), thread = own, process = own, machine = own;
    struct ko_contact container = own; /* of a pod, which shares its network */
    const char *why;
    uint32_t index = 99;

    (void)state;
    process.pid++;
    container.processes++;
    machine.machine[0] ^= 1;
    expect(&own, &own, true, "self", "the same rank");
    expect(&own, &thread, false, "shm", "threads of one process");
    expect(&own, &process, false, "shm", "the same machine and user");
    expect(&own, &container, false, "shm", "the same machine and user");
    expect(&own, &machine, false, "tcp", "another machine, container or user");
    setenv("KOLO_TRANSPORT", "tcp", 1);
    expect(&own, &process, false, "tcp",
           "the same machine, but shared memory is not allowed by KOLO_TRANSPORT");
    setenv("KOLO_TRANSPORT", "shm", 1);
    assert_false(ko_topology_find(&own, &machine, false, &index, &why));
    assert_int_equal(index, 99);
    unsetenv("KOLO_TRANSPORT");
}

static void gone(void **state)
{
    struct ko_contact own = whole(), peer = own;
    pid_t pid;

    (void)state;
    assert_false(ko_contact_is_gone(&own, &peer)); /* this very process */
    pid = fork();
    if (pid == 0)
        _exit(0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    peer.pid = pid;
    assert_true(ko_contact_is_gone(&own, &peer));
    peer.processes++;
    assert_false(ko_contact_is_gone(&own, &peer)); /* numbers of another namespace */
    peer = own;
    peer.pid = pid;
    peer.machine[0] ^= 1;
    assert_false(ko_contact_is_gone(&own, &peer));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(begin),
        cmocka_unit_test(a_host_of_its_own),
        cmocka_unit_test(add),
        cmocka_unit_test(check),
        cmocka_unit_test(check_addresses),
        cmocka_unit_test(check_costs),
        cmocka_unit_test(allows),
        cmocka_unit_test(checks_transports),
        cmocka_unit_test(checks_address),
        cmocka_unit_test(an_interface_without_address_is_told_at_once),
        cmocka_unit_test(choose),
        cmocka_unit_test(gone)};

    return cmocka_run_group_tests_name("topology", tests, NULL, NULL);
}
