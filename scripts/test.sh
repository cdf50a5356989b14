#!/usr/bin/env bash
# Everything that must hold before a change enters, cheapest first. `make test` and .ci/run call it.
# Each step prints its seconds; the first failure ends the run.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

JOBS="${JOBS:-$(nproc)}"
LINT_SECONDS="${LINT_SECONDS:-300}"
export HEADER_SECONDS="${HEADER_SECONDS:-30}" # test/tools/check_headers.py
CI_SECONDS=5400 # a run that takes longer is refused

step() {
  local name="$1" begin="$SECONDS"
  shift
  say "$name"
  "$@" || fail "$name failed"
  say "$name: $((SECONDS - begin)) s"
}

build() {
  local preset="$1"
  shift
  cmake --preset "$preset" --log-level=WARNING && cmake --build --preset "$preset" -j "$JOBS" "$@"
}

suites() {
  local preset="$1"
  shift
  ctest --preset "$preset" -j "$JOBS" "$@"
}

pytests() {
  PYTHONPATH="$PWD/build/python" "$TANDEM_VENV/bin/python" -m pytest -q \
    -n "$JOBS" --dist worksteal "$@"
}

step "dependencies" scripts/install-deps.sh --python
step "format" scripts/format.sh --check
# Unit tests are built and run once, by the sanitizer steps.
step "release build" build release --target tandem_without_units
step "release suites and source checks" suites release -LE unit
# A run each: pytest knows a module by its file's name alone, and workers are started by conftest's.
step "python" pytests test/python
step "behaviours of AOT" pytests test/conformance/aot
step "quantized behaviours" pytests test/conformance/quant
step "operators of PyTorch's op_db" scripts/opdb.sh
step "wheel" scripts/check_wheel.sh
step "package" scripts/check_package.sh
step "sanitizer build" build dev
step "sanitizer suites" suites dev -LE tools
step "attack" env FUZZ_SECONDS=45 FUZZ_SEED=1 FUZZ_PROGRAMS=0 scripts/fuzz.sh
step "thread sanitizer build" build tsan
step "thread sanitizer suites" suites tsan
# As long as ever, but when the run is late: lint stopped at CI's end lets nothing enter. What it
# leaves out it counts, and reads next time. 200 s are for the files that were begun.
left=$((CI_SECONDS - 200 - SECONDS))
budget=$((left > LINT_SECONDS ? LINT_SECONDS : left > 10 ? left : 10))
step "lint" python3 scripts/lint.py --all --budget "$budget"
say "all passed in $SECONDS s"
