"""Checkpoint locations as each format had them: `python -m tests.golden FOLDER` makes one, of a dataflow that was stopped in the middle.
`python -m tests.golden FOLDER 5` makes one of which entries of the journal were collected, `python -m tests.golden FOLDER 3 held` one of
rows that are held in no table, `python -m tests.golden FOLDER 3 shed` one of a run that left rows out, `python -m tests.golden FOLDER 2
replaced` one of a run that was replaced by a version of itself behind its checkpoints.

Those in `tests/store/format_N` were made once, by the version that brought format N, and are never made again: a later version that
cannot go on at one of them, or does not come to the results of `expected`, has broken its promise to read it. The dataflow has state of
every form, and no code of the user's, which could be compared within one version of Python only.
"""

from __future__ import annotations

import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any, Final

import pyarrow as pa

import evenflow as ef
from evenflow.availability.entries import FORMAT
from evenflow.sources.generator import GeneratorSource
from evenflow.world.locations.checkpoints import checkpoints

STORE = Path(__file__).resolve().parent / "store"
ROWS, KEYS, PARTITIONS = 6_000, 16, 2
SITES = {"sites": 2, "partitions": 8}
SINKS = ("totals", "hours", "visits", "firsts")


COLLECTED: Final = "2_collected"
HELD: Final = "3_held"
"""With rows that are held in no table, which format 3 has brought."""
SHED: Final = "4_shed"
"""Of a run that left rows out, which format 4 has brought."""
REPLACED: Final = "5_replaced"
"""Of a run that was replaced, which format 5 has brought."""
SHED_RATE, SHED_ROWS = 40_000, 60_000


def golden(format: int | str = FORMAT) -> Path:
    """The location of that format, in the tree: look only."""
    return STORE / f"format_{format}"


def copied(to: Path, format: int | str = FORMAT) -> str:
    """A copy of it, to work with."""
    return str(shutil.copytree(golden(format), to / "golden"))


def dataflow() -> tuple[ef.Dataflow, dict[str, ef.sinks.MemorySink]]:
    """It, and its sinks by name. Windows and visits end with the source, so every result is of rows from before any checkpoint, too."""
    flow, sinks = ef.Dataflow("golden"), {name: ef.sinks.memory(name) for name in SINKS}
    made = flow.source(source(), name="made").with_watermark("ts", "2 hours")
    made.group_by("key").agg(n="count(*)", total="sum(value)").name("totals").to(sinks["totals"])
    texts = made.select("key", "ts", name="cast(value as string)").name("texts")
    texts.group_by("key").window("30 days").agg(n="count(*)", least="min(name)", greatest="max(name)").name("hours").to(sinks["hours"])
    made.group_by("key").session("1 hour").agg(n="count(*)").name("visits").to(sinks["visits"])
    made.select("ts", bucket="value % 40000").drop_duplicates(["bucket"]).name("firsts").to(sinks["firsts"])
    return flow, sinks


def held_dataflow() -> tuple[ef.Dataflow, dict[str, ef.sinks.MemorySink]]:
    """Rows that wait for a partner, for their turn, or for the end of their window, and the sinks by name. All comes out with the end
    of the source."""
    flow, sinks = ef.Dataflow("golden"), {name: ef.sinks.memory(name) for name in ("alone", "sorted", "tops")}
    made = flow.source(source(), name="made").with_watermark("ts", "2 hours")
    right = made.where("value % 2 = 0").select("ts", "value", r_key="key").name("even")
    within = "r.ts between l.ts - interval 1 hour and l.ts + interval 1 hour"
    pairs = made.join(right, None, "left", f"l.key = r.r_key and l.value = r.value and {within}", suffix="_r").name("pairs")
    pairs.where("r_key is null").name("lonely").to(sinks["alone"])
    made.sort(tie_break=["key", "value"]).name("order").to(sinks["sorted"])
    made.group_by("key").window("30 days").top(3, order_by="value desc").name("first").to(sinks["tops"])
    return flow, sinks


def shed_dataflow() -> tuple[ef.Dataflow, dict[str, ef.sinks.MemorySink]]:
    """Rows that are late when they are a millisecond old, so that some are left out, beside totals of others, and the sinks by name."""
    flow, sinks = ef.Dataflow("golden"), {name: ef.sinks.memory(name) for name in ("calls", "totals")}
    calls = flow.source(flood(), name="in").select("key", "value", "p0")
    calls.to(sinks["calls"], qos=ef.qos(latency=[("2 ms", 1), ("1 s", 0)], value=("value", [(0, 0.1), (1000, 1)])))
    made = flow.source(source(), name="made")
    made.group_by("key").agg(n="count(*)", total="sum(value)").name("totals").to(sinks["totals"])
    return flow, sinks


def replaced_dataflow(version: int = 0) -> tuple[ef.Dataflow, dict[str, ef.sinks.MemorySink]]:
    """All rows as they are, with the version that has made them and what a table that is joined says of it, and totals, and the sinks by
    name."""
    flow, sinks = ef.Dataflow("golden"), {name: ef.sinks.memory(name) for name in ("marked", "totals")}
    made = flow.source(source(), name="made")
    marked = made.select("key", "value", f"cast({version} as bigint) as version").name("marked")
    said = pa.table({"version": pa.array([version], pa.int64()), "said": [f"version {version}"]})
    marked.join(said, "version", "left").name("said").to(sinks["marked"])
    made.where(f"value >= {-version}").name("kept").group_by("key").agg(n="count(*)", total="sum(value)").name("totals").to(sinks["totals"])
    return flow, sinks


def flood() -> GeneratorSource:
    made = ef.sources.generator(rate=SHED_RATE, keys=KEYS, rows=SHED_ROWS, partitions=PARTITIONS)
    assert isinstance(made, GeneratorSource)
    return made


def source() -> GeneratorSource:
    made = ef.sources.generator(rate=600, keys=KEYS, rows=ROWS, partitions=PARTITIONS)
    assert isinstance(made, GeneratorSource)
    return made


def values_by_key() -> dict[int, list[int]]:
    """Those of all rows, without Evenflow."""
    values: dict[int, list[int]] = {}
    for partition in range(PARTITIONS):
        reader = replace(source(), begin_us=1).open(partition, PARTITIONS)
        while not reader.ended:
            batch = reader.read(2**60, ROWS)
            assert batch is not None
            for key, value in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist()):
                values.setdefault(key, []).append(value)
    return values


def expected() -> dict[str, dict[int, tuple[Any, ...]]]:
    """By sink and key: what must have come last, of all rows; computed without Evenflow. `firsts`: the buckets that come at all."""
    values = values_by_key()
    texts = {key: sorted(map(str, found)) for key, found in values.items()}
    return {
        "totals": {key: (len(found), sum(found)) for key, found in values.items()},
        "hours": {key: (len(found), found[0], found[-1]) for key, found in texts.items()},
        "visits": {key: (len(found),) for key, found in values.items()},
        "firsts": {value % 40_000: () for found in values.values() for value in found},
    }


def results(sinks: dict[str, ef.sinks.MemorySink]) -> dict[str, dict[int, tuple[Any, ...]]]:
    """The same of what the sinks have."""
    columns = {"totals": ("key", "n", "total"), "hours": ("key", "n", "least", "greatest"), "visits": ("key", "n"), "firsts": ("bucket",)}
    found: dict[str, dict[int, tuple[Any, ...]]] = {}
    for name, wanted in columns.items():
        rows = zip(*(sinks[name].rows().column(column).to_pylist() for column in wanted))
        found[name] = {row[0]: tuple(row[1:]) for row in rows}
    return found


def held_expected() -> dict[str, list[tuple[int, int]]]:
    """(key, value) of the rows that come in the end, by sink."""
    values = values_by_key()
    rows = [(key, value) for key, found in values.items() for value in found]
    tops = [(key, value) for key, found in values.items() for value in sorted(found, reverse=True)[:3]]
    return {name: sorted(found) for name, found in (("alone", [row for row in rows if row[1] % 2]), ("sorted", rows), ("tops", tops))}


def make(folder: str, checkpoints_wanted: int = 3, which: str = "") -> None:
    """Run it at a location until it has some checkpoints and a few epochs behind the last, and stop it there."""
    from evenflow.bench.bare import BareEngine

    flow, _ = {"held": held_dataflow, "shed": shed_dataflow, "replaced": replaced_dataflow, "": dataflow}[which]()
    with BareEngine(**SITES, checkpoint_s=0.1, shedding="reflex" if which == "shed" else "off") as engine:
        run = engine.start(flow, checkpoint_location=folder)
        pause, deadline_s = Event(), time.monotonic() + 60
        while sum(event["kind"] == "checkpoint_completed" for event in run.events()) < checkpoints_wanted:
            assert run.is_active and time.monotonic() < deadline_s, f"too slow: {run.events()}"
            pause.wait(0.01)
        if which == "replaced":
            run.replace(replaced_dataflow(1)[0])
        pause.wait(0.15)
        run.stop()
    for checkpoint in checkpoints(folder).list():
        print(checkpoint)


if __name__ == "__main__":
    make(sys.argv[1], *map(int, sys.argv[2:3]), *sys.argv[3:])
