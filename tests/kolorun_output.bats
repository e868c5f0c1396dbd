#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Standard input and output of ranks, and logs of it.

load kolorun

@test "--local-ranks-filter passes on the output of some, and keeps the files of all" {
    run "$KOLORUN" -n 3 --local-ranks-filter 2,0 sh -c 'echo $RANK; echo $RANK >&2'
    [ "$(sort <<<"$output")" = $'[0] 0\n[0] 0\n[2] 2\n[2] 2' ]
    run --separate-stderr "$KOLORUN" -n 2 --no-tag --local_ranks_filter=1 --log-dir "$D/l" -t 3 sh -c 'echo $RANK; echo e$RANK >&2'
    [ "$output" = 1 ]
    [ "$(cat "$D"/l/*/attempt_0/0/stdout.log)" = 0 ]
    [ "$(cat "$D"/l/*/attempt_0/0/stderr.log)" = e0 ]
    [ "$(cat "$D"/l/*/attempt_0/1/stdout.log)" = 1 ]
}

@test "lines keep their rank and their stream" {
    "$KOLORUN" -n 3 sh -c 'echo out$RANK; echo err$RANK >&2' >"$D/out" 2>"$D/err"
    [ "$(sort "$D/out")" = $'[0] out0\n[1] out1\n[2] out2' ]
    [ "$(sort "$D/err")" = $'[0] err0\n[1] err1\n[2] err2' ]
}

@test "one rank's output passes through untouched, several's on request" {
    run "$KOLORUN" -n 1 printf 'a\rb'
    [ "$output" = $'a\rb' ]
    run "$KOLORUN" -n 1 --tag-output echo a
    [ "$output" = "[0] a" ]
    run "$KOLORUN" -n 2 --no-tag echo a
    [ "$output" = $'a\na' ]
}

@test "lines of many ranks are never mixed" {
    "$KOLORUN" -n 4 sh -c 'seq -f "$RANK-%06g-abcdefghijklmnopqrstuvwxyz" 20000' >"$D/out"
    [ "$(wc -l <"$D/out")" -eq 80000 ]
    [ "$(grep -cvE '^\[([0-3])\] \1-[0-9]{6}-abcdefghijklmnopqrstuvwxyz$' "$D/out")" -eq 0 ]
    [ "$(grep '^\[2\]' "$D/out" | cut -d- -f2 | sort -c && echo in order)" = "in order" ]
}

@test "an unfinished line is passed on whole, with a newline" {
    run "$KOLORUN" -n 2 sh -c 'printf a; sleep 0.1; printf b'
    [ "$(sort <<<"$output")" = $'[0] ab\n[1] ab' ]
}

@test "a line longer than 64 KiB comes in pieces and loses nothing" {
    "$KOLORUN" -n 2 sh -c 'head -c 300000 /dev/zero | tr "\0" "$RANK"; echo' >"$D/out"
    [ "$(grep '^\[1\]' "$D/out" | sed 's/^\[1\] //' | tr -d '\n' | wc -c)" -eq 300000 ]
    [ "$(grep -c '^\[1\]' "$D/out")" -eq 5 ]
    [ -z "$(sed -n 's/^\[1\] //p' "$D/out" | tr -d '1\n')" ]
}

@test "of a progress bar the last state is shown, not every redraw" {
    run "$KOLORUN" -n 1 --tag-output sh -c 'for i in $(seq 500); do printf "\r%d%%" $i; done; echo'
    [ "${lines[-1]}" = "[0] 500%" ]
    [ "${#lines[@]}" -lt 100 ]
    run "$KOLORUN" -n 1 --tag-output printf 'a\r\nb\r\r\nc'
    [ "$output" = $'[0] a\n[0] b\n[0] c' ]
}

@test "a slow redraw is shown once a second" {
    run "$KOLORUN" -n 1 --tag-output sh -c 'printf "one\r"; sleep 1.2; printf "two\r"; printf three'
    [ "$output" = $'[0] one\n[0] three' ]
}

@test "rank 0 reads standard input, the others nothing" {
    run "$KOLORUN" -n 2 wc -c <<<"12345"
    [ "$(sort <<<"$output")" = $'[0] 6\n[1] 0' ]
}

@test "a reader who goes away ends the job" {
    { code=0; "$KOLORUN" -n 2 sh -c 'while :; do echo y; done' 2>"$D/err" || code=$?; echo $code >"$D/code"; } |
        head -n 1 >"$D/out"
    grep -q y "$D/out"
    [ "$(cat "$D/code")" -eq 141 ]
    ! grep -q ' pid ' "$D/err" || false
}

@test "output that cannot be written ends the job and is said" {
    [ -w /dev/full ] || skip "no /dev/full"
    run sh -c '"$0" -n 2 sh -c "echo y; exec sleep 1000" >/dev/full' "$KOLORUN"
    [ "$status" -eq 125 ]
    [[ "$output" == *"standard output cannot be written: No space left on device"* ]]
}

@test "a slow reader loses nothing of ranks that have ended" {
    { "$KOLORUN" -n 2 seq 30000 || : >"$D/failed"; } | { sleep 1; cat; } >"$D/out"
    [ ! -e "$D/failed" ]
    [ "$(wc -l <"$D/out")" -eq 60000 ]
}

@test "--log-dir, --redirects and --tee: files for each attempt and rank" {
    local logs
    run --separate-stderr "$KOLORUN" -q -n 2 --log-dir "$D/logs/deep" --run-id a/b -r 0:1 -t 1:3 \
        --max-restarts 1 sh -c 'echo out$RANK; echo err$RANK >&2; exit $((TORCHELASTIC_RESTART_COUNT == 0))'
    [ "$status" -eq 0 ]
    logs=("$D"/logs/deep/kolorun_a_b_*)
    [ "$(cat "$logs/attempt_1/0/stdout.log")" = out0 ]
    [ "$(cat "$logs/attempt_1/1/stdout.log" "$logs/attempt_1/1/stderr.log")" = $'out1\nerr1' ]
    [ ! -e "$logs/attempt_1/0/stderr.log" ]
    [ -d "$logs/attempt_0/0" ]
    grep -qx '\[1\] out1' <<<"$output"
    grep -qx '\[0\] err0' <<<"$stderr"
    ! grep -q out0 <<<"$output" || false
}

@test "--tee keeps the bytes as they are, also of one rank" {
    run "$KOLORUN" -n 1 --log-dir "$D/logs" -t 1 printf 'a\rb\0c\nd'
    printf 'a\rb\0c\nd' | cmp - "$D"/logs/*/attempt_0/0/stdout.log
    [[ "${lines[-1]}" == d ]]
}

@test "a log that cannot be written is said, and the job goes on" {
    # Of no file can more than 1024 bytes be written.
    run bash -c 'trap "" XFSZ; ulimit -f 1; exec "$@"' - "$KOLORUN" -n 2 --log-dir "$D/logs" -t 0:1 sh -c '
        [ $RANK = 0 ] || exit 0; head -c 2000 /dev/zero | tr "\0" x; echo; echo fine'
    [ "$status" -eq 0 ]
    [ "$(grep -cx 'kolorun: .0. the log cannot be written: File too large' <<<"$output")" -eq 1 ]
    [[ "$output" == *"[0] fine"* ]]
    [ "$(cat "$D"/logs/*/attempt_0/0/stdout.log | wc -c)" -eq 1024 ]
    run "$KOLORUN" -n 1 --log-dir "$D/logs" -t 3 sh -c '
        rm -f "${TORCHELASTIC_ERROR_FILE%/*}/stdout.log"; echo fine'
    [ "$status" -eq 0 ]
    [[ "$output" == *fine* ]]
    run "$KOLORUN" -n 1 --log-dir /proc/no true
    [ "$status" -eq 125 ]
    [[ "$output" == "kolorun: no folder for logs can be made below /proc/no: "*"; --log-dir says where" ]]
    TMPDIR=/proc/nope run "$KOLORUN" -n 1 -t 1 true
    [ "$status" -eq 125 ]
    [[ "$output" == *" below /proc/nope: "* ]]
}

@test "standard error says once where logs are" {
    run --separate-stderr "$KOLORUN" -n 2 -t 1 --max-restarts 1 --log-dir "$D/logs" true
    [ "$status" -eq 0 ]
    [ "$stderr" = "kolorun: logs are in $(echo "$D"/logs/kolorun_*)" ]
    run --separate-stderr "$KOLORUN" -n 2 -r 3 true
    [[ "$stderr" =~ ^kolorun:\ logs\ are\ in\ ($TMPDIR/kolorun_[^ ]*)$ ]]
    rm -r "${BASH_REMATCH[1]}"
    run --separate-stderr "$KOLORUN" -n 2 -q --log-dir "$D/quiet" true
    [ -z "$stderr" ]
    [ -d "$D/quiet" ]
}
