# SPDX-License-Identifier: MIT
"""kolo's all_reduce of PyTorch's CUDA tensors, and Gloo's of the same, one after the other.

    kolorun --no-tag -n 2 python3 tests/gpu/beside_torch.py LIBKOLO FILE MOST_BYTES [DEVICE]

FILE does not exist yet; Gloo's ranks meet there. Prints rows as report.h has them: the median time of
a call with its result at hand, checked, and how many times longer Gloo takes.
"""
import ctypes
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

FLOAT32, SUM, TURNS, TIMEOUT_MS = 8, 0, 20, 60000


class Kolo:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.kolo_last_error.restype = ctypes.c_char_p
        self.group = ctypes.c_void_p()
        self.check(self.lib.kolo_group_join(None, TIMEOUT_MS, ctypes.byref(self.group)))

    def check(self, status):
        if status:
            raise RuntimeError(self.lib.kolo_last_error().decode())

    def set_stream(self, stream):
        self.check(self.lib.kolo_group_set_stream(self.group, ctypes.c_void_p(stream)))

    def all_reduce(self, tensor):
        at = ctypes.c_void_p(tensor.data_ptr())
        self.check(self.lib.kolo_all_reduce(self.group, at, at, ctypes.c_size_t(tensor.numel()),
                                            FLOAT32, SUM))

    def free(self):
        self.lib.kolo_group_free(self.group)


def median_us(call, tensor, settle, rank, size):
    """Of a call that all ranks begin at once, and whether each gave the sum of their numbers."""
    times, is_right = [], True
    for turn in range(TURNS + 2):
        tensor.fill_(rank + 1 + turn)
        settle()
        dist.barrier()
        began = time.perf_counter()
        call(tensor)
        settle()
        times.append((time.perf_counter() - began) * 1e6)
        want = size * (size + 1) // 2 + size * turn
        is_right = is_right and bool((tensor == want).all())
    return statistics.median(times[2:]), is_right


def main():
    path, meeting, most = sys.argv[1], sys.argv[2], int(sys.argv[3])
    device = sys.argv[4] if len(sys.argv) > 4 else "cuda"
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    settle = lambda: None
    kolo = Kolo(path)
    if device == "cuda":
        torch.cuda.set_device(rank % torch.cuda.device_count())
        settle = torch.cuda.synchronize
        kolo.set_stream(torch.cuda.current_stream().cuda_stream)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all ranks are here
    dist.init_process_group("gloo", store=dist.FileStore(meeting, size), rank=rank, world_size=size)
    failed = False
    for nbytes in (b for b in (8, 4096, 65536, 1 << 20, 1 << 24, 1 << 26) if b <= most):
        tensor = torch.zeros(nbytes // 4, dtype=torch.float32, device=device)
        mine, is_mine_right = median_us(kolo.all_reduce, tensor, settle, rank, size)
        theirs, is_theirs_right = median_us(dist.all_reduce, tensor, settle, rank, size)
        failed = failed or not is_mine_right
        if rank == 0:
            note = "ok" if is_mine_right else "FAILED"
            beside = "" if is_theirs_right else ", whose sum is wrong"
            print(f"all_reduce of {size}, {nbytes} bytes, kolo\t{mine:.6g}\tus\t{note}", flush=True)
            print(f"all_reduce of {size}, {nbytes} bytes, Gloo\t{theirs:.6g}\tus\t"
                  f"{theirs / mine:.2f} times as long as kolo's{beside}", flush=True)
    dist.destroy_process_group()
    kolo.free()
    return failed


if __name__ == "__main__":
    sys.exit(main())
