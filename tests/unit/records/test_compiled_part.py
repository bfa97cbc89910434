"""Which compiled part runs: one that was built from this source, or none."""

import sys
from types import ModuleType

import pytest

from leadline import records
from leadline.records import compiled_part


def test_what_was_built_from_an_older_source_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for interface, is_used in ((compiled_part.INTERFACE, True), (compiled_part.INTERFACE - 1, False), (None, False)):
        built = ModuleType("leadline.records.compiled_walker")
        if interface is not None:
            built.INTERFACE = interface  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, built.__name__, built)
        monkeypatch.setattr(records, "compiled_walker", built, raising=False)
        assert (compiled_part._import() is built) is is_used
