"""Statistics as JSON and back. The form is the dataclasses' own: an object per window with the names of its fields."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from evenflow.errors import StatisticsError
from evenflow.statistics.window import BoxWindow, Latency, SegmentWindow, SiteWindow, SourceWindow

T = TypeVar("T")


Fields = tuple[int, int, tuple[SiteWindow, ...]]
"""Those of `Statistics`: begin and end in microseconds, and a window per site."""


def to_json(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"))


def from_json(text: str) -> Fields:
    """Raises StatisticsError naming the field that is missing or wrong."""
    try:
        data = json.loads(text)
    except RecursionError:
        raise StatisticsError("this JSON is nested too deeply; `evenflow run --statistics FILE` writes what is expected") from None
    except (ValueError, TypeError) as error:
        raise StatisticsError(f"this is no JSON ({error}); `evenflow run --statistics FILE` writes what is expected") from None
    return _statistics(data, "statistics")


def _statistics(data: Any, at: str) -> Fields:
    sites = _each(data, "sites", at, _site)
    indices = [window.site for window in sites]
    if indices != sorted(set(indices)):
        raise StatisticsError(f"{at}.sites must be by site, each once; it has {indices}")
    return _integer(data, "begin_us", at, signed=True), _integer(data, "end_us", at, signed=True), sites


def _site(data: Any, at: str) -> SiteWindow:
    free = None if _field(data, "free_bytes", at) is None else _integer(data, "free_bytes", at, signed=True)
    return SiteWindow(
        site=_integer(data, "site", at),
        begin_us=_integer(data, "begin_us", at, signed=True),
        end_us=_integer(data, "end_us", at, signed=True),
        busy_us=_integer(data, "busy_us", at),
        free_bytes=free,
        pool_bytes=_integer(data, "pool_bytes", at),
        spilled_bytes=_integer(data, "spilled_bytes", at),
        segments=_each(data, "segments", at, _segment),
        latency=_latency(_field(data, "latency", at), f"{at}.latency"),
        sources=_each(data, "sources", at, _source) if "sources" in data else (),
    )


def _segment(data: Any, at: str) -> SegmentWindow:
    return SegmentWindow(
        _integer(data, "segment", at),
        _name(data, at),
        _integers(data, "partitions", at),
        _integers(data, "rows", at),
        _integers(data, "state_bytes", at),
        _integer(data, "busy_us", at),
        _each(data, "boxes", at, _box),
        _integers(data, "on_disk", at) if "on_disk" in data else (),
        _pairs(data, "arc_rows", at) if "arc_rows" in data else (),
    )


def _source(data: Any, at: str) -> SourceWindow:
    behind = None if _field(data, "behind", at) is None else _integer(data, "behind", at)
    return SourceWindow(
        _text(data, "source", at),
        _integer(data, "segment", at),
        _integer(data, "partition", at),
        _integer(data, "offered", at),
        _integer(data, "kept", at),
        _integers(data, "dropped", at),
        behind,
        _integer(data, "waited_us", at),
    )


def _box(data: Any, at: str) -> BoxWindow:
    return BoxWindow(
        _name(data, at),
        _integer(data, "rows_in", at),
        _integer(data, "rows_out", at),
        _integer(data, "busy_us", at),
        _integer(data, "rows_failed", at) if "rows_failed" in data else 0,
    )


def _latency(data: Any, at: str) -> Latency:
    return Latency(_integer(data, "p50_us", at), _integer(data, "p99_us", at), _integer(data, "count", at))


def _field(data: Any, name: str, at: str) -> Any:
    if not isinstance(data, dict):
        raise StatisticsError(f"{at} must be an object, not {data!r:.60}")
    if name not in data:
        raise StatisticsError(f"{at} has no field {name!r}; it has {', '.join(sorted(data)) or 'none'}")
    return data[name]


def _number(value: Any, at: str, signed: bool = False) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or (value < 0 and not signed):
        raise StatisticsError(f"{at} must be a whole number{'' if signed else ' >= 0'}, not {value!r:.60}")
    return value


def _integer(data: Any, name: str, at: str, *, signed: bool = False) -> int:
    return _number(_field(data, name, at), f"{at}.{name}", signed)


def _list(data: Any, name: str, at: str) -> list[Any]:
    value = _field(data, name, at)
    if not isinstance(value, list):
        raise StatisticsError(f"{at}.{name} must be a list, not {value!r:.60}")
    return value


def _integers(data: Any, name: str, at: str) -> tuple[int, ...]:
    return tuple(_number(value, f"{at}.{name}[{i}]") for i, value in enumerate(_list(data, name, at)))


def _each(data: Any, name: str, at: str, read: Callable[[Any, str], T]) -> tuple[T, ...]:
    return tuple(read(value, f"{at}.{name}[{i}]") for i, value in enumerate(_list(data, name, at)))


def _pairs(data: Any, name: str, at: str) -> tuple[tuple[int, int], ...]:
    found = []
    for i, pair in enumerate(_list(data, name, at)):
        if not isinstance(pair, list) or len(pair) != 2:
            raise StatisticsError(f"{at}.{name}[{i}] must be a pair of whole numbers, not {pair!r:.60}")
        found.append((_number(pair[0], f"{at}.{name}[{i}]"), _number(pair[1], f"{at}.{name}[{i}]")))
    return tuple(found)


def _name(data: Any, at: str) -> str:
    return _text(data, "name", at)


def _text(data: Any, name: str, at: str) -> str:
    value = _field(data, name, at)
    if not isinstance(value, str):
        raise StatisticsError(f"{at}.{name} must be a string, not {value!r:.60}")
    return value
