"""What a run at a location was replaced by, written down and read: nothing that could be code is run unless that was allowed (K11)."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.worlds.dataflows import Numbered

import evenflow as ef
from evenflow.availability.content import Content
from evenflow.availability.entries import Cut
from evenflow.availability.retained import garbage_programs, program_named, version_name
from evenflow.availability.standing import Standing
from evenflow.coordinator.events import Sweep
from evenflow.coordinator.versions import versions_since
from evenflow.errors import LocationError, ProgramChanged, ProgramMissing
from evenflow.query.network import Network
from evenflow.query.planner import layout
from evenflow.query.structure import as_before, structure
from evenflow.store.objects import Store
from evenflow.store.opening import open_store
from evenflow.stream.digest import digest_of
from evenflow.world.locations.versions import Drawn, Programs, said_of
from evenflow.world.spark.driver.appending import swept

PLANNING = {"sites": 2, "partitions": 8, "max_partitions": None, "writers": None}
NAMES = pa.table({"key": pa.array([0, 1], pa.int64()), "name": ["a", "b"]})


def pure(number: int) -> Network:
    """Boxes without code, of which some do something else in each version."""
    flow = ef.Dataflow("replaced")
    made = flow.source(ef.sources.generator(rate=10, keys=4, rows=10, partitions=2), name="made").with_watermark("ts", "1 second")
    kept = made.where(f"value > {number} and cast(value as string) like 'a%'").name("kept")
    marked = kept.select("key", "ts", "value", f"1{number}.5 as version", more=f"case when key > {number} then 'x' end").name("marked")
    marked.join(NAMES.set_column(1, "name", pa.array([f"a{number}", "b"])), "key", "left").name("named").to(ef.sinks.memory("a"))
    marked.group_by("key").window("1 minute").agg(n="count(*)", total="sum(value)").name("counted").to(ef.sinks.memory("b"))
    return flow.network


def coded(number: int) -> Network:
    flow = ef.Dataflow("replaced")
    made = flow.source(ef.sources.generator(rate=10, keys=4, rows=10, partitions=2), name="made")
    rows = made.select(k="key", v="value").where(f"v > {number}").name("kept").key_by("k")
    rows.process(Numbered(number), order="arrival", name="numbered").to(ef.sinks.memory("a"))
    return flow.network


class Replaced:
    """A location where version 0 was begun, and version 1 acts from epoch 5 on."""

    def __init__(self, folder: Path, network: Callable[[int], Network]) -> None:
        self.store: Store = open_store(str(folder))
        self.network = network
        first = layout(network(0), **PLANNING)
        first = as_before(first, {"sources": {}})
        self.before = json.loads(json.dumps(structure(first)))
        running = Programs.begun(self.store, self.before, PLANNING, Drawn(network(0)), first)
        program = running.keep(network(1), running.laid_out(network(1)), 1, 1)
        self.standing = Standing(contents=[Content(1), Content(5, version=1, program=program)], cuts={}, checkpoints=[])
        self.program = program

    def started(self, number: int, **drawn: Any) -> Programs:
        return Programs.replaced(self.store, self.before, PLANNING, Drawn(self.network(number), **drawn), self.standing)

    @property
    def begun(self) -> Path:
        return self.at(version_name(""))

    def at(self, name: str) -> Path:
        return Path(self.store.url.removeprefix("file://")) / name


def spoil(object_: Path, with_: Any) -> None:
    saved = json.loads(object_.read_text())
    for box in saved["boxes"]:
        box["params"], box["is"] = dict.fromkeys(box["params"], with_), ""
    object_.write_text(json.dumps(saved))


def hostile(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    spoilt = tmp_path / "spoilt"
    return spoilt, {"pickle": base64.b64encode(f"cposix\nsystem\n(Vtouch {spoilt}\ntR.".encode()).decode()}


def test_boxes_without_code_are_read(tmp_path: Path) -> None:
    run = Replaced(tmp_path, pure)
    programs = run.started(1)
    programs.check(run.standing, "replaced")
    were = programs.acting(acting_from_the_beginning(run))
    found = versions_since(were[0][1], were)
    assert list(found) == [1] and found[1].program == run.program
    behind = versions_since(programs.started, were)
    assert (list(behind), behind[0].program, any(behind[1].steps)) == ([0, 1], "", False), "where an older checkpoint is gone on from"
    changed = {step.box for steps in found[1].steps for step in steps.values()}
    assert changed == {"kept", "marked", "named"} and set(found[1].since) <= {0, -2}


def test_the_dataflow_as_it_was_begun_is_another_one_now(tmp_path: Path) -> None:
    run = Replaced(tmp_path, pure)
    with pytest.raises(ProgramChanged, match=r"version 1 acts from epoch 1 on, and this is the dataflow as it was begun \(box 'kept'"):
        run.started(0).check(run.standing, "replaced")
    with pytest.raises(ProgramChanged, match=r"version 1 acts .* this is the dataflow another one"):
        run.started(2).check(run.standing, "replaced")


def test_code_is_given_or_allowed(tmp_path: Path) -> None:
    run = Replaced(tmp_path, coded)
    with pytest.raises(ProgramMissing, match=r"version 0, the dataflow as it was begun, .*earlier=\[flow\].*allow_pickle=True"):
        run.started(1).acting(acting_from_the_beginning(run))
    for drawn in ({"earlier": (pure(0), coded(0))}, {"allow_pickle": True}):
        were = run.started(1, **drawn).acting(acting_from_the_beginning(run))
        assert list(versions_since(were[0][1], were)) == [1]


def test_code_that_is_the_same_needs_no_consent(tmp_path: Path) -> None:
    def half(number: int) -> Network:
        flow = ef.Dataflow("replaced")
        made = flow.source(ef.sources.generator(rate=10, keys=4, rows=10, partitions=2), name="made")
        rows = made.select(k="key", v="value").where(f"v > {number}").name("kept").key_by("k")
        rows.process(Numbered(7), order="arrival", name="numbered").to(ef.sinks.memory("a"))
        return flow.network

    run = Replaced(tmp_path, half)
    assert [content.version for content, _ in run.started(1).acting(acting_from_the_beginning(run))] == [0, 1]


def acting_from_the_beginning(run: Replaced) -> Standing:
    """Both versions are to be made again."""
    found = Standing(contents=run.standing.contents)
    found.cuts = {(0, 0): [_cut(epoch) for epoch in range(1, 8)]}
    return found


def _cut(epoch: int) -> Cut:
    return Cut(epoch, epoch, 0, 10, False, False)


def test_a_pickle_is_not_run(tmp_path: Path) -> None:
    run = Replaced(tmp_path / "location", pure)
    spoilt, pickle = hostile(tmp_path)
    spoil(run.begun, pickle)
    with pytest.raises(ProgramMissing, match="it has code of yours, which is not run from a location unless you allow it"):
        run.started(1).acting(acting_from_the_beginning(run))
    assert not spoilt.exists()
    spoil(run.begun, {"python": "antigravity:nothing"})
    with pytest.raises(ProgramMissing, match="it has code of yours"):
        run.started(1).acting(acting_from_the_beginning(run))
    were = run.started(1, earlier=(pure(0),)).acting(acting_from_the_beginning(run))
    assert [content.version for content, _ in were] == [0, 1]


def test_what_was_altered_is_not_even_looked_at(tmp_path: Path) -> None:
    """The journal has the digest of what was written: not even with consent is anything else run."""
    run = Replaced(tmp_path / "location", coded)
    spoilt, pickle = hostile(tmp_path)
    spoil(run.at(version_name(run.program)), pickle)
    programs = run.started(0, allow_pickle=True)
    with pytest.raises(LocationError, match="has other bytes than were written when the run was replaced"):
        programs.acting(acting_from_the_beginning(run))
    assert not spoilt.exists()


GARBAGE = [b"", b"\x80\x04garbage", b"[1]", b'{"boxes": [1]}', b'{"boxes": [{"name": "gone", "is": ""}]}', b"[" * 99_999]


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_is_said_to_be_that(tmp_path: Path, garbage: bytes) -> None:
    run = Replaced(tmp_path, pure)
    run.begun.write_bytes(garbage)
    with pytest.raises(LocationError, match=r"versions/begun.json"):
        run.started(1).acting(acting_from_the_beginning(run))


def test_parameters_that_are_others_are_not_taken(tmp_path: Path) -> None:
    run = Replaced(tmp_path, pure)
    run.begun.write_text(run.begun.read_text().replace("value > 0", "value > 9"))
    with pytest.raises(LocationError, match="is not version 0, the dataflow as it was begun, any more"):
        run.started(1).acting(acting_from_the_beginning(run))


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    run = Replaced(tmp_path, pure)
    run.begun.unlink()
    with pytest.raises(ProgramMissing, match=r"versions/begun.json, where it was kept, is not there. Give that dataflow beside"):
        run.started(1).acting(acting_from_the_beginning(run))


@pytest.mark.parametrize("name", ["../../etc/passwd", "000001-000001-ab/cd-abcdef01", "x"])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    run = Replaced(tmp_path, pure)
    standing = Standing(contents=[Content(1, version=1, program=name)])
    with pytest.raises(LocationError, match="which is no name of one"):
        run.started(1).acting(standing)
    with pytest.raises(LocationError, match="which is no name of one"):
        said_of(run.store, standing.contents[0], digest_of(b""))


def test_versions_that_nobody_needs_go() -> None:
    """Those of the present generation may be on their way to the journal."""
    old, now, gone, lost = (program_named(*each, "ab", "cd") for each in ((1, 1), (2, 2), (2, 1), (1, 2)))
    names = [version_name(each) for each in ("", old, now, gone, lost)]
    assert garbage_programs([*names, "rows/000001/x"], 2, {"", old}, {gone}) == sorted([version_name(lost), version_name(gone)])
    assert garbage_programs(names, 3, {now}, {gone}) == sorted(version_name(each) for each in ("", old, gone, lost))
    assert garbage_programs(names, 3, set(), {gone}) == [], "nobody has said what is needed"


def test_they_are_deleted_from_the_store(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    old, now, lost = (program_named(*each, "ab", "cd") for each in ((1, 1), (2, 1), (1, 2)))
    names = [version_name(each) for each in ("", old, now, lost)]
    for name in names:
        store.create(name, b"{}")
    assert swept(store, Sweep((), 2, programs=(frozenset({""}), frozenset()))) == 0, "a run that was never replaced has none to look for"
    assert swept(store, Sweep((), 2, programs=(frozenset({old, now}), frozenset({""})))) == 2
    assert sorted(store.names("versions/")) == sorted(map(version_name, (old, now)))
