"""Java's patterns and replacements in Python's. Rules that use them are compared with Kafka's in tests/conformance."""

import re

import pytest

from leadline.security.java_patterns import python_pattern, replaced


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("a.c", "abc", True),
        ("a.c", "a\u2028c", False),
        ("a[.]c", "abc", False),
        (r"a\.c", "a.c", True),
        (r"\Qa.c\E+", "a.cc", True),
        (r"\Qa.c", "a.c", True),
        (r"(?<name>a)\z", "a", True),
        (r"(?<=x)a", "a", False),
        (r"a\Z\n?", "a\n", True),
        (r"a\/b", "a/b", True),
    ],
)
def test_a_pattern_matches_what_it_matches_in_java(pattern: str, text: str, matches: bool) -> None:
    assert (re.fullmatch(python_pattern(pattern), text) is not None) is matches


@pytest.mark.parametrize("pattern", [r"\p{Alpha}", r"\h", r"\R", r"\k<name>", "[a-z&&x]", "[a[b]]"])
def test_what_python_has_no_equal_for_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="is not supported"):
        python_pattern(pattern)


@pytest.mark.parametrize(
    ("replacement", "result"),
    [("$1-$2", "a-b"), ("$12", "a2"), ("$0", "ab"), (r"\$1", "$1"), ("$3", ""), ("$9", "$9"), ("$", "$"), ("\\", "\\")],
)
def test_a_replacement_names_groups_by_number(replacement: str, result: str) -> None:
    match = re.fullmatch("(a)(b)(c)?", "ab")
    assert match is not None
    assert replaced(replacement, match) == result
