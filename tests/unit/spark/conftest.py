"""The compiled part of the decoder, built once for the tests, whether it is there already or not."""

from types import ModuleType

import pytest

from leadline.spark.batches import native
from tests.support.compiled import load


@pytest.fixture(scope="session")
def native_positions(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return load(native.build(tmp_path_factory.mktemp("native")))
