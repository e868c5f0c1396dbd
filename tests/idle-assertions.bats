#!/usr/bin/env bats
# The check of tests/idle-assertions: which lines it finds, and which it leaves alone.

setup() { some=$BATS_TEST_TMPDIR/some.bats; }

@test "assertions that cannot fail are found" {
    cat >"$some" <<'END'
    ! grep -q never "$D/file"
    [ "$status" -eq 0 ] && [[ "$output" == *"it's"* ]]
    [ "$(grep -c '"' <<<"$output")" -eq 2 ] && [ -z "$stderr" ]
    grep -q one file &&
        grep -q another file
    [ "$status" -eq 0 ] || true
    [[ "$output" == *"it's"* ]] || :
    grep -Eq one file || true
END
    run tests/idle-assertions "$some"
    [ "$status" -eq 1 ]
    [ "${#lines[@]}" -eq 7 ]
    [[ "${lines[0]}" == *some.bats:1:*never* ]]
    [[ "${lines[1]}" == *some.bats:2:* ]]
    [[ "${lines[2]}" == *some.bats:3:* ]]
    [[ "${lines[3]}" == *some.bats:4:* ]]
    [[ "${lines[4]}" == *some.bats:6:* ]]
    [[ "${lines[5]}" == *some.bats:7:* ]]
    [[ "${lines[6]}" == *some.bats:8:* ]]
}

@test "what can fail, or decides something, is left alone" {
    cat >"$some" <<'END'
    ! grep -q never "$D/file" || false # one && another
    [[ "$output" == *a* && "$output" == *b* ]]
    [ -e file ] && [ -e other ] || { echo "neither" && return 1; }
    [ "$case" = known ] && continue
    grep FAILED file || true # for who reads it
    wait "$pid" || true
    if [ -e file ] && [ -e other ]; then
        (cd x && ls) | awk '$1 && $2 {
            ! $3 && $4 }'
    fi
    [ "$(cat x && echo "and (more) && more")" = "a && b" ]
    cat >prog <<EOF
[ -e one ] && [ -e another ]
EOF
END
    run tests/idle-assertions "$some"
    [ -z "$output" ]
    [ "$status" -eq 0 ]
}
