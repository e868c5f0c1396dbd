/* SPDX-License-Identifier: MIT
 *
 * double_lists.h: lists of words, as in the variables that the doubles of drivers read.
 */
#ifndef DOUBLE_LISTS_H
#define DOUBLE_LISTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Whether the list, or NULL, names the word, between commas. */
static inline bool double_names(const char *list, const char *word)
{
    const size_t length = strlen(word);

    while (list && *list) {
        const size_t item = strcspn(list, ",");

        if (item == length && !strncmp(list, word, length))
            return true;
        list += item + (list[item] == ',');
    }
    return false;
}

/* The same of a variable. */
static inline bool double_lists(const char *variable, const char *word)
{
    return double_names(getenv(variable), word);
}

#endif
