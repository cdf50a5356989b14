"""Every behaviour has a test, and the page says what the table says."""

import pathlib
import re

import page
from behaviours import BEHAVIOURS, MISSING

HERE = pathlib.Path(__file__).parent


def test_page_is_what_the_table_gives():
    assert page.PATH.read_text() == page.text(), "run test/conformance/quant/page.py"


def test_every_behaviour_has_a_test():
    named = set()
    for path in HERE.glob("test_*.py"):
        named.update(re.findall(r'behaviour\("(\w+)"(?:, "([^"]*)")?\)', path.read_text()))
    assert {number for number, _ in named} == set(BEHAVIOURS)
    assert set(MISSING) <= named
