#!/usr/bin/env bash
# Installs what Tandem is built from, on Debian 12. Quick when all is there: apt is not called then.
#   install-deps.sh            compiler and libraries: enough for `make build` and `make demo`
#   install-deps.sh --python   and the Python environment of the tests (.venv, or $TANDEM_VENV), the
#                              browser that they look at pages with, and the digits that the
#                              examples read (build/data/digits.npz)
#   install-deps.sh --bench    and what the benchmarks compare with
#   install-deps.sh --models   and what `make models` takes its models from
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

PACKAGES=(
  cmake g++ ninja-build ccache make git
  llvm-19-dev lld-19 clang-19 libclang-rt-19-dev libomp-19-dev clang-format-19 clang-tidy-19
  libdnnl-dev libboost-graph-dev libsimdjson-dev libfmt-dev libtomlplusplus-dev
  libgtest-dev libgmock-dev libbenchmark-dev
  libzstd-dev zlib1g-dev libxml2-dev libz3-dev
  python3 python3-venv python3-dev
)
# What tests run and the compiler does not: a real browser, for the page about a training step.
TEST_PACKAGES=(chromium)

missing_packages() {
  local installed
  local form='${Package} ${db:Status-Status}\n'
  installed="$(dpkg-query -W -f="$form" "${PACKAGES[@]}" 2>/dev/null || true)"
  local package
  for package in "${PACKAGES[@]}"; do
    grep -qx "$package installed" <<<"$installed" || printf '%s\n' "$package"
  done
}

install_packages() {
  command -v dpkg-query >/dev/null ||
    fail "this script knows Debian's packages only; install by hand: ${PACKAGES[*]}"
  local missing
  mapfile -t missing < <(missing_packages)
  if [ "${#missing[@]}" -eq 0 ]; then return; fi
  say "installing ${missing[*]}"
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "not root and no sudo; install as root: ${missing[*]}"
    as_root=(sudo)
  fi
  "${as_root[@]}" apt-get update -q
  apt-cache show llvm-19-dev >/dev/null 2>&1 ||
    fail "llvm-19-dev is not in the apt sources; Debian 12 (bookworm) has it: see /etc/apt"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends "${missing[@]}"
}

# True when every pinned line of the requirement files is installed in the environment.
python_is_complete() {
  [ -x "$TANDEM_VENV/bin/python" ] && "$TANDEM_VENV/bin/python" - "$@" <<'PYTHON'
import sys
from importlib import metadata

for path in sys.argv[1:]:
    for line in open(path):
        name, _, version = line.split("#")[0].strip().partition("==")
        if not name:
            continue
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            sys.exit(1)
        if version and found.split("+")[0] != version:
            sys.exit(1)
PYTHON
}

install_python() {
  local arguments=() file
  for file in "$@"; do arguments+=(-r "$file"); done
  if python_is_complete "$@"; then return; fi
  say "preparing $TANDEM_VENV"
  [ -x "$TANDEM_VENV/bin/python" ] || python3 -m venv "$TANDEM_VENV"
  "$TANDEM_VENV/bin/pip" install -q --disable-pip-version-check "${arguments[@]}"
}

requirements=()
for argument in "$@"; do
  case "$argument" in
    --python)
      PACKAGES+=("${TEST_PACKAGES[@]}")
      requirements+=(scripts/requirements-test.txt)
      ;;
    --bench) requirements+=(scripts/requirements-test.txt scripts/requirements-bench.txt) ;;
    --models) requirements+=(scripts/requirements-test.txt scripts/requirements-models.txt) ;;
    *) fail "unknown option $argument (known: --python, --bench, --models)" ;;
  esac
done
install_packages
if [ "${#requirements[@]}" -gt 0 ]; then
  install_python "${requirements[@]}"
  [ -f build/data/digits.npz ] || "$TANDEM_VENV/bin/python" scripts/export_digits.py
fi
