"""Decisions of a directory as one look at its names has found them, each read once: none is ever replaced.

Whoever clears up after a crash in the middle of a file of many commits meets each of their parts, and asks of each what was decided. What
is read here costs one request a commit and one a file, however many parts there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from evenflow.sinks.closings import Closing, read_closing
from evenflow.sinks.manifests import Manifest, read_manifest
from evenflow.store.files import FileStore


@dataclass(slots=True)
class Decisions:
    """commits: (run, epoch) of all that were decided. firsts: as `closed_firsts` has found them. cleared: files that are in their place,
    and of which no part is staged any more."""

    store: FileStore
    commits: set[tuple[str, int]]
    firsts: Mapping[str, Sequence[int]]
    cleared: set[tuple[str, str]] = field(default_factory=set)
    _manifests: dict[tuple[str, int], Manifest] = field(default_factory=dict)
    _closings: dict[tuple[str, int], Closing] = field(default_factory=dict)

    def manifest(self, run: str, epoch: int) -> Manifest:
        """FileNotFoundError if there is none."""
        if (run, epoch) not in self._manifests:
            self._manifests[run, epoch] = read_manifest(self.store, run, epoch)
        return self._manifests[run, epoch]

    def closing(self, run: str, first: int) -> Closing:
        """The decision about the file that begins with that commit."""
        if (run, first) not in self._closings:
            self._closings[run, first] = read_closing(self.store, run, first)
        return self._closings[run, first]

    def closing_of(self, run: str, epoch: int) -> Closing | None:
        """The file in which a commit is; None if it waits."""
        before = [first for first in self.firsts.get(run, ()) if first <= epoch]
        closing = self.closing(run, before[-1]) if before else None
        return closing if closing is not None and epoch in closing.epochs else None

    def file_of(self, manifest: Manifest) -> Manifest | None:
        """What a commit is published as: itself, or with the others of its file; None if it waits for them."""
        if manifest.slot is None:
            return manifest
        closing = self.closing_of(manifest.run, manifest.epoch)
        if closing is None:
            return None
        parts = [part for epoch in closing.epochs for part in self.manifest(closing.run, epoch).parts]
        return Manifest(closing.run, closing.epochs[-1], tuple(parts), closing.file)


__all__ = ["Decisions"]
