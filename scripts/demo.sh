#!/usr/bin/env bash
# Builds the demo (examples/demo.cc) and what it links, and runs it. No Python package is needed.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

[ -f examples/demo.cc ] || fail "examples/demo.cc is not in this checkout"
cmake --preset release --log-level=WARNING
cmake --build --preset release -j "${JOBS:-$(nproc)}" --target examples_demo
exec build/bin/demo "$@"
