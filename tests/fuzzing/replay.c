/* SPDX-License-Identifier: MIT
 *
 * A fuzz target without libFuzzer: runs the inputs of the folders that it is given, once each.
 */
#include "corpus.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

int main(int argc, char **argv)
{
    int n;

    setenv("KOLO_DEBUG", "NONE", 1);
    for (int i = 1; i < argc; i++) {
        n = corpus_replay(argv[i], LLVMFuzzerTestOneInput);
        if (n <= 0) {
            fprintf(stderr, "%s: no inputs that can be read\n", argv[i]);
            return 1;
        }
        printf("%s: %d inputs\n", argv[i], n);
    }
    return 0;
}
