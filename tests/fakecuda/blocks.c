/* SPDX-License-Identifier: MIT
 *
 * Blocks of the double's device memory, of which small allocations are parts (FAKECUDA_BLOCKS), as
 * they are of a GPU's. A new one lies where the last one that went did, if there is room.
 */
#include "ranges.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BLOCK = 2 << 20, MOST_PART = 1 << 20, PART_GRAIN = 512 };

static struct double_block *blocks;
static unsigned char *last_gone;

/* ---- mapping --------------------------------------------------------------------------------- */

/* Addresses at a multiple of their length; NULL: there are none. */
static unsigned char *reserve(void)
{
    unsigned char *wide =
        mmap(NULL, 2 * BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const size_t before = wide == MAP_FAILED ? 0 : -(uintptr_t)wide % BLOCK;

    if (wide == MAP_FAILED)
        return NULL;
    if (before)
        munmap(wide, before);
    munmap(wide + before + BLOCK, BLOCK - before);
    return wide + before;
}

static unsigned char *map_at(unsigned char *at, int fd, int how)
{
    void *base = mmap(at, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED | how, fd, 0);

    return base == MAP_FAILED ? NULL : base;
}

static unsigned char *map(int fd)
{
    unsigned char *base = last_gone ? map_at(last_gone, fd, MAP_FIXED_NOREPLACE) : NULL;

    if (!base)
        base = reserve();
    last_gone = NULL;
    return base ? map_at(base, fd, MAP_FIXED) : NULL;
}

static struct double_block *make(int device)
{
    struct double_block *block = malloc(sizeof *block);

    *block = (struct double_block){.device = device, .nbytes = BLOCK};
    block->fd = memfd_create("block", MFD_CLOEXEC);
    if (block->fd < 0 || ftruncate(block->fd, BLOCK) || !(block->base = map(block->fd))) {
        close(block->fd);
        free(block);
        return NULL;
    }
    double_protect(block->base, BLOCK);
    block->id = double_range_number();
    block->next = blocks;
    blocks = block;
    return block;
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* The first place for so many bytes; NULL: there is none. */
static unsigned char *find_room(const struct double_block *block, size_t nbytes)
{
    unsigned char *at = block->base;
    const struct double_range *other;

    while (at + nbytes <= block->base + BLOCK && (other = double_range_touches(at, nbytes)))
        at = other->base + (other->nbytes + PART_GRAIN - 1) / PART_GRAIN * PART_GRAIN;
    return at + nbytes <= block->base + BLOCK ? at : NULL;
}

static void unset(const struct double_block *block, const struct double_range *part)
{
    unsigned char bytes[4096];

    memset(bytes, DOUBLE_UNSET, sizeof bytes);
    for (size_t i = 0; i < part->nbytes; i += sizeof bytes) {
        const size_t left = part->nbytes - i, n = left < sizeof bytes ? left : sizeof bytes;

        if (pwrite(block->fd, bytes, n, part->base - block->base + (off_t)i) != (ssize_t)n)
            abort();
    }
}

bool double_block_suits(size_t nbytes)
{
    return nbytes <= MOST_PART && double_number("FAKECUDA_BLOCKS", 0);
}

bool double_block_take(struct double_range *part)
{
    struct double_block *block = blocks;

    while (block && (block->device != part->device || !find_room(block, part->nbytes)))
        block = block->next;
    if (!block)
        block = make(part->device);
    if (!block)
        return false;
    part->base = find_room(block, part->nbytes);
    part->block = block;
    part->fd = -1;
    block->nparts++;
    unset(block, part);
    return true;
}

void double_block_leave(struct double_block *block)
{
    struct double_block **link = &blocks;

    if (--block->nparts)
        return;
    while (*link != block)
        link = &(*link)->next;
    *link = block->next;
    munmap(block->base, BLOCK);
    close(block->fd);
    last_gone = block->base;
    free(block);
}
