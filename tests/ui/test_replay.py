"""A recording on the page of an engine: a person moves in its time and sees a kill; what is cut or hostile is said."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, expect

from evenflow.cli.ui import Reached, _replayer
from evenflow.errors import StatisticsError
from evenflow.monitor.reading import FailedRow, LogLine, Reading
from evenflow.monitor.scene import Scene
from evenflow.monitor.web.guard import Tokens
from evenflow.monitor.web.serve import Server, bound
from evenflow.monitor.web.tape import PART_MAX, Tape, thinned
from tests.monitor.simulated import line_of, readings_of, scenes_of, stream
from tests.ui.looking import is_accessible, is_whole, opened
from tests.ui.serving import Page


@cache
def kill() -> list[bytes]:
    """Lines of a recording in which a site dies after four seconds of eight."""
    return [line_of(each).encode() for each in stream(8.0, kill_s=4.0)]


@contextlib.contextmanager
def replaying(path: Path) -> Iterator[str]:
    """`evenflow ui FILE.jsonl`, without its process. Yields its address."""
    listening, begun, servers = bound("127.0.0.1", 0), threading.Event(), list[Server]()

    def note(server: Server) -> None:
        servers.append(server)
        begun.set()

    replay = _replayer(path)
    reached = Reached(listening, Tokens("look", None), "127.0.0.1", (), "'none'", note)
    thread = threading.Thread(target=replay, args=(reached,), daemon=True)
    thread.start()
    assert begun.wait(20)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    finally:
        servers[0].should_exit = True
        thread.join(20)
        listening.close()


def ask(at: str, path: str, token: str = "look") -> tuple[int, Any]:
    connection = http.client.HTTPConnection(urlsplit(at).netloc, timeout=20)
    with contextlib.closing(connection):
        connection.request("GET", f"/{path}", headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


@pytest.mark.conformance
def test_a_kill_is_seen_again_and_a_cut_is_said(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "incident.jsonl"
    path.write_bytes(b"".join(kill())[:-200])
    with replaying(path) as at, opened(browser, Page(None, None, at), url=f"{at}#token=look") as watched:  # type: ignore[arg-type]
        page = watched.page
        expect(page.locator("#state")).to_have_text("recording")
        expect(page.locator(".replay .ends")).to_contain_text("cut in the middle")
        scrubber, dead = page.get_by_label("Moment of the recording"), page.locator(".siterow[data-role='dead']")
        expect(page.locator(".replay .now")).to_contain_text(" of ")
        expect(dead).to_have_count(0)
        expect(page.locator(".happened li")).to_have_count(0)
        page.get_by_label("The next event").click()
        expect(dead).to_have_count(1)
        expect(page.locator(".happened li b").last).to_have_text("site lost")
        expect(page.locator(".marks i").last).to_have_attribute("data-tone", "bad")
        is_whole(page)
        is_accessible(page)
        scrubber.press("End")
        expect(page.locator(".happened li b", has_text="redundancy")).to_be_visible()
        expect(page.locator(".figure").first.locator(".value")).to_contain_text("/s")
        scrubber.press("Home")
        expect(page.locator(".happened li")).to_have_count(0)
        expect(dead).to_have_count(0)
        page.get_by_label("Speed").select_option("64")
        page.get_by_role("button", name="Play").click()
        expect(page.locator(".happened li b", has_text="redundancy")).to_be_visible()
        expect(page.get_by_role("button", name="Play")).to_be_visible()
        page.locator(".curve .u-over").first.click(position={"x": 20, "y": 40})
        expect(page.locator(".happened li")).to_have_count(0)
        assert page.locator("[data-operation]").count() == 0
        page.set_viewport_size({"width": 390, "height": 800})
        is_whole(page)


@pytest.mark.conformance
def test_a_recording_that_began_late_is_told_in_the_times_of_its_run(browser: Browser, tmp_path: Path) -> None:
    told = stream(8.0, kill_s=4.0)
    late = next(place for place, each in enumerate(told) if isinstance(each, Reading) and each.runs[0].elapsed_us > 3_000_000)
    scenes, path = [each for each in told[:late] if isinstance(each, Scene)], tmp_path / "late.jsonl"
    path.write_bytes(b"".join(line_of(each).encode() for each in (scenes[-1], *told[late:])))
    first, last = (f"{readings_of(told[late:])[end].runs[0].elapsed_us / 1e6:.2f} s" for end in (0, -1))
    with replaying(path) as at, opened(browser, Page(None, None, at), url=f"{at}#token=look") as watched:  # type: ignore[arg-type]
        page = watched.page
        now, scrubber = page.locator(".replay .now"), page.get_by_label("Moment of the recording")
        expect(now).to_contain_text(f"recorded from {first} to {last}")
        scrubber.press("Home")
        expect(now).to_contain_text(f"{first} of the run")
        page.get_by_label("The next event").click()
        killed = page.locator(".happened li", has_text="site lost").locator("time").text_content()
        shown = scrubber.get_attribute("aria-valuetext")
        assert killed is not None and shown is not None
        assert 0 <= float(shown.split()[0]) - float(killed.split()[0]) <= 0.6, (killed, shown)
        expect(page.locator(".figure").first.locator(".value")).to_contain_text("/s")
        scrubber.press("End")
        expect(now).to_contain_text(f"{last} of the run")
        expect(page.locator(".figure").first.locator(".value")).to_contain_text("/s")
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 900})
            is_whole(page)


def test_a_page_is_given_what_it_asks_for_and_nothing_without_a_token(tmp_path: Path) -> None:
    path = tmp_path / "incident.jsonl"
    path.write_bytes(b"".join(kill()))
    told = readings_of(stream(8.0, kill_s=4.0))
    with replaying(path) as at:
        index = ask(at, "api/v1/recording")[1]
        assert index["at_us"] == [each.at_us for each in told] and index["whole"] and index["ends"] is None
        assert [event["kind"] for event in index["events"]] == [event.kind for each in told for event in each.runs[0].events]
        parts = ask(at, f"api/v1/recording/part?first=1&count={10**9}")[1]
        found = [each["number"] for each in parts if each["kind"] == "reading"]
        assert found == [each.number for each in told[1 : 1 + PART_MAX]]
        assert parts[0]["kind"] == "scene" and "events" not in parts[1]["runs"][0]
        assert ask(at, f"api/v1/recording/part?first={10**6}")[1] == []
        for wrong in ("first=-1", "count=0", "first=x", f"first={10**30}", "count=1e9"):
            assert ask(at, f"api/v1/recording/part?{wrong}")[0] == 422
        for path_ in ("recording", "recording/part"):
            assert ask(at, f"api/v1/{path_}", "guessed")[0] == 401
        path.write_bytes(b"{}\n" * 40)
        assert ask(at, "api/v1/recording/part?first=3")[0] == 503


@pytest.mark.conformance
def test_warnings_and_failed_rows_stand_where_there_are_any(browser: Browser, tmp_path: Path) -> None:
    scene, told = scenes_of(stream(8.0, kill_s=4.0))[0], readings_of(stream(8.0, kill_s=4.0))[:3]
    lines = tuple(
        LogLine(n, told[2].at_us, n % 3, "ERROR" if n % 5 else "WARNING", "mine.code", f"<b>{n}</b> " + "long " * n) for n in range(50)
    )
    failed = tuple(FailedRow("kept", f"key={n}, value='{'x' * 280}'", f"ValueError: {n} is not one") for n in range(20))
    last = replace(told[2], logs=lines, logs_count=2_345, runs=(replace(told[2].runs[0], failed=failed, failed_rows=20),))
    path = tmp_path / "warned.jsonl"
    path.write_bytes(b"".join(line_of(each).encode() for each in (scene, *told[:2], last)))
    with replaying(path) as at, opened(browser, Page(None, None, at), url=f"{at}#token=look") as watched:  # type: ignore[arg-type]
        page = watched.page
        expect(page.locator("#state")).to_have_text("recording")
        expect(page.locator(".replay .now")).to_contain_text(" of ")
        warned, rows = page.locator(".at-logs"), page.locator(".at-failed")
        page.get_by_label("Moment of the recording").press("Home")
        expect(warned).to_be_hidden()
        expect(rows).to_be_hidden()
        page.get_by_label("Moment of the recording").press("End")
        expect(warned).to_contain_text("the newest 50 of 2,345 lines")
        expect(warned.locator("li")).to_have_count(50)
        expect(warned.locator("li").first).to_contain_text("<b>49</b>")
        expect(rows.locator("tbody tr")).to_have_count(20)
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 900})
            is_whole(page)
            is_accessible(page)


def shown(tmp_path: Path, *lines: bytes) -> Tape:
    path = tmp_path / "made.jsonl"
    path.write_bytes(b"".join(lines))
    tape = Tape(path)
    tape.fill()
    return tape


HOSTILE: dict[str, Callable[[Any], Any]] = {
    "partitions without end": lambda run: replace(run, segments=(replace(run.segments[0], partitions=10**12), *run.segments[1:])),
    "none at all": lambda run: replace(run, segments=(replace(run.segments[0], partitions=0), *run.segments[1:])),
    "a partition of no segment": lambda run: replace(
        run, replicas_of=replace(run.replicas_of, partition=(10**6, *run.replicas_of.partition[1:]))
    ),
    "columns of several lengths": lambda run: replace(run, replicas_of=replace(run.replicas_of, site=run.replicas_of.site[1:])),
    "a rank without end": lambda run: replace(run, replicas_of=replace(run.replicas_of, rank=(10**9, *run.replicas_of.rank[1:]))),
    "a stream that is not there": lambda run: replace(run, arrows=(replace(run.arrows[0], streams=(10**400,)), *run.arrows[1:])),
    "an arrow from nowhere": lambda run: replace(run, arrows=(replace(run.arrows[0], start="<img src=x>"), *run.arrows[1:])),
    "no picture": lambda run: replace(run, geometry={}),
    "a picture of texts": lambda run: replace(run, geometry={**run.geometry, "width": "1e9px"}),
    "a box twice": lambda run: replace(run, geometry={**run.geometry, "boxes": [*run.geometry["boxes"], run.geometry["boxes"][0]]}),
    "an arrow of one point": lambda run: replace(
        run, geometry={**run.geometry, "arrows": [{**run.geometry["arrows"][0], "points": [[0, 0]]}]}
    ),
    "a group of no segment": lambda run: replace(
        run, geometry={**run.geometry, "groups": [{**run.geometry["groups"][0], "segments": [99]}]}
    ),
    "roles of other sites": lambda run: replace(run, roles=run.roles[1:]),
}
"""Scenes that a page could not show, made of one that it can: each is a reason to end there."""


def hostile(name: str) -> bytes:
    scene = scenes_of(stream(8.0, kill_s=4.0))[0]
    return line_of(replace(scene, number=99, runs=(HOSTILE[name](scene.runs[0]),))).encode()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_scene_that_leads_nowhere_ends_the_recording_with_its_line(tmp_path: Path, name: str) -> None:
    tape = shown(tmp_path, *kill()[:9], hostile(name), *kill()[9:])
    assert tape.length and (tape.ends or "").startswith("line 10: scene.runs[0]"), tape.ends
    assert json.loads(tape.index())["ends"] == tape.ends


def test_what_is_no_recording_is_a_clear_error(tmp_path: Path) -> None:
    for content in (b"", b"\n", b"{}\n", b"\x00" * 4096, kill()[0], kill()[0][:40], b"[" * 100_000 + b"\n"):
        path = tmp_path / "made.jsonl"
        path.write_bytes(content)
        with pytest.raises(StatisticsError, match=r"made\.jsonl is no recording"):
            _replayer(path)
    with pytest.raises(StatisticsError, match="No such file"):
        _replayer(tmp_path / "none.jsonl")


def test_numbers_that_nothing_can_count_end_it(tmp_path: Path) -> None:
    scene, told = scenes_of(stream(8.0, kill_s=4.0))[0], readings_of(stream(8.0, kill_s=4.0))[:3]
    huge = replace(told[2], runs=(replace(told[2].runs[0], rows_in=10**400),))
    tape = shown(tmp_path, *(line_of(each).encode() for each in (scene, *told[:2], huge)))
    assert tape.length == 2 and "nothing can count" in (tape.ends or "")


def test_a_value_of_an_event_that_json_has_not_hides_nothing_else(tmp_path: Path) -> None:
    """Of a stranger's recording nothing was shown then, and no word said why."""
    path = tmp_path / "run.jsonl"
    lines = [json.loads(line_of(each)) for each in stream(4.0, kill_s=1.2)]
    for event in (event for line in lines if line["kind"] == "reading" for run in line["runs"] for event in run["events"]):
        event["details"] = {"rate": float("nan")}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    tape = Tape(path)
    tape.fill()
    found = json.loads(tape.index())
    assert found["events"] and {event["rate"] for event in found["events"]} == {None} and found["ends"] is None


def test_no_peak_is_lost_where_curves_are_thinned() -> None:
    points = [(place, (float(place), 1.0, 900.0 if place == 7_777 else 2.0, 1.0, 1.0)) for place in range(10_000)]
    found = thinned(points, 100)
    assert len(found) == 100 and max(point[2] or 0 for _, point in found) == 900.0 and [p for p, _ in found] == sorted(p for p, _ in found)
