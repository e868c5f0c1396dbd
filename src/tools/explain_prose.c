/* SPDX-License-Identifier: MIT
 *
 * What kernels/ says of its texts, so that it is said once.
 */
#include "explain.h"

#include "info.h"

#include <string.h>

static int index_of(const struct ko_paper_text *row)
{
    return (int)(row - ko_paper_texts);
}

const char *ko_prose_of(const struct ko_paper_text *row)
{
    static const char *const names[] = {
#define TEXT_NAME(what, name, text, ...) #text,
        KO_ALGORITHM_LIST(TEXT_NAME)
#undef TEXT_NAME
    };

    for (const struct ko_prose *prose = ko_prose_rows; prose->text; prose++)
        if (!strcmp(prose->text, names[index_of(row)]))
            return prose->says;
    return "";
}

const char *ko_why_of(const struct ko_paper_text *row)
{
    int count;

    return ko_algorithm_rows(&count)[index_of(row)].reason;
}
