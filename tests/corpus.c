/* SPDX-License-Identifier: MIT */
#include "corpus.h"

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { LONGEST_INPUT = 1 << 18 };

/* In memory of its own length, so that a sanitizer sees what reads past it. */
static bool replay_file(const char *path, int (*target)(const uint8_t *data, size_t nbytes))
{
    static uint8_t bytes[LONGEST_INPUT];
    FILE *file = fopen(path, "rb");
    size_t n = file ? fread(bytes, 1, sizeof bytes, file) : 0;
    bool is_read = file && feof(file);
    uint8_t *exact = is_read ? malloc(n ? n : 1) : NULL;

    if (file)
        fclose(file);
    for (size_t i = 0; exact && i < n; i++)
        exact[i] = bytes[i];
    if (exact)
        target(exact, n);
    free(exact);
    return exact != NULL;
}

int corpus_replay(const char *folder, int (*target)(const uint8_t *data, size_t nbytes))
{
    char path[PATH_MAX];
    DIR *inputs = opendir(folder);
    struct dirent *input;
    int n = inputs ? 0 : -1;

    while (n >= 0 && (input = readdir(inputs))) {
        if (input->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, input->d_name);
        n = replay_file(path, target) ? n + 1 : -1;
    }
    if (inputs)
        closedir(inputs);
    return n;
}
