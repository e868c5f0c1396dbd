#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# The token by which a job's ranks and machines know each other.

load kolorun

@test "ranks get a token that nobody else can read, and it ends with kolorun" {
    cat >"$D/rank" <<'END'
#!/bin/sh
exec 3>&- 4>&- 5>&- 6>&- 7>&-                          # as programs do that close what they inherit
cat "$KOLO_AUTH_TOKEN_FILE" >"$1/token.$RANK" || exit 1
stat -L -c %a "$KOLO_AUTH_TOKEN_FILE" >"$1/mode.$RANK"
echo "$KOLO_AUTH_TOKEN_FILE" >"$1/path.$RANK"
env >"$1/env.$RANK"
END
    chmod +x "$D/rank"
    "$KOLORUN" -n 2 "$D/rank" "$D"
    cmp "$D/token.0" "$D/token.1"
    [[ "$(cat "$D/token.0")" =~ ^[0-9a-f]{64}$ ]]
    [ "$(cat "$D/mode.0")" = 400 ]
    ! grep -qF "$(cat "$D/token.0")" "$D/env.0" || false
    [ ! -e "$(cat "$D/path.0")" ]
    mv "$D/token.0" "$D/before"
    "$KOLORUN" -n 2 "$D/rank" "$D"
    ! cmp -s "$D/token.0" "$D/before" || false
}

@test "no token is made where one is given, where none is wanted, and for other machines" {
    say='echo "$KOLO_AUTH_TOKEN_FILE/$KOLO_AUTH_TOKEN/$KOLO_AUTH"'
    [ "$(KOLO_AUTH_TOKEN=0123456789abcdef "$KOLORUN" sh -c "$say")" = /0123456789abcdef/ ]
    [ "$(KOLO_AUTH_TOKEN_FILE=file "$KOLORUN" sh -c "$say")" = file// ]
    [ "$("$KOLORUN" -x KOLO_AUTH_TOKEN_FILE=file sh -c "$say")" = file// ]
    [ "$("$KOLORUN" -x KOLO_AUTH=none sh -c "$say")" = //none ]
    [ "$("$KOLORUN" --nnodes 2 --node-rank 1 --master-addr localhost sh -c "$say")" = // ]
    [[ "$(KOLO_AUTH= "$KOLORUN" sh -c "$say")" = /proc/* ]]
    [[ "$(KOLO_AUTH=token "$KOLORUN" sh -c "$say")" = /proc/*/token ]] # the default, spelt out
    run -125 timeout 60 "$KOLORUN" -x KOLO_AUTH=token --nnodes 2 --node-rank 1 --master-addr 10.0.0.1 true
    [[ "$output" == *"other machines need the job's token"* ]]
}

@test "--make-token makes a file that ranks take, once, and starts nothing" {
    (umask 0; "$KOLORUN" --make-token "$D/token")
    [ "$(stat -c %a "$D/token")" = 600 ]
    [[ "$(cat "$D/token")" =~ ^[0-9a-f]{64}$ ]]
    KOLO_AUTH_TOKEN_FILE=$D/token "$KOLORUN" -n 2 "${KOLORUN%run}-perf" barrier -n 1 -w 0
    cp "$D/token" "$D/before"
    run "$KOLORUN" --make-token "$D/token"
    [ "$status" -eq 125 ]
    [ "$output" = "kolorun: --make-token $D/token: it is there already, and stays as it is" ]
    cmp "$D/token" "$D/before"
    ln -s none "$D/link"
    run "$KOLORUN" --make-token "$D/link"
    [ "$status" -eq 125 ]
    run "$KOLORUN" --make-token "$D/no/token"
    [ "$status" -eq 125 ]
    [ "$output" = "kolorun: --make-token $D/no/token: No such file or directory" ]
    run "$KOLORUN" --make-token "$D/other" touch "$D/ran"
    [ "$status" -eq 125 ]
    [ ! -e "$D/other" ]
    [ ! -e "$D/ran" ]
    [[ "$(PATH= "$KOLORUN" --nnodes 2 --node-rank 0 --master-addr far.example true 2>&1)" == *"(kolorun --make-token FILE makes one)"* ]]
}

@test "machines that are to meet without a token are refused at once, in one line" {
    local address
    for address in 10.0.0.1 far.example ::2 localhost.example; do
        run timeout 60 "$KOLORUN" --nnodes 2 --node-rank 0 --master-addr $address true
        [ "$status" -eq 125 ]
        [ "${#lines[@]}" -eq 1 ]
        [[ "$output" == *"other machines need the job's token"*KOLO_AUTH_TOKEN_FILE*KOLO_AUTH=none* ]]
        run timeout 60 "$KOLORUN" --nnodes 2 --rdzv-backend c10d --rdzv-endpoint "[$address]:7" true
        [ "$status" -eq 125 ]
        [ "${#lines[@]}" -eq 1 ]
    done
    for address in localhost 127.0.1.1 ::1; do
        "$KOLORUN" --nnodes 2 --node-rank 0 --master-addr $address true
    done
    for given in KOLO_AUTH=none KOLO_AUTH_TOKEN=0123456789abcdef KOLO_AUTH_TOKEN_FILE=file; do
        env $given "$KOLORUN" --nnodes 2 --node-rank 0 --master-addr far.example true
        "$KOLORUN" -x $given --nnodes 2 --node-rank 0 --master-addr far.example true
    done
    "$KOLORUN" --nnodes 2 --node-rank 0 --master-addr far.example --dry-run true
}

@test "a token of -x is kolorun's own too, where machines meet" {
    machines=2 port=$(free_port)
    machine 0 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:$port -x KOLO_AUTH_TOKEN=0123456789abcdef true
    KOLO_AUTH_TOKEN=0123456789abcdef machine 1 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:$port true
    for k in 0 1; do wait ${jobs[k]}; done
}

@test "another user cannot read the token" {
    [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null || skip "needs root and setpriv"
    run "$KOLORUN" sh -c 'setpriv --reuid 65534 --clear-groups cat "$KOLO_AUTH_TOKEN_FILE"'
    [ "$status" -ne 0 ]
    [[ "$output" == *"ermission denied"* ]]
}

@test "ranks of a job meet by their token, and nobody without it joins them" {
    run env KOLO_TRANSPORT=tcp KOLO_ENCRYPT=1 "$KOLORUN" -n 2 "${KOLORUN%run}-perf" -b 8 -e 8 -n 1 all_reduce
    [ "$status" -eq 0 ] || { echo "$output"; return 1; }
    run "$KOLORUN" -n 2 sh -c '[ $RANK = 0 ] || unset KOLO_AUTH_TOKEN_FILE; exec "$0" -b 8 -e 8 -n 1 -T 20 all_reduce' \
        "${KOLORUN%run}-perf"
    [ "$status" -ne 0 ]
    [[ "$output" == *"it asks for a token"* ]]
}
