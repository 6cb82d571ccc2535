"""States of aggregators that have no declared type: what is kept as it was, and that bytes which somebody else has made run nothing."""

from __future__ import annotations

import collections
import contextlib
import copyreg
import datetime
import decimal
import enum
import fractions
import io
import os
import pickle
import pickletools
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import evenflow as ef
from evenflow.errors import QueryError, TypeMismatch
from evenflow.operator.totals.aggregate import Aggregate
from evenflow.query.aggregates import AggCall
from evenflow.query.user import states
from evenflow.query.user.aggregator import pack, stored_type, unpack
from evenflow.query.user.row import Row
from evenflow.query.user.states import Unkept, from_bytes, to_bytes
from tests.operator.aggregate_cases import SCHEMA, make_batch, make_rows, tick

ATOMS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary() | st.decimals(allow_nan=False)
VALUES = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner) | st.sets(st.integers()).map(lambda s: {"s": s})
    ),
    max_leaves=12,
)


class Mood(enum.Enum):
    CALM = 1


class Point:
    def __init__(self, x: float) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and self.x == other.x

    def __hash__(self) -> int:
        return hash(self.x)


@given(VALUES)
def test_a_state_comes_back_as_it_was(state: Any) -> None:
    assert from_bytes(to_bytes(state)) == state


@pytest.mark.parametrize(
    "state",
    [
        collections.Counter("abca"), collections.OrderedDict(a=1), collections.deque([1, 2], 3), frozenset({1}), bytearray(b"ab"),
        complex(1, 2), datetime.datetime(2020, 1, 1, 2, 3), datetime.date(2020, 1, 1), datetime.timedelta(3), datetime.time(4),
        datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), decimal.Decimal("1.50"), fractions.Fraction(1, 3),
        uuid.UUID(int=7), Row(("a", "b"), (1, [2])), "\n", b"\x93\x82", {"city\n": [1, {2}]},
    ],
    ids=repr,
)  # fmt: skip
def test_what_pythons_library_makes_is_kept(state: Any) -> None:
    again = from_bytes(to_bytes(state))
    assert again == state and type(again) is type(state)


SETS = """
from evenflow.query.user.states import *
shared = {"b", None, "a", 3, (1, "x"), frozenset({"u", "v", None})}
alike = [{"b", "a", "c"}, {("b", 1), ("a", 2)}, {(None, "b"), ("a", "b")}, {0.5, float("inf")}, {(), ("a",)}, {b"a", b"b"}]
alike += [{str(n) for n in range(99)}, {(str(n), n) for n in range(99)}, {n / 7 for n in range(99)}, {(None, str(n)) for n in range(99)}]
print(to_bytes((shared, {"c": frozenset("wxyz")}, [shared, set()], alike)).hex())
"""


def test_a_set_is_the_same_bytes_in_every_process() -> None:
    said = set()
    for seed in ("1", "2", "3"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        said.add(subprocess.run([sys.executable, "-c", SETS], env=environment, capture_output=True, text=True, check=True).stdout)
    (found,) = said
    shared, others, (again, empty), alike = from_bytes(bytes.fromhex(found))
    assert alike[6:] == [{make(n) for n in range(99)} for make in (str, lambda n: (str(n), n), lambda n: n / 7, lambda n: (None, str(n)))]
    assert alike[:6] == [{"b", "a", "c"}, {("b", 1), ("a", 2)}, {(None, "b"), ("a", "b")}, {0.5, float("inf")}, {(), ("a",)}, {b"a", b"b"}]
    assert shared == {"b", None, "a", 3, (1, "x"), frozenset({"u", "v", None})} and again is shared
    assert others == {"c": frozenset("wxyz")} and empty == set()


def test_sets_that_come_and_go_are_told_apart() -> None:
    """A class that makes its state anew each time it is asked."""

    class Made:
        def __init__(self, *values: Any) -> None:
            self.values = values

        def __reduce__(self) -> Any:
            return list, ({*self.values},)

    assert from_bytes(to_bytes([Made(n) for n in range(50)] + [{0}], [list])) == [[n] for n in range(50)] + [{0}]


def test_a_set_in_itself_is_refused_when_it_is_written() -> None:
    point = Point(1.0)
    point.x = {point}  # type: ignore[assignment]
    with pytest.raises(TypeMismatch, match="cannot be pickled"):
        pack(Keeping(), point)


def test_a_dict_with_a_default_has_it_still() -> None:
    again = from_bytes(to_bytes(collections.defaultdict(list, a=[1])))
    again["b"].append(2)
    assert again == {"a": [1], "b": [2]}


@pytest.mark.parametrize(
    "state",
    [
        np.float64(1.5), np.int32(-3), np.bool_(True), np.str_("no"), np.str_(""), np.bytes_(b"x"),
        np.datetime64("2020-01-01T00:00:01", "us"),
        np.arange(6).reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.zeros((0, 4)), np.array(3.0), np.array(["a", "bc"]),
        np.arange(4).astype(">i2")[::2],
    ],
    ids=repr,
)  # fmt: skip
def test_arrays_and_numbers_of_numpy_are_kept(state: Any) -> None:
    again = from_bytes(to_bytes((1, [state])))[1][0]
    assert type(again) is type(state) and again.dtype == state.dtype and again.shape == state.shape and np.array_equal(again, state)
    if isinstance(again, np.ndarray):
        again[...] = again  # The user may change it.


class Boxed(ef.Aggregator):
    output = "double"

    def zero(self) -> Any:
        return Point(0.0)

    def update(self, state: Any, *values: Any) -> Any:
        return state


class Keeping(Boxed):
    keeps = (Point, Mood)


@pytest.mark.parametrize("state", [Point(1.0), [Mood.CALM], Point, np.array([Point(1.0)], object), np.zeros(2, "i4,f8"), os.system, len])
def test_what_is_not_kept_is_refused_when_it_is_written(state: Any) -> None:
    with pytest.raises(TypeMismatch, match=r"Boxed: its state has .*, which is not kept; .* `keeps`"):
        pack(Boxed(), state)


@pytest.mark.parametrize("state", [Point(1.0), [Mood.CALM], {"a": (Point(2.0), 1)}])
def test_what_an_aggregator_keeps_besides_is_kept_by_it_and_by_no_other(state: Any) -> None:
    kept = pack(Keeping(), state)
    assert unpack(Keeping(), kept) == state
    with pytest.raises(TypeMismatch, match="which is not kept"):
        unpack(Boxed(), kept)


@pytest.mark.parametrize("keeps", ["Point", ("Point",), Point, [Point(1.0)]])
def test_what_keeps_has_to_be_is_said(keeps: Any) -> None:
    wrong = type("Wrong", (Boxed,), {"keeps": keeps})
    with pytest.raises(QueryError, match="Wrong: keeps has classes and functions"):
        stored_type(wrong())


# ---------------------------------------------------------------- what somebody else has made


class Runs:
    """When it is unpickled it makes a directory."""

    def __init__(self, where: Path) -> None:
        self._where = str(where)

    def __reduce__(self) -> Any:
        return os.mkdir, (self._where,)


def by_extension(where: Path) -> bytes:
    return b"\x80\x02\x82\xf0X" + len(str(where)).to_bytes(4, "little") + str(where).encode() + b"\x85R."


def by_instance(where: Path) -> bytes:
    return b"(V" + str(where).encode() + b"\niposix\nmkdir\n."


WAYS = {
    **{f"protocol {n}": (lambda where, n=n: pickle.dumps([1, Runs(where)], n)) for n in range(6)},
    "instance": by_instance,
    "extension": by_extension,
    "by getattr": lambda where: b"\x80\x04cbuiltins\ngetattr\ncposix\nsystem\n\x85R.",
    "by what reads sets": lambda where: b"O" + pickle.dumps([1, Runs(where)], 5),
    "by a path of names": lambda where: b"\x80\x04\x8c\x0edatetime.mkdir\x94\x8c\x05a.b.c\x94\x93.",
}


@pytest.fixture
def extension() -> Any:
    copyreg.add_extension("posix", "mkdir", 0xF0)
    yield
    copyreg.remove_extension("posix", "mkdir", 0xF0)


@pytest.mark.parametrize("way", WAYS)
def test_a_hostile_state_of_a_checkpoint_runs_nothing(way: str, tmp_path: Path, extension: None) -> None:
    """Method: the objects of a captured state are other ones when it is installed, as they are when a checkpoint's file was altered."""
    call = AggCall("x", "x", "i", pa.binary(), Keeping())
    operator, other = Aggregate(SCHEMA, ("k",), [call]), Aggregate(SCHEMA, ("k",), [call])
    rows = make_rows(make_batch(np.random.default_rng(1), 20, keys=2), ("k",), 1)
    operator.process(rows, tick(1))
    snapshot = operator.capture(0)
    assert snapshot is not None
    real, there = pack(Keeping(), Point(0.0)), tmp_path / "ran"
    hostile = WAYS[way](there)
    assert snapshot.to_bytes().count(real)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("evenflow.operator.totals.user_states.pack", lambda made, state: hostile)
        operator.process(rows, tick(2))
    altered = operator.capture(0)
    assert altered is not None and hostile in altered.to_bytes()
    other.install(0, altered.to_bytes())
    with pytest.raises(TypeMismatch, match="Keeping: "):
        other.process(rows, tick(3))
    assert not there.exists()


@pytest.mark.parametrize("dtype", ["O", "i4,f8", "V8", "no", 5])
def test_an_array_that_somebody_else_has_made_is_of_values(dtype: Any) -> None:
    class Array:
        def __reduce__(self) -> Any:
            return states._array, (dtype, (1,), b"\0" * 16)

    with pytest.raises((Unkept, TypeError)):
        from_bytes(pickle.dumps(Array(), 5))


@pytest.mark.parametrize("shape", [(1 << 60,), (-1,), (3,)])
def test_an_array_has_no_more_than_its_bytes(shape: tuple[int, ...]) -> None:
    class Array:
        def __reduce__(self) -> Any:
            return states._array, ("<f8", shape, b"\0" * 16)

    with pytest.raises((TypeError, ValueError, Unkept)):
        from_bytes(pickle.dumps(Array(), 5))


@given(st.binary(max_size=60))
def test_any_bytes_are_a_state_or_an_error_in_words(data: bytes) -> None:
    with contextlib.suppress(TypeMismatch):
        unpack(Boxed(), data)


@pytest.mark.parametrize(
    "pid",
    [
        None,
        0,
        (0,),
        (0, False),
        (0, False, 3),
        (0, 1, [1]),
        (0, True, b""),
        (0, True, b"N."),
        (0, True, pickle.dumps(os.system, 5)),
        (0, False, [[]]),
        ("a", True, []),
    ],
)
def test_a_set_that_somebody_else_has_made_is_one_or_an_error_in_words(pid: Any) -> None:
    class Writer(pickle.Pickler):
        def persistent_id(self, value: Any) -> Any:
            return pid if value == "here" else None

    written = io.BytesIO()
    Writer(written, 5).dump(["here"])
    with pytest.raises(TypeMismatch, match="Boxed: "):
        unpack(Boxed(), b"O" + written.getvalue() if pid is not None else b"O")


def test_a_pickle_without_the_bytes_that_are_looked_for_names_nothing() -> None:
    """Goal: what is read without a look at names has none. Method: the standard library's own list of what pickles are made of. What is
    behind these needs something that was named before, or what no reader of ours has."""
    harmless = {"REDUCE", "BUILD", "OBJ", "NEWOBJ", "NEWOBJ_EX", "PERSID", "BINPERSID", "NEXT_BUFFER", "READONLY_BUFFER"}
    harmless |= {"GET", "BINGET", "LONG_BINGET", "DUP", "MEMOIZE"}  # These push what is there already.
    for each in pickletools.opcodes:
        lines = b"a\nb\n" if each.arg is not None and each.arg.name == "stringnl_noescape_pair" else b""
        if "any" in {found.name for found in each.stack_after} and each.name not in harmless:
            assert states._NAMED.search(each.code.encode("latin-1") + lines), each.name
