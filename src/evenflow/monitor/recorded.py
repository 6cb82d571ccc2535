"""Recordings: scenes and readings as lines of JSON, as an engine has told them. An incident can be looked at again, wherever the file is.

A recording that was cut, because its writer died or the disk was full, is read up to the cut. Anything else that is no recording is a
StatisticsError that names the line; nothing in a file runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, BinaryIO, Final

from evenflow.errors import StatisticsError
from evenflow.monitor.reading import Reading
from evenflow.monitor.scene import Scene
from evenflow.monitor.sound import check_scene

LINE_MAX: Final = 64 << 20
"""Bytes of a line: a scene of a hundred times the target size."""


def told(data: Any) -> Scene | Reading | None:
    """What an object is: a scene, a reading, or None of a kind that a newer Evenflow has. Raises StatisticsError naming what is wrong."""
    kind = data.get("kind") if isinstance(data, dict) else None
    if not isinstance(kind, str):
        raise StatisticsError(f"neither a scene nor a reading: {data!r:.60}")
    return Scene.from_json(data) if kind == "scene" else Reading.from_json(data) if kind == "reading" else None


def encoded(each: Scene | Reading) -> bytes:
    """As an engine tells it to those who watch it, which is a line of a recording without its end."""
    return json.dumps(each.to_json(), separators=(",", ":"), default=str).encode()


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a recording, none of them longer than what `read` refuses: a file without ends of lines does not fill the memory."""
    return iter(partial(file.readline, LINE_MAX + 1), b"")


def read(lines: Iterable[bytes]) -> Iterator[Scene | Reading]:
    """What a recording has, in order. lines: with their ends, see `lines_of`.

    Raises StatisticsError naming the line for anything that is no recording. A last line without its end was cut, and is left out.
    """
    scene: Scene | None = None
    for number, line in enumerate(lines, start=1):
        if len(line) > LINE_MAX:
            raise StatisticsError(f"line {number}: {LINE_MAX} bytes and more are more than a line may have")
        if not line.endswith(b"\n"):
            return
        try:
            each = told(json.loads(line))
            if isinstance(each, Reading):
                check(scene, each)
            elif each is not None:
                check_scene(each)
        except RecursionError:
            raise StatisticsError(f"line {number}: nested too deeply for a recording") from None
        except (ValueError, KeyError) as error:
            raise StatisticsError(f"line {number}: {error}") from None
        if isinstance(each, Scene):
            scene = each
        if each is not None:
            yield each


def check(scene: Scene | None, reading: Reading) -> None:
    """Whether the reading is of that scene, and its columns are as long as the scene says. Raises StatisticsError naming what is not."""
    if scene is None or reading.scene != scene.number:
        raise StatisticsError(f"reading {reading.number} is of scene {reading.scene}, which has not come")
    _check("sites", reading.sites, len(scene.sites))
    if [run.run for run in reading.runs] != [run.run for run in scene.runs]:
        raise StatisticsError(f"reading {reading.number} has other runs than scene {scene.number}")
    for run, now in zip(scene.runs, reading.runs):
        sources = sum(segment.source is not None for segment in run.segments)
        lengths = (
            (now.sites, len(scene.sites)), (now.boxes, len(run.boxes)), (now.segments, len(run.segments)), (now.sources, sources),
            (now.streams, len(run.streams)), (now.replicas, len(run.replicas_of.site)),
        )  # fmt: skip
        for columns, length in lengths:
            _check(type(columns).__name__, columns, length)


def _check(what: str, columns: Any, length: int) -> None:
    for name in columns.__slots__:
        if getattr(columns, name) is not None and len(getattr(columns, name)) != length:
            raise StatisticsError(f"{what}.{name} has {len(getattr(columns, name))} values, and the scene {length}")
