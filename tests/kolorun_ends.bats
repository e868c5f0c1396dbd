#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# How a job ends: exit codes, who is blamed, time-outs, and what does not hold it.

load kolorun

@test "all ranks end well: exit code 0, nothing said" {
    run --separate-stderr "$KOLORUN" -n 3 true
    [ "$status" -eq 0 ]
    [ -z "$output" ]
    [ -z "$stderr" ]
}

@test "the failing rank's exit code is the job's" {
    run "$KOLORUN" -n 4 sh -c '[ $RANK != 2 ] || exit 42; exec sleep 1000'
    [ "$status" -eq 42 ]
    [[ "$output" == *"rank 2 ended with exit code 42; stopping 3 others"* ]]
    [[ "$output" == *"exit code 42"*"first"* ]]
    [ "$(grep -c 'SIGTERM .* stopped' <<<"$output")" -eq 3 ]
}

@test "a rank that a signal ends gives 128 + signal" {
    run "$KOLORUN" -n 2 sh -c 'ulimit -c 0; [ $RANK != 1 ] || kill -SEGV $$; exec sleep 1000'
    [ "$status" -eq 139 ]
    [[ "$output" == *"SIGSEGV"*"first"* ]]
}

@test "the first failure is the one that is blamed" {
    : >"$D/up"
    run "$KOLORUN" -n 4 --grace 100 sh -c '
        if [ $RANK = 3 ]; then until [ "$(wc -l <"$0/up")" -eq 3 ]; do sleep 0.05; done; exit 7; fi
        trap "exit 9" TERM; echo x >>"$0/up"; while :; do sleep 0.05; done' "$D"
    [ "$status" -eq 7 ]
    [ "$(grep -c 'exit code 9 .* stopped' <<<"$output")" -eq 3 ]
}

@test "of ends that kolorun finds together the earliest is blamed" {
    start -n 4 sh -c 'echo $$ >"$0/pid$RANK.new"; mv "$0/pid$RANK.new" "$0/pid$RANK"
        echo x >>"$0/ready"; exec sleep 1000' "$D"
    await_lines "$D/ready" 4
    kill -STOP $job
    for rank in 2 0 3; do
        kill -USR$((rank > 0 ? 1 : 2)) "$(cat "$D/pid$rank")"
        await_gone "$(cat "$D/pid$rank")"
    done
    kill -CONT $job
    code=0; wait $job || code=$?
    [ $code -eq 138 ]
    grep -q '^kolorun: *2 .*SIGUSR1 *.* first' "$D/err"
}

@test "-q leaves the table out, not the exit code" {
    run "$KOLORUN" -q -n 2 sh -c '[ $RANK != 1 ] || exit 3; exec sleep 1000'
    [ "$status" -eq 3 ]
    [ -z "$output" ]
}

@test "a program that does not exist: 127; that cannot be executed: 126" {
    run -127 "$KOLORUN" -n 3 /nonexistent/prog
    [ "$output" = "kolorun: cannot execute /nonexistent/prog: No such file or directory" ]
    run "$KOLORUN" -n 3 /etc/passwd
    [ "$status" -eq 126 ]
    [ "$output" = "kolorun: cannot execute /etc/passwd: Permission denied" ]
}

@test "of a program that is there but cannot be executed like this, how it can" {
    local kolorun=$KOLORUN
    [[ "$kolorun" == /* ]] || kolorun=$PWD/$kolorun
    cd "$D"
    touch train.py here
    run -127 "$kolorun" -n 2 train.py
    [ "$output" = "kolorun: cannot execute train.py: No such file or directory; say python3 train.py" ]
    run "$kolorun" ./train.py
    [ "$status" -eq 126 ]
    [ "$output" = "kolorun: cannot execute ./train.py: Permission denied; say python3 ./train.py" ]
    run -127 "$kolorun" here
    [ "$output" = "kolorun: cannot execute here: No such file or directory; say ./here" ]
    run -127 "$kolorun" not_here.py
    [ "$output" = "kolorun: cannot execute not_here.py: No such file or directory" ]
}

@test "a rank that is killed ends the job" {
    start -n 3 sh -c 'echo $$ >>"$0/pids"; exec sleep 1000' "$D"
    await_lines "$D/pids" 3
    kill -KILL "$(head -n 1 "$D/pids")"
    code=0; wait $job || code=$?
    [ $code -eq 137 ]
    grep -q 'SIGKILL .* first' "$D/err"
    for pid in $(cat "$D/pids"); do await_gone "$pid"; done
}

@test "a rank that ignores SIGTERM is killed after the grace" {
    run "$KOLORUN" -n 2 --grace 0.3 sh -c '
        if [ $RANK = 1 ]; then until [ -e "$0/deaf" ]; do sleep 0.05; done; exit 5; fi
        trap "" TERM; : >"$0/deaf"; while :; do sleep 0.05; done' "$D"
    [ "$status" -eq 5 ]
    [[ "$output" == *"kolorun: rank 0 has not ended within 0.3 s (--grace) of SIGTERM; killing it"* ]]
    [[ "$output" == *"SIGKILL"*"stopped"* ]]
}

@test "children of ranks are stopped with them" {
    run "$KOLORUN" -n 2 sh -c '
        if [ $RANK = 1 ]; then until [ -e "$0/pid" ]; do sleep 0.05; done; exit 5; fi
        sleep 1000 & echo $! >"$0/p" && mv "$0/p" "$0/pid"; wait' "$D"
    [ "$status" -eq 5 ]
    await_gone "$(cat "$D/pid")"
}

@test "SIGKILL of kolorun itself leaves no rank" {
    start -n 3 sh -c 'echo $$ >>"$0/pids"; exec sleep 1000' "$D"
    await_lines "$D/pids" 3
    kill -KILL $job
    wait $job || true
    left_over=1
    for pid in $(cat "$D/pids"); do await_gone "$pid"; done
}

@test "--timeout ends the job: 124" {
    run "$KOLORUN" -n 2 --timeout 0.3 sleep 1000
    [ "$status" -eq 124 ]
    [[ "$output" == *"ran past its limit of 0.3 s"* ]]
    run "$KOLORUN" -n 2 --timeout 1000 true
    [ "$status" -eq 0 ]
    [ -z "$output" ]
}

# wait_in_vain RANKS TEXT: rank 1 does not join; how long the others take to wait depends on the machine.
wait_in_vain() {
    local limit
    for limit in 1 5 30; do
        run "$KOLORUN" -n $1 --timeout $limit sh -c '[ $RANK != 1 ] || exec sleep 1000; exec "$JOIN"'
        [ "$status" -eq 124 ]
        [[ "$output" != *"ran past its limit of $limit s; stopping it. $2 for others to join"$'\n'* ]] || return 0
    done
    echo "$output" && return 1
}

@test "--timeout says who still waits for others to join" {
    export JOIN=${KOLORUN%/*}/06_all_reduce KOLO_TIMEOUT_MS=600000
    wait_in_vain 2 "Rank 0 waits"
    wait_in_vain 3 "Ranks 0, 2 wait"
    run "$KOLORUN" -n 2 --timeout 0.1 sleep 1000
    [[ "$output" == *"; stopping it"$'\n'* ]]
}

@test "a grandchild that keeps the pipe open does not hold the job" {
    run timeout 60 "$KOLORUN" -n 2 sh -c 'sleep 100 & echo $! >>"$0/pids"; echo said' "$D"
    kill $(cat "$D/pids")
    [ "$status" -eq 0 ]
    [ "$(sort <<<"$output")" = $'[0] said\n[1] said' ]
}

@test "a grandchild that never stops talking does not hold the job" {
    code=0
    timeout 60 "$KOLORUN" -n 2 sh -c 'yes & echo $! >>"$0/pids"; echo said$RANK' "$D" >"$D/out" 3>&- || code=$?
    kill $(cat "$D/pids") 2>/dev/null || true
    [ $code -eq 0 ]
    [ "$(grep -c said "$D/out")" -eq 2 ]
}

@test "who ends before he has joined those who wait for him fails the job at once" {
    export JOIN=${KOLORUN%/*}/06_all_reduce KOLO_TIMEOUT_MS=600000
    for early in 0 2; do
        run timeout 60 "$KOLORUN" -n 3 sh -c "[ \$RANK = $early ] || exec \"\$JOIN\"; sleep 0.2"
        [ "$status" -eq 1 ]
        [[ "$output" == *"kolorun: rank $early ended with exit code 0, and rank "[012]" waits for it to join; stopping 2 others"* ]]
        grep -qE "^kolorun: +$early .* exit code 0 .* first \(others waited for it to join\)$" <<<"$output"
        # one may see the other's end before kolorun, which the system may put aside, has sent it the signal
        [ "$(grep -cE '(SIGTERM|exit code 1) .* stopped$' <<<"$output")" -eq 2 ]
    done
    # those who come later
    run timeout 60 "$KOLORUN" -n 2 sh -c '[ $RANK = 0 ] || exit 0; sleep 0.5; exec "$JOIN"'
    [ "$status" -eq 1 ]
    [[ "$output" == *"rank 1 ended with exit code 0, and rank 0 waits for it to join"* ]]
    # a second time
    run timeout 60 "$KOLORUN" -n 3 sh -c '"$JOIN"; [ $RANK = 1 ] || exec "$JOIN"'
    [ "$status" -eq 1 ]
    [[ "$output" == *"rank 1 ended with exit code 0, and rank "[02]" waits for it to join"* ]]
    run timeout 60 "$KOLORUN" -q -n 2 --max-restarts 1 sh -c '[ "$RANK $KOLORUN_ATTEMPT" = "1 0" ] || exec "$JOIN"'
    [ "$status" -eq 0 ]
}

@test "nobody misses a rank that he does not wait for" {
    export JOIN=${KOLORUN%/*}/06_all_reduce
    run --separate-stderr "$KOLORUN" -n 3 sh -c '[ $RANK != 1 ] || exit 0; sleep 0.3'
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    # another world than kolorun's
    run --separate-stderr "$KOLORUN" -n 3 sh -c '[ $RANK != 2 ] || exit 0; sleep 0.3; WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 exec "$JOIN"'
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    for i in 1 2 3 4 5; do
        run --separate-stderr "$KOLORUN" -n 4 sh -c '"$JOIN" && exec "$JOIN"'
        [ "$status" -eq 0 ]
        [ -z "$stderr" ]
    done
}
