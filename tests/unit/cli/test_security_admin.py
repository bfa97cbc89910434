"""Requests about security: the errors of brokers in words that a user can act on."""

import pytest

from leadline.cli.security_admin import error_text


@pytest.mark.parametrize(
    ("code", "message", "text"),
    [
        (31, None, "Cluster authorization failed (CLUSTER_AUTHORIZATION_FAILED)"),
        (31, "Not you.", "Not you (CLUSTER_AUTHORIZATION_FAILED)"),
        (10, None, "the broker refuses it (MESSAGE_TOO_LARGE)"),
        (56, None, "the broker refuses it (KAFKA_STORAGE_ERROR)"),
        (999, None, "the broker refuses it (error 999)"),
    ],
)
def test_an_error_has_the_brokers_words_or_ours_and_kafkas_name(code: int, message: str | None, text: str) -> None:
    assert error_text(code, message) == text
