"""The JSON of nodes: written as Jackson writes it, and read with a check of every type."""

import pytest

from leadline.coordination.node_json import Fields, MalformedNode, dumps, integer_of, loads

PATH = "/node"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": 1, "b": [True, None]}, b'{"a":1,"b":[true,null]}'),
        ({"a": "\x1f\u2028é"}, '{"a":"\\u001F\u2028é"}'.encode()),
        ({"a": 'quote " and \\u00ff'}, b'{"a":"quote \\" and \\\\u00ff"}'),
        ({"a": "\U0001f600"}, b'{"a":"\\uD83D\\uDE00"}'),
        ({"a": "\ud800"}, b'{"a":"\\uD800"}'),
    ],
)
def test_text_is_escaped_as_jackson_escapes_it_and_read_back(value: dict[str, object], text: bytes) -> None:
    assert dumps(value) == text
    for name in value:
        if isinstance(value[name], str):
            assert loads(PATH, text).string(name) == value[name]


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"1", b"{", b"\xff", b'{"a":NaN}', b'{"a":' * 100_000], ids=lambda data: repr(data[:8])
)
def test_data_that_is_no_object_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedNode, match=f"{PATH}: "):
        loads(PATH, data)


FIELDS = loads(
    PATH,
    b'{"int":5,"big":2147483648,"bool":true,"text":"x","null":null,"list":[1,2],"mixed":[1,"x"],"long":"-7",'
    b'"huge":"9223372036854775808","in":{"int":1.5,"objects":[{"a":1},2]}}',
)


def test_fields_have_their_types() -> None:
    assert (FIELDS.integer("int"), FIELDS.string("text"), FIELDS.long("long")) == (5, "x", -7)
    assert (FIELDS.integers("list"), "int" in FIELDS, "missing" in FIELDS) == ((1, 2), True, False)
    assert FIELDS.fields("missing").names() == []


def test_a_field_that_is_missing_or_null_has_its_default() -> None:
    for name in ("missing", "null"):
        assert FIELDS.integer(name, -1) == -1
        assert FIELDS.integers(name, (3,)) == (3,)
        assert FIELDS.string(name, "d") == "d"
        assert FIELDS.long(name, "12") == 12


@pytest.mark.parametrize(
    ("getter", "name", "problem"),
    [
        (Fields.integer, "missing", "missing is missing"),
        (Fields.integer, "null", "null is missing"),
        (Fields.integer, "big", "big is not an integer of 32 bits but 2147483648"),
        (Fields.integer, "bool", "bool is not an integer of 32 bits but True"),
        (Fields.string, "int", "int is not a string but 5"),
        (Fields.strings, "list", "list is not a string but 1"),
        (Fields.integers, "text", "text is not a list but 'x'"),
        (Fields.integers, "mixed", "mixed is not an integer of 32 bits but 'x'"),
        (Fields.long, "huge", "huge is not an integer of 64 bits but '9223372036854775808'"),
        (Fields.long, "text", "text is not an integer of 64 bits but 'x'"),
        (Fields.fields, "list", r"list is not an object but \[1, 2\]"),
    ],
)
def test_the_error_names_path_and_field(getter: object, name: str, problem: str) -> None:
    assert callable(getter)
    with pytest.raises(MalformedNode, match=f"^{PATH}: {problem}$"):
        getter(FIELDS, name)


def test_the_error_names_a_field_within_an_object_by_both_names() -> None:
    inner = FIELDS.fields("in")
    with pytest.raises(MalformedNode, match=r"in\.int is not an integer"):
        inner.integer("int")
    with pytest.raises(MalformedNode, match=r"in\.objects is not an object but 2"):
        inner.list_of_fields("objects")


@pytest.mark.parametrize(("text", "number"), [("12", 12), ("-0", 0), ("+3", 3)])
def test_decimal_digits_with_a_sign_are_an_integer(text: str, number: int) -> None:
    assert integer_of(text) == number


@pytest.mark.parametrize("text", ["", "1_0", " 1", "1 ", "0x1", "1.0", "٣", "1" * 20])
def test_nothing_else_that_python_reads_is_an_integer(text: str) -> None:
    assert integer_of(text) is None
