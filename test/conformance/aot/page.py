"""The table of docs/aot.md."""

import collections
import os
import re

PATH = os.path.join(os.path.dirname(__file__), "../../../docs/aot.md")
STATE_NAMES = ("works", "in torch", "graph break", "refused", "not there", "other design")
Row = collections.namedtuple("Row", "number name state note error")


def rows(text):
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) != 4 or not re.fullmatch(r"T\d+", cells[0]):
            continue
        quoted = re.search(r"`([^`]+)`", cells[3])
        found.append(Row(*cells, quoted[1] if quoted else ""))
    return found


def read():
    with open(PATH) as file:
        return file.read()


STATES = {row.number: row for row in rows(read())}
