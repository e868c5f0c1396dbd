/* SPDX-License-Identifier: MIT
 *
 * Processors for ranks on machines that are described in a folder of the test's.
 */
#include "folder.h"
#include "tools/launch_binding.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

/* Writes a file below the folder, as the kernel would. */
static void describe(const char *system, const char *name, const char *text)
{
    char path[600];

    snprintf(path, sizeof path, "%s/%s", system, name);
    for (char *slash = strchr(path + strlen(system) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0777);
        *slash = '/';
    }
    folder_write(path, text, strlen(text));
}

/* Eight processors: 0 and 4, 1 and 5, ... share a core; two NUMA nodes with cores 0, 1 and 2, 3,
 * and one with memory only between them. */
static const char *make_machine(void)
{
    const char *system = folder_path("machine");
    char name[64], text[16];

    mkdir(system, 0777);
    for (int cpu = 0; cpu < 8; cpu++) {
        snprintf(name, sizeof name, "cpu/cpu%d/topology/thread_siblings_list", cpu);
        snprintf(text, sizeof text, "%d,%d\n", cpu % 4, cpu % 4 + 4);
        describe(system, name, text);
    }
    describe(system, "node/node0/cpulist", "0-1,4-5\n");
    describe(system, "node/node1/cpulist", "\n");
    describe(system, "node/node3/cpulist", "2-3,6-7\n");
    return system;
}

static void expect(enum ko_binding binding, const char *system, int cpus, int local_rank,
                   int nprocs, const char *wanted)
{
    cpu_set_t all, chosen;
    char text[100];

    CPU_ZERO(&all);
    for (size_t cpu = 0; cpu < 8; cpu++)
        if (cpus >> cpu & 1)
            CPU_SET(cpu, &all);
    ko_binding_choose(binding, system, &all, local_rank, nprocs, &chosen);
    ko_binding_describe(&chosen, text, sizeof text);
    assert_string_equal(text, wanted);
}

static void cores_go_round(void **state)
{
    static const char *const wanted[] = {"0,4", "1,5", "2,6", "3,7", "0,4", "1,5"};
    const char *system = make_machine();

    (void)state;
    for (int i = 0; i < 6; i++)
        expect(KO_BIND_CORE, system, 0xff, i, 6, wanted[i]);
    expect(KO_BIND_CORE, system, 0xf0, 1, 2, "5"); /* only one thread of each may be used */
    expect(KO_BIND_CORE, system, 0xe1, 1, 2, "5");
    expect(KO_BIND_CORE, system, 0x30, 2, 3, "4");
}

static void numa_nodes_are_shared_by_neighbours(void **state)
{
    static const char *const wanted[] = {"0-1,4-5", "0-1,4-5", "2-3,6-7"};
    const char *system = make_machine();

    (void)state;
    for (int i = 0; i < 3; i++)
        expect(KO_BIND_NUMA, system, 0xff, i, 3, wanted[i]);
    expect(KO_BIND_NUMA, system, 0xff, 1, 2, "2-3,6-7");
    expect(KO_BIND_NUMA, system, 0x0c, 1, 2, "2-3"); /* the other node may not be used */
}

/* Sockets of processors 0, 1, 4, 5 and 2, 3, 6, 7. */
static void sockets_are_shared_by_neighbours(void **state)
{
    const char *system = make_machine();
    char name[64];

    (void)state;
    for (int cpu = 0; cpu < 8; cpu++) {
        snprintf(name, sizeof name, "cpu/cpu%d/topology/core_siblings_list", cpu);
        describe(system, name, cpu & 2 ? "2-3,6-7\n" : "0-1,4-5\n");
    }
    expect(KO_BIND_SOCKET, system, 0xff, 0, 3, "0-1,4-5");
    expect(KO_BIND_SOCKET, system, 0xff, 1, 3, "0-1,4-5");
    expect(KO_BIND_SOCKET, system, 0xff, 2, 3, "2-3,6-7");
    expect(KO_BIND_SOCKET, system, 0x4c, 0, 2, "2-3,6"); /* the other may not be used */
}

static void hyperthreads_go_round(void **state)
{
    const char *system = make_machine();

    (void)state;
    for (int i = 0; i < 8; i++)
        expect(KO_BIND_HWTHREAD, system, 0xff, i, 9, (char[]){(char)('0' + i), 0});
    expect(KO_BIND_HWTHREAD, system, 0xff, 8, 9, "0");
    expect(KO_BIND_HWTHREAD, system, 0x28, 1, 2, "5");
}

static void without_a_description_processors_are_cores(void **state)
{
    const char *nowhere = folder_path("nowhere");

    (void)state;
    expect(KO_BIND_CORE, nowhere, 0x0a, 1, 2, "3");
    expect(KO_BIND_CORE, nowhere, 0x0a, 2, 3, "1");
    expect(KO_BIND_NUMA, nowhere, 0x0b, 1, 2, "0-1,3");
    expect(KO_BIND_SOCKET, nowhere, 0x0b, 1, 2, "0-1,3");
    expect(KO_BIND_NONE, nowhere, 0x0b, 1, 2, "0-1,3");
}

static void nonsense_of_the_kernel_does_no_harm(void **state)
{
    static const char *const texts[] = {"x", "", "5-", "3-1", "-4", "99999-99999999999", "1,,2"};
    const char *system = folder_path("odd");

    (void)state;
    mkdir(system, 0777);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        describe(system, "cpu/cpu1/topology/thread_siblings_list", texts[i]);
        expect(KO_BIND_CORE, system, 0x02, 0, 1, "1");
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(cores_go_round),
        cmocka_unit_test(numa_nodes_are_shared_by_neighbours),
        cmocka_unit_test(sockets_are_shared_by_neighbours),
        cmocka_unit_test(hyperthreads_go_round),
        cmocka_unit_test(without_a_description_processors_are_cores),
        cmocka_unit_test(nonsense_of_the_kernel_does_no_harm),
    };

    return cmocka_run_group_tests_name("binding", tests, folder_make, folder_remove);
}
