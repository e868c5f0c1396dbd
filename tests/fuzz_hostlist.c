/* SPDX-License-Identifier: MIT
 *
 * A list of hosts, or of tasks, as Slurm writes them and anybody may. The first byte of the input
 * says how much room there is for a host's name. Build it with -fsanitize=fuzzer, or call it as
 * tests/test_hostlist_fuzz.c does.
 */
#include "hostlist.h"
#include "kolo.h"
#include "launcher.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

enum { LONGEST_INPUT = 4096, LOOKED_AT = 8 };

/* Every host that a count promises can be had, unless it is too long, and no more. */
static void check_hosts(const char *list, size_t cap)
{
    char host[KO_HOST_TEXT];
    size_t count, step;
    int err;

    if (ko_hostlist_count("L", list, &count))
        return;
    step = count / LOOKED_AT + 1;
    for (size_t i = 0; i < count; i += step) {
        err = ko_hostlist_get("L", list, i, host, cap);
        if (err ? !strstr(kolo_last_error(), "too long") : !*host || strlen(host) >= cap)
            abort();
    }
    if (!ko_hostlist_get("L", list, count, host, cap))
        abort();
}

static void check_tasks(const char *list, size_t index)
{
    int tasks;

    if (!ko_hostlist_tasks("L", list, index, &tasks) && tasks < 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    char buffer[LONGEST_INPUT];
    char *list = buffer + sizeof buffer - nbytes; /* a byte behind its end is one too far */

    if (nbytes == 0 || nbytes > sizeof buffer)
        return 0;
    memcpy(list, data + 1, nbytes - 1);
    list[nbytes - 1] = 0;
    check_hosts(list, (size_t)*data + 1);
    check_tasks(list, *data);
    return 0;
}
