#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# make install, then programs that use what is installed: C and C++, shared and static, by pkg-config
# and by CMake; then make uninstall. Everything happens below a DESTDIR.

bats_require_minimum_version 1.5.0

setup_file() {
    cd "$BATS_TEST_DIRNAME/.."
    export BUILD=${TEST_BUILD:-build} DEST=$BATS_FILE_TMPDIR/dest PREFIX=/opt/kolo
    export LIBDIR=$PREFIX/lib/some-multiarch
    mk install
    cat >"$BATS_FILE_TMPDIR/use.c" <<'END'
#include <kolo.h>
#include <stdio.h>

int main(void)
{
    printf("%s %s\n", kolo_version(), kolo_status_name(KOLO_E_TIMEOUT));
    return 0;
}
END
    cp "$BATS_FILE_TMPDIR/use.c" "$BATS_FILE_TMPDIR/use.cc"
}

# make without what a surrounding make has set.
mk() {
    env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make --no-print-directory BUILD="$BUILD" \
        DESTDIR="$DEST" PREFIX="$PREFIX" LIBDIR="$LIBDIR" "$@"
}

pc() {
    PKG_CONFIG_SYSROOT_DIR=$DEST PKG_CONFIG_LIBDIR=$DEST$LIBDIR/pkgconfig pkg-config "$@" kolo
}

setup() {
    cd "$BATS_TEST_DIRNAME/.."
    T=$BATS_TEST_TMPDIR
    SAYS="$(awk '/^VERSION/ { print $3 }' Makefile) KOLO_E_TIMEOUT"
}

@test "what is installed, and with which modes" {
    run find "$DEST" -type f -printf '%P %m\n'
    for file in "bin/kolorun 755" "bin/kolo-info 755" "bin/kolo-explain 755" "bin/kolo-perf 755" "include/kolo.h 644" \
        "share/man/man1/kolorun.1 644" "share/man/man1/kolo-info.1 644" \
        "share/bash-completion/completions/kolorun 644" \
        "share/man/man1/kolo-explain.1 644" "share/man/man1/kolo-perf.1 644" \
        "lib/some-multiarch/libkolo.a 644" "lib/some-multiarch/pkgconfig/kolo.pc 644"; do
        grep -qx "opt/kolo/$file" <<<"$output" || { echo "no $file in $output"; return 1; }
    done
    [ "$(readlink "$DEST$LIBDIR/libkolo.so")" = libkolo.so.1 ]
    [ -e "$DEST$LIBDIR/libkolo.so" ]
}

@test "no installed text has a placeholder or the DESTDIR in it" {
    ! grep -rIE "@[A-Z_]+@|$DEST" "$DEST" || false
}

@test "installed tools run" {
    run "$DEST$PREFIX/bin/kolorun" -n 2 "$DEST$PREFIX/bin/kolo-info" --version
    [ "$status" -eq 0 ]
    [ "${#lines[@]}" -eq 2 ]
}

@test "pkg-config, C, shared" {
    [ "$(pc --modversion)" = "${SAYS% *}" ]
    cc -std=c99 -Wall -Wextra -Wpedantic -Werror "$BATS_FILE_TMPDIR/use.c" $(pc --cflags --libs) -o "$T/use"
    readelf -d "$T/use" | grep -q 'NEEDED.*libkolo.so.1'
    LD_LIBRARY_PATH=$DEST$LIBDIR run "$T/use"
    [ "$output" = "$SAYS" ]
}

@test "pkg-config, C, static" {
    cc "$BATS_FILE_TMPDIR/use.c" $(pc --cflags) "$DEST$LIBDIR/libkolo.a" \
        $(pc --static --libs | sed 's/-lkolo//') -o "$T/use"
    run "$T/use"
    [ "$output" = "$SAYS" ]
}

@test "pkg-config, C++, with all warnings" {
    command -v g++ >/dev/null || skip "no g++"
    g++ -std=c++11 -Wall -Wextra -Wpedantic -Wold-style-cast -Werror "$BATS_FILE_TMPDIR/use.cc" \
        $(pc --cflags --libs) -o "$T/use"
    LD_LIBRARY_PATH=$DEST$LIBDIR run "$T/use"
    [ "$output" = "$SAYS" ]
}

@test "CMake: C and C++, shared and static" {
    command -v cmake >/dev/null || skip "no cmake"
    cp "$BATS_FILE_TMPDIR"/use.c* "$T"
    cat >"$T/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.13)
project(use C CXX)
find_package(Kolo 0.1 REQUIRED)
foreach(language c cc)
  add_executable(use_${language} use.${language})
  target_link_libraries(use_${language} Kolo::kolo)
  add_executable(use_${language}_static use.${language})
  target_link_libraries(use_${language}_static Kolo::kolo_static)
endforeach()
END
    cmake -S "$T" -B "$T/b" -DKolo_DIR="$DEST$LIBDIR/cmake/Kolo" >"$T/log" || { cat "$T/log"; return 1; }
    cmake --build "$T/b" >"$T/log" || { cat "$T/log"; return 1; }
    for program in use_c use_cc use_c_static use_cc_static; do
        run "$T/b/$program"
        [ "$output" = "$SAYS" ]
    done
    readelf -d "$T/b/use_c" | grep -q libkolo
    ! readelf -d "$T/b/use_c_static" | grep -q libkolo || false
}

@test "CMake: a version that is too new is refused" {
    command -v cmake >/dev/null || skip "no cmake"
    cp "$BATS_FILE_TMPDIR/use.c" "$T"
    for version in 0.1 0.1.0 0; do
        printf 'cmake_minimum_required(VERSION 3.13)\nproject(u C)\nfind_package(Kolo %s REQUIRED)\n' \
            $version >"$T/CMakeLists.txt"
        cmake -S "$T" -B "$T/b$version" -DKolo_DIR="$DEST$LIBDIR/cmake/Kolo" >/dev/null
    done
    for version in 99 0.999 "0.0.1 EXACT"; do
        printf 'cmake_minimum_required(VERSION 3.13)\nproject(u C)\nfind_package(Kolo %s REQUIRED)\n' \
            "$version" >"$T/CMakeLists.txt"
        run cmake -S "$T" -B "$T/c" -DKolo_DIR="$DEST$LIBDIR/cmake/Kolo"
        [ "$status" -ne 0 ]
    done
}

@test "the manual pages are well formed" {
    command -v groff >/dev/null || skip "no groff"
    for page in "$DEST$PREFIX"/share/man/man1/*; do
        run groff -mdoc -ww -Tutf8 -z "$page"
        [ "$status" -eq 0 ]
        [ -z "$output" ]
    done
}

@test "the manual pages tell of the options that --help tells of" {
    for tool in "$DEST$PREFIX"/bin/*; do
        tests/same-options "$tool" "$DEST$PREFIX/share/man/man1/${tool##*/}.1"
    done
}

# An nvcc that takes no time and knows the architectures given.
toolkit() {
    mkdir -p "$T/bin"
    echo "$@" >"$T/bin/known"
    cat >"$T/bin/nvcc" <<'END'
#!/bin/sh
[ "$1" != --list-gpu-arch ] || exec sed 's/[0-9]*/compute_&/g' "$(dirname "$0")/known"
while [ "$1" != -o ]; do shift; done
echo kernels >"$2"
END
    cat >"$T/bin/fatbinary" <<'END'
#!/bin/sh
for argument; do
    case $argument in --create=*) echo "$@" >"${argument#*=}" ;; esac
done
END
    chmod +x "$T/bin/nvcc" "$T/bin/fatbinary"
}

image() {
    PATH=$T/bin:$PATH mk BUILD="$T/build" "$@" "$T/build/obj/cuda_image.o" || return
    { grep -ao 'elf,sm=[0-9]*' "$T/build/obj/cuda_image.o" || [ $? -eq 1 ]; } | tr '\n' ' '
}

has_none() {
    run image "$@"
    [ "$status" -eq 0 ] || { echo "$output"; return 1; }
    [[ "$output" != *elf,sm=* ]]
}

@test "an image has the kernels that the last make was to give it" {
    toolkit 75 80 86 90 100
    [[ "$(image CUDA_ARCHS="80 90")" == *"elf,sm=80 elf,sm=90 " ]]
    [[ "$(image CUDA_ARCHS=90)" == *"elf,sm=90 " ]]
    [[ "$(image CUDA_ARCHS=90)" != *sm=80* ]]
    has_none CUDA=0
    [[ "$(image CUDA_ARCHS="80 90")" == *"elf,sm=80 elf,sm=90 " ]]
}

@test "an image has the kernels that nvcc knows, and an nvcc that is too old makes none" {
    toolkit 75 80 86 90 100 120
    [[ "$(image)" == *"elf,sm=75 elf,sm=80 elf,sm=90 elf,sm=100 " ]]
    toolkit 50 75 80 86 90
    [[ "$(image)" == *"elf,sm=75 elf,sm=80 elf,sm=90 " ]]
    toolkit 50 75 80
    run image
    [[ "$output" == "Without kernels for GPUs: $T/bin/nvcc knows no compute_90 as those of CUDA 11.8 and later do"* && "$output" != *elf* ]]
    run image CUDA=1
    [ "$status" -ne 0 ]
    [[ "$output" == *"CUDA=1: $T/bin/nvcc knows no compute_90 as those of CUDA 11.8 and later do"* ]]
}

@test "NVCC is one that nobody finds" {
    toolkit 75 90
    mv "$T/bin" "$T/elsewhere"
    [[ "$(image NVCC="$T/elsewhere/nvcc")" == *"elf,sm=75 elf,sm=90 " ]]
    has_none NVCC="$T/elsewhere/nvcc" CUDA=0
    mv "$T/elsewhere" "$T/bin"
}

@test "what nvcc says is shown when it fails, with the way out" {
    toolkit 75 80 90
    printf '#!/bin/sh\n[ "$1" = --list-gpu-arch ] && echo compute_90 || { echo unsupported g++; exit 1; }\n' >"$T/bin/nvcc"
    run image
    [ "$status" -ne 0 ]
    [[ "$output" == *"unsupported g++"*"CUDA=0 builds without kernels for GPUs"* ]]
}

@test "uninstall leaves nothing" {
    mk uninstall
    [ -z "$(find "$DEST" ! -type d)" ]
    mk uninstall
    mk install
}
