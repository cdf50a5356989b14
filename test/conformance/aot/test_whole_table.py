"""Operators of the table: second gradients, third ones, derivatives along tangents, rows at once.
Each is right, or a clear error says why there is none. A fixed part of the table; whole_table.py
walks over all of it."""

import pytest
import second_gradients
import whole_table

PART = 24


@pytest.mark.parametrize("kind", whole_table.KINDS)
def test_a_part_of_the_table(kind):
    table = whole_table.operators(kind)
    names = [name for name in table if second_gradients.number_of(name) % PART == 1]
    found = whole_table.walk(kind, names, most=1)
    words = {name: whole_table.word_of(said) for name, said in found.items()}
    assert not {name: found[name] for name, word in words.items() if word == "wrong"}
    counts = list(words.values())
    # Third derivatives of what is linear or piecewise so are none.
    assert counts.count("right") > len(names) // (4 if kind == "third" else 2)


def test_eagers_third_derivatives_are_wrong():
    """Of norms: ours are those of differences, and eager's are not."""
    table = whole_table.operators("third")
    for name in whole_table.EAGERS_THIRD_IS_WRONG:
        is_right = []
        for text in table[name].samples[:2]:
            call = whole_table.OneCall(table[name], text)
            by = call, call.in_eager, whole_table.weighted_second_gradients
            is_right.append(whole_table.by_differences(*by) is None)
            by = call, call.compiled(), whole_table.weighted_second_gradients
            assert whole_table.by_differences(*by) is None, (name, text)
        assert not all(is_right), name
