"""Another mode of availability for boxes of a run, while it goes on (availability.md, M2)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from evenflow.availability.choosing import changed, check_alike
from evenflow.availability.mode import Modes, of_segment, shortened
from evenflow.coordinator.events import AvailabilityRequested, Denied
from evenflow.errors import AvailabilityError, ClusterError, OperationRefused

if TYPE_CHECKING:
    from evenflow.coordinator.events import Done
    from evenflow.world.spark.driver.driver_loop import DriverLoop
    from evenflow.world.spark.driver.run_loop import RunLoop

EVERY_BOX: Final = "*"


def without(wanted: Modes, before: Modes, mine: Modes) -> Modes:
    """What is wanted, without what one of those who have asked has changed of it. before, mine: what was wanted when he asked, and then."""
    every = range(max(len(wanted), len(before), len(mine)))
    found = [[of_segment(modes, segment) for modes in (wanted, before, mine)] for segment in every]
    return shortened([was if now is asked else now for now, was, asked in found])


class ChosenModes:
    """What a run says of its modes. A part of `Run`."""

    if TYPE_CHECKING:
        _coordinator: DriverLoop

        @property
        def _driven(self) -> RunLoop: ...

        def _check_running(self) -> None: ...

        def _await_answer(self, request: int, deadline_s: float) -> Done | Denied | None: ...

    def set_availability(self, box: str, mode: str, timeout_s: float = 300.0) -> dict[str, Any]:
        """Give a box another mode of availability, with all that runs together with it, while everything runs. Results stay the same.

        From pairs to amnesia all replicas but one go; back, recovery makes them again: until `progress()["protected"]` is 1, the next
        death may end the run, also where something would have begun anew before. It comes after what else is under way. box: its name, or
        "*" for all. mode: "pairs", "passive", "upstream" or "amnesia". Returns epoch, from which it is so, and modes, of the segments that
        have changed. timeout_s: after that it is not wanted any more. Raises OperationRefused, and changes nothing, if there is no such box
        or mode, or if it cannot have it: the message says which box or output is in the way; ClusterError when the time is over.
        """
        machine, deadline_s = self._driven.machine, time.monotonic() + timeout_s
        replicas, asked = self._coordinator.replicas, list[Modes]()

        def begin() -> int:
            self._check_running()
            try:
                before = machine.modes.modes  # Others may have asked, and not have what they want yet.
                modes = changed(machine.layout, before, box, mode, len(machine.sites), replicas, machine.journal is not None)
                if (region := self._driven.region) is not None:
                    check_alike(modes, region.group.name)
            except AvailabilityError as error:
                raise OperationRefused(str(error)) from None
            asked.extend((before, modes))
            said = "all boxes" if box == EVERY_BOX else f"box {box!r}"
            return self._driven.request(lambda number: AvailabilityRequested(modes, replicas, said, number))

        answer = self._await_answer(self._coordinator.ask(begin), deadline_s)
        if isinstance(answer, Denied):
            raise OperationRefused(answer.why)
        if answer is None:
            if not machine.over:
                back = lambda: self._driven.handle(AvailabilityRequested(without(machine.modes.modes, *asked), replicas))  # noqa: E731
                self._coordinator.ask(back)
            raise ClusterError(f"box {box!r} did not get availability {mode!r} within {timeout_s:g} s, and stays as it is")
        return dict(answer.details)
