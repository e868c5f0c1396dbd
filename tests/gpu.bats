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
    [[ "$output" == *"| processes 8 | the whole step |"* ]]
    # where others need the processors too, kernels that spin for each other may take too long
    for n in 2 4; do
        grep -E "^\| speed of a spinning all_reduce $n \| all_reduce of $n processes, spinning, 8 bytes \| ([0-9.e+]+ \| us \| ok: [0-9.]+ in a row; [0-9.]+ times as long as kolo's [0-9.]+|.*given up: more than 2000 ms; kolo's: [0-9.]+)" <<<"$output"
    done
    [[ "$output" == *"| kolo-perf | all_reduce of 2, 8 bytes, in_place |"* ]]
    [[ "$output" != *FAILED* ]]
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
    if command -v python3; then
        python3 -m json.tool "${record%.md}.json"
    fi
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
