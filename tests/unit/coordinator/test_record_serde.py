"""Messages in the records of internal topics, each preceded by its version."""

import pytest

from leadline.coordinator.record_serde import deserialize, serialize, version_of
from leadline.errors import CorruptMessage
from leadline.wire.messages import GroupMetadataKey


def test_a_message_follows_its_version() -> None:
    data = serialize(GroupMetadataKey(group="g"), 2)
    assert data == b"\0\2\0\1g"
    assert version_of(data) == 2
    assert deserialize(GroupMetadataKey, data) == GroupMetadataKey(group="g")


@pytest.mark.parametrize("data", [None, b"", b"\0"])
def test_a_record_without_a_version_is_corrupt(data: bytes | None) -> None:
    with pytest.raises(CorruptMessage, match="without a version"):
        version_of(data)


@pytest.mark.parametrize("data", [b"\0\x63\0\1g", b"\0\2\0\7g"])
def test_an_unsupported_version_and_a_message_that_ends_early_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptMessage):
        deserialize(GroupMetadataKey, data)
