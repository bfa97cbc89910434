"""The compiled part of Leadline, if it was built: `hatch_build.py` builds it, with `make start` and into the wheel.

One that was built from an older source is not used.

Pure: imports.
"""

from types import ModuleType
from typing import TYPE_CHECKING

INTERFACE = 2  # as in compiled_walker.c


def _import() -> ModuleType | None:
    try:
        from leadline.records import compiled_walker
    except ImportError:  # not built
        return None
    return compiled_walker if getattr(compiled_walker, "INTERFACE", 1) == INTERFACE else None


if TYPE_CHECKING:
    from leadline.records import compiled_walker as compiled_walker
else:
    compiled_walker = _import()
