/* SPDX-License-Identifier: MIT */
#include "proofs.h"

#include "coll.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void proofs_keep_memory(void)
{
    mallopt(M_MMAP_THRESHOLD, 1 << 25);
    mallopt(M_TRIM_THRESHOLD, 1 << 28);
}

bool proofs_are_wanted(int argc, char **argv)
{
    return argc > 1 && !strcmp(argv[1], "all");
}

/* Every nparts-th text of the kind, from number `part` on. */
static size_t list_part(int part, int nparts, bool is_spread, struct CMUnitTest *tests,
                        char (*names)[64])
{
    size_t n = 0;
    int number = 0;

    for (int i = 0; i < ko_npaper_texts; i++) {
        const struct ko_paper_text *text = &ko_paper_texts[i];

        if (is_spread != (bool)(text->flags & KO_SPREAD) || number++ % nparts != part)
            continue;
        snprintf(names[n], sizeof names[n], "%s %s", ko_collective_name(text->what), text->name);
        tests[n] = (struct CMUnitTest){.name = names[n], .initial_state = (void *)(uintptr_t)text};
        n++;
    }
    return n;
}

int proofs_run(int argc, char **argv, bool is_spread, void (*prove)(void **state))
{
    const int part = argc > 3 ? atoi(argv[2]) : 0, nparts = argc > 3 ? atoi(argv[3]) : 1;
    struct CMUnitTest *tests = calloc((size_t)ko_npaper_texts, sizeof *tests);
    char(*names)[64] = calloc((size_t)ko_npaper_texts, sizeof *names);
    int nfailed = 1;

    if (tests && names && part >= 0 && part < nparts) {
        const size_t n = list_part(part, nparts, is_spread, tests, names);

        for (size_t i = 0; i < n; i++)
            tests[i].test_func = prove;
        nfailed = n ? _cmocka_run_group_tests("paper", tests, n, NULL, NULL) : 0;
    }
    free(names);
    free(tests);
    return nfailed;
}
