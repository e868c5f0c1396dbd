#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Options and variables of other launchers: taken, refused with a sentence, none unknown.

load kolorun

@test "the spellings of other launchers" {
    run "$KOLORUN" -np 2 sh -c 'echo $WORLD_SIZE'
    [ "$(sort <<<"$output")" = $'[0] 2\n[1] 2' ]
    run "$KOLORUN" -np2 sh -c 'echo $WORLD_SIZE'
    [ "$(sort <<<"$output")" = $'[0] 2\n[1] 2' ]
    run "$KOLORUN" --standalone --nproc_per_node=2 sh -c 'echo $WORLD_SIZE'
    [ "$(sort <<<"$output")" = $'[0] 2\n[1] 2' ]
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
-n 3 --nnodes 349526 --master-addr h true|kolorun: -n 3 with --nnodes 349526: a world has up to 1048576 ranks
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

@test "torchrun's command lines for one machine are understood" {
    run --separate-stderr "$KOLORUN" --nnodes 1:1 --nproc_per_node 2 --rdzv_backend c10d --rdzv_endpoint localhost:0 \
        --rdzv_id x --max_restarts 0 --no_python --log_dir "$D/l" --no-tag sh -c 'echo $MASTER_ADDR'
    [ "$status" -eq 0 ]
    [ "$output" = $'localhost\nlocalhost' ]
}
