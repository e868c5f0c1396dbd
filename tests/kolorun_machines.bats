#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Several machines that agree: here, all of them on this one.

load kolorun

@test "machines that are not numbered number themselves" {
    machines=3 port=$(free_port)
    for k in 0 1 2; do
        machine $k --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:$port --no-tag sh -c '
            echo $GROUP_RANK/$GROUP_WORLD_SIZE $RANK/$WORLD_SIZE $MASTER_ADDR:$MASTER_PORT'
    done
    for k in 0 1 2; do wait ${jobs[k]}; done
    [ "$(cat "$D"/out* | cut -d' ' -f1,2 | sort)" = "$(for r in 0 1 2 3 4 5; do echo $((r / 2))/3 $r/6; done)" ]
    [ "$(cat "$D"/out* | cut -d' ' -f3 | sort -u | wc -l)" -eq 1 ]
    grep -q 127.0.0.1: "$D/out0"
}

@test "ranks of machines that meet find machine 0 at its --local-addr" {
    machines=2 port=$(free_port)
    for k in 0 1; do
        machine $k --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:$port --local-addr 127.0.0.2 --no-tag sh -c 'echo $MASTER_ADDR'
    done
    for k in 0 1; do wait ${jobs[k]}; done
    [ "$(cat "$D"/out* | sort | uniq -c | tr -s ' ')" = " 4 127.0.0.2" ]
}

@test "a kolorun that is refused leaves no trace in the running job" {
    local how port
    machines=2
    for how in static c10d; do
        port=$(free_port)
        rm -f "$D"/pids "$D/go"
        for k in 0 1; do
            machine $k --rdzv-backend $how $([ $how = c10d ] || echo --node-rank $k) --rdzv-endpoint 127.0.0.1:$port \
                --max-restarts 3 sh -c '
                echo $$ >>"$0/pids"
                until [ -e "$0/go" ]; do sleep 0.05; done
                [ $RANK != 2 ] || [ $TORCHELASTIC_RESTART_COUNT != 0 ] || exit 3' "$D"
        done
        await_lines "$D/pids" 4
        run timeout 60 "$KOLORUN" -n 2 --nnodes 2 --rdzv-backend $how $([ $how = c10d ] || echo --node-rank 1) \
            --rdzv-endpoint 127.0.0.1:$port --max-restarts 3 true
        [ "$status" -eq 125 ]
        [[ "$output" == "kolorun: "*" come already: "*"--rdzv-id"* ]]
        : >"$D/go"
        for k in 0 1; do wait ${jobs[k]} || { cat "$D/out$k"; return 1; }; done
        grep -q 'starting all ranks again, restart 1 of 3' "$D/out0"
    done
}

@test "under c10d one machine may say its number, and the others take those that are free" {
    local port
    machines=2 port=$(free_port)
    machine 0 --node-rank 1 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:$port --no-tag sh -c 'echo $GROUP_RANK'
    machine 1 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:$port --no-tag sh -c 'echo $GROUP_RANK'
    for k in 0 1; do wait ${jobs[k]}; done
    [ "$(cat "$D/out0")" = $'1\n1' ]
    [ "$(cat "$D/out1")" = $'0\n0' ]
}

@test "a machine that was started with other options is refused, and the job waits for a right one" {
    machines=2 port=$(free_port)
    bare_machine 0 true
    await_signals ${jobs[0]} # from here on it has been the first
    run timeout 60 "$KOLORUN" -n 3 --nnodes 2 --node-rank 1 --rdzv-endpoint 127.0.0.1:$port --max-restarts 9 true
    [ "$status" -eq 125 ]
    [[ "$output" == *"this machine has -n 3 --nnodes 2 --max-restarts 9, but the first to come has -n 2 "* ]]
    bare_machine 1 true
    ended 0 0 1
}

@test "a failure on one machine starts the ranks of all again" {
    machines=2 port=$(free_port)
    for k in 0 1; do
        machine $k --node-rank $k --master-addr 127.0.0.1 --master-port $port --max-restarts 2 sh -c '
            echo $TORCHELASTIC_RESTART_COUNT $MASTER_PORT >>"$0/attempts$RANK"
            [ $TORCHELASTIC_RESTART_COUNT -lt 2 ] || exit 0
            if [ $RANK = $((TORCHELASTIC_RESTART_COUNT + 2)) ]; then
                until [ "$(cat "$0"/attempts* | wc -l)" -ge $((4 * TORCHELASTIC_RESTART_COUNT + 4)) ]; do
                    sleep 0.05; done
                exit 3
            fi
            [ $RANK != 0 ] || exit 0
            exec sleep 1000' "$D"
    done
    for k in 0 1; do wait ${jobs[k]}; done
    for rank in 0 1 2 3; do [ "$(wc -l <"$D/attempts$rank")" -eq 3 ]; done
    grep -q 'machine 1: rank 2 ended with exit code 3; stopping' "$D/out0"
    grep -q 'starting all ranks again, restart 2 of 2' "$D/out0"
}

@test "the last failure of one machine is the exit code of all" {
    machines=2 port=$(free_port)
    for k in 0 1; do
        machine $k --node-rank $k --master-addr 127.0.0.1 --master-port $port --max-restarts 1 sh -c '
            [ $RANK != 3 ] || exit 9; exec sleep 1000'
    done
    for k in 0 1; do
        code=0; wait ${jobs[k]} || code=$?
        [ $code -eq 9 ]
    done
}

@test "a machine that is stopped ends the job on all of them, without another attempt" {
    machines=2 port=$(free_port)
    for k in 0 1; do
        machine $k --node-rank $k --master-addr 127.0.0.1 --master-port $port --max-restarts 9 sh -c '
            echo $$ >>"$0/pids"; exec sleep 1000' "$D"
    done
    await_lines "$D/pids" 4
    kill -TERM ${jobs[1]}
    for k in 0 1; do
        code=0; wait ${jobs[k]} || code=$?
        [ $code -eq 143 ]
    done
    grep -q 'machine 1: ' "$D/out0"
    [ "$(wc -l <"$D/pids")" -eq 4 ]
}

@test "a second SIGINT on one machine ends the job on all" {
    machines=2 port=$(free_port)
    for k in 0 1; do
        bare_machine $k --grace 1000 sh -c '
            [ $GROUP_RANK = 0 ] || trap "" INT TERM
            echo $$ >>"$0/pids"; while :; do sleep 0.05; done' "$D"
    done
    await_lines "$D/pids" 4
    while kill -INT ${jobs[1]}; do sleep 0.2; done
    ended 130 1 0
    grep -q 'machine 1: it was told to end twice; stopping 2 ranks here' "$D/out0"
}

@test "a machine that is told to end after a failure is not waited for" {
    machines=2 port=$(free_port)
    for k in 0 1; do
        bare_machine $k --grace 1000 sh -c '
            echo $$ >>"$0/pids"
            case $RANK in
            2) until [ "$(cat "$0/pids" | wc -l)" -ge 4 ] && [ -e "$0/trapped" ]; do sleep 0.05; done; exit 3 ;;
            3) n=0; trap "n=\$((n + 1))" TERM; : >"$0/trapped"; while [ $n -lt 2 ]; do sleep 0.05; done ;;
            *) exec sleep 1000 ;;
            esac' "$D"
    done
    await_text "$D/out0" 'starting all ranks again, restart 1 of 9' # from here on it waits for machine 1
    kill -TERM ${jobs[1]}
    ended 3 1 0
    grep -q 'machine 1 has left, so there is no further attempt' "$D/out0"
}

@test "a machine that is told to end while all meet ends the others" {
    machines=3 port=$(free_port)
    for k in 0 1; do bare_machine $k sh -c 'exec sleep 1000'; done
    await_signals ${jobs[0]}
    await_signals ${jobs[1]}
    kill -TERM ${jobs[1]}
    ended 143 1 0
    grep -q 'kolorun: it was told to end' "$D/out1"
    grep -q 'kolorun: machine 1: it was told to end' "$D/out0"
}

@test "signals that are for ranks do not disturb a meeting" {
    machines=2 port=$(free_port)
    bare_machine 0 true
    await_signals ${jobs[0]}
    kill -USR1 ${jobs[0]}
    kill -USR2 ${jobs[0]}
    bare_machine 1 true
    ended 0 0 1
}

@test "--timeout counts while machines meet" {
    run timeout 60 "$KOLORUN" --nnodes 2 --node-rank 0 --max-restarts 1 --timeout 0.3 \
        --master-addr 127.0.0.1 --master-port "$(free_port)" true
    [ "$status" -eq 124 ]
    [[ "$output" == *"the job ran past its limit of 0.3 s before all machines had met"* ]]
}

@test "--timeout counts while a machine waits for the one that serves" {
    run timeout 60 "$KOLORUN" --nnodes 2 --node-rank 1 --max-restarts 1 --timeout 0.3 \
        --master-addr 127.0.0.1 --master-port "$(free_port)" true
    [ "$status" -eq 124 ]
    [[ "$output" == *"the job ran past its limit of 0.3 s before the other machines were reached"* ]]
}

@test "a machine to which nobody comes leaves as soon as it has said so" {
    strace -qq -o /dev/null true 2>/dev/null || skip "no strace"
    # LeakSanitizer cannot work under strace.
    ASAN_OPTIONS=detect_leaks=0 run timeout 60 strace -qq -e trace=/^p?poll -o "$D/trace" "$KOLORUN" --nnodes 2 \
        --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:$(free_port) --rdzv-conf join_timeout=0.1 true
    [ "$status" -eq 125 ]
    [ "$output" = "kolorun: waited 100 ms for 2 machines; not there: machine 1" ]
    grep -q 'poll(\[' "$D/trace"             # for others to come
    ! grep -q 'poll(NULL, 0' "$D/trace" || false # for them to read that it has left
}

@test "machines that do not come are named" {
    KOLO_TIMEOUT_MS=500 run timeout 60 "$KOLORUN" --nnodes 3 --node-rank 0 --max-restarts 1 \
        --master-addr 127.0.0.1 --master-port "$(free_port)" true
    [ "$status" -eq 125 ]
    [[ "$output" == *"waited 500 ms for 3 machines; not there: machine 1, 2"* ]]
    KOLO_TIMEOUT_MS=500 run timeout 60 "$KOLORUN" --nnodes 3 --node-rank 1 --max-restarts 1 \
        --master-addr 127.0.0.1 --master-port "$(free_port)" true
    [ "$status" -eq 125 ]
    [[ "$output" == *"the other machines are not reached: "* ]]
}
