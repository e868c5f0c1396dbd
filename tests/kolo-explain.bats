#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# kolo-explain from outside: every algorithm, in words, as JSON and as a picture.

bats_require_minimum_version 1.5.0

load python

setup_file() { find_python; }

setup() {
    EXPLAIN=${TEST_BUILD:-build}/bin/kolo-explain
    cd "$BATS_TEST_DIRNAME/.."
    D=$BATS_TEST_TMPDIR
}

# Whether stdin is JSON in which the Python expression about d holds.
json() {
    python -c 'import json, sys; d = json.load(sys.stdin); sys.exit(not eval(sys.argv[1]))' "$1"
}

# Whether the files are XML.
xml() {
    python -c 'import sys, xml.etree.ElementTree as tree
for file in sys.argv[1:]: assert tree.parse(file).getroot().tag.endswith("svg")' "$@"
}

# "collective algorithm"
rows() {
    "$EXPLAIN" --list | awk '{ print $1, $2 }'
}

# root_option COLLECTIVE RANK: --root, if the collective has one.
root_option() {
    case $1 in broadcast | reduce | gather | scatter) echo "--root $2" ;; esac
}

@test "the list has every row of the table" {
    run "$EXPLAIN" --list
    [ "$status" -eq 0 ]
    [ "${#lines[@]}" -eq "$(grep -c '^    X([A-Z_]*, "' kernels/algorithms.h)" ]
    grep -qE '^all_reduce +one_shot ' <<<"$output"
    grep -qE '^all_reduce +hierarchical .*; for several hosts$' <<<"$output"
    grep -qE '^all_reduce +hierarchical_doubling .*; for several hosts$' <<<"$output"
    grep -qE '^reduce +hierarchical_tree .*; for several hosts$' <<<"$output"
}

@test "every algorithm is explained, drawn and proved" {
    local collective algorithm n
    while read -r collective algorithm most; do
        for n in 2 3 4 5 8 13; do
            run --separate-stderr "$EXPLAIN" "$collective" --algo "$algorithm" --ranks $n --verify \
                --svg "$D/$collective-$algorithm-$n.svg"
            [ "$status" -eq 0 ] || { echo "$collective $algorithm $n: $stderr"; return 1; }
            [[ "$output" == "$collective by $algorithm, $n ranks"* ]]
            [[ "$output" == *"proved, for $n ranks"* ]]
        done
    done < <(rows)
    xml "$D"/*.svg
}

@test "every algorithm is told as JSON, of odd sizes and in small slices" {
    local collective algorithm
    while read -r collective algorithm most; do
        case "$collective $algorithm" in
        "all_to_all bruck" | "all_to_all hierarchical" | "gather hierarchical" | "scatter hierarchical") continue ;; # all blocks fit into a slice
        esac
        "$EXPLAIN" "$collective" --algo "$algorithm" --ranks 5 --count 7 --slice 2 --slots 2 \
            $(root_option "$collective" 3) --json >>"$D/all.json"
        "$EXPLAIN" "$collective" --algo "$algorithm" --ranks 3 --count 0 --json >>"$D/all.json"
    done < <(rows | grep -v barrier)
    python -c 'import json, sys
text, decoder, at = open(sys.argv[1]).read(), json.JSONDecoder(), 0
while at < len(text.rstrip()):
    d, at = decoder.raw_decode(text, at)
    at += len(text[at:]) - len(text[at:].lstrip())
    for m in d["messages"]:
        assert 1 <= m["step"] <= d["steps"] and m["from"] != m["to"] and m["elements"] <= d["slice"]
    for side in "from", "to":
        taken = [(m["step"], m[side]) for m in d["messages"]]
        assert len(taken) == len(set(taken)), "two messages in a step"
    for f in d["figures"]:
        assert f["least"] is None or d["count"] % d["ranks"] or f["elements"] >= f["least"] - 1e-6' "$D/all.json"
}

@test "ring: steps, chunks and totals" {
    run "$EXPLAIN" all_reduce --algo ring --ranks 4
    [ "$status" -eq 0 ]
    grep -qxF "  rank 1 -> rank 2: chunk 0 (elements 0..2), sum of ranks 0, 1; rank 2 then has 3 of 4" <<<"$output"
    grep -qxF "step 6" <<<"$output"
    ! grep -qxF "step 7" <<<"$output" || false
    grep -qE '^  steps +6 +at least 2$' <<<"$output"
    grep -qE '^  sent by the busiest rank +18 = +1\.50 S, at least 1\.50 S$' <<<"$output"
    grep -qE '^  added up by the busiest rank +9 = +0\.75 S, at least 0\.75 S$' <<<"$output"
    run "$EXPLAIN" all_reduce --algo ring --ranks 4 --json
    json 'd["steps"] == 6 and d["parts"] == 4 and len(d["messages"]) == 24' <<<"$output"
    json '[f["elements"] for f in d["figures"]] == [18, 18, 72, 9]' <<<"$output"
}

@test "totals in bytes are those of the call in its slices" {
    run -0 "$EXPLAIN" all_reduce --algo ring --ranks 4 --bytes 64M
    grep -qxF "in bytes, if the call is of 64 MiB, in slices of 128 KiB; S is 64 MiB" <<<"$output"
    grep -qE '^  sent by the busiest rank +100663296 = +96 MiB, at least 96 MiB$' <<<"$output"
    grep -qE '^  sent by all ranks +402653184 = +384 MiB, at least 384 MiB$' <<<"$output"
    grep -qE '^  sent by ranks 0\.\.3 +100663296 = +96 MiB$' <<<"$output"
    run -0 "$EXPLAIN" all_reduce --algo hierarchical --hosts 2,2 --bytes 1000001 --json
    json 'd["bytes"]["count"] == 1000001 and sum(d["bytes"]["sent"]) == d["bytes"]["figures"][2]["elements"]' <<<"$output"
    json 'd["bytes"]["figures"][4]["elements"] in (1000001, 1000002, 1000003)' <<<"$output"
    run -0 "$EXPLAIN" broadcast --algo binomial --ranks 8 --bytes 1M
    grep -qE '^  sent by rank 0 +3145728 = +3 MiB$' <<<"$output"
    grep -qE '^  sent by ranks 1, 3, 5, 7 +0 = +0 B$' <<<"$output"
    run -0 "$EXPLAIN" all_to_all --algo bruck --ranks 4 --bytes 1M
    grep -qF 'in slices of 4 MiB; S is 4 MiB' <<<"$output"
    run -0 "$EXPLAIN" barrier --bytes 8
}

@test "trees and Bruck's reach the least number of steps" {
    local call
    for call in "broadcast --algo binomial" "reduce --algo binomial" "gather --algo binomial" \
        "scatter --algo binomial" "all_gather --algo bruck" "all_to_all --algo bruck" \
        "barrier --algo dissemination" "all_reduce --algo doubling"; do
        run "$EXPLAIN" $call --ranks 8
        grep -qE '^  steps +3 +at least 3$' <<<"$output" || { echo "$call: $output"; return 1; }
    done
}

@test "one rank's view has its messages only" {
    run "$EXPLAIN" all_gather --algo ring --ranks 4 --rank 2
    [ "$status" -eq 0 ]
    [ "$(grep -c ' -> ' <<<"$output")" -eq 6 ]
    [ "$(grep ' -> ' <<<"$output" | grep -vc 'rank 2')" -eq 0 ]
}

@test "no line is long" {
    run "$EXPLAIN" all_to_all --algo bruck --ranks 8
    [ "$(awk 'length > 100' <<<"$output" | wc -l)" -eq 0 ]
}

@test "slices travel one behind the other" {
    run "$EXPLAIN" broadcast --algo ring --ranks 4 --count 12 --slice 3
    grep -qE '^  steps +6 ' <<<"$output"
    run "$EXPLAIN" broadcast --algo ring --ranks 4 --count 12 --slice 12
    grep -qE '^  steps +3 ' <<<"$output"
}

@test "double trees: a slice in each step, and two steps more for each level" {
    local collective call steps
    for collective in broadcast reduce; do
        for call in 2,1 3,2 7,3 8,3 16,4 31,5 34,6 64,6; do
            run "$EXPLAIN" $collective --algo double_tree --ranks "${call%,*}" $(root_option "$collective" 1) \
                --count 64 --slice 2 --slots 2
            steps=$(sed -nE 's/^  steps +([0-9]+) .*/\1/p' <<<"$output")
            [ "$steps" -le $((32 + 2 * ${call#*,})) ] || { echo "$collective $call: $steps"; return 1; }
        done
    done
}

@test "hosts: what leaves them is counted" {
    run "$EXPLAIN" all_reduce --algo hierarchical --hosts 2,2
    [ "$status" -eq 0 ]
    [[ "$output" == *"Hosts: ranks 0, 1 | 2, 3."* ]]
    grep -qE '^  sent by the busiest host to others +12 = +1\.00 S, at least 1\.00 S$' <<<"$output"
    local collective sent least
    while read -r collective sent least; do
        run "$EXPLAIN" "$collective" --algo hierarchical --hosts 2,3
        grep -qE "^  sent by the busiest host to others +$sent = .*, at least $least S$" <<<"$output" ||
            { echo "$collective: $output"; return 1; }
    done <<<"reduce 15 1.00
broadcast 15 1.00
all_gather 9 0.50
reduce_scatter 9 0.60
gather 9 0.60
scatter 9 0.60
all_to_all 18 1.20"
    # with the root on the larger host less has to come, and as much to go
    run "$EXPLAIN" gather --algo hierarchical --hosts 2,3 --root 4
    grep -qE '^  sent by the busiest host to others +6 = .*, at least 0.40 S$' <<<"$output"
    run "$EXPLAIN" scatter --algo hierarchical --hosts 2,3 --root 4
    grep -qE '^  sent by the busiest host to others +6 = .*, at least 0.40 S$' <<<"$output"
    run "$EXPLAIN" all_reduce --algo hierarchical --hosts 2,3 --verify --svg "$D/a.svg" --json
    json 'd["hosts"] == [0, 0, 1, 1, 1] and d["ranks"] == 5' <<<"$output"
    grep -q 'host 1' "$D/a.svg"
    xml "$D/a.svg"
}

@test "an arrow that carries many blocks says how many" {
    "$EXPLAIN" all_to_all --algo bruck --ranks 16 --svg - >"$D/a.svg"
    [ "$(grep -c '>8 blocks<' "$D/a.svg")" -eq 64 ]
}

@test "a picture of an all_to_all says what it does not show" {
    local said='blocks on their way through a rank are not drawn'
    "$EXPLAIN" all_to_all --algo bruck --ranks 5 --svg - | grep -q "$said"
    ! "$EXPLAIN" all_to_all --algo pairwise --ranks 5 --svg - | grep -q "$said" || false
    ! "$EXPLAIN" all_gather --algo bruck --ranks 5 --svg - | grep -q "$said" || false
}

@test "a picture of many ranks says what it leaves out" {
    "$EXPLAIN" all_reduce --algo ring --ranks 40 --svg - >"$D/a.svg"
    xml "$D/a.svg"
    grep -q 'Drawn are 16 of 40 ranks and 40 of 78 steps' "$D/a.svg"
}

@test "the pictures in docs are those of the present code" {
    "$EXPLAIN" all_reduce --algo ring --ranks 4 --svg - | cmp - docs/ring.svg
    "$EXPLAIN" all_reduce --simulate --ranks 64 --per-host 8 --cores 16 --svg - |
        cmp - docs/crossover.svg
    [ "$(wc -c <docs/ring.svg)" -le 30000 ]
    [ "$(wc -c <docs/crossover.svg)" -le 30000 ]
}

@test "what README quotes is said" {
    local line
    run "$EXPLAIN" all_reduce --algo ring --ranks 4
    sed -n '/^## What an algorithm does/,/^## The trainer/p' README.md | sed -n '/^```/,/^```/p' |
        grep -vxE '```| *\.\.\.' >"$D/quoted"
    [ "$(wc -l <"$D/quoted")" -ge 4 ]
    while IFS= read -r line; do
        grep -qxF "$line" <<<"$output" || { echo "not said: $line"; return 1; }
    done <"$D/quoted"
}

@test "unknown names: the error lists the known" {
    run --separate-stderr "$EXPLAIN" all_reduse
    [ "$status" -eq 125 ]
    [ -z "$output" ]
    [[ "$stderr" == *'"all_reduse"'*"all_reduce, reduce, broadcast,"*barrier* ]]
    run --separate-stderr "$EXPLAIN" barrier --algo ring
    [ "$status" -eq 125 ]
    [[ "$stderr" == *'barrier has no algorithm "ring"; it has hierarchical, dissemination, direct, binomial'* ]]
    run --separate-stderr -125 "$EXPLAIN" barrier --simulate --algo ""
    [[ "$stderr" == *'barrier has no algorithm ""; it has '* ]]
}

@test "underscores and capitals of a collective's name do not count" {
    run -0 "$EXPLAIN" all_reduce --algo ring
    local usual=$output name
    for name in allreduce AllReduce ALL_REDUCE; do
        run -0 "$EXPLAIN" "$name" --algo ring
        [ "$output" = "$usual" ]
    done
    KOLO_ALGO=AllReduce=halving run -0 "$EXPLAIN" allreduce --simulate --bytes 1K
    [[ "$output" == *halving* ]]
    run "$EXPLAIN" AllReduce --algo nope
    [ "$status" -eq 125 ]
    [[ "$output" == *'all_reduce has no algorithm "nope"; it has '* ]]
}

@test "calls that cannot be" {
    local call
    for call in "" "all_reduce reduce" "all_reduce --ranks 1" "all_reduce --ranks 65" \
        "all_reduce --ranks x" "all_reduce --rank 4" "broadcast --root 4" "all_reduce --hosts 2,x" \
        "all_reduce --hosts 2,,2" "all_reduce --hosts 40,40" "all_reduce --hosts 2,2 --ranks 5" \
        "all_reduce --slice 0" "all_reduce --slots 1" "all_reduce --count 4097" \
        "all_to_all --algo bruck --slice 2"; do
        run --separate-stderr "$EXPLAIN" $call
        [ "$status" -eq 125 ] || { echo "$call: $status $output"; return 1; }
        [ -n "$stderr" ]
        [ -z "$output" ]
    done
    for call in 1 65 x; do
        run "$EXPLAIN" all_reduce --ranks "$call"
        [[ "$output" == *"--ranks is \"$call\"; it takes a whole number from 2 to 64, with --simulate to 100000"* ]] ||
            { echo "$call: $output"; return 1; }
    done
}

@test "standard output has one document" {
    local simulated
    for simulated in "" "--simulate --bytes 1K"; do
        run --separate-stderr -125 "$EXPLAIN" all_reduce $simulated --svg - --json
        [ -z "$output" ]
        [[ "$stderr" == *"--json goes to standard output: --svg needs the name of a file"* ]]
        "$EXPLAIN" all_reduce $simulated --svg "$D/a.svg" --json >"$D/a.json"
        xml "$D/a.svg"
        json True <"$D/a.json"
    done
}

@test "options that would change nothing are refused" {
    local output_option
    for output_option in --json "--svg -"; do
        # shellcheck disable=SC2086
        run --separate-stderr -125 "$EXPLAIN" all_reduce --rank 0 $output_option
        [ -z "$output" ]
        [[ "$stderr" == *"--rank is for the words"* ]]
    done
    run -0 "$EXPLAIN" all_reduce --rank 0 --svg "$D/a.svg"
    run --separate-stderr -125 "$EXPLAIN" --list all_reduce
    [[ "$stderr" == *"--list has all collectives: it takes no \"all_reduce\""* ]]
}

@test "a root that cannot be is named" {
    run -125 "$EXPLAIN" broadcast --root 9
    [ "$output" = "kolo-explain: --root 9: of 4 ranks the last is 3" ]
    run -125 "$EXPLAIN" all_reduce --root 1
    [ "$output" = "kolo-explain: --root 1: all_reduce has no root" ]
    run -0 "$EXPLAIN" reduce --root 3
    [[ "${lines[0]}" == *"root 3"* ]]
}

@test "output that cannot be written is an error" {
    run --separate-stderr "$EXPLAIN" all_reduce --svg "$D/none/a.svg"
    [ "$status" -eq 125 ]
    [[ "$stderr" == *"$D/none/a.svg"* ]]
    run -125 bash -c '"$1" all_reduce >/dev/full' - "$EXPLAIN"
    run -125 "$EXPLAIN" all_reduce --svg /dev/full
}

# A tuning file in which nothing costs anything but what is given: NAME=NUMBER...
tuning() {
    local name number bytes size maker machine
    printf 'kolo tuning 5\nkolo none\nend\n' >"$D/none"
    maker=$(KOLO_TUNING=$D/none "$EXPLAIN" all_reduce --simulate 2>&1 | sed -n 's/.*but this is kolo \(.*\); .*/\1/p')
    [ -n "$maker" ]
    printf '%s\n' 'kolo tuning 5' "kolo $maker" 'machine none' end >"$D/none"
    machine=$(KOLO_TUNING=$D/none "$EXPLAIN" all_reduce --simulate 2>&1 | sed -n 's/.*but this is "\(.*\)"; .*/\1/p')
    [ -n "$machine" ]
    bytes="128K 512K 2M 8M 32M 128M"
    echo "kolo tuning 5"
    echo "kolo $maker"
    echo "machine $machine"
    for name in {local,remote}.{latency,send,receive,wire_byte} reading.{call,cache} cores change spin wake call \
        {{local,remote}.{send,receive,waiting},reduce,copy,lone_copy,reading.helped}_byte reading.byte; do
        number=0
        [[ $name != spin ]] || number=1000
        [[ $name != cores ]] || number=$(nproc)
        for size; do
            [[ ${size%=*} != "$name" ]] || number=${size#*=}
        done
        if [[ $name == *wire_byte || $name != *[._]byte ]]; then
            echo "$name $number"
        else
            for size in $bytes; do
                echo "$name.$size $number"
            done
        fi
    done
    echo end
}

@test "simulate: times and the crossing are those of the formulas" {
    # Four ranks, 10 us a hop, 0.8 ns to reduce a byte. A ring has 6 hops and reduces 3/4 of the
    # buffer, doubling has 2 hops and reduces the buffer twice: equal at 4 * 10 us / (1.25 * 0.8 ns). The
    # last size is in two slices, which double the hops of doubling.
    tuning local.latency=10 reduce_byte=0.0008 >"$D/tuning"
    KOLO_TUNING=$D/tuning run "$EXPLAIN" all_reduce --simulate --cores 1000 --algo ring,doubling --bytes 4K:256K:4
    echo "$output"
    [ "$status" -eq 0 ]
    [ "${lines[0]}" = "all_reduce among 4 ranks: 1 host of 4 ranks and 1000 cores, $D/tuning" ]
    grep -qE '^ +ring +doubling +kolo takes$' <<<"$output"
    grep -qE '^ +4 KiB +62\.5 +26\.6\* ' <<<"$output"
    grep -qE '^ +16 KiB +69\.8 +46\.2\* ' <<<"$output"
    grep -qE '^ +64 KiB +99\.3\* +125 ' <<<"$output"
    grep -qE '^ +256 KiB +217\* +459 ' <<<"$output"
    [ "${lines[-1]}" = "fastest: doubling, from 39.1 KiB ring" ]
    KOLO_TUNING=$D/tuning run "$EXPLAIN" all_reduce --simulate --cores 1000 --algo ring,doubling --json
    json 'abs(d["crossings"][0]["bytes"] - 40000) < 20 and len(d["crossings"]) == 1' <<<"$output"
    json '[(s["bytes"], s["fastest"]) for s in d["sizes"]][0] == (8, "doubling")' <<<"$output"
    json 'all(abs(s["us"]["ring"] - 60 - .6e-3 * s["bytes"]) < .01
          for s in d["sizes"] if s["bytes"] <= 1 << 19)' <<<"$output"
    json 'd["ranks"] == 4 and d["hosts"] == 1 and d["per_host"] == 4 and d["cores"] == 1000' <<<"$output"
    [[ "$output" == *"\"costs\": \"$D/tuning\""* ]]
}

@test "simulate: the picture names the crossing, and is XML" {
    tuning local.latency=10 reduce_byte=0.0008 >"$D/tuning"
    KOLO_TUNING=$D/tuning "$EXPLAIN" all_reduce --simulate --cores 1000 --algo ring,doubling --svg - >"$D/a.svg"
    xml "$D/a.svg"
    grep -q '>ring from 39.1 KiB<' "$D/a.svg"
    grep -q '>100 us<' "$D/a.svg"
    "$EXPLAIN" all_reduce --simulate --ranks 64 --per-host 8 --cores 16 --svg "$D/b.svg" >"$D/b"
    "$EXPLAIN" all_gather --simulate --bytes 1K --svg "$D/c.svg" >"$D/c"
    "$EXPLAIN" all_to_all --simulate --hosts 3,1,2 --svg "$D/d.svg" >"$D/d"
    xml "$D/b.svg" "$D/c.svg" "$D/d.svg"
    [ "$(wc -l <"$D/c")" -eq 5 ]
    grep -q '3 hosts of 1 to 3 ranks' "$D/d"
}

@test "simulate: every collective, and what the library would take" {
    local collective
    for collective in $("$EXPLAIN" --list | awk '{ print $1 }' | uniq); do
        run -0 "$EXPLAIN" "$collective" --simulate --ranks 12 --per-host 4 --bytes 8:1M:32
        [ "$(grep -c '\*' <<<"${lines[*]:2}")" -ge 1 ] || { echo "$output"; return 1; }
    done
    KOLO_ALGO=halving run -0 "$EXPLAIN" all_reduce --simulate --bytes 1K
    grep -qE '^ +1 KiB .* halving$' <<<"$output"
}

@test "simulate: a hundred thousand ranks" {
    tuning remote.latency=1 >"$D/tuning"
    KOLO_TUNING=$D/tuning run -0 "$EXPLAIN" all_reduce --simulate --ranks 100000 --per-host 1 \
        --algo ring,binomial --bytes 1M --json
    json 'd["sizes"][0]["us"]["ring"] == 2 * 99999' <<<"$output"
    json '32 <= d["sizes"][0]["us"]["binomial"] < 32 + 8 * 8' <<<"$output"
}

@test "simulate: what is too large to carry out is predicted by fewer ranks" {
    run -0 "$EXPLAIN" broadcast --simulate --ranks 100000 --algo scatter,binomial --bytes 1M
    grep -qF '; ~ by what fewer ranks take' <<<"$output"
    grep -qE '^ +1 MiB +~[1-9][0-9]+ ' <<<"$output"
    run -0 "$EXPLAIN" broadcast --simulate --ranks 100000 --algo scatter,binomial --bytes 1M --json
    json 'd["sizes"][0]["estimated"] == ["scatter"] and d["sizes"][0]["us"]["scatter"] > 0' <<<"$output"
}

@test "simulate: of several sizes among many ranks the table has what is predicted of them" {
    local call="all_to_all --simulate --ranks 1200 --algo bruck,hierarchical --bytes 8:512:64"
    run -0 "$EXPLAIN" $call
    [ "${lines[2]}" = '                 bruck   hierarchical  kolo takes' ]
    grep -qE '^     8 B +[0-9]+\* +[0-9]+  bruck$' <<<"${lines[3]}"
    grep -qE '^   512 B +-  +-  [a-z]+$' <<<"${lines[4]}"
    [ "${lines[5]}" = '-: the blocks of all ranks have to fit into a slice, of 128 KiB: bruck, hierarchical' ]
    "$EXPLAIN" $call --json >"$D/json"
    json "'%.0f' % d['sizes'][0]['us']['bruck'] == '$(tr -d '*' <<<"${lines[3]}" | awk '{ print $3 }')'" <"$D/json"
}

@test "simulate: the growth that the manual page shows" {
    local n
    for n in 10 100 1000 10000; do
        "$EXPLAIN" all_reduce --simulate --ranks $n --per-host 1 --cores 16 \
            --algo ring,binomial,doubling --bytes 1K | tail -n 1 >>"$D/lines"
    done
    [ "$(grep -cxFf "$D/lines" man/kolo-explain.1)" -eq 4 ]
}

@test "simulate: calls that cannot be" {
    local call
    for call in "all_reduce --count 3" "all_reduce --algo ring,none" "all_reduce --bytes 0" \
        "all_reduce --bytes 4K:1K" "all_reduce --bytes 1:2:1" "all_reduce --bytes 1:2:2:2" \
        "all_reduce --bytes 1:1T:1.01" "all_reduce --hosts 2,2 --per-host 2" "barrier --svg -" \
        "all_reduce --hosts 2,2 --ranks 5" "all_reduce --algo hierarchical --ranks 4" \
        "all_reduce --ranks 100001" "all_reduce --cores 0" "--list" "none"; do
        run --separate-stderr "$EXPLAIN" --simulate $call
        [ "$status" -eq 125 ] || { echo "$call: $status $output"; return 1; }
        [ -n "$stderr" ]
        [ -z "$output" ]
    done
    run -125 "$EXPLAIN" all_reduce --bytes 8:16
    run -125 "$EXPLAIN" all_reduce --bytes 2G
    run -125 "$EXPLAIN" all_reduce --cores 2
    run -125 "$EXPLAIN" all_reduce --ranks 65
    KOLO_TUNING=/no/such run -125 "$EXPLAIN" all_reduce --simulate
    run -125 "$EXPLAIN" all_reduce --costs x
}

@test "simulate: another machine's costs, if one asks for them" {
    tuning local.latency=1 | sed 's/^machine .*/machine a fast one, 4096 cores/; s/^cores .*/cores 4096/' >"$D/other"
    KOLO_TUNING=$D/other run -125 "$EXPLAIN" all_reduce --simulate --bytes 1K
    [[ "$output" == *"it was measured on"* ]]
    KOLO_TUNING=/no/such run -0 "$EXPLAIN" all_reduce --simulate --bytes 1K --costs "$D/other"
    [ "${lines[0]}" = "all_reduce among 4 ranks: 1 host of 4 ranks and 4096 cores, $D/other" ]
    sed -i '$d' "$D/other"
    run -125 "$EXPLAIN" all_reduce --simulate --bytes 1K --costs "$D/other"
    [[ "$output" == *"--costs: $D/other, line "*"end"* ]]
}

@test "--help and --version" {
    run -0 "$EXPLAIN" --help
    [[ "$output" == *"--svg=FILE"*"Examples:"* ]]
    [ "$("$EXPLAIN" -h)" = "$output" ]
    run -0 "$EXPLAIN" --version
    [[ "$output" == "kolo-explain (kolo) "* ]]
}
