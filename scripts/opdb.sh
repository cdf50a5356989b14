#!/usr/bin/env bash
# The operator sweep against PyTorch's op_db, a process a core: build/opdb.json, docs/opdb.md.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

JOBS="${JOBS:-$(nproc)}"
python="$TANDEM_VENV/bin/python"
[ -x "$python" ] || fail "no Python environment at $TANDEM_VENV (make deps)"
export PYTHONPATH="$PWD/build/python"
parts=()
for ((part = 0; part < JOBS; part++)); do
  parts+=("build/opdb.$part.json")
  "$python" test/python/opdb.py --part "$part/$JOBS" --json "build/opdb.$part.json" \
    >"build/opdb.$part.log" 2>&1 || true &
done
wait
"$python" test/python/opdb.py --json build/opdb.json --merge "${parts[@]}"
