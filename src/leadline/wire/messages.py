"""All messages of the protocol: `from leadline.wire.messages import FetchRequest`.

Each class is made when it is first asked for. What they look like to a type checker is in messages.pyi, which
`python -m leadline.wire.stubs` writes.
"""

from leadline.wire import schema
from leadline.wire.classes import Message, message_class


def __getattr__(name: str) -> type[Message]:
    if name.startswith("_") or name not in schema.heads():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}: there is no such message")
    kind = globals()[name] = message_class(name)
    return kind


def __dir__() -> list[str]:
    return list(schema.heads())
