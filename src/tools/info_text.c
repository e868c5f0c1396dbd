/* SPDX-License-Identifier: MIT
 *
 * The same facts for people. Control characters in a value are shown as '?', since a terminal would
 * act on them.
 */
#include "info.h"

#include <ctype.h>

static void print_clean(FILE *file, const char *text, int width)
{
    int n = 0;

    for (; *text; text++, n++)
        putc(iscntrl((unsigned char)*text) ? '?' : *text, file);
    for (; n < width; n++)
        putc(' ', file);
}

static void print_facts(FILE *file, const char *title, const struct ko_facts *facts)
{
    fprintf(file, "%s\n", title);
    for (int i = 0; i < facts->count; i++) {
        fprintf(file, "  %-20s ", facts->list[i].name);
        print_clean(file, facts->list[i].text, 0);
        putc('\n', file);
    }
    putc('\n', file);
}

static void print_transports(FILE *file, const struct ko_transport_rows *rows)
{
    fputs("transports, the first that two ranks can use is taken\n", file);
    for (int i = 0; i < rows->count; i++) {
        const struct ko_transport_row *row = &rows->list[i];

        fprintf(file, "  %-20s %-8s ", row->name, row->kind);
        print_clean(file, row->reason[0] ? row->reason : "usable", 0);
        putc('\n', file);
    }
    putc('\n', file);
}

/* Only where there are several. */
static void print_peers(FILE *file, const struct ko_gpus *gpus, int ordinal)
{
    const unsigned peers = gpus->list[ordinal].peers;

    if (gpus->count < 2)
        return;
    if (!peers) {
        fputs("; has no access to the others' memory: by way of the host", file);
        return;
    }
    fputs("; has access to the memory of", file);
    for (int i = 0; i < gpus->count; i++)
        if (peers >> i & 1)
            fprintf(file, " %d", i);
}

static void print_number(FILE *file, int number)
{
    if (number)
        fprintf(file, "%d", number);
    else
        fputs("unknown", file);
}

static void print_gpus(FILE *file, const struct ko_gpus *gpus)
{
    if (gpus->reason[0]) {
        fputs("GPUs\n  none: ", file);
        print_clean(file, gpus->reason, 0);
        fputs("\n\n", file);
        return;
    }
    fprintf(file, "GPUs, by a driver of CUDA %d.%d\n", gpus->driver_version / 1000,
            gpus->driver_version % 1000 / 10);
    for (int i = 0; i < gpus->count; i++) {
        const struct ko_gpu *gpu = &gpus->list[i];

        fprintf(file, "  %-20d %s, compute capability %d.%d, ", i, gpu->name, gpu->major,
                gpu->minor);
        print_number(file, gpu->multiprocessors);
        fprintf(file, " multiprocessors, %zu MiB, %s", gpu->nbytes >> 20, gpu->place);
        print_peers(file, gpus, i);
        if (gpu->without_waits[0]) {
            fputs("; by way of the host: ", file);
            print_clean(file, gpu->without_waits, 0);
        }
        putc('\n', file);
    }
    if (gpus->without_kernels[0]) {
        fputs("  all of them by way of the host: ", file);
        print_clean(file, gpus->without_kernels, 0);
        putc('\n', file);
    }
    putc('\n', file);
}

static void print_algorithms(FILE *file)
{
    int count;
    const struct ko_algorithm_row *rows = ko_algorithm_rows(&count);

    fputs("algorithms: the one that is predicted to be the fastest is taken (--algorithms)\n",
          file);
    for (int i = 0; i < count; i++)
        fprintf(file, "  %-16s %-14s %s\n", rows[i].collective, rows[i].name, rows[i].reason);
    putc('\n', file);
}

static void print_variable(FILE *file, const struct ko_variable *variable)
{
    const struct ko_config_entry *entry = variable->entry;

    fprintf(file, "  %-20s %-5s ", entry->name, ko_config_type_name(entry->type));
    print_clean(file, *variable->value ? variable->value : "-", 10);
    if (variable->is_set)
        fprintf(file, " (environment; default %s)", *entry->standard ? entry->standard : "-");
    else
        fputs(" (default)", file);
    fprintf(file, "\n      %s", entry->help);
    if (entry->type == KO_CONFIG_TYPE_INT || entry->type == KO_CONFIG_TYPE_SIZE)
        fprintf(file, "; %lld to %lld", (long long)entry->low, (long long)entry->high);
    putc('\n', file);
    if (variable->problem[0]) {
        fputs("      WRONG: ", file);
        print_clean(file, variable->problem, 0);
        putc('\n', file);
    }
}

static void print_variables(FILE *file, const struct ko_variables *variables)
{
    fputs("variables\n", file);
    for (int i = 0; i < KO_CONFIG_COUNT; i++)
        print_variable(file, &variables->list[i]);
    for (int i = 0; i < variables->nunknown; i++) {
        fputs("  ", file);
        print_clean(file, variables->unknown[i].name, 20);
        fputs(" UNKNOWN: no variable of kolo's", file);
        if (variables->unknown[i].nearest)
            fprintf(file, "; is %s meant?", variables->unknown[i].nearest);
        putc('\n', file);
    }
}

void ko_info_print_text(const struct ko_info *info, FILE *file)
{
    print_facts(file, "build", &info->build);
    print_facts(file, "machine", &info->machine);
    print_facts(file, "job: what a program started here would join", &info->job);
    print_transports(file, &info->transports);
    print_gpus(file, &info->gpus);
    print_algorithms(file);
    print_variables(file, &info->variables);
}

void ko_info_print_markdown(FILE *file)
{
    fputs("| Variable | Type | Default | Meaning |\n|---|---|---|---|\n", file);
    for (int i = 0; i < KO_CONFIG_COUNT; i++) {
        const struct ko_config_entry *entry = &ko_config_table[i];
        const char *quote = *entry->standard ? "`" : "";

        fprintf(file, "| `%s` | %s | %s%s%s | ", entry->name, ko_config_type_name(entry->type),
                quote, entry->standard, quote);
        for (const char *p = entry->help; *p; p++)
            fprintf(file, *p == '|' ? "\\%c" : "%c", *p);
        fputs(" |\n", file);
    }
}
