#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# kolo-train from outside: the losses of PyTorch, the same losses on any number of ranks and after
# resuming, and bad inputs.

bats_require_minimum_version 1.5.0

setup() {
    cd "$BATS_TEST_DIRNAME/.."
    BIN=${TEST_BUILD:-build}/bin
    TRAIN=$BIN/kolo-train
    GOLDEN=tests/golden
    FASHION=/usr/share/datasets/fashion-mnist
    D=$BATS_TEST_TMPDIR
    export OMP_NUM_THREADS=1
    unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT
}

# train RANKS ARGUMENT...: a run on the synthetic images.
train() {
    local ranks=$1
    shift
    if [ "$ranks" -eq 1 ]; then
        "$TRAIN" --data synthetic "$@"
    else
        "$BIN/kolorun" -n "$ranks" "$TRAIN" --data synthetic "$@"
    fi
}

# For what the plain build does too, by code of which other tests see all.
takes_long() { [[ "$BIN" != *san/bin ]] || skip "takes long under a sanitizer"; }

# assert_close FILE FILE TOLERANCE: the same steps, and losses within a relative tolerance.
assert_close() {
    [ "$(wc -l <"$1")" -eq "$(wc -l <"$2")" ]
    paste "$1" "$2" | awk -v most="$3" '
        { difference = ($2 - $4) / $4; if (difference < 0) difference = -difference }
        $1 != $3 || !(difference <= most) { print "step " $1 ": " $2 " and " $4; wrong = 1 }
        END { exit wrong || NR == 0 }'
}

# assert_refused STATUS SENTENCE ARGUMENT...: one line on stderr that has the sentence.
assert_refused() {
    local expected=$1 sentence=$2
    shift 2
    run --separate-stderr "$TRAIN" "$@"
    echo "status $status: $stderr"
    [ "$status" -eq "$expected" ]
    [[ "$stderr" == "kolo-train: "*"$sentence"* ]]
    [ "$(wc -l <<<"$stderr")" -eq 1 ]
}

@test "the first 50 losses on synthetic images are PyTorch's" {
    train 1 --init $GOLDEN/weights.f32 --no-dropout --no-shuffle --momentum 0.5 --max-steps 50 \
        --log-losses "$D/losses"
    assert_close "$D/losses" $GOLDEN/losses_synthetic.txt 1e-4
}

@test "the first 50 losses on Fashion-MNIST are PyTorch's" {
    [ -d $FASHION ] || skip "dataset-fashion-mnist is not installed"
    "$TRAIN" --data $FASHION --init $GOLDEN/weights.f32 --no-dropout --no-shuffle --momentum 0.5 --max-steps 50 \
        --log-losses "$D/losses"
    assert_close "$D/losses" $GOLDEN/losses_fashion.txt 1e-4
}

@test "1, 2 and 4 ranks have the same losses" {
    for ranks in 1 2 4; do
        train $ranks --max-steps 40 --log-losses "$D/losses$ranks"
    done
    assert_close "$D/losses2" "$D/losses1" 1e-5
    assert_close "$D/losses4" "$D/losses1" 1e-5
}

@test "a batch that the epoch does not fill is the same on 1 and 3 ranks" {
    # 6000 = 13 * 450 + 150
    for ranks in 1 3; do
        train $ranks --batch 450 --epochs 1 --log-losses "$D/losses$ranks"
    done
    [ "$(wc -l <"$D/losses1")" -eq 14 ]
    assert_close "$D/losses3" "$D/losses1" 1e-5
}

@test "gradients that travel as a smaller float: losses near those of float32" {
    train 2 --max-steps 40 --log-losses "$D/float32"
    train 2 --max-steps 40 --log-losses "$D/bf16" --compress bf16
    train 2 --max-steps 40 --log-losses "$D/fp16" --compress fp16
    assert_close "$D/bf16" "$D/float32" 2e-2
    assert_close "$D/fp16" "$D/float32" 2e-3
    run ! cmp "$D/bf16" "$D/float32"
    assert_refused 2 "--compress must be bf16 or fp16, not 'int8'" --compress int8
}

@test "reducing after backward gives the same bits as reducing during it" {
    train 2 --max-steps 20 --log-losses "$D/during"
    train 2 --max-steps 20 --log-losses "$D/after" --no-overlap
    cmp "$D/during" "$D/after"
}

@test "buckets are reduced during backward, unless told otherwise" {
    # Two buckets a step: the second one closes with the last gradient of all.
    train 2 --max-steps 30 >"$D/out"
    grep -q 'overlap on, 30 of 60 buckets begun during backward' "$D/out"
    train 2 --max-steps 30 --no-overlap >"$D/out"
    grep -q 'overlap off, 0 of 60 buckets begun during' "$D/out"
}

# Interrupted at step 130 of 188: in the second epoch, with dropout, shuffling and momentum.
check_resume() {
    local ranks=$1
    train "$ranks" --epochs 2 --log-losses "$D/whole" --checkpoint "$D/whole.kolo"
    train "$ranks" --epochs 2 --log-losses "$D/begin" --checkpoint "$D/run.kolo" --max-steps 130
    train "$ranks" --epochs 2 --log-losses "$D/end" --checkpoint "$D/run.kolo" \
        --resume "$D/run.kolo"
    cat "$D/begin" "$D/end" | cmp - "$D/whole"
    cmp "$D/run.kolo" "$D/whole.kolo"
}

@test "a resumed run equals an uninterrupted one, bit for bit: 1 rank" {
    takes_long
    check_resume 1
}

@test "a resumed run equals an uninterrupted one, bit for bit: 2 ranks" {
    check_resume 2
}

@test "a run that is done resumes to nothing but its accuracy" {
    takes_long
    train 1 --epochs 1 --checkpoint "$D/run.kolo"
    run train 1 --epochs 1 --resume "$D/run.kolo"
    [ "$status" -eq 0 ]
    [[ "$output" == *"resumed $D/run.kolo: step 94, epoch 2"* ]]
    [[ "$output" == *"1 epoch, 94 steps on 1 rank"* ]]
}

@test "synthetic images are learned, and the curve drawn" {
    takes_long
    run train 1 --epochs 3 --lr 0.01 --momentum 0.9 --no-dropout --curve "$D/run.svg"
    accuracy=$(sed -n 's/.*3 epochs.*test accuracy \([0-9]*\).*/\1/p' <<<"$output" | tail -1)
    echo "$output"
    [ "$accuracy" -ge 90 ]
    [ "$(grep -c '<polyline' "$D/run.svg")" -eq 2 ]
    [[ "$output" == *"curve: $D/run.svg"* ]]
}

@test "without the package, synthetic images and a loud word" {
    # An empty folder in place of the packages' data sets, seen by this process alone.
    [ ! -d /usr/share/datasets ] || unshare -m mount -t tmpfs none /usr/share/datasets ||
        skip "cannot hide the package"
    run --separate-stderr unshare -m sh -c '
        [ ! -d /usr/share/datasets ] || mount -t tmpfs none /usr/share/datasets
        exec "$1" --max-steps 1' sh "$TRAIN"
    [ "$status" -eq 0 ]
    [[ "$output" == "6000 training and 1000 test images: synthetic"* ]]
    [[ "$stderr" == *"THIS IS NOT REAL DATA"*"apt-get install dataset-fashion-mnist"* ]]
}

@test "a line each tenth of an epoch, without a terminal" {
    run train 1 --epochs 1
    [ "$(grep -c '^epoch 1/1 .* images/s' <<<"$output")" -eq 10 ]
}

@test "a bar on a terminal" {
    run script -qec "$TRAIN --data synthetic --epochs 1" /dev/null
    [ "$status" -eq 0 ]
    [[ "$output" == *$'\r'*"epoch 1/1 [===============               ]  51 %"* ]]
}

# A GPU, which is the double of a driver here; a build without nvcc has no kernels for it.
on_gpu() {
    export LD_LIBRARY_PATH=$BIN/../tests/fakecuda
    run train 1 --device cuda --max-steps 1
    [[ "$output" != *"has no kernels for GPUs"* ]] || skip "built without nvcc"
    [ "$status" -eq 0 ]
    [[ "$output" == *"rank 0 computes on GPU 0, kolo's test double"* ]]
}

@test "on a GPU the losses are the host's, on 1, 2 and 4 ranks that share it" {
    local steps=20
    on_gpu
    [[ "$BIN" != *san/bin ]] || steps=4 # the double computes with the processor
    train 1 --max-steps $steps --log-losses "$D/host"
    for ranks in 1 2 4; do
        train $ranks --device cuda --max-steps $steps --log-losses "$D/gpu$ranks"
        assert_close "$D/gpu$ranks" "$D/host" 1e-5
    done
    FAKECUDA_DEVICES=2 train 2 --device cuda --max-steps $steps --log-losses "$D/apart" # one each
    assert_close "$D/apart" "$D/host" 1e-5
}

@test "on a GPU gradients are averaged beside backward, with the same bits as after it" {
    on_gpu
    train 2 --device cuda --max-steps 4 --log-losses "$D/during" >"$D/out"
    grep -q 'overlap on, 4 of 8 buckets begun during backward' "$D/out"
    train 2 --device cuda --max-steps 4 --log-losses "$D/after" --no-overlap
    cmp "$D/during" "$D/after"
}

@test "a run goes on where it was interrupted on a GPU, and from there on the host" {
    on_gpu
    train 2 --device cuda --max-steps 5 --log-losses "$D/whole"
    train 2 --device cuda --max-steps 3 --log-losses "$D/begin" --checkpoint "$D/run.kolo"
    train 2 --device cuda --max-steps 5 --log-losses "$D/end" --resume "$D/run.kolo"
    cat "$D/begin" "$D/end" | cmp - "$D/whole"
    train 1 --max-steps 5 --log-losses "$D/host" --resume "$D/run.kolo"
    assert_close "$D/host" "$D/end" 1e-5
}

@test "a failure on one rank's GPU ends all ranks" {
    on_gpu
    run timeout 60 "$BIN/kolorun" -n 2 sh -c "
        [ \$RANK = 0 ] || export FAKECUBLAS_BREAK=cublasSgemmStridedBatched=14
        exec $TRAIN --data synthetic --device cuda"
    [ "$status" -eq 1 ]
    [[ "$output" == *"a matrix product of cuBLAS failed (error 14)"* ]]
}

@test "what is missing for a GPU is one sentence" {
    KOLO_CUDA=0 assert_refused 1 "--device cuda: KOLO_E_UNSUPPORTED: KOLO_CUDA is 0" \
        --data synthetic --device cuda
    on_gpu
    FAKECUDA_DEVICES=0 assert_refused 1 "the driver finds no GPU" --data synthetic --device cuda
    FAKECUDA_BREAK=cuMemAlloc=2 run ! train 1 --device cuda
    [[ "$output" == *"no memory"* ]]
    FAKECUBLAS_BREAK=cublasSgemmStridedBatched=14 run ! train 1 --device cuda
    [[ "$output" == *"--device cuda: a matrix product of cuBLAS failed (error 14)"* ]]
    run ! env LD_LIBRARY_PATH= "$BIN/kolorun" -n 2 sh -c "
        [ \$RANK = 0 ] || { kind='--device cuda'; export LD_LIBRARY_PATH=$LD_LIBRARY_PATH; }
        exec $TRAIN --data synthetic \$kind"
    [[ "$output" == *"ranks differ in --device: 0 to 1"* ]]
}

@test "bad options are one sentence and status 2" {
    assert_refused 2 "--device must be cpu or cuda, not 'gpu'" --device gpu
    assert_refused 2 "--batch must be a whole number from 1 to 2147483647, not 'x'" --batch x
    assert_refused 2 "--lr must be a number" --lr 1e9
    assert_refused 2 "--batch 7000 is more than the 6000 training images" \
        --data synthetic --batch 7000
    assert_refused 2 "--init and --resume both bring weights" --init a --resume b
}

@test "a batch that does not divide by the ranks is status 2" {
    run --separate-stderr train 3 --batch 64
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"--batch 64 does not divide by the 3 ranks; the nearest that do are 63 and 66"* ]]
    [[ "$stderr" == *"aborted the group: --batch 64 does not divide by the 3 ranks"* ]] # on the others, too
}

@test "ranks with other options are refused by name" {
    run --separate-stderr "$BIN/kolorun" -n 2 \
        sh -c "exec $TRAIN --data synthetic --epochs \$((RANK + 1))"
    [ "$status" -eq 1 ]
    [[ "$stderr" == *"ranks differ in --epochs: 1 to 2"* ]]
}

@test "a missing folder, weights, and files that cannot be written" {
    assert_refused 1 "cannot open $D/none/train-images-idx3-ubyte.gz: No such file" --data "$D/none"
    assert_refused 1 "cannot open $D/none" --data synthetic --init "$D/none"
    assert_refused 1 "$TRAIN must hold exactly 21840 float32" --data synthetic --init "$TRAIN"
    assert_refused 1 "cannot create $D/none/losses" --data synthetic --log-losses "$D/none/losses"
    assert_refused 1 "cannot create checkpoint $D/none/run.tmp" \
        --data synthetic --max-steps 1 --checkpoint "$D/none/run"
}

@test "a loss that is no number ends the run" {
    head -c "$(wc -c <$GOLDEN/weights.f32)" /dev/zero | tr '\0' '\177' >"$D/huge"
    for ranks in 1 2; do
        run --separate-stderr train $ranks --init "$D/huge"
        [ "$status" -eq 1 ]
        [[ "$stderr" == *"the loss is no number any more: lower --lr"* ]]
    done
}

@test "a checkpoint that is damaged, cut, foreign, or of another run" {
    train 1 --max-steps 3 --checkpoint "$D/run.kolo"
    head -c 1000 "$D/run.kolo" >"$D/cut"
    (cat "$D/run.kolo" && echo) >"$D/long"
    (head -c 5000 "$D/run.kolo" && printf 'x' && tail -c +5002 "$D/run.kolo") >"$D/damaged"
    assert_refused 1 "$D/cut is truncated: 1000 of" --data synthetic --resume "$D/cut"
    assert_refused 1 "$D/long has bytes after its end" --data synthetic --resume "$D/long"
    assert_refused 1 "$D/damaged is damaged" --data synthetic --resume "$D/damaged"
    assert_refused 1 "$TRAIN is no checkpoint" --data synthetic --resume "$TRAIN"
    assert_refused 1 "written with --batch = 64, not 32" \
        --data synthetic --resume "$D/run.kolo" --batch 32
    assert_refused 1 "written with --seed = 1234, not 5" \
        --data synthetic --resume "$D/run.kolo" --seed 5
    assert_refused 1 "written with --dropout = 10, not 0" \
        --data synthetic --resume "$D/run.kolo" --no-dropout
}

@test "a bad checkpoint ends all ranks at once, with one sentence" {
    echo nonsense >"$D/bad"
    run --separate-stderr timeout 60 "$BIN/kolorun" -n 2 "$TRAIN" --data synthetic \
        --resume "$D/bad"
    [ "$status" -eq 1 ]
    [ "$(grep -c 'is no checkpoint of kolo-train' <<<"$stderr")" -ge 1 ]
}

@test "--help has examples, --version a version" {
    run "$TRAIN" --help
    [ "$status" -eq 0 ]
    [[ "$output" == *"kolorun -n 2 kolo-train --epochs 3"* ]]
    help=$output
    run "$TRAIN" -h
    [ "$status" -eq 0 ]
    [ "$output" = "$help" ]
    run "$TRAIN" --version
    [ "$status" -eq 0 ]
    [ "$output" = "kolo-train (kolo) $(awk '/^VERSION/ { print $3 }' Makefile)" ]
}

@test "the manual page is well formed and tells of the options that --help tells of" {
    tests/same-options "$TRAIN" examples/ddp/kolo-train.1
    command -v groff >/dev/null || skip "no groff"
    run groff -mdoc -ww -Tutf8 -z examples/ddp/kolo-train.1
    [ "$status" -eq 0 ]
    [ -z "$output" ]
}
