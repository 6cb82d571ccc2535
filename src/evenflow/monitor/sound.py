"""Whether a scene that came from a file holds together: numbers lead to what is there, and a picture is one.

An engine's scenes do by construction. A file may have been made by anybody, and what shows it makes lists as long as the scene says and
looks things up by its numbers; so it is asked once, where it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from evenflow.errors import StatisticsError
from evenflow.monitor.scene import Scene, SceneRun

PARTITIONS_MAX: Final = 1 << 20
"""Of all segments of a run."""
PLACE: Final = ("x", "y", "width", "height")


def check_scene(scene: Scene) -> None:
    """Raises StatisticsError naming what leads nowhere."""
    ids = [run.run for run in scene.runs]
    if len(set(ids)) < len(ids):
        raise StatisticsError("scene.runs: two have one id")
    for place, run in enumerate(scene.runs):
        at = f"scene.runs[{place}]"
        if len(run.roles) != len(scene.sites):
            raise StatisticsError(f"{at}.roles has {len(run.roles)} values for {len(scene.sites)} sites")
        _check_dataflow(run, at)
        _check_replicas(run, at)
        _check_picture(run, at)


def _check_dataflow(run: SceneRun, at: str) -> None:
    segments, streams, steps, names = len(run.segments), len(run.streams), len(run.steps), {box.name for box in run.boxes}
    if any(segment.segment != place for place, segment in enumerate(run.segments)):
        raise StatisticsError(f"{at}.segments: a number is not its place")
    if any(stream.stream != place for place, stream in enumerate(run.streams)):
        raise StatisticsError(f"{at}.streams: a number is not its place")
    if len(names) < len(run.boxes):
        raise StatisticsError(f"{at}.boxes: two have one name")
    _within(f"{at}.streams", (end for stream in run.streams for end in (stream.producer, stream.consumer)), segments)
    _within(f"{at}.steps", (step.segment for step in run.steps), segments)
    _within(f"{at}.boxes.segments", (each for box in run.boxes for each in box.segments), segments)
    _within(f"{at}.boxes.steps", (each for box in run.boxes for each in box.steps), steps)
    _within(f"{at}.arrows.streams", (each for arrow in run.arrows for each in arrow.streams), streams)
    _named(f"{at}.arrows", (name for arrow in run.arrows for name in (arrow.start, arrow.end)), names)
    partitions = [segment.partitions for segment in run.segments]
    if min(partitions, default=1) < 1 or sum(partitions) > PARTITIONS_MAX:
        raise StatisticsError(f"{at}.segments: {min(partitions)} to {max(partitions)} partitions each, {sum(partitions)} in all")


def _check_replicas(run: SceneRun, at: str) -> None:
    of = run.replicas_of
    count = len(of.segment)
    if any(len(column) != count for column in (of.partition, of.rank, of.site, of.state)):
        raise StatisticsError(f"{at}.replicas_of: columns of several lengths")
    _within(f"{at}.replicas_of.segment", of.segment, len(run.segments))
    _within(f"{at}.replicas_of.rank", of.rank, 1 << 10)
    sizes = [segment.partitions for segment in run.segments]
    if any(not 0 <= partition < sizes[segment] for segment, partition in zip(of.segment, of.partition)):
        raise StatisticsError(f"{at}.replicas_of: a partition is not in its segment")
    for copy in run.copies:
        _within(f"{at}.copies.segment", (copy.segment,), len(run.segments))
        _within(f"{at}.copies.partitions", copy.partitions, sizes[copy.segment])


def _check_picture(run: SceneRun, at: str) -> None:
    """See `evenflow.query.geometry.geometry_json`."""
    names, picture, at = {box.name for box in run.boxes}, run.geometry, f"{at}.geometry"
    _numbers(at, picture, ("width", "height"))
    boxes, arrows, groups = (_objects(at, picture, key) for key in ("boxes", "arrows", "groups"))
    for box in boxes:
        _numbers(f"{at}.boxes", box, PLACE)
        _texts(f"{at}.boxes", [box.get("name"), box.get("kind"), *_list(box.get("lines")), *_list(box.get("columns"))])
    _named(f"{at}.boxes", (box["name"] for box in boxes), names)
    if len(boxes) > len(names):
        raise StatisticsError(f"{at}.boxes: a box stands there twice")
    for arrow in arrows:
        _texts(f"{at}.arrows", [arrow.get("start"), arrow.get("end")])
        points = _list(arrow.get("points"))
        if len(points) < 2 or any(len(_list(point)) != 2 or not all(_is_number(each) for each in point) for point in points):
            raise StatisticsError(f"{at}.arrows: points are two or more pairs of numbers")
    _named(f"{at}.arrows", (name for arrow in arrows for name in (arrow["start"], arrow["end"])), names)
    for group in groups:
        _numbers(f"{at}.groups", group, PLACE)
        _texts(f"{at}.groups", [group.get("title")])
        segments = _list(group.get("segments"))
        if not segments or any(type(each) is not int for each in segments):
            raise StatisticsError(f"{at}.groups: segments are whole numbers")
        _within(f"{at}.groups.segments", segments, len(run.segments))


def _within(at: str, numbers: Iterable[int], count: int) -> None:
    wrong = next((each for each in numbers if not 0 <= each < count), None)
    if wrong is not None:
        raise StatisticsError(f"{at}: {wrong if abs(wrong) < 2**63 else 'a number beyond all'} is none of {count}")


def _named(at: str, found: Iterable[str], names: set[str]) -> None:
    strange = next((name for name in found if name not in names), None)
    if strange is not None:
        raise StatisticsError(f"{at}: no box is called {strange!r:.60}")


def _objects(at: str, picture: Any, key: str) -> Sequence[Any]:
    found = picture.get(key)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise StatisticsError(f"{at}.{key} must be a list of objects")
    return found


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [None]


def _texts(at: str, values: Sequence[Any]) -> None:
    if not all(isinstance(value, str) for value in values):
        raise StatisticsError(f"{at}: a text is missing, or is none")


def _numbers(at: str, value: Any, names: Sequence[str]) -> None:
    if not all(_is_number(value.get(name)) for name in names):
        raise StatisticsError(f"{at} must have {', '.join(names)}, which are numbers")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e9
