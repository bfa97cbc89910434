"""Names in the messages of SASL mechanisms: `,` is written as =2C and `=` as =3D (RFC 5802).

Pure: bytes in and out.

    a name is checked in one pass of compiled code: it comes from a client that is not known yet, and may be long
"""

SASL_NAME = rb"[\x01-\x2b\x2d-\x7f]++"  # in a pattern; `is_escaped` then says whether it is one


def is_escaped(name: bytes) -> bool:
    """Whether each `=` is part of =2C or =3D."""
    return name.count(b"=") == name.count(b"=2C") + name.count(b"=3D")


def encoded(name: str) -> bytes:
    return name.replace("=", "=3D").replace(",", "=2C").encode()


def decoded(name: bytes) -> str:
    return name.replace(b"=2C", b",").replace(b"=3D", b"=").decode()
