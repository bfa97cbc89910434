"""How a line becomes a record."""

import io

import pytest

from leadline.admin.errors import Failure
from leadline.cli.produce.lines import LineLayout, ParsedLine, lines_in


@pytest.mark.parametrize(
    ("layout", "line", "record"),
    [
        (LineLayout(), b"a:b", ParsedLine(None, b"a:b", [])),
        (LineLayout(), b"", ParsedLine(None, b"", [])),
        (LineLayout(key_separator=b":"), b"a:b:c", ParsedLine(b"a", b"b:c", [])),
        (LineLayout(key_separator=b"::"), b"a::", ParsedLine(b"a", b"", [])),
        (LineLayout(key_separator=b":", null_marker=b"NULL"), b"a:NULL", ParsedLine(b"a", None, [])),
        (LineLayout(key_separator=b":", null_marker=b"NULL"), b"NULL:b", ParsedLine(None, b"b", [])),
        (LineLayout(parse_headers=True), b"h:1,i:2:3\tv\tw", ParsedLine(None, b"v\tw", [("h", b"1"), ("i", b"2:3")])),
        (LineLayout(parse_headers=True), b"\tv", ParsedLine(None, b"v", [])),
        (LineLayout(b"\t", True, null_marker=b"-"), b"h:-\tk\tv", ParsedLine(b"k", b"v", [("h", None)])),
        (LineLayout(b"\t", True, null_marker=b"-"), b"-\t-\t-", ParsedLine(None, None, [])),
        (LineLayout(None, True, b"|", b";", b"="), b"h=1;i=2|v", ParsedLine(None, b"v", [("h", b"1"), ("i", b"2")])),
    ],
)
def test_a_line_holds_headers_key_and_value_as_the_options_say(
    layout: LineLayout, line: bytes, record: ParsedLine
) -> None:
    assert layout.parse(line, 1) == record


@pytest.mark.parametrize(
    ("layout", "line", "message"),
    [
        (LineLayout(key_separator=b":"), b"abc", "line 7: no key separator ':' in 'abc'"),
        (LineLayout(parse_headers=True), b"a:1", "line 7: no '\\\\t' after the headers in 'a:1'"),
        (LineLayout(parse_headers=True), b"a\tv", "line 7: no ':' in the header 'a'"),
    ],
)
def test_a_line_that_lacks_a_part_is_named(layout: LineLayout, line: bytes, message: str) -> None:
    with pytest.raises(Failure, match=message):
        layout.parse(line, 7)


def test_lines_end_with_either_line_end_or_with_the_file() -> None:
    stream = io.BytesIO(b"a\nb\r\n\n\xff")
    assert [line.value for line in lines_in(stream, LineLayout())] == [b"a", b"b", b"", b"\xff"]
