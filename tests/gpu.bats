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
    [ "$status" -eq 0 ]
    [[ "$output" == *"THIS IS NO GPU"* ]]
    [[ "$output" == *"| processes 8 | the whole step |"* ]]
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
