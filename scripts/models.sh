#!/usr/bin/env bash
# Real models through torch.compile, against eager: build/models.json, docs/models.md.
#   models.sh [--inductor] [--full] [name ...]
# --inductor also measures compile and step times beside Inductor's. --full: the benchmark's models
# at full size instead (an hour on 2 cores, 24 GiB), prints progress and rows. With names, only
# prints.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

scripts/install-deps.sh --models
python="$TANDEM_VENV/bin/python"
[ -x "$python" ] || fail "no Python environment at $TANDEM_VENV (make deps)"
export PYTHONPATH="$PWD/build/python"
output=(--json build/models.json --page docs/models.md)
for argument in "$@"; do
  [ "$argument" = --inductor ] || output=()
done
"$python" test/models/sweep.py "${output[@]}" "$@"
