#!/usr/bin/env bash
# The operator sweep against PyTorch's op_db, a process a core: build/opdb.json, docs/opdb.md.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

JOBS="${JOBS:-$(nproc)}"
python="$TANDEM_VENV/bin/python"
[ -x "$python" ] || fail "no Python environment at $TANDEM_VENV (make deps)"
export PYTHONPATH="$PWD/build/python"
parts=() processes=()
rm -f build/opdb.json build/opdb.*.json # what an earlier run left is not a part of this one
for ((part = 0; part < JOBS; part++)); do
  parts+=("build/opdb.$part.json")
  "$python" test/python/opdb.py --part "$part/$JOBS" --json "build/opdb.$part.json" \
    >"build/opdb.$part.log" 2>&1 &
  processes+=($!)
done
# A part that finds what is wrong ends with 1 too, but has written its rows: --merge tells of them.
for ((part = 0; part < JOBS; part++)); do
  wait "${processes[part]}" || [ -f "${parts[part]}" ] ||
    fail "part $part of $JOBS died: $(tail -n 3 "build/opdb.$part.log")"
done
"$python" test/python/opdb.py --json build/opdb.json --merge "${parts[@]}"
