"""The garbage collector beside objects that live long."""

import asyncio
import gc
from collections.abc import Iterator

import pytest

from leadline.runtime import garbage
from leadline.runtime.garbage import LongLivedObjects, collections_off, without_collections
from tests.support.waiting import eventually


@pytest.fixture(autouse=True)
def _unfrozen() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_no_collection_runs_meanwhile() -> None:
    async def main() -> None:
        assert gc.isenabled()
        with without_collections():
            assert not gc.isenabled()
            with without_collections():
                assert not gc.isenabled()
            assert not gc.isenabled(), "the outer one lasts"
        assert gc.isenabled()

    asyncio.run(main())


def test_collections_run_again_if_the_work_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "LONGEST_S", 0.01)

    async def main() -> None:
        with without_collections():
            await eventually(gc.isenabled)

    asyncio.run(main())


@pytest.mark.parametrize("count", [10, 1000])
def test_only_many_objects_that_stay_are_frozen(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(garbage, "MANY_OBJECTS", 500)
    kept: list[list[int]] = []

    async def main() -> None:
        gc.collect()
        before = gc.get_freeze_count()
        with without_collections():
            for _ in range(10_000):
                [0].clear()
            kept.extend([] for _ in range(count))
        assert (gc.get_freeze_count() - before >= count) is (count > 500)

    asyncio.run(main())


def test_what_lives_long_is_frozen_after_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "UNFROZEN", 3)

    async def main() -> None:
        partitions, frozen = LongLivedObjects(), list[int]()
        for _ in range(6):
            gc.unfreeze()
            partitions.created()
            frozen.append(gc.get_freeze_count())
        assert [count > 0 for count in frozen] == [False, False, True, False, False, True]

    asyncio.run(main())


def test_nothing_is_frozen_in_a_process_that_others_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "UNFROZEN", 1)

    async def main() -> None:
        asyncio.get_running_loop().shares_process = True  # type: ignore[attr-defined]
        gc.unfreeze()
        LongLivedObjects().created()
        assert gc.get_freeze_count() == 0

    asyncio.run(main())


def test_collections_are_off_and_then_as_they_were() -> None:
    assert gc.isenabled()
    with collections_off():
        assert not gc.isenabled()
        with collections_off():
            assert not gc.isenabled()
        assert not gc.isenabled(), "the outer one lasts"
    assert gc.isenabled()
