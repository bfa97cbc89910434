"""How a line becomes a record."""

import io

import pytest

from leadline.cli.client import Failure
from leadline.cli.produce import Layout, Line, lines_in


@pytest.mark.parametrize(
    ("layout", "line", "record"),
    [
        (Layout(), b"a:b", Line(None, b"a:b", [])),
        (Layout(), b"", Line(None, b"", [])),
        (Layout(key_separator=b":"), b"a:b:c", Line(b"a", b"b:c", [])),
        (Layout(key_separator=b"::"), b"a::", Line(b"a", b"", [])),
        (Layout(key_separator=b":", null_marker=b"NULL"), b"a:NULL", Line(b"a", None, [])),
        (Layout(key_separator=b":", null_marker=b"NULL"), b"NULL:b", Line(None, b"b", [])),
        (Layout(parse_headers=True), b"h:1,i:2:3\tv\tw", Line(None, b"v\tw", [("h", b"1"), ("i", b"2:3")])),
        (Layout(parse_headers=True), b"\tv", Line(None, b"v", [])),
        (Layout(b"\t", True, null_marker=b"-"), b"h:-\tk\tv", Line(b"k", b"v", [("h", None)])),
        (Layout(b"\t", True, null_marker=b"-"), b"-\t-\t-", Line(None, None, [])),
        (Layout(None, True, b"|", b";", b"="), b"h=1;i=2|v", Line(None, b"v", [("h", b"1"), ("i", b"2")])),
    ],
)
def test_a_line_holds_headers_key_and_value_as_the_options_say(layout: Layout, line: bytes, record: Line) -> None:
    assert layout.parse(line, 1) == record


@pytest.mark.parametrize(
    ("layout", "line", "said"),
    [
        (Layout(key_separator=b":"), b"abc", "line 7: no key separator ':' in 'abc'"),
        (Layout(parse_headers=True), b"a:1", "line 7: no '\\\\t' behind the headers in 'a:1'"),
        (Layout(parse_headers=True), b"a\tv", "line 7: no ':' in the header 'a'"),
    ],
)
def test_a_line_that_lacks_a_part_is_named(layout: Layout, line: bytes, said: str) -> None:
    with pytest.raises(Failure, match=said):
        layout.parse(line, 7)


def test_lines_end_with_either_line_end_or_with_the_file() -> None:
    stream = io.BytesIO(b"a\nb\r\n\n\xff")
    assert [line.value for line in lines_in(stream, Layout())] == [b"a", b"b", b"", b"\xff"]
