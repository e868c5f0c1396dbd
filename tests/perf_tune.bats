#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# kolo-perf --tune: costs measured into a file that the library takes.

load perf

@test "costs are measured into a file that the library takes" {
    [[ "$PERF" != *san/bin/* ]] || skip "would measure the sanitizer, for minutes"
    # what is to be replaced is not asked, nor what would bend the measuring
    echo stale >"$BATS_TEST_TMPDIR/costs"
    TMPDIR=$BATS_TEST_TMPDIR KOLO_TUNING=$BATS_TEST_TMPDIR/costs KOLO_ALGO=broadcast=ring KOLO_CHECK=1 KOLO_PROTO=simple \
        run "$PERF" -n 1 --tune "$BATS_TEST_TMPDIR/costs"
    [ "$status" -eq 0 ]
    grep -qx 'kolo tuning 5' "$BATS_TEST_TMPDIR/costs"
    awk '$1 == "change" { found = $2 > 0 && $2 < 1e6 } END { exit !found }' "$BATS_TEST_TMPDIR/costs"
    awk '$1 ~ /^reading\.(call$|byte|helped_byte)/ { n += $2 > 0 && $2 < 1e3 } END { exit n != 13 }' "$BATS_TEST_TMPDIR/costs"
    ls -d "$BATS_TEST_TMPDIR"/kolo-tune-* && return 1 # its ranks' store has gone
    KOLO_TUNING="$BATS_TEST_TMPDIR/costs" run "$PERF" -t 2 all_reduce -b 64 -e 64 "${QUICK[@]}"
    [ "$status" -eq 0 ]
    run "$PERF" --tune /no/such/folder/costs
    [ "$status" -eq 125 ]
    [[ "$output" == *"/no/such/folder/costs: No such file"* ]]
    run "$PERF" --tune x all_reduce
    [ "$status" -eq 125 ]
    [[ "$output" == *"--tune starts two ranks of its own"* ]]
    run -125 "$PERF" -n 101 --tune x
    [[ "$output" == *"--tune takes at most -n 100"* ]]
}

@test "measuring that ends early leaves no file, and an earlier one as it was" {
    local folder=$BATS_TEST_TMPDIR/early pid
    mkdir "$folder"
    KOLO_IFADDR=nonsense run -125 "$PERF" --tune "$folder/costs"
    KOLO_IFADDR=nonsense run -125 "$PERF" -t 2 all_reduce -b 8 -e 8 --json "$folder/json" --csv "$folder/csv"
    [ -z "$(ls "$folder")" ]
    TMPDIR=$BATS_TEST_TMPDIR "$PERF" -n 100 --tune "$folder/costs" >"$BATS_TEST_TMPDIR/said" 2>&1 3>&- &
    pid=$!
    until [ "$(ls "/proc/$pid/task" | wc -l)" -gt 1 ]; do # its ranks begin
        kill -0 "$pid"
        sleep 0.05
    done
    kill -9 "$pid"
    wait "$pid" || true
    [ -z "$(ls "$folder")" ]
    echo earlier >"$folder/costs"
    KOLO_IFADDR=nonsense run -125 "$PERF" --tune "$folder/costs"
    [ "$(cat "$folder"/*)" = earlier ]
}

@test "two ranks on two hosts measure the way between them" {
    [[ "$PERF" != *san/bin/* ]] || skip "would measure the sanitizer, for minutes"
    local hosts='KOLO_HOST=h$RANK exec "$@" -n $((1 + RANK)) --tune "$0/$RANK"' # rank 0's number counts
    run -0 "${PERF%-perf}run" -n 2 -x KOLO_DEBUG=debug sh -c "$hosts" "$BATS_TEST_TMPDIR" "$PERF"
    [[ "$output" == *"over tcp"*"another machine, container or user"* ]]
    grep -qx 'kolo tuning 5' "$BATS_TEST_TMPDIR/0"
    # What is measured on rank 0's machine afterwards is between two cores again, whose distance may change meanwhile;
    # in turns on one it is half a millisecond all the time.
    if [[ "$output" != *"measured by cores that came near each other and went far"* ]]; then
        [[ "$output" =~ "measured by cores "([0-9.e+-]+)" us" ]]
        [ "$(env -u OMP_NUM_THREADS nproc)" -eq 1 ] || awk -v us="${BASH_REMATCH[1]}" 'BEGIN { exit !(us < 100) }'
    fi
    [ ! -e "$BATS_TEST_TMPDIR/1" ]
    run -125 "${PERF%-perf}run" -q -n 2 "$PERF" --tune "$BATS_TEST_TMPDIR/one"
    [[ "$output" == *"these are 2 ranks on 1:"* ]]
    [ ! -e "$BATS_TEST_TMPDIR/one" ]
}
