#!/usr/bin/env bash
# The attack of test/fuzz for FUZZ_SECONDS (600), with the seed FUZZ_SEED: by default another one
# each day, so that every run tries something new and one that fails can be repeated. `make test`
# names a seed: there a failure comes of the change that is tested. What is found is in build/fuzz.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

seed="${FUZZ_SEED:-$(date +%Y%m%d)}"
say "seed $seed"
if [ -w /dev/shm ]; then export TMPDIR=/dev/shm; fi # the cache engine writes a file for each input
# An input that takes all memory ends its process, not the machine. No AMX: cmake/tests.cmake.
ASAN_OPTIONS=hard_rss_limit_mb=4096 OMP_WAIT_POLICY=passive ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 \
  build/dev/test/fuzz --seconds "${FUZZ_SECONDS:-600}" --seed "$seed" --found build/fuzz
