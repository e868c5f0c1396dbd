/* SPDX-License-Identifier: MIT
 *
 * As much of a library of MPI's as one asks who wants to know whether MPI runs; how it stands is
 * the environment's to say.
 */
#include <stdlib.h>
#include <string.h>

int MPI_Initialized(int *flag);
int MPI_Finalized(int *flag);

static int is_at(const char *stage)
{
    const char *at = getenv("FAKEMPI");

    return at && !strcmp(at, stage);
}

__attribute__((visibility("default"))) int MPI_Initialized(int *flag)
{
    *flag = is_at("running") || is_at("over");
    return 0;
}

__attribute__((visibility("default"))) int MPI_Finalized(int *flag)
{
    *flag = is_at("over");
    return 0;
}
