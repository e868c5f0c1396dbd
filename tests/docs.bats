#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# What the pages under docs/ quote and name is there.

setup() {
    cd "$BATS_TEST_DIRNAME/.." || return 1
}

# All texts of the sources, those over several lines in one.
texts() {
    cat src/*.[ch] src/*/*.[ch] transports/*.[ch] | perl -0pe 's/"\s*\n\s*"//g'
}

@test "docs/errors.md quotes what kolo says" {
    texts >"$BATS_TEST_TMPDIR/texts"
    missing=0
    while IFS= read -r phrase; do
        grep -qF -- "$phrase" "$BATS_TEST_TMPDIR/texts" || { echo "nothing says: $phrase"; missing=1; }
    done < <(sed -n 's/^| `\([^`]*\)` |.*/\1/p' docs/errors.md)
    [ "$(grep -c '^| `' docs/errors.md)" -gt 30 ] && [ $missing = 0 ]
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
