#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Machines that go without a word: how that is noticed, and who comes in their place.

load kolorun

@test "the loss of the machine that serves the others ends them" {
    machines=2 port=$(free_port)
    for k in 0 1; do
        "$KOLORUN" -n 1 --nnodes 2 --node-rank $k --master-addr 127.0.0.1 --master-port $port \
            --max-restarts 9 sh -c 'echo $$ >>"$0/pids"; exec sleep 1000' "$D" >"$D/out$k" 2>&1 3>&- &
        jobs[k]=$!
    done
    await_lines "$D/pids" 2
    kill -KILL ${jobs[0]}
    left_over=1
    code=0; wait ${jobs[1]} || code=$?
    [ $code -eq 125 ]
    grep -q "the kolorun that serves all machines, at 127.0.0.1:$port, has gone; stopping 1 rank here" "$D/out1"
}

@test "a machine that serves the others and does not answer ends them" {
    machines=2 port=$(free_port)
    for k in 0 1; do bare_machine $k sh -c 'echo $$ >>"$0/pids"; exec sleep 1000' "$D"; done
    await_lines "$D/pids" 4
    kill -STOP ${jobs[0]}
    ended 125 1
    grep -q 'the kolorun that serves all machines, at .*, has not answered for 5 s; stopping 2 ranks here' "$D/out1"
    kill -KILL ${jobs[0]}
    left_over=1
}

@test "the loss of a machine that serves nobody ends the job, and names it" {
    local others
    machines=3 port=$(free_port)
    for k in 0 1 2; do bare_machine $k --rdzv-backend c10d --max-restarts 0 sh -c 'echo $$ >>"$0/pids"; exec sleep 1000' "$D"; done
    SECONDS=0
    hit_machine_1 6 KILL
    ended 125 0 2
    [ $SECONDS -lt 25 ] # long before silence would have told it
    for k in 0 2; do
        grep -q "machine 1 ($(hostname), 127.0.0.1) was lost: its kolorun has ended, or its connection; stopping 2 ranks here" \
            "$D/out$k"
        [ "$(grep -c 'was lost' "$D/out$k")" -eq 1 ]
    done
}

@test "what made a rank fail is said too: the loss of a machine that it needed" {
    machines=3 port=$(free_port)
    for k in 0 1 2; do
        bare_machine $k --rdzv-backend c10d --max-restarts 0 sh -c '
            echo $$ >>"$0/pids"; [ $RANK != 2 ] || { echo $$ >"$0/two.new" && mv "$0/two.new" "$0/two"; exec sleep 1000; }
            until [ -e "$0/two" ]; do sleep 0.01; done
            while [ -e "/proc/$(cat "$0/two")" ]; do sleep 0.01; done; exit 3' "$D"
    done
    hit_machine_1 6 KILL
    for k in 0 2; do
        await_gone "${jobs[k]}"
        code=0; wait "${jobs[k]}" || code=$?
        [ $code -eq 125 ] || [ $code -eq 3 ]
        [ "$(grep -c 'machine 1 (.*) was lost: its kolorun has ended' "$D/out$k")" -eq 1 ] || { cat "$D/out$k"; return 1; }
    done
}

@test "a machine that says nothing any more is given up" {
    machines=2 port=$(free_port)
    for k in 0 1; do
        bare_machine $k --rdzv-backend c10d --max-restarts 0 --lost-after 4 sh -c 'echo $$ >>"$0/pids"; exec sleep 1000' "$D"
    done
    hit_machine_1 4 STOP
    ended 125 0
    grep -q 'machine 1 (.*) was lost: its kolorun has said nothing for 4 s (--lost-after); stopping 2 ranks here' "$D/out0"
    kill -CONT ${jobs[1]} # it finds that out, and ends too
    ended 125 1
}

@test "a machine that was silent for a while is not given up, nor ever with --lost-after 0" {
    machines=2
    for after in 30 0; do
        port=$(free_port)
        rm -f "$D/pids" "$D/go"
        for k in 0 1; do
            bare_machine $k --rdzv-backend c10d --max-restarts 0 --lost-after $after sh -c '
                echo $$ >>"$0/pids"; until [ -e "$0/go" ]; do sleep 0.05; done' "$D"
        done
        hit_machine_1 4 STOP
        sleep 1 # silence as such is counted in test_tools_losses
        : >"$D/go"
        kill -CONT ${jobs[1]}
        ended 0 0 1
        ! grep -q 'was lost' "$D/out0" || false
    done
}

@test "a machine that serves and was stopped does not take its own absence for the others'" {
    machines=2 port=$(free_port)
    for k in 0 1; do
        bare_machine $k --rdzv-backend c10d --max-restarts 0 --lost-after 4 sh -c '
            echo $$ >>"$0/pids"; until [ -e "$0/go" ]; do sleep 0.05; done' "$D"
    done
    await_lines "$D/pids" 4
    kill -STOP ${jobs[1]}
    sleep 1 # by now all is heard that it has said
    kill -STOP ${jobs[0]}
    sleep 4
    kill -CONT ${jobs[0]}
    sleep 0.2 # it looks, and hears nothing
    kill -CONT ${jobs[1]}
    sleep 0.5
    : >"$D/go"
    ended 0 0 1
}

@test "another kolorun takes a lost machine's place in the next attempt" {
    local how
    machines=2
    for how in KILL STOP; do
        port=$(free_port)
        rm -f "$D"/pids "$D"/go
        for k in 0 1; do
            bare_machine $k --lost-after 4 sh -c '
                echo $$ >>"$0/pids"; until [ -e "$0/go" ]; do sleep 0.05; done; echo $TORCHELASTIC_RESTART_COUNT' "$D"
        done
        hit_machine_1 4 $how
        await_text "$D/out0" 'restart 1 of 9; for the machine that was lost this waits until kolorun is started there again'
        grep -q 'machine 1 (.*) was lost: ' "$D/out0"
        : >"$D/go"
        lost=${jobs[1]}
        bare_machine 1 sh -c 'echo $TORCHELASTIC_RESTART_COUNT' "$D"
        ended 0 0 1
        grep -qx '.1. 1' "$D/out0"
        grep -qx '.2. 1' "$D/out1"
        [ $how = KILL ] || { kill -CONT "$lost" && await_gone "$lost"; }
    done
}

@test "a machine that was given up and is there after all comes to the next attempt" {
    machines=2 port=$(free_port)
    for k in 0 1; do
        bare_machine $k --lost-after 4 sh -c '
            [ $TORCHELASTIC_RESTART_COUNT = 0 ] || exit 0
            echo $$ >>"$0/pids"; exec sleep 1000' "$D"
    done
    hit_machine_1 4 STOP
    await_text "$D/out0" 'restart 1 of 9'
    kill -CONT ${jobs[1]}
    ended 0 0 1
}

@test "one whose place has been taken says so and ends" {
    machines=2 port=$(free_port)
    for k in 0 1; do
        bare_machine $k --lost-after 4 sh -c '
            echo $$ >>"$0/pids"; until [ -e "$0/go" ]; do sleep 0.05; done' "$D"
    done
    hit_machine_1 4 STOP
    await_text "$D/out0" 'restart 1 of 9'
    lost=${jobs[1]}
    mv "$D/out1" "$D/lost"
    bare_machine 1 sh -c 'echo $$ >>"$0/pids"; until [ -e "$0/go" ]; do sleep 0.05; done' "$D"
    await_lines "$D/pids" 8
    kill -CONT "$lost"
    code=0; wait "$lost" || code=$?
    [ $code -eq 125 ]
    grep -q 'kolorun: the other machines have given machine 1 up, and another kolorun has its number' "$D/lost"
    : >"$D/go"
    ended 0 0 1
}

@test "the loss of a machine that others wait with is named" {
    machines=3 port=$(free_port)
    for k in 0 1; do bare_machine $k sh -c 'exec sleep 1000'; done
    await_signals ${jobs[0]}
    await_signals ${jobs[1]}
    sleep 0.5 # it comes to the others
    kill -KILL ${jobs[1]}
    left_over=1
    ended 125 0
    grep -q 'kolorun: machine 1 (.*) was lost: its kolorun has ended' "$D/out0"
}
