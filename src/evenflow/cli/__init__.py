"""The command line: `evenflow demo`, `run`, `plan` and `bench`. Described in docs/cli.md."""

from evenflow.cli.app import main

__all__ = ["main"]
