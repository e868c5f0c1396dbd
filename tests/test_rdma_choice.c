/* SPDX-License-Identifier: MIT
 *
 * Which adapter rdma takes, and that what is asked for, and found out, arrives at its queue pairs:
 * on the double of libibverbs, which tells what these were told. And completion queues that fail.
 */
#include "rdma_pair.h"

#include <dlfcn.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Its node of memory is this thread's; of another adapter it is the next one; "?": nobody knows. */
static const char *near_one;

static int forget_wishes(void **state)
{
    static const char *const names[] = {
        "FAKEVERBS_GIDS",  "FAKEVERBS_DEVICES", "FAKEVERBS_SLOW",    "FAKEVERBS_MTU",
        "FAKEVERBS_BREAK", "KOLO_IB_HCA",       "KOLO_IB_GID_INDEX", "KOLO_IB_TC",
        "KOLO_IB_SL",      "KOLO_IB_PKEY",      "KOLO_IB_RETRY",     "KOLO_IB_TIMEOUT"};

    (void)state;
    near_one = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    setenv("KOLO_DEBUG", "NONE", 1);
    return 0;
}

/* ---- what queue pairs are told -------------------------------------------------------------- */

/* The last queue pair of a wire that has just been opened. */
static struct ko_ib_qp_attr join(void)
{
    void (*tell)(struct ko_ib_qp_attr * attr);
    struct rdma_pair pair = rdma_pair_new();
    struct ko_ib_qp_attr attr;

    *(void **)&tell = rdma_pair_find("fakeverbs_joined");
    tell(&attr);
    rdma_pair_close(&pair);
    return attr;
}

static void what_usually_holds(void **state)
{
    const struct ko_ib_qp_attr attr = join();

    (void)state;
    assert_int_equal(attr.timeout, 18);
    assert_int_equal(attr.retry_cnt, 7);
    assert_int_equal(attr.pkey_index, 0);
    assert_int_equal(attr.port_num, 1);
    assert_int_equal(attr.qp_access_flags, KO_IB_REMOTE_WRITE);
    assert_int_equal(attr.path_mtu, 3);
    assert_int_equal(attr.path.is_global, 1);
    assert_int_equal(attr.path.traffic_class, 0);
    assert_int_equal(attr.path.sl, 0);
    assert_int_equal(attr.path.sgid_index, 3); /* RoCE v2 of the address on which tcp listens */
}

static void what_is_asked_for(void **state)
{
    struct ko_ib_qp_attr attr;

    (void)state;
    setenv("KOLO_IB_TIMEOUT", "14", 1);
    setenv("KOLO_IB_RETRY", "3", 1);
    setenv("KOLO_IB_TC", "106", 1);
    setenv("KOLO_IB_SL", "5", 1);
    setenv("KOLO_IB_GID_INDEX", "1", 1);
    attr = join();
    assert_int_equal(attr.timeout, 14);
    assert_int_equal(attr.retry_cnt, 3);
    assert_int_equal(attr.path.traffic_class, 106);
    assert_int_equal(attr.path.sl, 5);
    assert_int_equal(attr.path.sgid_index, 1);
}

/* Queue pairs are told of an entry of the GID table by one byte. */
static void long_tables_are_read_as_far_as_they_can_be_used(void **state)
{
    (void)state;
    setenv("FAKEVERBS_GIDS", "256", 1);
    assert_int_equal(join().path.sgid_index, 255);
    setenv("FAKEVERBS_GIDS", "300", 1);
    assert_int_equal(join().path.sgid_index, 1);
    setenv("FAKEVERBS_GIDS", "2147483646", 1);
    assert_int_equal(join().path.sgid_index, 1);
}

/* On InfiniBand the other end is found by its number, not by a GID. */
static void service_levels_of_infiniband(void **state)
{
    struct ko_ib_qp_attr attr;

    (void)state;
    setenv("FAKEVERBS_DEVICES", "mlx0:ib", 1);
    setenv("KOLO_IB_SL", "9", 1);
    attr = join();
    assert_int_equal(attr.path.sl, 9);
    assert_int_equal(attr.path.dlid, 17);
    assert_int_equal(attr.path.is_global, 0);
}

/* Of the two ends the one with the shorter packets counts, whichever it is. */
static void packets_that_both_ends_take(void **state)
{
    static const char *const mtus[][2] = {{"5", "1"}, {"2", "4"}, {"4", "4"}};
    static const int wanted[] = {1, 2, 4};
    void (*tell)(struct ko_ib_qp_attr * attr);

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct rdma_pair pair = {.left = NULL};
        struct ko_ib_qp_attr attr;

        setenv("FAKEVERBS_MTU", mtus[i][0], 1);
        assert_int_equal(rdma->open(&rdma_pair_site, &pair.left), KOLO_OK);
        setenv("FAKEVERBS_MTU", mtus[i][1], 1);
        assert_int_equal(rdma->open(&rdma_pair_site, &pair.right), KOLO_OK);
        assert_int_equal(rdma_pair_open_wire(&pair), KOLO_OK);
        *(void **)&tell = rdma_pair_find("fakeverbs_joined");
        tell(&attr);
        assert_int_equal(attr.path_mtu, wanted[i]);
        rdma_pair_pass(&pair, 100000);
        rdma_pair_close(&pair);
    }
}

/* An entry that is not there, or is empty, keeps the port from being chosen. */
static void partitions(void **state)
{
    static const char *const none[] = {"2", "4", "65535"};
    struct rdma_pair pair;

    setenv("KOLO_IB_PKEY", "3", 1);
    assert_int_equal(join().pkey_index, 3);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        char words[64];

        setenv("KOLO_IB_PKEY", none[i], 1);
        assert_int_equal(rdma_pair_open_devices(&pair), KOLO_E_UNSUPPORTED);
        snprintf(words, sizeof words, "it has no partition key of index %s (KOLO_IB_PKEY)",
                 none[i]);
        assert_non_null(strstr(kolo_last_error(), words));
        rdma_pair_close(&pair);
    }
    forget_wishes(state);
    setenv("KOLO_IB_PKEY", "1", 1);
    setenv("FAKEVERBS_BREAK", "ibv_modify_qp=22", 1); /* as an adapter that has lost it since */
    assert_int_equal(rdma_pair_open_devices(&pair), KOLO_OK);
    assert_int_not_equal(rdma_pair_open_wire(&pair), KOLO_OK);
    assert_non_null(strstr(kolo_last_error(), "with partition key 1"));
    rdma_pair_close(&pair);
}

/* ---- which adapters ------------------------------------------------------------------------- */

static void the_fastest_adapter(void **state)
{
    static const struct {
        const char *slow, *hca, *taken;
    } rows[] = {{"", "", "a0"},        {"a0", "", "b0"},      {"a0,b0", "", "c0"},
                {"b0,c0", "", "a0"},   {"a0", "a0", "a0"},    {"a0,c0", "^b0", "a0"},
                {"a0", "a0,c0", "c0"}, {"a0,b0,c0", "", "a0"}};

    (void)state;
    setenv("FAKEVERBS_DEVICES", "a0:roce,b0:roce,c0:roce", 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ko_device *device;

        setenv("FAKEVERBS_SLOW", rows[i].slow, 1);
        setenv("KOLO_IB_HCA", rows[i].hca, 1);
        assert_int_equal(rdma->open(&rdma_pair_site, &device), KOLO_OK);
        assert_string_equal(((struct ko_rdma_device *)device)->adapters[0].port.device,
                            rows[i].taken);
        rdma->close(device);
    }
}

/* Instead of the C library's, for what the kernel says of adapters. */
FILE *fopen(const char *path, const char *mode)
{
    static char nodes[][3] = {"0\n", "1\n"};
    FILE *(*real)(const char *, const char *);
    char name[KO_IB_NAME];

    *(void **)&real = dlsym(RTLD_NEXT, "fopen");
    if (!near_one || sscanf(path, "/sys/class/infiniband/%31[^/]/device/numa_node", name) != 1)
        return real(path, mode);
    return *near_one == '?' ? NULL : fmemopen(nodes[strcmp(name, near_one) != 0], 2, "r");
}

int getcpu(unsigned *cpu, unsigned *node)
{
    *cpu = *node = 0;
    return 0;
}

/* Before the fastest, and first of several; iWARP only where there is nothing else. */
static void the_nearest_adapter(void **state)
{
    static const struct {
        const char *near_one, *slow, *hca, *taken;
        int n;
    } rows[] = {{"b0", "", "", "b0", 1},      {"b0", "b0", "", "b0", 1},
                {"c0", "a0", "", "c0", 1},    {"?", "a0", "", "b0", 1},
                {"b0", "", "a0,b0", "b0", 2}, {"b0", "", "^b0", "a0", 1},
                {"none", "a0", "", "b0", 1},  {"w0", "a0,b0,c0", "", "a0", 1}};
    struct ko_device *device;

    (void)state;
    setenv("FAKEVERBS_DEVICES", "w0:iwarp,a0:roce,b0:roce,c0:roce", 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct ko_rdma_device *own;

        near_one = rows[i].near_one;
        setenv("FAKEVERBS_SLOW", rows[i].slow, 1);
        setenv("KOLO_IB_HCA", rows[i].hca, 1);
        assert_int_equal(rdma->open(&rdma_pair_site, &device), KOLO_OK);
        own = (const struct ko_rdma_device *)device;
        assert_int_equal(own->nadapters, rows[i].n);
        assert_string_equal(own->adapters[0].port.device, rows[i].taken);
        assert_int_equal(strstr(own->adapters[0].port.why, "on this NUMA node") != NULL,
                         !strcmp(rows[i].taken, near_one));
        rdma->close(device);
    }
    near_one = NULL;
}

static void set_local_rank(int rank, int size)
{
    static const char *const names[] = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"};
    char text[16];

    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", "29500", 1);
    for (int i = 0; i < 4; i++) {
        snprintf(text, sizeof text, "%d", i < 2 ? rank : size);
        setenv(names[i], text, 1);
    }
}

static void forget_rank(void)
{
    static const char *const names[] = {
        "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}

/* Which of the adapters, by the last letter of its name, each of eight ranks of a host takes. */
static void deal_to(const char *devices, const char *hca, const char *slow, const char *wanted)
{
    setenv("FAKEVERBS_DEVICES", devices, 1);
    setenv("KOLO_IB_HCA", hca, 1);
    setenv("FAKEVERBS_SLOW", slow, 1);
    for (int rank = 0; rank < 8; rank++) {
        struct ko_device *device;
        const struct ko_ib_port *port;
        char words[64];

        set_local_rank(rank, 8);
        assert_int_equal(rdma->open(&rdma_pair_site, &device), KOLO_OK);
        port = &((struct ko_rdma_device *)device)->adapters[0].port;
        if (port->device[0] != wanted[rank])
            fail_msg("%s: rank %d has %s, not %c", devices, rank, port->device, wanted[rank]);
        snprintf(words, sizeof words, "by local rank %d among ", rank);
        assert_int_equal(strstr(port->why, words) != NULL, strchr(wanted, 'b') != NULL);
        rdma->close(device);
    }
    forget_rank();
}

/* Those that are as good as the best are dealt to a host's ranks, whether these have numbers in a
 * row or every other one; not those that are farther, slower, on another network, or of no known
 * one, nor those that KOLO_IB_HCA names. */
static void dealt_by_local_rank(void **state)
{
    (void)state;
    deal_to("a0:roce@10.1.0.1,b0:roce@10.1.0.2", "", "", "abbaabba");
    deal_to("a0:ib,b0:ib,c0:ib", "", "", "abcbcaca");
    deal_to("a0:roce@10.1.0.1,b0:roce@10.1.0.2,c0:roce@10.1.0.3", "^c0", "", "abbaabba");
    deal_to("a0:roce@10.1.0.1,b0:roce@10.1.0.2,c0:roce@10.1.0.3", "", "c0", "abbaabba");
    deal_to("a0:roce@10.1.0.1,c0:roce@10.2.0.1", "", "", "aaaaaaaa");
    deal_to("a0:roce@fd00::1,b0:roce@fd00::2", "", "", "abbaabba");
    deal_to("a0:roce@fe80::1,c0:roce@fe80::2", "", "", "aaaaaaaa");
    deal_to("a0:roce@10.1.0.1,c0:ib", "", "", "aaaaaaaa");
    deal_to("a0:iwarp,c0:iwarp", "", "", "aaaaaaaa");
    deal_to("a0:roce@10.1.0.1,c0:roce@10.1.0.2", "a0,c0", "", "aaaaaaaa");
}

/* ---- which GID ------------------------------------------------------------------------------ */

/* RoCE v2 of the address that tcp has, be it of IPv6 or IPv4, else of what is not the link's own;
 * RoCE v1 never, if there is v2. */
static void the_gid_of_an_address(void **state)
{
    static const struct {
        const char *host;
        int index;
    } rows[] = {{"127.0.0.1", 3},
                {"10.9.9.9", 3},
                {"fe80::200:0:0:1", 1},
                {"fe80::200:0:0:2", 3},
                {NULL, 3}};
    static struct ko_ib_ports ports;
    const struct ko_ib *ib;

    (void)state;
    assert_int_equal(ko_ib_open(&ib), KOLO_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(ko_ib_ports_read(ib, rows[i].host, &ports), KOLO_OK);
        assert_int_equal(ports.nchosen, 1);
        assert_int_equal(ports.list[0].gids[ports.list[0].chosen_gid].index, rows[i].index);
    }
}

/* ---- fork ----------------------------------------------------------------------------------- */

/* Before memory is registered, and never again. */
static void children_are_thought_of_once(void **state)
{
    int (*count)(void);

    (void)state;
    (void)join();
    (void)join();
    *(void **)&count = rdma_pair_find("fakeverbs_fork_inits");
    assert_int_equal(count(), 1);
}

/* ---- completion queues that fail ------------------------------------------------------------ */

/* One end says what has failed, and the other that this one is gone. */
static void queues_that_fail(void **state)
{
    static const struct {
        const char *wish, *words;
    } rows[] = {
        {"ibv_poll_cq=5", "reading a completion queue (ibv_poll_cq) to rank 2 over fake0: Input"},
        {"ibv_req_notify_cq=5",
         "asking for events (ibv_req_notify_cq) to rank 2 over fake0: Input"},
        {"ibv_get_cq_event=5", "taking an event (ibv_get_cq_event) to rank 2 over fake0: Input"}};
    static const char *const lost[] = {"its connection was closed", NULL};

    (void)state;
    for (int i = 0; i < 3; i++) {
        const char *const words[] = {rows[i].words, NULL};
        struct rdma_pair pair = rdma_pair_new();

        (void)rdma->arm(pair.from);
        rdma_pair_pass(&pair, 100); /* of which an event tells that nobody has taken yet */
        setenv("FAKEVERBS_BREAK", rows[i].wish, 1);
        rdma_pair_expect(pair.from, KOLO_E_SYSTEM, words);
        unsetenv("FAKEVERBS_BREAK");
        rdma->hangup(pair.from);
        pair.from = NULL;
        rdma_pair_expect(pair.to, KOLO_E_PEER_LOST, lost);
        rdma_pair_close(&pair);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, forget_wishes, forget_wishes)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(what_usually_holds),
                                       TEST(what_is_asked_for),
                                       TEST(long_tables_are_read_as_far_as_they_can_be_used),
                                       TEST(service_levels_of_infiniband),
                                       TEST(packets_that_both_ends_take),
                                       TEST(partitions),
                                       TEST(the_fastest_adapter),
                                       TEST(the_nearest_adapter),
                                       TEST(dealt_by_local_rank),
                                       TEST(the_gid_of_an_address),
                                       TEST(children_are_thought_of_once),
                                       TEST(queues_that_fail)};

    return cmocka_run_group_tests_name("what rdma chooses", tests, NULL, NULL);
}
