#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# What the system refuses, lacks or hands on: calls that fail, few descriptors, inherited ones.

load kolorun

# Makes system calls of kolorun's own fail: inject "pipe2:error=EMFILE:when=2" ARGUMENT...
inject() {
    strace -qq -o /dev/null -e trace=none -e inject=getpid:error=ENOSYS true 2>/dev/null ||
        skip "no strace that can inject"
    local what=$1
    shift
    # LeakSanitizer cannot work under strace.
    ASAN_OPTIONS=detect_leaks=0 run strace -qq -o /dev/null -e "trace=${what%%:*}" \
        -e "inject=$what" "$KOLORUN" "$@"
}

@test "without pidfd_open it works the same by SIGCHLD" {
    inject pidfd_open:error=ENOSYS -n 3 sh -c '[ $RANK != 1 ] || exit 6; exec sleep 1000'
    [ "$status" -eq 6 ]
    inject pidfd_open:error=ENOSYS:when=2 -n 3 sh -c '[ $RANK != 1 ] || exit 6; exec sleep 1000'
    [ "$status" -eq 6 ]
    inject pidfd_open:error=ENOSYS -n 3 echo ok
    [ "$status" -eq 0 ]
    [ "$(grep -c ok <<<"$output")" -eq 3 ]
}

@test "without IPv6 the port is one of IPv4" {
    inject socket:error=EAFNOSUPPORT:when=1 -n 2 sh -c '[ $MASTER_PORT -gt 0 ]'
    [ "$status" -eq 0 ]
}

@test "what the system refuses is said: 125, and no rank stays" {
    local what
    for what in clone:error=EAGAIN:when=2 pipe2:error=EMFILE:when=1 pipe2:error=EMFILE:when=2 pipe2:error=EMFILE:when=7 \
        signalfd4:error=EMFILE epoll_create1:error=EMFILE bind:error=EACCES \
        /^p?poll$:error=ENOMEM:when=1; do
        inject $what -n 3 sh -c 'echo $$ >>"$0/pids"; exec sleep 1000' "$D"
        [ "$status" -eq 125 ] || { echo "$what: $status"; return 1; }
        [[ "$output" == *"kolorun: "*": "* ]]
    done
    for pid in $(cat "$D/pids" 2>/dev/null); do await_gone "$pid"; done
}

@test "few open files are allowed: as many ranks as these suffice for" {
    (ulimit -n 100 && timeout -k 1 30 "$KOLORUN" -n 60 --no-tag true) # two streams each are closed
    run bash -c 'ulimit -n 100; "$0" -n 60 true' "$KOLORUN"
    [ "$status" -ne 0 ]
    [[ "$output" == *"Too many open files"* ]]
}

@test "kolorun may have more open files than a rank" {
    [ "$(ulimit -Hn)" = unlimited ] || [ "$(ulimit -Hn)" -ge 1000 ] || skip "the limit is low"
    run bash -c 'ulimit -Sn 100; "$0" -n 60 sh -c "ulimit -n"' "$KOLORUN"
    [ "$status" -eq 0 ]
    [ "$(grep -c '] 100$' <<<"$output")" -eq 60 ]
}

@test "ignored SIGCHLD and SIGPIPE, closed descriptors: nothing changes" {
    run env --ignore-signal=CHLD,PIPE "$KOLORUN" -n 2 sh -c 'exit 4'
    [ "$status" -eq 4 ]
    "$KOLORUN" -n 2 sh -c 'cat; echo out' <&- 2>&- >"$D/out"
    [ "$(sort "$D/out")" = $'[0] out\n[1] out' ]
}

@test "ranks inherit no descriptor of kolorun's" {
    run sh -c 'ls /proc/$$/fd; :' 3>&-
    direct=$output
    run "$KOLORUN" -n 2 --tag-output sh -c '[ $RANK = 0 ] || ls /proc/$$/fd; :' 3>&-
    [ "${output//"[1] "/}" = "$direct" ]
}

@test "without a place for temporary files the job runs all the same" {
    TMPDIR=/proc/no run "$KOLORUN" -n 2 --no-tag sh -c 'echo "${TORCHELASTIC_ERROR_FILE-none}"'
    [ "$status" -eq 0 ]
    [ "$output" = $'none\nnone' ]
}
