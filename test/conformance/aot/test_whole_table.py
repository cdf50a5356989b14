"""Every operator of the table that can have them: gradients of gradients, derivatives along
tangents, rows at once. Each is right, or a clear error says why there is none. One sample each;
whole_table.py takes them all."""

import collections

import pytest

import whole_table

RIGHT = {"second": 640, "forward": 640, "rows": 800}


@pytest.mark.parametrize("kind", RIGHT)
def test_every_operator(kind):
    found = whole_table.walk(kind, most=1)
    words = {name: whole_table.word_of(said) for name, said in found.items()}
    assert not {name: found[name] for name, word in words.items() if word == "wrong"}
    for name, word in words.items():
        if word == "refused":  # by its own name, or that of what it is made of
            assert "[" in found[name] and "]" in found[name], found[name]
    assert collections.Counter(words.values())["right"] >= RIGHT[kind]
