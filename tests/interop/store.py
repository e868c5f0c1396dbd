# SPDX-License-Identifier: MIT
"""One rank of the workload of store.c as a client of PyTorch's TCPStore, or the server of it.

store.py server               prints its port, serves until its input ends
store.py waiting-server SIZE  the same, but ends if SIZE clients have not come within a while
store.py client PORT RANK SIZE
store.py group PORT RANK SIZE a process group of PyTorch's, over gloo, which meets at the store
store.py file PATH RANK SIZE
"""
import datetime
import socket
import sys
import time

import torch
from torch import distributed
from torch.distributed import FileStore, TCPStore

LARGE = 1 << 20
PATIENCE_S = 90  # each client imports torch first
TIMEOUT = datetime.timedelta(seconds=60)


def meet(store, name, size):
    if store.add(name, 1) == size:
        store.set(name + " open", "1")
    assert store.get(name + " open") == b"1"


def see_each_other(store, rank, size):
    store.set(f"r{rank}", f"value {rank}")
    for i in range(size):
        assert store.get(f"r{i}") == f"value {i}".encode()
    store.add("sum", rank + 1)
    meet(store, "summed", size)
    assert store.add("sum", 0) == size * (size + 1) // 2


def elect(store, rank, size):
    leader = store.compare_set("leader", "", str(rank))
    assert store.get("leader") == leader
    meet(store, "elected", size)
    if leader == str(rank).encode():
        changed = f"{rank} changed"
        assert store.compare_set("leader", str(rank), changed) == changed.encode()
    meet(store, "changed", size)


def send_large(store, rank, size):
    store.set(f"large {rank}", chr(ord("a") + rank) * LARGE)
    other = (rank + 1) % size
    assert store.get(f"large {other}") == bytes([ord("a") + other]) * LARGE
    meet(store, "large", size)
    assert store.delete_key(f"large {rank}")
    # A FileStore of PyTorch says of any key that it was there.
    assert not store.delete_key(f"large {rank}") or isinstance(store, FileStore)


def extend(store, rank):
    """What clients of PyTorch's have that came after 1.13, each on keys of its own."""
    key = f"extended {rank}"
    if hasattr(store, "append"):
        store.set(key, "a")
        store.append(key, "bc")
        assert store.get(key) == b"abc"
        store.append(key + " new", "d")
        assert store.get(key + " new") == b"d"
    if hasattr(store, "multi_set"):
        store.multi_set([key + " 1", key + " 2"], ["one", "two"])
        assert store.multi_get([key + " 2", key + " 1"]) == [b"two", b"one"]
    if hasattr(store, "check"):
        assert store.check([key])
        assert not store.check([key, key + " none"])
    if hasattr(store, "queue_push"):
        for text in "first", "second":
            store.queue_push(key + " queue", text)
        assert store.queue_len(key + " queue") == 2
        assert store.queue_pop(key + " queue") == b"first"
        assert store.queue_pop(key + " queue", False) == b"second"
        assert store.queue_len(key + " queue") == 0
    if hasattr(store, "barrier"):
        store.barrier(key + " barrier", 1)
    if hasattr(store, "list_keys"):
        keys = [k.decode() if isinstance(k, bytes) else k for k in store.list_keys()]
        assert any(k.endswith(key) for k in keys), keys
    if hasattr(store, "clone"):
        assert store.clone().get(key) == store.get(key)


def time_out(store):
    try:
        store.wait(["never", "r0"], datetime.timedelta(milliseconds=100))
    except RuntimeError:
        return  # its connection is of no use from here on
    raise AssertionError("a wait that cannot end")


def serve_when_all_have_come(size):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    print(port, flush=True)
    # Its own client is one of those that it waits for. If one is missing, 2.x fails after the
    # time-out; 1.13 goes on then.
    began = time.monotonic()
    store = TCPStore("127.0.0.1", port, size + 1, True, datetime.timedelta(seconds=PATIENCE_S))
    assert time.monotonic() - began < PATIENCE_S, "not all clients have counted themselves"
    sys.stdin.read()
    del store


def make_a_group(store, rank, size):
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    value = torch.tensor([rank + 1])
    distributed.all_reduce(value)
    assert value.item() == size * (size + 1) // 2
    distributed.barrier()
    distributed.destroy_process_group()


def main(arguments):
    if arguments[0] == "server":
        store = TCPStore("127.0.0.1", 0, None, True, TIMEOUT)
        print(store.port, flush=True)
        sys.stdin.read()
        return
    if arguments[0] == "waiting-server":
        serve_when_all_have_come(int(arguments[1]))
        return
    place, rank, size = arguments[1], int(arguments[2]), int(arguments[3])
    if arguments[0] == "file":
        store = FileStore(place, size)
        store.set_timeout(TIMEOUT)
    else:
        store = TCPStore("127.0.0.1", int(place), size, False, TIMEOUT)
    if arguments[0] == "group":
        make_a_group(store, rank, size)
        return
    see_each_other(store, rank, size)
    elect(store, rank, size)
    send_large(store, rank, size)
    assert store.num_keys() > 8
    if arguments[0] == "client":
        extend(store, rank)
    time_out(store)


main(sys.argv[1:])
