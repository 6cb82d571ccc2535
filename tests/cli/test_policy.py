"""`evenflow policy`: the moves, the object, and what is wrong usage; on the files that docs/policies.md shows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.policy.profiles import profile, totals

from evenflow.cli.app import main
from evenflow.policy.catalogue import POLICIES
from evenflow.statistics.statistics import Statistics

pytestmark = pytest.mark.one_in(2)

ROOT = Path(__file__).resolve().parents[2]
STATISTICS = str(ROOT / "examples" / "statistics.json")
SESSIONS = str(ROOT / "examples" / "network_sessions.py")
HOSTING = str(ROOT / "examples" / "hosting.json")


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(["policy", *arguments])
    return int(end.value.code or 0)


def proposed(capfd: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(*arguments, "--json") == 0
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 1
    found: dict[str, Any] = json.loads(lines[0])
    return found


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_runs_on_the_example(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    found = proposed(capfd, name, STATISTICS)
    assert set(found) == {"policy", "parameters", "moves", "next_delta_us", "imbalance", "text", "sites"}
    assert found["policy"] == name and [site["site"] for site in found["sites"]] == [0, 1, 2, 3]
    assert run(name, STATISTICS) == 0
    assert "next: statistics of" in capfd.readouterr().out


def test_the_slow_site_gives_and_the_hosting_says_what_may_move(capfd: pytest.CaptureFixture[str]) -> None:
    one = proposed(capfd, "utilization", STATISTICS, "--segment", "1")
    assert [(move["segment"], len(move["partitions"]), move["source"]) for move in one["moves"]] == [(1, 1, 0)]
    free = proposed(capfd, "evenflow", STATISTICS)
    assert sum(site["gives"] for site in free["sites"]) == 7 and free["sites"][0]["gives"] == 7
    bound = proposed(capfd, "evenflow", STATISTICS, "--hosting", HOSTING)
    assert {move["segment"] for move in bound["moves"]} == {1} and {move["target"] for move in bound["moves"]} == {1, 3}


def test_parameters_are_taken(capfd: pytest.CaptureFixture[str]) -> None:
    found = proposed(capfd, "utilization", STATISTICS, "--th-imb", "3", "--delta-min-ms", "700", "--th-util", "0.8")
    assert found["moves"] == [] and found["next_delta_us"] == 700_000
    assert found["parameters"]["th_imb"] == 3 and found["parameters"]["th_util"] == 0.8


def test_lines_of_one_run_are_one_window(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    first = json.loads(Path(STATISTICS).read_text())
    later = json.loads(Path(STATISTICS).read_text())
    for window in later["sites"]:
        window["begin_us"], window["end_us"] = window["begin_us"] + 1_000_000, window["end_us"] + 1_000_000
    (tmp_path / "lines.json").write_text(f"{json.dumps(first)}\n{json.dumps(later)}\n")
    found = proposed(capfd, "evenflow", str(tmp_path / "lines.json"))
    assert found["sites"][1]["rows"] == 2 * sum(sum(s["rows"]) for s in first["sites"][1]["segments"])
    (tmp_path / "indented.json").write_text(json.dumps(first, indent=2))
    assert proposed(capfd, "evenflow", str(tmp_path / "indented.json"))["moves"] == proposed(capfd, "evenflow", STATISTICS)["moves"]


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        (["fountain", STATISTICS], "PolicyError", "utilization"),
        (["resilient", STATISTICS], "PolicyError", "name the dataflow's file with --dataflow"),
        (["correlation", STATISTICS, "--th-imb", "2"], "PolicyError", "leave these options out"),
        (["evenflow", STATISTICS, "--dataflow", "flow.py"], "PolicyError", "--dataflow is for placements"),
        (
            ["start", STATISTICS, "--dataflow", str(ROOT / "examples" / "network_sessions.py")],
            "PolicyError",
            "do not say what sources offered",
        ),
        (["evenflow", "missing.json"], "PolicyError", "cannot read missing.json"),
        (["evenflow", str(ROOT / "README.md")], "StatisticsError", "README.md"),
        (["evenflow", STATISTICS, "--hosting", STATISTICS], "PolicyError", "an object with replicas"),
        (["evenflow", STATISTICS, "--th-imb", "0.5"], "PolicyError", "ratios >= 1"),
        (["evenflow"], "UsageError", "FILE"),
    ],
)
def test_wrong_usage_is_code_2_and_says_what_to_do(arguments: list[str], kind: str, said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(*arguments) == 2
    caught = capfd.readouterr()
    assert "error:" in caught.err and said in caught.err and caught.out == "" and "Traceback" not in caught.err
    assert run(*arguments, "--json") == 2
    assert json.loads(capfd.readouterr().out)["error"]["type"] == kind


OVERLOAD = str(ROOT / "examples" / "overload.json")


def test_shedding_prints_the_papers_table_and_its_best_plan(capfd: pytest.CaptureFixture[str]) -> None:
    found = proposed(capfd, "shedding", OVERLOAD)
    assert found["let_in"] == {"input 1": pytest.approx(1 / 5), "input 2": pytest.approx(2 / 5)} and found["how"] == "plan"
    loads = [(each["loads"]["A"], each["loads"]["B"], each["feasible"]) for each in found["alternatives"]]
    assert loads == [
        (3, pytest.approx(4 / 3), False), (1, pytest.approx(4 / 3), False), (1, 3, False), (1, 0.5, True),
        (pytest.approx(1), pytest.approx(1), True),
    ]  # fmt: skip
    assert run("shedding", OVERLOAD) == 0
    shown = capfd.readouterr().out
    assert "let in (1/5, 2/5)" in shown and shown.count("1/4, 1/4") == 2


def test_of_several_sources_the_protected_one_is_whole_and_no_other_choice_is_worth_more(capfd: pytest.CaptureFixture[str]) -> None:
    """Goal: the example's plan is the best. Method: every mix of clicks and sensors on a grid that the three sites can do."""
    found = proposed(capfd, "shedding", str(ROOT / "examples" / "overload_sources.json"))
    assert found["delivered"]["billed"] == 1 and found["let_in"] == pytest.approx({"orders": 200, "clicks": 2500, "sensors": 950})
    assert [each["feasible"] for each in found["alternatives"]] == [False, True, True, True]

    def worth(clicks: float, sensors: float) -> float:
        suspects = 200 + clicks / 4
        front, middle, back = 0.2 + 0.0003 * clicks, 0.0008 * suspects + 0.0002 * sensors, 0.0005 * sensors
        if front > 0.95 + 1e-9 or middle > 0.95 + 1e-9 or back > 0.475 + 1e-9:
            return 0.0
        fraud, shown = suspects / 1200, sensors / 3000
        return 5 * float(np.interp(fraud, [0, 0.25, 1], [0, 0.5, 1])) + float(np.interp(shown, [0, 0.5, 1], [0, 0.8, 1]))

    best = max(worth(clicks, sensors) for clicks in range(0, 4001, 50) for sensors in range(0, 3001, 50))
    assert worth(found["let_in"]["clicks"], found["let_in"]["sensors"]) >= best - 1e-9
    assert found["utility"]["fraud"] * 5 + found["utility"]["shown"] == pytest.approx(best)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"sites": {}}, "'sites'"),
        ({"outputs": {"o": {"reads": "nobody"}}}, "there is no 'nobody'"),
        ({"outputs": {"o": {"reads": "B1", "loss": [[0, 1], [1, 0]]}}}, "falls where more is delivered"),
        ({"outputs": {"o": {"reads": "B1", "loss": [[0, 1]]}}}, "two points"),
        ({"sources": {"input 1": {"rate": -1}, "input 2": {"rate": 1}}}, "rate of source 'input 1' is -1"),
        ({"sources": {"input 1": {"rate": "1/0"}, "input 2": {"rate": 1}}}, "'1/0'"),
        ({"boxes": {"A1": {"site": "C", "cost_s": 1, "reads": "input 1"}}}, "'C', which is not among the sites"),
        ({"speed": 3}, "no 'speed'"),
        ({"headroom": "1e99999999"}, "headroom is '1e99999999'"),
        ({"headroom": "9" * 100}, "headroom"),
        ({"headroom": 10**400}, "headroom"),
        ({"outputs": {"o": {"reads": "B1", "loss": [[0, 0], [1, 10**400]]}}}, "a utility in the loss"),
        ({"outputs": {"o": {"reads": "B1", "loss": ["01", "23"]}}}, "give points"),
        ({"outputs": {"o": {"reads": "B1", "loss": [[-5, 0], [1, 1]]}}}, "a share in the loss"),
        ({"outputs": {"o": {"reads": "B1", "loss": [[0, 0], [7, 9]]}}}, "shares from 0 to 1"),
        ({"outputs": {"o": {"reads": "B1", "protected": "no"}}}, "true or false"),
        ({"outputs": {"A1": {"reads": "B1"}}}, "the name of two things"),
        ({"outputs": {"o": {"reads": ["B1", "B1"]}}}, "twice"),
    ],
)
def test_an_overload_that_is_wrong_says_where(change: dict[str, Any], says: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "overload.json"
    path.write_text(json.dumps({**json.loads(Path(OVERLOAD).read_text()), **change}))
    assert run("shedding", str(path), "--json") == 2
    error = json.loads(capfd.readouterr().out)["error"]
    assert error["type"] == "PolicyError" and says in error["message"] and str(path) in error["message"]


def test_an_overload_that_is_too_deep_is_no_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "overload.json"
    path.write_text("[" * 100_000)
    assert run("shedding", str(path), "--json") == 2
    assert json.loads(capfd.readouterr().out)["error"]["type"] == "PolicyError"


def test_shedding_takes_no_thresholds(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("shedding", OVERLOAD, "--th-imb", "2") == 2
    assert "no thresholds" in capfd.readouterr().err


FLOW = """
import evenflow as ef

def dataflow():
    flow = ef.Dataflow("totals")
    rows = flow.source(ef.sources.generator(partitions=2), name="in")
    for at in range(3):
        rows.agg(n="count(*)").to(ef.sinks.discard(), name=f"total{at}")
    rows.group_by("key").agg(n="count(*)").to(ef.sinks.discard(), name="by_key")
    return flow
"""


@pytest.mark.parametrize("name", ["start", "resilient"])
def test_a_placement_says_where_all_would_lie(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Of two windows of a dataflow; what it says is a hosting file, from which a policy goes on."""
    planned = totals(3, 2)
    (whole,) = profile(planned, {segment.id: 10.0 for segment in planned.segments}).sites
    first = Statistics.of([whole, replace(whole, site=1, sources=())])
    later = Statistics.of(replace(window, begin_us=1_000_000, end_us=2_000_000) for window in first.sites)
    (tmp_path / "run.json").write_text(f"{first.to_json()}\n\n{later.to_json()}\n")
    (tmp_path / "flow.py").write_text(FLOW)
    arguments = name, str(tmp_path / "run.json"), "--dataflow", str(tmp_path / "flow.py")
    found = proposed(capfd, *arguments)
    assert set(found) == {"policy", "replicas", "sites", "feasible", "apart", "elsewhere"}
    assert {segment: len(row) for segment, row in found["replicas"].items()} == {str(s.id): s.partitions for s in planned.segments}
    assert sum(site["partitions"] for site in found["sites"]) == sum(segment.partitions for segment in planned.segments)
    assert run(*arguments) == 0
    assert f"{name}: " in capfd.readouterr().out
    (tmp_path / "hosting.json").write_text(json.dumps({"replicas": found["replicas"]}))
    proposed(capfd, "evenflow", str(tmp_path / "run.json"), "--hosting", str(tmp_path / "hosting.json"))


def test_a_placement_by_loads_alone_needs_no_dataflow(capfd: pytest.CaptureFixture[str]) -> None:
    """The slow site of the example gets half of what the others get."""
    found = proposed(capfd, "correlation", STATISTICS)
    assert [site["partitions"] for site in found["sites"]] == [9, 20, 19, 20] and found["apart"] is None
    shares = [site["placed_utilization"] for site in found["sites"]]
    assert max(shares) < 1.05 * min(shares) and max(site["utilization"] for site in found["sites"]) > 0.99


def test_the_page_asks_in_python_what_the_command_asks(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    monkeypatch.chdir(ROOT)
    exec(page.split("```python\n")[1].split("```")[0], names)
    capfd.readouterr()
    said = proposed(capfd, "correlation", STATISTICS)["replicas"]
    asked = {(int(segment), partition): tuple(sites) for segment, row in said.items() for partition, sites in enumerate(row)}
    assert asked == {at: (site,) for at, site in names["found"].replicas.items()}
