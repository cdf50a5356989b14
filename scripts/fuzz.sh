#!/usr/bin/env bash
# The attack of test/fuzz for FUZZ_SECONDS (600) under sanitizers, and as long again optimised, with
# the compiler's own checks on (TANDEM_VERIFY), which sees three times as many inputs and more; with
# the seed FUZZ_SEED: by default another one each day, so that every run tries something new and one
# that fails can be repeated. `make test` names a seed: there a failure comes of the change that is
# tested. Then FUZZ_PROGRAMS (20000)
# random programs beside eager, of the same seed: 6 of 10 short, 2 of 10 long, and as many through
# torch.compile, half of them with any size. What is found is in build/fuzz.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

seed="${FUZZ_SEED:-$(date +%Y%m%d)}"
programs="${FUZZ_PROGRAMS:-20000}"
say "seed $seed"
attack() {
  # The cache engine writes a file for each input.
  if [ -w /dev/shm ]; then export TMPDIR=/dev/shm; fi
  # An input that takes all memory ends its process, not the machine. No AMX: cmake/tests.cmake.
  ASAN_OPTIONS=hard_rss_limit_mb=4096:malloc_context_size=6 OMP_WAIT_POLICY=passive \
    ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 \
    "build/$1/test/fuzz" --seconds "${FUZZ_SECONDS:-600}" --seed "$seed" --found build/fuzz
}

# Seeds of a day are apart from those of another one, and of a kind from those of another kind.
random_programs() {
  local failed=0 part=0
  while read -r kind tenths; do
    part=$((part + 1))
    PYTHONPATH="$PWD/build/python" TANDEM_CACHE_DIR='' OMP_NUM_THREADS=1 \
      "$TANDEM_VENV/bin/python" test/python/test_random_programs.py \
      "$kind" "${seed}${part}0000000" $((programs * tenths / 10)) build/fuzz || failed=1
  done <<< $'short 6\nlong 2\ntorch.compile 1\nany_size 1'
  return "$failed"
}

status=0
# Each is one thread. What the second says comes when the first is done.
mkdir -p build/fuzz
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
(export TANDEM_VERIFY=1 && attack release) >build/fuzz/release.log 2>&1 &
(attack dev) || status=1
wait $! || status=1
cat build/fuzz/release.log
if [ "$programs" -gt 0 ]; then random_programs || status=1; fi
exit "$status"
