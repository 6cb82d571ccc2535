"""Sessions before which rows are left out: keys go whole, and a session that comes is one that would have come."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from evenflow.kernels.hash import hash_columns, partition_of, table_of_ranges
from evenflow.operator.gate import kept_of
from evenflow.operator.units import key_hashes
from evenflow.plan.layout import Keys
from evenflow.sources.generator import GeneratorReader, GeneratorSource
from evenflow.sources.pace import MadeReader
from evenflow.stream.epoch import Lost
from evenflow.world.sim.model import CostModel
from tests.sim.test_shedding_windows import CAN, SITES, Result, Windowed, _column


class Sessioned(Windowed):
    """Sessions of `keys`. size_ms: the gap; a key has a row each keys / (load x CAN) seconds on average."""

    def windowed(self, grouped: Any) -> Any:
        return grouped.session(f"{self.size_us} microseconds")

    def sessions(self) -> dict[Result, int]:
        """All results, of all rows, with where each ends."""
        keys, times, values = (np.concatenate([_column(part, name) for part in self.parts]) for name in ("key", "ts", "value"))
        found: dict[Result, int] = {}
        for key in np.unique(keys).tolist():
            order = np.argsort(times[keys == key], kind="stable")
            at, of = times[keys == key][order], values[keys == key][order]
            for rows in np.split(np.arange(at.size), np.flatnonzero(np.diff(at) > self.size_us) + 1):
                found[key, int(at[rows[0]]), rows.size, int(of[rows].sum())] = int(at[rows[-1]]) + self.size_us
        return found

    def whole(self) -> set[Result]:
        return set(self.sessions())

    def hashes(self, results: Iterable[Result]) -> np.ndarray[Any, Any]:
        assert self.planned.sheds["in"].whole == Keys(("key",), "ts")
        keys = pa.array([each[0] for each in results], self.parts[0].schema.field("key").type)
        return key_hashes(pa.RecordBatch.from_arrays([keys], ["key"]), ("key",))


def test_what_comes_is_the_oracles_to_the_row() -> None:
    """Goal: of sessions the answers are those of batch of which no epoch left out the key within the gap. Method: one partition, so the
    recorded drops say where event time was in each epoch. Spans of epochs that keep as much are one, see `Facts.losing`."""
    run = Sessioned(2.5, 0.8, partitions=1, size_ms=4)
    run.finish()
    missing, times = run.judge(), _column(run.parts[0], "ts")
    lost = [Lost(int(times[: said.first].max(initial=-(2**62))), int(times[: said.taken].max()), min(said.keep)) for said in run.ledger]
    sessions = run.sessions()
    whole = sorted(sessions)
    starts, ends = np.array([each[1] for each in whole]), np.array([sessions[each] for each in whole])
    stays = run.hashes(whole) < kept_of(lost, starts - run.size_us, ends)
    expected = {each for each, stay in zip(whole, stays.tolist(), strict=True) if stay}
    assert run.came() == expected and len(missing) > 10 < len(expected)


def test_most_of_what_can_be_done_is_of_sessions_that_come() -> None:
    run = Sessioned(2.0, 1.5, size_ms=5)
    run.finish()
    missing, came = run.judge(), run.came()
    assert sum(each[2] for each in came) > 0.35 * CAN * 1.5 and missing


def test_every_site_is_relieved_alike() -> None:
    """Goal: of keys that are left out each site has had its part. Method: nothing costs but the keyed work, of which twice as much comes as
    the sites can do; of each site's keys as large a share of the rows comes there."""
    run = Sessioned(2.0, 1.0, size_ms=5, keys=3000, cost=CostModel(row_us=SITES * 1e6 / CAN, free=frozenset({"ingress", "egress"})))
    run.finish()
    assert run.judge()
    segment = next(each for each in run.planned.segments if any(step.kind == "gate" for step in each.steps))
    came = [site.part.tallies.of(segment).rows.sum() for site in run.world.sites]
    keys = pa.concat_arrays([part.column("key") for part in run.parts])
    table = table_of_ranges(segment.in_use or segment.partitions)
    partition = partition_of(hash_columns(pa.record_batch({"key": keys}), ("key",)), table)
    placed = np.array([replicas[0] for replicas in run.world.coordinator.plan.placement[segment.id]])
    shares = came / np.bincount(placed[partition], minlength=SITES)
    assert shares.min() > 0.3 and shares.max() < min(0.8, 1.25 * shares.min()), shares


def test_without_overload_all_sessions_come() -> None:
    run = Sessioned(0.5, 0.5, size_ms=10)
    run.finish()
    assert run.ledger.totals() == {} and run.came() == run.whole()


def test_keys_that_were_left_out_come_back_with_their_next_session() -> None:
    """Goal: no key is left out for ever. Method: of a key of which a session is missing a later one comes."""
    run = Sessioned(2.0, 1.0, size_ms=4)
    run.finish()
    missing, came = run.judge(), run.came()
    last = {key: max(start for other, start, *_ in came if other == key) for key in {each[0] for each in came}}
    assert sum(last.get(key, 0) > start for key, start, *_ in missing) > 10


class _Ahead(GeneratorReader):
    """The first row of partition 1 is stamped 73 years after the others."""

    def __init__(self, source: GeneratorSource, partition: int, of: int) -> None:
        super().__init__(source, partition, of)
        self._ahead = partition == 1

    def _make(self, first: int, count: int) -> pa.RecordBatch:
        made = super()._make(first, count)
        if first or not self._ahead:
            return made
        times = _column(made, "ts").copy()
        times[0] += 73 * 365 * 86_400_000_000
        return made.set_column(1, made.schema.field(1), pa.array(times).view(made.schema.field(1).type))


class OneAhead(GeneratorSource):
    reader: ClassVar[type[MadeReader]] = _Ahead


class Ahead(Sessioned):
    def read(self, source: Any) -> Any:
        return OneAhead(**vars(source))


def test_one_row_that_is_years_ahead_does_not_keep_keys_out_for_years() -> None:
    """Goal: what may be missing is not newer than the rows that were left out. Method: as above, and one partition's first row is far
    ahead. Not of the end: when the other partitions have ended its rows are late."""
    run = Ahead(2.0, 1.0, size_ms=4)
    run.finish()
    came, whole = ({each for each in found if each[1] < 1_800_000} for found in (run.came(), run.whole()))
    assert came <= whole
    last = {key: max(start for other, start, *_ in came if other == key) for key in {each[0] for each in came}}
    assert sum(last.get(key, 0) > start for key, start, *_ in whole - came) > 10


def test_sessions_are_whole_whoever_dies() -> None:
    """Goal: gates know what was left out before they were there."""
    run = Sessioned(2.0, 1.5, replicas=2, size_ms=12)
    run.dies_in_the_middle()
    assert run.judge() and run.came()


def test_sessions_are_whole_after_a_restart() -> None:
    """Goal: what was left out before a checkpoint is known behind it."""
    run = Sessioned(2.5, 0.8, journal=True, size_ms=12)
    run.is_lost_behind_a_checkpoint()
    assert run.judge()
