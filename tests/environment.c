/* SPDX-License-Identifier: MIT
 *
 * setenv and unsetenv beside threads that call getenv, as glibc has had them since 2.41 only: tests
 * change the variables of the doubles of drivers, whose own threads read them. The three stand in
 * libc's place in each program of the tests. An array of variables is never changed but replaced,
 * and what is replaced is kept, for a thread may be reading it.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct variables {
    struct variables *replaced;
    char *all[];
};

static struct variables *variables;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool is_name(const char *name)
{
    return name && *name && !strchr(name, '=');
}

static bool is_of(const char *variable, const char *name)
{
    const size_t length = strlen(name);

    return !strncmp(variable, name, length) && variable[length] == '=';
}

/* The doubles of drivers ask with every call: of most variables a letter says that they are others.
 */
char *getenv(const char *name)
{
    char **all = __atomic_load_n(&environ, __ATOMIC_ACQUIRE);

    for (; all && *all; all++)
        if (**all == *name && is_of(*all, name))
            return *all + strlen(name) + 1;
    return NULL;
}

static size_t count(char *const *all)
{
    size_t n = 0;

    while (all && all[n])
        n++;
    return n;
}

/* The variable's entry becomes text; NULL: there is none any more. */
static int replace(const char *name, char *text)
{
    struct variables *next =
        calloc(1, sizeof *next + (count(environ) + 2) * sizeof *next->all); /* text, NULL */
    char **to;
    bool is_put = !text;

    if (!next)
        return -1;
    to = next->all;
    for (char **from = environ; from && *from; from++)
        if (!is_of(*from, name)) {
            *to++ = *from;
        } else if (!is_put) {
            *to++ = text;
            is_put = true;
        }
    if (!is_put)
        *to = text;
    next->replaced = variables;
    variables = next;
    __atomic_store_n(&environ, next->all, __ATOMIC_RELEASE);
    return 0;
}

int setenv(const char *name, const char *value, int is_forced)
{
    char *text = NULL;
    int failed = 0;

    if (!is_name(name)) {
        errno = EINVAL;
        return -1;
    }
    pthread_mutex_lock(&lock);
    if (is_forced || !getenv(name))
        failed = asprintf(&text, "%s=%s", name, value) < 0 ? -1 : replace(name, text);
    if (failed)
        free(text);
    pthread_mutex_unlock(&lock);
    return failed;
}

int unsetenv(const char *name)
{
    int failed;

    if (!is_name(name)) {
        errno = EINVAL;
        return -1;
    }
    pthread_mutex_lock(&lock);
    failed = getenv(name) ? replace(name, NULL) : 0;
    pthread_mutex_unlock(&lock);
    return failed;
}
