"""The compiled part of the decoder, from wherever it was built to."""

from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType


def load(path: Path) -> ModuleType:
    loader = ExtensionFileLoader("leadline.spark.batches.native_positions", str(path))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module
