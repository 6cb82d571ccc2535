"""Client libraries that only some dataflows need, which are extras of the package."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from evenflow.errors import QueryError


def extra(module: str, system: str, package: str, name: str) -> Any:
    """The module, for a system. package: that has it; name: of the extra. Raises QueryError if it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise QueryError(
            f"{system} needs the package {package}, in the driver and on the executors: pip install 'evenflow[{name}]'"
        ) from error
