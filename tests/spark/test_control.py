"""What driver and sites say to each other arrives as it was said; whatever else arrives is refused, and runs nothing."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import struct
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from random import Random
from types import NoneType, UnionType
from typing import Any, Literal, NewType, Union, get_args, get_origin, get_type_hints

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle

from evenflow.availability.entries import Cut, Piece, StoredObject
from evenflow.errors import UnreadableMessage
from evenflow.exchange.section import Share
from evenflow.plan.layout import Port, Step
from evenflow.plan.membership import Leader, Membership
from evenflow.plan.plan import Copy, Plan, Settings, Version
from evenflow.site.events import (
    DrainRequested,
    Durable,
    MembershipChanged,
    PlanAborted,
    PlanCommitted,
    PlanProposed,
    SinkCommitted,
    Started,
    StateMemoryChanged,
)
from evenflow.site.facts import (
    ArcThinned,
    CopyFailed,
    CopyLive,
    Digests,
    DiskTrouble,
    Fact,
    Logged,
    PartFailed,
    PartFinished,
    PlanMissing,
    Promised,
    Refused,
    TookOver,
    UserCodeSlow,
)
from evenflow.site.given import SourceLeft
from evenflow.site.peers import Talk
from evenflow.site.replaying import Beginning
from evenflow.statistics.window import BoxWindow, Latency, SegmentWindow, SiteWindow
from evenflow.statistics.wire import FlatWindow, flat_of
from evenflow.world.spark.net import control
from evenflow.world.spark.net.coding import coder
from evenflow.world.spark.net.told_versions import unpacked

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.list_(pa.string()))])
COPY = Copy(3, 1, (4, 5), 0, 2, 1)
MEMBERSHIP = Membership(7, (0, 2), (COPY,), (1,), ((), (Leader(0, 3), Leader(2, 7))), (2,))
STEP = Step("double", "map", {"function": lambda row: row}, SCHEMA, Port(-1))
WHOLE = Version(2, ({}, {0: STEP}), (0, 2), ("double",), tables=(("rates", 10),))
PACKED = Version(WHOLE.number, WHOLE.steps, WHOLE.since, WHOLE.boxes, cloudpickle.dumps(WHOLE), WHOLE.tables)  # type: ignore[no-untyped-call]
NAMED = Version(2, (), (0, 2), ("double",))
NONE_YET = Version(0, ({}, {}), (0, 0), ())


def plan(version: Version | None = None) -> Plan:
    return Plan(5, 900, (((0, 1), (1, 2)), ((2,),)), (COPY,), Settings((((0, 0), (2048, 1)), ()), ((1, 3), ()), version, ((0.25, 1.0), ())))


DELIVERED: list[control.Delivered] = [
    Started(5), MembershipChanged(MEMBERSHIP), PlanProposed(plan()), PlanCommitted(plan(NAMED)), PlanCommitted(plan(NONE_YET)),
    PlanAborted(3),
    DrainRequested(), SourceLeft(0, 1, 2**40), Durable(2**40), SinkCommitted(1, 2**40), StateMemoryChanged(None), StateMemoryChanged(12),
]  # fmt: skip
FROM_DRIVER: list[control.FromDriver] = [
    control.You(1, 2, 0.05), control.You(1, 2, 0), control.Roster(3, {0: ("10.0.0.1", 4000, "life"), 12: ("::1", 4001, "other")}),
    control.Roster(0, {}), control.StartPart(7, "run-ä", os.urandom(5000), plan(), MEMBERSHIP),
    *[control.Deliver(7, event) for event in DELIVERED], control.Pushed(7, "source", -1, True), control.EndPart(7), control.Ping(3),
    control.Pace(0.25), control.Leave('why "not"\n'), control.Relay(2, Talk(1, 0), 1, b"\0\xff" * 50_000),
    control.Relay(2, Talk(3, 4), 2, b""),
    control.Profile(4, 2.5),
]  # fmt: skip
WINDOW = SiteWindow(
    1,
    100,
    200,
    50,
    None,
    3,
    4,
    (SegmentWindow(0, "s", (1, 2), (10, 20), (5, 6), 40, (BoxWindow("b", 30, 3, 9, 1),), (2,)),),
    Latency(1, 2, 3),
)
FACTS: list[Fact] = [
    Promised(1), Refused(1, 2), PlanMissing(3), PartFinished(4, 5), PartFailed("box", 6, "trace", "reason", "ValueError"), CopyLive(7, 8),
    TookOver(9), SourceLeft(0, 1, 2**40), CopyFailed(10, "why"), Digests(1, 2, (3, 4), b"\1" * 16), DiskTrouble("full"),
    ArcThinned(1, 2, (3, 4), (0, 5), b"\1" * 32, b"\0" * 32, 6),
    UserCodeSlow("score", 17, 5.5, "File ..."),
    Logged({(0, 1): (Cut(3, 20, 10, 2**40, True, False, (Share(0, -1, 0, True),)), Cut(4, 21, 21, 2**40, False, True)), (2, 0): ()}),
]  # fmt: skip
FROM_SITE: list[control.FromSite] = [
    control.Linked(1), control.Beat(5, (1, 2), None, None), control.Beat(5, (), "busy", 3), control.PartReady(1),
    control.PartBroken(1, "KeyError", "text", "trace"), *[control.Said(1, fact) for fact in FACTS], control.SinkOpened(1, 2, SCHEMA),
    control.PartEnded(1), control.SiteBroken("trace"), control.Relay(2, Talk(1, 2), 1, b"rows"),
    control.Report(1, 2.5, 3, 4, 5, {7: control.PartReport(*range(10), flat_of(WINDOW), {3: 4, 9: 1})}),
    control.Report(
        1, 2.5, 3, 4, 5,
        {7: control.PartReport(*range(10), flat_of(WINDOW, ((3, 17),)), {}, ("score", 17, 5.5), (("orders", "shop", 12),), ((0, 5),))},
    ),
    control.InUserCode(3, ((2, 17), (4, 18))), control.Profiled(4, "", b"{}"), control.Profiled(5, "why", b""),
]  # fmt: skip


def packed(message: Any) -> bytes:
    return b"".join(map(bytes, control.encode(message)))


@pytest.mark.parametrize("message", FROM_DRIVER, ids=lambda message: type(message).__name__)
def test_what_the_driver_says_arrives(message: control.FromDriver) -> None:
    heard = control.from_driver(memoryview(packed(message)))
    assert heard == message
    assert packed(heard) == packed(message)


@pytest.mark.parametrize("message", FROM_SITE, ids=lambda message: type(message).__name__)
def test_what_a_site_says_arrives(message: control.FromSite) -> None:
    heard = control.from_site(memoryview(packed(message)))
    assert heard == message
    assert type(heard) is type(message)


def some(of: Any, draw: Random) -> Any:
    """Any value of a declared type: whoever adds a message, an event or a fact has it tried here."""
    given: dict[Any, Any] = {
        Any: draw.choice([None, True, "a", [1, [2.5, "b"]], {"c": [{}]}]),
        pa.Schema: SCHEMA,
        FlatWindow: flat_of(WINDOW, ((3, 17),)),
        Version: draw.choice([NAMED, NONE_YET]),
        bool: draw.random() < 0.5,
        float: draw.random(),
    }
    given |= {
        int: draw.randint(-(2**63), 2**63),
        str: draw.choice(["", "ä", 'a "b"', "x" * 300]),
        bytes: draw.randbytes(draw.randint(0, 99)),
    }
    if of is Beginning:
        cuts = {(0, p): tuple(Cut(e, 10 * e, 10 * e - p, e, e == 5, e == 6, (Share(1, 2, 3, True),) * p) for e in (5, 6)) for p in (0, 1)}
        stored = StoredObject("checkpoints/1/a.parquet", -1, 3, 4, "d")
        logs: dict[tuple[int, int], list[Any]] = {(0, 1): [7, False, [1]]}
        return Beginning(4, (some(Plan, draw),), cuts, logs, (Piece(2, 1, (0, 3), {"logs": {}}, (stored,)),))
    if of in given:
        return given[of]
    if isinstance(of, NewType):
        return some(of.__supertype__, draw)
    origin, arguments = get_origin(of), get_args(of)
    if origin in (Union, UnionType):
        return some(draw.choice(arguments), draw)
    if of is NoneType or origin is Literal:
        return draw.choice(arguments) if arguments else None
    if origin is tuple:
        each = arguments[:1] * draw.randint(0, 3) if arguments[1:] == (...,) else arguments
        return tuple(some(item, draw) for item in each)
    if origin in (dict, Mapping):
        return {some(arguments[0], draw): some(arguments[1], draw) for _ in range(draw.randint(0, 3))}
    hints = get_type_hints(of)
    if isinstance(of, type) and issubclass(of, StrEnum):
        return draw.choice(list(of))
    names = [field.name for field in dataclasses.fields(of)] if dataclasses.is_dataclass(of) else of._fields
    return of(*[some(hints[name], draw) for name in names])


@pytest.mark.parametrize("message", [*get_args(control.FromDriver), *get_args(control.FromSite)], ids=lambda message: message.__name__)
def test_every_message_arrives_whatever_is_in_it(message: Any) -> None:
    read: Any = control.from_site if message in get_args(control.FromSite) else control.from_driver
    draw = Random(message.__name__)
    for _ in range(100):
        said = some(message, draw)
        assert read(packed(said)) == said


@pytest.mark.parametrize("fact", get_args(Fact), ids=lambda fact: fact.__name__)
def test_every_fact_arrives(fact: Any) -> None:
    draw = Random(fact.__name__)
    for _ in range(20):
        said = control.Said(1, some(fact, draw))
        assert control.from_site(packed(said)) == said


def test_a_version_comes_with_its_functions_or_by_its_number() -> None:
    heard = control.from_driver(packed(control.Deliver(1, PlanProposed(plan(PACKED)))))
    assert isinstance(heard, control.Deliver) and isinstance(heard.event, PlanProposed)
    version = heard.event.plan.version
    assert version is not None and version == PACKED and version.packed == PACKED.packed and version.steps == ()
    whole = unpacked(heard.event.plan).version
    assert whole is not None and whole == PACKED and whole.steps[1][0].params["function"](5) == 5
    thin = control.from_driver(packed(control.Deliver(1, PlanProposed(plan(NAMED)))))
    assert isinstance(thin, control.Deliver) and isinstance(thin.event, PlanProposed)
    assert thin.event.plan.version is not None and thin.event.plan.version.steps == ()
    with pytest.raises(TypeError, match="has not been packed"):
        control.encode(control.Deliver(1, PlanProposed(plan(WHOLE))))


class Bomb:
    """Whoever unpickles it makes a directory."""

    def __init__(self, told: Path) -> None:
        self.told = told

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.told),)


def test_pickles_are_no_messages(tmp_path: Path) -> None:
    bomb = pickle.dumps(Bomb(tmp_path / "robbed"))
    for body in (bomb, struct.pack("<I", 0) + bomb, struct.pack("<I", len(bomb)) + bomb):
        for read in (control.from_driver, control.from_site):
            with pytest.raises(UnreadableMessage):
                read(body)
    assert not (tmp_path / "robbed").exists()


def test_who_reads_what_the_driver_says_runs_nothing(tmp_path: Path) -> None:
    version = Version(1, (), (0,), (), pickle.dumps(Bomb(tmp_path / "robbed")))
    control.from_driver(packed(control.Deliver(1, PlanProposed(plan(version)))))
    control.from_driver(packed(control.StartPart(1, "r", version.packed, plan(version), MEMBERSHIP)))
    assert not (tmp_path / "robbed").exists()
    with pytest.raises(TypeError, match="no version|dataclass"):
        unpacked(plan(version))


def test_a_site_cannot_say_to_the_driver_what_drivers_say(tmp_path: Path) -> None:
    """Functions of users go one way: what brings them to a site is nothing that a driver could read."""
    version = Version(1, (), (0,), (), pickle.dumps(Bomb(tmp_path / "robbed")))
    for message in (control.Deliver(1, PlanProposed(plan(version))), control.StartPart(1, "r", version.packed, plan(version), MEMBERSHIP)):
        with pytest.raises(UnreadableMessage):
            control.from_site(packed(message))
    assert not (tmp_path / "robbed").exists()


ABSURD: list[Any] = [
    None, 1, "Ping", [], ["Ping"], ["Ping", "1"], ["Ping", True], ["Ping", 1, 2], ["Ping", None], ["os.system", "true"], [["Ping"], 1],
    ["Roster", 1, [[0, ["h", 1]]]], ["Roster", 1, {"0": ["h", 1, "i"]}],
    ["Relay", 1, [1, 0], 2, -1], ["Relay", 1, [1, 0], 2, 99], ["Relay", 1, [1], 2, 0],
    ["Deliver", 1, ["StateArrived", 1, 0]], ["Deliver", 1, ["WorkDone", None]], ["Pushed", 1, "s", 2, 1], ["Beat", 1, [1, "2"], None, None],
]  # fmt: skip


@pytest.mark.parametrize("said", ABSURD, ids=repr)
def test_what_is_not_of_the_declared_types_is_unreadable(said: Any) -> None:
    text = json.dumps(said).encode()
    for read in (control.from_driver, control.from_site):
        with pytest.raises(UnreadableMessage):
            read(struct.pack("<I", len(text)) + text)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([*FROM_DRIVER, *FROM_SITE]), st.data())
def test_what_is_cut_or_altered_is_unreadable_or_another_message(message: Any, data: st.DataObject) -> None:
    body = bytearray(packed(message))
    read: Any = control.from_site if isinstance(message, control.FromSite) else control.from_driver
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(UnreadableMessage):
        read(bytes(body[:cut]))
    at = data.draw(st.integers(0, min(200, len(body) - 1)))
    body[at] ^= data.draw(st.integers(1, 255))
    try:
        heard = read(bytes(body))
    except UnreadableMessage:
        return
    assert isinstance(heard, control.FromDriver | control.FromSite)


def test_a_deep_text_is_unreadable() -> None:
    text = b"[" * 100_000
    with pytest.raises(UnreadableMessage):
        control.from_site(struct.pack("<I", len(text)) + text)


def test_what_has_no_form_cannot_be_declared() -> None:
    with pytest.raises(TypeError, match="no form"):
        coder(object)
