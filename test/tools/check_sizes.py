"""Rules of form: length of files, classes, functions and lines, names that say nothing,
unfinished work, opening comments.
`--report` prints how long the functions are."""

import re
import sys

import source_tree

MAX_FILE, MAX_CLASS, MAX_FUNCTION, MAX_COLUMNS, MAX_README = 600, 250, 80, 100, 40
CPP = (".cc", ".h")
EMPTY_NAME = re.compile(
    r"\b(?:class|struct|enum(?:\s+class)?|namespace|using)\s+"
    r"(\w*(?:Utils?|Helpers?|Managers?)\d*|\w*(?:util|helper)s?)\b\s*[:{=;]?"
)
EMPTY_FILE = re.compile(r"(?:^|_)(?:util|utils|helper|helpers|manager|misc|common)\.(?:h|cc)$")
LATER = re.compile(r"\bTO" r"DO\b(?!\(#\d+\))")
NEVER = re.compile(r"\b(?:FIX" r"ME|XX" r"X|HA" r"CK)\b")
CLASS = re.compile(r"\b(?:class|struct)\s+(\w+)")
CONTROL = re.compile(r"^\s*(?:if|for|while|switch|do|else|try|catch|return)\b")
SCOPE = re.compile(r"\b(?:namespace|class|struct|union|enum)\b|\bextern\s*\"")
TOKEN = re.compile(
    r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'
    r"(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'|//[^\n]*|/\*.*?\*/|"
    r"^[ \t]*#(?:\\\n|[^\n])*",
    re.S | re.M,
)


def bare(text):
    """The text without comments, literals and preprocessor lines; every line stays in its place."""

    def blank(match):
        kept = '""' if match.group(0)[0] in "R\"'" else " "
        return kept + "\n" * match.group(0).count("\n")

    return TOKEN.sub(blank, text)


def kind_of(head, enclosing):
    """What a brace opens, from the text before it: "function", or anything else."""
    if enclosing in ("function", "block"):
        return "block"
    if not head.strip():
        return "function"  # the body after a constructor's `member_{value}`
    if SCOPE.search(head) and "(" not in head:
        return "scope"
    opens_value = head.rstrip().endswith(("=", ",", "("))
    if "(" in head and not CONTROL.match(head) and not opens_value:
        return "function"
    return "scope"


def blocks(text, mark):
    """(mark, first line, number of lines) of what braces enclose; `mark`: of the text before them
    and the mark around them."""
    stack, head, line, head_line = [], "", 1, 1
    for character in bare(text):
        if character == "{":
            around = stack[-1][0] if stack else "scope"
            stack.append((mark(head, around), head_line if head.strip() else line))
        elif character == "}" and stack:
            found, start = stack.pop()
            yield found, start, line - start + 1
        if character in "{};":
            head = ""
        else:
            if not head.strip():
                head_line = line
            head += character
        line += character == "\n"


def functions(text):
    """(first line, number of lines) of every function; lambdas in it belong to it."""
    return [(start, length) for kind, start, length in blocks(text, kind_of) if kind == "function"]


def class_name(head, _):
    match = CLASS.search(head) if "(" not in head else None
    return match and match.group(1)


def classes(text):
    """(first line, number of lines, name) of every class and struct."""
    return [(start, length, name) for name, start, length in blocks(text, class_name) if name]


def line_problems(path, lines):
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_COLUMNS:
            yield number, f"{len(line)} columns, at most {MAX_COLUMNS}"
        if LATER.search(line):
            yield number, "unfinished work needs the number of an issue: TO" "DO(#12)"
        if NEVER.search(line):
            yield number, "unfinished work; finish it or file an issue"
        if "\t" in line:
            yield number, "a tab"
        if line != line.rstrip():
            yield number, "spaces at the end"


def cpp_problems(path, lines):
    text = "\n".join(lines)
    if not lines or not lines[0].startswith("//"):
        yield 1, "a file opens with a comment: the problem and the approach"
    for number, line in enumerate(bare(text).split("\n"), 1):
        match = EMPTY_NAME.search(line)
        if match:
            yield number, f"{match.group(1)}: a name that says nothing"
    for start, length in functions(text):
        if length > MAX_FUNCTION:
            yield start, f"a function of {length} lines, at most {MAX_FUNCTION}"
    for start, length, name in classes(text):
        if length > MAX_CLASS:
            yield start, f"{name}: a class of {length} lines, at most {MAX_CLASS}"


def problems_of(path):
    lines = source_tree.lines(path)
    if len(lines) > MAX_FILE:
        yield f"{path}:1: {len(lines)} lines, at most {MAX_FILE}"
    if EMPTY_FILE.search(path.split("/")[-1]):
        yield f"{path}:1: a file name that says nothing"
    for number, text in line_problems(path, lines):
        yield f"{path}:{number}: {text}"
    if path.endswith(CPP):
        for number, text in cpp_problems(path, lines):
            yield f"{path}:{number}: {text}"


def readme_problems():
    for path in source_tree.files(["README.md"], source_tree.ROOMS):
        count = len(source_tree.lines(path))
        if count > MAX_README:
            yield f"{path}:1: {count} lines, at most {MAX_README}"


def print_report(paths):
    lengths = sorted(
        length
        for path in paths
        if path.endswith(CPP)
        for _, length in functions("\n".join(source_tree.lines(path)))
    )
    if lengths:
        at = [lengths[min(len(lengths) - 1, len(lengths) * part // 100)] for part in (50, 90, 100)]
        print(f"{len(lengths)} functions; lines: median {at[0]}, p90 {at[1]}, longest {at[2]}")


def main():
    paths = source_tree.files([".cc", ".h", ".py", ".sh"])
    if "--report" in sys.argv:
        print_report(paths)
    problems = [problem for path in paths for problem in problems_of(path)]
    problems += readme_problems()
    return source_tree.report(problems, f"the form of {len(paths)} files")


if __name__ == "__main__":
    sys.exit(main())
