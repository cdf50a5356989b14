"""Operators of the table that can have them: gradients of gradients. Each is right, or a clear
error says why there is none. A fixed part of the table; whole_table.py walks over all of it, and
for derivatives along tangents and rows at once."""

import second_gradients
import whole_table

PART = 24


def test_second_gradients():
    kind = "second"
    table = whole_table.operators(kind)
    names = [name for name in table if second_gradients.number_of(name) % PART == 1]
    found = whole_table.walk(kind, names, most=1)
    words = {name: whole_table.word_of(said) for name, said in found.items()}
    assert not {name: found[name] for name, word in words.items() if word == "wrong"}
    assert list(words.values()).count("right") > len(names) // 2
