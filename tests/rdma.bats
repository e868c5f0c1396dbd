#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Programs over rdma, by the adapters of tests/fakeverbs.

bats_require_minimum_version 1.5.0

setup() {
    cd "$BATS_TEST_DIRNAME/.."
    BIN=${TEST_BUILD:-build}/bin
    D=$BATS_TEST_TMPDIR
    export OMP_NUM_THREADS=1 KOLO_DETERMINISTIC=1
    unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT
}

over_rdma() {
    LD_LIBRARY_PATH=$BIN/../tests/fakeverbs KOLO_TRANSPORT=rdma "$@"
}

@test "the trainer has the same losses as over shared memory, bit for bit" {
    local train=("$BIN/kolorun" -n 4 "$BIN/kolo-train" --data synthetic --max-steps 12)
    KOLO_TRANSPORT=shm "${train[@]}" --log-losses "$D/shm"
    over_rdma "${train[@]}" --log-losses "$D/rdma"
    [ "$(wc -l <"$D/rdma")" -eq 12 ]
    cmp "$D/shm" "$D/rdma"
}

@test "kolo-perf finds no wrong element in any operation" {
    over_rdma run "$BIN/kolorun" -n 3 "$BIN/kolo-perf" all_reduce reduce broadcast all_gather \
        reduce_scatter gather scatter all_to_all sendrecv -b 4 -e 300K -f 40 -n 2 -w 1
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c "Out of bounds values : 0 OK" <<<"$output")" -ge 1 ]
}

@test "hosts of one machine take rdma by themselves" {
    KOLO_TRANSPORT='' LD_LIBRARY_PATH=$BIN/../tests/fakeverbs KOLO_DEBUG=INFO run "$BIN/kolorun" -n 2 \
        bash -c 'KOLO_HOST=h$RANK "$0" all_reduce -b 8 -e 8 -n 1 -w 0' "$BIN/kolo-perf"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"over rdma: another machine, container or user"* ]]
}

# What kolo-info marks, in its order: the ports, each with the reason.
marked() {
    LD_LIBRARY_PATH=$BIN/../tests/fakeverbs env "$@" "$BIN/kolo-info" --rdma |
        sed -n '/^\* /{s/^\* \([^:]*\):\([0-9]*\) .*/\1 port \2/;N;s/\n *chosen//;p}' | sort
}

# What a rank then takes, which is the first of its host.
taken() {
    LD_LIBRARY_PATH=$BIN/../tests/fakeverbs KOLO_TRANSPORT=rdma KOLO_DEBUG=INFO env "$@" "$BIN/kolorun" -n 2 \
        bash -c 'KOLO_IFADDR=127.0.0.1 KOLO_HOST=h$RANK LOCAL_RANK=0 "$0" all_reduce -b 8 -e 8 -n 1 -w 0' "$BIN/kolo-perf" 2>&1 |
        sed -n 's/.*rdma goes by //p' | sort -u
}

@test "kolo-info tells of the adapters that are taken, and why" {
    local devices=FAKEVERBS_DEVICES=a0:roce,b0:roce,c0:roce wish
    for wish in KOLO_IB_HCA= FAKEVERBS_SLOW=a0 FAKEVERBS_SLOW=a0,b0 FAKEVERBS_DOWN=a0 KOLO_IB_HCA=^a0 \
        KOLO_IB_HCA=c0,a0:1 KOLO_IB_GID_INDEX=1; do
        marked $devices $wish >"$D/marked"
        taken $devices $wish >"$D/taken"
        diff "$D/marked" "$D/taken"
        [ -s "$D/taken" ]
    done
    [[ "$(cat "$D/taken")" == "a0 port 1: active, GID 1" ]]
    [[ "$(marked $devices FAKEVERBS_SLOW=a0,b0)" == "c0 port 1: active, GID 3" ]]
}

# Two hosts, of which each rank is one; $1: what their adapters cannot do.
two_hosts() {
    KOLO_TRANSPORT=${KOLO_TRANSPORT-} LD_LIBRARY_PATH=$BIN/../tests/fakeverbs run env "$1" "$BIN/kolorun" -n 2 \
        bash -c 'KOLO_HOST=h$RANK "$0" all_reduce -b 8 -e 64K -f 8192 -n 1 -w 0' "$BIN/kolo-perf"
    echo "$output"
}

@test "an adapter that cannot be opened is warned of, and tcp used" {
    for function in ibv_open_device=24 ibv_alloc_pd=12; do
        two_hosts FAKEVERBS_BREAK=$function
        [ "$status" -eq 0 ]
        [ "$(grep -c "WARN.*RDMA is not used: the RDMA adapter fake0" <<<"$output")" -eq 2 ]
    done
}

@test "where no memory can be locked ranks talk over tcp, with a warning; over rdma alone they fail" {
    two_hosts FAKEVERBS_MEMLOCK=65536
    [ "$status" -eq 0 ]
    [ "$(grep -c "WARN.*slots cannot be registered with fake0: Cannot allocate memory; .*go over tcp" <<<"$output")" -ge 1 ]
    KOLO_TRANSPORT=rdma two_hosts FAKEVERBS_MEMLOCK=65536
    [ "$status" -ne 0 ]
    [[ "$output" == *"slots cannot be registered with fake0"*"ulimit -l"* ]]
}

@test "where memory for some connections can be locked the others go over tcp" {
    FAKEVERBS_MEMLOCK=900000 KOLO_TRANSPORT='' LD_LIBRARY_PATH=$BIN/../tests/fakeverbs run "$BIN/kolorun" -n 4 bash -c \
        'KOLO_HOST=h$RANK "$0" all_to_all all_reduce -b 4 -e 300K -f 40 -n 2 -w 1' "$BIN/kolo-perf"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"go over tcp"* ]]
    [ "$(grep -c "Out of bounds values : 0 OK" <<<"$output")" -ge 1 ]
}

@test "where only rdma is allowed, and cannot be used, the error says why" {
    KOLO_TRANSPORT=rdma two_hosts FAKEVERBS_DOWN=fake0
    [ "$status" -ne 0 ]
    [[ "$output" == *"no transport joins"*'KOLO_TRANSPORT is "rdma"; rdma cannot be used: no RDMA port can be used (fake0 port 1: its link is not active)'* ]]
}
