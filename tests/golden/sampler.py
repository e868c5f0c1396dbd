#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes what PyTorch's DistributedSampler draws, one line per rank, as tests/test_sampler.c reads it:

    n size rank shuffle drop_last seed epoch length checksum first-indices...

checksum is FNV-1a (64 bits) over the indices as little-endian 32-bit numbers; at most 8 indices
follow. Made with PyTorch 1.13.1:  tests/golden/sampler.py > tests/golden/sampler.txt
"""
import struct

from torch.utils.data import DistributedSampler

SMALL = [(n, size) for n in (0, 1, 2, 3, 7, 10, 16, 17) for size in (1, 2, 3, 4, 8)]
LARGE = [(100, 7), (623, 2), (624, 2), (625, 2), (1000, 3), (1249, 5), (60000, 1), (60000, 4),
         (60000, 7), (59999, 8)]
SEEDS = [(0, 0), (1, 0), (0, 1), (42, 17), (2**32 - 1, 1), (2**40 + 5, 3), (2**63, 0)]


def checksum(indices):
    value = 0xCBF29CE484222325
    for byte in struct.pack("<%dI" % len(indices), *indices):
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def show(n, size, rank, shuffle, drop_last, seed, epoch):
    sampler = DistributedSampler(range(n), size, rank, shuffle=bool(shuffle), seed=seed,
                                 drop_last=bool(drop_last))
    sampler.set_epoch(epoch)
    indices = list(sampler)
    assert len(indices) == len(sampler)
    print(n, size, rank, shuffle, drop_last, seed, epoch, len(indices),
          "%016x" % checksum(indices), *indices[:8])


def main():
    for n, size in SMALL:
        for rank in range(size):
            for drop_last in (0, 1):
                show(n, size, rank, 0, drop_last, 0, 0)
                show(n, size, rank, 1, drop_last, 0, 0)
    for n, size in LARGE:
        for rank in (0, size - 1):
            for drop_last in (0, 1):
                show(n, size, rank, 1, drop_last, 7, 3)
    for seed, epoch in SEEDS:
        show(10, 1, 0, 1, 0, seed, epoch)
        show(3000, 2, 1, 1, 0, seed, epoch)


if __name__ == "__main__":
    main()
