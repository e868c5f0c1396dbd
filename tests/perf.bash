# SPDX-License-Identifier: MIT
# What tests of kolo-perf share.

bats_require_minimum_version 1.5.0

load python

setup_file() { find_python; }

setup() {
    local name
    BUILD=${TEST_BUILD:-build}
    cd "$BATS_TEST_DIRNAME/.."
    PERF=$PWD/$BUILD/bin/kolo-perf RUN=$PWD/$BUILD/bin/kolorun
    [ "${BUILD#/}" = "$BUILD" ] || { PERF=$BUILD/bin/kolo-perf RUN=$BUILD/bin/kolorun; }
    DOUBLE=$(dirname "$PERF")/../tests/fakecuda
    cd "$BATS_TEST_TMPDIR"
    for name in $(compgen -e KOLO_) RANK WORLD_SIZE MASTER_ADDR MASTER_PORT; do unset "$name"; done
    QUICK=(-n 2 -w 1 -T 60)
}

# Whether the file is JSON in which the Python expression about d holds.
json() {
    python -c 'import json, sys; d = json.load(open(sys.argv[1])); sys.exit(not eval(sys.argv[2]))' "$@"
}

rows() { grep -v '^#' <<<"$output"; }

# A result of one row per argument SIZE=US, each of 20 samples around US.
results() {
    local file=$1 pair first=1
    shift
    {
        printf '{"ranks": 2, "rows": ['
        for pair; do
            [ "$first" ] || printf ','
            first=
            printf '{"collective": "all_reduce", "type": "float32", "redop": "sum", "root": -1,'
            printf '"bytes": %d, "count": 1, "in_place": null, "out_of_place": {"wrong": 0,' "${pair%=*}"
            printf '"algbw": 1, "busbw": 1, "samples_us": ['
            seq -s, -f '%.3f' "${pair#*=}.001" 0.001 "${pair#*=}.020" | tr -d '\n'
            printf ']}}'
        done
        printf ']}\n'
    } >"$file"
}

# Misuse ends with 125 and one sentence that has the text.
refuses() {
    local text=$1
    shift
    run "$@"
    [ "$status" -eq 125 ] && [[ "$output" == *"$text"* ]] || { echo "$*: $status $output"; return 1; }
    [ "$(grep -c '^kolo-perf: ' <<<"$output")" -eq 1 ] || { echo "$*: $output"; return 1; }
}
