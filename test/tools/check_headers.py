"""Each header compiles alone, and twice. What compiled once is not compiled again until it, or a
header of ours that it includes, changes: build/header-check.json keeps a hash.

Most of the time goes to headers of others. What several headers of ours come to, by themselves and
by what they include, is precompiled, and each finds the most of what it comes to and nothing else:
what it lacks is not there either.

With HEADER_SECONDS no header is begun after so many; those changed last are first, and those left
out are counted. (Clang-tidy reads most headers alone as well: as the first of their source.)"""

import collections
import concurrent.futures
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time

import source_tree

COMPILER = os.environ.get("CXX", "g++")
FLAGS = [
    "-std=c++20",
    "-fsyntax-only",
    "-Wall",
    "-Wextra",
    "-Wshadow",
    "-Werror",
    "-fopenmp",
    "-I.",
    "-Iinclude",
]
SHARED_BY = 3  # headers that a precompiled set pays for
KNOWN = os.path.join(source_tree.ROOT, "build", "header-check.json")


def binding_flags():
    """Where the virtual environment has nanobind; None where it has not."""
    venv = os.environ.get("TANDEM_VENV", os.path.join(source_tree.ROOT, ".venv"))
    script = (
        "import nanobind, sysconfig; "
        "print(nanobind.include_dir()); print(sysconfig.get_path('include'))"
    )
    found = source_tree.output_of(os.path.join(venv, "bin", "python"), "-c", script)
    return [flag for path in found.splitlines() for flag in ("-isystem", path)] or None


def extra_flags():
    """Flags beyond the common ones, by folder. None: its headers cannot be compiled here."""
    llvm = source_tree.output_of("llvm-config-19", "--includedir").strip()
    llvm_flags = ["-isystem", llvm] if llvm else None
    return {"codegen": llvm_flags, "test": llvm_flags or [], "python": binding_flags()}


def key_of(path, flags, version):
    key = hashlib.sha256("\0".join([version, *flags]).encode())
    for file in source_tree.closure(path):
        key.update(file.encode() + b"\0" + "\n".join(source_tree.lines(file)).encode())
    return key.hexdigest()


def others_of(path):
    """The headers of others that it comes to, sorted."""
    included = (each for file in source_tree.closure(path) for each in source_tree.includes(file))
    return tuple(sorted({name for _, _, name in included if source_tree.resolve(name) is None}))


def precompile(others, flags, folder):
    """A header of these, and what stands beside it for the compiler; its path, or None."""
    path = os.path.join(folder, hashlib.sha256(repr((others, flags)).encode()).hexdigest() + ".h")
    with open(path, "w", encoding="utf-8") as stream:
        stream.writelines(f"#include <{name}>\n" for name in others)
    flags = [flag for flag in flags if flag != "-fsyntax-only"]
    command = [COMPILER, *flags, "-x", "c++-header", path, "-o", path + ".gch"]
    done = subprocess.run(command, check=False, capture_output=True, cwd=source_tree.ROOT)
    return None if done.returncode else path


def compile_header(path, flags, shared=None, deadline=float("inf")):
    """The compiler's words, empty when it has none; None when there was no time. `shared`: waits
    for what is precompiled."""
    if time.monotonic() > deadline:
        return None
    name = path.removeprefix("include/")
    text = f'#include "{name}"\n#include "{name}"\n'
    before = ["-include", shared.result()] if shared and shared.result() else []
    result = subprocess.run(
        [COMPILER, *flags, *before, "-x", "c++", "-"],
        input=text,
        check=False,
        capture_output=True,
        text=True,
        cwd=source_tree.ROOT,
    )
    return result.stderr if result.returncode else ""


def read_known():
    try:
        with open(KNOWN, encoding="utf-8") as stream:
            return json.load(stream)
    except (OSError, ValueError):
        return {}


def write_known(known):
    os.makedirs(os.path.dirname(KNOWN), exist_ok=True)
    with open(KNOWN + ".new", "w", encoding="utf-8") as stream:
        json.dump(known, stream, indent=0, sort_keys=True)
    os.replace(KNOWN + ".new", KNOWN)


def most_of(own, sets):
    """The largest of these that has nothing beyond `own`, for the same flags; None without one."""
    others, flags = own
    within = [each for each in sets if each[1] == flags and set(each[0]) <= set(others)]
    return max(within, key=lambda each: len(each[0]), default=None)


def compile_all(jobs, folder, deadline=float("inf")):
    """`jobs`: flags by path. What the compiler says, by path; None: there was no time."""
    sets = {path: (others_of(path), tuple(flags)) for path, flags in jobs.items()}
    counts = collections.Counter(sets.values())
    common = sorted(each for each, count in counts.items() if count >= SHARED_BY)
    # A worker that waits for a set waits for one that is being made: sets come first.
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        shared = {each: pool.submit(precompile, *each, folder) for each in common}
        made = {
            path: pool.submit(compile_header, path, flags, shared.get(most), deadline)
            for path, flags in jobs.items()
            for most in [most_of(sets[path], common)]
        }
        return {path: each.result() for path, each in made.items()}


def main():
    extra, known = extra_flags(), read_known()
    version = source_tree.output_of(COMPILER, "--version")
    deadline = time.monotonic() + float(os.environ.get("HEADER_SECONDS", "inf"))
    jobs, keys, left_out = {}, {}, 0
    headers = source_tree.files([".h"], source_tree.ROOMS + ["include", "python", "test", "bench"])
    for path in source_tree.changed_last_first(headers):
        more = extra.get(path.split("/")[0], [])
        if more is None:
            left_out += 1
            continue
        keys[path] = key_of(path, FLAGS + more, version)
        if known.get(path) != keys[path]:
            jobs[path] = FLAGS + more
    with tempfile.TemporaryDirectory() as folder:
        said = compile_all(jobs, folder, deadline)
    late = sum(words is None for words in said.values())
    problems = [f"{path}: does not compile alone\n{text}" for path, text in said.items() if text]
    write_known({path: key for path, key in keys.items() if said.get(path, "") == ""})
    summary = f"{len(headers)} headers ({len(jobs) - late} compiled now"
    summary += f", {late} left for another run" if late else ""
    summary += f", {left_out} left out: no nanobind or LLVM here)" if left_out else ")"
    return source_tree.report(problems, summary)


if __name__ == "__main__":
    sys.exit(main())
