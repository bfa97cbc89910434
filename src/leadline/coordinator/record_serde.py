"""Messages in the records of internal topics: each is preceded by its version.

Format: version (2), then the message.

Pure: values in, bytes out, and back.
"""

from struct import Struct
from typing import TypeVar

from leadline.errors import CorruptMessage
from leadline.wire.classes import Message
from leadline.wire.codec import decode_from, to_bytes
from leadline.wire.primitives import MalformedRequest

M = TypeVar("M", bound=Message)
_VERSION = Struct(">h")


def serialize(message: Message, version: int) -> bytes:
    return _VERSION.pack(version) + to_bytes(message, version)


def version_of(data: bytes | None) -> int:
    if data is None or len(data) < _VERSION.size:
        raise CorruptMessage("a record of an internal topic without a version")
    version: int = _VERSION.unpack_from(data)[0]
    return version


def deserialize(kind: type[M], data: bytes | None) -> M:
    """CorruptMessage if the data is not such a message, or has an unsupported version."""
    version = version_of(data)
    if data is None or version not in kind.VERSIONS:
        supported = f"{kind.VERSIONS[0]} to {kind.VERSIONS[-1]}"
        raise CorruptMessage(f"{kind.__name__} has version {version}; supported are {supported}")
    try:
        return decode_from(kind, data, version, _VERSION.size)[0]
    except MalformedRequest as error:
        raise CorruptMessage(str(error)) from None
