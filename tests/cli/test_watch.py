"""`evenflow watch` of a recording, and the live view's numbers out of scenes and readings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.monitor.simulated import line_of, readings_of, scenes_of, stream

from evenflow.cli.app import main
from evenflow.cli.output import Output
from evenflow.cli.watch import Shown
from evenflow.monitor.history import History
from evenflow.monitor.reading import Reading
from evenflow.monitor.scene import Scene
from evenflow.monitor.viewed import events_of, progress_of
from evenflow.statistics.progress import Progress
from evenflow.world.spark.driver import control_client
from evenflow.world.spark.driver.control_client import Address


def recording(path: Path, cut: int = 0) -> Path:
    text = "".join(line_of(each) for each in stream(4.0, kill_s=1.2))
    path.write_text(text[: len(text) - cut], encoding="utf-8")
    return path


def test_a_recording_is_told_with_what_happened(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["watch", str(recording(tmp_path / "run.jsonl")), "--json"])
    said = capfd.readouterr()
    assert end.value.code == 0
    progress = Progress.from_json(json.loads(said.out))
    last = readings_of(stream(4.0, kill_s=1.2))[-1].runs[0]
    assert (progress.rows_in, progress.rows_out, progress.epoch, progress.redundancy) == (last.rows_in, last.rows_out, last.epoch, 2)
    assert "site_lost" in said.err and "redundancy" in said.err and said.err.count(" in flight") >= 3


def test_a_recording_of_a_stranger_does_not_steer_the_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = recording(tmp_path / "run.jsonl")
    path.write_text(
        path.read_text(encoding="utf-8").replace(" is lost", r" is \u001b]0;mine\u0007\u009b2J [/lost] :key:"), encoding="utf-8"
    )
    with pytest.raises(SystemExit) as end:
        main(["watch", str(path)])
    said = capfd.readouterr()
    assert end.value.code == 0
    assert r"is \x1b]0;mine\x9b2J [/lost] :key:" in said.err and not {"\x1b", "\x07", "\x9b"} & {*said.err, *said.out}


def test_a_recording_that_was_cut_is_told_up_to_the_cut(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["watch", str(recording(tmp_path / "run.jsonl", cut=100)), "--json"])
    assert end.value.code == 0
    assert json.loads(capfd.readouterr().out)["epoch"] == readings_of(stream(4.0, kill_s=1.2))[-2].runs[0].epoch


@pytest.mark.parametrize(("text", "why"), [("evenflow\n", "line 1"), ("", "there is no run to watch"), (None, "cannot be read")])
def test_what_is_no_recording_is_one_message(text: str | None, why: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other.jsonl"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit) as end:
        main(["watch", str(path)])
    assert end.value.code not in (0, 70) and why in capfd.readouterr().err


def test_the_view_s_numbers_are_differences_of_readings() -> None:
    history, events = History(), list[dict[str, object]]()
    for told in stream(4.0, kill_s=1.2):
        history.add(told)
        if told is not history.scene:
            events = events_of(history, "run-1", events)
    progress = progress_of(history, "run-1")
    assert progress is not None and progress_of(history, "another") is None
    readings, scene = readings_of(stream(4.0, kill_s=1.2)), scenes_of(stream(4.0, kill_s=1.2))[-1]
    whole = readings[-1].runs[0].rows_in - readings[0].runs[0].rows_in
    assert progress.rows_in_per_s == pytest.approx(whole / ((readings[-1].at_us - readings[0].at_us) / 1e6), abs=0.1)
    assert [site.site for site in progress.sites] == [1, 2, 3] and {site.role for site in progress.sites} == {"live"}
    assert sum(site.partitions for site in progress.sites) == len(scene.runs[0].replicas_of.site)
    assert all(site.utilization is not None and 0 <= site.utilization <= 1 for site in progress.sites)
    assert [box.box for box in progress.boxes] == ["kept", "counts"]
    assert {"site_lost", "take_over", "redundancy"} <= {str(event["kind"]) for event in events}
    assert Progress.from_json(progress.to_json()) == progress


def test_the_run_that_follows_is_told_at_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """And not when it is older than the one before it was, which may be days. Its view has its name and its own past."""
    first = list(stream(4.0))
    scene, last = scenes_of(first)[-1], readings_of(first)[-1]
    run, now = scene.runs[0], last.runs[0]
    other = replace(run, run="other-1", dataflow="other")
    told: list[Scene | Reading] = [scene, last, replace(scene, number=scene.number + 1, runs=(replace(run, active=False), other))]
    for second in (1, 2, 3):
        news = replace(now, run="other-1", elapsed_us=second * 1_000_000, events=())
        told.append(replace(last, number=last.number + second, scene=scene.number + 1, runs=(replace(now, events=()), news)))
    path = tmp_path / "run.jsonl"
    path.write_text("".join(map(line_of, told)), encoding="utf-8")
    with pytest.raises(SystemExit):
        main(["watch", str(path)])
    said = capfd.readouterr().err
    assert [line.split(" s ")[0].strip() for line in said.splitlines() if " in flight" in line][1:] == ["1.0", "2.0", "3.0"], said
    shown = Shown(None, Output(as_json=False), plain=False)
    shown.go_on(told)
    assert shown._view is not None and shown._view.dataflow == "other" and len(shown._view._history[0]) == 3


def test_a_newcomer_has_used_no_cpu_before_its_first_report() -> None:
    """Else what it took to begin, some seconds of CPU, is what it uses now: several cores."""
    (*_, scene), (*_, last) = scenes_of(stream(4.0)), readings_of(stream(4.0))
    sites, history = last.sites, History()
    before, begun = replace(sites, heard_us=(None, 0, 0, 0), cpu_us=(0,) * 4), replace(sites, heard_us=(0,) * 4, cpu_us=(9_000_000,) * 4)
    history.add(scene)
    history.add(replace(last, sites=before))
    history.add(replace(last, sites=begun, number=last.number + 1, at_us=last.at_us + 1_000_000))
    progress = progress_of(history, "run-1")
    assert progress is not None and [site.cpu_share for site in progress.sites] == [0.0, 9.0, 9.0, 9.0]
    history.add(replace(last, sites=begun, number=last.number + 2, at_us=last.at_us + 20_000_000))
    progress = progress_of(history, "run-1")
    assert progress is not None and progress.sites[0].cpu_share == 0.0


@pytest.mark.parametrize("over", [False, True, None])
def test_an_engine_that_is_gone_while_its_run_is_active_is_no_end(
    over: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its driver was killed, say: the view was closed as if the run had ended, with exit code 0. over: None: the engine was stopped."""
    monkeypatch.setenv("EVENFLOW_CONTROL_DIR", str(tmp_path / "control"))
    address = Address("e1", "test", 7, "127.0.0.1", 1, b"")
    if over is not None:
        (control_client.control_directory() / "e1.json").write_text(address.to_json(), encoding="utf-8")
    told = list(stream(4.0))
    if over:
        scene, last = scenes_of(told)[-1], readings_of(told)[-1]
        ended = replace(scene, number=scene.number + 1, runs=(replace(scene.runs[0], active=False),))
        told += [ended, replace(last, number=last.number + 1, scene=ended.number)]
    monkeypatch.setattr(control_client, "find", lambda engine=None: address)
    monkeypatch.setattr(control_client, "watch", lambda address: (each for each in told))
    with pytest.raises(SystemExit) as end:
        main(["watch", "--json"])
    found = json.loads(capfd.readouterr().out)
    assert found["run"] == "run-1" and end.value.code == (3 if over is False else 0)
    if over is False:
        assert found["error"]["type"] == "EngineUnreachable" and "its process is gone; run-1 was active" in found["error"]["message"]


@pytest.mark.parametrize("recorded", [False, True])
def test_a_run_that_has_failed_is_no_good_end(
    recorded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What waits for a run by watching it, such as a script, took a failed one for a good one: exit code 0, and not a word."""
    monkeypatch.setenv("EVENFLOW_CONTROL_DIR", str(tmp_path / "control"))
    told = list(stream(4.0))
    scene, last = scenes_of(told)[-1], readings_of(told)[-1]
    failed = replace(scene, number=scene.number + 1, runs=(replace(scene.runs[0], active=False, failure="box 'kept' raised"),))
    told += [failed, replace(last, number=last.number + 1, scene=failed.number)]
    monkeypatch.setattr(control_client, "find", lambda engine=None: Address("e1", "test", 7, "127.0.0.1", 1, b""))
    monkeypatch.setattr(control_client, "watch", lambda address: (each for each in told))
    (tmp_path / "run.jsonl").write_text("".join(map(line_of, told)), encoding="utf-8")
    with pytest.raises(SystemExit) as end:
        main(["watch", "--json", *([str(tmp_path / "run.jsonl")] if recorded else [])])
    said = capfd.readouterr()
    found = json.loads(said.out)
    assert end.value.code == 1 and found["run"] == "run-1" and found["rows_in"] > 0
    assert found["error"] == {"type": "RunFailed", "message": "run-1 (counts) has failed: box 'kept' raised", "exit_code": 1}
    assert "has failed: box 'kept' raised" in said.err
