"""Settings of Spark, options of the engine and a file with all of it: what counts, and what is wrong usage."""

from __future__ import annotations

from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import run
from typer.main import get_command

from evenflow.cli import running
from evenflow.cli.app import app
from evenflow.cli.running import Request
from evenflow.cli.settings import OWN
from evenflow.coordinator.requests import BY_NAME
from evenflow.policy.proposal import Parameters
from evenflow.world.spark.driver.engine import Engine
from evenflow.world.spark.driver.options import EngineOptions

pytestmark = pytest.mark.one_in(2)

EXAMPLE = str(Path(__file__).resolve().parents[2] / "examples" / "hot_items.sql")
FLOW = """
import evenflow as ef
def dataflow(rows: int = 1, word: str = "a"):
    flow = ef.Dataflow(f"f{rows}{word}")
    flow.source(ef.sources.packets(rows=rows)).to(ef.sinks.discard())
    return flow
"""


def said_to(command: str) -> set[str]:
    """The names of all that a command can be told."""
    return {each.name for each in get_command(app).commands[command].params}  # type: ignore[attr-defined]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """What a command would run."""
    found: list[Request] = []

    def execute(request: Request, output: Any) -> int:
        found.append(request)
        return 0

    monkeypatch.setattr("evenflow.cli.sql.execute", execute)
    monkeypatch.setattr("evenflow.cli.run.execute", execute)
    assert running.execute is not execute
    return found


def test_the_command_line_counts_before_the_environment_and_that_before_the_file(
    tmp_path: Path, asked: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "e.toml"
    file.write_text(
        'sites = 5\nreplicas = 2\nspares = 1\ncheckpoint-location = "/tmp/l"\n[engine]\nlinger_ms = 3\npartitions = 16\n'
        '[spark]\nspark.executor.memory = "2g"\n"spark.executor.cores" = 4\n'
    )
    monkeypatch.setenv("EVENFLOW_SQL_SITES", "6")
    monkeypatch.setenv("EVENFLOW_SQL_REPLICAS", "3")
    given = ("--config", str(file), "--replicas", "4", "--option", "linger_ms=7", "--option", "user_timeout_s=none")
    assert run("sql", EXAMPLE, *given, "--conf", "spark.executor.cores=8") == 0
    request = asked[0]
    assert (request.sites, request.replicas, request.spares, request.checkpoint_location) == (6, 4, 1, "/tmp/l")
    assert request.settings.engine == {"linger_ms": 7, "partitions": 16, "user_timeout_s": None}
    assert request.settings.conf == {"spark.executor.memory": "2g", "spark.executor.cores": "8"}


def test_all_that_an_engine_and_a_start_can_be_told_a_command_can(asked: list[Request]) -> None:
    """Goal: nobody has to write a program for an option. Method: the arguments of both in Python, each said to the command."""
    takes = {*signature(Engine.__init__).parameters, *signature(Engine.start).parameters}
    python = {"self", "flow", "spark", "options", "watch"}  # The dataflow is FILE, the session --master and --conf; a watcher is code.
    of_run, of_sql, of_start = (said_to(command) for command in ("run", "sql", "start"))
    # A script's rows are printed, so it has no live view; it has no functions, so what it was is read from a location as it is.
    assert takes - python - of_run == {"placement"} and of_run - of_sql == {"plain", "earlier", "allow_pickle"}
    asked_of_a_running_one = {argument.name for argument in BY_NAME["start"].arguments}
    started = set(signature(Engine.start).parameters) - python
    assert started - of_start == started - asked_of_a_running_one == {"standby"}, "who asks a running engine does not wait with it"
    assert {field.name for field in fields(EngineOptions)} >= {"balance", "checkpoint_location"}
    samples = {"balance_parameters": "{th_imb = 1.3, segments = [1, 2]}", "ports": '"40000-40099"', "tls": "false"}
    said = {field.name: samples.get(field.name) or str(field.default) for field in fields(EngineOptions) if field.name not in OWN}
    texts = {name: {"True": "true", "False": "false"}.get(value, value) for name, value in {**said, "placement": "chained"}.items()}
    assert run("sql", EXAMPLE, *(word for pair in texts.items() for word in ("--option", "=".join(pair)))) == 0
    engine = dict(asked[0].settings.engine)
    assert engine.pop("placement") == "chained" and engine["balance_parameters"] == Parameters(th_imb=1.3, segments=(1, 2))
    assert EngineOptions(**engine) == EngineOptions(balance_parameters=engine["balance_parameters"], ports=EngineOptions(**engine).ports)


def test_arguments_of_the_dataflow_come_from_the_file_too(tmp_path: Path, asked: list[Request]) -> None:
    program, file = tmp_path / "program.py", tmp_path / "e.toml"
    program.write_text(FLOW)
    file.write_text('[dataflow]\nrows = 7\nword = "b"\n')
    assert run("run", str(program), "--config", str(file), "--word", "c") == 0
    assert asked[0].build(None).name == "f7c"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--option", "lingerms=3"], "no option 'lingerms'; did you mean linger_ms"),
        (["--option", "linger_ms"], "has no value; write linger_ms=value"),
        (["--option", "linger_ms=soon"], "linger_ms is 'soon'; give a number"),
        (["--option", "balance=evenflow"], "balance is said by --balance"),
        (["--option", "placement=anywhere"], "placement is 'anywhere'; give one of mirrored, chained"),
        (["--option", "balance_parameters=3"], "give a table, such as {th_imb = 1.3}"),
        (["--option", "balance_parameters={th_imp = 2}"], "no parameter 'th_imp'; did you mean th_imb"),
        (["--option", "balance_parameters={th_imb = 'much'}"], "th_imb is 'much'; give a number"),
        (["--option", "balance_parameters={th_imb = 0.5}"], "ratios >= 1"),
        (["--option", f"balance_parameters={{th_imb = 1{'0' * 400}}}"], "give a number"),
        (["--option", "balance_parameters={segments = 3}"], "segments is 3; give a list of whole numbers"),
        (["--option", "balance_parameters={segments = [1.5]}"], "segments is [1.5]; give a list of whole numbers"),
        (["--option", "balance_parameters={moves_max = 1.5}"], "moves_max is 1.5; give a whole number"),
        (["--option", "balance_parameters={delta_min_us = 2.5e5}"], "delta_min_us is 250000.0; give a whole number"),
        (["--from-savepoint", "/saved"], "give --checkpoint-location, too"),
        (["--checkpoint-location", "/at", "--drop-state", "visits"], "give --from-savepoint, too"),
        (["--checkpoint-location", ""], "an empty text; leave the option out"),
        (["--conf", "spark.master=local"], "spark.master is said by --master"),
        (["--conf", "linger_ms=3"], "no setting of Spark"),
        (["--config", "nowhere.toml"], "cannot read nowhere.toml"),
    ],
)
def test_what_there_is_not_is_wrong_usage(arguments: list[str], text: str, asked: list[Request], capfd: pytest.CaptureFixture[str]) -> None:
    assert run("sql", EXAMPLE, *arguments) == 2
    assert text in " ".join(capfd.readouterr().err.split()) and not asked


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("site = 3", "'site', which is no option of this command; did you mean sites"),
        ("spark = 3", "spark is a table; write [spark] above its lines"),
        ("sites = ", "is no TOML"),
        ('sites = "many"', "Invalid value for '--sites'"),
        ("[engine]\nlease = 3", "no option 'lease'; did you mean lease_s"),
        ("x = " + "[" * 100_000, "is no TOML"),
        ("#" * 2_000_000, "more than 1,048,576 bytes"),
    ],
)
def test_a_file_that_says_what_there_is_not_is_wrong_usage(
    content: str, text: str, tmp_path: Path, asked: list[Request], capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "e.toml"
    file.write_text(content)
    assert run("sql", EXAMPLE, "--config", str(file)) == 2
    assert text in " ".join(capfd.readouterr().err.split()) and not asked


def test_a_script_begins_with_a_savepoint_as_a_program_does(asked: list[Request], tmp_path: Path) -> None:
    given = ("--checkpoint-location", "/at", "--from-savepoint", "/saved", "--drop-state", "visits", "--drop-state", "totals")
    written = ("--statistics", str(tmp_path / "s.jsonl"), "--record", str(tmp_path / "r.jsonl"), "--no-ui")
    assert run("sql", EXAMPLE, *given, *written) == 0
    assert (asked[0].from_savepoint, asked[0].drop_state, asked[0].ui) == ("/saved", ("visits", "totals"), False)
    assert asked[0].recording is not None and asked[0].recorder is not None
