# SPDX-License-Identifier: MIT
"""One rank of the workload of store.c as a client of PyTorch's TCPStore, or the server of it.

store.py server               prints its port, serves until its input ends
store.py waiting-server SIZE  the same, but ends if SIZE clients have not come within a while
store.py client PORT RANK SIZE
store.py file PATH RANK SIZE
"""
import datetime
import socket
import sys
import time

from torch.distributed import FileStore, TCPStore

LARGE = 1 << 20
PATIENCE_S = 30
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
    see_each_other(store, rank, size)
    elect(store, rank, size)
    send_large(store, rank, size)
    assert store.num_keys() > 8
    time_out(store)


main(sys.argv[1:])
