"""An overload as JSON, for shedding that is tried alone: a flow by hand, the rates that are offered, and plans to look at beside the best
one.

    {"sites": {"A": 1}, "sources": {"s": {"rate": 100}}, "boxes": {"b": {"site": "A", "cost_s": 0.02, "reads": "s", "selectivity": 0.5}},
     "outputs": {"o": {"reads": "b", "weight": 2, "loss": [[0, 0], [0.25, 0.5], [1, 1]]}}}

sites: their capacity, CPU seconds per second. cost_s: CPU seconds per row into the box. reads: a name or a list of them. selectivity:
rows out per row in, 1 where it is missing. An output without loss is worth its rows, as in the paper; one with "protected" is kept whole.
headroom: what a plan may use of a site. A rate may be a fraction in quotes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from evenflow.errors import PolicyError
from evenflow.policy.shedding.flow import HEADROOM
from evenflow.policy.shedding.network import LINEAR, Arc, FlowNetwork, Output, Source
from evenflow.stream.curve import Curve

KEYS: Final = {
    "file": {"about", "sites", "sources", "boxes", "outputs", "headroom", "alternatives"},
    "source": {"rate", "read_s", "site"},
    "box": {"site", "cost_s", "reads", "selectivity"},
    "output": {"reads", "weight", "loss", "protected"},
}


LONGEST: Final = 60
"""Of a number in quotes, characters."""


@dataclass(frozen=True, slots=True)
class Overload:
    """sites: their names by number. rates: offered, rows per second by source. alternatives: what else might be let in."""

    about: str
    sites: tuple[str, ...]
    network: FlowNetwork
    rates: Mapping[str, float]
    headroom: float
    alternatives: tuple[Mapping[str, float], ...]


def overload_from_json(text: str) -> Overload:
    """Raises PolicyError that says what is missing or wrong."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PolicyError(f"the overload is no JSON ({error}); examples/overload.json shows the form") from None
    whole = _object(data, "an overload", "file")
    sites = _named(whole, "sites")
    sources = {name: _object(each, f"source {name!r}", "source") for name, each in _named(whole, "sources").items()}
    boxes = {name: _object(each, f"box {name!r}", "box") for name, each in _named(whole, "boxes").items()}
    outputs = {name: _object(each, f"output {name!r}", "output") for name, each in _named(whole, "outputs").items()}
    _once(sources, boxes, outputs)
    numbers = {name: number for number, name in enumerate(sites)}
    arcs = []
    for name, each in {**boxes, **outputs}.items():
        for up in _reads(name, each):
            selectivity = _number(boxes[up].get("selectivity", 1), f"selectivity of box {up!r}") if up in boxes else 1.0
            arcs.append(Arc(f"{up} to {name}", up, name, selectivity))
    network = FlowNetwork(
        {name: Source(read_s=_reading(name, each, numbers)) for name, each in sources.items()},
        {name: {_site(name, each, numbers): _number(each.get("cost_s"), f"cost_s of box {name!r}")} for name, each in boxes.items()},
        tuple(arcs),
        {name: _output(name, each) for name, each in outputs.items()},
        {numbers[name]: _number(capacity, f"capacity of site {name!r}") for name, capacity in sites.items()},
    )
    rates = {name: _number(each.get("rate"), f"rate of source {name!r}") for name, each in sources.items()}
    headroom = _number(whole.get("headroom", HEADROOM), "headroom")
    return Overload(str(whole.get("about", "")), tuple(sites), network, rates, headroom, _alternatives(whole, sources))


def _object(data: Any, what: str, kind: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise PolicyError(f"{what} is an object, not {data!r:.60}; examples/overload.json shows the form")
    if unknown := sorted(set(data) - KEYS[kind]):
        raise PolicyError(f"{what} has no {unknown[0]!r}; it may have {', '.join(sorted(KEYS[kind]))}")
    return data


def _named(whole: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = whole.get(key)
    if not isinstance(found, dict) or not found:
        raise PolicyError(f"an overload has {key!r}, an object by name with at least one; examples/overload.json shows the form")
    return found


def _number(given: Any, what: str) -> float:
    try:
        if isinstance(given, bool) or not isinstance(given, int | float | str):
            raise ValueError
        found = _of_text(given) if isinstance(given, str) else float(given)
        if not 0 <= found < float("inf"):
            raise ValueError
    except (ValueError, OverflowError, ZeroDivisionError):
        raise PolicyError(f'{what} is {given!r:.40}; it must be a number of at least 0, or a fraction such as "1/3"') from None
    return found


def _of_text(text: str) -> float:
    """Raises ValueError. A fraction with an exponent would be worked out in full, however many digits that has."""
    if len(text) > LONGEST:
        raise ValueError
    return float(text) if "e" in text.lower() else float(Fraction(text))


def _once(*named: Mapping[str, Any]) -> None:
    names = [name for each in named for name in each]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise PolicyError(f"{twice[0]!r} is the name of two things; sources, boxes and outputs have names of their own")


def _reads(name: str, each: Mapping[str, Any]) -> list[str]:
    given = each.get("reads")
    found = [given] if isinstance(given, str) else given
    if not isinstance(found, list) or not found or not all(isinstance(up, str) for up in found):
        raise PolicyError(f"{name!r} reads {given!r:.40}; name a source or a box, or a list of them")
    if len(set(found)) < len(found):
        raise PolicyError(f"{name!r} reads {given!r:.40}, one of them twice; name each once")
    return found


def _site(name: str, each: Mapping[str, Any], numbers: Mapping[str, int]) -> int:
    site = each.get("site")
    if not isinstance(site, str) or site not in numbers:
        raise PolicyError(f"{name!r} is at site {site!r:.40}, which is not among the sites: {', '.join(numbers)}")
    return numbers[site]


def _reading(name: str, each: Mapping[str, Any], numbers: Mapping[str, int]) -> dict[int, float]:
    if "read_s" not in each:
        return {}
    return {_site(name, each, numbers): _number(each["read_s"], f"read_s of source {name!r}")}


def _output(name: str, each: Mapping[str, Any]) -> Output:
    weight = _number(each.get("weight", 1), f"weight of output {name!r}")
    protected = each.get("protected", False)
    if not isinstance(protected, bool):
        raise PolicyError(f"protected of output {name!r} is {protected!r:.40}; it is true or false")
    if "loss" not in each:
        return Output(weight, LINEAR, protected=protected, per_row=True)
    try:
        loss = Curve.of(_points(each["loss"], f"loss of output {name!r}"))
    except ValueError as error:
        raise PolicyError(f"loss of output {name!r} is no curve ({error}); give points such as [[0, 0], [0.25, 0.5], [1, 1]]") from None
    if not loss.rises():
        raise PolicyError(f"loss of output {name!r} falls where more is delivered; its points must rise with the share")
    return Output(weight, loss, protected=protected)


def _points(given: Any, what: str) -> list[tuple[float, float]]:
    if not isinstance(given, list) or not all(isinstance(point, list) and len(point) == 2 for point in given):
        raise PolicyError(f"{what} is {given!r:.40}; give points such as [[0, 0], [0.25, 0.5], [1, 1]]")
    points = [(_number(x, f"a share in the {what}"), _number(y, f"a utility in the {what}")) for x, y in given]
    if any(x > 1 for x, _ in points):
        raise PolicyError(f"{what} is over shares from 0 to 1; 0.5 is half of the results")
    return points


def _alternatives(whole: Mapping[str, Any], sources: Mapping[str, Any]) -> tuple[Mapping[str, float], ...]:
    found = whole.get("alternatives", [])
    if not isinstance(found, list) or not all(isinstance(each, dict) and set(each) <= set(sources) for each in found):
        raise PolicyError("alternatives are a list of objects with rates by source")
    return tuple({name: _number(rate, f"an alternative's rate of {name!r}") for name, rate in each.items()} for each in found)


__all__ = ["Overload", "overload_from_json"]
