#!/usr/bin/env bats
# What tests/bench/peers makes of figures: of figures that are given, not measured.

setup() { figures=$BATS_TEST_TMPDIR/figures; }

table() { run tests/bench/peers --table "$figures" "$@"; }

# The row of an operation and size in the table.
row() { # OPERATION BYTES
    printf '%s\n' "${lines[@]}" | awk -v what="$1" -v bytes="$2" '$2 == what && $3 == bytes { $1 = $1; print }'
}

says() { # TEXT: one of the lines
    printf '%s\n' "${lines[@]}" | grep -qxF "$1"
}

@test "all bars are met, and each is named" {
    cat >"$figures" <<'END'
shm,kolo,all_gather,1024,1.0,0.9
shm,mpich,all_gather,1024,1.5,1.4
shm,staged,all_gather,1024,0.8,0.7
shm,kolo,one_way,1024,2.0,1.9
shm,mpich,one_way,1024,2.5,2.4
tcp,kolo,all_gather,1048576,100,90
tcp,mpich,all_gather,1048576,120,110
tcp,socket_reno,all_gather,1048576,80,70
END
    table
    [ "$status" -eq 0 ]
    says "shm, nobody faster at any point (*): met (0 of 2)"
    says "shm collectives, geometric mean of best/kolo at least 1.5: met (1.50 over 1 points)"
    says "shm messages, geometric mean of best/kolo at least 1.2: met (1.25 over 1 points)"
    says "shm, at most 1.3 times the floor: met (0 of 1 beyond, the worst 1.25)"
    says "tcp, nobody faster at any point (*): met (0 of 1)"
    says "tcp, geometric mean of best/kolo at least 1.2: met (1.20 over 1 points)"
    says "tcp, at most 1.25 times the floor from 64 KiB: met (0 of 1 beyond, the worst 1.25)"
}

@test "each bar that is missed says by how much, and the exit code is 1" {
    cat >"$figures" <<'END'
shm,kolo,all_gather,1024,2,1
shm,mpich,all_gather,1024,1,1
shm,staged,all_gather,1024,1,1
shm,kolo,one_way,1024,2,1
shm,mpich,one_way,1024,2,1
tcp,kolo,all_gather,16,9,9
tcp,mpich,all_gather,16,9,9
tcp,socket,all_gather,16,1,1
tcp,kolo,all_gather,65536,9,9
tcp,mpich,all_gather,65536,9,9
tcp,socket,all_gather,65536,6,6
END
    table
    [ "$status" -eq 1 ]
    says "shm, nobody faster at any point (*): missed (1 of 2)"
    says "shm collectives, geometric mean of best/kolo at least 1.5: missed (0.50 over 1 points)"
    says "shm messages, geometric mean of best/kolo at least 1.2: missed (1.00 over 1 points)"
    says "shm, at most 1.3 times the floor: missed (1 of 1 beyond, the worst 2.00)"
    says "tcp, nobody faster at any point (*): met (0 of 2)"
    says "tcp, geometric mean of best/kolo at least 1.2: missed (1.00 over 2 points)"
    says "tcp, at most 1.25 times the floor from 64 KiB: missed (1 of 1 beyond, the worst 1.50)"
}

@test "a library's figure is the median of its best setting, the floor's that of its best program" {
    cat >"$figures" <<'END'
tcp,kolo,all_gather,65536,10,9
tcp,kolo,all_gather,65536,11,9
tcp,kolo,all_gather,65536,99,9
tcp,ompi-ucx,all_gather,65536,50,40
tcp,ompi-ucx+proto1,all_gather,65536,22,20
tcp,socket,all_gather,65536,30,20
tcp,socket_cubic_4m,all_gather,65536,10,9
END
    table
    [ "$status" -eq 0 ]
    [ "$(row all_gather 65536)" = "tcp all_gather 65536 11.00 - 22.00 - - - - - - 2.00 10.00 1.10" ]
}

@test "a ratio counts at the nearest size, for Open MPI's plain setting, beside any other library" {
    cat >"$figures" <<'END'
shm,kolo,all_reduce,16,10,9
shm,openmpi,all_reduce,16,20,9
shm,openmpi+nocma,all_reduce,16,12,9
shm,oneccl,all_reduce,16,30,9
shm,kolo,all_reduce,262144,10,9
shm,openmpi,all_reduce,262144,100,9
shm,kolo,all_reduce,1048576,10,9
shm,openmpi,all_reduce,1048576,100,9
END
    table
    [ "$(row all_reduce 16)" = "shm all_reduce 16 10.00 12.00 - - - - - 30.00 11.46 1.15 - -" ]
    [ "$(row all_reduce 262144)" = "shm all_reduce 262144 10.00 100.00 - - - - - - 55.10 5.51 - -" ]
    [ "$(row all_reduce 1048576)" = "shm all_reduce 1048576 10.00 100.00 - - - - - - - 10.00 - -" ]
}

@test "a ratio alone makes another faster, and less than the floor it is not" {
    cat >"$figures" <<'END'
shm,kolo,all_reduce,16,10,9
shm,openmpi,all_reduce,16,11,9
shm,direct,all_reduce,16,8,7
END
    table
    [ "$status" -eq 1 ]
    [ "$(row all_reduce 16)" = "shm all_reduce 16 10.00 11.00 - - - - - - 8.00^ 0.80* - -" ]
    says "shm, nobody faster at any point (*): missed (1 of 1, 1 of them by ~others alone)"
}

@test "a library that has a figure of its own needs no ratio" {
    cat >"$figures" <<'END'
shm,kolo,all_reduce,16,10,9
shm,openmpi,all_reduce,16,11,9
shm,ucc+proto1,all_reduce,16,15,9
END
    table
    [ "$(row all_reduce 16)" = "shm all_reduce 16 10.00 11.00 - - - - 15.00 - - 1.10 - -" ]
}

@test "shared memory has the floor of buffers that both ranks address" {
    printf 'shm,%s,all_gather,1024,%s,1\n' kolo 12 mpich 30 staged 10 direct 4 >"$figures"
    table
    [ "$(row all_gather 1024)" = "shm all_gather 1024 12.00 - - 30.00 - - - - - 2.50 10.00 1.20" ]
    table --shared
    [ "$(row all_gather 1024)" = "shm all_gather 1024 12.00 - - 30.00 - - - - - 2.50 4.00 3.00" ]
}

@test "among more than two ranks nobody may be faster, and nothing else counts" {
    printf 'tcp,%s,all_gather,65536,%s,1\n' kolo 10 mpich 10 >"$figures"
    table --ranks 4
    [ "$status" -eq 0 ]
    [ "${lines[-1]}" = "tcp, nobody faster at any point (*): met (0 of 1)" ]
    printf 'tcp,%s,all_gather,65536,%s,1\n' kolo 10 mpich 9 >"$figures"
    table --ranks 8
    [ "$status" -eq 1 ]
    [ "${lines[-1]}" = "tcp, nobody faster at any point (*): missed (1 of 1)" ]
}

@test "what has not been measured is not met" {
    : >"$figures"
    table
    [ "$status" -eq 1 ]
    [ "${lines[-1]}" = "anything measured: missed (nothing was)" ]
    printf 'shm,%s,barrier,0,1,1\n' mpich exchange >"$figures"
    table
    [ "$status" -eq 1 ]
    says "shm, kolo has a figure at each point: missed (none at 1)"
    echo shm,kolo,barrier,0,1,1 >"$figures"
    table
    [ "$status" -eq 1 ]
    says "shm, beside other libraries: missed (none of them has a figure)"
}
