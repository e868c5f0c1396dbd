#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# kolo-perf from outside: layout, counts, files and errors; how fast anything is does not matter.

load perf

@test "the layout is that of nccl-tests" {
    run "$PERF" -t 2 all_reduce -b 8 -e 128 -f 4 "${QUICK[@]}"
    [ "$status" -eq 0 ]
    grep -qE '^# nThread 2 nGpus 1 minBytes 8 maxBytes 128 step: 4\(factor\) warmup iters: 1 iters: 2 agg iters: 1 validation: 1 graph: 0' <<<"$output"
    grep -qE '^#  Rank  1 Group  0 Pid +[0-9]+ on ' <<<"$output"
    grep -qE '^# +out-of-place +in-place' <<<"$output"
    grep -qE '^# +size +count +type +redop +root +time +algbw +busbw +#wrong +time +algbw +busbw +#wrong *$' <<<"$output"
    grep -qE '^# +\(B\) +\(elements\) +\(us\) +\(GB/s\) +\(GB/s\) +\(us\) +\(GB/s\) +\(GB/s\)' <<<"$output"
    grep -qE '^# Out of bounds values : 0 OK$' <<<"$output"
    grep -qE '^# Avg bus bandwidth    : [0-9.e+-]+ $' <<<"$output"
    grep -q '^# Collective test concluded: all_reduce$' <<<"$output"
    [ "$(rows | awk '{ print $1, $2, $3, $4, $5, $9, $13, NF }')" = "8 2 float sum -1 0 0 13
32 8 float sum -1 0 0 13
128 32 float sum -1 0 0 13" ]
}

@test "a step in bytes is a whole number" {
    run "$PERF" -t 2 all_reduce -b 8 -e 16 "${QUICK[@]}"
    [ "$status" -eq 0 ]
    [[ "$output" == *" step: 1048576(bytes) warmup"* ]]
    run "$PERF" -t 2 all_reduce -b 8 -e 8 -f 1.5 "${QUICK[@]}"
    [[ "$output" == *" step: 1.5(factor) warmup"* ]]
}

@test "sizes of as many elements are measured once" {
    local sizes
    sizes=$("$PERF" -t 2 all_reduce -b 0 -e 32 -f 2 -n 1 -w 0 | awk '!/^#/ { print $1 }' | xargs)
    [ "$sizes" = "0 4 8 16 32" ]
    sizes=$("$PERF" -t 2 all_reduce -b 7 -e 17 -i 1 -n 1 -w 0 -d double |
        awk '!/^#/ { print $1 }' | xargs)
    [ "$sizes" = "0 8 16" ]
    sizes=$("$PERF" -t 2 all_reduce -b 8 -e 8 -i 0 -n 1 -w 0 | awk '!/^#/ { print $1 }' | xargs)
    [ "$sizes" = 8 ]
}

@test "every operation, type, op and root is right, in threads" {
    run "$PERF" -t 3 all -d all -o all -r all -b 3000 -e 3000 -n 1 -w 0 -u 1
    [ "$status" -eq 0 ]
    [ "$(grep -c '^# Out of bounds values : 0 OK' <<<"$output")" -eq 23 ]
    # 9 ops of 6 integer types, 6 of 6 float types and 8 of bool: all_reduce and reduce_scatter with their
    # kin, and reduce of 3 roots, twice; 13 types: all_gather and all_to_all with theirs, barrier, four of
    # messages; broadcast, gather, scatter of 3 roots with theirs
    [ "$(rows | wc -l)" -eq $((98 * (5 + 6) + 13 * (5 + 1 + 4) + 13 * 3 * 6)) ]
    rows | awk '$9 !~ /^(0|N\/A)$/ || $13 !~ /^(0|N\/A)$/ { exit 1 }'
}

@test "sums of what each rank multiplies" {
    run "$PERF" -t 3 all_reduce reduce_scatter_v reduce_coalesced -o mulsum -d all -b 3000 -e 3000 -z 0 -m 2 -n 1 --json r.json
    [ "$status" -eq 0 ]
    [ "$(grep -c ' : 0 OK' <<<"$output")" -eq 3 ]
    [ "$(rows | awk '{ print $4, $9, $13 }' | sort -u)" = "mulsum 0 0" ]
    json r.json 'len(d["rows"]) == 39 and all(r["redop"] == "mulsum" for r in d["rows"])'
}

@test "ranks as processes: a launcher's, its own, and of threads each" {
    run "$RUN" --no-tag -n 2 "$PERF" broadcast -b 64 -e 64 "${QUICK[@]}"
    [ "$status" -eq 0 ]
    [ "$(rows | awk '{ print $3, $5, $6, $13 }')" = "float 0 N/A 0" ]
    run "$PERF" -N 2 all_gather -b 64 -e 64 "${QUICK[@]}"
    [ "$status" -eq 0 ]
    [ "$(rows | awk '{ print $1, $2 }')" = "64 8" ]
    run "$PERF" reduce_scatter -b 64 -e 64 -N 2 -t 2 "${QUICK[@]}"
    [ "$status" -eq 0 ]
    [ "$(rows | awk '{ print $1, $2 }')" = "64 4" ]
    [ "$(grep -c '^#  Rank ' <<<"$output")" -eq 4 ]
}

# The process of a rank that the background's kolo-perf -N has started, once it is there.
process_of() {
    local perf=$1 rank=$2 pid
    while kill -0 "$perf"; do
        for pid in $(cat "/proc/$perf/task/$perf/children"); do
            ! tr '\0' '\n' <"/proc/$pid/environ" | grep -qx "RANK=$rank" || { echo "$pid"; return 0; }
        done
        sleep 0.05
    done
    return 1
}

# killed SIGNAL SENTENCE OPTION...: the process of the last rank is ended by the signal, which is said.
killed() {
    local signal=$1 sentence=$2 perf pid status=0
    shift 2
    "$PERF" -N 2 all_reduce -b 8 -e 8 -n 1000000 -T 60 "$@" >out 2>err 3>&- &
    perf=$!
    pid=$(process_of $perf 1)
    kill "-$signal" "$pid"
    wait $perf || status=$?
    [ $status -eq $((128 + $(kill -l "$signal"))) ] || { echo "$status"; cat err; return 1; }
    [ "$(grep -cxF "kolo-perf: $sentence" err)" -eq 1 ] || { cat err; return 1; }
}

@test "a rank that a signal ends is named, with the signal" {
    killed KILL 'rank 1 was ended by signal 9, SIGKILL (out of memory? see dmesg)'
    killed HUP 'rank 1 was ended by signal 1, SIGHUP'
    killed KILL 'ranks 2 to 3, of one process, were ended by signal 9, SIGKILL (out of memory? see dmesg)' -t 2
    "$PERF" -N 2 all_reduce -b 8 -e 8 -n 1000000 -T 60 >out 2>err 3>&- &
    process_of $! 1
    kill $! # whoever ends kolo-perf knows it
    wait $! || [ $? -eq 143 ]
    [ "$(grep -c 'ended by' err)" -eq 0 ]
}

@test "a rank alone" {
    run "$PERF" all_reduce all_to_all sendrecv barrier -b 0 -e 4 -f 2 "${QUICK[@]}"
    [ "$status" -eq 0 ]
    [ "$(rows | awk '{ print $1 }' | xargs)" = "0 4 0 4 0 0 4" ]
}

@test "asynchronous calls, dirty buffers, no check, another average, cycles" {
    run "$PERF" -t 2 all_reduce -z 0 -m 4 -b 4K -e 4K "${QUICK[@]}" --dirty -a 3 --run-cycles 2
    [ "$status" -eq 0 ]
    [ "$(rows | awk '{ print $9, $13 }' | xargs)" = "0 0 0 0" ]
    grep -q 'of asynchronous calls, inputs rewritten before each' <<<"$output"
    run "$PERF" -t 2 all -z 0 -m 3 -b 1K -e 2K -i 1K -f 1 -n 1
    [ "$status" -eq 0 ]
    [ "$(rows | wc -l)" -eq 45 ]
    [ "$(grep -c ' : 0 OK' <<<"$output")" -eq 23 ]
    [ "$(grep -c 'of blocking calls$' <<<"$output")" -eq 2 ] # ping_pong, one_way
    run "$PERF" -t 2 all_reduce -c 0 -b 4K -e 4K "${QUICK[@]}" -a 0
    [ "$status" -eq 0 ]
    [ "$(rows | awk '{ print $9, $13 }')" = "N/A N/A" ]
}

@test "uneven blocks and several tensors, as many bytes in all" {
    run "$PERF" -t 3 allgatherv all_to_all_v gather_v_perf allreducecoalesced --tensors 5 -b 12 -e 1200 -f 10 "${QUICK[@]}"
    [ "$status" -eq 0 ]
    grep -q ', uneven blocks$' <<<"$output"
    grep -q ', 5 tensors$' <<<"$output"
    rows | awk '$9 !~ /^(0|N\/A)$/ || $13 !~ /^(0|N\/A)$/ { exit 1 }'
    [ "$(rows | awk '{ print $1, $2 }' | xargs)" = "12 1 120 10 1200 100 12 1 120 10 1200 100 12 1 120 10 1200 100 12 3 120 30 1200 300" ]
}

@test "buffers can be shared" {
    run "$PERF" -N 3 all --memory shared -u 1 -b 300K -e 300K -n 1 --json r.json
    [ "$status" -eq 0 ]
    [ "$(grep -c ' : 0 OK' <<<"$output")" -eq 23 ]
    grep -q 'of blocking calls, shared memory$' <<<"$output"
    json r.json 'd["memory"] == "shared" and d["tensors"] == 16'
    run "$PERF" -t 2 all_reduce all_to_all --memory shared -z 0 -m 3 -b 1M -e 1M "${QUICK[@]}"
    [ "$status" -eq 0 ]
    [ "$(rows | awk '{ print $9, $13 }' | xargs)" = "0 0 0 N/A" ]
}

# Buffers in the memory of a GPU, which is the double of a driver here.
on_gpu() {
    run env LD_LIBRARY_PATH="$DOUBLE" "$@" --device cuda "${QUICK[@]}"
}

@test "on a GPU every operation is right, timed by a stream, in threads and processes" {
    on_gpu "$PERF" -t 3 all -u 1 -b 3000 -e 3000 --json r.json
    [ "$status" -eq 0 ]
    [ "$(grep -c ' : 0 OK' <<<"$output")" -eq 23 ]
    rows | awk '$9 !~ /^(0|N\/A)$/ || $13 !~ /^(0|N\/A)$/ { exit 1 }'
    grep -qE "^#  Rank  2 Group  0 Pid +[0-9]+ on +[^ ]+ device  0 \[0000:1A:00.0\] kolo's test double$" <<<"$output"
    grep -q "of asynchronous calls, by a stream's events$" <<<"$output"
    json r.json 'd["device"] == "cuda" and d["graph"] == 0'
    json r.json 'all(s > 0 for r in d["rows"] if r["out_of_place"] for s in r["out_of_place"]["samples_us"])'
    on_gpu "$RUN" --no-tag -n 2 "$PERF" all_reduce reduce_scatter ping_pong -b 0 -e 9000 -i 1125 -d half -o max -z 1
    [ "$status" -eq 0 ]
    [ "$(grep -c ' : 0 OK' <<<"$output")" -eq 3 ]
    [ "$(rows | awk '{ print $9 $13 }' | sort | uniq -c | xargs)" = "18 00 9 0N/A" ]
    grep -q "of blocking calls, by a stream's events$" <<<"$output"
    FAKECUDA_DEVICES=2 on_gpu "$PERF" -N 2 all_reduce -b 64 -e 64 --percentiles -m 3 -c 2
    [ "$status" -eq 0 ]
    [ "$(rows | awk '{ print $9, $17 }')" = "0 0" ]
    grep -qE '^#  Rank  1 .* device  1 ' <<<"$output"
}

@test "on a GPU operations can be replayed as a graph" {
    on_gpu "$PERF" -N 2 all_reduce broadcast barrier all_to_all allgathercoalesced -b 8 -e 32K -f 64 -G 3 --json r.json
    [[ "$output" != *"it goes by way of the host"* ]] || skip "built without nvcc: no graphs"
    [ "$status" -eq 0 ]
    [ "$(grep -c ' : 0 OK' <<<"$output")" -eq 5 ]
    rows | awk '$9 !~ /^(0|N\/A)$/ || $13 !~ /^(0|N\/A)$/ { exit 1 }'
    grep -q ' graph: 3 ' <<<"$output"
    grep -q "by a stream's events, as a graph$" <<<"$output"
    json r.json 'd["graph"] == 3'
    on_gpu "$PERF" -N 2 sendrecv batch ping_pong -b 8 -e 32K -f 64 -G 3
    [ "$status" -eq 0 ]
    [ "$(grep -c ' : 0 OK' <<<"$output")" -eq 3 ]
}

@test "what cannot be done on a GPU is said" {
    KOLO_CUDA=0 refuses 'KOLO_CUDA is 0' "$PERF" all_reduce --device cuda -b 64 -e 64
    KOLO_CUDA=0 refuses 'KOLO_CUDA is 0' "$PERF" -N 3 all_reduce --device cuda -b 64 -e 64
    export LD_LIBRARY_PATH=$DOUBLE
    FAKECUDA_DEVICES=0 refuses 'the driver finds no GPU' "$PERF" all_reduce --device cuda -b 64 -e 64
    FAKECUDA_BREAK=cuEventCreate=2 refuses 'a GPU has no stream: CUDA_ERROR_OUT_OF_MEMORY' \
        "$PERF" all_reduce --device cuda -b 64 -e 64
    FAKECUDA_BREAK=cuMemcpyAsync=400 refuses 'to the GPU: CUDA_ERROR_INVALID_HANDLE' \
        "$PERF" all_reduce --device cuda -b 64 -e 64
    KOLO_CUDA_IPC=off run "$PERF" -N 2 all_reduce --device cuda -b 64 -e 64 -G 1
    [ "$status" -eq 125 ]
    [[ "$output" == *"rank 1: all_reduce cannot be captured"* ]]
}

@test "ranks can be pinned, more of them than cores too" {
    run "$PERF" -N 2 -t 3 all_reduce --pin -b 64 -e 64 "${QUICK[@]}"
    [ "$status" -eq 0 ]
    [ "$(rows | awk '{ print $9, $13 }')" = "0 0" ]
    grep -q 'of blocking calls, ranks pinned$' <<<"$output"
}

@test "nccl-tests' spellings are known" {
    run "$PERF" -t 2 -g 1 -G 0 alltoall_perf sendrecv_perf AllReduce all_reduce_perf --minbytes 1K \
        --maxbytes 3K --stepbytes 1K --warmup_iters 1 --iters 1 --agg_iters 1 --run_cycles 1 --datatype half
    [ "$status" -eq 0 ]
    [ "$(grep -c '^# Collective test concluded' <<<"$output")" -eq 3 ]
    [ "$(rows | awk '{ print $3 }' | sort | uniq -c | xargs)" = "9 half" ]
}

@test "nccl-tests' flags that choose nothing here are taken at their defaults" {
    run "$PERF" -t 2 all_reduce_perf -b 8 -e 8 "${QUICK[@]}" -T 0 -g 1 -R 0 -p 0 -y 0 -C 0 -S 1 -x 0 -D 0 -V 16 -M 0 \
        -d f8e4m3 --output_file r.json
    [ "$status" -eq 0 ]
    rows | grep -qE '^ +8 +8 +float8_e4m3 .* [0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}$'
    json r.json 'd["rows"][0]["type"] == "float8_e4m3"'
    run "$PERF" -t 2 all_reduce_perf -b 8 -e 8 "${QUICK[@]}" --parallel_init 0 --stream_null 0 --report_cputime 0 \
        --report_timestamps 0 --cta_policy 0 --device_implementation 0 --device_cta_count 16 --memory_report 0 \
        --local_register 0 --ngpus 1 -d f8e5m2
    [ "$status" -eq 0 ]
    rows | grep -qE '^ +8 +8 +float8_e5m2 .* 0 *$'
}

@test "nccl-tests' flags that ask for what is not here are refused with the reason" {
    refuses '-g 2: only 1 is known of nccl-tests'"' flag: a rank has one GPU at most; ranks are -t" "$PERF" all_reduce -g 2
    refuses '-R 1: only 0 is known' "$PERF" all_reduce -R 1
    refuses '-p 1: only 0 is known' "$PERF" all_reduce -p 1
    refuses '-y 1: only 0 is known' "$PERF" all_reduce -y 1
    refuses '--cost prints the CPU time' "$PERF" all_reduce -C 1
    refuses '-x 1: only 0 is known' "$PERF" all_reduce -x 1
    refuses '-D 1: only 0 is known' "$PERF" all_reduce -D 1
    refuses 'the version is --version' "$PERF" all_reduce -V 8
    refuses '-M 1: only 0 is known' "$PERF" all_reduce -M 1
    refuses 'the report that nccl-tests calls so, -M, is not there' "$PERF" all_reduce --memory 1
}

@test "percentiles, cost and time stamps follow" {
    run "$PERF" -t 2 all_reduce -b 64 -e 64 -w 1 --percentiles --cost --timestamps
    [ "$status" -eq 0 ]
    grep -qE '#wrong +p50 +p90 +p99 +max +cpu +switch +syscall +time .* syscall +timestamp$' <<<"$output"
    grep -q 'median of 200 samples of one operation each' <<<"$output"
    rows | grep -qE "[^-] +-( |$)" || ! grep -q "not counted" <<<"$output"
    [ "$(rows | awk '{ print NF, ($10 <= $11) ($11 <= $12) ($12 <= $13) }')" = "29 111" ]
    rows | grep -qE ' [0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}$'
}

@test "JSON and CSV say what the table says" {
    run "$PERF" -t 2 reduce sendrecv -r 1 -b 4K -e 64K -f 4 "${QUICK[@]}" --json r.json --csv r.csv --cost
    [ "$status" -eq 0 ]
    json r.json 'd["ranks"] == 2 and d["wrong"] == 0 and d["iters"] == 2'
    json r.json '[r["bytes"] for r in d["rows"]] == [4096, 16384, 65536] * 2'
    json r.json '{r["root"] for r in d["rows"]} == {1, -1}'
    json r.json 'all(len(r["out_of_place"]["samples_us"]) == 2 for r in d["rows"])'
    json r.json 'all(r["out_of_place"]["cpu_us"] >= 0 for r in d["rows"])'
    json r.json '[r["in_place"] is None for r in d["rows"]] == [False] * 3 + [True] * 3'
    [ "$(wc -l <r.csv)" -eq 10 ]
    [ "$(awk -F, '{ print NF }' r.csv | sort -u)" = 21 ]
    [ "$(awk -F, '$8 == "in_place" { print $1, $2, $3, $4, $5, $6, $7, $18 }' r.csv | head -1)" = \
        "reduce 2 4096 1024 float32 sum 1 0" ]
    run "$PERF" --load r.json --csv again.csv
    [ "$status" -eq 0 ]
    [ "$(rows | wc -l)" -eq 6 ]
    diff <(cut -d, -f1-8,15,18 r.csv) <(cut -d, -f1-8,15,18 again.csv)
}

@test "the manual page names every field of JSON and column of CSV" {
    local page=$BATS_TEST_DIRNAME/../man/kolo-perf.1 name
    "$PERF" -t 2 all_reduce -b 8 -e 8 "${QUICK[@]}" --json r.json --csv r.csv
    section() { sed -n "/^.Ss $1\$/,/^.S[sh] /p" "$page" | sed 1d; }
    for name in $(grep -o '"[a-z0-9_]*":' r.json | tr -d '":' | sort -u); do
        section JSON | grep -qw "$name" || { echo "JSON: $name"; return 1; }
    done
    for name in $(head -n 1 r.csv | tr , ' '); do
        section CSV | grep -qw "$name" || { echo "CSV: $name"; return 1; }
    done
}

@test "one file can be standard output, without the table" {
    "$PERF" -t 2 all_reduce -b 8 -e 32 -f 4 "${QUICK[@]}" --json - >r.json 2>table
    json r.json 'len(d["rows"]) == 2 and d["ranks"] == 2'
    [ "$(grep -vc '^#' table)" -eq 2 ]
    [ ! -e - ]
    "$PERF" -N 2 all_reduce -b 8 -e 8 "${QUICK[@]}" --csv - --json again.json --compare r.json >r.csv 2>table
    [ "$(cut -d, -f1-3 r.csv | xargs)" = "collective,ranks,bytes all_reduce,2,8 all_reduce,2,8" ]
    grep -q 'Out of bounds values : 0 OK' table
    grep -qE '^# [0-9] faster, ' table
    "$PERF" --load r.json --plot - >p.svg 2>table
    head -n 1 p.svg | grep -q '<svg'
    [ ! -e - ]
    [ ! -e /dev/full ] || {
        run bash -c '"$1" --load r.json --csv - 2>&1 >/dev/full' - "$PERF"
        [ "$status" -eq 125 ]
        [[ "$output" == *"standard output: No space left"* ]]
    }
}

@test "root need not mount anything for system calls to be counted" {
    unshare --mount mount -t tracefs nodev /sys/kernel/tracing 2>/dev/null || skip "no tracefs can be mounted"
    ! mountpoint -q /sys/kernel/tracing || skip "it is mounted"
    KOLO_TRANSPORT=tcp run "$PERF" -t 2 all_reduce -b 64K -e 64K "${QUICK[@]}" --cost --csv counted
    [ "$status" -eq 0 ]
    [[ "$output" != *"not counted"* ]]
    awk -F, 'NR > 1 && $21 !~ /^[0-9.]+$/ { exit 1 }' counted
    ! mountpoint -q /sys/kernel/tracing || false
}

@test "system calls are counted as perf counts them" {
    local counted all
    command -v perf >/dev/null || skip "no perf to compare with"
    # in a mount namespace of its own, for where nobody has mounted it
    cat >count <<'END'
[ -d /sys/kernel/tracing/events ] || mount -t tracefs nodev /sys/kernel/tracing || exit 77
KOLO_TRANSPORT=tcp exec perf stat -x, -o all -e raw_syscalls:sys_enter "$1" -t 2 all_reduce -b 64K -e 64K \
    -n 500 -w 5 -c 0 --percentiles --cost --csv counted
END
    run unshare --mount sh count "$PERF"
    [ "$status" -ne 125 ]
    [[ "$output" == *"# nThread "* ]] || skip "system calls cannot be counted here: ${lines[0]}"
    [ "$status" -eq 0 ]
    [[ "$output" != *"not counted"* ]]
    rows | awk '$16 !~ /^[0-9.]+$/ || $27 !~ /^[0-9.]+$/ { exit 1 }' # of each form, of 11 columns
    # operations of two forms on two ranks; what comes before and after them is little
    counted=$(awk -F, 'NR > 1 { sum += $21 * 500 * 2 } END { print sum }' counted)
    all=$(awk -F, '/sys_enter/ { print $1 }' all)
    awk -v counted="$counted" -v all="$all" 'BEGIN { exit !(counted <= all && counted > 0.8 * all) }' ||
        { echo "$counted of $all"; return 1; }
}

@test "misuse is named" {
    refuses 'which operation?' "$PERF"
    refuses 'no operation is called "all_red"' "$PERF" all_red
    refuses '-b is "8x"' "$PERF" all_reduce -b 8x
    refuses '-b is more than -e' "$PERF" all_reduce -b 16 -e 8
    refuses '-i is 0' "$PERF" all_reduce -b 8 -e 16 -i 0
    refuses '-f is "0.5"' "$PERF" all_reduce -f 0.5
    refuses '-d is "fp8"' "$PERF" all_reduce -d fp8
    refuses 'bool, float8_e4m3, float8_e5m2 or all' "$PERF" all_reduce -d fp8
    refuses '-o is "mean"' "$PERF" all_reduce -o mean
    refuses '-o band is for integers, -d is float32' "$PERF" all_reduce -o band
    refuses '-n is "0"' "$PERF" all_reduce -n 0
    refuses '--memory is "huge"' "$PERF" all_reduce --memory huge
    refuses '--tensors is "0"' "$PERF" all_reduce_coalesced --tensors 0
    refuses 'one GPU at most' "$PERF" all_reduce -g 4
    refuses '--device is "gpu"' "$PERF" all_reduce --device gpu
    refuses '-G is for --device cuda' "$PERF" all_reduce -G 1
    refuses 'are for --device cpu' "$PERF" all_reduce --device cuda --dirty
    refuses 'are for --device cpu' "$PERF" all_reduce --device cuda --memory shared
    refuses '-z 1: a graph' "$PERF" all_reduce --device cuda -G 1 -z 1
    refuses 'one_way cannot be part of a graph' "$PERF" one_way --device cuda -G 1
    refuses 'no operation is taken' "$PERF" all_reduce --load x.json
    refuses 'only one of --json, --csv and --plot' "$PERF" all_reduce --json - --csv -
    refuses 'neither --json nor -N' "$PERF" --load x.json --json y.json
    local other
    for other in --json --csv --plot --compare; do
        refuses '--tune writes costs alone' "$PERF" --tune costs $other file
    done
    RANK=0 WORLD_SIZE=1 refuses 'RANK is set' "$PERF" -N 2 all_reduce
    RANK=0 WORLD_SIZE=1048576 MASTER_ADDR=localhost MASTER_PORT=1 refuses \
        '-t 2: 1048576 processes of so many ranks' "$PERF" -t 2 barrier
    refuses '-r 3: there are 3 ranks' "$PERF" -t 3 reduce -r 3
    refuses 'ping_pong needs 2 ranks, there is 1' "$PERF" ping_pong
    refuses 'of which' "$PERF" all_reduce -t 2 -b 1T
    refuses '-r 2: there are 2 ranks' "$PERF" -N 2 reduce -r 2
}

@test "files that cannot be read or written are named before anything is measured" {
    refuses '/nonexistent/a: No such file' "$PERF" all_reduce --json /nonexistent/a
    refuses '/nonexistent/a: No such file' "$PERF" all_reduce --csv /nonexistent/a
    refuses '/nonexistent/a: No such file' "$PERF" all_reduce --plot /nonexistent/a
    refuses 'base.json: No such file' "$PERF" all_reduce --compare base.json
    : >base.json
    refuses 'base.json: the file is empty' "$PERF" all_reduce --compare base.json
    refuses 'base.json: the file is empty' "$PERF" --load base.json
    echo '{"rows": [' >base.json
    refuses 'base.json:2: this is no value' "$PERF" all_reduce --compare base.json
    echo '{"rows": []}' >base.json
    refuses 'base.json is not from kolo-perf --json: it has no rows and ranks' "$PERF" --load base.json
    echo '{"ranks": 1, "rows": [{}]}' >base.json
    refuses 'a row has no collective' "$PERF" --load base.json
    results base.json 8=100
    sed 's/100.007/-1/' base.json >bad.json
    refuses 'a sample is not a number' "$PERF" --load bad.json
    sed 's/\[1[0-9.,]*\]/[]/' base.json >bad.json
    refuses 'no samples_us' "$PERF" --load bad.json
    sed 's/"bytes": 8,//' base.json >bad.json
    refuses 'no bytes' "$PERF" --load bad.json
    [ ! -e /dev/full ] || refuses 'No space left' "$PERF" --load base.json --csv /dev/full
}

@test "a pipe gets what is written, whoever looked whether it can be" {
    mkfifo pipe
    timeout 60 cat pipe >r.csv 3>&- &
    run timeout 60 "$PERF" -t 2 all_reduce -b 8 -e 8 "${QUICK[@]}" --csv pipe
    [ "$status" -eq 0 ]
    wait $!
    [ "$(cut -d, -f1-3 r.csv | xargs)" = "collective,ranks,bytes all_reduce,2,8 all_reduce,2,8" ]
    run "$PERF" -t 2 all_reduce -b 8 -e 8 "${QUICK[@]}" --csv >(cat >again.csv)
    [ "$status" -eq 0 ]
}

@test "wrong elements of a file are wrong when it is loaded, too" {
    "$PERF" -t 2 all_reduce -b 8 -e 8 "${QUICK[@]}" --json r.json
    run "$PERF" --load r.json
    [ "$status" -eq 0 ]
    sed 's/"wrong": 0, "algbw"/"wrong": 3, "algbw"/' r.json >wrong.json
    run "$PERF" --load wrong.json --csv wrong.csv
    [ "$status" -eq 1 ]
    [ "$(rows | awk '{ print $9 }')" = 3 ]
    [ "$(wc -l <wrong.csv)" -eq 3 ]
}

@test "ranks that disagree say so and end with 125" {
    cat >each <<'END'
[ "$RANK" = 0 ] && type=int8 || type=int32
exec "$1" all_reduce -b 8 -e 8 -d $type -T 60
END
    run "$RUN" --no-tag -q -n 2 sh each "$PERF"
    [ "$status" -ne 0 ]
    grep -qE '^kolo-perf: rank [01]: .*all_reduce' <<<"$output"
}

@test "help and version" {
    run "$PERF" --help
    [ "$status" -eq 0 ]
    [[ "$output" == *"reduce_scatter"* ]]
    [ "$("$PERF" -h)" = "$output" ]
    run "$PERF" --version
    [ "$status" -eq 0 ]
    [[ "$output" == "kolo-perf (kolo) "[0-9]* ]]
}

@test "the log says what each size goes by, and which wish it cannot follow" {
    KOLO_DEBUG=info KOLO_ALGO=ring run -0 "$PERF" all_reduce -N 2 -b 1K -e 1K -n 1
    [[ "$output" == *"all_reduce of 2^10 bytes and more goes by ring (long: "*")"$'\n'* ]]
    [ "$(grep -c 'kolo INFO all_reduce of 2^10 bytes' <<<"$output")" -eq 2 ] # once on each rank
    KOLO_DEBUG=info run -0 "$PERF" gather_v -N 2 -b 1K -e 1K -n 1
    [[ "$output" == *" of lengths that not all ranks know goes by "* && "$output" != *"2^64"* ]]
    # of blocks that all ranks know the longest counts: of 1024 elements of two ranks it has 768
    for one in all_gather_v reduce_scatter_v; do
        KOLO_DEBUG=info run -0 "$PERF" $one -N 2 -b 4K -e 4K -n 1
        [[ "$output" == *"INFO $one of 2^11 bytes and more goes by "* ]] || { echo "$output"; return 1; }
    done
    KOLO_DEBUG=info run -0 "$PERF" barrier -N 2 -n 1
    [[ "$output" == *"INFO barrier goes by "* ]]
    KOLO_DEBUG=info KOLO_ALGO=ring KOLO_DETERMINISTIC=1 run -0 "$PERF" all_reduce -N 2 -b 1K -e 1K -n 1
    [[ "$output" == *"us are predicted, since it cannot by KOLO_ALGO's ring"* ]]
}
