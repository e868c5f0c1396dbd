#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What benchmarks share that are to be of like moments of a machine whose cores come together and go apart; sourced in
# the project's root. It needs kolorun, and $bin/limits of peer_limits.c.
# shellcheck disable=SC2034

bin=build/bench
flags='-O3 -march=native -D_GNU_SOURCE -Iinclude -Itests/bench'

# A host may move the cores of a virtual machine together while they idle and apart when both have been at work
# for seconds, which makes short operations take five times as long: all figures are to be of one kind of moment,
# so that runs are short and each is looked at.

limit() { # METHOD PLAN...
    LIMITS_FILE=$(mktemp -p /dev/shm) && export LIMITS_FILE
    build/bin/kolorun --no-tag -n 2 $bin/limits "${@:2}" "$1"
    rm -f "$LIMITS_FILE"
}

# Microseconds from core to core and back; nothing where that cannot be measured.
distance() {
    [ ! -x $bin/limits ] || limit exchange barrier 0 5 clean | cut -d, -f4
}

is_within() { # DISTANCE DISTANCE FACTOR: whether the first is at most so many times the second
    awk -v one="$1" -v other="$2" -v factor="$3" 'BEGIN { exit !(one <= factor * other) }'
}

is_usual() { # DISTANCE
    is_within "$1" "$usual" 1.5 && is_within "$usual" "$1" 1.5
}

work_for() { # SECONDS, on all cores
    for ((core = 0; core < $(nproc); core++)); do
        timeout "$1" sh -c 'while :; do :; done' &
    done
    wait
}

# Lets the cores idle or work, which may bring them together or apart.
bring() { # near|far
    case $1 in
    near) sleep 3 ;;
    far) work_for 4 ;;
    esac
}

# near|far: the cores of one cache need about half of 0.1 us, those of two twice as much.
kind_of() { # DISTANCE
    awk -v us="$1" 'BEGIN { print (us < 0.1 ? "near" : "far") }'
}

# Goes on with that for a minute at most, until they are.
bring_all_the_way() { # near|far
    [ -x $bin/limits ] || return 0
    for ((tries = 15; tries > 0; tries--)); do
        bring "$1"
        [ "$(kind_of "$(distance)")" != "$1" ] || return 0
    done
    echo "${0##*/}: the cores did not become $1" >&2
}

# Waits for a minute at most until the cores are as far from each other as ever.
await_usual() {
    for ((tries = 20; tries > 0; tries--)); do
        now=$(distance)
        ! is_usual "$now" || return 0
        if is_within "$now" "$usual" 1; then bring far; else bring near; fi
    done
    return 1
}

# The middle of three readings.
find_usual() {
    usual=$({ distance && distance && distance; } | sort -g | sed -n 2p)
}

# Begins at near, far, or as the cores are (''), which is usual from then on; 1: no such word.
begin_at() { # near|far|''
    local times
    case $1 in
    '') find_usual ;;
    near | far)
        for times in 1 2 3; do
            bring_all_the_way "$1"
            find_usual
            [ -n "$usual" ] && [ "$(kind_of "$usual")" != "$1" ] || return 0
        done
        echo "${0##*/}: the cores did not stay $1, after $times times" >&2
        ;;
    *) return 1 ;;
    esac
}
