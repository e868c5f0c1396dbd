#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# kolo-info from outside. Every test starts from an environment without KOLO_ variables.

bats_require_minimum_version 1.5.0

load python

setup_file() { find_python; }

setup() {
    INFO=${TEST_BUILD:-build}/bin/kolo-info
    cd "$BATS_TEST_DIRNAME/.."
    local name
    for name in $(compgen -e KOLO_); do unset "$name"; done
}

# Whether stdin is JSON in which the Python expression about d holds.
json() {
    python -c 'import json, sys; d = json.load(sys.stdin); sys.exit(not eval(sys.argv[1]))' "$1"
}

@test "tells version, machine and variables" {
    run "$INFO"
    [ "$status" -eq 0 ]
    [[ "$output" == *"  version "*[0-9].[0-9]* ]]
    [[ "$output" == *"  host "*"$(uname -n)"* ]]
    [[ "$output" == *"  boot_id "*"$(cat /proc/sys/kernel/random/boot_id)"* ]]
    [[ "$output" == *"  network_namespace "*"$(readlink /proc/self/ns/net)"* ]]
    [[ "$output" == *"  KOLO_TIMEOUT_MS "*"300000"*"(default)"* ]]
}

@test "transports are tried, and one that cannot be used says why" {
    run "$INFO"
    grep -qE '^  self +window +usable$' <<<"$output"
    grep -qE '^  tcp +message +usable$' <<<"$output"
    KOLO_IFADDR=192.0.2.1 run "$INFO"
    grep -qE '^  tcp +message +.*192\.0\.2\.1' <<<"$output"
    KOLO_IFADDR=192.0.2.1 run "$INFO" --json
    json '[t["usable"] for t in d["transports"] if t["name"] == "tcp"] == [False]' <<<"$output"
    json '[t for t in d["transports"] if t["usable"] == bool(t["reason"])] == []' <<<"$output"
}

# The double of NVIDIA's driver, in place of the machine's own driver or none.
with_double() {
    LD_LIBRARY_PATH=$(dirname "$INFO")/../tests/fakecuda "$@"
}

@test "GPUs are listed, or why there is none" {
    KOLO_CUDA=0 run "$INFO"
    [[ "$output" == *$'GPUs\n  none: KOLO_CUDA is 0\n'* ]]
    FAKECUDA_DEVICES=2 run with_double "$INFO"
    grep -qE "^GPUs, by a driver of CUDA 13.0$" <<<"$output"
    [ "$(grep -cE "^  [01] +kolo's test double, compute capability 9.0, 4 mult.* 1024 MiB, 0000:" <<<"$output")" -eq 2 ]
    FAKECUDA_DEVICES=2 run with_double "$INFO" --json
    json 'd["gpus"]["reason"] is None and len(d["gpus"]["list"]) == 2' <<<"$output"
    json 'd["gpus"]["list"][1]["capability"] == [9, 0]' <<<"$output"
    json '[g["peers"] for g in d["gpus"]["list"]] == [[1], [0]]' <<<"$output"
    FAKECUDA_BREAK=cuInit=34 run with_double "$INFO" --json
    json '"stub" in d["gpus"]["reason"] and d["gpus"]["list"] == []' <<<"$output"
    FAKECUDA_BREAK=cuDeviceGetAttribute=999 run with_double "$INFO"
    [ "$status" -eq 0 ]
    [[ "$output" == *"none: the driver does not describe a GPU: unknown (999)"* ]]
}

@test "a driver that is too old for GPUs is said to be, whatever it lacks" {
    FAKECUDA_VERSION=11060 run with_double "$INFO"
    [ "$status" -eq 0 ]
    [[ "$output" == *"none: the driver has no cuStreamWaitValue32 of CUDA 11.7; it is too old for kolo"* ]]
    cc -shared -x c /dev/null -Wl,-soname,libcuda.so.1 -o "$BATS_TEST_TMPDIR/libcuda.so.1"
    LD_LIBRARY_PATH=$BATS_TEST_TMPDIR run "$INFO"
    [ "$status" -eq 0 ]
    [[ "$output" == *"none: the driver is older than CUDA 12.0 (it has no cuGetProcAddress_v2)"* ]]
    LD_LIBRARY_PATH=$BATS_TEST_TMPDIR run "$INFO" --json
    json '"older than CUDA 12.0" in d["gpus"]["reason"] and d["gpus"]["list"] == []' <<<"$output"
}

@test "a build without kernels says that GPUs' collectives go by way of the host" {
    run with_double "$INFO" --json
    if json 'd["gpus"]["without_kernels"] is None' <<<"$output"; then
        run with_double "$INFO"
        [[ "$output" != *"by way of the host: this build"* ]]
        return
    fi
    json '"no kernels for GPUs" in d["gpus"]["without_kernels"] and d["gpus"]["list"]' <<<"$output"
    run with_double "$INFO"
    grep -qE "^  all of them by way of the host: this build of kolo has no kernels for GPUs" <<<"$output"
}

@test "kernels that the driver does not take are said not to be there, and why" {
    run with_double "$INFO" --json
    json 'd["gpus"]["without_kernels"] is None' <<<"$output" || skip "built without nvcc"
    FAKECUDA_BREAK=cuLibraryLoadData=222 run with_double "$INFO"
    [ "$status" -eq 0 ]
    [[ "$output" == *"  all of them by way of the host: the driver, of CUDA 13.0, is too old for the kernels of this build of kolo"* ]]
    FAKECUDA_BREAK=cuLibraryLoadData=209 run with_double "$INFO" --json
    json '"no kernels for this GPU" in d["gpus"]["without_kernels"] and d["gpus"]["list"]' <<<"$output"
}

@test "kernels that the driver is too old to unpack are said to be, whatever it says itself" {
    LC_ALL=C grep -qaP '\x28\xb5\x2f\xfd' "$INFO" || skip "built without an nvcc of CUDA 12.8"
    local code
    for code in 200 209 218; do
        FAKECUDA_VERSION=12030 FAKECUDA_BREAK=cuLibraryLoadData=$code run with_double "$INFO"
        [ "$status" -eq 0 ]
        [[ "$output" == *"  all of them by way of the host: the driver, of CUDA 12.3, is too old to unpack the kernels of this build of kolo ($code), which drivers of CUDA 12.4 and later can; update it, or build with an nvcc of before CUDA 12.8"* ]]
    done
    FAKECUDA_VERSION=12040 FAKECUDA_BREAK=cuLibraryLoadData=200 run with_double "$INFO"
    [[ "$output" == *"  all of them by way of the host: the kernels cannot be loaded: "* ]]
}

@test "a GPU whose streams cannot wait for words is said to go by way of the host" {
    FAKECUDA_DEVICES=2 FAKECUDA_BREAK=cuStreamWaitValue32=801 run with_double "$INFO"
    [ "$status" -eq 0 ]
    [ "$(grep -c 'by way of the host: its streams cannot wait for a word: CUDA_ERROR_NOT_SUPPORTED (801)$' <<<"$output")" -eq 2 ]
    FAKECUDA_BREAK=cuStreamWriteValue32=801 run with_double "$INFO" --json
    json '"cannot wait for a word" in d["gpus"]["list"][0]["without_waits"]' <<<"$output"
    run with_double "$INFO" --json
    json 'd["gpus"]["list"][0]["without_waits"] is None' <<<"$output"
}

@test "no context is made for what the driver says without one, and one for all GPUs of a kind" {
    FAKECUDA_DEVICES=8 FAKECUDA_CONTEXTS=0 run with_double "$INFO" --json
    json 'd["gpus"]["reason"] is None and len(d["gpus"]["list"]) == 8' <<<"$output"
    json '[g for g in d["gpus"]["list"] if g["without_waits"] or len(g["peers"]) != 7] == []' <<<"$output"
    export FAKECUDA_DEVICES=8 FAKECUDA_BREAK=cuStreamWaitValue32=801 FAKECUDA_CONTEXTS=1
    run with_double "$INFO" --json
    json '[g for g in d["gpus"]["list"] if g["without_waits"]] == d["gpus"]["list"]' <<<"$output"
    FAKECUDA_NAMES=one,other,one run with_double "$INFO" --json
    json '[bool(g["without_waits"]) for g in d["gpus"]["list"]] == [True, False] + 6 * [True]' <<<"$output"
    FAKECUDA_NAMES=one,other,one FAKECUDA_CONTEXTS=2 run with_double "$INFO" --json
    json '[g for g in d["gpus"]["list"] if g["without_waits"]] == d["gpus"]["list"]' <<<"$output"
}

@test "of a driver that says nonsense of its GPUs what it may mean is said" {
    FAKECUDA_NAMES= FAKECUDA_MULTIPROCESSORS=0 FAKECUDA_BYTES=0 run with_double "$INFO"
    grep -qE '^  0 +unknown, compute capability 9.0, unknown multiprocessors, 0 MiB, 0000:1A:00.0$' <<<"$output"
    FAKECUDA_NAMES= FAKECUDA_MULTIPROCESSORS=-5 run with_double "$INFO" --json
    json 'd["gpus"]["list"][0]["name"] == "unknown" and d["gpus"]["list"][0]["multiprocessors"] is None' <<<"$output"
    FAKECUDA_NAMES=$(printf %300s a)$'\e' run with_double "$INFO" --json
    json 'set(d["gpus"]["list"][0]["name"]) == {" "}' <<<"$output"
    FAKECUDA_NAMES=$'a\eb' run with_double "$INFO"
    grep -qE '^  0 +a\?b, compute' <<<"$output"
}

@test "it says which GPUs have access to each other's memory" {
    FAKECUDA_DEVICES=3 FAKECUDA_PEERS=2 run with_double "$INFO"
    grep -qE '^  0 .*0000:1A:00.0; has access to the memory of 1$' <<<"$output"
    grep -qE "^  2 .*; has no access to the others' memory: by way of the host$" <<<"$output"
    FAKECUDA_DEVICES=4 run with_double "$INFO"
    grep -qE '^  1 .*; has access to the memory of 0 2 3$' <<<"$output"
    FAKECUDA_DEVICES=3 FAKECUDA_PEERS=2 run with_double "$INFO" --json
    json '[g["peers"] for g in d["gpus"]["list"]] == [[1], [0], []]' <<<"$output"
    FAKECUDA_DEVICES=1 run with_double "$INFO"
    [[ "$output" != *"the memory of"* ]]
}

# The double of libibverbs.
with_verbs() {
    LD_LIBRARY_PATH=$(dirname "$INFO")/../tests/fakeverbs "$@"
}

with_old_verbs() {
    LD_LIBRARY_PATH=$(dirname "$INFO")/../tests/fakeverbs/old "$@"
}

@test "ports of RDMA adapters are listed, with what is chosen" {
    FAKEVERBS_DEVICES=a0:roce,b0:ib run with_verbs "$INFO" --rdma
    [ "$status" -eq 0 ]
    [[ "$output" == *"* a0:1  RoCE, link active, 100 Gb/s, packets of 1024 bytes"* ]]
    [[ "$output" == *"    * GID 3   RoCE v2  ::ffff:127.0.0.1"* ]]
    [[ "$output" == *"  b0:1  InfiniBand, link active, 100 Gb/s, packets of 1024 bytes"*", LID 17"* ]]
    [[ "$output" == *"not chosen: another is as good or better"* ]]
    [ "$(grep -c '    GPU memory (dma-buf): can be registered' <<<"$output")" -eq 2 ]
    FAKEVERBS_BREAK=ibv_reg_dmabuf_mr=95 FAKEVERBS_ONLY=b0 FAKEVERBS_DEVICES=a0:roce,b0:ib run with_verbs "$INFO" --rdma
    [ "$status" -eq 0 ]
    [ "$(grep -c '(dma-buf): can be registered' <<<"$output")" -eq 1 ]
    [[ "$output" == *"(dma-buf): the driver of b0, or this Linux, cannot register dma-bufs (Operation not supported)"* ]]
    run with_old_verbs "$INFO" --rdma
    [ "$status" -eq 0 ]
    [[ "$output" == *"(dma-buf): libibverbs.so.1 has no ibv_reg_dmabuf_mr; it is older than rdma-core 34"* ]]
    for i in 0 1; do
        RANK=$i WORLD_SIZE=2 LOCAL_RANK=$i MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 FAKEVERBS_DEVICES=a0:ib,b0:ib \
            run with_verbs "$INFO" --rdma
        [ "$(grep -c '^\* ' <<<"$output")" -eq 1 ]
        [[ "$output" == *"* $([ $i = 0 ] && echo a0 || echo b0):1 "*"chosen: active"*", GID 0, by local rank $i among 2 that are as good"* ]]
    done
    FAKEVERBS_DEVICES=a0,b0:ib KOLO_IB_HCA=b0 run with_verbs "$INFO" --rdma
    [[ "$output" == *"* b0:1  InfiniBand"* ]]
    [[ "$output" == *"not chosen: KOLO_IB_HCA does not allow it"* ]]
    FAKEVERBS_DEVICES=a0,b0:ib,c0,w0:iwarp KOLO_IB_HCA=a0,b0,c0,w0 run with_verbs "$INFO" --rdma
    [ "$(grep -c '^\* ' <<<"$output")" -eq 2 ]
    [[ "$output" == *"* a0:1  RoCE"*"* c0:1  RoCE"* ]]
    [ "$(grep -c 'not chosen: it does not go together with the best, which is RoCE' <<<"$output")" -eq 2 ]
    FAKEVERBS_DEVICES=a0,w0:iwarp FAKEVERBS_DOWN=a0 run with_verbs "$INFO" --rdma
    [ "$status" -eq 0 ]
    [[ "$output" == *"not chosen: its link is not active"* ]]
    [[ "$output" == *"* w0:1  iWARP"* ]]
    FAKEVERBS_DEVICES=a0,w0:iwarp FAKEVERBS_DOWN=a0,w0 run with_verbs "$INFO" --rdma
    [ "$status" -eq 1 ]
    FAKEVERBS_DEVICES=a0,b0,c0,d0,e0 KOLO_IB_HCA=a0,b0,c0,d0,e0,nope run with_verbs "$INFO" --rdma
    [ "$(grep -c '^\* ' <<<"$output")" -eq 4 ]
    [[ "$output" == *"  KOLO_IB_HCA names nope, and there is no RDMA adapter of that name"* ]]
    [[ "$output" == *"  e0:1  "*"not chosen: KOLO_IB_HCA names more than 4, and others are better"* ]]
    FAKEVERBS_BREAK=ibv_open_device=13 run with_verbs "$INFO" --rdma
    [ "$status" -eq 1 ]
    [[ "$output" == *"no RDMA: the RDMA adapter fake0 cannot be opened: Permission denied"* ]]
    FAKEVERBS_DEVICES=a0,b0 FAKEVERBS_BREAK=ibv_open_device@1-1=13 run with_verbs "$INFO" --rdma
    [ "$status" -eq 0 ]
    [[ "$output" == *"  the RDMA adapter a0 cannot be opened: Permission denied"*"* b0:1  RoCE"* ]]
    KOLO_ENCRYPT=1 run with_verbs "$INFO" --rdma
    [ "$status" -eq 1 ]
    [[ "$output" == *"no RDMA: KOLO_ENCRYPT is 1, and rdma does not encrypt"*"not chosen: it would be, if RDMA could be used"* ]]
    FAKEVERBS_DEVICES=w0:iwarp KOLO_IFADDR=127.0.0.2 run with_verbs "$INFO" --rdma
    [ "$status" -eq 1 ]
    [[ "$output" == *"no RDMA: w0 is an iWARP adapter that does not have the address 127.0.0.2"* ]]
    FAKEVERBS_DEVICES=, run with_verbs "$INFO" --rdma
    [ "$status" -eq 1 ]
    [[ "$output" == "no RDMA: this machine has no adapter"* ]]
    KOLO_IB=0 run "$INFO" --rdma
    [ "$status" -eq 1 ]
    [ "$output" = "no RDMA: KOLO_IB is 0" ]
}

@test "ports of RDMA adapters in JSON" {
    FAKEVERBS_DEVICES=a0:roce,b0:ib run with_verbs "$INFO" --rdma --json
    [ "$status" -eq 0 ]
    json '[(p["device"], p["chosen"]) for p in d["ports"]] == [("a0", True), ("b0", False)]' <<<"$output"
    json '[g["index"] for p in d["ports"] for g in p["gids"] if g["chosen"]] == [3]' <<<"$output"
    json 'd["reason"] is None and d["ports"][1]["lid"] == 17 and d["ports"][0]["numa"] is None' <<<"$output"
    json 'all(p["dma_buf"] for p in d["ports"])' <<<"$output"
    run with_old_verbs "$INFO" --rdma --json
    json '[(p["dma_buf"], "rdma-core 34" in p["dma_buf_reason"]) for p in d["ports"]] == [(False, True)]' <<<"$output"
    KOLO_IB=0 run "$INFO" --json --rdma
    [ "$status" -eq 1 ]
    json 'd == {"reason": "KOLO_IB is 0", "unopened": "", "unknown": "", "ports": []}' <<<"$output"
}

@test "algorithms are listed" {
    run "$INFO"
    grep -qE '^  all_reduce +ring +' <<<"$output"
    grep -qE '^  all_reduce +one_shot +' <<<"$output"
    run "$INFO" --json
    json '{"all_reduce", "barrier", "all_to_all"} <= {a["collective"] for a in d["algorithms"]}' <<<"$output"
}

@test "says what a launcher's variables mean, and flags those that are half set" {
    run env -u RANK -u WORLD_SIZE "$INFO"
    [[ "$output" == *"  placement "*"rank 0 of 1 (no launcher has set one); it is alone"* ]]
    PMI_RANK=1 PMI_SIZE=3 PMI_FD=9 run "$INFO" --json
    [ "$status" -eq 0 ]
    json 'd["job"]["rank"] == 1 and d["job"]["size"] == 3 and "PMI" in d["job"]["launcher"]' <<<"$output"
    KOLO_RANK=0 KOLO_SIZE=1 PMI_RANK=1 PMI_SIZE=3 PMI_FD=9 run "$INFO"
    [[ "$output" == *"  warning "*"is the former left over from another job, or the latter of what"* ]]
    RANK=0 WORLD_SIZE=1 PMI_SIZE=3 run "$INFO"
    [ "$status" -eq 0 ]
    [[ "$output" == *"  note "*"PMI_RANK is not set, but PMI_SIZE is "*"neither counts, since RANK is set"* ]]
    PMI_RANK=1 run "$INFO"
    [ "$status" -eq 1 ]
    [[ "$output" == *"  refused "*"PMI_SIZE is not set, but PMI_RANK is"* ]]
}

@test "a variable of the environment is shown with its default" {
    KOLO_SLOTS=16 run "$INFO"
    [ "$status" -eq 0 ]
    [[ "$output" =~ KOLO_SLOTS\ +INT\ +16\ +\(environment\;\ default\ 8\) ]]
}

@test "a token is not shown" {
    for how in "" --json; do
        KOLO_AUTH_TOKEN=0123456789abcdef run "$INFO" $how
        [ "$status" -eq 0 ] || { echo "$output"; return 1; }
        [[ "$output" != *0123456789abcdef* ]]
        grep -qE 'KOLO_AUTH_TOKEN"?[ ,].*\(hidden\)' <<<"$output"
    done
}

@test "numbers have bounds, and nothing else has" {
    run "$INFO"
    [[ "$output" == *$'\n      slots of a link in each direction; the same on all ranks; 2 to 64\n'* ]]
    [[ "$output" == *$'\n      use NVIDIA\'s driver where a program uses it too\n'* ]]
    run "$INFO" --json
    json 'all(("low" in v) == (v["type"] in ("INT", "SIZE", "BOOL")) for v in d["variables"])' <<<"$output"
    json '{v["type"] for v in d["variables"]} == {"TEXT", "SECRET", "INT", "SIZE", "BOOL"}' <<<"$output"
}

@test "an empty variable counts as not set" {
    KOLO_SLOTS= run "$INFO"
    [ "$status" -eq 0 ]
    [[ "$output" =~ KOLO_SLOTS\ +INT\ +8\ +\(default\) ]]
}

@test "malformed values are flagged: exit code 1" {
    KOLO_SLOTS=1 run "$INFO"
    [ "$status" -eq 1 ]
    [[ "$output" == *'WRONG: KOLO_SLOTS is "1"; it takes a whole number from 2 to 64'* ]]
    KOLO_SLICE_BYTES=12X run "$INFO"
    [ "$status" -eq 1 ]
    KOLO_SLICE_BYTES=12K run "$INFO"
    [ "$status" -eq 0 ]
}

# wrong NAME VALUE SENTENCE: the value is flagged, alone, by a line that begins with the sentence.
wrong() {
    run env "$1=$2" "$INFO"
    [ "$status" -eq 1 ] || { echo "$1=$2: $status"; return 1; }
    grep -qF -- "      WRONG: $3" <<<"$output" || { echo "$1=$2:"; grep WRONG <<<"$output"; return 1; }
    [ "$(grep -c 'WRONG: ' <<<"$output")" -eq 1 ]
}

@test "whatever a job would refuse is flagged by the same sentence" {
    wrong KOLO_TRANSPORT ib 'KOLO_TRANSPORT is "ib", and no transport is called "ib"; it lists some of shm, rdma and tcp'
    wrong KOLO_TRANSPORT , 'KOLO_TRANSPORT is ",", and no transport is called ""'
    wrong KOLO_ALGO foo 'KOLO_ALGO is "foo", which no collective has'
    wrong KOLO_ALGO all_reduce=foo 'KOLO_ALGO asks for all_reduce by "foo", which it does not have'
    wrong KOLO_ALGO reduction=ring 'KOLO_ALGO names "reduction", which is no collective; there are all_reduce, reduce,'
    wrong KOLO_TUNING /no/such 'KOLO_TUNING: /no/such cannot be read: '
    wrong KOLO_TUNING /tmp 'KOLO_TUNING: /tmp cannot be read: Is a directory'
    wrong KOLO_TUNING /dev/zero 'KOLO_TUNING: /dev/zero cannot be read: Not a regular file; make'
    wrong KOLO_IFADDR eth-none 'KOLO_IFADDR is "eth-none"; it takes an address of this machine, or an interface that'
    wrong KOLO_IFADDR 192.0.2.1 'KOLO_IFADDR is "192.0.2.1"; it takes an address of this machine'
    wrong KOLO_PORT_RANGE 5 'KOLO_PORT_RANGE is "5"; it takes two ports'
    wrong KOLO_ALGO barrier=dissemination,ring,doubling 'KOLO_ALGO asks for all_reduce by both "ring" and "doubling"'
    wrong KOLO_PROTO simple,inline 'KOLO_PROTO is "simple,inline"; simple, which is none of the ways, stands alone'
    wrong KOLO_PROTO foo 'KOLO_PROTO names "foo"; it lists ways of'
    wrong KOLO_STORE_FD 77 'KOLO_STORE_FD is 77, and descriptor 77 is no socket that listens'
    wrong KOLO_STORE_FD x 'KOLO_STORE_FD is "x"; it takes a whole number'
    wrong KOLO_GPUDIRECT q 'KOLO_GPUDIRECT is "q"; it takes auto or 0'
    wrong KOLO_CUDA_IPC q 'KOLO_CUDA_IPC is "q"; it takes all, legacy, vmm or off'
    wrong KOLO_AUTH_TOKEN short 'KOLO_AUTH_TOKEN: the token has 5 bytes; it takes 16'
    wrong KOLO_AUTH_TOKEN_FILE /no/such 'KOLO_AUTH_TOKEN_FILE: opening /no/such: '
    wrong KOLO_AUTH foo 'KOLO_AUTH is "foo"; it takes token or none'
    KOLO_AUTH_TOKEN=0123456789abcdef wrong KOLO_AUTH foo 'KOLO_AUTH is "foo"; it takes token or none'
    KOLO_AUTH_TOKEN=0123456789abcdef wrong KOLO_AUTH none 'KOLO_AUTH=none does without a token, but one is set'
    wrong KOLO_AUTH_STORE x 'KOLO_AUTH_STORE is "x"; it takes token or none'
    wrong KOLO_DEBUG FOO 'KOLO_DEBUG is "FOO"; it takes NONE ERROR WARN INFO DEBUG TRACE'
    wrong KOLO_DEBUG_FILE /no/such/x 'KOLO_DEBUG_FILE /no/such/x: No such file or directory'
    wrong KOLO_HOST "$(printf '%064d' 0)" 'KOLO_HOST is "'
}

@test "what a job takes is not flagged" {
    local set
    for set in KOLO_TRANSPORT=shm,tcp KOLO_ALGO=ring KOLO_ALGO=allreduce=ring KOLO_IFADDR=127.0.0.1 \
        KOLO_IFADDR=lo KOLO_IFADDR=localhost KOLO_PORT_RANGE=30000-30999 KOLO_PROTO=simple KOLO_STORE_FD=-1 \
        KOLO_GPUDIRECT=0 KOLO_CUDA_IPC=off KOLO_AUTH_TOKEN=0123456789abcdef KOLO_AUTH=token \
        KOLO_AUTH=none KOLO_AUTH_STORE=none KOLO_DEBUG=info KOLO_DEBUG_FILE=/dev/null KOLO_HOST=h; do
        run env "$set" "$INFO"
        [ "$status" -eq 0 ] || { echo "$set:" && grep WRONG <<<"$output"; return 1; }
    done
}

@test "transports that KOLO_TRANSPORT leaves out are not usable" {
    KOLO_TRANSPORT=tcp run "$INFO"
    grep -qE '^  tcp +message +usable$' <<<"$output"
    grep -qE '^  shm +window +KOLO_TRANSPORT, "tcp", does not list it$' <<<"$output"
    KOLO_TRANSPORT=ib run "$INFO" --json
    json '[t["name"] for t in d["transports"] if t["usable"]] == ["self"]' <<<"$output"
}

@test "unknown variables are flagged with the nearest known one" {
    KOLO_TIMEOUT=3 KOLO_DEBG=INFO KOLO_XYZZY_QUUX_PLUGH=1 run "$INFO"
    [ "$status" -eq 1 ]
    [[ "$output" == *"KOLO_TIMEOUT "*"is KOLO_TIMEOUT_MS meant?"* ]]
    [[ "$output" == *"KOLO_DEBG "*"is KOLO_DEBUG meant?"* ]]
    [[ "$output" == *"KOLO_XYZZY_QUUX_PLUGH UNKNOWN: no variable of kolo's"* ]]
    ! grep -q 'PLUGH.*meant' <<<"$output" || false
}

@test "names of any length and number do no harm" {
    env "KOLO_$(head -c 5000 /dev/zero | tr '\0' A)=1" KOLO_= "$INFO" >/dev/null && return 1
    run env $(seq -f 'KOLO_V%g=1' 300) "$INFO" --json
    [ "$status" -eq 1 ]
    json 'd["problems"] == 300 and len(d["unknown_variables"]) == 64' <<<"$output"
}

@test "control characters of a value do not reach the terminal" {
    KOLO_ALGO=$'a\e[31mb' run "$INFO"
    [[ "$output" != *$'\e'* ]]
    [[ "$output" == *'a?[31mb'* ]]
}

@test "--json parses and holds the same" {
    run "$INFO" --json
    [ "$status" -eq 0 ]
    json 'd["problems"] == 0 and d["machine"]["cores_usable"] >= 1 and d["build"]["abi"]' <<<"$output"
    json '[v["value"] for v in d["variables"] if v["name"] == "KOLO_SLOTS"] == ["8"]' <<<"$output"
    json 'd["unknown_variables"] == []' <<<"$output"
    KOLO_SLOTS=x KOLO_DEBG=1 run "$INFO" --json
    [ "$status" -eq 1 ]
    json 'd["problems"] == 2 and d["unknown_variables"][0]["nearest"] == "KOLO_DEBUG"' <<<"$output"
    json '[v for v in d["variables"] if v["problem"]][0]["source"] == "environment"' <<<"$output"
}

@test "--json parses whatever bytes a variable holds" {
    local value
    for value in $'"\\\n\t\x01' $'\xff\xfe' $'\xc0\xaf' $'\xed\xa0\x80' $'\xf5\x80\x80\x80' \
        $'\xe2\x82' $'\xe0\x80\xaf' $'\xf0\x80\x80\x80' 'žluťoučký 🎡'; do
        KOLO_ALGO=$value "$INFO" --json | json \
            '[v["value"] for v in d["variables"] if v["name"] == "KOLO_ALGO"][0] != ""'
    done
    KOLO_ALGO=$'é🎡"\\\x01' "$INFO" --json | json \
        '[v["value"] for v in d["variables"] if v["name"] == "KOLO_ALGO"] == ["é🎡\"\\\x01"]'
}

@test "--variables-markdown prints one row for each variable" {
    KOLO_SLOTS=x run "$INFO" --variables-markdown
    [ "$status" -eq 0 ]
    [ "${lines[0]}" = "| Variable | Type | Default | Meaning |" ]
    [ "$(grep -c '^| `KOLO_[A-Z_]*` | [A-Z]* | .* | .* |$' <<<"$output")" -eq $((${#lines[@]} - 2)) ]
}

@test "the README has the table as it is" {
    "$INFO" --variables-markdown | while read -r row; do
        grep -qxF -- "$row" README.md || { echo "not in README.md: $row"; exit 1; }
    done
}

@test "--help, --version, wrong use, output that cannot be written" {
    run "$INFO" --help
    [ "$status" -eq 0 ]
    [ "$("$INFO" -h)" = "$output" ]
    run "$INFO" --version
    [ "$status" -eq 0 ]
    [[ "$output" == "kolo-info (kolo) "[0-9]* ]]
    run "$INFO" something
    [ "$status" -eq 125 ]
    run "$INFO" --nothing
    [ "$status" -eq 125 ]
    [ -w /dev/full ] || skip "no /dev/full"
    run sh -c '"$0" >/dev/full' "$INFO"
    [ "$status" -eq 125 ]
}

# refused SENTENCE OPTION...
refused() {
    local sentence=$1
    shift
    run "$INFO" "$@"
    [ "$status" -eq 125 ]
    [[ "$output" == *"kolo-info: $sentence"* ]] || { echo "$output"; return 1; }
}

@test "options that would change nothing are refused" {
    refused "--ranks is for --algorithms" --ranks 8
    refused "--per-host is for --algorithms" --per-host 8 --rdma
    refused "--json and --algorithms do not go together" --json --algorithms
    refused "--json and --variables-markdown do not go together" --variables-markdown --json
    refused "--algorithms and --rdma do not go together" --algorithms --rdma
}

@test "the choice for each size is printed with its prediction" {
    run "$INFO" --algorithms
    [ "$status" -eq 0 ]
    [[ "${lines[0]}" == "2 ranks, 2 on a host, by costs that usually hold"* ]]
    grep -qE '^  all_reduce +from +0 B +[a-z_]+ +[0-9.e+]+ us +[a-z]' <<<"$output"
    for collective in reduce broadcast all_gather reduce_scatter gather scatter all_to_all barrier; do
        grep -qE "^  $collective +from +0 B " <<<"$output"
    done
    KOLO_ALGO=all_reduce=ring run "$INFO" --algorithms --ranks 6 --per-host 3
    [[ "${lines[0]}" == "6 ranks, 3 on a host"* ]]
    grep -qE '^  all_reduce +from +0 B +ring ' <<<"$output"
    [ "$(grep -c '^  all_reduce' <<<"$output")" -eq 1 ]
}

@test "wrong costs and wishes are refused" {
    KOLO_TUNING=/no/such run "$INFO" --algorithms
    [ "$status" -eq 1 ]
    [[ "$output" == *"KOLO_TUNING: /no/such cannot be read"* ]]
    KOLO_ALGO=barrier=ring run "$INFO" --algorithms
    [ "$status" -eq 1 ]
    [[ "$output" == *"KOLO_ALGO asks for barrier by \"ring\", which it does not have; it has "* ]]
    run "$INFO" --algorithms --ranks 1
    [ "$status" -eq 125 ]
}
