"""`evenflow bench cost --nested`: what structures and lists cost beside flat columns of the same bytes, in CPU of the sites.

The same rows are in Parquet files twice: ten columns of eight bytes, and the same words as two structures and a list. Each workload says
the same of both, and they run by turns in one engine. `nested_ratio` is the greatest of the workloads' ratios of medians.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from evenflow.bench.cost import Say
from evenflow.bench.measuring import MASTER, SITES, flow_to_end, machine
from evenflow.bench.rows import BATCH_ROWS, link_copies
from evenflow.sources.generator import GeneratorSource

if TYPE_CHECKING:
    from evenflow.query.builder import Stream

FILES: Final = 8
KEYS: Final = 16_384
FEW: Final = 16
"""Values of the second of the columns by which a workload groups; the first has a thousand."""
TAIL: Final = ("p2", "p3", "p4", "p5")

Shape = Callable[["Stream"], "Stream"]
WORKLOADS: Final[dict[str, dict[str, Shape]]] = {
    "filter and select": {
        "flat": lambda rows: rows.where("price >= 0 and few >= 0").select("key", "value", "p1", *TAIL),
        "nested": lambda rows: rows.where("body.price >= 0 and pair.few >= 0").select("key", "pair.value", "body.p1", "tail"),
    },
    "elements of lists": {
        "flat": lambda rows: rows.where("p2 is not null").select("key", "p3", "p4", "p5"),
        "nested": lambda rows: rows.where("tail[0] is not null").select("key", "tail[1] as p3", "tail[2] as p4", "tail[3] as p5"),
    },
    "whole rows exchanged": {
        "flat": lambda rows: rows.drop_duplicates(["key"]),
        "nested": lambda rows: rows.drop_duplicates(["key"]),
    },
    "keys": {
        "flat": lambda rows: rows.group_by("value", "few").agg(n="count(*)", total="sum(price + p1)", combine=False),
        "nested": lambda rows: rows.group_by("pair").agg(n="count(*)", total="sum(body.price + body.p1)", combine=False),
    },
    "values kept": {
        "flat": lambda rows: rows.group_by("key").agg(price="last(price)", p1="last(p1)"),
        "nested": lambda rows: rows.group_by("key").agg(body="last(body)"),
    },
}
"""Both shapes of a workload read the same words: what nobody reads is not decoded."""
SHAPES: Final = ("flat", "nested")


def flat_rows(batch: pa.RecordBatch) -> pa.Table:
    """Ten columns of eight bytes, of the generator's rows."""
    few = pc.bit_wise_and(batch.column("p0"), FEW - 1)
    columns = {"key": batch["key"], "ts": batch["ts"], "value": batch["value"], "few": few, "price": batch["price"], "p1": batch["p1"]}
    return pa.table({**columns, **{name: batch[name] for name in TAIL}})


def nested_rows(flat: pa.Table) -> pa.Table:
    """The same words: structures of two fields each, and a list of four elements."""
    (batch,) = flat.combine_chunks().to_batches()
    words = pa.RecordBatch.from_arrays([batch[name] for name in TAIL], names=list(TAIL)).to_tensor(row_major=True).to_numpy().reshape(-1)
    ends = pa.array(range(0, len(words) + 1, len(TAIL)), pa.int32())
    return pa.table(
        {
            "key": batch["key"], "ts": batch["ts"],
            "pair": pa.StructArray.from_arrays([batch["value"], batch["few"]], names=["value", "few"]),
            "body": pa.StructArray.from_arrays([batch["price"], batch["p1"]], names=["price", "p1"]),
            "tail": pa.ListArray.from_arrays(ends, pa.array(words)),
        }
    )  # fmt: skip


def write_both(home: Path, rows: int, copies: int) -> dict[str, Path]:
    """Both shapes of the same rows as Parquet files without encoding; a folder of each, in which every file is `copies` times."""
    source = GeneratorSource(keys=KEYS, rows=rows)
    written: dict[str, list[Path]] = {shape: [] for shape in SHAPES}
    for shape in SHAPES:
        (home / f"{shape}-once").mkdir()
    for number in range(FILES):
        reader, parts = source.open(number, FILES), []
        while not reader.ended:
            batch = reader.read(0, BATCH_ROWS)
            if batch is not None:
                parts.append(flat_rows(batch))
        flat = pa.concat_tables(parts)
        for shape, table in zip(SHAPES, (flat, nested_rows(flat)), strict=True):
            written[shape].append(home / f"{shape}-once" / f"{number:03d}.parquet")
            pq.write_table(table, written[shape][-1], compression="none", use_dictionary=False, row_group_size=1 << 22)
    for shape in SHAPES:
        link_copies(written[shape], home / shape, copies)
    return {shape: home / shape for shape in SHAPES}


def run(*, quick: bool, say: Say) -> dict[str, Any]:
    """Returns the object that --json prints. quick: fewer rows and one round, a smoke test only."""
    import evenflow as ef
    from evenflow.world.spark.cluster.session import embedded_session, stop_session
    from evenflow.world.spark.driver.engine import Engine

    rows, copies, rounds = (1 << 20, 12, 1) if quick else (1 << 21, 20, 5)
    costs: dict[str, dict[str, list[float]]] = {name: {shape: [] for shape in SHAPES} for name in WORKLOADS}
    spark = embedded_session(MASTER)
    try:
        with tempfile.TemporaryDirectory(prefix="evenflow-bench-") as scratch, Engine(spark, sites=SITES) as engine:
            places = write_both(Path(scratch), rows, copies)
            for number in range(rounds + 1):
                for name, shapes in WORKLOADS.items():
                    for shape in SHAPES if number % 2 == 0 else reversed(SHAPES):
                        flow = ef.Dataflow(shape)
                        read = ef.sources.replay(str(places[shape] / "*.parquet"), speed=None)
                        shapes[shape](flow.source(read)).to(ef.sinks.discard())
                        found = flow_to_end(engine, flow).cpu_s_per_million_rows
                        say(
                            f"{f'round {number} of {rounds}' if number else 'warm up'}: {name}, {shape}: {found:.3f} s of CPU for a million"
                        )
                        if number:
                            costs[name][shape].append(found)
    finally:
        stop_session(spark)
    medians = {name: {shape: statistics.median(found) for shape, found in of.items()} for name, of in costs.items()}
    ratios = {name: of["nested"] / of["flat"] for name, of in medians.items()}
    by_round = {name: sorted(round(b / a, 3) for a, b in zip(of["flat"], of["nested"], strict=True)) for name, of in costs.items()}
    return {
        "benchmark": "cost-nested",
        "quick": quick,
        "nested_ratio": round(max(ratios.values()), 3),
        "nested_ratio_by_workload": {name: round(ratio, 3) for name, ratio in ratios.items()},
        "nested_ratio_by_round": by_round,
        "cpu_s_per_million_rows": {name: {shape: round(value, 4) for shape, value in of.items()} for name, of in medians.items()},
        "row_bytes": 80,
        "machine": machine(),
        "master": MASTER,
    }
