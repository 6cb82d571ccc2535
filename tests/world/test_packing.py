"""The user's code goes along by value, whoever else packs at the same time."""

from __future__ import annotations

import importlib
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

import evenflow as ef
from evenflow.plan.layout import Layout
from evenflow.plan.plan import Version
from evenflow.query.planner import layout
from evenflow.world.spark.driver.program import pack_version

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
