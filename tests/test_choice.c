/* SPDX-License-Identifier: MIT
 *
 * Choosing by prediction: what is allowed, what wins, what is asked for; and the files of costs by
 * which it is done.
 */
#include "choice.h"
#include "group_wishes.h"
#include "layout.h"
#include "tuning.h"

#include <limits.h>
#include <locale.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static struct ko_hosts *hosts_of(int n, int per_host)
{
    struct ko_hosts *hosts;

    assert_int_equal(ko_layout_even(n, per_host, &hosts), 0);
    return hosts;
}

/* The name of what 2^power bytes go by. */
static const char *choice(const struct ko_costs *costs, int n, int per_host,
                          enum ko_collective what, int power)
{
    struct ko_hosts *hosts = hosts_of(n, per_host);
    const struct ko_situation situation = {
        .n = n, .hosts = hosts, .costs = costs, .slice_bytes = 131072, .slots = 8};
    double us;
    int row = ko_choose(&situation, what, false, ko_size_class((size_t)1 << power), -1, &us);

    free(hosts);
    assert_true(row >= 0 && us > 0);
    return ko_paper_texts[row].name;
}

static int row_of(enum ko_collective what, const char *name)
{
    for (int i = 0; i < ko_npaper_texts; i++)
        if (ko_paper_texts[i].what == what && !strcmp(ko_paper_texts[i].name, name))
            return i;
    fail_msg("no %s", name);
    return -1;
}

/* ---- choices ----------------------------------------------------------------------------- */

static void sizes_have_classes(void **state)
{
    (void)state;
    assert_int_equal(ko_size_class(0), 0);
    assert_int_equal(ko_size_class(1), 1);
    assert_int_equal(ko_size_class(2), 2);
    assert_int_equal(ko_size_class(3), 2);
    assert_int_equal(ko_size_class(4), 3);
    assert_int_equal(ko_size_class(SIZE_MAX - 1), 64);
    assert_int_equal(ko_size_class(SIZE_MAX), KO_SIZE_CLASSES - 1);
}

static void what_is_cheap_decides(void **state)
{
    struct ko_costs costs = ko_default_costs;

    (void)state;
    assert_string_equal(choice(&costs, 2, 2, KO_ALL_REDUCE, 3), "one_shot");
    assert_string_equal(choice(&costs, 2, 2, KO_ALL_REDUCE, 20), "two_shot");
    assert_string_equal(choice(&costs, 64, 8, KO_ALL_REDUCE, 16), "hierarchical_doubling");
    assert_string_equal(choice(&costs, 64, 8, KO_REDUCE, 17), "hierarchical_tree");
    assert_string_equal(choice(&costs, 64, 8, KO_BROADCAST, 17), "hierarchical_tree");
    assert_string_equal(choice(&costs, 64, 8, KO_BROADCAST, 26), "hierarchical");
    /* on a wire of 1 Gbit/s the root's host had better send it once (measured) */
    costs.links[KO_REMOTE].wire_byte = 8e-3;
    assert_string_equal(choice(&costs, 8, 2, KO_BROADCAST, 20), "hierarchical");
    costs = ko_default_costs;
    /* where bytes cost nothing, the fewest steps win; where time to cross costs nothing, bytes */
    costs.links[KO_REMOTE].latency = 1000;
    assert_string_equal(choice(&costs, 64, 1, KO_BARRIER, 0), "dissemination");
    costs.links[KO_REMOTE].latency = 0;
    costs.links[KO_REMOTE].wire_byte = 1;
    assert_string_equal(choice(&costs, 16, 8, KO_ALL_REDUCE, 20), "hierarchical");
    /* ranks that share cores: the fewest turns, while that takes few links */
    costs.cores = 2;
    assert_string_equal(choice(&costs, 2, 2, KO_BARRIER, 0), "dissemination");
    assert_string_equal(choice(&costs, 4, 4, KO_BARRIER, 0), "direct");
    costs.links[KO_LOCAL].latency = 1000;
    assert_string_equal(choice(&costs, 8, 8, KO_BARRIER, 0), "direct");
    assert_string_equal(choice(&costs, 9, 9, KO_BARRIER, 0), "dissemination");
}

static void flags_are_kept_to(void **state)
{
    struct ko_hosts *hosts = hosts_of(4, 4);
    struct ko_situation situation = {.n = 4,
                                     .hosts = hosts,
                                     .costs = &ko_default_costs,
                                     .slice_bytes = 1024,
                                     .slots = 8,
                                     .is_ordered = true};
    const int ring = row_of(KO_ALL_REDUCE, "ring"), bruck = row_of(KO_ALL_TO_ALL, "bruck");
    double us;

    (void)state;
    assert_false(ko_choice_allows(&situation, ring, false, 5));
    assert_true(ko_choice_allows(&situation, row_of(KO_ALL_REDUCE, "two_shot"), false, 5));
    assert_true(ko_choice_allows(&situation, row_of(KO_ALL_GATHER, "ring"), false, 5));
    assert_true(ko_choice_allows(&situation, bruck, false, 8)); /* up to 255 bytes of each rank */
    assert_false(ko_choice_allows(&situation, bruck, false, 9));
    assert_false(ko_choice_allows(&situation, bruck, true, 8));
    /* a wish that is not allowed is not followed */
    assert_int_not_equal(ko_choose(&situation, KO_ALL_REDUCE, false, 20, ring, &us), ring);
    situation.is_ordered = false;
    assert_int_equal(ko_choose(&situation, KO_ALL_REDUCE, false, 20, ring, &us), ring);
    assert_int_equal(ko_choose(&situation, KO_ALL_REDUCE, false, 30, 0, &us), 0); /* one_shot */
    for (int what = 0; what < KO_NCOLLECTIVES; what++)
        for (int class = 0; class < KO_SIZE_CLASSES; class ++)
            assert_true(ko_choose(&situation, (enum ko_collective)what, true, class, -1, &us) >= 0);
    free(hosts);
}

/* More ranks than can be simulated get what a few of them tell is the best. */
static void many_ranks_choose_by_prediction_too(void **state)
{
    static const int ns[] = {129, 1000, 5000, 100000};
    static const int per_hosts[] = {1, 8, 5000};

    (void)state;
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 3; k++)
            for (int what = 0; what < KO_NCOLLECTIVES; what++) /* choice() wants a time, too */
                assert_non_null(
                    choice(&ko_default_costs, ns[i], per_hosts[k], (enum ko_collective)what, 12));
    assert_string_equal(choice(&ko_default_costs, 100000, 1, KO_ALL_REDUCE, 3), "doubling");
    assert_string_equal(choice(&ko_default_costs, 100000, 8, KO_ALL_REDUCE, 16),
                        "hierarchical_doubling");
    assert_string_equal(choice(&ko_default_costs, 100000, 1, KO_BARRIER, 0), "dissemination");
    assert_string_equal(choice(&ko_default_costs, 100000, 8, KO_BARRIER, 0), "hierarchical");
}

/* Those who add up for a host list its ranks. */
static void hosts_may_have_many_ranks(void **state)
{
    (void)state;
    for (int what = 0; what < KO_NCOLLECTIVES; what++)
        assert_non_null(choice(&ko_default_costs, 128, 100, (enum ko_collective)what, 12));
}

/* ---- wishes ------------------------------------------------------------------------------ */

static void wishes_are_read(void **state)
{
    short rows[KO_NCOLLECTIVES];

    (void)state;
    assert_int_equal(ko_wishes_read("", rows), 0);
    for (int i = 0; i < KO_NCOLLECTIVES; i++)
        assert_int_equal(rows[i], -1);
    assert_int_equal(ko_wishes_read("ring,all_reduce=halving", rows), 0);
    assert_int_equal(rows[KO_ALL_REDUCE], row_of(KO_ALL_REDUCE, "halving"));
    assert_int_equal(rows[KO_BROADCAST], row_of(KO_BROADCAST, "ring"));
    assert_int_equal(rows[KO_BARRIER], -1);
    assert_int_equal(ko_wishes_read("rings", rows), KOLO_E_INVALID);
    assert_non_null(strstr(kolo_last_error(), "\"rings\", which no collective has"));
    assert_int_equal(ko_wishes_read("ring,barrier=ring", rows), KOLO_E_INVALID);
    assert_non_null(
        strstr(kolo_last_error(),
               "KOLO_ALGO asks for barrier by \"ring\", which it does not have; it has "));
    assert_int_equal(ko_wishes_read("reduction=ring", rows), KOLO_E_INVALID);
    assert_non_null(
        strstr(kolo_last_error(), "\"reduction\", which is no collective; there are all_reduce, "));
    assert_int_equal(ko_wishes_read(",", rows), KOLO_E_INVALID);
}

static void wishes_do_not_contradict(void **state)
{
    static const char *const wrong[] = {"all_reduce=ring,all_reduce=doubling",
                                        "allreduce=ring,barrier=dissemination,AllReduce=doubling",
                                        "ring,doubling"};
    short rows[KO_NCOLLECTIVES];

    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ko_wishes_read(wrong[i], rows), KOLO_E_INVALID);
        assert_non_null(strstr(kolo_last_error(),
                               "KOLO_ALGO asks for all_reduce by both \"ring\" and \"doubling\""));
    }
    assert_int_equal(ko_wishes_read("all_reduce=ring,all_reduce=ring,ring", rows), KOLO_OK);
    assert_int_equal(rows[KO_ALL_REDUCE], row_of(KO_ALL_REDUCE, "ring"));
    assert_int_equal(ko_wishes_read("all_reduce=halving,ring", rows), KOLO_OK); /* as behind it */
    assert_int_equal(rows[KO_ALL_REDUCE], row_of(KO_ALL_REDUCE, "halving"));
    assert_int_equal(rows[KO_BROADCAST], row_of(KO_BROADCAST, "ring"));
}

static void collectives_are_spelt_in_several_ways(void **state)
{
    static const char *const spellings[] = {"reduce_scatter", "reducescatter", "ReduceScatter",
                                            "REDUCE_SCATTER", "_reduce__scatter_"};
    static const char *const others[] = {"", "_", "reduce_scatte", "reduce_scatters",
                                         "reduce-scatter"};
    short rows[KO_NCOLLECTIVES];

    (void)state;
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++)
        assert_int_equal(ko_collective_find(spellings[i], strlen(spellings[i])), KO_REDUCE_SCATTER);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_equal(ko_collective_find(others[i], strlen(others[i])), -1);
    assert_int_equal(ko_collective_find("reduce_scatter", strlen("reduce")), KO_REDUCE);
    assert_int_equal(ko_wishes_read("allreduce=ring", rows), KOLO_OK);
    assert_int_equal(rows[KO_ALL_REDUCE], row_of(KO_ALL_REDUCE, "ring"));
}

/* ---- files ------------------------------------------------------------------------------- */

struct scratch {
    char path[64];
};

static int open_scratch(void **state)
{
    static struct scratch scratch;
    int fd;

    snprintf(scratch.path, sizeof scratch.path, "/tmp/test-tuning-XXXXXX");
    fd = mkstemp(scratch.path);
    assert_true(fd >= 0);
    close(fd);
    *state = &scratch;
    return 0;
}

static int close_scratch(void **state)
{
    return unlink(((struct scratch *)*state)->path);
}

/* As of this machine, whatever it is. */
static struct ko_costs costs_of_one_core(void)
{
    struct ko_costs costs = ko_default_costs;

    costs.cores = 1;
    return costs;
}

static void costs_survive_a_file(void **state)
{
    const struct scratch *scratch = *state;
    struct ko_costs costs = costs_of_one_core(), read;

    costs.links[KO_REMOTE].latency = 12.5;
    costs.copy_byte[5] = 3e-4;
    costs.reading = (struct ko_reading_costs){0.25, {1e-4, 2e-4}, {[5] = 3e-4}, 4e6};
    assert_int_equal(ko_tuning_write(scratch->path, &costs), 0);
    assert_int_equal(ko_tuning_read(scratch->path, &read), 0);
    assert_memory_equal(&read, &costs, sizeof costs);
    setenv("KOLO_TUNING", scratch->path, 1);
    assert_int_equal(ko_tuning_get(&read), 0);
    assert_memory_equal(&read, &costs, sizeof costs);
    setenv("KOLO_SLICE_BYTES", "64K", 1);
    assert_int_equal(ko_tuning_get(&read), KOLO_E_INVALID);
    assert_non_null(strstr(kolo_last_error(), "but this is kolo"));
    assert_non_null(strstr(kolo_last_error(), "slices of 65536 bytes; make a new one"));
    assert_int_equal(ko_tuning_read_any("--costs", scratch->path, &read), 0);
    unsetenv("KOLO_SLICE_BYTES");
    unsetenv("KOLO_TUNING");
    assert_int_equal(ko_tuning_get(&read), 0);
    assert_true(read.cores >= 1);
}

/* A language that writes 0,5: programs that are in one read a file of points, and write one. */
static void numbers_have_points_in_every_language(void **state)
{
    const struct scratch *scratch = *state;
    struct ko_costs costs = costs_of_one_core(), read;
    char command[512], text[32];
    int status;

    snprintf(command, sizeof command,
             "mkdir %s.d && printf 'LC_NUMERIC\\ndecimal_point \",\"\\nthousands_sep \"\"\\n"
             "grouping -1\\nEND LC_NUMERIC\\n' >%s.d/source && "
             "localedef -c -i %s.d/source %s.d/comma >/dev/null 2>&1",
             scratch->path, scratch->path, scratch->path, scratch->path);
    (void)!system(command);
    snprintf(command, sizeof command, "%s.d", scratch->path);
    setenv("LOCPATH", command, 1);
    (void)setlocale(LC_NUMERIC, "comma");
    costs.copy_byte[5] = 0.5;
    status = ko_tuning_write(scratch->path, &costs);
    if (!status)
        status = ko_tuning_read(scratch->path, &read);
    snprintf(text, sizeof text, "%g", 0.5);
    snprintf(command, sizeof command, "grep -q '^copy_byte.128M 0\\.5$' %s", scratch->path);
    status = status ? status : system(command);
    setlocale(LC_NUMERIC, "C");
    unsetenv("LOCPATH");
    snprintf(command, sizeof command, "rm -r %s.d", scratch->path);
    assert_int_equal(system(command), 0);
    assert_int_equal(status, 0);
    assert_memory_equal(&read, &costs, sizeof costs);
    if (strcmp(text, "0,5") != 0)
        skip();
}

/* What would be waited for, or never end, is refused at once. */
static void only_files_are_read(void **state)
{
    static const char *const others[] = {"/tmp", "/dev/zero", NULL};
    char pipe[96];
    struct ko_costs read;

    snprintf(pipe, sizeof pipe, "%s.pipe", ((const struct scratch *)*state)->path);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    for (int i = 0; i < 3; i++) {
        alarm(10); /* rather than wait for somebody to write */
        assert_int_equal(ko_tuning_read(others[i] ? others[i] : pipe, &read), KOLO_E_INVALID);
        alarm(0);
        assert_non_null(strstr(kolo_last_error(), i ? "cannot be read: Not a regular file; make"
                                                    : "cannot be read: Is a directory; make"));
    }
    unlink(pipe);
    assert_int_equal(ko_tuning_read(pipe, &read), KOLO_E_INVALID);
    assert_non_null(strstr(kolo_last_error(), "No such file"));
}

/* Where slices are not read out of other processes, no price for that counts. */
static void costs_follow_the_protocols(void **state)
{
    const struct scratch *scratch = *state;
    const struct ko_costs costs = costs_of_one_core();
    struct ko_costs read;

    assert_int_equal(ko_tuning_write(scratch->path, &costs), 0);
    for (int has_file = 0; has_file < 2; has_file++) {
        setenv("KOLO_PROTO", "inline,try-cma", 1);
        assert_int_equal(ko_tuning_get(&read), 0);
        assert_true(read.reading.cache > 0);
        setenv("KOLO_PROTO", "inline,reference", 1);
        assert_int_equal(ko_tuning_get(&read), 0);
        assert_true(read.reading.cache <= 0);
        setenv("KOLO_PROTO", "inlin", 1);
        assert_int_equal(ko_tuning_get(&read), KOLO_E_INVALID);
        setenv("KOLO_TUNING", scratch->path, 1);
    }
    unsetenv("KOLO_PROTO");
    unsetenv("KOLO_TUNING");
}

/* Ranks are often bound to a core each; the file is of the machine all the same. */
static void costs_are_those_of_a_bound_rank_too(void **state)
{
    const struct scratch *scratch = *state;
    const struct ko_costs costs = costs_of_one_core();
    struct ko_costs read;
    cpu_set_t all, one;
    size_t core = 0;
    int err;

    assert_int_equal(ko_tuning_write(scratch->path, &costs), 0);
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    while (!CPU_ISSET(core, &all))
        core++;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    err = ko_tuning_read(scratch->path, &read);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_int_equal(err, 0);
    assert_memory_equal(&read, &costs, sizeof read);
}

/* Writes the file with `from` replaced by `to`, up to `end`. */
static void spoil(const char *path, const char *from, const char *to, const char *end)
{
    const struct ko_costs costs = costs_of_one_core();
    char text[8192], *at;
    size_t length;
    FILE *file;

    assert_int_equal(ko_tuning_write(path, &costs), 0);
    file = fopen(path, "r");
    assert_non_null(file);
    length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    if (end)
        *strstr(text, end) = 0;
    file = fopen(path, "w");
    assert_non_null(file);
    at = strstr(text, from);
    assert_non_null(at);
    fprintf(file, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    fclose(file);
}

static void wrong_files_are_refused(void **state)
{
    const struct scratch *scratch = *state;
    static const struct {
        const char *from, *to, *end, *says;
    } cases[] = {
        {"kolo tuning 5", "kolo tuning 4", NULL, "line 1: this tuning file is stale"},
        {"kolo tuning 5\n", "", NULL, "line 1: this is no tuning file"},
        {"kolo 0", "kolo 990", NULL, "line 2: it is stale: kolo 990."},
        {"slices of ", "slices of 9", NULL, "line 2: it is stale: kolo "},
        {"kolo 0", "made by 0", NULL, "line 2: the version of kolo is missing"},
        {"machine ", "machine Z80 and ", NULL, "line 3: it was measured on \"Z80 and "},
        {"machine ", "engine ", NULL, "line 3: the machine is missing"},
        {"local.latency ", "local.latency x", NULL, "line 4: what follows the name is no number"},
        {"local.latency ", "local.latency -", NULL, "local.latency is -0.06, which it cannot be"},
        {"local.latency ", "local.latency", NULL, "line 4: this is no name with a number"},
        {"local.latency ", "local.lateness ", NULL, "line 4: no number has this name"},
        {"local.send ", "local.latency ", NULL, "line 5: the number is there twice"},
        {"local.latency 0.06\n", "", NULL, "local.latency is missing"},
        {"reading.call 0.5\n", "", NULL, "reading.call is missing"},
        {"reading.cache ", "reading.cache -", NULL, "which it cannot be"},
        {"local.latency ", "local.latency nan", "0.06", "line 4: the line is too long, or cut off"},
        {"\ncores 1", "\ncores 0.5", NULL, "cores is 0.5"},
        {"\ncores 1", "\ncores 65000", NULL, "cores is 65000, but this machine has "},
        {"\nend\n", "\nend\nkolo tuning 5\n", NULL, "there is more behind the \"end\""},
        {", caches of ", ", caches of 1", NULL, "line 3: it was measured on "},
        {"kolo", "kolo", "wake", "the file ends without its \"end\""},
        {"kolo", "kolo", "06\n", "the line is too long, or cut off"},
    };
    struct ko_costs costs;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        spoil(scratch->path, cases[i].from, cases[i].to, cases[i].end);
        if (ko_tuning_read(scratch->path, &costs) != KOLO_E_INVALID)
            fail_msg("case %zu was taken", i);
        if (!strstr(kolo_last_error(), cases[i].says) ||
            !strstr(kolo_last_error(), scratch->path) ||
            !strstr(kolo_last_error(), "make a new one with kolo-perf --tune"))
            fail_msg("case %zu: %s", i, kolo_last_error());
    }
    assert_int_equal(ko_tuning_read("/no/such/file", &costs), KOLO_E_INVALID);
    assert_non_null(strstr(kolo_last_error(), "/no/such/file cannot be read: No such file"));
}

static void what_cannot_be_written_is_told(void **state)
{
    struct ko_costs costs = ko_default_costs;
    char path[PATH_MAX + 64], folder[] = "/tmp/test-tuning-XXXXXX";

    (void)state;
    assert_int_equal(ko_tuning_write("/no/such/folder/file", &costs), KOLO_E_SYSTEM);
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = 0;
    assert_int_equal(ko_tuning_write(path, &costs), KOLO_E_INVALID);
    assert_non_null(mkdtemp(folder)); /* which no file replaces; nothing is left beside it */
    assert_int_equal(ko_tuning_write(folder, &costs), KOLO_E_SYSTEM);
    snprintf(path, sizeof path, "%s.%d", folder, (int)getpid());
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(rmdir(folder), 0);
    costs.call = -1;
    assert_int_equal(ko_tuning_write("/tmp/never", &costs), KOLO_E_INVALID);
    assert_non_null(strstr(kolo_last_error(), "call is -1"));
}

/* Files of different machines must not pass for each other's. */
static void processors_have_names(void **state)
{
    static const struct {
        char text[200];
        const char *name;
    } rows[] = {
        {"processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\nstepping\t: 1\n"
         "cache\t: 1\ncpu family\t: 6\nmodel\t\t: 5\nmodel name\t: x\nstepping\t: 9\n",
         "AMD EPYC family 25 model 17 stepping 1"},
        {"processor\t: 0\nCPU implementer\t: 0x41\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\n"
         "CPU revision\t: 1\n",
         "processor 0x41 0xd0c variant 0x3 revision 1"},
        {"processor\t: 0\n", "unknown processor"},
    };
    char name[100];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[sizeof rows->text];
        FILE *file;

        memcpy(text, rows[i].text, sizeof text);
        file = fmemopen(text, strlen(text), "r");
        assert_non_null(file);
        ko_tuning_processor(file, name, sizeof name);
        assert_string_equal(name, rows[i].name);
        fclose(file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_have_classes),
        cmocka_unit_test(what_is_cheap_decides),
        cmocka_unit_test(flags_are_kept_to),
        cmocka_unit_test(many_ranks_choose_by_prediction_too),
        cmocka_unit_test(hosts_may_have_many_ranks),
        cmocka_unit_test(wishes_are_read),
        cmocka_unit_test(wishes_do_not_contradict),
        cmocka_unit_test(collectives_are_spelt_in_several_ways),
        cmocka_unit_test_setup_teardown(costs_survive_a_file, open_scratch, close_scratch),
        cmocka_unit_test_setup_teardown(numbers_have_points_in_every_language, open_scratch,
                                        close_scratch),
        cmocka_unit_test_setup_teardown(only_files_are_read, open_scratch, close_scratch),
        cmocka_unit_test_setup_teardown(costs_follow_the_protocols, open_scratch, close_scratch),
        cmocka_unit_test_setup_teardown(costs_are_those_of_a_bound_rank_too, open_scratch,
                                        close_scratch),
        cmocka_unit_test_setup_teardown(wrong_files_are_refused, open_scratch, close_scratch),
        cmocka_unit_test(what_cannot_be_written_is_told),
        cmocka_unit_test(processors_have_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
