"""The commands together, and how a command ends: its exit code, its one error message, its one JSON object.

Nothing here knows what a command does. A command returns its report; what it raises becomes a message and an exit code.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from types import FrameType
from typing import Annotated, Any, Final, Literal, NoReturn

import typer

from evenflow.cli.bench import bench
from evenflow.cli.bounds import bounded
from evenflow.cli.checkpoints import checkpoints
from evenflow.cli.demo import demo
from evenflow.cli.doctor import doctor
from evenflow.cli.document import check, export, preview
from evenflow.cli.experiment import experiment
from evenflow.cli.operate import (
    add_sites,
    availability,
    drain,
    pin,
    rebalance,
    refresh,
    remove_sites,
    repartition,
    savepoint,
    sites,
    stop,
    suspend,
)
from evenflow.cli.output import FAILED, INTERRUPTED, OK, Output, exit_code_of
from evenflow.cli.plan import plan
from evenflow.cli.policy import policy
from evenflow.cli.profile import profile
from evenflow.cli.replacing import compare, replace, start
from evenflow.cli.run import run
from evenflow.cli.sql import sql
from evenflow.cli.state import state
from evenflow.cli.subscribe import subscribe
from evenflow.cli.swarm import swarm
from evenflow.cli.ui import ui
from evenflow.cli.watch import watch

USAGE_ERROR: Final[type[Exception]] = typer.BadParameter.__mro__[2]
"""Base of what Typer raises for wrong options; where it lives depends on Typer's version."""

EXIT_CODES: Final = """\
Exit codes: 0 done, 1 the run failed, 2 wrong usage or query, 3 the cluster cannot host the run, 130 interrupted.
"""

app = typer.Typer(
    name="evenflow",
    help="Continuous queries inside an ordinary Spark cluster.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"auto_envvar_prefix": "EVENFLOW"},
)
app.command(epilog=EXIT_CODES)(demo)
app.command(epilog=EXIT_CODES, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(run)
app.command(epilog=EXIT_CODES, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(plan)
app.command(epilog=EXIT_CODES)(check)
app.command(epilog=EXIT_CODES, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(export)
app.command(epilog=EXIT_CODES, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(preview)
app.command(epilog=EXIT_CODES)(sql)
app.command(epilog=EXIT_CODES)(ui)
app.command(epilog=EXIT_CODES)(doctor)
app.add_typer(bench, name="bench", epilog=EXIT_CODES)
app.add_typer(checkpoints, name="checkpoints", epilog=EXIT_CODES)
app.command(epilog=EXIT_CODES)(experiment)
app.command(epilog=EXIT_CODES)(policy)
app.command(epilog=EXIT_CODES)(swarm)
app.command(epilog=EXIT_CODES)(watch)
app.command(epilog=EXIT_CODES)(subscribe)
for _operation in (
    sites,
    drain,
    add_sites,
    remove_sites,
    rebalance,
    pin,
    repartition,
    availability,
    refresh,
    savepoint,
    suspend,
    stop,
    state,
    profile,
):
    app.command(epilog=EXIT_CODES)(_operation)
for _of_file in (start, compare, replace):
    app.command(epilog=EXIT_CODES, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(_of_file)


def _print_version(wanted: bool) -> None:
    if wanted:
        import evenflow

        print(f"evenflow {evenflow.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")] = False,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None,
        typer.Option(help="From which level on the driver and its sites say what happens, on standard error; else warnings."),
    ] = None,
) -> None:
    """Continuous queries inside an ordinary Spark cluster: low latency, exactly once.

    Try `evenflow demo` first.
    """
    if log_level is not None or os.environ.get("EVENFLOW_LOG"):
        from evenflow.world.spark.executor.entry import speak

        speak(logging.getLevelNamesMapping()[(log_level or "warning").upper()])


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run one command and leave the process with its exit code. arguments: default sys.argv."""
    given = sys.argv[1:] if arguments is None else arguments
    # Spark's own opinion of the installed pandas would stand in the middle of the terminal view.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # Else it was started with nohup, and is meant to outlive its terminal.
        signal.signal(signal.SIGHUP, _interrupt)
    with Output(as_json="--json" in _own(given)) as output:
        code = _run(given, output)
    sys.exit(code or (FAILED if output.lost else OK))


def _run(arguments: list[str], output: Output) -> int:
    try:
        answer: Any = command()(args=arguments, prog_name="evenflow", standalone_mode=False, obj=output)
    except USAGE_ERROR as error:
        return output.usage_error(error)
    except typer.Exit as end:
        answer = int(end.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return output.interrupted()
    except Exception as error:
        output.error(error)
        return exit_code_of(error)
    if answer == INTERRUPTED and not output.reported:  # Some versions of Typer turn an interrupt into an exit themselves.
        return output.interrupted()
    return answer if isinstance(answer, int) else 0


def command() -> Any:
    """The commands as one, with the limits that hold for all of them."""
    return bounded(typer.main.get_command(app))


def _own(arguments: list[str]) -> list[str]:
    """Arguments before `--`; what follows belongs to the user's dataflow."""
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
