#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# kolorun from outside: exit codes, output, signals, ranks that die or will not. No test depends on
# how fast the machine is: what sleeps, sleeps far longer than any test may take.

bats_require_minimum_version 1.5.0

setup() {
    KOLORUN=${TEST_BUILD:-build}/bin/kolorun
    cd "$BATS_TEST_DIRNAME/.."
    D=$BATS_TEST_TMPDIR
    export TMPDIR=$D/tmp # of its temporary folders
    mkdir "$TMPDIR"
}

teardown() {
    [ "${left_over:-}" ] || [ -z "$(ls -A "$TMPDIR")" ] || { echo "left in TMPDIR:" && find "$TMPDIR"; }
}

# Waits until the file holds as many lines as asked for.
await_lines() {
    local i
    for i in $(seq 600); do
        [ "$(cat "$1" 2>/dev/null | wc -l)" -ge "$2" ] && return
        sleep 0.05
    done
    echo "$1 never had $2 lines" && return 1
}

# Waits until a line of the file has the text.
await_text() {
    local i
    for i in $(seq 600); do
        ! grep -qF -- "$2" "$1" || return 0
        sleep 0.05
    done
    echo "$1 never said: $2" && cat "$1" && return 1
}

# Waits until a process is gone, or a zombie that nobody has reaped.
await_gone() {
    local i
    for i in $(seq 600); do
        case $(sed 's/.*) //;s/ .*//' "/proc/$1/stat" 2>/dev/null || true) in '' | Z) return ;; esac
        sleep 0.05
    done
    echo "process $1 is still there" && return 1
}

# Runs kolorun in the background with every rank's pid in $D/pids; leaves its pid in $job.
start() {
    "$KOLORUN" "$@" >"$D/out" 2>"$D/err" 3>&- &
    job=$!
}

@test "all ranks end well: exit code 0, nothing said" {
    run --separate-stderr "$KOLORUN" -n 3 true
    [ "$status" -eq 0 ]
    [ -z "$output" ]
    [ -z "$stderr" ]
}

@test "the failing rank's exit code is the job's" {
    run "$KOLORUN" -n 4 sh -c '[ $RANK != 2 ] || exit 42; exec sleep 1000'
    [ "$status" -eq 42 ]
    [[ "$output" == *"rank 2 ended with exit code 42; stopping 3 others"* ]]
    [[ "$output" == *"exit code 42"*"first"* ]]
    [ "$(grep -c 'SIGTERM .* stopped' <<<"$output")" -eq 3 ]
}

@test "a rank that a signal ends gives 128 + signal" {
    run "$KOLORUN" -n 2 sh -c 'ulimit -c 0; [ $RANK != 1 ] || kill -SEGV $$; exec sleep 1000'
    [ "$status" -eq 139 ]
    [[ "$output" == *"SIGSEGV"*"first"* ]]
}

@test "the first failure is the one that is blamed" {
    : >"$D/up"
    run "$KOLORUN" -n 4 --grace 100 sh -c '
        if [ $RANK = 3 ]; then until [ "$(wc -l <"$0/up")" -eq 3 ]; do sleep 0.05; done; exit 7; fi
        trap "exit 9" TERM; echo x >>"$0/up"; while :; do sleep 0.05; done' "$D"
    [ "$status" -eq 7 ]
    [ "$(grep -c 'exit code 9 .* stopped' <<<"$output")" -eq 3 ]
}

@test "of ends that kolorun finds together the earliest is blamed" {
    start -n 4 sh -c 'echo $$ >"$0/pid$RANK.new"; mv "$0/pid$RANK.new" "$0/pid$RANK"
        echo x >>"$0/ready"; exec sleep 1000' "$D"
    await_lines "$D/ready" 4
    kill -STOP $job
    for rank in 2 0 3; do
        kill -USR$((rank > 0 ? 1 : 2)) "$(cat "$D/pid$rank")"
        await_gone "$(cat "$D/pid$rank")"
    done
    kill -CONT $job
    code=0; wait $job || code=$?
    [ $code -eq 138 ]
    grep -q '^kolorun: *2 .*SIGUSR1 *.* first' "$D/err"
}

@test "-q leaves the table out, not the exit code" {
    run "$KOLORUN" -q -n 2 sh -c '[ $RANK != 1 ] || exit 3; exec sleep 1000'
    [ "$status" -eq 3 ]
    [ -z "$output" ]
}

@test "a program that does not exist: 127; that cannot be executed: 126" {
    run -127 "$KOLORUN" -n 3 /nonexistent/prog
    [ "$output" = "kolorun: cannot execute /nonexistent/prog: No such file or directory" ]
    run "$KOLORUN" -n 3 /etc/passwd
    [ "$status" -eq 126 ]
    [ "$output" = "kolorun: cannot execute /etc/passwd: Permission denied" ]
}

@test "of a program that is there but cannot be executed like this, how it can" {
    local kolorun=$KOLORUN
    [[ "$kolorun" == /* ]] || kolorun=$PWD/$kolorun
    cd "$D"
    touch train.py here
    run -127 "$kolorun" -n 2 train.py
    [ "$output" = "kolorun: cannot execute train.py: No such file or directory; say python3 train.py" ]
    run "$kolorun" ./train.py
    [ "$status" -eq 126 ]
    [ "$output" = "kolorun: cannot execute ./train.py: Permission denied; say python3 ./train.py" ]
    run -127 "$kolorun" here
    [ "$output" = "kolorun: cannot execute here: No such file or directory; say ./here" ]
    run -127 "$kolorun" not_here.py
    [ "$output" = "kolorun: cannot execute not_here.py: No such file or directory" ]
}

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
        [[ "$output" == *kolorun* ]]
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

@test "the spellings of other launchers" {
    run "$KOLORUN" -np 2 sh -c 'echo $WORLD_SIZE'
    [ "$(sort <<<"$output")" = $'[0] 2\n[1] 2' ]
    run "$KOLORUN" -np2 sh -c 'echo $WORLD_SIZE'
    [ "$(sort <<<"$output")" = $'[0] 2\n[1] 2' ]
    run "$KOLORUN" --standalone --nproc_per_node=2 sh -c 'echo $WORLD_SIZE'
    [ "$(sort <<<"$output")" = $'[0] 2\n[1] 2' ]
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

@test "one dash does for long options, as Open MPI takes them" {
    run "$KOLORUN" -np 2 -bind-to none -no-tag sh -c 'echo $WORLD_SIZE'
    [ "$output" = $'2\n2' ]
    run "$KOLORUN" -tag-output -n1 echo a
    [ "$output" = "[0] a" ]
    run "$KOLORUN" -t0 -r 0 -xA=b -n2 --no-tag sh -c 'echo $A' # short ones stay what they are
    [ "$output" = $'b\nb' ]
    run "$KOLORUN" -nproc_per_node=2 -no_tag -xA_B=c sh -c 'echo $WORLD_SIZE $A_B'
    [ "$output" = $'2 c\n2 c' ]
}

@test "options of other launchers that change nothing here are taken" {
    run "$KOLORUN" --oversubscribe -allow-run-as-root --map-by slot --np 2 --no-tag sh -c 'echo $WORLD_SIZE'
    [ "$output" = $'2\n2' ]
    run "$KOLORUN" --monitor-interval 5 --monitor_interval=5 --start-method spawn --start_method=spawn \
        --role trainer --no-python sh -c 'echo $ROLE_NAME'
    [ "$output" = trainer ]
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
    [ -d "$D/in/logs" ]
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
    [ "$(sed 's/^\[.\] //' <<<"$output" | sort)" = "$(sort <<<"$stderr")" ]
}

@test "options of other launchers that cannot be heeded are refused with a sentence" {
    local use
    while IFS='|' read -r use sentence; do
        run "$KOLORUN" $use
        [ "$status" -eq 125 ] && [[ "${lines[0]}" == $sentence ]] || { echo "$use: $output"; return 1; }
    done <<'END'
-hostfile /none/hosts true|kolorun: --hostfile: /none/hosts: No such file*
--host 203.0.113.7:2,203.0.113.8:2 true|kolorun: --host: 203.0.113.7 is another machine*run it on each machine*--nnodes*srun
-hosts localhost,203.0.113.8 true|kolorun: --host: 203.0.113.8 is another machine*
-H localhost: true|kolorun: --host: localhost is ""; it takes a whole number *
-H localhost,,localhost true|kolorun: --host: a host's name is missing
-H localhost:3000,localhost:3000 true|kolorun: --host: it names more than 4096 ranks*
-f /dev/null true|kolorun: --hostfile: /dev/null has no host in it
-f / true|kolorun: --hostfile: / cannot be read: *
-H 0.0.0.0:2 true|kolorun: --host: 0.0.0.0 is another machine*
--numa-binding exclusive true|kolorun: --numa-binding is "exclusive"; it takes node or socket*
--numa-binding core-complex true|kolorun: --numa-binding is "core-complex"; it takes node or socket; *--bind-to core*
--bind-to l3cache true|kolorun: --bind-to l3cache: *caches*numa*
--bind-to core:2 true|kolorun: --bind-to core:2: *one core*
--bind-to core: true|kolorun: --bind-to core:: *
--bind-to core:overload-allowed,x true|kolorun: --bind-to core:overload-allowed,x: *
--bind-to cor true|kolorun: --bind-to is "cor"; it takes *
--stdin all true|kolorun: --stdin all: rank 0 alone *
--display map true|kolorun: --display: *--report-bindings*
--merge-stderr-to-stdout true|kolorun: --merge-stderr-to-stdout: *2>&1*
--rdzv-conf timeout true|kolorun: --rdzv-conf timeout: it takes NAME=VALUE,...
--rdzv-conf join_timeout=x true|kolorun: --rdzv-conf is "x"; it takes seconds*
--rdzv-conf rank=2 --nnodes 2 --master-addr h true|kolorun: --node-rank 2 is not below --nnodes 2
--mca btl tcp true|kolorun: --mca*kolo-info*-x NAME=VALUE
-mca btl tcp true|kolorun: --mca*
-m train|kolorun: --module: *python3 -m MODULE*
--module train --epochs 3|kolorun: --module: *python3 -m MODULE*
--nnodes 1:4 true|kolorun: --nnodes 1:4: *say one
--map-by ppr:2:socket true|kolorun: --map-by ppr:2:socket: *-n*--bind-to
-n 1 ./a : -n 2 ./b|kolorun: : -n: all ranks run one program*$RANK*
-np 1 ./a x : --host h ./b|kolorun: : --host: all ranks run one program*
-n 2 -N 3 true|kolorun: -n 2 and -N 3 both say *
-N 0 true|kolorun: -N is "0"*
-genv A|kolorun: -genv takes a NAME and a VALUE*
-genv A=b c true|kolorun: -genv takes a NAME and a VALUE*
--local-ranks-filter 0,x true|kolorun: --local-ranks-filter is "0,x"; it takes a list like 0,3
--local-ranks-filter 1, true|kolorun: --local-ranks-filter is *
END
}

# Every row of the table: name, argument, and whether it is refused.
foreign_rows() {
    grep -oE '^    \{"[a-z-]+", (0|.[a-zA-Z].), ("[A-Z]+"|NULL), *(NULL)?' src/tools/launch_foreign.c
    grep -c '^    {"' src/tools/launch_foreign.c >&2
}

@test "every option of the table of other launchers' is taken or refused, and in the manual" {
    local name letter argument taken count=0
    foreign_rows >"$D/rows" 2>"$D/count"
    [ "$(wc -l <"$D/rows")" -eq "$(cat "$D/count")" ]
    while IFS=', ' read -r name letter argument taken; do
        name=${name#'{"'} name=${name%'"'}
        argument=$([ "$argument" = NULL ] || echo a)
        run "$KOLORUN" --$name $argument sh -c 'echo ran'
        if [ "$taken" ]; then
            [ "$status" -eq 0 ] && [ "$output" = ran ] || { echo "--$name: $output"; return 1; }
        else
            [ "$status" -eq 125 ] && [[ "${lines[0]}" == "kolorun: --$name: "* ]] || { echo "--$name: $output"; return 1; }
        fi
        [ "$letter" = 0 ] || {
            run "$KOLORUN" -${letter:1:1} $argument sh -c 'echo ran'
            [ "$status" -eq $([ "$taken" ] && echo 0 || echo 125) ]
        }
        grep -qw -- "-${name//-/.}" man/kolorun.1 || { echo "the manual has no --$name"; return 1; }
        count=$((count + 1))
    done <"$D/rows"
    [ $count -gt 40 ]
}

# Every option that the helps of Open MPI's mpirun 4.1 and MPICH's mpiexec 4.0 name, with its arguments.
theirs() {
    tr ';' '\n' <<'END' | grep .
-H 1;-N 1;-V;-allow-run-as-root;-am 1;-app 1;-bind-to 1;-bind-to-core;-bind-to-socket;-bycore;-bynode;-byslot;
-c 1;-cartofile 1;-cf 1;-configfile 1;-continuous;-cpu-list 1;-cpu-set 1;-cpus-per-proc 1;-cpus-per-rank 1;-d;
-debug;-debug-daemons;-debug-daemons-file;-debug-devel;-debugger 1;-default-hostfile 1;-demux 1;
-disable-auto-cleanup;-disable-hostname-propagation;-disable-recovery;-disable-x;-display-allocation;
-display-devel-allocation;-display-devel-map;-display-diffable-map;-display-map;-display-topo;-do-not-launch;
-do-not-resolve;-dvm;-enable-instant-on-support;-enable-recovery;-enable-x;-env 1 1;-envall;-envlist 1;-envnone;
-errfile-pattern 1;-f 1;-fwd-mpirun-port;-genv 1 1;-genvall;-genvlist 1;-genvnone;-get-stack-traces;-gmca 1 1;
-gpus-per-proc 1;-h 1;-help 1;-hnp 1;-host 1;-hostfile 1;-hosts 1;-iface 1;-index-argv-by-rank;-info;
-launch-agent 1;-launcher 1;-launcher-exec 1;-leave-session-attached;-localhost 1;-machinefile 1;-map-by 1;
-max-restarts 1;-max-vm-size 1;-mca 1 1;-membind 1;-merge-stderr-to-stdout;-n 1;-nameserver 1;-nolocal;
-nooversubscribe;-noprefix;-novm;-np 1;-npernode 1;-npersocket 1;-ompi-server 1;-order-nodes 1;
-outfile-pattern 1;-output-filename 1;-output-proctable;-oversubscribe;-path 1;-pernode;-personality 1;
-pmi-port;-ppn 1;-ppr 1;-prefix 1;-preload-binary;-preload-files 1;-prepend-pattern 1;-prepend-rank;
-print-all-exitcodes;-profile;-q;-quiet;-rank-by 1;-rankfile 1;-report-bindings;-report-child-jobs-separately;
-report-events 1;-report-pid 1;-report-state-on-timeout;-report-uri 1;-rf 1;-rmk 1;-s;-set-cwd-to-session-dir;
-show-progress;-skip-launch-node;-stdin 1;-tag-output;-timeout 1;-timestamp-output;-topolib 1;-tune 1;-tv;
-use-hwthread-cpus;-use-regexp;-usize 1;-v;-verbose;-version;-wd 1;-wdir 1;-x 1;-xml;-xml-file 1;-xterm 1;
END
}

# What those that are installed say of themselves: "-name"
their_helps() {
    local topic
    for topic in general debug output input mapping ranking binding devel compatibility launch dvm unsupported; do
        ! command -v mpirun.openmpi >/dev/null || mpirun.openmpi --allow-run-as-root --help $topic 2>&1 || true
    done | sed -nE 's/^ *(-[^ ]+).*/\1/p' | tr '|' '\n' | sed 's/^--*/-/' | sort -u
    ! command -v mpiexec.mpich >/dev/null || mpiexec.mpich --help 2>&1 | sed -nE 's/^ *(-[^ ]+) .*/\1/p' | tr '/' '\n'
}

@test "no option of mpirun's and mpiexec's is unknown here, or taken for another" {
    local option first
    theirs >"$D/theirs"
    while read -r option; do
        run "$KOLORUN" $option sh -c 'echo ran' </dev/null
        first=${lines[0]#kolorun: }
        [[ "$status" == @(0|1|125) && "$first" != *@(unrecognized|ambiguous|invalid option)* ]] || { echo "$option: $output"; return 1; }
        # "-n is olocal", of -nolocal
        [[ ! "$first" =~ ^-[a-zA-Z]\  ]] || [[ "${option%% *}" == -[a-zA-Z] ]] || { echo "$option: $output"; return 1; }
    done <"$D/theirs"
    for option in $(their_helps); do
        grep -q -- "^$option\( \|\$\)" "$D/theirs" || { echo "not in the list: $option"; return 1; }
    done
}

@test "options of other launchers that mean the same as one here" {
    local use
    for use in "-N 2" --npernode=2 "-npernode 2" "--ppn 2" "-ppn 2" "-perhost 2" "--n 2" "--np 2" "-n 2 -N 2" "-c 2" -c2; do
        run "$KOLORUN" $use --no-tag sh -c 'echo $WORLD_SIZE'
        [ "$output" = $'2\n2' ] || { echo "$use: $output"; return 1; }
    done
    run "$KOLORUN" -pernode sh -c 'echo $WORLD_SIZE'
    [ "$output" = 1 ]
    for use in -l --tag-output -prepend-rank; do
        run "$KOLORUN" $use echo a
        [ "$output" = "[0] a" ]
    done
    run "$KOLORUN" -genv A 'b c' -env D_E f -x G=h sh -c 'echo "$A $D_E $G"' # D_E keeps its underscore
    [ "$output" = "b c f h" ]
    for use in package core:overload-allowed socket:if-supported,overload-allowed package:no-overload; do
        run "$KOLORUN" --bind-to $use true
        [ "$status" -eq 0 ] || { echo "$use: $output"; return 1; }
    done
    [ "$("$KOLORUN" --stdin none cat <<<words)" = "" ]
    [ "$("$KOLORUN" -stdin 0 cat <<<words)" = words ]
    start -n 1 --shutdown-timeout 0.2 --timeout 0.2 sh -c 'trap "" TERM; while :; do sleep 0.05; done'
    code=0; wait $job || code=$?
    [ $code -eq 124 ]
    grep -q SIGKILL "$D/err"
    run "$KOLORUN" -- echo : -n
    [ "$output" = ": -n" ]
    run "$KOLORUN" echo : a
    [ "$output" = ": a" ]
}

@test "hosts that are all this machine say how many ranks there are" {
    local use
    printf '# ours\nlocalhost slots=2 max_slots=4\n\n127.0.0.1:1 # and this\n' >"$D/hosts"
    echo localhost >"$D/vague"
    echo 'gpu7.invalid slots=4' >"$D/other"
    for use in "-H localhost:3" "--host localhost,localhost,127.0.0.1" "-hosts $(hostname):3" "-f $D/hosts" \
        "-hostfile $D/hosts" "-machinefile $D/hosts" "-H localhost -n 3" "-f $D/vague -n 3"; do
        run "$KOLORUN" $use --no-tag sh -c 'echo $WORLD_SIZE'
        [ "$output" = $'3\n3\n3' ] || { echo "$use: $output"; return 1; }
    done
    run "$KOLORUN" -f "$D/vague" true
    [ "$status" -eq 125 ]
    [[ "$output" == "kolorun: --hostfile $D/vague: it has a host without slots=N; say how many ranks by -n"* ]]
    run "$KOLORUN" --hostfile "$D/other" -n 4 true
    [ "$status" -eq 125 ]
    [[ "$output" == "kolorun: --hostfile: gpu7.invalid is another machine"* ]]
}

@test "torchrun's words for a rank's binding, a machine's number, and its address" {
    run "$KOLORUN" --numa-binding node --dry-run true
    [[ "$output" == "taskset -c "* ]]
    run "$KOLORUN" --rdzv-conf '' -H "$(hostname).domain:1" true
    [ "$status" -eq 0 ] || [[ $(hostname) == *.* ]]
    run "$KOLORUN" --rdzv-conf rank=1 --node-rank 0 --nnodes 2 --master-addr 127.0.0.1 --dry-run true
    [[ "$output" == *" GROUP_RANK=0 "* ]]
    run "$KOLORUN" --rdzv_conf="is_host=0, rank=1" --nnodes 2 --master-addr 127.0.0.1 --dry-run true
    [[ "$output" == *" GROUP_RANK=1 "* ]]
    run "$KOLORUN" --local_addr=127.0.0.1 sh -c 'echo $KOLO_IFADDR'
    [ "$output" = 127.0.0.1 ]
    run "$KOLORUN" --local-addr lo sh -c 'echo $KOLO_IFADDR'
    [ "$output" = 127.0.0.1 ]
    run --separate-stderr "$KOLORUN" --local-addr 203.0.113.7 sh -c 'echo "<$KOLO_IFADDR>"'
    [ "$output" = "<>" ]
    [[ "$stderr" == "kolorun: --local-addr 203.0.113.7 is no address or interface of this machine"* ]]
    PET_LOCAL_ADDR=127.0.0.1 run "$KOLORUN" sh -c 'echo $KOLO_IFADDR'
    [ "$output" = 127.0.0.1 ]
    run "$KOLORUN" --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:$(free_port) --rdzv-conf join_timeout=2 --nnodes 2 true
    [[ "${lines[0]}" == "kolorun: waited 2000 ms for 2 machines; not there: machine 1" ]]
}

@test "--local-ranks-filter passes on the output of some, and keeps the files of all" {
    run "$KOLORUN" -n 3 --local-ranks-filter 2,0 sh -c 'echo $RANK; echo $RANK >&2'
    [ "$(sort <<<"$output")" = $'[0] 0\n[0] 0\n[2] 2\n[2] 2' ]
    run --separate-stderr "$KOLORUN" -n 2 --no-tag --local_ranks_filter=1 --log-dir "$D/l" -t 3 sh -c 'echo $RANK; echo e$RANK >&2'
    [ "$output" = 1 ]
    [ "$(cat "$D"/l/*/attempt_0/0/stdout.log)" = 0 ]
    [ "$(cat "$D"/l/*/attempt_0/0/stderr.log)" = e0 ]
    [ "$(cat "$D"/l/*/attempt_0/1/stdout.log)" = 1 ]
}

@test "torchrun's PET_ variables stand for options, and the command line counts before them" {
    export PET_NPROC_PER_NODE=2 PET_RUN_ID=x PET_NO_TAG=1 PET_STANDALONE=0 PET_MAX_RESTARTS=1 PET_ROLE=
    run "$KOLORUN" sh -c 'echo $WORLD_SIZE $TORCHELASTIC_RUN_ID $TORCHELASTIC_MAX_RESTARTS $ROLE_NAME'
    [ "$output" = $'2 x 1 default\n2 x 1 default' ]
    PET_RDZV_ID=y run "$KOLORUN" --nproc-per-node 1 --max-restarts 0 sh -c 'echo $WORLD_SIZE $TORCHELASTIC_RUN_ID $TORCHELASTIC_MAX_RESTARTS'
    [ "$output" = "1 y 0" ]
    unset PET_MAX_RESTARTS
    export PET_NNODES=2:2 PET_NODE_RANK=1 PET_MASTER_ADDR=127.0.0.1 PET_MASTER_PORT=7
    run "$KOLORUN" sh -c 'echo $RANK $MASTER_ADDR $MASTER_PORT $PET_NNODES'
    [ "$(sort <<<"$output")" = $'2 127.0.0.1 7 2:2\n3 127.0.0.1 7 2:2' ]
    run "$KOLORUN" --rdzv-endpoint localhost:8 -n 1 sh -c 'echo $RANK $MASTER_ADDR $MASTER_PORT'
    [ "$output" = "1 localhost 8" ]
    PET_NNODES=many run -125 "$KOLORUN" true
    [ "${lines[0]}" = 'kolorun: PET_NNODES: --nnodes is "many"; it takes a whole number from 1 to 524287' ]
    PET_STANDALONE=yes run -125 "$KOLORUN" true
    [ "${lines[0]}" = 'kolorun: PET_STANDALONE: it is "yes"; it takes 0 or 1' ]
}

# by_variable EXPECTED NAME=VALUE... kolorun's options: what a rank is told then.
by_variable() {
    local want=$1
    shift
    run env "${@:1:$#-1}" "$KOLORUN" ${!#} --no-tag sh -c 'echo $WORLD_SIZE $LOCAL_WORLD_SIZE $RANK $MASTER_ADDR $MASTER_PORT'
    [[ "$status ${lines[0]}" == $want ]] || { echo "$*: $status $output"; return 1; }
}

@test "the command line counts before PET_ variables that say the same in another way" {
    local n="PET_NPROC_PER_NODE=3"
    for use in "-N 2" "-ppn 2" "-H localhost:2" "-n 2 -N 2" "--np 2"; do by_variable "0 2 2 *" $n "$use"; done
    by_variable "0 1 1 *" $n -pernode
    echo localhost >"$D/vague"
    by_variable "0 3 3 *" $n "-f $D/vague"
    by_variable "0 2 1 0 h 29500" PET_STANDALONE=1 KOLO_AUTH=none "--nnodes 2 --node-rank 0 --master-addr h"
    by_variable "0 1 1 0 127.0.0.1 *" PET_NNODES=2 PET_NODE_RANK=1 PET_MASTER_ADDR=h PET_MASTER_PORT=7 --standalone
    by_variable "0 1 1 0 127.0.0.1 *" PET_NNODES=2 PET_NODE_RANK=1 PET_RDZV_ENDPOINT=h:7 --standalone
    by_variable "125 *contradict each other" PET_STANDALONE=1 PET_NNODES=2 --master-addr=h
    by_variable "125 *contradict each other" A=b "--standalone --nnodes 2 --master-addr h"
    by_variable "0 2 1 1 127.0.0.1 7" PET_NODE_RANK=0 "--nnodes 2 --rdzv-conf rank=1 --rdzv-endpoint 127.0.0.1:7"
    by_variable "0 2 1 0 127.0.0.1 7" PET_RDZV_CONF=rank=1 "--nnodes 2 --node-rank 0 --rdzv-endpoint 127.0.0.1:7"
    by_variable "0 2 1 1 127.0.0.1 9" PET_RDZV_ENDPOINT=127.0.0.1:7 "--nnodes 2 --node-rank 1 --master-port 9"
    by_variable "0 2 1 1 127.0.0.1 8" PET_MASTER_PORT=7 "--nnodes 2 --node-rank 1 --rdzv-endpoint 127.0.0.1:8"
}

@test "PET_ variables of options that are refused are refused too" {
    by_variable "125 kolorun: PET_MODULE: --module: *python3 -m MODULE" PET_MODULE=1 "-n 2"
    by_variable "125 kolorun: PET_RUN_PATH: --run-path: *" PET_RUN_PATH=1 "-n 2"
    by_variable "125 kolorun: PET_LOGS_SPECS: --logs-specs: *" PET_LOGS_SPECS=x "-n 2"
    by_variable "125 kolorun: PET_MODULE: it is \"True\"; it takes 0 or 1" PET_MODULE=True "-n 2"
    by_variable "0 2 *" PET_MODULE=0 PET_NO_PYTHON=1 PET_START_METHOD=spawn "-n 2"
}

@test "every rank's environment" {
    env -u OMP_NUM_THREADS "$KOLORUN" -n 2 sh -c 'env >"$0/env$RANK"' "$D"
    for line in RANK=1 LOCAL_RANK=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 GROUP_RANK=0 \
        GROUP_WORLD_SIZE=1 ROLE_RANK=1 ROLE_NAME=default ROLE_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 \
        TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_MAX_RESTARTS=0 \
        TORCHELASTIC_USE_AGENT_STORE=False OMP_NUM_THREADS=1; do
        grep -qx "$line" "$D/env1" || { echo "no $line"; return 1; }
    done
    grep -q '^TORCHELASTIC_RUN_ID=.' "$D/env1"
    [ "$(grep ^MASTER_PORT "$D/env0")" = "$(grep ^MASTER_PORT "$D/env1")" ]
}

@test "OMP_NUM_THREADS is kept if set, and left alone for one rank" {
    OMP_NUM_THREADS=3 run "$KOLORUN" -n 2 --no-tag sh -c 'echo $OMP_NUM_THREADS'
    [ "$output" = $'3\n3' ]
    run env -u OMP_NUM_THREADS "$KOLORUN" -n 1 sh -c 'echo ${OMP_NUM_THREADS-unset}'
    [ "$output" = unset ]
}

@test "several machines: ranks are counted across them" {
    run "$KOLORUN" -n 2 --nnodes 3 --node-rank 2 --master-addr far.example --no-tag --run-id job7 \
        -x KOLO_AUTH=none sh -c 'echo $RANK/$WORLD_SIZE $LOCAL_RANK $GROUP_RANK/$GROUP_WORLD_SIZE \
            $MASTER_ADDR:$MASTER_PORT $TORCHELASTIC_RUN_ID'
    [ "$(sort <<<"$output")" = $'4/6 0 2/3 far.example:29500 job7\n5/6 1 2/3 far.example:29500 job7' ]
}

@test "kolo's own variables say nothing to ranks, unless by -x" {
    export KOLO_RANK=0 KOLO_SIZE=1 KOLO_MASTER=h:5
    say='echo "$RANK/$KOLO_RANK/$KOLO_SIZE/$KOLO_MASTER"'
    [ "$("$KOLORUN" -n 2 --no-tag sh -c "$say" | sort)" = $'0///\n1///' ]
    [ "$("$KOLORUN" -x KOLO_MASTER -x KOLO_SIZE=2 sh -c "$say")" = 0//2/h:5 ]
    [ "$(eval "$("$KOLORUN" -x KOLO_MASTER -x KOLO_SIZE=2 --dry-run sh -c "$say")")" = 0//2/h:5 ]
}

@test "-x sets a variable" {
    run "$KOLORUN" -n 1 -x 'A=b c=d' -x EMPTY= -x HOME sh -c 'echo "$A,${EMPTY-unset},$HOME"'
    [ "$output" = "b c=d,,$HOME" ]
}

@test "-x of what kolorun says itself is refused, with the option that says it, unless it says the same" {
    local use hint
    while IFS='|' read -r use hint; do
        MASTER_ADDR=h MASTER_PORT=7 run "$KOLORUN" $use true
        [ "$status" -eq 125 ] && [[ "${lines[0]}" == "kolorun: -x "*": "$hint ]] || { echo "$use: $output"; return 1; }
    done <<'END'
-x MASTER_PORT=12345|kolorun sets MASTER_PORT itself; say --master-port 12345
-genv MASTER_PORT 12345|kolorun sets MASTER_PORT itself; say --master-port 12345
-x MASTER_PORT|kolorun sets MASTER_PORT itself; say --master-port 7
-x MASTER_ADDR|kolorun sets MASTER_ADDR itself; say --master-addr h
-x MASTER_PORT=8 --master-port 7|kolorun sets MASTER_PORT itself; say --master-port 8
-x RANK=7|kolorun sets RANK itself, for each rank
-x LOCAL_RANK=0|kolorun sets LOCAL_RANK itself, for each rank
-n 2 -x WORLD_SIZE=4|kolorun sets WORLD_SIZE itself, by -n and --nnodes
-n 2 -x LOCAL_WORLD_SIZE=4|kolorun sets LOCAL_WORLD_SIZE itself, by -n and --nnodes
-x GROUP_RANK=1|kolorun sets GROUP_RANK itself; say --node-rank 1
-x GROUP_WORLD_SIZE=2|kolorun sets GROUP_WORLD_SIZE itself; say --nnodes 2
-x ROLE_NAME=a|kolorun sets ROLE_NAME itself; say --role a
-x TORCHELASTIC_RUN_ID=a|kolorun sets TORCHELASTIC_RUN_ID itself; say --run-id a
-x TORCHELASTIC_MAX_RESTARTS=3|kolorun sets TORCHELASTIC_MAX_RESTARTS itself; say --max-restarts 3
-x TORCHELASTIC_ERROR_FILE=e|kolorun sets TORCHELASTIC_ERROR_FILE itself; *--log-dir*
-x KOLORUN_ATTEMPT=3|kolorun sets KOLORUN_ATTEMPT itself*
--nnodes 2 --rdzv-backend c10d --rdzv-endpoint h:7 -x KOLO_AUTH=none -x MASTER_ADDR|kolorun sets MASTER_ADDR itself, as the machines agree on it
END
    export MASTER_ADDR=127.0.0.1 MASTER_PORT=7 WORLD_SIZE=2
    run "$KOLORUN" -n 2 --no-tag --master-addr 127.0.0.1 --master-port 7 -x MASTER_ADDR -x MASTER_PORT=7 -x WORLD_SIZE \
        -x ROLE_NAME=default -x GROUP_RANK=0 sh -c 'echo $MASTER_ADDR:$MASTER_PORT'
    [ "$output" = $'127.0.0.1:7\n127.0.0.1:7' ]
    run "$KOLORUN" -x RANKS=3 -x MASTER_POR=4 sh -c 'echo $RANKS $MASTER_POR' # only like ours
    [ "$output" = "3 4" ]
}

@test "MASTER_PORT is free, also for a second job, and rank 0 can serve on it" {
    command -v python3 >/dev/null || skip "no python3"
    run "$KOLORUN" -n 1 "$KOLORUN" -n 1 python3 -c '
import os, socket
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("", int(os.environ["MASTER_PORT"]))); s.listen(1)
c = socket.create_connection(("127.0.0.1", int(os.environ["MASTER_PORT"]))); print("served")'
    [ "$status" -eq 0 ]
    [ "$output" = served ]
}

# The first of so many ports in a row that nothing has; outside the range that systems give out.
free_ports() {
    python3 - "$1" <<'END'
import random, socket, sys
n = int(sys.argv[1])
while True:
    low, taken = random.randrange(20000, 30000), []
    try:
        for port in range(low, low + n):
            taken.append(socket.socket())
            taken[-1].bind(("", port))
        break
    except OSError:
        pass
print(low)
END
}

@test "MASTER_PORT is of KOLO_PORT_RANGE, and no two jobs hold the same" {
    command -v python3 >/dev/null || skip "no python3"
    local low
    low=$(free_ports 2)
    export KOLO_PORT_RANGE=$low-$((low + 1))
    run "$KOLORUN" -n 1 "$KOLORUN" -n 1 sh -c 'echo $MASTER_PORT'
    [ "$status" -eq 0 ]
    [ "$output" -ge "$low" ]
    [ "$output" -le $((low + 1)) ]
    "$KOLORUN" -n 1 sh -c 'echo $MASTER_PORT; "$0" -n 1 printenv MASTER_PORT' "$KOLORUN" >"$D/both"
    [ "$(sort "$D/both")" = "$low"$'\n'"$((low + 1))" ]
    run "$KOLORUN" --dry-run printenv MASTER_PORT
    [[ "$(sh -c "$output")" == "$low" || "$(sh -c "$output")" == $((low + 1)) ]]
    unset KOLO_PORT_RANGE
    run "$KOLORUN" -x KOLO_PORT_RANGE="$low-$low" printenv MASTER_PORT
    [ "$output" = "$low" ]
    run python3 -c '
import socket, subprocess, sys
s = socket.socket(); s.bind(("", int(sys.argv[1]))); s.listen()
subprocess.run([sys.argv[2], "-x", "KOLO_PORT_RANGE={0}-{0}".format(*sys.argv[1:]), "true"])' "$low" "$KOLORUN"
    [ "$output" = "kolorun: all ports of KOLO_PORT_RANGE, $low to $low, are taken" ]
    for how in "" --dry-run; do
        run "$KOLORUN" -x KOLO_PORT_RANGE=5 $how true
        [ "$status" -eq 125 ]
        [ "$output" = 'kolorun: KOLO_PORT_RANGE is "5"; it takes two ports, like 30000-30999' ]
    done
}

@test "whatever listens in a job listens within KOLO_PORT_RANGE" {
    command -v python3 >/dev/null || skip "no python3"
    strace -qq -o /dev/null true 2>/dev/null || skip "no strace"
    local low port
    low=$(free_ports 16)
    # LeakSanitizer cannot work under strace.
    ASAN_OPTIONS=detect_leaks=0 KOLO_PORT_RANGE=$low-$((low + 15)) KOLO_TRANSPORT=tcp KOLO_TCP_SOCKETS=2 \
        strace -f -qq -yy -e trace=listen -o "$D/trace" \
        "$KOLORUN" -n 3 "${KOLORUN%run}-perf" all_reduce -b 64K -e 64K -n 1 -w 0 >/dev/null
    sed -n 's/.*listen([0-9]*<TCP.*:\([0-9]*\)\]*>, .*= 0$/\1/p' "$D/trace" >"$D/ports"
    [ "$(wc -l <"$D/ports")" -ge 4 ] # the store's, and each rank's
    while read -r port; do
        [ "$port" -ge "$low" ]
        [ "$port" -le $((low + 15)) ]
    done <"$D/ports"
}

@test "ranks say by what they have understood who they are" {
    local perf=${KOLORUN%run}-perf
    export KOLO_DEBUG=info
    run "$KOLORUN" -n 2 --no-tag "$perf" barrier -n 1 -w 0
    [ "$status" -eq 0 ]
    [[ "$output" == *"rank 0 of 2 by RANK (torchrun or kolorun), local rank 0 of 2, node 0, 1 node, job "* ]]
    [[ "$output" == *"; rank 0 serves the store at 127.0.0.1:"*" by MASTER_ADDR"* ]]
    RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=$(KOLO_DEBUG='' "$KOLORUN" printenv MASTER_PORT) \
        run "$perf" barrier -n 1 -w 0
    [[ "$output" == *"rank 0 of 1 by RANK (torchrun or kolorun); rank 0 serves the store at 127.0.0.1:"* ]]
    KOLO_RANK=0 KOLO_SIZE=1 run "$perf" barrier -n 1 -w 0
    [[ "$output" == *"rank 0 of 1 by KOLO_RANK (set by hand); it is alone"* ]]
}

@test "a job at an address of IPv6" {
    grep -q '^0*1 ' /proc/net/if_inet6 2>/dev/null || skip "no IPv6"
    KOLO_TRANSPORT=tcp KOLO_DEBUG=info run "$KOLORUN" -n 2 --master-addr ::1 --no-tag \
        "${KOLORUN%run}-perf" all_reduce -b 64K -e 64K -n 1 -w 0
    [ "$status" -eq 0 ]
    [[ "$output" == *"rank 0 serves the store at ::1:"* ]]
}

@test "an address of IPv6 in brackets, with a port or without; what has no host, or two ports, is refused" {
    run "$KOLORUN" -n 1 --nnodes 2 --node-rank 0 --master-addr "[::1]" --dry-run true
    [[ "$status $output" == "0 "*"MASTER_ADDR=::1 "* ]]
    run "$KOLORUN" -n 1 --nnodes 2 --node-rank 0 --rdzv-endpoint "[::1]:29444" --dry-run true
    [[ "$status $output" == "0 "*"MASTER_ADDR=::1 MASTER_PORT=29444"* ]]
    run "$KOLORUN" -n 1 --nnodes 2 --node-rank 0 --rdzv-endpoint "fe80::1%lo" --dry-run true
    [[ "$status $output" == "0 "*"MASTER_ADDR=fe80::1%lo "* ]]
    run "$KOLORUN" -n 1 --nnodes 2 --node-rank 0 --rdzv-endpoint "::1:29444" true
    [ "$status" -eq 125 ]
    [[ "$output" == *'--rdzv-endpoint is "::1:29444", which is no address of IPv6; one with a port is written [address]:port'* ]]
    run "$KOLORUN" -n 1 --master-addr "" true
    [ "$status" -eq 125 ]
    [[ "$output" == *'--master-addr is "", without a host that can be'* ]]
}

@test "lines keep their rank and their stream" {
    "$KOLORUN" -n 3 sh -c 'echo out$RANK; echo err$RANK >&2' >"$D/out" 2>"$D/err"
    [ "$(sort "$D/out")" = $'[0] out0\n[1] out1\n[2] out2' ]
    [ "$(sort "$D/err")" = $'[0] err0\n[1] err1\n[2] err2' ]
}

@test "one rank's output passes through untouched, several's on request" {
    run "$KOLORUN" -n 1 printf 'a\rb'
    [ "$output" = $'a\rb' ]
    run "$KOLORUN" -n 1 --tag-output echo a
    [ "$output" = "[0] a" ]
    run "$KOLORUN" -n 2 --no-tag echo a
    [ "$output" = $'a\na' ]
}

@test "lines of many ranks are never mixed" {
    "$KOLORUN" -n 4 sh -c 'seq -f "$RANK-%06g-abcdefghijklmnopqrstuvwxyz" 20000' >"$D/out"
    [ "$(wc -l <"$D/out")" -eq 80000 ]
    [ "$(grep -cvE '^\[([0-3])\] \1-[0-9]{6}-abcdefghijklmnopqrstuvwxyz$' "$D/out")" -eq 0 ]
    [ "$(grep '^\[2\]' "$D/out" | cut -d- -f2 | sort -c && echo in order)" = "in order" ]
}

@test "an unfinished line is passed on whole, with a newline" {
    run "$KOLORUN" -n 2 sh -c 'printf a; sleep 0.1; printf b'
    [ "$(sort <<<"$output")" = $'[0] ab\n[1] ab' ]
}

@test "a line longer than 64 KiB comes in pieces and loses nothing" {
    "$KOLORUN" -n 2 sh -c 'head -c 300000 /dev/zero | tr "\0" "$RANK"; echo' >"$D/out"
    [ "$(grep '^\[1\]' "$D/out" | sed 's/^\[1\] //' | tr -d '\n' | wc -c)" -eq 300000 ]
    [ "$(grep -c '^\[1\]' "$D/out")" -eq 5 ]
    [ -z "$(sed -n 's/^\[1\] //p' "$D/out" | tr -d '1\n')" ]
}

@test "of a progress bar the last state is shown, not every redraw" {
    run "$KOLORUN" -n 1 --tag-output sh -c 'for i in $(seq 500); do printf "\r%d%%" $i; done; echo'
    [ "${lines[-1]}" = "[0] 500%" ]
    [ "${#lines[@]}" -lt 100 ]
    run "$KOLORUN" -n 1 --tag-output printf 'a\r\nb\r\r\nc'
    [ "$output" = $'[0] a\n[0] b\n[0] c' ]
}

@test "a slow redraw is shown once a second" {
    run "$KOLORUN" -n 1 --tag-output sh -c 'printf "one\r"; sleep 1.2; printf "two\r"; printf three'
    [ "$output" = $'[0] one\n[0] three' ]
}

@test "rank 0 reads standard input, the others nothing" {
    run "$KOLORUN" -n 2 wc -c <<<"12345"
    [ "$(sort <<<"$output")" = $'[0] 6\n[1] 0' ]
}

@test "a reader who goes away ends the job" {
    "$KOLORUN" -n 2 sh -c 'while :; do echo y; done' 2>"$D/err" | head -n 1 >"$D/out" || true
    [ "${PIPESTATUS[0]}" -eq 0 ] || true
    grep -q y "$D/out"
    [ ! -s "$D/err" ] || ! grep -q ' pid ' "$D/err"
}

@test "output that cannot be written ends the job and is said" {
    [ -w /dev/full ] || skip "no /dev/full"
    run sh -c '"$0" -n 2 sh -c "echo y; exec sleep 1000" >/dev/full' "$KOLORUN"
    [ "$status" -eq 125 ]
    [[ "$output" == *"standard output cannot be written: No space left on device"* ]]
}

@test "a slow reader loses nothing of ranks that have ended" {
    "$KOLORUN" -n 2 seq 30000 | { sleep 1; cat; } >"$D/out"
    [ "$(wc -l <"$D/out")" -eq 60000 ]
}

@test "signals are forwarded" {
    local signal
    for signal in INT TERM HUP QUIT USR1 USR2; do
        : >"$D/ready"; : >"$D/got"
        env --default-signal=INT,QUIT "$KOLORUN" -n 2 sh -c '
            trap "echo x >>\"$0/got\"; exit 0" '$signal'
            echo x >>"$0/ready"; while :; do sleep 0.05; done' "$D" 3>&- &
        job=$!
        await_lines "$D/ready" 2
        kill -$signal $job
        wait $job
        [ "$(wc -l <"$D/got")" -eq 2 ] || { echo "SIG$signal was not forwarded"; return 1; }
    done
}

@test "a rank ended by a forwarded signal: 128 + signal" {
    start -n 2 sh -c 'echo $$ >>"$0/pids"; exec sleep 1000' "$D"
    await_lines "$D/pids" 2
    kill -TERM $job
    code=0; wait $job || code=$?
    [ $code -eq 143 ]
}

@test "a second signal kills at once" {
    local signals
    for signals in "INT INT 130" "TERM TERM 143" "INT TERM 143" "HUP INT 130"; do
        read -r first second want <<<"$signals"
        rm -f "$D/pids"
        env --default-signal=INT "$KOLORUN" -n 2 --grace 1000 sh -c '
            trap "" INT TERM HUP; echo $$ >>"$0/pids"; while :; do sleep 0.05; done' "$D" 2>"$D/err" 3>&- &
        job=$!
        await_lines "$D/pids" 2
        kill -$first $job
        sleep 0.3 # two that come at once are one
        while kill -$second $job; do sleep 0.3; done
        code=0; wait $job || code=$?
        [ $code -eq "$want" ] || { echo "$signals: $code"; cat "$D/err"; return 1; }
        [ "$(grep -c SIGKILL "$D/err")" -eq 2 ]
        for pid in $(cat "$D/pids"); do await_gone "$pid"; done
    done
}

@test "two signals that come at once, as by timeout(1), leave ranks their grace" {
    start -n 2 --grace 1000 sh -c '
        trap "sleep 0.5; exit 0" TERM HUP; echo $$ >>"$0/pids"; while :; do sleep 0.05; done' "$D"
    await_lines "$D/pids" 2
    kill -STOP $job
    kill -TERM $job
    kill -HUP $job
    kill -CONT $job
    wait $job
    rm "$D/pids"
    run timeout 1 "$KOLORUN" -n 2 --grace 1000 sh -c '
        trap "sleep 0.5; echo saved; exit 0" TERM; while :; do sleep 0.05; done'
    [ "$(grep -c saved <<<"$output")" -eq 2 ]
}

@test "a rank that does not end by a signal to kolorun is killed after the grace" {
    local signal
    for signal in "INT 130" "TERM 143" "HUP 129" "QUIT 131"; do
        read -r signal want <<<"$signal"
        rm -f "$D/pids"
        env --default-signal=INT,QUIT "$KOLORUN" -n 3 --grace 0.5 sh -c '
            [ $RANK = 1 ] || trap "" INT TERM HUP QUIT
            [ $RANK != 1 ] || trap "exit 0" INT TERM HUP QUIT
            echo $$ >>"$0/pids"; while :; do sleep 0.05; done' "$D" >"$D/out" 2>"$D/err" 3>&- &
        job=$!
        await_lines "$D/pids" 3
        kill -$signal $job
        code=0; wait $job || code=$?
        [ $code -eq "$want" ] || { echo "$signal: $code"; cat "$D/err"; return 1; }
        grep -qx "kolorun: ranks 0, 2 have not ended within 0.5 s (--grace) of SIG$signal; killing them" "$D/err"
        [ "$(grep -c 'SIGKILL .* stopped' "$D/err")" -eq 2 ]
    done
}

@test "after a signal one grace counts for all, whatever fails meanwhile" {
    start -n 2 --grace 1.5 sh -c '
        [ $RANK = 0 ] || trap "sleep 1; exit 3" TERM
        [ $RANK = 1 ] || trap "" TERM
        echo $$ >>"$0/pids"; while :; do sleep 0.05; done' "$D"
    await_lines "$D/pids" 2
    kill -TERM $job
    code=0; wait $job || code=$?
    [ $code -eq 3 ]
    grep -qx "kolorun: rank 0 has not ended within 1.5 s (--grace) of SIGTERM; killing it" "$D/err"
}

@test "signals that end nothing begin no grace" {
    start -n 1 --grace 0.1 sh -c 'trap "" USR1; echo $$ >"$0/pids"; sleep 0.2; sleep 0.2; sleep 0.2' "$D"
    await_lines "$D/pids" 1
    kill -USR1 $job
    wait $job
}

@test "a rank that is killed ends the job" {
    start -n 3 sh -c 'echo $$ >>"$0/pids"; exec sleep 1000' "$D"
    await_lines "$D/pids" 3
    kill -KILL "$(head -n 1 "$D/pids")"
    code=0; wait $job || code=$?
    [ $code -eq 137 ]
    grep -q 'SIGKILL .* first' "$D/err"
    for pid in $(cat "$D/pids"); do await_gone "$pid"; done
}

@test "a rank that ignores SIGTERM is killed after the grace" {
    run "$KOLORUN" -n 2 --grace 0.3 sh -c '
        if [ $RANK = 1 ]; then until [ -e "$0/deaf" ]; do sleep 0.05; done; exit 5; fi
        trap "" TERM; : >"$0/deaf"; while :; do sleep 0.05; done' "$D"
    [ "$status" -eq 5 ]
    [[ "$output" == *"kolorun: rank 0 has not ended within 0.3 s (--grace) of SIGTERM; killing it"* ]]
    [[ "$output" == *"SIGKILL"*"stopped"* ]]
}

@test "children of ranks are stopped with them" {
    run "$KOLORUN" -n 2 sh -c '
        if [ $RANK = 1 ]; then until [ -e "$0/pid" ]; do sleep 0.05; done; exit 5; fi
        sleep 1000 & echo $! >"$0/p" && mv "$0/p" "$0/pid"; wait' "$D"
    [ "$status" -eq 5 ]
    await_gone "$(cat "$D/pid")"
}

@test "SIGKILL of kolorun itself leaves no rank" {
    start -n 3 sh -c 'echo $$ >>"$0/pids"; exec sleep 1000' "$D"
    await_lines "$D/pids" 3
    kill -KILL $job
    wait $job || true
    left_over=1
    for pid in $(cat "$D/pids"); do await_gone "$pid"; done
}

@test "--timeout ends the job: 124" {
    run "$KOLORUN" -n 2 --timeout 0.3 sleep 1000
    [ "$status" -eq 124 ]
    [[ "$output" == *"ran past its limit of 0.3 s"* ]]
    run "$KOLORUN" -n 2 --timeout 1000 true
    [ "$status" -eq 0 ]
    [ -z "$output" ]
}

# wait_in_vain RANKS TEXT: rank 1 does not join; how long the others take to wait depends on the machine.
wait_in_vain() {
    local limit
    for limit in 1 5 30; do
        run "$KOLORUN" -n $1 --timeout $limit sh -c '[ $RANK != 1 ] || exec sleep 1000; exec "$JOIN"'
        [ "$status" -eq 124 ]
        [[ "$output" != *"ran past its limit of $limit s; stopping it. $2 for others to join"$'\n'* ]] || return 0
    done
    echo "$output" && return 1
}

@test "--timeout says who still waits for others to join" {
    export JOIN=${KOLORUN%/*}/06_all_reduce KOLO_TIMEOUT_MS=600000
    wait_in_vain 2 "Rank 0 waits"
    wait_in_vain 3 "Ranks 0, 2 wait"
    run "$KOLORUN" -n 2 --timeout 0.1 sleep 1000
    [[ "$output" == *"; stopping it"$'\n'* ]]
}

@test "a grandchild that keeps the pipe open does not hold the job" {
    run timeout 60 "$KOLORUN" -n 2 sh -c 'sleep 100 & echo $! >>"$0/pids"; echo said' "$D"
    kill $(cat "$D/pids")
    [ "$status" -eq 0 ]
    [ "$(sort <<<"$output")" = $'[0] said\n[1] said' ]
}

@test "a grandchild that never stops talking does not hold the job" {
    timeout 60 "$KOLORUN" -n 2 sh -c 'yes & echo $! >>"$0/pids"; echo said$RANK' "$D" >"$D/out" 3>&-
    code=$?
    kill $(cat "$D/pids") 2>/dev/null || true
    [ $code -eq 0 ]
    [ "$(grep -c said "$D/out")" -eq 2 ]
}

# Makes system calls of kolorun's own fail: inject "pipe2:error=EMFILE:when=2" ARGUMENT...
inject() {
    strace -qq -o /dev/null -e trace=none -e inject=getpid:error=ENOSYS true 2>/dev/null ||
        skip "no strace that can inject"
    local what=$1
    shift
    # LeakSanitizer cannot work under strace.
    ASAN_OPTIONS=detect_leaks=0 run strace -qq -o /dev/null -e "trace=${what%%:*}" \
        -e "inject=$what" "$KOLORUN" "$@"
}

@test "without pidfd_open it works the same by SIGCHLD" {
    inject pidfd_open:error=ENOSYS -n 3 sh -c '[ $RANK != 1 ] || exit 6; exec sleep 1000'
    [ "$status" -eq 6 ]
    inject pidfd_open:error=ENOSYS:when=2 -n 3 sh -c '[ $RANK != 1 ] || exit 6; exec sleep 1000'
    [ "$status" -eq 6 ]
    inject pidfd_open:error=ENOSYS -n 3 echo ok
    [ "$status" -eq 0 ]
    [ "$(grep -c ok <<<"$output")" -eq 3 ]
}

@test "without IPv6 the port is one of IPv4" {
    inject socket:error=EAFNOSUPPORT:when=1 -n 2 sh -c '[ $MASTER_PORT -gt 0 ]'
    [ "$status" -eq 0 ]
}

@test "what the system refuses is said: 125, and no rank stays" {
    local what
    for what in clone:error=EAGAIN:when=2 pipe2:error=EMFILE:when=1 pipe2:error=EMFILE:when=2 pipe2:error=EMFILE:when=7 \
        signalfd4:error=EMFILE epoll_create1:error=EMFILE bind:error=EACCES \
        /^p?poll$:error=ENOMEM:when=1; do
        inject $what -n 3 sh -c 'echo $$ >>"$0/pids"; exec sleep 1000' "$D"
        [ "$status" -eq 125 ] || { echo "$what: $status"; return 1; }
        [[ "$output" == *"kolorun: "*": "* ]]
    done
    for pid in $(cat "$D/pids" 2>/dev/null); do await_gone "$pid"; done
}

@test "few open files are allowed: as many ranks as these suffice for" {
    (ulimit -n 100 && timeout -k 1 30 "$KOLORUN" -n 60 --no-tag true) # two streams each are closed
    run bash -c 'ulimit -n 100; "$0" -n 60 true' "$KOLORUN"
    [ "$status" -ne 0 ]
    [[ "$output" == *"Too many open files"* ]]
}

@test "kolorun may have more open files than a rank" {
    [ "$(ulimit -Hn)" = unlimited ] || [ "$(ulimit -Hn)" -ge 1000 ] || skip "the limit is low"
    run bash -c 'ulimit -Sn 100; "$0" -n 60 sh -c "ulimit -n"' "$KOLORUN"
    [ "$status" -eq 0 ]
    [ "$(grep -c '] 100$' <<<"$output")" -eq 60 ]
}

# Runs kolorun on a terminal of its own and types the text, once it has said "ready".
on_terminal() {
    command -v python3 >/dev/null || skip "no python3"
    run timeout 60 python3 -c '
import os, pty, sys
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[2], sys.argv[2:])
said = b""
typed = False
while True:
    try: more = os.read(fd, 4096)
    except OSError: break
    if not more: break
    said += more
    if b"ready" in said and not typed:
        os.write(fd, sys.argv[1].encode().decode("unicode_escape").encode()); typed = True
sys.stdout.write(said.decode().replace("\r", ""))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))' "$@"
}

@test "a single rank may talk to the terminal" {
    on_terminal 'hello\n' "$KOLORUN" -n 1 sh -c 'echo ready; read a; echo "got $a"'
    [ "$status" -eq 0 ]
    [ "${lines[-1]}" = "got hello" ]
}

@test "of Ctrl-C a rank hears once, and nobody is blamed" {
    on_terminal '\x03' "$KOLORUN" -n 1 sh -c 'trap "echo heard; heard=1" INT
        echo ready; until [ "$heard" ]; do sleep 0.05; done; sleep 0.3'
    [ "$status" -eq 0 ]
    [ "$(grep -c heard <<<"$output")" -eq 1 ]
    on_terminal '\x03' "$KOLORUN" -n 2 sh -c 'echo x >>"$0/up"
        until [ "$(wc -l <"$0/up")" -ge 2 ]; do sleep 0.05; done; echo ready; exec sleep 1000' "$D"
    [ "$status" -eq 130 ]
    [[ "$output" != *first* ]]
}

@test "a terminal that goes away takes the ranks with it" {
    command -v python3 >/dev/null || skip "no python3"
    for n in 1 2; do
        timeout 60 python3 -c '
import os, pty, sys
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
while b"ready" not in os.read(fd, 4096): pass' \
            "$KOLORUN" -n $n sh -c 'echo $$ >>"$0/pids"; echo ready; exec sleep 1000' "$D"
    done
    for pid in $(cat "$D/pids"); do await_gone "$pid"; done
}

# In a shell, whose end would end them too, on the same terminal.
@test "a single rank at the terminal leaves nothing behind when it fails" {
    cat >"$D/rank" <<'END'
sleep 1000 & echo $! >>"$0.pids"
sh -c 'trap "" TERM HUP; sleep 1000 & echo $$ $! >>"$0"; wait' "$0.pids" &
until [ "$(wc -w <"$0.pids")" -eq 3 ]; do sleep 0.05; done
[ "$1" = stays ] || exit "$1"
exec sleep 1000
END
    cat >"$D/shell" <<'END'
rm -f "$0/rank.pids"
"$@"
echo "status $?"
for pid in $(cat "$0/rank.pids"); do ! kill -KILL $pid 2>/dev/null || echo "left $pid"; done
END
    on_terminal '' /bin/sh -c '. "$0/shell"' "$D" "$KOLORUN" -n 1 sh "$D/rank" 3
    [[ "$output" == *"status 3"* ]]
    [[ "$output" != *left* ]]
    on_terminal '' /bin/sh -c '. "$0/shell"' "$D" "$KOLORUN" -n 1 --timeout 1 sh "$D/rank" stays
    [[ "$output" == *"status 124"* ]]
    [[ "$output" != *left* ]]
    on_terminal '' /bin/sh -c '. "$0/shell"' "$D" "$KOLORUN" -n 1 sh "$D/rank" 0
    [[ "$output" == *"status 0"* ]]
    [ "$(grep -c left <<<"$output")" -eq 3 ] # as it wished
}

# One that ends meanwhile is reaped; what kolorun has not started itself is let be.
@test "a single rank at the terminal may have orphans" {
    on_terminal '' "$KOLORUN" -n 1 sh -c '(sh -c "exec true" & echo $! >"$0/pid")
        while [ -e "/proc/$(cat "$0/pid")" ]; do sleep 0.05; done; echo reaped' "$D"
    [ "$status" -eq 0 ]
    [[ "$output" == *reaped* ]]
    cat >"$D/shell" <<'END'
sh -c 'sleep 1000 & echo $! >"$0/pid"; exec "$@"' "$0" "$@"
echo "status $?"
! kill -KILL "$(cat "$0/pid")" || echo spared
END
    on_terminal '' /bin/sh -c '. "$0/shell"' "$D" "$KOLORUN" -n 1 sh -c 'exit 4'
    [[ "$output" == *"status 4"* ]]
    [[ "$output" == *spared* ]]
}

@test "several ranks do not read the terminal" {
    on_terminal '' "$KOLORUN" -n 2 sh -c 'read a || echo nothing'
    [ "$(grep -c nothing <<<"$output")" -eq 2 ]
}

@test "ignored SIGCHLD and SIGPIPE, closed descriptors: nothing changes" {
    run env --ignore-signal=CHLD,PIPE "$KOLORUN" -n 2 sh -c 'exit 4'
    [ "$status" -eq 4 ]
    "$KOLORUN" -n 2 sh -c 'cat; echo out' <&- 2>&- >"$D/out"
    [ "$(sort "$D/out")" = $'[0] out\n[1] out' ]
}

@test "ranks inherit no descriptor of kolorun's" {
    run sh -c 'ls /proc/$$/fd; :' 3>&-
    direct=$output
    run "$KOLORUN" -n 2 --tag-output sh -c '[ $RANK = 0 ] || ls /proc/$$/fd; :' 3>&-
    [ "${output//"[1] "/}" = "$direct" ]
}

# ---- restarts

# A rank that fails in the attempts before $1, for sh -c.
FAILS='echo "$TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS" >>"$0/attempts$RANK"
    if [ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT -lt $1 ]; then
        until [ "$(cat "$0"/attempts[02] | wc -l)" -eq $((2 * TORCHELASTIC_RESTART_COUNT + 2)) ]; do
            sleep 0.05; done
        exit 3
    fi
    [ $TORCHELASTIC_RESTART_COUNT -ge $1 ] || exec sleep 1000'

@test "--max-restarts starts all ranks again until they end well" {
    run "$KOLORUN" -n 3 --max-restarts 5 sh -c "$FAILS" "$D" 2
    [ "$status" -eq 0 ]
    for rank in 0 1 2; do
        [ "$(cat "$D/attempts$rank")" = $'0 of 5\n1 of 5\n2 of 5' ]
    done
    [ "$(grep -c 'starting all ranks again, restart [12] of 5' <<<"$output")" -eq 2 ]
    [ "$(grep -c ' first$' <<<"$output")" -eq 2 ]
}

@test "restarts come to an end, with the last attempt's exit code" {
    run "$KOLORUN" -q -n 2 --max-restarts 2 sh -c 'echo x; exit $((TORCHELASTIC_RESTART_COUNT + 10))'
    [ "$status" -eq 12 ]
    [ "$(grep -c x <<<"$output")" -le 6 ]
    run "$KOLORUN" --max-restarts 2 sh -c 'echo x >>"$0/runs"; exit 1' "$D"
    [ "$(wc -l <"$D/runs")" -eq 3 ]
}

@test "there is no restart after a signal, a time-out, or for a program that is not there" {
    start -n 2 --max-restarts 9 sh -c 'echo $$ >>"$0/pids"; exec sleep 1000' "$D"
    await_lines "$D/pids" 2
    kill -TERM $job
    code=0; wait $job || code=$?
    [ $code -eq 143 ]
    run "$KOLORUN" -n 2 --max-restarts 9 --timeout 0.3 sleep 1000
    [ "$status" -eq 124 ]
    [[ "$output" != *again* ]]
    run -127 "$KOLORUN" -n 2 --max-restarts 9 /nonexistent/prog
    [[ "$output" != *again* ]]
}

@test "--timeout counts all attempts together" {
    run timeout 60 "$KOLORUN" -n 1 --max-restarts 1000000 --timeout 1 sh -c 'sleep 0.1; exit 1'
    [ "$status" -eq 124 ]
    [[ "$output" == *"ran past its limit of 1 s"* ]]
}

@test "children of an attempt do not live into the next" {
    run "$KOLORUN" -q -n 1 --max-restarts 1 sh -c '
        [ $TORCHELASTIC_RESTART_COUNT = 0 ] || exit 0
        sleep 1000 & echo $! >"$0/pid"; exit 1' "$D"
    [ "$status" -eq 0 ]
    await_gone "$(cat "$D/pid")"
}

@test "MASTER_PORT stays held, and can be served again in the next attempt" {
    command -v python3 >/dev/null || skip "no python3"
    run "$KOLORUN" -q -n 1 --max-restarts 1 python3 -c '
import os, socket, sys
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("", int(os.environ["MASTER_PORT"]))); s.listen(1)
c = socket.create_connection(("127.0.0.1", int(os.environ["MASTER_PORT"]))); a = s.accept()
print("served", flush=True); os._exit(1 - int(os.environ["TORCHELASTIC_RESTART_COUNT"]))'
    [ "$status" -eq 0 ]
    [ "$output" = $'served\nserved' ]
}

# ---- logs

@test "--log-dir, --redirects and --tee: files for each attempt and rank" {
    local logs
    run --separate-stderr "$KOLORUN" -q -n 2 --log-dir "$D/logs/deep" --run-id a/b -r 0:1 -t 1:3 \
        --max-restarts 1 sh -c 'echo out$RANK; echo err$RANK >&2; exit $((TORCHELASTIC_RESTART_COUNT == 0))'
    [ "$status" -eq 0 ]
    logs=("$D"/logs/deep/kolorun_a_b_*)
    [ "$(cat "$logs/attempt_1/0/stdout.log")" = out0 ]
    [ "$(cat "$logs/attempt_1/1/stdout.log" "$logs/attempt_1/1/stderr.log")" = $'out1\nerr1' ]
    [ ! -e "$logs/attempt_1/0/stderr.log" ]
    [ -d "$logs/attempt_0/0" ]
    grep -qx '\[1\] out1' <<<"$output"
    grep -qx '\[0\] err0' <<<"$stderr"
    ! grep -q out0 <<<"$output" || false
}

@test "--tee keeps the bytes as they are, also of one rank" {
    run "$KOLORUN" -n 1 --log-dir "$D/logs" -t 1 printf 'a\rb\0c\nd'
    printf 'a\rb\0c\nd' | cmp - "$D"/logs/*/attempt_0/0/stdout.log
    [[ "${lines[-1]}" == d ]]
}

@test "a log that cannot be written is said, and the job goes on" {
    [ -w /dev/full ] || skip "no /dev/full"
    mkdir -p "$D/logs"
    run "$KOLORUN" -n 1 --log-dir "$D/logs" -t 3 sh -c '
        rm -f "${TORCHELASTIC_ERROR_FILE%/*}/stdout.log"; echo fine'
    [ "$status" -eq 0 ]
    [[ "$output" == *fine* ]]
    run "$KOLORUN" -n 1 --log-dir /proc/no true
    [ "$status" -eq 125 ]
    [[ "$output" == "kolorun: no folder for logs can be made below /proc/no: "*"; --log-dir says where" ]]
    TMPDIR=/proc/nope run "$KOLORUN" -n 1 -t 1 true
    [ "$status" -eq 125 ]
    [[ "$output" == *" below /proc/nope: "* ]]
}

@test "standard error says once where logs are" {
    run --separate-stderr "$KOLORUN" -n 2 -t 1 --max-restarts 1 --log-dir "$D/logs" true
    [ "$status" -eq 0 ]
    [ "$stderr" = "kolorun: logs are in $(echo "$D"/logs/kolorun_*)" ]
    run --separate-stderr "$KOLORUN" -n 2 -r 3 true
    [[ "$stderr" =~ ^kolorun:\ logs\ are\ in\ ($TMPDIR/kolorun_[^ ]*)$ ]]
    rm -r "${BASH_REMATCH[1]}"
    run --separate-stderr "$KOLORUN" -n 2 -q --log-dir "$D/quiet" true
    [ -z "$stderr" ]
    [ -d "$D/quiet" ]
}

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

@test "who ends before he has joined those who wait for him fails the job at once" {
    export JOIN=${KOLORUN%/*}/06_all_reduce KOLO_TIMEOUT_MS=600000
    for early in 0 2; do
        run timeout 60 "$KOLORUN" -n 3 sh -c "[ \$RANK = $early ] || exec \"\$JOIN\"; sleep 0.2"
        [ "$status" -eq 1 ]
        [[ "$output" == *"kolorun: rank $early ended with exit code 0, and rank "[012]" waits for it to join; stopping 2 others"* ]]
        grep -qE "^kolorun: +$early .* exit code 0 .* first \(others waited for it to join\)$" <<<"$output"
        [ "$(grep -cE 'SIGTERM .* stopped$' <<<"$output")" -eq 2 ]
    done
    # those who come later
    run timeout 60 "$KOLORUN" -n 2 sh -c '[ $RANK = 0 ] || exit 0; sleep 0.5; exec "$JOIN"'
    [ "$status" -eq 1 ]
    [[ "$output" == *"rank 1 ended with exit code 0, and rank 0 waits for it to join"* ]]
    # a second time
    run timeout 60 "$KOLORUN" -n 3 sh -c '"$JOIN"; [ $RANK = 1 ] || exec "$JOIN"'
    [ "$status" -eq 1 ]
    [[ "$output" == *"rank 1 ended with exit code 0, and rank "[02]" waits for it to join"* ]]
    run timeout 60 "$KOLORUN" -q -n 2 --max-restarts 1 sh -c '[ "$RANK $KOLORUN_ATTEMPT" = "1 0" ] || exec "$JOIN"'
    [ "$status" -eq 0 ]
}

@test "nobody misses a rank that he does not wait for" {
    export JOIN=${KOLORUN%/*}/06_all_reduce
    run --separate-stderr "$KOLORUN" -n 3 sh -c '[ $RANK != 1 ] || exit 0; sleep 0.3'
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    # another world than kolorun's
    run --separate-stderr "$KOLORUN" -n 3 sh -c '[ $RANK != 2 ] || exit 0; sleep 0.3; WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 exec "$JOIN"'
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    for i in 1 2 3 4 5; do
        run --separate-stderr "$KOLORUN" -n 4 sh -c '"$JOIN" && exec "$JOIN"'
        [ "$status" -eq 0 ]
        [ -z "$stderr" ]
    done
}

@test "the table begins with the rank that failed first" {
    run "$KOLORUN" -n 4 sh -c '[ $RANK != 2 ] || exit 42; exec sleep 1000'
    [[ "$(grep -A1 'ended with  ' <<<"$output" | tail -n 1)" =~ ^kolorun:\ +2\ .*first$ ]]
    [ "$(grep -c '^kolorun:  *[0-3]  *[0-9]* ' <<<"$output")" -eq 4 ]
}

@test "without a place for temporary files the job runs all the same" {
    TMPDIR=/proc/no run "$KOLORUN" -n 2 --no-tag sh -c 'echo "${TORCHELASTIC_ERROR_FILE-none}"'
    [ "$status" -eq 0 ]
    [ "$output" = $'none\nnone' ]
}

# ---- what is only said

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

@test "torchrun's command lines for one machine are understood" {
    run --separate-stderr "$KOLORUN" --nnodes 1:1 --nproc_per_node 2 --rdzv_backend c10d --rdzv_endpoint localhost:0 \
        --rdzv_id x --max_restarts 0 --no_python --log_dir "$D/l" --no-tag sh -c 'echo $MASTER_ADDR'
    [ "$status" -eq 0 ]
    [ "$output" = $'localhost\nlocalhost' ]
}

# ---- several machines that agree: here, all of them on this one

# Starts machine K of $machines in the background; its output is in $D/outK and its pid in jobs[K].
machine() {
    local k=$1
    shift
    timeout 100 "$KOLORUN" -n 2 --nnodes "$machines" "$@" >"$D/out$k" 2>&1 3>&- &
    jobs[k]=$!
}

# A port that is free now.
free_port() {
    "$KOLORUN" -n 1 sh -c 'echo $MASTER_PORT'
}

@test "machines that are not numbered number themselves" {
    machines=3 port=$(free_port)
    for k in 0 1 2; do
        machine $k --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:$port --no-tag sh -c '
            echo $GROUP_RANK/$GROUP_WORLD_SIZE $RANK/$WORLD_SIZE $MASTER_ADDR:$MASTER_PORT'
    done
    for k in 0 1 2; do wait ${jobs[k]}; done
    [ "$(cat "$D"/out* | cut -d' ' -f1,2 | sort)" = "$(for r in 0 1 2 3 4 5; do echo $((r / 2))/3 $r/6; done)" ]
    [ "$(cat "$D"/out* | cut -d' ' -f3 | sort -u | wc -l)" -eq 1 ]
    grep -q 127.0.0.1: "$D/out0"
}

@test "ranks of machines that meet find machine 0 at its --local-addr" {
    machines=2 port=$(free_port)
    for k in 0 1; do
        machine $k --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:$port --local-addr 127.0.0.2 --no-tag sh -c 'echo $MASTER_ADDR'
    done
    for k in 0 1; do wait ${jobs[k]}; done
    [ "$(cat "$D"/out* | sort | uniq -c | tr -s ' ')" = " 4 127.0.0.2" ]
}

@test "a kolorun that is refused leaves no trace in the running job" {
    local how port
    machines=2
    for how in static c10d; do
        port=$(free_port)
        rm -f "$D"/pids "$D/go"
        for k in 0 1; do
            machine $k --rdzv-backend $how $([ $how = c10d ] || echo --node-rank $k) --rdzv-endpoint 127.0.0.1:$port \
                --max-restarts 3 sh -c '
                echo $$ >>"$0/pids"
                until [ -e "$0/go" ]; do sleep 0.05; done
                [ $RANK != 2 ] || [ $TORCHELASTIC_RESTART_COUNT != 0 ] || exit 3' "$D"
        done
        await_lines "$D/pids" 4
        run timeout 60 "$KOLORUN" -n 2 --nnodes 2 --rdzv-backend $how $([ $how = c10d ] || echo --node-rank 1) \
            --rdzv-endpoint 127.0.0.1:$port --max-restarts 3 true
        [ "$status" -eq 125 ]
        [[ "$output" == "kolorun: "*" come already: "*"--rdzv-id"* ]]
        : >"$D/go"
        for k in 0 1; do wait ${jobs[k]} || { cat "$D/out$k"; return 1; }; done
        grep -q 'starting all ranks again, restart 1 of 3' "$D/out0"
    done
}

@test "under c10d one machine may say its number, and the others take those that are free" {
    local port
    machines=2 port=$(free_port)
    machine 0 --node-rank 1 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:$port --no-tag sh -c 'echo $GROUP_RANK'
    machine 1 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:$port --no-tag sh -c 'echo $GROUP_RANK'
    for k in 0 1; do wait ${jobs[k]}; done
    [ "$(cat "$D/out0")" = $'1\n1' ]
    [ "$(cat "$D/out1")" = $'0\n0' ]
}

@test "a machine that was started with other options is refused, and the job waits for a right one" {
    machines=2 port=$(free_port)
    bare_machine 0 true
    await_signals ${jobs[0]} # from here on it has been the first
    run timeout 60 "$KOLORUN" -n 3 --nnodes 2 --node-rank 1 --rdzv-endpoint 127.0.0.1:$port --max-restarts 9 true
    [ "$status" -eq 125 ]
    [[ "$output" == *"this machine has -n 3 --nnodes 2 --max-restarts 9, but the first to come has -n 2 "* ]]
    bare_machine 1 true
    ended 0 0 1
}

@test "a failure on one machine starts the ranks of all again" {
    machines=2 port=$(free_port)
    for k in 0 1; do
        machine $k --node-rank $k --master-addr 127.0.0.1 --master-port $port --max-restarts 2 sh -c '
            echo $TORCHELASTIC_RESTART_COUNT $MASTER_PORT >>"$0/attempts$RANK"
            [ $TORCHELASTIC_RESTART_COUNT -lt 2 ] || exit 0
            if [ $RANK = $((TORCHELASTIC_RESTART_COUNT + 2)) ]; then
                until [ "$(cat "$0"/attempts* | wc -l)" -ge $((4 * TORCHELASTIC_RESTART_COUNT + 4)) ]; do
                    sleep 0.05; done
                exit 3
            fi
            [ $RANK != 0 ] || exit 0
            exec sleep 1000' "$D"
    done
    for k in 0 1; do wait ${jobs[k]}; done
    for rank in 0 1 2 3; do [ "$(wc -l <"$D/attempts$rank")" -eq 3 ]; done
    grep -q 'machine 1: rank 2 ended with exit code 3; stopping' "$D/out0"
    grep -q 'starting all ranks again, restart 2 of 2' "$D/out0"
}

@test "the last failure of one machine is the exit code of all" {
    machines=2 port=$(free_port)
    for k in 0 1; do
        machine $k --node-rank $k --master-addr 127.0.0.1 --master-port $port --max-restarts 1 sh -c '
            [ $RANK != 3 ] || exit 9; exec sleep 1000'
    done
    for k in 0 1; do
        code=0; wait ${jobs[k]} || code=$?
        [ $code -eq 9 ]
    done
}

@test "a machine that is stopped ends the job on all of them, without another attempt" {
    machines=2 port=$(free_port)
    for k in 0 1; do
        machine $k --node-rank $k --master-addr 127.0.0.1 --master-port $port --max-restarts 9 sh -c '
            echo $$ >>"$0/pids"; exec sleep 1000' "$D"
    done
    await_lines "$D/pids" 4
    kill -TERM ${jobs[1]}
    for k in 0 1; do
        code=0; wait ${jobs[k]} || code=$?
        [ $code -eq 143 ]
    done
    grep -q 'machine 1: ' "$D/out0"
    [ "$(wc -l <"$D/pids")" -eq 4 ]
}

@test "the loss of the machine that serves the others ends them" {
    machines=2 port=$(free_port)
    for k in 0 1; do
        "$KOLORUN" -n 1 --nnodes 2 --node-rank $k --master-addr 127.0.0.1 --master-port $port \
            --max-restarts 9 sh -c 'echo $$ >>"$0/pids"; exec sleep 1000' "$D" >"$D/out$k" 2>&1 3>&- &
        jobs[k]=$!
    done
    await_lines "$D/pids" 2
    kill -KILL ${jobs[0]}
    left_over=1
    code=0; wait ${jobs[1]} || code=$?
    [ $code -eq 125 ]
    grep -q "the kolorun that serves all machines, at 127.0.0.1:$port, has gone; stopping 1 rank here" "$D/out1"
}

# The same without timeout between, for signals: jobs[K] is kolorun itself.
bare_machine() {
    local k=$1
    shift
    env --default-signal=INT "$KOLORUN" -n 2 --nnodes "$machines" --node-rank "$k" --master-addr 127.0.0.1 \
        --master-port "$port" --max-restarts 9 "$@" >"$D/out$k" 2>&1 3>&- &
    jobs[k]=$!
}

# ended CODE K...: these machines end by themselves, with that code.
ended() {
    local want=$1 k code
    shift
    for k; do
        await_gone "${jobs[k]}" || { kill -KILL "${jobs[@]}"; cat "$D/out$k"; return 1; }
        code=0; wait "${jobs[k]}" || code=$?
        [ $code -eq "$want" ] || { echo "machine $k: $code"; cat "$D/out$k"; return 1; }
    done
}

# Waits until kolorun reads signals itself: from then on none is lost before it meets the others.
await_signals() {
    local i
    for i in $(seq 600); do # SIGUSR1, bit 10, is blocked
        (((0x$(sed -n 's/^SigBlk:\s*//p' "/proc/$1/status") >> 9) & 1)) && return
        sleep 0.05
    done
    echo "kolorun $1 never blocked its signals" && return 1
}

@test "a second SIGINT on one machine ends the job on all" {
    machines=2 port=$(free_port)
    for k in 0 1; do
        bare_machine $k --grace 1000 sh -c '
            [ $GROUP_RANK = 0 ] || trap "" INT TERM
            echo $$ >>"$0/pids"; while :; do sleep 0.05; done' "$D"
    done
    await_lines "$D/pids" 4
    while kill -INT ${jobs[1]}; do sleep 0.2; done
    ended 130 1 0
    grep -q 'machine 1: it was told to end twice; stopping 2 ranks here' "$D/out0"
}

@test "a machine that is told to end after a failure is not waited for" {
    machines=2 port=$(free_port)
    for k in 0 1; do
        bare_machine $k --grace 1000 sh -c '
            echo $$ >>"$0/pids"
            case $RANK in
            2) until [ "$(cat "$0/pids" | wc -l)" -ge 4 ] && [ -e "$0/trapped" ]; do sleep 0.05; done; exit 3 ;;
            3) n=0; trap "n=\$((n + 1))" TERM; : >"$0/trapped"; while [ $n -lt 2 ]; do sleep 0.05; done ;;
            *) exec sleep 1000 ;;
            esac' "$D"
    done
    await_text "$D/out0" 'starting all ranks again, restart 1 of 9' # from here on it waits for machine 1
    kill -TERM ${jobs[1]}
    ended 3 1 0
    grep -q 'machine 1 has left, so there is no further attempt' "$D/out0"
}

@test "a machine that is told to end while all meet ends the others" {
    machines=3 port=$(free_port)
    for k in 0 1; do bare_machine $k sh -c 'exec sleep 1000'; done
    await_signals ${jobs[0]}
    await_signals ${jobs[1]}
    kill -TERM ${jobs[1]}
    ended 143 1 0
    grep -q 'kolorun: it was told to end' "$D/out1"
    grep -q 'kolorun: machine 1: it was told to end' "$D/out0"
}

@test "signals that are for ranks do not disturb a meeting" {
    machines=2 port=$(free_port)
    bare_machine 0 true
    await_signals ${jobs[0]}
    kill -USR1 ${jobs[0]}
    kill -USR2 ${jobs[0]}
    bare_machine 1 true
    ended 0 0 1
}

@test "--timeout counts while machines meet" {
    run timeout 60 "$KOLORUN" --nnodes 2 --node-rank 0 --max-restarts 1 --timeout 0.3 \
        --master-addr 127.0.0.1 --master-port "$(free_port)" true
    [ "$status" -eq 124 ]
    [[ "$output" == *"the job ran past its limit of 0.3 s before all machines had met"* ]]
}

@test "--timeout counts while a machine waits for the one that serves" {
    run timeout 60 "$KOLORUN" --nnodes 2 --node-rank 1 --max-restarts 1 --timeout 0.3 \
        --master-addr 127.0.0.1 --master-port "$(free_port)" true
    [ "$status" -eq 124 ]
    [[ "$output" == *"the job ran past its limit of 0.3 s before the other machines were reached"* ]]
}

@test "a machine that serves the others and does not answer ends them" {
    machines=2 port=$(free_port)
    for k in 0 1; do bare_machine $k sh -c 'echo $$ >>"$0/pids"; exec sleep 1000' "$D"; done
    await_lines "$D/pids" 4
    kill -STOP ${jobs[0]}
    ended 125 1
    grep -q 'the kolorun that serves all machines, at .*, has not answered for 5 s; stopping 2 ranks here' "$D/out1"
    kill -KILL ${jobs[0]}
    left_over=1
}

# Waits until all $1 ranks have begun, then kills machine 1's kolorun with that signal.
hit_machine_1() {
    await_lines "$D/pids" "$1"
    kill "-$2" "${jobs[1]}"
    left_over=1
}

@test "the loss of a machine that serves nobody ends the job, and names it" {
    local others
    machines=3 port=$(free_port)
    for k in 0 1 2; do bare_machine $k --rdzv-backend c10d --max-restarts 0 sh -c 'echo $$ >>"$0/pids"; exec sleep 1000' "$D"; done
    SECONDS=0
    hit_machine_1 6 KILL
    ended 125 0 2
    [ $SECONDS -lt 25 ] # long before silence would have told it
    for k in 0 2; do
        grep -q "machine 1 ($(hostname), 127.0.0.1) was lost: its kolorun has ended, or its connection; stopping 2 ranks here" \
            "$D/out$k"
        [ "$(grep -c 'was lost' "$D/out$k")" -eq 1 ]
    done
}

@test "what made a rank fail is said too: the loss of a machine that it needed" {
    machines=3 port=$(free_port)
    for k in 0 1 2; do
        bare_machine $k --rdzv-backend c10d --max-restarts 0 sh -c '
            echo $$ >>"$0/pids"; [ $RANK != 2 ] || { echo $$ >"$0/two.new" && mv "$0/two.new" "$0/two"; exec sleep 1000; }
            until [ -e "$0/two" ]; do sleep 0.01; done
            while [ -e "/proc/$(cat "$0/two")" ]; do sleep 0.01; done; exit 3' "$D"
    done
    hit_machine_1 6 KILL
    for k in 0 2; do
        await_gone "${jobs[k]}"
        code=0; wait "${jobs[k]}" || code=$?
        [ $code -eq 125 ] || [ $code -eq 3 ]
        [ "$(grep -c 'machine 1 (.*) was lost: its kolorun has ended' "$D/out$k")" -eq 1 ] || { cat "$D/out$k"; return 1; }
    done
}

@test "a machine that says nothing any more is given up" {
    machines=2 port=$(free_port)
    for k in 0 1; do
        bare_machine $k --rdzv-backend c10d --max-restarts 0 --lost-after 4 sh -c 'echo $$ >>"$0/pids"; exec sleep 1000' "$D"
    done
    hit_machine_1 4 STOP
    ended 125 0
    grep -q 'machine 1 (.*) was lost: its kolorun has said nothing for 4 s (--lost-after); stopping 2 ranks here' "$D/out0"
    kill -CONT ${jobs[1]} # it finds that out, and ends too
    ended 125 1
}

@test "a machine that was silent for a while is not given up, nor ever with --lost-after 0" {
    machines=2
    for after in 30 0; do
        port=$(free_port)
        rm -f "$D/pids" "$D/go"
        for k in 0 1; do
            bare_machine $k --rdzv-backend c10d --max-restarts 0 --lost-after $after sh -c '
                echo $$ >>"$0/pids"; until [ -e "$0/go" ]; do sleep 0.05; done' "$D"
        done
        hit_machine_1 4 STOP
        sleep 3
        : >"$D/go"
        kill -CONT ${jobs[1]}
        ended 0 0 1
        ! grep -q 'was lost' "$D/out0" || false
    done
}

@test "a machine that serves and was stopped does not take its own absence for the others'" {
    machines=2 port=$(free_port)
    for k in 0 1; do
        bare_machine $k --rdzv-backend c10d --max-restarts 0 --lost-after 4 sh -c '
            echo $$ >>"$0/pids"; until [ -e "$0/go" ]; do sleep 0.05; done' "$D"
    done
    await_lines "$D/pids" 4
    kill -STOP ${jobs[1]}
    sleep 1 # by now all is heard that it has said
    kill -STOP ${jobs[0]}
    sleep 4
    kill -CONT ${jobs[0]}
    sleep 0.2 # it looks, and hears nothing
    kill -CONT ${jobs[1]}
    sleep 0.5
    : >"$D/go"
    ended 0 0 1
}

@test "another kolorun takes a lost machine's place in the next attempt" {
    local how
    machines=2
    for how in KILL STOP; do
        port=$(free_port)
        rm -f "$D"/pids "$D"/go
        for k in 0 1; do
            bare_machine $k --lost-after 4 sh -c '
                echo $$ >>"$0/pids"; until [ -e "$0/go" ]; do sleep 0.05; done; echo $TORCHELASTIC_RESTART_COUNT' "$D"
        done
        hit_machine_1 4 $how
        await_text "$D/out0" 'restart 1 of 9; for the machine that was lost this waits until kolorun is started there again'
        grep -q 'machine 1 (.*) was lost: ' "$D/out0"
        : >"$D/go"
        lost=${jobs[1]}
        bare_machine 1 sh -c 'echo $TORCHELASTIC_RESTART_COUNT' "$D"
        ended 0 0 1
        grep -qx '.1. 1' "$D/out0"
        grep -qx '.2. 1' "$D/out1"
        [ $how = KILL ] || { kill -CONT "$lost" && await_gone "$lost"; }
    done
}

@test "a machine that was given up and is there after all comes to the next attempt" {
    machines=2 port=$(free_port)
    for k in 0 1; do
        bare_machine $k --lost-after 4 sh -c '
            [ $TORCHELASTIC_RESTART_COUNT = 0 ] || exit 0
            echo $$ >>"$0/pids"; exec sleep 1000' "$D"
    done
    hit_machine_1 4 STOP
    await_text "$D/out0" 'restart 1 of 9'
    kill -CONT ${jobs[1]}
    ended 0 0 1
}

@test "one whose place has been taken says so and ends" {
    machines=2 port=$(free_port)
    for k in 0 1; do
        bare_machine $k --lost-after 4 sh -c '
            echo $$ >>"$0/pids"; until [ -e "$0/go" ]; do sleep 0.05; done' "$D"
    done
    hit_machine_1 4 STOP
    await_text "$D/out0" 'restart 1 of 9'
    lost=${jobs[1]}
    mv "$D/out1" "$D/lost"
    bare_machine 1 sh -c 'echo $$ >>"$0/pids"; until [ -e "$0/go" ]; do sleep 0.05; done' "$D"
    await_lines "$D/pids" 8
    kill -CONT "$lost"
    code=0; wait "$lost" || code=$?
    [ $code -eq 125 ]
    grep -q 'kolorun: the other machines have given machine 1 up, and another kolorun has its number' "$D/lost"
    : >"$D/go"
    ended 0 0 1
}

@test "the loss of a machine that others wait with is named" {
    machines=3 port=$(free_port)
    for k in 0 1; do bare_machine $k sh -c 'exec sleep 1000'; done
    await_signals ${jobs[0]}
    await_signals ${jobs[1]}
    sleep 0.5 # it comes to the others
    kill -KILL ${jobs[1]}
    left_over=1
    ended 125 0
    grep -q 'kolorun: machine 1 (.*) was lost: its kolorun has ended' "$D/out0"
}

@test "a machine to which nobody comes leaves as soon as it has said so" {
    strace -qq -o /dev/null true 2>/dev/null || skip "no strace"
    # LeakSanitizer cannot work under strace.
    ASAN_OPTIONS=detect_leaks=0 run timeout 60 strace -qq -e trace=/^p?poll -o "$D/trace" "$KOLORUN" --nnodes 2 \
        --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:$(free_port) --rdzv-conf join_timeout=0.1 true
    [ "$status" -eq 125 ]
    [ "$output" = "kolorun: waited 100 ms for 2 machines; not there: machine 1" ]
    grep -q 'poll(\[' "$D/trace"             # for others to come
    ! grep -q 'poll(NULL, 0' "$D/trace" || false # for them to read that it has left
}

@test "machines that do not come are named" {
    KOLO_TIMEOUT_MS=500 run timeout 60 "$KOLORUN" --nnodes 3 --node-rank 0 --max-restarts 1 \
        --master-addr 127.0.0.1 --master-port "$(free_port)" true
    [ "$status" -eq 125 ]
    [[ "$output" == *"waited 500 ms for 3 machines; not there: machine 1, 2"* ]]
    KOLO_TIMEOUT_MS=500 run timeout 60 "$KOLORUN" --nnodes 3 --node-rank 1 --max-restarts 1 \
        --master-addr 127.0.0.1 --master-port "$(free_port)" true
    [ "$status" -eq 125 ]
    [[ "$output" == *"the other machines are not reached: "* ]]
}

# ---- completion

# What bash offers for the last of the words.
complete_words() {
    bash -c 'source completions/kolorun; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _kolorun
        printf "%s\n" "${COMPREPLY[@]}"' - "$@"
}

@test "bash completes options, their values and the program" {
    [ "$(complete_words kolorun --max)" = --max-restarts ]
    [ "$(complete_words kolorun -n 2 --bind-to = n)" = $'numa\nnone' ]
    [ "$(complete_words kolorun --rdzv-backend c)" = c10d ]
    complete_words kolorun -n 2 -x A=b tru | grep -qx true
    [ -z "$(complete_words kolorun --timeout 1)" ]
}

@test "bash completion knows every option" {
    local option
    for option in $("$KOLORUN" --help | grep -E '^ +-' | grep -oE -- '--[a-z-]+' | sort -u); do
        grep -qE -- "$option( |\$|')" completions/kolorun || { echo "no $option"; return 1; }
    done
}

@test "ranks get a token that nobody else can read, and it ends with kolorun" {
    cat >"$D/rank" <<'END'
#!/bin/sh
exec 3>&- 4>&- 5>&- 6>&- 7>&-                          # as programs do that close what they inherit
cat "$KOLO_AUTH_TOKEN_FILE" >"$1/token.$RANK" || exit 1
stat -L -c %a "$KOLO_AUTH_TOKEN_FILE" >"$1/mode.$RANK"
echo "$KOLO_AUTH_TOKEN_FILE" >"$1/path.$RANK"
env >"$1/env.$RANK"
END
    chmod +x "$D/rank"
    "$KOLORUN" -n 2 "$D/rank" "$D"
    cmp "$D/token.0" "$D/token.1"
    [[ "$(cat "$D/token.0")" =~ ^[0-9a-f]{64}$ ]]
    [ "$(cat "$D/mode.0")" = 400 ]
    ! grep -qF "$(cat "$D/token.0")" "$D/env.0" || false
    [ ! -e "$(cat "$D/path.0")" ]
    mv "$D/token.0" "$D/before"
    "$KOLORUN" -n 2 "$D/rank" "$D"
    ! cmp -s "$D/token.0" "$D/before" || false
}

@test "no token is made where one is given, where none is wanted, and for other machines" {
    say='echo "$KOLO_AUTH_TOKEN_FILE/$KOLO_AUTH_TOKEN/$KOLO_AUTH"'
    [ "$(KOLO_AUTH_TOKEN=0123456789abcdef "$KOLORUN" sh -c "$say")" = /0123456789abcdef/ ]
    [ "$(KOLO_AUTH_TOKEN_FILE=file "$KOLORUN" sh -c "$say")" = file// ]
    [ "$("$KOLORUN" -x KOLO_AUTH_TOKEN_FILE=file sh -c "$say")" = file// ]
    [ "$("$KOLORUN" -x KOLO_AUTH=none sh -c "$say")" = //none ]
    [ "$("$KOLORUN" --nnodes 2 --node-rank 1 --master-addr localhost sh -c "$say")" = // ]
    [[ "$(KOLO_AUTH= "$KOLORUN" sh -c "$say")" = /proc/* ]]
    [[ "$(KOLO_AUTH=token "$KOLORUN" sh -c "$say")" = /proc/*/token ]] # the default, spelt out
    run -125 timeout 60 "$KOLORUN" -x KOLO_AUTH=token --nnodes 2 --node-rank 1 --master-addr 10.0.0.1 true
    [[ "$output" == *"other machines need the job's token"* ]]
}

@test "--make-token makes a file that ranks take, once, and starts nothing" {
    (umask 0; "$KOLORUN" --make-token "$D/token")
    [ "$(stat -c %a "$D/token")" = 600 ]
    [[ "$(cat "$D/token")" =~ ^[0-9a-f]{64}$ ]]
    KOLO_AUTH_TOKEN_FILE=$D/token "$KOLORUN" -n 2 "${KOLORUN%run}-perf" barrier -n 1 -w 0
    cp "$D/token" "$D/before"
    run "$KOLORUN" --make-token "$D/token"
    [ "$status" -eq 125 ]
    [ "$output" = "kolorun: --make-token $D/token: it is there already, and stays as it is" ]
    cmp "$D/token" "$D/before"
    ln -s none "$D/link"
    run "$KOLORUN" --make-token "$D/link"
    [ "$status" -eq 125 ]
    run "$KOLORUN" --make-token "$D/no/token"
    [ "$status" -eq 125 ]
    [ "$output" = "kolorun: --make-token $D/no/token: No such file or directory" ]
    run "$KOLORUN" --make-token "$D/other" touch "$D/ran"
    [ "$status" -eq 125 ]
    [ ! -e "$D/other" ]
    [ ! -e "$D/ran" ]
    [[ "$(PATH= "$KOLORUN" --nnodes 2 --node-rank 0 --master-addr far.example true 2>&1)" == *"(kolorun --make-token FILE makes one)"* ]]
}

@test "machines that are to meet without a token are refused at once, in one line" {
    local address
    for address in 10.0.0.1 far.example ::2 localhost.example; do
        run timeout 60 "$KOLORUN" --nnodes 2 --node-rank 0 --master-addr $address true
        [ "$status" -eq 125 ]
        [ "${#lines[@]}" -eq 1 ]
        [[ "$output" == *"other machines need the job's token"*KOLO_AUTH_TOKEN_FILE*KOLO_AUTH=none* ]]
        run timeout 60 "$KOLORUN" --nnodes 2 --rdzv-backend c10d --rdzv-endpoint "[$address]:7" true
        [ "$status" -eq 125 ]
        [ "${#lines[@]}" -eq 1 ]
    done
    for address in localhost 127.0.1.1 ::1; do
        "$KOLORUN" --nnodes 2 --node-rank 0 --master-addr $address true
    done
    for given in KOLO_AUTH=none KOLO_AUTH_TOKEN=0123456789abcdef KOLO_AUTH_TOKEN_FILE=file; do
        env $given "$KOLORUN" --nnodes 2 --node-rank 0 --master-addr far.example true
        "$KOLORUN" -x $given --nnodes 2 --node-rank 0 --master-addr far.example true
    done
    "$KOLORUN" --nnodes 2 --node-rank 0 --master-addr far.example --dry-run true
}

@test "a token of -x is kolorun's own too, where machines meet" {
    machines=2 port=$(free_port)
    machine 0 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:$port -x KOLO_AUTH_TOKEN=0123456789abcdef true
    KOLO_AUTH_TOKEN=0123456789abcdef machine 1 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:$port true
    for k in 0 1; do wait ${jobs[k]}; done
}

@test "another user cannot read the token" {
    [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null || skip "needs root and setpriv"
    run "$KOLORUN" sh -c 'setpriv --reuid 65534 --clear-groups cat "$KOLO_AUTH_TOKEN_FILE"'
    [ "$status" -ne 0 ]
    [[ "$output" == *"ermission denied"* ]]
}

@test "ranks of a job meet by their token, and nobody without it joins them" {
    run env KOLO_TRANSPORT=tcp KOLO_ENCRYPT=1 "$KOLORUN" -n 2 "${KOLORUN%run}-perf" -b 8 -e 8 -n 1 all_reduce
    [ "$status" -eq 0 ] || { echo "$output"; return 1; }
    run "$KOLORUN" -n 2 sh -c '[ $RANK = 0 ] || unset KOLO_AUTH_TOKEN_FILE; exec "$0" -b 8 -e 8 -n 1 -T 20 all_reduce' \
        "${KOLORUN%run}-perf"
    [ "$status" -ne 0 ]
    [[ "$output" == *"it asks for a token"* ]]
}
