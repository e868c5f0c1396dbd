/* SPDX-License-Identifier: MIT
 *
 * What was understood of an environment, in one line, and by which variables.
 */
#include "launcher.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void __attribute__((format(printf, 3, 4)))
append(char *text, size_t cap, const char *format, ...)
{
    size_t used = strlen(text);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text + used, cap - used, format, arguments);
    va_end(arguments);
}

static void describe_rank(const struct ko_placement *placement, char *text, size_t cap)
{
    append(text, cap, "rank %d of %d", placement->rank, placement->size);
    if (placement->rank_name)
        append(text, cap, " by %s (%s)", placement->rank_name, placement->launcher);
    else
        append(text, cap, " (%s)", placement->launcher);
    if (placement->local_rank >= 0)
        append(text, cap, ", local rank %d", placement->local_rank);
    if (placement->local_size >= 0)
        append(text, cap, " of %d", placement->local_size);
    if (placement->node >= 0)
        append(text, cap, ", node %d", placement->node);
    if (placement->nnodes >= 0)
        append(text, cap, ", %d node%s", placement->nnodes, placement->nnodes == 1 ? "" : "s");
    if (placement->job[0])
        append(text, cap, ", job %s", placement->job);
    if (placement->restart)
        append(text, cap, ", restart %d", placement->restart);
}

static void describe_meeting(const struct ko_placement *placement, char *text, size_t cap)
{
    static const char *const ways[] = {"it is alone",
                                       "rank 0 serves the store",
                                       "rank 0 serves the store on the first node,",
                                       "the launcher serves the store",
                                       "rank 0 serves the store and says where over PMI",
                                       "rank 0 serves the store and says where over PMIx",
                                       "the store is the file"};

    append(text, cap, "; %s", ways[placement->meeting]);
    if (placement->host[0])
        append(text, cap, " at %s", placement->host);
    if (placement->host[0] && placement->meeting != KO_MEET_FILE)
        append(text, cap, ":%d", placement->port);
    if (placement->address_name)
        append(text, cap, " by %s", placement->address_name);
}

void ko_placement_describe(const struct ko_placement *placement, char *text, size_t cap)
{
    text[0] = 0;
    describe_rank(placement, text, cap);
    describe_meeting(placement, text, cap);
}
