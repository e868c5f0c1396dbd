#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# rdma over real libibverbs and librdmacm and the kernel's software RoCE (rxe) and iWARP (siw), in
# virtual machines (machine): the shared suite of transports, collectives between two machines, real
# failures.

bats_require_minimum_version 1.5.0

setup() {
    cd "$BATS_TEST_DIRNAME/../.."
    BUILD=${TEST_BUILD:-build}
    PATH=$PATH:/usr/sbin:/sbin # ldconfig, which is not on everybody's
    REAL=$(dirname "$(ldconfig -p | sed -n 's/.*libibverbs.so.1 .*=> //p' | head -n 1)")
    [ "$REAL" != . ] || skip "no libibverbs here"
}

# run tests/rdma/machine ARGUMENT...; what cannot be had here, for a reason that it names, is no
# failure.
machine() {
    run tests/rdma/machine "$@"
    echo "$output"
    [ "$status" -ne 125 ] || [[ "${lines[-1]}" != "machine: "* ]] || skip "${lines[-1]#machine: }"
}

# The suite of transports. The libraries are loaded before the double, which the program's rpath
# finds and which would fail at once.
suite() {
    machine "$@" env FAKEVERBS_BREAK=ibv_open_device=5 \
        "LD_PRELOAD=$REAL/libibverbs.so.1 $REAL/librdmacm.so.1" "KOLO_IB_HCA=${KOLO_IB_HCA:-}" \
        "KOLO_IB_QPS_PER_CONNECTION=${KOLO_IB_QPS_PER_CONNECTION:-1}" "$BUILD/tests/test_transports" 'rdma by fake0:roce: *'
    [ "$status" -eq 0 ]
    grep -Eq ' PASSED +\] [1-9]' <<<"$output" # not 0 of them
    [[ "$output" != *" FAILED "* ]]
}

@test "where no machine can be had, machine says why, and exits with 125" {
    mkdir "$BATS_TEST_TMPDIR/bin"
    printf '#!/bin/sh\nexit 100\n' | tee "$BATS_TEST_TMPDIR/bin/apt-cache" >"$BATS_TEST_TMPDIR/bin/apt-get"
    chmod +x "$BATS_TEST_TMPDIR"/bin/*
    PATH=$BATS_TEST_TMPDIR/bin:$PATH XDG_CACHE_HOME=$BATS_TEST_TMPDIR run tests/rdma/machine true
    echo "$output"
    [ "$status" -eq 125 ]
    [[ "$output" == "machine: "* ]]
}

@test "the suite of transports, packets of 1024 bytes" {
    suite
}

@test "the suite of transports, two adapters, packets of 4096 bytes" {
    suite -d 2 -m 4200
}

@test "the suite of transports by two queue pairs on each of two adapters" {
    KOLO_IB_HCA=rxe0,rxe1 KOLO_IB_QPS_PER_CONNECTION=2 suite -d 2
}

# Packets that an adapter has sent by now.
SENT='sent() { cat /sys/class/infiniband/$1/ports/1/hw_counters/sent_pkts; }'

@test "two adapters each carry half of long messages, and the first the short ones" {
    # 12 messages of 1 MiB one way and the other, in packets of 1024 bytes: 12288 on each.
    machine -d 2 bash -c "$SENT; export LD_LIBRARY_PATH=$REAL KOLO_IFADDR=\$RDMA_ADDR \
        KOLO_TRANSPORT=rdma KOLO_IB_HCA=rxe1,rxe0
        perf() { $BUILD/bin/kolorun -n 2 $BUILD/bin/kolo-perf sendrecv -b \$1 -e \$1 -n 10 -w 2 -c 0; }
        a=\$(sent rxe0) b=\$(sent rxe1)
        $BUILD/bin/kolo-info --rdma && perf 1M && echo long \$((\$(sent rxe0) - a)) \$((\$(sent rxe1) - b))
        a=\$(sent rxe0) b=\$(sent rxe1)
        perf 16K && echo short \$((\$(sent rxe0) - a)) \$((\$(sent rxe1) - b))"
    [ "$status" -eq 0 ]
    read -r _ a b <<<"$(tr -d '\r' <<<"$output" | grep '^long')"
    [ "$a" -ge 12288 ] && [ "$b" -ge 12288 ] && [ "$a" -lt 40000 ] && [ "$b" -lt 40000 ]
    read -r _ a b <<<"$(tr -d '\r' <<<"$output" | grep '^short')"
    [ $((a < b ? a : b)) -lt 40 ] && [ $((a < b ? b : a)) -gt 200 ]
}

@test "the suite of transports over iWARP" {
    suite -p siw
}

@test "the suite of transports over iWARP, two adapters, long packets" {
    suite -p siw -d 2 -m 4096
}

# Collectives and messages between two machines, each with its own rank; checked by kolo-perf.
two_machines() {
    machine -n 2 "$@" bash -c "LD_LIBRARY_PATH=$REAL KOLO_DEBUG=INFO KOLO_IFADDR=\$RDMA_ADDR \
        KOLO_AUTH=none RANK=\$RDMA_NODE WORLD_SIZE=2 MASTER_ADDR=10.9.0.1 MASTER_PORT=29500 \
        $BUILD/bin/kolo-perf all_reduce broadcast all_to_all sendrecv -b 4 -e 256K -f 64 -n 2 -w 1"
    [ "$status" -eq 0 ]
    [[ "$output" == *"over rdma: another machine"* ]]
    [[ "$output" == *"Out of bounds values : 0 OK"* ]]
}

@test "two machines take rdma by themselves, and all results are right" {
    two_machines
}

@test "two machines take iWARP by themselves, and all results are right" {
    two_machines -p siw -m 4096
}

@test "a rank that is killed is noticed by the other machine" {
    machine -n 2 -t 200 bash -c "export LD_LIBRARY_PATH=$REAL KOLO_IFADDR=\$RDMA_ADDR \
        KOLO_AUTH=none RANK=\$RDMA_NODE WORLD_SIZE=2 MASTER_ADDR=10.9.0.1 MASTER_PORT=29500; \
        $BUILD/bin/kolo-perf all_reduce -b 64K -e 64K -n 100000 & \
        [ \$RDMA_NODE = 0 ] || { sleep 15; kill -9 \$!; }; wait \$!; echo \"code \$?\""
    [[ "$output" == *"[1] code 137"* ]]
    [[ "$output" == *"[0] "*"rank 1 ("*"was lost"* ]]
}

@test "little lockable memory: slow, but right" {
    machine bash -c "ulimit -l 2048; useradd -m u 2>/dev/null; LD_LIBRARY_PATH=$REAL \
        KOLO_IFADDR=\$RDMA_ADDR KOLO_TRANSPORT=rdma setpriv --reuid 65534 --clear-groups --inh-caps=-all \
        $BUILD/bin/kolorun -n 2 $BUILD/bin/kolo-perf sendrecv -b 4M -e 4M -n 2 -w 0"
    [ "$status" -eq 0 ]
    [[ "$output" == *"cannot be registered with rxe0: Cannot allocate memory; such messages go through slots"* ]]
    [[ "$output" == *"Out of bounds values : 0 OK"* ]]
}
