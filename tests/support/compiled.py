"""The compiled walk over records, built from the source as it is, wherever the one that runs came from."""

from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

from hatch_build import NotCompiled, compile_walker


def built_walker(folder: Path) -> ModuleType:
    try:
        loader = ExtensionFileLoader("leadline.records.compiled_walker", str(compile_walker(folder)))
    except NotCompiled as error:
        pytest.skip(f"needs a C compiler and Python's headers: {error}")
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module
