"""Files of properties are read as java.util.Properties reads them."""

import pytest

from leadline.config.properties import decode_properties, parse_properties, property_text


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a=1\nb: 2\nc 3\nd\t=\t4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("  indented = x y ", {"indented": "x y"}),
        ("alone\nempty=", {"alone": "", "empty": ""}),
        ("a=1\na=2", {"a": "2"}),
        ("# a=1\n! b=2\n\n  # c=3\nd=4", {"d": "4"}),
        ("url=a=b:c", {"url": "a=b:c"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=one\u2028two", {"a": "one\u2028two"}),
    ],
)
def test_a_line_is_a_key_and_a_value(text: str, properties: dict[str, str]) -> None:
    assert parse_properties(text) == properties


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        (r"a\=b=c", {"a=b": "c"}),
        (r"tab=x\ty", {"tab": "x\ty"}),
        (r"letter=\u00e4", {"letter": "ä"}),
        (r"path=C:\\logs", {"path": "C:\\logs"}),
        (r"other=\q", {"other": "q"}),
        ("blank=x\\ \t", {"blank": "x"}),  # Kafka trims what Java's properties keep
    ],
)
def test_a_backslash_escapes_the_next_character(text: str, properties: dict[str, str]) -> None:
    assert parse_properties(text) == properties


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("list=a,\\\n    b,\\\r\n\tc\nd=1", {"list": "a,b,c", "d": "1"}),
        ("a=x\\\n# y\nb=1", {"a": "x# y", "b": "1"}),
        ("a=x\\\n\nb=1", {"a": "x", "b": "1"}),
        ("a=x\\", {"a": "x"}),
    ],
)
def test_a_backslash_at_the_end_continues_the_line(text: str, properties: dict[str, str]) -> None:
    assert parse_properties(text) == properties


def test_a_comment_is_not_continued() -> None:
    assert parse_properties("# C:\\\na=1") == {"a": "1"}


def test_an_escaped_backslash_at_the_end_does_not_continue_the_line() -> None:
    assert parse_properties("path=C:\\\\\na=1") == {"path": "C:\\", "a": "1"}


WRITTEN = ["plain", "a b", " a", "=a", ":a", "C:\\x", "a\\", "1\n2\t3\r4", 'x="y";', "", "größe", "\u4e16\U0001f600"]


@pytest.mark.parametrize("value", WRITTEN)
def test_a_value_that_is_written_is_read_again(value: str) -> None:
    content = f"# first\nname={property_text(value)}\nother=1\n".encode("ascii")
    assert decode_properties(content) == {"name": value, "other": "1"}


def test_a_file_is_read_as_java_reads_it() -> None:
    assert decode_properties(b"a=gr\xfcn") == {"a": "gr\xfcn"}
    assert decode_properties("a=gr\xfcn".encode()) == {"a": "gr\xc3\xbcn"}
    assert decode_properties(rb"a=\ud83d\ude00 \ud83d") == {"a": "\U0001f600 \ufffd"}
