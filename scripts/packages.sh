# SPDX-License-Identifier: MIT
# shellcheck shell=sh disable=SC2034
# To be sourced: installs what is missing by apt-get, and touches nothing when nothing is.

PACKAGES_BUILD="build-essential libopenblas-dev zlib1g-dev libsodium-dev"
PACKAGES_DATA="dataset-fashion-mnist"
PACKAGES_TEST="libcmocka-dev bats perl python3 strace pkg-config cmake g++ clang clang-format
    clang-tidy cppcheck gcovr shellcheck libibverbs-dev librdmacm-dev iproute2"

# libFuzzer, which older systems have in clang's own package.
PACKAGES_FUZZ="clang libclang-rt-dev"

# What counts of system calls are compared with; elsewhere it has the kernel's version in its name.
PACKAGES_PERF="linux-perf"

# Slurm's plugin for PMIx opens the library by the name that only libpmix-dev has.
PACKAGES_INTEROP="bats perl g++ python3-torch libtorch-dev openmpi-bin mpich slurm-wlm munge
    libopenmpi-dev libmpich-dev libpmix-dev iproute2 util-linux"

# To run machines with software RDMA adapters in.
PACKAGES_RDMA="bats perl qemu-system-x86 busybox-static cpio xz-utils iproute2 libibverbs1
    ibverbs-providers librdmacm1 perftest"

# To build for 64-bit ARM machines, and to emulate one.
PACKAGES_ARM="build-essential perl gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
    libsodium-dev:arm64 libcmocka-dev:arm64"

# Prints those of the packages that are not installed.
packages_missing() {
    for _package; do
        dpkg-query -W -f '${db:Status-Status}\n' "$_package" 2>/dev/null | grep -qx installed ||
            printf '%s ' "$_package"
    done
}

# Runs a command as root; 1 if there is no way.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo "$@"
    else
        return 1
    fi
}

# apt-get, quiet unless it fails, never asking, patient with another apt-get.
apt() {
    _log=$(mktemp)
    _code=0
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@" \
        >"$_log" 2>&1 </dev/null || _code=$?
    [ $_code -eq 0 ] || sed 's/^/    /' "$_log"
    rm -f "$_log"
    return $_code
}

# packages_install NAME...: 0 if all are there in the end; says what it does.
packages_install() {
    if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
        echo "This machine has no apt-get. What is needed, by the names Debian has for it:"
        echo "    $*" | tr -s ' \n' ' '
        echo
        return 1
    fi
    _missing=$(packages_missing "$@")
    [ -n "$_missing" ] || return 0
    echo "Installing: $_missing"
    if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null 2>&1; then
        echo "This needs root, and there is no sudo. As root: apt-get install $_missing"
        return 1
    fi
    # shellcheck disable=SC2086
    apt install --no-install-recommends $_missing >/dev/null ||
        { apt update || true; apt install --no-install-recommends $_missing; }
}

# packages_install_foreign ARCHITECTURE NAME...: the same with packages of another kind of machine,
# NAME:ARCHITECTURE, among them, which dpkg is told of for as long as there are any.
packages_install_foreign() {
    _architecture=$1
    shift
    if ! command -v dpkg >/dev/null 2>&1 || [ -z "$(packages_missing "$@")" ] ||
        dpkg --print-foreign-architectures | grep -qx "$_architecture"; then
        packages_install "$@"
        return
    fi
    as_root dpkg --add-architecture "$_architecture" || return 1
    apt update >/dev/null || true
    packages_install "$@" && return
    as_root dpkg --remove-architecture "$_architecture"
    apt update >/dev/null || true
    return 1
}
