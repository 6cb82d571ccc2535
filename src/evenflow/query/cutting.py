"""What decides which rows form an epoch, as users say it, and what must be alike for all sources of a dataflow (protocol E9)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from evenflow.errors import OptionError, QueryError
from evenflow.query.effects import arbitrary
from evenflow.query.network import Network
from evenflow.sources.cut import CutSource, cut_by_content

CUTS: Final = ("leader", "content")


@dataclass(frozen=True, slots=True)
class CutOptions:
    """As for `Dataflow.source`."""

    width_ms: float | None = None
    cut_by: Any = None
    width_rows: int | None = None
    cut_ahead_ms: float | None = None
    mirrored: bool = False

    def apply(self, source: Any, cut: str) -> Any:
        """The source, cut so. Raises OptionError, QueryError."""
        if cut not in CUTS:
            raise OptionError(f"{source.kind} source: cut is {cut!r}; give 'leader' or 'content'")
        if cut == "leader":
            if self != CutOptions():
                raise OptionError(f"{source.kind} source: width_ms, cut_by, width_rows, cut_ahead_ms and mirrored are for cut='content'")
            return source
        if isinstance(source, CutSource):
            raise OptionError(f"{source.source.kind} source: it is cut by content already; leave cut= out")
        return cut_by_content(
            source, width_ms=self.width_ms, by=self.cut_by, rows=self.width_rows, ahead_ms=self.cut_ahead_ms, mirrored=self.mirrored
        )


def cut_all(network: Network, cut: str, of: CutOptions) -> Network:
    """The network with all its sources cut so. Raises OptionError; QueryError that names the first that cannot be, or is already."""
    boxes = [
        replace(box, params={**box.params, "source": of.apply(box.params["source"], cut)}) if box.kind == "source" else box
        for box in network
    ]
    return Network(network.name, tuple(boxes))


def check_cuts(network: Network) -> None:
    """Raise the QueryError for a dataflow whose sources are not cut alike: an epoch is one of all of them."""
    boxes = network.of_kind("source")
    cut = {box.name: box.params["source"] for box in boxes if isinstance(box.params["source"], CutSource)}
    if not cut:
        return
    others = [box.name for box in boxes if box.name not in cut]
    if others:
        raise QueryError(
            f"box {others[0]!r}: its source has a leader, and that of {next(iter(cut))!r} is cut by content; an epoch is one of all "
            "sources, so cut all of them by content, or none"
        )
    if asks := arbitrary(network):
        raise QueryError(
            f"box {asks[0].name!r} asks what may be answered otherwise next time, so somebody must lead it, and where sources are cut by "
            "content nobody leads; cut them by 'leader', or say deterministic=True if an answer never changes"
        )
    (first, model), *rest = cut.items()
    for name, source in rest:
        if source.width_us != model.width_us:
            raise QueryError(
                f"box {name!r}: its epochs are {source.width_us / 1000:g} ms wide, and those of {first!r} {model.width_us / 1000:g} ms; "
                "give both the same width_ms"
            )
        if source.begin_us != model.begin_us:
            raise QueryError(f"box {name!r}: its epochs do not begin when those of {first!r} do; give both the same")
