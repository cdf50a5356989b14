"""docs/aot.md names every behaviour, and says of none what no test shows."""

import os
import re

import page


SHOWN_BY_GOLDENS = {"T88"}


def tested():
    """Numbers of the behaviours that have a test, from the names of tests."""
    found = set()
    folder = os.path.dirname(__file__)
    for name in sorted(os.listdir(folder)):
        if name.startswith("test_") and name.endswith(".py"):
            with open(os.path.join(folder, name)) as file:
                found.update(re.findall(r"^def test_(T\d+)_", file.read(), re.MULTILINE))
    return found


def test_every_behaviour_is_listed_once():
    numbers = [row.number for row in page.rows(page.read())]
    assert numbers == [f"T{number:02}" for number in range(1, 131)]


def test_states_are_known():
    assert {row.state for row in page.STATES.values()} <= set(page.STATE_NAMES)


def test_what_the_page_says_is_tested():
    shown = set(page.STATE_NAMES) - {"not there"}
    said = {number for number, row in page.STATES.items() if row.state in shown}
    assert said - tested() == SHOWN_BY_GOLDENS
    assert tested() - set(page.STATES) == set()


def test_what_is_left_out_says_why():
    assert all(row.note for row in page.STATES.values() if row.state not in ("works",))
