"""Each header compiles alone, and twice. What compiled once is not compiled again until it, or a
header of ours that it includes, changes: build/header-check.json keeps a hash."""

import concurrent.futures
import hashlib
import json
import os
import subprocess
import sys

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
KNOWN = os.path.join(source_tree.ROOT, "build", "header-check.json")


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def binding_flags():
    """Where the virtual environment has nanobind; None where it has not."""
    venv = os.environ.get("TANDEM_VENV", os.path.join(source_tree.ROOT, ".venv"))
    script = (
        "import nanobind, sysconfig; "
        "print(nanobind.include_dir()); print(sysconfig.get_path('include'))"
    )
    found = output_of(os.path.join(venv, "bin", "python"), "-c", script)
    return [flag for path in found.splitlines() for flag in ("-isystem", path)] or None


def extra_flags():
    """Flags beyond the common ones, by folder. None: its headers cannot be compiled here."""
    llvm = output_of("llvm-config-19", "--includedir")
    llvm_flags = ["-isystem", llvm] if llvm else None
    return {"codegen": llvm_flags, "test": llvm_flags or [], "python": binding_flags()}


def key_of(path, flags, version):
    key = hashlib.sha256("\0".join([version, *flags]).encode())
    for file in source_tree.closure(path):
        key.update(file.encode() + b"\0" + "\n".join(source_tree.lines(file)).encode())
    return key.hexdigest()


def compile_header(path, flags):
    """The compiler's words, empty when it has none."""
    name = path.removeprefix("include/")
    text = f'#include "{name}"\n#include "{name}"\n'
    result = subprocess.run(
        [COMPILER, *flags, "-x", "c++", "-"],
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


def main():
    extra, version, known = extra_flags(), output_of(COMPILER, "--version"), read_known()
    jobs, fresh, problems, left_out = {}, {}, [], 0
    headers = source_tree.files([".h"], source_tree.ROOMS + ["include", "python", "test", "bench"])
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path in headers:
            more = extra.get(path.split("/")[0], [])
            if more is None:
                left_out += 1
                continue
            key = key_of(path, FLAGS + more, version)
            if known.get(path) == key:
                fresh[path] = key
            else:
                jobs[path] = (key, pool.submit(compile_header, path, FLAGS + more))
        for path, (key, job) in jobs.items():
            if job.result():
                problems.append(f"{path}: does not compile alone\n{job.result()}")
            else:
                fresh[path] = key
    write_known(fresh)
    summary = f"{len(headers)} headers ({len(jobs)} compiled now"
    summary += f", {left_out} left out: no nanobind or LLVM here)" if left_out else ")"
    return source_tree.report(problems, summary)


if __name__ == "__main__":
    sys.exit(main())
