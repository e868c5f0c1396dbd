/* SPDX-License-Identifier: MIT
 *
 * Nothing is expanded: a list is read from its start as often as is needed, first to count and then
 * to find one host. A list is items between commas outside brackets; an item is text with groups of
 * ranges in it; its hosts are numbered like the digits of a number, one digit for each group.
 */
#include "hostlist.h"

#include "status.h"

#include <assert.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { MOST_DIGITS = 9, MOST_GROUPS = 8 };

/* "07-12": six numbers, two digits wide. */
struct range {
    size_t low, count;
    int width;
};

static int refuse(const char *name, const char *list, const char *why)
{
    return ko_fail(KOLO_E_INVALID, "%s is \"%.200s\": %s", name, list, why);
}

/* Moves *text past at most MOST_DIGITS digits. The number of them. */
static int read_digits(const char **text, size_t *number)
{
    int digits = 0;

    for (*number = 0; **text >= '0' && **text <= '9' && digits < MOST_DIGITS; (*text)++, digits++)
        *number = *number * 10 + (size_t)(**text - '0');
    return digits;
}

/* Moves *text past one range. NULL, or what is wrong. */
static const char *read_range(const char **text, struct range *range)
{
    size_t high;

    range->width = read_digits(text, &range->low);
    if (!range->width)
        return "a bracket holds numbers and ranges of them";
    high = range->low;
    if (**text == '-') {
        (*text)++;
        if (!read_digits(text, &high))
            return "a range has two ends";
    }
    if (high < range->low)
        return "a range runs upwards";
    range->count = high - range->low + 1;
    return **text == ',' || **text == ']' ? NULL : "a bracket holds numbers and ranges of them";
}

/* Moves *text, behind a "[", past the "]"; *count is the numbers in the bracket. */
static const char *count_group(const char **text, size_t *count)
{
    struct range range;
    const char *wrong;

    *count = 0;
    for (;;) {
        wrong = read_range(text, &range);
        if (wrong)
            return wrong;
        *count += range.count;
        if (*count > KO_HOSTLIST_MAX)
            return "so many hosts cannot be meant";
        if (*(*text)++ == ']')
            return NULL;
    }
}

/* Moves *text past one item: to a comma, or the end. *count is its hosts, at most KO_HOSTLIST_MAX.
 */
static const char *count_item(const char **text, size_t *count)
{
    const char *begin = *text, *wrong;
    size_t group;
    int ngroups = 0;

    *count = 1;
    while (**text && **text != ',') {
        if (**text == ']')
            return "a bracket is closed that was not opened";
        if (*(*text)++ != '[')
            continue;
        if (++ngroups > MOST_GROUPS)
            return "so many brackets cannot be meant";
        wrong = count_group(text, &group);
        if (wrong)
            return wrong;
        *count *= group; /* both at most 2^24 */
        if (*count > KO_HOSTLIST_MAX)
            return "so many hosts cannot be meant";
    }
    return *text == begin ? "a host has no name" : NULL;
}

/* Moves *text past the item that holds host *index, which becomes its place there; *item is where
 * the item begins and *count its hosts. Without such an item *text is at the end. */
static const char *find_item(const char **text, size_t *index, const char **item, size_t *count)
{
    const char *wrong;

    for (;;) {
        *item = *text;
        wrong = count_item(text, count);
        if (wrong || *index < *count)
            return wrong;
        *index -= *count;
        if (!**text)
            return "it has fewer hosts than that";
        (*text)++;
    }
}

int ko_hostlist_count(const char *name, const char *list, size_t *count)
{
    const char *text = list, *wrong;
    size_t sum = 0, item;

    for (;;) {
        wrong = count_item(&text, &item);
        if (!wrong && (sum += item) > KO_HOSTLIST_MAX)
            wrong = "so many hosts cannot be meant";
        if (wrong)
            return refuse(name, list, wrong);
        if (!*text)
            break;
        text++;
    }
    *count = sum;
    return KOLO_OK;
}

/* Appends number `index` of the group behind *text, a "[", and moves *text past it. */
static int print_number(const char **text, size_t index, char *out, size_t cap)
{
    struct range range = {0};
    bool is_found = false;
    int printed = 0;

    do {
        const char *wrong = read_range(text, &range);

        assert(!wrong); /* the item has been counted */
        (void)wrong;
        if (!is_found && index < range.count) {
            printed = snprintf(out, cap, "%0*zu", range.width, range.low + index);
            is_found = true;
        }
        index -= index < range.count ? index : range.count;
    } while (*(*text)++ != ']');
    return printed;
}

/* Prints host `index` of the item from text to end, which has `count` of them. False: no room. */
static bool print_item(const char *text, const char *end, size_t index, size_t count, char *host,
                       size_t cap)
{
    size_t used = 0, group;

    while (text < end) {
        if (*text != '[') {
            host[used++] = *text++;
        } else {
            const char *behind = ++text;

            (void)count_group(&behind, &group);
            count /= group;
            used += (size_t)print_number(&text, index / count, host + used, cap - used);
            index %= count;
        }
        if (used >= cap)
            return false;
    }
    host[used] = 0;
    return true;
}

int ko_hostlist_get(const char *name, const char *list, size_t index, char *host, size_t cap)
{
    const char *text = list, *item;
    size_t count;
    const char *wrong = find_item(&text, &index, &item, &count);

    if (!wrong && !print_item(item, text, index, count, host, cap))
        wrong = "a host's name is too long";
    return wrong ? refuse(name, list, wrong) : KOLO_OK;
}

/* "3" or "3(x2)"; moves *text past it. */
static const char *read_tasks(const char **text, size_t *tasks, size_t *hosts)
{
    *hosts = 1;
    if (!read_digits(text, tasks) || *tasks > INT_MAX)
        return "it takes numbers of tasks, as in 3(x2),1";
    if (**text == '(') {
        if (*++*text != 'x')
            return "it takes numbers of tasks, as in 3(x2),1";
        ++*text;
        if (!read_digits(text, hosts) || !*hosts || *(*text)++ != ')')
            return "it takes numbers of tasks, as in 3(x2),1";
    }
    return **text && **text != ',' ? "it takes numbers of tasks, as in 3(x2),1" : NULL;
}

int ko_hostlist_tasks(const char *name, const char *list, size_t index, int *tasks)
{
    const char *text = list, *wrong;
    size_t number, hosts;

    for (;;) {
        wrong = read_tasks(&text, &number, &hosts);
        if (!wrong && index < hosts)
            break;
        if (!wrong && !*text)
            wrong = "it has fewer hosts than that";
        if (wrong)
            return refuse(name, list, wrong);
        index -= hosts;
        text++;
    }
    *tasks = (int)number;
    return KOLO_OK;
}
