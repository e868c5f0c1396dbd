#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# kolorun's own options: what they mean, what is wrong use, what bash completes.

load kolorun

@test "wrong use: 125 and a sentence" {
    local use
    for use in "" "-n 0 true" "-n x true" "-n 99999 true" "--timeout -1 true" "--timeout x true" \
        "-x =3 true" "-x NO_SUCH_VARIABLE_HERE true" "--nnodes 2 true" "--node-rank 1 true" \
        "--nnodes 2 --standalone --node-rank 0 --master-addr h true" "--master-port 70000 true" \
        "--no-such-option true" "--max-restarts -1 true" "-r 4 true" "-t 0:1,x true" \
        "-r 0:1, true" "--bind-to moon true" "--rdzv-backend etcd true" "--nnodes 1:4 true" \
        "--rdzv-endpoint h:x true" "--rdzv-endpoint h --master-addr h true" \
        "--lost-after 1 true" "--lost-after x true" \
        "--nnodes 2 --rdzv-backend c10d true" "--nnodes 2 --rdzv-endpoint h true"; do
        run "$KOLORUN" $use
        [ "$status" -eq 125 ] || { echo "kolorun $use: $status"; return 1; }
        [[ "${lines[0]}" == *"kolorun: "?* ]] || { echo "kolorun $use: $output"; return 1; }
    done
}

@test "--help, --version" {
    run "$KOLORUN" --help
    [ "$status" -eq 0 ]
    [[ "$output" == *"Examples:"* ]]
    [ "$("$KOLORUN" -h)" = "$output" ]
    run "$KOLORUN" --version
    [ "$status" -eq 0 ]
    [[ "$output" == "kolorun (kolo) "[0-9]* ]]
}

@test "what follows the program is its own" {
    run "$KOLORUN" -n 1 echo -n 3 --help
    [ "$output" = "-n 3 --help" ] || [ "$output" = "3 --help" ]
    run "$KOLORUN" --no_tag -x A_B=c_d -n 1 echo --a_b
    [ "$output" = --a_b ]
    run "$KOLORUN" --no_tag -xA_B=c_d --run_id=a_b -- sh -c 'echo $A_B $TORCHELASTIC_RUN_ID $0' --a_b
    [ "$output" = "c_d a_b --a_b" ]
    run "$KOLORUN" -n 2 -- printf '%s|' a 'b c' -x
    [ "$status" -eq 0 ]
    [ "$(sort <<<"$output")" = $'[0] a|b c|-x|\n[1] a|b c|-x|' ]
}

@test "ranks for each GPU, or each processor" {
    local what double=${KOLORUN%/bin/*}/tests/fakecuda
    for what in auto cpu; do
        KOLO_CUDA=0 run "$KOLORUN" -n $what --no-tag sh -c '[ $WORLD_SIZE = $(env -u OMP_NUM_THREADS nproc) ]'
        [ "$status" -eq 0 ]
    done
    KOLO_CUDA=0 run "$KOLORUN" -n gpu true
    [ "$status" -eq 125 ]
    [ "${lines[0]}" = "kolorun: -n gpu: there is none: KOLO_CUDA is 0" ]
    [ -e "$double/libcuda.so.1" ] || skip "no double of the driver"
    export LD_LIBRARY_PATH=$double FAKECUDA_DEVICES=3
    for what in auto gpu; do
        run "$KOLORUN" --nproc-per-node $what --no-tag sh -c 'echo $WORLD_SIZE'
        [ "$output" = $'3\n3\n3' ]
    done
    run "$KOLORUN" -n cpu --no-tag sh -c '[ $WORLD_SIZE = $(env -u OMP_NUM_THREADS nproc) ]'
    [ "$status" -eq 0 ]
    FAKECUDA_BREAK=cuInit=-9 run "$KOLORUN" -n gpu true
    [ "$status" -eq 125 ]
    [[ "${lines[0]}" == *"-n gpu: there is none: the driver ended the process that asked it" ]]
}

@test "-wdir is where ranks, logs and the program are looked for" {
    mkdir "$D/in"
    printf '#!/bin/sh\nchmod 700 . && pwd && echo $TORCHELASTIC_ERROR_FILE\n' >"$D/in/prog"
    chmod +x "$D/in/prog"
    run --separate-stderr "$KOLORUN" --wdir "$D/in" --log-dir logs ./prog
    [ "$status" -eq 0 ]
    [ "${lines[0]}" = "$D/in" ]
    [[ "${lines[1]}" == "$D"/in/logs/kolorun_* ]] # wherever the rank goes
    program=$(realpath "$KOLORUN")
    (cd "$D" && TMPDIR=in "$program" sh -c 'cd / && >"$TORCHELASTIC_ERROR_FILE"')
    [ "$(ls "$D/in")" = $'logs\nprog' ] # the temporary folder has gone
    run "$KOLORUN" -wd "$D/in" --dry-run ./prog
    run sh -c "${lines[0]}"
    [ "${lines[0]}" = "$D/in" ]
    run "$KOLORUN" --wdir "$D/none" true
    [ "$status" -eq 125 ]
    [[ "$output" == *"--wdir $D/none: No such file or directory"* ]]
}

@test "--report-bindings says what each rank is bound to" {
    run --separate-stderr "$KOLORUN" -n 2 --report-bindings --bind-to hwthread sh -c '
        echo "kolorun: rank $RANK may use processors $(sed -n "s/^Cpus_allowed_list:.//p" /proc/self/status)"'
    [ "$status" -eq 0 ]
    [ "$(wc -l <<<"$stderr")" -eq 2 ]
    [ "$(sed 's/^\[.\] //' <<<"$output" | sort)" = "$(sort <<<"$stderr")" ]
}

@test "--dry-run prints commands that do the same" {
    run "$KOLORUN" -n 2 --nnodes 2 --node-rank 1 --rdzv-endpoint h:7 --rdzv-id j --dry-run -x 'A=b c' \
        sh -c 'echo "it'"'"'s $RANK/$WORLD_SIZE $MASTER_ADDR:$MASTER_PORT $TORCHELASTIC_RUN_ID $A"'
    [ "$status" -eq 0 ]
    [ "${#lines[@]}" -eq 2 ]
    [ "$(sh -c "${lines[1]}")" = "it's 3/4 h:7 j b c" ]
    run "$KOLORUN" -n 2 --dry-run -x OMP_NUM_THREADS=4 sh -c 'echo $OMP_NUM_THREADS'
    [ "$(sh -c "${lines[0]}")" = 4 ]
    run "$KOLORUN" -n 2 --dry-run sh -c 'echo $OMP_NUM_THREADS $MASTER_PORT'
    [[ "$(sh -c "${lines[0]}")" =~ ^1\ [1-9][0-9]+$ ]]
    [ "$(sh -c "${lines[0]}")" = "$(sh -c "${lines[1]}")" ]
    run --separate-stderr "$KOLORUN" --nnodes 2 --rdzv-backend c10d --rdzv-endpoint h --dry-run true
    [[ "$output" == *" RANK=0 "* ]]
    [[ "$stderr" == *"in place of what machine 0 will choose, and this machine is taken for machine 0" ]]
    run "$KOLORUN" --dry-run --bind-to core true ''
    [[ "$output" =~ ^taskset\ -c\ [0-9,-]+\ env\ .*\ true\ \'\'$ ]]
}

@test "--bind-to gives each rank processors that others do not have, as far as there are" {
    local what rank
    for what in core numa socket hwthread; do
        "$KOLORUN" -n 2 --bind-to $what sh -c '
            sed -n "s/^Cpus_allowed_list:./taskset -c /p" /proc/self/status >"$0/bound$RANK"' "$D"
        "$KOLORUN" -n 2 --bind-to $what --dry-run true >"$D/planned"
        for rank in 0 1; do
            [ "$(cat "$D/bound$rank")" = "$(sed -n "$((rank + 1))s/ env .*//p" "$D/planned")" ]
        done
    done
    [ "$(env -u OMP_NUM_THREADS nproc)" -gt 1 ] || skip "there is one processor"
    ! cmp -s "$D/bound0" "$D/bound1" || false
}

# What bash offers for the last of the words; "word N" if word N is the program, whose matter it is.
complete_words() {
    bash -c 'source completions/kolorun; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        _command_offset() { COMPREPLY=("word $1"); }
        _kolorun; printf "%s\n" "${COMPREPLY[@]}"' - "$@"
}

# The options that --help has, a line each; with "=" those alone that take a value.
options_of_help() {
    "$KOLORUN" --help | sed -n 's/^ \+-/ -/; s/\([^ ]\)   *.*/\1/; /^ -.*'"${1:-}"'/p' |
        grep -oE -- '(^| )--?[[:alpha:]?][[:alpha:]-]*' | tr -d ' '
}

@test "bash completes options, their values and the program" {
    [ "$(complete_words kolorun --max)" = --max-restarts ]
    [ "$(complete_words kolorun -n 2 --max)" = --max-restarts ]
    [ "$(complete_words kolorun -n 2 --bind-to = n)" = $'numa\nnone' ]
    [ "$(complete_words kolorun --rdzv-backend c)" = c10d ]
    complete_words kolorun tru | grep -qx true
    complete_words kolorun -n 2 -x A=b tru | grep -qx true
    [ -z "$(complete_words kolorun --timeout 1)" ]
    [ "$(complete_words kolorun -n 2 prog --max)" = "word 3" ]
    [ "$(complete_words kolorun -q -- prog --max)" = "word 3" ]
}

@test "bash completion knows every option, and whether it takes a value" {
    local option words expected offered valued
    offered=$(complete_words kolorun -)
    valued=$(options_of_help =)$'\n-ppn\n--nproc_per_node' # as mpiexec and torchrun write them
    for option in $(options_of_help) -ppn --nproc_per_node; do
        words=("$option")
        expected="word 2"
        if grep -qxF -e "$option" <<<"$valued"; then
            expected=--max-restarts
        fi
        [[ $option != @(--genv|--env) ]] || words+=(NAME)
        [ "$(complete_words kolorun "${words[@]}" 2 --max)" = "$expected" ] || { echo "$option"; return 1; }
    done
    for option in $(options_of_help); do
        grep -qxF -e "$option" <<<"$offered" || { echo "no $option"; return 1; }
    done
}
