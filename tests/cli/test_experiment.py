"""`evenflow experiment`: exit codes, the table, the object and the files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.commands import object_of, run

from evenflow.experiments.registry import EXPERIMENTS

KEYS = {"name", "source", "world", "paper", "measured", "target", "holds", "plot"}


def test_a_run_leaves_a_table_an_object_and_a_plot(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "made" / "here"
    assert run("experiment", "reliability", "--quick", "--out", str(out)) == 0
    shown = capfd.readouterr().out
    assert "exponent_cluster_pairs" in shown and "paper" in shown and "must be" in shown
    found = json.loads((out / "reliability-sim.json").read_text())
    assert set(found) == KEYS and found["measured"]["quick"] is True
    assert "| `exponent_cluster_pairs` | -2 |" in (out / "reliability-sim.md").read_text()
    assert "<svg" in Path(found["plot"]).read_text()


@pytest.mark.conformance
def test_as_json_it_is_the_same_object(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("experiment", "reliability", "--quick", "--json", "--out", str(tmp_path)) == 0
    assert object_of(capfd.readouterr().out) == json.loads((tmp_path / "reliability-sim.json").read_text())


@pytest.mark.conformance
def test_without_matplotlib_there_is_all_but_the_plot(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenflow.experiments.harness.experiment.can_draw", lambda: False)
    assert run("experiment", "reliability", "--quick", "--json", "--out", str(tmp_path)) == 0
    caught = capfd.readouterr()
    assert object_of(caught.out)["plot"] is None and "evenflow[experiments]" in caught.err
    assert "![" not in (tmp_path / "reliability-sim.md").read_text()


def test_the_list_names_all_and_runs_none(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("experiment", "list") == 0
    shown = capfd.readouterr().out
    assert all(name in shown for name in EXPERIMENTS)
    assert run("experiment", "list", "--json") == 0
    listed = object_of(capfd.readouterr().out)["experiments"]
    assert [each["name"] for each in listed] == list(EXPERIMENTS) and set(listed[0]) == {"name", "title", "source", "worlds"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fountain"], "reliability"),
        (["reliability", "--world", "spark"], "sim only"),
        (["reliability", "--world", "mars"], "sim"),
        ([], "NAME"),
    ],
)
def test_wrong_usage_is_code_2_and_says_what_there_is(arguments: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("experiment", *arguments) == 2
    caught = capfd.readouterr()
    assert "error:" in caught.err and said in caught.err and caught.out == ""
    assert run("experiment", *arguments, "--json") == 2
    assert object_of(capfd.readouterr().out)["error"]["type"] == "UsageError"


def test_a_directory_that_cannot_be_made_is_an_error_before_anything_is_measured(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert run("experiment", "reliability", "--out", str(tmp_path / "file" / "below")) == 1
    caught = capfd.readouterr()
    assert "cannot write" in caught.err and "Traceback" not in caught.err and "lives" not in caught.err


def test_it_explains_itself(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("experiment", "--help") == 0
    out = capfd.readouterr().out
    assert "Usage" in out and "Example" in out


def test_every_experiment_is_in_the_documents() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "experiments.md").read_text(encoding="utf-8")
    for name, experiment in EXPERIMENTS.items():
        section = text.partition(f"## `{name}`\n")[2].partition("\n## ")[0]
        assert f"evenflow experiment {name}" in section and experiment.source.split()[0] in section, name
