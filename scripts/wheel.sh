#!/usr/bin/env bash
# One wheel for the interpreter of the environment, build/dist/tandem-*.whl, with what auditwheel
# says of it. Packed from what `make build` has compiled: a build by `pip wheel .` knows nothing of
# it, and would compile for as long again (ccache does not know Clang's precompiled headers in
# another folder).
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

packed="$PWD/build/wheel-project"
rm -rf build/dist "$packed"
mkdir -p "$packed/python/tandem"
cp pyproject.toml CMakeLists.txt README.md LICENSE "$packed"
cp python/tandem/*.py "$packed/python/tandem"
cmake --preset release --log-level=WARNING # the environment's nanobind may be new
cmake --build --preset release -j "$(nproc)" --target tandem_python
cmake --install build/release --component python --strip --prefix "$packed/python" >/dev/null
"$TANDEM_VENV/bin/pip" wheel -q --disable-pip-version-check --no-deps --no-build-isolation \
  -C wheel.cmake=false -C wheel.platlib=true --wheel-dir build/dist "$packed"
wheel="$(echo build/dist/tandem-*.whl)"
"$TANDEM_VENV/bin/python" -m auditwheel show "$wheel" >build/dist/audit.txt
say "$wheel ($(du -h "$wheel" | cut -f 1)); build/dist/audit.txt:"
cat build/dist/audit.txt
