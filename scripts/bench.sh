#!/usr/bin/env bash
# All benchmarks beside their peers: build/bench.json, docs/performance.md. 40 minutes on 2 cores.
#   --quick   6 minutes; the page goes to build/performance.md instead
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

page=docs/performance.md
quick=()
for argument in "$@"; do
  case "$argument" in
    --quick) quick=(--quick) page=build/performance.md ;;
    *) fail "unknown option $argument (known: --quick)" ;;
  esac
done
scripts/install-deps.sh --bench ||
  say "the peers could not all be installed; what is missing is left out and said so"
python="$TANDEM_VENV/bin/python"
[ -x "$python" ] || fail "no Python environment at $TANDEM_VENV"
# Configured again: the environment may be new, and the Python module is built for it.
cmake --preset release --log-level=WARNING
cmake --build --preset release \
  --target bench_train_gpt bench_overhead bench_stream \
  tandem_command tandem_python tandem_python_files

mkdir -p build/bench
export PYTHONPATH="$PWD/build/python"
say "call overhead"
build/bin/bench_overhead 2>build/bench/overhead.txt \
  --benchmark_context="run=$("$python" bench/measure.py)" \
  --benchmark_out=build/bench/overhead.json --benchmark_out_format=json | grep median
say "kernels"
"$python" bench/kernels.py "${quick[@]}"
say "training step"
"$python" bench/train_gpt.py "${quick[@]}"
say "full-size models"
"$python" bench/models.py "${quick[@]}" ||
  say "wrong results, or none: the report ends with an error"
if [ "${#quick[@]}" -eq 0 ] && grep -q avx512f /proc/cpuinfo; then
  say "full-size models, held to AVX2"
  BENCH_ISA=avx2 "$python" bench/models.py || say "wrong results, or none: as above"
fi
say "report"
mkdir -p docs
"$python" bench/report.py "$page"
