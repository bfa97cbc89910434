"""A secret never shows."""

import logging
import pickle
from dataclasses import dataclass

import pytest

from leadline.security.secret import Secret


@dataclass(frozen=True)
class Holder:
    password: Secret


def test_neither_text_nor_repr_nor_format_shows_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    secret = Secret.of("hunter2")
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("t").debug("%s %r %s", secret, Holder(secret), {"k": [secret]})
    shown = f"{secret} {secret!r} {secret:>20} {Holder(secret)} {[secret]} {vars(Holder(secret))} {caplog.text}"
    assert "hunter2" not in shown
    assert "[hidden]" in shown


def test_a_secret_is_not_pickled() -> None:
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(Secret(b"x"))


@pytest.mark.parametrize("text", ["", "pässwörd", "\ud800", "a\0b"])
def test_a_text_comes_back_as_it_was(text: str) -> None:
    assert Secret.of(text).reveal_text() == text


def test_equal_bytes_are_equal_secrets() -> None:
    assert Secret.of("a") == Secret(b"a")
    assert hash(Secret.of("a")) == hash(Secret(b"a"))
    assert Secret.of("a") != Secret.of("ab")
    assert Secret.of("a") != "a"
    assert not Secret(b"")
