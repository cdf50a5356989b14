"""clang-tidy over the C++ sources, with two rules beyond the tool's. A file that was clean is not
read again until it, or a header of ours that it includes, changes (build/lint.json keeps a hash).
With --budget no file is begun after so many seconds; those changed last are first.
Exit code 1: problems found. Files that the budget left out are counted in the last line."""

import argparse
import concurrent.futures
import hashlib
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "test", "tools"))
import source_tree  # noqa: E402

TIDY = "clang-tidy-19"
KNOWN = os.path.join(source_tree.ROOT, "build", "lint.json")
# omp.h is GCC's, and comes after clang's own headers.
GCC_HEADERS = "/usr/lib/gcc/x86_64-linux-gnu/12/include"
FLAGS = [
    "-std=c++20",
    "-I.",
    "-Iinclude",
    "-isystem",
    "/usr/lib/llvm-19/include",
    "-fopenmp",
    # GCC's omp.h: an attribute with arguments that clang does not know.
    "-D__malloc__(...)=__unused__",
    "-idirafter",
    GCC_HEADERS,
    f'-DTANDEM_SOURCE_DIR="{source_tree.ROOT}"',
    "-Wno-everything",
]


def key_of(path, version):
    key = hashlib.sha256("\0".join([version, *FLAGS]).encode())
    for file in source_tree.closure(path):
        key.update(file.encode() + b"\0" + "\n".join(source_tree.lines(file)).encode())
    return key.hexdigest()


def lint(path, deadline):
    """The tool's words; None when there was no time."""
    if time.monotonic() > deadline:
        return None
    result = subprocess.run(
        [TIDY, "--quiet", path, "--", *FLAGS],
        capture_output=True,
        text=True,
        check=False,
        cwd=source_tree.ROOT,
    )
    return "" if result.returncode == 0 else result.stdout + result.stderr


def read_known():
    try:
        with open(KNOWN, encoding="utf-8") as stream:
            return json.load(stream)
    except (OSError, ValueError):
        return {}


def arguments():
    parser = argparse.ArgumentParser(description="clang-tidy over the C++ sources")
    parser.add_argument("--all", action="store_true", help="not only what changed since main")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds in which to begin files")
    parser.add_argument("paths", nargs="*", help="these files only")
    return parser.parse_args()


def selected(options):
    if options.paths:
        return options.paths
    changed = source_tree.changed_files()
    paths = source_tree.files([".cc"], source_tree.ROOMS + ["python", "test", "examples", "bench"])
    paths = [path for path in paths if not path.startswith("python/")]  # needs nanobind's headers
    if not options.all:
        paths = [path for path in paths if changed & set(source_tree.closure(path))]
    return source_tree.changed_last_first(paths)


def main():
    options = arguments()
    with open(os.path.join(source_tree.ROOT, ".clang-tidy"), encoding="utf-8") as stream:
        version = source_tree.output_of(TIDY, "--version") + stream.read()
    known, deadline = read_known(), time.monotonic() + options.budget
    keys = {path: key_of(path, version) for path in selected(options)}
    todo = [path for path in keys if known.get(path) != keys[path]]
    failed = left_out = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, words in zip(todo, pool.map(lambda path: lint(path, deadline), todo)):
            if words is None:
                left_out += 1
            elif words:
                failed += 1
                print(words)
            else:
                known[path] = keys[path]
    os.makedirs(os.path.dirname(KNOWN), exist_ok=True)
    with open(KNOWN, "w", encoding="utf-8") as stream:
        json.dump(known, stream, indent=0, sort_keys=True)
    print(
        f"clang-tidy: {len(keys)} files, {len(todo) - left_out} read now, "
        f"{left_out} left for another run, {failed} with problems"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
