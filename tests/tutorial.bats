#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# docs/tutorial.md says what each lesson prints: every command on it is run. Ranks print in no order,
# and a time is any time.

bats_require_minimum_version 1.5.0

setup() {
    cd "$BATS_TEST_DIRNAME/.."
    D=$BATS_TEST_TMPDIR
    PAGE=docs/tutorial.md
}

# The lessons of the page: 01_store, ...
lessons() {
    sed -n 's|^\$ kolorun -n [0-9]* build/bin/||p' $PAGE
}

# What the page says that a lesson prints.
promised() {
    awk -v lesson="build/bin/$1" '
        /^```/ { inside = 0 }
        inside { print }
        /^\$ kolorun/ && $NF == lesson { inside = 1 }' $PAGE
}

# Lines without their ranks' marks: who gets the first ticket is left to chance.
plain() {
    sed -E 's/^\[[0-9]+\] //; s/[0-9.]+ us /N us /' | sort
}

@test "every lesson is on the page, and in order" {
    lessons >"$D/page"
    (cd examples && ls [0-9]*.c) | sed 's/\.c$//' | diff "$D/page" -
}

@test "every lesson prints what the page says" {
    for lesson in $(lessons); do
        ranks=$(sed -n "s|^\\$ kolorun -n \([0-9]*\) build/bin/$lesson\$|\1|p" $PAGE)
        "${TEST_BUILD:-build}"/bin/kolorun -n "$ranks" "${TEST_BUILD:-build}/bin/$lesson" >"$D/said"
        plain <"$D/said" >"$D/printed"
        promised "$lesson" | plain | diff - "$D/printed" || { echo "$lesson" && return 1; }
        [ -s "$D/printed" ]
    done
}

@test "the page's ranks without a launcher meet" {
    local port command count=0
    port=$("${TEST_BUILD:-build}/bin/kolorun" printenv MASTER_PORT)
    while IFS= read -r command; do
        command=${command//build\/bin/${TEST_BUILD:-build}/bin}
        command=${command//29512/$port}
        run env -u RANK -u WORLD_SIZE timeout 60 sh -c "${command//\/tmp\/meet/$D/meet}"
        [ "$(sort <<<"$output")" = $'rank 0 of 2: 0 1 2 became 10 12 14\nrank 1 of 2: 10 11 12 became 10 12 14' ] ||
            { echo "$command: $output"; return 1; }
        count=$((count + 1))
    done < <(sed -n 's/^\$ \(build.*wait\)$/\1/p' $PAGE)
    [ $count -eq 2 ]
}

@test "tasks are handed out over every transport, and by a rank that is alone" {
    for transport in shm tcp; do
        run env KOLO_TRANSPORT=$transport "${TEST_BUILD:-build}/bin/kolorun" -n 4 \
            "${TEST_BUILD:-build}/bin/04_any_source"
        [ "$status" -eq 0 ]
        [[ $output == *"168 of the numbers below 1000 are primes"* ]]
    done
    run "${TEST_BUILD:-build}/bin/04_any_source"
    [ "$status" -eq 0 ]
    [[ $output == "0 of the numbers below 0 are primes" ]]
}

@test "a lesson has at most 80 lines, and names itself" {
    for lesson in $(lessons); do
        [ "$(wc -l <"examples/$lesson.c")" -le 80 ]
        grep -q "kolorun -n [0-9]* build/bin/$lesson\$" "examples/$lesson.c"
    done
}

@test "a lesson started with too few ranks says how" {
    for lesson in 05_groups 07_gather_scatter 08_reduce_scatter 12_ping_pong; do
        run ! env -u RANK -u WORLD_SIZE -u MASTER_ADDR -u MASTER_PORT "${TEST_BUILD:-build}/bin/$lesson"
        [[ $output == *"kolorun -n "* ]]
    done
    run ! env -u RANK -u WORLD_SIZE -u MASTER_ADDR -u MASTER_PORT "${TEST_BUILD:-build}/bin/01_store"
    [[ $output == *"kolorun -n 3"* ]]
}
