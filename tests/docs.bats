#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# What the pages under docs/ quote and name is there.

setup() {
    cd "$BATS_TEST_DIRNAME/.." || return 1
}

# All texts of the files, those over several lines in one; what is printed into them reads "...".
texts() {
    perl -0777 -ne 's/"\s*\n\s*"//g; while (/"((?:[^"\\\n]|\\.)*)"/g) { print "$1\n" }' "$@" |
        sed -E 's/%[-0-9.*]*(z|h|l)*[a-z]/.../g'
}

# What a page's tables of sentences quote.
phrases() {
    awk -F ' [|]' '/^[|] The sentence has / { on = 1 } !/^[|]/ { on = 0 } on { print $1 }' "$1" |
        grep -o '`[^`]*`' | tr -d '`'
}

# The texts of errors in the files, without those that only pass on what something else has said.
errors() {
    perl -0777 -ne 's/"\s*\n\s*"//g;
        while (/\bko_fail(?:_errno)?\((?:[^";]|\([^()]*\))*?"((?:[^"\\\n]|\\.)*)"/g) { print "$1\n" }' "$@" |
        sed -E 's/%[-0-9.*]*(z|h|l)*[a-z]/.../g' | grep '[a-z]'
}

@test "the pages of errors quote what kolo says" {
    texts src/*.[ch] src/*/*.[ch] transports/*.[ch] >"$BATS_TEST_TMPDIR/texts"
    missing=0
    for page in errors rdma; do
        phrases docs/$page.md >"$BATS_TEST_TMPDIR/$page"
        [ "$(wc -l <"$BATS_TEST_TMPDIR/$page")" -gt 30 ] || missing=1
        while IFS= read -r phrase; do
            grep -qF -- "$phrase" "$BATS_TEST_TMPDIR/texts" ||
                { echo "docs/$page.md: nothing says: $phrase"; missing=1; }
        done <"$BATS_TEST_TMPDIR/$page"
    done
    [ $missing = 0 ]
}

@test "docs/rdma.md has a cure for every error of rdma, and for every status" {
    phrases docs/rdma.md >"$BATS_TEST_TMPDIR/phrases"
    errors transports/rdma*.c src/ib_*.c >"$BATS_TEST_TMPDIR/errors"
    [ "$(wc -l <"$BATS_TEST_TMPDIR/errors")" -gt 30 ]
    run grep -vF -f "$BATS_TEST_TMPDIR/phrases" "$BATS_TEST_TMPDIR/errors"
    echo "no cure for: $output"
    [ -z "$output" ]
    sed -n 's/^    X(\([A-Z_]*\)).*/\1/p' src/ib_abi.h | awk 'NR > 1 { print $1 " (" NR - 1 ")" }' | sort >"$BATS_TEST_TMPDIR/statuses"
    [ "$(wc -l <"$BATS_TEST_TMPDIR/statuses")" -gt 20 ]
    grep -oE '^[|] [A-Z_]+_(ERR|COMPLETE) [^|]*' docs/rdma.md | grep -oE '[A-Z_]+ \([0-9]+\)' | sort -u |
        diff "$BATS_TEST_TMPDIR/statuses" -
}

@test "what the pages name is in kolo.h, among the variables, or a tool" {
    missing=0
    while IFS= read -r name; do
        case $name in
        KOLO_*) grep -qE "\b$name\b" include/kolo.h || grep -q "^| \`$name\`" README.md ;;
        *) grep -qE "\b$name\b" include/kolo.h ;;
        esac || { echo "there is no $name"; missing=1; }
    done < <(grep -ohE '\b(kolo_[a-z0-9_]+|KOLO_[A-Z0-9_]+[A-Z0-9])\b' docs/*.md | sort -u)
    [ $missing = 0 ]
}

@test "no line of a tool's help ends in blanks, as where a text just fills one" {
    for tool in kolo-explain kolo-info kolo-perf kolorun; do
        run "${TEST_BUILD:-build}/bin/$tool" --help
        [ "$status" -eq 0 ]
        [ -z "$(grep -n ' $' <<<"$output")" ] || { echo "$tool: $output"; return 1; }
    done
}

@test "the README's two commands say what they take, and refuse the rest before they do anything" {
    run tests/run --help
    [ "$status" -eq 0 ]
    [[ "$output" == "usage: tests/run "*check-asan*lint ]]
    run tests/run check nonsense
    [ "$status" -eq 2 ]
    [[ "$output" == "tests/run: there is no suite nonsense"*usage* ]]
    for arguments in --help 0 "2 x" "2 0" -1; do
        # shellcheck disable=SC2086
        run examples/demo $arguments
        [ "$status" -eq 2 ]
        [ "$output" = "usage: examples/demo [RANKS [EPOCHS]], numbers from 1 on (2, 1)" ]
    done
}
