"""The topics and partitions of a request, and a response that refuses some or all of them, by the schema alone.

Pure: messages in, messages out.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from leadline.model import TopicId
from leadline.wire.classes import Message, Struct, message_class

TOPIC_NAMES, PARTITION_NAMES = ("name", "topic", "topic_name"), ("index", "partition_index", "partition")
TOPIC_LISTS, PARTITION_LISTS = ("topic_names",), ("partitions", "partition_indexes")
ERROR_CODES = ("error_code", "partition_error_code")
ALIASES = (TOPIC_NAMES, PARTITION_NAMES, ("key", "name"), ("transactional_id", "name"))


class NamedPart(NamedTuple):
    """A topic of a request, or a partition of it."""

    topic: str
    partition: int | None  # None: the request names the topic alone


TopicNames = Mapping[TopicId, str]


def parts_of(request: Message, topic_names: TopicNames) -> list[NamedPart]:
    """All topics and partitions that a request names, in its order."""
    return list(_parts(request, topic_names))


def _parts(struct: Struct, names: TopicNames) -> Iterator[NamedPart]:
    for field in struct.SPEC.fields:
        value = getattr(struct, field.name)
        if not value or not field.is_array:
            continue
        if field.struct is None:
            if field.name in TOPIC_LISTS:
                yield from (NamedPart(topic, None) for topic in value)
            continue
        for element in value:
            topic = topic_of(element, names)
            if topic is None:
                yield from _parts(element, names)
            else:
                partitions = list(_partitions(element))
                yield from (NamedPart(topic, partition) for partition in partitions or (None,))


def topic_of(element: Struct, names: TopicNames) -> str | None:
    """The topic that an element of a message is about; None if it is about something else."""
    values = {field.name: getattr(element, field.name) for field in element.SPEC.fields}
    topic = next((values[name] for name in TOPIC_NAMES if isinstance(values.get(name), str)), None)
    if not topic and values.get("topic_id") in names:
        return names[values["topic_id"]]
    is_topic = any(name in values for name in (*PARTITION_LISTS, "partition_data", "num_partitions", "topic_id"))
    return topic if topic and is_topic else None


def _partitions(element: Struct) -> Iterator[int]:
    for field in element.SPEC.fields:
        value = getattr(element, field.name)
        if not field.is_array or not value:
            continue
        if field.struct is None and field.name in PARTITION_LISTS:
            yield from value
        elif field.struct is not None:
            yield from (number for inner in value if (number := partition_of(inner)) is not None)


def partition_of(element: Struct) -> int | None:
    names = {field.name for field in element.SPEC.fields}
    return next((getattr(element, name) for name in PARTITION_NAMES if name in names), None)


Fails = Callable[[NamedPart | None], bool]  # a part of the request; None: the request as a whole


def error_response(request: Message, kind: type[Message], code: int, fails: Fails, names: TopicNames) -> Message:
    """A response that has the error for the parts that fail, and nothing for the others."""
    response = kind()
    _mirror(request, response, kind.__name__, code, fails, names, None)
    return response


def _mirror(
    source: Struct, target: Struct, message: str, code: int, fails: Fails, names: TopicNames, topic: str | None
) -> None:
    topic = topic_of(source, names) or topic
    partition = partition_of(source)
    part = None if topic is None else NamedPart(topic, partition)
    for field in target.SPEC.fields:
        if field.name in ERROR_CODES:
            setattr(target, field.name, code if fails(part) else 0)
        elif field.is_array and field.struct is not None:
            values = _elements(source, field.name)
            if values is not None:
                made = [_made(message, field.struct.name, value) for value in values]
                for value, element in zip(values, made, strict=True):
                    if isinstance(value, Struct):
                        _mirror(value, element, message, code, fails, names, topic)
                    else:
                        _name(element, value, code if fails(_scalar_part(topic, value)) else 0)
                setattr(target, field.name, made)
        elif not field.is_array and (value := _same(source, field.name)) is not None:
            setattr(target, field.name, value)


def _scalar_part(topic: str | None, value: Any) -> NamedPart | None:
    if isinstance(value, int) and topic is not None:
        return NamedPart(topic, value)
    return NamedPart(value, None) if isinstance(value, str) else None


def _made(message: str, name: str, value: Any) -> Struct:
    return message_class(message).structs[name]()


def _name(element: Struct, value: Any, code: int) -> None:
    """An element of the response for a plain number or name in the request."""
    names = PARTITION_NAMES if isinstance(value, int) else (*TOPIC_NAMES, "key")
    for field in element.SPEC.fields:
        if field.name in ERROR_CODES:
            setattr(element, field.name, code)
        elif field.name in names:
            setattr(element, field.name, value)


def _elements(source: Struct, name: str) -> list[Any] | None:
    """The array of the request that this array of the response answers."""
    arrays = {field.name: getattr(source, field.name) for field in source.SPEC.fields if field.is_array}
    if name in arrays:
        return list(arrays[name] or ())
    filled = [list(value) for key, value in arrays.items() if value and "forgotten" not in key and "config" not in key]
    return filled[0] if filled else None


def _same(source: Struct, name: str) -> Any:
    names = {field.name for field in source.SPEC.fields}
    if name in names:
        value = getattr(source, name)
        return value if isinstance(value, str | int) or name.endswith("_id") else None
    for aliases in ALIASES:
        if name in aliases:
            return next((getattr(source, alias) for alias in aliases if alias in names), None)
    return None
