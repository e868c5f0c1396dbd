# SPDX-License-Identifier: MIT
# kolorun from outside, what its tests share: a folder of their own, waiting for what happens,
# kolorun in the background, and several of it as machines. No test depends on how fast the machine
# is: what sleeps, sleeps far longer than any test may take.

bats_require_minimum_version 1.5.0

setup() {
    KOLORUN=${TEST_BUILD:-build}/bin/kolorun
    cd "$BATS_TEST_DIRNAME/.."
    D=$BATS_TEST_TMPDIR
    export TMPDIR=$D/tmp # of its temporary folders
    mkdir "$TMPDIR"
}

teardown() {
    [ "${left_over:-}" ] || [ -z "$(ls -A "$TMPDIR")" ] || { echo "left in TMPDIR:" && find "$TMPDIR"; }
}

# Waits until the file holds as many lines as asked for.
await_lines() {
    local i
    for i in $(seq 600); do
        [ "$(cat "$1" 2>/dev/null | wc -l)" -ge "$2" ] && return
        sleep 0.05
    done
    echo "$1 never had $2 lines" && return 1
}

# Waits until a line of the file has the text.
await_text() {
    local i
    for i in $(seq 600); do
        ! grep -qF -- "$2" "$1" || return 0
        sleep 0.05
    done
    echo "$1 never said: $2" && cat "$1" && return 1
}

# Waits until a process is gone, or a zombie that nobody has reaped.
await_gone() {
    local i
    for i in $(seq 600); do
        case $(sed 's/.*) //;s/ .*//' "/proc/$1/stat" 2>/dev/null || true) in '' | Z) return ;; esac
        sleep 0.05
    done
    echo "process $1 is still there" && return 1
}

# Runs kolorun in the background; its output is in $D/out and $D/err, its pid in $job.
start() {
    "$KOLORUN" "$@" >"$D/out" 2>"$D/err" 3>&- &
    job=$!
}

# A port that is free now.
free_port() {
    "$KOLORUN" -n 1 sh -c 'echo $MASTER_PORT'
}

# Starts machine K of $machines in the background; its output is in $D/outK and its pid in jobs[K].
machine() {
    local k=$1
    shift
    timeout 100 "$KOLORUN" -n 2 --nnodes "$machines" "$@" >"$D/out$k" 2>&1 3>&- &
    jobs[k]=$!
}

# The same without timeout between, for signals: jobs[K] is kolorun itself.
bare_machine() {
    local k=$1
    shift
    env --default-signal=INT "$KOLORUN" -n 2 --nnodes "$machines" --node-rank "$k" --master-addr 127.0.0.1 \
        --master-port "$port" --max-restarts 9 "$@" >"$D/out$k" 2>&1 3>&- &
    jobs[k]=$!
}

# ended CODE K...: these machines end by themselves, with that code.
ended() {
    local want=$1 k code
    shift
    for k; do
        await_gone "${jobs[k]}" || { kill -KILL "${jobs[@]}"; cat "$D/out$k"; return 1; }
        code=0; wait "${jobs[k]}" || code=$?
        [ $code -eq "$want" ] || { echo "machine $k: $code"; cat "$D/out$k"; return 1; }
    done
}

# Waits until kolorun reads signals itself: from then on none is lost before it meets the others.
await_signals() {
    local i
    for i in $(seq 600); do # SIGUSR1, bit 10, is blocked
        (((0x$(sed -n 's/^SigBlk:\s*//p' "/proc/$1/status") >> 9) & 1)) && return
        sleep 0.05
    done
    echo "kolorun $1 never blocked its signals" && return 1
}

# Waits until all $1 ranks have begun, then kills machine 1's kolorun with that signal.
hit_machine_1() {
    await_lines "$D/pids" "$1"
    kill "-$2" "${jobs[1]}"
    left_over=1
}
