/* SPDX-License-Identifier: MIT
 *
 * A library of MPI's is known by its file's name among those loaded: Python and its like open it so
 * that nobody else sees its symbols.
 */
#include "beside_mpi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int ask_function(int *flag);

static ask_function *find(void *handle, const char *name)
{
    void *symbol = dlsym(handle, name);
    ask_function *function = NULL;

    memcpy(&function, &symbol, sizeof function);
    return function;
}

static enum ko_mpi ask(void *handle)
{
    ask_function *const initialized = find(handle, "MPI_Initialized");
    ask_function *const finalized = find(handle, "MPI_Finalized");
    int has_begun = 0, has_ended = 0;

    if (!initialized || !finalized || initialized(&has_begun) || finalized(&has_ended))
        return KO_MPI_NONE;
    return has_ended ? KO_MPI_OVER : has_begun ? KO_MPI_RUNNING : KO_MPI_BEFORE;
}

static enum ko_mpi ask_file(const char *path)
{
    void *const handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    const enum ko_mpi state = handle ? ask(handle) : KO_MPI_NONE;

    if (handle)
        dlclose(handle);
    return state;
}

/* "/lib/libmpi.so.40", "libmpich.so.12", of those mapped here; but tools for MPI are called so,
 * too.
 */
enum ko_mpi ko_mpi_state(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    enum ko_mpi state = KO_MPI_NONE;
    char *line = NULL, *name;
    size_t cap = 0;

    while (maps && state == KO_MPI_NONE && getline(&line, &cap, maps) >= 0) {
        line[strcspn(line, "\n")] = 0;
        name = strrchr(line, '/');
        if (name && !strncmp(name, "/libmpi", 7))
            state = ask_file(strchr(line, '/'));
    }
    free(line);
    if (maps)
        fclose(maps);
    return state;
}

/* ---- at the end ---------------------------------------------------------------------------- */

static struct {
    void (*act)(void);
    pid_t process;
} at_end;

static void act_at_end(void)
{
    if (at_end.process == getpid())
        at_end.act();
}

static void plan(void)
{
    at_end.process = getpid();
    (void)atexit(act_at_end);
}

void ko_mpi_at_end(void (*act)(void))
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    at_end.act = act;
    pthread_once(&once, plan);
}
