"""A run as one region of a group: what has to be alike in all regions, found in the layout; what cannot be is refused (W1, W8)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import evenflow
from evenflow.availability.group import NAME, Group, Region, Shape
from evenflow.errors import LocationError, OptionError, QueryError, SourceError
from evenflow.plan.layout import Layout
from evenflow.query.network import Network
from evenflow.query.refreshed import refreshed_tables
from evenflow.query.structure import structure, structure_digest
from evenflow.sources.cut import CutSource, cut_of
from evenflow.stream.region_url import LOOPBACK

ONE_EACH: Final = frozenset(("callback", "console", "discard", "memory", "stream"))
"""Kinds of sinks of which each region has its own."""
ASKED: Final = ("group", "group_begin", "group_sites", "group_place", "group_peers", "group_ca")
"""What options and requests call what they say of a group."""
FIRST: Final = ("group_place", 0)
"""What is so where nobody says anything."""
ONLY: Final = ""
"""Of peers: those of the only stream sink."""
OF_A_PLACE: Final = frozenset(("stage", "commit"))
"""Steps whose parameters say where something is written."""


@dataclass(frozen=True, slots=True)
class InGroup:
    """What is said of a group where a region is started; see `group`."""

    name: str
    begin_us: int
    sites: int | None = None
    place: int = 0
    peers: tuple[tuple[str, tuple[str, ...]], ...] = ()
    tls_ca: str | None = None

    def made_for(self, sites: int) -> int:
        """For how many sites the layout is made, in an engine that has so many."""
        return self.sites or sites


def group(
    name: str,
    begin: datetime | str | int | float,
    sites: int | None = None,
    place: int = 0,
    *,
    peers: Sequence[str] | Mapping[str, Sequence[str]] = (),
    tls_ca: str | None = None,
) -> InGroup:
    """The group of which a run is a region: `engine.start(flow, group=ef.group("traffic", begin="2026-11-23T08:00:00Z"))`.

    name: the same in all regions; runs, subscribers and sinks know it. begin: when epoch 1 begins, the same in all regions: a datetime with
    a zone, as text in ISO 8601, or seconds since 1970. Sources are read from there. sites: for how many sites the layout is made, however
    many a region has; None: as many as this engine has, and then all must have the same number. place: of this region in the group's
    list, from 0, another one for each: the first writes to shared sinks, the next when it is late.

    peers: "host:port" of the other regions' stream sinks, by sink where there are several. With them a region that comes without state does
    not read everything, but from as far back as state reaches, and is silent until 64 epochs in a row were as a live region has them.
    tls_ca: who has signed their certificates, a file in PEM, where they are on other machines. Raises OptionError.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise OptionError(f"group: a name is letters, digits, dots, dashes and underlines, at most 128, and not {name!r:.80}")
    if sites is not None and (type(sites) is not int or not 1 <= sites <= 4096):
        raise OptionError(f"group {name}: sites is {sites!r}; give a whole number, 1 to 4,096")
    if type(place) is not int or not 0 <= place < 100:
        raise OptionError(f"group {name}: place is {place!r}; give a whole number, 0 for the first region")
    if tls_ca is not None and (not peers or not isinstance(tls_ca, str)):
        raise OptionError(f"group {name}: tls_ca is the file by which peers are believed; give peers, too, or leave it out")
    return InGroup(name, _us(name, begin), sites, place, _peers(name, peers, tls_ca), tls_ca)


def _peers(name: str, given: Any, tls_ca: str | None) -> tuple[tuple[str, tuple[str, ...]], ...]:
    by_sink = given if isinstance(given, Mapping) else {ONLY: given} if given else {}
    made = tuple((sink, (urls,) if isinstance(urls, str) else tuple(urls)) for sink, urls in by_sink.items())
    if not all(isinstance(sink, str) and urls and all(isinstance(url, str) for url in urls) for sink, urls in made):
        raise OptionError(
            f"group {name}: peers is {given!r:.100}; give the host:port of other regions' stream sinks, by sink if there are several"
        )
    far = [url for _, urls in made for url in urls if url.partition("//")[2 if "//" in url else 0].rpartition(":")[0] not in LOOPBACK]
    if far and tls_ca is None:
        raise OptionError(f"group {name}: {far[0]} is on another machine, so it needs tls_ca, the authority of the regions' certificates")
    return made


def asked(given: Mapping[str, Any], spelled: Callable[[str], str] = str) -> InGroup | None:
    """The group of which a run is to be a region, as options and requests describe it; None if they say nothing of one.

    given: `group` (its name), `group_begin`, `group_sites`, `group_place`, `group_peers` (as for `peers_in`) and `group_ca`, where they are
    said. spelled: what whoever asks calls them. Raises OptionError for some without the others, and what `group` raises.
    """
    told = {name: given.get(name) for name in ASKED}
    said = {name: value for name, value in told.items() if value is not None and value not in ((), []) and (name, value) != FIRST}
    if not said:
        return None
    lacking = next((name for name in ASKED[:2] if name not in said), None)
    if lacking is not None:
        raise OptionError(
            f"{spelled(next(iter(said)))} is of a region: give {spelled('group')} and {spelled('group_begin')}, which are the same for all "
            f"regions; {spelled(lacking)} is missing"
        )
    ca, peers = said.get("group_ca"), [str(url) for url in said.get("group_peers") or ()]
    return group(
        str(said["group"]), str(said["group_begin"]), said.get("group_sites"), said.get("group_place", 0), peers=peers_in(peers),
        tls_ca=None if ca is None else str(ca),
    )  # fmt: skip


def peers_in(given: Sequence[str]) -> list[str] | dict[str, list[str]]:
    """As options and requests say them: "host:port" each, or "sink=host:port" where there are several sinks. Raises OptionError."""
    named = [text.partition("=") for text in given if "=" in text.partition("?")[0]]
    if not named:
        return list(given)
    if len(named) < len(given):
        raise OptionError("group: some peers are said with their sink and some without; give each as SINK=HOST:PORT")
    found: dict[str, list[str]] = {}
    for sink, _, url in named:
        found.setdefault(sink, []).append(url)
    return found


def _compared(wanted: InGroup, layout: Layout) -> dict[str, tuple[str, ...]]:
    """The peers by the names of stream sinks. Raises OptionError for another name, and QueryError if there is none."""
    streams = [name for name, sink in layout.sinks.items() if sink.kind == "stream"]
    if wanted.peers and not streams:
        raise QueryError(
            f"group {wanted.name}: by peers a region compares its results with those of others, and it has no stream sink by which they "
            "could; add one (ef.sinks.stream), or leave peers out"
        )
    if wanted.peers and wanted.peers[0][0] == ONLY and len(streams) > 1:
        raise OptionError(
            f"group {wanted.name}: it has the stream sinks {', '.join(streams)}; say whose peers these are: peers={{name: [...]}}"
        )
    made = {sink or streams[0]: urls for sink, urls in wanted.peers}
    if wrong := sorted(made.keys() - set(streams)):
        raise OptionError(f"group {wanted.name}: peers of {wrong[0]!r}, and the stream sinks are {', '.join(streams)}")
    return made


def _us(name: str, begin: Any) -> int:
    problem = f"group {name}: begin is {begin!r:.60}; give a time with a zone, such as '2026-11-23T08:00:00Z', or seconds since 1970"
    if isinstance(begin, str):
        try:
            begin = datetime.fromisoformat(begin)
        except ValueError:
            raise OptionError(problem) from None
    if isinstance(begin, datetime):
        if begin.tzinfo is None:
            raise OptionError(problem)
        return int((begin - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1e6)
    if isinstance(begin, bool) or not isinstance(begin, int | float) or not 0 <= begin < 2**40:
        raise OptionError(problem)
    return int(begin * 1e6)


def as_region(layout: Layout, wanted: InGroup, sites: int) -> tuple[Layout, Region]:
    """The layout with its sources begun as the group says, and what region it is. sites: for which it was planned.

    Raises QueryError for what regions cannot have alike, SourceError if a source cannot say where it begins.
    """
    for name, source in layout.sources.items():
        if cut_of(source) is None:
            raise QueryError(
                f"source {name!r} of group {wanted.name}: a leader decides which of its rows form an epoch, so each region would have "
                "other epochs; cut it by content: flow.source(..., cut='content')"
            )
    for name, sink in layout.sinks.items():
        if not sink.compares and sink.kind not in ONE_EACH:
            raise QueryError(
                f"sink {name!r} of group {wanted.name}: a {sink.kind} sink cannot compare what it has with what a region brings, so rows "
                f"would be there once for each region; use a table or Kafka, or one of {', '.join(sorted(ONE_EACH))}"
            )
    begun = {name: source.begun_in_group(wanted.begin_us) for name, source in layout.sources.items()}
    layout = replace(layout, sources=begun)
    widths = {source.width_us for source in begun.values()}
    origins = {source.begin_us for source in begun.values()}
    if len(widths) != 1 or origins != {wanted.begin_us}:
        raise QueryError(f"group {wanted.name}: its sources have epochs of other widths, or a begin of their own; leave begin_us out")
    shape = Shape(
        sites, {s.source: s.partitions for s in layout.segments if s.source is not None},
        {s.sink: s.partitions for s in layout.segments if s.sink is not None},
    )  # fmt: skip
    made = Group(wanted.name, wanted.begin_us, widths.pop(), shape, network_digest(layout), evenflow.__version__)
    return layout, Region(made, wanted.place, 0, _compared(wanted, layout), wanted.tls_ca)


def region_at(url: str, layout: Layout, wanted: InGroup, sites: int) -> Region:
    """What region it is that goes on at a location, or begins there. Raises LocationError if it has another begin than the group."""
    begins = {source.begin_us for source in layout.sources.values() if isinstance(source, CutSource)}
    if begins != {wanted.begin_us}:
        moments = ", ".join(str(datetime.fromtimestamp((begin or 0) / 1e6, UTC)) for begin in sorted(begins, key=lambda begin: begin or 0))
        raise LocationError(
            f"the region at {url} has read from {moments} on, and the group {wanted.name} is said to begin at "
            f"{datetime.fromtimestamp(wanted.begin_us / 1e6, UTC)}: give the begin of before"
        )
    return as_region(layout, wanted, sites)[1]


def check_kept(layout: Layout) -> None:
    """Raise SourceError if a source does not have what a region that begins now reads first: others have, and nobody would notice."""
    now_us = time.time_ns() // 1000
    for source in layout.sources.values():
        if (why := source.lacks(now_us)) is not None:
            raise SourceError(why)


def network_digest(layout: Layout) -> str:
    """What the dataflow does, whatever the addresses of its sources and sinks in a region."""
    said: dict[str, Any] = dict(structure(layout))
    said["sources"] = {name: _what(source) for name, source in sorted(layout.sources.items())}
    said["sinks"] = {name: sink.kind for name, sink in sorted(layout.sinks.items())}
    for segment in said["segments"]:
        segment["steps"] = [{**step, "params": {}} if step["kind"] in OF_A_PLACE else step for step in segment["steps"]]
    return structure_digest(said)


def _what(source: Any) -> Mapping[str, Any]:
    """Of a source that is cut by content: its columns and its cut, and where it begins and ends if each region could find another place."""
    said = {
        "kind": source.source.kind, "columns": str(source.schema), "by": source.by, "rows": source.rows, "ahead_us": source.ahead_us,
        "position": source.position,
    }  # fmt: skip
    places = source.source.places_alike(source.by)
    return said if places is None else {**said, "places": places}


def check_region(wanted: InGroup, network: Network, *, url: str | None, shedding: str, balance: str) -> None:
    """Raise OptionError for what a region cannot have: it would decide by itself what an epoch has in it."""
    why = None
    if url is not None and wanted.peers:
        why = "peers and a checkpoint location: there it goes on with its state, and needs nobody to agree with"
    elif refreshed_tables(network):
        why = "a refreshed table: each region would read it at another moment"
    elif shedding != "off":
        why = f"shedding={shedding!r}: each region would leave out other rows"
    elif balance != "none" and (dealt := network.of_kind("repartition")):
        why = f"balance={balance!r} with box {dealt[0].name!r}: each region would have its rows dealt out another way, by what it measures"
    if why is not None:
        raise OptionError(f"group {wanted.name}: a region cannot have {why}")
