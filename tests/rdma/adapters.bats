#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# rdma over real libibverbs and librdmacm and the kernel's software RoCE (rxe) and iWARP (siw), in
# virtual machines (machine): the shared suite of transports, everything that kolo-perf has and the
# trainer between two machines, real failures. Four starts are enough for all of it; inside is what
# runs in them. Of one or two machines, rxe or siw, one or two adapters, MTU 1500 or 4200, each goes
# with each value of the others in some test; RDMA=all tests what is left of all combinations, too.

bats_require_minimum_version 1.5.0

setup() {
    cd "$BATS_TEST_DIRNAME/../.."
    BUILD=${TEST_BUILD:-build}
    PATH=$PATH:/usr/sbin:/sbin # ldconfig, which is not on everybody's
    REAL=$(dirname "$(ldconfig -p | sed -n 's/.*libibverbs.so.1 .*=> //p' | head -n 1)")
    [ "$REAL" != . ] || skip "no libibverbs here"
}

# What is done after a start, which is the first time that somebody asks for some of it.
RXE="-d 2: suite:1:1500 suite:2:4200 halves little_memory"
SIW="-p siw -d 2: suite:2:1500"
RXE_TWO="-n 2 -d 2: perf:2:1500 perf:1:4200 ipv6 four_ranks trainer link_down gid_deleted killed"
SIW_TWO="-p siw -n 2 -d 2: perf:1:1500 perf:2:4200 four_ranks trainer killed link_down device_deleted"
if [ "${RDMA:-}" = all ]; then
    RXE="$RXE suite:1:4200 suite:2:1500"
    SIW="$SIW suite:1:1500 suite:1:4200 suite:2:4200"
    RXE_TWO="${RXE_TWO/trainer/perf:1:1500 perf:2:4200 trainer} random_kills unplugged"
    SIW_TWO="${SIW_TWO/trainer/perf:1:4200 perf:2:1500 trainer}"
fi

left() { [ "${RDMA:-}" = all ] || skip "RDMA=all"; }

# start NAME: leaves what the machines say in $BATS_FILE_TMPDIR/NAME, and machine's code.
start() {
    local all=$BATS_FILE_TMPDIR/$1 what=${!1} code=0
    # shellcheck disable=SC2086
    tests/rdma/machine -t 500 ${what%%:*} tests/rdma/inside "$BUILD" "$REAL" ${what#*:} \
        >"$all" 2>&1 3>&- || code=$?
    sed -i 's/\r$//' "$all"
    echo "$code" >"$all.code"
    sed -n "s/^\(\[0\] \)\?== took/# $1/p" "$all" >&3
}

# Machines that are alone start together: each leaves half of this one idle.
start_for() {
    case $1 in
    RXE | SIW) start RXE & start SIW & wait ;;
    *) start "$1" ;;
    esac
}

# case_of START CASE: sets output to its lines, of two machines those of both, and status to its code,
# of two the greater; 1 if it did not end. What cannot be had here, for a reason that machine names,
# is no failure.
case_of() {
    local all=$BATS_FILE_TMPDIR/$1 what=${!1} last
    [ -e "$all.code" ] || start_for "$1"
    last=$(tail -n 1 "$all")
    [ "$(cat "$all.code")" -ne 125 ] || [[ "$last" != "machine: "* ]] || skip "${last#machine: }"
    output=$(awk -v name="$2" -v two="$([[ "$what" != *"-n 2"* ]] || echo 1)" '
        { node = two && match($0, /^\[[01]\] /) ? substr($0, 1, 4) : ""; text = substr($0, length(node) + 1) }
        text == "== begin " name { is_in[node] = 1 }
        is_in[node]
        text ~ "^== end " name " " { is_in[node] = 0 }' "$all")
    printf '%s\n' "$output"
    status=$(sed -n 's/^\(\[[01]\] \)\?== end [a-z_0-9:]* //p' <<<"$output" | sort -n | tail -n 1)
    [ "$(grep -c '== begin' <<<"$output")" = "$(grep -c '== end' <<<"$output")" ] || status=1
    [ -n "$status" ] || tail -n 30 "$all"
}

suite() {
    case_of "$@"
    [ "$status" -eq 0 ]
    grep -Eq ' PASSED +\] [1-9]' <<<"$output" # not 0 of them
    [[ "$output" != *" FAILED "* ]]
}

@test "where no machine can be had, machine says why, and exits with 125" {
    mkdir "$BATS_TEST_TMPDIR/bin"
    printf '#!/bin/sh\nexit 100\n' | tee "$BATS_TEST_TMPDIR/bin/apt-cache" >"$BATS_TEST_TMPDIR/bin/apt-get"
    chmod +x "$BATS_TEST_TMPDIR"/bin/*
    PATH=$BATS_TEST_TMPDIR/bin:$PATH XDG_CACHE_HOME=$BATS_TEST_TMPDIR run tests/rdma/machine true
    echo "$output"
    [ "$status" -eq 125 ]
    [[ "$output" == "machine: "* ]]
}

# ---- one machine

@test "the suite of transports, packets of 1024 bytes" {
    suite RXE suite:1:1500
}

@test "the suite of transports, packets of 4096 bytes" {
    left
    suite RXE suite:1:4200
}

@test "the suite of transports by two queue pairs on each of two adapters" {
    left
    suite RXE suite:2:1500
}

@test "the suite of transports by two queue pairs on each of two adapters, packets of 4096 bytes" {
    suite RXE suite:2:4200
}

@test "two adapters each carry half of long messages, and the first the short ones" {
    case_of RXE halves
    [ "$status" -eq 0 ]
    # 12 messages of 1 MiB one way and the other, in packets of 1024 bytes: 12288 on each.
    read -r a b <<<"$(sed -n 's/^sent 1M //p' <<<"$output")"
    [[ $a -ge 12288 && $b -ge 12288 && $a -lt 40000 && $b -lt 40000 ]]
    read -r a b <<<"$(sed -n 's/^sent 16K //p' <<<"$output")"
    [[ $((a < b ? a : b)) -lt 40 && $((a < b ? b : a)) -gt 200 ]]
}

@test "little lockable memory: slow, but right" {
    case_of RXE little_memory
    [ "$status" -eq 0 ]
    [[ "$output" == *"cannot be registered with rxe"*": Cannot allocate memory; such messages go through slots"* ]]
    [[ "$output" == *"Out of bounds values : 0 OK"* ]]
}

@test "the suite of transports over iWARP" {
    left
    suite SIW suite:1:1500
}

@test "the suite of transports over iWARP, long packets" {
    left
    suite SIW suite:1:4200
}

@test "the suite of transports over iWARP, two adapters" {
    suite SIW suite:2:1500
}

@test "the suite of transports over iWARP, two adapters, long packets" {
    left
    suite SIW suite:2:4200
}

# ---- two machines

# perf START CASE PACKET FIRST SECOND: results are checked by kolo-perf. Both machines have sent at
# least, or less than (-), so many KiB by each wire.
perf() {
    local count=0 first second
    case_of "$1" "$2"
    [ "$status" -eq 0 ]
    [[ "$output" == *"over rdma: another machine"* ]]
    [ "$(grep -c 'Out of bounds values : 0 OK' <<<"$output")" -ge 20 ]
    [[ "$output" != *"FAILED"* ]]
    [ "$1" = SIW_TWO ] || [ "$(grep -c "^\[[01]\] \* .*packets of $3 bytes" <<<"$output")" -ge 2 ]
    while read -r first second; do
        is_about "$first" "$4"
        is_about "$second" "$5"
        count=$((count + 1))
    done < <(sed -n 's/^\[[01]\] wires //p' <<<"$output")
    [ "$count" -eq 2 ]
}

is_about() { if [ "$2" -lt 0 ]; then [ "$1" -lt $((-$2 << 10)) ]; else [ "$1" -ge $(($2 << 10)) ]; fi; }

@test "two machines take rdma by themselves, and all results are right" {
    left
    perf RXE_TWO perf:1:1500 1024 4000 -100
}

@test "two machines, packets of 4096 bytes" {
    perf RXE_TWO perf:1:4200 4096 4000 -100
}

@test "two machines, two adapters each" {
    perf RXE_TWO perf:2:1500 1024 2000 2000
}

@test "two machines, two adapters each, packets of 4096 bytes" {
    left
    perf RXE_TWO perf:2:4200 4096 2000 2000
}

@test "two machines take iWARP by themselves, and all results are right" {
    perf SIW_TWO perf:1:1500 1024 4000 -100
}

@test "two machines over iWARP, long packets" {
    left
    perf SIW_TWO perf:1:4200 4096 4000 -100
}

@test "two machines over iWARP, by the second adapter, which has the address" {
    left
    perf SIW_TWO perf:2:1500 1024 -500 4000
}

@test "two machines over iWARP, by the second adapter, long packets" {
    perf SIW_TWO perf:2:4200 4096 -500 4000
}

@test "the trainer learns over rdma what it learns over tcp" {
    for start in RXE_TWO SIW_TWO; do
        case_of "$start" trainer
        [ "$status" -eq 0 ]
        [ "$(grep -c '2 steps on 2 ranks' <<<"$output")" -ge 2 ]
    done
}

@test "two machines that have found each other over IPv6" {
    case_of RXE_TWO ipv6
    [ "$status" -eq 0 ]
    [[ "$output" == *"[0]     * GID 2   RoCE v2  fd00:9::1"* ]]
    [[ "$output" == *"[1]     * GID 2   RoCE v2  fd00:9::2"* ]]
    [[ "$output" == *"rdma goes by rxe0 port 1: active, GID 2"* ]]
    [[ "$output" == *"over rdma: another machine"* ]]
    [[ "$output" == *"Out of bounds values : 0 OK"* ]]
}

@test "four ranks on two machines, whose queue pairs are given back" {
    local count=0 before most
    for start in RXE_TWO SIW_TWO; do
        case_of "$start" four_ranks
        [ "$status" -eq 0 ]
        [[ "$output" == *"over rdma: another machine"* ]]
        [[ "$output" == *"over shm"* ]]
        [ "$(grep -c 'Out of bounds values : 0 OK' <<<"$output")" -ge 10 ]
        while read -r before most; do
            [ "$most" -ge $((before + 4)) ] # each of two ranks has one to each of two
            count=$((count + 1))
        done < <(sed -n 's/^\[[01]\] queue pairs //p' <<<"$output")
    done
    [ "$count" -eq 4 ]
}

# ends START CASE CODE: what happens to the second machine, whose rank ends with that code, is an
# error of both ranks before the time limit of 8 s, and what emulation on a busy machine adds to it.
# The text names a rank: the other one, or where that was faster what it says of this one.
ends() {
    local happened failed node
    case_of "$1" "$2"
    [ "$status" -eq 0 ]
    happened=$(sed -n 's/^\[1\] happened //p' <<<"$output")
    for node in 0 1; do
        failed=$(sed -n "s/^\[$node\] failed //p" <<<"$output")
        [ $((failed - happened)) -le 30 ]
        [ "$3$node" = 1371 ] ||
            grep -q "^\[$node\] kolo-perf: rank $node: .*rank [01] (rdma[01]:[0-9]*, over rdma)" <<<"$output"
    done
    [[ "$output" == *"[0] ended 125"* ]]
    [[ "$output" == *"[1] ended "$3* ]]
    [[ "$output" != *": the adapter did not take a request"* ]] # that would be kolo's mistake
}

@test "a rank that is killed is noticed by the other machine" {
    for start in RXE_TWO SIW_TWO; do
        ends "$start" killed 137
        [[ "$output" == *"[0] kolo-perf: rank 0: rank 1 ("*"was lost"* ]]
    done
}

@test "a link that goes down is an error of both ranks in time" {
    ends RXE_TWO link_down 125
    # which the adapter tells of by an event, or by a write that fails before
    [[ "$output" == *"[1] "*"tells of an event: port error"* ||
        "$output" == *"[1] "*"port or network device may be down or gone"* ]]
}

@test "an address that is deleted, and its GID in use, is an error of both ranks in time" {
    ends RXE_TWO gid_deleted 125
}

@test "ranks that are killed at twenty random moments are noticed by the other machine" {
    left
    local i happened failed
    case_of RXE_TWO random_kills
    [ "$status" -eq 0 ]
    [ "$(grep -c '^\[[01]\] ended 137' <<<"$output")" -eq 20 ]
    [ "$(grep -c '^\[[01]\] ended 125' <<<"$output")" -eq 20 ]
    for ((i = 0; i < 20; i++)); do
        happened=$(nth $((i % 2)) happened $((i / 2))) failed=$(nth $((1 - i % 2)) failed $i)
        [ $((failed - happened)) -le 30 ]
    done
}

# nth NODE WORD N: what that machine has said behind the word, the N-th time, from 0.
nth() { sed -n "s/^\[$1\] $2 //p" <<<"$output" | sed -n "$(($3 + 1))p"; }

@test "a link that goes down below iWARP is an error of both ranks in time" {
    ends SIW_TWO link_down 125
}

@test "a network device that is unplugged below RoCE is an error of both ranks in time" {
    left
    ends RXE_TWO unplugged "1[23][57]" # the kernel may keep the process until it is killed, and longer
}

@test "an iWARP adapter that is deleted is an error of both ranks in time" {
    ends SIW_TWO device_deleted 125
}
