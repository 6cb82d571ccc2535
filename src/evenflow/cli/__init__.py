"""The command line: `evenflow demo`, `run`, `plan` and `bench`, and what else docs/cli.md describes.

One file a command, `app` has them all, `output` prints, `options` and `bounds` read what is given. It decides nothing that
an engine decides, and knows no rule of the protocol.
"""

from evenflow.cli.app import main

__all__ = ["main"]
