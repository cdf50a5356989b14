#!/usr/bin/env bash
# Builds the compiler and the demo (examples/demo.cc), and runs it. No Python package is needed.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

[ -f examples/demo.cc ] || fail "examples/demo.cc is not in this checkout"
cmake --preset release --log-level=WARNING
cmake --build --preset release -j "${JOBS:-$(nproc)}" --target tandem_command examples_demo
# Threads that wait sleep after some microseconds, not a millisecond: as fast on a free machine, and
# about twice as fast where other processes want the same cores.
export GOMP_SPINCOUNT="${GOMP_SPINCOUNT:-5000}"
exec build/bin/demo "$@"
