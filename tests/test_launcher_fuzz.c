/* SPDX-License-Identifier: MIT
 *
 * Some thousands of environments put together from what launchers set, with a few bytes changed,
 * the same in every run, through the fuzz target. The sanitizers and the target's checks are the
 * oracle.
 */
#include "fuzz_launcher.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

enum { ROUNDS = 20000 };

static uint64_t random_state = 0x1234567;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % below;
}

static const char *const names[] = {"KOLO_RANK",
                                    "KOLO_SIZE",
                                    "KOLO_MASTER",
                                    "RANK",
                                    "WORLD_SIZE",
                                    "LOCAL_RANK",
                                    "LOCAL_WORLD_SIZE",
                                    "GROUP_RANK",
                                    "GROUP_WORLD_SIZE",
                                    "MASTER_ADDR",
                                    "MASTER_PORT",
                                    "TORCHELASTIC_RUN_ID",
                                    "TORCHELASTIC_RESTART_COUNT",
                                    "TORCHELASTIC_USE_AGENT_STORE",
                                    "OMPI_COMM_WORLD_RANK",
                                    "OMPI_COMM_WORLD_SIZE",
                                    "PMI_RANK",
                                    "PMI_SIZE",
                                    "PMI_FD",
                                    "PMIX_RANK",
                                    "PMIX_NAMESPACE",
                                    "SLURM_JOB_ID",
                                    "SLURM_STEP_ID",
                                    "SLURM_PROCID",
                                    "SLURM_NTASKS",
                                    "SLURM_STEP_NUM_TASKS",
                                    "SLURM_NODEID",
                                    "SLURM_STEP_TASKS_PER_NODE",
                                    "SLURM_STEP_NODELIST"};
static const char *const values[] = {"0",    "1",           "2",         "4",         "",
                                     "True", "h:5",         "[::1]:80",  "n[01-3,7]", "3(x2),1",
                                     "-1",   "99999999999", "localhost", "4294967291"};
static const char *const pieces[] = {"n", "[", "]", "1", "07-12", ",", "-", "x[1-3]", "9", "(x2)"};

static const char *any(const char *const *list, size_t n)
{
    return list[draw((uint32_t)n)];
}

static void run(char *text)
{
    size_t n = strlen(text + 1) + 1;

    for (uint32_t i = draw(4); i > 1 && n > 1; i--)
        text[1 + draw((uint32_t)n - 1)] =
            (char)(draw(2) ? draw(256) : (uint32_t) "[]-,=:"[draw(6)]);
    assert_int_equal(LLVMFuzzerTestOneInput((const uint8_t *)text, n), 0);
}

static void test_environments(void **state)
{
    char text[LONGEST_INPUT];

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        size_t used = 1;

        text[0] = 2;
        for (uint32_t i = draw(16); i > 0; i--)
            used +=
                (size_t)sprintf(text + used, "%s=%s\n", any(names, sizeof names / sizeof *names),
                                any(values, sizeof values / sizeof *values));
        text[used] = 0;
        run(text);
    }
}

static void test_hosts(void **state)
{
    char text[LONGEST_INPUT];

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        text[0] = 1;
        text[1] = 0;
        for (uint32_t i = draw(24); i > 0; i--)
            strcat(text + 1, any(pieces, sizeof pieces / sizeof *pieces));
        run(text);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_environments),
                                              cmocka_unit_test(test_hosts)};

    setenv("KOLO_DEBUG", "NONE", 1);
    return cmocka_run_group_tests_name("launcher fuzz", tests, NULL, NULL);
}
