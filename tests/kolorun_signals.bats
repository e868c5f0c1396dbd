#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Signals to kolorun: which are forwarded, and how long ranks have to end.

load kolorun

@test "signals are forwarded" {
    local signal
    for signal in INT TERM HUP QUIT USR1 USR2; do
        : >"$D/ready"; : >"$D/got"
        env --default-signal=INT,QUIT "$KOLORUN" -n 2 sh -c '
            trap "echo x >>\"$0/got\"; exit 0" '$signal'
            echo x >>"$0/ready"; while :; do sleep 0.05; done' "$D" 3>&- &
        job=$!
        await_lines "$D/ready" 2
        kill -$signal $job
        wait $job
        [ "$(wc -l <"$D/got")" -eq 2 ] || { echo "SIG$signal was not forwarded"; return 1; }
    done
}

@test "a rank ended by a forwarded signal: 128 + signal" {
    start -n 2 sh -c 'echo $$ >>"$0/pids"; exec sleep 1000' "$D"
    await_lines "$D/pids" 2
    kill -TERM $job
    code=0; wait $job || code=$?
    [ $code -eq 143 ]
}

@test "a second signal kills at once" {
    local signals
    for signals in "INT INT 130" "TERM TERM 143" "INT TERM 143" "HUP INT 130"; do
        read -r first second want <<<"$signals"
        rm -f "$D/pids"
        env --default-signal=INT "$KOLORUN" -n 2 --grace 1000 sh -c '
            trap "" INT TERM HUP; echo $$ >>"$0/pids"; while :; do sleep 0.05; done' "$D" 2>"$D/err" 3>&- &
        job=$!
        await_lines "$D/pids" 2
        kill -$first $job
        sleep 0.3 # two that come at once are one
        while kill -$second $job; do sleep 0.05; done
        code=0; wait $job || code=$?
        [ $code -eq "$want" ] || { echo "$signals: $code"; cat "$D/err"; return 1; }
        [ "$(grep -c SIGKILL "$D/err")" -eq 2 ]
        for pid in $(cat "$D/pids"); do await_gone "$pid"; done
    done
}

@test "two signals that come at once, as by timeout(1), leave ranks their grace" {
    start -n 2 --grace 1000 sh -c '
        trap "sleep 0.5; exit 0" TERM HUP; echo $$ >>"$0/pids"; while :; do sleep 0.05; done' "$D"
    await_lines "$D/pids" 2
    kill -STOP $job
    kill -TERM $job
    kill -HUP $job
    kill -CONT $job
    wait $job
    rm "$D/pids"
    run timeout 1 "$KOLORUN" -n 2 --grace 1000 sh -c '
        trap "sleep 0.5; echo saved; exit 0" TERM; while :; do sleep 0.05; done'
    [ "$(grep -c saved <<<"$output")" -eq 2 ]
}

@test "a rank that does not end by a signal to kolorun is killed after the grace" {
    local signal
    for signal in "INT 130" "TERM 143" "HUP 129" "QUIT 131"; do
        read -r signal want <<<"$signal"
        rm -f "$D/pids"
        env --default-signal=INT,QUIT "$KOLORUN" -n 3 --grace 0.5 sh -c '
            [ $RANK = 1 ] || trap "" INT TERM HUP QUIT
            [ $RANK != 1 ] || trap "exit 0" INT TERM HUP QUIT
            echo $$ >>"$0/pids"; while :; do sleep 0.05; done' "$D" >"$D/out" 2>"$D/err" 3>&- &
        job=$!
        await_lines "$D/pids" 3
        kill -$signal $job
        code=0; wait $job || code=$?
        [ $code -eq "$want" ] || { echo "$signal: $code"; cat "$D/err"; return 1; }
        grep -qx "kolorun: ranks 0, 2 have not ended within 0.5 s (--grace) of SIG$signal; killing them" "$D/err"
        [ "$(grep -c 'SIGKILL .* stopped' "$D/err")" -eq 2 ]
    done
}

@test "after a signal one grace counts for all, whatever fails meanwhile" {
    start -n 2 --grace 1.5 sh -c '
        [ $RANK = 0 ] || trap "sleep 1; exit 3" TERM
        [ $RANK = 1 ] || trap "" TERM
        echo $$ >>"$0/pids"; while :; do sleep 0.05; done' "$D"
    await_lines "$D/pids" 2
    kill -TERM $job
    code=0; wait $job || code=$?
    [ $code -eq 3 ]
    grep -qx "kolorun: rank 0 has not ended within 1.5 s (--grace) of SIGTERM; killing it" "$D/err"
}

@test "signals that end nothing begin no grace" {
    start -n 1 --grace 0.1 sh -c 'trap "" USR1; echo $$ >"$0/pids"; sleep 0.2; sleep 0.2; sleep 0.2' "$D"
    await_lines "$D/pids" 1
    kill -USR1 $job
    wait $job
}
