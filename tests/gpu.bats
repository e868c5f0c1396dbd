#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# tests/gpu/check on the double of the driver: what is to run on a GPU runs.

bats_require_minimum_version 1.5.0

setup() {
    cd "$BATS_TEST_DIRNAME/.."
    BUILD=${TEST_BUILD:-build}
    local name
    for name in $(compgen -e KOLO_); do unset "$name"; done
}

@test "the check of a GPU goes through on the double, and says so" {
    run tests/gpu/check --double --quick "$BUILD"
    [[ "$output" != *"has no kernels for GPUs"* ]] || skip "built without nvcc"
    grep FAILED <<<"$output" || true # which bats shows if the test fails
    [ "$status" -eq 0 ]
    [[ "$output" == *"THIS IS NO GPU"* ]]
    for n in 2 4; do
        grep -E "^\| probes \| once around $n processes' kernels that spin \| [0-9.e+]+ \| us \| [1-9][0-9]* rounds" <<<"$output"
    done
    for memory in "device memory" "the host's memory"; do
        grep -E "^\| probes \| lines of $memory, looked at while they are written \| [0-9.e+]+ \| looks \| ok: no half is torn; [0-9]+ have halves that differ" <<<"$output"
    done
    grep -E "^\| bits \| kernels' results, compared with the host's bit by bit \| [1-9][0-9]+ \| calls \| ok" <<<"$output"
    grep -E "^\| bits \| those of them with arrays that all threads go through twice \| [1-9]" <<<"$output"
    grep -E "^\| threads 2 \| those of them that are long \| [1-9]" <<<"$output"
    grep -E "^\| threads 2 \| those of them whose buffers begin between multiples of 8 bytes \| [1-9]" <<<"$output"
    [[ "$output" == *"| processes 8 | the whole step |"* ]]
    # where others need the processors too, kernels that spin for each other may take too long
    grep -E "^\| speed of kernels \| kernel of 2 float32, 65536 bytes \| [0-9.e+]+ \| GB/s \| [0-9.]+ % of a copy's [0-9]+, cold" <<<"$output"
    grep -E "^\| speed of processes 2 \| all_reduce of 2 processes, 32768 bytes \| [0-9.e+]+ \| us \| [0-9.]+ times a copy of as much, [0-9.]+, cold" <<<"$output"
    for n in 2 4; do
        grep -E "^\| speed of a spinning all_reduce $n \| all_reduce of $n processes, spinning, 8 bytes \| ([0-9.e+]+ \| us \| ok:|.*given up: more than) [0-9.]+ times as long as kolo's [0-9.]+" <<<"$output"
    done
    for end in "is killed before its part of a call" "is killed somewhere in many calls"; do
        grep -E "^\| ends of processes 3 \| streams' ends when one of 3 processes $end \| [0-9.e+]+ \| ms \| ok: 2 of 2 name it and go on" <<<"$output"
    done
    for kind in processes threads; do
        [ "$(grep -cE "^\| ends of $kind 3 \| streams' ends when one of 3 $kind aborts .* \| ms \| ok: 3 of 3 name it and go on" <<<"$output")" -eq 2 ]
    done
    [[ "$output" == *"| kolo-perf | all_reduce of 2, 8 bytes, in_place |"* ]]
    for n in 2 4; do
        for what in all_gather reduce_scatter broadcast reduce gather scatter all_to_all sendrecv; do
            grep -E "^\| kolo-perf of all else, $n \| $what of $n, 4096 bytes, (in|out_of)_place \| [0-9.e+]+ \| us \| busbw [0-9.e-]+ \|" <<<"$output"
        done
    done
    grep -E "^\| what is to be reached \| all_reduce of processes, 8 bytes \| [0-9.e+]+ \| us \| (reached|missed): at most 100" <<<"$output"
    grep -F "| Gloo beside kolo's all_reduce, at every size |  |  | not measured: at least 5 |" <<<"$output"
    [[ "$output" != *FAILED* ]]
    [ "$(grep -cE "^\| [A-Za-z0-9 ,]+ \| the collectives' ways, of all ranks \|  \|  \| ok: " <<<"$output")" -eq 14 ]
    # the figures come before what takes longest
    [[ "$output" == *"| speed of kernels | the whole step |"*"| threads 8 | the whole step |"*"| sanitizer | "* ]]
    local record=${output##*records: }
    record=${record%% *}
    [ -s "$record" ]
    if command -v python3; then
        python3 -c 'import json, sys
rows = json.load(open(sys.argv[1]))
assert any(r["step"] == "speed of processes 4" and r["value"] > 0 for r in rows)' "${record%.md}.json"
    fi
}

@test "a check that runs out of time says what it left out, and leaves its record" {
    run tests/gpu/check --double --quick --seconds=1 "$BUILD"
    [[ "$output" != *"has no kernels for GPUs"* ]] || skip "built without nvcc"
    [ "$status" -eq 3 ]
    [[ "$output" == *"| kolo-perf | the whole step | 0 | s | left out: the time is over |"* ]]
    [[ "$output" == *"1 s were not enough for all steps"* ]]
    [[ "$output" != *FAILED* ]]
    local record=${output##*records: }
    record=${record%% *}
    grep -q "| processes 8 | the whole step |" "$record"
    grep -q "| what is to be reached | all_reduce of processes, 8 bytes |" "$record"
    if command -v python3; then
        python3 -m json.tool "${record%.md}.json"
    fi
}

# only [OPTION...]: a check of a few steps, of a build whose records are the test's own.
only() {
    mkdir -p "$BATS_TEST_TMPDIR/gpu"
    local build
    build=$(realpath "$BUILD")
    ln -sfn "$build/bin" "$build/lib" "$build/tests" "$BATS_TEST_TMPDIR/"
    ln -sf "$build"/gpu/{bits,ends,exams,probes,sources,speed} "$BATS_TEST_TMPDIR/gpu/"
    run tests/gpu/check --double --quick "$@" "$BATS_TEST_TMPDIR"
}

@test "a second check does what the first had no time for, and adds to its record" {
    only --only="threads 2" --only="processes 2"
    [[ "$output" != *"has no kernels for GPUs"* ]] || skip "built without nvcc"
    [ "$status" -eq 0 ]
    local record=${output##*records: }
    record=${record%% *}
    [ "$(grep -c "| the whole step |" "$record")" -eq 2 ]

    sed -i "s/^| threads 2 | calls of 2 threads | .*/| threads 2 | calls of 2 threads | 47110815 | calls | ok |/
        s/^| processes 2 | calls of 2 processes | .*/| processes 2 | calls of 2 processes | 47110815 | calls | ok |/
        s/^| machine | processors | .*/| machine | processors |  |  | 47110815 |/" "$record"
    mv "$record" "${record%-????-??-??.md}-2000-01-01.md"
    record=${record%-????-??-??.md}-2000-01-01.md
    only --only="spee*kernels" --only="threads ?" --seconds=15
    [ "$status" -eq 0 ] || [ "$status" -eq 3 ]
    [[ "$output" == *"records: $record "* ]]
    grep -F "| processes 2 | calls of 2 processes | 47110815 | calls | ok |" "$record"
    [ "$(grep -c "^| threads 2 | calls of 2 threads | [0-9]* | calls | ok |" "$record")" -eq 1 ]
    grep -E "^\| machine \| processors \|  \|  \| [0-9]" "$record"
    grep -F "| speed of kernels | the whole step |" "$record"
    grep -F "| threads 8 | the whole step |" "$record"
    [ "$(grep -c "^| what is to be reached | all_reduce of processes, 8 bytes |" "$record")" -eq 1 ]
    run ! grep -F "| kolo-perf | the whole step |" "$record"
    [ "$(grep -c 47110815 "$record")" -eq 1 ] # what was run anew has its new figures
    if command -v python3; then
        python3 -m json.tool "${record%.md}.json"
    fi

    sed -i "s/^| machine | commit | .*/| machine | commit |  |  | 47110815 |/" "$record"
    only --only="threads 2"
    [ "$status" -eq 2 ]
    [[ "$output" == *"$record is of commit 47110815, this is "*": move it away, or run all steps"* ]]
    rm "$record"
    only --only="no such step"
    [ "$status" -eq 2 ]
    [[ "$output" == *"no step has a name that matches: no such step"* ]]
}

@test "a step that fails says why, and one that leaves something behind is not waited for" {
    only --only="no such step"
    [[ "$output" != *"has no kernels for GPUs"* ]] || skip "built without nvcc"
    local began=$SECONDS
    rm "$BATS_TEST_TMPDIR/gpu/exams"
    cat >"$BATS_TEST_TMPDIR/gpu/exams" <<'STEP'
#!/bin/sh
printf 'calls of %s\t1\tcalls\tok\n' "$1"
echo "the reason of $1 | is this" >&2
[ "$1" = threads ] || sleep 60
setsid sleep 60 &
exit 1
STEP
    chmod +x "$BATS_TEST_TMPDIR/gpu/exams"
    run tests/gpu/check --double --quick --only="threads 2" "$BATS_TEST_TMPDIR"
    [ "$status" -eq 1 ]
    [ $((SECONDS - began)) -lt 40 ]
    [[ "$output" == *"-- threads 2: FAILED (1), "*"# kolo's test double"*"threads 2: the reason of threads / is this"*"something has FAILED"* ]]
    local record=${output##*records: }
    record=${record%% *}
    grep -Fx "| threads 2 | what it said last |  |  | the reason of threads / is this |" "$record"
    grep -F "| threads 2 | calls of threads | 1 | calls | ok |" "$record"
    run tests/gpu/check --double --quick --only="processes 2" --seconds=4 "$BATS_TEST_TMPDIR"
    [ "$status" -eq 3 ]
    [[ "$output" == *"-- processes 2: cut short, "* ]]
}

# A tree of few files that has the script.
tree() {
    local name
    tree=$BATS_TEST_TMPDIR/tree
    for name in include src transports kernels tests/gpu/record examples scripts; do
        mkdir -p "$tree/$name"
        echo "$name" >"$tree/$name/a file"
    done
    touch "$tree/Makefile"
    cp tests/gpu/sources "$tree/tests/gpu/"
}

@test "what was run is known by its commit and its changes, and without git" {
    tree
    local of_none commit of_commit
    export GIT_CEILING_DIRECTORIES=$BATS_TEST_TMPDIR
    of_none=$("$tree/tests/gpu/sources")
    [[ "$of_none" =~ ^"no git, sources "[0-9a-f]{12}$ ]]
    cd "$tree"
    git init -q
    git add .
    git -c user.name=A -c user.email=a@b commit -qm "Begin"
    commit=$(git rev-parse --short HEAD)
    of_commit=$(tests/gpu/sources)
    [ "$of_commit" = "$commit${of_none#no git}" ]
    echo "a record" >tests/gpu/record/gpu-2000-01-01.md
    [ "$(tests/gpu/sources)" = "$of_commit" ]
    echo more >src/new
    [[ "$(tests/gpu/sources)" == "$commit with changes, sources "* ]]
    [ "$(tests/gpu/sources)" != "${of_commit/,/ with changes,}" ]
}

@test "a record says so when what was run is not what lies here" {
    only --only="no such step"
    [[ "$output" != *"has no kernels for GPUs"* ]] || skip "built without nvcc"
    rm "$BATS_TEST_TMPDIR/gpu/sources"
    echo "47110815, sources 0123456789ab" >"$BATS_TEST_TMPDIR/gpu/sources"
    run tests/gpu/check --double --quick --only="threads 2" "$BATS_TEST_TMPDIR"
    [ "$status" -eq 0 ]
    local record=${output##*records: }
    record=${record%% *}
    grep -F "| machine | commit |  |  | 47110815, sources 0123456789ab |" "$record"
    grep -E "^\| machine \| sources here \|  \|  \| .*, sources [0-9a-f]{12}: .* was built of others" "$record"
}

# verdict_of WHAT, of rows on the standard input as "STEP|WHAT|VALUE|UNIT|NOTE"
verdict_of() {
    tr '|' '\t' | awk -f tests/gpu/bars.awk | awk -F '\t' -v what="$1" '$1 == what { print $2 "|" $3 "|" $4 }'
}

@test "each bar is judged by the worst of what it is about" {
    local what="rate of reduction kernels beside a copy's, from 16 MiB on"
    [ "$(verdict_of "$what" <<<"k|kernel of 2 float32, 4194304 bytes|9|GB/s|10.0 % of a copy's 90")" = "||not measured: at least 95" ]
    [ "$(verdict_of "$what" <<<"k|kernel of 2 float32, 16777216 bytes|95|GB/s|95.0 % of a copy's 100")" = "95|%|reached: at least 95" ]
    [ "$(verdict_of "$what" <<'ROWS'
k|kernel of 2 float32, 16777216 bytes|99|GB/s|99.0 % of a copy's 100
k|kernel of 8 bfloat16, 67108864 bytes|94|GB/s|94.9 % of a copy's 99
k|kernel of 4 float32, 67108864 bytes|99|GB/s|100.2 % of a copy's 99
ROWS
    )" = "94.9|%|missed: at least 95" ]

    what="all_reduce of processes beside a copy of as much, from 64 MiB on"
    [ "$(verdict_of "$what" <<'ROWS'
s|all_reduce of 2 processes, 16777216 bytes|9|us|3.00 times a copy of as much, 3.0
s|all_reduce of 2 processes, 134217728 bytes|9|us|1.15 times a copy of as much, 8.0
s|all_reduce of 4 processes, 134217728 bytes|9|us|1.02 times a copy of as much, 8.0
s|all_reduce of 4 processes, 134217728 bytes, in a row|9|us|1.30 times a copy of as much, 8.0
s|all_reduce of 2 threads, 134217728 bytes|9|us|1.40 times a copy of as much, 8.0
ROWS
    )" = "1.15|times|reached: at most 1.15" ]

    [ "$(verdict_of "all_reduce of processes, 8 bytes" <<'ROWS'
s|all_reduce of 2 processes, 8 bytes|90.5|us|9.00 times a copy of as much, 10.0
s|all_reduce of 4 processes, 8 bytes|101.5|us|9.00 times a copy of as much, 10.0
s|all_reduce of 4 processes, 8 bytes, in a graph|300|us|9.00 times a copy of as much, 10.0
ROWS
    )" = "101.5|us|missed: at most 100" ]
    [ "$(verdict_of "all_reduce of threads in a graph, 8 bytes" <<'ROWS'
s|all_reduce of 2 threads, 8 bytes|90.5|us|9.00 times a copy of as much, 10.0
s|all_reduce of 2 threads, 8 bytes, in a graph|9.5|us|0.90 times a copy of as much, 10.0
ROWS
    )" = "9.5|us|reached: at most 15" ]

    local rows="s|all_reduce of 2 processes, spinning, 8 bytes|600|us|ok: 7.50 times as long as kolo's 80.0; 70.0 in a row
s|all_reduce of 4 processes, spinning, 8 bytes|||given up: more than 20000.00 times as long as kolo's 100.0
t|all_reduce of 2, 8 bytes, kolo|80|us|ok
t|all_reduce of 2, 8 bytes, Gloo|320|us|4.00 times as long as kolo's"
    [ "$(verdict_of "kernels that spin beside kolo's all_reduce, at every size" <<<"$rows")" = "7.5|times|reached: at least 5" ]
    [ "$(verdict_of "Gloo beside kolo's all_reduce, at every size" <<<"$rows")" = "4|times|missed: at least 5" ]
}

# ways_of KIND: what two ranks' exams say of the ways that collectives took; always the same calls.
ways_of() {
    run "$BUILD/gpu/exams" "$1" 2 1 1
    awk -F '\t' '$1 ~ /^the collectives. ways/ { print $4 }' <<<"$output"
}

@test "what was to go by one way, and fell back to another in silence, is found" {
    export LD_LIBRARY_PATH=$BUILD/tests/fakecuda
    "$BUILD/gpu/probes" --kernels || skip "built without nvcc"
    ways_of processes | grep -E "^ok: .*, 0 by way of the host; [1-9][0-9]* buffers by handles, 0 by descriptors"
    KOLO_CUDA_IPC=vmm ways_of pieces | grep -E "^ok: .*, 0 by way of the host; 0 buffers by handles, [1-9][0-9]* by descriptors"
    KOLO_CUDA_IPC=off ways_of processes | grep -E "^ok: .*, [1-9][0-9]* by way of the host; 0 buffers"
    ways_of graphs | grep -E "^ok: .*, [1-9][0-9]* in graphs, 0 in copies"
    ways_of pool | grep -E "^ok: .*, [1-9][0-9]* in copies"
    # between GPUs gradients travel as smaller floats in memory of the library's, which has handles
    FAKECUDA_DEVICES=2 ways_of pieces | grep -E "^ok: .*, 0 by way of the host; [1-9][0-9]* buffers by handles, [1-9][0-9]* by descriptors"
    FAKECUDA_DEVICES=2 KOLO_CUDA_IPC=vmm ways_of pieces | grep -E "^ok: .*, 0 by way of the host; 0 buffers by handles, [1-9][0-9]* by descriptors"
    # what the host has carried is no less right, but it is not what was asked for
    FAKECUDA_BREAK=cuIpcOpenMemHandle=1 ways_of processes | grep -E "^FAILED: .*, [1-9][0-9]* by way of the host; 0 buffers by handles"
    for n in 1 2; do
        FAKECUDA_DEVICES=$n FAKECUDA_BREAK=cuMemImportFromShareableHandle=1 ways_of pieces | grep -E "^FAILED: .*, [1-9][0-9]* by way of the host; .* 0 by descriptors"
    done
    FAKECUDA_BREAK=cuIpcOpenMemHandle=1 run "$BUILD/gpu/exams" processes 2 1
    [ "$status" -eq 1 ]
}

@test "kernels that spin for each other are seen to wait for the GPU" {
    export LD_LIBRARY_PATH=$BUILD/tests/fakecuda FAKECUDA_SHARED=$BATS_TEST_TMPDIR/gpu
    "$BUILD/gpu/probes" --kernels || skip "built without nvcc"
    FAKECUDA_SLICE=2000 run "$BUILD/gpu/probes"
    [ "$status" -eq 0 ]
    awk -F '\t' '/kernels that spin/ { n++; failed += $2 < 2000 } END { exit failed || n != 2 }' <<<"$output"
}

@test "the double does not pass for a GPU" {
    LD_LIBRARY_PATH=$BUILD/tests/fakecuda run tests/gpu/check --quick "$BUILD"
    [ "$status" -eq 1 ]
    [[ "$output" == *"this is the test double"* ]]
}

@test "without a driver it says so" {
    KOLO_CUDA=0 run tests/gpu/check --quick "$BUILD"
    [ "$status" -eq 1 ]
    [[ "$output" == *"KOLO_CUDA is 0"* ]]
}
