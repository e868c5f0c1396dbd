#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Restarts of one machine's ranks.

load kolorun

# A rank that fails in the attempts before $1, for sh -c.
FAILS='echo "$TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS" >>"$0/attempts$RANK"
    if [ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT -lt $1 ]; then
        until [ "$(cat "$0"/attempts[02] | wc -l)" -eq $((2 * TORCHELASTIC_RESTART_COUNT + 2)) ]; do
            sleep 0.05; done
        exit 3
    fi
    [ $TORCHELASTIC_RESTART_COUNT -ge $1 ] || exec sleep 1000'

@test "--max-restarts starts all ranks again until they end well" {
    run "$KOLORUN" -n 3 --max-restarts 5 sh -c "$FAILS" "$D" 2
    [ "$status" -eq 0 ]
    for rank in 0 1 2; do
        [ "$(cat "$D/attempts$rank")" = $'0 of 5\n1 of 5\n2 of 5' ]
    done
    [ "$(grep -c 'starting all ranks again, restart [12] of 5' <<<"$output")" -eq 2 ]
    [ "$(grep -c ' first$' <<<"$output")" -eq 2 ]
}

@test "restarts come to an end, with the last attempt's exit code" {
    run "$KOLORUN" -q -n 2 --max-restarts 2 sh -c 'echo x; exit $((TORCHELASTIC_RESTART_COUNT + 10))'
    [ "$status" -eq 12 ]
    [ "$(grep -c x <<<"$output")" -ge 3 ] # of the rank that fails first, in each attempt
    [ "$(grep -c x <<<"$output")" -le 6 ]
    run "$KOLORUN" --max-restarts 2 sh -c 'echo x >>"$0/runs"; exit 1' "$D"
    [ "$(wc -l <"$D/runs")" -eq 3 ]
}

@test "there is no restart after a signal, a time-out, or for a program that is not there" {
    start -n 2 --max-restarts 9 sh -c 'echo $$ >>"$0/pids"; exec sleep 1000' "$D"
    await_lines "$D/pids" 2
    kill -TERM $job
    code=0; wait $job || code=$?
    [ $code -eq 143 ]
    [ "$(wc -l <"$D/pids")" -eq 2 ]
    run "$KOLORUN" -n 2 --max-restarts 9 --timeout 0.3 sleep 1000
    [ "$status" -eq 124 ]
    [[ "$output" != *again* ]]
    run -127 "$KOLORUN" -n 2 --max-restarts 9 /nonexistent/prog
    [[ "$output" != *again* ]]
}

@test "--timeout counts all attempts together" {
    run timeout 60 "$KOLORUN" -n 1 --max-restarts 1000000 --timeout 1 sh -c 'sleep 0.1; exit 1'
    [ "$status" -eq 124 ]
    [[ "$output" == *"ran past its limit of 1 s"* ]]
}

@test "children of an attempt do not live into the next" {
    run "$KOLORUN" -q -n 1 --max-restarts 1 sh -c '
        [ $TORCHELASTIC_RESTART_COUNT = 0 ] || exit 0
        sleep 1000 & echo $! >"$0/pid"; exit 1' "$D"
    [ "$status" -eq 0 ]
    await_gone "$(cat "$D/pid")"
}

@test "MASTER_PORT stays held, and can be served again in the next attempt" {
    command -v python3 >/dev/null || skip "no python3"
    run "$KOLORUN" -q -n 1 --max-restarts 1 python3 -c '
import os, socket, sys
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("", int(os.environ["MASTER_PORT"]))); s.listen(1)
c = socket.create_connection(("127.0.0.1", int(os.environ["MASTER_PORT"]))); a = s.accept()
print("served", flush=True); os._exit(1 - int(os.environ["TORCHELASTIC_RESTART_COUNT"]))'
    [ "$status" -eq 0 ]
    [ "$output" = $'served\nserved' ]
}
