"""Files that prose names exist: in the docs, the READMEs and the comments of C++ sources.

A name is a path from the root or from the file that names it, or the end of a path: of a file of
the same room where a room says it, of any file where a page outside of rooms does. `*` stands for
anything. In the listings of a page a name without a folder is the reader's own file."""

import fnmatch
import os
import re
import sys

import source_tree

# Of a name without a folder only these: mlp.tir is a program of the reader's.
SOURCES = r"cc|h|py|sh|cmake|md"
NAME = re.compile(
    r"(?<![\w./*<>$~{}…-])"
    r"(?:(?:[\w*.-]+/)+[\w*.-]*\.(?:tir|txt|json|toml|in|" + SOURCES + r")"
    r"|[\w*][\w*.-]*\.(?:" + SOURCES + r"))"
    r"(?![\w/*-]|:\d|\.\w)"
)
# Not of the repository: what is built, and names that stand for a file that the reader makes.
NOT_OURS = ("build/", "room/", "test/room/", "examples/x.", "bench/x.")
# docs/add-a-pass.md writes this pass.
NOT_OURS += ("passes/sink_factories.", "test/golden/passes/sink_factories/")
# Ends of names, of files that a room may have.
NOT_OURS += ("_test.", "_slow_test.", "*_slow_test.")


def listed_files():
    """Every file, relative to the root."""
    top = [n for n in os.listdir(source_tree.ROOT) if os.path.isfile(f"{source_tree.ROOT}/{n}")]
    return sorted(top) + source_tree.files([""], source_tree.FOLDERS + ["docs", ".ci"])


def names_of_page(lines):
    """(line number, name) of a Markdown page."""
    listing = False
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            listing = not listing
        for name in NAME.findall(line):
            if not listing or "/" in name:
                yield number, name


def names_of_comments(lines):
    """(line number, name) of the comments of a C++ file."""
    for number, line in enumerate(lines, 1):
        _, slashes, comment = line.partition("//")
        if slashes:
            for name in NAME.findall(comment):
                yield number, name


def room_of(path):
    """The folder in which a file may leave folders out; "" is all of them."""
    first = path.split("/")[0]
    return first + "/" if first in source_tree.FOLDERS else ""


class Tree:
    """The files of the repository, found by the ends of their paths."""

    def __init__(self, paths):
        self.paths, self.by_leaf = set(paths), {}
        for path in paths:
            self.by_leaf.setdefault(path.split("/")[-1], []).append(path)

    def candidates(self, name):
        leaf = name.split("/")[-1]
        if "*" not in leaf:
            return self.by_leaf.get(leaf, [])
        return [p for key in fnmatch.filter(self.by_leaf, leaf) for p in self.by_leaf[key]]

    def has(self, name, path):
        """Whether the name, as `path` uses it, is a file."""
        near = os.path.normpath(os.path.join(os.path.dirname(path), name))
        if name in self.paths or near in self.paths:
            return True
        room = room_of(path)
        return any(
            fnmatch.fnmatchcase(found, name)
            or (found.startswith(room) and fnmatch.fnmatchcase(found, "*/" + name))
            for found in self.candidates(name)
        )


def problems_of(path, names, tree):
    for number, name in names:
        if not name.startswith(NOT_OURS) and not tree.has(name, path):
            where = f"in {room_of(path)}" if room_of(path) else "here"
            yield f"{path}:{number}: {name}: no file of that name {where}"


def main():
    paths = listed_files()
    tree, problems, count = Tree(paths), [], 0
    for path in paths:
        if path.endswith((".cc", ".h")):
            names = names_of_comments(source_tree.lines(path))
        elif path.endswith(".md"):
            names = names_of_page(source_tree.lines(path))
        else:
            continue
        names = list(names)
        count += len(names)
        problems += problems_of(path, names, tree)
    return source_tree.report(problems, f"{count} names of files in prose")


if __name__ == "__main__":
    sys.exit(main())
