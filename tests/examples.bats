#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The tutorials do what their comments say.

setup() {
    BIN=${TEST_BUILD:-build}/bin
    cd "$BATS_TEST_DIRNAME/.."
}

@test "04_any_source: every task is done by somebody" {
    for transport in shm tcp; do
        run env KOLO_TRANSPORT=$transport "$BIN/kolorun" -n 4 "$BIN/04_any_source"
        [ "$status" -eq 0 ]
        [[ "$output" == *"168 of the numbers below 1000 are primes"* ]]
    done
}

@test "04_any_source: one rank has nobody to ask" {
    run "$BIN/04_any_source"
    [ "$status" -eq 0 ]
    [[ "$output" == "0 of the numbers below 0 are primes" ]]
}
