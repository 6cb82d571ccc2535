"""pandas is loaded in a site when somebody there uses it, and not when Arrow converts its first value.

Arrow looks for pandas then, to know a Series by sight, which takes a quarter of the CPU that a site needs to load its code, while everybody
waits for it. Whoever has a Series has imported pandas, so it is enough that Arrow hears of that.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Absent(MetaPathFinder):
    """There is no pandas."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


class _Told(MetaPathFinder):
    """pandas is where it is, and Arrow hears of it when it is loaded."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "pandas":
            return None
        spec = self._found(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Telling(spec.loader, self)
        return spec

    def _found(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        """As whoever would be asked without this one has it: a packager's finder, or that of an editable install, may come first."""
        for finder in [other for other in sys.meta_path if other is not self]:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                return spec
        return None


class _Telling(Loader):
    """Loads a module as another loader does, and then has Arrow look for it, once."""

    def __init__(self, loader: Loader, finder: MetaPathFinder) -> None:
        self._loader, self._finder = loader, finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        _look()


def _look() -> None:
    """Arrow knows pandas from now on, if it is there."""
    from pyarrow.lib import _pandas_api

    _pandas_api.pd  # noqa: B018


def load_when_used() -> None:
    """From now on. Does nothing where pandas or Arrow has been used already. Not while other threads import."""
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    absent = _Absent()
    sys.meta_path.insert(0, absent)
    try:
        pa.array([None])
    finally:
        sys.meta_path.remove(absent)
    sys.meta_path.insert(0, _Told())
