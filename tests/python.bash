# SPDX-License-Identifier: MIT
# What reads JSON and XML in tests.

# For setup_file: where the name is that of a script that looks for the interpreter, it does so once.
find_python() {
    PYTHON=$(python3 -c 'import sys; print(sys.executable)' 2>/dev/null) || PYTHON=
    export PYTHON
}

# Without the modules that others have installed, which takes half as long.
python() {
    [ -n "$PYTHON" ] || skip "no python3"
    "$PYTHON" -S "$@"
}
