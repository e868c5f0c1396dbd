/* SPDX-License-Identifier: MIT
 *
 * The double's variables. A count belongs to the text of its variable: another text begins anew.
 */
#include "double.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_COUNTS = 64, MOST_TEXT = 256 };

static struct {
    char name[64], text[MOST_TEXT];
    int count;
} counts[MOST_COUNTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* How often it has been asked for name while the text was this. */
static int count(const char *name, const char *text)
{
    int i = 0, n;

    pthread_mutex_lock(&lock);
    while (i < MOST_COUNTS - 1 && counts[i].name[0] && strcmp(counts[i].name, name) != 0)
        i++;
    if (strcmp(counts[i].text, text) != 0) {
        snprintf(counts[i].text, MOST_TEXT, "%s", text);
        counts[i].count = 0;
    }
    snprintf(counts[i].name, sizeof counts[i].name, "%s", name);
    n = ++counts[i].count;
    pthread_mutex_unlock(&lock);
    return n;
}

int double_break(const char *function)
{
    const char *all = getenv("FAKEVERBS_BREAK");
    const size_t length = strlen(function);

    for (const char *wish = all; wish && *wish;
         wish = strchr(wish, ',') ? strchr(wish, ',') + 1 : NULL) {
        char *end = (char *)(uintptr_t)wish + length;
        long from = 1, to = LONG_MAX, n;

        if (strncmp(wish, function, length) != 0 || (*end != '@' && *end != '='))
            continue;
        if (*end == '@')
            from = strtol(end + 1, &end, 10);
        if (*end == '-')
            to = strtol(end + 1, &end, 10);
        n = count(function, all);
        if (n >= from && n <= to)
            return atoi(end + 1);
    }
    return 0;
}

bool double_is_due(const char *variable, int *a, int *b)
{
    const char *text = getenv(variable);
    char *at;
    long n;

    if (!text || !*text)
        return false;
    n = strtol(text, &at, 10);
    if (count(variable, text) != n || *at != '=')
        return false;
    *a = (int)strtol(at + 1, &at, 10);
    *b = *at == '/' ? atoi(at + 1) : 0;
    return true;
}

long double_number(const char *variable, long standard)
{
    const char *text = getenv(variable);

    return text && *text ? atol(text) : standard;
}

bool double_is_meant(const struct ko_ib_context *context)
{
    const char *only = getenv("FAKEVERBS_ONLY");

    return !only || !*only || !strcmp(only, ((const struct double_device *)context->device)->name);
}
