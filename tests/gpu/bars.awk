# SPDX-License-Identifier: MIT
# What the rows of tests/gpu/check say of each bar that kolo is to reach on a GPU: the worst figure of
# all that the bar is about, and whether that is good enough. A bar that is missed fails no check: the
# record is there to show it.
BEGIN {
    FS = OFS = "\t"
    kernel = add("rate of reduction kernels beside a copy's, from 16 MiB on", "%", 95, "at least")
    large = add("all_reduce of processes beside a copy of as much, from 64 MiB on", "times", 1.15)
    small = add("all_reduce of processes, 8 bytes", "us", 100)
    graph = add("all_reduce of threads in a graph, 8 bytes", "us", 15)
    spinning = add("kernels that spin beside kolo's all_reduce, at every size", "times", 5, "at least")
    gloo = add("Gloo beside kolo's all_reduce, at every size", "times", 5, "at least")
}

# A bar: at most so much, or at least.
function add(what, unit, limit, side) {
    bars++
    whats[bars] = what
    units[bars] = unit
    limits[bars] = limit
    sides[bars] = side ? side : "at most"
    return bars
}

function is_better(bar, figure, than) {
    return sides[bar] == "at most" ? figure < than : figure > than
}

function see(bar, figure) {
    if (!(bar in worst) || is_better(bar, worst[bar], figure))
        worst[bar] = figure
}

# The figure that stands before `words` in a note.
function before(words) {
    return match($5, "[0-9.]+ " words) ? substr($5, RSTART) + 0 : ""
}

{
    bytes = match($2, /[0-9]+ bytes/) ? substr($2, RSTART) + 0 : 0
    kolos = before("times as long as kolo's")
}
$2 ~ /^kernel of / && bytes >= 16 * 2 ^ 20 { see(kernel, before("% of a copy's")) }
$2 ~ /^all_reduce of [0-9]+ processes, [0-9]+ bytes$/ && bytes >= 64 * 2 ^ 20 { see(large, before("times a copy of as much")) }
$2 ~ /^all_reduce of [0-9]+ processes, 8 bytes$/ { see(small, $3 + 0) }
$2 ~ /^all_reduce of [0-9]+ threads, 8 bytes, in a graph$/ { see(graph, $3 + 0) }
kolos != "" { see($2 ~ /, Gloo$/ ? gloo : spinning, kolos) }

END {
    for (bar = 1; bar <= bars; bar++) {
        bound = sides[bar] " " limits[bar]
        if (!(bar in worst))
            print whats[bar], "", "", "not measured: " bound
        else if (is_better(bar, limits[bar], worst[bar]))
            print whats[bar], worst[bar], units[bar], "missed: " bound
        else
            print whats[bar], worst[bar], units[bar], "reached: " bound
    }
}
