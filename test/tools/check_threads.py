"""Rooms that ThreadSanitizer does not see hold nothing that threads share.

The tsan preset compiles the rooms of TANDEM_THREADED_ROOMS (cmake/rooms.cmake) and takes the others
from the release build, where a race would go unseen. These are functions over data: no variable
that lives longer than a call and may change, and nothing that threads lock. What fills once, while
a constant is made, says so at the end of its line: `// filled once`."""

import os
import re
import sys

import source_tree

LIVES_ON = re.compile(r"\s*(?:inline )?(?:static|thread_local)\s")
OTHERS = "using|class|struct|enum|return|extern|friend|namespace|typedef|template|else|goto"
GLOBAL = re.compile(
    rf"(?:inline )?(?!(?:{OTHERS})\b)[A-Za-z_][\w:<>, *&]*\s\w+(?: = .*|\{{.*\}})?;$"
)
LOCKS = re.compile(r"\bstd::(?:mutex|shared_mutex|recursive_mutex|atomic\w*|once_flag|call_once)\b")
ONCE = "// filled once"


def threaded_rooms():
    with open(os.path.join(source_tree.ROOT, "cmake", "rooms.cmake"), encoding="utf-8") as stream:
        return re.search(r"set\(TANDEM_THREADED_ROOMS ([\w ]+)\)", stream.read()).group(1).split()


def is_shared(line):
    """Whether a line of C++ defines what outlives a call and may change, or what threads lock."""
    code = line.partition("//")[0].rstrip()
    if LOCKS.search(code):
        return True
    declared = re.split(r"[={]", code)[0]
    if re.search(r"\bconst(?:expr|init)?\b", declared) or "(" in declared:
        return False
    return bool(LIVES_ON.match(code) or GLOBAL.match(code))


def problems_of(path):
    for number, line in enumerate(source_tree.lines(path), 1):
        if is_shared(line) and ONCE not in line:
            yield f"{path}:{number}: threads share this, and the tsan preset does not see it"


def main():
    rooms = [room for room in source_tree.ROOMS if room not in threaded_rooms()]
    files = source_tree.files([".cc", ".h"], rooms)
    problems = [problem for path in files for problem in problems_of(path)]
    return source_tree.report(problems, f"{len(files)} files of {len(rooms)} rooms without threads")


if __name__ == "__main__":
    sys.exit(main())
