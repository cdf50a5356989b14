#!/usr/bin/env bash
# Formats the C++ sources in place; with --check says which differ and changes nothing.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

mode=(-i)
if [ "${1:-}" = --check ]; then mode=(--dry-run -Werror); fi
git ls-files -z --cached --others --exclude-standard -- '*.cc' '*.h' |
  while IFS= read -r -d '' file; do [ -f "$file" ] && printf '%s\0' "$file"; done |
  xargs -0 -r -n 16 -P "$(nproc)" clang-format-19 "${mode[@]}" ||
  fail "some files are not formatted: run make format"
