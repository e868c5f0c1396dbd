#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# What ranks are told: their variables, the port, where they meet.

load kolorun

@test "every rank's environment" {
    env -u OMP_NUM_THREADS "$KOLORUN" -n 2 sh -c 'env >"$0/env$RANK"' "$D"
    for line in RANK=1 LOCAL_RANK=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 GROUP_RANK=0 \
        GROUP_WORLD_SIZE=1 ROLE_RANK=1 ROLE_NAME=default ROLE_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 \
        TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_MAX_RESTARTS=0 \
        TORCHELASTIC_USE_AGENT_STORE=False OMP_NUM_THREADS=1; do
        grep -qx "$line" "$D/env1" || { echo "no $line"; return 1; }
    done
    grep -q '^TORCHELASTIC_RUN_ID=.' "$D/env1"
    [ "$(grep ^MASTER_PORT "$D/env0")" = "$(grep ^MASTER_PORT "$D/env1")" ]
}

@test "OMP_NUM_THREADS is kept if set, and left alone for one rank" {
    OMP_NUM_THREADS=3 run "$KOLORUN" -n 2 --no-tag sh -c 'echo $OMP_NUM_THREADS'
    [ "$output" = $'3\n3' ]
    run env -u OMP_NUM_THREADS "$KOLORUN" -n 1 sh -c 'echo ${OMP_NUM_THREADS-unset}'
    [ "$output" = unset ]
}

@test "several machines: ranks are counted across them" {
    run "$KOLORUN" -n 2 --nnodes 3 --node-rank 2 --master-addr far.example --no-tag --run-id job7 \
        -x KOLO_AUTH=none sh -c 'echo $RANK/$WORLD_SIZE $LOCAL_RANK $GROUP_RANK/$GROUP_WORLD_SIZE \
            $MASTER_ADDR:$MASTER_PORT $TORCHELASTIC_RUN_ID'
    [ "$(sort <<<"$output")" = $'4/6 0 2/3 far.example:29500 job7\n5/6 1 2/3 far.example:29500 job7' ]
}

@test "kolo's own variables say nothing to ranks, unless by -x" {
    export KOLO_RANK=0 KOLO_SIZE=1 KOLO_MASTER=h:5
    say='echo "$RANK/$KOLO_RANK/$KOLO_SIZE/$KOLO_MASTER"'
    [ "$("$KOLORUN" -n 2 --no-tag sh -c "$say" | sort)" = $'0///\n1///' ]
    [ "$("$KOLORUN" -x KOLO_MASTER -x KOLO_SIZE=2 sh -c "$say")" = 0//2/h:5 ]
    [ "$(eval "$("$KOLORUN" -x KOLO_MASTER -x KOLO_SIZE=2 --dry-run sh -c "$say")")" = 0//2/h:5 ]
}

@test "-x sets a variable" {
    run "$KOLORUN" -n 1 -x 'A=b c=d' -x EMPTY= -x HOME sh -c 'echo "$A,${EMPTY-unset},$HOME"'
    [ "$output" = "b c=d,,$HOME" ]
}

@test "-x of what kolorun says itself is refused, with the option that says it, unless it says the same" {
    local use hint
    while IFS='|' read -r use hint; do
        MASTER_ADDR=h MASTER_PORT=7 run "$KOLORUN" $use true
        [ "$status" -eq 125 ] && [[ "${lines[0]}" == "kolorun: -x "*": "$hint ]] || { echo "$use: $output"; return 1; }
    done <<'END'
-x MASTER_PORT=12345|kolorun sets MASTER_PORT itself; say --master-port 12345
-genv MASTER_PORT 12345|kolorun sets MASTER_PORT itself; say --master-port 12345
-x MASTER_PORT|kolorun sets MASTER_PORT itself; say --master-port 7
-x MASTER_ADDR|kolorun sets MASTER_ADDR itself; say --master-addr h
-x MASTER_PORT=8 --master-port 7|kolorun sets MASTER_PORT itself; say --master-port 8
-x RANK=7|kolorun sets RANK itself, for each rank
-x LOCAL_RANK=0|kolorun sets LOCAL_RANK itself, for each rank
-n 2 -x WORLD_SIZE=4|kolorun sets WORLD_SIZE itself, by -n and --nnodes
-n 2 -x LOCAL_WORLD_SIZE=4|kolorun sets LOCAL_WORLD_SIZE itself, by -n and --nnodes
-x GROUP_RANK=1|kolorun sets GROUP_RANK itself; say --node-rank 1
-x GROUP_WORLD_SIZE=2|kolorun sets GROUP_WORLD_SIZE itself; say --nnodes 2
-x ROLE_NAME=a|kolorun sets ROLE_NAME itself; say --role a
-x TORCHELASTIC_RUN_ID=a|kolorun sets TORCHELASTIC_RUN_ID itself; say --run-id a
-x TORCHELASTIC_MAX_RESTARTS=3|kolorun sets TORCHELASTIC_MAX_RESTARTS itself; say --max-restarts 3
-x TORCHELASTIC_ERROR_FILE=e|kolorun sets TORCHELASTIC_ERROR_FILE itself; *--log-dir*
-x KOLORUN_ATTEMPT=3|kolorun sets KOLORUN_ATTEMPT itself*
--nnodes 2 --rdzv-backend c10d --rdzv-endpoint h:7 -x KOLO_AUTH=none -x MASTER_ADDR|kolorun sets MASTER_ADDR itself, as the machines agree on it
END
    export MASTER_ADDR=127.0.0.1 MASTER_PORT=7 WORLD_SIZE=2
    run "$KOLORUN" -n 2 --no-tag --master-addr 127.0.0.1 --master-port 7 -x MASTER_ADDR -x MASTER_PORT=7 -x WORLD_SIZE \
        -x ROLE_NAME=default -x GROUP_RANK=0 sh -c 'echo $MASTER_ADDR:$MASTER_PORT'
    [ "$output" = $'127.0.0.1:7\n127.0.0.1:7' ]
    run "$KOLORUN" -x RANKS=3 -x MASTER_POR=4 sh -c 'echo $RANKS $MASTER_POR' # only like ours
    [ "$output" = "3 4" ]
}

@test "MASTER_PORT is free, also for a second job, and rank 0 can serve on it" {
    command -v python3 >/dev/null || skip "no python3"
    run "$KOLORUN" -n 1 "$KOLORUN" -n 1 python3 -c '
import os, socket
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("", int(os.environ["MASTER_PORT"]))); s.listen(1)
c = socket.create_connection(("127.0.0.1", int(os.environ["MASTER_PORT"]))); print("served")'
    [ "$status" -eq 0 ]
    [ "$output" = served ]
}

# The first of so many ports in a row that nothing has; outside the range that systems give out.
free_ports() {
    python3 - "$1" <<'END'
import random, socket, sys
n = int(sys.argv[1])
while True:
    low, taken = random.randrange(20000, 30000), []
    try:
        for port in range(low, low + n):
            taken.append(socket.socket())
            taken[-1].bind(("", port))
        break
    except OSError:
        pass
print(low)
END
}

@test "MASTER_PORT is of KOLO_PORT_RANGE, and no two jobs hold the same" {
    command -v python3 >/dev/null || skip "no python3"
    local low
    low=$(free_ports 2)
    export KOLO_PORT_RANGE=$low-$((low + 1))
    run "$KOLORUN" -n 1 "$KOLORUN" -n 1 sh -c 'echo $MASTER_PORT'
    [ "$status" -eq 0 ]
    [ "$output" -ge "$low" ]
    [ "$output" -le $((low + 1)) ]
    "$KOLORUN" -n 1 sh -c 'echo $MASTER_PORT; "$0" -n 1 printenv MASTER_PORT' "$KOLORUN" >"$D/both"
    [ "$(sort "$D/both")" = "$low"$'\n'"$((low + 1))" ]
    run "$KOLORUN" --dry-run printenv MASTER_PORT
    [[ "$(sh -c "$output")" == "$low" || "$(sh -c "$output")" == $((low + 1)) ]]
    unset KOLO_PORT_RANGE
    run "$KOLORUN" -x KOLO_PORT_RANGE="$low-$low" printenv MASTER_PORT
    [ "$output" = "$low" ]
    run python3 -c '
import socket, subprocess, sys
s = socket.socket(); s.bind(("", int(sys.argv[1]))); s.listen()
subprocess.run([sys.argv[2], "-x", "KOLO_PORT_RANGE={0}-{0}".format(*sys.argv[1:]), "true"])' "$low" "$KOLORUN"
    [ "$output" = "kolorun: all ports of KOLO_PORT_RANGE, $low to $low, are taken" ]
    for how in "" --dry-run; do
        run "$KOLORUN" -x KOLO_PORT_RANGE=5 $how true
        [ "$status" -eq 125 ]
        [ "$output" = 'kolorun: KOLO_PORT_RANGE is "5"; it takes two ports, like 30000-30999' ]
    done
}

@test "whatever listens in a job listens within KOLO_PORT_RANGE" {
    command -v python3 >/dev/null || skip "no python3"
    strace -qq -o /dev/null true 2>/dev/null || skip "no strace"
    local low port
    low=$(free_ports 16)
    # LeakSanitizer cannot work under strace.
    ASAN_OPTIONS=detect_leaks=0 KOLO_PORT_RANGE=$low-$((low + 15)) KOLO_TRANSPORT=tcp KOLO_TCP_SOCKETS=2 \
        strace -f -qq -yy -e trace=listen -o "$D/trace" \
        "$KOLORUN" -n 3 "${KOLORUN%run}-perf" all_reduce -b 64K -e 64K -n 1 -w 0 >/dev/null
    sed -n 's/.*listen([0-9]*<TCP.*:\([0-9]*\)\]*>, .*= 0$/\1/p' "$D/trace" >"$D/ports"
    [ "$(wc -l <"$D/ports")" -ge 4 ] # the store's, and each rank's
    while read -r port; do
        [ "$port" -ge "$low" ]
        [ "$port" -le $((low + 15)) ]
    done <"$D/ports"
}

@test "ranks say by what they have understood who they are" {
    local perf=${KOLORUN%run}-perf
    export KOLO_DEBUG=info
    run "$KOLORUN" -n 2 --no-tag "$perf" barrier -n 1 -w 0
    [ "$status" -eq 0 ]
    [[ "$output" == *"rank 0 of 2 by RANK (torchrun or kolorun), local rank 0 of 2, node 0, 1 node, job "* ]]
    [[ "$output" == *"; rank 0 serves the store at 127.0.0.1:"*" by MASTER_ADDR"* ]]
    RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=$(KOLO_DEBUG='' "$KOLORUN" printenv MASTER_PORT) \
        run "$perf" barrier -n 1 -w 0
    [[ "$output" == *"rank 0 of 1 by RANK (torchrun or kolorun); rank 0 serves the store at 127.0.0.1:"* ]]
    KOLO_RANK=0 KOLO_SIZE=1 run "$perf" barrier -n 1 -w 0
    [[ "$output" == *"rank 0 of 1 by KOLO_RANK (set by hand); it is alone"* ]]
}

@test "a job at an address of IPv6" {
    grep -q '^0*1 ' /proc/net/if_inet6 2>/dev/null || skip "no IPv6"
    KOLO_TRANSPORT=tcp KOLO_DEBUG=info run "$KOLORUN" -n 2 --master-addr ::1 --no-tag \
        "${KOLORUN%run}-perf" all_reduce -b 64K -e 64K -n 1 -w 0
    [ "$status" -eq 0 ]
    [[ "$output" == *"rank 0 serves the store at ::1:"* ]]
}

@test "an address of IPv6 in brackets, with a port or without; what has no host, or two ports, is refused" {
    run "$KOLORUN" -n 1 --nnodes 2 --node-rank 0 --master-addr "[::1]" --dry-run true
    [[ "$status $output" == "0 "*"MASTER_ADDR=::1 "* ]]
    run "$KOLORUN" -n 1 --nnodes 2 --node-rank 0 --rdzv-endpoint "[::1]:29444" --dry-run true
    [[ "$status $output" == "0 "*"MASTER_ADDR=::1 MASTER_PORT=29444"* ]]
    run "$KOLORUN" -n 1 --nnodes 2 --node-rank 0 --rdzv-endpoint "fe80::1%lo" --dry-run true
    [[ "$status $output" == "0 "*"MASTER_ADDR=fe80::1%lo "* ]]
    run "$KOLORUN" -n 1 --nnodes 2 --node-rank 0 --rdzv-endpoint "::1:29444" true
    [ "$status" -eq 125 ]
    [[ "$output" == *'--rdzv-endpoint is "::1:29444", which is no address of IPv6; one with a port is written [address]:port'* ]]
    run "$KOLORUN" -n 1 --master-addr "" true
    [ "$status" -eq 125 ]
    [[ "$output" == *'--master-addr is "", without a host that can be'* ]]
}
