"""What a killed executor did to a run, in numbers and in one or two sentences. Pure functions: nothing is said that was not measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenflow.monitor.summary import milliseconds


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill. at_s: since the run's start."""

    site: int
    executor: str
    at_s: float


@dataclass(frozen=True, slots=True)
class Aftermath:
    """What came of a kill.

    gap_ms: the longest time between two epochs at the sink, from the kill until redundancy was full, at least a second. usual_gap_ms: the
    longest in a span of that length before the kill, in the middle of several. take_over_ms: from the kill until the coordinator had
    declared the site dead; who was fed by it has turned to another replica before. redundancy_s: from the kill to full redundancy.
    None: not known, or it did not come to that. events: of the run, from the kill on.
    """

    kill: Kill
    gap_ms: float | None
    usual_gap_ms: float | None
    take_over_ms: float | None
    redundancy_s: float | None
    events: tuple[Mapping[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        """The value of "kill" in the demo's JSON object; its keys are described in docs/cli.md."""
        return {
            "site": self.kill.site,
            "executor": self.kill.executor,
            "at_s": round(self.kill.at_s, 3),
            "gap_ms": self.gap_ms,
            "usual_gap_ms": self.usual_gap_ms,
            "take_over_ms": self.take_over_ms,
            "redundancy_s": self.redundancy_s,
            "events": [dict(event) for event in self.events],
        }


def aftermath(kill: Kill, events: Sequence[Mapping[str, Any]], gap_ms: float | None, usual_gap_ms: float | None) -> Aftermath:
    """events: of the whole run. A take-over from another site, which died by itself meanwhile, does not count."""
    later = tuple(event for event in events if event["at_s"] >= kill.at_s)
    taken_over = next((event["at_s"] for event in later if event["kind"] == "take_over" and event["site"] == kill.site), None)
    full = None if taken_over is None else next((e["at_s"] for e in later if e["kind"] == "redundancy" and e["at_s"] >= taken_over), None)
    return Aftermath(
        kill,
        gap_ms,
        usual_gap_ms,
        None if taken_over is None else round((taken_over - kill.at_s) * 1000, 1),
        None if full is None else round(full - kill.at_s, 3),
        later,
    )


def kill_sentence(after: Aftermath) -> str:
    """Killed executor 3 (site 2) at 7.5 s: longest gap at the sink 84 ms (usually 41 ms), full redundancy after 2.3 s."""
    kill = after.kill
    usually = f" (usually {milliseconds(after.usual_gap_ms)})" if after.usual_gap_ms is not None else ""
    gap = "nothing came to measure a gap in"
    if after.gap_ms is not None:
        gap = f"longest gap at the sink {milliseconds(after.gap_ms)}{usually}"
    whole = "not back by the end" if after.redundancy_s is None else f"after {after.redundancy_s:.1f} s"
    return f"Killed executor {kill.executor} (site {kill.site}) at {kill.at_s:.1f} s: {gap}, full redundancy {whole}."


def compared_sentence(compared: Mapping[str, Any] | None) -> str:
    """What a comparison of the output with what it must be has found."""
    if compared is None:
        return "The results were not compared with anything."
    counts = f"lost {compared['lost']:,}, repeated {compared['repeated']:,}, wrong {compared['wrong']:,}"
    return f"Rows {counts}, of {compared['rows']:,} that a plain computation over the same packets gives."
