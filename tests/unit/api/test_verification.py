"""Whether records are to be verified is told from one whole batch; what else may come is refused, and harms nobody."""

from struct import pack_into

import pytest

from leadline.api.verification import _header, _unverified
from leadline.errors import ClusterAuthorizationFailed, CoordinatorNotAvailable, InvalidTxnState, WireError
from tests.support.logs import batch

ONE = bytes(batch(producer_id=7, transactional=True))


@pytest.mark.parametrize("records", [ONE, memoryview(ONE), ONE + ONE[:20], ONE + ONE[:-1]])
def test_one_batch_perhaps_with_a_piece_behind_it(records: object) -> None:
    header = _header(records)
    assert header is not None
    assert (header.producer_id, header.is_transactional) == (7, True)


@pytest.mark.parametrize("records", [None, b"", ONE[:60], ONE[:-1], ONE + ONE, ONE + b"\xff" * 100, b"\0" * 100])
def test_no_batch_a_part_of_one_or_more_than_one(records: object) -> None:
    assert _header(records) is None


@pytest.mark.parametrize("length", [-(1 << 31), -100, -13, -12, -1, 0, 1, 48, 1 << 30, (1 << 31) - 1])
def test_a_length_that_is_not_its_own(length: int) -> None:
    data = bytearray(ONE)
    pack_into(">i", data, 8, length)
    assert _header(data) is None


@pytest.mark.parametrize(
    ("code", "error"), [(ClusterAuthorizationFailed.code, InvalidTxnState), (0, CoordinatorNotAvailable)]
)
def test_a_client_does_not_learn_that_this_broker_lacks_a_right(code: int, error: type[WireError]) -> None:
    assert type(_unverified(7, code)) is error
