"""Write docs/protocol.md from the rule tables of the machines, or check that it is current.

python tools/gen_protocol_docs.py           # write it
python tools/gen_protocol_docs.py --check   # exit code 1 if it is out of date
"""

from __future__ import annotations

import sys
from pathlib import Path

from evenflow.coordinator.machine import RULES as COORDINATOR
from evenflow.site.part import RULES as PART

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "protocol.md"

TEXT = """\
# Protocol: the rules of the machines

This page is generated from the code by `tools/gen_protocol_docs.py`; a test holds it current. The machines are sans-IO: events in,
actions out, no clock, no socket, no thread. For each event exactly one rule is enabled; none or two is a bug and raises an error that
tells what the machine went through. The same machines run on Spark executors and in the simulator.

A rule's id groups what belongs together:

| ids | subject |
| --- | --- |
| E1-E8 | epochs and frames: keys, input order, determinism, messages, when epochs close, time, order across a re-key |
| A1-A5 | retention, acknowledgements, feeding, duplicates, admission by epoch |
| V1, V2 | membership (acts on receipt) and the plan (acts from an epoch on) |
| I1-I3 | ingress: what forms an epoch, rows pushed by Spark |
| O1, O2 | egress and sinks |

Three of them need an explanation before the tables can be read:

- **E2**: a partition consumes epoch e when it holds e's frame from every producer partition, once, in producer order. A site says in one
  mark per stream and epoch that nothing more comes from it.
- **A5**: room is granted by epoch. The oldest unfinished epoch is always admitted; only an ingress ever waits.
- **V2**: a plan is proposed beyond every epoch seen, promised by every site, then committed or proposed again later.

What an event and an effect are in detail stands with their classes: `evenflow/site/events.py`, `evenflow/site/part.py`,
`evenflow/coordinator/machine.py`.

## A dataflow's part on a site

{part}
After every event, in this order and until nothing follows any more: the ingress closes epochs that are due and allowed, partitions
process epochs that are complete, the part finishes.

## The coordinator's machine of a run

{coordinator}"""


def document() -> str:
    """The whole text of docs/protocol.md."""
    return TEXT.format(part=PART.as_markdown(), coordinator=COORDINATOR.as_markdown())


def main(arguments: list[str]) -> int:
    if "--check" in arguments:
        if DOCUMENT.is_file() and DOCUMENT.read_text(encoding="utf-8") == document():
            return 0
        print(f"{DOCUMENT.name} is out of date: run python tools/gen_protocol_docs.py", file=sys.stderr)
        return 1
    DOCUMENT.write_text(document(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
