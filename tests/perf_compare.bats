#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# kolo-perf compares results and draws them: what it says of two runs, and what is in the picture.

load perf

@test "comparing tells faster, slower and the same" {
    results base.json 8=100 16=100 32=100 64=100
    results now.json 8=150 16=50 32=103 128=100
    run "$PERF" --load now.json --compare base.json
    [ "$status" -eq 0 ]
    grep -qE '^all_reduce +8 +float +sum +-1 +out_of_place +100\.01[01] +150\.01[01] +1\.500 +1\.500 +1\.500 +slower$' <<<"$output"
    grep -qE '^all_reduce +16 .* faster$' <<<"$output"
    grep -qE '^all_reduce +32 .* same$' <<<"$output"
    grep -q '^# 1 faster, 1 slower, 1 the same; 1 rows are not in the base$' <<<"$output"
    run "$PERF" --load now.json --compare base.json --margin 1
    grep -q '^# 1 faster, 2 slower, 0 the same' <<<"$output"
    run "$PERF" -t 3 all_reduce -b 8 -e 8 "${QUICK[@]}" --compare base.json
    [ "$status" -eq 0 ]
    grep -q 'The base is of 2 ranks, this is of 3' <<<"$output"
}

@test "comparing says that it cannot tell of few samples, or of times of 0" {
    results base.json 8=100 16=100
    results now.json 8=150 16=50
    sed 's/\(samples_us": \[\)[^]]*/\11, 2, 3, 4/g' base.json >few.json
    sed 's/\(samples_us": \[\)[^]]*/\10/g' base.json >zero.json
    local pair
    for pair in "few.json base.json" "base.json few.json" "zero.json zero.json" "zero.json base.json"; do
        run "$PERF" --load "${pair% *}" --compare "${pair#* }"
        [ "$status" -eq 0 ]
        [ "$(grep -cE ' +- +- +[?]$' <<<"$output")" -eq 2 ]
        [ "$(grep -c '^# ?: nothing can be said .* fewer than 5 samples' <<<"$output")" -eq 1 ]
        grep -qx '# 0 faster, 0 slower, 0 the same, 2 unknown' <<<"$output"
        [[ "$output" != *nan* && "$output" != *inf* ]]
    done
    run "$PERF" --load now.json --compare base.json
    [[ "$output" != *'?'* && "$output" != *unknown* ]]
}

@test "comparing finds the row of the same type, op and root, and of several the last" {
    local other
    results now.json 8=100
    for other in 's/float32/int32/' 's/"sum"/"max"/' 's/"root": -1/"root": 1/' 's/"all_reduce"/"all_gather"/'; do
        results other.json 8=100
        sed -i "$other" other.json
        run "$PERF" --load now.json --compare other.json
        [ "$status" -eq 0 ]
        grep -qx '# 0 faster, 0 slower, 0 the same; 1 rows are not in the base' <<<"$output"
    done
    results base.json 8=200 8=100
    run "$PERF" --load now.json --compare base.json
    grep -qx '# 0 faster, 0 slower, 1 the same' <<<"$output"
}

@test "comparing says what the two runs do not have in common" {
    local bench=("$PERF" -t 2 all_reduce -b 8 -e 8 "${QUICK[@]}")
    "${bench[@]}" --pin --json base.json
    json base.json 'd["pinned"] is True and d["cores"] >= 1 and d["memory"] == "ordinary" and d["average"] == 1'
    run "${bench[@]}" --pin --compare base.json
    [ "$status" -eq 0 ]
    [ "$(grep -c ' in the base, and is ' <<<"$output")" -eq 0 ]
    [ "$(grep -c -e '--pin' <<<"$output")" -eq 0 ]
    run "${bench[@]}" --pin --memory shared --dirty -u 1 -z 0 -m 2 -a 3 --tensors 3 --percentiles --compare base.json
    [ "$status" -eq 0 ]
    grep -qx '# "memory" was ordinary in the base, and is shared here' <<<"$output"
    grep -qx '# "dirty" was false in the base, and is true here' <<<"$output"
    grep -qx '# "unalign" was 0 in the base, and is 1 here' <<<"$output"
    grep -qx '# "blocking" was true in the base, and is false here' <<<"$output"
    grep -qx '# "agg_iters" was 1 in the base, and is 2 here' <<<"$output"
    grep -qx '# "average" was 1 in the base, and is 3 here' <<<"$output"
    grep -qx '# "tensors" was 16 in the base, and is 3 here' <<<"$output"
    grep -qx '# "each_timed" was false in the base, and is true here' <<<"$output"
    [ "$(grep -c ' in the base, and is ' <<<"$output")" -eq 8 ]
    sed 's/"host": "[^"]*"/"host": "elsewhere"/; s/"device": "cpu"/"device": "cuda"/; s/"graph": 0/"graph": 4/' \
        base.json >other.json
    run "$PERF" --load base.json --compare other.json
    grep -qE '^# "host" was elsewhere in the base, and is .+ here$' <<<"$output"
    grep -qx '# "device" was cuda in the base, and is cpu here' <<<"$output"
    grep -qx '# "graph" was 4 in the base, and is 0 here' <<<"$output"
}

@test "comparing doubts what was not pinned though there was a core for each rank" {
    "$PERF" -t 2 all_reduce -b 8 -e 8 "${QUICK[@]}" --pin --json pinned.json
    sed 's/"cores": [0-9]*/"cores": 2/' pinned.json >base.json
    sed 's/"pinned": true/"pinned": false/' base.json >now.json
    run "$PERF" --load now.json --compare base.json
    grep -qx '# "pinned" was true in the base, and is false here' <<<"$output"
    grep -q '^# Without --pin two ranks may have shared a core' <<<"$output"
    sed 's/"cores": 2/"cores": 1/' now.json >few.json # none to pin them to
    run "$PERF" --load few.json --compare few.json
    [ "$status" -eq 0 ]
    [ "$(grep -c -e '--pin' <<<"$output")" -eq 0 ]
}

@test "the picture is SVG with both panels and a name on every line" {
    results base.json 8=100 16=100 1048576=4000
    run "$PERF" -t 2 all_reduce all_gather -b 8 -e 32 -f 2 "${QUICK[@]}" --plot p.svg --compare base.json
    [ "$status" -eq 0 ]
    for text in 'Bus bandwidth (GB/s)' 'Time (us)' '>all_reduce<' '>all_gather, in place<' \
        '>all_reduce, base<' '>1M<' 'kolo-perf, 2 ranks'; do
        grep -qF "$text" p.svg || { echo "no $text"; return 1; }
    done
    python -c 'import xml.dom.minidom; xml.dom.minidom.parse("p.svg")'
    ! grep -E 'nan|inf' p.svg || false
    run "$PERF" -t 2 all -b 8 -e 64 -f 8 -n 1 --json all.json --plot p.svg
    [ "$status" -eq 0 ]
    run "$PERF" --load all.json --plot p.svg --compare all.json
    [ "$status" -eq 0 ]
    # every text lies within the picture, however many lines it names
    [ "$(grep -c '>batch<' p.svg)" -eq 2 ]
    [ "$(grep -c '>batch, base<' p.svg)" -eq 2 ]
    python -c '
import sys, xml.dom.minidom
svg = xml.dom.minidom.parse("p.svg").documentElement
ys = [float(text.getAttribute("y")) for text in svg.getElementsByTagName("text")]
sys.exit(not (20 < min(ys) and max(ys) < float(svg.getAttribute("height"))))'
    results empty.json
    run "$PERF" --load empty.json --plot p.svg
    [ "$status" -eq 0 ]
    python -c 'import xml.dom.minidom; xml.dom.minidom.parse("p.svg")'
}

# lines FILE N: a result of so many collectives, each of two rows.
lines() {
    local file=$1 n=$2
    results one.json 8=100 16=200
    python -c '
import copy, json, sys
d = json.load(open("one.json"))
rows = d["rows"]
d["rows"] = [dict(row, collective="c%d" % k) for k in range(int(sys.argv[1])) for row in rows]
json.dump(d, sys.stdout)' "$n" >"$file"
}

@test "the picture says how many lines it leaves out, and that there is nothing to draw" {
    lines 96.json 96
    run "$PERF" --load 96.json --plot p.svg
    [[ "$status" -eq 0 && "$output" != *--plot* ]]
    grep -qF '>kolo-perf, 2 ranks<' p.svg
    lines 100.json 100
    run "$PERF" --load 100.json --plot p.svg
    [ "$status" -eq 0 ]
    grep -qx '# --plot draws 96 of 100 lines' <<<"$output"
    grep -qF '>kolo-perf, 2 ranks: 96 of 100 lines<' p.svg
    run "$PERF" --load 96.json --compare 100.json --plot p.svg
    grep -qx '# --plot draws 96 of 196 lines' <<<"$output"
    run "$PERF" barrier "${QUICK[@]}" --plot p.svg
    [ "$status" -eq 0 ]
    grep -qx '# --plot has nothing to draw: no row is of more than 0 bytes' <<<"$output"
    grep -qF '>Nothing to draw: no row is of more than 0 bytes<' p.svg
    [ "$(grep -cF 'Bus bandwidth' p.svg)" -eq 0 ]
    python -c 'import xml.dom.minidom; xml.dom.minidom.parse("p.svg")'
}
