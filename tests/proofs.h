/* SPDX-License-Identifier: MIT
 *
 * proofs.h: proofs that take minutes, a test for each text, in parts that can be run at once.
 */
#ifndef PROOFS_H
#define PROOFS_H

#include "paper.h"

#include <stdbool.h>

/* Has libc keep the memory of one call for the next: giving it back and faulting it in again is a
 * tenth of a proof. */
void proofs_keep_memory(void);

/* Whether a test program's arguments ask for them: "all", or "all PART PARTS". */
bool proofs_are_wanted(int argc, char **argv);

/* Has `prove`, whose state is a const struct ko_paper_text *, run for each text of the part that is
 * for several hosts, or for each that is not; what main returns. */
int proofs_run(int argc, char **argv, bool is_spread, void (*prove)(void **state));

#endif
