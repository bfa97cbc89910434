"""Names in messages of SASL."""

import pytest

from leadline.security.sasl_names import decoded, encoded, is_escaped


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("alice", b"alice"),
        ("a,b", b"a=2Cb"),
        ("a=b", b"a=3Db"),
        ("=2C", b"=3D2C"),
        (",=,", b"=2C=3D=2C"),
    ],
)
def test_a_name_is_written_without_commas_and_read_again(name: str, text: bytes) -> None:
    assert encoded(name) == text
    assert decoded(text) == name
    assert is_escaped(text)


@pytest.mark.parametrize("text", [b"=", b"a=b", b"=2c", b"=3d", b"=2", b"==2C", b"=2C=", b"=2=2CC"])
def test_an_equals_sign_that_escapes_nothing_is_none_of_a_name(text: bytes) -> None:
    assert not is_escaped(text)
