/* SPDX-License-Identifier: MIT */
#include "launch_values.h"

#include "options.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int ko_value_seconds(struct argp_state *state, const char *what, const char *text)
{
    char *end;
    double seconds = strtod(text, &end);

    if (end == text || *end || !isfinite(seconds) || seconds < 0 || seconds > INT_MAX / 1000)
        argp_error(state, "%s is \"%s\"; it takes seconds from 0 to %d", what, text,
                   INT_MAX / 1000);
    return (int)ceil(seconds * 1000);
}

/* Signs of life come twice a second. */
int ko_value_silence(struct argp_state *state, const char *text)
{
    const int ms = ko_value_seconds(state, "--lost-after", text);

    if (ms > 0 && ms < 2000)
        argp_error(state, "--lost-after %s: at least 2 seconds, or 0 for never", text);
    return ms;
}

static int count_processors(void)
{
    cpu_set_t processors;

    CPU_ZERO(&processors);
    return sched_getaffinity(0, sizeof processors, &processors) ? 1 : CPU_COUNT(&processors);
}

int ko_value_nprocs(struct argp_state *state, const char *text)
{
    struct ko_gpu_count gpus = {.count = 0};

    if (*text == 'p') /* of -np4; -np 4 is a short form of --nproc-per-node */
        text++;
    if (!strcmp(text, "cpu"))
        return count_processors();
    if (strcmp(text, "gpu") && strcmp(text, "auto"))
        return ko_option_whole(state, "-n", text, 1, KO_LAUNCH_MOST_RANKS);
    ko_gpus_count(&gpus);
    if (gpus.count == 0 && !strcmp(text, "gpu"))
        argp_error(state, "-n gpu: there is none: %s", gpus.reason);
    return gpus.count ? gpus.count : count_processors();
}

/* "2", or "2:2" as torchrun takes it. */
int ko_value_machines(struct argp_state *state, const char *text)
{
    const char *colon = strchr(text, ':');

    if (colon && (strncmp(text, colon + 1, (size_t)(colon - text)) ||
                  strlen(colon + 1) != (size_t)(colon - text)))
        argp_error(state, "--nnodes %s: the number of machines is fixed; say one", text);
    return ko_option_whole(state, "--nnodes", colon ? colon + 1 : text, 1,
                           INT_MAX / KO_LAUNCH_MOST_RANKS);
}

const char *ko_value_streams(struct argp_state *state, const char *what, const char *text)
{
    if (ko_logs_mask(text, 0) < 0)
        argp_error(state, "%s is \"%s\"; it takes 0 to 3, or a list like 0:1,3:2", what, text);
    return text;
}

/* Open MPI's "core:overload-allowed,if-supported" asks for no more than "core" does. MPICH's
 * "core:2" does: two for each rank. */
static bool is_idle(const char *modifiers)
{
    static const char *const words[] = {"overload-allowed", "no-overload", "if-supported",
                                        "ordered"};
    const size_t length = strcspn(modifiers, ",:");

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (length == strlen(words[i]) && !strncmp(modifiers, words[i], length))
            return !modifiers[length] || is_idle(modifiers + length + 1);
    return false;
}

enum ko_binding ko_value_binding(struct argp_state *state, const char *text)
{
    static const char *const names[] = {"none", "core", "numa", "socket", "hwthread"};
    const size_t length = strcspn(text, ":");
    const bool is_package = length == 7 && !strncmp(text, "package", 7);

    if (length >= 5 && !strncmp(text + length - 5, "cache", 5))
        argp_error(state,
                   "--bind-to %s: kolorun binds to no caches; core, or numa for the last level, is "
                   "nearest",
                   text);
    if (text[length] && !is_idle(text + length + 1))
        argp_error(state,
                   "--bind-to %s: what is behind the colon cannot be heeded; each rank gets one "
                   "core, hwthread, numa node or socket",
                   text);
    if (is_package) /* Open MPI's word for it since 5.0 */
        return KO_BIND_SOCKET;
    for (int i = 0; i < 5; i++)
        if (length == strlen(names[i]) && !strncmp(text, names[i], length))
            return (enum ko_binding)i;
    argp_error(state, "--bind-to is \"%s\"; it takes core, hwthread, numa, socket or none", text);
    return KO_BIND_NONE;
}

/* torchrun's word for a NUMA node is "node". */
enum ko_binding ko_value_numa_binding(struct argp_state *state, const char *text)
{
    if (!strcmp(text, "node") || !strcmp(text, "socket"))
        return *text == 'n' ? KO_BIND_NUMA : KO_BIND_SOCKET;
    argp_error(state,
               "--numa-binding is \"%s\"; it takes node or socket; --bind-to core gives each rank "
               "a core of its own%s",
               text,
               strcmp(text, "core-complex") != 0 ? "" : ", and those of a cache go by taskset(1)");
    return KO_BIND_NONE;
}

bool ko_value_reads_nothing(struct argp_state *state, const char *text)
{
    if (strcmp(text, "none") && strcmp(text, "0"))
        argp_error(state, "--stdin %s: rank 0 alone can read it, by 0, or none; others take a file",
                   text);
    return *text == 'n';
}

/* ---- variables ---------------------------------------------------------------------------- */

/* What holds for kolorun too: it chooses rank 0's port, and meets other machines as ranks do. */
static bool is_for_both(const char *text)
{
    return !strncmp(text, "KOLO_AUTH", strlen("KOLO_AUTH")) ||
           !strncmp(text, "KOLO_PORT_RANGE=", strlen("KOLO_PORT_RANGE=")) ||
           !strncmp(text, "KOLO_IFADDR=", strlen("KOLO_IFADDR="));
}

void ko_export_set(struct argp_state *state, struct ko_launch_options *options, const char *name,
                   const char *value)
{
    const size_t size = sizeof *options->exports * (size_t)(options->nexports + 1);
    char **grown = realloc(options->exports, size);
    char *text;

    if (grown)
        options->exports = grown;
    if (!grown || asprintf(&text, "%s=%s", name, value) < 0) {
        argp_failure(state, KO_EXIT_SELF, ENOMEM, "-x %s", name);
        return;
    }
    options->exports[options->nexports++] = text;
    if (is_for_both(text))
        setenv(name, value, 1);
}

void ko_export_add(struct argp_state *state, struct ko_launch_options *options, const char *text)
{
    const char *equals = strchr(text, '=');
    char *name = strndup(text, equals ? (size_t)(equals - text) : strlen(text));
    const char *value = equals ? equals + 1 : getenv(text);

    if (!name)
        argp_failure(state, KO_EXIT_SELF, ENOMEM, "-x %s", text);
    else if (!*name)
        argp_error(state, "-x takes NAME or NAME=VALUE, not \"%s\"", text);
    else if (value)
        ko_export_set(state, options, name, value);
    else
        argp_error(state, "-x %s: no such variable here; -x %s=VALUE sets it", text, text);
    free(name);
}

void ko_exports_free(struct ko_launch_options *options)
{
    for (int i = 0; i < options->nexports; i++)
        free(options->exports[i]);
    free(options->exports);
}
