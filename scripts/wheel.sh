#!/usr/bin/env bash
# One wheel for the interpreter of the environment, build/dist/tandem-*.whl, with what auditwheel
# says of it. Objects that `make build` has compiled are taken from ccache.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

rm -rf build/dist
"$TANDEM_VENV/bin/pip" wheel -q --disable-pip-version-check --no-deps --no-build-isolation \
  --wheel-dir build/dist .
wheel="$(echo build/dist/tandem-*.whl)"
"$TANDEM_VENV/bin/python" -m auditwheel show "$wheel" >build/dist/audit.txt
say "$wheel ($(du -h "$wheel" | cut -f 1)); build/dist/audit.txt:"
cat build/dist/audit.txt
