#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# kolorun on a terminal: who reads it, whom its keys and its end reach, and what is left.

load kolorun

# Runs kolorun on a terminal of its own and types the text, once it has said "ready".
on_terminal() {
    command -v python3 >/dev/null || skip "no python3"
    run timeout 60 python3 -c '
import os, pty, sys
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[2], sys.argv[2:])
said = b""
typed = False
while True:
    try: more = os.read(fd, 4096)
    except OSError: break
    if not more: break
    said += more
    if b"ready" in said and not typed:
        os.write(fd, sys.argv[1].encode().decode("unicode_escape").encode()); typed = True
sys.stdout.write(said.decode().replace("\r", ""))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))' "$@"
}

@test "a single rank may talk to the terminal" {
    on_terminal 'hello\n' "$KOLORUN" -n 1 sh -c 'echo ready; read a; echo "got $a"'
    [ "$status" -eq 0 ]
    [ "${lines[-1]}" = "got hello" ]
}

@test "of Ctrl-C a rank hears once, and nobody is blamed" {
    on_terminal '\x03' "$KOLORUN" -n 1 sh -c 'trap "echo heard; heard=1" INT
        echo ready; until [ "$heard" ]; do sleep 0.05; done; sleep 0.3'
    [ "$status" -eq 0 ]
    [ "$(grep -c heard <<<"$output")" -eq 1 ]
    on_terminal '\x03' "$KOLORUN" -n 2 sh -c 'echo x >>"$0/up"
        until [ "$(wc -l <"$0/up")" -ge 2 ]; do sleep 0.05; done; echo ready; exec sleep 1000' "$D"
    [ "$status" -eq 130 ]
    [[ "$output" != *first* ]]
}

@test "a terminal that goes away takes the ranks with it" {
    command -v python3 >/dev/null || skip "no python3"
    for n in 1 2; do
        timeout 60 python3 -c '
import os, pty, sys
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
while b"ready" not in os.read(fd, 4096): pass' \
            "$KOLORUN" -n $n sh -c 'echo $$ >>"$0/pids"; echo ready; exec sleep 1000' "$D"
    done
    [ "$(wc -l <"$D/pids")" -ge 2 ]
    for pid in $(cat "$D/pids"); do await_gone "$pid"; done
}

# In a shell, whose end would end them too, on the same terminal.
@test "a single rank at the terminal leaves nothing behind when it fails" {
    cat >"$D/rank" <<'END'
sleep 1000 & echo $! >>"$0.pids"
sh -c 'trap "" TERM HUP; sleep 1000 & echo $$ $! >>"$0"; wait' "$0.pids" &
until [ "$(wc -w <"$0.pids")" -eq 3 ]; do sleep 0.05; done
[ "$1" = stays ] || exit "$1"
exec sleep 1000
END
    cat >"$D/shell" <<'END'
rm -f "$0/rank.pids"
"$@"
echo "status $?"
for pid in $(cat "$0/rank.pids"); do ! kill -KILL $pid 2>/dev/null || echo "left $pid"; done
END
    on_terminal '' /bin/sh -c '. "$0/shell"' "$D" "$KOLORUN" -n 1 sh "$D/rank" 3
    [[ "$output" == *"status 3"* ]]
    [[ "$output" != *left* ]]
    on_terminal '' /bin/sh -c '. "$0/shell"' "$D" "$KOLORUN" -n 1 --timeout 1 sh "$D/rank" stays
    [[ "$output" == *"status 124"* ]]
    [[ "$output" != *left* ]]
    on_terminal '' /bin/sh -c '. "$0/shell"' "$D" "$KOLORUN" -n 1 sh "$D/rank" 0
    [[ "$output" == *"status 0"* ]]
    [ "$(grep -c left <<<"$output")" -eq 3 ] # as it wished
}

# One that ends meanwhile is reaped; what kolorun has not started itself is let be.
@test "a single rank at the terminal may have orphans" {
    on_terminal '' "$KOLORUN" -n 1 sh -c '(sh -c "exec true" & echo $! >"$0/pid")
        while [ -e "/proc/$(cat "$0/pid")" ]; do sleep 0.05; done; echo reaped' "$D"
    [ "$status" -eq 0 ]
    [[ "$output" == *reaped* ]]
    cat >"$D/shell" <<'END'
sh -c 'sleep 1000 & echo $! >"$0/pid"; exec "$@"' "$0" "$@"
echo "status $?"
! kill -KILL "$(cat "$0/pid")" || echo spared
END
    on_terminal '' /bin/sh -c '. "$0/shell"' "$D" "$KOLORUN" -n 1 sh -c 'exit 4'
    [[ "$output" == *"status 4"* ]]
    [[ "$output" == *spared* ]]
}

@test "several ranks do not read the terminal" {
    on_terminal '' "$KOLORUN" -n 2 sh -c 'read a || echo nothing'
    [ "$(grep -c nothing <<<"$output")" -eq 2 ]
}
