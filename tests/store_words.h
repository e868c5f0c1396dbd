/* SPDX-License-Identifier: MIT
 *
 * store_words.h: keys, values and numbers as they stand in the store's messages, for wire_unhex.
 */
#ifndef STORE_WORDS_H
#define STORE_WORDS_H

#define INIT "0500000000000000 696e69742f" /* keys: as on the wire */
#define A "0200000000000000 2f61"
#define B "0200000000000000 2f62"
#define K "0200000000000000 2f6b"
#define N "0200000000000000 2f6e"
#define X "0200000000000000 2f78"
#define V "0100000000000000 76" /* values */
#define W "0100000000000000 77"
#define EMPTY "0000000000000000"
#define ONE "0100000000000000" /* numbers */
#define TWO "0200000000000000"

#endif
