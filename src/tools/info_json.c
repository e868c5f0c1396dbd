/* SPDX-License-Identifier: MIT
 *
 * The same facts for programs. The document is one object; its members are described in
 * kolo-info(1). Text that is not UTF-8 (a variable can hold any bytes) has U+FFFD in place of each
 * byte that does not fit, so that the document always parses.
 */
#include "info.h"

#include "json.h"

/* "name": "text", with what separates it from the member before. */
static void print_member(FILE *file, const char *before, const char *name, const char *text)
{
    fprintf(file, "%s\"%s\": ", before, name);
    if (text)
        ko_json_string(file, text);
    else
        fputs("null", file);
}

static void print_facts(FILE *file, const char *name, const struct ko_facts *facts)
{
    fprintf(file, "  \"%s\": {", name);
    for (int i = 0; i < facts->count; i++) {
        const struct ko_fact *fact = &facts->list[i];
        const char *before = i ? ",\n    " : "\n    ";

        if (fact->is_number)
            fprintf(file, "%s\"%s\": %s", before, fact->name, fact->text);
        else
            print_member(file, before, fact->name, fact->text);
    }
    fputs("\n  },\n", file);
}

static void print_transports(FILE *file, const struct ko_transport_rows *rows)
{
    fputs("  \"transports\": [", file);
    for (int i = 0; i < rows->count; i++) {
        const char *reason = rows->list[i].reason;

        print_member(file, i ? ",\n    {" : "\n    {", "name", rows->list[i].name);
        print_member(file, ", ", "kind", rows->list[i].kind);
        fprintf(file, ", \"usable\": %s", *reason ? "false" : "true");
        print_member(file, ", ", "reason", *reason ? reason : NULL);
        putc('}', file);
    }
    fputs("\n  ],\n", file);
}

static void print_peers(FILE *file, unsigned peers)
{
    const char *separator = "";

    fputs(", \"peers\": [", file);
    for (int i = 0; i < KO_GPUS_CAP; i++)
        if (peers >> i & 1) {
            fprintf(file, "%s%d", separator, i);
            separator = ", ";
        }
    fputs("]}", file);
}

static void print_gpus(FILE *file, const struct ko_gpus *gpus)
{
    fprintf(file, "  \"gpus\": {\"driver_version\": %d", gpus->driver_version);
    print_member(file, ", ", "reason", *gpus->reason ? gpus->reason : NULL);
    print_member(file, ", ", "without_kernels",
                 *gpus->without_kernels ? gpus->without_kernels : NULL);
    fputs(", \"list\": [", file);
    for (int i = 0; i < gpus->count; i++) {
        const struct ko_gpu *gpu = &gpus->list[i];

        print_member(file, i ? ",\n    {" : "\n    {", "name", gpu->name);
        print_member(file, ", ", "pci", gpu->place);
        fprintf(file,
                ", \"capability\": [%d, %d], \"bytes\": %zu, \"multiprocessors\": ", gpu->major,
                gpu->minor, gpu->nbytes);
        if (gpu->multiprocessors)
            fprintf(file, "%d", gpu->multiprocessors);
        else
            fputs("null", file);
        print_member(file, ", ", "without_waits", *gpu->without_waits ? gpu->without_waits : NULL);
        print_peers(file, gpu->peers);
    }
    fputs("]},\n", file);
}

static void print_algorithms(FILE *file)
{
    int count;
    const struct ko_algorithm_row *rows = ko_algorithm_rows(&count);

    fputs("  \"algorithms\": [", file);
    for (int i = 0; i < count; i++) {
        print_member(file, i ? ",\n    {" : "\n    {", "collective", rows[i].collective);
        print_member(file, ", ", "name", rows[i].name);
        print_member(file, ", ", "reason", rows[i].reason);
        putc('}', file);
    }
    fputs("\n  ],\n", file);
}

static void print_variable(FILE *file, const struct ko_variable *variable)
{
    const struct ko_config_entry *entry = variable->entry;

    print_member(file, "    {", "name", entry->name);
    print_member(file, ", ", "type", ko_config_type_name(entry->type));
    print_member(file, ", ", "default", entry->standard);
    print_member(file, ", ", "value", variable->value);
    print_member(file, ", ", "source", variable->is_set ? "environment" : "default");
    if (entry->type > KO_CONFIG_TYPE_SECRET) /* a number */
        fprintf(file, ", \"low\": %lld, \"high\": %lld", (long long)entry->low,
                (long long)entry->high);
    print_member(file, ", ", "problem", variable->problem[0] ? variable->problem : NULL);
    print_member(file, ", ", "help", entry->help);
    putc('}', file);
}

static void print_variables(FILE *file, const struct ko_variables *variables, int nproblems)
{
    fputs("  \"variables\": [\n", file);
    for (int i = 0; i < KO_CONFIG_COUNT; i++) {
        print_variable(file, &variables->list[i]);
        fputs(i + 1 < KO_CONFIG_COUNT ? ",\n" : "\n  ],\n", file);
    }
    fputs("  \"unknown_variables\": [", file);
    for (int i = 0; i < variables->nunknown; i++) {
        print_member(file, i ? ",\n    {" : "\n    {", "name", variables->unknown[i].name);
        print_member(file, ", ", "nearest", variables->unknown[i].nearest);
        putc('}', file);
    }
    fputs(variables->nunknown ? "\n  ],\n" : "],\n", file);
    fprintf(file, "  \"problems\": %d\n", variables->nproblems + nproblems);
}

void ko_info_print_json(const struct ko_info *info, FILE *file)
{
    fputs("{\n", file);
    print_facts(file, "build", &info->build);
    print_facts(file, "machine", &info->machine);
    print_facts(file, "job", &info->job);
    print_transports(file, &info->transports);
    print_gpus(file, &info->gpus);
    print_algorithms(file);
    print_variables(file, &info->variables, info->njob_problems);
    fputs("}\n", file);
}
