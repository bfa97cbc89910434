"""Values as a person types them."""

import pytest

from leadline.cli.options import escaped


@pytest.mark.parametrize(
    ("typed", "meant"),
    [(r"\t", b"\t"), (r"\x01", b"\x01"), (r"\\t", b"\\t"), (":", b":"), ("→", "→".encode()), (r"a\0b", b"a\0b")],
)
def test_a_separator_may_be_typed_with_escapes(typed: str, meant: bytes) -> None:
    assert escaped(typed) == meant
