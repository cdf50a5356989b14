# Shell code that the scripts share. Source it; it changes to the repository root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The virtual environment of the tests.
TANDEM_VENV="${TANDEM_VENV:-$PWD/.venv}"
export TANDEM_VENV

say() { printf '%s\n' "== $*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }
