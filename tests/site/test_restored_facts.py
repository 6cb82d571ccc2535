"""What goes along with state that several sites have captured, and one takes in after a restart."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from evenflow.errors import CheckpointCorrupt
from evenflow.site.restoring import _facts


def piece(*partitions: int, **facts: Any) -> Any:
    return SimpleNamespace(partitions=partitions, facts={"watermark": 7, "logs": {}, "digests": [], **facts})


def order(*pieces: Any) -> Any:
    return SimpleNamespace(partitions=(0, 1, 2), pieces=pieces, epoch=9, segment_name="windows")


def test_what_windows_have_lost_before_a_checkpoint_is_known_behind_it() -> None:
    """D4: else a window that was open then would come as a part. Pieces say the same, since they are of the end of one epoch, unless
    partitions of some had begun anew, with nothing."""
    lost = [[3, 20, 500], [5, 30, 400]]
    assert _facts(order(piece(0, 1, lost=lost), piece(2, lost=lost)))["lost"] == lost
    assert _facts(order(piece(0, 1), piece(2)))["lost"] == [], "a checkpoint of a version that knew of none"
    for pieces in ((piece(0, 1, lost=lost), piece(2, lost=lost[1:])), (piece(0, 1, lost=lost[1:]), piece(2, lost=lost))):
        assert _facts(order(*pieces))["lost"] == lost
    assert _facts(order(piece(0, 1, lost=lost), piece(2)))["lost"] == lost == _facts(order(piece(0, 1), piece(2, lost=lost)))["lost"]


def test_partitions_that_nobody_captured_are_missed() -> None:
    with pytest.raises(CheckpointCorrupt, match="no partitions 2 of segment 'windows'"):
        _facts(order(piece(0, 1)))
