/* SPDX-License-Identifier: MIT
 *
 * What a run was like, by the names that the file of --json has for it. Each is kept as text, which
 * is enough to tell whether two are the same.
 */
#include "perf_settings.h"

#include "json.h"
#include "json_read.h"
#include "perf.h"

#include <sched.h>
#include <string.h>
#include <sys/utsname.h>

static const struct {
    const char *name;
    bool is_word; /* JSON has it between quotes */
} settings[KO_PERF_NSETTINGS] = {
    [KO_PERF_SET_HOST] = {"host", true},          [KO_PERF_SET_CORES] = {"cores", false},
    [KO_PERF_SET_PINNED] = {"pinned", false},     [KO_PERF_SET_TOGETHER] = {"agg_iters", false},
    [KO_PERF_SET_BLOCKING] = {"blocking", false}, [KO_PERF_SET_EACH_TIMED] = {"each_timed", false},
    [KO_PERF_SET_AVERAGE] = {"average", false},   [KO_PERF_SET_DIRTY] = {"dirty", false},
    [KO_PERF_SET_UNALIGN] = {"unalign", false},   [KO_PERF_SET_TENSORS] = {"tensors", false},
    [KO_PERF_SET_MEMORY] = {"memory", true},      [KO_PERF_SET_DEVICE] = {"device", true},
    [KO_PERF_SET_GRAPH] = {"graph", false},
};

/* ---- of this run ------------------------------------------------------------------------- */

static void set_word(struct ko_perf_settings *s, enum ko_perf_setting which, const char *word)
{
    snprintf(s->text[which], sizeof s->text[which], "%s", word);
}

static void set_flag(struct ko_perf_settings *s, enum ko_perf_setting which, bool flag)
{
    set_word(s, which, flag ? "true" : "false");
}

static void set_number(struct ko_perf_settings *s, enum ko_perf_setting which, size_t number)
{
    snprintf(s->text[which], sizeof s->text[which], "%zu", number);
}

void ko_perf_settings_take(struct ko_perf_settings *s, const struct ko_perf_options *options)
{
    struct utsname machine;
    cpu_set_t cores;

    set_word(s, KO_PERF_SET_HOST, uname(&machine) ? "unknown" : machine.nodename);
    set_number(s, KO_PERF_SET_CORES,
               sched_getaffinity(0, sizeof cores, &cores) ? 0 : (size_t)CPU_COUNT(&cores));
    set_flag(s, KO_PERF_SET_PINNED, options->pin);
    set_number(s, KO_PERF_SET_TOGETHER, options->together ? (size_t)options->together : 1);
    set_flag(s, KO_PERF_SET_BLOCKING, !options->together);
    set_flag(s, KO_PERF_SET_EACH_TIMED, options->percentiles);
    set_number(s, KO_PERF_SET_AVERAGE, options->average);
    set_flag(s, KO_PERF_SET_DIRTY, options->dirty);
    set_number(s, KO_PERF_SET_UNALIGN, options->unalign);
    set_number(s, KO_PERF_SET_TENSORS, (size_t)options->tensors);
    set_word(s, KO_PERF_SET_MEMORY, options->shared ? "shared" : "ordinary");
    set_word(s, KO_PERF_SET_DEVICE, options->on_gpu ? "cuda" : "cpu");
    set_number(s, KO_PERF_SET_GRAPH, (size_t)options->launches);
}

/* ---- in a file --------------------------------------------------------------------------- */

void ko_perf_settings_print(FILE *file, const struct ko_perf_settings *s)
{
    for (int i = 0; i < KO_PERF_NSETTINGS; i++) {
        fprintf(file, i % 6 ? " \"%s\": " : "\n  \"%s\": ", settings[i].name);
        if (settings[i].is_word)
            ko_json_string(file, s->text[i]);
        else
            fputs(s->text[i], file);
        putc(',', file);
    }
}

static void read_setting(const struct ko_json *value, struct ko_perf_settings *s,
                         enum ko_perf_setting which)
{
    const enum ko_json_kind kind = ko_json_kind(value);

    if (kind == KO_JSON_STRING)
        set_word(s, which, ko_json_text(value));
    else if (kind == KO_JSON_NUMBER)
        snprintf(s->text[which], sizeof s->text[which], "%.15g", ko_json_number(value, 0));
    else if (kind == KO_JSON_TRUE || kind == KO_JSON_FALSE)
        set_flag(s, which, kind == KO_JSON_TRUE);
}

void ko_perf_settings_read(const struct ko_json *document, struct ko_perf_settings *s)
{
    for (int i = 0; i < KO_PERF_NSETTINGS; i++)
        read_setting(ko_json_member(document, settings[i].name), s, (enum ko_perf_setting)i);
}

/* ---- of two ------------------------------------------------------------------------------ */

void ko_perf_settings_compare(FILE *file, const struct ko_perf_settings *base,
                              const struct ko_perf_settings *now)
{
    for (int i = 0; i < KO_PERF_NSETTINGS; i++)
        if (*base->text[i] && *now->text[i] && strcmp(base->text[i], now->text[i]) != 0)
            fprintf(file, "# \"%s\" was %s in the base, and is %s here\n", settings[i].name,
                    base->text[i], now->text[i]);
}
