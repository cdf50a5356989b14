"""What the source checks share: which files there are, and what each includes."""

import os
import re
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROOMS = [
    "base",
    "sym",
    "abi",
    "ir",
    "loop",
    "ops",
    "frontend",
    "nn",
    "passes",
    "quant",
    "schedule",
    "codegen",
    "runtime",
    "driver",
]
FOLDERS = ROOMS + ["python", "include", "test", "bench", "examples", "scripts", "cmake"]
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def files(suffixes, folders=None):
    """Paths relative to the root, sorted, of files that end in one of the suffixes."""
    found = []
    for folder in folders or FOLDERS:
        for place, names, leaves in os.walk(os.path.join(ROOT, folder)):
            names[:] = sorted(n for n in names if not n.startswith((".", "__pycache__", "build")))
            found += [
                os.path.relpath(os.path.join(place, leaf), ROOT)
                for leaf in leaves
                if leaf.endswith(tuple(suffixes))
            ]
    return sorted(found)


def lines(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as stream:
        return stream.read().splitlines()


def includes(path):
    """(line number, quote, name) of every #include."""
    found = []
    for number, line in enumerate(lines(path), 1):
        match = INCLUDE.match(line)
        if match:
            found.append((number, match.group(1), match.group(2)))
    return found


def resolve(name):
    """The project's file that an include names, or None: it is another's."""
    for path in (name, os.path.join("include", name)):
        if os.path.isfile(os.path.join(ROOT, path)):
            return path
    return None


def closure(path):
    """The file and every project file that it includes, directly or not; sorted."""
    seen, todo = set(), [path]
    while todo:
        current = todo.pop()
        if current in seen:
            continue
        seen.add(current)
        todo += [found for _, _, name in includes(current) if (found := resolve(name))]
    return sorted(seen)


def output_of(*command):
    """What a command prints, in the root; "" where it fails or is not there."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return result.stdout


def changed_files():
    """What differs from main, and what git does not know."""
    base = output_of("git", "merge-base", "HEAD", "main").strip() or "HEAD"
    names = output_of("git", "diff", "--name-only", base).split()
    return set(names + output_of("git", "ls-files", "--others", "--exclude-standard").split())


def last_changes():
    """How many commits ago a file changed last, for the files of the last hundred commits."""
    ago, commit = {}, 0
    for line in output_of("git", "log", "-n", "100", "--format=%x2A", "--name-only").splitlines():
        commit += line == "*"
        ago.setdefault(line, commit)
    return ago


def changed_last_first(paths):
    """The order of a check that may run out of time."""
    changed, ago = changed_files(), last_changes()
    never = max(ago.values(), default=0) + 1
    return sorted(paths, key=lambda path: (path not in changed, ago.get(path, never), path))


def report(problems, checked):
    """Prints problems in the form of a compiler, and returns the exit code."""
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems in {checked}")
    return 1 if problems else 0
