#!/usr/bin/env bash
# Builds the compiler and the demo (examples/demo.cc), and runs it. No Python package is needed.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

[ -f examples/demo.cc ] || fail "examples/demo.cc is not in this checkout"
cmake --preset release --log-level=WARNING
cmake --build --preset release -j "${JOBS:-$(nproc)}" --target tandem_command examples_demo
exec build/bin/demo "$@"
