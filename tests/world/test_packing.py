"""The user's code goes along by value, whoever else packs at the same time; and what a site cannot unpack ends one run."""

from __future__ import annotations

import importlib
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from tests.spark.connections import connected

import evenflow as ef
from evenflow.plan.layout import Layout
from evenflow.plan.placement import first_membership, first_plan
from evenflow.plan.plan import Plan, Version
from evenflow.query.planner import layout
from evenflow.site.events import PlanProposed
from evenflow.site.options import FlowOptions
from evenflow.site.replaying import FROM_NOTHING, Beginning
from evenflow.world.spark.driver.program import pack, pack_version
from evenflow.world.spark.executor.site import Site
from evenflow.world.spark.net import control
from evenflow.world.spark.net.framing import CONTROL
from evenflow.world.spark.net.listener import open_port

ROWS = pa.RecordBatch.from_pydict({"x": [1]})


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module of the user's, which only this process can import."""
    (tmp_path / "shop_of_threads.py").write_text("def net(x):\n    return tax(x)\n\n\ndef tax(x):\n    return 2 * x\n")
    with monkeypatch.context() as patched:
        patched.syspath_prepend(str(tmp_path))
        yield importlib.import_module("shop_of_threads")
    sys.modules.pop("shop_of_threads", None)


def with_code(module: ModuleType) -> Layout:
    flow = ef.Dataflow("shopping")
    flow.source(ef.sources.memory([ROWS])).with_columns(y=ef.udf(module.net, "bigint")("x")).to(ef.sinks.memory("out"))
    return layout(flow.network, sites=1)


class While:
    """What is packed as 0, after it has called something."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call

    def __reduce__(self) -> Any:
        self._call()
        return int, (0,)


def version_of(*values: Any) -> Version:
    return Version(1, (dict(enumerate(values)),), (1,), ())


def is_whole(packed: Version) -> bool:
    """It can be read where the module is not."""
    module, path = sys.modules.pop("shop_of_threads"), list(sys.path)
    sys.path[:] = [each for each in path if not each.startswith(str(Path(str(module.__file__)).parent))]
    try:
        read: Any = pickle.loads(packed.packed)
        return bool(read.steps[0][1](21) == 42)
    except ModuleNotFoundError:
        return False
    finally:
        sys.path[:], sys.modules["shop_of_threads"] = path, module


def registered() -> set[str]:
    return set(cloudpickle.list_registry_pickle_by_value())  # type: ignore[attr-defined]


def test_two_that_pack_at_once_both_send_the_code(shop: ModuleType) -> None:
    """One has begun before the other, and ends in the middle of it."""
    planned, before = with_code(shop), registered()
    begun, ended = threading.Event(), threading.Event()
    packed: list[Version] = []

    def second() -> None:
        packed.append(pack_version(version_of(While(lambda: begun.set() or ended.wait(20)), shop.net), planned))

    thread = threading.Thread(target=second, daemon=True)

    def first() -> None:
        thread.start()
        assert begun.wait(20)

    packed.append(pack_version(version_of(While(first), shop.net), planned))
    ended.set()
    thread.join(20)
    assert [is_whole(each) for each in packed] == [True, True]
    assert registered() == before, "what others pickle is as it was"


def test_who_fails_leaves_the_code_to_the_others(shop: ModuleType) -> None:
    planned, before = with_code(shop), registered()

    def fails() -> None:
        with pytest.raises(ZeroDivisionError):
            pack_version(version_of(While(lambda: 1 // 0), shop.net), planned)

    assert is_whole(pack_version(version_of(While(fails), shop.net), planned)), "in the same thread, too"
    assert registered() == before


def test_what_a_user_has_registered_stays(shop: ModuleType) -> None:
    planned = with_code(shop)
    cloudpickle.register_pickle_by_value(shop)  # type: ignore[no-untyped-call]
    try:
        assert is_whole(pack_version(version_of(0, shop.net), planned)) and shop.__name__ in registered()
    finally:
        cloudpickle.unregister_pickle_by_value(shop)  # type: ignore[no-untyped-call]


# ---------------------------------------------------------------- what a site cannot unpack

LACKING = b"cno_such_library\nscore\n."
"""A pickle that needs what only the driver has."""


def served(*messages: control.FromDriver) -> tuple[str, list[control.FromSite]]:
    """Why a site leaves, and what it has said, that is told this and then to go."""
    here, there = connected()
    site = Site(control.You(0, 0, 0.0), {"as": "site", "incarnation": "a"}, b"s" * 32, ("127.0.0.1", 1), here, open_port("127.0.0.1"), 10.0)
    for message in (*messages, control.Leave("go")):
        there.send(CONTROL, control.encode(message))
    why, said = site.serve(), []
    there.settimeout(20)
    with there, suppress(ConnectionError):
        while True:
            _, body = there.receive()
            said.append(control.from_site(body))
    return why, said


@pytest.mark.parametrize("way", ["at the start", "in the past", "as it runs"])
def test_a_version_that_a_site_cannot_unpack_ends_its_run_and_no_other(way: str) -> None:
    flow = ef.Dataflow("lacking")
    flow.source(ef.sources.memory([ROWS])).to(ef.sinks.memory("out"))
    planned = layout(flow.network, sites=1)
    first = first_plan(planned, 1)
    later = replace(first, number=2, effective=9).with_settings(version=Version(1, ({},), (1,), ("select",), LACKING))
    assert later.version is not None
    membership, program = first_membership(planned, first, (0,)), pack(planned, FlowOptions())

    def start(run: int, plan: Plan = first, beginning: Beginning = FROM_NOTHING) -> control.StartPart:
        return control.StartPart(run, f"run-{run}", program, plan, membership, beginning)

    odd = {
        "at the start": [start(1, later)],
        "in the past": [start(1, first, replace(FROM_NOTHING, plans=(later,)))],
        "as it runs": [start(1), control.Deliver(1, PlanProposed(later))],
    }[way]
    why, said = served(start(7), *odd)
    assert why == "go"
    (broken,) = [message for message in said if isinstance(message, control.PartBroken)]
    assert broken.run == 1 and "no_such_library" in broken.text
    assert control.PartReady(7) in said
