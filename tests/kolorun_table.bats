#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# What the table at a job's end says of its ranks, and of their errors.

load kolorun

@test "what a rank writes into its error file is shown beneath it" {
    run "$KOLORUN" -n 2 sh -c '[ $RANK = 1 ] || exec sleep 1000
        printf %s "{\"message\": {\"message\": \"no shard 2\\nmore\", \"extraInfo\": {}}}" \
            >"$TORCHELASTIC_ERROR_FILE"; exit 1'
    [ "$status" -eq 1 ]
    grep -qx 'kolorun:        no shard 2' <<<"$output"
    grep -qx 'kolorun:        more' <<<"$output"
    run "$KOLORUN" -n 2 sh -c 'printf %s "{\"message\": \"Traceback:\\r\\n  at\\tx\\n\\nboom\\n\"}" >"$TORCHELASTIC_ERROR_FILE"; exit 1'
    [ "$(grep -A3 '^kolorun:        Traceback:$' <<<"$output" | head -n 3)" = \
        $'kolorun:        Traceback:\nkolorun:          at x\nkolorun:        boom' ]
    run "$KOLORUN" -n 1 sh -c 'printf "{\"message\": \"%sthe end\"}" "$(seq -f "line %.0f\\n" -s "" 1000)" >"$TORCHELASTIC_ERROR_FILE"; exit 1'
    [ "$(grep '^kolorun:        ' <<<"$output" | cut -c17- | tr '\n' '|')" = \
        'line 1|...|line 994|line 995|line 996|line 997|line 998|line 999|line 1000|the end|' ]
    run "$KOLORUN" -n 2 sh -c 'echo "{\"message\": \"plain\\u001b\"}" >"$TORCHELASTIC_ERROR_FILE"; exit 1'
    grep -qx 'kolorun:        plain?' <<<"$output"
    run "$KOLORUN" -n 2 sh -c 'echo "{ no json" >"$TORCHELASTIC_ERROR_FILE"; exit 1'
    [ "$status" -eq 1 ]
}

@test "what is no file, or has no end, in place of an error file keeps nobody" {
    local made
    for made in 'mkfifo "$TORCHELASTIC_ERROR_FILE"' 'mkdir "$TORCHELASTIC_ERROR_FILE"' \
        'ln -s /dev/zero "$TORCHELASTIC_ERROR_FILE"' 'truncate -s 1G "$TORCHELASTIC_ERROR_FILE"'; do
        run timeout -s KILL 20 "$KOLORUN" -n 2 sh -c "[ \$RANK = 1 ] || exec sleep 1000
            $made; exit 3"
        [ "$status" -eq 3 ] || { echo "$made: $status" && return 1; }
        grep -qE '^kolorun: +1 .* exit code 3 .* first$' <<<"$output"
    done
}

@test "with --log-dir the table says where a rank's error file is" {
    run "$KOLORUN" -n 2 --log-dir "$D/logs" sh -c '[ $RANK = 1 ] || exec sleep 1000
        echo "{\"message\": \"why\"}" >"$TORCHELASTIC_ERROR_FILE"; exit 1'
    [ "$(grep -A1 -x 'kolorun:        why' <<<"$output" | tail -n 1)" = \
        "kolorun:        in $(ls "$D"/logs/*/attempt_0/1/error.json)" ]
    [ "$(grep -c error.json <<<"$output")" -eq 1 ]
}

@test "with several machines the table has this one's name" {
    run "$KOLORUN" -n 2 --nnodes 2 --node-rank 1 --master-addr localhost sh -c '[ $RANK = 3 ] || exec sleep 1000; exit 7'
    grep -qE '^kolorun: +rank  host +pid  ended with' <<<"$output"
    grep -qE "^kolorun: +3  $(hostname) +[0-9]+  exit code 7 .* first$" <<<"$output"
    run "$KOLORUN" -n 2 false
    [[ "$output" != *" host "* ]]
}

@test "the error of a group of kolo stands in the table" {
    KOLO_DEBUG=NONE KOLO_TIMEOUT_MS=300 run "$KOLORUN" -n 2 sh -c '
        [ $RANK = 0 ] || exec sleep 1000; exec "$0"' "${KOLORUN%/*}/kolo-train"
    [ "$status" -eq 1 ]
    grep -q '^kolorun:        rank 0 of 2 waited 300 ms for all ranks to join; 1 have not come: rank 1' <<<"$output"
}

@test "the table has all of many ranks, with all that they say" {
    run "$KOLORUN" -n 120 sh -c '
        printf "{\"message\": \"%srank $RANK has said all\"}" "$(seq -f "%0390.0f\n" -s "" 9)" >"$TORCHELASTIC_ERROR_FILE"
        echo >>"$0/up"
        [ $RANK = 0 ] || exec sleep 1000
        until [ "$(wc -l <"$0/up")" -eq 120 ]; do sleep 0.05; done
        exit 3' "$D"
    [ "$status" -eq 3 ]
    [ "$(grep -cE "^kolorun:        rank [0-9]+ has said all$" <<<"$output")" -eq 120 ]
    [ "$(grep -cE "^kolorun: +[0-9]+ +[0-9]+  (SIGTERM|exit code 3) .*(stopped|first)$" <<<"$output")" -eq 120 ]
}

@test "the table shows who had ended well before others failed" {
    run "$KOLORUN" -n 3 sh -c '
        [ $RANK != 1 ] || { echo $$ >"$0/pid"; exit 0; }
        [ $RANK = 0 ] || exec sleep 1000
        until [ -s "$0/pid" ] && grep -q " Z " "/proc/$(cat "$0/pid")/stat"; do sleep 0.05; done; exit 3' "$D"
    [ "$status" -eq 3 ]
    grep -qE '^kolorun: +0 .* first$' <<<"$output"
    grep -qE '^kolorun: +1 +[0-9]+ +exit code 0 .* s  earlier$' <<<"$output"
    grep -qE '^kolorun: +2 .* stopped$' <<<"$output"
}

@test "the table begins with the rank that failed first" {
    run "$KOLORUN" -n 4 sh -c '[ $RANK != 2 ] || exit 42; exec sleep 1000'
    [[ "$(grep -A1 'ended with  ' <<<"$output" | tail -n 1)" =~ ^kolorun:\ +2\ .*first$ ]]
    [ "$(grep -c '^kolorun:  *[0-3]  *[0-9]* ' <<<"$output")" -eq 4 ]
}
