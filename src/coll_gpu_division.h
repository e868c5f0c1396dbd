/* SPDX-License-Identifier: MIT
 *
 * coll_gpu_division.h: a collective of GPU memory among several hosts, divided so that each rank of
 * a host deals with elements that no other rank of this host deals with, in the buffers of all of
 * them: it has only its share to give to the other hosts and to get from them. The elements are cut
 * into blocks, at most one for each rank, its owner: what they are in the end is made, or is, with
 * the owner. On every other host a deputy deals with the block. Nothing here keeps state.
 */
#ifndef KO_COLL_GPU_DIVISION_H
#define KO_COLL_GPU_DIVISION_H

#include "coll.h"

struct ko_division {
    enum ko_collective what;
    const struct ko_hosts *hosts;
    int n, root;
    size_t count;   /* the call's */
    unsigned shift; /* log2 of an element's bytes */
};

/* Whether such a collective is better divided than left to the host's algorithms: where those would
 * take no more of the network. The root of one with a root has all of it on its host; to several
 * others it is better passed on from host to host. */
bool ko_division_suits(enum ko_collective what, const struct ko_hosts *hosts);

/* The rank of a host that deals with an owner's block there; the owner itself at home. */
int ko_division_deputy(const struct ko_hosts *hosts, int host, int owner);

/* The owner's block: of the elements that are reduced or broadcast whole lines of memory, so that
 * no two GPUs write one; else its own block of the buffers that have one for each rank. */
struct ko_part ko_division_block(const struct ko_division *division, int owner);

/* The block's longest pieces if all blocks together are cut into pieces of nbytes; at least one
 * element, whole lines where blocks are. */
size_t ko_division_piece(const struct ko_division *division, uint64_t nbytes);

/* How many pieces there are of `most` elements of each block. */
size_t ko_division_npieces(const struct ko_division *division, size_t most);

/* Piece k of an owner's block, which may be empty. */
struct ko_part ko_division_part(const struct ko_division *division, int owner, size_t most,
                                size_t k);

/* Whether the call's result for a block goes into that rank's buffer. */
bool ko_division_has_result(const struct ko_division *division, int rank, int owner);

#endif
