/* SPDX-License-Identifier: MIT
 *
 * The environment that a launcher, or anybody else, may set: lines of NAME=VALUE. An input whose
 * first byte is odd is a list of hosts instead. Build it with -fsanitize=fuzzer, or call it as
 * tests/test_launcher_fuzz.c does.
 */
#include "hostlist.h"
#include "kolo.h"
#include "launcher.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

enum { LONGEST_INPUT = 4096, MOST_VARIABLES = 64, LOOKED_AT = 64 };

/* Every host that a count promises can be had, and no more. */
static void check_hosts(const char *list)
{
    char host[KO_HOST_TEXT];
    size_t count, step;
    int tasks;

    (void)ko_hostlist_tasks("L", list, strlen(list) % 7, &tasks);
    if (ko_hostlist_count("L", list, &count))
        return;
    step = count / LOOKED_AT + 1;
    for (size_t i = 0; i < count; i += step)
        if (!ko_hostlist_get("L", list, i, host, sizeof host) && !*host)
            abort();
    if (!ko_hostlist_get("L", list, count, host, sizeof host))
        abort();
}

/* What is taken is in order, and can be told. */
static void check_environment(char *text)
{
    char *list[MOST_VARIABLES + 1], *rest = NULL;
    char described[KO_PLACEMENT_TEXT];
    struct ko_placement placement;
    int n = 0;

    for (char *line = strtok_r(text, "\n", &rest); line && n < MOST_VARIABLES;
         line = strtok_r(NULL, "\n", &rest))
        list[n++] = line;
    list[n] = NULL;
    if (ko_placement_read(list, &placement))
        return;
    if (placement.rank < 0 || placement.rank >= placement.size || placement.port < 0 ||
        placement.port > 65535 || (placement.meeting == KO_MEET_ALONE && placement.size != 1))
        abort();
    ko_placement_describe(&placement, described, sizeof described);
    if (strlen(described) >= sizeof described || !placement.launcher)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    char text[LONGEST_INPUT];

    if (nbytes == 0 || nbytes > sizeof text)
        return 0;
    memcpy(text, data + 1, nbytes - 1);
    text[nbytes - 1] = 0;
    if (data[0] & 1)
        check_hosts(text);
    else
        check_environment(text);
    return 0;
}
