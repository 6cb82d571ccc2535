"""Checkpoints and savepoints that a person asks a run for: asked in the coordinator's thread, waited for and copied in the person's own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa

from evenflow.availability.entries import Completed
from evenflow.coordinator.events import CheckpointRequested, Denied, Done, LastWithdrawn
from evenflow.errors import ClusterError, OperationRefused
from evenflow.store.opening import open_store
from evenflow.world.locations.checkpoints import checkpoints
from evenflow.world.locations.looking import looked_up
from evenflow.world.locations.proving import Say
from evenflow.world.locations.savepoints import Savepoint, check_free
from evenflow.world.spark.driver.driver_loop import DriverLoop
from evenflow.world.spark.driver.run_loop import RunLoop

WAIT_SLICE_S: Final = 0.2
AGAIN_S: Final = 0.2
"""After so long it is asked again, where something was in the way."""


class Keeping:
    """Of one run."""

    def __init__(self, driven: RunLoop, coordinator: DriverLoop) -> None:
        self._driven, self._coordinator = driven, coordinator

    def checkpoint(self, timeout_s: float) -> dict[str, Any]:
        """See Run.checkpoint."""
        return self._described(self._asked(timeout_s, last=False))

    @contextmanager
    def last(self, timeout_s: float) -> Iterator[dict[str, Any]]:
        """A checkpoint after which nothing is given out any more, for who stops the run in this block. If that is left by an error, be it
        Ctrl-C, the run goes on. Until the time is over it is asked for again, whatever got in its way."""
        deadline_s, requests = time.monotonic() + timeout_s, list[int]()
        try:
            while True:
                try:
                    made = self._asked(timeout_s, requests, last=True)
                    break
                except OperationRefused:
                    machine = self._driven.machine
                    if time.monotonic() >= deadline_s or machine.durable is None or not machine.running:
                        raise
                    self._driven.over.wait(AGAIN_S)
            yield self._described(made)
        except BaseException:
            self._coordinator.call_soon(lambda: self._withdraw(requests))  # What it is still asked comes first.
            raise

    def _withdraw(self, requests: Sequence[int]) -> None:
        for request in requests:
            self._driven.handle(LastWithdrawn(request))

    def savepoint(self, target: str, timeout_s: float, say: Say | None) -> Savepoint:
        """See Run.savepoint."""
        check_free(open_store(target))
        with self._kept(self._asked(timeout_s, last=False)) as made:
            return self.export(made.name, target, say)

    def state(self, box: str, key: Mapping[str, Any] | None, kind: str | None, limit: int | None, timeout_s: float) -> pa.Table:
        """See Run.state."""
        url = self._driven.store_url
        if not self._driven.located:
            raise OperationRefused(
                f"run {self._driven.run_id} has no checkpoint location, and a look at state is a checkpoint that is read, so that all rows "
                "are of one epoch: start it with checkpoint_location=, --checkpoint-location; a directory that all executors see is enough"
            )
        with self._kept(self._asked(timeout_s, last=False)) as made:
            assert url is not None, "it was made there"
            return looked_up(checkpoints(url), box, made.name, key, kind=kind, limit=limit)

    def export(self, name: str, target: str, say: Say | None = None) -> Savepoint:
        """A savepoint of one that is there."""
        url = self._driven.store_url
        assert url is not None, "it was made there"
        return checkpoints(url).export(target, name, say=say)

    # ------------------------------------------------------------ asking

    def _asked(self, timeout_s: float, requests: list[int] | None = None, *, last: bool) -> Completed:
        """requests: gets the numbers of what was asked for."""
        driven = self._driven
        if not driven.located:
            raise OperationRefused(
                f"run {driven.run_id} has no checkpoint location, so it has no checkpoints: start it with checkpoint_location=, "
                "--checkpoint-location"
            )

        def requested(number: int) -> CheckpointRequested:
            if requests is not None:
                requests.append(number)
            return CheckpointRequested(number, last)

        def ask() -> int:
            if not driven.machine.running:
                why = "has ended" if driven.machine.over else "has not begun yet: its sites are still being prepared"
                raise OperationRefused(f"run {driven.run_id} {why}")
            return driven.request(requested)

        deadline_s = time.monotonic() + timeout_s
        number = None
        while number is None:
            number = self._answered(self._coordinator.ask(ask), deadline_s, timeout_s, last=last)
        found = self._coordinator.ask(lambda: [made for made in driven.machine.checkpointing.retained if made.number == number])
        if not found:
            raise ClusterError(f"checkpoint {number} of run {driven.run_id} was whole, and newer ones have taken its place already")
        return found[-1]

    def _answered(self, request: int, deadline_s: float, timeout_s: float, *, last: bool) -> int | None:
        """Number of the checkpoint; None: to be asked for again, since something else is under way. The machine answers as long as the run
        lives: what does not become whole is dropped, so the last one is waited for, however long that takes."""
        driven = self._driven
        while True:
            answer, over = self._coordinator.ask(lambda: (driven.answer(request), driven.machine.over))
            match answer:
                case Done():
                    return int(answer.details["number"])
                case Denied() if answer.busy and time.monotonic() < deadline_s:
                    driven.over.wait(AGAIN_S)
                    return None
                case Denied():
                    raise OperationRefused(answer.why)
                case None if over:
                    raise driven.failure or ClusterError(f"run {driven.run_id} ended before the checkpoint was whole")
                case None if not last and time.monotonic() >= deadline_s:
                    raise ClusterError(f"the checkpoint is not whole after {timeout_s:g} s; it may still become so")
            driven.over.wait(WAIT_SLICE_S)

    def _described(self, made: Completed) -> dict[str, Any]:
        return {"number": made.number, "generation": made.generation, "epoch": made.epoch, "bytes": made.bytes}

    @contextmanager
    def _kept(self, made: Completed) -> Iterator[Completed]:
        """Meanwhile nobody deletes it, though newer ones come."""
        numbers = self._driven.checkpoint_numbers

        def keep() -> None:
            numbers.kept = (*numbers.kept, made)

        def let_go() -> None:
            numbers.kept = tuple(each for each in numbers.kept if each is not made)

        self._coordinator.ask(keep)
        try:
            yield made
        finally:
            self._coordinator.call_soon(let_go)


class AskedFor:
    """The part of a run that shows and keeps its state. The run says who does it."""

    @property
    def _keeping(self) -> Keeping:
        raise NotImplementedError

    def checkpoint(self, timeout_s: float = 120.0) -> dict[str, Any]:
        """Make a checkpoint now, and wait until it is whole. Returns its number, generation, epoch and bytes.

        One that is under way will do, and moves are waited for. Raises OperationRefused if the run has no location or is not under way, or
        if something gets in its way, which the message names: a dead site, the store; ask again then. ClusterError after timeout_s.
        """
        return self._keeping.checkpoint(timeout_s)

    def state(
        self, box: str, key: Mapping[str, Any] | None = None, *, kind: str | None = None, limit: int | None = None, timeout_s: float = 120.0
    ) -> pa.Table:
        """Rows that a box keeps, of one epoch, from a checkpoint made for it. key: values by column. Raises as `checkpoint` does."""
        return self._keeping.state(box, key, kind, limit, timeout_s)

    def savepoint(self, target: str, timeout_s: float = 120.0, say: Say | None = None) -> Savepoint:
        """Make a checkpoint, and copy it with all that is needed to start from it to an empty folder, while the run goes on.

        say: is told how far it is. timeout_s: for the checkpoint; copying takes as long as it takes. Raises as `checkpoint` and
        `Checkpoints.export` do.
        """
        return self._keeping.savepoint(target, timeout_s, say)
