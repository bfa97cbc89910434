"""The name in a certificate, as Java's X500Principal.getName() writes it (RFC 2253): the principal of an SSL listener.

Pure: DER in, text out.

    the last RDN comes first; RDNs are joined by `,` and the attributes of one by `+`, without spaces
    CN C L ST O OU STREET DC UID have keywords; any other attribute is <dotted oid>=#<hex of the DER value>
    a value that is no string is written as #<hex>, too; strings of all kinds are read as UTF-8, as Java reads them
    `, = + < > # ; " \\` are escaped with a backslash, so are spaces and \\r at either end; NUL is \\00

`canonical_name` is what Java compares two names by: in lower case, with single spaces.
"""

import unicodedata
from collections.abc import Iterator
from typing import NoReturn

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_UTF8, _PRINTABLE = 0x0C, 0x13
_STRINGS = {_UTF8, _PRINTABLE, 0x14, 0x16, 0x1B, 0x1C, 0x1E}  # and T61, IA5, General, Universal, BMP
_ESCAPED = ',=+<>#;"\\'
_VERSION_TAG = 0xA0

_Element = tuple[int, bytes, bytes]  # tag, content and whole
_Attribute = tuple[str, int, bytes, bytes]  # dotted oid, tag, content and whole of the value


class InvalidName(ValueError):
    """Bytes that are not a certificate or not a name."""


def subject_name(certificate: bytes) -> str:
    """The subject of a certificate in DER."""
    return name_text(subject_of(certificate))


def subject_of(certificate: bytes) -> bytes:
    """The DER of the subject."""
    return _field(certificate, 4)


def issuer_of(certificate: bytes) -> bytes:
    """The DER of the issuer's name."""
    return _field(certificate, 2)


def _field(certificate: bytes, number: int) -> bytes:
    """One of the fields serial number, algorithm, issuer, validity and subject. A version may stand before them."""
    (_, outer, _), *_ = _elements(certificate) or _cut_off()
    (_, fields, _), *_ = _elements(outer) or _cut_off()
    elements = _elements(fields)
    at = number + (bool(elements) and elements[0][0] == _VERSION_TAG)
    if len(elements) <= at:
        raise InvalidName("a certificate without a name")
    return elements[at][2]


def name_text(name: bytes) -> str:
    """A name in DER as text."""
    return ",".join("+".join(map(_text, rdn)) for rdn in reversed(list(_rdns(name))))


def canonical_name(name: bytes) -> str:
    return ",".join("+".join(sorted(map(_canonical, rdn))) for rdn in reversed(list(_rdns(name))))


def _rdns(name: bytes) -> Iterator[list[_Attribute]]:
    (_, rdns, _), *_ = _elements(name) or _cut_off()
    for _, rdn, _ in _elements(rdns):
        yield [_attribute(attribute) for _, attribute, _ in _elements(rdn)]


def _attribute(data: bytes) -> _Attribute:
    elements = _elements(data)
    if len(elements) != 2:
        raise InvalidName("an attribute of a name has a type and a value")
    (_, oid, _), (tag, value, whole) = elements
    return _dotted(oid), tag, value, whole


def _text(attribute: _Attribute) -> str:
    oid, tag, value, whole = attribute
    keyword = _KEYWORDS.get(oid)
    if keyword is None or tag not in _STRINGS:
        return f"{keyword or oid}=#{whole.hex()}"
    text = "".join(map(_escaped, value.decode("utf-8", "replace")))
    lead = len(text) - len(text.lstrip(" \r"))
    trail = max(len(text.rstrip(" \r")), lead)
    edges = ("".join(f"\\{blank}" for blank in blanks) for blanks in (text[:lead], text[trail:]))
    return f"{keyword}={text[lead:trail].join(edges)}"


def _escaped(character: str) -> str:
    if character == "\0":
        return "\\00"
    return f"\\{character}" if character in _ESCAPED else character


def _canonical(attribute: _Attribute) -> str:
    oid, tag, value, whole = attribute
    keyword = _KEYWORDS.get(oid)
    if keyword is None or tag not in (_UTF8, _PRINTABLE):
        return f"{(keyword or oid).lower()}=#{whole.hex()}"
    words = value.decode("utf-8", "replace").split()
    text = "".join(map(_escaped, unicodedata.normalize("NFKD", " ".join(words).lower())))
    return f"{keyword.lower()}={text}"


def _elements(data: bytes) -> list[_Element]:
    """The DER values one after another."""
    elements, at = list[_Element](), 0
    while at < len(data):
        try:
            start, tag, length, at = at, data[at], data[at + 1], at + 2
        except IndexError:
            _cut_off()
        if length >= 0x80:
            size = length & 0x7F
            length, at = int.from_bytes(data[at : at + size], "big"), at + size
        if at + length > len(data):
            _cut_off()
        elements.append((tag, data[at : at + length], data[start : at + length]))
        at += length
    return elements


def _cut_off() -> NoReturn:
    raise InvalidName("DER that is cut off")


def _dotted(oid: bytes) -> str:
    numbers, value = list[int](), 0
    for byte in oid:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    if not numbers:
        raise InvalidName("an object identifier without numbers")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))
