"""README.md says of the comparison with eager what the samples hold."""

import comparisons


def test_readme_says_what_is_compared():
    wanted = comparisons.words(comparisons.sentence())
    message = f"README.md does not say (run test/python/comparisons.py):\n{wanted}"
    assert wanted in comparisons.words(comparisons.PATH.read_text()), message
