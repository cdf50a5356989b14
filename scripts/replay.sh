#!/usr/bin/env bash
# The text of all kernels and decisions of the models, before a change and after: build/replay.
#   replay.sh [--bless]
# The first run captures the models' graphs (20 minutes; build/replay/graphs, remove it to capture
# again) and keeps what this build makes of them as the base; later ones compare with it.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

scripts/install-deps.sh --models
python="$TANDEM_VENV/bin/python"
[ -x "$python" ] || fail "no Python environment at $TANDEM_VENV (make deps)"
export PYTHONPATH="$PWD/build/python"
folder=build/replay
if [ ! -d "$folder/graphs" ]; then
  rm -rf "$folder/capturing"
  "$python" test/replay/capture.py "$folder/capturing"
  mv "$folder/capturing" "$folder/graphs"
fi
"$python" test/replay/replay.py "$folder/graphs" "$folder/base" "$folder/now" "$@"
