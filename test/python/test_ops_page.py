"""docs/ops.md says what the table of operators holds."""

import ops_page


def test_page_is_what_the_table_gives():
    message = "run test/python/ops_page.py"
    assert ops_page.PATH.read_text() == ops_page.text(), message
