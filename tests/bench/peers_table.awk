# SPDX-License-Identifier: MIT
# The table of tests/bench/peers, and its verdict, from lines of "way,name,operation,bytes,median us,least us" that are
# sorted by way, operation, bytes, name and median. Given: ranks; is_shared, if kolo's memory is that of
# kolo_mem_alloc; ratios, the file of what other libraries took elsewhere. Exits with 1 if a bar is missed.
BEGIN {
    nlibraries = split("kolo openmpi ompi-ucx mpich gloo ucx ucc oneccl", libraries, " ")
    for (i = 1; i <= nlibraries; i++) is_library[libraries[i]]
    split("exchange exchange_strings direct direct_nt pushed", names, " ")
    for (i in names) on_shared[names[i]]
    split("direct direct_nt pushed", names, " ")
    for (i in names) on_shared_alone[names[i]]
    while ((getline line < ratios) > 0)
        if (line !~ /^#/ && ranks == 2) {
            split(line, part, ",")
            row = ++nrows[part[1], part[2]]
            ratio_bytes[part[1], part[2], row] = part[3]
            ratio_whose[part[1], part[2], row] = part[4]
            ratio_times[part[1], part[2], row] = part[5]
        }
}

function smaller(one, other) { return one && (!other || one < other) ? one : other }

# The series of one name at one point has ended: its median is one of its library, or of the floor's programs.
function close_series(    time, base) {
    if (!n) return
    time = n % 2 ? value[(n + 1) / 2] : (value[n / 2] + value[n / 2 + 1]) / 2
    n = 0
    base = name
    sub(/\+.*/, "", base)
    if (base in is_library) {
        best_of[point, base] = smaller(time, best_of[point, base])
        if (name == "openmpi") plain[point] = time
    } else {
        if (name in on_shared) shared[point] = smaller(time, shared[point])
        if (!(name in on_shared_alone)) private[point] = smaller(time, private[point])
    }
}

# How far apart two sizes are: the logarithm of their ratio.
function distance(one, other) {
    if (one == other) return 0
    if (!one || !other) return 1e9
    return one < other ? log(other / one) : log(one / other)
}

# What the best of the libraries in ratios would take: their ratio at the nearest size, a factor of four away at most,
# times what Open MPI takes here in its plain setting; 0: none, or that library has a figure of its own.
function estimate(key, way, what, bytes,    row, nearest, far) {
    far = log(4) + 1e-9
    for (row = 1; row <= nrows[way, what]; row++)
        if (distance(bytes, ratio_bytes[way, what, row]) <= far) {
            nearest = row
            far = distance(bytes, ratio_bytes[way, what, row])
        }
    if (!nearest || best_of[key, ratio_whose[way, what, nearest]]) return 0
    return ratio_times[way, what, nearest] * plain[key]
}

function print_number(number, format) { printf number ? format : " %9s", number ? number : "-" }

function print_head(    i) {
    printf "%-4s %-14s %9s", "over", "operation", "bytes"
    for (i = 1; i <= nlibraries; i++) printf " %9s", libraries[i]
    printf " %9s  %9s %9s %9s\n", "~others", "best/kolo", "floor", "kolo/flr"
}

function count_ratio(kind, ratio) { sum[kind] += log(ratio); count[kind]++ }

# A row, and what it says about the bars.
function print_point(key,    part, way, kolo, i, best, others, is_raised, floor, ratio) {
    split(key, part, SUBSEP)
    way = part[1]
    ways[way]
    if (!(kolo = best_of[key, "kolo"])) { missing[way]++; return }
    printf "%-4s %-14s %9d", way, part[2], part[3]
    print_number(kolo, " %9.2f")
    for (i = 2; i <= nlibraries; i++) {
        best = smaller(best_of[key, libraries[i]], best)
        print_number(best_of[key, libraries[i]], " %9.2f")
    }
    floor = way == "shm" ? shared[key] : private[key]
    others = estimate(key, way, part[2], part[3])
    if (others && (is_raised = others < floor)) others = floor
    if (!is_shared) floor = private[key]
    print_number(others, " %9.2f")
    printf is_raised ? "^" : " "
    if (others && (!best || others < best)) {
        if (others < kolo && (!best || best >= kolo)) estimated[way]++
        best = others
    }
    ratio = best / kolo
    print_number(ratio, ratio < 1 ? " %8.2f*" : " %9.2f")
    print_number(floor, " %9.2f")
    print_number(floor ? kolo / floor : 0, " %9.2f")
    print ""
    if (best) {
        count_ratio(way, ratio)
        count_ratio(way " " (part[2] ~ /^(ping_pong|one_way)$/ ? "messages" : "collectives"), ratio)
        behind[way] += ratio < 1
    }
    if (floor && (way == "shm" || part[3] >= 65536)) {
        floors[way]++
        beyond[way] += kolo > multiple[way] * floor
        if (kolo / floor > worst[way]) worst[way] = kolo / floor
    }
}

function bar(text, is_met, figures) {
    printf "%s: %s (%s)\n", text, is_met ? "met" : "missed", figures
    missed += !is_met
}

function judge_mean(kind, wanted,    mean) {
    if (!count[kind]) return
    mean = exp(sum[kind] / count[kind])
    bar(sprintf("%s, geometric mean of best/kolo at least %s", kind, wanted), mean >= wanted,
        sprintf("%.2f over %d points", mean, count[kind]))
}

function judge(way) {
    if (!(way in ways)) return
    if (missing[way]) bar(way ", kolo has a figure at each point", 0, "none at " missing[way])
    if (!count[way]) bar(way ", beside other libraries", 0, "none of them has a figure")
    else bar(way ", nobody faster at any point (*)", !behind[way],
             sprintf("%d of %d%s", behind[way], count[way], estimated[way] ? ", " estimated[way] " of them by ~others alone" : ""))
    if (ranks != 2) return
    if (way == "tcp") judge_mean("tcp", 1.2)
    else {
        judge_mean("shm collectives", 1.5)
        judge_mean("shm messages", 1.2)
    }
    if (floors[way])
        bar(sprintf("%s, at most %s times the floor%s", way, multiple[way], way == "tcp" ? " from 64 KiB" : ""), !beyond[way],
            sprintf("%d of %d beyond, the worst %.2f", beyond[way], floors[way], worst[way]))
}

{
    if ($1 SUBSEP $3 SUBSEP $4 SUBSEP $2 != point SUBSEP name) {
        close_series()
        point = $1 SUBSEP $3 SUBSEP $4; name = $2
        if (!(point in seen)) { seen[point]; order[++npoints] = point }
    }
    value[++n] = $5
}

END {
    close_series()
    multiple["shm"] = 1.3
    multiple["tcp"] = 1.25
    print_head()
    for (i = 1; i <= npoints; i++) print_point(order[i])
    if (!npoints) bar("anything measured", 0, "nothing was")
    judge("shm")
    judge("tcp")
    exit missed > 0
}
